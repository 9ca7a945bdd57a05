//! What must be decided before the cluster can be asked: which kubeconfig, and how to get out.

use std::time::Duration;

use anyhow::Result;

use super::resolver::{Resolver, filled};
use crate::config::types::{Auto, Wait, WebUrl};
use crate::config::{Layered, Origin, fault};
use crate::facts::{Cloud, Provider};

/// How the cluster and the download site are reached. Paths are of the machine this program runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub kubeconfig: String,
    /// Who named the kubeconfig; [`Origin::Default`] where nobody did.
    pub kubeconfig_from: Origin,
    /// No kubeconfig is named, and this program runs in a HostProcess pod: the pod's own service account
    /// is whom the cluster is asked as.
    pub host_process: bool,
    /// None takes the current context.
    pub context: Option<String>,
    /// None asks the cluster.
    pub calico_namespace: Option<String>,
    /// URL.
    pub proxy: Option<String>,
    pub no_proxy: Vec<String>,
    /// PEM file of authorities to trust besides the system's.
    pub ca_file: Option<String>,
    /// For one answer.
    pub timeout: Duration,
    /// How often a failed request is tried again.
    pub retries: u32,
    /// No network but the cluster's API.
    pub offline: bool,
}

/// Decides how to connect, before the cluster is asked: from the config, and the platform where it
/// was looked for.
///
/// # Errors
/// A [`crate::fault::Fault`] `ConfigInvalid` with all findings.
pub fn connection(layered: &Layered, cloud: Option<&Cloud>) -> Result<Connection> {
    let mut resolver = Resolver::new(layered);
    let connection = decide(layered, cloud, &mut resolver);
    if resolver.findings.is_empty() { Ok(connection) } else { Err(fault(&resolver.findings)) }
}

/// The platform that the config names; none where it is to be found.
pub fn provider(layered: &Layered) -> Option<Provider> {
    layered.config.spec.kubernetes_provider.clone().and_then(Auto::given)
}

pub(super) fn decide(layered: &Layered, cloud: Option<&Cloud>, to: &mut Resolver<'_>) -> Connection {
    let spec = &layered.config.spec;
    let path = "spec.kubernetes.kubeconfig";
    let kubeconfig = to.decide(path, filled(&spec.kubernetes.kubeconfig), || {
        let usual = match provider(layered).or(cloud.map(|cloud| cloud.provider)) {
            Some(Provider::Eks) => r"C:\ProgramData\kubernetes\kubeconfig",
            _ => r"C:\k\config",
        };
        (usual.to_owned(), Origin::Default)
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
