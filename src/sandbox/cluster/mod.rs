//! The embedded cluster: a small Kubernetes API over HTTPS on 127.0.0.1 that behaves like a real kube-apiserver 1.36,
//! for sandboxes (`--sandbox` without a kubeconfig) and for tests.
//!
//! Its state is in `cluster.json`; its certificate authority is in `pki/` next to it. Both outlive the process, so that
//! install, status and uninstall use the same cluster. A few controllers run (token secrets, cordon taints, disruption
//! budgets) and a stand-in for the kubelets.
//!
//! Reading order: `resources` (what is served), `store`, `request` → `api` → `objects`, `list`, `watch`, … → `answer`;
//! `server` is the HTTP server, `seed` the initial state.

mod admission;
mod answer;
mod api;
mod auth;
mod bootstrap;
mod call;
mod controllers;
mod definition;
mod delete;
mod discovery;
mod eviction;
mod faults;
pub mod joining;
mod list;
mod objects;
mod patch;
mod pki;
mod protobuf;
mod request;
mod resources;
mod reviews;
mod roles;
mod schema;
mod seed;
mod server;
mod shared;
mod store;
mod table;
mod tokens;
mod watch;

#[cfg(test)]
mod recordings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

pub use faults::{Action, ApiFault, ServerFault};
pub use resources::Layout;
pub use seed::Seed;
pub use store::text;

use answer::Content;
use auth::Certificate;
use faults::Faults;
use pki::{Pki, SERVER_NAME, Validity, WrongCertificate};
use request::Request;
use shared::Api;
use store::{Key, Store};
use tokens::TokenKey;

/// A container that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub name: String,
    /// Its last words, if it failed.
    pub failure: Option<String>,
}

/// A running cluster; it stops when dropped.
pub struct EmbeddedCluster {
    api: Arc<Api>,
    server: server::Running,
}

