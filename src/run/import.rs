//! The settings of an installation by upstream's scripts, read from its node.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::open;
use crate::calico::cni::CniConf;
use crate::calico::upstream::{self, Installation};
use crate::calico::{services, static_rules};
use crate::config::import::{self, Imported, Measured, Remark, Source};
use crate::config::static_rules::check;
use crate::facts::{Part, RuntimeKind};
use crate::fault::{Exit, Fault};
use crate::item::{Id, Network, Service, State};
use crate::node::{Listing, Node};
use crate::paths;
use crate::values::WinPath;

/// Returns the contents of a file, up to slightly more than the accepted size.
///
/// # Errors
/// `ConfigPs1Unreadable` when it cannot be read.
pub(crate) fn bytes(file: &Path, name: &str) -> Result<Vec<u8>> {
    let unreadable = || {
        Fault::new(Exit::InvalidConfig, "ConfigPs1Unreadable", format!("cannot read {name}"))
            .hint(r"give the config.ps1 of the installation, usually C:\CalicoWindows\config.ps1")
    };
    let open = File::open(file).map_err(|error| unreadable().because(error))?;
    let mut bytes = Vec::new();
    let most = import::LARGEST as u64 + 1;
    open.take(most).read_to_end(&mut bytes).map_err(|error| unreadable().because(error))?;
    Ok(bytes)
}

/// Reads upstream's installation on this node. The running state wins over its `config.ps1`.
///
/// # Errors
/// When there is none, or the node cannot be read.
pub(crate) fn live(node: &dyn Node) -> Result<Imported> {
    let service = calico_node(node)?;
    let found = Installation::of(&service).ok_or_else(not_upstreams)?;
    let root = found.root.clone();
    let facts = open::measure(node)?;
    if let Some(why) = facts.untold(Part::Runtime) {
        bail!("{why}");
    }
    let networks = networks(node)?;
    let (mut notes, mut unread): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let text = config_ps1(node, &root)?.unwrap_or_else(|| {
        let file = paths::config_ps1(&root);
        notes.push(format!("there is no {file}: what only it says is detected, or has its default"));
        String::new()
    });

    let runtime = facts.runtime.as_ref();
    let mut source = Source {
        name: "config.ps1",
        root: root.clone(),
        containerd: Some(runtime.is_none_or(|runtime| runtime.kind == RuntimeKind::Containerd)),
        environment: found.environment,
        measured: Vec::new(),
        fields: Vec::new(),
    };
    if let Some(dir) = &found.log_dir {
        source.measured.extend(measured("the service CalicoNode", vec![("CALICO_LOG_DIR", dir.to_string())]));
    }
    let name = node_name(node, &paths::nodename(&root));
    if let Some(name) = name.filter(|name| *name != facts.host_name.to_lowercase()) {
        source.measured.extend(measured("the file nodename", vec![("NODENAME", name)]));
    }
    let mut fields: Vec<upstream::Found> = Vec::new();
    // The script names the CNI configuration's folder, or else the container runtime does.
    let conf = import::cni_folders(&text, &source).and_then(|folders| {
        let dir = folders.conf_dir.or_else(|| runtime.map(|runtime| runtime.cni_conf_dir.clone()));
        dir.map(|dir| dir.join(&folders.conf_file))
    });
    if let Some(conf) = conf {
        match std::fs::read_to_string(node.disk(&conf)).map(|text| CniConf::parse(&text)) {
            Ok(Ok(cni)) => {
                source.measured.extend(measured(conf.name(), upstream::from_cni(&cni)));
                fields.extend(upstream::only_in_cni(&cni));
            }
            Ok(Err(error)) => unread.push(format!("{conf}: {error:#}")),
            Err(error) => notes.push(format!("no CNI configuration of Calico's was read at {conf}: {error}")),
        }
    }
    if let Some((network, found)) = upstream::from_networks(&networks) {
        source.measured.extend(measured(&format!("the HNS network {network}"), found));
    }
    fields.extend(
        upstream::provider(&networks).map(|provider| ("kubernetesProvider", provider.brings().name.to_owned())),
    );
    let rules = paths::static_rules(&root);
    match std::fs::read(node.disk(&rules)) {
        Ok(text) if static_rules::are_of_aks(&text) => fields.push(("platform.staticRules", "aks".into())),
        Ok(text) => match serde_json::from_slice(&text).map_err(|error| error.to_string()).and_then(|r| check(&r)) {
            Ok(()) => {
                fields.push(("platform.staticRules", "none".into()));
                notes.push(format!("{rules}: these rules are not AKS's; install keeps the file, and Felix reads it"));
            }
            Err(why) => unread.push(format!("{rules}: Felix does not accept these rules: {why}")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => unread.push(format!("{rules}: {error}")),
    }
    source.fields = fields;
    let mut imported = import::import(&text, &source)?;
    let remark = |text| Remark { line: None, text };
    imported.notes.extend(notes.into_iter().map(remark));
    imported.unread.extend(unread.into_iter().map(remark));
    Ok(imported)
}

/// The `config.ps1` of the scripts in a folder; none if there is none.
///
/// # Errors
/// `ConfigPs1Unreadable`, or it is no text.
pub(super) fn config_ps1(node: &dyn Node, root: &WinPath) -> Result<Option<String>> {
    let file = paths::config_ps1(root);
    let on_disk = node.disk(&file);
    if !on_disk.exists() {
        return Ok(None);
    }
    Ok(Some(import::decode(file.as_str(), &bytes(&on_disk, file.as_str())?)?))
}

/// The name of the Node in a file `nodename` of the node; none if there is none.
pub(super) fn node_name(node: &dyn Node, file: &WinPath) -> Option<String> {
    upstream::node_name(&std::fs::read_to_string(node.disk(file)).ok()?)
}

fn measured(by: &str, found: Vec<upstream::Found>) -> impl Iterator<Item = Measured> {
    found.into_iter().map(move |(variable, value)| Measured { variable, value, by: by.to_owned() })
}

fn calico_node(node: &dyn Node) -> Result<Service> {
    match node.get(&Id::Service(services::NODE.into()))? {
        Some(State::Service(service)) if services::is_ours(&service) => {
            Err(Fault::new(Exit::NotFound, "AlreadyOurs", "the services of this node are calicoctl-win's already")
                .hint("its config is shown by: calicoctl-win config show --origins")
                .into())
        }
        Some(State::Service(service)) => Ok(*service),
        _ => Err(Fault::new(Exit::NotInstalled, "NoUpstreamInstall", "there is no service CalicoNode on this node")
            .hint("read a file in place of the node: calicoctl-win config import config.ps1")
            .into()),
    }
}

fn not_upstreams() -> Fault {
    Fault::new(Exit::Unsupported, "NoUpstreamInstall", "the service CalicoNode is not one that upstream's scripts made")
        .hint("read its config.ps1 in place of the node: calicoctl-win config import config.ps1")
}

fn networks(node: &dyn Node) -> Result<Vec<(String, Network)>> {
    let listed = node.list(Listing::Networks).context("list the HNS networks")?;
    let named = listed.into_iter().filter_map(|(id, state)| match (id, state) {
        (Id::Network(name), State::Network(network)) => Some((name, network)),
        _ => None,
    });
    Ok(named.collect())
}
