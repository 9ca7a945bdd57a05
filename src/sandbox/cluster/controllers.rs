//! The few controllers of the cluster that an installer or a drain waits for. Each one reconciles the
//! current state, so a restart in between loses nothing.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission::pod_defaults;
use super::delete::{self, Options};
use super::list::label_selector_matches;
use super::resources::{core, served};
use super::shared::Api;
use super::store::{Key, Store, now, owner_reference, suffix, text};
use super::table::condition;
use super::tokens::base64_of;

/// The real controllers respond within 10 to 135 ms.
const DELAY: Duration = Duration::from_millis(30);

/// How often to check for changes by other processes on the same folder.
const LOOK: Duration = Duration::from_millis(500);

/// Runs until the server stops.
pub async fn run(api: Arc<Api>) {
    let mut changed = api.store().subscribe();
    loop {
        if let Err(e) = reconcile(&api) {
            api.fail(e);
        }
        match tokio::time::timeout(LOOK, changed.changed()).await {
            Ok(Ok(())) => tokio::time::sleep(DELAY).await,
            Ok(Err(_)) => return,
            Err(_) => {}
        }
    }
}

fn reconcile(api: &Api) -> anyhow::Result<()> {
    let mut store = api.store();
    store.enter()?;
    if !api.faults.no_controllers() {
        publish_root_ca(&mut store, &api.pki.ca_pem);
        fill_token_secrets(&mut store, api);
        taint_cordoned(&mut store);
        keep_daemon_sets(&mut store);
        count_disruptions(&mut store);
        check_api_services(&mut store);
        end_namespaces(&mut store);
    }
    if !api.faults.no_kubelet() {
        finish_terminating(&mut store);
    }
    store.leave()
}

fn all(store: &Store, plural: &str) -> Vec<(Key, Value)> {
    store.list(core(plural), None).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// A ConfigMap `kube-root-ca.crt` and a service account `default` for each namespace.
pub fn publish_root_ca(store: &mut Store, ca_pem: &str) {
    let alive = |(_, namespace): &(Key, Value)| namespace["metadata"].get("deletionTimestamp").is_none();
    for (namespace, _) in all(store, "namespaces").into_iter().filter(alive) {
        let account = Key::new(core("serviceaccounts"), &namespace.name, "default");
        if store.get(&account).is_none() {
            store.create(core("serviceaccounts"), account, json!({"metadata": {}}));
        }
        let key = Key::new(core("configmaps"), &namespace.name, "kube-root-ca.crt");
        if store.get(&key).is_none_or(|held| held["data"]["ca.crt"] != ca_pem) {
            let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                               endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                               guaranteed across distributions of Kubernetes clusters.";
            store.remove(&key);
            let map = json!({
                "metadata": {"annotations": {"kubernetes.io/description": description}},
                "data": {"ca.crt": ca_pem},
            });
            store.create(core("configmaps"), key, map);
        }
    }
}

/// Fills secrets of type service-account-token, and deletes those whose account does not exist.
fn fill_token_secrets(store: &mut Store, api: &Api) {
    for (key, mut secret) in all(store, "secrets") {
        if secret["type"] != "kubernetes.io/service-account-token" || !secret["data"]["token"].is_null() {
            continue;
        }
        let collection = format!("/api/v1/namespaces/{}/secrets", key.namespace);
        if api.faults.unfilled(&collection) {
            continue;
        }
        let account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"].as_str();
        let account = Key::new(core("serviceaccounts"), &key.namespace, account.unwrap_or_default());
        let Some(account) = store.get(&account).cloned() else {
            store.remove(&key);
            continue;
        };
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = account["metadata"]["uid"].clone();
        secret["data"] = json!({
            "ca.crt": STANDARD.encode(&api.pki.ca_pem),
            "namespace": base64_of(&key.namespace),
            "token": base64_of(&api.keys.for_secret(&account, &key.name)),
        });
        store.update(key, secret);
    }
}

/// Node lifecycle: a cordoned node has a taint, an uncordoned one does not.
fn taint_cordoned(store: &mut Store) {
    const KEY: &str = "node.kubernetes.io/unschedulable";
    for (key, mut node) in all(store, "nodes") {
        let cordoned = node["spec"]["unschedulable"] == true;
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let tainted = taints.iter().any(|t| t["key"] == KEY);
        if cordoned == tainted {
            continue;
        }
        taints.retain(|t| t["key"] != KEY);
        if cordoned {
            taints.push(json!({"key": KEY, "effect": "NoSchedule", "timeAdded": now()}));
        }
        if taints.is_empty() {
            node["spec"].as_object_mut().map(|spec| spec.remove("taints"));
        } else {
            node["spec"]["taints"] = taints.into();
        }
        store.update(key, node);
    }
}

/// The status of each disruption budget.
pub fn count_disruptions(store: &mut Store) {
    for (key, mut budget) in all(store, "poddisruptionbudgets") {
        let pods: Vec<&Value> = store
            .list(core("pods"), Some(&key.namespace))
            .map(|(_, pod)| pod)
            .filter(|pod| label_selector_matches(&budget["spec"]["selector"], &pod["metadata"]["labels"]))
            .collect();
        let expected = pods.len();
        let evicted = |pod: &Value| pod["metadata"].get("deletionTimestamp").is_some();
        let healthy = pods.iter().filter(|p| condition(p, "Ready") == Some("True") && !evicted(p)).count();
        let desired = match (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]) {
            (Value::Null, Value::Null) => expected.saturating_sub(1),
            (Value::Null, most) => expected.saturating_sub(portion(most, expected)),
            (least, _) => portion(least, expected),
        };
        let allowed = healthy.saturating_sub(desired);
        let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
        let generation = budget["metadata"]["generation"].clone();
        let was = budget["status"]["conditions"][0].clone();
        let status = if allowed > 0 { "True" } else { "False" };
        let since = if was["status"] == status { was["lastTransitionTime"].clone() } else { now().into() };
        let fresh = json!({
            "observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": healthy,
            "desiredHealthy": desired, "expectedPods": expected,
            "conditions": [{
                "type": "DisruptionAllowed", "status": status, "observedGeneration": generation,
                "lastTransitionTime": since, "reason": reason, "message": "",
            }],
        });
        if budget["status"] != fresh {
            budget["status"] = fresh;
            store.update(key, budget);
        }
    }
}

