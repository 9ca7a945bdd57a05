//! `network`: whose the HNS networks of a machine are, what is on them, and a new start for Calico's.

use std::collections::BTreeMap;

use calicoctl_win::node::sandbox::model::{Endpoint, Model, Name, NodeNetwork};
use serde_json::{Value, json};

use super::pods::{has_network, pods};
use crate::lab::Lab;

/// An endpoint that nobody deleted: it goes with its network.
const OLD: &str = "left_over";

/// Another product's network with a container, one that was named like Calico's, and what is left on Calico's.
fn lived_in() -> Lab {
    let lab = Lab::installed();
    lab.edit_model(|model| {
        add(
            model,
            "azure: {id: 0b7a, kind: L2Bridge, subnet: 10.240.0.0/16, \
             endpoints: {web-1: {ip: 10.240.0.7, mac: 00-15-5D-00-00-07, container: 3f2c9d}}}\n\
             Calico-lab: {id: 0b7b, kind: Internal, subnet: 172.30.0.0/24}\n",
        );
        let calico = model.networks.get_mut(&Name::new("Calico")).unwrap();
        let old = Endpoint {
            ip: "192.168.0.61".parse().unwrap(),
            mac: "00-15-5D-00-00-61".into(),
            remote: false,
            provider_address: None,
            container: None,
            policies: Vec::new(),
            ruled_in_seconds: None,
        };
        calico.endpoints.insert(Name::new(OLD), old);
    });
    lab
}

fn add(model: &mut Model, networks: &str) {
    model.networks.extend(serde_yaml::from_str::<BTreeMap<Name, NodeNetwork>>(networks).unwrap());
}

/// Whether this is still the network that was there.
fn is_old(lab: &Lab) -> bool {
    lab.model().networks[&Name::new("Calico")].endpoints.contains_key(&Name::new(OLD))
}

/// Networks of other products, as they are in HNS.
fn others(lab: &Lab) -> String {
    let networks = lab.model().networks;
    let theirs = networks.into_iter().filter(|(name, _)| !["Calico", "External"].contains(&name.as_str()));
    format!("{:?}", theirs.collect::<Vec<_>>())
}

