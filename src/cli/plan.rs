//! `plan`: what would be done, to look at, to save, or to gate a pipeline on.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Ending;
use super::app::App;
use super::args::Plan as Args;
use super::prepare::{Prepared, prepare};
use super::stage::Purpose;
use super::uninstall;
use crate::facts::{ClusterFacts, Facts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::plan::show::Plan;
use crate::report::document::{PlanDocument, RunResult, envelope};
use crate::values::Sha256;
use crate::yaml;

pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    let (plan, settings) = if let Some(file) = &args.facts {
        (super::prepare::offline(app, &args.source, &facts(file)?)?, None)
    } else {
        let mut node = app.node()?;
        if args.uninstall {
            (uninstall::plan(&*node)?, None)
        } else {
            let prepared = prepare(app, &mut *node, &args.source, None, Purpose::Look)?;
            if args.print_facts {
                let facts = prepared.facts();
                app.reporter.document("Facts", &facts, &serde_json::to_string_pretty(&facts)?);
                return Ok(Ending::Quiet);
            }
            (prepared.plan, Some(prepared.about.settings))
        }
    };
    if let Some(file) = &args.out {
        Saved { plan: plan.clone(), settings }.save(file)?;
    }
    let pending = !plan.changes.is_empty();
    let counts = plan.counts();
    let mut text = plan.text();
    if let Some(file) = &args.out {
        text.push_str(&format!("Saved: {0}   Apply it: {1} --plan {0}\n", file.display(), app.command("install")));
    }
    app.reporter.document("Plan", &PlanDocument { plan, warnings: app.warnings() }, &text);
    Ok(Ending::Shown(Box::new(RunResult::looked(pending, counts))))
}

/// How a dry run ends: with the plan, and nothing else different.
pub(super) fn dry_run(plan: Plan, generation: Option<u32>) -> Result<Ending> {
    let msg = format!("dry run: {}", plan.counts());
    let mut result = RunResult::looked(!plan.changes.is_empty(), msg);
    result.generation = generation;
    result.plan = Some(plan);
    Ending::result(result)
}

fn facts(file: &Path) -> Result<Facts> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Fault::new(Exit::InvalidConfig, "FactsInvalid", format!("cannot read the facts file {}", file.display()))
            .hint("make one on the machine with: calicoctl-win plan --print-facts -o json")
            .because(error)
    })?;
    let invalid = |why: &dyn std::fmt::Display| {
        Fault::new(Exit::InvalidConfig, "FactsInvalid", format!("{} is no facts file: {why}", file.display()))
            .hint("make one on the machine with: calicoctl-win plan --print-facts -o json")
    };
    // JSON is YAML too.
    let document: FactsDocument = yaml::read(&text).map_err(|why| invalid(&why))?;
    Ok(Facts { node: document.node, cluster: document.cluster })
}

/// Facts as `plan --print-facts` writes them: as text without, else with the head of every document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FactsDocument {
    #[serde(default, rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(default, rename = "kind")]
    _kind: Option<String>,
    node: NodeFacts,
    #[serde(default)]
    cluster: Option<ClusterFacts>,
}

/// A plan in a file, for `install --plan`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Saved {
    #[serde(flatten)]
    plan: Plan,
    /// Digest of the settings it was made from.
    settings: Option<Sha256>,
}

impl Saved {
    fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&envelope("Plan", self))? + "\n";
        std::fs::write(file, text).with_context(|| format!("save the plan to {}", file.display()))
    }

    pub(crate) fn load(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Fault::new(Exit::InvalidConfig, "PlanInvalid", format!("cannot read the saved plan {}", file.display()))
                .hint("make one with: calicoctl-win plan --out FILE")
                .because(error)
        })?;
        serde_json::from_str(&text).map_err(|error| {
            Fault::new(Exit::InvalidConfig, "PlanInvalid", format!("{} is not a saved plan: {error}", file.display()))
                .hint("make one with: calicoctl-win plan --out FILE")
                .into()
        })
    }

    /// Refuses the plan when it is not what would be done now.
    pub(crate) fn check(&self, now: &Prepared) -> Result<()> {
        let config_changed = self.settings.as_ref() != Some(&now.about.settings);
        if !config_changed && self.plan.digest == now.plan.digest {
            return Ok(());
        }
        let what = if config_changed {
            "the config has changed since the plan was saved"
        } else {
            "the node has changed since the plan was saved"
        };
        Err(Fault::new(Exit::PlanStale, "PlanStale", what)
            .hint("look at a new plan and save it again: calicoctl-win plan --out FILE")
            .into())
    }
}
