//! The code blocks of the documents. A block's language decides how it is checked, and a block that no rule covers
//! fails: a command must be one that the program, PowerShell or the module has, and a config one that the program
//! accepts. Blocks marked `sandbox` are run: see [`sandbox`]. `real::fleet_page` runs those marked `cluster`. What is not
//! run is in [`not_run`].

pub mod commands;
mod documents;
mod not_run;
mod patches;
pub mod programs;
pub mod sandbox;

use crate::docs::documents as pages;
use crate::read;

/// A fenced block, or a comment that is run in the sandbox before the blocks after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it begins, for messages: `docs/changing.md:7`.
    pub place: String,
    /// The first word after the fence; `hidden` for a comment.
    pub language: String,
    /// The other words there, for example `sandbox` and `exit=12`.
    marks: Vec<String>,
    pub text: String,
}

impl Block {
    pub fn is(&self, mark: &str) -> bool {
        self.marks.iter().any(|given| given == mark)
    }

    /// The lines after a prompt, without it.
    pub fn prompted(&self, prompt: &str) -> String {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix(prompt));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The value of a mark `NAME=VALUE`.
    pub fn mark(&self, name: &str) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Every block of a page, in order.
pub fn blocks(page: &str, text: &str) -> Vec<Block> {
    let (mut found, mut open): (Vec<Block>, Option<(Block, String)>) = (Vec::new(), None);
    for (at, line) in text.lines().enumerate() {
        let (indent, fence) = (line.len() - line.trim_start().len(), line.trim_start().starts_with("```"));
        match open.take() {
            Some((block, _)) if fence => found.push(block),
            Some((mut block, before)) => {
                block.text += line.strip_prefix(before.as_str()).unwrap_or(line);
                block.text.push('\n');
                open = Some((block, before));
            }
            None => {
                let place = format!("{page}:{}", at + 1);
                let mut words = line.trim().trim_start_matches('`').split_whitespace().map(str::to_owned);
                if fence {
                    let language = words.next().unwrap_or_default();
                    let block = Block { place, language, marks: words.collect(), text: String::new() };
                    open = Some((block, " ".repeat(indent)));
                } else if let Some(hidden) = line.trim_start().strip_prefix("<!-- sandbox ") {
                    let text = hidden.trim_end_matches("-->").trim().to_owned();
                    found.push(Block { place, language: "hidden".into(), marks: vec!["sandbox".into()], text });
                }
            }
        }
    }
    if let Some((block, _)) = open {
        found.push(Block { language: "not closed".into(), ..block });
    }
    found
}

/// Every block of every page.
fn all() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks(page, &read(page))).collect()
}

/// Returns what is wrong with a block.
fn faults(block: &Block) -> Vec<String> {
    let mut wrong = match block.language.as_str() {
        "powershell" => commands::powershell(&block.text),
        "sh" => commands::shell(&block.text),
        "console" => {
            let (windows, unix) = (block.prompted("> "), block.prompted("$ "));
            let none = windows.is_empty() && unix.is_empty();
            let mut wrong = commands::powershell(&windows);
            wrong.extend(commands::shell(&unix));
            wrong.extend(none.then(|| "no line begins with `> ` or `$ `".to_owned()));
            wrong
        }
        "yaml" => documents::yaml(&block.text),
        "json" => documents::json(&block.text),
        "hcl" => documents::hcl(&block.text),
        // What a program prints, drawings, and advice that a page is generated with.
        "text" => commands::advice(&block.text),
        // `node::sandbox::stories::node_yaml` reads those of docs/sandbox.md.
        "faults" | "server-faults" if block.place.starts_with("docs/sandbox.md:") => Vec::new(),
        "hidden" => Vec::new(),
        "" => vec!["it has no language".into()],
        other => vec![format!("there is no rule for the language `{other}`")],
    };
    for mark in &block.marks {
        let known = ["sandbox", "agreed", "output", "cluster", "not-run"].contains(&mark.as_str())
            || ["exit=", "file=", "session="]
                .iter()
                .any(|name| mark.strip_prefix(name).is_some_and(|value| !value.is_empty()));
        wrong.extend((!known).then(|| format!("there is no mark `{mark}`")));
    }
    let of_another_page = block.is("cluster") && !block.place.starts_with("docs/fleet.md:");
    wrong.extend(of_another_page.then(|| "only those of docs/fleet.md run on a real cluster".to_owned()));
    wrong.into_iter().map(|what| format!("{}: {what}", block.place)).collect()
}

