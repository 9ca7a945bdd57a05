//! What is known when a run begins: each thing is read once, when it is first needed, and never changes.

use std::cell::OnceCell;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::app::App;
use super::connector::Connector;
use super::host_process;
use super::login::{self, Etcd};
use super::options::{AtBoot as AtBootFlag, Source};
use super::sources::{Choice, Sources, access_of};
use super::verb::{PREFLIGHT, Row};
use crate::agent::trial::Trial;
use crate::apply::journal::{AtBoot, Terms};
use crate::apply::node_object::NodeObject;
use crate::apply::standing::Standing;
use crate::cluster::{Checks, Cluster, DrainOptions, FactsOptions};
use crate::config::{Layered, Origin};
use crate::facts::{Adapter, ClusterFacts, NodeFacts, Part};
use crate::fault::{Exit, Fault};
use crate::node::{Node, survey};
use crate::platform::{self, metadata::Metadata};
use crate::preflight;
use crate::settings::{self, ClusterSide, Reboot, Resolved, RunSettings};

/// How long the cluster may take for an answer that a change does without.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The node and its cluster, as a run finds them.
pub(crate) struct Context {
    /// The machine, without its platform.
    pub facts: NodeFacts,
    pub standing: Standing,
    /// A change that is on trial.
    pub trial: Option<Trial>,
    pub sources: Sources,
    connector: Connector,
    config: OnceCell<Layered>,
    /// The machine with its platform, and the settings of the run.
    machine: OnceCell<(NodeFacts, RunSettings)>,
    cluster: OnceCell<Cluster>,
}

/// A verb at work: the screen, what is known, and the node.
pub(crate) struct Operation<'a> {
    pub app: &'a mut App,
    pub context: &'a Context,
    pub node: &'a mut dyn Node,
    pub row: &'static Row,
}

impl Context {
    /// Reads the records of the node.
    ///
    /// # Errors
    /// When one cannot be read, or was written by a newer version of this program.
    pub fn load(app: &App, node: &dyn Node, facts: NodeFacts, row: &Row, choice: &Choice<'_>) -> Result<Self> {
        let standing = if row.needs_state { Standing::load(node)? } else { Standing::load(node).unwrap_or_default() };
        let trial = Trial::load(node)?;
        let sources = Sources::of(app, node, row, &standing, trial.as_ref(), choice)?;
        Ok(Self::new(facts, standing, trial, sources, app.connector.clone()))
    }

    fn new(facts: NodeFacts, standing: Standing, trial: Option<Trial>, sources: Sources, connector: Connector) -> Self {
        let (config, machine, cluster) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { facts, standing, trial, sources, connector, config, machine, cluster }
    }

    /// The same with the config of the current generation, if no other is named.
    pub fn on_current(&self) -> Self {
        let mut sources = self.sources.clone();
        sources.on_current = true;
        Self::new(self.facts.clone(), self.standing.clone(), self.trial.clone(), sources, self.connector.clone())
    }

    /// The config.
    ///
    /// # Errors
    /// Those of [`Sources::read`].
    pub fn config(&self, node: &dyn Node) -> Result<&Layered> {
        if self.config.get().is_none() {
            let config = self.sources.read(Some(node), &self.standing)?;
            let _first = self.config.set(config);
        }
        self.config.get().context("read the config")
    }

    /// The machine with its platform, and the settings of the run. The first call decides which metadata service is
    /// asked.
    fn machine(&self, node: &dyn Node, metadata: &Metadata) -> Result<&(NodeFacts, RunSettings)> {
        if self.machine.get().is_none() {
            let layered = self.config(node)?;
            let cloud = platform::detect(node, settings::provider(layered), metadata)?;
            let facts = NodeFacts { cloud, ..self.facts.clone() };
            let run = settings::run(layered, Some(&facts));
            let _first = self.machine.set((facts, run));
        }
        self.machine.get().context("measure the node")
    }

