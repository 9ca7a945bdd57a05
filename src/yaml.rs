//! YAML text as a tree in which each node has its position. Types come later, from the config's schema: a scalar keeps
//! its source text, so that a MAC prefix `0E-20` or a version `3.30` is not read as a number first.

pub mod encoding;
mod typed;

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_yaml::{Error as YamlError, Spanned};

/// A node of the document. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub line: usize,
    pub column: usize,
}

impl Node {
    /// The node at a dotted path of fields.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |here, field| match &here.value {
            Value::Map(entries) => {
                let is = |key: &Self| matches!(&key.value, Value::Scalar { text, .. } if text == field);
                entries.iter().find(|(key, _)| is(key)).map(|(_, below)| below)
            }
            _ => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    /// The text as written, and its value by YAML's core schema.
    Scalar {
        text: String,
        json: Json,
    },
    List(Vec<Node>),
    /// Keys with their own positions.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// The value of a text from outside a document (a flag, a variable).
    pub fn plain(text: &str) -> Self {
        let json = match (text.parse::<bool>(), text.parse::<i64>()) {
            (Ok(truth), _) => Json::Bool(truth),
            (_, Ok(number)) => Json::from(number),
            _ => Json::String(text.to_owned()),
        };
        Self::Scalar { text: text.to_owned(), json }
    }

    /// For messages: `a list`, `text`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::List(_) => "a list",
            Self::Map(_) => "a section with fields",
            Self::Scalar { json: Json::Bool(_), .. } => "true or false",
            Self::Scalar { json: Json::Number(_), .. } => "a number",
            Self::Scalar { .. } => "text",
        }
    }

    /// By YAML's own types, for use without a schema.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Scalar { json, .. } => json.clone(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Map(entries) => {
                let text = |key: &Node| match &key.value {
                    Self::Scalar { text, .. } => text.clone(),
                    other => other.to_json().to_string(),
                };
                Json::Object(entries.iter().map(|(key, node)| (text(key), node.value.to_json())).collect())
            }
        }
    }
}

/// Why the text is not YAML, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {}, column {}", self.problem, self.line, self.column)
    }
}

impl std::error::Error for Malformed {}

impl From<YamlError> for Malformed {
    fn from(error: YamlError) -> Self {
        let at = error.location();
        let position = |of: fn(&serde_yaml::Location) -> u64| {
            at.as_ref().map_or(1, |location| usize::try_from(of(location)).unwrap_or(1)).max(1)
        };
        let (line, column) = (position(serde_yaml::Location::line), position(serde_yaml::Location::column));
        let problem = match error.without_snippet() {
            YamlError::DuplicateMappingKey { key, .. } => {
                format!("duplicate field {}", key.as_deref().unwrap_or_default())
            }
            YamlError::RecursiveReferencesRequireWeakTypes { .. } => "an alias is within its own anchor".into(),
            // The library appends the position, which is printed separately.
            other => {
                let message = other.to_string();
                let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(problem, _)| problem);
                problem.lines().next().unwrap_or_default().to_owned()
            }
        };
        Self { line, column, problem }
    }
}

/// The library's limits are those of a config, and a file may have ten thousand policies. Every value takes a byte, so
/// only aliases could make more of it, and their limits remain.
fn options(text: &str) -> serde_yaml::Options {
    let most = text.len().saturating_mul(2).max(1 << 20);
    serde_yaml::options! {
        strict_booleans: true,
        with_snippet: false,
        emit_comments: false,
        budget: serde_yaml::budget! { max_nodes: most, max_events: most, max_total_scalar_bytes: most },
    }
}

/// Reads one document from a text as a value of a type. An empty text is an empty value.
///
/// # Errors
/// If the text is not YAML, or the type does not accept it. No value is quoted, since it may be a secret, except one of a
/// fixed set of words.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Malformed> {
    match parse(text)?.as_slice() {
        [] => Node { value: Value::Null, line: 1, column: 1 }.read(),
        [document] => document.read(),
        [_, next, ..] => {
            let problem = "a second document begins".into();
            Err(Malformed { line: next.line, column: next.column, problem })
        }
    }
}

/// The documents of a text, without the empty ones, each as a value of a type.
///
/// Like [`read`].
pub fn read_all<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Malformed> {
    parse(text)?.iter().map(Node::read).collect()
}

/// The document of a text, as a value of a type; none if it is empty. Without the tree, which takes many times the memory
/// of the text: it is rewritten as JSON first, and only if that fails, the tree says what is wrong, and where.
///
/// Like [`read`].
pub fn read_large<T: DeserializeOwned>(text: &str) -> Result<Option<T>, Malformed> {
    let mut json = Vec::new();
    let written = serde_yaml::with_deserializer_from_str_with_options(text, options(text), |yaml| {
        serde_transcode::transcode(yaml, &mut serde_json::Serializer::new(&mut json)).map_err(YamlError::custom)
    });
    match written.ok().and_then(|()| serde_json::from_slice(&json).ok()) {
        Some(value) => Ok(value),
        None => Ok(read_all(text)?.into_iter().next()),
    }
}

