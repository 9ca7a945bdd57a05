//! What a run's config is made from: documents, and single fields over them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use serde_json::{Value, json};

use super::app::App;
use super::connector::GENERATION;
use super::options::{Source, SourceOrBundle};
use super::saved::Saved;
use super::stdin::Stdin;
use super::verb::{Aim, Base, RESUME, Row, UNINSTALL};
use crate::agent::trial::Trial;
use crate::apply::cordon::Cordon;
use crate::apply::node_object::Access;
use crate::apply::receipt::{About, Receipt};
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::config::{self, Document, Layered, Origin, Override};
use crate::fault::{Exit, Fault};
use crate::node::trust::{self, Use};
use crate::node::{Node, STATE_DIR};
use crate::plan::show::SettingChange;
use crate::release::bundle::{self, Bundle};
use crate::settings::{Backend, Connection};
use crate::values::{Sha256, WinPath};
use crate::version::CalicoVersion;
use crate::yaml;
use crate::yaml::encoding;

/// What a command line says of the config, besides the global options.
#[derive(Default)]
pub(crate) struct Choice<'a> {
    pub source: Source,
    /// A file that has the release and Kubernetes' programs; then `source` names no release.
    pub bundle: Option<PathBuf>,
    /// The fields that are reset.
    pub unset: &'a [String],
    /// A saved plan to apply.
    pub saved: Option<&'a Path>,
}

impl Choice<'_> {
    pub fn of(named: &SourceOrBundle) -> Self {
        Self { source: named.source.clone(), bundle: named.bundle.clone(), ..Self::default() }
    }
}

/// What a config is made from.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    /// The files that the command line names.
    pub files: Vec<PathBuf>,
    stdin: Rc<Stdin>,
    overrides: Vec<Override>,
    /// The document of a sandbox, below all others.
    sandbox: Option<Document>,
    /// A saved plan: its config is the only one then.
    pub saved: Option<Saved>,
    /// The bundle that has everything that would be downloaded.
    pub bundle: Option<Rc<Bundle>>,
    /// Without a file, the config of the current generation is used.
    pub on_current: bool,
    /// The fields of it that are not kept.
    unset: Vec<String>,
    /// Another release is named than the current generation's.
    other_release: bool,
    /// How an earlier run reached the cluster: below all documents, unless they name a kubeconfig.
    access: Option<Document>,
}

/// Returns the machine's own config file, which is used if no other is named.
pub(crate) fn machines_file() -> WinPath {
    WinPath::known(STATE_DIR).join("config.yaml")
}

impl Sources {
    /// The files, variables and flags of a command line.
    pub fn named(app: &App, source: &Source) -> Self {
        let files = app.global.config.clone();
        Self { files, stdin: Rc::clone(&app.stdin), overrides: overrides(app, source), ..Self::default() }
    }

    /// The same for a run on a node, of this verb.
    ///
    /// # Errors
    /// Those of [`Saved::load`] and of [`bundle::unpack`], and of a record of ours that cannot be read.
    pub fn of(
        app: &App,
        node: &dyn Node,
        row: &Row,
        standing: &Standing,
        trial: Option<&Trial>,
        choice: &Choice<'_>,
    ) -> Result<Self> {
        let named = match &choice.bundle {
            None => Self::named(app, &choice.source),
            Some(file) => {
                let sha256 = choice.source.sha256.as_deref().map(digest).transpose()?;
                let bundle = bundle::unpack(file, sha256.as_ref(), &app.cache_dir(node))?;
                let mut named = Self::named(app, &Source::default());
                // Single fields that the command line names come later, and win.
                named.overrides.splice(0..0, of_bundle(app, &bundle));
                Self { bundle: Some(Rc::new(bundle)), ..named }
            }
        };
        let saved = choice.saved.map(|file| Saved::load(file, app, node)).transpose()?;
        Ok(Self {
            sandbox: app.connector.env.as_ref().map(|env| env.config()),
            on_current: matches!(row.aim, Aim::Config(Base::Current | Base::CurrentIfAny) | Aim::Login),
            unset: choice.unset.to_vec(),
            other_release: choice.source.release.is_some() || choice.bundle.is_some(),
            access: match access(standing, row) {
                Some(access) => Some(access),
                None => left_access(node, trial)?,
            },
            saved,
            ..named
        })
    }