/// A number of pods, or a percentage of `of` rounded up.
fn portion(value: &Value, of: usize) -> usize {
    match value.as_str().and_then(|s| s.strip_suffix('%')).and_then(|p| p.parse::<usize>().ok()) {
        Some(percent) => (of * percent).div_ceil(100),
        None => value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
    }
}

/// A DaemonSet has a pod on each node that its template selects, also on a cordoned one. The pod of a Linux node runs
/// at once, that of a Windows node when its kubelet reports it.
pub fn keep_daemon_sets(store: &mut Store) {
    for (key, set) in all(store, "daemonsets") {
        let template = &set["spec"]["template"];
        let Some(selector) = template["spec"]["nodeSelector"].as_object() else { continue };
        for (_, node) in all(store, "nodes") {
            let selected = selector.iter().all(|(label, value)| node["metadata"]["labels"][label] == *value);
            let name = &node["metadata"]["name"];
            let is_its = |pod: &Value| {
                pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
                    && pod["spec"]["nodeName"] == *name
            };
            if !selected || store.list(core("pods"), Some(&key.namespace)).any(|(_, pod)| is_its(pod)) {
                continue;
            }
            let mut pod = template.clone();
            pod["metadata"]["generateName"] = format!("{}-", key.name).into();
            pod["metadata"]["ownerReferences"] = json!([owner_reference(&set)]);
            pod["spec"]["nodeName"] = name.clone();
            if pod["spec"]["serviceAccountName"].is_null() {
                pod["spec"]["serviceAccountName"] = "default".into();
            }
            pod["status"] = json!({"phase": "Pending", "startTime": now(), "qosClass": "BestEffort"});
            if node["metadata"]["labels"]["kubernetes.io/os"] != "windows" {
                runs(&mut pod);
            }
            pod_defaults(&mut pod);
            let pod_key = Key::new(core("pods"), &key.namespace, &format!("{}-{}", key.name, suffix()));
            store.create(core("pods"), pod_key, pod);
        }
    }
}

/// The status of a running pod.
pub fn runs(pod: &mut Value) {
    let ready =
        |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now()});
    pod["status"]["phase"] = "Running".into();
    if condition(pod, "Ready") != Some("True") {
        pod["status"]["conditions"] = json!([ready("Ready"), ready("ContainersReady")]);
    }
}

/// An aggregated API whose service does not exist is not available.
fn check_api_services(store: &mut Store) {
    for (key, mut service) in all(store, "apiservices") {
        let (namespace, name) = (text(&service, "/spec/service/namespace"), text(&service, "/spec/service/name"));
        let (Some(namespace), Some(name)) = (namespace, name) else { continue };
        if !service["status"].is_null() || store.get(&Key::new(core("services"), namespace, name)).is_some() {
            continue;
        }
        let message = format!("service/{name} in \"{namespace}\" is not present");
        service["status"] = json!({"conditions": [{
            "type": "Available", "status": "False", "lastTransitionTime": now(),
            "reason": "ServiceNotFound", "message": message,
        }]});
        store.update(key, service);
    }
}

/// A namespace that is being deleted ends with the last of its objects.
fn end_namespaces(store: &mut Store) {
    for (namespace, object) in all(store, "namespaces") {
        if object["metadata"].get("deletionTimestamp").is_none() {
            continue;
        }
        let mut left = false;
        for resource in served(store.layout).filter(|resource| resource.namespaced) {
            let keys: Vec<Key> = store.list(resource, Some(&namespace.name)).map(|(key, _)| key.clone()).collect();
            for key in keys {
                delete::end(store, resource, &key, &Options::default());
                left |= store.get(&key).is_some();
            }
        }
        if !left {
            store.remove(&namespace);
        }
    }
}

/// The stand-in for the kubelets: pods that are being deleted end at once, without their grace period.
pub fn finish_terminating(store: &mut Store) {
    for (key, pod) in all(store, "pods") {
        if pod["metadata"].get("deletionTimestamp").is_some() && text(&pod, "/spec/nodeName").is_some() {
            delete::end(store, core("pods"), &key, &Options { grace_seconds: Some(0), ..Options::default() });
        }
    }
}
