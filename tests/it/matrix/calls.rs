//! The calls of a command, and the points at which its process can be killed.

use std::fmt;
use std::fs;

use crate::lab::Lab;

/// The calls of one command, in order: `put file C:\CalicoWindows\config.ps1`. Calls of the programs that a service
/// starts belong to other processes and are not points of a crash.
pub struct Calls {
    node: Vec<String>,
    api: Vec<String>,
}

/// A point at which the process is killed.
pub struct Point {
    /// The fault for the sandbox.
    pub fault: String,
    /// How it is killed.
    pub kind: &'static str,
    call: String,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.fault, self.call)
    }
}

const BY_SERVICE: &str = " (by a service's program)";

/// A kind of point: its name, the calls that it counts, those that it can be at, and its fault.
type Kind = (&'static str, fn(&str) -> bool, fn(&str) -> bool, &'static str);

const TOUCHES: fn(&str) -> bool =
    |call| ["put ", "save ", "append ", "remove "].iter().any(|touch| call.starts_with(touch));
const ALL: fn(&str) -> bool = |_| true;

const KINDS: [Kind; 6] = [
    ("before", TOUCHES, ALL, "*#N=exit-before"),
    ("after", TOUCHES, ALL, "*#N=exit-after"),
    ("within a put", |call| call.starts_with("put "), has_middle, "put *#N=exit-within"),
    ("within a save", |call| call.starts_with("save "), ALL, "save *#N=exit-within"),
    ("torn", |call| call.starts_with("append "), ALL, "append *#N=torn"),
    ("awaiting", |call| call.starts_with("get network"), ALL, "get network*#N=exit-before"),
];
const API: [(&str, &str); 2] =
    [("before a request", "api * /*#N=exit-before"), ("after a request", "api * /*#N=exit-after")];

/// Whether Windows makes this change in several steps.
fn has_middle(call: &str) -> bool {
    ["tree", "file", "cni-conf", "service", "firewall", "network"]
        .iter()
        .any(|kind| call.strip_prefix("put ").is_some_and(|put| put.starts_with(&format!("{kind} "))))
}

impl Calls {
    /// Runs a command that succeeds, and records its calls.
    pub fn of(lab: &Lab, words: &str) -> Self {
        let _done = lab.fails_at("facts=noted;get *=noted;list *=noted;* *=noted;api * /*=noted", words).exits(0);
        let read = |file: &str| {
            let path = lab.path("node").join(file);
            let text = fs::read_to_string(&path).unwrap_or_default();
            drop(fs::remove_file(path));
            text.lines().map(str::to_owned).collect()
        };
        Self { node: read(".sandbox/calls"), api: read("cluster/calls") }
    }

    /// Returns every point at which the process can be killed.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        let mut add = |kind, calls: &[String], counts: fn(&str) -> bool, fits: fn(&str) -> bool, fault: &str| {
            let own = calls.iter().filter(|call| !call.ends_with(BY_SERVICE) && counts(call));
            points.extend(own.enumerate().filter(|(_, call)| fits(call)).map(|(at, call)| Point {
                fault: fault.replace('N', &(at + 1).to_string()),
                kind,
                call: call.clone(),
            }));
        };
        for (kind, counts, fits, fault) in KINDS {
            add(kind, &self.node, counts, fits, fault);
        }
        for (kind, fault) in API {
            add(kind, &self.api, ALL, ALL, fault);
        }
        points
    }

    /// Returns the number of calls of a kind, including those of services' programs: `put`, or `api`.
    pub fn count(&self, kind: &str) -> usize {
        if kind == "api" {
            return self.api.len();
        }
        self.node.iter().filter(|call| call.split(' ').next() == Some(kind)).count()
    }
}

/// Returns at most this many of the items, evenly from the first to the last.
pub fn spread<T>(items: Vec<T>, at_most: usize) -> Vec<T> {
    let all = items.len();
    let wanted = at_most.min(all);
    let taken = |at: usize| (at + 1) * wanted / all.max(1) > at * wanted / all.max(1);
    items.into_iter().enumerate().filter(|(at, _)| taken(*at)).map(|(_, item)| item).collect()
}
