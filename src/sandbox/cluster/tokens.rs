//! Service-account tokens: JSON Web Tokens that this cluster signs (EdDSA) and verifies against the objects that still
//! exist. The claims are those of a real cluster: one set for tokens from TokenRequest, the older set, without expiry
//! and audience, for tokens in secrets.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};
use rustls::crypto::ring;
use rustls::pki_types::alg_id;
use serde_json::{Value, json};

use super::pki::kept;
use super::resources::core;
use super::store::{Key, Store, text, uid};

/// The issuer and the only audience of requested tokens.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const LEGACY: &str = "kubernetes.io/serviceaccount";

/// The key that signs tokens.
pub struct TokenKey(KeyPair);

/// The identity in a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    pub namespace: String,
    pub account: String,
    pub uid: String,
    /// The claim `jti` of a requested token.
    pub id: Option<String>,
    /// The secret that holds this token, if it is from a secret.
    pub secret: Option<String>,
}

impl TokenKey {
    pub fn open(pki: &Path) -> Result<Self> {
        let path = pki.join("sa.key");
        let pem = kept(&path, || Ok(KeyPair::generate_for(&PKCS_ED25519)?.serialize_pem()))?;
        Ok(Self(KeyPair::from_pem(&pem).with_context(|| format!("read {}", path.display()))?))
    }

    /// A token from TokenRequest: for `seconds`, optionally bound to another object (kind, name, uid).
    pub fn requested(&self, account: &Value, seconds: i64, bound: Option<(&str, &str, &str)>) -> String {
        let issued = Timestamp::now().as_second();
        let (namespace, name) = (&account["metadata"]["namespace"], &account["metadata"]["name"]);
        let mut claims = json!({
            "aud": [ISSUER], "iss": ISSUER, "iat": issued, "nbf": issued, "exp": issued + seconds, "jti": uid(),
            "sub": subject(namespace, name),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
            },
        });
        if let Some((kind, name, uid)) = bound {
            claims["kubernetes.io"][kind.to_lowercase()] = json!({"name": name, "uid": uid});
        }
        self.sign(&claims)
    }

    /// The token in a token secret.
    pub fn for_secret(&self, account: &Value, secret: &str) -> String {
        let (namespace, name) = (&account["metadata"]["namespace"], &account["metadata"]["name"]);
        self.sign(&json!({
            "iss": LEGACY_ISSUER, "sub": subject(namespace, name),
            format!("{LEGACY}/namespace"): namespace,
            format!("{LEGACY}/secret.name"): secret,
            format!("{LEGACY}/service-account.name"): name,
            format!("{LEGACY}/service-account.uid"): account["metadata"]["uid"],
        }))
    }

    fn sign(&self, claims: &Value) -> String {
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.0.sign(signed.as_bytes()).expect("an Ed25519 key signs anything");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The identity in the token, if this cluster signed it, it has not expired, and its objects still exist.
    pub fn check(&self, token: &str, store: &Store) -> Option<Bearer> {
        let claims = self.claims(token)?;
        let requested = claims["iss"] == ISSUER;
        let (namespace, account, account_uid) = if requested {
            let k = &claims["kubernetes.io"];
            (&k["namespace"], &k["serviceaccount"]["name"], &k["serviceaccount"]["uid"])
        } else {
            let k = |name| &claims[format!("{LEGACY}/{name}")];
            (k("namespace"), k("service-account.name"), k("service-account.uid"))
        };
        let (namespace, account) = (namespace.as_str()?, account.as_str()?);
        let found = store.get(&Key::new(core("serviceaccounts"), namespace, account))?;
        let secret = claims[format!("{LEGACY}/secret.name")].as_str();
        let alive = if requested {
            claims["exp"].as_i64()? > Timestamp::now().as_second()
                && bound_alive(store, namespace, &claims["kubernetes.io"])
        } else {
            let held = store.get(&Key::new(core("secrets"), namespace, secret?))?;
            text(held, "/data/token").is_some_and(|t| t == base64_of(token))
        };
        (alive && found["metadata"]["uid"] == *account_uid).then(|| Bearer {
            namespace: namespace.into(),
            account: account.into(),
            uid: account_uid.as_str().unwrap_or_default().into(),
            id: claims["jti"].as_str().map(Into::into),
            secret: secret.map(Into::into),
        })
    }

    /// The claims of a token with this cluster's signature.
    fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let ed25519 = algorithms.all.iter().find(|a| a.public_key_alg_id() == alg_id::ED25519)?;
        ed25519.verify_signature(self.0.public_key_raw(), signed.as_bytes(), &signature).ok()?;
        let (_, claims) = signed.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

/// A token bound to a secret, pod or node is valid only while that exists.
fn bound_alive(store: &Store, namespace: &str, claims: &Value) -> bool {
    [("secret", "secrets"), ("pod", "pods"), ("node", "nodes")].iter().all(|(claim, plural)| {
        let bound = &claims[claim];
        let Some(name) = bound["name"].as_str() else { return true };
        let resource = core(plural);
        let namespace = if resource.namespaced { namespace } else { "" };
        store.get(&Key::new(resource, namespace, name)).is_some_and(|o| o["metadata"]["uid"] == bound["uid"])
    })
}

fn subject(namespace: &Value, name: &Value) -> String {
    format!("system:serviceaccount:{}:{}", namespace.as_str().unwrap_or_default(), name.as_str().unwrap_or_default())
}

/// Encodes text for a secret's `data`.
pub fn base64_of(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}
