//! The node's own kubeconfig, with which Calico's components and its CNI plugin talk to the API
//! server, and what its token says of its own life.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::values::Secret;

const CLUSTER: &str = "kubernetes";
const USER: &str = "calico-windows";
const CONTEXT: &str = "calico-windows@kubernetes";

/// What the node needs to talk to the API server as calico-node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCredentials {
    /// URL of the API server. Never a ClusterIP: a Windows host cannot reach one.
    pub server: String,
    /// PEM; empty when the system's own roots vouch for the server.
    pub ca_pem: String,
    pub token: Secret,
    /// When the token ends; none for one that does not.
    pub expires: Option<Timestamp>,
}

/// The kubeconfig as YAML. `namespace` is the one that Calico runs in.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn render(credentials: &NodeCredentials, namespace: &str) -> Result<Vec<u8>> {
    let ca = (!credentials.ca_pem.is_empty()).then(|| STANDARD.encode(&credentials.ca_pem));
    let file = File {
        api_version: "v1".into(),
        kind: "Config".into(),
        clusters: vec![NamedCluster {
            name: CLUSTER.into(),
            cluster: Cluster { ca, server: credentials.server.clone() },
        }],
        contexts: vec![NamedContext {
            name: CONTEXT.into(),
            context: ContextBody { cluster: CLUSTER.into(), namespace: Some(namespace.into()), user: USER.into() },
        }],
        current_context: CONTEXT.into(),
        users: vec![NamedUser { name: USER.into(), user: User { token: Some(credentials.token.reveal().into()) } }],
    };
    // By way of a plain value, as all YAML that is not ours to point into: the YAML engine's code is
    // generated anew for each type, and large.
    let value = serde_json::to_value(&file).context("write the node's kubeconfig")?;
    Ok(serde_yaml::to_string(&value).context("write the node's kubeconfig")?.into_bytes())
}

/// Reads a kubeconfig of the form that [`render`] writes; that of the scripts has it too.
///
/// # Errors
/// When it is no kubeconfig, or the current context has no server or token in it.
pub fn parse(text: &str) -> Result<NodeCredentials> {
    // The parser's own message may quote the line it stumbled over, and with it the token.
    let value = serde_yaml::from_str::<serde_json::Value>(text).ok();
    let Some(file) = value.and_then(|value| serde_json::from_value::<File>(value).ok()) else {
        bail!("the node's kubeconfig is not a valid kubeconfig")
    };
    let name = &file.current_context;
    let context = file
        .contexts
        .into_iter()
        .find(|context| context.name == *name)
        .with_context(|| format!("the node's kubeconfig has no context `{name}`"))?
        .context;
    let cluster = file
        .clusters
        .into_iter()
        .find(|cluster| cluster.name == context.cluster)
        .with_context(|| format!("the node's kubeconfig has no cluster `{}`", context.cluster))?
        .cluster;
    let token = file
        .users
        .into_iter()
        .find(|user| user.name == context.user)
        .and_then(|user| user.user.token)
        .with_context(|| format!("the node's kubeconfig has no token for the user `{}`", context.user))?;
    let ca_pem = match cluster.ca {
        Some(ca) => String::from_utf8(STANDARD.decode(ca.trim()).context("decode certificate-authority-data")?)
            .context("read certificate-authority-data")?,
        None => String::new(),
    };
    let expires = token_expiry(&token);
    Ok(NodeCredentials { server: cluster.server, ca_pem, token: Secret::new(token), expires })
}

/// When a token ends, by its own claim `exp`, which is not verified. None for a token without one
/// (that of a secret) and for what is no JWT.
pub fn token_expiry(token: &str) -> Option<Timestamp> {
    claim(token, "exp")
}

/// When a token was issued, by its own claim `iat`.
pub fn token_issued(token: &str) -> Option<Timestamp> {
    claim(token, "iat")
}

fn claim(token: &str, name: &str) -> Option<Timestamp> {
    let payload = token.split('.').nth(1)?;
    let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    Timestamp::from_second(claims.get(name)?.as_i64()?).ok()
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    #[serde(rename = "current-context")]
    current_context: String,
    users: Vec<NamedUser>,
}

#[derive(Serialize, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Serialize, Deserialize)]
struct Cluster {
    #[serde(rename = "certificate-authority-data", default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    server: String,
}

#[derive(Serialize, Deserialize)]
struct NamedContext {
    name: String,
    context: ContextBody,
}

#[derive(Serialize, Deserialize)]
struct ContextBody {
    cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    user: String,
}

#[derive(Serialize, Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Serialize, Deserialize)]
struct User {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &str) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#), URL_SAFE_NO_PAD.encode(claims))
    }

    fn credentials(token: &str) -> NodeCredentials {
        NodeCredentials {
            server: "https://10.0.0.1:6443".into(),
            ca_pem: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".into(),
            token: Secret::new(token),
            expires: token_expiry(token),
        }
    }

    #[test]
    fn the_kubeconfig_has_the_names_the_field_knows() {
        let text = String::from_utf8(render(&credentials("abc.def.ghi"), "calico-system").unwrap()).unwrap();
        insta::assert_snapshot!(text, @r"
        apiVersion: v1
        kind: Config
        clusters:
        - name: kubernetes
          cluster:
            certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
            server: https://10.0.0.1:6443
        contexts:
        - name: calico-windows@kubernetes
          context:
            cluster: kubernetes
            namespace: calico-system
            user: calico-windows
        current-context: calico-windows@kubernetes
        users:
        - name: calico-windows
          user:
            token: abc.def.ghi
        ");
    }

    #[test]
    fn what_is_written_is_read_again_however_long_or_odd() {
        let long = jwt(&format!(r#"{{"exp":1800000000,"pad":"{}"}}"#, "x".repeat(4000)));
        for token in [long.as_str(), "12345", "null", "a: b # c", "'quoted\"", "- x", ""] {
            let mut wanted = credentials(token);
            wanted.ca_pem = wanted.ca_pem.repeat(40);
            let text = String::from_utf8(render(&wanted, "kube-system").unwrap()).unwrap();
            assert_eq!(parse(&text).unwrap(), wanted, "{token}");
        }
        let mut public = credentials("t");
        public.ca_pem.clear();
        let text = String::from_utf8(render(&public, "calico-system").unwrap()).unwrap();
        assert_eq!(parse(&text).unwrap(), public);
    }

    #[test]
    fn a_broken_kubeconfig_is_refused_without_showing_its_token() {
        let good = String::from_utf8(render(&credentials("s3cret"), "calico-system").unwrap()).unwrap();
        for bad in [
            good.replace("current-context: calico", "current-context: other"),
            good.replace("token", "tokens"),
            good.replace("user: calico-windows", "user: nobody"),
            good.replace("token: s3cret", "token: [s3cret"),
            good.replace("server:", "serve:"),
            String::new(),
        ] {
            let error = format!("{:#}", parse(&bad).unwrap_err());
            assert!(error.contains("kubeconfig") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_tokens_life_is_read_from_its_claims() {
        let token = jwt(r#"{"iat":1700000000,"exp":1700003600}"#);
        assert_eq!(token_issued(&token).unwrap().to_string(), "2023-11-14T22:13:20Z");
        assert_eq!(token_expiry(&token).unwrap().as_second() - token_issued(&token).unwrap().as_second(), 3600);
        for endless in [jwt(r#"{"iss":"kubernetes/serviceaccount"}"#), "opaque".into(), "a.!!.c".into()] {
            assert_eq!(token_expiry(&endless), None, "{endless}");
        }
    }
}
