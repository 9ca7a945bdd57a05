//! The main verbs against a cluster that is not the sandbox's own: named by a kubeconfig and reached at its address
//! like any other API server.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Layout, Seed};
use serde_json::json;

use crate::etcd::Etcd;
use crate::lab::Lab;

/// A cluster in this process, and a lab whose `admin.yaml` names it.
fn cluster(layout: Layout) -> (Lab, EmbeddedCluster) {
    let lab = Lab::node();
    let seed = Seed { layout, ..Seed::new("win-a1") };
    let cluster = EmbeddedCluster::start(&lab.path("elsewhere"), &seed, &[]).unwrap();
    lab.write("admin.yaml", cluster.admin_kubeconfig_direct());
    (lab, cluster)
}

/// Creates the roles and bindings of a manifest, each as it is then.
pub fn create(cluster: &EmbeddedCluster, manifest: &str, edit: impl Fn(&mut serde_json::Value)) {
    for document in manifest.split("---\n") {
        let mut object: serde_json::Value = serde_yaml::from_str(document).unwrap();
        // Comments stand before the first one; the last one is calico-node's, and the sandbox's cluster has it.
        if object.is_null() || object["metadata"]["name"] == "calicoctl-win-renewal" {
            continue;
        }
        edit(&mut object);
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let namespace =
            object["metadata"]["namespace"].as_str().map_or_else(String::new, |n| format!("namespaces/{n}/"));
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{namespace}{plural}");
        cluster.as_admin(&http::Method::POST, &path, Some(&object)).unwrap();
    }
}

fn get(cluster: &EmbeddedCluster, path: &str) -> serde_json::Value {
    cluster.as_admin(&http::Method::GET, path, None).unwrap()
}

