//! The version 1 API of the Host Networking Service: the documents, and how to react to its error numbers. Its error
//! texts are localised and change with the build, so no decision depends on them. The Windows node makes the calls.

pub mod inventory;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::win32::{self, refused};
use crate::calico::networks;
pub use crate::calico::networks::may_be_deleted;
use crate::facts::HnsVersion;
pub use crate::facts::physical;
use crate::fault::{Exit, Fault};
use crate::item::{Network, NetworkKind};

/// A network with its id in HNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNetwork {
    /// A GUID without braces.
    pub id: String,
    pub name: String,
    /// `Overlay`, `nat`, …, as HNS writes it.
    pub kind: String,
    /// None if this program does not know the kind.
    pub network: Option<Network>,
    /// The MAC of its distributed router, as Calico writes it: `00:15:5d:64:51:0e`.
    pub dr_mac: Option<String>,
}

/// An endpoint of a pod, of another machine, or of the host itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub id: String,
    pub name: String,
    /// Name of its network.
    pub network: String,
    /// GUID of its network.
    pub network_id: String,
    pub ip: Option<Ipv4Addr>,
    /// 1 created, 2 attached, 3 attached and shared, 4 detached, 5 degraded; none if HNS does not say.
    pub state: Option<u64>,
    /// Represents an endpoint on another machine, or (`Calico_ep`) the host.
    pub remote: bool,
    /// Containers that share it.
    pub containers: Vec<String>,
    /// Its ACLs, as HNS shows them.
    pub acls: Vec<Value>,
}

impl Endpoint {
    /// Whether it is [`networks::HOST_ENDPOINT`].
    pub fn is_the_hosts(&self) -> bool {
        self.name.eq_ignore_ascii_case(networks::HOST_ENDPOINT)
    }

    /// Whether it is a pod's. Calico's own, `<network>_ep`, is the host's address on the network and attached to no
    /// pod.
    pub fn is_a_pods(&self) -> bool {
        let calicos = self.name.eq_ignore_ascii_case(&format!("{}_ep", self.network));
        let attached = self.state.map_or(!self.containers.is_empty(), |state| matches!(state, 2 | 3));
        attached && !self.remote && !calicos
    }

    /// Its state as a word; none if HNS does not say.
    pub fn state_word(&self) -> Option<&'static str> {
        let words = ["created", "attached", "shared", "detached", "degraded"];
        words.get(usize::try_from(self.state?).ok()?.checked_sub(1)?).copied()
    }

    /// The containers that it was created for, in lower case: those that HNS names, and the pod sandbox that CNI
    /// plugins write into its name, `<sandbox>_<network>`.
    fn made_for(&self) -> Vec<String> {
        let network = format!("_{}", self.network);
        let sandbox = self.name.strip_suffix(&network).filter(|sandbox| !sandbox.is_empty());
        self.containers.iter().map(String::as_str).chain(sandbox).map(str::to_lowercase).collect()
    }

    /// Whether a running pod uses it.
    pub fn is_used(&self, running: &BTreeSet<String>) -> bool {
        self.is_a_pods() && !self.is_leaked(running)
    }

    /// Whether its containers are known and none of them runs: HNS keeps endpoints that nobody deleted
    /// (microsoft/Windows-Containers#631).
    pub fn is_leaked(&self, running: &BTreeSet<String>) -> bool {
        let made_for = self.made_for();
        !made_for.is_empty() && !made_for.iter().any(|container| running.contains(container))
    }

    /// Whether ACLs filter its traffic: any ACL except those that allow everything.
    pub fn is_ruled(&self) -> bool {
        let open = |acl: &Value| {
            let parts = ["LocalAddresses", "RemoteAddresses", "LocalPorts", "RemotePorts"];
            text(acl, "Action").is_some_and(|action| action == "Allow")
                && acl["Protocol"].as_u64().is_none_or(|protocol| protocol == ANY_PROTOCOL)
                && parts.iter().all(|part| text(acl, part).is_none())
        };
        !self.acls.iter().all(open)
    }

    /// Whether its only ACL is [`closes`]. Felix's always have others beside it: those for the host, in both directions
    /// (`endpoint_mgr.go`).
    pub fn is_closed(&self) -> bool {
        matches!(self.acls.as_slice(), [acl] if closes(acl))
    }

    /// Its name, and the containers that HNS names.
    pub fn describe(&self) -> String {
        match self.containers.as_slice() {
            [] => self.name.clone(),
            containers => format!("{} of container {}", self.name, containers.join(", ")),
        }
    }
}

