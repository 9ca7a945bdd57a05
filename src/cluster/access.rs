//! The rights that the kubeconfig's user needs, and which of them the cluster does not grant.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use serde_json::json;
use tokio::task::JoinSet;

use super::api::Api;
use super::credentials::{ACCOUNT_ANNOTATION, TOKEN_TYPE};
use super::errors::Failure;
use super::facts::NAMESPACES;
use super::policies::ADMINS;
use super::{SERVICE_ACCOUNT, TOKEN_SECRET, lease, node};
use crate::calico::kubeconfig::OTHER_LOGINS;
use crate::facts::{ApiGroup, Right};
use crate::fault::{Exit, Fault};
use crate::settings::Credentials;
use crate::settings::SecretRef;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Where a right of the table below is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    /// The namespace of calico-node.
    Calico,
    Named(&'static str),
}

/// The API group of a right in the table below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// The group that serves Calico's resources.
    Calico,
    Named(&'static str),
}

/// When a right is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// For checks of the whole cluster, which the run on one of many nodes skips.
    Whole,
    /// The same, only if the cluster serves Calico's resources.
    WholeCalico,
    /// Amazon's parts are only read on Amazon's clusters.
    Eks,
    /// The namespace of calico-node is not configured, so it is looked for in both.
    Looking,
    /// It is configured, and only checked.
    Configured,
    /// The kubeconfig trusts any server, so the cluster's CA is read from where it is published.
    CaUnknown,
}

use Group::Named as G;
use Place::{Calico as InCalico, Cluster as Anywhere, Named as In};
use When::{Always, CaUnknown, Configured, Eks, Looking, Whole, WholeCalico};

/// `(verb, group, resource, name, place, when, needed)`. The empty group is the core one; without a name the right is
/// for every object. Rights that are not needed are for checks, which are skipped without them.
type Entry = (&'static str, Group, &'static str, &'static str, Place, When, bool);

const RIGHTS: &[Entry] = &[
    ("get", G(""), "nodes", "", Anywhere, Always, true),
    ("get", G(""), "serviceaccounts", SERVICE_ACCOUNT, In(NAMESPACES[0]), Looking, true),
    ("get", G(""), "serviceaccounts", SERVICE_ACCOUNT, In(NAMESPACES[1]), Looking, true),
    ("get", G(""), "serviceaccounts", SERVICE_ACCOUNT, InCalico, Configured, false),
    ("create", G(""), TOKEN, SERVICE_ACCOUNT, InCalico, Always, true),
    ("get", G(""), "configmaps", "kube-root-ca.crt", InCalico, CaUnknown, true),
    ("get", Group::Calico, "felixconfigurations", "default", Anywhere, Always, true),
    ("list", Group::Calico, "ippools", "", Anywhere, Always, true),
    ("get", Group::Calico, "IPAM", "default", Anywhere, Always, true),
    ("get", Group::Calico, "clusterinformations", "default", Anywhere, Always, true),
    ("list", G(""), "nodes", "", Anywhere, Always, false),
    ("get", G(""), "configmaps", "kubeadm-config", In("kube-system"), Always, false),
    ("get", G(""), "configmaps", "calico-config", In("kube-system"), Always, false),
    ("get", G(""), "services", "kube-dns", In("kube-system"), Always, false),
    ("get", G(""), "services", "kubernetes", In("default"), Always, false),
    ("list", G(""), "pods", "", InCalico, Always, false),
    ("get", G("apps"), "daemonsets", "calico-node", InCalico, Always, false),
    ("get", G("apps"), "daemonsets", "calico-node-windows", InCalico, Always, false),
    ("get", G("apps"), "deployments", "calico-typha", InCalico, Whole, false),
    ("list", G("networking.k8s.io"), "servicecidrs", "", Anywhere, Always, false),
    ("list", G("networking.k8s.io"), "networkpolicies", "", Anywhere, WholeCalico, false),
    ("get", G("operator.tigera.io"), "installations", "default", Anywhere, Always, false),
    ("get", Group::Calico, "bgpconfigurations", "default", Anywhere, Whole, false),
    ("list", Group::Calico, "bgppeers", "", Anywhere, Whole, false),
    ("list", Group::Calico, "blockaffinities", "", Anywhere, Whole, false),
    ("list", Group::Calico, "hostendpoints", "", Anywhere, Whole, false),
    ("get", Group::Calico, "kubecontrollersconfigurations", "default", Anywhere, Whole, false),
    ("list", Group::Calico, "networkpolicies", "", Anywhere, Whole, false),
    ("list", Group::Calico, "globalnetworkpolicies", "", Anywhere, Whole, false),
    ("get", G(""), "configmaps", "amazon-vpc-cni", In("kube-system"), Eks, false),
    ("get", G(""), "configmaps", "aws-auth", In("kube-system"), Eks, false),
    ("get", G("apps"), "deployments", "vpc-resource-controller", In("kube-system"), Eks, false),
    ("get", G("apps"), "deployments", "vpc-admission-webhook", In("kube-system"), Eks, false),
];

const TOKEN: &str = "serviceaccounts/token";

/// What decides which requests a run makes, besides its [`Needs`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Which group serves Calico's resources; none if they are not in this cluster.
    pub group: Option<ApiGroup>,
    /// Whether the whole cluster is checked.
    pub whole: bool,
    /// The namespace of calico-node.
    pub namespace: &'a str,
    /// Whether the namespace was looked for.
    pub looking: bool,
    pub eks: bool,
    pub ca_unknown: bool,
    /// Whether the user is a kubelet.
    pub kubelet: bool,
}

