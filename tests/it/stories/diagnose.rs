//! `diagnose`: the cause of a problem is on the first screen of its page, and what explains it is in the zip.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use zip::ZipArchive;

use super::screens::{COLOUR, seen};
use crate::lab::Lab;

/// The files of a diagnosis, by their names without the folder.
fn files(lab: &Lab, zip: &str) -> BTreeMap<String, String> {
    let mut zip = ZipArchive::new(File::open(lab.path(zip)).unwrap()).unwrap();
    let mut all = BTreeMap::new();
    for number in 0..zip.len() {
        let mut file = zip.by_index(number).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let name = file.name().unwrap().into_owned();
        let (_, name) = name.split_once('/').expect("everything is in one folder");
        all.insert(name.to_owned(), text);
    }
    all
}

/// What the page has before anything else.
fn verdict(page: &str) -> &str {
    page.split_once("<main>").unwrap().1.split_once("<h2>").unwrap().0
}

#[test]
fn a_healthy_node_has_nothing_wrong_and_everything_is_collected() {
    let lab = Lab::installed();
    let said = lab.run("diagnose --out node.zip -o json").exits(0).json();
    assert_eq!((&said["causes"], &said["missing"]), (&json!([]), &json!([])), "{said:#}");
    let files = files(&lab, "node.zip");
    let named: Vec<&str> = files.keys().map(String::as_str).filter(|name| !name.starts_with("logs/2")).collect();
    let wanted = [
        "adapters.json",
        "cluster/bgpconfigurations.json",
        "cluster/bgppeers.json",
        "cluster/blockaffinities.json",
        "cluster/clusterinformations.json",
        "cluster/felixconfigurations.json",
        "cluster/installations.json",
        "cluster/ipamblocks.json",
        "cluster/ipamconfigs.json",
        "cluster/ippools.json",
        "cluster/nodes.json",
        "events.json",
        "facts.json",
        "firewall-rules.json",
        "history.json",
        "hns/endpoints.json",
        "hns/networks.json",
        "hns/policylists.json",
        "logs/calico-node.log",
        "plan.json",
        "plan.txt",
        "preflight.json",
        "receipts/1.json",
        "report.html",
        "routes.json",
        "runs.json",
        "services.json",
        "status.json",
    ];
    assert_eq!(named, wanted);
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".json")) {
        assert!(serde_json::from_str::<Value>(text).is_ok(), "{name}");
    }
    let page = &files["report.html"];
    assert!(verdict(page).contains("Nothing that was looked at is wrong."), "{page}");
    for part in ["Calico_ep", "VSID 4096", "vSwitch", "CalicoFelix", "install", "<title>win-a1: healthy</title>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let section = |title: &str| page.split_once(&format!("<h2>{title}</h2>")).unwrap().1.split("<h2>").next().unwrap();
    assert_eq!(section("Differences from the current generation").trim(), "<p>None.</p>");
    let expires = &json_of(&files, "status.json")["credentials"][0]["expires"];
    let expires: Timestamp = expires.as_str().unwrap().parse().unwrap();
    let login = format!(r"<td>{expires:.0}</td><td>C:\CalicoWindows\calico-kube-config</td>");
    assert!(section("Services and credentials").contains(&login), "{login}: {page}");
    let log = section("Ends of the logs");
    assert!(log.contains("<summary>logs/calico-node.log</summary>"), "{log}");
    for line in ["Starting node win-a1", "Calico node started successfully"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    // When the phases of the install were, as bars beside their names.
    let (_, phases) = page.split_once("<h3>Phases of install (2").unwrap();
    for phase in ["release", "services-start", "node-startup"] {
        assert!(phases.contains(&format!("<tr><td>{phase}</td><td class=")), "{phase}: {phases}");
    }
    assert!(phases.matches("<svg class=\"bar\" aria-hidden").count() > 5, "{phases}");
    // Nothing is fetched, and nothing runs.
    for other in ["<script", "<link", "<style src", " href=", "url(", "@import", " src="] {
        assert!(!page.contains(other), "{other}");
    }
    let again = lab.run("diagnose --out node.zip -o json").exits(25).json();
    assert_eq!((&again["error"]["id"], &again["changed"]), (&json!("FileExists"), &json!(false)), "{again:#}");
}

#[test]
fn the_zip_of_a_node_whose_hns_does_not_answer_has_everything_else() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| format!("{yaml}\nhnsBusy: 1000000\n"));
    let said = lab.run("diagnose --out node.zip -o json").exits(0).json();
    let missing = said["missing"].as_array().unwrap();
    let of_hns: Vec<&str> = missing.iter().filter_map(|one| one["file"].as_str()?.strip_prefix("hns/")).collect();
    assert_eq!(of_hns, ["networks.json", "endpoints.json", "policylists.json"], "{said:#}");
    assert!(said["causes"].to_string().contains("HnsStuck"), "{said:#}");
    let files = files(&lab, "node.zip");
    for name in ["adapters.json", "services.json", "logs/calico-node.log", "status.json", "report.html"] {
        assert!(files.contains_key(name), "{name}");
    }
}