/// The documents in a text, without the empty ones. Duplicate keys are refused.
///
/// # Errors
/// If the text is not YAML.
pub fn parse(text: &str) -> Result<Vec<Node>, Malformed> {
    // Notepad writes a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = serde_yaml::from_multiple_with_options::<Spanned<Raw>>(text, options(text))?;
    Ok(documents.into_iter().map(|raw| raw_to_node(raw, text)).collect())
}

/// A node as serde sees it.
enum Raw {
    Null,
    Scalar(Json),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<Self>, Spanned<Self>)>),
}

fn raw_to_node(raw: Spanned<Raw>, source: &str) -> Node {
    let position = |n: u64| usize::try_from(n).unwrap_or(1);
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Scalar(Json::String(text)) => Value::Scalar { json: Json::String(text.clone()), text },
        Raw::Scalar(json) => {
            let span = raw.defined.span();
            let start = span.byte_offset().and_then(|n| usize::try_from(n).ok());
            let length = span.byte_len().and_then(|n| usize::try_from(n).ok());
            let written = start.zip(length).and_then(|(start, length)| source.get(start..start + length));
            Value::Scalar { text: written.map_or_else(|| json.to_string(), |w| w.trim().to_owned()), json }
        }
        Raw::List(items) => Value::List(items.into_iter().map(|item| raw_to_node(item, source)).collect()),
        Raw::Map(entries) => Value::Map(
            entries.into_iter().map(|(key, item)| (raw_to_node(key, source), raw_to_node(item, source))).collect(),
        ),
    };
    Node { value, line: position(raw.referenced.line()), column: position(raw.referenced.column()) }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_unit<E>(self) -> Result<Raw, E> {
                Ok(Raw::Null)
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Raw, E> {
                Ok(Raw::Scalar(Json::Bool(truth)))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
                Ok(Raw::Scalar(Json::from(number)))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
                Ok(Raw::Scalar(Json::from(number)))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Raw, E> {
                Ok(Raw::Scalar(Json::from(number)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
                Ok(Raw::Scalar(Json::from(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Raw::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Raw::Map(entries))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every scalar as `line:column text = json`.
    fn scalars(text: &str) -> String {
        fn walk(node: &Node, out: &mut Vec<String>) {
            match &node.value {
                Value::Null => out.push(format!("{}:{} null", node.line, node.column)),
                Value::Scalar { text, json } => out.push(format!("{}:{} {text} = {json}", node.line, node.column)),
                Value::List(items) => items.iter().for_each(|item| walk(item, out)),
                Value::Map(entries) => entries.iter().for_each(|(key, item)| {
                    walk(key, out);
                    walk(item, out);
                }),
            }
        }
        let mut out = Vec::new();
        parse(text).unwrap().iter().for_each(|node| walk(node, &mut out));
        out.join("\n")
    }

    #[test]
    fn a_scalar_keeps_its_text_type_and_position() {
        insta::assert_snapshot!(scalars(
            "\u{feff}mac: 0E-20\r\nversion: 3.30 # comment\r\nquoted: \"5000\"\nlist: [a, 1, true, no]\nnone:\nö: x\n"
        ), @r#"
    1:1 mac = "mac"
    1:6 0E-20 = 0.0
    2:1 version = "version"
    2:10 3.30 = 3.3
    3:1 quoted = "quoted"
    3:9 5000 = "5000"
    4:1 list = "list"
    4:8 a = "a"
    4:11 1 = 1
    4:14 true = true
    4:20 no = "no"
    5:1 none = "none"
    5:5 null
    6:1 ö = "ö"
    6:4 x = "x"
    "#);
    }

    #[test]
    fn an_alias_has_the_position_of_its_use_and_a_text_has_several_documents() {
        insta::assert_snapshot!(scalars("a: &x 5000\nb: *x\n---\n# empty\n---\nc: 1\n"), @r#"
    1:1 a = "a"
    1:7 5000 = 5000
    2:1 b = "b"
    2:4 5000 = 5000
    6:1 c = "c"
    6:4 1 = 1
    "#);
    }

    #[test]
    fn text_that_is_not_yaml_is_refused_with_its_position() {
        let refused: Vec<String> =
            ["a: 1\na: 2\n", "a: [1, 2\n", "a: b: c\n", "a:\n\t- 1\n", "a: *nowhere\n", "a: &a\n  b: *a\n"]
                .into_iter()
                .map(|text| parse(text).unwrap_err())
                .map(|e| format!("{}:{} {}", e.line, e.column, e.problem))
                .collect();
        insta::assert_snapshot!(refused.join("\n"), @r#"
    2:1 duplicate field a
    1:4 unclosed bracket '['
    1:5 mapping values are not allowed in this context
    2:2 tabs disallowed within this context (block indentation)
    1:4 alias references unknown anchor
    2:6 an alias is within its own anchor
    "#);
    }
}
