//! Policy-only mode: the ACLs that Felix set on the endpoints of another product's networks. HNS keeps them after Felix
//! is removed: the pods would remain blocked by rules that nobody updates any more.

use std::fs;

use anyhow::{Context, Result};
use regex::Regex;

use super::receipt::About;
use super::store;
use crate::calico::agent_config::FelixConfig;
use crate::item::{Id, State};
use crate::node::Node;
use crate::node::hns::Endpoint;
use crate::plan::Target;
use crate::plan::order::FELIX_SERVICE;
use crate::report::event::{Event, Sink};
use crate::settings::Backend;
use crate::values::WinPath;

/// The networks whose endpoints Felix set ACLs on, while Felix is being removed; none if the networks were Calico's own
/// and are removed with their endpoints.
pub struct Networks(Option<Regex>);

impl Networks {
    /// The networks of a generation, by the pattern that Felix was given. If there is none, or it cannot be read: every
    /// network.
    pub fn of(node: &dyn Node, about: Option<&About>, target: &Target) -> Option<Self> {
        let felix = Id::Service(FELIX_SERVICE.into());
        if about?.backend != Backend::None || !target.world.contains_key(&felix) {
            return None;
        }
        let told = match target.world.get(&Id::File(WinPath::known(FelixConfig::PATH))) {
            Some(State::File { sha256, .. }) => fs::read(node.disk(&store::blob(sha256))).ok(),
            _ => None,
        };
        let told = told.and_then(|text| serde_json::from_slice::<FelixConfig>(&text).ok()?.env.remove("KUBE_NETWORK"));
        Some(Self(told.and_then(|pattern| Regex::new(&pattern).ok())))
    }

    /// The same for a Felix that Calico's scripts installed and that is removed: every network.
    pub fn of_scripts(target: &Target) -> Option<Self> {
        target.absent.contains(&Id::Service(FELIX_SERVICE.into())).then_some(Self(None))
    }

    fn means(&self, network: &str) -> bool {
        self.0.as_ref().is_none_or(|pattern| pattern.is_match(network))
    }

    /// Returns the endpoints of pods that still have Felix's ACLs.
    ///
    /// # Errors
    /// When HNS cannot be asked.
    pub fn ruled(&self, node: &dyn Node) -> Result<Vec<Endpoint>> {
        let mut endpoints = node.endpoints().context("list the HNS endpoints")?;
        endpoints.retain(|endpoint| endpoint.is_a_pods() && self.means(&endpoint.network) && endpoint.is_ruled());
        Ok(endpoints)
    }

    /// Makes HNS allow all traffic there. Replaces the list of ACLs, as Felix does: no caller was ever seen to send HNS
    /// an empty list.
    ///
    /// # Errors
    /// When HNS cannot be asked, or refuses.
    pub fn open(&self, node: &mut dyn Node, events: Sink) -> Result<()> {
        for Endpoint { id, name, network, .. } in self.ruled(node)? {
            node.let_all_through(&id).with_context(|| format!("remove Calico's ACLs from the HNS endpoint {name}"))?;
            events(Event::Log { message: format!("removed Calico's ACLs from the HNS endpoint {name} of {network}") });
        }
        Ok(())
    }
}
