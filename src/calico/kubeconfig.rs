//! The node's own kubeconfig, which Calico's components and its CNI plugin use for the API server, and the claims of
//! its token.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::x509;
use crate::values::Secret;
use crate::yaml;

const CLUSTER: &str = "kubernetes";
const USER: &str = "calico-windows";
const CONTEXT: &str = "calico-windows@kubernetes";

/// What the node needs to connect to the API server as calico-node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCredentials {
    /// URL of the API server. Never a ClusterIP: a Windows host cannot reach one.
    pub server: String,
    /// PEM; empty if the system's own roots verify the server.
    pub ca_pem: String,
    pub login: Login,
    /// When the login expires; none if it does not.
    pub expires: Option<Timestamp>,
}

/// How the client authenticates to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// A service account's token.
    Token(Secret),
    /// A client certificate and its key, PEM each.
    Certificate { cert: String, key: Secret },
}

impl NodeCredentials {
    pub const fn token(&self) -> Option<&Secret> {
        match &self.login {
            Login::Token(token) => Some(token),
            Login::Certificate { .. } => None,
        }
    }
}

/// The claims of a token. They are not verified: the API server does that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub issued: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    /// Namespace and name of the service account.
    pub account: Option<(String, String)>,
    pub audiences: Vec<String>,
    /// The secret that holds it, for a token from a secret.
    pub secret: Option<String>,
}

impl Claims {
    /// When a token is due for renewal: after two thirds of its lifetime.
    pub fn renew_from(&self) -> Option<Timestamp> {
        let (issued, expires) = (self.issued?, self.expires?);
        Some(issued + expires.duration_since(issued) * 2 / 3)
    }
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
        users: vec![NamedUser { name: USER.into(), user: User::of(&credentials.login) }],
    };
    // Through a plain value, like all YAML without positions: the YAML engine's code is generated again for each type,
    // and large.
    let value = serde_json::to_value(&file).context("write the node's kubeconfig")?;
    Ok(serde_yaml::to_string(&value).context("write the node's kubeconfig")?.into_bytes())
}

/// Reads a kubeconfig of the form that [`render`] writes; the scripts write the same form.
///
/// # Errors
/// When it is not a kubeconfig, or its current context has no server or token.
pub fn parse(text: &str) -> Result<NodeCredentials> {
    let file: File = yaml::read(text).context("the node's kubeconfig is not a valid kubeconfig")?;
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
    let user = file.users.into_iter().find(|user| user.name == context.user).map(|user| user.user);
    let login = user
        .and_then(User::login)
        .with_context(|| format!("the node's kubeconfig has no token for the user `{}`", context.user))?;
    let ca_pem = match cluster.ca {
        Some(ca) => String::from_utf8(STANDARD.decode(ca.trim()).context("decode certificate-authority-data")?)
            .context("read certificate-authority-data")?,
        None => String::new(),
    };
    let expires = expiry(&login);
    Ok(NodeCredentials { server: cluster.server, ca_pem, login, expires })
}

/// The namespace that a kubeconfig's current context names.
pub fn namespace(text: &str) -> Option<String> {
    let file: File = yaml::read(text).ok()?;
    file.contexts.into_iter().find(|context| context.name == file.current_context)?.context.namespace
}

/// When a login expires, by its own claims. None for a token without expiry (from a secret) and for one that cannot be
/// read.
pub fn expiry(login: &Login) -> Option<Timestamp> {
    match login {
        Login::Token(token) => claims(token.reveal()).expires,
        Login::Certificate { cert, .. } => x509::read(cert).map(|certificate| certificate.not_after),
    }
}

/// The claims of a token; empty if it is not a JWT.
pub fn claims(token: &str) -> Claims {
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let Some(claims) = payload.and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok()) else {
        return Claims::default();
    };
    let time = |name: &str| Timestamp::from_second(claims.get(name)?.as_i64()?).ok();
    let account = claims["sub"].as_str().and_then(|subject| {
        let (namespace, name) = subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        Some((namespace.to_owned(), name.to_owned()))
    });
    let audiences = match &claims["aud"] {
        serde_json::Value::String(one) => vec![one.clone()],
        serde_json::Value::Array(all) => all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    Claims {
        issued: time("iat"),
        expires: time("exp"),
        account,
        audiences,
        secret: claims["kubernetes.io/serviceaccount/secret.name"].as_str().map(str::to_owned),
    }
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
    #[serde(rename = "client-certificate-data", default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    #[serde(rename = "client-key-data", default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl User {
    fn of(login: &Login) -> Self {
        match login {
            Login::Token(token) => Self { token: Some(token.reveal().into()), certificate: None, key: None },
            Login::Certificate { cert, key } => {
                Self { token: None, certificate: Some(STANDARD.encode(cert)), key: Some(STANDARD.encode(key.reveal())) }
            }
        }
    }

    fn login(self) -> Option<Login> {
        let pem = |data: &str| String::from_utf8(STANDARD.decode(data.trim()).ok()?).ok();
        match (self.token, self.certificate, self.key) {
            (Some(token), _, _) => Some(Login::Token(Secret::new(token))),
            (None, Some(cert), Some(key)) => {
                Some(Login::Certificate { cert: pem(&cert)?, key: Secret::new(pem(&key)?) })
            }
            _ => None,
        }
    }
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
            login: Login::Token(Secret::new(token)),
            expires: claims(token).expires,
        }
    }

    #[test]
    fn the_kubeconfig_has_the_names_of_upstreams() {
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
    fn what_is_written_is_read_again_unchanged() {
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
    fn a_token_has_its_account_and_renewal_time() {
        let token = jwt(
            r#"{"iat":1700000000,"exp":1700003600,"sub":"system:serviceaccount:calico-system:calico-node","aud":["a"]}"#,
        );
        let said = claims(&token);
        assert_eq!(said.issued.unwrap().to_string(), "2023-11-14T22:13:20Z");
        assert_eq!(said.renew_from().unwrap().duration_since(said.issued.unwrap()).as_secs(), 2400);
        assert_eq!(said.account, Some(("calico-system".into(), "calico-node".into())));
        assert_eq!(said.audiences, ["a"]);
        for endless in [jwt(r#"{"iss":"kubernetes/serviceaccount"}"#), "opaque".into(), "a.!!.c".into()] {
            assert_eq!((claims(&endless).expires, claims(&endless).renew_from()), (None, None), "{endless}");
        }
    }

    #[test]
    fn a_client_certificate_is_a_login_too() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["calico".into()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 2);
        let cert = params.self_signed(&key).unwrap().pem();
        let login = Login::Certificate { cert, key: Secret::new(key.serialize_pem()) };
        let wanted = NodeCredentials { expires: expiry(&login), login, ..credentials("") };
        assert_eq!(wanted.expires.unwrap().to_string(), "2030-01-02T00:00:00Z");
        let text = String::from_utf8(render(&wanted, "kube-system").unwrap()).unwrap();
        assert!(text.contains("client-key-data: ") && !text.contains("token"), "{text}");
        assert_eq!(parse(&text).unwrap(), wanted);
        assert_eq!(namespace(&text).as_deref(), Some("kube-system"));
    }
}
