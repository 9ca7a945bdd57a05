//! A change on trial: it is live, and rolled back automatically unless somebody confirms it. Its whole state is the
//! record on the disk, so it survives the run that made the change, and power cuts.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::stop::Stop;
use crate::item::{Id, State};
use crate::node::{Node, STATE_DIR, files, record};
use crate::values::WinPath;

/// How often a service checks whether a trial has its guard process.
const LOOK: Duration = Duration::from_secs(5);

/// How long the API server may be unreachable at most before the node rolls back.
const LONGEST_OUT_OF_REACH: Duration = Duration::from_secs(60);

/// A change that is not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The run that made it.
    pub run: String,
    /// The verb.
    pub command: String,
    /// Name of the Kubernetes Node.
    pub node: String,
    /// The generation that a rollback restores.
    pub from: u32,
    pub began: Timestamp,
    /// Seconds from when it is live until it is rolled back.
    pub confirm_within: u64,
    /// The gateways before the change; one of them must still answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<Ipv4Addr>,
    /// Since when the change is complete; none while its run is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Timestamp>,
    /// The kubeconfig that the run was told to use, and its context; none for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// How often the rollback was started. Counted before, so that one which crashes the machine counts too.
    #[serde(default, skip_serializing_if = "never")]
    pub tries: u32,
    /// Why the rollback is not retried any more; none while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// How often the rollback is tried.
pub const TRIES: u32 = 6;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn never(tries: &u32) -> bool {
    *tries == 0
}

fn path() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("trial.json")
}

impl Trial {
    /// The current trial, if there is one.
    ///
    /// # Errors
    /// When the record exists and cannot be read.
    pub fn load(node: &dyn Node) -> Result<Option<Self>> {
        record::load(node, &path())
    }

    /// Writes the record.
    ///
    /// # Errors
    /// When the write fails.
    pub fn save(&self, node: &mut dyn Node) -> Result<()> {
        record::save(node, &path(), self).context("record that the change is on trial")
    }

    /// Removes the record.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(node: &dyn Node) -> Result<()> {
        files::gone(fs::remove_file(node.disk(&path()))).context("remove the record of the trial")
    }

    /// No retry is left: a running guard makes the last one.
    pub const fn is_tried_out(&self) -> bool {
        self.tries >= TRIES
    }

    /// When it is rolled back unless confirmed; none while its run is in progress.
    pub fn deadline(&self) -> Option<Timestamp> {
        let length = SignedDuration::try_from(self.length()).unwrap_or(SignedDuration::MAX);
        Some(self.live?.checked_add(length).unwrap_or(Timestamp::MAX))
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.confirm_within)
    }

    /// How long the API server, or every gateway, may be unreachable.
    pub fn unreachable_limit(&self) -> Duration {
        (self.length() / 4).clamp(Duration::from_secs(1), LONGEST_OUT_OF_REACH)
    }

    /// Why the node rolls back now, if it does. `run_in_progress`: the run that makes the change is running; `watched`: for how
    /// long it has been seen live, by a monotonic clock; `lost`: for how long the API server or every gateway has been
    /// unreachable, and which.
    pub fn verdict(
        &self,
        now: Timestamp,
        run_in_progress: bool,
        watched: Duration,
        lost: Option<(Duration, &str)>,
    ) -> Option<String> {
        let Some(deadline) = self.deadline() else {
            return (!run_in_progress).then(|| format!("its run {} was interrupted", self.run));
        };
        if let Some((since, what)) = lost.filter(|(since, _)| *since >= self.unreachable_limit()) {
            return Some(format!("{what} for {} s", since.as_secs()));
        }
        let over = now >= deadline || watched >= self.length();
        over.then(|| format!("nobody confirmed it within {} s", self.confirm_within))
    }
}

