//! What is told of a command line that cannot be parsed.

use std::env;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, ArgAction, Command};

use super::command::with_help;
use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{Format, Reporter, Style};
use crate::run::app;

/// From where two words are alike enough for one to be meant by the other: 1 is the same.
const ALIKE: f64 = 0.6;

/// Help and version are clap's; a wrong command line ends like every failure, in the shape asked for.
pub(super) fn usage(error: Error, args: &[OsString]) -> i32 {
    let mut tree = with_help();
    let error = tree.try_get_matches_from_mut(args).err().unwrap_or(error);
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _session_may_be_gone = error.print();
        return Exit::Ok.code();
    }
    if args.len() < 2 {
        let _session_may_be_gone = tree.print_help();
        return Exit::Ok.code();
    }
    let style = Style { format: format_asked_for(args), ..Style::default() };
    let fault = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => no_command(&tree, args),
        ErrorKind::InvalidSubcommand => no_such_command(&tree, &error, args),
        _ => of_variable(&tree, &error, args).unwrap_or_else(|| usage_fault(&error.render().to_string())),
    };
    let result = RunResult::failed(&fault.into());
    Reporter::new(style, &app::run_id()).finish(&result);
    result.exit_code
}

/// The command, or group of commands, that the words lead to, and its whole name.
fn reached<'a>(tree: &'a Command, args: &[OsString]) -> (&'a Command, String) {
    let mut reached = (tree, tree.get_name().to_owned());
    let mut words = args.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if let Some(below) = reached.0.find_subcommand(&*word) {
            reached = (below, format!("{} {}", reached.1, below.get_name()));
        } else if reached.0.get_arguments().any(|arg| is_alone(arg, &word)) {
            words.next();
        }
    }
    reached
}

/// Whether a word is an option whose value is the next word.
fn is_alone(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").is_some_and(|long| arg.get_long() == Some(long));
    let short = arg.get_short().is_some_and(|short| word == format!("-{short}"));
    (long || short) && arg.get_action().takes_values()
}

fn visible(group: &Command) -> Vec<&str> {
    let visible = group.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name);
    visible.filter(|name| *name != "help").collect()
}

/// Only the name of the program and global options, or of a group of commands, was typed.
fn no_command(tree: &Command, args: &[OsString]) -> Fault {
    let (group, name) = reached(tree, args);
    Fault::new(Exit::Usage, "Usage", format!("`{name}` needs a command: {}", visible(group).join(", ")))
        .hint(format!("see: {name} --help"))
}

/// The one command that is most like what was typed. Nobody is led to an uninstall by a slip.
fn no_such_command(tree: &Command, error: &Error, args: &[OsString]) -> Fault {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed.as_str(),
        _ => "",
    };
    let (group, name) = reached(tree, args);
    let fault = Fault::new(Exit::Usage, "Usage", format!("`{name}` has no command `{typed}`"));
    match meant(typed, &visible(group)) {
        Some(verb) => fault.hint(format!("did you mean: {name} {verb}")),
        None => fault.hint(format!("see: {name} --help")),
    }
}

fn meant<'a>(typed: &str, verbs: &[&'a str]) -> Option<&'a str> {
    let begun: Vec<&str> = verbs.iter().copied().filter(|verb| typed.len() > 2 && verb.starts_with(typed)).collect();
    if let [verb] = begun[..] {
        return Some(verb);
    }
    let alike = |verb: &&str| strsim::normalized_damerau_levenshtein(typed, verb);
    let allowed = verbs.iter().copied().filter(|verb| *verb != "uninstall" || typed.starts_with("un"));
    allowed.filter(|verb| alike(verb) >= ALIKE).max_by(|one, other| alike(one).total_cmp(&alike(other)))
}

/// A value that nobody typed: it comes from a variable, which is named then.
fn of_variable(tree: &Command, error: &Error, args: &[OsString]) -> Option<Fault> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split([' ', '=']).next()?;
    let long = flag.strip_prefix("--")?;
    let (verb, _) = reached(tree, args);
    let arg = verb.get_arguments().chain(tree.get_arguments()).find(|arg| arg.get_long() == Some(long))?;
    let typed = |word: &OsString| {
        let word = word.to_string_lossy();
        let short = arg.get_short().is_some_and(|short| word.starts_with(&format!("-{short}")));
        word == flag || word.starts_with(&format!("{flag}=")) || short && !word.starts_with("--")
    };
    if args.iter().any(typed) {
        return None;
    }
    let variable = arg.get_env()?.to_str()?;
    let value = env::var(variable).ok()?;
    let takes = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => format!("one of {}", values.join(", ")),
        _ if matches!(arg.get_action(), ArgAction::SetTrue) => "true or false".into(),
        _ => format!("a value that {flag} takes"),
    };
    let what = format!("the variable {variable} is `{value}`, which {flag} does not take");
    Some(Fault::new(Exit::Usage, "Usage", what).hint(format!("set it to {takes}, or remove it")))
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
    match given.or_else(|| env::var("CALICO_WIN_OUTPUT").ok()).as_deref() {
        Some("json") => Format::Json,
        Some("ndjson") => Format::Ndjson,
        Some("yaml") => Format::Yaml,
        _ => Format::Text,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn a_slip_leads_to_one_command_and_never_to_uninstall() {
        let tree = Cli::command();
        let verbs = visible(&tree);
        for (typed, wanted) in [
            ("instal", Some("install")),
            ("isntall", Some("install")),
            ("statsu", Some("status")),
            ("reconf", Some("reconfigure")),
            ("upgarde", Some("upgrade")),
            ("uninstal", Some("uninstall")),
            ("ninstall", Some("install")),
            ("verify", None),
            ("frobnicate", None),
            ("re", None),
        ] {
            assert_eq!(meant(typed, &verbs), wanted, "{typed}");
        }
    }
}
