use std::time::Instant;

use super::super::api::SETTLED_WITHIN;
use super::super::{Checks, FactsOptions, access};
use super::*;
use crate::facts::{ApiGroup, ClusterFacts};
use crate::settings::Credentials;

const OPTIONS: FactsOptions<'static> = FactsOptions {
    flannel: false,
    node_name: Some("win-a1"),
    addresses: &[],
    namespace_override: None,
    needs: NEEDS,
    checks: Checks::All,
};
const NEEDS: Needs<'_> = Needs {
    login: Some(Credentials::TokenRequest),
    login_named: false,
    create_secret: false,
    etcd_secret: None,
    etcd: false,
};
const IN_CALICO_SYSTEM: &str = "GET /api/v1/namespaces/calico-system/serviceaccounts/calico-node";
const IN_KUBE_SYSTEM: &str = "GET /api/v1/namespaces/kube-system/serviceaccounts/calico-node";
const KUBEADM: &str = "GET /api/v1/namespaces/kube-system/configmaps/kubeadm-config";
const DNS: &str = "GET /api/v1/namespaces/kube-system/services/kube-dns";

fn absent(kind: &str, name: &str) -> Reply {
    let status = json!({
        "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("{kind} \"{name}\" not found"), "details": {"name": name, "kind": kind},
    });
    Reply::json(404, &status)
}

/// The recorded cluster, in Calico's old group, set up with kubeadm.
fn cluster_v1() -> Server {
    let server = Server::start();
    server.replay(&[
        "version-admin",
        "serviceaccount-get",
        "group-discovery",
        "felix-get",
        "ippools-list",
        "ipamconfig-get",
        "clusterinformation-get",
    ]);
    server.on("GET /apis/projectcalico.org", [Reply::recorded("path-404")]);
    server.on(IN_KUBE_SYSTEM, [absent("serviceaccounts", "calico-node")]);
    server.on("GET /api/v1/nodes/win-a1", [absent("nodes", "win-a1")]);
    let kubeadm = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: kubernetes\n\
                   networking:\n  dnsDomain: cluster.local\n  podSubnet: 10.244.0.0/16\n  \
                   serviceSubnet: 10.96.0.0/12,fd00::/108\n";
    server.on(KUBEADM, [Reply::json(200, &json!({"data": {"ClusterConfiguration": kubeadm}}))]);
    let dns = json!({"spec": {"clusterIP": "fd00::a", "clusterIPs": ["fd00::a", "10.96.0.10"]}});
    server.on(DNS, [Reply::json(200, &dns)]);
    server
}

fn facts(server: &Server) -> Result<ClusterFacts> {
    server.connect_within(short_limits()).facts(&OPTIONS)
}

fn fault_of(server: &Server) -> (&'static str, String) {
    let error = facts(server).unwrap_err();
    let fault = Fault::of(&error).unwrap();
    (fault.id, format!("{} | {}", fault.what, fault.hint.as_deref().unwrap()))
}

