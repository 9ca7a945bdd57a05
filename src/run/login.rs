//! Where the node's own login comes from: a token of calico-node's account, a given kubeconfig, or the files mounted
//! into a HostProcess pod; and with etcd, its client's files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::app::App;
use super::host_process;
use super::trusted_kubeconfigs::check_kubeconfig;
use crate::calico::etcd::EtcdFiles;
use crate::calico::kubeconfig::{self, NodeCredentials};
use crate::cluster::{Cluster, Issued, Needs, TokenFrom, etcd, read_etcd, read_kubeconfig, renewal_forbidden};
use crate::config::Layered;
use crate::facts::{ClusterFacts, ETCD};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::node::trust::{self, Use};
use crate::paths;
use crate::report::document::Failure;
use crate::sandbox;
use crate::settings::{self, Connection, Credentials, Datastore, EtcdTls, Kubernetes, RunSettings};
use crate::values::{Secret, WinPath};

/// What the settings say about it.
pub(crate) struct Wanted<'a> {
    pub credentials: Credentials,
    pub kubernetes: &'a Kubernetes,
    /// Whether a token secret may be created.
    pub create_secret: bool,
    /// With [`Credentials::Kubeconfig`].
    pub file: Option<&'a str>,
    /// How long to wait until a secret is filled.
    pub limit: Duration,
}

impl<'a> Wanted<'a> {
    /// None if the node needs no login.
    pub fn of(run: &'a RunSettings, kubernetes: &'a Kubernetes) -> Option<Self> {
        Some(Self {
            credentials: kubernetes.credentials?,
            kubernetes,
            create_secret: run.create_token_secret,
            file: run.calico_kubeconfig.as_deref(),
            limit: run.connection.timeout,
        })
    }
}

/// Gets a login and tries it once. Warns if it expires and will not be renewed.
pub(crate) fn issue(app: &mut App, node: Option<&dyn Node>, cluster: &Cluster, wanted: &Wanted<'_>) -> Result<Issued> {
    let namespace = &wanted.kubernetes.calico_namespace;
    let of_account = |from, app: &mut App| {
        cluster.node_credentials(namespace, from, wanted.create_secret, wanted.limit, &mut |event| app.event(&event))
    };
    let issued = match wanted.credentials {
        Credentials::TokenRequest => of_account(TokenFrom::Request, app),
        Credentials::Secret => of_account(TokenFrom::Secret, app),
        Credentials::Kubeconfig => given(node, cluster, wanted.file.unwrap_or_default()),
        Credentials::HostProcess => {
            let pod = host_process::read()?;
            let host = pod.host.trim_matches(['[', ']']).parse::<IpAddr>();
            if let Ok(IpAddr::V4(host)) = host
                && wanted.kubernetes.service_cidrs.iter().any(|cidr| cidr.contains(&host))
            {
                return Err(host_process::cluster_ip(&pod.host).into());
            }
            let origin = "the service account of this HostProcess pod";
            cluster.given_credentials(origin, &pod.kubeconfig, Path::new(""))
        }
    }?;
    if let (Some(false), Some(expires)) = (issued.renewable, issued.credentials.expires) {
        let claims = issued.credentials.token().map(|token| kubeconfig::claims(token.reveal()));
        let (namespace, account) = claims.and_then(|claims| claims.account).unwrap_or_default();
        let why = renewal_forbidden(&namespace, &account);
        let message = format!(
            "the node's token ends at {expires:.0} and CalicoNode cannot renew it: {}; {}",
            why.what,
            why.hint.unwrap_or_default()
        );
        app.warn("TokenRenewalForbidden", message);
    }
    Ok(issued)
}

