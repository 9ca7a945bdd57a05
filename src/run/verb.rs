//! The verbs that change a node or its Node, as a table: the goal of each, and what it may do.

use anyhow::Result;

use crate::agent::trial::Trial;
use crate::fault::{Exit, Fault};
use crate::report::time::at;

/// What the pipeline needs to know about a verb.
pub(crate) struct Row {
    /// Its name: for journals, receipts, the lock and records of runs.
    pub command: &'static str,
    pub aim: Aim,
    /// Pods may be moved away for it; otherwise a change that needs that is refused.
    pub drains: bool,
    /// The change can be on trial.
    pub tries: bool,
    /// The kinds of change that are reverted when the Node does not get Ready.
    pub ready: &'static [Kind],
    /// A change that fails is reverted.
    pub reverts: bool,
    /// How other machines are kept from changing the Node meanwhile.
    pub lease: Lease,
    /// What it may do while another change is on trial.
    pub trial: DuringTrial,
    /// It needs the node's generations.
    pub needs_state: bool,
    /// It removes Flannel too.
    pub replaces_flannel: bool,
    /// The machine becomes an image: what the run writes does not name the machine.
    pub makes_image: bool,
}

/// What the verb changes, and to which state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// As the config says; if none is named, as this one says.
    Config(Base),
    /// As an earlier generation was.
    Former,
    /// As the current generation says.
    Current,
    /// Without Calico.
    Nothing,
    /// The target of an interrupted run, or the state that it started from.
    Interrupted,
    /// The same with other credentials.
    Login,
    /// The Node in the cluster, and nothing on the machine.
    Node,
    /// Which services run.
    Services,
}

/// Which config is used if none is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// The defaults.
    None,
    /// The one of the current generation.
    Current,
    /// The same, if there is one.
    CurrentIfAny,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first generation.
    First,
    /// Another release.
    Release,
    /// The same release with other settings.
    Settings,
}

/// How a verb takes the Lease on its Node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Not at all: the Node is not changed.
    Never,
    /// If it can, without a word about it.
    Quietly,
    /// If the cluster answers, and no other machine has it.
    IfPossible,
    Required,
}

/// What a verb may do while another change is on trial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DuringTrial {
    /// Nothing.
    Refused,
    /// End a trial that could not be reverted.
    IfGivenUp,
    /// It ends the trial.
    Ends,
    /// What it does otherwise; the trial keeps the Lease.
    Allowed,
}

pub(crate) const APPLY: Row = Row {
    command: "apply",
    aim: Aim::Config(Base::CurrentIfAny),
    drains: true,
    tries: true,
    ready: &[Kind::Release, Kind::Settings],
    reverts: true,
    lease: Lease::IfPossible,
    trial: DuringTrial::Refused,
    needs_state: true,
    replaces_flannel: false,
    makes_image: false,
};
/// An install that also removes Flannel.
pub(crate) const MIGRATE: Row = Row {
    command: "migrate from flannel",
    aim: Aim::Config(Base::CurrentIfAny),
    tries: false,
    ready: &[Kind::First, Kind::Release, Kind::Settings],
    replaces_flannel: true,
    ..APPLY
};
pub(crate) const INSTALL: Row =
    Row { command: "install", aim: Aim::Config(Base::None), drains: false, tries: false, ready: &[], ..APPLY };
/// Without cluster and network: the rest follows on each machine made from the image.
pub(crate) const PREPARE: Row = Row { command: "install --prepare", lease: Lease::Never, makes_image: true, ..INSTALL };
pub(crate) const RECONFIGURE: Row =
    Row { command: "reconfigure", aim: Aim::Config(Base::Current), ready: &[], ..APPLY };
pub(crate) const UPGRADE: Row = Row {
    command: "upgrade",
    aim: Aim::Config(Base::Current),
    tries: false,
    ready: &[Kind::First, Kind::Release, Kind::Settings],
    ..APPLY
};
/// With kubelet and kube-proxy, and without them.
pub(crate) const KUBERNETES_INSTALL: Row = Row { command: "kubernetes install", ..APPLY };
pub(crate) const KUBERNETES_UNINSTALL: Row = Row { command: "kubernetes uninstall", ..RECONFIGURE };
pub(crate) const ROLLBACK: Row = Row { command: "rollback", aim: Aim::Former, tries: false, ready: &[], ..APPLY };
pub(crate) const REPAIR: Row = Row { command: "repair", aim: Aim::Current, ..ROLLBACK };
/// A repair that also re-creates the HNS networks.
pub(crate) const RESET: Row = Row { command: "network reset", ..REPAIR };
pub(crate) const RESUME: Row =
    Row { command: "resume", aim: Aim::Interrupted, trial: DuringTrial::IfGivenUp, ..ROLLBACK };
