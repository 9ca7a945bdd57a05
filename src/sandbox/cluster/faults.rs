//! Faults on demand: an API that is down, slow, overloaded, wrong or interrupted, so that users can try, and tests can
//! check, what happens then.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail, ensure};

use crate::calico::networks;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::faults::Which;
use crate::node::sandbox::model::Name;

/// One fault, as `METHOD /path/glob*[#N]=ACTION`, `unreachable at VNI N[#N+]` or one word for the whole server.
///
/// `METHOD` may be `*`. A `*` in the path matches anything, including slashes; a glob with a `?` is matched against
/// path and query. `#N` means only the N-th matching request of this process; `#N+` that one and all after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiFault {
    Request {
        method: String,
        path: String,
        which: Which,
        action: Action,
    },
    /// While the node's network `Calico` has this VSID, its requests close the connection: the change costs the node its
    /// way to the API server.
    Unreachable {
        vni: u32,
        which: Which,
    },
    Server(ServerFault),
}

/// What happens to a matching request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Unauthorized,
    Forbidden,
    /// A `Status` that says that the object does not exist.
    NotFound,
    /// `404 page not found`: as if that group were not served.
    NotFoundText,
    /// Another client changed the object at the same time.
    Conflict,
    /// The version that a list continues from is too old.
    Expired,
    /// The body's media type is not accepted.
    UnsupportedMediaType,
    /// A rule is violated, with its cause.
    Invalid,
    /// Overload, in plain text with `Retry-After`; not a disruption budget.
    TooManyRequests,
    InternalError,
    /// 500 with a `Status` that has no reason, as some parts of the API server write it.
    InternalErrorBare,
    /// A proxy's login page.
    Html,
    /// The first half of the response, as if it were complete.
    Truncated,
    /// Protobuf, which was not requested.
    Protobuf,
    /// A redirect to another server.
    Redirect,
    Unavailable,
    GatewayTimeout,
    /// The connection closes before the response.
    Reset,
    /// The connection closes in the middle of the response's body.
    Cut,
    /// The API server restarts: this connection closes, and until it has read its roles, which here takes the next
    /// [`ROLES_UNREAD`] requests, it allows only `system:masters`.
    Restart,
    /// The response takes 60 seconds.
    Slow,
    /// The response takes 20 milliseconds, as from another region.
    Far,
    /// Token secrets of this collection are never filled.
    Unfilled,
    /// The process ends, before the request is processed.
    ExitBefore,
    /// The process ends, after the request was processed and before its response.
    ExitAfter,
    /// No effect, except a line in `calls` next to the state.
    Noted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// The CA and the server's certificate expired yesterday.
    ExpiredCa,
    /// The server's certificate expired yesterday; the CA is valid.
    ExpiredCertificate,
    /// The server's certificate is for another name.
    OtherName,
    /// The server's certificate is self-signed.
    SelfSigned,
    /// The port answers plain HTTP.
    PlainHttp,
    /// The server supports no TLS newer than 1.1.
    OldTls,
    /// Nothing listens.
    Down,
    /// The controller manager does not run: nothing is filled, tainted or counted.
    NoControllers,
    /// No kubelet ends the pods that are being deleted.
    NoKubelet,
}

/// How many requests a restarted API server refuses until it has read its roles.
pub const ROLES_UNREAD: usize = 4;

const ACTIONS: [(&str, Action); 26] = [
    ("401", Action::Unauthorized),
    ("403", Action::Forbidden),
    ("404", Action::NotFound),
    ("404-text", Action::NotFoundText),
    ("409", Action::Conflict),
    ("410", Action::Expired),
    ("415", Action::UnsupportedMediaType),
    ("422", Action::Invalid),
    ("429", Action::TooManyRequests),
    ("500", Action::InternalError),
    ("500-bare", Action::InternalErrorBare),
    ("html", Action::Html),
    ("truncated", Action::Truncated),
    ("protobuf", Action::Protobuf),
    ("redirect", Action::Redirect),
    ("503", Action::Unavailable),
    ("504", Action::GatewayTimeout),
    ("reset", Action::Reset),
    ("cut", Action::Cut),
    ("restart", Action::Restart),
    ("slow", Action::Slow),
    ("far", Action::Far),
    ("unfilled", Action::Unfilled),
    ("exit-before", Action::ExitBefore),
    ("exit-after", Action::ExitAfter),
    ("noted", Action::Noted),
];

