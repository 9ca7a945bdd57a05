//! That a run which is over has left the Node cordoned, so that whoever comes next knows to uncordon it. While a
//! run is under way its journal says so.

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
    /// The verb.
    pub command: String,
    pub since: Timestamp,
    /// How the run reached the cluster.
    #[serde(flatten)]
    pub access: Access,
}

fn path() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("cordon.json")
}

impl Cordon {
    /// What is written down, if a run of ours cordoned the Node and nobody has undone that.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn load(node: &dyn Node) -> Result<Option<Self>> {
        record::load(node, &path())
    }

    /// Writes it down.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn save(&self, node: &mut dyn Node) -> Result<()> {
        record::save(node, &path(), self).context("write down that the node is cordoned")
    }

    /// The Node takes pods again.
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
