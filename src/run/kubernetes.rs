//! kubelet and kube-proxy, if the config installs them: which of the services are ours, their programs, and how kubelet
//! joins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::context::Operation;
use super::login::on_this_machine;
use crate::apply::joining::{self, has_certificate, has_joined};
use crate::apply::node_object::NodeObject;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::calico::kubeconfig;
use crate::calico::kubernetes::{self, BootstrapToken, Joining, program, program_path};
use crate::calico::nssm;
use crate::calico::services::{Role, is_ours};
use crate::calico::x509;
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::Node;
use crate::paths::{containerd, kubernetes as paths};
use crate::plan::Step;
use crate::plan::kubernetes::{Bootstrap, KubernetesFiles};
use crate::plan::show::KubeletMinor;
use crate::release::bundle::{self, Bundle};
use crate::release::programs as sources;
use crate::settings::{CaCertHash, Connection, Containerd, KubernetesNode, Programs, Resolved};
use crate::values::{Sha256, WinPath, joined};
use crate::version::KubernetesVersion;

/// The variable with a bootstrap token.
const TOKEN: &str = "CALICO_WIN_JOIN_TOKEN";

/// What is wanted of them, and where the programs are.
pub(crate) struct Kubernetes {
    pub files: KubernetesFiles,
    version: KubernetesVersion,
    /// Their places on this machine.
    programs: Vec<(PathBuf, Sha256)>,
    containerd: Vec<(PathBuf, Sha256)>,
}

/// For a plan for another machine: both services, with unknown programs.
pub(crate) fn unknown() -> KubernetesFiles {
    KubernetesFiles {
        programs: kubernetes::ROLES.map(|role| (role, Sha256::unknown())).into(),
        containerd: containerd::PROGRAMS.map(|name| (name, Sha256::unknown())).into(),
        ca_pem: None,
        bootstrap: Bootstrap::Pending,
    }
}

/// Finds the programs, and what kubelet needs to join; none if the config does not install them. A service that another
/// program made is left as it is.
///
/// # Errors
/// When a program is not found or is not as it must be; `JoinTokenMissing`, `JoinInvalid`, `JoinCaMismatch`; those of
/// [`Cluster::try_bootstrap_token`].
pub(crate) fn prepare(op: &mut Operation<'_>, cluster: &Cluster, resolved: &Resolved) -> Result<Option<Kubernetes>> {
    let Some(node) = &resolved.settings.kubernetes_node else { return Ok(None) };
    let mut found = programs(op, &resolved.run.connection, node.version, &node.programs)?;
    if found.files.programs.iter().any(|(role, _)| *role == Role::Kubelet) {
        found.files.ca_pem = cluster.ca_pem().map(str::to_owned);
        found.files.bootstrap = join(op.node, cluster, node)?;
        let ours = kubernetes::kubelet_config(&resolved.settings, node, found.files.ca_pem.is_some())?;
        tell_of_lost_fields(op, &ours);
    }
    if let Some(wanted) = &node.containerd {
        found.find_containerd(op, wanted)?;
    }
    Ok(Some(found))
}

/// Names what another kubelet's configuration, for example kubeadm's, has besides ours, which replaces it.
fn tell_of_lost_fields(op: &mut Operation<'_>, ours: &[u8]) {
    let path = WinPath::known(paths::KUBELET_CONFIG);
    if op.context.standing.owned().contains_key(&Id::File(path.clone())) {
        return;
    }
    let Ok(other) = std::fs::read_to_string(op.node.disk(&path)) else { return };
    let lost = kubernetes::lost_fields(&other, ours);
    if !lost.is_empty() {
        let message = format!(
            "{path} of another kubelet is replaced, without its {}: to keep a field, set it in \
             spec.kubernetes.node.kubeletConfigOverrides",
            joined(&lost, ", ")
        );
        op.app.warn("KubeletConfigReplaced", message);
    }
}

/// What kubelet joins with.
///
/// # Errors
/// As [`prepare`], without those of the programs.
pub(crate) fn join(node: &dyn Node, cluster: &Cluster, wanted: &KubernetesNode) -> Result<Bootstrap> {
    let (token, hashes) = joining(node, wanted)?;
    check_ca(cluster, &hashes)?;
    bootstrap(node, cluster, token)
}

/// Whether no other program made the service.
///
/// # Errors
/// When the node cannot be read.
pub(crate) fn may_install(node: &dyn Node, role: Role) -> Result<bool> {
    let there = node.get(&Id::Service(role.service().into()))?;
    Ok(!matches!(there, Some(State::Service(other)) if !is_ours(&other)))
}

