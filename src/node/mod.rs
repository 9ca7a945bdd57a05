//! The one trait: a node that can be looked at and changed, one item at a time.

pub mod acl;
pub mod arguments;
pub mod containerd;
pub mod files;
pub mod firewall;
pub mod hns;
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
use std::net::Ipv4Addr;
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
use trust::Rights;

/// What a service really runs, NSSM followed; `plan` shows it too, so it lies with Calico's facts.
pub use crate::calico::nssm;

/// A Windows node: the machine itself, or a folder that behaves like one.
///
/// It holds primitives only. What to change, in which order and what to remember is decided above.
pub trait Node {
    /// Measures the machine.
    fn facts(&self) -> Result<NodeFacts>;

    /// What an item is now; none when it is not there.
    fn get(&self, id: &Id) -> Result<Option<State>>;

    /// Makes an item so, or removes it. Returns when it has taken effect: a stopped service's
    /// process is gone, a deleted name is free. Putting what is already there is fine. A folder
    /// that is not empty stays when it is to go: what is in it belongs to somebody else.
    ///
    /// Its errors say what was to be done to what: `start service CalicoFelix: …`.
    ///
    /// The bytes of a file come from the store by their digest, and so does a release tree.
    fn put(&mut self, id: &Id, state: Option<&State>) -> Result<()>;

    /// Deletes the HNS networks of ours that `stale` means, from before a reboot, by their ids, with the
    /// endpoints that are on them: nobody makes or changes networks between the look and the end. `before` is
    /// told of the endpoints of pods that run. Gives the networks' names. [`Node::put`] refuses while pods are
    /// attached.
    fn remove_stale_networks(
        &mut self,
        stale: &dyn Fn(&str, &Network) -> bool,
        before: TellOfEndpoints<'_>,
    ) -> Result<Vec<String>>;

    /// What HNS shows of a network besides its definition; none when there is no such network.
    fn network_details(&self, name: &str) -> Result<Option<NetworkDetails>>;

    /// Replaces the ACLs of an HNS endpoint by such as let everything through. One that is gone is fine.
    fn let_all_through(&mut self, endpoint: &str) -> Result<()>;

    /// Every HNS endpoint; none where HNS is not installed.
    fn endpoints(&self) -> Result<Vec<hns::Endpoint>>;

    /// The ids of the containers that run, pod sandboxes among them, in lower case.
    fn containers(&self) -> Result<BTreeSet<String>>;

    /// Deletes an HNS endpoint by its id. One that is not there is fine.
    fn delete_endpoint(&mut self, id: &str) -> Result<()>;

    /// What of a kind is there: every HNS network, firewall rule or service on the machine.
    fn list(&self, kind: Listing) -> Result<Vec<(Id, State)>>;

    /// The services that depend on this one, also by way of others, whether they run or not; none when
    /// there is no such service.
    fn dependents(&self, service: &str) -> Result<Vec<String>>;

    /// The process of a running service; none when it does not run.
    fn process(&self, service: &str) -> Result<Option<Process>>;

    /// The processes whose program has this file name, in whatever case: `kubelet.exe`.
    fn processes(&self, image: &str) -> Result<Vec<Process>>;

    /// Whether a process still runs. Cheaper than [`Self::processes`].
    fn runs(&self, process: &Process) -> Result<bool>;

    /// Whether a neighbour on one of the machine's links, as a gateway, answers now: it is asked for its
    /// hardware address, which no filter for packets forbids.
    fn answers(&self, neighbour: Ipv4Addr) -> Result<bool>;

    /// The file on this machine that is to be installed as our executable.
    fn executable(&self) -> Result<PathBuf>;

    /// What a program on this machine answers when it is started with these words; none where its
    /// kind cannot run: a sandbox knows its stand-ins, but runs no Windows program.
    ///
    /// Fails when it does not run, or ends with an error.
    fn ask(&self, program: &Path, words: &[&str]) -> Result<Option<String>>;

    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Lets time pass. The sandbox moves its own clock.
    fn pause(&mut self, time: Duration);

    /// Who runs this program.
    fn caller(&self) -> Caller;

    /// Who may do what to a file or folder, of a link to the link itself; none for a place that is not on
    /// this node's disk.
    fn rights(&self, place: &Path) -> Result<Option<Rights>>;

    /// Where a path of the node lies for [`std::fs`].
    fn disk(&self, path: &WinPath) -> PathBuf;

    /// Replaces a file of our own in one step: written beside it, flushed, renamed over.
    fn save(&mut self, path: &WinPath, bytes: &[u8], access: Access) -> Result<()>;

