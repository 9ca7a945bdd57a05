//! Whether programs that are new on this node do their work, before the ones they replaced are let go.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use crate::agent::Role;
use crate::agent::state::{self, AgentState, Phase};
use crate::apply::cancel;
use crate::apply::converge::{Proof, Standing};
use crate::apply::journal::Journal;
use crate::calico::services::EXECUTABLE;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::item::{Id, State};
use crate::plan::{Step, Target};
use crate::report::event::{Event, Sink};
use crate::values::WinPath;

/// How long Felix and confd must have run without a crash. A program that cannot live with its
/// configuration ends in its first seconds.
const CALM: Duration = Duration::from_secs(5);

/// How long all of it may take: CalicoNode's own waits for the network and the datastore are in it.
const LIMIT: Duration = Duration::from_secs(300);

const LOOK: Duration = Duration::from_millis(250);

/// What must be shown after these steps: that the services work, where they start from other programs
/// than before. Elsewhere the engine's own waits are enough.
pub(super) fn proof(steps: &[Step]) -> Proof<'static> {
    let replaced = |step: &Step| match step {
        Step::Put { id, before: Some(_), after: Some(_) } => is_program(id),
        _ => false,
    };
    if steps.iter().any(replaced) { &works } else { &none }
}

/// The same for a run that was interrupted: some of its steps are taken already.
pub(super) fn proof_of(standing: &Standing, journal: &Journal) -> Proof<'static> {
    let from = standing.receipts.iter().find(|receipt| Some(receipt.generation) == journal.header.from);
    let programs = |target: &Target| -> Vec<(Id, State)> {
        let items = target.world.iter().filter(|(id, _)| is_program(id));
        items.map(|(id, state)| (id.clone(), state.clone())).collect()
    };
    let replaced = from.is_some_and(|from| {
        let (before, after) = (programs(&from.target), programs(&journal.header.target));
        !before.is_empty() && !after.is_empty() && before != after
    });
    if replaced { &works } else { &none }
}

fn none(_: &mut dyn Node, _: &Target, _: Sink) -> Result<()> {
    Ok(())
}

fn is_program(id: &Id) -> bool {
    match id {
        Id::Tree(_) => true,
        Id::File(path) => *path == WinPath::known(EXECUTABLE),
        _ => false,
    }
}

/// Waits until every service that is to run does its work.
///
/// # Errors
/// `ServiceNotSteady` when one ends, crashes again and again, or is not at work in five minutes.
fn works(node: &mut dyn Node, target: &Target, events: Sink) -> Result<()> {
    let _under_way = cancel::UnderWay::begin();
    events(Event::PhaseStarted { phase: "steady", index: 1, total: 1 });
    let mut waited = Duration::ZERO;
    let ended = loop {
        match look(node, target) {
            Err(error) => break Err(error),
            Ok(None) => break Ok(()),
            Ok(Some(what)) if waited >= LIMIT => {
                break Err(not_steady(format!("{what}, for {} s now", LIMIT.as_secs())).into());
            }
            Ok(Some(what)) => events(Event::Waiting { what, elapsed: waited, limit: LIMIT }),
        }
        if let Err(cancelled) = cancel::check() {
            break Err(cancelled);
        }
        node.pause(LOOK);
        waited += LOOK;
    };
    match &ended {
        Ok(()) => {
            let message = "the services work with the new programs".into();
            events(Event::PhaseCompleted { phase: "steady", message, changed: false, took: waited });
        }
        Err(error) => events(Event::PhaseFailed { phase: "steady", message: format!("{error:#}") }),
    }
    ended
}

/// What is still waited for; none when everything works.
///
/// # Errors
/// `ServiceNotSteady` when a service ended, gave up, or crashes again and again.
pub(super) fn look(node: &dyn Node, target: &Target) -> Result<Option<String>> {
    for role in Role::ALL {
        let (id, name) = (Id::Running(role.service().into()), role.service());
        let process = node.process(name)?;
        let said = state::read(node, role);
        let Some(process) = process else {
            if !target.world.contains_key(&id) {
                continue;
            }
            let why = said.and_then(|said| said.failure).map_or_else(String::new, |why| format!(": {why}"));
            return Err(not_steady(format!("{name} ended{why}")).into());
        };
        // What another process said is of an agent before this one. A sandbox has none that says anything.
        let Some(said) = said.filter(|said| said.pid == process.pid) else { continue };
        if let Some(missing) = missing(&said, node.now())? {
            return Ok(Some(missing));
        }
    }
    Ok(None)
}

