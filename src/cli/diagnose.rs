//! `diagnose`: collects what explains a problem into a zip.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Value, json};

use super::args::Diagnose;
use super::components::LogOf;
use super::{history, logs, network, preflight, receipt};
use crate::agent::logs::rotated_files;
use crate::apply::journal::{Header, Journal};
use crate::apply::receipt::Receipt;
use crate::apply::standing::Standing;
use crate::calico::kube_proxy;
use crate::diagnose::{Bundle, Diagnosis, Page, RunLog, Tail, redact};
use crate::facts::{ApiGroup, Facts};
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::event_log::LoggedEvent;
use crate::node::{Listing, Node, files};
use crate::plan::show::masked;
use crate::report::document::{Failure, PlanDocument, envelope};
use crate::report::text::harmless;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::checks::Round;
use crate::run::context::Operation;
use crate::run::node_status::measure;
use crate::run::open::{check_elevated, machine};
use crate::run::options::DrainFlags;
use crate::run::prepare::{Prepared, prepare};
use crate::run::records;
use crate::run::sources::Choice;
use crate::run::stage::Purpose;
use crate::run::verb::APPLY;
use crate::values::count;

/// The end of each log that is collected: a service writes 10 MiB before its log is rotated.
const LOG_BYTES: u64 = 1 << 20;
/// The lines of it on the page.
const LOG_LINES: usize = 60;
/// The logs of runs that are collected, the newest.
const RUNS: usize = 10;

/// Zips of one second that get names of their own.
const MOST_OF_A_SECOND: usize = 99;