    /// Says what the bundle has, which was verified before the config was read.
    pub fn tell_of_bundle(&self, app: &mut App) -> Result<()> {
        let Some(bundle) = &self.bundle else { return Ok(()) };
        app.phase("bundle", |app| {
            let place = bundle.path.display().to_string();
            if bundle.is_unverified {
                let message = format!(
                    "bundle not verified: give the SHA-256 of {place} with --sha256, or in the file {place}.sha256"
                );
                app.warn("ReleaseNotPinned", message);
            }
            let programs = bundle.kubernetes.as_ref();
            let programs = programs.map_or_else(String::new, |(version, _)| format!(", Kubernetes {version}"));
            let containerd = if bundle.containerd.is_some() { ", containerd" } else { "" };
            let parts = format!("Calico {}{programs}{containerd}", bundle.calico);
            Ok(((), format!("{parts} from {place}, sha256 {}", bundle.sha256.short())))
        })
    }

    /// Reads the config in all its layers: documents in order, then variables and flags, then `--set`. Without a node,
    /// only what the command line names.
    ///
    /// # Errors
    /// When a document cannot be read, is not trusted, or is not valid.
    pub fn read(&self, node: Option<&dyn Node>, standing: &Standing) -> Result<Layered> {
        let mut documents: Vec<Document> = self.sandbox.iter().cloned().collect();
        if let Some(saved) = &self.saved {
            documents.push(Document { name: saved.name.clone(), text: saved.config.to_string() });
        } else if let (Some(node), true) = (node, self.files.is_empty()) {
            // A missing file is no config; one that cannot be read is an error, and is not skipped.
            let file = node.disk(&machines_file());
            if file.exists() {
                check_trusted(Some(node), &file)?;
                documents.push(Document { name: machines_file().to_string(), ..read_document(&file)? });
            } else {
                documents.extend(self.current(node, standing)?);
            }
        }
        for file in &self.files {
            check_trusted(node, file)?;
            documents.push(self.document(file)?);
        }
        if let Some(access) = &self.access
            && !config::names(&documents, &self.overrides, "spec.kubernetes.kubeconfig")
        {
            documents.insert(0, access.clone());
        }
        config::load(&documents, &self.overrides)
    }

    /// Reads a document that the command line names.
    fn document(&self, file: &Path) -> Result<Document> {
        if file.as_os_str() != "-" {
            return read_document(file);
        }
        let bytes = self.stdin.config();
        let bytes = bytes.map_err(|error| unreadable("cannot read the config from stdin").because(error))?;
        document("stdin".into(), bytes)
    }

    /// Whether a flag or variable of this run sets a field. `path` is complete.
    pub fn sets(&self, path: &str) -> bool {
        config::names(&[], &self.overrides, path)
    }

    /// The config that `reconfigure` starts from in place of this run, if that is the current generation's.
    ///
    /// # Errors
    /// When it is not in the store, or cannot be read.
    pub fn kept_by_reconfigure(&self, node: &dyn Node, standing: &Standing) -> Result<Option<Value>> {
        let receipt = standing.receipt().filter(|_| self.files.is_empty() && !node.disk(&machines_file()).exists());
        receipt.map_or(Ok(None), |receipt| store::config(node, receipt))
    }

    /// The config of the current generation, if there is one and it is used: what is not named is kept, except what it
    /// says about a release if another is named.
    fn current(&self, node: &dyn Node, standing: &Standing) -> Result<Option<Document>> {
        let Some(receipt) = standing.receipt().filter(|_| self.on_current) else { return Ok(None) };
        let mut config = store::config(node, receipt)?.unwrap_or_else(|| json!({}));
        // An older program also kept these, which belong to one run.
        for path in ["spec.maintenance", "spec.reboot", "spec.preflight"] {
            remove(&mut config, path);
        }
        for path in &self.unset {
            let whole = if path.starts_with("spec.") { path.clone() } else { format!("spec.{path}") };
            if !config::fields().any(|field| field.path == whole) {
                let what = format!("--unset {path}: the config has no such field");
                return Err(Fault::new(Exit::Usage, "Usage", what)
                    .hint("`calicoctl-win config schema` shows them all")
                    .into());
            }
            remove(&mut config, &whole);
        }
        if self.other_release {
            forget_release(&mut config);
        }
        let name = format!("{GENERATION}{}", receipt.generation);
        Ok(Some(Document { name, text: config.to_string() }))
    }
}

