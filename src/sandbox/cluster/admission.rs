//! What a kube-apiserver adds to an object, or refuses, besides its schema: defaults, namespaces that must exist,
//! taints, and what a kubelet may do only to its own node.

use serde_json::{Value, json};

use super::answer::{Answer, Cause};
use super::call::Call;
use super::resources::core;
use super::store::{Key, text};
use super::tokens::base64_of;

/// Sets defaults and checks an object that will be created.
pub fn create(call: &Call<'_>, object: &mut Value) -> Result<(), Answer> {
    let namespace = &call.request.target.namespace;
    if call.resource.namespaced {
        let namespaces = core("namespaces");
        let Some(within) = call.store.get(&Key::new(namespaces, "", namespace)) else {
            return Err(Answer::not_found(namespaces, namespace));
        };
        if within["metadata"].get("deletionTimestamp").is_some() {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let name = text(object, "/metadata/name").unwrap_or_default().to_owned();
            return Err(Answer::forbidden(call.resource, &name, &why));
        }
    }
    match (call.resource.group, call.resource.plural) {
        ("", "secrets") => secret(object),
        ("", "pods") => pod(call, object),
        ("", "services") => {
            allocate(call, object);
            Ok(())
        }
        ("", "namespaces") => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
            Ok(())
        }
        ("", "nodes") => taints(object),
        ("coordination.k8s.io", "leases") => lease(object),
        _ => Ok(()),
    }
}

/// Checks a change.
pub fn update(call: &Call<'_>, current: &Value, object: &mut Value) -> Result<(), Answer> {
    match (call.resource.group, call.resource.plural) {
        ("", "nodes") => {}
        ("coordination.k8s.io", "leases") => return lease(object),
        _ => return Ok(()),
    }
    let name = &call.request.target.name;
    if let Some(own) = call.user.node() {
        if own != name {
            let why = format!("node \"{own}\" is not allowed to modify node \"{name}\"");
            return Err(Answer::forbidden(call.resource, name, &why));
        }
        if object["spec"]["taints"] != current["spec"]["taints"] {
            let why = format!("node \"{own}\" is not allowed to modify taints");
            return Err(Answer::forbidden(call.resource, name, &why));
        }
    }
    taints(object)
}

/// Checks a deletion: NodeRestriction lets a kubelet delete only the pods of its own node.
pub fn delete(call: &Call<'_>, current: &Value) -> Result<(), Answer> {
    match call.user.node() {
        Some(own) if call.resource.plural == "pods" && text(current, "/spec/nodeName") != Some(own) => {
            let why = format!("node \"{own}\" can only delete pods with spec.nodeName set to itself");
            Err(Answer::forbidden(call.resource, &call.request.target.name, &why))
        }
        _ => Ok(()),
    }
}

fn taints(node: &Value) -> Result<(), Answer> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut causes = Vec::new();
    for (index, taint) in node["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
        let effect = text(taint, "/effect").unwrap_or_default();
        if !EFFECTS.contains(&effect) {
            let cause = Cause::new(
                "FieldValueNotSupported",
                format!("metadata.taints[{index}].effect"),
                format!(
                    "Unsupported value: \"{effect}\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
                     \"NoExecute\""
                ),
            );
            // The real one checks a node's taints twice on a patch, and reports both.
            causes.extend([cause.clone(), cause]);
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Answer::invalid("Node", "", text(node, "/metadata/name").unwrap_or_default(), &causes))
}

/// A Lease's numbers and times.
fn lease(lease: &Value) -> Result<(), Answer> {
    let spec = &lease["spec"];
    for time in ["acquireTime", "renewTime"] {
        if let Some(text) = spec[time].as_str().filter(|text| text.parse::<jiff::Timestamp>().is_err()) {
            return Err(Answer::bad_request(format!(
                "Lease in version \"v1\" cannot be handled as a Lease: parsing time \"{text}\" as \
                 \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"{text}\" as \"2006\""
            )));
        }
    }
    let mut causes = Vec::new();
    let mut least = |field: &str, least: i64, what: &str| {
        if let Some(n) = spec[field].as_i64().filter(|n| *n < least) {
            let message = format!("Invalid value: {n}: must be greater than {what}");
            causes.push(Cause::new("FieldValueInvalid", format!("spec.{field}"), message));
        }
    };
    least("leaseDurationSeconds", 1, "0");
    least("leaseTransitions", 0, "or equal to 0");
    if causes.is_empty() {
        return Ok(());
    }
    let name = text(lease, "/metadata/name").unwrap_or_default();
    Err(Answer::invalid("Lease", "coordination.k8s.io", name, &causes))
}

/// A token secret must name its service account; the controller checks whether that exists.
fn secret(secret: &mut Value) -> Result<(), Answer> {
    if secret.get("type").is_none() {
        secret["type"] = "Opaque".into();
    }
    if let Some(Value::Object(plain)) = secret.as_object_mut().and_then(|s| s.remove("stringData")) {
        for (name, value) in plain {
            secret["data"][name] = base64_of(value.as_str().unwrap_or_default()).into();
        }
    }
    let account = "kubernetes.io/service-account.name";
    if secret["type"] == "kubernetes.io/service-account-token" && secret["metadata"]["annotations"][account].is_null() {
        let cause = Cause::required(format!("metadata.annotations[{account}]"));
        let name = text(secret, "/metadata/name").unwrap_or_default();
        return Err(Answer::invalid("Secret", "", name, &[cause]));
    }
    Ok(())
}

fn pod(call: &Call<'_>, pod: &mut Value) -> Result<(), Answer> {
    let namespace = &call.request.target.namespace;
    let mirror = pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some();
    let account = text(pod, "/spec/serviceAccountName").unwrap_or("default").to_owned();
    let name = text(pod, "/metadata/name").unwrap_or_default();
    if !mirror {
        if call.store.get(&Key::new(core("serviceaccounts"), namespace, &account)).is_none() {
            let why = format!(
                "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
            );
            return Err(Answer::forbidden(call.resource, name, &why));
        }
        pod["spec"]["serviceAccountName"] = account.clone().into();
        pod["spec"]["serviceAccount"] = account.into();
    }
    pod_defaults(pod);
    Ok(())
}

/// The address of a new service, and its ports on the nodes.
fn allocate(call: &Call<'_>, service: &mut Value) {
    let taken = |field: &str, value: &Value| {
        let ports = |service: &Value| service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        call.store
            .list(core("services"), None)
            .any(|(_, other)| other["spec"][field] == *value || ports(other).iter().any(|port| port[field] == *value))
    };
    let spec = &mut service["spec"];
    if spec["type"].is_null() {
        spec["type"] = "ClusterIP".into();
    }
    if spec["clusterIP"].is_null() {
        let free = (1..=254).map(|last| Value::from(format!("10.96.100.{last}"))).find(|ip| !taken("clusterIP", ip));
        spec["clusterIPs"] = json!([free]);
        spec["clusterIP"] = free.unwrap_or_default();
    }
    if spec["type"] == "NodePort" {
        let mut free = (30_000..32_768).map(Value::from).filter(|port| !taken("nodePort", port));
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            port["nodePort"] = free.next().unwrap_or_default();
        }
    }
}

/// The defaults of a pod that a drain or a reader may use.
pub fn pod_defaults(pod: &mut Value) {
    let spec = &mut pod["spec"];
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        for (field, value) in [
            ("resources", json!({})),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
            ("imagePullPolicy", json!("IfNotPresent")),
        ] {
            if container[field].is_null() {
                container[field] = value;
            }
        }
    }
    if pod["status"].is_null() {
        pod["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    }
}
