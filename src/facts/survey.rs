//! What else on the machine a Calico node must work with.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::values::Cidr;

/// Services, networks and files of the machine, as far as checks use them.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Survey {
    /// By name in lower case: services of Kubernetes, container runtimes, network plugins and Calico.
    pub services: BTreeMap<String, ServiceFacts>,
    /// Those that are there and cannot be read, by name in lower case, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread_services: BTreeMap<String, String>,
    /// HNS networks by name, with their type, for example `Overlay`.
    pub networks: BTreeMap<String, String>,
    /// Configurations in the container runtime's CNI folder, in the order in which the runtime reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cni_configs: Vec<CniConfig>,
    /// Whether this program has installed Calico here, or prepared this machine as an image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub installed: bool,
    /// Whether `C:\CalicoWindows` exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calico_folder: bool,
    /// The folder of calico.rootDir if it has files and none of Calico's.
    pub other_root: Option<String>,
    /// The addresses of Flannel's pods in the whole cluster, from its configuration on this machine.
    pub flannel_network: Option<Cidr>,
    /// Bytes free on the disk of `C:`; none if not measured.
    pub disk_free: Option<u64>,
    /// Whether UDP 4789 is free; none if not measured.
    pub vxlan_port_free: Option<bool>,
    /// Routes to single link-local addresses, such as those of clouds' metadata services: prefix to interface. None if
    /// not queried.
    pub link_local_routes: Option<BTreeMap<String, String>>,
    /// Whether a TCP port of this machine accepts connections at each of its own addresses. Only the requested ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp_ports: BTreeMap<u16, bool>,
    #[serde(default, skip_serializing_if = "Firewall::is_empty")]
    pub firewall: Firewall,
    /// The network profiles in which a policy makes Windows Firewall ignore the machine's own rules; none if not
    /// queried.
    pub own_rules_ignored: Option<Vec<String>>,
    /// Who else may write where SYSTEM reads or runs Calico's files; none if not queried.
    pub writers: Option<Writers>,
}

/// Places that accounts other than administrators may write to, with the account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Writers {
    /// CNI folders and the log folder: an install restricts them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub folders: BTreeMap<String, String>,
    /// Files in them, and folders above them through which they could be replaced: an administrator must look at these
    /// first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, String>,
}

/// What Windows Firewall allows on the requested ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Firewall {
    /// Whether it allows inbound connections to a TCP port, in the machine's network profiles.
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
    /// Program and arguments; for NSSM, what NSSM runs.
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
    /// The plugin's `type`, or that of a list's first plugin; none if the file is not a CNI configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// It is a folder, which no container runtime reads (libcni's ConfFiles), and no file can replace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_folder: bool,
}

impl CniConfig {
    /// Whether it is Flannel's, by its plugin or its name.
    pub fn is_flannels(&self) -> bool {
        self.plugin.as_deref() == Some("flannel") || self.file.to_lowercase().contains("flannel")
    }
}

impl Survey {
    pub fn service(&self, name: &str) -> Option<&ServiceFacts> {
        self.services.get(&name.to_lowercase())
    }

    /// Whether there is such a service, also one that cannot be read.
    pub fn has_service(&self, name: &str) -> bool {
        self.service(name).is_some() || self.unread_services.contains_key(&name.to_lowercase())
    }
}

impl ServiceFacts {
    /// The value of a flag, for example `--source-vip`; the last one if it is given twice.
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
