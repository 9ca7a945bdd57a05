//! Measures the machine.

use anyhow::{Context, Result};

use super::{adapters, boot, features, hns, os, reboot, registry, runtime, tls};
use crate::facts::{NodeFacts, Part};
use crate::fault::Fault;

/// Measures this machine. Changes nothing except the mark of this boot (see [`boot::id`]), and starts no process. A
/// part that Windows cannot read is left out, with the reason.
///
/// # Errors
/// Errors of the parts that everything needs; `UNSUPPORTED` for a 32-bit program on a 64-bit Windows.
pub fn measure() -> Result<NodeFacts> {
    let mut facts = NodeFacts {
        os: os::facts().context("measure Windows")?,
        host_name: os::host_name()?,
        elevated: false,
        // Windows creates it during setup, so clones of an image differ.
        machine_id: registry::text(r"SOFTWARE\Microsoft\Cryptography", "MachineGuid")?,
        boot_id: boot::id().context("find out which boot this is")?,
        runtime: None,
        adapters: Vec::new(),
        hns: None,
        features: None,
        pending_reboot: Vec::new(),
        tls: None,
        cloud: None,
        survey: None,
        unread: std::collections::BTreeMap::new(),
        hns_stuck: None,
    };
    let parts: [(Part, &str, Read); 7] = [
        (Part::Elevated, "ask whether this session is elevated", |facts| set(&mut facts.elevated, os::is_elevated())),
        (Part::Runtime, "find the container runtime", |facts| set(&mut facts.runtime, runtime::facts())),
        (Part::Adapters, "measure the network adapters", |facts| set(&mut facts.adapters, adapters::facts())),
        (Part::Hns, "ask HNS for its version", |facts| set(&mut facts.hns, hns::version())),
        (Part::Features, "look for Windows features", |facts| set(&mut facts.features, features::facts().map(Some))),
        (Part::PendingReboot, "look whether Windows must restart", |facts| {
            set(&mut facts.pending_reboot, reboot::facts())
        }),
        (Part::Tls, "read the settings of TLS", |facts| set(&mut facts.tls, tls::facts().map(Some))),
    ];
    for (part, what, read) in parts {
        if let Err(error) = read(&mut facts).context(what) {
            facts.hns_stuck = facts.hns_stuck.or_else(|| Fault::of(&error).filter(|f| f.id == "HnsStuck").cloned());
            facts.leave_out(part, format!("{error:#}"));
        }
    }
    Ok(facts)
}

/// Measures one part.
type Read = fn(&mut NodeFacts) -> Result<()>;

fn set<T>(place: &mut T, answer: Result<T>) -> Result<()> {
    *place = answer?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use windows_registry::{LOCAL_MACHINE, Type};

    use super::*;

    /// Values of a type that no setting has, as a careless script writes them.
    #[test]
    fn an_unreadable_value_leaves_out_only_its_part() {
        let key = r"SYSTEM\CurrentControlSet\Control\SecurityProviders\SCHANNEL\Protocols\TLS 1.2\Client";
        let opened = LOCAL_MACHINE.create(key).unwrap();
        opened.set_bytes("DisabledByDefault", Type::Other(11_000), &[1]).unwrap();
        let facts = measure();
        opened.remove_value("DisabledByDefault").unwrap();
        let facts = facts.unwrap();
        let why = facts.untold(Part::Tls).expect("it could not be read");
        assert!(why.starts_with("read the settings of TLS: ") && why.contains("DisabledByDefault"), "{why}");
        assert_eq!((facts.tls, facts.unread.len()), (None, 1), "{:?}", facts.unread);
        assert!(facts.features.is_some());
    }
}
