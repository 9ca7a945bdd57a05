//! How a node is drained before a change, and what a restart does: from the config alone.

use std::time::Duration;

use serde_json::Value;

use super::resolver::Resolver;
use crate::config::Origin;
use crate::config::spec::{Mode, OnBlocked, RebootPolicy};
use crate::config::types::{Auto, Wait};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    pub drain: Drain,
    /// None: uncordon if this program cordoned the node.
    pub uncordon: Option<bool>,
    pub mode: Mode,
    pub confirm_timeout: Duration,
}

/// The flags of `kubectl drain`, with one other default: DaemonSets' pods are ignored, since every Windows node has
/// some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// None: drain if the change interrupts pods.
    pub enabled: Option<bool>,
    /// None: no limit.
    pub timeout: Option<Duration>,
    /// Seconds; none: each pod's own.
    pub grace_period_seconds: Option<u32>,
    pub ignore_daemon_sets: bool,
    pub delete_empty_dir_data: bool,
    pub force: bool,
    pub disable_eviction: bool,
}

/// What happens on a restart: one that Windows requires, and one that interrupts a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reboot {
    pub policy: RebootPolicy,
    pub resume_on_boot: bool,
}

pub(super) fn decide_reboot(to: &mut Resolver<'_>) -> Reboot {
    Reboot {
        policy: to.or_default("reboot.policy", RebootPolicy::Request),
        resume_on_boot: to.or_default("reboot.resumeOnBoot", false),
    }
}

pub(super) fn decide(to: &mut Resolver<'_>) -> Maintenance {
    // These two stay open until a change is planned; until then the document says `auto`.
    let mut open = |path: &str| {
        let Auto(given) = to.given::<Auto<bool>>(path).unwrap_or_default();
        to.decided(path, given.map(Value::from), || ("auto".into(), Origin::Default)).as_bool()
    };
    let (enabled, uncordon) = (open("maintenance.drain.enabled"), open("maintenance.uncordon"));
    // The only value.
    to.or_default("maintenance.drain.onBlocked", OnBlocked::Fail);
    Maintenance {
        drain: Drain {
            enabled,
            timeout: to.or_default("maintenance.drain.timeout", Wait::known("10m")).limit(),
            grace_period_seconds: u32::try_from(to.or_default("maintenance.drain.gracePeriodSeconds", -1)).ok(),
            ignore_daemon_sets: to.or_default("maintenance.drain.ignoreDaemonSets", true),
            delete_empty_dir_data: to.or_default("maintenance.drain.deleteEmptyDirData", false),
            force: to.or_default("maintenance.drain.force", false),
            disable_eviction: to.or_default("maintenance.drain.disableEviction", false),
        },
        uncordon,
        mode: to.or_default("maintenance.mode", Mode::Auto),
        confirm_timeout: to.or_default("maintenance.confirmTimeout", Wait::known("5m")).length(),
    }
}