pub(crate) fn run(args: &Diagnose, app: &mut App) -> Result<Ending> {
    let mut node = app.node()?;
    // Only administrators may read the logs and records.
    check_elevated(node.caller().elevated)?;
    let checked = preflight::once(app, &mut *node);
    let at = node.now();
    let mut bundle = Bundle::default();
    let status = collected(&mut bundle, "status.json", measure(app, &*node), envelope);
    let history = collected(&mut bundle, "history.json", history::recorded(&*node), envelope);
    let facts = checked.as_ref().map_or_else(|_| node.facts(), |round| Ok(round.known.facts.clone()));
    let cluster = checked.as_ref().ok().and_then(|round| round.known.cluster.as_ref().ok().cloned());
    let facts = collected(&mut bundle, "facts.json", facts, |facts| Facts { node: facts.clone(), cluster });
    match &checked {
        Ok(round) => {
            bundle.json("preflight.json", Ok(envelope(&round.report)));
            cluster_of(&*node, round, &mut bundle);
            plan_of(app, &mut *node, round, &mut bundle);
        }
        Err(error) => {
            let why = format!("{error:#}");
            ["preflight.json", "plan.json", "cluster"].iter().for_each(|name| bundle.missing(name, &why));
        }
    }
    let report = checked.as_ref().ok().map(|round| &round.report);
    records_of(&*node, &mut bundle);
    let stuck = facts.as_ref().and_then(|facts| facts.hns_stuck.as_ref());
    machine_of(&*node, stuck, &mut bundle);
    let events = events_of(&*node, &mut bundle);
    let (tails, runs) = logs_of(&*node, &mut bundle);
    // What cannot be read is missing in the zip already.
    let answers = stuck.is_none();
    let networks = Standing::load(&*node).ok().filter(|_| answers);
    let networks = networks.and_then(|standing| network::inventory(&*node, &standing).ok()).unwrap_or_default();

    let line = facts.as_ref().map(machine);
    let host = facts.as_ref().map_or("node", |facts| &facts.host_name);
    let name = status.as_ref().and_then(|status| status.node.as_ref()).map_or(host, |node| &node.name);
    let endpoints = if answers { node.endpoints().unwrap_or_default() } else { Vec::new() };
    let missing = bundle.all_missing().to_vec();
    let page = Page {
        node: name,
        at,
        machine: line.as_deref().map(|line| line.split_once(": ").map_or(line, |(_, machine)| machine)),
        status: status.as_ref(),
        preflight: report,
        history: &history.unwrap_or_default(),
        endpoints: &endpoints,
        networks: &networks,
        adapters: facts.as_ref().map_or(&[], |facts| &facts.adapters),
        events: &events,
        runs: &runs,
        logs: &tails,
        missing: &missing,
    };
    let causes = page.causes();
    bundle.text("report.html", &page.html());

    let usual = format!("calicoctl-win-{host}-{}", at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%S"));
    let (mut stem, mut number) = (usual.clone(), 1);
    let (path, opened) = loop {
        let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.zip")));
        let opened = OpenOptions::new().write(true).create_new(true).open(&path);
        // Another one of the same second.
        let is_taken = opened.as_ref().is_err_and(|cause| cause.kind() == ErrorKind::AlreadyExists);
        if args.out.is_some() || !is_taken || number == MOST_OF_A_SECOND {
            break (path, opened);
        }
        number += 1;
        stem = format!("{usual}-{number}");
    };
    let file = opened.map_err(|cause| {
        let (exit, id) = match cause.kind() {
            ErrorKind::AlreadyExists => (Exit::FileExists, "FileExists"),
            _ => (Exit::Failed, "DiagnosisNotWritten"),
        };
        let fault = Fault::new(exit, id, format!("cannot write {}", path.display()))
            .hint("name a file that does not exist, in a folder that does: --out FILE");
        anyhow::Error::new(cause).context(fault)
    })?;
    bundle.write(file, &stem, at).with_context(|| format!("write {}", path.display()))?;

    let files = bundle.names();
    let diagnosis = Diagnosis { path: path.display().to_string(), files, missing, causes };
    app.reporter.document(&diagnosis, &text(&diagnosis, &stem, status.is_some()));
    Ending::shown(Exit::Ok, format!("written: {}", diagnosis.path))
}

/// Adds a part as JSON, and returns it; or says why it is missing.
fn collected<T, D: Serialize>(
    bundle: &mut Bundle,
    name: &str,
    part: Result<T>,
    shown: impl FnOnce(&T) -> D,
) -> Option<T> {
    match part {
        Ok(part) => {
            bundle.json(name, Ok(shown(&part)));
            Some(part)
        }
        Err(error) => {
            bundle.missing(name, &Failure::new(&error).line());
            None
        }
    }
}

/// `measured`: the node's status is known.
fn text(diagnosis: &Diagnosis, stem: &str, measured: bool) -> String {
    let mut text = match diagnosis.causes.as_slice() {
        [] if !measured => "The node could not be measured.\n".to_owned(),
        [] => "Nothing that was looked at is wrong.\n".to_owned(),
        causes => format!("Wrong: {}\n", causes.join(", ")),
    };
    for missing in &diagnosis.missing {
        text.push_str(&format!("Not collected: {}: {}\n", missing.file, missing.why));
    }
    let files = count(diagnosis.files.len(), "file");
    text + &format!(
        "{files} in {}; read {stem}/report.html first. Secrets are removed; names and addresses are not.\n",
        diagnosis.path
    )
}

/// Receipts, the journal of an interrupted run, and how runs ended.
fn records_of(node: &dyn Node, bundle: &mut Bundle) {
    let receipts = match Standing::load(node) {
        Ok(standing) => standing.receipts,
        Err(error) => {
            bundle.json("receipts", Err::<(), _>(error));
            Vec::new()
        }
    };
    for receipt in &receipts {
        bundle.json(&format!("receipts/{}.json", receipt.generation), Ok(receipt::masked(receipt)));
    }
    match Journal::load(node) {
        Ok(Some(journal)) => {
            bundle.json("journal.json", Ok(told(&journal, &receipts)));
        }
        Ok(None) => {}
        Err(error) => bundle.json("journal.json", Err::<(), _>(error)),
    }
    bundle.json("runs.json", records::all(node));
}

/// What a journal says: the run, and each step that it began, with the state of its item before and the wanted one.
fn told(journal: &Journal, receipts: &[Receipt]) -> Value {
    let Header { run, command, from, started, terms, target, .. } = &journal.header;
    let former = receipts.iter().find(|receipt| Some(receipt.generation) == *from);
    let steps = journal.steps.iter().map(|(n, of, id)| {
        // What a generation has already is not in the journal.
        let before = journal.originals.get(id).and_then(Option::as_ref);
        let before = before.or_else(|| former.and_then(|receipt| receipt.target.world.get(id)));
        let (before, wanted) = (before.map(masked), target.world.get(id).map(masked));
        json!({ "n": n, "of": of, "id": id.to_string(), "before": before, "wanted": wanted })
    });
    json!({
        "at": journal.to_string(), "run": run, "command": command, "from": from, "started": started,
        "at_boot": terms.at_boot, "drains": terms.drain.is_some(), "steps": steps.collect::<Vec<_>>(),
    })
}

/// The cluster's objects that the node's network follows.
fn cluster_of(node: &dyn Node, round: &Round, bundle: &mut Bundle) {
    let facts = &round.known.cluster;
    if let Err(error) = facts
        && !["ClusterForbidden", "ClusterRights"].contains(&Fault::id_of(error))
    {
        return bundle.missing("cluster", &Failure::new(error).line());
    }
    // A user who may not read one of them may read others.
    let group = facts.as_ref().map_or(ApiGroup::V1, |facts| facts.api_group);
    let context = &round.context;
    let found = context.node_name(node).and_then(|name| Ok(context.cluster(node)?.network_objects(group, &name)));
    match found {
        Ok(found) => found.into_iter().for_each(|(plural, read)| bundle.json(&format!("cluster/{plural}.json"), read)),
        Err(error) => bundle.missing("cluster", &format!("{error:#}")),
    }
}

/// What `apply` would do now with the config of the current generation, if no other is named: as a document and as a
/// text. Nothing is downloaded for it.
fn plan_of(app: &mut App, node: &mut dyn Node, round: &Round, bundle: &mut Bundle) {
    if let Err(error) = &round.known.cluster {
        return bundle.missing("plan.json", &Failure::new(error).line());
    }
    app.global.offline = true;
    let (prepared, warnings) = app.unheard(|app| {
        let context = app.context(node, &APPLY, &Choice::default())?;
        let op = &mut Operation { app, context: &context, node, row: &APPLY };
        prepare(op, None, (None, &DrainFlags::default()), Purpose::Look)
    });
    match prepared {
        Ok(Prepared { planned, .. }) => {
            let text = planned.plan.text(true);
            bundle.json("plan.json", Ok(envelope(&PlanDocument { plan: planned.plan, warnings })));
            bundle.text("plan.txt", &text);
        }
        Err(error) => {
            bundle.missing("plan.json", &format!("planned without a download: {}", Failure::new(&error).line()));
        }
    }
}

/// What Windows and HNS have. `stuck`: HNS is not asked, because it does not answer.
fn machine_of(node: &dyn Node, stuck: Option<&Fault>, bundle: &mut Bundle) {
    for (name, path) in [("networks", "/networks/"), ("endpoints", "/endpoints/"), ("policylists", "/policylists/")] {
        let said = stuck.map_or_else(|| node.ask_hns(path), |stuck| Err(stuck.clone().into()));
        let said = said.and_then(|said| said.map_err(|refusal| anyhow!("HNS: {}", refusal.text)));
        bundle.json(&format!("hns/{name}.json"), said);
    }
    let kinds = [
        ("routes", Listing::Routes),
        ("adapters", Listing::Adapters),
        ("services", Listing::Services),
        ("firewall-rules", Listing::FirewallRules),
    ];
    for (name, kind) in kinds {
        let items = node.list(kind).map(|items| {
            items
                .iter()
                .map(|(id, state)| json!({ "id": id.to_string(), "state": masked(state) }))
                .collect::<Vec<Value>>()
        });
        bundle.json(&format!("{name}.json"), items);
    }
    let kube_proxy = node.get(&Id::Service(kube_proxy::NAME.into()));
    if let Ok(Some(State::Service(service))) = &kube_proxy
        && let Some(file) = kube_proxy::config_file(service)
    {
        match std::fs::read_to_string(node.disk(&file)) {
            Ok(text) => drop(bundle.text("kube-proxy.yaml", &text)),
            Err(error) => bundle.missing("kube-proxy.yaml", &format!("read {file}: {error}")),
        }
    }
}

/// What Windows has recorded of Calico. Returns it without secrets.
fn events_of(node: &dyn Node, bundle: &mut Bundle) -> Vec<LoggedEvent> {
    let events = match node.events() {
        Ok(events) => events,
        Err(error) => {
            bundle.json("events.json", Err::<(), _>(error));
            return Vec::new();
        }
    };
    bundle.json("events.json", Ok(&events));
    events.into_iter().map(|event| LoggedEvent { text: redact(&event.text).into_owned(), ..event }).collect()
}

/// The ends of all logs, rotated ones too. Returns the last lines of those that are written now, and the runs' logs.
fn logs_of(node: &dyn Node, bundle: &mut Bundle) -> (Vec<Tail>, Vec<RunLog>) {
    let mut runs = logs::files(node, Some(LogOf::Tool));
    let old = runs.len().saturating_sub(RUNS);
    let newest = runs.split_off(old);
    let (mut tails, mut of_runs) = (Vec::new(), Vec::new());
    for log in logs::files(node, None).into_iter().chain(newest.iter().cloned()) {
        for path in rotated_files(&log).into_iter().chain([log.clone()]) {
            let name = format!("logs/{}", path.file_name().unwrap_or_default().to_string_lossy());
            let end = match end_of(&path) {
                Ok(end) => end,
                Err(error) => {
                    bundle.json(&name, Err::<(), _>(error));
                    continue;
                }
            };
            let text = bundle.text(&name, &end);
            if newest.contains(&path) {
                let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                of_runs.push(RunLog { run, text: text.to_owned() });
            }
            if path == log && !text.is_empty() {
                let lines: Vec<String> = text.lines().rev().take(LOG_LINES).map(harmless).collect();
                let text = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
                tails.push(Tail { file: name, text });
            }
        }
    }
    (tails, of_runs)
}

/// The end of a log, from the start of a line.
fn end_of(path: &Path) -> Result<String> {
    let is_cut = std::fs::metadata(path).is_ok_and(|about| about.len() > LOG_BYTES);
    let end = files::end_of(path, LOG_BYTES).with_context(|| format!("read {}", path.display()))?;
    Ok(match end.split_once('\n') {
        Some((_, rest)) if is_cut => rest.to_owned(),
        _ => end,
    })
}
