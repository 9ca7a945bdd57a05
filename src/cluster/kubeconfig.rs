//! Kubeconfig files: which server, how it is verified, and as which user.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use base64::Engine as _;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::client::AuthError;
use kube::config::{AuthInfo, Cluster, ExecInteractiveMode, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret;
use tokio::runtime::Handle;

use super::errors::{self, without_values};
use super::plugin::{self, Plugin, login_fault};
use super::session::Session;
use crate::calico::kubeconfig::{Login, NodeCredentials};
use crate::fault::{Exit, Fault};
use crate::settings::Limits;
use crate::values::{Secret, is_this_machine};
use crate::yaml::{self, Malformed, encoding};

/// The content of one context of a kubeconfig, with its files read.
pub(super) struct Access {
    pub server: String,
    pub ca_pem: Option<String>,
    pub config: Config,
}

/// How the API server is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// With this CA, in PEM.
    Ca(String),
    /// With the roots of this system.
    System,
    /// Not at all: the kubeconfig has `insecure-skip-tls-verify`.
    Nobody,
}

/// Reads the text of a kubeconfig.
///
/// # Errors
/// Fault `KubeconfigMissing` when no file is named, or it cannot be read.
pub(super) fn read(file: Option<&Path>) -> Result<(&Path, String)> {
    let missing = |what: String| {
        Fault::new(Exit::ClusterUnreachable, "KubeconfigMissing", what).hint(
            "pass the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG; \
             on a control-plane node of kubeadm it is /etc/kubernetes/admin.conf",
        )
    };
    let Some(file) = file else {
        return Err(missing("no kubeconfig is given, so the cluster cannot be reached".into()).into());
    };
    let text = read_file(file).map_err(|cause| {
        let what = format!("cannot read the kubeconfig {}", file.display());
        Error::new(cause).context(missing(what))
    })?;
    Ok((file, text))
}

/// The text of a kubeconfig file. Like kubectl, it reads what Windows PowerShell's `>` writes.
///
/// # Errors
/// When it cannot be read, or is not text.
pub fn read_file(file: &Path) -> io::Result<String> {
    encoding::decode(&std::fs::read(file)?).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why.to_string()))
}

/// The server URL of a kubeconfig's current context; none if it has none.
pub fn server_of(text: &str) -> Option<String> {
    let kubeconfig = parse("the kubeconfig", text).ok()?;
    let wanted = kubeconfig.current_context?;
    let cluster = kubeconfig.contexts.into_iter().find(|context| context.name == wanted)?.context?.cluster;
    kubeconfig.clusters.into_iter().find(|named| named.name == cluster)?.cluster?.server
}

/// The files that a context of a kubeconfig uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// CA, certificate, key and token.
    pub read: Vec<PathBuf>,
    /// The plugin that returns credentials.
    pub run: Vec<PathBuf>,
}

/// The files that a context of a kubeconfig names; none for an invalid one.
pub fn files_of(text: &str, base_dir: &Path, context: Option<&str>) -> Files {
    let Ok(mut kubeconfig) = parse("the kubeconfig", text) else { return Files::default() };
    resolve_files(&mut kubeconfig, base_dir);
    let wanted = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let Some(chosen) = kubeconfig.contexts.iter().find(|c| c.name == wanted).and_then(|c| c.context.as_ref()) else {
        return Files::default();
    };
    let cluster = kubeconfig.clusters.iter().find(|c| c.name == chosen.cluster).and_then(|c| c.cluster.as_ref());
    let user = kubeconfig.auth_infos.iter().find(|u| chosen.user.as_ref() == Some(&u.name));
    let user = user.and_then(|user| user.auth_info.as_ref());
    let of_user = user.map(|user| [&user.client_certificate, &user.client_key, &user.token_file]);
    let read = cluster.map(|cluster| &cluster.certificate_authority).into_iter().chain(of_user.into_iter().flatten());
    let exec = user.and_then(|user| user.exec.as_ref()?.command.clone());
    let provider = user.and_then(|user| user.auth_provider.as_ref()?.config.get("cmd-path").cloned());
    Files {
        read: read.flatten().map(PathBuf::from).collect(),
        run: exec.into_iter().chain(provider).map(PathBuf::from).collect(),
    }
}

