//! A trial that cannot be reverted: the revert is tried a few times, then left to an administrator, who learns of it
//! from `status` and from an Event on the Node. At a boot, CalicoNode starts the guard.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, Output};

pub const TRY: &str = "reconfigure -y --mode try --set spec.calicoNetwork.vxlan.vxlanVNI=5000 --confirm-timeout 1h";
const RECORD: &str = "C/ProgramData/calicoctl-win/state/trial.json";
const GUARD: &str = "service run guard --yes";

/// HNS refuses every deletion of the network.
pub const STUCK: &str = "put network Calico=fail";

/// A trial that nobody confirmed, whose guard was killed by a power failure after this many tries.
fn due(tries: u32) -> Lab {
    let lab = Lab::installed();
    let _tried = lab.run(TRY).exits(0);
    expires(&lab, tries);
    lab
}

/// The same for a trial that has just begun.
pub fn expires(lab: &Lab, tries: u32) {
    lab.end_guards();
    let mut trial: Value = serde_json::from_str(&lab.read(RECORD)).unwrap();
    trial["live"] = "2026-01-02T15:04:05Z".into();
    if tries > 0 {
        trial["tries"] = tries.into();
    }
    fs::write(lab.on_node(RECORD), trial.to_string()).unwrap();
}

/// A trial that was given up: the node has the change, and works with it.
fn given_up() -> Lab {
    let lab = due(5);
    gives_up(&guard(&lab, STUCK));
    lab
}

