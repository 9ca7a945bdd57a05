//! What is to be done: from settings to a wanted world, and from there to ordered steps. Pure.

pub mod desired;
pub mod diff;
pub mod files_in_use;
pub mod node_object;
pub mod order;
pub mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::item::{Id, State, World};

/// Where a run is going.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// What is wanted. What we own and is not wanted goes back to its original.
    #[serde(with = "pairs")]
    pub world: World,
    /// Items that may be as they are: with `start: false` whether services run is the admin's call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leave: BTreeSet<Id>,
    /// What must not be there while this stands, whoever made it: upstream's upgrade service, and a
    /// CalicoConfd that the backend has no use for. What was there comes back at uninstall.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub absent: BTreeSet<Id>,
}

/// The items that are ours, with what each was before our first touch (none: it was not there).
pub type Owned = BTreeMap<Id, Option<State>>;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Compare and set: the item must be `before`, or already `after`.
    Put { id: Id, before: Option<State>, after: Option<State> },
    /// Something the services do by themselves must come to be: a network, or, of a service that
    /// runs, the work that it is there for.
    Await { id: Id, state: State, within: Duration },
    /// The endpoints of pods on a network that is to go must be gone: HNS deletes none that they are on.
    Vacate { id: Id },
    /// The pods of a Node that is cordoned are moved away.
    Drain { id: Id },
}

impl Step {
    pub const fn id(&self) -> &Id {
        match self {
            Self::Put { id, .. } | Self::Await { id, .. } | Self::Vacate { id } | Self::Drain { id } => id,
        }
    }
}

/// A map with keys that JSON has no keys for, as a list of pairs.
pub mod pairs {
    use std::collections::BTreeMap;

    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    /// # Errors
    /// When the serializer has one.
    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map.iter())
    }

    /// # Errors
    /// When the text is no list of pairs.
    pub fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
