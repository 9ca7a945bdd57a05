//! Every check has a story: what passes, what fails, and what is unknown. A file for each group; this file has the
//! rules for all.

mod cluster;
mod defects;
mod machine;
mod network;
mod node;
mod platform;
mod scene;
mod support;

use std::collections::BTreeSet;

use self::scene::{
    Edit, Scene, check, finding, pool, refuse, report, scene, side, survey_of, undecided, unserved, with_bgp, with_etcd,
};
use super::*;
use crate::facts::{
    Adapter, ApiGroup, BgpFacts, ClusterNode, CniConfig, Features, FelixFacts, FlannelFacts, HnsVersion, HostProcess,
    LEFT_OUT, NodeCounts, OperatorFacts, Os, Part, PolicyFacts, PoolFacts, Product, Right, Runtime, RuntimeKind,
    ServiceFacts, Survey, Tls, TyphaFacts,
};
use crate::report::explain::explain;
use crate::settings::{Backend, Credentials, Datastore};
use crate::values::WinPath;

/// The scenes of one check, besides passing.
#[derive(Clone, Copy)]
struct Story {
    pub id: &'static str,
    /// Fails, or warns if that is the severity.
    pub bad: Edit,
    /// Unknown: the question was refused or not asked.
    pub untold: Edit,
    /// What else the scene needs for the check to apply and pass.
    pub good: Edit,
}

const fn story(id: &'static str, bad: Edit, untold: Edit) -> Story {
    Story { id, bad, untold, good: |_| () }
}

fn stories() -> impl Iterator<Item = &'static Story> {
    let machine = node::STORIES.iter().chain(machine::STORIES);
    machine.chain(cluster::STORIES).chain(network::STORIES).chain(support::STORIES).chain(platform::STORIES)
}

#[test]
fn every_check_passes_fails_and_is_unknown_if_it_has_no_answer() {
    for story in stories() {
        let row = catalogue().find(|row| row.id == story.id).unwrap_or_else(|| panic!("{} is no check", story.id));
        assert_eq!(ends(row, story), Vec::<String>::new());
    }
}

/// Checks whose stories are separate tests: whether the cluster answers at all, and whether Windows does.
const THEMSELVES: [&str; 2] = [super::cluster::REACHABLE, "MachineFacts"];

/// What in a story has the wrong result.
fn ends(row: &Row, story: &Story) -> Vec<String> {
    let failed = if row.severity == Severity::Warning { CheckStatus::Warn } else { CheckStatus::Fail };
    let wanted: [(&str, Edit, &[CheckStatus]); 3] = [
        ("passes", story.good, &[CheckStatus::Ok]),
        ("fails", story.bad, &[failed]),
        ("is unknown", story.untold, &[CheckStatus::Unknown]),
    ];
    let told = wanted.map(|(word, edit, wanted)| (word, wanted, check(&report(edit), story.id)));
    let wrong = told.into_iter().filter(|(_, wanted, check)| !wanted.contains(&check.status));
    wrong.map(|(word, _, check)| format!("{} {word}, and is {:?}: {}", story.id, check.status, check.detail)).collect()
}

/// What a row of the catalogue lacks.
fn gaps(row: &Row, told: &BTreeSet<&str>) -> Vec<&'static str> {
    let page = explain(row.id);
    let lacks = [
        ("why", row.why.trim().len() < 20),
        ("fix", row.fix.trim().len() < 10),
        ("page", !page.is_some_and(|page| page.contains(row.fix))),
        ("story", !told.contains(row.id)),
    ];
    lacks.into_iter().filter_map(|(what, lacks)| lacks.then_some(what)).collect()
}

