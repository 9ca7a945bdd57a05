//! What `verify` reads of the cluster: the IPAM blocks of a node, and the service for DNS.

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Cluster;
use super::api::{path, query};
use crate::fault::Fault;

/// The service that pods ask for names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsService {
    /// Its ClusterIP.
    pub address: String,
    /// The number of its ready endpoints.
    pub ready: usize,
}

impl Cluster {
    /// The IPAM blocks that are confirmed for a node, as CIDRs.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or has no Calico.
    pub fn blocks_of(&self, node: &str) -> Result<Vec<String>> {
        let affinities: Vec<Value> = self.calico_list("blockaffinities")?;
        let is_ours = |spec: &Value| {
            let deleted = spec["deleted"] == true || spec["deleted"] == "true";
            spec["node"] == node && spec["state"] == "confirmed" && !deleted
        };
        let ours = affinities.iter().map(|affinity| &affinity["spec"]).filter(|spec| is_ours(spec));
        Ok(ours.filter_map(|spec| spec["cidr"].as_str()).map(str::to_owned).collect())
    }

    /// A list of Calico's resources, from the group that the cluster serves.
    fn calico_list<T: DeserializeOwned>(&self, plural: &str) -> Result<Vec<T>> {
        match self.list(&path(["apis", "crd.projectcalico.org", "v1", plural])) {
            Err(error) if Fault::id_of(&error) == "ApiNotServed" => {
                self.list(&path(["apis", "projectcalico.org", "v3", plural]))
            }
            listed => listed,
        }
    }

    /// The service `kube-dns`; none if there is none.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn dns_service(&self) -> Result<Option<DnsService>> {
        let Some(service) = self.get::<Value>("/api/v1/namespaces/kube-system/services/kube-dns")? else {
            return Ok(None);
        };
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
        let slices: Vec<Value> =
            self.list(&query(slices, &[("labelSelector", "kubernetes.io/service-name=kube-dns")]))?;
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        // Unknown means ready.
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false).count();
        Ok(Some(DnsService { address, ready }))
    }
}
