//! Blocks that are run. Each page has a sandbox node of its own, and its blocks run there in order:
//!
//! - ```` ```powershell sandbox ````, also `sh` and `console`: the commands are run, and each must exit with 0, or with
//!   the number of `exit=N`. The sandbox has a cluster, so `--kubeconfig FILE` is left out; so is `--sandbox DIR`. `HEX` is
//!   the SHA-256 of the zip in the same command, if it is there, and else any. A file `C:\...` that a command writes with
//!   `--out`, or imports, is on the node's disk. The name of a run is the last one that a command printed.
//! - With the mark `agreed`, the reader agrees to what a command asks.
//! - ```` ```yaml file=node.yaml ````: this file is written before the next commands.
//! - ```` ```text output ````: each line must be in what the commands of the block before have printed; `...` is any
//!   text.
//! - Comments that readers do not see prepare the node:
//!
//! | comment | effect |
//! |---|---|
//! | `<!-- sandbox run: WORDS -->` | runs a command |
//! | `<!-- sandbox fails at FAULT: WORDS -->` | runs it with a fault, with which it must fail |
//! | `<!-- sandbox node.yaml: OLD => NEW -->` | edits the node; `\n` is a line break |
//! | `<!-- sandbox file PATH: TEXT -->` | writes a file of the node; `../NAME` is one beside it |
//! | `<!-- sandbox object RESOURCE NAME: JSON -->` | merges this into an object of the cluster |
//! | `<!-- sandbox linux: VERSION -->` | updates Calico on the Linux nodes |
//! | `<!-- sandbox etcd: FOLDER -->` | Calico's data is in an etcd, whose client's files are in this folder of the node. Each command that has `-c` gets its endpoint |
//! | `<!-- sandbox scripts: vxlan -->` | begins with a node on which Calico's scripts installed it |
//! | `<!-- sandbox flannel: vxlan -->` | installs Flannel, as SIG Windows' scripts do |
//! | `<!-- sandbox bare machine: VERSION -->` | begins with a machine that has only containerd; kubelet and kube-proxy of this version are in a folder of that name |
//! | `<!-- sandbox with: OPTIONS -->` | adds options to each command that has `-c` |

use calicoctl_win::values::Sha256;
use regex::Regex;
use serde_json::Value;

use super::{Block, blocks, commands};
use crate::docs::documents as pages;
use crate::etcd::Etcd;
use crate::lab::{Lab, Output};
use crate::read;
use crate::stories::credentials::runs_with_etcd;
use crate::stories::import::upstreams;
use crate::stories::kubernetes::{bare, programs};
use crate::stories::migrate::with_flannel;

/// Runs the blocks of a page. Returns how many were run.
///
/// # Errors
/// What is not as the page says.
fn run(blocks: &[Block]) -> Result<usize, String> {
    let mut page = Page { lab: Lab::node(), with: String::new(), shown: String::new(), run: None, elsewhere: false };
    for block in blocks {
        page.block(block).map_err(|what| format!("{}: {what}", block.place))?;
    }
    Ok(blocks.iter().filter(|block| block.is("sandbox") && block.language != "hidden").count())
}

struct Page {
    lab: Lab,
    /// Options that each command with a config gets.
    with: String,
    /// What the commands of the last block have printed.
    shown: String,
    /// The run that a command has named last.
    run: Option<String>,
    /// Whether the last block runs on a real cluster.
    elsewhere: bool,
}

