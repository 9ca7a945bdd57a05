//! `policy lint`: what Windows makes of network policies, in a cluster or in files.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;

use crate::cluster::lint_etcd;
use crate::fault::{Exit, Fault};
use crate::policy::{Calico, Finding, Item, KINDS, Linter, PolicyReport, Severity};
use crate::report::document::{Check, CheckStatus, PreflightReport, Summary};
use crate::report::junit;
use crate::report::reporter::Format;
use crate::report::text::advice;
use crate::run::app::App;
use crate::run::context::Remote;
use crate::run::{Ending, login};
use crate::values::count;
use crate::version::ReleaseLine;
use crate::yaml::encoding;
use crate::yaml::{self, Malformed};

/// The endings of files that a folder is read for.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The largest file that is read.
const MOST_BYTES: u64 = 256 << 20;

pub(crate) fn lint(files: &[PathBuf], line: Option<ReleaseLine>, app: &mut App) -> Result<Ending> {
    let mut linter = Linter::default();
    if let Some(line) = line {
        linter.read_by(Calico::Line(line));
    }
    if files.is_empty() {
        let remote = Remote::open(app, true)?;
        let in_etcd = read_etcd(app, &remote, &mut linter)?;
        let read = remote.cluster.lint(&mut linter, in_etcd);
        remote.cluster.take_events().iter().for_each(|event| app.event(event));
        read?;
    } else {
        read(files, &mut linter)?;
    }
    let report = linter.report();
    let exit = if report.summary.fail > 0 { Exit::PreflightFailed } else { Exit::Ok };
    let said = said(&report);
    if app.reporter.format() == Format::Junit {
        app.reporter.raw(&junit::report("calicoctl-win policy lint", &checks(&report)));
    } else {
        // With ten thousand findings the text is large, and the other formats do not show it.
        let text = if app.reporter.is_text() { text(&report, app.global.quiet) } else { String::new() };
        app.reporter.document(&report, &text);
    }
    Ending::shown(exit, said)
}

/// Reads Calico's policies from etcd, if they are there and this machine can read it; false if not.
fn read_etcd(app: &mut App, remote: &Remote, linter: &mut Linter) -> Result<bool> {
    let Some(node) = remote.node.as_deref().filter(|_| remote.run.etcd) else { return Ok(false) };
    let namespace = remote.facts(app)?.calico_namespace;
    let (members, etcd) = login::etcd_client(app, node, &remote.cluster, (&remote.layered, &remote.run), &namespace)?;
    if members.is_empty() {
        return Ok(false);
    }
    lint_etcd(&members, etcd.files.as_ref(), remote.run.connection.timeout, linter)?;
    Ok(true)
}

