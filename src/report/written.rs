//! A document that waits to be printed, as text: one with many findings is much smaller so than as values.

use serde_json::{Value, json};

use super::document::{API_VERSION, Document, RunResult};

/// A document's own fields, and its kind.
#[derive(Debug)]
pub(super) struct Written {
    kind: &'static str,
    /// A JSON object.
    fields: String,
}

impl Written {
    pub fn of<D: Document>(body: &D) -> Self {
        Self { kind: D::KIND, fields: serde_json::to_string_pretty(body).unwrap_or_default() }
    }

    /// The document in JSON, with how the verb ended if it ends with it.
    pub fn json(&self, ended: Option<&RunResult>) -> String {
        let head = format!("{:#}", self.head(ended));
        // The fields of both objects stand between `{` and a line with `}`.
        match (head.strip_suffix("\n}"), self.fields.strip_prefix("{\n")) {
            (Some(head), Some(fields)) => format!("{head},\n{fields}"),
            // It has no fields of its own.
            _ => head,
        }
    }

    pub fn value(&self, ended: Option<&RunResult>) -> Value {
        let mut document = self.head(ended);
        if let (Some(top), Ok(Value::Object(fields))) =
            (document.as_object_mut(), serde_json::from_slice(self.fields.as_bytes()))
        {
            top.extend(fields);
        }
        document
    }

    fn head(&self, ended: Option<&RunResult>) -> Value {
        match ended {
            None => json!({ "apiVersion": API_VERSION, "kind": self.kind }),
            Some(RunResult { success, exit_code, .. }) => {
                json!({ "apiVersion": API_VERSION, "kind": self.kind, "success": success, "exit_code": exit_code })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Serialize)]
    struct Body {
        items: Vec<u8>,
        name: Option<&'static str>,
    }

    impl Document for Body {
        const KIND: &'static str = "Body";
    }

    #[derive(Serialize)]
    struct Empty {}

    impl Document for Empty {
        const KIND: &'static str = "Empty";
    }

    #[test]
    fn the_text_is_the_values() {
        let ended = RunResult { success: true, exit_code: 3, ..RunResult::default() };
        let both = [Written::of(&Body { items: vec![1, 2], name: None }), Written::of(&Empty {})];
        for (written, fields) in both.iter().zip([r#""items":[1,2],"name":null"#, ""]) {
            for (ended, head) in [(None, ""), (Some(&ended), r#","success":true,"exit_code":3"#)] {
                let fields = if fields.is_empty() { String::new() } else { format!(",{fields}") };
                let wanted = format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{}"{head}{fields}}}"#, written.kind);
                assert_eq!(written.value(ended).to_string(), wanted);
                assert_eq!(written.json(ended), format!("{:#}", written.value(ended)));
            }
        }
    }
}