#[test]
fn a_node_joins_the_cluster_that_the_kubeconfig_names() {
    for (layout, group) in [(Layout::V1, "crd.projectcalico.org/v1"), (Layout::V3, "projectcalico.org/v3")] {
        let (lab, cluster) = cluster(layout);
        let installed = lab.run("install -y -o json --kubeconfig admin.yaml").exits(0).json();
        assert_eq!(installed["changed"], true);
        assert!(!Path::new(&lab.path("node/cluster")).exists(), "the sandbox's own cluster was not used");

        let node = get(&cluster, "/api/v1/nodes/win-a1");
        let annotations = &node["metadata"]["annotations"];
        assert!(annotations["projectcalico.org/IPv4VXLANTunnelAddr"].is_string(), "{annotations}");
        let conf: serde_json::Value =
            serde_json::from_str(&lab.read("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
        assert_eq!(conf["calico_api_group"], json!(group));
        let own = lab.read("C/CalicoWindows/calico-kube-config");
        assert!(own.contains(&format!("https://{}", cluster.addr())), "the address of the kubeconfig, not another");

        let again = lab.run("install -y -o json --kubeconfig admin.yaml").exits(0).json();
        assert_eq!((&again["changed"], &again["status"]), (&json!(false), &json!("no_changes")));
        let status = lab.run("status -o json").exits(0).json();
        assert_eq!(status["node"]["ready"], true, "asked with the node's own kubeconfig");
        let _gone = lab.run("uninstall --purge -y").exits(0);
    }
}

/// As in a cluster in use: each node has a block, and one was just released.
#[test]
fn every_verb_works_with_blocks_of_other_nodes_in_either_layout() {
    for (layout, group) in [(Layout::V1, "crd.projectcalico.org/v1"), (Layout::V3, "projectcalico.org/v3")] {
        let (lab, cluster) = cluster(layout);
        let word = |set: bool| if layout == Layout::V1 { json!(set.to_string()) } else { json!(set) };
        for (name, third, given_up) in [("linux-2", 11, false), ("linux-3", 12, true)] {
            let affinity = json!({ "apiVersion": group, "kind": "BlockAffinity",
                "metadata": { "name": format!("{name}-192-168-{third}-0-26") },
                "spec": { "cidr": format!("192.168.{third}.0/26"), "deleted": word(given_up), "node": name,
                    "state": "confirmed", "type": "host" } });
            let path = format!("/apis/{group}/blockaffinities");
            cluster.as_admin(&http::Method::POST, &path, Some(&affinity)).unwrap();
        }
        lab.write("node.yaml", "spec: {kubernetes: {kubeconfig: admin.yaml}}\n");
        let checked = lab.bare("cluster check --kubeconfig admin.yaml -o json").exits(0).json();
        assert_eq!(findings(&checked, "fail"), Vec::<String>::new(), "{group}");
        let looked = lab.run("preflight -c node.yaml -o json").exits(0).json();
        // Two of the three, and that of this node: the released one belongs to no node.
        let free = looked["checks"].as_array().unwrap().iter().find(|check| check["id"] == "PoolBlocks").unwrap();
        assert_eq!(free["detail"], "free blocks: 1022");
        for words in [
            "plan -c node.yaml",
            "install -y -c node.yaml",
            "reconfigure -y --set services.felixLogSeverity=debug",
            "credentials rotate -y",
            "status",
            "rollback -y",
            "uninstall --purge --cluster-traces -y",
        ] {
            let output = lab.run(words);
            assert_eq!(output.code, 0, "{group}: {words}: {output}");
        }
        let left = get(&cluster, &format!("/apis/{group}/blockaffinities"));
        let nodes: Vec<&str> =
            left["items"].as_array().unwrap().iter().map(|a| a["spec"]["node"].as_str().unwrap()).collect();
        assert_eq!(nodes, ["linux-1", "linux-2", "linux-3"], "{group}");
    }
}

/// An administrator names the kubeconfig once, and later runs take it from the receipt.
#[test]
fn later_runs_reach_the_cluster_as_the_install_did() {
    let (lab, cluster) = cluster(Layout::V1);
    lab.write("node.yaml", "spec: {kubernetes: {kubeconfig: admin.yaml}}\n");
    let _installed = lab.run("install -y -c node.yaml").exits(0);
    let receipt = lab.read("C/ProgramData/calicoctl-win/receipts/0001.json");
    assert!(receipt.contains(lab.path("admin.yaml").to_str().unwrap()) && !receipt.contains("client-key"), "{receipt}");
    let annotated = |lab: &Lab| {
        let receipt = lab.run("receipt show -o json").exits(0).json();
        let node = get(&cluster, "/api/v1/nodes/win-a1");
        assert_eq!(
            node["metadata"]["annotations"]["calicoctl-win/settings"], receipt["about"]["settings"],
            "{receipt}"
        );
    };
    cluster.upgrade_calico("v3.33.0").unwrap();
    for words in [
        "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000 --wait-for-cluster-vni=1s",
        "resume -y",
        "rollback -y",
        "upgrade -y --release v3.33.0",
    ] {
        // FelixConfiguration keeps its VNI: the wait for it is over, and so is that of resume.
        let code = if words.contains("wait-for") || words == "resume -y" { 10 } else { 0 };
        let _done = lab.run(words).exits(code);
        annotated(&lab);
    }
    // Also a complete config that does not name it.
    lab.write("whole.yaml", "spec: {services: {felixLogSeverity: debug}}\n");
    let _whole = lab.run("reconfigure -y -c whole.yaml --release v3.33.0").exits(64);
    let _whole = lab.run("reconfigure -y -c whole.yaml --set calico.version=v3.33.0").exits(0);
    annotated(&lab);
    assert!(!lab.path("node/cluster").exists(), "the sandbox's own cluster was not used");

    std::fs::rename(lab.path("admin.yaml"), lab.path("moved.yaml")).unwrap();
    let lost = lab.run("reconfigure -y -o json --set services.felixLogSeverity=info").exits(7).json();
    assert_eq!(lost["error"]["id"], "KubeconfigMissing");
    let what = lost["error"]["what"].as_str().unwrap();
    assert!(
        what.starts_with("generation 5 was made with the kubeconfig ") && what.ends_with("which cannot be read now")
    );
    let _named = lab.run("reconfigure -y --set services.felixLogSeverity=info --kubeconfig moved.yaml").exits(0);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    let node = get(&cluster, "/api/v1/nodes/win-a1");
    assert!(node["metadata"]["annotations"]["calicoctl-win/settings"].is_null(), "{node}");
}

#[test]
fn the_vni_is_the_clusters_and_another_one_gets_a_warning() {
    let (lab, cluster) = cluster(Layout::V1);
    let felix = "/apis/crd.projectcalico.org/v1/felixconfigurations/default";
    cluster.as_admin(&http::Method::PATCH, felix, Some(&json!({ "spec": { "vxlanVNI": 5000 } }))).unwrap();
    let _done = lab.run("install -y --kubeconfig admin.yaml").exits(0);
    let status = lab.run("status -o json").exits(0).json();
    let calico = status["networks"].as_array().unwrap().iter().find(|network| network["name"] == "Calico").unwrap();
    assert_eq!(calico["vsid"], 5000);

    let plan = lab.run("plan -o json --kubeconfig admin.yaml --set calicoNetwork.vxlan.vxlanVNI=6000").exits(0).json();
    assert!(plan["warnings"].to_string().contains("VniMatchesFelix"), "{}", plan["warnings"]);
    assert_eq!(plan["needs_drain"], true);
}

#[test]
fn etcds_certificates_come_from_the_clusters_secret_and_are_removed_with_the_rest() {
    let (lab, cluster) = cluster(Layout::V1);
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let Etcd { url, ca, key, cert: certificate, .. } = Etcd::start();
    let template = json!({ "spec": { "template": { "spec": { "containers": [{
        "name": "calico-node", "env": [{ "name": "ETCD_ENDPOINTS", "value": url }] }] } } } });
    let daemon_set = "/apis/apps/v1/namespaces/calico-system/daemonsets/calico-node";
    cluster.as_admin(&http::Method::PATCH, daemon_set, Some(&template)).unwrap();
    let secret = |data: serde_json::Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "calico-etcd-secrets" }, "data": data });
    let base64 = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
    let install = &format!(
        "install -y -o json --kubeconfig admin.yaml --set datastore.type=etcdv3 --set datastore.etcd.endpoints={url} \
         --set datastore.etcd.tlsSecretRef.name=calico-etcd-secrets \
         --set datastore.etcd.tlsSecretRef.namespace=kube-system --set calicoNetwork.vxlan.vxlanVNI=4096 \
         --set calicoNetwork.backend=vxlan"
    );
    let before = lab.picture();

    let absent = lab.run(install).exits(4).json();
    assert_eq!(absent["error"]["id"], "EtcdSecretInvalid", "{absent:#}");
    let half = secret(json!({ "etcd-key": base64(&key), "etcd-ca": base64(&ca) }));
    cluster.as_admin(&http::Method::POST, secrets, Some(&half)).unwrap();
    let lacks = lab.run(install).exits(4).json();
    assert!(lacks["error"]["what"].as_str().unwrap().contains("lacks `etcd-cert`"), "{lacks:#}");
    lab.picture_without_state().same_as(&before);

    let whole = json!({ "data": { "etcd-cert": base64(&certificate) } });
    cluster.as_admin(&http::Method::PATCH, &format!("{secrets}/calico-etcd-secrets"), Some(&whole)).unwrap();
    let installed = lab.run(install).exits(0).json();
    assert_eq!(installed["changed"], true);
    assert!(!installed.to_string().contains("PRIVATE KEY"));
    for (file, text) in [("server.key", &key), ("server.crt", &certificate), ("ca.crt", &ca)] {
        assert_eq!(&lab.read(&format!("C/CalicoWindows/etcd-tls/{file}")), text);
    }
    let again = lab.run(install).exits(0).json();
    assert_eq!(again["changed"], false);
    let _off = lab.run("uninstall -y").exits(0);
    assert_eq!(lab.picture().files_with(&key), Vec::<String>::new());
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

