//! The error for a command line that cannot be parsed.

use std::env;
use std::ffi::OsString;
use std::io::Write;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, ArgAction, Command};

use super::command::with_help;
use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{Format, Reporter, Style};
use crate::report::screen::Color;
use crate::run::app;

/// The similarity from which a word is suggested for another: 1 is the same word.
const ALIKE: f64 = 0.6;

/// Help and version come from clap; a wrong command line fails like every run, in the requested format.
pub(super) fn usage(error: Error, args: &[OsString]) -> i32 {
    let mut tree = with_help();
    let error = tree.try_get_matches_from_mut(args).err().unwrap_or(error);
    let color = color_asked_for(args);
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        show(&error.render(), color);
        return Exit::Ok.code();
    }
    if args.len() < 2 {
        show(&tree.render_help(), color);
        return Exit::Ok.code();
    }
    let is_dsc = reached(&tree, args).1.starts_with("calicoctl-win dsc");
    let format = if is_dsc { Format::Dsc } else { format_asked_for(args) };
    let style = Style { format, color, ..Style::default() };
    let fault = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => no_command(&tree, args),
        ErrorKind::InvalidSubcommand => no_such_command(&tree, &error, args),
        _ => of_variable(&tree, &error, args).unwrap_or_else(|| usage_fault(&tree, &error, args)),
    };
    let result = RunResult::failed(&fault.into());
    Reporter::new(style, &app::run_id()).finish(&result);
    result.exit_code
}

/// Shows clap's text.
pub(super) fn show(text: &StyledStr, color: Color) {
    let mut out = std::io::stdout();
    let text = if color.on(&out) { text.ansi().to_string() } else { text.to_string() };
    let _session_may_be_gone = out.write_all(text.as_bytes());
}

/// Returns the command, or group of commands, that the words name, and its full name.
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

/// The error if only the program's name and global options, or a group of commands, was typed.
fn no_command(tree: &Command, args: &[OsString]) -> Fault {
    let (group, name) = reached(tree, args);
    Fault::new(Exit::Usage, "Usage", format!("`{name}` needs a command: {}", visible(group).join(", ")))
        .hint(format!("see: {name} --help"))
}

/// Suggests the one command, or alias of one, that is most similar to what was typed; never uninstall, which a typo must
/// not suggest.
fn no_such_command(tree: &Command, error: &Error, args: &[OsString]) -> Fault {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed.as_str(),
        _ => "",
    };
    let (group, name) = reached(tree, args);
    let fault = Fault::new(Exit::Usage, "Usage", format!("`{name}` has no command `{typed}`"));
    let aliases = group.get_subcommands().filter(|verb| !verb.is_hide_set()).flat_map(Command::get_all_aliases);
    match meant(typed, &visible(group).into_iter().chain(aliases).collect::<Vec<_>>()) {
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

/// Names the variable of a value that was not typed: one that is wrong, or that excludes something else.
fn of_variable(tree: &Command, error: &Error, args: &[OsString]) -> Option<Fault> {
    let flags = |kind| match error.get(kind) {
        Some(ContextValue::String(shown)) => vec![flag(shown)],
        Some(ContextValue::Strings(shown)) => shown.iter().map(|shown| flag(shown)).collect(),
        _ => Vec::new(),
    };
    let named = [flags(ContextKind::InvalidArg), flags(ContextKind::PriorArg)].concat();
    let (verb, _) = reached(tree, args);
    let (arg, flag) = named.iter().find_map(|flag| {
        let long = flag.strip_prefix("--")?;
        let arg = verb.get_arguments().chain(tree.get_arguments()).find(|arg| arg.get_long() == Some(long))?;
        Some((arg, *flag)).filter(|_| !is_typed(arg, flag, args))
    })?;
    let variable = arg.get_env()?.to_str()?;
    let value = env::var(variable).ok()?;
    if error.kind() == ErrorKind::ArgumentConflict {
        let other = named.into_iter().find(|other| *other != flag)?;
        let what = format!("the variable {variable} sets {flag}, which cannot be used with {other}");
        return Some(Fault::new(Exit::Usage, "Usage", what).hint(format!("remove the variable, or {other}")));
    }
    let takes = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => format!("one of {}", values.join(", ")),
        _ if matches!(arg.get_action(), ArgAction::SetTrue) => "true or false".into(),
        _ => format!("a value that {flag} takes"),
    };
    let why = std::error::Error::source(error).map_or_else(String::new, |why| format!(": {why}"));
    let what = format!("the variable {variable} is `{value}`, which {flag} does not take{why}");
    Some(Fault::new(Exit::Usage, "Usage", in_words(&what)).hint(format!("set it to {takes}, or remove it")))
}

