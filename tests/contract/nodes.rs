//! The nodes that the contract is held against.

use std::sync::{Mutex, MutexGuard, PoisonError};

use calicoctl_win::node::Node;
use calicoctl_win::node::sandbox::SandboxNode;
use tempfile::TempDir;

/// A node under test. The folder of a sandbox goes when this is dropped.
pub struct Tested {
    pub name: &'static str,
    pub node: Box<dyn Node>,
    _folder: Option<TempDir>,
}

/// The machine, for one story at a time: what one changes, another may be looking at. And Wine mixes up
/// the handles of threads that talk to its Service Control Manager at once (error 6), which the product
/// does from one thread.
pub fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a story on each node there is.
pub fn on_each(story: impl Fn(&mut dyn Node)) {
    let _one = cfg!(windows).then(alone);
    for mut tested in nodes() {
        println!("on the {}", tested.name);
        story(&mut *tested.node);
    }
}

/// The Windows machine alone, for what a folder cannot play.
#[cfg(windows)]
pub fn machine() -> Box<dyn Node> {
    calicoctl_win::node::machine().unwrap()
}

fn nodes() -> Vec<Tested> {
    let folder = TempDir::new().unwrap();
    let sandbox = SandboxNode::open(&folder.path().join("node")).unwrap();
    let mut nodes = vec![Tested { name: "sandbox", node: Box::new(sandbox), _folder: Some(folder) }];
    if cfg!(windows) {
        nodes.push(Tested { name: "machine", node: calicoctl_win::node::machine().unwrap(), _folder: None });
    }
    nodes
}
