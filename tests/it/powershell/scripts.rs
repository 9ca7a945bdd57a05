//! The scripts with the names and parameters of Calico's own, v3.20 to v3.33.

use std::collections::{BTreeMap, BTreeSet};

use calicoctl_win::config;
use regex::Regex;

use super::{below, errors, parse, text, unknown};
use crate::lab::Lab;
use crate::read;

const FOLDER: &str = "packaging/powershell/scripts";

/// The parameters of the originals.
pub const ORIGINALS: [(&str, &[&str]); 5] = [
    (
        "install-calico-windows.ps1",
        &[
            "ReleaseBaseURL",
            "ReleaseFile",
            "KubeVersion",
            "DownloadOnly",
            "StartCalico",
            "AutoCreateServiceAccountTokenSecret",
            "Datastore",
            "EtcdEndpoints",
            "EtcdTlsSecretName",
            "EtcdKey",
            "EtcdCert",
            "EtcdCaCert",
            "ServiceCidr",
            "DNSServerIPs",
            "CalicoBackend",
        ],
    ),
    ("install-calico.ps1", &[]),
    ("uninstall-calico.ps1", &["ExceptUpgradeService", "CleanupForHostProcessInstall"]),
    ("start-calico.ps1", &[]),
    ("stop-calico.ps1", &["ExceptUpgradeService"]),
];