#[test]
fn a_cluster_in_the_old_group_is_read_completely() {
    let facts = facts(&cluster_v1()).unwrap();
    insta::assert_json_snapshot!(facts, @r#"
    {
      "server": "https://api.cluster.test:6443",
      "kubernetesVersion": "v1.36.2",
      "calicoNamespace": "calico-system",
      "apiGroup": "crd.projectcalico.org/v1",
      "calicoVersion": "v3.32.1",
      "felix": {
        "vxlanEnabled": true,
        "vxlanVni": 4096,
        "ipipEnabled": null,
        "vxlanPort": 4789,
        "bpfEnabled": false
      },
      "pools": [
        {
          "name": "default-ipv4-ippool",
          "cidr": "10.244.0.0/16",
          "vxlanMode": "Always",
          "ipipMode": "Never",
          "disabled": false,
          "nodeSelector": "all()",
          "blockSize": 26,
          "allowedUses": [
            "Workload",
            "Tunnel"
          ]
        },
        {
          "name": "ipip-pool",
          "cidr": "10.245.0.0/16",
          "vxlanMode": "Never",
          "ipipMode": "Always",
          "disabled": true,
          "nodeSelector": "!all()",
          "blockSize": 26,
          "allowedUses": [
            "Workload",
            "Tunnel"
          ]
        }
      ],
      "strictAffinity": false,
      "serviceCidrs": [
        "10.96.0.0/12"
      ],
      "dnsServiceIp": "10.96.0.10",
      "clockSkew": 0
    }
    "#);
}

#[test]
fn a_cluster_with_only_the_new_group_is_read_there() {
    let server = cluster_v1();
    server.on("GET /apis/crd.projectcalico.org", [Reply::recorded("path-404")]);
    server.replay(&["v3-group", "v3-felix-get", "v3-ippools-list", "v3-ipamconfigurations-get"]);
    let information = json!({"metadata": {"name": "default"}, "spec": {"calicoVersion": "v3.32.1"}});
    server.on("GET /apis/projectcalico.org/v3/clusterinformations/default", [Reply::json(200, &information)]);
    let read = facts(&server).unwrap();
    assert_eq!((read.api_group, read.felix.vxlan_vni, read.pools.len()), (ApiGroup::V3, Some(4096), 2));
    assert_eq!((read.strict_affinity, read.calico_version.as_deref()), (Some(false), Some("v3.32.1")));
    assert!(!server.keys().iter().any(|k| k.contains("crd.projectcalico.org/")), "{:?}", server.keys());

    // With both, Calico itself uses the old one.
    let both = cluster_v1();
    both.replay(&["v3-group"]);
    assert_eq!(facts(&both).unwrap().api_group, ApiGroup::V1);
}

#[test]
fn the_namespace_is_the_one_with_the_service_account_and_never_a_guess() {
    let server = cluster_v1();
    server.on(IN_CALICO_SYSTEM, [absent("serviceaccounts", "calico-node")]);
    let read = facts(&server).unwrap();
    assert!(
        read.no_account_in == ["calico-system", "kube-system"] && read.host_process.is_none() && read.typha.is_none()
    );
    assert_eq!(read.untold("daemonsets"), Some("Calico's namespace is not known"));
    assert_eq!((read.strict_affinity, read.pools.len()), (Some(false), 2), "the other questions are answered");

    server.on(IN_KUBE_SYSTEM, [Reply::recorded("serviceaccount-get")]);
    assert_eq!(facts(&server).unwrap().calico_namespace, "kube-system");

    let forbidden = json!({
        "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "serviceaccounts \"calico-node\" is forbidden: User \"joe\" cannot get resource \"serviceaccounts\" \
                    in API group \"\" in the namespace \"calico-system\"",
        "details": {"name": "calico-node", "kind": "serviceaccounts"},
    });
    server.on(IN_CALICO_SYSTEM, [Reply::json(403, &forbidden)]);
    let (id, text) = fault_of(&server);
    assert_eq!(id, "ClusterForbidden");
    assert!(
        text.starts_with("user joe cannot get serviceaccounts of the core group in namespace calico-system"),
        "{text}"
    );
    assert!(text.contains("kubernetes.calicoNamespace"), "{text}");

    // A configured one is the only one, and a user may lack the right to look there.
    let named = FactsOptions { namespace_override: Some("calico"), ..OPTIONS };
    let there = "GET /api/v1/namespaces/calico/serviceaccounts/calico-node";
    server.on(there, [Reply::json(403, &forbidden), absent("serviceaccounts", "calico-node")]);
    let read = server.connect().facts(&named).unwrap();
    assert_eq!((read.calico_namespace.as_str(), read.no_account_in.len()), ("calico", 0));
    assert!(read.untold("serviceaccounts").unwrap().starts_with("user joe cannot get serviceaccounts"), "{read:?}");
    assert_eq!(server.connect().facts(&named).unwrap().no_account_in, ["calico"]);
}

#[test]
fn a_failed_request_is_not_an_answer() {
    let cases = [
        ("GET /apis/crd.projectcalico.org", "overload-429", "ClusterOverloaded"),
        ("GET /apis/projectcalico.org", "aggregated-503", "ClusterUnavailable"),
        ("GET /apis/crd.projectcalico.org/v1/felixconfigurations/default", "bad-token-401", "ClusterUnauthorized"),
        ("GET /apis/crd.projectcalico.org/v1/ippools", "path-404", "ApiNotServed"),
        ("GET /apis/crd.projectcalico.org/v1/ipamconfigs/default", "nobody-403-felix-patch", "ClusterForbidden"),
        ("GET /api/v1/nodes/win-a1", "nobody-403-node-get", "ClusterForbidden"),
        (KUBEADM, "pod-log-no-kubelet", "ClusterFailed"),
    ];
    for (question, answer, id) in cases {
        let server = cluster_v1();
        server.on(question, [Reply::recorded(answer)]);
        assert_eq!(fault_of(&server).0, id, "{question}");
    }
}

/// Of the questions that are still to be asked, nobody awaits an answer.
#[test]
fn a_server_that_does_not_answer_is_waited_for_once() {
    let server = cluster_v1();
    server.silence();
    let limits = Limits { timeout: Duration::from_secs(4), ..short_limits() };
    let began = Instant::now();
    let error = server.connect_within(limits).facts(&OPTIONS).unwrap_err();
    assert_eq!(Fault::id_of(&error), "ClusterTimeout", "{error:#}");
    assert!(began.elapsed() < limits.timeout + SETTLED_WITHIN, "{:?}", began.elapsed());
}

#[test]
fn optional_facts_may_be_missing() {
    let server = cluster_v1();
    server.on(KUBEADM, [Reply::recorded("nobody-403-secrets-list")]);
    server.on(DNS, [absent("services", "kube-dns")]);
    let cluster = server.connect();
    let facts = cluster.facts(&OPTIONS).unwrap();
    assert!(facts.service_cidrs.is_empty() && facts.dns_service_ip.is_none());
    let said: Vec<String> = cluster
        .take_events()
        .into_iter()
        .filter_map(|e| if let Event::Log { message } = e { Some(message) } else { None })
        .collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("the service CIDR is not known: user nobody-user cannot"), "{said:?}");

    // Calico with etcd: the cluster has none of its resources, which is a valid answer.
    server.on("GET /apis/crd.projectcalico.org", [Reply::recorded("path-404")]);
    let facts = cluster.facts(&OPTIONS).unwrap();
    assert_eq!((facts.api_group, facts.pools.len(), facts.strict_affinity), (ApiGroup::V1, 0, None));
    assert!(cluster.take_events().iter().any(|e| matches!(e, Event::Warning { id: "CalicoResourcesNotServed", .. })));
}

