//! The one place that writes to the screen.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where all output goes")]

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::document::{RunResult, envelope};
use super::event::Event;
use super::log::Log;
use super::{junit, ndjson, text};

/// How often NDJSON tells of a transfer at most.
const PROGRESS: Duration = Duration::from_millis(500);
/// The same where the text is piped.
const PIPED_PROGRESS: Duration = Duration::from_secs(10);

/// The shape of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON event a line.
    Ndjson,
    /// One YAML document.
    Yaml,
    /// Checks as test results, for CI; only of `preflight` and `cluster check`.
    Junit,
}

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// How much is said, and in which shape.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    pub format: Format,
    pub color: Color,
    /// Show events of type log.
    pub verbose: bool,
    /// Only failures and the result.
    pub quiet: bool,
}

/// The thread that tells the end of this process.
static ENDER: OnceLock<ThreadId> = OnceLock::new();

/// The right to tell how this process ends, for the thread that asks first: what another says after it is not
/// printed.
pub fn ends_here() -> bool {
    ENDER.set(thread::current().id()).is_ok()
}

/// Takes events and documents to stdout, stderr and the log file.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    colour: bool,
    run: String,
    lines: Arc<AtomicU64>,
    /// The phase in progress: its key, and its place among those of the engine.
    phase: Option<(String, Option<(usize, usize)>)>,
    /// How often each phase began.
    begun: BTreeMap<&'static str, usize>,
    /// When a transfer was last told of where nobody sees a bar.
    told: Option<Instant>,
    /// The phase that failed, for the result.
    pub failed_phase: Option<&'static str>,
    bar: Option<ProgressBar>,
    pub log: Option<Log>,
}

