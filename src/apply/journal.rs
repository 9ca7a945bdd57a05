//! The write-ahead journal of one run: its target, the state of each item before, and how far it got.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::cordon::ClusterVni;
use super::node_object::Access as ClusterAccess;
use super::receipt::{About, Prepared};
use crate::agent::network_backup::Route;
use crate::cluster::DrainOptions;
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, State, World};
use crate::node::{Node, STATE_DIR, record};
use crate::plan::order::is_own;
use crate::plan::{Owned, Target, pairs};
use crate::values::{NodeName, Sha256, WinPath};

/// The schema number in every journal's header; a later format gets the next one. Schema 1 had no cluster items: those
/// were in a separate record.
const SCHEMA: u32 = 2;

/// What a run was started to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    schema: u32,
    pub run: String,
    /// The verb: `install`, `uninstall`, …
    pub command: String,
    /// The previous generation; none on a node without Calico. `--undo` restores it.
    pub from: Option<u32>,
    pub target: Target,
    pub about: Option<About>,
    pub started: Timestamp,
    /// The services that ran when the run began, for targets that leave that unchanged: ours, and others that this run
    /// may stop.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub running: BTreeSet<Id>,
    #[serde(flatten)]
    pub terms: Terms,
    /// Something on the machine was changed before this journal began: by the run itself, or by an interrupted one that
    /// it ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub touched: bool,
    /// The run is being undone: the steps are those of that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoes: bool,
    /// The networks of the previous generation, as they were: what its target leaves to Windows, for example the
    /// adapter, is restored when the run is undone. And files that its services had written, which this run removes:
    /// kubelet's login.
    #[serde(default, with = "pairs", skip_serializing_if = "World::is_empty")]
    pub networks: World,
    /// Routes of the host that there were before, and that go with a vSwitch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// The options of a run besides its target: the run that ends it follows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The machine, as [`crate::facts::NodeFacts::machine_id`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The boot in which the run began, as [`crate::facts::NodeFacts::boot_id`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// What CalicoNode does with the run if Windows starts before it is over; if none, an administrator decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_boot: Option<AtBoot>,
    /// How pods are moved away first; none leaves them in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOptions>,
    /// Whether pods that were not moved away lose a network that is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops_pods: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub access: ClusterAccess,
    #[serde(default, skip_serializing_if = "is_default")]
    pub removal: Removal,
    /// The name of the Node, if no generation has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// What other programs had made and an uninstall removes: what they were is kept, to bring them back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub theirs: BTreeSet<Id>,
    /// The HNS networks that are still to be deleted so that they are re-created, although they are as wanted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub resets: BTreeSet<Id>,
    /// The run brings back what the last uninstall removed of other programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brings_back: bool,
    /// The run prepares an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepares: Option<Prepared>,
    /// The files with credentials that get new contents; nothing else is changed then. Empty: the target counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renewed: Vec<Renewed>,
    /// Once the change is made, the Node stays cordoned until the cluster has this VNI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_vni: Option<ClusterVni>,
}

/// A file with credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    pub path: WinPath,
    /// The digest in the current generation until then; its bytes are in the store.
    pub before: Sha256,
    pub after: Sha256,
}

impl Terms {
    pub fn is_renewal(&self) -> bool {
        !self.renewed.is_empty()
    }
}

/// What an uninstall removes besides Calico, once Calico is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Removal {
    /// Our own folder: generations, logs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub purge: bool,
    /// What Calico wrote to the cluster.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cluster_traces: bool,
    /// The token secret that install created.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub token_secret: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What CalicoNode does with a run that a boot interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtBoot {
    Finish,
    Undo,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Run(Box<Header>),
    Original { id: Id, state: Option<State> },
    Step { n: usize, of: usize, id: Id },
}

/// An interrupted or current run, as read from the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub header: Header,
    pub originals: Owned,
    /// The steps that were begun: each the number of its phase, which the screen shows too, the number of phases, and
    /// its item.
    pub steps: Vec<(usize, usize, Id)>,
    /// Whether a step on the machine was begun.
    on_machine: bool,
}

