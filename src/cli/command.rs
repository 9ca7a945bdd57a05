//! The command line as clap parses it: the tree of [`Cli`] with groups and examples in its help, with
//! candidates for completion, and with variables as scripts write them.

use std::env;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCandidates;

use super::args::Cli;
use crate::apply::standing::Standing;
use crate::config;
use crate::node::Node;
use crate::node::sandbox::SandboxNode;
use crate::preflight;
use crate::report::explain;

/// How the names of our variables begin.
const VARIABLES: &str = "CALICO_WIN_";

/// The commands by what they are for.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Set up", &["preflight", "plan", "apply", "install"]),
    ("Change", &["reconfigure", "upgrade", "confirm", "rollback", "uninstall"]),
    ("Look", &["status", "history", "logs", "receipt", "config", "explain"]),
    ("Repair", &["repair", "resume", "service"]),
    ("Cluster", &["cluster", "node", "credentials", "release"]),
    ("Machine", &["completion", "options", "version"]),
];

/// What people type most, by command; each runs as it stands.
const EXAMPLES: [(&str, &[&str]); 26] = [
    ("preflight", &["preflight", "preflight -c node.yaml --wait", "preflight --fix"]),
    ("plan", &["plan -c node.yaml", "plan -c node.yaml --out plan.json", "plan --uninstall"]),
    (
        "apply",
        &[
            "apply -c node.yaml --yes -o json",
            "apply -c node.yaml --dry-run",
            "apply --plan plan.json",
            "apply -c node.yaml --yes --drain=never",
        ],
    ),
    (
        "install",
        &["install -c node.yaml", "install -c node.yaml --yes -o json", "install --release v3.32.1 --no-start"],
    ),
    (
        "reconfigure",
        &[
            "reconfigure --set calicoNetwork.vxlan.vxlanVNI=5000",
            "reconfigure --set calicoNetwork.vxlan.vxlanVNI=5000 --mode try",
            "reconfigure --unset transport.proxy",
        ],
    ),
    ("upgrade", &["upgrade --release v3.32.1", "upgrade --release calico-windows-v3.32.1.zip --dry-run"]),
    ("confirm", &["confirm", "confirm --revert"]),
    ("rollback", &["rollback --dry-run", "rollback", "rollback --to 3"]),
    ("uninstall", &["uninstall --dry-run", "uninstall --drain", "uninstall --purge --cluster-traces"]),
    ("status", &["status", "status --wait --timeout 5m", "status --watch", "status -o json"]),
    ("logs", &["logs -f", "logs --component felix --since 1h"]),
    ("history", &["history", "history -o json"]),
    ("receipt", &["receipt list", "receipt show 2"]),
    ("config", &["config init node.yaml", "config validate node.yaml", "config show --origins", "config diff"]),
    ("config import", &["config import config.ps1 --out node.yaml", "config import --live"]),
    ("explain", &["explain StrictAffinity", "explain 7", "explain calicoNetwork"]),
    ("repair", &["repair --dry-run", "repair"]),
    ("resume", &["resume", "resume --undo"]),
    ("service", &["service status", "service restart"]),
    ("cluster", &["cluster check", "cluster prepare", "cluster prepare --apply"]),
    ("node", &["node drain --dry-run", "node cordon", "node taint os=windows:NoSchedule"]),
    ("node drain", &["node drain --dry-run", "node drain --delete-emptydir-data --drain-timeout 5m"]),
    ("credentials", &["credentials show", "credentials rotate"]),
    ("release", &["release download --release v3.32.1", "release verify calico-windows-v3.32.1.zip", "release list"]),
    ("completion", &["completion powershell", "completion bash"]),
    ("version", &["version", "version -o json"]),
];

/// The tree for a shell that completes a command line: there every option is offered.
pub(super) fn to_complete() -> Command {
    each_argument(Cli::command(), &with_candidates)
}

/// The tree that a command line is parsed with.
pub(super) fn command() -> Command {
    // One help for -h and --help.
    let help = Arg::new("help").short('h').long("help").global(true).action(ArgAction::HelpShort).help("Print help");
    let empty = env::vars_os().any(|(name, value)| value.is_empty() && name.to_string_lossy().starts_with(VARIABLES));
    let tree = if empty { each_argument(Cli::command(), &without_empty_variable) } else { Cli::command() };
    tree.disable_help_flag(true).arg(help)
}

