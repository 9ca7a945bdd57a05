//! The record that a finished run has left the Node cordoned, so that a later run uncordons it. During a run the
//! journal records it.

use std::fmt::{self, Display};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::node_object::Access;
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR, record};
use crate::values::WinPath;

/// A Node that was schedulable before a run of ours cordoned it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cordon {
    /// Name of the Kubernetes Node.
    pub node: String,
    pub run: String,
    /// The verb of the run.
    pub command: String,
    pub since: Timestamp,
    /// How the run reached the cluster.
    #[serde(flatten)]
    pub access: Access,
}

fn path() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("cordon.json")
}

/// For example `reconfigure (run R, since T), with node win-a1 cordoned`.
impl Display for Cordon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, run, since, node, .. } = self;
        write!(f, "{command} (run {run}, since {since:.0}), with node {node} cordoned")
    }
}

impl Cordon {
    /// Returns the record, if a run of ours cordoned the Node and nobody has uncordoned it.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub fn load(node: &dyn Node) -> Result<Option<Self>> {
        record::load(node, &path())
    }

    /// Writes the record.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn save(&self, node: &mut dyn Node) -> Result<()> {
        record::save(node, &path(), self).context("write down that the node is cordoned")
    }

    /// Removes the record: the Node is schedulable again.
    ///
    /// # Errors
    /// Fault `CordonNotForgotten` when the file cannot be removed.
    pub fn forget(&self, node: &dyn Node) -> Result<()> {
        record::forget(node, &path()).map_err(|error| {
            let what = format!("the note that node {} was cordoned could not be removed: {}", self.node, path());
            error.context(
                Fault::new(Exit::FailedIncomplete, "CordonNotForgotten", what).hint(format!(
                    "all else is done; remove that file, or the next resume uncordons node {}",
                    self.node
                )),
            )
        })
    }
}
