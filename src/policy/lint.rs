//! Judges policies one by one as they are read, and counts their pods at the end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::endpoints::{Count, Endpoints, Pod, Query};
use super::kinds::{self, KINDS};
use super::report::{Finding, PolicyReport, Severity, Totals};
use super::resource::{Entity, Item, Kind, LabelSelector, Peer, Policy, Rule};
use super::rewrite;
use super::rules::{Costly, Skipped};
use super::selector::{Selector, Words};
use crate::version::{CalicoVersion, ReleaseLine};

/// Felix splits a rule with more addresses than this into several.
const MOST_OF_A_RULE: u64 = 4000;
/// The addresses that one rule may have Felix write on all Windows nodes: 900 for each pod of a full node.
const MOST_WRITTEN: u64 = 100_000;

/// The Calico that reads the policies. Each kind of Kubernetes' administrators is read only by some releases, and only
/// if Calico's data is in the Kubernetes API (felixsyncerv1.go).
#[derive(Debug, Default)]
pub enum Calico {
    /// As with files: a kind is judged as a release that reads it.
    #[default]
    Unknown,
    Release(CalicoVersion),
    Line(ReleaseLine),
    /// Its data is in etcd.
    InEtcd,
}

impl Calico {
    /// Why it does not read a kind, and what to write instead.
    fn not_reading(&self, kind: Kind) -> Option<(String, String)> {
        let (who, line) = match self {
            _ if !kind.is_of_admins() => return None,
            Self::Unknown => return None,
            Self::Release(release) => (format!("Calico {release}"), Some(release.line())),
            Self::Line(line) => (format!("Calico {line}"), Some((line.0, line.1))),
            Self::InEtcd => ("Calico with its data in etcd".to_owned(), None),
        };
        if line.is_some_and(|line| kind.is_read_by(line)) {
            return None;
        }
        let reads = |kind: Kind| line.is_some_and(|line| kind.is_read_by(line));
        let instead = match kind {
            Kind::AdminNetworkPolicy if reads(Kind::ClusterNetworkPolicy) => "a ClusterNetworkPolicy with tier: Admin",
            Kind::BaselineAdminNetworkPolicy if reads(Kind::ClusterNetworkPolicy) => {
                "a ClusterNetworkPolicy with tier: Baseline"
            }
            Kind::ClusterNetworkPolicy if reads(Kind::BaselineAdminNetworkPolicy) => {
                "an AdminNetworkPolicy, or a BaselineAdminNetworkPolicy for tier: Baseline"
            }
            Kind::ClusterNetworkPolicy if reads(Kind::AdminNetworkPolicy) => "an AdminNetworkPolicy",
            _ => "a GlobalNetworkPolicy",
        };
        Some((format!("{who} does not read {kind:?}"), instead.to_owned()))
    }
}

/// A query by its number.
type Number = u32;

/// Reads policies, then perhaps the pods of a cluster, and reports.
#[derive(Debug, Default)]
pub struct Linter {
    words: Words,
    queries: HashMap<Query, Number>,
    policies: Vec<Judged>,
    drafts: Vec<Draft>,
    measured: Vec<Measured>,
    staged: u64,
    endpoints: Option<Endpoints>,
    calico: Calico,
}

/// A moment before a list is read.
#[derive(Debug)]
pub struct Mark {
    policies: usize,
    drafts: usize,
    measured: usize,
}

/// What remains of a policy.
#[derive(Debug)]
struct Judged {
    kind: Kind,
    namespace: Option<String>,
    name: String,
    file: Option<Rc<str>>,
    selects: Option<Number>,
}

/// A finding whose pods are not counted yet.
#[derive(Debug)]
struct Draft {
    kind: usize,
    policy: usize,
    rule: Option<(&'static str, usize)>,
    detail: String,
    rewrite: Option<String>,
}

/// A rule that lists the addresses of pods.
#[derive(Debug)]
struct Measured {
    policy: usize,
    rule: (&'static str, usize),
    lists: Vec<Number>,
}

impl Linter {
    /// Names the Calico that reads the policies after this.
    pub fn read_by(&mut self, calico: Calico) {
        self.calico = calico;
    }

