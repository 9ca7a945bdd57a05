//! `credentials show|fetch|rotate`, and what the agent of CalicoNode does when a token is to be renewed.

use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;

use super::args::Credentials as Verb;
use crate::agent::trial::Trial;
use crate::agent::{self, Role};
use crate::apply::journal::{AtBoot, Terms};
use crate::apply::lock::{Holder, Lock};
use crate::apply::node_object::NodeObject;
use crate::apply::receipt::Receipt;
use crate::apply::standing::Standing;
use crate::apply::{converge, renewal, store};
use crate::calico::etcd::EtcdFiles;
use crate::calico::kubeconfig::{self, Login};
use crate::calico::x509;
use crate::cluster::Cluster;
use crate::config::Layered;
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id};
use crate::node::{Node, files};
use crate::paths::{self, ETCD_TLS};
use crate::report::document::{Credential, CredentialsReport, RunResult};
use crate::run::Ending;
use crate::run::app::{App, run_id};
use crate::run::engine::engine;
use crate::run::lease;
use crate::run::login::{self, Wanted};
use crate::run::options::Source;
use crate::run::prepare::cluster_facts;
use crate::run::standing::start_from;
use crate::settings::{self, Datastore, SecretRef};
use crate::values::WinPath;

/// The verb, for lock and journal.
const ROTATE: &str = "credentials rotate";

pub(crate) fn run(verb: &Verb, app: &mut App) -> Result<Ending> {
    match verb {
        Verb::Show => show(app),
        Verb::Fetch { out } => fetch(out, app),
        Verb::Rotate => rotate(app),
    }
}

fn not_installed() -> Fault {
    Fault::new(Exit::NotInstalled, "NotInstalled", "Calico is not installed here by this tool")
        .hint("install it with: calicoctl-win install")
}

/// Measured now, from the files themselves.
fn show(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let standing = Standing::load(&*node)?;
    let receipt = standing.receipt().ok_or_else(not_installed)?;
    let report = CredentialsReport { credentials: measure(&*node, receipt)? };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["KIND", "SUBJECT", "EXPIRES", "ORIGIN", "PATH"]);
    for one in &report.credentials {
        let expires = one.expires.map_or_else(|| "never".to_owned(), |expires| format!("{expires:.0}"));
        let (subject, origin) = (one.subject.clone().unwrap_or_default(), one.origin.clone());
        table.add_row([one.kind.clone(), subject, expires, origin, one.path.clone()]);
    }
    let mut text: String = table.lines().map(|line| line.trim().to_owned() + "\n").collect();
    for one in &report.credentials {
        if let Some(from) = one.renewed_from {
            text.push_str(&format!("{} is renewed by CalicoNode from {from:.0} on\n", one.path));
        }
        for problem in &one.problems {
            text.push_str(&format!("! {}: {problem}\n", one.path));
        }
    }
    if report.credentials.is_empty() {
        text = "this node has no credentials: its datastore is etcd, without TLS\n".into();
    }
    let wrong = report.credentials.iter().any(|one| !one.problems.is_empty());
    app.reporter.document("Credentials", &report, &text);
    if wrong {
        Ending::shown(Exit::Unhealthy, "a credential needs attention")
    } else {
        Ending::shown(Exit::Ok, "shown")
    }
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
    let mut shown = Credential::new("kubeconfig", path.as_str(), "unknown");
    let Ok(text) = std::fs::read_to_string(node.disk(path)) else {
        shown.problems.push("it cannot be read: calicoctl-win repair writes it again".into());
        return shown;
    };
    let Ok(credentials) = kubeconfig::parse(&text) else {
        shown.problems.push("it is no kubeconfig: calicoctl-win repair writes it again".into());
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
        shown.problems.push("it has expired: calicoctl-win credentials rotate gives the node a new one".into());
    }
    let agent = agent::state::read(node, Role::Node).and_then(|state| state.renewal);
    shown.problems.extend(agent);
    shown
}