#[test]
fn every_check_has_a_why_a_fix_a_page_and_a_story() {
    let told: BTreeSet<&str> = stories().map(|story| story.id).chain(THEMSELVES).collect();
    let lacking: Vec<String> = catalogue()
        .filter(|row| !gaps(row, &told).is_empty())
        .map(|row| format!("{} lacks {}", row.id, gaps(row, &told).join(", ")))
        .collect();
    assert_eq!(lacking, Vec::<String>::new());
    let all: BTreeSet<&str> = catalogue().map(|row| row.id).collect();
    assert_eq!(all.len(), catalogue().count(), "an id stands twice");
    assert_eq!(told, all, "a story of no check");
    assert_eq!(stories().count() + THEMSELVES.len(), all.len(), "a check has two stories");
}

#[test]
fn a_check_that_lacks_something_is_detected() {
    let bare = Row {
        id: "NoSuchCheck",
        severity: Severity::Warning,
        why: "",
        fix: " ",
        judge: Judge::Node(|_, _| Finding::Pass(String::new())),
    };
    assert_eq!(gaps(&bare, &BTreeSet::new()), ["why", "fix", "page", "story"]);
    // And a story that never fails, or passes a refused question.
    let row = catalogue().find(|row| row.id == "ClockInSync").unwrap();
    let lazy = story("ClockInSync", |_| (), |_| ());
    assert_eq!(
        ends(row, &lazy),
        [
            "ClockInSync fails, and is Ok: this machine's clock is 0 s ahead of the API server's",
            "ClockInSync is unknown, and is Ok: this machine's clock is 0 s ahead of the API server's"
        ]
    );
}

#[test]
fn what_windows_does_not_report_stops_the_run_if_it_decides_the_install() {
    for part in [Part::Adapters, Part::Hns, Part::Runtime, Part::Survey] {
        let mut scene = scene();
        scene.node.leave_out(part, "Windows refused it");
        let input = Input { node: Some(&scene.node), ..Input::default() };
        let report = run(Scope::Everything, &input, &["MachineFacts".into()]);
        let read = check(&report, "MachineFacts");
        assert_eq!((read.status, read.ignored, read.detail.as_str()), (CheckStatus::Fail, false, "Windows refused it"));
        let failed: Vec<&str> = report
            .checks
            .iter()
            .filter(|check| check.status == CheckStatus::Fail)
            .map(|check| check.id.as_str())
            .collect();
        assert_eq!(failed, ["MachineFacts"], "{part:?}: what was not read is not treated as absent");
        let error = verdict(&report).unwrap_err();
        assert_eq!(crate::report::document::exit_of(&error), Exit::Failed);
        assert_eq!(machine_read(&scene.node).unwrap_err().what, "Windows refused it");
    }
    // What only a warning depends on does not stop a run.
    for part in [Part::Elevated, Part::Features, Part::PendingReboot, Part::Tls] {
        let mut scene = scene();
        scene.node.leave_out(part, "Windows refused it");
        let input = Input { node: Some(&scene.node), ..Input::default() };
        let report = run(Scope::Everything, &input, &[]);
        assert_eq!(check(&report, "MachineFacts").status, CheckStatus::Ok);
        assert!(report.checks.iter().all(|check| check.status != CheckStatus::Fail), "{part:?}");
        assert!(machine_read(&scene.node).is_ok());
    }
}

#[test]
fn a_cluster_that_does_not_answer_fails_and_the_rest_is_unknown() {
    let scene = scene();
    let input = Input { node: Some(&scene.node), cluster_failure: Some("refused"), ..Input::default() };
    let report = run(Scope::Everything, &input, &["ClusterReachable".into()]);
    let reachable = check(&report, "ClusterReachable");
    assert_eq!((reachable.status, reachable.detail.as_str()), (CheckStatus::Fail, "refused"));
    assert!(!reachable.ignored, "nothing can be installed without");
    for row in catalogue().filter(|row| !row.judge.needs_node() && row.id != "ClusterReachable") {
        assert_eq!(check(&report, row.id).status, CheckStatus::Unknown, "{}", row.id);
    }
    assert_eq!(check(&report, "WindowsBuild").status, CheckStatus::Ok);
    let error = verdict(&report).unwrap_err();
    assert_eq!(crate::report::document::exit_of(&error), Exit::ClusterUnreachable);
    assert!(Fault::of(&error).unwrap().is_retryable(), "it may answer later");

    let nobody_asked = Input { node: Some(&scene.node), ..Input::default() };
    let report = run(Scope::Everything, &nobody_asked, &[]);
    assert_eq!(check(&report, "ClusterReachable").status, CheckStatus::Skip);
    let without_node = run(Scope::Cluster, &Input::default(), &[]);
    assert!(!without_node.checks.iter().any(|check| check.id == "WindowsBuild"));
}

