//! Checked values. Each can be built only from valid text or numbers, and its error says what is valid.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// A number of things with its noun: `1 pod`, `2 pods`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Whether a text may contain a secret, or be the name of one.
pub fn may_be_secret(text: &str) -> bool {
    let upper = text.to_uppercase();
    let words = ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "APIKEY", "API_KEY", "ACCESS_KEY"];
    words.iter().any(|word| upper.contains(word)) || has_login(text)
}

/// Whether a text is a URL with a user name or password.
pub fn has_login(text: &str) -> bool {
    let host = text.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    host.is_some_and(|host| host.contains('@'))
}

/// Whether the host of a URL is this machine: `localhost`, or a loopback address, which may be in brackets.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Things in one text, for example `a, b`.
pub fn joined<T: fmt::Display>(things: impl IntoIterator<Item = T>, separator: &str) -> String {
    things.into_iter().map(|thing| thing.to_string()).collect::<Vec<_>>().join(separator)
}

/// A value that is a constant of this program.
///
/// # Panics
/// When the text is not one.
pub fn known<T: FromStr<Err: fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a literal value is valid")
}

/// A VXLAN network identifier that works on Windows: 4096..=65535, not 9999.
///
/// HNS refuses less than 4096. Felix programs remote subnet routes with a 16 bit isolation id, so more than 65535 is
/// silently truncated. 9999 is the VSID of the bootstrap network `External`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u32", into = "u32")]
pub struct Vni(#[schemars(range(min = 4096, max = 65535))] u32);

impl Vni {
    /// Calico's default, in FelixConfiguration and on Windows.
    pub const DEFAULT: Self = Self(4096);

    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Vni {
    type Error = String;

    fn try_from(vni: u32) -> Result<Self, String> {
        match vni {
            9999 => {
                Err("9999 is the VSID of the bootstrap network External; choose another VNI from 4096 to 65535".into())
            }
            4096..=65535 => Ok(Self(vni)),
            _ => Err(format!("{vni} is out of range: Windows supports VNIs from 4096 to 65535 except 9999")),
        }
    }
}

impl From<Vni> for u32 {
    fn from(vni: Vni) -> Self {
        vni.0
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Gives newtypes over `String` their `Display` and `as_str`.
macro_rules! texts {
    ($($name:ident),+) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    )+};
}
pub(crate) use texts;

texts!(MacPrefix, NodeName, WinPath, Sha256);

/// The first two octets of pod MAC addresses, for example `0E-2A`.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct MacPrefix(#[schemars(regex(pattern = r"^[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}$"))] String);

impl FromStr for MacPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let octet = |s: &str| s.len() == 2 && s.bytes().all(|b| b.is_ascii_hexdigit());
        match text.split_once('-') {
            Some((a, b)) if octet(a) && octet(b) => Ok(Self(text.to_uppercase())),
            _ => Err(format!("`{text}` is not a MAC prefix: write two hexadecimal octets, for example 0E-2A")),
        }
    }
}

/// The name of a Kubernetes Node: a DNS-1123 subdomain.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct NodeName(String);

impl FromStr for NodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let label = |l: &str| {
            !l.is_empty()
                && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        if text.len() <= 253 && text.split('.').all(label) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not a node name: lower-case letters, digits, `-` and `.`, \
                 each part beginning and ending with a letter or digit, 253 characters at most"
            ))
        }
    }
}

/// An absolute path on the Windows node: drive letter, backslashes, no `.` or `..` part. Forward slashes are accepted
/// and converted. Compares without case, as Windows does.
///
/// Not a [`std::path::PathBuf`], because plans for Windows are also made on Linux, where `join`
/// writes the wrong separator.
#[derive(Debug, Clone, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct WinPath(String);

impl WinPath {
    /// A path that is a constant of this program.
    ///
    /// # Panics
    /// When the text is not an absolute Windows path.
    pub fn known(text: &str) -> Self {
        known(text)
    }

    /// This path and a relative one below it (`\` or `/`).
    #[must_use]
    pub fn join(&self, below: &str) -> Self {
        Self(format!("{}\\{}", self.0.trim_end_matches('\\'), below.replace('/', "\\")))
    }

    /// The folder that holds it; none for a drive's root.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.trim_end_matches('\\').rsplit_once('\\')?;
        Some(Self(if parent.len() == 2 { format!("{parent}\\") } else { parent.to_owned() }))
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('\\').next().unwrap_or_default()
    }

    /// The parts after the drive, in order.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0[2..].split('\\').filter(|p| !p.is_empty())
    }

    /// Whether it is `folder` itself or lies below it.
    pub fn is_below(&self, folder: &Self) -> bool {
        let (own, top) = (self.key(), folder.key());
        own == top || own.starts_with(&format!("{}\\", top.trim_end_matches('\\')))
    }

    fn key(&self) -> String {
        self.0.to_lowercase()
    }
}

