//! Windows features, seen by what they bring. Asking DISM takes seconds and starts its own process.

use anyhow::Result;

use super::{dll, registry};
use crate::facts::Features;

/// Looks which features are there.
///
/// # Errors
/// When the registry cannot be read.
pub fn facts() -> Result<Features> {
    Ok(Features {
        // The services' keys stay for a while after the feature is gone; its library does not.
        containers: has_service("hns")? && has_service("vmcompute")? && dll::loads("vmcompute.dll").is_ok(),
        remote_access: has_service("RemoteAccess")?,
    })
}

fn has_service(name: &str) -> Result<bool> {
    Ok(registry::text(&format!(r"SYSTEM\CurrentControlSet\Services\{name}"), "ImagePath")?.is_some())
}
