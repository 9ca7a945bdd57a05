//! Merges documents and overrides field by field. Each field remembers who set it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;

use super::errors::{Finding, suggestion};
use super::schema::{self, Scalar, Schema};
use super::spec::Config;
use super::{Document, Origin, Override};
use crate::yaml::{self, Node, Value};

/// The fields that are set, by dotted path, with who set them last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layers {
    leaves: BTreeMap<Vec<String>, (Json, Origin)>,
    pub findings: Vec<Finding>,
}

impl Layers {
    /// Merges a document over the layers so far.
    pub fn document(&mut self, document: &Document) {
        let from = |line, column| Origin::File { name: document.name.clone(), line, column };
        match yaml::parse(&document.text) {
            Ok(nodes) => {
                for node in &nodes {
                    let mut layer = Self::default();
                    layer.node(node, schema::root(), &mut Vec::new(), &from);
                    self.cover(layer);
                }
            }
            Err(e) => self.findings.push(Finding::new(&from(e.line, e.column), "", e.problem)),
        }
    }

    /// Merges one value over the layers so far. The leading `spec.` may be left out.
    pub fn set(&mut self, given: &Override) {
        let mut path: Vec<&str> = given.path.split('.').collect();
        if !matches!(path[0], "apiVersion" | "kind" | "metadata" | "spec") {
            path.insert(0, "spec");
        }
        let refuse = |problem: String| Finding::new(&given.from, &path.join("."), problem);
        let schema = match schema::root().at(&path) {
            Ok(schema) => schema,
            Err((known, allowed)) => {
                self.findings.push(refuse(format!("unknown field; {}", suggestion(path[known], &allowed))));
                return;
            }
        };
        let value = match schema {
            Schema::Scalar(_) => Ok(Value::plain(&given.value)),
            Schema::List(_) if !given.value.trim_start().starts_with('[') => {
                let items = given.value.split(',').map(str::trim).filter(|item| !item.is_empty());
                Ok(Value::List(items.map(|item| Node { value: Value::plain(item), line: 1, column: 1 }).collect()))
            }
            _ => match yaml::parse(&given.value).map(|mut nodes| nodes.pop()) {
                Ok(Some(node)) => Ok(node.value),
                Ok(None) => Err("there is no value".to_owned()),
                Err(e) => Err(e.problem),
            },
        };
        match value {
            Ok(value) => {
                let mut path = path.iter().map(|part| (*part).to_owned()).collect();
                let node = Node { value, line: 1, column: 1 };
                let mut layer = Self::default();
                layer.node(&node, schema, &mut path, &|_, _| given.from.clone());
                self.cover(layer);
            }
            Err(problem) => self.findings.push(refuse(problem)),
        }
    }

    /// Merges a layer over the layers so far. The release's source is one choice in several fields: a layer that sets
    /// it unsets contradicting fields of lower layers.
    fn cover(&mut self, layer: Self) {
        let field = |name: &str| ["spec", "calico", "source", name].map(str::to_owned).to_vec();
        let [kind, path, url] = ["type", "path", "urlTemplate"].map(field);
        let new = |at: &Vec<String>| layer.leaves.get(at).and_then(|(value, _)| value.as_str()).unwrap_or_default();
        let local = |kind: &str| matches!(kind, "bundle" | "directory");
        let (new_kind, new_path, new_url) = (new(&kind), new(&path), new(&url));
        // One flag may set several fields: they are one layer.
        let origin = |at: &Vec<String>| layer.leaves.get(at).map(|(_, from)| from);
        let from = origin(&kind).or(origin(&path)).or(origin(&url));
        let leaves = &mut self.leaves;
        let mut take_back = |at: &Vec<String>, if_value: &dyn Fn(&str) -> bool| {
            let below = leaves.get(at).is_some_and(|(value, who)| {
                let other = matches!(who, Origin::File { .. }) || Some(who) != from;
                other && value.as_str().is_some_and(if_value)
            });
            if below {
                leaves.remove(at);
            }
        };
        if !new_path.is_empty() || local(new_kind) {
            take_back(&url, &|_| true);
            take_back(&kind, &|kind| !local(kind));
        }
        if !new_url.is_empty() || matches!(new_kind, "mirror" | "release") {
            take_back(&path, &|_| true);
            take_back(&kind, &local);
        }
        if new_kind == "release" {
            take_back(&url, &|_| true);
        }
        self.leaves.extend(layer.leaves);
        self.findings.extend(layer.findings);
    }

