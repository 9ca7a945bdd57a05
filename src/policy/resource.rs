//! Policies as they are written: Calico's in either API group, Kubernetes' own, and those of Kubernetes' administrators.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::shape;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Kind {
    GlobalNetworkPolicy,
    /// Calico's.
    NetworkPolicy,
    /// Kubernetes' own.
    KubernetesNetworkPolicy,
    /// Of Kubernetes' administrators, as are the next two.
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    ClusterNetworkPolicy,
}

impl Kind {
    /// The kind of a document; none if it is no policy that Calico on Windows enforces.
    fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version.split('/').next()?, kind) {
            ("projectcalico.org" | "crd.projectcalico.org", "GlobalNetworkPolicy") => Some(Self::GlobalNetworkPolicy),
            ("projectcalico.org" | "crd.projectcalico.org", "NetworkPolicy") => Some(Self::NetworkPolicy),
            ("networking.k8s.io" | "extensions", "NetworkPolicy") => Some(Self::KubernetesNetworkPolicy),
            ("policy.networking.k8s.io", "AdminNetworkPolicy") => Some(Self::AdminNetworkPolicy),
            ("policy.networking.k8s.io", "BaselineAdminNetworkPolicy") => Some(Self::BaselineAdminNetworkPolicy),
            ("policy.networking.k8s.io", "ClusterNetworkPolicy") => Some(Self::ClusterNetworkPolicy),
            _ => None,
        }
    }

    pub(super) const fn is_global(self) -> bool {
        !matches!(self, Self::NetworkPolicy | Self::KubernetesNetworkPolicy)
    }

    /// Whether it is one of Kubernetes' administrators.
    pub(super) const fn is_of_admins(self) -> bool {
        matches!(self, Self::AdminNetworkPolicy | Self::BaselineAdminNetworkPolicy | Self::ClusterNetworkPolicy)
    }

    /// Whether Calico makes several rules of one, of which Windows may skip some.
    pub(super) const fn is_converted(self) -> bool {
        self.is_of_admins() || matches!(self, Self::KubernetesNetworkPolicy)
    }

    /// Whether a release of this line reads the kind (libcalico-go,
    /// lib/backend/syncersv1/felixsyncer/felixsyncerv1.go of v3.29.0, v3.30.0 and v3.32.0).
    pub const fn is_read_by(self, (major, minor): (u64, u64)) -> bool {
        match self {
            Self::GlobalNetworkPolicy | Self::NetworkPolicy | Self::KubernetesNetworkPolicy => true,
            Self::AdminNetworkPolicy => major == 3 && minor >= 29 && minor < 32,
            Self::BaselineAdminNetworkPolicy => major == 3 && minor >= 30 && minor < 32,
            Self::ClusterNetworkPolicy => major > 3 || major == 3 && minor >= 32,
        }
    }

    /// As kubectl names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::GlobalNetworkPolicy => "globalnetworkpolicy.projectcalico.org",
            Self::NetworkPolicy => "networkpolicy.projectcalico.org",
            Self::KubernetesNetworkPolicy => "networkpolicy.networking.k8s.io",
            Self::AdminNetworkPolicy => "adminnetworkpolicy.policy.networking.k8s.io",
            Self::BaselineAdminNetworkPolicy => "baselineadminnetworkpolicy.policy.networking.k8s.io",
            Self::ClusterNetworkPolicy => "clusternetworkpolicy.policy.networking.k8s.io",
        }
    }
}

/// A policy of any kind.
#[derive(Debug, Clone)]
pub struct Policy {
    pub kind: Kind,
    /// None for a global one.
    pub namespace: Option<String>,
    pub name: String,
    pub(super) spec: Spec,
    /// What the API does not take of a file's policy, and what was meant.
    pub(super) refused: shape::Refused,
}

impl Policy {
    /// A policy from a list of the API, whose items do not say what they are.
    pub fn of_list(kind: Kind, item: Listed) -> Self {
        let namespace = item.metadata.namespace.filter(|_| !kind.is_global());
        Self { kind, namespace, name: item.metadata.name, spec: item.spec, refused: Vec::new() }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        write!(f, "{} {namespace}{}", self.kind.name(), self.name)
    }
}

/// An item of such a list.
#[derive(Debug, Deserialize)]
pub struct Listed {
    #[serde(default)]
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Spec,
}