/// EKS is recognized by its version.
fn on_eks(server: &Server) {
    server.on("GET /version", [Reply::json(200, &json!({"gitVersion": "v1.31.2-eks-7f9249a"}))]);
}

const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system/configmaps";

#[test]
fn an_eks_cluster_is_checked_for_what_windows_nodes_need() {
    let server = cluster_v1();
    assert_eq!(facts(&server).unwrap().eks, None, "no other cluster is asked");
    on_eks(&server);
    let map = |data| Reply::json(200, &json!({"data": data}));
    server.on(&format!("GET {KUBE_SYSTEM}/amazon-vpc-cni"), [map(json!({"enable-windows-ipam": "true"}))]);
    let roles = "- rolearn: arn:aws:iam::1:role/win\n  groups: [system:nodes, eks:kube-proxy-windows]\n";
    server.on(&format!("GET {KUBE_SYSTEM}/aws-auth"), [map(json!({"mapRoles": roles}))]);
    let eks = facts(&server).unwrap().eks.unwrap();
    assert_eq!((eks.windows_ipam, eks.controllers.len(), eks.windows_role), (Some(true), 0, Some(true)));

    assert_eq!(eks.node_in_group, None, "the identity is not known");

    // A node's own kubeconfig shows the groups of an access entry.
    let who =
        |groups: Value| json!({"status": {"userInfo": {"username": "system:node:ip-10-0-0-21", "groups": groups}}});
    for (groups, in_group) in [
        (json!(["system:nodes", "eks:kube-proxy-windows", "system:authenticated"]), Some(true)),
        (json!(["system:nodes", "system:authenticated"]), Some(false)),
        (json!(["system:masters"]), None),
    ] {
        server.on("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", [Reply::json(201, &who(groups))]);
        assert_eq!(facts(&server).unwrap().eks.unwrap().node_in_group, in_group);
    }

    // What the node's own identity may not read does not count as absent.
    server.on(&format!("GET {KUBE_SYSTEM}/aws-auth"), [Reply::recorded("nobody-403-secrets-list")]);
    let facts = facts(&server).unwrap();
    assert_eq!(facts.eks.as_ref().unwrap().windows_role, None);
    assert!(facts.untold("aws-auth").unwrap().contains("cannot"), "{:?}", facts.unanswered);
}

