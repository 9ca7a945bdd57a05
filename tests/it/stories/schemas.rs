//! Scripts depend on the names in the documents: they are those of the design, and every document that the program
//! prints matches its schema.

use calicoctl_win::report::document::{
    ClusterPatches, CredentialsReport, Generations, History, NodeStatus, PlanDocument, PreflightReport, RunResult,
};
use calicoctl_win::selftest::report::SelftestReport;
use schemars::{JsonSchema, schema_for};
use serde_json::Value;

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

/// Checks a printed document against the schema of its type and the names of the design.
#[track_caller]
fn is<T: JsonSchema>(kind: &str, fields: &str, document: &Value) {
    assert_eq!(document["apiVersion"], "calicoctl-win/v1alpha1");
    assert_eq!(document["kind"], kind, "{document}");
    let schema = serde_json::to_value(schema_for!(T)).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = schema.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{kind}: {errors:#?}\n{document:#}");
    for field in fields.split_whitespace() {
        let pointer = format!("/{}", field.replace("[]", "0").replace('.', "/"));
        assert!(document.pointer(&pointer).is_some(), "no {field} in {document:#}");
    }
}

/// Every document by its kind, as published in `docs/schema`.
fn published() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("ClusterPatches", schema_for!(ClusterPatches)),
        ("Credentials", schema_for!(CredentialsReport)),
        ("Generations", schema_for!(Generations)),
        ("History", schema_for!(History)),
        ("Plan", schema_for!(PlanDocument)),
        ("PreflightReport", schema_for!(PreflightReport)),
        ("RunResult", schema_for!(RunResult)),
        ("SelftestReport", schema_for!(SelftestReport)),
        ("Status", schema_for!(NodeStatus)),
    ]
}

/// After a change of a document: `CALICO_WIN_WRITE_SCHEMAS=1 cargo test --test it schemas`.
#[test]
fn the_published_schemas_match_the_program() {
    let folder = crate::project().join("docs/schema");
    let mut names = Vec::new();
    for (kind, schema) in published() {
        let name = format!("{kind}.json");
        let text = format!("{:#}\n", schema.as_value());
        if std::env::var_os("CALICO_WIN_WRITE_SCHEMAS").is_some() {
            std::fs::write(folder.join(&name), &text).unwrap();
        }
        assert_eq!(crate::read(&format!("docs/schema/{name}")), text, "{name} is out of date");
        names.push(name);
    }
    let mut there: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    there.sort();
    assert_eq!(there, names);
}

#[test]
fn every_document_matches_its_schema() {
    let lab = Lab::node();
    is::<PreflightReport>("PreflightReport", PREFLIGHT, &lab.run("preflight -o json").exits(0).json());
    is::<SelftestReport>("SelftestReport", SELFTEST, &lab.run("selftest -o json").exits(0).json());
    is::<PlanDocument>("Plan", PLAN, &lab.run("plan -o json").exits(0).json());
    is::<RunResult>("RunResult", RUN_RESULT, &lab.run("install -n -o json").exits(0).json());
    is::<NodeStatus>("Status", "overall generation drift run", &lab.run("status -o json").exits(16).json());
    is::<RunResult>("RunResult", RUN_RESULT, &lab.run("install -y -o json").exits(0).json());
    is::<NodeStatus>("Status", STATUS, &lab.run("status -o json").exits(0).json());
    is::<PlanDocument>("Plan", PLAN, &lab.run("plan --uninstall -o json").exits(0).json());
    is::<RunResult>("RunResult", RUN_RESULT, &lab.run("service restart -o json").exits(0).json());

    let failed = lab.fails_at("put running CalicoFelix=dies", "service restart -o json").exits(1).json();
    is::<RunResult>("RunResult", &format!("{RUN_RESULT} {ERROR}"), &failed);
    let usage = lab.bare("instal -o json").exits(64).json();
    is::<RunResult>("RunResult", &format!("{RUN_RESULT} {ERROR}"), &usage);

    is::<History>("History", "runs.[].run runs.[].user runs.[].result", &lab.run("history -o json").exits(0).json());
    is::<Generations>("Generations", "generations.[].generation", &lab.run("receipt list -o json").exits(0).json());

    let _dead = lab.fails_at("put *#5=exit-after", "uninstall -y").exits(137);
    let interrupted = lab.run("status -o json").exits(12).json();
    is::<NodeStatus>("Status", "run.run run.command run.since run.interrupted run.at", &interrupted);
    is::<RunResult>("RunResult", RUN_RESULT, &lab.run("resume -y -o json").exits(0).json());
}

#[test]
fn a_document_that_lacks_a_field_is_rejected() {
    let lab = Lab::node();
    let mut result = lab.run("install -n -o json").exits(0).json();
    result.as_object_mut().unwrap().remove("rolled_back");
    let schema = serde_json::to_value(schema_for!(RunResult)).unwrap();
    assert!(!jsonschema::validator_for(&schema).unwrap().is_valid(&result));
}
