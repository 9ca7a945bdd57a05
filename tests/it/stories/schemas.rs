//! Scripts depend on the names in the documents: they are those of the design, and every document that a story prints
//! is in the table of kinds and matches its published schema.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use calicoctl_win::cli::documents::KINDS;
use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::event_lines;
use crate::lab::Lab;

/// Fields that every document must have, `[]` for the first entry of a list. Never rename.
const RUN_RESULT: &str = "status changed exit_code exit_name msg error failed_phase rolled_back reboot_required \
     generation run duration_ms downtime_ms log next";
const ERROR: &str = "error.what error.why error.hint error.id error.chain.[]";
const PLAN: &str = "changes.[].id changes.[].phase changes.[].kind changes.[].target changes.[].action \
     changes.[].before changes.[].after changes.[].disruption disruption needs_drain needs_reboot digest";
const STATUS: &str = "overall generation calico_version backend services.[].name services.[].state services.[].pid \
     services.[].since services.[].restarts services.[].waiting_for networks.[].name networks.[].type networks.[].vsid \
     networks.[].management_ip networks.[].adapter cni.conf cni.bin cni.drift credentials.[].kind credentials.[].path \
     credentials.[].expires node.name node.ready node.schedulable drift run";
const PREFLIGHT: &str = "checks.[].id checks.[].group checks.[].status checks.[].ignored checks.[].detail \
     checks.[].why checks.[].fix summary.ok summary.warn summary.fail summary.skip summary.unknown";
const SELFTEST: &str = "version windows.build disruptive rows.[].id rows.[].group rows.[].verdict rows.[].asks \
     rows.[].answered rows.[].needed_for rows.[].bears_on_vni rows.[].duration_ms summary.ok summary.fail summary.skip \
     vni.rows vni.failed hns.[].path hns.[].output removed left";

/// A file, and a line of many: no verb ends with them.
const PARTS: [&str; 2] = ["LogLine", "SavedPlan"];

/// The schema of every kind, as published in `docs/schema`.
pub fn published() -> BTreeMap<&'static str, Value> {
    let schemas = KINDS.iter().map(|(kind, body)| {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut schema = body(generator).to_value();
        let mut fields = json!({ "apiVersion": { "const": "calicoctl-win/v1alpha1" }, "kind": { "const": kind } });
        if !PARTS.contains(kind) {
            fields["success"] = json!({ "type": "boolean", "description": "Whether the verb succeeded." });
            fields["exit_code"] = json!({ "type": "integer", "description": "The process's exit code." });
        }
        schema["$id"] = format!("urn:calicoctl-win:v1alpha1:{kind}").into();
        schema["title"] = (*kind).into();
        for (name, field) in fields.as_object().unwrap() {
            schema["properties"].as_object_mut().unwrap().entry(name).or_insert(field.clone());
            let required = schema["required"].as_array_mut().unwrap();
            if !required.contains(&json!(name)) {
                required.push(json!(name));
            }
        }
        (*kind, schema)
    });
    schemas.collect()
}

static VALIDATORS: LazyLock<BTreeMap<&'static str, Validator>> = LazyLock::new(|| {
    let validators = published().into_iter().map(|(kind, schema)| (kind, jsonschema::validator_for(&schema).unwrap()));
    // The config is a document too, with the schema that `config schema` prints.
    let config = jsonschema::validator_for(&calicoctl_win::config::schema()).unwrap();
    validators.chain([("NodeInstallation", config)]).collect()
});

/// Checks a printed document against the schema of its kind, if it is one of this program's.
#[track_caller]
pub fn check(document: &Value) {
    if document["apiVersion"] != "calicoctl-win/v1alpha1" {
        return;
    }
    let kind = document["kind"].as_str().unwrap_or_else(|| panic!("no kind: {document}"));
    let schema = VALIDATORS.get(kind).unwrap_or_else(|| panic!("{kind} is not in the table: {document}"));
    let errors: Vec<String> = schema.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{kind}: {errors:#?}\n{document:#}");
}

/// Checks the kind of a printed document, and the names of the design.
#[track_caller]
fn is(kind: &str, fields: &str, document: &Value) {
    assert_eq!(document["kind"], kind, "{document}");
    for field in fields.split_whitespace() {
        let pointer = format!("/{}", field.replace("[]", "0").replace('.', "/"));
        assert!(document.pointer(&pointer).is_some(), "no {field} in {document:#}");
    }
}

/// After a change of a document: `CALICO_WIN_WRITE_SCHEMAS=1 cargo test --test it schemas`.
/// The DaemonSet of a rollout.
pub fn a_wave() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "calicoctl-win-all", "namespace": "calicoctl-win",
            "labels": { "app.kubernetes.io/name": "calicoctl-win", "calicoctl-win/wave": "all" },
        },
        "spec": { "template": { "metadata": {} } },
    })
}

