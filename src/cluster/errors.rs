//! What can go wrong between us and the API server, and what each failure is called.
//!
//! Statuses, bodies and content types are those of a real API server
//! (`tests/fixtures/kube-recordings.jsonl`).

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, RootCertStore};

use super::api::{self, Answer, Call};
use super::kubeconfig::certificates;
use crate::fault::{Exit, Fault};

/// Why one try came to nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// An answer, but not a good one.
    Answer(Answer),
    /// No whole answer.
    Transport(kube::Error),
    /// No answer in this time.
    Slow(Duration),
}

/// A question that came to nothing, for good.
#[derive(Debug)]
pub(super) struct Failure {
    /// HTTP status; none when there was no answer.
    pub status: Option<u16>,
    /// The `reason` of the server's Status object, as `AlreadyExists`; empty without one.
    pub reason: String,
    pub fault: Fault,
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

impl Trouble {
    /// Whether it may be gone the next time, and asking again does no harm.
    pub fn passes(&self, repeatable: bool) -> bool {
        match self {
            // A refused eviction is no overload, though both are 429: the cause tells them apart.
            Self::Answer(answer) if answer.status == 429 => !is_budget(&status_of(answer)),
            Self::Answer(answer) => repeatable && matches!(answer.status, 500 | 502 | 503 | 504),
            Self::Transport(error) => match transport(error) {
                Transport::Refused => true,
                Transport::Lost => repeatable,
                _ => false,
            },
            Self::Slow(_) => false,
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
            Self::Transport(error) => innermost(error),
            Self::Slow(limit) => format!("no answer within {}", seconds(*limit)),
        }
    }
}

impl Failure {
    /// The object itself is absent: the server looked where it would be.
    pub fn is_absent(&self) -> bool {
        self.absent
    }

    /// A good answer that we cannot read, or a question that we cannot write.
    pub fn unreadable(call: &Call, cause: serde_json::Error) -> Self {
        let what = format!("the answer to {} is not what the Kubernetes API promises", call.name());
        let fault = unreachable("ClusterAnswer", what)
            .hint("is this the address of a Kubernetes API server, with nothing in between that changes answers?");
        Self { status: None, reason: String::new(), fault, absent: false, cause: Some(cause.into()) }
    }

    pub fn of(server: &str, call: &Call, trouble: Trouble) -> Self {
        match trouble {
            Trouble::Answer(answer) => Self::answered(server, call, &answer),
            Trouble::Transport(error) => {
                let fault = transport_fault(server, call, &transport(&error));
                Self::unanswered(fault, Some(anyhow!(innermost(&error))))
            }
            Trouble::Slow(limit) => {
                let what =
                    format!("the API server at {server} did not answer {} within {}", call.name(), seconds(limit));
                let fault = unreachable("ClusterTimeout", what).hint(SLOW_HINT);
                Self::unanswered(fault, None)
            }
        }
    }

    fn unanswered(fault: Fault, cause: Option<Error>) -> Self {
        Self { status: None, reason: String::new(), fault, absent: false, cause }
    }

