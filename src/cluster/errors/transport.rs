//! Failures below HTTP: names, connections, TLS.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use anyhow::Result;
use kube::client::AuthError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, RootCertStore};

use super::{SLOW_HINT, Server, denied, seconds, unreachable};
use crate::cluster::api::Call;
use crate::cluster::kubeconfig::{certificates, why_no_login};
use crate::fault::Fault;
use crate::settings::Limits;

/// What failed below HTTP.
pub(super) enum Transport {
    Refused,
    Name,
    ConnectSlow,
    Lost,
    Certificate(CertificateError),
    TlsVersion,
    NotTls,
    Tls,
    Login,
    /// Between this machine and the proxy, or what the proxy answered.
    Proxy(Proxy),
    Other,
}

pub(super) enum Proxy {
    Refused,
    Name,
    /// It answers 407.
    Login,
    /// It does not connect to the API server.
    Closed,
}

pub(super) fn classify(error: &kube::Error) -> Transport {
    let chain = chain(error);
    if login(&chain).is_some() {
        return Transport::Login;
    }
    // The text is all that hyper-util's error shows.
    if let Some(at) = chain.iter().position(|e| e.to_string().starts_with("tunnel error: ")) {
        return Transport::Proxy(match chain[at].to_string() {
            text if text.ends_with("proxy authorization required") => Proxy::Login,
            _ if has_dns_error(&chain) => Proxy::Name,
            _ if io_kind(&chain) == Some(ErrorKind::ConnectionRefused) => Proxy::Refused,
            _ => Proxy::Closed,
        });
    }
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
    if has_dns_error(&chain) {
        return Transport::Name;
    }
    match io_kind(&chain) {
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

fn has_dns_error(chain: &[&(dyn StdError + 'static)]) -> bool {
    chain.iter().any(|e| e.to_string() == "dns error")
}

fn io_kind(chain: &[&(dyn StdError + 'static)]) -> Option<ErrorKind> {
    chain.iter().rev().find_map(|e| e.downcast_ref::<io::Error>()).map(io::Error::kind)
}

impl Transport {
    pub fn is_about_time(&self) -> bool {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        matches!(
            self,
            Self::ConnectSlow
                | Self::Certificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
        )
    }
}

/// `server`: its URL, and the proxy through which it is reached.
pub(super) fn fault(server: &Server, call: &Call, why: &Transport, limits: Limits) -> Fault {
    let Server { url: server, proxy } = server;
    let at = format!("the API server at {server}");
    match why {
        Transport::Proxy(why) => proxy_fault(proxy.as_deref().unwrap_or_default(), &at, why),
        Transport::ConnectSlow if proxy.is_some() => {
            let proxy = proxy.as_deref().unwrap_or_default();
            let within = seconds(limits.connect());
            unreachable("ClusterProxy", format!("no connection to {at} through the proxy {proxy} within {within}"))
                .hint(format!("the proxy does not answer, or cannot reach the API server: {PROXY_HINT}"))
        }
        Transport::Refused => unreachable("ClusterRefused", format!("{at} refuses the connection"))
            .hint("check that kube-apiserver runs, and the address and port in `server` of the kubeconfig"),
        Transport::Name => unreachable("ClusterNameUnresolved", format!("the name of {at} cannot be resolved"))
            .hint("fix `server` in the kubeconfig, or this machine's DNS servers: check with `nslookup`"),
        Transport::ConnectSlow => {
            unreachable("ClusterTimeout", format!("no connection to {at} within {}", seconds(limits.connect())))
                .hint(SLOW_HINT)
        }
        Transport::Lost => {
            unreachable("ClusterConnectionLost", format!("{at} closed the connection during {}", call.name())).hint(
                "a proxy, firewall or load balancer in between may do that, or the server is restarting: try again",
            )
        }
        Transport::Certificate(why) => certificate_fault(&at, why),
        Transport::TlsVersion => denied("ClusterTlsVersion", format!("{at} does not support TLS 1.2 or 1.3"))
            .hint("check --tls-min-version of kube-apiserver, or the proxy in front of it"),
        Transport::NotTls => denied("ClusterNotTls", format!("the server at {server} does not use TLS"))
            .hint("check the port: an API server's is usually 6443 or 443"),
        Transport::Tls => unreachable("ClusterTls", format!("the TLS handshake with {at} failed"))
            .hint("a client certificate of another cluster is a common cause"),
        Transport::Login => unreachable("ClusterLogin", "the kubeconfig's credentials cannot be used".to_owned())
            .hint("try `kubectl --kubeconfig FILE version` with the same file on this machine"),
        Transport::Other => unreachable("ClusterUnreachable", format!("{at} could not be reached for {}", call.name()))
            .hint("try `kubectl --kubeconfig FILE version` with the same file on this machine"),
    }
}

const PROXY_HINT: &str =
    "correct `proxy-url` in the kubeconfig or the variable HTTPS_PROXY, or name the API server in NO_PROXY";

fn proxy_fault(proxy: &str, at: &str, why: &Proxy) -> Fault {
    let fault = |what: String| unreachable("ClusterProxy", what).hint(PROXY_HINT);
    match why {
        Proxy::Refused => fault(format!("the proxy {proxy} refuses the connection")),
        Proxy::Name => fault(format!("the name of the proxy {proxy} cannot be resolved")),
        Proxy::Closed => unreachable("ClusterProxy", format!("the proxy {proxy} does not connect to {at}"))
            .hint("let the proxy connect to the API server, or name the API server in NO_PROXY if it can be reached without"),
        Proxy::Login => unreachable("ClusterProxyLogin", format!("the proxy {proxy} requires a login"))
            .retryable(false)
            .hint(
                "put it into `proxy-url` of the kubeconfig or the variable HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT\n\
                 or name the API server in NO_PROXY, if it can be reached without the proxy",
            ),
    }
}

fn certificate_fault(at: &str, why: &CertificateError) -> Fault {
    match why {
        CertificateError::Expired => expired(at, ""),
        CertificateError::ExpiredContext { not_after, .. } => expired(at, &format!(" on {}", date(*not_after))),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            denied("ClusterCertificateExpired", format!("the certificate of {at} is not valid yet"))
                .hint("correct the clock of this machine")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            denied("ClusterCertificateName", format!("the certificate of {at} is for other names"))
                .hint("use one of its names as `server` in the kubeconfig, or as `tls-server-name`")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            denied("ClusterUntrusted", format!("the certificate of {at} is not signed by the trusted CA")).hint(
                "the kubeconfig's certificate-authority belongs to another cluster or was replaced, \
                     or a proxy intercepts TLS: get a new kubeconfig",
            )
        }
        _ => denied("ClusterUntrusted", format!("the certificate of {at} is not valid"))
            .hint("the reason says what is wrong with it"),
    }
}

fn expired(at: &str, when: &str) -> Fault {
    denied("ClusterCertificateExpired", format!("the certificate of {at} has expired{when}"))
        .hint("renew it (kubeadm: `kubeadm certs renew apiserver`), or correct this machine's clock")
}

/// For example 2026-11-21, in UTC.
fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map(|t| t.strftime("%Y-%m-%d").to_string()).unwrap_or_default()
}

/// An error and all its causes, also what [`io::Error`] wraps without being its source.
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

/// The login error, also when a login was renewed for one request: then kube wraps it.
fn login<'a>(chain: &[&'a (dyn StdError + 'static)]) -> Option<&'a AuthError> {
    chain.iter().find_map(|error| error.downcast_ref::<AuthError>())
}

pub(super) fn innermost(error: &kube::Error) -> String {
    let chain = chain(error);
    if let Some(error) = login(&chain) {
        return why_no_login(error);
    }
    let said = chain.last().map(ToString::to_string).unwrap_or_default();
    // rustls refers its readers, who are programmers, to its manual.
    said.split(": https://docs.rs/").next().unwrap_or_default().to_owned()
}

/// Refuses a CA whose certificates have all expired. rustls ignores a root's dates, but the components on the node are
/// written in Go, which checks them.
pub(in crate::cluster) fn check_ca(pem: Option<&str>) -> Result<()> {
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
        // Verified like a server's certificate: it is not one, but its dates are checked before its purpose.
        match verifier.verify_server_cert(&ca, &[], &name, &[], UnixTime::now()) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                expired = Some(not_after);
            }
            _ => return Ok(()),
        }
    }
    let Some(not_after) = expired else { return Ok(()) };
    let what = format!("the cluster's CA in the kubeconfig has expired on {}", date(not_after));
    let fault = denied("ClusterCaExpired", what)
        .hint("renew the cluster's CA and get a new kubeconfig, or correct this machine's clock");
    Err(fault.into())
}
