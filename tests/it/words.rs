//! The words in everything that a person reads: documents, help, messages, comments, names of tests.

use std::sync::LazyLock;

use regex::Regex;

use crate::layering::product;
use crate::{read, sources};

/// Phrases that are never right: there is a plainer word for each, for example fix, remove, revert, again, usually,
/// resume.
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

/// Folders and modules whose comments and test names are checked too.
const REVISED: [&str; 29] = [
    "src/fault",
    "src/item",
    "src/paths",
    "src/values",
    "src/version",
    "src/yaml",
    "src/facts",
    "src/config",
    "src/settings",
    "src/calico",
    "src/plan",
    "src/preflight",
    "src/node",
    "src/cluster",
    "src/platform",
    "src/release",
    "src/agent",
    "src/report",
    "src/sandbox",
    "src/apply",
    "src/run",
    "src/cli",
    "src/counted",
    "src/lib",
    "src/main",
    "tests/it",
    "tests/contract",
    "tests/windows",
    "benches",
];

/// Returns every phrase in a text that is never right, with its line.
fn wrong(name: &str, text: &str) -> Vec<String> {
    let around = |found: regex::Match| {
        let line = text[..found.start()].rfind('\n').map_or(0, |at| at + 1);
        let end = text[found.end()..].find('\n').map_or(text.len(), |at| found.end() + at);
        format!("{name}: `{}` in: {}", found.as_str(), text[line..end].trim())
    };
    NEVER.find_iter(text).map(around).collect()
}

/// Returns a source's string literals, without their placeholders.
fn literals(text: &str) -> String {
    let token = Regex::new(r##"(?s)(?m:^\s*//[^\n]*$)|r#"(.*?)"#|"((?:\\.|[^"\\])*)""##).expect("it is one");
    let value = Regex::new(r"\{[^{}]*\}|\\\n\s*").expect("it is one");
    let said = token.captures_iter(text).filter_map(|found| found.get(1).or_else(|| found.get(2)));
    said.map(|literal| value.replace_all(literal.as_str(), "").into_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns the doc comments of a source.
fn help(text: &str) -> String {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("///")).collect::<Vec<_>>().join("\n")
}

/// Returns the comments of a source, and the names of its tests as words.
fn comments(text: &str) -> String {
    let comment = Regex::new(r"(?m)(?:^|\s)//[/!]?\s(.*)$").expect("it is one");
    let test = Regex::new(r"#\[test\]\n(?:\s*#\[.*\]\n)*\s*fn (\w+)").expect("it is one");
    let named = test.captures_iter(text).map(|found| found[1].replace('_', " "));
    comment.captures_iter(text).map(|found| found[1].to_owned()).chain(named).collect::<Vec<_>>().join("\n")
}

/// Whether a source is in one of the revised folders or modules. This file must contain the phrases itself.
fn is_revised(path: &str) -> bool {
    let within = |place: &str| path.strip_prefix(place).is_some_and(|rest| rest.starts_with(['.', '/']));
    REVISED.into_iter().any(within) && path != "tests/it/words.rs"
}

#[test]
fn comments_and_names_of_tests_use_plain_words() {
    let files = ["src", "tests", "benches"].into_iter().flat_map(sources).filter(|(path, _)| is_revised(path));
    let found: Vec<String> = files.flat_map(|(path, text)| wrong(&path, &comments(&text))).collect();
    assert!(found.is_empty(), "say it in plain words:\n{}", found.join("\n"));
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
fn phrases_are_found_in_texts_for_people() {
    let code = "/// Goes back by itself.\n// mend it later\nfn f() { say(\"mend {mend}: \\\n    take it back\"); say(r#\"anew\"#) }";
    assert_eq!(
        wrong("a", &literals(code)),
        ["a: `mend` in: mend : take it back", "a: `take it back` in: mend : take it back", "a: `anew` in: anew"]
    );
    assert_eq!(wrong("a", &help(code)), ["a: `Goes back` in: Goes back by itself."]);
    assert_eq!(
        wrong("a", &comments(&format!("{code}\n#[test]\nfn it_is_made_anew() {{}} // took off\nlet x = \"mend\";"))),
        [
            "a: `Goes back` in: Goes back by itself.",
            "a: `mend` in: mend it later",
            "a: `took off` in: took off",
            "a: `anew` in: it is made anew"
        ]
    );
    assert_eq!(wrong("a", "an amendment, knows nothing, renews"), [] as [&str; 0]);
}