#[test]
fn every_block_in_the_documents_follows_its_rule() {
    let all = all();
    assert!(all.len() > 200, "{} blocks", all.len());
    let wrong: Vec<String> = all.iter().flat_map(faults).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_that_are_wrong_are_detected() {
    for (block, wanted) in [
        ("```\nanything\n```", "it has no language"),
        ("```perl\nprint 1\n```", "no rule for the language `perl`"),
        ("```powershell sandbx\ncalicoctl-win status\n```", "no mark `sandbx`"),
        ("```sh cluster\ncalicoctl-win fleet status\n```", "only those of docs/fleet.md"),
        ("```powershell\ncalicoctl-win status", "no rule for the language `not closed`"),
        ("```powershell\ncalicoctl-win instal\n```", "calicoctl-win instal"),
        ("```powershell\ncalicoctl-win status --wit\n```", "calicoctl-win status --wit"),
        ("```powershell\ncalicoctl-win install --set calicoNetwork.vni=1\n```", "calicoNetwork.vni"),
        ("```powershell\ncalicoctl-win reconfigure --unset transport.prox\n```", "transport.prox"),
        ("```powershell\nif ($true { calicoctl-win status }\n```", "not valid PowerShell"),
        ("```powershell\nGet-CalicoNod\n```", "has no Get-CalicoNod"),
        ("```powershell\nInstall-CalicoNode -Conf node.yaml\n```", "has no -conf"),
        ("```powershell\nStart-Service containerd -Fast\n```", "has no -fast"),
        ("```powershell\nkubctl get nodes\n```", "kubctl"),
        ("```console\n> calicoctl-win confrm\n```", "calicoctl-win confrm"),
        ("```console\ncalicoctl-win confirm\n```", "no line begins with"),
        ("```console\n$ cargo run -- stats\n```", "calicoctl-win stats"),
        ("```sh\nkubctl get nodes\n```", "kubctl"),
        ("```sh\nterraform apply --type=merge\n```", "terraform has no --type"),
        ("```sh\nfor n in $(terraform get -l x); do\n  kubectl get nodes\ndone\n```", "terraform has no -l"),
        ("```powershell\nwinget install --source x\n```", "winget has no --source"),
        ("```text\nkubectl patch x --prefix\n```", "kubectl has no --prefix"),
        ("```sh\npackaging/no-such.sh\n```", "packaging/no-such.sh"),
        ("```sh\ncalicoctl-win plan |\n  calicoctl-win verfy\n```", "calicoctl-win verfy"),
        ("```yaml\nspec: {calico: {verson: v3.32.1}}\n```", "verson"),
        ("```yaml\nspec: {calicoNetwork: {vxlan: {vxlanVNI: 1}}}\n```", "vxlanVNI"),
        ("```yaml\na: b: c\n```", "not YAML"),
        ("```yaml\nkind: Deployment\n```", "no rule for this document"),
        ("```yaml\n- {roles: [{role: calicoctl_win, vars: {calicoctl_win_uri: x}}]}\n```", "calicoctl_win_uri"),
        ("```json\n{\"a\": 1,}\n```", "not JSON"),
        ("```json\n{\"kind\": \"Status\", \"overal\": \"Healthy\"}\n```", "overal"),
        ("```hcl\nmodule \"calico\" {\n  program = \"x\"\n}\n```", "no variable `program`"),
        ("```hcl\nmodule \"calico\" {\n  spec = {\n    calico = { verson = \"v3.32.1\" }\n  }\n}\n```", "verson"),
        ("```text\ncalicoctl-win migrate from flanel  # shows it\n```", "migrate from flanel"),
        ("```faults\nput *=fail\n```", "no rule for the language `faults`"),
    ] {
        let blocks = blocks("page.md", block);
        let found: Vec<String> = blocks.iter().flat_map(faults).collect();
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{block}\n{found:?}");
    }
    for block in [
        "```powershell\n# comment\ncalicoctl-win release verify bundle.zip --sha256 HEX > out.txt  # its digest\n```",
        "```sh\nkubectl get nodes \\\n  -o wide # all\nLIMIT=1 calicoctl-win render dsc -c node.yaml > node.dsc.yaml\n```",
        "```console\n> calicoctl-win status\nHealthy\n```",
        "  ```yaml\n  spec: {calico: {version: v3.32.1}}\n  ```",
        "```text\nleave it out\ncalicoctl-win plan  # shows it\n```",
    ] {
        let blocks = blocks("page.md", block);
        assert_eq!((blocks.len(), blocks.iter().flat_map(faults).collect::<Vec<_>>()), (1, Vec::new()), "{block}");
    }
}
