//! A node on which upstream's scripts installed Calico, with their services under NSSM: it is adopted as it is, and
//! restored to that state.

use serde_json::Value;

use crate::lab::Lab;

/// One of the scripts' services, as they register it.
pub fn nssm(name: &str, part: &str, depends_on: &str, pid: Option<u32>) -> String {
    let pid = pid.map_or_else(String::new, |pid| format!("    pid: {pid}\n"));
    format!(
        r"  {name}:
    definition:
      displayName: Calico Windows {part}
      description: Calico's {part}, by the scripts
      imagePath: C:\CalicoWindows\nssm-2.24\win64\nssm.exe
      account: LocalSystem
      start: auto
      dependsOn: [{depends_on}]
      parameters:
        AppDirectory: {{type: expand-string, data: C:\CalicoWindows}}
        AppEnvironmentExtra: {{type: multi-string, data: [PROXY_PASSWORD=s3cret]}}
        AppExit\: {{type: string, data: Restart}}
        AppParameters: {{type: expand-string, data: C:\CalicoWindows\{part}\{part}-service.ps1}}
        AppRotateBytes: {{type: dword, data: 10485760}}
        AppStdout: {{type: expand-string, data: C:\CalicoWindows\logs\calico-{part}.log}}
        Application: {{type: expand-string, data: C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe}}
{pid}"
    )
}

/// The scripts' node: Felix and confd run, although the backend does not need confd, and the upgrade service has
/// stopped.
pub fn scripts_node() -> Lab {
    let lab = Lab::node();
    for (path, text) in [
        ("nssm-2.24/win64/nssm.exe", "nssm"),
        ("node/node-service.ps1", "# starts"),
        ("config.ps1", "$env:CALICO_NETWORKING_BACKEND=\"vxlan\""),
        ("calico-kube-config", "apiVersion: v1"),
        ("logs/calico-node.log", "it ran"),
    ] {
        lab.write(&format!("node/C/CalicoWindows/{path}"), text);
    }
    lab.write("node/C/Program Files/containerd/cni/conf/10-calico.conf", "{\"name\": \"Calico\"}");
    lab.write("node/C/Program Files/containerd/cni/bin/calico.exe", "the scripts' plugin");
    lab.edit_yaml(|yaml| {
        let services = [
            nssm("CalicoConfd", "confd", "CalicoNode", Some(3100)),
            nssm("CalicoFelix", "felix", "CalicoNode", Some(3104)),
            nssm("CalicoNode", "node", "", Some(3108)),
            nssm("CalicoUpgrade", "upgrade", "", None),
        ];
        yaml.replace("services:\n", &format!("services:\n{}", services.concat())).replace(
            "registry:\n",
            "registry:\n  Software\\Tigera\\Calico:\n    LastBootTime: {type: string, data: 1/5/2026 7:58:11 AM}\n",
        )
    });
    lab
}