/// The programs that a config names: a Windows path is one of the node, which may be a sandbox.
pub(crate) fn on_node(node: &dyn Node, named: &Programs) -> Programs {
    let place = |path: &String| on_this_machine(Some(node), path).display().to_string();
    Programs { path: named.path.as_ref().map(place), ..named.clone() }
}

/// Finds the programs alone. A service that another program made is left as it is.
///
/// # Errors
/// When a program is not found or is not as it must be.
pub(crate) fn programs(
    op: &mut Operation<'_>,
    connection: &Connection,
    version: KubernetesVersion,
    wanted: &Programs,
) -> Result<Kubernetes> {
    let files = KubernetesFiles::default();
    let mut found = Kubernetes { files, version, programs: Vec::new(), containerd: Vec::new() };
    for role in kubernetes::ROLES {
        match op.node.get(&Id::Service(role.service().into()))? {
            Some(State::Service(other)) if !is_ours(&other) => {
                let message = format!(
                    "the service {} was made by another program and is left as it is: {}",
                    role.service(),
                    nssm::command(&other)
                );
                op.app.warn("KubernetesServiceKept", message);
            }
            _ => {
                let (path, sha256) = locate(op, connection, (version, wanted), role)?;
                found.files.programs.push((role, sha256.clone()));
                found.programs.push((path, sha256));
            }
        }
    }
    Ok(found)
}

impl Kubernetes {
    /// Finds containerd's programs, in a bundle or in the archive that the config names; none if another program made its
    /// service. Without either, those that this program installed are kept.
    ///
    /// # Errors
    /// `ContainerdArchive`, `ReleaseDigest`.
    pub fn find_containerd(&mut self, op: &mut Operation<'_>, wanted: &Containerd) -> Result<()> {
        if let Some(State::Service(other)) = op.node.get(&Id::Service(containerd::NAME.into()))?
            && !is_ours(&other)
        {
            let message = format!(
                "the service containerd was made by another program and is left as it is: {}",
                nssm::command(&other)
            );
            op.app.warn("KubernetesServiceKept", message);
            return Ok(());
        }
        let bundled = op.context.sources.bundle.as_ref().and_then(|bundle| bundle.containerd.as_ref());
        let (archive, expected) = match bundled {
            Some((archive, sha256)) => (archive.clone(), wanted.sha256.as_ref().or(Some(sha256))),
            None => (on_this_machine(Some(op.node), &wanted.archive), wanted.sha256.as_ref()),
        };
        // The config may still name the bundle of an earlier run.
        if !archive.exists() || bundle::is_one(&archive) {
            let world = op.context.standing.in_place().map(|(receipt, ..)| &receipt.target.world);
            let kept: Option<Vec<_>> = containerd::PROGRAMS
                .into_iter()
                .map(|name| match world?.get(&Id::File(containerd::path(name)))? {
                    State::File { sha256, .. } => Some((name, sha256.clone())),
                    _ => None,
                })
                .collect();
            if let Some(kept) = kept {
                self.files.containerd = kept;
                return Ok(());
            }
        }
        let cache = op.app.cache_dir(op.node);
        let found = op.app.phase("kubernetes", |app| {
            let found = sources::of_containerd(&archive, expected, &cache, &mut |event| app.event(&event))?;
            let place = bundled.map_or_else(|| archive.display().to_string(), |_| "the bundle".into());
            Ok((found, format!("containerd from {place}")))
        })?;
        for (name, path, sha256) in found {
            self.files.containerd.push((name, sha256.clone()));
            self.containerd.push((path, sha256));
        }
        Ok(())
    }

    /// Puts the programs into the store, after each has run once for its version: one that does not run here would
    /// otherwise fail while the services are stopped.
    ///
    /// # Errors
    /// `KubernetesDoesNotRun`, `KubernetesOtherVersion`; when the disk refuses.
    pub fn store(&self, node: &dyn Node) -> Result<()> {
        for ((path, sha256), (role, _)) in self.programs.iter().zip(&self.files.programs) {
            let name = program(*role);
            let said = said_version(node, path).map_err(|error| {
                let what = format!("{name} of Kubernetes {} does not run on this machine", self.version);
                Fault::new(Exit::ReleaseInvalid, "KubernetesDoesNotRun", what)
                    .hint("use the program for Windows on this machine's processor; a virus scanner or AppLocker may hold it, too")
                    .because(error)
            })?;
            if let Some(said) = said.filter(|said| *said != self.version) {
                let what = format!("{name} says that it is {said}, and the config says {}", self.version);
                return Err(Fault::new(Exit::ReleaseInvalid, "KubernetesOtherVersion", what)
                    .hint("set spec.kubernetes.node.version to what the program is, or name the right program")
                    .into());
            }
            store::add_file(node, path, sha256)?;
        }
        for (path, sha256) in &self.containerd {
            store::add_file(node, path, sha256)?;
        }
        Ok(())
    }
}

