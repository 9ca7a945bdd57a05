//! What a real API server says of a kubelet that joins, to a user with exactly the rights of docs/rbac.yaml.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use calicoctl_win::calico::kubeconfig;
use calicoctl_win::calico::kubernetes::{bootstrap_kubeconfig, token_in};
use calicoctl_win::cluster::{Cluster, RequestState};
use calicoctl_win::fault::Fault;
use calicoctl_win::sandbox::cluster::Seed;
use calicoctl_win::settings::Limits;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::cluster::{NODE, OPERATOR, V1};

/// The bootstrap token that the seed has.
const TOKEN: &str = "abcdef.0123456789abcdef";

/// What kubelet requests.
fn request(node: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"generateName": "csr-"},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    })
}

#[test]
fn a_bootstrap_token_names_its_request_to_a_user_who_may_not_list_it() {
    let users = format!("{OPERATOR},{OPERATOR},{OPERATOR},\"calicoctl-win\"\n");
    let Some(server) = ApiServer::with_users(&users) else { return };
    server.define(V1.layout);
    server.seed(&Seed { layout: V1.layout, ..Seed::new(NODE) }, V1.namespace);
    let group = "system:bootstrappers:kubeadm:default-node-token";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubeadm:kubelet-bootstrap"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    let connect = |kubeconfig: &str| {
        Cluster::connect(kubeconfig, Path::new(""), None, None, Limits::within(Duration::from_secs(20))).unwrap()
    };
    let operator = connect(&server.kubeconfig_of(OPERATOR));
    let token = token_in(TOKEN, "token").unwrap();
    let bootstrap = bootstrap_kubeconfig(operator.server(), operator.ca_pem(), &token).unwrap();
    let bootstrap = String::from_utf8(bootstrap).unwrap();
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made: Value = connect(&bootstrap).post(requests, &request("win-b2")).unwrap();

    let refused = operator.certificate_request("win-b2", None).unwrap_err();
    assert_eq!(Fault::id_of(&refused), "ClusterForbidden", "{refused:?}");
    let login = kubeconfig::parse(&bootstrap).unwrap();
    let found = operator.certificate_request("win-b2", Some(&login)).unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.state), (made["metadata"]["name"].as_str().unwrap(), RequestState::Pending));
    assert_eq!(operator.certificate_request("win-c3", Some(&login)).unwrap(), None);
}
