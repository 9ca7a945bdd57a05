//! The command line: its arguments, which verb runs, and what the screen shows.

mod args;
mod checks;
mod clock;
mod cluster;
mod command;
mod components;
mod config;
mod credentials;
mod diagnose;
pub mod documents;
mod dsc;
mod exec_plugin;
mod fleet;
mod history;
mod import;
mod kubernetes;
mod log_lines;
mod logs;
mod metrics;
mod network;
mod offline;
mod plan;
mod policy;
mod preflight;
mod receipt;
mod release;
mod render;
mod selftest;
mod service;
mod status;
mod table;
mod usage;
mod verify;

use std::ffi::OsString;
use std::time::SystemTime;

use anyhow::Result;
use clap_complete::CompleteEnv;

use crate::cluster::{EXEC_PLUGIN, show_requests};
use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{self, Format, Reporter};
use crate::report::stdout_queue;
use crate::run::app::{self, App};
use crate::run::change::ChangeRequest;
use crate::run::options::DryRun;
use crate::run::sources::Choice;
use crate::run::verb::{self, Row};
use crate::run::{Ending, change, detach, generations, image, node_object, resume, trial, uninstall};
use args::Verb;

/// The variable with which a completion script calls this program.
const COMPLETE: &str = "CALICO_WIN_COMPLETE";

/// The whole command line, for what is made of it.
pub fn tree() -> clap::Command {
    command::command()
}

/// Runs a command line and returns the process's exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    // A call by shell completion ends here.
    CompleteEnv::with_factory(command::to_complete).var(COMPLETE).complete();
    let mut args: Vec<OsString> = args.into_iter().collect();
    // Not a command for people, and its words are another program's.
    if args.get(1).is_some_and(|word| word == EXEC_PLUGIN) {
        return exec_plugin::run(&args[2..]);
    }
    // Short for `--help`, and the same text.
    if args.get(1).is_some_and(|word| word == "help") {
        args.remove(1);
        args.push("--help".into());
    }
    let mut cli = match command::parse(&args) {
        Ok(cli) => cli,
        Err(error) => return usage::usage(error, &args),
    };
    if matches!(cli.verb, Verb::Dsc(_)) {
        dsc::fix(&mut cli.global);
    }
    let style = cli.global.style();
    if cli.global.verbose > 1 {
        show_requests(reporter::request);
    }
    // Before anything asks for the time.
    if let Err(fault) = clock::check(SystemTime::now()) {
        return clock::refused(style, fault);
    }
    let run = cli.global.detached_run.clone().unwrap_or_else(app::run_id);
    let reporter = match &cli.global.confirmed {
        Some(plan) => Reporter::taking_over(style, &run, plan.lines),
        None => Reporter::new(style, &run),
    };
    let mut app = App::new(cli.global, reporter, args);
    // Windows restarts a service whose process ends.
    if !matches!(cli.verb, Verb::Service(args::Service::Run { .. })) {
        app.report_panics();
    }
    let ending = match answered(&cli.verb, &mut app).and_then(|()| dispatch(cli.verb, &mut app)) {
        Ok(ending) => ending,
        Err(error) => Ending::Result(Box::new(RunResult::failed(&error))),
    };
    let code = app.close(ending);
    stdout_queue::flush();
    code
}

/// Handles Ctrl-C for a verb that takes time; `logs -f` and `status --watch` end with it, as text without a word, and a
/// service handles it itself.
fn answered(verb: &Verb, app: &mut App) -> Result<()> {
    let endless = matches!(verb, Verb::Logs(_) | Verb::Status(args::Status { watch: true, .. }));
    let plain = endless && app.reporter.is_text()
        || matches!(
            verb,
            Verb::Service(args::Service::Run { .. })
                | Verb::Selftest(args::Selftest { part: Some(_), .. })
                | Verb::Explain(_)
                | Verb::Completion(_)
                | Verb::Options
                | Verb::Version
        );
    if plain { Ok(()) } else { app.listen() }
}

