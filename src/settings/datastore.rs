//! Where Calico keeps its data.

use serde::Serialize;

use super::resolver::{Resolver, filled};
use crate::config::spec::{DatastoreType, Spec};
use crate::paths::ETCD_TLS;
use crate::values::WinPath;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Datastore {
    Kubernetes,
    Etcdv3 { endpoints: Vec<String>, tls: Option<EtcdTls> },
}

/// Where the etcd client's files are on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdTls {
    pub key_file: WinPath,
    pub cert_file: WinPath,
    pub ca_cert_file: WinPath,
}

/// A secret with the contents of these files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    /// None: the namespace of calico-node.
    pub namespace: Option<String>,
    pub name: String,
}

/// Whether the config keeps Calico's data in etcd.
pub(super) fn is_etcd(spec: &Spec) -> bool {
    spec.datastore.kind == Some(DatastoreType::Etcdv3)
}

/// The secret with the client's certificates, if the config names one.
pub(super) fn tls_secret(spec: &Spec) -> Option<SecretRef> {
    let given = &spec.datastore.etcd.tls_secret_ref;
    Some(SecretRef { namespace: filled(&given.namespace), name: filled(&given.name)? })
}

pub(super) fn decide(to: &mut Resolver<'_>, spec: &Spec, root: &WinPath, calico_namespace: &str) -> Datastore {
    let given = &spec.datastore;
    let kind = to.or_default("spec.datastore.type", given.kind, DatastoreType::Kubernetes);
    let endpoints = to.optional("spec.datastore.etcd.endpoints", given.etcd.endpoints.clone());
    let key = to.optional("spec.datastore.etcd.keyFile", given.etcd.key_file.clone());
    let cert = to.optional("spec.datastore.etcd.certFile", given.etcd.cert_file.clone());
    let ca = to.optional("spec.datastore.etcd.caCertFile", given.etcd.ca_cert_file.clone());
    let secret = to.optional("spec.datastore.etcd.tlsSecretRef.name", filled(&given.etcd.tls_secret_ref.name));
    let (path, namespace) = ("spec.datastore.etcd.tlsSecretRef.namespace", &given.etcd.tls_secret_ref.namespace);
    match secret {
        Some(_) => drop(to.or_default(path, filled(namespace), calico_namespace.to_owned())),
        None => drop(to.optional(path, filled(namespace))),
    }
    if kind == DatastoreType::Kubernetes {
        return Datastore::Kubernetes;
    }
    let tls = match (key, cert, ca) {
        (Some(key_file), Some(cert_file), Some(ca_cert_file)) => Some(EtcdTls { key_file, cert_file, ca_cert_file }),
        _ => secret.map(|_| {
            // The names of the secret's contents in Calico's own scripts.
            let file = |name: &str| root.join(ETCD_TLS).join(name);
            EtcdTls { key_file: file("server.key"), cert_file: file("server.crt"), ca_cert_file: file("ca.crt") }
        }),
    };
    Datastore::Etcdv3 { endpoints: endpoints.unwrap_or_default().iter().map(ToString::to_string).collect(), tls }
}
