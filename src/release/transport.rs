//! HTTP for this module: how a server is reached, and which failures are retried.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use backon::{BlockingRetryable, ExponentialBuilder};
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::RETRY_AFTER;
use reqwest::{Certificate, NoProxy, Proxy, StatusCode, Url, redirect, tls};

use super::files::PathContext;
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::settings::Connection;

const CONNECT: Duration = Duration::from_secs(15);
const MAX_REDIRECTS: usize = 10;
/// Longest pause that a server's Retry-After can request.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Largest digest file, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// An HTTP client with a deadline.
pub struct Http {
    client: Client,
    deadline: Instant,
    connection: Connection,
}

/// Why an attempt failed.
pub enum Failure {
    /// May succeed next time, and not before the server's Retry-After.
    Retry {
        error: Error,
        after: Option<Duration>,
    },
    Final(Error),
}

impl Failure {
    pub fn retry(error: impl Into<Error>) -> Self {
        Self::Retry { error: error.into(), after: None }
    }

    pub fn done(error: impl Into<Error>) -> Self {
        Self::Final(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl Http {
    pub fn new(connection: &Connection) -> Result<Self> {
        // Fails if one is already installed, which is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut builder = Client::builder()
            .user_agent(concat!("calicoctl-win/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            // A server that is silent for this long is given up, and retried.
            .timeout(connection.timeout)
            .tls_version_min(tls::Version::TLS_1_2)
            .redirect(redirect::Policy::custom(follow));
        let exceptions = connection.no_proxy.join(",");
        if exceptions.trim() == "*" {
            builder = builder.no_proxy();
        } else if let Some(proxy) = &connection.proxy {
            // The error would show the proxy's password.
            let proxy = Proxy::all(proxy).map_err(|_| {
                Fault::new(Exit::InvalidConfig, "ProxyInvalid", "the proxy is not a URL like http://proxy:3128")
            })?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&exceptions)));
        }
        if let Some(path) = connection.ca_file.as_deref().map(Path::new) {
            let pem = std::fs::read(path).doing("read the CA file", path)?;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                return Err(Fault::new(
                    Exit::InvalidConfig,
                    "CaFileInvalid",
                    format!("{} has no certificate in PEM format", path.display()),
                )
                .into());
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().context("set up the HTTP client")?;
        Ok(Self { client, deadline: Instant::now() + connection.download_timeout, connection: connection.clone() })
    }

    pub fn get(&self, url: &Url) -> RequestBuilder {
        self.client.get(url.clone())
    }

    /// Sends a request and classifies the response. The caller reads success, 304 and 416.
    pub fn send(&self, url: &Url, request: RequestBuilder) -> Result<Response, Failure> {
        self.check_deadline(url)?;
        let response = request.send().map_err(|error| failed(url, error))?;
        let status = response.status();
        if status.is_success() || matches!(status, StatusCode::NOT_MODIFIED | StatusCode::RANGE_NOT_SATISFIABLE) {
            return Ok(response);
        }
        let fault = answered(url, status);
        if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
            let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
            return Err(Failure::Retry { error: fault.into(), after });
        }
        Err(Failure::done(fault))
    }

    pub fn check_deadline(&self, url: &Url) -> Result<(), Failure> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let limit = self.connection.download_timeout.as_secs() / 60;
        Err(Failure::done(
            unavailable(url, &format!("it took longer than {limit} min"))
                .hint("run the command again: the download resumes"),
        ))
    }

    /// Retries after growing pauses.
    pub fn with_retries<T>(&self, events: Sink, mut attempt: impl FnMut(Sink) -> Result<T, Failure>) -> Result<T> {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(self.connection.backoff)
            .with_max_delay(MAX_PAUSE)
            .with_max_times(self.connection.retries as usize);
        // The Retry-After of the last attempt, for the pause after it.
        let asked = Rc::new(Cell::new(None));
        let pause_asked = Rc::clone(&asked);
        let attempt = move || {
            attempt(events).inspect_err(|failure| {
                if let Failure::Retry { error, after } = failure {
                    asked.set(*after);
                    events(Event::Log { message: format!("{error:#}; trying again") });
                }
            })
        };
        attempt
            .retry(backoff)
            .sleep(move |pause| std::thread::sleep(pause_asked.take().unwrap_or(pause).min(MAX_PAUSE)))
            .when(|failure| matches!(failure, Failure::Retry { .. }))
            .call()
            .map_err(|failure| match failure {
                Failure::Retry { error, .. } | Failure::Final(error) => error,
            })
    }

    /// A small text; none, with the server's response, if it does not exist.
    pub fn text(&self, url: &Url, events: Sink) -> Result<Option<String>> {
        use std::io::Read;
        self.with_retries(events, |_| {
            let mut response = match self.send(url, self.get(url)) {
                Ok(response) => response,
                Err(Failure::Final(error)) if Fault::id_of(&error) == ABSENT => {
                    return Ok(None);
                }
                Err(failure) => return Err(failure),
            };
            let until = Instant::now() + self.connection.timeout;
            let (mut text, mut part) = (Vec::new(), [0; 4096]);
            loop {
                let size = response.read(&mut part).map_err(|error| {
                    Failure::retry(Error::new(error).context(unavailable(url, "the download was interrupted")))
                })?;
                if size == 0 {
                    return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
                }
                text.extend_from_slice(&part[..size]);
                if text.len() > MAX_TEXT {
                    return Err(Failure::done(unavailable(url, "it is too large for a file with digests")));
                }
                if Instant::now() > until {
                    let limit = self.connection.timeout.as_secs();
                    return Err(Failure::retry(unavailable(url, &format!("it was not complete after {limit} s"))));
                }
            }
        })
    }
}

/// Id of the fault for a file that a server does not have.
const ABSENT: &str = "ReleaseNotFound";

fn follow(attempt: redirect::Attempt) -> redirect::Action {
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error("it is redirected too often");
    }
    if attempt.previous().last().is_some_and(|from| from.scheme() == "https") && attempt.url().scheme() != "https" {
        return attempt.error("it is redirected from https to http");
    }
    attempt.follow()
}

