//! The servers of a sandbox node: a cluster and a server of releases, started when first needed.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::pending_work;
use crate::agent::Role;
use crate::agent::cni_gate::LostEndpoint;
use crate::agent::state;
use crate::cluster::{self, Cluster};
use crate::config::Document;
use crate::fault::{Exit, Fault};
use crate::item::Service;
use crate::node::Node;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::faults::SandboxFaults;
use crate::node::sandbox::model::{CloudMetadata, Model, Name};
use crate::plan::order::NODE_SERVICE;
use crate::platform::metadata::Metadata;
use crate::report::event::{Event, Sink};
use crate::sandbox::calico::{STARTUP_LIMIT, StandIn, service_hook, shut_down};
use crate::sandbox::cluster::{ApiFault, EmbeddedCluster, Seed};
use crate::sandbox::kubelet;
use crate::sandbox::metadata::MetadataServer;
use crate::sandbox::mirror::{ReleaseFault, ReleaseServer};
use crate::sandbox::traffic::{Source, Traffic};
use crate::settings::Limits;
use crate::version::CalicoVersion;

/// The servers of a sandbox node, started when first needed.
pub(crate) struct SandboxEnv {
    pub dir: PathBuf,
    node_name: String,
    /// The version on the Linux nodes, if `node.yaml` sets it.
    linux_calico: Option<String>,
    api: Vec<ApiFault>,
    release: Vec<ReleaseFault>,
    cluster: OnceCell<EmbeddedCluster>,
    releases: OnceCell<ReleaseServer>,
    /// The metadata service of the cloud that `node.yaml` names.
    metadata: OnceCell<MetadataServer>,
    cloud: Option<CloudMetadata>,
    /// The agent's events when a service was started.
    agent: Rc<RefCell<Vec<Event>>>,
}

/// In URLs of the sandbox's config, the name of the release server, whose port is not known in advance.
const RELEASES: &str = "http://releases.sandbox";

impl SandboxEnv {
    /// Opens the node in a folder, with its servers. `faults`: those of the command line, besides the node's own.
    pub fn open(dir: PathBuf, faults: &[String]) -> Result<(Box<dyn Node>, Rc<Self>)> {
        let node = SandboxNode::open(&dir).with_context(|| format!("open the sandbox {}", dir.display()))?;
        let given = faults.iter().cloned().chain([node.listed_faults()]);
        let faults = SandboxFaults::parse(&given.collect::<Vec<_>>().join(";"))?;
        let model = node.model()?;
        let env = Rc::new(Self {
            dir,
            node_name: model.host_name,
            linux_calico: model.linux_calico,
            api: faults.api.iter().map(|text| api_fault(text)).collect::<Result<_>>()?,
            release: faults.release.iter().map(|text| release_fault(text)).collect::<Result<_>>()?,
            cluster: OnceCell::new(),
            releases: OnceCell::new(),
            metadata: OnceCell::new(),
            cloud: model.cloud,
            agent: Rc::default(),
        });
        let (kubelet, agents, services) = (Rc::clone(&env), Rc::clone(&env), Rc::clone(&env));
        let network = Rc::clone(&env);
        let node = node
            .with_faults(faults.node)
            .with_quirks(faults.windows)
            .with_start_hook(Box::new(move |node: &mut SandboxNode, name: &str, service: &Service| {
                services.run_service(node, name, service)
            }))
            .with_kubelet(Box::new(move |model: &mut Model, running: &mut BTreeSet<String>, published| {
                kubelet.play_kubelet(model, running, published)
            }))
            .with_traffic(Box::new(move |model: &Model, to: SocketAddrV4| {
                // The pods of another cluster have no network in a sandbox.
                if !network.has_cluster() {
                    return Ok(Some("TIMEOUT".into()));
                }
                let traffic = Traffic::read(network.cluster()?, &network.node_name, model, &network.dir)?;
                Ok(traffic.connect(Source::Node, &to.to_string()).err())
            }))
            .with_pause_hook(Box::new(move |node: &mut SandboxNode| agents.retry_startup(node)))
            .with_shutdown_hook(Box::new(shut_down));
        Ok((Box::new(node), env))
    }

    /// Returns the agent's events since the last call.
    pub fn said(&self) -> Vec<Event> {
        self.agent.take()
    }

    pub fn cluster(&self) -> Result<&EmbeddedCluster> {
        if let Some(cluster) = self.cluster.get() {
            return Ok(cluster);
        }
        let cluster = EmbeddedCluster::start(&self.dir.join("cluster"), &Seed::new(&self.node_name), &self.api)
            .context("start the sandbox's cluster")?;
        if let Some(release) = &self.linux_calico {
            cluster.upgrade_calico(release).context("upgrade Calico in the sandbox's cluster")?;
        }
        Ok(self.cluster.get_or_init(|| cluster))
    }

    /// Returns the address of the metadata service, if the node is in a cloud.
    pub fn metadata(&self) -> Result<Metadata> {
        let Some(cloud) = &self.cloud else {
            return Ok(Metadata::nowhere());
        };
        let server = match self.metadata.get() {
            Some(server) => server,
            None => {
                let server = MetadataServer::start(cloud)?;
                self.metadata.get_or_init(|| server)
            }
        };
        Ok(Metadata::at(server.url()))
    }