impl Asked<'_> {
    fn asks(&self, when: When) -> bool {
        match when {
            Always => true,
            Whole => self.whole,
            WholeCalico => self.whole && self.group.is_some(),
            Eks => self.eks,
            Looking => self.looking,
            Configured => !self.looking,
            CaUnknown => self.ca_unknown,
        }
    }
}

/// What a run needs of the cluster beyond reading its facts.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// The source of the node's login; none if it gets none.
    pub login: Option<Credentials>,
    /// Whether the config names that source.
    pub login_named: bool,
    /// Whether a token secret may be created if there is none.
    pub create_secret: bool,
    /// The secret with etcd's certificates.
    pub etcd_secret: Option<&'a SecretRef>,
    /// Calico keeps its data in etcd: its resources in the API are not used, and not read.
    pub etcd: bool,
}

impl Default for Needs<'_> {
    fn default() -> Self {
        Self {
            login: Some(Credentials::TokenRequest),
            login_named: false,
            create_secret: false,
            etcd_secret: None,
            etcd: false,
        }
    }
}

type Change = (&'static str, Group, &'static str, Place);

/// `(verb, group, resource, place)` of the additional rights to change a running node: to cordon it, evict its pods,
/// wait for the cluster's VNI, hold the Lease that excludes other runs, and remove what an uninstall cleans up.
const CHANGES: &[Change] = &[
    ("patch", G(""), "nodes", Anywhere),
    // An uninstall removes CalicoNode's condition, and on request the blocks.
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
    // The Event on the Node if a trial cannot be reverted.
    ("create", G(""), "events", In(node::EVENTS)),
    ("get", G("apps"), "daemonsets", Anywhere),
    // Whether one of Flannel's selects a Node that leaves Flannel.
    ("list", G("apps"), "daemonsets", Anywhere),
    ("list", G("policy"), "poddisruptionbudgets", Anywhere),
    ("watch", G("policy"), "poddisruptionbudgets", Anywhere),
    ("list", Group::Calico, "felixconfigurations", Anywhere),
    ("watch", Group::Calico, "felixconfigurations", Anywhere),
    ("get", G(LEASES), "leases", In(lease::NAMESPACE)),
    ("create", G(LEASES), "leases", In(lease::NAMESPACE)),
    ("patch", G(LEASES), "leases", In(lease::NAMESPACE)),
    ("delete", G(LEASES), "leases", In(lease::NAMESPACE)),
];

/// What `policy lint` reads besides.
const LINT: &[Change] = &[
    ("list", G(""), "namespaces", Anywhere),
    ("list", G(ADMINS), "adminnetworkpolicies", Anywhere),
    ("list", G(ADMINS), "baselineadminnetworkpolicies", Anywhere),
    ("list", G(ADMINS), "clusternetworkpolicies", Anywhere),
];

