//! The documents for users match the program.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use calicoctl_win::facts::{Brings, Facts, MetadataRoute, Provider};
use calicoctl_win::fault::Exit;
use calicoctl_win::preflight;
use calicoctl_win::report::explain::explain;
use calicoctl_win::selftest;
use calicoctl_win::verify;
use regex::Regex;

use crate::blocks::programs;
use crate::layering::product;
use crate::stories::event_lines;
use crate::stories::schemas::published;
use crate::{files, project, read, sources};

/// The `type` of every line that `-o ndjson` may print.
const EVENT_TYPES: [&str; 23] = [
    "version",
    "run_start",
    "check_result",
    "planned_change",
    "change_summary",
    "phase_start",
    "phase_complete",
    "phase_skipped",
    "phase_errored",
    "progress",
    "waiting",
    "pod_evicted",
    "pod_blocked",
    "pod_gone",
    "drain_progress",
    "connectivity_notice",
    "confirm_deadline",
    "rollback_start",
    "rollback_complete",
    "diagnostic",
    "log",
    "document",
    "result",
];

#[test]
fn the_table_of_exit_codes_is_the_one_in_the_code() {
    let documented: Vec<String> = rows(&read("docs/exit-codes.md"), "code");
    let ours: Vec<String> =
        Exit::all().map(|e| format!("| {} | `{}` | {} |", e.code(), e.name(), e.meaning())).collect();
    assert_eq!(documented, ours);
}

#[test]
fn every_id_that_the_program_prints_can_be_explained() {
    let mut ids: BTreeSet<String> = BTreeSet::new();
    ids.extend(Exit::all().map(|exit| exit.name().to_owned()));
    ids.extend(EVENT_TYPES.map(str::to_owned));
    for (_, text) in product() {
        ids.extend(printed_ids(&text));
    }
    let missing: Vec<&String> = ids.iter().filter(|id| explain(id).is_none()).collect();
    assert!(missing.is_empty(), "without a section in docs/explain.md: {missing:?}");
}

