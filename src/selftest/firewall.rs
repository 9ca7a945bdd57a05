//! Windows Firewall.

use anyhow::Result;

use super::{Reach, Row, TestContext};
use crate::calico::services::FIREWALL_GROUP;
use crate::item::{FirewallRule, Id, State};
use crate::node::probe::Probe;
use crate::report::answer::Answer;

pub const GROUP: &str = "firewall";
const NAME: &str = "calicoctl-win-selftest";

pub const ROWS: &[Row] = &[
    Row {
        id: "FirewallRule",
        group: GROUP,
        asks: "a rule is read as it was written, exists once after it was written twice, and is gone when removed; it is \
           disabled and opens nothing",
        needed_for: "the rule that lets VXLAN in, which a repair and an uninstall find again",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: rule,
    },
    Row {
        id: "FirewallProfiles",
        group: GROUP,
        asks: "a rule that was written applies in every network profile",
        needed_for: "VXLAN is let in also when Windows treats a new vSwitch as a public network",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: profiles,
    },
];

/// What the rows make.
pub fn item() -> Id {
    Id::Firewall(NAME.into())
}

fn disabled() -> State {
    State::Firewall(FirewallRule {
        display_name: NAME.into(),
        group: FIREWALL_GROUP.into(),
        protocol: "UDP".into(),
        local_ports: "4789".into(),
        enabled: false,
        profiles: String::new(),
        remote_addresses: String::new(),
        edge_traversal: false,
    })
}

fn profiles(context: &mut TestContext<'_>) -> Result<Answer> {
    context.node.put(&item(), Some(&disabled()))?;
    let code = context.node.probe(&Probe::RuleInEveryProfile(NAME.into()))?;
    Answer::of(code.is_none(), "domain, private and public", "not in all of domain, private and public")
}

fn rule(context: &mut TestContext<'_>) -> Result<Answer> {
    let rule = disabled();
    for _ in 0..2 {
        context.node.put(&item(), Some(&rule))?;
        let found = context.node.get(&item())?;
        if found.as_ref() != Some(&rule) {
            return Answer::fails(format!("{rule:?} is read as {found:?}"));
        }
    }
    context.node.put(&item(), None)?;
    let gone = context.node.get(&item())?.is_none();
    Answer::of(gone, "as written, and gone when removed", "after its removal there is still one")
}
