//! Rules that Felix applies before all policy, for clouds that need them.

use serde_json::Value;

use crate::settings::StaticRules;

/// What AKS needs: pods must not reach Azure's wireserver, which serves the node's own secrets.
pub const AKS: &str = include_str!("../../templates/static-rules.aks.json");

/// Whether a file has the rules that AKS needs and no others, however it is written.
pub fn are_of_aks(file: &[u8]) -> bool {
    let rules = serde_json::from_slice::<Value>(file).ok();
    rules.is_some() && rules == serde_json::from_slice(AKS.as_bytes()).ok()
}

/// The text of the rules that the settings have themselves.
pub fn of(rules: &StaticRules) -> Option<String> {
    match rules {
        StaticRules::Auto | StaticRules::None | StaticRules::File { .. } => None,
        StaticRules::Aks => Some(AKS.to_owned()),
        StaticRules::Inline(rules) => Some(format!("{:#}\n", Value::Object(rules.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that Felix's types accept (felix/dataplane/windows/policysets, hns.ACLPolicy): another one makes it
    /// panic at every start. Priorities are below those of Felix's own rules, and 6 is TCP.
    #[test]
    fn felix_does_not_panic_over_the_aks_rules() {
        let rules: Value = serde_json::from_str(AKS).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(keys(&rules), "Provider version Rules");
        assert_eq!((rules["Provider"].as_str(), rules["version"].as_str()), (Some("AKS"), Some("0.1.0")));
        for entry in rules["Rules"].as_array().unwrap() {
            assert_eq!(keys(entry), "Name Rule");
            let rule = &entry["Rule"];
            assert_eq!(keys(rule), "Action Direction Id Priority Protocol RemoteAddresses RemotePorts RuleType Type");
            assert!(["Allow", "Block"].contains(&rule["Action"].as_str().unwrap()), "{rule}");
            assert!(["In", "Out"].contains(&rule["Direction"].as_str().unwrap()), "{rule}");
            assert!(["Host", "Switch"].contains(&rule["RuleType"].as_str().unwrap()), "{rule}");
            assert_eq!(rule["Type"], "ACL");
            assert!(!rule["Id"].as_str().unwrap().is_empty());
            assert!((1..900).contains(&rule["Priority"].as_u64().unwrap()), "{rule}");
            assert_eq!(rule["Protocol"], 6);
            assert!(rule["RemoteAddresses"].is_string() && rule["RemotePorts"].is_string());
        }
    }

    #[test]
    fn other_rules_are_not_those_of_aks() {
        let compact = serde_json::from_str::<Value>(AKS).unwrap().to_string();
        assert!(are_of_aks(AKS.as_bytes()) && are_of_aks(compact.as_bytes()));
        for other in [AKS.replace("Block", "Allow"), AKS.replace("\"80\"", "\"443\""), "{}".into(), "no JSON".into()] {
            assert!(!are_of_aks(other.as_bytes()), "{other}");
        }
    }
}
