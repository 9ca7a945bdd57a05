//! The cluster as its users see it, beyond the single exchanges of [`super::recordings`].

use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::testing::{self, As, Seen};
use super::*;

/// Polls until there is a result; ten seconds are far more than any controller takes.
pub fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "nothing came of it in ten seconds");
        // Lets the controllers lock the state for a moment.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn start(dir: &TempDir, faults: &[&str]) -> EmbeddedCluster {
    let faults: Vec<ApiFault> = faults.iter().map(|f| f.parse().expect("it is a fault")).collect();
    EmbeddedCluster::start(dir.path(), &Seed::new("win-1"), &faults).expect("start the cluster")
}

fn folder() -> TempDir {
    TempDir::new().expect("create a folder")
}

/// An administrator's request over the wire.
fn ask(cluster: &EmbeddedCluster, method: &str, path: &str, body: &str) -> Result<Seen> {
    let pki = &cluster.api.pki;
    let admin = As::Certificate(pki.admin.0.clone(), pki.admin.1.clone());
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let headers = [("Accept".into(), "application/json".into()), ("Content-Type".into(), media.into())];
    testing::request(cluster.addr(), &pki.ca_pem, &admin, method, path, &headers, body)
}

fn get(cluster: &EmbeddedCluster, path: &str) -> Value {
    cluster.as_admin(&Method::GET, path, None).expect("it is there")
}

const NODE: &str = "/api/v1/nodes/win-1";
const SECRETS: &str = "/api/v1/namespaces/calico-system/secrets";

fn token_secret(account: &str) -> Value {
    json!({
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": account}},
    })
}

#[test]
fn the_cluster_survives_its_process() {
    let dir = folder();
    let cluster = start(&dir, &[]);
    let (kubeconfig, uid) = (cluster.admin_kubeconfig(), get(&cluster, NODE)["metadata"]["uid"].clone());
    let patch = json!({"metadata": {"annotations": {"projectcalico.org/IPv4Address": "10.20.0.21/24"}}});
    cluster.as_admin(&Method::PATCH, NODE, Some(&patch)).expect("patch");
    drop(cluster);

    let cluster = start(&dir, &[]);
    assert_eq!(cluster.admin_kubeconfig(), kubeconfig);
    assert!(kubeconfig.contains("server: https://10.20.0.10:6443\n"));
    let node = get(&cluster, NODE);
    assert_eq!(node["metadata"]["uid"], uid);
    assert_eq!(node["metadata"]["annotations"]["projectcalico.org/IPv4Address"], "10.20.0.21/24");
}

#[test]
fn two_processes_on_one_folder_see_each_others_changes() {
    let dir = folder();
    let (install, status) = (start(&dir, &["no-controllers"]), start(&dir, &["no-controllers"]));
    let patch = |cluster: &EmbeddedCluster, labels: Value| {
        let patch = json!({"metadata": {"labels": labels}});
        cluster.as_admin(&Method::PATCH, NODE, Some(&patch)).expect("label")["metadata"]["resourceVersion"].clone()
    };
    let first = patch(&install, json!({"a": "1"}));
    patch(&status, json!({"b": "2"}));
    let labels = get(&install, NODE)["metadata"]["labels"].clone();
    assert_eq!((&labels["a"], &labels["b"]), (&json!("1"), &json!("2")));

    // A watch sees them too, even those of another process.
    let first = first.as_str().expect("a version");
    let path = format!("/api/v1/nodes?watch=true&timeoutSeconds=1&resourceVersion={first}");
    let lines = ask(&install, "GET", &path, "").expect("a watch").lines();
    assert_eq!(lines[0]["object"]["metadata"]["labels"]["b"], "2");
}

