//! Services, through the Service Control Manager.

use anyhow::{Result, bail};

use crate::node::Process;
use crate::plan::item::Service;

pub fn list() -> Result<Vec<(String, Service)>> {
    bail!("services: to be written")
}

pub fn get(_name: &str) -> Result<Option<Service>> {
    bail!("services: to be written")
}

pub fn put(_name: &str, _service: Option<&Service>) -> Result<()> {
    bail!("services: to be written")
}

/// The process of a running service, cross-checked with the process table.
pub fn process(_name: &str) -> Result<Option<Process>> {
    bail!("services: to be written")
}

pub fn start(_name: &str) -> Result<()> {
    bail!("services: to be written")
}

pub fn stop(_name: &str) -> Result<()> {
    bail!("services: to be written")
}
