//! The cluster: a client for the Kubernetes API, and the requests of this program.
//!
//! The only module with `async`, and it is not visible: every function blocks until there is a response or the time is
//! up. A failed request is never an answer, so `None` and an empty list mean that the API server said so.

mod access;
mod api;
mod cleanup;
mod credentials;
mod drain;
mod errors;
pub mod etcd;
mod etcd_kv;
mod etcd_member;
mod facts;
mod felix;
mod fleet;
mod fleet_watch;
mod joining;
mod kubeconfig;
pub mod lease;
mod network_objects;
mod node;
mod plugin;
mod pods;
mod policies;
mod prepare;
mod reach;
mod rights_cache;
mod session;
mod taints;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verify;
mod watch;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

pub use self::access::{Needs, fleet_manifest, login_manifest, manifest as rights_manifest, renewal_manifest};
pub use self::api::{path, query, show_requests};
pub use self::cleanup::Released;
pub use self::credentials::{Issued, TOKEN_SECRET, TokenFrom, renewal_forbidden};
pub use self::drain::{DrainOptions, DrainPlan, Remaining};
pub use self::errors::may_pass;
pub use self::facts::{Checks, FactsOptions, etcd_blocks_of, read_etcd};
pub use self::fleet_watch::FleetWatch;
pub use self::joining::{CertificateRequest, RequestState};
pub use self::kubeconfig::{files_of, read_file as read_kubeconfig, server_of};
pub use self::node::{CORDONED_BY, Note, RESULT, absent};
pub use self::plugin::{EXEC_PLUGIN, PLUGIN_CANNOT_START, PLUGIN_TIMED_OUT};
pub use self::pods::PodOnNode;
pub use self::policies::lint_etcd;
pub use self::prepare::{Patch, Preparation, Wishes};
pub use self::reach::unreached;
pub use self::taints::{Effect, Taint, Taints};
pub use self::verify::{DnsService, MANAGED_BY, VERIFY_NAMESPACE, verify_manifest};

use self::api::Api;
use self::kubeconfig::Trust;
use crate::facts::ApiGroup;
use crate::fault::{Exit, Fault};
use crate::report::event::Event;
use crate::settings::Limits;

/// The name of this program in `User-Agent`, and as field manager of everything that it writes.
pub const FIELD_MANAGER: &str = "calicoctl-win";

/// The service account whose rights Calico's components on a node have.
pub const SERVICE_ACCOUNT: &str = "calico-node";

/// Runs the futures. When dropped, it abandons what cannot be interrupted, such as a slow DNS lookup, instead of
/// waiting for it.
struct Executor(Option<Runtime>);

impl Executor {
    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("the runtime is there until the drop")
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.get().block_on(future)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A cluster's API server, as one user. Its clones share one client.
#[derive(Clone)]
pub struct Cluster {
    api: Arc<Api>,
    trust: Trust,
    dial: Option<SocketAddr>,
    limits: Limits,
    runtime: Arc<Executor>,
}

impl Cluster {
    /// Reads a kubeconfig file and creates a client for the chosen context, like [`Cluster::connect`]; errors name the
    /// file.
    ///
    /// # Errors
    /// Fault `KubeconfigMissing` without a file, and when it cannot be read.
    pub fn open(kubeconfig: Option<&Path>, context: Option<&str>, limits: Limits) -> Result<Self> {
        let (file, text) = kubeconfig::read(kubeconfig)?;
        let origin = format!("the kubeconfig {}", file.display());
        let base_dir = file.parent().unwrap_or(Path::new(""));
        Self::build(&origin, &text, base_dir, context, None, limits)
    }

    /// Reads a kubeconfig and creates a client for the chosen context. Sends nothing yet, but runs an exec plugin for
    /// the user's credentials.
    ///
    /// `kubeconfig` is the YAML text, `base_dir` the folder of its relative file names, `context` the one to use
    /// instead of `current-context`. With `dial` the connection goes to that address, and the URL's host is only the
    /// name in the server's certificate.
    ///
    /// # Errors
    /// Faults `KubeconfigInvalid`, `ContextNotFound`, `ClusterLogin`, `ClusterCaExpired`.
    pub fn connect(
        kubeconfig: &str,
        base_dir: &Path,
        context: Option<&str>,
        dial: Option<SocketAddr>,
        limits: Limits,
    ) -> Result<Self> {
        Self::build("the kubeconfig", kubeconfig, base_dir, context, dial, limits)
    }

