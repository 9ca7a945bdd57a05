//! What Flannel has on a node, as items: `migrate from flannel` removes them, and keeps what they were.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use super::context::Operation;
use crate::calico::{flannel, kube_proxy, networks};
use crate::facts::NodeFacts;
use crate::fault::{Exit, Fault};
use crate::item::{Id, Service, State};
use crate::node::{Listing, Node};
use crate::settings::{Backend, Settings};
use crate::values::WinPath;

/// Flannel on a node.
#[derive(Debug, Default)]
pub(crate) struct Flannel {
    pub items: BTreeSet<Id>,
}

/// Looks for it.
///
/// # Errors
/// When the node cannot be read: a failed query does not mean that nothing is there.
pub(crate) fn found(node: &dyn Node, facts: &NodeFacts) -> Result<Flannel> {
    let mut items = BTreeSet::new();
    for name in flannel::SERVICES {
        if node.get(&Id::Service(name.into()))?.is_some() {
            items.extend([Id::Service(name.into()), Id::Running(name.into())]);
        }
    }
    for (id, state) in node.list(Listing::Networks).context("list the HNS networks")? {
        if let (Id::Network(name), State::Network(network)) = (&id, &state)
            && flannel::is_network(name)
            && networks::is_calicos_kind(network.kind)
        {
            items.insert(id);
        }
    }
    if let (Some(runtime), Some(survey)) = (&facts.runtime, &facts.survey) {
        let confs = survey.cni_configs.iter().filter(|config| config.is_flannels());
        items.extend(confs.map(|config| Id::CniConf(runtime.cni_conf_dir.join(&config.file))));
    }
    for path in flannel::FILES {
        let id = Id::File(WinPath::known(path));
        if node.get(&id)?.is_some() {
            items.insert(id);
        }
    }
    Ok(Flannel { items })
}

impl Flannel {
    /// Refuses a node without Flannel.
    ///
    /// # Errors
    /// `NoFlannelHere`.
    pub fn check(&self, op: &Operation<'_>) -> Result<()> {
        if self.items.is_empty() && op.context.standing.receipt().is_none() && op.context.standing.journal.is_none() {
            return Err(Fault::new(Exit::NotFound, "NoFlannelHere", "nothing of Flannel was found on this node")
                .hint("install Calico with: calicoctl-win install")
                .into());
        }
        Ok(())
    }
}

/// kube-proxy's service on Calico's network, if its definition names another one.
pub(crate) fn kube_proxy(service: &Service) -> Option<Service> {
    kube_proxy::on_network(service, networks::PODS)
}

/// After the migration: says what kube-proxy needs and was not set, since only node startup decided it.
///
/// # Errors
/// When the node cannot be read.
pub(crate) fn tell_of_kube_proxy(op: &mut Operation<'_>, settings: &Settings) -> Result<()> {
    let overlay = settings.network.backend == Backend::Vxlan;
    let endpoints = op.node.endpoints().context("list the HNS endpoints")?;
    let ip = endpoints.iter().find(|endpoint| endpoint.is_the_hosts()).and_then(|endpoint| endpoint.ip);
    let Some(State::Service(service)) = op.node.get(&Id::Service(kube_proxy::NAME.into()))? else {
        let vip = ip.filter(|_| overlay).map(|ip| format!(" and --source-vip={ip}")).unwrap_or_default();
        let message = format!("kube-proxy is not a service here: set its --network-name=Calico{vip}, and restart it");
        op.app.warn("KubeProxyNetwork", message);
        return Ok(());
    };
    let said = match kube_proxy::config_file(&service) {
        Some(path) => {
            let text = fs::read_to_string(op.node.disk(&path)).ok();
            text.and_then(|text| kube_proxy::source_vip_in(&text))
        }
        None => kube_proxy::flag(&service, "--source-vip"),
    };
    if let (true, Some(ip)) = (overlay, ip.map(|ip| ip.to_string()))
        && said.as_deref() != Some(ip.as_str())
    {
        let message = match said {
            Some(said) => format!("kube-proxy has Flannel's --source-vip={said}: set {ip}, and restart it"),
            None => format!("where kube-proxy has its --source-vip was not found: set {ip} there, and restart it"),
        };
        op.app.warn("KubeProxyNetwork", message);
    }
    Ok(())
}
