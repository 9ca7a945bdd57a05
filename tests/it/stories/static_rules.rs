//! The rules that Felix applies before all policy: those of AKS, of the config, and of the user.

use std::fs;

use crate::lab::Lab;

const RULES: &str = "C/CalicoWindows/static-rules.json";

const OWN: &str = "{\"Provider\": \"shop\", \"version\": \"1\", \"Rules\": []}\r\n";

/// A node with the user's rules in Calico's folder.
fn with_rules() -> Lab {
    let lab = Lab::installed();
    lab.write(&format!("node/{RULES}"), OWN);
    lab
}

#[test]
fn a_users_rules_are_kept_over_every_change() {
    let lab = with_rules();
    lab.healthy();
    lab.linux_runs("v3.33.0");
    let _upgraded = lab.run("upgrade -y --release v3.33.0").exits(0);
    assert_eq!(lab.read(RULES), OWN, "another release replaces the folder");
    let edited = OWN.replace("\"1\"", "\"2\"");
    lab.write(&format!("node/{RULES}"), &edited);
    lab.healthy();
    assert_eq!(lab.run("install -y -o json --release v3.33.0").exits(0).json()["changed"], false);

    lab.write("node/C/CalicoWindows/install-calico.ps1", "edited");
    let _repaired = lab.run("repair -y").exits(0);
    assert_eq!(lab.read(RULES), edited, "so does a release with edited files");
    let _back = lab.run("rollback -y").exits(0);
    assert_eq!(lab.read(RULES), edited);
    let _again = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    assert_eq!(lab.read(RULES), edited);

    assert_eq!(kept_by_uninstall(&lab), edited);
}