fn of_certificate(node: &dyn Node, kind: &str, path: &WinPath, origin: &str, now: Timestamp) -> Credential {
    let mut shown = Credential::new(kind, path.as_str(), origin);
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

/// Gets credentials as install would; the node stays as it is, and need not be one.
fn fetch(out: &Path, app: &mut App) -> Result<Ending> {
    let mut node = app.node().ok();
    let (layered, cluster) = match &node {
        Some(node) => {
            let layered = app.config(&**node, &Source::default(), &[])?;
            let connection = app.connection(&**node, &layered)?;
            let cluster = app.cluster(&**node, &connection)?;
            (layered, cluster)
        }
        None => super::cluster::open(app)?,
    };
    let facts = super::cluster::facts(&layered, &cluster);
    for event in cluster.take_events() {
        app.event(&event);
    }
    let facts = facts?;
    let side = settings::cluster_side(&layered, None, &facts);
    let mut written = Vec::new();
    if app.global.dry_run {
        return app.would(format!(
            "fetch credentials of namespace {} into {}",
            side.kubernetes.calico_namespace,
            out.display()
        ));
    }
    if let Some(credentials) = side.kubernetes.credentials {
        let wanted = wanted(&layered, credentials, &side.kubernetes)?;
        let issued = app.phase("credentials", |app| {
            let issued = login::issue(app, node.as_deref(), &cluster, &wanted)?;
            Ok((issued, format!("a login of namespace {}", side.kubernetes.calico_namespace)))
        })?;
        let bytes = kubeconfig::render(&issued.credentials, &side.kubernetes.calico_namespace)?;
        written.push((paths::KUBECONFIG, bytes));
    }
    if let Some(secret) = etcd_secret(&layered, &side.kubernetes.calico_namespace) {
        let EtcdFiles { key, cert, ca_cert } = cluster.etcd_files(&secret, Timestamp::now())?;
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
        write(node.as_deref_mut(), out, name, bytes)?;
    }
    let names: Vec<&str> = written.iter().map(|(name, _)| *name).collect();
    let msg = format!("wrote {} into {}, for administrators only", names.join(", "), out.display());
    app.reporter.tell(&msg);
    Ending::result(RunResult::new(Exit::Ok, true, msg))
}

/// A path of a Windows node is written as one, with its access list; another is a file of this machine.
fn write(node: Option<&mut (dyn Node + 'static)>, folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let exists = |file: &Path| {
        Fault::new(Exit::Conflict, "FileExists", format!("{} is there already", file.display()))
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

fn wanted<'a>(
    layered: &'a Layered,
    credentials: settings::Credentials,
    kubernetes: &'a settings::Kubernetes,
) -> Result<Wanted<'a>> {
    let spec = &layered.config.spec;
    Ok(Wanted {
        credentials,
        kubernetes,
        create_secret: settings::creates_token_secret(spec),
        file: spec.kubernetes.calico_kubeconfig.as_deref(),
        limit: settings::connection(layered, None)?.timeout,
    })
}

fn etcd_secret(layered: &Layered, namespace: &str) -> Option<SecretRef> {
    let given = &layered.config.spec.datastore.etcd.tls_secret_ref;
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let name = filled(&given.name)?;
    Some(SecretRef { namespace: filled(&given.namespace).unwrap_or_else(|| namespace.to_owned()), name })
}

/// New credentials for the node that stands. No generation: the world that is wanted is the same.
fn rotate(app: &mut App) -> Result<Ending> {
    let dry = app.global.dry_run;
    let (mut node, _lock) = if dry {
        (app.node()?, None)
    } else {
        let (node, lock) = app.node_to_change(ROTATE)?;
        (node, Some(lock))
    };
    let standing = Standing::load(&*node)?;
    renewal::may_begin(&standing)?;
    let receipt = standing.receipt().ok_or_else(not_installed)?;
    start_from(app, &*node, &[], &Source::default())?;
    let layered = app.config(&*node, &Source::default(), &[])?;
    let facts = app.measure(&*node, &layered)?;
    let connection = settings::connection(&layered, facts.cloud.as_ref())?;
    let cluster = app.cluster(&*node, &connection)?;
    let asked = cluster_facts(&cluster, &layered, &connection, &facts);
    for event in cluster.take_events() {
        app.event(&event);
    }
    let resolved = settings::resolve(&layered, &facts, Some(&asked?))?;
    let settings = &resolved.settings;
    let has = |path: &WinPath| receipt.target.world.contains_key(&Id::File(path.clone()));

    let mut new: Vec<(WinPath, Vec<u8>)> = Vec::new();
    let own = paths::kubeconfig(&settings.calico.root);
    let kubernetes = &settings.kubernetes;
    if dry {
        return app.would(format!("give {} new credentials", settings.node_name));
    }
    let mut secret = None;
    if let Some(credentials) = kubernetes.credentials.filter(|_| has(&own)) {
        let wanted = wanted(&layered, credentials, kubernetes)?;
        let issued = app.phase("credentials", |app| {
            let issued = login::issue(app, Some(&*node), &cluster, &wanted)?;
            Ok((issued, format!("a new login of namespace {}", kubernetes.calico_namespace)))
        })?;
        secret = issued.credentials.token().and_then(|token| kubeconfig::claims(token.reveal()).secret);
        new.push((own, kubeconfig::render(&issued.credentials, &kubernetes.calico_namespace)?));
    }
    let run = &resolved.run;
    let place = (&settings.datastore, run.etcd_tls_secret.as_ref(), &settings.calico.root);
    let etcd = login::etcd(app, &*node, &cluster, place, connection.timeout)?;
    if let (Datastore::Etcdv3 { tls: Some(tls), .. }, Some(files), true) = (&settings.datastore, &etcd.files, etcd.ours)
    {
        new.push((tls.key_file.clone(), files.key.reveal().into()));
        new.push((tls.cert_file.clone(), files.cert.clone().into()));
        new.push((tls.ca_cert_file.clone(), files.ca_cert.clone().into()));
    }
    let question = format!("Give {} these new credentials?", settings.node_name);
    app.confirm(&question)?;
    let name = settings.node_name.to_string();
    let replace = |app: &mut App, node: &mut dyn Node| {
        let run = app.run.clone();
        // Half of a pair of files is no login.
        let terms = Terms { at_boot: Some(AtBoot::Finish), ..app.terms(node, None, Some(&connection)) };
        engine(app, node, &NodeObject::unknown(), |node, events| {
            renewal::replace(node, &run, ROTATE, terms, &new, events)
        })
    };
    // While a change is on trial the Lease is this machine's already.
    let replaced = if Trial::load(&*node)?.is_some() {
        replace(app, &mut *node)?
    } else {
        lease::hold(app, &mut *node, &name, replace)?
    };
    let changed = replaced.changed > 0;
    let msg = match (changed, secret) {
        (true, _) => {
            "the node has new credentials; Felix and confd restart with them, pods are not interrupted".to_owned()
        }
        (false, Some(secret)) => format!(
            "nothing to do: the token of secret {secret} is as before; delete the secret, which ends it on every node, then rotate again"
        ),
        (false, None) => format!("nothing to do: {ETCD_TLS} and kubeconfig are as their sources have them"),
    };
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, changed, msg);
    result.generation = Some(receipt.generation);
    Ending::result(result)
}

