//! What Flannel has on a Windows node: SIG Windows' scripts and its HostProcess DaemonSet, and flanneld itself
//! (`pkg/backend` in its source).

use serde::Deserialize;

use crate::values::Cidr;

/// The services under which its scripts register flanneld.
pub const SERVICES: [&str; 2] = ["flanneld", "flannel"];

/// The networks that flanneld makes: with VXLAN, in host-gateway mode, and with VXLAN on RKE2.
pub const NETWORKS: [&str; 3] = ["vxlan0", "cbr0", "flannel.4096"];

/// Its configuration, what it tells its CNI plugin, and the source VIP that its scripts reserve for kube-proxy.
pub const FILES: [&str; 5] = [
    NET_CONF,
    r"C:\etc\kube-flannel\cni-conf.json",
    r"C:\run\flannel\subnet.env",
    r"C:\k\sourceVip.json",
    r"C:\k\sourceVipRequest.json",
];

/// Its configuration.
pub const NET_CONF: &str = r"C:\etc\kube-flannel\net-conf.json";

/// Whether an HNS network of this name is Flannel's.
pub fn is_network(name: &str) -> bool {
    NETWORKS.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// The addresses of its pods in the whole cluster, from its configuration.
pub fn network(net_conf: &str) -> Option<Cidr> {
    #[derive(Deserialize)]
    struct NetConf {
        #[serde(rename = "Network")]
        network: String,
    }
    let found: NetConf = serde_json::from_slice(net_conf.trim_start_matches('\u{feff}').as_bytes()).ok()?;
    found.network.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_network_is_read_from_its_configuration() {
        let text = r#"{"Network": "10.244.0.0/16", "Backend": {"Name": "vxlan0", "Type": "vxlan", "VNI": 4096, "Port": 4789}}"#;
        assert_eq!(network(text), Some("10.244.0.0/16".parse().unwrap()));
        for other in ["", "{}", r#"{"Network": "everything"}"#] {
            assert_eq!(network(other), None, "{other}");
        }
        assert!(is_network("VXLAN0") && !is_network("External"));
    }
}
