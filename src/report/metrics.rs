//! The state of a node, or of a rollout, as metrics in Prometheus' text format, for a textfile collector.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use jiff::Timestamp;

use super::document::{NodeStatus, Overall};
use crate::fleet::{FleetStatus, WaveState, WaveStatus};

/// The last run that ended.
#[derive(Debug, Clone)]
pub struct LastRun {
    pub command: String,
    /// The name of its exit code.
    pub result: String,
    pub success: bool,
    pub started: Option<Timestamp>,
    pub duration_ms: Option<u64>,
}

/// Every overall state, with its word.
const STATES: [(Overall, &str); 6] = [
    (Overall::Healthy, "healthy"),
    (Overall::Degraded, "degraded"),
    (Overall::Failed, "failed"),
    (Overall::Changing, "changing"),
    (Overall::NotInstalled, "not_installed"),
    (Overall::Prepared, "prepared"),
];

/// The metrics of a node. Nothing in them is secret: names, paths, versions, numbers.
pub fn text(status: &NodeStatus, last: Option<&LastRun>, now: Timestamp) -> String {
    let mut to = Text::default();
    to.build();
    let node = status.node.as_ref().map_or("", |node| &node.name);
    let (version, backend) = (or_empty(&status.calico_version), or_empty(&status.backend));
    let info = labels(&[("node", node), ("calico_version", version), ("backend", backend)]);
    to.gauge("node_info", "The Node, and the Calico that is installed here.", [(info, 1)]);
    let states = STATES.iter().map(|(state, word)| (labels(&[("state", *word)]), u8::from(*state == status.overall)));
    to.gauge("state", "Whether the node is in this state: one of them is 1.", states);

    let mut ids: Vec<&str> = status.problems.iter().map(|problem| problem.id).collect();
    ids.sort_unstable();
    let count = |id: &str| ids.iter().filter(|other| **other == id).count();
    let mut each = ids.clone();
    each.dedup();
    let problems: Vec<_> = each.into_iter().map(|id| (labels(&[("id", id)]), count(id))).collect();
    to.gauge("problems", "Why the node is not healthy, by the name that `explain` has a page for.", problems);
    to.gauge("drift_items", "Items that differ from the current generation.", [alone(status.drift.len())]);
    to.gauge("generation", "The current generation.", status.generation.map(alone));

    let services = &status.services;
    let of = |name: &str| labels(&[("service", name)]);
    let running = services.iter().map(|one| (of(&one.name), u8::from(one.state == "Running")));
    to.gauge("service_running", "Whether a service runs.", running);
    let ready = |one: &super::document::ServiceStatus| {
        one.state == "Running" && one.not_ready.is_none() && one.waiting_for.is_none() && !one.crash_loop
    };
    let ready = services.iter().map(|one| (of(&one.name), u8::from(ready(one))));
    to.gauge("service_ready", "Whether a service runs and does its work.", ready);
    let restarts = services.iter().filter_map(|one| Some((of(&one.name), one.restarts?)));
    to.counter("service_restarts_total", "How often the component of a service was restarted.", restarts);

    let expiry = status
        .credentials
        .iter()
        .filter_map(|one| Some((labels(&[("kind", &one.kind), ("path", &one.path)]), one.expires?.as_second())));
    let help = "When credentials expire; those that do not are left out.";
    to.gauge("credentials_expiry_timestamp_seconds", help, expiry);
    let says = |value: Option<bool>| value.map(u8::from).map(alone);
    let of_node =
        |part: fn(&super::document::KubernetesNode) -> Option<bool>| says(status.node.as_ref().and_then(part));
    to.gauge("kubernetes_node_ready", "Whether the Node is Ready, if the cluster answers.", of_node(|node| node.ready));
    let help = "Whether the Node takes new pods, if the cluster answers.";
    to.gauge("kubernetes_node_schedulable", help, of_node(|node| node.schedulable));

    let run = status.run.as_ref();
    let (runs, interrupted) = (run.is_some_and(|run| !run.interrupted), run.is_some_and(|run| run.interrupted));
    to.gauge("run_in_progress", "Whether a run changes this node now.", [alone(u8::from(runs))]);
    let help = "Whether a run ended before it was complete: resume finishes it.";
    to.gauge("run_interrupted", help, [alone(u8::from(interrupted))]);
    let info = last.map(|run| (labels(&[("command", &run.command), ("result", &run.result)]), 1));
    to.gauge("last_run_info", "The last run that changed this node, or was to.", info);
    to.gauge("last_run_success", "Whether it succeeded.", last.map(|run| alone(u8::from(run.success))));
    let started = last.and_then(|run| run.started).map(|at| alone(at.as_second()));
    to.gauge("last_run_start_timestamp_seconds", "When it began.", started);
    let took = last.and_then(|run| run.duration_ms).map(|ms| alone(format!("{}.{:03}", ms / 1000, ms % 1000)));
    to.gauge("last_run_duration_seconds", "How long it took.", took);
    to.collected(now);
    to.0
}

