//! The page of a bundle: the cause first, then what explains it. Without scripts, and without requests to anywhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::timeline::{self, RunLog};
use super::{Missing, topology};
use crate::facts::Adapter;
use crate::node::event_log::{EventLevel, LoggedEvent};
use crate::node::hns::Endpoint;
use crate::node::hns::inventory::HnsNetwork;
use crate::report::document::{
    Check, CheckStatus, History, NodeStatus, Overall, PreflightReport, RunInProgress, ServiceStatus,
};
use crate::report::text as words;
use crate::values::count;

const FRAME: &str = include_str!("../../templates/report.html");

/// Entries of the event logs that are on the page.
const EVENTS: usize = 20;

/// Runs whose phases are drawn, the newest.
const TIMELINES: usize = 3;

/// The width of a bar's drawing, which is stretched to its cell.
const BAR: i128 = 1000;

/// The name of what `explain` says about it.
const INTERRUPTED: &str = "InterruptedRun";

/// The last lines of a log.
#[derive(Debug)]
pub struct Tail {
    /// Its name in the bundle.
    pub file: String,
    /// Without secrets.
    pub text: String,
}

/// What the page shows.
#[derive(Debug)]
pub struct Page<'a> {
    pub node: &'a str,
    pub at: Timestamp,
    /// For example `Windows Server 2022 build 20348.2700, containerd 1.7.27`.
    /// None if it could not be read.
    pub machine: Option<&'a str>,
    /// None if the node could not be measured.
    pub status: Option<&'a NodeStatus>,
    /// None if the checks could not be made.
    pub preflight: Option<&'a PreflightReport>,
    pub history: &'a History,
    pub endpoints: &'a [Endpoint],
    /// None if HNS did not answer.
    pub networks: &'a [HnsNetwork],
    /// None if they could not be read.
    pub adapters: &'a [Adapter],
    /// Entries of Windows' event logs about Calico, newest first, without secrets.
    pub events: &'a [LoggedEvent],
    /// The logs of the newest runs, oldest first.
    pub runs: &'a [RunLog],
    pub logs: &'a [Tail],
    pub missing: &'a [Missing],
}

/// A text in HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Whether a check says what is wrong.
fn has_failed(check: &Check) -> bool {
    check.status == CheckStatus::Fail && !check.ignored
}