fn path() -> WinPath {
    WinPath::known(STATE_DIR).join("journal.jsonl")
}

impl Header {
    pub fn new(
        run: &str,
        command: &str,
        from: Option<u32>,
        target: &Target,
        about: Option<&About>,
        terms: Terms,
        now: Timestamp,
    ) -> Self {
        Self {
            schema: SCHEMA,
            run: run.into(),
            command: command.into(),
            from,
            target: target.clone(),
            about: about.cloned(),
            started: now,
            running: BTreeSet::new(),
            terms,
            touched: false,
            undoes: false,
            networks: World::new(),
            routes: Vec::new(),
        }
    }

    /// The goal of a run that was stopped in the middle: this target; and services that ran before, and whose state the
    /// target leaves unchanged, are started again, since this run may have stopped them.
    pub fn goal(&self, target: &Target) -> Target {
        let mut goal = target.clone();
        let others = |id: &Id| matches!(id, Id::Running(name) if !is_own(name));
        let again = self.running.iter().filter(|id| target.leave.contains(id) || others(id));
        goal.world.extend(again.map(|id| (id.clone(), State::Running)));
        goal
    }

    /// The goal of undoing: the previous target, with its networks on their previous adapters, and the files of its
    /// services.
    pub fn undo_goal(&self, former: &Target) -> Target {
        let mut goal = self.goal(former);
        for (id, was) in &self.networks {
            if let (Some(State::Network(wanted)), State::Network(was)) = (goal.world.get_mut(id), was)
                && wanted.adapter.is_none()
            {
                wanted.adapter.clone_from(&was.adapter);
            }
            if let Id::File(_) = id {
                goal.world.insert(id.clone(), was.clone());
                goal.leave.remove(id);
            }
        }
        goal
    }
}

/// For example `install (run R, since T), at step 4 of 11: service CalicoNode`.
impl Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { command, run, started, undoes, .. } = &self.header;
        write!(f, "{command} (run {run}, since {started:.0}), ")?;
        match (self.steps.last(), undoes) {
            (Some((n, of, id)), false) => write!(f, "at step {n} of {of}: {id}"),
            (Some((n, of, id)), true) => write!(f, "while it was being rolled back, at step {n} of {of}: {id}"),
            (None, true) => f.write_str("while it was being rolled back"),
            (None, false) if self.is_touched() => f.write_str("before its next step"),
            (None, false) => f.write_str("before its first step"),
        }
    }
}

impl Journal {
    /// Reads the journal from the node's disk, if a run is in progress or was interrupted.
    ///
    /// # Errors
    /// When it cannot be read, has no header, or a line other than a torn last one is not valid.
    pub fn load(node: &dyn Node) -> Result<Option<Self>> {
        let file = node.disk(&path());
        match fs::read(&file) {
            Ok(text) => Self::parse(&text).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(_) if file.is_dir() => Err(no_header("it is a folder").into()),
            Err(error) => Err(error).with_context(|| format!("read the journal {}", path())),
        }
    }

    /// Parses bytes, not text: a torn line may end in the middle of a character.
    fn parse(text: &[u8]) -> Result<Self> {
        // A line without a newline was being written when the power failed: it never counted. The header cannot be such
        // a line: [`Self::begin`] writes it in one step, so a file without it is damaged.
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        let first = lines.next().ok_or_else(|| no_header("it is empty, or ends in its first line"))?;
        let mut journal =
            Self { header: header(first)?, originals: Owned::new(), steps: Vec::new(), on_machine: false };
        for (number, line) in (2..).zip(lines) {
            match serde_json::from_slice(line) {
                Ok(Line::Original { id, state }) => {
                    journal.originals.entry(id).or_insert(state);
                }
                Ok(Line::Step { n, of, id }) => {
                    journal.on_machine |= !id.is_in_cluster();
                    journal.steps.push((n, of, id));
                }
                Ok(Line::Run(_)) => return Err(unreadable(number, "it begins a second run").into()),
                Err(error) => return Err(unreadable(number, error).into()),
            }
        }
        Ok(journal)
    }

