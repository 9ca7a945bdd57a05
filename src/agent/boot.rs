//! Whether Windows has restarted since Calico's network was last brought up.

use anyhow::Result;

use crate::calico::registry::boot_id;
use crate::item::{RegValue, State};
use crate::node::Node;

/// After a reboot HNS's state of Calico's networks cannot be trusted, so they are deleted. Other networks are kept,
/// whatever their type (upstream's scripts remove all but NAT: defect B13). Without the mark a reboot is unknown: pods
/// may use its networks. A reboot is detected by the identity of the boot, not by a time (defect B12).
pub fn is_first_start(node: &dyn Node) -> Result<bool> {
    let boot = State::RegValue(RegValue::String(node.boot_id()?));
    Ok(node.get(&boot_id())?.is_some_and(|known| known != boot))
}
