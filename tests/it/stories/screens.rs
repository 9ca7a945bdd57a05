//! The main screens in terminals of 80 and 120 columns, coloured and plain.

use std::sync::LazyLock;

use regex::Regex;

use super::output::with_several_failures;
use crate::lab::{Lab, Output};

pub static COLOUR: LazyLock<Regex> = LazyLock::new(|| Regex::new("\u{1b}\\[[0-9;]*m").unwrap());
static GAP: LazyLock<Regex> = LazyLock::new(|| Regex::new(" {2,}").unwrap());
/// What people copy, which is never wrapped, and the last line, which scripts read.
static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^result: |^ *(# |- \{|\w+: [\[{])|^ *\S+$|(^|: |^ +)(calicoctl-win|kubectl|Get-HnsNetwork) |^[^`]*`[^`]+`\W*$")
        .unwrap()
});

/// Runs a command with a screen of this many columns.
pub fn seen(lab: &Lab, fault: &str, words: &str, columns: usize, color: &str) -> Output {
    let mut command = lab.command(words);
    command.args(["--sandbox", "node", "--color", color]).env("COLUMNS", columns.to_string());
    command.env("CALICO_WIN_SANDBOX_FAULT", fault);
    Output::of(words, command)
}

/// The words of a screen, without the times at the end of rows and what differs from run to run.
fn words(screen: &str) -> Vec<String> {
    let time = Regex::new(r"(?m) +(SECONDS|\d+\.\ds)$").unwrap();
    let digest = Regex::new(r"^([0-9a-f]{12}|DIGEST),?$").unwrap();
    let words = time.replace_all(screen, "").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    words.into_iter().map(|word| if digest.is_match(&word) { "DIGEST".into() } else { word }).collect()
}

/// A screen at 80 columns, plain, after checking the other three: each command gets a node from `lab`.
#[track_caller]
fn screen(lab: impl Fn() -> Lab, command: &str, code: i32) -> String {
    screen_at("", lab, command, code)
}

/// The same with a fault.
#[track_caller]
fn screen_at(fault: &str, lab: impl Fn() -> Lab, command: &str, code: i32) -> String {
    let at = |columns, color| seen(&lab(), fault, command, columns, color).exits(code);
    let plain = at(80, "never").screen();
    for columns in [80, 120] {
        let other = at(columns, "never");
        for row in format!("{}\n{}", other.stdout, other.stderr).lines().filter(|row| !WHOLE.is_match(row)) {
            assert!(row.chars().count() <= columns, "more than {columns} columns: {row}");
        }
        let other = other.screen();
        assert!(!other.contains('\u{1b}'), "{other}");
        assert_eq!(words(&other), words(&plain), "{columns} columns");
        let coloured = at(columns, "always").screen();
        // A column is wider when an age in it has grown to two digits.
        let bare = COLOUR.replace_all(&coloured, "");
        assert_eq!(GAP.replace_all(&bare, "  "), GAP.replace_all(&other, "  "), "{columns} columns in colour");
        assert!(command.starts_with("explain") || coloured.contains('\u{1b}'), "{coloured}");
        let missing = coloured.lines().find(|line| line.contains('\u{1b}') && !line.contains("\u{1b}[0m"));
        assert_eq!(missing, None, "a colour that does not end");
    }
    plain
}

/// The coloured rows of a screen of 80 columns, with `^[` for the character that begins a colour.
fn coloured(lab: &Lab, words: &str, code: i32) -> String {
    let shown = seen(lab, "", words, 80, "always").exits(code).screen();
    let rows = shown.lines().filter(|row| row.contains('\u{1b}')).map(|row| row.replace('\u{1b}', "^["));
    rows.collect::<Vec<_>>().join("\n")
}

/// Returns the rows from the one with this prefix.
fn from<'a>(screen: &'a str, beginning: &str) -> &'a str {
    screen.find(&format!("\n{beginning}")).map(|at| &screen[at + 1..]).unwrap_or_else(|| panic!("{screen}"))
}

