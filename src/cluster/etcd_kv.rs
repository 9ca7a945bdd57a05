//! Reads keys of etcd as Calico's own client does, over gRPC: there a member knows a client by its certificate, which the
//! HTTP gateway does not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::etcd_member;
use crate::calico::etcd::EtcdFiles;
use crate::calico::x509;
use crate::fault::{Exit, Fault};

/// How many keys an answer may have.
const PAGE: i64 = 500;

/// Longest answer that is read.
const LONGEST: usize = 64 * 1024 * 1024;

/// `etcdserverpb.RangeRequest`, in the fields that are used here.
#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = 1)]
    key: Vec<u8>,
    /// The first key that is not meant any more; empty for one key.
    #[prost(bytes = "vec", tag = 2)]
    range_end: Vec<u8>,
    #[prost(int64, tag = 3)]
    limit: i64,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = 2)]
    kvs: Vec<KeyValue>,
    #[prost(bool, tag = 3)]
    more: bool,
}

/// `mvccpb.KeyValue`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = 1)]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = 5)]
    pub value: Vec<u8>,
}

/// Reads keys from the first member that answers. A name that ends with `/` means all keys below. Returns what was found
/// under each name.
///
/// `files` are the client's; `limit` is for one member.
///
/// # Errors
/// Faults `EtcdForbidden` when the client may not read one of them, and `EtcdUnreadable` when no member answers.
pub(super) fn read(
    endpoints: &[String],
    files: Option<&EtcdFiles>,
    limit: Duration,
    names: &[&str],
) -> Result<Vec<Vec<KeyValue>>> {
    let tls = files.map(etcd_member::client).transpose()?.map(|mut tls| {
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(tls)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.context("start the client of etcd")?;
    let mut failures = Vec::new();
    for endpoint in endpoints {
        let asked = async { tokio::time::timeout(limit, read_from(endpoint, tls.clone(), names)).await };
        match runtime.block_on(asked) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(Refusal::Forbidden { name, message })) => {
                let user = match files.and_then(|files| x509::read(&files.cert)) {
                    Some(certificate) => format!("the client {}", certificate.subject),
                    None => "a client without a certificate".to_owned(),
                };
                let what = format!("etcd at {endpoint} does not let {user} read {name}: {message}");
                let hint = "etcdctl role grant-permission ROLE --prefix=true readwrite /calico/  # a role of that user\n\
                            etcd knows the user by the common name (CN) of the client's certificate";
                return Err(Fault::new(Exit::ClusterAccessDenied, "EtcdForbidden", what).hint(hint).into());
            }
            Ok(Err(Refusal::Failed(why))) => failures.push(format!("etcd at {endpoint} could not be read: {why}")),
            Err(_) => failures.push(format!("etcd at {endpoint} could not be read within {} s", limit.as_secs())),
        }
    }
    let hint = "Calico uses gRPC (HTTP/2): look for a proxy or load balancer in front of etcd, and into etcd's log";
    Err(Fault::new(Exit::ClusterUnreachable, "EtcdUnreadable", failures.join("; ")).hint(hint).into())
}

/// Why a member gave no answer.
enum Refusal {
    Forbidden { name: String, message: String },
    Failed(String),
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        Self::Failed(format!("{error}{cause}"))
    }
}

async fn read_from(
    endpoint: &str,
    tls: Option<Arc<ClientConfig>>,
    names: &[&str],
) -> Result<Vec<Vec<KeyValue>>, Refusal> {
    let url: Uri = endpoint.parse()?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let socket = TcpStream::connect((host.as_str(), url.port_u16().unwrap_or(2379))).await?;
    let mut member = match tls.filter(|_| url.scheme_str() == Some("https")) {
        Some(tls) => {
            let session = TlsConnector::from(tls).connect(ServerName::try_from(host)?, socket).await?;
            greet(session).await?
        }
        None => greet(socket).await?,
    };
    let mut found = Vec::new();
    for name in names {
        found.push(range(&mut member, &url, name).await?);
    }
    Ok(found)
}

async fn greet(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, Refusal> {
    let (member, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // Its error is also that of the request.
    tokio::spawn(async { drop(connection.await) });
    Ok(member)
}

async fn range(member: &mut SendRequest<Full<Bytes>>, url: &Uri, name: &str) -> Result<Vec<KeyValue>, Refusal> {
    let mut asked = RangeRequest { key: name.into(), range_end: Vec::new(), limit: PAGE };
    if let Some(folder) = name.strip_suffix('/') {
        // "0" follows "/".
        asked.range_end = format!("{folder}0").into_bytes();
    }
    let mut found = Vec::new();
    loop {
        let answer = call(member, url, name, &asked).await?;
        found.extend(answer.kvs);
        match found.last() {
            // The key that follows.
            Some(last) if answer.more => asked.key = [last.key.as_slice(), &[0]].concat(),
            _ => return Ok(found),
        }
    }
}

/// One call of `etcdserverpb.KV/Range`.
async fn call(
    member: &mut SendRequest<Full<Bytes>>,
    url: &Uri,
    name: &str,
    asked: &RangeRequest,
) -> Result<RangeResponse, Refusal> {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let scheme = url.scheme_str().unwrap_or("http");
    let message = asked.encode_to_vec();
    // Not compressed, and the length of the message.
    let head = [&[0], u32::try_from(message.len())?.to_be_bytes().as_slice()].concat();
    let request = Request::post(format!("{scheme}://{authority}/etcdserverpb.KV/Range"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new([head, message].concat().into()))?;
    let (head, body) = member.send_request(request).await?.into_parts();
    let body = Limited::new(body, LONGEST).collect().await.map_err(|error| Refusal::Failed(error.to_string()))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    // A call that fails at once has its status among the headers.
    let field = |name: &str| Some(trailers.get(name).or(head.headers.get(name))?.to_str().ok()?.to_owned());
    match field("grpc-status").as_deref() {
        Some("0") => {}
        None => return Err(Refusal::Failed(format!("it answers {} without a gRPC status", head.status))),
        Some(code) => {
            let message = field("grpc-message").unwrap_or_else(|| format!("gRPC status {code}"));
            // InvalidArgument is the answer to a client without a user, too.
            let of_rights = matches!(code, "7" | "16") || (code == "3" && message.contains("user"));
            return Err(match of_rights {
                true => Refusal::Forbidden { name: name.to_owned(), message },
                false => Refusal::Failed(message),
            });
        }
    }
    let bytes = body.to_bytes();
    let message = bytes.get(5..).ok_or_else(|| Refusal::Failed("its answer is empty".to_owned()))?;
    Ok(RangeResponse::decode(message)?)
}
