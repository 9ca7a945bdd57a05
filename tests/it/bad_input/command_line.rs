//! Invalid command lines, and commands in the wrong place or at the wrong time.

use std::fs::{self, File};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{BUSY, CONFIG, FAILED, NOT_INSTALLED, USAGE, case, masked, screens};
use crate::lab::Lab;
#[cfg(target_os = "linux")]
use crate::lab::Terminal;

#[test]
fn what_is_no_number_and_no_boolean_is_said_in_words() {
    let lab = Lab::new();
    for (words, said) in [
        ("rollback --to abc", "'abc' for '--to <GENERATION>': it is not a whole number"),
        ("rollback --to 99999999999999999999", "the number is too large"),
        ("logs --tail abc", "it is not a whole number"),
        ("node drain --grace-period x", "it is not a whole number"),
        ("node drain --force=maybe", "it is neither true nor false"),
    ] {
        let refused = lab.bare(&format!("{words} -o json")).exits(USAGE.0).json();
        let what = refused["error"]["what"].as_str().unwrap();
        assert!(what.ends_with(said), "{words}: {what}");
    }
}

#[test]
fn a_wrong_command_line_gets_a_suggestion() {
    let wrong = |name, words| case(name, words, USAGE, "Usage");
    let cases = [
        wrong("unknown verb", "frobnicate"),
        wrong("misspelled verb", "instal"),
        wrong("no verb", ""),
        wrong("no verb of a group", "service"),
        wrong("unknown flag", "install --frob"),
        wrong("missing value", "install --kubeconfig"),
        wrong("value that is none of them", "install --color pink"),
        wrong("no kind of dry run", "plan --dry-run=client"),
        wrong("a dry run that only fleet has", "install --dry-run=server"),
        wrong("--set without a value", "install -y --set calicoNetwork.backend"),
        wrong("flags that exclude each other", "plan --print-facts --out x"),
        wrong("missing argument", "release verify"),
        case("nobody to confirm", "install", USAGE, "ConfirmationNeeded"),
        wrong("how to drain, without a drain", "uninstall -y --pod-selector app=web --force"),
        case("no fault", "install -y", USAGE, "SandboxFaultInvalid").with("put everything"),
        case("no fault of the API", "install -y", USAGE, "SandboxFaultInvalid").with("api hopla"),
        case("no fault of the release server", "install -y", USAGE, "SandboxFaultInvalid").with("release hopla"),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @r"
    unknown verb
      error: `calicoctl-win` has no command `frobnicate`
        state: nothing was changed
        fix: see: calicoctl-win --help
    misspelled verb
      error: `calicoctl-win` has no command `instal`
        state: nothing was changed
        fix: did you mean: calicoctl-win install
    no verb
      error: `calicoctl-win` needs a command: preflight, plan, apply, install, reconfigure, upgrade, migrate, confirm, rollback, receipt, history, repair, resume, uninstall, status, verify, logs, metrics, service, kubernetes, network, node, credentials, config, release, cluster, policy, fleet, render, dsc, diagnose, selftest, explain, completion, options, version
        state: nothing was changed
        fix: see: calicoctl-win --help
    no verb of a group
      error: `calicoctl-win service` needs a command: start, stop, restart, status
        state: nothing was changed
        fix: see: calicoctl-win service --help
    unknown flag
      error: unexpected argument '--frob' found
        state: nothing was changed
        fix: usage: calicoctl-win install [OPTIONS]
             see: calicoctl-win install --help
    missing value
      error: a value is required for '--kubeconfig <FILE>' but none was supplied
        state: nothing was changed
        fix: see: calicoctl-win install --help
    value that is none of them
      error: invalid value 'pink' for '--color <COLOR>' [possible values: auto, always, never]
        state: nothing was changed
        fix: see: calicoctl-win install --help
    no kind of dry run
      error: invalid value 'client' for '--dry-run[=<server>]' [possible values: plan, server]
        state: nothing was changed
        fix: see: calicoctl-win plan --help
    a dry run that only fleet has
      error: only fleet apply has a dry run of the API server
        state: nothing was changed
        fix: use --dry-run without a value
    --set without a value
      error: invalid value 'calicoNetwork.backend' for '--set <PATH=VALUE>': write PATH=VALUE, for example calicoNetwork.vxlan.vxlanVNI=5000
        state: nothing was changed
        fix: see: calicoctl-win install --help
    flags that exclude each other
      error: the argument '--print-facts' cannot be used with '--out <FILE>'
        state: nothing was changed
        fix: usage: calicoctl-win plan --print-facts
             see: calicoctl-win plan --help
    missing argument
      error: the following required arguments were not provided: <ZIP>
        state: nothing was changed
        fix: usage: calicoctl-win release verify <ZIP>
             see: calicoctl-win release verify --help
    nobody to confirm
      error: this changes the node, which must be confirmed
        state: nothing was changed
        fix: run it again with --yes, or look first with --dry-run
    how to drain, without a drain
      error: --pod-selector is about a drain, and there is none without --drain
        state: nothing was changed
        fix: add --drain, or remove --pod-selector
    no fault
      error: the sandbox fault `put everything` is not right: it has no `=ACTION`
        state: nothing was changed
        fix: write CALL ID-GLOB[#N]=ACTION, as in `put running CalicoNode=fail` or `put *#7=exit-after`
    no fault of the API
      error: the sandbox fault `api hopla` is not right: read API fault 'hopla': expected METHOD /path[#N]=ACTION or one of expired-ca, expired-certificate, other-name, self-signed, plain-http, old-tls, down, no-controllers, no-kubelet, unfilled
        state: nothing was changed
        fix: docs/sandbox.md shows them all by example
    no fault of the release server
      error: the sandbox fault `release hopla` is not right: `hopla` is not a fault of the release server: truncate, reset, 404, 503, 503:N, slow, corrupt, ignore-range, no-sums
        state: nothing was changed
        fix: docs/sandbox.md shows them all by example
    ");
}

/// The question would be in no document, and the program would wait for its answer.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_gets_a_document_is_not_asked() {
    let lab = Lab::node();
    for format in ["json", "ndjson"] {
        let (code, shown) = Terminal::of(&lab.command(&format!("install -o {format} --sandbox node"))).end();
        assert_eq!(code, Some(64), "{shown}");
        assert!(shown.contains("ConfirmationNeeded") && shown.contains("\"changed\":"), "{shown}");
    }
}

/// The state folder as this program creates it.
fn state_folder(lab: &Lab) -> PathBuf {
    let state = lab.on_node("C/ProgramData/calicoctl-win");
    fs::create_dir_all(&state).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&state, fs::Permissions::from_mode(0o750)).unwrap();
    state
}

#[test]
fn a_second_run_at_the_same_time_is_busy() {
    let lab = Lab::node();
    let state = state_folder(&lab);
    let lock = File::create(state.join("lock")).unwrap();
    lock.lock().unwrap();
    let holder = r#"{"run":"20261121T080512-0042f1","command":"install","pid":4711,"since":"2026-11-21T08:05:12Z"}"#;
    fs::write(state.join("lock.json"), holder).unwrap();
    insta::assert_snapshot!(case("busy", "install -y", BUSY, "Busy").meets(&lab), @r#"
    error: another run holds the lock: `install` (run RUN, process 4711) since TIME
      state: nothing was changed
      fix: wait for it with: calicoctl-win status --wait --sandbox node
    "#);
    for words in ["repair -y", "rollback -y", "uninstall -y", "resume -y"] {
        assert_eq!(lab.run(&format!("{words} -o json")).exits(14).json()["error"]["id"], "Busy", "{words}");
    }
    let status = masked(&lab, &lab.run("status").exits(0).stdout);
    assert!(status.contains("! in progress: install (run RUN, since TIME)"), "{status}");
    assert!(status.contains("Wait for it: calicoctl-win status --run RUN --wait"), "{status}");
    drop(lock);
    let _free_again = lab.run("install -y").exits(0);
}

#[cfg(not(windows))]
#[test]
fn without_windows_and_without_a_sandbox_every_verb_fails() {
    let lab = Lab::new();
    let seen = lab.bare("install -y").exits(15);
    insta::assert_snapshot!(masked(&lab, &seen.stderr), @r#"
    error: this machine is not Windows
      state: nothing was changed
      fix: try it on a sandbox node in a folder: calicoctl-win install --sandbox DIR --yes
    "#);
    let told = lab.bare("install -y -o json").exits(15).json();
    assert_eq!((&told["exit_name"], &told["error"]["id"]), (&"UNSUPPORTED".into(), &"NotWindows".into()));
}

#[test]
fn a_folder_with_other_files_is_not_changed() {
    let lab = Lab::new();
    lab.write("node/thesis.txt", "years of work\n");
    let seen = lab.run("install -y").exits(64);
    insta::assert_snapshot!(masked(&lab, &seen.stderr), @r#"
    error: node is neither empty nor a sandbox, so nothing was written into it
      step: open the sandbox node
      state: nothing was changed
      fix: give --sandbox a new folder
    "#);
    assert_eq!(lab.run("install -y -o json").exits(64).json()["error"]["id"], "SandboxNotEmpty");
    assert_eq!(fs::read_dir(lab.path("node")).unwrap().count(), 1);
}

#[test]
fn invalid_files_are_named() {
    let cases = [
        case("plan that is not there", "install -y --plan none.json", CONFIG, "PlanInvalid"),
        case("plan that is none", "install -y --plan text.json", CONFIG, "PlanInvalid"),
        case(
            "plan and another config",
            "install -y --plan plan.json --set services.felixLogSeverity=debug",
            USAGE,
            "Usage",
        ),
        case("facts that are none", "plan --facts text.json", CONFIG, "FactsInvalid"),
        case("nothing installed", "service start", NOT_INSTALLED, "NotInstalled"),
    ];
    let arrange = |lab: &Lab| {
        lab.write("text.json", "{\"hello\": 1}\n");
        let _saved = lab.run("plan --out plan.json").exits(0);
    };
    insta::assert_snapshot!(screens(&cases, arrange), @r"
    plan that is not there
      error: cannot read the saved plan none.json
        cause: (the system's own words)
        state: nothing was changed
        fix: make one with: calicoctl-win plan --out FILE --sandbox node
    plan that is none
      error: text.json is not a saved plan: missing field `settings` at line 1 column 12
        state: nothing was changed
        fix: make one with: calicoctl-win plan --out FILE --sandbox node
    plan and another config
      error: a saved plan holds its config: -c and --set (CALICO_WIN_CONFIG too) cannot change it
        state: nothing was changed
        fix: leave them out, or make another plan with them: calicoctl-win plan --out FILE --sandbox node
    facts that are none
      error: text.json is no facts file: unknown field `hello`, expected one of `apiVersion`, `kind`, `success`, `exit_code`, `node`, `cluster` at line 1, column 2
        state: nothing was changed
        fix: make one on the machine with: calicoctl-win plan --print-facts -o json
    nothing installed
      error: Calico is not installed here by this tool
        state: nothing was changed
        fix: install it with: calicoctl-win install --sandbox node
    ");
}

#[test]
fn unreadable_records_of_the_program_stop_a_run() {
    let damage = |file: &'static str, text: &'static str| {
        move |lab: &Lab| {
            let path = state_folder(lab).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    };
    let journal = case("journal", "install -y", FAILED, "JournalHeaderMissing");
    let receipt = case("receipt", "install -y", FAILED, "ReceiptUnreadable");
    let seen = [
        screens(&[journal], damage("journal.jsonl", "{\"what\": \"is this\"}\n{\"and\": \"this\"}\n")),
        screens(&[receipt], damage("receipts/1.json", "{}\n")),
    ];
    insta::assert_snapshot!(seen.concat(), @r#"
    journal
      error: the journal C:\ProgramData\calicoctl-win\journal.jsonl of an interrupted run does not say which run it is of: missing field `run` at line 1 column 19
        state: nothing was changed
        fix: nothing is changed or cleaned up until it is settled: calicoctl-win explain JournalHeaderMissing
    receipt
      error: the receipt node/C/ProgramData/calicoctl-win/receipts/1.json is not readable: missing field `schema` at line 1 column 2
        state: nothing was changed
        fix: it says what on this node is ours; restore it from a backup, or use the calicoctl-win version that wrote it; without either: calicoctl-win explain ReceiptUnreadable
    "#);
}
