//! The command line: what can be typed, which verb runs, and what the screen shows.

mod args;
mod checks;
mod cluster;
mod command;
mod config;
mod credentials;
mod history;
mod import;
mod logs;
mod node;
mod offline;
mod plan;
mod preflight;
mod receipt;
mod release;
mod service;
mod status;
mod usage;

use std::ffi::OsString;
use std::time::Instant;

use anyhow::Result;
use clap::FromArgMatches;
use clap_complete::CompleteEnv;

use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{Format, Reporter};
use crate::run::app::{self, App};
use crate::run::{Ending, change, confirm, detach, generations, resume, uninstall};
use args::{Cli, Verb};

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
    let ending = match answered(&cli.verb, &app).and_then(|()| dispatch(cli.verb, &mut app)) {
        Ok(ending) => ending,
        Err(error) => Ending::Result(Box::new(RunResult::failed(&error))),
    };
    app.close(ending, begun.elapsed())
}

/// Answers Ctrl-C where a verb takes its time; `logs -f` and `status --watch` end by it, and a service has its own.
fn answered(verb: &Verb, app: &App) -> Result<()> {
    let plain = matches!(
        verb,
        Verb::Logs(_)
            | Verb::Status(args::Status { watch: true, .. })
            | Verb::Service(args::Service::Run { .. })
            | Verb::Explain(_)
            | Verb::Completion(_)
            | Verb::Options
            | Verb::Version
    );
    if plain { Ok(()) } else { app.listen() }
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
        let command = changing(&verb);
        if typed || command.is_some() {
            return detach::start(command, app);
        }
    }
    match verb {
        Verb::Preflight(args) => preflight::run(&args, app),
        Verb::Plan(args) => plan::run(&args, app),
        Verb::Apply(args) => change::run(&args, app),
        Verb::Install(args) if args.download_only => release::download(&args.source, app),
        Verb::Install(args) => change::run(&args, app),
        Verb::Reconfigure(args) => change::run(&args, app),
        Verb::Upgrade(args) => change::run(&args, app),
        Verb::Confirm(args) => confirm::run(&args, app),
        Verb::Rollback(args) => generations::rollback(&args, app),
        Verb::Repair(args) => generations::repair(&args, app),
        Verb::Receipt(verb) => receipt::run(&verb, app),
        Verb::History => history::run(app),
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

/// The name of a command that can go on without its caller.
const fn changing(verb: &Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Apply(_) => "apply",
        Verb::Install(_) => "install",
        Verb::Reconfigure(_) => "reconfigure",
        Verb::Upgrade(_) => "upgrade",
        Verb::Rollback(_) => "rollback",
        Verb::Repair(_) => "repair",
        Verb::Resume(_) => "resume",
        Verb::Uninstall(_) => "uninstall",
        _ => return None,
    })
}
