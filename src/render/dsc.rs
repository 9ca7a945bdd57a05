//! What the engine of Microsoft's Desired State Configuration, version 3, reads: the manifest of this program's resource,
//! the schema of its instances, and a configuration document. Its repository PowerShell/DSC has the formats.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::yaml;
use crate::config;
use crate::fault::Exit;

/// The name of the resource.
pub const TYPE: &str = "CalicoctlWin/NodeInstallation";

/// The properties of an instance that are not fields of the config.
pub const EXIST: &str = "_exist";
pub const IN_DESIRED_STATE: &str = "_inDesiredState";
pub const RESTART_REQUIRED: &str = "_restartRequired";

/// The manifest, which the engine finds in a file `*.dsc.resource.json` beside the program.
pub fn manifest() -> Value {
    let operation = |name: &str, more: Value| {
        let mut operation = json!({
            "executable": "calicoctl-win", "args": ["dsc", name], "requireSecurityContext": "elevated",
        });
        if let (Some(operation), Value::Object(more)) = (operation.as_object_mut(), more) {
            operation.extend(more);
        }
        operation
    };
    let set = json!({
        "args": ["dsc", "set", { "whatIfArg": "--what-if" }],
        "input": "stdin", "return": "state", "whatIfReturns": "stateAndDiff",
    });
    json!({
        "$schema": "https://aka.ms/dsc/schemas/v3/bundled/resource/manifest.json",
        "type": TYPE,
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Calico on a Windows node of a Kubernetes cluster",
        "tags": ["Windows", "Kubernetes", "Calico", "CNI"],
        "get": operation("get", json!({})),
        "set": operation("set", set),
        "test": operation("test", json!({ "input": "stdin", "return": "stateAndDiff" })),
        "delete": operation("delete", json!({ "input": "stdin" })),
        "export": operation("export", json!({})),
        "exitCodes": exit_codes(),
        "schema": { "embedded": schema() },
    })
}

/// Those that an operation can end with: a required restart is a success.
fn exit_codes() -> Map<String, Value> {
    let never = [Exit::ChangesPending, Exit::RebootStarted, Exit::RebootRequired];
    let codes = Exit::all().filter(|exit| !never.contains(exit));
    codes.map(|exit| (exit.code().to_string(), format!("{}: {}", exit.name(), exit.meaning()).into())).collect()
}

/// The JSON Schema of an instance: the config, and the engine's own properties.
pub fn schema() -> Value {
    // What is in it has the same meaning in both drafts.
    let mut schema = config::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.extend([
            (
                EXIST.into(),
                json!({ "type": "boolean", "default": true, "description": "Whether Calico is installed." }),
            ),
            (
                IN_DESIRED_STATE.into(),
                json!({ "type": ["boolean", "null"], "readOnly": true,
                    "description": "Whether the node matches the instance." }),
            ),
            (
                RESTART_REQUIRED.into(),
                json!({ "type": ["array", "null"], "readOnly": true,
                    "description": "The machine, if Windows must restart to finish the change.",
                    "items": { "type": "object", "properties": { "system": { "type": "string" } },
                        "required": ["system"], "additionalProperties": false } }),
            ),
        ]);
    }
    schema
}

/// A configuration document with one instance of the resource. `config` is a whole config document.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn document(config: &Value) -> Result<String> {
    yaml(&json!({
        "$schema": "https://aka.ms/dsc/schemas/v3/bundled/config/document.json",
        "resources": [{ "name": "Calico", "type": TYPE, "properties": config }],
    }))
}
