//! The README's commands, and that nothing of them is left.

use std::fs;

use crate::lab::Lab;

/// A machine with a past: another product's network, services, firewall rules and registry, with
/// its admin's own comments and layout.
const LIVED_IN: &str = r#"# The build farm's third machine. Ask Dana before touching it.
apiVersion: calicoctl-win/v1alpha1
kind: SandboxNode
hostName: win-a1
os: {build: 17763, ubr: 5206, product: server, installationType: Server Core, arch: amd64}
bootId: boot-77      # rebooted after the June updates
runtime: {kind: containerd, version: 1.7.27, cniBinDir: 'C:\Program Files\containerd\cni\bin', cniConfDir: 'C:\Program Files\containerd\cni\conf'}
hns: {major: 13, minor: 3}
adapters:
- {name: Ethernet, mac: 00-15-5D-14-00-15, addresses: [10.20.0.21/24], gateway: 10.20.0.1, dhcp: true}
- {name: Backup LAN, mac: 00-15-5D-14-01-15, addresses: [10.99.0.5/24], dhcp: false}

routes:
  10.50.0.0/16: {interface: Backup LAN, nextHop: 10.99.0.1, metric: 10}
networks:
  nat: {id: 7d0c1d2e-5c0b-4f7e-9d7e-3a1b2c3d4e5f, kind: NAT, subnet: 172.20.0.0/20, gateway: 172.20.0.1}
  vendor-overlay:
    id: 11111111-73a1-4d1e-a6a5-0c6e5f1a2b3c
    kind: Internal
    subnet: 10.1.0.0/16
    endpoints:
      web-1: {ip: 10.1.0.7, mac: 00-15-5D-00-00-07, container: 3f2c9d}
firewall:
  'kubectl exec 10250': {displayName: kubectl exec 10250, protocol: TCP, localPorts: '10250', enabled: false}
  OpenSSH-Server-In-TCP: {displayName: OpenSSH SSH Server (sshd), protocol: TCP, localPorts: '22', enabled: true}
services:
  containerd:
    definition: {displayName: containerd, description: Container runtime, imagePath: '"C:\Program Files\containerd\containerd.exe" --run-service', account: LocalSystem, start: auto}
    pid: 1484
  VendorAgent:
    definition: {displayName: Vendor Agent, description: 'Watches things.', imagePath: 'C:\Vendor\agent.exe', account: LocalSystem, start: auto, dependsOn: [containerd]}
    pid: 2204
    stopSeconds: 45
registry:
  SOFTWARE\Vendor\Agent:
    Home: {type: string, data: 'C:\Vendor'}
  SOFTWARE\Tigera\Calico:
    LastBootTime: {type: string, data: 6/1/2026 6:12:31 AM}
    BootId: {type: string, data: boot-77}
processes:
- {pid: 2100, image: 'C:\Vendor\agent.exe', service: VendorAgent}
"#;

#[test]
fn a_newcomer_installs_looks_and_takes_it_off_again() {
    let lab = Lab::new();
    insta::assert_snapshot!(lab.run("install --yes").exits(0).screen(), @"");
    let _seen = lab.run("service status").exits(0);
    insta::assert_snapshot!(lab.run("install --yes").exits(0).screen(), @"");
    insta::assert_snapshot!(lab.run("status").exits(0).screen(), @"");
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["overall"], "Healthy", "{status}");
    assert_eq!(status["generation"], 1);
    assert_eq!(status["drift"].as_array().unwrap().len(), 0);
    insta::assert_snapshot!(lab.run("uninstall --purge --yes").exits(0).screen(), @"");
    let status = lab.run("status -o json").exits(16).json();
    assert_eq!(status["overall"], "NotInstalled");

    let fresh = Lab::node();
    lab.picture().same_as(&fresh.picture());
}

#[test]
fn a_machine_with_a_past_gets_all_of_it_back() {
    let lab = Lab::node();
    fs::write(lab.on_node("node.yaml"), LIVED_IN).unwrap();
    for (path, text) in [
        ("C/CalicoWindows/config.ps1", "$env:VXLAN_VNI = 4097  # Dana's\r\n"),
        ("C/CalicoWindows/logs/calico-node.log", "an old line\n"),
        ("C/CalicoWindows/calico-node.exe", "an old program"),
        ("C/Program Files/containerd/cni/conf/10-calico.conf", "{\"name\": \"by hand\"}"),
        ("C/Program Files/containerd/cni/bin/calico.exe", "an old plugin"),
        ("C/Program Files/containerd/cni/bin/CALICO-IPAM.EXE", "an old plugin in capitals"),
        ("C/Program Files/containerd/cni/bin/win-overlay.exe", "somebody else's"),
        ("C/Vendor/agent.exe", "the vendor's"),
        ("C/ProgramData/Vendor/state.db", "the vendor's data"),
    ] {
        lab.write(&format!("node/{path}"), text);
    }
    fs::create_dir_all(lab.on_node("C/CalicoWindows/empty")).unwrap();
    restrict(&lab, "C/CalicoWindows/config.ps1");
    let before = lab.picture();

    let installed = lab.run("install -y -o json").exits(0).json();
    assert_eq!(installed["changed"], true);
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
    let yaml = lab.read("node.yaml");
    for theirs in ["vendor-overlay", "VendorAgent", "OpenSSH-Server-In-TCP", r"SOFTWARE\Vendor\Agent", "10.50.0.0/16"] {
        assert!(yaml.contains(theirs), "{theirs} in\n{yaml}");
    }
    assert!(!lab.on_node("C/CalicoWindows/empty").exists(), "the folder was not swapped whole");
    assert_eq!(lab.read("C/Vendor/agent.exe"), "the vendor's");

    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

#[cfg(unix)]
fn restrict(lab: &Lab, path: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(lab.on_node(path), fs::Permissions::from_mode(0o600)).unwrap();
}

#[cfg(not(unix))]
fn restrict(_lab: &Lab, _path: &str) {}

#[test]
fn without_purge_the_logs_stay_and_a_second_install_is_as_good_as_the_first() {
    let lab = Lab::node();
    let before = lab.picture();
    for _ in 0..2 {
        let _there = lab.run("install -y").exits(0);
        let gone = lab.run("uninstall -y -o json").exits(0).json();
        assert_eq!(gone["changed"], true);
        lab.picture_without_state().same_as(&before);
        assert!(lab.on_node("C/ProgramData/calicoctl-win/logs").is_dir());
    }
    let again = lab.run("uninstall -y -o json").exits(0).json();
    assert_eq!((&again["changed"], &again["status"]), (&false.into(), &"no_changes".into()), "{again}");
    let _purged = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

#[test]
fn no_secret_stands_in_a_log_a_receipt_or_on_the_screen() {
    let lab = Lab::node();
    let shown = lab.run("install -y -v -o ndjson").exits(0).stdout + &lab.run("status -o json").exits(0).stdout;
    let kubeconfig = lab.read("C/CalicoWindows/calico-kube-config");
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap().trim_matches('"');
    let signature = token.rsplit('.').next().unwrap();
    assert!(signature.len() > 40 && !shown.contains(signature));
    let picture = lab.picture();
    for folder in ["logs", "receipts", "state"] {
        let files = picture.names(&format!("C/ProgramData/calicoctl-win/{folder}/"));
        assert!(!files.is_empty(), "nothing in {folder}");
        for file in files.into_iter().filter(|file| lab.on_node(file).is_file()) {
            assert!(!lab.read(file).contains(signature), "{file}");
        }
    }
}
