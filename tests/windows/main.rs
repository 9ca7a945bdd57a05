//! The executable itself on Windows: on a Windows machine as it is, elsewhere under Wine once
//! `packaging/test.sh` has made both ready.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

mod machine;

use machine::Machine;

const CONFIG: &str = include_str!("../fixtures/config/vxlan.yaml");
const FACTS: &str = include_str!("../fixtures/facts/server-2022.json");

#[test]
fn it_starts() {
    let Some(machine) = Machine::new() else { return };
    let started = machine.run(&["--version"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    assert_eq!(machine.code_seen_by_cmd(&["--version"]), 0);
}

#[test]
fn it_says_what_it_is() {
    let Some(machine) = Machine::new() else { return };
    let version = env!("CARGO_PKG_VERSION");

    let long = machine.run(&["version"]);
    assert_eq!(long.code, 0, "{}", long.stderr);
    assert!(long.stdout.contains(version), "{}", long.stdout);

    let short = machine.run(&["--version"]);
    assert_eq!((short.code, short.stdout.trim()), (0, format!("calicoctl-win {version}").as_str()));

    let help = machine.run(&["--help"]);
    assert_eq!(help.code, 0, "{}", help.stderr);
    for verb in ["install", "status", "uninstall", "plan", "resume"] {
        assert!(help.stdout.contains(verb), "{verb} is not in the help:\n{}", help.stdout);
    }
}

#[test]
fn a_config_is_valid_or_the_error_says_where_it_is_not() {
    let Some(machine) = Machine::new() else { return };

    let good = machine.file("Knöten 1.yaml", CONFIG);
    let validated = machine.run(&["config", "validate", "-c", &good]);
    assert_eq!(validated.code, 0, "{}{}", validated.stdout, validated.stderr);

    for (wrong, said) in [
        (CONFIG.replace("vxlanVNI: 4096", "vxlanVNI: 9999"), "9999"),
        (CONFIG.replace("backend: vxlan", "backend: vxlam"), "vxlan"),
        (CONFIG.replace("serviceCIDRs", "serviceCIDR"), "serviceCIDRs"),
        (CONFIG.replace("10.96.0.0/12", "fd00::/108"), "IPv6"),
        ("spec: [".to_owned(), "bad.yaml"),
    ] {
        let bad = machine.file("bad.yaml", &wrong);
        let refused = machine.run(&["config", "validate", "-c", &bad]);
        assert_eq!(refused.code, 4, "{wrong}\n{}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains(said), "`{said}` is not in\n{}", refused.stderr);
        assert!(refused.stderr.contains("bad.yaml"), "the file is not named in\n{}", refused.stderr);
    }
}

#[test]
fn a_plan_is_made_from_saved_facts() {
    let Some(machine) = Machine::new() else { return };
    let (config, facts) = (machine.file("node.yaml", CONFIG), machine.file("facts.json", FACTS));

    let planned = machine.run(&["plan", "-c", &config, "--facts", &facts, "-o", "json"]);

    assert_eq!(planned.code, 0, "{}{}", planned.stdout, planned.stderr);
    let plan = planned.json();
    assert_eq!(plan["kind"], "Plan");
    let changes = plan["changes"].as_array().expect("a plan has changes");
    for service in ["CalicoNode", "CalicoFelix"] {
        assert!(changes.iter().any(|c| c["kind"] == "service" && c["target"] == service), "{service}: {plan:#}");
    }
}

#[test]
fn a_failure_is_one_json_document_with_the_exit_code_that_windows_sees() {
    let Some(machine) = Machine::new() else { return };
    let wrong = machine.file("bad.yaml", &CONFIG.replace("4096", "4095"));

    for (args, name, code) in [
        (&["frobnicate", "-o", "json"][..], "USAGE", 64),
        (&["install", "--no-such-flag", "-o", "json"], "USAGE", 64),
        (&["install", "-c", &wrong, "-y", "-o", "json"], "INVALID_CONFIG", 4),
        (&["install", "-c", "C:\\no-such-file.yaml", "-y", "-o", "json"], "INVALID_CONFIG", 4),
        (&["status", "-o", "json"], "NOT_INSTALLED", 16),
    ] {
        let failed = machine.run(args);
        let result = failed.json();
        assert_eq!((failed.code, &result["exit_name"]), (code, &name.into()), "{args:?}: {result:#}");
        assert_eq!(result["exit_code"], code, "{args:?}: {result:#}");
        assert_eq!(machine.code_seen_by_cmd(args), code, "{args:?}");
    }
}
