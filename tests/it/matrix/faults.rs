//! The fault matrix: every call to the node and every request to the API fails once, fails from then on, or is slow.
//! The run ends in the old or the new state with one clear error; if the revert fails too, the error says so, and
//! `resume` succeeds once the cause is fixed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use calicoctl_win::node::sandbox::model::Model;
use serde_json::Value;

use super::crashes::Ground;
use super::verbs::ROWS;
use super::whole::Whole;
use super::{full, side_by_side};
use crate::lab::Lab;

/// A call, and its fault: once, or from then on.
const FAULTS: [(&str, &[&str]); 8] = [
    ("facts#N", &["=fail", "+=fail"]),
    ("list *#N", &["=fail", "+=fail"]),
    ("get *#N", &["=fail", "+=fail"]),
    ("put *#N", &["=fail", "+=fail", "=fail-after", "+=disk-full", "=in-use", "=slow", "+=slow"]),
    ("save *#N", &["=fail", "+=disk-full", "=fail-after", "=slow"]),
    ("append *#N", &["=fail", "+=disk-full", "=fail-after", "=slow"]),
    ("remove *#N", &["=fail", "+=fail", "=fail-after"]),
    ("api * /*#N", &["=503", "+=503", "=reset", "=cut", "=429", "=401", "+=403", "=404", "+=far"]),
];

const ROLLED_BACK: i32 = 9;
const INCOMPLETE: i32 = 10;
/// The change is made, and it is unknown whether the node works: a cordoned node remains cordoned.
const NOT_PROVED: i32 = 11;
/// The node works, and the cluster could not be updated.
const UNTOLD: [&str; 2] = ["NotAnnotated", "ClusterTracesLeft"];

/// The services that run, each with its process.
fn processes(lab: &Lab) -> BTreeMap<String, u32> {
    let model: Model = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    let services = model.services.into_iter();
    services.filter_map(|(name, service)| Some((name.as_str().to_owned(), service.pid?))).collect()
}

/// Returns what is wrong with the end of a run under a fault; none if it ended as expected.
fn wrong(ground: &Ground, fault: &str) -> Option<String> {
    let lab = ground.start.copy();
    let output = lab.fails_at(fault, &format!("{} -o json", ground.row.words));
    let tell = |what: &str| Some(format!("{}: {fault}: {what}\n{output}", ground.row.name));
    let document: Value = match serde_json::from_str(&output.stdout) {
        Ok(document) if output.stderr.is_empty() => document,
        _ => return tell("not one document"),
    };
    if output.code != 0 {
        let error = &document["error"];
        let said = |field: &str| error[field].as_str().is_some_and(|text| !text.is_empty());
        let half_done = [ROLLED_BACK, INCOMPLETE].contains(&output.code);
        if !said("id") || !said("what") || half_done && !said("hint") {
            return tell("the error does not say what failed and how to fix it");
        }
        if (output.code == ROLLED_BACK) != (document["rolled_back"] == true) {
            return tell("the error does not say whether it was rolled back");
        }
    }
    if document["changed"] == false {
        let mut lines = Whole::now(&lab).touched_since(&Whole::now(&ground.start));
        if processes(&lab) != processes(&ground.start) {
            lines.push("  a service was started or stopped".into());
        }
        if !lines.is_empty() {
            return tell(&format!("it says that nothing was changed, but this was:\n{}", lines.join("\n")));
        }
    }
    let differs = |whole: &Whole, from: &Whole| {
        let untold = UNTOLD.iter().any(|id| output.stdout.contains(id));
        let mut lines =
            if untold { whole.without_achieved().against(&from.without_achieved()) } else { whole.against(from) };
        lines.retain(|line| !whole.is_needed(line));
        lines
    };
    if output.code != INCOMPLETE {
        let journal = lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists();
        if !Whole::is_at_rest(&lab) && (output.code != NOT_PROVED || journal) {
            return tell("a change is incomplete, and the error does not say so");
        }
        let wanted = match output.code {
            0 | NOT_PROVED => &ground.new,
            ROLLED_BACK => &ground.undone,
            _ => &ground.old,
        };
        if Whole::is_at_rest(&lab) {
            let mut lines = differs(&Whole::of(&lab), wanted);
            // A release that was downloaded for a run that never started is kept for the next one.
            lines.retain(|line| [0, ROLLED_BACK].contains(&output.code) || !line.contains("/store/trees/"));
            if !lines.is_empty() {
                return tell(&format!("the state does not match the exit code:\n{}", lines.join("\n")));
            }
        }
    }
    // The cause is fixed.
    let repaired = lab.run("resume -y");
    if repaired.code != 0 || !Whole::is_at_rest(&lab) {
        return tell(&format!("resume does not fix it: {repaired}"));
    }
    let whole = Whole::of(&lab);
    if whole.strangers() != ground.old.strangers() {
        return tell("an item of another product was changed");
    }
    let ends = [&ground.new, &ground.old, &ground.undone];
    let ends = if output.code == NOT_PROVED { &ends[..1] } else { &ends[..] };
    let states: Vec<Vec<String>> = ends.iter().map(|state| differs(&whole, state)).collect();
    if states.iter().all(|lines| !lines.is_empty()) {
        return tell(&format!("neither old nor new after resume:\n{}\n{repaired}", states[0].join("\n")));
    }
    None
}

#[test]
fn a_failed_or_slow_call_leads_to_the_old_or_the_new_state_and_one_clear_error() {
    let begun = Instant::now();
    let only = std::env::var("CALICO_WIN_MATRIX_ROW").unwrap_or_default();
    let stride = if full() { 1 } else { 61 };
    let (mut faults, found) = (0, Mutex::new(Vec::new()));
    for (row_at, row) in ROWS.iter().enumerate().filter(|(_, row)| row.name.contains(&only)) {
        let ground = Ground::new(row);
        let mut all = Vec::new();
        for (call, actions) in FAULTS {
            let last = ground.calls.count(call.split([' ', '#']).next().unwrap());
            for (at, action) in actions.iter().enumerate() {
                // Different calls for every action and every verb.
                let first = 1 + (at * 3 + row_at) % stride.min(last.max(1));
                all.extend(
                    (first..=last).step_by(stride).map(|n| format!("{call}{action}").replacen('N', &n.to_string(), 1)),
                );
            }
        }
        faults += all.len();
        let what: Vec<String> = side_by_side(&all, |fault| wrong(&ground, fault)).into_iter().flatten().collect();
        what.iter().for_each(|what| println!("{what}\n"));
        println!("{:28} {:5} faults, {:4} wrong", row.name, all.len(), what.len());
        found.lock().unwrap().extend(what);
    }
    println!("fault matrix: {faults} faults in {:.0} s", begun.elapsed().as_secs_f64());
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{} faults ended wrongly:\n{}", found.len(), found.join("\n\n"));
}
