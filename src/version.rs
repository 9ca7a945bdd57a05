//! Versions of Calico and of Kubernetes, as far as decisions depend on them.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A release's version, for example `v3.32.1`. Orders as semantic versions do, pre-releases before releases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct CalicoVersion(semver::Version);

impl CalicoVersion {
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    /// Whether it is `major.minor` or a patch or pre-release of it.
    pub fn is_line(&self, major: u64, minor: u64) -> bool {
        (self.0.major, self.0.minor) == (major, minor)
    }

    /// Whether a release comes before another. Build metadata says nothing of that.
    pub fn is_before(&self, other: &Self) -> bool {
        self.0.cmp_precedence(&other.0).is_lt()
    }

    /// Major and minor.
    pub const fn line(&self) -> (u64, u64) {
        (self.0.major, self.0.minor)
    }

    /// Whether it has what came with `major.minor.patch`. A pre-release has what its release has.
    pub fn reaches(&self, major: u64, minor: u64, patch: u64) -> bool {
        (self.0.major, self.0.minor, self.0.patch) >= (major, minor, patch)
    }
}

/// The releases of Calico that share major and minor, for example `v3.31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseLine(pub u64, pub u64);

impl FromStr for ReleaseLine {
    type Err = String;

    /// Also reads one of its releases, for example `v3.31.2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let release = text.parse().or_else(|_| format!("{text}.0").parse::<CalicoVersion>());
        let (major, minor) = release.map_err(|_| format!("`{text}` is not a release line like v3.31"))?.line();
        Ok(Self(major, minor))
    }
}

impl fmt::Display for ReleaseLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.0, self.1)
    }
}

/// A release of Kubernetes 1, for example `v1.33.4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct KubernetesVersion {
    pub minor: u64,
    pub patch: u64,
}

impl FromStr for KubernetesVersion {
    type Err = String;

    /// Also reads what a server or a program of a distribution says: `v1.33.4-eks-1a2b3c`, `v1.33.4+rke2r1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let version = semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).ok();
        let version = version.filter(|version| version.major == 1);
        version
            .map(|version| Self { minor: version.minor, patch: version.patch })
            .ok_or_else(|| format!("`{text}` is not a Kubernetes version like v1.33.4"))
    }
}

impl TryFrom<String> for KubernetesVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KubernetesVersion> for String {
    fn from(version: KubernetesVersion) -> Self {
        version.to_string()
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}.{}", self.minor, self.patch)
    }
}

impl FromStr for CalicoVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        semver::Version::parse(text.strip_prefix('v').unwrap_or(text))
            .map(Self)
            .map_err(|_| format!("`{text}` is not a Calico version like v3.32.1"))
    }
}

impl TryFrom<String> for CalicoVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CalicoVersion> for String {
    fn from(version: CalicoVersion) -> Self {
        version.to_string()
    }
}

impl fmt::Display for CalicoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}
