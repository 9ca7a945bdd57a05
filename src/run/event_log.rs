//! The Windows Event Log entry of a run that changed the node, or failed to.

use crate::agent::os::{self, Level};
use crate::fault::Exit;
use crate::report::document::RunResult;

/// Writes it. If Windows refuses, the run's log has the same text.
pub(crate) fn write(command: &str, result: &RunResult) {
    if let Some((level, text)) = entry(command, result) {
        os::event_log(level, &text);
    }
}

/// Returns its text; none for a run that had nothing to do.
fn entry(command: &str, result: &RunResult) -> Option<(Level, String)> {
    if !result.changed && result.error.is_none() {
        return None;
    }
    let level = match &result.error {
        Some(_) if result.exit_code != Exit::Cancelled.code() => Level::Error,
        None if result.warnings.is_empty() => Level::Information,
        _ => Level::Warning,
    };
    let mut text = format!(
        "{command}: {} (exit {}) changed={} reboot={} run={}",
        result.exit_name,
        result.exit_code,
        result.changed,
        result.reboot_required,
        result.run.as_deref().unwrap_or("?")
    );
    let mut more = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text += &format!("\n{name}: {value}");
        }
    };
    more("result", Some(result.msg.clone()));
    if let Some(error) = &result.error {
        more("why", error.why.clone());
        more("to fix it", error.hint.clone());
        more("explained by", Some(format!("calicoctl-win explain {}", error.id)));
    }
    for warning in &result.warnings {
        more("warning", Some(warning.clone()));
    }
    more("generation", result.generation.map(|generation| generation.to_string()));
    more("log", result.log.clone());
    Some((level, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    fn ran(result: RunResult) -> Option<(Level, String)> {
        let run = Some("20261121T080512-0042f1".to_owned());
        entry("upgrade", &RunResult { run, log: Some(r"C:\logs\run.log".into()), ..result })
    }

    #[test]
    fn a_run_that_changed_the_node_says_its_name_and_result() {
        let done = RunResult { generation: Some(2), ..RunResult::new(Exit::Ok, true, "upgraded to v3.33.0") };
        let (level, text) = ran(done.clone()).unwrap();
        assert_eq!(level, Level::Information);
        insta::assert_snapshot!(text, @r"
        upgrade: OK (exit 0) changed=true reboot=false run=20261121T080512-0042f1
        result: upgraded to v3.33.0
        generation: 2
        log: C:\logs\run.log
        ");
        let warned = RunResult { warnings: vec!["DrainSlow: a pod took 90 s".into()], ..done };
        assert_eq!(ran(warned).unwrap().0, Level::Warning);
        assert_eq!(ran(RunResult::new(Exit::Ok, false, "nothing to do")), None);
    }

    #[test]
    fn a_run_that_failed_says_why_and_how_to_fix_it() {
        let failed = |exit| -> RunResult {
            let fault = Fault::new(exit, "ServiceNotSteady", "CalicoFelix does not stay up").hint("look at its log");
            RunResult::failed(&anyhow::Error::from(fault))
        };
        let (level, text) = ran(failed(Exit::FailedRolledBack)).unwrap();
        assert_eq!(level, Level::Error);
        insta::assert_snapshot!(text, @r"
        upgrade: FAILED_ROLLED_BACK (exit 9) changed=false reboot=false run=20261121T080512-0042f1
        result: CalicoFelix does not stay up
        to fix it: look at its log
        explained by: calicoctl-win explain ServiceNotSteady
        log: C:\logs\run.log
        ");
        assert_eq!(ran(failed(Exit::Cancelled)).unwrap().0, Level::Warning);
    }
}
