//! Answers to the questions of a table: the rows of `selftest`, the probes of `verify`.

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::document::CheckStatus;
use crate::values::count;

/// What was found.
pub enum Answer {
    Holds(String),
    Fails(String),
    /// It does not apply here, or cannot be asked, and why.
    Skipped(String),
}

impl Answer {
    pub fn holds(text: impl Into<String>) -> Result<Self> {
        Ok(Self::Holds(text.into()))
    }

    pub fn fails(text: impl Into<String>) -> Result<Self> {
        Ok(Self::Fails(text.into()))
    }

    pub fn skipped(text: impl Into<String>) -> Result<Self> {
        Ok(Self::Skipped(text.into()))
    }

    /// `right` if it is so, else `wrong`.
    pub fn of(is: bool, right: impl Into<String>, wrong: impl Into<String>) -> Result<Self> {
        if is { Self::holds(right) } else { Self::fails(wrong) }
    }

    /// `right` if nothing is wrong.
    pub fn unless(wrong: Vec<String>, right: impl Into<String>) -> Result<Self> {
        if wrong.is_empty() { Self::holds(right) } else { Self::fails(wrong.join("; ")) }
    }

    /// The verdict, and what was answered.
    pub fn told(self) -> (Verdict, String) {
        match self {
            Self::Holds(text) => (Verdict::Ok, text),
            Self::Fails(text) => (Verdict::Fail, text),
            Self::Skipped(text) => (Verdict::Skip, text),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it must be.
    Ok,
    /// It is not.
    Fail,
    /// It does not apply here, or could not be asked.
    Skip,
}

impl Verdict {
    /// How a line of text begins.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Ok => "[ OK ]",
            Self::Fail => "[FAIL]",
            Self::Skip => "[SKIP]",
        }
    }

    /// The same for a check.
    pub const fn status(self) -> CheckStatus {
        match self {
            Self::Ok => CheckStatus::Ok,
            Self::Fail => CheckStatus::Fail,
            Self::Skip => CheckStatus::Skip,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    pub ok: usize,
    pub fail: usize,
    pub skip: usize,
}

impl Tally {
    pub fn of(verdicts: impl Iterator<Item = Verdict> + Clone) -> Self {
        let count = |wanted| verdicts.clone().filter(|verdict| *verdict == wanted).count();
        Self { ok: count(Verdict::Ok), fail: count(Verdict::Fail), skip: count(Verdict::Skip) }
    }

    /// `11 probes: 10 ok, 1 failed`.
    pub fn text(&self, noun: &str) -> String {
        let Self { ok, fail, skip } = self;
        let skipped = if *skip > 0 { format!(", {skip} skipped") } else { String::new() };
        format!("{}: {ok} ok, {fail} failed{skipped}", count(ok + fail + skip, noun))
    }
}