/// The rules that an uninstall keeps, at the place that it names.
fn kept_by_uninstall(lab: &Lab) -> String {
    let removed = lab.run("uninstall -y -o ndjson").exits(0).ndjson();
    let kept = removed.iter().find(|line| line["id"] == "FilesKept").unwrap_or_else(|| panic!("{removed:?}"));
    let folder = kept["message"].as_str().unwrap().rsplit_once(r"C:\").unwrap().1.replace('\\', "/");
    lab.read(&format!("C/{folder}/static-rules.json"))
}

#[test]
fn rules_that_the_user_removed_do_not_come_back() {
    let lab = with_rules();
    let _first = lab.run("repair -y").exits(0);
    fs::remove_file(lab.on_node(RULES)).unwrap();
    lab.linux_runs("v3.33.0");
    let _upgraded = lab.run("upgrade -y --release v3.33.0").exits(0);
    assert!(!lab.on_node(RULES).exists());
}

#[test]
fn rules_from_before_the_install_are_used_and_restored() {
    let lab = Lab::node();
    lab.write(&format!("node/{RULES}"), OWN);
    lab.write("node/C/CalicoWindows/node/node-service.ps1", "# Calico's");
    let before = lab.picture_without_state();
    let _installed = lab.run("install -y").exits(0);
    assert_eq!(lab.read(RULES), OWN);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn an_upgrade_that_is_killed_keeps_a_users_rules_finished_or_undone() {
    let start = with_rules();
    start.linux_runs("v3.33.0");
    for end in ["resume -y", "resume --undo -y"] {
        for item in [r"tree C:\CalicoWindows", "file *static-rules.json", "running CalicoFelix"] {
            for moment in ["exit-before", "exit-after"] {
                let lab = start.copy();
                let fault = format!("put {item}={moment}");
                let _killed = lab.fails_at(&fault, "upgrade -y --release v3.33.0").exits(137);
                let _ended = lab.run(end).exits(0);
                assert_eq!(lab.read(RULES), OWN, "{end} after {fault}");
                lab.healthy();
            }
        }
    }
}

/// Rules that Felix accepts, for a config.
const GIVEN: &str = r#"{"Provider": "shop", "version": "1", "Rules": [{"Name": "EndpointPolicy", "Rule": {"Type": "ACL", "Id": "no-metadata", "Protocol": 6, "Action": "Block", "Direction": "Out", "RemoteAddresses": "169.254.169.254/32", "RemotePorts": "80", "RuleType": "Switch", "Priority": 200}}]}"#;

#[test]
fn rules_of_the_config_are_written_and_removed() {
    let lab = Lab::node();
    lab.write("inline.yaml", format!("spec: {{platform: {{staticRules: {GIVEN}}}}}\n"));
    let before = lab.picture_without_state();
    let _installed = lab.run("install -y -c inline.yaml").exits(0);
    let written: serde_json::Value = serde_json::from_str(&lab.read(RULES)).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(GIVEN).unwrap());

    lab.write("node/C/rules/shop.json", GIVEN);
    lab.write("file.yaml", "spec: {platform: {staticRules: {file: 'C:\\rules\\shop.json'}}}\n");
    let _changed = lab.run("reconfigure -y -c file.yaml").exits(0);
    assert_eq!(lab.read(RULES), GIVEN, "byte for byte");
    assert_eq!(lab.run("reconfigure -y -o json -c file.yaml").exits(0).json()["changed"], false);
    lab.write("node/C/rules/shop.json", GIVEN.replace("200", "300"));
    let _changed = lab.run("reconfigure -y -c file.yaml").exits(0);
    assert_eq!(lab.read(RULES), GIVEN.replace("200", "300"));
    let _back = lab.run("rollback -y").exits(0);
    assert_eq!(lab.read(RULES), GIVEN);

    let _none = lab.run("reconfigure -y --set platform.staticRules=none").exits(0);
    assert!(!lab.on_node(RULES).exists(), "they were the config's");
    fs::remove_dir_all(lab.on_node("C/rules")).unwrap();
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn rules_of_the_config_replace_those_of_the_user_which_come_back() {
    let lab = with_rules();
    lab.write("inline.yaml", format!("spec: {{platform: {{staticRules: {GIVEN}}}}}\n"));
    let _given = lab.run("reconfigure -y -c inline.yaml").exits(0);
    assert!(lab.read(RULES).contains("no-metadata"));
    let other = lab.copy();
    let _none = lab.run("reconfigure -y --set platform.staticRules=none").exits(0);
    assert_eq!(lab.read(RULES), OWN);
    assert_eq!(kept_by_uninstall(&other), OWN);
}

#[test]
fn rules_that_felix_does_not_accept_are_refused_before_any_change() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let file = |path: &str| format!("spec: {{platform: {{staticRules: {{file: '{path}'}}}}}}\n");
    lab.write("node/C/rules/wrong.json", GIVEN.replace("Block", "Deny"));
    lab.write("node/C/rules/torn.json", &GIVEN[..40]);
    for (config, id, why) in [
        (
            format!("spec:\n  platform:\n    staticRules: {}\n", GIVEN.replace("Block", "Deny")),
            "ConfigInvalid",
            "rules.yaml:3:18: spec.platform.staticRules: Rules[0].Rule.Action is \"Deny\": Felix accepts Allow or Block",
        ),
        (
            file(r"C:\rules\wrong.json"),
            "StaticRulesInvalid",
            "Rules[0].Rule.Action is \"Deny\": Felix accepts Allow or Block",
        ),
        (file(r"C:\rules\torn.json"), "StaticRulesInvalid", "EOF while parsing"),
        (file(r"C:\rules\absent.json"), "StaticRulesInvalid", "absent.json cannot be used"),
        (file(r"C:\CalicoWindows\static-rules.json"), "StaticRulesInvalid", "which is replaced with each release"),
    ] {
        lab.write("rules.yaml", &config);
        let refused = lab.run("install -y -o json -c rules.yaml").exits(4).json();
        assert_eq!(refused["error"]["id"], id, "{refused:#}");
        assert!(refused.to_string().contains(&why.replace('"', "\\\"")), "{why}: {refused:#}");
    }
    fs::remove_dir_all(lab.on_node("C/rules")).unwrap();
    lab.picture_without_state().same_as(&before);
}
