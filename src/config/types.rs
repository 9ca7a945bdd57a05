//! Checked values that only the config uses. Those used elsewhere are in [`crate::values`].

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::values::{known, texts};

/// The error for an IPv6 address.
pub(crate) fn no_ipv6(text: &str, instead: &str) -> String {
    format!("`{text}` is IPv6, which Calico does not support on Windows; give {instead}")
}

/// A password in a document would be written to logs and receipts. Does not repeat the text.
fn refuse_password(url: &str) -> Result<(), String> {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    if authority.contains('@') {
        Err("a URL here must not hold a user or password; for a proxy set them in the variable HTTPS_PROXY instead"
            .into())
    } else {
        Ok(())
    }
}

/// A value; none for `auto` (also written `""`), which is detected, as without the field.
#[derive(Debug, Clone, PartialEq)]
pub struct Auto<T>(pub Option<T>);

impl<T> Default for Auto<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Auto<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match value.as_str() {
            Some("auto" | "") => Ok(Self(None)),
            _ => serde_json::from_value(value).map(|value| Self(Some(value))).map_err(D::Error::custom),
        }
    }
}

impl<T: JsonSchema> JsonSchema for Auto<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Auto_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["auto", ""] }, generator.subschema_for::<T>()] })
    }
}

texts!(Pattern, EtcdEndpoint, AddressChoice, WebUrl, ConfFile, CaCertHash);

/// A duration as people write it: `90s`, `10m`, `1h30m`, `0`. Remembers how it was written.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
#[schemars(with = "String", example = "90s", example = "10m", example = "0")]
pub struct Wait {
    text: String,
    length: Duration,
}

impl Wait {
    /// As the limit of a drain: zero means no limit, as in kubectl.
    pub fn limit(&self) -> Option<Duration> {
        Some(self.length()).filter(|limit| !limit.is_zero())
    }

    pub const fn length(&self) -> Duration {
        self.length
    }

    /// A duration that is a constant of this program.
    ///
    /// # Panics
    /// When the text is not a duration.
    pub fn known(text: &str) -> Self {
        known(text)
    }
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a duration: write a number with its unit, for example 90s, 10m or 1h30m; 0 for none"
            )
        };
        let length = match text.trim() {
            "0" => Duration::ZERO,
            other => other
                .parse::<jiff::SignedDuration>()
                .ok()
                .and_then(|length| Duration::try_from(length).ok())
                .ok_or_else(wrong)?,
        };
        Ok(Self { text: text.trim().to_owned(), length })
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A regular expression in the common syntax of Go's and Rust's engines.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct Pattern(String);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Felix panics on a pattern that does not compile, so refuse it here.
        match regex::Regex::new(text) {
            _ if text.is_empty() => Err("an empty expression would match every HNS network".into()),
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => {
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
                Err(format!("`{text}` is not a regular expression: {reason}"))
            }
        }
    }
}

/// `http(s)://host:port` of an etcd member.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct EtcdEndpoint(String);

