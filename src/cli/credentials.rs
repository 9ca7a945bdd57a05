//! `credentials show|fetch|rotate`.

use anyhow::Result;

use super::args::Credentials as Verb;
use super::table::{lines, table};
use crate::fault::Exit;
use crate::report::document::CredentialsReport;
use crate::report::time::at;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::credentials;
use crate::run::rotate;

pub(crate) fn run(verb: &Verb, app: &mut App) -> Result<Ending> {
    match verb {
        Verb::Show => show(app),
        Verb::Fetch { out } => credentials::fetch(out, app),
        Verb::Rotate => rotate::rotate(app),
    }
}

/// Shows the credentials, read from the files now.
fn show(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let (credentials, is_renewed) = credentials::measured(&*node)?;
    let report = CredentialsReport { credentials };
    let mut table = table(["KIND", "SUBJECT", "EXPIRES", "ORIGIN", "PATH"]);
    for one in &report.credentials {
        let expires = one.expires.map_or_else(|| "never".to_owned(), at);
        let (subject, origin) = (one.subject.clone().unwrap_or_default(), one.origin.clone());
        table.add_row([one.kind.clone(), subject, expires, origin, one.path.clone()]);
    }
    let mut text = lines(&table) + "\n";
    for one in &report.credentials {
        if let Some(from) = one.renewed_from {
            text.push_str(&match is_renewed {
                true => format!("CalicoNode runs, and asks for another token in {} from {} on\n", one.path, at(from)),
                false => format!("CalicoNode does not run: nothing renews {}, due from {} on\n", one.path, at(from)),
            });
        }
        for problem in &one.problems {
            text.push_str(&format!("! {}: {problem}\n", one.path));
        }
    }
    if report.credentials.is_empty() {
        text = "this node has no credentials: its datastore is etcd, without TLS\n".into();
    }
    let wrong = report.credentials.iter().any(|one| !one.problems.is_empty());
    app.reporter.document(&report, &text);
    if wrong {
        Ending::shown(Exit::Unhealthy, "a credential needs attention")
    } else {
        Ending::shown(Exit::Ok, "shown")
    }
}