/// `(since, before, group, resource)` of what Felix of a release line lists and watches beyond what all
/// lines do (libcalico-go's felixsyncer and the ClusterRole calico-node of each line). An API that is not
/// served needs the right too: RBAC answers first, and while one list is forbidden Felix is never in sync.
const OF_RELEASES: &[(Line, Option<Line>, Group, &str)] = &[
    ((3, 29), None, Group::Calico, "tiers"),
    ((3, 30), None, Group::Calico, "stagedglobalnetworkpolicies"),
    ((3, 30), None, Group::Calico, "stagednetworkpolicies"),
    ((3, 30), None, Group::Calico, "stagedkubernetesnetworkpolicies"),
    ((3, 29), Some((3, 32)), G(ADMINS), "adminnetworkpolicies"),
    ((3, 30), Some((3, 32)), G(ADMINS), "baselineadminnetworkpolicies"),
    ((3, 32), None, G(ADMINS), "clusternetworkpolicies"),
    ((3, 32), None, G("kubevirt.io"), "virtualmachineinstancemigrations"),
];

/// Major and minor.
type Line = (u64, u64);

/// The rights that the node's own identity needs for releases of this line.
pub(super) fn of_release(line: Line, group: ApiGroup) -> Vec<Right> {
    let used = OF_RELEASES.iter().filter(|(since, before, ..)| *since <= line && before.is_none_or(|end| line < end));
    used.flat_map(|(_, _, of, resource)| {
        ["list", "watch"].map(|verb| right(&(verb, *of, resource, "", Anywhere, Always, true), group, ""))
    })
    .collect()
}

const LEASES: &str = "coordination.k8s.io";

/// The rights among them that are checked: they are always granted together with the others.
const CHANGES_ASKED: [(&str, &str); 4] =
    [("patch", "nodes"), ("delete", "pods"), ("create", "pods/eviction"), ("patch", "leases")];

/// Every right that is checked for one cluster: those for the requests that an install makes there, and the few that
/// show whether a change is allowed.
pub(super) fn rights(asked: &Asked<'_>, needs: &Needs<'_>) -> Vec<Right> {
    let login = match needs.login {
        Some(_) if !needs.login_named => Some(Credentials::usual(asked.kubelet)),
        login => login,
    };
    let used = |entry: &&Entry| {
        let (_, group, resource, .., when, _) = **entry;
        let served = group != Group::Calico || asked.group.is_some();
        served
            && asked.asks(when)
            && match resource {
                TOKEN => login == Some(Credentials::TokenRequest),
                "configmaps" if when == CaUnknown => login == Some(Credentials::TokenRequest),
                _ => true,
            }
    };
    let group = asked.group.unwrap_or_default();
    let mut rights: Vec<Right> = RIGHTS.iter().filter(used).map(|entry| right(entry, group, asked.namespace)).collect();
    let changes = CHANGES.iter().filter(|(verb, _, resource, _)| CHANGES_ASKED.contains(&(*verb, *resource)));
    rights.extend(changes.map(|change| change_right(change, group, asked.namespace)));
    let secret = |verb: &str, name: Option<&str>, namespace: &str| Right {
        verb: verb.into(),
        resource: "secrets".into(),
        name: name.map(str::to_owned),
        namespace: Some(namespace.into()),
        needed: true,
        ..Right::default()
    };
    if login == Some(Credentials::Secret) {
        rights.push(secret("get", Some(TOKEN_SECRET), asked.namespace));
        // A kubelet that may read this one secret needs no more.
        if !asked.kubelet {
            rights.push(secret("list", None, asked.namespace));
            rights.extend(needs.create_secret.then(|| secret("create", None, asked.namespace)));
        }
    }
    if let Some(named) = needs.etcd_secret {
        rights.push(secret("get", Some(&named.name), named.namespace.as_deref().unwrap_or(asked.namespace)));
    }
    rights
}

/// The rights among [`CHANGES`] with these verbs and resources, none of Calico's.
pub(super) fn of_change(needed: &[(&str, &str)]) -> Vec<Right> {
    let used = CHANGES.iter().filter(|(verb, _, resource, _)| needed.contains(&(*verb, *resource)));
    used.map(|change| change_right(change, ApiGroup::V1, "")).collect()
}

