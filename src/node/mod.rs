//! The only trait: a node whose items are read and changed one at a time.

pub mod acl;
pub mod arguments;
pub mod containerd;
pub mod event_log;
pub mod files;
pub mod firewall;
pub mod hns;
pub mod limits;
pub mod probe;
pub mod program;
pub mod record;
pub mod recovery;
pub mod sandbox;
#[cfg_attr(not(windows), allow(dead_code, reason = "a sandbox starts no processes"))]
mod service_log;
pub mod survey;
pub mod trust;
pub mod win32;
#[cfg(windows)]
pub mod windows;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::NodeFacts;
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, Network, State};
use crate::values::WinPath;

use acl::Caller;
use probe::Probe;
use trust::Rights;

/// What a service really runs, also with NSSM. In `calico`, since `plan` shows it too.
pub use crate::calico::nssm;
pub use crate::paths::STATE_DIR;

/// A Windows node: the machine itself, or a folder that behaves like one.
///
/// It handles primitives only. Callers decide what to change, in which order, and what to record.
pub trait Node {
    /// Measures the machine.
    fn facts(&self) -> Result<NodeFacts>;

    /// The identity of this boot, as in the facts. Asks nothing else: HNS may be busy.
    fn boot_id(&self) -> Result<String>;

    /// The current state of an item; none if it does not exist.
    fn get(&self, id: &Id) -> Result<Option<State>>;

    /// Sets an item's state, or removes the item. Returns when the change has taken effect: a stopped service's process
    /// has ended, a deleted name is free. Putting the current state is fine. Removing a folder that is not empty does
    /// nothing: its contents belong to somebody else.
    ///
    /// Its errors name the operation and the item: `start service CalicoFelix: …`.
    ///
    /// The bytes of a file come from the store by their digest, and so does a release tree.
    fn put(&mut self, id: &Id, state: Option<&State>) -> Result<Put>;

    /// Deletes our HNS networks from before a reboot that `stale` selects, by their ids, with their endpoints: no other
    /// process may create or change networks meanwhile. `before` gets the endpoints of running pods. Returns the
    /// networks' names. [`Node::put`] refuses while pods are attached.
    fn remove_stale_networks(
        &mut self,
        stale: &dyn Fn(&str, &Network) -> bool,
        before: EndpointCallback<'_>,
    ) -> Result<Vec<String>>;

    /// What HNS shows of a network besides its definition; none if there is no such network.
    fn network_details(&self, name: &str) -> Result<Option<NetworkDetails>>;

    /// Replaces the ACLs of an HNS endpoint by ACLs that allow everything. A missing endpoint is fine.
    fn let_all_through(&mut self, endpoint: &str) -> Result<()>;

    /// Every HNS endpoint; none if HNS is not installed.
    fn endpoints(&self) -> Result<Vec<hns::Endpoint>>;

    /// What HNS answers to a GET of this path, for example `/networks/`, as it is. The inner error is HNS's own.
    ///
    /// Fails if HNS is not installed or does not answer.
    fn ask_hns(&self, path: &str) -> Result<Result<serde_json::Value, hns::Refusal>>;

    /// Tries how Windows behaves. Returns the Windows error that the attempt ends with; none if Windows allowed it.
    fn probe(&mut self, probe: &Probe) -> Result<Option<u32>>;

    /// The ids of the running containers, including pod sandboxes, in lower case.
    fn containers(&self) -> Result<BTreeSet<String>>;

    /// Deletes an HNS endpoint by its id. A missing one is fine.
    fn delete_endpoint(&mut self, id: &str) -> Result<()>;

    /// All items of a kind: every HNS network, firewall rule or service on the machine.
    fn list(&self, kind: Listing) -> Result<Vec<(Id, State)>>;

    /// The services that depend on this one, also indirectly, running or not; none if there is no such service.
    fn dependents(&self, service: &str) -> Result<Vec<String>>;

    /// Starts the automatic services that depend on this one, also indirectly, and that Windows gave up to start because
    /// a dependency failed (1068). One that was stopped stays so. Does not wait until they run. Returns their names.
    fn start_stranded(&mut self, service: &str) -> Result<Vec<String>>;