/// What the agent does when a token is due: a new one with the one that still holds, written where it
/// was. The cluster is asked before the lock is taken, so nobody waits for a slow one.
///
/// # Errors
/// Faults of [`Cluster::renewed`] and [`renewal::replace`]; `Busy` while another run goes on.
pub(crate) fn renew(
    node: &mut dyn Node,
    path: &WinPath,
    connect: &dyn Fn(&str) -> Result<Cluster>,
) -> Result<Option<Timestamp>> {
    let read = |node: &dyn Node| std::fs::read_to_string(node.disk(path)).with_context(|| format!("read {path}"));
    let text = read(node)?;
    let current = kubeconfig::parse(&text)?;
    let renewed = connect(&text)?.renewed(&current)?;
    let bytes = kubeconfig::render(&renewed, &kubeconfig::namespace(&text).unwrap_or_default())?;
    let (run, command) = (run_id(), "token renewal".to_owned());
    let holder =
        Holder { run: run.clone(), command: command.clone(), pid: std::process::id(), since: Timestamp::now() };
    let _lock = Lock::take(node, &holder)?;
    if read(node)? != text {
        let what = format!("{path} was written by another run meanwhile");
        return Err(Fault::new(Exit::Busy, "Busy", what).hint("nothing is to be done: that one counts").into());
    }
    // Nobody may be there when power cuts it off.
    let boot = Some(node.facts()?.boot_id);
    let terms = Terms { boot, at_boot: Some(AtBoot::Finish), ..Terms::default() };
    let replaced = renewal::replace(node, &run, &command, terms, &[(path.clone(), bytes)], &mut |_| ());
    if replaced.is_err() && Standing::load(node)?.journal.is_some_and(|journal| journal.header.run == run) {
        converge::undo_with(node, &NodeObject::unknown(), &mut |_| ())?;
    }
    replaced?;
    Ok(renewed.expires)
}
