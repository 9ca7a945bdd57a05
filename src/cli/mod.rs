//! The command line: what can be typed, and which verb runs. Decides nothing itself.

mod app;
mod args;
mod at_boot;
mod cluster;
mod command;
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
mod usage;

use std::ffi::OsString;
use std::time::Instant;

use anyhow::Result;
use clap::FromArgMatches;
use clap_complete::CompleteEnv;

use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{Format, Reporter};
use app::App;
use args::{Cli, ExitCodes, Verb};

/// The variable by which a completion script asks this program.
const COMPLETE: &str = "CALICO_WIN_COMPLETE";

/// Runs a command line and gives the process exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    // A shell that completes a command line ends here.
    CompleteEnv::with_factory(command::to_complete).var(COMPLETE).complete();
    let args: Vec<OsString> = args.into_iter().collect();
    let begun = Instant::now();
    let cli = match command::command().try_get_matches_from(&args).and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(error) => return usage::usage(error, &args),
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
        // A variable that is set for a whole script is meant for what can be detached.
        let typed = app.args().iter().any(|word| word.to_str().is_some_and(|word| word.starts_with("--detach")));
        if typed || detach::name(&verb).is_some() {
            return detach::start(&verb, app);
        }
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
        Verb::Options => offline::options(app),
        Verb::Version => offline::version(app),
    }
}

impl ExitCodes {
    /// The number for the process, in the way the caller can use it.
    fn code(self, result: &RunResult) -> i32 {
        let retryable = result.error.as_ref().is_some_and(|failure| failure.retryable);
        match (self, class(result)) {
            (Self::Simple | Self::CloudbaseInit, Exit::RebootStarted) | (Self::Simple, Exit::RebootRequired) => 0,
            // cloudbase-init: 1003 reboots and runs us again, 1002 runs us again at the next boot.
            (Self::CloudbaseInit, Exit::RebootRequired) => 1003,
            (Self::CloudbaseInit, _) if retryable => 1002,
            (_, exit) => exit.code(),
        }
    }
}

/// The exit class that a result stands for.
pub(crate) fn class(result: &RunResult) -> Exit {
    Exit::all().find(|exit| exit.code() == result.exit_code).unwrap_or(Exit::Failed)
}
