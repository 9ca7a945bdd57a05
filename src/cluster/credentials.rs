//! The node's own credentials: a token of calico-node's service account, and the CA to trust.
//!
//! Since Kubernetes 1.24 no service account has a token by itself. There are two ways to one:
//! TokenRequest, for some time, and a secret that kube-controller-manager fills, for good.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret as KubeSecret};
use serde_json::{Value, json};

use super::api::{Api, path, query};
use super::kubeconfig::{Access, Trust};
use super::{Cluster, FIELD_MANAGER, SERVICE_ACCOUNT, missing_account};
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::settings::Credentials;
use crate::values::Secret;

/// Name of the secret that we make, the one the old scripts made too.
pub const TOKEN_SECRET: &str = "calico-node-token";

const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_ANNOTATION: &str = "kubernetes.io/service-account.name";
const OURS: &str = "app.kubernetes.io/managed-by";

/// One year. The server may grant less, and says so.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the node's own kubeconfig is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCredentials {
    /// URL of the API server.
    pub server: String,
    /// PEM; empty when the system's own roots vouch for the server.
    pub ca_pem: String,
    pub token: Secret,
    /// None for a token that lives as long as its secret.
    pub expires: Option<Timestamp>,
}

/// Credentials that were tried out, and whether a secret was made for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub credentials: NodeCredentials,
    /// The secret `calico-node-token` is of our making: [`Cluster::delete_token_secret`] when
    /// nothing needs it any more.
    pub created_secret: bool,
}

impl Cluster {
    /// Gets a token for the service account `calico-node` and uses it once, so that what is
    /// returned is known to work.
    ///
    /// In mode `Secret` an existing secret of that account is taken, else one is made if `create`,
    /// and awaited until it is filled, `wait` at most. A secret made in vain is deleted again.
    ///
    /// # Errors
    /// Faults `ServiceAccountMissing`, `TokenSecretMissing`, `TokenSecretForeign`,
    /// `TokenSecretUnfilled`, `TokenEmpty`, `CredentialsRejected`, `ServiceAccountForbidden`, and
    /// those of any question to the cluster.
    pub fn node_credentials(
        &self,
        namespace: &str,
        mode: Credentials,
        create: bool,
        wait: Duration,
        events: Sink<'_>,
    ) -> Result<Issued> {
        let issued = self.issue(namespace, mode, create, wait, events);
        // A server that grants less time than was asked for says so in a warning.
        self.take_events().into_iter().for_each(events);
        issued
    }

    fn issue(
        &self,
        namespace: &str,
        mode: Credentials,
        create: bool,
        wait: Duration,
        events: Sink<'_>,
    ) -> Result<Issued> {
        match mode {
            Credentials::TokenRequest => {
                let (token, expires) = self.request_token(namespace)?;
                let credentials = self.assemble(namespace, None, token, expires)?;
                self.check(&credentials)?;
                Ok(Issued { credentials, created_secret: false })
            }
            Credentials::Secret => {
                let (filled, created_secret) = self.token_secret(namespace, create, wait, events)?;
                let tried = self.assemble(namespace, filled.ca_pem, filled.token, None).and_then(|credentials| {
                    self.check(&credentials)?;
                    Ok(Issued { credentials, created_secret })
                });
                if tried.is_err() && created_secret {
                    self.take_back(namespace, events);
                }
                tried
            }
        }
    }