#[test]
fn the_published_schemas_match_the_program() {
    let folder = crate::project().join("docs/schema");
    let mut names = BTreeSet::new();
    for (kind, schema) in published().into_iter().chain([("EventLine", event_lines::published())]) {
        let name = format!("{kind}.json");
        let text = format!("{schema:#}\n");
        if std::env::var_os("CALICO_WIN_WRITE_SCHEMAS").is_some() {
            std::fs::write(folder.join(&name), &text).unwrap();
        }
        assert_eq!(crate::read(&format!("docs/schema/{name}")), text, "{name} is out of date");
        names.insert(name);
    }
    let there: BTreeSet<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, names);
}

#[test]
fn every_document_has_the_fields_of_the_design() {
    let lab = Lab::node();
    is("PreflightReport", PREFLIGHT, &lab.run("preflight -o json").exits(0).json());
    is("SelftestReport", SELFTEST, &lab.run("selftest -o json").exits(0).json());
    is("Plan", PLAN, &lab.run("plan -o json").exits(0).json());
    is("RunResult", RUN_RESULT, &lab.run("install -n -o json").exits(0).json());
    is("Status", "overall generation drift run", &lab.run("status -o json").exits(16).json());
    is("RunResult", RUN_RESULT, &lab.run("install -y -o json").exits(0).json());
    is("Status", STATUS, &lab.run("status -o json").exits(0).json());
    is("Plan", PLAN, &lab.run("plan --uninstall -o json").exits(0).json());
    is("RunResult", RUN_RESULT, &lab.run("service restart -y -o json").exits(0).json());

    let failed = lab.fails_at("put running CalicoFelix=dies", "service restart -y -o json").exits(1).json();
    is("RunResult", &format!("{RUN_RESULT} {ERROR}"), &failed);
    let usage = lab.bare("instal -o json").exits(64).json();
    is("RunResult", &format!("{RUN_RESULT} {ERROR}"), &usage);

    is("History", "runs.[].run runs.[].user runs.[].result", &lab.run("history -o json").exits(0).json());
    is("Generations", "generations.[].generation", &lab.run("receipt list -o json").exits(0).json());

    let _dead = lab.fails_at("put *#5=exit-after", "uninstall -y").exits(137);
    let interrupted = lab.run("status -o json").exits(12).json();
    is("Status", "run.run run.command run.since run.interrupted run.at", &interrupted);
    is("RunResult", RUN_RESULT, &lab.run("resume -y -o json").exits(0).json());
}

