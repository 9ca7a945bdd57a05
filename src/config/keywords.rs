//! The config's keywords that settings, facts and documents use too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the node's own kubeconfig gets its login from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Credentials {
    /// A token of limited life for calico-node's service account (the default).
    TokenRequest,
    /// The token of a secret of type service-account-token, made if absent.
    Secret,
    /// A kubeconfig that an administrator created for it.
    Kubeconfig,
    /// The service account that Kubernetes mounts into a HostProcess pod, in which this program runs.
    HostProcess,
}

impl Credentials {
    /// What a config without one means. A kubelet gets only tokens that are bound to a pod of its node (the API
    /// server's admission plugin NodeRestriction).
    pub const fn usual(kubelet: bool) -> Self {
        if kubelet { Self::Secret } else { Self::TokenRequest }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    Vxlan,
    WindowsBgp,
    /// Policy only: another CNI owns the pods' network.
    None,
}

impl Backend {
    /// Calico's own word: `vxlan`, `windows-bgp`, `none`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::WindowsBgp => "windows-bgp",
            Self::None => "none",
        }
    }

    /// Whether pods can get their addresses in this way.
    ///
    /// # Errors
    /// Why not.
    pub const fn takes(self, ipam: Ipam) -> Result<(), &'static str> {
        match (self, ipam) {
            // `Error ensure IPv4 block: operation List is not supported`, with v3.31.7 and v3.33.
            (Self::WindowsBgp, Ipam::HostLocal) => Err(
                "the backend windows-bgp needs calico-ipam: Calico's node startup makes a block for this node, which it cannot with host-local",
            ),
            (Self::Vxlan, Ipam::HostLocal) => Err(
                "the backend vxlan needs calico-ipam: with host-local other nodes have no routes to this node's pods",
            ),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ipam {
    CalicoIpam,
    HostLocal,
}

/// A way to work on this machine from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemoteAccess {
    Rdp,
    WinRm,
    Ssh,
}

impl RemoteAccess {
    /// The name as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdp => "RDP",
            Self::WinRm => "WinRM",
            Self::Ssh => "SSH",
        }
    }

    /// The Windows service behind it.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Rdp => "TermService",
            Self::WinRm => "WinRM",
            Self::Ssh => "sshd",
        }
    }

    /// Its TCP ports, of which one is enough: WinRM has one for HTTP and one for HTTPS.
    pub const fn ports(self) -> &'static [u16] {
        match self {
            Self::Rdp => &[3389],
            Self::WinRm => &[5985, 5986],
            Self::Ssh => &[22],
        }
    }
}
