//! A call of the Terraform module, as `terraform fmt` would write it.

use serde_json::Value;

use super::{Program, Runner};

/// A file with a call of the module at `source`. `config` is a whole config document.
pub fn terraform(runner: Runner, config: &Value, program: &Program, source: &str) -> String {
    let runner = match runner {
        Runner::CloudbaseInit => "cloudbase-init",
        Runner::Ec2Launch => "ec2launch",
        Runner::Script => "script",
    };
    let mut arguments = vec![
        ("program_url", quoted(&program.url)),
        ("program_sha256", quoted(&program.sha256.to_string())),
        ("runner", quoted(runner)),
    ];
    if let Some(name) = config.pointer("/metadata/name").and_then(Value::as_str) {
        arguments.push(("name", quoted(name)));
    }
    arguments.push(("spec", expression(&config["spec"], 1)));
    let arguments: Vec<(String, String)> = arguments.into_iter().map(|(name, value)| (name.into(), value)).collect();
    format!(
        "# Made by calicoctl-win render terraform.\nmodule \"calico\" {{\n  source = {}\n\n{}}}\n",
        quoted(source),
        lines(&arguments, "  ")
    )
}

/// A line of each name and value. Neighbours of one line are aligned.
fn lines(fields: &[(String, String)], indent: &str) -> String {
    let mut text = String::new();
    for group in fields.chunk_by(|(_, one), (_, next)| !one.contains('\n') && !next.contains('\n')) {
        let width = group.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        for (name, value) in group {
            text.push_str(&format!("{indent}{name:width$} = {value}\n"));
        }
    }
    text
}

/// A value as an expression of Terraform; its first line starts at any column, the others are indented.
fn expression(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        Value::String(text) => quoted(text),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(|one| expression(one, depth + 1)).collect();
            if list.iter().any(|one| one.contains('\n')) {
                let elements: String = list.iter().map(|one| format!("{indent}  {one},\n")).collect();
                format!("[\n{elements}{indent}]")
            } else {
                format!("[{}]", list.join(", "))
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let fields: Vec<(String, String)> =
                fields.iter().map(|(name, value)| (key(name), expression(value, depth + 1))).collect();
            format!("{{\n{}{indent}}}", lines(&fields, &format!("{indent}  ")))
        }
        // Numbers, true, false, null and {} are written as in JSON.
        other => other.to_string(),
    }
}

/// A name without quotes, unless it would be something else there.
fn key(name: &str) -> String {
    let word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if word && !["for", "null", "true", "false"].contains(&name) { name.into() } else { quoted(name) }
}

/// A text in quotes. Besides the escapes of JSON, `${` and `%{` start expressions in it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace("${", "$${").replace("%{", "%%{")
}
