//! The vocabulary of the engine: an [`Id`] names one thing we manage on a node, a [`State`] is a
//! value it can have, and a [`World`] is a set of both. Absence is a value: `Option<State>`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{Cidr, Sha256, WinPath};

/// The address of one managed thing. Names of services, rules, networks and registry keys compare
/// without case on Windows; we always use the one spelling the field knows.
///
/// The order of the variants is the order in which things are made; they are unmade backwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// A folder made because something needs it; only removed when empty.
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
    /// What another product's service depends on, and nothing else of its definition. It is only there to
    /// lose the names of ours that go.
    DependsOn(String),
    /// An HNS network. Derived: the agent makes it, the engine deletes wrong ones and awaits.
    Network(String),
    /// A link-local route that the vSwitch would lose. Derived like the network.
    Route(Cidr),
    /// The IPv4 configuration of an adapter, by its interface alias. A vSwitch may lose it; derived
    /// like the network, and never removed.
    Adapter(String),
    /// The file that tells kubelet "CNI is ready"; published last, withdrawn first.
    CniConf(WinPath),
    /// Whether a service runs. Measured, never remembered.
    Running(String),
    /// That a Node takes no new pods. This and what follows is in the cluster; the name is the Node's.
    Cordon(String),
    /// The annotation of a Node with the digest of the settings that were achieved, for a fleet to see who is
    /// done.
    Achieved(String),
    /// The condition of a Node by which Calico says that its network is up. Calico's node startup makes it; it
    /// is only ever taken away.
    CalicoIsUp(String),
}

/// What one [`Id`] is, when it is there. Files are digests, never bytes, so a plan, a journal or a
/// receipt cannot leak what is in them.
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
        /// The run that is to undo it, as the Node says; none where somebody else cordoned it.
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
    /// What the folder it lies in gives.
    Inherited,
    /// SYSTEM and Administrators only.
    Administrators,
    /// Others may read it; only SYSTEM and Administrators may write. For folders.
    Closed,
    /// As `Closed` when it has to be made. One that is there stays as it is. Only ever wanted.
    ClosedIfNew,
    /// A folder in which others may write: owner and access list in SDDL, as they were found and can be
    /// given back.
    Open(String),
}

/// The contents of a swapped folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tree {
    /// A release of ours: the digest of its manifest (see [`Manifest`]).
    Release(Sha256),
    /// A release of ours in which files were changed, added to or lost since.
    Drifted { of: Sha256, files: Vec<String> },
    /// A folder that we did not make. It is moved aside as it is, and moved back.
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
}

/// How an adapter speaks IPv4. With DHCP, addresses and gateway are what the lease gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpConfig {
    pub dhcp: bool,
    pub addresses: Vec<Cidr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Servers that were set by hand; empty where DHCP names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<Ipv4Addr>,
    /// The interface metric; none where Windows chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// A service as the Service Control Manager defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    pub display_name: String,
    pub description: String,
    /// The command line, executable quoted when it has spaces.
    pub image_path: String,
    /// As `LocalSystem`.
    pub account: String,
    pub start: StartType,
    /// Services by their names, and load ordering groups with a `+` before theirs, as Windows has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Seconds to wait before each restart after a crash; empty leaves it stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart_after: Vec<u32>,
    /// What stands in the service's registry key `Parameters`, where NSSM keeps what it runs: name
    /// to value, with the subkey and `\` before the name where there is one (`AppExit\` is the
    /// default value of the subkey `AppExit`). Ours have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, RegValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartType {
    Auto,
    Manual,
    Disabled,
}

/// An HNS network, as seen and as wanted. A field that is none in what is wanted may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    pub kind: NetworkKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<Cidr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// VXLAN only: must equal the VNI of the Linux side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsid: Option<u32>,
    /// The physical adapter the network was asked to use; none lets HNS choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Read-only: the host's address on the vSwitch, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_ip: Option<Ipv4Addr>,
}

/// HNS spells these in varying case; we compare parsed values.
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
    /// Made by the agent, not by the engine, which only deletes a wrong one and awaits the right
    /// one (or puts an original back).
    pub const fn is_derived(&self) -> bool {
        matches!(self, Self::Network(_) | Self::Route(_) | Self::Adapter(_))
    }

    /// Of the Node in the cluster, and not of the machine.
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

    /// The word for its kind, as `changes[].kind` has it.
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

    /// What it is called on the machine, without its kind.
    pub fn target(&self) -> String {
        match self {
            Self::Dir(path) | Self::Tree(path) | Self::File(path) | Self::CniConf(path) => path.to_string(),
            Self::RegValue { key, name } => format!("HKLM\\{key}\\{name}"),
            Self::Firewall(name)
            | Self::Service(name)
            | Self::DependsOn(name)
            | Self::Network(name)
            | Self::Adapter(name)
            | Self::Running(name)
            | Self::Cordon(name)
            | Self::Achieved(name)
            | Self::CalicoIsUp(name) => name.clone(),
            Self::Route(prefix) => prefix.to_string(),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.target())
    }
}

impl State {
    /// Whether what is there serves what is wanted. Equality, but a folder that is there is good enough whoever
    /// may read it, as long as others may not write where it is to be closed; and of a network the fields that
    /// the wanting side leaves open may be anything; its management IP never counts.
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
                Access::Open(want) => matches!(have, Access::Open(have) if essence(have) == essence(want)),
                Access::Closed => !matches!(have, Access::Open(_)),
                Access::Inherited | Access::Administrators | Access::ClosedIfNew => true,
            },
            _ => self == wanted,
        }
    }
}

impl State {
    /// The name by which the store has its bytes; none where there are none.
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
    /// The name by which the store has a folder that we did not make.
    pub const FOREIGN: &'static str = "foreign";
}

/// An access list without the marks of what was inherited: Windows does not keep all of them where a list
/// is set, and they give nobody anything.
fn essence(sddl: &str) -> String {
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

/// The files of a release tree, from which its digest comes and with which drift is found.
/// Serialised as JSON into the tree itself (see [`Manifest::FILE`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// As `v3.32.1`.
    pub version: String,
    /// SHA-256 of the archive it came from, when it came from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Sha256>,
    /// Path below the tree's root (with `/`) to what is there.
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

    /// The digest that names this release: over version and files, not over where it came from.
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
    fn a_folder_is_as_wanted_when_nobody_else_may_write_or_when_it_is_as_open_as_it_was() {
        let dir = |access: &Access| State::Dir { access: access.clone() };
        let open = |list: &str| Access::Open(format!("O:BAD:{list}"));
        let users = open("AI(A;OICIID;FA;;;SY)(A;CIID;DC;;;BU)");
        for (have, want, serves) in [
            (&Access::Inherited, &Access::Closed, true),
            (&Access::Administrators, &Access::Closed, true),
            (&users, &Access::Closed, false),
            (&users, &Access::ClosedIfNew, true),
            // As the target of a generation of before says.
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
    fn an_access_of_before_is_read_as_it_was_written() {
        for (text, access) in [("\"inherited\"", Access::Inherited), ("\"administrators\"", Access::Administrators)] {
            assert_eq!(serde_json::from_str::<Access>(text).unwrap(), access);
            assert_eq!(serde_json::to_string(&access).unwrap(), text);
        }
    }
}
