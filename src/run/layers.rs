//! The layers of the config that a command line names: documents, and single fields over them.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use anyhow::Result;

use super::options::{Global, Source};
use crate::config::{Document, Origin, Override, encoding};
use crate::fault::{Exit, Fault};
use crate::version::CalicoVersion;

/// Reads a config document from a file, or with `-` from stdin.
pub(crate) fn read_document(file: &Path) -> Result<Document> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|error| unreadable("cannot read the config from stdin").because(error))?;
        return document("stdin", &bytes);
    }
    let name = file.display().to_string();
    let bytes =
        std::fs::read(file).map_err(|error| unreadable(format!("cannot read the config {name}")).because(error))?;
    document(&name, &bytes)
}

/// Parses a named document. An empty one is an error: a failed write, or an empty pipe.
fn document(name: &str, bytes: &[u8]) -> Result<Document> {
    let text = encoding::decode(bytes)
        .map_err(|why| unreadable(format!("the config {name} cannot be read: {why}")).hint("save it as UTF-8"))?;
    if text.trim().is_empty() {
        return Err(unreadable(format!("the config {name} is empty")).into());
    }
    Ok(Document { name: name.into(), text })
}

fn unreadable(what: impl Into<String>) -> Fault {
    Fault::new(Exit::InvalidConfig, "ConfigUnreadable", what)
        .hint("give its path with -c, or make one with: calicoctl-win config init node.yaml")
}

enum ReleaseKind {
    Version,
    Url,
    File,
    Directory,
}

fn release_kind(text: &str) -> ReleaseKind {
    if text.starts_with("http://") || text.starts_with("https://") {
        ReleaseKind::Url
    } else if Path::new(text).is_dir() {
        ReleaseKind::Directory
    } else if !Path::new(text).exists() && text.parse::<CalicoVersion>().is_ok() {
        ReleaseKind::Version
    } else {
        ReleaseKind::File
    }
}

/// Returns the single fields that variables and flags set; `--set` comes last and wins.
pub(crate) fn overrides(global: &Global, args: &[OsString], source: &Source) -> Vec<Override> {
    let origin = |flag: &str| {
        let variable = format!("CALICO_WIN_{}", flag.to_uppercase().replace('-', "_"));
        let typed = args.iter().any(|arg| arg.to_string_lossy().starts_with(&format!("--{flag}")));
        if typed { Origin::Flag(format!("--{flag}")) } else { Origin::Env(variable) }
    };
    let mut overrides = Vec::new();
    let mut add = |path: &str, value: Option<String>, flag: &str| {
        if let Some(value) = value {
            overrides.push(Override { path: path.into(), value, from: origin(flag) });
        }
    };
    add("kubernetes.kubeconfig", global.kubeconfig.clone(), "kubeconfig");
    add("kubernetes.context", global.context.clone(), "context");
    add("kubernetes.nodeName", global.node_name.clone(), "node-name");
    add("kubernetes.calicoNamespace", global.calico_namespace.clone(), "calico-namespace");
    add("transport.proxy", global.proxy.clone(), "proxy");
    add("transport.caFile", global.ca_file.clone(), "ca-file");
    add("transport.offline", global.offline.then(|| "true".into()), "offline");
    if let Some(release) = &source.release {
        match release_kind(release) {
            ReleaseKind::Version => add("calico.version", Some(release.clone()), "release"),
            ReleaseKind::Url => {
                add("calico.source.type", Some("mirror".into()), "release");
                add("calico.source.urlTemplate", Some(release.clone()), "release");
            }
            ReleaseKind::Directory => {
                add("calico.source.type", Some("directory".into()), "release");
                add("calico.source.path", Some(release.clone()), "release");
            }
            ReleaseKind::File => {
                add("calico.source.type", Some("bundle".into()), "release");
                add("calico.source.path", Some(release.clone()), "release");
            }
        }
        // A named release sets its own version over the config's.
        let name = release.rsplit(['/', '\\']).next().unwrap_or_default();
        if let Some(version) = crate::release::archive::version_in(name) {
            add("calico.version", Some(version.to_string()), "release");
        }
    }
    add("calico.source.sha256", source.sha256.clone(), "sha256");
    let sets = global.set.iter().map(|set| {
        let (path, value) = set.split_once('=').unwrap_or((set, ""));
        Override { path: path.into(), value: value.into(), from: Origin::Set }
    });
    overrides.into_iter().chain(sets).collect()
}
