//! How a node is drained before a change, and what a restart does: from the config alone.

use std::time::Duration;

use super::resolver::Resolver;
use crate::config::Origin;
use crate::config::spec::{Mode, OnBlocked, RebootPolicy, Spec};
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

pub(super) fn decide_reboot(to: &mut Resolver<'_>, spec: &Spec) -> Reboot {
    Reboot {
        policy: to.or_default("spec.reboot.policy", spec.reboot.policy, RebootPolicy::Request),
        resume_on_boot: to.or_default("spec.reboot.resumeOnBoot", spec.reboot.resume_on_boot, false),
    }
}

pub(super) fn decide(to: &mut Resolver<'_>, spec: &Spec) -> Maintenance {
    let given = &spec.maintenance;
    let drain = &given.drain;
    let path = |name: &str| format!("spec.maintenance.drain.{name}");
    // These two stay open until a change is planned; until then the document says `auto`.
    let mut open = |path: &str, given: &Auto<bool>| match given.0 {
        Some(choice) => to.optional(path, Some(choice)),
        None => {
            to.note(path, "auto", Origin::Default);
            None
        }
    };
    let enabled = open(&path("enabled"), &drain.enabled);
    let uncordon = open("spec.maintenance.uncordon", &given.uncordon);
    let grace = to.or_default(&path("gracePeriodSeconds"), drain.grace_period_seconds, -1);
    let timeout = to.or_default(&path("timeout"), drain.timeout.clone(), Wait::known("10m")).limit();
    // There is one value, which documents may give explicitly.
    to.or_default(&path("onBlocked"), drain.on_blocked, OnBlocked::Fail);
    Maintenance {
        drain: Drain {
            enabled,
            timeout,
            grace_period_seconds: u32::try_from(grace).ok(),
            ignore_daemon_sets: to.or_default(&path("ignoreDaemonSets"), drain.ignore_daemon_sets, true),
            delete_empty_dir_data: to.or_default(&path("deleteEmptyDirData"), drain.delete_empty_dir_data, false),
            force: to.or_default(&path("force"), drain.force, false),
            disable_eviction: to.or_default(&path("disableEviction"), drain.disable_eviction, false),
        },
        uncordon,
        mode: to.or_default("spec.maintenance.mode", given.mode, Mode::Auto),
        confirm_timeout: to
            .or_default("spec.maintenance.confirmTimeout", given.confirm_timeout.clone(), Wait::known("5m"))
            .length(),
    }
}
