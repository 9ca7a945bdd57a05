//! From a command line to a plan: config, facts, checks, release, wanted world. `plan` and
//! `install` go through here and differ only in what they do with the result.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::app::App;
use super::args::Source;
use crate::apply::converge::{self, Applied, Standing};
use crate::apply::receipt::About;
use crate::apply::store;
use crate::calico::kubeconfig::{self, NodeCredentials};
use crate::calico::layout::{Build, Layout};
use crate::calico::paths;
use crate::calico::version::CalicoVersion;
use crate::cluster::{Cluster, FactsOptions, TOKEN_SECRET};
use crate::config::Layered;
use crate::config::types::Auto;
use crate::facts::{ClusterFacts, Facts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR};
use crate::plan::desired::{self, Desired, Inputs, KubeconfigFile};
use crate::plan::diff::diff;
use crate::plan::item::{Id, Manifest, ManifestFile, State, Tree, World};
use crate::plan::show::Plan;
use crate::plan::{Owned, Step, Target};
use crate::preflight;
use crate::release::{self, stage::StageOptions};
use crate::report::document::{CheckStatus, exit_of};
use crate::report::event::{Event, Sink};
use crate::report::text;
use crate::settings::{self, Datastore, Resolved, Settings};
use crate::values::{Sha256, WinPath};

/// Everything that is known before anything is changed.
pub(crate) struct Prepared {
    pub resolved: Resolved,
    pub cluster: Option<Cluster>,
    pub standing: Standing,
    pub target: Target,
    pub steps: Vec<Step>,
    pub plan: Plan,
    pub about: About,
    node_facts: NodeFacts,
    cluster_facts: Option<ClusterFacts>,
    release: Release,
    /// Whether a new token is needed: the kubeconfig in `target` is then a placeholder.
    new_token: bool,
    /// This run made the token secret in the cluster.
    pub made_secret: bool,
    blobs: Vec<desired::Blob>,
}

/// A verified release, and where its files lie.
struct Release {
    manifest: Manifest,
    /// None when the files need not be read: they are in place already.
    tree: Option<PathBuf>,
    /// A folder that goes when this does: a plan stages beside the node, not on it.
    _scratch: Option<Scratch>,
}

/// How far `prepare` may go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing on the node changes, not even the store.
    Look,
    /// The release is staged in the node's store.
    Install,
}

