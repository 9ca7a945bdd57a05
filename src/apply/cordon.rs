//! The record that a finished run has left the Node cordoned, so that a later run uncordons it. During a run the
//! journal records it.

use std::fmt::{self, Display};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::node_object::Access;
use crate::facts::ApiGroup;
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR, record};
use crate::values::{Vni, WinPath};

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
    /// It stays cordoned until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<ClusterVni>,
}

/// The VNI that the cluster must have before pods of this node reach those of other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVni {
    /// The group that serves FelixConfiguration.
    pub group: ApiGroup,
    pub vni: Vni,
    /// How long a run waits for it, in seconds.
    pub limit_s: u64,
}

/// For example `FelixConfiguration to have VNI 5000`.
impl Display for ClusterVni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FelixConfiguration to have VNI {}", self.vni)
    }
}

fn path() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("cordon.json")
}

/// For example `reconfigure (run R, since T), with node win-a1 cordoned`.
impl Display for Cordon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, run, since, node, .. } = self;
        write!(f, "{command} (run {run}, since {since:.0}), with node {node} cordoned")?;
        self.awaits.as_ref().map_or(Ok(()), |awaited| write!(f, ", waiting for {awaited}"))
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
