//! Many nodes: one change, made by Kubernetes' own DaemonSet controller. It places the pods, limits how many nodes are
//! out at once, retries and keeps revisions; this room makes its objects and reads how far it is.

mod found;
mod objects;
mod plan;
mod status;
mod tried;
mod vni;
mod waves;

pub use self::found::{DaemonSet, Fleet, FleetPod, Revision};
pub use self::objects::{
    MANAGED, MaxUnavailable, REVISION_VARIABLE, Rollout, daemon_set, idle, image, installs_another, preamble,
};
pub use self::plan::{FleetPlan, NodePods, PlannedNode, PlannedService, PlannedStep, PlannedWave, plan};
pub use self::status::{FleetFailure, FleetStatus, WaveState, WaveStatus, status};
pub use self::tried::{TriedAction, TriedObject, told};
pub use self::vni::{FleetVni, VniNodes, patch};
pub use self::waves::{FleetNode, LEFT_OUT, Wave, Wishes, waves};

/// The namespace of the objects, unless another is named.
pub const NAMESPACE: &str = "calicoctl-win";
