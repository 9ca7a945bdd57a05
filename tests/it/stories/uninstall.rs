//! Uninstalling Calico, also from a node that is broken in every known way.

use std::fs;

use serde_json::{Value, json};

use calicoctl_win::node::sandbox::model::{Model, Name};

use crate::lab::{Lab, Picture};

const STATE: &str = "C/ProgramData/calicoctl-win";

fn bare() -> Picture {
    Lab::node().picture()
}

/// An object of the sandbox's cluster.
fn object(lab: &Lab, kind: &str, name: &str) -> Option<Value> {
    let mut found = lab.objects().into_iter().filter(|(of, named, _)| of.starts_with(kind) && named.starts_with(name));
    found.next().map(|(_, _, object)| object)
}

/// Every receipt is deleted: what this program created is found by its marks and by its known names (defect B15: what cannot be
/// validated cannot be uninstalled).
#[test]
fn b15_without_receipts_what_is_ours_is_found_by_its_marks() {
    for (lost, words) in
        [("receipts", "uninstall -y"), ("receipts", "uninstall --purge -y"), ("", "uninstall --purge -y")]
    {
        let lab = Lab::installed();
        fs::remove_dir_all(lab.on_node(&format!("{STATE}/{lost}"))).unwrap();
        let shown = lab.run("uninstall --dry-run").exits(0);
        assert!(shown.stdout.contains("hns-network") && shown.stdout.contains("CalicoFelix"), "{shown}");
        let gone = lab.run(words).exits(0);
        assert!(gone.stdout.contains("FoundByMarks"), "{gone}");
        let plain = Lab::node().picture_without_state();
        // Without receipts, folders that are empty after us cannot be distinguished from those of other products.
        lab.picture_without_state().without_folders().says_the_same_as(&plain.without_folders());
        for document in ["services.json", "felix.json"] {
            assert!(!lab.on_node(&format!("{STATE}/{document}")).exists(), "{document} may hold a password");
        }
        let nothing = lab.run("uninstall -y -o json").exits(0).json();
        assert_eq!(nothing["status"], "no_changes", "{nothing}");
        // And Calico can be installed again.
        let _again = lab.run("install -y").exits(0);
        assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
    }
}

#[test]
fn a_node_without_our_install_has_no_mark() {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| {
        yaml.replace(
            "networks:\n",
            "networks:\n  Calico: {id: 0a, kind: Overlay, subnet: 192.168.0.0/26, gateway: 192.168.0.1, vsid: 4096, adapter: Ethernet}\n",
        )
    });
    let before = lab.picture_without_state();
    let nothing = lab.run("uninstall -y -o json").exits(0).json();
    assert_eq!(nothing["status"], "no_changes", "{nothing}");
    lab.picture_without_state().same_as(&before);
}

#[test]
fn an_uninstall_by_marks_that_crashes_is_finished_or_undone() {
    let before = Lab::installed();
    fs::remove_dir_all(before.on_node(&format!("{STATE}/receipts"))).unwrap();
    let standing = before.picture_without_state();
    let mut points = 0;
    for n in (2..).step_by(6) {
        let lab = before.copy();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), "uninstall -y");
        if output.code == 0 {
            break;
        }
        let _killed = output.exits(137);
        points += 1;
        let other = lab.copy();
        let _finished = lab.run("resume -y").exits(0);
        let _rest = lab.run("uninstall -y").exits(0);
        let plain = Lab::node().picture_without_state();
        lab.picture_without_state().without_folders().says_the_same_as(&plain.without_folders());
        if other.run("status -o json").json()["run"] != Value::Null {
            let _undone = other.run("resume --undo -y").exits(0);
        }
        other.picture_without_state().without_logs().says_the_same_as(&standing.clone().without_logs());
    }
    assert!(points >= 4, "only {points}");
}

