//! Reference pages that are generated: the command line of clap's tree, and what an install touches of plans.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::docs::{matches_the_code, table, with_table};
use crate::lab::Lab;
use crate::read;
use crate::stories::containerd::without_runtime;
use crate::stories::kubernetes::bare;

/// A text in the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', r"\|").replace('\n', " ")
}

fn row(cells: [&str; 2]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// The names of an option with its value: `-c, --config <FILE>`.
fn names(arg: &Arg) -> String {
    let value =
        arg.get_value_names().map(|names| names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" "));
    let value = value.filter(|_| arg.get_action().takes_values()).unwrap_or_default();
    if arg.is_positional() {
        return if arg.is_required_set() { value } else { format!("[{}]", value.trim_matches(['<', '>'])) };
    }
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let long = arg.get_long().map(|long| format!("--{long}")).unwrap_or_default();
    let optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0 && count.takes_values());
    match value.as_str() {
        "" => short + &long,
        value if optional => format!("{short}{long}[={value}]"),
        value => format!("{short}{long} {value}"),
    }
}

/// What an option does, with its values, its default and its variable.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let takes_values = arg.get_action().takes_values();
    let values: Vec<String> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes_values && !values.is_empty() && values != ["`true`", "`false`"] {
        let _ = write!(text, ". One of {}", values.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes_values && !defaults.is_empty() {
        let _ = write!(text, ". Default: `{}`", defaults.join(", "));
    }
    if let Some(name) = arg.get_env() {
        let _ = write!(text, ". Variable: `{}`", name.to_string_lossy());
    }
    cell(&text)
}

fn options<'a>(of: &str, arguments: impl Iterator<Item = &'a Arg>) -> String {
    let shown = arguments.filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
    let rows: Vec<Vec<String>> = shown.map(|arg| vec![format!("`{}`", cell(&names(arg))), meaning(arg)]).collect();
    if rows.is_empty() {
        return String::new();
    }
    "\n".to_owned() + &table(&std::iter::once(row([of, "meaning"])).chain(rows).collect::<Vec<_>>())
}

/// Appends the section of a command, and those below it.
fn sections(command: &Command, words: &str, page: &mut String) {
    let below: Vec<&Command> =
        command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help").collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## {words}\n\n{about}.\n");
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = write!(page, "\nAlso: {}.\n", aliases.join(", "));
    }
    page.push_str(&options("option", command.get_arguments().filter(|arg| !arg.is_global_set())));
    for command in below {
        sections(command, &format!("{words} {}", command.get_name()), page);
    }
}

fn command_line() -> String {
    let tree = calicoctl_win::cli::tree();
    let mut page = "# Command line\n\nEvery command and its options, generated from the program itself. \
                    `calicoctl-win COMMAND --help` prints the same with examples, `calicoctl-win options` the options of \
                    all commands. A variable applies if the option is not given.\n\n## Options of all commands\n"
        .to_owned();
    page.push_str(&options("option", tree.get_arguments().filter(|arg| arg.is_global_set())));
    for command in tree.get_subcommands().filter(|command| !command.is_hide_set()) {
        sections(command, command.get_name(), &mut page);
    }
    page
}

#[test]
fn the_page_of_the_command_line_is_the_programs() {
    let page = command_line();
    let missing: Vec<String> =
        crate::docs::commands().into_iter().filter(|command| !page.contains(&format!("\n## {command}\n"))).collect();
    assert_eq!(missing, [""; 0]);
    matches_the_code("docs/cli.md", &page);
}

/// The kinds of items, in the order of the page, with their titles.
const KINDS: [(&str, &str); 8] = [
    ("release", "Calico's release"),
    ("folder", "Folders"),
    ("file", "Files"),
    ("registry", "Registry values"),
    ("firewall", "Firewall rules"),
    ("service", "Services"),
    ("running", "Services that are started"),
    ("hns-network", "HNS networks"),
];

/// A config for each column of the page, with what makes the sandbox fit it.
const PLANS: [(&str, &str); 5] = [
    ("VXLAN", ""),
    (
        "`windows-bgp`",
        " --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,PoolEncapsulation,RoutingFeature",
    ),
    ("AKS", " --set kubernetesProvider=AKS"),
    ("`kubernetes.node.install`", " -c node.yaml"),
    ("`kubernetes.node.containerd`", " -c node.yaml --set kubernetes.node.containerd.archive=containerd.tar.gz"),
];

