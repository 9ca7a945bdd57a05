//! `verify`: every probe holds on a sandbox, and each is seen to fail, with its reason, when one fact is otherwise.

use std::collections::BTreeMap;
use std::fs;

use calicoctl_win::node::sandbox::model::{Name, Route};
use calicoctl_win::verify::probes;
use serde_json::{Value, json};

use crate::etcd::Member;
use crate::lab::Lab;
use crate::stories::credentials::{cluster, runs_with_etcd};
use crate::tokens::aged;

const NAMESPACE: &str = "calicoctl-win-verify";

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
    let looking = probes().filter(|probe| !["pods", "policy"].contains(&probe.group)).map(|probe| probe.id);
    assert_eq!(ids, looking.collect::<Vec<_>>());
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

#[test]
fn on_an_interrupted_node_the_fix_is_to_end_the_run() {
    let lab = Lab::installed();
    let _killed = lab
        .fails_at("put network Calico=exit-after", "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000")
        .exits(137);
    let report = lab.run("verify -o json").exits(11).json();
    let fix = probe(&report, "CniConfigPublished")["fix"].as_str().unwrap().to_owned();
    assert_eq!(
        fix,
        "finish the interrupted run with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo"
    );
    assert!(!report.to_string().contains("calicoctl-win repair"), "{report:#}");
}

