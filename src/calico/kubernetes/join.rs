//! How kubelet joins: a bootstrap token, the CA that it must find, and the kubeconfig of both.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fault::{Exit, Fault};
use crate::settings::CaCertHash;
use crate::values::Secret;
use crate::yaml;

/// A bootstrap token: an id that names its secret in the cluster, and the secret part.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken(Secret);

impl BootstrapToken {
    /// The id, which is no secret.
    pub fn id(&self) -> &str {
        self.0.reveal().split('.').next().unwrap_or_default()
    }

    /// The whole token.
    pub const fn secret(&self) -> &Secret {
        &self.0
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.***)", self.id())
    }
}

impl FromStr for BootstrapToken {
    type Err = String;

    /// The error does not repeat the text.
    fn from_str(text: &str) -> Result<Self, String> {
        let is = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        };
        match text.split_once('.') {
            Some((id, secret)) if is(id, 6) && is(secret, 16) => Ok(Self(Secret::new(text))),
            _ => Err("it is not a bootstrap token: 6 characters, a dot and 16 characters, as `kubeadm token create` \
                      prints it"
                .into()),
        }
    }
}

/// What kubeadm's file says about joining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    pub token: BootstrapToken,
    pub ca_cert_hashes: Vec<CaCertHash>,
}

fn refused(what: String) -> Fault {
    Fault::new(Exit::InvalidConfig, "JoinInvalid", what)
        .hint("get a new token on a control-plane node: kubeadm token create --print-join-command")
}

/// The token in a file of its own. `origin`: the file's name, for errors.
///
/// # Errors
/// `JoinInvalid`, without the text.
pub fn token_in(text: &str, origin: &str) -> Result<BootstrapToken> {
    text.trim().parse().map_err(|why: String| refused(format!("the token in {origin} cannot be used: {why}")).into())
}

/// Reads kubeadm's JoinConfiguration, among the documents of a file.
///
/// # Errors
/// `JoinInvalid`, without the token.
pub fn read_join_configuration(text: &str, origin: &str) -> Result<Joining> {
    let documents: Vec<Value> = yaml::read_all(text)
        .map_err(|wrong| refused(format!("{origin} is not YAML: line {}, column {}", wrong.line, wrong.column)))?;
    let found = documents.iter().find(|document| document["kind"] == "JoinConfiguration");
    let found = found.ok_or_else(|| refused(format!("{origin} has no document of the kind JoinConfiguration")))?;
    let discovery = &found["discovery"];
    let bootstrap = &discovery["bootstrapToken"];
    let token = [&discovery["tlsBootstrapToken"], &bootstrap["token"]].into_iter().find_map(Value::as_str);
    let token = token.ok_or_else(|| {
        refused(format!("{origin} has neither discovery.bootstrapToken.token nor discovery.tlsBootstrapToken"))
    })?;
    let hashes = bootstrap["caCertHashes"].as_array().into_iter().flatten();
    let hashes: Result<Vec<CaCertHash>, Fault> = hashes
        .map(|hash| {
            hash.as_str().unwrap_or_default().parse().map_err(|why: String| refused(format!("{origin}: {why}")))
        })
        .collect();
    Ok(Joining { token: token_in(token, origin)?, ca_cert_hashes: hashes? })
}

/// The kubeconfig with which kubelet requests its certificate.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn bootstrap_kubeconfig(server: &str, ca_pem: Option<&str>, token: &BootstrapToken) -> Result<Vec<u8>> {
    let mut cluster = json!({ "server": server });
    if let Some(ca) = ca_pem {
        cluster["certificate-authority-data"] = STANDARD.encode(ca).into();
    }
    let (name, user) = ("kubernetes", "tls-bootstrap-token-user");
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": cluster }],
        "contexts": [{ "name": format!("{user}@{name}"), "context": { "cluster": name, "user": user } }],
        "current-context": format!("{user}@{name}"),
        "users": [{ "name": user, "user": { "token": token.secret().reveal() } }],
    });
    Ok(serde_yaml::to_string(&file).context("write kubelet's bootstrap kubeconfig")?.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef";

    #[test]
    fn a_token_is_checked_and_never_printed() {
        let token = token_in(&format!("  {TOKEN}\r\n"), "token").unwrap();
        assert_eq!((token.id(), token.secret().reveal()), ("abcdef", TOKEN));
        assert_eq!(format!("{token:?}"), "BootstrapToken(abcdef.***)");
        for wrong in ["", "abcdef", "abcdef.0123456789ABCDEF", "abcdef.0123456789abcde", "kubeadm join 10.0.0.1:6443"] {
            let error = token_in(wrong, "C:\\k\\token").unwrap_err();
            assert!(Fault::id_of(&error) == "JoinInvalid" && error.to_string().contains("C:\\k\\token"), "{error}");
            assert!(wrong.is_empty() || !format!("{error:?}").contains(wrong), "{error:?}");
        }
    }

    #[test]
    fn kubeadms_file_has_token_and_hashes_in_each_version() {
        let hash = format!("sha256:{}", "0a".repeat(32));
        for version in ["v1beta3", "v1beta4"] {
            let bootstrap =
                format!("    token: {TOKEN}\n    caCertHashes: ['{hash}']\n    apiServerEndpoint: a:6443\n");
            let text = format!(
                "apiVersion: kubeadm.k8s.io/{version}\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n{bootstrap}"
            );
            let joining = read_join_configuration(&text, "join.yaml").unwrap();
            assert_eq!((joining.token.id(), joining.ca_cert_hashes[0].as_str()), ("abcdef", hash.as_str()));
            let other =
                text.replace("  bootstrapToken:", "  tlsBootstrapToken: fedcba.0123456789abcdef\n  bootstrapToken:");
            assert_eq!(read_join_configuration(&other, "join.yaml").unwrap().token.id(), "fedcba");
            for wrong in [
                text.replace("JoinConfiguration", "InitConfiguration"),
                text.replace("    token:", "    tokens:"),
                text.replace("sha256:", "md5:"),
                format!("{text}\t- x"),
            ] {
                let error = read_join_configuration(&wrong, "join.yaml").unwrap_err();
                assert_eq!(Fault::id_of(&error), "JoinInvalid", "{error}");
                assert!(!format!("{error:?}").contains("0123456789abcdef"), "{error:?}");
            }
        }
    }
}
