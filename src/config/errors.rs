//! What is wrong with a config: where, in which field, why, and what is allowed.

use std::fmt;

use super::Origin;
use crate::fault::{Exit, Fault};
use crate::values::joined;

/// One error in a config. Findings are collected, so that one run shows all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `node.yaml:12:15`, `--set`, `CALICO_WIN_NODE_NAME`; empty if the value is not set.
    pub place: String,
    /// `spec.calicoNetwork.vxlan.vxlanVNI`; empty for the document as a whole.
    pub path: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Finding {
    pub fn new(from: &Origin, path: &str, problem: impl Into<String>) -> Self {
        let place = match from {
            Origin::File { name, line, column } => format!("{name}:{line}:{column}"),
            Origin::Default => String::new(),
            other => other.to_string(),
        };
        Self { place, path: path.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.place, &self.path] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.problem)
    }
}

/// All findings as one error, whose cause has a line for each.
pub fn fault(findings: &[Finding]) -> anyhow::Error {
    Fault::new(Exit::InvalidConfig, "ConfigInvalid", "the config is not valid")
        .hint("`calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them")
        .because(anyhow::anyhow!(joined(findings, "\n")))
}

/// The word of `allowed` that was probably meant, if one is similar enough.
pub fn nearest<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let likeness = |candidate: &str| match candidate.to_lowercase() {
        // A part of a name: `bgp` of `windows-bgp`.
        name if name.split('-').any(|part| part == lower) => 1.0,
        name => strsim::normalized_damerau_levenshtein(&lower, &name),
    };
    allowed
        .into_iter()
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.6)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

/// `did you mean x? allowed: a, b, x`, or the part of it that applies.
pub fn suggestion(word: &str, allowed: &[&str]) -> String {
    if allowed.is_empty() {
        return "the field before it takes a value and has no fields of its own".into();
    }
    let meant = nearest(word, allowed.iter().copied()).map_or(String::new(), |near| format!("did you mean `{near}`? "));
    let shown: Vec<&str> = allowed.iter().copied().filter(|word| !word.is_empty()).collect();
    format!("{meant}allowed: {}", shown.join(", "))
}
