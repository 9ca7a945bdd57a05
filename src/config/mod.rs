//! The config document as the user wrote it, in layers, and the origin of each value.
//!
//! [`load`] reads and checks; the values of absent fields are decided in [`crate::settings`].

mod errors;
pub mod import;
pub mod keywords;
mod layers;
mod rules;
mod schema;
pub mod spec;
pub mod static_rules;
pub mod types;

use std::fmt;

use anyhow::Result;
use serde::de::DeserializeOwned;

pub use errors::Finding;
pub(crate) use errors::fault;
pub use rules::{API_VERSION, KIND};
pub use schema::schema;
pub use spec::Config;

use crate::yaml;

/// A text with one or more config documents, and its name in errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub name: String,
    pub text: String,
}

/// A single field, given by a flag or a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Dotted path, with or without the leading `spec.`.
    pub path: String,
    /// As typed. A list is `a,b` or `[a, b]`; a section or a map is YAML or JSON.
    pub value: String,
    pub from: Origin,
}

/// Who decided a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag of its own, for example `--node-name`.
    Flag(String),
    /// `--set`.
    Set,
    /// An environment variable, for example `CALICO_WIN_NODE_NAME`.
    Env(String),
    /// A document; line and column count from 1.
    File {
        name: String,
        line: usize,
        column: usize,
    },
    /// Measured or looked up: `containerd`, `FelixConfiguration`.
    Detected(String),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Env(name) => f.write_str(name),
            Self::Set => f.write_str("--set"),
            Self::File { name, line, .. } => write!(f, "{name}:{line}"),
            Self::Detected(by) => write!(f, "detected: {by}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The config of all layers merged, and who set what in it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Layered {
    pub config: Config,
    /// The fields that are set.
    document: serde_json::Value,
    layers: layers::Layers,
}

/// The sections and fields that are about one run and not about the node: how to reach the cluster, downloads and the
/// release, what may be lost during the run, which checks may fail.
pub const OF_A_RUN: [&str; 9] = [
    "spec.transport",
    "spec.calico.source",
    "spec.kubernetes.node.source",
    "spec.kubernetes.node.join",
    "spec.kubernetes.kubeconfig",
    "spec.kubernetes.context",
    "spec.maintenance",
    "spec.reboot",
    "spec.preflight",
];

/// Whether a field is one of those.
pub fn is_of_a_run(path: &str) -> bool {
    OF_A_RUN.iter().any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

impl Layered {
    fn new(layers: layers::Layers) -> Self {
        Self { config: layers.config(), document: layers.document_without(&[]), layers }
    }

    /// The value of a field, if a layer sets it. `path` is complete, for example `spec.calico.version`.
    pub fn value<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let found = self.document.pointer(&format!("/{}", path.replace('.', "/")))?;
        // Each field was checked when it was merged.
        Some(T::deserialize(found).expect("a checked field has its type"))
    }

    /// Who set a field; for a section, who set something in it. None if no layer did. `path` is complete, for example
    /// `spec.calico.version`.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        self.layers.origin(path)
    }

    /// What was set in all layers, as one document: the base of a later change. Fields of one run are left out: see
    /// [`OF_A_RUN`].
    pub fn document(&self) -> serde_json::Value {
        self.layers.document_without(&OF_A_RUN)
    }

    /// What was set in all layers, as one document for other machines, which have a login of their own: without the
    /// kubeconfig of this one.
    ///
    /// # Errors
    /// `ConfigInvalid` if a field names one machine.
    pub fn document_for_others(&self) -> Result<serde_json::Value> {
        match rules::of_one_machine(self) {
            findings if findings.is_empty() => {
                Ok(self.layers.document_without(&["spec.kubernetes.kubeconfig", "spec.kubernetes.context"]))
            }
            findings => Err(fault(&findings)),
        }
    }

    /// What was set in all layers, as one document: to make the same plan again.
    pub fn whole_document(&self) -> serde_json::Value {
        self.document.clone()
    }

    /// The origin to report for a field that may not be set.
    pub(crate) fn nearest_origin(&self, path: &str) -> Option<&Origin> {
        self.layers.nearest_origin(path)
    }
}

/// Reads the documents, later ones over earlier ones, then the overrides in order, and checks everything that does not
/// depend on the node or the cluster.
///
/// # Errors
/// A [`crate::fault::Fault`] `ConfigInvalid` whose text has a line for each finding.
pub fn load(documents: &[Document], overrides: &[Override]) -> Result<Layered> {
    #[cfg(test)]
    crate::counted::count("config");
    let mut layers = layers::Layers::default();
    documents.iter().for_each(|document| layers.document(document));
    overrides.iter().for_each(|given| layers.set(given));
    let mut findings = std::mem::take(&mut layers.findings);
    let layered = Layered::new(layers);
    // Rules are skipped for a field whose value was already refused.
    let refused: Vec<String> = findings.iter().map(|finding| finding.path.clone()).collect();
    findings.extend(rules::check(&layered).into_iter().filter(|finding| !refused.contains(&finding.path)));
    if findings.is_empty() { Ok(layered) } else { Err(fault(&findings)) }
}

/// Whether one of the layers sets a field. `path` is complete, for example `spec.calico.version`.
pub fn names(documents: &[Document], overrides: &[Override], path: &str) -> bool {
    let mut layers = layers::Layers::default();
    documents.iter().for_each(|document| layers.document(document));
    overrides.iter().for_each(|given| layers.set(given));
    layers.origin(path).is_some()
}

/// Whether a document says nothing: a failed write, or one with comments only. Both `apiVersion` and `kind` say that
/// every default is wanted.
pub fn is_empty(document: &Document) -> bool {
    let mut layers = layers::Layers::default();
    layers.document(document);
    layers.findings.is_empty() && layers.is_empty()
}

/// A field of the document, for `explain` and the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldHelp {
    /// For example `spec.calicoNetwork.vxlan.vxlanVNI`.
    pub path: String,
    /// What it accepts: ``a whole number from 4096 to 65535``, ``list of text``.
    pub takes: String,
    /// What it means, with the default as the last sentence: `Default: …`.
    pub help: String,
}

/// Every field of the document, without the sections.
pub fn fields() -> impl Iterator<Item = FieldHelp> {
    schema::root().fields().into_iter().map(|(path, field)| FieldHelp {
        path,
        takes: field.schema.takes(),
        help: field.help.clone(),
    })
}

/// The document to start from, as `config init` writes it: the few fields that nodes differ in.
pub const START: &str = include_str!("../../templates/start.yaml");

/// A valid document with comments, as `config init --full` writes it: the fields that many nodes need, then the others,
/// each with its help.
pub fn template() -> String {
    const FIELDS: &str = include_str!("../../templates/config.yaml");
    let document = yaml::parse(FIELDS).expect("a test reads it").remove(0);
    let rest = fields().filter(|field| document.at(&field.path).is_none());
    let rest: String = rest.map(|field| format!("#   {}: {}\n", field.path, field.help)).collect();
    format!("{FIELDS}\n# Fields that few nodes need:\n{rest}")
}

#[cfg(test)]
mod tests;
