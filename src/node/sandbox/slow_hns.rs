//! HNS that needs its time: while it makes a vSwitch, everyone who asks it anything waits, and gives up after a while, as on
//! Windows.

use std::time::Duration;

use anyhow::Result;

use super::SandboxNode;
use super::model::Model;
use crate::fault::{Exit, Fault};

/// How long a caller waits for an answer, in seconds: as the node on Windows does.
const ANSWER_LIMIT: u32 = 30;

/// HNS answers the request for a network before it has made its vSwitch: after this many seconds at the latest.
const POST_TAKES: u32 = 20;

/// HNS begins to make a vSwitch.
pub fn begin(model: &mut Model) {
    model.hns_busy = model.switch_seconds;
}

/// HNS works on for some seconds.
pub fn work(model: &mut Model, seconds: u32) {
    model.hns_busy = model.hns_busy.saturating_sub(seconds);
}

impl SandboxNode {
    /// Waits for an answer of HNS.
    ///
    /// # Errors
    /// `HnsStuck` if it has none in time.
    pub(super) fn ask_hns(&self, what: &str) -> Result<()> {
        let busy = self.look()?.hns_busy;
        self.elapse(Duration::from_secs(busy.min(ANSWER_LIMIT).into()))?;
        if busy <= ANSWER_LIMIT {
            return Ok(());
        }
        let what = format!("HNS did not answer {what} in {ANSWER_LIMIT} s");
        Err(Fault::new(Exit::Failed, "HnsStuck", what).hint("calicoctl-win explain HnsStuck says what helps").into())
    }

    /// The time that the creation of a network takes, until HNS answers it.
    pub(super) fn creation_takes(&self) -> Result<()> {
        let busy = self.look()?.hns_busy;
        self.elapse(Duration::from_secs(busy.min(POST_TAKES).into()))
    }
}
