//! What the sandbox answers when it is asked how Windows behaves: as Windows is documented, unless a quirk is asked for.

use anyhow::Result;
use serde_json::{Value, json};

use super::SandboxNode;
use super::hns::{self as networks, details};
use super::model::{Endpoint, Model, Name, NodeNetwork};
use super::quirks::Quirk;
use crate::fault::{Exit, Fault};
use crate::item::{Id, NetworkKind, RegValue, State};
use crate::node::acl::{Acl, INHERITED};
use crate::node::hns::Refusal;
use crate::node::probe::Probe;
use crate::node::win32;

impl SandboxNode {
    pub(super) fn try_out(&mut self, probe: &Probe) -> Result<Option<u32>> {
        let refused = |quirk: Quirk, code: u32, node: &Self| (!node.is(quirk)).then_some(code);
        Ok(match probe {
            Probe::ReplaceOpenFile(_) => refused(Quirk::ReplacesOpenFiles, win32::SHARING_VIOLATION, self),
            Probe::MoveOpenFolder(_) => refused(Quirk::MovesOpenFolders, win32::ACCESS_DENIED, self),
            Probe::RuleInEveryProfile(name) => {
                let none = self.look()?.firewall_rule(name).is_none();
                (none || self.is(Quirk::FirewallLosesProfiles)).then_some(win32::NOT_FOUND)
            }
            Probe::FindEvent(_) => self.is(Quirk::EventLogForgets).then_some(win32::NOT_FOUND),
            Probe::FindPersistentRoute(address) => {
                let found = self.look()?.persistent_routes.keys().any(|prefix| prefix.addr() == *address);
                (!found).then_some(win32::NOT_FOUND)
            }
            Probe::ReuseHeldName(name) => {
                self.edit(|model| {
                    model.services.remove(&Name::new(name.as_str()));
                    Ok(())
                })?;
                refused(Quirk::FreesHeldNames, win32::SERVICE_MARKED_FOR_DELETE, self)
            }
            Probe::MakeEndpoint { network, name, ip } => self.edit(|model| {
                let Some(network) = model.networks.get_mut(&Name::new(network.as_str())) else {
                    return Ok(Some(win32::HNS_NETWORK_NOT_FOUND));
                };
                let [.., a, b, c] = ip.octets();
                let endpoint = Endpoint::new(*ip, format!("00-15-5D-{a:02X}-{b:02X}-{c:02X}"), None);
                network.endpoints.insert(Name::new(name.as_str()), endpoint);
                Ok(None)
            })?,
        })
    }

    /// What a quirk does besides to an item that was put.
    pub(super) fn put_with_quirks(&mut self, id: &Id, state: Option<&State>) -> Result<()> {
        match (id, state) {
            (Id::Network(_), None) if self.is(Quirk::AddressesStayAway) => self.edit(|model| {
                for adapter in &mut model.adapters {
                    adapter.addresses.clear();
                }
                Ok(())
            }),
            (Id::Route(prefix), _) if self.is(Quirk::RoutesPersist) => self.edit(|model| {
                match model.routes.get(prefix) {
                    Some(route) => drop(model.persistent_routes.insert(*prefix, route.clone())),
                    None => drop(model.persistent_routes.remove(prefix)),
                }
                Ok(())
            }),
            (Id::Adapter(name), Some(_)) if self.is(Quirk::DhcpStaysOn) => self.edit(|model| {
                let mut adapters = model.adapters.iter_mut();
                adapters.find(|adapter| adapter.name == *name).into_iter().for_each(|adapter| adapter.dhcp = true);
                Ok(())
            }),
            (Id::Network(name), Some(_)) if self.is(Quirk::HnsLosesVsid) => self.edit(|model| {
                if let Some(network) = model.networks.get_mut(&Name::new(name.as_str())) {
                    network.vsid = None;
                }
                Ok(())
            }),
            (Id::Network(name), Some(_)) if self.is(Quirk::HnsCreatesOnce) && name.ends_with("again") => {
                self.edit(|model| {
                    model.networks.remove(&Name::new(name.as_str()));
                    Ok(())
                })
            }
            _ => Ok(()),
        }
    }
}

