//! Stories on the test DLL that stands for HNS (tests/windows/shims/vmcompute.c).

use super::*;
use crate::item::NetworkKind;
use crate::node::windows::testing::{Machine, NAT};

/// A machine on which nothing was deleted lately.
fn machine() -> Option<Machine> {
    let machine = Machine::new();
    *LAST_DELETED.lock().unwrap() = None;
    machine
}

/// What HNS was asked to change.
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
fn a_network_is_made_once_and_taken_away_whole() {
    let Some(machine) = machine() else { return };
    put("External", Some(&external())).unwrap();
    put("EXTERNAL", Some(&external())).unwrap();
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
    put("External", None).unwrap();
    put("External", None).unwrap();
    let wanted = ["POST /networks/", "DELETE /policylists/p1", "DELETE /endpoints/e2", "DELETE /endpoints/e1"];
    assert_eq!(changes(&machine), [&wanted[..], &[&*format!("DELETE /networks/{id}")]].concat());
    // Defect B13: what is others' is as it was.
    assert_eq!(machine.read("hns.networks"), format!("{NAT}\n"));
    assert!(machine.read("hns.endpoints").contains("\"e3\"") && machine.read("hns.policylists").contains("\"p2\""));
    assert_eq!(endpoints().unwrap()[0].name, "other");
}

#[test]
fn b13_a_network_of_another_product_is_not_deleted_whoever_asks() {
    let Some(machine) = machine() else { return };
    assert_eq!(
        said(put("nat", None)),
        "ForeignNetwork: delete HNS network nat: it is not one of Calico's, and its owner's pods may use it \
         [remove it with the product that made it]"
    );
    assert!(changes(&machine).is_empty());
}

#[test]
fn b11_a_network_with_another_vsid_does_not_do() {
    let Some(_machine) = machine() else { return };
    put("Calico", Some(&Network { vsid: Some(4096), ..external() })).unwrap();
    let error = said(put("Calico", Some(&Network { vsid: Some(5000), ..external() })));
    assert!(error.starts_with("HnsNetworkExists: create HNS network Calico on adapter `Ethernet`"), "{error}");
    assert_eq!(get("Calico").unwrap().unwrap().vsid, Some(4096));
}

#[test]
fn created_too_soon_after_a_deletion_is_tried_again() {
    let Some(machine) = machine() else { return };
    put("External", Some(&external())).unwrap();
    machine.write("settings", "adapter-away=2\nadapter-polls=3\nmanagement-ip-polls=2\n");
    put("External", None).unwrap();
    machine.write(
        "hns.faults",
        "0 1 POST /networks hresult 0x80004005\n0 1 POST /networks plain Element nicht gefunden\n",
    );
    put("External", Some(&external())).unwrap();
    assert_eq!(changes(&machine).iter().filter(|change| change.starts_with("POST")).count(), 6);
    assert_eq!(get("External").unwrap().unwrap().management_ip, None, "it comes late");
}

#[test]
fn a_wrong_adapter_is_refused_at_once_with_those_that_there_are() {
    let Some(machine) = machine() else { return };
    let wrong = Network { adapter: Some("Ethernet 2".into()), ..external() };
    insta::assert_snapshot!(said(put("External", Some(&wrong))), @"HnsAdapterNotFound: create HNS network External on adapter `Ethernet 2`; there are: Ethernet (Windows error 0x803B0006: HNS does not find the adapter); HNS says: The adapter was not found [name a physical adapter that is up, or none to let HNS choose]");
    assert_eq!(changes(&machine).len(), 1);
    // One that is there, but bound to another switch, is given its time.
    machine.write("hns.faults", "0 -1 POST /networks error 0x803B0006 Kein Adapter.\n");
    let error = said(put("External", Some(&external())));
    assert!(error.contains("HNS says: Kein Adapter") && changes(&machine).len() > 3, "{error}");
}

