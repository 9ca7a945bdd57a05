//! A kubelet of this program that joins the cluster while a run waits for Calico's node startup.

use std::time::Duration;

use super::node_object::NodeObject;
use crate::calico::services::{KUBELET, Role, is_ours};
use crate::cluster::{CertificateRequest, RequestState};
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, World};
use crate::node::Node;
use crate::paths::kubernetes as paths;
use crate::plan::order;
use crate::report::event::{Event, Sink};
use crate::values::WinPath;
use crate::yaml;

/// How often the cluster is asked whether somebody must approve kubelet's certificate.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Whether kubelet has a login of its own. It writes its kubeconfig before it has the certificate that it names
/// (Kubernetes' `pkg/kubelet/certificate/bootstrap`).
pub fn has_joined(node: &dyn Node) -> bool {
    let Ok(text) = std::fs::read_to_string(node.disk(&WinPath::known(paths::KUBELET_CONF))) else { return false };
    let Ok(file) = yaml::read::<serde_json::Value>(&text) else { return false };
    let mut users = file["users"].as_array().into_iter().flatten().map(|user| &user["user"]);
    users.any(|user| {
        let named = user["client-certificate"].as_str().and_then(|path| paths::on_drive_c(path).parse().ok());
        let there = named.is_some_and(|path: WinPath| node.disk(&path).is_file());
        there || user["client-certificate-data"].is_string() || user["token"].is_string()
    })
}

/// What is wrong with a kubelet of this program that has lost its login; none if it has one, or is not to run.
pub fn lost_login(node: &dyn Node, world: &World) -> Option<String> {
    let runs = order::runs(world, Role::Kubelet) && world.contains_key(&Id::Running(KUBELET.into()));
    (runs && !has_joined(node)).then(|| {
        format!(
            "kubelet has no login in {}: while it runs it has the old one, and at its next start it needs its certificate \
             or a bootstrap token",
            paths::KUBELET_CONF
        )
    })
}

/// Whether kubelet has a certificate, with which it writes its kubeconfig again if only that is lost (`LoadClientConfig`
/// in Kubernetes' `pkg/kubelet/certificate/bootstrap`).
pub fn has_certificate(node: &dyn Node) -> bool {
    node.disk(&WinPath::known(paths::KUBELET_DATA).join(r"pki\kubelet-client-current.pem")).is_file()
}

/// How somebody who may list certificate requests finds kubelet's.
const FIND: &str = "kubectl get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet";

/// What is wrong if neither this run's user nor kubelet's bootstrap token may list certificate requests.
pub fn unseen() -> Fault {
    let what =
        "kubelet waited for its certificate, and neither this user nor the bootstrap token may list the requests";
    let hint = format!(
        "bind the token's group to the ClusterRole system:node-bootstrapper: kubeadm's binding is \
         kubeadm:kubelet-bootstrap\nto see the requests, with the right to list them: {FIND}"
    );
    Fault::new(Exit::VerifyFailed, "JoinPending", what).hint(hint)
}

/// What is wrong with kubelet's certificate request; none if it is approved.
pub fn trouble(request: &CertificateRequest) -> Option<Fault> {
    let name = &request.name;
    match &request.state {
        RequestState::Approved => None,
        RequestState::Pending => {
            let what = format!("kubelet waited for its certificate, and nobody approved {name}");
            let hint = "run this again, and while it waits approve the request that it names: kubectl certificate approve \
                        NAME\nor let the cluster approve the requests of bootstrap tokens: see calicoctl-win explain \
                        JoinPending";
            Some(Fault::new(Exit::VerifyFailed, "JoinPending", what).hint(hint))
        }
        RequestState::Denied(why) => {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            let what = format!("the certificate request {name} of kubelet was denied{why}");
            let hint = "find out who denied it and why, then run this again: kubelet makes a new request";
            Some(Fault::new(Exit::ClusterAccessDenied, "JoinDenied", what).hint(hint))
        }
    }
}

/// Tells people during a wait which request they must approve.
pub(super) struct Joining<'a> {
    object: &'a NodeObject,
    asked: Option<Duration>,
    /// The request that was named; empty if its name is not known.
    told: Option<String>,
}

impl<'a> Joining<'a> {
    pub fn new(object: &'a NodeObject) -> Self {
        Self { object, asked: None, told: None }
    }

    /// Looks again, `elapsed` after the wait began. A cluster that does not answer has nothing to tell.
    pub fn look(&mut self, node: &dyn Node, elapsed: Duration, events: Sink) {
        if self.asked.is_some_and(|then| elapsed < then + ASK_EVERY) {
            return;
        }
        self.asked = Some(elapsed);
        let ours =
            matches!(node.get(&Id::Service(KUBELET.into())), Ok(Some(State::Service(service))) if is_ours(&service));
        if !ours || has_joined(node) {
            return;
        }
        let (name, message) = match self.object.certificate_request(node) {
            Ok(Some(CertificateRequest { name, state: RequestState::Pending })) => {
                let approve = format!("kubectl certificate approve {name}");
                (name, format!("kubelet waits for its certificate; to let it join: {approve}"))
            }
            Err(error) if Fault::id_of(&error) == "ClusterForbidden" => {
                let message = format!(
                    "kubelet waits for its certificate; this user may not list the requests, so find the pending one of \
                     this node and approve it: {FIND}; kubectl certificate approve NAME"
                );
                (String::new(), message)
            }
            _ => return,
        };
        if self.told.as_ref() != Some(&name) {
            events(Event::Warning { id: "JoinPending", message });
            self.told = Some(name);
        }
    }
}
