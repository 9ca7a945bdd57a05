//! Windows Firewall, through its COM interface.

use anyhow::{Result, bail};

use crate::plan::item::FirewallRule;

pub fn get(_name: &str) -> Result<Option<FirewallRule>> {
    bail!("firewall: to be written")
}

pub fn put(_name: &str, _rule: Option<&FirewallRule>) -> Result<()> {
    bail!("firewall: to be written")
}

pub fn list() -> Result<Vec<(String, FirewallRule)>> {
    bail!("firewall: to be written")
}
