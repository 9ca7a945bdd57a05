//! Receipts: which items are ours, which generation is current, and what it was made from. One file for each
//! generation; the highest counts. The format is frozen: see `tests/fixtures/receipts`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, State};
use crate::node::{Node, STATE_DIR, record};
use crate::plan::{Owned, Target, pairs};
use crate::settings::Backend;
use crate::values::{NodeName, Sha256, Vni, WinPath};
use crate::version::CalicoVersion;

/// The schema number in every receipt; later versions must still read this one.
const SCHEMA: u32 = 1;

/// One generation of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    schema: u32,
    pub generation: u32,
    pub run: String,
    pub command: String,
    pub finished: Timestamp,
    /// What is installed; none after an uninstall.
    pub about: Option<About>,
    pub target: Target,
    #[serde(with = "pairs")]
    #[schemars(with = "Vec<(Id, Option<State>)>")]
    pub owned: Owned,
    /// The machine is prepared as an image: the target has what is the same on every machine made from it, and Calico is
    /// not installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<Prepared>,
}

/// What a machine was prepared with. It says nothing of the machine itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    pub calico_version: CalicoVersion,
    /// Digest of the archive, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Sha256>,
}

/// What a generation was made from, in the terms of its config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct About {
    pub calico_version: CalicoVersion,
    pub backend: Backend,
    pub vni: Vni,
    pub node_name: NodeName,
    pub calico_namespace: String,
    /// Digest of the settings, to tell whether a config changed.
    pub settings: Sha256,
    /// Digest of the config as it was given, which a later change starts from. The config may contain secrets, so its
    /// text is in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Sha256>,
    /// Digest of the effective config, every field by its path, to show what a change changes. It may contain secrets
    /// too, so its text is in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Sha256>,
    /// Digest of the archive, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Sha256>,
    /// Where the release was fetched from.
    pub source: String,
    /// Name of the token secret that this program created in the Calico namespace, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret: Option<String>,
    /// The path of the kubeconfig that the run was told to use, and its context, so that later runs reach the cluster
    /// in the same way; none for the defaults. Never its contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Receipt {
    pub fn new(
        generation: u32,
        run: &str,
        command: &str,
        finished: Timestamp,
        about: Option<About>,
        target: Target,
        owned: Owned,
    ) -> Self {
        let (run, command) = (run.into(), command.into());
        Self { schema: SCHEMA, generation, run, command, finished, about, target, owned, prepared: None }
    }

    /// Writes it to the place that [`all`] reads.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn save(&self, node: &mut dyn Node) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).context("write a receipt")?;
        text.push(b'\n');
        node.save(&path(self.generation), &text, Access::Administrators).context("write the receipt")
    }

    /// Removes it: the run that wrote it is undone.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self, node: &dyn Node) -> Result<()> {
        record::forget(node, &path(self.generation)).context("remove the receipt of the undone run")
    }

    /// Whether what is in it is on the machine: not after an uninstall.
    pub const fn holds(&self) -> bool {
        self.about.is_some() || self.prepared.is_some()
    }

    /// Returns the digests of the blobs and trees that this generation needs, originals included.
    pub fn needs(&self) -> BTreeSet<String> {
        let states = self.target.world.values().chain(self.owned.values().flatten());
        let configs = self.about.iter().flat_map(|about| about.config.iter().chain(&about.effective));
        states.filter_map(State::name_in_store).chain(configs.map(ToString::to_string)).collect()
    }
}

fn folder() -> WinPath {
    WinPath::known(STATE_DIR).join("receipts")
}

fn path(generation: u32) -> WinPath {
    folder().join(&format!("{generation:04}.json"))
}

/// Returns all receipts by their generations, oldest first, each as far as it can be read. Ignores other files in the
/// folder.
///
/// # Errors
/// When the folder cannot be read.
pub fn all(node: &dyn Node) -> Result<Vec<(u32, Result<Receipt>)>> {
    let folder = node.disk(&folder());
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("read the receipts' folder"),
    };
    let mut receipts = Vec::new();
    for entry in entries {
        let file = entry.context("read the receipts' folder")?.path();
        let named = file.extension().is_some_and(|extension| extension == "json");
        let stem = file.file_stem().and_then(|stem| stem.to_str()).filter(|_| named);
        let Some(generation) = stem.and_then(|stem| stem.parse().ok()) else { continue };
        let receipt = fs::read_to_string(&file)
            .with_context(|| format!("read the receipt {}", file.display()))
            .and_then(|text| parse(&text, &file.display().to_string()));
        receipts.push((generation, receipt));
    }
    receipts.sort_by_key(|(generation, _)| *generation);
    Ok(receipts)
}

