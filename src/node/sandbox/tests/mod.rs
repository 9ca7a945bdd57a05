//! The sandbox as its users see it: it follows Windows's rules.

mod files;
mod networks;
mod node_yaml;
mod on_demand;
mod services;

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::faults::{Crash, SandboxFaults};
use super::model::NodeService;
use super::*;
use crate::facts::Features;
use crate::fault::{Exit, Fault as Failure};
use crate::item::{Manifest, ManifestFile, Network, NetworkKind, RegValue, StartType, Tree};
use crate::node::{Put, STORE_DIR};
use crate::values::Sha256;

/// A new node in its own folder.
fn node() -> (TempDir, SandboxNode) {
    let dir = TempDir::new().unwrap();
    let node = SandboxNode::open(dir.path()).unwrap();
    (dir, node)
}

fn path(text: &str) -> WinPath {
    WinPath::known(text)
}

/// Stores bytes, as the engine does, and returns the state with them.
fn blob(node: &mut SandboxNode, bytes: &[u8], access: Access) -> State {
    let sha256 = Sha256::of(bytes);
    node.save(&path(STORE_DIR).join("blobs").join(sha256.as_str()), bytes, Access::Administrators).unwrap();
    State::File { sha256, access }
}

fn service(exe: &str, depends_on: &[&str]) -> State {
    State::Service(Box::new(Service {
        display_name: "x".into(),
        description: "x".into(),
        image_path: format!("\"{exe}\" service run"),
        account: "LocalSystem".into(),
        start: StartType::Auto,
        depends_on: depends_on.iter().map(|s| (*s).to_owned()).collect(),
        restart_after: vec![5],
        recovery: None,
        parameters: Default::default(),
    }))
}

fn overlay(subnet: &str, vsid: u32) -> State {
    State::Network(Network {
        kind: NetworkKind::Overlay,
        subnet: Some(subnet.parse().unwrap()),
        gateway: None,
        vsid: Some(vsid),
        adapter: None,
        management_ip: None,
    })
}

fn running(name: &str) -> Id {
    Id::Running(name.into())
}

/// What an error says and, where it is known, its id.
fn said(result: Result<impl std::fmt::Debug>) -> String {
    let error = result.unwrap_err();
    let id = error.downcast_ref::<Failure>().map_or("-", |fault| fault.id);
    format!("{id}: {error:#}")
}

fn yaml(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join("node.yaml")).unwrap()
}