#[test]
fn a_token_secret_is_filled_and_a_watch_sees_it() {
    let dir = folder();
    let cluster = start(&dir, &[]);
    let version = get(&cluster, SECRETS)["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    cluster.as_admin(&Method::POST, SECRETS, Some(&token_secret("calico-node"))).expect("create");
    let path =
        format!("{SECRETS}?watch=true&timeoutSeconds=1&resourceVersion={version}&fieldSelector=metadata.name%3Dt");
    let lines = ask(&cluster, "GET", &path, "").expect("a watch").lines();
    let told: Vec<_> = lines.iter().map(|l| (l["type"].as_str(), l["object"]["data"].is_object())).collect();
    assert_eq!(told, [(Some("ADDED"), false), (Some("MODIFIED"), true)]);

    let data = &lines[1]["object"]["data"];
    let text = |name: &str| {
        let bytes = STANDARD.decode(data[name].as_str().expect("it is filled")).expect("it is base64");
        String::from_utf8(bytes).expect("it is text")
    };
    assert_eq!(text("namespace"), "calico-system");
    assert!(text("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    let claims = claims(&text("token"));
    let account = get(&cluster, "/api/v1/namespaces/calico-system/serviceaccounts/calico-node");
    let legacy = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
    let wanted = json!({
        "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:calico-system:calico-node",
        legacy("namespace"): "calico-system", legacy("secret.name"): "t",
        legacy("service-account.name"): "calico-node",
        legacy("service-account.uid"): account["metadata"]["uid"],
    });
    assert_eq!(claims, wanted);
}

fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).expect("a token has three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("claims are JSON")
}

#[test]
fn a_requested_token_has_its_account_and_expiry() {
    let dir = folder();
    let cluster = start(&dir, &[]);
    let path = "/api/v1/namespaces/calico-system/serviceaccounts/calico-node/token";
    let body = json!({"spec": {"expirationSeconds": 600}});
    let token = cluster.as_admin(&Method::POST, path, Some(&body)).expect("a token")["status"]["token"].clone();
    let claims = claims(token.as_str().expect("it is text"));
    assert_eq!(claims["aud"], json!(["https://kubernetes.default.svc.cluster.local"]));
    assert_eq!(claims["sub"], "system:serviceaccount:calico-system:calico-node");
    assert_eq!(claims["exp"].as_i64().expect("seconds") - claims["iat"].as_i64().expect("seconds"), 600);
    assert_eq!(claims["kubernetes.io"]["serviceaccount"]["name"], "calico-node");
}

#[test]
fn faults_disable_controllers() {
    let dir = folder();
    let cluster = start(&dir, &["unfilled"]);
    cluster.as_admin(&Method::POST, SECRETS, Some(&token_secret("calico-node"))).expect("create");
    cluster.as_admin(&Method::PATCH, NODE, Some(&json!({"spec": {"unschedulable": true}}))).expect("cordon");
    // The node's taint shows that the same controllers have run; they ignored the secret.
    eventually(|| get(&cluster, NODE)["spec"]["taints"].as_array().cloned());
    assert!(get(&cluster, &format!("{SECRETS}/t")).get("data").is_none());
    cluster.as_admin(&Method::PATCH, NODE, Some(&json!({"spec": {"unschedulable": null}}))).expect("uncordon");
    eventually(|| get(&cluster, NODE)["spec"].get("taints").is_none().then_some(()));
}

#[test]
fn an_evicted_pod_ends_and_the_budget_blocks_the_next() {
    let dir = folder();
    let cluster = start(&dir, &["no-kubelet"]);
    let pods = "/api/v1/namespaces/demo/pods";
    let names: Vec<String> = get(&cluster, &format!("{pods}?labelSelector=app%3Dweb"))["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| p["metadata"]["name"].as_str().expect("a name").to_owned())
        .collect();
    let evict = |name: &str| ask(&cluster, "POST", &format!("{pods}/{name}/eviction"), "{}").expect("an answer");
    assert_eq!(evict(&names[0]).status, 201);
    assert_eq!(evict(&names[1]).status, 429);
    assert!(get(&cluster, &format!("{pods}/{}", names[0]))["metadata"]["deletionTimestamp"].is_string());
    drop(cluster);

    // With its kubelet back the pod ends.
    let cluster = start(&dir, &[]);
    eventually(|| cluster.as_admin(&Method::GET, &format!("{pods}/{}", names[0]), None).err());

    // A pod without a node ends at once.
    let pod = json!({"metadata": {"name": "unbound"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.as_admin(&Method::POST, pods, Some(&pod)).expect("create");
    assert_eq!(ask(&cluster, "POST", &format!("{pods}/unbound/eviction"), "{}").expect("an answer").status, 201);
    assert_eq!(ask(&cluster, "GET", &format!("{pods}/unbound"), "").expect("an answer").status, 404);
}

#[test]
fn another_user_may_do_what_the_bindings_say() {
    let dir = folder();
    let cluster = start(&dir, &[]);
    let kubeconfig = cluster.kubeconfig_of("ada", Some("installers")).expect("a kubeconfig");
    let data = |name: &str| {
        let line = kubeconfig.lines().find_map(|l| l.trim().strip_prefix(name)).expect("it is there");
        String::from_utf8(STANDARD.decode(line.trim_start_matches(": ")).expect("base64")).expect("PEM")
    };
    let ada = As::Certificate(data("client-certificate-data"), data("client-key-data"));
    let ca = &cluster.api.pki.ca_pem;
    let list = || testing::request(cluster.addr(), ca, &ada, "GET", SECRETS, &[], "").expect("an answer").status;
    assert_eq!(list(), 403);

    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/calico-system";
    let role = json!({
        "metadata": {"name": "secrets"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    });
    let binding = json!({
        "metadata": {"name": "secrets"}, "roleRef": {"kind": "Role", "name": "secrets"},
        "subjects": [{"kind": "Group", "name": "installers"}],
    });
    cluster.as_admin(&Method::POST, &format!("{rbac}/roles"), Some(&role)).expect("create");
    cluster.as_admin(&Method::POST, &format!("{rbac}/rolebindings"), Some(&binding)).expect("create");
    assert_eq!(list(), 200);
}

#[test]
fn a_watch_sees_objects_enter_and_leave_its_selection() {
    let dir = folder();
    let cluster = start(&dir, &["no-controllers"]);
    let version = get(&cluster, "/api/v1/nodes")["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    for label in [json!("x"), json!("y"), Value::Null] {
        let patch = json!({"metadata": {"labels": {"l": label}}});
        cluster.as_admin(&Method::PATCH, NODE, Some(&patch)).expect("label");
    }
    let path = format!(
        "/api/v1/nodes?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&labelSelector=l&resourceVersion={version}"
    );
    let lines = ask(&cluster, "GET", &path, "").expect("a watch").lines();
    let told: Vec<_> = lines.iter().filter_map(|l| l["type"].as_str()).collect();
    assert_eq!(told, ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]);
}

#[test]
fn faults_answer_like_a_failing_server() {
    let dir = folder();
    let cluster = start(
        &dir,
        &[
            &format!("GET {NODE}#1=429"),
            &format!("GET {NODE}#2=504"),
            &format!("GET {NODE}#3=404-text"),
            &format!("GET {NODE}#4=reset"),
            &format!("GET {NODE}#5=cut"),
            &format!("GET {NODE}#6=403"),
        ],
    );
    let node = || ask(&cluster, "GET", NODE, "");
    let overload = node().expect("an answer");
    assert_eq!((overload.status, overload.header("Retry-After")), (429, Some("1")));
    assert_eq!(overload.body, "Too many requests, please try again later.\n");
    assert_eq!(overload.header("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(node().expect("an answer").json()["reason"], "Timeout");
    assert_eq!(node().expect("an answer").body, "404 page not found\n");
    node().expect_err("the connection was reset");
    assert!(!node().expect("half an answer").whole);
    let forbidden = node().expect("an answer").json();
    insta::assert_snapshot!(forbidden["message"].as_str().expect("a message"), @r#"nodes "win-1" is forbidden: User "kubernetes-admin" cannot get resource "nodes" in API group "" at the cluster scope"#);
    assert_eq!(node().expect("an answer").status, 200);
}

#[test]
fn a_server_can_be_down_or_speak_the_wrong_protocol() {
    let failure = |fault| {
        let dir = folder();
        let cluster = start(&dir, &[fault]);
        ask(&cluster, "GET", "/version", "").expect_err("it cannot answer").to_string()
    };
    assert!(failure("down").contains("refused"));
    insta::assert_snapshot!(failure("expired-ca").split(':').next().unwrap_or_default(), @"invalid peer certificate");
    insta::assert_snapshot!(failure("old-tls"), @"received fatal alert: ProtocolVersion");
    insta::assert_snapshot!(failure("plain-http"), @"received corrupt message of type InvalidContentType");
}

#[test]
fn plain_http_to_the_tls_port_gets_an_explanation() {
    use std::io::{Read as _, Write as _};
    let dir = folder();
    let cluster = start(&dir, &[]);
    let mut stream = std::net::TcpStream::connect(cluster.addr()).expect("connect");
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    insta::assert_snapshot!(answer.replace('\r', ""), @"
    HTTP/1.0 400 Bad Request

    Client sent an HTTP request to an HTTPS server.
    ");
}

/// The number of objects of a kind, read with the product's own client.
async fn count<K>(client: &kube::Client) -> usize
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let (api, all) = (kube::Api::<K>::all(client.clone()), kube::api::ListParams::default().limit(500));
    api.list(&all).await.expect("a list").items.len()
}

#[test]
fn the_products_own_client_reads_everything() {
    use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Service, ServiceAccount};
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

    let dir = folder();
    let cluster = start(&dir, &[]);
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&cluster.admin_kubeconfig_direct()).expect("a kubeconfig");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a config");
        let client = kube::Client::try_from(config).expect("a client");
        assert_eq!(count::<Namespace>(&client).await, 5);
        assert_eq!(count::<Node>(&client).await, 2);
        assert_eq!(count::<Pod>(&client).await, 4);
        assert_eq!(count::<Service>(&client).await, 2);
        assert_eq!(count::<DaemonSet>(&client).await, 2);
        assert_eq!(count::<Deployment>(&client).await, 1);
        assert_eq!(count::<PodDisruptionBudget>(&client).await, 1);
        assert_eq!(count::<ServiceAccount>(&client).await, 5 + 5);
        assert_eq!(count::<ConfigMap>(&client).await, 5 + 2);
        assert_eq!(count::<ClusterRole>(&client).await, count::<ClusterRoleBinding>(&client).await);
    });
}

#[test]
fn discovery_offers_evictions_and_tokens() {
    let dir = folder();
    let cluster = start(&dir, &[]);
    let list = get(&cluster, "/api/v1");
    let entry = |name: &str| list["resources"].as_array().into_iter().flatten().find(|r| r["name"] == name).cloned();
    assert_eq!(
        entry("pods/eviction"),
        Some(json!({
            "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
            "kind": "Eviction", "verbs": ["create"],
        }))
    );
    assert_eq!(entry("serviceaccounts/token").expect("it is there")["kind"], "TokenRequest");
}

#[test]
#[expect(clippy::print_stderr, reason = "says that it was skipped, and why")]
fn kubectl_finds_a_cluster_it_can_work_with() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real/kubectl");
    if !built.is_file() {
        assert_ne!(std::env::var("CALICOCTL_WIN_REAL").as_deref(), Ok("require"), "kubectl is not built");
        eprintln!("skipped: kubectl is not built; packaging/real/prepare.sh builds it");
        return;
    }
    let dir = folder();
    let cluster = start(&dir, &[]);
    let kubeconfig = dir.path().join("kubeconfig");
    fs::write(&kubeconfig, cluster.admin_kubeconfig_direct()).expect("write the kubeconfig");
    let pool = dir.path().join("pool.yaml");
    let object = json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "more"},
        "spec": {"cidr": "10.99.0.0/16"},
    });
    fs::write(&pool, object.to_string()).expect("write the pool");
    let kubectl = |arguments: &str| {
        let pool = pool.display().to_string();
        let output = Command::new(&built)
            .args(arguments.split(' ').map(|a| if a == "POOL" { &pool } else { a }))
            .env("KUBECONFIG", &kubeconfig)
            .env("HOME", dir.path())
            .output()
            .expect("run kubectl");
        let text = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
        text.into_owned()
    };
    assert_eq!(kubectl("get nodes -o name"), "node/linux-1\nnode/win-1\n");
    assert!(kubectl("get felixconfigurations.crd.projectcalico.org").contains("default"));
    assert_eq!(kubectl("apply -f POOL"), "ippool.crd.projectcalico.org/more created\n");
    assert_eq!(kubectl("apply -f POOL"), "ippool.crd.projectcalico.org/more unchanged\n");
    assert_eq!(kubectl("-n calico-system create token calico-node").split('.').count(), 3);
    assert_eq!(kubectl("auth can-i create pods/eviction"), "yes\n");
    let drained = kubectl("drain win-1 --ignore-daemonsets --dry-run=server");
    assert!(drained.starts_with("node/win-1 cordoned") && drained.ends_with("node/win-1 drained (server dry run)\n"));
    assert_eq!(drained.matches("evicting pod demo/web-").count(), 2);
}

#[test]
fn an_update_can_create_a_lease_and_never_overwrites_one_without_its_version() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/win-1";
    let dir = folder();
    let cluster = start(&dir, &[]);
    let lease = |spec: &str| format!(r#"{{"metadata": {{"name": "win-1"}}, "spec": {{{spec}}}}}"#);
    let put = |body: &str| ask(&cluster, "PUT", LEASE, body).unwrap();
    assert_eq!(put(&lease(r#""holderIdentity": "a""#)).status, 201);
    assert_eq!(put(&lease(r#""holderIdentity": "b""#)).status, 422, "without the version it was read with");
    let patch = |body: &str| ask(&cluster, "PATCH", LEASE, body).unwrap().status;
    assert_eq!(patch(r#"{"spec": {"leaseDurationSeconds": 0}}"#), 422);
    assert_eq!(patch(r#"{"spec": {"renewTime": "yesterday"}}"#), 400);
    assert_eq!(patch(r#"{"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "b"}}"#), 409);
    let delete = |options: &str| ask(&cluster, "DELETE", LEASE, options).unwrap().status;
    assert_eq!(delete(r#"{"preconditions": {"resourceVersion": "1"}}"#), 409);
    let version = get(&cluster, LEASE)["metadata"]["resourceVersion"].clone();
    assert_eq!(delete(&format!(r#"{{"preconditions": {{"resourceVersion": {version}}}}}"#)), 200);
}

/// A cluster with Calico's resources in one group.
fn of_layout(dir: &TempDir, layout: Layout, release: &str) -> EmbeddedCluster {
    let seed = Seed { layout, calico: release.into(), ..Seed::new("win-1") };
    EmbeddedCluster::start(dir.path(), &seed, &[]).expect("start the cluster")
}

#[test]
fn the_initial_objects_pass_calicos_own_schemas() {
    for (layout, line) in [(Layout::V1, "v3.31"), (Layout::V1, "v3.32"), (Layout::V3, "v3.32"), (Layout::V3, "v3.33")] {
        let dir = folder();
        let cluster = of_layout(&dir, layout, &format!("{line}.1"));
        for resource in resources::calico(layout) {
            let all = get(&cluster, &format!("/apis/{}/{}", resource.api_version(), resource.plural));
            for object in all["items"].as_array().expect("a list has items") {
                let mut object = object.clone();
                let before = object.clone();
                assert_eq!(schema::prune(resource, line, &mut object), Vec::<String>::new(), "{layout:?}");
                assert_eq!(object, before, "{layout:?}: no default is missing");
                schema::check(resource, line, &object, None).expect("the definition admits it");
            }
        }
    }
}

#[test]
fn an_object_is_refused_by_its_own_groups_definition() {
    let affinity =
        |deleted: Value| json!({"cidr": "192.168.20.0/26", "deleted": deleted, "node": "win-1", "state": "confirmed"});
    let (v1, v3) = ("crd.projectcalico.org/v1", "projectcalico.org/v3");
    let wrong_type = "FieldValueTypeInvalid spec.deleted: Invalid value";
    for (layout, group, kind, spec, said) in [
        (Layout::V1, v1, "BlockAffinity", affinity(json!("false")), ""),
        (Layout::V1, v1, "BlockAffinity", affinity(json!(false)), wrong_type),
        (Layout::V3, v3, "BlockAffinity", affinity(json!(false)), ""),
        (Layout::V3, v3, "BlockAffinity", affinity(json!("false")), wrong_type),
        (
            Layout::V1,
            v1,
            "BlockAffinity",
            json!({"cidr": "192.168.20.0/26"}),
            "FieldValueRequired spec.deleted: Required value",
        ),
        // In v3 this field has a default.
        (
            Layout::V3,
            v3,
            "BlockAffinity",
            json!({"cidr": "192.168.20.0/26"}),
            "FieldValueRequired spec.node: Required value",
        ),
        (
            Layout::V3,
            v3,
            "BlockAffinity",
            json!({"cidr": "here", "node": "win-1", "state": "confirmed"}),
            "FieldValueInvalid spec.cidr: ",
        ),
        (
            Layout::V3,
            v3,
            "FelixConfiguration",
            json!({"reportingInterval": "soon"}),
            "FieldValueInvalid spec.reportingInterval: Invalid value: \"soon\": spec.reportingInterval in body should match",
        ),
        (
            Layout::V3,
            v3,
            "GlobalNetworkPolicy",
            json!({"ingress": [{"action": "Allow", "destination": {"ports": [80, true]}}]}),
            "FieldValueTypeInvalid spec.ingress[0].destination.ports[1]: Invalid value: \"boolean\"",
        ),
        (
            Layout::V1,
            v1,
            "GlobalNetworkPolicy",
            json!({"ingress": [{"destination": {"ports": [80]}}]}),
            "FieldValueRequired spec.ingress[0].action: Required value",
        ),
    ] {
        let dir = folder();
        let cluster = of_layout(&dir, layout, "v3.33.0");
        let resource = resources::calico(layout).iter().find(|r| r.kind == kind).expect("it is served");
        let body = json!({"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let seen =
            ask(&cluster, "POST", &format!("/apis/{group}/{}", resource.plural), &body.to_string()).expect("ask");
        let answer: Value = serde_json::from_str(&seen.body).expect("it is JSON");
        if said.is_empty() {
            assert_eq!(seen.status, 201, "{answer}");
            continue;
        }
        assert_eq!((seen.status, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
        let cause = &answer["details"]["causes"][0];
        let text = format!("{} {}: {}", cause["reason"], cause["field"], cause["message"]);
        let text = text.replacen('"', "", 4).replacen(": \"", ": ", 1).replace("\\\"", "\"");
        assert!(text.starts_with(said), "{text}\n{said}");
    }
}

#[test]
fn unknown_fields_are_pruned_at_any_depth() {
    let attribute = json!({"handle_id": "k8s-pod-network.1", "releasedAt": "2026-11-22T10:00:00Z"});
    for (layout, group, release, kept) in [
        (Layout::V1, "crd.projectcalico.org/v1", "v3.31.7", json!(null)),
        (Layout::V3, "projectcalico.org/v3", "v3.32.1", json!(null)),
        (Layout::V3, "projectcalico.org/v3", "v3.33.0", json!("2026-11-22T10:00:00Z")),
    ] {
        let dir = folder();
        let cluster = of_layout(&dir, layout, release);
        let block = format!("/apis/{group}/ipamblocks/192-168-10-0-26");
        let patch = json!({"spec": {"attributes": [attribute]}}).to_string();
        let seen = ask(&cluster, "PATCH", &block, &patch).expect("ask");
        assert_eq!(seen.status, 200, "{}", seen.body);
        assert_eq!(get(&cluster, &block)["spec"]["attributes"][0]["releasedAt"], kept, "{group}");
        let warned = seen.headers.iter().any(|(_, value)| value.contains("spec.attributes[0].releasedAt"));
        assert_eq!(warned, kept.is_null(), "{:?}", seen.headers);
    }
}
