//! What a text names exists: commands and their options in hints, ids in every text, and fields of the config.

use std::sync::LazyLock;

use calicoctl_win::config;
use calicoctl_win::preflight;
use calicoctl_win::report::explain::explain;
use regex::Regex;

use crate::blocks::commands::own;
use crate::docs::{commands_in, documents, helps, literals};
use crate::read;
use crate::stories::schemas::published;

/// What `explain` and `--ignore-preflight-errors` show as a placeholder.
const PLACEHOLDERS: [&str; 4] = ["FIELD", "ID", "NAME", "TYPE"];

/// The pages that `explain` shows.
const EXPLAINED: [&str; 4] = ["docs/checks.md", "docs/explain.md", "docs/selftest.md", "docs/verify.md"];

/// Words in code in those pages and in the help that look like ids, with what they are.
const NO_IDS: [(&str, &str); 19] = [
    ("Action", "a field of Felix' static rules"),
    ("Calico", "an HNS network"),
    ("CalicoIsUp", "a condition of the Node"),
    ("CalicoWindows", "the top folder of a release"),
    ("DOWNGRADE", "a mark in a plan"),
    ("Direction", "a field of Felix' static rules"),
    ("External", "an HNS network"),
    ("Id", "a field of Felix' static rules"),
    ("ImagePath", "a registry value of a service"),
    ("LocalAddresses", "a field of Felix' static rules"),
    ("LocalPorts", "a field of Felix' static rules"),
    ("Priority", "a field of Felix' static rules"),
    ("Protocol", "a field of Felix' static rules"),
    ("Provider", "a field of Felix' static rules"),
    ("RemoteAddresses", "a field of Felix' static rules"),
    ("RemotePorts", "a field of Felix' static rules"),
    ("RuleType", "a field of Felix' static rules"),
    ("Rules", "a field of Felix' static rules"),
    ("Type", "a field of Felix' static rules"),
];

/// Fields of Kubernetes' own objects and of Calico's resources, which sources name as well.
const OF_KUBERNETES: [&str; 8] =
    ["namespaceSelector", "nodeName", "podSelector", "selector", "signerName", "subject", "unschedulable", "vxlanVNI"];

/// Returns what is wrong with the commands of this program in a hint, with a value in place of each placeholder.
fn wrong_commands(hint: &str) -> Vec<String> {
    static VALUE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{[^{}]*\}|\b[A-Z]+\b").expect("it is one"));
    let whole = |words: &str| {
        let mut words: Vec<&str> = words.split_whitespace().collect();
        // `calicoctl-win explain ID says why`.
        if words[0] == "explain" && words.get(2).is_some_and(|word| !word.starts_with('-')) {
            words.truncate(2);
        }
        VALUE.replace_all(&words.join(" "), "1").into_owned()
    };
    commands_in(hint).flat_map(|words| own(&format!("calicoctl-win {}", whole(&words)))).collect()
}

/// Returns the ids in a text that do not exist: after `explain` those without a section, and after
/// `--ignore-preflight-errors` those of no check.
fn unknown_ids(text: &str) -> Vec<String> {
    static AFTER: LazyLock<[Regex; 2]> = LazyLock::new(|| {
        [r"(?:^|[^\w-])explain ([A-Z]\w+)", r"--ignore-preflight-errors[= ]`?([A-Z]\w*(?:,\w+)*)"]
            .map(|place| Regex::new(place).expect("it is one"))
    });
    let [explained, ignored] = &*AFTER;
    let explained = explained.captures_iter(text).map(|found| found.extract::<1>().1[0]);
    let unexplained = explained.filter(|id| explain(id).is_none());
    let ignored = ignored.captures_iter(text).flat_map(|found| found.extract::<1>().1[0].split(','));
    let no_check = ignored.filter(|id| !preflight::catalogue().any(|row| row.id == *id));
    let unknown = unexplained.chain(no_check).filter(|id| !PLACEHOLDERS.contains(id));
    unknown.map(|id| format!("there is no id {id}")).collect()
}

/// Returns the words in code that look like ids and are none.
fn no_ids(text: &str) -> Vec<String> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([A-Z][A-Za-z]+)`").expect("it is one"));
    let words = WORD.captures_iter(text).map(|found| found.extract::<1>().1[0]);
    let known = |word: &str| {
        explain(word).is_some()
            || NO_IDS.iter().any(|(name, _)| *name == word)
            || published().iter().any(|(kind, _)| *kind == word)
    };
    words.filter(|word| !known(word)).map(|word| format!("there is no id `{word}`")).collect()
}

/// Returns the fields of the config in a text that do not exist: those that begin with `spec.`, and the values of
/// `--set` and `--unset`.
fn unknown_fields(text: &str) -> Vec<String> {
    static PLACES: LazyLock<[Regex; 2]> = LazyLock::new(|| {
        [r"(?:^|[^\w.])spec\.([a-zA-Z]\w*(?:\.\w+)*)", r"--(?:un)?set[= ]`?(?:spec\.)?([a-z]\w*(?:\.\w+)+)"]
            .map(|place| Regex::new(place).expect("it is one"))
    });
    let named = PLACES.iter().flat_map(|place| place.captures_iter(text)).map(|found| found.extract::<1>().1[0]);
    named.filter(|path| !is_field(path)).map(|path| format!("there is no field spec.{path}")).collect()
}