/// The same with the help that is shown: to give every command its examples and hide the global options takes
/// longer than most commands need to start.
pub(super) fn with_help() -> Command {
    // What a variable holds may be a secret.
    let command = each_argument(command(), &|arg| arg.hide_env_values(true));
    let overview = overview(&command);
    let mut command = command.help_template("{about}\n\n{usage-heading} {usage}{after-help}").after_help(overview);
    // Now every command has the global options too.
    command.build();
    command.mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        in_short(verb, &name)
    })
}

/// The options that every command takes.
pub(super) fn global_options() -> String {
    let tree = each_argument(Cli::command(), &|arg| arg.hide_env_values(true)).disable_help_flag(true);
    tree.help_template("These options can be given to any command.\n\n{options}").render_help().to_string()
}

/// The commands in their groups.
fn overview(tree: &Command) -> String {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for verb in verbs {
            let about = tree.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
            text.push_str(&format!("  {verb:<12} {}\n", about.unwrap_or_default()));
        }
        text.push('\n');
    }
    text.push_str(
        "Help for a command:       calicoctl-win COMMAND --help\n\
         Options of all commands:  calicoctl-win options\n\
         Checks, codes and fields: calicoctl-win explain ID\n\
         Try it in a sandbox:      calicoctl-win install --sandbox DIR --yes",
    );
    text
}

fn each_argument(command: Command, change: &dyn Fn(Arg) -> Arg) -> Command {
    command.mut_args(change).mut_subcommands(|below| each_argument(below, change))
}

/// An empty variable is as good as none.
fn without_empty_variable(arg: Arg) -> Arg {
    let empty = arg.get_env().is_some_and(|name| env::var_os(name).is_some_and(|value| value.is_empty()));
    if empty { arg.env(None) } else { arg }
}

/// A command's own options and examples; the global ones have a page of their own.
fn in_short(command: Command, path: &str) -> Command {
    let examples = EXAMPLES.iter().find(|(of, _)| *of == path).map_or_else(String::new, |(_, examples)| {
        let lines: Vec<String> = examples.iter().map(|line| format!("  calicoctl-win {line}\n")).collect();
        format!("Examples:\n{}\n", lines.concat())
    });
    command
        .mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg })
        .after_help(format!("{examples}Global options: calicoctl-win options"))
        .mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            in_short(below, &path)
        })
}

/// What may stand where a shell completes a value.
fn with_candidates(arg: Arg) -> Arg {
    fn paths() -> impl Iterator<Item = (String, String)> {
        config::fields().map(|field| (field.path.trim_start_matches("spec.").to_owned(), field.help))
    }
    let candidate = |(value, help): (String, String)| CompletionCandidate::new(value).help(Some(help.into()));
    match arg.get_id().as_str() {
        "ignore_preflight_errors" => arg.add(ArgValueCandidates::new(|| {
            preflight::catalogue().map(|row| CompletionCandidate::new(row.id).help(Some(row.why.into()))).collect()
        })),
        "set" => arg.add(ArgValueCandidates::new(move || {
            paths().map(|(path, help)| candidate((format!("{path}="), help))).collect()
        })),
        "unset" => arg.add(ArgValueCandidates::new(move || paths().map(candidate).collect())),
        "id" => arg.add(ArgValueCandidates::new(move || {
            explain::ids().map(CompletionCandidate::new).chain(paths().map(candidate)).collect()
        })),
        "to" | "generation" => arg.add(ArgValueCandidates::new(|| generations().unwrap_or_default())),
        _ => arg,
    }
}

/// The generations of this machine, or of the sandbox that the variable names; none if they cannot be read.
fn generations() -> anyhow::Result<Vec<CompletionCandidate>> {
    let node: Box<dyn Node> = match env::var_os("CALICO_WIN_SANDBOX") {
        Some(folder) => Box::new(SandboxNode::open(Path::new(&folder))?),
        None => crate::node::machine()?,
    };
    let receipts = Standing::load(&*node)?.receipts;
    Ok(receipts.iter().map(|receipt| CompletionCandidate::new(receipt.generation.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let tree = Cli::command();
        let visible: BTreeSet<&str> =
            tree.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        assert_eq!(grouped.len(), visible.len(), "{grouped:?}");
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), visible);
    }

    #[test]
    fn every_example_is_a_command_line() {
        for (path, examples) in EXAMPLES {
            assert!((2..=4).contains(&examples.len()), "{path}");
            for example in examples {
                assert!(example.starts_with(path), "{example}");
                let words = ["calicoctl-win"].into_iter().chain(example.split(' '));
                command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{example}: {error}"));
            }
        }
    }

    #[test]
    fn the_tree_is_sound() {
        with_help().debug_assert();
    }
}
