//! What this program can mend by itself when a check fails, and with consent only.

use std::fmt;

use super::machine::runtime_service;
use crate::facts::NodeFacts;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mend {
    /// The patches of `cluster prepare`.
    ClusterPatches,
    StartService(String),
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterPatches => f.write_str("the patches of: calicoctl-win cluster prepare"),
            Self::StartService(name) => write!(f, "start the service {name}"),
        }
    }
}

/// What mends a failed check; none where only people can.
pub fn mend(id: &str, node: Option<&NodeFacts>) -> Option<Mend> {
    match id {
        "StrictAffinity" | "IpipEnabled" | "VniOutOfRange" => Some(Mend::ClusterPatches),
        "RuntimeRunning" => {
            let node = node?;
            let (name, running) = runtime_service(node, node.survey.as_ref()?)?;
            (!running).then(|| Mend::StartService(name.to_owned()))
        }
        _ => None,
    }
}