fn right(&(verb, of, resource, name, place, _, needed): &Entry, group: ApiGroup, namespace: &str) -> Right {
    Right {
        verb: verb.into(),
        group: match of {
            Group::Calico => group.parts().0.into(),
            G(name) => name.into(),
        },
        resource: if resource == "IPAM" { group.ipam_plural().into() } else { resource.into() },
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        namespace: match place {
            Anywhere => None,
            InCalico => Some(namespace.into()),
            In(name) => Some(name.into()),
        },
        needed,
        for_changes: false,
    }
}

fn change_right(&(verb, of, resource, place): &Change, group: ApiGroup, namespace: &str) -> Right {
    let right = right(&(verb, of, resource, "", place, Always, false), group, namespace);
    Right { for_changes: true, ..right }
}

/// The rights among these that the cluster does not grant. What a request has shown is not asked again.
pub(super) async fn missing(api: &Arc<Api>, rights: Vec<Right>) -> Result<Vec<Right>, Failure> {
    let mut reviews = JoinSet::new();
    for right in rights.into_iter().filter(|right| !api.granted.shows(right)) {
        let api = Arc::clone(api);
        reviews.spawn(async move {
            let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
            let question = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": {
                    "verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource,
                    "name": right.name.as_deref().unwrap_or_default(),
                    "namespace": right.namespace.as_deref().unwrap_or_default(),
                } },
            });
            let review: SelfSubjectAccessReview = api.post(REVIEWS, &question).await?;
            if review.status.is_some_and(|s| s.allowed) {
                api.granted.reviewed(right);
                return Ok(None);
            }
            Ok(Some(right))
        });
    }
    let mut missing = Vec::new();
    while let Some(review) = reviews.join_next().await {
        missing.extend(review.expect("the task does not panic, and is not aborted")?);
    }
    missing.sort_by(|a, b| (!a.needed, &a.resource, a).cmp(&(!b.needed, &b.resource, b)));
    Ok(missing)
}

/// The command that prints the manifest of a page for the namespace of calico-node.
pub(super) fn page(id: &str, namespace: &str) -> String {
    let option = if namespace == NAMESPACES[0] { String::new() } else { format!(" --calico-namespace {namespace}") };
    format!("calicoctl-win explain {id}{option}")
}

/// All missing rights in one error; the API server's own would name only the first.
pub(super) fn fault(missing: &[Right], asked: &Asked<'_>) -> Option<Fault> {
    let needed: Vec<String> = missing.iter().filter(|right| right.needed).map(Right::to_string).collect();
    if needed.len() < 2 {
        return None;
    }
    let what = format!("the kubeconfig's user lacks {} rights: {}", needed.len(), needed.join(", "));
    let page = page("ClusterRights", asked.namespace);
    let hint = format!("ask a cluster administrator to grant them: `{page}` prints a manifest");
    let hint = if asked.kubelet { format!("{hint}\n{OTHER_LOGINS}") } else { hint };
    Some(Fault::new(Exit::ClusterAccessDenied, "ClusterRights", what).hint(hint))
}

/// One line of the manifest: `(verb, groups, resource)`, the objects, and the purpose.
type Rule = ((String, Vec<String>, Vec<String>), Vec<String>, &'static str);

/// What the runs of a fleet do not ask for: the blocks, which only an uninstall asks for that also removes the cluster's
/// traces of the node, and the wait for the cluster's VNI, which the readiness of their pods replaces.
const OF_OTHER_RUNS: [&str; 3] = ["blockaffinities", "ipamblocks", "felixconfigurations"];

/// The rules of one place. Objects with the same rights share a rule. `of_fleet`: for the pods of a fleet, which run
/// `apply` and `uninstall` on their own node, and do not check the whole cluster.
fn rules(place: Place, of_fleet: bool) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    // A pod has the CA of its cluster.
    let skipped = |when: When| of_fleet && matches!(when, Whole | WholeCalico | CaUnknown);
    let here = RIGHTS.iter().filter(|(.., at, when, _)| *at == place && !skipped(*when));
    let wanted = here.map(|entry| {
        let purpose = match entry {
            (.., CaUnknown, _) => "  # if the kubeconfig has insecure-skip-tls-verify",
            (.., Eks, _) => "  # for checks only, on EKS",
            (.., true) => "",
            (.., false) => "  # for checks only",
        };
        (right(entry, ApiGroup::V1, NAMESPACES[0]), purpose)
    });
    let changes = CHANGES
        .iter()
        .filter(|(_, _, resource, at)| *at == place && !(of_fleet && OF_OTHER_RUNS.contains(resource)))
        .map(|change| (change_right(change, ApiGroup::V1, NAMESPACES[0]), "  # to reconfigure, upgrade and drain"));
    let lint = LINT
        .iter()
        .filter(|(.., at)| *at == place && !of_fleet)
        .map(|right| (change_right(right, ApiGroup::V1, NAMESPACES[0]), "  # for policy lint"));
    for (right, purpose) in wanted.chain(changes).chain(lint) {
        // The IPAM configuration has another name in each group.
        let (mut groups, mut resources) = (vec![right.group.clone()], vec![right.resource.clone()]);
        if right.group == ApiGroup::V1.parts().0 {
            groups.push(ApiGroup::V3.parts().0.into());
        }
        if right.resource == ApiGroup::V1.ipam_plural() {
            resources.push(ApiGroup::V3.ipam_plural().into());
        }
        let what = (right.verb, groups, resources);
        match rules.iter_mut().find(|(same, names, why)| *same == what && *why == purpose && !names.is_empty()) {
            Some((_, names, _)) if right.name.is_some() => names.extend(right.name),
            _ => rules.push((what, right.name.into_iter().collect(), purpose)),
        }
    }
    rules
}