#[test]
fn a_part_of_the_node_that_cannot_be_read_is_named_and_the_rest_is_in_the_zip() {
    let lab = Lab::installed();
    let parts = [
        ("get service CalicoConfd=fail", "status.json"),
        ("get firewall*=fail", "status.json"),
        ("get network*=fail", "status.json"),
        ("process *=fail", "status.json"),
        ("list *=fail", "services.json"),
        ("facts *=fail", "facts.json"),
    ];
    for (number, (fault, part)) in parts.into_iter().enumerate() {
        let zip = format!("{number}.zip");
        let said = lab.fails_at(fault, &format!("diagnose --out {zip} -o json")).exits(0).json();
        let files = files(&lab, &zip);
        assert!(!files.contains_key(part) && files.contains_key("runs.json"), "{fault}: {said:#}");
        let named = verdict(&files["report.html"]);
        assert!(named.contains(&format!("Not collected: {part}: ")), "{fault}: {named}");
        assert!(!named.contains("Nothing that was looked at is wrong") || part != "status.json", "{fault}: {named}");
    }
    let hint = &lab.fails_at("get service CalicoConfd=fail", "status -o json").exits(1).json()["error"]["hint"];
    assert!(hint.as_str().unwrap().contains("diagnose"), "{hint}");

    std::fs::write(lab.on_node("C/ProgramData/calicoctl-win/receipts/1.json"), "{").unwrap();
    let said = lab.run("diagnose --out damaged.zip -o json").exits(0).json();
    assert!(said["missing"].to_string().contains("receipt"), "{said:#}");
    let text = lab.run("diagnose --out again.zip").exits(0).stdout;
    assert!(text.starts_with("The node could not be measured.\nNot collected: status.json: "), "{text}");
}

#[test]
fn a_second_zip_within_a_second_has_another_name() {
    let lab = Lab::node();
    let name = || lab.run("diagnose -o json").exits(0).json()["path"].as_str().unwrap().to_owned();
    let first = name();
    let (stem, time) = first.trim_end_matches(".zip").rsplit_once('-').unwrap();
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S", time).unwrap();
    // Whenever the second one is made, its name is there.
    for second in 0..600 {
        let at = time + jiff::SignedDuration::from_secs(second);
        lab.write(&format!("{stem}-{}.zip", at.strftime("%Y%m%dT%H%M%S")), "earlier");
    }
    let second = name();
    assert!(second.ends_with("-2.zip"), "{second}");
    assert!(files(&lab, &second).contains_key("report.html"));
    assert_eq!(std::fs::read_to_string(lab.path(&second.replace("-2.zip", ".zip"))).unwrap(), "earlier");
}

/// A red box of the drawing has this text.
fn is_red(page: &str, text: &str) -> bool {
    page.split("<g class=\"wrong\">").skip(1).any(|part| part.split("</g>").next().unwrap().contains(text))
}