    fn answered(server: &str, call: &Call, answer: &Answer) -> Self {
        let status = status_of(answer);
        let said = match status.as_ref().and_then(|s| s.message.clone()) {
            Some(message) => message,
            None => String::from_utf8_lossy(&answer.body).trim().chars().take(200).collect(),
        };
        let reason = status.as_ref().and_then(|s| s.reason.clone()).unwrap_or_default();
        let absent = answer.status == 404 && names_object(call, status.as_ref());
        let fault = answer_fault(server, call, answer, status.as_ref(), absent);
        let cause = anyhow!("HTTP {}: {said}", answer.status);
        Self { status: Some(answer.status), reason, fault, absent, cause: Some(cause) }
    }
}

fn unreachable(id: &'static str, what: impl Into<String>) -> Fault {
    Fault::new(Exit::ClusterUnreachable, id, what)
}

fn status_of(answer: &Answer) -> Option<Status> {
    answer.is_json().then(|| serde_json::from_slice(&answer.body).ok()).flatten()
}

fn is_budget(status: &Option<Status>) -> bool {
    let causes = status.as_ref().and_then(|s| s.details.as_ref()).and_then(|d| d.causes.as_ref());
    causes.is_some_and(|causes| causes.iter().any(|c| c.reason.as_deref() == Some("DisruptionBudget")))
}

/// Whether a 404 is about the object asked for. The server of an unserved group, or of another
/// kind, also says 404, in text or without the name.
fn names_object(call: &Call, status: Option<&Status>) -> bool {
    let named = status.and_then(|s| s.details.as_ref()).and_then(|d| d.name.as_deref());
    let asked = Resource::of(&call.path);
    named.zip(asked.name).is_some_and(|(named, asked)| api::path([named]).trim_start_matches('/') == asked)
}

/// What a path of the API means.
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

const SLOW_HINT: &str = "a firewall, proxy or VPN may be in the way, or the server has too much to do; \
                         --timeout gives it longer";

fn answer_fault(server: &str, call: &Call, answer: &Answer, status: Option<&Status>, absent: bool) -> Fault {
    let name = call.name();
    let resource = Resource::of(&call.path);
    let text = String::from_utf8_lossy(&answer.body);
    match answer.status {
        400 if text.contains("HTTP request to an HTTPS server") => {
            unreachable("ClusterNeedsTls", format!("the API server at {server} speaks TLS only"))
                .hint("write https:// in the server URL of the kubeconfig")
        }
        401 => {
            unreachable("ClusterUnauthorized", format!("the API server at {server} does not accept our credentials"))
                .hint("the token or client certificate has expired, or is of another cluster: fetch a fresh kubeconfig")
        }
        403 => forbidden(server, call, status),
        404 if absent => unreachable("ClusterObjectAbsent", format!("{name}: there is no such object"))
            .hint("it was deleted, or never made; look with kubectl"),
        404 => {
            let served = match resource.group.as_str() {
                "" => format!("does not serve {}", call.path),
                group => format!("does not serve {} of {group}/{}", resource.plural, resource.version),
            };
            unreachable("ApiNotServed", format!("the API server at {server} {served}"))
                .hint("its CustomResourceDefinitions are not installed, or of another version: `kubectl api-resources`")
        }
        409 if status.is_some_and(|s| s.reason.as_deref() == Some("AlreadyExists")) => {
            unreachable("ClusterObjectExists", format!("{name}: the object is there already"))
                .hint("someone made it at the same time; run the command again")
        }
        409 => unreachable("ClusterConflict", format!("{name}: someone else changed the object in between"))
            .hint("run the command again: it starts from what is there now"),
        410 => unreachable("ClusterListExpired", format!("{name}: the list changed faster than it could be read"))
            .hint("run the command again; if it happens each time, the API server is overloaded"),
        415 | 422 | 400 => unreachable("ClusterRejected", format!("the API server refuses {name} as not valid"))
            .hint("the reason names the field; this version of Calico may have other rules for it"),
        429 if is_budget(&status.cloned()) => Fault::new(
            Exit::DrainBlocked,
            "DisruptionBudget",
            format!("{name}: a disruption budget does not allow it now"),
        )
        .hint("wait until more pods of that application run, or ask its owner; `kubectl get pdb -A`"),
        429 => unreachable("ClusterOverloaded", format!("the API server at {server} is overloaded and refused {name}"))
            .hint("try again later; if it stays so, look at the flow control and load of the API server"),
        503 if is_aggregated(&resource) && status.is_none() => {
            let service = format!("{}.{}", resource.version, resource.group);
            let what = format!("the aggregated API {service} is down, so {name} has no answer");
            unreachable("AggregatedApiDown", what)
                .hint(format!("see why: kubectl get apiservice {service} -o yaml; it is served by pods of its own"))
        }
        503 => unreachable("ClusterUnavailable", format!("the API server at {server} is not available for {name}"))
            .hint("it may be starting, or cut off from etcd; look at `kubectl get --raw /readyz?verbose`"),
        504 => unreachable("ClusterGatewayTimeout", format!("the API server at {server} gave up on {name} itself"))
            .hint("etcd or a webhook is slow; look at the API server's log, then try again"),
        500..=599 => unreachable("ClusterFailed", format!("the API server at {server} failed on {name}"))
            .hint("look at the API server's log; a webhook that does not answer is a common cause"),
        other => unreachable("ClusterAnswer", format!("the API server at {server} answered {name} with HTTP {other}"))
            .hint("is this the address of a Kubernetes API server, with nothing in between that changes answers?"),
    }
}

/// Groups with a dot that are not Kubernetes' own may be served by another server behind the API
/// server.
fn is_aggregated(resource: &Resource) -> bool {
    resource.group.contains('.') && !resource.group.ends_with(".k8s.io") && !resource.version.is_empty()
}

fn forbidden(server: &str, call: &Call, status: Option<&Status>) -> Fault {
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or_default();
    let resource = Resource::of(&call.path);
    // `... is forbidden: User "U" cannot V resource "R" in API group "G" in the namespace "N"`.
    let between = |before: &str| message.split_once(before).and_then(|(_, rest)| rest.split_once('"')).map(|(v, _)| v);
    let user = between("User \"");
    let verb = message.split_once(" cannot ").and_then(|(_, rest)| rest.split_once(' ')).map(|(verb, _)| verb);
    let (Some(user), Some(verb)) = (user, verb) else {
        return unreachable("ClusterForbidden", format!("the API server at {server} forbids {}", call.name()))
            .hint("ask a cluster administrator for the right, or give an administrator's kubeconfig");
    };
    let plural = between("resource \"").unwrap_or(&resource.plural);
    let group = between("API group \"").unwrap_or(&resource.group);
    let kind = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let namespace = between("in the namespace \"").or(resource.namespace.as_deref());
    let place = namespace.map_or_else(|| "in the whole cluster".to_owned(), |n| format!("in namespace {n}"));
    let group_said = if group.is_empty() { "the core group" } else { group };
    let what = format!("user {user} may not {verb} {plural} of {group_said} {place}");
    if user == "system:anonymous" {
        return unreachable("ClusterForbidden", format!("{what}: we were taken for nobody"))
            .hint("the kubeconfig's user has no credentials; give the kubeconfig of a cluster administrator");
    }
    let (role, scope) = match namespace {
        Some(namespace) => ("role", format!(" -n {namespace}")),
        None => ("clusterrole", String::new()),
    };
    unreachable("ClusterForbidden", what).hint(format!(
        "let a cluster administrator run: kubectl create {role} calicoctl-win-{verb} --verb={verb} --resource={}{scope} && \
         kubectl create {role}binding calicoctl-win-{verb} --{role}=calicoctl-win-{verb} --user={user}{scope}",
        // kubectl writes the subresource behind the group.
        match plural.split_once('/') {
            Some((plural, sub)) if !group.is_empty() => format!("{plural}.{group}/{sub}"),
            _ => kind,
        }
    ))
}

/// What went wrong below HTTP.
enum Transport {
    Refused,
    Name,
    ConnectSlow,
    Lost,
    Certificate(CertificateError),
    TlsVersion,
    NotTls,
    Tls,
    Login,
    Other,
}

fn transport(error: &kube::Error) -> Transport {
    use std::io::ErrorKind;
    if let kube::Error::Auth(_) = error {
        return Transport::Login;
    }
    let chain = chain(error);
    if let Some(tls) = chain.iter().find_map(|e| e.downcast_ref::<rustls::Error>()) {
        return match tls {
            rustls::Error::InvalidCertificate(why) => Transport::Certificate(why.clone()),
            rustls::Error::InvalidMessage(_) => Transport::NotTls,
            rustls::Error::PeerIncompatible(_)
            | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure) => {
                Transport::TlsVersion
            }
            _ => Transport::Tls,
        };
    }
    if chain.iter().any(|e| e.to_string() == "dns error") {
        return Transport::Name;
    }
    match chain.iter().rev().find_map(|e| e.downcast_ref::<io::Error>()).map(io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => return Transport::Refused,
        Some(ErrorKind::TimedOut) => return Transport::ConnectSlow,
        Some(
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof,
        ) => return Transport::Lost,
        _ => {}
    }
    match chain.iter().find_map(|e| e.downcast_ref::<hyper::Error>()) {
        Some(http) if http.is_incomplete_message() || http.is_closed() || http.is_canceled() => Transport::Lost,
        Some(http) if http.is_body_write_aborted() => Transport::Lost,
        _ => Transport::Other,
    }
}