impl Reporter {
    /// Begins the output; with NDJSON by the line that names tool and schema.
    pub fn new(style: Style, run: &str) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let colour = match style.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                terminal
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        };
        let mut reporter = Self::going_on(style, run, &Arc::default());
        reporter.colour = colour;
        if style.format == Format::Ndjson {
            reporter.ndjson(json!({ "type": "version", "level": "info", "message": "calicoctl-win",
                "tool": "calicoctl-win", "version": env!("CARGO_PKG_VERSION"), "schema": ndjson::SCHEMA }));
        }
        reporter
    }

    /// Output that another began, for its end.
    pub fn going_on(style: Style, run: &str, lines: &Arc<AtomicU64>) -> Self {
        let lines = Arc::clone(lines);
        Self {
            style,
            colour: false,
            run: run.into(),
            lines,
            phase: None,
            begun: BTreeMap::new(),
            told: None,
            failed_phase: None,
            bar: None,
            log: None,
        }
    }

    /// The number of the next line of NDJSON.
    pub fn lines(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lines)
    }

    /// The run that all of this belongs to.
    pub fn run(&self) -> &str {
        &self.run
    }

    pub const fn format(&self) -> Format {
        self.style.format
    }

    /// Shows an event.
    pub fn event(&mut self, event: &Event) {
        if let Some(log) = &mut self.log {
            log.event(Timestamp::now(), event);
        }
        match event {
            Event::PhaseStarted { phase, place } => {
                let nth = self.begun.entry(phase).or_default();
                *nth += 1;
                let key = if *nth == 1 { (*phase).to_owned() } else { format!("{phase}#{nth}") };
                self.phase = Some((key, *place));
                self.clear_bar();
                self.told = None;
            }
            Event::PhaseFailed { phase, .. } => self.failed_phase = Some(phase),
            _ => {}
        }
        match self.style.format {
            Format::Ndjson => {
                let silent = match event {
                    Event::Log { .. } => !self.style.verbose,
                    Event::Progress { current, total, .. } => !self.is_time_for(PROGRESS, Some(*current) == *total),
                    _ => false,
                };
                if !silent {
                    let fields = self.with_key(ndjson::fields(event));
                    self.ndjson(fields);
                }
            }
            Format::Text => self.text_event(event),
            Format::Json | Format::Yaml | Format::Junit => {}
        }
        if matches!(event, Event::PhaseCompleted { .. } | Event::PhaseFailed { .. }) {
            self.phase = None;
        }
    }

    /// The fields of an event, and which phase it belongs to: one that comes twice has a key for each time.
    fn with_key(&self, mut fields: Value) -> Value {
        if let (Some((key, _)), Some(event)) = (&self.phase, fields.as_object_mut()) {
            let phase = event.entry("phase").or_insert_with(|| json!({}));
            phase["key"] = key.as_str().into();
        }
        fields
    }

    /// Whether a transfer may be told of again: not more often than `pause`, but always at its end.
    fn is_time_for(&mut self, pause: Duration, ended: bool) -> bool {
        let due = ended || self.told.is_none_or(|told| told.elapsed() >= pause);
        if due {
            self.told = Some(Instant::now());
        }
        due
    }

    /// Shows what the agent said while a service started: it belongs to the phase under way.
    pub fn agent_event(&mut self, event: &Event) {
        if let Event::PhaseCompleted { phase, message, .. } = event {
            self.event(&Event::Log { message: format!("CalicoNode: {phase}: {message}") });
        } else if !matches!(
            event,
            Event::PhaseStarted { .. } | Event::Waiting { .. } | Event::ConnectivityNotice { .. }
        ) {
            // The engine gave its notice before it started the service.
            self.event(event);
        }
    }

    fn text_event(&mut self, event: &Event) {
        match event {
            Event::Progress { phase, current, total } => self.progress(phase, *current, *total),
            Event::Waiting { what, elapsed, limit } => {
                let waits = format!("waiting for {what} ({} of at most {})", text::took(*elapsed), text::took(*limit));
                let message = match &self.phase {
                    Some((key, Some((index, total)))) => format!("[{index:>2}/{total}] {key}: {waits}"),
                    Some((key, None)) => format!("{key}: {waits}"),
                    None => waits,
                };
                self.spinner().set_message(text::harmless(&message));
            }
            Event::DrainProgress { gone, total, blocked, elapsed, limit } => {
                let board = text::drain_board(*gone, *total, blocked, *elapsed, *limit);
                self.spinner().set_message(text::harmless(&board));
            }
            Event::Log { message } if self.style.verbose => self.say(message),
            _ => {
                if let Some(line) = text::line(event, self.phase.as_ref().and_then(|(_, place)| *place)) {
                    self.clear_bar();
                    let important = matches!(
                        event,
                        Event::Warning { .. }
                            | Event::PhaseFailed { .. }
                            | Event::ConnectivityNotice { .. }
                            | Event::ConfirmDeadline { .. }
                    );
                    if important || !self.style.quiet {
                        print(&self.paint(&text::harmless(&line)));
                    }
                }
            }
        }
    }

    /// Bars draw to stderr and only where a person looks (indicatif hides them elsewhere).
    fn progress(&mut self, phase: &'static str, current: u64, total: Option<u64>) {
        if self.style.quiet {
            return;
        }
        if !std::io::stderr().is_terminal() {
            // Nothing is said of a transfer that is over by then.
            self.told.get_or_insert_with(Instant::now);
            if self.is_time_for(PIPED_PROGRESS, false) {
                print(&text::progress(phase, current, total));
            }
            return;
        }
        if self.bar.as_ref().is_some_and(|bar| bar.message() != phase) {
            self.clear_bar();
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
            let template = "        {msg:<8} {percent:>3}% [{bar:20}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(phase);
            // What an earlier run fetched says nothing of the rate.
            bar.set_position(current);
            bar.reset_eta();
            bar
        });
        bar.set_position(current);
    }

    fn spinner(&mut self) -> &ProgressBar {
        self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            // The old console of Windows has no Braille.
            bar.set_style(ProgressStyle::default_spinner().tick_chars("-\\|/ "));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        })
    }

    fn clear_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn paint(&self, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        text.split('\n').map(text::painted).collect::<Vec<_>>().join("\n")
    }

    /// Prints text for people; nothing in the other shapes.
    pub fn say(&mut self, text: &str) {
        if self.style.format == Format::Text {
            self.clear_bar();
            print(&self.paint(text::harmless(text).trim_end_matches('\n')));
        }
    }

    /// As [`Self::say`], but not with `-q`.
    pub fn tell(&mut self, text: &str) {
        if !self.style.quiet {
            self.say(text);
        }
    }

    /// Prints raw text as it is, in the shape text only: completions, schemas, templates.
    pub fn raw(&mut self, text: &str) {
        let _closed_pipe_is_no_failure = std::io::stdout().write_all(text.as_bytes());
    }

    /// Prints a document that is not a run's result. Text is given beside it.
    pub fn document(&mut self, kind: &str, body: &impl serde::Serialize, text: &str) {
        let document = envelope(kind, body);
        match self.style.format {
            Format::Text => self.say(text),
            Format::Json => print(&pretty(&document)),
            Format::Yaml => print(yaml(&document).trim_end()),
            // The verbs that have it print it themselves.
            Format::Junit => {}
            Format::Ndjson => {
                self.ndjson(json!({ "type": "document", "level": "info", "message": kind, "document": document }));
            }
        }
    }

    /// Prints a document that is printed again and again: on a terminal in the place of the one before.
    pub fn redraw(&mut self, kind: &str, body: &impl serde::Serialize, text: &str) {
        if self.style.format == Format::Text && std::io::stdout().is_terminal() {
            print("\u{1b}[2J\u{1b}[H");
        }
        self.document(kind, body, text);
    }

    /// Ends the output of a verb that changes something, or of any failure.
    pub fn finish(&mut self, result: &RunResult) {
        self.clear_bar();
        if let Some(log) = &mut self.log {
            if let Some(error) = &result.error {
                log.line(Timestamp::now(), "ERROR", &error.chain.join(": "));
            }
            log.line(Timestamp::now(), "INFO", &text::result(result));
        }
        match self.style.format {
            Format::Text => {
                if let Some(error) = &result.error {
                    let text = text::harmless(&text::failure(error));
                    let _session_may_be_gone = std::io::stderr().write_all(self.paint(&text).as_bytes());
                }
                print(&self.paint(&text::result(result)));
            }
            Format::Json => print(&pretty(&envelope("RunResult", result))),
            Format::Yaml => print(yaml(&envelope("RunResult", result)).trim_end()),
            Format::Junit => print(junit::failure(result).trim_end()),
            Format::Ndjson => self.result_line(result),
        }
    }

    /// Ends the output of a verb that showed a document: the last line of text and NDJSON.
    pub fn close(&mut self, result: &RunResult) {
        self.clear_bar();
        match self.style.format {
            Format::Text => print(&self.paint(&text::result(result))),
            Format::Ndjson => self.result_line(result),
            Format::Json | Format::Yaml | Format::Junit => {}
        }
    }

    fn result_line(&mut self, result: &RunResult) {
        let mut line = json!({ "type": "result", "level": if result.error.is_some() { "error" } else { "info" }, "message": result.msg });
        if let (Some(line), Ok(Value::Object(fields))) = (line.as_object_mut(), serde_json::to_value(result)) {
            line.extend(fields.into_iter().filter(|(key, _)| key != "run"));
        }
        self.ndjson(line);
    }

    fn ndjson(&mut self, fields: Value) {
        let number = self.lines.fetch_add(1, Ordering::SeqCst);
        print(&ndjson::line(Timestamp::now(), &self.run, number, fields));
    }
}

/// A line to stdout. Losing stdout (the session dropped) never stops a run.
fn print(line: &str) {
    while ENDER.get().is_some_and(|ender| *ender != thread::current().id()) {
        // The process ends at this moment.
        thread::park();
    }
    let mut out = std::io::stdout().lock();
    let _session_may_be_gone = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn yaml(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}
