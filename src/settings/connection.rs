//! How servers are reached: which kubeconfig, and which proxy and CA.

use std::time::Duration;

use super::resolver::Resolver;
use crate::config::types::{Auto, Wait};
use crate::config::{Layered, Origin};
use crate::facts::{Cloud, Provider};

/// How the cluster and the download site are reached. Paths are on the machine that this program runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub kubeconfig: String,
    /// Where the kubeconfig was named; [`Origin::Default`] if nowhere.
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

/// How long the API server may take to answer, how often a request is retried, and whether a login may ask the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long one request may take, including retries.
    pub timeout: Duration,
    /// How often a request is retried if the server is busy, fails or closes the connection.
    pub retries: u32,
    /// The kubeconfig's plugin may ask the user, who is at the terminal.
    pub asks: bool,
}

impl Limits {
    /// For a request with a shorter limit than the config's: a server that does not answer is given up after a few
    /// seconds.
    pub const fn within(timeout: Duration) -> Self {
        Self { timeout, retries: 4, asks: false }
    }

    /// The part of the time limit for the connection, so that an unreachable server differs from one that does not
    /// answer.
    pub fn connect(self) -> Duration {
        self.timeout / 2
    }
}

impl Connection {
    /// The limits of a request to the API server.
    pub const fn limits(&self, asks: bool) -> Limits {
        Limits { timeout: self.timeout, retries: self.retries, asks }
    }
}

/// Decides how to connect: from the config, and from the platform if it was detected.
pub fn connection(layered: &Layered, cloud: Option<&Cloud>) -> Connection {
    decide(&mut Resolver::new(layered), cloud)
}

/// The platform that the config names; none if it must be detected.
pub fn provider(layered: &Layered) -> Option<Provider> {
    layered.value::<Auto<_>>("spec.kubernetesProvider").and_then(|provider| provider.0)
}

pub(super) fn decide(to: &mut Resolver<'_>, cloud: Option<&Cloud>) -> Connection {
    let provider = provider(to.layered).or(cloud.map(|cloud| cloud.provider)).unwrap_or(Provider::None);
    let usual = || (provider.brings().kubeconfig.to_owned(), Origin::Default);
    let given = to.given("kubernetes.kubeconfig").filter(|file: &String| !file.is_empty());
    let kubeconfig = to.decided("kubernetes.kubeconfig", given, usual);
    let kubeconfig_from = to.origins.last().map_or(Origin::Default, |field| field.from.clone());
    let credentials = to.given("kubernetes.credentials");
    let namespace: Auto<String> = to.given("kubernetes.calicoNamespace").unwrap_or_default();
    Connection {
        kubeconfig,
        host_process: kubeconfig_from == Origin::Default && credentials == Some(super::Credentials::HostProcess),
        kubeconfig_from,
        context: to.text("kubernetes.context"),
        calico_namespace: namespace.0,
        proxy: to.text("transport.proxy"),
        no_proxy: to.or_default("transport.noProxy", Vec::new()),
        ca_file: to.text("transport.caFile"),
        timeout: to.or_default("transport.timeout", Wait::known("60s")).length(),
        retries: to.or_default("transport.retries", 5),
        backoff: Duration::from_secs(1),
        download_timeout: Duration::from_secs(30 * 60),
        offline: to.or_default("transport.offline", false),
    }
}
