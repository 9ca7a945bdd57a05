//! The cluster's own certificate authority, in `pki/` next to its state, so that a kubeconfig from one process works in
//! the next. ECDSA P-256 throughout, generated in a few milliseconds.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};

/// The official address of the API. Sandbox clients dial the real, ephemeral address with this name.
pub const SERVER_NAME: &str = "10.20.0.10";
const SANS: [&str; 5] = [SERVER_NAME, "127.0.0.1", "localhost", "kubernetes", "kubernetes.default"];

pub struct Pki {
    pub ca_pem: String,
    ca_key: KeyPair,
    pub server_chain: Vec<CertificateDer<'static>>,
    pub server_key: PrivateKeyDer<'static>,
    /// Certificate and key of `kubernetes-admin` in `system:masters`, PEM.
    pub admin: (String, String),
    clients: Arc<dyn ClientCertVerifier>,
}

/// The validity of certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    TenYears,
    /// Expired before today: certificates that were never rotated.
    Expired,
}

/// What can be wrong with a server's certificate although its CA is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongCertificate {
    Expired,
    OtherName,
    SelfSigned,
}

impl Pki {
    /// Opens the authority in `dir`, or creates one.
    pub fn open(dir: &Path, validity: Validity) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let ca_key = key_at(&dir.join("ca.key"))?;
        let ca_pem = kept(&dir.join("ca.crt"), || Ok(ca_params(validity).self_signed(&ca_key)?.pem()))?;
        let server_key = key_at(&dir.join("apiserver.key"))?;
        let server_pem = kept(&dir.join("apiserver.crt"), || {
            let mut params = leaf("kube-apiserver", None, validity);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            for name in SANS {
                params.subject_alt_names.push(match name.parse() {
                    Ok(ip) => SanType::IpAddress(ip),
                    Err(_) => SanType::DnsName(name.try_into()?),
                });
            }
            Ok(params.signed_by(&server_key, &issuer(&ca_key, validity))?.pem())
        })?;
        let admin_key = key_at(&dir.join("admin.key"))?;
        let admin_pem = kept(&dir.join("admin.crt"), || {
            let params = leaf("kubernetes-admin", Some("system:masters"), validity);
            Ok(params.signed_by(&admin_key, &issuer(&ca_key, validity))?.pem())
        })?;

        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).context("read the cluster's CA")?;
        let mut roots = RootCertStore::empty();
        roots.add(ca)?;
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self {
            server_chain: vec![CertificateDer::from_pem_slice(server_pem.as_bytes())?],
            server_key: PrivateKeyDer::from_pem_slice(server_key.serialize_pem().as_bytes())?,
            admin: (admin_pem, admin_key.serialize_pem()),
            ca_pem,
            ca_key,
            clients,
        })
    }

    /// The same authority with a server certificate that clients must refuse.
    pub fn serving(mut self, wrong: WrongCertificate) -> Result<Self> {
        let key = KeyPair::generate()?;
        let validity = if wrong == WrongCertificate::Expired { Validity::Expired } else { Validity::TenYears };
        let mut params = leaf("kube-apiserver", None, validity);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = match wrong {
            WrongCertificate::OtherName => vec![SanType::DnsName("another.example".try_into()?)],
            _ => vec![SanType::IpAddress(SERVER_NAME.parse()?)],
        };
        let certificate = match wrong {
            WrongCertificate::SelfSigned => params.self_signed(&key)?,
            _ => params.signed_by(&key, &issuer(&self.ca_key, Validity::TenYears))?,
        };
        self.server_chain = vec![certificate.der().clone()];
        self.server_key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
        Ok(self)
    }

    /// Another client certificate of this authority and its key, PEM: `CN=user`, `O=group`.
    pub fn issue_client(&self, user: &str, group: Option<&str>) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        let params = leaf(user, group, Validity::TenYears);
        Ok((params.signed_by(&key, &issuer(&self.ca_key, Validity::TenYears))?.pem(), key.serialize_pem()))
    }

    /// User and groups of a client certificate; none if it is not of this authority or has expired.
    pub fn client(&self, certificate: &CertificateDer<'_>) -> Option<(String, Vec<String>)> {
        self.clients.verify_client_cert(certificate, &[], UnixTime::now()).ok()?;
        subject(certificate)
    }

    /// A kubeconfig for the admin that names `server`.
    pub fn admin_kubeconfig(&self, server: &str) -> String {
        kubeconfig(server, &self.ca_pem, "kubernetes-admin", &self.admin)
    }
}

/// A kubeconfig of one cluster and one user with everything inline.
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str, (certificate, key): &(String, String)) -> String {
    let (ca, certificate, key) = (STANDARD.encode(ca_pem), STANDARD.encode(certificate), STANDARD.encode(key));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: sandbox
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {user}@sandbox
  context:
    cluster: sandbox
    user: {user}
current-context: {user}@sandbox
"
    )
}

fn ca_params(validity: Validity) -> CertificateParams {
    let mut params = leaf("kubernetes", None, validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages.clear();
    params
}

fn issuer(key: &KeyPair, validity: Validity) -> Issuer<'static, &KeyPair> {
    Issuer::new(ca_params(validity), key)
}

fn leaf(common_name: &str, organization: Option<&str>, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let now = SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    let (from, until) = match validity {
        // From a day ago, for clocks that are a little slow.
        Validity::TenYears => (now - day, now + 3650 * day),
        Validity::Expired => (now - 366 * day, now - day),
    };
    params.not_before = from.into();
    params.not_after = until.into();
    params
}

/// The private key in `path`, created on first use.
fn key_at(path: &Path) -> Result<KeyPair> {
    let pem = kept(path, || Ok(KeyPair::generate()?.serialize_pem()))?;
    KeyPair::from_pem(&pem).with_context(|| format!("read {}", path.display()))
}

/// The text in `path`; if there is none, `make` creates it and it is written there.
pub fn kept(path: &Path, make: impl FnOnce() -> Result<String>) -> Result<String> {
    if let Ok(text) = fs::read_to_string(path) {
        return Ok(text);
    }
    let text = make().with_context(|| format!("make {}", path.display()))?;
    fs::write(path, &text).with_context(|| format!("write {}", path.display()))?;
    Ok(text)
}

/// User (CN) and groups (each O) of a client's certificate in DER, by Kubernetes' rules; none if it has no CN or is
/// malformed. Its signature was checked before.
fn subject(certificate: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let text = |name: &AttributeTypeAndValue<'_>| name.as_str().ok().map(str::to_owned);
    let user = subject.iter_common_name().last().and_then(text)?;
    Some((user, subject.iter_organization().map(text).collect::<Option<_>>()?))
}
