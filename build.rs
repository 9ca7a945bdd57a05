//! Packs the long texts, and gives the Windows executable its application manifest.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use embed_manifest::manifest::{ActiveCodePage, ExecutionLevel, Setting};
use embed_manifest::{embed_manifest, new_manifest};
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// The texts that `src/packed.rs` unpacks: a fifth of their size.
const PACKED: [&str; 6] = [
    "docs/config.schema.json",
    "docs/explain.md",
    "docs/checks.md",
    "docs/selftest.md",
    "docs/verify.md",
    "src/sandbox/cluster/calico-schemas.txt",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    pack()?;
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

/// Writes each text, packed, to a file of its name in `OUT_DIR`.
fn pack() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for path in PACKED {
        println!("cargo::rerun-if-changed={path}");
        let name = Path::new(path).file_name().ok_or("a text is a file")?;
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&fs::read(path)?)?;
        fs::write(out.join(name), packed.finish()?)?;
    }
    Ok(())
}
