//! The document itself, as the CNI plugin reads it. The type that renders ours also reads a file on a node.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

/// A network configuration of Calico's CNI plugin. The keys are the plugin's own; unknown keys of a file on a node are
/// kept in `rest`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CniConf {
    /// Also the name of the HNS network if there is a single one.
    pub name: String,
    pub windows_use_single_network: bool,
    #[serde(rename = "cniVersion")]
    pub cni_version: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// `vxlan`, or empty for windows-bgp.
    pub mode: String,
    pub vxlan_mac_prefix: String,
    pub vxlan_vni: Option<u32>,
    pub policy: Policy,
    pub log_level: String,
    pub log_file_path: Option<String>,
    pub log_file_max_size: Option<u64>,
    pub log_file_max_age: Option<u64>,
    pub log_file_max_count: Option<u64>,
    #[serde(rename = "windows_loopback_DSR")]
    pub windows_loopback_dsr: Option<bool>,
    pub windows_pod_deletion_timestamp_timeout: Option<u64>,
    pub windows_disable_default_deny_all_policy: Option<bool>,
    /// With `dns`, a pod's DNS from kubelet overrides `DNS` below.
    pub capabilities: BTreeMap<String, bool>,
    #[serde(rename = "DNS")]
    pub dns: Dns,
    pub mtu: Option<u32>,
    pub nodename: Option<String>,
    pub nodename_file: Option<String>,
    pub nodename_file_optional: Option<bool>,
    pub datastore_type: String,
    pub etcd_endpoints: Option<String>,
    pub etcd_key_file: Option<String>,
    pub etcd_cert_file: Option<String>,
    pub etcd_ca_cert_file: Option<String>,
    /// As `crd.projectcalico.org/v1`; from v3.32 on.
    pub calico_api_group: Option<String>,
    pub kubernetes: Kubernetes,
    pub ipam_lock_file: Option<String>,
    pub qps: Option<u32>,
    pub burst: Option<u32>,
    pub feature_control: Option<Value>,
    pub readiness_gates: Option<Vec<String>>,
    pub ipam: IpamConf,
    /// HNS endpoint policies, in HNS's own form.
    pub policies: Vec<EndpointPolicy>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    #[serde(rename = "Nameservers")]
    pub nameservers: Vec<String>,
    #[serde(rename = "Search")]
    pub search: Vec<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kubernetes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpamConf {
    /// `calico-ipam` or `host-local`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `usePodCidr`; only host-local reads it.
    pub subnet: Option<String>,
    pub assign_ipv4: Option<String>,
    pub assign_ipv6: Option<String>,
    pub ipv4_pools: Option<Vec<String>>,
    pub ipv6_pools: Option<Vec<String>>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointPolicy {
    #[serde(rename = "Name")]
    pub name: String,
    #[serde(rename = "Value")]
    pub value: Map<String, Value>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl CniConf {
    /// Reads a CNI configuration of Calico, ours or not. Unknown keys are kept.
    ///
    /// # Errors
    /// When it is not a JSON object, or a key has a value of the wrong type.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_slice(text.trim_start_matches('\u{feff}').as_bytes()).context("parse the CNI configuration")
    }

    /// The keys that the plugin does not know, for example `ipam.typ`.
    pub fn unknown_keys(&self) -> Vec<String> {
        let parts = [
            ("", &self.rest),
            ("policy.", &self.policy.rest),
            ("DNS.", &self.dns.rest),
            ("kubernetes.", &self.kubernetes.rest),
            ("ipam.", &self.ipam.rest),
        ];
        let policies = self.policies.iter().map(|policy| ("policies[].", &policy.rest));
        parts
            .into_iter()
            .chain(policies)
            .flat_map(|(prefix, rest)| rest.keys().map(move |key| format!("{prefix}{key}")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPTS: &str = include_str!("../../../tests/fixtures/cni/scripts-v3.30-containerd.conf");
    const EVERY_KEY: &str = include_str!("../../../tests/fixtures/cni/every-key.conf");

    #[test]
    fn no_key_of_the_plugin_is_unknown_or_lost() {
        for text in [SCRIPTS, EVERY_KEY] {
            let conf = CniConf::parse(text).unwrap();
            assert_eq!(conf.unknown_keys(), Vec::<String>::new());
            let original: Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_value(&conf).unwrap(), original);
        }
    }

    #[test]
    fn the_scripts_configuration_is_read_unchanged() {
        let conf = CniConf::parse(SCRIPTS).unwrap();
        assert_eq!((conf.vxlan_vni, conf.mode.as_str()), (Some(4096), "vxlan"));
        assert_eq!(conf.dns.nameservers, ["10.96.0.10", " 10.96.0.11"]);
        assert_eq!(conf.policies[1].value["DestinationPrefix"], "10.96.0.0/12");
    }

    #[test]
    fn unknown_keys_are_kept_and_named() {
        let text = "\u{feff}{\"name\":\"Calico\",\"vendor\":{\"x\":1},\"ipam\":{\"typ\":\"host-local\"}}";
        let conf = CniConf::parse(text).unwrap();
        assert_eq!((conf.name.as_str(), conf.vxlan_vni), ("Calico", None));
        assert_eq!(conf.unknown_keys(), ["vendor", "ipam.typ"]);
        assert_eq!(conf.rest["vendor"]["x"], 1);
    }

    #[test]
    fn a_document_that_is_not_a_cni_configuration_is_refused() {
        for text in ["", "[1]", "{\"vxlan_vni\": \"4096\"}", "{\"policies\": {}}"] {
            assert!(CniConf::parse(text).is_err(), "{text}");
        }
    }
}
