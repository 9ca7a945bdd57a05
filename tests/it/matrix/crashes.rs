//! The crash matrix: the process ends at every journal write, every put (before, in the middle,
//! after), every look while something is awaited and every question to the API. Then `resume`, in a
//! copy `resume --undo`, and for a sample both again after a crash of the recovery.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use super::verbs::{ROWS, Row};
use super::whole::Whole;
use super::{full, side_by_side, stride};
use crate::lab::{Lab, Output};

/// The calls at which the process ends, and how many of them there can be at most.
const ENDS: [&str; 8] = [
    "*#N=exit-before",
    "*#N=exit-after",
    "put *#N=exit-within",
    "save *#N=exit-within",
    "append *#N=torn",
    "get network*#N=exit-before",
    "api * /*#N=exit-before",
    "api * /*#N=exit-after",
];

const KILLED: i32 = 137;

/// What the ways of one row have in common.
pub struct Ground<'a> {
    pub row: &'a Row,
    pub start: Lab,
    pub old: Whole,
    /// Where a run that is undone goes: the old state, but for what somebody had done to it.
    pub undone: Whole,
    pub new: Whole,
    /// Moments from which both ways were gone already.
    known: Mutex<HashSet<u64>>,
    /// What did not end whole, a paragraph each.
    wrong: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Tally {
    points: usize,
    moments: usize,
    again: usize,
}

impl<'a> Ground<'a> {
    pub fn new(row: &'a Row) -> Self {
        let start = (row.start)();
        let undone = Whole::of(&start);
        (row.drift)(&start);
        let old = Whole::of(&start);
        let done = start.copy();
        let _done = done.run(row.words).exits(0);
        let new = Whole::of(&done);
        assert!(!new.against(&old).is_empty(), "{}: nothing changes", row.name);
        assert_eq!(new.strangers(), old.strangers(), "{}: a stranger was touched", row.name);
        Self { row, start, old, undone, new, known: Mutex::default(), wrong: Mutex::default() }
    }

    /// Ends the verb there. None when it does not come by there.
    fn killed(&self, fault: &str) -> Option<Lab> {
        let lab = self.start.copy();
        let output = lab.fails_at(fault, self.row.words);
        self.was_killed(fault, &output).then_some(lab)
    }

    fn was_killed(&self, fault: &str, output: &Output) -> bool {
        match output.code {
            KILLED => true,
            0 => false,
            _ => panic!("{}: {fault}: {output}", self.row.name),
        }
    }

    /// Goes both ways from a moment, if nobody did so from the same.
    fn both_ways(&self, lab: &Lab, at: &str) -> bool {
        if !self.known.lock().unwrap().insert(Whole::moment(lab)) {
            return false;
        }
        let back = lab.copy();
        self.ends(&back, "resume --undo -y", at);
        self.ends(lab, "resume -y", at);
        true
    }

    /// A recovery leads to the new state or the old one: the one it goes to if anything of the node
    /// was half-way.
    fn ends(&self, lab: &Lab, words: &str, at: &str) {
        let half_way = lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists();
        let output = lab.run(words);
        let wrong = |what: &str| {
            let paragraph = format!("{}: {at}: {words}: {what}\n{output}", self.row.name);
            self.wrong.lock().unwrap().push(paragraph);
        };
        if output.code != 0 || !Whole::is_at_rest(lab) {
            return wrong("the recovery does not end");
        }
        let whole = Whole::of(lab);
        if whole.strangers() != self.old.strangers() {
            return wrong("a stranger was touched");
        }
        let old = if half_way { &self.undone } else { &self.old };
        let (mut from_old, mut from_new) = (whole.against(old), whole.against(&self.new));
        // What a generation needs may be in the store already.
        from_old.retain(|line| !whole.is_needed(line));
        from_new.retain(|line| !whole.is_needed(line));
        match (half_way, words.contains("--undo")) {
            (true, true) if !from_old.is_empty() => wrong(&format!("not the old state:\n{}", from_old.join("\n"))),
            (true, false) if !from_new.is_empty() => wrong(&format!("not the new state:\n{}", from_new.join("\n"))),
            (false, _) if !from_old.is_empty() && !from_new.is_empty() => wrong(&format!(
                "neither the old state:\n{}\nnor the new one:\n{}",
                from_old.join("\n"),
                from_new.join("\n")
            )),
            _ => {}
        }
    }

