//! Verbs that need neither node nor cluster: `version`, `completion`, `options`, `explain`.

use anyhow::{Context, Result};
use clap_complete::env::Shells;

use super::args::{Completion, Explain};
use super::documents::{Explanation, Explanations, Version};
use super::{COMPLETE, Ending};
use super::{command, usage};
use crate::fault::{Exit, Fault};
use crate::preflight;
use crate::report::explain;
use crate::run::app::App;

/// Former names of what `explain` knows, besides those of checks.
const RENAMED: [(&str, &str); 2] = [("TrialTakenBack", "TrialReverted"), ("steady", "health-gate")];

pub(crate) fn version(app: &mut App) -> Result<Ending> {
    let version = env!("CARGO_PKG_VERSION");
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    app.reporter.document(&Version { version: version.into(), target }, &format!("calicoctl-win {version}"));
    Ok(Ending::Quiet)
}

pub(crate) fn completion(args: &Completion, app: &mut App) -> Result<Ending> {
    let name = "calicoctl-win";
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string()).context("find the shell")?;
    let mut script = Vec::new();
    shell.write_registration(COMPLETE, name, name, name, &mut script)?;
    app.reporter.raw(&String::from_utf8_lossy(&script));
    Ok(Ending::Quiet)
}

pub(crate) fn options(app: &mut App) -> Result<Ending> {
    usage::show(&command::global_options(), app.global.color);
    Ok(Ending::Quiet)
}

pub(crate) fn explain(args: &Explain, app: &mut App) -> Result<Ending> {
    let Some(asked) = &args.id else { return list(app) };
    let renamed =
        preflight::renamed(asked).or_else(|| RENAMED.into_iter().find(|row| row.0.eq_ignore_ascii_case(asked)));
    let id = renamed.map_or(asked.as_str(), |(_, current)| current);
    let exit = Exit::all().find(|exit| exit.code().to_string() == id || exit.name().eq_ignore_ascii_case(id));
    let id = if let Some(exit) = exit { exit.name() } else { id };
    // A phase can have the name of a section of the config.
    let pages = [explain::explain(id).map(str::to_owned), field(id).or_else(|| section(id)).or_else(|| named(id))];
    let mut page = pages.into_iter().flatten().reduce(|page, fields| format!("{page}\n\nIn the config:\n\n{fields}"));
    let calico = app.global.calico_namespace.as_deref();
    let namespace = calico.unwrap_or("calico-system");
    if let (Some(page), true) = (&mut page, id.eq_ignore_ascii_case("ClusterRights")) {
        page.push_str(&format!("\n\n{}", crate::cluster::rights_manifest(calico)));
    }
    if let (Some(page), true) = (&mut page, id.eq_ignore_ascii_case("VerifyRights")) {
        page.push_str(&format!("\n\n{}", crate::cluster::verify_manifest()));
    }
    if let (Some(page), true) = (&mut page, id.eq_ignore_ascii_case("TokenRenewalForbidden")) {
        page.push_str(&format!("\n\n{}", crate::cluster::renewal_manifest(namespace)));
    }
    if let (Some(page), true) = (&mut page, id.eq_ignore_ascii_case("NodeLogin")) {
        page.push_str(&format!("\n\n{}", crate::cluster::login_manifest(namespace)));
    }
    let Some(mut page) = page else {
        let fields: Vec<String> = crate::config::fields().map(|field| short(&field.path).to_owned()).collect();
        let near = explain::did_you_mean(id, fields.iter().map(String::as_str));
        let near = near.first().map_or_else(String::new, |near| format!("did you mean {near}? "));
        return Err(Fault::new(Exit::Usage, "NothingToExplain", format!("there is no page about `{id}`"))
            .hint(format!("{near}all of them are listed by: calicoctl-win explain"))
            .into());
    };
    if let Some(exit) = exit {
        page.insert_str(0, &format!("{} (exit {})\n\n", exit.name(), exit.code()));
    }
    if let Some((former, current)) = renamed {
        let note = format!("{former} is now named {current}. The next release does not accept the old name.\n\n");
        page.insert_str(0, &note);
    }
    app.reporter.document(&Explanation { id: id.into(), text: page.clone() }, &page);
    Ok(Ending::Quiet)
}

/// Lists everything that has a page.
fn list(app: &mut App) -> Result<Ending> {
    let ids: Vec<String> = explain::ids().map(str::to_owned).collect();
    let fields: Vec<String> = crate::config::fields().map(|field| short(&field.path).to_owned()).collect();
    let mut text = String::from("Checks, exit codes, events, errors and warnings:\n");
    ids.iter().for_each(|id| text.push_str(&format!("  {id}\n")));
    text.push_str("\nConfig fields:\n");
    fields.iter().for_each(|field| text.push_str(&format!("  {field}\n")));
    app.reporter.document(&Explanations { ids, fields }, &text);
    Ok(Ending::Quiet)
}

fn short(path: &str) -> &str {
    path.strip_prefix("spec.").unwrap_or(path)
}

/// Returns the page of a config field, from the schema.
fn field(path: &str) -> Option<String> {
    let field = crate::config::fields().find(|field| short(&field.path).eq_ignore_ascii_case(short(path)))?;
    Some(format!("{}: {}\n\n{}\n", field.path, field.takes, field.help))
}

/// Returns the pages of the config fields with this last name, for example `vxlanVNI`.
fn named(name: &str) -> Option<String> {
    let fields = crate::config::fields().map(|field| field.path);
    let pages: Vec<String> = fields
        .filter(|path| path.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case(name)))
        .filter_map(|path| field(&path))
        .collect();
    (!pages.is_empty()).then(|| pages.join("\n"))
}

/// Returns the fields of a section of the config.
fn section(path: &str) -> Option<String> {
    let start = format!("{}.", path.to_lowercase());
    let starts = |path: &str| path.to_lowercase().starts_with(&start);
    let fields = crate::config::fields().filter(|field| starts(&field.path) || starts(short(&field.path)));
    let first = |help: &str| help.split(". ").next().unwrap_or_default().replace('\n', " ");
    let lines: String =
        fields.map(|field| format!("{}: {}\n  {}\n", short(&field.path), field.takes, first(&field.help))).collect();
    (!lines.is_empty()).then_some(lines)
}
