//! Renews the node's token after two thirds of its lifetime: the agent of CalicoNode does it, with the token that is
//! still valid. It also restarts the programs that read the token when it changed: client-go reads a token in a kubeconfig once, when
//! the program starts. (The CNI plugin starts for each pod, and node startup for each kubelet.)

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};

use crate::calico::agent_config::AgentConfig;
use crate::calico::kubeconfig::{self, Login};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::event::{Event, Sink};
use crate::values::WinPath;

/// Gets a new token with the one in this kubeconfig, writes it there, and returns its expiry.
pub type Renew<'a> = &'a dyn Fn(&mut dyn Node, &WinPath) -> Result<Option<Timestamp>>;

/// How often the kubeconfig is checked.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// After a failure: twice as long each time, up to an hour, because somebody may be fixing it.
const LAST_PAUSE: Duration = Duration::from_secs(3600);

/// How often the same problem is reported again.
const REPORT_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// The renewal of the node's token.
pub struct Renewal<'a> {
    kubeconfig: Option<WinPath>,
    renew: Renew<'a>,
    /// When it was checked last, and how long to wait from then on.
    looked: Option<(Timestamp, Duration)>,
    pause: Duration,
    said: Option<(String, Timestamp)>,
    trouble: Option<String>,
}

impl<'a> Renewal<'a> {
    /// For the kubeconfig of Calico's components; there is none with etcd alone.
    pub fn new(config: &AgentConfig, renew: Renew<'a>) -> Self {
        Self { kubeconfig: config.kubeconfig(), renew, looked: None, pause: LOOK_EVERY, said: None, trouble: None }
    }

    /// Why the token is due but not renewed; none if all is well.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Checks whether the token is due, and renews it then. Cheap if it is not; errors are reported, and retried later.
    pub fn look(&mut self, node: &mut dyn Node, events: Sink<'_>) {
        let now = node.now();
        let Some(path) = self.kubeconfig.clone() else { return };
        if let Some((looked, pause)) = self.looked {
            let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
            // A clock that was set back must not delay it.
            if now >= looked && now.duration_since(looked) < pause {
                return;
            }
        }
        self.looked = Some((now, LOOK_EVERY));
        // A missing or unreadable file is reported by install and `status`.
        let Ok(text) = fs::read_to_string(node.disk(&path)) else { return };
        let Ok(credentials) = kubeconfig::parse(&text) else { return };
        let Some(expires) = credentials.expires else { return self.well() };
        let due = match &credentials.login {
            Login::Token(token) => kubeconfig::claims(token.reveal()).renew_from(),
            // A certificate is not renewed automatically; a month before its expiry is enough for a warning.
            Login::Certificate { .. } => Some(expires - SignedDuration::from_hours(30 * 24)),
        };
        if due.is_none_or(|due| now < due) {
            return self.well();
        }
        match (self.renew)(node, &path) {
            Ok(until) => {
                self.well();
                let until = until.map_or_else(String::new, |until| format!(", it is valid until {until:.0}"));
                events(Event::Log { message: format!("the token in {path} was renewed{until}") });
                // One that expires as soon as it is issued means a wrong clock.
                self.looked = Some((node.now(), LAST_PAUSE));
            }
            Err(error) => self.failed(&error, &path, expires, now, events),
        }
    }

    fn well(&mut self) {
        (self.pause, self.said, self.trouble) = (LOOK_EVERY, None, None);
    }

