//! The words in everything that a person reads: documents, help, messages, comments, scripts, names of tests.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::{files, project, read, sources};

/// Phrases that are never right, as a pattern, with plainer words.
const PHRASES: [(&str, &str); 48] = [
    ("mend(?:s|ed|ing)?", "fix, repair"),
    ("puts? right", "fix, repair"),
    ("tak(?:e|es|en|ing)(?: it| them| that)? (?:off|back)", "remove, roll back"),
    ("took (?:off|back)", "removed, rolled back"),
    ("g[ia]ve[sn]? back", "restore, release"),
    ("go(?:es|ne|ing)? (?:back|on with)", "roll back, continue"),
    ("carr(?:y|ies) on", "continue"),
    ("anew", "again, re-created"),
    ("mostly", "usually"),
    ("cut off", "interrupted"),
    ("found out", "detected"),
    ("knows no", "does not support"),
    ("bears not", "does not support"),
    (r"break(?:s|ing)? (?:\w+ ){0,2}open|broken open", "intercepts, interrupts"),
    ("vouch(?:e[sd])?", "verified, guarantees"),
    ("(?:is|are|was|were|be|been|still|nobody) at it", "in progress"),
    ("under way", "in progress"),
    ("in vain", "not needed, without success"),
    ("c[ao]mes? about", "failed, succeeded"),
    ("(?:dis)?believe[sd]?", "trusted"),
    (r"\bstands?(?: again)?[.:;]", "is current, is up"),
    ("(?:that|what|which|it) (?:now )?stands?", "current"),
    (r"tak(?:e|es|en|ing) (?:[\w']+ ){1,5}(?:off|back|away)", "remove, roll back"),
    (r"took (?:[\w']+ ){1,5}(?:off|back|away)", "removed, rolled back"),
    ("tak(?:e|es|en|ing) (?:away|back)", "remove, roll back"),
    (r"(?:puts?|sets?) (?:[\w']+ ){1,4}right", "fix, correct"),
    (r"g[ia]ve[sn]? (?:[\w']+ ){1,4}back", "restore, release"),
    (r"puts? (?:[\w']+ ){0,3}back", "restore"),
    ("(?:is|are|was|were) to be", "must be, is required"),
    ("wants", "requires, needs"),
    ("made again", "re-created"),
    (r"mak(?:e|es|ing) (?:[\w']+ ){1,2}again", "re-create"),
    ("(?:go|goes|going|went) on", "continue, resume"),
    ("taken up", "resumed"),
    ("whoever", "the user or program that"),
    ("of others", "of other products, of other users"),
    (r"pods? (?:that )?(?:\w+ )?(?:went|stays?|stayed)", "evicted, remaining"),
    ("cut short", "truncated"),
    (r"cuts? (?:[\w']+ ){0,2}(?:connection|network|session)s?", "closes, interrupts"),
    ("taken for", "treated as, mistaken for"),
    (r"takes? (?:[\w']+ ){1,3}for (?:an?|the)", "treats as, mistakes for"),
    ("we", "the program, you"),
    (r#"(?:, |\()as [`'"{][\w./:\\-]+[`'"}]"#, "for example"),
    ("where (?:there|nobody|nothing) (?:is|are|was|were)", "if"),
    (r"(?:are|is|be) heard", "applies, is supported"),
    (r"lets? (?:\w+ )?through", "allows"),
    ("had given up", "stopped trying"),
    ("asked to go", "eviction was requested"),
];

/// The endings of texts in `packaging`.
const PACKAGING: [&str; 19] = [
    "awk", "c", "go", "hcl", "json", "md", "mjs", "nuspec", "ps1", "ps1xml", "psd1", "psm1", "py", "sh", "tf", "toml",
    "wxs", "yaml", "yml",
];

/// Those of files that only programs read: settings of a linter, a table of an installer, a Go module, a registry file.
const NO_TEXTS: [&str; 4] = ["ansible-lint", "idt", "mod", "reg"];

/// Texts that people read and that are not Rust.
const FOLDERS: [(&str, &[&str]); 6] = [
    ("docs", &["md", "yaml", "json", "py", "ps1"]),
    ("templates", &["yaml", "json"]),
    ("packaging", &PACKAGING),
    ("tests/windows", &["c", "h", "sh", "rc"]),
    ("tests/real", &["go"]),
    (".github", &["yml"]),
];

const FILES: [&str; 8] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "build.rs",
    "deny.toml",
    ".cargo/config.toml",
    ".ci/run",
];

static NEVER: LazyLock<Regex> = LazyLock::new(|| one_of(&PHRASES));

/// A phrase of whole words; a pattern that starts or ends with punctuation has its own limits.
fn whole_words(phrase: &str) -> String {
    if phrase.ends_with(']') { phrase.to_owned() } else { format!(r"\b(?:{phrase})\b") }
}

fn one_of(phrases: &[(&str, &str)]) -> Regex {
    let all: Vec<String> = phrases.iter().map(|(phrase, _)| whole_words(phrase)).collect();
    Regex::new(&format!("(?i){}", all.join("|"))).expect("it is one")
}

/// The plainer words for a phrase that was found.
fn better(found: &str) -> &'static str {
    let is_this = |(phrase, _): &&(&str, &str)| {
        Regex::new(&format!("(?i)^(?:{})$", whole_words(phrase))).expect("it is one").is_match(found)
    };
    PHRASES.iter().find(is_this).expect("one of them matched").1
}