/// An error from HNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `0x803Bxxxx`, or the Win32 error inside a `0x8007xxxx`. Old builds have none.
    pub code: Option<u32>,
    /// HNS's own text, in the language of the machine. For people only.
    pub text: String,
}

/// How to react to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// It does not exist: fine for a deletion.
    Gone,
    /// It may succeed later: the adapter is still returning from a vSwitch (hcsshim issue 95), or HNS is busy with it.
    TryAgain,
    /// A network of that name exists.
    Exists,
    /// Policy lists, endpoints or namespaces still refer to it.
    References,
    /// The service is stopping or stopped.
    Stopped,
    Denied,
    Fail,
}

impl Refusal {
    /// How to react when a creation fails. While adapters come and go, HNS refuses with codes of every kind:
    /// "adapter not found" (hcsshim issue 95), "parameter incorrect", time-outs of the network compartments, errors of
    /// the cluster service (K2s issue 1317). So only what is wrong with the request itself is final.
    pub fn on_create(&self) -> Reaction {
        match (self.on_any(), self.code) {
            (_, Some(win32::HNS_NETWORK_EXISTS)) => Reaction::Exists,
            (Reaction::Fail, Some(code)) if win32::HNS_BAD_REQUEST.contains(&code) => Reaction::Fail,
            (Reaction::Fail, _) => Reaction::TryAgain,
            (known, _) => known,
        }
    }

    /// How to react when a deletion or a read fails.
    pub const fn on_delete(&self) -> Reaction {
        match self.code {
            Some(win32::HNS_NETWORK_NOT_FOUND | win32::HNS_ENDPOINT_NOT_FOUND | win32::NOT_FOUND) => Reaction::Gone,
            Some(win32::HNS_HAS_REFERENCES) => Reaction::References,
            _ => self.on_any(),
        }
    }

    const fn on_any(&self) -> Reaction {
        match self.code {
            Some(win32::HNS_MANAGER_STOPPED | win32::RPC_UNAVAILABLE | win32::RPC_NOT_REGISTERED) => Reaction::Stopped,
            Some(win32::ACCESS_DENIED) => Reaction::Denied,
            _ => Reaction::Fail,
        }
    }

    /// The error as a fault: what was tried, the number, and HNS's own text.
    pub fn fault(&self, what: impl Into<String>) -> Fault {
        let mut fault = match (self.on_any(), self.code) {
            (Reaction::Denied, _) => win32::denied(what),
            (_, Some(code)) => refused(code, what),
            (_, None) => Fault::new(Exit::Failed, "WindowsError", what),
        };
        let text = self.text.trim().trim_end_matches('.');
        if !text.is_empty() {
            fault.what = format!("{}; HNS says: {text}", fault.what);
        }
        fault
    }
}

/// The content of an HNS response. HNS reports errors in two ways: by its result, or with the result 0 and
/// `"Success":false` in the text, where `ErrorCode` may be missing.
///
/// # Errors
/// The error from HNS. A response that is not JSON is one too.
pub fn answer(hresult: i32, text: &str) -> Result<Value, Refusal> {
    let envelope: Value = match serde_json::from_slice(text.as_bytes()) {
        Ok(envelope) => envelope,
        Err(_) if hresult < 0 || text.is_empty() => Value::Null,
        Err(e) => return Err(Refusal { code: None, text: format!("an answer that is no JSON ({e})") }),
    };
    let said = envelope["Error"].as_str().unwrap_or_default().to_owned();
    let code = envelope["ErrorCode"].as_u64().and_then(|code| u32::try_from(code).ok()).filter(|code| *code != 0);
    if hresult < 0 {
        return Err(Refusal { code: Some(win32_code(hresult.cast_unsigned())), text: said });
    }
    if envelope["Success"] == json!(false) {
        return Err(Refusal { code: code.map(win32_code), text: said });
    }
    Ok(envelope.get("Output").cloned().unwrap_or(Value::Null))
}

/// The Win32 error in a `0x8007xxxx`; others are unchanged.
const fn win32_code(hresult: u32) -> u32 {
    if hresult >> 16 == 0x8007 { hresult & 0xFFFF } else { hresult }
}