/// Rights that few need, as commented lines of the manifest.
const ON_REQUEST: [(Place, &str); 2] = [
    (
        InCalico,
        "# With kubernetes.credentials: secret. A user with this right can act as any account of this namespace.\n\
         # - {apiGroups: [\"\"], resources: [\"secrets\"], verbs: [get, list, create, delete]}\n",
    ),
    (
        In("kube-system"),
        "# With datastore.etcd.tlsSecretRef, by its name.\n\
         # - {apiGroups: [\"\"], resources: [\"secrets\"], resourceNames: [\"calico-etcd-secrets\"], verbs: [get]}\n",
    ),
];

/// A manifest that grants all of them to the group `calicoctl-win`: a ClusterRole, and Roles for what is in a
/// namespace. `namespace`: of calico-node, if it is configured.
pub fn manifest(namespace: Option<&str>) -> String {
    let subject = "apiGroup: rbac.authorization.k8s.io, kind: Group, name: calicoctl-win";
    roles(namespace.unwrap_or(NAMESPACES[0]), "calicoctl-win", subject, false)
}

/// The same for the pods of a fleet, by roles of their own: those of users have more. `namespace`: of calico-node;
/// `pods`: of the pods and their account.
pub fn fleet_manifest(namespace: &str, pods: &str) -> String {
    let subject = format!("kind: ServiceAccount, name: calicoctl-win, namespace: {pods}");
    roles(namespace, "calicoctl-win-fleet", &subject, true)
}

/// Roles whose names begin with `named`, bound to a subject.
fn roles(calico: &str, named: &str, subject: &str, of_fleet: bool) -> String {
    let usual = calico == NAMESPACES[0];
    let mut text = String::from("# Rights to run calicoctl-win on a Windows node. Bind them to your user or group.\n");
    text.push_str(&match usual {
        true => "# If Calico is in kube-system, print them for it:\n\
                 # calicoctl-win explain ClusterRights --calico-namespace kube-system\n"
            .to_owned(),
        false => format!("# For Calico in {calico}: set kubernetes.calicoNamespace: {calico} in the config.\n"),
    });
    // calico-system is both the namespace of calico-node and one of the candidates, if it is looked for.
    let places: [(Option<&str>, &[Place]); 5] = [
        (None, &[Anywhere]),
        (Some(calico), if usual { &[In(NAMESPACES[0]), InCalico] } else { &[InCalico] }),
        (Some("default"), &[In("default")]),
        (Some(lease::NAMESPACE), &[In(lease::NAMESPACE)]),
        (Some("kube-system"), &[In("kube-system")]),
    ];
    // Of a fleet: what the whole cluster or this Role has already. Users leave out rules by their purposes.
    let mut given: Vec<(Rule, Option<&str>)> = Vec::new();
    for (order, (namespace, places)) in places.into_iter().enumerate() {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let within = namespace.map_or_else(String::new, |name| format!(", namespace: {name}"));
        // With Calico in kube-system there are two Roles in that namespace.
        let name = format!("{named}{}", if order == 1 { "-calico" } else { "" });
        text.push_str(&format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}{within}}}\nrules:\n"
        ));
        for place in places {
            for rule in rules(*place, of_fleet) {
                let ((verb, groups, resources), names, purpose) = &rule;
                let is_given = |(other, at): &(Rule, Option<&str>)| {
                    other.0 == rule.0 && (other.1.is_empty() || other.1 == *names) && (at.is_none() || *at == namespace)
                };
                if of_fleet && given.iter().any(is_given) {
                    continue;
                }
                let quoted = |names: &[String]| names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
                let only = match names.is_empty() {
                    true => String::new(),
                    false => format!("resourceNames: [{}], ", quoted(names)),
                };
                let (groups, resources) = (quoted(groups), quoted(resources));
                text.push_str(&format!(
                    "- {{apiGroups: [{groups}], resources: [{resources}], {only}verbs: [{verb}]}}{purpose}\n"
                ));
                given.push((rule, namespace));
            }
            text.extend(ON_REQUEST.iter().filter(|(at, _)| at == place).map(|(_, lines)| *lines));
        }
        text.push_str(&format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata: {{name: {name}{within}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {name}}}\n\
             subjects: [{{{subject}}}]\n"
        ));
    }
    text + &renewal_manifest(calico)
}

