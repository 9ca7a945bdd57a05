//! The part of a member of etcd that an install uses: it accepts clients of its CA, returns its version, and reads keys.
//! `tests/it/real` has the stories with etcd itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// What Calico keeps in etcd for a cluster with VXLAN.
const CALICOS: [(&str, &str); 4] = [
    ("/calico/ipam/v2/config", r#"{"strict_affinity":true,"auto_allocate_blocks":true}"#),
    (
        "/calico/resources/v3/projectcalico.org/clusterinformations/default",
        r#"{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"calicoVersion":"v3.32.1"}}"#,
    ),
    (
        "/calico/resources/v3/projectcalico.org/felixconfigurations/default",
        r#"{"kind":"FelixConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"vxlanEnabled":true}}"#,
    ),
    (
        "/calico/resources/v3/projectcalico.org/ippools/default-ipv4-ippool",
        r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"default-ipv4-ippool"},"spec":{"cidr":"192.168.0.0/16","vxlanMode":"Always","ipipMode":"Never","blockSize":26,"nodeSelector":"all()"}}"#,
    ),
];

type Keys = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// A running member with its clients' files, in PEM. It ends with the test process.
pub struct Etcd {
    pub url: String,
    pub ca: String,
    pub cert: String,
    pub key: String,
    /// A certificate that has expired, and its key.
    pub expired: (String, String),
}

impl Etcd {
    /// With TLS, at 127.0.0.1.
    pub fn start() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "etcd-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);
        let sign = |name: &str, usage, until| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
            params.extended_key_usages = vec![usage];
            params.not_after = rcgen::date_time_ymd(until, 1, 1);
            (params.signed_by(&key, &issuer).unwrap(), key.serialize_pem())
        };
        let (server, server_key) = sign("etcd-0", ExtendedKeyUsagePurpose::ServerAuth, 2090);
        let (client, key) = sign("calico", ExtendedKeyUsagePurpose::ClientAuth, 2090);
        let (old, old_key) = sign("calico", ExtendedKeyUsagePurpose::ClientAuth, 2020);

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![server.der().clone()], PrivateKeyDer::from_pem_slice(server_key.as_bytes()).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::mem::forget(serve(listener, Some(TlsAcceptor::from(Arc::new(config))), calicos()));
        Self {
            url: format!("https://{address}"),
            ca: authority.pem(),
            cert: client.pem(),
            key,
            expired: (old.pem(), old_key),
        }
    }

    /// Returns the URL of a member without TLS.
    pub fn plain() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::mem::forget(serve(listener, None, calicos()));
        format!("http://{address}")
    }
}

/// A member without TLS that can be stopped, and started again at the same address with the same keys.
pub struct Member {
    address: SocketAddr,
    keys: Keys,
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Member {
    pub fn start() -> Self {
        let mut member = Self { address: ([127, 0, 0, 1], 0).into(), keys: calicos(), serving: None };
        member.start_again();
        member
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Writes a key.
    pub fn put(&self, key: &str, value: &str) {
        self.keys.lock().unwrap().insert(key.into(), value.into());
    }

    pub fn start_again(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        self.serving = Some(serve(listener, None, Arc::clone(&self.keys)));
    }

    pub fn stop(&mut self) {
        let (end, thread) = self.serving.take().unwrap();
        drop(end);
        thread.join().unwrap();
    }
}

fn calicos() -> Keys {
    Arc::new(Mutex::new(CALICOS.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()))
}

/// Answers until the sender is sent or the process ends.
fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, keys: Keys) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (end, ended) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tokio::spawn(async move {
                loop {
                    let (socket, _) = listener.accept().await.unwrap();
                    let (tls, keys) = (tls.clone(), Arc::clone(&keys));
                    tokio::spawn(async move {
                        match tls {
                            None => answer(socket, keys).await,
                            // Some clients are refused.
                            Some(tls) => {
                                if let Ok(session) = tls.accept(socket).await {
                                    answer(session, keys).await;
                                }
                            }
                        }
                    });
                }
            });
            let _ended: Result<(), _> = ended.await;
        });
    });
    (end, thread)
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, keys: Keys) {
    let service = service_fn(move |request: Request<Incoming>| {
        let keys = Arc::clone(&keys);
        async move {
            Ok::<_, Infallible>(match request.uri().path() {
                "/version" => {
                    Response::new(Full::from(r#"{"etcdserver":"3.5.30","etcdcluster":"3.5.0"}"#).boxed_unsync())
                }
                "/etcdserverpb.KV/Range" => range(&request.into_body().collect().await.unwrap().to_bytes(), &keys),
                other => panic!("etcd was asked for {other}"),
            })
        }
    });
    // A client that disconnects gets no answer.
    let _ended = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = 1)]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = 2)]
    range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = 2)]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = 1)]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = 5)]
    value: Vec<u8>,
}

fn range(message: &[u8], keys: &Keys) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let asked = RangeRequest::decode(&message[5..]).unwrap();
    let end = match asked.range_end.as_slice() {
        [] => Included(asked.key.clone()),
        [0] => Unbounded,
        end => Excluded(end.to_vec()),
    };
    let keys = keys.lock().unwrap();
    let found = keys.range((Included(asked.key), end));
    let answer =
        RangeResponse { kvs: found.map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() }).collect() };
    let answer = answer.encode_to_vec();
    let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
    let body = Full::from([&[0], length.as_slice(), &answer].concat());
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}
