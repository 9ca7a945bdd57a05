//! The pods that selectors select. Pods with the same labels are one entry, and of their labels only those remain that a
//! selector names: a cluster may have a hundred thousand pods, each with labels of its own.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::selector::{Labels, Selector, Word, Words};

/// The label of its namespace that Calico gives every pod.
const NAMESPACE: &str = "projectcalico.org/namespace";
/// The label of its name that Calico gives every namespace.
const NAME: &str = "projectcalico.org/name";

/// A pod of the API's list.
#[derive(Debug, Deserialize)]
pub struct Pod {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(default)]
    namespace: String,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    host_network: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

/// What a selector is applied to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Query {
    /// The labels of namespaces; none: any namespace.
    pub namespaces: Option<Selector>,
    pub pods: Selector,
}

/// The number of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub pods: u64,
    /// Those on Windows nodes.
    pub windows: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.pods += other.pods;
        self.windows += other.windows;
    }
}

/// The pods of a cluster, while they are read.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// The keys that some selector names.
    wanted: HashSet<Word>,
    namespace: Word,
    windows: HashSet<String>,
    namespaces: HashMap<Word, Box<Labels>>,
    groups: HashMap<Box<Labels>, Count>,
    pub all: Count,
}

impl Endpoints {
    pub fn new<'a>(queries: impl Iterator<Item = &'a Query>, words: &mut Words) -> Self {
        let mut wanted = HashSet::new();
        for query in queries {
            query.namespaces.iter().chain([&query.pods]).for_each(|part| {
                part.keys(&mut |key| {
                    wanted.insert(key);
                });
            });
        }
        let namespace = words.add(NAMESPACE);
        let (namespaces, groups) = (HashMap::new(), HashMap::new());
        Self { wanted, namespace, windows: HashSet::new(), namespaces, groups, all: Count::default() }
    }

    /// The selector of one namespace.
    pub fn within(namespace: &str, words: &mut Words) -> Selector {
        Selector::In(words.add(NAMESPACE), vec![words.add(namespace)])
    }

    pub fn forget_pods(&mut self) {
        self.groups.clear();
        self.all = Count::default();
    }

    pub fn windows_node(&mut self, name: String) {
        self.windows.insert(name);
    }

    pub fn namespace(&mut self, name: &str, labels: &BTreeMap<String, String>, words: &mut Words) {
        let mut kept = self.kept(labels, words);
        kept.extend(words.find(NAME).filter(|key| self.wanted.contains(key)).map(|key| (key, words.add(name))));
        self.namespaces.insert(words.add(name), kept.into());
    }

    /// Adds a pod, if it is an endpoint: one on its host's network is none, and one that has ended has no address.
    pub fn pod(&mut self, pod: &Pod, words: &mut Words) {
        let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        if ended || pod.spec.host_network == Some(true) {
            return;
        }
        let on_windows = pod.spec.node_name.as_ref().is_some_and(|node| self.windows.contains(node));
        let one = Count { pods: 1, windows: u64::from(on_windows) };
        let mut labels = vec![(self.namespace, words.add(&pod.metadata.namespace))];
        if let Some(all) = &pod.metadata.labels {
            labels.extend(self.kept(all, words));
        }
        self.all.add(one);
        match self.groups.get_mut(labels.as_slice()) {
            Some(count) => count.add(one),
            None => {
                self.groups.insert(labels.into(), one);
            }
        }
    }

    fn kept(&self, labels: &BTreeMap<String, String>, words: &mut Words) -> Vec<(Word, Word)> {
        let keys = labels.iter().filter_map(|(key, value)| {
            let key = words.find(key).filter(|key| self.wanted.contains(key))?;
            Some((key, words.add(value)))
        });
        keys.collect()
    }

    /// All of them, to be counted.
    pub fn indexed(self) -> Index {
        let mut by_label: HashMap<(Word, Word), Vec<u32>> = HashMap::new();
        let mut groups = Vec::with_capacity(self.groups.len());
        for (labels, count) in self.groups {
            let at = u32::try_from(groups.len()).expect("there are fewer pods than four billion");
            labels.iter().for_each(|label| by_label.entry(*label).or_default().push(at));
            groups.push((labels, count));
        }
        Index { namespace: self.namespace, namespaces: self.namespaces, groups, by_label, selected: HashMap::new() }
    }
}

