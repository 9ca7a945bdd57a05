//! The node's own kubeconfig, which Calico's components and its CNI plugin use for the API server, and the claims of
//! its token.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::x509;
use crate::values::Secret;
use crate::yaml;

const CLUSTER: &str = "kubernetes";
const USER: &str = "calico-windows";
const CONTEXT: &str = "calico-windows@kubernetes";

/// What to do if the installer's kubeconfig is kubelet's own, which gets no token for calico-node.
pub const OTHER_LOGINS: &str = "give the kubeconfig of a cluster administrator: --kubeconfig FILE\n\
     or create the secret calico-node-token and let the node read it, with this manifest: calicoctl-win explain NodeLogin\n\
     or set spec.kubernetes.credentials: kubeconfig and calicoKubeconfig to a login from another machine: \
     calicoctl-win credentials fetch --out DIR";

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
    let mut cluster =
        json!({ "certificate-authority-data": STANDARD.encode(&credentials.ca_pem), "server": credentials.server });
    if let (true, Some(fields)) = (credentials.ca_pem.is_empty(), cluster.as_object_mut()) {
        fields.shift_remove("certificate-authority-data");
    }
    let user = match &credentials.login {
        Login::Token(token) => json!({ "token": token.reveal() }),
        Login::Certificate { cert, key } => json!({
            "client-certificate-data": STANDARD.encode(cert),
            "client-key-data": STANDARD.encode(key.reveal()),
        }),
    };
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": CLUSTER, "cluster": cluster }],
        "contexts": [{ "name": CONTEXT, "context": { "cluster": CLUSTER, "namespace": namespace, "user": USER } }],
        "current-context": CONTEXT,
        "users": [{ "name": USER, "user": user }],
    });
    Ok(serde_yaml::to_string(&file).context("write the node's kubeconfig")?.into_bytes())
}

/// Reads a kubeconfig of the form that [`render`] writes; the scripts write the same form.
///
/// # Errors
/// When it is not a kubeconfig, or its current context has no server or token.
pub fn parse(text: &str) -> Result<NodeCredentials> {
    let file: Value = yaml::read(text).context("the node's kubeconfig is not a valid kubeconfig")?;
    let lacks = |what: &str, name: &Value| {
        format!("the node's kubeconfig has no {what} `{}`", text_of(name).unwrap_or_default())
    };
    let name = &file["current-context"];
    let context = named(&file, "context", name).with_context(|| lacks("context", name))?;
    let cluster =
        named(&file, "cluster", &context["cluster"]).with_context(|| lacks("cluster", &context["cluster"]))?;
    let server = text_of(&cluster["server"]).with_context(|| lacks("server for the cluster", &context["cluster"]))?;
    let user = named(&file, "user", &context["user"]);
    let login = user.and_then(login).with_context(|| lacks("token for the user", &context["user"]))?;
    let ca_pem = match text_of(&cluster["certificate-authority-data"]) {
        Some(ca) => String::from_utf8(STANDARD.decode(ca.trim()).context("decode certificate-authority-data")?)
            .context("read certificate-authority-data")?,
        None => String::new(),
    };
    Ok(NodeCredentials { server, ca_pem, expires: expiry(&login), login })
}

/// The namespace that a kubeconfig's current context names.
pub fn namespace(text: &str) -> Option<String> {
    let file: Value = yaml::read(text).ok()?;
    text_of(&named(&file, "context", &file["current-context"])?["namespace"])
}

/// The entry of a name among the clusters, contexts or users.
fn named<'a>(file: &'a Value, kind: &str, name: &Value) -> Option<&'a Value> {
    file[format!("{kind}s")].as_array()?.iter().find(|entry| entry["name"] == *name)?.get(kind)
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn login(user: &Value) -> Option<Login> {
    let pem = |data: &str| String::from_utf8(STANDARD.decode(user[data].as_str()?.trim()).ok()?).ok();
    match text_of(&user["token"]) {
        Some(token) => Some(Login::Token(Secret::new(token))),
        None => Some(Login::Certificate {
            cert: pem("client-certificate-data")?,
            key: Secret::new(pem("client-key-data")?),
        }),
    }
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
    let Some(claims) = payload.and_then(|json| serde_json::from_slice::<Value>(&json).ok()) else {
        return Claims::default();
    };
    let time = |name: &str| Timestamp::from_second(claims.get(name)?.as_i64()?).ok();
    let account = claims["sub"].as_str().and_then(|subject| {
        let (namespace, name) = subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        Some((namespace.to_owned(), name.to_owned()))
    });
    let audiences = match &claims["aud"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(all) => all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
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
