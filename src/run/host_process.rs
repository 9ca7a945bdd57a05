//! A HostProcess pod: the files of its service account.

use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use serde_json::json;

use crate::cluster::unreached;
use crate::fault::{Exit, Fault};

/// Set by containerd in every HostProcess container: the host's path of the container's own files.
const MOUNT_POINT: &str = "CONTAINER_SANDBOX_MOUNT_POINT";

/// The folder in it with the service account of the pod.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// The service account of the pod that this program runs in.
pub(crate) struct Pod {
    pub host: String,
    pub namespace: String,
    /// With the account's token, for the API server address that Kubernetes sets in pods.
    pub kubeconfig: String,
}

/// Reads it from the mounts.
///
/// # Errors
/// Fault `NotHostProcess` if this is no HostProcess container, or the account is not mounted.
pub(crate) fn read() -> Result<Pod> {
    let not = |what: &str| {
        Fault::new(Exit::InvalidConfig, "NotHostProcess", what.to_owned()).hint(
            "kubernetes.credentials: host-process is for a pod with hostProcess: true and a mounted service account; \
             elsewhere leave it out, or use token-request",
        )
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mount = variable(MOUNT_POINT).ok_or_else(|| not("this program does not run in a HostProcess container"))?;
    let folder = Path::new(&mount).join(ACCOUNT);
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name))
            .map_err(|cause| anyhow::Error::new(cause).context(not(&format!("the pod's {name} cannot be read"))))
    };
    let (token, ca, namespace) = (read("token")?, read("ca.crt")?, read("namespace")?);
    let host = variable("KUBERNETES_SERVICE_HOST").ok_or_else(|| not("KUBERNETES_SERVICE_HOST is not set"))?;
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".into());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "pod", "cluster":
            {"server": format!("https://{host}:{port}"), "certificate-authority-data": ca}}],
        "contexts": [{"name": "pod", "context":
            {"cluster": "pod", "user": "pod", "namespace": namespace.trim()}}],
        "users": [{"name": "pod", "user": {"token": token.trim()}}],
    });
    Ok(Pod { host, namespace: namespace.trim().to_owned(), kubeconfig: kubeconfig.to_string() })
}

/// An API server that cannot be reached from a pod usually has its ClusterIP as address, which is what Kubernetes sets
/// in every pod.
pub(crate) fn from_a_pod(mut error: anyhow::Error) -> anyhow::Error {
    if unreached(&error)
        && let Some(fault) = error.downcast_mut::<Fault>()
    {
        let usual = fault.hint.take().map_or_else(String::new, |hint| format!("; {hint}"));
        fault.hint = Some(format!(
            "the pod's KUBERNETES_SERVICE_HOST names it: a ClusterIP there is not reached from a Windows host, so set it \
             and KUBERNETES_SERVICE_PORT to the API server's own address{usual}"
        ));
    }
    error
}

/// The error for an address that does not lead from a Windows host to the API server.
pub(crate) fn cluster_ip(host: &str) -> Fault {
    let what = format!("KUBERNETES_SERVICE_HOST is {host}, a ClusterIP, which a Windows host cannot reach");
    Fault::new(Exit::InvalidConfig, "ApiServerAddress", what).hint(
        "set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of the pod to the API server's own address, \
         as Calico's ConfigMap kubernetes-services-endpoint does",
    )
}
