//! The log file of a run: every event, whatever the screen shows.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::event::Event;
use super::ndjson;

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
        let fields = ndjson::fields(event);
        let told = |name: &str| fields[name].as_str().unwrap_or_default();
        let message = match event {
            Event::Progress { .. } | Event::Waiting { .. } | Event::DrainProgress { .. } => return,
            Event::RunStarted { generation: Some(generation), .. } => {
                format!("{}, generation {generation}", told("message"))
            }
            Event::PhaseCompleted { phase, took, .. } => {
                format!("phase {phase} done in {} ms: {}", took.as_millis(), told("message"))
            }
            Event::PhaseSkipped { phase, .. } => format!("phase {phase} skipped: {}", told("message")),
            Event::PhaseFailed { phase, .. } => format!("phase {phase} failed: {}", told("message")),
            Event::Checked(check) => format!("check {} {:?}: {}", check.id, check.status, check.detail),
            Event::Planned(_) | Event::PlanMade { .. } => format!("plan: {}", told("message")),
            Event::RollbackStarted { reason } => format!("{}: {reason}", told("message")),
            Event::Warning { id, message } => format!("{id}: {message}"),
            _ => told("message").to_owned(),
        };
        self.line(now, &told("level").to_uppercase(), &message);
    }
}
