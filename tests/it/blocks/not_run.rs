//! Blocks with commands of this program that no test runs, each with the reason. Every other one is run: marked
//! `sandbox`, or `cluster`.

use super::{Block, all, commands};

/// The page, how the block's first command begins, and why it is not run.
const NOT_RUN: [(&str, &str, &str); 6] = [
    (
        "docs/air-gap.md",
        "if ((Get-FileHash bundle.zip).Hash",
        "it unpacks a zip and runs the .exe in it, which needs PowerShell and Windows",
    ),
    (
        "docs/fleet.md",
        "calicoctl-win fleet apply -c node.yaml",
        "it waits for pods of DaemonSets, which the sandbox does not run; `real::fleet_page` runs `fleet apply`",
    ),
    (
        "docs/fleet.md",
        "calicoctl-win fleet rollback",
        "a wave has nothing before until pods have run, which the sandbox does not; `real::fleet` runs it on a real cluster",
    ),
    (
        "docs/getting.md",
        "calicoctl-win completion powershell |",
        "it changes a session of PowerShell, and none runs here",
    ),
    (
        "docs/howto/etcd.md",
        "calicoctl-win verify --pods",
        "the etcd of the tests has none of the blocks that Calico's IPAM writes for this node, and `verify` requires one",
    ),
    (
        "docs/sandbox.md",
        "$ CALICO_WIN_SANDBOX_FAULT=",
        "its first command is killed, its second succeeds; docs/howto/recover.md runs both",
    ),
];

/// Returns what the table does not have, and what it has wrongly.
fn faults(blocks: &[Block], table: &[(&str, &str, &str)]) -> Vec<String> {
    let idle: Vec<&Block> = blocks
        .iter()
        .filter(|block| !block.is("sandbox") && !block.is("cluster") && commands::has_own(block))
        .collect();
    let is_it = |block: &Block, (page, begins, _): &(&str, &str, &str)| {
        block.place.rsplit_once(':').is_some_and(|(of, _)| of == *page) && block.text.starts_with(begins)
    };
    let unlisted = idle.iter().filter(|block| !table.iter().any(|row| is_it(block, row)));
    let mut wrong: Vec<String> =
        unlisted.map(|block| format!("{}: no test runs it, and no reason is given", block.place)).collect();
    for row in table {
        let of_row = idle.iter().filter(|block| is_it(block, row)).count();
        if of_row != 1 {
            wrong.push(format!("{}: `{}` names {of_row} blocks that are not run", row.0, row.1));
        }
    }
    wrong
}

#[test]
fn every_command_of_the_documents_is_run_or_has_a_reason() {
    let wrong = faults(&all(), &NOT_RUN);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_that_nobody_runs_and_reasons_that_are_outdated_are_detected() {
    let page = |text: &str| super::blocks("page.md", text);
    let reason = ("page.md", "calicoctl-win status", "why");
    for (text, listed, wanted) in [
        ("```powershell\ncalicoctl-win status\n```", false, "page.md:1: no test runs it"),
        ("```sh\nLIMIT=1 calicoctl-win status | sort\n```", false, "page.md:1: no test runs it"),
        ("```sh not-run\ncargo run -- status\n```", false, "page.md:1: no test runs it"),
        ("```console\n> calicoctl-win verify\n```", true, "page.md:1: no test runs it"),
        ("```powershell sandbox\ncalicoctl-win status\n```", true, "names 0 blocks"),
        ("```powershell\nGet-Service\n```", true, "names 0 blocks"),
        ("```sh\ncalicoctl-win status\n```\n```sh\ncalicoctl-win status\n```", true, "names 2 blocks"),
    ] {
        let found = faults(&page(text), if listed { std::slice::from_ref(&reason) } else { &[] });
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{text}\n{found:?}");
    }
    for (text, listed) in [
        ("```powershell\ncalicoctl-win status\n```", true),
        ("```sh cluster\ncalicoctl-win status\n```", false),
        ("```text\ncalicoctl-win status\n```", false),
        ("```sh\nkubectl get nodes\n```", false),
    ] {
        let found = faults(&page(text), if listed { std::slice::from_ref(&reason) } else { &[] });
        assert!(found.is_empty(), "{text}\n{found:?}");
    }
}
