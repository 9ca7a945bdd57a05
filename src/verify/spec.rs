//! The objects of `verify --pods`, as they are sent to the API server. The image must be agnhost, or have its commands
//! `netexec` and `connect` as arguments of its entry point.

use serde_json::{Value, json};

use crate::cluster::{MANAGED_BY, VERIFY_NAMESPACE};
use crate::values::Sha256;

/// The label of a node's objects.
pub(super) const OF_NODE: &str = "calicoctl-win/verify";
/// The label that says which pod it is.
pub(super) const ROLE: &str = "calicoctl-win/role";
/// The annotation of the namespace by which the last node that entered it is known.
pub(super) const ENTERED: &str = "calicoctl-win/entered-by";
/// The annotation of a namespace that was created by verify, and is deleted by it.
pub(super) const CREATED: &str = "calicoctl-win/created-by";

/// The port on which a server pod listens.
pub(super) const PORT: u16 = 8080;
/// The port of the service.
pub(super) const SERVICE_PORT: u16 = 80;
/// How long a connection may take, in seconds.
pub(super) const CONNECT_S: u64 = 20;

/// The system of a pod's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Os {
    Windows,
    Linux,
}

/// What a pod needs besides its containers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub os: Os,
    /// The node that it is bound to.
    pub node: &'a str,
    pub image: &'a str,
    /// The secret with which the image is pulled.
    pub secret: Option<&'a str>,
}

/// A short name of a node, for names of objects: a node's own may have dots, and be too long.
pub(super) fn id_of(node: &str) -> String {
    Sha256::of(node.as_bytes()).to_string()[..8].to_owned()
}

fn labels(id: &str, role: &str) -> Value {
    json!({ MANAGED_BY.0: MANAGED_BY.1, OF_NODE: id, ROLE: role })
}

fn metadata(id: &str, role: &str) -> Value {
    json!({ "name": format!("{role}-{id}"), "namespace": VERIFY_NAMESPACE, "labels": labels(id, role) })
}

pub(super) fn namespace(run: &str, id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": VERIFY_NAMESPACE, "labels": { MANAGED_BY.0: MANAGED_BY.1 },
            "annotations": { CREATED: run, ENTERED: id },
        },
    })
}

/// A pod that is bound to its node, and needs no token. The node may be cordoned and tainted.
pub(super) fn pod(id: &str, role: &str, place: Place<'_>, containers: &[(String, Vec<String>)]) -> Value {
    let (own, of_pod) = match place.os {
        Os::Windows => {
            (json!({}), json!({ "runAsNonRoot": true, "windowsOptions": { "runAsUserName": "ContainerUser" } }))
        }
        Os::Linux => (
            json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } }),
            json!({ "runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": { "type": "RuntimeDefault" } }),
        ),
    };
    let containers = containers.iter().map(|(name, args)| {
        json!({
            "name": name, "image": place.image, "args": args, "securityContext": own,
            "terminationMessagePolicy": "FallbackToLogsOnError",
        })
    });
    let os = if place.os == Os::Windows { "windows" } else { "linux" };
    let mut spec = json!({
        "nodeName": place.node, "os": { "name": os }, "restartPolicy": "Never",
        "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
        "tolerations": [{ "operator": "Exists" }], "securityContext": of_pod,
        "containers": containers.collect::<Vec<_>>(),
    });
    if let Some(secret) = place.secret {
        spec["imagePullSecrets"] = json!([{ "name": secret }]);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata(id, role), "spec": spec })
}

/// A container that listens.
pub(super) fn server() -> Vec<(String, Vec<String>)> {
    vec![("server".into(), vec!["netexec".into(), format!("--http-port={PORT}"), "--udp-port=-1".into()])]
}

/// A container that connects once.
pub(super) fn client(name: &str, to: &str) -> (String, Vec<String>) {
    (name.to_owned(), vec!["connect".into(), to.to_owned(), format!("--timeout={CONNECT_S}s")])
}

/// The service of the server pod on this node.
pub(super) fn service(id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(id, "server"),
        "spec": {
            "type": "NodePort", "selector": labels(id, "server-windows"),
            "ports": [{ "name": "http", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": PORT }],
        },
    })
}

/// A policy for the server pod on this node that denies all; or with a role, that lets in only its pods.
pub(super) fn policy(id: &str, name: &str, from: Option<&str>) -> Value {
    let ingress: Vec<Value> =
        from.iter().map(|role| json!({ "from": [{ "podSelector": { "matchLabels": labels(id, role) } }] })).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(id, name),
        "spec": {
            "podSelector": { "matchLabels": labels(id, "server-windows") }, "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    })
}

/// A copy of a secret with which images are pulled.
pub(super) fn secret(id: &str, original: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata(id, "pull"),
        "type": original["type"], "data": original["data"],
    })
}

/// The kinds of objects in the namespace, with the paths of their collections.
pub(super) fn collection(kind: &str) -> String {
    match kind {
        "NetworkPolicy" => format!("/apis/networking.k8s.io/v1/namespaces/{VERIFY_NAMESPACE}/networkpolicies"),
        kind => format!("/api/v1/namespaces/{VERIFY_NAMESPACE}/{}s", kind.to_lowercase()),
    }
}
