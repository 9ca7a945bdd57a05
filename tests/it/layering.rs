//! Holds the house together: who may use whom, what the pure rooms may not touch, where `unsafe`
//! may stand, and that nothing is left to a shell.
//!
//! Reads the sources as text, without their tests. What a macro of another crate expands to is not
//! seen; that is fine, since the compiler and a reader see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use crate::{project, read, sources};

/// A regular expression that is compiled once.
macro_rules! pattern {
    ($text:expr) => {{
        static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("it is one"));
        &*PATTERN
    }};
}

/// The ground floor: everybody may use it.
const GROUND: [&str; 6] = ["fault", "values", "yaml", "item", "paths", "version"];

/// Rooms that decide and never touch: no file system, environment, process, clock, network, Windows.
const PURE: [&str; 12] = [
    "fault",
    "values",
    "yaml",
    "item",
    "paths",
    "version",
    "facts",
    "config",
    "settings",
    "calico",
    "preflight",
    "plan",
];

/// What each room may use of the others, as prefixes of paths below `crate::`. The arrows are those of
/// docs/architecture.md, and a room may use only what stands before it here.
const ARROWS: &[(&str, &[&str])] = &[
    ("values", &[]),
    ("fault", &[]),
    ("yaml", &[]),
    ("paths", &["values"]),
    ("version", &[]),
    ("item", &["values"]),
    ("facts", &[]),
    ("config", &["facts"]),
    ("settings", &["config", "facts"]),
    ("calico", &["settings", "facts"]),
    ("preflight", &["settings", "facts", "calico"]),
    ("plan", &["settings", "facts", "calico"]),
    ("report", &["plan", "preflight", "facts"]),
    ("node", &["facts", "calico"]),
    ("platform", &["facts", "node"]),
    // The credentials it fetches are what the node's kubeconfig is rendered from.
    ("cluster", &["facts", "settings", "calico::etcd", "calico::kubeconfig", "report::event"]),
    ("release", &["calico", "settings", "node::files", "report::event"]),
    ("agent", &["calico", "settings", "node", "facts", "report::event"]),
    // Receipts name the version and backend that stand.
    // And our marks are those of the services, rules and networks that we make.
    // Whether a service does its work is what its agent says.
    // The Node and its pods are part of a change.
    ("apply", &["node", "plan", "facts", "calico", "cluster", "settings::Backend", "report::event", "agent"]),
    ("sandbox", &["agent", "calico", "cluster", "facts", "node", "plan", "release", "settings", "report::event"]),
    (
        "run",
        &[
            "agent",
            "apply",
            "calico",
            "cluster",
            "config",
            "facts",
            "node",
            "plan",
            "platform",
            "preflight",
            "release",
            "report",
            "sandbox",
            "settings",
        ],
    ),
    (
        "cli",
        &[
            "agent",
            "apply",
            "calico",
            "cluster",
            "config",
            "facts",
            "node",
            "plan",
            "platform",
            "preflight",
            "release",
            "report",
            "run",
            "settings",
        ],
    ),
];

/// What a pure room may not name, as paths.
const IMPURE_PATHS: [&str; 20] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "std::time::SystemTime",
    "std::time::Instant",
    "kube",
    "reqwest",
    "tokio",
    "hyper",
    "hyper_util",
    "rustls",
    "indicatif",
];

/// What a pure room may not say, however it got hold of the name.
const IMPURE_WORDS: &str = r"\b(SystemTime|Instant|Timestamp::now|Zoned::now|fs::(read|write|File|create_dir\w*|remove_\w+|rename)|env::var\w*|Command::new|windows(_sys|_registry|_service)?::)";

/// Programs that we do the work of ourselves.
const SHELLS: &str =
    r#"(?i)Command::new\(\s*r?#*"(?:[^"]*[\\/])?(powershell|pwsh|netsh|sc|dism|icacls|nssm|reg|route|cmd)(\.exe)?""#;

/// The only places where `unsafe` may stand.
const UNSAFE_ROOMS: [&str; 2] = ["src/node/windows", "src/agent/os"];

