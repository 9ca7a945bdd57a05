//! Other programs in the documents, with the flags that the documents name. A flag of one program is wrong in a command
//! of another one.

use std::collections::BTreeSet;

use regex::Regex;

use super::commands::of_shell;
use crate::docs::documents;
use crate::layering::product;
use crate::read;

/// Programs that the pages run.
const RUN: [(&str, &[&str]); 28] = [
    ("ansible-playbook", &["--check", "-i"]),
    ("aws", &["--instance-id", "--no-source-dest-check"]),
    (
        "calicoctl",
        &["--show-blocks", "--show-configuration", "--skip-not-exists", "--strictaffinity", "-A", "-o", "-p"],
    ),
    ("cargo", &["--bench", "--check", "--lib", "--nocapture", "--target", "--test", "-D"]),
    ("cd", &[]),
    ("choco", &["--source"]),
    ("cp", &[]),
    ("done", &[]),
    ("dsc", &["--file", "--what-if", "-l"]),
    ("echo", &[]),
    ("export", &[]),
    ("for", &[]),
    ("icacls", &[]),
    ("ip", &["-d"]),
    ("kubeadm", &["--print-join-command"]),
    (
        "kubectl",
        &[
            "--all",
            "--client",
            "--clusterrole",
            "--context",
            "--dry-run",
            "--field-selector",
            "--for",
            "--ignore-daemonsets",
            "--kubeconfig",
            "--overwrite",
            "--raw",
            "--resource",
            "--serviceaccount",
            "--show-managed-fields",
            "--timeout",
            "--type",
            "--user",
            "--verb",
            "-A",
            "-L",
            "-c",
            "-f",
            "-l",
            "-n",
            "-o",
            "-p",
        ],
    ),
    ("msiexec", &[]),
    ("oc", &[]),
    ("openssl", &["-connect", "-ext", "-noout"]),
    ("python", &["-c"]),
    ("sc.exe", &[]),
    ("scoop", &[]),
    ("scp", &[]),
    ("sed", &[]),
    ("skopeo", &[]),
    ("terraform", &["-raw", "-replace", "-var"]),
    ("winget", &["--enable", "--manifest"]),
    (r"C:\Windows\System32\Sysprep\Sysprep.exe", &[]),
];

/// Programs that texts only name.
const NAMED: [(&str, &[&str]); 11] = [
    ("calico-node.exe", &["-felix-live"]),
    ("calico.exe", &["--complete-startup"]),
    ("certutil", &["-encode"]),
    ("etcd", &["--cipher-suites", "--listen-client-urls", "--trusted-ca-file"]),
    ("etcdctl", &["--prefix"]),
    ("kube-apiserver", &["--tls-min-version"]),
    ("kube-proxy", &["--cluster-name", "--enable-dsr", "--feature-gates", "--network-name", "--source-vip"]),
    (
        "kubelet",
        &[
            "--bootstrap-kubeconfig",
            "--cert-dir",
            "--cloud-provider",
            "--hostname-override",
            "--max-pods",
            "--node-ip",
            "--root-dir",
            "--run-service",
        ],
    ),
    // A command of agnhost.
    ("netexec", &["--http-port", "--udp-port"]),
    ("python3", &["-m"]),
    ("route", &["-p"]),
];

fn all() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    RUN.into_iter().chain(NAMED)
}

pub fn is_run(name: &str) -> bool {
    RUN.iter().any(|(known, _)| *known == name)
}

/// Whether any of them has this flag.
pub fn some_has(flag: &str) -> bool {
    all().any(|(_, flags)| flags.contains(&flag))
}

/// The flags of a command that its program does not have. `words`: the command, with the program's name.
pub fn unknown_flags(words: &[String]) -> Vec<String> {
    let Some((name, flags)) = words.first().and_then(|name| all().find(|(known, _)| known == name)) else {
        return Vec::new();
    };
    let given = words[1..].iter().map(|word| word.split('=').next().unwrap_or_default());
    let is_flag = |word: &str| word.starts_with('-') && word.trim_start_matches('-').starts_with(char::is_alphabetic);
    let unknown = given.filter(|word| is_flag(word) && !flags.contains(word));
    unknown.map(|flag| format!("{name} has no {flag}: {}", words.join(" "))).collect()
}

/// The same for every command in backticks in a text, outside its blocks.
fn unknown_in_text(text: &str) -> Vec<String> {
    let block = Regex::new(r"(?ms)^ *```.*?^ *```").unwrap();
    let code = Regex::new("`([^`\n]+)`").unwrap();
    let prose = block.replace_all(text, "");
    let commands: Vec<Vec<String>> = code.captures_iter(&prose).flat_map(|found| of_shell(&found[1])).collect();
    commands.iter().flat_map(|words| unknown_flags(words)).collect()
}

#[test]
fn commands_in_texts_have_only_flags_of_their_program() {
    let mut wrong = Vec::new();
    for name in documents() {
        wrong.extend(unknown_in_text(&read(&name)).into_iter().map(|what| format!("{name}: {what}")));
    }
    for (name, text) in product() {
        wrong.extend(unknown_in_text(&text).into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (text, wanted) in [
        ("Run `terraform plan --type=merge`.", "terraform has no --type"),
        ("Run `kubectl get nodes -o wide | kubeadm join -f x`.", "kubeadm has no -f"),
        ("`for n in $(kubectl get nodes --prefix); do echo; done`", "kubectl has no --prefix"),
    ] {
        let found = unknown_in_text(text);
        assert!(found.len() == 1 && found[0].contains(wanted), "{text}\n{found:?}");
    }
}

/// A flag that no text names any more is removed from the list.
#[test]
fn every_flag_in_the_list_is_in_a_text() {
    let mut texts: Vec<String> = documents().iter().map(|name| read(name)).collect();
    texts.extend(product().into_iter().map(|(_, text)| text));
    let word = Regex::new(r"(?:^|[^\w-])(-{1,2}[A-Za-z][\w-]*)").unwrap();
    let named: BTreeSet<String> =
        texts.iter().flat_map(|text| word.captures_iter(text)).map(|found| found[1].to_owned()).collect();
    let unused = all().flat_map(|(name, flags)| flags.iter().map(move |flag| (name, *flag)));
    let wrong: Vec<_> = unused.filter(|(_, flag)| !named.contains(*flag)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