/// Returns every file below a folder that contains this text.
#[cfg(unix)]
pub fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if path.is_file() && String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Client secrets are in a plugin's arguments and environment, and a plugin may print its input.
#[cfg(unix)]
#[test]
fn only_the_path_of_an_exec_plugin_is_shown_whatever_it_prints() {
    use std::os::unix::fs::PermissionsExt;

    let (lab, _cluster) = cluster(Layout::V1);
    let credential = |version: &str, rest: &str| {
        format!(r#"echo '{{"apiVersion": "client.authentication.k8s.io/{version}", "kind": "ExecCredential"{rest}}}'"#)
    };
    let token = r#", "status": {"token": "canary-token"}"#;
    let dated = r#", "status": {"token": "canary-token", "expirationTimestamp": "canary-time"}"#;
    for (script, said) in [
        (Some("echo canary-stdout; exit 3".to_owned()), "it failed with exit status: 3"),
        (None, "it cannot be started: "),
        (Some("echo canary-stdout".to_owned()), "it did not print an ExecCredential"),
        (Some(credential("v1", "")), "has no status"),
        (Some(credential("v1", dated)), "the expiry of its token cannot be parsed"),
        // The server's answer to an unknown token.
        (Some(credential("v9", token)), "401"),
        (Some(credential("v1", token)), "401"),
    ] {
        let plugin = lab.path("plugin.sh");
        std::fs::remove_file(&plugin).ok();
        if let Some(script) = &script {
            lab.write("plugin.sh", format!("#!/bin/sh\necho \"canary-stderr $1 $CLIENT_SECRET\" >&2\n{script}\n"));
            std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        for (mode, format) in [("Never", "text"), ("Never", "json"), ("IfAvailable", "ndjson"), ("IfAvailable", "json")]
        {
            let mut kubeconfig: serde_json::Value =
                serde_yaml::from_str(&std::fs::read_to_string(lab.path("admin.yaml")).unwrap()).unwrap();
            kubeconfig["users"][0]["user"] = json!({ "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh", "args": ["canary-argument"],
                "env": [{ "name": "CLIENT_SECRET", "value": "canary-env" }], "interactiveMode": mode,
            } });
            lab.write("exec.yaml", kubeconfig.to_string());
            let output = lab.run(&format!("install -y -o {format} --kubeconfig exec.yaml"));
            assert!([7, 17].contains(&output.code), "{script:?}: {output}");
            // What the plugin itself printed for its user is on the terminal, as with kubectl.
            let terminal: String =
                output.stderr.lines().filter(|line| !line.starts_with("canary-stderr ")).collect::<Vec<_>>().join("\n");
            for text in [&output.stdout, &terminal] {
                assert!(!text.contains("canary"), "{script:?}: {output}");
            }
            assert_eq!(files_with(&lab.path("node"), "canary"), Vec::<String>::new(), "{script:?}");
            let ours = if format == "text" { &output.stderr } else { &output.stdout };
            assert!(ours.contains(said), "{script:?}: {said}: {output}");
            assert!(ours.contains("plugin.sh") || said == "401", "the path is shown: {output}");
        }
    }
}

/// A server that accepts connections and never answers, at this address: how many connections it has.
fn mute(address: std::net::SocketAddr) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(address).unwrap();
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            open.push(stream);
            count.fetch_add(1, Relaxed);
        }
    });
    asked
}

/// `status` asks with the services' login, `preflight` and `diagnose` with the installer's too.
#[test]
fn a_server_that_hangs_is_waited_for_once() {
    let (lab, cluster) = cluster(Layout::V1);
    let _there = lab.run("install -y --kubeconfig admin.yaml").exits(0);
    let address = cluster.addr();
    drop(cluster);
    let asked = mute(address);
    let quick = "--kubeconfig admin.yaml --set transport.timeout=1s --set transport.retries=0";
    for (words, code) in [("preflight", 7), ("diagnose --out node.zip", 0)] {
        let before = asked.load(Relaxed);
        let said = lab.run(&format!("{words} {quick} -o json")).exits(code);
        // Three at once, and perhaps three more before the first that is awaited has ended. Each round would be as many.
        let connections = asked.load(Relaxed) - before;
        assert!((1..=6).contains(&connections), "{words}: {connections}: {said}");
        if words == "preflight" {
            let report = said.json();
            let status = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == "NodeStatus").unwrap();
            let detail = status["detail"].as_str().unwrap();
            assert!(detail.contains("within 0.5 s"), "it has been asked again, which may take 5 s: {detail}");
        }
    }
    // A wait has a limit of its own.
    let said =
        lab.run("preflight --wait --timeout 1s --kubeconfig admin.yaml --set transport.timeout=1h -o json").exits(7);
    assert!(said.json()["checks"].to_string().contains("within 2.5 s"), "{said}");
    let before = asked.load(Relaxed);
    let _waited = lab.run("status --wait --timeout 1s").exits(12);
    assert_eq!(asked.load(Relaxed) - before, 1, "the time was over after the first look");
    let zip = std::fs::File::open(lab.path("node.zip")).unwrap();
    let mut zip = zip::ZipArchive::new(zip).unwrap();
    let name = zip.file_names().map(|name| name.unwrap().into_owned()).find(|name| name.ends_with("/status.json"));
    let status: serde_json::Value = serde_json::from_reader(zip.by_name(&name.unwrap()).unwrap()).unwrap();
    assert_eq!(status["problems"][0]["id"], "ClusterNotAsked", "{status:#}");
    assert!(status["problems"][0]["message"].as_str().unwrap().contains("within 0.5 s"), "{status:#}");
}

