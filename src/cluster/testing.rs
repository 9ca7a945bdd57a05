//! A small HTTPS server for this module's tests. It replays the responses of a real API server, and fails as real ones
//! do.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio_rustls::TlsAcceptor;

use super::Cluster;
use crate::settings::Limits;

pub const HOST: &str = "api.cluster.test";

/// A request as the server received it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// For example `GET /version`, without page size and field manager.
    pub key: String,
    pub target: String,
    pub headers: HashMap<String, String>,
    pub body: String,
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// Status, headers and body.
    Full(u16, Vec<(String, String)>, String),
    /// The headers and half of the body, then nothing more.
    Cut,
    /// This status, after a while, with no body.
    Late(u16),
    /// No response at all.
    Silence,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::Full(status, vec![("content-type".into(), "application/json".into())], body.to_string())
    }

    /// A recorded response, by its id.
    pub fn recorded(id: &str) -> Self {
        let recording = recordings().into_iter().find(|r| r["id"] == id).expect("there is such a recording");
        Self::of(&recording["response"])
    }

    fn of(response: &Value) -> Self {
        let headers = response["headers"].as_object().unwrap();
        let headers = headers
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("transfer-encoding"))
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        let body = match &response["body"] {
            Value::String(text) => text.clone(),
            json => json.to_string(),
        };
        Self::Full(u16::try_from(response["status"].as_u64().unwrap()).unwrap(), headers.collect(), body)
    }

    /// Sets Retry-After in seconds.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        if let Self::Full(_, headers, _) = &mut self {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("retry-after"));
            headers.push(("Retry-After".into(), seconds.to_string()));
        }
        self
    }
}

fn recordings() -> Vec<Value> {
    include_str!("../../tests/fixtures/kube-recordings.jsonl")
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

/// Signs the server's certificate.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        Self::valid_until(2099)
    }

    pub fn valid_until(year: i32) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn acceptor(&self, name: &str, year: i32) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

type Script = Arc<Mutex<HashMap<String, Vec<Reply>>>>;

/// The running server. It ends with the test process.
pub struct Server {
    pub address: SocketAddr,
    pub ca_pem: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Script,
    answered: Arc<AtomicUsize>,
}

impl Server {
    /// It answers only what [`Server::on`] and [`Server::replay`] add.
    pub fn start() -> Self {
        let authority = Authority::new();
        Self::with_certificate(&authority, HOST, 2099)
    }

    pub fn with_certificate(authority: &Authority, name: &str, valid_until: i32) -> Self {
        let acceptor = authority.acceptor(name, valid_until);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, script) = (Arc::<Mutex<Vec<Seen>>>::default(), Script::default());
        let (watch, play) = (Arc::clone(&seen), Arc::clone(&script));
        let answered = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&answered);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (socket, _) = listener.accept().await.unwrap();
                    let (acceptor, watch, play) = (acceptor.clone(), Arc::clone(&watch), Arc::clone(&play));
                    let count = Arc::clone(&count);
                    tokio::spawn(async move {
                        let Ok(tls) = acceptor.accept(socket).await else { return };
                        let service = hyper::service::service_fn(move |r| {
                            let (answer, count) = (serve(r, Arc::clone(&watch), Arc::clone(&play)), Arc::clone(&count));
                            async move {
                                let answer = answer.await;
                                count.fetch_add(1, Relaxed);
                                answer
                            }
                        });
                        let connection = hyper::server::conn::http1::Builder::new();
                        // A client that closes the connection is not an error.
                        connection.serve_connection(TokioIo::new(tls), service).await.ok();
                    });
                }
            });
        });
        Self { address, ca_pem: authority.pem.clone(), seen, script, answered }
    }

    /// Sets the responses to a request; several are sent in order, then the last one repeatedly.
    pub fn on(&self, key: &str, replies: impl IntoIterator<Item = Reply>) -> &Self {
        self.script.lock().unwrap().insert(key.to_owned(), replies.into_iter().collect());
        self
    }

    /// Sets the recordings with these ids, each for its own request.
    pub fn replay(&self, ids: &[&str]) -> &Self {
        let all = recordings();
        for id in ids {
            let recording = all.iter().find(|r| r["id"] == *id).expect("there is such a recording");
            let request = &recording["request"];
            let key = format!("{} {}", request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
            self.on(&key, [Reply::of(&recording["response"])]);
        }
        self
    }

    /// From now on nothing that it knows is answered.
    pub fn silence(&self) {
        self.script.lock().unwrap().values_mut().for_each(|replies| *replies = vec![Reply::Silence]);
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How many requests were answered: not those whose client went away before.
    pub fn answered(&self) -> usize {
        self.answered.load(Relaxed)
    }

    pub fn keys(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.key).collect()
    }

    pub fn kubeconfig(&self) -> String {
        kubeconfig(&self.ca_pem)
    }

    pub fn connect(&self) -> Cluster {
        self.connect_within(Limits::within(std::time::Duration::from_secs(30)))
    }

    pub fn connect_within(&self, limits: Limits) -> Cluster {
        Cluster::connect(&self.kubeconfig(), ".".as_ref(), None, Some(self.address), limits).unwrap()
    }
}

pub fn kubeconfig(ca_pem: &str) -> String {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin@test\n\
         clusters:\n- name: test\n  cluster:\n    server: https://{HOST}:6443\n    certificate-authority-data: {ca}\n\
         users:\n- name: admin\n  user:\n    token: admins-token\n\
         contexts:\n- name: admin@test\n  context:\n    cluster: test\n    user: admin\n"
    )
}

async fn serve(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Script,
) -> Result<Response<Played>, Infallible> {
    let (head, body) = request.into_parts();
    let target = head.uri.to_string();
    let key = format!("{} {}", head.method, without_own_parameters(&target));
    let headers =
        head.headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap_or_default().to_owned())).collect();
    let body = body.collect().await.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
    seen.lock().unwrap().push(Seen { key: key.clone(), target, headers, body });
    let reply = {
        let mut script = script.lock().unwrap();
        match script.get_mut(&key) {
            Some(replies) if replies.len() > 1 => replies.remove(0),
            Some(replies) => replies[0].clone(),
            None => Reply::recorded("path-404"),
        }
    };
    let response = match reply {
        Reply::Full(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Played { rest: Some(body.into()), cut: false }).unwrap()
        }
        Reply::Cut => Response::builder()
            .header("content-type", "application/json")
            .body(Played { rest: Some(Bytes::from_static(b"{\"half\":")), cut: true })
            .unwrap(),
        Reply::Late(status) => {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            Response::builder().status(status).body(Played { rest: None, cut: false }).unwrap()
        }
        Reply::Silence => std::future::pending().await,
    };
    Ok(response)
}

fn without_own_parameters(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let kept: Vec<&str> =
        query.split('&').filter(|p| *p != "limit=500" && *p != "fieldManager=calicoctl-win").collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

/// A body that may end early.
struct Played {
    rest: Option<Bytes>,
    cut: bool,
}

impl Body for Played {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(match self.rest.take() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.cut => Some(Err(std::io::ErrorKind::ConnectionReset.into())),
            None => None,
        })
    }
}