    /// The settings of the run, for verbs that need nothing else from the machine. The cloud that matters here (EKS) is
    /// detected by its networks, so this waits for no metadata service.
    ///
    /// # Errors
    /// When the config or the machine cannot be read.
    pub fn run(&self, node: &dyn Node) -> Result<&RunSettings> {
        self.machine(node, &Metadata::nowhere()).map(|(_, run)| run)
    }

    /// What the config says about restarts; the defaults if it cannot be read.
    pub fn reboot(&self, node: &dyn Node) -> Reboot {
        self.run(node).map_or_else(|_| settings::run(&Layered::default(), None).reboot, |run| run.reboot)
    }

    /// The cluster, with the installer's rights.
    ///
    /// # Errors
    /// When the config does not lead to one. It is not asked.
    pub fn cluster(&self, node: &dyn Node) -> Result<&Cluster> {
        if self.cluster.get().is_none() {
            let cluster = self.connector.cluster(node, &self.run(node)?.connection)?;
            let _first = self.cluster.set(cluster);
        }
        self.cluster.get().context("connect to the cluster")
    }

    /// The name of the Node: of the current generation or interrupted run, else of the config or the host.
    ///
    /// # Errors
    /// When the config cannot be read.
    pub fn node_name(&self, node: &dyn Node) -> Result<String> {
        match self.standing.node_name() {
            Some(name) => Ok(name.to_string()),
            None => settings::node_name(self.config(node)?, &self.facts, |_| Ok(true)),
        }
    }

    /// The Node as the engine changes it. If it is not drained, the cluster may take only a moment: most changes do
    /// without.
    pub fn object(&self, node: &dyn Node, name: &str, drain: Option<&DrainOptions>) -> NodeObject {
        if name.is_empty() {
            return NodeObject::unknown();
        }
        let cluster = self.cluster(node).map(|cluster| match drain {
            Some(_) => cluster.clone(),
            None => cluster.within(ANSWER_WITHIN),
        });
        NodeObject::new(name, cluster, drain.and_then(|options| options.timeout))
    }

    /// The Node of the current generation or interrupted run.
    pub fn current_object(&self, node: &dyn Node) -> NodeObject {
        self.object(node, self.standing.node_name().map_or("", |name| name.as_str()), None)
    }

    /// The options of a run besides its target.
    pub fn terms(&self, app: &App, node: &dyn Node, drain: Option<&DrainOptions>) -> Terms {
        let at_boot = match app.global.at_boot {
            Some(AtBootFlag::Leave) => None,
            Some(AtBootFlag::Finish) => Some(AtBoot::Finish),
            Some(AtBootFlag::Undo) => Some(AtBoot::Undo),
            None => self.reboot(node).resume_on_boot.then_some(AtBoot::Finish),
        };
        Terms {
            machine: self.facts.machine_id.clone(),
            boot: Some(self.facts.boot_id.clone()),
            at_boot,
            drain: drain.cloned(),
            access: self.run(node).map(|run| access_of(&run.connection)).unwrap_or_default(),
            ..Terms::default()
        }
    }

    /// Why the Node belongs to another machine, since it has addresses and none of them is this machine's: two clones
    /// of an image have the same name. None if that is not so, or unknown. A run that began on this machine is about its
    /// own Node, also while a virtual switch is created and addresses are missing.
    pub fn other_machine(&self, node: &dyn Node, name: &str) -> Option<String> {
        let began_on = self.standing.journal.as_ref().and_then(|journal| journal.header.terms.machine.as_ref());
        if began_on.is_some() && began_on == self.facts.machine_id.as_ref() {
            return None;
        }
        let theirs = self.cluster(node).ok()?.within(ANSWER_WITHIN / 2).node(name).ok()??.internal_ips;
        let mut ours = self.facts.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr());
        let is_usual = |ip: &Ipv4Addr| !ip.is_link_local() && !ip.is_loopback();
        // While a virtual switch is created, the machine may have no address for a moment.
        let has_any = ours.clone().any(|ip| is_usual(&ip));
        let mine = ours.any(|ip| is_usual(&ip) && theirs.contains(&ip.to_string()));
        (has_any && !mine && !theirs.is_empty()).then(|| {
            let theirs = theirs.join(", ");
            format!("Node {name} has the address {theirs}, which is not this machine's: another machine has its name")
        })
    }
}

