//! The API server's audit log: what a user asked, and what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::api_server::until;
use super::cluster::RealCluster;

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
        let mut lines = self.audit();
        lines.retain(|line| {
            let (object, code) = (&line["objectRef"], line["responseStatus"]["code"].as_u64());
            object["resource"] == "pods"
                && object["name"].as_str().is_some_and(|name| name.starts_with(pods))
                && code.is_some_and(|code| code < 300)
        });
        // When they came: a controller deletes a pod after it has seen another one ready, and an answer may be late.
        lines.sort_by_key(|line| line["requestReceivedTimestamp"].as_str().unwrap().to_owned());
        let (mut ready, mut deleted) = (BTreeSet::new(), BTreeSet::new());
        let (mut all_were_ready, mut most) = (false, 0);
        for line in &lines {
            let name = line["objectRef"]["name"].as_str().unwrap();
            if line["verb"] == "delete" {
                ready.remove(name);
                deleted.insert(name);
            } else if line["objectRef"]["subresource"] == "status" && !deleted.contains(name) {
                let conditions = line["requestObject"]["status"]["conditions"].as_array();
                match conditions.into_iter().flatten().find(|one| one["type"] == "Ready") {
                    Some(condition) if condition["status"] == "True" => ready.insert(name),
                    Some(_) => ready.remove(name),
                    None => false,
                };
            }
            all_were_ready |= ready.len() == nodes;
            if all_were_ready {
                most = most.max(nodes - ready.len());
            }
        }
        assert!(all_were_ready, "{} of {nodes} were ready", ready.len());
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

/// Holds what must be true of all that a run asks: nothing is refused for want of a right, and no list is without limit.
#[track_caller]
pub fn are_modest(asked: &[Request]) {
    let refused: Vec<&Request> = asked.iter().filter(|one| one.code == 403).collect();
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
