//! `plan`: shows or saves what would be done, or gates a pipeline on it.

use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Result;
use serde::Deserialize;

use super::args::Plan as Args;
use crate::facts::{ClusterFacts, Facts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::report::document::{PlanDocument, RunResult};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::context::Operation;
use crate::run::options::{DrainFlags, quoted};
use crate::run::prepare::{Prepared, offline, prepare};
use crate::run::saved::Saved;
use crate::run::sources::Choice;
use crate::run::stage::Purpose;
use crate::run::uninstall;
use crate::run::verb::{APPLY, UNINSTALL};
use crate::yaml;

pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    let plan = if let Some(file) = &args.facts {
        offline(app, &args.source.source, &facts(file)?)?
    } else {
        let choice = Choice::of(&args.source);
        let row = if args.uninstall { &UNINSTALL } else { &APPLY };
        if args.print_facts {
            // What it writes is read by --facts.
            app.reporter.only_documents();
        }
        let (mut node, context) = app.look(row, &choice)?;
        let op = &mut Operation { app, context: &context, node: &mut *node, row };
        if args.uninstall {
            uninstall::plan(args.adopted, op)?
        } else {
            let prepared = prepare(op, None, (None, &DrainFlags::default()), Purpose::Look)?;
            if args.print_facts {
                let facts = prepared.facts();
                if app.reporter.is_text() {
                    app.reporter.raw(&format!("{}\n", serde_json::to_string_pretty(&facts)?));
                    return Ok(Ending::Quiet);
                }
                app.reporter.document(&facts, "");
                return Ending::shown(Exit::Ok, "the facts of this node");
            }
            if let Some(file) = &args.out {
                let Prepared { planned, about, whole_config, .. } = &prepared;
                let (plan, settings, config) = (planned.plan.clone(), about.settings.clone(), whole_config.clone());
                Saved { name: String::new(), plan, settings, config }.save(&mut *node, app, file)?;
                // The file is not part of the node.
                app.connector.changed.store(false, Ordering::Relaxed);
            }
            prepared.planned.plan
        }
    };
    let pending = !plan.changes.is_empty();
    let counts = plan.counts();
    let mut text = plan.text(app.global.verbose > 0);
    if let Some(file) = &args.out {
        let file = quoted(&file.to_string_lossy());
        text.push_str(&format!("Saved: {file}   Apply it: {}\n", app.command(&format!("apply --plan {file}"))));
    }
    let warnings = app.record().warnings.clone();
    app.reporter.document(&PlanDocument { plan, warnings }, &text);
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

/// Facts as `plan --print-facts` writes them: text output has only the facts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FactsDocument {
    #[serde(default, rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(default, rename = "kind")]
    _kind: Option<String>,
    #[serde(default, rename = "success")]
    _success: Option<bool>,
    #[serde(default, rename = "exit_code")]
    _exit_code: Option<i32>,
    node: NodeFacts,
    #[serde(default)]
    cluster: Option<ClusterFacts>,
}
