//! Kubeconfig files: which server, trusted how, asked as whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use base64::Engine as _;
use kube::client::{AuthError, ClientBuilder};
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use regex::Regex;
use tokio::runtime::Handle;

use super::Options;
use super::errors;
use crate::fault::{Exit, Fault};

/// How long an exec plugin may take to hand out credentials: some talk to a cloud first.
const PLUGIN_LIMIT: Duration = Duration::from_secs(60);

/// Everything that one context of a kubeconfig says, files read.
pub(super) struct Access {
    pub server: String,
    pub ca_pem: Option<String>,
    pub config: Config,
}

/// Reads the text of a kubeconfig.
///
/// # Errors
/// Fault `KubeconfigMissing` when no file is named, or it cannot be read.
pub(super) fn read(file: Option<&Path>) -> Result<(&Path, String)> {
    let missing = |what: String| {
        Fault::new(Exit::ClusterUnreachable, "KubeconfigMissing", what).hint(
            "give the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG; \
             on a control-plane node of kubeadm it is /etc/kubernetes/admin.conf",
        )
    };
    let Some(file) = file else {
        return Err(missing("no kubeconfig is given, so the cluster cannot be asked".into()).into());
    };
    let text = std::fs::read_to_string(file).map_err(|cause| {
        let what = format!("cannot read the kubeconfig {}", file.display());
        Error::new(cause).context(missing(what))
    })?;
    Ok((file, text))
}

/// Takes one context out of a kubeconfig. `origin` is what errors call it.
pub(super) async fn choose(origin: &str, text: &str, base_dir: &Path, context: Option<&str>) -> Result<Access> {
    let mut kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| invalid(origin, &error))?;
    resolve_files(&mut kubeconfig, base_dir);

    let wanted = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default().to_owned();
    let contexts: Vec<&str> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
    if !contexts.contains(&wanted.as_str()) {
        return Err(no_such_context(origin, &wanted, &contexts).into());
    }
    let chosen = kubeconfig.contexts.iter().find(|c| c.name == wanted).and_then(|c| c.context.clone());
    let chosen = chosen.ok_or_else(|| broken(format!("context `{wanted}` of {origin} is empty")))?;
    // kube would go on without a user and let the server wonder about `system:anonymous`.
    if let Some(user) = chosen.user.as_deref().filter(|u| !u.is_empty())
        && !kubeconfig.auth_infos.iter().any(|u| u.name == user)
    {
        let what = format!("context `{wanted}` of {origin} names the user `{user}`, whom it does not define");
        return Err(broken(what).into());
    }
    let cluster = kubeconfig.clusters.iter().find(|c| c.name == chosen.cluster).and_then(|c| c.cluster.clone());
    let Some(cluster) = cluster else {
        let name = &chosen.cluster;
        let what = format!("context `{wanted}` of {origin} names the cluster `{name}`, which it does not define");
        return Err(broken(what).into());
    };
    let ca_pem = ca_of(&cluster)?;
    errors::check_ca(ca_pem.as_deref())?;

    let options = KubeConfigOptions { context: Some(wanted), ..KubeConfigOptions::default() };
    let has_own_proxy = cluster.proxy_url.as_deref().is_some_and(|p| !p.is_empty());
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| invalid(origin, &error))?;
    if !has_own_proxy && !environment_wants_proxy(&config.cluster_url) {
        config.proxy_url = None;
    }
    let server = cluster.server.unwrap_or_default().trim_end_matches('/').to_owned();
    Ok(Access { server, ca_pem, config })
}

impl Access {
    /// The same server, trusted by this CA and asked with this token.
    pub fn with_token(server: &str, ca_pem: &str, token: &str) -> Result<Self> {
        let url = server.parse().with_context(|| format!("read the server URL `{server}`"))?;
        let mut config = Config::new(url);
        config.root_cert = Some(certificates(ca_pem)?);
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Ok(Self { server: server.to_owned(), ca_pem: Some(ca_pem.to_owned()), config })
    }

    /// The client. Runs the exec plugin, if the user has one, and gives it a limit.
    pub fn client(self, dial: Option<SocketAddr>, options: &Options, runtime: &Handle) -> Result<Client> {
        let mut config = self.config;
        if let Some(address) = dial {
            let host = config.cluster_url.host().unwrap_or_default().to_owned();
            config.tls_server_name.get_or_insert(host);
            let below = config.cluster_url.path().trim_end_matches('/');
            config.cluster_url = format!("https://{address}{below}").parse().context("build the address to dial")?;
            config.proxy_url = None;
        }
        // Tries and limits are ours (`Api::answer`). Half of the time for the connection alone, so
        // that a server that cannot be reached is told from one that does not answer.
        config.default_retry = false;
        config.connect_timeout = Some(options.timeout / 2);
        config.read_timeout = None;
        config.write_timeout = None;

        let Some(plugin) = config.auth_info.exec.as_ref().and_then(|e| e.command.clone()) else {
            let _inside = runtime.enter();
            return Ok(ClientBuilder::try_from(config).map_err(login)?.build());
        };
        let (sender, receiver) = mpsc::channel();
        let runtime = runtime.clone();
        std::thread::spawn(move || {
            let _inside = runtime.enter();
            // Nobody listens any more when the limit has passed.
            sender.send(ClientBuilder::try_from(config).map(ClientBuilder::build)).ok();
        });
        match receiver.recv_timeout(PLUGIN_LIMIT) {
            Ok(client) => client.map_err(login),
            Err(RecvTimeoutError::Timeout) => {
                let what = format!(
                    "the kubeconfig's exec plugin `{plugin}` gave no credentials within {} s",
                    PLUGIN_LIMIT.as_secs()
                );
                Err(login_fault(what).into())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(login_fault(format!("the kubeconfig's exec plugin `{plugin}` could not be run")).into())
            }
        }
    }
}