/// The client that starts a plugin has no limit for it.
#[cfg(unix)]
#[test]
fn a_plugin_that_hangs_is_ended_with_its_children() {
    let lab = Lab::new();
    let plugin = "#!/bin/sh\n/bin/sleep 600 &\necho $! $$ > pids\necho $1\nwait\n";
    lab.write("plugin.sh", plugin);
    make_executable(&lab.path("plugin.sh"));
    let output = lab.bare("exec-plugin 1 ./plugin.sh --json").exits(124);
    assert_eq!(output.stdout, "--json\n");
    let pids = std::fs::read_to_string(lab.path("pids")).unwrap();
    let state = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // What was killed may still wait for its parent to notice it.
    let runs = |pid: &&str| !["", "Z", "X"].contains(&state(pid).split(' ').nth(2).unwrap_or_default());
    let begun = std::time::Instant::now();
    while let Some(pid) = pids.split_whitespace().find(runs) {
        assert!(begun.elapsed().as_secs() < 10, "{pid} still runs");
        std::thread::yield_now();
    }
    lab.write("plugin.sh", "#!/bin/sh\nexit 3\n");
    let _its_own = lab.bare("exec-plugin 60 ./plugin.sh").exits(3);
    let _none = lab.bare("exec-plugin 60 ./there-is-none").exits(126);
}

#[cfg(unix)]
fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Nodes have little memory to spare, and a list of large pods has megabytes.
#[cfg(target_os = "linux")]
#[test]
fn a_large_answer_is_in_memory_once() {
    use std::io::{BufRead as _, BufReader, Write as _};

    const LARGE: usize = 60 << 20;
    let lab = Lab::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{ "name": "tests", "cluster": { "server": format!("http://{}", listener.local_addr().unwrap()) } }],
        "users": [{ "name": "user", "user": { "token": "open" } }],
        "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": "user" } }],
    });
    lab.write("plain.yaml", kubeconfig.to_string());
    let version = r#"{"major":"1","minor":"34","gitVersion":"v1.34.1","more":""#;
    let large = format!("{version}{}\"}}", "x".repeat(LARGE - version.len() - 2));
    let mut command = lab.command("cluster check --kubeconfig plain.yaml -o json");
    let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // The most memory that it had when it made a request after the answer.
    let (mut most, mut answered) = (0, false);
    listener.set_nonblocking(true).unwrap();
    while child.try_wait().unwrap().is_none() {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::yield_now();
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let asked = lines.next().unwrap_or_default();
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = now.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(if answered { peak.unwrap_or(0_usize) << 10 } else { 0 });
        let body = if asked.starts_with("GET /version ") { large.as_str() } else { "{}" };
        answered |= body.len() == LARGE;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        let _it_may_have_enough =
            write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).and_then(|()| stream.flush());
    }
    assert!(most > LARGE, "no request came after the answer: {most}");
    assert!(most < LARGE * 2, "{} MiB", most >> 20);
}

/// So a plugin cannot outlive its limit, also if its credentials expire during a run.
#[cfg(target_os = "linux")]
#[test]
fn this_program_runs_a_plugin_that_asks_nobody() {
    let (lab, _cluster) = cluster(Layout::V1);
    lab.write("plugin.sh", "#!/bin/sh\ntr '\\0' ' ' < /proc/$PPID/cmdline > parent\nexit 3\n");
    make_executable(&lab.path("plugin.sh"));
    let mut kubeconfig: serde_json::Value =
        serde_yaml::from_str(&std::fs::read_to_string(lab.path("admin.yaml")).unwrap()).unwrap();
    kubeconfig["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh", "args": ["get-token"],
    } });
    lab.write("exec.yaml", kubeconfig.to_string());
    let _failed = lab.bare("cluster check -o json --kubeconfig exec.yaml").exits(7);
    let parent = std::fs::read_to_string(lab.path("parent")).unwrap();
    assert!(parent.trim_end().ends_with("/plugin.sh get-token") && parent.contains(" exec-plugin 60 "), "{parent}");
}

/// A login may cost the user a browser window, or the company a call of its cloud.
#[cfg(unix)]
#[test]
fn a_run_logs_in_once_and_a_token_of_two_lines_is_refused() {
    use base64::Engine as _;

    let (lab, _cluster) = cluster(Layout::V1);
    let mut kubeconfig: serde_json::Value =
        serde_yaml::from_str(&std::fs::read_to_string(lab.path("admin.yaml")).unwrap()).unwrap();
    let own = kubeconfig["users"][0]["user"].clone();
    let pem = |field: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(own[field].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let (certificate, key) = (pem("client-certificate-data"), pem("client-key-data"));
    kubeconfig["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh",
    } });
    lab.write("exec.yaml", kubeconfig.to_string());
    let prints = |status: serde_json::Value| {
        let credential = json!({ "kind": "ExecCredential", "status": status });
        lab.write("credential.json", credential.to_string());
        lab.write("plugin.sh", "#!/bin/sh\necho run >> runs\ncat credential.json\n");
        make_executable(&lab.path("plugin.sh"));
    };
    prints(json!({ "clientCertificateData": certificate, "clientKeyData": key }));
    let _checked = lab.bare("cluster check --kubeconfig exec.yaml").exits(0);
    assert_eq!(std::fs::read_to_string(lab.path("runs")).unwrap(), "run\n");

    prints(json!({ "token": "open\nsesame" }));
    let refused = lab.bare("cluster check -o json --kubeconfig exec.yaml").exits(7);
    assert!(!refused.stderr.contains("panicked"), "{refused}");
    let refused = refused.json();
    assert_eq!(refused["error"]["id"], "ClusterLogin");
    assert!(refused["error"]["why"].as_str().unwrap().starts_with("its token has a line break"), "{refused:#}");
}