/// Checks that only administrators could have written a config. Stdin is the caller's own.
fn check_trusted(node: Option<&dyn Node>, file: &Path) -> Result<()> {
    if file.as_os_str() == "-" {
        return Ok(());
    }
    trust::check(node, file, Use::Read, "the config")
}

/// Reads a config document from a file.
fn read_document(file: &Path) -> Result<Document> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).map_err(|error| {
        let shown: String = name.chars().take(MOST_OF_A_NAME).collect();
        let rest = if shown.len() < name.len() { "…" } else { "" };
        let fault = unreadable(format!("cannot read the config {shown}{rest}"));
        let is_document = name.contains(['\n', '{']) || name.contains(": ");
        let fault = if is_document { fault.hint(NO_FILE) } else { fault };
        fault.because(error)
    })?;
    document(name, &bytes)
}

/// The characters of a config's name that an error shows.
const MOST_OF_A_NAME: usize = 100;

/// What to do with a config that was given in place of its file.
const NO_FILE: &str = "-c takes the path of a file: write the config to one, pipe it to -c -, or give single values \
                       with --set PATH=VALUE";

/// A document that says nothing is an error: a failed write, or an empty pipe.
fn document(name: String, bytes: &[u8]) -> Result<Document> {
    let text = encoding::decode(bytes)
        .map_err(|why| unreadable(format!("the config {name} cannot be read: {why}")).hint("save it as UTF-8"))?;
    let document = Document { name, text };
    if config::is_empty(&document) {
        return Err(unreadable(format!("the config {} is empty", document.name)).into());
    }
    Ok(document)
}

fn unreadable(what: impl Into<String>) -> Fault {
    Fault::new(Exit::InvalidConfig, "ConfigUnreadable", what)
        .hint("give its path with -c, or make one with: calicoctl-win config init node.yaml")
}

/// Returns the version that the machine's own config file names.
pub(crate) fn version_in_file(node: &dyn Node) -> Option<String> {
    let document: Value = yaml::read(&read_document(&node.disk(&machines_file())).ok()?.text).ok()?;
    document["spec"]["calico"]["version"].as_str().map(str::to_owned)
}

/// Returns where a value comes from that a flag or its variable gives.
fn origin(app: &App, flag: &str) -> Origin {
    let variable = format!("CALICO_WIN_{}", flag.to_uppercase().replace('-', "_"));
    let typed = app.args.iter().any(|arg| arg.to_string_lossy().starts_with(&format!("--{flag}")));
    if typed { Origin::Flag(format!("--{flag}")) } else { Origin::Env(variable) }
}

/// Reads a digest of the command line.
///
/// # Errors
/// `Usage`.
pub(crate) fn digest(text: &str) -> Result<Sha256, Fault> {
    text.parse().map_err(|why| {
        Fault::new(Exit::Usage, "Usage", format!("--sha256: {why}"))
            .hint("give the 64 digits that the file's publisher names")
    })
}

/// Returns the fields that a bundle decides: which release, and that everything is in the cache by its digest.
fn of_bundle(app: &App, bundle: &Bundle) -> Vec<Override> {
    let mut fields = vec![
        ("calico.version", bundle.calico.to_string()),
        ("calico.source.type", "release".into()),
        ("calico.source.path", String::new()),
        ("calico.source.sha256", bundle.release.to_string()),
        ("transport.offline", "true".into()),
    ];
    if let Some((_, [kubelet, kube_proxy])) = &bundle.kubernetes {
        fields.extend([
            ("kubernetes.node.source.path", String::new()),
            ("kubernetes.node.source.kubeletSHA256", kubelet.to_string()),
            ("kubernetes.node.source.kubeProxySHA256", kube_proxy.to_string()),
        ]);
    }
    let from = origin(app, "bundle");
    fields.into_iter().map(|(path, value)| Override { path: path.into(), value, from: from.clone() }).collect()
}