#[test]
fn openshift_is_recognized_by_its_api_group_and_its_nodes_by_an_annotation() {
    let server = cluster_v1();
    assert!(!facts(&server).unwrap().openshift);
    let group = json!({"kind": "APIGroup", "name": "config.openshift.io", "versions": [{"version": "v1"}]});
    server.on("GET /apis/config.openshift.io", [Reply::json(200, &group)]);
    let annotations = json!({"windowsmachineconfig.openshift.io/version": "10.20.0"});
    let node = json!({"metadata": {"name": "win-a1", "annotations": annotations}});
    server.on("GET /api/v1/nodes/win-a1", [Reply::json(200, &node)]);
    let facts = facts(&server).unwrap();
    assert!(facts.openshift);
    assert_eq!(facts.node.unwrap().wmco.as_deref(), Some("10.20.0"));
}

/// Manifest installs have a ConfigMap; it is used if the DaemonSet was changed by hand.
#[test]
fn the_linux_sides_datastore_is_read_from_its_daemon_set_or_from_calico_config() {
    let template = |datastore: &str| {
        let entry = if datastore.is_empty() { String::new() } else { format!("\"datastore_type\" : \"{datastore}\",") };
        format!("{{\"plugins\": [{{\"type\": \"calico\", {entry} \"mtu\": __CNI_MTU__}}]}}")
    };
    let config = |data: Value| Reply::json(200, &json!({"metadata": {"name": "calico-config"}, "data": data}));
    let daemon_set = |env: Value| {
        let containers = json!([{"name": "calico-node", "env": env}]);
        let spec = json!({"selector": {}, "template": {"spec": {"containers": containers}}});
        Reply::json(200, &json!({"metadata": {"name": "calico-node"}, "spec": spec}))
    };
    let from_map =
        |key| json!([{"name": key, "valueFrom": {"configMapKeyRef": {"name": "calico-config", "key": "k"}}}]);
    let nothing = || absent("daemonsets", "calico-node");
    let etcd = json!({"etcd_endpoints": "https://10.0.0.4:2379", "etcd_ca": "/calico-secrets/etcd-ca"});
    let cases = [
        ("etcd's manifest, ConfigMap only", nothing(), config(etcd), Some("etcdv3")),
        (
            "calico.yaml, ConfigMap only",
            nothing(),
            config(json!({"cni_network_config": template("kubernetes")})),
            Some("kubernetes"),
        ),
        ("an empty list of endpoints", nothing(), config(json!({"etcd_endpoints": " "})), None),
        ("a ConfigMap that does not say", nothing(), config(json!({"cni_network_config": template("")})), None),
        (
            "the DaemonSet takes precedence",
            daemon_set(json!([{"name": "DATASTORE_TYPE", "value": "kubernetes"}])),
            config(json!({"etcd_endpoints": "http://old:2379"})),
            Some("kubernetes"),
        ),
        (
            "its etcd endpoints",
            daemon_set(from_map("ETCD_ENDPOINTS")),
            absent("configmaps", "calico-config"),
            Some("etcdv3"),
        ),
        (
            "a DaemonSet that does not say",
            daemon_set(json!([])),
            config(json!({"etcd_endpoints": "http://e:2379"})),
            Some("etcdv3"),
        ),
        ("neither", nothing(), absent("configmaps", "calico-config"), None),
    ];
    for (name, set, map, datastore) in cases {
        let server = cluster_v1();
        server.on("GET /apis/apps/v1/namespaces/calico-system/daemonsets/calico-node", [set]);
        server.on(&format!("GET {KUBE_SYSTEM}/calico-config"), [map]);
        assert_eq!(facts(&server).unwrap().linux_datastore.as_deref(), datastore, "{name}");
    }
}

