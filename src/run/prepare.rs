//! From a command line to a plan: config, facts, checks, release, target. `plan` and `install` both use this and differ
//! only in what they do with the result.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::access;
use super::app::App;
use super::checks;
use super::drain::Place;
use super::health_gate;
use super::host_process;
use super::login::{self, Wanted};
use super::options::Source;
use super::pods;
use super::stage::{Purpose, Release, find_release};
use super::standing::settings_diff;
use crate::apply::converge;
use crate::apply::receipt::About;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::calico::etcd::EtcdFiles;
use crate::calico::kube_proxy;
use crate::calico::kubeconfig::{self, NodeCredentials};
use crate::calico::layout::Layout;
use crate::cluster::{Cluster, FactsOptions, TOKEN_SECRET};
use crate::config::{self, Layered};
use crate::facts::{ClusterFacts, Facts, NodeFacts};
use crate::item::{Id, Manifest, ManifestFile, State, World};
use crate::node::Node;
use crate::plan::desired::{self, Desired, Inputs, KubeconfigFile};
use crate::plan::diff::diff;
use crate::plan::order::NODE_SERVICE;
use crate::plan::show::{Disposition, Plan};
use crate::plan::{Owned, Step, Target};
use crate::preflight;
use crate::release::transport;
use crate::report::event::Event;
use crate::settings::{self, Credentials, Resolved, RunSettings, Settings};
use crate::values::Sha256;

/// Everything that is known before anything is changed.
pub(crate) struct Prepared {
    pub resolved: Resolved,
    pub cluster: Cluster,
    pub standing: Standing,
    pub target: Target,
    pub steps: Vec<Step>,
    pub plan: Plan,
    pub about: About,
    node_facts: NodeFacts,
    pub cluster_facts: ClusterFacts,
    release: Release,
    /// From the secret that the config names.
    etcd_files: Option<EtcdFiles>,
    /// The node's login, if it is known already.
    login: Option<NodeCredentials>,
    /// Whether a new token is needed: the kubeconfig in `target` is then a placeholder.
    new_token: bool,
    /// This run created the token secret in the cluster.
    pub made_secret: bool,
    blobs: Vec<desired::Blob>,
    /// The config as it was given, to be stored with the generation.
    config: String,
    /// Every field of the effective config, to be stored too.
    effective: String,
    /// The same, including how cluster and release are reached, for a saved plan.
    pub whole_config: Value,
}