/// The certificates in a PEM text, as DER.
pub(super) fn certificates(pem: &str) -> Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).map(|c| c.map(|c| c.to_vec())).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(broken("the cluster's CA holds no certificate in PEM".into()).into()),
        Err(cause) => Err(anyhow!("{cause}").context(broken("the cluster's CA is not PEM".into()))),
    }
}

fn ca_of(cluster: &Cluster) -> Result<Option<String>> {
    let bytes = if let Some(data) = &cluster.certificate_authority_data {
        let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
        decoded.map_err(|cause| {
            Error::new(cause).context(broken("certificate-authority-data in the kubeconfig is not base64".into()))
        })?
    } else if let Some(file) = &cluster.certificate_authority {
        std::fs::read(file).map_err(|cause| {
            Error::new(cause).context(broken(format!("cannot read {file}, the kubeconfig's certificate-authority")))
        })?
    } else {
        return Ok(None);
    };
    let pem = String::from_utf8_lossy(&bytes).into_owned();
    certificates(&pem)?;
    Ok(Some(pem))
}

/// File names in a kubeconfig are relative to it. As in client-go, a plugin's command only when it
/// has a separator in it: a bare name is looked up in `PATH`.
fn resolve_files(kubeconfig: &mut Kubeconfig, base_dir: &Path) {
    let absolute = |file: &mut Option<String>| {
        if let Some(file) = file {
            *file = base_dir.join(PathBuf::from(&*file)).to_string_lossy().into_owned();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|c| c.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|u| u.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        if let Some(exec) = &mut user.exec
            && exec.command.as_deref().is_some_and(|c| c.contains(std::path::is_separator))
        {
            absolute(&mut exec.command);
        }
    }
}

/// Whether `HTTPS_PROXY` is meant for this server, by `NO_PROXY`. kube compares `NO_PROXY` with the
/// proxy's own name, so it is asked here; local servers never go through a proxy, as with kubectl.
fn environment_wants_proxy(server: &http::Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !local && hyper_util::client::proxy::matcher::Matcher::from_env().intercept(server).is_some()
}

fn no_such_context(origin: &str, wanted: &str, contexts: &[&str]) -> Fault {
    let what = match wanted {
        "" => format!("{origin} has no current-context"),
        name => format!("{origin} has no context `{name}`"),
    };
    let hint = match contexts {
        [] => "it has no contexts at all: is it the right file?".to_owned(),
        all => format!("choose one with --context: {}", all.join(", ")),
    };
    Fault::new(Exit::ClusterUnreachable, "ContextNotFound", what).hint(hint)
}

fn broken(what: String) -> Fault {
    Fault::new(Exit::ClusterUnreachable, "KubeconfigInvalid", what)
        .hint("compare it with `kubectl config view`, or fetch a fresh kubeconfig of the cluster")
}

fn invalid(origin: &str, error: &KubeconfigError) -> Error {
    let what = match error {
        KubeconfigError::Parse(parse) => match parse.location() {
            Some(at) => format!("{origin} is not valid YAML: line {}, column {}", at.line(), at.column()),
            None => format!("{origin} is not valid YAML"),
        },
        _ => format!("{origin} is not usable"),
    };
    anyhow!("{}", without_values(&error.to_string())).context(broken(what))
}

/// An error about a kubeconfig may quote the piece of it where a token stands: long quoted pieces
/// and the lines of source that the YAML parser shows are left out.
fn without_values(message: &str) -> String {
    let first_line = message.lines().next().unwrap_or_default();
    let quoted = Regex::new("[\"'`][^\"'`]{24,}[\"'`]").expect("the pattern is right");
    quoted.replace_all(first_line, "`…`").into_owned()
}

fn login(error: kube::Error) -> Error {
    match error {
        // Its output may hold the token: only what the plugin said on stderr is shown.
        kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) => {
            let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            anyhow!("{}: {said}", out.status)
                .context(login_fault(format!("the kubeconfig's exec plugin `{cmd}` failed")))
        }
        kube::Error::Auth(AuthError::AuthExecStart(cause)) => {
            Error::new(cause).context(login_fault("the kubeconfig's exec plugin cannot be started".into()))
        }
        kube::Error::Auth(AuthError::AuthExecParse(_)) => {
            login_fault("the kubeconfig's exec plugin did not print an ExecCredential".into()).into()
        }
        other => {
            let cause = anyhow!("{}", without_values(&other.to_string()));
            cause.context(login_fault("the kubeconfig's credentials cannot be used".into()))
        }
    }
}

fn login_fault(what: String) -> Fault {
    Fault::new(Exit::ClusterUnreachable, "ClusterLogin", what)
        .hint("try `kubectl --kubeconfig FILE version` with the same file on this machine")
}
