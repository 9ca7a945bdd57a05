//! Faults on demand: which call, which occurrence, and what happens to it.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::quirks::Quirk;
use crate::fault::{Exit, Fault as Failure};
use crate::item::{Id, State};

/// Everything that can be made to fail in the sandbox.
#[derive(Debug, Default)]
pub struct SandboxFaults {
    pub node: Vec<Fault>,
    /// For the embedded cluster, without the word `api`.
    pub api: Vec<String>,
    /// For the embedded release server, without the word `release`.
    pub release: Vec<String>,
    /// Ways in which the sandbox is unlike Windows.
    pub windows: Vec<Quirk>,
}

impl SandboxFaults {
    /// Reads `CALL ID-GLOB[#N[+]]=ACTION` and `windows NAME`, several separated by `;`.
    ///
    /// # Errors
    /// USAGE, naming the invalid part and what would be valid.
    pub fn parse(text: &str) -> Result<Self> {
        let mut faults = Self::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(' ') {
                Some(("api", rest)) => faults.api.push(rest.trim().to_owned()),
                Some(("release", rest)) => faults.release.push(rest.trim().to_owned()),
                Some(("windows", name)) => faults.windows.push(Quirk::parse(name.trim())?),
                _ => faults.node.push(Fault::parse(part)?),
            }
        }
        Ok(faults)
    }
}

/// A call on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Facts,
    Get,
    List,
    Put,
    Save,
    Append,
    Remove,
    /// A look at processes: of a service, of a program, or one that was seen before.
    Process,
}

impl Call {
    const ALL: [(&'static str, Self); 8] = [
        ("facts", Self::Facts),
        ("get", Self::Get),
        ("list", Self::List),
        ("put", Self::Put),
        ("save", Self::Save),
        ("append", Self::Append),
        ("remove", Self::Remove),
        ("process", Self::Process),
    ];

    /// Whether it changes the node.
    pub const fn touches(self) -> bool {
        matches!(self, Self::Put | Self::Save | Self::Append | Self::Remove)
    }
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// An error, and nothing was done.
    Fail,
    /// It was done, but returns an error.
    FailAfter,
    DiskFull,
    InUse,
    /// A service does not stop in time.
    SlowStop,
    /// A service's process ends right after its start.
    Dies,
    /// The call never returns.
    Hang,
    /// The call takes a minute of the sandbox's time.
    Slow,
    ExitBefore,
    /// The program has a defect there.
    Panic,
    /// The process ends in the middle of a change that Windows makes in several steps. Other changes are made, and the
    /// process continues.
    ExitWithin,
    ExitAfter,
    /// Half of the line is written, then the process ends.
    Torn,
    /// Right before the network is deleted, the container runtime attaches a pod that it was already adding.
    LatePod,
    /// Nothing, except a line in `.sandbox/calls`: it lists the calls that faults can hit.
    Noted,
}

/// How long a slow call takes.
pub const SLOW: Duration = Duration::from_secs(60);

impl Action {
    const ALL: [(&'static str, Self); 15] = [
        ("fail", Self::Fail),
        ("fail-after", Self::FailAfter),
        ("disk-full", Self::DiskFull),
        ("in-use", Self::InUse),
        ("slow-stop", Self::SlowStop),
        ("dies", Self::Dies),
        ("hang", Self::Hang),
        ("slow", Self::Slow),
        ("panic", Self::Panic),
        ("exit-before", Self::ExitBefore),
        ("exit-within", Self::ExitWithin),
        ("exit-after", Self::ExitAfter),
        ("torn", Self::Torn),
        ("late-pod", Self::LatePod),
        ("noted", Self::Noted),
    ];

    /// Whether it ends the process.
    pub const fn ends_process(self) -> bool {
        matches!(self, Self::Panic | Self::ExitBefore | Self::ExitWithin | Self::ExitAfter | Self::Torn)
    }

    /// Whether it applies to a call.
    fn fits(self, call: Option<Call>, glob: &str) -> bool {
        let running = glob.contains('*') || glob.to_lowercase().starts_with("running ");
        match self {
            Self::Fail | Self::Hang | Self::Panic | Self::ExitBefore | Self::ExitAfter | Self::Noted => true,
            Self::FailAfter | Self::DiskFull | Self::InUse | Self::Slow => call.is_none_or(Call::touches),
            Self::ExitWithin => call.is_none_or(|call| matches!(call, Call::Put | Call::Save)),
            Self::SlowStop | Self::Dies => call.is_none_or(|call| call == Call::Put) && running,
            Self::Torn => call == Some(Call::Append),
            Self::LatePod => call == Some(Call::Put) && glob.to_lowercase().starts_with("network "),
        }
    }
}

/// Which of the calls that match: `#7` is the seventh, `#7+` that one and all after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Every,
    Nth(usize),
    From(usize),
}

impl Which {
    /// Parses the text after the `#`; none if it is not a count from 1 up.
    pub fn parse(text: &str) -> Option<Self> {
        let (count, on) = text.strip_suffix('+').map_or((text, false), |count| (count, true));
        let n = count.parse().ok().filter(|n| *n > 0)?;
        Some(if on { Self::From(n) } else { Self::Nth(n) })
    }

