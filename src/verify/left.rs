//! The record that pods of this program may be in the cluster, for the next `verify` and for `resume`.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::node::{Node, STATE_DIR, record};
use crate::values::WinPath;

/// What a `verify --pods` has in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Name of the Kubernetes Node.
    pub node: String,
    pub run: String,
    pub since: Timestamp,
    /// It is left on purpose.
    pub demo: bool,
}

fn path() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("verify.json")
}

impl Left {
    /// # Errors
    /// When the record exists and cannot be read.
    pub fn load(node: &dyn Node) -> Result<Option<Self>> {
        record::load(node, &path())
    }

    /// # Errors
    /// When the disk refuses.
    pub fn save(&self, node: &mut dyn Node) -> Result<()> {
        record::save(node, &path(), self).context("write down that verify starts pods")
    }

    /// # Errors
    /// When the record cannot be removed.
    pub fn forget(node: &dyn Node) -> Result<()> {
        record::forget(node, &path()).context("forget the pods of verify")
    }
}
