//! A complete node and its cluster, with everything masked that differs from run to run: times, run ids, uids,
//! versions, process ids.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::LazyLock;

use calicoctl_win::node::sandbox::model::Model;
use regex::Regex;
use serde_json::Value;

use super::verbs::{NEVER_TOUCHED, THEIRS};
use crate::lab::Lab;

/// Every file, folder, access list, entry of `node.yaml` and object of the cluster, by its name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Whole(BTreeMap<String, String>);

const STATE: &str = "C/ProgramData/calicoctl-win/";

/// What a run writes besides the node's items: its log, its result, the holder of the lock; and what the agents
/// recorded: the adapters before a virtual switch was created, and their own state.
const OF_RUNS: [&str; 7] = ["logs/", "state/last-run.json", "state/runs/", "lock", "lock.json", "node.save", "agent/"];

/// Pods belong to the cluster's own controllers and kubelets. The Lease of a killed run expires by itself.
const OF_OTHERS: [&str; 6] = [
    "pods",
    "events",
    "replicasets.apps",
    "deployments.apps",
    "poddisruptionbudgets.policy",
    "leases.coordination.k8s.io",
];

static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\d{8}T\d{6}-[0-9a-f]{6}", "RUN"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\d+/\d+/\d{4} \d+:\d\d:\d\d [AP]M", "BOOT-TIME"),
        // The day on which the token of a secret was last used: midnight may come in the middle of a test.
        (r#"(legacy-token-last-used":")[\d-]{10}"#, "${1}DAY"),
    ]
    .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
    .into()
});

fn masked(text: &str) -> String {
    MASKS.iter().fold(text.to_owned(), |text, (pattern, mask)| pattern.replace_all(&text, *mask).into_owned())
}

impl Whole {
    /// The end state of a run.
    pub fn of(lab: &Lab) -> Self {
        Self::all(lab, false)
    }

    /// A node at any moment, with a complete change or not.
    pub fn now(lab: &Lab) -> Self {
        Self::all(lab, true)
    }

    /// The same, with an interrupted journal and everything else that decides what a recovery does: two moments with
    /// the same value are equal for a recovery.
    pub fn moment(lab: &Lab) -> u64 {
        let mut hasher = DefaultHasher::new();
        Self::now(lab).hash(&mut hasher);
        hasher.finish()
    }

    fn all(lab: &Lab, moment: bool) -> Self {
        let mut seen = BTreeMap::new();
        files(lab, moment, &mut seen);
        node_yaml(lab, moment, &mut seen);
        cluster(lab, moment, &mut seen);
        Self(seen)
    }

    /// Returns the differences, one per line.
    pub fn against(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for name in self.0.keys().chain(other.0.keys().filter(|name| !self.0.contains_key(*name))) {
            let (now, wanted) = (self.0.get(name), other.0.get(name));
            if now != wanted {
                lines.push(format!("  {name}: {}", difference(now, wanted)));
            }
        }
        lines
    }

    /// Returns what was changed on the node or in its cluster between two moments, one per line, without the program's own
    /// records and the Leases. A pod that was moved away has another name elsewhere.
    pub fn touched_since(&self, before: &Self) -> Vec<String> {
        let own = |line: &String| line.contains(STATE) || line.contains("  leases.") || line.contains("  events/");
        self.against(before).into_iter().filter(|line| !own(line)).collect()
    }

    /// Whether a difference is a release or a blob in the store that a generation needs.
    pub fn is_needed(&self, difference: &str) -> bool {
        let store = format!("{STATE}store/");
        let Some((_, rest)) = difference.split_once(&store) else { return false };
        let digest = rest.split('/').nth(1).and_then(|name| name.split_whitespace().next()).unwrap_or_default();
        let receipts = self.0.iter().filter(|(name, _)| name.contains("/receipts/"));
        digest.len() == 64 && receipts.into_iter().any(|(_, text)| text.contains(digest))
    }

