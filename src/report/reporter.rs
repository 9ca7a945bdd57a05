//! The only place that writes to the screen.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where all output goes")]

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::document::{CheckStatus, Document, RunResult, envelope};
use super::event::Event;
use super::log::Log;
use super::progress::{self, Pace};
use super::screen::{self, Color};
use super::stdout_queue::{self, Priority};
use super::written::Written;
use super::{junit, ndjson, text};

/// The line of a wait, which has its time in its message, and that of a step.
const WAITING: &str = "{spinner} {msg}";
const DOING: &str = "{msg} {elapsed}";

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON event per line.
    Ndjson,
    /// One YAML document.
    Yaml,
    /// Checks as test results, for CI; only for `preflight`, `cluster check` and `policy lint`.
    Junit,
    /// Of `dsc`: one JSON object per line on stderr, as its engine reads them; the verb prints states on stdout.
    #[value(skip)]
    Dsc,
}

/// What is printed, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    pub format: Format,
    pub color: Color,
    /// Show events of type log.
    pub verbose: bool,
    /// Only failures and the result.
    pub quiet: bool,
}

/// The thread that reports the end of this process.
static ENDER: OnceLock<ThreadId> = OnceLock::new();

/// The right to report how this process ends, for the thread that asks first: later output of other threads is not
/// printed.
pub fn ends_here() -> bool {
    ENDER.set(thread::current().id()).is_ok()
}

/// What has been printed so far, for the output of the end.
#[derive(Debug, Default)]
pub struct Stream {
    /// The number of the next line of NDJSON.
    lines: AtomicU64,
    /// The phases in progress, the innermost last.
    open: Mutex<Vec<Open>>,
    /// Held while an event is printed and changes them: the thread of Ctrl-C ends exactly the phases that were printed.
    together: Mutex<()>,
    /// What is drawn below the text.
    bar: Mutex<Option<ProgressBar>>,
}

/// A phase in progress.
#[derive(Debug, Clone)]
struct Open {
    phase: &'static str,
    key: String,
    /// Its place among those of the engine.
    place: Option<(usize, usize)>,
}

impl Stream {
    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a verb ends with, in the format of the output.
#[derive(Debug)]
enum Shown {
    Text(String),
    Document(Written),
}

/// Takes events and documents to stdout, stderr and the log file.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    colour: bool,
    columns: Option<usize>,
    run: String,
    stream: Arc<Stream>,
    /// How often each phase began.
    begun: BTreeMap<&'static str, usize>,
    pace: Pace,
    /// What is waited for.
    waits: Option<String>,
    /// The phase that failed, for the result.
    pub failed_phase: Option<&'static str>,
    /// Another process has printed all of this.
    silent: bool,
    /// What the verb ends with.
    shown: Option<Shown>,
    pub log: Option<Log>,
}

impl Reporter {
    /// Starts the output; with NDJSON, with the line that names tool and schema.
    pub fn new(style: Style, run: &str) -> Self {
        let mut reporter = Self::continued(style, run, &Arc::default());
        if style.format == Format::Ndjson {
            reporter.ndjson(json!({ "type": "version", "level": "info", "message": "calicoctl-win",
                "tool": "calicoctl-win", "version": env!("CARGO_PKG_VERSION"), "schema": ndjson::SCHEMA }));
        }
        reporter
    }

    /// Output that another process began, for its end.
    pub fn continued(style: Style, run: &str, stream: &Arc<Stream>) -> Self {
        Self {
            style,
            colour: style.color.on(&std::io::stdout()),
            columns: screen::columns(&std::io::stdout()),
            run: run.into(),
            stream: Arc::clone(stream),
            begun: BTreeMap::new(),
            pace: Pace::default(),
            waits: None,
            failed_phase: None,
            silent: false,
            shown: None,
            log: None,
        }
    }

    /// Output that continues another process's, after this number of lines of NDJSON. Nothing is printed until
    /// [`Self::speak`]: that process has printed it already.
    pub fn taking_over(style: Style, run: &str, lines: u64) -> Self {
        let stream = Stream { lines: AtomicU64::new(lines), ..Stream::default() };
        Self { silent: true, ..Self::continued(style, run, &Arc::new(stream)) }
    }

