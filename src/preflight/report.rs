//! What the checks found, as a document.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// The document of `preflight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PreflightReport {
    pub checks: Vec<Check>,
    pub summary: Summary,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// PascalCase; `explain` has a page for it.
    pub id: String,
    pub group: String,
    pub status: CheckStatus,
    /// It failed, and the user ignores it.
    pub ignored: bool,
    pub detail: String,
    pub why: Option<String>,
    /// What to do: a sentence or a command on each line.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    Ok,
    Warn,
    Fail,
    Skip,
    /// The question could not be answered.
    Unknown,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Summary {
    pub ok: usize,
    pub warn: usize,
    pub fail: usize,
    pub skip: usize,
    pub unknown: usize,
}

impl PreflightReport {
    /// Adds a check that another room made.
    pub fn add(&mut self, check: Check) {
        *match check.status {
            CheckStatus::Ok => &mut self.summary.ok,
            CheckStatus::Warn => &mut self.summary.warn,
            CheckStatus::Fail => &mut self.summary.fail,
            CheckStatus::Skip => &mut self.summary.skip,
            CheckStatus::Unknown => &mut self.summary.unknown,
        } += 1;
        self.checks.push(check);
    }
}

/// The checks that failed, as the cause of a failure. Its message is the failure's own.
#[derive(Debug, Clone)]
pub struct FailedChecks {
    pub what: String,
    pub checks: Vec<Check>,
}

impl fmt::Display for FailedChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for FailedChecks {}
