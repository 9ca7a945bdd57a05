//! A playbook with the Ansible role.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Program, yaml};

/// A playbook that applies the role in `packaging/ansible` to the hosts `windows`. `config` is a whole config document.
///
/// # Errors
/// When the config cannot be written as YAML.
pub fn ansible(config: &Value, program: &Program) -> Result<String> {
    let playbook = json!([{
        "name": "Calico on the Windows nodes",
        "hosts": "windows",
        "roles": [{
            "role": "calicoctl_win",
            "vars": {
                "calicoctl_win_url": literal(&program.url.as_str().into()),
                "calicoctl_win_sha256": program.sha256.to_string(),
                "calicoctl_win_config": literal(config),
            },
        }],
    }]);
    Ok(format!("# Made by calicoctl-win render ansible.\n---\n{}", yaml(&playbook)?))
}

/// A value whose texts Ansible takes as they are: it reads `{{`, `{%` and `{#` as the start of an expression.
fn literal(value: &Value) -> Value {
    match value {
        Value::String(text) if ["{{", "{%", "{#"].iter().any(|start| text.contains(start)) => {
            text.replace('{', "{{ '{' }}").into()
        }
        Value::Array(list) => list.iter().map(literal).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), literal(value))).collect(),
        other => other.clone(),
    }
}
