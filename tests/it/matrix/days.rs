//! Random days of a node: verbs, other configs, crashes and changes by other programs, in any order. An incomplete
//! change is always reported, items of other products are never changed, `status` is correct, and `uninstall --purge`
//! restores the first state.

use std::fs;

use super::verbs::lived_in;
use super::whole::Whole;
use super::{full, side_by_side};
use crate::lab::Lab;

/// Pseudo-random numbers that are the same for the same day (Numerical Recipes' `ranqd1`).
struct Dice(u32);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % sides
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }
}

const VERBS: [&str; 15] = [
    "install -y",
    "install -y --set spec.services.felixLogSeverity=warning",
    "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000",
    "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=6000 --no-drain",
    "reconfigure -y --set spec.services.felixLogSeverity=debug",
    "reconfigure -y --set spec.calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,RoutingFeature,PoolEncapsulation",
    "reconfigure -y --set spec.calicoNetwork.backend=vxlan",
    "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanAdapter=Storage",
    "upgrade -y --release v3.33.0",
    "plan",
    "rollback -y",
    "repair -y",
    "uninstall -y",
    "resume -y",
    "resume --undo -y",
];

/// The exit codes allowed besides success: killed, rolled back, refused because of the state, and on a node without
/// Calico. Preflight refuses the install of a node that other programs broke.
const MAY_END: [i32; 10] = [0, 137, 3, 9, 13, 16, 19, 20, 22, 24];

const CRASHES: [&str; 6] = [
    "*#N=exit-before",
    "*#N=exit-after",
    "put *#N=exit-within",
    "append *#N=torn",
    "api * /*#N=exit-before",
    "api * /*#N=exit-after",
];

type Deed = fn(&Lab, usize);

/// Changes of the machine by other programs.
const DEEDS: [Deed; 6] = [
    |lab, _| {
        // Without Calico these files are another product's; after a killed run they may be missing.
        let there = fs::read_to_string(lab.on_node("C/CalicoWindows/config.ps1"));
        if there.is_ok_and(|text| text != "by hand") {
            write(lab, "C/CalicoWindows/config.ps1", "# edited by somebody");
        }
    },
    |lab, _| {
        // Whether or not it exists.
        drop(fs::remove_file(lab.on_node("C/Program Files/containerd/cni/bin/calico-ipam.exe")));
    },
    |lab, _| replace(lab, "data: calicoctl-win", "data: somebody"),
    |lab, _| replace(lab, "vsid: 4096", "vsid: 4097"),
    |lab, n| {
        let network = format!("networks:\n  contoso-{n}: {{id: 'c{n}', kind: Internal, subnet: 172.31.{n}.0/24}}\n");
        replace(lab, "networks:\n", &network);
    },
    |lab, n| write(lab, &format!("C/Contoso/contoso-{n}.txt"), "theirs"),
];

fn write(lab: &Lab, path: &str, text: &str) {
    let file = lab.on_node(path);
    if file.parent().unwrap().is_dir() {
        fs::write(file, text).unwrap();
    }
}

fn replace(lab: &Lab, from: &str, to: &str) {
    let yaml = lab.read("node.yaml");
    fs::write(lab.on_node("node.yaml"), yaml.replacen(from, to, 1)).unwrap();
}

/// The items of other products, including those of this day.
fn strangers(lab: &Lab) -> Vec<(String, String)> {
    let now = Whole::now(lab);
    let mut theirs: Vec<_> = now.strangers().into_iter().collect();
    theirs.extend(now.lines().filter(|(name, _)| of_today(name)).map(|(name, text)| (name.into(), text.into())));
    theirs
}

fn of_today(name: &str) -> bool {
    name.contains("contoso-")
}

