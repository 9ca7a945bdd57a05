//! Stories with the test DLL for HNS (tests/windows/shims/vmcompute.c).

use super::*;
use crate::item::NetworkKind;
use crate::node::windows::testing::{AT_ONCE, Machine, NAT};

/// A machine without recent deletions.
fn machine() -> Option<Machine> {
    let machine = Machine::new();
    *LAST_DELETED.lock().unwrap() = None;
    machine
}

/// The changes that HNS was asked for.
fn changes(machine: &Machine) -> Vec<String> {
    machine.read("hns.log").lines().filter(|line| !line.starts_with("GET")).map(str::to_owned).collect()
}

fn external_id() -> String {
    find("External").unwrap().unwrap().id
}

fn external() -> Network {
    Network {
        kind: NetworkKind::Overlay,
        subnet: Some("192.168.255.0/30".parse().unwrap()),
        gateway: Some("192.168.255.1".parse().unwrap()),
        vsid: Some(9999),
        adapter: Some("Ethernet".into()),
        management_ip: None,
    }
}

fn said(result: Result<()>) -> String {
    let error = result.unwrap_err();
    let fault = Fault::of(&error).unwrap();
    format!("{}: {error} [{}]", fault.id, fault.hint.as_deref().unwrap_or_default())
}

#[test]
fn a_network_is_created_once_and_deleted_with_its_references() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    put("EXTERNAL", &external()).unwrap();
    let there = get("external").unwrap().unwrap();
    assert_eq!((there.vsid, there.management_ip), (Some(9999), Some("10.20.0.21".parse().unwrap())));
    let id = external_id();
    let ends = format!(
        r#"{{"ID":"e1","Name":"External_ep","VirtualNetwork":"{id}","VirtualNetworkName":"External","State":2}}
{{"ID":"e2","Name":"far","VirtualNetwork":"{id}","VirtualNetworkName":"External","IsRemoteEndpoint":true,"State":2}}
{{"ID":"e3","Name":"other","VirtualNetwork":"1111","VirtualNetworkName":"nat","State":2}}
"#
    );
    machine.write("hns.endpoints", &ends);
    let lists = r#"{"ID":"p1","References":["/endpoints/e1"]}
{"ID":"p2","References":["/endpoints/e3"]}
"#;
    machine.write("hns.policylists", lists);
    remove("External").unwrap();
    remove("External").unwrap();
    // The endpoints that represent other machines go with the network: there is one for each pod of the cluster.
    let wanted = ["POST /networks/", "DELETE /policylists/p1", "DELETE /endpoints/e1"];
    assert_eq!(changes(&machine), [&wanted[..], &[&*format!("DELETE /networks/{id}")]].concat());
    // Defect B13: other products' networks are unchanged.
    assert_eq!(machine.read("hns.networks"), format!("{NAT}\n"));
    assert!(machine.read("hns.endpoints").contains("\"e3\"") && machine.read("hns.policylists").contains("\"p2\""));
    assert_eq!(endpoints().unwrap()[0].name, "other");
}

#[test]
fn b13_a_network_of_another_product_is_never_deleted() {
    let Some(machine) = machine() else { return };
    assert_eq!(
        said(remove("nat").map(drop)),
        "ForeignNetwork: delete HNS network nat: it is not one of Calico's, and its owner's pods may use it \
         [remove it with the product that made it]"
    );
    assert!(changes(&machine).is_empty());
}

#[test]
fn b11_a_network_with_another_vsid_does_not_satisfy() {
    let Some(_machine) = machine() else { return };
    put("Calico", &Network { vsid: Some(4096), ..external() }).unwrap();
    let error = said(put("Calico", &Network { vsid: Some(5000), ..external() }));
    assert!(error.starts_with("HnsNetworkExists: create HNS network Calico on adapter `Ethernet`"), "{error}");
    assert_eq!(get("Calico").unwrap().unwrap().vsid, Some(4096));
}

#[test]
fn a_creation_too_soon_after_a_deletion_is_retried() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    machine.write("settings", "adapter-away=2\nadapter-polls=3\nmanagement-ip-polls=2\n");
    remove("External").unwrap();
    machine.write(
        "hns.faults",
        "0 1 POST /networks hresult 0x80004005\n0 1 POST /networks plain Element nicht gefunden\n",
    );
    put("External", &external()).unwrap();
    assert_eq!(changes(&machine).iter().filter(|change| change.starts_with("POST")).count(), 6);
    assert_eq!(get("External").unwrap().unwrap().management_ip, None, "it comes late");
}

