//! The checks of a run: their input, and what a failed one means.

use anyhow::Result;

use super::app::App;
use super::context::{Context, Known, Remote};
use super::options::no_such_check;
use crate::facts::ClusterFacts;
use crate::preflight;
use crate::report::document::{Check, CheckStatus, Failure, PreflightReport};
use crate::report::event::Event;
use crate::settings::{self, RunSettings};

/// One round of checks, and what they were made with.
pub(crate) struct Round {
    pub context: Context,
    pub known: Known,
    pub report: PreflightReport,
}

impl Round {
    pub fn is_good(&self) -> bool {
        self.known.cluster.is_ok() && self.known.resolved.is_ok() && preflight::verdict(&self.report).is_ok()
    }
}

/// Runs the checks.
fn examine(app: &mut App, run: &RunSettings, scope: preflight::Scope, input: &preflight::Input) -> PreflightReport {
    let mut ignored = [run.ignored_checks.as_slice(), &app.global.ignore_preflight_errors].concat();
    for id in &mut ignored {
        if let Some((former, current)) = preflight::renamed(id) {
            let message =
                format!("the check `{former}` is now named `{current}`; the next release does not accept the old name");
            app.warn("CheckRenamed", message);
            current.clone_into(id);
        }
    }
    for id in preflight::unknown_ids(&ignored) {
        app.warn("UnknownCheck", no_such_check(id));
    }
    let mut report = preflight::run(scope, input, &ignored);
    for fix in report.checks.iter_mut().filter_map(|check| check.fix.as_mut()) {
        *fix = app.global.repeated_in(fix);
    }
    report
}

/// Runs the checks that need no node.
pub(crate) fn of_cluster(app: &mut App, remote: &Remote, facts: &ClusterFacts) -> PreflightReport {
    let side = settings::cluster_side(&remote.layered, None, facts);
    let input = preflight::Input { side: Some(&side), cluster: Some(facts), ..preflight::Input::default() };
    examine(app, &remote.run, preflight::Scope::Cluster, &input)
}

/// Reports every check as an event.
pub(crate) fn tell(app: &mut App, report: &PreflightReport) {
    for check in &report.checks {
        app.event(&Event::Checked(check.clone()));
    }
}

/// Runs all checks with what is known. They run even if the cluster does not answer, or its answers allow no settings:
/// the report says more than the first error.
pub(crate) fn measured(
    app: &mut App,
    run: &RunSettings,
    known: &Known,
    needs: Option<&preflight::Needs>,
) -> PreflightReport {
    let (cluster, settings) = (known.cluster.as_ref().ok(), known.resolved.as_ref().ok());
    let failure = known.cluster.as_ref().err().map(|error| Failure::new(error).line());
    let input = preflight::Input {
        settings: settings.map(|resolved| &resolved.settings).filter(|_| cluster.is_some()),
        side: cluster.map(|_| &known.side),
        node: Some(&known.facts),
        cluster,
        cluster_failure: failure.as_deref(),
        replaces_flannel: known.replaces_flannel,
        remote_access: &run.remote_access,
        needs,
    };
    examine(app, run, preflight::Scope::Everything, &input)
}

/// Runs all checks and shows the results; the run stops if a required check failed.
///
/// # Errors
/// The failed checks, with the exit class of the worst.
pub(super) fn check(app: &mut App, run: &RunSettings, known: &Known) -> Result<()> {
    let report = measured(app, run, known, None);
    tell(app, &report);
    // Advice about the machine's other services belongs to `preflight`: an install does not change them.
    let advice = |check: &Check| check.status == CheckStatus::Warn && check.group == "machine";
    let worth_telling = |check: &&Check| (check.status == CheckStatus::Warn || check.ignored) && !advice(check);
    for check in report.checks.iter().filter(worth_telling) {
        app.event(&Event::Warning { id: preflight::known_id(&check.id), message: check.detail.clone() });
    }
    preflight::verdict(&report)
}