    fn failed(&mut self, error: &anyhow::Error, path: &WinPath, expires: Timestamp, now: Timestamp, events: Sink<'_>) {
        self.looked = Some((now, self.pause));
        let fault = Fault::of(error);
        // A run that changes the node ends soon, and may write another kubeconfig.
        if fault.is_some_and(|fault| fault.exit == Exit::Busy) {
            return;
        }
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        let id = fault.map_or("TokenNotRenewed", |fault| match fault.id {
            "TokenRenewalForbidden" => "TokenRenewalForbidden",
            _ => "TokenNotRenewed",
        });
        let hint = fault.and_then(|fault| fault.hint.clone()).map_or_else(String::new, |hint| format!("; {hint}"));
        let (state, ends) = if expires <= now {
            ("has expired", "Calico on this node can no longer connect to the API server")
        } else {
            ("expires", "the renewal is retried until then")
        };
        let message =
            format!("the login in {path} {state} at {expires:.0} and is not renewed ({ends}): {error:#}{hint}");
        let again =
            self.said.as_ref().is_some_and(|(said, at)| *said == message && now.duration_since(*at) < REPORT_EVERY);
        if !again {
            events(Event::Warning { id, message: message.clone() });
            self.said = Some((message.clone(), now));
        }
        self.trouble = Some(message);
    }
}

/// The kubeconfig version that a component read when it started.
pub struct Read {
    path: Option<WinPath>,
    version: Option<(SystemTime, u64)>,
}

impl Read {
    pub fn now(node: &dyn Node, config: &AgentConfig) -> Self {
        let path = config.kubeconfig();
        let version = path.as_ref().and_then(|path| version(node, path));
        Self { path, version }
    }

    /// Whether it has changed since the last call. A missing file has not.
    pub fn changed(&mut self, node: &dyn Node) -> bool {
        let now = self.path.as_ref().and_then(|path| version(node, path));
        now.is_some() && std::mem::replace(&mut self.version, now) != now
    }
}