impl Page {
    fn block(&mut self, block: &Block) -> Result<(), String> {
        if let Some(name) = block.mark("file") {
            self.lab.write(name, &block.text);
        } else if block.language == "hidden" {
            self.hidden(&block.text)?;
        } else if block.is("sandbox") {
            self.elsewhere = false;
            let code = block.mark("exit").map_or(Ok(0), str::parse).map_err(|_| "exit= needs a number")?;
            let agrees = if block.is("agreed") { " --yes" } else { "" };
            self.shown.clear();
            for words in calls(block)? {
                let with = if words.contains(" -c ") { self.with.as_str() } else { "" };
                let words = self.with_run(&self.with_digest(&words));
                let output = self.alone(&(words + with + agrees));
                if output.code != code {
                    return Err(format!("a command exits with {} and not {code}:\n{output}", output.code));
                }
                self.shown += &output.screen();
            }
        } else if block.is("cluster") {
            self.elsewhere = true;
        } else if block.is("output") && !self.elsewhere {
            let missing = block.text.lines().find(|line| !printed(&self.shown, line));
            missing.map_or(Ok(()), |line| Err(format!("nothing printed `{line}`:\n{}", self.shown)))?;
        }
        Ok(())
    }

    /// Runs a command. Files on `C:` are on the node's disk.
    fn alone(&mut self, words: &str) -> Output {
        let mut given = commands::words(words);
        let is_file = |given: &[String], at: usize| ["--out", "import"].contains(&given[at - 1].as_str());
        for at in 1..given.len() {
            if let Some(path) = given[at].strip_prefix(r"C:\").filter(|_| is_file(&given, at)) {
                given[at] = format!("node/C/{}", path.replace('\\', "/"));
                std::fs::create_dir_all(self.lab.path(&given[at]).parent().expect("a file is in a folder")).unwrap();
            }
        }
        let mut command = self.lab.command("");
        command.args(given).args(["--sandbox", "node"]);
        let output = Output::of(words, command);
        self.run = run_in(&output.stdout).or(self.run.take());
        output
    }

    /// The words with the last run that was named, instead of another one.
    fn with_run(&self, words: &str) -> String {
        match (run_in(words), &self.run) {
            (Some(named), Some(last)) => words.replace(&named, last),
            _ => words.to_owned(),
        }
    }

    /// The words with the digest of the zip that they name.
    fn with_digest(&self, words: &str) -> String {
        let zip =
            words.split(' ').find(|word| word.ends_with(".zip")).and_then(|zip| std::fs::read(self.lab.path(zip)).ok());
        words.replace("HEX", zip.map_or_else(Sha256::unknown, |zip| Sha256::of(&zip)).as_str())
    }

    /// What a page does before its next block, without showing it.
    fn hidden(&mut self, what: &str) -> Result<(), String> {
        let (kind, rest) = what.split_once(": ").ok_or("it has no `: `")?;
        let (kind, of) = kind.split_once(' ').unwrap_or((kind, ""));
        match kind {
            "run" | "fails" => {
                let rest = &self.with_run(rest);
                let output = self.lab.fails_at(of.trim_start_matches("at "), rest);
                if (output.code == 0) != (kind == "run") {
                    return Err(format!("`{rest}` exits with {}:\n{output}", output.code));
                }
            }
            "with" => self.with = format!(" {rest}"),
            "etcd" => {
                runs_with_etcd(&self.lab);
                let etcd = Etcd::start();
                for (file, text) in [("client.key", &etcd.key), ("client.crt", &etcd.cert), ("ca.crt", &etcd.ca)] {
                    self.lab.write(&format!("node/{rest}/{file}"), text);
                }
                self.with = format!(" --set datastore.etcd.endpoints=[{}]", etcd.url);
            }
            "scripts" => self.lab = upstreams(5000),
            "file" => {
                self.lab.write(&format!("node/{of}"), rest);
            }
            "linux" => self.lab.linux_runs(rest),
            "object" => {
                let (resource, name) = of.split_once(' ').ok_or("an object has a resource and a name")?;
                let change = serde_json::from_str(rest).map_err(|error| error.to_string())?;
                self.lab.edit_object(resource, name, |object| merge(object, &change));
            }
            "flannel" => with_flannel(&self.lab),
            "bare" => {
                self.lab = bare();
                programs(&self.lab, rest);
            }
            "node.yaml" => {
                let (old, new) = rest.split_once(" => ").ok_or("it has no ` => `")?;
                let (old, new) = (old.replace("\\n", "\n"), new.replace("\\n", "\n"));
                if !self.lab.read("node.yaml").contains(&old) {
                    return Err(format!("node.yaml has no `{old}`:\n{}", self.lab.read("node.yaml")));
                }
                self.lab.edit_yaml(|yaml| yaml.replacen(&old, &new, 1));
            }
            other => return Err(format!("there is no `{other}`")),
        }
        Ok(())
    }
}