    /// Without Calico's own annotations of its Node: its last addresses remain there.
    pub fn without_calicos_notes(mut self) -> Self {
        for (_, text) in self.0.iter_mut().filter(|(name, _)| name.starts_with("nodes/")) {
            let mut node: Value = serde_json::from_str(text).unwrap();
            if let Some(annotations) = node.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.retain(|name, _| !name.starts_with("projectcalico.org/"));
            }
            *text = node.to_string();
        }
        self
    }

    /// Without the Node's annotation with its settings, if the run reported that it could not be written.
    pub fn without_achieved(&self) -> Self {
        let mut seen = self.0.clone();
        for (_, text) in seen.iter_mut().filter(|(name, _)| name.starts_with("nodes/")) {
            let mut node: Value = serde_json::from_str(text).unwrap();
            if let Some(annotations) = node.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.retain(|name, _| name != "calicoctl-win/settings");
            }
            *text = node.to_string();
        }
        Self(seen)
    }

    /// Returns everything in it: name and content.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Returns the items of other products, which are the same at every moment. One that is ours is none of theirs.
    pub fn strangers(&self) -> BTreeMap<String, String> {
        let named = NEVER_TOUCHED.iter().flat_map(|(kind, names)| names.iter().map(move |name| (*kind, *name)));
        let mut theirs = BTreeMap::new();
        for (kind, own) in named {
            let found = self.lines().filter(|(name, _)| match kind {
                "files" => *name == own || name.starts_with(&format!("{own} ")),
                kind => *name == format!("node.yaml/{kind}/{}", own.to_lowercase()),
            });
            let found = found.filter(|(_, text)| !text.contains("[managed by calicoctl-win]"));
            let before = theirs.len();
            theirs.extend(found.map(|(name, text)| (name.to_owned(), text.to_owned())));
            if theirs.len() == before {
                theirs.insert(format!("{kind}/{own}"), "gone".into());
            }
        }
        for (name, text) in self.lines().filter(|(name, _)| name.starts_with("nodes/")) {
            let node: Value = serde_json::from_str(text).unwrap();
            let metadata = ["labels", "annotations"].map(|field| node["metadata"][field][THEIRS].clone());
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let taint = taints.into_iter().find(|taint| taint["key"] == THEIRS);
            theirs.insert(name.to_owned(), format!("{metadata:?} {taint:?}"));
        }
        theirs
    }

    /// Whether a deleted virtual switch has left an adapter whose addresses are not restored yet.
    pub fn addresses_are_on_their_way(lab: &Lab) -> bool {
        let model: Model = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
        model.adapters.iter().any(|adapter| adapter.arriving.is_some())
    }

    /// No change is incomplete, and nothing that a run prepared remains.
    pub fn is_at_rest(lab: &Lab) -> bool {
        let ours = |name: &str| lab.on_node(&format!("{STATE}{name}")).exists();
        !ours("journal.jsonl") && !ours("state/cordon.json")
    }
}

fn files(lab: &Lab, moment: bool, seen: &mut BTreeMap<String, String>) {
    let node = lab.path("node");
    let mut folders = vec![node.join("C")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(&node).unwrap().to_str().unwrap().replace('\\', "/");
            let own = format!("{name}/").starts_with(STATE).then(|| name.strip_prefix(STATE).unwrap_or_default());
            let is_folder = path.is_dir();
            if own.is_some_and(|own| OF_RUNS.iter().any(|of| format!("{own}/").starts_with(of) || own == *of)) {
                continue;
            }
            let access = access(&path);
            if is_folder {
                folders.push(path);
                // The program's folders remain while they contain anything; empty ones do not count.
                if own.is_none() {
                    seen.insert(format!("{name}/ {access}"), String::new());
                }
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let text = match own {
                Some(own) if own.starts_with("receipts/") && own.ends_with(".json") => receipt(&text),
                Some("journal.jsonl" | "state/cordon.json") if !moment => panic!("{name} still exists: {text}"),
                Some(_) => masked(&text),
                None => text.into_owned(),
            };
            seen.insert(format!("{name} {access}"), text);
        }
    }
}

