//! All that HNS shows of its networks, for people: each with its subnets, policies, endpoints and load balancers.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Endpoint, KnownNetwork, endpoints, networks, objects, text};
use crate::facts::physical;

/// What HNS answers: the lists of its networks, endpoints and policy lists.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    pub networks: Value,
    pub endpoints: Value,
    pub policy_lists: Value,
}

/// One HNS network.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HnsNetwork {
    pub name: String,
    /// A GUID: several networks may have one name.
    pub id: String,
    /// For example `Overlay`; as HNS writes it if this program does not know it.
    #[serde(rename = "type")]
    pub kind: String,
    /// `calicoctl-win` if a generation of this node has it, `calico` if it is one of Calico's by name and type, else
    /// `other`: another product's.
    pub owner: &'static str,
    /// The VNI of an overlay network.
    pub vsid: Option<u32>,
    pub management_ip: Option<String>,
    pub adapter: Option<String>,
    /// Its vSwitch: the name, or the GUID if HNS gives it no name, as it does for networks on an adapter, where the GUID
    /// is the network's own; null if HNS says neither.
    pub vswitch: Option<String>,
    /// The MAC of its distributed router, to which other nodes send.
    pub router_mac: Option<String>,
    pub subnets: Vec<HnsSubnet>,
    /// As HNS has them, for example the routes to the subnets of other nodes.
    pub policies: Vec<Value>,
    pub endpoints: Vec<HnsEndpoint>,
    /// kube-proxy's, of which a backend is on this network.
    pub load_balancers: Vec<LoadBalancer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HnsSubnet {
    pub prefix: String,
    pub gateway: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HnsEndpoint {
    pub name: String,
    pub id: String,
    /// `namespace/name`; null if it is no pod's, or if the cluster was not asked.
    pub pod: Option<String>,
    pub ip: Option<String>,
    pub mac: Option<String>,
    /// `created`, `attached`, `shared` (attached to several containers), `detached` or `degraded`; null if HNS does not
    /// say.
    pub state: Option<&'static str>,
    /// It represents an endpoint of another machine, or this host.
    pub remote: bool,
    /// The other machine.
    pub provider_address: Option<String>,
    pub containers: Vec<String>,
    /// As HNS has them, for example Felix's ACLs.
    pub policies: Vec<Value>,
}

/// A load balancer of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadBalancer {
    pub id: String,
    /// The service's addresses; empty for a NodePort, which has those of the host.
    pub vips: Vec<String>,
    /// `TCP`, `UDP`, or the number of another protocol.
    pub protocol: String,
    pub external_port: Option<u64>,
    pub internal_port: Option<u64>,
    /// The addresses of its backends, on any network.
    pub backends: Vec<String>,
}

impl Answers {
    /// Every network, in HNS's order. `owner` says whose each is.
    pub fn inventory(&self, owner: impl Fn(&KnownNetwork) -> &'static str) -> Vec<HnsNetwork> {
        let raw = |list: &Value, id: &str| {
            objects(list).find(|value| text(value, "ID").as_deref() == Some(id)).cloned().unwrap_or_default()
        };
        let all = endpoints(&self.endpoints);
        let found = networks(&self.networks).into_iter().map(|known| {
            let value = raw(&self.networks, &known.id);
            let mut network = of(&known, &value, owner(&known));
            let own = all.iter().filter(|endpoint| endpoint.network_id.eq_ignore_ascii_case(&known.id));
            network.endpoints = own.map(|endpoint| shown(endpoint, &raw(&self.endpoints, &endpoint.id))).collect();
            network.load_balancers = self.load_balancers(&network.endpoints, &all);
            network
        });
        found.collect()
    }

