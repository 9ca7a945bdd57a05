//! The subject of an X.509 certificate: Kubernetes takes a client's user name from CN and its
//! groups from O. The certificate's signature has been checked before this reads it.

use crate::calico::x509::{COMMON_NAME, ORGANISATION, attributes, element};

/// User (CN) and groups (each O) of a DER certificate; nothing when it has no CN or is malformed.
pub fn subject(certificate: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    // version [0], serialNumber, signature, issuer, validity, then subject.
    let mut skip = 5;
    while skip > 0 {
        let (_, _, after) = element(rest)?;
        rest = after;
        skip -= 1;
    }
    let (_, names, _) = element(rest)?;
    let (mut user, mut groups) = (None, Vec::new());
    for (oid, text) in attributes(names)? {
        let text = String::from_utf8(text.to_vec()).ok()?;
        match oid {
            COMMON_NAME => user = Some(text),
            ORGANISATION => groups.push(text),
            _ => {}
        }
    }
    Some((user?, groups))
}
