//! Ways in which a Windows may behave unlike the documented one, on demand: `windows NAME` among the faults. They show
//! that `selftest` sees each, and that it sees nothing else.

use crate::fault::{Exit, Fault};

/// A way in which this sandbox is unlike Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// A service is read without its description.
    ServiceLosesDescription,
    /// A service is read without its recovery actions.
    ServiceLosesRecovery,
    /// A running service has no process.
    ServiceHasNoProcess,
    /// No service depends on another.
    NoDependents,
    /// A service starts without those that it depends on.
    StartsAlone,
    /// A service stops although a running one depends on it.
    StopsNeeded,
    /// The name of a service is free although somebody has the service open.
    FreesHeldNames,
    /// A deleted service is still there.
    ServiceStays,
    /// A 64-bit number in the registry is read as bytes.
    RegistryLosesType,
    /// The registry does not find a name in another case.
    RegistryHasCase,
    /// A closed folder inherits the access list of the one above.
    AccessInherits,
    /// A folder's own access list is read with another right.
    AccessChanges,
    /// A replaced file leaves its temporary one.
    LeavesTemporary,
    /// An open file can be replaced.
    ReplacesOpenFiles,
    /// A folder with an open file can be renamed.
    MovesOpenFolders,
    /// A process ignores Ctrl-C.
    IgnoresCtrlC,
    /// A process outlives the job object of the one that started it.
    JobLeaks,
    /// A detached process is in the job of its session.
    DetachStays,
    /// The Event Log keeps nothing.
    EventLogForgets,
    /// A firewall rule is read with other ports.
    FirewallLosesPorts,
    /// A firewall rule applies in one network profile only.
    FirewallLosesProfiles,
    /// A route is read with another metric.
    RouteLosesMetric,
    /// A route is in the persistent store too.
    RoutesPersist,
    /// The id of the boot is another each time.
    BootIdChanges,
    /// HNS is of version 9.1.
    HnsIsOld,
    /// HNS does not answer questions.
    HnsIsStuck,
    /// Version 2 of HNS does not list the networks of version 1.
    HnsHidesFromV2,
    /// HNS writes VSIDs as text.
    HnsVsidIsText,
    /// HNS writes the state of an attached endpoint as text.
    HnsStateIsText,
    /// HNS refers to endpoints by objects in policy lists.
    HnsReferencesAreObjects,
    /// HNS answers with an unspecified error for what does not exist.
    HnsHasOtherCode,
    /// HNS lists a new network without its VSID.
    HnsLosesVsid,
    /// HNS lists a new endpoint without its state.
    HnsLosesState,
    /// An adapter does not get its addresses back from a vSwitch.
    AddressesStayAway,
    /// HNS does not create a network right after another one on the same adapter.
    HnsCreatesOnce,
    /// The DHCP client of an adapter stays on when it gets a static address.
    DhcpStaysOn,
}

impl Quirk {
    pub const ALL: [(&'static str, Self); 36] = [
        ("service-loses-description", Self::ServiceLosesDescription),
        ("service-loses-recovery", Self::ServiceLosesRecovery),
        ("service-has-no-process", Self::ServiceHasNoProcess),
        ("no-dependents", Self::NoDependents),
        ("starts-alone", Self::StartsAlone),
        ("stops-needed", Self::StopsNeeded),
        ("frees-held-names", Self::FreesHeldNames),
        ("service-stays", Self::ServiceStays),
        ("registry-loses-type", Self::RegistryLosesType),
        ("registry-has-case", Self::RegistryHasCase),
        ("access-inherits", Self::AccessInherits),
        ("access-changes", Self::AccessChanges),
        ("leaves-temporary", Self::LeavesTemporary),
        ("replaces-open-files", Self::ReplacesOpenFiles),
        ("moves-open-folders", Self::MovesOpenFolders),
        ("ignores-ctrl-c", Self::IgnoresCtrlC),
        ("job-leaks", Self::JobLeaks),
        ("detach-stays", Self::DetachStays),
        ("event-log-forgets", Self::EventLogForgets),
        ("firewall-loses-ports", Self::FirewallLosesPorts),
        ("firewall-loses-profiles", Self::FirewallLosesProfiles),
        ("route-loses-metric", Self::RouteLosesMetric),
        ("routes-persist", Self::RoutesPersist),
        ("boot-id-changes", Self::BootIdChanges),
        ("hns-is-old", Self::HnsIsOld),
        ("hns-is-stuck", Self::HnsIsStuck),
        ("hns-hides-from-v2", Self::HnsHidesFromV2),
        ("hns-vsid-is-text", Self::HnsVsidIsText),
        ("hns-state-is-text", Self::HnsStateIsText),
        ("hns-references-are-objects", Self::HnsReferencesAreObjects),
        ("hns-has-other-code", Self::HnsHasOtherCode),
        ("hns-loses-vsid", Self::HnsLosesVsid),
        ("hns-loses-state", Self::HnsLosesState),
        ("addresses-stay-away", Self::AddressesStayAway),
        ("hns-creates-once", Self::HnsCreatesOnce),
        ("dhcp-stays-on", Self::DhcpStaysOn),
    ];

    /// # Errors
    /// USAGE, with the names that there are.
    pub fn parse(name: &str) -> Result<Self, Fault> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, quirk)| *quirk);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            let what = format!("the sandbox fault `windows {name}` is not right: there are {}", names.join(", "));
            Fault::new(Exit::Usage, "SandboxFaultInvalid", what).hint("write one of these names after `windows`")
        })
    }
}
