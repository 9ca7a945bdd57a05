//! What the measured state of a node means: its problems, the command for each, and one word for the whole.

use anyhow::Result;

use super::drift::drift;
use super::verb::PREPARE;
use crate::agent::Role;
use crate::apply::converge::plan;
use crate::apply::receipt::{Prepared, Receipt};
use crate::apply::standing::Standing;
use crate::fleet;
use crate::item::Id;
use crate::node::Node;
use crate::report::document::{
    KubernetesNode, MixedVni, NodeStatus, OnTrial, Overall, Problem, RunInProgress, ServiceStatus,
};

/// A service is stopped on purpose.
pub(crate) const NOT_STARTED: &str = "ServiceNotStarted";

/// States of a service without a process.
const DOWN: [&str; 2] = ["Stopped", "Absent"];

/// A service that the config does not start, and that has not failed, is stopped on purpose.
pub(super) fn allow_what_is_meant(receipt: &Receipt, status: &mut NodeStatus) {
    let left = |name: &str| receipt.target.leave.contains(&Id::Running(name.into()));
    let mut others_down = false;
    for service in status.services.iter().filter(|service| service.state != "Running") {
        let stopped = format!("service {} is stopped", service.name);
        match status.problems.iter_mut().find(|problem| problem.message == stopped).filter(|_| left(&service.name)) {
            Some(problem) => {
                let message =
                    format!("service {} is not started, as the config says (services.start is false)", service.name);
                *problem = Problem { id: NOT_STARTED, message, command: "service start".into() };
            }
            None => others_down = true,
        }
    }
    if status.overall == Overall::Failed && status.run.is_none() && !others_down {
        status.overall = Overall::Degraded;
    }
}

pub(crate) const WITHDRAWN: &str = "Withdrawn";

/// Returns why kubelet starts no new pods; none while the CNI configuration is published.
pub(crate) fn no_new_pods(status: &NodeStatus) -> Option<String> {
    let by = match &status.run {
        Some(run) if run.interrupted => "the interrupted run",
        Some(_) => "the run in progress",
        None => "CalicoNode until the network stands",
    };
    match status.cni.as_ref()?.state.as_str() {
        WITHDRAWN => Some(format!("withdrawn by {by}; new pods cannot start")),
        "Missing" if status.generation.is_none() => Some(format!("not published yet by {by}; new pods cannot start")),
        "Missing" => Some("missing; new pods cannot start".into()),
        _ => None,
    }
}

/// Writes the problems of what was measured, and the word for the whole node.
pub(super) fn judge(status: &mut NodeStatus) {
    let run = status.run.clone();
    // What ends the run of which this is a part, or what repairs the node.
    let repair = match &run {
        Some(run) if run.interrupted => "resume".to_owned(),
        Some(run) => format!("status --run {} --wait", run.run),
        None => "repair".into(),
    };
    for service in status.services.clone() {
        let ServiceStatus { name, state, .. } = &service;
        let role = Role::ALL.into_iter().find(|role| role.service() == name).map_or("node", Role::word);
        let logs = format!("logs --component {role}");
        // Without a record nothing says that it should run, unless it failed: the table of services shows that it does not.
        let is_recorded = status.generation.is_some() || run.is_some() || service.failure.is_some();
        if state == "Stopped" && is_recorded {
            let why = service.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            status.problem("ServiceStopped", format!("service {name} is stopped{why}"), &repair);
        } else if ["Starting", "Stopping", "Paused"].contains(&state.as_str()) {
            let message = format!("service {name} is {}", state.to_lowercase());
            status.problem("ServiceNotReady", message, "status --wait");
        }
        if service.crash_loop {
            status.problem("ServiceCrashLoop", format!("{name} is in a crash loop"), logs);
        } else if let Some(what) = &service.waiting_for {
            status.problem("ServiceNotReady", format!("{name} waits for {what}"), logs);
        } else if let Some(why) = &service.not_ready {
            status.problem("ServiceNotReady", format!("{name} is not ready: {why}"), logs);
        }
    }
    for network in status.networks.clone().iter().filter(|network| network.unseen_by_v2) {
        let message = format!(
            "version 2 of HNS does not show the HNS network {}: Calico and kube-proxy do not find it",
            network.name
        );
        status.problem("HnsNetworkUnseen", message, "explain HnsNetworkUnseen");
    }
    if let Some(why) = no_new_pods(status) {
        status.problem("CniConfigAbsent", format!("the CNI configuration is {why}"), &repair);
    }
    if !status.drift.is_empty() {
        let drift = status.drift.join(", ");
        let message = match (&run, status.generation) {
            (Some(_), Some(generation)) => format!("not as generation {generation} has it: {drift}"),
            _ => format!("changed since the last run: {drift}"),
        };
        status.problem("NodeDrifted", message, &repair);
    }
    if let Some(KubernetesNode { name, ready: Some(false), .. }) = status.node.clone() {
        status.problem("NodeNotReady", format!("Node {name} is not Ready"), format!("kubectl describe node {name}"));
    }
    if let Some(OnTrial { from, given_up: Some(why), .. }) = status.trial.clone() {
        let message =
            format!("the change on trial could not be reverted to generation {from} and is not tried any more: {why}");
        status.problem("TrialGivenUp", message, "resume");
        if let Some(KubernetesNode { name, schedulable: Some(false), .. }) = status.node.clone() {
            status.problem("TrialGivenUp", format!("Node {name} stays cordoned"), "resume");
        }
    }
    if let Some(mixed) = status.mixed_vni {
        // A run that waits for the cluster's VNI ends it, in one way or the other.
        let ends = run.is_some().then(|| repair.clone());
        let command = ends.unwrap_or_else(|| match mixed.changed_here {
            true => fleet::patch(mixed.node),
            false => to_vni_of_cluster(mixed),
        });
        status.problem("MixedVni", of_mixed_vni(mixed), command);
    }
    if let Some(RunInProgress { run, command, since, interrupted, at }) = run {
        let (id, how) = if interrupted { ("InterruptedRun", "interrupted") } else { ("RunInProgress", "in progress") };
        let at = at.unwrap_or_else(|| format!("{command} (run {run}, since {since:.0})"));
        status.problem(id, format!("{how}: {at}"), repair);
    }
    let interrupted = status.run.as_ref().is_some_and(|run| run.interrupted);
    status.overall = match &status.run {
        Some(run) if !run.interrupted => Overall::Changing,
        _ if interrupted => Overall::Failed,
        _ if status.calico_version.is_none() => Overall::NotInstalled,
        _ if status.services.iter().any(|service| DOWN.contains(&service.state.as_str())) => Overall::Failed,
        _ if status.problems.is_empty() => Overall::Healthy,
        _ => Overall::Degraded,
    };
}

