//! The document `SelftestReport`. Scripts depend on its names: fields are added, never renamed.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::mask::Mask;
use super::{Reach, Row};
use crate::facts::NodeFacts;
use crate::report::answer::{Answer, Tally, Verdict};

/// The document of `selftest`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SelftestReport {
    /// The version of this program.
    pub version: String,
    pub windows: Windows,
    /// Rows that interrupt the network of an adapter ran too.
    pub disruptive: bool,
    pub rows: Vec<RowReport>,
    pub summary: Tally,
    pub vni: OnVni,
    /// Everything that HNS said; names and addresses are masked.
    pub hns: Vec<Said>,
    /// What an interrupted run had left, and this one removed.
    pub removed: Vec<String>,
    /// What could not be removed.
    pub left: Vec<String>,
}

/// The Windows that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Windows {
    pub build: u32,
    pub ubr: u32,
    /// For example `Server Core`.
    pub installation_type: String,
    /// For example `13.2`; none without HNS.
    pub hns: Option<String>,
}

/// What one row asked, and the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RowReport {
    /// `explain` has a page for it.
    pub id: String,
    pub group: String,
    pub verdict: Verdict,
    pub asks: String,
    pub answered: String,
    pub needed_for: String,
    pub bears_on_vni: bool,
    pub duration_ms: u64,
}

/// The rows that a change of the VNI depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OnVni {
    pub rows: Vec<String>,
    /// Those that failed.
    pub failed: Vec<String>,
}

/// A question to HNS, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Said {
    /// For example `/networks/`.
    pub path: String,
    /// Null if it refused.
    pub output: Value,
    /// The number of its error.
    pub error: Option<String>,
}

impl RowReport {
    pub(super) fn new(row: &Row, answer: Answer, mask: &mut Mask, took: SignedDuration) -> Self {
        let (verdict, answered) = answer.told();
        Self {
            id: row.id.into(),
            group: row.group.into(),
            verdict,
            asks: row.asks.into(),
            answered: mask.text(&answered),
            needed_for: row.needed_for.into(),
            bears_on_vni: row.bears_on_vni,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or_default(),
        }
    }
}

impl SelftestReport {
    pub(super) fn new(
        facts: &NodeFacts,
        reach: Reach,
        rows: Vec<RowReport>,
        hns: Vec<Said>,
        removed: Vec<String>,
        left: Vec<String>,
    ) -> Self {
        let summary = Tally::of(rows.iter().map(|row| row.verdict));
        let names = |failed: bool| {
            let on = rows.iter().filter(|row| row.bears_on_vni && (!failed || row.verdict == Verdict::Fail));
            on.map(|row| row.id.clone()).collect()
        };
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            windows: Windows {
                build: facts.os.build,
                ubr: facts.os.ubr,
                installation_type: facts.os.installation_type.clone(),
                hns: facts.hns.map(|version| format!("{}.{}", version.major, version.minor)),
            },
            disruptive: reach == Reach::Disrupts,
            summary,
            vni: OnVni { rows: names(false), failed: names(true) },
            rows,
            hns,
            removed,
            left,
        }
    }

    /// The last line for people: what the rows say of a change of the VNI.
    pub fn on_vni(&self) -> String {
        let OnVni { rows, failed } = &self.vni;
        let all = rows.join(", ");
        if failed.is_empty() {
            format!("Rows needed to change the VNI: {all}; all passed.")
        } else {
            format!("Rows needed to change the VNI: {all}; failed: {}.", failed.join(", "))
        }
    }
}