/// What somebody gives for the parameters that become settings, and what the config has then.
const GIVEN: [(&str, &str, &str); 11] = [
    ("KubeVersion", "v1.33.4", "\"v1.33.4\""),
    ("AutoCreateServiceAccountTokenSecret", "true", "true"),
    ("Datastore", "etcdv3", "\"etcdv3\""),
    (
        "EtcdEndpoints",
        "https://10.0.0.1:2379,https://10.0.0.2:2379",
        r#"["https://10.0.0.1:2379","https://10.0.0.2:2379"]"#,
    ),
    ("EtcdTlsSecretName", "calico-etcd-secrets", "\"calico-etcd-secrets\""),
    ("EtcdKey", r"C:\k\key.pem", r#""C:\\k\\key.pem""#),
    ("EtcdCert", r"C:\k\cert.pem", r#""C:\\k\\cert.pem""#),
    ("EtcdCaCert", r"C:\k\ca.pem", r#""C:\\k\\ca.pem""#),
    ("ServiceCidr", "10.100.0.0/16", r#"["10.100.0.0/16"]"#),
    ("DNSServerIPs", "10.100.0.10,10.100.0.11", r#"["10.100.0.10","10.100.0.11"]"#),
    ("CalicoBackend", "windows-bgp", "\"windows-bgp\""),
];

fn script(name: &str) -> String {
    read(&format!("{FOLDER}/{name}"))
}

#[test]
fn the_scripts_are_valid_and_use_only_what_windows_has() {
    for (name, _) in ORIGINALS {
        let script = script(name);
        assert_eq!(errors(&script), None, "{name}");
        assert_eq!(unknown(&script, &BTreeMap::new()), [""; 0], "{name}");
        assert!(script.is_ascii(), "{name}");
    }
}

/// Chocolatey's own functions are not recorded; `packaging/release.sh` fills the script in.
#[test]
fn the_install_script_for_chocolatey_is_valid() {
    assert_eq!(errors(&read("packaging/chocolatey/tools/chocolateyinstall.ps1")), None);
}

#[test]
fn the_scripts_have_the_parameters_of_calicos_own_in_their_order_and_use_each() {
    for (name, wanted) in ORIGINALS {
        let script = script(name);
        let tree = parse(&script);
        let declared: Vec<&str> = below(tree.root_node(), "script_parameter")
            .into_iter()
            .filter_map(|parameter| below(parameter, "variable").first().map(|name| &text(*name, &script)[1..]))
            .collect();
        assert_eq!(declared, wanted, "{name}");
        let after = script.split_once("\n)\n").map_or("", |(_, after)| after);
        let used = |parameter: &&&str| after.contains(&format!("${parameter}")) || after.contains("$PSBoundParameters");
        let unused: Vec<&&str> = wanted.iter().filter(|parameter| !used(parameter)).collect();
        assert!(unused.is_empty(), "{name}: {unused:?}");
    }
}

/// Every line of options that a script can run is one that this program accepts.
#[test]
fn the_scripts_run_commands_and_options_that_exist() {
    let list = Regex::new(r"@\(('[a-z]+'(?:[^()]|\([^()]*\))*)\)").unwrap();
    let word = Regex::new(r#"['"]([^'"]+)['"]"#).unwrap();
    let tree = calicoctl_win::cli::tree();
    let mut seen = 0;
    for (name, _) in ORIGINALS {
        let script = script(name);
        for list in list.captures_iter(&script) {
            let words: Vec<&str> = word.captures_iter(&list[1]).map(|word| word.get(1).unwrap().as_str()).collect();
            let words = words.into_iter().filter(|word| *word != "config.ps1");
            let line: Vec<&str> = std::iter::once("calicoctl-win").chain(words).collect();
            let import = line.get(2) == Some(&"import");
            let line = line.into_iter().chain(["config.ps1"].into_iter().filter(|_| import));
            let parsed = tree.clone().try_get_matches_from(line.clone());
            assert!(parsed.is_ok(), "{name}: {:?}: {parsed:?}", line.collect::<Vec<_>>());
            seen += 1;
        }
    }
    assert_eq!(seen, 8);
}

/// Who is used to the originals sees which commands replace them.
#[test]
fn each_script_shows_every_command_before_it_runs_it() {
    let mut seen = 0;
    for (name, _) in ORIGINALS {
        let script = script(name);
        let mut before = "";
        for line in script.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("& $program ") {
                assert_eq!(before, format!("Write-Output -InputObject \"calicoctl-win {words}\""), "{name}");
                seen += 1;
            }
            before = line;
        }
        assert_eq!(script.matches("& $program").count(), script.matches("\"calicoctl-win $").count(), "{name}");
    }
    assert_eq!(seen, 6);
}

/// The parameters that decide which command runs.
#[test]
fn an_install_that_only_downloads_or_starts_nothing_does_that() {
    let script = script("install-calico-windows.ps1");
    let decides = Regex::new(r"(?m)^if \(\$(\w+) -(eq|ne) 'yes'\) \{ \$options = @\((.+)\) \}$").unwrap();
    let rows: Vec<(String, String)> = decides
        .captures_iter(&script)
        .map(|row| (format!("{} {}", &row[1], &row[2]), row[3].replace(['\'', ','], "")))
        .collect();
    // The last one that holds counts.
    let [(starts, left_stopped), (downloads, only_downloaded)] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!([starts.as_str(), downloads], ["StartCalico ne", "DownloadOnly eq"]);

    let lab = Lab::node();
    let before = lab.picture_without_state();
    let _done = lab.run(only_downloaded).exits(0);
    lab.picture_without_state().same_as(&before);
    assert!(lab.path("node/cache").exists(), "the release is there");
    let _done = lab.run(left_stopped).exits(0);
    let status = lab.run("status -o json").json();
    let states = status["services"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap());
    assert_eq!(states.collect::<Vec<_>>(), ["Stopped", "Stopped"], "{status:#}");
}

/// The settings of the install script's parameters, by parameter.
fn settings(script: &str) -> BTreeMap<String, String> {
    let row = Regex::new(r"(?m)^    '([\w.]+)' = \$(\w+)$").unwrap();
    row.captures_iter(script).map(|row| (row[2].to_owned(), row[1].to_owned())).collect()
}

/// Returns which of the options that a script adds to its command do not exist, and how many it adds.
fn added(script: &str) -> (usize, Vec<String>) {
    let option = Regex::new(r#"\$options \+= (?:"([^"]*)"|'([^']*)')"#).unwrap();
    let verb = Regex::new(r"\$options = @\('([a-z]+)'").unwrap();
    let (expression, variable) = (Regex::new(r"\$\((?:[^()]|\([^()]*\))*\)").unwrap(), Regex::new(r"\$\w+").unwrap());
    let tree = calicoctl_win::cli::tree();
    let (mut seen, mut wrong) = (0, Vec::new());
    for option in option.captures_iter(script) {
        seen += 1;
        let option = expression.replace_all(option.get(1).or(option.get(2)).unwrap().as_str(), "a");
        let each: Vec<String> = match option.contains("$path") {
            true => settings(script).values().map(|path| option.replace("$path", path)).collect(),
            false => vec![variable.replace_all(&option, "b.zip").into_owned()],
        };
        for (option, verb) in each.iter().flat_map(|option| verb.captures_iter(script).map(move |verb| (option, verb)))
        {
            let is_known = tree.clone().try_get_matches_from(["calicoctl-win", &verb[1], option]).is_ok();
            let set = option.strip_prefix("--set=").map(|set| format!("spec.{}", set.split('=').next().unwrap()));
            if !is_known || set.is_some_and(|set| !config::fields().any(|field| field.path == set)) {
                wrong.push(format!("{} {option}", &verb[1]));
            }
        }
    }
    (seen, wrong)
}

#[test]
fn the_options_that_a_script_adds_exist() {
    let added_by = ORIGINALS.map(|(name, _)| added(&script(name)));
    assert_eq!(added_by.iter().map(|(seen, _)| seen).sum::<usize>(), 6, "{added_by:?}");
    assert!(added_by.iter().all(|(_, wrong)| wrong.is_empty()), "{added_by:?}");
    // A typo in any of them is seen.
    let script = script("install-calico-windows.ps1");
    for (option, typo) in [
        ("--release=$($ReleaseBaseURL", "--relese=$($ReleaseBaseURL"),
        ("--release=$($Matches", "--relese=$($Matches"),
        ("--release=$ReleaseFile", "--relese=$ReleaseFile"),
        ("urlTemplate=", "urlTemplat="),
        ("node.install=", "node.instal="),
        ("--set=$path=", "--sets=$path="),
        ("'datastore.etcd.keyFile' =", "'datastore.etcd.key' ="),
    ] {
        assert!(script.contains(option), "{option}");
        assert_ne!(added(&script.replace(option, typo)).1, [""; 0], "{typo}");
    }
}

#[test]
fn each_parameter_of_the_install_script_becomes_its_setting() {
    let script = script("install-calico-windows.ps1");
    let settings = settings(&script);
    let named: BTreeSet<&str> = settings.keys().map(String::as_str).collect();
    assert_eq!(named, GIVEN.iter().map(|(name, ..)| *name).collect());
    let lab = Lab::node();
    for (name, value, wanted) in GIVEN {
        let path = &settings[name];
        let set = |path: &str, value: &str| format!(" --set={path}={value}");
        // What makes sense only together.
        let etcd = ["Datastore", "EtcdEndpoints", "EtcdTlsSecretName"];
        let files = ["Datastore", "EtcdEndpoints", "EtcdKey", "EtcdCert", "EtcdCaCert"];
        let group = [etcd.as_slice(), &files].into_iter().find(|group| group.contains(&name)).unwrap_or_default();
        let others = GIVEN.iter().filter(|(other, ..)| *other != name && group.contains(other));
        let mut with: String = others.map(|(other, value, _)| set(&settings[*other], value)).collect();
        if name != "CalicoBackend" {
            with += " --set=calicoNetwork.backend=vxlan --set=calicoNetwork.vxlan.vxlanVNI=4096";
        }
        let shown = lab.run(&format!("config show -o json{with}{}", set(path, value))).exits(0).json();
        let field = shown["fields"].as_array().unwrap().iter().find(|field| field["path"] == format!("spec.{path}"));
        assert_eq!(field.map(|field| field["value"].to_string()).as_deref(), Some(wanted), "{name}: {shown:#}");
    }
}
