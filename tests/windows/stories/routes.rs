//! Routes of the host to a cloud's services, on a machine with the executable.

use std::fs;

use crate::house::House;
use crate::machine::eventually;

/// EC2's and GCE's metadata service, and Azure's host service.
const CLOUDS: [&str; 2] = ["169.254.169.254/32", "168.63.129.16/32"];

/// The interface index, next hop and metric of each of them; the adapter has index 7, its vSwitch another one.
fn to_clouds(house: &House) -> Vec<String> {
    let all = fs::read_to_string(house.test_file("routes")).unwrap();
    let fields = |prefix: &str| {
        let line = all.lines().find_map(|line| line.strip_prefix(prefix));
        line.map(|rest| rest.trim().replace('\t', " ")).unwrap_or_default()
    };
    CLOUDS.map(fields).to_vec()
}

/// Where `route -p` keeps routes, and where `New-NetRoute` does.
const PERSISTENT: [&str; 2] = [
    r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\PersistentRoutes",
    r"HKLM\SYSTEM\CurrentControlSet\Control\Nsi\{eb004a00-9b1a-11d4-9123-0050047759bc}\16",
];

/// What the persistent store has.
fn persistent(house: &House) -> Vec<String> {
    PERSISTENT.map(|key| house.machine.run_program("reg", &["query", key]).stdout).to_vec()
}

/// As a start of Windows does with routes that are not persistent: the agents of the clouds add theirs to the adapter that
/// they know, which has no address any more.
fn forget_routes(house: &House) {
    let file = house.test_file("routes");
    let all = fs::read_to_string(&file).unwrap();
    let kept: String =
        all.split_inclusive('\n').filter(|line| !CLOUDS.iter().any(|one| line.starts_with(one))).collect();
    fs::write(file, kept).unwrap();
}

#[test]
fn the_routes_to_a_clouds_services_are_there_after_every_change_and_as_before_after_an_uninstall() {
    let Some(house) = House::new() else { return };
    let file = house.test_file("routes");
    let gateway = "0.0.0.0/0\t7\t10.20.0.1\t0\n";
    fs::write(file, format!("{gateway}169.254.169.254/32\t7\t10.20.0.1\t15\n168.63.129.16/32\t7\t10.20.0.1\t1\n"))
        .unwrap();
    // One of them is in both stores.
    let route = "169.254.169.254,255.255.255.255,10.20.0.1,15";
    house.machine.run_program("reg", &["add", PERSISTENT[0], "/v", route, "/d", "", "/f"]).exits(0);
    let kept = persistent(&house);
    assert!(kept[0].contains(route), "{kept:?}");
    let before = to_clouds(&house);
    assert_eq!(before, ["7 10.20.0.1 15", "7 10.20.0.1 1"]);

    let on_switch = |house: &House, when: &str| {
        let found = eventually(when, crate::house::SOON, || {
            let found = to_clouds(house);
            found.iter().all(|route| !route.is_empty()).then_some(found)
        });
        assert!(found.iter().all(|route| !route.starts_with("7 ") && route.contains("10.20.0.1")), "{when}: {found:?}");
        assert_eq!(persistent(house), kept, "{when}");
    };
    house.install();
    house.until_healthy();
    on_switch(&house, "after the install");

    house.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    house.until_healthy();
    on_switch(&house, "after another VNI");

    house.machine.shut_down();
    forget_routes(&house);
    house.machine.power_on();
    house.until_healthy();
    on_switch(&house, "after a boot");

    house.run("uninstall -y").exits(0);
    assert_eq!(to_clouds(&house), before, "after the uninstall");
    assert_eq!(persistent(&house), kept, "after the uninstall");
}
