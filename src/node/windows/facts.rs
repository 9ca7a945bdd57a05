//! What the machine is.

use anyhow::{Context, Result};

use super::{adapters, boot, features, hns, os, reboot, runtime, tls};
use crate::facts::NodeFacts;

/// Measures this machine. Nothing is changed but for the mark of this boot (see [`boot::id`]), and
/// no process is started.
///
/// # Errors
/// Naming what could not be measured; `UNSUPPORTED` for a 32-bit program on a 64-bit Windows.
pub fn measure() -> Result<NodeFacts> {
    Ok(NodeFacts {
        os: os::facts().context("measure Windows")?,
        host_name: os::host_name()?,
        elevated: os::is_elevated()?,
        boot_id: boot::id().context("find out which boot this is")?,
        runtime: runtime::facts().context("find the container runtime")?,
        adapters: adapters::facts().context("measure the network adapters")?,
        hns: hns::version().context("ask HNS for its version")?,
        features: Some(features::facts().context("look for Windows features")?),
        pending_reboot: reboot::facts().context("look whether Windows must restart")?,
        tls: Some(tls::facts().context("read the settings of TLS")?),
        cloud: None,
        survey: None,
    })
}