#[test]
fn the_page_shows_peers_in_red_where_broken_and_the_event_log_without_secrets() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| {
        let peers = "vsid: 4096\n    policies:\n    \
             - {Type: RemoteSubnetRoute, DestinationPrefix: 192.168.3.0/26, IsolationId: 4096, ProviderAddress: 10.20.0.4}\n    \
             - {Type: RemoteSubnetRoute, DestinationPrefix: 192.168.4.0/26, IsolationId: 5000, ProviderAddress: 10.20.0.5}\n";
        let events = "events:\n\
             - {at: 2026-01-02T15:04:05Z, source: Service Control Manager, id: 7031, level: error, text: 'Calico Windows Agent, 1'}\n\
             - {at: 2026-01-02T15:04:06Z, source: calicoctl-win, id: 1, level: warning, text: 'password=hunter2 <b>'}\n\
             - {at: 2026-01-02T15:04:07Z, source: Service Control Manager, id: 7031, level: error, text: Print Spooler}\n";
        yaml.replacen("vsid: 4096\n", peers, 1) + events
    });
    let _zip = lab.run("diagnose --out node.zip").exits(0);
    let files = files(&lab, "node.zip");
    let page = &files["report.html"];
    assert!(is_red(page, "192.168.4.0/26") && is_red(page, "other VNI 5000"), "{page}");
    assert!(page.contains("192.168.3.0/26") && !is_red(page, "192.168.3.0/26"), "{page}");
    let (_, log) = page.split_once("<h2>Windows Event Log</h2>").unwrap();
    let (log, _) = log.split_once("<h2>").unwrap();
    let (first, then) = log.split_once("Service Control Manager 7031").unwrap();
    assert!(
        first.contains("password=*** &lt;b&gt;") && then.contains("Calico Windows Agent, 1"),
        "newest first: {log}"
    );
    assert!(!page.contains("Print Spooler") && !files.values().any(|text| text.contains("hunter2")));
}

#[test]
fn the_networks_of_an_adapter_are_on_one_vswitch_which_is_red_without_its_address() {
    let lab = Lab::installed();
    let drawing = |zip: &str| {
        let _zip = lab.run(&format!("diagnose --out {zip}")).exits(0);
        let page = files(&lab, zip)["report.html"].clone();
        let (_, svg) = page.split_once("<svg role=\"img\"").unwrap();
        svg.split_once("</svg>").unwrap().0.to_owned()
    };
    let healthy = drawing("healthy.zip");
    assert_eq!(healthy.matches(">vSwitch<").count(), 1, "External and Calico share it: {healthy}");
    assert!(healthy.contains("External (Overlay)") && healthy.contains(">vEthernet (Ethernet)<"), "{healthy}");
    assert!(!is_red(&healthy, "vSwitch"), "{healthy}");
    lab.edit_yaml(|yaml| yaml.replace("  - 10.20.0.21/24\n", "  - 169.254.7.9/16\n"));
    let broken = drawing("broken.zip");
    assert!(is_red(&broken, "no adapter has its 10.20.0.21"), "{broken}");
}

#[test]
fn the_zip_has_rotated_logs_and_one_that_a_program_writes() {
    use std::io::Write as _;
    let lab = Lab::installed();
    let folder = lab.on_node("C/ProgramData/calicoctl-win/logs/calico");
    let line = |text: &str| format!("2026-01-02T15:00:01.000Z calicoctl-win: {text}\n");
    for (name, text) in [
        ("calico-felix-20260102T150004.000.log", "of yesterday"),
        ("calico-felix-20260103T150004.000.log", "password=hunter2 of the night"),
        ("calico-felix.err-20260102T150405.678.log", "an error"),
        ("calico-felix-notes.log", "somebody's own file"),
    ] {
        std::fs::write(folder.join(name), line(text)).unwrap();
    }
    let mut open = File::options().create(true).append(true).open(folder.join("calico-felix.log")).unwrap();
    let _locked = open.lock();
    open.write_all(line("of now").as_bytes()).unwrap();
    std::fs::write(folder.join("calico-felix.err.log"), "").unwrap();
    let said = lab.run("diagnose --out node.zip -o json").exits(0).json();
    assert_eq!(said["missing"], json!([]), "{said:#}");
    let files = files(&lab, "node.zip");
    let log = |name: &str| files.get(&format!("logs/{name}")).unwrap_or_else(|| panic!("{name}: {said:#}")).as_str();
    assert_eq!(log("calico-felix-20260102T150004.000.log"), line("of yesterday"));
    assert_eq!(log("calico-felix-20260103T150004.000.log"), line("password=*** of the night"));
    assert_eq!(log("calico-felix.err-20260102T150405.678.log"), line("an error"));
    assert_eq!(log("calico-felix.log"), line("of now"));
    assert!(!files.contains_key("logs/calico-felix-notes.log"));
}

