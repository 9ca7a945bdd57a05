//! What this program can fix by itself when a check fails, and with consent only.

use std::fmt;

use super::machine::runtime_service;
use crate::facts::NodeFacts;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// The patches of `cluster prepare`.
    ClusterPatches,
    StartService(String),
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterPatches => f.write_str("the patches of: calicoctl-win cluster prepare"),
            Self::StartService(name) => write!(f, "start the service {name}"),
        }
    }
}

/// What fixes a failed check; none if only people can.
pub fn fix(id: &str, node: Option<&NodeFacts>) -> Option<Fix> {
    match id {
        "StrictAffinity" | "Ipip" | "VxlanVni" => Some(Fix::ClusterPatches),
        "RuntimeRunning" => {
            let node = node?;
            let (name, running) = runtime_service(node, node.survey.as_ref()?)?;
            (!running).then(|| Fix::StartService(name.to_owned()))
        }
        _ => None,
    }
}