    /// Adds what a file has; false if that is no policy.
    pub fn item(&mut self, item: Item, file: &Rc<str>) -> bool {
        match item {
            Item::Policy(policy) => self.policy(*policy, Some(file)),
            // Every one is added, also after the first policy.
            Item::List(items) => return items.into_iter().map(|item| self.item(item, file)).max() == Some(true),
            Item::Staged => self.staged += 1,
            Item::Other => return false,
        }
        true
    }

    /// What was judged so far, for [`Self::back_to`].
    pub fn mark(&self) -> Mark {
        Mark { policies: self.policies.len(), drafts: self.drafts.len(), measured: self.measured.len() }
    }

    /// Forgets the policies since a mark: their list is read from its start again.
    pub fn back_to(&mut self, mark: &Mark) {
        self.policies.truncate(mark.policies);
        self.drafts.truncate(mark.drafts);
        self.measured.truncate(mark.measured);
    }

    pub fn policy(&mut self, policy: Policy, file: Option<&Rc<str>>) {
        let at = self.policies.len();
        let selects = self.selects(&policy, at);
        let spec = &policy.spec;
        // Such policies select no pods, whatever their selector is.
        let for_hosts = [(spec.do_not_track, "doNotTrack"), (spec.pre_dnat, "preDNAT")];
        let for_hosts = for_hosts.into_iter().find(|(set, _)| *set == Some(true)).map(|(_, name)| name);
        if let Some(name) = for_hosts {
            let detail = format!("with {name} it is only for host endpoints");
            self.drafts.push(Draft { kind: kinds::FOR_HOSTS, policy: at, rule: None, detail, rewrite: None });
        }
        for (detail, rewrite) in &policy.refused {
            let (detail, rewrite) = (detail.clone(), rewrite.clone());
            self.drafts.push(Draft { kind: kinds::REFUSED, policy: at, rule: None, detail, rewrite });
        }
        let unread = self.calico.not_reading(policy.kind);
        let is_judged = for_hosts.is_none() && unread.is_none();
        if let Some((detail, instead)) = unread {
            let rewrite = Some(instead);
            self.drafts.push(Draft { kind: kinds::NOT_READ, policy: at, rule: None, detail, rewrite });
        }
        for (direction, rules) in spec.directions().filter(|_| is_judged) {
            for number in 0..rules.len() {
                self.rule(&policy, at, direction, rules, number);
            }
        }
        let Policy { kind, namespace, name, .. } = policy;
        self.policies.push(Judged { kind, namespace, name, file: file.map(Rc::clone), selects });
    }

