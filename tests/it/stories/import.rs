//! A node that upstream's scripts installed, adopted.

use std::fs;

use crate::lab::Lab;

const SET_IF_ABSENT: &str = include_str!("../../fixtures/config-ps1/set-if-absent.ps1");
const CNI: &str = include_str!("../../fixtures/cni/scripts-v3.30-containerd.conf");

/// A service as upstream's scripts register it with NSSM.
fn service(name: &str, part: &str, pid: u32) -> String {
    format!(
        r"  {name}:
    definition:
      displayName: Calico Windows {part}
      description: Calico's {part}, by upstream's scripts.
      imagePath: C:\CalicoWindows\nssm\win64\nssm.exe
      account: LocalSystem
      start: auto
      parameters:
        AppDirectory: {{type: expand-string, data: 'C:\CalicoWindows'}}
        AppParameters: {{type: expand-string, data: 'C:\CalicoWindows\{part}\{part}-service.ps1'}}
        AppStdout: {{type: expand-string, data: 'C:\CalicoWindows\logs\calico-{part}.log'}}
        Application: {{type: expand-string, data: 'C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe'}}
    pid: {pid}
"
    )
}

/// A node that upstream's scripts installed with the VNI 4096, changed to 5000 in `config.ps1` later, and whose pods'
/// network has the given VSID.
pub fn upstreams(vsid: u32) -> Lab {
    let lab = Lab::node();
    let services = service("CalicoFelix", "felix", 3001) + &service("CalicoNode", "node", 3002);
    lab.edit_yaml(|yaml| {
        yaml.replace("  addresses: [10.20.0.21/24]\n  gateway: 10.20.0.1\n  dhcp: true\n", "  dhcp: true\n- {name: vEthernet (Ethernet), mac: 00-15-5D-14-00-15, addresses: [10.20.0.21/24], gateway: 10.20.0.1, dhcp: true}\n")
            .replace("networks:\n", &format!(
                "networks:\n  Calico: {{id: 0a, kind: Overlay, subnet: 192.168.0.0/26, gateway: 192.168.0.1, vsid: {vsid}, adapter: Ethernet, managementIp: 10.20.0.21}}\n  \
                 External: {{id: 0b, kind: Overlay, subnet: 192.168.255.0/30, gateway: 192.168.255.1, vsid: 9999, adapter: Ethernet, managementIp: 10.20.0.21}}\n"))
            .replace("services:\n", &format!("services:\n{services}"))
    });
    let root = lab.on_node("C/CalicoWindows");
    let conf = lab.on_node("C/Program Files/containerd/cni/conf");
    for folder in [&root.join("nssm/win64"), &conf] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(root.join("nssm/win64/nssm.exe"), "NSSM").unwrap();
    fs::write(root.join("config.ps1"), SET_IF_ABSENT.replace("Ethernet 2", "Ethernet")).unwrap();
    fs::write(conf.join("10-calico.conf"), CNI.replace("\"vxlan_vni\": 4096", "\"vxlan_vni\": 5000")).unwrap();
    lab
}