/// Every state of a wave, with its word.
const WAVE_STATES: [(WaveState, &str); 5] = [
    (WaveState::Waiting, "waiting"),
    (WaveState::Rolling, "rolling"),
    (WaveState::Paused, "paused"),
    (WaveState::Stopped, "stopped"),
    (WaveState::Done, "done"),
];

/// The metrics of a rollout.
pub fn fleet(status: &FleetStatus, now: Timestamp) -> String {
    let mut to = Text::default();
    to.build();
    let mut gauge = |name: &str, help: &str, samples: Vec<(String, u64)>| to.gauge(name, help, samples);
    let info = labels(&[("namespace", &status.namespace), ("revision", &status.revision)]);
    gauge("fleet_info", "The rollout, and what its first wave installs.", vec![(info, 1)]);
    let (mut states, mut nodes, mut out, mut limits, mut left) = (vec![], vec![], vec![], vec![], vec![]);
    for wave in &status.waves {
        let of_state = |state: &str| labels(&[("wave", &wave.name), ("state", state)]);
        for (state, word) in WAVE_STATES {
            states.push((of_state(word), (state == wave.state).into()));
        }
        let WaveStatus { done, in_progress, failed, .. } = *wave;
        let rest = wave.nodes.saturating_sub(done + in_progress + failed);
        for (state, number) in [("done", done), ("in_progress", in_progress), ("failed", failed), ("not_begun", rest)] {
            nodes.push((of_state(state), number as u64));
        }
        let of_wave = labels(&[("wave", &wave.name)]);
        out.push((of_wave.clone(), wave.out as u64));
        limits.push((of_wave.clone(), wave.at_once as u64));
        left.extend(wave.eta_seconds.map(|seconds| (of_wave, seconds)));
    }
    gauge("fleet_wave_state", "Whether a wave is in this state: one of them is 1.", states);
    gauge("fleet_nodes", "Windows nodes of a wave by how far their change is.", nodes);
    gauge("fleet_nodes_out", "Nodes of a wave that are out now.", out);
    gauge("fleet_nodes_out_limit", "Nodes of a wave that may be out at once.", limits);
    gauge("fleet_wave_left_seconds", "About how long a wave still takes.", left);
    let mut causes: BTreeMap<String, u64> = BTreeMap::new();
    for failure in &status.failures {
        *causes.entry(labels(&[("id", &failure.id)])).or_default() += failure.nodes.len() as u64;
    }
    let causes = causes.into_iter().collect();
    gauge("fleet_failures", "Nodes whose change failed, by the name of the cause.", causes);
    gauge("fleet_uncovered_nodes", "Windows nodes in no wave.", vec![alone(status.uncovered.len() as u64)]);
    gauge("fleet_left_out_nodes", "Windows nodes that a label leaves out.", vec![alone(status.left_out.len() as u64)]);
    if let Some(vni) = &status.vni {
        gauge("fleet_vni", "The VNI that the rollout sets.", vec![alone(vni.wanted.get().into())]);
        let felix = vni.felix.into_iter().map(|felix| alone(felix.into())).collect();
        gauge("fleet_felix_vni", "The VNI of FelixConfiguration, which Linux nodes follow.", felix);
        let by_vni = vni.nodes.iter().map(|of| {
            let name = of.vni.map_or_else(|| "unknown".to_owned(), |vni| vni.to_string());
            (labels(&[("vni", &name)]), of.nodes.len() as u64)
        });
        gauge("fleet_vni_nodes", "Windows nodes by their VNI.", by_vni.collect());
        let apart = vec![alone(vni.apart_since.is_some().into())];
        gauge("fleet_vni_apart", "Whether nodes have different VNIs.", apart);
        let seconds = vni.apart_seconds.into_iter().map(alone).collect();
        gauge("fleet_vni_apart_seconds", "For how long nodes have had, or had, different VNIs.", seconds);
    }
    to.collected(now);
    to.0
}

fn or_empty(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// A sample without labels.
fn alone<T>(value: T) -> (String, T) {
    (String::new(), value)
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
    format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(","))
}

/// The three characters that a label's value may not contain as they are.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn build(&mut self) {
        let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        let version = labels(&[("version", env!("CARGO_PKG_VERSION")), ("target", &target)]);
        self.gauge("build_info", "This program.", [(version, 1)]);
    }

    fn collected(&mut self, now: Timestamp) {
        self.gauge("collected_timestamp_seconds", "When this was measured.", [alone(now.as_second())]);
    }

    fn gauge<V: Display>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, V)>) {
        self.family(name, "gauge", help, samples);
    }

    fn counter<V: Display>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, V)>) {
        self.family(name, "counter", help, samples);
    }

    /// A metric with its samples; nothing without any.
    fn family<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        let name = format!("calicoctl_win_{name}");
        for (at, (labels, value)) in samples.into_iter().enumerate() {
            if at == 0 {
                let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_may_have_any_text() {
        let odd = labels(&[("path", "C:\\a \"b\"\nc {d}")]);
        assert_eq!(odd, r#"{path="C:\\a \"b\"\nc {d}"}"#);
    }
}
