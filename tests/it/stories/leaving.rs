//! Removing what Calico's own scripts installed: at once, after it was adopted, and back again.

use std::fs;
use std::time::Duration;

use calicoctl_win::node::Node;
use calicoctl_win::node::sandbox::SandboxNode;
use serde_json::Value;

use super::adoption::scripts_node;
use crate::lab::{Lab, Picture};

/// The scripts' node with their networks, firewall rules and Calico's own records; an administrator keeps notes in
/// Calico's folder, and runs an agent.
fn scripts_node_in_use() -> Lab {
    let lab = scripts_node();
    for (path, text) in [
        ("CalicoWindows/notes/todo.txt", "an administrator's"),
        ("CalicoWindows/static-rules.json", "{}"),
        ("CalicoWindows/nodename", "win-a1"),
        ("CalicoWindows/confd/conf.d/blocks.toml", "[template]"),
        ("Program Files/containerd/cni/bin/contoso.exe", "another plugin"),
    ] {
        lab.write(&format!("node/C/{path}"), text);
    }
    lab.edit_yaml(|yaml| {
        yaml.replace("  addresses: [10.20.0.21/24]\n  gateway: 10.20.0.1\n  dhcp: true\n", "  dhcp: true\n- {name: vEthernet (Ethernet), mac: 00-15-5D-14-00-15, addresses: [10.20.0.21/24], gateway: 10.20.0.1, dhcp: true}\n")
            .replace("\nnetworks:\n",
                "\nnetworks:\n  Calico: {id: 0a, kind: Overlay, subnet: 192.168.0.0/26, gateway: 192.168.0.1, vsid: 4096, adapter: Ethernet, managementIp: 10.20.0.21}\n  \
                 External: {id: 0b, kind: Overlay, subnet: 192.168.255.0/30, gateway: 192.168.255.1, vsid: 9999, adapter: Ethernet, managementIp: 10.20.0.21}\n  \
                 contoso: {id: 0c, kind: Internal, subnet: 172.30.0.0/24, gateway: 172.30.0.1}\n")
            .replace("services:\n", "services:\n  ContosoAgent:\n    definition: {displayName: Contoso, description: Watches, imagePath: 'C:\\Contoso\\agent.exe', account: LocalSystem, start: auto}\n    pid: 3000\n")
            .replace("firewall:\n", "firewall:\n  'Overlay Traffic 4789 UDP': {displayName: Overlay Traffic 4789 UDP, protocol: UDP, localPorts: '4789', enabled: true}\n")
    });
    lab
}

/// The node is as in the picture, once Windows has given the addresses to a vSwitch that came back. Calico makes its own
/// endpoint when it starts.
#[track_caller]
fn is_as(lab: &Lab, before: &Picture) {
    let mut node = SandboxNode::open(&lab.path("node")).unwrap();
    node.pause(Duration::from_secs(60));
    node.edit(|model| {
        model
            .networks
            .values_mut()
            .for_each(|network| network.endpoints.retain(|name, _| name.as_str() != "Calico_ep"));
        Ok(())
    })
    .unwrap();
    lab.picture_without_state().says_the_same_as(before);
}

fn is_gone(lab: &Lab) {
    let yaml = lab.read("node.yaml");
    for gone in [
        "CalicoNode",
        "CalicoFelix",
        "CalicoConfd",
        "CalicoUpgrade",
        "nssm.exe",
        "LastBootTime",
        "  External:",
        "Overlay",
    ] {
        assert!(!yaml.contains(gone), "{gone} is there:\n{yaml}");
    }
    for gone in [
        "CalicoWindows/config.ps1",
        "CalicoWindows/calico-kube-config",
        "CalicoWindows/nssm-2.24",
        "CalicoWindows/node",
        "Program Files/containerd/cni/conf/10-calico.conf",
        "Program Files/containerd/cni/bin/calico.exe",
    ] {
        assert!(!lab.on_node(&format!("C/{gone}")).exists(), "{gone} is there");
    }
}

fn strangers_are_untouched(lab: &Lab) {
    assert_eq!(lab.read("C/CalicoWindows/notes/todo.txt"), "an administrator's");
    assert_eq!(lab.read("C/CalicoWindows/static-rules.json"), "{}");
    assert_eq!(lab.read("C/Program Files/containerd/cni/bin/contoso.exe"), "another plugin");
    let yaml = lab.read("node.yaml");
    assert!(yaml.contains("contoso:") && yaml.contains("ContosoAgent"), "{yaml}");
}