const SERVER: [(&str, ServerFault); 9] = [
    ("expired-ca", ServerFault::ExpiredCa),
    ("expired-certificate", ServerFault::ExpiredCertificate),
    ("other-name", ServerFault::OtherName),
    ("self-signed", ServerFault::SelfSigned),
    ("plain-http", ServerFault::PlainHttp),
    ("old-tls", ServerFault::OldTls),
    ("down", ServerFault::Down),
    ("no-controllers", ServerFault::NoControllers),
    ("no-kubelet", ServerFault::NoKubelet),
];

impl FromStr for ApiFault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some((_, fault)) = SERVER.iter().find(|(word, _)| *word == text) {
            return Ok(Self::Server(*fault));
        }
        if text == "unfilled" {
            return "* /api/v1/namespaces/*/secrets=unfilled".parse();
        }
        if let Some(at) = text.strip_prefix("unreachable at VNI ") {
            let (vni, which) = at.split_once('#').map_or((at, Some(Which::Every)), |(vni, n)| (vni, Which::parse(n)));
            let (Ok(vni), Some(which)) = (vni.parse(), which) else {
                bail!("read API fault '{text}': expected unreachable at VNI NUMBER[#N[+]]");
            };
            return Ok(Self::Unreachable { vni, which });
        }
        let (request, action) = text.rsplit_once('=').with_context(|| {
            let words: Vec<&str> = SERVER.iter().map(|(word, _)| *word).chain(["unfilled"]).collect();
            format!("read API fault '{text}': expected METHOD /path[#N]=ACTION or one of {}", words.join(", "))
        })?;
        let Some((_, action)) = ACTIONS.iter().find(|(word, _)| *word == action) else {
            let words: Vec<&str> = ACTIONS.iter().map(|(word, _)| *word).collect();
            bail!("read API fault '{text}': unknown action '{action}', expected one of {}", words.join(", "));
        };
        let (method, path) =
            request.split_once(' ').with_context(|| format!("read API fault '{text}': expected METHOD /path"))?;
        let (path, which) = match path.rsplit_once('#') {
            Some((path, n)) => {
                let which = Which::parse(n);
                (path, which.with_context(|| format!("read API fault '{text}': `#{n}` is not a number from 1 up"))?)
            }
            None => (path, Which::Every),
        };
        ensure!(path.starts_with(['/', '*']), "read API fault '{text}': the path starts with /");
        Ok(Self::Request { method: method.to_uppercase(), path: path.into(), which, action: *action })
    }
}

impl fmt::Display for ApiFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(fault) => {
                let word = SERVER.iter().find(|(_, s)| s == fault).map_or("", |(word, _)| word);
                f.write_str(word)
            }
            Self::Unreachable { vni, which } => write!(f, "unreachable at VNI {vni}{which}"),
            Self::Request { method, path, which, action } => {
                let word = ACTIONS.iter().find(|(_, a)| a == action).map_or("", |(word, _)| word);
                write!(f, "{method} {path}{which}={word}")
            }
        }
    }
}

/// The faults of a running server, each with its number of matches.
#[derive(Debug, Default)]
pub struct Faults {
    all: Vec<(ApiFault, AtomicUsize)>,
    /// The folder of the node whose requests it answers.
    node: PathBuf,
    /// How many requests will still find the roles unread.
    unread: AtomicUsize,
}

impl Faults {
    /// `node`: the folder of the node whose requests it answers.
    pub fn new(faults: &[ApiFault], node: PathBuf) -> Self {
        let all = faults.iter().map(|f| (f.clone(), AtomicUsize::new(0))).collect();
        Self { all, node, unread: AtomicUsize::new(0) }
    }

