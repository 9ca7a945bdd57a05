//! A node whose pods are on Flannel's network gets Calico, and Flannel back.

use std::fs;
use std::time::Duration;

use calicoctl_win::node::Node;
use calicoctl_win::node::sandbox::SandboxNode;
use serde_json::{Value, json};

use crate::lab::{Lab, Picture};

const CONF: &str = "C/Program Files/containerd/cni/conf/10-flannel.conf";
const NET_CONF: &str = "C/etc/kube-flannel/net-conf.json";

/// A node as SIG Windows' scripts install Flannel with VXLAN; another product has a network.
fn flannel_node() -> Lab {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| {
        let contoso = "networks:\n  contoso: {id: 0c, kind: Internal, subnet: 172.30.0.0/24, gateway: 172.30.0.1}\n";
        yaml.replacen("networks:\n", contoso, 1)
    });
    with_flannel(&lab);
    lab
}

/// Installs Flannel as SIG Windows' scripts do, with VXLAN.
pub fn with_flannel(lab: &Lab) {
    for (path, text) in [
        (CONF, r#"{"name": "vxlan0", "type": "flannel", "delegate": {"type": "win-overlay"}}"#),
        (
            NET_CONF,
            r#"{"Network": "10.244.0.0/16", "Backend": {"Name": "vxlan0", "Type": "vxlan", "VNI": 4096, "Port": 4789}}"#,
        ),
        ("C/run/flannel/subnet.env", "FLANNEL_NETWORK=10.244.0.0/16"),
        ("C/k/sourceVip.json", r#"{"ip4": {"ip": "10.244.3.2/24"}}"#),
        ("C/flannel/flanneld.exe", "flanneld"),
        ("C/k/kube-proxy.exe", "kube-proxy"),
    ] {
        lab.write(&format!("node/{path}"), text);
    }
    lab.edit_yaml(|yaml| {
        let networks = "\nnetworks:\n  External: {id: 0b, kind: Overlay, subnet: 192.168.255.0/30, gateway: 192.168.255.1, vsid: 9999, adapter: Ethernet, managementIp: 10.20.0.21}\n  \
                        vxlan0: {id: 0a, kind: Overlay, subnet: 10.244.3.0/24, gateway: 10.244.3.1, vsid: 4096, adapter: Ethernet, managementIp: 10.20.0.21}\n";
        let service = |name: &str, command: &str, pid: u32| {
            format!(
                "  {name}:\n    definition: {{displayName: {name}, description: '', imagePath: '{command}', account: LocalSystem, \
                 start: auto}}\n    pid: {pid}\n"
            )
        };
        let services = [
            service("flanneld", r"C:\flannel\flanneld.exe --kubeconfig-file C:\k\config --iface 10.20.0.21", 3200),
            service("kube-proxy", r"C:\k\kube-proxy.exe --network-name=vxlan0 --source-vip=10.244.3.2 --enable-dsr=true", 3204),
        ];
        yaml.replace("  addresses: [10.20.0.21/24]\n  gateway: 10.20.0.1\n  dhcp: true\n", "  dhcp: true\n- {name: vEthernet (Ethernet), mac: 00-15-5D-14-00-15, addresses: [10.20.0.21/24], gateway: 10.20.0.1, dhcp: true}\n")
            .replace("\nnetworks:\n", networks)
            .replace("services:\n", &format!("services:\n{}", services.concat()))
    });
}

/// The source VIP of kube-proxy, from its service.
fn source_vip(lab: &Lab) -> String {
    let yaml = lab.read("node.yaml");
    let (_, flags) = yaml.split_once("--network-name=Calico --source-vip=").unwrap_or_else(|| panic!("{yaml}"));
    flags.split_whitespace().next().unwrap().to_owned()
}

/// The address of the endpoint `Calico_ep`.
fn host_endpoint(lab: &Lab) -> String {
    let yaml: Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    yaml["networks"]["Calico"]["endpoints"]["Calico_ep"]["ip"].as_str().unwrap().to_owned()
}

#[track_caller]
fn is_on_calico(lab: &Lab) {
    let yaml = lab.read("node.yaml");
    assert!(yaml.contains("  Calico:") && yaml.contains("contoso:"), "{yaml}");
    for gone in ["vxlan0", "flanneld"] {
        assert!(!yaml.contains(gone), "{gone}:\n{yaml}");
    }
    assert_eq!(source_vip(lab), host_endpoint(lab), "{yaml}");
    for gone in [CONF, NET_CONF, "C/run/flannel/subnet.env", "C/k/sourceVip.json"] {
        assert!(!lab.on_node(gone).exists(), "{gone} is there");
    }
    assert_eq!(lab.read("C/flannel/flanneld.exe"), "flanneld", "programs of other products stay");
    assert_eq!(lab.status()["overall"], "Healthy", "{:#}", lab.status());
}

/// The node is as in the picture, once Windows has given the addresses to the vSwitch.
#[track_caller]
fn is_as(lab: &Lab, before: &Picture) {
    let mut node = SandboxNode::open(&lab.path("node")).unwrap();
    node.pause(Duration::from_secs(60));
    // kubelet starts pods again, each with another endpoint.
    node.edit(|model| {
        model.networks.values_mut().for_each(|network| network.endpoints.clear());
        Ok(())
    })
    .unwrap();
    lab.picture_without_state().says_the_same_as(before);
}

fn is_schedulable(lab: &Lab) -> bool {
    let node = lab.objects().into_iter().find(|(kind, name, _)| kind.starts_with("nodes") && name == "win-a1");
    node.unwrap().2["spec"]["unschedulable"] != true
}

#[test]
fn a_node_moves_from_flannel_to_calico_and_back() {
    let lab = flannel_node();
    let before = lab.picture_without_state();
    // An install alone refuses, and names the verb.
    let refused = lab.run("install -y").exits(3);
    assert!(refused.stdout.contains("NoFlannel") || refused.stderr.contains("NoFlannel"), "{refused}");
    assert!(format!("{refused}").contains("migrate from flannel"), "{refused}");

    let plan = lab.run("migrate from flannel --dry-run").exits(0).stdout;
    for line in ["hns-network  vxlan0", "service      flanneld", "10-flannel.conf", "net-conf.json", "Drain of win-a1"]
    {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert!(plan.contains("kube-proxy gets the address of Calico_ep as its source VIP, once that exists."), "{plan}");
    lab.picture_without_state().same_as(&before);

    let lines = lab.run("migrate from flannel -y -o ndjson").exits(0).ndjson();
    let at = |kind: &str, phase: &str| {
        let found = lines.iter().position(|line| line["type"] == kind && line["phase"]["id"] == phase);
        found.unwrap_or_else(|| panic!("{phase}"))
    };
    assert!(at("phase_complete", "drain") < at("phase_start", "services-stop"));
    let result = lines.last().unwrap();
    assert_eq!((&result["exit_code"], &result["changed"]), (&json!(0), &json!(true)), "{result:#}");
    assert!(!result["warnings"].to_string().contains("KubeProxyNetwork"), "{result:#}");
    is_on_calico(&lab);
    assert!(is_schedulable(&lab));

    // Later changes keep Flannel away.
    let _debug = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    is_on_calico(&lab);
    assert_eq!(lab.run("apply -y -o json").exits(0).json()["changed"], false);
    assert_eq!(lab.run("migrate from flannel -y -o json").exits(0).json()["changed"], false);

    let _gone = lab.run("uninstall -y").exits(0);
    is_as(&lab, &before);
}

#[test]
fn a_migration_that_is_killed_is_finished_or_undone() {
    let start = flannel_node();
    let before = start.picture_without_state();
    let mut points = 0;
    for n in (2..).step_by(9) {
        let lab = start.copy();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), "migrate from flannel -y");
        if output.code == 0 {
            break;
        }
        let _killed = output.exits(137);
        points += 1;
        let undone = lab.copy();
        let journaled = lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists();
        let _finished = lab.run(if journaled { "resume -y" } else { "migrate from flannel -y" }).exits(0);
        is_on_calico(&lab);
        assert!(is_schedulable(&lab), "at {n}");
        if journaled {
            let _undone = undone.run("resume --undo -y").exits(0);
            is_as(&undone, &before);
            assert!(is_schedulable(&undone), "at {n}");
        }
    }
    assert!(points >= 8, "only {points}");
}

#[test]
fn a_migration_that_fails_restores_flannel() {
    for fault in ["put running CalicoFelix=fail", "put network vxlan0#1=fail", "put service flanneld#1=fail-after"] {
        let lab = flannel_node();
        let before = lab.picture_without_state();
        let failed = lab.fails_at(fault, "migrate from flannel -y -o json").exits(9).json();
        assert_eq!(failed["rolled_back"], true, "{fault}: {failed:#}");
        is_as(&lab, &before);
        assert!(is_schedulable(&lab), "{fault}");
    }
}

#[test]
fn flannel_that_the_cluster_runs_here_is_refused() {
    let lab = flannel_node();
    let _cluster = lab.run("plan --ignore-preflight-errors NoFlannel,CniConfig").exits(0);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "kube-flannel-ds-windows-amd64-x7k2p", "namespace": "kube-flannel", "uid": "f1",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "kube-flannel-ds-windows-amd64", "uid": "f0", "controller": true}],
        },
        "spec": {"nodeName": "win-a1", "hostNetwork": true, "containers": [{"name": "kube-flannel", "image": "flannel"}]},
        "status": {"phase": "Running"},
    });
    lab.add_object("pods", pod);
    let before = lab.picture_without_state();
    let refused = lab.run("migrate from flannel -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "FlannelDaemonSet", "{refused:#}");
    assert!(refused["error"]["what"].as_str().unwrap().contains("kube-flannel/kube-flannel-ds-windows-amd64-x7k2p"));
    lab.picture_without_state().same_as(&before);
}

/// Its pod is gone, and nothing keeps the controller from creating another one.
#[test]
fn a_daemon_set_of_flannel_that_selects_the_node_is_refused_too() {
    let start = flannel_node();
    let _cluster = start.run("plan --ignore-preflight-errors NoFlannel,CniConfig").exits(0);
    let set = |selector: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "kube-flannel-ds-windows-amd64", "namespace": "kube-flannel", "uid": "f0"},
            "spec": {
                "selector": {"matchLabels": {"app": "flannel"}},
                "template": {
                    "metadata": {"labels": {"app": "flannel"}},
                    "spec": {"nodeSelector": selector, "containers": [{"name": "kube-flannel", "image": "flannel"}]},
                },
            },
        })
    };
    // Nothing creates its pods.
    const NO_PODS: &str = "api no-controllers";
    let checked = |lab: &Lab| {
        let report = lab.fails_at(NO_PODS, "preflight -o json").json();
        let all = report["checks"].as_array().unwrap();
        let check = all.iter().find(|check| check["id"] == "FlannelDaemonSet").unwrap();
        format!("{}: {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
    };
    let back = start.copy();
    back.add_object("daemonsets.apps", set(json!({"kubernetes.io/os": "windows"})));
    let refused = back.fails_at(NO_PODS, "migrate from flannel -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "FlannelDaemonSet", "{refused:#}");
    let why = "the DaemonSet kube-flannel/kube-flannel-ds-windows-amd64 selects this node: the cluster would run Flannel here";
    assert_eq!(refused["error"]["what"], why);
    assert_eq!(checked(&back), format!("fail: {why}"));

    let away = start.copy();
    away.add_object("daemonsets.apps", set(json!({"kubernetes.io/os": "windows", "flannel": "yes"})));
    assert_eq!(checked(&away), "ok: no DaemonSet of Flannel selects this node");
    let _moved = away.run("migrate from flannel -y").exits(0);
    is_on_calico(&away);
    assert_eq!(checked(&away), "skip: nothing of Flannel is on this machine");
}

#[test]
fn addresses_that_flannel_and_calico_share_are_named() {
    let lab = flannel_node();
    lab.write(&format!("node/{NET_CONF}"), r#"{"Network": "192.168.0.0/16"}"#);
    let plan = lab.run("migrate from flannel --dry-run -o json").exits(0).json();
    let warned = plan["warnings"].to_string();
    assert!(warned.contains("FlannelPoolOverlap"), "{plan:#}");
    let report = lab.run("preflight -o json").json();
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == "FlannelPoolOverlap").unwrap();
    assert_eq!(check["status"], "warn", "{check:#}");
    assert!(check["detail"].as_str().unwrap().contains("default-ipv4-ippool (192.168.0.0/16)"), "{check:#}");
}

#[test]
fn without_flannel_there_is_nothing_to_migrate() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let refused = lab.run("migrate from flannel -y -o json");
    assert_eq!(refused.json()["error"]["id"], "NoFlannelHere", "{refused}");
    lab.picture_without_state().same_as(&before);
}

/// In host-gateway mode, with a vSwitch of another kind.
#[test]
fn flannels_bridge_is_replaced_too() {
    let lab = flannel_node();
    lab.edit_yaml(|yaml| {
        yaml.replace("vxlan0: {id: 0a, kind: Overlay", "cbr0: {id: 0a, kind: L2Bridge")
            .replace(", vsid: 4096, adapter", ", adapter")
            .replace(
                "kind: Overlay, subnet: 192.168.255.0/30, gateway: 192.168.255.1, vsid: 9999",
                "kind: L2Bridge, subnet: 192.168.255.0/30, gateway: 192.168.255.1",
            )
            .replace("--network-name=vxlan0", "--network-name=cbr0")
    });
    let before = lab.picture_without_state();
    let _done = lab.run("migrate from flannel -y").exits(0);
    is_on_calico(&lab);
    let networks: Vec<Value> = lab.status()["networks"].as_array().unwrap().clone();
    assert!(
        networks.iter().any(|network| network["name"] == "External" && network["type"] == "Overlay"),
        "{networks:#?}"
    );
    let _gone = lab.run("uninstall -y").exits(0);
    is_as(&lab, &before);
    assert!(fs::exists(lab.on_node(CONF)).unwrap());
}

/// kube-proxy with a configuration file, which has the network and the source VIP of Flannel.
fn with_a_file(lab: &Lab) {
    lab.write("node/C/k/kube-proxy.yaml", KUBE_PROXY);
    lab.edit_yaml(|yaml| {
        yaml.replace(
            "--network-name=vxlan0 --source-vip=10.244.3.2 --enable-dsr=true",
            r"--config=C:\k\kube-proxy.yaml",
        )
    });
}

const KUBE_PROXY: &str = "# of the administrators
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: kernelspace
winkernel: {networkName: vxlan0, sourceVip: 10.244.3.2}
";

#[track_caller]
fn file_is_on_calico(lab: &Lab) {
    let text = lab.read("C/k/kube-proxy.yaml");
    let config: Value = serde_yaml::from_str(&text).unwrap();
    let wanted = json!({"networkName": "Calico", "sourceVip": host_endpoint(lab)});
    assert_eq!((&config["winkernel"], &config["mode"]), (&wanted, &json!("kernelspace")), "{text}");
}

#[test]
fn kube_proxys_file_gets_calicos_network_and_source_vip() {
    let lab = flannel_node();
    with_a_file(&lab);
    let before = lab.picture_without_state();
    let lines = lab.run("migrate from flannel -y -o ndjson").exits(0).ndjson();
    assert!(!lines.last().unwrap()["warnings"].to_string().contains("KubeProxyNetwork"), "{lines:#?}");
    file_is_on_calico(&lab);
    // It reads the file when it starts.
    let file = |line: &Value| line["message"].as_str().is_some_and(|message| message.contains("kube-proxy.yaml"));
    let starts = |line: &Value| {
        let started = line["phase"]["id"] == "services-start" && line["type"] == "phase_complete";
        started && line["message"].as_str().unwrap().contains("kube-proxy")
    };
    assert!(lines.iter().rposition(file) < lines.iter().rposition(starts), "{lines:#?}");
    assert_eq!(lab.run("apply -y -o json").exits(0).json()["changed"], false);
    let _gone = lab.run("uninstall -y").exits(0);
    is_as(&lab, &before);
    assert_eq!(lab.read("C/k/kube-proxy.yaml"), KUBE_PROXY);
}

/// The address is known only when the network is there: the run that ends an interrupted one sets it too.
#[test]
fn a_source_vip_that_was_not_set_yet_is_set_by_resume() {
    let start = flannel_node();
    with_a_file(&start);
    let before = start.picture_without_state();
    // The file is written twice: with the network, and with the address.
    for point in ["#1=exit-before", "#1=exit-after", "#2=exit-before", "#2=exit-within", "#2=exit-after"] {
        let lab = start.copy();
        let _killed = lab.fails_at(&format!("put file *kube-proxy.yaml{point}"), "migrate from flannel -y").exits(137);
        let undone = lab.copy();
        let _finished = lab.run("resume -y").exits(0);
        file_is_on_calico(&lab);
        assert_eq!(lab.run("apply -y -o json").exits(0).json()["changed"], false, "{point}");
        let _undone = undone.run("resume --undo -y").exits(0);
        is_as(&undone, &before);
        assert_eq!(undone.read("C/k/kube-proxy.yaml"), KUBE_PROXY, "{point}");
    }
}

/// Without its services Calico has no network yet, and so no address for kube-proxy.
#[test]
fn a_source_vip_waits_for_services_that_are_not_started() {
    let lab = flannel_node();
    let before = lab.picture_without_state();
    let migrate = "migrate from flannel --set services.start=false";
    let plan = lab.run(&format!("{migrate} --dry-run -o json")).exits(0).json();
    let waits = "kube-proxy keeps its source VIP until Calico_ep exists";
    assert!(plan["warnings"].to_string().contains(waits), "{plan:#}");
    let done = lab.run(&format!("{migrate} -y -o json")).exits(0).json();
    assert!(done["warnings"].to_string().contains(waits), "{done:#}");
    let next: Vec<&str> = done["next"].as_array().unwrap().iter().map(|next| next.as_str().unwrap()).collect();
    assert_eq!(next[..2], ["calicoctl-win service start --sandbox node", "calicoctl-win apply --sandbox node"]);
    assert_eq!(source_vip(&lab), "10.244.3.2");

    let _started = lab.run("service start").exits(0);
    let applied = lab.run("apply -y -o json --set services.start=false").exits(0).json();
    assert!(applied["warnings"].is_null(), "{applied:#}");
    assert!(applied["msg"].as_str().unwrap().starts_with("win-a1 is reconfigured"), "{applied:#}");
    assert_eq!(applied["next"][0], "calicoctl-win status --sandbox node");
    is_on_calico(&lab);
    assert_eq!(lab.run("apply -y -o json --set services.start=false").exits(0).json()["changed"], false);
    let _gone = lab.run("uninstall -y").exits(0);
    is_as(&lab, &before);
}

/// As SIG Windows' and Rancher's scripts register it: NSSM has its flags in the registry.
#[test]
fn kube_proxy_under_nssm_gets_calicos_network_and_source_vip() {
    let lab = flannel_node();
    lab.write("node/C/k/nssm.exe", "nssm");
    lab.edit_yaml(|yaml| {
        let flags = "--network-name=vxlan0 --source-vip=10.244.3.2 --enable-dsr=true";
        let parameter = |name: &str, text: &str| format!("{name}: {{type: expand-string, data: '{text}'}}");
        let parameters =
            [parameter("Application", r"C:\k\kube-proxy.exe"), parameter("AppParameters", flags)].join(", ");
        let wrapped = format!(r"imagePath: 'C:\k\nssm.exe', parameters: {{{parameters}}}");
        yaml.replace(&format!(r"imagePath: 'C:\k\kube-proxy.exe {flags}'"), &wrapped)
    });
    let before = lab.picture_without_state();
    let _done = lab.run("migrate from flannel -y").exits(0);
    is_on_calico(&lab);
    let yaml: Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    let definition = &yaml["services"]["kube-proxy"]["definition"];
    assert_eq!(definition["imagePath"], r"C:\k\nssm.exe");
    let flags = definition["parameters"]["AppParameters"]["data"].as_str().unwrap();
    assert_eq!(flags, format!("--network-name=Calico --source-vip={} --enable-dsr=true", host_endpoint(&lab)));
    let _gone = lab.run("uninstall -y").exits(0);
    is_as(&lab, &before);
}

#[test]
fn a_kube_proxy_that_a_script_starts_is_named() {
    let lab = flannel_node();
    lab.edit_yaml(|yaml| {
        let command = r"C:\k\kube-proxy.exe --network-name=vxlan0 --source-vip=10.244.3.2 --enable-dsr=true";
        yaml.replace(command, r"C:\k\start-kube-proxy.exe")
    });
    lab.write("node/C/k/start-kube-proxy.exe", "starts kube-proxy");
    let done = lab.run("migrate from flannel -y -o json").exits(0).json();
    let named = format!("where kube-proxy has its --source-vip was not found: set {} there", host_endpoint(&lab));
    assert!(done["warnings"].to_string().contains(&named), "{done:#}");
}
