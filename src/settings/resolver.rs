//! Takes a field's value from the config or from the facts, and records which.

use serde::Serialize;

use super::{FieldOrigin, Warning};
use crate::config::{Finding, Layered, Origin};

/// Collects decisions and errors while going through the fields.
pub(super) struct Resolver<'a> {
    layered: &'a Layered,
    pub origins: Vec<FieldOrigin>,
    pub findings: Vec<Finding>,
    pub warnings: Vec<Warning>,
}

impl<'a> Resolver<'a> {
    pub fn new(layered: &'a Layered) -> Self {
        Self { layered, origins: Vec::new(), findings: Vec::new(), warnings: Vec::new() }
    }

    /// The config's value, else the one from `otherwise`; records who decided it.
    pub fn decide<T: Serialize>(&mut self, path: &str, given: Option<T>, otherwise: impl FnOnce() -> (T, Origin)) -> T {
        match given {
            Some(value) => {
                let from = self.layered.origin(path).cloned().unwrap_or(Origin::Default);
                self.note(path, value, from)
            }
            None => {
                let (value, from) = otherwise();
                self.note(path, value, from)
            }
        }
    }

    /// The config's value, else the default.
    pub fn or_default<T: Serialize>(&mut self, path: &str, given: Option<T>, default: T) -> T {
        self.decide(path, given, || (default, Origin::Default))
    }

    /// The config's value, for a field that may have none.
    pub fn optional<T: Serialize>(&mut self, path: &str, given: Option<T>) -> Option<T> {
        let from = given.as_ref().and_then(|_| self.layered.origin(path).cloned()).unwrap_or(Origin::Default);
        self.note(path, given, from)
    }

    /// Records a value that was decided elsewhere.
    pub fn note<T: Serialize>(&mut self, path: &str, value: T, from: Origin) -> T {
        let shown = serde_json::to_value(&value).unwrap_or_default();
        self.origins.push(FieldOrigin { path: path.to_owned(), value: shown, from });
        value
    }

    /// Reports an error of a field, at the nearest origin that is set.
    pub fn wrong(&mut self, path: &str, problem: impl Into<String>) {
        let from = self.layered.nearest_origin(path).unwrap_or(&Origin::Default);
        self.findings.push(Finding::new(from, path, problem));
    }

    pub fn warn(&mut self, id: &'static str, message: impl Into<String>) {
        self.warnings.push(Warning { id, message: message.into() });
    }
}

/// Text that is not empty; "" in the document means none.
pub(super) fn filled(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}