/// Returns every phrase in a text that is never right, with the words around it.
fn wrong(name: &str, text: &str) -> Vec<String> {
    let with_context = |found: regex::Match| {
        let (before, after) = (&text[..found.start()], &text[found.end()..]);
        let start = before.char_indices().rev().take(50).take_while(|(_, c)| *c != '\n').last();
        let end = after.char_indices().take_while(|(_, c)| *c != '\n').nth(50);
        let line = &text[start.map_or(found.start(), |(at, _)| at)
            ..found.end() + end.map_or_else(|| after.find('\n').unwrap_or(after.len()), |(at, _)| at)];
        format!("{name}: `{}` ({}) in: {}", found.as_str().trim(), better(found.as_str()), line.trim())
    };
    NEVER.find_iter(text).map(with_context).collect()
}

/// Returns a source's string literals, without their placeholders.
fn literals(text: &str) -> String {
    let token = Regex::new(r##"(?s)(?m:^\s*//[^\n]*$)|r#"(.*?)"#|"((?:\\.|[^"\\])*)""##).expect("it is one");
    let value = Regex::new(r"\{[^{}]*\}|\\\n\s*").expect("it is one");
    let said = token.captures_iter(text).filter_map(|found| found.get(1).or_else(|| found.get(2)));
    said.map(|literal| value.replace_all(literal.as_str(), "").into_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns the comments of a source, a paragraph in one line, and the names of its tests as words.
fn comments(text: &str) -> String {
    let comment = Regex::new(r"(?m)(?:^|\s)//[/!]?(\s.*)?$").expect("it is one");
    let test = Regex::new(r"#\[test\]\n(?:\s*#\[.*\]\n)*\s*fn (\w+)").expect("it is one");
    let lines = text.lines().map(|line| {
        let said = comment.captures(line).map(|found| found.get(1).map_or("", |said| said.as_str()).to_owned());
        said.filter(|said| !said.is_empty()).unwrap_or_else(|| "\n".to_owned())
    });
    let named = test.captures_iter(text).map(|found| format!("\n{}", found[1].replace('_', " ")));
    lines.chain(named).collect()
}

/// Returns a text without the line breaks in its paragraphs and comments.
fn unwrapped(text: &str) -> String {
    let wrap = Regex::new(r"\n[ \t]*(?:#|//|\*)?[ \t]*").expect("it is one");
    wrap.replace_all(text, " ").into_owned()
}

/// Everything that people read, as (file, text). This file must contain the phrases itself.
fn texts() -> Vec<(String, String)> {
    let rust =
        ["src", "tests", "benches"].into_iter().flat_map(sources).filter(|(path, _)| path != "tests/it/words.rs");
    let rust = rust.map(|(path, text)| (path, format!("{}\n{}", comments(&text), literals(&text))));
    let others = FOLDERS.into_iter().flat_map(|(folder, endings)| files(folder, endings));
    let others = others.chain(FILES.map(|name| (name.to_owned(), read(name))));
    rust.chain(others.map(|(path, text)| (path, unwrapped(&text)))).collect()
}

#[test]
fn everything_that_people_read_uses_plain_words() {
    let texts = texts();
    assert!(texts.len() > 500, "{}", texts.len());
    let found: Vec<String> = texts.iter().flat_map(|(path, text)| wrong(path, text)).collect();
    assert!(found.is_empty(), "say it in plain words:\n{}", found.join("\n"));
}

#[test]
fn every_kind_of_file_in_packaging_is_read_or_is_no_text() {
    let (mut folders, mut unknown) = (vec![project().join("packaging")], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let ending = path.extension().or(path.file_name()).unwrap().to_str().unwrap().trim_start_matches('.');
            if path.is_dir() {
                // Tools leave theirs there.
                folders.extend((!ending.starts_with("__") && !path.ends_with(format!(".{ending}"))).then_some(path));
            } else if !PACKAGING.contains(&ending) && !NO_TEXTS.contains(&ending) {
                unknown.insert(path.display().to_string());
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn phrases_are_found_in_texts_for_people() {
    let code = "/// Goes back by itself.\n// mend it later\nfn f() { say(\"mend {mend}: \\\n    take it back\"); say(r#\"anew\"#) }";
    let found = |text: &str| wrong("src/node/a.rs", text);
    assert_eq!(
        found(&literals(code)),
        [
            "src/node/a.rs: `mend` (fix, repair) in: mend : take it back",
            "src/node/a.rs: `take it back` (remove, roll back) in: mend : take it back",
            "src/node/a.rs: `anew` (again, re-created) in: anew"
        ]
    );
    let tests = "#[test]\nfn it_is_made_anew() {} // took off\nlet x = \"mend\";";
    assert_eq!(
        found(&comments(&format!("{code}\n{tests}"))),
        [
            "src/node/a.rs: `Goes back` (roll back, continue) in: Goes back by itself. mend it later",
            "src/node/a.rs: `mend` (fix, repair) in: Goes back by itself. mend it later",
            "src/node/a.rs: `took off` (removed, rolled back) in: took off",
            "src/node/a.rs: `anew` (again, re-created) in: it is made anew"
        ]
    );
    assert_eq!(wrong("src/a.rs", "an amendment, knows nothing, renews, understands."), [] as [&str; 0]);
    let script = "# The run goes\n# on; a/b, as `this`, is to be\n\t * put it all right. It stands.";
    let found: Vec<String> = NEVER.find_iter(&unwrapped(script)).map(|found| found.as_str().to_owned()).collect();
    assert_eq!(found, ["goes on", ", as `this`", "is to be", "put it all right", "It stands"]);
}
