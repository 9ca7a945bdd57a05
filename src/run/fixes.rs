//! `preflight --fix`: fixes what failed checks name, if this program can.

use anyhow::{Context as _, Result};

use super::app::App;
use super::checks::Round;
use super::cluster_patches;
use super::sources::Choice;
use super::verb::PREFLIGHT;
use crate::item::{Id, State};
use crate::preflight::{self, Fix};
use crate::report::document::CheckStatus;

/// Fixes what can be fixed automatically, with consent. Returns false if there is nothing to fix.
///
/// # Errors
/// Without consent, and when a fix fails.
pub(crate) fn fix(app: &mut App, round: &Round) -> Result<bool> {
    let failed = round.report.checks.iter().filter(|check| check.status == CheckStatus::Fail && !check.ignored);
    let mut fixes: Vec<Fix> = failed.filter_map(|check| preflight::fix(&check.id, Some(&round.known.facts))).collect();
    fixes.dedup();
    let node = app.node()?;
    let (cluster, layered) = (round.context.cluster(&*node), round.context.config(&*node)?);
    let patches = match (&cluster, &round.known.cluster) {
        (Ok(cluster), Ok(facts)) if fixes.contains(&Fix::ClusterPatches) && !facts.calico_unserved => {
            cluster.preparation(facts, cluster_patches::wishes(layered))?.patches
        }
        _ => Vec::new(),
    };
    fixes.retain(|fix| *fix != Fix::ClusterPatches);
    if fixes.is_empty() && patches.is_empty() {
        return Ok(false);
    }
    for fix in &fixes {
        app.reporter.tell(&format!("  ~   {fix}"));
    }
    if !patches.is_empty() {
        app.reporter.tell(cluster_patches::text(&patches).trim_end());
    }
    if app.global.is_dry_run() {
        return Ok(false);
    }
    app.confirm("the node and the cluster", "Fix this?", None)?;
    if let (Ok(cluster), false) = (cluster, patches.is_empty()) {
        cluster_patches::make(app, cluster, &patches)?;
    }
    drop(node);
    if !fixes.is_empty() {
        let (mut node, _) = app.open(&PREFLIGHT, &Choice::default())?;
        for fix in &fixes {
            if let Fix::StartService(name) = fix {
                node.put(&Id::Running(name.clone()), Some(&State::Running)).context("fix what a check found")?;
            }
        }
    }
    Ok(true)
}