/// The Role that allows calico-node to request tokens for itself, so that CalicoNode can renew the node's. Calico's own
/// manifests allow that only for calico-cni-plugin.
pub fn renewal_manifest(namespace: &str) -> String {
    format!(
        "---\n\
         # Allows CalicoNode to renew the node's token.\n\
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
         subjects: [{{kind: ServiceAccount, name: calico-node, namespace: {namespace}}}]\n\
         # Allows CalicoNode to uncordon its Node after a run that could not, if kubelet's kubeconfig is not on the\n\
         # node. The calico-node of each node can then change every Node:\n\
         # kubectl create clusterrole calicoctl-win-uncordon --verb=get,patch --resource=nodes\n\
         # kubectl create clusterrolebinding calicoctl-win-uncordon --clusterrole=calicoctl-win-uncordon --serviceaccount={namespace}:calico-node\n\
         # Allows it to re-create pods that lost their network at a boot, in the same case. The calico-node of each\n\
         # node can then delete every pod:\n\
         # kubectl create clusterrole calicoctl-win-pods --verb=list,delete --resource=pods\n\
         # kubectl create clusterrolebinding calicoctl-win-pods --clusterrole=calicoctl-win-pods --serviceaccount={namespace}:calico-node\n"
    )
}

/// The secret whose token a node without the rights of an administrator logs in with, and the right to read it for every
/// node.
pub fn login_manifest(namespace: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Secret\n\
         type: {TOKEN_TYPE}\n\
         metadata: {{name: {TOKEN_SECRET}, namespace: {namespace}, annotations: {{{ACCOUNT_ANNOTATION}: {SERVICE_ACCOUNT}}}}}\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: Role\n\
         metadata: {{name: calicoctl-win-login, namespace: {namespace}}}\n\
         rules:\n\
         - {{apiGroups: [\"\"], resources: [\"secrets\"], resourceNames: [{TOKEN_SECRET}], verbs: [get]}}\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: RoleBinding\n\
         metadata: {{name: calicoctl-win-login, namespace: {namespace}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: calicoctl-win-login}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"system:nodes\"}}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::policies::OF_ADMINS;

    const PLAIN: Asked<'_> = Asked {
        group: Some(ApiGroup::V1),
        whole: true,
        namespace: "kube-system",
        looking: false,
        eks: false,
        ca_unknown: false,
        kubelet: false,
    };

    /// The rights that differ from the default: added and removed ones.
    fn differs(asked: &Asked<'_>, needs: &Needs<'_>) -> String {
        let (usual, now) = (rights(&PLAIN, &Needs::default()), rights(asked, needs));
        let line = |sign: &str, right: &Right| format!("{sign} {right}\n");
        let more = now.iter().filter(|right| !usual.contains(right)).map(|right| line("+", right));
        let less = usual.iter().filter(|right| !now.contains(right)).map(|right| line("-", right));
        more.chain(less).collect()
    }

    #[test]
    fn a_run_needs_only_the_rights_that_it_uses() {
        let of = |login| Needs { login, login_named: true, ..Needs::default() };
        let differs = |needs: &Needs<'_>| differs(&PLAIN, needs);
        insta::assert_snapshot!(differs(&Needs { create_secret: true, ..of(Some(Credentials::Secret)) }), @r"
        + get secrets calico-node-token in kube-system
        + list secrets in kube-system
        + create secrets in kube-system
        - create serviceaccounts/token calico-node in kube-system
        ");
        insta::assert_snapshot!(differs(&of(Some(Credentials::Kubeconfig))), @"- create serviceaccounts/token calico-node in kube-system");
        insta::assert_snapshot!(differs(&of(Some(Credentials::HostProcess))), @"- create serviceaccounts/token calico-node in kube-system");
        let secret = SecretRef { namespace: None, name: "etcd".into() };
        insta::assert_snapshot!(differs(&Needs { etcd_secret: Some(&secret), ..of(None) }), @r"
        + get secrets etcd in kube-system
        - create serviceaccounts/token calico-node in kube-system
        ");
    }

    #[test]
    fn each_release_line_needs_what_its_felix_watches() {
        let lists = |minor: u64| {
            let rights = of_release((3, minor), ApiGroup::V1);
            let lists = rights.iter().filter(|right| right.verb == "list");
            lists.map(|right| right.resource.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(lists(28), "");
        assert_eq!(lists(29), "tiers adminnetworkpolicies");
        let staged = "stagedglobalnetworkpolicies stagednetworkpolicies stagedkubernetesnetworkpolicies";
        for minor in [30, 31] {
            assert_eq!(lists(minor), format!("tiers {staged} adminnetworkpolicies baselineadminnetworkpolicies"));
        }
        for minor in [32, 33] {
            let new = "clusternetworkpolicies virtualmachineinstancemigrations";
            assert_eq!(lists(minor), format!("tiers {staged} {new}"));
        }
    }

    #[test]
    fn the_kinds_of_policies_that_are_read_are_those_with_a_right_and_those_of_each_release() {
        let read = OF_ADMINS.map(|(_, _, plural)| plural);
        let asked = LINT.iter().filter(|(_, group, ..)| *group == G(ADMINS));
        assert_eq!(
            asked.map(|(verb, _, plural, _)| (*verb, *plural)).collect::<Vec<_>>(),
            read.map(|one| ("list", one))
        );
        for minor in 28..=33 {
            let known = OF_ADMINS.iter().filter(|(kind, ..)| kind.is_read_by((3, minor)));
            let known: Vec<&str> = known.map(|(_, _, plural)| *plural).collect();
            let granted = of_release((3, minor), ApiGroup::V1);
            let granted = granted.iter().filter(|right| right.group == ADMINS && right.verb == "list");
            assert_eq!(granted.map(|right| right.resource.as_str()).collect::<Vec<_>>(), known, "v3.{minor}");
        }
    }

    #[test]
    fn the_rights_depend_on_platform_and_cluster() {
        let differs = |asked: &Asked<'_>| differs(asked, &Needs::default());
        insta::assert_snapshot!(differs(&Asked { eks: true, ..PLAIN }), @r"
        + get configmaps amazon-vpc-cni in kube-system
        + get configmaps aws-auth in kube-system
        + get deployments.apps vpc-resource-controller in kube-system
        + get deployments.apps vpc-admission-webhook in kube-system
        ");
        insta::assert_snapshot!(differs(&Asked { kubelet: true, ..PLAIN }), @r"
        + get secrets calico-node-token in kube-system
        - create serviceaccounts/token calico-node in kube-system
        ");
        insta::assert_snapshot!(differs(&Asked { looking: true, ca_unknown: true, ..PLAIN }), @r"
        + get serviceaccounts calico-node in calico-system
        + get serviceaccounts calico-node in kube-system
        + get configmaps kube-root-ca.crt in kube-system
        - get serviceaccounts calico-node in kube-system
        ");
        // With etcd none of Calico's own resources is read from the API.
        let etcd = differs(&Asked { group: None, ..PLAIN });
        assert!(
            etcd.lines()
                .all(|line| line.starts_with("- ") && line.contains("projectcalico.org")
                    || line.contains("networkpolicies")),
            "{etcd}"
        );
        assert_eq!(etcd.lines().count(), 12, "{etcd}");
    }
}
