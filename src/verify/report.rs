//! The document `VerifyReport`. Scripts depend on its names: fields are added, never renamed.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::Serialize;

use super::Probe;
use crate::report::answer::{Answer, Tally, Verdict};
use crate::report::document::{Check, PreflightReport, Summary};

/// The document of `verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VerifyReport {
    /// Name of the Kubernetes Node.
    pub node: String,
    pub generation: u32,
    pub calico_version: Option<String>,
    pub backend: Option<String>,
    pub probes: Vec<ProbeReport>,
    pub summary: Tally,
    /// With `--pods`: what was said before the pods were started.
    pub notes: Vec<String>,
    /// With `--demo`: what was left in place, and what to run with it.
    pub demo: Vec<String>,
    /// What could not be removed from the cluster: `resume` tries again.
    pub left: Vec<String>,
}

/// What one probe asked, and the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProbeReport {
    /// `explain` has a page for it.
    pub id: String,
    pub group: String,
    pub verdict: Verdict,
    /// What must hold.
    pub asks: String,
    /// What was found; for a probe that was skipped, why.
    pub answered: String,
    /// What to do if it failed.
    pub fix: Option<String>,
    pub duration_ms: u64,
}

impl ProbeReport {
    pub(super) fn new(probe: &Probe, answer: Answer, took: SignedDuration) -> Self {
        let (verdict, answered) = answer.told();
        Self {
            id: probe.id.into(),
            group: probe.group.into(),
            verdict,
            asks: probe.asks.into(),
            answered,
            fix: (verdict == Verdict::Fail).then(|| probe.fix.into()),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or_default(),
        }
    }

    fn check(&self) -> Check {
        Check {
            id: self.id.clone(),
            group: self.group.clone(),
            status: self.verdict.status(),
            ignored: false,
            detail: self.answered.clone(),
            why: (self.verdict == Verdict::Fail).then(|| format!("expected: {}", self.asks)),
            fix: self.fix.clone(),
        }
    }
}

impl VerifyReport {
    /// The probes as checks, for JUnit.
    pub fn checks(&self) -> PreflightReport {
        let mut all = PreflightReport { checks: Vec::new(), summary: Summary::default() };
        self.probes.iter().for_each(|probe| all.add(probe.check()));
        all
    }
}