#[test]
fn what_the_scripts_installed_is_removed_and_comes_back() {
    let lab = scripts_node_in_use();
    let before = lab.picture_without_state();
    let status = lab.run("status").exits(16).stdout;
    assert!(status.contains("Or remove it: calicoctl-win uninstall --sandbox node"), "{status}");

    let plan = lab.run("plan --uninstall").exits(0).stdout;
    assert!(plan.contains("removes the NSSM service CalicoNode, which runs"), "{plan}");
    assert!(plan.contains("Calico's scripts installed this."), "{plan}");
    let document = lab.run("plan --uninstall -o json").exits(0).json();
    assert_eq!(document["adopted"], "remove", "{document:#}");
    lab.picture_without_state().same_as(&before);

    let told = lab.run("uninstall -y").exits(0).stdout;
    is_gone(&lab);
    strangers_are_untouched(&lab);
    assert!(
        told.contains("Left: C:\\CalicoWindows\\notes\\todo.txt and 1 more files that are not Calico's."),
        "{told}"
    );
    assert!(told.contains("Undo, until the next install: calicoctl-win resume --undo"), "{told}");
    assert_eq!(lab.run("uninstall -y -o json").exits(0).json()["changed"], false);

    let shown = lab.run("resume --undo -n").exits(0).stdout;
    assert!(shown.contains("restores the NSSM service CalicoNode"), "{shown}");
    let back = lab.run("resume --undo -y").exits(0).stdout;
    assert!(back.contains("is back, as it was before the uninstall"), "{back}");
    assert!(lab.model().adapters.iter().all(|adapter| adapter.arriving.is_none()), "its address is back, too");
    is_as(&lab, &before);
    let nothing = lab.run("resume --undo -y").exits(0).stdout;
    assert!(nothing.contains("no run was interrupted"), "{nothing}");
    // Nothing of it stays in the store, such as its token.
    assert!(lab.picture().files_with("apiVersion: v1").iter().all(|file| !file.contains("/store/")));
    // And it can be removed again.
    let _gone = lab.run("uninstall -y").exits(0);
    is_gone(&lab);
}

#[test]
fn what_others_put_there_since_is_not_replaced_by_an_undo() {
    let lab = scripts_node_in_use();
    let _gone = lab.run("uninstall -y").exits(0);
    lab.write("node/C/CalicoWindows/config.ps1", "# of another installation");
    let before = lab.picture_without_state();
    let refused = lab.run("resume --undo -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "CameBackSince", "{refused:#}");
    lab.picture_without_state().same_as(&before);
}

#[test]
fn a_removal_that_is_killed_is_finished_or_undone() {
    let start = scripts_node_in_use();
    let before = start.picture_without_state();
    let mut points = 0;
    for n in (2..).step_by(5) {
        let lab = start.copy();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), "uninstall -y");
        if output.code == 0 {
            break;
        }
        let _killed = output.exits(137);
        points += 1;
        let (undone, again) = (lab.copy(), lab.copy());
        let _finished = lab.run("resume -y").exits(0);
        is_gone(&lab);
        strangers_are_untouched(&lab);
        let _back = lab.run("resume --undo -y").exits(0);
        is_as(&lab, &before);

        let _gone = again.run("uninstall -y").exits(0);
        is_gone(&again);
        strangers_are_untouched(&again);

        let _undone = undone.run("resume --undo -y").exits(0);
        is_as(&undone, &before);
    }
    assert!(points >= 12, "only {points}");
}

#[test]
fn an_undo_that_is_killed_is_finished_or_undone() {
    let start = scripts_node_in_use();
    let before = start.picture_without_state();
    let _gone = start.run("uninstall -y").exits(0);
    let removed = start.picture_without_state();
    for n in (2..).step_by(7) {
        let lab = start.copy();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), "resume --undo -y");
        if output.code == 0 {
            break;
        }
        let _killed = output.exits(137);
        let undone = lab.copy();
        let _back = lab.run("resume -y").exits(0);
        is_as(&lab, &before);
        let _gone = undone.run("resume --undo -y").exits(0);
        undone.picture_without_state().says_the_same_as(&removed);
    }
}

/// A kubelet of the scripts needs NSSM, their library and their config.
#[test]
fn the_folder_stays_while_another_service_runs_from_it() {
    let lab = scripts_node_in_use();
    lab.edit_yaml(|yaml| {
        yaml.replace(r"imagePath: C:\k\kubelet.exe", r"imagePath: C:\CalicoWindows\nssm-2.24\win64\nssm.exe")
    });
    let told = lab.run("uninstall -y").exits(0).stdout;
    assert!(told.contains("Left: C:\\CalicoWindows, from which the service kubelet runs"), "{told}");
    assert_eq!(lab.read("C/CalicoWindows/nssm-2.24/win64/nssm.exe"), "nssm");
    assert!(!lab.read("node.yaml").contains("CalicoNode"));
}

