//! From a config to a plan: facts, checks, release, target. `plan` and the verbs that follow a config use this, and
//! differ only in what they do with the result.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::app::App;
use super::context::{Known, Operation, gather};
use super::files_in_use::refuse_files_in_use;
use super::flannel::Flannel;
use super::health_gate;
use super::kubernetes::{self, Kubernetes};
use super::login::{self, Wanted};
use super::options::{DrainFlags, Source};
use super::pipeline::Planned;
use super::sources::{Sources, access_of, settings_diff, whole};
use super::stage::{Purpose, Release, find_release, try_program};
use super::{checks, drain, flannel, node_result, scripts};
use crate::apply::converge;
use crate::apply::marks;
use crate::apply::receipt::About;
use crate::apply::source_vip;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::calico::etcd::EtcdFiles;
use crate::calico::kube_proxy;
use crate::calico::kubeconfig::{self, NodeCredentials};
use crate::calico::layout::Layout;
use crate::calico::networks;
use crate::cluster::{Checks, Cluster, TOKEN_SECRET};
use crate::config;
use crate::facts::{ClusterFacts, Facts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::item::{Id, Manifest, ManifestFile, State, World};
use crate::node::Node;
use crate::plan::desired::{self, Desired, Inputs, KubeconfigFile};
use crate::plan::diff::diff;
use crate::plan::order::NODE_SERVICE;
use crate::plan::show::{Disposition, Plan, SettingChange};
use crate::plan::{Owned, Step, Target};
use crate::preflight::{self, report::FailedChecks};
use crate::release::transport;
use crate::settings::{self, Backend, Credentials, Resolved, Settings, StaticRules};
use crate::values::Sha256;
use crate::version::CalicoVersion;

/// Everything that is known before anything is changed.
pub(crate) struct Prepared {
    pub planned: Planned,
    pub resolved: Resolved,
    pub about: About,
    node_facts: NodeFacts,
    pub cluster_facts: ClusterFacts,
    release: Release,
    /// Our own program, to be installed.
    executable: (Sha256, PathBuf),
    /// From the secret that the config names.
    etcd_files: Option<EtcdFiles>,
    /// From the file that the config names.
    static_rules: Option<Vec<u8>>,
    /// What is removed of Flannel, by a migration.
    flannel: Option<Flannel>,
    /// kubelet and kube-proxy, if the config installs them.
    kubernetes: Option<Kubernetes>,
    /// The node's login, if it is known already; otherwise the kubeconfig in the target may be a placeholder.
    login: Option<NodeCredentials>,
    /// Whether a new token is needed.
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

/// Gathers, checks and plans. `start`: whether the services are started, over the config; `drains`, `flags`: as in
/// [`Planned`].
///
/// # Errors
/// When node or cluster cannot be read, a check fails, or the release is not as it must be.
pub(crate) fn prepare(
    op: &mut Operation<'_>,
    start: Option<bool>,
    (drains, flags): (Option<bool>, &DrainFlags),
    purpose: Purpose,
) -> Result<Prepared> {
    let (context, standing) = (op.context, &op.context.standing);
    // Of many nodes, each would read the whole cluster.
    let checks = if node_result::revision().is_some() { Checks::OfNode } else { Checks::All };
    let mut known = gather(op.app, context, op.node, true, checks)?;
    let flannel = op.row.replaces_flannel.then(|| flannel::found(op.node, &known.facts)).transpose()?;
    if let Some(flannel) = &flannel {
        flannel.check(op)?;
        known.replaces_flannel = true;
    }
    if let (Ok(resolved), Some(start)) = (&mut known.resolved, start) {
        resolved.settings.services.start = start;
    }
    if let Err(failed) = checks::check(op.app, context.run(op.node)?, &known) {
        // If nothing else failed, etcd's own failure says more.
        let only_etcd =
            failed.downcast_ref::<FailedChecks>().is_some_and(|failed| preflight::is_etcd_alone(&failed.checks));
        return Err(known.etcd.err().filter(|_| only_etcd).unwrap_or(failed));
    }
    let Known { facts: node_facts, cluster: cluster_facts, etcd, resolved, .. } = known;
    let (resolved, cluster_facts) = (resolved?, cluster_facts?);
    for warning in &resolved.warnings {
        op.app.warn(warning.id, warning.message.clone());
    }
    let (layered, cluster, settings) = (context.config(op.node)?, context.cluster(op.node)?, &resolved.settings);
    let etcd = etcd?;
    let etcd_files = etcd.files.filter(|_| etcd.ours);
    context.sources.tell_of_bundle(op.app)?;
    let release = find_release(op, &settings.calico, &resolved.run.connection, purpose)?;
    let kubeconfig = kubeconfig(op.app, op.node, cluster, &resolved)?;
    let login = match &kubeconfig {
        KubeconfigFile::Rendered(bytes) => Some(read_login(bytes)?),
        _ => None,
    };
    let new_token = matches!(kubeconfig, KubeconfigFile::Pending);
    let program = op.node.executable()?;
    let executable = (store::digest(&program)?, program);
    let (manifest, files, rules) = (&release.manifest, etcd_files.clone(), static_rules(op.node, settings)?);
    let kubernetes = kubernetes::prepare(op, cluster, &resolved)?;
    let inputs = Inputs {
        settings,
        release: manifest,
        executable: &executable.0,
        kubeconfig,
        etcd_files: files,
        static_rules: rules.clone(),
        kubernetes: kubernetes.as_ref().map(|kubernetes| kubernetes.files.clone()),
    };
    let (target, blobs) = target(op, &cluster_facts, &inputs, flannel.as_ref())?;
    let steps = converge::plan(op.node, standing, &target)?;
    refuse_files_in_use(op.node, &steps, &target, manifest)?;
    let name = settings.node_name.to_string();
    let mut plan = Plan::new(&steps, &target, standing.receipt().is_some());
    plan.pods = drain::attached(op.app, context, op.node, (&name, Duration::MAX), &steps)?;
    // Also on a node that the scripts made: what no DaemonSet makes again must move away first.
    let moves = plan.pods.iter().any(|pod| matches!(pod.disposition, Disposition::Moved | Disposition::Unknown));
    let version = settings.kubernetes_node.as_ref().map(|node| node.version);
    plan = plan.with_kubelet(kubernetes::kubelet_minor(op.node, standing, &steps, version)?);
    plan.sets_source_vip = source_vip::comes_later(&target, &steps);
    if !settings.services.start
        && settings.network.backend == Backend::Vxlan
        && source_vip::is_unknown(op.node, &target)?
    {
        let name = networks::HOST_ENDPOINT;
        let message =
            format!("kube-proxy keeps its source VIP until {name} exists: run apply after the services were started");
        op.app.warn("KubeProxyNetwork", message);
    }
    plan.needs_drain |= moves || restarts_on_another_network(op.node, standing, settings, &steps)?;
    if let Some(why) = cluster_facts.node.as_ref().and_then(health_gate::not_ready_by_others) {
        op.app.warn("NodeNotReady", format!("Node {name} is not Ready: {why}"));
    }
    let (config, effective) = (layered.document().to_string(), effective(&resolved));
    let effective_text = serde_json::to_string(&effective).unwrap_or_default();
    let about = about(&config, &effective_text, &resolved, manifest, standing);
    plan = plan.between(standing.release(), &about.calico_version);
    plan.settings_diff = settings_diff(op.node, standing.receipt(), &about, Some(&effective));
    let is_first = standing.in_place().is_none() && standing.journal.is_none();
    if is_first {
        settings_of_scripts(
            op,
            (&node_facts, &cluster_facts, &about.calico_version),
            &effective,
            &mut plan.settings_diff,
        );
    }
    let root = &settings.calico.root;
    if is_first && op.node.disk(root).is_dir() {
        let version = &about.calico_version;
        let message = format!("no receipt records which release {root} holds: it may be newer than {version}");
        op.app.warn("ReleaseUnknown", message);
    }
    op.app.announce(&plan);
    let flags = flags.clone();
    Ok(Prepared {
        planned: Planned { name, target, steps, plan, drains, flags, drain: None },
        about,
        node_facts,
        cluster_facts,
        release,
        executable,
        etcd_files,
        static_rules: rules,
        flannel,
        kubernetes,
        login,
        new_token,
        made_secret: false,
        blobs,
        config,
        effective: effective_text,
        whole_config: layered.whole_document(),
        resolved,
    })
}

/// On a node that Calico's scripts installed: adds the settings that they had, where the config changes them.
fn settings_of_scripts(
    op: &mut Operation<'_>,
    (node, cluster, version): (&NodeFacts, &ClusterFacts, &CalicoVersion),
    effective: &BTreeMap<String, Value>,
    diff: &mut Vec<SettingChange>,
) {
    let scripts::Settings { values: theirs, unread } = match scripts::settings(op.node, node, cluster, version) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => {
            let message = format!("which settings of Calico's scripts change is not known: {error:#}");
            op.app.warn("SettingsNotImported", message);
            return;
        }
    };
    let ours = effective.iter().filter(|(path, _)| theirs.contains_key(*path));
    let ours = ours.map(|(path, value)| (path.clone(), value.clone())).collect();
    let changes = SettingChange::between(&theirs, &ours);
    if !unread.is_empty() {
        let message = format!("not all settings of Calico's scripts could be read: {}", unread.join("; "));
        op.app.warn("SettingsNotImported", message);
    }
    if changes.is_empty() {
        return;
    }
    diff.retain(|change| !changes.iter().any(|other| other.path == change.path));
    let paths: Vec<&str> = changes.iter().map(|change| change.path.trim_start_matches("spec.")).collect();
    let message = format!(
        "Calico's scripts had other settings here: {}\nkeep theirs instead: calicoctl-win config import --live --out node.yaml",
        paths.join(", ")
    );
    op.app.warn("SettingsNotImported", message);
    diff.extend(changes);
    diff.sort_by(|a, b| a.path.cmp(&b.path));
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

/// Returns the static rules in the file that the settings name.
fn static_rules(node: &dyn Node, settings: &Settings) -> Result<Option<Vec<u8>>> {
    let StaticRules::File { file } = &settings.platform.static_rules else { return Ok(None) };
    let wrong = |why: String, hint: &str| {
        let what = format!("spec.platform.staticRules: the rules in {file} cannot be used");
        Fault::new(Exit::InvalidConfig, "StaticRulesInvalid", what).hint(hint).because(anyhow::anyhow!(why))
    };
    let root = &settings.calico.root;
    if file.is_below(root) {
        let why = format!("it is in {root}, which is replaced with each release");
        return Err(wrong(why, "move the file to another folder, or leave the field out to keep it as it is"));
    }
    let bytes = fs::read(node.disk(file))
        .map_err(|error| wrong(error.to_string(), "create the file on this node, or correct the path"))?;
    let rules = serde_json::from_slice::<Value>(&bytes).map_err(|error| error.to_string());
    match rules.and_then(|rules| config::static_rules::check(&rules)) {
        Ok(()) => Ok(Some(bytes)),
        Err(why) => Err(wrong(why, "correct the file: Felix would end at every start")),
    }
}

fn read_login(kubeconfig: &[u8]) -> Result<NodeCredentials> {
    let text = std::str::from_utf8(kubeconfig).context("read the node's kubeconfig")?;
    kubeconfig::parse(text).context("read the node's kubeconfig")
}

/// Returns the target, with the bytes of files that are not in the release.
fn target(
    op: &Operation<'_>,
    cluster: &ClusterFacts,
    inputs: &Inputs<'_>,
    flannel: Option<&Flannel>,
) -> Result<(Target, Vec<desired::Blob>)> {
    let Desired { mut target, mut blobs } = desired::desired(inputs)?;
    if inputs.settings.network.backend != Backend::None {
        target.absent.extend(networks_of_blocks(op.node)?);
    }
    target.absent.extend(flannel.iter().flat_map(|flannel| flannel.items.clone()));
    target.absent.extend(kept_away(&op.context.standing, &target.world));
    manage_kube_proxy_temporarily(op.node, &op.context.standing, inputs.settings, cluster, &mut target)?;
    blobs.extend(source_vip::set(op.node, &mut target)?.map(desired::Blob::from));
    Ok((target, blobs))
}

/// Networks that Calico's CNI plugin made for a block of addresses each, as it does unless pods share one network: beside
/// `Calico`, nobody would ever delete them.
fn networks_of_blocks(node: &dyn Node) -> Result<BTreeSet<Id>> {
    let mut found = marks::networks(node)?;
    found.retain(|id| matches!(id, Id::Network(name) if networks::is_for_pods(name) && name != networks::PODS));
    Ok(found)
}

/// What an earlier generation removed of other products: it stays away until an uninstall.
fn kept_away(standing: &Standing, wanted: &World) -> BTreeSet<Id> {
    let begun = standing.journal.as_ref().map(|journal| &journal.header.target);
    let targets = standing.receipt().map(|receipt| &receipt.target).into_iter().chain(begun);
    let owned = standing.owned();
    let was_there = |id: &&Id| owned.get(id).is_some_and(Option::is_some) && !wanted.contains_key(id);
    targets.flat_map(|target| &target.absent).filter(was_there).cloned().collect()
}

/// On EKS, kube-proxy is Amazon's: it gets Direct Server Return while Calico is installed. After Flannel, kube-proxy gets
/// Calico's network.
fn manage_kube_proxy_temporarily(
    node: &dyn Node,
    standing: &Standing,
    settings: &Settings,
    cluster: &ClusterFacts,
    target: &mut Target,
) -> Result<()> {
    let id = Id::Service(kube_proxy::NAME.into());
    let gets_dsr = settings.provider.brings().own_kube_proxy && settings.dsr;
    let after_flannel = source_vip::follows_flannel(target);
    if !gets_dsr && !after_flannel {
        return Ok(());
    }
    let Some(State::Service(now)) = node.get(&id)? else { return Ok(()) };
    let mut wanted = None;
    if gets_dsr {
        // kube-proxy comes with kubelet and has its version.
        let kubelet = cluster.node.as_ref().map(|node| node.kubelet_version.as_str());
        let version = kubelet.filter(|version| !version.is_empty()).unwrap_or(&cluster.kubernetes_version);
        wanted = preflight::minor(version).and_then(|(_, minor)| kube_proxy::with_dsr(&now, minor));
    }
    let mut stays = standing.owned().contains_key(&id);
    if after_flannel {
        wanted = flannel::kube_proxy(wanted.as_ref().unwrap_or(&now)).or(wanted);
        stays |= kube_proxy::config_file(&now).is_some();
    }
    // One that is ours already must stay so, and one whose file is changed is stopped around that.
    let wanted = wanted.or_else(|| stays.then_some(*now));
    if let Some(wanted) = wanted {
        desired::manage_service_temporarily(target, kube_proxy::NAME, wanted);
    }
    Ok(())
}

/// Returns every field that has a value, by its path. How cluster and release are reached is part of one run only.
pub(crate) fn effective(resolved: &Resolved) -> BTreeMap<String, Value> {
    let fields = resolved.origins.iter().filter(|field| !field.value.is_null() && !config::is_of_a_run(&field.path));
    fields.map(|field| (field.path.clone(), field.value.clone())).collect()
}

fn about(config: &str, effective: &str, resolved: &Resolved, manifest: &Manifest, standing: &Standing) -> About {
    let (settings, reached) = (&resolved.settings, access_of(&resolved.run.connection));
    let mut fingerprint = settings.clone();
    // The archive's source does not change the node; its digest is in the plan.
    fingerprint.calico.source = settings::Source::Directory(String::new());
    let text = serde_json::to_string(&fingerprint).unwrap_or_default();
    let former = standing.receipt().and_then(|receipt| receipt.about.as_ref());
    About {
        calico_version: settings.calico.version.clone(),
        backend: settings.network.backend,
        vni: settings.network.vni,
        node_name: settings.node_name.clone(),
        calico_namespace: settings.kubernetes.calico_namespace.clone(),
        settings: Sha256::of(text.as_bytes()),
        config: Some(Sha256::of(config.as_bytes())),
        effective: Some(Sha256::of(effective.as_bytes())),
        archive: manifest.archive.clone(),
        source: match &settings.calico.source {
            settings::Source::File(text) | settings::Source::Directory(text) => whole(text),
            // A signed URL is a secret, and nothing is downloaded from this copy.
            settings::Source::Url(text) => text.parse().map_or_else(|_| text.clone(), |url| transport::shown(&url)),
        },
        token_secret: former.and_then(|about| about.token_secret.clone()),
        kubeconfig: reached.kubeconfig,
        context: reached.context,
    }
}

impl Prepared {
    /// Fetches what the plan left open, and puts everything it needs into the store.
    pub fn complete(&mut self, op: &mut Operation<'_>) -> Result<()> {
        if let Some(tree) = self.release.tree.as_ref().filter(|_| self.release.is_new) {
            try_program(op.app, op.node, tree, &self.about.calico_version)?;
        }
        if let Some(kubernetes) = &self.kubernetes {
            kubernetes.store(op.node)?;
        }
        let cluster = op.context.cluster(op.node)?;
        if let Some(login) = &self.login {
            self.check_release(cluster, login)?;
        }
        if self.new_token {
            let kubeconfig = KubeconfigFile::Rendered(self.fetch_credentials(op)?);
            let (settings, release) = (&self.resolved.settings, &self.release.manifest);
            let (executable, etcd_files) = (&self.executable.0, self.etcd_files.clone());
            let static_rules = self.static_rules.clone();
            let kubernetes = self.kubernetes.as_ref().map(|kubernetes| kubernetes.files.clone());
            let inputs = Inputs { settings, release, executable, kubeconfig, etcd_files, static_rules, kubernetes };
            (self.planned.target, self.blobs) = target(op, &self.cluster_facts, &inputs, self.flannel.as_ref())?;
        }
        for blob in &self.blobs {
            store::add(op.node, blob.bytes())?;
        }
        self.keep_config(op.node)?;
        store::add_file(op.node, &self.executable.1, &self.executable.0)?;
        // A CNI plugin that was tampered with may also come from the current release.
        let installed = op.node.disk(&self.resolved.settings.calico.root);
        let tree = self.release.tree.as_ref().unwrap_or(&installed);
        add_files_of(op.node, &self.release.manifest, tree, &self.planned.target)
    }

    /// Puts the config into the store, for a later change to start from.
    pub fn keep_config(&self, node: &mut dyn Node) -> Result<()> {
        store::add(node, self.config.as_bytes())?;
        store::add(node, self.effective.as_bytes()).map(drop)
    }

    /// Refuses a release whose Felix may not read what it needs. With etcd, Felix reads it there.
    fn check_release(&self, cluster: &Cluster, login: &NodeCredentials) -> Result<()> {
        let settings = &self.resolved.settings;
        if settings.datastore != settings::Datastore::Kubernetes {
            return Ok(());
        }
        cluster.check_release(login, settings.calico.version.line(), self.cluster_facts.api_group)
    }

    fn fetch_credentials(&mut self, op: &mut Operation<'_>) -> Result<Vec<u8>> {
        let (run, kubernetes) = (&self.resolved.run, &self.resolved.settings.kubernetes);
        let wanted = Wanted::of(run, kubernetes).context("find what the settings say of credentials")?;
        let (node, cluster, namespace) = (&*op.node, op.context.cluster(op.node)?, &kubernetes.calico_namespace);
        let fetched = op.app.phase("credentials", |app| {
            let fetched = login::issue(app, Some(node), cluster, &wanted)?;
            let until = fetched
                .credentials
                .expires
                .map_or_else(|| "does not expire".into(), |expires| format!("valid until {expires:.0}"));
            Ok((fetched, format!("token of service account {namespace}/calico-node, {until}")))
        })?;
        if let Err(error) = self.check_release(cluster, &fetched.credentials) {
            // The secret was created a moment ago, so nobody else has a token of it.
            if fetched.created_secret && cluster.delete_token_secret(namespace).is_err() {
                let message = format!("the secret {namespace}/{TOKEN_SECRET} that this run made remains");
                op.app.warn("SecretLeft", message);
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

    /// Returns the measured facts, for a plan on another machine.
    pub fn facts(&self) -> Facts {
        Facts { node: self.node_facts.clone(), cluster: Some(self.cluster_facts.clone()) }
    }
}

/// Returns a plan for a node that only a facts file describes: everything is created, nothing is read.
pub(crate) fn offline(app: &mut App, source: &Source, facts: &Facts) -> Result<Plan> {
    let layered = Sources::named(app, source).read(None, &Standing::default())?;
    let resolved = settings::resolve(&layered, &facts.node, facts.cluster.as_ref())?;
    for warning in &resolved.warnings {
        app.warn(warning.id, warning.message.clone());
    }
    let network = &resolved.settings.network;
    let felix = facts.cluster.as_ref().filter(|cluster| !cluster.calico_unread()).map(|cluster| &cluster.felix);
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
        static_rules: None,
        kubernetes: resolved.settings.kubernetes_node.as_ref().map(|_| kubernetes::unknown()),
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