#[test]
fn the_rooms_keep_to_the_arrows_and_the_pure_ones_stay_pure() {
    let files = product();
    assert!(files.len() > 15, "the sources are not where they were");
    let faults: Vec<String> = files.iter().flat_map(|(path, text)| check(path, text)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_room_has_its_arrows() {
    let map = read("src/lib.rs");
    let rooms: Vec<&str> = map.lines().filter_map(|l| l.trim().strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    for room in &rooms {
        assert!(ARROWS.iter().any(|(name, _)| name == room), "`{room}` is new: say in ARROWS what it may use");
    }
    for (room, _) in ARROWS {
        let there = ["", ".rs"].iter().any(|end| project().join(format!("src/{room}{end}")).exists());
        assert!(there, "`{room}` has arrows but there is no such room");
    }
}

#[test]
fn no_room_uses_one_that_stands_above_it() {
    for (at, (room, uses)) in ARROWS.iter().enumerate() {
        for used in *uses {
            let below = used.split("::").next().unwrap_or_default();
            let place = ARROWS.iter().position(|(name, _)| *name == below);
            assert!(place.is_some_and(|place| place < at), "`{room}` may use `{used}`, which does not stand below it");
        }
    }
}

/// A reader who opens a file need not have read the one that uses it. A module and those below it may be one thing in
/// several files.
#[test]
fn no_circle_of_files_is_larger_than_a_module_and_its_children() {
    let circles = circles(&product());
    assert!(circles.is_empty(), "these files use each other:\n{}", circles.join("\n"));
}

#[test]
fn no_module_of_the_tests_is_forgotten() {
    for (folder, main) in [("tests/it", "tests/it/main.rs"), ("tests/windows", "tests/windows/main.rs")] {
        let declared = read(main);
        for (path, _) in sources(folder) {
            let below = path.strip_prefix(&format!("{folder}/")).expect("sources lie below their folder");
            let module = below.split('/').next().and_then(|m| m.split('.').next()).expect("a file has a name");
            assert!(
                module == "main" || declared.contains(&format!("mod {module};")),
                "{path} is not compiled: add `mod {module};` to {main}"
            );
        }
    }
}

/// What is wrong with one source file, a sentence each.
fn check(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (code, with_strings) = without_comments(without_tests(text));

    if !UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) && pattern!(r"\bunsafe\b").is_match(&code) {
        wrong.push(format!("{path}: `unsafe` belongs under {}", UNSAFE_ROOMS.join(" or ")));
    }
    for shell in pattern!(SHELLS).find_iter(&with_strings) {
        wrong.push(format!("{path}: no shell-outs: {}", shell.as_str()));
    }

    let module = module(path);
    let Some(room) = module.first() else { return wrong };
    let allowed = ARROWS.iter().find(|(name, _)| name == room).map_or(&[][..], |(_, uses)| uses);

    for used in paths(&code, &module) {
        if let Some(below) = used.strip_prefix("crate::") {
            let ground = GROUND.iter().filter(|_| !GROUND.contains(room));
            let own = [room].into_iter().chain(ground);
            if !own.chain(allowed).any(|may| is_below(below, may)) {
                wrong.push(format!("{path}: `{room}` may not use `{used}`"));
            }
        } else if PURE.contains(room)
            && (IMPURE_PATHS.iter().any(|bad| is_below(&used, bad)) || used.starts_with("windows"))
        {
            wrong.push(format!("{path}: `{room}` is pure and may not use `{used}`"));
        }
    }
    if PURE.contains(room) {
        for word in pattern!(IMPURE_WORDS).find_iter(&code) {
            wrong.push(format!("{path}: `{room}` is pure and may not use `{}`", word.as_str()));
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

/// Files that use each other, a line for each circle that is not a module with some of its children.
fn circles(files: &[(String, String)]) -> Vec<String> {
    let module_of = |path: &str| {
        let parts = module(path);
        ["crate"].into_iter().chain(parts).collect::<Vec<_>>().join("::")
    };
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module_of(path)).collect();
    let file_of = |path: &str| {
        let ends = path.match_indices("::").map(|(at, _)| at).chain([path.len()]);
        ends.map(|end| &path[..end]).filter(|part| modules.contains(*part)).last().map(str::to_owned)
    };
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        let own = module_of(path);
        let used = paths(&without_comments(text).0, &module(path)).into_iter().filter_map(|path| file_of(&path));
        uses.entry(own.clone()).or_default().extend(used.filter(|used| *used != own && used != "crate"));
    }
    let all: BTreeMap<&String, BTreeSet<&String>> = uses.keys().map(|file| (file, reached(file, &uses))).collect();
    let circle = |file: &String| all[file].iter().copied().filter(|other| all[*other].contains(file)).collect();
    let mut circles: BTreeSet<BTreeSet<&String>> = uses.keys().map(circle).collect();
    circles
        .retain(|circle| !circle.iter().any(|top| circle.iter().all(|file| is_below(file, top))) && !circle.is_empty());
    circles.iter().map(|circle| circle.iter().map(|file| file.as_str()).collect::<Vec<_>>().join(", ")).collect()
}

/// What a file uses, directly or not.
fn reached<'a>(from: &'a String, uses: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(uses.get(file).into_iter().flatten().filter(|used| seen.insert(*used)));
    }
    seen
}

/// The names of the modules down to a file.
fn module(path: &str) -> Vec<&str> {
    let plain = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    plain.split('/').filter(|part| !matches!(*part, "lib" | "main")).collect()
}

/// Whether a path is another or lies below it; a glob or `self` counts as the path it stands on.
fn is_below(path: &str, top: &str) -> bool {
    path == top || path.strip_prefix(top).is_some_and(|rest| rest.starts_with("::"))
}

/// What is compiled into the program: the sources without the files of `#[cfg(test)] mod …;`, and
/// each up to its own tests.
pub fn product() -> Vec<(String, String)> {
    let mut files = sources("src");
    let mut tests = Vec::new();
    for (path, text) in &files {
        let folder = path.strip_suffix(".rs").unwrap_or(path);
        let folder = ["/mod", "/lib", "/main"].iter().find_map(|end| folder.strip_suffix(end)).unwrap_or(folder);
        for module in
            pattern!(r"#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub(?:\([\w ]+\))? )?mod (\w+);").captures_iter(text)
        {
            tests.push(format!("{folder}/{}", &module[1]));
        }
    }
    files.retain(|(path, _)| {
        !tests.iter().any(|test| path.strip_prefix(test).is_some_and(|rest| rest.starts_with(['.', '/'])))
    });
    files.into_iter().map(|(path, text)| (path, without_tests(&text).to_owned())).collect()
}

/// A file up to its `#[cfg(test)] mod …`, which stands last by custom.
fn without_tests(text: &str) -> &str {
    let tests = pattern!(r"(?m)^#\[cfg\(test\)\]\n(#\[.*\]\n)*mod \w+ \{");
    tests.find(text).map_or(text, |found| &text[..found.start()])
}

/// The text without comments: once with what stands in string literals taken out, once with it.
fn without_comments(text: &str) -> (String, String) {
    // In turn: comments, raw strings, strings, characters. A lifetime has no closing quote.
    let token = pattern!(concat!(
        r"(?s)(?P<comment>//[^\n]*|/\*.*?\*/)",
        r##"|(?P<string>b?r#".*?"#|b?r"[^"]*"|b?"(?:\\.|[^"\\])*")"##,
        r"|(?P<char>b?'(?:\\[^']*'|[^'\\]'))",
    ));
    let code = token.replace_all(text, |found: &regex::Captures| match found.name("comment") {
        Some(_) => String::new(),
        None => "\"\"".into(),
    });
    let with_strings = token.replace_all(text, |found: &regex::Captures| match found.name("comment") {
        Some(_) => String::new(),
        None => found[0].to_owned(),
    });
    (code.into_owned(), with_strings.into_owned())
}

/// Every path that code names, `use` trees spelled out, those of this crate from `crate::` on.
fn paths(code: &str, module: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let uses = pattern!(r"(?s)\buse\s+([^;]+);");
    for tree in uses.captures_iter(code) {
        let tree: String = tree[1].split_whitespace().collect::<Vec<_>>().join(" ");
        spell_out(&tree, "", &mut found);
    }
    let inline = pattern!(r"\b[A-Za-z_]\w*(?:::[A-Za-z_]\w*)+");
    found.extend(inline.find_iter(&uses.replace_all(code, "")).map(|path| path.as_str().to_owned()));
    found.into_iter().map(|path| absolute(&path, module)).collect()
}

/// `a::{b, c::{d, self}}` as `a::b`, `a::c::d`, `a::c`.
fn spell_out(tree: &str, before: &str, found: &mut Vec<String>) {
    let tree = tree.trim().trim_start_matches("::");
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or(tree).trim();
        let path = format!("{before}{name}");
        found.push(path.trim_end_matches("::self").trim_end_matches("::*").to_owned());
        return;
    };
    let before = format!("{before}{}", head.trim());
    let inner = rest.trim().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    spell_out(&inner[start..at], &before, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// `super::x` and `self::x` seen from the crate's root.
fn absolute(path: &str, module: &[&str]) -> String {
    let mut parts: Vec<&str> = path.split("::").collect();
    if !matches!(parts[0], "super" | "self") {
        return path.to_owned();
    }
    let ups = parts.iter().take_while(|part| **part == "super").count();
    parts.drain(..ups.max(1));
    let kept = &module[..module.len().saturating_sub(ups)];
    ["crate"].iter().chain(kept).chain(&parts).copied().collect::<Vec<_>>().join("::")
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let bad: &[(&str, &str, &str)] = &[
        ("src/plan/diff.rs", "use std::fs;", "std::fs"),
        ("src/plan/diff.rs", "use std::{fmt, fs::File};", "std::fs::File"),
        ("src/plan/mod.rs", "fn f() { let x = std::env::var(\"HOME\"); }", "std::env::var"),
        ("src/settings.rs", "use std::time::{Duration,\n    Instant};", "std::time::Instant"),
        ("src/values.rs", "use std as s; fn f() { s::process::exit(1) } fn g() { SystemTime::now(); }", "SystemTime"),
        ("src/facts.rs", "use jiff::Timestamp; fn f() { Timestamp::now(); }", "Timestamp::now"),
        ("src/preflight/host.rs", "use kube::Client;", "kube::Client"),
        ("src/calico/cni.rs", "use reqwest::blocking as http;", "reqwest::blocking"),
        ("src/config/mod.rs", "use windows_registry::LOCAL_MACHINE;", "windows_registry"),
        ("src/config/mod.rs", "async fn f() { tokio::time::sleep(x).await }", "tokio::time::sleep"),
        ("src/plan/desired.rs", "use crate::apply::journal::Journal;", "crate::apply"),
        ("src/plan/desired.rs", "use crate::{values::Vni, node::{Node, Listing}};", "crate::node::Node"),
        ("src/plan/desired.rs", "fn f(n: &dyn super::super::node::Node) {}", "crate::node::Node"),
        ("src/plan/mod.rs", "use super::cluster;", "crate::cluster"),
        ("src/node/windows/files.rs", "use crate::plan::desired::desired;", "crate::plan::desired"),
        ("src/node/mod.rs", "use crate::settings::Settings;", "crate::settings"),
        ("src/apply/converge.rs", "use crate::cli::Args;", "crate::cli"),
        ("src/fault.rs", "use crate::report::event::Event;", "crate::report"),
        ("src/release/read.rs", "unsafe { std::hint::unreachable_unchecked() }", "unsafe"),
        ("src/cli/install.rs", "std::process::Command::new(\"powershell.exe\")", "powershell"),
        ("src/agent/os/windows.rs", "Command::new(r\"C:\\Windows\\System32\\netsh.exe\")", "netsh"),
        ("src/node/windows/routes.rs", "Command::new( \"route\" )", "route"),
    ];
    for (path, text, expected) in bad {
        let wrong = check(path, text);
        assert!(wrong.iter().any(|w| w.contains(expected)), "{path}: {text}\nfound only {wrong:?}");
    }
}

#[test]
fn a_circle_is_seen_unless_it_is_a_module_and_its_children() {
    let file = |path: &str, text: &str| (format!("src/{path}.rs"), text.to_owned());
    let siblings = [
        file("plan/a", "use super::b::B;"),
        file("plan/b", "use super::c;"),
        file("plan/c", "fn f() { crate::plan::a::g() }"),
    ];
    assert_eq!(circles(&siblings), ["crate::plan::a, crate::plan::b, crate::plan::c"]);
    let family = [
        file("plan/mod", "pub use self::a::A;"),
        file("plan/a", "use super::Step;"),
        file("plan/b", "use super::a::A;"),
    ];
    assert_eq!(circles(&family), [] as [&str; 0]);
    let line = [file("plan/a", "use super::b::B;"), file("plan/b", "// use super::a;\nuse std::fmt;")];
    assert_eq!(circles(&line), [] as [&str; 0]);
}

#[test]
fn the_checker_leaves_the_good_alone() {
    let good: &[(&str, &str)] = &[
        ("src/plan/diff.rs", "use std::time::Duration;\nuse crate::item::{Id, State};\nuse super::item;"),
        ("src/plan/diff.rs", "// use std::fs;\n/* unsafe { } */\nconst S: &str = \"unsafe std::env::var\";"),
        ("src/plan/diff.rs", "const C: char = '\"'; fn f<'a>(x: &'a str) -> &'a str { x }"),
        ("src/values.rs", "use std::net::Ipv4Addr;\nfn f() {}\n\n#[cfg(test)]\nmod tests { use std::fs; }"),
        ("src/settings.rs", "use crate::{config::Config, facts::NodeFacts, values::Vni, fault::Fault};"),
        ("src/config/mod.rs", "let e = env!(\"CARGO_PKG_VERSION\"); let x = environment::var();"),
        ("src/node/windows/services.rs", "unsafe { OpenSCManagerW(null(), null(), 0) }"),
        ("src/lib.rs", "#![deny(unsafe_code)]\npub mod plan;"),
        ("src/main.rs", "use calicoctl_win::cli; fn main() { cli::run() }"),
        ("src/agent/supervise.rs", "Command::new(&config.felix.program)"),
    ];
    for (path, text) in good {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}
