//! Replays the recordings of a real kube-apiserver 1.36, request by request, and compares: status, the relevant
//! headers, and the complete body except what differs from run to run (uids, versions, times, tokens). Each recording
//! is replayed, or listed below with the reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::pki::{Pki, Validity};
use super::testing::{self, As, Seen};
use super::tokens::TokenKey;
use super::*;

/// Recordings that cannot be replayed here, and why.
const NOT_REPLAYED: &[(&str, &str)] = &[
    ("about", "describes the recordings"),
    ("token-secret-claims", "claims, compared in tests.rs"),
    ("tokenrequest-claims", "claims, compared in tests.rs"),
    ("token-secret-delay", "timings of the real controller"),
    ("watch-token-secret", "a stream with timing; tests.rs tests the same"),
    ("watch-pods", "a stream of 26 s; tests.rs tests the same"),
    ("felix-merge-managedfields", "field ownership is not kept; the patch itself is replayed without it"),
    ("felix-apply-conflict-409", "apply merges without field ownership"),
    ("core-discovery-eviction", "an excerpt, compared in tests.rs"),
    ("replacement-pods", "no ReplicaSet controller runs"),
    ("evict-unbound-201", "replayed on another pod in tests.rs: the recorded one is a replacement"),
    ("evict-unbound-gone-404", "as above"),
    ("gzip", "responses are never compressed: they are far smaller than 128 KiB"),
    ("kubectl-drain-refused", "kubectl's own output"),
    ("kubectl-drain-pdb", "kubectl's own output"),
    ("kubectl-drain-rest", "kubectl's own output"),
    ("kubectl-uncordon", "kubectl's own output"),
    ("kubectl-taint", "kubectl's own output"),
    ("kubectl-create-token", "kubectl's own output"),
    ("kubectl-patch-ipam", "kubectl's own output"),
    ("server-down", "in tests.rs with the fault `down`"),
    ("overload-429", "in tests.rs with the fault `429`"),
];

struct Replay {
    recordings: BTreeMap<String, Value>,
    dir: TempDir,
    cluster: Option<EmbeddedCluster>,
    seed: Seed,
    tokens: BTreeMap<&'static str, String>,
    replayed: Vec<String>,
    differences: Vec<String>,
}