    /// Rewrites the journal as a run that starts from the new generation: there is nothing to undo any more.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn is_made(self, node: &mut dyn Node, generation: u32) -> Result<Self> {
        Self::begin(node, Header { from: Some(generation), touched: true, ..self.header }, Owned::new())
    }

    /// Whether the run moves pods away first, and has changed nothing on the machine yet.
    pub fn is_draining(&self) -> bool {
        self.header.terms.drain.is_some() && !self.is_touched()
    }

    /// Whether something on the machine may have changed.
    pub fn is_touched(&self) -> bool {
        self.header.touched || self.on_machine
    }

    /// The Nodes that were schedulable before the run, as the ids of their cordons.
    pub fn cordons(&self) -> impl Iterator<Item = &Id> {
        self.originals.iter().filter(|(id, before)| matches!(id, Id::Cordon(_)) && before.is_none()).map(|(id, _)| id)
    }

    /// Begins a journal in one step, with the originals that an interrupted run left.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn begin(node: &mut dyn Node, header: Header, originals: Owned) -> Result<Self> {
        let mut text = line(&Line::Run(Box::new(header.clone())))? + "\n";
        for (id, state) in &originals {
            text += &line(&Line::Original { id: id.clone(), state: state.clone() })?;
            text.push('\n');
        }
        node.save(&path(), text.as_bytes(), Access::Administrators).context("begin the journal")?;
        Ok(Self { header, originals, steps: Vec::new(), on_machine: false })
    }

    /// Records the state of an item before our first change.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn original(&mut self, node: &mut dyn Node, id: &Id, state: Option<&State>) -> Result<()> {
        if self.originals.contains_key(id) {
            return Ok(());
        }
        node.append(&path(), &line(&Line::Original { id: id.clone(), state: state.cloned() })?)
            .with_context(|| format!("journal the original of {id}"))?;
        self.originals.insert(id.clone(), state.cloned());
        Ok(())
    }

    /// Records that a step is about to be taken.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn step(&mut self, node: &mut dyn Node, n: usize, of: usize, id: &Id) -> Result<()> {
        self.on_machine |= !id.is_in_cluster();
        self.steps.push((n, of, id.clone()));
        node.append(&path(), &line(&Line::Step { n, of, id: id.clone() })?)
            .with_context(|| format!("journal the step on {id}"))
    }

    /// Records that a network that is re-created was deleted: one of its name is the new one from now on. Until this is
    /// on the disk, a run that ends this one deletes it once more.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn is_deleted(&mut self, node: &mut dyn Node, id: &Id) -> Result<()> {
        if !self.header.terms.resets.contains(id) {
            return Ok(());
        }
        let mut header = self.header.clone();
        header.terms.resets.remove(id);
        header.touched = true;
        *self = Self::begin(node, header, self.originals.clone())?;
        Ok(())
    }

    /// Ends the run, whether it was finished or undone.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn end(self, node: &dyn Node) -> Result<()> {
        record::forget(node, &path()).context("remove the finished journal")
    }
}

/// Parses the header, if its schema is known.
fn header(line: &[u8]) -> Result<Header> {
    #[derive(Deserialize)]
    struct Probe {
        run: Schema,
    }
    #[derive(Deserialize)]
    struct Schema {
        schema: u32,
    }
    let Probe { run: Schema { schema } } = serde_json::from_slice(line).map_err(no_header)?;
    if schema > SCHEMA {
        return Err(record::newer(format!("the journal {}", path()), schema.into(), SCHEMA.into()).into());
    }
    match serde_json::from_slice(line).map_err(no_header)? {
        Line::Run(header) => Ok(*header),
        _ => Err(no_header("its first line is no header").into()),
    }
}

fn no_header(why: impl Display) -> Fault {
    Fault::new(
        Exit::Failed,
        "JournalHeaderMissing",
        format!("the journal {} of an interrupted run does not say which run it is of: {why}", path()),
    )
    .hint("nothing is changed or cleaned up until it is settled: calicoctl-win explain JournalHeaderMissing")
}