#[cfg(unix)]
#[test]
fn without_a_terminal_an_exec_plugin_is_told_to_ask_nothing() {
    use std::os::unix::fs::PermissionsExt;

    let (lab, _cluster) = cluster(Layout::V1);
    lab.write("plugin.sh", "#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" >> told\nexit 3\n");
    std::fs::set_permissions(lab.path("plugin.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let admin: serde_json::Value =
        serde_yaml::from_str(&std::fs::read_to_string(lab.path("admin.yaml")).unwrap()).unwrap();
    let with = |mode: &str| {
        let mut kubeconfig = admin.clone();
        kubeconfig["users"][0]["user"] = json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh", "interactiveMode": mode,
        } });
        lab.write("exec.yaml", kubeconfig.to_string());
        lab.bare("cluster check -o json --kubeconfig exec.yaml").exits(7).json()["error"]["what"].clone()
    };
    let _asked = with("IfAvailable");
    let told: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(lab.path("told")).unwrap()).unwrap();
    assert_eq!(told["spec"]["interactive"], false, "{told}");
    assert!(with("Always").as_str().unwrap().ends_with("has interactiveMode: Always, and nobody can be asked"));
}

/// The checks of a report that are not ok or skipped, for example `StrictAffinity: off`.
fn findings(report: &serde_json::Value, status: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["status"] == status);
    checks.map(|check| format!("{}: {}", check["id"].as_str().unwrap(), check["detail"].as_str().unwrap())).collect()
}

fn patch(cluster: &EmbeddedCluster, path: &str, spec: serde_json::Value) {
    cluster.as_admin(&http::Method::PATCH, path, Some(&json!({ "spec": spec }))).unwrap();
}

#[test]
fn a_cluster_is_checked_from_any_machine_in_either_layout() {
    for (layout, group) in [(Layout::V1, "crd.projectcalico.org/v1"), (Layout::V3, "projectcalico.org/v3")] {
        let (lab, cluster) = cluster(layout);
        let checked = lab.bare("cluster check --kubeconfig admin.yaml -o json").exits(0).json();
        assert_eq!(checked["kind"], "PreflightReport");
        assert_eq!(findings(&checked, "fail"), Vec::<String>::new());
        assert!(findings(&checked, "ok").contains(&format!("CalicoResources: {group}")), "{checked:#}");
        assert!(!checked.to_string().contains("WindowsBuild"), "no node was examined");

        let ipam = if layout == Layout::V1 { "ipamconfigs" } else { "ipamconfigurations" };
        patch(&cluster, &format!("/apis/{group}/{ipam}/default"), json!({ "strictAffinity": false }));
        let pool = format!("/apis/{group}/ippools/default-ipv4-ippool");
        patch(&cluster, &pool, json!({ "vxlanMode": "Never", "ipipMode": "CrossSubnet" }));
        patch(&cluster, &format!("/apis/{group}/felixconfigurations/default"), json!({ "vxlanEnabled": null }));
        let checked = lab.bare("cluster check --kubeconfig admin.yaml -o json").exits(3).json();
        assert_eq!(
            findings(&checked, "fail"),
            [
                "Ipip: the IP pool `default-ipv4-ippool` has ipipMode: CrossSubnet: Windows nodes cannot do IP-in-IP",
                "StrictAffinity: IPAM strict affinity is off",
            ]
        );
        let ignored = "cluster check --kubeconfig admin.yaml --ignore-preflight-errors StrictAffinity,ipip";
        let _warned_only = lab.bare(ignored).exits(0);
    }
}