fn transport_fault(server: &str, call: &Call, why: &Transport) -> Fault {
    let at = format!("the API server at {server}");
    match why {
        Transport::Refused => unreachable("ClusterRefused", format!("{at} refuses the connection")).hint(
            "is kube-apiserver running, and are address and port right? They stand as `server` in the kubeconfig",
        ),
        Transport::Name => unreachable("ClusterNameUnresolved", format!("the name of {at} cannot be resolved"))
            .hint("put right `server` in the kubeconfig, or this machine's DNS servers: `nslookup` tells"),
        Transport::ConnectSlow => {
            unreachable("ClusterTimeout", format!("no connection to {at} came about in time")).hint(SLOW_HINT)
        }
        Transport::Lost => {
            unreachable("ClusterConnectionLost", format!("{at} cut the connection during {}", call.name())).hint(
                "a proxy, firewall or load balancer in between may do that, or the server is restarting: try again",
            )
        }
        Transport::Certificate(why) => certificate_fault(&at, why),
        Transport::TlsVersion => unreachable("ClusterTlsVersion", format!("{at} offers no TLS that we accept")).hint(
            "it must speak TLS 1.2 or 1.3: look at --tls-min-version of kube-apiserver, or at the proxy before it",
        ),
        Transport::NotTls => unreachable("ClusterNotTls", format!("what answers at {server} does not speak TLS"))
            .hint("is the port right? An API server's is mostly 6443 or 443"),
        Transport::Tls => unreachable("ClusterTls", format!("no TLS session with {at} came about"))
            .hint("the reason is TLS's own; a client certificate of another cluster is a common one"),
        Transport::Login => unreachable("ClusterLogin", "the kubeconfig's credentials cannot be used".to_owned())
            .hint("try `kubectl --kubeconfig FILE version` with the same file on this machine"),
        Transport::Other => unreachable("ClusterUnreachable", format!("{at} could not be asked {}", call.name()))
            .hint("try `kubectl --kubeconfig FILE version` with the same file on this machine"),
    }
}