/// The body that creates a network. HNS chooses the value of a missing key.
pub fn create_body(name: &str, network: &Network) -> Value {
    let mut body = json!({ "Type": network.kind.to_string(), "Name": name });
    if let Some(adapter) = &network.adapter {
        body["NetworkAdapterName"] = json!(adapter);
    }
    if let Some(prefix) = network.subnet {
        let mut subnet = json!({ "AddressPrefix": prefix.to_string() });
        if let Some(gateway) = network.gateway {
            subnet["GatewayAddress"] = json!(gateway.to_string());
        }
        if let Some(vsid) = network.vsid {
            subnet["Policies"] = json!([{ "Type": "VSID", "VSID": vsid }]);
        }
        body["Subnets"] = json!([subnet]);
    }
    body
}

/// The networks of `GET /networks/`. Entries without id or name are skipped.
pub fn networks(output: &Value) -> Vec<KnownNetwork> {
    objects(output).filter_map(network).collect()
}

fn network(value: &Value) -> Option<KnownNetwork> {
    let kind = text(value, "Type").unwrap_or_default();
    let subnets = value["Subnets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (prefix, subnet) = subnets
        .iter()
        .find_map(|subnet| Some((Some(text(subnet, "AddressPrefix")?.parse().ok()?), subnet)))
        .unwrap_or((None, &Value::Null));
    let vsid = objects(&subnet["Policies"])
        .find(|policy| text(policy, "Type").is_some_and(|kind| kind.eq_ignore_ascii_case("VSID")))
        .and_then(|policy| u32::try_from(policy["VSID"].as_u64()?).ok());
    Some(KnownNetwork {
        id: text(value, "ID")?,
        name: text(value, "Name")?,
        // HNS writes it with dashes and in upper case.
        dr_mac: text(value, "DrMacAddress").map(|mac| mac.replace('-', ":").to_lowercase()),
        network: kind_of(&kind).map(|kind| Network {
            kind,
            subnet: prefix,
            gateway: address(subnet, "GatewayAddress"),
            vsid,
            adapter: text(value, "NetworkAdapterName"),
            management_ip: address(value, "ManagementIP"),
        }),
        kind,
    })
}

/// HNS spells its kinds in varying case.
fn kind_of(text: &str) -> Option<NetworkKind> {
    use NetworkKind::{Ics, Internal, L2Bridge, L2Tunnel, Nat, Overlay, Private, Transparent};
    [Overlay, L2Bridge, L2Tunnel, Transparent, Nat, Ics, Private, Internal]
        .into_iter()
        .find(|kind| kind.to_string().eq_ignore_ascii_case(text))
}

/// The endpoints of `GET /endpoints/`.
pub fn endpoints(output: &Value) -> Vec<Endpoint> {
    let endpoint = |value: &Value| {
        let containers = value["SharedContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(Endpoint {
            id: text(value, "ID")?,
            name: text(value, "Name").unwrap_or_default(),
            network: text(value, "VirtualNetworkName").unwrap_or_default(),
            network_id: text(value, "VirtualNetwork").unwrap_or_default(),
            ip: address(value, "IPAddress"),
            state: value["State"].as_u64(),
            remote: value["IsRemoteEndpoint"] == json!(true),
            containers: containers.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            acls: objects(&value["Policies"]).filter(|policy| is_acl(policy)).cloned().collect(),
        })
    };
    objects(output).filter_map(endpoint).collect()
}

/// The ids in the answer of `HcsEnumerateComputeSystems`: of containers, and of the virtual machines of
/// those with Hyper-V isolation, `<sandbox>@vm`.
///
/// # Errors
/// When the response is not valid.
pub fn compute_systems(answer: &str) -> serde_json::Result<BTreeSet<String>> {
    let systems: Value = serde_json::from_slice(answer.as_bytes())?;
    let id = |system: &Value| {
        let id = text(system, "Id").or_else(|| text(system, "ID"))?.to_lowercase();
        Some(id.strip_suffix("@vm").map(str::to_owned).unwrap_or(id))
    };
    let stopped = |system: &&Value| text(system, "State").is_some_and(|state| state == "Stopped");
    Ok(objects(&systems).filter(|system| !stopped(system)).filter_map(id).collect())
}

/// Whether a policy of an endpoint is an ACL.
pub fn is_acl(policy: &Value) -> bool {
    text(policy, "Type").is_some_and(|kind| kind.eq_ignore_ascii_case("ACL"))
}