    /// Whether the `n`-th call that matches is one of them.
    pub const fn is(self, n: usize) -> bool {
        match self {
            Self::Every => true,
            Self::Nth(nth) => n == nth,
            Self::From(first) => n >= first,
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => Ok(()),
            Self::Nth(n) => write!(f, "#{n}"),
            Self::From(n) => write!(f, "#{n}+"),
        }
    }
}

/// One fault: it applies to the matching calls, or only to the n-th of them in this process, or to all from the n-th
/// on.
#[derive(Debug)]
pub struct Fault {
    /// None is any call that changes the node.
    call: Option<Call>,
    glob: String,
    which: Which,
    pub action: Action,
    seen: Cell<usize>,
}

impl Fault {
    /// # Errors
    /// USAGE, saying what is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Failure::new(Exit::Usage, "SandboxFaultInvalid", format!("the sandbox fault `{text}` is not right: {why}"))
                .hint("write CALL ID-GLOB[#N]=ACTION, as in `put running CalicoNode=fail` or `put *#7=exit-after`")
        };
        let (matcher, action) = text.rsplit_once('=').ok_or_else(|| wrong("it has no `=ACTION`".into()))?;
        let action = action.trim();
        let action = pick(&Action::ALL, action)
            .ok_or_else(|| wrong(format!("`{action}` is no action; there are {}", names(&Action::ALL))))?;
        let (matcher, which) = match matcher.trim().rsplit_once('#') {
            Some((matcher, n)) => match Which::parse(n) {
                Some(which) => (matcher, which),
                None => return Err(wrong(format!("`#{n}` is no count from 1 up")).into()),
            },
            None => (matcher.trim(), Which::Every),
        };
        let (call, glob) = matcher.split_once(' ').unwrap_or((matcher, "*"));
        let (call, glob) = (call.trim(), glob.trim());
        let call = match call {
            "" | "*" => None,
            call => Some(
                pick(&Call::ALL, call)
                    .ok_or_else(|| wrong(format!("`{call}` is no call; there are *, {}", names(&Call::ALL))))?,
            ),
        };
        if !action.fits(call, glob) {
            return Err(wrong("that call cannot end like this".into()).into());
        }
        Ok(Self { call, glob: glob.to_owned(), which, action, seen: Cell::new(0) })
    }

    /// Counts a call and returns whether this fault applies to it.
    fn strikes(&self, call: Call, names: &[String]) -> bool {
        let called = self.call.map_or(call.touches(), |own| own == call);
        if !called || !names.iter().any(|name| matches(&self.glob.to_lowercase(), &name.to_lowercase())) {
            return false;
        }
        self.seen.set(self.seen.get() + 1);
        self.which.is(self.seen.get())
    }
}

/// The first fault that applies to a call. All of them count it.
pub fn struck<'a>(faults: impl Iterator<Item = &'a Fault>, call: Call, names: &[String]) -> Option<Action> {
    faults.fold(None, |first, fault| {
        let action = fault.strikes(call, names).then_some(fault.action);
        first.or(action)
    })
}

/// The names of an id in a glob: as shown (`hns-network Calico`), as in documents (`network Calico`), and its target
/// alone.
pub fn id_names(id: &Id) -> Vec<String> {
    let variant = match id {
        Id::Dir(_) => "dir",
        Id::Tree(_) => "tree",
        Id::File(_) => "file",
        Id::RegValue { .. } => "reg-value",
        Id::Firewall(_) => "firewall",
        Id::Service(_) => "service",
        Id::DependsOn(_) => "depends-on",
        Id::Network(_) => "network",
        Id::Route(_) => "route",
        Id::Adapter(_) => "adapter",
        Id::CniConf(_) => "cni-conf",
        Id::Running(_) => "running",
        Id::Cordon(_) => "cordon",
        Id::Achieved(_) => "achieved",
        Id::CalicoIsUp(_) => "calico-is-up",
    };
    vec![id.to_string(), format!("{variant} {}", id.target()), id.target()]
}

/// What a put of this state does, as the errors of Windows name it.
pub fn operation(id: &Id, state: Option<&State>) -> String {
    let (sets, what) = match id {
        Id::Running(_) => return format!("{} service {}", if state.is_some() { "start" } else { "stop" }, id.target()),
        Id::Dir(_) => ("create", "folder"),
        Id::Service(_) => ("create", "service"),
        Id::Network(_) => ("create", "the HNS network"),
        Id::Route(_) => ("add", "route"),
        Id::DependsOn(_) => ("set", "the dependencies of service"),
        Id::Firewall(_) => ("set", "firewall rule"),
        Id::Adapter(_) => ("set", "the addresses of adapter"),
        Id::RegValue { .. } => ("write", "registry value"),
        _ => ("write", id.kind()),
    };
    format!("{} {what} {}", if state.is_some() { sets } else { "remove" }, id.target())
}

/// `*` is any text; everything else is literal.
fn matches(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| &rest[at..]).chain([""]).any(|rest| matches(tail, rest))
        }),
    }
}

fn pick<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn names<T>(all: &[(&str, T)]) -> String {
    all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The process ended here: a node opened with [`crashes_as_errors`](super::SandboxNode::crashes_as_errors) returns this
/// error instead, now and on every later call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash;

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process ended here, as a sandbox fault asked")
    }
}

impl std::error::Error for Crash {}
