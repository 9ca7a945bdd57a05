//! The platforms, and their defaults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose Kubernetes this is. Decides defaults; see docs/platforms.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "AKS")]
    Aks,
    #[serde(rename = "EKS")]
    Eks,
    #[serde(rename = "EC2")]
    Ec2,
    #[serde(rename = "GCE")]
    Gce,
    #[serde(rename = "OpenShift")]
    OpenShift,
    #[serde(rename = "RKE2")]
    Rke2,
}

/// What is different on a platform, for defaults.
#[derive(Debug, Clone, Copy)]
pub struct Brings {
    /// Its name in the config.
    pub name: &'static str,
    /// Where its nodes have a kubeconfig.
    pub kubeconfig: &'static str,
    /// The HNS networks of the cloud's own CNI plugin, which owns the pods' network; an expression.
    pub own_network: Option<&'static str>,
    /// A Node has the instance's name in the cloud, which Windows does not know.
    pub names_nodes: bool,
    /// Pods must not reach Azure's wireserver.
    pub wireserver: bool,
    pub metadata_route: MetadataRoute,
}

/// What happens to the route to the cloud's metadata service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataRoute {
    /// There is none, or nothing removes it.
    Left,
    /// A vSwitch that Calico creates removes it.
    LostToVSwitch,
    /// It may be missing, whatever the backend.
    Lost,
}

impl Provider {
    pub const fn brings(self) -> Brings {
        const PLAIN: Brings = Brings {
            name: "none",
            kubeconfig: r"C:\k\config",
            own_network: None,
            names_nodes: false,
            wireserver: false,
            metadata_route: MetadataRoute::Left,
        };
        match self {
            Self::None => PLAIN,
            Self::Aks => Brings { name: "AKS", own_network: Some("azure.*"), wireserver: true, ..PLAIN },
            Self::Eks => Brings {
                name: "EKS",
                kubeconfig: r"C:\ProgramData\kubernetes\kubeconfig",
                own_network: Some("vpc.*"),
                names_nodes: true,
                ..PLAIN
            },
            Self::Ec2 => {
                Brings { name: "EC2", names_nodes: true, metadata_route: MetadataRoute::LostToVSwitch, ..PLAIN }
            }
            Self::Gce => Brings { name: "GCE", names_nodes: true, metadata_route: MetadataRoute::Lost, ..PLAIN },
            Self::OpenShift => Brings { name: "OpenShift", ..PLAIN },
            Self::Rke2 => Brings { name: "RKE2", ..PLAIN },
        }
    }
}