fn given(node: Option<&dyn Node>, cluster: &Cluster, file: &str) -> Result<Issued> {
    let path = on_this_machine(node, file);
    let origin = format!("the kubeconfig {}", path.display());
    check_kubeconfig(node, &path, None)?;
    let text = read_kubeconfig(&path).map_err(|cause| {
        let what = format!("cannot read {origin} for the node");
        let fault = Fault::new(Exit::InvalidConfig, "KubeconfigMissing", what)
            .hint("copy it there, or name another one: spec.kubernetes.calicoKubeconfig");
        anyhow::Error::new(cause).context(fault)
    })?;
    cluster.given_credentials(&origin, &text, path.parent().unwrap_or(Path::new("")))
}

/// Returns the path on this machine: a Windows path is one of the node, which may be a sandbox.
pub(crate) fn on_this_machine(node: Option<&dyn Node>, file: &str) -> PathBuf {
    match (node, file.parse::<WinPath>()) {
        (Some(node), Ok(path)) => node.disk(&path),
        _ => PathBuf::from(file),
    }
}

/// Returns the namespace of calico-node, if it need not be looked up. In a HostProcess pod it is known, and the pod's
/// account may not look.
pub(crate) fn namespace(connection: &Connection) -> Result<Option<String>> {
    match &connection.calico_namespace {
        None if connection.host_process => Ok(Some(host_process::read()?.namespace)),
        named => Ok(named.clone()),
    }
}

/// Returns the rights that a run's credentials need.
pub(crate) fn needs(run: &RunSettings) -> Needs<'_> {
    Needs {
        login: run.credentials,
        login_named: run.credentials_named,
        create_secret: run.create_token_secret,
        etcd_secret: run.etcd_tls_secret.as_ref(),
        etcd: run.etcd,
    }
}

/// Returns our kubeconfig on the node, if it is still good: of the wanted kind, for the same server and CA, with a
/// third of its token's lifetime left, and accepted by the API server.
pub(crate) fn kept(
    node: &dyn Node,
    root: &WinPath,
    cluster: &Cluster,
    wanted: &Wanted<'_>,
    now: Timestamp,
) -> Option<Vec<u8>> {
    let credentials = current(node, root)?;
    if credentials.server != cluster.server()
        || cluster.ca_pem().is_some_and(|ca| ca.trim() != credentials.ca_pem.trim())
    {
        return None;
    }
    let claims = kubeconfig::claims(credentials.token()?.reveal());
    let from_secret = claims.secret.is_some();
    if from_secret != (wanted.credentials == Credentials::Secret)
        || credentials.expires.is_some() && claims.renew_from().is_none_or(|due| now > due)
    {
        return None;
    }
    cluster.check(&credentials).ok()?;
    // Rendered again, so that a change of its form is written too.
    kubeconfig::render(&credentials, &wanted.kubernetes.calico_namespace).ok()
}

/// Returns the node's current login.
pub(crate) fn current(node: &dyn Node, root: &WinPath) -> Option<NodeCredentials> {
    let text = std::fs::read_to_string(node.disk(&paths::kubeconfig(root))).ok()?;
    kubeconfig::parse(&text).ok()
}

/// Returns a given kubeconfig, for the node. If the agent has renewed one of the same account since, that one is newer,
/// and stays.
pub(crate) fn given_or_renewed(
    node: &dyn Node,
    root: &WinPath,
    given: NodeCredentials,
    namespace: &str,
) -> Result<Vec<u8>> {
    let account = |credentials: &NodeCredentials| {
        credentials.token().and_then(|token| kubeconfig::claims(token.reveal()).account)
    };
    let renewed = current(node, root).filter(|current| {
        (&current.server, &current.ca_pem) == (&given.server, &given.ca_pem)
            && account(current).is_some()
            && account(current) == account(&given)
            && current.expires > given.expires
            && given.expires.is_some()
    });
    kubeconfig::render(&renewed.unwrap_or(given), namespace)
}

/// The etcd client's files, checked after each member was tried with them.
#[derive(Default)]
pub(crate) struct Etcd {
    pub files: Option<EtcdFiles>,
    /// They are ours to write: from a secret, or in the folder of the release, which is swapped.
    pub ours: bool,
}

