//! The kinds of the embedded API: Kubernetes' own that a Calico node, its installer and a drain use, and Calico's
//! custom resources in the cluster's layout.

use serde::{Deserialize, Serialize};

/// The API group of Calico's custom resources. Since Calico 3.32 a cluster may have only `projectcalico.org/v3`,
/// without an aggregated API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// `crd.projectcalico.org/v1`.
    #[default]
    V1,
    /// `projectcalico.org/v3`.
    V3,
}

/// How a kind is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub short_names: &'static [&'static str],
    pub namespaced: bool,
    /// Has the subresource `status`.
    pub status: bool,
    /// `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// Served from a CustomResourceDefinition.
    pub custom: bool,
}

impl Resource {
    /// `nodes`, `felixconfigurations.crd.projectcalico.org`: its name in messages.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.into() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.into() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The name kubectl prints before a slash.
    pub fn singular(&self) -> String {
        self.kind.to_lowercase()
    }
}

const NAMESPACED: bool = true;
const CLUSTER: bool = false;

const fn built_in(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        kind,
        short_names,
        namespaced,
        status: false,
        generation: false,
        custom: false,
    }
}

/// A kind of policy of Kubernetes' administrators (network-policy-api v0.1.5 and v0.2.0, config/crd).
const fn of_admins(
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
) -> Resource {
    let mut resource = built_in("policy.networking.k8s.io", plural, kind, &[], CLUSTER);
    resource.version = version;
    resource.short_names = short_names;
    resource.custom = true;
    resource.with_status().with_generation()
}

impl Resource {
    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn calico(
        plural: (&'static str, &'static str),
        kind: (&'static str, &'static str),
        short: &'static [&'static str],
        layout: Layout,
    ) -> Self {
        let (group, version, plural, kind) = match layout {
            Layout::V1 => ("crd.projectcalico.org", "v1", plural.0, kind.0),
            Layout::V3 => ("projectcalico.org", "v3", plural.1, kind.1),
        };
        let short_names = match layout {
            Layout::V1 => &[],
            Layout::V3 => short,
        };
        Self {
            group,
            version,
            plural,
            kind,
            short_names,
            namespaced: false,
            status: false,
            generation: true,
            custom: true,
        }
    }

    /// Like in v3.32: only in the v3 group.
    const fn with_status_in_v3(mut self) -> Self {
        self.status = matches!(self.version.as_bytes(), b"v3");
        self
    }

    const fn in_namespaces(mut self) -> Self {
        self.namespaced = true;
        self
    }
}

static BUILT_IN: &[Resource] = &[
    built_in("", "configmaps", "ConfigMap", &["cm"], NAMESPACED),
    built_in("", "endpoints", "Endpoints", &["ep"], NAMESPACED),
    built_in("", "events", "Event", &["ev"], NAMESPACED),
    built_in("", "namespaces", "Namespace", &["ns"], CLUSTER).with_status(),
    built_in("", "nodes", "Node", &["no"], CLUSTER).with_status(),
    built_in("", "pods", "Pod", &["po"], NAMESPACED).with_status().with_generation(),
    built_in("", "secrets", "Secret", &[], NAMESPACED),
    built_in("", "serviceaccounts", "ServiceAccount", &["sa"], NAMESPACED),
    built_in("", "services", "Service", &["svc"], NAMESPACED).with_status(),
    built_in("apps", "controllerrevisions", "ControllerRevision", &[], NAMESPACED),
    built_in("apps", "daemonsets", "DaemonSet", &["ds"], NAMESPACED).with_status().with_generation(),
    built_in("apps", "deployments", "Deployment", &["deploy"], NAMESPACED).with_status().with_generation(),
    built_in("apps", "replicasets", "ReplicaSet", &["rs"], NAMESPACED).with_status().with_generation(),
    built_in("apps", "statefulsets", "StatefulSet", &["sts"], NAMESPACED).with_status().with_generation(),
    built_in("policy", "poddisruptionbudgets", "PodDisruptionBudget", &["pdb"], NAMESPACED)
        .with_status()
        .with_generation(),
    built_in("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", &[], CLUSTER),
    built_in("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", &[], CLUSTER),
    built_in("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", &[], NAMESPACED),
    built_in("rbac.authorization.k8s.io", "roles", "Role", &[], NAMESPACED),
    built_in("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", &["csr"], CLUSTER)
        .with_status(),
    built_in("discovery.k8s.io", "endpointslices", "EndpointSlice", &[], NAMESPACED).with_generation(),
    built_in("networking.k8s.io", "servicecidrs", "ServiceCIDR", &[], CLUSTER).with_status(),
    Resource { custom: true, ..built_in("operator.tigera.io", "installations", "Installation", &[], CLUSTER) }
        .with_status()
        .with_generation(),
    built_in("networking.k8s.io", "networkpolicies", "NetworkPolicy", &["netpol"], NAMESPACED).with_generation(),
    // Whatever the release of Calico: an older one, or another network, may have left the definitions.
    of_admins("v1alpha1", "adminnetworkpolicies", "AdminNetworkPolicy", &["anp"]),
    of_admins("v1alpha1", "baselineadminnetworkpolicies", "BaselineAdminNetworkPolicy", &["banp"]),
    of_admins("v1alpha2", "clusternetworkpolicies", "ClusterNetworkPolicy", &["cnp"]),
    built_in("coordination.k8s.io", "leases", "Lease", &[], NAMESPACED),
    built_in(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["crd", "crds"],
        CLUSTER,
    )
    .with_status()
    .with_generation(),
    built_in("apiregistration.k8s.io", "apiservices", "APIService", &[], CLUSTER).with_status(),
];

