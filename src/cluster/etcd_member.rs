//! Tests the members of an etcd cluster: connects to each as Calico will, over TLS 1.2 or 1.3, and asks for its
//! version.

use std::io::{self, ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::Uri;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::calico::etcd::EtcdFiles;
use crate::fault::{Exit, Fault};

/// Longest answer to `/version` that is read.
const LONGEST: u64 = 64 * 1024;

/// Tests every endpoint at the same time. A cluster works while some members are down, so an unreachable one is only
/// reported while another one answers. Returns the unreachable ones, a sentence each.
///
/// `files` are the client's. A config without them has no endpoint with `https` (see `config::rules`).
///
/// # Errors
/// Faults `EtcdUnreachable` when no member can be reached; `EtcdCertificateName`, `EtcdCertificateExpired`,
/// `EtcdCaUnknown`, `EtcdTlsVersion`, `EtcdRefusesClient`, `EtcdTls` and `EtcdNotEtcd` for the first member that Calico
/// cannot use.
pub fn try_endpoints(endpoints: &[String], files: Option<&EtcdFiles>, limit: Duration) -> Result<Vec<String>> {
    let tls = files.map(client).transpose()?.map(Arc::new);
    let tried: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                let tls = tls.clone();
                scope.spawn(move || try_one(endpoint, tls, limit))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::other("could not be tested"))))
            .collect()
    });
    let mut away = Vec::new();
    for (endpoint, result) in endpoints.iter().zip(tried) {
        match result {
            Ok(()) => {}
            Err(Failure { id: "EtcdUnreachable", what, .. }) => away.push(format!("etcd at {endpoint} {what}")),
            Err(Failure { id, what, hint }) => {
                let what = format!("etcd at {endpoint} {what}");
                return Err(Fault::new(Exit::ClusterUnreachable, id, what).hint(hint).into());
            }
        }
    }
    if away.len() < endpoints.len() || endpoints.is_empty() {
        return Ok(away);
    }
    Err(Fault::new(Exit::ClusterUnreachable, "EtcdUnreachable", away.join("; "))
        .hint(
            "check the address and port (spec.datastore.etcd.endpoints), that etcd does not listen on 127.0.0.1 only, \
             and that firewalls allow port 2379; Windows hosts cannot reach a ClusterIP: use the members' own addresses",
        )
        .into())
}

/// Why a member cannot be used.
struct Failure {
    id: &'static str,
    /// Follows "etcd at URL".
    what: String,
    hint: &'static str,
}

impl Failure {
    fn new(id: &'static str, what: impl Into<String>, hint: &'static str) -> Self {
        Self { id, what: what.into(), hint }
    }

    fn other(what: &str) -> Self {
        Self::new("EtcdTls", what.to_owned(), "etcd's log at this time says why it closed the connection")
    }

    fn unreachable(error: &io::Error, limit: Duration) -> Self {
        let what = match error.kind() {
            ErrorKind::ConnectionRefused => "refuses the connection".to_owned(),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => format!("does not answer within {} s", limit.as_secs()),
            _ => format!("cannot be reached: {error}"),
        };
        Self::new("EtcdUnreachable", what, "")
    }
}

/// Like Calico's own client: only the CA is trusted, and the client's certificate is sent.
pub(super) fn client(files: &EtcdFiles) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(files.ca_cert.as_bytes()).filter_map(Result::ok) {
        roots.add(authority).context("use etcd's CA")?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .context("use etcd's CA")?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(files.cert.as_bytes()).filter_map(Result::ok).collect();
    let key = PrivateKeyDer::from_pem_slice(files.key.reveal().as_bytes())
        .map_err(|_| anyhow!("the etcd client's key is not a private key in PEM format"))?;
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .context("enable TLS 1.2 and 1.3")?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .context("use the etcd client's certificate")
}

