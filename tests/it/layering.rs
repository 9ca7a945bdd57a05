//! Checks the structure: which room may use which, what the pure rooms may not use, where `unsafe` is allowed, and that
//! no shell is called.
//!
//! Reads the sources as text, without their tests. Expansions of other crates' macros are not checked; the compiler and
//! a reader see them.

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

/// The base rooms: every room may use them.
const GROUND: [&str; 8] = ["fault", "values", "yaml", "item", "packed", "paths", "version", "counted"];

/// Rooms that only compute: no file system, environment, process, clock, network, Windows.
const PURE: [&str; 14] = [
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
    "policy",
    "fleet",
];

/// What each room may use of the others, as prefixes of paths below `crate::`. These are the arrows of
/// docs/architecture.md, and a room may use only rooms listed before it.
const ARROWS: &[(&str, &[&str])] = &[
    ("values", &[]),
    ("fault", &[]),
    ("yaml", &[]),
    ("paths", &["values"]),
    ("version", &[]),
    ("packed", &[]),
    // In tests only: how often something is resolved.
    ("counted", &[]),
    ("item", &["values"]),
    ("facts", &[]),
    ("policy", &[]),
    ("fleet", &[]),
    ("config", &["facts"]),
    ("settings", &["config", "facts"]),
    ("calico", &["settings", "facts"]),
    ("preflight", &["settings", "facts", "calico"]),
    ("plan", &["settings", "calico"]),
    ("report", &["plan", "preflight", "fleet"]),
    ("node", &["facts", "calico"]),
    ("wait", &["node", "report::event"]),
    ("platform", &["facts", "node"]),
    // The node's kubeconfig is rendered from the credentials that it fetches.
    (
        "cluster",
        &[
            "facts",
            "fleet",
            "policy",
            "settings",
            "calico::etcd",
            "calico::kubeconfig",
            "calico::x509",
            "report::event",
        ],
    ),
    ("release", &["calico", "settings", "node::files", "report::event"]),
    ("agent", &["calico", "settings", "node", "report::event", "wait"]),
    // It starts processes as the agent does, and adds to the rows of a sandbox what its programs do.
    ("selftest", &["node", "facts", "calico::services", "agent::os", "agent::stop", "report::answer"]),
    ("render", &["config"]),
    ("diagnose", &["facts", "node::event_log", "node::hns", "report::document", "report::text"]),
    // Receipts name the current version and backend.
    // The marks are those of the services, rules and networks that this program creates.
    // Whether a service works is read from its agent's report.
    // The Node and its pods are part of a change.
    (
        "apply",
        &[
            "node",
            "plan",
            "facts",
            "calico",
            "cluster",
            "settings::Backend",
            "report::event",
            "report::time",
            "wait",
            "agent",
        ],
    ),
    ("sandbox", &["agent", "calico", "cluster", "node", "settings", "report::event"]),
    // It judges what the run has gathered of the node and of the cluster.
    ("verify", &["apply", "calico", "cluster", "facts", "node", "report", "settings", "wait"]),
    (
        "run",
        &[
            "agent",
            "apply",
            "calico",
            "cluster",
            "config",
            "facts",
            "fleet",
            "node",
            "plan",
            "platform",
            "preflight",
            "release",
            "report",
            "sandbox",
            "settings",
            "verify",
            "wait",
        ],
    ),
    // It parses, dispatches and shows: what changes a node or a cluster is decided in `run`.
    (
        "cli",
        &[
            "agent",
            "apply::joining",
            "apply::journal",
            "apply::lock",
            "apply::node_object",
            "apply::receipt",
            "apply::standing",
            "apply::store",
            "calico::kube_proxy",
            "calico::kubernetes",
            "calico::networks",
            "calico::nssm",
            "calico::services",
            "cluster::Checks",
            "cluster::EXEC_PLUGIN",
            "cluster::PLUGIN_CANNOT_START",
            "cluster::PLUGIN_TIMED_OUT",
            "cluster::absent",
            "cluster::lint_etcd",
            "cluster::login_manifest",
            "cluster::renewal_manifest",
            "cluster::rights_manifest",
            "cluster::show_requests",
            "cluster::verify_manifest",
            "config",
            "diagnose",
            "facts",
            "fleet",
            "node",
            "plan::show",
            "policy",
            "preflight",
            "release::archive",
            "release::bundle",
            "release::download",
            "release::extract",
            "release::locate",
            "render",
            "report",
            "run",
            "selftest",
            "settings",
            "verify",
            "wait",
        ],
    ),
];

