//! Whether the API server can be reached at all.

use anyhow::Result;
use serde_json::Value;

use super::Cluster;
use crate::fault::Fault;

/// The faults without any response. Every other failure is a response, and so proves that the server is reachable.
const UNREACHED: [&str; 5] =
    ["ClusterRefused", "ClusterNameUnresolved", "ClusterTimeout", "ClusterConnectionLost", "ClusterUnreachable"];

impl Cluster {
    /// Asks the API server for any response: an overloaded server, or one that refuses the user, is reachable.
    ///
    /// # Errors
    /// When it is not reachable.
    pub fn reach(&self) -> Result<()> {
        match self.get::<Value>("/version") {
            Err(error) if unreached(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether an error means that there was no response.
pub fn unreached(error: &anyhow::Error) -> bool {
    UNREACHED.contains(&Fault::id_of(error))
}