    fn rule(&mut self, policy: &Policy, at: usize, direction: &'static str, rules: &[Rule], number: usize) {
        let rule = &rules[number];
        let mut draft = |kind, detail: String, rewrite| {
            self.drafts.push(Draft { kind, policy: at, rule: Some((direction, number)), detail, rewrite });
        };
        if let Some(field) = rule.unconverted(policy.kind) {
            let instead = if rule.fails_closed(policy.kind) { "denies all traffic instead" } else { "drops the rule" };
            let detail = format!("{field} cannot be converted, so Calico {instead}");
            draft(kinds::NOT_CONVERTED, detail, None);
            return;
        }
        if let Some(port) = rule.ports.iter().position(|port| port.named_port.is_some()) {
            let rewrite = Some("portNumber or portRange instead of namedPort".to_owned());
            draft(kinds::PORT_IGNORED, format!("a named port: ports[{port}]"), rewrite);
        }
        let skipped = rule.skipped();
        if let Some((why, fields)) = &skipped {
            let fields = match why {
                Skipped::Log => "its action is Log".to_owned(),
                Skipped::Ipv6 => format!("{} is only for IPv6", fields.join(", ")),
                _ => format!("{}: {}", why.what(), fields.join(", ")),
            };
            let (kind, detail) = match (why, rule.action.as_str()) {
                (Skipped::Log, _) => (kinds::LOG_SKIPPED, fields),
                (Skipped::Ipv6, _) => (kinds::IPV6_SKIPPED, fields),
                (_, "Deny") => {
                    let falls = falls_to(policy.kind, direction, rules, number);
                    (kinds::DENY_SKIPPED, format!("{fields}; {falls}"))
                }
                // The tiers of these kinds pass on what no rule matches (libcalico-go, lib/clientv3/client.go).
                _ if policy.kind.is_of_admins() => (
                    kinds::ALLOW_SKIPPED,
                    format!("{fields}; if no other rule of its tier matches, later tiers decide"),
                ),
                _ => (kinds::ALLOW_SKIPPED, fields),
            };
            draft(kind, detail, rewrite::of_skipped(rule, *why));
        } else if rule.http.is_some() {
            let detail = format!("it is enforced as {} without `http`", rule.action);
            draft(kinds::HTTP_IGNORED, detail, None);
        }
        // What is skipped costs nothing; of a rule of Kubernetes only the part is.
        let whole = skipped.is_some() && !policy.kind.is_converted();
        if let Some(costly) = rule.costly(policy.namespace.is_none()).filter(|_| !whole) {
            let (kind, rewrite) = match costly {
                Costly::EveryPod if policy.kind == Kind::KubernetesNetworkPolicy => {
                    (kinds::EVERY_POD, Some("an ipBlock with the CIDR of the cluster's pods".to_owned()))
                }
                Costly::EveryPod if policy.kind.is_of_admins() => {
                    let networks = "networks with the CIDR of the cluster's pods instead of the selector";
                    (kinds::EVERY_POD, (direction == "egress").then(|| networks.to_owned()))
                }
                Costly::EveryPod => (
                    kinds::EVERY_POD,
                    Some("nets with the CIDR of the cluster's pods instead of the selector".to_owned()),
                ),
                Costly::BothSelectors => {
                    let selector = policy.spec.selector.as_deref();
                    (kinds::BOTH_SELECTORS, rewrite::of_both_selectors(direction, selector, rule))
                }
                Costly::LongList => (kinds::LONG_LIST, rewrite::of_long_list(rule)),
            };
            draft(kind, format!("it has {}", costly.what()), rewrite);
        }
        let lists = self.lists(policy, at, (direction, number), rule);
        if !lists.is_empty() && !whole {
            self.measured.push(Measured { policy: at, rule: (direction, number), lists });
        }
    }

    /// The pods that the policy is for.
    fn selects(&mut self, policy: &Policy, at: usize) -> Option<Number> {
        let spec = &policy.spec;
        if policy.kind == Kind::KubernetesNetworkPolicy {
            let pods = self.label_selector(spec.pod_selector.as_ref(), at, None, "spec.podSelector")?;
            return Some(self.query(None, pods, policy.namespace.as_deref()));
        }
        if policy.kind.is_of_admins() {
            let subject = spec.subject.as_ref()?;
            // Namespaces go before pods, as in Calico's conversion.
            let (namespaces, pods) = match (&subject.namespaces, &subject.pods) {
                (Some(namespaces), _) => (namespaces, None),
                (None, Some(pods)) => (&pods.namespace_selector, Some(&pods.pod_selector)),
                (None, None) => return None,
            };
            let within = self.label_selector(Some(namespaces), at, None, "spec.subject, its namespaces")?;
            let pods = self.label_selector(pods, at, None, "spec.subject.pods.podSelector")?;
            return Some(self.query(Some(within), pods, None));
        }
        let pods = self.selector(spec.selector.as_deref(), at, None, "spec.selector")?;
        let namespaces = match &spec.namespace_selector {
            Some(text) => Some(self.selector(Some(text), at, None, "spec.namespaceSelector")?),
            None => None,
        };
        Some(self.query(namespaces, pods, policy.namespace.as_deref()))
    }

