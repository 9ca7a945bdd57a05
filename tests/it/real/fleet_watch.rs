//! `fleet apply` and `fleet status --watch` on a real cluster whose API server restarts.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::api_server::{end, until};
use super::cluster::NEIGHBOUR;
use super::fleet::{Fleet, NODES};
use super::kwok::Runs;
use crate::lab::Output;

pub const FELIX: &str = "/apis/crd.projectcalico.org/v1/felixconfigurations/default";

/// The lists of a rollout: DaemonSets, revisions, pods.
const LISTS: [&str; 3] = ["/daemonsets?", "/controllerrevisions?", "/namespaces/calicoctl-win/pods?"];

/// The NDJSON documents of a command that runs, from a thread of its own.
fn documents(output: impl std::io::Read + Send + 'static) -> Arc<Mutex<Vec<Value>>> {
    let all = Arc::<Mutex<Vec<Value>>>::default();
    let to = Arc::clone(&all);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["type"] == "document" {
                to.lock().unwrap().push(line["document"].clone());
            }
        }
    });
    all
}

#[test]
fn a_rollout_is_followed_by_watches_while_the_api_server_restarts() {
    let Some(mut fleet) = Fleet::start(&Runs::default()) else { return };
    let _done = fleet.run(&Fleet::change("apply", "node.yaml", "1 -y")).exits(0);
    fleet.with_other_admin();
    let mark = fleet.cluster.audit().len();

    let mut watch = fleet.cluster.lab.command("fleet status --watch -o ndjson --kubeconfig other");
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let seen = documents(watch.stdout.take().unwrap());
    let last = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        until(what, || seen.lock().unwrap().last().filter(|last| is_it(last)).cloned())
    };
    let first = last("the first document", &|_| true);
    assert_eq!((&first["waves"][0]["state"], &first["vni"]), (&json!("Done"), &Value::Null), "{first:#}");

    // It restarts while nodes of the first wave are changed.
    fleet.hold();
    let words = Fleet::change("apply", "vni.yaml", "2 -y");
    let apply = fleet.cluster.lab.command(&format!("{words} --kubeconfig other -o json"));
    let apply = thread::spawn(move || Output::of("fleet apply", apply));
    let begun = last("the canaries to begin", &|last| last["waves"][0]["in_progress"] != 0);
    assert_eq!((&begun["vni"]["wanted"], &begun["vni"]["former"]), (&json!(5000), &json!(4096)), "{begun:#}");
    fleet.cluster.server.restart();
    fleet.cluster.server.until_up();
    fleet.release();
    let done = apply.join().unwrap().exits(0).json();
    assert_eq!(done["changed"], true, "{done:#}");
    let all_done = |last: &Value| last["waves"].as_array().unwrap().iter().all(|wave| wave["state"] == "Done");
    let changed = last("the end", &|last| last["revision"] != first["revision"] && all_done(last));
    let have = &changed["vni"]["nodes"];
    assert_eq!((have.as_array().unwrap().len(), &have[0]["vni"]), (1, &json!(5000)), "{changed:#}");
    assert_eq!(have[0]["nodes"].as_array().unwrap().len(), NODES);
    // Linux nodes do not have it yet.
    assert_ne!(changed["vni"]["apart_since"], Value::Null, "{changed:#}");
    let next = changed["next"][0].as_str().unwrap();
    assert!(next.starts_with("kubectl patch felixconfiguration default"), "{changed:#}");
    fleet.cluster.server.patch(FELIX, &json!({ "spec": { "vxlanVNI": 5000 } }));
    let together = last("the Linux nodes to have it", &|last| last["vni"]["felix"] == 5000);
    assert_eq!((&together["vni"]["apart_since"], &together["next"]), (&Value::Null, &json!([])), "{together:#}");
    end(&mut watch);

    // Each of the two lists once before it watches, and once for its first or last document; and once more if the server
    // refused a watch because it had just started. Lists that it refused then as well do not count: a busy machine has more.
    let audit = fleet.cluster.audit();
    let own = audit.iter().skip(mark).filter(|line| line["user"]["username"] == NEIGHBOUR);
    let lists: Vec<&str> = own
        .filter(|line| line["verb"] == "list" && line["responseStatus"]["code"] == 200)
        .filter_map(|line| line["requestURI"].as_str())
        .collect();
    for list in LISTS {
        let asked = lists.iter().filter(|uri| uri.contains(list)).count();
        println!("{asked} lists of {list}");
        // `fleet apply` also reads the DaemonSets that are there.
        assert!((4..=9).contains(&asked), "{asked} of {list}: {lists:#?}");
    }
}
