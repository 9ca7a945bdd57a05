//! A minimal HTTPS client for the tests: one connection per request, the response as received.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

/// The identity of the client.
#[derive(Clone)]
pub enum As {
    Nobody,
    Certificate(String, String),
    Token(String),
}

#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// The body with chunks joined.
    pub body: String,
    /// False if the connection closed before the end of the body.
    pub whole: bool,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as JSON, or as a string if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| self.body.clone().into())
    }

    /// The lines of a watch.
    pub fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|l| serde_json::from_str(l).expect("a watch sends JSON lines")).collect()
    }
}

pub fn request(
    address: SocketAddr,
    ca_pem: &str,
    who: &As,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &str,
) -> anyhow::Result<Seen> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match who {
        As::Certificate(certificate, key) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(key.as_bytes())?,
        )?,
        _ => config.with_no_client_auth(),
    };
    let session = ClientConnection::new(Arc::new(config), "10.20.0.10".try_into()?)?;
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(session, socket);
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 10.20.0.10:6443\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if let As::Token(token) = who {
        text.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(text.as_bytes())?;
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        ended?;
        anyhow::bail!("the connection closed before the response");
    }
    let answer = String::from_utf8(answer)?;
    let (head, rest) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).and_then(|s| s.parse().ok()).unwrap_or(0);
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.into(), v.into())).collect();
    let mut seen = Seen { status, headers, body: rest.into(), whole: true };
    if seen.header("transfer-encoding") == Some("chunked") {
        (seen.body, seen.whole) = unchunk(rest);
    } else if let Some(length) = seen.header("content-length").and_then(|l| l.parse::<usize>().ok()) {
        seen.whole = rest.len() == length;
    }
    Ok(seen)
}

fn unchunk(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else { break };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = after.get(..size) else { break };
        body.push_str(chunk);
        rest = after.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}