/// HNS's number for every IP protocol.
const ANY_PROTOCOL: u64 = 256;

/// The lowest priority that works, says Calico's CNI plugin (`dataplane_windows.go`): of the rules that come last.
const LAST: u64 = 65_500;

/// Whether an ACL is the one with which Calico's CNI plugin closes a new pod until Felix has written its rules
/// (`dataplane_windows.go`).
pub fn closes(acl: &Value) -> bool {
    let is = |key: &str, value: &str| text(acl, key).is_some_and(|text| text == value);
    is_acl(acl) && is("Action", "Block") && is("Direction", "In") && acl["Priority"].as_u64() == Some(LAST)
}

/// The ACLs that allow everything, in Felix's form and with the priority of its last rules.
pub fn all_through() -> Vec<Value> {
    let acl = |direction: &str| {
        json!({
            "Type": "ACL", "Protocol": ANY_PROTOCOL, "Action": "Allow", "Direction": direction,
            "RuleType": "Switch", "Priority": LAST,
        })
    };
    vec![acl("In"), acl("Out")]
}

/// The request body that replaces an endpoint's ACLs: all of them at once, as Felix does.
pub fn acls_body(id: &str, acls: &[Value]) -> String {
    json!({ "ID": id, "Policies": acls }).to_string()
}

/// The response of `GET /globals/version`.
pub fn version(output: &Value) -> Option<HnsVersion> {
    let part = |key: &str| u32::try_from(output[key].as_u64()?).ok();
    Some(HnsVersion { major: part("Major")?, minor: part("Minor")? })
}

/// What the endpoints of pods on a network mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// Containers that may run: keep their network.
    Live,
    /// Containers from before the boot.
    Gone,
}

/// How much is deleted with a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// Its own endpoints. Those that represent other machines go with the network: kube-proxy has one for each pod of
    /// the cluster, and one after another they take hours on a slow HNS.
    Own,
    /// Also the endpoints that represent other machines.
    Remote,
}

/// What is deleted with a network, in order, as paths of HNS: policy lists that refer to its endpoints, its endpoints,
/// the network. If policy lists remain, HNS since 17763.1554 may end in a bad state.
///
/// # Errors
/// The names of the pods' endpoints that are still attached.
pub fn removal(
    network: &KnownNetwork,
    endpoints: &[Endpoint],
    policy_lists: &Value,
    pods: Pods,
    with: With,
) -> Result<Vec<String>, Vec<String>> {
    let mut of: Vec<&Endpoint> =
        endpoints.iter().filter(|endpoint| endpoint.network_id.eq_ignore_ascii_case(&network.id)).collect();
    let used: Vec<String> =
        of.iter().filter(|endpoint| endpoint.is_a_pods()).map(|endpoint| endpoint.describe()).collect();
    if pods == Pods::Live && !used.is_empty() {
        return Err(used);
    }
    let refers = |list: &Value| {
        let references = list["References"].as_array().map(Vec::as_slice).unwrap_or_default();
        let to = |id: &str| {
            references.iter().filter_map(Value::as_str).any(|reference| {
                let last = reference.rsplit('/').next().unwrap_or_default();
                last.eq_ignore_ascii_case(id)
            })
        };
        of.iter().any(|endpoint| to(&endpoint.id))
    };
    let lists = objects(policy_lists).filter(|list| refers(list)).filter_map(|list| text(list, "ID"));
    let lists: Vec<String> = lists.map(|id| format!("/policylists/{id}")).collect();
    of.retain(|endpoint| with == With::Remote || !endpoint.remote);
    of.sort_by_key(|endpoint| !endpoint.remote);
    let ends = of.iter().map(|endpoint| format!("/endpoints/{}", endpoint.id));
    Ok(lists.into_iter().chain(ends).chain([format!("/networks/{}", network.id)]).collect())
}

impl Network {
    /// Whether HNS needs a vSwitch on a physical adapter for it.
    pub const fn takes_adapter(&self) -> bool {
        use NetworkKind::{L2Bridge, L2Tunnel, Overlay, Transparent};
        matches!(self.kind, Overlay | L2Bridge | L2Tunnel | Transparent)
    }