#[test]
fn every_phase_can_be_explained() {
    let literal = Regex::new(r#"\bphase(?:\(|: )"([a-z-]+)""#).unwrap();
    let sources = product();
    let source = |path: &str| sources.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str()).unwrap();
    let body = |path: &str, start: &str| {
        let text = source(path).split_once(start).unwrap().1;
        text.split_once("\n}\n").unwrap().0.to_owned()
    };
    let of_items = body("src/plan/order.rs", "pub const fn phase(") + &body("src/apply/steps.rs", "\nfn phases(");
    let word = Regex::new(r#""([a-z-]+)""#).unwrap();
    let mut phases: BTreeSet<String> = word.captures_iter(&of_items).map(|found| found[1].to_owned()).collect();
    for (_, text) in &sources {
        phases.extend(literal.captures_iter(text).map(|found| found[1].to_owned()));
    }
    // A start or stop has a phase of its own.
    assert!(phases.remove("run") && phases.len() > 20, "{phases:?}");
    let missing: Vec<&String> = phases.iter().filter(|phase| explain(phase).is_none()).collect();
    assert!(missing.is_empty(), "without a section in docs/explain.md: {missing:?}");
}

#[test]
fn pages_are_plain_ascii() {
    for file in ["docs/explain.md", "docs/checks.md", "docs/selftest.md", "docs/verify.md"] {
        let strange: Vec<String> = read(file).lines().filter(|line| !line.is_ascii()).map(str::to_owned).collect();
        assert!(strange.is_empty(), "{file}: {strange:#?}");
    }
}

/// Returns ids of faults, warnings and checks in a source file: literals in PascalCase in their usual places.
fn printed_ids(text: &str) -> Vec<String> {
    let places = [
        // Fault::new(Exit::Busy, "Busy", …), also with a variable instead of the class.
        r#"Fault::new\(\s*[\w:.]+(?:\([^)]*\))?,\s*"([A-Z]\w+)""#,
        r#"\bExit::\w+,\s*"([A-Z]\w+)""#,
        r#"\bid:\s*"([A-Z][a-z]\w*)""#,
        // A helper of the room with the id first: unreachable("ClusterRefused", …).
        r#"(?:^|[^:\w])(?:unreachable|invalid|refuse|fault|warn|problem)\(\s*"([A-Z]\w+)","#,
        // A row of a table of ids: => ("FileInUse", …).
        r#"(?:=>|\{)\s*\(\s*"([A-Z][a-z0-9]+[A-Z]\w+)","#,
    ];
    let mut ids = Vec::new();
    for place in places {
        let place = Regex::new(place).expect("it is one");
        ids.extend(place.captures_iter(text).map(|found| found[1].to_owned()));
    }
    ids
}

#[test]
fn ids_in_sources_are_found() {
    for text in [
        r#"Err(Fault::new(Exit::Busy, "LockHeld", "x").into())"#,
        "Fault::new(\n    Exit::Busy,\n    \"LockHeld\",\n    format!(\"x\"))",
        r#"events(Event::Warning { id: "LockHeld", message })"#,
        r#"Fault { exit, id: "LockHeld", what }"#,
        r#"Fault::new(exit_of(&error), "LockHeld", what)"#,
        r#"invalid("LockHeld", format!("x"))"#,
        "to.warn(\n    \"LockHeld\",\n    message)",
        r#"status.problem("LockHeld", format!("x"), "status")"#,
        r#"LOCKED => ("LockHeld", "text", "hint"),"#,
    ] {
        assert!(printed_ids(text).contains(&"LockHeld".to_owned()), "{text}");
    }
}

#[test]
fn the_types_of_events_are_those_that_the_program_prints() {
    let written = Regex::new(r#""type": "(\w+)""#).expect("it is one");
    let mut printed = BTreeSet::new();
    for (_, text) in product().into_iter().filter(|(path, _)| path.starts_with("src/report/")) {
        printed.extend(written.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    assert_eq!(printed, EVENT_TYPES.map(str::to_owned).into());
}

#[test]
fn the_events_in_the_document_on_output_are_those_that_can_be_explained() {
    let types: Vec<String> = rows(&read("docs/output.md"), "type")
        .iter()
        .map(|row| row.split('`').nth(1).expect("a type is written as code").to_owned())
        .collect();
    assert_eq!(types, EVENT_TYPES);
    for (row, of_type) in rows(&read("docs/output.md"), "type").iter().zip(types) {
        // The phase in progress is described above the table; the result has the fields of its document.
        for field in event_lines::fields(&of_type).into_iter().filter(|field| *field != "phase" && of_type != "result")
        {
            assert!(row.contains(&format!("`{field}`")) || row.contains(&format!("`{field}[]`")), "{of_type}: {field}");
        }
    }
}

#[test]
fn the_fields_of_the_documents_are_all_described() {
    let text = read("docs/output.md");
    for (kind, schema) in published() {
        let (_, section) = text.split_once(&format!("\n### {kind}\n")).unwrap_or_else(|| panic!("no section {kind}"));
        let section = section.split("\n#").next().unwrap_or(section);
        let common = ["apiVersion", "kind", "success", "exit_code"];
        let mut fields: Vec<&String> =
            schema["properties"].as_object().expect("a document has fields").keys().collect();
        // The items of a node, and what is measured of it, are described by their schema.
        if !["Facts", "Plan", "Receipt", "Run", "RunResult", "SavedPlan"].contains(&kind) {
            let parts = schema["$defs"].as_object().into_iter().flatten();
            fields.extend(parts.filter_map(|(_, part)| part["properties"].as_object()).flatten().map(|(name, _)| name));
        }
        for field in fields.into_iter().filter(|field| !common.contains(&field.as_str())) {
            assert!(
                section.contains(&format!("`{field}`")) || section.contains(&format!("`{field}[]`")),
                "{kind}: {field}"
            );
        }
    }
}

/// Rows of the first table whose head begins with a word.
fn rows(document: &str, first_column: &str) -> Vec<String> {
    document
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {first_column} |")))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_map_names_every_room() {
    let map = read("docs/architecture.md");
    for line in read("src/lib.rs").lines() {
        if let Some(room) = line.trim().strip_prefix("pub mod ").and_then(|m| m.strip_suffix(';')) {
            assert!(map.contains(&format!("`{room}")), "docs/architecture.md does not name `{room}`");
        }
    }
}

#[test]
fn the_saved_facts_that_tests_and_readers_use_are_valid() {
    let facts: Facts = serde_json::from_str(&read("tests/fixtures/facts/server-2022.json")).unwrap();
    assert_eq!(facts.node.os.build, 20348);
}

#[test]
fn every_command_in_the_documents_is_one_that_the_program_has() {
    // `calicoctl-win verb …` or `cargo run -- verb …`, up to the end of the code or the command.
    let command = Regex::new(r"(?m)(?:calicoctl-win|cargo run --) ([a-z][^`#>|\n]*)").expect("it is one");
    let global = Command::new(env!("CARGO_BIN_EXE_calicoctl-win")).arg("options").output().unwrap();
    let global = String::from_utf8_lossy(&global.stdout).into_owned();
    let (mut seen, mut helps) = (0, BTreeMap::<String, String>::new());
    for document in documents() {
        let text = read(&document);
        let code = text.split('`').skip(1).step_by(2).filter(|c| !c.is_empty());
        for found in code.flat_map(|code| command.captures_iter(code).map(|c| c[1].to_owned())) {
            let words: Vec<&str> = found.split_whitespace().collect();
            let verb = words
                .iter()
                .take_while(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !word.starts_with('-'));
            let verb: Vec<&str> = verb.copied().collect();
            let shown = helps.entry(verb.join(" ")).or_insert_with(|| {
                let help = Command::new(env!("CARGO_BIN_EXE_calicoctl-win")).args(verb).arg("--help").output().unwrap();
                if help.status.success() { String::from_utf8_lossy(&help.stdout).into_owned() } else { String::new() }
            });
            assert!(!shown.is_empty(), "{document}: there is no `{found}`");
            for flag in words.iter().filter(|word| word.starts_with('-')).filter_map(|word| word.split('=').next()) {
                let known = shown.contains(flag) || global.contains(flag);
                assert!(known, "{document}: `{found}`: no {flag} in\n{shown}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "the documents have more commands than {seen}");
}

/// Every command with its help, and for `options` what it prints.
pub fn helps() -> Vec<(String, String)> {
    let command = Regex::new(r"(?m)^  ([a-z-]+)  +[A-Z]").expect("it is one");
    let (mut open, mut found) = (vec![String::new()], Vec::new());
    while let Some(words) = open.pop() {
        let mut program = Command::new(env!("CARGO_BIN_EXE_calicoctl-win"));
        program.args(words.split_whitespace()).args(["--help"].iter().filter(|_| words != "options"));
        let help = String::from_utf8(program.output().unwrap().stdout).unwrap();
        if help.contains("\nCommands:") || words.is_empty() {
            let below = command.captures_iter(&help).map(|found| found[1].to_owned()).filter(|name| name != "help");
            open.extend(below.map(|name| format!("{words} {name}").trim().to_owned()));
        }
        found.push((words, help));
    }
    found
}

/// Every command that does something, for example `node cordon`.
pub fn commands() -> BTreeSet<String> {
    let helps = helps();
    let groups = |words: &str| helps.iter().any(|(below, _)| below.starts_with(&format!("{words} ")));
    helps.iter().map(|(words, _)| words.clone()).filter(|words| !words.is_empty() && !groups(words)).collect()
}

/// Every option of every command, including the hidden ones.
fn options() -> BTreeSet<String> {
    let flag = Regex::new(r"--[a-z][a-z0-9-]+").expect("it is one");
    let mut known =
        ["--agreed", "--detached-run", "--part"].map(str::to_owned).into_iter().collect::<BTreeSet<String>>();
    for (_, help) in helps() {
        known.extend(flag.find_iter(&help).map(|found| found.as_str().to_owned()));
    }
    known
}

#[test]
fn every_option_and_file_that_a_text_names_exists() {
    let flag = Regex::new(r"(?:^|[^\w-])(--[a-z][a-z0-9-]+)").expect("it is one");
    let file = Regex::new(r"(?:^|[^\w/.])((?:docs|packaging|templates|tests|src)/[\w./-]*\w)").expect("it is one");
    let options = options();
    let said: Vec<(String, String)> = documents().into_iter().map(|name| (name.clone(), read(&name))).collect();
    let code = product().into_iter().map(|(path, text)| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        (path, lines.join("\n"))
    });
    let mut wrong = Vec::new();
    for (name, text) in said.into_iter().chain(code) {
        let flags = flag.captures_iter(&text).map(|found| found[1].to_owned());
        wrong.extend(
            flags
                .filter(|flag| !options.contains(flag) && !programs::some_has(flag))
                .map(|flag| format!("{name}: {flag}")),
        );
        let files = file.captures_iter(&text).map(|found| found[1].to_owned());
        wrong.extend(files.filter(|file| !project().join(file).exists()).map(|file| format!("{name}: {file}")));
    }
    assert!(options.len() > 60 && wrong.is_empty(), "{} options\n{}", options.len(), wrong.join("\n"));
}

/// What makes a hint dangerous: commands, commands joined by `;` or `&&`, a restart of the machine, the word that
/// announces it, and JSON as an argument.
static RULES: LazyLock<[Regex; 5]> = LazyLock::new(|| {
    let command = r"(?:[A-Z][a-z]+-[A-Z]\w+|sc\.exe|w32tm|netsh|shutdown|reg add|kubectl|calicoctl-win)\b";
    [
        format!(r"\b{command}"),
        format!(r"{command}[^;&\n]*(?:;|&&)\s*`?{command}"),
        r"\bRestart-Computer\b|\bshutdown(?:\.exe)? [/-]|-\w+ .* -Restart\b".to_owned(),
        "(?i)restarts? ".to_owned(),
        // calicoctl reads nothing else (its patch.go).
        r#"\b(?:kubectl|oc)\b[^`;|\n]* (?:-p|--patch)[ =]'[{\[]\\*""#.to_owned(),
    ]
    .map(|rule| Regex::new(&rule).expect("it is one"))
});

/// Returns what is wrong with a hint that people paste: a text of one or several lines.
fn dangers(advice: &str) -> Vec<String> {
    let [command, joined, restart, said, dropped] = &*RULES;
    let mut found = Vec::new();
    for line in advice.lines() {
        if joined.is_match(line) {
            // Windows PowerShell 5.1 does not know `&&`.
            found.push(format!("`;` or `&&` joins commands: {line}"));
        }
        if dropped.is_match(line) {
            found.push(format!("Windows PowerShell 5.1 drops the quotes of JSON: {line}"));
        }
        // On its own line it is one of several commands, which are run one by one.
        let said = line == "Restart-Computer" || said.is_match(line);
        if restart.is_match(line) && (command.find_iter(line).count() > 1 || !said) {
            found.push(format!("a restart of the machine without notice, or with more on its line: {line}"));
        }
    }
    let warned = advice.contains("drain") && advice.contains("network from the pods");
    if advice.contains("Restart-Service hns") && !warned {
        found.push(format!("a restart of HNS without its warning: {advice}"));
    }
    found
}

/// Every string literal of the program as it is printed, with its file.
pub fn literals() -> Vec<(String, String)> {
    let literal = Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).expect("it is one");
    let continued = Regex::new(r"\\\n\s*").expect("it is one");
    let mut found = Vec::new();
    for (path, text) in product() {
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let texts = literal.captures_iter(&code).map(|text| continued.replace_all(&text[1], "").replace("\\n", "\n"));
        found.extend(texts.map(|text| (path.clone(), text)));
    }
    found
}

/// The commands of this program in a hint, without its name: on a line of their own, after a colon or in code. The
/// sandbox, config and kubeconfig of the run are added at the end.
pub fn commands_in(hint: &str) -> impl Iterator<Item = String> {
    static COMMAND: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)(?:^ *|: |`)calicoctl-win ([a-z](?:[^ `\n]| [^ `\n])+)").expect("it is one"));
    COMMAND.captures_iter(hint).map(|found| found[1].to_owned())
}

#[test]
fn every_hint_is_safe_to_paste() {
    // A user who copies the line copies the text after `;` too.
    let ends_in_prose = Regex::new(r"(?m)(?:: |^)(?:calicoctl-win|kubectl) [^`;\n]*; ").expect("it is one");
    let value = r"(?:[A-Z]+|\{\S*\}|\S+\.(?:yaml|ps1|zip|json)|\d+)";
    let whole = Regex::new(&format!(
        r"^(?:explain .*|(?:migrate from flannel|[a-z-]+(?: [a-z-]+)?)(?: -+[a-z-]+(?:[= ][a-z]+)?| {value})*)$"
    ));
    let whole = whole.expect("it is one");
    let (quoted, command) =
        (Regex::new("`[^`]*`"), Regex::new(r"(?:^ *|: |[,;] (?:or |and )?)(?:calicoctl-win|kubectl) [a-z]"));
    let (quoted, command) = (quoted.expect("it is one"), command.expect("it is one"));
    let (mut seen, mut found, mut joined) = (0, Vec::new(), Vec::new());
    let mut look = |place: &str, text: &str| {
        seen += 1;
        found.extend(dangers(text).into_iter().map(|danger| format!("{place}: {danger}")));
    };
    for row in preflight::catalogue() {
        look(row.id, row.fix);
    }
    for document in documents() {
        for section in read(&document).split("\n## ") {
            look(&document, section);
        }
    }
    for (path, text) in literals() {
        look(&path, &text);
        if let Some(more) = ends_in_prose.find(&text) {
            joined.push(format!("{path}: more words after a command, on its line: {}", more.as_str()));
        }
        // Not the help, whose commands are examples, nor the meanings of exit codes, which are sentences.
        if !text.contains("calicoctl-win COMMAND") && path != "src/fault.rs" && !path.starts_with("src/selftest/") {
            let partial = commands_in(&text).filter(|words| !whole.is_match(words));
            joined.extend(partial.map(|words| format!("{path}: more words after a command: {words}")));
            let bare = quoted.replace_all(&text, "");
            let several = bare.lines().filter(|line| command.find_iter(line).count() > 1);
            joined.extend(several.map(|line| format!("{path}: two commands on a line: {line}")));
        }
    }
    assert_eq!(joined, [""; 0]);
    assert!(seen > 1000, "{seen}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn dangers_in_hints_are_detected() {
    for advice in [
        "Stop-Service flanneld; sc.exe delete flanneld",
        "`kubectl drain NODE`; `Restart-Service hns`",
        "install the update, then Restart-Computer",
        "Install-WindowsFeature -Name Containers -Restart",
        "Restart-Service kube-proxy, Restart-Computer restarts the machine",
        "drain the node\nRestart-Service hns leaves pods running",
        "kubectl create role a && kubectl create rolebinding a",
        r#"kubectl patch node a -p '{"spec":{}}'"#,
        r#"kubectl patch node a -p '{\"spec\":{}}'"#,
    ] {
        assert_ne!(dangers(advice), [""; 0], "{advice}");
    }
    for advice in [
        "Restart-Computer restarts this machine",
        "Start-Service hns; then run again",
        r#"kubectl patch node a -p "spec: {unschedulable: true}""#,
        r#"calicoctl patch node a -p '{"spec":{}}'"#,
    ] {
        assert_eq!(dangers(advice), [""; 0]);
    }
}

/// Every page that people read, by its path.
pub fn documents() -> Vec<String> {
    let mut found: Vec<String> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(str::to_owned).to_vec();
    found.extend(["docs", "packaging"].into_iter().flat_map(|folder| files(folder, &["md"])).map(|(path, _)| path));
    found.sort();
    found
}

#[test]
fn every_cited_defect_is_in_the_catalogue_and_its_test_exists() {
    let mut texts: Vec<(String, String)> = documents().into_iter().map(|name| (name.clone(), read(&name))).collect();
    texts.extend(["src", "tests"].into_iter().flat_map(sources));
    // Except the catalogue itself, and this file, which cites tests below that do not exist.
    texts.retain(|(path, _)| !["docs/differences.md", "tests/it/docs.rs"].contains(&path.as_str()));
    let cited: BTreeSet<String> = texts.iter().flat_map(|(_, text)| defects_in(text)).collect();
    assert!(cited.len() > 20, "too few citations: {cited:?}");
    let wrong = faults_of_catalogue(&read("docs/differences.md"), &texts);
    assert!(wrong.is_empty(), "docs/differences.md:\n{}", wrong.join("\n"));
}

/// How code and documents cite a defect of Calico's scripts: by its number, or in the name of a test.
static CITATION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u:\b)B[0-9]+(?-u:\b)|(?-u:\b)fn (?:b[0-9]+_)+").expect("it is one"));

/// The numbers of the defects that a text cites: B13, and B15 and B19 of `fn b15_b19_uninstall()`.
fn defects_in(text: &str) -> Vec<String> {
    let cited = CITATION.find_iter(text).map(|found| found.as_str().trim_start_matches("fn "));
    cited.flat_map(|numbers| numbers.split_terminator('_').map(str::to_uppercase)).collect()
}

/// Returns what is wrong with the catalogue of defects, compared with the files (path and text) that cite it.
fn faults_of_catalogue(page: &str, texts: &[(String, String)]) -> Vec<String> {
    let rows = rows(page, "number");
    let cells = |row: &String| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let numbers: Vec<&String> = rows.iter().map(|row| &row[0]).collect();
    let mut wrong = Vec::new();
    if !numbers.iter().copied().cloned().eq((1..=32).map(|number| format!("B{number}"))) {
        wrong.push(format!("not B1 to B32, each once and in order: {numbers:?}"));
    }
    for (path, text) in texts {
        let unknown = defects_in(text).into_iter().filter(|number| !numbers.contains(&number));
        wrong.extend(unknown.map(|number| format!("{path} cites {number}, which has no row")));
    }
    for row in &rows {
        let [number, theirs, ours, shown] = row.as_slice() else {
            wrong.push(format!("a row has not four columns: {row:?}"));
            continue;
        };
        let tests: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        if theirs.is_empty() || ours.is_empty() || tests.is_empty() && !shown.contains("none") {
            wrong.push(format!("{number} has an empty column"));
        }
        let missing = tests.into_iter().filter(|test| !is_a_test(test, texts));
        wrong.extend(missing.map(|test| format!("{number}: there is no test `{test}`")));
    }
    wrong
}

/// Whether a test is in the file of its path: `lib: plan::diff::tests::x` in `plan/diff.rs` of `src`.
fn is_a_test(named: &str, texts: &[(String, String)]) -> bool {
    let (folder, path) = match named.split_once(": ") {
        None => ("tests/it/", named),
        Some(("windows", path)) => ("tests/windows/", path),
        Some(("contract", path)) => ("tests/contract/", path),
        Some(("lib", path)) => ("src/", path),
        Some(_) => return false,
    };
    let Some((module, name)) = path.rsplit_once("::") else { return false };
    let function = format!("fn {name}() {{");
    texts.iter().any(|(file, text)| {
        let Some(file) = file.strip_prefix(folder).and_then(|file| file.strip_suffix(".rs")) else { return false };
        let file = file.trim_end_matches("/mod").replace('/', "::");
        // A module at the end of the file, for example `tests`, may follow.
        let leads_there = module.strip_prefix(&file).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        leads_there && text.contains(&function)
    })
}

#[test]
fn faults_of_the_catalogue_are_detected() {
    let row = |number: u32| format!("| B{number} | theirs | ours | none |\n");
    let page = format!("| number | a | b | c |\n|---|---|---|---|\n{}", (1..=32).map(row).collect::<String>());
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let texts = [
        text("tests/it/stories/day.rs", "/// Defects B4 and (B5).\nfn b4_b5_it_rains() {"),
        text("src/plan/mod.rs", "mod tests { fn it_snows() {"),
    ];
    assert_eq!(defects_in(&texts[0].1), ["B4", "B5", "B4", "B5"]);
    for test in ["`stories::day::b4_b5_it_rains`", "`lib: plan::tests::it_snows`, none for hail"] {
        let page = page.replacen("none", test, 1);
        assert_eq!(faults_of_catalogue(&page, &texts), [""; 0], "{test}");
    }
    for (old, new) in [
        ("| B7 | theirs | ours | none |\n", ""),
        ("| B7 |", "| B6 |"),
        ("ours | none |", "ours | |"),
        ("ours | none |", "ours |"),
        ("none", "`stories::day::b4_it_hails`"),
        ("none", "`stories::night::b4_b5_it_rains`"),
        ("none", "`lib: stories::day::b4_b5_it_rains`"),
        ("none", "`it_snows`"),
    ] {
        let page = page.replacen(old, new, 1);
        assert_ne!(faults_of_catalogue(&page, &texts), [""; 0], "{old} -> {new}");
    }
    for citation in ["// defect B33", "// upstream's own (B4, B40)", "fn b4_b99_it_hails() {"] {
        let texts = [text("src/plan/mod.rs", citation)];
        assert_eq!(faults_of_catalogue(&page, &texts).len(), 1, "{citation}");
    }
}

/// Compares a document that is generated from the code; `CALICO_WIN_WRITE_DOCS=1 cargo test --test it docs` writes it.
#[track_caller]
pub fn matches_the_code(file: &str, text: &str) {
    if std::env::var_os("CALICO_WIN_WRITE_DOCS").is_some() {
        std::fs::write(project().join(file), text).unwrap();
    }
    assert!(read(file) == text, "{file} does not match the code: run with CALICO_WIN_WRITE_DOCS=1");
}

/// A table as Markdown.
pub fn table(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let (head, body) = rows.split_first().unwrap();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    line(head) + &rule + &body.iter().map(|row| line(row)).collect::<String>()
}

/// The page with this table after a comment that names it.
pub fn with_table(page: &str, name: &str, table: &str) -> String {
    let (before, rest) = page.split_once(&format!("<!-- {name} -->\n")).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    format!("{before}<!-- {name} -->\n{table}\n{after}")
}

#[test]
fn the_page_of_platforms_matches_their_rows() {
    let all = Provider::ALL.map(Provider::brings);
    let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
    let mut detection = vec![row(["platform", "detected by"])];
    detection.extend(all.iter().map(|platform| row([platform.name, platform.evidence])));

    type Cell = fn(&Brings) -> String;
    let defaults: [(&str, Cell); 9] = [
        ("default", |on| if on.name == "none" { "others".into() } else { on.name.into() }),
        ("backend", |on| if on.own_network.is_some() { "none".into() } else { "from the cluster".into() }),
        ("kubeNetwork", |on| format!("`{}`", on.own_network.unwrap_or("Calico.*"))),
        ("node name", |on| if on.names_nodes { "instance's name".into() } else { "host name".into() }),
        ("kubeconfig", |on| format!("`{}`", on.kubeconfig)),
        ("static rules", |on| if on.wireserver { "block the wireserver".into() } else { "-".into() }),
        ("metadata route restored", |on| match on.metadata_route {
            MetadataRoute::Left => "no".into(),
            MetadataRoute::LostToVSwitch => "unless the backend is none".into(),
            MetadataRoute::Lost => "yes".into(),
        }),
        ("TCP 10250 allowed", |on| if on.own_network.is_some() { "no".into() } else { "yes".into() }),
        ("kube-proxy's service", |on| if on.own_kube_proxy { "DSR added".into() } else { "-".into() }),
    ];
    // A platform that brings nothing is among the others.
    let cells = |on: &Brings| defaults[1..].iter().map(|(_, cell)| cell(on)).collect::<Vec<_>>();
    let others = cells(&Provider::None.brings());
    let columns: Vec<&Brings> = all.iter().filter(|on| on.name == "none" || cells(on) != others).collect();
    let line = |(name, cell): &(&str, Cell)| -> Vec<String> {
        std::iter::once((*name).to_owned()).chain(columns.iter().map(|on| cell(on))).collect()
    };
    let defaults: Vec<Vec<String>> = defaults.iter().map(line).collect();
    let page = with_table(&read("docs/platforms.md"), "detection", &table(&detection));
    matches_the_code("docs/platforms.md", &with_table(&page, "defaults", &table(&defaults)));
}

#[test]
fn the_page_of_checks_matches_the_catalogue() {
    for row in preflight::catalogue() {
        for (what, text) in [("why", row.why), ("fix", row.fix)] {
            assert!(text.len() > 20 && !text.ends_with('.'), "{}: its {what} is not a phrase", row.id);
        }
    }
    matches_the_code("docs/checks.md", &preflight::document());
}

#[test]
fn the_page_of_the_selftest_matches_its_rows() {
    for row in selftest::rows() {
        for (what, text) in [("asks", row.asks), ("needed_for", row.needed_for)] {
            assert!(text.len() > 20 && !text.ends_with('.'), "{}: its {what} is not a phrase", row.id);
        }
    }
    matches_the_code("docs/selftest.md", &selftest::document());
}

#[test]
fn the_page_of_verify_matches_its_probes() {
    for probe in verify::probes() {
        for (what, text) in [("asks", probe.asks), ("fix", probe.fix)] {
            assert!(text.len() > 20 && !text.ends_with('.'), "{}: its {what} is not a phrase", probe.id);
        }
    }
    matches_the_code("docs/verify.md", &verify::document());
}

#[test]
fn the_manifest_of_rights_matches_the_required_rights() {
    matches_the_code("docs/rbac.yaml", &calicoctl_win::cluster::rights_manifest(None));
    matches_the_code("docs/rbac-verify.yaml", &calicoctl_win::cluster::verify_manifest());
}
