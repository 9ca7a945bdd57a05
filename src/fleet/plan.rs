//! What a rollout would do: which nodes in which wave, what they lose, and how long it takes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::objects::Rollout;
use super::vni::{VniNodes, patch, patch_in_etcd};
use super::waves::{FleetNode, Wave};
use crate::values::{Vni, count};

/// Seconds that one node is assumed to take, with its drain. `fleet status` measures it.
const NODE_TAKES: u64 = 300;

/// The pods of a node that a drain evicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePods {
    pub evicted: usize,
    /// Why some cannot be evicted, a sentence each.
    pub blocked: Vec<String>,
    /// As of [`PlannedNode`].
    pub services: Option<Vec<PlannedService>>,
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
    /// What was not read, and why: the plan says nothing that depends on it.
    pub unread: Vec<String>,
    /// The VNI that the config sets, and that not every node or not FelixConfiguration has: until all have it, pods on
    /// nodes with different VNIs do not reach each other.
    pub vni: Option<Vni>,
    /// For another VNI: the nodes by the VNI that they have, the new one first. Else empty.
    pub vni_nodes: Vec<VniNodes>,
    /// For another VNI: how long it takes until the last node has it, an estimate.
    pub apart_seconds: Option<u64>,
    /// For another VNI: what happens when, and the command to run in between, in the order in which pods are apart for
    /// the shortest time. Else empty.
    pub steps: Vec<PlannedStep>,
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
    /// What each of its nodes loses.
    pub loses: Vec<PlannedNode>,
    pub estimate_seconds: u64,
}

/// What a node loses if the change needs a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedNode {
    pub name: String,
    /// Pods that are evicted.
    pub evicted: usize,
    /// Pods that cannot be evicted, and why: a disruption budget, for example.
    pub blocked: Vec<String>,
    /// Services that lose pods, by name; null if they may not be read.
    pub services: Option<Vec<PlannedService>>,
}

/// A Service of which pods are evicted that serve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedService {
    /// `namespace/name`.
    pub name: String,
    /// No other pod serves it now: it has none until the evicted ones run elsewhere.
    pub alone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedStep {
    pub what: String,
    /// A command to run then; null for what `fleet apply` does.
    pub command: Option<String>,
    /// Seconds from the first step, an estimate.
    pub after_seconds: u64,
}

/// Plans a rollout over these nodes. `felix`: the VNI of FelixConfiguration. A node on which no run of a fleet has
/// recorded its VNI has the one from before the change, or, if that is not known, this one. That of a node that another
/// run has changed since is not known.
pub fn plan(
    rollout: &Rollout,
    waves: &[Wave],
    nodes: &[FleetNode],
    pods: &BTreeMap<String, NodePods>,
    felix: Vni,
) -> FleetPlan {
    let (mut planned, mut without, mut have) = (Vec::new(), Vec::new(), Vec::new());
    for wave in waves {
        let members: Vec<&FleetNode> = nodes.iter().filter(|node| wave.has(node)).collect();
        let loses = |node: &&FleetNode| {
            let NodePods { evicted, blocked, services } = pods.get(&node.name).cloned().unwrap_or_default();
            PlannedNode { name: node.name.clone(), evicted, blocked, services }
        };
        let loses: Vec<PlannedNode> = members.iter().map(loses).collect();
        let vni =
            |node: &FleetNode| (!node.is_changed_since()).then(|| node.vni().or(rollout.former_vni).unwrap_or(felix));
        let of_wave: Vec<_> = members.iter().map(|node| (vni(node), node.name.clone())).collect();
        without.push(of_wave.iter().filter(|(vni, _)| *vni != rollout.vni).count());
        have.extend(of_wave);
        let at_once = rollout.max_unavailable.of(members.len()).min(members.len());
        let blocked = loses.iter().flat_map(|node| node.blocked.iter().map(|why| format!("{}: {why}", node.name)));
        planned.push(PlannedWave {
            name: wave.name.clone(),
            at_once,
            evicted: loses.iter().map(|node| node.evicted).sum(),
            blocked: blocked.collect(),
            loses,
            estimate_seconds: members.len().div_ceil(at_once.max(1)) as u64 * NODE_TAKES,
            nodes: members.into_iter().map(|node| node.name.clone()).collect(),
        });
    }
    let vni = rollout.vni.filter(|vni| *vni != felix || without.iter().any(|nodes| *nodes > 0));
    let mut vni_nodes = if vni.is_some() { VniNodes::group(have) } else { Vec::new() };
    vni_nodes.sort_by_key(|one| (one.vni != vni, Reverse(one.nodes.len())));
    let steps = vni.map_or_else(Vec::new, |vni| steps(&planned, &without, vni, (vni != felix).then_some(rollout.etcd)));
    FleetPlan {
        namespace: rollout.namespace.clone(),
        image: rollout.image.clone(),
        revision: rollout.revision(),
        left_out: nodes.iter().filter(|node| node.is_left_out()).map(|node| node.name.clone()).collect(),
        replaced: Vec::new(),
        estimate_seconds: planned.iter().map(|wave| wave.estimate_seconds).sum(),
        unread: Vec::new(),
        apart_seconds: steps.last().map(|last| last.after_seconds),
        waves: planned,
        vni,
        vni_nodes,
        steps,
    }
}