    /// Completes what HNS shows: it names the adapter only if the request did (sig-windows-tools issue 378). The host's
    /// address of the network is then on the host's side of the adapter's vSwitch. `holder` gives the interface that
    /// has an address.
    pub fn complete(&mut self, holder: impl FnOnce(Ipv4Addr) -> Option<String>) {
        if self.adapter.is_none() && self.takes_adapter() {
            self.adapter = self.management_ip.and_then(holder).map(|name| physical(&name).to_owned());
        }
    }
}

/// The error when a network is still not shown by version 2 of HNS after it was deleted and re-created.
pub fn unseen_by_v2(name: &str) -> Fault {
    let what = format!(
        "version 2 of HNS does not show the HNS network {name} that version 1 shows, also after it was re-created: \
         Calico and kube-proxy do not find it"
    );
    Fault::new(Exit::VerifyFailed, "HnsNetworkUnseen", what).hint(
        "HNS's state is bad: drain this node, restart the services hns and kube-proxy or the machine, then run the \
         command again\ncalicoctl-win explain HnsNetworkUnseen has the commands",
    )
}

/// The error when a network that is not Calico's should be deleted.
pub fn foreign(name: &str) -> Fault {
    let what = format!("delete HNS network {name}: it is not one of Calico's, and its owner's pods may use it");
    Fault::new(Exit::Conflict, "ForeignNetwork", what).hint("remove it with the product that made it")
}

fn objects(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter(|value| value.is_object())
}