/// Judges a machine that is prepared as an image: its services are disabled, and everything else is as it was prepared.
pub(super) fn judge_image(
    node: &dyn Node,
    standing: &Standing,
    (image, prepared): (&Receipt, &Prepared),
    status: &mut NodeStatus,
) -> Result<()> {
    status.overall = Overall::Prepared;
    status.calico_version = Some(prepared.calico_version.to_string());
    let has = |name: &str| image.target.world.contains_key(&Id::Service(name.into()));
    status.services.retain(|service| has(&service.name));
    status.drift = drift(node, &plan(node, standing, &image.target)?)?;
    if !status.drift.is_empty() {
        let message = format!("changed since it was prepared: {}", status.drift.join(", "));
        status.problem("NodeDrifted", message, PREPARE.command);
    }
    Ok(())
}

pub(crate) fn of_mixed_vni(MixedVni { node, cluster, .. }: MixedVni) -> String {
    format!("VNI {node} here, {cluster} in FelixConfiguration: pods here reach no pod on nodes with VNI {cluster}")
}

/// The command that gives this node the cluster's VNI.
pub(crate) fn to_vni_of_cluster(mixed: MixedVni) -> String {
    format!("reconfigure --set calicoNetwork.vxlan.vxlanVNI={}", mixed.cluster)
}

/// Whether waiting cannot change the result: the administrator decides about the VNI.
pub(crate) fn settled(status: &NodeStatus) -> bool {
    matches!(status.overall, Overall::Healthy | Overall::NotInstalled | Overall::Prepared) || only_mixed_vni(status)
}

