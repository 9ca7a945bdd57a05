//! `render`: what the first boot of a machine runs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::powershell;

const PROGRAM: &str = "--program-url https://example.com/calicoctl-win.exe --program-sha256 \
                       9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}, kubernetes: {serviceCIDRs: [10.96.0.0/12]}}\n");
    lab
}

/// The config in a script.
fn config_in(script: &str) -> Value {
    let line = script.lines().find_map(|line| line.strip_prefix("$config = '")).unwrap();
    let bytes = BASE64_STANDARD.decode(line.trim_end().trim_end_matches('\'')).unwrap();
    serde_yaml::from_slice(&bytes).unwrap()
}

fn is_powershell(script: &str) {
    let script = script.replace("\r\n", "\n");
    assert_eq!(powershell::errors(&script), None, "{script}");
    assert_eq!(powershell::unknown(&script, &Default::default()), [""; 0]);
}

#[test]
fn user_data_for_cloudbase_init_has_the_whole_config_and_the_pinned_program() {
    let lab = lab();
    let words = format!("render user-data -c node.yaml --set calicoNetwork.backend=vxlan {PROGRAM}");
    let text = lab.bare(&words).exits(0).stdout;
    let script = text.strip_prefix("#ps1_sysnative\r\n").expect("cloudbase-init knows it by its first line");
    is_powershell(script);
    let spec = &config_in(script)["spec"];
    assert_eq!(spec["calico"]["version"], "v3.32.1");
    assert_eq!(spec["kubernetes"]["serviceCIDRs"], json!(["10.96.0.0/12"]));
    assert_eq!(spec["calicoNetwork"]["backend"], "vxlan", "also what --set says");
    for line in [
        "$url = 'https://example.com/calicoctl-win.exe'",
        "$sha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'",
        "    exit 1002",
        r#"& $program apply --yes "--config=$file" --wait-for-lock=10m --exit-codes=cloudbase-init"#,
    ] {
        assert!(script.lines().any(|one| one == line), "{line}: {script}");
    }
    assert!(!script.contains("{{"), "{script}");
    // The options that it runs are those of `apply`.
    let _applied = Lab::node().run("apply --yes --wait-for-lock=10m --exit-codes=cloudbase-init").exits(0);
}

#[test]
fn user_data_for_ec2_launch_is_kept_for_every_start() {
    let text = lab().bare(&format!("render user-data --ec2 -c node.yaml {PROGRAM}")).exits(0).stdout;
    let (script, after) = text.strip_prefix("<powershell>\r\n").unwrap().split_once("</powershell>\r\n").unwrap();
    is_powershell(script);
    assert_eq!(after, "<persist>true</persist>\r\n");
    assert!(script.contains("--exit-codes=simple") && script.contains("    exit 1\r\n"), "{script}");
}

#[test]
fn a_cloud_config_writes_the_script_and_runs_it() {
    let text = lab().bare(&format!("render cloud-config -c node.yaml {PROGRAM}")).exits(0).stdout;
    assert!(text.starts_with("#cloud-config\n"), "{text}");
    let document: Value = serde_yaml::from_str(&text).unwrap();
    let file = &document["write_files"][0];
    let script = String::from_utf8(BASE64_STANDARD.decode(file["content"].as_str().unwrap()).unwrap()).unwrap();
    is_powershell(&script);
    assert_eq!(config_in(&script)["spec"]["calico"]["version"], "v3.32.1");
    let runs = document["runcmd"][0].as_str().unwrap();
    assert!(runs.contains(&format!("-File \"{}\"", file["path"].as_str().unwrap())), "{runs}");
}

#[test]
fn what_cannot_be_rendered_is_refused() {
    let lab = lab();
    let refused = |words: &str, code: i32| lab.bare(words).exits(code).stderr;
    let said = refused(&format!("render user-data {PROGRAM}"), 64);
    assert!(said.contains("no config to render"), "{said}");
    let said = refused("render user-data -c node.yaml --program-url https://host/a --program-sha256 00", 64);
    assert!(said.contains("--program-sha256"), "{said}");
    let said = refused(&format!("render cloud-config -c node.yaml {}", PROGRAM.replace("https://", "//")), 64);
    assert!(said.contains("`//example.com/calicoctl-win.exe` is no URL"), "{said}");
    let said = refused(&format!("render user-data --set calicoNetwork.vxlan.vxlanVNI=1 {PROGRAM}"), 4);
    assert!(said.contains("vxlanVNI"), "{said}");
}
