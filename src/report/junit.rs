//! `-o junit`: a report of checks as test results for CI systems.

use super::document::{Check, CheckStatus, PreflightReport, RunResult};

/// A check is a test case of its group. A failed check fails; an ignored, inapplicable or unknown one is skipped with
/// the reason; a warning passes with its text.
pub fn report(name: &str, report: &PreflightReport) -> String {
    let failed = report.checks.iter().filter(|check| check.status == CheckStatus::Fail && !check.ignored).count();
    let skipped = report.checks.iter().filter(|check| skipped(check)).count();
    let cases: String = report.checks.iter().map(case).collect();
    suite(name, report.checks.len(), failed, 0, skipped, &cases)
}

/// A run without a report.
pub fn failure(result: &RunResult) -> String {
    let Some(error) = &result.error else { return suite("calicoctl-win", 0, 0, 0, 0, "") };
    let text = [Some(error.chain.join("\n")), error.hint.clone()].into_iter().flatten().collect::<Vec<_>>().join("\n");
    let case = format!(
        "  <testcase classname=\"run\" name=\"{}\">\n    <error message=\"{}\" type=\"{}\">{}</error>\n  </testcase>\n",
        escaped(&error.id),
        escaped(&error.what),
        escaped(&result.exit_name),
        escaped(&text)
    );
    suite("calicoctl-win", 1, 0, 1, 0, &case)
}

fn suite(name: &str, tests: usize, failures: usize, errors: usize, skipped: usize, cases: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">\n{cases}</testsuite>\n</testsuites>\n",
        escaped(name)
    )
}

fn skipped(check: &Check) -> bool {
    check.ignored || matches!(check.status, CheckStatus::Skip | CheckStatus::Unknown)
}

fn case(check: &Check) -> String {
    let detail = escaped(&check.detail);
    let advice = |check: &Check| {
        let lines = [("why", &check.why), ("fix", &check.fix)];
        let lines = lines.into_iter().filter_map(|(word, text)| Some(format!("{word}: {}", text.as_ref()?)));
        escaped(&lines.collect::<Vec<_>>().join("\n"))
    };
    let inner = match check.status {
        _ if check.ignored => format!("<skipped message=\"ignored: {detail}\"/>"),
        CheckStatus::Fail => format!("<failure message=\"{detail}\">{}</failure>", advice(check)),
        CheckStatus::Skip => format!("<skipped message=\"{detail}\"/>"),
        CheckStatus::Unknown => format!("<skipped message=\"no result: {detail}\"/>"),
        CheckStatus::Warn => format!("<system-out>warning: {detail}\n{}</system-out>", advice(check)),
        CheckStatus::Ok => format!("<system-out>{detail}</system-out>"),
    };
    let (group, id) = (escaped(&check.group), escaped(&check.id));
    format!("  <testcase classname=\"{group}\" name=\"{id}\">\n    {inner}\n  </testcase>\n")
}

/// Text for XML 1.0, which allows no control characters, escaped or not.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::document::Summary;
    use super::*;

    fn check(id: &str, status: CheckStatus, detail: &str) -> Check {
        Check {
            id: id.into(),
            group: "cluster".into(),
            status,
            ignored: false,
            detail: detail.into(),
            why: Some("because".into()),
            fix: Some("kubectl patch x -p '{\"a\":1}'".into()),
        }
    }

    #[test]
    fn a_report_is_a_suite_of_cases() {
        let ignored = Check { ignored: true, ..check("Later", CheckStatus::Fail, "known") };
        let checks = vec![
            check("Good", CheckStatus::Ok, "v1.33"),
            check("Bad", CheckStatus::Fail, "\"a\" < b & \u{1b}[31mc"),
            check("Hm", CheckStatus::Warn, "careful"),
            check("Open", CheckStatus::Unknown, "403"),
            check("Off", CheckStatus::Skip, "not used"),
            ignored,
        ];
        insta::assert_snapshot!(report("preflight", &PreflightReport { checks, summary: Summary::default() }), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
        <testsuite name="preflight" tests="6" failures="1" errors="0" skipped="3">
          <testcase classname="cluster" name="Good">
            <system-out>v1.33</system-out>
          </testcase>
          <testcase classname="cluster" name="Bad">
            <failure message="&quot;a&quot; &lt; b &amp; [31mc">why: because
        fix: kubectl patch x -p '{&quot;a&quot;:1}'</failure>
          </testcase>
          <testcase classname="cluster" name="Hm">
            <system-out>warning: careful
        why: because
        fix: kubectl patch x -p '{&quot;a&quot;:1}'</system-out>
          </testcase>
          <testcase classname="cluster" name="Open">
            <skipped message="no result: 403"/>
          </testcase>
          <testcase classname="cluster" name="Off">
            <skipped message="not used"/>
          </testcase>
          <testcase classname="cluster" name="Later">
            <skipped message="ignored: known"/>
          </testcase>
        </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn a_run_without_a_report_is_an_error() {
        let error =
            crate::fault::Fault::new(crate::fault::Exit::ClusterUnreachable, "ClusterRefused", "refused").hint("look");
        insta::assert_snapshot!(failure(&RunResult::failed(&error.into())), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
        <testsuite name="calicoctl-win" tests="1" failures="0" errors="1" skipped="0">
          <testcase classname="run" name="ClusterRefused">
            <error message="refused" type="CLUSTER_UNREACHABLE">refused
        look</error>
          </testcase>
        </testsuite>
        </testsuites>
        "#);
    }
}