/// Defect B15: uninstall needs no kubeconfig, no config, no release and no whole install.
#[test]
fn b15_uninstall_works_whatever_is_broken() {
    type Harm = fn(&Lab);
    let harms: [(&str, Harm); 6] = [
        ("a broken config", |lab| {
            lab.write("node/C/ProgramData/calicoctl-win/config.yaml", "kind: [nonsense");
        }),
        ("no kubeconfigs", |lab| {
            fs::remove_file(lab.on_node("C/CalicoWindows/calico-kube-config")).unwrap();
            let _absent_in_a_sandbox = fs::remove_file(lab.on_node("C/k/config"));
        }),
        ("no release", |lab| fs::remove_dir_all(lab.on_node("C/CalicoWindows")).unwrap()),
        ("no program", |lab| fs::remove_dir_all(lab.on_node("C/Program Files/calicoctl-win")).unwrap()),
        ("no store", |lab| fs::remove_dir_all(lab.on_node(&format!("{STATE}/store"))).unwrap()),
        ("no services.json", |lab| fs::remove_file(lab.on_node(&format!("{STATE}/services.json"))).unwrap()),
    ];
    for (what, harm) in harms {
        let lab = Lab::installed();
        harm(&lab);
        let gone = lab.run("uninstall -y").exits(0);
        let _tidy = fs::remove_file(lab.on_node(&format!("{STATE}/config.yaml")));
        lab.picture_without_state().same_as(&Lab::node().picture_without_state());
        assert!(gone.stdout.contains("removed"), "{what}: {gone}");
    }
}

#[test]
fn an_install_that_was_killed_can_be_uninstalled() {
    for words in
        ["install -y", "upgrade -y --release v3.33.0", "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000"]
    {
        let lab = if words.starts_with("install") { Lab::node() } else { Lab::installed() };
        let _killed = lab.fails_at("put *#4=exit-after", words).exits(137);
        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().same_as(&bare());
    }
}

