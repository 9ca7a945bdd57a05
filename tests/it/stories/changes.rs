//! An installed node, and changes to it: services, drift, other settings.

use std::fs;

use serde_json::Value;

use crate::lab::Lab;

fn states(lab: &Lab) -> Vec<String> {
    let services = match lab.run("service status -o json").json()["services"].take() {
        Value::Array(services) => services,
        other => panic!("{other}"),
    };
    services.iter().map(|service| format!("{} {}", service["name"], service["state"]).replace('"', "")).collect()
}

#[test]
fn services_installed_without_start_are_started_on_request() {
    for words in ["install -y --no-start -o json", "install -y --set services.start=false -o json"] {
        let lab = Lab::node();
        let result = lab.run(words).exits(0).json();
        assert_eq!(result["changed"], true, "{result}");
        assert!(result["next"][0].as_str().unwrap().contains("service start"), "{result}");
        assert_eq!(states(&lab), ["CalicoNode Stopped", "CalicoFelix Stopped", "CalicoConfd Absent"]);
        let status = lab.run("status").exits(12).screen();
        assert!(status.contains("OVERALL: DEGRADED") && status.contains("    calicoctl-win service start"));
        assert!(status.contains("! service CalicoNode is not started, as the config says"), "{status}");
        assert!(!lab.read("node.yaml").contains("External"), "the vSwitch was made without need");
        let again = lab.run(words).exits(0).json();
        assert_eq!(again["changed"], false, "{again}");

        let started = lab.run("service start -o json").exits(0).json();
        assert_eq!(started["changed"], true);
        assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
        let again = lab.run("service start -o json").exits(0).json();
        assert_eq!(again["changed"], false);

        let _restarted = lab.run("service restart -y").exits(0);
        let _stopped = lab.run("service stop -y").exits(0);
        assert_eq!(states(&lab), ["CalicoNode Stopped", "CalicoFelix Stopped", "CalicoConfd Absent"]);
        let _down = lab.run("service status").exits(12);

        let _healed = lab.run("install -y").exits(0);
        assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
        // `--no-start` does not stop running services.
        let kept = lab.run(words).exits(0).json();
        assert_eq!(states(&lab)[..2], ["CalicoNode Running", "CalicoFelix Running"], "{kept}");

        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().same_as(&Lab::node().picture());
    }
}