    /// Every point of one kind, as far as the verb goes.
    fn points(&self) -> Vec<String> {
        let mut points = Vec::new();
        for (at, end) in ENDS.iter().enumerate() {
            let last = self.last(end);
            // Another offset for each kind, so that a sample is not always of the same calls.
            points.extend((1 + at % stride()..=last).step_by(stride()).map(|n| end.replace('N', &n.to_string())));
        }
        points
    }

    /// The last call of a kind that the verb makes, found by halving.
    pub fn last(&self, end: &str) -> usize {
        let call = end.rsplit_once('=').unwrap().0;
        // What has no middle does not end, so it is asked for by its beginning.
        let probe = |n: usize| {
            let lab = self.start.copy();
            let fault = format!("{}=exit-before", call.replace('N', &n.to_string()));
            let output = lab.fails_at(&fault, self.row.words);
            self.was_killed(&fault, &output)
        };
        let mut beyond = 16;
        while probe(beyond) {
            beyond *= 2;
        }
        let mut reached = if beyond == 16 { 0 } else { beyond / 2 };
        while beyond - reached > 1 {
            let middle = (reached + beyond) / 2;
            if probe(middle) {
                reached = middle;
            } else {
                beyond = middle;
            }
        }
        reached
    }

    fn matrix(&self) -> Tally {
        let points = self.points();
        let met = side_by_side(&points, |fault| {
            let lab = self.killed(fault)?;
            let new = self.both_ways(&lab, fault);
            Some(new)
        });
        let points_met = met.iter().flatten().count();
        let moments = met.iter().flatten().filter(|new| **new).count();
        Tally { points: points_met, moments, again: self.again(&points) }
    }

    /// Crashes of the recovery: from a few first points, at a sample of its own, in both directions.
    fn again(&self, points: &[String]) -> usize {
        let firsts = if full() { 6 } else { 1 };
        let mut seconds = Vec::new();
        for first in points.iter().step_by(points.len().div_ceil(firsts).max(1)) {
            for (at, words) in ["resume -y", "resume --undo -y"].into_iter().enumerate() {
                let step = if full() { 9 } else { 29 };
                for n in (1 + at..60).step_by(step) {
                    for end in ["*#N=exit-after", "put *#N=exit-within", "api * /*#N=exit-before"] {
                        seconds.push((first.clone(), words, end.replace('N', &n.to_string())));
                    }
                }
            }
        }
        let met = side_by_side(&seconds, |(first, words, second)| {
            let Some(lab) = self.killed(first) else { return 0 };
            let output = lab.fails_at(second, words);
            if !self.was_killed(second, &output) {
                return 0;
            }
            self.both_ways(&lab, &format!("{first}, then {words} {second}"));
            1
        });
        met.into_iter().sum()
    }
}

#[test]
fn a_verb_that_ends_anywhere_is_finished_or_undone() {
    let begun = Instant::now();
    let only = std::env::var("CALICO_WIN_MATRIX_ROW").unwrap_or_default();
    let mut tallies = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in ROWS.iter().filter(|row| row.name.contains(&only)) {
        let since = Instant::now();
        let ground = Ground::new(row);
        let tally = ground.matrix();
        let ended_wrong = ground.wrong.into_inner().unwrap();
        ended_wrong.iter().for_each(|what| println!("{what}\n"));
        wrong.extend(ended_wrong);
        println!(
            "{:28} {:5} points, {:4} different moments, {:4} crashes of the recovery, {:4.0} s",
            row.name,
            tally.points,
            tally.moments,
            tally.again,
            since.elapsed().as_secs_f64()
        );
        tallies.insert(row.name, tally);
    }
    let points: usize = tallies.values().map(|tally| tally.points + tally.again).sum();
    println!("crash matrix: {points} points in {:.0} s", begun.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "{} recoveries went wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    if full() && only.is_empty() {
        assert!(points >= 1000, "only {points} points");
    }
}
