//! The node's own credentials: a token of calico-node's service account, and the CA to trust.
//!
//! Since Kubernetes 1.24 service accounts have no token by default. There are two ways to get one: TokenRequest, with
//! an expiry, and a secret that kube-controller-manager fills, without one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret as KubeSecret};
use serde_json::{Value, json};

use super::access;
use super::api::{Api, path, query};
use super::errors::Failure;
use super::facts::identity;
use super::kubeconfig::{self, Access, Trust};
use super::{Cluster, FIELD_MANAGER, SERVICE_ACCOUNT, missing_account};
use crate::calico::kubeconfig::{Claims, Login, NodeCredentials, OTHER_LOGINS, claims};
use crate::facts::{ApiGroup, Right};
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::values::Secret;

/// Name of the created secret; the old scripts used the same name.
pub const TOKEN_SECRET: &str = "calico-node-token";

pub(super) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
pub(super) const ACCOUNT_ANNOTATION: &str = "kubernetes.io/service-account.name";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// One year. The server may grant less, and reports it.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Credentials that were verified, and whether a secret was created for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub credentials: NodeCredentials,
    /// The secret `calico-node-token` was created: call [`Cluster::delete_token_secret`] when nothing needs it any more.
    pub created_secret: bool,
    /// Whether the account may request tokens for itself, which the agent does before they expire; none for a login
    /// that does not expire or is not a service account's.
    pub renewable: Option<bool>,
}

impl Cluster {
    /// Gets a token for the service account `calico-node` and uses it once, so that the result is known to work.
    ///
    /// In mode `Secret` an existing secret of that account is used, else one is created if `create`, and awaited until
    /// it is filled, `wait` at most. If that fails, the created secret is deleted.
    ///
    /// # Errors
    /// Faults `ServiceAccountMissing`, `TokenSecretMissing`, `TokenSecretForeign`, `TokenSecretUnfilled`, `TokenEmpty`,
    /// `TokenOfAnother`, `CredentialsRejected`, `ServiceAccountForbidden`, and those of any request.
    pub fn node_credentials(
        &self,
        namespace: &str,
        mode: TokenFrom,
        create: bool,
        wait: Duration,
        events: Sink<'_>,
    ) -> Result<Issued> {
        let issued = self.issue(namespace, mode, create, wait, events);
        // A server that grants less time than requested says so in a warning.
        self.take_events().into_iter().for_each(events);
        issued
    }

    fn issue(
        &self,
        namespace: &str,
        mode: TokenFrom,
        create: bool,
        wait: Duration,
        events: Sink<'_>,
    ) -> Result<Issued> {
        match mode {
            TokenFrom::Request => {
                let asked = self.request_token(namespace, SERVICE_ACCOUNT);
                let (token, expires) = asked.map_err(|error| self.or_of_kubelet(error))?;
                let credentials = self.assemble(namespace, None, token, expires)?;
                belongs(&credentials, namespace)?;
                self.check(&credentials)?;
                let renewable = self.may_renew(&credentials)?;
                Ok(Issued { credentials, created_secret: false, renewable })
            }
            TokenFrom::Secret => {
                let asked = self.token_secret(namespace, create, wait, events);
                let (filled, created_secret) = asked.map_err(|error| self.or_of_kubelet(error))?;
                let tried = self.assemble(namespace, filled.ca_pem, filled.token, None).and_then(|credentials| {
                    belongs(&credentials, namespace)?;
                    self.check(&credentials)?;
                    Ok(Issued { credentials, created_secret, renewable: None })
                });
                if tried.is_err() && created_secret {
                    self.delete_unfilled(namespace, events);
                }
                tried
            }
        }
    }

    /// Reads a given kubeconfig for the node's components, and uses its credentials once. `origin` is its name in
    /// errors, `base_dir` the folder of its relative file names.
    ///
    /// # Errors
    /// Those of [`Cluster::connect`], fault `KubeconfigNotForNode` for a login that works only on this machine,
    /// `CredentialsRejected` and `ServiceAccountForbidden`.
    pub fn given_credentials(&self, origin: &str, text: &str, base_dir: &Path) -> Result<Issued> {
        let credentials = kubeconfig::self_contained(origin, &kubeconfig::choose(origin, text, base_dir, None, true)?)?;
        self.check(&credentials).with_context(|| format!("test {origin}"))?;
        let renewable = self.may_renew(&credentials)?;
        Ok(Issued { credentials, created_secret: false, renewable })
    }