    /// Prints no text about the run until its end, only what it makes: that goes into a file.
    pub fn only_documents(&mut self) {
        self.silent = self.is_text();
    }

    /// Prints nothing until [`Self::speak`].
    pub const fn silence(&mut self) {
        self.silent = true;
    }

    /// Begins to print.
    pub const fn speak(&mut self) {
        self.silent = false;
    }

    /// The number of printed lines of NDJSON.
    pub fn lines(&self) -> u64 {
        self.stream.lines.load(Ordering::SeqCst)
    }

    /// The environment variables for a process whose output is passed on to this screen.
    pub fn screen(&self) -> Vec<(&'static str, String)> {
        let columns = self.columns.map(|columns| ("COLUMNS", columns.to_string()));
        columns.into_iter().chain(self.colour.then(|| ("CALICO_WIN_COLOR", "always".to_owned()))).collect()
    }

    /// What was printed so far.
    pub fn stream(&self) -> Arc<Stream> {
        Arc::clone(&self.stream)
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
        let stream = Arc::clone(&self.stream);
        let _together = stream.together.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::PhaseStarted { phase, place } => {
                let nth = self.begun.entry(phase).or_default();
                *nth += 1;
                let key = if *nth == 1 { (*phase).to_owned() } else { format!("{phase}#{nth}") };
                self.stream.open().push(Open { phase, key, place: *place });
                self.clear_bar();
                self.pace = Pace::default();
            }
            Event::PhaseFailed { phase, .. } => self.failed_phase = Some(phase),
            _ => {}
        }
        let format = self.style.format;
        match format {
            _ if self.silent => {}
            Format::Ndjson if self.is_due(event) => {
                let fields = self.with_key(event, ndjson::fields(event));
                self.ndjson_line(fields, priority(event));
            }
            Format::Dsc if self.is_due(event) => {
                let fields = ndjson::fields(event);
                let level = fields["level"].as_str().unwrap_or("info");
                dsc_line(
                    if level == "debug" { "trace" } else { level },
                    fields["message"].as_str().unwrap_or_default(),
                );
            }
            Format::Text => self.text_event(event),
            Format::Ndjson | Format::Dsc | Format::Json | Format::Yaml | Format::Junit => {}
        }
        if let Event::PhaseCompleted { phase, .. } | Event::PhaseFailed { phase, .. } = event {
            let mut open = self.stream.open();
            if let Some(at) = open.iter().rposition(|open| open.phase == *phase) {
                open.remove(at);
            }
        }
    }

    /// Whether a line of JSON is printed for an event: not for each of many about the same.
    fn is_due(&mut self, event: &Event) -> bool {
        match event {
            Event::Log { .. } => self.style.verbose,
            Event::Progress { current, total, .. } => {
                self.pace.is_due(Instant::now(), progress::NDJSON, Some(*current) == *total)
            }
            Event::Waiting { what, .. } => {
                let new = self.waits.replace(what.clone()).as_ref() != Some(what);
                self.pace.is_due(Instant::now(), progress::NDJSON, new)
            }
            Event::DrainProgress { .. } => self.pace.is_due(Instant::now(), progress::NDJSON, false),
            // The engine logs each line, and compares a node three times for one change.
            Event::Checked(check) if self.style.format == Format::Dsc => {
                self.style.verbose || !matches!(check.status, CheckStatus::Ok | CheckStatus::Skip)
            }
            _ => true,
        }
    }

    /// The phase that an event belongs to: the one that it ends, else the innermost.
    fn phase_of(&self, event: &Event) -> Option<Open> {
        let open = self.stream.open();
        let ended = match event {
            Event::PhaseCompleted { phase, .. } | Event::PhaseFailed { phase, .. } => Some(*phase),
            _ => None,
        };
        open.iter().rfind(|open| ended.is_none_or(|phase| phase == open.phase)).cloned()
    }

    /// The fields of an event, and its phase: a phase that runs twice has a key for each time.
    fn with_key(&self, event: &Event, mut fields: Value) -> Value {
        if let (Some(open), Some(line)) = (self.phase_of(event), fields.as_object_mut()) {
            let phase = line.entry("phase").or_insert_with(|| json!({}));
            phase["key"] = open.key.into();
        }
        fields
    }

    /// Shows an agent's event while a service starts: it belongs to the current phase.
    pub fn agent_event(&mut self, event: &Event) {
        if let Event::PhaseCompleted { phase, message, .. } = event {
            self.event(&Event::Log { message: format!("CalicoNode: {phase}: {message}") });
        } else if !matches!(
            event,
            Event::PhaseStarted { .. } | Event::Waiting { .. } | Event::ConnectivityNotice { .. }
        ) {
            // The engine has printed its notice before it started the service.
            self.event(event);
        }
    }

    fn text_event(&mut self, event: &Event) {
        match event {
            Event::Progress { phase, current, total } => self.progress(phase, *current, *total),
            Event::Waiting { what, elapsed, limit } => {
                let waits = format!("waiting for {what} ({} of at most {})", text::took(*elapsed), text::took(*limit));
                let message = match self.phase_of(event) {
                    Some(Open { key, place: Some((index, total)), .. }) => {
                        format!("[{index:>2}/{total}] {key}: {waits}")
                    }
                    Some(Open { key, place: None, .. }) => format!("{key}: {waits}"),
                    None => waits,
                };
                self.spinner(WAITING).set_message(text::harmless(&message));
            }
            Event::DrainProgress { gone, total, blocked, ending, elapsed, limit } => {
                let board = text::drain_board((*gone, *total), blocked, ending, *elapsed, *limit);
                let board = screen::fitted(&text::harmless(&board), screen::columns(&std::io::stderr()), str::to_owned);
                self.spinner(WAITING).set_message(board);
            }
            Event::PhaseStarted { .. } => self.live(""),
            Event::Log { message } => {
                if self.style.verbose {
                    self.say(message);
                }
                self.live(message);
            }
            _ => {
                if let Some(line) = text::line(event, self.phase_of(event).and_then(|open| open.place), self.columns) {
                    self.clear_bar();
                    let important = matches!(
                        event,
                        Event::Warning { .. }
                            | Event::PhaseFailed { .. }
                            | Event::ConnectivityNotice { .. }
                            | Event::ConfirmDeadline { .. }
                    );
                    if important || !self.style.quiet {
                        tell(&self.paint(&text::harmless(&line)), Priority::Normal);
                    }
                }
            }
        }
    }

    /// Bars are drawn on stderr and only on a terminal (indicatif hides them elsewhere).
    fn progress(&mut self, phase: &'static str, current: u64, total: Option<u64>) {
        if self.style.quiet {
            return;
        }
        if !std::io::stderr().is_terminal() {
            if self.pace.is_due_in_a_pipe(Instant::now()) {
                tell(&text::progress(phase, current, total), Priority::Progress);
            }
            return;
        }
        if self.stream.bar().as_ref().is_some_and(|bar| bar.message() != phase) {
            self.clear_bar();
        }
        let mut bar = self.stream.bar();
        let bar = bar.get_or_insert_with(|| progress::bar(phase, current, total));
        bar.set_position(current);
    }

    /// Shows on a terminal what the current phase does, and for how long.
    fn live(&mut self, doing: &str) {
        let Some(columns) = screen::columns(&std::io::stderr()).filter(|_| std::io::stderr().is_terminal()) else {
            return;
        };
        let transfers = self.stream.bar().as_ref().is_some_and(|bar| bar.length().is_some());
        let open = self.stream.open().last().cloned();
        if let Some(Open { key, place, .. }) = open.filter(|_| !self.style.quiet && !transfers) {
            let line = text::live(&key, place, doing, columns);
            let bar = self.spinner(DOING);
            bar.reset_elapsed();
            bar.set_message(line);
        }
    }

    fn spinner(&mut self, template: &str) -> ProgressBar {
        let mut bar = self.stream.bar();
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        if let Ok(style) = ProgressStyle::with_template(template) {
            // The old Windows console has no Braille.
            bar.set_style(style.tick_chars("-\\|/ "));
        }
        bar.clone()
    }

    fn clear_bar(&mut self) {
        if let Some(bar) = self.stream.bar().take() {
            bar.finish_and_clear();
        }
    }

    /// Text for people, as it fits on their screen.
    fn paint(&self, text: &str) -> String {
        screen::fitted(text, self.columns, painter(self.colour))
    }

    /// Text from anywhere as it is printed.
    fn as_shown(&self, text: &str) -> String {
        self.paint(text::harmless(text).trim_end_matches('\n'))
    }

    /// The last line, which scripts read too: it stays one line.
    fn result(&self, result: &RunResult) -> String {
        painter(self.colour)(&text::result(result))
    }

    /// Whether people read what is printed, and see a question.
    pub fn is_text(&self) -> bool {
        self.style.format == Format::Text
    }

    /// Prints text for people; nothing in the other formats.
    pub fn say(&mut self, text: &str) {
        if self.style.format == Format::Text && !self.silent {
            self.clear_bar();
            tell(&self.as_shown(text), Priority::Normal);
        }
    }

    /// Prints a line of a log, unbroken, so that it can be copied and searched.
    pub fn log_line(&mut self, line: &str) {
        print(&text::harmless(line));
    }

    /// As [`Self::say`], but not with `-q`.
    pub fn tell(&mut self, text: &str) {
        if !self.style.quiet {
            self.say(text);
        }
    }

    /// Prints text unchanged, only in the format text: completions, schemas, templates.
    pub fn raw(&mut self, text: &str) {
        stdout_queue::flush();
        let _closed_pipe_is_no_failure = std::io::stdout().write_all(text.as_bytes());
    }

    /// Takes the document that the verb ends with, and the same as text; [`Self::close`] prints it.
    pub fn document(&mut self, body: &impl Document, text: &str) {
        self.shown =
            Some(if self.is_text() { Shown::Text(text.to_owned()) } else { Shown::Document(Written::of(body)) });
    }

    /// Prints one of several documents now.
    pub fn each(&mut self, body: &impl Document) {
        self.print_document(&Written::of(body), None);
    }

    /// Prints the document that the verb would end with now: on a terminal in place of the previous one.
    pub fn redraw(&mut self, body: &impl Document, text: &str, result: &RunResult) {
        if self.style.format == Format::Text && std::io::stdout().is_terminal() && screen::has_sequences() {
            print("\u{1b}[2J\u{1b}[H");
        }
        self.document(body, text);
        self.print_shown(result);
    }

    /// Prints the document that the verb ends with, and whether the verb succeeded.
    fn print_shown(&mut self, result: &RunResult) {
        match self.shown.take() {
            Some(Shown::Text(text)) if !self.silent => print(&self.as_shown(&text)),
            Some(Shown::Document(document)) => self.print_document(&document, Some(result)),
            Some(Shown::Text(_)) | None => {}
        }
    }

    /// Prints a document, with how the verb ended if it ends with it.
    fn print_document(&mut self, document: &Written, ended: Option<&RunResult>) {
        match self.style.format {
            // The verbs that support JUnit print it themselves.
            Format::Text | Format::Junit | Format::Dsc => {}
            Format::Json => print(&document.json(ended)),
            Format::Yaml => print(yaml(&document.value(ended)).trim_end()),
            Format::Ndjson => {
                let document = document.value(ended);
                self.ndjson(
                    json!({ "type": "document", "level": "info", "message": document["kind"], "document": document }),
                );
            }
        }
    }

    /// Ends the output of a verb that changes something, or of any failure.
    pub fn finish(&mut self, result: &RunResult) {
        self.speak();
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
                    // One of the two streams may go into a file.
                    let mut errors = std::io::stderr();
                    let paint = painter(self.style.color.on(&errors));
                    let text = screen::fitted(&text::harmless(&text::failure(error)), screen::columns(&errors), paint);
                    let _session_may_be_gone = errors.write_all(text.as_bytes());
                }
                print(&self.result(result));
            }
            Format::Json => print(&format!("{:#}", envelope(result))),
            Format::Yaml => print(yaml(&envelope(result)).trim_end()),
            Format::Junit => print(junit::failure(result).trim_end()),
            Format::Ndjson => self.result_line(result),
            Format::Dsc => result.error.iter().for_each(|error| dsc_line("error", &error.sentence())),
        }
    }

    /// Ends the output of a verb that shows a document. `last`: text ends with the line of the result.
    pub fn close(&mut self, result: &RunResult, last: bool) {
        self.clear_bar();
        self.print_shown(result);
        match self.style.format {
            Format::Text if !last => {}
            Format::Text => print(&self.result(result)),
            Format::Ndjson => self.result_line(result),
            Format::Json | Format::Yaml | Format::Junit | Format::Dsc => {}
        }
    }

    fn result_line(&mut self, result: &RunResult) {
        let stream = Arc::clone(&self.stream);
        let _together = stream.together.lock().unwrap_or_else(PoisonError::into_inner);
        // A run that is stopped does not complete its phase.
        while let Some(Open { phase, key, .. }) = { self.stream.open().pop() } {
            self.ndjson(json!({ "type": "phase_errored", "level": "error", "message": result.msg,
                "phase": { "id": phase, "key": key } }));
        }
        let mut line =
            json!({ "type": "result", "level": if result.success { "info" } else { "error" }, "message": result.msg });
        if let (Some(line), Ok(Value::Object(fields))) = (line.as_object_mut(), serde_json::to_value(result)) {
            line.extend(fields.into_iter().filter(|(key, _)| key != "run"));
        }
        self.ndjson(line);
        stdout_queue::flush();
    }

    fn ndjson(&mut self, fields: Value) {
        self.ndjson_line(fields, Priority::Normal);
    }

    fn ndjson_line(&mut self, fields: Value, priority: Priority) {
        let number = self.stream.lines.fetch_add(1, Ordering::SeqCst);
        tell(&ndjson::line(Timestamp::now(), &self.run, number, fields), priority);
    }
}