impl Replay {
    fn new(layout: Layout) -> Self {
        let text = include_str!("../../../tests/fixtures/kube-recordings.jsonl");
        let recordings = text
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).expect("the fixture is JSON lines"))
            .map(|r| (r["id"].as_str().expect("each recording has an id").to_owned(), r))
            .collect();
        let seed = Seed { layout, ..Seed::new("win-worker-1") };
        let mut replay = Self {
            recordings,
            dir: TempDir::new().expect("create a folder"),
            cluster: None,
            seed,
            tokens: BTreeMap::new(),
            replayed: Vec::new(),
            differences: Vec::new(),
        };
        replay.restart(&["no-controllers", "no-kubelet"]);
        replay
    }

    /// Another process with the same cluster.
    fn restart(&mut self, faults: &[&str]) {
        self.cluster = None;
        let faults: Vec<ApiFault> = faults.iter().map(|f| f.parse().expect("it is a fault")).collect();
        let cluster = EmbeddedCluster::start(self.dir.path(), &self.seed, &faults).expect("start the cluster");
        self.cluster = Some(cluster);
    }

    fn cluster(&self) -> &EmbeddedCluster {
        self.cluster.as_ref().expect("it runs")
    }

    fn admin(&self, method: &str, path: &str, body: Value) -> Value {
        let method = method.parse().expect("it is a method");
        self.cluster().as_admin(&method, path, (!body.is_null()).then_some(&body)).expect("set up the state")
    }

    fn recorded_body(&self, id: &str) -> Value {
        self.recordings[id]["response"]["body"].clone()
    }

    /// Creates an object from a recording, without the server's fields.
    fn make(&self, collection: &str, mut object: Value) -> Value {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|k, _| !k.starts_with("deletion") && k != "resourceVersion");
        }
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            conditions.retain(|c| c["type"] != "DisruptionTarget");
        }
        self.admin("POST", collection, object)
    }

    fn who(&self, who: &str) -> As {
        let pki = &self.cluster().api.pki;
        let certificate = |pair: (String, String)| As::Certificate(pair.0, pair.1);
        match who {
            "none" => As::Nobody,
            "client certificate CN=kubernetes-admin O=system:masters" => certificate(pki.admin.clone()),
            "client certificate CN=nobody-user (no rights)" => {
                certificate(pki.issue_client("nobody-user", None).expect("issue"))
            }
            "client certificate CN=system:node:win-worker-1 O=system:nodes" => {
                let user = "system:node:win-worker-1";
                certificate(pki.issue_client(user, Some("system:nodes")).expect("issue"))
            }
            foreign if foreign.starts_with("client certificate of another CA") => {
                let dir: PathBuf = self.dir.path().join("foreign");
                certificate(Pki::open(&dir, Validity::TenYears).expect("another CA").admin)
            }
            token => {
                let name = token.strip_prefix("service account token: ").expect("the last sort");
                As::Token(self.tokens[name].clone())
            }
        }
    }

    fn all(&mut self, ids: &[&str]) {
        for id in ids {
            self.one(id);
        }
    }

    fn one(&mut self, id: &str) {
        self.changed(id, |_, _| {});
    }

    /// Replays a recording with its path and body adapted to the current state.
    fn changed(&mut self, id: &str, change: impl FnOnce(&mut String, &mut Value)) {
        let recording = self.recordings.get(id).unwrap_or_else(|| panic!("no recording {id}")).clone();
        let request = &recording["request"];
        let mut path = request["path"].as_str().expect("a path").to_owned();
        let mut body = request["body"].clone();
        change(&mut path, &mut body);
        let headers: Vec<(String, String)> = request["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "Authorization")
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().into()))
            .collect();
        let body = match &body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let who = self.who(recording["as"].as_str().expect("somebody asks"));
        let method = request["method"].as_str().expect("a method");
        let (address, ca) = (self.cluster().addr(), &self.cluster().api.pki.ca_pem);
        let seen = testing::request(address, ca, &who, method, &path, &headers, &body).expect("an answer");
        self.compare(id, &recording["response"], &seen);
        self.replayed.push(id.to_owned());
    }

    fn compare(&mut self, id: &str, recorded: &Value, seen: &Seen) {
        let mut differences = Vec::new();
        if recorded["status"] != seen.status {
            differences.push(format!("status: {} here, {} there", seen.status, recorded["status"]));
        }
        for name in ["Content-Type", "X-Content-Type-Options", "Retry-After", "Warning"] {
            let there = recorded["headers"][name].as_str();
            if seen.header(name) != there {
                differences.push(format!("{name}: {:?} here, {there:?} there", seen.header(name)));
            }
        }
        if let Some(stream) = recorded["stream"].as_array() {
            let there: Value = stream.iter().map(|event| event["line"].clone()).collect();
            diff("", &masked(Value::from(seen.lines())), &masked(there), &mut differences);
        } else {
            diff("", &masked(seen.json()), &masked(recorded["body"].clone()), &mut differences);
        }
        self.differences.extend(differences.into_iter().map(|d| format!("{id}: {d}")));
    }
}

/// What differs from run to run, replaced by a word.
fn masked(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| name != "managedFields")
            .map(|(name, value)| {
                let secret = matches!(name.as_str(), "resourceVersion" | "token" | "ca.crt" | "expirationTimestamp");
                let varies = (secret || name == "continue") && value.as_str().is_some_and(|s| !s.is_empty());
                let value = if varies { "*".into() } else { masked(value) };
                (name, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(masked).collect(),
        Value::String(mut text) => {
            for (pattern, word) in patterns() {
                text = pattern.replace_all(&text, *word).into_owned();
            }
            text.into()
        }
        other => other,
    }
}

fn patterns() -> &'static [(Regex, &'static str)] {
    static PATTERNS: OnceLock<Vec<(Regex, &'static str)>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
            (r"^\d{4}-\d\d-\d\d$", "DATE"),
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            (r#"\\"managedFields\\":\[.*?\}\],"#, ""),
            (r#"\\"resourceVersion\\":\\"\d+\\""#, "VERSION"),
            (r"version: (\d+) \(\d+\)", "version: $1 (VERSION)"),
            (r"current: \d+", "current: VERSION"),
            (r"^\d+s$", "AGE"),
        ]
        .map(|(pattern, word)| (Regex::new(pattern).expect("a pattern"), word))
        .into()
    })
}