    /// Adds a line to a file of our own and flushes it to the disk before returning.
    fn append(&mut self, path: &WinPath, line: &str) -> Result<()>;

    /// Removes a file of our own.
    fn remove(&self, path: &WinPath) -> Result<()>;

    /// From here on says in `changed` that something on the node was changed, or begun to be: not our
    /// own records below [`STATE_DIR`].
    fn watch(&mut self, changed: Arc<AtomicBool>);

    /// Makes a folder of ours safe that others than administrators made, or in which they may write. One
    /// that is, or may be, somebody else's is renamed away and made again; one that an administrator opened
    /// is closed with all that is in it. Gives what was wrong and what was done; none when nothing was
    /// wrong, or when there is no such folder.
    ///
    /// Fault `UnsafeFolder`, with nothing changed, for a link, for a folder that cannot be renamed away, and
    /// for one of an administrator's that holds what others made or may change: nobody can know whether
    /// that is still ours.
    fn secure(&mut self, folder: &WinPath) -> Result<Option<String>>;

    /// What this node was asked to remove and could only rename away, since it runs: it goes when
    /// Windows starts next.
    fn left_until_reboot(&self) -> &[WinPath];

    /// Has Windows restart, in half a minute at the latest, and tells who is logged on why.
    fn restart(&self, why: &str) -> Result<()>;

    /// The settings of services that were to be put and that this Windows does not know. It was done
    /// without them: none decides whether a service works.
    fn unknown_settings(&self) -> &[&'static str];
}

/// What [`Node::list`] can enumerate.
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

/// What HNS made of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkDetails {
    /// The MAC of its distributed router, as `00:15:5d:64:51:0e`: where other nodes send what is for pods
    /// here. Overlay networks have one.
    pub dr_mac: Option<String>,
    /// The names of its endpoints.
    pub endpoints: Vec<String>,
}

/// A process. Its id is used again after its end; id and time of start together are not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: u32,
    /// When it started, where that is known.
    pub since: Option<Timestamp>,
}

/// The machine that this program runs on.
///
/// # Errors
/// `UNSUPPORTED` where it is not Windows.
#[cfg(windows)]
pub fn machine() -> Result<Box<dyn Node>> {
    Ok(Box::new(windows::WindowsNode::default()))
}

/// The machine that this program runs on.
///
/// # Errors
/// `UNSUPPORTED` where it is not Windows.
#[cfg(not(windows))]
pub fn machine() -> Result<Box<dyn Node>> {
    Err(Fault::new(Exit::Unsupported, "NotWindows", "this machine is not Windows")
        .hint("try it on a sandbox node in a folder: calicoctl-win install --sandbox DIR --yes")
        .into())
}

/// Who is told of endpoints before they go.
pub type TellOfEndpoints<'a> = &'a mut dyn FnMut(&mut dyn Node, Vec<hns::Endpoint>) -> Result<()>;

/// Where CalicoNode keeps the CNI configuration while no network stands behind it: beside its place, under a
/// name that no container runtime reads. To everybody else it is [`Id::CniConf`] all the same.
pub fn withdrawn(conf: &WinPath) -> WinPath {
    let name = format!("{}.withdrawn", conf.name());
    conf.parent().map_or_else(|| conf.clone(), |folder| folder.join(&name))
}

/// Where our own state lies on the node. SYSTEM and Administrators only.
pub const STATE_DIR: &str = r"C:\ProgramData\calicoctl-win";

/// Whether a file is no record of ours, but part of the node.
fn is_of_node(path: &WinPath) -> bool {
    !path.is_below(&WinPath::known(STATE_DIR))
}

/// Whether a put may be for a registry key only: that of a value which is not there. An empty key says
/// nothing to anybody.
const fn is_key_alone(id: &Id, state: Option<&State>) -> bool {
    matches!(id, Id::RegValue { .. }) && state.is_none()
}

/// What CalicoNode's agent saved of the host's network. It replaces the file as it needs, also while a run
/// is under way: Windows starts both.
pub const SAVED_NETWORK: &str = r"C:\ProgramData\calicoctl-win\node.save";

/// Blobs by digest: `blobs\<sha256>` for files, `trees\<sha256>` and `trees\foreign` for trees.
pub const STORE_DIR: &str = r"C:\ProgramData\calicoctl-win\store";

/// A folder of ours that is not safe to use, and why.
fn unsafe_folder(folder: &WinPath, why: &str) -> Fault {
    Fault::new(Exit::UntrustedFile, "UnsafeFolder", format!("{folder} cannot be trusted: {why}"))
        .hint("look who made it and what is in it; then remove it, or what is named here, and run the command again")
}
