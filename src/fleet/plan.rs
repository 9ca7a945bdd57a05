//! What a rollout would do: which nodes in which wave, what they lose, and how long it takes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::objects::Rollout;
use super::waves::{FleetNode, Wave};
use crate::values::Vni;

/// Seconds that one node is assumed to take, with its drain. `fleet status` measures it.
const NODE_TAKES: u64 = 300;

/// The pods of a node that a drain evicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePods {
    pub evicted: usize,
    /// Why some cannot be evicted, a sentence each.
    pub blocked: Vec<String>,
}

/// The document of `fleet plan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FleetPlan {
    pub namespace: String,
    pub image: String,
    /// What the nodes get, by its digest.
    pub revision: String,
    /// In their order.
    pub waves: Vec<PlannedWave>,
    /// Windows nodes that the label `calicoctl-win/fleet=off` leaves out.
    pub left_out: Vec<String>,
    /// DaemonSets of an earlier division that are deleted first: their nodes are in other waves now.
    pub replaced: Vec<String>,
    /// An estimate, with 5 minutes for each node.
    pub estimate_seconds: u64,
    /// The VNI that the config sets and the cluster does not have: until the last node has it, pods on nodes with the
    /// new one and with the old one do not reach each other.
    pub vni: Option<Vni>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedWave {
    pub name: String,
    pub nodes: Vec<String>,
    /// Nodes that are out at the same time, at most.
    pub at_once: usize,
    /// Pods that are evicted if the change needs a drain.
    pub evicted: usize,
    /// What a drain would fail on: node and reason.
    pub blocked: Vec<String>,
    pub estimate_seconds: u64,
}

/// Plans a rollout over these nodes. `vni`: the config's, if it is not the cluster's.
pub fn plan(
    rollout: &Rollout,
    waves: &[Wave],
    nodes: &[FleetNode],
    pods: &BTreeMap<String, NodePods>,
    vni: Option<Vni>,
) -> FleetPlan {
    let mut planned = Vec::new();
    for wave in waves {
        let members: Vec<&FleetNode> = nodes.iter().filter(|node| wave.has(node)).collect();
        let of_wave = || members.iter().filter_map(|node| Some((&node.name, pods.get(&node.name)?)));
        let at_once = rollout.max_unavailable.of(members.len()).min(members.len());
        let blocked = of_wave().flat_map(|(name, pods)| pods.blocked.iter().map(move |why| format!("{name}: {why}")));
        planned.push(PlannedWave {
            name: wave.name.clone(),
            at_once,
            evicted: of_wave().map(|(_, pods)| pods.evicted).sum(),
            blocked: blocked.collect(),
            estimate_seconds: members.len().div_ceil(at_once.max(1)) as u64 * NODE_TAKES,
            nodes: members.into_iter().map(|node| node.name.clone()).collect(),
        });
    }
    FleetPlan {
        namespace: rollout.namespace.clone(),
        image: rollout.image.clone(),
        revision: rollout.revision(),
        left_out: nodes.iter().filter(|node| node.is_left_out()).map(|node| node.name.clone()).collect(),
        replaced: Vec::new(),
        estimate_seconds: planned.iter().map(|wave| wave.estimate_seconds).sum(),
        waves: planned,
        vni,
    }
}

impl FleetPlan {
    /// How many nodes are changed.
    pub fn nodes(&self) -> usize {
        self.waves.iter().map(|wave| wave.nodes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::objects::MaxUnavailable;
    use super::super::waves::{Wishes, waves};
    use super::*;

    #[test]
    fn a_plan_has_the_waves_what_they_lose_and_how_long_they_take() {
        let nodes: Vec<FleetNode> = (1..=25)
            .map(|number| {
                let label = match number {
                    1 => [("stage".to_owned(), "canary".to_owned())],
                    2 => [(super::super::LEFT_OUT.to_owned(), "off".to_owned())],
                    _ => [("kubernetes.io/os".to_owned(), "windows".to_owned())],
                };
                FleetNode { name: format!("node-{number}"), labels: label.into() }
            })
            .collect();
        let rollout = Rollout {
            namespace: "fleet".into(),
            calico_namespace: "calico-system".into(),
            image: "registry.example.com/calicoctl-win:1".into(),
            api_server: "https://192.0.2.10:6443".into(),
            config: String::new(),
            max_unavailable: MaxUnavailable::Percent(10),
            vni: None,
            former_vni: None,
        };
        let pods = BTreeMap::from([
            ("node-1".to_owned(), NodePods { evicted: 3, blocked: Vec::new() }),
            ("node-9".to_owned(), NodePods { evicted: 2, blocked: vec!["demo/web is under a budget".into()] }),
        ]);
        let waves = waves(&Wishes { canary: Some(("stage".into(), "canary".into())), zones: false }, &nodes);
        let vni = Some(Vni::try_from(5000).unwrap());
        let plan = plan(&rollout, &waves, &nodes, &pods, vni);
        let [canary, others] = &plan.waves[..] else { panic!("{plan:#?}") };
        assert_eq!((canary.name.as_str(), canary.nodes.as_slice()), ("canary", &["node-1".to_owned()][..]));
        assert_eq!((canary.at_once, canary.evicted, canary.estimate_seconds), (1, 3, 300));
        assert_eq!((others.name.as_str(), others.nodes.len(), others.nodes[0].as_str()), ("others", 23, "node-3"));
        assert_eq!((others.at_once, others.evicted, others.estimate_seconds), (3, 2, 2400));
        assert_eq!(
            (&canary.blocked, &others.blocked),
            (&vec![], &vec!["node-9: demo/web is under a budget".to_owned()])
        );
        assert_eq!((plan.nodes(), plan.estimate_seconds, plan.left_out), (24, 2700, vec!["node-2".to_owned()]));
        assert_eq!((plan.image, plan.revision, plan.vni), (rollout.image.clone(), rollout.revision(), vni));
    }
}
