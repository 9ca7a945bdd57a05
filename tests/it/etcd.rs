//! The part of a member of etcd that an install uses: it accepts clients of its CA, and returns its version.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

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
        let config = Arc::new(config);
        let address =
            listen(move |socket| answer(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket)));
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
        format!("http://{}", listen(answer))
    }
}

/// A member without TLS that can be stopped, and started again at the same address.
pub struct Member {
    address: SocketAddr,
    serving: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Member {
    pub fn start() -> Self {
        let mut member = Self { address: ([127, 0, 0, 1], 0).into(), serving: None };
        member.start_again();
        member
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn start_again(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&gone);
        let sockets = move || listener.incoming().take_while(|_| !seen.load(SeqCst)).for_each(|s| answer(s.unwrap()));
        self.serving = Some((gone, std::thread::spawn(sockets)));
    }

    pub fn stop(&mut self) {
        let (gone, thread) = self.serving.take().unwrap();
        gone.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        thread.join().unwrap();
    }
}

fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(|socket| serve(socket.unwrap())));
    address
}

fn answer(mut stream: impl Read + Write) {
    let mut request = [0; 1024];
    // A client that disconnects gets no answer.
    let Ok(1..) = stream.read(&mut request) else { return };
    let body = r#"{"etcdserver":"3.5.30","etcdcluster":"3.5.0"}"#;
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    drop(stream.write_all(text.as_bytes()).and_then(|()| stream.flush()));
}
