//! Reads a certificate's subject, issuer and validity. Does not check signatures: rustls does.

use jiff::Timestamp;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

use crate::values::Sha256;

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The common name, or whatever else the subject has.
    pub subject: String,
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Reads the first certificate of a PEM text; none if there is none, or it is malformed.
pub fn read(pem: &str) -> Option<Certificate> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).flatten().find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let time = |time: ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some(Certificate {
        subject: name(certificate.subject()),
        issuer: name(certificate.issuer()),
        not_before: time(certificate.validity().not_before)?,
        not_after: time(certificate.validity().not_after)?,
    })
}

/// The digest of each certificate's public key (SubjectPublicKeyInfo) in a PEM text, by which kubeadm names a CA.
pub fn key_digests(pem: &str) -> Vec<Sha256> {
    let pems = Pem::iter_from_buffer(pem.as_bytes()).flatten().filter(|pem| pem.label == "CERTIFICATE");
    pems.filter_map(|pem| Some(Sha256::of(pem.parse_x509().ok()?.public_key().raw))).collect()
}

/// The common name that a certificate request (PEM) asks for.
pub fn requested_name(pem: &str) -> Option<String> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).flatten().find(|pem| pem.label == "CERTIFICATE REQUEST")?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &request.certification_request_info.subject;
    Some(subject.iter_common_name().next()?.as_str().ok()?.to_owned())
}

/// A distinguished name: its common name, else its organisation, else nothing.
fn name(name: &X509Name<'_>) -> String {
    let mut names = name.iter_common_name().chain(name.iter_organization());
    names.find_map(|name| name.as_str().ok()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn pem(subject: &str, years: (i32, i32)) -> String {
        let mut params = CertificateParams::new(vec!["etcd-0".into()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        if !subject.is_empty() {
            params.distinguished_name.push(DnType::CommonName, subject);
        }
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 2, 3), date_time_ymd(years.1, 12, 31));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_certificate_gives_its_subject_and_validity() {
        let read = |subject, years| read(&pem(subject, years)).unwrap();
        let one = read("calico", (2024, 2049));
        assert_eq!((one.subject.as_str(), one.issuer.as_str()), ("calico", "calico"));
        assert_eq!(one.not_before.to_string(), "2024-02-03T00:00:00Z");
        assert_eq!(one.not_after.to_string(), "2049-12-31T00:00:00Z");
        assert_eq!(read("calico", (1999, 2050)).not_before.to_string(), "1999-02-03T00:00:00Z");
        assert_eq!(read("calico", (1999, 2050)).not_after.to_string(), "2050-12-31T00:00:00Z");
        assert_eq!(read("", (2024, 2049)).subject, "system:masters");
    }

    #[test]
    fn text_that_is_not_a_certificate_is_none() {
        let good = pem("calico", (2024, 2049));
        for bad in [String::new(), good.replace("CERTIFICATE", "PRIVATE KEY"), good.replacen("MII", "!!!", 1)] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_ca_is_known_by_the_digest_of_its_public_key() {
        let key = KeyPair::generate().unwrap();
        let make = |years| {
            let mut params = CertificateParams::new(vec!["ca".into()]).unwrap();
            (params.not_before, params.not_after) = (date_time_ymd(years, 1, 1), date_time_ymd(years + 1, 1, 1));
            params.self_signed(&key).unwrap().pem()
        };
        let (old, new) = (make(2024), make(2030));
        assert_eq!(key_digests(&old), key_digests(&new), "a renewed certificate has the same key");
        assert_eq!(key_digests(&format!("{old}{}", pem("other", (2024, 2049)))).len(), 2);
        assert_eq!(key_digests(""), []);
    }

    #[test]
    fn a_request_names_what_it_is_for() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:win-a1");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        assert_eq!(requested_name(&request).as_deref(), Some("system:node:win-a1"));
        assert_eq!(requested_name("no request"), None);
    }
}