#[test]
fn a_bgp_node_without_a_session_has_its_peers_in_red() {
    let lab = Lab::node();
    let ignored = "--ignore-preflight-errors WindowsBgpRelease,RoutingFeature,PoolEncapsulation";
    let _there = lab.run(&format!("install -y --set spec.calicoNetwork.backend=windows-bgp {ignored}")).exits(0);
    for (sessions, red) in [("bgpSessions: []\n", true), ("bgpSessions: [10.20.0.11]\n", false)] {
        let lab = lab.copy();
        lab.edit_yaml(|yaml| {
            yaml.lines()
                .filter(|line| !line.starts_with("bgpSessions"))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
                + sessions
        });
        let _zip = lab.run("diagnose --out node.zip").exits(0);
        let page = &files(&lab, "node.zip")["report.html"];
        assert_eq!(is_red(page, "no session is established"), red, "{page}");
        assert_ne!(page.contains("BGP peer 10.20.0.11"), red);
    }
}

#[test]
fn an_interrupted_run_is_named_once_with_its_phases() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put running CalicoFelix#2=exit-before", CHANGE).exits(137);
    let _zip = lab.run("diagnose --out node.zip").exits(0);
    let page = &files(&lab, "node.zip")["report.html"];
    assert_eq!(page.matches("<h2 class=\"id\">InterruptedRun</h2>").count(), 1, "{page}");
    assert!(page.contains("<h3>Phases of apply (2"), "{page}");
}

fn json_of(files: &BTreeMap<String, String>, name: &str) -> Value {
    serde_json::from_str(files.get(name).unwrap_or_else(|| panic!("{name} is missing"))).unwrap()
}

#[test]
fn the_zip_has_the_plan_of_what_apply_would_do_now() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| yaml.replace("vsid: 4096", "vsid: 4200"));
    let before = lab.picture();
    let said = lab.run("diagnose --out node.zip -o ndjson").exits(0);
    assert!(!said.stdout.contains("planned_change") && !said.stdout.contains("phase_start"), "{said}");
    lab.picture().same_as(&before);
    let files = files(&lab, "node.zip");
    let plan = json_of(&files, "plan.json");
    let changes: Vec<&str> =
        plan["changes"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(plan["kind"] == "Plan" && changes.iter().any(|id| id.contains("Calico")), "{plan:#}");
    assert!(files["plan.txt"].contains("4200"), "{}", files["plan.txt"]);
    let page = &files["report.html"];
    let differs =
        "<h2>Differences from the current generation</h2>\n<ul>\n<li><code>hns-network Calico</code></li>\n</ul>";
    assert!(page.contains(differs), "{page}");
    let wanted = lab.run("plan -o json").exits(0).json();
    assert_eq!(plan["digest"], wanted["digest"], "it is the plan of `plan`");
    // The facts are those from which a plan can be made elsewhere.
    lab.write("facts.json", &files["facts.json"]);
    let _elsewhere = lab.run("plan --facts facts.json --set calico.version=v3.32.1").exits(0);
}

#[test]
fn the_plan_in_the_zip_is_that_of_the_nodes_own_config() {
    let lab = Lab::node();
    let config = "--set calicoNetwork.vxlan.vxlanVNI=5000 --set services.felixLogSeverity=debug";
    let _there = lab.run(&format!("install -y {config}")).exits(0);
    let _zip = lab.run("diagnose --out node.zip").exits(0);
    let plan = json_of(&files(&lab, "node.zip"), "plan.json");
    assert_eq!(plan["changes"], json!([]), "{plan:#}");
    let _zip = lab.run("diagnose --out other.zip --set services.felixLogSeverity=info").exits(0);
    let plan = json_of(&files(&lab, "other.zip"), "plan.json");
    assert!(plan["changes"].to_string().contains("felix.json"), "{plan:#}");
}

#[test]
fn a_release_that_is_not_on_the_node_is_not_downloaded_for_the_plan() {
    let lab = Lab::node();
    let said = lab.run("diagnose --out node.zip -o json").exits(0).json();
    let missing = said["missing"].as_array().unwrap();
    assert!(missing.len() == 1 && missing[0]["file"] == "plan.json", "{said:#}");
    assert!(missing[0]["why"].as_str().unwrap().contains("not in the cache"), "{said:#}");
    assert!(!lab.path("node/cache").exists(), "nothing was downloaded");
    let _planned = lab.run("plan").exits(0);
}

