//! Whether the API server can be reached at all.

use anyhow::Result;
use serde_json::Value;

use super::Cluster;
use crate::fault::Fault;

/// What is said when nobody answered. Every other failure is an answer, and so proof of a way there.
const UNREACHED: [&str; 5] =
    ["ClusterRefused", "ClusterNameUnresolved", "ClusterTimeout", "ClusterConnectionLost", "ClusterUnreachable"];

impl Cluster {
    /// Asks the API server for any answer: one that is overloaded, or lets nobody in, is reached.
    ///
    /// # Errors
    /// When there is no way to it.
    pub fn reach(&self) -> Result<()> {
        match self.get::<Value>("/version") {
            Err(error) if unreached(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether an error says that nobody answered.
pub fn unreached(error: &anyhow::Error) -> bool {
    UNREACHED.contains(&Fault::id_of(error))
}
