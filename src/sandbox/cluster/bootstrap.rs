//! Bootstrap tokens: secrets by which a kubelet is known before it has a certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::json;

use super::resources::core;
use super::store::{Key, Store, add};
use super::tokens::base64_of;

/// The group of kubeadm's tokens.
pub const TOKENS: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The token of a new cluster, which kubeadm's documentation has.
const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");

/// The user and the groups of a bootstrap token; none if it is unknown or has expired.
pub fn user(token: &str, store: &Store) -> Option<(String, Vec<String>)> {
    let (id, secret) = token.split_once('.')?;
    let held = store.get(&Key::new(core("secrets"), "kube-system", &format!("bootstrap-token-{id}")))?;
    let value = |name: &str| {
        let bytes = STANDARD.decode(held["data"][name].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let lives = value("expiration").is_none_or(|at| at.parse::<Timestamp>().is_ok_and(|at| at > Timestamp::now()));
    let fits = held["type"] == "bootstrap.kubernetes.io/token" && value("token-secret").as_deref() == Some(secret);
    let extra = value("auth-extra-groups").unwrap_or_default();
    let groups = std::iter::once("system:bootstrappers").chain(extra.split(',').filter(|group| !group.is_empty()));
    let groups = groups.map(str::to_owned).collect();
    (lives && fits).then(|| (format!("system:bootstrap:{id}"), groups))
}

/// A new cluster's token.
pub fn plant(store: &mut Store) {
    let (id, secret) = TOKEN;
    let data = json!({
        "token-id": base64_of(id), "token-secret": base64_of(secret), "usage-bootstrap-authentication": base64_of("true"),
        "usage-bootstrap-signing": base64_of("true"), "auth-extra-groups": base64_of(TOKENS),
    });
    let secret = json!({"metadata": {}, "type": "bootstrap.kubernetes.io/token", "data": data});
    add(store, core("secrets"), "kube-system", &format!("bootstrap-token-{id}"), secret);
}
