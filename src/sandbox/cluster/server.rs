//! The listener: with or without TLS, HTTP/1.1, one task per connection, on its own thread.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use super::answer::{Answer, Content};
use super::auth::Certificate;
use super::controllers;
use super::faults::{Action, ServerFault};
use super::request::Request;
use super::shared::Api;

/// How much Go's server buffers before it uses chunks.
const CHUNK_ABOVE: usize = 2048;
const SLOW: Duration = Duration::from_secs(60);
const FAR: Duration = Duration::from_millis(20);
/// The exit code of a killed process, as in the sandbox's node.
const KILLED: i32 = 137;

/// A server that stops when dropped.
pub struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropping the sender wakes the thread.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Listens on 127.0.0.1, on a port the system picks.
pub fn start(api: Arc<Api>) -> Result<Running> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen on 127.0.0.1 for the sandbox's cluster")?;
    let address = listener.local_addr()?;
    if api.faults.server(ServerFault::Down) {
        return Ok(Running { address, stop: None, thread: None });
    }
    listener.set_nonblocking(true)?;
    let tls = TlsAcceptor::from(Arc::new(tls_config(&api)?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<Infallible>();
    let serve = move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            tokio::spawn(controllers::run(Arc::clone(&api)));
            tokio::spawn(async move {
                loop {
                    // A failed accept (the peer went away, too many files) concerns one connection.
                    if let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(connection(Arc::clone(&api), tls.clone(), stream));
                    }
                }
            });
            drop(stopped.await);
        });
    };
    let thread = std::thread::Builder::new().name("sandbox-cluster".into()).spawn(serve)?;
    Ok(Running { address, stop: Some(stop), thread: Some(thread) })
}

fn tls_config(api: &Api) -> Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(Arc::new(AnyCertificate::new(&provider)))
        .with_single_cert(api.pki.server_chain.clone(), api.pki.server_key.clone_key())?;
    Ok(config)
}

async fn connection(api: Arc<Api>, tls: TlsAcceptor, stream: TcpStream) {
    stream.set_nodelay(true).ok();
    if api.faults.server(ServerFault::PlainHttp) {
        return serve(api, stream, Certificate::None).await;
    }
    let mut first = [0];
    if stream.peek(&mut first).await.unwrap_or(0) == 0 {
        return;
    }
    if api.faults.server(ServerFault::OldTls) {
        // A fatal alert, protocol_version, which a server of TLS 1.1 sends to a client that requires 1.2.
        return finish(stream, &[0x15, 0x03, 0x02, 0x00, 0x02, 0x02, 0x46]).await;
    }
    const TLS_HANDSHAKE: u8 = 0x16;
    if first[0] != TLS_HANDSHAKE {
        let answer = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        return finish(stream, answer).await;
    }
    let Ok(stream) = tls.accept(stream).await else { return };
    let (_, session) = stream.get_ref();
    let certificate = match session.peer_certificates().and_then(<[_]>::first) {
        None => Certificate::None,
        Some(certificate) => match api.pki.client(certificate) {
            Some((user, groups)) => Certificate::Good(user, groups),
            None => Certificate::Bad,
        },
    };
    serve(api, stream, certificate).await;
}

/// Sends the last bytes of a connection, after the client's first bytes.
async fn finish(mut stream: TcpStream, bytes: &[u8]) {
    let mut said = [0; 1024];
    if stream.read(&mut said).await.is_ok() {
        stream.write_all(bytes).await.ok();
        stream.shutdown().await.ok();
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(api: Arc<Api>, stream: S, certificate: Certificate) {
    let service = service_fn(move |request| answer(Arc::clone(&api), certificate.clone(), request));
    // An error here is a client that closed, or a fault that closed the connection.
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn answer(
    api: Arc<Api>,
    certificate: Certificate,
    request: http::Request<Incoming>,
) -> io::Result<Response<AnswerBody>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    // Calico's programs, which use a token, are not the process that should end.
    let own = matches!(certificate, Certificate::Good(..));
    let mut met = api.faults.meet(head.method.as_str(), head.uri.path(), query, own);
    if met == Some(Action::Noted) {
        api.note(head.method.as_str(), head.uri.path(), own)?;
        met = None;
    }
    match met {
        Some(Action::Restart) => {
            api.faults.restart();
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(Action::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Action::Slow) => tokio::time::sleep(SLOW).await,
        Some(Action::Far) => tokio::time::sleep(FAR).await,
        Some(Action::ExitBefore) => std::process::exit(KILLED),
        _ => {}
    }
    let request = Request::new(&head.method, head.uri.path(), query, head.headers, body.to_vec());
    let answer = api.handle(&request, &certificate, met);
    if met == Some(Action::ExitAfter) {
        std::process::exit(KILLED);
    }
    response(answer, met)
}

fn response(answer: Answer, met: Option<Action>) -> io::Result<Response<AnswerBody>> {
    let mut response = Response::builder()
        .status(StatusCode::from_u16(answer.status).map_err(io::Error::other)?)
        .header("Content-Type", answer.content_type)
        .header("Cache-Control", "no-cache, private")
        .header("Audit-Id", super::store::uid());
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let bytes = match answer.body {
        Content::Lines(lines) => return response.body(AnswerBody::Lines(lines)).map_err(io::Error::other),
        Content::Text(text) => Bytes::from(text),
        Content::Json(value) => Bytes::from(format!("{value}\n")),
    };
    let half = || Some(bytes.slice(..bytes.len() / 2));
    let body = match met {
        Some(Action::Cut) => AnswerBody::Cut(half()),
        Some(Action::Truncated) => AnswerBody::Whole(half()),
        _ => AnswerBody::Whole(Some(bytes)),
    };
    response.body(body).map_err(io::Error::other)
}

enum AnswerBody {
    Whole(Option<Bytes>),
    /// Half of a body; once that is sent, the connection closes.
    Cut(Option<Bytes>),
    Breaking,
    Lines(mpsc::Receiver<serde_json::Value>),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        match this {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Cut(bytes) => {
                if let Some(half) = bytes.take() {
                    return Poll::Ready(Some(Ok(Frame::data(half))));
                }
                // A pending body makes hyper send what it has.
                *this = Self::Breaking;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Self::Breaking => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Self::Lines(lines) => {
                lines.poll_recv(context).map(|line| line.map(|l| Ok(Frame::data(Bytes::from(format!("{l}\n"))))))
            }
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(Some(bytes)) if bytes.len() <= CHUNK_ABOVE => {
                hyper::body::SizeHint::with_exact(bytes.len() as u64)
            }
            _ => hyper::body::SizeHint::default(),
        }
    }
}

/// Accepts every client certificate in the handshake, like a kube-apiserver: the response is 401 later if it is not
/// valid. The client still has to prove that it has the key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl AnyCertificate {
    fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