/// Gathers, checks and plans.
pub(crate) fn prepare(
    app: &mut App,
    node: &mut dyn Node,
    standing: Standing,
    source: &Source,
    start: Option<bool>,
    purpose: Purpose,
) -> Result<Prepared> {
    let layered = app.config(node, source)?;
    if standing.journal.is_some() {
        await_addresses(app, node)?;
    }
    let node_facts = app.measure_for_checks(node, &layered, standing.receipt().is_some())?;
    let run = settings::run(&layered, Some(&node_facts));

    let (cluster, cluster_facts) = app.phase("cluster", |app| {
        let cluster = app.cluster(node, &run.connection)?;
        let facts = cluster_facts(&cluster, &layered, &run, &node_facts);
        for event in cluster.take_events() {
            app.event(&event);
        }
        let facts = facts?;
        let message = format!(
            "{}, Kubernetes {}, Calico {}",
            facts.server,
            facts.kubernetes_version,
            facts.calico_version.as_deref().unwrap_or("of unknown version")
        );
        Ok(((cluster, facts), message))
    })?;

    let (side, resolved) = settings::decide(&layered, &node_facts, Some(&cluster_facts));
    let resolved = resolved.map(|mut resolved| {
        resolved.settings.services.start = start.unwrap_or(resolved.settings.services.start);
        resolved
    });
    checks::check(app, &run, (&side, resolved.as_ref().ok()), &node_facts, &cluster_facts)?;
    let resolved = resolved?;
    for warning in &resolved.warnings {
        app.warn(warning.id, warning.message.clone());
    }

    let etcd = login::etcd(app, node, &cluster, &resolved)?;
    let etcd_files = etcd.files.filter(|_| etcd.ours);
    let release = find_release(app, node, &standing, &resolved, purpose)?;
    let kubeconfig = kubeconfig(app, node, &cluster, &resolved)?;
    let login = match &kubeconfig {
        KubeconfigFile::Rendered(bytes) => Some(read_login(bytes)?),
        _ => None,
    };
    let new_token = matches!(kubeconfig, KubeconfigFile::Pending);
    let (mut target, blobs) = target(node, &resolved.settings, &release.manifest, kubeconfig, etcd_files.clone())?;
    manage_kube_proxy_temporarily(node, &standing, &resolved.settings, &cluster_facts, &mut target)?;
    let steps = converge::plan(node, &standing, &target)?;
    super::files_in_use::refuse_files_in_use(node, &steps, &target, &release.manifest)?;
    let mut plan = Plan::new(&steps, &target, standing.receipt().is_some());
    plan.needs_drain |= restarts_on_another_network(node, &standing, &resolved.settings, &steps)?;
    let name = resolved.settings.node_name.to_string();
    plan.pods = pods::attached(app, node, &steps, |_| cluster.pods_on(&name))?;
    // Also on a node that the scripts made: what no DaemonSet makes again must move away first.
    plan.needs_drain |=
        plan.pods.iter().any(|pod| matches!(pod.disposition, Disposition::Moved | Disposition::Unknown));
    if let Some(why) = cluster_facts.node.as_ref().and_then(health_gate::not_ready_by_others) {
        let message = format!("Node {} is not Ready: {why}", resolved.settings.node_name);
        app.warn("NodeNotReady", message);
    }
    let config = layered.document().to_string();
    let effective = effective(&resolved);
    let about = about(&config, &effective, &resolved, &release.manifest, &standing);
    plan = plan.between(standing.release(), &about.calico_version);
    plan.settings_diff = settings_diff(node, standing.receipt(), &about, Some(&effective));
    let root = &resolved.settings.calico.root;
    if standing.receipt().is_none() && standing.journal.is_none() && node.disk(root).is_dir() {
        let version = &about.calico_version;
        let message = format!("no receipt says which release {root} holds: it may be newer than {version}");
        app.warn("ReleaseUnknown", message);
    }
    announce(app, &plan);
    Ok(Prepared {
        resolved,
        cluster,
        standing,
        target,
        steps,
        plan,
        about,
        node_facts,
        cluster_facts,
        release,
        etcd_files,
        login,
        new_token,
        made_secret: false,
        blobs,
        config,
        effective: json(&effective),
        whole_config: layered.whole_document(),
    })
}

/// Whether CalicoNode, which runs although the config does not start it, is restarted with settings that do not fit its
/// pods' network: it would re-create the network while pods use it.
fn restarts_on_another_network(
    node: &dyn Node,
    standing: &Standing,
    settings: &Settings,
    steps: &[Step],
) -> Result<bool> {
    let restarts = steps
        .iter()
        .any(|step| matches!(step, Step::Put { id: Id::Running(name), after: Some(_), .. } if name == NODE_SERVICE));
    let Some((id, wanted)) = desired::pod_network(settings) else { return Ok(false) };
    if settings.services.start || !restarts || standing.receipt().is_none() {
        return Ok(false);
    }
    Ok(node.get(&id)?.is_some_and(|have| !have.satisfies(&wanted)))
}

/// How long Windows may take to assign addresses to a virtual switch.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

/// Waits for addresses: a run that ended while the virtual switch was being created may have left the node without them
/// for a moment.
fn await_addresses(app: &mut App, node: &mut dyn Node) -> Result<()> {
    let pause = Duration::from_millis(500);
    let mut waited = Duration::ZERO;
    loop {
        let facts = node.facts().context("measure the node")?;
        let mut addresses = facts.adapters.iter().flat_map(|adapter| &adapter.addresses);
        let settled = addresses.any(|address| !address.addr().is_link_local() && !address.addr().is_loopback());
        if settled || waited >= SETTLES_WITHIN {
            return Ok(());
        }
        let what = "an address on the virtual switch that an interrupted run began".to_owned();
        app.event(&Event::Waiting { what, elapsed: waited, limit: SETTLES_WITHIN });
        node.pause(pause);
        waited += pause;
    }
}

