//! Reads a certificate's subject, issuer and validity. Does not check signatures: rustls does.

use jiff::Timestamp;
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

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
}