    /// A new token for the account whose token these credentials hold. Requested with that token itself: the agent has
    /// no other identity.
    ///
    /// # Errors
    /// Fault `TokenRenewalForbidden` when the account may not, `TokenNotRenewable` when this is not a service account's
    /// token; and those of [`Cluster::node_credentials`].
    pub fn renewed(&self, current: &NodeCredentials) -> Result<NodeCredentials> {
        let account = current.token().and_then(|token| claims(token.reveal()).account);
        let Some((namespace, account)) = account else {
            let what = "these credentials are not a service account's token, so none can be requested with them";
            return Err(Fault::new(Exit::Unsupported, "TokenNotRenewable", what)
                .hint("create new ones: calicoctl-win credentials rotate")
                .into());
        };
        let (token, expires) = self.request_token(&namespace, &account).map_err(|error| {
            let forbidden = Fault::id_of(&error) == "ClusterForbidden";
            if forbidden { error.context(renewal_forbidden(&namespace, &account)) } else { error }
        })?;
        let renewed = NodeCredentials { login: Login::Token(token), expires, ..current.clone() };
        self.check(&renewed)?;
        Ok(renewed)
    }

    /// Whether the account of these credentials may request tokens for itself; none if they do not expire or are not a
    /// service account's.
    pub fn may_renew(&self, credentials: &NodeCredentials) -> Result<Option<bool>> {
        let Some(token) = credentials.token() else { return Ok(None) };
        let (Some((namespace, account)), Some(_)) = (claims(token.reveal()).account, credentials.expires) else {
            return Ok(None);
        };
        let asked = json!({
            "verb": "create", "resource": "serviceaccounts", "subresource": "token",
            "namespace": namespace, "name": account,
        });
        let allowed = self.may(&self.as_node(credentials)?, &asked)?;
        Ok(Some(allowed))
    }

    /// Uses credentials once: the server must accept them (so audience and validity are right), and they must grant the
    /// minimum that calico-node needs.
    pub fn check(&self, credentials: &NodeCredentials) -> Result<()> {
        let asked = json!({ "verb": "get", "resource": "nodes" });
        let allowed = match self.may(&self.as_node(credentials)?, &asked) {
            Ok(allowed) => allowed,
            Err(failure) if failure.status == Some(401) => {
                return Err(anyhow::Error::from(failure).context(rejected(credentials)));
            }
            Err(failure) => return Err(anyhow::Error::from(failure).context("test the node's credentials")),
        };
        if allowed {
            return Ok(());
        }
        let what = match credentials.token().and_then(|token| claims(token.reveal()).account) {
            Some((_, account)) if account != SERVICE_ACCOUNT => format!("the service account {account}"),
            _ if credentials.token().is_none() => "the client certificate's user".into(),
            _ => "the service account calico-node".into(),
        };
        let what = format!("{what} cannot get nodes, so Calico cannot run with its credentials");
        Err(Fault::new(Exit::ClusterAccessDenied, "ServiceAccountForbidden", what)
            .hint(
                "its ClusterRole calico-node or the binding to it is missing: install Calico on the Linux nodes first",
            )
            .into())
    }

    /// Checks every right that Calico of a release line (`(3, 32)`) needs, with these credentials.
    ///
    /// # Errors
    /// Fault `NodeRights` if one is missing, and those of any request.
    pub fn check_release(&self, credentials: &NodeCredentials, line: (u64, u64), group: ApiGroup) -> Result<()> {
        let account = credentials.token().and_then(|token| claims(token.reveal()).account);
        let who = account.map_or_else(
            || "the user of the node's kubeconfig".into(),
            |(namespace, account)| format!("the service account {namespace}/{account}"),
        );
        self.may_run(&self.as_node(credentials)?, &who, line, group)
    }

    /// The same where this is connected as Calico's services are.
    ///
    /// # Errors
    /// As [`Cluster::check_release`].
    pub fn check_release_of_services(&self, line: (u64, u64)) -> Result<()> {
        let (group, _) = Self::of_calico(|group| {
            let (name, version) = group.parts();
            self.get::<Value>(&path(["apis", name, version, "clusterinformations", "default"]))
        })?;
        self.may_run(&self.api, "the login of Calico's services", line, group)
    }