#[test]
fn the_operators_own_pods_on_windows_are_a_conflict() {
    let (lab, cluster) = cluster(Layout::V1);
    let installation = "/apis/operator.tigera.io/v1/installations/default";
    patch(&cluster, installation, json!({ "calicoNetwork": { "windowsDataplane": "HNS" } }));
    let before = lab.picture_without_state();
    let refused = lab.run("install -y -o json --kubeconfig admin.yaml").exits(13).json();
    assert_eq!(refused["error"]["id"], "NoHostProcessCalico");
    let ignored = "install -y --kubeconfig admin.yaml --ignore-preflight-errors NoHostProcessCalico";
    let _still_refused = lab.run(ignored).exits(13);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn missing_rights_are_named_all_at_once() {
    let (lab, cluster) = cluster(Layout::V1);
    let url = EmbeddedCluster::stable_url();
    let direct = format!("https://127.0.0.1:{}", cluster.addr().port());
    lab.write("joe.yaml", cluster.kubeconfig_of("joe", None).unwrap().replace(&url, &direct));
    let refused = lab.bare("cluster check --kubeconfig joe.yaml -o json").exits(17).json();
    assert_eq!(refused["error"]["id"], "ClusterRights");
    insta::assert_snapshot!(refused["error"]["what"].as_str().unwrap(), @"the kubeconfig's user lacks 8 rights: get clusterinformations.crd.projectcalico.org default in the whole cluster, get felixconfigurations.crd.projectcalico.org default in the whole cluster, get ipamconfigs.crd.projectcalico.org default in the whole cluster, list ippools.crd.projectcalico.org in the whole cluster, get nodes in the whole cluster, get serviceaccounts calico-node in calico-system, get serviceaccounts calico-node in kube-system, create serviceaccounts/token calico-node in calico-system");

    let refused = lab.bare("policy lint --kubeconfig joe.yaml -o json").exits(17).json();
    assert_eq!(refused["error"]["id"], "ClusterForbidden");

    // With the manifest that `explain` prints, the same user has the rights.
    let page = lab.bare("explain ClusterRights").exits(0).stdout;
    let (_, manifest) = page.split_once("---\n").unwrap();
    create(&cluster, manifest, |object| {
        if let Some(subjects) = object.get_mut("subjects") {
            *subjects = json!([{ "kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io" }]);
        }
    });
    let checked = lab.bare("cluster check --kubeconfig joe.yaml -o json").exits(0).json();
    assert!(findings(&checked, "ok").contains(&"ClusterRights: all required rights".to_owned()), "{checked:#}");
    assert_eq!(findings(&checked, "unknown"), Vec::<String>::new());
    let lint = || lab.bare("policy lint --kubeconfig joe.yaml -o ndjson").exits(0).ndjson();
    let pods = |lines: &[serde_json::Value]| {
        lines.iter().find(|line| line["type"] == "document").unwrap()["document"]["summary"]["pods"].clone()
    };
    assert!(pods(&lint()).is_u64());
    let _installed = lab.run("install -y --kubeconfig joe.yaml").exits(0);
    let _tainted = lab.run("node taint os=windows:NoSchedule --kubeconfig joe.yaml").exits(0);

    // A change that could not be finished is refused before the cordon.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/calicoctl-win";
    let mut rules = get(&cluster, role)["rules"].as_array().unwrap().clone();
    rules.retain(|rule| rule["resources"] != json!(["pods/eviction"]) && rule["resources"] != json!(["namespaces"]));
    cluster.as_admin(&http::Method::PATCH, role, Some(&json!({ "rules": rules }))).unwrap();
    let uncounted = lint();
    let warned = uncounted.iter().any(|line| line["id"] == "PodsNotCounted");
    assert!(warned && pods(&uncounted).is_null(), "{uncounted:#?}");
    let change = "reconfigure -y -o ndjson --set calicoNetwork.vxlan.vxlanVNI=5000 --kubeconfig joe.yaml";
    let refused = lab.run(change).exits(17).ndjson();
    let result = refused.last().unwrap();
    assert_eq!((&result["error"]["id"], &result["changed"]), (&json!("ClusterRights"), &json!(false)), "{result:#}");
    let cordon = refused.iter().any(|event| event.to_string().contains("cordon"));
    assert!(!cordon, "{refused:#?}");
    let _gone = lab.run("uninstall --purge -y --kubeconfig joe.yaml").exits(0);
}

#[test]
fn policies_of_either_api_group_are_judged() {
    for (layout, group) in [(Layout::V1, "crd.projectcalico.org/v1"), (Layout::V3, "projectcalico.org/v3")] {
        let (lab, cluster) = cluster(layout);
        let deny = json!({ "action": "Deny", "source": { "notNets": ["10.0.0.0/8"] } });
        for (kind, place) in
            [("NetworkPolicy", "namespaces/demo/networkpolicies"), ("GlobalNetworkPolicy", "globalnetworkpolicies")]
        {
            let policy = json!({ "apiVersion": group, "kind": kind, "metadata": { "name": "default.a" },
                "spec": { "selector": "all()", "ingress": [deny] } });
            cluster.as_admin(&http::Method::POST, &format!("/apis/{group}/{place}"), Some(&policy)).unwrap();
        }
        let report = lab.bare("policy lint --kubeconfig admin.yaml -o json").exits(3).json();
        let found = report["findings"].as_array().unwrap().iter();
        let found: Vec<String> =
            found.map(|one| format!("{} {} {}", one["id"], one["kind"], one["namespace"])).collect();
        let wanted = |of: &str| format!("\"PolicyDenySkipped\" {of}");
        assert_eq!(found, [wanted("\"GlobalNetworkPolicy\" null"), wanted("\"NetworkPolicy\" \"demo\"")], "{group}");
    }
}

#[test]
fn a_cluster_is_prepared_by_patches_that_are_shown_first_and_the_second_run_changes_nothing() {
    let (lab, cluster) = cluster(Layout::V1);
    let group = "/apis/crd.projectcalico.org/v1";
    let ready = lab.bare("cluster prepare --kubeconfig admin.yaml -o json").exits(0).json();
    assert_eq!(ready["patches"], json!([]), "the sandbox's cluster needs nothing");

    patch(
        &cluster,
        &format!("{group}/ipamconfigs/default"),
        json!({ "strictAffinity": false, "maxBlocksPerHost": 20 }),
    );
    let pool = format!("{group}/ippools/default-ipv4-ippool");
    patch(&cluster, &pool, json!({ "vxlanMode": "Never", "ipipMode": "Always" }));
    let felix = format!("{group}/felixconfigurations/default");
    patch(&cluster, &felix, json!({ "vxlanEnabled": null, "vxlanVNI": 1, "logSeverityScreen": "Debug" }));
    let installation = "/apis/operator.tigera.io/v1/installations/default";
    let wanted = json!([{ "cidr": "192.168.0.0/16", "encapsulation": "IPIP", "natOutgoing": "Enabled" }]);
    patch(&cluster, installation, json!({ "calicoNetwork": { "ipPools": wanted } }));

    let shown = lab.bare("cluster prepare --kubeconfig admin.yaml -o json").exits(0).json();
    let objects: Vec<&str> =
        shown["patches"].as_array().unwrap().iter().map(|patch| patch["object"].as_str().unwrap()).collect();
    assert_eq!(
        objects,
        [
            "ipamconfigs.crd.projectcalico.org default",
            "installations.operator.tigera.io default",
            "felixconfigurations.crd.projectcalico.org default"
        ],
        "the pool is the operator's"
    );
    assert_eq!(get(&cluster, &felix)["spec"]["vxlanVNI"], 1, "only shown");
    let refused = lab.bare("cluster prepare --apply --kubeconfig admin.yaml -o json").exits(64).json();
    assert_eq!(refused["error"]["id"], "ConfirmationNeeded");

    let made = lab.bare("cluster prepare --apply -y --kubeconfig admin.yaml -o json").exits(0).json();
    assert_eq!((&made["changed"], &made["msg"]), (&json!(true), &json!("3 patches made")), "{made}");
    let spec = |path: &str| get(&cluster, path)["spec"].clone();
    assert_eq!(spec(&felix)["vxlanVNI"], 4096);
    assert_eq!(spec(&felix)["logSeverityScreen"], "Debug", "fields of other clients are kept");
    let ipam = spec(&format!("{group}/ipamconfigs/default"));
    assert_eq!((&ipam["strictAffinity"], &ipam["maxBlocksPerHost"]), (&json!(true), &json!(20)));
    let pools = &spec(installation)["calicoNetwork"]["ipPools"];
    assert_eq!((&pools[0]["encapsulation"], &pools[0]["natOutgoing"]), (&json!("VXLAN"), &json!("Enabled")));

    // The pool itself is unchanged: there is no operator here to apply its Installation.
    let again = lab.bare("cluster prepare --apply -y --kubeconfig admin.yaml -o json").exits(0).json();
    assert_eq!((&again["changed"], &again["msg"]), (&json!(false), &json!("nothing to patch: the operator's turn")));
    let awaited = "PoolAwaitsOperator: the pool default-ipv4-ippool has ipipMode: Always, although the Installation has \
                   VXLAN: the operator has not applied it";
    assert_eq!(again["warnings"], json!([awaited]), "{again}");
    patch(&cluster, &pool, json!({ "vxlanMode": "Always", "ipipMode": "Never" }));
    let ready = lab.bare("cluster prepare --apply -y --kubeconfig admin.yaml -o json").exits(0).json();
    assert_eq!(ready["msg"], "the cluster is ready for Windows nodes", "{ready}");
}

#[test]
fn a_cluster_that_was_prepared_in_part_gets_the_rest_or_is_undone() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    let spec = |words: &str, path: &str, spec: serde_json::Value| {
        let cluster = EmbeddedCluster::start(&lab.path("node/cluster"), &Seed::new("win-a1"), &[]).unwrap();
        cluster
            .as_admin(&http::Method::PATCH, path, Some(&json!({ "spec": spec })))
            .unwrap_or_else(|e| panic!("{words}: {e}"));
    };
    let group = "/apis/crd.projectcalico.org/v1";
    spec("ipam", &format!("{group}/ipamconfigs/default"), json!({ "strictAffinity": false }));
    spec("felix", &format!("{group}/felixconfigurations/default"), json!({ "vxlanVNI": 1 }));
    let failed =
        lab.fails_at("api PATCH *felixconfigurations*=422", "cluster prepare --apply -y -o json").exits(7).json();
    let error = &failed["error"];
    assert_eq!((&error["id"], &failed["changed"]), (&json!("ClusterRejected"), &json!(true)), "{failed:#}");
    assert_eq!(
        error["state"],
        "1 of 2 patches was made, of ipamconfigs.crd.projectcalico.org default; no node was changed"
    );
    let hint = error["hint"].as_str().unwrap();
    let undo =
        "kubectl patch ipamconfigs.crd.projectcalico.org default --type=merge -p \"spec: {strictAffinity: false}\"";
    assert!(
        hint.contains("make the rest with: calicoctl-win cluster prepare --apply") && hint.ends_with(undo),
        "{hint}"
    );
    let made = lab.run("cluster prepare --apply -y -o json").exits(0).json();
    assert_eq!(made["msg"], "1 patch made");
}

