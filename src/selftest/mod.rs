//! What the program assumes of Windows, proved on the machine at hand: a table of rows. Each asks Windows one thing,
//! and removes what it made for that.

mod boot;
pub mod child;
mod cleanup;
mod files;
mod firewall;
mod hns;
mod mask;
mod overlay;
mod processes;
mod registry;
pub mod report;
mod routes;
mod services;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::facts::NodeFacts;
use crate::fault::Fault;
use crate::item::IpConfig;
use crate::node::Node;
use crate::node::hns::Refusal;
use crate::report::answer::{Answer, Verdict};
use mask::Mask;
use report::{RowReport, Said, SelftestReport};

pub use cleanup::{FOLDER, Hold};

/// One assumption.
pub struct Row {
    pub id: &'static str,
    pub group: &'static str,
    /// What is asked of Windows, and which answer is right.
    pub asks: &'static str,
    /// What in the program depends on that answer.
    pub needed_for: &'static str,
    /// Whether a change of the VNI depends on it.
    pub bears_on_vni: bool,
    pub reach: Reach,
    run: fn(&mut TestContext<'_>) -> Result<Answer>,
}

/// What a row does to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// It only reads.
    Reads,
    /// It makes things under a test name and removes them.
    Changes,
    /// It interrupts the network of an adapter.
    Disrupts,
}

impl Reach {
    const fn word(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Changes => "makes and removes",
            Self::Disrupts => "interrupts an adapter",
        }
    }
}

/// This program as a row starts it.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its file on this host.
    pub path: PathBuf,
    /// What follows the words of a part: the sandbox and its faults.
    pub words: Vec<OsString>,
    /// Whether the node is this machine and not a sandbox.
    pub real: bool,
}

/// What the rows work on.
pub struct TestContext<'a> {
    pub node: &'a mut dyn Node,
    pub program: Program,
    /// The adapter whose network may be interrupted.
    pub adapter: Option<String>,
    /// The machine, measured once: that includes a question to HNS.
    facts: NodeFacts,
    said: Vec<Said>,
    /// HNS did not answer: it is not asked again, since each question would take half a minute.
    stuck: Option<Fault>,
    /// The adapter of the overlay rows, and its configuration before them.
    before: Option<(String, IpConfig)>,
}

impl<'a> TestContext<'a> {
    /// # Errors
    /// When the machine cannot be measured.
    pub fn new(node: &'a mut dyn Node, program: Program, adapter: Option<String>) -> Result<Self> {
        let facts = node.facts().context("measure the node")?;
        let stuck = facts.hns_stuck.clone();
        Ok(Self { node, program, adapter, facts, said: Vec::new(), stuck, before: None })
    }

    /// Remembers that HNS did not answer.
    fn note_stuck<T>(&mut self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && let Some(fault) = Fault::of(error).filter(|fault| fault.id == "HnsStuck")
        {
            self.stuck = Some(fault.clone());
        }
        answer
    }

    /// # Errors
    /// `HnsStuck`, if HNS did not answer before.
    fn check_hns(&self) -> Result<()> {
        self.stuck.clone().map_or(Ok(()), |stuck| Err(stuck.into()))
    }

    /// Asks HNS, and keeps what it said.
    fn ask_hns(&mut self, path: &str) -> Result<Result<Value, Refusal>> {
        self.check_hns()?;
        let answer = self.node.ask_hns(path);
        let answer = self.note_stuck(answer)?;
        self.said.push(Said {
            path: path.to_owned(),
            output: answer.as_ref().ok().cloned().unwrap_or_default(),
            error: answer.as_ref().err().map(|refusal| format!("{:#010X}", refusal.code.unwrap_or_default())),
        });
        Ok(answer)
    }
}

/// Every row, in the order in which they run.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let reading = boot::ROWS.iter().chain(hns::ROWS);
    let changing = services::ROWS.iter().chain(registry::ROWS).chain(files::ROWS).chain(processes::ROWS);
    reading.chain(changing).chain(firewall::ROWS).chain(routes::ROWS).chain(overlay::ROWS)
}

/// Runs the rows up to a reach. First removes what an interrupted run left, and at the end what rows could not remove.
/// `tell` gets each row as it ends.
pub fn run(context: &mut TestContext<'_>, reach: Reach, tell: &mut dyn FnMut(&RowReport)) -> SelftestReport {
    let mut mask = Mask::new(&context.facts);
    let removed = if reach > Reach::Reads { cleanup::everything(context) } else { Vec::new() };
    let mut reports = Vec::new();
    for row in rows().filter(|row| row.reach <= reach) {
        let said = context.said.len();
        let begun = context.node.now();
        let answer = (row.run)(context).unwrap_or_else(|error| Answer::Fails(format!("{error:#}")));
        let took = context.node.now().duration_since(begun);
        // Each row of an overlay network uses what the previous one created.
        if row.reach == Reach::Changes {
            cleanup::group(context, row.group);
        }
        context.said[said..].iter_mut().for_each(|said| said.output = mask.document(&said.output));
        let report = RowReport::new(row, answer, &mut mask, took);
        tell(&report);
        reports.push(report);
    }
    let left = if reach > Reach::Reads { cleanup::rest(context) } else { Vec::new() };
    let hns = std::mem::take(&mut context.said);
    let [removed, left] = [removed, left].map(|all| all.iter().map(|text| mask.text(text)).collect());
    SelftestReport::new(&context.facts, reach, reports, hns, removed, left)
}

/// The table as a Markdown document, which is `docs/selftest.md`: the rows, then a section for each, which `explain`
/// shows.
pub fn document() -> String {
    let mut text = String::from(include_str!("intro.md"));
    text.push_str("\n| row | group | what it does | bears on the VNI | what depends on it |\n|---|---|---|---|---|\n");
    for row in rows() {
        let vni = if row.bears_on_vni { "yes" } else { "" };
        let line = format!("| `{}` | {} | {} | {vni} | {} |\n", row.id, row.group, row.reach.word(), row.needed_for);
        text.push_str(&line);
    }
    for row in rows() {
        let vni = if row.bears_on_vni { " A change of the VNI depends on it." } else { "" };
        text.push_str(&format!(
            "\n## {}\nA row of `calicoctl-win selftest`, group {} ({}). It proves: {}.\n\nWhat depends on it: {}.{vni}\n",
            row.id,
            row.group,
            row.reach.word(),
            row.asks,
            row.needed_for
        ));
    }
    text
}

/// Whether every row that was not skipped holds.
pub fn holds(report: &SelftestReport) -> bool {
    report.rows.iter().all(|row| row.verdict != Verdict::Fail)
}
