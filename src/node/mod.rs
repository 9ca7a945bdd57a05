//! The one trait: a node that can be looked at and changed, one item at a time.

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
pub mod win32;
#[cfg(windows)]
pub mod windows;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::NodeFacts;
use crate::fault::{Exit, Fault};
use crate::plan::item::{Access, Id, State};
use crate::values::WinPath;

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

    /// Deletes an HNS network of ours from before a reboot, with the endpoints that HNS kept on it: no
    /// container of theirs lives any more. [`Node::put`] refuses while pods are attached.
    fn remove_stale_network(&mut self, name: &str) -> Result<()>;

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

    /// Where a path of the node lies for [`std::fs`].
    fn disk(&self, path: &WinPath) -> PathBuf;

    /// Replaces a file of our own in one step: written beside it, flushed, renamed over.
    fn save(&mut self, path: &WinPath, bytes: &[u8], access: Access) -> Result<()>;

    /// Adds a line to a file of our own and flushes it to the disk before returning.
    fn append(&mut self, path: &WinPath, line: &str) -> Result<()>;

    /// Makes a folder of ours safe in which others than administrators may write, with all that is
    /// in it. Gives what was wrong; none when nothing was, or when there is no such folder.
    ///
    /// Fault `UnsafeFolder`, with nothing changed, for a link and for a folder that holds what others
    /// made or may change: nobody can know whether that is still ours.
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

/// Where our own state lies on the node. SYSTEM and Administrators only.
pub const STATE_DIR: &str = r"C:\ProgramData\calicoctl-win";

/// What CalicoNode's agent saved of the host's network. It replaces the file as it needs, also while a run
/// is under way: Windows starts both.
pub const SAVED_NETWORK: &str = r"C:\ProgramData\calicoctl-win\node.save";

/// Blobs by digest: `blobs\<sha256>` for files, `trees\<sha256>` and `trees\foreign` for trees.
pub const STORE_DIR: &str = r"C:\ProgramData\calicoctl-win\store";

/// A folder of ours that is not safe to use, and why.
fn unsafe_folder(folder: &WinPath, why: &str) -> Fault {
    Fault::new(Exit::Conflict, "UnsafeFolder", format!("{folder} cannot be trusted: {why}"))
        .hint("look who made it and what is in it; then remove it, or what is named here, and run the command again")
}