    /// Whether a service starts, runs or stops, as the Service Control Manager has it; none if there is no such service.
    fn service_state(&self, service: &str) -> Result<Option<ServiceState>>;

    /// The process of a service that is not stopped; none if it is.
    fn process(&self, service: &str) -> Result<Option<Process>>;

    /// The processes whose program has this file name, in any case: `kubelet.exe`.
    fn processes(&self, image: &str) -> Result<Vec<Process>>;

    /// The files below a folder that a process has open, except this one, `besides`, and what these started: Windows
    /// renames no folder with such a file.
    fn open_files(&self, folder: &WinPath, besides: &[Process]) -> Result<Vec<OpenFile>>;

    /// Whether a process still runs. Cheaper than [`Self::processes`].
    fn runs(&self, process: &Process) -> Result<bool>;

    /// Whether a neighbour on one of the machine's links, such as a gateway, answers now: it is asked for its hardware
    /// address, which no packet filter blocks.
    fn answers(&self, neighbour: Ipv4Addr) -> Result<bool>;

    /// Opens a TCP connection from this machine, and closes it. Returns why there is none within the limit, as agnhost
    /// says it: `TIMEOUT`, `REFUSED`, or `OTHER` and the reason.
    fn connect(&self, to: SocketAddrV4, limit: Duration) -> Result<Option<String>>;

    /// The other ends of the TCP connections of BGP, of which either end has port 179: the peers to which Windows has a
    /// session.
    fn bgp_sessions(&self) -> Result<BTreeSet<Ipv4Addr>>;

    /// The newest entries of Windows' event logs about Calico, newest first: this program's, and those about services that
    /// Calico needs.
    fn events(&self) -> Result<Vec<event_log::LoggedEvent>>;

    /// The file on this machine to install as our executable.
    fn executable(&self) -> Result<PathBuf>;

    /// The output of a program on this machine when started with these arguments; none if such a program cannot run: a
    /// sandbox knows its stand-ins, but runs no Windows program.
    ///
    /// Fails if it does not start, or ends with an error.
    fn ask(&self, program: &Path, words: &[&str]) -> Result<Option<String>>;

    /// The versions of the CNI specification that a plugin on this machine supports, as it answers itself.
    ///
    /// Fails if it does not start, or gives no answer.
    fn cni_versions(&self, plugin: &Path) -> Result<Vec<String>>;

    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Lets time pass. The sandbox moves its own clock.
    fn pause(&mut self, time: Duration);

    /// The account that runs this program.
    fn caller(&self) -> Caller;

    /// The access rights of a file or folder; of a link, those of the link itself; none for a place that is not on this
    /// node's disk.
    fn rights(&self, place: &Path) -> Result<Option<Rights>>;

    /// A path of the node as a path for [`std::fs`].
    fn disk(&self, path: &WinPath) -> PathBuf;

    /// Replaces a file of our own atomically: written beside it, flushed, renamed.
    fn save(&mut self, path: &WinPath, bytes: &[u8], access: Access) -> Result<()>;

    /// Appends a line to a file of our own and flushes it to the disk before returning.
    fn append(&mut self, path: &WinPath, line: &str) -> Result<()>;

    /// Removes a file of our own, or a folder with all that is in it.
    fn remove(&self, path: &WinPath) -> Result<()>;

    /// From now on sets `changed` when a change of the node begins, except of our own records below [`STATE_DIR`].
    fn watch(&mut self, changed: Arc<AtomicBool>);

    /// Makes one of our folders safe if accounts other than administrators created it or may write to it. A folder that
    /// is, or may be, somebody else's is renamed and created again; one that an administrator opened is closed, with
    /// its contents. Returns what was wrong and what was done; none if nothing was wrong, or if there is no such
    /// folder.
    ///
    /// Fault `UnsafeFolder`, with nothing changed, for a link, for a folder that cannot be renamed, and for an
    /// administrator's folder with contents that others created or may change: whether those are still ours is unknown.
    fn secure(&mut self, folder: &WinPath) -> Result<Option<String>>;

    /// Restarts Windows, in half a minute at the latest, and tells the logged-on users why.
    fn restart(&self, why: &str) -> Result<()>;
}