/// An item as quirks let it be read.
pub fn read(id: &Id, found: Option<State>, quirks: &[Quirk]) -> Option<State> {
    let is = |quirk| quirks.contains(&quirk);
    let mut found = found?;
    match (&mut found, id) {
        (State::Service(service), _) => {
            if is(Quirk::ServiceLosesDescription) {
                service.description.clear();
            }
            if is(Quirk::ServiceLosesRecovery) {
                service.restart_after.clear();
            }
        }
        (State::RegValue(value), Id::RegValue { name, .. }) => {
            if is(Quirk::RegistryHasCase) && name.to_uppercase() == *name && !name.is_empty() {
                return None;
            }
            if let (true, RegValue::Qword(number)) = (is(Quirk::RegistryLosesType), &value) {
                *value = RegValue::Binary(number.to_le_bytes().to_vec());
            }
        }
        (State::Firewall(rule), _) if is(Quirk::FirewallLosesPorts) => rule.local_ports = "*".into(),
        (State::Route { metric, .. }, _) if is(Quirk::RouteLosesMetric) => *metric += 25,
        (State::Dir { access }, _) if is(Quirk::AccessChanges) => *access = crate::item::Access::Inherited,
        _ => {}
    }
    Some(found)
}

/// An access list as quirks let it be read.
pub fn acl(mut acl: Acl, quirks: &[Quirk]) -> Acl {
    if quirks.contains(&Quirk::AccessInherits) {
        acl.entries.iter_mut().flatten().for_each(|entry| entry.flags |= INHERITED);
    }
    acl
}

/// The error when HNS does not answer.
pub fn stuck(path: &str) -> Fault {
    Fault::new(Exit::Failed, "HnsStuck", format!("HNS did not answer GET {path} in 30 s"))
        .hint("calicoctl-win explain HnsStuck says what to do")
}

/// What HNS answers to a question, in the form in which HNS writes it.
pub fn hns(model: &Model, path: &str, quirks: &[Quirk]) -> Result<Value, Refusal> {
    let is = |quirk| quirks.contains(&quirk);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    Ok(match parts[..] {
        ["globals", "version"] => match model.hns {
            _ if is(Quirk::HnsIsOld) => json!({ "Major": 9, "Minor": 1 }),
            Some(version) => json!({ "Major": version.major, "Minor": version.minor }),
            None => Value::Null,
        },
        ["networks"] => model.networks.iter().map(|(name, found)| network(name, found, quirks)).collect(),
        ["endpoints"] => {
            let all = model.networks.iter().flat_map(|(name, network)| {
                network.endpoints.iter().map(move |(own, found)| endpoint(own, found, (name, network), quirks))
            });
            all.collect()
        }
        ["policylists"] => lists(model, is(Quirk::HnsReferencesAreObjects)),
        _ => {
            let code = if is(Quirk::HnsHasOtherCode) { win32::UNSPECIFIED } else { win32::HNS_NETWORK_NOT_FOUND };
            return Err(Refusal { code: Some(code), text: "The network was not found.".into() });
        }
    })
}

/// In the form of a recording from Server 2019 (HNS 9.2), shortened.
fn network(name: &Name, found: &NodeNetwork, quirks: &[Quirk]) -> Value {
    let mut subnets = Vec::new();
    if let Some(prefix) = found.subnet {
        let vsid = |vsid| if quirks.contains(&Quirk::HnsVsidIsText) { json!(format!("{vsid}")) } else { json!(vsid) };
        let policies: Vec<Value> =
            found.vsid.iter().map(|number| json!({ "Type": "VSID", "VSID": vsid(*number) })).collect();
        let mut subnet = json!({ "AdditionalParams": {}, "AddressPrefix": prefix.to_string(), "Policies": policies });
        if let Some(gateway) = found.gateway {
            subnet["GatewayAddress"] = json!(gateway.to_string());
        }
        subnets.push(subnet);
    }
    let mut value = json!({
        "CurrentEndpointCount": found.endpoints.len(), "Flags": 0, "Health": { "LastErrorCode": 0 },
        "ID": found.id.to_uppercase(), "IPv6": false, "Name": name.as_str(), "Policies": found.policies, "State": 1,
        "Subnets": subnets, "TotalEndpoints": found.endpoints.len(), "Type": kind(found.kind),
    });
    if let Some(ip) = found.management_ip {
        value["ManagementIP"] = json!(ip.to_string());
    }
    if let Some(mac) = details(name, found).dr_mac {
        value["DrMacAddress"] = json!(mac.replace(':', "-").to_uppercase());
    }
    value
}

/// HNS writes the kinds in other cases than those in which they are asked for.
fn kind(kind: NetworkKind) -> String {
    kind.to_string().to_lowercase()
}

