//! The nodes under test.

use std::sync::{Mutex, MutexGuard, PoisonError};

use calicoctl_win::node::Node;
use calicoctl_win::node::sandbox::SandboxNode;
use tempfile::TempDir;

/// A node under test. The folder of a sandbox is deleted when this is dropped.
pub struct Tested {
    pub name: &'static str,
    pub node: Box<dyn Node>,
    _folder: Option<TempDir>,
}

/// The machine, for one story at a time, since stories change it. And Wine mixes up the handles of threads that use its
/// Service Control Manager at once (error 6); the product uses one thread.
pub fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a story on each available node.
pub fn on_each(story: impl Fn(&mut dyn Node)) {
    let _one = cfg!(windows).then(alone);
    for mut tested in nodes() {
        println!("on the {}", tested.name);
        story(&mut *tested.node);
    }
}

/// The Windows machine, for what the sandbox does not simulate.
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