fn diff(path: &str, here: &Value, there: &Value, differences: &mut Vec<String>) {
    match (here, there) {
        (Value::Object(h), Value::Object(t)) => {
            let names: std::collections::BTreeSet<&String> = h.keys().chain(t.keys()).collect();
            for name in names {
                let (h, t) = (h.get(name), t.get(name));
                match (h, t) {
                    (Some(h), Some(t)) => diff(&format!("{path}/{name}"), h, t, differences),
                    (Some(h), None) => differences.push(format!("{path}/{name}: {h} here, absent there")),
                    (None, t) => differences.push(format!("{path}/{name}: absent here, {t:?} there")),
                }
            }
        }
        (Value::Array(h), Value::Array(t)) if h.len() == t.len() => {
            for (index, (h, t)) in h.iter().zip(t).enumerate() {
                diff(&format!("{path}/{index}"), h, t, differences);
            }
        }
        _ if here != there => differences.push(format!("{path}: {here} here, {there} there")),
        _ => {}
    }
}

#[test]
fn every_recording_is_answered_alike_or_left_out_for_a_reason() {
    let mut r = Replay::new(Layout::V1);
    refusals_and_tokens(&mut r);
    custom_resources(&mut r);
    nodes(&mut r);
    pods_and_evictions(&mut r);
    misc(&mut r);

    let mut v3 = Replay::new(Layout::V3);
    the_v3_layout(&mut v3);
    r.differences.append(&mut v3.differences);
    r.replayed.append(&mut v3.replayed);

    assert!(r.differences.is_empty(), "{} differences:\n{}", r.differences.len(), r.differences.join("\n"));
    let missing: Vec<&String> = r
        .recordings
        .keys()
        .filter(|id| !r.replayed.contains(id) && !NOT_REPLAYED.iter().any(|(left, _)| left == id))
        .collect();
    assert!(missing.is_empty(), "neither replayed nor left out: {missing:?}");
    assert_eq!((r.replayed.len(), NOT_REPLAYED.len(), r.recordings.len()), (159, 22, 181));
}

fn refusals_and_tokens(r: &mut Replay) {
    let other = TokenKey::open(TempDir::new().expect("a folder").path()).expect("another key");
    let account = r.admin("GET", "/api/v1/namespaces/calico-system/serviceaccounts/calico-node", Value::Null);
    r.tokens.insert("bad-token", "nonsense".into());
    r.tokens.insert("forged-token", other.requested(&account, 3600, None));
    let limited = r.admin("POST", "/api/v1/namespaces/demo/serviceaccounts", json!({"metadata": {"name": "limited"}}));
    let keys = |r: &Replay, account: &Value| r.cluster().api.keys.requested(account, 3600, None);
    r.tokens.insert("calico-node TokenRequest token", keys(r, &account));
    r.tokens.insert("demo/limited", keys(r, &limited));
    r.all(&[
        "version-admin",
        "version-anonymous",
        "readyz-anonymous",
        "anonymous-403",
        "foreign-cert-401",
        "bad-token-401",
        "forged-jwt-401",
        "nobody-403-secrets-list",
        "nobody-403-node-get",
        "nobody-403-felix-patch",
        "nobody-403-evict",
        "nobody-403-tokenrequest",
        "impersonate-403",
        "secrets-list-empty",
        "serviceaccount-get",
        "serviceaccount-404",
        "token-secret-no-annotation-422",
        "token-secret-create",
        "token-secret-create-again-409",
        "token-secret-get-unpopulated",
    ]);
    r.admin("DELETE", "/api/v1/namespaces/demo/serviceaccounts/default", Value::Null);
    r.one("pod-create-no-sa-403");

    // With a controller manager the secret is filled; one for an absent account is deleted.
    let ghost = json!({
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "ghost-token", "annotations": {"kubernetes.io/service-account.name": "ghost"}},
    });
    r.admin("POST", "/api/v1/namespaces/calico-system/secrets", ghost);
    r.restart(&["no-kubelet"]);
    let secret = "/api/v1/namespaces/calico-system/secrets/calico-node-token";
    let filled = tests::eventually(|| {
        let secret = r.admin("GET", secret, Value::Null);
        secret["data"]["token"].as_str().map(ToOwned::to_owned)
    });
    let token = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, filled).expect("it is base64");
    r.tokens.insert("calico-node secret token", String::from_utf8(token).expect("it is text"));
    let etcd = r.recorded_body("secret-etcd-get");
    r.make("/api/v1/namespaces/kube-system/secrets", etcd);
    r.all(&[
        "token-secret-get-populated",
        "secrets-list-token-type",
        "secrets-list-bad-selector-400",
        "legacy-token-use",
        "token-secret-get-last-used",
        "token-secret-unknown-sa-404",
        "tokenrequest-bound-secret",
        "token-secret-delete",
        "token-secret-deleted-401",
        "secret-etcd-get",
        "secret-404",
        "configmap-get",
        "configmap-kube-root-ca",
        "tokenrequest-default",
        "tokenrequest-1y",
        "tokenrequest-too-short-422",
        "tokenrequest-too-long-422",
        "tokenrequest-no-body-kind",
        "tokenrequest-404",
        "sa-token-use",
        "sa-token-403",
        "sa-token-403-patch",
        "selfsubjectreview",
        "ssar-allowed",
        "ssar-denied",
        "ssar-allowed-rbac",
        "ssar-unknown-resource",
        "ssar-anonymous-403",
    ]);
    r.restart(&["no-controllers", "no-kubelet"]);
}

