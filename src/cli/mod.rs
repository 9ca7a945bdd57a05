//! The command line: what can be typed, and which verb runs. Decides nothing itself.

mod app;
mod args;
mod at_boot;
mod cluster;
mod config;
mod confirm;
mod cordon;
mod credentials;
mod datastore;
mod detach;
mod drain;
mod engine;
mod event_log;
mod generations;
mod import;
mod install;
mod lab;
mod layers;
mod lease;
mod login;
mod logs;
mod node;
mod offline;
mod plan;
mod pods;
mod preflight;
mod prepare;
mod receipt;
mod reconfigure;
mod release;
mod resume;
mod service;
mod settle;
mod stage;
mod status;
mod steady;
mod tenants;
mod traces;
mod trial;
mod uninstall;
mod upgrade;

use std::ffi::OsString;
use std::time::Instant;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};

use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{Format, Reporter, Style};
use app::App;
use args::{Cli, ExitCodes, Verb};

/// Runs a command line and gives the process exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let begun = Instant::now();
    let cli = match Cli::command().try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &args),
    };
    let style = cli.global.style();
    let run = cli.global.detached_run.clone().unwrap_or_else(app::run_id);
    let mut app = App::new(cli.global, Reporter::new(style, &run), args);
    let ending = match dispatch(cli.verb, &mut app) {
        Ok(ending) => ending,
        Err(error) => Ending::Result(Box::new(RunResult::failed(&error))),
    };
    app.close(ending, begun.elapsed())
}

/// How a verb ends.
pub(crate) enum Ending {
    /// By the document `RunResult`: verbs that change something, and every failure.
    Result(Box<RunResult>),
    /// By the document that it showed, and this line after it.
    Shown(Box<RunResult>),
    /// By what it printed, and nothing else: completions, schemas, pages of `explain`.
    Quiet,
}

impl Ending {
    pub(crate) fn result(result: RunResult) -> Result<Self> {
        Ok(Self::Result(Box::new(result)))
    }

    pub(crate) fn shown(exit: Exit, msg: impl Into<String>) -> Result<Self> {
        Ok(Self::Shown(Box::new(RunResult::new(exit, false, msg))))
    }
}

fn dispatch(verb: Verb, app: &mut App) -> Result<Ending> {
    let has_checks = matches!(verb, Verb::Preflight(_) | Verb::Cluster(args::ClusterVerb::Check));
    if app.reporter.format() == Format::Junit && !has_checks {
        return Err(Fault::new(Exit::Usage, "Usage", "only checks can be told as JUnit's test results")
            .hint("use -o junit with: calicoctl-win preflight, or: calicoctl-win cluster check")
            .into());
    }
    if app.global.detach && app.global.detached_run.is_none() {
        return detach::start(&verb, app);
    }
    match verb {
        Verb::Preflight(args) => preflight::run(&args, app),
        Verb::Plan(args) => plan::run(&args, app),
        Verb::Install(args) => install::run(&args, app),
        Verb::Reconfigure(args) => reconfigure::run(&args, app),
        Verb::Upgrade(args) => upgrade::run(&args, app),
        Verb::Confirm(args) => confirm::run(&args, app),
        Verb::Rollback(args) => generations::rollback(&args, app),
        Verb::Repair(args) => generations::repair(&args, app),
        Verb::Receipt(verb) => receipt::run(&verb, app),
        Verb::Resume(args) => resume::run(&args, app),
        Verb::Uninstall(args) => uninstall::run(&args, app),
        Verb::Status(args) => status::run(&args, app),
        Verb::Logs(args) => logs::run(&args, app),
        Verb::Service(verb) => service::run(&verb, app),
        Verb::Node(verb) => node::run(&verb, app),
        Verb::Credentials(verb) => credentials::run(&verb, app),
        Verb::Config(verb) => config::run(&verb, app),
        Verb::Release(verb) => release::run(&verb, app),
        Verb::Cluster(verb) => cluster::run(&verb, app),
        Verb::Explain(args) => offline::explain(&args, app),
        Verb::Completion(args) => offline::completion(&args, app),
        Verb::Version => offline::version(app),
    }
}

