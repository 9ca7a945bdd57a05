//! kubelet's flags and its configuration. What a version knows is held against lists of each minor version's sources: see
//! `lists`.

use serde_json::{Value, json};

use crate::paths::kubernetes as paths;
use crate::settings::{KubernetesNode, Settings};

/// The flags. What the configuration has a field for is not a flag.
pub(super) fn arguments(settings: &Settings, node: &KubernetesNode) -> Vec<String> {
    let mut arguments = vec![
        format!("--config={}", paths::KUBELET_CONFIG),
        format!("--kubeconfig={}", paths::KUBELET_CONF),
        // Read only while there is no kubeconfig.
        format!("--bootstrap-kubeconfig={}", paths::BOOTSTRAP_CONF),
        format!("--cert-dir={}\\pki", paths::KUBELET_DATA),
        format!("--root-dir={}", paths::KUBELET_DATA),
        format!("--hostname-override={}", settings.node_name),
        format!("--node-ip={}", node.node_ip),
    ];
    arguments.extend(node.cloud_provider.iter().map(|provider| format!("--cloud-provider={provider}")));
    arguments.push("--v=2".into());
    arguments
}

/// The configuration: what Windows needs, kubeadm's way of authentication, and the cluster's DNS.
pub(super) fn config(settings: &Settings, node: &KubernetesNode, has_ca: bool) -> Value {
    let mut authentication = json!({ "anonymous": { "enabled": false }, "webhook": { "enabled": true } });
    if has_ca {
        authentication["x509"] = json!({ "clientCAFile": paths::CA });
    }
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": authentication,
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": "npipe:////./pipe/containerd-containerd",
        "clusterDNS": settings.kubernetes.dns_servers,
        "clusterDomain": node.cluster_domain,
        "rotateCertificates": true,
        // Windows has neither cgroups nor resolv.conf, and always a page file.
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "resolvConf": "",
        "failSwapOn": false,
    })
}
