//! Who the kubeconfig's user is, in the cluster's own words.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::cluster::api::Api;
use crate::cluster::errors::Failure;

/// Answers that since Kubernetes 1.28.
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The group of every kubelet, and the beginning of its user name.
const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";

#[derive(Debug, Deserialize)]
pub(in crate::cluster) struct Identity {
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

impl Identity {
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// The Node whose kubelet this is.
    pub fn node(&self) -> Option<&str> {
        self.username.strip_prefix(NODE).filter(|_| self.is_in(NODES))
    }
}

#[derive(Deserialize)]
struct Review {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    user_info: Identity,
}

/// Asks the cluster; none if it does not say.
pub(in crate::cluster) async fn ask(api: &Arc<Api>) -> Result<Option<Identity>, Failure> {
    let question = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer: Review = api.post(WHO_AM_I, &question).await?;
    Ok(answer.status.map(|status| status.user_info))
}