/// A kubeconfig of one or several documents. Not with kube's own reader, whose errors quote values.
fn parse(origin: &str, text: &str) -> Result<Kubeconfig> {
    let documents = yaml::read_all(text).map_err(|Malformed { line, column, problem }| {
        let what = format!("{origin} is not valid: line {line}, column {column}");
        anyhow!("{}", without_values(&problem)).context(broken(what))
    })?;
    let merged = documents.into_iter().try_fold(Kubeconfig::default(), Kubeconfig::merge);
    merged.map_err(|error| invalid(origin, &error))
}

/// Selects one context of a kubeconfig. `origin` is its name in errors; `asks`: a plugin may ask the user.
pub(super) fn choose(origin: &str, text: &str, base_dir: &Path, context: Option<&str>, asks: bool) -> Result<Access> {
    let mut kubeconfig = parse(origin, text)?;
    resolve_files(&mut kubeconfig, base_dir);

    let wanted = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let Some(chosen) = kubeconfig.contexts.iter().find(|c| c.name == wanted).and_then(|c| c.context.as_ref()) else {
        let contexts: Vec<&str> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
        return Err(no_such_context(origin, wanted, &contexts).into());
    };
    let undefined = |kind: &str, name: &str| {
        broken(format!("context `{wanted}` of {origin} names the {kind} `{name}`, which is not defined there"))
    };
    let cluster = kubeconfig.clusters.iter().find(|c| c.name == chosen.cluster).and_then(|c| c.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| undefined("cluster", &chosen.cluster))?;
    let mut user = match chosen.user.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => match kubeconfig.auth_infos.iter().find(|u| u.name == name) {
            Some(user) => user.auth_info.clone().unwrap_or_default(),
            // kube would continue as `system:anonymous`.
            None => return Err(undefined("user", name).into()),
        },
        None => AuthInfo::default(),
    };
    find_files(&user)?;
    if let Some(token) = &mut user.token {
        *token = bearer(token.expose_secret(), "token", origin)?.into();
    }
    for (field, token) in user.auth_provider.iter_mut().flat_map(|provider| &mut provider.config) {
        if field.ends_with("-token") {
            *token = bearer(token, field, origin)?;
        }
    }
    let ca_pem = ca_of(cluster)?;
    errors::check_ca(ca_pem.as_deref())?;

    let server = cluster.server.as_deref().unwrap_or_default().trim_end_matches('/').to_owned();
    // Such a URL may contain a password, so it is not shown.
    if server.contains('@') {
        let what = format!("the URL of the server in {origin} has a user name or password, which is not supported");
        return Err(broken(what)
            .hint("remove them from the URL, and give the user a token or client certificate")
            .into());
    }
    let url = server.parse::<Uri>().ok().filter(|url| url.scheme().is_some() && url.host().is_some());
    let url = url.ok_or_else(|| broken(format!("`{server}` in {origin} is not the URL of a server")))?;
    let mut config = Config::new(url);
    config.proxy_url = proxy(&config.cluster_url, cluster.proxy_url.as_deref())?;
    config.root_cert = ca_pem.as_deref().map(certificates).transpose()?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.auth_info = user;
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(cluster.try_into().map_err(|error| invalid(origin, &error))?);
    }
    // As kubectl does: `IfAvailable`, the default, means a terminal.
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|_| !asks) {
        match exec.interactive_mode {
            Some(ExecInteractiveMode::Always) => {
                let what = format!("the exec plugin of {origin} has interactiveMode: Always, and nobody can be asked");
                return Err(login_fault(what).retryable(false).into());
            }
            _ => exec.interactive_mode = Some(ExecInteractiveMode::Never),
        }
    }
    Ok(Access { server, ca_pem, config })
}