fn parse(text: &str, name: &str) -> Result<Receipt> {
    #[derive(Deserialize)]
    struct Probe {
        schema: u32,
    }
    let unreadable = |why: String| {
        Fault::new(Exit::Failed, "ReceiptUnreadable", format!("the receipt {name} is not readable: {why}")).hint(
            "it says what on this node is ours; restore it from a backup, or use the calicoctl-win version that \
                 wrote it; without either: calicoctl-win explain ReceiptUnreadable",
        )
    };
    let probe: Probe = serde_json::from_slice(text.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
    if probe.schema > SCHEMA {
        return Err(record::newer(format!("the receipt {name}"), probe.schema.into(), SCHEMA.into()).into());
    }
    // As journals are read, so that the program has the code of its items once.
    Ok(serde_json::from_slice(text.as_bytes()).map_err(|error| unreadable(error.to_string()))?)
}

/// Returns the current generation: the newest receipt, if something is installed.
pub fn standing(receipts: &[Receipt]) -> Option<&Receipt> {
    receipts.last().filter(|receipt| receipt.about.is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::item::{Id, NetworkKind, RegValue, StartType, Tree};

    /// A receipt as version 0.1.0 wrote it. Never edit the file: receipts in the field do not change.
    const FROZEN: &str = include_str!("../../tests/fixtures/receipts/v1.json");

    #[test]
    fn receipts_of_every_released_schema_can_be_read() {
        let receipt = parse(FROZEN, "v1.json").unwrap();
        let known = |id| receipt.target.world.contains_key(id) || receipt.target.leave.contains(id);
        assert!(receipt.generation == 1 && !receipt.owned.is_empty() && receipt.owned.keys().all(known));
        assert_eq!(serde_json::to_string_pretty(&receipt).unwrap() + "\n", FROZEN, "a field was lost or renamed");
    }

    /// Ids and states as every version writes them into receipts and journals. Lines are added, never edited.
    const WORDS: &str = include_str!("../../tests/fixtures/receipts/words-v1.jsonl");

    /// Returns the indexes of an id and of the parts of a state, in lists without gaps. Add a new variant here and to
    /// the file of ids and states.
    fn places(id: &Id, state: Option<&State>) -> Vec<(&'static str, usize)> {
        let id = match id {
            Id::Dir(_) => 0,
            Id::Tree(_) => 1,
            Id::File(_) => 2,
            Id::RegValue { .. } => 3,
            Id::Firewall(_) => 4,
            Id::Service(_) => 5,
            Id::DependsOn(_) => 6,
            Id::Network(_) => 7,
            Id::Route(_) => 8,
            Id::Adapter(_) => 9,
            Id::CniConf(_) => 10,
            Id::Running(_) => 11,
            Id::Cordon(_) => 12,
            Id::Achieved(_) => 13,
            Id::CalicoIsUp(_) => 14,
        };
        let access = |access: &Access| match access {
            Access::Inherited => ("access", 0),
            Access::Administrators => ("access", 1),
            Access::Closed => ("access", 2),
            Access::ClosedIfNew => ("access", 3),
            Access::Open(_) => ("access", 4),
        };
        let (state, part) = match state {
            None => (0, None),
            Some(State::Dir { access: of }) => (1, Some(access(of))),
            Some(State::Tree(Tree::Release(_))) => (2, Some(("tree", 0))),
            Some(State::Tree(Tree::Drifted { .. })) => (2, Some(("tree", 1))),
            Some(State::Tree(Tree::Foreign)) => (2, Some(("tree", 2))),
            Some(State::File { access: of, .. }) => (3, Some(access(of))),
            Some(State::RegValue(value)) => {
                let value = match value {
                    RegValue::String(_) => 0,
                    RegValue::ExpandString(_) => 1,
                    RegValue::MultiString(_) => 2,
                    RegValue::Dword(_) => 3,
                    RegValue::Qword(_) => 4,
                    RegValue::Binary(_) => 5,
                };
                (4, Some(("registry", value)))
            }
            Some(State::Firewall(_)) => (5, None),
            Some(State::Service(service)) => {
                let start = match service.start {
                    StartType::Auto => 0,
                    StartType::Manual => 1,
                    StartType::Disabled => 2,
                };
                (6, Some(("start", start)))
            }
            Some(State::DependsOn(_)) => (7, None),
            Some(State::Network(network)) => {
                let kind = match network.kind {
                    NetworkKind::Overlay => 0,
                    NetworkKind::L2Bridge => 1,
                    NetworkKind::L2Tunnel => 2,
                    NetworkKind::Transparent => 3,
                    NetworkKind::Nat => 4,
                    NetworkKind::Ics => 5,
                    NetworkKind::Private => 6,
                    NetworkKind::Internal => 7,
                };
                (8, Some(("network", kind)))
            }
            Some(State::Route { .. }) => (9, None),
            Some(State::Adapter(_)) => (10, None),
            Some(State::Running) => (11, None),
            Some(State::Cordon { .. }) => (12, None),
            Some(State::Achieved(_)) => (13, None),
            Some(State::CalicoIsUp) => (14, None),
        };
        [("id", id), ("state", state)].into_iter().chain(part).collect()
    }

    #[test]
    fn every_id_and_state_keeps_its_serialized_form() {
        let mut seen = BTreeMap::<&str, BTreeSet<usize>>::new();
        for line in WORDS.lines() {
            let (id, state): (Id, Option<State>) = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&(&id, &state)).unwrap(), line, "a word was changed");
            for (list, place) in places(&id, state.as_ref()) {
                seen.entry(list).or_default().insert(place);
            }
        }
        let all =
            [("access", 5), ("id", 15), ("network", 8), ("registry", 6), ("start", 3), ("state", 15), ("tree", 3)];
        for (list, count) in all {
            assert_eq!(seen[list], (0..count).collect(), "{list}: a word is missing in the file");
        }
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn a_receipt_of_a_later_schema_is_refused_with_its_name() {
        let error = parse(r#"{"schema": 2}"#, "0001.json").unwrap_err();
        assert!(error.to_string().contains("0001.json") && error.to_string().contains("schema 2"), "{error}");
    }
}
