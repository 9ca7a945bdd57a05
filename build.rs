//! Gives the Windows executable its application manifest, and keeps the released Linux one small.

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
    // Only the profile dist is made with this optimisation. It aborts on a panic, so it has no use
    // for unwind tables, and its relocations can be packed: together 1.5 MB of 9.
    let released = env::var("OPT_LEVEL").is_ok_and(|level| level == "z");
    if released && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let script = format!("{}/packaging/no-unwind-tables.ld", env::var("CARGO_MANIFEST_DIR")?);
        println!("cargo::rerun-if-changed={script}");
        for option in [&format!("-T,{script}"), "--no-eh-frame-hdr", "-z,pack-relative-relocs"] {
            println!("cargo::rustc-link-arg-bins=-Wl,{option}");
        }
    }
    Ok(())
}
