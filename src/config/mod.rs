//! The config document as the user wrote it, in layers, and where each value came from.
//!
//! [`load`] reads and checks; what an absent field becomes is decided in [`crate::settings`].

pub mod encoding;
mod errors;
pub mod import;
mod layers;
mod rules;
mod schema;
pub mod spec;
pub mod types;
pub mod words;

use std::fmt;

use anyhow::Result;

pub use errors::Finding;
pub(crate) use errors::fault;
pub(crate) use rules::VXLAN_NEEDS_CALICO_IPAM;
pub use schema::schema;
pub use spec::Config;

/// A text with one or more config documents, and the name that errors call it by.
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
    /// As typed. A list is `a,b` or `[a, b]`, a section or a map is YAML or JSON.
    pub value: String,
    pub from: Origin,
}

/// Who decided a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag of its own, as `--node-name`.
    Flag(String),
    /// `--set`.
    Set,
    /// An environment variable, as `CALICO_WIN_NODE_NAME`.
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

/// The config that all layers make together, and who set what in it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Layered {
    pub config: Config,
    layers: layers::Layers,
}

/// The sections and fields that say how one run goes about it, and not what the node becomes: how the cluster,
/// downloads and the release are reached, what may be lost on the way, which checks may fail.
pub const OF_A_RUN: [&str; 7] = [
    "spec.transport",
    "spec.calico.source",
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
    /// Who set a field; for a section, who set something in it. None where no layer did. `path` is
    /// whole, as `spec.calico.version`.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        self.layers.origin(path)
    }

    /// What was set in all layers, as one document: for a later change to start from. What belongs to one run is
    /// left out: see [`OF_A_RUN`].
    pub fn document(&self) -> serde_json::Value {
        self.layers.document_without(&OF_A_RUN)
    }

    /// What was set in all layers, as one document: for the same plan once more.
    pub fn whole_document(&self) -> serde_json::Value {
        self.layers.document_without(&[])
    }

    /// Where an error about a field should point when nobody may have set it.
    pub(crate) fn nearest_origin(&self, path: &str) -> Option<&Origin> {
        self.layers.nearest_origin(path)
    }
}

/// Reads the documents, later ones over earlier ones, then the overrides in their order, and checks
/// everything that can be checked without knowing the node or the cluster.
///
/// # Errors
/// A [`crate::fault::Fault`] `ConfigInvalid` whose text holds all findings, a line each.
pub fn load(documents: &[Document], overrides: &[Override]) -> Result<Layered> {
    let mut layers = layers::Layers::default();
    documents.iter().for_each(|document| layers.document(document));
    overrides.iter().for_each(|given| layers.set(given));
    let mut findings = std::mem::take(&mut layers.findings);
    let layered = Layered { config: layers.config(), layers };
    // A rule says nothing new about a field whose value was refused already.
    let refused: Vec<String> = findings.iter().map(|finding| finding.path.clone()).collect();
    findings.extend(rules::check(&layered).into_iter().filter(|finding| !refused.contains(&finding.path)));
    if findings.is_empty() { Ok(layered) } else { Err(fault(&findings)) }
}

/// A field of the document, for `explain` and the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldHelp {
    /// As `spec.calicoNetwork.vxlan.vxlanVNI`.
    pub path: String,
    /// What it takes: ``a whole number from 4096 to 65535``, ``list of text``.
    pub takes: String,
    /// What it means, with the default as the last sentence: `Default: …`.
    pub help: String,
}

/// Every field of the document, sections left out.
pub fn fields() -> impl Iterator<Item = FieldHelp> {
    schema::root().fields().into_iter().map(|(path, field)| FieldHelp {
        path,
        takes: field.shape.takes(),
        help: field.help.clone(),
    })
}

/// A complete, valid document with comments, as `config init` writes it.
pub const fn template() -> &'static str {
    include_str!("../../templates/config.yaml")
}

#[cfg(test)]
mod tests;