#[test]
fn after_an_adoption_the_user_decides_what_comes_back() {
    let adopted = scripts_node_in_use();
    let before = adopted.picture_without_state();
    let _there = adopted.run("install -y").exits(0);

    let plan = adopted.run("plan --uninstall").exits(0).stdout;
    assert!(plan.contains("comes back and runs (--adopted=remove removes it too)"), "{plan}");
    assert_eq!(adopted.run("plan --uninstall -o json").exits(0).json()["adopted"], "restore");
    let plan = adopted.run("plan --uninstall --adopted=remove").exits(0).stdout;
    assert!(plan.contains("does not come back (--adopted=restore brings it back)"), "{plan}");

    for words in ["uninstall -y", "uninstall -y --adopted=restore"] {
        let lab = adopted.copy();
        let _gone = lab.run(words).exits(0);
        is_as(&lab, &before);
    }

    let lab = adopted.copy();
    let told = lab.run("uninstall -y --adopted=remove").exits(0).stdout;
    is_gone(&lab);
    assert!(told.contains("notes/todo.txt and 1 more, not Calico's and in C:\\CalicoWindows before"), "{told}");
    let _back = lab.run("resume --undo -y").exits(0);
    is_as(&lab, &before);

    // The next install forgets what was removed, and keeps the files of other users.
    let lab = adopted.copy();
    let _gone = lab.run("uninstall -y --adopted=remove").exits(0);
    let again = lab.run("install -y").exits(0).stdout;
    assert!(again.contains("FilesKept"), "{again}");
    let kept = lab.picture().files_with("an administrator's");
    assert!(kept.iter().any(|file| file.contains("/kept/foreign/notes/todo.txt")), "{kept:?}");
    assert!(!lab.on_node("C/ProgramData/calicoctl-win/store/trees/foreign").exists());
    let _gone = lab.run("uninstall -y").exits(0);
    is_gone(&lab);
    let nothing = lab.run("resume --undo -y").exits(0).stdout;
    assert!(nothing.contains("no run was interrupted"), "{nothing}");
}

#[test]
fn an_adopted_node_whose_removal_is_killed_is_finished_or_undone() {
    let start = scripts_node_in_use();
    let _there = start.run("install -y").exits(0);
    let adopted = start.picture_without_state();
    let mut points = 0;
    for n in (2..).step_by(7) {
        let lab = start.copy();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), "uninstall -y --adopted=remove");
        if output.code == 0 {
            break;
        }
        let _killed = output.exits(137);
        points += 1;
        let (undone, again) = (lab.copy(), lab.copy());
        let _finished = lab.run("resume -y").exits(0);
        is_gone(&lab);
        let _gone = again.run("uninstall -y").exits(0);
        is_gone(&again);
        let _undone = undone.run("resume --undo -y");
        undone.picture_without_state().without_logs().says_the_same_as(&adopted.clone().without_logs());
    }
    assert!(points >= 4, "only {points}");
}

/// With --purge there is nothing to bring back.
#[test]
fn a_purge_also_removes_what_is_kept_for_an_undo() {
    for words in ["uninstall -y --purge", "install -y;uninstall -y --purge --adopted=remove"] {
        let lab = scripts_node_in_use();
        let mut told = String::new();
        for words in words.split(';') {
            told = lab.run(words).exits(0).stdout;
        }
        is_gone(&lab);
        assert!(!told.contains("Undo, until"), "{told}");
        // The place that is named has the file.
        if let Some((before, place)) =
            told.lines().find_map(|line| line.split_once(" before the first install: now in "))
        {
            let file = before.trim_start_matches("Left: ").split(' ').next().unwrap();
            let folder = place.trim_end_matches('.').replace(':', "").replace('\\', "/");
            assert!(lab.on_node(&folder).join(file).exists(), "{told}");
        }
        assert_eq!(told.contains("now in"), words.contains("remove"), "{told}");
        assert!(lab.picture().files_with("it ran").is_empty() && lab.picture().files_with("s3cret").is_empty());
        assert!(!lab.picture().files_with("an administrator's").is_empty(), "files of other users stay");
    }
}

