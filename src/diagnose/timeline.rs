//! When the phases of a run began and ended, read from its log: a run records its times nowhere else.

use jiff::{SignedDuration, Timestamp};

/// The log of one run.
#[derive(Debug)]
pub struct RunLog {
    /// The run's name.
    pub run: String,
    /// Without secrets.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phase {
    pub name: String,
    pub from: Timestamp,
    pub to: Timestamp,
    pub failed: bool,
    /// What it did, or why it failed.
    pub says: String,
}

impl Phase {
    pub fn took(&self) -> SignedDuration {
        self.to.duration_since(self.from)
    }
}

/// The phases of a run, in the order in which they ended.
pub(super) fn phases(log: &str) -> Vec<Phase> {
    let mut found: Vec<Phase> = Vec::new();
    let mut begun = None;
    for line in log.lines() {
        let Some((at, rest)) = entry(line) else { continue };
        begun.get_or_insert(at);
        let Some((name, ended)) = rest.strip_prefix("phase ").and_then(|rest| rest.split_once(' ')) else { continue };
        let (from, failed, says) = if let Some(done) = ended.strip_prefix("done in ") {
            let Some((ms, says)) = done.split_once(" ms: ") else { continue };
            let Ok(ms) = ms.parse() else { continue };
            (at - SignedDuration::from_millis(ms), false, says)
        } else if let Some(why) = ended.strip_prefix("failed: ") {
            // The log does not say when it began: not before the previous one ended.
            (found.last().map_or(begun.unwrap_or(at), |last| last.to), true, why)
        } else {
            continue;
        };
        found.push(Phase { name: name.to_owned(), from: from.min(at), to: at, failed, says: says.to_owned() });
    }
    found
}

/// What a run's log has besides its phases and their details: warnings and errors, with their times.
pub(super) fn remarks(log: &str) -> Vec<(Timestamp, &'static str, String)> {
    let remark = |line: &str| {
        let (at, rest) = entry(line)?;
        let level = line.split_whitespace().nth(1)?;
        let class = match level {
            "WARN" => "warn",
            "ERROR" => "bad",
            _ => return None,
        };
        Some((at, class, rest.to_owned()))
    };
    log.lines().filter_map(remark).collect()
}

/// The time and the message of a line: `2026-11-27T02:30:00.123Z INFO  phase release done in 12 ms: …`.
fn entry(line: &str) -> Option<(Timestamp, &str)> {
    let (at, rest) = line.split_once(' ')?;
    let (_, message) = rest.split_once(' ')?;
    Some((at.parse().ok()?, message.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-11-27T02:30:00.000Z INFO  install on win-a1, generation 1\n\
        2026-11-27T02:30:02.500Z INFO  phase release done in 2000 ms: Calico v3.32.1, 65 files\n\
        2026-11-27T02:30:02.500Z INFO  phase drain skipped: no pod\n\
        2026-11-27T02:30:02.600Z WARN  NodeNotReady: Node win-a1 is not Ready\n\
        2026-11-27T02:30:09.000Z ERROR phase hns-network failed: HNS says no\n\
        half a line\n";

    #[test]
    fn phases_have_the_times_that_the_log_has() {
        let found = phases(LOG);
        let said: Vec<String> = found
            .iter()
            .map(|phase| format!("{} {} {:#} {}", phase.name, phase.from, phase.took(), phase.failed))
            .collect();
        assert_eq!(
            said,
            ["release 2026-11-27T02:30:00.5Z 2s false", "hns-network 2026-11-27T02:30:02.5Z 6s 500ms true"]
        );
        assert_eq!(found[1].says, "HNS says no");
        let remarks: Vec<String> = remarks(LOG).into_iter().map(|(_, class, text)| format!("{class} {text}")).collect();
        assert_eq!(
            remarks,
            ["warn NodeNotReady: Node win-a1 is not Ready", "bad phase hns-network failed: HNS says no"]
        );
    }

    #[test]
    fn a_log_that_is_not_one_has_no_phases() {
        for text in ["", "\n\n", "phase x done", "2026-11-27T02:30:00Z INFO phase x done in many ms: y"] {
            assert_eq!(phases(text), [], "{text}");
        }
    }
}