fn unreadable(number: usize, why: impl Display) -> Fault {
    let what = format!("line {number} of the journal {} is not readable: {why}", path());
    Fault::new(Exit::Failed, "JournalUnreadable", what)
        .hint("use the calicoctl-win version that wrote it, or send it with a bug report")
}

fn line(line: &Line) -> Result<String> {
    serde_json::to_string(line).context("write a journal line")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal as this version writes it, with every field that a header can have. Never edit the file.
    const FROZEN: &str = include_str!("../../tests/fixtures/journals/v2.jsonl");

    #[test]
    fn it_says_how_far_the_run_came_and_whether_it_was_being_undone() {
        let terms = Terms::default();
        let header = Header::new("r1", "install", None, &Target::default(), None, terms, Timestamp::UNIX_EPOCH);
        let mut journal = Journal { header, originals: Owned::new(), steps: Vec::new(), on_machine: false };
        let at = |journal: &Journal| journal.to_string().split_once("), ").unwrap().1.to_owned();
        assert_eq!(at(&journal), "before its first step");
        journal.header.touched = true;
        assert_eq!(at(&journal), "before its next step");
        journal.header.undoes = true;
        assert_eq!(at(&journal), "while it was being rolled back");
        journal.steps.push((3, 11, Id::Service("CalicoNode".into())));
        assert_eq!(at(&journal), "while it was being rolled back, at step 3 of 11: service CalicoNode");
    }

    #[test]
    fn journals_of_every_released_schema_can_be_read() {
        let journal = Journal::parse(FROZEN.as_bytes()).unwrap();
        let terms = &journal.header.terms;
        assert!(
            terms.drain.is_some() && terms.removal.purge && terms.is_renewal() && journal.cordons().next().is_some()
        );
        let header = line(&Line::Run(Box::new(journal.header))).unwrap();
        assert_eq!(FROZEN.lines().next(), Some(&*header), "a field was lost or renamed");
    }

    #[test]
    fn a_torn_last_line_is_tolerated_and_a_torn_middle_one_is_not() {
        let terms = Terms::default();
        let header = Header::new("r1", "install", None, &Target::default(), None, terms, Timestamp::UNIX_EPOCH);
        let id = Id::Service("CalicoNöde".into());
        let lines = [
            Line::Run(Box::new(header.clone())),
            Line::Original { id: id.clone(), state: None },
            Line::Step { n: 1, of: 2, id: id.clone() },
        ];
        let whole: String = lines.iter().map(|each| line(each).unwrap() + "\n").collect();
        let journal = Journal::parse(whole.as_bytes()).unwrap();
        assert_eq!(
            journal,
            Journal { header, originals: Owned::from([(id.clone(), None)]), steps: vec![(1, 2, id)], on_machine: true }
        );
        let first = whole.find('\n').unwrap() + 1;
        for cut in 0..whole.len() {
            match Journal::parse(&whole.as_bytes()[..cut]) {
                Ok(torn) => assert!(cut >= first && torn.header == journal.header, "cut at {cut}"),
                Err(error) => assert!(cut < first && Fault::id_of(&error) == "JournalHeaderMissing", "cut at {cut}"),
            }
        }
        let headless = Journal::parse(&whole.as_bytes()[first..]).unwrap_err();
        assert_eq!(Fault::id_of(&headless), "JournalHeaderMissing", "{headless}");
        let twice = Journal::parse((whole.clone() + &whole).as_bytes()).unwrap_err();
        assert_eq!(Fault::id_of(&twice), "JournalUnreadable", "{twice}");
        let error = Journal::parse(whole.replace("original", "oRIGINAL").as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("line 2 of the journal"), "{error}");
        let error = Journal::parse(whole.replace("\"schema\":2", "\"schema\":3").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("has schema 3"), "{error}");
        assert!(record::is_newer(&error), "{error}");
    }
}