#[test]
fn a_network_with_pods_stays_and_names_them() {
    let Some(machine) = machine() else { return };
    put("External", Some(&external())).unwrap();
    let id = external_id().to_lowercase();
    machine.write(
        "hns.endpoints",
        &format!(r#"{{"ID":"e1","Name":"web","VirtualNetwork":"{id}","State":2,"SharedContainers":["3f2c"]}}"#),
    );
    insta::assert_snapshot!(said(put("External", None)), @"HnsNetworkInUse: delete HNS network External, to which endpoints are attached: web of container 3f2c (Windows error 0x803B002C: HNS still has references to the network) [drain the node, so that no pod uses the network, then run again]");
    assert_eq!(changes(&machine).len(), 1, "nothing was deleted");
    // From before a reboot; a runtime that was faster than CalicoNode made the endpoint. Others' networks stay.
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
fn references_that_came_meanwhile_are_cleaned_and_a_network_that_is_gone_is_fine() {
    let Some(machine) = machine() else { return };
    put("External", Some(&external())).unwrap();
    machine.write("hns.faults", "0 2 DELETE /networks error 0x803B002C Noch in Benutzung.\n");
    put("External", None).unwrap();
    put("External", Some(&external())).unwrap();
    machine.write("hns.faults", "0 -1 DELETE /networks error 0x803B002C Noch in Benutzung.\n");
    let error = said(put("External", None));
    assert!(error.starts_with("HnsNetworkInUse") && error.contains("HNS says: Noch in Benutzung"), "{error}");
}

#[test]
fn a_network_that_is_still_listed_is_waited_for_up_to_a_limit() {
    let Some(machine) = machine() else { return };
    put("External", Some(&external())).unwrap();
    machine.write("hns.faults", "0 -1 DELETE /networks lose\n");
    let error = said(put("External", None));
    assert!(error.starts_with("HnsStuck: delete HNS network External: HNS still lists it after 1 s"), "{error}");
}

#[test]
fn an_adapter_that_does_not_come_back_is_said_with_its_address() {
    let Some(machine) = machine() else { return };
    put("External", Some(&external())).unwrap();
    machine.write("settings", "adapter-polls=100000\n");
    let error = said(put("External", None));
    assert!(error.starts_with("AdapterNotBack: HNS network External is deleted, but 1 s later"), "{error}");
    assert!(error.contains("10.20.0.21"), "{error}");
}

#[test]
fn hns_that_hangs_is_given_up() {
    let Some(machine) = machine() else { return };
    machine.write("hns.faults", "0 1 GET /networks hang\n");
    insta::assert_snapshot!(said(list().map(drop)), @"
    HnsStuck: HNS did not answer GET /networks/ in 2 s [drain this node, restart the services hns and kube-proxy, then run the command again and re-create the pods that stayed
    restarting hns deletes the endpoints of all pods here, which then run without network
    calicoctl-win explain HnsStuck has the commands]
    ");
    assert_eq!(list().unwrap().len(), 1, "the next call is a new one");
    machine.write("hns.faults", "0 1 GET /networks delay 300\n");
    assert_eq!(list().unwrap().len(), 1, "slow is not stuck");
}

#[test]
fn refusals_are_told_in_our_words_with_hnss_own_beside_them() {
    let Some(machine) = machine() else { return };
    let mut tell = Vec::new();
    for fault in [
        "0 1 GET /networks hresult 0x800706BA",
        "0 1 GET /networks hresult 0x80070005",
        "0 1 POST /networks error 0x80070057 Falscher Parameter.",
        "0 1 POST /networks error 0x803B0010 Das Netzwerk ist schon da.",
    ] {
        machine.write("hns.faults", &format!("{fault}\n"));
        tell.push(said(put("External", Some(&external()))));
    }
    insta::assert_snapshot!(tell.join("\n"), @r#"
    HnsStopped: list networks of HNS (Windows error 1722: the service that is to answer is stopped) [start the service hns: Start-Service hns; then run again]
    AccessDenied: list networks of HNS (Windows error 5: access is denied) [run it in an elevated session (Run as administrator) or as SYSTEM; if it was one, an administrator must restore the rights that Windows sets]
    WindowsError: create HNS network External on adapter `Ethernet` with {"Type":"Overlay","Name":"External","NetworkAdapterName":"Ethernet","Subnets":[{"AddressPrefix":"192.168.255.0/30","GatewayAddress":"192.168.255.1","Policies":[{"Type":"VSID","VSID":9999}]}]} (Windows error 87: the parameter is incorrect); HNS says: Falscher Parameter [a vSwitch may be left over from before a reboot: look at `Get-HnsNetwork` and `Get-NetAdapter`, restart the machine, then run again]
    HnsNetworkExists: create HNS network External on adapter `Ethernet`, though HNS lists none of that name (Windows error 0x803B0010: HNS has a network of that name already); HNS says: Das Netzwerk ist schon da [HNS's state is stale: drain this node, restart the services hns and kube-proxy, then run the command again and re-create the pods that stayed
    restarting hns deletes the endpoints of all pods here, which then run without network
    calicoctl-win explain HnsStuck has the commands]
    "#);
}

#[test]
fn the_version_is_asked_for_and_a_refusal_is_no_answer() {
    let Some(machine) = machine() else { return };
    assert_eq!(version().unwrap(), Some(HnsVersion { major: 13, minor: 2 }));
    machine.write("hns.faults", "0 1 GET /globals hresult 0x800706BA\n");
    let error = version().unwrap_err();
    let expected = "ask HNS for its version (Windows error 1722: the service that is to answer is stopped)";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn hns_that_is_not_installed_names_the_feature() {
    for (code, why) in [(win32::MODULE_NOT_FOUND, "is not there"), (win32::PROCEDURE_NOT_FOUND, "has no HNSCall")] {
        let error = unavailable(code);
        assert!(error.to_string().contains(&format!("vmcompute.dll {why} (Windows error {code})")), "{error}");
        let fault = Fault::of(&error).unwrap();
        assert!(fault.id == "HnsNotAvailable" && fault.hint.as_deref().unwrap().contains("feature Containers"));
    }
}
