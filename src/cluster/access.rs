//! What the kubeconfig's user must be allowed to do, and which of it the cluster does not allow.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use serde_json::json;
use tokio::task::JoinSet;

use super::api::Api;
use super::errors::Failure;
use super::lease;
use crate::facts::{ApiGroup, Right};
use crate::fault::{Exit, Fault};
use crate::settings::Credentials;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Where a right of the table below is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    /// The namespace of calico-node.
    Calico,
    Named(&'static str),
}

/// Which group a right of the table is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// The one that serves Calico's resources.
    Calico,
    Named(&'static str),
}

use Group::Named as G;
use Place::{Calico as InCalico, Cluster as Anywhere, Named as In};

/// `(verb, group, resource, place, needed)`. The empty group is the core one. What is not needed is
/// for checks that are left out without it.
const RIGHTS: &[(&str, Group, &str, Place, bool)] = &[
    ("get", G(""), "nodes", Anywhere, true),
    ("get", G(""), "serviceaccounts", InCalico, true),
    ("create", G(""), "serviceaccounts/token", InCalico, true),
    ("get", Group::Calico, "felixconfigurations", Anywhere, true),
    ("list", Group::Calico, "ippools", Anywhere, true),
    ("get", Group::Calico, "IPAM", Anywhere, true),
    ("get", Group::Calico, "clusterinformations", Anywhere, true),
    ("list", G(""), "nodes", Anywhere, false),
    ("get", G(""), "configmaps", In("kube-system"), false),
    ("get", G(""), "services", In("kube-system"), false),
    ("get", G(""), "services", In("default"), false),
    ("list", G(""), "pods", InCalico, false),
    ("get", G("apps"), "daemonsets", InCalico, false),
    ("get", G("apps"), "deployments", InCalico, false),
    ("list", G("networking.k8s.io"), "servicecidrs", Anywhere, false),
    ("list", G("networking.k8s.io"), "networkpolicies", Anywhere, false),
    ("get", G("operator.tigera.io"), "installations", Anywhere, false),
    ("get", Group::Calico, "bgpconfigurations", Anywhere, false),
    ("list", Group::Calico, "bgppeers", Anywhere, false),
    ("list", Group::Calico, "blockaffinities", Anywhere, false),
    ("list", Group::Calico, "hostendpoints", Anywhere, false),
    ("list", Group::Calico, "networkpolicies", Anywhere, false),
    ("list", Group::Calico, "globalnetworkpolicies", Anywhere, false),
];

/// What a run asks of the cluster beyond looking at it.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// Where the node's login is to come from; none where it gets none.
    pub login: Option<Credentials>,
    /// Whether a token secret may be made where there is none.
    pub create_secret: bool,
    /// Namespace of the secret with etcd's certificates.
    pub etcd_secret_in: Option<&'a str>,
}

impl Default for Needs<'_> {
    fn default() -> Self {
        Self { login: Some(Credentials::TokenRequest), create_secret: false, etcd_secret_in: None }
    }
}

/// `(verb, group, resource, place)` of what a change of a node that runs needs besides: to keep pods
/// off it, to move them away, to wait for the cluster's VNI, the Lease that keeps others from it, and
/// what an uninstall clears away.
const CHANGES: &[(&str, Group, &str, Place)] = &[
    ("patch", G(""), "nodes", Anywhere),
    // What an uninstall takes back: CalicoNode's condition, and on request the blocks.
    ("patch", G(""), "nodes/status", Anywhere),
    ("list", Group::Calico, "blockaffinities", Anywhere),
    ("delete", Group::Calico, "blockaffinities", Anywhere),
    ("get", Group::Calico, "ipamblocks", Anywhere),
    ("delete", Group::Calico, "ipamblocks", Anywhere),
    ("list", G(""), "pods", Anywhere),
    ("watch", G(""), "pods", Anywhere),
    ("get", G(""), "pods", Anywhere),
    ("delete", G(""), "pods", Anywhere),
    ("create", G(""), "pods/eviction", Anywhere),
    ("get", G("apps"), "daemonsets", Anywhere),
    ("list", G("policy"), "poddisruptionbudgets", Anywhere),
    ("watch", G("policy"), "poddisruptionbudgets", Anywhere),
    ("list", Group::Calico, "felixconfigurations", Anywhere),
    ("watch", Group::Calico, "felixconfigurations", Anywhere),
    ("get", G(LEASES), "leases", In(lease::NAMESPACE)),
    ("create", G(LEASES), "leases", In(lease::NAMESPACE)),
    ("patch", G(LEASES), "leases", In(lease::NAMESPACE)),
    ("delete", G(LEASES), "leases", In(lease::NAMESPACE)),
];

