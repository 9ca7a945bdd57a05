//! What to do: a wanted world from the settings, and ordered steps to it. Pure.

pub mod desired;
pub mod diff;
pub mod files_in_use;
pub mod image;
pub mod kubernetes;
pub mod node_object;
pub mod order;
pub mod show;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::item::{Id, State, World};

/// The goal of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// What is wanted. An item that is ours and not wanted is restored to its original.
    #[serde(with = "pairs")]
    #[schemars(with = "Vec<(Id, State)>")]
    pub world: World,
    /// Items that are left as they are: with `start: false` the admin decides whether services run.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leave: BTreeSet<Id>,
    /// What must not exist meanwhile, even if another program created it: upstream's upgrade service, and a CalicoConfd that the
    /// backend does not need. Uninstall restores it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub absent: BTreeSet<Id>,
    /// Files of the user in the release's folder, which Calico reads there. They are in `world` as they were found, so
    /// that they are written again if the folder is replaced. They are never ours.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub kept: BTreeSet<Id>,
    /// Networks that are deleted and created again, although they are as wanted. The journal has those that are left to
    /// delete.
    #[serde(skip)]
    pub recreated: BTreeSet<Id>,
}

impl Target {
    /// Whether both want the same, whatever the user's files are.
    pub fn is_same(&self, other: &Self) -> bool {
        let wanted = |target: &Self| {
            let mut world = target.world.clone();
            world.retain(|id, _| !target.kept.contains(id));
            world
        };
        wanted(self) == wanted(other) && self.leave == other.leave && self.absent == other.absent
    }
}

/// The items that are ours, with the state of each before our first change (none: it did not exist).
pub type Owned = BTreeMap<Id, Option<State>>;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Compare and set: the current state must be `before`, or already `after`.
    Put { id: Id, before: Option<State>, after: Option<State> },
    /// Wait for what the services do themselves: create a network, or, for a running service, complete its work.
    Await { id: Id, state: State, within: Duration },
    /// Wait until no pod has an endpoint on a network that will be deleted: HNS does not delete a network with pods.
    Vacate { id: Id },
    /// Evict the pods of a cordoned Node.
    Drain { id: Id },
}

impl Step {
    pub const fn id(&self) -> &Id {
        match self {
            Self::Put { id, .. } | Self::Await { id, .. } | Self::Vacate { id } | Self::Drain { id } => id,
        }
    }
}

/// A map whose keys are not valid JSON keys, as a list of pairs.
pub mod pairs {
    use std::collections::BTreeMap;

    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    /// # Errors
    /// When the serializer fails.
    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map.iter())
    }

    /// # Errors
    /// When the text is not a list of pairs.
    pub fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