/// Emits the plan as events.
pub(crate) fn announce(app: &mut App, plan: &Plan) {
    for change in &plan.changes {
        app.event(&Event::Planned(Box::new(change.clone())));
    }
    app.event(&Event::PlanMade { counts: plan.counts(), disruption: plan.disruption });
}

/// Returns the node's kubeconfig: the current one while it is good, else a placeholder until one is fetched. A given
/// file is read now.
fn kubeconfig(app: &mut App, node: &dyn Node, cluster: &Cluster, resolved: &Resolved) -> Result<KubeconfigFile> {
    let Some(wanted) = Wanted::of(&resolved.run, &resolved.settings.kubernetes) else {
        return Ok(KubeconfigFile::Absent);
    };
    let root = &resolved.settings.calico.root;
    if wanted.credentials == Credentials::Kubeconfig {
        let given = login::issue(app, Some(node), cluster, &wanted)?.credentials;
        let bytes = login::given_or_renewed(node, root, given, &wanted.kubernetes.calico_namespace)?;
        return Ok(KubeconfigFile::Rendered(bytes));
    }
    Ok(match login::kept(node, root, cluster, &wanted, node.now()) {
        Some(bytes) => KubeconfigFile::Rendered(bytes),
        None => KubeconfigFile::Pending,
    })
}

fn read_login(kubeconfig: &[u8]) -> Result<NodeCredentials> {
    let text = std::str::from_utf8(kubeconfig).context("read the node's kubeconfig")?;
    kubeconfig::parse(text).context("read the node's kubeconfig")
}

/// Returns the target, with the bytes of files that are not in the release.
fn target(
    node: &dyn Node,
    settings: &Settings,
    manifest: &Manifest,
    kubeconfig: KubeconfigFile,
    etcd_files: Option<EtcdFiles>,
) -> Result<(Target, Vec<desired::Blob>)> {
    let executable = node.executable()?;
    let sha256 = store::digest(&executable)?;
    let inputs = Inputs { settings, release: manifest, executable: &sha256, kubeconfig, etcd_files };
    let Desired { target, blobs } = desired::desired(&inputs)?;
    Ok((target, blobs))
}

/// On EKS, kube-proxy is Amazon's: it gets Direct Server Return while Calico is installed.
fn manage_kube_proxy_temporarily(
    node: &dyn Node,
    standing: &Standing,
    settings: &Settings,
    cluster: &ClusterFacts,
    target: &mut Target,
) -> Result<()> {
    if !settings.provider.brings().own_kube_proxy || !settings.dsr {
        return Ok(());
    }
    let id = Id::Service(kube_proxy::NAME.into());
    let Some(State::Service(now)) = node.get(&id)? else { return Ok(()) };
    // kube-proxy comes with kubelet and has its version.
    let kubelet = cluster.node.as_ref().map(|node| node.kubelet_version.as_str());
    let version = kubelet.filter(|version| !version.is_empty()).unwrap_or(&cluster.kubernetes_version);
    let wanted = match preflight::minor(version).and_then(|(_, minor)| kube_proxy::with_dsr(&now, minor)) {
        Some(patched) => patched,
        // It is ours already, and must stay so.
        None if standing.owned().contains_key(&id) => *now,
        None => return Ok(()),
    };
    desired::manage_service_temporarily(target, kube_proxy::NAME, wanted);
    Ok(())
}

/// Returns every field that has a value, by its path. How cluster and release are reached is part of one run only.
pub(crate) fn effective(resolved: &Resolved) -> BTreeMap<String, Value> {
    let fields = resolved.origins.iter().filter(|field| !field.value.is_null() && !config::is_of_a_run(&field.path));
    fields.map(|field| (field.path.clone(), field.value.clone())).collect()
}

fn json(effective: &BTreeMap<String, Value>) -> String {
    serde_json::to_string(effective).unwrap_or_default()
}

