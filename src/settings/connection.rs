//! How servers are reached: which kubeconfig, and which proxy and CA.

use std::time::Duration;

use super::resolver::{Resolver, filled};
use crate::config::types::{Wait, WebUrl};
use crate::config::{Layered, Origin};
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
    /// The pause before the first retry of a download; it doubles each time.
    pub backoff: Duration,
    /// For everything that is downloaded for one release, with all retries.
    pub download_timeout: Duration,
    /// Use no network except the cluster's API.
    pub offline: bool,
}

/// How long the API server may take to answer, and how often a request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long one request may take, including retries.
    pub timeout: Duration,
    /// How often a request is retried if the server is busy, fails or closes the connection.
    pub retries: u32,
}

/// The usual limits.
impl Default for Limits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), retries: 5 }
    }
}

impl Limits {
    /// For a question that must be answered sooner than the config says: a server that is gone is given up after a few
    /// seconds.
    pub const fn within(timeout: Duration) -> Self {
        Self { timeout, retries: 4 }
    }

    /// The part of the time limit for the connection, so that an unreachable server differs from one that does not
    /// answer.
    pub fn connect(self) -> Duration {
        self.timeout / 2
    }
}

impl Connection {
    /// The limits of a request to the API server.
    pub const fn limits(&self) -> Limits {
        Limits { timeout: self.timeout, retries: self.retries }
    }
}

/// Decides how to connect: from the config, and from the platform if it was detected.
pub fn connection(layered: &Layered, cloud: Option<&Cloud>) -> Connection {
    decide(layered, cloud, &mut Resolver::new(layered))
}

/// The platform that the config names; none if it must be detected.
pub fn provider(layered: &Layered) -> Option<Provider> {
    layered.config.spec.kubernetes_provider.0
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
    let usual = Limits::default();
    let wait = Wait::known(&format!("{}s", usual.timeout.as_secs()));
    Connection {
        kubeconfig,
        kubeconfig_from,
        host_process,
        context: to.optional("spec.kubernetes.context", filled(&spec.kubernetes.context)),
        calico_namespace: spec.kubernetes.calico_namespace.0.clone(),
        proxy: to.optional("spec.transport.proxy", proxy),
        no_proxy: to.or_default("spec.transport.noProxy", transport.no_proxy.clone(), Vec::new()),
        ca_file: to.optional("spec.transport.caFile", filled(&transport.ca_file)),
        timeout: to.or_default("spec.transport.timeout", transport.timeout.clone(), wait).length(),
        retries: to.or_default("spec.transport.retries", transport.retries, usual.retries),
        backoff: Duration::from_secs(1),
        download_timeout: Duration::from_secs(30 * 60),
        offline: to.or_default("spec.transport.offline", transport.offline, false),
    }
}
