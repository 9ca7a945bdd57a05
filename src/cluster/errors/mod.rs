//! Failures of requests to the API server, and the fault of each.

mod status;
mod transport;

use std::time::Duration;

use anyhow::{Error, anyhow};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause};
use regex::Regex;

pub(super) use self::transport::check_ca;

use self::transport::{Proxy, Transport};
use super::api::{self, Answer, Call};
use super::plugin::NoLogin;
use super::rights_cache::Access;
use crate::facts::LEFT_OUT;
use crate::fault::{Exit, Fault};
use crate::settings::Limits;

const SLOW_HINT: &str = "a firewall, proxy or VPN may be in the way, or the server is overloaded; \
                         --set transport.timeout=2m allows more time";

/// How an API server is reached.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub url: String,
    /// Host and port of the proxy, without its login.
    pub proxy: Option<String>,
}

/// Why one attempt failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A response, but an error.
    Answer(Answer),
    /// No complete response.
    Transport(kube::Error),
    /// No response in this time.
    Slow(Duration),
    /// No request: the login could not be renewed.
    Login(NoLogin),
}

/// A request that failed finally.
#[derive(Debug)]
pub(super) struct Failure {
    /// HTTP status; none if there was no response.
    pub status: Option<u16>,
    /// The `reason` of the server's Status object, for example `AlreadyExists`; empty without one.
    pub reason: String,
    pub fault: Fault,
    /// What RBAC refused.
    pub refused: Option<Box<Access>>,
    /// How many seconds to wait before the next request, if the server says so: a minute at most.
    pub retry_after: Option<u8>,
    absent: bool,
    cause: Option<Error>,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure.cause {
            Some(cause) => cause.context(failure.fault),
            None => failure.fault.into(),
        }
    }
}

/// Whether a failed request may succeed in a minute without any change: the cluster is down, overloaded, or starting.
pub fn may_pass(error: &Error) -> bool {
    const PASSING: [&str; 12] = [
        "ClusterRefused",
        "ClusterProxy",
        "ClusterNameUnresolved",
        "ClusterTimeout",
        "ClusterConnectionLost",
        "ClusterUnreachable",
        "ClusterUnavailable",
        "ClusterFailed",
        "ClusterGatewayTimeout",
        "ClusterOverloaded",
        "ClusterConflict",
        "AggregatedApiDown",
    ];
    PASSING.contains(&Fault::id_of(error))
}

impl Trouble {
    /// Whether the error may be temporary, and a retry is safe.
    pub fn passes(&self, repeatable: bool) -> bool {
        match self {
            // A refused eviction is not an overload, though both are 429: the cause distinguishes them.
            Self::Answer(answer) if answer.status == 429 => budget_of(status_of(answer).as_ref()).is_none(),
            Self::Answer(answer) => repeatable && matches!(answer.status, 500 | 502 | 503 | 504),
            Self::Transport(error) => match transport::classify(error) {
                Transport::Refused | Transport::Proxy(Proxy::Refused) => true,
                Transport::Lost => repeatable,
                _ => false,
            },
            Self::Slow(_) | Self::Login(_) => false,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answer(answer) => answer.retry_after(),
            _ => None,
        }
    }

    /// In a few words, for the log.
    pub fn brief(&self) -> String {
        match self {
            Self::Answer(answer) => format!("HTTP {}", answer.status),
            Self::Transport(error) => transport::innermost(error),
            Self::Slow(limit) => format!("no answer within {}", seconds(*limit)),
            Self::Login(no) => no.what.clone(),
        }
    }
}

impl Failure {
    /// The object itself is absent: the server looked for it.
    pub fn is_absent(&self) -> bool {
        self.absent
    }

    /// The server has no such group, version or resource.
    pub fn is_not_served(&self) -> bool {
        self.status == Some(404) && !self.absent
    }

    /// Whether it may be about this request alone: an error response, or none in time, of a server that answers others.
    pub fn is_of_one_question(&self) -> bool {
        const IDS: [&str; 4] = ["ClusterTimeout", "ClusterConnectionLost", "ClusterAnswer", "ClusterNotAsked"];
        match self.status {
            Some(status) => status != 401 && status != 404,
            None => IDS.contains(&self.fault.id),
        }
    }

    /// A request that was not made.
    pub fn not_asked() -> Self {
        Self::unanswered(unreachable("ClusterNotAsked", LEFT_OUT), None)
    }

    /// A successful response that cannot be parsed, or a request that cannot be serialized.
    pub fn unreadable(call: &Call, cause: serde_json::Error) -> Self {
        let what = format!("the response to {} is not that of a Kubernetes API server", call.name());
        let fault = unreachable("ClusterAnswer", what)
            .hint("check that this is the address of a Kubernetes API server, and that no proxy changes its responses");
        Self::unanswered(fault, Some(anyhow!(without_values(&cause.to_string()))))
    }

    /// A successful response that is not the expected JSON: says what it is instead.
    pub fn not_the_api(call: &Call, answer: &Answer, cause: serde_json::Error) -> Self {
        let name = call.name();
        let media = answer.media_type();
        let fault = if media == "text/html" {
            unreachable("ClusterAnswer", format!("{name} was answered with a web page"))
                .hint("a proxy or a login portal answers instead of the API server: set spec.transport.noProxy or use another network")
        } else if !media.is_empty() && !answer.is_json() {
            unreachable("ClusterAnswer", format!("{name} was answered with {media} instead of JSON"))
                .hint("a proxy may change requests or responses, or the server is not an API server")
        } else if cause.is_eof() {
            unreachable("ClusterAnswer", format!("the response to {name} is truncated"))
                .hint("a proxy or load balancer may truncate long responses: connect to the API server directly")
        } else {
            return Self::unreadable(call, cause);
        };
        Self::unanswered(fault, Some(anyhow!(without_values(&cause.to_string()))))
    }

