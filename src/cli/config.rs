//! `config init|show|validate|schema`; `config import` is in [`super::import`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::args::Config;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::config;
use crate::fault::{Exit, Fault};
use crate::plan::show::{SettingChange, shown};
use crate::report::document::RunResult;
use crate::report::reporter::Format;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::engine::installed;
use crate::run::options::Source;
use crate::run::prepare::{cluster_facts, effective};
use crate::run::standing::start_from;
use crate::settings::{self, Resolved};

pub(crate) fn run(verb: &Config, app: &mut App) -> Result<Ending> {
    match verb {
        Config::Init { file } => init(file.as_deref(), app),
        Config::Import { file, live: _, out } => super::import::run(file.as_deref(), out.as_deref(), app),
        Config::Show { applied: true, .. } => show_applied(app),
        Config::Show { origins, .. } => show(*origins, app),
        Config::Diff => diff(app),
        Config::Validate { files } => validate(files, app),
        Config::Schema => {
            app.reporter.raw(&format!("{:#}\n", config::schema()));
            Ok(Ending::Quiet)
        }
    }
}

fn init(file: Option<&Path>, app: &mut App) -> Result<Ending> {
    let Some(file) = file else {
        app.reporter.raw(&config::template());
        return Ok(Ending::Quiet);
    };
    if app.global.dry_run {
        return app.would(format!("write {}", file.display()));
    }
    super::import::write_new(file, &config::template())?;
    let msg = format!("wrote {}", file.display());
    app.reporter.tell(&msg);
    Ending::result(RunResult::new(Exit::Ok, true, msg))
}

/// Returns the effective config, which needs the node, and the cluster if it answers.
fn resolved(app: &mut App) -> Result<Resolved> {
    let node = app.node()?;
    let layered = app.config(&*node, &Source::default())?;
    let node_facts = app.measure(&*node, &layered, &Standing::load(&*node)?)?;
    let run = settings::run(&layered, Some(&node_facts));
    let cluster =
        app.cluster(&*node, &run.connection).and_then(|cluster| cluster_facts(&cluster, &layered, &run, &node_facts));
    let cluster = cluster
        .map_err(|error| app.warn("ClusterNotAsked", format!("shown without what the cluster says: {error:#}")))
        .ok();
    settings::resolve(&layered, &node_facts, cluster.as_ref())
}

fn show(origins: bool, app: &mut App) -> Result<Ending> {
    let fields = resolved(app)?.origins;
    let fields: Vec<_> = fields
        .iter()
        .map(|field| (field.path.clone(), shown(&field.path, &field.value), field.from.to_string()))
        .collect();
    show_fields(app, &fields, origins)
}

/// Returns the config that the current generation was made with.
fn applied(app: &mut App) -> Result<BTreeMap<String, Value>> {
    let node = app.node()?;
    let standing = Standing::load(&*node)?;
    let receipt = installed(&standing)?;
    store::effective(&*node, receipt)?.ok_or_else(|| {
        let what = format!("generation {} was made by an older program, which did not keep it", receipt.generation);
        Fault::new(Exit::Unsupported, "AppliedNotKept", what)
            .hint("any later generation has it; what this one is in the main: calicoctl-win receipt show")
            .into()
    })
}

fn show_applied(app: &mut App) -> Result<Ending> {
    let applied = applied(app)?;
    let fields: Vec<_> =
        applied.iter().map(|(path, value)| (path.clone(), shown(path, value), "applied".to_owned())).collect();
    show_fields(app, &fields, false)
}

fn show_fields(app: &mut App, fields: &[(String, Value, String)], origins: bool) -> Result<Ending> {
    let documents: Vec<_> =
        fields.iter().map(|(path, value, origin)| json!({ "path": path, "value": value, "origin": origin })).collect();
    let width = fields.iter().map(|(path, ..)| path.len()).max().unwrap_or(0);
    let line = |(path, value, origin): &(String, Value, String)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let from = if origins { format!("   # {origin}") } else { String::new() };
        format!("{path:<width$}  {value}{from}\n")
    };
    let text: String = fields.iter().map(line).collect();
    app.reporter.document("EffectiveConfig", &json!({ "fields": documents }), &text);
    if app.reporter.format() == Format::Ndjson { Ending::shown(Exit::Ok, "shown") } else { Ok(Ending::Quiet) }
}

/// Compares the config that a change would start from with the one that the node was made with.
fn diff(app: &mut App) -> Result<Ending> {
    let applied = applied(app)?;
    let node = app.node()?;
    start_from(app, &*node, &Standing::load(&*node)?, &[], &Source::default())?;
    drop(node);
    let changes = SettingChange::between(&applied, &effective(&resolved(app)?));
    let width = changes.iter().map(|change| change.path.len()).max().unwrap_or(0);
    let text = match changes.as_slice() {
        [] => "no difference: the current generation was made with this config\n".to_owned(),
        changes => changes.iter().map(|change| format!("{:<width$}  {change}\n", change.path)).collect(),
    };
    app.reporter.document("ConfigDiff", &json!({ "settings_diff": changes }), &text);
    Ok(Ending::Shown(Box::new(RunResult::looked(!changes.is_empty(), format!("{} settings differ", changes.len())))))
}

fn validate(files: &[PathBuf], app: &mut App) -> Result<Ending> {
    if files.is_empty() && app.global.config.is_empty() {
        return Err(Fault::new(Exit::Usage, "Usage", "no config to validate")
            .hint("name one: calicoctl-win config validate node.yaml")
            .into());
    }
    app.named_config(&Source::default(), files)?;
    let msg = "the config is valid; what depends on node and cluster is checked by: calicoctl-win preflight";
    app.reporter.document("ConfigValidation", &json!({ "valid": true }), "valid");
    Ending::shown(Exit::Ok, msg)
}