fn custom_resources(r: &mut Replay) {
    const POOLS: &str = "/apis/crd.projectcalico.org/v1/ippools";
    r.admin("DELETE", &format!("{POOLS}/default-ipv4-ippool"), Value::Null);
    for pool in r.recorded_body("ippools-list")["items"].as_array().into_iter().flatten() {
        r.make(POOLS, pool.clone());
    }
    let felix = "/apis/crd.projectcalico.org/v1/felixconfigurations/default";
    r.admin("DELETE", "/apis/crd.projectcalico.org/v1/ipamconfigs/default", Value::Null);
    r.make("/apis/crd.projectcalico.org/v1/ipamconfigs", r.recorded_body("ipamconfig-get"));
    r.admin(
        "PATCH",
        "/apis/crd.projectcalico.org/v1/clusterinformations/default",
        json!({"spec": r.recorded_body("clusterinformation-get")["spec"]}),
    );
    // The patch above is a change; the recorded object had none yet.
    r.admin("DELETE", "/apis/crd.projectcalico.org/v1/clusterinformations/default", Value::Null);
    r.make("/apis/crd.projectcalico.org/v1/clusterinformations", r.recorded_body("clusterinformation-get"));
    r.all(&[
        "group-discovery",
        "group-404-text",
        "crd-object-get",
        "crd-object-404",
        "felix-get",
        "felix-list",
        "felix-404",
        "ippools-list",
        "ipamconfig-get",
        "clusterinformation-get",
        "felix-table",
        "felix-merge-noop",
        "felix-merge-dryrun",
    ]);
    let first = r.admin("GET", felix, Value::Null)["metadata"]["resourceVersion"].clone();
    // The recording shows field ownership, which is not stored; the patch is needed for what follows.
    r.admin("PATCH", felix, json!({"spec": {"vxlanVNI": 4097, "vxlanEnabled": true}}));
    r.all(&[
        "felix-merge-null",
        "felix-merge-unknown-default",
        "felix-merge-unknown-strict",
        "felix-merge-unknown-ignore",
        "felix-merge-wrong-type-422",
        "felix-merge-404",
        "felix-strategic-415",
        "felix-patch-plain-json-415",
        "felix-bad-json-400",
        "felix-json-patch",
        "felix-json-patch-test-422",
    ]);
    for id in ["felix-merge-stale-409", "felix-put-stale-409"] {
        r.changed(id, |_, body| body["metadata"]["resourceVersion"] = first.clone());
    }
    r.all(&[
        "felix-put-no-rv-422",
        "felix-create-exists-409",
        "ipam-merge",
        "ipam-merge-required-422",
        "ipam-create-missing-required-422",
        "ippool-merge",
        "ippool-merge-both-422",
        "ippool-merge-blocksize-422",
        "ippool-merge-enum-422",
    ]);
}

const NODE: &str = "/api/v1/nodes/win-worker-1";