    /// Everything that was set, except the sections and fields at these paths.
    pub fn document_without(&self, paths: &[&str]) -> Json {
        let mut whole = Json::Object(serde_json::Map::new());
        for (path, (value, _)) in &self.leaves {
            let name = path.join(".");
            let below = |section: &&str| {
                name.strip_prefix(*section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if !paths.iter().any(below) {
                merge(&mut whole, path, value.clone());
            }
        }
        whole
    }

    /// Whether no layer sets a field, or one only names its kind by half.
    pub fn is_empty(&self) -> bool {
        self.leaves.len() < 2 && self.leaves.keys().all(|path| matches!(path[0].as_str(), "apiVersion" | "kind"))
    }

    /// The config of all layers merged.
    pub fn config(&self) -> Config {
        let whole = self.document_without(&[]);
        // Each field was checked alone when it was merged, so the whole deserializes.
        Config::deserialize(whole).expect("checked fields make a config")
    }

    /// The fields that are set, in the schema's order, each with its path, value and origin.
    pub fn fields(&self, schema: &Schema) -> Vec<(&[String], &Json, &Origin)> {
        let below = |leaf: &[String], path: &str| {
            let mut parts = leaf.iter();
            path.split('.').all(|part| parts.next().is_some_and(|own| own == part))
        };
        let paths = schema.fields();
        let leaves = |path: &str| self.leaves.iter().filter(|(leaf, _)| below(leaf, path)).collect::<Vec<_>>();
        let found = paths.iter().flat_map(|(path, _)| leaves(path));
        found.map(|(path, (value, from))| (path.as_slice(), value, from)).collect()
    }

    /// The origin to report for a field that may not be set: that of the nearest set one.
    pub fn nearest_origin(&self, path: &str) -> Option<&Origin> {
        let above = || path.rsplit_once('.').map(|(above, _)| above).filter(|above| above.contains('.'));
        self.origin(path).or_else(|| self.nearest_origin(above()?))
    }

    /// Who set a field, or the first field below a section.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        let path: Vec<&str> = path.split('.').collect();
        let below = |leaf: &[String]| leaf.len() >= path.len() && leaf.iter().zip(&path).all(|(a, b)| a == b);
        self.leaves.iter().find(|(leaf, _)| below(leaf)).map(|(_, (_, from))| from)
    }

    fn refuse(&mut self, from: &Origin, path: &[String], problem: impl Into<String>) {
        self.findings.push(Finding::new(from, &path.join("."), problem));
    }

    /// Merges a node, by the schema. `from` makes the origin of a position.
    fn node(&mut self, node: &Node, schema: &Schema, path: &mut Vec<String>, from: &dyn Fn(usize, usize) -> Origin) {
        let here = from(node.line, node.column);
        match (schema, &node.value) {
            // A field without a value is not set: the value of lower layers remains.
            (_, Value::Null) => {}
            (Schema::Section(fields), Value::Map(entries)) => {
                for (key, below) in entries {
                    let name = key_text(key);
                    path.push(name.clone());
                    if let Some((_, field)) = fields.iter().find(|(field, _)| *field == name) {
                        self.node(below, &field.schema, path, from);
                    } else {
                        let allowed: Vec<&str> = fields.iter().map(|(field, _)| field.as_str()).collect();
                        let problem = format!("unknown field; {}", suggestion(&name, &allowed));
                        self.refuse(&from(key.line, key.column), path, problem);
                    }
                    path.pop();
                }
            }
            (Schema::Entries(each), Value::Map(entries)) => {
                for (key, below) in entries {
                    path.push(key_text(key));
                    self.node(below, each, path, from);
                    path.pop();
                }
            }
            (Schema::Free, Value::Map(_)) => {
                if self.has_no_placeholder(node, path, from) {
                    self.leaves.insert(path.clone(), (node.value.to_json(), here));
                }
            }
            (Schema::Choice(_), Value::Map(_)) => {
                if self.has_no_placeholder(node, path, from) {
                    let value = node.value.to_json();
                    match read(path, value.clone()) {
                        Ok(()) => drop(self.leaves.insert(path.clone(), (value, here))),
                        Err(problem) => self.refuse(&here, path, problem),
                    }
                }
            }
            (Schema::List(each), Value::List(items)) => {
                let taken: Vec<Json> = items.iter().filter_map(|item| self.item(item, each, path, from)).collect();
                if taken.len() == items.len() {
                    self.leaves.insert(path.clone(), (Json::Array(taken), here));
                }
            }
            (Schema::Scalar(scalar) | Schema::Choice(scalar), Value::Scalar { .. }) => {
                if let Some(value) = self.scalar(node, scalar, path, from, |value| value) {
                    self.leaves.insert(path.clone(), (value, here));
                }
            }
            (Schema::Section(fields), _) => {
                let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
                let kind = node.value.kind();
                self.refuse(
                    &here,
                    path,
                    format!("expected a section with fields, found {kind}; fields: {}", names.join(", ")),
                );
            }
            (expected, found) => {
                let expected = match expected {
                    Schema::List(_) => "a list like [a, b]".to_owned(),
                    Schema::Scalar(scalar) => scalar.expected(),
                    Schema::Choice(_) => expected.takes(),
                    _ => "names with values".to_owned(),
                };
                self.refuse(&here, path, format!("expected {expected}, found {}", found.kind()));
            }
        }
    }

    fn item(
        &mut self,
        item: &Node,
        each: &Schema,
        path: &[String],
        from: &dyn Fn(usize, usize) -> Origin,
    ) -> Option<Json> {
        match (each, &item.value) {
            (Schema::Scalar(scalar), Value::Scalar { .. }) => {
                self.scalar(item, scalar, path, from, |value| Json::Array(vec![value]))
            }
            (_, found) => {
                let problem = format!("expected a list of single values, found {} in it", found.kind());
                self.refuse(&from(item.line, item.column), path, problem);
                None
            }
        }
    }

    /// The value of a scalar if it is valid; `whole` makes the field's value from it, for the check.
    fn scalar(
        &mut self,
        node: &Node,
        scalar: &Scalar,
        path: &[String],
        from: &dyn Fn(usize, usize) -> Origin,
        whole: impl Fn(Json) -> Json,
    ) -> Option<Json> {
        if !self.has_no_placeholder(node, path, from) {
            return None;
        }
        let problem = match typed(&node.value, scalar) {
            None => format!("expected {}, found {}", scalar.expected(), found(&node.value)),
            Some(value) => match read(path, whole(value.clone())) {
                Ok(()) if in_range(&value, scalar) => return Some(value),
                Ok(()) => format!("expected {}, found `{value}`", scalar.expected()),
                Err(problem) => explain(&problem, &value, scalar),
            },
        };
        self.refuse(&from(node.line, node.column), path, problem);
        None
    }

    /// Whether it contains no placeholder like `<your service cidr>`.
    fn has_no_placeholder(&mut self, node: &Node, path: &[String], from: &dyn Fn(usize, usize) -> Origin) -> bool {
        // Not the name of a group in a regular expression, as in `(?<name>…)` and `(?P<name>…)`.
        static PLACEHOLDER: LazyLock<regex::Regex> =
            LazyLock::new(|| regex::Regex::new(r"(?:^|[^?P])(<[^<>]+>)").expect("a literal expression is right"));
        let before = self.findings.len();
        match &node.value {
            Value::Null => {}
            Value::Scalar { text, .. } => {
                if let Some(found) = PLACEHOLDER.captures(text) {
                    let problem = format!("`{}` is a placeholder; write the real value", &found[1]);
                    self.refuse(&from(node.line, node.column), path, problem);
                }
            }
            Value::List(items) => {
                for item in items {
                    self.has_no_placeholder(item, path, from);
                }
            }
            Value::Map(entries) => {
                for (_, below) in entries {
                    self.has_no_placeholder(below, path, from);
                }
            }
        }
        self.findings.len() == before
    }
}

fn key_text(key: &Node) -> String {
    match &key.value {
        Value::Scalar { text, .. } => text.clone(),
        other => other.to_json().to_string(),
    }
}

/// For messages: the kind of the value, and the value.
fn found(value: &Value) -> String {
    match value {
        Value::Scalar { text, json: Json::String(_) } => format!("the text `{text}`"),
        Value::Scalar { text, .. } => format!("`{text}`"),
        other => other.kind().to_owned(),
    }
}

/// The scalar with the field's type. A text field keeps the text as written, whatever YAML's own type of it.
fn typed(value: &Value, scalar: &Scalar) -> Option<Json> {
    let Value::Scalar { text, json } = value else { return None };
    match json {
        Json::Bool(_) if scalar.boolean => Some(json.clone()),
        Json::Number(number) if scalar.integer.is_some() && (number.is_i64() || number.is_u64()) => Some(json.clone()),
        _ if scalar.text => Some(Json::String(text.clone())),
        // Terraform's templates quote numbers.
        Json::String(_) if scalar.integer.is_some() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse::<u64>().ok().map(Json::from)
        }
        Json::String(_) if !scalar.words.is_empty() => Some(json.clone()),
        _ => None,
    }
}

