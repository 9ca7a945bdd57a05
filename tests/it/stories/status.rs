//! `status` shows the current state, also during a run and after an interrupted one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::lab::Lab;

const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";
const CONF: &str = "C/Program Files/containerd/cni/conf/10-calico.conf";
const CNI: &str = r"file C:\Program Files\containerd\cni\conf\10-calico.conf";

fn text(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn a_cni_configuration_that_an_interrupted_run_withdrew_is_shown_as_withdrawn() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put running CalicoNode#2=exit-before", VNI).exits(137);
    assert!(!lab.on_node(CONF).exists());

    let shown = lab.run("status").exits(12);
    let line = |start: &str| shown.stdout.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
    let withdrawn = "Withdrawn   withdrawn by the interrupted run; new pods cannot start";
    assert!(line("CNI conf").contains(withdrawn), "{shown}");
    assert!(line("HNS Calico").contains("Missing"), "{shown}");
    assert!(line("CalicoNode").contains("Stopped"), "{shown}");

    let status = lab.run("status -o json").exits(12).json();
    assert_eq!((&status["overall"], &status["cni"]["state"]), (&json!("Failed"), &json!("Withdrawn")), "{status:#}");
    let drift = text(&status["drift"]);
    for gone in [CNI, "hns-network Calico", "running CalicoNode", "running CalicoFelix"] {
        assert!(drift.contains(&gone), "{gone}: {drift:?}");
    }
    let reasons = text(&status["reasons"]);
    let no_pods = "the CNI configuration is withdrawn by the interrupted run; new pods cannot start";
    assert!(reasons.contains(&no_pods), "{reasons:?}");

    let _done = lab.run("resume -y").exits(0);
    let status = lab.healthy();
    assert_eq!((&status["cni"]["state"], &status["drift"]), (&json!("OK"), &json!([])), "{status:#}");
}

#[test]
fn each_problem_has_an_id_and_a_command() {
    let stopped = Lab::installed();
    let _stopped = stopped.run("service stop -y").exits(0);
    let interrupted = Lab::installed();
    let _killed = interrupted.fails_at("put running CalicoNode#2=exit-before", VNI).exits(137);
    let left_alone = Lab::node();
    let _installed = left_alone.run("install -y --set services.start=false").exits(0);
    for (lab, problems) in [
        (&stopped, &["ServiceStopped repair", "ServiceStopped repair", "NodeDrifted repair"][..]),
        (
            &interrupted,
            &[
                "ServiceStopped resume",
                "ServiceStopped resume",
                "CniConfigAbsent resume",
                "NodeDrifted resume",
                "InterruptedRun resume",
            ],
        ),
        (&left_alone, &["ServiceNotStarted service start", "ServiceNotStarted service start"]),
    ] {
        let status = lab.run("status -o json").exits(12).json();
        let said = status["problems"].as_array().unwrap();
        let texts = |field: &str| said.iter().map(|one| one[field].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(texts("message"), text(&status["reasons"]), "{status:#}");
        let found: Vec<String> = texts("id").iter().zip(texts("command")).map(|(id, c)| format!("{id} {c}")).collect();
        let wanted = problems.iter().map(|problem| {
            let (id, words) = problem.split_once(' ').unwrap();
            format!("{id} calicoctl-win {words} --sandbox node")
        });
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{status:#}");
        let shown = lab.run("status").exits(12).stdout;
        for (message, command) in texts("message").into_iter().zip(texts("command")) {
            let (_, after) = shown.split_once(&format!("! {message}\n")).unwrap_or_else(|| panic!("{shown}"));
            let line = after.lines().find(|line| !line.starts_with("! ")).unwrap();
            assert_eq!(line, format!("    {command}"), "{shown}");
        }
    }
}

/// projectcalico/calico 9120: everything looks well in version 1 of HNS, and Felix and kube-proxy find no network.
#[test]
fn a_network_that_version_2_of_hns_no_longer_shows_makes_the_node_degraded() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| yaml.replacen("vsid: 4096\n", "vsid: 4096\n    unseenByV2: true\n", 1));

    let status = lab.run("status -o json").exits(12).json();
    assert_eq!(status["overall"], "Degraded", "{status:#}");
    let unseen: Vec<_> =
        status["networks"].as_array().unwrap().iter().filter(|is| is["unseen_by_v2"] == true).collect();
    assert_eq!((unseen.len(), &unseen[0]["name"]), (1, &json!("Calico")), "{status:#}");
    let reasons = text(&status["reasons"]);
    assert_eq!(
        reasons,
        ["version 2 of HNS does not show the HNS network Calico: Calico and kube-proxy do not find it"]
    );
    assert_eq!(status["problems"][0]["command"], "calicoctl-win explain HnsNetworkUnseen", "{status:#}");
}

#[test]
fn a_run_in_progress_does_not_hide_what_it_has_withdrawn() {
    let lab = Lab::installed();
    let mut command = lab.command(&format!("{VNI} -o ndjson --sandbox node"));
    command.env("CALICO_WIN_SANDBOX_FAULT", "put running CalicoNode#2=hang").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let reached = lines.any(|line| line.contains("\"phase_start\"") && line.contains("services-start"));
    let status = lab.run("status -o json");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reached, "the run ended before it started a service");
    let status = status.exits(0).json();
    assert_eq!((&status["overall"], &status["cni"]["state"]), (&json!("Changing"), &json!("Withdrawn")), "{status:#}");
    assert!(text(&status["drift"]).contains(&CNI), "{status:#}");
    let no_pods = "the CNI configuration is withdrawn by the run in progress; new pods cannot start";
    assert!(text(&status["reasons"]).contains(&no_pods), "{status:#}");
}