/// What node and cluster say, and what follows from it.
pub(crate) struct Known {
    pub facts: NodeFacts,
    /// Or why the cluster did not answer.
    pub cluster: Result<ClusterFacts>,
    /// The etcd client's files, or why etcd cannot be used.
    pub etcd: Result<Etcd>,
    /// The part of the settings that concerns the cluster, which is known also if there are no settings.
    pub side: ClusterSide,
    pub resolved: Result<Resolved>,
    /// The run removes Flannel first.
    pub replaces_flannel: bool,
}

/// Measures the machine, asks the cluster, and decides the settings. `phase`: asking the cluster is shown, and it must
/// answer.
///
/// # Errors
/// When the config or the machine cannot be read.
pub(crate) fn gather(app: &mut App, context: &Context, node: &dyn Node, phase: bool, checks: Checks) -> Result<Known> {
    let facts = measure(app, context, node)?;
    let (cluster, etcd) = match phase {
        true => app.phase("cluster", |app| {
            let (facts, etcd) = ask_cluster(app, context, node, &facts, checks)?;
            let calico = facts.calico_version.as_deref().unwrap_or("of unknown version");
            let message = format!("{}, Kubernetes {}, Calico {calico}", facts.server, facts.kubernetes_version);
            Ok(((Ok(facts), etcd), message))
        })?,
        false => match ask_cluster(app, context, node, &facts, checks) {
            Ok((facts, etcd)) => (Ok(facts), etcd),
            Err(error) => (Err(error), Ok(Etcd::default())),
        },
    };
    let (side, resolved) = settings::decide(context.config(node)?, &facts, cluster.as_ref().ok());
    Ok(Known { facts, cluster, etcd, side, resolved, replaces_flannel: false })
}

impl Known {
    /// Refuses a machine of which a value that matters could not be read; checks report that themselves.
    ///
    /// # Errors
    /// Fault `MachineFacts`.
    pub fn or_unread(self) -> Result<Self> {
        preflight::machine_read(&self.facts)?;
        Ok(self)
    }
}

/// Measures the machine, and detects its platform.
fn measure(app: &App, context: &Context, node: &dyn Node) -> Result<NodeFacts> {
    let metadata = app.connector.env.as_ref().map_or_else(|| Ok(Metadata::link_local()), |env| env.metadata())?;
    let (facts, run) = context.machine(node, &metadata)?;
    let mut facts = facts.clone();
    let settings::Folders { root, logs, cni_bin, cni_conf } = &run.folders;
    let folders = survey::Folders { root, cni_conf, cni_bin, logs };
    let installed = context.standing.receipt().is_some() || context.standing.image().is_some();
    match survey::survey(node, &folders, installed).context("look at the machine") {
        Ok(mut survey) => {
            if app.global.sandbox.is_none() {
                survey::of_this_machine(&mut survey);
                let ports: Vec<u16> =
                    run.remote_access.iter().flat_map(|access| access.ports().iter().copied()).collect();
                let addresses: Vec<Ipv4Addr> = facts.adapters.iter().filter_map(Adapter::reachable_address).collect();
                survey::ask_ports(&mut survey, &addresses, &ports);
            }
            facts.survey = Some(survey);
        }
        Err(error) => facts.leave_out(Part::Survey, format!("{error:#}")),
    }
    Ok(facts)
}

