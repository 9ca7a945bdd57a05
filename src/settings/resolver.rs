//! Takes a field's value from the config or from the facts, and records which.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FieldOrigin, Warning};
use crate::config::types::Auto;
use crate::config::{Finding, Layered, Origin};

/// Collects decisions and errors while going through the fields. Paths of fields are below `spec`.
pub(super) struct Resolver<'a> {
    pub layered: &'a Layered,
    pub origins: Vec<FieldOrigin>,
    pub findings: Vec<Finding>,
    pub warnings: Vec<Warning>,
}

impl<'a> Resolver<'a> {
    pub fn new(layered: &'a Layered) -> Self {
        Self { layered, origins: Vec::new(), findings: Vec::new(), warnings: Vec::new() }
    }

    /// The config's value.
    pub fn given<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        self.layered.value(&full(path))
    }

    /// The same for a field that may be `auto`.
    pub fn chosen<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let Auto(given) = self.given(path).unwrap_or_default();
        given
    }

    /// The config's value, else the one from `otherwise`; records who decided it.
    pub fn decide<T>(&mut self, path: &str, otherwise: impl FnOnce() -> (T, Origin)) -> T
    where
        T: Serialize + DeserializeOwned,
    {
        let given = self.given(path);
        self.decided(path, given, otherwise)
    }

    /// The same for a field that may be `auto`.
    pub fn auto<T>(&mut self, path: &str, otherwise: impl FnOnce() -> (T, Origin)) -> T
    where
        T: Serialize + DeserializeOwned,
    {
        let given = self.chosen(path);
        self.decided(path, given, otherwise)
    }

    /// A value that the config gives, else the one from `otherwise`.
    pub fn decided<T>(&mut self, path: &str, given: Option<T>, otherwise: impl FnOnce() -> (T, Origin)) -> T
    where
        T: Serialize,
    {
        let origin = || self.layered.origin(&full(path)).cloned().unwrap_or(Origin::Default);
        let (value, from) = given.map_or_else(otherwise, |value| (value, origin()));
        self.note(path, value, from)
    }

    /// The config's value, else the default.
    pub fn or_default<T: Serialize + DeserializeOwned>(&mut self, path: &str, default: T) -> T {
        self.decide(path, || (default, Origin::Default))
    }

    /// The config's value, for a field that may have none.
    pub fn optional<T: Serialize + DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        let given = self.given(path).map(Some);
        self.decided(path, given, || (None, Origin::Default))
    }

    /// The same for a text, where "" means none.
    pub fn text(&mut self, path: &str) -> Option<String> {
        let given = self.given(path).filter(|text: &String| !text.is_empty()).map(Some);
        self.decided(path, given, || (None, Origin::Default))
    }

    /// Records a value that was decided elsewhere.
    pub fn note<T: Serialize>(&mut self, path: &str, value: T, from: Origin) -> T {
        let shown = serde_json::to_value(&value).unwrap_or_default();
        self.origins.push(FieldOrigin { path: full(path), value: shown, from });
        value
    }

    /// Reports an error of a field, at the nearest origin that is set.
    pub fn wrong(&mut self, path: &str, problem: impl Into<String>) {
        let path = full(path);
        let from = self.layered.nearest_origin(&path).unwrap_or(&Origin::Default);
        self.findings.push(Finding::new(from, &path, problem));
    }

    pub fn warn(&mut self, id: &'static str, message: impl Into<String>) {
        self.warnings.push(Warning { id, message: message.into() });
    }
}

fn full(path: &str) -> String {
    if path.starts_with("metadata.") { path.to_owned() } else { format!("spec.{path}") }
}