impl Page<'_> {
    pub fn html(&self) -> String {
        let mut body = String::new();
        self.verdict(&mut body);
        self.history(&mut body);
        self.events(&mut body);
        self.drift(&mut body);
        self.network(&mut body);
        self.services(&mut body);
        self.checks(&mut body);
        self.logs(&mut body);
        let title = escaped(&format!("{}: {}", self.node, overall(self.status)));
        FRAME.replace("{{title}}", &title).replace("{{body}}", body.trim_end())
    }

    /// Ids of what is wrong, each once.
    pub fn causes(&self) -> Vec<String> {
        let run = self.interrupted().map(|_| INTERRUPTED.to_owned());
        let problems = self.status.iter().flat_map(|status| &status.problems).map(|problem| problem.id.to_owned());
        let failed = self.failed().map(|check| check.id.clone());
        let mut causes: Vec<String> = Vec::new();
        for id in run.into_iter().chain(problems).chain(failed) {
            if !causes.contains(&id) {
                causes.push(id);
            }
        }
        causes
    }

    fn interrupted(&self) -> Option<&RunInProgress> {
        self.status?.run.as_ref().filter(|run| run.interrupted)
    }

    fn failed(&self) -> impl Iterator<Item = &Check> {
        self.preflight.iter().flat_map(|report| &report.checks).filter(|check| has_failed(check))
    }

    fn verdict(&self, to: &mut String) {
        let status = self.status;
        let class = match status.map(|status| status.overall) {
            Some(Overall::Healthy) => "good",
            Some(Overall::Changing | Overall::NotInstalled | Overall::Prepared) => "warn",
            Some(Overall::Degraded | Overall::Failed) | None => "bad",
        };
        let _ = writeln!(to, "<h1>{}: <span class=\"{class}\">{}</span></h1>", escaped(self.node), overall(status));
        let parts = [
            status.and_then(|status| Some(format!("Calico {}", status.calico_version.as_ref()?))),
            status.and_then(|status| status.backend.clone()),
            status.and_then(|status| Some(format!("generation {}", status.generation?))),
            self.machine.map(str::to_owned),
            Some(format!("{:.0}", self.at)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().map(|part| escaped(&part)).collect();
        let _ = writeln!(to, "<p class=\"faint\">{}</p>", parts.join(" &middot; "));
        if let Some(run) = self.interrupted() {
            let known = || format!("{} (run {}, since {:.0})", run.command, run.run, run.since);
            let message = run.at.clone().unwrap_or_else(known);
            let fix = ["calicoctl-win resume", "calicoctl-win resume --undo  # instead"];
            cause(to, INTERRUPTED, &message, Some("a run ended before it was complete"), &fix);
        }
        // The interrupted run has been named already, and a check of the same id says why it matters.
        let interrupted = |id: &str| id == INTERRUPTED && self.interrupted().is_some();
        let named = |id: &str| interrupted(id) || self.failed().any(|check| check.id == id);
        for problem in status.iter().flat_map(|status| &status.problems).filter(|problem| !named(problem.id)) {
            cause(to, problem.id, &problem.message, None, &[&problem.command]);
        }
        for check in self.failed() {
            let fix: Vec<&str> = check.fix.iter().flat_map(|fix| fix.lines()).collect();
            cause(to, &check.id, &check.detail, check.why.as_deref(), &fix);
        }
        if status.is_some() && self.causes().is_empty() {
            let _ = writeln!(to, "<p>Nothing that was looked at is wrong.</p>");
        }
        for missing in self.missing {
            let _ = writeln!(
                to,
                "<p class=\"warn\">Not collected: {}: {}</p>",
                escaped(&missing.file),
                escaped(&missing.why)
            );
        }
    }

    fn history(&self, to: &mut String) {
        section(to, "What changed lately");
        let rows = self.history.runs.iter().rev().take(10).map(|run| {
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
            let result = run.ended();
            let class = if result == "OK" { "" } else { "bad" };
            [
                (run.started.map(|at| format!("{at:.0}")).unwrap_or_default(), ""),
                (text(&run.command), ""),
                (result, class),
                (run.msg.clone().unwrap_or_default(), ""),
                (text(&run.user), ""),
            ]
        });
        table(to, ["started", "command", "result", "", "by"], rows, "No run of calicoctl-win is recorded.");
        for log in self.runs.iter().rev().filter(|log| !timeline::phases(&log.text).is_empty()).take(TIMELINES) {
            self.timeline(to, log);
        }
    }

    /// When each phase of a run began and ended, as bars, and what the run warned of.
    fn timeline(&self, to: &mut String, log: &RunLog) {
        let phases = timeline::phases(&log.text);
        let (Some(from), Some(end)) =
            (phases.iter().map(|phase| phase.from).min(), phases.iter().map(|phase| phase.to).max())
        else {
            return;
        };
        let whole = end.duration_since(from);
        let share = |length: SignedDuration| match whole.as_millis() {
            0 => 0,
            whole => length.as_millis() * BAR / whole,
        };
        let known = self.history.runs.iter().find(|run| run.run == log.run);
        // A run that was killed has no record.
        let begun = self.interrupted().filter(|run| run.run == log.run).map(|run| run.command.as_str());
        let command = known.and_then(|run| run.command.as_deref()).or(begun).unwrap_or("a run");
        let took = words::took(whole.unsigned_abs());
        let _ = writeln!(to, "<h3>Phases of {} ({from:.0}, {took})</h3>", escaped(command));
        let rows = phases.iter().map(|phase| {
            let (of_bar, class) = if phase.failed { ("bar bad", " class=\"bad\"") } else { ("bar", "") };
            // Also the shortest one is seen.
            let (x, width) = (share(phase.from.duration_since(from)), share(phase.took()).max(3));
            let bar = format!(
                "<svg class=\"{of_bar}\" aria-hidden=\"true\" viewBox=\"0 0 {BAR} 10\" preserveAspectRatio=\"none\"><rect x=\"{}\" width=\"{width}\" height=\"10\"/></svg>",
                x.min(BAR - 3)
            );
            format!(
                "<tr><td>{}</td><td class=\"time\">{}</td><td>{bar}</td><td{class}>{}</td></tr>",
                escaped(&phase.name),
                words::took(phase.took().unsigned_abs()),
                escaped(&phase.says)
            )
        });
        let head = ["phase", "took", "when", "what"];
        write_table(to, &head.map(|text| format!("<th scope=\"col\">{text}</th>")).concat(), &rows.collect::<Vec<_>>());
        let remarks = timeline::remarks(&log.text).into_iter().map(|(at, class, said)| {
            format!("<li><span class=\"faint\">{at:.0}</span> <span class=\"{class}\">{}</span></li>", escaped(&said))
        });
        let remarks: Vec<String> = remarks.collect();
        if !remarks.is_empty() {
            let _ = writeln!(to, "<ul>\n{}\n</ul>", remarks.join("\n"));
        }
    }

    fn events(&self, to: &mut String) {
        section(to, "Windows Event Log");
        let rows = self.events.iter().take(EVENTS).map(|event| {
            let (level, class) = match event.level {
                EventLevel::Error => ("error", "bad"),
                EventLevel::Warning => ("warning", "warn"),
                EventLevel::Information => ("information", ""),
            };
            [
                (format!("{:.0}", event.at), ""),
                (format!("{} {}", event.source, event.id), ""),
                (level.to_owned(), class),
                (event.text.clone(), ""),
            ]
        });
        table(to, ["time", "source and id", "level", ""], rows, "It has no entry about Calico.");
    }

    fn drift(&self, to: &mut String) {
        let Some(status) = self.status else { return };
        section(to, "Differences from the current generation");
        if status.drift.is_empty() {
            let _ = writeln!(to, "<p>None.</p>");
            return;
        }
        let items = status.drift.iter().map(|item| format!("<li><code>{}</code></li>", escaped(item)));
        let _ = writeln!(to, "<ul>\n{}\n</ul>", items.collect::<Vec<_>>().join("\n"));
    }

    fn network(&self, to: &mut String) {
        let Some(status) = self.status else { return };
        section(to, "Network");
        match topology::svg(status, self.endpoints, self.networks, self.adapters) {
            Some(svg) => {
                let _ = writeln!(
                    to,
                    "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"HNS networks\">\n{svg}</div>"
                );
            }
            None => {
                let _ = writeln!(to, "<p>There is no HNS network.</p>");
            }
        }
    }

    fn services(&self, to: &mut String) {
        let Some(status) = self.status else { return };
        section(to, "Services and credentials");
        let rows = status.services.iter().map(|service| {
            let class = if service.state == "Running" && service.not_ready.is_none() { "good" } else { "bad" };
            [
                (service.name.clone(), ""),
                (service.state.clone(), class),
                (service.since.map(|at| format!("{at:.0}")).unwrap_or_default(), ""),
                (service.restarts.map(|restarts| restarts.to_string()).unwrap_or_default(), ""),
                (says(service), ""),
            ]
        });
        table(to, ["service", "state", "since", "restarts", ""], rows, "");
        let rows = status.credentials.iter().map(|one| {
            let expires = one.expires.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}"));
            let class = if one.expires.is_some_and(|at| at < self.at) { "bad" } else { "" };
            [(one.kind.clone(), ""), (expires, class), (one.path.clone(), "")]
        });
        table(to, ["credentials", "valid until", "file"], rows, "");
    }

    fn checks(&self, to: &mut String) {
        let Some(report) = self.preflight else { return };
        section(to, "Warnings");
        // One cause often leaves many checks without a result.
        let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
        for check in report.checks.iter().filter(|check| check.status == CheckStatus::Unknown) {
            *unknown.entry(&check.detail).or_default() += 1;
        }
        for (why, number) in unknown {
            let _ = writeln!(to, "<p>{} without a result: {}</p>", count(number, "check"), escaped(why));
        }
        let rows = report.checks.iter().filter(|check| check.status == CheckStatus::Warn);
        let rows = rows.map(|check| {
            [(check.id.clone(), "warn"), (check.detail.clone(), ""), (check.why.clone().unwrap_or_default(), "")]
        });
        table(to, ["check", "", "why"], rows, "None.");
    }

    fn logs(&self, to: &mut String) {
        section(to, "Ends of the logs");
        for log in self.logs {
            let _ = writeln!(
                to,
                "<details><summary>{}</summary>\n<pre tabindex=\"0\">{}</pre>\n</details>",
                escaped(&log.file),
                escaped(&log.text)
            );
        }
        if self.logs.is_empty() {
            let _ = writeln!(to, "<p>There are none.</p>");
        }
    }
}

