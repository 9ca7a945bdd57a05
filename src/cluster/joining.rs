//! How kubelet joins: whether the cluster accepts a bootstrap token, and what it says about kubelet's certificate.

use anyhow::Result;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::json;

use super::Cluster;
use crate::calico::kubeconfig::{Login, NodeCredentials};
use crate::calico::x509;
use crate::fault::{Exit, Fault};
use crate::values::Secret;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Who signs the client certificates of kubelets.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// kubelet's request for its client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// `node-csr-…`.
    pub name: String,
    pub state: RequestState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestState {
    /// Nobody has approved or denied it.
    Pending,
    /// With the reason that was given.
    Denied(String),
    /// Approved; the certificate may not be signed yet.
    Approved,
}

impl Cluster {
    /// Tries a bootstrap token: the cluster must know it, and let it request a certificate. `id` is its public part.
    ///
    /// # Errors
    /// `JoinTokenRefused`, `JoinForbidden`; when the cluster does not answer.
    pub fn try_bootstrap_token(&self, id: &str, token: &Secret) -> Result<()> {
        let credentials = NodeCredentials {
            server: self.server().to_owned(),
            ca_pem: self.ca_pem().unwrap_or_default().to_owned(),
            login: Login::Token(token.clone()),
            expires: None,
        };
        let asked =
            json!({ "verb": "create", "group": "certificates.k8s.io", "resource": "certificatesigningrequests" });
        match self.may(&self.as_node(&credentials)?, &asked) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = format!("the cluster knows the bootstrap token {id}, but lets it request no certificate");
                Err(Fault::new(Exit::ClusterAccessDenied, "JoinForbidden", what)
                    .hint(
                        "bind its group to the ClusterRole system:node-bootstrapper: kubeadm's binding is \
                         kubeadm:kubelet-bootstrap",
                    )
                    .into())
            }
            Err(failure) if failure.status == Some(401) => {
                let what =
                    format!("the cluster does not accept the bootstrap token {id}: it has expired or was deleted");
                let fault = Fault::new(Exit::ClusterAccessDenied, "JoinTokenRefused", what).hint(
                    "get a new token on a control-plane node: kubeadm token create\nthen write it to the file of \
                         spec.kubernetes.node.join.tokenFile, or set the variable CALICO_WIN_JOIN_TOKEN",
                );
                Err(anyhow::Error::from(failure).context(fault))
            }
            Err(failure) => Err(anyhow::Error::from(failure).context("try the bootstrap token")),
        }
    }

    /// The last request of a Node's kubelet for a client certificate; none if there is none. If this user may not list
    /// them, `bootstrap` is asked, kubelet's own login until then: it must see its request, so the ClusterRole
    /// `system:node-bootstrapper` lets it (bootstrappolicy/policy.go of kubernetes/kubernetes).
    ///
    /// # Errors
    /// When the cluster does not answer, or refuses both.
    pub fn certificate_request(
        &self,
        node: &str,
        bootstrap: Option<&NodeCredentials>,
    ) -> Result<Option<CertificateRequest>> {
        let wanted = format!("system:node:{node}");
        let mut found: Vec<CertificateSigningRequest> = match (self.list(REQUESTS), bootstrap) {
            (Err(refused), Some(bootstrap)) if Fault::id_of(&refused) == "ClusterForbidden" => {
                self.runtime.block_on(self.as_node(bootstrap)?.list(REQUESTS)).map_err(|_| refused)?
            }
            (answer, _) => answer?,
        };
        found.retain(|request| {
            let pem = String::from_utf8_lossy(&request.spec.request.0).into_owned();
            request.spec.signer_name == SIGNER && x509::requested_name(&pem).as_deref() == Some(wanted.as_str())
        });
        found.sort_by_key(|request| request.metadata.creation_timestamp.as_ref().map(|time| time.0));
        Ok(found.pop().map(|request| {
            let status = request.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let of = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
            let why = |kind: &str| of(kind).map(|condition| condition.message.clone().unwrap_or_default());
            let state = match (why("Denied").or_else(|| why("Failed")), of("Approved")) {
                (Some(why), _) => RequestState::Denied(why),
                (None, Some(_)) => RequestState::Approved,
                (None, None) => RequestState::Pending,
            };
            CertificateRequest { name: request.metadata.name.unwrap_or_default(), state }
        }))
    }
}