/// A request as a right: its verb, resource, and place.
fn right_of(seen: &testing::Seen) -> Option<String> {
    let (method, path) = seen.key.split_once(' ').unwrap();
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        // Discovery, which everybody may use.
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let (resource, name) = match rest {
        ["selfsubjectaccessreviews" | "selfsubjectreviews"] => return None,
        [resource] => (*resource, None),
        [resource, name] => (*resource, Some(*name).filter(|_| *resource != "nodes")),
        other => panic!("{other:?}"),
    };
    assert_eq!(method, "GET", "facts change nothing");
    let verb = if rest.len() == 1 { "list" } else { "get" };
    let text = |part: Option<&str>| part.map(str::to_owned);
    let (verb, group, resource) = (verb.to_owned(), group.to_owned(), resource.to_owned());
    let right = crate::facts::Right {
        verb,
        group,
        resource,
        name: text(name),
        namespace: text(namespace),
        ..Default::default()
    };
    Some(right.to_string())
}

/// The rights that are checked, except those for later steps.
fn checked(options: &FactsOptions<'_>, group: Option<ApiGroup>, eks: bool) -> std::collections::BTreeSet<String> {
    let asked = access::Asked {
        group,
        whole: options.checks == Checks::All,
        namespace: "calico-system",
        looking: options.namespace_override.is_none(),
        eks,
        ca_unknown: false,
        kubelet: false,
    };
    let rights = access::rights(&asked, &options.needs);
    rights.iter().filter(|right| ["get", "list"].contains(&right.verb.as_str())).map(ToString::to_string).collect()
}

fn without_calico(server: &Server) {
    server.on("GET /apis/crd.projectcalico.org", [Reply::recorded("path-404")]);
}