impl Access {
    /// The server of a node's credentials, verified with their CA, or with the system's roots if that is empty, and
    /// their login.
    pub fn of_node(credentials: &NodeCredentials) -> Result<Self> {
        let NodeCredentials { server, ca_pem, login, .. } = credentials;
        let mut config = Config::new(server.parse().with_context(|| format!("read the server URL `{server}`"))?);
        config.proxy_url = proxy(&config.cluster_url, None)?;
        config.root_cert = (!ca_pem.is_empty()).then(|| certificates(ca_pem)).transpose()?;
        let base64 = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
        config.auth_info = match login {
            Login::Token(token) => AuthInfo { token: Some(token.reveal().to_owned().into()), ..AuthInfo::default() },
            Login::Certificate { cert, key } => AuthInfo {
                client_certificate_data: Some(base64(cert)),
                client_key_data: Some(base64(key.reveal()).into()),
                ..AuthInfo::default()
            },
        };
        Ok(Self { server: server.to_owned(), ca_pem: config.root_cert.as_ref().map(|_| ca_pem.to_owned()), config })
    }

    /// Host and port of the proxy.
    pub fn proxy(&self) -> Option<String> {
        let authority = self.config.proxy_url.as_ref()?.authority()?;
        Some(
            authority.port().map_or_else(|| authority.host().to_owned(), |port| format!("{}:{port}", authority.host())),
        )
    }

    /// How the server is verified.
    pub fn trust(&self) -> Trust {
        match &self.ca_pem {
            Some(pem) => Trust::Ca(pem.clone()),
            None if self.config.accept_invalid_certs => Trust::Nobody,
            None => Trust::System,
        }
    }

    /// The client. Runs the plugin, if the user has one.
    pub fn session(self, dial: Option<SocketAddr>, limits: Limits, runtime: &Handle) -> Result<Session> {
        self.session_within(plugin::LIMIT, dial, limits, runtime)
    }

    fn session_within(
        self,
        limit: Duration,
        dial: Option<SocketAddr>,
        limits: Limits,
        runtime: &Handle,
    ) -> Result<Session> {
        let mut config = self.config;
        if let Some(address) = dial {
            let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            config.tls_server_name.get_or_insert(host);
            let below = config.cluster_url.path().trim_end_matches('/');
            config.cluster_url = format!("https://{address}{below}").parse().context("build the address to dial")?;
            config.proxy_url = None;
        }
        // `Api::answer` has the retries and limits.
        config.default_retry = false;
        config.connect_timeout = Some(limits.connect());
        config.read_timeout = None;
        config.write_timeout = None;
        let plugin = Plugin::of(&config.auth_info, limit);
        let _inside = runtime.enter();
        Ok(Session::begin(config, plugin)?)
    }
}