/// Runs one day, and returns what was wrong with it.
fn run_day(seed: u32) -> Option<String> {
    let mut dice = Dice(seed.wrapping_mul(2_654_435_761));
    let lab = lived_in();
    // The newest release of any of the verbs.
    lab.linux_runs("v3.33.0");
    let first = Whole::of(&lab);
    let mut diary = vec![format!("day {seed}")];
    for hour in 0..8 {
        if dice.roll(4) == 0 {
            let deed = dice.roll(DEEDS.len());
            DEEDS[deed](&lab, hour);
            diary.push(format!("others: {deed}"));
            continue;
        }
        let words = if hour == 0 { VERBS[0] } else { dice.pick(&VERBS) };
        let fault = match dice.roll(12) {
            kind @ 0..6 => CRASHES[kind].replace('N', &(1 + dice.roll(60)).to_string()),
            6 | 7 => format!("put *#{}=fail", 1 + dice.roll(20)),
            _ => String::new(),
        };
        let theirs = strangers(&lab);
        let output = lab.fails_at(&fault, words);
        diary.push(format!("{words} {fault} -> {}", output.code));
        let tell = |what: &str| Some(format!("{}\n{what}\n{output}", diary.join("\n")));
        if !MAY_END.contains(&output.code) {
            return tell("it ends with an exit code that is not allowed");
        }
        if strangers(&lab) != theirs {
            return tell("an item of another product was changed");
        }
        if output.code == 0 && words != "plan" && !Whole::is_at_rest(&lab) {
            return tell("it succeeds, and a change is incomplete");
        }
        if let Some(lie) = wrong_status(&lab) {
            return tell(&lie);
        }
    }
    let theirs = strangers(&lab);
    let ended = lab.run("uninstall --purge -y");
    diary.push(format!("uninstall --purge -> {}", ended.code));
    let mut left = Whole::of(&lab).without_calicos_notes().against(&first.without_calicos_notes());
    left.retain(|line| !of_today(line));
    if strangers(&lab) != theirs {
        left.push("an item of another product was changed".into());
    }
    let own = lab.on_node("C/ProgramData/calicoctl-win").exists();
    (ended.code != 0 || !left.is_empty() || own)
        .then(|| format!("{}\nnot the first state:\n{}\n{ended}", diary.join("\n"), left.join("\n")))
}

/// Returns an incorrect statement of `status`.
fn wrong_status(lab: &Lab) -> Option<String> {
    let output = lab.run("status -o json");
    let Ok(status) = serde_json::from_str::<serde_json::Value>(&output.stdout) else {
        return Some(format!("status: {output}"));
    };
    let overall = status["overall"].as_str().unwrap_or_default();
    let half_way = lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists();
    if half_way != (status["run"]["interrupted"] == true && !status["run"]["command"].is_null())
        && !lab.on_node("C/ProgramData/calicoctl-win/state/cordon.json").exists()
    {
        return Some(format!("status on an interrupted run ({half_way}): {status}"));
    }
    if half_way {
        return (overall == "Healthy").then(|| format!("incomplete, and healthy: {status}"));
    }
    let registered = lab.read("node.yaml").contains("CalicoNode:");
    match overall {
        "Healthy" => {
            let plan = lab.run("repair --dry-run -o json");
            let changes = serde_json::from_str::<serde_json::Value>(&plan.stdout).unwrap_or_default();
            let none = changes["plan"]["changes"].as_array().is_some_and(Vec::is_empty);
            (!none || !registered).then(|| format!("healthy, and a repair has something to do: {plan}"))
        }
        "NotInstalled" => registered.then(|| format!("not installed, and CalicoNode is registered: {status}")),
        _ => None,
    }
}

#[test]
fn after_random_days_the_node_is_consistent_and_can_be_restored() {
    let days = if full() { 100 } else { 30 };
    let first = std::env::var("CALICO_WIN_MATRIX_DAY").ok().and_then(|day| day.parse().ok()).unwrap_or(1);
    let days: Vec<u32> = (first..first + days).collect();
    let wrong: Vec<String> = side_by_side(&days, |day| run_day(*day)).into_iter().flatten().collect();
    println!("{} random days, from {first}: CALICO_WIN_MATRIX_DAY chooses the first", days.len());
    assert!(wrong.is_empty(), "{} days went wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}
