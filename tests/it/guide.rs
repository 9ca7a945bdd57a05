//! Pages that guide people name only what exists, and all of it.

use std::collections::BTreeSet;

use calicoctl_win::report::explain::explain;
use regex::Regex;

use crate::powershell::ORIGINALS;
use crate::{files, read};

/// The symptoms of the page: their headings and texts.
fn symptoms(page: &str) -> Vec<(&str, &str)> {
    page.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, ""))).collect()
}

#[test]
fn each_symptom_has_a_command_and_a_name_that_can_be_explained() {
    let page = read("docs/troubleshooting.md");
    let name = Regex::new(r"\]\((?:explain|checks|verify)\.md#(\w+)\)").unwrap();
    let shown = Regex::new(r"\[(\w+)\]\((?:explain|checks|verify)\.md#(\w+)\)").unwrap();
    let symptoms = symptoms(&page);
    assert!(symptoms.len() >= 25, "{} symptoms", symptoms.len());
    let mut wrong = Vec::new();
    for (symptom, text) in symptoms {
        let commands = ["`calicoctl-win ", "`kubectl ", "`Get-", "`Restart-", "stop that program"];
        wrong
            .extend((!commands.iter().any(|command| text.contains(command))).then(|| format!("{symptom}: no command")));
        wrong.extend((!name.is_match(text)).then(|| format!("{symptom}: no name")));
        for found in shown.captures_iter(text) {
            let same = found[1].to_lowercase() == found[2].to_lowercase();
            wrong.extend((!same || explain(&found[1]).is_none()).then(|| format!("{symptom}: {}", &found[0])));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_runbook_is_one_page() {
    let lines = read("docs/runbook.md").lines().count();
    assert!(lines <= 80, "{lines} lines");
}

#[test]
fn the_readme_starts_with_getting_the_program_and_the_index_with_the_first_node() {
    let readme = read("README.md");
    let (before, after) = readme.split_once("\n## ").unwrap();
    assert!(after.starts_with("Get it\n"), "{}", after.lines().next().unwrap());
    assert!(!before.contains("cargo") && !before.contains("```"), "{before}");
    let index = read("docs/README.md");
    let first = index.split("](").nth(1).unwrap();
    assert!(first.starts_with("first-node.md)"), "{first}");
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("docs/README.md");
    let pages = files("docs", &["md"]).into_iter().map(|(path, _)| path.replacen("docs/", "", 1));
    let missing: Vec<String> =
        pages.filter(|page| page != "README.md" && !index.contains(&format!("({page}"))).collect();
    assert!(missing.is_empty(), "docs/README.md does not link {missing:?}");
}

/// What people come for.
#[test]
fn the_index_leads_to_a_page_for_each_need() {
    let index = read("docs/README.md");
    let howtos = ["kubeadm", "aks", "eks", "ec2", "gce", "rke2", "openshift", "etcd", "bgp", "cluster-vni", "upgrade"];
    let howtos = howtos.into_iter().chain(["proxy", "operator", "recover"]).map(|name| format!("howto/{name}"));
    let pages = ["air-gap", "terraform", "first-boot", "golden-image", "dsc", "flannel", "from-scripts", "hostprocess"];
    let more = ["troubleshooting", "runbook", "cli", "config", "checks", "explain", "exit-codes", "output", "touched"];
    let why = ["what-happens", "limits"];
    let all = howtos.chain(pages.into_iter().chain(more).chain(why).map(str::to_owned));
    let missing: Vec<String> = all
        .filter(|name| !index.contains(&format!("({name}.md")) || read(&format!("docs/{name}.md")).len() < 500)
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// What the scripts' variables mean, as `config import` has it: the variable, and the field if it has one.
fn meanings() -> Vec<(String, Option<String>)> {
    let source = read("src/config/import/meaning.rs");
    let (_, body) = source.split_once("match name {").unwrap();
    let (body, _) = body.split_once("_ if may_be_secret").unwrap();
    let arm = Regex::new(r#"(?s)((?:\s*\|?\s*"\w+")+) => (?:(?:Field|Etcd)\("([\w.]+)")?"#).unwrap();
    let name = Regex::new(r#""(\w+)""#).unwrap();
    let arms = arm.captures_iter(body).flat_map(|arm| {
        let field = arm.get(2).map(|field| field.as_str().to_owned());
        name.captures_iter(&arm[1]).map(|name| (name[1].to_owned(), field.clone())).collect::<Vec<_>>()
    });
    arms.collect()
}

#[test]
fn every_parameter_and_variable_of_the_scripts_has_a_row() {
    let page = read("docs/from-scripts.md");
    let row = |name: &str| {
        let name = format!("`{name}`");
        let cell = |line: &&str| {
            line.split('|').nth(1).into_iter().chain(line.split('|').nth(2)).any(|cell| cell.contains(&name))
        };
        page.lines().filter(|line| line.starts_with('|')).find(cell)
    };
    let meanings = meanings();
    assert!(meanings.len() > 30, "{meanings:?}");
    let mut wrong = Vec::new();
    for (variable, field) in &meanings {
        let has_field = |row: &str| field.as_ref().is_none_or(|field| row.contains(&format!("`{field}`")));
        wrong.extend((!row(variable).is_some_and(has_field)).then(|| format!("{variable}: {field:?}")));
    }
    // Those of the scripts themselves, of each form that they have had.
    let set = Regex::new(r#"(?m)^\s*#?\s*(?:Set-EnvVarIfNotSet -var "|\$env:)([A-Z_0-9]+)"#).unwrap();
    let scripts = files("tests/fixtures/config-ps1", &["ps1"]);
    let variables: BTreeSet<String> =
        scripts.iter().flat_map(|(_, text)| set.captures_iter(text).map(|set| set[1].to_owned())).collect();
    assert!(variables.len() > 25, "{variables:?}");
    wrong.extend(variables.into_iter().filter(|variable| row(variable).is_none()));
    let parameters = ORIGINALS.iter().flat_map(|(_, parameters)| parameters.iter());
    wrong.extend(parameters.filter(|parameter| row(parameter).is_none()).map(|parameter| (*parameter).to_owned()));
    wrong.extend(ORIGINALS.iter().filter(|(script, _)| !page.contains(script)).map(|(script, _)| (*script).to_owned()));
    assert!(wrong.is_empty(), "docs/from-scripts.md has no row for: {wrong:#?}");
}

/// Every field that the page of the scripts names is one of the config.
#[test]
fn the_fields_that_replace_the_scripts_variables_exist() {
    let fields: BTreeSet<String> = calicoctl_win::config::fields().map(|field| field.path).collect();
    let named = Regex::new(r"`((?:calico|kubernetes|calicoNetwork|datastore|windowsNodes|services|platform)\.[\w.]+)`")
        .unwrap();
    let page = read("docs/from-scripts.md");
    let wrong: Vec<&str> = named
        .captures_iter(&page)
        .map(|found| found.get(1).unwrap().as_str())
        .filter(|path| !fields.contains(&format!("spec.{path}")))
        .collect();
    assert_eq!(wrong, [""; 0]);
}
