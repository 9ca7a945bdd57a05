//! `apply`, the one verb for scripts; and saved plans, which need no other flags.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::lab::Lab;

fn apply(lab: &Lab, words: &str) -> Value {
    lab.run(&format!("apply --yes -o json {words}")).exits(0).json()
}

/// The release, the VSID of the pods' network, and whether the node is schedulable.
fn standing(lab: &Lab) -> (String, Option<u64>, bool) {
    let status = lab.run("status -o json").json();
    let networks = status["networks"].as_array().unwrap();
    let pods = networks.iter().find(|network| network["name"] == "Calico");
    (
        status["calico_version"].as_str().unwrap().to_owned(),
        pods.and_then(|network| network["vsid"].as_u64()),
        status["node"]["schedulable"] == true,
    )
}

fn phases(lab: &Lab, words: &str) -> Vec<String> {
    let lines = lab.run(&format!("apply --yes -o ndjson {words}")).exits(0).ndjson();
    let done = lines.iter().filter(|line| line["type"] == "phase_complete");
    done.map(|line| line["phase"]["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn one_verb_installs_reconfigures_and_upgrades_as_needed() {
    let lab = Lab::node();
    let first = apply(&lab, "");
    assert_eq!((&first["success"], &first["changed"], &first["generation"]), (&json!(true), &json!(true), &json!(1)));
    let again = apply(&lab, "");
    assert_eq!((&again["success"], &again["changed"]), (&json!(true), &json!(false)), "{again:#}");

    let phases = phases(&lab, "--set calicoNetwork.vxlan.vxlanVNI=5000");
    assert!(phases.contains(&"drain".into()) && phases.contains(&"uncordon".into()), "{phases:?}");
    assert_eq!(standing(&lab), ("v3.32.1".into(), Some(5000), true));
    assert_eq!(apply(&lab, "")["changed"], false, "what is not said is as it was");

    let upgraded = apply(&lab, "--release v3.33.0");
    assert!(upgraded["msg"].as_str().unwrap().contains("runs Calico v3.33.0, before it was v3.32.1"), "{upgraded:#}");
    assert_eq!(standing(&lab), ("v3.33.0".into(), Some(5000), true));
    let refused = lab.run("apply --yes -o json --release v3.32.1").exits(20).json();
    assert_eq!(
        (&refused["error"]["id"], &refused["error"]["retryable"]),
        (&json!("DowngradeNotAllowed"), &json!(false))
    );
    assert_eq!(apply(&lab, "--release v3.32.1 --allow-downgrade")["changed"], true);
}

#[test]
fn the_caller_decides_whether_pods_are_moved_away() {
    let lab = Lab::installed();
    let always = phases(&lab.copy(), "--set services.felixLogSeverity=debug --drain=always");
    assert!(always.contains(&"drain".into()), "{always:?}");
    let auto = phases(&lab, "--set services.felixLogSeverity=debug");
    assert!(!auto.contains(&"drain".into()), "{auto:?}");
    let never = apply(&lab, "--set calicoNetwork.vxlan.vxlanVNI=5000 --drain=never");
    assert!(never["warnings"].to_string().contains("NotDrained"), "{never:#}");
    assert_eq!(standing(&lab).1, Some(5000));
}

#[test]
fn a_run_in_progress_is_waited_for_when_asked() {
    let lab = Lab::installed();
    let lock = std::fs::File::options().write(true).open(lab.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    let holder = r#"{"run":"20261121T080512-0042f1","command":"install","pid":4711,"since":"2026-11-21T08:05:12Z"}"#;
    std::fs::write(lab.on_node("C/ProgramData/calicoctl-win/lock.json"), holder).unwrap();
    for words in ["apply -y -o json", "apply -y -o json --wait-for-lock 1s", "rollback -y -o json --wait-for-lock 1s"] {
        let busy = lab.run(words).exits(14).json();
        assert_eq!((&busy["error"]["id"], &busy["error"]["retryable"]), (&json!("Busy"), &json!(true)), "{words}");
    }
    let mut command = lab.command("apply -y -o ndjson --wait-for-lock 1h --sandbox node");
    let mut waits = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waits.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("the run in progress to end")), "it says what it waits for");
    drop(lock);
    let last = lines.last().unwrap();
    assert!(waits.wait().unwrap().success(), "{last}");
    assert!(last.contains(r#""status":"no_changes""#), "{last}");
}

#[test]
fn a_saved_plan_is_complete_in_itself() {
    let lab = Lab::installed();
    lab.write("more.yaml", "spec: {services: {felixLogSeverity: debug}}\n");
    let saved = lab.run("plan -c more.yaml --set calicoNetwork.vxlan.vxlanVNI=5000 --out plan.json").exits(0);
    assert!(saved.stdout.contains("Apply it: calicoctl-win apply"), "{saved}");
    assert!(saved.stdout.contains("calicoNetwork.vxlan.vxlanVNI  4096 -> 5000\n"), "{saved}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(lab.path("plan.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "its config may hold secrets");
    }
    let applied = apply(&lab, "--plan plan.json");
    assert_eq!(applied["generation"], 2, "{applied:#}");
    assert_eq!(standing(&lab).1, Some(5000));
    let stale = lab.run("apply -y -o json --plan plan.json").exits(21).json();
    assert!(stale["msg"].as_str().unwrap().starts_with("the node has changed"), "{stale:#}");
}

/// Nobody has looked at what its config would change now.
#[test]
fn a_saved_plan_that_was_edited_is_refused() {
    let lab = Lab::installed();
    let _saved = lab.run("plan --set calicoNetwork.vxlan.vxlanVNI=5000 --out plan.json").exits(0);
    let before = lab.picture_without_state();
    let plan = std::fs::read_to_string(lab.path("plan.json")).unwrap();
    let mut plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["config"]["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"], 5000, "{plan:#}");
    plan["config"]["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"] = json!(6000);
    lab.write("plan.json", plan.to_string());
    for words in ["apply -y", "apply -n", "reconfigure -y"] {
        let refused = lab.run(&format!("{words} -o json --plan plan.json")).exits(21).json();
        assert_eq!(refused["error"]["id"], "PlanStale", "{words}: {refused:#}");
    }
    lab.picture_without_state().same_as(&before);
}

#[test]
fn a_plan_shows_the_settings_that_change() {
    let lab = Lab::installed();
    let words = "--set calicoNetwork.vxlan.vxlanVNI=5000 --set services.extraEnv={\"HTTPS_PROXY\":\"canary\"} -o json";
    let plan = lab.run(&format!("plan {words}")).exits(0).json();
    assert_eq!(
        plan["settings_diff"],
        json!([
            {"path": "spec.calicoNetwork.vxlan.vxlanVNI", "before": 4096, "after": 5000},
            {"path": "spec.services.extraEnv", "before": {}, "after": {"HTTPS_PROXY": "***"}},
        ])
    );
    let _upgraded = lab.run("upgrade -y --release v3.33.0").exits(0);
    let back = lab.run("rollback -n -o json").exits(0).json();
    assert_eq!(
        back["plan"]["settings_diff"],
        json!([{"path": "spec.calico.version", "before": "v3.33.0", "after": "v3.32.1"}])
    );
}

#[test]
fn an_interrupted_run_is_finished_or_replaced_and_the_output_says_which() {
    let lab = Lab::installed();
    let vni = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";
    let _killed = lab.fails_at("put running CalicoNode#2=exit-before", vni).exits(137);
    let other = lab.copy().run("install -y -o json").exits(0).json();
    let warned = other["warnings"].to_string();
    assert!(warned.contains("this does not finish the interrupted reconfigure"), "{warned}");
    let same = lab.run(&format!("{vni} -o json")).exits(0).json();
    let warned = same["warnings"].to_string();
    assert!(warned.contains("this finishes the interrupted reconfigure"), "{warned}");
    assert_eq!(standing(&lab), ("v3.32.1".into(), Some(5000), true));
}

/// A container on a network that is deleted belongs to somebody, even if no receipt of ours mentions the network.
#[test]
fn a_first_generation_interrupts_no_pods() {
    let lab = Lab::installed();
    std::fs::remove_dir_all(lab.on_node("C/ProgramData/calicoctl-win/receipts")).unwrap();
    let before = lab.picture_without_state();
    let vni = "-y -o json --set calicoNetwork.vxlan.vxlanVNI=5000";
    for verb in ["install", "apply --drain never"] {
        let refused = lab.run(&format!("{verb} {vni}")).exits(19).json();
        assert_eq!(refused["error"]["id"], "NeedsDrain", "{verb}: {refused:#}");
    }
    lab.picture_without_state().same_as(&before);
    // With a drain, which this verb does by itself.
    let applied = lab.run(&format!("apply {vni}")).exits(0).json();
    assert_eq!(applied["generation"], 1, "{applied:#}");
    assert!(lab.read("node.yaml").contains("vsid: 5000"));
    assert_ne!(lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"], true);
}

#[test]
fn a_setting_that_changes_nothing_on_the_node_is_recorded() {
    let lab = Lab::installed();
    let words = "--set metadata.name=rack-7";
    assert_eq!(apply(&lab, words)["changed"], false);
    assert!(lab.run("config show --applied").exits(0).stdout.contains("rack-7"));
    assert!(lab.run("config diff").exits(0).stdout.starts_with("no difference"));
    assert_eq!(apply(&lab, "")["generation"], 1);
}

#[test]
fn a_saved_plan_allows_no_other_options_and_stays_a_change() {
    let lab = Lab::installed();
    let _saved = lab.run("plan --set services.felixLogSeverity=debug --out plan.json").exits(0);
    for words in ["apply --plan plan.json --release v3.33.0", "reconfigure --plan plan.json --unset services.logDir"] {
        let _refused = lab.run(&format!("{words} -y")).exits(64);
    }
    let bare = Lab::node();
    let _saved = bare.run("plan --out plan.json").exits(0);
    assert_eq!(bare.run("reconfigure -y -o json --plan plan.json").exits(16).json()["error"]["id"], "NotInstalled");
    let _changed = lab.run("apply -y --set services.felixLogSeverity=warning").exits(0);
    let _stale = lab.run("apply -n --plan plan.json").exits(21);
}

/// A failed write leaves a file with its first line, and a template may render nothing.
#[test]
fn a_config_that_says_nothing_resets_nothing() {
    const WHOLE: &str = "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\n";
    let lab = Lab::installed();
    let _set = lab.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    let before = lab.picture_without_state();
    let own = "node/C/ProgramData/calicoctl-win/config.yaml";
    let half = "kind: NodeInstallation\nspec: {}\n";
    for text in ["# only\n", "---\n", "--- # a\n---\n# b\n", "{}", "spec:\n", "spec: {}\n", "spec:\n  calico:\n", half]
    {
        lab.write("c.yaml", text);
        for words in
            ["apply -y -c c.yaml", "reconfigure -y -c c.yaml", "install -y -c c.yaml", "config validate c.yaml"]
        {
            let refused = lab.run(&format!("{words} -o json")).exits(4).json();
            assert!(refused.to_string().contains("the config c.yaml is empty"), "{words}: {text:?}: {refused:#}");
        }
        lab.write(own, text);
        let refused = lab.run("apply -y -o json").exits(4).json();
        assert_eq!(refused["error"]["id"], "ConfigUnreadable", "{text:?}: {refused:#}");
        std::fs::remove_file(lab.path(own)).unwrap();
        lab.picture_without_state().same_as(&before);
    }
    // Every default, said in words.
    lab.write("c.yaml", WHOLE);
    let _valid = lab.run("config validate c.yaml").exits(0);
    let _reset = lab.run("apply -y -c c.yaml").exits(0);
    assert_eq!(standing(&lab), ("v3.32.1".into(), Some(4096), true));
}

/// The hint of a refused `install` is pasted as it is.
#[test]
fn the_hint_of_a_refused_install_makes_the_change_that_was_refused() {
    let there = Lab::installed();
    let _set = there.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    there.write("c.yaml", "spec: {calicoNetwork: {vxlan: {vxlanVNI: 6000}}}\n");
    let other = "--set calicoNetwork.vxlan.vxlanVNI=7000";
    let newer = "--release v3.33.0";
    for (words, version, vni, named) in [
        ("", "v3.32.1", 4096, "reconfigure --unset calicoNetwork.vxlan.vxlanVNI"),
        (other, "v3.32.1", 7000, "reconfigure --set calicoNetwork.vxlan.vxlanVNI=7000"),
        ("-c c.yaml", "v3.32.1", 6000, "reconfigure -c c.yaml"),
        (newer, "v3.33.0", 4096, "apply --release v3.33.0"),
    ] {
        let lab = there.copy();
        lab.write("c.yaml", std::fs::read(there.path("c.yaml")).unwrap());
        let refused = lab.run(&format!("install -y -o json {words}")).exits(19).json();
        let hint = refused["error"]["hint"].as_str().unwrap();
        let commands: Vec<&str> = hint.lines().map(|line| line.split_once(": calicoctl-win ").unwrap().1).collect();
        let [look, make] = commands[..] else { panic!("{hint}") };
        assert!(make.starts_with(named), "{hint}");
        let pasted = |command: &str| lab.bare(&format!("{command} -y -o json")).exits(0).json();
        let planned = pasted(look)["plan"]["settings_diff"].to_string();
        assert!(planned.contains(&format!("\"after\":{vni}")), "{words}: {planned}");
        let _made = pasted(make);
        assert_eq!(standing(&lab), (version.into(), Some(vni), true), "{words}");
    }
}
