//! The network adapters and their IPv4 configuration, through the IP helper.

use anyhow::{Result, bail};

use crate::facts::Adapter;
use crate::plan::item::IpConfig;

/// Every adapter that is up, as [`crate::facts::NodeFacts`] has it.
pub fn facts() -> Result<Vec<Adapter>> {
    bail!("adapters: to be written")
}

pub fn list() -> Result<Vec<(String, IpConfig)>> {
    bail!("adapters: to be written")
}

pub fn get(_name: &str) -> Result<Option<IpConfig>> {
    bail!("adapters: to be written")
}

pub fn put(_name: &str, _config: &IpConfig) -> Result<()> {
    bail!("adapters: to be written")
}
