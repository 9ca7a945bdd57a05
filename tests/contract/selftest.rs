//! The rows of `selftest` are part of the contract: they hold on both nodes.

use std::path::Path;

use calicoctl_win::report::answer::Verdict;
use calicoctl_win::selftest::{self, Hold, Program, Reach, TestContext};
use calicoctl_win::values::WinPath;

use crate::nodes::on_each;
use crate::wine_rows::OTHERWISE;

fn otherwise_under_wine(id: &str) -> bool {
    let wine = Path::new(r"C:\windows\system32\winecfg.exe").exists();
    wine && OTHERWISE.contains(&id)
}

fn every_row_holds(reach: Reach) {
    on_each(|node| {
        let real = node.disk(&WinPath::known(r"C:\")) == Path::new(r"C:\");
        let program = Program { path: env!("CARGO_BIN_EXE_calicoctl-win").into(), words: Vec::new(), real };
        let _hold = (reach > Reach::Reads).then(|| Hold::take(node).unwrap());
        let report = selftest::run(&mut TestContext::new(node, program, None).unwrap(), reach, &mut |_| ());
        for row in &report.rows {
            let fails = real && otherwise_under_wine(&row.id);
            assert!(fails || row.verdict != Verdict::Fail, "{row:#?}");
        }
        assert_eq!((report.removed.len(), report.left.len()), (0, 0), "{report:#?}");
    });
}

#[test]
fn every_row_that_only_reads_holds() {
    every_row_holds(Reach::Reads);
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn every_row_holds_and_leaves_nothing() {
    every_row_holds(Reach::Changes);
}