#[test]
fn a_wrong_adapter_is_refused_at_once_with_the_existing_ones() {
    let Some(machine) = machine() else { return };
    let wrong = Network { adapter: Some("Ethernet 2".into()), ..external() };
    insta::assert_snapshot!(said(put("External", &wrong)), @"HnsAdapterNotFound: create HNS network External on adapter `Ethernet 2`; there are: Ethernet (Windows error 0x803B0006: HNS does not find the adapter); HNS says: An adapter was not found [name a physical adapter that is up, or none to let HNS choose]");
    assert_eq!(changes(&machine).len(), 1);
    // An adapter that exists, but is bound to another switch, is retried.
    machine.write("hns.faults", "0 -1 POST /networks error 0x803B0006 Kein Adapter.\n");
    let error = said(put("External", &external()));
    assert!(error.contains("HNS says: Kein Adapter") && changes(&machine).len() > 3, "{error}");
}

#[test]
fn a_network_with_pods_is_kept_and_the_pods_are_named() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    let id = external_id().to_lowercase();
    machine.write(
        "hns.endpoints",
        &format!(r#"{{"ID":"e1","Name":"web","VirtualNetwork":"{id}","State":2,"SharedContainers":["3f2c"]}}"#),
    );
    insta::assert_snapshot!(said(remove("External").map(drop)), @"HnsNetworkInUse: delete HNS network External, to which endpoints are attached: web of container 3f2c (Windows error 0x803B002C: HNS still has references to the network) [drain the node, so that no pod uses the network, then run again]");
    assert_eq!(changes(&machine).len(), 1, "nothing was deleted");
    // From before a reboot; the endpoint is of a runtime that started before CalicoNode. Others' networks are kept.
    let network = external_id();
    machine.write("hcs.systems", "3f2c\n");
    let stale = |name: &str, _: &Network| name == "External";
    for told in [vec!["web"], vec![]] {
        let mut lost = Vec::new();
        let mut tell = |endpoints: Vec<Endpoint>| {
            lost.extend(endpoints.into_iter().map(|endpoint| endpoint.name));
            Ok(())
        };
        remove_stale(&stale, &mut tell).unwrap();
        assert_eq!(lost, told);
        assert_eq!(changes(&machine)[1..], ["DELETE /endpoints/e1".to_owned(), format!("DELETE /networks/{network}")]);
    }
}

#[test]
fn new_references_are_deleted_too_and_a_missing_network_is_fine() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    machine.write("hns.faults", "0 2 DELETE /networks error 0x803B002C Noch in Benutzung.\n");
    remove("External").unwrap();
    put("External", &external()).unwrap();
    machine.write("hns.faults", "0 -1 DELETE /networks error 0x803B002C Noch in Benutzung.\n");
    let error = said(remove("External").map(drop));
    assert!(error.starts_with("HnsNetworkInUse") && error.contains("HNS says: Noch in Benutzung"), "{error}");
}

#[test]
fn a_network_that_is_still_listed_is_awaited_up_to_a_limit() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    machine.write("hns.faults", "0 -1 DELETE /networks lose\n");
    let error = said(remove("External").map(drop));
    assert!(error.starts_with("HnsStuck: delete HNS network External: HNS still lists it after 1 s"), "{error}");
}

/// An endpoint may take HNS two minutes, and Calico's own mutex is held for all of them.
#[test]
fn many_slow_endpoints_have_one_limit() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    let id = external_id();
    let leaked =
        |n: i32| format!("{{\"ID\":\"e{n}\",\"Name\":\"leaked-{n}\",\"VirtualNetwork\":\"{id}\",\"State\":4}}\n");
    machine.write("hns.endpoints", &(0..12).map(leaked).collect::<String>());
    machine.write("hns.faults", "0 -1 DELETE /endpoints busy 1000\n");
    let error = said(remove("External").map(drop));
    assert!(error.starts_with("HnsStuck: "), "{error}");
    let asked = changes(&machine);
    assert!(asked.len() < 8 && !asked.iter().any(|line| line.starts_with("DELETE /networks")), "{asked:?}");
    // It answers when it has done the last one, on which this program gave up.
    assert_eq!(list().unwrap().len(), 2);
}

#[test]
fn an_address_that_does_not_return_is_told() {
    let Some(machine) = machine() else { return };
    put("External", &external()).unwrap();
    machine.write("settings", &format!("{AT_ONCE}adapter-polls=100000\n"));
    assert_eq!(remove("External").unwrap(), Some("10.20.0.21".parse().unwrap()));
    assert_eq!(machine.read("hns.networks"), format!("{NAT}\n"), "it is deleted, and that is no failure");
}

/// The host's side of the vSwitch has the address until it is gone; another adapter may have one meanwhile.
#[test]
fn the_dying_vswitch_does_not_count_as_the_adapter_that_returned() {
    let ip = "10.20.0.21".parse().unwrap();
    let interface = |index: u32, name: &str, up: bool, address: &str| Interface {
        index,
        guid: String::new(),
        name: name.into(),
        description: String::new(),
        mac: String::new(),
        up,
        dhcp: false,
        metric: 25,
        addresses: vec![address.parse().unwrap()],
    };
    let dying = interface(12, "vEthernet (Ethernet)", true, "10.20.0.21/24");
    let other = interface(9, "Lab", true, "10.99.0.9/24");
    let down = interface(7, "Ethernet", false, "10.20.0.21/24");
    let back = interface(7, "Ethernet", true, "10.20.0.21/24");
    assert!(!has_returned(&[dying.clone(), other.clone(), down], ip, Some(12)));
    assert!(has_returned(&[dying.clone(), other, back], ip, Some(12)));
    assert!(has_returned(&[dying], ip, None), "another network keeps the vSwitch");
}

