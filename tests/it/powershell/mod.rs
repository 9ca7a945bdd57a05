//! Checks PowerShell: its grammar, and its commands and parameters as Microsoft recorded them on Windows Server 2019, in
//! Windows PowerShell 5.1 and PowerShell 7.0. Nothing here runs PowerShell; the workflow's Windows machines do.

mod commands;
mod events;
mod formats;
mod scripts;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tree_sitter::{Node, Tree};

use crate::read;

pub use scripts::ORIGINALS;

/// The folder of the module.
const MODULE: &str = "packaging/powershell/CalicoctlWin";

fn parse(script: &str) -> Tree {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_pwsh::LANGUAGE.into()).unwrap();
    parser.parse(script, None).unwrap()
}

/// Returns the syntax tree of an invalid PowerShell script; none for a valid one.
pub fn errors(script: &str) -> Option<String> {
    let tree = parse(script);
    tree.root_node().has_error().then(|| tree.root_node().to_sexp())
}

/// Every node of this kind below one, in order.
fn below<'a>(node: Node<'a>, kind: &str) -> Vec<Node<'a>> {
    let (mut open, mut found) = (vec![node], Vec::new());
    while let Some(node) = open.pop() {
        if node.kind() == kind {
            found.push(node);
        }
        let mut cursor = node.walk();
        let children: Vec<Node<'a>> = node.children(&mut cursor).collect();
        open.extend(children.into_iter().rev());
    }
    found
}

fn text<'a>(node: Node<'_>, script: &'a str) -> &'a str {
    &script[node.byte_range()]
}

/// The functions that a script defines, with their parameters.
fn functions(script: &str) -> BTreeMap<String, BTreeSet<String>> {
    let tree = parse(script);
    let defined = below(tree.root_node(), "function_statement").into_iter().map(|function| {
        let name = below(function, "function_name").first().map(|name| text(*name, script).to_lowercase());
        let parameters = below(function, "script_parameter").into_iter().filter_map(|parameter| {
            below(parameter, "variable").first().map(|name| text(*name, script).trim_start_matches('$').to_lowercase())
        });
        (name.unwrap_or_default(), parameters.collect())
    });
    defined.collect()
}

/// The functions of the module, with their parameters.
pub fn of_the_module() -> BTreeMap<String, BTreeSet<String>> {
    ["CalicoctlWin.psm1", "Commands.ps1"]
        .iter()
        .flat_map(|file| functions(&read(&format!("{MODULE}/{file}"))))
        .collect()
}

/// Every call in a script: the name of the command, and the whole call.
pub fn calls(script: &str) -> Vec<(String, String)> {
    let tree = parse(script);
    let calls = below(tree.root_node(), "command").into_iter().filter_map(|call| {
        let name = below(call, "command_name").into_iter().next()?;
        Some((text(name, script).to_owned(), text(call, script).to_owned()))
    });
    calls.collect()
}

/// What one version of PowerShell has.
#[derive(Deserialize)]
struct Profile {
    common: Vec<String>,
    commands: BTreeMap<String, BTreeSet<String>>,
}