/// Help and version are clap's; a wrong command line ends like every failure, in the shape asked for.
fn usage(error: &clap::Error, args: &[OsString]) -> i32 {
    use clap::error::ErrorKind;
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked {
        let _session_may_be_gone = error.print();
        return Exit::Ok.code();
    }
    let style = Style { format: format_asked_for(args), ..Style::default() };
    let fault = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => no_command(args),
        _ => usage_fault(&error.render().to_string()),
    };
    let result = RunResult::failed(&fault.into());
    Reporter::new(style, &app::run_id()).finish(&result);
    result.exit_code
}

/// Only the name of the program, or of a group of commands, was typed.
fn no_command(args: &[OsString]) -> Fault {
    let cli = Cli::command();
    let groups = cli.get_subcommands().filter(|verb| verb.has_subcommands());
    let group = groups.into_iter().find(|verb| args.iter().any(|arg| arg == verb.get_name()));
    let (name, commands) = match group {
        Some(verb) => (format!("calicoctl-win {}", verb.get_name()), verb),
        None => ("calicoctl-win".to_owned(), &cli),
    };
    let visible = commands.get_subcommands().filter(|verb| !verb.is_hide_set());
    let names: Vec<&str> = visible.map(clap::Command::get_name).collect();
    Fault::new(Exit::Usage, "Usage", format!("`{name}` needs a command: {}", names.join(", ")))
        .hint(format!("see: {name} --help"))
}

/// clap's words as what went wrong (its first paragraph) and what to do (tips and usage).
fn usage_fault(rendered: &str) -> Fault {
    let mut paragraphs = rendered.split("\n\n").map(|paragraph| {
        let lines: Vec<&str> = paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    });
    let first = paragraphs.next().unwrap_or_default();
    let what = first.strip_prefix("error: ").unwrap_or(&first);
    let mut rest: Vec<String> = paragraphs
        .filter(|paragraph| !paragraph.is_empty() && !paragraph.starts_with("For more information"))
        .map(|paragraph| paragraph.trim_start_matches("tip: ").trim_start_matches("Usage: ").to_owned())
        .collect();
    rest.push("see: calicoctl-win --help".into());
    Fault::new(Exit::Usage, "Usage", what).hint(rest.join("; "))
}

/// The output format of a command line that could not be parsed.
fn format_asked_for(args: &[OsString]) -> Format {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let value = |index: usize, word: &str| match word {
        "-o" | "--output" => words.get(index + 1).cloned(),
        _ => word
            .strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o=").or_else(|| word.strip_prefix("-o")))
            .map(str::to_owned),
    };
    let given = words.iter().enumerate().find_map(|(index, word)| value(index, word));
    match given.or_else(|| std::env::var("CALICO_WIN_OUTPUT").ok()).as_deref() {
        Some("json") => Format::Json,
        Some("ndjson") => Format::Ndjson,
        Some("yaml") => Format::Yaml,
        _ => Format::Text,
    }
}

impl ExitCodes {
    /// The number for the process, in the way the caller can use it.
    fn code(self, exit: Exit) -> i32 {
        match (self, exit) {
            (Self::Simple | Self::CloudbaseInit, Exit::RebootStarted) | (Self::Simple, Exit::RebootRequired) => 0,
            // cloudbase-init: 1003 reboots and runs us again, 1002 runs us again at the next boot.
            (Self::CloudbaseInit, Exit::RebootRequired) => 1003,
            (Self::CloudbaseInit, Exit::ClusterUnreachable | Exit::Busy) => 1002,
            _ => exit.code(),
        }
    }
}

/// The exit class that a result stands for.
pub(crate) fn class(result: &RunResult) -> Exit {
    Exit::ALL.into_iter().find(|exit| exit.code() == result.exit_code).unwrap_or(Exit::Failed)
}