#[test]
fn the_list_says_whose_each_network_is() {
    let lab = lived_in();
    let list = lab.run("network list -o json").exits(0).json();
    let rows = list["networks"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {list:#}"));
    let owners = ["Calico", "External", "azure", "Calico-lab", "nat"].map(|name| row(name)["owner"].clone());
    assert_eq!(owners, ["calicoctl-win", "calicoctl-win", "other", "other", "other"].map(Value::from));
    let calico = row("Calico");
    assert_eq!((&calico["type"], &calico["vsid"]), (&json!("Overlay"), &json!(4096)));
    assert_eq!((&calico["adapter"], &calico["management_ip"]), (&json!("Ethernet"), &json!("10.20.0.21")));
    // Three pods, the endpoint of the host, a leaked one, and the one that is left.
    assert_eq!((&calico["endpoints"], &row("azure")["endpoints"]), (&json!(6), &json!(1)));

    let text = lab.run("network list").exits(0).stdout;
    for words in [
        "NAME        TYPE      VSID  MANAGEMENT IP  ADAPTER   ENDPOINTS  OWNER",
        "\nCalico      Overlay   4096  10.20.0.21     Ethernet  6          calicoctl-win",
        "azure       L2Bridge  -     -",
        "another product",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(lab.run("network list -v").exits(0).stdout.contains(calico["id"].as_str().unwrap()), "with its id");

    // Without a generation they are still Calico's.
    std::fs::remove_dir_all(lab.on_node("C/ProgramData/calicoctl-win/receipts")).unwrap();
    let list = lab.run("network list -o json").exits(0).json();
    assert_eq!(
        list["networks"].as_array().unwrap().iter().filter(|row| row["owner"] == "calico").count(),
        2,
        "{list:#}"
    );
}

#[test]
fn a_network_is_shown_with_its_endpoints_pods_and_load_balancers() {
    let lab = lived_in();
    let network = lab.run("network show calico -o json").exits(0).json();
    assert_eq!((&network["name"], &network["owner"]), (&json!("Calico"), &json!("calicoctl-win")));
    assert!(network["subnets"][0]["prefix"].as_str().unwrap().starts_with("192.168.0."), "{network:#}");
    let endpoints = network["endpoints"].as_array().unwrap();
    let here = pods(&lab);
    for (name, pod) in &here {
        let endpoint = endpoints.iter().find(|one| one["ip"] == pod["status"]["podIP"]).unwrap();
        assert!(endpoint["pod"].as_str().unwrap().ends_with(&format!("/{name}")), "{endpoint:#}");
        assert_eq!(endpoint["state"], "shared");
        assert!(endpoint["mac"].as_str().unwrap().starts_with("0e:2a:"), "{endpoint:#}");
    }
    let old = endpoints.iter().find(|one| one["name"] == OLD).unwrap();
    assert_eq!((&old["pod"], &old["state"]), (&Value::Null, &json!("created")));
    assert_eq!(network["load_balancers"][0]["protocol"], "TCP");

    let text = lab.run("network show Calico").exits(0).stdout;
    let pod = format!("demo/{}", here[0].0);
    for words in ["VSID           4096", "subnet         192.168.0.", "TCP 80 -> 8080", &pod, "ENDPOINT"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let by_id = lab.run(&format!("network show {} -o json", network["id"].as_str().unwrap())).exits(0).json();
    assert_eq!(by_id["name"], "Calico");

    // Without the cluster, it says so and shows the rest.
    let alone = lab.fails_at("api down", "network show Calico").exits(0);
    assert!(alone.stdout.contains("PodsUnknown") && alone.stdout.contains(OLD), "{alone}");
    let absent = lab.run("network show Calicoo -o json").exits(24).json();
    assert_eq!(absent["error"]["id"], "NoSuchNetwork", "{absent:#}");
}

#[test]
fn a_reset_drains_deletes_and_re_creates_calicos_networks_and_no_other() {
    let lab = lived_in();
    let before = others(&lab);
    let shown = lab.run("network reset --dry-run").exits(0).stdout;
    for words in ["-/+ hns-network  External  ", "-/+ hns-network  Calico  ", "which is deleted", "Drain of win-a1"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    assert!(is_old(&lab), "a dry run changes nothing");

    let lines = lab.run("network reset -y -o ndjson").exits(0).ndjson();
    let done =
        lines.iter().filter(|line| line["type"] == "phase_complete").filter_map(|line| line["phase"]["id"].as_str());
    let order: Vec<&str> =
        done.filter(|id| ["drain", "services-stop", "hns-network", "wait-network", "cni-conf"].contains(id)).collect();
    assert_eq!(order, ["drain", "cni-conf", "services-stop", "hns-network", "wait-network", "cni-conf"]);
    let result = lines.last().unwrap();
    assert_eq!((&result["changed"], &result["generation"]), (&json!(true), &json!(2)), "{result:#}");
    let _later = lab.run("plan").exits(0);
    assert!(!is_old(&lab), "the network is a new one");
    assert_eq!(others(&lab), before, "another product's network was touched");
    let _healthy = lab.healthy();
    assert!(lab.object("nodes", "win-a1").unwrap()["spec"].get("unschedulable").is_none(), "it is uncordoned");
    assert!(pods(&lab).iter().all(|(_, pod)| has_network(&lab, pod)), "pods have endpoints on the new one");
    let runs = lab.run("history -o json").exits(0).json();
    assert_eq!(runs["runs"].as_array().unwrap().last().unwrap()["command"], "network reset");
}

/// HNS hides a network from its second interface: what `explain HnsNetworkUnseen` is about.
#[test]
fn a_reset_brings_back_a_network_that_hns_hides() {
    let lab = lived_in();
    lab.edit_model(|model| model.networks.get_mut(&Name::new("Calico")).unwrap().unseen_by_v2 = true);
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!(status["problems"][0]["id"], "HnsNetworkUnseen", "{status:#}");
    let _reset = lab.run("network reset -y").exits(0);
    let _healthy = lab.healthy();
    assert!(!is_old(&lab));
}

/// The matrix kills it everywhere; here the networks that are left must be new ones.
#[test]
fn a_reset_that_was_killed_is_finished_with_new_networks_or_undone() {
    let first = lived_in();
    for (fault, undone_is_old) in [
        // Before the first deletion, between the two, right after both, and once the new ones are there.
        ("put network External=exit-before", true),
        ("put network Calico=exit-before", true),
        ("put network Calico=exit-after", false),
        ("put running CalicoFelix#2=exit-before", false),
    ] {
        let (lab, back) = (first.copy(), first.copy());
        for lab in [&lab, &back] {
            let _killed = lab.fails_at(fault, "network reset -y").exits(137);
        }
        let said = lab.run("resume -y").exits(0);
        assert!(said.stdout.contains("network reset is finished"), "{fault}: {said}");
        assert!(!is_old(&lab), "{fault}: it was not re-created");
        let _healthy = lab.healthy();
        let said = back.run("resume --undo -y").exits(0);
        assert!(said.stdout.contains("A network reset restores the current generation"), "{fault}: {said}");
        assert_eq!(is_old(&back), undone_is_old, "{fault}");
        let _healthy = back.healthy();
    }
}

#[test]
fn a_reset_needs_an_installation_and_says_if_there_is_nothing_to_re_create() {
    let refused = Lab::node().run("network reset -y -o json").exits(16).json();
    assert_eq!(refused["error"]["id"], "NotInstalled", "{refused:#}");
    let lab = Lab::node();
    lab.edit_model(|model| {
        add(model, "azure: {id: 0b7a, kind: L2Bridge, subnet: 10.240.0.0/16}");
    });
    let _there = lab.run("install -y --set spec.calicoNetwork.backend=none").exits(0);
    let said = lab.run("network reset -y -o json").exits(0).json();
    assert_eq!(said["changed"], false, "{said:#}");
    assert!(said["msg"].as_str().unwrap().contains("this node needs none"), "{said:#}");
}
