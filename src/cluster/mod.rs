//! The cluster: a client for the Kubernetes API, and what we ask it.
//!
//! The only room with `async` in it, and none of it shows: every function blocks until its answer
//! is there or its time is up. A failed question is never an answer, so `None` and an empty list
//! mean that the API server said so itself.

mod access;
mod api;
mod cleanup;
mod credentials;
mod drain;
mod errors;
pub mod etcd;
mod etcd_member;
mod facts;
mod felix;
mod granted;
mod kubeconfig;
pub mod lease;
mod node;
mod pods;
mod prepare;
mod reach;
mod taints;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
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

pub use self::access::{Needs, manifest as rights_manifest, renewal_manifest};
pub use self::api::{path, query};
pub use self::cleanup::Released;
pub use self::credentials::{Issued, TOKEN_SECRET, TokenFrom, renewal_forbidden};
pub use self::drain::{DrainOptions, DrainPlan, Stays};
pub use self::errors::may_pass;
pub use self::facts::FactsOptions;
pub use self::kubeconfig::{files_of, server_of};
pub use self::node::{CORDONED_BY, absent};
pub use self::pods::PodOnNode;
pub use self::prepare::{Patch, Preparation, Wishes};
pub use self::reach::unreached;
pub use self::taints::{Effect, Taint, Taints};

use self::api::Api;
use self::kubeconfig::Trust;
use crate::fault::{Exit, Fault};
use crate::report::event::Event;

/// Who we say we are: in `User-Agent`, and as field manager of everything we write.
pub const FIELD_MANAGER: &str = "calicoctl-win";

/// The service account whose rights Calico's components on a node have.
pub const SERVICE_ACCOUNT: &str = "calico-node";

/// How patient the client is.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long one question may take, with all its tries.
    pub timeout: Duration,
    /// How often a question is asked again when the server is busy, failing or cut us off.
    pub retries: u32,
}

impl Options {
    /// How much of the time the connection alone may take, so that a server that cannot be reached
    /// is told from one that does not answer.
    fn connect_limit(&self) -> Duration {
        self.timeout / 2
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), retries: 4 }
    }
}

/// Runs our futures. When it is dropped, it leaves behind what cannot be interrupted, such as a name
/// that a DNS server is slow to resolve, rather than waiting for it.
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

/// A cluster's API server, seen as one user of it.
pub struct Cluster {
    api: Arc<Api>,
    trust: Trust,
    dial: Option<SocketAddr>,
    options: Options,
    runtime: Executor,
}

impl Cluster {
    /// Reads a kubeconfig file and makes a client of its chosen context, as [`Cluster::connect`]
    /// does; errors name the file.
    ///
    /// # Errors
    /// Fault `KubeconfigMissing` without a file, and when it cannot be read.
    pub fn open(kubeconfig: Option<&Path>, context: Option<&str>, options: &Options) -> Result<Self> {
        let (file, text) = kubeconfig::read(kubeconfig)?;
        let origin = format!("the kubeconfig {}", file.display());
        let base_dir = file.parent().unwrap_or(Path::new(""));
        Self::build(&origin, &text, base_dir, context, None, options)
    }

    /// Reads a kubeconfig and makes a client of its chosen context. Nothing is sent yet, but an
    /// exec plugin for the user's credentials runs here.
    ///
    /// `kubeconfig` is the YAML text, `base_dir` the folder that its relative file names mean,
    /// `context` the one to take instead of `current-context`. With `dial` the connection goes to
    /// that address, and the host of the URL is only the name in the server's certificate.
    ///
    /// # Errors
    /// Faults `KubeconfigInvalid`, `ContextNotFound`, `ClusterLogin`, `ClusterCaExpired`.
    pub fn connect(
        kubeconfig: &str,
        base_dir: &Path,
        context: Option<&str>,
        dial: Option<SocketAddr>,
        options: &Options,
    ) -> Result<Self> {
        Self::build("the kubeconfig", kubeconfig, base_dir, context, dial, options)
    }

    fn build(
        origin: &str,
        kubeconfig: &str,
        base_dir: &Path,
        context: Option<&str>,
        dial: Option<SocketAddr>,
        options: &Options,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .context("start the cluster client")?;
        let access = kubeconfig::choose(origin, kubeconfig, base_dir, context)?;
        let trust = access.trust();
        let api = Arc::new(Api::new(access, dial, options, runtime.handle())?);
        Ok(Self { api, trust, dial, options: *options, runtime: Executor(Some(runtime)) })
    }

    /// URL of the API server, as the chosen context has it.
    pub fn server(&self) -> &str {
        &self.api.server
    }

    /// The cluster's CA certificates in PEM, from the kubeconfig's data or file; none where it
    /// leaves trust to the system's roots, or says to trust anything.
    pub fn ca_pem(&self) -> Option<&str> {
        match &self.trust {
            Trust::Ca(pem) => Some(pem),
            Trust::System | Trust::Nobody => None,
        }
    }

    /// Reads one object. None only when the API server says that this very object is absent; a
    /// resource or group that is not served is the fault `ApiNotServed`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        Ok(self.runtime.block_on(self.api.get(path))?)
    }

    /// Reads all objects of a list, page by page.
    pub fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        Ok(self.runtime.block_on(self.api.list(path))?)
    }

    /// Creates something, and returns what the server made of it.
    pub fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T> {
        Ok(self.runtime.block_on(self.api.post(path, body))?)
    }

    /// Replaces an object that was read.
    pub fn put<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T> {
        Ok(self.runtime.block_on(self.api.put(path, body))?)
    }

    /// Changes an object by JSON merge patch, and returns it as it is then. With
    /// `metadata.resourceVersion` in the patch, a change by someone else in between is the fault
    /// `ClusterConflict`.
    pub fn merge_patch<B: Serialize, T: DeserializeOwned>(&self, path: &str, patch: &B) -> Result<T> {
        Ok(self.runtime.block_on(self.api.merge_patch(path, patch))?)
    }

    /// Deletes an object; false when it was not there.
    pub fn delete(&self, path: &str) -> Result<bool> {
        Ok(self.runtime.block_on(self.api.delete(path))?)
    }

    /// From here on says in `changed` that something in the cluster was changed.
    pub fn watch(&self, changed: &Arc<AtomicBool>) {
        self.api.watch(Arc::clone(changed));
    }

    /// What is worth telling since the last time: warnings of the API server, further tries.
    pub fn take_events(&self) -> Vec<Event> {
        self.api.take_events()
    }
}

/// What Windows nodes need is not there; `place` is one namespace, or several it was looked for in.
fn missing_account(place: &str) -> Fault {
    let what = format!("there is no service account {SERVICE_ACCOUNT} in namespace {place}");
    Fault::new(Exit::ClusterUnreachable, "ServiceAccountMissing", what).hint(
        "install Calico on the cluster's Linux nodes first (docs.tigera.io/calico: tigera-operator, or calico.yaml); \
         if it lives in another namespace, name it: kubernetes.calicoNamespace in the config",
    )
}
