//! `config init|show|validate|schema`; `config import` is in [`super::import`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::args::Config;
use super::documents::{ConfigDiff, ConfigValidation, EffectiveConfig, EffectiveField};
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::cluster::Checks;
use crate::config::{self, FieldHelp};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::show::{SettingChange, shown};
use crate::report::document::{API_VERSION, RunResult};
use crate::report::reporter::Format;
use crate::report::text::harmless;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::context::{Context, gather};
use crate::run::generations::installed;
use crate::run::options::Source;
use crate::run::prepare::effective;
use crate::run::sources::{Choice, Sources};
use crate::run::verb::{APPLY, PREFLIGHT};
use crate::settings::Resolved;
use crate::yaml;

pub(crate) fn run(verb: &Config, app: &mut App) -> Result<Ending> {
    match verb {
        Config::Init { file, full } => init(file.as_deref(), *full, app),
        Config::Import { file, live: _, out } => super::import::run(file.as_deref(), out.as_deref(), app),
        Config::Show { origins, applied } => {
            // Text is a document too: warnings are comments in it.
            app.reporter.only_documents();
            if *applied { show_applied(app) } else { show(*origins, app) }
        }
        Config::Diff => diff(app),
        Config::Validate { files } => validate(files, app),
        Config::Schema => {
            app.reporter.raw(&format!("{:#}\n", config::schema()));
            Ok(Ending::Quiet)
        }
    }
}

fn init(file: Option<&Path>, full: bool, app: &mut App) -> Result<Ending> {
    let text = if full { config::template() } else { config::START.into() };
    let Some(file) = file else {
        match app.reporter.format() {
            Format::Text | Format::Yaml => app.reporter.raw(&text),
            // The config itself, without the fields of this program's own documents.
            Format::Json => {
                let config: Value = yaml::read(&text).context("read the template")?;
                app.reporter.raw(&format!("{config:#}\n"));
            }
            Format::Ndjson | Format::Junit | Format::Dsc => {
                let fault = Fault::new(Exit::Usage, "Usage", "a config is one document, of text, YAML or JSON");
                return Err(fault.hint("name a file for it: calicoctl-win config init node.yaml").into());
            }
        }
        return Ok(Ending::Quiet);
    };
    if app.global.is_dry_run() {
        return app.would(format!("write {}", file.display()));
    }
    super::import::write_new(file, &text)?;
    app.done(false, format!("wrote {}", file.display()))
}

/// Returns the effective config, which needs the node, and the cluster if it answers.
fn resolved(app: &mut App, context: &Context, node: &dyn Node) -> Result<Resolved> {
    let known = gather(app, context, node, false, Checks::All)?.or_unread()?;
    if let Err(error) = known.cluster {
        app.warn("ClusterNotAsked", format!("shown without what the cluster says: {error:#}"));
    }
    known.resolved
}

fn show(origins: bool, app: &mut App) -> Result<Ending> {
    let (node, context) = match app.look(&PREFLIGHT, &Choice::default()) {
        Err(error) if Fault::id_of(&error) == "NotWindows" => return show_named(origins, app),
        looked => looked?,
    };
    let fields = resolved(app, &context, &*node)?.origins;
    let fields: Vec<_> = fields
        .iter()
        .map(|field| (field.path.clone(), shown(&field.path, &field.value), field.from.to_string()))
        .collect();
    show_fields(app, &fields, origins)
}

/// Shows what files, variables and flags set: on a workstation nothing else is known.
fn show_named(origins: bool, app: &mut App) -> Result<Ending> {
    let layered = Sources::named(app, &Source::default()).read(None, &Standing::default())?;
    app.warn("DefaultsNotShown", "this machine is not Windows: fields without a value depend on the node");
    let named = |FieldHelp { path, .. }| {
        let (value, origin) = (layered.value(&path)?, layered.origin(&path)?);
        Some((shown(&path, &value), origin.to_string(), path))
    };
    let fields: Vec<_> =
        config::fields().filter_map(named).map(|(value, origin, path)| (path, value, origin)).collect();
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
    if app.reporter.is_text() {
        let notes: String = app.record().warnings.iter().map(|warning| format!("# {warning}\n")).collect();
        app.reporter.raw(&harmless(&(notes + &as_yaml(fields, origins)?)));
        return Ok(Ending::Quiet);
    }
    let document = |(path, value, origin): &(String, Value, String)| EffectiveField {
        path: path.clone(),
        value: value.clone(),
        origin: origin.clone(),
    };
    app.reporter.document(&EffectiveConfig { fields: fields.iter().map(document).collect() }, "");
    Ending::shown(Exit::Ok, "shown")
}

/// The fields, sorted by their paths, as a document; with each value's origin as a comment.
fn as_yaml(fields: &[(String, Value, String)], origins: bool) -> Result<String> {
    let mut text = format!("apiVersion: {API_VERSION}\nkind: NodeInstallation\n");
    let mut sections: Vec<&str> = Vec::new();
    for (path, value, origin) in fields {
        let mut names: Vec<&str> = path.split('.').collect();
        let name = names.pop().unwrap_or_default();
        let known = names.iter().zip(&sections).take_while(|(one, other)| one == other).count();
        for (depth, section) in names.iter().enumerate().skip(known) {
            text.push_str(&format!("{:depth$}{section}:\n", "", depth = 2 * depth));
        }
        // Lists and objects are on one line, as JSON.
        let value = if value.is_string() { serde_yaml::to_string(value)? } else { value.to_string() };
        let from = if origins { format!("   # {origin}") } else { String::new() };
        text.push_str(&format!("{:depth$}{name}: {}{from}\n", "", value.trim_end(), depth = 2 * names.len()));
        sections = names;
    }
    Ok(text)
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