/// The flag of an argument as clap shows it, with its value.
fn flag(shown: &str) -> &str {
    shown.split([' ', '=', '[']).next().unwrap_or_default()
}

fn is_typed(arg: &Arg, flag: &str, args: &[OsString]) -> bool {
    args.iter().any(|word| {
        let word = word.to_string_lossy();
        let short = arg.get_short().is_some_and(|short| word.starts_with(&format!("-{short}")));
        word == flag || word.starts_with(&format!("{flag}=")) || short && !word.starts_with("--")
    })
}

/// Splits clap's text into what went wrong (its first paragraph) and what to do (tips and usage).
fn usage_fault(tree: &Command, error: &Error, args: &[OsString]) -> Fault {
    let rendered = error.render().to_string();
    let mut paragraphs = rendered.split("\n\n").map(|paragraph| {
        let lines: Vec<&str> = paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    });
    let first = paragraphs.next().unwrap_or_default();
    let what = in_words(first.strip_prefix("error: ").unwrap_or(&first));
    let mut rest: Vec<String> = paragraphs
        .filter(|paragraph| !paragraph.is_empty() && !paragraph.starts_with("For more information"))
        .map(|paragraph| paragraph.trim_start_matches("tip: ").replacen("Usage: ", "usage: ", 1))
        .collect();
    rest.push(format!("see: {} --help", reached(tree, args).1));
    Fault::new(Exit::Usage, "Usage", what).hint(rest.join("\n"))
}

/// Says in words what Rust says of a value.
fn in_words(text: &str) -> String {
    let words = [
        ("invalid digit found in string", "it is not a whole number"),
        ("cannot parse integer from empty string", "it is not a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
        ("value was not a boolean", "it is neither true nor false"),
    ];
    words.iter().fold(text.to_owned(), |text, (rust, words)| text.replace(rust, words))
}

/// Returns the output format of a command line that could not be parsed.
fn format_asked_for(args: &[OsString]) -> Format {
    match asked_for(args, &["-o", "--output"], "CALICO_WIN_OUTPUT").as_deref() {
        Some("json") => Format::Json,
        Some("ndjson") => Format::Ndjson,
        Some("yaml") => Format::Yaml,
        Some("junit") => Format::Junit,
        _ => Format::Text,
    }
}

/// Returns whether to colour the output.
fn color_asked_for(args: &[OsString]) -> Color {
    match asked_for(args, &["--color"], "CALICO_WIN_COLOR").as_deref() {
        Some("always") => Color::Always,
        Some("never") => Color::Never,
        _ => Color::Auto,
    }
}

/// Returns the value of an option with these names, or of its variable.
fn asked_for(args: &[OsString], names: &[&str], variable: &str) -> Option<String> {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let value = |(index, word): (usize, &String)| {
        names.iter().find_map(|name| match word.strip_prefix(name)? {
            "" => words.get(index + 1).cloned(),
            rest if name.starts_with("--") => rest.strip_prefix('=').map(str::to_owned),
            rest => Some(rest.trim_start_matches('=').to_owned()),
        })
    };
    words.iter().enumerate().find_map(value).or_else(|| env::var(variable).ok())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn a_typo_suggests_one_command_and_never_uninstall() {
        let tree = Cli::command();
        let aliases = tree.get_subcommands().flat_map(Command::get_all_aliases);
        let verbs: Vec<&str> = visible(&tree).into_iter().chain(aliases).collect();
        for (typed, wanted) in [
            ("instal", Some("install")),
            ("isntall", Some("install")),
            ("statsu", Some("status")),
            ("reconf", Some("reconfigure")),
            ("upgarde", Some("upgrade")),
            ("uninstal", Some("uninstall")),
            ("ninstall", Some("install")),
            ("delet", Some("delete")),
            ("rmeove", Some("remove")),
            ("verfy", Some("verify")),
            ("frobnicate", None),
            ("re", None),
        ] {
            assert_eq!(meant(typed, &verbs), wanted, "{typed}");
        }
    }
}