    /// Uses credentials once: the server must accept the token, and the service account must have
    /// the least that calico-node needs.
    pub fn check(&self, credentials: &NodeCredentials) -> Result<()> {
        let access = Access::with_token(&credentials.server, &credentials.ca_pem, credentials.token.reveal())?;
        let api = Arc::new(Api::new(access, self.dial, &self.options, self.runtime.get().handle())?);
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": "get", "resource": "nodes" } },
        });
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review: SelfSubjectAccessReview = match self.runtime.block_on(api.post(reviews, &question)) {
            Ok(review) => review,
            Err(failure) if failure.status == Some(401) => {
                let what = "the API server does not accept the token that it gave for the service account calico-node";
                let fault = Fault::new(Exit::ClusterUnreachable, "CredentialsRejected", what).hint(
                    "the secret's token may be of a deleted service account: delete the secret and run again; \
                     with several API servers, look whether all have the same service-account key",
                );
                return Err(anyhow::Error::from(failure).context(fault));
            }
            Err(failure) => return Err(anyhow::Error::from(failure).context("try out the node's credentials")),
        };
        if review.status.is_some_and(|s| s.allowed) {
            return Ok(());
        }
        let what = "the service account calico-node may not get nodes, so Calico would not run with its token";
        Err(Fault::new(Exit::ClusterUnreachable, "ServiceAccountForbidden", what)
            .hint("its ClusterRole calico-node or the binding to it is missing: install Calico on the Linux side first")
            .into())
    }

    /// Deletes the secret that [`Cluster::node_credentials`] made; false when it is gone already
    /// or someone else's. Every node that uses its token loses access.
    pub fn delete_token_secret(&self, namespace: &str) -> Result<bool> {
        let secret = secret_path(namespace);
        let found: Option<KubeSecret> = self.get(&secret)?;
        let ours = |s: KubeSecret| s.metadata.labels.is_some_and(|l| l.get(OURS).is_some_and(|by| by == FIELD_MANAGER));
        Ok(found.is_some_and(ours) && self.delete(&secret)?)
    }

    fn request_token(&self, namespace: &str) -> Result<(Secret, Option<Timestamp>)> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": LIFE.as_secs() },
        });
        let account = path(["api", "v1", "namespaces", namespace, "serviceaccounts", SERVICE_ACCOUNT, "token"]);
        let answer: TokenRequest = match self.runtime.block_on(self.api.post(&account, &body)) {
            Ok(answer) => answer,
            Err(failure) if failure.is_absent() => return Err(missing_account(namespace).into()),
            Err(failure) => return Err(failure.into()),
        };
        let status = answer.status.unwrap_or_default();
        let token = status.token.filter(|token| !token.trim().is_empty());
        let token = token.ok_or_else(|| empty_token("the answer to TokenRequest"))?;
        Ok((Secret::new(token), status.expiration_timestamp.map(|time| time.0)))
    }

    pub(super) fn assemble(
        &self,
        namespace: &str,
        ca_of_secret: Option<String>,
        token: Secret,
        expires: Option<Timestamp>,
    ) -> Result<NodeCredentials> {
        let ca_pem = match (&self.trust, ca_of_secret) {
            // The API server was just reached with the system's roots, as at a public address, so the
            // cluster's own CA is not the one to trust there.
            (Trust::System, _) => String::new(),
            (_, Some(pem)) => pem,
            (Trust::Ca(pem), None) => pem.clone(),
            (Trust::Nobody, None) => self.root_ca(namespace)?,
        };
        Ok(NodeCredentials { server: self.server().to_owned(), ca_pem, token, expires })
    }

    /// The CA that kube-controller-manager publishes into every namespace.
    fn root_ca(&self, namespace: &str) -> Result<String> {
        let map: Option<ConfigMap> =
            self.get(&path(["api", "v1", "namespaces", namespace, "configmaps", "kube-root-ca.crt"]))?;
        map.and_then(|m| m.data?.remove("ca.crt")).ok_or_else(|| {
            let what = format!("the cluster's CA is neither in the kubeconfig nor published in namespace {namespace}");
            Fault::new(Exit::ClusterUnreachable, "ClusterCaUnknown", what)
                .hint("use a kubeconfig with certificate-authority-data")
                .into()
        })
    }

    fn token_secret(&self, namespace: &str, create: bool, wait: Duration, events: Sink<'_>) -> Result<(Filled, bool)> {
        if let Some(secret) = self.get::<KubeSecret>(&secret_path(namespace))? {
            if !is_token_of_account(&secret) {
                return Err(foreign_secret(namespace).into());
            }
            return Ok((self.await_filled(namespace, Some(secret), wait, events)?, false));
        }
        let all = path(["api", "v1", "namespaces", namespace, "secrets"]);
        let all: Vec<KubeSecret> = self.list(&query(&all, &[("fieldSelector", &format!("type={TOKEN_TYPE}"))]))?;
        // By annotation, never by a part of the name: `calico-node-windows` is another account.
        let mut fit: Vec<_> = all.into_iter().filter(is_token_of_account).collect();
        fit.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        if let Some(filled) = fit.iter().find_map(Filled::of) {
            return Ok((filled, false));
        }
        if !create {
            let what = format!("namespace {namespace} has no token secret of the service account {SERVICE_ACCOUNT}");
            return Err(Fault::new(Exit::ClusterUnreachable, "TokenSecretMissing", what)
                .hint("let it be made: kubernetes.createServiceAccountToken: true in the config; or use token-request")
                .into());
        }
        let created = self.create_secret(namespace)?;
        let filled = self.await_filled(namespace, None, wait, events);
        if filled.is_err() && created {
            self.take_back(namespace, events);
        }
        Ok((filled?, created))
    }

    /// False when someone else was faster.
    fn create_secret(&self, namespace: &str) -> Result<bool> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": TOKEN_TYPE,
            "metadata": {
                "name": TOKEN_SECRET,
                "namespace": namespace,
                "annotations": { ACCOUNT_ANNOTATION: SERVICE_ACCOUNT },
                "labels": { OURS: FIELD_MANAGER },
            },
        });
        let all = path(["api", "v1", "namespaces", namespace, "secrets"]);
        match self.runtime.block_on(self.api.post::<Value>(&all, &body)) {
            Ok(_) => Ok(true),
            Err(failure) if failure.reason == "AlreadyExists" => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// kube-controller-manager fills a new secret within 0.1 s, 5 s after its own start.
    fn await_filled(
        &self,
        namespace: &str,
        mut secret: Option<KubeSecret>,
        wait: Duration,
        events: Sink<'_>,
    ) -> Result<Filled> {
        let (started, mut pause) = (Instant::now(), Duration::from_millis(50));
        let what = format!("the token in secret {namespace}/{TOKEN_SECRET}");
        loop {
            if let Some(filled) = secret.as_ref().and_then(Filled::of) {
                return Ok(filled);
            }
            let elapsed = started.elapsed();
            if secret.as_ref().is_some_and(has_empty_token) {
                return Err(empty_token(&format!("the secret {namespace}/{TOKEN_SECRET}")).into());
            }
            if elapsed >= wait {
                return Err(self.why_unfilled(namespace, wait));
            }
            if secret.is_some() {
                events(Event::Waiting { what: what.clone(), elapsed, limit: wait });
                let rest = wait.saturating_sub(elapsed);
                self.runtime.block_on(async { tokio::time::sleep(pause.min(rest)).await });
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            secret = self.get(&secret_path(namespace))?;
            if secret.is_none() {
                // The API server takes a secret for any account; the controller deletes it at once
                // when there is no such account.
                return Err(missing_account(namespace).into());
            }
        }
    }

    fn why_unfilled(&self, namespace: &str, wait: Duration) -> anyhow::Error {
        let account = path(["api", "v1", "namespaces", namespace, "serviceaccounts", SERVICE_ACCOUNT]);
        if let Ok(None) = self.get::<Value>(&account) {
            return missing_account(namespace).into();
        }
        let what =
            format!("the secret {namespace}/{TOKEN_SECRET} was not given a token within {} s", wait.as_secs_f64());
        Fault::new(Exit::ClusterUnreachable, "TokenSecretUnfilled", what)
            .hint(
                "kube-controller-manager does that: look whether it runs; or use kubernetes.credentials: token-request",
            )
            .into()
    }

    fn take_back(&self, namespace: &str, events: Sink<'_>) {
        // A 404 or the controller's own deletion is as good; only what is left behind is told.
        if let Err(error) = self.delete_token_secret(namespace) {
            let message = format!("the secret {namespace}/{TOKEN_SECRET} was made in vain and is still there: {error}");
            events(Event::Warning { id: "TokenSecretLeft", message });
        }
    }
}

fn secret_path(namespace: &str) -> String {
    path(["api", "v1", "namespaces", namespace, "secrets", TOKEN_SECRET])
}

/// What a token secret holds once it is filled.
struct Filled {
    token: Secret,
    ca_pem: Option<String>,
}

impl Filled {
    /// None until both the token and the CA are there.
    fn of(secret: &KubeSecret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text =
            |key: &str| data.get(key).and_then(|b| String::from_utf8(b.0.clone()).ok()).filter(|t| !t.is_empty());
        Some(Self { token: Secret::new(text("token")?), ca_pem: Some(text("ca.crt")?) })
    }
}

fn has_empty_token(secret: &KubeSecret) -> bool {
    secret.data.as_ref().and_then(|d| d.get("token")).is_some_and(|t| t.0.is_empty())
}

fn is_token_of_account(secret: &KubeSecret) -> bool {
    let account = secret.metadata.annotations.as_ref().and_then(|a| a.get(ACCOUNT_ANNOTATION));
    secret.type_.as_deref() == Some(TOKEN_TYPE) && account.is_some_and(|a| a == SERVICE_ACCOUNT)
}

fn empty_token(where_: &str) -> Fault {
    Fault::new(Exit::ClusterUnreachable, "TokenEmpty", format!("{where_} holds an empty token"))
        .hint("a kubeconfig with it would be worthless, so none is written; look at kube-controller-manager's log")
}

fn foreign_secret(namespace: &str) -> Fault {
    let what = format!("the secret {namespace}/{TOKEN_SECRET} is not a token of the service account {SERVICE_ACCOUNT}");
    Fault::new(Exit::ClusterUnreachable, "TokenSecretForeign", what)
        .hint("someone else made it: rename it, or use kubernetes.credentials: token-request")
}