/// The content of a kubeconfig's context, without references to this machine's files: for the node's components, which
/// run as a service and in another folder.
///
/// # Errors
/// Fault `KubeconfigNotForNode` for a login by a plugin or a password, for no login, and if the server is not verified;
/// `KubeconfigInvalid` for a file that cannot be read.
pub(super) fn self_contained(origin: &str, access: &Access) -> Result<NodeCredentials> {
    let unfit = |why: &str| {
        Fault::new(Exit::InvalidConfig, "KubeconfigNotForNode", format!("{origin} cannot be used for a node: {why}"))
            .hint(
                "use one with a service account's token or a client certificate, \
             or kubernetes.credentials: token-request",
            )
    };
    if access.trust() == Trust::Nobody {
        return Err(unfit("it has insecure-skip-tls-verify, so the API server would not be verified").into());
    }
    if access.config.tls_server_name.is_some() {
        return Err(unfit("it has tls-server-name, which Calico's CNI plugin may not support").into());
    }
    let user = &access.config.auth_info;
    let text = |field: &str, data: Option<&str>, file: Option<&String>| -> Result<Option<String>> {
        let bytes = match (data, file) {
            (Some(data), _) => base64::engine::general_purpose::STANDARD.decode(data.trim()).map_err(Error::new),
            (None, Some(file)) => std::fs::read(file).map_err(Error::new),
            (None, None) => return Ok(None),
        };
        let what = || broken(format!("{field} of {origin} cannot be read"));
        let bytes = bytes.map_err(|cause| cause.context(what()))?;
        String::from_utf8(bytes).map(Some).map_err(|_| what().into())
    };
    let cert = text("client-certificate", user.client_certificate_data.as_deref(), user.client_certificate.as_ref())?;
    let key = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = text("client-key", key, user.client_key.as_ref())?;
    let token = match (&user.token, &user.token_file) {
        (Some(token), _) => Some(token.expose_secret().to_owned()),
        (None, Some(file)) => {
            text("tokenFile", None, Some(file))?.map(|token| bearer(&token, "tokenFile", origin)).transpose()?
        }
        (None, None) => None,
    };
    let login = match (token.filter(|token| !token.is_empty()), cert, key) {
        (Some(token), _, _) => Login::Token(Secret::new(token)),
        (None, Some(cert), Some(key)) => Login::Certificate { cert, key: Secret::new(key) },
        _ if user.exec.is_some() => return Err(unfit("its user logs in with a plugin (exec)").into()),
        _ if user.auth_provider.is_some() => return Err(unfit("its user logs in with an auth-provider").into()),
        _ if user.password.is_some() => return Err(unfit("its user logs in with a password").into()),
        _ => return Err(unfit("its user has neither a token nor a client certificate").into()),
    };
    let expires = crate::calico::kubeconfig::expiry(&login);
    let ca_pem = access.ca_pem.clone().unwrap_or_default();
    Ok(NodeCredentials { server: access.server.clone(), ca_pem, login, expires })
}

/// The certificates in a PEM text, as DER.
pub(super) fn certificates(pem: &str) -> Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).map(|c| c.map(|c| c.to_vec())).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(broken("the cluster's CA has no certificate in PEM format".into()).into()),
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

/// The token of a `field` without the white space around it. kube does not check that it can be sent in a header.
fn bearer(token: &str, field: &str, origin: &str) -> Result<String> {
    Ok(header_token(token).map_err(|what| broken(format!("the user's {field} in {origin} has {what}")))?)
}

/// A token without the white space around it, or what it has that no header can have.
pub(super) fn header_token(token: &str) -> Result<String, &'static str> {
    let token = token.trim();
    match token.contains(|c: char| !c.is_ascii_graphic()) {
        true => Err("a line break, a space or another character of no token"),
        false => Ok(token.to_owned()),
    }
}

/// Fails on a file of the user's that cannot be read, by name: later only its contents are used.
fn find_files(user: &AuthInfo) -> Result<()> {
    let files = [
        ("client-certificate", user.client_certificate.as_ref().filter(|_| user.client_certificate_data.is_none())),
        ("client-key", user.client_key.as_ref().filter(|_| user.client_key_data.is_none())),
        ("tokenFile", user.token_file.as_ref().filter(|_| user.token.is_none())),
    ];
    for (field, file) in files {
        if let Some(file) = file {
            // Opening a pipe waits for its writer.
            let opened = std::fs::metadata(file).and_then(|found| match found.is_file() {
                true => std::fs::File::open(file),
                false => Err(io::Error::other("it is not a file")),
            });
            opened.map_err(|cause| {
                Error::new(cause).context(broken(format!("cannot read {file}, the kubeconfig's {field}")))
            })?;
        }
    }
    Ok(())
}

/// File names in a kubeconfig are relative to it. As in client-go, this applies to a plugin's command only if it has a
/// separator: a bare name is looked up in `PATH`. The result is a full path, so that what runs is what was checked.
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
        if let Some(exec) = &mut user.exec {
            if exec.command.as_deref().is_some_and(|c| c.contains(std::path::is_separator)) {
                absolute(&mut exec.command);
            }
            let of_plugin = |entry: &HashMap<String, String>| {
                let name = entry.get("name").filter(|name| name.eq_ignore_ascii_case("PATH"))?;
                entry.get("value").filter(|_| !name.is_empty()).cloned()
            };
            let path = exec.env.iter().flatten().find_map(of_plugin);
            exec.command = exec.command.take().map(|command| program(command, path));
        }
        if let Some(command) = user.auth_provider.as_mut().and_then(|provider| provider.config.get_mut("cmd-path")) {
            *command = program(std::mem::take(command), None);
        }
    }
}