#[test]
fn a_failure_may_pass_if_each_of_its_checks_may() {
    let unregistered: Edit = |scene| scene.cluster.node = None;
    let also_lax: Edit = |scene| {
        scene.cluster.node = None;
        scene.cluster.strict_affinity = Some(false);
    };
    for (edit, passes) in [(unregistered, true), (also_lax, false)] {
        let error = verdict(&report(edit)).unwrap_err();
        assert_eq!(Fault::of(&error).unwrap().is_retryable(), passes, "{error:#}");
    }
}

#[test]
fn all_failures_are_shown_at_once_and_some_can_be_ignored() {
    let bad: Edit = |scene| {
        scene.cluster.strict_affinity = Some(false);
        scene.cluster.pools[0].block_size = 30;
    };
    let error = verdict(&report(bad)).unwrap_err();
    assert_eq!(error.to_string(), "2 checks failed: StrictAffinity, BlockSize");
    let told = &error.downcast_ref::<FailedChecks>().unwrap().checks;
    let details: Vec<&str> = told.iter().map(|check| check.detail.as_str()).collect();
    assert_eq!(details, ["IPAM strict affinity is off", "blocks smaller than /29 in default"]);

    let mut scene = scene();
    bad(&mut scene);
    let side = side(scene.settings.as_ref().unwrap(), false);
    let input = Input { side: Some(&side), cluster: Some(&scene.cluster), ..Input::default() };
    let ignored = ["strictaffinity".to_owned(), "BlockSize".to_owned()];
    assert!(verdict(&run(Scope::Everything, &input, &ignored)).is_ok());
    assert_eq!(unknown_ids(&["strictaffinity".into(), "StrictAfinity".into()]), ["StrictAfinity"]);
}

#[test]
fn only_some_failures_are_fixed_by_the_program() {
    let mut node = scene().node;
    assert_eq!(fix("StrictAffinity", None), Some(Fix::ClusterPatches));
    assert_eq!((fix("WindowsBuild", Some(&node)), fix("RuntimeRunning", Some(&node))), (None, None));
    node.survey.as_mut().unwrap().services.get_mut("containerd").unwrap().running = false;
    assert_eq!(fix("RuntimeRunning", Some(&node)).unwrap().to_string(), "start the service containerd");
}

#[test]
fn exactly_the_checks_of_the_whole_cluster_are_skipped_on_one_of_many_nodes() {
    let mut scene = scene();
    with_bgp(&mut scene, "v3.31.7");
    let cluster = &mut scene.cluster;
    (cluster.nodes, cluster.typha, cluster.bgp, cluster.policies) = (None, None, None, None);
    (cluster.host_endpoints, cluster.auto_host_endpoints) = (None, None);
    for pool in &mut cluster.pools {
        (pool.blocks_taken, pool.has_our_block) = (None, false);
    }
    for question in [
        "nodes",
        "deployments",
        "blockaffinities",
        "bgpconfigurations",
        "bgppeers",
        "hostendpoints",
        "kubecontrollersconfigurations",
        "networkpolicies",
    ] {
        cluster.unanswered.insert(question.into(), LEFT_OUT.into());
    }
    let found = report(|other| *other = scene);
    let left_out = found.checks.iter().filter(|check| check.detail == LEFT_OUT);
    let left_out: Vec<(&str, CheckStatus)> = left_out.map(|check| (check.id.as_str(), check.status)).collect();
    assert_eq!(left_out, OF_WHOLE_CLUSTER.map(|id| (id, CheckStatus::Skip)));
}
