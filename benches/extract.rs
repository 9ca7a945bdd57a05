//! `cargo bench --bench extract`: extraction compared with the zip crate's own, in one process, on an archive made of
//! this executable. `packaging/bench.sh` compares with other programs on an archive of a release's size.
//!
//! `cargo bench --bench extract -- ZIP DEST [SHA256]` extracts once; with `--stage` like an install, with a digest of
//! each file and everything flushed to the disk.
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::io::{Cursor, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calicoctl_win::release::extract::{ExtractOptions, extract};
use calicoctl_win::release::stage::{StageOptions, stage};
use calicoctl_win::version::CalicoVersion;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let staged = arguments.iter().any(|argument| argument == "--stage");
    let plain: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with("--")).collect();
    match plain.as_slice() {
        [archive, dest, digest @ ..] => {
            let sha256 = digest.first().map(|digest| digest.parse()).transpose().map_err(anyhow::Error::msg)?;
            once(Path::new(archive), Path::new(dest), ExtractOptions { sha256 }, staged)
        }
        _ => compare(),
    }
}

fn once(archive: &Path, dest: &Path, options: ExtractOptions, staged: bool) -> Result<()> {
    if staged {
        let version = CalicoVersion::new(3, 32, 1);
        let options = StageOptions { version: &version, sha256: options.sha256.as_ref(), layout: &|_, _| Ok(()) };
        stage(archive, dest, &options, &mut |_| {})?;
    } else {
        extract(archive, dest, &options, &mut |_| {})?;
    }
    Ok(())
}

fn compare() -> Result<()> {
    const ROUNDS: usize = 5;
    let folder = std::env::temp_dir().join(format!("calicoctl-win-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("create a working folder")?;
    let archive = folder.join("bench.zip");
    std::fs::write(&archive, sample()?).context("write the archive")?;
    let dest = folder.join("out");

    let (mut ours, mut crates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(timed(&dest, || once(&archive, &dest, ExtractOptions::default(), false))?);
        crates.push(timed(&dest, || {
            ZipArchive::new(std::fs::File::open(&archive)?)?.extract(&dest)?;
            Ok(())
        })?);
    }
    std::fs::remove_dir_all(&folder).context("clear the working folder")?;
    let (ours, crates) = (median(ours), median(crates));
    println!("this one, sha256 and crc  {:>7.1} ms", ours.as_secs_f64() * 1e3);
    println!("zip crate's extract       {:>7.1} ms", crates.as_secs_f64() * 1e3);
    println!("ratio                     {:>7.2}", ours.as_secs_f64() / crates.as_secs_f64());
    Ok(())
}

fn timed(dest: &Path, run: impl Fn() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    run()?;
    let took = start.elapsed();
    std::fs::remove_dir_all(dest).context("clear what was extracted")?;
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Three files of similar size and different content, like a release's executables.
fn sample() -> Result<Vec<u8>> {
    let executable = std::fs::read(std::env::current_exe()?).context("read this executable")?;
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, flip) in [("calico-node.exe", 0u8), ("cni/calico.exe", 1), ("cni/calico-ipam.exe", 2)] {
        zip.start_file(format!("CalicoWindows/{name}"), SimpleFileOptions::default())?;
        zip.write_all(&executable.iter().map(|byte| byte ^ flip).collect::<Vec<u8>>())?;
    }
    Ok(zip.finish()?.into_inner())
}
