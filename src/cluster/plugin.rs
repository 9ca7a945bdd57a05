//! The plugin that logs a kubeconfig's user in, as client-go runs it: once, with a limit. The Kubernetes client would
//! run it three times for each client, could not end it, and panics over a token that no header can have.

use std::io::{self, Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, AuthProviderConfig, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kubeconfig::{header_token, runs};
use crate::fault::{Exit, Fault};
use crate::yaml;

/// How long a plugin may take to return credentials: some call a cloud first.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// The verb of this program that runs a plugin and ends it at the limit, with its children. Its words: the limit in
/// seconds, the program, its arguments.
pub const EXEC_PLUGIN: &str = "exec-plugin";

/// Its exit codes if the plugin has none: those of timeout(1).
pub const PLUGIN_TIMED_OUT: i32 = 124;
pub const PLUGIN_CANNOT_START: i32 = 126;

/// How much longer than that the verb may take.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// How often it is checked whether the plugin has ended.
const LOOK: Duration = Duration::from_millis(10);

/// How much of a plugin's stderr is shown.
const MOST_STDERR: usize = 8192;

/// Why there are no credentials.
#[derive(Debug, Clone)]
pub(super) struct NoLogin {
    pub what: String,
    pub why: Option<String>,
}

impl NoLogin {
    pub fn fault(&self) -> Fault {
        login_fault(self.what.clone())
    }
}

impl From<NoLogin> for Error {
    fn from(no: NoLogin) -> Self {
        let fault = no.fault();
        match no.why {
            Some(why) => anyhow!(why).context(fault),
            None => fault.into(),
        }
    }
}

pub(super) fn login_fault(what: String) -> Fault {
    Fault::new(Exit::ClusterUnreachable, "ClusterLogin", what)
        .hint("try `kubectl --kubeconfig FILE version` with the same file on this machine")
}

/// What a plugin returned: the user with a token or a client certificate, and when they expire.
pub(super) struct Granted {
    pub user: AuthInfo,
    pub expires: Option<Timestamp>,
}

/// What a plugin prints.
#[derive(Clone)]
enum Output {
    ExecCredential,
    /// Of an `auth-provider`: any JSON, with the paths of the token and its expiry in it; without paths, the token.
    Json {
        token: Option<String>,
        expiry: Option<String>,
    },
}

#[derive(Clone)]
pub(super) struct Plugin {
    /// Errors name it alone: arguments, variables and output may have secrets.
    pub program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    without: Vec<String>,
    asks: bool,
    output: Output,
    /// The user without the plugin.
    user: AuthInfo,
    limit: Duration,
}

impl Plugin {
    /// The plugin of a user, if it has one and nothing that comes before it.
    pub fn of(user: &AuthInfo, limit: Duration) -> Option<Self> {
        let without = AuthInfo { exec: None, auth_provider: None, ..user.clone() };
        if let Some(provider) = &user.auth_provider {
            return Self::of_provider(&provider.config.get("cmd-path")?.clone(), provider, without, limit);
        }
        if user.token.is_some() || user.token_file.is_some() || user.username.is_some() && user.password.is_some() {
            return None;
        }
        let exec = user.exec.as_ref()?;
        let program = exec.command.clone()?;
        let mut env: Vec<(String, String)> = exec.env.iter().flatten().filter_map(variable).collect();
        env.push(("KUBERNETES_EXEC_INFO".to_owned(), told(exec)));
        Some(Self {
            program,
            args: exec.args.clone().unwrap_or_default(),
            env,
            without: exec.drop_env.clone().unwrap_or_default(),
            asks: asks(exec),
            output: Output::ExecCredential,
            user: without,
            limit,
        })
    }

    /// Of old clusters on GKE. An `id-token` needs no plugin.
    fn of_provider(program: &str, provider: &AuthProviderConfig, user: AuthInfo, limit: Duration) -> Option<Self> {
        let field = |name: &str| provider.config.get(name).cloned();
        if provider.name != "gcp" || field("id-token").is_some() {
            return None;
        }
        let words = |text: Option<String>| text.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Some(Self {
            program: program.to_owned(),
            args: words(field("cmd-args")),
            env: Vec::new(),
            without: words(field("cmd-drop-env")),
            asks: false,
            output: Output::Json { token: field("token-key"), expiry: field("expiry-key") },
            user,
            limit,
        })
    }

    /// Runs it. A failed one's stderr is shown on the terminal.
    pub fn run(&self) -> Result<Granted, NoLogin> {
        let failed = |why| NoLogin {
            what: format!("the kubeconfig's exec plugin `{}` returned no credentials", self.program),
            why: Some(why),
        };
        let late = || NoLogin {
            what: format!(
                "the kubeconfig's exec plugin `{}` returned no credentials within {} s",
                self.program,
                self.limit.as_secs_f64()
            ),
            why: None,
        };
        let (mut command, wait) = self.command();
        let mut child = command.spawn().map_err(|cause| failed(format!("it cannot be started: {cause}")))?;
        let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
        let begun = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if begun.elapsed() < wait => thread::sleep(LOOK),
                _ => {
                    // An error means that it has ended.
                    child.kill().ok();
                    child.wait().ok();
                    return Err(late());
                }
            }
        };
        // A child of the plugin may still have the streams.
        let rest = wait.saturating_sub(begun.elapsed());
        if !status.success() {
            pass_on(&stderr.recv_timeout(rest).unwrap_or_default());
            let ended = status.code() == Some(PLUGIN_TIMED_OUT) && wait > self.limit;
            return Err(if ended { late() } else { failed(format!("it failed with {status}")) });
        }
        let printed = stdout.recv_timeout(rest).map_err(|_| late())?;
        self.granted(&printed).map_err(failed)
    }

    /// The process, and how long it may take. One that asks nobody is run by this program, which ends it with its
    /// children; one at the terminal must be in this program's own process group.
    fn command(&self) -> (Command, Duration) {
        // Another program contains this module in its tests.
        let own = if cfg!(test) || self.asks { None } else { std::env::current_exe().ok() };
        // The error for one that does not exist is Windows's own.
        let own = own.filter(|_| runs(Path::new(&self.program)));
        let (mut command, wait) = match own {
            Some(own) => {
                let mut command = Command::new(own);
                command.args([EXEC_PLUGIN, &self.limit.as_secs().to_string(), &self.program]);
                (command, self.limit + ENDED_WITHIN)
            }
            None => (Command::new(&self.program), self.limit),
        };
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        for name in &self.without {
            command.env_remove(name);
        }
        command.stdout(Stdio::piped());
        match self.asks {
            true => command.stdin(Stdio::inherit()).stderr(Stdio::inherit()),
            false => command.stdin(Stdio::null()).stderr(Stdio::piped()),
        };
        (command, wait)
    }

    /// What it printed, or why that cannot be used, without quoting it.
    fn granted(&self, printed: &[u8]) -> Result<Granted, String> {
        let text = std::str::from_utf8(printed);
        let (token, expires, pair) = match &self.output {
            Output::ExecCredential => {
                // Some print YAML, which client-go reads too.
                let printed = text.ok().and_then(|text| yaml::read::<ExecCredential>(text).ok());
                let printed = printed.ok_or("it did not print an ExecCredential")?;
                let status = printed.status.ok_or("the ExecCredential that it printed has no status")?;
                let pair = status.client_certificate_data.zip(status.client_key_data);
                (status.token, status.expiration_timestamp, pair)
            }
            Output::Json { token: Some(token), expiry } => {
                let json: Value = serde_json::from_slice(printed).map_err(|_| "it did not print JSON")?;
                let at = |path: &str, field: &str| {
                    text_at(&json, path)
                        .ok_or_else(|| format!("its output has no text at the {field} of the kubeconfig"))
                };
                let expires = expiry.as_ref().map(|path| at(path, "expiry-key")).transpose()?;
                (Some(at(token, "token-key")?), expires, None)
            }
            Output::Json { token: None, .. } => (text.ok().map(str::to_owned), None, None),
        };
        let expires = expires.map(|time| time.parse()).transpose();
        let expires = expires.map_err(|_| "the expiry of its token cannot be parsed")?;
        let mut user = self.user.clone();
        if let Some(token) = token.filter(|token| !token.trim().is_empty()) {
            user.token = Some(header_token(&token).map_err(|what| format!("its token has {what}"))?.into());
        }
        if let Some((certificate, key)) = pair {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
        } else if user.token.is_none() {
            return Err("what it printed has neither a token nor a client certificate with its key".into());
        }
        Ok(Granted { user, expires })
    }
}