    /// The fault for this request; every fault that matches counts it. The process ends only at `own` requests.
    pub fn meet(&self, method: &str, path: &str, query: &str, own: bool) -> Option<Action> {
        let mut met = None;
        for (fault, count) in &self.all {
            let (wanted, glob, which, action) = match fault {
                ApiFault::Request { method, path, which, action } => (method.as_str(), path.as_str(), which, action),
                ApiFault::Unreachable { vni, which } if self.vni() == Some(*vni) => ("*", "*", which, &Action::Reset),
                _ => continue,
            };
            let whole = if glob.contains('?') { format!("{path}?{query}") } else { path.to_owned() };
            let ends = matches!(action, Action::ExitBefore | Action::ExitAfter);
            if *action == Action::Unfilled
                || ends && !own
                || !(wanted == "*" || wanted == method)
                || !glob_matches(glob, &whole)
            {
                continue;
            }
            let matched = count.fetch_add(1, Ordering::Relaxed) + 1;
            if which.is(matched) && met.is_none() {
                met = Some(*action);
            }
        }
        met
    }

    /// The VSID of the network `Calico` now.
    fn vni(&self) -> Option<u32> {
        let model = SandboxNode::open(&self.node).and_then(|node| node.model()).ok()?;
        model.networks.get(&Name::new(networks::PODS))?.vsid
    }

    /// Whether token secrets of this collection stay empty.
    pub fn unfilled(&self, collection: &str) -> bool {
        self.all.iter().any(|(fault, _)| {
            matches!(fault, ApiFault::Request { path, action: Action::Unfilled, .. } if glob_matches(path, collection))
        })
    }

    pub fn server(&self, wanted: ServerFault) -> bool {
        self.all.iter().any(|(fault, _)| *fault == ApiFault::Server(wanted))
    }

    /// Restarts the API server.
    pub fn restart(&self) {
        self.unread.store(ROLES_UNREAD, Ordering::Relaxed);
    }

    /// Whether the roles are still unread, for one more request.
    pub fn roles_unread(&self) -> bool {
        self.unread.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    pub fn no_controllers(&self) -> bool {
        self.server(ServerFault::NoControllers)
    }

    pub fn no_kubelet(&self) -> bool {
        self.server(ServerFault::NoKubelet)
    }
}

fn glob_matches(glob: &str, text: &str) -> bool {
    let Some((head, tail)) = glob.split_once('*') else { return glob == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|i| rest.is_char_boundary(*i)).any(|i| glob_matches(tail, &rest[i..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> ApiFault {
        text.parse().expect("it is a fault")
    }

    #[test]
    fn faults_read_back_as_they_were_written() {
        for text in [
            "GET /api/v1/nodes/*=503",
            "* /apis/*#2=reset",
            "* /*#3+=503",
            "unreachable at VNI 5000#3+",
            "POST /api/v1/namespaces/*/secrets=unfilled",
            "down",
        ] {
            assert_eq!(fault(text).to_string(), text);
        }
        insta::assert_snapshot!("GET /x=418".parse::<ApiFault>().unwrap_err(), @"read API fault 'GET /x=418': unknown action '418', expected one of 401, 403, 404, 404-text, 409, 410, 415, 422, 429, 500, 500-bare, html, truncated, protobuf, redirect, 503, 504, reset, cut, restart, slow, far, unfilled, exit-before, exit-after, noted");
    }

    #[test]
    fn only_the_nth_matching_request_meets_a_numbered_fault() {
        let faults = Faults::new(&[fault("GET /api/v1/nodes/*#2=500"), fault("PATCH *=403")], PathBuf::new());
        let get = |path| faults.meet("GET", path, "", true);
        assert_eq!(get("/api/v1/nodes/a"), None);
        assert_eq!(get("/api/v1/pods"), None);
        assert_eq!(get("/api/v1/nodes/b"), Some(Action::InternalError));
        assert_eq!(get("/api/v1/nodes/b"), None);
        assert_eq!(faults.meet("PATCH", "/anything", "", true), Some(Action::Forbidden));
        let later = Faults::new(&[fault("* /*#2+=503")], PathBuf::new());
        let met = [(); 4].map(|()| later.meet("GET", "/version", "", true).is_some());
        assert_eq!(met, [false, true, true, true]);
    }
}
