//! Machines that cannot run Calico, and changes that fail in the middle.

use std::fs;

use super::{CONFIG, Case, FAILED, IN_USE, NOT_ELEVATED, PREFLIGHT, ROLLED_BACK, UNSUPPORTED, case, screens};
use crate::lab::Lab;

fn on(case: Case, from: &str, to: &str) -> String {
    screens(&[case], |lab| lab.edit_yaml(|text| text.replace(from, to)))
}

const RUNTIME: &str = r"runtime:
  kind: containerd
  version: 1.7.27
  cniBinDir: C:\Program Files\containerd\cni\bin
  cniConfDir: C:\Program Files\containerd\cni\conf
";

#[test]
fn a_machine_that_cannot_run_calico_is_refused_with_the_reason() {
    let install = |name, exit, id| case(name, "install -y", exit, id);
    let seen = [
        on(install("not elevated", NOT_ELEVATED, "NotElevated"), "elevated: true", "elevated: false"),
        on(install("client edition", UNSUPPORTED, "WindowsBuild"), "product: server", "product: client"),
        on(install("too old", UNSUPPORTED, "WindowsBuild"), "build: 20348", "build: 14393"),
        on(
            install("lacks updates", UNSUPPORTED, "WindowsBuild"),
            "build: 20348\n  ubr: 2700",
            "build: 17763\n  ubr: 5",
        ),
        on(install("arm64", UNSUPPORTED, "Is64Bit"), "arch: amd64", "arch: arm64"),
        on(install("no runtime", PREFLIGHT, "ContainerRuntime"), RUNTIME, ""),
        on(install("no HNS", PREFLIGHT, "HnsAvailable"), "hns:\n  major: 15\n  minor: 2\n", ""),
        on(install("no address", PREFLIGHT, "AdapterHasValidIP"), "10.20.0.21/24", "169.254.3.4/16"),
    ];
    insta::assert_snapshot!(seen.concat(), @r#"
    not elevated
      error: this session has no administrator rights
        state: nothing was changed
        fix: open PowerShell with Run as administrator and run the command again
    client edition
      error: this is a client edition of Windows (build 20348.2700)
        state: nothing was changed
        fix: install current updates, or use Windows Server 2022 or 2025
    too old
      error: build 14393.2700 is older than Windows Server 2019
        state: nothing was changed
        fix: install current updates, or use Windows Server 2022 or 2025
    lacks updates
      error: build 17763.5 lacks the update 17763.1432 of August 2020
        state: nothing was changed
        fix: install current updates, or use Windows Server 2022 or 2025
    arm64
      error: this machine is arm64
        state: nothing was changed
        fix: use a 64-bit x86 machine
    no runtime
      error: no service containerd or docker was found
        state: nothing was changed
        fix: install containerd and start its service, or let this program do it with spec.kubernetes.node.containerd.archive; or set spec.windowsNodes.cniBinDir and cniConfigDir and ignore this check
    no HNS
      error: there is no Host Networking Service: the Windows feature Containers is missing
        state: nothing was changed
        fix: Install-WindowsFeature -Name Containers
             then restart the machine, which this feature requires
    no address
      error: no adapter has a valid IPv4 address
        state: nothing was changed
        fix: give the adapter a static address or fix DHCP
    "#);
}

#[test]
fn an_invalid_node_yaml_is_refused_with_the_line() {
    let install = |name| case(name, "install -y", CONFIG, "SandboxNodeInvalid");
    let seen = [
        on(install("no YAML"), "elevated: true", "elevated: ["),
        on(install("misspelt field"), "elevated: true", "elevatd: true"),
        on(install("wrong type"), "elevated: true", "elevated: perhaps"),
    ];
    insta::assert_snapshot!(seen.concat(), @"
    no YAML
      error: node/node.yaml is not a sandbox node: while parsing a flow mapping, did not find expected ',' or '}' at line 14, column 8
        step: open the sandbox node
        state: nothing was changed
        fix: fix node.yaml (docs/sandbox.md explains its fields), or give --sandbox a new folder
    misspelt field
      error: node/node.yaml is not a sandbox node: unknown field `elevatd`, expected one of `apiVersion`, `kind`, `hostName`, `os`, `elevated`, `bootId`, `bootTime`, `runtime`, `hns`, `switchSeconds`, `hnsBusy`, `cloud`, `linuxCalico`, `pendingReboot`, `tls`, `unread`, `adapters`, `routes`, `persistentRoutes`, `networks`, `unseenNetworks`, `firewall`, `services`, `serviceGroups`, `registry`, `processes`, `openFiles`, `acls`, `silent`, `bgpSessions`, `events`, `kubeProxy`, `aclsIgnored`, `missingImages`, `faults` at line 11, column 1
        step: open the sandbox node
        state: nothing was changed
        fix: fix node.yaml (docs/sandbox.md explains its fields), or give --sandbox a new folder
    wrong type
      error: node/node.yaml is not a sandbox node: expected true or false, found text at line 11, column 11
        step: open the sandbox node
        state: nothing was changed
        fix: fix node.yaml (docs/sandbox.md explains its fields), or give --sandbox a new folder
    ");
}

#[test]
fn a_change_that_fails_is_reverted() {
    let install = |name, fault, id| case(name, "install -y", ROLLED_BACK, id).with(fault);
    let cases = [
        install("disk full, release", "put tree*=disk-full", "DiskFull"),
        install("disk full, file", "put file *config.ps1=disk-full", "DiskFull"),
        case("disk full, journal", "install -y", FAILED, "DiskFull").with("append *journal*#3=disk-full"),
        install("file in use", "put tree C:\\CalicoWindows=in-use", "FileInUse"),
        install("service cannot be made", "put service CalicoNode=fail", "RolledBack"),
        install("service dies at start", "put running CalicoFelix=dies", "ServiceDied"),
        install("HNS refuses", "put network External=fail", "ServiceDied"),
        install("registry refuses", "put registry*Tigera*=fail", "RolledBack"),
        install("firewall refuses", "put firewall*=fail", "RolledBack"),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @r#"
    disk full, release
      error: the change failed and was rolled back
        cause: write release C:\CalicoWindows (Windows error 112: there is not enough space on the disk)
        state: the node is as it was before; the change was rolled back
        fix: make room on the disk, then run again
    disk full, file
      error: the change failed and was rolled back
        cause: write file C:\CalicoWindows\config.ps1 (Windows error 112: there is not enough space on the disk)
        state: the node is as it was before; the change was rolled back
        fix: make room on the disk, then run again
    disk full, journal
      error: append file C:\ProgramData\calicoctl-win\journal.jsonl (Windows error 112: there is not enough space on the disk)
        step: journal the original of file C:\CalicoWindows\calico-kube-config
        state: nothing was changed
        fix: make room on the disk, then run again
    file in use
      error: the change failed and was rolled back
        cause: write release C:\CalicoWindows (Windows error 32: the process cannot access the file because it is being used by another process)
        state: the node is as it was before; the change was rolled back
        fix: stop what holds the file, then run again
    service cannot be made
      error: the change failed and was rolled back
        cause: create service CalicoNode: failed, as a sandbox fault asked
        state: the node is as it was before; the change was rolled back
        fix: fix the cause that is named here and run the command again
    service dies at start
      error: the change failed and was rolled back
        cause: start service CalicoFelix: it ended right away, as a sandbox fault asked (Windows error 1067: the process terminated unexpectedly)
        state: the node is as it was before; the change was rolled back
        fix: look at the service's log for the reason
    HNS refuses
      error: the change failed and was rolled back
        cause: start service CalicoNode: its program failed (Windows error 1067: the process terminated unexpectedly)
        cause: create the HNS network External: failed, as a sandbox fault asked
        state: the node is as it was before; the change was rolled back
        fix: look at the service's log for the reason
    registry refuses
      error: the change failed and was rolled back
        cause: write registry value HKLM\Software\Tigera\Calico\InstalledBy: failed, as a sandbox fault asked
        state: the node is as it was before; the change was rolled back
        fix: fix the cause that is named here and run the command again
    firewall refuses
      error: the change failed and was rolled back
        cause: set firewall rule Overlay Traffic 4789 UDP: failed, as a sandbox fault asked
        state: the node is as it was before; the change was rolled back
        fix: fix the cause that is named here and run the command again
    "#);
}

#[test]
fn a_failure_before_the_first_change_leaves_the_node_unchanged() {
    let cases = [
        case("disk full, store", "install -y", FAILED, "DiskFull").with("save *blobs*=disk-full"),
        case("facts fail", "install -y", FAILED, "Failed").with("facts *=fail"),
        case("HNS is silent", "install -y", FAILED, "Failed").with("get network*=fail"),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @r#"
    disk full, store
      error: save file C:\ProgramData\calicoctl-win\store\blobs\DIGEST (Windows error 112: there is not enough space on the disk)
        step: store DIGEST
        state: nothing was changed
        fix: make room on the disk, then run again
    facts fail
      error: measure the node
        cause: facts: failed, as a sandbox fault asked
        state: nothing was changed
        fix: fix the cause that is named here and run the command again; -v shows more
    HNS is silent
      error: look at hns-network Calico
        cause: get hns-network Calico: failed, as a sandbox fault asked
        state: nothing was changed
        fix: fix the cause that is named here and run the command again; -v shows more
    "#);
}

#[test]
fn files_that_other_programs_have_open_are_not_changed() {
    let open = "openFiles:\n- {path: 'C:\\Program Files\\containerd\\cni\\conf\\10-calico.conf', by: notepad.exe}\n";
    let other = "services:\n  Contoso:\n    definition:\n      displayName: Contoso\n      description: Another product\n      \
                 imagePath: C:\\CalicoWindows\\x.exe\n      account: LocalSystem\n      start: auto\n    pid: 4711\n";
    let seen = [
        screens(&[case("open in an editor", "install -y", ROLLED_BACK, "FileInUse")], |lab| {
            lab.edit_yaml(|text| format!("{text}{open}"));
        }),
        screens(&[case("a running program in our folder", "install -y", IN_USE, "FolderInUseByService")], |lab| {
            lab.edit_yaml(|text| text.replace("services:\n", other));
            fs::create_dir_all(lab.on_node("C/CalicoWindows")).unwrap();
            fs::write(lab.on_node("C/CalicoWindows/x.exe"), "another product").unwrap();
        }),
    ];
    insta::assert_snapshot!(seen.concat(), @r#"
    open in an editor
      error: the change failed and was rolled back
        cause: replace C:\Program Files\containerd\cni\conf\10-calico.conf, which is in use by notepad.exe (Windows error 32: the process cannot access the file because it is being used by another process)
        state: the node is as it was before; the change was rolled back
        fix: stop what holds the file, then run again
    a running program in our folder
      error: the service Contoso runs C:\CalicoWindows\x.exe, and C:\CalicoWindows is about to be replaced
        state: nothing was changed
        fix: the new release does not have that file: give Contoso one outside of C:\CalicoWindows first, then run this again
    "#);
}

#[test]
fn a_service_that_does_not_stop_leaves_calico_running() {
    let lab = Lab::installed();
    let slow = case("slow", "uninstall -y", ROLLED_BACK, "ServiceWillNotStop").with("put running CalicoNode=slow-stop");
    insta::assert_snapshot!(slow.meets(&lab), @r#"
    error: the change failed and was rolled back
      cause: stop service CalicoNode: still stopping after 60 s (Windows error 1053: the service did not respond to the start or control request in a timely fashion)
      state: the node is as it was before; the change was rolled back; Calico's services were down meanwhile
      fix: look at the service's log; end its process when it hangs, then run again
    "#);
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!(status["overall"], "Healthy");
}