/// Reads policies from files and folders; at least one must have a policy, because a wrong path has no findings either.
fn read(files: &[PathBuf], linter: &mut Linter) -> Result<()> {
    let mut any = false;
    for path in files {
        for file in expanded(path)? {
            let name: Rc<str> = if is_stdin(&file) { "stdin".into() } else { file.display().to_string().into() };
            read_file(&file, &name, &mut |item| any |= linter.item(item, &name))?;
        }
    }
    if any {
        return Ok(());
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Err(invalid(format!("there is no network policy in {}", names.join(", ")))
        .hint("give files with network policies of any kind, as kubectl and calicoctl get them with -o yaml")
        .into())
}

fn invalid(what: String) -> Fault {
    Fault::new(Exit::InvalidConfig, "PolicyFileInvalid", what)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The files of a folder, in order.
fn expanded(path: &Path) -> Result<Vec<PathBuf>> {
    if is_stdin(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable =
        |error: std::io::Error| invalid(format!("cannot read the folder {}", path.display())).because(error);
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| ENDINGS.iter().any(|one| one.eq_ignore_ascii_case(ending))) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(file: &Path, name: &str, take: &mut impl FnMut(Item)) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        invalid(format!("cannot read the policies in {name}"))
            .hint("name a file, a folder, or - for stdin with --file")
            .because(error)
    };
    let mut bytes = Vec::new();
    if is_stdin(file) {
        std::io::stdin().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        let open = std::fs::File::open(file).map_err(unreadable)?;
        open.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if bytes.len() as u64 > MOST_BYTES {
        let fault = invalid(format!("{name} is larger than {} MiB", MOST_BYTES >> 20));
        return Err(fault.hint("split the file").into());
    }
    let text = encoding::decode(&bytes)
        .map_err(|why| invalid(format!("{name}: {why}")).hint("save the file as UTF-8, then run the command again"))?;
    drop(bytes);
    parse(&text, take).map_err(|why| {
        invalid(format!("{name}: {why}"))
            .hint("correct the file; to see what the API accepts: kubectl apply --dry-run=server -f FILE")
            .into()
    })
}

/// Reads documents one at a time: a file may have ten thousand. JSON is YAML too, but is read faster as what it is.
fn parse(text: &str, take: &mut impl FnMut(Item)) -> Result<(), Malformed> {
    if text.trim_start().starts_with('{') {
        let items: serde_json::Result<Vec<Item>> =
            serde_json::Deserializer::from_slice(text.as_bytes()).into_iter().collect();
        if let Ok(items) = items {
            items.into_iter().for_each(take);
            return Ok(());
        }
    }
    for (line, document) in documents(text) {
        let item = yaml::read_large(document).map_err(|why| Malformed { line: why.line + line, ..why })?;
        item.into_iter().for_each(&mut *take);
    }
    Ok(())
}

/// The documents of a text, each with the number of lines before it. No text in YAML can have `---` where a line begins.
fn documents(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = Some((0, text));
    std::iter::from_fn(move || {
        let (line, text) = rest.take()?;
        // Directives, such as %YAML, belong to the document after them.
        let ends = |at: &usize| text[at + 4..].chars().next().is_none_or(char::is_whitespace);
        let next = text.match_indices("\n---").map(|(at, _)| at).find(ends).filter(|_| !text.starts_with('%'));
        let document = next.map_or(text, |at| &text[..=at]);
        rest = next.map(|at| (line + document.bytes().filter(|byte| *byte == b'\n').count(), &text[at + 1..]));
        Some((line, document))
    })
}

fn said(report: &PolicyReport) -> String {
    let summary = &report.summary;
    let counted = |number: u64, what: &str| count(usize::try_from(number).unwrap_or(usize::MAX), what);
    format!(
        "{}: {}, {}",
        policies(summary.policies),
        counted(summary.fail, "failure"),
        counted(summary.warn, "warning")
    )
}

fn policies(number: u64) -> String {
    if number == 1 { "1 policy".to_owned() } else { format!("{number} policies") }
}

/// The report as text, the worst last, next to the prompt.
fn text(report: &PolicyReport, quiet: bool) -> String {
    let mut text = String::new();
    for finding in report.findings.iter().rev().filter(|finding| !quiet || finding.severity == Severity::Fail) {
        let tag = match finding.severity {
            Severity::Warn => "[WARN]",
            Severity::Fail => "[FAIL]",
        };
        let check = check(finding);
        text.push_str(&format!("{tag} {:<24} {}: {}\n", check.id, check.group, check.detail));
        text.push_str(&advice(&check, "         "));
    }
    let summary = &report.summary;
    if let Some(pods) = summary.pods {
        text.push_str(&format!("\n{pods} pods, {} of them on Windows nodes", summary.windows_pods.unwrap_or_default()));
    }
    if summary.staged > 0 {
        text.push_str(&format!("\nnot enforced, and not checked: {} (staged)", policies(summary.staged)));
    }
    format!("{text}\n{}\n", said(report))
}

fn check(finding: &Finding) -> Check {
    let file = finding.file.as_ref().map_or_else(String::new, |file| format!(" ({file})"));
    Check {
        id: finding.id.into(),
        group: finding.place(),
        status: match finding.severity {
            Severity::Fail => CheckStatus::Fail,
            Severity::Warn => CheckStatus::Warn,
        },
        ignored: false,
        detail: format!("{}{file}", finding.detail),
        why: Some(finding.why.into()),
        fix: finding.rewrite.as_ref().map(|rewrite| {
            let lines = rewrite.lines().map(|line| format!("write {line}"));
            lines.collect::<Vec<_>>().join("\n")
        }),
    }
}

/// The findings as checks, with one that passes for each kind without a finding.
fn checks(report: &PolicyReport) -> PreflightReport {
    let mut all = PreflightReport { checks: Vec::new(), summary: Summary::default() };
    report.findings.iter().for_each(|finding| all.add(check(finding)));
    for kind in KINDS.iter().filter(|kind| !report.findings.iter().any(|finding| finding.id == kind.id)) {
        all.add(Check {
            id: kind.id.into(),
            group: "policies".into(),
            status: CheckStatus::Ok,
            ignored: false,
            detail: format!("none of {} policies", report.summary.policies),
            why: None,
            fix: None,
        });
    }
    all
}