/// The machine's current gateways.
///
/// # Errors
/// When the adapters cannot be read.
pub fn gateways(node: &dyn Node) -> Result<Vec<Ipv4Addr>> {
    let adapters = node.list(crate::node::Listing::Adapters).context("read the adapters")?;
    let gateway = |(_, state): (Id, State)| if let State::Adapter(config) = state { config.gateway } else { None };
    Ok(adapters.into_iter().filter_map(gateway).collect())
}

/// Why none of these gateways is reachable any more; none while one is. One that cannot be checked counts as reachable.
pub fn lost_gateway(node: &dyn Node, before: &[Ipv4Addr]) -> Option<String> {
    let first = before.first()?;
    // If the adapters cannot be read, nothing counts as lost.
    let Ok(there) = gateways(node) else { return None };
    let still: Vec<&Ipv4Addr> = before.iter().filter(|gateway| there.contains(gateway)).collect();
    let Some(one) = still.first() else { return Some(format!("the gateway {first} no longer exists")) };
    let silent = still.iter().all(|gateway| matches!(node.answers(**gateway), Ok(false)));
    silent.then(|| format!("the gateway {one} does not answer"))
}

/// While a service runs, makes sure that a trial has its guard process: `pending` says whether a trial has none,
/// `start` starts it. After a boot there is none.
pub fn ensure_guard(stop: &Stop, pending: impl Fn() -> Result<bool>, start: impl Fn() -> Result<()>) {
    while !stop.requested() {
        if pending().unwrap_or(false)
            && let Err(error) = start()
        {
            let message = format!("a change is on trial, and its guard cannot be started: {error:#}");
            super::os::event_log(super::os::Level::Error, &message);
        }
        stop.wait(LOOK, || false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(live: Option<&str>) -> Trial {
        Trial {
            run: "r1".into(),
            command: "reconfigure".into(),
            node: "win-a1".into(),
            from: 1,
            began: "2026-01-02T15:00:00Z".parse().unwrap(),
            confirm_within: 300,
            gateways: Vec::new(),
            live: live.map(|time| time.parse().unwrap()),
            kubeconfig: None,
            context: None,
            tries: 0,
            given_up: None,
        }
    }

    /// As c5f41a4 wrote it, before tries were counted.
    #[test]
    fn a_record_without_tries_is_read_and_written_the_same() {
        let old = r#"{"run":"r1","command":"reconfigure","node":"win-a1","from":1,"began":"2026-01-02T15:00:00Z","confirmWithin":300}"#;
        let read: Trial = serde_json::from_str(old).unwrap();
        assert_eq!(read, trial(None));
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
    }

    #[test]
    fn a_trial_is_rolled_back_if_not_confirmed_or_if_unreachable() {
        let live = Some("2026-01-02T15:01:00Z");
        let seconds = Duration::from_secs;
        for (live, now, in_progress, watched, lost, back) in [
            (None, "15:59:00", true, 0, None, None),
            (None, "15:00:01", false, 0, None, Some("its run r1 was interrupted")),
            (live, "15:05:59", false, 299, None, None),
            (live, "15:06:00", false, 299, None, Some("nobody confirmed it within 300 s")),
            // The clock was set back.
            (live, "14:00:00", false, 300, None, Some("nobody confirmed it within 300 s")),
            (live, "15:02:00", false, 60, Some(59), None),
            (live, "15:02:00", false, 60, Some(60), Some("the API server was unreachable for 60 s")),
            // Nothing is reachable while the switch is created.
            (None, "15:02:00", true, 0, Some(100), None),
        ] {
            let now = format!("2026-01-02T{now}Z").parse().unwrap();
            let lost = lost.map(|lost| (seconds(lost), "the API server was unreachable"));
            let why = trial(live).verdict(now, in_progress, seconds(watched), lost);
            assert_eq!(why.as_deref(), back, "{live:?} {now}");
        }
    }

    #[test]
    fn a_short_trial_has_a_shorter_limit() {
        let unreachable_limit = |confirm_within| Trial { confirm_within, ..trial(None) }.unreachable_limit().as_secs();
        assert_eq!([1, 20, 3600].map(unreachable_limit), [1, 5, 60]);
    }
}
