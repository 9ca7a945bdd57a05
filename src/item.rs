//! The vocabulary of the engine: an [`Id`] names one managed thing on a node, a [`State`] is a
//! value it can have, and a [`World`] is a set of both. Absence is a value: `Option<State>`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::values::{Cidr, Sha256, WinPath};

/// The address of one managed thing. Windows compares the names of services, rules, networks and registry keys without
/// case; here it is always Calico's own spelling.
///
/// The order of the variants is the order in which things are created; they are removed in reverse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// A folder created because something needs it; removed only when empty.
    Dir(WinPath),
    /// A folder swapped as a whole: the release at `C:\CalicoWindows`.
    Tree(WinPath),
    File(WinPath),
    /// One registry value below HKEY_LOCAL_MACHINE.
    RegValue {
        key: String,
        name: String,
    },
    Firewall(String),
    /// A service's definition.
    Service(String),
    /// Only the dependencies of another product's service, used to remove the names of removed services.
    DependsOn(String),
    /// An HNS network. Derived: the agent creates it; the engine deletes wrong ones and waits for the right one.
    Network(String),
    /// A link-local route that the vSwitch would lose. Derived like the network.
    Route(Cidr),
    /// The IPv4 configuration of an adapter, named by its interface alias. A vSwitch may lose it; derived like the
    /// network, and never removed.
    Adapter(String),
    /// The file that tells kubelet "CNI is ready"; published last, withdrawn first.
    CniConf(WinPath),
    /// Whether a service runs. Measured, not remembered.
    Running(String),
    /// That a Node is cordoned. This item and the next two are in the cluster; the name is the Node's.
    Cordon(String),
    /// The annotation of a Node with the digest of the settings that were applied: it shows which nodes of a fleet are
    /// done.
    Achieved(String),
    /// The condition of a Node by which Calico reports that its network is up. Calico's node startup sets it; this
    /// program only removes it.
    CalicoIsUp(String),
}

/// The state of one [`Id`] that exists. Files are digests, never bytes, so a plan, a journal or a receipt cannot leak
/// their contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Dir {
        access: Access,
    },
    Tree(Tree),
    File {
        sha256: Sha256,
        access: Access,
    },
    RegValue(RegValue),
    Firewall(FirewallRule),
    Service(Box<Service>),
    DependsOn(Vec<String>),
    Network(Network),
    Route {
        interface: String,
        next_hop: Ipv4Addr,
        metric: u32,
    },
    Adapter(IpConfig),
    Running,
    Cordon {
        /// The run that must undo it, from an annotation of the Node; none if another user cordoned it.
        run: Option<String>,
    },
    Achieved(String),
    CalicoIsUp,
}

/// Everything managed, or everything observed.
pub type World = BTreeMap<Id, State>;

/// Who may read and write a file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Inherited from the parent folder.
    Inherited,
    /// SYSTEM and Administrators only.
    Administrators,
    /// Others may read it; only SYSTEM and Administrators may write. For folders.
    Closed,
    /// Like `Closed` if the folder has to be created; an existing one keeps its access. Only ever wanted, never
    /// observed.
    ClosedIfNew,
    /// A folder in which others may write: owner and access list in SDDL, as found, so that they can be restored.
    Open(String),
}

/// The contents of a swapped folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tree {
    /// A release of ours: the digest of its manifest (see [`Manifest`]).
    Release(Sha256),
    /// One of our releases in which files were changed, added or lost since.
    Drifted { of: Sha256, files: Vec<String> },
    /// A folder that another program created. It is moved aside unchanged, and moved back.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all = "kebab-case")]
pub enum RegValue {
    String(String),
    ExpandString(String),
    MultiString(Vec<String>),
    Dword(u32),
    Qword(u64),
    Binary(Vec<u8>),
}

/// An inbound allow rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FirewallRule {
    pub display_name: String,
    /// Our mark; others' rules keep theirs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// `TCP` or `UDP`.
    pub protocol: String,
    pub local_ports: String,
    pub enabled: bool,
    /// The network profiles in which it counts, such as `Domain,Private`; empty for all of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub profiles: String,
    /// The addresses that it lets in, as Windows has them; empty for all of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub remote_addresses: String,
    /// Whether it lets in what comes through a tunnel such as Teredo.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub edge_traversal: bool,
}

/// The IPv4 configuration of an adapter. With DHCP, addresses and gateway come from the lease.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpConfig {
    pub dhcp: bool,
    pub addresses: Vec<Cidr>,
    pub gateway: Option<Ipv4Addr>,
    /// Servers that were set by hand; empty if DHCP names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<Ipv4Addr>,
    /// The interface metric; none if Windows chooses it.
    pub metric: Option<u32>,
}

