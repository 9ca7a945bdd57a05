//! The schema of each field, in the form that reading a value needs. It comes from the JSON Schema of
//! [`super::Config`], so a field is described in one place only.

use std::sync::LazyLock;

use serde_json::Value as Json;

use crate::packed::{self, packed};

/// The schema at a path of the document.
#[derive(Debug, Clone, PartialEq)]
pub enum Schema {
    /// Fields with fixed names.
    Section(Vec<(String, Field)>),
    /// Entries with any names, all of the same schema (`extraEnv`).
    Entries(Box<Self>),
    /// Any JSON object.
    Free,
    List(Box<Self>),
    Scalar(Scalar),
    /// A single value, or an object whose fields the field's own type checks.
    Choice(Scalar),
}

/// A field of a section with its help.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub schema: Schema,
    /// The doc comment, in one line. Ends with "Default: …" if the field has a default.
    pub help: String,
}

/// What a single value may be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scalar {
    pub text: bool,
    pub boolean: bool,
    /// Minimum and maximum.
    pub integer: Option<(i64, i64)>,
    /// All allowed words, if the set is fixed.
    pub words: Vec<String>,
}

impl Scalar {
    /// For messages and documentation: `auto, true or false`.
    pub fn expected(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        match self.integer {
            Some((i64::MIN, _) | (_, i64::MAX)) => parts.push("a whole number".into()),
            Some((least, most)) => parts.push(format!("a whole number from {least} to {most}")),
            None => {}
        }
        parts.extend(self.words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")));
        if self.boolean {
            parts.extend(["true".into(), "false".into()]);
        }
        if self.text {
            parts.push("text".into());
        }
        match parts.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            Some((last, _)) => last.clone(),
            None => "nothing".into(),
        }
    }
}

/// The JSON Schema of the document as draft-07, which editors' YAML language server reads: the file, which a test makes of
/// the types. What makes it would be a hundredth of the executable.
pub fn schema() -> Json {
    serde_json::from_slice(packed::text(packed!("config.schema.json")).as_bytes())
        .expect("a test compares it with the types")
}

/// The same, made of the types.
#[cfg(test)]
pub fn of_types(draft: schemars::generate::SchemaSettings) -> Json {
    let settings = draft.with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<super::spec::Config>().to_value()
}

/// The whole document.
pub fn root() -> &'static Schema {
    static ROOT: LazyLock<Schema> = LazyLock::new(|| tree(&schema()));
    &ROOT
}

impl Schema {
    /// The schema at a path. On failure: how many parts of the path are known, and what may follow them.
    ///
    /// # Errors
    /// The path names no field.
    pub fn at(&self, path: &[&str]) -> Result<&Self, (usize, Vec<&str>)> {
        let mut here = self;
        for (depth, part) in path.iter().enumerate() {
            here = match here {
                Self::Section(fields) => match fields.iter().find(|(name, _)| name == part) {
                    Some((_, field)) => &field.schema,
                    None => return Err((depth, fields.iter().map(|(name, _)| name.as_str()).collect())),
                },
                Self::Entries(each) => each,
                _ => return Err((depth, Vec::new())),
            };
        }
        Ok(here)
    }

    /// For messages and documentation: `list of text`.
    pub fn takes(&self) -> String {
        match self {
            Self::Section(_) => "a section with fields".into(),
            Self::Entries(each) => format!("names, each with {}", each.takes()),
            Self::Free => "any fields".into(),
            Self::List(each) => format!("list of {}", each.takes()),
            Self::Scalar(scalar) => scalar.expected(),
            Self::Choice(scalar) => format!("{}; or fields", scalar.expected()),
        }
    }

    /// All fields except sections, with their dotted paths, in the schema's order.
    pub fn fields(&self) -> Vec<(String, &Field)> {
        let mut found = Vec::new();
        if let Self::Section(fields) = self {
            for (name, field) in fields {
                match &field.schema {
                    section @ Self::Section(_) => {
                        found.extend(section.fields().into_iter().map(|(below, f)| (format!("{name}.{below}"), f)));
                    }
                    _ => found.push((name.clone(), field)),
                }
            }
        }
        found
    }
}

