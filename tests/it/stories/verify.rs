//! `verify`: every probe holds on a sandbox, and each is seen to fail, with its reason, when one fact is otherwise.

use std::fs;

use calicoctl_win::node::sandbox::model::{Model, Name};
use calicoctl_win::verify::probes;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::tokens::aged;

fn edit(lab: &Lab, change: impl FnOnce(&mut Model)) {
    lab.edit_yaml(|yaml| {
        let mut model: Model = serde_yaml::from_str(yaml).unwrap();
        change(&mut model);
        serde_yaml::to_string(&model).unwrap()
    });
}

fn probe<'a>(report: &'a Value, id: &str) -> &'a Value {
    let probes = report["probes"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    probes.iter().find(|probe| probe["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

#[test]
fn every_probe_holds_on_an_installed_node() {
    let lab = Lab::installed();
    let before = lab.picture();
    let report = lab.run("verify -o json --junit-file verify.xml").exits(0).json();
    let ids: Vec<&str> =
        report["probes"].as_array().unwrap().iter().map(|probe| probe["id"].as_str().unwrap()).collect();
    assert_eq!(ids, probes().map(|probe| probe.id).collect::<Vec<_>>());
    assert!(report["probes"].as_array().unwrap().iter().all(|probe| probe["verdict"] == "ok"), "{report:#}");
    let answered = |id: &str| probe(&report, id)["answered"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(
        ["ApiAnswers", "NodeIsReady", "PodNetwork", "HostEndpoint", "CniPluginRuns", "IpamBlock", "ClusterDns"]
            .map(answered)
            .join("\n"),
        @r"
    https://10.20.0.10:6443 has Node win-a1
    Node win-a1 is Ready
    Calico is Overlay with VSID 4096 on 10.20.0.21
    Calico_ep has 192.168.0.2
    C:\Program Files\containerd\cni\bin\calico.exe supports CNI 0.3.1
    192.168.0.0/26 is this node's
    kube-dns (10.96.0.10) has 1 ready
    "
    );
    let junit = fs::read_to_string(lab.path("verify.xml")).unwrap();
    assert!(junit.contains("<testcase classname=\"cluster\" name=\"ApiAnswers\">"), "{junit}");
    assert_eq!(lab.run("verify -o junit").exits(0).stdout, junit);
    lab.picture().same_as(&before);
}

/// One fact, the probe that it fails, and the reason in its answer.
#[test]
fn each_probe_fails_when_its_fact_is_otherwise() {
    type Turn = fn(&Lab);
    let turns: &[(&str, &str, &str, Turn)] = &[
        ("NodeIsReady", "", "Node win-a1 is not Ready: KubeletNotReady", |lab| {
            lab.edit_object("nodes", "win-a1", |node| {
                for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                    if condition["type"] == "Ready" {
                        condition["status"] = "False".into();
                        condition["reason"] = "KubeletNotReady".into();
                    }
                }
            });
        }),
        ("ApiAnswers", "api down", "refused", |_| ()),
        ("DatastoreAnswers", "api GET /api/v1/nodes/win-a1=500", "the Kubernetes API: ", |_| ()),
        ("CredentialsValid", "", "calico-kube-config has expired at ", expire),
        ("ServicesRun", "", "service CalicoFelix is stopped", |lab| {
            edit(lab, |model| model.services.get_mut(&Name::new("CalicoFelix")).unwrap().pid = None);
        }),
        ("PodNetwork", "", "the HNS network Calico has VSID 4099, not 4096", |lab| {
            edit(lab, |model| model.networks.get_mut(&Name::new("Calico")).unwrap().vsid = Some(4099));
        }),
        ("HostEndpoint", "", "the HNS network Calico has no endpoint Calico_ep", |lab| {
            edit(lab, |model| {
                let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
                assert!(network.endpoints.remove(&Name::new("Calico_ep")).is_some());
            });
        }),
        ("CniConfigPublished", "", "10-calico.conf is missing", |lab| {
            fs::remove_file(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
        }),
        ("CniPluginRuns", "", "start it (Windows error 193", |lab| {
            fs::write(lab.on_node("C/Program Files/containerd/cni/bin/calico.exe"), "half a file").unwrap();
        }),
        ("IpamBlock", "", "no block is confirmed for node win-a1", |lab| {
            let affinity = lab
                .objects()
                .into_iter()
                .find(|(kind, name, _)| kind == "blockaffinities.crd.projectcalico.org" && name.starts_with("win-a1-"));
            lab.edit_object("blockaffinities.crd.projectcalico.org", &affinity.unwrap().1, |affinity| {
                affinity["spec"]["state"] = "pendingDeletion".into();
            });
        }),
        ("ClusterDns", "", "the service kube-dns (10.96.0.10) has no ready endpoint", |lab| {
            lab.edit_object("endpointslices.discovery.k8s.io", "kube-dns-8x2fk", |slice| {
                slice["endpoints"][0]["conditions"]["ready"] = false.into();
            });
        }),
    ];
    let turned: Vec<&str> = turns.iter().map(|(id, ..)| *id).collect();
    for row in probes() {
        assert!(turned.contains(&row.id), "no fact is turned for {}", row.id);
    }
    let installed = Lab::installed();
    for (id, fault, reason, turn) in turns {
        let lab = installed.copy();
        turn(&lab);
        let report = lab.fails_at(fault, "verify -o json").exits(11).json();
        let probe = probe(&report, id);
        assert_eq!(probe["verdict"], "fail", "{id}: {report:#}");
        let answered = probe["answered"].as_str().unwrap();
        assert!(answered.contains(reason), "{id}: {answered}");
        assert!(probe["fix"].is_string(), "{probe:#}");
        assert_eq!(report["success"], json!(false));
    }
}

/// The node's token is from a month ago.
fn expire(lab: &Lab) {
    let path = lab.on_node("C/CalicoWindows/calico-kube-config");
    let mut kubeconfig: Value = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let token = &mut kubeconfig["users"][0]["user"]["token"];
    *token = aged(&lab.read("cluster/pki/sa.key"), token.as_str().unwrap(), |_| 400 * 86_400).into();
    fs::write(&path, serde_yaml::to_string(&kubeconfig).unwrap()).unwrap();
}
