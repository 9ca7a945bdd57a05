//! A node whose pods are on Flannel's network, as SIG Windows' scripts install it: it gets Calico, and Flannel back.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::house::{House, SOON, standin};
use crate::machine::eventually;
use crate::picture::Picture;

const CONF: &str = "Program Files/containerd/cni/conf/10-flannel.conf";
const NET_CONF: &str = "etc/kube-flannel/net-conf.json";

fn flannel_node() -> Option<House> {
    let house = House::new()?;
    let (machine, runs) = (&house.machine, standin("containerd.exe"));
    for (path, contents) in [
        (CONF, br#"{"name": "vxlan0", "type": "flannel", "delegate": {"type": "win-overlay"}}"#.as_slice()),
        (NET_CONF, br#"{"Network": "10.244.0.0/16", "Backend": {"Name": "vxlan0", "Type": "vxlan", "VNI": 4096}}"#),
        ("run/flannel/subnet.env", b"FLANNEL_NETWORK=10.244.0.0/16"),
        ("k/sourceVip.json", br#"{"ip4": {"ip": "10.244.3.2/24"}}"#),
        // They run until the Service Control Manager stops them.
        ("flannel/flanneld.exe", runs),
        ("k/kube-proxy.exe", runs),
    ] {
        machine.file(path, contents);
    }
    let network = |id: &str, name: &str, subnet: &str, gateway: &str, vsid: u32| {
        format!(
            r#"{{"ID":"{id}","Name":"{name}","Type":"Overlay","NetworkAdapterName":"Ethernet","ManagementIP":"10.20.0.21","Subnets":[{{"AddressPrefix":"{subnet}","GatewayAddress":"{gateway}","Policies":[{{"Type":"VSID","VSID":{vsid}}}]}}],"State":1}}"#
        )
    };
    let networks = [
        network("0AAAAAAA-73A1-4D1E-A6A5-0C6E5F1A2B3C", "External", "192.168.255.0/30", "192.168.255.1", 9999),
        network("0AAAAAAB-73A1-4D1E-A6A5-0C6E5F1A2B3C", "vxlan0", "10.244.3.0/24", "10.244.3.1", 4096),
    ];
    fs::write(house.test_file("hns.networks"), networks.join("\n") + "\n").unwrap();
    // Their vSwitch has the address and the route of the adapter.
    let mac = "00-15-5D-01-02-03\t1\tauto";
    let adapters = format!(
        "47\tvEthernet (Ethernet)\t{mac}\tHyper-V Virtual Ethernet Adapter\t10.20.0.21/24\t0\n\
         7\tEthernet\t{mac}\tMicrosoft Hyper-V Network Adapter\t\t0\n"
    );
    fs::write(house.test_file("adapters"), adapters).unwrap();
    fs::write(house.test_file("routes"), "0.0.0.0/0\t47\t10.20.0.1\t0\n").unwrap();
    let flanneld = r"C:\flannel\flanneld.exe --kubeconfig-file C:\k\config --iface 10.20.0.21";
    let kube_proxy = r"C:\k\kube-proxy.exe --network-name=vxlan0 --source-vip=10.244.3.2 --enable-dsr=true";
    for (name, command) in [("flanneld", flanneld), ("kube-proxy", kube_proxy)] {
        house.sc(&["create", name, "start=", "auto", "binPath=", command, "DisplayName=", name]);
        house.sc(&["start", name]);
    }
    Some(house)
}

fn running(house: &House) -> [bool; 2] {
    ["flanneld.exe", "kube-proxy.exe"].map(|program| !house.machine.processes_of(program).is_empty())
}

/// The subnet and the VSID of each network: one that is re-created has another id.
fn networks(house: &House) -> BTreeMap<String, [Value; 2]> {
    let about = |network: &Value| {
        let subnet = &network["Subnets"][0];
        [subnet["AddressPrefix"].clone(), subnet["Policies"][0]["VSID"].clone()]
    };
    house.hns().iter().map(|(name, network)| (name.clone(), about(network))).collect()
}

#[test]
fn a_node_moves_from_flannel_to_calico_and_back() {
    let Some(house) = flannel_node() else { return };
    let picture = || Picture::take(&house.machine).without(&["state hns.networks"]);
    let (before, theirs) = (picture(), networks(&house));
    let refused = house.install_json(3);
    assert!(refused.to_string().contains("migrate from flannel"), "{refused:#}");

    let words = ["migrate", "from", "flannel", "--yes", "-c", &house.config, "--release", &house.release, "-o", "json"];
    let moved = house.machine.run(&words).exits(0).json();
    assert!(!moved["warnings"].to_string().contains("KubeProxyNetwork"), "{moved:#}");
    house.until_healthy();
    assert_eq!(networks(&house).into_keys().collect::<Vec<_>>(), ["Calico", "External"]);
    assert_eq!(running(&house), [false, true], "kube-proxy stays");
    let key = r"HKLM\System\CurrentControlSet\Services\kube-proxy";
    let command = house.machine.run_program("reg", &["query", key, "/v", "ImagePath"]).exits(0).stdout;
    assert!(command.contains("--network-name=Calico --source-vip="), "{command}");
    assert!(!command.contains("10.244."), "{command}");
    for gone in [CONF, NET_CONF, "run/flannel/subnet.env", "k/sourceVip.json"] {
        assert!(!house.machine.c(gone).exists(), "{gone} is there");
    }

    house.run("uninstall --purge --yes").exits(0);
    eventually("flanneld to run again", SOON, || (running(&house) == [true, true]).then_some(()));
    assert_eq!(networks(&house), theirs);
    picture().same_as(&before);
}