impl FromStr for WinPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.replace('/', "\\");
        let (drive, rest) = path.split_at_checked(2).unwrap_or(("", ""));
        let absolute = drive.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
            && drive.ends_with(':')
            && rest.starts_with('\\');
        if !absolute {
            return Err(format!("`{text}` is not an absolute Windows path like C:\\CalicoWindows"));
        }
        let parts: Vec<&str> = rest.split('\\').filter(|p| !p.is_empty()).collect();
        if let Some(bad) =
            parts.iter().find(|p| **p == "." || **p == ".." || p.contains([':', '<', '>', '"', '|', '?', '*']))
        {
            return Err(format!("`{text}` is not a Windows path: `{bad}` cannot be a part of one"));
        }
        Ok(Self(format!("{drive}\\{}", parts.join("\\"))))
    }
}

impl PartialEq for WinPath {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for WinPath {}
impl PartialOrd for WinPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for WinPath {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// An IPv4 network in CIDR notation, as written (`10.96.0.0/12`). Windows nodes of Calico have no
/// IPv6, so IPv6 is refused by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr, JsonSchema)]
#[schemars(with = "String")]
pub struct Cidr(Ipv4Net);

impl Cidr {
    pub const fn new(net: Ipv4Net) -> Self {
        Self(net)
    }
}

impl std::ops::Deref for Cidr {
    type Target = Ipv4Net;

    fn deref(&self) -> &Ipv4Net {
        &self.0
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            return Err(format!(
                "`{text}` is IPv6, which Calico does not support on Windows; give an IPv4 CIDR like 10.96.0.0/12"
            ));
        }
        text.parse().map(Self).map_err(|_| format!("`{text}` is not a CIDR like 10.96.0.0/12"))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A SHA-256 digest, 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct Sha256(#[schemars(regex(pattern = r"^[0-9a-f]{64}$"))] String);

impl Sha256 {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest;
        Self::from_digest(sha2::Sha256::digest(bytes).as_slice())
    }

    /// From the 32 raw bytes a hasher gives.
    pub fn from_digest(digest: &[u8]) -> Self {
        use fmt::Write;
        Self(digest.iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }

    /// In a plan, the digest of something that exists only when the plan is applied, for example a file with a new
    /// token.
    pub fn unknown() -> Self {
        Self("0".repeat(64))
    }

    /// The first 12 digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl FromStr for Sha256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.trim().to_ascii_lowercase();
        if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self(hex))
        } else {
            Err(format!("`{text}` is not a SHA-256: 64 hexadecimal digits"))
        }
    }
}

/// Text that must not be shown: it has no `Display`, no `Serialize`, and prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that writes it to its destination.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_localhost_and_the_loopback_addresses() {
        for host in ["localhost", "127.0.0.1", "127.0.0.2", "[::1]", "::1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "a.test", "localhost.a.test", "10.0.0.1", "[fe80::1]"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn a_vni_is_from_4096_to_65535_and_not_9999() {
        for good in [4096, 4097, 65535] {
            assert_eq!(Vni::try_from(good).unwrap().get(), good);
        }
        for bad in [0, 1, 4095, 9999, 65536, 1 << 24] {
            assert!(Vni::try_from(bad).unwrap_err().contains("65535"), "{bad}");
        }
    }

    #[test]
    fn windows_paths_join_compare_and_refuse() {
        let root: WinPath = "c:/CalicoWindows/".parse().unwrap();
        assert_eq!(root.as_str(), "c:\\CalicoWindows");
        assert_eq!(root.join("cni/calico.exe"), WinPath::known("C:\\calicowindows\\CNI\\calico.exe"));
        assert!(root.join("logs").is_below(&root) && !WinPath::known("C:\\CalicoWindows2").is_below(&root));
        assert_eq!(root.parent().unwrap().as_str(), "c:\\");
        assert_eq!(root.parent().unwrap().parent(), None);
        assert_eq!(root.join("a\\b").name(), "b");
        for bad in ["", "k", "\\\\server\\share", "C:relative", "relative\\x", "C:\\a\\..\\b", "C:\\a:b"] {
            assert!(bad.parse::<WinPath>().is_err(), "{bad}");
        }
    }

    #[test]
    fn node_names_are_dns_subdomains() {
        for good in ["win-a1", "ip-10-0-0-1.ec2.internal", "1"] {
            assert!(good.parse::<NodeName>().is_ok(), "{good}");
        }
        for bad in ["", "WIN-A1", "a_b", "-a", "a-", "a..b", "a b"] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(***)");
    }
}