/// The program that [`std::process::Command`] starts for a command, with its full path; the command itself if none is
/// found. `path`: the plugin's own `PATH`.
fn program(command: String, path: Option<String>) -> String {
    let found = |place: PathBuf| runs(&place).then(|| place.to_string_lossy().into_owned());
    if command.contains(std::path::is_separator) {
        // On Windows `.exe` may be omitted, and is tried first.
        let has_end = !cfg!(windows) || command.to_ascii_lowercase().ends_with(".exe");
        let exe = if has_end { None } else { found(PathBuf::from(format!("{command}.exe"))) };
        return exe.unwrap_or(command);
    }
    let name = if cfg!(windows) && !command.contains('.') { format!("{command}.exe") } else { command.clone() };
    let split = |path: String| std::env::split_paths(&path).collect::<Vec<_>>();
    let mut folders = path.map(split).unwrap_or_default();
    if cfg!(windows) {
        folders.extend(std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned)));
        let windows = std::env::var_os("SystemRoot").map(PathBuf::from);
        folders.extend(windows.iter().flat_map(|windows| [windows.join("System32"), windows.clone()]));
    }
    if cfg!(windows) || folders.is_empty() {
        folders.extend(std::env::var("PATH").ok().map(split).unwrap_or_default());
    }
    folders
        .into_iter()
        .filter(|folder| folder.is_absolute())
        .find_map(|folder| found(folder.join(&name)))
        .unwrap_or(command)
}

pub(super) fn runs(file: &Path) -> bool {
    #[cfg(unix)]
    let may = |meta: std::fs::Metadata| std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may = |_| true;
    file.is_file() && std::fs::metadata(file).is_ok_and(may)
}

/// The proxy for this server: the kubeconfig's own, or the environment's `HTTPS_PROXY` if `NO_PROXY` does not exempt
/// the server.
fn proxy(server: &Uri, own: Option<&str>) -> Result<Option<Uri>> {
    let environment = |name: &str| std::env::var(name).or_else(|_| std::env::var(name.to_lowercase())).ok();
    let chosen = match own.filter(|url| !url.is_empty()) {
        Some(own) => Some(own.to_owned()),
        None => proxy_from(server, environment("HTTPS_PROXY"), environment("NO_PROXY")),
    };
    let Some(chosen) = chosen else { return Ok(None) };
    let full = if chosen.contains("://") { chosen } else { format!("http://{chosen}") };
    // The URL may contain a password, so it is not shown.
    let url: Uri = full.parse().map_err(|_| broken("the URL of the proxy is not valid".into()))?;
    let scheme = url.scheme_str().unwrap_or_default();
    if !["http", "https"].contains(&scheme) {
        let what = format!("a {scheme} proxy is not supported: the API server can be reached by an http proxy");
        return Err(broken(what).into());
    }
    Ok(Some(url))
}

/// kube compares `NO_PROXY` with the proxy's own name, so it is not used. Local servers never use a proxy, as in
/// kubectl.
fn proxy_from(server: &Uri, proxy: Option<String>, no_proxy: Option<String>) -> Option<String> {
    if is_this_machine(server.host().unwrap_or_default()) {
        return None;
    }
    let proxy = proxy.filter(|url| !url.is_empty())?;
    let rules = Matcher::builder().https(proxy.clone()).no(no_proxy.unwrap_or_default()).build();
    rules.intercept(server).map(|_| proxy)
}