fn nodes(r: &mut Replay) {
    r.admin("DELETE", NODE, Value::Null);
    r.make("/api/v1/nodes", r.recorded_body("node-get"));
    r.make("/api/v1/nodes", json!({"metadata": {"name": "lin-cp-1", "labels": {"kubernetes.io/os": "linux"}}}));
    r.all(&["node-get", "node-404", "nodes-list-windows", "node-cordon"]);
    let first = r.admin("GET", NODE, Value::Null)["metadata"]["resourceVersion"].clone();
    // The node-lifecycle controller's change; tests.rs tests the one of this cluster.
    r.admin("PATCH", NODE, json!({"spec": {"taints": r.recorded_body("node-get-cordoned")["spec"]["taints"]}}));
    r.all(&["node-get-cordoned", "node-cordon-again"]);
    let now = r.admin("GET", NODE, Value::Null)["metadata"]["resourceVersion"].clone();
    r.changed("node-taint-add", |_, body| body["metadata"]["resourceVersion"] = now);
    r.changed("node-taint-stale-409", |_, body| body["metadata"]["resourceVersion"] = first);
    r.all(&["node-taint-bad-effect-422", "node-taint-strategic", "node-taint-remove"]);
    r.admin("PATCH", NODE, json!({"spec": {"taints": r.recorded_body("node-uncordon-null")["spec"]["taints"]}}));
    r.one("node-uncordon-null");
    r.admin("PATCH", NODE, json!({"spec": {"taints": null}}));
    r.all(&["node-annotate", "node-as-kubelet-cordon-own", "node-as-kubelet-taint-403", "node-as-kubelet-other-403"]);
}

fn pods_and_evictions(r: &mut Replay) {
    r.admin("DELETE", "/apis/apps/v1/namespaces/demo/daemonsets/fluent-bit", Value::Null);
    for pod in r.admin("GET", "/api/v1/namespaces/demo/pods", Value::Null)["items"].as_array().into_iter().flatten() {
        let path = format!("/api/v1/namespaces/demo/pods/{}", pod["metadata"]["name"].as_str().expect("a name"));
        r.admin("DELETE", &path, json!({"gracePeriodSeconds": 0}));
    }
    r.admin("DELETE", "/apis/policy/v1/namespaces/demo/poddisruptionbudgets/web", Value::Null);
    const CALICO_PODS: &str = "/api/v1/namespaces/calico-system/pods";
    const DEMO_PODS: &str = "/api/v1/namespaces/demo/pods";
    let set = json!({"metadata": {"name": "calico-node-windows", "labels": {"k8s-app": "calico-node-windows"}}});
    r.make("/apis/apps/v1/namespaces/calico-system/daemonsets", set);
    r.make(CALICO_PODS, r.recorded_body("daemonset-pod-get"));
    r.make(DEMO_PODS, r.recorded_body("pods-on-node-page1")["items"][1].clone());
    r.make("/api/v1/namespaces/kube-system/pods", r.recorded_body("mirror-pod-get"));
    r.make(DEMO_PODS, r.recorded_body("evicted-pod-get"));
    r.make(DEMO_PODS, r.recorded_body("delete-ignores-pdb"));
    // Only the metadata of these was recorded; their specification is like the others'.
    for partial in r.recorded_body("pods-on-node-page2")["items"].as_array().into_iter().flatten() {
        let name = partial["metadata"]["name"].as_str().expect("a name");
        if name.starts_with("scratch-") || name == "web-cqt54" {
            let mut pod = r.recorded_body("evicted-pod-get");
            pod["metadata"] = partial["metadata"].clone();
            r.make(DEMO_PODS, pod);
        }
    }
    r.one("pods-on-node-page1");
    let page = "/api/v1/pods?fieldSelector=spec.nodeName%3Dwin-worker-1&limit=2";
    let next = r.admin("GET", page, Value::Null)["metadata"]["continue"].as_str().expect("a token").to_owned();
    r.changed("pods-on-node-page2", |path, _| {
        let (before, _) = path.split_once("continue=").expect("it continues");
        *path = format!("{before}continue={next}");
    });
    r.all(&[
        "pods-no-node",
        "pods-bad-selector-400",
        "pods-bad-continue-400",
        "pod-404",
        "namespace-404-list",
        "daemonset-get-meta",
        "daemonset-404",
        "mirror-pod-get",
        "daemonset-pod-get",
        "evict-dryrun",
        "evict-404",
        "evict-name-mismatch-400",
        "evict-uid-409",
        "evict-201",
        "evicted-pod-get",
        "evict-again",
        "delete-force",
        "deleted-pod-404",
        "evict-grace-0",
        "evict-grace-0-404",
    ]);

    const BUDGETS: &str = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets";
    let guarded = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets/guarded";
    r.restart(&["no-kubelet"]);
    let selector = json!({"matchLabels": {"app": "guarded"}});
    let budget = json!({"metadata": {"name": "guarded"}, "spec": {"minAvailable": 1, "selector": selector}});
    r.make(BUDGETS, budget);
    tests::eventually(|| r.admin("GET", guarded, Value::Null)["status"]["expectedPods"].as_i64());
    r.restart(&["no-controllers", "no-kubelet"]);
    r.all(&[
        "pdb-get",
        "evict-429",
        "evict-429-dryrun",
        "delete-ignores-pdb",
        "evict-v1beta1",
        "evict-limited-403",
        "evict-daemonset-201",
        "evict-mirror-201",
    ]);
    // `evict-v1beta1` was the grace period's eviction of a pod that later got a finalizer.
    r.admin("DELETE", &format!("{DEMO_PODS}/web-cqt54"), json!({"gracePeriodSeconds": 0}));
    let mut held = r.recorded_body("evict-finalizer-stays");
    held["spec"] = r.recorded_body("evicted-pod-get")["spec"].clone();
    held["status"] = json!({"phase": "Running"});
    held["kind"] = "Pod".into();
    r.make(DEMO_PODS, held);
    r.all(&["evict-finalizer-201", "evict-finalizer-stays"]);
    r.admin("PATCH", &format!("{DEMO_PODS}/web-cqt54"), json!({"metadata": {"finalizers": null}}));
    r.one("evict-finalizer-404");

    r.admin("PATCH", guarded, json!({"spec": {"minAvailable": 0}}));
    r.one("evict-429-retry-after");
    r.admin(
        "POST",
        BUDGETS,
        json!({"metadata": {"name": "second"}, "spec": {"maxUnavailable": 1, "selector": selector}}),
    );
    r.one("evict-two-budgets-500");
    r.admin("DELETE", &format!("{BUDGETS}/second"), Value::Null);
    r.all(&["pdb-status-patch", "evict-allowed-by-pdb-201", "pdb-after-eviction"]);
}