#[test]
fn drift_is_shown_and_repaired() {
    let lab = Lab::installed();
    let healthy = lab.run("status -o json").exits(0).json();
    type Harm = fn(&Lab);
    let harms: [(&str, Harm); 6] = [
        (r"file C:\CalicoWindows\config.ps1", |lab| {
            fs::write(lab.on_node("C/CalicoWindows/config.ps1"), "# edited").unwrap();
        }),
        (r"file C:\Program Files\containerd\cni\bin\calico-ipam.exe", |lab| {
            fs::remove_file(lab.on_node("C/Program Files/containerd/cni/bin/calico-ipam.exe")).unwrap();
        }),
        (r"file C:\Program Files\containerd\cni\conf\10-calico.conf", |lab| {
            fs::write(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf"), "{}").unwrap();
        }),
        ("running CalicoFelix", |lab| lab.edit_yaml(|yaml| without_line(yaml, "    pid: 4004"))),
        ("firewall kubectl exec 10250", |lab| {
            lab.edit_yaml(|yaml| yaml.replace("localPorts: \"10250\"", "localPorts: \"10251\""));
        }),
        (r"registry HKLM\Software\Tigera\Calico\InstalledBy", |lab| {
            lab.edit_yaml(|yaml| yaml.replace("data: calicoctl-win", "data: somebody"));
        }),
    ];
    let mut generation = 1;
    for (id, harm) in harms {
        harm(&lab);
        let status = lab.run("status -o json").exits(12).json();
        assert_eq!(status["drift"], serde_json::json!([id]), "{status}");
        assert!(status["reasons"].to_string().contains(&id.replace('\\', "\\\\")), "{status}");
        let plan = lab.run("plan -o json").exits(0).json();
        assert_eq!(plan["changes"].as_array().unwrap().len(), 1, "{id}: {plan}");

        generation += 1;
        let repaired = lab.run("install -y -o json").exits(0).json();
        assert_eq!((&repaired["changed"], &repaired["generation"]), (&true.into(), &generation.into()), "{id}");
        let status = lab.run("status -o json").exits(0).json();
        assert_eq!(status["overall"], healthy["overall"], "{id}: {status}");
    }
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().says_the_same_as(&Lab::node().picture());
}

/// `yaml` without the first such line.
fn without_line(yaml: &str, line: &str) -> String {
    yaml.replacen(&format!("\n{line}\n"), "\n", 1)
}

#[test]
fn a_network_calico_with_a_wrong_vsid_is_replaced() {
    let lab = Lab::node();
    // Left by a manual installation: Calico itself would reuse it unchanged.
    lab.edit_yaml(|yaml| {
        yaml.replace("  addresses: [10.20.0.21/24]\n  gateway: 10.20.0.1\n  dhcp: true\n", "  dhcp: true\n- {name: vEthernet (Ethernet), mac: 00-15-5D-14-00-15, addresses: [10.20.0.21/24], gateway: 10.20.0.1, dhcp: true}\n").replace(
            "networks:\n",
            "networks:\n  Calico: {id: 0a, kind: Overlay, subnet: 192.168.0.0/26, gateway: 192.168.0.1, vsid: 5000, adapter: Ethernet, managementIp: 10.20.0.21}\n  \
             External: {id: 0b, kind: Overlay, subnet: 192.168.255.0/30, gateway: 192.168.255.1, vsid: 9999, adapter: Ethernet, managementIp: 10.20.0.21}\n",
        )
    });
    let before = lab.picture();
    let result = lab.run("install -y -o json").exits(0).json();
    assert_eq!(result["changed"], true);
    assert_eq!(vsid(&lab), 4096);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

fn vsid(lab: &Lab) -> Value {
    let status = lab.healthy();
    let networks = status["networks"].as_array().unwrap();
    networks.iter().find(|network| network["name"] == "Calico").unwrap()["vsid"].clone()
}

#[test]
fn another_vni_under_running_pods_needs_a_drain() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    let refused = lab.run("install -y --set calicoNetwork.vxlan.vxlanVNI=5000 -o json").exits(19).json();
    assert_eq!(refused["error"]["id"], "NeedsDrain", "{refused}");
    assert_eq!(refused["changed"], false);
    lab.picture_without_state().same_as(&before);
    let plan = lab.run("plan --set calicoNetwork.vxlan.vxlanVNI=5000 -o json").exits(0).json();
    assert_eq!(plan["needs_drain"], true);

    // Running services are restarted with the new setting, whether or not install starts them.
    let refused = lab.run("install -y --no-start --set calicoNetwork.vxlan.vxlanVNI=5000 -o json").exits(19).json();
    assert_eq!(refused["error"]["id"], "NeedsDrain", "{refused}");
    lab.picture_without_state().same_as(&before);

    // As the hint says.
    let _gone = lab.run("uninstall -y").exits(0);
    let _there = lab.run("install -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    assert_eq!(vsid(&lab), 5000);
}

#[test]
fn a_damaged_earlier_receipt_is_reported_and_stops_nothing() {
    let lab = Lab::installed();
    let before = Lab::node().picture();
    let _second = lab.run("install -y --set services.felixLogSeverity=debug").exits(0);
    let broken = lab.on_node("C/ProgramData/calicoctl-win/receipts/0001.json");
    fs::write(&broken, "{").unwrap();
    fs::write(broken.with_file_name("0002 - Copy.json"), "{").unwrap();
    assert_eq!(lab.run("status -o json").exits(0).json()["generation"], 2);
    let third = lab.run("install -y").exits(0);
    assert!(third.stdout.contains("ReceiptUnreadable") && third.stdout.contains("0001.json"), "{third}");
    assert_eq!(lab.run("status -o json").exits(0).json()["generation"], 3);

    // The newest is different: only it records what is ours.
    fs::write(broken.with_file_name("0003.json"), "{").unwrap();
    let refused = lab.run("uninstall -y -o json").exits(1).json();
    assert_eq!(refused["error"]["id"], "ReceiptUnreadable", "{refused}");
    fs::remove_file(broken.with_file_name("0003.json")).unwrap();
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

#[test]
fn the_receipt_that_an_interrupted_run_started_from_must_be_readable() {
    let lab = Lab::installed();
    let _dead = lab.fails_at("put *#3=exit-after", "install -y --set services.felixLogSeverity=debug").exits(137);
    let receipt = lab.on_node("C/ProgramData/calicoctl-win/receipts/0001.json");
    let text = fs::read(&receipt).unwrap();
    fs::write(&receipt, "{").unwrap();
    fs::write(receipt.with_file_name("0002.json"), &text).unwrap();
    let refused = lab.run("resume --undo -y -o json").exits(1).json();
    assert_eq!(refused["error"]["id"], "ReceiptUnreadable", "{refused}");
}

#[test]
fn a_setting_of_the_services_is_changed_in_place() {
    let lab = Lab::installed();
    lab.write("debug.yaml", "spec: {services: {felixLogSeverity: debug}}\n");
    let plan = lab.run("plan -c debug.yaml -o json").exits(0).json();
    assert_eq!((&plan["needs_drain"], &plan["disruption"]), (&false.into(), &"services".into()), "{plan}");
    let done = lab.run("install -y -c debug.yaml -o json").exits(0).json();
    assert_eq!(done["generation"], 2);
    assert!(lab.read("C/ProgramData/calicoctl-win/felix.json").contains("debug"));
    assert_eq!(vsid(&lab), 4096);
}