#[test]
fn a_node_that_the_cluster_does_not_have_is_not_checked() {
    let (lab, _cluster) = cluster(Layout::V1);
    let refused = lab.bare("cluster check --kubeconfig admin.yaml --node-name nope -o json").exits(7).json();
    assert_eq!(
        (&refused["error"]["id"], &refused["error"]["what"]),
        (&json!("NodeAbsent"), &json!("the cluster has no Node nope"))
    );
    let _checked = lab.bare("cluster check --kubeconfig admin.yaml --node-name win-a1").exits(0);
}

#[test]
fn one_resource_that_fails_leaves_only_its_checks_unknown() {
    let lab = Lab::node();
    let whole = lab.run("cluster check -o json").exits(0).json();
    let checked = lab.fails_at("api GET *bgppeers*=500", "cluster check -o json").exits(0).json();
    let unknown = findings(&checked, "unknown");
    let known = findings(&whole, "unknown");
    let new: Vec<&String> = unknown.iter().filter(|one| !known.contains(one)).collect();
    assert!((1..=4).contains(&new.len()), "{new:#?}");
    assert!(new.iter().all(|one| one.contains("bgppeers")), "{new:#?}");
}

/// Manifests install Calico in kube-system.
#[test]
fn the_manifests_of_rights_are_those_of_calicos_namespace() {
    let lab = Lab::new();
    for id in ["ClusterRights", "TokenRenewalForbidden", "NodeLogin"] {
        let manifest = |words: &str| {
            let page = lab.bare(&format!("explain {id}{words}")).exits(0).stdout;
            page[page.find("apiVersion:").unwrap()..].to_owned()
        };
        assert!(manifest("").contains("namespace: calico-system"), "{id}");
        let other = manifest(" --calico-namespace kube-system");
        assert!(other.contains("namespace: kube-system") && !other.contains("calico-system"), "{id}: {other}");
    }
    let page = lab.bare("explain ClusterRights --calico-namespace networking").exits(0).stdout;
    let roles = page.split("---\n").filter(|one| one.contains("kind: Role\n") && one.contains("namespace: networking"));
    assert_eq!(roles.count(), 2, "{page}");
}