/// Every item of the plans, by kind and target, with the names of the plans that have it.
fn items() -> BTreeMap<(String, String), BTreeSet<&'static str>> {
    let mut found: BTreeMap<(String, String), BTreeSet<&'static str>> = BTreeMap::new();
    for (name, options) in PLANS {
        let lab = match name {
            "`kubernetes.node.install`" => bare(),
            "`kubernetes.node.containerd`" => without_runtime(),
            _ => Lab::node(),
        };
        let plan = lab.run(&format!("plan -o json{options}")).exits(0).json();
        for change in plan["changes"].as_array().unwrap() {
            let part = |field: &str| change[field].as_str().unwrap().to_owned();
            found.entry((part("kind"), part("target"))).or_default().insert(name);
        }
    }
    found
}

fn touched() -> String {
    let items = items();
    let known: BTreeSet<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    let other: Vec<&String> =
        items.keys().map(|(kind, _)| kind).filter(|kind| !known.contains(kind.as_str())).collect();
    assert!(other.is_empty(), "kinds without a section: {other:?}");
    let mut text = String::new();
    for (kind, title) in KINDS {
        let of_kind: Vec<Vec<String>> = items
            .iter()
            .filter(|((of, _), _)| of == kind)
            .map(|((_, target), with)| vec![format!("`{target}`"), with_what(with)])
            .collect();
        assert!(!of_kind.is_empty(), "no item of the kind {kind}");
        let rows: Vec<Vec<String>> = std::iter::once(row(["item", "with"])).chain(of_kind).collect();
        let _ = write!(text, "\n## {title}\n\n{}", table(&rows));
    }
    text
}

/// kubelet, kube-proxy and containerd are installed with any backend; the plans with them are ones with VXLAN.
fn with_what(plans: &BTreeSet<&'static str>) -> String {
    let kubernetes = PLANS[3..].iter().map(|(name, _)| *name).find(|name| plans.contains(name)).unwrap_or_default();
    let backends: Vec<&str> = PLANS[..3].iter().map(|(name, _)| *name).filter(|name| plans.contains(name)).collect();
    match backends.len() {
        0 => kubernetes.to_owned(),
        3 => "every backend".to_owned(),
        _ => backends.join(", "),
    }
}

/// What is in the program's own folder.
const FOLDER: [(&str, &str); 12] = [
    ("agent", "what the services report: which component runs, since when, what it waits for"),
    ("cache", "downloaded archives, by their SHA-256"),
    ("config.yaml", "yours: a config that applies without `-c`"),
    ("felix.json", "what the service CalicoFelix runs"),
    ("journal.jsonl", "the steps of the run in progress or interrupted, with the originals"),
    ("kubernetes.json", "what the services kubelet and kube-proxy run, if this program installed them"),
    ("lock", "the run that changes this node now"),
    ("logs", "a log for each run; `calico` has those of the services"),
    ("receipts", "the generations: what this program owns, and what was there before"),
    ("services.json", "what the services run, and with which variables"),
    ("state", "the result of the last run, the last fifty runs, the cordon, the trial"),
    ("store", "the bytes of originals and of generations, by their SHA-256"),
];

#[test]
fn the_page_of_what_is_touched_matches_the_plans() {
    let page = read("docs/touched.md");
    let (before, rest) = page.split_once("<!-- items -->\n").unwrap();
    let (_, after) = rest.split_once("\n## While it runs\n").unwrap();
    let page = format!("{before}<!-- items -->\n{}\n## While it runs\n{after}", touched());
    let rows = FOLDER.iter().map(|(name, content)| row([&format!("`{name}`"), content]));
    let rows: Vec<Vec<String>> = std::iter::once(row(["name", "content"])).chain(rows).collect();
    matches_the_code("docs/touched.md", &with_table(&page, "folder", &table(&rows)));
}

#[test]
fn the_page_of_what_is_touched_names_all_of_the_programs_folder() {
    let lab = Lab::installed();
    let _changed = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    let entries = std::fs::read_dir(lab.on_node("C/ProgramData/calicoctl-win")).unwrap();
    let there: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // A sandbox keeps `node.save` there, for its own time.
    let unknown: Vec<&String> =
        there.iter().filter(|name| !FOLDER.iter().any(|(known, _)| known == name) && *name != "node.save").collect();
    assert!(there.len() > 5 && unknown.is_empty(), "{unknown:?}");
}