fn failed(url: &Url, error: reqwest::Error) -> Failure {
    let lasting = error.is_redirect() || error.is_builder();
    let error = Error::new(error.without_url());
    let certificate = error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
            .is_some_and(|e| e.is::<rustls::Error>())
    });
    let mut fault = unavailable(url, &innermost(&error));
    if certificate {
        fault.exit = Exit::ReleaseInvalid;
        fault = fault.hint("if a proxy or mirror has a certificate of a private CA, name the CA with --ca-file");
    }
    let error = error.context(fault);
    if lasting || certificate { Failure::Final(error) } else { Failure::retry(error) }
}

/// The innermost cause, which is the meaningful one.
fn innermost(error: &Error) -> String {
    error.root_cause().to_string()
}

/// A fault for a URL that could not be fetched, without the secrets that a URL can contain.
pub fn unavailable(url: &Url, why: &str) -> Fault {
    Fault::new(Exit::ReleaseUnavailable, "ReleaseUnavailable", format!("cannot fetch {}: {why}", shown(url)))
        .hint("check the network, --proxy and --ca-file, then run the command again: the download resumes")
}

/// A fault for an unusable response.
pub fn answered(url: &Url, status: StatusCode) -> Fault {
    let mut fault = unavailable(url, &format!("the server answered {status}"));
    // Object stores answer 403 for missing files.
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN) {
        fault.id = ABSENT;
        fault.exit = Exit::ReleaseInvalid;
        fault = fault
            .hint("check the version and the URL; on a node without internet access, name a file with --release FILE");
    }
    fault
}

