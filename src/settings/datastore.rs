//! Where Calico keeps its data.

use serde::Serialize;

use super::resolver::Resolver;
use crate::config::Layered;
use crate::config::spec::DatastoreType;
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
pub(super) fn is_etcd(to: &Resolver<'_>) -> bool {
    to.given("datastore.type") == Some(DatastoreType::Etcdv3)
}

const SECRET: &str = "datastore.etcd.tlsSecretRef.name";
const NAMESPACE: &str = "datastore.etcd.tlsSecretRef.namespace";

/// The secret with the client's certificates, if the config names one.
pub(super) fn tls_secret(to: &Resolver<'_>) -> Option<SecretRef> {
    let text = |path| to.given(path).filter(|text: &String| !text.is_empty());
    Some(SecretRef { namespace: text(NAMESPACE), name: text(SECRET)? })
}

/// Decides where it is. A loaded config has no invalid values. `root`: Calico's folder; `calico_namespace`: of
/// calico-node.
pub fn datastore(layered: &Layered, root: &WinPath, calico_namespace: &str) -> Datastore {
    decide(&mut Resolver::new(layered), root, calico_namespace)
}

pub(super) fn decide(to: &mut Resolver<'_>, root: &WinPath, calico_namespace: &str) -> Datastore {
    let kind = to.or_default("datastore.type", DatastoreType::Kubernetes);
    let endpoints = to.optional("datastore.etcd.endpoints");
    let files = ["keyFile", "certFile", "caCertFile"].map(|file| to.optional(&format!("datastore.etcd.{file}")));
    let secret = to.text(SECRET);
    match secret {
        Some(_) => drop(to.or_default(NAMESPACE, calico_namespace.to_owned())),
        None => drop(to.text(NAMESPACE)),
    }
    if kind == DatastoreType::Kubernetes {
        return Datastore::Kubernetes;
    }
    let tls = match files {
        [Some(key_file), Some(cert_file), Some(ca_cert_file)] => Some(EtcdTls { key_file, cert_file, ca_cert_file }),
        _ => secret.map(|_| {
            // The names of the secret's contents in Calico's own scripts.
            let file = |name: &str| root.join(ETCD_TLS).join(name);
            EtcdTls { key_file: file("server.key"), cert_file: file("server.crt"), ca_cert_file: file("ca.crt") }
        }),
    };
    Datastore::Etcdv3 { endpoints: endpoints.unwrap_or_default(), tls }
}
