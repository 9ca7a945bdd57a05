//! `config init|show|validate|schema`; `config import` is in [`super::import`].

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Ending;
use super::app::App;
use super::args::{Config, Source};
use super::prepare::cluster_facts;
use crate::config;
use crate::fault::{Exit, Fault};
use crate::report::reporter::Format;
use crate::settings;

pub(crate) fn run(verb: &Config, app: &mut App) -> Result<Ending> {
    match verb {
        Config::Init { file } => init(file.as_deref(), app),
        Config::Import { file, live: _, out } => super::import::run(file.as_deref(), out.as_deref(), app),
        Config::Show { origins } => show(*origins, app),
        Config::Validate { files } => validate(files, app),
        Config::Schema => {
            app.reporter.raw(config::schema());
            Ok(Ending::Quiet)
        }
    }
}

fn init(file: Option<&Path>, app: &mut App) -> Result<Ending> {
    let Some(file) = file else {
        app.reporter.raw(config::template());
        return Ok(Ending::Quiet);
    };
    if app.global.dry_run {
        return app.would(format!("write {}", file.display()));
    }
    write_new(file, config::template())?;
    let msg = format!("wrote {}", file.display());
    app.reporter.tell(&msg);
    Ending::result(crate::report::document::RunResult::new(Exit::Ok, true, msg))
}

/// Writes a file that is not there yet.
pub(super) fn write_new(file: &Path, text: &str) -> Result<()> {
    let mut new = std::fs::File::create_new(file).map_err(|error| {
        let fault = Fault::new(Exit::Conflict, "FileExists", format!("cannot write {}", file.display()))
            .hint("an existing file is never overwritten: choose another name or move it away");
        anyhow::Error::new(error).context(fault)
    })?;
    std::io::Write::write_all(&mut new, text.as_bytes()).with_context(|| format!("write {}", file.display()))
}

/// The effective config needs the node, and the cluster as far as it answers.
fn show(origins: bool, app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let layered = app.config(&*node, &Source::default(), &[])?;
    let node_facts = app.measure(&*node, &layered)?;
    let connection = settings::connection(&layered, node_facts.cloud.as_ref())?;
    let cluster = app
        .cluster(&*node, &connection)
        .and_then(|cluster| cluster_facts(&cluster, &layered, &connection, &node_facts));
    let cluster = cluster
        .map_err(|error| app.warn("ClusterNotAsked", format!("shown without what the cluster says: {error:#}")))
        .ok();
    let resolved = settings::resolve(&layered, &node_facts, cluster.as_ref())?;
    let fields: Vec<_> = resolved
        .origins
        .iter()
        .map(|field| json!({ "path": field.path, "value": shown(field), "origin": field.from.to_string() }))
        .collect();
    let width = resolved.origins.iter().map(|field| field.path.len()).max().unwrap_or(0);
    let line = |field: &settings::FieldOrigin| {
        let value = shown(field);
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let from = if origins { format!("   # {}", field.from) } else { String::new() };
        format!("{:<width$}  {value}{from}\n", field.path)
    };
    let text: String = resolved.origins.iter().map(line).collect();
    app.reporter.document("EffectiveConfig", &json!({ "fields": fields }), &text);
    if app.reporter.format() == Format::Ndjson { Ending::shown(Exit::Ok, "shown") } else { Ok(Ending::Quiet) }
}

/// A field's value for the screen. Among the services' extra variables there may be a password.
fn shown(field: &settings::FieldOrigin) -> Value {
    let mut value = field.value.clone();
    if field.path == "spec.services.extraEnv"
        && let Some(variables) = value.as_object_mut()
    {
        variables.values_mut().for_each(|value| *value = "***".into());
    }
    value
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
