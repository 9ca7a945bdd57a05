//! `render`: what the first boot of a machine runs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use calicoctl_win::config;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::lab::Lab;
use crate::{powershell, project, read};

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
    assert!(!script.contains("${"), "{script}");
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
    let alone = lab().bare(&format!("render user-data --script -c node.yaml {PROGRAM}")).exits(0).stdout;
    assert_eq!(alone, script, "the script alone is for other programs");
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
    let (program, command) = runs.strip_suffix('"').unwrap().split_once(" -Command \"").unwrap();
    assert!(program.starts_with("powershell.exe ") && !command.contains(['"', '%', '\n']), "cmd passes it on: {runs}");
    is_powershell(command);
    assert!(command.contains(&format!("& '{}';", file["path"].as_str().unwrap())), "{command}");
    assert!(command.contains("if ($LASTEXITCODE -ne 1002) { break }"), "cloudbase-init would not try again: {command}");
}

#[test]
fn terraform_gets_a_call_of_the_module_with_the_whole_config() {
    let lab = lab();
    lab.write(
        "more.yaml",
        "metadata: {name: '${x}'}\nspec:\n  calicoNetwork: {cniConfigOverrides: {a.b: [1, {for: null}], c: []}}\n  \
         kubernetes: {dns: {search: ['%{y}']}}\n",
    );
    let words = format!("render terraform --ec2 -c node.yaml -c more.yaml --module ./terraform {PROGRAM}");
    insta::assert_snapshot!(lab.bare(&words).exits(0).stdout, @r#"
    # Made by calicoctl-win render terraform.
    module "calico" {
      source = "./terraform"

      program_url    = "https://example.com/calicoctl-win.exe"
      program_sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
      runner         = "ec2launch"
      name           = "$${x}"
      spec = {
        calico = {
          version = "v3.32.1"
        }
        calicoNetwork = {
          cniConfigOverrides = {
            "a.b" = [
              1,
              {
                "for" = null
              },
            ]
            c = []
          }
        }
        kubernetes = {
          dns = {
            search = ["%%{y}"]
          }
          serviceCIDRs = ["10.96.0.0/12"]
        }
      }
    }
    "#);
}

#[test]
fn ansible_gets_a_playbook_with_the_whole_config_as_it_is() {
    let lab = lab();
    lab.write("more.yaml", "spec: {kubernetes: {dns: {search: ['{{ a }}{%', '{b}', 'yes']}}}\n");
    let text = lab.bare(&format!("render ansible -c node.yaml -c more.yaml {PROGRAM}")).exits(0).stdout;
    insta::assert_snapshot!(text, @r#"
    # Made by calicoctl-win render ansible.
    ---
    - name: Calico on the Windows nodes
      hosts: windows
      roles:
      - role: calicoctl_win
        vars:
          calicoctl_win_url: https://example.com/calicoctl-win.exe
          calicoctl_win_sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
          calicoctl_win_config:
            spec:
              calico:
                version: v3.32.1
              kubernetes:
                dns:
                  search:
                  - "{{ '{' }}{{ '{' }} a }}{{ '{' }}%"
                  - "{b}"
                  - "yes"
                serviceCIDRs:
                - 10.96.0.0/12
    "#);
}

/// After a change of the config: `CALICO_WIN_WRITE_DOCS=1 cargo test --test it render`.
#[test]
fn the_terraform_module_knows_every_field_of_the_config() {
    let rows: Map<String, Value> = config::fields()
        .filter_map(|field| Some((field.path.strip_prefix("spec.")?.to_owned(), row(&field.takes))))
        .collect();
    let text = format!("{:#}\n", Value::from(rows));
    let path = "packaging/terraform/fields.json";
    if std::env::var_os("CALICO_WIN_WRITE_DOCS").is_some() {
        std::fs::write(project().join(path), &text).unwrap();
    }
    assert_eq!(read(path), text, "{path} is out of date");
}

/// What a field takes, and the pattern of its value as JSON.
fn row(takes: &str) -> Value {
    let number = Regex::new(r"^a whole number from (-?\d+) to (\d+)$").unwrap();
    if let Some(found) = number.captures(takes) {
        let bound = |at: usize| found[at].parse::<i64>().unwrap();
        return json!({ "takes": takes, "json": "^-?[0-9]+$", "from": bound(1), "to": bound(2) });
    }
    let words = Regex::new("`([^`]*)`").unwrap();
    let mut words: Vec<&str> = words.captures_iter(takes).map(|found| found.get(1).unwrap().as_str()).collect();
    if words.contains(&"auto") {
        words.push("");
    }
    let words = words.join("|");
    let pattern = match takes {
        _ if takes.starts_with("list of `") => format!(r#"^\[("({words})",?)*\]$"#),
        _ if takes.starts_with("list of ") => r#"^\[("|\])"#.into(),
        _ if takes == "any fields" || takes.starts_with("names, ") => r"^\{".into(),
        _ => {
            let text = if takes.ends_with("text") { "\".*\"".into() } else { format!("\"({words})\"") };
            let alternatives = [
                (takes.ends_with("text") || !words.is_empty(), text.as_str()),
                (takes.ends_with("true or false"), "true|false"),
                (takes.ends_with("or fields"), r"\{.*\}"),
            ];
            let given: Vec<&str> = alternatives.iter().filter(|(given, _)| *given).map(|(_, one)| *one).collect();
            assert!(!given.is_empty(), "{takes}");
            format!("^({})$", given.join("|"))
        }
    };
    json!({ "takes": takes, "json": pattern })
}

#[test]
fn the_script_of_the_terraform_example_is_powershell() {
    let text = read("packaging/terraform/examples/kubeadm-etcd/receive.ps1");
    is_powershell(&text.replace("${path}", r"C:\k\config"));
}

/// 1002 would run the script again at each boot.
#[test]
fn a_whole_download_with_another_digest_is_not_tried_again() {
    let script = lab().bare(&format!("render user-data -c node.yaml {PROGRAM}")).exits(0).stdout;
    let (_, checked) = script.split_once("if (-not (Test-Sha256 -Path $download)) {").unwrap();
    let (cut, whole) = checked.split_once("throw").unwrap();
    assert!(cut.contains("-ne \"$($answer.Headers['Content-Length'])\""), "{cut}");
    let (_, ends) = whole.split_once("does not have the SHA-256").unwrap();
    assert!(ends.contains("exit 1\r\n") && ends.find("exit 1\r\n") < ends.find("Move-Item"), "{ends}");
    assert!(ends.contains("} catch {") && ends.contains("exit 1002\r\n"), "{ends}");
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
    // PowerShell reads a typographic quote as a quote.
    let said =
        refused(&format!("render user-data -c node.yaml {}", PROGRAM.replace("calicoctl", "\u{2019};calc;")), 64);
    assert!(said.contains("is no URL"), "{said}");
    let said = refused(&format!("render user-data -c node.yaml {}", PROGRAM.replace("//", "//user:hidden@")), 64);
    assert!(said.contains("must not have a user or password") && !said.contains("hidden"), "{said}");
    for query in ["sv=2024-11-04&sig=hidden", "X-Amz-Signature=hidden", "X-Goog-Signature=hidden", "token=hidden"] {
        let signed = PROGRAM.replace("win.exe", &format!("win.exe?{query}"));
        for verb in ["user-data", "cloud-config", "ansible", "terraform --module ./terraform"] {
            let said = refused(&format!("render {verb} -c node.yaml {signed}"), 64);
            assert!(said.contains("must not be signed") && !said.contains("hidden"), "{verb}: {said}");
        }
    }
    let versioned = PROGRAM.replace("win.exe", "win.exe?version=3&design=1");
    let _fits = lab.bare(&format!("render user-data -c node.yaml {versioned}")).exits(0);
    let said = refused(&format!("render terraform -c node.yaml --module git::https://host/a.git//b {PROGRAM}"), 64);
    assert!(said.contains("names no version"), "{said}");
    let said = refused(&format!("render user-data --set calicoNetwork.vxlan.vxlanVNI=1 {PROGRAM}"), 4);
    assert!(said.contains("vxlanVNI"), "{said}");
}