/// The version that a program reports; none if it reports none that can be read.
fn said_version(node: &dyn Node, program: &Path) -> Result<Option<KubernetesVersion>> {
    let said = node.ask(program, &["--version"])?.unwrap_or_default();
    Ok(said.split_whitespace().find_map(|word| word.parse().ok()))
}

/// Whether these steps change kubelet, if it is ours, to another minor version. `to`: the version that they bring.
///
/// # Errors
/// When the node cannot be read.
pub(crate) fn kubelet_minor(
    node: &dyn Node,
    standing: &Standing,
    steps: &[Step],
    to: Option<KubernetesVersion>,
) -> Result<Option<KubeletMinor>> {
    let path = program_path(Role::Kubelet);
    let file = Id::File(path.clone());
    let replaces = |step: &Step| matches!(step, Step::Put { id, before: Some(_), after: Some(_) } if *id == file);
    let receipt = standing.receipt().filter(|receipt| receipt.target.world.contains_key(&file));
    let (Some(receipt), Some(to), true) = (receipt, to, steps.iter().any(replaces)) else { return Ok(None) };
    // One that was replaced by hand says its own version; one that does not run has that of the config.
    let from = match said_version(node, &node.disk(&path)).ok().flatten() {
        Some(said) => Some(said),
        None => store::effective(node, receipt)?.as_ref().and_then(version_in),
    };
    Ok(from.and_then(|from| KubeletMinor::between(from, to)))
}

/// The version of kubelet in an effective config.
pub(crate) fn version_in(effective: &BTreeMap<String, Value>) -> Option<KubernetesVersion> {
    effective.get("spec.kubernetes.node.version")?.as_str()?.parse().ok()
}

/// The current program, if it is ours, unchanged and of the wanted version; else the one that the config names.
fn locate(
    op: &mut Operation<'_>,
    connection: &Connection,
    (version, from): (KubernetesVersion, &Programs),
    role: Role,
) -> Result<(PathBuf, Sha256)> {
    let path = program_path(role);
    let id = Id::File(path.clone());
    let wanted = op.context.standing.in_place().and_then(|(receipt, ..)| receipt.target.world.get(&id));
    let pinned = if role == Role::Kubelet { &from.kubelet_sha256 } else { &from.kube_proxy_sha256 };
    if let (Some(State::File { sha256, .. }), Some(State::File { sha256: have, .. })) = (wanted, op.node.get(&id)?)
        && *sha256 == have
        && pinned.as_ref().is_none_or(|pinned| *pinned == have)
    {
        let place = op.node.disk(&path);
        if said_version(op.node, &place)? == Some(version) {
            return Ok((place, have));
        }
    }
    let name = program(role);
    if let Some(bundle) = &op.context.sources.bundle {
        check_bundle(bundle, version, from)?;
    }
    let (cache, from) = (op.app.cache_dir(op.node), on_node(op.node, from));
    op.app.phase("kubernetes", |app| {
        let (path, sha256) =
            sources::locate(&from, version, (name, pinned.as_ref()), &cache, connection, &mut |event| {
                app.event(&event);
            })?;
        let message = format!("{name} of Kubernetes {version}, sha256 {}", sha256.short());
        Ok(((path, sha256), message))
    })
}

/// Refuses a bundle without the wanted programs; a folder that the config names may have them instead.
fn check_bundle(bundle: &Bundle, wanted: KubernetesVersion, from: &Programs) -> Result<(), Fault> {
    let what = match &bundle.kubernetes {
        Some((version, _)) if *version != wanted => {
            format!("it has kubelet and kube-proxy {version}, and the config says {wanted}")
        }
        None if from.path.is_none() => format!("it has no kubelet and kube-proxy {wanted}"),
        _ => return Ok(()),
    };
    Err(Fault::new(Exit::ReleaseInvalid, "BundleInvalid", format!("{}: {what}", bundle.path.display())).hint(
        "make the bundle with a config that has spec.kubernetes.node.version: calicoctl-win release bundle -c node.yaml \
         --out FILE",
    ))
}

