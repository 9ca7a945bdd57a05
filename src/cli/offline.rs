//! Verbs that need neither node nor cluster: `version`, `completion`, `options`, `explain`.

use anyhow::{Context, Result};
use clap_complete::env::Shells;
use serde_json::json;

use super::app::App;
use super::args::{Completion, Explain};
use super::command;
use super::{COMPLETE, Ending};
use crate::fault::{Exit, Fault};
use crate::report::explain;
use crate::report::reporter::Format;

pub(crate) fn version(app: &mut App) -> Result<Ending> {
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({ "version": version, "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS) });
    app.reporter.document("Version", &body, &format!("calicoctl-win {version}"));
    if app.reporter.format() == Format::Ndjson { Ending::shown(Exit::Ok, version) } else { Ok(Ending::Quiet) }
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
    app.reporter.raw(&command::global_options());
    Ok(Ending::Quiet)
}

pub(crate) fn explain(args: &Explain, app: &mut App) -> Result<Ending> {
    let mut page = explain::explain(&args.id).map(str::to_owned).or_else(|| field(&args.id));
    if let (Some(page), true) = (&mut page, args.id.eq_ignore_ascii_case("ClusterRights")) {
        page.push_str(&format!("\n\n{}", crate::cluster::rights_manifest()));
    }
    if let (Some(page), true) = (&mut page, args.id.eq_ignore_ascii_case("TokenRenewalForbidden")) {
        page.push_str(&format!("\n\n{}", crate::cluster::renewal_manifest("calico-system")));
    }
    let Some(page) = page else {
        let near =
            explain::did_you_mean(&args.id).first().map_or_else(String::new, |near| format!("did you mean {near}? "));
        return Err(Fault::new(Exit::Usage, "NothingToExplain", format!("there is no page about `{}`", args.id))
            .hint(format!("{near}ids stand in every error and in: calicoctl-win preflight -o json"))
            .into());
    };
    let body = json!({ "id": args.id, "text": page });
    app.reporter.document("Explanation", &body, &page);
    if app.reporter.format() == Format::Ndjson { Ending::shown(Exit::Ok, args.id.clone()) } else { Ok(Ending::Quiet) }
}

/// The page of a config field comes from the schema itself.
fn field(path: &str) -> Option<String> {
    let path = path.strip_prefix("spec.").unwrap_or(path);
    let field =
        crate::config::fields().find(|field| field.path.trim_start_matches("spec.").eq_ignore_ascii_case(path))?;
    Some(format!("{}: {}\n\n{}\n", field.path, field.takes, field.help))
}
