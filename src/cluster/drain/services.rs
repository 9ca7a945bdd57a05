//! The Services of a cluster, and how many pods serve each: which ones lose pods when a node is drained.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::budgets::Metadata;
use super::pods::Pod;
use crate::fleet::{NodePods, PlannedService};

/// The fields of a Service that are used.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Service {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "type")]
    kind: String,
    selector: Option<BTreeMap<String, String>>,
    publish_not_ready_addresses: bool,
}

/// A Service, and the pods that serve it.
struct Served {
    name: String,
    selector: BTreeMap<String, String>,
    also_unready: bool,
    pods: usize,
    /// Those that are evicted, by node.
    evicted: BTreeMap<String, usize>,
}

/// The Services that select pods.
pub(super) struct Services {
    all: Vec<Served>,
    /// Where those are that select a label: comparing thousands of them with each of thousands of pods takes seconds.
    by_label: BTreeMap<String, Vec<usize>>,
}

fn label((namespace, key, value): (&str, &str, &str)) -> String {
    format!("{namespace}/{key}={value}")
}

impl Services {
    pub fn new(services: Vec<Service>) -> Self {
        let (mut all, mut by_label) = (Vec::new(), BTreeMap::<String, Vec<usize>>::new());
        for Service { metadata, spec } in services {
            // Without a selector, others name its endpoints; an ExternalName has none (k8s.io/endpointslice,
            // reconciler.go).
            let selector = spec.selector.filter(|_| spec.kind != "ExternalName").unwrap_or_default();
            let Some((key, value)) = selector.first_key_value() else { continue };
            by_label.entry(label((&metadata.namespace, key, value))).or_default().push(all.len());
            all.push(Served {
                name: format!("{}/{}", metadata.namespace, metadata.name),
                selector,
                also_unready: spec.publish_not_ready_addresses,
                pods: 0,
                evicted: BTreeMap::new(),
            });
        }
        Self { all, by_label }
    }

    pub fn forget_pods(&mut self) {
        for service in &mut self.all {
            service.pods = 0;
            service.evicted.clear();
        }
    }

    /// Counts a pod for the Services that it serves.
    pub fn add(&mut self, pod: &Pod, is_evicted: bool) {
        // One that has not begun, or is ending, serves none.
        if !pod.counts_for_budgets() {
            return;
        }
        let labels = &pod.metadata.labels;
        for (key, value) in labels {
            let at = self.by_label.get(&label((&pod.metadata.namespace, key, value)));
            for index in at.into_iter().flatten() {
                let service = &mut self.all[*index];
                let selects = service.selector.iter().all(|(key, value)| labels.get(key) == Some(value));
                if !selects || !(service.also_unready || pod.is_ready()) {
                    continue;
                }
                service.pods += 1;
                if is_evicted {
                    *service.evicted.entry(pod.node().to_owned()).or_default() += 1;
                }
            }
        }
    }

    /// Says for each of the nodes which Services lose pods, by name.
    pub fn tell(mut self, nodes: &mut BTreeMap<String, NodePods>) {
        self.all.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.values_mut().for_each(|node| node.services = Some(Vec::new()));
        for service in self.all {
            for (node, evicted) in service.evicted {
                let lost = PlannedService { name: service.name.clone(), alone: evicted == service.pods };
                if let Some(services) = nodes.get_mut(&node).and_then(|node| node.services.as_mut()) {
                    services.push(lost);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, labels: &Value, [phase, ready]: [&str; 2]) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "one", "namespace": "demo", "uid": "1", "labels": labels },
            "spec": { "nodeName": node },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    }

    /// What the nodes `a` and `b` lose; `!` if no pod is left.
    fn lost(services: &[(&str, Value)], pods: &[(Pod, bool)]) -> [String; 2] {
        let service = |(name, spec): &(&str, Value)| {
            let (namespace, name) = name.split_once('/').unwrap();
            serde_json::from_value(json!({ "metadata": { "name": name, "namespace": namespace }, "spec": spec }))
                .unwrap()
        };
        let mut services = Services::new(services.iter().map(service).collect());
        // As when the list of pods begins again.
        for _ in 0..2 {
            services.forget_pods();
            pods.iter().for_each(|(pod, is_evicted)| services.add(pod, *is_evicted));
        }
        let mut nodes = ["a", "b"].map(|name| (name.to_owned(), NodePods::default())).into();
        services.tell(&mut nodes);
        ["a", "b"].map(|node| {
            let lost = nodes[node].services.as_ref().unwrap().iter();
            lost.map(|one| format!("{}{}", one.name, if one.alone { "!" } else { "" })).collect::<Vec<_>>().join(" ")
        })
    }

    #[test]
    fn a_service_loses_the_pods_that_serve_it_and_are_evicted() {
        let web = json!({ "app": "web", "tier": "front" });
        let of = |selector: Value| json!({ "selector": selector });
        let services = [
            ("demo/web", of(json!({ "app": "web" }))),
            ("demo/front", of(json!({ "tier": "front", "app": "web" }))),
            ("demo/back", of(json!({ "tier": "back", "app": "web" }))),
            ("other/web", of(json!({ "app": "web" }))),
            ("demo/by-hand", of(Value::Null)),
            ("demo/elsewhere", json!({ "type": "ExternalName", "selector": { "app": "web" } })),
        ];
        let good = ["Running", "True"];
        let here = || (pod("a", &web, good), true);
        assert_eq!(lost(&services, &[here(), here()]), ["demo/front! demo/web!", ""], "sorted");
        let there = |labels: &Value, status| (pod("linux", labels, status), false);
        let other = json!({ "app": "web" });
        assert_eq!(lost(&services, &[here(), there(&other, good)]), ["demo/front! demo/web", ""]);
        // What does not serve it is no help.
        for status in [["Running", "False"], ["Pending", "False"], ["Succeeded", "True"]] {
            assert_eq!(lost(&services, &[here(), there(&web, status)])[0], "demo/front! demo/web!", "{status:?}");
        }
        // On two nodes, neither is the only one.
        assert_eq!(lost(&services[..1], &[here(), (pod("b", &web, good), true)]), ["demo/web", "demo/web"]);
        // One that remains on the node serves it.
        assert_eq!(lost(&services[..1], &[here(), (pod("a", &web, good), false)]), ["demo/web", ""]);
        assert_eq!(lost(&services[..1], &[(pod("a", &web, good), false)]), ["", ""]);
    }

    #[test]
    fn a_pod_that_is_not_ready_serves_a_service_that_publishes_it() {
        let web = json!({ "app": "web" });
        let unready = [(pod("a", &web, ["Running", "False"]), true)];
        let service = |publishes| [("demo/web", json!({ "selector": web, "publishNotReadyAddresses": publishes }))];
        assert_eq!(lost(&service(true), &unready), ["demo/web!", ""]);
        assert_eq!(lost(&service(false), &unready), ["", ""]);
    }
}
