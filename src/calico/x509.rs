//! What people ask of a certificate: whose it is, who made it, and how long it holds. Signatures are
//! rustls' to check; this only reads.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// What stands in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The common name, or what else there is of the subject.
    pub subject: String,
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Reads the first certificate of a PEM text; none when there is none, or it is malformed.
pub fn read(pem: &str) -> Option<Certificate> {
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let compact: String = body.split_whitespace().collect();
    of_der(&STANDARD.decode(compact).ok()?)
}

fn of_der(der: &[u8]) -> Option<Certificate> {
    let (_, certificate, _) = element(der)?;
    let (_, mut rest, _) = element(certificate)?;
    // version [0], which the oldest certificates do not have, serialNumber, signature.
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.2;
    }
    let (_, _, rest) = element(rest)?;
    let (_, _, rest) = element(rest)?;
    let (_, issuer, rest) = element(rest)?;
    let (_, validity, rest) = element(rest)?;
    let (_, subject, _) = element(rest)?;
    let (tag, from, until) = element(validity)?;
    let (tag_until, until, _) = element(until)?;
    Some(Certificate {
        subject: name(subject)?,
        issuer: name(issuer)?,
        not_before: time(tag, from)?,
        not_after: time(tag_until, until)?,
    })
}

/// A distinguished name: its common name, else its organisation, else nothing.
fn name(names: &[u8]) -> Option<String> {
    let (mut common, mut organisation) = (None, None);
    for (oid, text) in attributes(names)? {
        let text = String::from_utf8_lossy(text).into_owned();
        match oid {
            COMMON_NAME => common = Some(text),
            ORGANISATION => organisation = Some(text),
            _ => {}
        }
    }
    Some(common.or(organisation).unwrap_or_default())
}

/// The attribute CN of a distinguished name, and O (RFC 4519).
pub const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
pub const ORGANISATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Type and value of each attribute of a distinguished name; none when it is malformed.
pub fn attributes(mut names: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut attributes = Vec::new();
    while !names.is_empty() {
        let (_, mut set, after) = element(names)?;
        names = after;
        while !set.is_empty() {
            let (_, attribute, next) = element(set)?;
            set = next;
            let (_, oid, value) = element(attribute)?;
            attributes.push((oid, element(value)?.1));
        }
    }
    Some(attributes)
}

/// UTCTime (tag 0x17), whose years are 1950 to 2049, and GeneralizedTime; both end in `Z` (RFC 5280).
fn time(tag: u8, text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let full = match (tag, text.get(..2)?.parse::<u8>().ok()?) {
        (0x17, ..50) => format!("20{text}"),
        (0x17, _) => format!("19{text}"),
        _ => text.to_owned(),
    };
    let civil = DateTime::strptime("%Y%m%d%H%M%S", &full).ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Tag, contents, and what follows, of the first element of a DER text.
pub fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count > 4 || rest.len() < count {
            return None;
        }
        (rest[..count].iter().fold(0, |n, b| n << 8 | usize::from(*b)), &rest[count..])
    };
    (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
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
    fn a_certificate_says_whose_it_is_and_how_long_it_holds() {
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
    fn what_is_no_certificate_is_none() {
        let good = pem("calico", (2024, 2049));
        for bad in [String::new(), good.replace("CERTIFICATE", "PRIVATE KEY"), good.replacen("MII", "!!!", 1)] {
            assert_eq!(read(&bad), None, "{bad}");
        }
        let der = STANDARD.decode(good.lines().filter(|line| !line.starts_with('-')).collect::<String>()).unwrap();
        for length in 0..der.len().min(300) {
            // Never a panic, wherever it is cut.
            drop(of_der(&der[..length]));
        }
    }
}
