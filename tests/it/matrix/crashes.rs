//! The crash matrix: the process is killed at every journal write, every put (before, in the middle, after), every poll
//! of a wait and every request to the API. Then `resume`, and in a copy `resume --undo`; for a sample, both again after
//! a crash of the recovery.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use calicoctl_win::node::Node as _;
use calicoctl_win::node::sandbox::SandboxNode;

use super::calls::{Calls, Point, spread};
use super::verbs::{KUBELET_ROWS, ROWS, Row};
use super::whole::Whole;
use super::{full, side_by_side};
use crate::lab::{Lab, Output};

const KILLED: i32 = 137;

/// What the recoveries of one row share.
pub struct Ground<'a> {
    pub row: &'a Row,
    pub start: Lab,
    pub old: Whole,
    /// The result of undoing a run: the old state, except for the drift before it.
    pub undone: Whole,
    pub new: Whole,
    /// The calls of the verb.
    pub calls: Calls,
    /// States from which both recoveries were tested already.
    known: Mutex<HashSet<u64>>,
    /// The failures, a paragraph each.
    wrong: Mutex<Vec<String>>,
}

/// The number of points of a row.
#[derive(Default)]
struct Tally {
    /// By kind, which is the suffix of the fault.
    points: BTreeMap<&'static str, usize>,
    /// How many of them left a state that no other point left.
    moments: usize,
    /// Crashes of the recovery.
    again: usize,
}

impl Tally {
    fn all(&self) -> usize {
        self.points.values().sum::<usize>() + self.again
    }
}

impl<'a> Ground<'a> {
    pub fn new(row: &'a Row) -> Self {
        let start = (row.start)();
        let undone = Whole::of(&start);
        (row.drift)(&start);
        let old = Whole::of(&start);
        let done = start.copy();
        let calls = Calls::of(&done, row.words);
        let new = Whole::of(&done);
        assert!(!new.against(&old).is_empty(), "{}: nothing changes", row.name);
        // A machine without containerd gets it, and a kubelet of ours is no stranger.
        let is_there = |(name, text): (&String, &String)| {
            let may_be_ours = [("services/containerd", "containerd"), ("services/kubelet", "our kubelet")];
            text != "gone" || may_be_ours.iter().any(|(own, word)| name == own && row.name.contains(word))
        };
        assert!(old.strangers().iter().all(is_there), "{:?}", old.strangers());
        assert_eq!(new.strangers(), old.strangers(), "{}: a stranger was touched", row.name);
        Self { row, start, old, undone, new, calls, known: Mutex::default(), wrong: Mutex::default() }
    }

    /// Kills the verb there. None if it does not reach the point.
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

    /// Tests both recoveries from a state, unless the same state was tested before.
    fn both_ways(&self, lab: &Lab, at: &str) -> bool {
        if !self.known.lock().unwrap().insert(Whole::moment(lab)) {
            return false;
        }
        let back = lab.copy();
        self.ends(&back, "resume --undo -y", at);
        self.ends(lab, "resume -y", at);
        true
    }