fn try_one(endpoint: &str, tls: Option<Arc<ClientConfig>>, limit: Duration) -> Result<(), Failure> {
    let url: Uri = endpoint.parse().map_err(|_| Failure::other("is not a URL"))?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let secure = url.scheme_str() == Some("https");
    if secure && tls.is_none() {
        return Err(Failure::new(
            "EtcdTls",
            "requires TLS, but no certificates are configured",
            "set spec.datastore.etcd.keyFile, certFile and caCertFile, or tlsSecretRef",
        ));
    }
    let port = url.port_u16().unwrap_or(2379);
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| Failure::new("EtcdUnreachable", format!("has a name that cannot be resolved: {error}"), ""))?;
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    let mut connected = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => {
                connected = Some(socket);
                break;
            }
            Err(error) => last = error,
        }
    }
    let socket = connected.ok_or_else(|| Failure::unreachable(&last, limit))?;
    socket
        .set_read_timeout(Some(limit))
        .and_then(|()| socket.set_write_timeout(Some(limit)))
        .map_err(|error| Failure::unreachable(&error, limit))?;
    let answer = match tls.filter(|_| secure) {
        Some(config) => {
            let name =
                ServerName::try_from(host.to_owned()).map_err(|_| Failure::other("has no host name to verify"))?;
            let session = ClientConnection::new(config, name).map_err(|error| Failure::other(&error.to_string()))?;
            ask(StreamOwned::new(session, socket), host)
        }
        None => ask(socket, host),
    };
    let answer = answer.map_err(|error| read(&error, (host, secure), limit))?;
    if answer.contains("etcdserver") {
        return Ok(());
    }
    let first = answer.lines().next().unwrap_or_default();
    let http = if secure { "" } else { " (over http; it may require https)" };
    Err(Failure::new(
        "EtcdNotEtcd",
        format!("is not etcd: it answers `{first}` instead of its version{http}"),
        "use the members' client URLs: `etcdctl member list` shows them, usually https://…:2379",
    ))
}