fn about(
    config: &str,
    effective: &BTreeMap<String, Value>,
    resolved: &Resolved,
    manifest: &Manifest,
    standing: &Standing,
) -> About {
    let (settings, reached) = (&resolved.settings, access::of(&resolved.run.connection));
    let mut fingerprint = settings.clone();
    // The archive's source does not change the node; its digest is in the plan.
    fingerprint.calico.source = settings::Source::Directory(String::new());
    let text = serde_json::to_string(&fingerprint).unwrap_or_default();
    About {
        calico_version: settings.calico.version.clone(),
        backend: settings.network.backend,
        vni: settings.network.vni,
        node_name: settings.node_name.clone(),
        calico_namespace: settings.kubernetes.calico_namespace.clone(),
        settings: Sha256::of(text.as_bytes()),
        config: Some(Sha256::of(config.as_bytes())),
        effective: Some(Sha256::of(json(effective).as_bytes())),
        archive: manifest.archive.clone(),
        source: source_text(&settings.calico.source),
        token_secret: standing
            .receipt()
            .and_then(|receipt| receipt.about.as_ref())
            .and_then(|about| about.token_secret.clone()),
        kubeconfig: reached.kubeconfig,
        context: reached.context,
    }
}

fn source_text(source: &settings::Source) -> String {
    match source {
        settings::Source::File(text) | settings::Source::Directory(text) => access::whole(text),
        // A signed URL is a secret, and nothing is downloaded from this copy.
        settings::Source::Url(text) => text.parse().map_or_else(|_| text.clone(), |url| transport::shown(&url)),
    }
}

/// Returns the cluster's facts about the node that this machine is or will be.
pub(crate) fn cluster_facts(
    cluster: &Cluster,
    layered: &Layered,
    run: &RunSettings,
    facts: &NodeFacts,
) -> Result<ClusterFacts> {
    let asked = ask_cluster(cluster, layered, run, facts);
    if run.connection.host_process { asked.map_err(host_process::from_a_pod) } else { asked }
}

fn ask_cluster(cluster: &Cluster, layered: &Layered, run: &RunSettings, facts: &NodeFacts) -> Result<ClusterFacts> {
    let name = settings::node_name(layered, facts, |name| Ok::<_, anyhow::Error>(cluster.node(name)?.is_some()))?;
    let addresses: Vec<Ipv4Addr> =
        facts.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr()).collect();
    cluster.facts(&FactsOptions {
        node_name: Some(&name),
        addresses: &addresses,
        namespace_override: login::namespace(&run.connection)?.as_deref(),
        needs: login::needs(run),
    })
}

impl Prepared {
    /// Fetches what the plan left open, and puts everything it needs into the store.
    pub fn complete(&mut self, app: &mut App, node: &mut dyn Node) -> Result<()> {
        if let Some(login) = &self.login {
            self.check_release(login)?;
        }
        if self.new_token {
            let bytes = self.fetch_credentials(app, node)?;
            let kubeconfig = KubeconfigFile::Rendered(bytes);
            (self.target, self.blobs) =
                target(node, &self.resolved.settings, &self.release.manifest, kubeconfig, self.etcd_files.clone())?;
            manage_kube_proxy_temporarily(
                node,
                &self.standing,
                &self.resolved.settings,
                &self.cluster_facts,
                &mut self.target,
            )?;
        }
        for blob in &self.blobs {
            store::add(node, blob.bytes())?;
        }
        self.keep_config(node)?;
        let executable = node.executable()?;
        store::add_file(node, &executable, &store::digest(&executable)?)?;
        // A CNI plugin that was tampered with may also come from the current release.
        let installed = node.disk(&self.resolved.settings.calico.root);
        let tree = self.release.tree.as_ref().unwrap_or(&installed);
        add_files_of(node, &self.release.manifest, tree, &self.target)?;
        Ok(())
    }

    /// Puts the config into the store, for a later change to start from.
    pub fn keep_config(&self, node: &mut dyn Node) -> Result<()> {
        store::add(node, self.config.as_bytes())?;
        store::add(node, self.effective.as_bytes()).map(drop)
    }

    /// Refuses a release whose Felix may not read what it needs. With etcd, Felix reads it there.
    fn check_release(&self, login: &NodeCredentials) -> Result<()> {
        let settings = &self.resolved.settings;
        if settings.datastore != settings::Datastore::Kubernetes {
            return Ok(());
        }
        self.cluster.check_release(login, settings.calico.version.line(), self.cluster_facts.api_group)
    }

