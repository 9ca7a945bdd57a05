//! What this program writes, against what each minor version of Kubernetes knows: lists of its sources, which
//! `packaging/kubernetes/lists.sh` makes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::calico::testing;
use crate::settings::KNOWN_MINORS;
use crate::version::KubernetesVersion;
use crate::yaml;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Lists {
    version: KubernetesVersion,
    kubelet_flags: BTreeSet<String>,
    kube_proxy_flags: BTreeSet<String>,
    kubelet_fields: BTreeSet<String>,
    kube_proxy_fields: BTreeSet<String>,
    gates: BTreeMap<String, Gate>,
}

#[derive(Deserialize)]
struct Gate {
    default: bool,
    locked: bool,
}

fn lists() -> Vec<Lists> {
    let text = include_str!("../../../tests/fixtures/kubernetes/versions.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of(version: KubernetesVersion) -> (Settings, KubernetesNode) {
    let node = KubernetesNode {
        version,
        node_ip: "10.0.0.21".parse().unwrap(),
        cloud_provider: Some("external".into()),
        cluster_domain: "cluster.local".into(),
        containerd: None,
        kubelet_overrides: serde_json::json!({}),
        kube_proxy_overrides: serde_json::json!({}),
        programs: crate::settings::Programs::default(),
        join: crate::settings::Join::default(),
    };
    (testing::settings("v3.32.1"), node)
}

/// The paths in a document that a version does not know.
fn unknown(document: &Value, prefix: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in document.as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        if !known.contains(&path) && !["apiVersion", "kind"].contains(&path.as_str()) {
            found.push(path);
        } else if path != "featureGates" {
            found.extend(unknown(value, &format!("{path}."), known));
        }
    }
    found
}

fn document(bytes: Vec<u8>) -> Value {
    yaml::read(&String::from_utf8(bytes).unwrap()).unwrap()
}

/// The script reads the versions of the modules from that table.
#[test]
fn every_known_minor_version_has_its_lists_and_their_origin() {
    let minors: Vec<u64> = lists().iter().map(|one| one.version.minor).collect();
    assert_eq!(minors, KNOWN_MINORS.collect::<Vec<_>>());
    let sources = include_str!("../../../tests/fixtures/kubernetes/SOURCES.md");
    let rows: Vec<Vec<&str>> =
        sources.lines().filter(|line| line.starts_with("| 1.")).map(|row| row.split(" | ").collect()).collect();
    let row = |one: &Lists| format!("| 1.{} | {}", one.version.minor, one.version);
    let wanted: Vec<String> = lists().iter().map(row).collect();
    assert_eq!(rows.iter().map(|row| row[..2].join(" | ")).collect::<Vec<_>>(), wanted);
    for row in rows {
        let minor = row[0].trim_start_matches("| 1.");
        let others = row[2..].iter().all(|version| version.starts_with(&format!("v0.{minor}.")));
        assert!(others && row.len() == 5, "{row:?}");
    }
}

#[test]
fn flags_fields_and_gates_exist_in_every_minor_version() {
    for known in lists() {
        let (settings, node) = of(known.version);
        let config = config(&settings, &node, &ROLES);
        for (word, flags) in [("kubelet", &known.kubelet_flags), ("kube-proxy", &known.kube_proxy_flags)] {
            let arguments = config.programs[word].args.iter();
            let named = arguments.map(|argument| argument.trim_start_matches('-').split('=').next().unwrap());
            let missing: Vec<&str> = named.filter(|flag| !flags.contains(*flag)).collect();
            assert_eq!(missing, Vec::<&str>::new(), "{word} {}", known.version);
        }
        let kubelet = document(kubelet_config(&settings, &node, true).unwrap());
        assert_eq!(unknown(&kubelet, "", &known.kubelet_fields), Vec::<String>::new(), "kubelet {}", known.version);
        let kubeconfig = WinPath::known(r"C:\CalicoWindows\calico-kube-config");
        let proxy = document(kube_proxy_config(&settings, &node, &kubeconfig).unwrap());
        assert_eq!(unknown(&proxy, "", &known.kube_proxy_fields), Vec::<String>::new(), "kube-proxy {}", known.version);
        for (gate, value) in proxy["featureGates"].as_object().into_iter().flatten() {
            let state = known.gates.get(gate).unwrap_or_else(|| panic!("{gate} in {}", known.version));
            assert!(!state.locked && *value != state.default, "{gate} need not be named in {}", known.version);
        }
        // Without its gate, kube-proxy refuses Direct Server Return.
        let dsr = proxy["featureGates"]["WinDSR"] == true || known.gates["WinDSR"].default;
        assert!(proxy["winkernel"]["enableDSR"] == true && dsr, "{}", known.version);
        assert!(known.gates["WinOverlay"].default, "{}", known.version);
    }
}

#[test]
fn a_field_that_a_version_lacks_is_found() {
    let lists = lists();
    let (first, last) = (&lists[0].kubelet_fields, &lists[lists.len() - 1].kubelet_fields);
    let newer = last.difference(first).find(|path| !path.contains('.')).unwrap();
    let with = |path: &str| serde_json::json!({ "kind": "KubeletConfiguration", path: {} });
    assert_eq!(unknown(&with(newer), "", first), [newer.as_str()]);
    assert_eq!(unknown(&with(newer), "", last), Vec::<String>::new());
    let nested = serde_json::json!({ "authentication": { "x509": { "caFile": "" } } });
    assert_eq!(unknown(&nested, "", last), ["authentication.x509.caFile"]);
}
