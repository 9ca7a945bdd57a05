//! `packaging/hostprocess`: Kubernetes runs the program on its nodes. Nothing here is Windows: the script's PowerShell is
//! checked, and its commands run in a sandbox. `real::hostprocess` gives the manifests to a real API server.

use std::fs::{self, File};

use regex::Regex;
use serde_json::{Value, json};

use super::schemas;
use crate::lab::{Lab, Output};
use crate::{powershell, read};

const SCRIPT: &str = "packaging/hostprocess/run.ps1";

/// The readiness of the pods.
const READY: &str = "packaging/hostprocess/ready.ps1";

/// The words that the script runs for these arguments, with its files beside the sandbox. The Job of an uninstall has no
/// config.
pub fn detached(arguments: &str) -> String {
    let script = read(SCRIPT);
    assert!(script.contains("(& $program @args @options)"), "it runs them");
    let lines: Vec<&str> = script.lines().filter(|line| line.trim_start().starts_with("$options ")).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    let option = Regex::new(r#"['"](--[^'"]+)['"]"#).unwrap();
    let all = lines.iter().flat_map(|line| option.captures_iter(line)).map(|found| found.get(1).unwrap().as_str());
    let words: Vec<&str> = all.filter(|word| arguments != "uninstall" || !word.starts_with("--config")).collect();
    format!("{arguments} {}", words.join(" ")).replace("$config", "node.yaml").replace("$kubeconfig", "kubeconfig")
}

/// The line of the script that begins so, with the name of a run.
pub fn after(beginning: &str, run: &str) -> String {
    let script = read(SCRIPT);
    let mut lines = script.lines().filter_map(|line| line.trim_start().strip_prefix("& $program "));
    let line = lines.find(|line| line.starts_with(beginning));
    line.unwrap().replace("$run", run)
}

/// What `ready.ps1` ends with for a document of `status`, by its own conditions.
fn readiness(status: &Value) -> i32 {
    let equals = Regex::new(r"^\(?\$status\.([\w.]+?)( -join ',')?\)? -eq '(\w+)'$").unwrap();
    let holds = |one: &str| {
        let found = equals.captures(one).unwrap_or_else(|| panic!("{READY} has another condition: {one}"));
        // A property of a list is that of each of its entries.
        let read = |value: &Value, name: &str| match value {
            Value::Array(all) => all.iter().map(|one| one[name].clone()).collect(),
            value => value[name].clone(),
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let value = match found[1].split('.').fold(status.clone(), |value, name| read(&value, name)) {
            Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(","),
            value => text(&value),
        };
        value.eq_ignore_ascii_case(&found[3])
    };
    let script = read(READY);
    let rules =
        script.lines().filter_map(|line| line.strip_prefix("if (")?.strip_suffix(" }")?.split_once(") { exit "));
    let last = script.lines().last().unwrap().strip_prefix("exit ").unwrap();
    assert_eq!(rules.clone().count(), script.matches("if (").count(), "{READY} has another rule");
    let code =
        rules.into_iter().find(|(condition, _)| condition.split(" -and ").all(holds)).map_or(last, |(_, code)| code);
    code.parse().unwrap()
}

/// The fields of the cause of a failed run, in the script's own order, each from where the script has it.
fn cause(script: &str, result: &Value) -> Value {
    let value = |source: &str| match source.strip_prefix("$Result.") {
        Some(path) => path.split('.').fold(result, |value, field| &value[field]).clone(),
        None => json!(source.trim_matches('\'')),
    };
    let between = |begins: &str, ends: &str| script.split_once(begins).unwrap().1.split_once(ends).unwrap().0;
    let mut cause = json!({});
    let fields = Regex::new(r"'(\w+)' = ([^; ]+)").unwrap();
    for found in fields.captures_iter(between("$cause = [ordered]@{", "}\n")) {
        cause[&found[1]] = value(&found[2]);
    }
    let of_error = between("    if ($Result.error) {\n", "\n    }\n");
    let sets = Regex::new(r"\$cause\['(\w+)'\] = (\S+)").unwrap();
    for found in sets.captures_iter(of_error).filter(|_| !result["error"].is_null()) {
        cause[&found[1]] = value(&found[2]);
    }
    cause
}

/// The last line of the script for the result of a failed run: what `Write-Result` does, with the script's own numbers.
pub fn last_line(result: &Value) -> String {
    let script = read(SCRIPT);
    let number = |before: &str| -> usize {
        let found = Regex::new(&format!(r"{before} (\d+)")).unwrap().captures(&script);
        found.unwrap_or_else(|| panic!("{SCRIPT} has no {before}"))[1].parse().unwrap()
    };
    let (mut length, less) = (number(r"\$length ="), number(r"\$length = \$length -"));
    let most = number(r"GetByteCount\(\$line\) -gt");
    assert!(script.contains("if ($what.Length -gt $length) { $cause['what'] = $what.Substring(0, $length) + '...' }"));
    assert!(script.contains(&format!("GetByteCount($line) -gt {most} -and $length -gt 0)")), "the condition");
    let mut cause = cause(&script, result);
    let what: Vec<char> = cause["what"].as_str().unwrap().chars().collect();
    loop {
        let cut = what.iter().take(length).collect::<String>() + if what.len() > length { "..." } else { "" };
        cause["what"] = json!(cut);
        let mut line = cause.to_string();
        // As ConvertTo-Json of Windows PowerShell 5.1 writes them.
        for (c, escape) in [('\'', "\\u0027"), ('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026")] {
            line = line.replace(c, escape);
        }
        let line = format!("result: {line}\n");
        length -= less;
        if line.trim_end().len() <= most || length == 0 {
            return line;
        }
    }
}

/// What kubelet keeps of a log as the message of a failed container: MaxContainerTerminationMessageLogLength in
/// Kubernetes' `pkg/kubelet/container/runtime.go`.
pub fn kept(log: &str) -> &str {
    const MOST: usize = 2048;
    let start = (log.len().saturating_sub(MOST)..).find(|at| log.is_char_boundary(*at));
    &log[start.unwrap()..]
}

pub fn lab() -> Lab {
    let lab = Lab::node();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let _started = lab.run("cluster check").exits(0);
    lab.write("kubeconfig", super::credentials::cluster(&lab).admin_kubeconfig());
    lab
}

fn documents(file: &str) -> Vec<Value> {
    let text = read(&format!("packaging/hostprocess/{file}"));
    text.split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap()).collect()
}

#[test]
fn the_script_is_valid_and_uses_only_what_windows_has() {
    for file in [SCRIPT, READY] {
        let script = read(file);
        assert_eq!(powershell::errors(&script), None, "{file}");
        assert_eq!(powershell::unknown(&script, &Default::default()), [""; 0], "{file}");
        assert!(script.is_ascii(), "Windows PowerShell reads {file} with the machine's code page");
    }
}

#[test]
fn the_commands_of_the_script_install_a_node_and_tell_how_it_ended() {
    let lab = lab();
    let started = lab.run(&detached("apply --pod-selector=app.kubernetes.io/name!=calicoctl-win-job")).exits(0).json();
    let run = started["run"].as_str().unwrap();
    let ended = lab.run(&after("status", run)).exits(0);
    assert!(ended.stdout.contains(&format!("run {run} ended: OK")), "{ended}");
    assert!(lab.run(&after("logs", run)).exits(0).stdout.contains(&format!("run {run}: ")));
    lab.healthy();

    // The same pod starts again after a boot of its node.
    let started = lab.run(&detached("apply")).exits(0).json();
    let again = lab.run(&after("status", started["run"].as_str().unwrap())).exits(0);
    assert!(again.stdout.contains("nothing to do"), "{again}");

    let started = lab.run(&detached("uninstall")).exits(0).json();
    let _ended = lab.run(&after("status", started["run"].as_str().unwrap())).exits(0);
    assert_eq!(lab.run("status -o json").exits(16).json()["overall"], "NotInstalled");
}

/// The rule of the rollout: which nodes count as done.
#[test]
fn a_pod_is_ready_if_status_says_that_calico_works_on_its_node() {
    let script = read(READY);
    let (_, words) = script.split_once("(& $program ").unwrap();
    let words = words.split_once(')').unwrap().0;
    // Every property that it reads is one of the document, and every state one of its states.
    let schema = &schemas::published()["Status"];
    let resolved = |of: &Value| match of["$ref"].as_str() {
        Some(reference) => schema.pointer(&reference[1..]).unwrap().clone(),
        None => of.clone(),
    };
    let path = Regex::new(r"\$status((?:\.\w+)+)").unwrap();
    let paths: Vec<String> = path.captures_iter(&script).map(|found| found[1].to_owned()).collect();
    assert!(paths.len() >= 4, "{paths:#?}");
    for path in &paths {
        let mut at = schema.clone();
        for name in path[1..].split('.') {
            let of = if at["items"].is_object() { resolved(&at["items"]) } else { at.clone() };
            at = resolved(&of["properties"][name]);
            assert!(at.is_object(), "{path} is not in the document of status");
        }
    }
    let states = Regex::new(r"\$status\.overall -eq '(\w+)'").unwrap();
    for found in states.captures_iter(&script) {
        let all = schema["$defs"]["Overall"].to_string();
        assert!(all.contains(&format!("\"{}\"", &found[1])), "{} is none of {all}", &found[1]);
    }

    let lab = Lab::installed();
    let probe = |code: i32| {
        let status = lab.run(words).exits(code).json();
        schemas::check(&status);
        (readiness(&status), status)
    };
    let (code, status) = probe(0);
    assert_eq!((code, &status["overall"]), (0, &json!("Healthy")), "{status:#}");
    // During a change of the VNI, the cluster follows later.
    let _changed = lab.run("apply -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    let (code, status) = probe(12);
    assert_eq!((code, &status["problems"][0]["id"]), (0, &json!("MixedVni")), "{status:#}");
    // Not if something else is wrong, too.
    lab.edit_yaml(|yaml| yaml.replacen("vsid: 5000\n", "vsid: 5000\n    unseenByV2: true\n", 1));
    let (code, status) = probe(12);
    assert_eq!((code, status["problems"].as_array().unwrap().len()), (1, 2), "{status:#}");
    let felix = |felix: &mut Value| felix["spec"]["vxlanVNI"] = json!(5000);
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", felix);
    let (code, status) = probe(12);
    assert_eq!((code, &status["overall"]), (1, &json!("Degraded")), "{status:#}");
    let _removed = lab.run("uninstall -y").exits(0);
    let (code, status) = probe(16);
    assert_eq!((code, &status["overall"]), (1, &json!("NotInstalled")), "{status:#}");
    // What is no document of status.
    assert_eq!(readiness(&json!({ "kind": "RunResult", "error": {} })), 1);
}

/// Its container is deleted, or its node loses it, while the run is in progress: the run holds the lock all the same.
#[test]
fn a_container_that_finds_a_run_in_progress_tries_again() {
    let lab = lab();
    let first = lab.run(&detached("apply")).exits(0).json();
    let _ended = lab.run(&after("status", first["run"].as_str().unwrap())).exits(0);
    let lock = File::options().write(true).open(lab.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    let holder = json!({ "run": "r", "command": "apply", "pid": 1, "since": "2026-01-02T15:04:05Z" });
    fs::write(lab.on_node("C/ProgramData/calicoctl-win/lock.json"), holder.to_string()).unwrap();
    let busy = lab.run(&detached("apply")).exits(14).json();
    assert_eq!(busy["error"]["id"], "Busy", "{busy:#}");
    drop(lock);

    // A run by hand from another machine: the run starts, and its end has the code.
    super::lease::held_elsewhere(&lab);
    let started = lab.run(&detached("apply --set=services.felixLogSeverity=debug")).exits(0).json();
    let run = started["run"].as_str().unwrap();
    let _busy = lab.run(&after("status", run)).exits(14);
    let ended = lab.run(&format!("status --run={run} --output=json")).json();
    assert_eq!(ended["result"]["error"]["id"], "NodeLeased", "{ended:#}");
    lab.edit_object(super::lease::KIND, super::lease::NAME, |lease| {
        lease["spec"]["renewTime"] = "2026-01-02T15:04:05.000000Z".into();
    });
    // The script waits for the end in the loop that asks for this code.
    let script = read(SCRIPT);
    let (_, tries) = script.split_once("\ndo {\n    $started = ").unwrap();
    let (tries, _) = tries.split_once("\n} while ($busy)").unwrap();
    let (_, judged) = tries.split_once("& $program status --wait").expect("it waits there");
    assert!(judged.contains("$code = $LASTEXITCODE") && judged.contains("$busy = $code -eq 14"), "{tries}");
    let second = lab.run(&detached("apply")).exits(0).json();
    let _ended = lab.run(&after("status", second["run"].as_str().unwrap())).exits(0);
    lab.healthy();
}

#[test]
fn the_cause_of_a_failed_run_is_whole_in_what_kubelet_keeps() {
    for part in ["a", "'", "\"", "\\", "\u{4e2d}"] {
        let what = part.repeat(5000);
        let error = json!({ "exit_name": "FAILED", "error": { "id": "ReleaseDigestMismatch", "what": what } });
        let log = format!("{}\n{}", "a line of the log\n".repeat(500), last_line(&error));
        let line = kept(&log).lines().last().unwrap();
        let cause: Value = serde_json::from_str(line.strip_prefix("result: ").unwrap()).unwrap();
        assert_eq!(cause["id"], "ReleaseDigestMismatch");
        let named = cause["what"].as_str().unwrap().strip_suffix("...").unwrap();
        assert!(named.chars().count() >= 200 && what.starts_with(named), "{cause}");
    }
    let short = json!({ "exit_name": "FAILED", "msg": "it failed", "error": null });
    assert_eq!(last_line(&short), "result: {\"exit_name\":\"FAILED\",\"what\":\"it failed\",\"id\":\"Failed\"}\n");
}

#[test]
fn the_pods_start_before_there_is_a_network_and_run_as_system_of_the_host() {
    let install = documents("install.yaml");
    let config = install.iter().find(|one| one["kind"] == "ConfigMap").unwrap();
    let jobs = [documents("job.yaml"), documents("uninstall.yaml")].concat();
    for job in &jobs {
        // Else `fleet status` counts its node, and the Job's drain of its node evicts it.
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &json!({ "app.kubernetes.io/name": "calicoctl-win-job" }));
    }
    let pods: Vec<Value> =
        install.iter().chain(&jobs).filter_map(|one| one.pointer("/spec/template/spec").cloned()).collect();
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert_eq!((&pod["hostNetwork"], &pod["os"]["name"]), (&json!(true), &json!("windows")));
        assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]), "the node is not Ready without a network");
        let windows = json!({ "hostProcess": true, "runAsUserName": r"NT AUTHORITY\SYSTEM" });
        assert_eq!(pod["securityContext"]["windowsOptions"], windows);
        let containers = ["initContainers", "containers"].into_iter().filter_map(|kind| pod[kind].as_array()).flatten();
        for container in containers {
            let image = format!("registry.example.com/calicoctl-win:{}", env!("CARGO_PKG_VERSION"));
            assert_eq!(container["image"], image);
        }
    }
    let lab = Lab::new();
    lab.write("node.yaml", config["data"]["node.yaml"].as_str().unwrap());
    let _valid: Output = lab.bare("config validate node.yaml").exits(0);
    // The image of the script has what the pods run.
    let image = read("packaging/hostprocess/image.sh");
    assert!(image.contains("--config.entrypoint ./run.ps1") && image.contains("$here/run.ps1 $here/ready.ps1"));
}