    fn fetch_credentials(&mut self, app: &mut App, node: &dyn Node) -> Result<Vec<u8>> {
        let (run, kubernetes) = (&self.resolved.run, &self.resolved.settings.kubernetes);
        let wanted = Wanted::of(run, kubernetes).context("find what the settings say of credentials")?;
        let cluster = &self.cluster;
        let namespace = &wanted.kubernetes.calico_namespace;
        let fetched = app.phase("credentials", |app| {
            let fetched = login::issue(app, Some(node), cluster, &wanted)?;
            let until = fetched
                .credentials
                .expires
                .map_or_else(|| "does not expire".into(), |expires| format!("valid until {expires:.0}"));
            Ok((fetched, format!("token of service account {namespace}/calico-node, {until}")))
        })?;
        if let Err(error) = self.check_release(&fetched.credentials) {
            // The secret was created a moment ago, so nobody else has a token of it.
            if fetched.created_secret && cluster.delete_token_secret(namespace).is_err() {
                app.warn("SecretLeft", format!("the secret {namespace}/{TOKEN_SECRET} that this run made stays"));
            }
            return Err(error);
        }
        let bytes = kubeconfig::render(&fetched.credentials, namespace);
        if fetched.created_secret {
            self.about.token_secret = Some(TOKEN_SECRET.into());
            self.made_secret = true;
        }
        bytes
    }
}

/// Returns a plan for a node that only a facts file describes: everything is created, nothing is read.
pub(crate) fn offline(app: &mut App, source: &Source, facts: &Facts) -> Result<Plan> {
    let layered = app.named_config(source, &[])?;
    let resolved = settings::resolve(&layered, &facts.node, facts.cluster.as_ref())?;
    for warning in &resolved.warnings {
        app.warn(warning.id, warning.message.clone());
    }
    let network = &resolved.settings.network;
    let felix = facts.cluster.as_ref().map(|cluster| &cluster.felix).filter(|_| !resolved.run.etcd);
    if let Some(message) = felix.and_then(|felix| settings::mixed_vni(network, felix)) {
        app.warn("VniMatchesFelix", message);
    }
    let layout = Layout::of(&resolved.settings.calico.version)?;
    // The release itself is not available: the digests of its files are known only on the node.
    let unknown = |path: &str| (path.to_owned(), ManifestFile { size: 0, sha256: Sha256::unknown() });
    let manifest = Manifest {
        version: resolved.settings.calico.version.to_string(),
        archive: None,
        files: layout.required().map(unknown).collect(),
    };
    let kubeconfig = match resolved.settings.kubernetes.credentials {
        Some(_) => KubeconfigFile::Pending,
        None => KubeconfigFile::Absent,
    };
    let executable = Sha256::unknown();
    let inputs = Inputs {
        settings: &resolved.settings,
        release: &manifest,
        executable: &executable,
        kubeconfig,
        etcd_files: None,
    };
    let target = desired::desired(&inputs)?.target;
    let steps = diff(&target, &World::new(), &Owned::new());
    Ok(Plan::new(&steps, &target, false))
}

/// Puts those files of a release into the store that a target needs outside of the release's folder.
pub(crate) fn add_files_of(node: &dyn Node, manifest: &Manifest, tree: &Path, target: &Target) -> Result<()> {
    let wanted: BTreeSet<&Sha256> = target
        .world
        .values()
        .filter_map(|state| if let State::File { sha256, .. } = state { Some(sha256) } else { None })
        .collect();
    let mut files = manifest.files.iter().filter(|(_, file)| wanted.contains(&file.sha256));
    files.try_for_each(|(path, file)| store::add_file(node, &tree.join(path), &file.sha256))
}

impl Prepared {
    /// Returns the Node in its cluster.
    pub fn place(&self) -> Place<'_> {
        Place { cluster: &self.cluster, connection: &self.resolved.run.connection, name: self.about.node_name.as_str() }
    }

    /// Returns the measured facts, for a plan on another machine.
    pub fn facts(&self) -> Facts {
        Facts { node: self.node_facts.clone(), cluster: Some(self.cluster_facts.clone()) }
    }
}
