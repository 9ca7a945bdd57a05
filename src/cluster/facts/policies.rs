//! How many network policies have rules that Felix on Windows skips, that are expensive there, or that are about HTTP
//! requests.

use std::sync::Arc;

use serde::Deserialize;

use super::{Question, served_versions};
use crate::cluster::api::{Api, path};
use crate::cluster::errors::Failure;
use crate::cluster::policies::{ADMINS, OF_ADMINS};
use crate::facts::PolicyFacts;
use crate::policy::{Kind, Listed};

/// How many are named; the rest is counted.
const EXAMPLES: usize = 5;

/// A policy of any kind, reduced while it is parsed to what Windows ignores in it: a cluster may have ten thousand.
#[derive(Debug)]
pub(super) struct Policy {
    /// With its namespace, if it has a reason.
    name: String,
    reason: Option<&'static str>,
    /// Why it is expensive.
    costly: Option<&'static str>,
    /// Why it needs application layer policy.
    application_layer: Option<&'static str>,
}

/// The policies of one kind of Kubernetes' administrators, or why they were not read; with the kind's plural.
pub(super) type OfAdmins = (Kind, &'static str, Result<Vec<Policy>, Failure>);

/// Asks for those of each kind that the cluster serves.
pub(super) fn ask_of_admins(api: &Arc<Api>) -> Question<Vec<OfAdmins>> {
    let api = Arc::clone(api);
    Question(Some(tokio::spawn(async move {
        let versions = served_versions(&api, ADMINS).await?;
        let mut found = Vec::new();
        for (kind, version, plural) in
            OF_ADMINS.into_iter().filter(|(_, version, _)| versions.iter().any(|v| v == version))
        {
            found.push((kind, plural, api.list(&path(["apis", ADMINS, version, plural])).await));
        }
        Ok(found)
    })))
}

pub(super) fn count(policies: &[Policy]) -> PolicyFacts {
    let counted = |reason: fn(&Policy) -> Option<&'static str>| {
        let those = || policies.iter().filter_map(move |policy| Some((policy, reason(policy)?)));
        let examples = those().take(EXAMPLES).map(|(policy, reason)| format!("{} ({reason})", policy.name));
        (those().count(), examples.collect())
    };
    let (skipped, examples) = counted(|policy| policy.reason);
    let (costly, costly_examples) = counted(|policy| policy.costly);
    let (application_layer, application_layer_examples) = counted(|policy| policy.application_layer);
    PolicyFacts {
        all: policies.len(),
        skipped,
        examples,
        costly,
        costly_examples,
        application_layer,
        application_layer_examples,
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let listed = Listed::deserialize(from)?;
        let (reason, costly) = (listed.skipped(), listed.costly());
        let application_layer = listed.is_about_http().then_some("HTTP requests");
        let named = reason.or(costly).or(application_layer).is_some();
        let name = if named { listed.to_string() } else { String::new() };
        Ok(Self { name, reason, costly, application_layer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn reason(spec: Value) -> Option<&'static str> {
        serde_json::from_value::<Policy>(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap().reason
    }

    #[test]
    fn what_windows_ignores_is_found_in_either_kind_of_policy() {
        for (rule, wanted) in [
            (json!({"action": "Allow", "protocol": "TCP", "destination": {"ports": [80, "8000:8100"]}}), None),
            (json!({"action": "Deny", "source": {"notNets": ["10.0.0.0/8"]}}), Some("a negated match")),
            (json!({"action": "Deny", "source": {"notSelector": "a == 'b'"}}), Some("a negated match")),
            (json!({"action": "Allow", "notProtocol": "UDP"}), Some("a negated match")),
            (json!({"action": "Allow", "protocol": "TCP", "destination": {"ports": ["http"]}}), Some("a named port")),
            (json!({"action": "Allow", "protocol": "ICMP", "icmp": {"type": 8}}), Some("an ICMP type")),
            (json!({"action": "Log"}), Some("action Log")),
            (json!({"action": "Allow", "ipVersion": 6}), Some("IPv6")),
            (json!({"from": [{"podSelector": {}}], "ports": [{"port": 80}]}), None),
            (json!({"ports": [{"port": "web", "protocol": "TCP"}]}), Some("a named port")),
            (
                json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}),
                Some("a negated match"),
            ),
        ] {
            assert_eq!(reason(json!({"ingress": [rule]})), wanted, "{rule}");
            assert_eq!(reason(json!({"ingress": null, "egress": [rule]})), wanted, "{rule}");
        }
    }

    #[test]
    fn rules_about_http_requests_are_found_and_are_not_among_the_skipped() {
        let http = json!({"methods": ["GET"], "paths": [{"prefix": "/public"}]});
        let rule = json!({"action": "Allow", "protocol": "TCP", "http": http});
        let policy = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ingress": [rule]}});
        let facts = count(&[serde_json::from_value(policy).unwrap()]);
        assert_eq!((facts.skipped, facts.costly, facts.application_layer), (0, 0, 1));
        assert_eq!(facts.application_layer_examples, ["shop/web (HTTP requests)"]);
    }

    #[test]
    fn what_is_expensive_on_windows_is_found_in_either_kind_of_policy() {
        let costly = |namespace: Option<&str>, rule: &Value| {
            let spec = json!({"ingress": [rule]});
            let metadata = json!({"name": "p", "namespace": namespace});
            serde_json::from_value::<Policy>(json!({"metadata": metadata, "spec": spec})).unwrap().costly
        };
        let nets: Vec<String> = (0..60).map(|n| format!("10.0.{n}.0/24")).collect();
        let (every, long) = (Some("a selector of every pod"), Some("a long list of nets and ports"));
        let both = Some("a source and a destination selector");
        for (rule, in_namespace, global) in [
            (json!({"action": "Allow"}), None, None),
            (json!({"action": "Allow", "source": {"selector": "app == 'web'"}}), None, None),
            (json!({"action": "Allow", "source": {"selector": "all()"}}), None, every),
            (json!({"action": "Allow", "source": {"namespaceSelector": "all()"}}), every, every),
            (json!({"source": {"selector": "has(a)"}, "destination": {"selector": "has(b)"}}), both, both),
            (json!({"action": "Deny", "source": {"nets": nets}}), None, None),
            (json!({"action": "Deny", "source": {"nets": nets}, "destination": {"ports": [80, 443]}}), long, long),
            (json!({"from": [{"namespaceSelector": {}}]}), every, every),
            (json!({"from": [{"podSelector": {}}]}), None, None),
            (json!({"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]}), None, None),
        ] {
            assert_eq!((costly(Some("shop"), &rule), costly(None, &rule)), (in_namespace, global), "{rule}");
        }
    }

    #[test]
    fn the_first_are_named_and_all_are_counted() {
        let policy = |name: &str, action: &str| {
            let spec = json!({"egress": [{"action": action}]});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).unwrap()
        };
        let mut all: Vec<Policy> = (0..7).map(|n| policy(&format!("log-{n}"), "Log")).collect();
        all.push(policy("fine", "Allow"));
        let facts = count(&all);
        assert_eq!((facts.all, facts.skipped, facts.examples.len()), (8, 7, 5));
        assert_eq!(facts.examples[0], "shop/log-0 (action Log)");
    }
}
