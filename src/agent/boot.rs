//! Whether Windows has started since Calico's network was brought up last.

use anyhow::Result;

use crate::calico::registry::boot_id;
use crate::item::{RegValue, State};
use crate::node::Node;

/// After a reboot what HNS says of our networks cannot be trusted, so they go. Others' networks
/// stay, whatever their type (upstream's scripts remove all but NAT: defect B13). A node that never
/// had a mark of ours was not seen to reboot: pods may live on its networks. A reboot is seen by
/// the identity of the boot, not by a time (defect B12).
pub fn is_first_start(node: &dyn Node) -> Result<bool> {
    let boot = State::RegValue(RegValue::String(node.facts()?.boot_id));
    Ok(node.get(&boot_id())?.is_some_and(|known| known != boot))
}