fn no_such_context(origin: &str, wanted: &str, contexts: &[&str]) -> Fault {
    let what = match wanted {
        "" => format!("{origin} has no current-context"),
        name => format!("{origin} has no context `{name}`"),
    };
    let hint = match contexts {
        [] => "it has no contexts: check that it is the right file".to_owned(),
        all => format!("choose one with --context: {}", all.join(", ")),
    };
    Fault::new(Exit::ClusterAccessDenied, "ContextNotFound", what).hint(hint)
}

fn broken(what: String) -> Fault {
    Fault::new(Exit::ClusterAccessDenied, "KubeconfigInvalid", what)
        .hint("compare it with `kubectl config view`, or get a new kubeconfig of the cluster")
}

fn invalid(origin: &str, error: &KubeconfigError) -> Error {
    anyhow!("{}", without_values(&error.to_string())).context(broken(format!("{origin} is not usable")))
}

/// Why a login without a plugin failed, without kube's texts, which may quote values.
pub(super) fn why_no_login(error: &AuthError) -> String {
    match error {
        AuthError::InvalidBearerToken(_) => "its token has characters that are not allowed in an HTTP header".into(),
        AuthError::ReadTokenFile(cause, file) => format!("cannot read {}: {cause}", file.display()),
        AuthError::MissingCommand => "the user's exec section names no command".into(),
        AuthError::AuthExec(text) => without_values(text),
        _ => "the login in the kubeconfig is not usable".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_used_unless_no_proxy_exempts_the_server() {
        let through = |server: &str, no_proxy: &str| {
            let proxy = Some("http://me:secret@proxy.corp:3128".to_owned());
            proxy_from(&server.parse().unwrap(), proxy, Some(no_proxy.to_owned())).is_some()
        };
        for (server, no_proxy) in [
            ("https://api.test:6443", ""),
            ("https://api.test", "other.test,,10.0.0.0/8"),
            ("https://11.0.0.1:6443", "10.0.0.0/8"),
        ] {
            assert!(through(server, no_proxy), "{server} {no_proxy}");
        }
        for (server, no_proxy) in [
            ("https://api.test:6443", ".test"),
            ("https://api.test:6443", "api.test"),
            ("https://10.1.2.3:6443", "localhost, 10.0.0.0/8"),
            ("https://127.0.0.1:6443", ""),
            ("https://localhost:6443", ""),
        ] {
            assert!(!through(server, no_proxy), "{server} {no_proxy}");
        }
        assert_eq!(proxy_from(&"https://api.test".parse().unwrap(), None, None), None);
    }

    /// A kubeconfig of this server and user, in JSON.
    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{{cluster}}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        )
    }

    fn refused(cluster: &str, user: &str) -> String {
        let error = choose("admin.conf", &kubeconfig(cluster, user), Path::new(""), None, false).err().unwrap();
        assert_eq!(Fault::id_of(&error), "KubeconfigInvalid", "{error:?}");
        let said = format!("{error:?}");
        assert!(!said.contains("sesame"), "{said}");
        format!("{error:#}")
    }

    const SERVER: &str = "server: 'https://127.0.0.1:1'";

    #[test]
    fn a_token_is_trimmed_and_refused_if_no_header_can_have_it() {
        let access =
            choose("admin.conf", &kubeconfig(SERVER, r#"token: "sesame\n""#), Path::new(""), None, false).unwrap();
        assert_eq!(access.config.auth_info.token.unwrap().expose_secret(), "sesame");
        for (user, field) in [
            (r#"token: "open\nsesame""#, "token"),
            ("token: 'open sesame'", "token"),
            (r#"auth-provider: {name: oidc, config: {id-token: "open\nsesame"}}"#, "id-token"),
        ] {
            assert!(refused(SERVER, user).starts_with(&format!("the user's {field} in admin.conf has a line break")));
        }
    }

    #[test]
    fn no_password_in_a_url_is_shown() {
        assert_eq!(
            refused("server: 'https://me:sesame@api.test:6443'", ""),
            "the URL of the server in admin.conf has a user name or password, which is not supported"
        );
        let proxied = format!("{SERVER}, proxy-url: 'socks5://me:sesame@proxy.corp:1080'");
        assert!(refused(&proxied, "").starts_with("a socks5 proxy is not supported"));
    }

    #[cfg(unix)]
    #[test]
    fn a_token_file_that_is_a_pipe_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("token");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = refused(SERVER, &format!("tokenFile: '{}'", pipe.display()));
        assert!(said.ends_with("the kubeconfig's tokenFile: it is not a file"), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn a_plugin_that_hangs_is_named_by_its_path_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limit = Duration::from_millis(100);
        for (mode, asks) in [("Never", true), ("IfAvailable", false), ("IfAvailable", true), ("Always", true)] {
            let user = format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sleep, args: ['5'], \
                 env: [{{name: TOKEN, value: sesame}}], interactiveMode: {mode}}}"
            );
            let access = choose("the kubeconfig", &kubeconfig(SERVER, &user), Path::new(""), None, asks).unwrap();
            let limits = Limits::within(Duration::from_secs(30));
            let refused = access.session_within(limit, None, limits, runtime.handle()).err().unwrap();
            let said = &refused.downcast_ref::<Fault>().unwrap().what;
            let (path, rest) = said.strip_prefix("the kubeconfig's exec plugin `").unwrap().split_once('`').unwrap();
            assert!(path.ends_with("sleep"), "{said}");
            assert_eq!(rest, " returned no credentials within 0.1 s");
            assert!(!format!("{refused:?}").contains("sesame"), "{refused:?}");
        }
    }

    /// The API server was not asked.
    #[cfg(unix)]
    #[test]
    fn a_plugin_that_hangs_when_its_token_expires_is_named_and_not_the_server() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ran = dir.path().join("ran").display().to_string();
        let once = format!("test -e {ran} && exec sleep 600; : > {ran}; echo '{{\"status\":{{\"token\":\"open\"}}}}'");
        let args = serde_json::to_string(&["-c", &once]).unwrap();
        let user = format!("exec: {{apiVersion: v1, command: /bin/sh, args: {args}, interactiveMode: Never}}");
        let access = choose("the kubeconfig", &kubeconfig(SERVER, &user), Path::new(""), None, false).unwrap();
        let limits = Limits::within(Duration::from_secs(30));
        let session = access.session_within(Duration::from_secs(3), None, limits, runtime.handle()).unwrap();
        session.expire();
        let no = runtime.block_on(session.client()).err().unwrap();
        assert_eq!(no.what, "the kubeconfig's exec plugin `/bin/sh` returned no credentials within 3 s");
        assert_eq!(no.fault().id, "ClusterLogin");
    }

    /// With `--no-input`, and without a terminal.
    #[test]
    fn a_plugin_asks_only_if_the_user_may_be_asked() {
        let mode = |mode: &str, asks| {
            let user = format!("exec: {{apiVersion: v1, command: there-is-none, interactiveMode: {mode}}}");
            let access = choose("admin.conf", &kubeconfig(SERVER, &user), Path::new(""), None, asks)?;
            anyhow::Ok(access.config.auth_info.exec.unwrap().interactive_mode)
        };
        assert_eq!(mode("IfAvailable", true).unwrap(), Some(ExecInteractiveMode::IfAvailable));
        assert_eq!(mode("IfAvailable", false).unwrap(), Some(ExecInteractiveMode::Never));
        let always = mode("Always", false).unwrap_err().to_string();
        assert!(always.ends_with("has interactiveMode: Always, and nobody can be asked"), "{always}");
    }

    #[test]
    fn the_kubeconfigs_own_proxy_comes_first_and_may_lack_a_scheme() {
        let server = "https://127.0.0.1:6443".parse().unwrap();
        assert_eq!(proxy(&server, Some("proxy.corp:3128")).unwrap().unwrap(), "http://proxy.corp:3128/");
        let error = proxy(&server, Some("http://me:secret@proxy corp")).unwrap_err();
        assert!(!format!("{error:?}").contains("secret"));
    }
}
