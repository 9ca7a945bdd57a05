//! The screen's colours and width, and lines that fit on it.

use std::env;
use std::io::IsTerminal;
use std::sync::LazyLock;

use regex::Regex;

/// A screen narrower than this is written on as if it had so many columns.
const NARROWEST: usize = 40;

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether the output of a stream is coloured.
    pub fn on(self, stream: &impl IsTerminal) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                stream.is_terminal()
                    && has_sequences()
                    && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// Whether the console understands the sequences that colour and clear it. Windows does since version 1511, if a program asks for it:
/// <https://learn.microsoft.com/windows/console/console-virtual-terminal-sequences>.
pub fn has_sequences() -> bool {
    #[cfg(windows)]
    let has = anstyle_query::windows::enable_ansi_colors() != Some(false);
    #[cfg(not(windows))]
    let has = true;
    has
}

/// How many columns a line may have: `COLUMNS`, or the terminal's; none for a pipe or a file, in which lines are
/// whole.
pub fn columns(stream: &impl IsTerminal) -> Option<usize> {
    let said = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    let measured = || {
        let size = stream.is_terminal().then(terminal_size::terminal_size)?;
        size.map(|(columns, _)| usize::from(columns.0))
    };
    said.or_else(measured).map(|columns: usize| columns.max(NARROWEST))
}

/// A text in lines that fit, each with `paint` on its first row. A fenced block is as it is.
pub fn fitted(text: &str, columns: Option<usize>, paint: impl Fn(&str) -> String) -> String {
    let mut fenced = false;
    let lines = text.split('\n').map(|line| {
        fenced ^= line.trim_start().starts_with("```");
        let rows = rows(line, columns.filter(|_| !fenced));
        let (first, rest) = rows.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        rest.iter().fold(paint(first), |text, row| text + "\n" + row)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A line in rows that fit. What people copy (a command, a path, text in backticks) is never broken, so
/// a row can be longer.
pub fn rows(line: &str, columns: Option<usize>) -> Vec<String> {
    match columns.filter(|columns| length(line) > *columns) {
        Some(columns) => broken(line, columns, hanging(line, columns)),
        None => vec![line.to_owned()],
    }
}

/// A line in rows of this number of columns; all but the first are indented further.
pub fn broken(line: &str, columns: usize, hanging: usize) -> Vec<String> {
    let hanging = " ".repeat(hanging);
    let mut rows = vec![String::new()];
    for part in parts(line) {
        let Some(row) = rows.last_mut() else { break };
        let word = part.trim_start();
        let starts_at = length(row) + length(part) - length(word);
        if length(row) + length(part) <= columns || starts_at <= hanging.len() {
            row.push_str(part);
        } else {
            rows.push(format!("{hanging}{word}"));
        }
    }
    rows
}

/// How many columns a text takes: what this program prints is no wider than its characters.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// Where the rows after the first begin: below the last column of a table, else below the text of a label or a
/// mark, else slightly indented below an indented line or an error.
fn hanging(line: &str, columns: usize) -> usize {
    static COLUMN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\S {2,}\S").expect("it is one"));
    // As `Next: COMMAND      Undo: COMMAND`.
    static SENTENCE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[A-Z]\w+: ").expect("it is one"));
    static LABEL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(?: +[a-z]+(?: [a-z]+){0,2}: | *[!*-] )").expect("it is one"));
    let ends = COLUMN.find_iter(line).map(|gap| length(&line[..gap.end()]) - 1);
    let label = || LABEL.find(line).map(|label| label.len());
    let start = line.len() - line.trim_start().len();
    let farther = if start > 0 || line.starts_with("error:") { start + 4 } else { 0 };
    let column = ends.filter(|end| *end <= columns / 2).last().filter(|_| !SENTENCE.is_match(line));
    column.or_else(label).unwrap_or(farther)
}

/// What must not be broken, each with the blanks before it.
fn parts(line: &str) -> Vec<&str> {
    static PART: LazyLock<Regex> = LazyLock::new(|| {
        let command = r"calicoctl-win [a-z-]|kubectl [a-z]|sc\.exe |w32tm |netsh |[A-Z][a-z]+-[A-Z][a-z]";
        // A command on a line of its own, or after a colon, continues to its end, or to the next column.
        let alone = format!(r"^ *(?:{command})(?:  #| ?\S)*");
        let after = format!(r" *\S*: (?:{command})(?:  #| ?\S)*");
        let yaml = r"^ *(?:- \{|# |\w+: [\[{]).*";
        let quoted = r" *[^ `]*`[^`]*`\S*";
        let path = r" *\S*:\\Program Files\S*";
        Regex::new(&format!(r"{alone}|{after}|{yaml}|{quoted}|{path}| *\S+")).expect("it is one")
    });
    PART.find_iter(line).map(|part| part.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_words_and_continues_below_its_text() {
        let line = "    why: kubelet and the network of the pods need a runtime";
        assert_eq!(rows(line, Some(40)), ["    why: kubelet and the network of the", "         pods need a runtime"]);
        assert_eq!(rows(line, None), [line]);
        assert_eq!(rows(line, Some(200)), [line]);
        let table = " CNI conf     OK    the file is there and all is right";
        let below = format!("{:20}and all is right", "");
        assert_eq!(rows(table, Some(40)), [" CNI conf     OK    the file is there", &below]);
    }

    #[test]
    fn what_people_copy_is_whole() {
        for whole in [
            r"C:\Program Files\containerd\cni\conf\10-calico.conf",
            "`calicoctl-win config schema --really long`",
            "it: calicoctl-win status --wait --sandbox node",
            r"/var/log/a/very/long/name/of/a/file/that/is/there",
        ] {
            let line = format!("error: the words before it are these: {whole}");
            let rows = rows(&line, Some(40));
            assert!(rows.iter().any(|row| row.contains(whole)), "{rows:?}");
            assert_eq!(
                rows.join(" ").split_whitespace().collect::<Vec<_>>(),
                line.split_whitespace().collect::<Vec<_>>()
            );
        }
        let fix = "      Get-HnsNetwork | Where-Object Name -in vxlan0, cbr0 | Remove-HnsNetwork  # pods lose it";
        assert_eq!(rows(fix, Some(70)), [fix]);
        let two = "Next: calicoctl-win status --sandbox node      Undo: calicoctl-win uninstall --sandbox node";
        assert_eq!(rows(two, Some(60)).len(), 2);
    }
}
