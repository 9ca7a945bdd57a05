//! From a bare node to a working one and back, as a user types it on the first day.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::house::{House, NODE, SOON};
use crate::machine::eventually;
#[cfg(not(windows))]
use crate::picture::Picture;

/// The variables of a component that control it.
fn environment(start: &Value) -> BTreeMap<&str, &str> {
    let all = start["env"].as_object().expect("a start tells its environment");
    let ours = ["CALICO_", "FELIX_", "KUBE", "NODENAME", "VXLAN_VNI", "IP", "DATASTORE_TYPE", "USE_POD_CIDR"];
    let ours = |name: &str| ours.iter().any(|start| name == *start || (name.starts_with(start) && *start != "IP"));
    let value = |name: &str, value| if name == "FELIX_HEALTHPORT" { "a free one" } else { value };
    let told = all.iter().filter(|(name, _)| ours(name));
    told.map(|(name, said)| (name.as_str(), value(name, said.as_str().unwrap()))).collect()
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn a_bare_node_gets_calico_and_is_restored_as_it_was() {
    let Some(house) = House::new() else { return };
    #[cfg(not(windows))]
    house.foreign_networks();
    #[cfg(not(windows))]
    let before = Picture::take(&house.machine);

    let installed = house.install();
    assert!(installed.stdout.contains("result: OK (exit 0) changed=true"), "{}", installed.stdout);

    let status = house.until_healthy();
    for service in ["CalicoNode", "CalicoFelix"] {
        let service = house.service(service);
        assert_eq!(service["state"], "Running", "{status:#}");
        assert!(service["pid"].as_u64().is_some_and(|pid| pid > 0), "{status:#}");
    }
    // It really runs, with the release's own command line.
    let felix = &house.until_started("felix", 1)[0];
    assert_eq!(felix["program"], r"C:\CalicoWindows\calico-node.exe");
    assert_eq!((&felix["args"], &felix["dir"]), (&json!(["-felix"]), &r"C:\CalicoWindows".into()));
    insta::assert_debug_snapshot!(environment(felix), @r#"
    {
        "CALICO_API_GROUP": "crd.projectcalico.org/v1",
        "CALICO_DATASTORE_TYPE": "kubernetes",
        "CALICO_K8S_NODE_REF": "win-a1",
        "CALICO_NETWORKING_BACKEND": "vxlan",
        "DATASTORE_TYPE": "kubernetes",
        "FELIX_FELIXHOSTNAME": "win-a1",
        "FELIX_HEALTHENABLED": "true",
        "FELIX_HEALTHHOST": "127.0.0.1",
        "FELIX_HEALTHPORT": "a free one",
        "FELIX_LOGSEVERITYFILE": "none",
        "FELIX_LOGSEVERITYSYS": "none",
        "FELIX_METADATAADDR": "none",
        "FELIX_VXLANVNI": "4096",
        "KUBECONFIG": "C:\\CalicoWindows\\calico-kube-config",
        "KUBE_NETWORK": "Calico.*",
        "NODENAME": "win-a1",
        "USE_POD_CIDR": "false",
    }
    "#);
    let startup = &house.starts("startup")[0];
    assert_eq!(startup["args"], json!(["-startup", "-complete-startup"]));
    insta::assert_debug_snapshot!(environment(startup), @r#"
    {
        "CALICO_API_GROUP": "crd.projectcalico.org/v1",
        "CALICO_DATASTORE_TYPE": "kubernetes",
        "CALICO_IPV4POOL_CIDR": "",
        "CALICO_IPV6POOL_CIDR": "",
        "CALICO_K8S_NODE_REF": "win-a1",
        "CALICO_NETWORKING_BACKEND": "vxlan",
        "CALICO_NODENAME_FILE": "C:\\CalicoWindows\\nodename",
        "DATASTORE_TYPE": "kubernetes",
        "FELIX_HEALTHPORT": "a free one",
        "IP": "autodetect",
        "KUBECONFIG": "C:\\CalicoWindows\\calico-kube-config",
        "KUBE_NETWORK": "Calico.*",
        "NODENAME": "win-a1",
        "USE_POD_CIDR": "false",
        "VXLAN_VNI": "4096",
    }
    "#);
    assert_eq!(house.read(r"CalicoWindows\nodename"), NODE);

    let networks = house.hns();
    let vsid = |name: &str| networks[name]["Subnets"][0]["Policies"][0]["VSID"].clone();
    assert_eq!((vsid("External"), vsid("Calico")), (json!(9999), json!(4096)), "{networks:#?}");
    #[cfg(not(windows))]
    assert!(networks.contains_key("nat") && networks.contains_key("vendor-overlay"), "{networks:#?}");

    for (log, line) in [("calico-felix.log", "felix is up"), ("calico-felix.err.log", "felix complains")] {
        eventually(log, SOON, || {
            house.read(&format!(r"ProgramData\calicoctl-win\logs\calico\{log}")).contains(line).then_some(())
        });
    }

    let again = house.install_json(0);
    assert_eq!((&again["status"], &again["changed"]), (&"no_changes".into(), &false.into()), "{again:#}");
    assert_eq!(house.starts("felix").len(), 1, "nothing was restarted");
    // Defect B31: upstream's rule is created only together with External, and never removed.
    #[cfg(not(windows))]
    assert_eq!(house.read("test/firewall").lines().count(), 2, "{}", house.read("test/firewall"));
    let logs = house.run("logs --component felix").exits(0);
    assert!(logs.stdout.contains("felix is up") && logs.stdout.contains("felix complains"), "{}", logs.stdout);

    house.run("uninstall --purge --yes").exits(0);
    house.machine.until_gone("calico-node.exe");
    assert_eq!(house.status()["overall"], "NotInstalled");
    #[cfg(not(windows))]
    Picture::take(&house.machine).same_as(&before);
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn every_release_line_is_started_with_its_own_command_lines() {
    for (version, program, startup, felix) in [
        ("v3.30.3", "calico-node.exe", json!(["-startup"]), json!(["-felix"])),
        (
            "v3.33.0",
            "calico.exe",
            json!(["component", "node", "startup", "--complete-startup"]),
            json!(["component", "felix"]),
        ),
    ] {
        let Some(house) = House::with(version, "vxlan") else { return };
        house.install();
        house.until_healthy();
        assert_eq!(house.starts("startup")[0]["args"], startup, "{version}");
        let started = &house.until_started("felix", 1)[0];
        assert_eq!(started["args"], felix, "{version}");
        assert_eq!(started["program"], format!(r"C:\CalicoWindows\{program}"), "{version}");
        house.run("uninstall --purge --yes").exits(0);
        house.machine.until_gone(program);
    }
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn with_bgp_confd_runs_in_its_folder_and_the_bridge_exists() {
    let Some(house) = House::with("v3.30.2", "windows-bgp") else { return };
    #[cfg(not(windows))]
    let before = remote_access(&house);
    house.install();
    house.until_healthy();
    #[cfg(not(windows))]
    assert_ne!(router(&house), before, "RemoteAccess was restarted when the interfaces had new numbers");
    let confd = &house.until_started("confd", 1)[0];
    assert_eq!(confd["args"], json!(["-confd", r"-confd-confdir=C:\CalicoWindows\confd"]));
    assert_eq!(confd["dir"], r"C:\CalicoWindows\confd");
    // The output of confd from before a failure would keep it from configuring RemoteAccess.
    house.machine.file_on_c("CalicoWindows/confd/peerings.ps1", "# rendered before");
    house.end("confd", 1);
    house.until_started("confd", 2);
    assert_eq!(house.read(r"CalicoWindows\confd\peerings.ps1"), "# rendered\n", "it was left as it was");
    let networks = house.hns();
    assert_eq!((&networks["External"]["Type"], &networks["Calico"]["Type"]), (&"L2Bridge".into(), &"L2Bridge".into()));
    house.run("uninstall --purge --yes").exits(0);
}

/// The first place where an absent administrator looks.
#[cfg(not(windows))]
#[test]
fn each_run_that_changes_the_node_is_in_the_event_log() {
    let Some(house) = House::new() else { return };
    let run = |words: &[&str]| {
        let (ended, entries) = house.machine.run_with_event_log(&[words, &["-o", "json"]].concat());
        (ended.json(), entries)
    };
    let begins = |entries: &[String], with: &str, result: &Value| {
        let level = match (result["error"].is_object(), result["warnings"].is_array()) {
            (true, _) => "err",
            (_, true) => "warn",
            _ => "trace",
        };
        let line = format!("{level}: {with} run={}", result["run"].as_str().unwrap());
        assert!(entries.len() == 1 && entries[0].starts_with(&line), "{line}\n{entries:#?}\n{result:#}");
    };

    let (installed, entries) = run(&house.install_words());
    begins(&entries, "install: OK (exit 0) changed=true reboot=false", &installed);
    let (again, entries) = run(&house.install_words());
    assert_eq!((&again["status"], entries), (&json!("no_changes"), vec![]));
    let (status, entries) = run(&["status"]);
    assert_eq!((&status["overall"], entries), (&json!("Healthy"), vec![]));

    let missing = ["upgrade", "--yes", "--release", r"C:\no-such-release.zip"];
    let (refused, entries) = run(&missing);
    let outcome = format!("{} (exit {})", refused["exit_name"].as_str().unwrap(), refused["exit_code"]);
    begins(&entries, &format!("upgrade: {outcome} changed=false reboot=false"), &refused);

    let (gone, entries) = run(&["uninstall", "--purge", "--yes"]);
    begins(&entries, "uninstall: OK (exit 0) changed=true reboot=false", &gone);
}

/// Gives the machine the role RemoteAccess, as a running service; returns its process.
#[cfg(not(windows))]
pub(super) fn remote_access(house: &House) -> crate::machine::Process {
    let key = r"HKLM\SYSTEM\CurrentControlSet\Services\RemoteAccess";
    for (name, kind, value) in [
        ("DisplayName", "REG_SZ", "Routing and Remote Access"),
        ("ImagePath", "REG_SZ", r"C:\windows\system32\standin-service.exe RemoteAccess"),
        ("ObjectName", "REG_SZ", "LocalSystem"),
        ("Start", "REG_DWORD", "2"),
        ("Type", "REG_DWORD", "16"),
        ("ErrorControl", "REG_DWORD", "1"),
    ] {
        let set = house.machine.run_program("reg", &["add", key, "/v", name, "/t", kind, "/d", value, "/f"]);
        assert_eq!(set.code, 0, "{}", set.stderr);
    }
    // A service that is only in the registry is visible from the next boot on.
    house.machine.cut_power();
    house.machine.power_on();
    router(house)
}

#[cfg(not(windows))]
fn router(house: &House) -> crate::machine::Process {
    eventually("RemoteAccess to run", SOON, || {
        let services = house.machine.processes_of("standin-service.exe");
        services.into_iter().find(|service| service.command_line.ends_with("RemoteAccess"))
    })
}

/// On a real machine other programs come and go.
#[cfg(not(windows))]
#[test]
fn an_install_starts_no_program_but_calicos() {
    let Some(house) = House::new() else { return };
    // containerd would run the CNI plugins.
    house.machine.file("test/runtime.hold", "");
    let before: Vec<String> = house.machine.processes().into_iter().map(|process| process.image).collect();
    let mut install = house.machine.start(&house.install_words(), "test/said");
    let mut seen = std::collections::BTreeSet::new();
    while install.try_wait().unwrap().is_none() {
        seen.extend(house.machine.processes().into_iter().map(|process| process.image));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(install.wait().unwrap().success(), "{}", house.read("test/said"));
    let allowed =
        |image: &String| before.contains(image) || ["calicoctl-win.exe", "calico-node.exe"].contains(&image.as_str());
    let others: Vec<&String> = seen.iter().filter(|image| !allowed(image)).collect();
    assert!(seen.contains("calico-node.exe"), "the watch saw nothing: {seen:?}");
    // Wine gives every console program its own console.
    assert!(others.iter().all(|image| *image == "conhost.exe"), "{others:?}");
}

/// Defects B4 and B5: variables of the machine, or of an earlier run, override the configuration.
#[cfg(not(windows))]
#[test]
fn b4_b5_variables_of_the_machine_have_no_effect() {
    let Some(house) = House::new() else { return };
    let key = r"HKLM\System\CurrentControlSet\Control\Session Manager\Environment";
    let stray = [
        ("KUBECONFIG", r"C:\k\admin.conf"),
        ("NODENAME", "another"),
        ("IP", "10.99.99.99"),
        ("CALICO_NETWORKING_BACKEND", "none"),
        ("KUBE_NETWORK", "cbr.*"),
        ("FELIX_VXLANVNI", "1"),
        ("VXLAN_VNI", "1"),
    ];
    for (name, value) in stray {
        let set = house.machine.run_program("reg", &["add", key, "/v", name, "/d", value, "/f"]);
        assert_eq!(set.code, 0, "{}", set.stderr);
    }
    house.machine.cut_power();
    house.machine.power_on();
    house.install();
    house.until_healthy();
    // Felix reads neither of these two.
    for (start, unread) in [
        (&house.until_started("felix", 1)[0], &["IP", "VXLAN_VNI"][..]),
        (&house.starts("startup")[0], &["FELIX_VXLANVNI"]),
    ] {
        let environment = environment(start);
        for (name, value) in stray.iter().filter(|(name, _)| !unread.contains(name)) {
            assert_ne!(environment.get(name), Some(value), "{name}");
        }
        assert_eq!(environment["KUBECONFIG"], r"C:\CalicoWindows\calico-kube-config");
        assert_eq!(environment["NODENAME"], NODE);
    }
    assert_eq!(house.hns()["Calico"]["Subnets"][0]["Policies"][0]["VSID"], 4096);
}