fn dispatch(verb: Verb, app: &mut App) -> Result<Ending> {
    let has_checks = matches!(
        verb,
        Verb::Preflight(_) | Verb::Verify(_) | Verb::Cluster(args::ClusterVerb::Check) | Verb::Policy(_)
    );
    if app.reporter.format() == Format::Junit && !has_checks {
        return Err(Fault::new(Exit::Usage, "Usage", "only checks can be told as JUnit's test results")
            .hint("use -o junit with: calicoctl-win preflight\nor: calicoctl-win verify\nor: calicoctl-win cluster check\nor: calicoctl-win policy lint")
            .into());
    }
    if app.global.dry_run == DryRun::Server && !matches!(verb, Verb::Fleet(args::Fleet::Apply { .. })) {
        return Err(Fault::new(Exit::Usage, "Usage", "only fleet apply has a dry run of the API server")
            .hint("use --dry-run without a value")
            .into());
    }
    if app.global.detach && app.global.detached_run.is_none() {
        // A variable that is set for a whole script applies only to verbs that can be detached.
        let typed = app.args.iter().any(|word| word.to_str().is_some_and(|word| word.starts_with("--detach")));
        let row = row(&verb);
        if typed || row.is_some() && !app.global.is_dry_run() {
            return detach::start(row, app);
        }
    }
    match verb {
        Verb::Preflight(args) => preflight::run(&args, app),
        Verb::Plan(args) => plan::run(&args, app),
        Verb::Apply(args) => change::run(&args, app),
        Verb::Install(args) if args.prepare => image::run(&args.source, app),
        Verb::Install(args) if args.download_only => release::download(&args.source.source, app),
        Verb::Install(args) => change::run(&args, app),
        Verb::Reconfigure(args) => change::run(&args, app),
        Verb::Upgrade(args) => change::run(&args, app),
        Verb::Migrate(args::Migrate::From(args::Former::Flannel(args))) => change::run(&args, app),
        Verb::Confirm(args) => trial::confirm(&args, app),
        Verb::Rollback(args) => generations::run(&args, app),
        Verb::Repair(args) => generations::run(&args, app),
        Verb::Receipt(verb) => receipt::run(&verb, app),
        Verb::History => history::run(app),
        Verb::Resume(args) => resume::run(&args, app),
        Verb::Uninstall(args) => uninstall::run(&args, app),
        Verb::Status(args) => status::run(&args, app),
        Verb::Verify(args) => verify::run(&args, app),
        Verb::Logs(args) => logs::run(&args, app),
        Verb::Metrics(args) => metrics::run(&args, app),
        Verb::Service(verb) => service::run(&verb, app),
        Verb::Kubernetes(verb) => kubernetes::run(&verb, app),
        Verb::Network(verb) => network::run(&verb, app),
        Verb::Node(verb) => node_object::run(&verb, app),
        Verb::Credentials(verb) => credentials::run(&verb, app),
        Verb::Config(verb) => config::run(&verb, app),
        Verb::Release(verb) => release::run(&verb, app),
        Verb::Cluster(verb) => cluster::run(&verb, app),
        Verb::Fleet(verb) => fleet::run(&verb, app),
        Verb::Policy(args::PolicyVerb::Lint { files, release_line }) => policy::lint(&files, release_line, app),
        Verb::Render(verb) => render::run(&verb, app),
        Verb::Dsc(verb) => dsc::run(&verb, app),
        Verb::Diagnose(args) => diagnose::run(&args, app),
        Verb::Selftest(args) => selftest::run(&args, app),
        Verb::Explain(args) => offline::explain(&args, app),
        Verb::Completion(args) => offline::completion(&args, app),
        Verb::Options => offline::options(app),
        Verb::Version => offline::version(app),
    }
}