    fn may_run(&self, node: &Arc<Api>, who: &str, line: (u64, u64), group: ApiGroup) -> Result<()> {
        let rights = access::of_release(line, group);
        let missing = self.runtime.block_on(access::missing(node, rights)).map_err(|failure| {
            anyhow::Error::from(failure).context("ask which rights the node's own credentials have")
        })?;
        if missing.is_empty() {
            return Ok(());
        }
        let (major, minor) = line;
        let rights: Vec<String> = missing.iter().map(Right::to_string).collect();
        let what = format!("{who} lacks rights that Felix of Calico v{major}.{minor} needs: {}", rights.join(", "));
        Err(Fault::new(Exit::PreflightFailed, "NodeRights", what)
            .hint("install the release that the Linux nodes run, which has a matching ClusterRole calico-node; or upgrade Calico there first, which updates that role")
            .into())
    }

    /// A client with these credentials.
    pub(super) fn as_node(&self, credentials: &NodeCredentials) -> Result<Arc<Api>> {
        let access = Access::of_node(credentials)?;
        Ok(Arc::new(Api::new(access, self.dial, self.limits, self.runtime.get().handle())?))
    }

    /// Whether a client's user may do this, by a SelfSubjectAccessReview.
    pub(super) fn may(&self, api: &Arc<Api>, attributes: &Value) -> Result<bool, Failure> {
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review: SelfSubjectAccessReview = self.runtime.block_on(api.post(reviews, &question))?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    /// Deletes the secret that [`Cluster::node_credentials`] created; false if it does not exist or is another program's. Every
    /// node that uses its token loses access.
    pub fn delete_token_secret(&self, namespace: &str) -> Result<bool> {
        let secret = secret_path(namespace);
        let found: Option<KubeSecret> = self.get(&secret)?;
        let ours =
            |s: KubeSecret| s.metadata.labels.is_some_and(|l| l.get(MANAGED_BY).is_some_and(|by| by == FIELD_MANAGER));
        Ok(found.is_some_and(ours) && self.delete(&secret)?)
    }

    /// The reason why a kubelet gets no token, which no right changes; else the API server's own.
    fn or_of_kubelet(&self, error: anyhow::Error) -> anyhow::Error {
        if Fault::id_of(&error) != "ClusterForbidden" {
            return error;
        }
        let own = self.runtime.block_on(identity::ask(&self.api)).ok().flatten();
        match own.as_ref().and_then(|own| own.node()) {
            Some(node) => error.context(of_kubelet(node)),
            None => error,
        }
    }

    fn request_token(&self, namespace: &str, account: &str) -> Result<(Secret, Option<Timestamp>)> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": LIFE.as_secs() },
        });
        let account = path(["api", "v1", "namespaces", namespace, "serviceaccounts", account, "token"]);
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
            // The API server was just verified with the system's roots, for example at a public address, so do not use
            // the cluster's own CA.
            (Trust::System, _) => String::new(),
            (_, Some(pem)) => pem,
            (Trust::Ca(pem), None) => pem.clone(),
            (Trust::Nobody, None) => self.root_ca(namespace)?,
        };
        Ok(NodeCredentials { server: self.server().to_owned(), ca_pem, login: Login::Token(token), expires })
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
                .hint("set kubernetes.createServiceAccountToken: true in the config to create it, or use token-request")
                .into());
        }
        let created = self.create_secret(namespace)?;
        let filled = self.await_filled(namespace, None, wait, events);
        if filled.is_err() && created {
            self.delete_unfilled(namespace, events);
        }
        Ok((filled?, created))
    }

    /// False if another process was faster.
    fn create_secret(&self, namespace: &str) -> Result<bool> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": TOKEN_TYPE,
            "metadata": {
                "name": TOKEN_SECRET,
                "namespace": namespace,
                "annotations": { ACCOUNT_ANNOTATION: SERVICE_ACCOUNT },
                "labels": { MANAGED_BY: FIELD_MANAGER },
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
                // The API server accepts a secret for any account; the controller deletes it at once if there is no
                // such account.
                return Err(missing_account(namespace).into());
            }
        }
    }

    fn why_unfilled(&self, namespace: &str, wait: Duration) -> anyhow::Error {
        let account = path(["api", "v1", "namespaces", namespace, "serviceaccounts", SERVICE_ACCOUNT]);
        if let Ok(None) = self.get::<Value>(&account) {
            return missing_account(namespace).into();
        }
        let what = format!("the secret {namespace}/{TOKEN_SECRET} did not get a token within {} s", wait.as_secs_f64());
        Fault::new(Exit::ClusterUnreachable, "TokenSecretUnfilled", what)
            .hint("kube-controller-manager fills it: check that it runs, or use kubernetes.credentials: token-request")
            .into()
    }

    fn delete_unfilled(&self, namespace: &str, events: Sink<'_>) {
        // A 404 or the controller's own deletion is fine; report only a secret that remains.
        if let Err(error) = self.delete_token_secret(namespace) {
            let message = format!(
                "the secret {namespace}/{TOKEN_SECRET} was created but is not used, and could not be deleted: {error}"
            );
            events(Event::Warning { id: "TokenSecretLeft", message });
        }
    }
}