/// Each look is whole, and the next one shows what has changed since.
#[test]
fn status_is_shown_again_until_somebody_ends_it() {
    let lab = Lab::installed();
    let mut child = lab.command("status --watch -o ndjson --sandbox node").stdout(Stdio::piped()).spawn().unwrap();
    let mut looks = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .filter(|line| line["type"] == "document")
        .map(|line| line["document"]["overall"].clone());
    assert_eq!(looks.next(), Some(json!("Healthy")));
    let _stopped = lab.run("service stop -y").exits(0);
    // One look may have been on its way.
    assert!(looks.by_ref().take(3).any(|overall| overall != "Healthy"), "it shows what was");
    child.kill().unwrap();
    child.wait().unwrap();

    let mut child = lab.command("status --watch --sandbox node").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let time = lines.next().unwrap();
    assert!(time.starts_with("20") && time.contains(':'), "{time}");
    assert!(lines.by_ref().take(2).any(|line| line.starts_with("OVERALL: ")), "no verdict at the top");
    assert!(lines.any(|line| line.starts_with("OVERALL: ")), "it is shown once");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Wherever a run ends: what `status` shows exists, and what it shows as OK is unchanged.
#[test]
fn wherever_a_run_is_interrupted_status_shows_the_actual_state() {
    for (words, withdraws) in
        [("install -y", false), (VNI, true), ("upgrade -y --release v3.33.0", false), ("uninstall -y", true)]
    {
        let start = if words.starts_with("install") { Lab::node() } else { Lab::installed() };
        let before = fs::read(start.on_node(CONF)).ok();
        let mut withdrawn = 0;
        for n in (1..400).step_by(3) {
            let lab = start.copy();
            if lab.fails_at(&format!("*#{n}=exit-after"), words).code == 0 {
                break;
            }
            let status = lab.run("status -o json").json();
            let at = format!("{words}, killed at {n}: {status:#}");
            let now = fs::read(lab.on_node(CONF)).ok();
            let state = status["cni"]["state"].as_str();
            let interrupted = status["run"]["interrupted"] == true;
            match state {
                // The CNI plugin may be another one.
                Some("OK" | "Drifted") => assert!(now.is_some(), "{at}"),
                Some("Withdrawn") => assert!(now.is_none() && before.is_some() && interrupted, "{at}"),
                Some("Missing") => assert!(now.is_none() && before.is_none(), "{at}"),
                _ => assert!(status["cni"].is_null() && now.is_none(), "{at}"),
            }
            withdrawn += usize::from(state == Some("Withdrawn"));
            if status["generation"] == 1 && before.is_some() {
                assert_eq!(text(&status["drift"]).contains(&CNI), now != before, "{at}");
                assert!(state != Some("OK") || now == before, "{at}");
            }
            let model = lab.read("node.yaml");
            for network in status["networks"].as_array().unwrap() {
                assert!(model.contains(&format!("  {}:", network["name"].as_str().unwrap())), "{at}");
            }
        }
        assert_eq!(withdrawn > 0, withdraws, "{words} was interrupted {withdrawn} times without a CNI configuration");
    }
}

/// Our own uninstall cordons the Node, and leaves it so.
#[test]
fn a_healthy_node_that_is_cordoned_says_how_it_is_uncordoned() {
    let lab = Lab::installed();
    let _gone = lab.run("uninstall --drain -y").exits(0);
    let _again = lab.run("install -y").exits(0);
    let shown = lab.run("status").exits(0).stdout;
    let told = "Node win-a1 is cordoned, so no new pods start here. To uncordon it: calicoctl-win node uncordon";
    assert!(shown.contains("OVERALL: HEALTHY") && shown.contains(told), "{shown}");
    let _free = lab.run("node uncordon -y").exits(0);
    let shown = lab.run("status").exits(0).stdout;
    assert!(!shown.contains("cordoned"), "{shown}");
}

#[test]
fn waiting_for_health_is_not_satisfied_by_a_run_in_progress() {
    let lab = Lab::installed();
    let state = "C/ProgramData/calicoctl-win";
    // Another process holds the lock.
    let held = fs::File::options().write(true).open(lab.on_node(&format!("{state}/lock"))).unwrap();
    held.lock().unwrap();
    let by = r#"{"run": "r", "command": "install", "pid": 1, "since": "2026-01-01T00:00:00Z"}"#;
    fs::write(lab.on_node(&format!("{state}/lock.json")), by).unwrap();
    let _healthy = lab.run("status").exits(0);
    let _changing = lab.run("status --wait --timeout 1s").exits(12);
    let busy = lab.run("install -y -o json").exits(14).json();
    assert_eq!(busy["exit_name"], "BUSY", "{busy:#}");
}

/// With `-vv` on stderr, whatever the format, and also if there is no response.
#[test]
fn each_request_to_the_api_server_is_shown_when_asked_twice_for_more() {
    let lab = Lab::installed();
    for words in ["status", "status -o json"] {
        let [less, more] = ["-v", "-vv"].map(|flag| lab.run(&format!("{words} {flag}")).exits(0));
        assert_eq!(less.stderr, "", "{less}");
        let asked = |start: &str| {
            let line = more.stderr.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{more}"));
            assert!(line.ends_with(" ms"), "{more}");
        };
        asked("GET /api/v1/nodes/win-a1: 200 in ");
        assert!(!more.stderr.contains('?') && !more.stdout.contains("GET /"), "neither a query nor on stdout: {more}");
    }
    let silent = lab.fails_at("api down", "status -vv").stderr;
    assert!(silent.lines().any(|line| line.starts_with("GET /") && line.contains(": no response in ")), "{silent}");
}
