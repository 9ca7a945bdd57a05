//! What a console shows of the module's objects: only properties that their documents have.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::Value;

use super::MODULE;
use super::commands::types;
use crate::read;

/// `rolled_back` is `RolledBack`, as the module makes it.
pub(super) fn property(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// The properties of an object that a schema describes.
fn properties(schema: &Value, at: &Value) -> BTreeSet<String> {
    let at = at["$ref"].as_str().map_or(at, |to| schema.pointer(to.trim_start_matches('#')).unwrap());
    at["properties"].as_object().map(|fields| fields.keys().map(|name| property(name)).collect()).unwrap_or_default()
}

/// Those of each type that the module returns.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let all = types().into_iter().map(|(kind, document, list)| {
        let schema: Value = serde_json::from_str(&read(&format!("docs/schema/{document}.json"))).unwrap();
        let fields = match list {
            None => properties(&schema, &schema),
            Some(list) => {
                let field = schema["properties"].as_object().unwrap().iter().find(|(name, _)| property(name) == list);
                let (_, field) = field.unwrap_or_else(|| panic!("{document} has no {list}"));
                properties(&schema, &field["items"])
            }
        };
        assert!(!fields.is_empty(), "{kind}");
        (kind.to_owned(), fields)
    });
    all.collect()
}

#[test]
fn the_views_have_properties_that_the_documents_have() {
    let page = read(&format!("{MODULE}/CalicoctlWin.Format.ps1xml"));
    let view = Regex::new(r"(?s)<View>.*?</View>").unwrap();
    let of = Regex::new(r"<TypeName>CalicoctlWin\.(\w+)</TypeName>").unwrap();
    let shown = Regex::new(r"<PropertyName>(\w+)</PropertyName>").unwrap();
    let known = known();
    let mut seen = 0;
    for view in view.find_iter(&page) {
        let kind = &of.captures(view.as_str()).unwrap()[1];
        let has = known.get(kind).unwrap_or_else(|| panic!("no function returns {kind}"));
        for property in shown.captures_iter(view.as_str()) {
            assert!(has.contains(&property[1]), "{kind} has no {}: {has:?}", &property[1]);
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}
