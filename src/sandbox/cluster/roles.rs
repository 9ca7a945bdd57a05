//! The roles and bindings of the cluster's first day. RBAC in `auth` reads them like any others.

use serde_json::json;

use super::resources::core;
use super::seed::add;
use super::store::Store;

/// Name of the Role with which calico-node requests tokens for itself.
const RENEWAL: &str = "calicoctl-win-renewal";

/// The roles of every cluster that matter here, and calico-node's as Calico's own manifest grants them
/// (reading, its node's status, tokens for the CNI plugin; no update of the IPAM configuration).
pub fn plant(store: &mut Store) {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let urls = |urls: &[&str]| json!({"nonResourceURLs": urls, "verbs": ["get"]});
    const CALICO_GROUPS: &[&str] = &["crd.projectcalico.org", "projectcalico.org"];
    const READ: &[&str] = &["get", "list", "watch"];
    let calico_node = json!([
        rule(&[""], &["pods", "nodes", "namespaces"], READ),
        rule(&[""], &["serviceaccounts"], &["list", "watch"]),
        rule(&[""], &["configmaps"], &["get"]),
        rule(&[""], &["endpoints", "services"], READ),
        rule(&[""], &["nodes/status"], &["patch", "update"]),
        rule(&[""], &["pods/status"], &["patch"]),
        {
            "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["calico-cni-plugin"],
            "verbs": ["create"],
        },
        rule(&["discovery.k8s.io"], &["endpointslices"], &["list", "watch"]),
        rule(&["networking.k8s.io"], &["networkpolicies"], &["list", "watch"]),
        rule(
            CALICO_GROUPS,
            &[
                "felixconfigurations", "bgppeers", "bgpfilters", "bgpconfigurations", "ippools", "ipreservations",
                "ipamblocks", "globalnetworkpolicies", "networkpolicies", "globalnetworksets", "networksets",
                "clusterinformations", "hostendpoints", "blockaffinities", "caliconodestatuses", "tiers",
                "stagedglobalnetworkpolicies", "stagednetworkpolicies", "stagedkubernetesnetworkpolicies",
            ],
            READ,
        ),
        rule(
            CALICO_GROUPS,
            &["ippools", "felixconfigurations", "clusterinformations", "bgpconfigurations", "bgppeers"],
            &["create", "update"],
        ),
        rule(
            CALICO_GROUPS,
            &["blockaffinities", "ipamblocks", "ipamhandles"],
            &["get", "list", "create", "update", "delete"],
        ),
        rule(CALICO_GROUPS, &["ipamconfigs", "ipamconfigurations"], &["get", "create"]),
        rule(CALICO_GROUPS, &["tiers"], &["create"]),
        rule(&["apps"], &["daemonsets"], &["get"]),
    ]);
    let everything = json!([rule(&["*"], &["*"], &["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    let discovery =
        ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version"];
    let reviews = json!([
        rule(&["authorization.k8s.io"], &["selfsubjectaccessreviews"], &["create"]),
        rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
    ]);
    // The node authorizer, as a role: its "own node only" is an admission rule.
    let kubelet = json!([
        rule(&[""], &["nodes", "pods", "services", "configmaps", "secrets"], READ),
        rule(&[""], &["nodes", "nodes/status"], &["create", "update", "patch"]),
        rule(&[""], &["pods/status", "events"], &["create", "update", "patch"]),
    ]);
    let group = |name: &str| json!({"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let account = json!({"kind": "ServiceAccount", "name": "calico-node", "namespace": "calico-system"});
    for (name, rules, subjects) in [
        ("cluster-admin", everything, vec![group("system:masters")]),
        ("system:discovery", json!([urls(&discovery)]), vec![group("system:authenticated")]),
        ("system:basic-user", reviews, vec![group("system:authenticated")]),
        (
            "system:public-info-viewer",
            json!([urls(&["/healthz", "/livez", "/readyz", "/version", "/version/"])]),
            vec![group("system:authenticated"), group("system:unauthenticated")],
        ),
        ("system:node", kubelet, vec![group("system:nodes")]),
        ("calico-node", calico_node, vec![account]),
    ] {
        add(store, core("clusterroles"), "", name, json!({"metadata": {}, "rules": rules}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": {}, "roleRef": role, "subjects": subjects});
        add(store, core("clusterrolebindings"), "", name, binding);
    }
    // What docs/rbac.yaml adds to Calico's own, so that CalicoNode can renew the node's token.
    let own = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["calico-node"], "verbs": ["create"],
    }]);
    add(store, core("roles"), "calico-system", RENEWAL, json!({"metadata": {}, "rules": own}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": RENEWAL});
    let account = json!({"kind": "ServiceAccount", "name": "calico-node", "namespace": "calico-system"});
    let binding = json!({"metadata": {}, "roleRef": role, "subjects": [account]});
    add(store, core("rolebindings"), "calico-system", RENEWAL, binding);
}