/// With policy only, the pods keep their network: HNS must not keep Felix's rules on them.
#[test]
fn pods_of_another_network_are_opened_when_the_scripts_felix_goes() {
    let lab = scripts_node();
    lab.write("node/C/CalicoWindows/config.ps1", "$env:CALICO_NETWORKING_BACKEND=\"none\"");
    lab.edit_yaml(|yaml| {
        yaml.replace("networks:\n", "networks:\n  azure:\n    id: 0b7a\n    kind: L2Bridge\n    subnet: 10.240.0.0/16\n    endpoints:\n      web-1: {ip: 10.240.0.7, mac: 00-15-5D-00-00-07, container: 3f2c9d, policies: [{Type: ACL, Action: Block, Direction: In, RuleType: Switch, Priority: 1000, Protocol: 256}]}\n")
    });
    let told = lab.run("uninstall -y").exits(0).stdout;
    assert!(told.contains("Network policies end for the pods of these HNS endpoints"), "{told}");
    let yaml = lab.read("node.yaml");
    assert!(!yaml.contains("Action: Block"), "{yaml}");
    assert!(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf").exists(), "it is another product's");
}

/// Without the setting for a single network, Calico's CNI plugin makes a network for each block of addresses.
#[test]
fn no_network_of_a_block_stays_behind() {
    let with_block = |pods: &str| {
        let lab = scripts_node_in_use();
        lab.edit_yaml(|yaml| {
            let block = "\nnetworks:\n  Calico-192-168-20-64:\n    id: 0d\n    kind: Overlay\n    subnet: 192.168.20.64/26\n    \
                         gateway: 192.168.20.65\n    vsid: 4096\n    adapter: Ethernet\n    managementIp: 10.20.0.21\n";
            yaml.replace("\nnetworks:\n", &format!("{block}{pods}"))
        });
        lab
    };
    let there = |lab: &Lab| lab.read("node.yaml").contains("Calico-192");
    let removed = with_block("");
    let _gone = removed.run("uninstall -y").exits(0);
    assert!(!there(&removed));

    let pod = "    endpoints:\n      pod-1: {ip: 192.168.20.70, mac: 00-15-5D-00-00-07, container: 3f2c9d}\n";
    let in_use = with_block(pod);
    fs::write(in_use.on_node(".sandbox/containers"), "3f2c9d\n").unwrap();
    let refused = in_use.run("install -y -o json").exits(19).json();
    assert_eq!(refused["error"]["id"], "NeedsDrain", "{refused:#}");

    let lab = with_block("");
    let plan = lab.run("plan").exits(0).stdout;
    assert!(plan.contains("hns-network  Calico-192-168-20-64"), "{plan}");
    let _there = lab.run("install -y").exits(0);
    assert!(!there(&lab));
    assert_eq!(lab.run("install -y -o json").exits(0).json()["changed"], false);
    let _debug = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    assert!(!there(&lab));
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(there(&lab), "it was there before");
}

/// An install over the scripts, without `config import`, says which settings change.
#[test]
fn a_plan_over_the_scripts_shows_the_settings_that_change() {
    let lab = scripts_node();
    lab.write(
        "node/C/CalicoWindows/config.ps1",
        "$env:CALICO_NETWORKING_BACKEND=\"vxlan\"\n$env:VXLAN_VNI=4096\n$env:FELIX_LOGSEVERITYSCREEN=\"debug\"\n$env:DNS_NAME_SERVERS=\"10.96.0.77\"\n",
    );
    fs::remove_file(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
    // A secret is never imported, and a setting of it is not shown.
    let plan = lab.run("plan").exits(0);
    assert!(
        plan.stdout.contains("could be read: PROXY_PASSWORD holds a secret") && !plan.stdout.contains("s3cret"),
        "{plan}"
    );
    lab.edit_yaml(|yaml| yaml.replace("[PROXY_PASSWORD=s3cret]", "[PROXY=none]"));
    let document = lab.run("plan -o json").exits(0).json();
    let change = |path: &str| {
        let diff = document["settings_diff"].as_array().unwrap().iter();
        diff.clone()
            .find(|change| change["path"] == path)
            .map(|change| (change["before"].clone(), change["after"].clone()))
    };
    let dns = change("spec.kubernetes.dns.servers").unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!(dns, (serde_json::json!(["10.96.0.77"]), serde_json::json!(["10.96.0.10"])), "{document:#}");
    assert_eq!(change("spec.calicoNetwork.backend").map(|(before, _)| before), Some(Value::Null), "it stays");
    let plan = lab.run("plan").exits(0);
    assert!(plan.stdout.contains("10.96.0.77"), "{plan}");
    assert!(plan.stdout.contains("SettingsNotImported"), "{plan}");

    let _imported = lab.run("config import --live --out theirs.yaml").exits(0);
    let plan = lab.run("plan -c theirs.yaml -o json").exits(0).json();
    let before: Vec<&Value> =
        plan["settings_diff"].as_array().unwrap().iter().filter(|change| !change["before"].is_null()).collect();
    assert!(before.is_empty(), "{before:?}");
}