/// A service as the Service Control Manager defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    pub display_name: String,
    pub description: String,
    /// The command line; the executable is quoted if its path has spaces.
    pub image_path: String,
    /// For example `LocalSystem`.
    pub account: String,
    pub start: StartType,
    /// Names of services, and load ordering groups with a leading `+`, as Windows writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Seconds to wait before each restart after a crash; empty leaves it stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart_after: Vec<u32>,
    /// Recovery actions that `restart_after` does not express, with all that Windows keeps of them: another reset period,
    /// delays of less than a second, a command, a restart of Windows. Our services have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// The values of the service's registry key `Parameters`, where NSSM keeps what it runs: name to value. A value of
    /// a subkey has the subkey and `\` before its name (`AppExit\` is the default value of the subkey `AppExit`). Our
    /// services have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, RegValue>,
}

/// A service's recovery actions as Windows has them (`SERVICE_FAILURE_ACTIONSW`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recovery {
    /// After how many seconds without a failure the count of failures is reset.
    pub reset_after: u32,
    pub actions: Vec<RecoveryAction>,
    /// What users read before Windows restarts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reboot_message: String,
    /// The command line of an action that runs a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecoveryAction {
    /// Windows's number (`SC_ACTION_TYPE`): 0 nothing, 1 restart, 2 restart Windows, 3 the command.
    pub kind: u32,
    pub after_ms: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartType {
    Auto,
    Manual,
    Disabled,
}

/// An HNS network, observed or wanted. A field that is none in the wanted one may have any value.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    pub kind: NetworkKind,
    pub subnet: Option<Cidr>,
    pub gateway: Option<Ipv4Addr>,
    /// VXLAN only: must equal the VNI of the Linux side.
    pub vsid: Option<u32>,
    /// The physical adapter that the network was asked to use; if none, HNS chooses.
    pub adapter: Option<String>,
    /// Read-only: the host's address on the vSwitch, once it has one.
    pub management_ip: Option<Ipv4Addr>,
}

/// HNS varies the case of these; parsed values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkKind {
    Overlay,
    L2Bridge,
    L2Tunnel,
    Transparent,
    #[serde(rename = "NAT")]
    Nat,
    #[serde(rename = "ICS")]
    Ics,
    Private,
    Internal,
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlay => "Overlay",
            Self::L2Bridge => "L2Bridge",
            Self::L2Tunnel => "L2Tunnel",
            Self::Transparent => "Transparent",
            Self::Nat => "NAT",
            Self::Ics => "ICS",
            Self::Private => "Private",
            Self::Internal => "Internal",
        })
    }
}

impl Id {
    /// Created by the agent. The engine only deletes a wrong one, waits for the right one, or restores an original.
    pub const fn is_derived(&self) -> bool {
        matches!(self, Self::Network(_) | Self::Route(_) | Self::Adapter(_))
    }

    /// Belongs to the Node in the cluster, not to the machine.
    pub const fn is_in_cluster(&self) -> bool {
        matches!(self, Self::Cordon(_) | Self::Achieved(_) | Self::CalicoIsUp(_))
    }

    /// The path of a file, folder or tree.
    pub const fn path(&self) -> Option<&WinPath> {
        match self {
            Self::Dir(path) | Self::Tree(path) | Self::File(path) | Self::CniConf(path) => Some(path),
            _ => None,
        }
    }

    /// The word for its kind, as in `changes[].kind`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Dir(_) => "folder",
            Self::Tree(_) => "release",
            Self::File(_) | Self::CniConf(_) => "file",
            Self::RegValue { .. } => "registry",
            Self::Firewall(_) => "firewall",
            Self::Service(_) => "service",
            Self::DependsOn(_) => "dependencies",
            Self::Network(_) => "hns-network",
            Self::Route(_) => "route",
            Self::Adapter(_) => "adapter",
            Self::Running(_) => "running",
            Self::Cordon(_) => "cordon",
            Self::Achieved(_) => "annotation",
            Self::CalicoIsUp(_) => "condition",
        }
    }

    /// Its name on the machine, without its kind.
    pub fn target(&self) -> String {
        match self {
            Self::Dir(path) | Self::Tree(path) | Self::File(path) | Self::CniConf(path) => path.to_string(),
            Self::RegValue { key, name } => format!("HKLM\\{key}\\{name}"),
            Self::Route(prefix) => prefix.to_string(),
            Self::Firewall(name)
            | Self::Service(name)
            | Self::DependsOn(name)
            | Self::Network(name)
            | Self::Adapter(name)
            | Self::Running(name)
            | Self::Cordon(name)
            | Self::Achieved(name)
            | Self::CalicoIsUp(name) => name.clone(),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.target())
    }
}

