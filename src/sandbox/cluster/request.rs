//! The attributes of a request, from its method and path as in a kube-apiserver: by position alone, so that even a kind
//! that is not served can be forbidden before it is "not found".

use std::collections::BTreeMap;

use http::{HeaderMap, Method};

use super::protobuf;

/// A request, read completely.
#[derive(Debug)]
pub struct Request {
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub target: Target,
}

/// The attributes for authorization and routing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    /// The plural; empty for paths that are not resources, such as `/version`.
    pub resource: String,
    pub subresource: String,
    /// Empty if the path has none.
    pub namespace: String,
    pub name: String,
}

impl Target {
    /// `pods/eviction`: the resource's name in permissions.
    pub fn with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    fn read(method: &Method, path: &str, query: &BTreeMap<String, String>) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let mut target = Self { verb: verb(method), ..Self::default() };
        let rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                target.version = (*version).into();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                target.group = (*group).into();
                target.version = (*version).into();
                rest
            }
            _ => return target,
        };
        let rest = match rest {
            ["namespaces", namespace, rest @ ..] => {
                target.namespace = (*namespace).into();
                // The namespace itself, or one of its subresources.
                if rest.is_empty() || matches!(rest, ["status" | "finalize"]) {
                    target.resource = "namespaces".into();
                    target.name = (*namespace).into();
                    target.subresource = rest.concat();
                    target.collection_verb(query);
                    return target;
                }
                rest
            }
            rest => rest,
        };
        target.resource = rest.first().copied().unwrap_or_default().into();
        target.name = rest.get(1).copied().unwrap_or_default().into();
        target.subresource = rest.get(2..).unwrap_or_default().join("/");
        target.collection_verb(query);
        target
    }

    fn collection_verb(&mut self, query: &BTreeMap<String, String>) {
        let watch = query.get("watch").is_some_and(|w| w == "true" || w == "1");
        self.verb = match self.verb {
            "get" if watch => "watch",
            "get" if self.name.is_empty() => "list",
            "delete" if self.name.is_empty() => "deletecollection",
            verb => verb,
        };
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

impl Request {
    pub fn new(method: &Method, path: &str, query: &str, headers: HeaderMap, mut body: Vec<u8>) -> Self {
        let query: BTreeMap<String, String> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (unescape(name), unescape(value)))
            .collect();
        let path = unescape(path);
        let target = Target::read(method, &path, &query);
        if let Some(json) = protobuf::to_json(&body) {
            body = json;
        }
        Self { path, query, headers, body, target }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The media type of the body, without parameters.
    pub fn content_type(&self) -> &str {
        self.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }

    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    pub fn dry_run(&self) -> bool {
        self.param("dryRun") == Some("All")
    }
}

/// Decodes percent escapes and plus signs.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let byte = escaped.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(if first == b'+' { b' ' } else { first });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
