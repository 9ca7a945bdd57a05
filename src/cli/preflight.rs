//! `preflight`: runs every check and changes nothing; with `--fix`, fixes what it can, with consent.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::args::Preflight;
use super::checks::show;
use super::selftest;
use super::status::wait_for;
use crate::cluster::Checks;
use crate::fault::Fault;
use crate::node::{Node, trust};
use crate::report::document::{Check, CheckStatus, NodeStatus, Overall, PreflightReport, Problem};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::checks::{self, Round, tell};
use crate::run::context::{Context, gather};
use crate::run::fixes::fix;
use crate::run::needs;
use crate::run::node_status;
use crate::run::sources::Choice;
use crate::run::verb::PREFLIGHT;
use crate::selftest::report::RowReport;
use crate::selftest::{Reach, TestContext};
use crate::wait::{self, Wait};

/// What the API server has to answer in any case.
const ANSWER: Duration = Duration::from_secs(5);

/// The pause between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Preflight, app: &mut App) -> Result<Ending> {
    let limit = if args.wait { args.timeout.length() } else { Duration::ZERO };
    // The first look of a wait must be a whole one, also if the limit is short.
    app.connector.limit = args.wait.then_some(limit.max(ANSWER));
    let (mut node, mut last) = (app.node()?, None);
    let wait = Wait { what: Some("all checks to pass"), limit, pause: PAUSE, rest: &mut wait::sleep };
    wait_for(app, &mut *node, wait, |app, node| Ok(last.insert(look(app, (args.deep, true), node)?).is_good()))?;
    let mut round = last.context("make the checks")?;
    drop(node);
    if args.fix && fix(app, &round)? {
        let mut node = app.node()?;
        round = look(app, (args.deep, true), &mut *node)?;
    }
    tell(app, &round.report);
    // Why some checks had no input: no cluster, or no settings that its answers allow.
    let failure = round.known.cluster.err().or(round.known.resolved.err());
    show(app, "preflight", &round.report, args.all, failure)
}

/// Makes every check once, with the config of the current generation if no other is named.
pub(super) fn once(app: &mut App, node: &mut dyn Node) -> Result<Round> {
    let context = app.context(node, &PREFLIGHT, &Choice::default())?.on_current();
    check_all(app, context, (false, false), node)
}

fn look(app: &mut App, with: (bool, bool), node: &mut dyn Node) -> Result<Round> {
    let context = app.context(node, &PREFLIGHT, &Choice::default())?;
    check_all(app, context, with, node)
}

/// `tries`: also what a run would get from elsewhere.
fn check_all(app: &mut App, context: Context, (deep, tries): (bool, bool), node: &mut dyn Node) -> Result<Round> {
    let known = gather(app, &context, node, false, Checks::All)?;
    // This is not the cluster's error, and an untrusted file must not be tried in other ways.
    if known.cluster.as_ref().is_err_and(|error| Fault::id_of(error) == trust::OTHERS_MAY_WRITE) {
        return Err(known.cluster.err().context("read the kubeconfig")?);
    }
    // What is asked next is asked as another user, who would wait for the same server again.
    let hung = known.cluster.as_ref().err().and_then(Fault::of).filter(|fault| fault.id == "ClusterTimeout").cloned();
    let server = || Some(context.cluster(node).ok()?.server().to_owned());
    app.connector.hung = hung.and_then(|fault| Some((server()?, fault)));
    let needs = tries.then(|| needs::tried(app, &context, node, &known)).flatten();
    let mut report = checks::measured(app, context.run(node)?, &known, needs.as_ref());
    if tries {
        let status = node_status::measure(app, node);
        of_status(app, status, &report).into_iter().for_each(|check| report.add(check));
    }
    if deep {
        let mut test = TestContext::new(node, selftest::program(app)?, None)?;
        let found = crate::selftest::run(&mut test, Reach::Reads, &mut |_| ());
        for row in found.rows {
            report.add(check(app, row));
        }
    }
    Ok(Round { context, known, report })
}

/// Returns what is wrong with a node that Calico is on, besides what the checks have found.
fn of_status(app: &App, status: Result<NodeStatus>, report: &PreflightReport) -> Option<Check> {
    let found = |id: &str| report.checks.iter().any(|check| check.id == id && check.status == CheckStatus::Fail);
    let (status, detail, fix) = match status {
        Ok(status) if matches!(status.overall, Overall::NotInstalled | Overall::Prepared) => return None,
        Ok(status) => {
            // `--fix` holds the lock until this run ends.
            let is_own = status.run.is_some_and(|run| run.run == app.run);
            let is_known = |problem: &Problem| found(problem.id) || is_own && problem.id == "RunInProgress";
            let others = status.problems.into_iter().filter(|problem| !is_known(problem));
            let (problems, mut commands): (Vec<_>, Vec<_>) = others.map(|one| (one.message, one.command)).unzip();
            // This is what was just run.
            let again = app.command("preflight");
            commands.retain(|command| *command != again);
            commands.dedup();
            match problems.is_empty() {
                true => (CheckStatus::Ok, "nothing else is wrong".into(), String::new()),
                false => (CheckStatus::Warn, problems.join("; "), commands.join("\n")),
            }
        }
        Err(error) => (CheckStatus::Unknown, format!("{error:#}"), app.command("status")),
    };
    Some(Check {
        id: "NodeStatus".into(),
        group: "status".into(),
        status,
        ignored: false,
        detail,
        why: Some("a change starts from what is on the node".into()),
        fix: Some(fix).filter(|fix| !fix.is_empty()),
    })
}

/// Returns a row of the selftest as a check.
fn check(app: &App, row: RowReport) -> Check {
    Check {
        status: row.verdict.status(),
        id: row.id,
        group: "selftest".into(),
        ignored: false,
        detail: row.answered,
        why: Some(row.needed_for),
        fix: Some(format!("attach this output to a report: {}", app.command("selftest -o json"))),
    }
}
