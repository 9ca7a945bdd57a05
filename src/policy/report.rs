//! What was found, as a document.

use schemars::JsonSchema;
use serde::Serialize;

use super::resource::Kind;

/// The document of `policy lint`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PolicyReport {
    /// The most harmful first.
    pub findings: Vec<Finding>,
    pub summary: Totals,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Finding {
    /// PascalCase; `explain` has a page for it.
    pub id: &'static str,
    pub severity: Severity,
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    /// For example `ingress[0]`; null if it concerns the whole policy.
    pub rule: Option<String>,
    /// The file that has the policy; null if it is in the cluster.
    pub file: Option<String>,
    /// What was found in this policy.
    pub detail: String,
    pub why: &'static str,
    /// What to write instead; null if there is no equivalent.
    pub rewrite: Option<String>,
    /// The pods on Windows nodes that the policy selects; null if pods were not read.
    pub endpoints: Option<u64>,
    /// The addresses that the rule's selectors list for each of them; null if pods were not read, or it has no selector
    /// that can be counted.
    pub members: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Windows does not enforce the policy as written.
    Fail,
    /// It is expensive, or has no effect now.
    Warn,
}

#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Totals {
    pub policies: u64,
    /// Staged policies, which are not enforced and not judged.
    pub staged: u64,
    /// Null if pods were not read.
    pub pods: Option<u64>,
    pub windows_pods: Option<u64>,
    pub fail: u64,
    pub warn: u64,
}

impl Finding {
    /// `networkpolicy.projectcalico.org shop/web ingress[0]`.
    pub fn place(&self) -> String {
        let namespace = self.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        let rule = self.rule.as_ref().map_or_else(String::new, |rule| format!(" {rule}"));
        format!("{} {namespace}{}{rule}", self.kind.name(), self.name)
    }
}
