//! The stand-in with the embedded cluster, with the rights of calico-node.

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::calico::agent_config::AgentConfig;
use crate::calico::testing;
use crate::cluster::Cluster;
use crate::cluster::TokenFrom;
use crate::item::{Access, RegValue, Service, StartType};
use crate::sandbox::cluster::{EmbeddedCluster, Layout, Seed};
use crate::settings::Limits;

const ROOT: &str = r"C:\CalicoWindows";

/// A node, its cluster, and Calico's program with its kubeconfig.
struct Story {
    cluster: EmbeddedCluster,
    node: SandboxNode,
    command: Command,
    dir: TempDir,
}

impl Story {
    fn new(layout: Layout) -> Self {
        let dir = TempDir::new().unwrap();
        let seed = Seed { layout, ..Seed::new("win-a1") };
        let cluster = EmbeddedCluster::start(&dir.path().join("cluster"), &seed, &[]).unwrap();
        let mut node = SandboxNode::open(&dir.path().join("node")).unwrap();
        let external = Network {
            kind: NetworkKind::Overlay,
            subnet: Some("192.168.255.0/30".parse().unwrap()),
            gateway: None,
            vsid: Some(9999),
            adapter: None,
            management_ip: None,
        };
        node.put(&Id::Network("External".into()), Some(&State::Network(external))).unwrap();
        node.pause(Duration::from_secs(5));
        let root = WinPath::known(ROOT);
        fs::create_dir_all(node.disk(&root.join("logs"))).unwrap();
        fs::write(node.disk(&root.join("calico-node.exe")), "stand-in").unwrap();
        let admin = cluster.admin_kubeconfig();
        let admin =
            Cluster::connect(&admin, dir.path(), None, Some(cluster.addr()), Limits::within(Duration::from_secs(30)))
                .unwrap();
        let issued = admin
            .node_credentials("calico-system", TokenFrom::Request, false, Duration::ZERO, &mut |_| ())
            .unwrap()
            .credentials;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {
                "server": issued.server, "certificate-authority-data": base64(issued.ca_pem.as_bytes()),
            }}],
            "users": [{"name": "u", "user": {"token": issued.token().unwrap().reveal()}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        fs::write(node.disk(&root.join("calico-kube-config")), kubeconfig.to_string()).unwrap();
        let env = [
            ("CALICO_NETWORKING_BACKEND", "vxlan"),
            ("CALICO_DATASTORE_TYPE", "kubernetes"),
            ("NODENAME", "win-a1"),
            ("KUBECONFIG", r"C:\CalicoWindows\calico-kube-config"),
            ("CALICO_NODENAME_FILE", r"C:\CalicoWindows\nodename"),
            ("VXLAN_VNI", "4096"),
            ("IP", "autodetect"),
        ];
        let command = Command {
            program: root.join("calico-node.exe"),
            args: vec!["-startup".into(), "-complete-startup".into()],
            dir: root,
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        Self { cluster, node, command, dir }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.command.env.insert(name.into(), value.into());
    }

    fn stand_in(&self) -> StandIn {
        StandIn { dial: Some(self.cluster.addr()) }
    }

    fn run(&self) -> Output {
        self.stand_in().run(&self.dir.path().join("node"), &self.command).unwrap()
    }

    /// Runs it, expects an error, and returns its last lines.
    fn fails(&self) -> String {
        let output = self.run();
        assert_eq!(output.code, 1, "{output:?}");
        output.log.last().unwrap().clone()
    }

    fn network(&self) -> Network {
        match self.node.get(&Id::Network("Calico".into())).unwrap() {
            Some(State::Network(network)) => network,
            other => panic!("{other:?}"),
        }
    }

    fn api(&self, method: &Method, path: &str, body: Option<Value>) -> Value {
        self.cluster.as_admin(method, path, body.as_ref()).unwrap()
    }
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn a_node_gets_its_block_its_network_and_its_annotations() {
    for (layout, group) in [(Layout::V1, "crd.projectcalico.org/v1"), (Layout::V3, "projectcalico.org/v3")] {
        let story = Story::new(layout);
        let output = story.run();
        assert_eq!(output.code, 0, "{:?}", output.log);
        let network = story.network();
        assert_eq!((network.kind, network.vsid), (NetworkKind::Overlay, Some(4096)));
        let block = network.subnet.unwrap();
        assert_eq!(network.gateway, Some(nth(&block, 1)));

        let affinity = format!("win-a1-{}", block.to_string().replace(['.', '/'], "-"));
        let affinity = story.api(&Method::GET, &format!("/apis/{group}/blockaffinities/{affinity}"), None);
        assert_eq!(
            (affinity["spec"]["cidr"].as_str(), affinity["spec"]["node"].as_str()),
            (Some(&*block.to_string()), Some("win-a1"))
        );
        let claimed = format!("/apis/{group}/ipamblocks/{}", block.to_string().replace(['.', '/'], "-"));
        let claimed = story.api(&Method::GET, &claimed, None);
        assert_eq!(claimed["spec"]["affinity"], "host:win-a1");
        assert_eq!(claimed["spec"]["unallocated"].as_array().unwrap().len(), 60);
        assert_eq!(claimed["spec"]["attributes"][0]["handle_id"], "windows-reserved-ipam-handle");

        let endpoint = &story.node.model().unwrap().networks[&Name::new("Calico")].endpoints[&Name::new("Calico_ep")];
        assert_eq!((endpoint.ip, endpoint.remote), (nth(&block, 2), true));
        assert_eq!(endpoint.provider_address, network.management_ip);

        let node = story.api(&Method::GET, "/api/v1/nodes/win-a1", None);
        let annotations = &node["metadata"]["annotations"];
        assert_eq!(annotations["projectcalico.org/IPv4Address"], "10.20.0.21/24");
        assert_eq!(annotations["projectcalico.org/IPv4VXLANTunnelAddr"], nth(&block, 1).to_string());
        let mac = story.node.network_details("Calico").unwrap().unwrap().dr_mac.unwrap();
        assert_eq!(annotations["projectcalico.org/VXLANTunnelMACAddr"], mac, "the address that other nodes send to");
        assert_ne!(mac, story.node.network_details("External").unwrap().unwrap().dr_mac.unwrap());
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let network: Vec<&Value> = conditions.iter().filter(|c| c["type"] == "NetworkUnavailable").collect();
        assert_eq!(
            (network.len(), &network[0]["status"], &network[0]["reason"]),
            (1, &json!("False"), &json!("CalicoIsUp"))
        );
        assert!(conditions.len() > 1, "the kubelet's own conditions are kept");
        let nodename = story.node.disk(&WinPath::known(r"C:\CalicoWindows\nodename"));
        assert_eq!(fs::read_to_string(nodename).unwrap(), "win-a1");
    }
}

#[test]
fn the_same_block_and_network_are_reused_whatever_the_vsid() {
    let mut story = Story::new(Layout::V1);
    assert_eq!(story.run().code, 0);
    let before = story.network();
    story.set("VXLAN_VNI", "5000");
    let output = story.run();
    assert_eq!(output.code, 0);
    assert!(output.log.contains(&"Found existing HNS network Calico".to_owned()), "{output:?}");
    assert_eq!(story.network(), before, "VSID 4096 is kept: Calico does not compare it");

    // A network that is not on the block is deleted.
    story
        .node
        .edit(|model| {
            model.networks.get_mut(&Name::new("Calico")).unwrap().subnet = Some("10.9.9.0/26".parse().unwrap());
            Ok(())
        })
        .unwrap();
    assert_eq!(story.run().code, 0);
    assert_eq!((story.network().subnet, story.network().vsid), (before.subnet, Some(5000)));
}

#[test]
fn errors_are_those_of_the_real_program() {
    let mut story = Story::new(Layout::V1);
    let mut said = Vec::new();
    let no_node = Story { command: story.command.clone(), ..Story::new(Layout::V1) };
    no_node.api(&Method::DELETE, "/api/v1/nodes/win-a1", None);
    said.push(no_node.fails());

    let config = "/apis/crd.projectcalico.org/v1/ipamconfigs/default";
    story.api(&Method::PATCH, config, Some(json!({"spec": {"strictAffinity": false}})));
    said.push(story.fails());
    story.api(&Method::PATCH, config, Some(json!({"spec": {"strictAffinity": true}})));
    for (name, wrong, right) in [
        ("VXLAN_VNI", "4095", "4096"),
        ("CALICO_NETWORKING_BACKEND", "bgp", "vxlan"),
        ("KUBECONFIG", r"C:\no\config", r"C:\CalicoWindows\calico-kube-config"),
        ("IP", "10.20.0.300", "autodetect"),
    ] {
        story.set(name, wrong);
        said.push(story.fails());
        story.set(name, right);
    }
    story.command.args = vec!["-start".into()];
    said.push(story.fails());
    insta::assert_snapshot!(said.join("\n"), @r#"
    FATAL Failed to read Node win-a1 from datastore: resource does not exist
    FATAL global strict affinity should not be false for Windows node
    FATAL Windows does not support VXLANVNI < 4096
    FATAL Invalid NETWORKING_BACKEND: bgp
    FATAL Failed to read KUBECONFIG C:\no\config: No such file or directory (os error 2)
    FATAL Invalid IPv4 address in IP: 10.20.0.300: invalid IPv4 address syntax
    unknown command or flag: -start
    "#);
    story.command.program = WinPath::known(r"C:\CalicoWindows\calico.exe");
    assert!(story.stand_in().run(&story.dir.path().join("node"), &story.command).is_err(), "no such program");
}

#[test]
fn without_a_vswitch_the_address_arrives_too_late() {
    let mut story = Story::new(Layout::V1);
    story.node.put(&Id::Network("External".into()), None).unwrap();
    insta::assert_snapshot!(story.fails(), @"FATAL timed out waiting for interface matching the management IP of network Calico");
}

#[test]
fn with_etcd_and_no_kubeconfig_only_hns_is_configured() {
    let mut story = Story::new(Layout::V1);
    for (name, value) in [("CALICO_DATASTORE_TYPE", "etcdv3"), ("KUBECONFIG", ""), ("VXLAN_VNI", "0")] {
        story.set(name, value);
    }
    story.command.args = vec!["-startup".into()];
    assert_eq!(story.run().code, 0);
    assert_eq!(story.network().vsid, Some(4096));
    let node = story.api(&Method::GET, "/api/v1/nodes/win-a1", None);
    assert_eq!(node["metadata"]["annotations"]["projectcalico.org/IPv4Address"], Value::Null);
}

#[test]
fn services_start_as_on_windows() {
    let story = Story::new(Layout::V1);
    let config = AgentConfig {
        felix: Command { args: vec!["-felix".into()], ..story.command.clone() },
        ..testing::agent(&story.command)
    };
    let recreate = Box::new(|_: &mut dyn Node, lost: &[LostEndpoint], _: Sink<'_>| Ok(lost.to_vec()));
    let hook = service_hook(story.stand_in(), STARTUP_LIMIT, recreate, Box::new(|_| Ok(())), Box::new(|_| ()));
    let Story { node, dir: _dir, cluster: _cluster, .. } = story;
    let mut node = node.with_start_hook(hook);
    let text = serde_json::to_vec(&config).unwrap();
    node.save(&WinPath::known(AgentConfig::PATH), &text, Access::Administrators).unwrap();
    for (name, word, depends_on) in [("CalicoNode", "node", None), ("CalicoFelix", "felix", Some("CalicoNode"))] {
        let service = Service {
            display_name: name.into(),
            description: name.into(),
            image_path: format!(r"C:\k\kubelet.exe service run {word}"),
            account: "LocalSystem".into(),
            start: StartType::Auto,
            depends_on: depends_on.map(str::to_owned).into_iter().collect(),
            restart_after: vec![],
            recovery: None,
            parameters: Default::default(),
        };
        node.put(&Id::Service(name.into()), Some(&State::Service(Box::new(service)))).unwrap();
        node.put(&Id::Running(name.into()), Some(&State::Running)).unwrap();
    }
    let mark = node.get(&agent::startup::boot_id()).unwrap();
    assert_eq!(mark, Some(State::RegValue(RegValue::String("boot-1".into()))));
    let log = fs::read_to_string(node.disk(&config.log_dir.join("calico-node.log"))).unwrap();
    assert!(log.lines().last().unwrap().ends_with("Calico node started successfully"), "{log}");
    let processes = node.model().unwrap().processes;
    assert_eq!((processes.len(), &processes[0].image), (1, &config.felix.program), "Felix keeps running");
    // So the release cannot be moved while it runs.
    assert!(node.put(&Id::Tree(WinPath::known(ROOT)), None).is_err());
    node.put(&Id::Running("CalicoFelix".into()), None).unwrap();
    node.put(&Id::Tree(WinPath::known(ROOT)), None).unwrap();
}
