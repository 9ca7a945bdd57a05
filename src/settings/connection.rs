//! What must be decided before the cluster can be asked: which kubeconfig, and which proxy and CA.

use std::time::Duration;

use anyhow::Result;

use super::resolver::{Resolver, filled};
use crate::config::types::{Auto, Wait, WebUrl};
use crate::config::{Layered, Origin, fault};
use crate::facts::{Cloud, Provider};

/// How the cluster and the download site are reached. Paths are on the machine that this program runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub kubeconfig: String,
    /// Who named the kubeconfig; [`Origin::Default`] if nobody did.
    pub kubeconfig_from: Origin,
    /// No kubeconfig is named, and this program runs in a HostProcess pod: it uses the pod's own service account.
    pub host_process: bool,
    /// If none, the current context.
    pub context: Option<String>,
    /// If none, the cluster is asked.
    pub calico_namespace: Option<String>,
    /// URL.
    pub proxy: Option<String>,
    pub no_proxy: Vec<String>,
    /// PEM file of authorities to trust in addition to the system's.
    pub ca_file: Option<String>,
    /// For one response.
    pub timeout: Duration,
    /// How often a failed request is retried.
    pub retries: u32,
    /// Use no network except the cluster's API.
    pub offline: bool,
}

/// Decides how to connect, before the cluster is asked: from the config, and from the platform if it was detected.
///
/// # Errors
/// A [`crate::fault::Fault`] `ConfigInvalid` with all findings.
pub fn connection(layered: &Layered, cloud: Option<&Cloud>) -> Result<Connection> {
    let mut resolver = Resolver::new(layered);
    let connection = decide(layered, cloud, &mut resolver);
    if resolver.findings.is_empty() { Ok(connection) } else { Err(fault(&resolver.findings)) }
}

/// The platform that the config names; none if it must be detected.
pub fn provider(layered: &Layered) -> Option<Provider> {
    layered.config.spec.kubernetes_provider.clone().and_then(Auto::given)
}

pub(super) fn decide(layered: &Layered, cloud: Option<&Cloud>, to: &mut Resolver<'_>) -> Connection {
    let spec = &layered.config.spec;
    let path = "spec.kubernetes.kubeconfig";
    let kubeconfig = to.decide(path, filled(&spec.kubernetes.kubeconfig), || {
        let provider = provider(layered).or(cloud.map(|cloud| cloud.provider)).unwrap_or(Provider::None);
        (provider.brings().kubeconfig.to_owned(), Origin::Default)
    });
    let kubeconfig_from = to.origins.last().map_or(Origin::Default, |field| field.from.clone());
    let host_process = kubeconfig_from == Origin::Default
        && spec.kubernetes.credentials == Some(crate::settings::Credentials::HostProcess);
    let transport = &spec.transport;
    let proxy = transport.proxy.as_ref().map(WebUrl::as_str).filter(|url| !url.is_empty()).map(str::to_owned);
    Connection {
        kubeconfig,
        kubeconfig_from,
        host_process,
        context: to.optional("spec.kubernetes.context", filled(&spec.kubernetes.context)),
        calico_namespace: spec.kubernetes.calico_namespace.clone().and_then(Auto::given),
        proxy: to.optional("spec.transport.proxy", proxy),
        no_proxy: to.or_default("spec.transport.noProxy", transport.no_proxy.clone(), Vec::new()),
        ca_file: to.optional("spec.transport.caFile", filled(&transport.ca_file)),
        timeout: timeout(to, transport.timeout.clone()),
        retries: to.or_default("spec.transport.retries", transport.retries, 5),
        offline: to.or_default("spec.transport.offline", transport.offline, false),
    }
}

fn timeout(to: &mut Resolver<'_>, given: Option<Wait>) -> Duration {
    let path = "spec.transport.timeout";
    let wait = to.or_default(path, given, Wait::known("60s"));
    if wait.length().is_zero() {
        to.wrong(path, "a timeout of 0 would never let an answer come; give at least 1s");
    }
    wait.length()
}