fn in_range(value: &Json, scalar: &Scalar) -> bool {
    match (value.as_i64(), scalar.integer) {
        (Some(number), Some((least, most))) => (least..=most).contains(&number),
        _ => true,
    }
}

/// Reads a document with only this field, so that an error is about this field.
fn read(path: &[String], value: Json) -> Result<(), String> {
    let mut only = Json::Object(serde_json::Map::new());
    merge(&mut only, path, value);
    Config::deserialize(only).map(drop).map_err(|e| e.to_string())
}

/// The problem in serde's words, or better ones if the schema knows what is allowed.
fn explain(problem: &str, value: &Json, scalar: &Scalar) -> String {
    let own_words = !(problem.starts_with("invalid ") || problem.starts_with("unknown variant"));
    match value {
        Json::String(word) if !scalar.words.is_empty() && !scalar.text => {
            let words: Vec<&str> =
                scalar.words.iter().map(String::as_str).chain(scalar.boolean.then_some("true, false")).collect();
            format!("`{word}` is not allowed; {}", suggestion(word, &words))
        }
        _ if own_words => problem.to_owned(),
        other => format!("expected {}, found `{}`", scalar.expected(), other.to_string().trim_matches('"')),
    }
}

fn merge(whole: &mut Json, path: &[String], value: Json) {
    let mut here = whole;
    for part in path {
        if !here.is_object() {
            *here = Json::Object(serde_json::Map::new());
        }
        here = &mut here[part.as_str()];
    }
    *here = value;
}
