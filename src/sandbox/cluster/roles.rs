//! The initial roles and bindings of the cluster. RBAC in `auth` reads them like any others.

use serde_json::{Value, json};

use super::bootstrap::TOKENS;
use super::resources::core;
use super::store::{Key, Store, add};

/// Name of the Role with which calico-node requests tokens for itself.
const RENEWAL: &str = "calicoctl-win-renewal";

const CALICO_GROUPS: &[&str] = &["crd.projectcalico.org", "projectcalico.org"];
const READ: &[&str] = &["get", "list", "watch"];

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

/// The relevant roles of every cluster, and calico-node's as in Calico's own manifest (reading, its node's status,
/// tokens for the CNI plugin; no update of the IPAM configuration).
pub fn plant(store: &mut Store) {
    let urls = |urls: &[&str]| json!({"nonResourceURLs": urls, "verbs": ["get"]});
    let calico_node = of_calico_node(store.calico_line());
    let everything = json!([rule(&["*"], &["*"], &["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    let discovery =
        ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version"];
    let reviews = json!([
        rule(&["authorization.k8s.io"], &["selfsubjectaccessreviews"], &["create"]),
        rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
    ]);
    // The node authorizer, as a role: its "own node only" is an admission rule.
    let kubelet = json!([
        rule(&[""], &["nodes", "pods", "services"], READ),
        rule(&[""], &["nodes", "nodes/status"], &["create", "update", "patch"]),
        rule(&[""], &["pods"], &["create", "delete"]),
        rule(&[""], &["pods/status", "events"], &["create", "update", "patch"]),
    ]);
    let group = |name: &str| json!({"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    // kubeadm's way for new nodes: its tokens may request certificates, which the controller approves.
    let csr = |subresource: &str| format!("certificatesigningrequests{subresource}");
    let bootstrapper = json!([rule(&["certificates.k8s.io"], &[&csr("")], &["create", "get", "list", "watch"])]);
    let approved = json!([rule(&["certificates.k8s.io"], &[&csr("/nodeclient")], &["create"])]);
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
        ("kubeadm:kubelet-bootstrap", bootstrapper, vec![group(TOKENS)]),
        ("kubeadm:node-autoapprove-bootstrap", approved, vec![group(TOKENS)]),
    ] {
        add(store, core("clusterroles"), "", name, json!({"metadata": {}, "rules": rules}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": {}, "roleRef": role, "subjects": subjects});
        add(store, core("clusterrolebindings"), "", name, binding);
    }
    // The addition of docs/rbac.yaml to Calico's own, so that CalicoNode can renew the node's token.
    let own = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["calico-node"], "verbs": ["create"],
    }]);
    add(store, core("roles"), "calico-system", RENEWAL, json!({"metadata": {}, "rules": own}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": RENEWAL});
    let account = json!({"kind": "ServiceAccount", "name": "calico-node", "namespace": "calico-system"});
    let binding = json!({"metadata": {}, "roleRef": role, "subjects": [account]});
    add(store, core("rolebindings"), "calico-system", RENEWAL, binding);
}

/// calico-node's rules in the manifests of a release line (`v3.32`).
fn of_calico_node(line: &str) -> Value {
    let minor: u32 = line.rsplit('.').next().and_then(|minor| minor.parse().ok()).unwrap_or_default();
    let policies: &[&str] = match minor {
        ..29 => &[],
        29 => &["adminnetworkpolicies"],
        30 | 31 => &["adminnetworkpolicies", "baselineadminnetworkpolicies"],
        32.. => &["clusternetworkpolicies"],
    };
    let mut rules = vec![
        rule(&[""], &["pods", "nodes", "namespaces"], READ),
        rule(&[""], &["serviceaccounts"], &["list", "watch"]),
        rule(&[""], &["configmaps"], &["get"]),
        rule(&[""], &["endpoints", "services"], READ),
        rule(&[""], &["nodes/status"], &["patch", "update"]),
        rule(&[""], &["pods/status"], &["patch"]),
        json!({
            "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["calico-cni-plugin"],
            "verbs": ["create"],
        }),
        rule(&["discovery.k8s.io"], &["endpointslices"], &["list", "watch"]),
        rule(&["networking.k8s.io"], &["networkpolicies"], &["list", "watch"]),
        rule(
            CALICO_GROUPS,
            &[
                "felixconfigurations",
                "bgppeers",
                "bgpfilters",
                "bgpconfigurations",
                "ippools",
                "ipreservations",
                "ipamblocks",
                "globalnetworkpolicies",
                "networkpolicies",
                "globalnetworksets",
                "networksets",
                "clusterinformations",
                "hostendpoints",
                "blockaffinities",
                "caliconodestatuses",
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
        rule(&["policy.networking.k8s.io"], policies, &["list", "watch"]),
    ];
    if minor >= 29 {
        rules.push(rule(CALICO_GROUPS, &["tiers"], READ));
    }
    if minor >= 30 {
        let staged = ["stagedglobalnetworkpolicies", "stagednetworkpolicies", "stagedkubernetesnetworkpolicies"];
        rules.push(rule(CALICO_GROUPS, &staged, READ));
    }
    if minor >= 32 {
        rules.push(rule(&["kubevirt.io"], &["virtualmachineinstancemigrations"], READ));
    }
    rules.into()
}

/// Another release of Calico's manifests was applied: replace the role.
pub fn update(store: &mut Store) {
    let key = Key::new(core("clusterroles"), "", "calico-node");
    let Some(mut role) = store.get(&key).cloned() else { return };
    role["rules"] = of_calico_node(store.calico_line());
    store.update(key, role);
}