#[test]
fn a_plan_with_a_changed_vni() {
    let lab = Lab::installed();
    let plan = screen(|| lab.copy(), "plan --set calicoNetwork.vxlan.vxlanVNI=5000", 0);
    insta::assert_snapshot!(plan, @r"
    [ OK ]  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2,  SECONDS
                            Calico v3.32.1
    [WARN]  VniMatchesFelix: the VNI 5000 differs from the cluster's 4096
            (FelixConfiguration `default`): pods on nodes with different VNIs cannot
            reach each other
    [SKIP]  release         Calico v3.32.1 is in place
    Settings:
      calicoNetwork.vxlan.vxlanVNI  4096 -> 5000

    Disruption: pods on this node lose their network.  Drain: needed.
    On the HNS network Calico, which is deleted:
      SANDBOX_Calico
          (192.168.0.4) has no container any more, and is deleted
      demo/fluent-bit-7hb2k (192.168.0.3) is deleted; its DaemonSet re-creates it,
          and it starts when there is a network again
      demo/web-5d8f7c9b6d-4xkzq (192.168.0.5) is evicted by a drain, or loses its
          network
      demo/web-5d8f7c9b6d-9vlmt (192.168.0.6) is evicted by a drain, or loses its
          network
    Takes about 18 s, plus the time in which pods terminate; Calico's services are
    down for about 18 s of it.

    ! -/+ hns-network  Calico  Overlay, VSID 4096, 192.168.0.0/26, on Ethernet ->
                               Overlay, VSID 5000
    6 more changes; -v lists all.
    Plan: 0 to create, 3 to update, 0 to delete, 4 to replace.
    result: OK (exit 0) changed=false reboot=false
    ");
    let _detail = screen(|| lab.copy(), "plan -v --set calicoNetwork.vxlan.vxlanVNI=5000", 0);
}

#[test]
fn the_status_of_an_installed_node() {
    let lab = Lab::installed();
    insta::assert_snapshot!(screen(|| lab.copy(), "status", 0), @r"
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
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
        felix["spec"]["vxlanVNI"] = 5000.into();
    });
    insta::assert_snapshot!(screen(|| lab.copy(), "status", 12).lines().take(3).collect::<Vec<_>>().join("\n"), @r"
    OVERALL: DEGRADED   win-a1   Calico v3.32.1 (vxlan)   generation 1
    ! VNI 4096 here, 5000 in FelixConfiguration: pods here reach no pod on nodes
      with VNI 5000
    ");
}

#[test]
fn the_status_of_nodes_with_a_problem() {
    let lab = Lab::installed();
    let rows = |shown: &str, part: &str| {
        shown.lines().filter(|row| row.starts_with(part)).map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let without = Lab::node();
    insta::assert_snapshot!(rows(&screen(|| without.copy(), "status", 16), "OVERALL"), @"OVERALL: NOT INSTALLED");
    let away = screen_at("api down", || lab.copy(), "status", 12);
    insta::assert_snapshot!(&away[..away.find(" COMPONENT").unwrap()], @r"
    OVERALL: DEGRADED   win-a1   Calico v3.32.1 (vxlan)   generation 1
    ! the cluster could not be asked: the API server at https://10.20.0.10:6443
      refuses the connection: Connection refused (os error 111)
        calicoctl-win preflight --sandbox node
    ! Calico's datastore cannot be used, for the same reason
        calicoctl-win explain ClusterRefused
    ");
    lab.edit_yaml(|text| text.replace("vsid: 4096", "vsid: 4200"));
    insta::assert_snapshot!(rows(&screen(|| lab.copy(), "status", 12), " HNS Calico"), @" HNS Calico    Overlay     VSID 4200, want 4096, management IP 10.20.0.21");
}

#[test]
fn an_interrupted_run_and_its_end() {
    let lab = Lab::installed();
    let change = "apply -y --set services.felixLogSeverity=debug";
    let _killed = lab.fails_at("put running CalicoFelix#2=exit-before", change).exits(137);
    insta::assert_snapshot!(screen(|| lab.copy(), "status", 12), @r"
    OVERALL: FAILED   win-a1   Calico v3.32.1 (vxlan)   generation 1
    ! service CalicoFelix is stopped
    ! not as generation 1 has it: file C:\CalicoWindows\config.ps1, file
      C:\ProgramData\calicoctl-win\felix.json, running CalicoFelix
    ! interrupted: apply (run RUN, since TIME),
      at step 5 of 6: running CalicoFelix
        calicoctl-win resume --sandbox node
     COMPONENT     STATE       DETAIL
     CalicoNode    Running     pid 4000, since TIME
     CalicoFelix   Stopped
     HNS Calico    Overlay     VSID 4096, management IP 10.20.0.21
     HNS External  Overlay     VSID 9999, management IP 10.20.0.21
     HNS nat       NAT
     CNI conf      OK          C:\Program Files\containerd\cni\conf\10-calico.conf
     Credentials   kubeconfig  token valid until TIME
     K8s Node      Ready       schedulable
    Undo it instead: calicoctl-win resume --undo --sandbox node
    result: UNHEALTHY (exit 12) changed=false reboot=false
    ");
    insta::assert_snapshot!(screen(|| lab.copy(), "resume -n", 0), @r"
    Interrupted: apply (run RUN, since TIME), at
    step 5 of 6: running CalicoFelix.
    dry run: would finish apply (run RUN, since
    TIME), at step 5 of 6: running CalicoFelix
    result: OK (exit 0) changed=false reboot=false
    ");
    insta::assert_snapshot!(screen(|| lab.copy(), "resume -y", 0), @r"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd
    1.7.27
    Interrupted: apply (run RUN, since TIME), at
    step 5 of 6: running CalicoFelix.
    [ 1/3]  node-startup    CalicoNode  SECONDS
    [ 2/3]  services-start  CalicoFelix  SECONDS
    [ OK ]  health-gate     the services work  SECONDS
    [ 3/3]  annotate        node win-a1 carries the digest of its settings  SECONDS
    [ OK ]  node-ready      Node win-a1 is Ready  SECONDS
    apply is finished; generation 2 is current.
    result: OK (exit 0) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ");
}

#[test]
fn a_change_that_is_rolled_back() {
    let lab = Lab::installed();
    let change = "apply -y --set services.felixLogSeverity=debug";
    let shown = screen_at("put running CalicoFelix#2=fail", || lab.copy(), change, 9);
    insta::assert_snapshot!(from(&shown, "[FAIL]"), @r"
    [FAIL]  services-start  start service CalicoFelix: failed, as a sandbox fault
                            asked
    [NOTE]  the change failed and is being rolled back
    [ 1/3]  files           C:\CalicoWindows\config.ps1,  SECONDS
                            C:\ProgramData\calicoctl-win\felix.json
    [ 2/3]  node-startup    CalicoNode  SECONDS
    [ 3/3]  services-start  CalicoFelix  SECONDS
    result: FAILED_ROLLED_BACK (exit 9) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    --- stderr
    error: the change failed and was rolled back
      cause: start service CalicoFelix: failed, as a sandbox fault asked
      state: the node is as it was before; the change was rolled back; Calico's
             services were down meanwhile
      fix: fix the cause that is named here and run the command again
      more: calicoctl-win explain RolledBack
    ");
}

#[test]
fn a_removal() {
    let lab = Lab::installed();
    insta::assert_snapshot!(screen(|| lab.copy(), "uninstall -n --drain", 0), @r"
    Disruption: pods on this node lose their network; the host's pauses, remote
    sessions may drop.
    On the HNS network Calico, which is deleted:
      SANDBOX_Calico
          (192.168.0.4) has no container any more, and is deleted
      demo/fluent-bit-7hb2k (192.168.0.3) is deleted; its DaemonSet re-creates it,
          and it starts when there is a network again
      demo/web-5d8f7c9b6d-4xkzq (192.168.0.5) is evicted by a drain, or loses its
          network
      demo/web-5d8f7c9b6d-9vlmt (192.168.0.6) is evicted by a drain, or loses its
          network
    Takes about 13 s.

    ! -   hns-network  External  Overlay, VSID 9999, 192.168.255.0/30, on Ethernet
    ! -   hns-network  Calico    Overlay, VSID 4096, 192.168.0.0/26, on Ethernet
    19 more changes; -v lists all.
    Plan: 0 to create, 0 to update, 21 to delete.
    Drain of win-a1: 2 pods to evict.
      - demo/web-5d8f7c9b6d-4xkzq
      - demo/web-5d8f7c9b6d-9vlmt
        demo/fluent-bit-7hb2k belongs to a DaemonSet, which would re-create it
    result: OK (exit 0) changed=false reboot=false
    ");
    let _detail = screen(|| lab.copy(), "uninstall -n -v", 0);
    let _done = screen(|| lab.copy(), "uninstall -y", 0);
}

#[test]
fn a_drain() {
    let lab = Lab::installed();
    insta::assert_snapshot!(screen(|| lab.copy(), "node drain -n", 0), @r"
    Drain of win-a1: 2 pods to evict.
      - demo/web-5d8f7c9b6d-4xkzq
      - demo/web-5d8f7c9b6d-9vlmt
        demo/fluent-bit-7hb2k belongs to a DaemonSet, which would re-create it
    dry run: node win-a1 would be cordoned and drained
    result: OK (exit 0) changed=false reboot=false
    ");
}

#[test]
fn an_upgrade_and_what_is_remembered_of_it() {
    let lab = Lab::installed();
    lab.linux_runs("v3.33.0");
    let plan = screen(|| lab.copy(), "upgrade -n --release v3.33.0", 0);
    insta::assert_snapshot!(from(&plan, "Settings:"), @r"
    Settings:
      calico.version  v3.32.1 -> v3.33.0

    Disruption: Calico's services restart.
    TCP connections of pods may be reset, because Felix restarts.
    Takes about 8 s; Calico's services are down for about 8 s of it.

    10 changes; -v lists all.
    Plan: 3 to create, 5 to update, 0 to delete, 2 to replace.
    result: OK (exit 0) changed=false reboot=false
    ");
    let _done = lab.run("upgrade -y --release v3.33.0").exits(0);
    // The columns are as wide as the ages.
    let squeezed = |shown: String| Regex::new(" +").unwrap().replace_all(&shown, " ").into_owned();
    insta::assert_snapshot!(squeezed(screen(|| lab.copy(), "history", 0)), @r"
    STARTED AGE COMMAND RESULT GEN
    TIME install OK 1
    TIME upgrade OK 2
    result: OK (exit 0) changed=false reboot=false
    ");
    insta::assert_snapshot!(squeezed(screen(|| lab.copy(), "receipt list", 0)), @r"
     GEN FINISHED AGE COMMAND CALICO BACKEND VNI STATE
     1 TIME install v3.32.1 vxlan 4096 kept
     2 TIME upgrade v3.33.0 vxlan 4096 current
    result: OK (exit 0) changed=false reboot=false
    ");
    let _detail = screen(|| lab.copy(), "receipt show 1", 0);
    let run = lab.run("history -v").exits(0).stdout;
    assert!(run.contains(" BY ") && run.contains(" RUN"), "{run}");
}

#[test]
fn failed_checks_as_blocks() {
    let lab = with_several_failures();
    let refused = screen(|| lab.copy(), "install -y", 3);
    insta::assert_snapshot!(from(&refused, "error:"), @r"
    error: 3 checks failed: RuntimeRunning, CniConfig, NoFlannel
      RuntimeRunning: the service containerd is stopped
        why: kubelet and the pods' network require a running container runtime
        fix:
          Start-Service containerd
          calicoctl-win preflight --fix --sandbox node  # does the same, and asks first
      CniConfig: other configurations in the CNI folder: 05-flannel.conflist
          (flannel)
        why: the container runtime uses the first file in its CNI folder, so with
             two plugins the file names decide which one is used
        fix: move what is named here out of the CNI folder, or set
             spec.calicoNetwork.backend: none to keep another plugin
      NoFlannel: Flannel was found: network vxlan0
        why: Flannel's HNS network occupies the adapter that Calico needs, and
             flanneld re-creates it
        fix:
          calicoctl-win migrate from flannel --dry-run --sandbox node  # shows what it removes
          calicoctl-win migrate from flannel --sandbox node  # drains the node, removes Flannel and installs Calico
      state: nothing was changed
      fix: fix what each check names, then run the command again
      more: calicoctl-win explain RuntimeRunning
    ");
    let _every = screen(|| lab.copy(), "preflight --all", 3);
}

/// What the checks of a node on which several fail print about those.
const FAILED: &str = r"[FAIL] RuntimeRunning           the service containerd is stopped
         why: kubelet and the pods' network require a running container runtime
         fix:
           Start-Service containerd
           calicoctl-win preflight --fix --sandbox node  # does the same, and asks first
[FAIL] CniConfig                other configurations in the CNI folder:
                                05-flannel.conflist (flannel)
         why: the container runtime uses the first file in its CNI folder, so
              with two plugins the file names decide which one is used
         fix: move what is named here out of the CNI folder, or set
              spec.calicoNetwork.backend: none to keep another plugin
[FAIL] NoFlannel                Flannel was found: network vxlan0
         why: Flannel's HNS network occupies the adapter that Calico needs, and
              flanneld re-creates it
         fix:
           calicoctl-win migrate from flannel --dry-run --sandbox node  # shows what it removes
           calicoctl-win migrate from flannel --sandbox node  # drains the node, removes Flannel and installs Calico
";

#[test]
fn checks_are_counted_by_group_and_those_that_failed_are_last() {
    let fresh = Lab::node();
    insta::assert_snapshot!(screen(|| fresh.copy(), "preflight", 0), @r"
    node         19 ok, 1 skipped
    machine      9 ok, 4 skipped, 2 without an answer
    cluster      13 ok, 3 skipped
    network      23 ok, 1 skipped
    calico       6 ok, 4 skipped
    platform     1 ok, 7 skipped

    [ ?? ] UdpPort4789              the port was not tested
    [ ?? ] DiskSpace                the free space was not measured

    93 checks: 71 ok, 20 skipped, 2 without an answer  (--all shows each)
    result: OK (exit 0) changed=false reboot=false
    ");
    let lab = with_several_failures();
    let report = screen(|| lab.copy(), "preflight", 3);
    insta::assert_snapshot!(report.replace(FAILED, "FAILED\n"), @r"
    node         19 ok, 1 skipped
    machine      6 ok, 3 failed, 4 skipped, 2 without an answer
    cluster      14 ok, 2 skipped
    network      23 ok, 1 skipped
    calico       6 ok, 4 skipped
    platform     1 ok, 7 skipped

    [ ?? ] UdpPort4789              the port was not tested
    [ ?? ] DiskSpace                the free space was not measured
    FAILED

    93 checks: 69 ok, 3 failed, 19 skipped, 2 without an answer  (--all shows each)
    result: PREFLIGHT_FAILED (exit 3) changed=false reboot=false
    ");
}

#[test]
fn quiet_checks_are_only_those_that_failed() {
    let fresh = Lab::node();
    insta::assert_snapshot!(screen(|| fresh.copy(), "preflight -q", 0), @r"
    93 checks: 71 ok, 20 skipped, 2 without an answer
    result: OK (exit 0) changed=false reboot=false
    ");
    let lab = with_several_failures();
    let report = screen(|| lab.copy(), "preflight -q", 3);
    insta::assert_snapshot!(report.replace(FAILED, "FAILED\n"), @r"
    FAILED

    93 checks: 69 ok, 3 failed, 19 skipped, 2 without an answer
    result: PREFLIGHT_FAILED (exit 3) changed=false reboot=false
    ");
}

#[test]
fn an_error_with_a_hint() {
    let lab = Lab::node();
    lab.write("node/bad.yaml", "spec:\n  calicoNetwork:\n    backend: vxlam\n");
    insta::assert_snapshot!(from(&screen(|| lab.copy(), "install -y -c node/bad.yaml", 4), "error:"), @r"
    error: the config is not valid
      cause: node/bad.yaml:3:14: spec.calicoNetwork.backend: `vxlam` is not allowed;
             did you mean `vxlan`? allowed: auto, vxlan, windows-bgp, none
      state: nothing was changed
      fix: `calicoctl-win explain FIELD` describes a field,
           `calicoctl-win config schema` all of them
      more: calicoctl-win explain ConfigInvalid
    ");
    insta::assert_snapshot!(screen(|| lab.copy(), "install --colour", 64), @r"
    result: USAGE (exit 64) changed=false reboot=false
    --- stderr
    error: unexpected argument '--colour' found
      state: nothing was changed
      fix: a similar argument exists: '--color'
           usage: calicoctl-win install [OPTIONS]
           see: calicoctl-win install --help
      more: calicoctl-win explain Usage
    ");
}

#[test]
fn the_result_of_an_install() {
    let lab = Lab::node();
    insta::assert_snapshot!(from(&screen(|| lab.copy(), "install -y", 0), "Plan:"), @r"
    Plan: 22 to create, 0 to update, 0 to delete.
    [ OK ]  credentials     token of service account  SECONDS
                            calico-system/calico-node, valid until
                            TIME
    [ 1/11] release         C:\Program Files\calicoctl-win, C:\CalicoWindows  SECONDS
    [ 2/11] files           calico-kube-config, config.ps1, nodename and 5  SECONDS
                            more
    [ 3/11] registry        Application\calicoctl-win, Tigera\Calico  SECONDS
    [ 4/11] firewall        Overlay Traffic 4789 UDP, kubectl exec 10250  SECONDS
    [ 5/11] services        CalicoFelix, CalicoNode  SECONDS
    [NOTE]  Windows is about to rebuild the virtual switch: this machine's network
            pauses and remote sessions may drop; the run continues without them. If
            this session drops: calicoctl-win status --wait --sandbox node
    [ 6/11] services-start  CalicoNode  SECONDS
    [ 7/11] wait-network    Calico, External  SECONDS
    [ 8/11] node-startup    CalicoNode  SECONDS
    [ 9/11] services-start  CalicoFelix  SECONDS
    [10/11] cni-conf        C:\Program Files\containerd\cni\conf\10-calico.conf  SECONDS
    [11/11] annotate        node win-a1 carries the digest of its settings  SECONDS
    [ OK ]  health-gate     the services work  SECONDS
    [ OK ]  node-ready      Node win-a1 is Ready  SECONDS
    Calico v3.32.1 is running on win-a1 (generation 1).
    Next: calicoctl-win status --sandbox node
    Undo: calicoctl-win uninstall --sandbox node
    result: OK (exit 0) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ");
}

#[test]
fn a_page_about_a_check() {
    insta::assert_snapshot!(screen(Lab::new, "explain CniConfig", 0), @r"
    A check, group machine (error). The container runtime uses the first file in its
    CNI folder, so with two plugins the file names decide which one is used.

    What to do: move what is named here out of the CNI folder, or set
    spec.calicoNetwork.backend: none to keep another plugin
    ");
    for id in ["ClusterRights", "TokenRenewalForbidden", "StrictAffinity"] {
        let _rules = screen(Lab::new, &format!("explain {id}"), 0);
    }
}

#[test]
fn help() {
    insta::assert_snapshot!(screen(Lab::new, "--help", 0).lines().take(15).collect::<Vec<_>>().join("\n"), @r"
    Installs, changes and removes Calico on a Windows node of a Kubernetes cluster

    Usage: calicoctl-win [OPTIONS] <COMMAND>

    Set up:
      preflight    Check this machine, the cluster and the release; changes nothing
      plan         Show what install or uninstall would change
      apply        Install, reconfigure or upgrade as needed, for scripts; does
                   nothing if the node is as the config says
      install      Install Calico, or bring this node in line with the config
      render       Print user data, or a document for DSC, made from the config

    Change:
      reconfigure  Change a running node; drains it first if the change interrupts
                   pods
    ");
    for verb in ["install", "reconfigure", "preflight", "node drain", "config import"] {
        let _rules = screen(Lab::new, &format!("{verb} --help"), 0);
    }
    let _rules = screen(Lab::new, "options", 0);
}

#[test]
fn the_colours_of_a_plan() {
    let lab = Lab::installed();
    insta::assert_snapshot!(coloured(&lab, "plan -v --set calicoNetwork.vxlan.vxlanVNI=5000", 0), @r"
    ^[[32m[ OK ]^[[0m  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2,  SECONDS
    ^[[33m[WARN]^[[0m  VniMatchesFelix: the VNI 5000 differs from the cluster's 4096
    ^[[33m  ~ ^[[0m  file         C:\CalicoWindows\config.ps1                          sha256
    ^[[33m  -/+ ^[[0mfile         C:\Program Files\containerd\cni\conf\10-calico.conf  sha256
    ^[[33m  -/+ ^[[0mrestart      CalicoFelix
    ^[[33m  -/+ ^[[0mrestart      CalicoNode
    ^[[33m! ^[[0m-/+ hns-network  Calico                                               Overlay,
    ^[[33m  ~ ^[[0m  file         C:\ProgramData\calicoctl-win\felix.json              sha256
    ^[[33m  ~ ^[[0m  file         C:\ProgramData\calicoctl-win\services.json           sha256
    ^[[32mresult: OK^[[0m (exit 0) changed=false reboot=false
    ");
}

#[test]
fn the_colours_of_checks_and_of_an_error() {
    let lab = with_several_failures();
    let report = coloured(&lab, "preflight --set calicoNetwork.vxlan.vxlanVNI=5000", 3);
    insta::assert_snapshot!(report, @r"
    ^[[33m[ ?? ]^[[0m UdpPort4789              the port was not tested
    ^[[33m[ ?? ]^[[0m DiskSpace                the free space was not measured
    ^[[33m[WARN]^[[0m VniMatchesFelix          the VNI 5000 differs from the cluster's 4096
    ^[[31m[FAIL]^[[0m RuntimeRunning           the service containerd is stopped
    ^[[31m[FAIL]^[[0m CniConfig                other configurations in the CNI folder:
    ^[[31m[FAIL]^[[0m NoFlannel                Flannel was found: network vxlan0
    ^[[33mresult:^[[0m PREFLIGHT_FAILED (exit 3) changed=false reboot=false
    ");
    let every = coloured(&lab, "preflight --all", 3);
    let row = |id: &str| every.lines().find(|row| row.contains(id)).unwrap_or_else(|| panic!("{every}")).to_owned();
    insta::assert_snapshot!(row(" WindowsBuild"), @"^[[32m[ OK ]^[[0m WindowsBuild             build 20348.2700");
    assert!(!every.contains("[SKIP]"), "{every}");
    insta::assert_snapshot!(coloured(&lab, "install -y", 3), @r"
    ^[[32m[ OK ]^[[0m  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2,  SECONDS
    ^[[33mresult:^[[0m PREFLIGHT_FAILED (exit 3) changed=false reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ^[[31merror:^[[0m 3 checks failed: RuntimeRunning, CniConfig, NoFlannel
    ");
}

#[test]
fn only_text_for_a_terminal_or_with_color_always_is_coloured_or_fitted() {
    let lab = Lab::installed();
    let run = |words: &str, variables: &[(&str, &str)]| {
        let mut command = lab.command(words);
        command.args(["--sandbox", "node"]).envs(variables.iter().copied());
        let output = Output::of(words, command);
        output.stdout + &output.stderr
    };
    let plan = "plan --set calicoNetwork.vxlan.vxlanVNI=5000";
    for words in ["status", plan, "install --bogus", "--help", "node drain --help", "options"] {
        for variables in [&[][..], &[("CLICOLOR_FORCE", "1")], &[("TERM", "xterm")]] {
            assert!(!run(words, variables).contains('\u{1b}'), "{words} {variables:?}");
        }
        for never in [format!("{words} --color never"), words.to_owned()] {
            let variables = [("CALICO_WIN_COLOR", "never"), ("CLICOLOR_FORCE", "1")];
            assert!(!run(&never, &variables).contains('\u{1b}'), "{never}");
        }
        let always = format!("{words} --color always");
        assert!(run(&always, &[("NO_COLOR", "1")]).contains('\u{1b}'), "{words}");
    }
    for words in ["status", plan, "install --bogus", "version", "config show"] {
        for format in ["json", "yaml", "ndjson"] {
            let shown = run(&format!("{words} -o {format} --color always"), &[("COLUMNS", "60")]);
            assert!(!shown.contains('\u{1b}'), "{shown}");
        }
    }
    // Without a terminal, lines are not wrapped, and an invalid width is ignored.
    let long = run(plan, &[]);
    assert!(long.lines().any(|line| line.len() > 120), "{long}");
    for columns in ["", "0", "wide", "-80"] {
        let lines = |text: &str| COLOUR.replace_all(text, "").lines().count();
        assert_eq!(lines(&run(plan, &[("COLUMNS", columns)])), lines(&long), "{columns}");
    }
    // Logs are copied and searched.
    let log = run("logs --component tool", &[("COLUMNS", "60")]);
    assert!(log.lines().any(|line| line.len() > 80), "{log}");
}

#[test]
fn checks_without_an_answer_for_one_reason_are_one_line() {
    let lab = Lab::node();
    let shown = lab.fails_at("api down", "preflight").stdout;
    assert!(shown.contains("more for the same reason"), "{shown}");
    let all = lab.fails_at("api down", "preflight --all").stdout;
    let unknown = |text: &str| text.matches("[ ?? ]").count();
    assert!(unknown(&shown) < 8 && unknown(&all) > 30, "{shown}");
}
