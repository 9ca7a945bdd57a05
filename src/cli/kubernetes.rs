//! `kubernetes install|status|uninstall`: kubelet and kube-proxy. Install and uninstall are changes of the config.

use anyhow::Result;

use super::args::{Kubernetes, KubernetesInstall};
use super::documents::{KubernetesService, KubernetesStatus};
use crate::apply::joining::has_joined;
use crate::calico::kubernetes::{ROLES, program_path};
use crate::calico::nssm;
use crate::calico::services::{Role, is_ours};
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::Node;
use crate::run::app::App;
use crate::run::change::{self, ChangeRequest};
use crate::run::{Ending, service_status, verb};

pub(crate) fn run(verb: &Kubernetes, app: &mut App) -> Result<Ending> {
    let (installs, request) = match verb {
        Kubernetes::Status => return show(app),
        Kubernetes::Install(KubernetesInstall { source, containerd }) => {
            if let Some(file) = containerd {
                // A bundle has the archive, whatever the config names.
                let bundle = || source.bundle.as_ref().map(|bundle| bundle.to_string_lossy().into_owned());
                let file = file.clone().or_else(bundle).ok_or_else(|| {
                    Fault::new(Exit::Usage, "Usage", "--containerd names no archive, and there is no --bundle with one")
                        .hint("name the archive of a release of containerd: --containerd FILE")
                })?;
                app.global.set.push(format!("kubernetes.node.containerd.archive={file}"));
            }
            (true, ChangeRequest::with(&verb::KUBERNETES_INSTALL, source))
        }
        Kubernetes::Uninstall => (false, ChangeRequest::of(&verb::KUBERNETES_UNINSTALL)),
    };
    app.global.set.push(format!("kubernetes.node.install={installs}"));
    change::run(request, app)
}

fn show(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let services: Vec<KubernetesService> =
        ROLES.into_iter().map(|role| service(&*node, role)).collect::<Result<_>>()?;
    let line = |service: &KubernetesService| {
        let KubernetesService { name, owner, state, runs, version, detail } = service;
        let text = match (*owner, version, runs) {
            ("none", ..) => "not a service of this machine".to_owned(),
            ("other", _, Some(runs)) => format!("{state}, of another program: {runs}"),
            (_, Some(version), _) => format!("{state}, {version}"),
            _ => state.clone(),
        };
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        format!("{name:<10} {text}{detail}")
    };
    let mut text: Vec<String> = services.iter().map(line).collect();
    let joined = has_joined(&*node);
    if services.iter().any(|service| service.name == Role::Kubelet.service() && service.owner == "calicoctl-win") {
        text.push(if joined { "kubelet has joined the cluster" } else { "kubelet has not joined the cluster" }.into());
    }
    let down = services.iter().any(|service| service.owner == "calicoctl-win" && service.state != "Running");
    app.reporter.document(&KubernetesStatus { services, joined }, &text.join("\n"));
    match down {
        true => Ending::shown(Exit::Unhealthy, "kubelet or kube-proxy does not run"),
        false => Ending::shown(Exit::Ok, "done"),
    }
}

fn service(node: &dyn Node, role: Role) -> Result<KubernetesService> {
    let name = role.service();
    let (owner, runs) = match node.get(&Id::Service(name.into()))? {
        Some(State::Service(service)) if is_ours(&service) => ("calicoctl-win", Some(program_path(role).to_string())),
        Some(State::Service(service)) => ("other", Some(nssm::command(&service))),
        _ => ("none", None),
    };
    let found = service_status::service(node, name)?;
    // Only our own program is run for its version, and only if it is there.
    let said = match owner {
        "calicoctl-win" => node.ask(&node.disk(&program_path(role)), &["--version"]).ok().flatten(),
        _ => None,
    };
    let version = said.and_then(|said| said.split_whitespace().last().map(str::to_owned));
    let detail = if owner == "calicoctl-win" { service_status::detail(&found) } else { String::new() };
    Ok(KubernetesService { name: name.into(), owner, state: found.state, runs, version, detail })
}
