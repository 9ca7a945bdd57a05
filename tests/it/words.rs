//! The words of everything that a person reads: documents, help, messages.

use std::sync::LazyLock;

use regex::Regex;

use crate::layering::product;
use crate::read;

/// Phrases that are never right: there is a plainer word for each, as fix, remove, revert, again, usually, resume.
static NEVER: LazyLock<Regex> = LazyLock::new(|| {
    let phrases = [
        "mend(?:s|ed|ing)?",
        "puts? right",
        "tak(?:e|es|en|ing)(?: it| them| that)? (?:off|back)",
        "took (?:off|back)",
        "g[ia]ve[sn]? back",
        "go(?:es|ne|ing)? (?:back|on with)",
        "carr(?:y|ies) on",
        "anew",
        "mostly",
        "cut off",
        "found out",
        "knows no",
        "bears not",
    ];
    Regex::new(&format!(r"(?i)\b(?:{})\b", phrases.join("|"))).expect("it is one")
});

/// Files whose doc comments are help or a document.
const HELP: [&str; 3] = ["src/cli/args.rs", "src/run/options.rs", "src/config/spec.rs"];

/// Every phrase in a text that is never right, with what stands around it.
fn wrong(name: &str, text: &str) -> Vec<String> {
    let around = |found: regex::Match| {
        let line = text[..found.start()].rfind('\n').map_or(0, |at| at + 1);
        let end = text[found.end()..].find('\n').map_or(text.len(), |at| found.end() + at);
        format!("{name}: `{}` in: {}", found.as_str(), text[line..end].trim())
    };
    NEVER.find_iter(text).map(around).collect()
}

/// What a source says to people: its string literals, without what is put into them.
fn literals(text: &str) -> String {
    let token = Regex::new(r##"(?s)(?m:^\s*//[^\n]*$)|r#"(.*?)"#|"((?:\\.|[^"\\])*)""##).expect("it is one");
    let value = Regex::new(r"\{[^{}]*\}|\\\n\s*").expect("it is one");
    let said = token.captures_iter(text).filter_map(|found| found.get(1).or_else(|| found.get(2)));
    said.map(|literal| value.replace_all(literal.as_str(), "").into_owned()).collect::<Vec<_>>().join("\n")
}

/// The doc comments of a source.
fn help(text: &str) -> String {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("///")).collect::<Vec<_>>().join("\n")
}

#[test]
fn documents_help_and_messages_use_plain_words() {
    let documents = crate::docs::documents().into_iter().flat_map(|name| wrong(&name, &read(&name)));
    let files = product();
    let messages = files.iter().flat_map(|(path, text)| wrong(path, &literals(text)));
    let helps = HELP.iter().flat_map(|path| wrong(path, &help(&read(path))));
    let found: Vec<String> = documents.chain(messages).chain(helps).collect();
    assert!(found.is_empty(), "say it in plain words:\n{}", found.join("\n"));
}

#[test]
fn phrases_are_seen_where_people_read_them() {
    let code = "/// Goes back by itself.\n// mend it later\nfn f() { say(\"mend {mend}: \\\n    take it back\"); say(r#\"anew\"#) }";
    assert_eq!(
        wrong("a", &literals(code)),
        ["a: `mend` in: mend : take it back", "a: `take it back` in: mend : take it back", "a: `anew` in: anew"]
    );
    assert_eq!(wrong("a", &help(code)), ["a: `Goes back` in: Goes back by itself."]);
    assert_eq!(wrong("a", "an amendment, knows nothing, renews"), [] as [&str; 0]);
}
