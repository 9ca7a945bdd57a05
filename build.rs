//! Gives the Windows executable its application manifest.

use std::env;

use embed_manifest::manifest::{ActiveCodePage, ExecutionLevel, Setting};
use embed_manifest::{embed_manifest, new_manifest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_WINDOWS").is_some() {
        let manifest = new_manifest("calicoctl-win")
            // Looking needs no rights; what changes the machine says so itself (NOT_ELEVATED).
            .requested_execution_level(ExecutionLevel::AsInvoker)
            .long_path_aware(Setting::Enabled)
            .active_code_page(ActiveCodePage::Utf8)
            // No windows, no controls: Nano Server and HostProcess images do not have them.
            .remove_dependency("Microsoft.Windows.Common-Controls");
        embed_manifest(manifest)?;
    }
    Ok(())
}
