//! kube-proxy's flags and its configuration.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::calico::kube_proxy::GATE_NEEDED_BELOW;
use crate::calico::networks;
use crate::paths::kubernetes as paths;
use crate::settings::{Backend, KubernetesNode, Settings};
use crate::values::WinPath;
use crate::yaml;

pub(super) fn arguments() -> Vec<String> {
    vec![format!("--config={}", paths::KUBE_PROXY_EFFECTIVE), "--v=2".into()]
}

/// kube-proxy without a network name in its configuration takes it from here.
pub(super) fn environment() -> BTreeMap<String, String> {
    BTreeMap::from([("KUBE_NETWORK".to_owned(), networks::PODS.to_owned())])
}

pub(super) fn config(settings: &Settings, node: &KubernetesNode, kubeconfig: &WinPath) -> Value {
    let mut config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "kernelspace",
        "hostnameOverride": settings.node_name,
        "bindAddress": node.node_ip,
        "clientConnection": { "kubeconfig": kubeconfig },
        // What Windows does: winkernel accepts NodePort connections at all addresses of the node, and does not read this field
        // (NewProxier in pkg/proxy/winkernel/proxier.go). If it is unset, kube-proxy logs an error that advises `primary`
        // (v1.31 and later, kubernetes/kubernetes#123105), a restriction that would not be in effect.
        "nodePortAddresses": ["0.0.0.0/0"],
        "winkernel": { "networkName": networks::PODS, "enableDSR": settings.dsr },
    });
    if settings.dsr && node.version.minor < GATE_NEEDED_BELOW {
        config["featureGates"] = json!({ "WinDSR": true });
    }
    if settings.network.backend == Backend::Vxlan {
        // The agent writes the address of Calico's host endpoint here: see `with_source_vip`.
        config["winkernel"]["sourceVip"] = "".into();
    }
    config
}

/// The configuration that kube-proxy reads: with the source VIP, if it needs one and the user has set none.
///
/// # Errors
/// When the document is not the one that this program wrote.
pub fn with_source_vip(config: &str, vip: Option<Ipv4Addr>) -> Result<String> {
    let mut config: Value = yaml::read(config).context("read kube-proxy's configuration")?;
    if let (Some(vip), Some("")) = (vip, config["winkernel"]["sourceVip"].as_str()) {
        config["winkernel"]["sourceVip"] = vip.to_string().into();
    }
    serde_yaml::to_string(&config).context("write kube-proxy's configuration")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_vip_is_filled_in_unless_the_user_has_set_one() {
        let vip = Some(Ipv4Addr::new(192, 168, 0, 2));
        let config = "winkernel:\n  networkName: Calico\n  sourceVip: ''\n";
        assert!(with_source_vip(config, vip).unwrap().contains("sourceVip: \"192.168.0.2\""));
        let own = config.replace("''", "10.0.0.9");
        assert!(with_source_vip(&own, vip).unwrap().contains("sourceVip: \"10.0.0.9\""));
        let bridge = "winkernel:\n  networkName: Calico\n";
        assert!(!with_source_vip(bridge, None).unwrap().contains("sourceVip"));
    }
}