/// The token and the hashes that the config names.
fn joining(node: &dyn Node, wanted: &KubernetesNode) -> Result<(Option<BootstrapToken>, Vec<CaCertHash>)> {
    let mut hashes = wanted.join.ca_cert_hashes.clone();
    let named = wanted.join.config_file.as_ref().or(wanted.join.token_file.as_ref());
    let text = named.map(|file| {
        let place = on_this_machine(Some(node), file);
        std::fs::read_to_string(&place).map(|text| (file, text)).map_err(|error| {
            let what = format!("cannot read {} to join the cluster", place.display());
            Fault::new(Exit::InvalidConfig, "JoinInvalid", what)
                .hint("correct the path in spec.kubernetes.node.join")
                .because(error)
        })
    });
    let token = match text {
        // The token is a secret that ends: it is deleted once it is used.
        Some(Err(_)) if has_joined(node) => return Ok((None, hashes)),
        Some(text) => {
            let (file, text) = text?;
            if wanted.join.config_file.is_some() {
                let Joining { token, ca_cert_hashes } = kubernetes::read_join_configuration(&text, file)?;
                hashes.extend(ca_cert_hashes);
                Some(token)
            } else {
                Some(kubernetes::token_in(&text, file)?)
            }
        }
        None => {
            let given = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
            given.map(|token| kubernetes::token_in(&token, &format!("the variable {TOKEN}"))).transpose()?
        }
    };
    Ok((token, hashes))
}

/// The CA of the kubeconfig must be the one that the token's giver named.
fn check_ca(cluster: &Cluster, hashes: &[CaCertHash]) -> Result<()> {
    if hashes.is_empty() {
        return Ok(());
    }
    let found = x509::key_digests(cluster.ca_pem().unwrap_or_default());
    let is_named = |digest: &Sha256| hashes.iter().any(|hash| hash.as_str() == format!("sha256:{}", digest.as_str()));
    if found.iter().any(is_named) {
        return Ok(());
    }
    let found = found.first().map_or_else(|| "no CA".into(), |digest| format!("the CA sha256:{}", digest.as_str()));
    let what = format!("the kubeconfig has {found}, which none of the CA hashes names: this may be another cluster");
    Err(Fault::new(Exit::UntrustedFile, "JoinCaMismatch", what)
        .hint(
            "compare them with what kubeadm prints on a control-plane node: kubeadm token create --print-join-command",
        )
        .into())
}

/// The bootstrap kubeconfig. If kubelet has joined, or no token is given, the one that is there is kept.
fn bootstrap(node: &dyn Node, cluster: &Cluster, token: Option<BootstrapToken>) -> Result<Bootstrap> {
    let there = std::fs::read(node.disk(&WinPath::known(paths::BOOTSTRAP_CONF))).ok();
    if has_joined(node) {
        return Ok(there.map_or(Bootstrap::Absent, Bootstrap::Rendered));
    }
    let Some(token) = token else {
        let Some(there) = there else {
            let what = "kubelet has not joined the cluster, and no bootstrap token is given";
            let hint = format!(
                "get a token on a control-plane node: kubeadm token create\nthen write it to a file and set \
                 spec.kubernetes.node.join.tokenFile, or set the variable {TOKEN}"
            );
            return Err(Fault::new(Exit::InvalidConfig, "JoinTokenMissing", what).hint(hint).into());
        };
        // The token of a login that was lost later has usually expired.
        if !has_certificate(node)
            && let Ok(login) = kubeconfig::parse(&String::from_utf8_lossy(&there))
            && let Some(token) = login.token()
        {
            let id = token.reveal().split('.').next().unwrap_or_default();
            cluster.try_bootstrap_token(id, token)?;
        }
        return Ok(Bootstrap::Rendered(there));
    };
    cluster.try_bootstrap_token(token.id(), token.secret())?;
    kubernetes::bootstrap_kubeconfig(cluster.server(), cluster.ca_pem(), &token).map(Bootstrap::Rendered)
}

/// A better error for a change that failed because kubelet could not join; the given one if that is not so. `joined`:
/// kubelet had a login before.
pub(crate) fn explain(op: &Operation<'_>, object: &NodeObject, joined: bool, error: anyhow::Error) -> anyhow::Error {
    if joined || !matches!(Fault::id_of(&error), "NetworkNotMade" | "NodeStartupFailed" | "ServiceNotSteady") {
        return error;
    }
    let trouble = match object.certificate_request(op.node) {
        Ok(Some(request)) => joining::trouble(&request),
        Err(refused) if Fault::id_of(&refused) == "ClusterForbidden" => Some(joining::unseen()),
        _ => None,
    };
    match trouble {
        Some(fault) => error.context(fault),
        None => error,
    }
}