fn states(lab: &Lab) -> Vec<String> {
    let text = lab.run("service status").stdout;
    text.lines().take(3).map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_plan_says_what_happens_to_the_scripts_services() {
    let lab = scripts_node();
    let before = lab.picture();
    let plan = lab.run("plan").exits(0);
    let about: Vec<&str> = plan.stdout.lines().filter(|line| line.contains("Calico") && !line.contains('/')).collect();
    let about: Vec<&str> =
        about.into_iter().filter(|line| line.contains("service ") || line.contains("stop ")).collect();
    insta::assert_snapshot!(about.join("\n"), @r"
    -   stop         CalicoConfd
    -   service      CalicoUpgrade                                        removes the NSSM service CalicoUpgrade, which runs C:\CalicoWindows\upgrade\upgrade-service.ps1
    -   service      CalicoConfd                                          removes the NSSM service CalicoConfd, which runs C:\CalicoWindows\confd\confd-service.ps1
    ~   service      CalicoFelix                                          adopts the NSSM service CalicoFelix, which runs C:\CalicoWindows\felix\felix-service.ps1
    ~   service      CalicoNode                                           adopts the NSSM service CalicoNode, which runs C:\CalicoWindows\node\node-service.ps1
    ");
    let json = lab.run("plan -o json").exits(0).stdout;
    assert!(json.contains("AppParameters") && !json.contains("s3cret"), "{json}");
    lab.picture().same_as(&before);

    let _there = lab.run("install -y").exits(0);
    let back = lab.run("plan --uninstall").exits(0).stdout;
    for name in ["CalicoNode", "CalicoFelix", "CalicoConfd", "CalicoUpgrade"] {
        assert!(back.contains(&format!("restores the NSSM service {name}, which runs")), "{back}");
    }
}

/// A file of ours that an undo needs, for SYSTEM and Administrators only.
fn is_record(name: &str) -> bool {
    let below = name.strip_prefix("C/ProgramData/calicoctl-win/").and_then(|name| name.strip_suffix(" 600"));
    below.is_some_and(|name| name.starts_with("receipts/") || name.starts_with("journal"))
}

/// An undo needs the values of the scripts' services, so journal and receipt have them: only SYSTEM and Administrators
/// may read the state folder.
#[test]
fn secrets_of_an_adopted_service_are_in_no_output_and_no_log() {
    let lab = scripts_node();
    for words in [
        "plan -v",
        "install -y -v -o ndjson",
        "receipt show -o json",
        "receipt show",
        "plan --uninstall -o json",
        "uninstall -y -v -o ndjson",
    ] {
        let output = lab.run(words).exits(0);
        assert!(!format!("{output}").contains("s3cret"), "{words}: {output}");
        let found = lab.picture().files_with("s3cret");
        // And the sandbox's registry, while the services are in it.
        let may = |name: &String| name == "node.yaml" || is_record(name);
        assert!(found.iter().all(may), "{words}: {found:?}");
    }
    let lab = scripts_node();
    let _killed = lab.fails_at("put running CalicoNode#2=exit-before", "install -y").exits(137);
    let found = lab.picture().files_with("s3cret");
    assert!(found.iter().any(|name| name.contains("/journal")), "{found:?}");
    for words in ["status", "status -o json", "resume --undo -y -v -o ndjson"] {
        let output = lab.run(words);
        assert!(!format!("{output}").contains("s3cret"), "{words}: {output}");
    }
}

#[test]
fn status_says_that_the_scripts_calico_runs_and_how_to_adopt_it() {
    let lab = scripts_node();
    let shown = lab.run("status").exits(16).stdout;
    let (_, end) = shown.split_once("OVERALL: ").unwrap();
    insta::assert_snapshot!(end, @r"
    NOT INSTALLED
    ! Calico's scripts installed CalicoNode, CalicoFelix, CalicoConfd, CalicoUpgrade
        calicoctl-win config import --live --out node.yaml --sandbox node
     COMPONENT    STATE    DETAIL
     CalicoNode   Running  pid 3108
     CalicoFelix  Running  pid 3104
     CalicoConfd  Running  pid 3100
     HNS nat      NAT
    Adopt it:
      calicoctl-win config import --live --out node.yaml --sandbox node
      calicoctl-win install -c node.yaml --sandbox node
    Or remove it: calicoctl-win uninstall --sandbox node
    result: NOT_INSTALLED (exit 16) changed=false reboot=false
    ");
    let _there = lab.run("install -y").exits(0);
    assert_eq!(lab.healthy()["reasons"], Value::Array(vec![]));
}

/// What is left of an installation; the problem and the command of `status`.
type Half = (&'static str, fn(&Lab), &'static str, &'static str);

fn with_services(lab: &Lab, services: &str) {
    lab.edit_yaml(|yaml| yaml.replace("services:\n", &format!("services:\n{services}")));
}

fn folder(lab: &Lab) {
    lab.write("node/C/CalicoWindows/config.ps1", "$env:CALICO_NETWORKING_BACKEND=\"vxlan\"");
}

#[test]
fn status_says_what_it_recognises_without_a_receipt_and_its_command_works() {
    const HALVES: [Half; 5] = [
        (
            "CalicoNode is gone",
            |lab| {
                folder(lab);
                with_services(lab, &nssm("CalicoFelix", "felix", "", Some(3104)));
            },
            "Calico's scripts installed CalicoFelix; there is no service CalicoNode",
            "uninstall",
        ),
        (
            "only CalicoNode is left, stopped",
            |lab| {
                folder(lab);
                let secret = "        AppEnvironmentExtra: {type: multi-string, data: [PROXY_PASSWORD=s3cret]}\n";
                with_services(lab, &nssm("CalicoNode", "node", "", None).replace(secret, ""));
            },
            "Calico's scripts installed CalicoNode",
            "config import --live --out node.yaml",
        ),
        (
            "one is neither's",
            |lab| {
                let own = r"    definition:
      displayName: Calico Windows Agent
      description: by hand
      imagePath: C:\tools\agent.exe
      account: LocalSystem
      start: auto
";
                with_services(lab, &format!("  CalicoNode:\n{own}"));
            },
            "neither this program nor Calico's scripts installed CalicoNode",
            "explain NotInstalledHere",
        ),
        (
            "only the folder is left",
            folder,
            r"C:\CalicoWindows is here, without a service of Calico: install replaces it, and keeps what was in it",
            "install",
        ),
        (
            "the receipts of this program are gone",
            |lab| {
                let _there = lab.run("install -y").exits(0);
                std::fs::remove_dir_all(lab.on_node("C/ProgramData/calicoctl-win")).unwrap();
            },
            "this program installed CalicoNode, CalicoFelix, and no receipt records it",
            "install -c FILE",
        ),
    ];
    for (what, breaks, says, command) in HALVES {
        let lab = Lab::node();
        breaks(&lab);
        lab.write("FILE", "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec: {}\n");
        let status = lab.run("status -o json").exits(16).json();
        let problems = status["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{what}: {status:#}");
        let (message, shown) = (&problems[0]["message"], &problems[0]["command"]);
        assert_eq!(message, says, "{what}");
        let shown = shown.as_str().unwrap().trim_end_matches(" --sandbox node");
        assert_eq!(shown, format!("calicoctl-win {command}"), "{what}");
        let uninstalled = lab.copy();
        let yes = if ["install", "uninstall"].iter().any(|verb| command.starts_with(verb)) { " -y" } else { "" };
        let _works = lab.run(&format!("{command}{yes}")).exits(0);
        let gone = uninstalled.run("uninstall -y").exits(0).stdout;
        assert!(!gone.contains("as it was before"), "{what}: {gone}");
        match what {
            "only the folder is left" => assert!(gone.contains(r"C:\CalicoWindows stays"), "{gone}"),
            "the receipts of this program are gone" => {
                assert!(gone.contains("as far as its marks show"), "{gone}");
                assert_eq!(lab.status()["overall"], "Healthy");
            }
            _ => {}
        }
    }
}

#[test]
fn a_kubelet_that_runs_from_calicos_folder_keeps_working() {
    let lab = scripts_node();
    lab.edit_yaml(|yaml| {
        yaml.replace(r"imagePath: C:\k\kubelet.exe", r"imagePath: C:\CalicoWindows\nssm-2.24\win64\nssm.exe")
    });
    let before = lab.picture_without_state();
    for words in ["plan -o json", "install -y -o json"] {
        let refused = lab.run(words).exits(26).json();
        assert_eq!(refused["error"]["id"], "FolderInUseByService", "{refused}");
        assert_eq!(refused["error"]["retryable"], false, "{refused}");
        assert!(refused["error"]["what"].as_str().unwrap().contains("kubelet"), "{refused}");
    }
    lab.picture_without_state().same_as(&before);
}

/// Defects B15 (a CalicoConfd that nothing needs remains) and B19 (a stopped CalicoUpgrade blocks the start forever,
/// and failures exit with 0).
#[test]
fn b15_b19_the_scripts_node_is_adopted_and_restored_byte_for_byte() {
    for words in ["install -y -o json", "install -y --no-start -o json"] {
        let lab = scripts_node();
        let before = lab.picture_without_state();
        let result = lab.run(words).exits(0).json();
        assert_eq!(result["changed"], true, "{result}");
        assert_eq!(states(&lab), ["CalicoNode Running", "CalicoFelix Running", "CalicoConfd Absent"], "{words}");
        let yaml = lab.read("node.yaml");
        for gone in ["CalicoUpgrade", "nssm.exe", "powershell"] {
            assert!(!yaml.contains(gone), "{gone} in {yaml}");
        }
        assert_eq!(lab.run("status -o json").exits(0).json()["drift"], Value::Array(vec![]));
        assert_eq!(lab.run(words).exits(0).json()["changed"], false, "a second time there is nothing to do");

        let gone = lab.run("uninstall --purge -y").exits(0).stdout;
        assert!(
            gone.contains("What Calico's scripts had installed is back") && !gone.contains("Calico is removed"),
            "{gone}"
        );
        assert_eq!(states(&lab), ["CalicoNode Running", "CalicoFelix Running", "CalicoConfd Running"]);
        lab.picture_without_state().says_the_same_as(&before);
    }
}

#[test]
fn with_bgp_confd_is_adopted_too() {
    let lab = scripts_node();
    let before = lab.picture_without_state();
    let bgp = "--release v3.30.2 --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors RoutingFeature,PoolEncapsulation";
    let _there = lab.run(&format!("install -y {bgp}")).exits(0);
    assert_eq!(states(&lab), ["CalicoNode Running", "CalicoFelix Running", "CalicoConfd Running"]);
    assert!(!lab.read("node.yaml").contains("nssm.exe"));
    let _gone = lab.run("uninstall -y").exits(0);
    lab.picture_without_state().says_the_same_as(&before);
}

#[test]
fn a_failed_adoption_leaves_the_scripts_services_running() {
    for fault in ["put running CalicoFelix#2=dies", "put service CalicoUpgrade#1=fail-after", "put tree *=in-use"] {
        let lab = scripts_node();
        let before = lab.picture_without_state();
        let failed = lab.fails_at(fault, "install -y -o json").exits(9).json();
        assert_eq!(failed["rolled_back"], true, "{fault}: {failed}");
        lab.picture_without_state().says_the_same_as(&before);
    }
}

/// The scripts' config is invalid, and so is ours: uninstall needs neither (defect B15).
#[test]
fn b15_uninstall_needs_no_valid_config() {
    let lab = scripts_node();
    let before = lab.picture_without_state();
    let _there = lab.run("install -y").exits(0);
    lab.write("node/C/ProgramData/calicoctl-win/config.yaml", "kind: [nonsense");
    lab.write("node/C/CalicoWindows/calico-kube-config", "not one");
    let _gone = lab.run("uninstall -y").exits(0);
    lab.picture_without_state().says_the_same_as(&before);
}

#[test]
fn a_service_that_others_register_again_is_drift() {
    let lab = scripts_node();
    let _there = lab.run("install -y").exits(0);
    lab.edit_yaml(|yaml| {
        yaml.replace("services:\n", &format!("services:\n{}", nssm("CalicoUpgrade", "upgrade", "", None)))
    });
    let status = lab.run("status -o json").json();
    assert_eq!(status["drift"], serde_json::json!(["service CalicoUpgrade"]), "{status}");
    let _healed = lab.run("install -y").exits(0);
    assert!(!lab.read("node.yaml").contains("CalicoUpgrade"));
}

/// The scripts made the pods' network with another VNI, and pods use it.
#[test]
fn a_wrong_network_of_the_scripts_is_replaced_only_with_a_drain() {
    let lab = scripts_node();
    lab.edit_yaml(|yaml| {
        let network = |name: &str, id: u32, subnet: &str, vsid: u32| {
            format!(
                "  {name}:\n    id: 00000000-0000-4000-8000-00000000000{id}\n    kind: Overlay\n    subnet: {subnet}\n    \
                 vsid: {vsid}\n    adapter: Ethernet\n"
            )
        };
        let networks =
            [network("External", 8, "192.168.255.0/30", 9999), network("Calico", 9, "192.168.20.64/26", 4097)];
        yaml.replace("\nnetworks:\n", &format!("\nnetworks:\n{}", networks.concat()))
    });
    let plan = lab.run("plan -o json").json();
    assert_eq!(plan["needs_drain"], true, "{plan:#}");
    let refused = lab.run("install -y -o json").exits(19).json();
    assert_eq!(refused["error"]["id"], "NeedsDrain", "{refused:#}");
    let hint = refused["error"]["hint"].to_string();
    assert!(hint.contains(": calicoctl-win apply --sandbox node\""), "{hint}");
    let shown = lab.run("apply --dry-run").exits(0);
    assert!(shown.stdout.contains("Drain: needed"), "{shown}");
    let _done = lab.run("apply -y").exits(0);
}
