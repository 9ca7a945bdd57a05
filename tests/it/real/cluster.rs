//! A real cluster with Calico on its Linux nodes and a Windows node that has joined.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use calicoctl_win::sandbox::cluster::{Layout, Seed};
use http::Method;
use serde_json::Value;

use super::api_server::{ApiServer, until};
use super::audit::are_modest;
use super::parts::part;
pub use crate::both::{Asked, Joined, Kind, NODE, OPERATOR, V1};
use crate::lab::{Lab, Output};

/// Another user with the same rights.
pub const NEIGHBOUR: &str = "neighbour";

/// kubelet of the node.
pub const KUBELET: &str = "kubelet-of-win-a1";

pub const V3: Kind = Kind { layout: Layout::V3, namespace: "kube-system" };

/// One cluster at a time: a machine of two cores is slow with several.
static TURN: Mutex<()> = Mutex::new(());

pub struct RealCluster {
    pub server: ApiServer,
    pub lab: Lab,
    kind: Kind,
    _turn: MutexGuard<'static, ()>,
}

impl RealCluster {
    /// Starts one, with a sandbox node that has joined it. None if a program was not built.
    pub fn start(kind: Kind) -> Option<Self> {
        let (manager, kubemark, _kubectl) = (part("kube-controller-manager")?, part("kubemark")?, part("kubectl")?);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let users = format!(
            "{OPERATOR},{OPERATOR},{OPERATOR},\"calicoctl-win\"\n{NEIGHBOUR},{NEIGHBOUR},{NEIGHBOUR},\"calicoctl-win\"\n{KUBELET},system:node:{NODE},{KUBELET},\"system:nodes\"\n"
        );
        let mut server = ApiServer::with_users(&users)?;
        server.control(&manager);
        let lab = Lab::new();
        let mut cluster = Self { server, lab, kind, _turn: turn };
        let wanted = Seed { layout: kind.layout, calico: kind.release().into(), ..Seed::new(NODE) };
        cluster.server.define(kind.layout);
        cluster.server.seed(&wanted, kind.namespace);
        cluster.join(&kubemark);
        cluster.lab.write("kubeconfig", cluster.server.kubeconfig_of(OPERATOR));
        cluster.bind_pods();
        Some(cluster)
    }

    /// kubelet's own code registers the node and runs its pods, without containers. It says that it is Linux.
    fn join(&mut self, kubemark: &Path) {
        self.server.on_windows(None);
        let kubeconfig = self.server.file("kubelet-kubeconfig");
        fs::write(&kubeconfig, self.server.kubeconfig_of(KUBELET)).unwrap();
        let node = self.server.start_kubemark(kubemark, NODE, &kubeconfig);
        // The machine has the addresses that kubelet found on this host.
        let addresses = node["status"]["addresses"].as_array().unwrap();
        let internal = addresses.iter().find(|one| one["type"] == "InternalIP").unwrap();
        let address = internal["address"].as_str().unwrap().to_owned();
        let _made = self.lab.alone("service status --kubeconfig kubeconfig").code;
        self.lab.edit_yaml(|yaml| yaml.replace("10.20.0.21/24", &format!("{address}/24")));
        let own = self.server.kubeconfig_of(KUBELET);
        fs::create_dir_all(self.lab.on_node("C/k")).unwrap();
        fs::write(self.lab.on_node("C/k/config"), own).unwrap();
    }

    /// Runs kubectl with all rights; it must succeed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        self.server.kubectl(arguments, input)
    }
}

impl Joined for RealCluster {
    fn lab(&self) -> &Lab {
        &self.lab
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn get(&self, path: &str) -> Value {
        self.server.get(path)
    }

    fn change(&self, method: &Method, path: &str, body: &Value) {
        let client = self.server.client();
        match *method {
            Method::POST => drop(client.post::<_, Value>(path, body).unwrap()),
            Method::DELETE => drop(self.kubectl(&["delete", "--raw", path], "")),
            _ => drop(client.merge_patch::<_, Value>(path, body).unwrap()),
        }
    }

    /// Assigns the pods that wait for a node, as a scheduler would, and waits until kubelet runs them.
    fn bind_pods(&self) {
        // Three of the Deployment, one of the DaemonSet.
        until("the controllers' pods", || {
            self.server.bind_waiting_pods(NODE);
            let running =
                self.server.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName={NODE},status.phase=Running"));
            let mut ready = running["items"].as_array().unwrap().iter();
            (ready.by_ref().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none()).count() == 4).then_some(())
        });
    }

    fn asked(&self, by_node: bool, run: impl FnOnce() -> Output) -> (Output, Vec<Asked>) {
        let mark = self.mark();
        let output = run();
        let node = format!("system:serviceaccount:{}:calico-node", self.kind.namespace);
        let asked = self.asked_since(mark, if by_node { &node } else { OPERATOR });
        are_modest(&asked);
        (output, asked.into_iter().map(|one| Asked { verb: one.verb, uri: one.uri }).collect())
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}", self.server.try_kubectl(&["get", "nodes,pods", "-A", "-o", "wide"], ""));
            for name in ["kube-apiserver", "kube-controller-manager", "kubemark"] {
                let text = fs::read_to_string(self.server.file(&format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                println!("--- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
    }
}