/// A text that is not empty: HNS writes absent ones as null or as an empty text.
fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn address(value: &Value, key: &str) -> Option<Ipv4Addr> {
    text(value, key)?.parse().ok().filter(|ip: &Ipv4Addr| !ip.is_unspecified())
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;

    /// A network as HNS 13 shows it, shortened.
    fn external() -> Value {
        json!({
            "ActivityId": "4E9C", "AdditionalParams": {}, "CurrentEndpointCount": 0, "DrMacAddress": "00-15-5D-64-51-0E",
            "Extensions": [{"Id": "E9B59CFA-2BE1-4B21-828F-B6FBDBDDC017", "IsEnabled": true, "Name": "VFP"}],
            "Health": {"LastErrorCode": 0}, "ID": "9B21E2F7-1F6B-4A43-8C55-54B4B2E0D1A1", "IPv6": false,
            "ManagementIP": "10.20.0.21", "Name": "External", "NetworkAdapterName": "Ethernet",
            "Policies": [], "State": 1, "Type": "overlay", "Version": 55834574851_u64,
            "Subnets": [{
                "AdditionalParams": {}, "AddressPrefix": "192.168.255.0/30", "GatewayAddress": "192.168.255.1",
                "Policies": [{"Type": "SomethingNew"}, {"Type": "VSID", "VSID": 9999}],
            }],
        })
    }

    fn endpoint(name: &str, network_id: &str, extra: Value) -> Value {
        let mut endpoint = json!({
            "ID": format!("id-{name}"), "Name": name, "VirtualNetwork": network_id, "VirtualNetworkName": "Calico",
            "IPAddress": "10.244.1.5", "State": 1,
        });
        for (key, value) in extra.as_object().unwrap() {
            endpoint[key] = value.clone();
        }
        endpoint
    }

    fn known(id: &str, name: &str) -> KnownNetwork {
        KnownNetwork { id: id.into(), name: name.into(), kind: "Overlay".into(), network: None, dr_mac: None }
    }

    #[test]
    fn a_network_is_read_as_hns_shows_it() {
        let nat = json!({"ID": "1", "Name": "nat", "Type": "nat", "Subnets": [{"AddressPrefix": "172.20.0.0/20"}]});
        let layered = json!({"ID": "2", "Name": "odd", "Type": "Layered", "ManagementIP": ""});
        let found = networks(&json!([external(), nat, layered, {"Name": "no id"}, null]));
        assert_eq!(found.len(), 3);
        let network = found[0].network.as_ref().unwrap();
        assert_eq!(network.vsid, Some(9999), "defect B11: the VSID is read, to be compared");
        assert_eq!(found[0].dr_mac.as_deref(), Some("00:15:5d:64:51:0e"));
        insta::assert_snapshot!(serde_json::to_string(network).unwrap(), @r#"{"kind":"Overlay","subnet":"192.168.255.0/30","gateway":"192.168.255.1","vsid":9999,"adapter":"Ethernet","managementIp":"10.20.0.21"}"#);
        insta::assert_snapshot!(serde_json::to_string(&found[1].network).unwrap(), @r#"{"kind":"NAT","subnet":"172.20.0.0/20"}"#);
        assert_eq!((found[2].kind.as_str(), &found[2].network), ("Layered", &None));
    }

    #[test]
    fn a_management_ip_is_none_until_there_is_one() {
        for ip in [json!(null), json!(""), json!("0.0.0.0")] {
            let mut network = external();
            network["ManagementIP"] = ip;
            assert_eq!(networks(&json!([network]))[0].network.as_ref().unwrap().management_ip, None);
        }
    }

    #[test]
    fn a_network_is_requested_as_upstream_does() {
        let Some(mut network) = networks(&json!([external()])).remove(0).network else { unreachable!() };
        insta::assert_snapshot!(create_body("External", &network), @r#"{"Type":"Overlay","Name":"External","NetworkAdapterName":"Ethernet","Subnets":[{"AddressPrefix":"192.168.255.0/30","GatewayAddress":"192.168.255.1","Policies":[{"Type":"VSID","VSID":9999}]}]}"#);
        (network.kind, network.vsid, network.adapter) = (NetworkKind::L2Bridge, None, None);
        insta::assert_snapshot!(create_body("External", &network), @r#"{"Type":"L2Bridge","Name":"External","Subnets":[{"AddressPrefix":"192.168.255.0/30","GatewayAddress":"192.168.255.1"}]}"#);
    }

    #[test]
    fn hns_reports_errors_in_two_ways_and_in_any_language() {
        let no = |hresult: u32, text: &str| answer(hresult.cast_signed(), text).unwrap_err();
        let gone = no(0, r#"{"Success":false,"Error":"Das Netzwerk wurde nicht gefunden. ","ErrorCode":2151350273}"#);
        assert_eq!((gone.code, gone.on_delete()), (Some(win32::HNS_NETWORK_NOT_FOUND), Reaction::Gone));
        for (refusal, create, delete) in [
            (no(0x8007_0490, ""), Reaction::TryAgain, Reaction::Gone),
            (no(0x8000_4005, "garbage"), Reaction::TryAgain, Reaction::Fail),
            (no(0x803B_0006, "{}"), Reaction::TryAgain, Reaction::Fail),
            (no(0x803B_0010, "{}"), Reaction::Exists, Reaction::Fail),
            (no(0x803B_002C, "{}"), Reaction::TryAgain, Reaction::References),
            (no(0x8007_06BA, ""), Reaction::Stopped, Reaction::Stopped),
            (no(0x8007_0005, ""), Reaction::Denied, Reaction::Denied),
            // Right after a deletion, while adapters and compartments are still being made.
            (no(0x8007_0057, ""), Reaction::TryAgain, Reaction::Fail),
            (no(0x803B_0025, "{}"), Reaction::TryAgain, Reaction::Fail),
            (no(0x803B_0026, "{}"), Reaction::TryAgain, Reaction::Fail),
            (no(0x8007_1392, ""), Reaction::TryAgain, Reaction::Fail),
            (no(0x8007_05B4, ""), Reaction::TryAgain, Reaction::Fail),
            (no(0x8ABC_DEF0, ""), Reaction::TryAgain, Reaction::Fail),
            // The request itself is wrong: its type, JSON or address.
            (no(0x803B_000B, "{}"), Reaction::Fail, Reaction::Fail),
            (no(0x803B_001B, "{}"), Reaction::Fail, Reaction::Fail),
            (no(0x803B_0032, "{}"), Reaction::Fail, Reaction::Fail),
            (no(0x8007_0032, ""), Reaction::Fail, Reaction::Fail),
            // An old build: no number.
            (no(0, r#"{"Success":false,"Error":"Element not found. "}"#), Reaction::TryAgain, Reaction::Fail),
            (no(0, "<html>"), Reaction::TryAgain, Reaction::Fail),
        ] {
            assert_eq!((refusal.on_create(), refusal.on_delete()), (create, delete), "{refusal:?}");
        }
        assert_eq!(answer(0, r#"{"Success":true}"#), Ok(Value::Null));
        assert_eq!(answer(0, ""), Ok(Value::Null));
        assert_eq!(answer(0, r#"{"Success":true,"Output":[1]}"#), Ok(json!([1])));
    }

    #[test]
    fn a_refusal_is_reported_with_its_number_and_hnss_text() {
        let refusal = |code: Option<u32>| Refusal { code, text: "Falscher Parameter. ".into() };
        insta::assert_snapshot!(refusal(Some(87)).fault("create HNS network External"), @"create HNS network External (Windows error 87: the parameter is incorrect); HNS says: Falscher Parameter");
        insta::assert_snapshot!(refusal(None).fault("delete HNS network Calico"), @"delete HNS network Calico; HNS says: Falscher Parameter");
        assert_eq!(refusal(Some(5)).fault("x").exit, Exit::Failed);
    }

    #[test]
    fn references_to_a_network_are_deleted_before_it() {
        let found = endpoints(&json!([
            endpoint("Calico_ep", "AAAA", json!({"State": 2})),
            endpoint("web", "aaaa", json!({"State": 4})),
            endpoint("far", "aaaa", json!({"IsRemoteEndpoint": true, "State": 2})),
            endpoint("other", "bbbb", json!({"State": 2})),
        ]));
        let lists = json!([
            {"ID": "of-other", "References": ["/endpoints/id-other"]},
            {"ID": "of-web", "References": ["/endpoints/id-other", "/endpoints/ID-WEB"]},
            {"ID": "of-far", "References": ["/endpoints/id-far"]},
        ]);
        let paths = |with| removal(&known("aaaa", "Calico"), &found, &lists, Pods::Live, with).unwrap().join("\n");
        insta::assert_snapshot!(paths(With::Own), @r"
        /policylists/of-web
        /policylists/of-far
        /endpoints/id-Calico_ep
        /endpoints/id-web
        /networks/aaaa
        ");
        insta::assert_snapshot!(paths(With::Remote), @r"
        /policylists/of-web
        /policylists/of-far
        /endpoints/id-far
        /endpoints/id-Calico_ep
        /endpoints/id-web
        /networks/aaaa
        ");
    }

    #[test]
    fn a_network_with_pods_is_kept() {
        let found = endpoints(&json!([
            endpoint("web", "aaaa", json!({"State": 2, "SharedContainers": ["3f2c"]})),
            endpoint("db", "aaaa", json!({"State": 3})),
            endpoint("old", "aaaa", json!({"State": null, "SharedContainers": ["77"]})),
        ]));
        let used = removal(&known("aaaa", "Calico"), &found, &Value::Null, Pods::Live, With::Own).unwrap_err();
        assert_eq!(used, ["web of container 3f2c", "db", "old of container 77"]);
    }

    /// As HNS shows a network for which it was to choose the adapter.
    #[test]
    fn the_adapter_that_hns_does_not_name_is_the_one_with_the_management_ip() {
        let mut shown = external();
        shown.as_object_mut().unwrap().remove("NetworkAdapterName");
        let mut network = networks(&json!([shown])).remove(0).network.unwrap();
        assert_eq!(network.adapter, None);
        network.complete(|ip| (ip.to_string() == "10.20.0.21").then(|| "vEthernet (Ethernet 2)".to_owned()));
        assert_eq!(network.adapter.as_deref(), Some("Ethernet 2"));
        network.complete(|_| Some("vEthernet (Ethernet)".to_owned()));
        assert_eq!(network.adapter.as_deref(), Some("Ethernet 2"), "what HNS names counts");
        let mut nat = Network { kind: NetworkKind::Nat, adapter: None, ..network };
        nat.complete(|_| Some("vEthernet (nat)".to_owned()));
        assert_eq!(nat.adapter, None);
    }

    #[test]
    fn b13_only_calicos_networks_and_those_of_a_migration_may_be_deleted() {
        for name in ["External", "external", "Calico", "calico-10-244-1-0", "flannel.4096", "vxlan0", "cbr0"] {
            assert!(may_be_deleted(name), "{name}");
        }
        for name in ["nat", "azure", "flannel", "vxlan01", "vpcbr0123", "Default Switch", "my Calico"] {
            assert!(!may_be_deleted(name), "{name}");
        }
    }

    #[test]
    fn the_version_is_a_pair_of_numbers() {
        assert_eq!(version(&json!({"Major": 13, "Minor": 2})), Some(HnsVersion { major: 13, minor: 2 }));
        assert_eq!(version(&json!({"Major": 13})), None);
        assert_eq!(version(&Value::Null), None);
    }
}