fn misc(r: &mut Replay) {
    let now = r.cluster().api.store().version();
    r.changed("watch-timeout", |path, _| {
        *path = path.replace("545", &now.to_string()).replace("Seconds=2", "Seconds=1");
    });
    r.admin("PATCH", "/apis/crd.projectcalico.org/v1/ipamconfigs/default", json!({"spec": {"strictAffinity": false}}));
    r.changed("watch-sendinitial", |path, _| *path = path.replace("timeoutSeconds=3", "timeoutSeconds=1"));
    r.all(&[
        "post-on-object-400",
        "accept-406",
        "path-404",
        "path-403-anonymous",
        "pod-log-no-kubelet",
        "watch-410",
        "list-rv-future-504",
    ]);
    let service = r.recorded_body("aggregated-apiservice");
    let service = json!({"metadata": {"name": service["metadata"]["name"]}, "spec": service["spec"]});
    let first = r.admin("GET", "/api/v1/pods?limit=1", Value::Null);
    let next = first["metadata"]["continue"].as_str().expect("there is more").to_owned();
    r.admin("PATCH", NODE, json!({"metadata": {"labels": {"example/m": "y"}}}));
    r.restart(&["no-kubelet"]);
    // The page's snapshot is from before this process, and compacted.
    r.changed("list-continue-410", |path, _| *path = format!("/api/v1/pods?limit=1&continue={next}"));
    const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    r.make(SERVICES, service);
    let path = format!("{SERVICES}/v3.projectcalico.org");
    tests::eventually(|| r.admin("GET", &path, Value::Null)["status"]["conditions"][0]["status"].as_str().map(drop));
    r.all(&["aggregated-503", "aggregated-apiservice"]);
}

fn the_v3_layout(r: &mut Replay) {
    const POOLS: &str = "/apis/projectcalico.org/v3/ippools";
    r.admin("DELETE", &format!("{POOLS}/default-ipv4-ippool"), Value::Null);
    for pool in r.recorded_body("v3-ippools-list")["items"].as_array().into_iter().flatten() {
        r.make(POOLS, pool.clone());
    }
    const IPAM: &str = "/apis/projectcalico.org/v3/ipamconfigurations";
    r.admin("DELETE", &format!("{IPAM}/default"), Value::Null);
    r.make(IPAM, r.recorded_body("v3-ipamconfigurations-get"));
    r.all(&[
        "v3-group",
        "v3-felix-get",
        "v3-felix-merge",
        "v3-ipamconfigurations-get",
        "v3-ipam-merge",
        "v3-ipamconfigs-404",
        "v3-ippools-list",
        "v3-ippool-merge-blocksize",
        "v3-old-group-404",
    ]);
}