fn version(node: &dyn Node, path: &WinPath) -> Option<(SystemTime, u64)> {
    let meta = fs::metadata(node.disk(path)).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use tempfile::TempDir;

    use super::*;
    use crate::calico::components;
    use crate::calico::kubeconfig::NodeCredentials;
    use crate::calico::testing::settings;
    use crate::item::Access;
    use crate::node::sandbox::SandboxNode;
    use crate::paths;
    use crate::values::Secret;

    const DAY: i64 = 24 * 3600;

    struct Scene {
        _dir: TempDir,
        node: SandboxNode,
        config: AgentConfig,
        path: WinPath,
        born: Timestamp,
    }

    fn scene() -> Scene {
        let dir = TempDir::new().unwrap();
        let node = SandboxNode::open(dir.path()).unwrap();
        let settings = settings("v3.30.3");
        let path = paths::kubeconfig(&settings.calico.root);
        let config = components::agent_config(&settings, Some(&path)).unwrap();
        let born = node.now();
        let mut scene = Scene { _dir: dir, node, config, path, born };
        give(&mut scene.node, &scene.path.clone(), born, 365 * DAY);
        scene
    }

    /// Writes a kubeconfig whose token lives so many seconds from `now` on.
    fn give(node: &mut dyn Node, path: &WinPath, now: Timestamp, life: i64) {
        let (iat, exp) = (now.as_second(), now.as_second() + life);
        let claims = format!(r#"{{"iat":{iat},"exp":{exp},"sub":"system:serviceaccount:calico-system:calico-node"}}"#);
        let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        let credentials = NodeCredentials {
            server: "https://10.0.0.1:6443".into(),
            ca_pem: String::new(),
            login: Login::Token(Secret::new(token)),
            expires: None,
        };
        let text = kubeconfig::render(&credentials, "calico-system").unwrap();
        node.save(path, &text, Access::Administrators).unwrap();
    }

    impl Scene {
        fn day(&self) -> i64 {
            (self.node.now().as_second() - self.born.as_second()) / DAY
        }

        /// Lets days pass, an hour at a time, and returns the reports, with their day.
        fn live(&mut self, days: i64, renewal: &mut Renewal<'_>) -> Vec<String> {
            let mut told = Vec::new();
            for _ in 0..days * 24 {
                self.node.pause(Duration::from_secs(3600));
                let mut events = Vec::new();
                renewal.look(&mut self.node, &mut |event| events.push(event));
                told.extend(events.into_iter().map(|event| match event {
                    Event::Warning { id, message } => format!("day {}: {id}: {message}", self.day()),
                    Event::Log { message } => format!("day {}: {message}", self.day()),
                    other => panic!("{other:?}"),
                }));
            }
            told
        }
    }

    #[test]
    fn a_token_of_a_year_is_renewed_after_two_thirds_repeatedly() {
        let mut scene = scene();
        let config = scene.config.clone();
        let renew = |node: &mut dyn Node, path: &WinPath| {
            let now = node.now();
            give(node, path, now, 365 * DAY);
            Ok(Some(now + SignedDuration::from_secs(365 * DAY)))
        };
        let mut renewal = Renewal::new(&config, &renew);
        let told = scene.live(600, &mut renewal);
        let days: Vec<&str> = told.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(days, ["day 243", "day 486"], "{told:#?}");
        assert!(told[0].contains("was renewed, it is valid until "), "{told:#?}");
        assert_eq!(renewal.trouble(), None);
    }

    #[test]
    fn a_failed_renewal_is_reported_once_a_day_until_fixed_or_expired() {
        let mut scene = scene();
        let config = scene.config.clone();
        let (tries, allowed) = (RefCell::new(0), RefCell::new(false));
        let renew = |node: &mut dyn Node, path: &WinPath| {
            *tries.borrow_mut() += 1;
            if *allowed.borrow() {
                let now = node.now();
                give(node, path, now, 365 * DAY);
                return Ok(None);
            }
            Err(Fault::new(Exit::ClusterAccessDenied, "TokenRenewalForbidden", "it may not").hint("let it").into())
        };
        let mut renewal = Renewal::new(&config, &renew);
        let told = scene.live(245, &mut renewal);
        assert_eq!(told.len(), 2, "once a day: {told:#?}");
        assert!(told[0].starts_with(
            r"day 243: TokenRenewalForbidden: the login in C:\CalicoWindows\calico-kube-config expires at "
        ));
        assert!(told[0].ends_with("it may not; let it"), "{told:#?}");
        assert!(*tries.borrow() > 20, "but tried every hour");
        assert!(renewal.trouble().is_some());

        *allowed.borrow_mut() = true;
        assert_eq!(scene.live(1, &mut renewal).len(), 1);
        assert_eq!(renewal.trouble(), None);

        *allowed.borrow_mut() = false;
        let told = scene.live(400, &mut renewal);
        assert!(told.last().unwrap().contains("has expired at "), "{:?}", told.last());
    }

    #[test]
    fn a_token_without_expiry_is_kept_and_a_busy_node_is_not_a_problem() {
        let mut scene = scene();
        let config = scene.config.clone();
        let busy = |_: &mut dyn Node, _: &WinPath| Err(Fault::new(Exit::Busy, "Busy", "another run").into());
        let mut renewal = Renewal::new(&config, &busy);
        assert_eq!(scene.live(300, &mut renewal), Vec::<String>::new());
        assert_eq!(renewal.trouble(), None);

        let never = |_: &mut dyn Node, _: &WinPath| panic!("not requested");
        let credentials = NodeCredentials {
            server: "https://10.0.0.1:6443".into(),
            ca_pem: String::new(),
            login: Login::Token(Secret::new("endless")),
            expires: None,
        };
        let text = kubeconfig::render(&credentials, "calico-system").unwrap();
        scene.node.save(&scene.path, &text, Access::Administrators).unwrap();
        let mut renewal = Renewal::new(&config, &never);
        assert_eq!(scene.live(500, &mut renewal), Vec::<String>::new());
    }

    #[test]
    fn a_component_reads_a_renewed_token_once() {
        let mut scene = scene();
        let mut read = Read::now(&scene.node, &scene.config);
        assert!(!read.changed(&scene.node));
        give(&mut scene.node, &scene.path.clone(), scene.born, 366 * DAY);
        // File times have a limited resolution.
        let file = fs::File::options().write(true).open(scene.node.disk(&scene.path)).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(2)).unwrap();
        assert!(read.changed(&scene.node));
        assert!(!read.changed(&scene.node));
        fs::remove_file(scene.node.disk(&scene.path)).unwrap();
        assert!(!read.changed(&scene.node), "a file that is missing for a moment");
    }
}