#[test]
fn the_zip_has_what_of_the_cluster_decides_the_nodes_network() {
    let lab = Lab::installed();
    lab.add_object(
        "bgppeers.crd.projectcalico.org",
        json!({
            "apiVersion": "crd.projectcalico.org/v1", "kind": "BGPPeer",
            "metadata": { "name": "rack", "annotations": {"note": "token: canary-of-a-note"},
                "managedFields": [{"manager": "kubectl"}] },
            "spec": { "peerIP": "10.20.0.11", "password": {"secretKeyRef": {"name": "bgp", "key": "rack"}} },
        }),
    );
    let _zip = lab.run("diagnose --out node.zip").exits(0);
    let files = files(&lab, "node.zip");
    assert_eq!(json_of(&files, "cluster/nodes.json")["metadata"]["name"], "win-a1");
    let peer = &json_of(&files, "cluster/bgppeers.json")[0];
    assert_eq!(peer["spec"]["password"]["secretKeyRef"]["name"], "bgp");
    assert_eq!(peer["metadata"]["managedFields"], Value::Null);
    assert!(!files.values().any(|text| text.contains("canary-of-a-note")));
    for pool in json_of(&files, "cluster/ippools.json").as_array().unwrap() {
        assert!(pool["spec"]["cidr"].is_string(), "{pool:#}");
    }
    let named = |name: &str| json_of(&files, name)[0]["metadata"]["name"].clone();
    assert_eq!(named("cluster/felixconfigurations.json"), "default");
    let affinity = &json_of(&files, "cluster/blockaffinities.json")[0]["spec"];
    assert_eq!(affinity["node"], "win-a1");
    let block = &json_of(&files, "cluster/ipamblocks.json")[0]["spec"];
    assert_eq!(block["cidr"], affinity["cidr"]);
    // Neither secrets nor files that may have some.
    assert!(!files.keys().any(|name| name.contains("secret") || name.contains("configmap")), "{files:?}");
}

#[test]
fn what_of_the_cluster_cannot_be_read_is_said_and_the_rest_is_there() {
    let lab = Lab::installed();
    for (fault, missing, there) in [
        ("api GET */bgppeers*=403", &["cluster/bgppeers.json"][..], "cluster/ippools.json"),
        ("api GET */ippools*=403", &["cluster/ippools.json", "plan.json"], "cluster/nodes.json"),
        ("api down", &["cluster", "plan.json"], "hns/networks.json"),
    ] {
        let zip = format!("{}.zip", missing.len());
        let _before = std::fs::remove_file(lab.path(&zip));
        let said = lab.fails_at(fault, &format!("diagnose --out {zip} -o json")).exits(0).json();
        let named: Vec<&str> =
            said["missing"].as_array().unwrap().iter().map(|one| one["file"].as_str().unwrap()).collect();
        assert_eq!(named, missing, "{fault}: {said:#}");
        let files = files(&lab, &zip);
        assert!(files.contains_key(there), "{fault}: {files:?}");
        assert!(files["report.html"].contains("Not collected: "), "{fault}");
    }
}

#[test]
fn the_journal_in_the_zip_has_the_steps_of_the_run_with_the_states_before_and_wanted() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put running CalicoFelix#2=exit-before", CHANGE).exits(137);
    let _zip = lab.run("diagnose --out node.zip").exits(0);
    let journal = json_of(&files(&lab, "node.zip"), "journal.json");
    assert_eq!((&journal["command"], &journal["from"]), (&json!("apply"), &json!(1)), "{journal:#}");
    let steps = journal["steps"].as_array().unwrap();
    assert!(steps.len() > 1 && steps.last().unwrap()["id"] == "running CalicoFelix", "{journal:#}");
    let settings = |one: &&Value| one["id"].as_str().unwrap().ends_with("felix.json");
    let file = steps.iter().find(settings).unwrap_or_else(|| panic!("{journal:#}"));
    assert!(file["before"].is_object() && file["wanted"].is_object() && file["before"] != file["wanted"], "{file:#}");
}

type Break = fn(&Lab);

const CHANGE: &str = "apply -y --set services.felixLogSeverity=debug";