/// Whether the only problem is that the cluster has another VNI.
pub(crate) fn only_mixed_vni(status: &NodeStatus) -> bool {
    status.overall == Overall::Degraded && matches!(status.problems[..], [Problem { id: "MixedVni", .. }])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::super::service_status::{detail, row, service};
    use super::*;
    use crate::item::{Service, StartType};
    use crate::node::STATE_DIR;
    use crate::node::sandbox::SandboxNode;
    use crate::node::sandbox::model::{Name, NodeService, Pending};
    use crate::values::WinPath;

    /// A node on which CalicoFelix runs as process 4000, and the report of an agent.
    fn felix(pid: Option<u32>, said: &str) -> (ServiceStatus, Vec<String>) {
        let (service, status) = felix_about(pid, None, said);
        (service, status.problems.into_iter().map(|problem| problem.message).collect())
    }

    /// The same, as it is about to start or stop.
    fn felix_about(pid: Option<u32>, pending: Option<Pending>, said: &str) -> (ServiceStatus, NodeStatus) {
        let dir = TempDir::new().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        let definition = Service {
            display_name: "Calico Windows Agent".into(),
            description: String::new(),
            image_path: "calicoctl-win.exe service run felix".into(),
            account: "LocalSystem".into(),
            start: StartType::Auto,
            depends_on: Vec::new(),
            restart_after: Vec::new(),
            recovery: None,
            parameters: [].into(),
        };
        node.edit(|model| {
            model
                .services
                .insert(Name::new("CalicoFelix"), NodeService { pending, ..NodeService::new(definition, pid) });
            Ok(())
        })
        .unwrap();
        let folder = node.disk(&WinPath::known(STATE_DIR)).join("agent");
        fs::create_dir_all(&folder).unwrap();
        let since = (node.now() - jiff::SignedDuration::from_millis(12_100)).to_string();
        let mut text = serde_json::json!({
            "role": "felix", "pid": 4000, "since": "2026-01-02T15:04:05Z", "phase": "restarting", "restarts": 5,
            "lastExit": {"code": 7, "at": "2026-01-02T15:04:05Z"}, "crashLoop": false
        });
        let more: serde_json::Value = serde_json::from_str(&format!("{{{}}}", said.replace("SINCE", &since))).unwrap();
        text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(folder.join("felix.json"), text.to_string()).unwrap();
        let service = service(&node, "CalicoFelix").unwrap();
        let mut status = NodeStatus {
            overall: Overall::NotInstalled,
            reasons: Vec::new(),
            problems: Vec::new(),
            generation: None,
            calico_version: Some("v3.32.1".into()),
            backend: None,
            services: vec![service.clone()],
            networks: Vec::new(),
            cni: None,
            credentials: Vec::new(),
            node: None,
            drift: Vec::new(),
            run: None,
            trial: None,
            mixed_vni: None,
            bgp_sessions: None,
            policy_networks: None,
            datastore: None,
            verify_left: None,
        };
        judge(&mut status);
        (service, status)
    }

    const WAITS: &str =
        r#""waitingFor": {"what": "CalicoNode to bring up the network", "since": "SINCE", "limitS": 900}"#;

    #[test]
    fn what_a_service_waits_for_is_shown_with_its_duration() {
        let (service, reasons) = felix(Some(4000), WAITS);
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, waits for CalicoNode to bring up the network (12 s of 900 s)");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix waits for CalicoNode to bring up the network (12 s of 900 s)");
        assert_eq!(service.since.unwrap().to_string(), "2026-01-02T15:04:05Z");
        // The screen has that time as it is here.
        let shown = row(&service);
        let after = shown.strip_prefix("pid 4000, since 2026-01-0").and_then(|rest| rest.split_once(" ago), "));
        assert!(after.is_some_and(|(_, rest)| rest.starts_with("5 restarts, waits for ")), "{shown}");
    }

    /// Defect B2: it is not visible that Felix crashes repeatedly.
    #[test]
    fn b2_a_crash_loop_is_shown_as_one() {
        let (service, reasons) = felix(Some(4000), r#""crashLoop": true"#);
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, crash loop (exit code 7)");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is in a crash loop");
    }

    /// While Felix runs and is not in sync, new pods keep the CNI plugin's deny-all.
    #[test]
    fn felix_that_is_not_ready_is_not_healthy() {
        let child = r#""phase": "running", "child": {"pid": 4010, "since": "SINCE"}"#;
        let (service, reasons) = felix(
            Some(4000),
            &format!(r#"{child}, "readiness": {{"notReady": "Felix says that it is not ready (HTTP 503)"}}"#),
        );
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, not ready");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: Felix says that it is not ready (HTTP 503)");
        assert_eq!(felix(Some(4000), &format!(r#"{child}, "readiness": "ready""#)).1.len(), 0);
    }

    /// Felix calls itself ready while it finds none of the pods' endpoints.
    #[test]
    fn what_only_the_log_of_a_component_says_is_shown() {
        let said = r#""phase": "running", "child": {"pid": 4010, "since": "SINCE"}, "readiness": "ready",
            "logError": "its log repeats: Failed to look up HNS endpoint for workload id=web""#;
        let (_, reasons) = felix(Some(4000), said);
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: its log repeats: Failed to look up HNS endpoint for workload id=web");
    }

    #[test]
    fn an_agent_that_is_starting_is_not_healthy() {
        let (_, reasons) = felix(Some(4000), r#""phase": "preparing""#);
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: it is starting");
    }

    /// A service has a process before it has said to the Service Control Manager that it runs.
    #[test]
    fn a_service_with_a_process_runs_only_when_windows_says_so() {
        let ready = r#""phase": "running", "child": {"pid": 4010, "since": "SINCE"}"#;
        let told = |pending| {
            let (service, status) = felix_about(Some(4000), pending, ready);
            format!(
                "{}, {:?}: {}",
                service.state,
                status.overall,
                status.problems.iter().map(|problem| &*problem.message).collect::<Vec<_>>().join("; ")
            )
        };
        insta::assert_snapshot!(told(None), @"Running, Healthy: ");
        insta::assert_snapshot!(told(Some(Pending::Start)), @"Starting, Degraded: service CalicoFelix is starting");
        insta::assert_snapshot!(told(Some(Pending::Stop)), @"Stopping, Degraded: service CalicoFelix is stopping");
    }

    #[test]
    fn a_report_of_another_process_is_ignored() {
        let (service, reasons) = felix(Some(4004), WAITS);
        assert_eq!((detail(&service).as_str(), service.restarts, reasons.len()), ("pid 4004", None, 0));
    }

    #[test]
    fn a_service_that_ended_by_itself_shows_why() {
        let (service, reasons) = felix(None, r#""failure": "services.json is not what install wrote""#);
        assert_eq!(service.state, "Stopped");
        insta::assert_snapshot!(reasons.join("\n"), @"service CalicoFelix is stopped: services.json is not what install wrote");
    }
}