const LEASES: &str = "coordination.k8s.io";

/// Those of them that are asked about: who has these was given the others along with them.
const CHANGES_ASKED: [(&str, &str); 3] = [("patch", "nodes"), ("create", "pods/eviction"), ("patch", "leases")];

/// Every right that is asked about, for one cluster: what an install uses, and by which it is known
/// whether a change may be made.
pub fn rights(group: ApiGroup, namespace: &str, needs: &Needs<'_>) -> Vec<Right> {
    let asked = |right: &Right| CHANGES_ASKED.contains(&(right.verb.as_str(), right.resource.as_str()));
    let used = |right: &Right| match right.resource.as_str() {
        "serviceaccounts/token" => needs.login == Some(Credentials::TokenRequest),
        // A HostProcess pod knows its namespace.
        "serviceaccounts" => needs.login != Some(Credentials::HostProcess),
        _ => !right.for_changes || asked(right),
    };
    let mut rights: Vec<Right> = all(group, namespace).into_iter().filter(used).collect();
    let secrets = |verb: &str, namespace: &str| Right {
        verb: verb.into(),
        group: String::new(),
        resource: "secrets".into(),
        namespace: Some(namespace.into()),
        needed: true,
        for_changes: false,
    };
    if needs.login == Some(Credentials::Secret) {
        rights.extend(["get", "list"].map(|verb| secrets(verb, namespace)));
        rights.extend(needs.create_secret.then(|| secrets("create", namespace)));
    }
    if let Some(place) = needs.etcd_secret_in {
        let read = secrets("get", place);
        if !rights.contains(&read) {
            rights.push(read);
        }
    }
    rights
}

fn all(group: ApiGroup, namespace: &str) -> Vec<Right> {
    let right = |(verb, of, resource, place, needed, for_changes): (&str, Group, &str, Place, bool, bool)| Right {
        verb: verb.into(),
        group: match of {
            Group::Calico => group.parts().0.into(),
            G(name) => name.into(),
        },
        resource: if resource == "IPAM" { group.ipam_plural().into() } else { resource.into() },
        namespace: match place {
            Anywhere => None,
            InCalico => Some(namespace.into()),
            In(name) => Some(name.into()),
        },
        needed,
        for_changes,
    };
    let install = RIGHTS.iter().map(|&(verb, of, resource, place, needed)| (verb, of, resource, place, needed, false));
    let changes = CHANGES.iter().map(|&(verb, of, resource, place)| (verb, of, resource, place, false, true));
    install.chain(changes).map(right).collect()
}

/// The rights of these that the cluster does not give.
pub(super) async fn missing(api: &Arc<Api>, rights: Vec<Right>) -> Result<Vec<Right>, Failure> {
    let mut reviews = JoinSet::new();
    for right in rights {
        let api = Arc::clone(api);
        reviews.spawn(async move {
            let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
            let question = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": {
                    "verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource,
                    "namespace": right.namespace.as_deref().unwrap_or_default(),
                } },
            });
            let review: SelfSubjectAccessReview = api.post(REVIEWS, &question).await?;
            Ok((!review.status.is_some_and(|s| s.allowed)).then_some(right))
        });
    }
    let mut missing = Vec::new();
    while let Some(review) = reviews.join_next().await {
        missing.extend(review.expect("a question does not panic, and nobody aborts it")?);
    }
    missing.sort_by(|a, b| (!a.needed, &a.resource, a).cmp(&(!b.needed, &b.resource, b)));
    Ok(missing)
}

/// Everything that is missing in one error, where the API server's own would name the first only.
pub(super) fn fault(missing: &[Right]) -> Option<Fault> {
    let needed: Vec<String> = missing.iter().filter(|right| right.needed).map(Right::to_string).collect();
    if needed.len() < 2 {
        return None;
    }
    let what = format!("the kubeconfig's user lacks {} rights: {}", needed.len(), needed.join(", "));
    let hint = "let a cluster administrator give them: `calicoctl-win explain ClusterRights` prints a manifest";
    Some(Fault::new(Exit::ClusterUnreachable, "ClusterRights", what).hint(hint))
}