/// What a pure room may not use, as paths.
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

/// What a pure room may not contain, wherever the name comes from.
const IMPURE_WORDS: &str = r"\b(SystemTime|Instant|Timestamp::now|Zoned::now|fs::(read|write|File|create_dir\w*|remove_\w+|rename)|env::var\w*|Command::new|windows(_sys|_registry|_service)?::)";

/// Programs that this program replaces.
const SHELLS: &str =
    r#"(?i)Command::new\(\s*r?#*"(?:[^"]*[\\/])?(powershell|pwsh|netsh|sc|dism|icacls|nssm|reg|route|cmd)(\.exe)?""#;

/// The only places where `unsafe` is allowed.
const UNSAFE_ROOMS: [&str; 2] = ["src/node/windows", "src/agent/os"];

#[test]
fn the_rooms_follow_the_arrows_and_the_pure_ones_stay_pure() {
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
fn no_room_uses_one_above_it() {
    for (at, (room, uses)) in ARROWS.iter().enumerate() {
        for used in *uses {
            let below = used.split("::").next().unwrap_or_default();
            let place = ARROWS.iter().position(|(name, _)| *name == below);
            assert!(place.is_some_and(|place| place < at), "`{room}` may use `{used}`, which does not stand below it");
        }
    }
}

#[test]
fn every_arrow_is_used() {
    let files = product();
    let mut used: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in &files {
        let module = module(path);
        let Some(&room) = module.first() else { continue };
        let named = paths(&without_comments(text).0, &module);
        let rooms = named.iter().filter_map(|path| path.strip_prefix("crate::").map(str::to_owned));
        used.entry(room).or_default().extend(rooms);
    }
    let is_used = |room: &str, arrow: &str| used.get(room).is_some_and(|used| used.iter().any(|p| is_below(p, arrow)));
    let arrows = ARROWS.iter().flat_map(|(room, arrows)| arrows.iter().map(move |arrow| (*room, *arrow)));
    let unused: Vec<String> = arrows
        .filter(|(room, arrow)| !is_used(room, arrow))
        .map(|(room, arrow)| format!("`{room}` does not use `{arrow}`"))
        .collect();
    assert!(unused.is_empty(), "remove these from ARROWS:\n{}", unused.join("\n"));
}

/// In docs/architecture.md, an arrow to a part of a room is an arrow to the room.
#[test]
fn the_architecture_has_every_arrow() {
    let rooms = |arrows: &[&str]| {
        let mut rooms: Vec<String> = Vec::new();
        for arrow in arrows {
            rooms.push(format!("`{}`", arrow.split("::").next().unwrap_or(arrow)));
        }
        rooms.sort();
        rooms.dedup();
        rooms.join(", ")
    };
    let rows = ARROWS.iter().filter(|(room, arrows)| !GROUND.contains(room) && !arrows.is_empty()).rev();
    let table: String = rows.map(|(room, arrows)| format!("| `{room}` | {} |\n", rooms(arrows))).collect();
    let page = read("docs/architecture.md");
    assert!(page.contains(&format!("\n| a room | may use |\n|---|---|\n{table}\n")), "the table of rooms is:\n{table}");
}

/// A reader of a file need not have read the file that uses it. A module and its children may be one unit in several
/// files.
#[test]
fn no_cycle_of_files_is_larger_than_a_module_and_its_children() {
    let circles = cycles(&product());
    assert!(circles.is_empty(), "these files use each other:\n{}", circles.join("\n"));
}

/// What Wine does otherwise is the concern of the tests and their DLLs.
#[test]
fn the_product_knows_nothing_of_wine() {
    let knows =
        |(path, text): (String, String)| without_comments(&text).1.to_lowercase().contains("wine").then_some(path);
    assert_eq!(product().into_iter().filter_map(knows).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_module_of_the_tests_is_compiled() {
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

/// The convention of CONTRIBUTING.md, which names the exceptions.
#[test]
fn tests_in_files_of_their_own_are_named_tests() {
    // `counted` is no test: the product counts with it while it is tested.
    const EXCEPTIONS: [&str; 7] = ["counted", "crash_matrix", "live", "lists", "recorded", "recordings", "rendered"];
    let (files, contributing) = (sources("src"), read("CONTRIBUTING.md"));
    let declared = files.iter().flat_map(|(path, text)| test_modules(text).into_iter().map(move |name| (path, name)));
    let mut exceptions = BTreeSet::new();
    for (path, name) in declared {
        let is_exception = EXCEPTIONS.contains(&name);
        assert!(is_exception || ["tests", "testing"].contains(&name), "{path}: name `{name}` `tests` or `testing`");
        assert!(!is_exception || name == "counted" || contributing.contains(&format!("{name}.rs`")), "{name}");
        exceptions.extend(is_exception.then_some(name));
    }
    assert_eq!(exceptions, BTreeSet::from(EXCEPTIONS));
}

/// The modules that a file declares for tests only.
fn test_modules(text: &str) -> Vec<&str> {
    let declared = pattern!(r"#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub(?:\([\w ]+\))? )?mod (\w+);");
    declared.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str())).collect()
}

/// Returns what is wrong with one source file, a sentence each.
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

/// Returns the cycles of files that use each other, one line each, except a module with some of its children.
fn cycles(files: &[(String, String)]) -> Vec<String> {
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

/// Returns what a file uses, directly or indirectly.
fn reached<'a>(from: &'a String, uses: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(uses.get(file).into_iter().flatten().filter(|used| seen.insert(*used)));
    }
    seen
}

/// Returns the names of the modules down to a file.
fn module(path: &str) -> Vec<&str> {
    let plain = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    plain.split('/').filter(|part| !matches!(*part, "lib" | "main")).collect()
}

/// Whether a path equals another or is below it; a glob or `self` counts as its parent.
fn is_below(path: &str, top: &str) -> bool {
    path == top || path.strip_prefix(top).is_some_and(|rest| rest.starts_with("::"))
}

/// What is compiled into the program: the sources without the files of `#[cfg(test)] mod …;`, each up to its own tests.
pub fn product() -> Vec<(String, String)> {
    let mut files = sources("src");
    let mut tests = Vec::new();
    for (path, text) in &files {
        let folder = path.strip_suffix(".rs").unwrap_or(path);
        let folder = ["/mod", "/lib", "/main"].iter().find_map(|end| folder.strip_suffix(end)).unwrap_or(folder);
        tests.extend(test_modules(text).into_iter().map(|module| format!("{folder}/{module}")));
    }
    files.retain(|(path, _)| {
        !tests.iter().any(|test| path.strip_prefix(test).is_some_and(|rest| rest.starts_with(['.', '/'])))
    });
    files.into_iter().map(|(path, text)| (path, without_tests(&text).to_owned())).collect()
}

/// A file up to its `#[cfg(test)] mod …`, which is last by convention.
fn without_tests(text: &str) -> &str {
    let tests = pattern!(r"(?m)^#\[cfg\(test\)\]\n(#\[.*\]\n)*mod \w+ \{");
    tests.find(text).map_or(text, |found| &text[..found.start()])
}

/// Returns the text without comments: first without the contents of string literals, then with them.
fn without_comments(text: &str) -> (String, String) {
    // In this order: comments, raw strings, strings, characters. A lifetime has no closing quote.
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

/// Returns every path that code names, with `use` trees expanded, and those of this crate starting with `crate::`.
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

/// Resolves `super::x` and `self::x` to the crate's root.
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
fn the_checker_detects_violations() {
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
fn a_cycle_is_detected_unless_it_is_a_module_and_its_children() {
    let file = |path: &str, text: &str| (format!("src/{path}.rs"), text.to_owned());
    let siblings = [
        file("plan/a", "use super::b::B;"),
        file("plan/b", "use super::c;"),
        file("plan/c", "fn f() { crate::plan::a::g() }"),
    ];
    assert_eq!(cycles(&siblings), ["crate::plan::a, crate::plan::b, crate::plan::c"]);
    let family = [
        file("plan/mod", "pub use self::a::A;"),
        file("plan/a", "use super::Step;"),
        file("plan/b", "use super::a::A;"),
    ];
    assert_eq!(cycles(&family), [] as [&str; 0]);
    let line = [file("plan/a", "use super::b::B;"), file("plan/b", "// use super::a;\nuse std::fmt;")];
    assert_eq!(cycles(&line), [] as [&str; 0]);
}

#[test]
fn the_checker_accepts_valid_code() {
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