/// Gets and checks them, tries the members, and reads what Calico keeps there into the cluster's facts; or writes into
/// these why not. `name`: of the Node.
pub(crate) fn etcd(
    app: &mut App,
    node: &dyn Node,
    cluster: &Cluster,
    config: (&Layered, &RunSettings),
    name: &str,
    facts: &mut ClusterFacts,
) -> Result<Etcd> {
    let asked = ask_etcd(app, node, cluster, config, name, facts);
    if let Err(error) = &asked {
        facts.unanswered.insert(ETCD.into(), Failure::new(error).line());
    }
    asked
}

fn ask_etcd(
    app: &mut App,
    node: &dyn Node,
    cluster: &Cluster,
    config: (&Layered, &RunSettings),
    name: &str,
    facts: &mut ClusterFacts,
) -> Result<Etcd> {
    let (members, etcd) = etcd_client(app, node, cluster, config, &facts.calico_namespace)?;
    if !members.is_empty() {
        read_etcd(facts, name, &members, etcd.files.as_ref(), config.1.connection.timeout)?;
    }
    Ok(etcd)
}

/// Gets and checks the etcd client's files, and returns the members that answer to them, of those that can be reached from
/// this machine. Nothing with the datastore `kubernetes`.
pub(crate) fn etcd_client(
    app: &mut App,
    node: &dyn Node,
    cluster: &Cluster,
    (layered, run): (&Layered, &RunSettings),
    calico_namespace: &str,
) -> Result<(Vec<String>, Etcd)> {
    let Datastore::Etcdv3 { endpoints, tls } = settings::datastore(layered, &run.folders.root, calico_namespace) else {
        return Ok(Default::default());
    };
    let (files, ours) = match (&run.etcd_tls_secret, &tls) {
        (Some(secret), _) => (Some(cluster.etcd_files(secret, calico_namespace, node.now())?), true),
        (None, Some(tls)) => {
            let files = etcd_files_at(node, tls)?;
            if let Some(open) = trust::readable_by(node, &node.disk(&tls.key_file))? {
                app.warn("EtcdKeyReadable", open);
            }
            etcd::check(&files, node.now()).with_context(|| format!("check {}", tls.cert_file))?;
            let paths = [&tls.key_file, &tls.cert_file, &tls.ca_cert_file];
            (Some(files), paths.iter().any(|path| path.is_below(&run.folders.root)))
        }
        (None, None) => (None, false),
    };
    let members = try_members(app, &endpoints, files.as_ref(), run.connection.timeout)?;
    Ok((members, Etcd { files, ours }))
}

/// Tries every member that can be reached from this machine, and returns these: a sandbox has only loopback.
pub(crate) fn try_members(
    app: &mut App,
    endpoints: &[String],
    files: Option<&EtcdFiles>,
    limit: Duration,
) -> Result<Vec<String>> {
    let reached = |endpoint: &&String| app.global.sandbox.is_none() || sandbox::reaches(endpoint);
    let tried: Vec<String> = endpoints.iter().filter(reached).cloned().collect();
    for down in etcd::try_endpoints(&tried, files, limit)? {
        app.warn("EtcdMemberDown", down);
    }
    Ok(tried)
}

pub(crate) fn etcd_files_at(node: &dyn Node, tls: &EtcdTls) -> Result<EtcdFiles> {
    let read = |path: &WinPath| {
        trust::check(Some(node), &node.disk(path), Use::Read, "etcd's file")?;
        std::fs::read_to_string(node.disk(path)).map_err(|cause| {
            let fault = Fault::new(Exit::InvalidConfig, "EtcdFileMissing", format!("cannot read {path}, a file of etcd's client"))
                .hint("copy etcd's client key, certificate and CA to the node, or name the secret that has them: spec.datastore.etcd.tlsSecretRef");
            anyhow::Error::new(cause).context(fault)
        })
    };
    Ok(EtcdFiles {
        key: Secret::new(read(&tls.key_file)?),
        cert: read(&tls.cert_file)?,
        ca_cert: read(&tls.ca_cert_file)?,
    })
}