#[test]
fn every_kind_is_printed_and_says_whether_its_verb_succeeded() {
    let lab = Lab::node();
    lab.write("config.ps1", "$env:CALICO_NETWORKING_BACKEND=\"vxlan\"\n$env:KUBE_NETWORK = \"Calico.*\"\n");
    lab.write("node.yaml", "spec: {calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let _saved = lab.run("plan --out saved.json").exits(0);
    let installed = lab.run("install -y -o json").exits(0).json();
    let archive = lab.run("release list -o json").exits(0).json()["archives"][0]["path"].clone();
    let archive = archive.as_str().unwrap();
    let run = installed["run"].as_str().unwrap();
    let mut kinds: BTreeSet<String> = ["RunResult".to_owned()].into();
    for (words, code) in [
        ("version", 0),
        ("explain", 0),
        ("explain VxlanVni", 0),
        ("explain 12", 0),
        ("status", 0),
        ("verify", 0),
        (&*format!("status --run {run}"), 0),
        ("history", 0),
        ("receipt list", 0),
        ("receipt show", 0),
        ("credentials show", 0),
        ("config show", 0),
        ("config show --applied", 0),
        ("config diff -c node.yaml", 0),
        ("config diff -c node.yaml --detailed-exitcode", 2),
        ("config validate node.yaml", 0),
        ("config import config.ps1", 0),
        ("service status", 0),
        ("kubernetes status", 0),
        ("network list", 0),
        ("network show calico", 0),
        ("logs", 0),
        ("plan", 0),
        ("plan -c node.yaml --detailed-exitcode", 2),
        ("plan --print-facts", 0),
        ("release list", 0),
        (&*format!("release verify {archive}"), 0),
        ("cluster check", 0),
        ("cluster prepare", 0),
        ("policy lint", 0),
        ("fleet plan -c node.yaml --image host/c:1 --api-server https://192.0.2.10:6443", 0),
        ("preflight", 0),
        ("selftest", 0),
        ("service stop -y", 0),
        ("service status", 12),
        ("status", 12),
        ("uninstall -y", 0),
        ("status", 16),
    ] {
        let document = lab.run(&format!("{words} -o json")).exits(code).json();
        let succeeded = [0, 2].contains(&code);
        let said = (&document["success"], &document["exit_code"]);
        assert_eq!(said, (&json!(succeeded), &json!(code)), "{words}: {document:#}");
        kinds.insert(document["kind"].as_str().unwrap().to_owned());
        let yaml: Value = serde_yaml::from_str(&lab.run(&format!("{words} -o yaml")).exits(code).stdout).unwrap();
        assert_eq!(yaml["success"], succeeded, "{words}");
    }
    let diagnosis = lab.run("diagnose --out node.zip -o json").exits(0).json();
    check(&diagnosis);
    kinds.insert(diagnosis["kind"].as_str().unwrap().to_owned());
    lab.add_object("daemonsets.apps", a_wave());
    let fleet = lab.run("fleet status -o json").exits(0).json();
    check(&fleet);
    kinds.insert(fleet["kind"].as_str().unwrap().to_owned());
    // The documents of a stream are the same, and the stream ends with a result.
    let _again = lab.run("install -y").exits(0);
    for words in ["version", "explain 12", "config show", "plan --print-facts", "receipt show"] {
        let lines = lab.run(&format!("{words} -o ndjson")).exits(0).ndjson();
        let documents: Vec<&Value> = lines.iter().filter(|line| line["type"] == "document").collect();
        assert_eq!((documents.len(), &documents[0]["document"]["success"]), (1, &json!(true)), "{words}: {lines:#?}");
    }
    let logs = lab.run("logs -o ndjson").exits(0).ndjson();
    let line = logs.iter().find(|line| line["type"] == "document").unwrap();
    check(&line["document"]);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(lab.path("saved.json")).unwrap()).unwrap();
    check(&saved);
    for part in [&line["document"], &saved] {
        kinds.insert(part["kind"].as_str().unwrap().to_owned());
        assert!(part.get("success").is_none(), "{part}");
    }
    let table: BTreeSet<String> = KINDS.iter().map(|(kind, _)| (*kind).to_owned()).collect();
    assert_eq!(kinds, table);
}

#[test]
fn a_download_says_where_its_archive_is() {
    let lab = Lab::node();
    for words in ["release download", "install --download-only"] {
        let result = lab.run(&format!("{words} -o json")).exits(0).json();
        let path = result["path"].as_str().unwrap_or_else(|| panic!("{result:#}"));
        assert!(lab.path(path).is_file() && result["msg"].as_str().unwrap().ends_with(path), "{result:#}");
        assert_eq!(result["changed"], false, "nothing of the node: {result:#}");
    }
    assert!(lab.run("install -n -o json").exits(0).json().get("path").is_none());
}

#[test]
fn a_verb_that_judges_says_whether_it_succeeded() {
    let lab = Lab::node();
    let refused = lab.run("preflight -o json --set calicoNetwork.vxlan.vxlanVNI=9999").json();
    assert_eq!(refused["success"], false, "{refused:#}");
    let lines = lab.run("status -o ndjson").exits(16).ndjson();
    let end = lines.last().unwrap();
    let said = (&end["success"], &end["status"], &end["level"], &end["error"]);
    assert_eq!(said, (&json!(false), &json!("failed"), &json!("error"), &Value::Null), "{end:#}");
}

#[test]
fn a_document_that_lacks_a_field_is_rejected() {
    let lab = Lab::node();
    let result = lab.run("install -n -o json").exits(0).json();
    let schema = &VALIDATORS["RunResult"];
    // Null, and present all the same.
    for field in ["rolled_back", "error", "kind", "apiVersion", "success"] {
        let mut result = result.clone();
        assert!(result.as_object_mut().unwrap().remove(field).is_some(), "{field}");
        assert!(!schema.is_valid(&result), "{field}");
    }
}
