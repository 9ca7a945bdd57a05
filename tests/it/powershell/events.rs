//! What the module reads of the lines that the program prints while it works: only events and fields that their schema
//! has. PowerShell itself reads a field that does not exist as nothing, and shows no error.

use std::collections::BTreeSet;

use calicoctl_win::fault::Exit;
use regex::Regex;
use serde_json::Value;

use super::MODULE;
use super::formats::property;
use crate::read;

/// The branch of the schema for an event.
fn event<'a>(schema: &'a Value, name: &str) -> &'a Value {
    let all = schema["oneOf"].as_array().unwrap();
    let found = all.iter().find(|event| event["properties"]["type"]["const"] == name);
    found.unwrap_or_else(|| panic!("no event is named {name}"))
}

fn resolved<'a>(schema: &'a Value, at: &'a Value) -> &'a Value {
    let to = at["$ref"].as_str().or_else(|| {
        // One that may be null.
        at["anyOf"].as_array()?.iter().find_map(|one| one["$ref"].as_str())
    });
    to.map_or(at, |to| schema.pointer(to.trim_start_matches('#')).unwrap())
}

/// Whether an object has this field, or this one of a field of its own: `phase.total`.
fn has(schema: &Value, object: &Value, path: &str, named: impl Fn(&str) -> String + Copy) -> bool {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(fields) = object["properties"].as_object() else { return false };
    let Some((_, field)) = fields.iter().find(|(name, _)| named(name) == first) else { return false };
    rest.is_empty() || has(schema, resolved(schema, field), rest, named)
}

/// A function of the module, from its name to the end.
fn function<'a>(module: &'a str, name: &str) -> &'a str {
    let (_, rest) = module.split_once(&format!("function {name} {{")).unwrap();
    rest.split_once("\n}\n").unwrap().0
}

/// The fields of a variable that a text reads, and those whose existence it asks for.
fn fields_of(variable: &str, text: &str) -> BTreeSet<String> {
    let read = Regex::new(&format!(r"(?i)\${variable}((?:\.\w+)+)(?:\['(\w+)'\])?")).unwrap();
    let paths = read.captures_iter(text).map(|found| {
        let path = found[1].trim_start_matches('.').to_owned();
        match (path.split_once("PSObject.Properties"), found.get(2)) {
            (Some((before, _)), Some(asked)) => format!("{before}{}", asked.as_str()),
            _ => path,
        }
    });
    let paths: BTreeSet<String> = paths.collect();
    assert!(!paths.is_empty(), "{variable} is not read: {text}");
    paths
}

#[test]
fn the_events_that_the_module_shows_have_the_names_and_fields_of_the_schema() {
    let schema: Value = serde_json::from_str(&read("docs/schema/EventLine.json")).unwrap();
    let module = read(&format!("{MODULE}/CalicoctlWin.psm1"));
    let shows = function(&module, "Write-Event");
    let clause = Regex::new(r"(?m)^        (?:('\w+')|\{ \$_ -in (.+?) \}|default) \{").unwrap();
    let starts: Vec<_> = clause.captures_iter(shows).collect();
    let mut seen = BTreeSet::new();
    for (number, start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).map_or(shows.len(), |next| next.get(0).unwrap().start());
        let body = &shows[start.get(0).unwrap().end()..end];
        let Some(names) = start.get(1).or_else(|| start.get(2)) else {
            // Of all other events.
            for field in fields_of("Said", body) {
                assert!(schema["properties"].get(&field).is_some(), "not every event has {field}");
            }
            continue;
        };
        for name in names.as_str().split(", ").map(|name| name.trim_matches('\'')) {
            let branch = event(&schema, name);
            for field in fields_of("Said", body) {
                let common = schema["properties"].get(&field).is_some();
                assert!(common || has(&schema, branch, &field, str::to_owned), "{name} has no {field}");
            }
            assert!(seen.insert(name.to_owned()), "{name} is shown twice");
        }
    }
    assert!(seen.len() > 8 && seen.contains("phase_start"), "{seen:?}");
}

#[test]
fn what_the_module_reads_of_documents_and_results_is_in_their_schemas() {
    let schema: Value = serde_json::from_str(&read("docs/schema/EventLine.json")).unwrap();
    let module = read(&format!("{MODULE}/CalicoctlWin.psm1"));
    let runs = function(&module, "Invoke-Program");
    let named = Regex::new(r"type -eq '(\w+)'").unwrap();
    let names: Vec<&str> = named.captures_iter(runs).map(|found| found.get(1).unwrap().as_str()).collect();
    assert_eq!(names, ["document", "result"]);
    for name in names {
        let _there = event(&schema, name);
    }
    for field in fields_of("said", runs) {
        assert!(field == "type" || has(&schema, event(&schema, "document"), &field, str::to_owned), "{field}");
    }
    let result: Value = serde_json::from_str(&read("docs/schema/RunResult.json")).unwrap();
    let fails = function(&module, "Write-Failure");
    for field in fields_of("Result", fails) {
        assert!(has(&result, &result, &field, property), "a result has no {field}");
    }
    let exits: BTreeSet<&str> = Exit::all().map(Exit::name).collect();
    let category = Regex::new(r"'([A-Z_]+)' \{").unwrap();
    let known: Vec<&str> = category.captures_iter(fails).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(known.len() > 4 && known.iter().all(|name| exits.contains(name)), "{known:?}");
}
