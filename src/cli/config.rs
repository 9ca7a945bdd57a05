//! `config init|show|validate|schema`; `config import` is in [`super::import`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::args::Config;
use super::documents::{ConfigDiff, ConfigValidation, EffectiveConfig, EffectiveField};
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::config;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::show::{SettingChange, shown};
use crate::report::document::RunResult;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::context::{Context, gather};
use crate::run::generations::installed;
use crate::run::options::Source;
use crate::run::prepare::effective;
use crate::run::sources::{Choice, Sources};
use crate::run::verb::{APPLY, PREFLIGHT};
use crate::settings::Resolved;

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
    app.done(true, format!("wrote {}", file.display()))
}

/// Returns the effective config, which needs the node, and the cluster if it answers.
fn resolved(app: &mut App, context: &Context, node: &dyn Node) -> Result<Resolved> {
    let known = gather(app, context, node, false)?.or_unread()?;
    if let Err(error) = known.cluster {
        app.warn("ClusterNotAsked", format!("shown without what the cluster says: {error:#}"));
    }
    known.resolved
}

fn show(origins: bool, app: &mut App) -> Result<Ending> {
    let (node, context) = app.look(&PREFLIGHT, &Choice::default())?;
    let fields = resolved(app, &context, &*node)?.origins;
    let fields: Vec<_> = fields
        .iter()
        .map(|field| (field.path.clone(), shown(&field.path, &field.value), field.from.to_string()))
        .collect();
    show_fields(app, &fields, origins)
}

/// Returns the config that the current generation was made with.
fn applied(node: &dyn Node, standing: &Standing) -> Result<BTreeMap<String, Value>> {
    let receipt = installed(standing)?;
    store::effective(node, receipt)?.ok_or_else(|| {
        let what = format!("generation {} was made by an older program, which did not keep it", receipt.generation);
        Fault::new(Exit::Unsupported, "AppliedNotKept", what)
            .hint("any later generation has it; what this one is in the main: calicoctl-win receipt show")
            .into()
    })
}

fn show_applied(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let applied = applied(&*node, &Standing::load(&*node)?)?;
    let fields: Vec<_> =
        applied.iter().map(|(path, value)| (path.clone(), shown(path, value), "applied".to_owned())).collect();
    show_fields(app, &fields, false)
}

fn show_fields(app: &mut App, fields: &[(String, Value, String)], origins: bool) -> Result<Ending> {
    let document = |(path, value, origin): &(String, Value, String)| EffectiveField {
        path: path.clone(),
        value: value.clone(),
        origin: origin.clone(),
    };
    let documents = fields.iter().map(document).collect();
    let width = fields.iter().map(|(path, ..)| path.len()).max().unwrap_or(0);
    let line = |(path, value, origin): &(String, Value, String)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let from = if origins { format!("   # {origin}") } else { String::new() };
        format!("{path:<width$}  {value}{from}\n")
    };
    let text: String = fields.iter().map(line).collect();
    app.reporter.document(&EffectiveConfig { fields: documents }, &text);
    Ok(Ending::Quiet)
}

/// Compares the config that a change would start from with the one that the node was made with.
fn diff(app: &mut App) -> Result<Ending> {
    let (node, context) = app.look(&APPLY, &Choice::default())?;
    let applied = applied(&*node, &context.standing)?;
    let changes = SettingChange::between(&applied, &effective(&resolved(app, &context, &*node)?));
    let width = changes.iter().map(|change| change.path.len()).max().unwrap_or(0);
    let text = match changes.as_slice() {
        [] => "no difference: the current generation was made with this config\n".to_owned(),
        changes => changes.iter().map(|change| format!("{:<width$}  {change}\n", change.path)).collect(),
    };
    let result = RunResult::looked(!changes.is_empty(), format!("{} settings differ", changes.len()));
    app.reporter.document(&ConfigDiff { settings_diff: changes }, &text);
    Ok(Ending::Shown(Box::new(result)))
}

fn validate(files: &[PathBuf], app: &mut App) -> Result<Ending> {
    if files.is_empty() && app.global.config.is_empty() {
        return Err(Fault::new(Exit::Usage, "Usage", "no config to validate")
            .hint("name one: calicoctl-win config validate node.yaml")
            .into());
    }
    let mut sources = Sources::named(app, &Source::default());
    sources.files.extend_from_slice(files);
    sources.read(None, &Standing::default())?;
    let msg = "the config is valid; what depends on node and cluster is checked by: calicoctl-win preflight";
    app.reporter.document(&ConfigValidation { valid: true }, "valid");
    Ending::shown(Exit::Ok, msg)
}