fn missing(said: &AgentState, now: Timestamp) -> Result<Option<String>> {
    let name = said.role.service();
    if said.crash_loop || said.failure.is_some() {
        let code = said.last_exit.and_then(|last| last.code);
        let code = code.map_or_else(String::new, |code| format!(" with exit code {code}"));
        let why = said.failure.clone().unwrap_or_else(|| format!("its program ends again and again{code}"));
        return Err(not_steady(format!("{name} does not work: {why}")).into());
    }
    if let Some(waits) = said.wait(now) {
        return Ok(Some(format!("{name}, which waits for {waits}")));
    }
    if said.phase != Phase::Running {
        return Ok(Some(format!("{name} to be at its work")));
    }
    // CalicoNode's program runs to its end; of the others the process must live.
    if said.role == Role::Node {
        return Ok(None);
    }
    let since = said.child.as_ref().and_then(|child| child.since);
    let lived = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok()).unwrap_or_default();
    Ok((lived < CALM).then(|| format!("{name} to run for {} s", CALM.as_secs())))
}

fn not_steady(what: String) -> Fault {
    Fault::new(Exit::VerifyFailed, "ServiceNotSteady", what)
        .hint("its log says why: calicoctl-win logs; with another release the cause may be gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is missing of an agent that said this, 12 s after it began.
    fn said(role: &str, more: &str) -> String {
        let more = if more.contains("crashLoop") { more.to_owned() } else { format!(r#", "crashLoop": false{more}"#) };
        let more = if more.contains("phase") { more } else { format!(r#", "phase": "running"{more}"#) };
        let text =
            format!(r#"{{"role": "{role}", "pid": 4000, "since": "2026-01-02T15:04:00Z", "restarts": 0{more}}}"#);
        let said: AgentState = serde_json::from_str(&text).unwrap();
        match missing(&said, "2026-01-02T15:04:12Z".parse().unwrap()) {
            Ok(None) => "works".into(),
            Ok(Some(what)) => format!("waits for {what}"),
            Err(error) => format!("failed: {error:#}"),
        }
    }

    #[test]
    fn an_agent_works_when_its_component_has_lived_for_a_while() {
        let child = |since| format!(r#", "child": {{"pid": 4010, "since": "2026-01-02T15:04:{since}Z"}}"#);
        assert_eq!(said("node", ""), "works");
        assert_eq!(said("node", r#", "phase": "preparing""#), "waits for CalicoNode to be at its work");
        assert_eq!(said("felix", &child("06")), "works");
        assert_eq!(said("felix", &child("09")), "waits for CalicoFelix to run for 5 s");
        assert_eq!(said("felix", ""), "waits for CalicoFelix to run for 5 s");
        let waits = r#", "waitingFor": {"what": "the network", "since": "2026-01-02T15:04:02Z", "limitS": 90}"#;
        assert_eq!(said("node", waits), "waits for CalicoNode, which waits for the network (10 s of 90 s)");
    }

    #[test]
    fn a_program_that_crashes_or_an_agent_that_gave_up_does_not_work() {
        let once = r#", "phase": "restarting", "lastExit": {"code": 7, "at": "2026-01-02T15:04:05Z"}"#;
        assert_eq!(said("felix", once), "waits for CalicoFelix to be at its work", "one end is no loop");
        assert_eq!(
            said("felix", &format!(r#"{once}, "crashLoop": true"#)),
            "failed: CalicoFelix does not work: its program ends again and again with exit code 7"
        );
        assert_eq!(
            said("confd", r#", "failure": "the configuration is not ours""#),
            "failed: CalicoConfd does not work: the configuration is not ours"
        );
    }
}