/// Whether it may ask the user.
fn asks(exec: &ExecConfig) -> bool {
    exec.interactive_mode != Some(ExecInteractiveMode::Never)
}

/// What a plugin is told.
fn told(exec: &ExecConfig) -> String {
    let mut spec = json!({ "interactive": asks(exec) });
    if let (true, Some(cluster)) = (exec.provide_cluster_info, &exec.cluster) {
        spec["cluster"] = json!(cluster);
    }
    json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec }).to_string()
}

fn variable(entry: &std::collections::HashMap<String, String>) -> Option<(String, String)> {
    Some((entry.get("name")?.clone(), entry.get("value")?.clone()))
}

/// Reads a stream to its end, so that its writer never waits.
fn read(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut stream) = stream {
            // What came before an error is enough.
            stream.read_to_end(&mut all).ok();
        }
        sender.send(all).ok();
    });
    receiver
}

/// Shows a plugin's stderr on the terminal, as kubectl does, and nowhere else: it is in no error, log, file or event.
fn pass_on(stderr: &[u8]) {
    // If the terminal is gone, ignore it.
    io::stderr().write_all(&stderr[..stderr.len().min(MOST_STDERR)]).ok();
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    expiration_timestamp: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The text at a path of kubectl's JSONPath: names, positions, and `..name` for the first one at any depth.
fn text_at(json: &Value, path: &str) -> Option<String> {
    let path = path.trim_matches(['"', '{', '}']);
    let (mut found, mut deep) = (json, false);
    for (place, step) in path.strip_prefix('$').unwrap_or(path).split(['.', '[']).enumerate() {
        let name = step.trim_end_matches(']').trim_matches(['\'', '"']);
        found = match name.parse::<usize>() {
            _ if name.is_empty() => {
                deep = place > 0;
                continue;
            }
            Ok(position) if step.ends_with(']') => found.get(position)?,
            _ if deep => anywhere(found, name)?,
            _ => found.get(name)?,
        };
        deep = false;
    }
    found.as_str().map(str::to_owned)
}

fn anywhere<'a>(json: &'a Value, name: &str) -> Option<&'a Value> {
    json.get(name).or_else(|| match json {
        Value::Array(all) => all.iter().find_map(|one| anywhere(one, name)),
        Value::Object(all) => all.values().find_map(|one| anywhere(one, name)),
        _ => None,
    })
}
