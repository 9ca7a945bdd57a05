//! The lines of `-o ndjson`: the fields of each type, whose schema is published, and every line of every story.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use calicoctl_win::plan::show::{Change, Disruption};
use calicoctl_win::preflight::report::Check;
use calicoctl_win::report::document::RunResult;
use jiff::Timestamp;
use jsonschema::Validator;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::lab::Lab;

/// One line of `-o ndjson` (events/1.0). Ignore fields and types that you do not know.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct EventLine {
    /// UTC.
    ts: Timestamp,
    level: Level,
    /// One sentence for people.
    message: String,
    run: String,
    /// Increases by one; a gap is progress that was not read in time.
    seq: u64,
    #[schemars(flatten)]
    fields: Fields,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// What only lines of a type have. A new field or type is added here, in `docs/output.md`, and for a type in `explain`.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum Fields {
    Version {
        tool: String,
        version: String,
        schema: String,
    },
    RunStart {
        command: String,
        node: String,
        generation_from: Option<u32>,
    },
    CheckResult {
        check: Check,
        #[schemars(flatten)]
        within: Within,
    },
    PlannedChange {
        change: Box<Change>,
        #[schemars(flatten)]
        within: Within,
    },
    ChangeSummary {
        disruption: Disruption,
        #[schemars(flatten)]
        within: Within,
    },
    PhaseStart {
        phase: PhaseOfEngine,
    },
    PhaseComplete {
        phase: Phase,
        changed: bool,
        duration_ms: u64,
    },
    PhaseSkipped {
        phase: SkippedPhase,
    },
    PhaseErrored {
        phase: Phase,
    },
    Progress {
        /// `fetch`, `verify` or `unpack`.
        part: String,
        current: u64,
        /// Null if it is not known.
        total: Option<u64>,
        unit: String,
        #[schemars(flatten)]
        within: Within,
    },
    Waiting {
        elapsed_ms: u64,
        limit_ms: u64,
        #[schemars(flatten)]
        within: Within,
    },
    PodEvicted {
        /// `namespace/name`.
        pod: String,
        #[schemars(flatten)]
        within: Within,
    },
    PodBlocked {
        pod: String,
        why: String,
        retry_ms: u64,
        #[schemars(flatten)]
        within: Within,
    },
    PodGone {
        pod: String,
        gone: u64,
        total: u64,
        #[schemars(flatten)]
        within: Within,
    },
    DrainProgress {
        gone: u64,
        total: u64,
        blocked: Vec<String>,
        /// Evicted, still terminating.
        ending: Vec<String>,
        elapsed_ms: u64,
        /// Null: none.
        limit_ms: Option<u64>,
        #[schemars(flatten)]
        within: Within,
    },
    ConnectivityNotice {
        kind: String,
        resume_with: String,
        #[schemars(flatten)]
        within: Within,
    },
    ConfirmDeadline {
        deadline: Timestamp,
        command: String,
        #[schemars(flatten)]
        within: Within,
    },
    RollbackStart {
        reason: String,
        #[schemars(flatten)]
        within: Within,
    },
    RollbackComplete {
        complete: bool,
        #[schemars(flatten)]
        within: Within,
    },
    Diagnostic {
        /// `explain` has a section for it.
        id: String,
        #[schemars(flatten)]
        within: Within,
    },
    Log {
        #[schemars(flatten)]
        within: Within,
    },
    Document {
        /// The same as with `-o json`; its kind is the name of its schema.
        document: Map<String, Value>,
    },
    Result(Box<RunResult>),
}

