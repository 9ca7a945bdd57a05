//! The commands of docs/fleet.md for a change of the VNI, read from the page and run on a real cluster by a shell:
//!
//! - ```` ```sh cluster ````: the commands are run, and each must succeed.
//! - ```` ```text output ````: each line must be in what they print. Until it is, the last of them is run again, as the
//!   reader does.
//! - `session=begins` is run beside the next blocks, and has ended before a block with `session=ended`.
//! - ```` ```sh not-run ````: the page says that it is not run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use super::api_server::until;
use super::fleet::{Fleet, NODES, PODS};
use super::fleet_watch::FELIX;
use super::kwok::Runs;
use super::parts::part;
use serde_json::Value;

use crate::blocks::sandbox::printed;
use crate::blocks::{Block, blocks};
use crate::lab::Output;
use crate::read;

const PAGE: &str = "docs/fleet.md";

/// Makes programs of the page's names, which have access to the cluster.
fn with_programs(fleet: &Fleet) -> Option<()> {
    let folder = fleet.cluster.lab.path("bin");
    fs::create_dir_all(&folder).unwrap();
    let kubectl = part("kubectl")?;
    let own = env!("CARGO_BIN_EXE_calicoctl-win");
    for (name, program) in [("kubectl", kubectl.display().to_string()), ("calicoctl-win", own.to_owned())] {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\nexec {program} \"$@\" --kubeconfig admin\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(())
}

/// A shell that runs these commands, and ends at the first that fails.
fn shell(fleet: &Fleet, commands: &str) -> Command {
    let lab = &fleet.cluster.lab;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-euc", commands]).current_dir(lab.path("")).stdin(Stdio::null());
    shell.env_clear().env("PATH", format!("{}:/usr/bin:/bin", lab.path("bin").display()));
    shell.env("TMPDIR", lab.path("tmp"));
    shell
}

fn run(fleet: &Fleet, block: &Block, commands: &str) -> String {
    let output = Output::of(&block.place, shell(fleet, commands)).exits(0);
    output.screen()
}

const CHANGE: &str = "Change the VNI of a cluster";
const REMOVE: &str = "Remove Calico";

/// The blocks of the section, of which the first is a command.
fn section(title: &str) -> Vec<Block> {
    let page = read(PAGE);
    let section = page.split("\n## ").find(|section| section.starts_with(&format!("{title}\n"))).unwrap();
    blocks(PAGE, section)
}

/// A Job for each Windows node, whose pod uses nothing that is not there.
fn every_node_has_its_job(fleet: &Fleet) {
    const JOBS: &str = "/apis/batch/v1/namespaces/calicoctl-win/jobs";
    let pods = until("a pod of each Job", || {
        let all = fleet.cluster.server.get(PODS)["items"].as_array().unwrap().clone();
        let of_jobs = |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/name"] == "calicoctl-win-job";
        (all.len() == NODES && all.iter().all(of_jobs)).then_some(all)
    });
    assert_eq!(fleet.cluster.server.get(JOBS)["items"].as_array().unwrap().len(), NODES);
    let mut nodes: Vec<&str> = pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    let names: Vec<String> = (1..=NODES).map(|number| format!("node-{number:02}")).collect();
    assert_eq!(nodes, names);
    for pod in &pods {
        // Only the account's own token, of which the API server has admitted the account.
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        assert!(volumes.len() == 1 && volumes[0]["projected"].is_object(), "{volumes:#?}");
        let variables = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        assert!(variables.iter().all(|one| one["valueFrom"].is_null()), "{variables:#?}");
    }
}

#[test]
fn every_command_of_the_page_runs_or_says_that_it_does_not() {
    let all = section(CHANGE);
    let commands: Vec<&Block> = all.iter().filter(|block| block.language == "sh").collect();
    let marked = |mark: &str| commands.iter().filter(|block| block.is(mark)).count();
    assert_eq!((marked("cluster") + marked("not-run"), marked("not-run")), (commands.len(), 1), "{commands:#?}");
    let run = marked("cluster") + section(REMOVE).iter().filter(|block| block.is("cluster")).count();
    let on_page = blocks(PAGE, &read(PAGE)).iter().filter(|block| block.is("cluster")).count();
    assert_eq!(on_page, run, "only these two sections are run");
}

#[test]
fn the_vni_of_a_cluster_is_changed_and_changed_back_by_the_commands_of_the_page() {
    let Some(fleet) = Fleet::start(&Runs::default()) else { return };
    let Some(()) = with_programs(&fleet) else { return };
    let mut session = None;
    let (mut last, mut shown) = (None, String::new());
    for block in section(CHANGE) {
        if block.is("cluster") {
            println!("{}\n{}", block.place, block.text);
            let is_over = block.mark("session") == Some("ended");
            if let Some(begun) = session.take_if(|_| is_over) {
                let begun: std::process::Child = begun;
                let ended = begun.wait_with_output().unwrap();
                assert!(ended.status.success(), "{ended:?}");
            }
            if block.mark("session") == Some("begins") {
                let mut command = shell(&fleet, &block.text);
                session = Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
            } else {
                shown = run(&fleet, &block, &block.text);
                last = Some(block);
            }
        } else if block.is("output") {
            let before = last.as_ref().unwrap();
            let again = before.text.replace("\\\n", " ").lines().last().unwrap().to_owned();
            until(&format!("{}: {}", block.place, block.text), || {
                if block.text.lines().all(|line| printed(&shown, line)) {
                    return Some(());
                }
                shown = run(&fleet, before, &again);
                None
            });
        }
    }
    assert!(session.is_none(), "the page does not say when the session ends");
    assert_eq!(fleet.cluster.server.get(FELIX)["spec"]["vxlanVNI"], 4096);
    until("the controller's numbers", || {
        let status = fleet.status();
        status["waves"].as_array().unwrap().iter().all(|wave| wave["state"] == "Done").then_some(())
    });

    let manifest = "packaging/hostprocess/uninstall.yaml";
    fleet.cluster.lab.write(manifest, read(manifest));
    for block in section(REMOVE).iter().filter(|block| block.is("cluster")) {
        let _said = run(&fleet, block, &block.text);
    }
    every_node_has_its_job(&fleet);
}