    fn build(
        origin: &str,
        kubeconfig: &str,
        base_dir: &Path,
        context: Option<&str>,
        dial: Option<SocketAddr>,
        limits: Limits,
    ) -> Result<Self> {
        #[cfg(test)]
        crate::counted::count("client");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .context("start the cluster client")?;
        let access = kubeconfig::choose(origin, kubeconfig, base_dir, context, limits.asks)?;
        let trust = access.trust();
        let api = Arc::new(Api::new(access, dial, limits, runtime.handle())?);
        Ok(Self { api, trust, dial, limits, runtime: Arc::new(Executor(Some(runtime))) })
    }

    /// The same client, for requests that may take this long at most.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self { api: Arc::new(self.api.within(limit)), ..self.clone() }
    }

    /// URL of the API server in the chosen context.
    pub fn server(&self) -> &str {
        &self.api.server.url
    }

    /// The cluster's CA certificates in PEM, from the kubeconfig's data or file; none if it uses the system's roots, or
    /// skips verification.
    pub fn ca_pem(&self) -> Option<&str> {
        match &self.trust {
            Trust::Ca(pem) => Some(pem),
            Trust::System | Trust::Nobody => None,
        }
    }

    /// Reads one object. None only if the API server says that this very object is absent; a resource or group that is
    /// not served is the fault `ApiNotServed`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        Ok(self.runtime.block_on(self.api.get(path))?)
    }

    /// Asks for resources of Calico in the group that the cluster serves, and says which group that is.
    fn of_calico<T>(ask: impl Fn(ApiGroup) -> Result<T>) -> Result<(ApiGroup, T)> {
        match ask(ApiGroup::V1) {
            Err(error) if Fault::id_of(&error) == "ApiNotServed" => Ok((ApiGroup::V3, ask(ApiGroup::V3)?)),
            asked => Ok((ApiGroup::V1, asked?)),
        }
    }

    /// Reads all objects of a list, page by page.
    pub fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        Ok(self.runtime.block_on(self.api.list(path))?)
    }

    /// Creates an object, and returns the server's version of it.
    pub fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T> {
        Ok(self.runtime.block_on(self.api.post(path, body))?)
    }

    /// Replaces an object that was read.
    pub fn put<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T> {
        Ok(self.runtime.block_on(self.api.put(path, body))?)
    }

    /// Changes an object by JSON merge patch, and returns the result. With `metadata.resourceVersion` in the patch, a
    /// concurrent change is the fault `ClusterConflict`.
    pub fn merge_patch<B: Serialize, T: DeserializeOwned>(&self, path: &str, patch: &B) -> Result<T> {
        Ok(self.runtime.block_on(self.api.merge_patch(path, patch))?)
    }

    /// Deletes an object; false if it did not exist.
    pub fn delete(&self, path: &str) -> Result<bool> {
        Ok(self.runtime.block_on(self.api.delete(path))?)
    }

    /// From now on sets `changed` when something in the cluster was changed.
    pub fn watch(&self, changed: &Arc<AtomicBool>) {
        self.api.watch(Arc::clone(changed));
    }

    /// The events since the last call: warnings of the API server, retries.
    pub fn take_events(&self) -> Vec<Event> {
        self.api.take_events()
    }
}

/// The account that Windows nodes need is missing.
fn missing_account(namespace: &str) -> Fault {
    let what = format!("there is no service account {SERVICE_ACCOUNT} in namespace {namespace}");
    Fault::new(Exit::ClusterUnreachable, "ServiceAccountMissing", what).hint(
        "install Calico on the cluster's Linux nodes first (docs.tigera.io/calico: tigera-operator, or calico.yaml); \
         if it is in another namespace, set kubernetes.calicoNamespace in the config",
    )
}