/// The phase in progress, if there is one.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Within {
    #[schemars(skip_serializing_if = "Option::is_none")]
    phase: Option<PhaseKey>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct PhaseKey {
    key: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Phase {
    id: String,
    /// Differs each time that the phase starts in a run.
    key: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct PhaseOfEngine {
    id: String,
    /// Differs each time that the phase starts in a run.
    key: String,
    /// Null for phases outside of the engine, and so is `total`.
    index: Option<u64>,
    total: Option<u64>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SkippedPhase {
    id: String,
    /// That of the phase in progress, if there is one.
    #[schemars(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// The schema of the lines, as published in `docs/schema`.
pub fn published() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<EventLine>().to_value();
    schema["$id"] = "urn:calicoctl-win:v1alpha1:EventLine".into();
    schema
}

static SCHEMA: LazyLock<(Value, Validator)> = LazyLock::new(|| {
    let schema = published();
    let validator = jsonschema::validator_for(&schema).unwrap();
    (schema, validator)
});

/// The fields of a part of a schema, without those of its fields.
fn fields_of<'a>(root: &'a Value, part: &'a Value) -> BTreeSet<&'a str> {
    let own = part["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let other = part["$ref"].as_str().and_then(|at| root.pointer(at.trim_start_matches('#')));
    own.chain(other.into_iter().flat_map(|other| fields_of(root, other))).collect()
}

/// The fields that lines of a type have besides those of every line.
pub fn fields(of_type: &str) -> BTreeSet<&'static str> {
    let (schema, _) = &*SCHEMA;
    let mut parts = schema["oneOf"].as_array().unwrap().iter();
    let part = parts.find(|part| part["properties"]["type"]["const"] == of_type);
    let mut fields = fields_of(schema, part.unwrap_or_else(|| panic!("no type {of_type}: {schema:#}")));
    fields.remove("type");
    fields
}

/// Checks a printed line against the schema. It has no field that the schema does not name.
#[track_caller]
pub fn check(line: &Value) {
    let (schema, validator) = &*SCHEMA;
    let errors: Vec<String> = validator.iter_errors(line).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{line:#}");
    let (common, own) = (fields_of(schema, schema), fields(line["type"].as_str().unwrap()));
    let is_known = |name: &str| name == "type" || common.contains(name) || own.contains(name);
    let unknown: Vec<&String> = line.as_object().unwrap().keys().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} of {line:#}");
}

/// Every line that a story reads is checked in the same way ([`crate::lab::Output::ndjson`]).
#[test]
fn the_lines_of_whole_runs_match_the_published_schema() {
    let lab = Lab::node();
    let mut seen = BTreeSet::new();
    let mut read = |lines: Vec<Value>| {
        seen.extend(lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()));
        lines.iter().for_each(check);
    };
    read(lab.run("preflight -o ndjson").exits(0).ndjson());
    read(lab.run("install -y -v -o ndjson").exits(0).ndjson());
    read(lab.run("install -y -o ndjson").exits(0).ndjson());
    let vni = "--set calicoNetwork.vxlan.vxlanVNI=5000 -o ndjson";
    read(lab.fails_at("put running CalicoNode#2=fail", &format!("reconfigure -y {vni}")).exits(9).ndjson());
    read(lab.run(&format!("reconfigure -y --mode try {vni}")).exits(0).ndjson());
    let _kept = lab.run("confirm -y").exits(0);
    read(lab.run("uninstall -y -o ndjson").exits(0).ndjson());
    for of_type in [
        "version",
        "run_start",
        "check_result",
        "planned_change",
        "change_summary",
        "phase_start",
        "phase_complete",
        "phase_skipped",
        "phase_errored",
        "waiting",
        "pod_evicted",
        "pod_gone",
        "connectivity_notice",
        "confirm_deadline",
        "rollback_start",
        "rollback_complete",
        "diagnostic",
        "log",
        "document",
        "result",
    ] {
        assert!(seen.contains(of_type), "{of_type}: {seen:?}");
    }
}

#[test]
fn a_line_with_another_field_or_without_one_does_not_match() {
    let lab = Lab::node();
    let lines = lab.run("install -n -o ndjson").exits(0).ndjson();
    let line = lines.iter().find(|line| line["type"] == "phase_complete").unwrap();
    for edit in [
        |line: &mut Map<String, Value>| drop(line.remove("changed")),
        |line: &mut Map<String, Value>| drop(line.insert("duration_ms".into(), "long".into())),
        |line: &mut Map<String, Value>| drop(line.remove("seq")),
        |line: &mut Map<String, Value>| drop(line.insert("type".into(), "phase_done".into())),
        |line: &mut Map<String, Value>| drop(line.insert("took".into(), 1.into())),
    ] {
        let mut line = line.clone();
        edit(line.as_object_mut().unwrap());
        assert!(std::panic::catch_unwind(|| check(&line)).is_err(), "{line}");
    }
}
