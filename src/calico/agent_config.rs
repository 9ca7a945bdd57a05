//! What the Windows services are told: the document that install writes and `service run` reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::settings::Backend;
use crate::values::{NodeName, Vni, WinPath};

/// `C:\ProgramData\calicoctl-win\services.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    pub node_name: NodeName,
    pub backend: Backend,
    /// VSID that the HNS network `Calico` must have.
    pub vni: Vni,
    /// Physical adapter for the network `External`; none lets HNS choose.
    pub adapter: Option<String>,
    /// Where the components' logs go.
    pub log_dir: WinPath,
    /// Seconds to wait for a valid IPv4 address after boot; 0 does not wait.
    pub valid_ip_timeout_s: u64,
    /// Put 169.254.169.254/32 back after the vSwitch took it.
    pub metadata_route: bool,
    /// Run once at every boot and every start of kubelet, until it exits 0.
    pub startup: Command,
    pub felix: Command,
    /// Only for the backend windows-bgp.
    pub confd: Option<Command>,
}

impl AgentConfig {
    pub const PATH: &str = r"C:\ProgramData\calicoctl-win\services.json";
}

/// A process to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Command {
    pub program: WinPath,
    pub args: Vec<String>,
    /// Working folder.
    pub dir: WinPath,
    /// All of its own variables; the system's are added when it is started.
    pub env: BTreeMap<String, String>,
}