/// Groups of pods with the same labels, by label.
#[derive(Debug)]
pub(super) struct Index {
    namespace: Word,
    namespaces: HashMap<Word, Box<Labels>>,
    /// The first label of each is its namespace.
    groups: Vec<(Box<Labels>, Count)>,
    by_label: HashMap<(Word, Word), Vec<u32>>,
    /// The namespaces that a selector selects.
    selected: HashMap<Selector, HashSet<Word>>,
}

impl Index {
    pub fn count(&mut self, query: &Query, words: &Words) -> Count {
        let namespaces = query.namespaces.as_ref().filter(|selector| **selector != Selector::All);
        if let Some(selector) = namespaces.filter(|selector| !self.selected.contains_key(*selector)) {
            let selected = self.namespaces.iter().filter(|(_, labels)| selector.matches(labels, words));
            let selected = selected.map(|(name, _)| *name).collect();
            self.selected.insert(selector.clone(), selected);
        }
        let selected = namespaces.and_then(|selector| self.selected.get(selector));
        // The shortest list that has every match.
        let mut lists: Vec<Vec<&[u32]>> = Vec::new();
        let list = |key, value| self.by_label.get(&(key, value)).map_or(&[][..], Vec::as_slice);
        query.pods.required(&mut |key, values| lists.push(values.iter().map(|value| list(key, *value)).collect()));
        if let Some(selected) = selected {
            lists.push(selected.iter().map(|name| list(self.namespace, *name)).collect());
        }
        let mut count = Count::default();
        let mut check = |(labels, pods): &(Box<Labels>, Count)| {
            let is_there = selected.is_none_or(|selected| labels.first().is_some_and(|(_, ns)| selected.contains(ns)));
            if is_there && query.pods.matches(labels, words) {
                count.add(*pods);
            }
        };
        match lists.into_iter().min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>()) {
            Some(lists) => lists.into_iter().flatten().for_each(|at| check(&self.groups[*at as usize])),
            None => self.groups.iter().for_each(check),
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Counts the pods that a selector selects, in namespaces that another selects.
    fn counted(namespaces: &str, pods: &str) -> (u64, u64) {
        let mut words = Words::default();
        let namespaces = (!namespaces.is_empty()).then(|| Selector::parse(namespaces, &mut words).unwrap());
        let query = Query { namespaces, pods: Selector::parse(pods, &mut words).unwrap() };
        let mut endpoints = Endpoints::new([&query].into_iter(), &mut words);
        endpoints.windows_node("win".into());
        for (name, team) in [("shop", "a"), ("bank", "b")] {
            endpoints.namespace(name, &[("team".to_owned(), team.to_owned())].into(), &mut words);
        }
        for n in 0..30 {
            let namespace = if n % 3 == 0 { "bank" } else { "shop" };
            let node = if n % 2 == 0 { "win" } else { "linux" };
            let labels = json!({"app": if n % 5 == 0 { "db" } else { "web" }, "pod": format!("p{n}")});
            let pod = json!({"metadata": {"namespace": namespace, "labels": labels}, "spec": {"nodeName": node}});
            endpoints.pod(&serde_json::from_value(pod).unwrap(), &mut words);
        }
        for spec in [json!({"spec": {"hostNetwork": true}}), json!({"status": {"phase": "Succeeded"}})] {
            let mut pod = spec;
            pod["metadata"] = json!({"namespace": "shop", "labels": {"app": "web"}});
            endpoints.pod(&serde_json::from_value(pod).unwrap(), &mut words);
        }
        let count = endpoints.indexed().count(&query, &words);
        (count.pods, count.windows)
    }

    #[test]
    fn pods_are_counted_by_labels_and_namespaces() {
        for (namespaces, pods, wanted) in [
            ("", "all()", (30, 15)),
            ("", "app == 'db'", (6, 3)),
            ("", "app in {'db', 'web'} && pod == 'p4'", (1, 1)),
            ("", "app != 'db'", (24, 12)),
            ("team == 'b'", "all()", (10, 5)),
            ("team == 'b'", "app == 'db'", (2, 1)),
            ("has(gone)", "all()", (0, 0)),
            ("projectcalico.org/name == 'bank'", "", (10, 5)),
            ("all()", "projectcalico.org/namespace == 'shop'", (20, 10)),
            ("global()", "all()", (0, 0)),
            ("", "pod ends with '9'", (3, 0)),
        ] {
            assert_eq!(counted(namespaces, pods), wanted, "{namespaces}, {pods}");
        }
    }
}
