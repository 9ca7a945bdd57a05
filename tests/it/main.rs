//! All integration tests, in one binary: it links once.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

mod bad_input;
mod blocks;
mod both;
mod clusters;
mod docs;
mod etcd;
mod guide;
mod lab;
mod layering;
mod links;
mod matrix;
mod mirror;
mod names;
mod powershell;
#[cfg(target_os = "linux")]
mod real;
mod reference;
mod stories;
mod tar;
mod tokens;
mod words;

use std::path::PathBuf;

/// The project's own folder.
pub fn project() -> PathBuf {
    // cargo also sets it at run time, so a moved folder is found.
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// A text file of the project, by its path in it.
pub fn read(path: &str) -> String {
    let full = project().join(path);
    std::fs::read_to_string(&full).unwrap_or_else(|e| panic!("cannot read {}: {e}", full.display()))
}

/// Every `.rs` file below a folder of the project, as (path with `/`, text), sorted.
pub fn sources(below: &str) -> Vec<(String, String)> {
    files(below, &["rs"])
}

/// Every file with one of these endings below a folder of the project, as (path with `/`, text), sorted.
pub fn files(below: &str, endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![project().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
                let name = path.strip_prefix(project()).unwrap().to_str().unwrap().replace('\\', "/");
                let text = read(&name);
                found.push((name, text));
            }
        }
    }
    found.sort();
    found
}
