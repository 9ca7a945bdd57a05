//! The three output formats, in success and failure.

use serde_json::{Value, json};

use crate::lab::{Lab, Output};

/// Without them, a pasted command is about another node or another config.
#[test]
fn the_commands_of_hints_repeat_sandbox_config_and_kubeconfig() {
    let (fresh, installed) = (Lab::node(), Lab::installed());
    let same = "spec: {calico: {version: v3.32.1}}\n";
    fresh.write("my node.yaml", same);
    installed.write("vni.yaml", "spec: {calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let run = |lab: &Lab, words: &[&str], code: i32| {
        let mut command = lab.command("");
        command.args(words).args(["-o", "json", "--sandbox", "node"]);
        Output::of(&words.join(" "), command).exits(code).json()
    };
    let hint = |result: &Value| result["error"]["hint"].as_str().unwrap().to_owned();
    let with = r#"-c "my node.yaml" --kubeconfig admin --sandbox node"#;
    let named = ["-c", "my node.yaml", "--kubeconfig", "admin"];

    let absent = hint(&run(&fresh, &[&["reconfigure", "-y"], &named[..]].concat(), 16));
    assert_eq!(absent, format!("install it with: calicoctl-win install {with}"));

    let drain = hint(&run(&installed, &["install", "-y", "-c", "vni.yaml"], 19));
    insta::assert_snapshot!(drain, @r"
    look at it: calicoctl-win reconfigure --dry-run -c vni.yaml --sandbox node
    then drain, change and uncordon: calicoctl-win reconfigure -c vni.yaml --sandbox node
    ");
    let _saved = installed.run("plan -c vni.yaml --out vni.json").exits(0);
    let drain = hint(&run(&installed, &["install", "-y", "--plan", "vni.json"], 19));
    assert_eq!(drain, "drain, change and uncordon with: calicoctl-win apply --plan vni.json --sandbox node");

    let _changed = installed.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    let stale = hint(&run(&installed, &["apply", "-y", "--plan", "vni.json"], 21));
    assert!(stale.ends_with(": calicoctl-win plan --out FILE --sandbox node"), "{stale}");

    let _cut = installed.fails_at("put *#2=exit-after", "reconfigure -y -c vni.yaml").exits(137);
    let interrupted = hint(&run(&installed, &["rollback", "-y"], 22));
    insta::assert_snapshot!(interrupted, @r"
    finish it with: calicoctl-win resume --sandbox node
    or undo it with: calicoctl-win resume --undo --sandbox node
    ");
    let lock =
        std::fs::File::options().write(true).open(installed.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    let busy = hint(&run(&installed, &["resume", "-y"], 14));
    assert_eq!(busy, "wait for it with: calicoctl-win status --wait --sandbox node");
    drop(lock);

    let broken = with_several_failures();
    broken.write("my node.yaml", same);
    let wanted = "Start-Service containerd\n\
                  calicoctl-win preflight --fix -c \"my node.yaml\" --sandbox node  # does the same, and asks first";
    let install = run(&broken, &["install", "-y", "-c", "my node.yaml"], 3)["error"]["checks"].take();
    let preflight = run(&broken, &["preflight", "-c", "my node.yaml"], 3)["checks"].take();
    for checks in [install, preflight] {
        let stopped = checks.as_array().unwrap().iter().find(|check| check["id"] == "RuntimeRunning").unwrap();
        assert_eq!(stopped["fix"], wanted);
    }
}

#[test]
fn json_is_one_document_with_the_result_of_the_run() {
    let lab = Lab::node();
    let result = lab.run("install -y -o json").exits(0).json();
    assert_eq!(result["apiVersion"], "calicoctl-win/v1alpha1");
    assert_eq!(result["kind"], "RunResult");
    assert_eq!(result["status"], "succeeded");
    assert_eq!(result["changed"], true);
    assert_eq!((&result["exit_code"], &result["exit_name"]), (&0.into(), &"OK".into()));
    assert_eq!(result["generation"], 1);
    assert_eq!(result["error"], Value::Null);
    let log = result["log"].as_str().unwrap();
    assert!(lab.path(log).is_file(), "{log}");
    assert_eq!(lab.read("C/ProgramData/calicoctl-win/state/last-run.json").trim(), result.to_string());

    let again = lab.run("install -y -o json").exits(0).json();
    assert_eq!(again["status"], "no_changes");
    assert_eq!(again["changed"], false);
    assert_eq!(again["generation"], 1);
    assert_ne!(again["run"], result["run"]);
}

#[test]
fn ndjson_reports_the_run_from_its_first_line_to_its_result() {
    let lab = Lab::node();
    let lines = lab.run("install -y -o ndjson").exits(0).ndjson();
    assert_eq!(lines[0]["tool"], "calicoctl-win");
    let result = lines.last().unwrap();
    assert_eq!(result["changed"], true);
    assert_eq!(result["generation"], 1);
    assert!(lines.iter().all(|line| line["run"] == result["run"]));
    let runtime = lines.iter().find(|line| line["check"]["id"] == "ContainerRuntime").unwrap();
    assert!(runtime["check"]["detail"].as_str().unwrap().starts_with("containerd 1."), "{runtime}");
    let folder = r"folder C:\Program Files\calicoctl-win";
    let planned = lines.iter().find(|line| line["type"] == "planned_change" && line["change"]["id"] == folder).unwrap();
    assert_eq!(planned["message"], format!("create {folder}"));
    let at = |kind: &str| lines.iter().position(|line| line["type"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    let network = lines.iter().position(|line| line["phase"]["id"] == "wait-network").unwrap();
    assert!(at("connectivity_notice") < network, "the notice comes too late");
    let starts = lines.iter().filter(|line| line["type"] == "phase_start" && line["phase"]["index"].is_u64());
    let (indices, totals): (Vec<_>, Vec<_>) =
        starts.map(|line| (line["phase"]["index"].as_u64().unwrap(), line["phase"]["total"].as_u64().unwrap())).unzip();
    assert_eq!(indices, (1..=totals[0]).collect::<Vec<_>>());

    // Each phase that ends has begun, with its own key.
    let keys = |kind: &str| {
        let those = lines.iter().filter(|line| line["type"] == kind);
        those.map(|line| line["phase"]["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let begun = keys("phase_start");
    assert_eq!(begun, keys("phase_complete"));
    assert_eq!(begun.iter().collect::<std::collections::BTreeSet<_>>().len(), begun.len(), "{begun:?}");

    let failed = lab.fails_at("put running CalicoFelix=fail", "service restart -y -o ndjson").exits(1).ndjson();
    assert_eq!(failed.last().unwrap()["level"], "error");
}

#[test]
fn yaml_is_the_same_document() {
    let lab = Lab::installed();
    let yaml = lab.run("status -o yaml").exits(0);
    let from_yaml: Value = serde_yaml::from_str(&yaml.stdout).unwrap();
    assert_eq!(from_yaml, lab.run("status -o json").exits(0).json());
    let result = lab.run("install -y -o yaml").exits(0);
    let result: Value = serde_yaml::from_str(&result.stdout).unwrap();
    assert_eq!((&result["kind"], &result["changed"]), (&"RunResult".into(), &false.into()));
}

#[test]
fn every_failure_is_pure_json_too() {
    let lab = Lab::node();
    lab.write("bad.yaml", "spec: {calicoNetwork: {vxlan: {vxlanVNI: 4095}}}\n");
    lab.write("broken.zip", "PK\u{3}\u{4} and no more");
    let before = lab.picture_without_state();
    for (fault, words, code) in [
        // First, while the cache is empty.
        ("release corrupt", "install -y", 6),
        ("", "instal", 64),
        ("", "install --no-such-flag", 64),
        ("", "install", 64), // nobody can confirm
        ("", "install -y --set no.such.field=1", 4),
        ("", "install -y -c bad.yaml", 4),
        ("", "install -y -c nowhere.yaml", 4),
        ("", "install -y --release broken.zip", 6),
        ("", "install -y --release v9.9.9", 15),
        ("", "install -y --kubeconfig nowhere", 7),
        ("", "install -y --plan nowhere.json", 4),
        ("api down", "install -y", 7),
        ("api GET /api/v1/nodes/*=403", "install -y", 17),
        ("facts=fail", "install -y", 1),
        ("", "service start", 16),
        ("no such fault", "install -y", 64),
        ("", "explain NoSuchThing", 64),
    ] {
        for format in ["json", "ndjson"] {
            let output = lab.fails_at(fault, &format!("{words} -o {format}")).exits(code);
            let result = match format {
                "json" => output.json(),
                _ => output.ndjson().pop().unwrap(),
            };
            assert_eq!(result["exit_code"], code, "{words}: {result}");
            assert_eq!((&result["success"], &result["changed"]), (&json!(false), &json!(false)), "{words}: {result}");
            assert_eq!(result["error"]["retryable"], code == 7, "{words}: {result}");
            for text in ["what", "id"] {
                assert!(!result["error"][text].as_str().unwrap().is_empty(), "{words}: {result}");
            }
            assert!(result["error"]["chain"][0].is_string(), "{words}: {result}");
        }
    }
    lab.picture_without_state().same_as(&before);
}

#[test]
fn text_has_the_progress_on_stdout_and_the_error_on_stderr() {
    let lab = Lab::node();
    lab.write("bad.yaml", "spec:\n  calicoNetwork:\n    backend: vxlam\n");
    let failed = lab.run("install -y -c bad.yaml").exits(4);
    insta::assert_snapshot!(failed.screen(), @r#"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    result: INVALID_CONFIG (exit 4) changed=false reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    --- stderr
    error: the config is not valid
      cause: bad.yaml:3:14: spec.calicoNetwork.backend: `vxlam` is not allowed; did you mean `vxlan`? allowed: auto, vxlan, windows-bgp, none
      state: nothing was changed
      fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
      more: calicoctl-win explain ConfigInvalid
    "#);
    let quiet = lab.run("install -y -q").exits(0);
    assert!(quiet.stdout.lines().all(|line| line.starts_with("[NOTE]") || line.starts_with("result: OK")), "{quiet}");
    assert_eq!(quiet.stderr, "");
    assert!(quiet.stdout.is_ascii());
}

/// A node on which Flannel is still installed, and whose runtime is stopped.
pub(super) fn with_several_failures() -> Lab {
    let lab = Lab::node();
    let flannel =
        "networks:\n  vxlan0: {id: 0f, kind: Overlay, subnet: 10.244.3.0/24, gateway: 10.244.3.1, vsid: 4096}\n";
    lab.edit_yaml(|yaml| yaml.replacen("networks:\n", flannel, 1).replace("    pid: 1484\n", ""));
    let other = "{\"name\": \"cbr0\", \"plugins\": [{\"type\": \"flannel\"}]}";
    lab.write("node/C/Program Files/containerd/cni/conf/05-flannel.conflist", other);
    lab
}

#[test]
fn each_failed_check_has_its_own_fix_with_one_command_a_line() {
    let lab = with_several_failures();
    let before = lab.picture_without_state();
    let failed = lab.run("install -y").exits(3);
    insta::assert_snapshot!(failed.stderr, @r"
    error: 3 checks failed: RuntimeRunning, CniConfig, NoFlannel
      RuntimeRunning: the service containerd is stopped
        why: kubelet and the pods' network require a running container runtime
        fix:
          Start-Service containerd
          calicoctl-win preflight --fix --sandbox node  # does the same, and asks first
      CniConfig: other configurations in the CNI folder: 05-flannel.conflist (flannel)
        why: the container runtime uses the first file in its CNI folder, so with two plugins the file names decide which one is used
        fix: move what is named here out of the CNI folder, or set spec.calicoNetwork.backend: none to keep another plugin
      NoFlannel: Flannel was found: network vxlan0
        why: Flannel's HNS network occupies the adapter that Calico needs, and flanneld re-creates it
        fix:
          calicoctl-win migrate from flannel --dry-run --sandbox node  # shows what it removes
          calicoctl-win migrate from flannel --sandbox node  # drains the node, removes Flannel and installs Calico
      state: nothing was changed
      fix: fix what each check names, then run the command again
      more: calicoctl-win explain RuntimeRunning
    ");
    let result = lab.run("install -y -o json").exits(3).json();
    let report = lab.run("preflight -o json").exits(3).json();
    let checks = report["checks"].as_array().unwrap().iter();
    let theirs: Vec<&Value> = checks.filter(|check| check["status"] == "fail").collect();
    assert_eq!(result["error"]["checks"].as_array().unwrap().iter().collect::<Vec<_>>(), theirs);
    assert!(theirs.len() == 3 && !result["error"]["hint"].as_str().unwrap().contains(';'), "{result}");

    let one = lab.run("install -y --ignore-preflight-errors CniConfig,RuntimeRunning -o json").exits(3).json();
    assert_eq!(one["error"]["what"], "Flannel was found: network vxlan0");
    assert_eq!((&one["error"]["hint"], &one["error"]["checks"][0]["fix"]), (&theirs[2]["fix"], &theirs[2]["fix"]));
    lab.picture_without_state().same_as(&before);
}

#[test]
fn previous_names_of_checks_are_accepted_for_one_release() {
    let lab = with_several_failures();
    let note =
        "CheckRenamed: the check `OtherCni` is now named `CniConfig`; the next release does not accept the old name";
    for words in
        ["--ignore-preflight-errors othercni,RuntimeRunning", "--set preflight.ignore=[OtherCni,RuntimeRunning]"]
    {
        let refused = lab.run(&format!("install -y {words} -o json")).exits(3).json();
        assert_eq!(refused["error"]["what"], "Flannel was found: network vxlan0");
        let warnings: Vec<&str> = refused["warnings"].as_array().unwrap().iter().filter_map(|w| w.as_str()).collect();
        assert!(warnings.contains(&note) && !warnings.iter().any(|w| w.starts_with("UnknownCheck")), "{warnings:?}");
    }
    let waits = "preflight --wait --timeout 3s --ignore-preflight-errors OtherCni,OtherCni";
    let told = lab.run(waits).exits(3);
    assert_eq!(told.stderr.matches("CheckRenamed").count() + told.stdout.matches("CheckRenamed").count(), 1, "{told}");
    let current = lab.bare("explain CniConfig -o json").exits(0).json();
    let former = lab.bare("explain othercni -o json").exits(0).json();
    assert_eq!(former["id"], "CniConfig");
    let text = format!(
        "OtherCni is now named CniConfig. The next release does not accept the old name.\n\n{}",
        current["text"].as_str().unwrap()
    );
    assert_eq!(former["text"], text);
}

#[test]
fn an_unknown_check_gets_a_suggestion() {
    let lab = Lab::node();
    for (typed, meant) in [
        ("CniConfg", "; did you mean `CniConfig`?"),
        ("strictaffinty", "; did you mean `StrictAffinity`?"),
        ("xyzzy", ""),
    ] {
        let no_such = format!("there is no check `{typed}` to ignore{meant}");
        for verb in ["install -y", "preflight"] {
            let refused = lab.run(&format!("{verb} --ignore-preflight-errors Flannel,{typed} -o json")).exits(64);
            let what = refused.json()["error"]["what"].to_string();
            assert!(what.contains(&no_such) && what.contains("--ignore-preflight-errors"), "{refused}");
        }
        // A config may outlive a check.
        let set = format!("install -y --dry-run --set preflight.ignore=[{typed}] -o json");
        let result = lab.run(&set).exits(0).json();
        let warning = format!("UnknownCheck: {no_such}");
        assert!(result["warnings"].as_array().unwrap().contains(&warning.as_str().into()), "{result:#}");
    }
}

#[test]
fn a_typo_in_an_option_or_a_field_gets_a_suggestion() {
    let lab = Lab::node();
    for (words, code, meant) in [
        ("install --detatch", 64, "--detach"),
        ("node drain --drain-timout 5m", 64, "--drain-timeout"),
        ("install -y --set calicoNetwork.vxlan.vxlanVIN=5000", 4, "did you mean `vxlanVNI`?"),
    ] {
        let error = lab.run(&format!("{words} -o json")).exits(code).json()["error"].to_string();
        assert!(error.contains(meant), "{words}: {error}");
    }
}

/// Tests parse it, so it must not depend on the command line.
#[test]
fn a_wrong_command_line_is_reported_in_every_format() {
    let lab = Lab::new();
    for words in ["preflight --bogus -o junit", "preflight --bogus --output=junit"] {
        let told = lab.bare(words).exits(64);
        assert!(told.stderr.is_empty() && told.stdout.starts_with("<?xml"), "{told}");
        assert!(told.stdout.contains("<error") && told.stdout.contains("--bogus"), "{told}");
    }
    let yaml = lab.bare("instal -oyaml").exits(64);
    let result: Value = serde_yaml::from_str(&yaml.stdout).unwrap();
    assert_eq!((&result["exit_name"], yaml.stderr.as_str()), (&"USAGE".into(), ""));
}

#[test]
fn phases_outside_the_engine_begin_and_end_too() {
    let lab = Lab::installed();
    let cached = std::fs::read_dir(lab.on_node("cache")).unwrap().map(|entry| entry.unwrap().path());
    let zip = cached.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "zip")).unwrap();
    let words = format!("release extract {} --dest out -o ndjson", zip.display());
    let lines = lab.run(&words).exits(0).ndjson();
    assert!(
        lines.iter().any(|line| line["type"] == "phase_complete" && line["phase"]["key"] == "unpack"),
        "{lines:#?}"
    );
    let failed = lab.run(&words).ndjson();
    assert_eq!(failed.last().unwrap()["success"], false, "{failed:#?}");
}

#[test]
fn exit_codes_can_be_those_of_a_provisioner() {
    let lab = Lab::node();
    let retry = lab.fails_at("api down", "install -y --exit-codes cloudbase-init");
    // Unix keeps eight bits of the number.
    assert_eq!(retry.code & 0xff, 1002 & 0xff, "{retry}");
    let _native = lab.fails_at("api down", "install -y --exit-codes simple").exits(7);
    // A permanent error is not retried at every boot.
    let _denied = lab.fails_at("api GET /version*=401", "install -y --exit-codes cloudbase-init").exits(17);

    let release_away =
        |words: &str| lab.fails_at("release 503", &format!("install -y --set transport.retries=0 {words}"));
    let away = release_away("-o json").exits(18).json();
    assert_eq!((&away["exit_name"], &away["error"]["retryable"]), (&json!("RELEASE_UNAVAILABLE"), &json!(true)));
    let retry = release_away("--exit-codes cloudbase-init");
    assert_eq!(retry.code & 0xff, 1002 & 0xff, "{retry}");
}

#[test]
fn secrets_of_the_command_line_and_the_config_are_not_shown_or_logged() {
    let lab = Lab::node();
    let set = "--set services.extraEnv.CUSTOM=hunter2";
    let _done = lab.run(&format!("install -y {set}")).exits(0);
    let wrong = "install -y -o json --set=services.extraEnv.A=hunter2 --proxy http://me:hunter2@p:1";
    let refused = lab.run(wrong).exits(4).json();
    assert!(!refused.to_string().contains("hunter2"), "{refused:#}");
    for words in ["config show", "plan -v", "status -v"] {
        for format in ["text", "json"] {
            let output = lab.run(&format!("{words} {set} -o {format}"));
            assert!(!format!("{output}").contains("hunter2"), "{words} {format}");
        }
    }
    for name in lab.picture().files_with("hunter2") {
        let name = name.rsplit_once(' ').unwrap().0.rsplit('/').next().unwrap().to_owned();
        // Blobs of the store have their digest as their name.
        assert!(["config.ps1", "services.json"].contains(&name.as_str()) || name.len() == 64, "{name}");
    }
}

#[test]
fn text_from_a_cluster_cannot_control_the_terminal() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| yaml.replace("hostName: ", "hostName: \"\\e[2J[ OK ]\" # "));
    let shown = ["status", "plan", "install -y"].map(|words| format!("{}", lab.run(words)));
    assert!(!shown.concat().contains('\u{1b}'), "{shown:?}");
    assert!(shown[2].contains(r"on \u{1b}[2J[ OK ]: Windows"), "{}", shown[2]);
}