/// What is broken, how, the fault that the verb meets, and what is named as the cause: an id, and words of it.
const BROKEN: [(&str, Break, &str, &str, &str); 10] = [
    ("Felix is stopped", |lab| stop(lab, "CalicoFelix"), "", "ServiceStopped", "service CalicoFelix is stopped"),
    (
        "somebody deleted the CNI configuration",
        |lab| std::fs::remove_file(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap(),
        "",
        "NodeDrifted",
        r"changed since the last run: file C:\Program Files\containerd\cni\conf\10-calico.conf",
    ),
    (
        "HNS has another VSID",
        |lab| lab.edit_yaml(|yaml| yaml.replace("vsid: 4096", "vsid: 4200")),
        "",
        "NodeDrifted",
        "changed since the last run: hns-network Calico",
    ),
    ("the API server is away", |_| (), "api down", "ClusterNotAsked", "refuses the connection"),
    (
        "the Node is not Ready",
        |lab| {
            lab.edit_object("nodes", "win-a1", |node| {
                let conditions = node["status"]["conditions"].as_array_mut().unwrap();
                let ready = conditions.iter_mut().find(|one| one["type"] == "Ready").unwrap();
                (ready["status"], ready["reason"]) = ("False".into(), "KubeletNotReady".into());
            });
        },
        "",
        "NodeNotReady",
        "win-a1 is not Ready",
    ),
    (
        "a run was killed",
        |lab| drop(lab.fails_at("put running CalicoFelix#2=exit-before", CHANGE)),
        "",
        "InterruptedRun",
        "at step 5 of 6: running CalicoFelix",
    ),
    (
        "the cluster has another VNI",
        |lab| {
            lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
                felix["spec"]["vxlanVNI"] = 5000.into();
            });
        },
        "",
        "MixedVni",
        "5000 in FelixConfiguration",
    ),
    (
        "strict affinity was switched off",
        |lab| {
            lab.edit_object("ipamconfigs.crd.projectcalico.org", "default", |ipam| {
                ipam["spec"]["strictAffinity"] = false.into();
            });
        },
        "",
        "StrictAffinity",
        "strict",
    ),
    ("containerd is stopped", |lab| stop(lab, "containerd"), "", "RuntimeRunning", "containerd is stopped"),
    ("the API server's certificate has expired", |_| (), "api expired-certificate", "ClusterNotAsked", "expired"),
];

/// A service with a process runs.
fn stop(lab: &Lab, service: &str) {
    lab.edit_yaml(|yaml| {
        let (before, rest) = yaml.split_once(&format!("\n  {service}:\n")).unwrap();
        let (definition, rest) = rest.split_once("    pid: ").unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        format!("{before}\n  {service}:\n{definition}{rest}")
    });
}

#[test]
fn a_stopped_runtime_is_started_by_preflight_and_the_node_is_healthy() {
    let lab = Lab::installed();
    stop(&lab, "containerd");
    let fixed = lab.run("preflight --fix -y -o json").exits(0).json();
    let of = |id: &str| fixed["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).unwrap();
    assert_eq!(
        (&of("RuntimeRunning")["status"], &of("NodeStatus")["status"]),
        (&json!("ok"), &json!("ok")),
        "{fixed:#}"
    );
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

#[test]
fn the_cause_is_on_the_first_screen_of_status_preflight_and_the_page() {
    // What an admin sees in a terminal of 80 columns and 24 lines, without what wraps a line.
    let first_screen = |output: &str| {
        let words: Vec<&str> = output.lines().take(24).flat_map(str::split_whitespace).collect();
        COLOUR.replace_all(&words.join(" "), "").into_owned()
    };
    let healthy = Lab::installed();
    let quiet = ["status", "preflight"].map(|verb| healthy.run(verb).exits(0).stdout);
    for (what, breaks, fault, id, words) in BROKEN {
        assert!(!quiet.iter().any(|output| output.contains(words)), "a healthy node has it too: {words}");
        let lab = healthy.copy();
        breaks(&lab);
        let run = |verb: &str| if fault.is_empty() { lab.run(verb) } else { lab.fails_at(fault, verb) };
        let said = run("diagnose --out node.zip -o json").exits(0).json();
        let causes = said["causes"].as_array().unwrap();
        assert!(causes.contains(&json!(id)), "{what}: {said:#}");
        let files = files(&lab, "node.zip");
        let verdict = verdict(&files["report.html"]);
        let named = format!("<h2 class=\"id\">{id}</h2>");
        assert_eq!((verdict.matches(&named).count(), verdict.contains(words)), (1, true), "{what}: {verdict}");
        let preflight = run("preflight").stdout;
        for output in
            [seen(&lab, fault, "status", 80, "always").stdout, seen(&lab, fault, "preflight", 80, "always").stdout]
        {
            assert!(first_screen(&output).contains(words), "{what}: {output}");
        }
        assert!(!preflight.contains("calicoctl-win preflight --sandbox"), "it was just run: {preflight}");
    }
}
