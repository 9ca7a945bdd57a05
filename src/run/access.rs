//! How a run reaches the cluster, for whoever ends it.

use std::path::PathBuf;

use crate::apply::node_object::Access;
use crate::config::Origin;
use crate::settings::Connection;
use crate::values::WinPath;

/// How a run was told to reach the cluster: the kubeconfig that was named, as an absolute path, and its context.
pub(crate) fn of(connection: &Connection) -> Access {
    let named = connection.kubeconfig_from != Origin::Default;
    Access { kubeconfig: named.then(|| whole(&connection.kubeconfig)), context: connection.context.clone() }
}

/// Returns the absolute path of a file.
pub(crate) fn whole(file: &str) -> String {
    if file.parse::<WinPath>().is_ok() {
        return file.to_owned();
    }
    std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file)).display().to_string()
}