    /// Returns the address to dial for the server in a kubeconfig: the embedded cluster's name leads to its current
    /// port.
    pub fn dial(&self, kubeconfig: &str) -> Result<Option<SocketAddr>> {
        let ours = cluster::server_of(kubeconfig).is_some_and(|server| server == EmbeddedCluster::stable_url());
        if ours { Ok(Some(self.cluster()?.addr())) } else { Ok(None) }
    }

    /// Returns the lowest layer of a sandbox's config: a release that needs no network.
    pub fn config(&self) -> Document {
        let text = format!(
            "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec:\n  calico:\n    version: {SANDBOX_RELEASE}\n    \
             source: {{type: mirror, urlTemplate: \"{RELEASES}/calico-windows-{{version}}.zip\"}}\n"
        );
        Document { name: "sandbox".into(), text }
    }

    pub fn release_url(&self, url: &str, version: &CalicoVersion) -> Result<String> {
        if !url.starts_with(RELEASES) {
            return Ok(url.to_owned());
        }
        let server = match self.releases.get() {
            Some(server) => server,
            None => {
                let server = ReleaseServer::start(std::slice::from_ref(version), &self.release)
                    .context("start the sandbox's release server")?;
                self.releases.get_or_init(|| server)
            }
        };
        Ok(server.url(version))
    }

    /// Whether its own cluster was started.
    fn has_cluster(&self) -> bool {
        self.dir.join("cluster").join("cluster.json").exists()
    }

    /// Does kubelet's work on the node, in a cluster that was started.
    fn play_kubelet(&self, model: &mut Model, running: &mut BTreeSet<String>, published: bool) -> Result<()> {
        if !self.has_cluster() {
            return Ok(());
        }
        kubelet::play(self.cluster()?, &self.node_name, model, &self.dir, running, published)
    }

    /// Runs what the sandbox's Service Control Manager starts: our own services run the agent.
    fn run_service(self: &Rc<Self>, node: &mut SandboxNode, name: &str, service: &Service) -> Result<()> {
        // CalicoNode makes sure that a change on trial has a guard, also after a boot, that a run is ended which the
        // boot interrupted, and that a Node is uncordoned which a run left cordoned.
        let booted = node.model()?.boot_time;
        if name == NODE_SERVICE && pending_work::needs_guard(node, booted)? {
            pending_work::start_guard(Some(&self.dir))?;
        }
        self.play_agent(node, name, service, STARTUP_LIMIT)
    }

    /// Makes the agents that wait for Calico's node startup try it again after a minute, as on Windows during a run.
    fn retry_startup(self: &Rc<Self>, node: &mut SandboxNode) -> Result<()> {
        for role in Role::ALL {
            let said = state::live(node, role)?.filter(|said| said.child.is_none());
            let since = said.and_then(|said| Some(said.waiting_for?.since));
            // An earlier run's clock may have been ahead of this one's.
            let again = since.is_some_and(|since| !(0..60).contains(&node.now().duration_since(since).as_secs()));
            if !again {
                continue;
            }
            let services = node.model()?.services;
            if let Some(service) = services.get(&Name::new(role.service())) {
                self.play_agent(node, role.service(), &service.definition, Duration::ZERO)?;
            }
        }
        Ok(())
    }

    fn play_agent(
        self: &Rc<Self>,
        node: &mut SandboxNode,
        name: &str,
        service: &Service,
        limit: Duration,
    ) -> Result<()> {
        let kubeconfig = crate::agent::read_config(node).ok().and_then(|config| config.kubeconfig());
        let text = kubeconfig.and_then(|path| std::fs::read_to_string(node.disk(&path)).ok());
        let dial = text.map_or(Ok(None), |text| self.dial(&text))?;
        let limits = Limits::within(ANSWER_WITHIN);
        let connect = move |text: &str, base: &Path| Cluster::connect(text, base, None, dial, limits);
        let recreate = move |node: &mut dyn Node, lost: &[LostEndpoint], events: Sink<'_>| {
            super::lost_pods::recreate(node, &connect, lost, events)
        };
        let said = Rc::clone(&self.agent);
        let events = move |event| said.borrow_mut().push(event);
        let env = Rc::clone(self);
        let join = move |root: &Path| kubelet::join(&|| env.cluster(), root);
        service_hook(StandIn { dial }, limit, Box::new(recreate), Box::new(join), Box::new(events))(node, name, service)
    }
}

/// How long the sandbox's cluster may take to answer its agent.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The release of a sandbox if none is named.
const SANDBOX_RELEASE: &str = "v3.32.1";

fn fault_invalid(text: &str, why: impl std::fmt::Display) -> Fault {
    let what = format!("the sandbox fault `{text}` is not right: {why}");
    Fault::new(Exit::Usage, "SandboxFaultInvalid", what).hint("docs/sandbox.md shows them all by example")
}

fn api_fault(text: &str) -> Result<ApiFault> {
    Ok(text.parse().map_err(|why: anyhow::Error| fault_invalid(&format!("api {text}"), format!("{why:#}")))?)
}

fn release_fault(text: &str) -> Result<ReleaseFault> {
    let wrong = |why: String| fault_invalid(&format!("release {text}"), why);
    // `release GET=truncate` and `release truncate` are the same.
    let action = text.rsplit('=').next().unwrap_or(text).trim();
    Ok(action.parse().map_err(wrong)?)
}