    /// A recovery leads to the new state or the old one: to its target if a change on the node is incomplete.
    fn ends(&self, lab: &Lab, words: &str, at: &str) {
        let half_way = lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists();
        let on_their_way = Whole::addresses_are_on_their_way(lab);
        let output = lab.run(words);
        let wrong = |what: &str| {
            let paragraph = format!("{}: {at}: {words}: {what}\n{output}", self.row.name);
            self.wrong.lock().unwrap().push(paragraph);
        };
        if output.code != 0 || !Whole::is_at_rest(lab) {
            return wrong("the recovery does not end");
        }
        if on_their_way {
            // HNS lost its caller while deleting a virtual switch. Windows restores the addresses anyway, in
            // seconds that the sandbox counts only during waits.
            SandboxNode::open(&lab.path("node")).unwrap().pause(Duration::from_secs(60));
        }
        let whole = Whole::of(lab);
        if whole.strangers() != self.old.strangers() {
            return wrong("a stranger was touched");
        }
        // After an uninstall that is over, this restores what other programs had installed before it.
        if !half_way && output.stdout.contains("is back, as it was before the uninstall") {
            return;
        }
        let old = if half_way { &self.undone } else { &self.old };
        let (mut from_old, mut from_new) = (whole.against(old), whole.against(&self.new));
        // A recovery that had reverted everything before it was killed leaves no incomplete change, and no drift.
        if !half_way && whole.against(&self.undone).len() < from_old.len() {
            from_old = whole.against(&self.undone);
        }
        // The store may already have what a generation needs.
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

    /// Tests the points of the verb, or a sample of every kind.
    fn matrix(&self, sample: usize) -> Tally {
        let points = spread(self.calls.points(), sample);
        let mut tally = Tally::default();
        for (kind, new) in side_by_side(&points, |point| {
            let lab = self.killed(&point.fault)?;
            Some((point.kind, self.both_ways(&lab, &point.to_string())))
        })
        .into_iter()
        .flatten()
        {
            *tally.points.entry(kind).or_default() += 1;
            tally.moments += usize::from(new);
        }
        tally.again = self.again(&points, sample);
        tally
    }

    /// Tests crashes of the recovery, in both directions: from a few points that leave an incomplete change, at points
    /// of the recovery.
    fn again(&self, points: &[Point], sample: usize) -> usize {
        let firsts = if sample == usize::MAX { 6 } else { 2 };
        let candidates = spread(points.iter().collect(), firsts * 4);
        let half_way = side_by_side(&candidates, |first| {
            let lab = self.killed(&first.fault).filter(|lab| !Whole::is_at_rest(lab))?;
            Some((*first, lab))
        });
        let half_way = spread(half_way.into_iter().flatten().collect(), firsts);
        let ways: Vec<_> =
            half_way.iter().flat_map(|at| ["resume -y", "resume --undo -y"].map(|words| (at, words))).collect();
        let seconds = side_by_side(&ways, |((first, lab), words)| {
            let points =
                spread(Calls::of(&lab.copy(), words).points(), if sample == usize::MAX { 60 } else { sample / 10 });
            points.into_iter().map(|second| (*first, lab, *words, second)).collect::<Vec<_>>()
        });
        let seconds: Vec<_> = seconds.into_iter().flatten().collect();
        let met = side_by_side(&seconds, |(first, lab, words, second)| {
            let lab = lab.copy();
            let output = lab.fails_at(&second.fault, words);
            if !self.was_killed(&second.fault, &output) {
                return 0;
            }
            self.both_ways(&lab, &format!("{first}, then {words} {second}"));
            1
        });
        met.into_iter().sum()
    }
}

/// How many points of a row are tested in a sample, without crashes of the recovery.
const SAMPLE: usize = 90;

/// The same of a row of [`KUBELET_ROWS`]: their engine is that of the other rows.
const KUBELET_SAMPLE: usize = 14;

/// Tests the rows: all points, or a sample of each with at least so many points together.
fn test(rows: &[Row], sample: usize, at_least: usize) {
    let begun = Instant::now();
    let only = std::env::var("CALICO_WIN_MATRIX_ROW").unwrap_or_default();
    let sample = if full() { usize::MAX } else { sample };
    let rows: Vec<&Row> = rows.iter().filter(|row| row.name.contains(&only)).collect();
    let (mut points, mut wrong) = (0, Vec::new());
    for ground in side_by_side(&rows, |row| Ground::new(row)) {
        let since = Instant::now();
        let tally = ground.matrix(sample);
        let ended_wrong = ground.wrong.into_inner().unwrap();
        ended_wrong.iter().for_each(|what| println!("{what}\n"));
        wrong.extend(ended_wrong);
        let kinds: Vec<String> = tally.points.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!(
            "{:28} {:5} points ({}, {} of the recovery), {} different moments, {:.0} s",
            ground.row.name,
            tally.all(),
            kinds.join(", "),
            tally.again,
            tally.moments,
            since.elapsed().as_secs_f64()
        );
        points += tally.all();
    }
    println!("crash matrix: {points} points in {:.0} s", begun.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "{} recoveries went wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(points >= at_least || !only.is_empty(), "only {points} points");
}

#[test]
fn a_verb_that_is_killed_anywhere_is_finished_or_undone() {
    test(&ROWS, SAMPLE, 1000);
}

#[test]
fn an_upgrade_rollback_or_removal_of_our_kubelet_that_is_killed_is_finished_or_undone() {
    test(&KUBELET_ROWS, KUBELET_SAMPLE, 60);
}
