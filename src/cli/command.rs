//! The command line as clap parses it: the tree of [`Cli`] with groups and examples in its help, with candidates for
//! completion, and with variables in the forms that scripts use.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCandidates;
use serde_json::Value;

use super::args::{Cli, EXAMPLES, GROUPS};
use crate::apply::standing::Standing;
use crate::config;
use crate::node::Node;
use crate::node::sandbox::SandboxNode;
use crate::preflight;
use crate::report::{explain, screen};
use crate::run::records;

/// The prefix of our variables.
const VARIABLES: &str = "CALICO_WIN_";

/// The width of help that is written to a file.
const HELP: usize = 100;

/// The tree for a shell that completes a command line: there every option is offered.
pub(super) fn to_complete() -> Command {
    // clap offers a hidden option if nothing else begins like it. This process ends at once.
    let unseen = |arg: Arg| {
        if !arg.is_hide_set() {
            return arg;
        }
        let name: &'static str = format!("~{}", arg.get_id()).leak();
        arg.long(name)
    };
    each_argument(Cli::command(), &|arg| with_candidates(unseen(arg)))
}

/// The tree that a command line is parsed with.
pub(super) fn command() -> Command {
    // One help for -h and --help.
    let help = Arg::new("help").short('h').long("help").global(true).action(ArgAction::HelpShort).help("Print help");
    let empty = env::vars_os().any(|(name, value)| value.is_empty() && name.to_string_lossy().starts_with(VARIABLES));
    let tree = if empty { each_argument(Cli::command(), &without_empty_variable) } else { Cli::command() };
    tree.disable_help_flag(true).arg(help)
}

/// Parses a command line.
///
/// clap copies each global option to each command, for which a short command needs as much time as for all else. First
/// the tree has only the commands that are named among the words; every error is that of the whole tree.
///
/// # Errors
/// What clap refuses, and what it shows instead of running a command: help and the version.
pub(super) fn parse(words: &[OsString]) -> clap::error::Result<Cli> {
    let whole = command();
    let named = |verb: &&Command| {
        [verb.get_name()].into_iter().chain(verb.get_all_aliases()).any(|name| words.iter().any(|word| word == name))
    };
    let tree = Command::default()
        .disable_help_flag(true)
        .args(whole.get_arguments().cloned())
        .subcommands(whole.get_subcommands().filter(named).cloned());
    match tree.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(cli),
        Err(_) => Cli::from_arg_matches(&whole.try_get_matches_from(words)?),
    }
}

/// The same with the help text: adding examples to every command, and hiding the global options, takes longer than most
/// commands need to start.
pub(super) fn with_help() -> Command {
    // A variable may contain a secret.
    let command = each_argument(command(), &|arg| arg.hide_env_values(true));
    let overview = overview(&command);
    let mut command = command
        .term_width(width())
        .help_template("{about}\n\n{usage-heading} {usage}{after-help}")
        .after_help(overview);
    // From here on every command has the global options too.
    command.build();
    command.mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        in_short(verb, &name)
    })
}

/// Returns the options that every command takes.
pub(super) fn global_options() -> StyledStr {
    let tree = each_argument(Cli::command(), &|arg| arg.hide_env_values(true)).disable_help_flag(true);
    tree.term_width(width()).help_template("These options can be given to any command.\n\n{options}").render_help()
}

/// Returns the width of help.
fn width() -> usize {
    screen::columns(&std::io::stdout()).unwrap_or(HELP)
}