/// What [`Node::put`] has to tell besides.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// What could only be renamed instead of removed, since it runs: it is deleted when Windows starts next.
    pub left_until_reboot: Option<WinPath>,
    /// The service is deleted, but programs have it open: its name is free when the last of them closes it.
    pub name_held: bool,
    /// The host's address that no adapter has yet, some minutes after the network that had it was deleted.
    pub address_away: Option<Ipv4Addr>,
}

impl Put {
    /// A put that left this file or folder, if any.
    pub fn leaving(left_until_reboot: Option<WinPath>) -> Self {
        Self { left_until_reboot, ..Self::default() }
    }
}

/// The Service Control Manager's state of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    Stopped,
    /// It has a process, and has not said that it runs.
    Starting,
    Running,
    Stopping,
    /// Paused, or about to be.
    Paused,
}

/// The kinds that [`Node::list`] can enumerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    Networks,
    FirewallRules,
    Services,
    /// The IPv4 routes of the active store.
    Routes,
    /// The IPv4 configuration of every adapter that is up.
    Adapters,
}

/// The HNS details of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkDetails {
    /// The MAC of its distributed router, for example `00:15:5d:64:51:0e`: other nodes send the traffic for pods here
    /// to it. Overlay networks have one.
    pub dr_mac: Option<String>,
    /// The names of its endpoints.
    pub endpoints: Vec<String>,
    /// Version 2 of HNS does not show it, so that Calico and kube-proxy do not find it (projectcalico/calico#9120).
    pub unseen_by_v2: bool,
}

/// A process. Its id is reused after its end; id and start time together are unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: u32,
    /// Its start time, if known.
    pub since: Option<Timestamp>,
}

/// A file that a process has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFile {
    pub path: WinPath,
    /// The process, for people: `fluent-bit.exe (process 4312)`.
    pub by: String,
}

/// The machine that this program runs on.
///
/// # Errors
/// `UNSUPPORTED` if it is not Windows, or if its Windows is not on drive C:.
#[cfg(windows)]
pub fn machine() -> Result<Box<dyn Node>> {
    windows::os::refuse_another_drive()?;
    Ok(Box::new(windows::WindowsNode::default()))
}

/// The machine that this program runs on.
///
/// # Errors
/// `UNSUPPORTED` if it is not Windows.
#[cfg(not(windows))]
pub fn machine() -> Result<Box<dyn Node>> {
    Err(Fault::new(Exit::Unsupported, "NotWindows", "this machine is not Windows")
        .hint("try it on a sandbox node in a folder: calicoctl-win install --sandbox DIR --yes")
        .into())
}

/// A callback for endpoints that will be deleted.
pub type EndpointCallback<'a> = &'a mut dyn FnMut(&mut dyn Node, Vec<hns::Endpoint>) -> Result<()>;

/// The path of the CNI configuration while CalicoNode withdraws it because the network is not up: beside its place,
/// with a name that no container runtime reads. To all other code it is still [`Id::CniConf`].
pub fn withdrawn(conf: &WinPath) -> WinPath {
    let name = format!("{}.withdrawn", conf.name());
    conf.parent().map_or_else(|| conf.clone(), |folder| folder.join(&name))
}

/// Whether a file is part of the node and not one of our records.
fn is_of_node(path: &WinPath) -> bool {
    !path.is_below(&WinPath::known(STATE_DIR))
}

/// Whether a put may only be about a registry key: that of a value which is not there. An empty key means nothing.
const fn is_key_alone(id: &Id, state: Option<&State>) -> bool {
    matches!(id, Id::RegValue { .. }) && state.is_none()
}

/// What CalicoNode's agent saved of the host's network. It replaces the file when needed, also during a run: Windows
/// starts both.
pub const SAVED_NETWORK: &str = r"C:\ProgramData\calicoctl-win\node.save";

/// Blobs by digest: `blobs\<sha256>` for files, `trees\<sha256>` and `trees\foreign` for trees.
pub const STORE_DIR: &str = r"C:\ProgramData\calicoctl-win\store";

/// One of our folders is not safe to use, and why.
fn unsafe_folder(folder: &WinPath, why: &str) -> Fault {
    Fault::new(Exit::UntrustedFile, "UnsafeFolder", format!("{folder} cannot be trusted: {why}"))
        .hint("look who made it and what is in it; then remove it, or what is named here, and run the command again")
}
