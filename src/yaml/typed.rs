//! Types parsed from a [`Node`], so that each error has its position. The library could do the same, but its code is
//! compiled again for each type: 1.3 MB of the released .exe, against 0.2 MB here.

use std::{fmt, slice};

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Value as Json;

use super::{Malformed, Node, Value};

impl Node {
    /// Parses the node as a value of a type.
    ///
    /// # Errors
    /// If the type does not accept it. No value is quoted, since it may be a secret, except one of a fixed set of words.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Malformed> {
        T::deserialize(self).map_err(|error| error.at(self))
    }
}

impl Malformed {
    /// Without a position, which is added where a node is passed to a type.
    fn somewhere(problem: String) -> Self {
        Self { line: 0, column: 0, problem }
    }

    /// The innermost position is kept.
    fn at(self, node: &Node) -> Self {
        match self.line {
            0 => Self { line: node.line, column: node.column, ..self },
            _ => self,
        }
    }
}

/// What a type accepts, in YAML's terms.
fn accepted(expected: &dyn Expected) -> String {
    match expected.to_string().as_str() {
        "a map" => "a section with fields",
        "a sequence" => "a list",
        "a string" => "text",
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i32" | "i64" => "a whole number",
        "f64" => "a number",
        what if what.starts_with("struct ") => "a section with fields",
        what => what,
    }
    .to_owned()
}

impl Error for Malformed {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self::somewhere(problem.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "true or false",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
            Unexpected::Str(_) => "text",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a section with fields",
            _ => "nothing",
        };
        Self::somewhere(format!("expected {}, found {found}", accepted(expected)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::somewhere(format!("expected {}", accepted(expected)))
    }
}

/// The items of a list. A type that refuses an item after it was read gives no position, so it is added here.
struct Items<'de>(slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Malformed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Malformed> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).map_err(|error| error.at(node))
    }
}

/// The fields of a section.
struct Fields<'de> {
    left: slice::Iter<'de, (Node, Node)>,
    value: Option<&'de Node>,
}

impl<'de> Fields<'de> {
    fn of(entries: &'de [(Node, Node)]) -> Self {
        Self { left: entries.iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Malformed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Malformed> {
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(key).map(Some).map_err(|error| error.at(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Malformed> {
        let value = self.value.take().expect("serde asks for a key first");
        seed.deserialize(value).map_err(|error| error.at(value))
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Malformed;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Scalar { json, .. } => match json {
                Json::Bool(truth) => visitor.visit_bool(*truth),
                Json::Number(number) => match (number.as_u64(), number.as_i64()) {
                    (Some(number), _) => visitor.visit_u64(number),
                    (None, Some(number)) => visitor.visit_i64(number),
                    (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
                },
                Json::String(text) => visitor.visit_borrowed_str(text),
                _ => visitor.visit_unit(),
            },
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(entries) => visitor.visit_map(Fields::of(entries)),
        }
    }

    /// As it is written: a version `3.30` is text where text is expected.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match &self.value {
            Value::Scalar { text, .. } => visitor.visit_borrowed_str(text),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// A field without a value is an empty list.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match &self.value {
            Value::Null => visitor.visit_seq(Items([].iter())),
            _ => self.deserialize_any(visitor),
        }
    }

    /// A field without a value is an empty section.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match &self.value {
            Value::Null => visitor.visit_map(Fields::of(&[])),
            // serde would read it as the fields in their order.
            Value::List(_) => Err(Malformed::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_newtype_struct(self)
    }

    /// A word, or a section with one field: the word, and its value.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        match &self.value {
            Value::Map(entries) => {
                MapAccessDeserializer::new(Fields::of(entries)).deserialize_enum(name, variants, visitor)
            }
            Value::Scalar { text, .. } => IntoDeserializer::<Malformed>::into_deserializer(text.as_str())
                .deserialize_enum(name, variants, visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::super::{read, read_all};
    use crate::values::Vni;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Machine {
        name: String,
        #[serde(default)]
        version: Option<String>,
        #[serde(default)]
        ports: Vec<u16>,
        #[serde(default)]
        metrics: BTreeMap<String, f64>,
        #[serde(default)]
        state: State,
        /// Its type refuses a number after it was read.
        #[serde(default)]
        networks: Vec<Option<Vni>>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum State {
        #[default]
        Stopped,
        Running {
            pid: i64,
        },
    }

    fn machine(text: &str) -> Result<Machine, String> {
        read(text).map_err(|error| error.to_string())
    }

    #[test]
    fn text_is_kept_as_written() {
        let machine = machine("name: 0E-20\nversion: 3.30\nports: [1, 2]\nmetrics: {a: 1, b: -2, c: 0.5}\n").unwrap();
        assert_eq!((machine.name.as_str(), machine.version.as_deref()), ("0E-20", Some("3.30")));
        assert_eq!(machine.ports, [1, 2]);
        assert_eq!(machine.metrics.values().copied().collect::<Vec<_>>(), [1.0, -2.0, 0.5]);
        assert_eq!(machine.state, State::Stopped);
    }

    #[test]
    fn an_empty_value_is_none_and_an_enum_is_a_word_or_a_section() {
        assert_eq!(machine("{name: a, version: , state: stopped}").unwrap().version, None);
        assert_eq!(machine("name: a\nstate:\n  running: {pid: -7}\n").unwrap().state, State::Running { pid: -7 });
    }

    #[test]
    fn a_field_without_a_value_is_an_empty_list_or_section() {
        let machine = machine("name: a\nports:\nmetrics: ~\n").unwrap();
        assert!(machine.ports.is_empty() && machine.metrics.is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_a_second_document_is_refused() {
        assert_eq!(machine("\u{feff}name: a\n").unwrap().name, "a");
        assert_eq!(read_all::<Machine>("\u{feff}name: a\n---\nname: b\n").unwrap()[1].name, "b");
        let said = machine("name: a\n---\nname: b\n").unwrap_err();
        assert!(said.starts_with("a second document begins at line "), "{said}");
    }

    #[test]
    fn errors_give_the_position_and_quote_no_value() {
        let problems: Vec<String> = [
            "name: a\nnmae: b\n",
            "version: a\n",
            "name: a\nports: sesame\n",
            "name: a\nports:\n- 1\n- sesame\n",
            "name: a\nports: [70000]\n",
            "name: [sesame]\n",
            "name: a\nstate: stoppt\n",
            "name: a\nstate: {running: {pid: sesame}}\n",
            "name: a\nnetworks:\n- 4096\n- 7\n",
            "- sesame\n",
            "sesame\n",
        ]
        .iter()
        .map(|text| machine(text).unwrap_err())
        .collect();
        insta::assert_snapshot!(problems.join("\n"), @"
        unknown field `nmae`, expected one of `name`, `version`, `ports`, `metrics`, `state`, `networks` at line 2, column 1
        missing field `name` at line 1, column 1
        expected a list, found text at line 2, column 8
        expected a whole number from 0 to 65535, found text at line 4, column 3
        expected a whole number from 0 to 65535 at line 2, column 9
        expected text, found a list at line 1, column 7
        unknown variant `stoppt`, expected `stopped` or `running` at line 2, column 8
        expected a whole number, found text at line 2, column 24
        7 is out of range: Windows supports VNIs from 4096 to 65535 except 9999 at line 4, column 3
        expected a section with fields, found a list at line 1, column 1
        expected a section with fields, found text at line 1, column 1
        ");
    }
}