/// The source of a token of calico-node's service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFrom {
    /// A TokenRequest: expires, and is renewed.
    Request,
    /// A secret of type service-account-token: does not expire.
    Secret,
}

/// Checks the account in a token. A token without one is left to the server.
fn belongs(credentials: &NodeCredentials, namespace: &str) -> Result<()> {
    let said = credentials.token().map(|token| claims(token.reveal())).unwrap_or_default();
    match said.account {
        Some((space, account)) if space != namespace || account != SERVICE_ACCOUNT => {
            let what = format!("the token for {namespace}/{SERVICE_ACCOUNT} belongs to {space}/{account}");
            Err(Fault::new(Exit::ClusterAccessDenied, "TokenOfAnother", what)
                .hint("check the content of the secret, and any proxy between this machine and the API server")
                .into())
        }
        _ => Ok(()),
    }
}

/// Why a server may reject a login that it issued, or that a user provided.
fn rejected(credentials: &NodeCredentials) -> Fault {
    let id = "CredentialsRejected";
    let fault = |what: String| Fault::new(Exit::ClusterUnreachable, id, what);
    let Some(token) = credentials.token() else {
        let what = "the API server rejects the client certificate for the node".to_owned();
        return fault(what).hint("it belongs to another cluster, or has expired: get a new kubeconfig of this cluster");
    };
    let Claims { expires, audiences, .. } = claims(token.reveal());
    if let Some(expires) = expires.filter(|expires| *expires <= Timestamp::now()) {
        return fault(format!("the token for the node expired at {expires:.0}"))
            .hint("get a new one, and check this machine's clock");
    }
    let of = match audiences.as_slice() {
        [] => String::new(),
        some => format!(" (its audience: {})", some.join(", ")),
    };
    fault(format!("the API server rejects the token that it issued for the service account calico-node{of}")).hint(
        "the secret's token may belong to a deleted service account: delete the secret and run the command again; \
         with several API servers, check that all have the same service-account key and audiences",
    )
}

/// By Calico's own manifests (v3.26 and later) calico-node may request tokens only for calico-cni-plugin, so renewing
/// needs an additional Role.
pub fn renewal_forbidden(namespace: &str, account: &str) -> Fault {
    let what = format!("the service account {namespace}/{account} may not request tokens for itself");
    let page = access::page("TokenRenewalForbidden", namespace);
    Fault::new(Exit::ClusterAccessDenied, "TokenRenewalForbidden", what).hint(format!(
        "grant that right: `{page}` prints the Role\n\
         or renew it before it expires: calicoctl-win credentials rotate",
    ))
}

/// By the API server's admission plugin NodeRestriction.
fn of_kubelet(node: &str) -> Fault {
    let what =
        format!("the kubeconfig is that of kubelet on {node}, which gets only tokens that are bound to its pods");
    Fault::new(Exit::ClusterAccessDenied, "NodeLogin", what).hint(OTHER_LOGINS)
}

fn secret_path(namespace: &str) -> String {
    path(["api", "v1", "namespaces", namespace, "secrets", TOKEN_SECRET])
}

/// The content of a filled token secret.
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
    Fault::new(Exit::ClusterUnreachable, "TokenEmpty", format!("{where_} has an empty token"))
        .hint("no kubeconfig is written with it; check kube-controller-manager's log")
}

fn foreign_secret(namespace: &str) -> Fault {
    let what = format!("the secret {namespace}/{TOKEN_SECRET} is not a token of the service account {SERVICE_ACCOUNT}");
    Fault::new(Exit::ClusterAccessDenied, "TokenSecretForeign", what)
        .hint("another program created it: rename it, or use kubernetes.credentials: token-request")
}