/// Returns the commands in their groups.
fn overview(tree: &Command) -> String {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for verb in verbs {
            let about = tree.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
            let line = format!("  {verb:<12} {}", about.unwrap_or_default());
            text.push_str(&(screen::rows(&line, Some(width())).join("\n") + "\n"));
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

/// Treats an empty variable as unset.
fn without_empty_variable(arg: Arg) -> Arg {
    let empty = arg.get_env().is_some_and(|name| env::var_os(name).is_some_and(|value| value.is_empty()));
    if empty { arg.env(None) } else { arg }
}

/// Shows only a command's own options and examples; the global ones have a separate page.
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

/// Adds the candidates for shell completion of a value.
fn with_candidates(arg: Arg) -> Arg {
    fn paths() -> impl Iterator<Item = (String, String)> {
        config::fields().map(|field| (field.path.trim_start_matches("spec.").to_owned(), field.help))
    }
    let candidate = |(value, help): (String, String)| CompletionCandidate::new(value).help(Some(help.into()));
    match arg.get_id().as_str() {
        "ignore_preflight_errors" => arg.add(ArgValueCandidates::new(|| {
            let current = preflight::catalogue().map(|row| (row.id, row.why.to_owned(), false));
            let former = preflight::RENAMED.iter().map(|(id, current)| (*id, format!("now {current}"), true));
            // Shown only if nothing else fits what was typed.
            let all = current.chain(former);
            all.map(|(id, help, former)| CompletionCandidate::new(id).help(Some(help.into())).hide(former)).collect()
        })),
        "set" => arg.add(ArgValueCandidates::new(move || {
            paths().map(|(path, help)| candidate((format!("{path}="), help))).collect()
        })),
        "unset" => arg.add(ArgValueCandidates::new(move || paths().map(candidate).collect())),
        "id" => arg.add(ArgValueCandidates::new(move || {
            explain::ids().map(CompletionCandidate::new).chain(paths().map(candidate)).collect()
        })),
        "to" | "generation" => arg.add(ArgValueCandidates::new(|| generations().unwrap_or_default())),
        "run" => arg.add(ArgValueCandidates::new(|| runs().unwrap_or_default())),
        _ => arg,
    }
}

/// Opens this machine, or the sandbox that the command line or the variable names.
fn node() -> anyhow::Result<Box<dyn Node>> {
    let words: Vec<OsString> = env::args_os().collect();
    let after = words.iter().position(|word| word == "--sandbox").and_then(|at| words.get(at + 1)).cloned();
    let within = || words.iter().find_map(|word| Some(word.to_str()?.strip_prefix("--sandbox=")?.into()));
    match after.or_else(within).or_else(|| env::var_os("CALICO_WIN_SANDBOX")) {
        Some(folder) => Ok(Box::new(SandboxNode::open(Path::new(&folder))?)),
        None => crate::node::machine(),
    }
}

/// Returns the generations of the node.
fn generations() -> anyhow::Result<Vec<CompletionCandidate>> {
    let receipts = Standing::load(&*node()?)?.receipts;
    Ok(receipts.iter().map(|receipt| CompletionCandidate::new(receipt.generation.to_string())).collect())
}

/// Returns the runs on the node, the newest first.
fn runs() -> anyhow::Result<Vec<CompletionCandidate>> {
    let mut runs = records::all(&*node()?)?;
    runs.sort_by(|one, other| other["run"].as_str().cmp(&one["run"].as_str()));
    let candidate = |run: &Value| {
        let command = run["command"].as_str().map(|command| command.to_owned().into());
        Some(CompletionCandidate::new(run["run"].as_str()?).help(command))
    };
    Ok(runs.iter().filter_map(candidate).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::options::{TAKE_CONFIG, TAKE_NOTHING};

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
    fn a_line_is_parsed_as_with_the_whole_tree() {
        let examples = EXAMPLES.iter().flat_map(|(_, examples)| examples.iter().copied());
        let others =
            ["doctor", "--sandbox status install -c upgrade", "remove --yes", "status version", "instal", "-V"];
        for line in examples.chain(others) {
            let words: Vec<OsString> = ["calicoctl-win"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let whole = command().try_get_matches_from(&words).and_then(|matches| Cli::from_arg_matches(&matches));
            assert_eq!(format!("{:?}", parse(&words)), format!("{whole:?}"), "{line}");
        }
    }

    /// What a hint's command is given again depends on its words.
    #[test]
    fn the_verbs_that_take_a_config_or_no_node_are_in_the_tree() {
        let tree = Cli::command();
        let is_in_tree = |path: &str| {
            let next = |at, word: &str| match word.strip_prefix("--") {
                Some(flag) => Command::get_arguments(at).any(|arg| arg.get_long() == Some(flag)).then_some(at),
                None => at.find_subcommand(word),
            };
            path.split(' ').try_fold(&tree, next).is_some()
        };
        let lost: Vec<&str> = TAKE_CONFIG.into_iter().chain(TAKE_NOTHING).filter(|path| !is_in_tree(path)).collect();
        assert_eq!(lost, [""; 0]);
        assert!(!is_in_tree("config shows") && !is_in_tree("plan --print-fact"));
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let mut tree = with_help();
        tree.build();
        for verb in tree.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name().to_owned();
            let help = verb.render_help().to_string();
            // `options` shows only what its description says.
            let shown = help.contains("\nExamples:\n  calicoctl-win ") || ["options", "help"].contains(&name.as_str());
            assert!(shown && help.contains("Global options: calicoctl-win options"), "{name}: {help}");
        }
    }

    #[test]
    fn the_tree_is_valid() {
        with_help().debug_assert();
    }
}
