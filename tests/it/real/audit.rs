//! The API server's audit log: what a user asked, and what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::api_server::until;
use super::cluster::RealCluster;
use super::fleet::is_ready;

/// A request whose answer has ended.
#[derive(Debug)]
pub struct Request {
    pub verb: String,
    /// Empty for what is no resource, such as the server's version.
    pub resource: String,
    pub uri: String,
    pub code: u64,
}

/// The place in the log where a run begins.
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl RealCluster {
    pub fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.server.file("audit.log")).unwrap_or_default();
        // The last line may be half written.
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line.strip_suffix('\n')?).ok()).collect()
    }

    pub fn mark(&self) -> Mark {
        Mark(self.audit().len())
    }

    /// The most nodes of a DaemonSet that were out at once, from when all of them had a ready pod: a pod is out from its
    /// deletion, or from a status that is not Ready, until it is Ready. `pods`: the beginning of the pods' names.
    pub fn most_out(&self, pods: &str, nodes: usize) -> usize {
        self.most_out_with(pods, nodes, &[])
    }

    /// The same if the API server was killed, which then has no line for the end of its last requests. `seen`: pods as
    /// they were later. One that was ready has been so since its status was written.
    pub fn most_out_with(&self, pods: &str, nodes: usize, seen: &[Value]) -> usize {
        #[derive(PartialEq)]
        enum Kind {
            Bound,
            Deleted,
            Ready,
            NotReady,
        }
        let lines = self.audit();
        let of_pods = lines.iter().filter(|line| {
            let (object, code) = (&line["objectRef"], line["responseStatus"]["code"].as_u64());
            object["resource"] == "pods"
                && object["name"].as_str().is_some_and(|name| name.starts_with(pods))
                && code.is_some_and(|code| code < 300)
        });
        // When they came: a controller deletes a pod after it has seen another one ready, and an answer may be late.
        let mut events: Vec<(&str, &str, Kind)> = of_pods
            .filter_map(|line| {
                let kind = if line["verb"] == "delete" {
                    Kind::Deleted
                } else if line["objectRef"]["subresource"] == "binding" {
                    Kind::Bound
                } else if line["objectRef"]["subresource"] == "status" {
                    let mut conditions = line["requestObject"]["status"]["conditions"].as_array().into_iter().flatten();
                    let ready = conditions.find(|one| one["type"] == "Ready")?;
                    if ready["status"] == "True" { Kind::Ready } else { Kind::NotReady }
                } else {
                    return None;
                };
                Some((line["requestReceivedTimestamp"].as_str()?, line["objectRef"]["name"].as_str()?, kind))
            })
            .collect();
        let written: BTreeSet<&str> =
            events.iter().filter(|(.., kind)| *kind == Kind::Ready).map(|(_, name, _)| *name).collect();
        let lost: Vec<_> = seen
            .iter()
            .filter(|pod| is_ready(pod))
            .filter_map(|pod| Some((pod, pod["metadata"]["name"].as_str()?)))
            .filter(|(_, name)| !written.contains(name))
            .filter_map(|(pod, name)| {
                // In whole seconds, and so after all of that second.
                let writes = pod["metadata"]["managedFields"].as_array()?.iter();
                let times = writes.filter(|one| one["subresource"] == "status").filter_map(|one| one["time"].as_str());
                Some((times.max()?, name, Kind::Ready))
            })
            .collect();
        if !lost.is_empty() {
            println!("{} of {} pods have no line in the audit log", lost.len(), seen.len());
        }
        events.extend(lost);
        events.sort_by_key(|(time, ..)| *time);
        let (mut ready, mut deleted) = (BTreeSet::new(), BTreeSet::new());
        let (mut all_were_ready, mut most) = (false, 0);
        for (_, name, kind) in events {
            match kind {
                // Of a thousand names, a new pod often has one of a deleted pod.
                Kind::Bound => {
                    deleted.remove(name);
                }
                Kind::Deleted => {
                    ready.remove(name);
                    deleted.insert(name);
                }
                Kind::Ready if !deleted.contains(name) => {
                    ready.insert(name);
                }
                Kind::Ready => {}
                Kind::NotReady => {
                    ready.remove(name);
                }
            }
            all_were_ready |= ready.len() == nodes;
            if all_were_ready {
                most = most.max(nodes.saturating_sub(ready.len()));
            }
        }
        assert!(all_were_ready, "{} of {nodes} were ready", ready.len());
        // One that is not known to be deleted would hide another one that is out.
        assert!(ready.len() <= nodes, "{} pods are known to be ready, of {nodes} nodes", ready.len());
        most
    }

    /// What the user asked since then. Waits until no watch of the user's is open.
    #[track_caller]
    pub fn asked_since(&self, mark: Mark, user: &str) -> Vec<Request> {
        until("every watch to be closed", || {
            let lines = self.audit();
            let own = lines.iter().skip(mark.0).filter(|line| line["user"]["username"] == user);
            let (mut open, mut asked) = (BTreeSet::new(), Vec::new());
            for line in own {
                let id = line["auditID"].to_string();
                if line["stage"] == "ResponseStarted" {
                    open.insert(id);
                } else {
                    open.remove(&id);
                    asked.push(Request {
                        verb: line["verb"].as_str().unwrap().into(),
                        resource: line["objectRef"]["resource"].as_str().unwrap_or_default().into(),
                        uri: line["requestURI"].as_str().unwrap().into(),
                        code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
                    });
                }
            }
            open.is_empty().then_some(asked)
        })
    }
}

/// Holds what must be true of all that a run asks: nothing is refused for want of a right, nothing is cancelled, which
/// the server logs as 500, and no list is without limit.
#[track_caller]
pub fn are_modest(asked: &[Request]) {
    let refused: Vec<&Request> = asked.iter().filter(|one| matches!(one.code, 403 | 500)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let whole: Vec<&Request> = asked.iter().filter(|one| one.verb == "list" && !one.uri.contains("limit=")).collect();
    assert!(whole.is_empty(), "{whole:#?}");
    let forever = |one: &&Request| one.verb == "watch" && !one.uri.contains("timeoutSeconds=");
    let forever: Vec<&Request> = asked.iter().filter(forever).collect();
    assert!(forever.is_empty(), "{forever:#?}");
}

/// How many requests of each verb.
pub fn counted(asked: &[Request]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for one in asked {
        *counts.entry(one.verb.as_str()).or_insert(0) += 1;
    }
    counts
}
