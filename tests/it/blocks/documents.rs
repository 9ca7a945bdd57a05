//! Documents in blocks: configs, the program's JSON, calls of the Terraform module, playbooks.

use calicoctl_win::config::{self, Document};
use calicoctl_win::node::sandbox::model::Model;
use regex::Regex;
use serde_json::Value;

use crate::read;
use crate::stories::schemas::published;

/// Returns what is wrong with the documents of a YAML text.
pub fn yaml(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for document in text.split("---\n") {
        let value: Value = match serde_yaml::from_str(document) {
            Ok(value) => value,
            Err(error) => return vec![format!("not YAML: {error}")],
        };
        match value["kind"].as_str() {
            Some("SandboxNode") => {
                wrong.extend(serde_json::from_value::<Model>(value).err().map(|error| error.to_string()));
            }
            Some("NodeInstallation") => wrong.extend(config(document)),
            None if value.is_array() => wrong.extend(playbook(&value)),
            None if value["groups"].is_array() => wrong.extend(alerts(&value)),
            None if value["spec"].is_object() => wrong.extend(config(document)),
            _ => wrong.push("there is no rule for this document".into()),
        }
    }
    wrong
}

/// Returns what is wrong with a config, or a part of one.
fn config(document: &str) -> Option<String> {
    let loaded = config::load(&[Document { name: "config".into(), text: document.to_owned() }], &[]);
    loaded.err().map(|error| format!("{error:#}"))
}

/// Returns what is wrong with the calls of the Ansible role in a playbook.
fn playbook(plays: &Value) -> Vec<String> {
    let specs: Value = serde_yaml::from_str(&read("packaging/ansible/calicoctl_win/meta/argument_specs.yml")).unwrap();
    let options = &specs["argument_specs"]["main"]["options"];
    let roles = plays.as_array().into_iter().flatten().filter_map(|play| play["roles"].as_array()).flatten();
    let mut wrong = Vec::new();
    for role in roles.filter(|role| role["role"] == "calicoctl_win") {
        let variables: Vec<&String> = role["vars"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        let unknown = variables.iter().filter(|name| options[name.as_str()].is_null());
        wrong.extend(unknown.map(|name| format!("the role has no variable {name}")));
        let given = &role["vars"]["calicoctl_win_config"];
        wrong.extend((!given.is_null()).then(|| config(&given.to_string())).flatten());
    }
    wrong
}

/// Returns what is wrong with the alerting rules of Prometheus: metrics that the program does not print.
fn alerts(rules: &Value) -> Vec<String> {
    let printed = read("src/report/metrics.rs");
    let metric = Regex::new(r"calicoctl_win_(\w+)").unwrap();
    let text = rules.to_string();
    let unknown = metric.captures_iter(&text).filter(|found| !printed.contains(&format!("\"{}\"", &found[1])));
    unknown.map(|found| format!("there is no metric {}", &found[0])).collect()
}

/// Returns what is wrong with a JSON document; one of this program may be an excerpt.
pub fn json(text: &str) -> Vec<String> {
    match serde_json::from_str::<Value>(text) {
        Err(error) => vec![format!("not JSON: {error}")],
        Ok(value) => {
            let published = published();
            let Some(schema) = value["kind"].as_str().and_then(|kind| published.get(kind)) else { return Vec::new() };
            let fields = value.as_object().into_iter().flatten().map(|(name, _)| name);
            let unknown = fields.filter(|name| schema["properties"][name.as_str()].is_null());
            unknown.map(|name| format!("{} has no field {name}", value["kind"])).collect()
        }
    }
}

/// Returns what is wrong with a call of the Terraform module: its variables, and the fields of `spec`.
pub fn hcl(text: &str) -> Vec<String> {
    let variables = read("packaging/terraform/variables.tf");
    let mut wrong = Vec::new();
    let argument = Regex::new(r"(?m)^  (\w+) +=").unwrap();
    for name in argument.captures_iter(text).map(|found| found[1].to_owned()).filter(|name| name != "source") {
        let declared = variables.contains(&format!("variable \"{name}\" {{"));
        wrong.extend((!declared).then(|| format!("the module has no variable `{name}`")));
    }
    let spec = Regex::new(r"(?ms)^  spec = \{\n(.*?)^  \}").unwrap();
    let aligned = Regex::new(" += ").unwrap();
    for spec in spec.captures_iter(text) {
        // An object is YAML in braces if its fields are separated by commas.
        let fields: Vec<String> =
            spec[1].lines().map(|line| aligned.replace_all(line.trim(), ": ").into_owned()).collect();
        let document = format!("spec: {{{}}}", fields.join(", "));
        wrong.extend(yaml(&document));
    }
    wrong
}
