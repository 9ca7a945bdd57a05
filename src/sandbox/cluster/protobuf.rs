//! The few request bodies that kubectl always sends as protobuf, converted to JSON: token requests, access reviews,
//! evictions and delete options. Field numbers are those of Kubernetes' `generated.proto` files, which are frozen.
//! Responses are always JSON.

use serde_json::{Map, Value, json};

enum Of {
    Text,
    Integer,
    Texts,
    Message(&'static [Field]),
}

/// Number, name, type.
type Field = (u64, &'static str, Of);

const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Of::Integer),
    (2, "preconditions", Of::Message(&[(1, "uid", Of::Text), (2, "resourceVersion", Of::Text)])),
    (4, "propagationPolicy", Of::Text),
    (5, "dryRun", Of::Texts),
];

const METADATA: &[Field] = &[(1, "name", Of::Text), (3, "namespace", Of::Text)];

const TOKEN_REQUEST: &[Field] = &[(
    2,
    "spec",
    Of::Message(&[
        (1, "audiences", Of::Texts),
        (
            3,
            "boundObjectRef",
            Of::Message(&[
                (1, "kind", Of::Text),
                (2, "apiVersion", Of::Text),
                (3, "name", Of::Text),
                (4, "uid", Of::Text),
            ]),
        ),
        (4, "expirationSeconds", Of::Integer),
    ]),
)];

const ACCESS_REVIEW: &[Field] = &[(
    2,
    "spec",
    Of::Message(&[
        (
            1,
            "resourceAttributes",
            Of::Message(&[
                (1, "namespace", Of::Text),
                (2, "verb", Of::Text),
                (3, "group", Of::Text),
                (4, "version", Of::Text),
                (5, "resource", Of::Text),
                (6, "subresource", Of::Text),
                (7, "name", Of::Text),
            ]),
        ),
        (2, "nonResourceAttributes", Of::Message(&[(1, "path", Of::Text), (2, "verb", Of::Text)])),
    ]),
)];

const EVICTION: &[Field] = &[(1, "metadata", Of::Message(METADATA)), (2, "deleteOptions", Of::Message(DELETE_OPTIONS))];

/// The body as JSON, if it is one of the kinds above.
pub fn to_json(body: &[u8]) -> Option<Vec<u8>> {
    let envelope = body.strip_prefix(b"k8s\0")?;
    let (mut kind, mut raw): (Value, &[u8]) = (json!({}), &[]);
    for (number, value) in fields(envelope)? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => kind = read(bytes, &[(1, "apiVersion", Of::Text), (2, "kind", Of::Text)])?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let of = match kind["kind"].as_str()? {
        "TokenRequest" => TOKEN_REQUEST,
        "SelfSubjectAccessReview" => ACCESS_REVIEW,
        "SelfSubjectReview" => &[],
        "Eviction" => EVICTION,
        "DeleteOptions" => DELETE_OPTIONS,
        _ => return None,
    };
    let mut object = read(raw, of)?;
    object["apiVersion"] = kind["apiVersion"].clone();
    object["kind"] = kind["kind"].clone();
    Some(object.to_string().into_bytes())
}

fn read(bytes: &[u8], of: &[Field]) -> Option<Value> {
    let mut object = Map::new();
    for (number, value) in fields(bytes)? {
        let Some((_, name, of)) = of.iter().find(|(n, _, _)| *n == number) else { continue };
        match (of, value) {
            (Of::Integer, Wire::Integer(n)) => drop(object.insert((*name).into(), n.cast_signed().into())),
            // kubectl writes every text, also the empty ones that JSON omits.
            (Of::Text, Wire::Bytes([])) => {}
            (Of::Text, Wire::Bytes(text)) => {
                object.insert((*name).into(), String::from_utf8(text.to_vec()).ok()?.into());
            }
            (Of::Texts, Wire::Bytes(text)) => {
                let list = object.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut()?.push(String::from_utf8(text.to_vec()).ok()?.into());
            }
            (Of::Message(of), Wire::Bytes(bytes)) => drop(object.insert((*name).into(), read(bytes, of)?)),
            _ => return None,
        }
    }
    Some(object.into())
}

enum Wire<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order; none if it is malformed.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let (tag, rest) = varint(bytes)?;
        let (value, rest) = match tag & 7 {
            0 => {
                let (n, rest) = varint(rest)?;
                (Wire::Integer(n), rest)
            }
            2 => {
                let (length, rest) = varint(rest)?;
                let length = usize::try_from(length).ok().filter(|l| *l <= rest.len())?;
                (Wire::Bytes(&rest[..length]), &rest[length..])
            }
            _ => return None,
        };
        list.push((tag >> 3, value));
        bytes = rest;
    }
    Some(list)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_request_of_kubectl_is_read() {
        let spec = b"\x0a\x03aud\x20\x90\x1c";
        let type_meta = b"\x0a\x18authentication.k8s.io/v1\x12\x0cTokenRequest";
        let raw = [b"\x12", &[spec.len() as u8][..], spec].concat();
        let body = [b"k8s\0\x0a", &[type_meta.len() as u8][..], type_meta, b"\x12", &[raw.len() as u8], &raw].concat();
        let read: Value = serde_json::from_slice(&to_json(&body).expect("it is one")).expect("it is JSON");
        assert_eq!(
            read,
            json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": ["aud"], "expirationSeconds": 3600},
            })
        );
        assert_eq!(to_json(b"k8s\0\x0a\xff"), None);
    }
}