/// Returns the cluster's facts about the node that this machine is or will be, and the etcd client's files.
fn ask_cluster(
    app: &mut App,
    context: &Context,
    node: &dyn Node,
    facts: &NodeFacts,
    checks: Checks,
) -> Result<(ClusterFacts, Result<Etcd>)> {
    let (cluster, run, layered) = (context.cluster(node)?, context.run(node)?, context.config(node)?);
    let addresses: Vec<Ipv4Addr> =
        facts.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr()).collect();
    let ask = || {
        let name = settings::node_name(layered, facts, |name| anyhow::Ok(cluster.node(name)?.is_some()))?;
        let facts = cluster.facts(&FactsOptions {
            node_name: Some(&name),
            addresses: &addresses,
            namespace_override: login::namespace(&run.connection)?.as_deref(),
            needs: login::needs(run),
            checks,
            flannel: facts.survey.as_ref().is_some_and(preflight::has_flannel),
        })?;
        anyhow::Ok((name, facts))
    };
    let asked = ask();
    cluster.take_events().iter().for_each(|event| app.event(event));
    let asked = if run.connection.host_process { asked.map_err(host_process::from_a_pod) } else { asked };
    let (name, mut found) = asked?;
    let etcd = login::etcd(app, node, cluster, (layered, run), &name, &mut found);
    Ok((found, etcd))
}

/// A cluster that is asked without its node: from any machine.
pub(crate) struct Remote {
    /// This machine, if it is a node.
    pub node: Option<Box<dyn Node>>,
    pub layered: Layered,
    pub run: RunSettings,
    pub cluster: Cluster,
}

impl Remote {
    /// Connects: in a sandbox to its own cluster, else as the command line says; `as_node`: or as this machine's config
    /// says.
    ///
    /// # Errors
    /// When the config does not lead to a cluster. It is not asked.
    pub fn open(app: &mut App, as_node: bool) -> Result<Self> {
        let node = if app.global.sandbox.is_some() { Some(app.node()?) } else { app.node().ok().filter(|_| as_node) };
        if let Some(mut node) = node {
            let context = app.context(&mut *node, &PREFLIGHT, &Choice::default())?;
            let (layered, cluster) = (context.config(&*node)?.clone(), context.cluster(&*node)?.clone());
            let run = settings::run(&layered, None);
            return Ok(Self { node: Some(node), layered, run, cluster });
        }
        let layered = Sources::named(app, &Source::default()).read(None, &Standing::default())?;
        let run = settings::run(&layered, None);
        // The default is a path on a Windows node.
        if run.connection.kubeconfig_from == Origin::Default && !cfg!(windows) {
            let what = "no kubeconfig is given, so the cluster cannot be asked";
            let hint = "give the kubeconfig of a cluster administrator with --kubeconfig FILE, or in \
                        CALICO_WIN_KUBECONFIG";
            return Err(Fault::new(Exit::ClusterUnreachable, "KubeconfigMissing", what).hint(hint).into());
        }
        let file = PathBuf::from(&run.connection.kubeconfig);
        let cluster = app.connector.by_file(None, &file, &run.connection)?;
        Ok(Self { node: None, layered, run, cluster })
    }

    /// Asks the cluster.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn facts(&self, app: &mut App) -> Result<ClusterFacts> {
        let name = self.layered.config.spec.kubernetes.node_name.0.as_ref().map(|name| name.as_str());
        let asked = self.cluster.facts(&FactsOptions {
            node_name: name,
            addresses: &[],
            namespace_override: self.run.connection.calico_namespace.as_deref(),
            needs: login::needs(&self.run),
            checks: Checks::All,
            flannel: false,
        });
        self.cluster.take_events().iter().for_each(|event| app.event(event));
        let mut found = asked?;
        // The client's files are on the node.
        if let Some(node) = &self.node {
            let config = (&self.layered, &self.run);
            // A failure is a fact, too.
            drop(login::etcd(app, &**node, &self.cluster, config, name.unwrap_or_default(), &mut found));
        }
        Ok(found)
    }
}
