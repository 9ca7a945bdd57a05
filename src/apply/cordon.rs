//! That a run of ours keeps pods off this node: written down before the Node is cordoned and gone
//! once it is not, so that whoever finishes or undoes the run knows to uncordon it.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
    /// The kubeconfig that the run was told to use, and its context; none for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
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
