//! What else is on the machine that a Calico node must get along with.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Services, networks and files of the machine, as far as checks look at them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Survey {
    /// By name in lower case: those of Kubernetes, container runtimes, network plugins and Calico.
    pub services: BTreeMap<String, ServiceFacts>,
    /// HNS networks by name, with their type as `Overlay`.
    pub networks: BTreeMap<String, String>,
    /// Configurations in the container runtime's CNI folder, in the order in which it reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cni_configs: Vec<CniConfig>,
    /// Whether this program has installed Calico here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub installed: bool,
    /// Whether `C:\CalicoWindows` is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calico_folder: bool,
    /// Bytes free on the disk of `C:`; none where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<u64>,
    /// Whether no program listens on UDP 4789; none where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vxlan_port_free: Option<bool>,
    /// Routes to single link-local addresses, as clouds make them for their metadata services:
    /// prefix to interface. None where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_local_routes: Option<BTreeMap<String, String>>,
    /// Whether a TCP port of this machine takes connections at each of its own addresses; only those
    /// that somebody asked about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp_ports: BTreeMap<u16, bool>,
    #[serde(default, skip_serializing_if = "Firewall::is_empty")]
    pub firewall: Firewall,
    /// Who else may write where SYSTEM reads or runs something of Calico's; none where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writers: Option<Writers>,
}

/// Places that others than administrators may write to, with the account that may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Writers {
    /// CNI folders and the folder of the logs: an install closes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub folders: BTreeMap<String, String>,
    /// Files in them, and folders above them through which they could be replaced: somebody must look at
    /// them first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, String>,
}

/// What Windows Firewall says of the ports that somebody asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Firewall {
    /// Whether it lets strangers in on a TCP port, in the networks that the machine is in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lets_in: BTreeMap<u16, bool>,
    /// Why it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

impl Firewall {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceFacts {
    pub running: bool,
    /// Program and arguments: what NSSM runs, where it is NSSM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniConfig {
    /// File name.
    pub file: String,
    /// The plugin's `type`, of a list its first one's; none where the file is no CNI configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
}

impl Survey {
    pub fn service(&self, name: &str) -> Option<&ServiceFacts> {
        self.services.get(&name.to_lowercase())
    }
}

impl ServiceFacts {
    /// The value of a flag, as `--source-vip`; of one given twice the last.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let mut found = None;
        for (at, word) in self.command.iter().enumerate() {
            match word.strip_prefix(name) {
                Some("") => found = Some(self.command.get(at + 1).map_or("", String::as_str)),
                Some(rest) => found = rest.strip_prefix('=').or(found),
                None => {}
            }
        }
        found
    }
}
