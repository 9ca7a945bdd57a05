//! Rules that Felix applies before all policy, for clouds that need them.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const TEMPLATE: &str = include_str!("../../templates/static-rules.aks.json");

/// The file as Felix reads it. An invalid value makes Felix panic at every start, so the values are typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct StaticRules {
    /// Becomes the first part of each HNS rule's id.
    pub provider: String,
    #[serde(rename = "version")]
    pub version: String,
    pub rules: Vec<StaticRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct StaticRule {
    pub name: String,
    pub rule: Acl,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Acl {
    pub action: Action,
    pub direction: Direction,
    pub id: String,
    /// Not 0. Felix's own policies begin at 1000, its host rule is 900.
    pub priority: u16,
    /// 6 is TCP.
    pub protocol: u16,
    pub remote_addresses: String,
    pub remote_ports: String,
    pub rule_type: RuleType,
    #[serde(rename = "Type")]
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    Allow,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    In,
    Out,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleType {
    Host,
    Switch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    #[serde(rename = "ACL")]
    Acl,
}

/// What AKS needs: pods must not reach Azure's wireserver, which serves the node's own secrets.
///
/// # Errors
/// When the document built into this program is not valid, which a test rules out.
pub fn render() -> Result<Vec<u8>> {
    let rules: StaticRules = serde_json::from_str(TEMPLATE).context("parse the static rules")?;
    let mut bytes = serde_json::to_vec_pretty(&rules).context("write the static rules")?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Whether a file has the rules that AKS needs and no others, however it is written.
pub fn are_of_aks(file: &[u8]) -> bool {
    let rules = serde_json::from_slice::<StaticRules>(file).ok();
    rules.is_some() && rules == serde_json::from_str(TEMPLATE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn felix_does_not_panic_over_the_aks_rules() {
        let rules: StaticRules = serde_json::from_slice(&render().unwrap()).unwrap();
        assert!(!rules.provider.is_empty());
        for StaticRule { rule, .. } in &rules.rules {
            assert!(!rule.id.is_empty() && rule.priority != 0, "{rule:?}");
        }
    }

    #[test]
    fn a_word_that_felix_does_not_know_is_refused() {
        for (word, other) in [("Block", "Deny"), ("Out", "Outbound"), ("Switch", "Vm"), ("ACL", "NAT")] {
            let bad = TEMPLATE.replace(&format!("\"{word}\""), &format!("\"{other}\""));
            assert!(serde_json::from_str::<StaticRules>(&bad).is_err(), "{other}");
        }
    }
}