fn endpoint(own: &Name, found: &Endpoint, (name, network): (&Name, &NodeNetwork), quirks: &[Quirk]) -> Value {
    let state = match &found.container {
        Some(_) if quirks.contains(&Quirk::HnsStateIsText) => json!("Attached"),
        Some(_) => json!(3),
        None => json!(1),
    };
    let mut value = json!({
        "ID": networks::endpoint_id(own), "IPAddress": found.ip.to_string(), "MacAddress": found.mac,
        "Name": own.as_str(), "Policies": found.policies,
        "SharedContainers": found.container.iter().collect::<Vec<_>>(),
        "State": state,
        "Type": kind(network.kind), "VirtualNetwork": network.id.to_uppercase(), "VirtualNetworkName": name.as_str(),
    });
    if found.remote {
        value["IsRemoteEndpoint"] = json!(true);
    }
    if quirks.contains(&Quirk::HnsLosesState)
        && let Some(fields) = value.as_object_mut()
    {
        fields.shift_remove("State");
    }
    value
}

/// kube-proxy's load balancers: a sandbox has one for each network with endpoints of pods.
fn lists(model: &Model, objects: bool) -> Value {
    let of = |(name, network): (&Name, &NodeNetwork)| {
        let to: Vec<Value> = network
            .endpoints
            .keys()
            .map(|own| format!("/endpoints/{}", networks::endpoint_id(own)))
            .map(|path| if objects { json!({ "Path": path }) } else { json!(path) })
            .collect();
        (!to.is_empty()).then(|| {
            let policy = json!({ "Type": "ELB", "Protocol": 6, "InternalPort": 8080, "ExternalPort": 80 });
            json!({ "ID": networks::endpoint_id(name), "Policies": [policy], "References": to, "State": 2 })
        })
    };
    model.networks.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! recorded {
        ($name:literal) => {
            serde_json::from_str::<Value>(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/fixtures/hns/",
                $name
            )))
            .unwrap()
        };
    }

    /// The keys of what is shown that no record has, or has with another type.
    fn made_up(place: &str, shown: &Value, records: &[&Value], found: &mut Vec<String>) {
        let alike = |record: &&&Value| std::mem::discriminant(**record) == std::mem::discriminant(shown);
        let records: Vec<&Value> = records.iter().filter(alike).copied().collect();
        match shown {
            _ if records.is_empty() => found.push(format!("{place}: {shown}")),
            Value::Object(fields) => {
                for (key, value) in fields {
                    let known: Vec<&Value> = records.iter().filter_map(|record| record.get(key)).collect();
                    made_up(&format!("{place}/{key}"), value, &known, found);
                }
            }
            Value::Array(all) => {
                let known: Vec<&Value> = records.iter().filter_map(|record| record.as_array()).flatten().collect();
                // Of a list that was always empty only that it is one is known.
                for one in all.iter().filter(|_| !known.is_empty()) {
                    let alike: Vec<&Value> =
                        known.iter().filter(|known| known["Type"] == one["Type"]).copied().collect();
                    made_up(&format!("{place}/{}", one["Type"].as_str().unwrap_or_default()), one, &alike, found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn what_a_sandbox_shows_of_hns_has_keys_and_types_that_were_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let mut model = SandboxNode::open(dir.path()).unwrap().model().unwrap();
        let calico = r#"{id: 0a, kind: Overlay, subnet: 192.168.0.0/26, gateway: 192.168.0.1, vsid: 4096,
            adapter: Ethernet, managementIp: 10.20.0.21, policies: [{Type: HostRoute}], endpoints: {
            Calico_ep: {ip: 192.168.0.2, mac: 00-15-5D-00-00-02, remote: true, policies: [{Type: PA, PA: 10.20.0.21}]},
            web: {ip: 192.168.0.5, mac: 0E-2A-C0-A8-00-05, container: 3f2c}}}"#;
        model.networks.insert(Name::new("Calico"), serde_yaml::from_str(calico).unwrap());
        let remote = recorded!("v1-endpoint-overlay-remote.5.1.json");
        let pod = recorded!("v1-endpoint-pod.9.5.partial.json");
        let list = recorded!("v1-policylist-elb-dsr.15.0.partial.json");
        let networks = [
            recorded!("v1-networks.9.2.json")["Output"].clone(),
            Value::Array(vec![
                recorded!("v1-network-Calico-overlay.9.5.partial.json"),
                recorded!("v1-network-overlay.15.0.partial.json"),
            ]),
        ];
        let networks: Vec<&Value> = networks.iter().flat_map(|list| list.as_array().unwrap()).collect();
        let mut found = Vec::new();
        for (path, records) in
            [("networks", networks), ("endpoints", vec![&remote, &pod]), ("policylists", vec![&list])]
        {
            let shown = hns(&model, path, &[]).unwrap();
            let shown = shown.as_array().unwrap();
            assert!(!shown.is_empty(), "{path}");
            shown.iter().for_each(|one| made_up(path, one, &records, &mut found));
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