/// Codes that HNS gave while adapters and compartments were still being made: K2s issue 1317, SDN issue 177.
#[test]
fn a_creation_is_retried_whatever_the_code() {
    for code in ["0x803B0025", "0x803B0026", "0x80070057", "0x80071392", "0x800705B4", "0x803B0010"] {
        let Some(machine) = machine() else { return };
        machine.write("hns.faults", &format!("0 2 POST /networks hresult {code}\n"));
        put("External", &external()).unwrap_or_else(|error| panic!("{code}: {error:#}"));
        assert_eq!(changes(&machine).len(), 3, "{code}");
    }
    let Some(machine) = machine() else { return };
    machine.write("hns.faults", "0 -1 POST /networks error 0x803B001B Kein JSON.\n");
    let error = said(put("External", &external()));
    assert!(error.contains("HNS says: Kein JSON") && changes(&machine).len() == 1, "{error}");
}

#[test]
fn a_call_of_hns_that_hangs_is_abandoned() {
    let Some(machine) = machine() else { return };
    machine.write("hns.faults", "0 1 GET /networks hang\n");
    insta::assert_snapshot!(said(list().map(drop)), @"
    HnsStuck: HNS did not answer GET /networks/ in 2 s [drain this node, restart the services hns and kube-proxy, then run the command again and re-create the remaining pods
    restarting hns deletes the endpoints of all pods here, which then run without network
    calicoctl-win explain HnsStuck has the commands]
    ");
    assert_eq!(list().unwrap().len(), 1, "the next call is a new one");
    machine.write("hns.faults", "0 1 GET /networks delay 300\n");
    assert_eq!(list().unwrap().len(), 1, "slow is not stuck");
}

#[test]
fn refusals_are_reported_in_our_words_with_hnss_own() {
    let Some(machine) = machine() else { return };
    let mut tell = Vec::new();
    for fault in [
        "0 1 GET /networks hresult 0x800706BA",
        "0 1 GET /networks hresult 0x80070005",
        "0 -1 POST /networks error 0x80070057 Falscher Parameter.",
        "0 -1 POST /networks error 0x803B0010 Das Netzwerk ist schon da.",
    ] {
        machine.write("hns.faults", &format!("{fault}\n"));
        tell.push(said(put("External", &external())));
    }
    insta::assert_snapshot!(tell.join("\n"), @r#"
    HnsStopped: list networks of HNS (Windows error 1722: the service that is to answer is stopped) [start the service hns: Start-Service hns; then run again]
    AccessDenied: list networks of HNS (Windows error 5: access is denied) [run it in an elevated session (Run as administrator) or as SYSTEM; if it was one, an administrator must restore the rights that Windows sets]
    WindowsError: create HNS network External on adapter `Ethernet` with {"Type":"Overlay","Name":"External","NetworkAdapterName":"Ethernet","Subnets":[{"AddressPrefix":"192.168.255.0/30","GatewayAddress":"192.168.255.1","Policies":[{"Type":"VSID","VSID":9999}]}]} (Windows error 87: the parameter is incorrect); HNS says: Falscher Parameter [a vSwitch may be left over from before a reboot: look at `Get-HnsNetwork` and `Get-NetAdapter`, restart the machine, then run again]
    HnsNetworkExists: create HNS network External on adapter `Ethernet`, though HNS lists none of that name (Windows error 0x803B0010: HNS has a network of that name already); HNS says: Das Netzwerk ist schon da [HNS's state is stale: drain this node, restart the services hns and kube-proxy, then run the command again and re-create the remaining pods
    restarting hns deletes the endpoints of all pods here, which then run without network
    calicoctl-win explain HnsStuck has the commands]
    "#);
}

#[test]
fn the_version_is_read_and_a_refusal_is_an_error() {
    let Some(machine) = machine() else { return };
    assert_eq!(version().unwrap(), Some(HnsVersion { major: 13, minor: 2 }));
    machine.write("hns.faults", "0 1 GET /globals hresult 0x800706BA\n");
    let error = version().unwrap_err();
    let expected = "ask HNS for its version (Windows error 1722: the service that is to answer is stopped)";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn without_hns_the_error_names_the_feature() {
    for (code, why) in [(win32::MODULE_NOT_FOUND, "is not there"), (win32::PROCEDURE_NOT_FOUND, "has no HNSCall")] {
        let error = unavailable(code);
        assert!(error.to_string().contains(&format!("vmcompute.dll {why} (Windows error {code})")), "{error}");
        let fault = Fault::of(&error).unwrap();
        assert!(fault.id == "HnsAvailable" && fault.hint.as_deref().unwrap().contains("feature Containers"));
    }
}