#[test]
fn a_node_of_upstreams_scripts_keeps_its_network_when_it_is_adopted() {
    let lab = upstreams(6000);
    let before = lab.picture();
    let imported = lab.run("config import --live --out node.yaml").exits(0);
    insta::assert_snapshot!(imported.screen(), @r"
    [WARN]  ImportDifference: DNS_NAME_SERVERS: config.ps1 (line 10) has `10.100.0.10`, 10-calico.conf has `10.96.0.10, 10.96.0.11`, which is taken
    [WARN]  ImportDifference: K8S_SERVICE_CIDR: config.ps1 (line 9) has `10.100.0.0/16`, 10-calico.conf has `10.96.0.0/12`, which is taken
    [WARN]  ImportDifference: VXLAN_VNI: config.ps1 (line 33) has `5000`, the HNS network Calico has `6000`, which is taken
    line 14: KUBECONFIG has no effect: the node gets its own kubeconfig in the same place
    line 35: VXLAN_MAC_PREFIX is set already, by line 34: this line has no effect
    line 43: CALICO_LOG_DIR is left out: from now on the logs are in C:\ProgramData\calicoctl-win\logs\calico, since a program that reads a log in C:\CalicoWindows blocks its replacement
    wrote node.yaml from this node
    result: OK (exit 0) changed=false reboot=false
    ");
    lab.picture().same_as(&before);
    let _valid = lab.bare("config validate node.yaml").exits(0);
    insta::assert_snapshot!(fs::read_to_string(lab.path("node.yaml")).unwrap(), @r#"
    # Read from this node by calicoctl-win. What is not set here is detected, or has its default.
    # The release is not in it: set spec.calico.version, or use --release.
    #
    # Differs on the node:
    # - DNS_NAME_SERVERS: config.ps1 (line 10) has `10.100.0.10`, 10-calico.conf has `10.96.0.10, 10.96.0.11`, which is taken
    # - K8S_SERVICE_CIDR: config.ps1 (line 9) has `10.100.0.0/16`, 10-calico.conf has `10.96.0.0/12`, which is taken
    # - VXLAN_VNI: config.ps1 (line 33) has `5000`, the HNS network Calico has `6000`, which is taken
    #
    # Notes:
    # - line 14: KUBECONFIG has no effect: the node gets its own kubeconfig in the same place
    # - line 35: VXLAN_MAC_PREFIX is set already, by line 34: this line has no effect
    # - line 43: CALICO_LOG_DIR is left out: from now on the logs are in C:\ProgramData\calicoctl-win\logs\calico, since a program that reads a log in C:\CalicoWindows blocks its replacement
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      kubernetes:
        nodeName: auto
        serviceCIDRs:
        - 10.96.0.0/12
        dns:
          servers:
          - "10.96.0.10"
          - "10.96.0.11"
          search:
          - svc.cluster.local
      calicoNetwork:
        backend: vxlan
        kubeNetwork: Calico.*
        nodeAddress: autodetect
        ipam:
          type: calico-ipam
        vxlan:
          vxlanVNI: 6000
          vxlanMACPrefix: 0E-2A
          vxlanAdapter: Ethernet
      datastore:
        type: kubernetes
      windowsNodes:
        cniBinDir: auto
        cniConfigDir: auto
        cniConfigFile: 10-calico.conf
      services:
        startupValidIPTimeout: 90s
    "#);

    let plan = lab.run("plan -c node.yaml -o json").exits(0).json();
    assert_eq!(plan["needs_drain"], false, "{plan}");
    let changes = plan["changes"].as_array().unwrap();
    assert!(changes.iter().all(|change| change["kind"] != "hns-network"), "{plan}");

    let _taken = lab.run("install -y -c node.yaml").exits(0);
    let status = lab.healthy();
    let networks = status["networks"].as_array().unwrap();
    assert!(networks.iter().any(|network| network["name"] == "Calico" && network["vsid"] == 6000), "{status}");
    assert_eq!(lab.run("install -y -c node.yaml -o json").exits(0).json()["changed"], false);
    let ours = lab.run("config import --live -o json").exits(24).json();
    assert_eq!(ours["error"]["id"], "AlreadyOurs");
}

#[test]
fn b4_a_node_whose_calico_had_the_admins_kubeconfig_gets_its_own() {
    let lab = upstreams(5000);
    let conf = lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text.replace(r"C:\\CalicoWindows\\calico-kube-config", r"c:\\k\\config")).unwrap();
    let document = lab.run("config import --live -o json").exits(0).json();
    assert!(document["differences"].to_string().contains("KUBECONFIG"), "{document}");
    assert!(document["notes"].to_string().contains("had that file's rights"), "{document}");
    assert_eq!(document["document"]["spec"]["kubernetes"]["kubeconfig"], serde_json::Value::Null);
}

#[test]
fn a_node_without_its_config_ps1_is_imported_from_its_running_state() {
    let lab = upstreams(6000);
    let conf = lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf");
    fs::remove_file(lab.on_node("C/CalicoWindows/config.ps1")).unwrap();
    let document = lab.run("config import --live -o json").exits(0).json();
    let network = &document["document"]["spec"]["calicoNetwork"];
    assert_eq!((&network["backend"], &network["vxlan"]["vxlanVNI"]), (&"vxlan".into(), &6000.into()), "{document}");
    assert_eq!(document["document"]["spec"]["kubernetes"]["serviceCIDRs"][0], "10.96.0.0/12");
    assert!(document["notes"].to_string().contains("there is no C:"), "{document}");

    fs::write(&conf, "{ not json").unwrap();
    let document = lab.run("config import --live -o json").exits(4).json();
    assert!(document["unread"][0]["text"].as_str().unwrap().contains("10-calico.conf"), "{document}");
    fs::remove_file(&conf).unwrap();
    let document = lab.run("config import --live -o json").exits(0).json();
    assert!(document["notes"].to_string().contains("no CNI configuration"), "{document}");
}

#[test]
fn only_the_static_rules_of_aks_are_imported_as_those_of_aks() {
    let lab = upstreams(5000);
    let file = lab.on_node("C/CalicoWindows/static-rules.json");
    // In another order and with other line ends than ours, as Calico's scripts write it.
    let aks = "{\r\n \"Provider\": \"AKS\",\r\n \"Rules\": [{\"Name\": \"EndpointPolicy\", \"Rule\": {\"Type\": \"ACL\", \"Id\": \"block-wireserver\", \
               \"Action\": \"Block\", \"Direction\": \"Out\", \"Priority\": 200, \"Protocol\": 6, \"RemoteAddresses\": \"168.63.129.16/32\", \
               \"RemotePorts\": \"80\", \"RuleType\": \"Switch\"}}],\r\n \"version\": \"0.1.0\"\r\n}\r\n";
    fs::write(&file, aks).unwrap();
    let document = lab.run("config import --live -o json").exits(0).json();
    assert_eq!(document["document"]["spec"]["platform"]["staticRules"], "aks", "{document}");

    for rules in [aks.replace("Block", "Allow"), aks.replace("\"80\"", "\"443\"")] {
        fs::write(&file, &rules).unwrap();
        let document = lab.run("config import --live -o json").exits(0).json();
        assert_eq!(document["document"]["spec"]["platform"]["staticRules"], "none", "{rules}: {document}");
        assert!(
            document["notes"].to_string().contains("these rules are not AKS's; install keeps the file"),
            "{document}"
        );
    }
    for (rules, why) in [
        (aks.replace("Switch\"}}", "Switch\"}}, {}"), "Rules[1] has no Rule"),
        (aks.replace("Block", "Deny"), "Rules[0].Rule.Action is \"Deny\": Felix accepts Allow or Block"),
        ("{ not json".into(), "key must be a string at line 1"),
    ] {
        fs::write(&file, &rules).unwrap();
        let document = lab.run("config import --live -o json").exits(4).json();
        assert!(document["document"]["spec"]["platform"].is_null(), "{rules}: {document}");
        let unread = document["unread"][0]["text"].as_str().unwrap_or_else(|| panic!("{rules}: {document}"));
        assert!(unread.contains("static-rules.json") && unread.contains(why), "{rules}: {unread}");
    }
    fs::remove_file(&file).unwrap();
    let document = lab.run("config import --live -o json").exits(0).json();
    assert!(document["document"]["spec"]["platform"].is_null(), "{document}");
}

#[test]
fn the_document_is_printed_or_written_to_a_new_file() {
    let lab = Lab::new();
    lab.write("config.ps1", SET_IF_ABSENT);
    let printed = lab.bare("config import config.ps1").exits(0);
    assert_eq!(printed.stderr, "");
    let _written = lab.bare("config import config.ps1 --out node.yaml").exits(0);
    assert_eq!(fs::read_to_string(lab.path("node.yaml")).unwrap(), printed.stdout);
    let there = lab.bare("config import config.ps1 --out node.yaml -o json").exits(25).json();
    assert_eq!(there["error"]["id"], "FileExists");
    let document = lab.bare("config import config.ps1 -o json").exits(0).json();
    assert_eq!(document["kind"], "ConfigImport");
    assert_eq!(document["document"]["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"], 5000);
    assert_eq!(document["unread"], serde_json::json!([]));
    let _dry = lab.bare("config import config.ps1 --out other.yaml -n").exits(0);
    assert!(!lab.path("other.yaml").exists());
}

#[test]
fn what_was_not_read_is_reported_and_no_partial_document_is_written() {
    let lab = Lab::new();
    lab.write("config.ps1", "$env:VXLAN_VNI = 5000\nif ($x) { $env:IP = 'none' }\n$env:NODENAME = \"a\n");
    let told = lab.bare("config import config.ps1 --out node.yaml").exits(4);
    insta::assert_snapshot!(told.screen(), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # The release is not in it: set spec.calico.version, or use --release.
    #
    # NOT READ:
    # - line 2: `if ($x) { $env:IP = 'none' }`: it depends on what happens when the script runs; it may set IP
    # - line 3: a string begins here and does not end; this line and all after it are not read
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      calicoNetwork:
        vxlan:
          vxlanVNI: 5000
    result: INVALID_CONFIG (exit 4) changed=false reboot=false
    --- stderr
    error: not all of config.ps1 could be read
      cause: line 2: `if ($x) { $env:IP = 'none' }`: it depends on what happens when the script runs; it may set IP
      cause: line 3: a string begins here and does not end; this line and all after it are not read
      state: nothing was changed
      fix: write these lines in plain words (`$env:NAME = "value"`) in a copy and read that, or complete what is printed by hand
      more: calicoctl-win explain ConfigPs1NotRead
    "#);
    assert!(!lab.path("node.yaml").exists());
    let document = lab.bare("config import config.ps1 -o json").exits(4).json();
    assert_eq!(document["unread"][0]["line"], 2, "{document}");
    let lines = lab.bare("config import config.ps1 -o ndjson").exits(4).ndjson();
    assert_eq!(lines.last().unwrap()["exit_name"], "INVALID_CONFIG");
}

#[test]
fn a_file_that_is_not_a_config_ps1_is_refused() {
    let lab = Lab::node();
    lab.write("large.ps1", vec![b'#'; 10_000_000]);
    lab.write("notes.txt", "Dear diary\n");
    lab.write("image.ps1", [0x89, 0x50, 0, 0]);
    for (words, code, id) in [
        ("config import large.ps1", 4, "ConfigPs1Unreadable"),
        ("config import notes.txt", 4, "ConfigPs1Unreadable"),
        ("config import image.ps1", 4, "ConfigPs1Unreadable"),
        ("config import nowhere.ps1", 4, "ConfigPs1Unreadable"),
        ("config import", 64, "Usage"),
        ("config import --live notes.txt", 64, "Usage"),
        ("config import --live", 16, "NoUpstreamInstall"),
    ] {
        let output = lab.run(words).exits(code);
        assert!(output.stderr.contains(id), "{words}: {output}");
    }
}