/// The calls of commands, or of parameters, that a version of PowerShell does not have. `known`: functions that are
/// loaded too.
pub fn unknown(script: &str, known: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let profiles: BTreeMap<String, Profile> = serde_json::from_str(&read("tests/fixtures/powershell.json")).unwrap();
    let (tree, own) = (parse(script), functions(script));
    let mut wrong = Vec::new();
    for call in below(tree.root_node(), "command") {
        let mut cursor = call.walk();
        let children: Vec<Node<'_>> = call.children(&mut cursor).collect();
        let Some(name) = children.iter().find(|child| child.kind() == "command_name") else { continue };
        let (name, line) = (text(*name, script), call.start_position().row + 1);
        // Programs have no hyphen here, and are called with `&`.
        if !name.contains('-') {
            wrong.push(format!("line {line}: {name} is no cmdlet"));
            continue;
        }
        let given: Vec<String> = children
            .iter()
            .filter(|child| child.kind() == "command_elements")
            .flat_map(|elements| {
                let mut cursor = elements.walk();
                elements.children(&mut cursor).collect::<Vec<_>>()
            })
            .filter(|element| element.kind() == "command_parameter")
            .map(|element| text(element, script).trim_start_matches('-').trim_end_matches(':').to_lowercase())
            .collect();
        for (version, profile) in &profiles {
            let lower = |names: &BTreeSet<String>| names.iter().map(|name| name.to_lowercase()).collect();
            let cmdlet = profile.commands.iter().find(|(cmdlet, _)| cmdlet.eq_ignore_ascii_case(name));
            let function = own.get(&name.to_lowercase()).or_else(|| known.get(&name.to_lowercase()));
            let Some(mut has) = cmdlet.map(|(_, has)| lower(has)).or_else(|| function.cloned()) else {
                wrong.push(format!("line {line}: {version} has no {name}"));
                continue;
            };
            has.extend(profile.common.iter().map(|name| name.to_lowercase()));
            has.extend(["whatif".to_owned(), "confirm".to_owned()].into_iter().filter(|_| function.is_some()));
            let absent = given.iter().filter(|given| !has.contains(*given));
            wrong.extend(absent.map(|given| format!("line {line}: {name} of {version} has no -{given}")));
        }
    }
    wrong
}

/// Whether a command's name begins with a verb that PowerShell approves (`Get-Verb` of 5.1), for those in use here.
fn is_approved(name: &str) -> bool {
    const APPROVED: [&str; 27] = [
        "Add",
        "Compare",
        "Confirm",
        "ConvertTo",
        "Expand",
        "Export",
        "Get",
        "Import",
        "Initialize",
        "Install",
        "Invoke",
        "Read",
        "Repair",
        "Reset",
        "Restart",
        "Restore",
        "Resume",
        "Save",
        "Set",
        "Start",
        "Stop",
        "Suspend",
        "Switch",
        "Test",
        "Uninstall",
        "Update",
        "Write",
    ];
    name.split_once('-').is_some_and(|(verb, _)| APPROVED.contains(&verb))
}

#[test]
fn invalid_powershell_is_detected() {
    assert!(errors("if ($true { Get-Date }").is_some());
    assert_eq!(errors("if ($true) { Get-Date }"), None);
    let script = "function Get-It { param([string] $Name) $Name }\nGet-It -Name a -Age 3\nGet-Them\nGet-Date -Format s\nGet-Date -AsUTC\nConvertFrom-Json -InputObject a -Depth 3";
    let found = unknown(script, &BTreeMap::new());
    let wanted = [
        "line 2: Get-It of 5.1 has no -age",
        "line 2: Get-It of 7.0 has no -age",
        "line 3: 5.1 has no Get-Them",
        "line 3: 7.0 has no Get-Them",
        "line 5: Get-Date of 5.1 has no -asutc",
        "line 5: Get-Date of 7.0 has no -asutc",
        "line 6: ConvertFrom-Json of 5.1 has no -depth",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn the_module_is_valid_and_uses_only_what_windows_has() {
    let files =
        ["CalicoctlWin.psm1", "Commands.ps1", "CalicoctlWin.psd1"].map(|name| read(&format!("{MODULE}/{name}")));
    let known: BTreeMap<String, BTreeSet<String>> = files.iter().flat_map(|script| functions(script)).collect();
    for script in &files {
        assert_eq!(errors(script), None);
        assert_eq!(unknown(script, &known), [""; 0]);
        assert!(script.is_ascii(), "Windows PowerShell reads it with the machine's code page");
    }
    let wrong: Vec<&String> = known
        .keys()
        .filter(|name| {
            let name = functions_name(name, &files);
            !is_approved(&name)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The name as it is written.
fn functions_name(lower: &str, files: &[String]) -> String {
    let written = files.iter().flat_map(|script| script.split(|c: char| !c.is_alphanumeric() && c != '-'));
    written.into_iter().find(|word| word.eq_ignore_ascii_case(lower)).unwrap_or_default().to_owned()
}
