//! What the machine is.

use anyhow::{Result, bail};

use crate::facts::NodeFacts;

/// Measures this machine.
pub fn measure() -> Result<NodeFacts> {
    bail!("facts: to be written")
}
