//! Other services that depend on Calico's: Windows does not stop a service while a running one depends on it (error
//! 1051), and starts none that depends on a missing one (1075).

use calicoctl_win::node::sandbox::model::{Model, Name};
use serde_json::Value;

use crate::lab::{Lab, Output};

const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

/// An installed node on which kubelet depends on Calico, as many guides recommend, a monitor depends on kubelet, and a
/// tool that is not running depends on Felix.
fn with_dependents() -> Lab {
    let lab = Lab::installed();
    lab.edit_model(|model| {
        let kubelet = model.services.get_mut(&Name::new("kubelet")).unwrap();
        kubelet.definition.depends_on.push("calicoNODE".into());
        let mut monitor = kubelet.clone();
        (monitor.definition.depends_on, monitor.pid) = (vec!["Kubelet".into()], Some(9000));
        let mut tool = kubelet.clone();
        (tool.definition.depends_on, tool.pid) = (vec!["CalicoFelix".into()], None);
        tool.definition.start = calicoctl_win::item::StartType::Manual;
        model.services.extend([(Name::new("Monitor"), monitor), (Name::new("Tool"), tool)]);
    });
    lab
}

fn model(lab: &Lab) -> Model {
    serde_yaml::from_str(&lab.read("node.yaml")).unwrap()
}

/// Returns which of the three run.
fn running(lab: &Lab) -> Vec<&'static str> {
    let model = model(lab);
    ["kubelet", "Monitor", "Tool"].into_iter().filter(|name| model.services[&Name::new(*name)].pid.is_some()).collect()
}

/// Returns what the three depend on.
fn needs(lab: &Lab) -> String {
    let model = model(lab);
    let of = |name: &str| model.services[&Name::new(name)].definition.depends_on.join(" ");
    ["kubelet", "Monitor", "Tool"].map(of).join(", ")
}

const NEEDS: &str = "containerd calicoNODE, Kubelet, CalicoFelix";

fn phases(output: &Output, phase: &str) -> Vec<String> {
    let lines = output.ndjson();
    let those = lines.iter().filter(|line| line["type"] == "phase_complete" && line["phase"]["id"] == phase);
    those.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_verb_that_stops_calico_stops_dependent_services_before_and_starts_them_after() {
    let lab = with_dependents();
    let plan = lab.run("plan --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    for line in ["restart      Monitor", "restart      kubelet"] {
        assert!(plan.stdout.contains(line), "{plan}");
    }
    let done = lab.run(&format!("{VNI} -o ndjson")).exits(0);
    assert_eq!(phases(&done, "services-stop"), ["Monitor, kubelet, CalicoFelix, CalicoNode"]);
    assert_eq!(phases(&done, "services-start"), ["CalicoNode", "CalicoFelix, kubelet, Monitor"]);
    assert_eq!(running(&lab), ["kubelet", "Monitor"]);

    // Felix alone does not affect them, until a service that depends on it runs.
    let felix = "reconfigure -y -o ndjson --set services.felixLogSeverity";
    let done = lab.run(&format!("{felix}=debug")).exits(0);
    assert_eq!(phases(&done, "services-stop"), ["CalicoFelix"]);
    lab.edit_model(|model| model.services.get_mut(&Name::new("Tool")).unwrap().pid = Some(9100));
    let done = lab.run(&format!("{felix}=info")).exits(0);
    assert_eq!(phases(&done, "services-stop"), ["Tool, CalicoFelix"]);
    lab.edit_model(|model| model.services.get_mut(&Name::new("Tool")).unwrap().pid = None);

    let broken = "put running CalicoFelix#2=fail";
    for (fault, words, code) in [
        ("", "upgrade -y --release v3.33.0", 0),
        ("", "rollback -y", 0),
        (broken, "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=6000", 9),
        ("", "service restart -y", 0),
        ("", "reconfigure -y --mode try --set calicoNetwork.vxlan.vxlanVNI=7000", 0),
        ("", "confirm", 0),
        ("", "install -y --set services.start=false --set calicoNetwork.vxlan.vxlanVNI=7000", 0),
    ] {
        let _done = lab.fails_at(fault, words).exits(code);
        assert_eq!((running(&lab), needs(&lab).as_str()), (vec!["kubelet", "Monitor"], NEEDS), "{words}");
    }
}

#[test]
fn service_stop_and_start_include_the_services_that_depend_on_calico() {
    let lab = with_dependents();
    let msg = |output: Output| output.exits(0).json()["msg"].as_str().unwrap().to_owned();
    let planned = msg(lab.run("service restart -n -o json"));
    assert_eq!(msg(lab.run("service restart -y -o json")), planned);
    assert_eq!(
        planned,
        "stop Monitor, stop kubelet, stop CalicoFelix, stop CalicoNode, \
         start CalicoNode, start CalicoFelix, start kubelet, start Monitor"
    );
    assert_eq!(
        msg(lab.run("service stop -y -o json")),
        "stop Monitor, stop kubelet, stop CalicoFelix, stop CalicoNode"
    );
    assert_eq!(running(&lab), [""; 0]);
    // Services with manual start are not changed.
    assert_eq!(
        msg(lab.run("service start -o json")),
        "start CalicoNode, start CalicoFelix, start kubelet, start Monitor"
    );
    let _killed = lab.fails_at("put running kubelet#2=exit-before", "service restart -y").exits(137);
    assert_eq!(running(&lab), [""; 0]);
    assert_eq!(msg(lab.run("service start -o json")), "start kubelet, start Monitor");
}

#[test]
fn services_that_depend_on_calico_run_again_however_a_run_ends() {
    let there = with_dependents();
    for at in [
        "put running Monitor#1=exit-after",
        "put running kubelet#1=exit-after",
        "put network Calico#1=exit-after",
        "put running kubelet#2=exit-before",
        "put running kubelet#2=exit-after",
    ] {
        for after in ["resume -y", "resume -y --undo", "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=6000"] {
            let lab = there.copy();
            let _killed = lab.fails_at(at, VNI).exits(137);
            assert_ne!(running(&lab), ["kubelet", "Monitor"]);
            let _done = lab.run(after).exits(0);
            assert_eq!(running(&lab), ["kubelet", "Monitor"], "{at}, then {after}");
        }
    }
}

/// A run of a version that did not handle dependents, or a service that depends on Calico only since then.
#[test]
fn a_recovery_restarts_services_that_only_it_stopped() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put running CalicoNode#1=exit-before", VNI).exits(137);
    lab.edit_model(|model| {
        let kubelet = model.services.get_mut(&Name::new("kubelet")).unwrap();
        kubelet.definition.depends_on.push("CalicoNode".into());
    });
    let _killed = lab.fails_at("put running kubelet#1=exit-after", "resume -y").exits(137);
    let runs = || model(&lab).services[&Name::new("kubelet")].pid.is_some();
    assert!(!runs());
    let _done = lab.run("resume -y").exits(0);
    assert!(runs());
}