fn overall(status: Option<&NodeStatus>) -> &'static str {
    match status.map(|status| status.overall) {
        None => "could not be measured",
        Some(Overall::Healthy) => "healthy",
        Some(Overall::Degraded) => "degraded",
        Some(Overall::Failed) => "failed",
        Some(Overall::Changing) => "changing",
        Some(Overall::NotInstalled) => "Calico is not installed",
        Some(Overall::Prepared) => "prepared as an image",
    }
}

/// What a service says about itself.
fn says(service: &ServiceStatus) -> String {
    let parts = [
        service.failure.clone(),
        service.not_ready.clone(),
        service.waiting_for.as_ref().map(|what| format!("waits for {what}")),
        service.crash_loop.then(|| "its component crashes repeatedly".to_owned()),
        service.last_exit.map(|code| format!("last exit code {code}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn section(to: &mut String, title: &str) {
    let _ = writeln!(to, "<h2>{title}</h2>");
}

fn cause(to: &mut String, id: &str, message: &str, why: Option<&str>, fix: &[&str]) {
    let _ = writeln!(to, "<div class=\"cause\"><h2 class=\"id\">{}</h2>", escaped(id));
    let _ = writeln!(to, "<p>{}</p>", escaped(message));
    if let Some(why) = why {
        let _ = writeln!(to, "<p class=\"faint\">{}</p>", escaped(why));
    }
    if !fix.is_empty() {
        let _ = writeln!(to, "<pre tabindex=\"0\">{}</pre>", escaped(&fix.join("\n")));
    }
    let _ = writeln!(to, "</div>");
}

/// A table of cells, each with the class of its text; `empty` is said instead if it has no rows.
fn table<const N: usize>(
    to: &mut String,
    head: [&str; N],
    rows: impl Iterator<Item = [(String, &'static str); N]>,
    empty: &str,
) {
    let rows: Vec<String> = rows
        .map(|cells| {
            let cells = cells.map(|(text, class)| match class {
                "" => format!("<td>{}</td>", escaped(&text)),
                class => format!("<td class=\"{class}\">{}</td>", escaped(&text)),
            });
            format!("<tr>{}</tr>", cells.concat())
        })
        .collect();
    if rows.is_empty() {
        if !empty.is_empty() {
            let _ = writeln!(to, "<p>{empty}</p>");
        }
        return;
    }
    let head = head.map(|text| match text {
        "" => "<td></td>".to_owned(),
        text => format!("<th scope=\"col\">{text}</th>"),
    });
    write_table(to, &head.concat(), &rows);
}

fn write_table(to: &mut String, head: &str, rows: &[String]) {
    let _ = writeln!(
        to,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{}\n</tbody></table></div>",
        rows.join("\n")
    );
}