/// Asks for the version: etcd answers every client that it accepts.
fn ask(mut stream: impl Read + io::Write, host: &str) -> io::Result<String> {
    // In one piece: a server that answers before the last piece has arrived would reset the connection.
    let request = format!("GET /version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut limited = (&mut stream).take(LONGEST);
    match limited.read_to_end(&mut answer) {
        // Some servers close without a TLS close; only the response counts.
        Err(_) if !answer.is_empty() => {}
        Err(error) => return Err(error),
        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn refused() -> Failure {
    Failure::new(
        "EtcdRefusesClient",
        "rejects the client's certificate",
        "it must be a client certificate (clientAuth), signed by the CA in etcd's --trusted-ca-file, which may be \
         another one than that of etcd's own certificate; etcd's log has the reason",
    )
}

/// The failure for an error of TLS or the network.
fn read(error: &io::Error, (host, secure): (&str, bool), limit: Duration) -> Failure {
    use rustls::Error as Tls;
    const RENEW: &str = "renew etcd's server certificate (kubeadm certs renew etcd-server) and restart etcd";
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) else {
        return match error.kind() {
            // With TLS 1.3 the client finishes before the server has checked its certificate, so a closed connection
            // may be all that remains of the server's refusal.
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if secure => refused(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Failure::other("closes the connection without a response")
            }
            _ => Failure::unreachable(error, limit),
        };
    };
    match tls {
        Tls::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Failure::new(
            "EtcdCertificateName",
            format!("has a certificate for other names than {host}"),
            "use a name of its certificate (openssl x509 -ext subjectAltName shows them), \
                 or renew it with this name or address",
        ),
        Tls::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            Failure::new("EtcdCertificateExpired", "has a certificate that has expired", RENEW)
        }
        Tls::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            Failure::new(
                "EtcdCertificateExpired",
                "has a certificate that is not valid yet",
                "correct the clock of this machine",
            )
        }
        Tls::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => Failure::new(
            "EtcdCaUnknown",
            "has a certificate that the given CA did not sign",
            "use etcd's own CA (kubeadm: /etc/kubernetes/pki/etcd/ca.crt, not the cluster's)",
        ),
        Tls::PeerIncompatible(_) | Tls::AlertReceived(AlertDescription::ProtocolVersion) => Failure::new(
            "EtcdTlsVersion",
            "does not support TLS 1.2 or 1.3",
            "enable TLS 1.2 in etcd (--tls-min-version and its cipher suites), or update it",
        ),
        Tls::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => refused(),
        Tls::InvalidMessage(_) => Failure::new(
            "EtcdNotEtcd",
            "does not use TLS",
            "check whether the endpoint is http://, and its port: etcd's client port is usually 2379",
        ),
        other => Failure::other(&format!("failed the TLS handshake: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{SocketAddr, TcpListener};

    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
    };
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::values::Secret;

    struct Authority {
        pem: String,
        der: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new(name: &str) -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).unwrap();
            Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
        }

        fn sign(&self, name: SanType, usage: ExtendedKeyUsagePurpose, until: i32) -> (String, KeyPair) {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.subject_alt_names = vec![name];
            params.extended_key_usages = vec![usage];
            params.not_after = date_time_ymd(until, 1, 1);
            (params.signed_by(&key, &self.issuer).unwrap().pem(), key)
        }

        fn client(&self) -> EtcdFiles {
            let name = SanType::DnsName("calico".try_into().unwrap());
            let (cert, key) = self.sign(name, ExtendedKeyUsagePurpose::ClientAuth, 2090);
            EtcdFiles { key: Secret::new(key.serialize_pem()), cert, ca_cert: self.pem.clone() }
        }
    }

    fn loopback() -> SanType {
        SanType::IpAddress("127.0.0.1".parse().unwrap())
    }

    /// Listens, and handles every connection with `serve`.
    fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().for_each(|socket| serve(socket.unwrap())));
        address
    }

    const VERSION: &str = r#"{"etcdserver":"3.5.30","etcdcluster":"3.5.0"}"#;

    fn answer(mut stream: impl Read + io::Write, body: &str) {
        let mut request = [0; 1024];
        // A client that closed gets no response.
        let Ok(1..) = stream.read(&mut request) else { return };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        drop(stream.write_all(format!("{head}{body}").as_bytes()).and_then(|()| stream.flush()));
    }

    /// A member with this certificate that accepts clients signed by `trusted`.
    fn member(
        by: &Authority,
        name: SanType,
        until: i32,
        trusted: &Authority,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> SocketAddr {
        let (cert, key) = by.sign(name, ExtendedKeyUsagePurpose::ServerAuth, until);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der.clone()).unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        let config = Arc::new(config);
        listen(move |socket| {
            answer(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket), VERSION);
        })
    }

    fn plain(body: &'static str) -> SocketAddr {
        listen(move |socket| answer(socket, body))
    }

    /// Like an OpenSSL limited to TLS 1.1: a fatal alert, or a ServerHello of 1.1.
    fn old(reply: &'static [u8]) -> SocketAddr {
        listen(move |mut socket| {
            let mut hello = [0; 4096];
            if socket.read(&mut hello).is_ok() {
                drop(socket.write_all(reply));
            }
        })
    }

    fn nobody() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn said(endpoints: &[String], files: &EtcdFiles) -> String {
        let text = match try_endpoints(endpoints, Some(files), Duration::from_secs(20)) {
            Ok(away) if away.is_empty() => "fine".into(),
            Ok(away) => format!("fine, but {}", away.join(", ")),
            Err(error) => {
                let fault = Fault::of(&error).unwrap();
                assert!(fault.hint.is_some() && !format!("{error:?}").contains("PRIVATE"), "{error:?}");
                format!("{}: {error}", fault.id)
            }
        };
        regex::Regex::new(r":\d+").unwrap().replace_all(&text, ":PORT").into_owned()
    }

    #[test]
    fn every_failure_of_a_member_has_its_own_id() {
        let (ours, theirs) = (Authority::new("etcd-ca"), Authority::new("other-ca"));
        let files = ours.client();
        let (tls12, tls13) = (&rustls::version::TLS12, &rustls::version::TLS13);
        let other_name = || SanType::DnsName("etcd-0.example".try_into().unwrap());
        let url = |address: SocketAddr| format!("https://{address}");
        // TLS 1.1 in record and ServerHello, a random of zeros, no session, AES128-SHA, no compression.
        let mut hello = vec![22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
        hello.extend([0; 32]);
        hello.extend([0, 0, 0x2f, 0]);
        let cases = [
            ("TLS 1.3", url(member(&ours, loopback(), 2090, &ours, tls13))),
            ("TLS 1.2", url(member(&ours, loopback(), 2090, &ours, tls12))),
            ("http", format!("http://{}", plain(VERSION))),
            ("wrong SAN", url(member(&ours, other_name(), 2090, &ours, tls13))),
            ("expired", url(member(&ours, loopback(), 2020, &ours, tls13))),
            ("unknown CA", url(member(&theirs, loopback(), 2090, &ours, tls13))),
            ("client of another CA, 1.3", url(member(&ours, loopback(), 2090, &theirs, tls13))),
            ("client of another CA, 1.2", url(member(&ours, loopback(), 2090, &theirs, tls12))),
            ("TLS 1.1 by alert", url(old(&[21, 3, 2, 0, 2, 2, 70]))),
            ("TLS 1.1 by hello", url(old(hello.leak()))),
            ("https to http", url(plain(VERSION))),
            ("a web server", format!("http://{}", plain("<html>hello</html>"))),
            ("nobody", url(nobody())),
        ];
        let lines: Vec<String> =
            cases.into_iter().map(|(name, url)| format!("{name}: {}\n", said(&[url], &files))).collect();
        insta::assert_snapshot!(lines.concat(), @"
        TLS 1.3: fine
        TLS 1.2: fine
        http: fine
        wrong SAN: EtcdCertificateName: etcd at https://127.0.0.1:PORT has a certificate for other names than 127.0.0.1
        expired: EtcdCertificateExpired: etcd at https://127.0.0.1:PORT has a certificate that has expired
        unknown CA: EtcdCaUnknown: etcd at https://127.0.0.1:PORT has a certificate that the given CA did not sign
        client of another CA, 1.3: EtcdRefusesClient: etcd at https://127.0.0.1:PORT rejects the client's certificate
        client of another CA, 1.2: EtcdRefusesClient: etcd at https://127.0.0.1:PORT rejects the client's certificate
        TLS 1.1 by alert: EtcdTlsVersion: etcd at https://127.0.0.1:PORT does not support TLS 1.2 or 1.3
        TLS 1.1 by hello: EtcdTlsVersion: etcd at https://127.0.0.1:PORT does not support TLS 1.2 or 1.3
        https to http: EtcdNotEtcd: etcd at https://127.0.0.1:PORT does not use TLS
        a web server: EtcdNotEtcd: etcd at http://127.0.0.1:PORT is not etcd: it answers `HTTP/1.1 200 OK` instead of its version (over http; it may require https)
        nobody: EtcdUnreachable: etcd at https://127.0.0.1:PORT refuses the connection
        ");
    }

    #[test]
    fn a_client_of_another_ca_is_accepted_if_etcd_trusts_that_one() {
        let (servers, clients) = (Authority::new("etcd-server-ca"), Authority::new("etcd-client-ca"));
        let files = EtcdFiles { ca_cert: servers.pem.clone(), ..clients.client() };
        super::super::etcd::check(&files, jiff::Timestamp::now()).unwrap();
        let trusting = member(&servers, loopback(), 2090, &clients, &rustls::version::TLS13);
        assert_eq!(said(&[format!("https://{trusting}")], &files), "fine");
        let other = member(&servers, loopback(), 2090, &servers, &rustls::version::TLS13);
        assert!(said(&[format!("https://{other}")], &files).starts_with("EtcdRefusesClient: "));
    }

    #[test]
    fn a_member_that_is_down_is_named_while_another_one_answers() {
        let ours = Authority::new("etcd-ca");
        let up = format!("https://{}", member(&ours, loopback(), 2090, &ours, &rustls::version::TLS13));
        let down = format!("https://{}", nobody());
        assert_eq!(
            said(&[down.clone(), up], &ours.client()),
            "fine, but etcd at https://127.0.0.1:PORT refuses the connection"
        );
        assert!(said(&[down.clone(), down], &ours.client()).starts_with("EtcdUnreachable: "));
    }
}
