//! `config import`: creates a config from an installation by upstream's scripts.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use crate::config::import::{self, Imported, Source};
use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::Format;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::import::{bytes, live};

pub(crate) fn run(file: Option<&Path>, out: Option<&Path>, app: &mut App) -> Result<Ending> {
    let (imported, name) = match file {
        Some(file) => {
            let name = file.display().to_string();
            let text = import::decode(&name, &bytes(file, &name)?)?;
            (import::import(&text, &Source::file(&name))?, name)
        }
        None => {
            let node = app.node()?;
            (live(&*node)?, "this node".to_owned())
        }
    };
    show(&imported, &name, out, app)
}

/// Prints the document, or writes it. A file is written only if everything could be read.
fn show(imported: &Imported, name: &str, out: Option<&Path>, app: &mut App) -> Result<Ending> {
    let text = imported.text(name);
    let whole = imported.unread.is_empty();
    if let (Some(out), true) = (out, whole) {
        if app.global.is_dry_run() {
            return app.would(format!("write {}", out.display()));
        }
        write_new(out, &text)?;
        for difference in &imported.differences {
            app.warn("ImportDifference", difference.text.clone());
        }
        for note in &imported.notes {
            app.reporter.tell(&format!("{note}"));
        }
        let msg = format!("wrote {} from {name}", out.display());
        app.reporter.tell(&msg);
        let mut result = RunResult::new(Exit::Ok, false, msg);
        result.next = vec![app.command(&format!("plan -c {}", out.display()))];
        return Ending::result(result);
    }
    let exit = if whole { Exit::Ok } else { Exit::InvalidConfig };
    if app.reporter.format() == Format::Text {
        app.reporter.raw(&text);
        return if whole { Ok(Ending::Quiet) } else { Err(not_all_read(imported, name)) };
    }
    app.reporter.document(imported, "");
    Ending::shown(exit, if whole { "read" } else { "not all could be read" })
}

fn not_all_read(imported: &Imported, name: &str) -> anyhow::Error {
    let lines: Vec<String> = imported.unread.iter().map(ToString::to_string).collect();
    Fault::new(Exit::InvalidConfig, "ConfigPs1NotRead", format!("not all of {name} could be read"))
        .hint("write these lines in plain words (`$env:NAME = \"value\"`) in a copy and read that, or complete what is printed by hand")
        .because(anyhow::anyhow!("{}", lines.join("\n")))
}

/// Writes a file that must not exist yet.
pub(super) fn write_new(file: &Path, text: &str) -> Result<()> {
    let mut new = File::create_new(file).map_err(|error| {
        let what = format!("cannot write {}", file.display());
        if error.kind() != ErrorKind::AlreadyExists {
            return anyhow::Error::new(error).context(what);
        }
        Fault::new(Exit::FileExists, "FileExists", what)
            .hint("an existing file is never overwritten: choose another name or move it away")
            .because(error)
    })?;
    std::io::Write::write_all(&mut new, text.as_bytes()).with_context(|| format!("write {}", file.display()))
}