macro_rules! calico_kinds {
    ($layout:expr) => {
        &[
            Resource::calico(
                both("bgpconfigurations"),
                both("BGPConfiguration"),
                &["bgpconfig", "bgpconfigs"],
                $layout,
            ),
            Resource::calico(both("bgpfilters"), both("BGPFilter"), &[], $layout),
            Resource::calico(both("bgppeers"), both("BGPPeer"), &[], $layout),
            Resource::calico(both("blockaffinities"), both("BlockAffinity"), &["affinity", "affinities"], $layout),
            Resource::calico(both("caliconodestatuses"), both("CalicoNodeStatus"), &[], $layout),
            Resource::calico(
                both("clusterinformations"),
                both("ClusterInformation"),
                &["clusterinfo", "clusterinfos"],
                $layout,
            ),
            Resource::calico(both("felixconfigurations"), both("FelixConfiguration"), &[], $layout),
            Resource::calico(both("globalnetworkpolicies"), both("GlobalNetworkPolicy"), &["gnp", "cgnp"], $layout),
            Resource::calico(both("globalnetworksets"), both("GlobalNetworkSet"), &["gns"], $layout),
            Resource::calico(both("hostendpoints"), both("HostEndpoint"), &["hep", "heps"], $layout),
            Resource::calico(both("ipamblocks"), both("IPAMBlock"), &[], $layout),
            Resource::calico(
                ("ipamconfigs", "ipamconfigurations"),
                ("IPAMConfig", "IPAMConfiguration"),
                &["ipamconfig", "ipamconfigs"],
                $layout,
            ),
            Resource::calico(both("ipamhandles"), both("IPAMHandle"), &[], $layout),
            Resource::calico(both("ippools"), both("IPPool"), &[], $layout).with_status_in_v3(),
            Resource::calico(both("ipreservations"), both("IPReservation"), &[], $layout),
            Resource::calico(
                both("kubecontrollersconfigurations"),
                both("KubeControllersConfiguration"),
                &["kcc", "kccs"],
                $layout,
            )
            .with_status(),
            Resource::calico(both("networkpolicies"), both("NetworkPolicy"), &["cnp"], $layout).in_namespaces(),
            Resource::calico(both("networksets"), both("NetworkSet"), &[], $layout).in_namespaces(),
            Resource::calico(
                both("stagedglobalnetworkpolicies"),
                both("StagedGlobalNetworkPolicy"),
                &["sgnp"],
                $layout,
            ),
            Resource::calico(
                both("stagedkubernetesnetworkpolicies"),
                both("StagedKubernetesNetworkPolicy"),
                &["sknp"],
                $layout,
            )
            .in_namespaces(),
            Resource::calico(both("stagednetworkpolicies"), both("StagedNetworkPolicy"), &["scnp", "snp"], $layout)
                .in_namespaces(),
            Resource::calico(both("tiers"), both("Tier"), &[], $layout).with_status_in_v3(),
        ]
    };
}

const fn both(name: &'static str) -> (&'static str, &'static str) {
    (name, name)
}

static CALICO_V1: &[Resource] = calico_kinds!(Layout::V1);
static CALICO_V3: &[Resource] = calico_kinds!(Layout::V3);

/// Every kind of a cluster with this layout.
pub fn served(layout: Layout) -> impl Iterator<Item = &'static Resource> {
    BUILT_IN.iter().chain(calico(layout))
}

/// Calico's own kinds in this layout.
pub fn calico(layout: Layout) -> &'static [Resource] {
    match layout {
        Layout::V1 => CALICO_V1,
        Layout::V3 => CALICO_V3,
    }
}

/// One of Kubernetes' own kinds, by plural; they are the same in each layout.
pub fn core(plural: &str) -> &'static Resource {
    BUILT_IN.iter().find(|r| r.plural == plural).expect("only called with plurals of the table above")
}

/// The kind of a path, if it is served.
pub fn find(layout: Layout, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    served(layout).find(|r| r.group == group && r.version == version && r.plural == plural)
}