/// A document of a file, reduced while it is parsed: a file may have ten thousand.
#[derive(Debug)]
pub enum Item {
    Policy(Box<Policy>),
    /// A list of kubectl or calicoctl.
    List(Vec<Self>),
    /// A staged policy, which Felix does not enforce.
    Staged,
    /// Any other kind.
    Other,
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Document { api_version, kind, metadata, spec, items } = Document::deserialize(from)?;
        if let Some(items) = items {
            return Ok(Self::List(items));
        }
        let Some(of) = Kind::of(&api_version, &kind) else {
            let staged = kind.starts_with("Staged") && api_version.contains("projectcalico.org/");
            return Ok(if staged { Self::Staged } else { Self::Other });
        };
        let metadata: Meta = serde_json::from_value(metadata).map_err(|e| D::Error::custom(format!("{kind}: {e}")))?;
        if metadata.name.is_empty() {
            return Err(D::Error::custom(format!("a {kind} without metadata.name")));
        }
        let refused = match of {
            Kind::GlobalNetworkPolicy => shape::of_calico(true, &spec),
            Kind::NetworkPolicy => shape::of_calico(false, &spec),
            Kind::KubernetesNetworkPolicy => shape::of_kubernetes(&spec),
            // What Calico cannot convert of the others are findings of their own.
            _ => Vec::new(),
        };
        let spec = if spec.is_null() { Ok(Spec::default()) } else { serde_json::from_value(spec) };
        let spec = spec.map_err(|e| D::Error::custom(format!("{kind} {}: spec: {e}", metadata.name)))?;
        // What kubectl would give it; the namespace of a file without one is that of who applies it.
        let namespace = metadata.namespace.or_else(|| Some("default".to_owned())).filter(|_| !of.is_global());
        Ok(Self::Policy(Box::new(Policy { kind: of, namespace, name: metadata.name, spec, refused })))
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.metadata.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        write!(f, "{namespace}{}", self.metadata.name)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    spec: Value,
    items: Option<Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Meta {
    #[serde(default)]
    name: String,
    pub namespace: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub selector: Option<String>,
    pub namespace_selector: Option<String>,
    pub do_not_track: Option<bool>,
    #[serde(rename = "preDNAT")]
    pub pre_dnat: Option<bool>,
    pub types: Option<Vec<String>>,
    /// Kubernetes.
    pub pod_selector: Option<LabelSelector>,
    pub policy_types: Option<Vec<String>>,
    /// Kubernetes' administrators: the pods that the policy is for.
    pub subject: Option<Subject>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub ingress: Vec<Rule>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub egress: Vec<Rule>,
}

impl Spec {
    /// The rules of both directions with the name of each; rules of a direction that `types` leaves out have no effect.
    pub fn directions(&self) -> impl Iterator<Item = (&'static str, &[Rule])> {
        let types = self.types.as_ref().or(self.policy_types.as_ref()).filter(|types| !types.is_empty());
        let is_used = move |of: &str| types.is_none_or(|types| types.iter().any(|one| one == of));
        let ingress = is_used("Ingress").then_some(("ingress", self.ingress.as_slice()));
        ingress.into_iter().chain(is_used("Egress").then_some(("egress", self.egress.as_slice())))
    }
}

/// A rule of any kind of policy; their fields have different names.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    #[serde(default)]
    pub action: String,
    pub ip_version: Option<u8>,
    pub not_protocol: Option<IgnoredAny>,
    pub icmp: Option<IgnoredAny>,
    #[serde(rename = "notICMP")]
    pub not_icmp: Option<IgnoredAny>,
    pub http: Option<IgnoredAny>,
    #[serde(default)]
    pub source: Entity,
    #[serde(default)]
    pub destination: Entity,
    /// Kubernetes.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub ports: Vec<Port>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub from: Vec<Peer>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub to: Vec<Peer>,
    /// ClusterNetworkPolicy, instead of ports. Few have them, so they have no types of their own.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub protocols: Vec<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entity {
    #[serde(default, deserialize_with = "null_is_empty")]
    pub nets: Vec<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub not_nets: Vec<String>,
    pub selector: Option<String>,
    pub not_selector: Option<String>,
    pub namespace_selector: Option<String>,
    pub service_accounts: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "ports")]
    pub ports: Vec<String>,
    #[serde(default, deserialize_with = "ports")]
    pub not_ports: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    #[serde(default, deserialize_with = "port")]
    pub port: Option<String>,
    /// AdminNetworkPolicy and BaselineAdminNetworkPolicy.
    pub port_range: Option<Value>,
    pub named_port: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peer {
    pub ip_block: Option<Block>,
    pub pod_selector: Option<LabelSelector>,
    pub namespace_selector: Option<LabelSelector>,
    /// Kubernetes' administrators.
    pub namespaces: Option<LabelSelector>,
    pub pods: Option<Pods>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub networks: Vec<String>,
    pub nodes: Option<IgnoredAny>,
    pub domain_names: Option<IgnoredAny>,
}

