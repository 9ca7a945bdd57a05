//! Windows features, detected by what they install. DISM would take seconds and start its own process.

use anyhow::Result;

use super::{dll, registry};
use crate::facts::Features;

/// Detects the installed features.
///
/// # Errors
/// When the registry cannot be read.
pub fn facts() -> Result<Features> {
    Ok(Features {
        // The services' keys remain for a while after the feature is removed; its library does not.
        containers: has_service("hns")? && has_service("vmcompute")? && dll::loads("vmcompute.dll").is_ok(),
        remote_access: has_service("RemoteAccess")?,
        routing: registry::number(Features::ROUTING, Features::INSTALL_STATE)?.map(Features::is_installed),
    })
}

fn has_service(name: &str) -> Result<bool> {
    Ok(registry::text(&format!(r"SYSTEM\CurrentControlSet\Services\{name}"), "ImagePath")?.is_some())
}
