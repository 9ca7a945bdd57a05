//! The patches of objects in the documents and in packaging: YAML for kubectl, in the only form that every shell keeps
//! as it is, JSON for calicoctl, and only fields that the objects have.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::docs::documents;
use crate::{files, read};

/// Objects whose schema is not in this project: the operator's.
const WITHOUT_SCHEMA: [&str; 1] = ["installation"];

/// Returns what is wrong with the patches in a text, and how many there are.
fn faults(text: &str) -> (usize, Vec<String>) {
    let command = Regex::new(r"(?m)\b(?:kubectl|oc|calicoctl)\b[^\n`|;]*? patch ([a-z][\w.]*)([^\n]*)").unwrap();
    let given = Regex::new(r#"^[^`;|]*? (?:-p|--patch)[ =](?:'(\{[^']*)'|"([^"{$\\][^"$\\]*)")"#).unwrap();
    let has_patch = Regex::new(r"^[^`;|]*? (?:-p|--patch)\b").unwrap();
    let text = text.replace("\\\n", " ");
    let (mut seen, mut wrong) = (0, Vec::new());
    for found in command.captures_iter(&text) {
        let whole = &found[0];
        match given.captures(&found[2]) {
            Some(patch) => {
                seen += 1;
                let read = match (patch.get(1), patch.get(2)) {
                    (Some(json), _) => serde_json::from_str::<Value>(json.as_str()).map_err(|error| error.to_string()),
                    (_, yaml) => serde_yaml::from_str(yaml.unwrap().as_str()).map_err(|error| error.to_string()),
                };
                // YAML without a space after the colon is a text.
                let read = read.and_then(|patch| if patch.is_object() { Ok(patch) } else { Err("a text".to_owned()) });
                match read {
                    Err(error) => wrong.push(format!("{whole}: cannot be read: {error}")),
                    Ok(patch) => wrong.extend(of(&found[1], &patch).into_iter().map(|what| format!("{whole}: {what}"))),
                }
            }
            None if has_patch.is_match(&found[2]) => wrong.push(format!("{whole}: the patch is not in quotes")),
            None => {}
        }
    }
    (seen, wrong)
}

/// Returns what is wrong with a patch of this resource.
fn of(resource: &str, patch: &Value) -> Vec<String> {
    let name = resource.split('.').next().unwrap_or_default();
    let singular = name.strip_suffix('s').unwrap_or(name);
    match singular {
        "node" => lost_in::<Node>(patch),
        "configmap" => lost_in::<ConfigMap>(patch),
        _ if WITHOUT_SCHEMA.contains(&singular) => Vec::new(),
        _ => {
            let schemas = schemas_of(singular);
            let none = schemas.is_empty().then(|| format!("there is no schema of {resource}"));
            none.into_iter().chain(schemas.iter().flat_map(|schema| unknown(patch, schema, ""))).collect()
        }
    }
}

/// The fields that Kubernetes' own type does not have: they are lost in it.
fn lost_in<T: DeserializeOwned + Serialize>(patch: &Value) -> Vec<String> {
    fn missing(patch: &Value, kept: &Value, at: &str) -> Vec<String> {
        let fields = patch.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let below = fields.flat_map(|(name, value)| match kept.get(name) {
            None => vec![format!("there is no field {at}{name}")],
            Some(kept) => missing(value, kept, &format!("{at}{name}.")),
        });
        below.collect()
    }
    match serde_json::from_value::<T>(patch.clone()) {
        Err(error) => vec![error.to_string()],
        Ok(object) => missing(patch, &serde_json::to_value(object).unwrap(), ""),
    }
}

/// The schemas of one of Calico's resources, in each group that has it.
fn schemas_of(singular: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for group in ["crd.projectcalico.org-v1", "projectcalico.org-v3"] {
        let text = read(&format!("tests/fixtures/calico-crds/{group}.yaml"));
        let is_it = |document: &&str| document.contains(&format!("\n    singular: {singular}\n"));
        let definitions = text.split("\n---\n").filter(is_it).map(|one| serde_yaml::from_str::<Value>(one).unwrap());
        found.extend(definitions.map(|one| one["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()));
    }
    found
}

/// The fields of a patch that a schema does not have.
fn unknown(patch: &Value, schema: &Value, at: &str) -> Vec<String> {
    // Without properties any field is one, for example in `metadata`.
    let Some(known) = schema["properties"].as_object() else { return Vec::new() };
    let fields = patch.as_object().into_iter().flatten();
    let below = fields.flat_map(|(name, value)| match known.get(name) {
        None => vec![format!("there is no field {at}{name}")],
        Some(schema) => unknown(value, schema, &format!("{at}{name}.")),
    });
    below.collect()
}

#[test]
fn patches_can_be_read_and_have_only_fields_of_their_objects() {
    let mut texts: Vec<(String, String)> = documents().into_iter().map(|name| (name.clone(), read(&name))).collect();
    let endings = ["hcl", "json", "ps1", "psm1", "py", "sh", "tf", "tftpl", "yaml", "yml"];
    texts.extend(["docs", "packaging"].into_iter().flat_map(|folder| files(folder, &endings)));
    let (mut seen, mut wrong) = (0, Vec::new());
    for (name, text) in texts {
        let (patches, faults) = faults(&text);
        seen += patches;
        wrong.extend(faults.into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 12, "{seen} patches");
}

#[test]
fn wrong_patches_are_detected() {
    for (patch, wanted) in [
        (r#"kubectl patch felixconfiguration default --type=merge -p '{"spec":{"vxlanVNI":5000}'"#, "cannot be read"),
        (r#"kubectl patch felixconfiguration default -p '{"spec":{"vxlanVni":5000}}'"#, "no field spec.vxlanVni"),
        (r#"calicoctl patch felixconfigurations default -p '{"vxlanVNI":5000}'"#, "no field vxlanVNI"),
        (r#"kubectl patch ipamconfigs.crd.projectcalico.org default -p '{"spec":{"strict":true}}'"#, "spec.strict"),
        (r#"oc patch node win-1 -p '{"spec":{"unschedulabel":true}}'"#, "no field spec.unschedulabel"),
        (r#"kubectl patch nodes win-1 -p '{"spec":{"unschedulable":"yes"}}'"#, "invalid type"),
        (r#"kubectl -n kube-system patch configmap x -p '{"dat":{"a":"b"}}'"#, "no field dat"),
        ("kubectl patch node win-1 \\\n  -p '{spec: {}}'", "cannot be read"),
        (r#"kubectl patch felixconfiguration default -p "spec: {vxlanVni: 5000}""#, "no field spec.vxlanVni"),
        (r#"kubectl patch felixconfiguration default -p "spec:{vxlanVNI:5000}""#, "cannot be read"),
        (r#"kubectl patch felixconfiguration default -p "spec: {vxlanVNI:5000}""#, "no field spec.vxlanVNI:5000"),
        // kubectl takes what begins so for JSON.
        (r#"kubectl patch node win-1 -p "{spec: {}}""#, "not in quotes"),
        ("kubectl patch node win-1 -p spec", "not in quotes"),
        ("kubectl patch pods x -p '{}'", "no schema of pods"),
    ] {
        let (_, found) = faults(patch);
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{patch}\n{found:?}");
    }
    for patch in [
        r#"kubectl patch node/win-1 -p '{"metadata":{"labels":{"a":"b"}},"spec":{"unschedulable":null}}'"#,
        r#"kubectl patch node/win-1 -p "--- {metadata: {labels: {a: 'b'}}, spec: {unschedulable: null}}""#,
        "Use `kubectl patch node` for it, or `--type`.",
    ] {
        assert_eq!(faults(patch).1, [""; 0], "{patch}");
    }
}
