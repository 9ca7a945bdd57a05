//! The statements of a PowerShell script, each with its line. Quotes, brackets and comments are recognized, so that no
//! line within them counts as a statement. What a statement means is not examined.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

#[derive(Debug, Default)]
pub struct Statement {
    /// Where it begins, from 1.
    pub line: usize,
    /// Without comments, except multi-line ones within brackets. All its line breaks are kept.
    pub text: String,
    /// The text between the outermost `{` and `}`, as byte ranges.
    pub blocks: Vec<Range<usize>>,
}

/// A part that begins and never ends. PowerShell then refuses the whole script.
#[derive(Debug)]
pub struct Broken {
    /// Where its statement begins.
    pub line: usize,
    pub why: &'static str,
}

/// PowerShell treats typographic quotes like plain ones.
fn is_single(c: char) -> bool {
    matches!(c, '\'' | '\u{2018}'..='\u{201b}')
}

fn is_double(c: char) -> bool {
    matches!(c, '"' | '\u{201c}'..='\u{201e}')
}

/// Splits a script, whose lines end in `\n`. Omits the statement with a part that never ends.
pub fn split(script: &str, first_line: usize) -> (Vec<Statement>, Option<Broken>) {
    let mut done = Vec::new();
    let mut now = Statement { line: first_line, ..Statement::default() };
    // The closing characters of the open parts: `'` and `"` are strings.
    let mut open: Vec<char> = Vec::new();
    let (mut rest, mut line) = (script, first_line);
    while let Some(c) = rest.chars().next() {
        let next = rest[c.len_utf8()..].chars().next();
        // A `#` within a word is a character of the word.
        let begins =
            now.text.chars().next_back().is_none_or(|last| last.is_whitespace() || "(){}'\"=,|".contains(last));
        let mut comment = false;
        // How many characters to copy.
        let mut length = Some(c.len_utf8());
        let two = next.map(|next| c.len_utf8() + next.len_utf8());
        match (open.last().copied(), c, next) {
            (Some('\''), c, Some(next)) if is_single(c) && is_single(next) => length = two,
            (Some('\''), c, _) if is_single(c) => drop(open.pop()),
            (Some('\''), _, _) => {}
            (_, '`', Some(_)) => length = two,
            (Some('"'), c, Some(next)) if is_double(c) && is_double(next) => length = two,
            (Some('"'), c, _) if is_double(c) => drop(open.pop()),
            (Some('"'), '$', Some('(')) => {
                length = two;
                open.push(')');
            }
            (Some('"'), _, _) => {}
            (_, '#', _) if begins => (comment, length) = (true, Some(rest.find('\n').unwrap_or(rest.len()))),
            (_, '<', Some('#')) => (comment, length) = (true, rest.find("#>").map(|end| end + 2)),
            (_, '@', Some(quote)) if is_single(quote) || is_double(quote) => length = here_string(rest, quote),
            (_, c, _) if is_single(c) => open.push('\''),
            (_, c, _) if is_double(c) => open.push('"'),
            (_, '(', _) => open.push(')'),
            (_, '{', _) => {
                if open.is_empty() {
                    let start = now.text.len() + 1;
                    now.blocks.push(start..start);
                }
                open.push('}');
            }
            (Some(closing), c, _) if c == closing => {
                open.pop();
                if let (true, '}', Some(block)) = (open.is_empty(), c, now.blocks.last_mut()) {
                    block.end = now.text.len();
                }
            }
            (None, '\n' | ';', _) if now.text.is_empty() || c == ';' || !GOES_ON.is_match(rest) => {
                push(&mut done, std::mem::take(&mut now));
                rest = &rest[1..];
                line += usize::from(c == '\n');
                now.line = line;
                continue;
            }
            _ => {}
        }
        let Some(length) = length else {
            return (done, Some(Broken { line: now.line, why: "a comment or text begins here and does not end" }));
        };
        let piece = &rest[..length];
        rest = &rest[length..];
        line += piece.matches('\n').count();
        if now.text.is_empty() && (comment || piece.trim().is_empty()) {
            now.line = line;
        } else if comment && (open.is_empty() || !piece.contains('\n')) {
            now.text.extend(piece.chars().filter(|c| *c == '\n'));
        } else {
            now.text.push_str(piece);
        }
    }
    let why = match open.last() {
        None => {
            push(&mut done, now);
            return (done, None);
        }
        Some('\'' | '"') => "a string begins here and does not end",
        Some(_) => "a bracket opens here and does not close",
    };
    (done, Some(Broken { line: now.line, why }))
}

/// After the end of a line: the same statement continues with a block or another branch.
static GOES_ON: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:\s|#[^\n]*|<#(?s:.*?)#>)*(?:\{|(?i:else|elseif|catch|finally)\b)").expect("a pattern")
});

/// Returns the length of a here-string: `@"`, lines, and a line that begins with `"@`.
fn here_string(text: &str, quote: char) -> Option<usize> {
    let same = if is_single(quote) { is_single } else { is_double };
    let ends = |(at, _): &(usize, &str)| {
        let mut after = text[at + 1..].chars();
        after.next().is_some_and(same) && after.next() == Some('@')
    };
    let (at, _) = text.match_indices('\n').find(ends)?;
    Some(at + text[at..].find('@')? + 1)
}

fn push(done: &mut Vec<Statement>, statement: Statement) {
    if !statement.text.is_empty() {
        done.push(statement);
    }
}