/// A manifest that gives all of them to the group `calicoctl-win`: two ClusterRoles, since most of
/// it is only for checks, and what is in a namespace as Roles.
pub fn manifest() -> String {
    let mut text = String::from(
        "# Rights of whoever runs calicoctl-win on a Windows node. Bind them to your user or group.\n\
         # A cluster whose Calico lives in kube-system needs that in place of calico-system.\n",
    );
    let all: Vec<Right> = all(ApiGroup::V1, "calico-system");
    let mut places: Vec<Option<String>> = all.iter().map(|right| right.namespace.clone()).collect();
    places.sort();
    places.dedup();
    for place in places {
        let kind = if place.is_some() { "Role" } else { "ClusterRole" };
        let within = place.as_ref().map_or_else(String::new, |name| format!(", namespace: {name}"));
        text.push_str(&format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: calicoctl-win{within}}}\nrules:\n"
        ));
        for right in all.iter().filter(|right| right.namespace == place) {
            // The IPAM configuration has another name in each group.
            let (mut groups, mut resources) = (vec![right.group.clone()], vec![right.resource.clone()]);
            if right.group == ApiGroup::V1.parts().0 {
                groups.push(ApiGroup::V3.parts().0.into());
            }
            if right.resource == ApiGroup::V1.ipam_plural() {
                resources.push(ApiGroup::V3.ipam_plural().into());
            }
            let quoted = |names: &[String]| names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
            text.push_str(&format!(
                "- {{apiGroups: [{}], resources: [{}], verbs: [{}]}}{}\n",
                quoted(&groups),
                quoted(&resources),
                right.verb,
                match (right.needed, right.for_changes) {
                    (true, _) => "",
                    (_, true) => "  # to reconfigure, upgrade and drain",
                    (_, false) => "  # for checks only",
                }
            ));
        }
        text.push_str(&format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata: {{name: calicoctl-win{within}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: calicoctl-win}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: calicoctl-win}}]\n"
        ));
    }
    text + &renewal_manifest("calico-system")
}

/// The Role that lets calico-node request tokens for itself, so that CalicoNode can renew the node's.
/// Calico's own manifests allow that for calico-cni-plugin alone.
pub fn renewal_manifest(namespace: &str) -> String {
    format!(
        "---\n\
         # Lets CalicoNode renew the node's token by itself.\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: Role\n\
         metadata: {{name: calicoctl-win-renewal, namespace: {namespace}}}\n\
         rules:\n\
         - {{apiGroups: [\"\"], resources: [\"serviceaccounts/token\"], resourceNames: [calico-node], verbs: [create]}}\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: RoleBinding\n\
         metadata: {{name: calicoctl-win-renewal, namespace: {namespace}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: calicoctl-win-renewal}}\n\
         subjects: [{{kind: ServiceAccount, name: calico-node, namespace: {namespace}}}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for beyond the default, and what of it is not.
    fn differs(needs: &Needs<'_>) -> String {
        let of = |needs: &Needs<'_>| rights(ApiGroup::V1, "kube-system", needs);
        let (usual, now) = (of(&Needs::default()), of(needs));
        let line = |sign: &str, right: &Right| format!("{sign} {right}\n");
        let more = now.iter().filter(|right| !usual.contains(right)).map(|right| line("+", right));
        let less = usual.iter().filter(|right| !now.contains(right)).map(|right| line("-", right));
        more.chain(less).collect()
    }

    #[test]
    fn a_run_needs_the_rights_that_it_uses_and_no_others() {
        let of = |login| Needs { login, ..Needs::default() };
        insta::assert_snapshot!(differs(&Needs { create_secret: true, ..of(Some(Credentials::Secret)) }), @r"
        + get secrets in kube-system
        + list secrets in kube-system
        + create secrets in kube-system
        - create serviceaccounts/token in kube-system
        ");
        insta::assert_snapshot!(differs(&of(Some(Credentials::Kubeconfig))), @"- create serviceaccounts/token in kube-system");
        insta::assert_snapshot!(differs(&of(Some(Credentials::HostProcess))), @r"
        - get serviceaccounts in kube-system
        - create serviceaccounts/token in kube-system
        ");
        insta::assert_snapshot!(differs(&Needs { etcd_secret_in: Some("etcd"), ..of(None) }), @r"
        + get secrets in etcd
        - create serviceaccounts/token in kube-system
        ");
    }
}