/// Exactly the rights for the requests that are made, in every cluster.
#[test]
fn the_checked_rights_match_the_requests() {
    type Edit = fn(&Server);
    let clusters: [(&str, Edit, FactsOptions<'_>); 6] = [
        ("plain", |_| (), OPTIONS),
        ("EKS", on_eks, OPTIONS),
        ("EKS without a name", on_eks, FactsOptions { node_name: None, ..OPTIONS }),
        ("a namespace that is named", |_| (), FactsOptions { namespace_override: Some("calico-system"), ..OPTIONS }),
        ("etcd", without_calico, OPTIONS),
        ("one of many nodes", |_| (), FactsOptions { checks: Checks::OfNode, ..OPTIONS }),
    ];
    for (name, edit, options) in clusters {
        let server = cluster_v1();
        server.on("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", [Reply::recorded("ssar-allowed")]);
        for list in ["globalnetworkpolicies", "networkpolicies"] {
            server.on(&format!("GET /apis/crd.projectcalico.org/v1/{list}"), [Reply::json(200, &json!({"items": []}))]);
        }
        edit(&server);
        let read = server.connect_within(short_limits()).facts(&options).unwrap();
        assert_eq!(read.missing_rights.as_deref(), Some([].as_slice()), "{name}");
        let group = (name != "etcd").then_some(ApiGroup::V1);
        let mut reviews = checked(&options, group, name.starts_with("EKS"));
        let mut asked: std::collections::BTreeSet<String> = server.seen().iter().filter_map(right_of).collect();
        // A node is read once its name is known.
        for set in [&mut asked, &mut reviews] {
            set.remove("get nodes in the whole cluster");
            // One of many nodes lists them only if no Node has its name.
            if options.checks == Checks::OfNode {
                set.remove("list nodes in the whole cluster");
            }
            // If the other namespace answers first, this request is not awaited.
            if options.namespace_override.is_none() {
                set.remove("get serviceaccounts calico-node in kube-system");
            }
        }
        assert_eq!(reviews, asked, "{name}");
    }
}

/// An API server logs a request whose client went away as 500, an internal error.
#[test]
fn no_request_is_cancelled_when_another_ends_the_run() {
    let server = cluster_v1();
    server.on("GET /apis/crd.projectcalico.org/v1/ippools", [Reply::Late(503)]);
    server.on(&format!("GET {FELIX}"), [Reply::recorded("aggregated-503")]);
    assert_eq!(fault_of(&server).0, "AggregatedApiDown");
    assert!(server.keys().iter().any(|key| key.ends_with("/ippools")), "{:?}", server.keys());
    assert_eq!(server.answered(), server.seen().len(), "{:?}", server.keys());
}

#[test]
fn a_server_that_does_not_answer_the_others_does_not_hold_up_the_error() {
    let server = cluster_v1();
    server.on("GET /apis/crd.projectcalico.org/v1/ippools", [Reply::Silence]);
    server.on(&format!("GET {FELIX}"), [Reply::recorded("aggregated-503")]);
    let limits = Limits { timeout: Duration::from_secs(300), retries: 0, asks: false };
    let error = server.connect_within(limits).facts(&OPTIONS).unwrap_err();
    assert_eq!(Fault::id_of(&error), "AggregatedApiDown");
}

#[test]
fn a_question_of_checks_that_fails_leaves_the_others_their_answers() {
    const PEERS: &str = "GET /apis/crd.projectcalico.org/v1/bgppeers";
    for (reply, why) in [
        (Reply::recorded("evict-two-budgets-500"), "failed on GET"),
        (Reply::recorded("aggregated-503"), "is down"),
        (Reply::Cut, "closed the connection"),
        (Reply::Silence, "did not answer"),
    ] {
        let server = cluster_v1();
        server.on(PEERS, [reply]);
        let limits = Limits { timeout: Duration::from_secs(3), ..short_limits() };
        let facts = server.connect_within(limits).facts(&OPTIONS).unwrap();
        assert!(facts.untold("bgppeers").unwrap().contains(why), "{why}: {:?}", facts.unanswered);
        assert_eq!(facts.unanswered.len(), 1, "{:?}", facts.unanswered);
        assert!(facts.bgp.is_none() && !facts.pools.is_empty());
    }
    // Rejected credentials are not about one question.
    let server = cluster_v1();
    server.on(PEERS, [Reply::recorded("bad-token-401")]);
    assert_eq!(fault_of(&server).0, "ClusterUnauthorized");
}

#[test]
fn without_checks_only_what_decides_something_is_asked() {
    let server = cluster_v1();
    let all = facts(&server).unwrap();
    let server = cluster_v1();
    let few = server.connect_within(short_limits()).facts(&FactsOptions { checks: Checks::None, ..OPTIONS }).unwrap();
    let asked = server.keys();
    assert!(!asked.iter().any(|key| key.contains("polic") || key.contains("accessreviews")), "{asked:?}");
    assert!(asked.len() < 20, "{asked:?}");
    assert_eq!((few.pools.len(), few.service_cidrs, few.felix), (all.pools.len(), all.service_cidrs, all.felix));
}

#[test]
fn a_run_on_one_of_many_nodes_leaves_out_what_grows_with_them() {
    let server = cluster_v1();
    let all = facts(&server).unwrap();
    let server = cluster_v1();
    let options = FactsOptions { checks: Checks::OfNode, ..OPTIONS };
    let few = server.connect_within(short_limits()).facts(&options).unwrap();
    let asked = server.keys();
    let whole = ["polic", "bgp", "hostendpoints", "blockaffinities", "kubecontrollers", "typha", "GET /api/v1/nodes?"];
    assert!(!asked.iter().any(|key| whole.iter().any(|one| key.contains(one))), "{asked:?}");
    assert!(asked.iter().any(|key| key.contains("accessreviews")), "{asked:?}");
    for question in ["nodes", "deployments", "bgppeers", "networkpolicies", "blockaffinities", "hostendpoints"] {
        assert_eq!(few.untold(question), Some(crate::facts::LEFT_OUT), "{question}");
    }
    assert_eq!((few.pools.len(), few.host_process, few.felix), (all.pools.len(), all.host_process, all.felix));
}
