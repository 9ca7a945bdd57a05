//! How a kubelet joins this cluster: bootstrap tokens, its certificate request with kubeadm's automatic approval, and its
//! Node.

use std::net::Ipv4Addr;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::EmbeddedCluster;
use super::auth::{User, allowed};
use super::bootstrap;
use super::pki;
use super::request::Target;
use super::resources::core;
use super::seed;
use super::store::{Key, Store, add, now, text};
use super::tokens::base64_of;
use crate::values::Sha256;

const GROUP: &str = "certificates.k8s.io";

/// The answer to a kubelet that asks for its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The token is unknown or has expired.
    Unauthorized,
    /// It may not request a certificate.
    Forbidden,
    /// The name of its request, which nobody has approved.
    Pending(String),
    Denied(String),
    /// The kubeconfig that kubelet writes.
    Issued(String),
}

fn target(verb: &'static str, resource: &str, subresource: &str) -> Target {
    Target {
        verb,
        group: GROUP.into(),
        version: "v1".into(),
        resource: resource.into(),
        subresource: subresource.into(),
        ..Target::default()
    }
}

impl EmbeddedCluster {
    /// What the cluster answers a kubelet with this token, which asks for the certificate of a Node. Each process of
    /// kubelet makes a request of its own, as with rotated certificates, which are never asked for with an old key.
    pub fn admit(&self, token: &str, node: &str, process: u32) -> Result<Admission> {
        let name = format!("csr-{}", &Sha256::of(format!("{node} {process}").as_bytes()).as_str()[..5]);
        let mut store = self.api.store();
        store.enter()?;
        let admission = admit(&mut store, token, node, &name)?;
        store.leave()?;
        drop(store);
        Ok(match admission {
            // Every kubelet's certificate has this user and group.
            Admission::Issued(_) => {
                let (user, group) = (format!("system:node:{node}"), Some("system:nodes"));
                let pki = &self.api.pki;
                let client = pki.issue_client(&user, group)?;
                Admission::Issued(pki::kubeconfig(&Self::stable_url(), &pki.ca_pem, &user, &client))
            }
            other => other,
        })
    }

    /// kubelet creates its Node, if there is none: not Ready, since there is no network for pods yet. Of one that is there
    /// it reports the address and its version.
    pub fn register(&self, node: &str, address: Ipv4Addr, versions: [&str; 2]) -> Result<()> {
        let path = format!("/api/v1/nodes/{node}");
        if self.as_admin(&Method::GET, &path, None).is_ok() {
            let status = json!({
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": node}],
                "nodeInfo": {"kubeletVersion": versions[0]},
            });
            let status = json!({ "status": status });
            return self.as_admin(&Method::PATCH, &format!("{path}/status"), Some(&status)).map(drop);
        }
        let mut object = seed::windows_node(node, &address.to_string(), versions[1]);
        object["metadata"]["name"] = node.into();
        object["status"]["nodeInfo"]["kubeletVersion"] = versions[0].into();
        set_ready(&mut object, false);
        let mut store = self.api.store();
        store.enter()?;
        add(&mut store, core("nodes"), "", node, object);
        store.leave()
    }

    /// kubelet reports whether pods have a network.
    pub fn report_ready(&self, node: &str) -> Result<()> {
        let mut store = self.api.store();
        store.enter()?;
        let key = Key::new(core("nodes"), "", node);
        if let Some(mut object) = store.get(&key).cloned()
            && !is_ready(&object)
        {
            set_ready(&mut object, true);
            store.update(key, object);
        }
        store.leave()
    }
}

/// Why a Node without a network is not Ready, as kubelet says it.
const NO_NETWORK: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                          message:Network plugin returns error: cni plugin not initialized";

fn conditions(node: &mut Value) -> impl Iterator<Item = &mut Value> {
    node["status"]["conditions"].as_array_mut().into_iter().flatten()
}

/// Only what kubelet itself reported for the lack of a network.
fn is_ready(node: &Value) -> bool {
    let mut all = node["status"]["conditions"].as_array().into_iter().flatten();
    !all.any(|condition| condition["type"] == "Ready" && condition["message"] == NO_NETWORK)
}

fn set_ready(node: &mut Value, ready: bool) {
    for condition in conditions(node).filter(|condition| condition["type"] == "Ready") {
        condition["status"] = if ready { "True" } else { "False" }.into();
        condition["reason"] = if ready { "KubeletReady" } else { "KubeletNotReady" }.into();
        condition["message"] = if ready { "kubelet is posting ready status" } else { NO_NETWORK }.into();
        condition["lastTransitionTime"] = now().into();
    }
}