fn certificate_fault(at: &str, why: &CertificateError) -> Fault {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            unreachable("ClusterCertificateExpired", format!("the certificate of {at} has expired"))
                .hint("renew it (kubeadm: `kubeadm certs renew apiserver`), or set this machine's clock right")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            unreachable("ClusterCertificateExpired", format!("the certificate of {at} is not valid yet"))
                .hint("set the clock of this machine right")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            unreachable("ClusterCertificateName", format!("the certificate of {at} is for other names"))
                .hint("write one of its names as `server` in the kubeconfig, or as `tls-server-name`")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            unreachable("ClusterUntrusted", format!("the certificate of {at} is not from the CA that we trust")).hint(
                "the kubeconfig's certificate-authority is of another cluster or was replaced, \
                     or a proxy breaks TLS open: fetch a fresh kubeconfig",
            )
        }
        _ => unreachable("ClusterUntrusted", format!("the certificate of {at} is not acceptable"))
            .hint("the reason names what is wrong with it"),
    }
}

/// An error and all that caused it, also what [`io::Error`] wraps and does not call its source.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut all = vec![error];
    while let Some(&last) = all.last() {
        let wrapped = last.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped.map(|w| w as &(dyn StdError + 'static)).or_else(|| last.source()) {
            Some(next) => all.push(next),
            None => break,
        }
    }
    all
}

fn innermost(error: &kube::Error) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Refuses a CA whose certificates have all expired. rustls does not look at a root's dates, but
/// the components on the node are written in Go, which does.
pub(super) fn check_ca(pem: Option<&str>) -> Result<()> {
    let Some(pem) = pem else { return Ok(()) };
    let mut expired = None;
    for der in certificates(pem)? {
        let ca = CertificateDer::from(der);
        let mut roots = RootCertStore::empty();
        if roots.add(ca.clone()).is_err() {
            continue;
        }
        let Ok(verifier) = WebPkiServerVerifier::builder(Arc::new(roots)).build() else { continue };
        let name = ServerName::try_from("ca").expect("a literal name is right");
        // Verified as if it were a server's certificate: it is not one, but its dates are checked
        // before its purpose.
        match verifier.verify_server_cert(&ca, &[], &name, &[], UnixTime::now()) {
            Err(rustls::Error::InvalidCertificate(
                why @ (CertificateError::Expired | CertificateError::ExpiredContext { .. }),
            )) => expired = Some(why),
            _ => return Ok(()),
        }
    }
    match expired {
        None => Ok(()),
        Some(why) => {
            let fault = unreachable("ClusterCaExpired", "the CA of the cluster in the kubeconfig has expired")
                .hint("renew the cluster's CA and fetch a fresh kubeconfig, or set this machine's clock right");
            Err(anyhow!("{why}").context(fault))
        }
    }
}
