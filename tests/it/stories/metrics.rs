//! `metrics`: what an alert needs, in Prometheus' format. `packaging/metrics/check.sh` gives it to Prometheus' own tools.

use std::fs;

use jiff::Timestamp;

use crate::lab::Lab;

/// The value of a sample, by its name and labels.
fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(&format!("calicoctl_win_{sample} "))?.parse().ok())
}

#[test]
fn a_healthy_node_has_its_state_versions_credentials_and_last_run() {
    let lab = Lab::installed();
    let text = lab.run("metrics").exits(0).stdout;
    let version = env!("CARGO_PKG_VERSION");
    for (sample, wanted) in [
        (r#"state{state="healthy"}"#, 1.0),
        (r#"state{state="failed"}"#, 0.0),
        (r#"node_info{node="win-a1",calico_version="v3.32.1",backend="vxlan"}"#, 1.0),
        ("generation", 1.0),
        ("drift_items", 0.0),
        (r#"service_running{service="CalicoNode"}"#, 1.0),
        (r#"service_ready{service="CalicoFelix"}"#, 1.0),
        (r#"service_restarts_total{service="CalicoFelix"}"#, 0.0),
        ("kubernetes_node_ready", 1.0),
        ("kubernetes_node_schedulable", 1.0),
        ("run_in_progress", 0.0),
        ("run_interrupted", 0.0),
        (r#"last_run_info{command="install",result="OK"}"#, 1.0),
        ("last_run_success", 1.0),
    ] {
        assert_eq!(value(&text, sample), Some(wanted), "{sample}\n{text}");
    }
    assert!(text.contains(&format!("calicoctl_win_build_info{{version=\"{version}\"")), "{text}");
    assert!(!text.contains("calicoctl_win_problems"), "there is none: {text}");

    // Seconds since 1970, and as status has it.
    let now = Timestamp::now().as_second() as f64;
    let status = lab.healthy();
    let expires: Timestamp = status["credentials"][0]["expires"].as_str().unwrap().parse().unwrap();
    let kubeconfig =
        r#"credentials_expiry_timestamp_seconds{kind="kubeconfig",path="C:\\CalicoWindows\\calico-kube-config"}"#;
    assert_eq!(value(&text, kubeconfig), Some(expires.as_second() as f64));
    for (sample, from, to) in [
        ("last_run_start_timestamp_seconds", now - 3600.0, now),
        ("collected_timestamp_seconds", now - 3600.0, now + 3600.0),
        ("last_run_duration_seconds", 0.001, 600.0),
    ] {
        assert!(value(&text, sample).is_some_and(|at| (from..=to).contains(&at)), "{sample}\n{text}");
    }
}

#[test]
fn what_is_wrong_is_counted_and_the_exit_code_stays_zero() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| yaml.replace("vsid: 4096", "vsid: 4200").replacen("    pid: 4004\n", "", 1));
    let text = lab.run("metrics").exits(0).stdout;
    for (sample, wanted) in [
        (r#"state{state="failed"}"#, 1.0),
        (r#"state{state="healthy"}"#, 0.0),
        (r#"problems{id="ServiceStopped"}"#, 1.0),
        (r#"problems{id="NodeDrifted"}"#, 1.0),
        (r#"service_running{service="CalicoFelix"}"#, 0.0),
        (r#"service_ready{service="CalicoFelix"}"#, 0.0),
        ("drift_items", 2.0),
    ] {
        assert_eq!(value(&text, sample), Some(wanted), "{sample}\n{text}");
    }

    let lab = Lab::installed();
    let change = "reconfigure -y --set services.felixLogSeverity=debug";
    let failed = lab.fails_at("put running CalicoFelix#2=fail", change).exits(9);
    let text = lab.run("metrics").exits(0).stdout;
    let info = r#"last_run_info{command="reconfigure",result="FAILED_ROLLED_BACK"}"#;
    assert_eq!(value(&text, info), Some(1.0), "{failed}\n{text}");
    assert_eq!(value(&text, "last_run_success"), Some(0.0));

    let _killed = lab.fails_at("put running CalicoFelix=exit-before", change).exits(137);
    assert_eq!(value(&lab.run("metrics").exits(0).stdout, "run_interrupted"), Some(1.0));
    let bare = Lab::node().run("metrics").exits(0).stdout;
    assert_eq!(value(&bare, r#"state{state="not_installed"}"#), Some(1.0));
    assert_eq!((value(&bare, "generation"), value(&bare, "last_run_success")), (None, None), "{bare}");
}

#[test]
fn the_restarts_of_a_component_are_those_that_its_agent_counts() {
    let lab = Lab::installed();
    let agent = lab.on_node("C/ProgramData/calicoctl-win/agent/felix.json");
    let text = fs::read_to_string(&agent).unwrap();
    fs::write(&agent, text.replace("\"restarts\": 0", "\"restarts\": 3")).unwrap();
    let text = lab.run("metrics").exits(0).stdout;
    assert_eq!(value(&text, r#"service_restarts_total{service="CalicoFelix"}"#), Some(3.0), "{text}");
    assert_eq!(value(&text, r#"service_restarts_total{service="CalicoNode"}"#), Some(0.0), "{text}");
}

#[test]
fn a_collector_reads_a_whole_file_or_the_former_one() {
    let lab = Lab::installed();
    let folder = lab.path("metrics");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("calico.prom");
    let _dry = lab.run("metrics --out metrics/calico.prom --dry-run").exits(0);
    assert!(!file.exists());
    let done = lab.run("metrics --out metrics/calico.prom -o json").exits(0).json();
    assert_eq!((&done["changed"], &done["success"]), (&false.into(), &true.into()), "nothing of the node: {done:#}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with('\n') && value(&text, "generation") == Some(1.0), "{text}");
    let _again = lab.run("metrics --out metrics/calico.prom").exits(0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");

    let refused = lab.run("metrics --out metrics/calico.txt -o json").exits(64).json();
    assert!(refused["error"]["what"].as_str().unwrap().contains("does not end in .prom"), "{refused:#}");
    let absent = lab.run("metrics --out nowhere/calico.prom -o json").exits(1).json();
    assert_eq!(absent["error"]["id"], "MetricsNotWritten", "{absent:#}");
}
