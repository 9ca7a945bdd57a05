//! The certificates of an etcd client, from a secret in the cluster or from files, checked before use.

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, InconsistentKeys, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

pub use super::etcd_member::try_endpoints;

use super::Cluster;
use super::api::path;
use crate::calico::etcd::EtcdFiles;
use crate::fault::{Exit, Fault};
use crate::settings::SecretRef;
use crate::values::Secret;

/// The keys of the secret, as in Calico's manifests, and their contents.
const KEYS: [(&str, &str); 3] =
    [("etcd-key", "the client's key"), ("etcd-cert", "its certificate"), ("etcd-ca", "the CA")];

impl Cluster {
    /// Reads the etcd client's files from a secret, and [checks](check) them.
    ///
    /// # Errors
    /// Fault `EtcdSecretInvalid` when the secret does not exist or lacks a key, those of [`check`], and those of any
    /// request.
    pub fn etcd_files(&self, secret: &SecretRef, calico_namespace: &str, now: Timestamp) -> Result<EtcdFiles> {
        let namespace = secret.namespace.as_deref().unwrap_or(calico_namespace);
        let name = format!("{namespace}/{}", secret.name);
        let invalid = |what: String| {
            Fault::new(Exit::InvalidConfig, "EtcdSecretInvalid", what).hint(
                "name the secret that Calico on Linux mounts (usually kube-system/calico-etcd-secrets) in \
                 spec.datastore.etcd.tlsSecretRef, or copy the three files to the node and name them instead",
            )
        };
        let found: Option<KubeSecret> =
            self.get(&path(["api", "v1", "namespaces", namespace, "secrets", &secret.name]))?;
        let found =
            found.ok_or_else(|| invalid(format!("the secret {name} with etcd's certificates does not exist")))?;
        let data = found.data.unwrap_or_default();
        let lacks: Vec<String> = KEYS
            .iter()
            .filter(|(key, _)| data.get(*key).is_none_or(|value| value.0.is_empty()))
            .map(|(key, what)| format!("`{key}` ({what})"))
            .collect();
        if !lacks.is_empty() {
            return Err(invalid(format!("the secret {name} lacks {}", lacks.join(", "))).into());
        }
        let text = |key: &str| {
            let bytes = data.get(key).map(|value| value.0.clone()).unwrap_or_default();
            String::from_utf8(bytes).map_err(|_| invalid(format!("`{key}` of the secret {name} is not PEM")))
        };
        let files =
            EtcdFiles { key: Secret::new(text("etcd-key")?), cert: text("etcd-cert")?, ca_cert: text("etcd-ca")? };
        check(&files, now).with_context(|| format!("check the secret {name}"))?;
        Ok(files)
    }
}

/// Checks whether an etcd could accept this client: all three are PEM, the key matches the certificate, and it is a client
/// certificate that is valid now. etcd may trust clients of another CA than its server's, so only a member can tell whether
/// it accepts the issuer.
///
/// # Errors
/// Fault `EtcdCertificateInvalid`, which never shows the key.
pub fn check(files: &EtcdFiles, now: Timestamp) -> Result<()> {
    let invalid = |what: String| {
        let hint = "renew the certificate with etcd's CA (kubeadm: `kubeadm init phase certs \
                    apiserver-etcd-client`, or `kubeadm certs renew`), and put it into the secret or the files";
        anyhow!(Fault::new(Exit::InvalidConfig, "EtcdCertificateInvalid", what).hint(hint))
    };
    let certificates = |pem: &str, what: &str| -> Result<Vec<CertificateDer<'static>>> {
        let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect();
        if all.is_empty() { Err(invalid(format!("{what} is not a certificate in PEM format"))) } else { Ok(all) }
    };
    let chain = certificates(&files.cert, "the etcd client's certificate")?;
    let authorities = certificates(&files.ca_cert, "etcd's CA")?;
    let key = PrivateKeyDer::from_pem_slice(files.key.reveal().as_bytes())
        .map_err(|_| invalid("the etcd client's key is not a private key in PEM format".into()))?;

    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain.clone(), key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            invalid("the etcd client's key does not belong to its certificate".into())
        }
        other => invalid(format!("the etcd client's key and certificate cannot be used: {other}")),
    })?;
    drop(certified);

    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| invalid(format!("etcd's CA cannot be used: {error}")))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider))
        .build()
        .map_err(|error| invalid(format!("etcd's CA cannot be used: {error}")))?;
    let seconds = u64::try_from(now.as_second()).context("read the clock")?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let (own, intermediates) = chain.split_first().context("read the etcd client's certificate")?;
    let verified = match verifier.verify_client_cert(own, intermediates, at) {
        Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => return Ok(()),
        verified => verified.map(|_| ()),
    };
    verified.map_err(|error| {
        invalid(match error {
            rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
                "the etcd client's certificate, or its CA's, has expired".into()
            }
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => "the etcd client's certificate is not valid yet: check this machine's clock".into(),
            rustls::Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            ) => "the etcd client's certificate is not a client certificate: its extended key usage lacks clientAuth"
                .into(),
            other => format!("the etcd client's certificate is not valid: {other}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    struct Authority {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn authority(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2090, 1, 1));
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    fn client(by: &Authority, usage: ExtendedKeyUsagePurpose, until: i32) -> EtcdFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["calico".into()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(until, 1, 1));
        let cert = params.signed_by(&key, &by.issuer).unwrap().pem();
        EtcdFiles { key: Secret::new(key.serialize_pem()), cert, ca_cert: by.pem.clone() }
    }

    #[test]
    fn certificates_that_etcd_would_reject_are_detected_before_use() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let (ours, theirs) = (authority("etcd-ca"), authority("other-ca"));
        let good = client(&ours, ClientAuth, 2080);
        let other = client(&ours, ClientAuth, 2080);
        let with = |change: &dyn Fn(&mut EtcdFiles)| {
            let mut files = good.clone();
            change(&mut files);
            files
        };
        let cases = [
            ("good", good.clone()),
            ("another's key", with(&|files| files.key = other.key.clone())),
            ("another CA", with(&|files| files.ca_cert.clone_from(&theirs.pem))),
            ("expired", client(&ours, ClientAuth, 2026)),
            ("for servers", client(&ours, ServerAuth, 2080)),
            ("key in the certificate's place", with(&|files| files.cert = files.key.reveal().to_owned())),
            ("no key", with(&|files| files.key = Secret::new(String::new()))),
            ("no CA", with(&|files| files.ca_cert = "etcd-ca".into())),
        ];
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let lines = cases.map(|(name, files)| {
            let said = check(&files, now).map_or_else(|error| error.to_string(), |()| "fine".into());
            assert!(!said.contains("PRIVATE"), "{said}");
            format!("{name}: {said}\n")
        });
        insta::assert_snapshot!(lines.concat(), @r"
        good: fine
        another's key: the etcd client's key does not belong to its certificate
        another CA: fine
        expired: the etcd client's certificate, or its CA's, has expired
        for servers: the etcd client's certificate is not a client certificate: its extended key usage lacks clientAuth
        key in the certificate's place: the etcd client's certificate is not a certificate in PEM format
        no key: the etcd client's key is not a private key in PEM format
        no CA: etcd's CA is not a certificate in PEM format
        ");
    }
}
