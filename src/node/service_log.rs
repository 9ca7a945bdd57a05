//! The last lines that one of our services wrote, to show why it did not start.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::files::end_of;
use crate::calico::services::Role;

/// How many lines are shown, and how much of each.
const LINES: usize = 3;
const CHARS: usize = 300;
/// How much of a log's end is read.
const TAIL: u64 = 8 * 1024;

/// Returns the last lines that a service wrote since `since`, and the path of the log. It writes to `log_dir`, or to
/// `own_dir` if it could not learn its log folder.
pub fn hint(service: &str, log_dir: &Path, own_dir: &Path, since: SystemTime) -> String {
    let log = |role: Role, end: &str| log_dir.join(format!("{}{end}", role.log()));
    // A kubelet of another program has no log here.
    let ours = |role: &Role| role.is_calicos() || log(*role, ".log").exists();
    let Some(role) = Role::of_service(service).filter(ours) else {
        return "look at the service's log and at Windows's System event log for the reason".into();
    };
    let logs = [log(role, ".log"), log(role, ".err.log"), own_dir.join(format!("service-{}.log", role.word()))];
    let written = |path: &PathBuf| fs::metadata(path).and_then(|about| about.modified()).ok();
    let newest = logs.iter().filter_map(|path| Some((written(path)?, path))).filter(|(at, _)| *at >= since).max();
    let lines = newest.map(|(_, path)| last_lines(path)).unwrap_or_default();
    match (newest, lines.is_empty()) {
        (Some((_, path)), false) => format!("its log ends with: {} (all of it: {})", lines.join(" | "), path.display()),
        _ => format!(
            "it wrote nothing to its log {}; look at Windows's System event log for the reason",
            logs[0].display()
        ),
    }
}

/// The last lines that are not empty, without terminal control characters.
fn last_lines(path: &Path) -> Vec<String> {
    let text = end_of(path, TAIL).unwrap_or_default();
    let shown = |line: &str| line.chars().filter(|c| !c.is_control()).take(CHARS).collect::<String>();
    let lines: Vec<String> = text.lines().map(|line| shown(line.trim())).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::calico::services::NODE;

    #[test]
    fn the_newest_log_is_quoted_and_older_ones_are_not() {
        let (logs, own) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let now = SystemTime::now();
        let write = |path: PathBuf, text: &str, at: SystemTime| {
            fs::write(&path, text).unwrap();
            File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        };
        let says = || {
            let text = hint(NODE, logs.path(), own.path(), now);
            text.replace(logs.path().to_str().unwrap(), "LOGS").replace(own.path().to_str().unwrap(), "OWN")
        };
        let soon = |seconds| now + Duration::from_secs(seconds);
        write(logs.path().join("calico-node.log"), "of yesterday\n", now - Duration::from_secs(60));
        assert_eq!(
            says().replace('\\', "/"),
            "it wrote nothing to its log LOGS/calico-node.log; look at Windows's System event log for the reason"
        );
        write(own.path().join("service-node.log"), "one\ntwo\n\nthree\nerror: \u{1b}[31mno \u{7}config\n", soon(1));
        assert_eq!(
            says().replace('\\', "/"),
            "its log ends with: two | three | error: [31mno config (all of it: OWN/service-node.log)"
        );
        let long = "x".repeat(20_000);
        write(logs.path().join("calico-node.err.log"), &format!("{long}\nlast\n"), soon(2));
        let said = says();
        assert!(said.contains(" | last (all of it: LOGS") && said.len() < 500, "{said}");
        assert!(hint("kubelet", logs.path(), own.path(), now).contains("System event log"));
    }
}