/// Defect B26: the CNI configuration remained, and kubelet considered the node ready.
#[test]
fn b26_no_cni_configuration_stays_behind() {
    let lab = Lab::node();
    let folder = "C/Program Files/containerd/cni/conf";
    let _there = lab.run("install -y --set windowsNodes.cniConfigFile=05-calico.conf").exits(0);
    let names = |lab: &Lab| -> Vec<String> {
        let entries = fs::read_dir(lab.on_node(folder)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names(&lab), ["05-calico.conf"]);
    let other = lab.copy();
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(names(&lab).is_empty());
    fs::remove_dir_all(other.on_node(&format!("{STATE}/receipts"))).unwrap();
    let _by_marks = other.run("uninstall -y").exits(0);
    assert!(names(&other).is_empty());
}

#[test]
fn the_traces_in_the_cluster_are_removed_too() {
    let lab = Lab::installed();
    let condition = |lab: &Lab| object(lab, "nodes", "win-a1").unwrap()["status"]["conditions"].to_string();
    assert!(condition(&lab).contains("CalicoIsUp"));
    assert!(object(&lab, "blockaffinities", "win-a1-").is_some());
    let other = lab.copy();

    let _gone = lab.run("uninstall -y").exits(0);
    assert!(!condition(&lab).contains("CalicoIsUp"));
    assert!(object(&lab, "blockaffinities", "win-a1-").is_some(), "a node that comes back needs its addresses");

    let block = object(&other, "blockaffinities", "win-a1-").unwrap()["spec"]["cidr"].as_str().unwrap().to_owned();
    let told = other.run("uninstall -y --cluster-traces").exits(0);
    assert!(told.stdout.contains(&format!("Released: the IPAM block {block}")), "{told}");
    assert!(object(&other, "blockaffinities", "win-a1-").is_none());
    assert!(object(&other, "ipamblocks", &block.replace(['.', '/'], "-")).is_none());
    let annotations = object(&other, "nodes", "win-a1").unwrap()["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("projectcalico.org"), "{annotations}");
    let _again = other.run("install -y").exits(0);
}

/// The hint of the first uninstall is pasted as it is.
#[test]
fn a_later_uninstall_removes_the_traces_in_the_cluster() {
    let lab = Lab::installed();
    let kept = lab.run("uninstall -y").exits(0).stdout;
    let hint = kept.lines().find_map(|line| line.split_once("To remove it: calicoctl-win ")).expect(&kept).1;
    let shown = lab.bare(&format!("{hint} --dry-run")).exits(0).stdout;
    assert!(shown.contains("--cluster-traces removes for good: the IPAM blocks of Node win-a1"), "{shown}");
    assert!(object(&lab, "blockaffinities", "win-a1-").is_some(), "a dry run");
    let asked = lab.bare(hint);
    assert_ne!(asked.code, 0, "without --yes: {asked}");

    let done = lab.bare(&format!("{hint} -y")).exits(0).stdout;
    assert!(done.contains("Released: the IPAM block") && done.contains("changed=true"), "{done}");
    assert!(object(&lab, "blockaffinities", "win-a1-").is_none());
    let annotations = object(&lab, "nodes", "win-a1").unwrap()["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("projectcalico.org"), "{annotations}");
    let again = lab.bare(&format!("{hint} -y -o json")).exits(0).json();
    assert_eq!(again["changed"], false, "{again}");

    // A purge removes the records that name the Node.
    let lab = Lab::installed();
    let purged = lab.run("uninstall -y --purge").exits(0).stdout;
    assert!(
        purged.contains("Not removed: what Calico has in the cluster") && !purged.contains("--cluster-traces"),
        "{purged}"
    );
}

/// Only this program's own records go.
#[test]
fn a_purge_after_the_uninstall_says_what_goes() {
    let lab = Lab::installed();
    let _gone = lab.run("uninstall -y").exits(0);
    let config = lab.on_node(&format!("{STATE}/config.yaml"));
    fs::write(&config, "spec: {calico: {version: v3.32.1}}\n").unwrap();
    let with = "--purge removes for good: C:\\ProgramData\\calicoctl-win with the records of 2 generations, the stored \
                configs and the logs; config.yaml in it stays.";
    let shown = lab.run("uninstall --purge --dry-run").exits(0).stdout;
    assert!(shown.contains(with), "{shown}");
    fs::remove_file(&config).unwrap();
    let purged = lab.run("uninstall --purge -y").exits(0).stdout;
    assert!(purged.contains("and the logs.") && purged.contains("changed=false"), "{purged}");
    assert!(!lab.on_node(STATE).exists());

    let nothing = lab.run("uninstall --purge -y").exits(0).stdout;
    assert!(!nothing.contains("removes for good") && nothing.contains("Nothing of Calico was left"), "{nothing}");
    assert!(!lab.on_node(STATE).exists());
}

#[test]
fn an_uninstall_continues_if_the_cluster_does_not_answer() {
    let lab = Lab::installed();
    let gone = lab.fails_at("api * *=403", "uninstall --purge --cluster-traces -y -o json").exits(0).json();
    assert_eq!(gone["status"], "succeeded", "{gone}");
    lab.picture().same_as(&bare());
    let lab = Lab::installed();
    let told = lab.fails_at("api * *=403", "uninstall -y").exits(0);
    assert!(told.stdout.contains("ClusterTracesLeft"), "{told}");
}

#[test]
fn pods_are_moved_away_first_on_request() {
    let lab = Lab::installed();
    let blocked = lab.fails_at("api POST */eviction=403", "uninstall -y --drain -o json");
    assert_ne!(blocked.code, 0, "{blocked}");
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy", "nothing was touched");
    let unschedulable = |lab: &Lab| object(lab, "nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true;
    assert!(!unschedulable(&lab));

    let lines = lab.run("uninstall -y --drain -o ndjson").exits(0).ndjson();
    let at = |kind: &str, phase: &str| {
        lines
            .iter()
            .position(|line| line["type"] == kind && line["phase"]["id"] == phase)
            .unwrap_or_else(|| panic!("{phase}"))
    };
    assert!(at("phase_complete", "drain") < at("phase_start", "services-stop"));
    assert_eq!(lines.last().unwrap()["exit_code"], json!(0));
    assert!(unschedulable(&lab), "there is no network for pods any more");
    lab.picture_without_state().same_as(&Lab::node().picture_without_state());
}

/// HNS is last, and with a notice: the connection may drop.
#[test]
fn the_virtual_switch_is_removed_last_and_announced() {
    let lab = Lab::installed();
    let lines = lab.run("uninstall -y -o ndjson").exits(0).ndjson();
    let notice = lines.iter().position(|line| line["type"] == "connectivity_notice").unwrap();
    let phases: Vec<&str> = lines[notice..]
        .iter()
        .filter(|line| line["type"] == "phase_complete")
        .map(|line| line["phase"]["id"].as_str().unwrap())
        .collect();
    // The Node's note about Calico is not a step on the machine.
    assert_eq!(phases, ["hns-network", "annotate"]);
}

#[test]
fn what_remains_is_reported_with_the_reason() {
    let lab = Lab::node();
    // A network with the right name that existed before us, and must be restored.
    lab.edit_yaml(|yaml| {
        yaml.replace("  addresses: [10.20.0.21/24]\n  gateway: 10.20.0.1\n  dhcp: true\n", "  dhcp: true\n- {name: vEthernet (Ethernet), mac: 00-15-5D-14-00-15, addresses: [10.20.0.21/24], gateway: 10.20.0.1, dhcp: true}\n").replace(
            "networks:\n",
            "networks:\n  External: {id: 0b, kind: Overlay, subnet: 192.168.255.0/30, gateway: 192.168.255.1, vsid: 9999, adapter: Ethernet, managementIp: 10.20.0.21}\n",
        )
    });
    let _there = lab.run("install -y").exits(0);
    let gone = lab.run("uninstall -y").exits(0);
    assert!(gone.stdout.contains("Left: the HNS network External, which was there before"), "{gone}");
    assert!(gone.stdout.contains("Kept: logs and receipts"), "{gone}");
}

/// Felix is removed, and HNS keeps its ACLs on the endpoints of another product's network: pods would be blocked
/// forever, by rules that nobody updates.
#[test]
fn policy_only_leaves_no_acls_on_remaining_pods() {
    let lab = Lab::node();
    let azure = "networks:\n  azure:\n    id: 0b7a4a2c-73a1-4d1e-a6a5-0c6e5f1a2b3c\n    kind: L2Bridge\n    subnet: 10.240.0.0/16\n";
    let pods = "    endpoints:\n      web-1:\n        ip: 10.240.0.7\n        mac: 00-15-5D-00-00-07\n        container: 3f2c9d\n        \
                policies: [{Type: OutBoundNAT, Exceptions: [10.240.0.0/16]}]\n";
    lab.edit_yaml(|yaml| yaml.replace("networks:\n", &format!("{azure}{pods}")));
    let acls = |lab: &Lab| {
        let model: Model = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
        let policies = model.networks[&Name::new("azure")].endpoints[&Name::new("web-1")].policies.clone();
        assert_eq!(policies[0]["Type"], "OutBoundNAT", "azure's own");
        policies[1..].iter().map(|acl| format!("{} {}", acl["Action"], acl["Direction"])).collect::<Vec<_>>().join(", ")
    };
    let _installed = lab.run("install -y").exits(0);
    assert!(acls(&lab).starts_with(r#""Block" "In", "Block" "Out""#), "Felix keeps policies: {}", acls(&lab));

    let open = r#""Allow" "In", "Allow" "Out""#;
    let before = "Network policies end for the pods of these HNS endpoints, which then allow all traffic: web-1";
    assert!(lab.run("uninstall --dry-run").exits(0).stdout.contains(before));
    let gone = lab.copy();
    let shown = gone.run("uninstall -y").exits(0).stdout;
    assert_eq!(acls(&gone), open);
    assert!(shown.contains(before) && !shown.contains("as it was before"), "{shown}");
    let left = "Left: ACLs that allow all traffic on the HNS endpoint web-1 of azure, until its pod is re-created.";
    assert!(shown.contains(left), "{shown}");

    for at in ["put acls=exit-before", "put acls=exit-after"] {
        let killed = lab.copy();
        let _killed = killed.fails_at(at, "uninstall -y").exits(137);
        let undone = killed.copy();
        let _on = killed.run("resume -y").exits(0);
        assert_eq!(acls(&killed), open, "{at}");
        let _back = undone.run("resume --undo -y").exits(0);
        assert_eq!(acls(&undone), acls(&lab), "{at}: Felix keeps policies again");
    }

    // Without such pods there is nothing to report.
    let other = Lab::node();
    other.edit_yaml(|yaml| yaml.replace("networks:\n", azure));
    let _installed = other.run("install -y").exits(0);
    let shown = other.run("uninstall -y").exits(0).stdout;
    assert!(shown.contains("this machine is as it was before") && !shown.contains("ACLs"), "{shown}");
}

/// A dry run with a flag differs from one without it: it shows what cannot be restored.
#[test]
fn what_the_flags_destroy_is_shown_first() {
    let lab = Lab::installed();
    let _changed = lab.run("apply -y --set services.felixLogSeverity=debug").exits(0);
    let shown = |flag: &str| lab.run(&format!("uninstall -n {flag}")).exits(0).stdout;
    let plain = shown("");
    for (flag, says) in [
        ("--purge", "--purge removes for good: C:\\ProgramData\\calicoctl-win with the records of 2 generations, "),
        ("--cluster-traces", "--cluster-traces removes for good: the IPAM blocks of Node win-a1"),
        ("--drain", "Drain of win-a1: 2 pods to evict."),
        ("--delete-token-secret", "TokenSecretDeleted"),
    ] {
        assert!(!plain.contains(says), "{flag}: {plain}");
        let shown = shown(flag);
        assert!(shown.contains(says), "{flag}: {shown}");
    }
}

#[test]
fn the_log_of_a_purge_is_elsewhere_and_named() {
    let lab = Lab::installed();
    let purged = lab.run("uninstall -y --purge").exits(0);
    let line = purged.stdout.lines().last().unwrap();
    let log = lab.path("").join(line.split_once(" log=").unwrap().1);
    assert!(!log.starts_with(lab.path("node")) && !lab.on_node(STATE).exists(), "{line}");
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("plan: delete hns-network Calico") && text.contains("result: OK (exit 0)"), "{text}");
}

/// Resuming a run follows the run's own options.
#[test]
fn a_resumed_uninstall_removes_everything_that_was_requested() {
    let there = Lab::installed();
    let blocks = |lab: &Lab| object(lab, "blockaffinities", "win-a1").is_some();
    assert!(blocks(&there));
    let words = "uninstall -y --purge --cluster-traces --delete-token-secret";
    for fault in ["put network Calico=exit-after", "save *0002.json=exit-after", "api DELETE /apis/crd*=exit-before"] {
        let lab = there.copy();
        let _killed = lab.fails_at(fault, words).exits(137);
        let status = lab.run("status -o json").json();
        assert_eq!(status["run"]["interrupted"], true, "{fault}: {status}");
        let resumed = lab.run("resume -y").exits(0);
        assert!(!blocks(&lab), "{fault}: {resumed}");
        assert!(!lab.on_node(STATE).exists(), "{fault}: {resumed}");
        lab.picture().same_as(&bare());
    }
    // Calico is removed by then: nothing is drained again, and nothing can be undone.
    let _killed = there.fails_at("api DELETE /apis/crd*=exit-before", &format!("{words} --drain")).exits(137);
    let unschedulable = |lab: &Lab| lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true;
    assert!(unschedulable(&there));
    let refused = there.run("resume -y --undo -o json").exits(24).json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("UninstallMade"), &json!(false)), "{refused}");
    let lines = there.run("resume -y -o ndjson").exits(0).ndjson();
    assert!(lines.iter().all(|line| line["phase"]["id"] != "drain"), "{lines:?}");
    assert!(unschedulable(&there) && !blocks(&there) && !there.on_node(STATE).exists());
}

/// Two machines with one image: the items of the other one remain.
#[test]
fn an_uninstall_removes_nothing_of_another_machine_of_the_same_name() {
    let lab = Lab::installed();
    lab.edit_object("nodes", "win-a1", |node| {
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "10.20.0.77"}]);
    });
    let before = lab.object("nodes", "win-a1");
    let gone = lab.run("uninstall -y --cluster-traces").exits(0);
    assert!(gone.stdout.contains("10.20.0.77, which is not this machine's"), "{gone}");
    assert!(object(&lab, "blockaffinities", "win-a1").is_some(), "{gone}");
    assert_eq!(
        lab.object("nodes", "win-a1").map(|node| node["metadata"].clone()),
        before.map(|node| node["metadata"].clone())
    );
    let refused = lab.run("node uncordon -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "NodeOfOtherMachine");
    let refused = lab.run("install -y -o json").json();
    assert!(refused["error"].to_string().contains("NodeAddressMatches"), "{refused}");
}

/// services.msc is open on the node: Windows deletes the service, and keeps its name until the window closes.
#[test]
fn a_service_that_somebody_has_open_is_no_reason_to_undo_an_uninstall() {
    let lab = Lab::installed();
    let hold = |held: bool| {
        lab.edit_model(|model| {
            model.services.get_mut(&Name::new("CalicoFelix")).unwrap().held_open = held;
        });
    };
    hold(true);
    let gone = lab.run("uninstall -y").exits(0);
    assert!(gone.to_string().contains("ServiceNameHeld"), "{gone}");
    assert_eq!(lab.status()["overall"], "NotInstalled");
    let again = lab.run("install -y");
    assert!(again.to_string().contains("ServiceMarkedForDelete"), "{again}");
    hold(false);
    let _installed = lab.run("install -y").exits(0);
    lab.healthy();
}

#[test]
fn a_log_that_others_read_is_named_and_the_rest_is_purged() {
    let lab = Lab::installed();
    let held = r"openFiles: [{path: 'C:\ProgramData\calicoctl-win\logs\calico\calico-felix.log', by: fluent-bit.exe (process 4312)}]";
    lab.edit_yaml(|yaml| format!("{yaml}{held}\n"));
    let left = lab.run("uninstall -y --purge").exits(1);
    for told in [
        r"fluent-bit.exe (process 4312) has C:\ProgramData\calicoctl-win\logs\calico\calico-felix.log open",
        "Calico is removed, but",
        "uninstall --purge",
        "PurgeIncomplete",
    ] {
        assert!(left.stderr.contains(told), "{told}: {left}");
    }
    let entries = fs::read_dir(lab.on_node(STATE)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "lock");
    assert_eq!(names, ["logs"], "the rest is removed");
    lab.edit_yaml(|yaml| yaml[..yaml.find("openFiles").unwrap()].to_owned());
    let _again = lab.run("uninstall -y --purge").exits(0);
    assert!(!lab.on_node(STATE).exists());
}

#[test]
fn a_purge_after_the_uninstall_drains_nothing() {
    let lab = Lab::installed();
    let _removed = lab.run("uninstall --yes").exits(0);
    let purged = lab.run("uninstall --drain --purge --yes").exits(0);
    assert!(!purged.stdout.contains("Drain of"), "{purged}");
}