impl EmbeddedCluster {
    /// Starts the cluster in `dir`; without one there, creates it from `seed`.
    pub fn start(dir: &Path, seed: &Seed, faults: &[ApiFault]) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let faults = Faults::new(faults, dir.parent().map(Path::to_path_buf).unwrap_or_default());
        let mut store = Store::open(dir.join("cluster.json"), seed.layout, &seed.calico)?;
        let keys = dir.join("pki");
        let pki = if faults.server(ServerFault::ExpiredCa) {
            Pki::open(&keys.join("expired"), Validity::Expired)?
        } else {
            Pki::open(&keys, Validity::TenYears)?
        };
        let wrong = [
            (ServerFault::ExpiredCertificate, WrongCertificate::Expired),
            (ServerFault::OtherName, WrongCertificate::OtherName),
            (ServerFault::SelfSigned, WrongCertificate::SelfSigned),
        ];
        let pki = match wrong.into_iter().find(|(fault, _)| faults.server(*fault)) {
            Some((_, wrong)) => pki.serving(wrong)?,
            None => pki,
        };
        let tokens = TokenKey::open(&keys)?;
        if store.is_empty() {
            store = seed.plant(store, &pki.ca_pem);
        }
        store.leave()?;
        let api = Arc::new(Api::new(store, pki, tokens, faults));
        let server = server::start(Arc::clone(&api))?;
        Ok(Self { api, server })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.server.address
    }

    /// The server's name and port for clients of the sandbox, the same in every process. They dial [`Self::addr`] for
    /// it.
    pub fn stable_url() -> String {
        format!("https://{SERVER_NAME}:6443")
    }

    /// Upgrades Calico on the Linux nodes to another release, with its definitions and its role.
    pub fn upgrade_calico(&self, release: &str) -> Result<()> {
        let mut store = self.api.store();
        store.enter()?;
        seed::upgrade_calico(&mut store, release);
        store.leave()
    }

    /// An administrator's kubeconfig for clients of the sandbox.
    pub fn admin_kubeconfig(&self) -> String {
        self.api.pki.admin_kubeconfig(&Self::stable_url())
    }

    /// A kubeconfig like [`Self::admin_kubeconfig`] for another user: a client certificate `CN=user`, `O=group`. The
    /// cluster's role bindings decide what that user may do; at first nothing.
    pub fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Result<String> {
        let pki = &self.api.pki;
        Ok(pki::kubeconfig(&Self::stable_url(), &pki.ca_pem, user, &pki.issue_client(user, group)?))
    }

    /// An administrator's kubeconfig for this process' port: for kubectl.
    pub fn admin_kubeconfig_direct(&self) -> String {
        self.api.pki.admin_kubeconfig(&format!("https://127.0.0.1:{}", self.addr().port()))
    }

    /// The pods on a node that currently need a network from its kubelet.
    pub fn pods_on(&self, node: &str) -> Result<Vec<Value>> {
        let mut store = self.api.store();
        store.enter()?;
        if !self.api.faults.no_kubelet() {
            controllers::finish_terminating(&mut store);
        }
        if !self.api.faults.no_controllers() {
            controllers::keep_daemon_sets(&mut store);
        }
        let is_here = |pod: &&Value| {
            let over = matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"));
            text(pod, "/spec/nodeName") == Some(node) && pod["spec"]["hostNetwork"] != true && !over
        };
        let pods = store.list(resources::core("pods"), None).map(|(_, pod)| pod).filter(is_here).cloned().collect();
        store.leave()?;
        Ok(pods)
    }

    /// The pods on Linux nodes that have not ended.
    pub fn pods_on_linux(&self) -> Result<Vec<Value>> {
        let mut store = self.api.store();
        store.enter()?;
        let nodes = store.list(resources::core("nodes"), None).map(|(_, node)| node);
        let linux: Vec<String> = nodes
            .filter(|node| node["metadata"]["labels"]["kubernetes.io/os"] == "linux")
            .filter_map(|node| text(node, "/metadata/name").map(str::to_owned))
            .collect();
        let is_there = |pod: &&Value| {
            let over = matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"));
            let ending = pod["metadata"].get("deletionTimestamp").is_some();
            !over && !ending && text(pod, "/spec/nodeName").is_some_and(|node| linux.iter().any(|one| one == node))
        };
        let pods = store.list(resources::core("pods"), None).map(|(_, pod)| pod).filter(is_there).cloned().collect();
        store.leave()?;
        Ok(pods)
    }

    /// kubelet reports that a pod runs, and has this address.
    pub fn pod_runs(&self, pod: &Value, ip: Ipv4Addr) -> Result<()> {
        self.report(pod, |now| {
            controllers::runs(now);
            now["status"]["podIP"] = ip.to_string().into();
            now["status"]["podIPs"] = json!([{"ip": ip}]);
        })
    }

    /// kubelet reports why a pod's containers do not start.
    pub fn pod_waits(&self, pod: &Value, reason: &str, message: &str) -> Result<()> {
        self.report(pod, |now| {
            let names = pod["spec"]["containers"].as_array().into_iter().flatten();
            let waits = |one: &Value| json!({"name": one["name"], "ready": false, "state": {"waiting": {"reason": reason, "message": message}}});
            now["status"]["containerStatuses"] = names.map(waits).collect::<Vec<_>>().into();
        })
    }

    /// kubelet reports that all containers of a pod have ended.
    pub fn pod_ended(&self, pod: &Value, containers: &[Ended]) -> Result<()> {
        self.report(pod, |now| {
            let ended = |one: &Ended| {
                let (code, reason) = if one.failure.is_some() { (1, "Error") } else { (0, "Completed") };
                let message = one.failure.as_ref().map(|failure| format!("{failure}\n"));
                json!({"name": one.name, "ready": false, "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}}})
            };
            now["status"]["containerStatuses"] = containers.iter().map(ended).collect::<Vec<_>>().into();
            let failed = containers.iter().any(|one| one.failure.is_some());
            now["status"]["phase"] = if failed { "Failed" } else { "Succeeded" }.into();
        })
    }

    /// Changes a pod, if it is still this one.
    fn report(&self, pod: &Value, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut store = self.api.store();
        store.enter()?;
        let key = |part| text(pod, part).unwrap_or_default().to_owned();
        let key = Key::new(resources::core("pods"), &key("/metadata/namespace"), &key("/metadata/name"));
        if let Some(mut now) = store.get(&key).cloned()
            && now["metadata"]["uid"] == pod["metadata"]["uid"]
        {
            let before = now.clone();
            change(&mut now);
            if now != before {
                store.update(key, now);
            }
        }
        store.leave()
    }

    /// Changes by the rest of the sandbox, without a connection and without faults: GET, POST, PUT, DELETE, and PATCH
    /// as a merge patch. Returns the resulting object.
    pub fn as_admin(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut headers = HeaderMap::new();
        let media = if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        headers.insert("content-type", media.parse()?);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = body.map_or_else(Vec::new, |b| b.to_string().into_bytes());
        let request = Request::new(method, path, query, headers, body);
        let admin = Certificate::Good("kubernetes-admin".into(), vec!["system:masters".into()]);
        let answer = self.api.handle(&request, &admin, None);
        match answer.body {
            Content::Json(object) if answer.status < 400 => Ok(object),
            Content::Json(status) => {
                bail!("{method} {path}: {}", text(&status, "/message").unwrap_or("refused"))
            }
            Content::Text(text) => bail!("{method} {path}: {} {}", answer.status, text.trim()),
            Content::Lines(_) => bail!("{method} {path}: a watch needs a connection"),
        }
    }
}
