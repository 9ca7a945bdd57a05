//! The boot, the adapters and the containers.

use anyhow::Result;

use super::{Reach, Row, TestContext};
use crate::item::State;
use crate::node::Listing;
use crate::report::answer::Answer;
use crate::values::count;

pub const ROWS: &[Row] = &[
    Row {
        id: "BootId",
        group: "boot",
        asks: "the id of the current boot is the same each time that Windows is asked",
        needed_for: "CalicoNode withdraws the CNI configuration and deletes networks from before the boot only after a boot",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: boot_id,
    },
    Row {
        id: "AdapterTable",
        group: "boot",
        asks: "Windows lists the network adapters that are up, and one of them has an IPv4 address",
        needed_for: "the addresses of the machine before and after a vSwitch are compared by it",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: adapters,
    },
    Row {
        id: "ContainerList",
        group: "boot",
        asks: "the Host Compute Service lists the running containers",
        needed_for: "an endpoint whose container has ended is deleted with its network, and any other stops the run",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: containers,
    },
];

fn boot_id(context: &mut TestContext<'_>) -> Result<Answer> {
    let (one, two) = (context.facts.boot_id.clone(), context.node.boot_id()?);
    Answer::of(!one.is_empty() && one == two, "the same id twice", "another id each time, or none")
}

fn adapters(context: &mut TestContext<'_>) -> Result<Answer> {
    let listed = context.node.list(Listing::Adapters)?;
    let has_address = |state: &State| matches!(state, State::Adapter(config) if !config.addresses.is_empty());
    let with = listed.iter().filter(|(_, state)| has_address(state)).count();
    let told = format!("{}, {with} with an IPv4 address", count(listed.len(), "adapter"));
    Answer::of(with > 0, told.clone(), told)
}

fn containers(context: &mut TestContext<'_>) -> Result<Answer> {
    Answer::holds(count(context.node.containers()?.len(), "container"))
}