/// Merges a change into an object, as a merge patch does.
fn merge(object: &mut Value, change: &Value) {
    match change.as_object() {
        Some(fields) if object.is_object() => fields.iter().for_each(|(name, value)| merge(&mut object[name], value)),
        _ => *object = change.clone(),
    }
}

/// The commands of a block, without the program's name and what the sandbox has itself.
fn calls(block: &Block) -> Result<Vec<String>, String> {
    let text =
        if block.language == "console" { block.prompted("> ") + &block.prompted("$ ") } else { block.text.clone() };
    let own = Regex::new(r" --(?:kubeconfig|sandbox)[ =]\S+").unwrap();
    let calls = commands::own_calls(&block.language, &text)?;
    Ok(calls.iter().map(|words| own.replace_all(words, "").into_owned()).collect())
}

/// The name of a run in a text.
fn run_in(text: &str) -> Option<String> {
    let run = Regex::new(r"\b\d{8}T\d{6}-[0-9a-f]{6}\b").unwrap();
    run.find(text).map(|found| found.as_str().to_owned())
}

/// Whether a line was printed; spaces do not count.
pub fn printed(shown: &str, line: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = plain(line);
    shown.lines().map(plain).any(|shown| {
        let mut rest = shown.as_str();
        line.split("...").map(str::trim).all(|part| rest.split_once(part).map(|(_, after)| rest = after).is_some())
    })
}

#[test]
fn blocks_for_the_sandbox_run_as_their_pages_say() {
    let pages: Vec<(String, Vec<Block>)> =
        pages().into_iter().map(|page| (page.clone(), blocks(&page, &read(&page)))).collect();
    let with_blocks = pages.iter().filter(|(_, blocks)| blocks.iter().any(|block| block.is("sandbox")));
    let results: Vec<Result<usize, String>> = std::thread::scope(|scope| {
        let running: Vec<_> = with_blocks.map(|(_, blocks)| scope.spawn(|| run(blocks))).collect();
        running.into_iter().map(|page| page.join().unwrap()).collect()
    });
    let wrong: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let ran: usize = results.iter().flatten().sum();
    assert!(ran > 40, "{ran} blocks run");
}

#[test]
fn pages_that_say_something_else_than_the_sandbox_are_detected() {
    let page = |text: &str| run(&blocks("page.md", text));
    let install = "```powershell sandbox\ncalicoctl-win install --kubeconfig C:\\k\\config --yes\n```\n";
    assert_eq!(page(&format!("{install}```text output\nresult: OK (exit 0) ... reboot=false ...\n```")), Ok(1));
    for (text, wanted) in [
        ("```powershell sandbox\ncalicoctl-win status\n```", "exits with 16 and not 0"),
        ("```powershell sandbox exit=12\ncalicoctl-win status\n```", "exits with 16 and not 12"),
        ("```powershell sandbox\nkubectl get nodes\n```", "only commands of calicoctl-win"),
        ("<!-- sandbox run: status -->\n```sh sandbox\ncalicoctl-win version\n```", "`status` exits with 16"),
        ("<!-- sandbox fails at put nothing=fail: install -y -->", "`install -y` exits with 0"),
        ("<!-- sandbox node.yaml: bootId: none => bootId: other -->", "node.yaml has no"),
        ("<!-- sandbox rnu: status -->", "there is no `rnu`"),
        ("<!-- sandbox object nodes: {} -->", "a resource and a name"),
        (&format!("{install}```text output\nresult: FAILED ...\n```"), "nothing printed `result: FAILED ...`"),
    ] {
        let found = page(text).unwrap_err();
        assert!(found.contains(wanted), "{text}\n{found}");
    }
}