/// Returns the first place at which two texts differ, with its context.
fn difference(now: Option<&String>, wanted: Option<&String>) -> String {
    let (Some(now), Some(wanted)) = (now, wanted) else {
        return if now.is_some() { "should not be there".into() } else { "is missing".into() };
    };
    let same = now.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
    let context = |text: &str| {
        let part = &text.as_bytes()[same.saturating_sub(60).min(text.len())..(same + 60).min(text.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    format!("`{}` instead of `{}`", context(now), context(wanted))
}

/// A receipt without the time and the run. The order of its lists does not count.
fn receipt(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(mut receipt) => {
            for field in ["run", "finished"] {
                receipt[field] = Value::Null;
            }
            masked(&receipt.to_string())
        }
        Err(error) => panic!("a receipt is broken: {error}"),
    }
}

#[cfg(unix)]
fn access(path: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    format!("{:o}", fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777)
}

#[cfg(not(unix))]
fn access(_path: &Path) -> String {
    String::new()
}

/// `node.yaml` by its parts: `node.yaml/services/CalicoNode`.
fn node_yaml(lab: &Lab, moment: bool, seen: &mut BTreeMap<String, String>) {
    // Through the model, since default values may be omitted.
    let model: Model = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    let Value::Object(sections) = serde_json::to_value(model).unwrap() else { panic!("a model is an object") };
    for (section, value) in sections {
        match value {
            Value::Object(parts) => {
                for (name, mut part) in parts {
                    match section.as_str() {
                        "networks" => {
                            part["id"] = Value::Null;
                            pods_endpoints(&mut part, moment);
                        }
                        "services" => {
                            // Windows counts them, and no change resets the count.
                            part.as_object_mut().unwrap().remove("failures");
                            if part["pid"].is_number() {
                                part["pid"] = "runs".into();
                            }
                        }
                        _ => {}
                    }
                    // An empty key and a missing one are the same to readers of values.
                    if part.as_object().is_none_or(|part| !part.is_empty()) {
                        seen.insert(format!("node.yaml/{section}/{}", name.to_lowercase()), masked(&ordered(part)));
                    }
                }
            }
            Value::Array(mut parts) => {
                for part in &mut parts {
                    if section == "processes" {
                        part["pid"] = Value::Null;
                    }
                }
                let mut parts: Vec<String> = parts.into_iter().map(ordered).collect();
                parts.sort();
                for (at, part) in parts.into_iter().enumerate() {
                    seen.insert(format!("node.yaml/{section}/{at}"), part);
                }
            }
            other => {
                seen.insert(format!("node.yaml/{section}"), other.to_string());
            }
        }
    }
}

/// kubelet creates and deletes the endpoints of pods, with other ids each time. For a moment, their number counts.
fn pods_endpoints(network: &mut Value, moment: bool) {
    let Some(endpoints) = network["endpoints"].as_object_mut() else { return };
    let before = endpoints.len();
    endpoints.retain(|name, _| name.strip_suffix("_Calico").is_none_or(|sandbox| sandbox.len() != 64));
    let pods = before - endpoints.len();
    if moment && pods > 0 {
        network["pods"] = pods.into();
    }
}

fn cluster(lab: &Lab, moment: bool, seen: &mut BTreeMap<String, String>) {
    let Ok(text) = fs::read(lab.path("node/cluster/cluster.json")) else { return };
    let saved: Value = serde_json::from_slice(&text).unwrap();
    for entry in saved["objects"].as_array().unwrap() {
        let key = |field: &str| entry[0][field].as_str().unwrap();
        let kind = key("kind");
        if OF_OTHERS.contains(&kind) && !moment {
            continue;
        }
        let mut object = entry[1].clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            metadata.remove(field);
        }
        // The disruption controller counts the pods with a delay.
        if kind == "poddisruptionbudgets.policy" {
            object["status"] = Value::Null;
        }
        // Each node startup of Calico writes its own release there.
        if let Some(release) = object.pointer_mut("/spec/calicoVersion") {
            *release = Value::Null;
        }
        // Calico's own condition about its network, written at its start.
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            conditions.retain(|condition| condition["type"] != "NetworkUnavailable");
        }
        // The node controller removes this one shortly after the node is schedulable again.
        if let Some(spec) = object["spec"].as_object_mut().filter(|spec| !spec.contains_key("unschedulable")) {
            let kept = |taint: &Value| taint["key"] != "node.kubernetes.io/unschedulable";
            if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
                taints.retain(kept);
            }
            if spec.get("taints").is_some_and(|taints| taints.as_array().is_some_and(Vec::is_empty)) {
                spec.remove("taints");
            }
        }
        if kind == "pods" {
            // A DaemonSet's pod has another name and address each time.
            let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
            object["metadata"]["name"] = Value::Null;
            for field in ["podIP", "podIPs"] {
                object["status"][field] = Value::Null;
            }
            let name = if prefix.starts_with("fluent-bit") { prefix } else { key("name").to_owned() };
            seen.insert(format!("{kind}/{}/{name}", key("namespace")), masked(&ordered(object)));
            continue;
        }
        seen.insert(format!("{kind}/{}/{}", key("namespace"), key("name")), masked(&ordered(object)));
    }
}

/// A document with its fields in the order of their names.
fn ordered(value: Value) -> String {
    fn sort(value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields: BTreeMap<String, Value> = fields.into_iter().map(|(k, v)| (k, sort(v))).collect();
                Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sort).collect()),
            other => other,
        }
    }
    sort(value).to_string()
}
