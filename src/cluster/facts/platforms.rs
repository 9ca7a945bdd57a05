//! Whose Kubernetes the cluster is, as far as the cluster tells it, and what Amazon's needs for
//! Windows nodes (reference: the user guide of EKS, "Windows nodes").

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;

use super::{Question, Untold, ask, served};
use crate::cluster::api::{Api, path};
use crate::cluster::errors::Failure;
use crate::facts::{ClusterFacts, EksFacts};

/// The group in which EKS lets Windows nodes' kube-proxy read Services and EndpointSlices.
const WINDOWS_GROUP: &str = "eks:kube-proxy-windows";

/// What older clusters ran to give Windows pods their addresses.
const CONTROLLERS: [&str; 2] = ["vpc-resource-controller", "vpc-admission-webhook"];

/// The questions about it, on their way.
pub(super) struct Platforms {
    openshift: Question<bool>,
    eks: Option<Eks>,
}

struct Eks {
    cni: Question<Option<ConfigMap>>,
    auth: Question<Option<ConfigMap>>,
    controllers: [(&'static str, Question<Option<Deployment>>); 2],
}

impl Platforms {
    /// `version` is the API server's: that of EKS says so, as `v1.31.2-eks-7f9249a`.
    pub fn ask(api: &Arc<Api>, version: &str) -> Self {
        let map = |name| ask(api, path(["api", "v1", "namespaces", "kube-system", "configmaps", name]));
        let deployment =
            |name| (name, ask(api, path(["apis", "apps", "v1", "namespaces", "kube-system", "deployments", name])));
        let eks = version.contains("-eks-").then(|| Eks {
            cni: map("amazon-vpc-cni"),
            auth: map("aws-auth"),
            controllers: CONTROLLERS.map(deployment),
        });
        Self { openshift: served(api, "config.openshift.io", "v1"), eks }
    }

    pub async fn fill(self, facts: &mut ClusterFacts, untold: &mut Untold) -> Result<(), Failure> {
        facts.openshift = untold.may_be("config.openshift.io", self.openshift.answer().await)?.unwrap_or_default();
        let Some(eks) = self.eks else { return Ok(()) };
        let mut found = EksFacts::default();
        let cni = untold.may_be("amazon-vpc-cni", eks.cni.answer().await)?.flatten();
        found.windows_ipam = cni.map(|map| value(&map, "enable-windows-ipam") == "true");
        for (name, question) in eks.controllers {
            if untold.may_be(name, question.answer().await)?.flatten().is_some() {
                found.controllers.push(name.to_owned());
            }
        }
        let auth = untold.may_be("aws-auth", eks.auth.answer().await)?.flatten();
        found.windows_role = auth.map(|map| value(&map, "mapRoles").contains(WINDOWS_GROUP));
        facts.eks = Some(found);
        Ok(())
    }
}

fn value<'a>(map: &'a ConfigMap, key: &str) -> &'a str {
    map.data.as_ref().and_then(|data| data.get(key)).map_or("", String::as_str)
}
