//! The log file of a run: every event, whatever the screen shows.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::event::Event;

/// An open log file. A failure to write it (a full disk) never stops a run.
#[derive(Debug)]
pub struct Log {
    file: File,
    pub path: PathBuf,
}

impl Log {
    /// Opens the file, and creates its folder.
    ///
    /// # Errors
    /// When folder or file cannot be created.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("make the log folder {}", folder.display()))?;
        }
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("open the log {}", path.display()))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends a line.
    pub fn line(&mut self, now: Timestamp, level: &str, message: &str) {
        // One entry is one line, whatever the message.
        let message = super::text::harmless(message).replace('\n', " ");
        let _full_disk_is_no_reason_to_stop = writeln!(self.file, "{now:.3} {level:<5} {message}");
    }

    /// Appends an event; progress and waiting are left out: they are many and not useful later.
    pub fn event(&mut self, now: Timestamp, event: &Event) {
        let (level, message) = match event {
            Event::Progress { .. } | Event::Waiting { .. } | Event::DrainProgress { .. } => return,
            Event::RunStarted { command, node, generation } => {
                let from = generation.map_or_else(|| "nothing installed".into(), |n| format!("generation {n}"));
                ("INFO", format!("{command} on {node}, {from}"))
            }
            Event::Checked(check) => ("INFO", format!("check {} {:?}: {}", check.id, check.status, check.detail)),
            Event::Planned(change) => ("INFO", format!("plan {:?} {}", change.action, change.id)),
            Event::PlanMade { counts, .. } => ("INFO", format!("plan: {counts}")),
            Event::RollbackStarted { reason } => ("WARN", format!("taking the change back: {reason}")),
            Event::RollbackCompleted { complete: true } => ("INFO", "the change was rolled back".into()),
            Event::RollbackCompleted { complete: false } => ("ERROR", "the change could not be rolled back".into()),
            Event::PhaseStarted { phase, place } => {
                let place = place.map_or_else(String::new, |(index, total)| format!(" ({index}/{total})"));
                ("INFO", format!("phase {phase}{place}"))
            }
            Event::PhaseCompleted { phase, message, took, .. } => {
                ("INFO", format!("phase {phase} done in {} ms: {message}", took.as_millis()))
            }
            Event::PhaseSkipped { phase, reason } => ("INFO", format!("phase {phase} skipped: {reason}")),
            Event::PhaseFailed { phase, message } => ("ERROR", format!("phase {phase} failed: {message}")),
            Event::ConnectivityNotice { message, .. } => ("WARN", message.clone()),
            Event::ConfirmDeadline { deadline, .. } => ("WARN", format!("not confirmed: reverts at {deadline:.0}")),
            Event::Warning { id, message } => ("WARN", format!("{id}: {message}")),
            Event::PodEvicted { pod } => ("INFO", format!("evicted {pod}")),
            Event::PodBlocked { pod, why, .. } => ("WARN", format!("not evicted yet: {pod}: {why}")),
            Event::PodGone { pod, gone, total } => ("INFO", format!("gone ({gone}/{total}): {pod}")),
            Event::Log { message } => ("DEBUG", message.clone()),
        };
        self.line(now, level, &message);
    }
}