/// Returns a verb's row in the table of those that change the node, and what it says of the config: these verbs can
/// continue without their caller.
fn row(verb: &Verb) -> Option<(&'static Row, Choice<'_>)> {
    Some(match verb {
        Verb::Apply(args) => ChangeRequest::from(args).target(),
        Verb::Install(args) => ChangeRequest::from(args).target(),
        Verb::Reconfigure(args) => ChangeRequest::from(args).target(),
        Verb::Upgrade(args) => ChangeRequest::from(args).target(),
        Verb::Migrate(args::Migrate::From(args::Former::Flannel(args))) => ChangeRequest::from(args).target(),
        Verb::Kubernetes(args::Kubernetes::Install(args)) => (&verb::KUBERNETES_INSTALL, Choice::of(&args.source)),
        Verb::Kubernetes(args::Kubernetes::Uninstall) => (&verb::KUBERNETES_UNINSTALL, Choice::default()),
        Verb::Rollback(_) => (&verb::ROLLBACK, Choice::default()),
        Verb::Repair(_) => (&verb::REPAIR, Choice::default()),
        Verb::Network(args::Network::Reset(_)) => (&verb::RESET, Choice::default()),
        Verb::Resume(_) => (&verb::RESUME, Choice::default()),
        Verb::Uninstall(_) => (&verb::UNINSTALL, Choice::default()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use anyhow::Error;

    use super::*;
    use crate::agent::supervise::Timing;
    use crate::counted;
    use crate::node::Node as _;
    use crate::node::sandbox::SandboxNode;
    use crate::run::drift::of_last_run;
    use crate::values::WinPath;

    /// What a command reads more than once, and how often.
    type Exceptions = &'static [(&'static str, usize)];

    /// In a sandbox, CalicoNode is started in this process: it looks at its machine and asks with its own rights. The
    /// proof asks with the node's rights, which the change may just have made.
    const PROVES: Exceptions = &[("facts", 2), ("client", 3)];
    /// CalicoNode is not restarted.
    const PROVES_FELIX: Exceptions = &[("client", 2)];
    /// Whether the node works is also asked before, with the rights that it has until then.
    const RESTORES: Exceptions = &[("facts", 2), ("client", 4)];
    /// Whether the datastore answers is also asked, before the services stop.
    const RESETS: Exceptions = &[("facts", 2), ("client", 5)];
    /// The proof has the node's rights, and nothing else asks the cluster.
    const RESTARTS: Exceptions = &[("facts", 2), ("client", 2)];

    /// It also measures the node's status, with the node's own login, by which the datastore was asked too.
    const WITH_STATUS: Exceptions = &[("client", 2), ("standing", 2)];

    /// What a failed change left is read again, to revert it.
    const FAILS: Exceptions = &[("standing", 2)];

    const ROWS: &[(&str, Exceptions)] = &[
        ("install", PROVES),
        ("install", &[]),
        ("reconfigure --set calicoNetwork.vxlan.vxlanVNI=5000", PROVES),
        ("reconfigure --set calicoNetwork.vxlan.vxlanVNI=7000 --sandbox-fault put_*#9+=fail", FAILS),
        ("resume", PROVES),
        ("apply --set calicoNetwork.vxlan.vxlanVNI=6000", PROVES),
        ("rollback", RESTORES),
        ("repair", &[]),
        ("network list", &[]),
        ("network show Calico", &[]),
        ("network reset", RESETS),
        ("upgrade", &[]),
        ("reconfigure --set services.felixLogSeverity=debug --mode try", PROVES_FELIX),
        ("confirm", &[]),
        ("reconfigure --set services.felixLogSeverity=info --mode try", PROVES_FELIX),
        ("confirm --revert", &[]),
        ("credentials rotate", &[]),
        ("service restart", RESTARTS),
        ("node cordon", &[]),
        ("node uncordon", &[]),
        ("node drain", &[]),
        ("node taint a=b:NoSchedule", &[]),
        ("node untaint a", &[]),
        ("plan", &[]),
        ("config show", &[]),
        ("config diff", &[]),
        ("preflight", WITH_STATUS),
        ("cluster check", &[]),
        ("policy lint", &[]),
        ("credentials show", &[]),
        ("receipt list", &[]),
        ("history", &[]),
        ("uninstall --drain", &[]),
    ];

    fn run(words: &str, sandbox: &Path) -> Result<Ending> {
        let words = format!("calicoctl-win {words} --yes --quiet --output json --sandbox {}", sandbox.display());
        // An underscore is a space within a word.
        let words: Vec<OsString> = words.split(' ').map(|word| word.replace('_', " ").into()).collect();
        let cli = command::parse(&words).unwrap();
        let mut app = App::new(cli.global.clone(), Reporter::new(cli.global.style(), &app::run_id()), words);
        dispatch(cli.verb, &mut app)
    }

    /// What CalicoNode asks every ten minutes.
    #[test]
    fn drift_is_what_differs_from_the_last_run_and_is_no_question_during_a_trial() {
        const CONF: &str = r"C:\Program Files\containerd\cni\conf\10-calico.conf";
        let folder = tempfile::tempdir().unwrap();
        let sandbox = folder.path().join("node");
        drop(run("install", &sandbox).unwrap());
        let mut node = SandboxNode::open(&sandbox).unwrap();
        let conf = node.disk(&WinPath::known(CONF));
        assert_eq!(of_last_run(&mut node).unwrap(), [""; 0]);
        std::fs::write(&conf, "{}").unwrap();
        assert_eq!(of_last_run(&mut node).unwrap(), [format!("file {CONF}")]);
        assert_eq!(std::fs::read(&conf).unwrap(), b"{}", "it is not repaired");
        drop(run("repair", &sandbox).unwrap());

        drop(run("reconfigure --set services.felixLogSeverity=debug --mode try", &sandbox).unwrap());
        std::fs::write(&conf, "{}").unwrap();
        assert_eq!(of_last_run(&mut node).unwrap(), [""; 0], "the trial is still to be confirmed");
        assert_eq!(Timing::default().drift.as_secs(), 600);
    }

    #[test]
    fn a_run_reads_and_decides_each_thing_once() {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = folder.path().join("node");
        let mut wrong = Vec::new();
        for (words, exceptions) in ROWS {
            drop(counted::take());
            let ended = run(words, &sandbox);
            assert_eq!(ended.is_err(), words.contains("fail"), "{words}: {:#}", ended.err().unwrap_or(Error::msg("")));
            let counted = counted::take();
            let exceptions: BTreeMap<&str, usize> = exceptions.iter().copied().collect();
            for (what, count) in counted {
                let allowed = exceptions.get(what).copied().unwrap_or(1);
                if count != allowed {
                    wrong.push(format!("{words}: {what} {count} times, and not {allowed}"));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}