/// The steps of a change of the VNI. Linux nodes follow when half of the Windows nodes are done: until then fewer pairs
/// of nodes are apart if they have the old one, and afterwards if they have the new one. `without`: how many nodes of
/// each wave do not have it. `patches`: whether with etcd; none if FelixConfiguration has it already.
fn steps(waves: &[PlannedWave], without: &[usize], vni: Vni, mut patches: Option<bool>) -> Vec<PlannedStep> {
    let all: usize = waves.iter().map(|wave| wave.nodes.len()).sum();
    let half = all.div_ceil(2);
    let (mut done, mut after_seconds) = (all - without.iter().sum::<usize>(), 0);
    let mut steps = Vec::new();
    let linux = |etcd: bool, have: usize, after_seconds: u64| {
        let what = format!(
            "VNI {vni} is on {have} of {}: change FelixConfiguration, which Linux nodes follow within seconds",
            count(all, "node")
        );
        PlannedStep { what, command: Some(if etcd { patch_in_etcd(vni) } else { patch(vni) }), after_seconds }
    };
    if done > 0 && done >= half {
        steps.extend(patches.take().map(|etcd| linux(etcd, done, 0)));
    }
    for (wave, left) in waves.iter().zip(without.iter().copied()).filter(|(_, left)| *left > 0) {
        let nodes = wave.nodes.len();
        let what = match left == nodes {
            true => format!("wave {} begins: {}, {} at once", wave.name, count(nodes, "node"), wave.at_once),
            false => format!(
                "wave {} continues: {left} of {} left, {} at once",
                wave.name,
                count(nodes, "node"),
                wave.at_once
            ),
        };
        steps.push(PlannedStep { what, command: None, after_seconds });
        if done + left >= half {
            let rounds = half.saturating_sub(done).div_ceil(wave.at_once);
            let have = done + (rounds * wave.at_once).min(left);
            let after_seconds = after_seconds + rounds as u64 * NODE_TAKES;
            steps.extend(patches.take().map(|etcd| linux(etcd, have, after_seconds)));
        }
        done += left;
        after_seconds += left.div_ceil(wave.at_once) as u64 * NODE_TAKES;
    }
    if all > 0 {
        let what = format!("the last node has VNI {vni}, and all pods reach each other");
        steps.push(PlannedStep { what, command: None, after_seconds });
    }
    steps
}

impl FleetPlan {
    /// How many nodes are changed.
    pub fn nodes(&self) -> usize {
        self.waves.iter().map(|wave| wave.nodes.len()).sum()
    }

    /// For another VNI, how many nodes have it.
    pub fn with_vni(&self) -> usize {
        VniNodes::counts(&self.vni_nodes, self.vni).0
    }