#[test]
fn after_uninstall_no_service_depends_on_a_removed_one() {
    let there = with_dependents();
    let gone = "containerd, Kubelet, ";
    let lab = there.copy();
    let planned = lab.run("uninstall -n").exits(0);
    assert!(planned.stdout.contains("dependencies  kubelet"), "{planned}");
    assert!(planned.stdout.contains("containerd, calicoNODE -> containerd\n"), "{planned}");
    let _gone = lab.run("uninstall -y").exits(0);
    assert_eq!((running(&lab), needs(&lab).as_str()), (vec!["kubelet", "Monitor"], gone));

    for at in ["put depends-on kubelet#1=exit-after", "put service CalicoNode#1=exit-after"] {
        for (after, list) in [("resume -y", gone), ("resume -y --undo", NEEDS), ("install -y", NEEDS)] {
            let lab = there.copy();
            let _killed = lab.fails_at(at, "uninstall -y").exits(137);
            assert_eq!(running(&lab), [""; 0], "{at}");
            // Other changes to the service meanwhile are kept.
            lab.edit_model(|model| {
                model.services.get_mut(&Name::new("kubelet")).unwrap().definition.description = "newer".into();
            });
            let _done = lab.run(after).exits(0);
            let runs = (running(&lab), needs(&lab));
            assert_eq!(runs, (vec!["kubelet", "Monitor"], list.to_owned()), "{at}, then {after}");
            assert_eq!(model(&lab).services[&Name::new("kubelet")].definition.description, "newer");
        }
    }
}

#[test]
fn preflight_explains_the_effect_of_a_kubelet_dependency() {
    let check = |lab: &Lab| -> Value {
        let report = lab.run("preflight -o json").json();
        let checks = report["checks"].as_array().unwrap().iter();
        checks.clone().find(|check| check["id"] == "KubeletDependencies").unwrap().clone()
    };
    let lab = with_dependents();
    let (status, detail) = (&check(&lab)["status"], &check(&lab)["detail"]);
    assert_eq!(status, "ok");
    assert!(detail.as_str().unwrap().contains("stops kubelet first and starts it again"), "{detail}");
    let bare = Lab::node();
    assert_eq!(check(&bare)["detail"], "kubelet depends on no Calico service");
    bare.edit_model(|model| {
        model.services.get_mut(&Name::new("kubelet")).unwrap().definition.depends_on.push("CalicoNode".into());
    });
    assert_eq!(check(&bare)["status"], "warn");
    assert_eq!(check(&bare)["detail"], "kubelet depends on CalicoNode, which is not installed");
}

/// Security products protect their services, and some protect others' too: one that cannot be read is not absent.
#[test]
fn preflight_names_a_service_that_it_may_not_read() {
    let lab = Lab::node();
    lab.edit_model(|model| {
        for name in ["kubelet", "containerd"] {
            model.services.get_mut(&Name::new(name)).unwrap().unreadable = true;
        }
    });
    let report = lab.run("preflight -o json").json();
    for (id, service) in [("KubeletDependencies", "kubelet"), ("RuntimeRunning", "containerd")] {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).unwrap();
        let why = format!("read service {service} (Windows error 5: access is denied)");
        assert_eq!((&check["status"], &check["detail"]), (&"unknown".into(), &why.into()), "{check:#}");
    }
}
