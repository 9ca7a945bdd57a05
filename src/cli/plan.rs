//! `plan`: shows or saves what would be done, or gates a pipeline on it.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::args::Plan as Args;
use crate::apply::standing::Standing;
use crate::facts::{ClusterFacts, Facts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::report::document::{PlanDocument, RunResult};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::prepare::{Prepared, offline, prepare};
use crate::run::saved::Saved;
use crate::run::stage::Purpose;
use crate::run::standing::start_from;
use crate::run::uninstall;
use crate::yaml;

pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    let plan = if let Some(file) = &args.facts {
        offline(app, &args.source, &facts(file)?)?
    } else {
        let mut node = app.node()?;
        if args.uninstall {
            uninstall::plan(&*node)?
        } else {
            let standing = Standing::load(&*node)?;
            start_from(app, &*node, &standing, &[], &args.source)?;
            let prepared = prepare(app, &mut *node, standing, &args.source, None, Purpose::Look)?;
            if args.print_facts {
                let facts = prepared.facts();
                app.reporter.document("Facts", &facts, &serde_json::to_string_pretty(&facts)?);
                return Ok(Ending::Quiet);
            }
            if let Some(file) = &args.out {
                let Prepared { plan, about, whole_config, .. } = &prepared;
                let saved =
                    Saved { plan: plan.clone(), settings: about.settings.clone(), config: whole_config.clone() };
                saved.save(&mut *node, app, file)?;
                // The file is not part of the node.
                app.nothing_changed();
            }
            prepared.plan
        }
    };
    let pending = !plan.changes.is_empty();
    let counts = plan.counts();
    let mut text = plan.text(app.global.verbose > 0);
    if let Some(file) = &args.out {
        text.push_str(&format!("Saved: {0}   Apply it: {1} --plan {0}\n", file.display(), app.command("apply")));
    }
    app.reporter.document("Plan", &PlanDocument { plan, warnings: app.warnings() }, &text);
    Ok(Ending::Shown(Box::new(RunResult::looked(pending, counts))))
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

/// Facts as `plan --print-facts` writes them: text output has no `apiVersion` and `kind`, other formats have.
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