/// Returns the fields that a text names without `spec.`, for example `calico.version`, and that do not exist.
fn unknown_short_fields(text: &str) -> Vec<String> {
    static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([a-z]\w*(?:\.\w+)+)`").expect("it is one"));
    let paths = PATH.captures_iter(text).map(|found| found.extract::<1>().1[0]);
    let of_config = paths.filter(|path| is_field(path.split('.').next().unwrap_or_default()));
    let unknown = of_config.filter(|path| !is_field(path) && !path.ends_with(".json"));
    unknown.map(|path| format!("there is no field `{path}`")).collect()
}

/// Whether the config has a field or section with this path below `spec`.
fn is_field(path: &str) -> bool {
    static FIELDS: LazyLock<Vec<String>> = LazyLock::new(|| config::fields().map(|field| field.path).collect());
    let path = format!("spec.{path}");
    let is_below = |path: &str, above: &str| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'));
    let is_of_a_map = |field: &str| field == "spec.services.extraEnv" && is_below(&path, field);
    FIELDS.iter().any(|field| *field == path || is_below(field, &path) || is_of_a_map(field))
}

#[test]
fn every_command_in_a_hint_is_one_that_the_program_accepts() {
    // Not the meanings of exit codes, which are sentences, the beginning of a command line that a user typed, nor rows of
    // the selftest, which name services and files.
    let is_hint =
        |path: &str| !["src/cli/usage.rs", "src/fault.rs"].contains(&path) && !path.starts_with("src/selftest/");
    let hints = literals().into_iter().filter(|(path, _)| is_hint(path));
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, hint) in hints {
        seen += commands_in(&hint).count();
        wrong.extend(wrong_commands(&hint).into_iter().map(|what| format!("{path}: {what}")));
    }
    assert!(seen > 100, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_id_and_field_that_a_text_names_exists() {
    let pages: Vec<(String, String)> = documents().into_iter().map(|page| (page.clone(), read(&page))).collect();
    let helps: Vec<(String, String)> =
        helps().into_iter().map(|(command, help)| (format!("{command} --help"), help)).collect();
    let literals = literals();
    let mut wrong = Vec::new();
    let mut find = |texts: &[(String, String)], faults: fn(&str) -> Vec<String>| {
        for (place, text) in texts {
            wrong.extend(faults(text).into_iter().map(|what| format!("{place}: {what}")));
        }
    };
    for texts in [&pages, &helps, &literals] {
        find(texts, unknown_ids);
        find(texts, unknown_short_fields);
    }
    find(&pages, unknown_fields);
    find(&helps, unknown_fields);
    find(&helps, no_ids);
    let explained: Vec<(String, String)> =
        pages.iter().filter(|(page, _)| EXPLAINED.contains(&page.as_str())).cloned().collect();
    find(&explained, no_ids);
    // The sandbox's cluster has whole objects of Kubernetes.
    let ours: Vec<(String, String)> =
        literals.into_iter().filter(|(path, _)| !path.starts_with("src/sandbox/")).collect();
    find(&ours, |text| {
        let is_ours = |fault: &String| !OF_KUBERNETES.iter().any(|field| fault.contains(&format!("spec.{field}")));
        unknown_fields(text).into_iter().filter(is_ours).collect()
    });
    assert!(explained.len() == EXPLAINED.len() && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_that_do_not_exist_are_detected() {
    type Finds = fn(&str) -> Vec<String>;
    for (finds, text, wanted) in [
        (wrong_commands as Finds, "run it again: calicoctl-win install --timeout 5m", "install --timeout"),
        (wrong_commands, "`calicoctl-win credentials rotat`", "credentials rotat"),
        (wrong_commands, "calicoctl-win rollback --to {generation} --drain", "rollback --to 1 --drain"),
        (wrong_commands, "calicoctl-win plan --set calicoNetwork.vni=1", "calicoNetwork.vni"),
        (wrong_commands, "first\ncalicoctl-win release bundle --ou FILE", "release bundle --ou 1"),
        (unknown_ids, "calicoctl-win explain StrictAffinityOff", "StrictAffinityOff"),
        (unknown_ids, "--ignore-preflight-errors StrictAffinity,StrictAffinityOff", "StrictAffinityOff"),
        (unknown_ids, "--ignore-preflight-errors=ClusterRefused", "ClusterRefused"),
        (no_ids, "ends with `StrictAffinityOff`", "StrictAffinityOff"),
        (no_ids, "ends with `OKAY`", "OKAY"),
        (unknown_fields, "set spec.calico.verson to", "spec.calico.verson"),
        (unknown_fields, "with `--set calicoNetwork.vni=1`", "spec.calicoNetwork.vni"),
        (unknown_fields, "--unset spec.transport.prox", "spec.transport.prox"),
        (unknown_short_fields, "the folder in `calico.rootdir`", "calico.rootdir"),
    ] {
        let found = finds(text);
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{text}: {found:?}");
    }
    for (finds, text) in [
        (wrong_commands as Finds, "`calicoctl-win explain HnsStuck says why`: calicoctl-win rollback --to N"),
        (unknown_ids, "calicoctl-win explain strictaffinity, explain ID, --ignore-preflight-errors ID,..."),
        (unknown_ids, "--ignore-preflight-errors `StrictAffinity,BlockSize` explains Calico"),
        (no_ids, "`StrictAffinity`, `OK` and a `Plan` on `External`"),
        (unknown_fields, "--set services.extraEnv.FELIX_X=1 and spec.calicoNetwork.vxlan, status.spec.x"),
        (unknown_short_fields, "`calico.version`, `kubernetes.json`, `node.yaml`"),
    ] {
        assert_eq!(finds(text), [""; 0], "{text}");
    }
}
