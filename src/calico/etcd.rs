//! The TLS identity of an etcd client, and the CA that it trusts.

use crate::values::Secret;

/// The contents of the client's three files, PEM each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFiles {
    pub key: Secret,
    pub cert: String,
    pub ca_cert: String,
}