/// The schema as a tree.
pub(super) fn tree(schema: &Json) -> Schema {
    let has = |kind: &str| match &schema["type"] {
        Json::String(one) => one == kind,
        Json::Array(several) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if has("object") {
        return match (schema["properties"].as_object(), &schema["additionalProperties"]) {
            (Some(fields), _) => Schema::Section(fields.iter().map(|(name, s)| (name.clone(), field(s))).collect()),
            (None, each @ Json::Object(_)) => Schema::Entries(Box::new(tree(each))),
            (None, _) => Schema::Free,
        };
    }
    if has("array") {
        return Schema::List(Box::new(tree(&schema["items"])));
    }
    let mut scalar = Scalar::default();
    collect(schema, &mut scalar);
    if may_be_object(schema) { Schema::Choice(scalar) } else { Schema::Scalar(scalar) }
}

fn may_be_object(schema: &Json) -> bool {
    let alternatives = schema["anyOf"].as_array().into_iter().flatten();
    schema["type"] == "object" || alternatives.into_iter().any(may_be_object)
}

fn field(schema: &Json) -> Field {
    let help = schema["description"].as_str().unwrap_or_default();
    Field { schema: tree(schema), help: help.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// Collects what a schema and its alternatives allow.
fn collect(schema: &Json, scalar: &mut Scalar) {
    for alternatives in ["anyOf", "oneOf"] {
        for one in schema[alternatives].as_array().into_iter().flatten() {
            collect(one, scalar);
        }
    }
    let words = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    let before = scalar.words.len();
    scalar.words.extend(words.filter_map(|word| word.as_str().map(str::to_owned)));
    if scalar.words.len() > before {
        return;
    }
    let kinds = match &schema["type"] {
        Json::Array(several) => several.clone(),
        one => vec![one.clone()],
    };
    for kind in kinds {
        match kind.as_str() {
            Some("string") => scalar.text = true,
            Some("boolean") => scalar.boolean = true,
            Some("integer") => {
                let bound = |key: &str, none| schema[key].as_i64().unwrap_or(none);
                scalar.integer = Some((bound("minimum", i64::MIN), bound("maximum", i64::MAX)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_shape_and_help() {
        let fields = root().fields();
        assert!(fields.len() > 55, "{}", fields.len());
        for (path, field) in fields {
            assert!(field.help.ends_with('.'), "{path}: {}", field.help);
            assert!(!matches!(&field.schema, Schema::Scalar(s) if *s == Scalar::default()), "{path} takes nothing");
            if path.starts_with("spec.") {
                assert!(field.help.contains("Default: "), "{path} says no default");
            }
        }
    }

    #[test]
    fn shapes_describe_what_is_expected() {
        let expected = |path: &str| match root().at(&path.split('.').collect::<Vec<_>>()) {
            Ok(Schema::Scalar(scalar)) => scalar.expected(),
            other => format!("{other:?}"),
        };
        assert_eq!(expected("spec.calicoNetwork.vxlan.vxlanVNI"), "a whole number from 4096 to 65535");
        assert_eq!(expected("spec.calicoNetwork.backend"), "`auto`, `vxlan`, `windows-bgp` or `none`");
        assert_eq!(expected("spec.maintenance.drain.enabled"), "`auto`, true or false");
        assert_eq!(expected("spec.calico.version"), "text");
        assert_eq!(
            root().at(&["spec", "services", "extraEnv", "FOO"]),
            Ok(&Schema::Scalar(Scalar { text: true, ..Scalar::default() }))
        );
        assert!(matches!(root().at(&["spec", "calicoNetwork", "cniConfigOverrides"]), Ok(Schema::Free)));
        assert_eq!(root().at(&["spec", "calicoNetwork", "ipam", "kind"]), Err((3, vec!["type"])));
    }
}