impl State {
    /// Whether the observed state satisfies the wanted one. This is equality with two exceptions: an existing folder
    /// satisfies any access, unless it must be closed and others may write to it; and a network may have any value in
    /// fields that the wanted one leaves open, and any management IP.
    pub fn satisfies(&self, wanted: &Self) -> bool {
        fn open<T: PartialEq>(have: Option<&T>, want: Option<&T>) -> bool {
            want.is_none() || have == want
        }
        match (self, wanted) {
            (Self::Network(have), Self::Network(want)) => {
                have.kind == want.kind
                    && open(have.subnet.as_ref(), want.subnet.as_ref())
                    && open(have.gateway.as_ref(), want.gateway.as_ref())
                    && open(have.vsid.as_ref(), want.vsid.as_ref())
                    // Windows compares the names of adapters without case.
                    && open(have.adapter.as_deref().map(str::to_lowercase).as_ref(), want.adapter.as_deref().map(str::to_lowercase).as_ref())
            }
            (Self::Dir { access: have }, Self::Dir { access: want }) => match want {
                Access::Open(want) => {
                    matches!(have, Access::Open(have) if without_inherited_marks(have) == without_inherited_marks(want))
                }
                Access::Closed => !matches!(have, Access::Open(_)),
                Access::Inherited | Access::Administrators | Access::ClosedIfNew => true,
            },
            _ => self == wanted,
        }
    }
}

impl State {
    /// The name of its bytes in the store; none if it has none.
    pub fn name_in_store(&self) -> Option<String> {
        match self {
            Self::File { sha256, .. } | Self::Tree(Tree::Release(sha256)) => Some(sha256.to_string()),
            Self::Tree(Tree::Drifted { of, .. }) => Some(format!("drifted-{of}")),
            Self::Tree(Tree::Foreign) => Some(Tree::FOREIGN.into()),
            _ => None,
        }
    }
}

impl Tree {
    /// The name in the store of a folder that another program created.
    pub const FOREIGN: &'static str = "foreign";
}

/// An access list without the marks of inheritance: Windows does not keep all of them when it sets a list, and they
/// grant nothing.
fn without_inherited_marks(sddl: &str) -> String {
    let (owner, list) = sddl.split_once("D:").unwrap_or(("", sddl));
    let entries = list.split_once('(').map_or("", |(_, entries)| entries).split('(');
    let plain = |entry: &str| {
        let mut parts: Vec<&str> = entry.split(';').collect();
        if let Some(flags) = parts.get_mut(1) {
            *flags = flags.strip_suffix("ID").unwrap_or(flags);
        }
        parts.join(";")
    };
    [owner.to_owned()].into_iter().chain(entries.map(plain)).collect::<Vec<_>>().join("(")
}

/// The files of a release tree: its digest is computed from them, and drift is detected with them. Serialized as JSON
/// into the tree itself (see [`Manifest::FILE`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// For example `v3.32.1`.
    pub version: String,
    /// SHA-256 of the archive it came from, when it came from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Sha256>,
    /// Path below the tree's root (with `/`) to the file there.
    pub files: BTreeMap<String, ManifestFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub size: u64,
    pub sha256: Sha256,
}

impl Manifest {
    /// Name of the manifest inside a tree of ours.
    pub const FILE: &'static str = ".calicoctl-win-release.json";

    /// The digest that identifies this release: of version and files, not of their source.
    pub fn digest(&self) -> Sha256 {
        let mut text = format!("{}\n", self.version);
        for (path, file) in &self.files {
            text.push_str(&format!("{path} {} {}\n", file.size, file.sha256));
        }
        Sha256::of(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_satisfies_when_closed_or_with_the_same_open_access() {
        let dir = |access: &Access| State::Dir { access: access.clone() };
        let open = |list: &str| Access::Open(format!("O:BAD:{list}"));
        let users = open("AI(A;OICIID;FA;;;SY)(A;CIID;DC;;;BU)");
        for (have, want, serves) in [
            (&Access::Inherited, &Access::Closed, true),
            (&Access::Administrators, &Access::Closed, true),
            (&users, &Access::Closed, false),
            (&users, &Access::ClosedIfNew, true),
            // From a target in a generation of an earlier version.
            (&users, &Access::Inherited, true),
            (&Access::Closed, &users, false),
            (&Access::Inherited, &users, false),
            (&users, &users, true),
            (&open("(A;OICI;FA;;;SY)(A;CI;DC;;;BU)"), &users, true),
            (&open("AI(A;OICIID;FA;;;SY)(A;CIID;DC;;;AU)"), &users, false),
            (&open("AI(A;OICIID;FA;;;SY)(A;CIIOID;DC;;;BU)"), &users, false),
        ] {
            assert_eq!(dir(have).satisfies(&dir(want)), serves, "{have:?} for {want:?}");
        }
    }

    #[test]
    fn an_access_from_an_earlier_version_is_still_read() {
        for (text, access) in [("\"inherited\"", Access::Inherited), ("\"administrators\"", Access::Administrators)] {
            assert_eq!(serde_json::from_str::<Access>(text).unwrap(), access);
            assert_eq!(serde_json::to_string(&access).unwrap(), text);
        }
    }
}
