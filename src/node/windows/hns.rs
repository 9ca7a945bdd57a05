//! The Host Networking Service, through `HNSCall` of `vmcompute.dll`.

use anyhow::{Result, bail};

use crate::facts::HnsVersion;
use crate::plan::item::Network;

/// None where HNS is not installed or does not answer.
pub fn version() -> Result<Option<HnsVersion>> {
    bail!("hns: to be written")
}

pub fn get(_name: &str) -> Result<Option<Network>> {
    bail!("hns: to be written")
}

pub fn put(_name: &str, _network: Option<&Network>) -> Result<()> {
    bail!("hns: to be written")
}

pub fn list() -> Result<Vec<(String, Network)>> {
    bail!("hns: to be written")
}