    /// For another VNI, the one that most of the other nodes have, or else FelixConfiguration (`felix`).
    pub fn other_vni(&self, felix: Vni) -> Option<Vni> {
        let known = self.vni_nodes.iter().filter_map(|one| one.vni).chain([felix]);
        self.vni.and_then(|new| known.into_iter().find(|vni| *vni != new))
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
                FleetNode { name: format!("node-{number}"), labels: label.into(), annotations: Default::default() }
            })
            .collect();
        let rollout = Rollout {
            namespace: "fleet".into(),
            calico_namespace: "calico-system".into(),
            image: "registry.example.com/calicoctl-win:1".into(),
            api_server: "https://192.0.2.10:6443".into(),
            config: String::new(),
            max_unavailable: MaxUnavailable::Percent(10),
            vni: Some(Vni::try_from(5000).unwrap()),
            former_vni: None,
            etcd: true,
        };
        let services = Some(vec![PlannedService { name: "demo/web".into(), alone: true }]);
        let blocked = vec!["demo/web is under a budget".to_owned()];
        let pods = BTreeMap::from([
            ("node-1".to_owned(), NodePods { evicted: 3, ..NodePods::default() }),
            ("node-9".to_owned(), NodePods { evicted: 2, blocked: blocked.clone(), services: services.clone() }),
        ]);
        let waves = waves(&Wishes { canary: Some(("stage".into(), "canary".into())), zones: None }, &nodes);
        let plan = plan(&rollout, &waves, &nodes, &pods, Vni::DEFAULT);
        let [canary, others] = &plan.waves[..] else { panic!("{plan:#?}") };
        assert_eq!((canary.name.as_str(), canary.nodes.as_slice()), ("canary", &["node-1".to_owned()][..]));
        assert_eq!((canary.at_once, canary.evicted, canary.estimate_seconds), (1, 3, 300));
        assert_eq!((others.name.as_str(), others.nodes.len(), others.nodes[0].as_str()), ("others", 23, "node-3"));
        assert_eq!((others.at_once, others.evicted, others.estimate_seconds), (3, 2, 2400));
        assert_eq!(
            (&canary.blocked, &others.blocked),
            (&vec![], &vec!["node-9: demo/web is under a budget".to_owned()])
        );
        let lost = PlannedNode { name: "node-9".into(), evicted: 2, blocked, services };
        assert_eq!((others.loses.len(), &others.loses[6]), (23, &lost));
        assert_eq!(
            (plan.with_vni(), plan.other_vni(Vni::DEFAULT), plan.apart_seconds),
            (0, Some(Vni::DEFAULT), Some(2700))
        );
        assert_eq!((plan.nodes(), plan.estimate_seconds, plan.left_out), (24, 2700, vec!["node-2".to_owned()]));
        let commands: Vec<String> = plan.steps.iter().filter_map(|step| step.command.clone()).collect();
        assert_eq!(commands, [r#"calicoctl patch felixconfiguration default -p '{"spec":{"vxlanVNI":5000}}'"#]);
        assert_eq!((plan.image, plan.revision, plan.vni), (rollout.image.clone(), rollout.revision(), rollout.vni));
    }

    #[test]
    fn linux_nodes_follow_when_half_of_the_windows_nodes_have_the_vni() {
        let wave = |name: &str, nodes: usize, at_once: usize| PlannedWave {
            name: name.into(),
            nodes: vec![String::new(); nodes],
            at_once,
            evicted: 0,
            blocked: Vec::new(),
            loses: Vec::new(),
            estimate_seconds: nodes.div_ceil(at_once.max(1)) as u64 * NODE_TAKES,
        };
        let left = |waves: &[PlannedWave], without: &[usize], patches: bool| -> Vec<String> {
            let steps = steps(waves, without, Vni::try_from(5000).unwrap(), patches.then_some(false));
            let line = |step: &PlannedStep| {
                let what = step.what.split(':').next().unwrap();
                format!("{} min: {what}{}", step.after_seconds / 60, if step.command.is_some() { " *" } else { "" })
            };
            steps.iter().map(line).collect()
        };
        let shown = |waves: &[PlannedWave]| {
            let all: Vec<usize> = waves.iter().map(|wave| wave.nodes.len()).collect();
            left(waves, &all, true)
        };
        let last = |minutes: u64| format!("{minutes} min: the last node has VNI 5000, and all pods reach each other");
        // Of 24 nodes 12 are half: the canary and four rounds of three.
        let others = shown(&[wave("canary", 1, 1), wave("others", 23, 3)]);
        let begin =
            ["0 min: wave canary begins", "5 min: wave others begins", "25 min: VNI 5000 is on 13 of 24 nodes *"];
        assert_eq!(others, [&begin.map(str::to_owned)[..], &[last(45)]].concat());
        // At the end of a wave, before the next one begins.
        let zones = shown(&[wave("zone-a", 2, 1), wave("empty", 0, 0), wave("zone-b", 2, 2)]);
        let begin =
            ["0 min: wave zone-a begins", "10 min: VNI 5000 is on 2 of 4 nodes *", "10 min: wave zone-b begins"];
        assert_eq!(zones, [&begin.map(str::to_owned)[..], &[last(15)]].concat());
        assert_eq!(shown(&[wave("all", 0, 0)]), [""; 0]);
        let one = ["0 min: wave all begins".to_owned(), "5 min: VNI 5000 is on 1 of 1 node *".to_owned(), last(5)];
        assert_eq!(shown(&[wave("all", 1, 1)]), one);

        // In the middle: before half of them have it, after it, and after Linux nodes have followed.
        let waves = [wave("canary", 1, 1), wave("others", 23, 3)];
        let continues = || "0 min: wave others continues".to_owned();
        let before = [continues(), "10 min: VNI 5000 is on 12 of 24 nodes *".to_owned(), last(30)];
        assert_eq!(left(&waves, &[0, 18], true), before);
        let after = ["0 min: VNI 5000 is on 14 of 24 nodes *".to_owned(), continues(), last(20)];
        assert_eq!(left(&waves, &[0, 10], true), after);
        assert_eq!(left(&waves, &[0, 10], false), [continues(), last(20)]);
        // Only Linux nodes are left.
        assert_eq!(left(&waves, &[0, 0], true), ["0 min: VNI 5000 is on 24 of 24 nodes *".to_owned(), last(0)]);
    }
}