/// Returns the single fields that variables and flags set; `--set` comes last and wins.
fn overrides(app: &App, source: &Source) -> Vec<Override> {
    let global = &app.global;
    let mut overrides = Vec::new();
    let mut add = |path: &str, value: Option<String>, flag: &str| {
        if let Some(value) = value {
            overrides.push(Override { path: path.into(), value, from: origin(app, flag) });
        }
    };
    add("kubernetes.kubeconfig", global.kubeconfig.clone(), "kubeconfig");
    add("kubernetes.context", global.context.clone(), "context");
    add("kubernetes.nodeName", global.node_name.clone(), "node-name");
    add("kubernetes.calicoNamespace", global.calico_namespace.clone(), "calico-namespace");
    add("transport.proxy", global.proxy.clone(), "proxy");
    add("transport.caFile", global.ca_file.clone(), "ca-file");
    add("transport.offline", global.offline.then(|| "true".into()), "offline");
    if let Some(release) = &source.release {
        let kind = match release.as_str() {
            url if url.starts_with("http://") || url.starts_with("https://") => Some(("mirror", "urlTemplate")),
            folder if Path::new(folder).is_dir() => Some(("directory", "path")),
            version if !Path::new(version).exists() && version.parse::<CalicoVersion>().is_ok() => None,
            _ => Some(("bundle", "path")),
        };
        match kind {
            Some((kind, field)) => {
                add("calico.source.type", Some(kind.into()), "release");
                add(&format!("calico.source.{field}"), Some(release.clone()), "release");
            }
            None => add("calico.version", Some(release.clone()), "release"),
        }
        // A named release sets its own version over the config's.
        let name = release.rsplit(['/', '\\']).next().unwrap_or_default();
        if let Some(version) = crate::release::archive::version_in(name) {
            add("calico.version", Some(version.to_string()), "release");
        }
    }
    add("calico.source.sha256", source.sha256.clone(), "sha256");
    let sets = global.set.iter().map(|set| {
        let (path, value) = set.split_once('=').unwrap_or((set, ""));
        Override { path: path.into(), value: value.into(), from: Origin::Set }
    });
    overrides.into_iter().chain(sets).collect()
}

/// Removes a field or section from a document.
fn remove(config: &mut Value, path: &str) {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(Value::Object(section)) = config.pointer_mut(&format!("/{}", parent.replace('.', "/"))) {
        section.remove(field);
    }
}

/// Removes what belongs to one archive: a digest, a file or a folder. A mirror has other releases too if its URL has a
/// placeholder for the version.
fn forget_release(config: &mut Value) {
    let Some(Value::Object(calico)) = config.pointer_mut("/spec/calico") else { return };
    let Some(Value::Object(source)) = calico.get_mut("source") else { return };
    source.retain(|key, value| match (key.as_str(), value.as_str().unwrap_or_default()) {
        ("type", kind) => matches!(kind, "mirror" | "release"),
        ("urlTemplate", url) => url.contains("{version}"),
        (key, _) => !matches!(key, "sha256" | "path"),
    });
    // A mirror without a URL is not a mirror.
    if !source.contains_key("urlTemplate") {
        source.remove("type");
    }
}

/// How a run was told to reach the cluster, for the run that ends it: the kubeconfig that was named, as an absolute path, and
/// its context.
pub(crate) fn access_of(connection: &Connection) -> Access {
    let named = connection.kubeconfig_from != Origin::Default;
    Access { kubeconfig: named.then(|| whole(&connection.kubeconfig)), context: connection.context.clone() }
}

/// Returns the absolute path of a file.
pub(crate) fn whole(file: &str) -> String {
    if file.parse::<WinPath>().is_ok() {
        return file.to_owned();
    }
    std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file)).display().to_string()
}