/// Gathers, checks and plans.
pub(crate) fn prepare(
    app: &mut App,
    node: &mut dyn Node,
    source: &Source,
    start: Option<bool>,
    purpose: Purpose,
) -> Result<Prepared> {
    let layered = app.config(node, source, &[])?;
    let connection = settings::connection(&layered)?;
    let node_facts = node.facts().context("measure the node")?;

    let (cluster, cluster_facts) = app.phase("cluster", |app| {
        let cluster = app.cluster(node, &connection)?;
        let name = node_name(&layered, &node_facts);
        let options = FactsOptions { node_name: &name, namespace_override: connection.calico_namespace.as_deref() };
        let facts = cluster.facts(&options);
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

    let mut resolved = settings::resolve(&layered, &node_facts, Some(&cluster_facts))?;
    if let Some(start) = start {
        resolved.settings.services.start = start;
    }
    for warning in &resolved.warnings {
        app.warn(warning.id, warning.message.clone());
    }
    check(app, &resolved, &node_facts, &cluster_facts)?;

    if let Some(secret) = &resolved.run.etcd_tls_secret {
        let what = format!(
            "this version does not fetch etcd's certificates from the secret {}/{}",
            secret.namespace, secret.name
        );
        return Err(Fault::new(Exit::Unsupported, "EtcdTlsSecret", what)
            .hint("copy the three files to the node and name them in spec.datastore.etcd.keyFile, certFile and caCertFile")
            .into());
    }
    let standing = Standing::load(node)?;
    let release = find_release(app, node, &standing, &resolved, purpose)?;
    let now = node.now();
    let kept = match resolved.settings.datastore {
        Datastore::Kubernetes => kept_kubeconfig(node, &resolved.settings, &cluster, now),
        Datastore::Etcdv3 { .. } => None,
    };
    let kubeconfig = match (&resolved.settings.datastore, kept) {
        (_, Some(bytes)) => KubeconfigFile::Rendered(bytes),
        (Datastore::Kubernetes, None) => KubeconfigFile::Pending,
        (Datastore::Etcdv3 { .. }, None) => KubeconfigFile::Absent,
    };
    let new_token = matches!(kubeconfig, KubeconfigFile::Pending);
    let (target, blobs) = target(node, &resolved.settings, &release.manifest, kubeconfig)?;
    let steps = converge::plan(node, &standing, &target)?;
    let plan = Plan::new(&steps, &target, standing.receipt().is_some());
    announce(app, &plan);
    let about = about(&resolved.settings, &release.manifest, &standing);
    Ok(Prepared {
        resolved,
        cluster: Some(cluster),
        standing,
        target,
        steps,
        plan,
        about,
        node_facts,
        cluster_facts: Some(cluster_facts),
        release,
        new_token,
        made_secret: false,
        blobs,
    })
}

/// The plan as events.
pub(crate) fn announce(app: &mut App, plan: &Plan) {
    for change in &plan.changes {
        app.event(&Event::Planned(Box::new(change.clone())));
    }
    app.event(&Event::PlanMade { counts: plan.counts(), disruption: plan.disruption });
}

/// All checks, shown at once; the run stops if one failed that may not.
fn check(app: &mut App, resolved: &Resolved, node: &NodeFacts, cluster: &ClusterFacts) -> Result<()> {
    let ignored: Vec<String> =
        resolved.run.preflight_ignore.iter().chain(&app.global.ignore_preflight_errors).cloned().collect();
    let input = preflight::Input { settings: Some(&resolved.settings), node, cluster: Some(cluster) };
    let report = preflight::run(&input, &ignored);
    for check in &report.checks {
        app.event(&Event::Checked(check.clone()));
    }
    for check in report.checks.iter().filter(|check| check.status == CheckStatus::Warn || check.ignored) {
        app.event(&Event::Warning { id: preflight::known_id(&check.id), message: check.detail.clone() });
    }
    preflight::verdict(&report)
}

/// Our kubeconfig on the node, if it is still good: same server and CA, a third of its token's life
/// left, and the API server takes it.
fn kept_kubeconfig(node: &dyn Node, settings: &Settings, cluster: &Cluster, now: Timestamp) -> Option<Vec<u8>> {
    let bytes = std::fs::read(node.disk(&paths::kubeconfig(&settings.calico.root))).ok()?;
    let credentials = kubeconfig::parse(std::str::from_utf8(&bytes).ok()?).ok()?;
    if credentials.server != cluster.server()
        || cluster.ca_pem().is_some_and(|ca| ca.trim() != credentials.ca_pem.trim())
    {
        return None;
    }
    let token = credentials.token.reveal();
    if let Some(expires) = credentials.expires {
        let issued = kubeconfig::token_issued(token)?;
        if now > issued + expires.duration_since(issued) * 2 / 3 {
            return None;
        }
    }
    cluster.check(&credentials).ok()?;
    // Rendered anew, so that a form that has changed since is written again.
    kubeconfig::render(&credentials, &settings.kubernetes.calico_namespace).ok()
}

/// What is wanted, with the bytes that are not in the release.
fn target(
    node: &dyn Node,
    settings: &Settings,
    manifest: &Manifest,
    kubeconfig: KubeconfigFile,
) -> Result<(Target, Vec<desired::Blob>)> {
    let executable = node.executable()?;
    let sha256 = store::digest(&executable)?;
    let inputs = Inputs { settings, release: manifest, executable: &sha256, kubeconfig, etcd_files: None };
    let Desired { target, blobs } = desired::desired(&inputs)?;
    Ok((target, blobs))
}

fn about(settings: &Settings, manifest: &Manifest, standing: &Standing) -> About {
    let mut fingerprint = settings.clone();
    // Where the archive came from does not change the node; its digest is in the plan.
    fingerprint.calico.source = settings::Source::Directory(String::new());
    let text = serde_json::to_string(&fingerprint).unwrap_or_default();
    About {
        calico_version: settings.calico.version.clone(),
        backend: settings.network.backend,
        vni: settings.network.vni,
        node_name: settings.node_name.clone(),
        calico_namespace: settings.kubernetes.calico_namespace.clone(),
        settings: Sha256::of(text.as_bytes()),
        archive: manifest.archive.clone(),
        source: source_text(&settings.calico.source),
        token_secret: standing
            .receipt()
            .and_then(|receipt| receipt.about.as_ref())
            .and_then(|about| about.token_secret.clone()),
    }
}

fn source_text(source: &settings::Source) -> String {
    match source {
        settings::Source::File(text) | settings::Source::Directory(text) | settings::Source::Url(text) => text.clone(),
    }
}

/// The release as the settings name it: in place already, or fetched, verified and staged.
fn find_release(
    app: &mut App,
    node: &dyn Node,
    standing: &Standing,
    resolved: &Resolved,
    purpose: Purpose,
) -> Result<Release> {
    let settings = &resolved.settings;
    Layout::of(&settings.calico.version)?;
    if let Some(manifest) = in_place(node, standing, settings)? {
        let message = format!("Calico {} is in place", manifest.version);
        app.event(&Event::PhaseSkipped { phase: "release", reason: message });
        return Ok(Release { manifest, tree: None, _scratch: None });
    }
    app.phase("release", |app| {
        let mut source = settings.calico.source.clone();
        if let settings::Source::Url(url) = &source {
            source = settings::Source::Url(app.release_url(url, &settings.calico.version)?);
        }
        let transport = transport(&resolved.run.connection);
        let cache = cache_dir(app, node);
        let mut events = |event| app.event(&event);
        let found = release::locate::locate(
            &source,
            Some(&settings.calico.version),
            settings.calico.sha256.as_ref(),
            &cache,
            &transport,
            &mut events,
        )?;
        let (dest, scratch) = match purpose {
            Purpose::Look => {
                let scratch = Scratch::new()?;
                (scratch.0.join("tree"), Some(scratch))
            }
            Purpose::Install => (node.disk(&store::tree("staging")), None),
        };
        if purpose == Purpose::Install && dest.exists() {
            std::fs::remove_dir_all(&dest).context("remove what an earlier run left half-staged")?;
        }
        let options =
            StageOptions { version: &settings.calico.version, sha256: found.sha256.as_ref(), layout: &check_layout };
        let staged = release::stage::stage(&found.path, &dest, &options, &mut events);
        if let (Err(error), settings::Source::Url(_)) = (&staged, &source) {
            forget_damaged(&found.path, error);
        }
        let manifest = staged?;
        let tree = match purpose {
            Purpose::Look => dest,
            Purpose::Install => {
                store::discard_tree(node, manifest.digest().as_str()).context("replace a staged release")?;
                let staged = node.disk(&store::tree(manifest.digest().as_str()));
                std::fs::rename(&dest, &staged).context("put the staged release into the store")?;
                staged
            }
        };
        let size: u64 = manifest.files.values().map(|file| file.size).sum();
        let digest =
            manifest.archive.as_ref().map_or_else(String::new, |digest| format!(", sha256 {} ok", digest.short()));
        let message =
            format!("Calico {}, {} files, {}{digest}", manifest.version, manifest.files.len(), text::bytes(size));
        Ok((Release { manifest, tree: Some(tree), _scratch: scratch }, message))
    })
}

/// A broken download must not be found in the cache the next time.
fn forget_damaged(archive: &Path, error: &anyhow::Error) {
    let broken = ["ReleaseDamaged", "ReleaseTruncated", "ReleaseNotZip"];
    if error.downcast_ref::<Fault>().is_some_and(|fault| broken.contains(&fault.id)) {
        let _next_download_replaces_it = std::fs::remove_file(archive);
    }
}

/// What a version must hold, as the release room asks for it.
pub(crate) fn check_layout(version: &CalicoVersion, files: &[&str]) -> Result<()> {
    let layout = Layout::of(version)?;
    layout
        .check(files.iter().copied())
        .map_err(|missing| layout.refusal(&missing, Build::guess(files.iter().copied())).into())
}

/// The standing release, when it is the wanted one and stands untouched.
fn in_place(node: &dyn Node, standing: &Standing, settings: &Settings) -> Result<Option<Manifest>> {
    let Some(about) = standing.receipt().and_then(|receipt| receipt.about.as_ref()) else { return Ok(None) };
    if about.calico_version != settings.calico.version {
        return Ok(None);
    }
    let wanted = match &settings.calico.source {
        // A folder has no digest to compare; a file's tells whether it is the same archive.
        settings::Source::Directory(_) => return Ok(None),
        settings::Source::File(file) => Some(store::digest(Path::new(file))?),
        settings::Source::Url(_) => settings.calico.sha256.clone(),
    };
    if wanted.is_some() && wanted != about.archive {
        return Ok(None);
    }
    match node.get(&Id::Tree(settings.calico.root.clone()))? {
        Some(State::Tree(Tree::Release(_))) => Ok(Some(store::manifest(&node.disk(&settings.calico.root))?)),
        _ => Ok(None),
    }
}

/// How downloads go, as the config says.
pub(crate) fn transport(connection: &settings::Connection) -> release::transport::Transport {
    release::transport::Transport {
        proxy: connection.proxy.clone(),
        no_proxy: Some(connection.no_proxy.join(",")).filter(|hosts| !hosts.is_empty()),
        ca_file: connection.ca_file.as_ref().map(PathBuf::from),
        retries: connection.retries as usize,
        offline: connection.offline,
        ..release::transport::Transport::default()
    }
}

/// The name to look for in the cluster, before the settings are made: the config's or the host's.
pub(crate) fn node_name(layered: &Layered, facts: &NodeFacts) -> String {
    let given = layered.config.spec.kubernetes.node_name.clone().and_then(Auto::given);
    given.map_or_else(|| facts.host_name.to_lowercase(), |name| name.0.to_string())
}

pub(crate) fn cache_dir(app: &App, node: &dyn Node) -> PathBuf {
    match &app.global.sandbox {
        Some(dir) => dir.join("cache"),
        None => node.disk(&WinPath::known(STATE_DIR).join("cache")),
    }
}

impl Prepared {
    /// Fetches what the plan left open, and puts everything it needs into the store.
    pub fn complete(&mut self, app: &mut App, node: &mut dyn Node) -> Result<()> {
        if self.new_token {
            let bytes = self.fetch_credentials(app)?;
            let kubeconfig = KubeconfigFile::Rendered(bytes);
            (self.target, self.blobs) = target(node, &self.resolved.settings, &self.release.manifest, kubeconfig)?;
        }
        for blob in &self.blobs {
            store::add(node, blob.bytes())?;
        }
        let executable = node.executable()?;
        store::add_file(node, &executable, &store::digest(&executable)?)?;
        {
            // A CNI plugin that was tampered with comes from the release that stands, too.
            let installed = node.disk(&self.resolved.settings.calico.root);
            let tree = self.release.tree.as_ref().unwrap_or(&installed);
            let wanted: Vec<&Sha256> = self
                .target
                .world
                .values()
                .filter_map(|state| if let State::File { sha256, .. } = state { Some(sha256) } else { None })
                .collect();
            for (path, file) in &self.release.manifest.files {
                if wanted.contains(&&file.sha256) {
                    store::add_file(node, &tree.join(path), &file.sha256)?;
                }
            }
        }
        Ok(())
    }

    fn fetch_credentials(&mut self, app: &mut App) -> Result<Vec<u8>> {
        let settings = &self.resolved.settings;
        let create = self.resolved.run.create_token_secret;
        let limit = self.resolved.run.connection.timeout;
        let Some(cluster) = &self.cluster else { return Err(anyhow::anyhow!("no cluster to fetch credentials from")) };
        let namespace = &settings.kubernetes.calico_namespace;
        let fetched = app.phase("credentials", |app| {
            let mut events = |event| app.event(&event);
            let fetched =
                cluster.node_credentials(namespace, settings.kubernetes.credentials, create, limit, &mut events)?;
            let until = fetched
                .credentials
                .expires
                .map_or_else(|| "does not expire".into(), |expires| format!("valid until {expires:.0}"));
            Ok((fetched, format!("token of service account {namespace}/calico-node, {until}")))
        })?;
        if fetched.created_secret {
            self.about.token_secret = Some(TOKEN_SECRET.into());
            self.made_secret = true;
        }
        let credentials: NodeCredentials = fetched.credentials;
        kubeconfig::render(&credentials, namespace)
    }
}

/// Runs the engine with the screen attached; when it fails, takes the change back.
pub(crate) fn engine(
    app: &mut App,
    node: &mut dyn Node,
    work: impl FnOnce(&mut dyn Node, Sink) -> Result<Applied>,
) -> Result<Applied> {
    let error = match work(node, &mut |event| app.event(&event)) {
        Ok(applied) => return Ok(applied),
        Err(error) => error,
    };
    // The journal stays: `resume` goes on from here, or back.
    if exit_of(&error) == Exit::Cancelled {
        app.half_done = true;
        return Err(error);
    }
    match Standing::load(node) {
        Ok(Standing { journal: Some(_), .. }) => {}
        // No journal: nothing was touched, so there is nothing to take back.
        Ok(_) => {
            converge::tidy(node, &mut |event| app.event(&event));
            return Err(error);
        }
        // It cannot be known.
        Err(second) => {
            app.half_done = true;
            let what = format!("the change failed, and where the node stands cannot be read ({second:#})");
            return Err(error.context(Fault::new(Exit::FailedIncomplete, "RollbackFailed", what)));
        }
    }
    app.event(&Event::RollbackStarted { reason: format!("{error:#}") });
    let failed_phase = app.reporter.failed_phase;
    let undone = converge::undo(node, &mut |event| app.event(&event));
    app.reporter.failed_phase = failed_phase;
    app.event(&Event::RollbackCompleted { complete: undone.is_ok() });
    Err(match undone {
        Ok(_) => rolled_back(error),
        Err(second) => {
            app.half_done = true;
            let what = format!("the change failed, and so did taking it back ({second:#})");
            error.context(Fault::new(Exit::FailedIncomplete, "RollbackFailed", what).hint(format!(
                "mend the cause, then go on with: {} or back with: {}",
                app.command("resume"),
                app.command("resume --undo")
            )))
        }
    })
}

fn rolled_back(error: anyhow::Error) -> anyhow::Error {
    let (id, hint) = match error.downcast_ref::<Fault>() {
        Some(fault) => (fault.id, fault.hint.clone()),
        None => ("RolledBack", None),
    };
    let mut fault = Fault::new(Exit::FailedRolledBack, id, "the change failed and was taken back");
    fault.hint = hint.or_else(|| Some("mend the cause that is named here and run the command again".into()));
    error.context(fault)
}

/// A folder on this machine that is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("calicoctl-win-{}", super::app::run_id()));
        std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _temporary_files_may_stay = std::fs::remove_dir_all(&self.0);
    }
}

/// A plan for a node that only a facts file describes: everything is made, nothing is looked at.
pub(crate) fn offline(app: &mut App, source: &Source, facts: &Facts) -> Result<Plan> {
    let layered = app.named_config(source, &[])?;
    let resolved = settings::resolve(&layered, &facts.node, facts.cluster.as_ref())?;
    for warning in &resolved.warnings {
        app.warn(warning.id, warning.message.clone());
    }
    let layout = Layout::of(&resolved.settings.calico.version)?;
    // The release itself is not at hand: its files have digests that only the node will know.
    let unknown = |path: &str| (path.to_owned(), ManifestFile { size: 0, sha256: Sha256::unknown() });
    let manifest = Manifest {
        version: resolved.settings.calico.version.to_string(),
        archive: None,
        files: layout.required().map(unknown).collect(),
    };
    let kubeconfig = match resolved.settings.datastore {
        Datastore::Kubernetes => KubeconfigFile::Pending,
        Datastore::Etcdv3 { .. } => KubeconfigFile::Absent,
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

impl Prepared {
    /// What was measured, for a plan elsewhere.
    pub fn facts(&self) -> Facts {
        Facts { node: self.node_facts.clone(), cluster: self.cluster_facts.clone() }
    }
}
