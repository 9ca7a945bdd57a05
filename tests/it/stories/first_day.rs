//! The README's commands, and that they leave nothing behind.

use std::fs;

use crate::lab::Lab;

/// A machine in use: another product's network, services, firewall rules and registry, with the administrator's own
/// comments and layout.
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
fn the_first_steps_install_check_and_uninstall() {
    let lab = Lab::new();
    insta::assert_snapshot!(lab.run("install --yes").exits(0).screen(), @r"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    [ OK ]  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2, Calico v3.32.1  SECONDS
    [ OK ]  release         Calico v3.32.1, 27 files, 2.44 KiB, sha256 DIGEST ok  SECONDS
    Settings:
      calico.version                v3.32.1
      calicoNetwork.backend         vxlan
      calicoNetwork.vxlan.vxlanVNI  4096
      kubernetes.nodeName           win-a1

    Disruption: the host's network pauses, remote sessions may drop.
    Takes about 33 s.

    ! +   hns-network  Calico    Overlay, VSID 4096
    ! +   hns-network  External  Overlay, VSID 9999, 192.168.255.0/30
    20 more changes; -v lists all.
    Plan: 22 to create, 0 to update, 0 to delete.
    [ OK ]  credentials     token of service account calico-system/calico-node, valid until TIME  SECONDS
    [ 1/11] release         C:\Program Files\calicoctl-win, C:\CalicoWindows  SECONDS
    [ 2/11] files           calico-kube-config, config.ps1, nodename and 5 more  SECONDS
    [ 3/11] registry        Application\calicoctl-win, Tigera\Calico  SECONDS
    [ 4/11] firewall        Overlay Traffic 4789 UDP, kubectl exec 10250  SECONDS
    [ 5/11] services        CalicoFelix, CalicoNode  SECONDS
    [NOTE]  Windows is about to rebuild the virtual switch: this machine's network pauses and remote sessions may drop; the run continues without them. If this session drops: calicoctl-win status --wait --sandbox node
    [ 6/11] services-start  CalicoNode  SECONDS
    [ 7/11] wait-network    Calico, External  SECONDS
    [ 8/11] node-startup    CalicoNode  SECONDS
    [ 9/11] services-start  CalicoFelix  SECONDS
    [10/11] cni-conf        C:\Program Files\containerd\cni\conf\10-calico.conf  SECONDS
    [11/11] annotate        node win-a1 carries the digest of its settings  SECONDS
    [ OK ]  health-gate     the services work  SECONDS
    [ OK ]  node-ready      Node win-a1 is Ready  SECONDS
    Calico v3.32.1 is running on win-a1 (generation 1).
    Next: calicoctl-win status --sandbox node      Undo: calicoctl-win uninstall --sandbox node
    result: OK (exit 0) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ");
    insta::assert_snapshot!(lab.run("install --yes").exits(0).screen(), @r#"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    [ OK ]  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2, Calico v3.32.1  SECONDS
    [SKIP]  release         Calico v3.32.1 is in place
    nothing to do: Calico v3.32.1 on win-a1 is as the config says
    result: OK (exit 0) changed=false reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    "#);
    insta::assert_snapshot!(lab.run("status").exits(0).screen(), @r"
    OVERALL: HEALTHY   win-a1   Calico v3.32.1 (vxlan)   generation 1
     COMPONENT     STATE       DETAIL
     CalicoNode    Running     pid 4000, since TIME
     CalicoFelix   Running     pid 4004, since TIME
     HNS Calico    Overlay     VSID 4096, management IP 10.20.0.21
     HNS External  Overlay     VSID 9999, management IP 10.20.0.21
     HNS nat       NAT
     CNI conf      OK          C:\Program Files\containerd\cni\conf\10-calico.conf
     Credentials   kubeconfig  token valid until TIME
     K8s Node      Ready       schedulable
    result: OK (exit 0) changed=false reboot=false
    ");
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["overall"], "Healthy", "{status}");
    assert_eq!(status["generation"], 1);
    assert_eq!(status["drift"].as_array().unwrap().len(), 0);
    insta::assert_snapshot!(lab.run("uninstall --purge --yes").exits(0).screen(), @r"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    Disruption: pods on this node lose their network; the host's pauses, remote sessions may drop.
    On the HNS network Calico, which is deleted:
      SANDBOX_Calico (192.168.0.4) has no container any more, and is deleted
      demo/fluent-bit-7hb2k (192.168.0.3) is deleted; its DaemonSet re-creates it, and it starts when there is a network again
      demo/web-5d8f7c9b6d-4xkzq (192.168.0.5) is evicted by a drain, or loses its network
      demo/web-5d8f7c9b6d-9vlmt (192.168.0.6) is evicted by a drain, or loses its network
    Takes about 13 s.

    ! -   hns-network  External  Overlay, VSID 9999, 192.168.255.0/30, on Ethernet
    ! -   hns-network  Calico    Overlay, VSID 4096, 192.168.0.0/26, on Ethernet
    19 more changes; -v lists all.
    Plan: 0 to create, 0 to update, 21 to delete.
    --purge removes for good: C:\ProgramData\calicoctl-win with the records of 1 generation, the stored configs and the logs.
    [WARN]  NotDrained: the pods on this node lose their network: those with a controller are deleted, so that it re-creates them; the others must be deleted by hand
    [ 1/10] cni-conf        C:\Program Files\containerd\cni\conf\10-calico.conf  SECONDS
    [ 2/10] pods            Calico, External  SECONDS
    [ 3/10] services-stop   CalicoFelix, CalicoNode  SECONDS
    [ 4/10] services        CalicoNode, CalicoFelix  SECONDS
    [ 5/10] firewall        kubectl exec 10250, Overlay Traffic 4789 UDP  SECONDS
    [ 6/10] registry        Tigera\Calico, Application\calicoctl-win  SECONDS
    [ 7/10] files           services.json, felix.json, calico.exe and 2 more  SECONDS
    [ 8/10] release         C:\CalicoWindows, C:\Program Files\calicoctl-win  SECONDS
    [NOTE]  Windows is about to rebuild the virtual switch: this machine's network pauses and remote sessions may drop; the run continues without them. If this session drops: calicoctl-win status --wait --sandbox node
    [ 9/10] hns-network     External, Calico  SECONDS
    [10/10] annotate        node win-a1 says nothing of Calico any more  SECONDS
    Not removed: what Calico has in the cluster for Node win-a1, such as IPAM blocks.
    Calico is removed; this machine is as it was before.
    result: OK (exit 0) changed=true reboot=false log=TMP/RUN.log
    ");
    let status = lab.run("status -o json").exits(16).json();
    assert_eq!(status["overall"], "NotInstalled");

    let fresh = Lab::node();
    lab.picture().same_as(&fresh.picture());
}

#[test]
fn a_machine_with_other_products_is_restored_completely() {
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
fn without_purge_the_logs_remain_and_a_second_install_equals_the_first() {
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
fn no_secret_is_in_a_log_a_receipt_or_on_the_screen() {
    let lab = Lab::node();
    let shown = lab.run("install -y -v -o ndjson").exits(0).stdout + &lab.run("status -o json").exits(0).stdout;
    let token = super::credentials::token(&lab);
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