/// Returns how the run that must be ended reached the cluster, or the one that made the current generation; for a
/// removal, also if Calico is removed already.
fn access(standing: &Standing, row: &Row) -> Option<Document> {
    let journal = standing.journal.as_ref();
    if let Some(header) = journal.map(|journal| &journal.header)
        && header.terms.access != Access::default()
    {
        return Some(access_document(format!("run {}", header.run), &header.terms.access));
    }
    let removes = row.aim == Aim::Nothing
        || row.command == RESUME.command && journal.is_some_and(|journal| journal.header.command == UNINSTALL.command);
    let newest = || standing.receipts.iter().rev().find(|receipt| removes && receipt.about.is_some());
    let (about, generation) = match standing.receipt().or_else(newest) {
        Some(receipt) => (receipt.about.as_ref()?, receipt.generation),
        None => (journal?.header.about.as_ref()?, 1),
    };
    let access = Access { kubeconfig: Some(about.kubeconfig.clone()?), context: about.context.clone() };
    Some(access_document(format!("{GENERATION}{generation}"), &access))
}

/// Returns how the run reached the cluster that left a Node cordoned, or a change on trial.
fn left_access(node: &dyn Node, trial: Option<&Trial>) -> Result<Option<Document>> {
    let cordoned = Cordon::load(node)?.map(|cordon| (cordon.run, cordon.access));
    let on_trial = trial.map(|trial| (trial.run.clone(), trial_access(trial)));
    let left = cordoned.into_iter().chain(on_trial).find(|(_, access)| access.kubeconfig.is_some());
    Ok(left.map(|(run, access)| access_document(format!("run {run}"), &access)))
}

/// Returns how the run that began a trial reached the cluster.
pub(crate) fn trial_access(trial: &Trial) -> Access {
    Access { kubeconfig: trial.kubeconfig.clone(), context: trial.context.clone() }
}

fn access_document(name: String, access: &Access) -> Document {
    Document { name, text: json!({ "spec": { "kubernetes": access } }).to_string() }
}

/// Returns the settings that differ between a generation and the next one; only the main ones if one of the two was
/// made by an older program that did not store them all.
pub(crate) fn settings_diff(
    node: &dyn Node,
    from: Option<&Receipt>,
    to: &About,
    effective: Option<&BTreeMap<String, Value>>,
) -> Vec<SettingChange> {
    // What cannot be read counts as not stored: a plan does not fail for it.
    let former = from.and_then(|receipt| store::effective(node, receipt).ok().flatten());
    if let (Some(former), Some(effective)) = (former, effective) {
        return SettingChange::between(&former, effective);
    }
    let former = from.and_then(|receipt| receipt.about.as_ref()).map(main_settings).unwrap_or_default();
    SettingChange::between(&former, &main_settings(to))
}

/// Returns the main settings of a generation, by the paths of the config.
fn main_settings(about: &About) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::from([
        ("spec.calico.version".to_owned(), Value::from(about.calico_version.to_string())),
        ("spec.calicoNetwork.backend".to_owned(), about.backend.name().into()),
        ("spec.kubernetes.nodeName".to_owned(), about.node_name.as_str().into()),
    ]);
    if about.backend == Backend::Vxlan {
        settings.insert("spec.calicoNetwork.vxlan.vxlanVNI".into(), about.vni.get().into());
    }
    settings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_one_archive_are_not_kept_for_the_next() {
        let template = "https://m/calico-windows-{version}.zip";
        for (source, left) in [
            (json!({"type": "bundle", "path": "C:\\a.zip", "sha256": "00"}), json!({})),
            (json!({"path": "C:\\a"}), json!({})),
            (json!({"type": "mirror", "urlTemplate": "https://m/calico-windows-v3.30.0.zip"}), json!({})),
            (
                json!({"type": "mirror", "urlTemplate": template, "sha256": "00"}),
                json!({"type": "mirror", "urlTemplate": template}),
            ),
            // A file was named once, over the mirror of the previous config.
            (json!({"type": "bundle", "path": "a.zip", "urlTemplate": template}), json!({"urlTemplate": template})),
        ] {
            let mut config = json!({"spec": {"calico": {"source": source}}});
            forget_release(&mut config);
            assert_eq!(config["spec"]["calico"]["source"], left);
        }
    }
}