/// A URL for people: without user, password and query, which may contain tokens.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for URLs without a host, which have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;
    use crate::config::Layered;
    use crate::release::testing::quiet;
    use crate::settings;

    /// Answers one HTTPS request on 127.0.0.1, with a certificate of the CA in the returned PEM.
    fn https(answer: &'static str) -> (Url, String, JoinHandle<()>) {
        drop(rustls::crypto::ring::default_provider().install_default());
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/x", listener.local_addr().unwrap()).parse().unwrap();
        let server = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), socket);
            // A client that does not trust the certificate closes here.
            if stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
                stream.write_all(answer.as_bytes()).unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        });
        (url, made.cert.pem(), server)
    }

    fn usual() -> Connection {
        settings::connection(&Layered::default(), None)
    }

    fn connection(ca_file: Option<&Path>) -> Connection {
        let ca_file = ca_file.map(|file| file.display().to_string());
        Connection { no_proxy: vec!["*".into()], retries: 0, ca_file, ..usual() }
    }

    #[test]
    fn a_private_ca_is_trusted_only_if_it_is_named() {
        const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");

        let (url, pem, server) = https(ANSWER);
        std::fs::write(&ca_file, pem).unwrap();
        let text = Http::new(&connection(Some(&ca_file))).unwrap().text(&url, &mut quiet).unwrap();
        assert_eq!(text.as_deref(), Some("ok"));
        server.join().unwrap();

        let (url, _, server) = https(ANSWER);
        let error = Http::new(&connection(None)).unwrap().text(&url, &mut quiet).unwrap_err();
        let fault = Fault::of(&error).unwrap();
        assert_eq!(fault.id, "ReleaseUnavailable");
        assert!(fault.hint.as_ref().unwrap().contains("--ca-file"), "{error:#}");
        server.join().unwrap();
    }

    #[test]
    fn a_redirect_from_https_to_http_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        let (url, pem, server) = https(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        std::fs::write(&ca_file, pem).unwrap();
        let error = Http::new(&connection(Some(&ca_file))).unwrap().text(&url, &mut quiet).unwrap_err();
        assert!(error.to_string().contains("redirected from https to http"), "{error:#}");
        server.join().unwrap();
    }

    #[test]
    fn a_silent_server_is_given_up_after_the_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap()).parse().unwrap();
        let impatient = Connection { timeout: Duration::from_millis(100), ..connection(None) };
        let error = Http::new(&impatient).unwrap().text(&url, &mut quiet).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseUnavailable");
        assert!(error.to_string().contains("timed out"), "{error:#}");
    }

    /// Answers with this head, and this byte again and again, until the client closes.
    fn dripping(head: &'static str, pause: Duration) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            assert!(socket.read(&mut [0; 4096]).unwrap() > 0, "a request");
            let mut sent = socket.write_all(head.as_bytes());
            while sent.is_ok() {
                std::thread::sleep(pause);
                sent = socket.write_all(b"a");
            }
        });
        url
    }

    #[test]
    fn a_digest_file_that_never_ends_is_given_up() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let patient = Connection { timeout: Duration::from_secs(1), ..connection(None) };
        let error =
            Http::new(&patient).unwrap().text(&dripping(HEAD, Duration::from_millis(10)), &mut quiet).unwrap_err();
        assert!(error.to_string().ends_with("it was not complete after 1 s"), "{error:#}");
        let patient = Connection { timeout: Duration::from_secs(600), ..connection(None) };
        let error = Http::new(&patient).unwrap().text(&dripping(HEAD, Duration::ZERO), &mut quiet).unwrap_err();
        assert!(error.to_string().ends_with("it is too large for a file with digests"), "{error:#}");
    }

    #[test]
    fn settings_that_cannot_work_are_refused_without_their_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, "not a certificate").unwrap();
        let error = Http::new(&connection(Some(&ca_file))).err().unwrap();
        assert_eq!(Fault::id_of(&error), "CaFileInvalid");

        let proxy = Some("http://me:hunter2@:bad:port".to_owned());
        let error = Http::new(&Connection { proxy, ..usual() }).err().unwrap();
        assert_eq!(Fault::id_of(&error), "ProxyInvalid");
        assert!(!format!("{error:#}").contains("hunter2"));
    }
}