/// The undo of a run that is made and waits for the cluster's VNI.
pub(crate) const RESUME_FORMER: Row = Row { command: "resume", ..ROLLBACK };
pub(crate) const UNINSTALL: Row = Row { command: "uninstall", aim: Aim::Nothing, trial: DuringTrial::Ends, ..ROLLBACK };
/// Keeps a change that is on trial.
pub(crate) const CONFIRM: Row =
    Row { command: "confirm", aim: Aim::Interrupted, lease: Lease::Quietly, trial: DuringTrial::Ends, ..ROLLBACK };
/// Reverts it. A later try resumes one that failed.
pub(crate) const REVERT: Row = Row { command: REVERTS, aim: Aim::Former, reverts: false, ..CONFIRM };
/// The same for a trial that could not be reverted.
pub(crate) const RESUME_CONFIRM: Row = Row { command: "resume", ..CONFIRM };
pub(crate) const RESUME_REVERT: Row = Row { command: "resume", ..REVERT };
/// The name of a revert in journals, receipts and records.
pub(crate) const REVERTS: &str = "revert";
pub(crate) const ROTATE: Row =
    Row { command: "credentials rotate", aim: Aim::Login, trial: DuringTrial::Allowed, ..ROLLBACK };
/// What CalicoNode's agent does with a token that ends; no command line names it.
pub(crate) const RENEW: Row = Row { command: "token renewal", ..ROTATE };
const NODE: Row = Row { command: "node", aim: Aim::Node, needs_state: false, ..ROTATE };
pub(crate) const CORDON: Row = Row { command: "node cordon", ..NODE };
pub(crate) const UNCORDON: Row = Row { command: "node uncordon", ..NODE };
pub(crate) const DRAIN: Row = Row { command: "node drain", ..NODE };
pub(crate) const TAINT: Row = Row { command: "node taint", ..NODE };
pub(crate) const UNTAINT: Row = Row { command: "node untaint", ..NODE };
/// What CalicoNode does when it starts and an ended run left its Node cordoned.
pub(crate) const LEFT_CORDONED: Row = Row { command: "uncordon", aim: Aim::Interrupted, lease: Lease::Never, ..ROTATE };
pub(crate) const START: Row = Row { command: "service start", aim: Aim::Services, lease: Lease::Never, ..ROTATE };
pub(crate) const STOP: Row = Row { command: "service stop", ..START };
pub(crate) const RESTART: Row = Row { command: "service restart", ..START };
/// The fixes of `preflight --fix`; and a look at the node.
pub(crate) const PREFLIGHT: Row = Row { command: "preflight", needs_state: false, ..START };

impl Row {
    /// While a change is on trial, nothing else may be changed.
    ///
    /// # Errors
    /// `OnTrial`.
    pub fn check_trial(&self, trial: Option<&Trial>) -> Result<()> {
        let Some(trial) = trial.filter(|_| matches!(self.trial, DuringTrial::Refused | DuringTrial::IfGivenUp)) else {
            return Ok(());
        };
        let (run, tried_out) = (&trial.run, trial.is_tried_out());
        if tried_out && self.trial == DuringTrial::IfGivenUp {
            return Ok(());
        }
        let (what, hint) = if tried_out {
            let what = format!("what run {run} changed could not be reverted, and is not confirmed");
            (what, "revert it with: calicoctl-win resume\nor keep it with: calicoctl-win confirm")
        } else {
            let until = trial.deadline().map_or_else(String::new, |deadline| format!(" until {}", at(deadline)));
            let what = format!("what run {run} changed is on trial{until}");
            (what, "keep it with: calicoctl-win confirm\nor revert it with: calicoctl-win confirm --revert")
        };
        Err(Fault::new(Exit::Busy, "OnTrial", what).hint(hint).into())
    }
}