/// Returns the output of a guard, which must end.
#[track_caller]
pub fn guard(lab: &Lab, fault: &str) -> Output {
    let mut command = lab.command(GUARD);
    command.args(["--sandbox", "node"]).env("CALICO_WIN_SANDBOX_FAULT", fault);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while running.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(180) {
            running.kill().unwrap();
            running.wait().unwrap();
            panic!("the way back has no end: cordoned {}, confirm says {}", cordoned(lab), lab.run("confirm"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = running.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[track_caller]
pub fn gives_up(guard: &Output) {
    assert_eq!(guard.code, 10, "{guard}");
    assert!(guard.stdout.contains("TrialGivenUp"), "{guard}");
}

fn tries(lab: &Lab) -> Value {
    serde_json::from_str::<Value>(&lab.read(RECORD)).unwrap()["tries"].clone()
}

fn over(lab: &Lab) -> bool {
    !lab.on_node(RECORD).exists()
}

fn cordoned(lab: &Lab) -> bool {
    lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true
}

/// Returns the Event about it, on the Node.
fn events(lab: &Lab) -> Vec<Value> {
    let ours =
        lab.objects().into_iter().filter(|(kind, _, event)| kind == "events" && event["reason"] == "TrialGivenUp");
    ours.map(|(.., event)| event).collect()
}

fn vsid(lab: &Lab) -> Option<u64> {
    let status = lab.run("status -o json").json();
    let mut networks = status["networks"].as_array().unwrap().iter();
    networks.find(|network| network["name"] == "Calico").and_then(|network| network["vsid"].as_u64())
}

/// Checks that node and cluster are consistent, with this network and no trial.
#[track_caller]
fn at_rest(lab: &Lab, network: u64) {
    // A process that still has the lock, for example a guard that checks for leftovers, ends first.
    let _rest = lab.run("status --wait --timeout 60s");
    assert_eq!(lab.healthy()["trial"], Value::Null);
    assert_eq!((vsid(lab), cordoned(lab), over(lab)), (Some(network), false, true));
    assert!(lab.object("leases.coordination.k8s.io", "calicoctl-win.win-a1").is_none());
}

#[test]
fn the_revert_is_tried_a_few_times_with_growing_pauses_and_then_given_up() {
    let lab = due(0);
    let begun = Instant::now();
    gives_up(&guard(&lab, STUCK));
    assert!(begun.elapsed() > Duration::from_secs(2 + 4 + 8 + 16 + 32), "{:?}", begun.elapsed());
    assert_eq!(tries(&lab), 6);

    // The change works, so the node is uncordoned.
    assert_eq!((vsid(&lab), cordoned(&lab)), (Some(5000), false));
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!((&status["overall"], &status["run"]), (&json!("Degraded"), &Value::Null), "{status:#}");
    assert_eq!(status["trial"]["command"], "calicoctl-win resume --sandbox node");
    assert!(status["trial"]["given_up"].as_str().unwrap().contains("Calico"), "{status:#}");
    let shown = lab.run("status").exits(12).stdout;
    assert!(
        shown.contains("! the change on trial could not be reverted to generation 1 and is not tried any more: "),
        "{shown}"
    );
    assert!(shown.contains("\nEnd it: calicoctl-win resume --sandbox node\n"), "{shown}");
    let told = events(&lab);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["involvedObject"]["name"], "win-a1");
    let message = told[0]["message"].as_str().unwrap();
    assert!(message.starts_with("Node win-a1 could not be reverted to generation 1 in 6 tries"), "{message}");
    assert!(message.contains("; it is uncordoned, since it is Ready"), "{message}");
    assert!(message.contains("Fix the cause, then run: calicoctl-win resume --sandbox node. The cause: "), "{message}");

    // No guard tries again, not even at a boot.
    let _over = guard(&lab, "").exits(0);
    assert_eq!((tries(&lab), events(&lab).len()), (json!(6), 1));
    let refused = lab.run("repair -y -o json").exits(14).json();
    assert_eq!(refused["error"]["id"], "OnTrial");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("calicoctl-win resume"), "{refused}");
}

#[test]
fn a_power_failure_does_not_reset_the_tries() {
    let lab = due(4);
    let cut = guard(&lab, &format!("{STUCK};save *trial.json#1=exit-after"));
    assert_eq!((cut.code, tries(&lab)), (137, json!(5)), "{cut}");
    gives_up(&guard(&lab, STUCK));
    assert_eq!((vsid(&lab), cordoned(&lab), tries(&lab)), (Some(5000), false, json!(6)));

    // In the last try: the next guard does not try again, even if it would succeed.
    let lab = due(5);
    let cut = guard(&lab, "put network Calico=exit-before");
    assert_eq!((cut.code, tries(&lab)), (137, json!(6)), "{cut}");
    gives_up(&guard(&lab, ""));
    assert_eq!((vsid(&lab), cordoned(&lab), tries(&lab)), (Some(5000), false, json!(6)));
}

#[test]
fn a_node_that_does_not_work_with_the_change_stays_cordoned() {
    let lab = due(5);
    lab.edit_object("nodes", "win-a1", |node| {
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().find(|condition| condition["type"] == "Ready").unwrap()["status"] = "False".into();
    });
    gives_up(&guard(&lab, STUCK));
    assert!(cordoned(&lab));
    let message = events(&lab)[0]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("; it stays cordoned. "), "{message}");
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.contains("! Node win-a1 stays cordoned\n"), "{shown}");

    // Ready, and without a network for pods: what the failed revert left cannot be undone either.
    let lab = due(5);
    gives_up(&guard(&lab, &format!("{STUCK};put running CalicoNode#2+=fail")));
    assert!(cordoned(&lab) && lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists());
    assert!(!lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf").exists());
    for (words, network) in [("confirm", 5000), ("resume -y --undo", 5000), ("resume -y", 4096)] {
        let lab = lab.copy();
        let _ended = lab.run(words).exits(0);
        at_rest(&lab, network);
    }
}

#[test]
fn a_trial_that_was_given_up_is_kept_reverted_or_uninstalled() {
    let lab = given_up();
    for (words, network) in
        [("confirm", 5000), ("resume -y --undo", 5000), ("resume -y", 4096), ("confirm --revert -y", 4096)]
    {
        let lab = lab.copy();
        let dry = lab.run(&format!("{words} -n")).exits(0).stdout;
        let would = if network == 5000 {
            "dry run: would keep what run "
        } else {
            "dry run: would revert the node to generation 1"
        };
        assert!(dry.contains(would), "{words}: {dry}");
        let done = lab.run(&format!("{words} -o json")).exits(0).json();
        assert_eq!(done["changed"], true, "{words}: {done}");
        at_rest(&lab, network);
    }
    let _gone = lab.copy().run("uninstall -y").exits(0);

    // While the cause exists, nothing changes.
    let refused = lab.fails_at(STUCK, "resume -y -o json");
    assert_ne!(refused.code, 0, "{refused}");
    assert_eq!(tries(&lab), 6);
    let _kept = lab.run("confirm").exits(0);
    at_rest(&lab, 5000);
}

#[test]
fn a_guard_killed_while_giving_up_is_completed_by_the_verbs_and_the_next_guard() {
    let points = [
        "api POST /api/v1/namespaces/default/events#1=exit-before",
        "api POST /api/v1/namespaces/default/events#1=exit-after",
        "save *trial.json#2=exit-before",
        "save *trial.json#2=exit-after",
    ];
    for point in points {
        let lab = due(5);
        let cut = guard(&lab, &format!("{STUCK};{point}"));
        assert_eq!(cut.code, 137, "{point}: {cut}");
        for (words, network) in [("confirm", 5000), ("resume -y --undo", 5000), ("resume -y", 4096)] {
            let lab = lab.copy();
            let shown = lab.run("status -o json").exits(12).json();
            assert_eq!(shown["trial"]["command"], "calicoctl-win resume --sandbox node", "{point}: {shown:#}");
            let _ended = lab.run(words).exits(0);
            at_rest(&lab, network);
        }
        let _next = guard(&lab, "");
        assert!(!events(&lab).is_empty(), "{point}");
        let status = lab.run("status -o json").exits(12).json();
        assert!(status["trial"]["given_up"].is_string(), "{point}: {status:#}");
        assert!(!cordoned(&lab), "{point}");
    }
}
