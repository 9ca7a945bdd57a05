//! The provider of the cluster, if the cluster shows it, and what Amazon's needs for Windows nodes (reference: the
//! user guide of EKS, "Windows nodes").

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use super::calico::Bare;
use super::identity::Identity;
use super::{Question, Unanswered, ask, if_checked, served};
use crate::cluster::api::{Api, path};
use crate::cluster::errors::Failure;
use crate::facts::{ClusterFacts, EksFacts};

/// The group in which EKS lets Windows nodes' kube-proxy read Services and EndpointSlices.
const WINDOWS_GROUP: &str = "eks:kube-proxy-windows";

/// The controllers that assign addresses to Windows pods in older clusters.
const CONTROLLERS: [&str; 2] = ["vpc-resource-controller", "vpc-admission-webhook"];

/// Whether this is the version of an API server of EKS, for example `v1.31.2-eks-7f9249a`.
pub(super) fn is_eks(version: &str) -> bool {
    version.contains("-eks-")
}

/// The pending requests for it.
pub(super) struct Platforms {
    openshift: Question<bool>,
    eks: Option<Eks>,
}

struct Eks {
    cni: Question<Option<ConfigMap>>,
    auth: Question<Option<ConfigMap>>,
    controllers: [(&'static str, Question<Option<Bare>>); 2],
}

impl Platforms {
    /// `version` is the API server's.
    pub fn ask(api: &Arc<Api>, version: &str, checks: bool) -> Self {
        let map = |name| {
            if_checked(checks, || ask(api, path(["api", "v1", "namespaces", "kube-system", "configmaps", name])))
        };
        let deployment = |name| {
            (
                name,
                if_checked(checks, || {
                    ask(api, path(["apis", "apps", "v1", "namespaces", "kube-system", "deployments", name]))
                }),
            )
        };
        let eks = is_eks(version).then(|| Eks {
            cni: map("amazon-vpc-cni"),
            auth: map("aws-auth"),
            controllers: CONTROLLERS.map(deployment),
        });
        Self { openshift: served(api, "config.openshift.io", "v1"), eks }
    }

    pub async fn fill(
        self,
        facts: &mut ClusterFacts,
        own: Option<&Identity>,
        unanswered: &mut Unanswered,
    ) -> Result<(), Failure> {
        facts.openshift = unanswered.may_be("config.openshift.io", self.openshift.answer().await)?.unwrap_or_default();
        let Some(eks) = self.eks else { return Ok(()) };
        let mut found = EksFacts::default();
        let cni = unanswered.checked("amazon-vpc-cni", eks.cni.answer().await)?.flatten();
        found.windows_ipam = cni.map(|map| value(&map, "enable-windows-ipam") == "true");
        for (name, question) in eks.controllers {
            if unanswered.checked(name, question.answer().await)?.flatten().is_some() {
                found.controllers.push(name.to_owned());
            }
        }
        let auth = unanswered.checked("aws-auth", eks.auth.answer().await)?.flatten();
        found.windows_role = auth.map(|map| value(&map, "mapRoles").contains(WINDOWS_GROUP));
        found.node_in_group = own.and_then(|own| own.node().map(|_| own.is_in(WINDOWS_GROUP)));
        facts.eks = Some(found);
        Ok(())
    }
}

fn value<'a>(map: &'a ConfigMap, key: &str) -> &'a str {
    map.data.as_ref().and_then(|data| data.get(key)).map_or("", String::as_str)
}
