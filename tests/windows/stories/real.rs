//! Programs that link what Calico, kubelet and kube-proxy link, on a machine of the tests. `packaging/real/prepare.sh`
//! builds them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::machine::Machine;

/// A built part; none, with a printed explanation, if it was not built. `CALICOCTL_WIN_REAL=require` makes that a
/// failure.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what they did not")]
pub(crate) fn part(file: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real").join(file);
    if built.is_file() {
        return Some(built);
    }
    assert_ne!(std::env::var("CALICOCTL_WIN_REAL").as_deref(), Ok("require"), "{} is not built", built.display());
    eprintln!("skipped: {file} is not built; packaging/real/prepare.sh builds it");
    None
}

/// How many questions `tests/real/hns` asks: one that is no longer asked is missed here.
const QUESTIONS: usize = 165;

#[test]
fn hns_answers_what_calico_kubelet_and_kube_proxy_ask_as_real_hns_does() {
    let Some(program) = part("hns.exe") else { return };
    let Some(machine) = Machine::new() else { return };
    let ended = machine.run_program(&program.to_string_lossy(), &[]);
    let rows: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wrong: Vec<String> = rows.iter().filter(|row| row["ok"] != true).map(|row| format!("{row:#}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((rows.len(), ended.code), (QUESTIONS, 0), "{}", ended.stderr);
}