/// A user who runs both commands must not be told two things.
#[test]
fn the_fix_of_a_probe_is_that_of_status() {
    type Turn = fn(&Lab);
    let vni = |lab: &Lab| {
        lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
            felix["spec"]["vxlanVNI"] = 5000.into();
        });
    };
    let network = |lab: &Lab| {
        lab.edit_model(|model| drop(model.networks.remove(&Name::new("Calico")).unwrap()));
    };
    let vsid = |lab: &Lab| {
        lab.edit_model(|model| model.networks.get_mut(&Name::new("Calico")).unwrap().vsid = Some(4099));
    };
    let unseen =
        |lab: &Lab| lab.edit_yaml(|yaml| yaml.replacen("vsid: 4096\n", "vsid: 4096\n    unseenByV2: true\n", 1));
    let turns: &[(&str, &str, &str, Turn)] = &[
        ("ServicesRun", "ServiceStopped", "", |lab| {
            lab.edit_model(|model| model.services.get_mut(&Name::new("CalicoFelix")).unwrap().pid = None);
        }),
        ("PodNetwork", "NodeDrifted", "", network),
        ("PodNetwork", "NodeDrifted", "", vsid),
        ("PodNetwork", "MixedVni", "", vni),
        ("PodNetwork", "HnsNetworkUnseen", "", unseen),
        ("CniConfigPublished", "CniConfigAbsent", "", |lab| {
            fs::remove_file(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
        }),
        ("CredentialsValid", "TokenExpired", "", expire),
        ("ApiAnswers", "ClusterNotAsked", "api down", |_| ()),
        ("DatastoreAnswers", "DatastoreAway", "api down", |_| ()),
        ("ApiAnswers", "NodeAbsent", "", |lab| {
            lab.remove_objects(|kind, object| kind == "nodes" && object["metadata"]["name"] == "win-a1");
        }),
        ("NodeIsReady", "NodeNotReady", "", |lab| {
            lab.edit_object("nodes", "win-a1", |node| {
                let conditions = node["status"]["conditions"].as_array_mut().unwrap();
                conditions.iter_mut().find(|one| one["type"] == "Ready").unwrap()["status"] = "False".into();
            });
        }),
    ];
    let installed = Lab::installed();
    let mut differ = Vec::new();
    for (probe, problem, fault, turn) in turns {
        let lab = installed.copy();
        turn(&lab);
        let status = lab.fails_at(fault, "status -o json").exits(12).json();
        let problems = status["problems"].as_array().unwrap();
        let command = problems.iter().find(|one| one["id"] == *problem).unwrap_or_else(|| panic!("{status:#}"));
        let report = lab.fails_at(fault, "verify -o json").exits(11).json();
        let fix = &self::probe(&report, probe)["fix"];
        if *fix != command["command"] {
            differ.push(format!("{problem}: {}, {probe}: {fix}", command["command"]));
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
    // Only the repair creates it again: the probes that look into it say nothing else.
    network(&installed);
    let report = installed.run("verify -o json").exits(11).json();
    let answered = ["HostEndpoint", "IpamBlock"].map(|id| probe(&report, id)["answered"].clone());
    assert_eq!(answered, ["the HNS network Calico is missing: see PodNetwork"; 2]);
}

/// One fact, the probe that it fails, and the reason in its answer.
#[test]
fn each_probe_fails_when_its_fact_is_otherwise() {
    type Turn = fn(&Lab);
    let turns: &[(&str, &str, Turn)] = &[
        ("NodeIsReady", "Node win-a1 is not Ready: KubeletNotReady", |lab| {
            lab.edit_object("nodes", "win-a1", |node| {
                for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                    if condition["type"] == "Ready" {
                        condition["status"] = "False".into();
                        condition["reason"] = "KubeletNotReady".into();
                    }
                }
            });
        }),
        ("ApiAnswers", "https://10.20.0.10:6443 has no Node win-a1", |lab| {
            lab.remove_objects(|kind, object| kind == "nodes" && object["metadata"]["name"] == "win-a1");
        }),
        ("DatastoreAnswers", "the Kubernetes API: ", |lab| {
            lab.remove_objects(|kind, object| {
                kind == "clusterrolebindings.rbac.authorization.k8s.io" && object["metadata"]["name"] == "calico-node"
            });
        }),
        ("CredentialsValid", "calico-kube-config has expired at ", expire),
        ("ServicesRun", "service CalicoFelix is stopped", |lab| {
            lab.edit_model(|model| model.services.get_mut(&Name::new("CalicoFelix")).unwrap().pid = None);
        }),
        ("PodNetwork", "the HNS network Calico has VSID 4099, not 4096", |lab| {
            lab.edit_model(|model| model.networks.get_mut(&Name::new("Calico")).unwrap().vsid = Some(4099));
        }),
        ("HostEndpoint", "the HNS network Calico has no endpoint Calico_ep", |lab| {
            lab.edit_model(|model| {
                let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
                assert!(network.endpoints.remove(&Name::new("Calico_ep")).is_some());
            });
        }),
        ("PodEndpoints", " has no endpoint", |lab| {
            lab.edit_model(|model| {
                let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
                network.endpoints.retain(|name, _| *name == Name::new("Calico_ep"));
            });
        }),
        ("PodEndpoints", " is closed: Felix has not written its rules for 30 s", |lab| close(lab, None)),
        ("CniConfigPublished", "10-calico.conf is missing", |lab| {
            fs::remove_file(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
        }),
        ("CniPluginRuns", "start it (Windows error 193", |lab| {
            fs::write(lab.on_node("C/Program Files/containerd/cni/bin/calico.exe"), "half a file").unwrap();
        }),
        ("IpamBlock", "no block is confirmed for node win-a1", |lab| {
            let affinity = lab
                .objects()
                .into_iter()
                .find(|(kind, name, _)| kind == "blockaffinities.crd.projectcalico.org" && name.starts_with("win-a1-"));
            lab.edit_object("blockaffinities.crd.projectcalico.org", &affinity.unwrap().1, |affinity| {
                affinity["spec"]["state"] = "pendingDeletion".into();
            });
        }),
        ("PodsStart", "server-windows-11851a84 does not run: kubelet has not said anything about it, for 2 s", |lab| {
            lab.edit_model(|model| model.services.get_mut(&Name::new("kubelet")).unwrap().pid = None);
        }),
        ("NodeToPod", "this machine to 192.168.0.7:8080: no answer within 20 s (TIMEOUT)", |lab| {
            lab.edit_model(|model| {
                model.networks.get_mut(&Name::new("Calico")).unwrap().endpoints.remove(&Name::new("Calico_ep"));
            });
        }),
        ("PodToPod", "a pod on this node to pod 192.168.0.7:8080: no answer within 20 s (TIMEOUT)", |lab| {
            lab.edit_model(|model| model.services.get_mut(&Name::new("CalicoFelix")).unwrap().pid = None);
        }),
        ("PodToLinux", "a pod on this node to Linux pod 192.168.10.10:8080: no answer", |lab| {
            lab.edit_model(|model| model.networks.get_mut(&Name::new("Calico")).unwrap().vsid = Some(4099));
        }),
        ("LinuxToPod", "a pod on the Linux node to pod 192.168.0.7:8080: no answer within 20 s", |lab| {
            lab.edit_object("nodes", "win-a1", |node| {
                node["metadata"]["annotations"]["projectcalico.org/VXLANTunnelMACAddr"] = "00:15:5d:00:00:01".into();
            });
        }),
        ("ServiceVip", "a pod on this node to service 10.96.100.1:80: no answer", |lab| {
            lab.edit_model(|model| model.kube_proxy = false);
        }),
        ("NodePort", "a pod on the Linux node to NodePort 10.20.0.99:30000: no answer", |lab| {
            lab.edit_object("nodes", "win-a1", |node| node["status"]["addresses"][0]["address"] = "10.20.0.99".into());
        }),
        (
            "PodDns",
            "not resolved (lookup server-11851a84.calicoctl-win-verify.svc.cluster.local: i/o timeout)",
            |lab| {
                lab.edit_object("endpointslices.discovery.k8s.io", "kube-dns-8x2fk", |slice| {
                    slice["endpoints"][0]["conditions"]["ready"] = false.into();
                });
            },
        ),
        ("PodEgress", "a pod on this node to address 10.20.0.10:6443: no answer", |lab| {
            lab.edit_object("ippools.crd.projectcalico.org", "default-ipv4-ippool", |pool| {
                pool["spec"]["natOutgoing"] = false.into();
            });
        }),
        ("PolicyDeny", "the pod client-denied-11851a84 connects to ", |lab| {
            lab.edit_model(|model| model.acls_ignored = true);
        }),
        ("PolicyAllow", "the pod client-allowed-11851a84 does not connect to ", |lab| {
            let spec = json!({"order": 10, "selector": "all()", "types": ["Ingress"], "ingress": [{"action": "Deny"}]});
            let policy = json!({"metadata": {"name": "deny-all", "uid": "3"}, "spec": spec});
            lab.add_object("globalnetworkpolicies.crd.projectcalico.org", policy);
        }),
        ("ClusterDns", "the service kube-dns (10.96.0.10) has no ready endpoint", |lab| {
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
    let groups: BTreeMap<&str, &str> = probes().map(|probe| (probe.id, probe.group)).collect();
    for (id, reason, turn) in turns {
        let lab = installed.copy();
        turn(&lab);
        let words = match groups[id] {
            "pods" => "verify --pods --start-timeout 2s -o json",
            "policy" => "verify --pods --demo -o json",
            _ => "verify -o json",
        };
        let report = lab.run(words).exits(11).json();
        let probe = probe(&report, id);
        assert_eq!(probe["verdict"], "fail", "{id}: {report:#}");
        let answered = probe["answered"].as_str().unwrap();
        assert!(answered.contains(reason), "{id}: {answered}");
        assert!(probe["fix"].is_string(), "{probe:#}");
        assert_eq!(report["success"], json!(false));
        assert_eq!(left(&lab), [""; 0], "{id}");
    }
}

/// What a probe asks may never answer: that takes the time of its limit, the reason names it, and the other probes are
/// run. What needs the same is skipped. Services, credentials and the CNI configuration are read from Windows itself.
#[test]
fn each_probe_has_a_time_limit_and_the_others_are_run() {
    const API: &str = "the API server at https://10.20.0.10:6443 did not answer GET ";
    let installed = Lab::installed();
    let in_etcd = Lab::node();
    runs_with_etcd(&in_etcd);
    let mut member = Member::start();
    let url = member.url();
    let words = format!("install -y --set datastore.type=etcdv3 --set datastore.etcd.endpoints={url}");
    let _there = in_etcd.run(&words).exits(0);
    member.stop();
    // It accepts connections, and says nothing.
    let _mute = std::net::TcpListener::bind(url.trim_start_matches("http://")).unwrap();
    let slow = |path: &str| format!("api GET {path}*=slow");
    let nothing = |_: &Lab| ();
    type Turn<'a> = &'a (dyn Fn(&Lab) + Sync);
    type Case<'a> = (&'a Lab, String, Turn<'a>, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case; 7] = [
        (
            &installed,
            slow("/"),
            &nothing,
            &[
                ("ApiAnswers", &format!("{API}/api/v1/nodes/win-a1 within 10 s")),
                ("DatastoreAnswers", "did not answer GET /api/v1/nodes/win-a1 within 5 s"),
                ("PodNetwork", "did not answer GET /api/v1/nodes/win-a1 within 10 s"),
            ],
            &["NodeIsReady", "PodEndpoints", "IpamBlock", "ClusterDns"],
        ),
        (
            &installed,
            slow("/api/v1/pods"),
            &nothing,
            &[("PodEndpoints", &format!("{API}/api/v1/pods within 10 s"))],
            &[],
        ),
        (
            &installed,
            slow("/apis/crd.projectcalico.org/v1/blockaffinities"),
            &nothing,
            &[("IpamBlock", "within 10 s")],
            &[],
        ),
        (&installed, slow("/api/v1/namespaces/kube-system/services"), &nothing, &[("ClusterDns", "within 10 s")], &[]),
        (
            &installed,
            String::new(),
            &|lab: &Lab| lab.edit_model(|model| model.hns_busy = 1_000_000),
            &[("PodNetwork", "HNS did not answer GET /networks/ in 30 s")],
            &["HostEndpoint", "PodEndpoints", "IpamBlock"],
        ),
        (
            &installed,
            String::new(),
            &|lab: &Lab| {
                let plugin = "Stand-in for Calico Windows v3.32.1, which never answers\n";
                fs::write(lab.on_node("C/Program Files/containerd/cni/bin/calico.exe"), plugin).unwrap();
            },
            // It is not the release's, too.
            &[
                ("CniConfigPublished", "is drifted"),
                ("CniPluginRuns", r"run C:\Program Files\containerd\cni\bin\calico.exe: it says nothing for 60 s"),
            ],
            &[],
        ),
        (&in_etcd, String::new(), &nothing, &[("DatastoreAnswers", "within 5 s")], &["IpamBlock"]),
    ];
    // What the API server does not answer takes real time.
    std::thread::scope(|threads| {
        for (lab, fault, turn, fails, skipped) in &cases {
            threads.spawn(move || {
                let lab = lab.copy();
                turn(&lab);
                let report = lab.fails_at(fault, "verify -o json").exits(11).json();
                let probes = report["probes"].as_array().unwrap();
                let those = |verdict: &str| {
                    let those = probes.iter().filter(|probe| probe["verdict"] == verdict);
                    those.map(|probe| probe["id"].as_str().unwrap()).collect::<Vec<_>>()
                };
                let failed: Vec<&str> = fails.iter().map(|(id, _)| *id).collect();
                assert_eq!((those("fail"), those("skip")), (failed, skipped.to_vec()), "{fault}: {report:#}");
                for (id, reason) in *fails {
                    let answered = probe(&report, id)["answered"].as_str().unwrap();
                    assert!(answered.contains(reason), "{fault}: {answered}");
                }
            });
        }
    });
}

#[test]
fn status_of_a_node_whose_hns_does_not_answer_shows_what_needs_no_hns() {
    let lab = Lab::installed();
    lab.edit_model(|model| model.hns_busy = 1_000_000);
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!((&status["overall"], &status["networks"]), (&json!("Degraded"), &json!([])), "{status:#}");
    assert_eq!(status["services"][0]["state"], "Running", "{status:#}");
    let problems = status["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{status:#}");
    assert_eq!(problems[0]["id"], "HnsStuck");
    assert_eq!(problems[0]["command"], "calicoctl-win explain HnsStuck");
    assert!(
        problems[0]["message"].as_str().unwrap().contains("HNS did not answer GET /networks/ in 30 s"),
        "{status:#}"
    );
}

/// The routes of the machine are those of Windows: the one with the longest prefix counts, then the lowest metric.
#[test]
fn a_route_that_leads_elsewhere_fails_the_probes_that_need_it() {
    const LINUX: &str = "10.20.0.10/32";
    let vxlan = Lab::installed();
    let bgp = Lab::node();
    let _installed = bgp.run(
        "install -y --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,RoutingFeature,PoolEncapsulation",
    ).exits(0);
    // Windows' BGP router has a session with the Linux node.
    bgp.edit_model(|model| assert!(model.bgp_sessions.insert("10.20.0.10".parse().unwrap())));
    let route = |prefix: &'static str, next_hop: &'static str, metric: u32| {
        move |lab: &Lab| {
            lab.edit_model(|model| {
                let interface = "vEthernet (Ethernet)".into();
                let route = Route { interface, next_hop: next_hop.parse().unwrap(), metric };
                assert!(model.routes.insert(prefix.parse().unwrap(), route).is_none());
            });
        }
    };
    let without_gateway = |lab: &Lab| {
        lab.edit_model(|model| model.adapters.iter_mut().for_each(|adapter| adapter.gateway = None));
    };
    type Case<'a> = (&'a str, &'a Lab, &'a dyn Fn(&Lab), &'a [&'a str]);
    let away = "--egress 203.0.113.7:443";
    let cases: [Case; 10] = [
        ("", &vxlan, &|_: &Lab| (), &[]),
        (away, &vxlan, &|_: &Lab| (), &[]),
        // The default route is deleted.
        (away, &vxlan, &without_gateway, &["PodEgress"]),
        ("", &vxlan, &without_gateway, &[]),
        // The block of this node's pods, as another product's static route.
        ("", &vxlan, &route("192.168.0.0/26", "10.20.0.1", 1), &["NodeToPod", "NodePort"]),
        ("", &vxlan, &route("192.168.0.0/26", "10.20.0.1", 300), &[]),
        // The Linux node, and the API server with its address, through a machine that is not there.
        ("", &vxlan, &route(LINUX, "10.30.0.1", 1), &["PodToLinux", "LinuxToPod", "PodDns", "PodEgress"]),
        ("", &bgp, &|_: &Lab| (), &[]),
        ("", &bgp, &route("192.168.10.0/26", "10.20.0.1", 1), &["PodToLinux", "LinuxToPod", "PodDns"]),
        ("", &bgp, &route("192.168.0.0/16", "10.20.0.1", 1), &[]),
    ];
    for (at, (words, lab, turn, fails)) in cases.into_iter().enumerate() {
        let lab = lab.copy();
        turn(&lab);
        let code = if fails.is_empty() { 0 } else { 11 };
        let report = lab.run(&format!("verify --pods {words} -o json")).exits(code).json();
        let failed = report["probes"].as_array().unwrap().iter().filter(|probe| probe["verdict"] == "fail");
        let failed: Vec<&str> = failed.map(|probe| probe["id"].as_str().unwrap()).collect();
        assert_eq!(failed, fails, "case {at}: {report:#}");
        for id in fails {
            let answered = probe(&report, id)["answered"].as_str().unwrap();
            assert!(answered.contains("no answer within 20 s") || *id == "PodDns", "{answered}");
        }
    }
}

/// The endpoints of pods have only the rule with which the CNI plugin closes them; Felix writes theirs after some
/// seconds, or never.
fn close(lab: &Lab, ruled_in_seconds: Option<u32>) {
    let closing = json!({
        "Type": "ACL", "Protocols": "256", "Action": "Block", "Direction": "In", "RuleType": "Switch", "Priority": 65500,
        "Scope": 0,
    });
    lab.edit_model(|model| {
        for network in model.networks.values_mut() {
            for (name, endpoint) in &mut network.endpoints {
                if *name != Name::new("Calico_ep") {
                    endpoint.policies = vec![closing.clone()];
                    endpoint.ruled_in_seconds = ruled_in_seconds;
                }
            }
        }
    });
}

#[test]
fn a_closed_pod_is_a_failure_if_felix_has_time_to_open_it_and_a_restart_opens_it() {
    let lab = Lab::installed();
    let asked = |code: i32| {
        let report = lab.run("verify -o json").exits(code).json();
        let endpoints = probe(&report, "PodEndpoints");
        (endpoints["answered"].as_str().unwrap().to_owned(), endpoints["fix"].as_str().map(str::to_owned))
    };
    let open = asked(0);
    // These pods are new.
    close(&lab, Some(8));
    assert_eq!(asked(0), open);
    // These are never opened, unless Felix starts again. A stopped one is named by another probe.
    close(&lab, None);
    let (answered, fix) = asked(11);
    assert!(answered.contains(" is closed: "), "{answered}");
    let fix = fix.unwrap();
    let (_, restart) = fix.split_once("with: calicoctl-win ").unwrap();
    lab.edit_model(|model| model.services.get_mut(&Name::new("CalicoFelix")).unwrap().pid = None);
    assert_eq!(asked(11), open);
    let _again = lab.run(&format!("{} -y", restart.split(" --").next().unwrap())).exits(0);
    assert_eq!(asked(0), open);
}

/// Another product's CNI plugin may have rules of that form, and Felix replaces those of its pods in its own time.
#[test]
fn with_policy_only_a_pod_with_one_rule_is_not_a_failure() {
    let lab = super::platforms::on_win_bridge();
    let _installed = lab.run("install -y --set calicoNetwork.backend=none").exits(0);
    fs::write(lab.on_node(".sandbox/containers"), "3f2c9d\n").unwrap();
    let web = json!({
        "metadata": {"name": "web-1", "namespace": "default", "uid": "7"},
        "spec": {"nodeName": "win-a1", "containers": [{"name": "web", "image": "web"}]},
        "status": {"phase": "Running", "podIP": "10.244.3.7"},
    });
    lab.add_object("pods", web);
    close(&lab, None);
    let report = lab.run("verify -o json").exits(0).json();
    assert_eq!(probe(&report, "PodEndpoints")["answered"], "the one pod has its endpoint", "{report:#}");
}

/// The probes of services need the kube-proxy that the node has: its process, and network and source VIP in its file.
#[test]
fn probes_of_services_fail_with_a_kube_proxy_that_does_not_work() {
    let installed = crate::stories::kubernetes::bare();
    let _ready = installed.run("apply -c node.yaml -y").exits(0);
    let verdicts = |lab: &Lab, code: i32| {
        let report = lab.run("verify --pods --start-timeout 2s -o json").exits(code).json();
        ["ServiceVip", "NodePort", "PodDns", "NodeToPod"].map(|id| probe(&report, id)["verdict"].clone())
    };
    assert_eq!(verdicts(&installed, 0), ["ok"; 4]);
    const FILE: &str = "C/ProgramData/calicoctl-win/agent/kube-proxy.yaml";
    let file = |lab: &Lab, from: &str, to: &str| {
        let text = lab.read(FILE);
        assert!(text.contains(from), "{text}");
        lab.write(&format!("node/{FILE}"), text.replace(from, to));
    };
    let flags = |lab: &Lab, flags: &str| {
        lab.edit_model(|model| {
            let definition = &mut model.services.get_mut(&Name::new("kube-proxy")).unwrap().definition;
            (definition.description, definition.image_path) = (String::new(), format!(r"C:\k\kube-proxy.exe {flags}"));
        });
    };
    type Turn<'a> = (&'a str, &'a dyn Fn(&Lab), bool);
    let turns: [Turn; 6] = [
        (
            "stopped",
            &|lab| lab.edit_model(|model| model.services.get_mut(&Name::new("kube-proxy")).unwrap().pid = None),
            false,
        ),
        ("another network", &|lab| file(lab, "networkName: Calico", "networkName: vxlan0"), false),
        ("another source VIP", &|lab| file(lab, "192.168.0.2", "10.9.9.9"), false),
        ("flags", &|lab| flags(lab, "--network-name=Calico --source-vip=192.168.0.2"), true),
        ("another network in flags", &|lab| flags(lab, "--network-name=vxlan0 --source-vip=192.168.0.2"), false),
        ("no source VIP in flags", &|lab| flags(lab, "--network-name=Calico"), false),
    ];
    for (what, turn, works) in turns {
        let lab = installed.copy();
        turn(&lab);
        let [services @ .., pods] = verdicts(&lab, if what == "flags" { 0 } else { 11 });
        assert_eq!(services, [if works { "ok" } else { "fail" }; 3], "{what}");
        assert_eq!(pods, "ok", "{what}");
    }
}

/// With etcd, the sandbox's Calico writes nothing there.
#[test]
fn the_block_of_a_node_with_etcd_is_read_there() {
    let mut member = Member::start();
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let etcd = format!("--set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", member.url());
    let _there = lab.run(&format!("install -y {etcd}")).exits(0);
    let asked = |code: i32| {
        let report = lab.run("verify -o json").exits(code).json();
        let block = probe(&report, "IpamBlock");
        format!("{}: {}", block["verdict"].as_str().unwrap(), block["answered"].as_str().unwrap())
    };
    let put = |block: &str, value: &str| member.put(&format!("/calico/ipam/v2/host/{block}"), value);
    put("win-a1-other/ipv4/block/192.168.0.0-26", r#"{"state":"confirmed","deleted":false}"#);
    put("win-a1/ipv4/block/192.168.0.0-26", r#"{"state":"pending","deleted":false}"#);
    assert_eq!(asked(11), "fail: no block is confirmed for node win-a1");
    put("win-a1/ipv4/block/192.168.0.0-26", r#"{"state":"confirmed","deleted":false}"#);
    assert_eq!(asked(0), "ok: 192.168.0.0/26 is this node's");
    put("win-a1/ipv4/block/192.168.0.0-26", r#"{"state":"confirmed","deleted":true}"#);
    put("win-a1/ipv4/block/192.168.0.64-26", r#"{"state":"confirmed","deleted":false}"#);
    assert_eq!(asked(11), "fail: the network of pods is on 192.168.0.0/26, and the node's blocks are 192.168.0.64/26");
    member.stop();
    assert_eq!(asked(11), "skip: etcd does not answer: see DatastoreAnswers");
}

/// The objects of verify in the cluster.
fn left(lab: &Lab) -> Vec<String> {
    let is_its =
        |(_, name, object): &(String, String, Value)| name == NAMESPACE || object["metadata"]["namespace"] == NAMESPACE;
    lab.objects().into_iter().filter(is_its).map(|(kind, name, _)| format!("{kind} {name}")).collect()
}

#[test]
fn every_probe_through_pods_holds_and_nothing_is_left() {
    let lab = Lab::installed();
    let before = lab.picture();
    let report = lab.run("verify --pods -o json").exits(0).json();
    let ids: Vec<&str> =
        report["probes"].as_array().unwrap().iter().map(|probe| probe["id"].as_str().unwrap()).collect();
    assert_eq!(ids, probes().filter(|probe| probe.group != "policy").map(|probe| probe.id).collect::<Vec<_>>());
    let all = report["probes"].as_array().unwrap();
    assert!(all.iter().all(|probe| probe["verdict"] == "ok"), "{report:#}");
    let answers: Vec<&str> = all[ids.len() - 9..].iter().map(|probe| probe["answered"].as_str().unwrap()).collect();
    insta::assert_snapshot!(answers.join("\n"), @r"
    a pod runs with 192.168.0.7
    this machine connects to 192.168.0.7:8080
    a pod on this node connects to pod 192.168.0.7:8080
    a pod on this node connects to Linux pod 192.168.10.10:8080
    a pod on the Linux node connects to pod 192.168.0.7:8080
    a pod on this node connects to service 10.96.100.1:80
    a pod on the Linux node connects to NodePort 10.20.0.21:30000
    a pod on this node connects to name server-11851a84.calicoctl-win-verify.svc.cluster.local:80
    a pod on this node connects to address 10.20.0.10:6443
    ");
    let notes: Vec<&str> = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    insta::assert_snapshot!(notes.join("\n"), @r"
    pods are started in namespace calicoctl-win-verify and removed afterwards: registry.k8s.io/e2e-test-images/agnhost:2.53 here, registry.k8s.io/e2e-test-images/agnhost:2.53 on linux-1
    the images are pulled without a secret; for a private registry give --pull-secret NAMESPACE/NAME
    ");
    assert_eq!((left(&lab), &report["left"]), (Vec::new(), &json!([])));
    lab.picture().same_as(&before);
    // A cordoned node is tested too.
    let _cordoned = lab.run("node cordon -y").exits(0);
    let _again = lab.run("verify --pods").exits(0);
    assert_eq!(left(&lab), [""; 0]);
}

/// The node's token is from a year ago.
fn expire(lab: &Lab) {
    let path = lab.on_node("C/CalicoWindows/calico-kube-config");
    let mut kubeconfig: Value = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let token = &mut kubeconfig["users"][0]["user"]["token"];
    *token = aged(&lab.read("cluster/pki/sa.key"), token.as_str().unwrap(), |_| 400 * 86_400).into();
    fs::write(&path, serde_yaml::to_string(&kubeconfig).unwrap()).unwrap();
}

#[test]
fn what_the_user_must_know_is_said_before_a_pod_is_started() {
    let installed = Lab::installed();
    let refused = |lab: &Lab, words: &str, code: i32, id: &str| {
        let result = lab.run(&format!("verify --pods -o json {words}")).exits(code).json();
        assert_eq!(result["error"]["id"], id, "{result:#}");
        assert!(lab.objects().iter().all(|(kind, ..)| kind != "pods" || !left(lab).contains(kind)), "{id}");
        result["error"]["what"].as_str().unwrap().to_owned()
    };
    let what = refused(&installed, "--pull-secret default/nowhere", 24, "VerifyPullSecret");
    assert_eq!(what, "there is no secret nowhere in namespace default");

    let lab = installed.copy();
    lab.edit_object("nodes", "linux-1", |node| node["status"]["conditions"][1]["status"] = "False".into());
    let report = lab.run("verify --pods -o json").exits(0).json();
    for id in ["PodToLinux", "LinuxToPod", "NodePort"] {
        let probe = probe(&report, id);
        assert_eq!((&probe["verdict"], &probe["answered"]), (&json!("skip"), &json!("no Linux node is Ready")), "{id}");
    }
    assert!(report["notes"].to_string().contains("no Linux node is Ready: PodToLinux"), "{report:#}");

    let lab = installed.copy();
    lab.add_object(
        "namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "uid": "1"}}),
    );
    refused(&lab, "", 13, "VerifyNamespaceForeign");
    assert!(!left(&lab).iter().any(|name| name.contains("11851a84")));

    let lab = installed.copy();
    let user = cluster(&lab).kubeconfig_of("jane", None).unwrap();
    lab.write("jane.yaml", user);
    let rights = ["nodes", "namespaces"]
        .map(|resource| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}));
    let of = |kind: &str, more: Value| {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "jane", "uid": "2"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    lab.add_object("clusterroles.rbac.authorization.k8s.io", of("ClusterRole", json!({"rules": rights})));
    let subjects = json!([{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]);
    let role = json!({"kind": "ClusterRole", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"});
    lab.add_object(
        "clusterrolebindings.rbac.authorization.k8s.io",
        of("ClusterRoleBinding", json!({"subjects": subjects, "roleRef": role})),
    );
    let what = refused(&lab, "--kubeconfig jane.yaml", 17, "VerifyRights");
    for right in ["create pods", "delete services", "create namespaces"] {
        assert!(what.contains(right), "{what}");
    }
    assert_eq!(left(&lab), [""; 0]);
}

#[test]
fn images_and_the_secret_with_which_they_are_pulled_can_be_named() {
    let lab = Lab::installed();
    let data = json!({".dockerconfigjson": "e30="});
    lab.add_object(
        "secrets",
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "data": data,
            "metadata": {"name": "registry", "namespace": "default", "uid": "3"},
        }),
    );
    let images =
        "--image-windows registry.example/win:1 --image-linux registry.example/linux:1 --pull-secret default/registry";
    // It ends right after its first pod was created.
    let words = format!("verify --pods {images}");
    let _killed = lab.fails_at("api POST /api/v1/namespaces/*/pods#2=exit-after", &words).exits(137);
    for (role, image) in [("server-windows", "win"), ("server-linux", "linux")] {
        let pod = lab.object("pods", &format!("{role}-11851a84")).unwrap();
        assert_eq!(pod["spec"]["containers"][0]["image"], format!("registry.example/{image}:1"));
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull-11851a84"}]));
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    }
    assert_eq!(lab.object("secrets", "pull-11851a84").unwrap()["data"], data);
    lab.edit_model(|model| assert!(model.missing_images.insert("registry.example/win:1".into())));
    let report = lab.run(&format!("{words} --start-timeout 2s -o json")).exits(11).json();
    let answered = probe(&report, "PodsStart")["answered"].as_str().unwrap();
    assert!(answered.contains("ErrImagePull: failed to pull and unpack image"), "{answered}");
    assert_eq!(probe(&report, "ServiceVip")["verdict"], "skip");
    assert_eq!(left(&lab), [""; 0]);
}

#[test]
fn what_a_killed_verify_left_is_removed_by_resume_or_by_the_next_one() {
    let installed = Lab::installed();
    for point in [
        "POST /api/v1/namespaces=exit-after",
        "POST /api/v1/namespaces/*/pods#2=exit-after",
        "POST /api/v1/namespaces/*/services=exit-after",
        "DELETE /api/v1/namespaces/*/pods/*=exit-after",
    ] {
        for (words, said) in [
            ("resume -y", "Removed the pods that verify (run "),
            ("verify --pods", "were removed"),
            ("verify --remove", "removed what verify (run "),
        ] {
            let lab = installed.copy();
            let _killed = lab.fails_at(&format!("api {point}"), "verify --pods").exits(137);
            assert!(!left(&lab).is_empty(), "{point}");
            let output = lab.run(words).exits(0);
            assert!(output.stdout.contains(said), "{point}: {output}");
            assert_eq!(left(&lab), [""; 0], "{point}, {words}");
            assert!(!lab.on_node("C/ProgramData/calicoctl-win/state/verify.json").exists());
        }
    }
    let nothing = installed.run("verify --remove").exits(0);
    assert!(nothing.stdout.contains("nothing to do: verify left nothing"), "{nothing}");
}

/// `status` shows it from the moment at which it may have something in the cluster until all of it is removed, and not
/// while it runs.
#[test]
fn status_shows_an_interrupted_verify_until_its_pods_are_removed() {
    let installed = Lab::installed();
    let shown = |lab: &Lab| lab.run("status -o json").exits(0).json();
    assert_eq!(shown(&installed)["verify_left"], Value::Null);
    for (point, is_there) in [
        ("POST /api/v1/namespaces=exit-before", false),
        ("POST /api/v1/namespaces=exit-after", true),
        ("POST /api/v1/namespaces/*/pods#2=exit-after", true),
    ] {
        let lab = installed.copy();
        let _killed = lab.fails_at(&format!("api {point}"), "verify --pods").exits(137);
        assert_eq!(!left(&lab).is_empty(), is_there, "{point}");
        let status = shown(&lab);
        let command = "calicoctl-win verify --remove --sandbox node";
        assert_eq!(status["verify_left"]["command"], command, "{point}: {status:#}");
        assert_eq!((&status["overall"], &status["problems"]), (&json!("Healthy"), &json!([])), "{point}");
        let text = lab.run("status").exits(0).stdout;
        let run = status["verify_left"]["run"].as_str().unwrap();
        assert!(text.contains(&format!("! verify was interrupted (run {run}), ")), "{text}");
        let line = text.lines().find(|line| line.contains("! verify was interrupted")).unwrap();
        assert!(line.contains(" ago): ") && !line.contains("Z)"), "local, and how long ago: {line}");
        assert!(text.contains(&format!("    {command}\n")), "{text}");
        // The cluster does not answer: the record stays.
        let _failed = lab.fails_at("api down", "verify --remove").code;
        assert_eq!(shown(&lab)["verify_left"]["run"], run, "{point}");
        let _removed = lab.run("verify --remove").exits(0);
        assert_eq!(left(&lab), [""; 0], "{point}");
        assert_eq!(shown(&lab)["verify_left"], Value::Null, "{point}");
    }
    let demo = installed.copy();
    let _left_on_purpose = demo.run("verify --pods --demo").exits(0);
    assert_eq!(shown(&demo)["verify_left"], Value::Null);
}

#[test]
fn a_demo_leaves_its_policies_and_pods_until_it_is_removed() {
    let lab = Lab::installed();
    let shown = lab.run("verify --pods --demo").exits(0).stdout;
    // Said before the first pod is started.
    let said = "two network policies are created for the pod server-windows-11851a84 alone: Felix programs its rules again, which can reset TCP connections of that pod";
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text} in {shown}"));
    assert!(at(said) < at("PodsStart"), "{shown}");
    for part in ["[ OK ] PolicyDeny", "[ OK ] PolicyAllow", "calicoctl-win verify --remove --sandbox node"] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    let names = left(&lab);
    for part in [
        "pods server-windows-11851a84",
        "networkpolicies.networking.k8s.io deny-all-11851a84",
        "pods client-denied-11851a84",
    ] {
        assert!(names.iter().any(|name| name == part), "no {part} in {names:?}");
    }
    // It is no interrupted run.
    let _nothing = lab.run("resume -y").exits(0);
    assert_eq!(left(&lab), names);
    let _removed = lab.run("verify --remove").exits(0);
    assert_eq!(left(&lab), [""; 0]);
}

/// An administrator may create the namespace, with the rights in it, so that nobody else needs to.
#[test]
fn a_namespace_that_verify_did_not_create_stays() {
    let lab = Lab::installed();
    let cluster = cluster(&lab);
    let labels = json!({"app.kubernetes.io/managed-by": "calicoctl-win"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
    cluster.as_admin(&http::Method::POST, "/api/v1/namespaces", Some(&namespace)).unwrap();
    drop(cluster);
    let _done = lab.run("verify --pods").exits(0);
    let names = left(&lab);
    assert!(names.contains(&format!("namespaces {NAMESPACE}")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("11851a84")), "{names:?}");
}

#[test]
fn uninstall_removes_what_verify_left_first() {
    let lab = Lab::installed();
    let _demo = lab.run("verify --pods --demo").exits(0);
    let shown = lab.run("uninstall -n").exits(0);
    assert!(shown.stdout.contains("Would remove the pods that verify (run "), "{shown}");
    assert!(!left(&lab).is_empty());
    let _gone = lab.run("uninstall -y --purge").exits(0);
    assert_eq!(left(&lab), [""; 0]);
}

/// Ctrl-C while an image is pulled.
#[test]
#[cfg(target_os = "linux")]
fn a_stopped_verify_removes_its_pods() {
    let lab = Lab::installed();
    lab.edit_model(|model| assert!(model.missing_images.insert("win:1".into())));
    let (lines, code) =
        super::ctrl_c::stopped_at(&lab, "verify --pods --image-windows win:1", "", "server-windows-11851a84 to run");
    let result = lines.last().unwrap();
    assert_eq!((code, &result["error"]["id"]), (Some(130), &json!("RunCancelled")), "{result:#}");
    assert_eq!(left(&lab), [""; 0]);
}

/// Another node is tested at the same time: its pods are kept, and the namespace is left to it.
#[test]
fn a_namespace_that_another_node_uses_stays() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("api POST /api/v1/namespaces/*/services=exit-after", "verify --pods").exits(137);
    let cluster = cluster(&lab);
    let at = format!("/api/v1/namespaces/{NAMESPACE}");
    let patch = json!({"metadata": {"annotations": {"calicoctl-win/entered-by": "0123abcd"}}});
    cluster.as_admin(&http::Method::PATCH, &at, Some(&patch)).unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "server-windows-0123abcd", "labels": {"calicoctl-win/verify": "0123abcd"}},
        "spec": {"nodeName": "win-b2", "containers": [{"name": "server", "image": "agnhost"}]},
    });
    cluster.as_admin(&http::Method::POST, &format!("{at}/pods"), Some(&pod)).unwrap();
    drop(cluster);
    let _resumed = lab.run("resume -y").exits(0);
    let names = left(&lab);
    assert!(names.contains(&format!("namespaces {NAMESPACE}")), "{names:?}");
    assert!(names.contains(&"pods server-windows-0123abcd".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("11851a84")), "{names:?}");
}

/// What does not apply is skipped with its reason, and is no failure.
#[test]
fn other_backends_and_unfinished_installs_are_told_apart() {
    let lab = Lab::node();
    assert_eq!(lab.run("verify -o json").exits(16).json()["error"]["id"], "NotInstalled");
    let _installed =
        lab.run("install -y --set calicoNetwork.backend=none --set calicoNetwork.kubeNetwork=nat").exits(0);
    let report = lab.run("verify -o json").exits(0).json();
    for id in ["HostEndpoint", "CniConfigPublished", "CniPluginRuns", "IpamBlock", "ClusterDns"] {
        let probe = probe(&report, id);
        assert_eq!(probe["verdict"], "skip", "{probe:#}");
        assert!(probe["answered"].as_str().unwrap().starts_with("policy only: "), "{probe:#}");
    }
    let lab = Lab::node();
    let _killed = lab.fails_at("put *#5=exit-after", "install -y").exits(137);
    assert_eq!(lab.run("verify -o json").exits(22).json()["error"]["id"], "InterruptedRun");
}