/// Pods, or all pods of namespaces.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Subject {
    pub namespaces: Option<LabelSelector>,
    pub pods: Option<Pods>,
}

/// An absent selector selects everything: it is no pointer in Kubernetes' type.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pods {
    #[serde(default)]
    pub namespace_selector: LabelSelector,
    #[serde(default)]
    pub pod_selector: LabelSelector,
}

/// A label selector of Kubernetes; an empty one selects everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LabelSelector {
    pub match_labels: Option<BTreeMap<String, String>>,
    pub match_expressions: Option<Vec<Expression>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Expression {
    pub key: String,
    pub operator: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Block {
    #[serde(default)]
    pub cidr: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub except: Vec<String>,
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A port is a number, or a text: a name, or a range such as `8000:8100`.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn ports<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(null_is_empty::<D, Value>(from)?.into_iter().map(as_text).collect())
}

fn port<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Value>::deserialize(from)?.map(as_text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_a_policy_a_list_a_staged_one_or_something_else() {
        let read = |api: &str, kind: &str| {
            let document = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a", "namespace": "n"}});
            match serde_json::from_value::<Item>(document).unwrap() {
                Item::Policy(policy) => policy.to_string(),
                other => format!("{other:?}"),
            }
        };
        for (api, kind, wanted) in [
            ("projectcalico.org/v3", "NetworkPolicy", "networkpolicy.projectcalico.org n/a"),
            ("crd.projectcalico.org/v1", "NetworkPolicy", "networkpolicy.projectcalico.org n/a"),
            ("crd.projectcalico.org/v1", "GlobalNetworkPolicy", "globalnetworkpolicy.projectcalico.org a"),
            ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicy.networking.k8s.io n/a"),
            (
                "policy.networking.k8s.io/v1alpha1",
                "AdminNetworkPolicy",
                "adminnetworkpolicy.policy.networking.k8s.io a",
            ),
            (
                "policy.networking.k8s.io/v1alpha1",
                "BaselineAdminNetworkPolicy",
                "baselineadminnetworkpolicy.policy.networking.k8s.io a",
            ),
            (
                "policy.networking.k8s.io/v1alpha2",
                "ClusterNetworkPolicy",
                "clusternetworkpolicy.policy.networking.k8s.io a",
            ),
            ("projectcalico.org/v3", "StagedGlobalNetworkPolicy", "Staged"),
            ("apps/v1", "Deployment", "Other"),
            ("cilium.io/v2", "NetworkPolicy", "Other"),
        ] {
            assert_eq!(read(api, kind), wanted);
        }
    }

    #[test]
    fn a_policy_that_cannot_be_read_names_itself_and_the_fault() {
        let refused = |document: Value| serde_json::from_value::<Item>(document).unwrap_err().to_string();
        let policy = |spec: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": spec});
        let said = refused(policy(json!({"ingress": "all"})));
        assert!(said.starts_with("NetworkPolicy a: spec: invalid type: string"), "{said}");
        let mut unnamed = policy(json!({}));
        unnamed["metadata"] = json!({});
        assert_eq!(refused(unnamed), "a NetworkPolicy without metadata.name");
    }

    #[test]
    fn rules_of_a_direction_that_types_leaves_out_are_not_read() {
        let directions = |spec: Value| {
            let spec: Spec = serde_json::from_value(spec).unwrap();
            spec.directions().map(|(name, rules)| format!("{name} {}", rules.len())).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(directions(json!({"ingress": [{}], "egress": [{}, {}]})), "ingress 1, egress 2");
        assert_eq!(directions(json!({"types": ["Egress"], "ingress": [{}], "egress": null})), "egress 0");
        assert_eq!(directions(json!({"policyTypes": ["Ingress"], "ingress": [{}]})), "ingress 1");
    }
}