#[test]
fn a_prepared_cluster_passes_every_check_or_the_failed_ones_are_named() {
    let (lab, cluster) = cluster(Layout::V1);
    let felix = "/apis/crd.projectcalico.org/v1/felixconfigurations/default";
    patch(&cluster, felix, json!({ "vxlanEnabled": false, "vxlanPort": 4790 }));
    let shown = lab.bare("cluster prepare --kubeconfig admin.yaml -o json").exits(0).json();
    let undo = shown["patches"][0]["undo"].as_str().unwrap();
    assert_eq!(
        undo,
        r#"kubectl patch felixconfigurations.crd.projectcalico.org default --type=merge -p "spec: {vxlanEnabled: false, vxlanPort: 4790}""#
    );
    let _made = lab.bare("cluster prepare --apply -y --kubeconfig admin.yaml").exits(0);
    let spec = get(&cluster, felix)["spec"].clone();
    assert_eq!((&spec["vxlanEnabled"], &spec["vxlanPort"]), (&json!(null), &json!(null)), "{spec}");

    // What no patch of this program changes.
    let installation = "/apis/operator.tigera.io/v1/installations/default";
    patch(&cluster, installation, json!({ "calicoNetwork": { "bgp": "Enabled" } }));
    let warned = lab.bare("cluster prepare --apply -y --kubeconfig admin.yaml -o json").exits(0).json();
    assert!(warned["warnings"][0].as_str().unwrap().starts_with("BgpDisabled: "), "{warned:#}");
    patch(&cluster, installation, json!({ "calicoNetwork": { "windowsDataplane": "HNS" } }));
    let failed = lab.bare("cluster prepare --kubeconfig admin.yaml -o json").exits(13).json();
    assert_eq!(failed["error"]["id"], "NoHostProcessCalico", "{failed:#}");
}

#[test]
fn preflight_fixes_what_it_can_and_reports_as_junit() {
    let (lab, cluster) = cluster(Layout::V3);
    let ipam = "/apis/projectcalico.org/v3/ipamconfigurations/default";
    patch(&cluster, ipam, json!({ "strictAffinity": false }));
    let told = lab.run("preflight -o junit --kubeconfig admin.yaml").exits(3);
    assert!(told.stdout.contains("<testcase classname=\"network\" name=\"StrictAffinity\">\n    <failure"), "{told}");
    assert!(told.stdout.trim_end().ends_with("</testsuites>") && told.stderr.is_empty(), "{told}");
    let elsewhere = lab.run("status -o junit").exits(64);
    assert!(elsewhere.stdout.contains("<error"), "{elsewhere}");

    let waited = lab.run("preflight --wait --timeout 0s -o json --kubeconfig admin.yaml").exits(3).json();
    assert_eq!(findings(&waited, "fail"), ["StrictAffinity: IPAM strict affinity is off"]);
    let fixed = lab.run("preflight --fix -y -o json --kubeconfig admin.yaml").exits(0).json();
    assert_eq!(findings(&fixed, "fail"), Vec::<String>::new());
    assert_eq!(get(&cluster, ipam)["spec"]["strictAffinity"], true);
    let nothing = lab.run("preflight --wait --fix -o json --kubeconfig admin.yaml").exits(0).json();
    assert_eq!(nothing["summary"]["fail"], 0);
}

#[test]
fn preflight_checks_a_machine_and_starts_a_stopped_runtime() {
    let lab = Lab::node();
    lab.write("node/C/Program Files/containerd/cni/conf/05-flannel.conflist", r#"{"plugins": [{"type": "flannel"}]}"#);
    lab.edit_yaml(|yaml| yaml.replace("    pid: 1484\n", ""));
    let found = lab.run("preflight -o json").exits(3).json();
    let failed = findings(&found, "fail");
    assert!(failed.contains(&"RuntimeRunning: the service containerd is stopped".to_owned()), "{failed:?}");
    assert!(
        failed.contains(&"CniConfig: other configurations in the CNI folder: 05-flannel.conflist (flannel)".to_owned()),
        "{failed:?}"
    );
    let fixed = lab.run("preflight --fix -y -o json").exits(3).json();
    assert_eq!(
        findings(&fixed, "fail"),
        ["CniConfig: other configurations in the CNI folder: 05-flannel.conflist (flannel)"]
    );
}

#[test]
fn http_to_the_tls_port_has_its_own_message() {
    let (lab, cluster) = cluster(Layout::V1);
    lab.write("plain.yaml", cluster.admin_kubeconfig_direct().replace("https://", "http://"));
    let refused = lab.bare("cluster check --kubeconfig plain.yaml -o json").exits(17).json();
    assert_eq!(refused["error"]["id"], "ClusterNeedsTls", "{refused:#}");
    assert_eq!(refused["error"]["hint"], "use https:// in the server URL of the kubeconfig");
}