    /// A list whose last page never comes.
    pub fn endless(call: &Call) -> Self {
        let fault = unreachable("ClusterAnswer", format!("the list of {} does not end", call.name())).hint(
            "the server is not an API server, or a proxy changes its responses: connect to the API server directly",
        );
        Self::unanswered(fault, None)
    }

    pub fn of(server: &Server, call: &Call, trouble: Trouble, limits: Limits) -> Self {
        match trouble {
            Trouble::Answer(answer) => Self::answered(&server.url, call, &answer),
            Trouble::Transport(error) => {
                let why = transport::classify(&error);
                let fault = transport::fault(server, call, &why, limits);
                // For an expired certificate there is nothing to add; TLS's own text counts seconds.
                let cause = (!why.is_about_time()).then(|| anyhow!(transport::innermost(&error)));
                Self::unanswered(fault, cause)
            }
            Trouble::Slow(limit) => {
                let what = format!(
                    "the API server at {} did not answer {} within {}",
                    server.url,
                    call.name(),
                    seconds(limit)
                );
                let fault = unreachable("ClusterTimeout", what).hint(SLOW_HINT);
                Self::unanswered(fault, None)
            }
            Trouble::Login(no) => Self::unanswered(no.fault(), no.why.map(Error::msg)),
        }
    }

    fn unanswered(fault: Fault, cause: Option<Error>) -> Self {
        Self { status: None, reason: String::new(), fault, refused: None, retry_after: None, absent: false, cause }
    }

    fn answered(server: &str, call: &Call, answer: &Answer) -> Self {
        let status = status_of(answer);
        let said = match status.as_ref().and_then(|s| s.message.clone()) {
            Some(message) => message,
            None => String::from_utf8_lossy(&answer.body).trim().chars().take(200).collect(),
        };
        let reason = status.as_ref().and_then(|s| s.reason.clone()).unwrap_or_default();
        let absent = answer.status == 404 && names_object(call, status.as_ref());
        let fault = status::fault(server, call, answer, status.as_ref(), absent);
        let refused = (answer.status == 403 && status::is_denied(status.as_ref())).then(|| Box::new(Access::of(call)));
        let mut cause = match said.is_empty() {
            true => anyhow!("HTTP {}", answer.status),
            false => anyhow!("HTTP {}: {said}", answer.status),
        };
        if let Some(budget) = budget_of(status.as_ref()) {
            cause = anyhow!("{}", budget.message.clone().unwrap_or_default()).context(format!("{cause}"));
        }
        let retry_after = answer.retry_after().and_then(|time| u8::try_from(time.as_secs()).ok());
        Self { status: Some(answer.status), reason, fault, refused, retry_after, absent, cause: Some(cause) }
    }
}

fn unreachable(id: &'static str, what: impl Into<String>) -> Fault {
    Fault::new(Exit::ClusterUnreachable, id, what)
}

/// An error that persists until somebody changes the kubeconfig, a right or a certificate.
fn denied(id: &'static str, what: impl Into<String>) -> Fault {
    Fault::new(Exit::ClusterAccessDenied, id, what)
}

fn status_of(answer: &Answer) -> Option<Status> {
    answer.is_json().then(|| serde_json::from_slice(&answer.body).ok()).flatten()
}

/// Why a disruption budget refused an eviction, if that is what happened.
fn budget_of(status: Option<&Status>) -> Option<&StatusCause> {
    let causes = status?.details.as_ref()?.causes.as_ref()?;
    causes.iter().find(|cause| cause.reason.as_deref() == Some("DisruptionBudget"))
}

/// Whether a 404 is about the requested object. The server of an unserved group, or of another kind, also answers 404,
/// in text or without the name.
fn names_object(call: &Call, status: Option<&Status>) -> bool {
    let named = status.and_then(|s| s.details.as_ref()).and_then(|d| d.name.as_deref());
    let asked = Resource::of(&call.path);
    named.zip(asked.name).is_some_and(|(named, asked)| api::path([named]).trim_start_matches('/') == asked)
}

/// The parts of an API path.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Resource {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub plural: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Resource {
    pub fn of(path: &str) -> Self {
        let bare = path.split('?').next().unwrap_or_default();
        let mut parts = bare.split('/').filter(|p| !p.is_empty()).map(str::to_owned);
        let group = match parts.next().as_deref() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => String::new(),
        };
        let version = parts.next().unwrap_or_default();
        let mut rest: Vec<String> = parts.collect();
        let namespace = (rest.len() > 2 && rest[0] == "namespaces").then(|| rest.drain(..2).nth(1)).flatten();
        let mut rest = rest.into_iter();
        let plural = rest.next().unwrap_or_default();
        Self { group, version, namespace, plural, name: rest.next(), subresource: rest.next() }
    }
}

/// Errors of parsers may quote the text of a token: long quotes, and the source lines that they show, are left out.
pub(super) fn without_values(message: &str) -> String {
    let first_line = message.lines().next().unwrap_or_default();
    let quoted = Regex::new("[\"'`][^\"'`]{24,}[\"'`]").expect("the pattern is valid");
    quoted.replace_all(first_line, "`…`").into_owned()
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
