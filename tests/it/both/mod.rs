//! Stories that a real cluster and the sandbox's own tell alike. They run here on the sandbox's, and in `real` on
//! kube-apiserver.

pub mod failed;
pub mod kept;
pub mod life;
pub mod refused;
mod sandbox;

use std::fs::File;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use calicoctl_win::sandbox::cluster::Layout;
use http::Method;
use serde_json::{Value, json};

use crate::lab::{Lab, Output};

pub const NODE: &str = "win-a1";

/// A user with exactly the rights of docs/rbac.yaml.
pub const OPERATOR: &str = "operator";

/// What a cluster is to have.
#[derive(Clone, Copy)]
pub struct Kind {
    pub layout: Layout,
    /// Where Calico's DaemonSet and accounts are.
    pub namespace: &'static str,
}

impl Kind {
    /// The release of Calico that the cluster runs.
    pub const fn release(self) -> &'static str {
        match self.layout {
            Layout::V1 => "v3.31.7",
            Layout::V3 => "v3.33.0",
        }
    }
}

pub const V1: Kind = Kind { layout: Layout::V1, namespace: "calico-system" };

/// A request that was answered.
#[derive(Debug)]
pub struct Asked {
    /// As in a role.
    pub verb: String,
    pub uri: String,
}

/// A cluster with Calico on its Linux nodes, and a sandbox node that has joined it. `kubeconfig` next to the sandbox is
/// the operator's.
pub trait Joined {
    fn lab(&self) -> &Lab;

    fn kind(&self) -> Kind;

    /// An object, as an administrator sees it.
    fn get(&self, path: &str) -> Value;

    /// An administrator's change.
    fn change(&self, method: &Method, path: &str, body: &Value);

    /// Waits until three pods of the Deployment `web` and one of the DaemonSet run on the node.
    fn bind_pods(&self);

    /// Runs it, and returns what the operator asked the server meanwhile; or the node itself. None of it may be
    /// immodest, where that can be seen.
    fn asked(&self, by_node: bool, run: impl FnOnce() -> Output) -> (Output, Vec<Asked>);

    fn patch(&self, path: &str, patch: &Value) {
        self.change(&Method::PATCH, path, patch);
    }

    /// Runs `calicoctl-win WORDS` on the node as the operator.
    fn run(&self, words: &str) -> Output {
        self.lab().alone(&with_access(words))
    }

    /// The same with a fault of the node.
    fn fails_at(&self, fault: &str, words: &str) -> Output {
        let words = with_access(words);
        let mut command = self.lab().command(&words);
        command.args(["--sandbox", "node"]).env("CALICO_WIN_SANDBOX_FAULT", fault);
        Output::of(&words, command)
    }

    /// Starts it; its output goes to the file `said`.
    fn begin(&self, words: &str) -> Child {
        let mut command = self.lab().command(&with_access(words));
        let out = File::create(self.lab().path("said")).unwrap();
        let err = out.try_clone().unwrap();
        command.args(["--sandbox", "node"]).stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap()
    }

    /// Writes the config: this release, and where Calico is.
    fn config(&self, release: &str) {
        let config = format!(
            "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec:\n  calico: {{version: {release}}}\n  \
             kubernetes: {{calicoNamespace: {}}}\n",
            self.kind().namespace
        );
        self.lab().write("config.yaml", config);
    }

    fn release(&self) -> &'static str {
        self.kind().release()
    }

    fn node(&self) -> Value {
        self.get(&format!("/api/v1/nodes/{NODE}"))
    }

    fn cordoned(&self) -> bool {
        self.node()["spec"]["unschedulable"] == true
    }

    /// Somebody cordons the node, or uncordons it.
    fn schedulable(&self, is: bool) {
        self.patch(&format!("/api/v1/nodes/{NODE}"), &json!({ "spec": { "unschedulable": !is } }));
    }
}

/// The words of a command with the operator's access and, where the verb reads one, the config.
fn with_access(words: &str) -> String {
    let reads = ["cluster check", "install", "preflight", "reconfigure"].iter().any(|verb| words.starts_with(verb));
    format!("{words} --kubeconfig kubeconfig{}", if reads { " -c config.yaml" } else { "" })
}

/// Polls until it is so.
#[track_caller]
fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(300), "waited for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