    /// The lists of pods in a rule.
    fn lists(&mut self, policy: &Policy, at: usize, place: (&'static str, usize), rule: &Rule) -> Vec<Number> {
        let mut lists = Vec::new();
        for (name, side) in rule.sides() {
            lists.extend(self.entity(policy, at, place, name, side));
        }
        for (field, number, peer) in rule.peers() {
            lists.extend(self.peer(policy, at, place, &format!("{field}[{number}]"), peer));
        }
        lists
    }

    fn entity(
        &mut self,
        policy: &Policy,
        at: usize,
        place: (&'static str, usize),
        name: &str,
        side: &Entity,
    ) -> Option<Number> {
        if side.not_selector.is_some() {
            self.selector(side.not_selector.as_deref(), at, Some(place), &format!("{name}.notSelector"))?;
        }
        if !side.selects() {
            return None;
        }
        let pods = self.selector(side.selector.as_deref(), at, Some(place), &format!("{name}.selector"))?;
        let namespaces = match side.namespace_selector.as_deref().filter(|text| !text.trim().is_empty()) {
            Some(text) => Some(self.selector(Some(text), at, Some(place), &format!("{name}.namespaceSelector"))?),
            None => None,
        };
        // Service accounts are not counted, so neither is what they narrow.
        if side.service_accounts.is_some() {
            return None;
        }
        let own = policy.namespace.as_deref().filter(|_| namespaces.is_none());
        Some(self.query(namespaces, pods, own))
    }

    fn peer(
        &mut self,
        policy: &Policy,
        at: usize,
        place: (&'static str, usize),
        name: &str,
        peer: &Peer,
    ) -> Option<Number> {
        if peer.ip_block.is_some() || !peer.networks.is_empty() {
            return None;
        }
        let (of, namespaces_field) = match peer {
            Peer { pods: Some(_), .. } => (".pods", "namespaceSelector"),
            Peer { namespaces: Some(_), .. } => ("", "namespaces"),
            _ => ("", "namespaceSelector"),
        };
        let (namespaces, pods) = peer.selectors();
        let pods = self.label_selector(pods, at, Some(place), &format!("{name}{of}.podSelector"))?;
        let namespaces = match namespaces {
            Some(found) => {
                Some(self.label_selector(Some(found), at, Some(place), &format!("{name}{of}.{namespaces_field}"))?)
            }
            None => None,
        };
        let own = policy.namespace.as_deref().filter(|_| namespaces.is_none());
        Some(self.query(namespaces, pods, own))
    }

    /// A selector of Calico; none, and a finding, if it cannot be read.
    fn selector(
        &mut self,
        text: Option<&str>,
        at: usize,
        rule: Option<(&'static str, usize)>,
        field: &str,
    ) -> Option<Selector> {
        match Selector::parse(text.unwrap_or_default(), &mut self.words) {
            Ok(selector) => Some(selector),
            Err(problem) => self.invalid(at, rule, format!("{field}: {problem}")),
        }
    }

    fn label_selector(
        &mut self,
        selector: Option<&LabelSelector>,
        at: usize,
        rule: Option<(&'static str, usize)>,
        field: &str,
    ) -> Option<Selector> {
        let Some(selector) = selector else { return Some(Selector::All) };
        let words = &mut self.words;
        let mut parts: Vec<Selector> = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            parts.push(Selector::In(words.add(key), vec![words.add(value)]));
        }
        for expression in selector.match_expressions.iter().flatten() {
            let key = words.add(&expression.key);
            let values = expression.values.iter().map(|value| words.add(value)).collect();
            let not = |selector| Selector::Not(Box::new(selector));
            parts.push(match expression.operator.as_str() {
                "In" => Selector::In(key, values),
                "NotIn" => not(Selector::In(key, values)),
                "Exists" => Selector::Has(key),
                "DoesNotExist" => not(Selector::Has(key)),
                other => {
                    let problem = format!("{field}: `{other}` is none of In, NotIn, Exists, DoesNotExist");
                    return self.invalid(at, rule, problem);
                }
            });
        }
        Some(match parts.pop() {
            None => Selector::All,
            Some(only) if parts.is_empty() => only,
            last => Selector::And(parts.into_iter().chain(last).collect()),
        })
    }

    fn invalid<T>(&mut self, policy: usize, rule: Option<(&'static str, usize)>, detail: String) -> Option<T> {
        self.drafts.push(Draft { kind: kinds::SELECTOR_INVALID, policy, rule, detail, rewrite: None });
        None
    }

    fn query(&mut self, namespaces: Option<Selector>, pods: Selector, within: Option<&str>) -> Number {
        let pods = match within {
            Some(namespace) => Selector::And(vec![Endpoints::within(namespace, &mut self.words), pods]),
            None => pods,
        };
        let next = Number::try_from(self.queries.len()).expect("there are fewer rules than four billion");
        *self.queries.entry(Query { namespaces, pods }).or_insert(next)
    }

    /// Begins to read a cluster, after its policies; what was read of it before is forgotten.
    fn cluster(&mut self) -> (&mut Endpoints, &mut Words) {
        let endpoints = self.endpoints.get_or_insert_with(|| Endpoints::new(self.queries.keys(), &mut self.words));
        (endpoints, &mut self.words)
    }

    pub fn windows_node(&mut self, name: String) {
        self.cluster().0.windows_node(name);
    }

    pub fn namespace(&mut self, name: &str, labels: &BTreeMap<String, String>) {
        let (endpoints, words) = self.cluster();
        endpoints.namespace(name, labels, words);
    }

    /// After the nodes and namespaces.
    pub fn pod(&mut self, pod: &Pod) {
        let (endpoints, words) = self.cluster();
        endpoints.pod(pod, words);
    }

    /// Reports without numbers of pods: not all could be read.
    pub fn without_pods(&mut self) {
        self.endpoints = None;
    }

    /// Forgets the pods: their list is read from its start again.
    pub fn forget_pods(&mut self) {
        self.cluster().0.forget_pods();
    }

    /// What was found, the most harmful first.
    pub fn report(self) -> PolicyReport {
        let Self { words, queries, policies, drafts, measured, staged, endpoints, calico: _ } = self;
        let all = endpoints.as_ref().map(|endpoints| endpoints.all);
        let counts = endpoints.map(|endpoints| {
            let mut index = endpoints.indexed();
            let mut counts = vec![Count::default(); queries.len()];
            for (query, number) in &queries {
                counts[*number as usize] = index.count(query, &words);
            }
            counts
        });
        drop(queries);
        let pods = |number: Number| counts.as_ref().map(|counts| counts[number as usize]);
        let selected = |policy: usize| policies[policy].selects.and_then(pods).map(|count| count.windows);
        let mut members: HashMap<(usize, (&str, usize)), u64> = HashMap::new();
        for Measured { policy, rule, lists } in &measured {
            if let Some(sum) = lists.iter().map(|list| pods(*list).map(|count| count.pods)).sum::<Option<u64>>() {
                members.insert((*policy, *rule), sum);
            }
        }
        let mut drafts = drafts;
        let costly = |draft: &Draft| (kinds::EVERY_POD..=kinds::LONG_LIST).contains(&draft.kind);
        let told: std::collections::HashSet<(usize, Option<(&str, usize)>)> =
            drafts.iter().filter(|draft| costly(draft)).map(|draft| (draft.policy, draft.rule)).collect();
        for Measured { policy, rule, .. } in measured {
            let listed = members.get(&(policy, rule)).copied().unwrap_or_default();
            let endpoints = selected(policy).unwrap_or_default();
            let many = listed > MOST_OF_A_RULE || listed * endpoints > MOST_WRITTEN;
            if endpoints > 0 && many && !told.contains(&(policy, Some(rule))) {
                let detail = format!("it lists {listed} addresses for each of {endpoints} pods on Windows nodes");
                let kind = kinds::MANY_MEMBERS;
                drafts.push(Draft { kind, policy, rule: Some(rule), detail, rewrite: None });
            }
        }
        // Before Windows nodes have pods, any policy may be for them.
        let any = all.is_some_and(|all| all.windows > 0);
        let mut found: Vec<(Severity, u64, Draft)> = Vec::new();
        for draft in drafts {
            let endpoints = selected(draft.policy);
            let severity = match KINDS[draft.kind].severity {
                Severity::Fail if any && endpoints == Some(0) => Severity::Warn,
                severity => severity,
            };
            let listed = draft.rule.and_then(|rule| members.get(&(draft.policy, rule))).copied().unwrap_or(1).max(1);
            found.push((severity, endpoints.unwrap_or_default() * listed, draft));
        }
        found.sort_by_key(|(severity, weight, draft)| {
            let policy = &policies[draft.policy];
            (*severity, draft.kind, Reverse(*weight), policy.namespace.clone(), policy.name.clone(), draft.rule)
        });
        let summary = Totals {
            policies: policies.len() as u64,
            staged,
            pods: all.map(|all| all.pods),
            windows_pods: all.map(|all| all.windows),
            fail: found.iter().filter(|(severity, ..)| *severity == Severity::Fail).count() as u64,
            warn: found.iter().filter(|(severity, ..)| *severity == Severity::Warn).count() as u64,
        };
        let findings = found.into_iter().map(|(severity, _, draft)| {
            let policy = &policies[draft.policy];
            let endpoints = selected(draft.policy);
            let elsewhere = if any && endpoints == Some(0) { "; it selects no pod on a Windows node" } else { "" };
            Finding {
                id: KINDS[draft.kind].id,
                severity,
                kind: policy.kind,
                namespace: policy.namespace.clone(),
                name: policy.name.clone(),
                rule: draft.rule.map(|(direction, number)| format!("{direction}[{number}]")),
                file: policy.file.as_deref().map(str::to_owned),
                detail: draft.detail + elsewhere,
                why: KINDS[draft.kind].why,
                rewrite: draft.rewrite,
                endpoints,
                members: draft.rule.and_then(|rule| members.get(&(draft.policy, rule)).copied()),
            }
        });
        PolicyReport { findings: findings.collect(), summary }
    }
}

/// What happens to the traffic that a skipped Deny is for.
fn falls_to(kind: Kind, direction: &str, rules: &[Rule], skipped: usize) -> String {
    let next = rules.iter().enumerate().skip(skipped + 1);
    let next = next.take_while(|(_, rule)| rule.unconverted(kind).is_none() || !rule.fails_closed(kind));
    let next = next.filter(|(_, rule)| rule.skipped().is_none() && rule.unconverted(kind).is_none());
    match next.map(|(at, rule)| (at, rule.action.as_str())).find(|(_, a)| matches!(*a, "Allow" | "Accept" | "Pass")) {
        Some((at, "Pass")) => format!("what it should deny may be passed on by {direction}[{at}]"),
        Some((at, _)) => format!("what it should deny may be allowed by {direction}[{at}]"),
        None => "no rule after it in this policy allows anything, but those of other policies may".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(kind: &str, name: &str, spec: Value) -> Item {
        let api = if kind == "NetworkPolicy" { "networking.k8s.io/v1" } else { "projectcalico.org/v3" };
        let document =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        serde_json::from_value(document).unwrap()
    }

    /// Judges policies in a cluster with this many pods on Linux and on Windows: `severity id name rule: detail`.
    fn judged(items: Vec<Item>, pods: Option<(u64, u64)>) -> Vec<String> {
        let mut linter = Linter::default();
        for one in items {
            assert!(linter.item(one, &"p.yaml".into()));
        }
        if let Some((linux, windows)) = pods {
            linter.windows_node("win".into());
            linter.namespace("shop", &[("team".to_owned(), "a".to_owned())].into());
            // A list that was read in part, and then from its start.
            for round in 0..2 {
                linter.forget_pods();
                for n in 0..linux + windows {
                    let (node, app) = if n < windows { ("win", "web") } else { ("linux", "db") };
                    let metadata = json!({"namespace": "shop", "labels": {"app": app, "pod": format!("{round}-{n}")}});
                    linter.pod(
                        &serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node}})).unwrap(),
                    );
                }
            }
        }
        let report = linter.report();
        assert_eq!(report.summary.pods, pods.map(|(linux, windows)| linux + windows));
        let line = |found: &Finding| {
            let rule = found.rule.as_deref().unwrap_or_default();
            format!("{:?} {} {} {rule}: {}", found.severity, found.id, found.name, found.detail)
        };
        report.findings.iter().map(line).collect()
    }

    #[test]
    fn a_skipped_deny_names_the_rule_that_it_falls_through_to() {
        let deny = json!({"action": "Deny", "notProtocol": "TCP"});
        let falls = |after: Value| {
            let rules = [vec![deny.clone()], after.as_array().unwrap().clone()].concat();
            let said = judged(vec![item("GlobalNetworkPolicy", "a", json!({"egress": rules}))], None);
            said[0].split("; ").nth(1).unwrap().to_owned()
        };
        for (after, wanted) in [
            (json!([{"action": "Deny"}, {"action": "Allow"}]), "what it should deny may be allowed by egress[2]"),
            (json!([{"action": "Pass"}, {"action": "Allow"}]), "what it should deny may be passed on by egress[1]"),
            (
                json!([{"action": "Allow", "ipVersion": 6}, {"action": "Log"}]),
                "no rule after it in this policy allows anything, but those of other policies may",
            ),
        ] {
            assert_eq!(falls(after), wanted);
        }
    }

    #[test]
    fn a_policy_for_pods_on_linux_is_a_warning_once_windows_has_pods() {
        let policy = |app: &str| {
            let spec =
                json!({"selector": format!("app == '{app}'"), "ingress": [{"action": "Deny", "notProtocol": "TCP"}]});
            item("GlobalNetworkPolicy", app, spec)
        };
        let severities = |pods| {
            let found = judged(vec![policy("web"), policy("db")], pods);
            found
                .iter()
                .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let both = "Fail PolicyDenySkipped db, Fail PolicyDenySkipped web";
        assert_eq!(severities(None), both);
        assert_eq!(severities(Some((5, 0))), both);
        assert_eq!(severities(Some((5, 5))), "Fail PolicyDenySkipped web, Warn PolicyDenySkipped db");
    }

    #[test]
    fn many_members_are_found_for_one_rule_and_for_all_endpoints() {
        let spec = json!({
            "podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [{"from": [{"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]}],
        });
        let found = |pods| judged(vec![item("NetworkPolicy", "a", spec.clone())], pods);
        assert_eq!(found(None), [""; 0]);
        assert_eq!(found(Some((100, 10))), [""; 0]);
        for (linux, windows) in [(4000, 1), (2000, 49)] {
            let detail = format!("it lists {} addresses for each of {windows} pods on Windows nodes", linux + windows);
            assert_eq!(found(Some((linux, windows))), [format!("Warn PolicyManyMembers a ingress[0]: {detail}")]);
        }
    }

    #[test]
    fn the_most_harmful_is_first_then_what_has_the_most_pods() {
        let log = json!([{"action": "Log"}]);
        let allow = json!([{"action": "Allow", "icmp": {"type": 8}}]);
        let policy = |name: &str, selector: &str, egress: &Value| {
            item("GlobalNetworkPolicy", name, json!({"selector": selector, "egress": egress}))
        };
        let items =
            vec![policy("a", "", &log), policy("b", "pod == '1-0'", &allow), policy("c", "app == 'web'", &allow)];
        let names: Vec<String> =
            judged(items, Some((1, 3))).iter().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
        assert_eq!(names, ["c", "b", "a"]);
    }
}
