//! The credentials of a node: what they are now, and new ones in files, as `credentials show` and `fetch` need them.

use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::context::Remote;
use super::generations::installed;
use super::login::{self, Wanted};
use crate::agent::{self, Role};
use crate::apply::receipt::Receipt;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::calico::etcd::EtcdFiles;
use crate::calico::kubeconfig::{self, Login};
use crate::calico::x509;
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id};
use crate::node::{Node, files};
use crate::paths;
use crate::report::document::Credential;
use crate::settings;
use crate::values::WinPath;

/// Reads the credentials from the node's files now, and whether CalicoNode runs, which renews them.
///
/// # Errors
/// `NotInstalled`, or when the node cannot be read.
pub(crate) fn measured(node: &dyn Node) -> Result<(Vec<Credential>, bool)> {
    let standing = Standing::load(node)?;
    let credentials = measure(node, installed(&standing)?)?;
    Ok((credentials, agent::state::live(node, Role::Node)?.is_some()))
}

fn measure(node: &dyn Node, receipt: &Receipt) -> Result<Vec<Credential>> {
    let now = node.now();
    let mut all = Vec::new();
    let file = |name: &str| {
        receipt.target.world.keys().find_map(|id| match id {
            Id::File(path) if path.name() == name => Some(path.clone()),
            _ => None,
        })
    };
    if let Some(path) = file("calico-kube-config") {
        all.push(of_kubeconfig(node, &path, now));
    }
    let config = store::config(node, receipt)?.unwrap_or_default();
    let etcd = &config["spec"]["datastore"]["etcd"];
    let origin = match etcd["tlsSecretRef"]["name"].as_str() {
        Some(name) => format!("secret {name}"),
        None => "file".to_owned(),
    };
    let ours = |name: &str, field: &str| {
        let given = etcd[field].as_str().and_then(|path| path.parse::<WinPath>().ok());
        given.or_else(|| file(name))
    };
    for (kind, name, field) in [("etcd-certificate", "server.crt", "certFile"), ("etcd-ca", "ca.crt", "caCertFile")] {
        if let Some(path) = ours(name, field) {
            all.push(of_certificate(node, kind, &path, &origin, now));
        }
    }
    Ok(all)
}

fn of_kubeconfig(node: &dyn Node, path: &WinPath, now: Timestamp) -> Credential {
    let mut shown = Credential {
        kind: "kubeconfig".into(),
        path: path.to_string(),
        origin: "unknown".into(),
        ..Credential::default()
    };
    let Ok(text) = std::fs::read_to_string(node.disk(path)) else {
        shown.problems.push("it cannot be read: `calicoctl-win repair` writes it again".into());
        return shown;
    };
    let Ok(credentials) = kubeconfig::parse(&text) else {
        shown.problems.push("it is no kubeconfig: `calicoctl-win repair` writes it again".into());
        return shown;
    };
    shown.expires = credentials.expires;
    match &credentials.login {
        Login::Token(token) => {
            let claims = kubeconfig::claims(token.reveal());
            shown.renewed_from = claims.renew_from();
            shown.subject = claims.account.map(|(namespace, name)| format!("serviceaccount {namespace}/{name}"));
            shown.origin = match (claims.secret, credentials.expires) {
                (Some(secret), _) => format!("secret {secret}"),
                (None, Some(_)) => "TokenRequest".into(),
                (None, None) => "kubeconfig".into(),
            };
        }
        Login::Certificate { cert, .. } => {
            shown.subject = x509::read(cert).map(|certificate| format!("client certificate {}", certificate.subject));
            shown.origin = "kubeconfig".into();
        }
    }
    if credentials.expires.is_some_and(|expires| expires <= now) {
        shown.problems.push("it has expired: `calicoctl-win credentials rotate` gives the node a new one".into());
    }
    let agent = agent::state::read(node, Role::Node).and_then(|state| state.renewal);
    shown.problems.extend(agent);
    shown
}

fn of_certificate(node: &dyn Node, kind: &str, path: &WinPath, origin: &str, now: Timestamp) -> Credential {
    let mut shown =
        Credential { kind: kind.into(), path: path.to_string(), origin: origin.into(), ..Credential::default() };
    match std::fs::read_to_string(node.disk(path)).ok().and_then(|pem| x509::read(&pem)) {
        None => shown.problems.push("it cannot be read, or is no certificate".into()),
        Some(certificate) => {
            if certificate.not_after <= now {
                shown.problems.push("it has expired: renew it with etcd's CA".into());
            }
            shown.subject = Some(certificate.subject);
            shown.expires = Some(certificate.not_after);
        }
    }
    shown
}

/// Fetches credentials as install would, without changing this machine, which need not be a node.
///
/// # Errors
/// When the cluster does not answer or refuses; `NothingToFetch`, `FileExists`.
pub(crate) fn fetch(out: &Path, app: &mut App) -> Result<Ending> {
    let mut remote = Remote::open(app, true)?;
    let facts = remote.facts(app)?;
    let side = settings::cluster_side(&remote.layered, None, &facts);
    let namespace = &side.kubernetes.calico_namespace;
    let mut written = Vec::new();
    if app.global.is_dry_run() {
        return app.would(format!("fetch credentials of namespace {namespace} into {}", out.display()));
    }
    let Remote { node, run, cluster, .. } = &remote;
    if let Some(wanted) = Wanted::of(run, &side.kubernetes) {
        let issued = app.phase("credentials", |app| {
            let issued = login::issue(app, node.as_deref(), cluster, &wanted)?;
            Ok((issued, format!("a login of namespace {namespace}")))
        })?;
        written.push((paths::KUBECONFIG, kubeconfig::render(&issued.credentials, namespace)?));
    }
    if let Some(secret) = &run.etcd_tls_secret {
        let EtcdFiles { key, cert, ca_cert } = cluster.etcd_files(secret, namespace, Timestamp::now())?;
        written.extend([
            ("server.key", key.reveal().as_bytes().to_vec()),
            ("server.crt", cert.into_bytes()),
            ("ca.crt", ca_cert.into_bytes()),
        ]);
    }
    if written.is_empty() {
        let what =
            "the config names nothing that could be fetched: etcd without tlsSecretRef, and no kubernetes.credentials";
        return Err(Fault::new(Exit::InvalidConfig, "NothingToFetch", what)
            .hint("set kubernetes.credentials: token-request, or datastore.etcd.tlsSecretRef")
            .into());
    }
    for (name, bytes) in &written {
        write(remote.node.as_deref_mut(), out, name, bytes)?;
    }
    let names: Vec<&str> = written.iter().map(|(name, _)| *name).collect();
    let msg = format!("wrote {} into {}, for administrators only", names.join(", "), out.display());
    app.done(false, msg)
}

/// Writes a file: to a Windows path on the node, with its access list, else to this machine.
fn write(node: Option<&mut (dyn Node + 'static)>, folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let exists = |file: &Path| {
        Fault::new(Exit::FileExists, "FileExists", format!("{} is there already", file.display()))
            .hint("an existing file is never overwritten: choose another folder or move it away")
    };
    let on_node = folder.to_str().and_then(|text| text.parse::<WinPath>().ok());
    if let (Some(node), Some(folder)) = (node, on_node) {
        let path = folder.join(name);
        if node.disk(&path).exists() {
            return Err(exists(Path::new(path.as_str())).into());
        }
        return node.save(&path, bytes, Access::Administrators).with_context(|| format!("write {path}"));
    }
    let file = folder.join(name);
    if file.exists() {
        return Err(exists(&file).into());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    files::create_private(&file, bytes).with_context(|| format!("write {}", file.display()))
}
