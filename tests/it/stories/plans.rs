//! Planning: `plan`, `--dry-run`, saved plans, plans for other machines.

use std::fs;

use crate::lab::Lab;

#[test]
fn a_plan_shows_everything_and_changes_nothing() {
    let lab = Lab::node();
    let before = lab.picture();
    insta::assert_snapshot!(lab.run("plan").exits(0).screen(), @r"
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
    result: OK (exit 0) changed=false reboot=false
    ");
    let _pending = lab.run("plan --detailed-exitcode").exits(2);
    let plan = lab.run("plan -o json").exits(0).json();
    assert_eq!((&plan["kind"], &plan["disruption"]), (&"Plan".into(), &"host_network".into()));
    let _pending = lab.run("install --dry-run --detailed-exitcode").exits(2);
    let dry = lab.run("install --dry-run -o json").exits(0).json();
    assert_eq!((&dry["status"], &dry["success"]), (&"changes_pending".into(), &true.into()));
    assert_eq!((&dry["changed"], &dry["plan"]["digest"]), (&false.into(), &plan["digest"]));
    lab.picture().same_as(&before);

    let _there = lab.run("install -y").exits(0);
    let standing = lab.picture();
    let _nothing = lab.run("plan --detailed-exitcode").exits(0);
    let dry = lab.run("install --dry-run --detailed-exitcode -o json").exits(0).json();
    assert_eq!((&dry["status"], &dry["success"]), (&"no_changes".into(), &true.into()));
    let removal = lab.run("plan --uninstall -o json").exits(0).json();
    assert!(removal["changes"].as_array().unwrap().iter().all(|change| change["action"] == "delete"), "{removal}");
    for words in ["uninstall -n", "uninstall --purge -n -y", "service stop -n", "service restart -n", "resume -n"] {
        let result = lab.run(&format!("{words} -o json")).exits(0).json();
        assert_eq!(result["changed"], false, "{words}");
    }
    lab.picture().same_as(&standing);
}

#[test]
fn a_removal_is_planned_as_it_is_done() {
    let lab = Lab::installed();
    let planned = lab.run("plan --uninstall -o json").exits(0).json();
    let dry = lab.run("uninstall -n -o json").exits(0).json();
    assert_eq!(planned["pods"].as_array().unwrap().len(), 4, "{planned:#}");
    for part in ["changes", "pods", "disruption", "about_seconds", "digest"] {
        assert_eq!(planned[part], dry["plan"][part], "{part}");
    }
    assert_eq!(planned["warnings"], dry["warnings"]);
    let text = |words: &str| {
        let shown = lab.run(words).exits(0).stdout;
        shown.lines().filter(|line| !line.starts_with("result:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = text("plan --uninstall");
    assert!(lines.iter().any(|line| line.starts_with("Takes about ")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("service ")), "{lines:#?}");
    for (plan, dry) in [("plan --uninstall", "uninstall -n"), ("plan --uninstall -v", "uninstall -n -v")] {
        let (mut plan, mut dry) = (text(plan), text(dry));
        plan.sort();
        dry.sort();
        assert_eq!(plan, dry);
    }
    assert!(text("uninstall -n -v").iter().any(|line| line.contains("-   service")));
}

/// `changes_pending` and the exit code 2 are for every dry run, whatever the verb.
#[test]
fn every_dry_run_says_whether_it_would_change_something() {
    let lab = Lab::installed();
    let _second = lab.run("apply -y --set services.felixLogSeverity=debug").exits(0);
    let _older = lab.run("node uncordon -y").exits(0);
    let before = lab.picture();
    for (words, changes) in [
        ("install --set services.felixLogSeverity=warning", true),
        ("reconfigure --set services.felixLogSeverity=warning", true),
        ("apply --set services.felixLogSeverity=warning", true),
        ("rollback", true),
        ("uninstall", true),
        ("service stop", true),
        ("node cordon", true),
        ("node drain", true),
        ("credentials rotate", true),
        ("reconfigure", false),
        ("apply", false),
        ("repair", false),
        ("resume", false),
        ("service start", false),
        ("node uncordon", false),
    ] {
        let result = lab.run(&format!("{words} -n --detailed-exitcode -o json"));
        let (code, status) = if changes { (2, "changes_pending") } else { (0, "no_changes") };
        let result = result.exits(code).json();
        assert_eq!(
            (&result["status"], &result["changed"], &result["exit_code"]),
            (&status.into(), &false.into(), &code.into()),
            "{words}: {result:#}"
        );
    }
    lab.picture().same_as(&before);
}

#[test]
fn a_saved_plan_is_applied_as_long_as_it_is_valid() {
    let lab = Lab::node();
    let _saved = lab.run("plan --out bare.json").exits(0);
    let before = lab.picture_without_state();

    let other_config = "install -y --plan bare.json --set services.felixLogSeverity=debug -o json";
    let refused = lab.run(other_config).exits(64).json();
    assert!(refused["msg"].as_str().unwrap().contains("a saved plan holds its config"), "{refused}");
    lab.picture_without_state().same_as(&before);

    let _done = lab.run("install -y --plan bare.json").exits(0);
    let _no_use = lab.run("plan --uninstall --out removal.json").exits(64);
    let stale = lab.run("install -y --plan bare.json -o json").exits(21).json();
    assert!(stale["msg"].as_str().unwrap().contains("node"), "{stale}");
    assert_eq!(stale["changed"], false);
}

#[test]
fn the_facts_of_one_machine_are_enough_to_plan_on_another() {
    let there = Lab::node();
    let office = Lab::new();
    office.write("node.yaml", "spec: {calico: {version: v3.30.3}, calicoNetwork: {backend: vxlan}}\n");
    for words in ["plan --print-facts -o json", "plan --print-facts", "plan --print-facts -o yaml"] {
        office.write("facts", there.run(words).exits(0).stdout);
        let plan = office.bare("plan --facts facts -c node.yaml -o json").exits(0).json();
        let ids: Vec<&str> =
            plan["changes"].as_array().unwrap().iter().map(|change| change["id"].as_str().unwrap()).collect();
        assert!(ids.contains(&r"file C:\Program Files\containerd\cni\conf\10-calico.conf"), "{words}: {ids:?}");
        assert!(ids.contains(&"hns-network Calico"), "{words}: {ids:?}");
    }
    let facts = there.run("plan --print-facts --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    let _whole: serde_json::Value =
        serde_json::from_str(&facts.stdout).unwrap_or_else(|error| panic!("{error}: {facts}"));
    let lines = there.run("plan --print-facts -o ndjson").exits(0).ndjson();
    assert_eq!(lines[lines.len() - 2]["document"]["kind"], "Facts");
    office.write("facts", r#"{"node": {"hostname": "win-a1"}}"#);
    let wrong = office.bare("plan --facts facts -c node.yaml -o json").exits(4).json();
    assert_eq!(wrong["error"]["id"], "FactsInvalid");
    assert!(!office.path("node").exists() && !there.on_node("C/ProgramData/calicoctl-win").exists());
}

#[test]
fn a_dry_run_writes_nothing_whatever_the_verb() {
    let lab = Lab::installed();
    let before = lab.picture();
    let cached = fs::read_dir(lab.path("node/cache")).unwrap().map(|entry| entry.unwrap().path());
    let zip = cached.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "zip")).unwrap();
    for words in [
        "install --release v3.33.0",
        "install --download-only --release v3.30.0",
        "release download --release v3.30.0",
        &format!("release extract {} --dest out", zip.display()),
        "config init new.yaml",
        "service stop",
        "resume",
        "uninstall --purge",
    ] {
        let result = lab.run(&format!("{words} -y --dry-run -o json")).exits(0).json();
        assert_eq!(result["changed"], false, "{words}");
        lab.picture().same_as(&before);
    }
    assert!(!lab.path("out").exists() && !lab.path("new.yaml").exists());
    assert!(!lab.run("release list").exits(0).stdout.contains("v3.30.0"));
}