fn admit(store: &mut Store, token: &str, node: &str, name: &str) -> Result<Admission> {
    let Some((name_of, groups)) = bootstrap::user(token, store) else { return Ok(Admission::Unauthorized) };
    let user = User::certified(name_of, groups);
    let requests = core("certificatesigningrequests");
    let key = Key::new(requests, "", name);
    if store.get(&key).is_none() {
        if allowed(&user, &target("create", "certificatesigningrequests", ""), "", store).is_none() {
            return Ok(Admission::Forbidden);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        let pem = params.serialize_request(&KeyPair::generate()?)?.pem()?;
        let spec = json!({
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"], "username": user.name, "groups": user.groups,
        });
        add(store, requests, "", name, json!({"metadata": {}, "spec": spec, "status": {}}));
    }
    let Some(mut request) = store.get(&key).cloned() else { return Ok(Admission::Pending(name.into())) };
    let has = |request: &Value, kind: &str| {
        request["status"]["conditions"].as_array().into_iter().flatten().any(|condition| condition["type"] == kind)
    };
    if has(&request, "Denied") {
        return Ok(Admission::Denied(name.into()));
    }
    // kubeadm lets its tokens' requests be approved by the controller (csrapprover).
    let by_itself = target("create", "certificatesigningrequests", "nodeclient");
    if !has(&request, "Approved") && allowed(&user, &by_itself, "", store).is_some() {
        request["status"]["conditions"] = json!([{
            "type": "Approved", "status": "True", "reason": "AutoApproved", "lastUpdateTime": now(),
            "message": "Auto approving kubelet client certificate after SubjectAccessReview.",
        }]);
    }
    if !has(&request, "Approved") {
        return Ok(Admission::Pending(name.into()));
    }
    if text(&request, "/status/certificate").is_none() {
        request["status"]["certificate"] = base64_of("signed by the controller manager").into();
        store.update(key, request);
    }
    Ok(Admission::Issued(String::new()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::cluster::{Cluster, RequestState};
    use crate::fault::Fault;
    use crate::sandbox::cluster::Seed;
    use crate::settings::Limits;
    use crate::values::Secret;

    const GOOD: &str = "abcdef.0123456789abcdef";

    fn cluster() -> (tempfile::TempDir, EmbeddedCluster, Cluster) {
        let dir = tempfile::TempDir::new().unwrap();
        let embedded = EmbeddedCluster::start(dir.path(), &Seed::new("win-a1"), &[]).unwrap();
        let (kubeconfig, dial) = (embedded.admin_kubeconfig(), Some(embedded.addr()));
        let limits = Limits::within(Duration::from_secs(10));
        let client = Cluster::connect(&kubeconfig, Path::new(""), None, dial, limits).unwrap();
        (dir, embedded, client)
    }

    fn without(embedded: &EmbeddedCluster, binding: &str) {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{binding}");
        embedded.as_admin(&Method::DELETE, &path, None).unwrap();
    }

    #[test]
    fn a_token_is_tried_before_it_is_used() {
        let (_dir, embedded, client) = cluster();
        let tried = |token: &str| client.try_bootstrap_token("abcdef", &Secret::new(token));
        tried(GOOD).unwrap();
        for token in ["abcdef.fedcba9876543210", "000000.0123456789abcdef", "no token"] {
            assert_eq!(Fault::id_of(&tried(token).unwrap_err()), "JoinTokenRefused", "{token}");
        }
        without(&embedded, "kubeadm:kubelet-bootstrap");
        assert_eq!(Fault::id_of(&tried(GOOD).unwrap_err()), "JoinForbidden");
        let secret = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
        let expired = json!({"data": {"expiration": base64_of("2026-01-01T00:00:00Z")}});
        embedded.as_admin(&Method::PATCH, secret, Some(&expired)).unwrap();
        let refused = tried(GOOD).unwrap_err();
        assert_eq!(Fault::id_of(&refused), "JoinTokenRefused");
        assert!(!format!("{refused:?}").contains("0123456789abcdef"), "{refused:?}");
    }

    #[test]
    fn a_request_is_approved_by_the_cluster_or_by_a_person_or_denied() {
        let (_dir, embedded, client) = cluster();
        let state = || client.certificate_request("win-b2", None).unwrap().map(|request| request.state);
        assert_eq!(state(), None);
        assert!(matches!(embedded.admit(GOOD, "win-b2", 4000).unwrap(), Admission::Issued(_)));
        assert_eq!(state(), Some(RequestState::Approved));
        without(&embedded, "kubeadm:node-autoapprove-bootstrap");
        let decide = |process: u32, kind: &str| {
            let Admission::Pending(name) = embedded.admit(GOOD, "win-c3", process).unwrap() else {
                panic!("{process}")
            };
            let request = client.certificate_request("win-c3", None).unwrap().unwrap();
            assert_eq!((&request.name, request.state), (&name, RequestState::Pending));
            let path = format!("/apis/{GROUP}/v1/certificatesigningrequests/{name}/approval");
            let condition = json!({"type": kind, "status": "True", "reason": "byHand", "message": "as Dana said"});
            let decided = json!({"status": {"conditions": [condition]}});
            embedded.as_admin(&Method::PATCH, &path, Some(&decided)).unwrap();
            client.certificate_request("win-c3", None).unwrap().unwrap().state
        };
        assert_eq!(decide(4004, "Denied"), RequestState::Denied("as Dana said".into()));
        let denied = embedded.admit(GOOD, "win-c3", 4004).unwrap();
        assert!(matches!(denied, Admission::Denied(_)), "{denied:?}");
    }

    #[test]
    fn what_a_person_approved_is_issued() {
        let (_dir, embedded, client) = cluster();
        without(&embedded, "kubeadm:node-autoapprove-bootstrap");
        let Admission::Pending(name) = embedded.admit(GOOD, "win-c3", 4000).unwrap() else { panic!() };
        let path = format!("/apis/{GROUP}/v1/certificatesigningrequests/{name}/approval");
        let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "byHand"}]}});
        embedded.as_admin(&Method::PATCH, &path, Some(&approved)).unwrap();
        let Admission::Issued(kubeconfig) = embedded.admit(GOOD, "win-c3", 4000).unwrap() else { panic!() };
        let limits = Limits::within(Duration::from_secs(10));
        let kubelet = Cluster::connect(&kubeconfig, Path::new(""), None, Some(embedded.addr()), limits).unwrap();
        embedded.register("win-c3", Ipv4Addr::new(10, 20, 0, 23), ["v1.36.2", "10.0.20348.2700"]).unwrap();
        assert!(!kubelet.node("win-c3").unwrap().unwrap().ready, "it has no network yet");
        embedded.report_ready("win-c3").unwrap();
        assert!(client.node("win-c3").unwrap().unwrap().ready);
    }
}
