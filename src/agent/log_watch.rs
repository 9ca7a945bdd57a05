//! Errors that Felix and confd only log: they run, and pods have no policies or no routes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Role;

/// An error that is repeated for this long does not end by itself.
const LASTS: Duration = Duration::from_secs(30);

/// Both retry after five seconds at most, so an error that was not repeated for this long is over.
const OVER: Duration = Duration::from_secs(15);

/// Felix finds no HNS endpoint for a pod, so the pod has no policies. Also logged while a pod is being created
/// (felix/dataplane/windows/endpoint_mgr.go).
const NO_ENDPOINT: &str = "Failed to look up HNS endpoint for workload";

/// The files that confd renders for its script, which configures RemoteAccess.
pub const RENDERED: [&str; 2] = ["peerings.ps1", "blocks.ps1"];

/// What confd, which runs whether or not its templates can be rendered, has not done.
pub fn not_rendered(absent: &[&str]) -> Option<String> {
    (!absent.is_empty()).then(|| format!("it has not rendered {}", absent.join(" and ")))
}

/// What the log of a role's program says since its start.
#[derive(Debug)]
pub struct LogWatch {
    role: Role,
    started: Instant,
    /// What is repeated, with its text, since when and until when.
    repeated: BTreeMap<String, (String, Instant, Instant)>,
    /// The last failure of confd's script. It is not run again until what confd renders changes: confd has replaced the
    /// file before (confd/pkg/resource/template/resource.go).
    reload: Option<String>,
}

impl LogWatch {
    pub const fn new(role: Role, now: Instant) -> Self {
        Self { role, started: now, repeated: BTreeMap::new(), reload: None }
    }

    /// The program has logged a line.
    pub fn line(&mut self, line: &str, now: Instant) {
        match self.role {
            Role::Node | Role::Kubelet | Role::KubeProxy => {}
            Role::Felix => {
                if let Some(at) = line.find(NO_ENDPOINT) {
                    // Newer releases count how often they tried.
                    let text = line[at..].split(" retries=").next().unwrap_or_default().trim_end();
                    self.repeat(text.to_owned(), text, now);
                }
            }
            // For example `[ERROR][1234] confd/run.go 61: the error`.
            Role::Confd => match line.split_once("[ERROR][").and_then(|(_, rest)| rest.split_once(": ")) {
                Some((_, text)) if text.starts_with("Error from reloadcmd") => self.reload = Some(text.into()),
                // The text of one error differs each time, for example by the name of a temporary file.
                Some((_, text)) => self.repeat(String::new(), text, now),
                None if line.contains("Target config") && line.contains("has been updated") => self.reload = None,
                None => {}
            },
        }
    }

    fn repeat(&mut self, what: String, text: &str, now: Instant) {
        self.repeated.retain(|_, (_, _, last)| now.duration_since(*last) < OVER);
        let (said, _, last) = self.repeated.entry(what).or_insert_with(|| (String::new(), now, now));
        (*said, *last) = (text.to_owned(), now);
    }