/// Prints a request to the API server for `-vv`: on stderr, so that what goes to stdout is the same.
pub fn request(line: &str) {
    wait_for_the_end_elsewhere();
    let mut errors = std::io::stderr();
    // Over a bar, which is drawn again below.
    let begin = if errors.is_terminal() && screen::has_sequences() { "\r\u{1b}[K" } else { "" };
    let _session_may_be_gone = writeln!(errors, "{begin}{}", text::harmless(line));
}

/// Prints a line for the engine of DSC, which reads these from stderr.
fn dsc_line(level: &str, message: &str) {
    let _closed_pipe_is_no_failure = writeln!(std::io::stderr(), "{}", json!({ level: message }));
}

/// Returns how a line of text is shown.
fn painter(colour: bool) -> fn(&str) -> String {
    if colour { text::painted } else { str::to_owned }
}

/// Whether an event is one of many about the same.
const fn priority(event: &Event) -> Priority {
    match event {
        Event::Progress { .. } | Event::Waiting { .. } | Event::DrainProgress { .. } => Priority::Progress,
        _ => Priority::Normal,
    }
}

/// A line during a run. Losing stdout (the session dropped) never stops or delays one.
fn tell(line: &str, priority: Priority) {
    wait_for_the_end_elsewhere();
    stdout_queue::line(line, priority);
}

/// A line of a result or a document, which is printed whole.
fn print(line: &str) {
    wait_for_the_end_elsewhere();
    stdout_queue::last(line);
}

fn wait_for_the_end_elsewhere() {
    while ENDER.get().is_some_and(|ender| *ender != thread::current().id()) {
        // The process ends at this moment.
        thread::park();
    }
}

fn yaml(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}
