//! The process of a run is killed, or the power goes under it, at one point after another: whatever is
//! then resumed stands in the new state, and whatever is undone in the old one.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::house::{House, SOON};
use crate::picture::Picture;

/// A verb that changes a node.
struct Verb {
    name: &'static str,
    node: fn() -> Option<House>,
    words: &'static str,
    /// At how many points of the run it ends.
    points: usize,
}

/// What ends the run.
#[derive(Debug, Clone, Copy)]
enum End {
    /// TerminateProcess, which is SIGKILL under Wine.
    Killed,
    PowerCut,
}

/// How far a run is: the events that it told and the lines that its journal had at most.
struct Progress<'a> {
    house: &'a House,
    journal: usize,
}

impl Progress<'_> {
    fn now(&mut self) -> usize {
        let lines = |path: &str| std::fs::read(self.house.machine.c(path)).unwrap_or_default().split(|b| *b == b'\n').count();
        self.journal = self.journal.max(lines(r"ProgramData\calicoctl-win\journal.jsonl"));
        lines("said") + self.journal
    }
}

impl Verb {
    fn start(&self, house: &House) -> Child {
        let words: Vec<&str> = self.words.split_whitespace().chain(["-o", "ndjson"]).collect();
        house.machine.start_to_kill(&words, "said")
    }

    /// Runs it to its end; how far it came.
    fn whole(&self, house: &House) -> usize {
        let mut run = self.start(house);
        let mut progress = Progress { house, journal: 0 };
        let mut far = 0;
        while run.try_wait().unwrap().is_none() {
            far = far.max(progress.now());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(run.wait().unwrap().success(), "{}: {}", self.name, house.read("said"));
        far
    }

    /// Runs it until it is so far, and ends it there.
    fn ended_at(&self, house: &House, point: usize, end: End) {
        let mut run = self.start(house);
        let mut progress = Progress { house, journal: 0 };
        let begun = Instant::now();
        while progress.now() < point && run.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < SOON, "{}: point {point} never came", self.name);
            std::thread::sleep(Duration::from_micros(300));
        }
        match end {
            End::Killed => run.kill().unwrap(),
            End::PowerCut => house.machine.cut_power(),
        }
        run.wait().unwrap();
    }
}

fn interrupted(house: &House) -> bool {
    house.machine.c(r"ProgramData\calicoctl-win\journal.jsonl").exists()
}

fn picture(house: &mut House) -> Picture {
    if house.machine.c(r"ProgramData\calicoctl-win\receipts").exists() && house.status()["overall"] != "NotInstalled" {
        house.until_healthy();
    }
    house.machine.cut_power();
    Picture::of_machine_that_is_off(&house.machine)
}

fn ends_old_or_new(verb: &Verb) {
    let Some(mut house) = (verb.node)() else { return };
    let base = house.save();
    house.load(&base);
    let old = picture(&mut house);
    house.load(&base);
    let t = Instant::now();
    let far = verb.whole(&house);
    eprintln!("{} whole run {:?}, progress {far}", verb.name, t.elapsed());
    let new = picture(&mut house);
    for n in 1..=verb.points {
        let point = far * n / (verb.points + 1);
        let end = if n % 2 == 0 { End::Killed } else { End::PowerCut };
        let t = Instant::now();
        house.load(&base);
        eprintln!("load {:?}", t.elapsed());
        let t = Instant::now();
        verb.ended_at(&house, point, end);
        eprintln!("to point {point}: {:?}", t.elapsed());
        let t = Instant::now();
        let there = house.save();
        eprintln!("save {:?}", t.elapsed());
        let journal = interrupted(&house);
        let tail = house.read(r"ProgramData\calicoctl-win\journal.jsonl");
        eprintln!("{n} {end:?} journal {journal} {}", tail.lines().last().unwrap_or_default().chars().take(100).collect::<String>());
        for words in ["resume -y", "resume --undo -y"] {
            let t = Instant::now();
            house.load(&there);
            let l = t.elapsed();
            house.run(words).exits(0);
            let r = t.elapsed();
            let then = picture(&mut house);
            eprintln!("{words}: load {l:?} run {r:?} picture {:?}", t.elapsed());
            let of = if words == "resume -y" && journal { "new" } else { "old" };
            let reference = if of == "new" { &new } else { &old };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| then.same_as_before(reference, words)));
            if let Err(e) = result { eprintln!("DIFF {} vs {of}\n{}", words, e.downcast_ref::<String>().unwrap()); }
        }
    }
}

fn installed() -> Option<House> {
    let house = House::installed()?;
    house.machine.file("k/config", house.read(r"test\kubeconfig"));
    house.until_healthy();
    Some(house)
}

#[test]
fn a_change_of_the_vni() {
    let words = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";
    ends_old_or_new(&Verb { name: "VNI", node: installed, words, points: 3 });
}
