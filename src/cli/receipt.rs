//! `receipt`: the generations of this node, and what each consists of.

use anyhow::Result;

use super::args::Receipt as Verb;
use super::table::table;
use crate::apply::receipt::Receipt;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::fault::Exit;
use crate::item::State;
use crate::node::Node;
use crate::plan::show;
use crate::report::document::{Generation, Generations};
use crate::report::time::{columns, since};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::generations::{installed, no_such};

pub(crate) fn run(verb: &Verb, app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let standing = Standing::load(&*node)?;
    for (_, why) in &standing.unreadable {
        app.warn("ReceiptUnreadable", why.clone());
    }
    match verb {
        Verb::List => list(app, &*node, &standing),
        Verb::Show { generation } => {
            let receipt = match generation {
                None => installed(&standing)?,
                Some(number) => named(&standing, *number)?,
            };
            let masked = masked(receipt);
            let text = text(receipt, &line(&*node, &standing, receipt)?);
            app.reporter.document(&masked, &text);
            Ending::shown(Exit::Ok, format!("generation {}", receipt.generation))
        }
    }
}

/// A receipt without what may be secret.
pub(super) fn masked(receipt: &Receipt) -> Receipt {
    let mut masked = receipt.clone();
    for state in masked.owned.values_mut().flatten().chain(masked.target.world.values_mut()) {
        *state = show::masked(state);
    }
    masked
}

/// Returns the receipt of a generation.
///
/// # Errors
/// `NoSuchGeneration`, with the existing ones.
fn named(standing: &Standing, number: u32) -> Result<&Receipt> {
    let found = standing.receipts.iter().find(|receipt| receipt.generation == number);
    found.ok_or_else(|| no_such(standing, &format!("generation {number}")).into())
}

fn list(app: &mut App, node: &dyn Node, standing: &Standing) -> Result<Ending> {
    let lines = standing.receipts.iter().map(|receipt| line(node, standing, receipt));
    let document = Generations { generations: lines.collect::<Result<_>>()? };
    let mut table = table(["GEN", "FINISHED", "AGE", "COMMAND", "CALICO", "BACKEND", "VNI", "STATE"]);
    for line in &document.generations {
        let note = match (line.standing, line.can_go_back) {
            (true, _) => "current",
            (false, true) => "kept",
            (false, false) => "",
        };
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let [finished, age] = columns(line.finished);
        table.add_row([
            line.generation.to_string(),
            finished,
            age,
            line.command.clone(),
            or_none(&line.calico_version),
            or_none(&line.backend),
            or_none(&line.vni.map(|vni| vni.to_string())),
            note.to_owned(),
        ]);
    }
    let text = if document.generations.is_empty() {
        "Nothing was ever installed here by this tool.".to_owned()
    } else {
        table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    app.reporter.document(&document, &text);
    Ending::shown(Exit::Ok, format!("{} generations", document.generations.len()))
}

fn line(node: &dyn Node, standing: &Standing, receipt: &Receipt) -> Result<Generation> {
    let about = receipt.about.as_ref();
    let stands = standing.receipt().is_some_and(|now| now.generation == receipt.generation);
    Ok(Generation {
        generation: receipt.generation,
        finished: receipt.finished,
        run: receipt.run.clone(),
        command: receipt.command.clone(),
        calico_version: about.map(|about| about.calico_version.to_string()),
        backend: about.map(|about| about.backend.name().to_owned()),
        vni: about.map(|about| about.vni.get()),
        node_name: about.map(|about| about.node_name.to_string()),
        standing: stands,
        can_go_back: !stands && about.is_some() && is_complete(node, receipt)?,
    })
}

/// Whether everything that a generation consists of is in the store, or in place.
fn is_complete(node: &dyn Node, receipt: &Receipt) -> Result<bool> {
    for (id, state) in &receipt.target.world {
        let bytes = matches!(state, State::File { .. } | State::Tree(_));
        if bytes && !store::holds(node, state) && node.get(id)?.as_ref() != Some(state) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn text(receipt: &Receipt, line: &Generation) -> String {
    let mut text = format!(
        "Generation {} by {} (run {}), {}\n",
        receipt.generation,
        receipt.command,
        receipt.run,
        since(receipt.finished)
    );
    match &receipt.about {
        None => text.push_str("Nothing is installed.\n"),
        Some(about) => {
            text.push_str(&format!(
                "Calico {} ({}, VNI {}) on {}, from {}\n",
                about.calico_version,
                about.backend.name(),
                about.vni,
                about.node_name,
                about.source
            ));
            let back = if line.standing {
                "It is current.".to_owned()
            } else if line.can_go_back {
                format!("Return to it: calicoctl-win rollback --to {}", receipt.generation)
            } else {
                "Its files are not kept any more.".to_owned()
            };
            text.push_str(&back);
            text.push('\n');
        }
    }
    for (id, state) in &receipt.target.world {
        text.push_str(format!("  {id}  {}", show::state(state)).trim_end());
        text.push('\n');
    }
    let before = receipt.owned.iter().filter_map(|(id, original)| Some((id, original.as_ref()?)));
    let before: Vec<String> =
        before.map(|(id, state)| format!("  {id}  {}", show::state(state)).trim_end().to_owned()).collect();
    if !before.is_empty() {
        text.push_str(&format!("What was there before, and comes back with uninstall:\n{}\n", before.join("\n")));
    }
    text
}
