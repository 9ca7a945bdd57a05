//! The platforms: how the machine shows each of them, and their defaults.

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

/// A platform's row: what it is detected by, and what is different there, for defaults.
#[derive(Debug, Clone, Copy)]
pub struct Brings {
    /// Its name in the config.
    pub name: &'static str,
    /// What it is detected by, for people.
    pub evidence: &'static str,
    /// The HNS network that its own CNI plugin makes; with a `*`, how its name begins.
    pub network: Option<&'static str>,
    /// A distribution, which may run on a cloud: any of these services shows it.
    pub services: &'static [&'static str],
    /// Where its nodes have a kubeconfig.
    pub kubeconfig: &'static str,
    /// The HNS networks of the cloud's own CNI plugin, which owns the pods' network; an expression.
    pub own_network: Option<&'static str>,
    /// A Node has the instance's name in the cloud, which Windows cannot read.
    pub names_nodes: bool,
    /// Pods must not reach Azure's wireserver.
    pub wireserver: bool,
    pub metadata_route: MetadataRoute,
    /// kube-proxy is the cloud's: users cannot set its flags, so Direct Server Return is added.
    pub own_kube_proxy: bool,
}

/// What happens to the route to the cloud's metadata service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataRoute {
    /// There is none, or nothing removes it.
    Left,
    /// A vSwitch that Calico creates removes it.
    LostToVSwitch,
    /// It may be missing with any backend.
    Lost,
}

impl Provider {
    /// In the order in which they are looked for: the first that is found counts.
    pub const ALL: [Self; 7] = [Self::Aks, Self::Eks, Self::Ec2, Self::Gce, Self::Rke2, Self::OpenShift, Self::None];

    pub const fn brings(self) -> Brings {
        const PLAIN: Brings = Brings {
            name: "none",
            evidence: "otherwise",
            network: None,
            services: &[],
            kubeconfig: r"C:\k\config",
            own_network: None,
            names_nodes: false,
            wireserver: false,
            metadata_route: MetadataRoute::Left,
            own_kube_proxy: false,
        };
        match self {
            Self::None => PLAIN,
            Self::Aks => Brings {
                name: "AKS",
                evidence: "an HNS network named `azure`, from Azure's own CNI",
                network: Some("azure"),
                own_network: Some("azure.*"),
                wireserver: true,
                ..PLAIN
            },
            Self::Eks => Brings {
                name: "EKS",
                evidence: "an HNS network whose name begins with `vpcbr`, from the VPC CNI",
                network: Some("vpcbr*"),
                kubeconfig: r"C:\ProgramData\kubernetes\kubeconfig",
                own_network: Some("vpc.*"),
                names_nodes: true,
                own_kube_proxy: true,
                ..PLAIN
            },
            Self::Ec2 => Brings {
                name: "EC2",
                evidence: "the instance metadata service gives a token (IMDSv2) at `169.254.169.254`",
                names_nodes: true,
                metadata_route: MetadataRoute::LostToVSwitch,
                ..PLAIN
            },
            Self::Gce => Brings {
                name: "GCE",
                evidence: "the answer at that address has Google's header `Metadata-Flavor`",
                names_nodes: true,
                metadata_route: MetadataRoute::Lost,
                ..PLAIN
            },
            // RKE1's nodes, and RKE2's that were created by Rancher, run Rancher's agent.
            Self::Rke2 => Brings {
                name: "RKE2",
                evidence: "the service `rke2`, or Rancher's `rancher-wins`; on EC2 or GCE, the cloud applies",
                services: &["rke2", "rancher-wins"],
                ..PLAIN
            },
            Self::OpenShift => Brings {
                name: "OpenShift",
                evidence: "the cluster serves the API group `config.openshift.io`, and no row above matches",
                ..PLAIN
            },
        }
    }

    /// The platform whose own CNI plugin makes an HNS network of this name.
    pub fn of_network(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let is = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        Self::ALL.into_iter().find(|platform| platform.brings().network.is_some_and(is))
    }
}
