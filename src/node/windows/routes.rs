//! IPv4 routes of the active store, through the IP helper.

use anyhow::{Result, bail};

use crate::plan::item::{Id, State};
use crate::values::Cidr;

pub fn list() -> Result<Vec<(Id, State)>> {
    bail!("routes: to be written")
}

pub fn get(_prefix: &Cidr) -> Result<Option<State>> {
    bail!("routes: to be written")
}

pub fn put(_prefix: &Cidr, _route: Option<&State>) -> Result<()> {
    bail!("routes: to be written")
}