    /// Why it does not do its work although it runs. `unrendered`: what confd has not rendered.
    pub fn error(&self, unrendered: &[&str], now: Instant) -> Option<String> {
        let lasts = |(_, since, last): &&(String, Instant, Instant)| {
            last.duration_since(*since) >= LASTS && now.duration_since(*last) < OVER
        };
        let repeated: Vec<&str> = self.repeated.values().filter(lasts).map(|(text, ..)| text.as_str()).collect();
        let said = match (self.reload.as_deref(), repeated.as_slice()) {
            (Some(reload), _) => Some(format!("it could not configure BGP: {reload}")),
            (None, [one]) => Some(format!("its log repeats: {one}")),
            (None, [one, more @ ..]) => Some(format!("its log repeats: {one}, and {} more such lines", more.len())),
            (None, []) => None,
        };
        let late = not_rendered(unrendered).filter(|_| now.duration_since(self.started) >= LASTS);
        let all: Vec<String> = late.into_iter().chain(said).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is wrong after these lines, each with the second in which it was logged, at a second.
    fn error(role: Role, lines: &[(u64, &str)], unrendered: &[&str], at: u64) -> String {
        let started = Instant::now();
        let second = |n| started + Duration::from_secs(n);
        let mut watch = LogWatch::new(role, started);
        lines.iter().for_each(|(n, line)| watch.line(line, second(*n)));
        watch.error(unrendered, second(at)).unwrap_or_else(|| "nothing".into())
    }

    const FELIX: &str = "2026-01-02 15:04:05.000 [WARNING][12] felix/endpoint_mgr.go 257: ";

    #[test]
    fn felix_that_finds_no_endpoint_of_a_pod_for_half_a_minute_enforces_nothing_there() {
        let pod =
            |name: &str| format!("{FELIX}{NO_ENDPOINT} id=types.WorkloadEndpointID{{WorkloadId:\"demo/{name}\"}}");
        let (web, api) = (pod("web"), pod("api"));
        let every_five = |line: &'static str, until: u64| (0..=until).step_by(5).map(|n| (n, line)).collect::<Vec<_>>();
        let web: &'static str = web.leak();
        let of = |lines: &[(u64, &str)], at| error(Role::Felix, lines, &[], at);
        assert_eq!(of(&every_five(web, 25), 26), "nothing", "a pod is being created");
        insta::assert_snapshot!(of(&every_five(web, 30), 31), @r#"its log repeats: Failed to look up HNS endpoint for workload id=types.WorkloadEndpointID{WorkloadId:"demo/web"}"#);
        assert_eq!(of(&every_five(web, 30), 46), "nothing", "it was found, or the pod is gone");
        let counted: Vec<(u64, String)> = (0..8).map(|n| (n * 5, format!("{web} retries={n}"))).collect();
        let counted: Vec<(u64, &str)> = counted.iter().map(|(n, line)| (*n, line.as_str())).collect();
        assert!(of(&counted, 36).ends_with("\"demo/web\"}"), "{}", of(&counted, 36));
        let both: Vec<(u64, &str)> = (0..8).flat_map(|n| [(n * 5, web), (n * 5, api.as_str())]).collect();
        assert!(of(&both, 36).ends_with(", and 1 more such lines"));
        // One pod after the other is no error that lasts.
        let pods: Vec<String> = (0..20).map(|n| pod(&format!("job-{n}"))).collect();
        let pods: Vec<(u64, &str)> = (0..).step_by(5).zip(pods.iter().map(String::as_str)).collect();
        assert_eq!(of(&pods, 96), "nothing");
    }

    #[test]
    fn confd_whose_script_failed_has_configured_nothing_until_it_succeeds() {
        let failed =
            "2026-01-02 15:04:05.000 [ERROR][12] confd/resource.go 305: Error from reloadcmd: \"no RemoteAccess\"";
        let code = "2026-01-02 15:04:05.001 [ERROR][12] confd/run.go 61: exit status 1";
        let well =
            "2026-01-02 15:05:05.000 [INFO][12] confd/resource.go 278: Target config peerings.ps1 has been updated";
        let of = |lines: &[(u64, &str)], at| error(Role::Confd, lines, &[], at);
        insta::assert_snapshot!(of(&[(1, failed), (1, code)], 600), @r#"it could not configure BGP: Error from reloadcmd: "no RemoteAccess""#);
        assert_eq!(of(&[(1, failed), (1, code), (60, well)], 600), "nothing");
    }

    #[test]
    fn confd_that_renders_nothing_does_no_work() {
        let template =
            "2026-01-02 15:04:05.000 [ERROR][12] confd/run.go 61: template: blocks.ps1.template:3:5: no value";
        let lines: Vec<(u64, &str)> = (0..8).map(|n| (n * 5, template)).collect();
        let of = |unrendered: &[&str], at| error(Role::Confd, &lines, unrendered, at);
        assert_eq!(
            of(&["blocks.ps1"], 29).split(';').next(),
            Some("its log repeats: template: blocks.ps1.template:3:5: no value")
        );
        insta::assert_snapshot!(of(&["blocks.ps1"], 36), @"it has not rendered blocks.ps1; its log repeats: template: blocks.ps1.template:3:5: no value");
        insta::assert_snapshot!(of(&[], 36), @"its log repeats: template: blocks.ps1.template:3:5: no value");
        assert_eq!(error(Role::Confd, &[], &RENDERED, 29), "nothing", "it has just started");
        insta::assert_snapshot!(error(Role::Confd, &[], &RENDERED, 30), @"it has not rendered peerings.ps1 and blocks.ps1");
    }
}