impl FromStr for EtcdEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const INSTEAD: &str = "an endpoint, for example https://etcd-0:2379";
        let wrong = || format!("`{text}` is not {INSTEAD}: scheme http or https, host and port, nothing else");
        refuse_password(text)?;
        let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or_else(wrong)?;
        if authority.starts_with('[') {
            return Err(no_ipv6(text, INSTEAD));
        }
        let (host, port) = authority.split_once(':').ok_or_else(wrong)?;
        let named = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        match port.parse::<u16>() {
            Ok(1..) if named => Ok(Self(text.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// An IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, DeserializeFromStr, JsonSchema)]
pub struct Address(pub Ipv4Addr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(address) => Ok(Self(address)),
            Err(_) if text.contains(':') => Err(no_ipv6(text, "an IPv4 address like 10.96.0.10")),
            Err(_) => Err(format!("`{text}` is not an IPv4 address like 10.96.0.10")),
        }
    }
}

/// `autodetect`, `none`, an IPv4 address, one with its prefix length, or one of the methods by which
/// calico-node chooses among a machine's addresses (its variable `IP_AUTODETECTION_METHOD`).
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct AddressChoice(String);

impl FromStr for AddressChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fixed = text.parse::<Ipv4Addr>().is_ok() || text.parse::<ipnet::Ipv4Net>().is_ok();
        let each = |list: &str, check: &dyn Fn(&str) -> Result<(), String>| list.split(',').try_for_each(check);
        match (text, text.split_once('=')) {
            ("autodetect" | "none" | "first-found" | "kubernetes-internal-ip", _) => {}
            (_, Some(("can-reach", to))) if !to.is_empty() => {}
            (_, Some(("interface" | "skip-interface", list))) => {
                each(list, &|pattern| pattern.parse::<Pattern>().map(drop))?;
            }
            (_, Some(("cidr", list))) => each(list, &|cidr| cidr.parse::<crate::values::Cidr>().map(drop))?,
            _ if fixed => {}
            _ if text.contains(':') => return Err(no_ipv6(text, "an IPv4 address, `autodetect` or `none`")),
            _ => {
                return Err(format!(
                    "`{text}` is not a node address: `autodetect`, `none`, an IPv4 address like 10.0.0.7 or 10.0.0.7/24, \
                     or one of Calico's methods: first-found, can-reach=, interface=, skip-interface=, cidr=, \
                     kubernetes-internal-ip"
                ));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

/// An http or https URL. May hold `{version}`.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct WebUrl(String);

impl FromStr for WebUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        refuse_password(text)?;
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        // Empty text means "none" for every URL.
        if !text.is_empty() && rest.is_none_or(|rest| rest.is_empty() || rest.contains(char::is_whitespace)) {
            return Err(format!("`{text}` is not a URL that begins with https:// or http://"));
        }
        let unknown = text.replace("{version}", "");
        if unknown.contains(['{', '}']) {
            return Err(format!("`{text}` holds a placeholder other than {{version}}"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The name of the CNI configuration file, without folder.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct ConfFile(String);

impl FromStr for ConfFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let stem = text.strip_suffix(".conf").or_else(|| text.strip_suffix(".json")).unwrap_or_default();
        if stem.is_empty() || text.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']) {
            Err(format!("`{text}` is not a file name ending in .conf or .json, like 10-calico.conf"))
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// The public key of a CA, as kubeadm names it: `sha256:` and the SHA-256 of its SubjectPublicKeyInfo.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct CaCertHash(String);

impl FromStr for CaCertHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digest = text.strip_prefix("sha256:").unwrap_or_default();
        match digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Self(text.to_lowercase())),
            false => {
                Err(format!("`{text}` is not a CA hash: `sha256:` and 64 hexadecimal digits, as kubeadm prints it"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("0", 0), ("0s", 0), (" 5m ", 300)] {
            assert_eq!(text.parse::<Wait>().unwrap().length().as_secs(), seconds, "{text}");
        }
        for bad in ["", "90", "-5s", "soon", "1 fortnight"] {
            assert!(bad.parse::<Wait>().unwrap_err().contains("unit"), "{bad}");
        }
    }

    #[test]
    fn etcd_endpoints_have_scheme_host_and_port() {
        for good in ["https://etcd-0:2379", "http://10.0.0.1:2379", "https://etcd.example.org:1"] {
            assert!(good.parse::<EtcdEndpoint>().is_ok(), "{good}");
        }
        for bad in
            ["etcd-0:2379", "https://etcd-0", "https://:2379", "https://e:0", "https://e:99999", "https://e:1/v3"]
        {
            assert!(bad.parse::<EtcdEndpoint>().is_err(), "{bad}");
        }
        assert!("https://[fd00::1]:2379".parse::<EtcdEndpoint>().unwrap_err().contains("IPv6"));
    }

    #[test]
    fn a_file_name_has_no_folder() {
        for good in ["10-calico.conf", "calico.json"] {
            assert!(good.parse::<ConfFile>().is_ok(), "{good}");
        }
        for bad in ["", ".conf", "10-calico.conflist", "a\\b.conf", "../x.conf", "10-calico"] {
            assert!(bad.parse::<ConfFile>().is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_hold_no_password_and_no_other_placeholder() {
        for good in ["", "https://mirror.example/{version}/c.zip", "http://proxy:3128"] {
            assert!(good.parse::<WebUrl>().is_ok(), "{good}");
        }
        for bad in ["ftp://x", "mirror/c.zip", "https://m/{tag}.zip", "https://a b"] {
            assert!(bad.parse::<WebUrl>().is_err(), "{bad}");
        }
        for secret in ["https://me:hunter2@proxy:3128", "me:hunter2@proxy:3128", "http://me:hunter2@proxy/x"] {
            assert!(!secret.parse::<WebUrl>().unwrap_err().contains("hunter2"), "{secret}");
            assert!(!secret.parse::<EtcdEndpoint>().unwrap_err().contains("hunter2"), "{secret}");
        }
    }
}