    /// The load balancers with a backend among these endpoints of a network, of all.
    fn load_balancers(&self, of: &[HnsEndpoint], all: &[Endpoint]) -> Vec<LoadBalancer> {
        let mut found = Vec::new();
        for list in objects(&self.policy_lists) {
            let references: Vec<String> = objects_or_texts(&list["References"]).collect();
            let is_one = |id: &str| references.iter().any(|reference| reference.eq_ignore_ascii_case(id));
            if !of.iter().any(|endpoint| is_one(&endpoint.id)) {
                continue;
            }
            let ips = all.iter().filter(|endpoint| is_one(&endpoint.id)).filter_map(|endpoint| endpoint.ip);
            let backends: Vec<String> = ips.map(|ip| ip.to_string()).collect();
            for policy in objects(&list["Policies"]).filter(|policy| text(policy, "Type").as_deref() == Some("ELB")) {
                let vips = policy["VIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
                found.push(LoadBalancer {
                    id: text(list, "ID").unwrap_or_default(),
                    vips: vips.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                    protocol: match policy["Protocol"].as_u64() {
                        Some(6) => "TCP".into(),
                        Some(17) => "UDP".into(),
                        other => other.map_or_else(|| "any".into(), |number| number.to_string()),
                    },
                    external_port: policy["ExternalPort"].as_u64(),
                    internal_port: policy["InternalPort"].as_u64(),
                    backends: backends.clone(),
                });
            }
        }
        found
    }
}

/// The last parts of HNS's references: `/endpoints/ID`, or an object with such a path.
fn objects_or_texts(list: &Value) -> impl Iterator<Item = String> {
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let path = |value: &Value| value.as_str().or_else(|| value["Path"].as_str()).map(str::to_owned);
    all.filter_map(path).map(|path| path.rsplit('/').next().unwrap_or_default().to_owned())
}

fn of(known: &KnownNetwork, value: &Value, owner: &'static str) -> HnsNetwork {
    let network = known.network.as_ref();
    let subnets = objects(&value["Subnets"]).filter_map(|subnet| {
        Some(HnsSubnet { prefix: text(subnet, "AddressPrefix")?, gateway: text(subnet, "GatewayAddress") })
    });
    HnsNetwork {
        name: known.name.clone(),
        id: known.id.clone(),
        kind: network.map_or_else(|| known.kind.clone(), |network| network.kind.to_string()),
        owner,
        vsid: network.and_then(|network| network.vsid),
        management_ip: network.and_then(|network| network.management_ip).map(|ip| ip.to_string()),
        adapter: network.and_then(|network| network.adapter.as_deref()).map(|name| physical(name).to_owned()),
        // Recorded: an ICS network has both keys, an overlay network of HNS 15 only the GUID, those of HNS 9 none.
        vswitch: text(value, "SwitchName").or_else(|| text(value, "SwitchGuid")),
        router_mac: known.dr_mac.clone(),
        subnets: subnets.collect(),
        policies: objects(&value["Policies"]).cloned().collect(),
        endpoints: Vec::new(),
        load_balancers: Vec::new(),
    }
}

fn shown(endpoint: &Endpoint, value: &Value) -> HnsEndpoint {
    let policies: Vec<Value> = objects(&value["Policies"]).cloned().collect();
    HnsEndpoint {
        name: endpoint.name.clone(),
        id: endpoint.id.clone(),
        pod: None,
        ip: endpoint.ip.map(|ip| ip.to_string()),
        // In both forms.
        mac: text(value, "MacAddress").map(|mac| mac.replace('-', ":").to_lowercase()),
        state: endpoint.state_word(),
        remote: endpoint.remote,
        provider_address: policies.iter().find_map(|policy| text(policy, "PA")),
        containers: endpoint.containers.clone(),
        policies,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NETWORKS: &str = include_str!("../../../tests/fixtures/hns/v1-networks.9.2.json");
    const REMOTE: &str = include_str!("../../../tests/fixtures/hns/v1-endpoint-overlay-remote.5.1.json");
    const BALANCER: &str = include_str!("../../../tests/fixtures/hns/v1-policylist-elb-dsr.15.0.partial.json");

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_recorded_machine_is_shown_with_its_endpoints_and_load_balancers() {
        let mut networks = read(NETWORKS)["Output"].clone();
        let id = networks[0]["ID"].clone();
        networks[0]["Policies"] = json!([
            {"Type": "HostRoute"},
            {"Type": "RemoteSubnetRoute", "DestinationPrefix": "10.244.3.0/26", "IsolationId": 4096, "ProviderAddress": "10.20.0.4"},
        ]);
        let (mut remote, mut pod) = (read(REMOTE), read(REMOTE));
        remote["VirtualNetwork"] = id.clone();
        pod["VirtualNetwork"] = id.as_str().unwrap().to_lowercase().into();
        (pod["ID"], pod["IPAddress"]) = ("6d8e0f12-3a4b-4c5d-9e6f-708192a3b4c5".into(), "10.244.7.9".into());
        (pod["IsRemoteEndpoint"], pod["State"]) = (false.into(), 3.into());
        let answers = Answers { networks, endpoints: json!([remote, pod]), policy_lists: json!([read(BALANCER)]) };
        let shown = answers.inventory(|known| if known.name == "External" { "calico" } else { "other" });
        assert_eq!(shown[0].owner, "calico");
        assert!(shown[1..].iter().all(|network| network.owner == "other" && network.endpoints.is_empty()));
        let external = &shown[0];
        assert_eq!((external.kind.as_str(), external.vsid), ("Overlay", Some(9999)));
        assert_eq!((external.subnets[0].prefix.as_str(), external.policies.len()), ("192.168.255.0/30", 2));
        let [remote, pod] = &external.endpoints[..] else { panic!("{external:#?}") };
        assert_eq!((remote.remote, remote.provider_address.as_deref()), (true, Some("10.20.0.31")));
        assert_eq!((remote.state, remote.mac.as_deref()), (Some("created"), Some("0e:2a:0a:f4:31:4d")));
        assert_eq!((pod.remote, pod.state), (false, Some("shared")));
        let balancer = &external.load_balancers[0];
        assert_eq!((balancer.vips.as_slice(), balancer.external_port), (&["10.96.0.20".to_owned()][..], Some(55680)));
        assert_eq!((balancer.protocol.as_str(), balancer.backends.as_slice()), ("TCP", &["10.244.7.9".to_owned()][..]));
    }

    #[test]
    fn a_vswitch_without_a_name_has_its_guid() {
        let mut overlay = read(include_str!("../../../tests/fixtures/hns/v1-network-overlay.15.0.partial.json"));
        overlay["Name"] = "External".into();
        let mut networks = read(NETWORKS)["Output"].clone();
        networks.as_array_mut().unwrap().extend([overlay, json!({"ID": "a", "Name": "b", "SwitchName": "c"})]);
        let shown = Answers { networks, ..Answers::default() }.inventory(|_| "other");
        let [.., overlay, named] = &shown[..] else { panic!("{shown:#?}") };
        assert_eq!(overlay.vswitch.as_deref(), Some("E7574B2F-C43D-4D1D-84D5-0CEF1B0D583B"));
        assert_eq!((named.vswitch.as_deref(), shown[0].vswitch.as_deref()), (Some("c"), None));
    }

    #[test]
    fn what_hns_leaves_out_is_none() {
        let answers = Answers {
            networks: json!([{"ID": "a", "Name": "odd", "Type": "Layered"}, {"Name": "no id"}, null]),
            endpoints: json!([{"ID": "e", "VirtualNetwork": "A"}]),
            policy_lists: Value::Null,
        };
        let shown = answers.inventory(|_| "other");
        assert_eq!((shown.len(), shown[0].kind.as_str(), shown[0].vsid), (1, "Layered", None));
        assert_eq!((shown[0].endpoints[0].ip.clone(), shown[0].endpoints[0].state), (None, None));
        assert!(Answers::default().inventory(|_| "other").is_empty());
    }
}
