//! One node that joins a cluster, with nothing wrong, for stories to change.

use super::*;
use crate::calico::testing;

/// A node that joins a cluster, and nothing is wrong with either.
pub(super) struct Scene {
    pub node: NodeFacts,
    pub cluster: ClusterFacts,
    pub settings: Option<Settings>,
    pub names_backend: bool,
    /// The cluster was asked, and did not answer.
    pub unreached: Option<&'static str>,
    pub remote_access: &'static [RemoteAccess],
    pub needs: Needs,
}

pub(super) type Edit = fn(&mut Scene);

pub(super) fn scene() -> Scene {
    let node = NodeFacts {
        host_name: "win-a1".into(),
        os: Os {
            build: 20348,
            ubr: 2762,
            product: Product::Server,
            installation_type: "Server Core".into(),
            arch: "amd64".into(),
            display_version: Some("21H2".into()),
        },
        elevated: true,
        machine_id: None,
        boot_id: "boot-1".into(),
        runtime: Some(Runtime {
            kind: RuntimeKind::Containerd,
            version: "1.7.27".into(),
            cni_bin_dir: WinPath::known(r"C:\Program Files\containerd\cni\bin"),
            cni_conf_dir: WinPath::known(r"C:\Program Files\containerd\cni\conf"),
            sandbox_image: None,
        }),
        adapters: vec![Adapter {
            name: "Ethernet".into(),
            mac: "00-15-5D-01-02-03".into(),
            addresses: vec!["10.0.0.21/24".parse().unwrap()],
            gateway: None,
            dhcp: false,
            team: false,
        }],
        hns: Some(HnsVersion { major: 13, minor: 3 }),
        features: Some(Features { containers: true, remote_access: true, routing: None }),
        pending_reboot: Vec::new(),
        tls: Some(Tls::default()),
        cloud: None,
        survey: Some(survey()),
        unread: std::collections::BTreeMap::new(),
        hns_stuck: None,
    };
    let mut settings = testing::settings("v3.32.1");
    settings.node_name = "win-a1".parse().unwrap();
    settings.kubernetes.service_cidrs = vec!["10.96.0.0/12".parse().unwrap()];
    settings.kubernetes.dns_servers = vec!["10.96.0.10".parse().unwrap()];
    let cluster = ClusterFacts {
        server: "https://10.0.0.10:6443".into(),
        kubernetes_version: "v1.33.2".into(),
        calico_namespace: "calico-system".into(),
        api_group: ApiGroup::V1,
        calico_version: Some("v3.32.1".into()),
        felix: FelixFacts { vxlan_enabled: Some(true), vxlan_vni: Some(4096), ..FelixFacts::default() },
        pools: vec![pool("default")],
        strict_affinity: Some(true),
        node: Some(ClusterNode {
            name: "win-a1".into(),
            ready: true,
            schedulable: true,
            internal_ips: vec!["10.0.0.21".into()],
            kubelet_version: "v1.33.2".into(),
            os: "windows".into(),
            labels: [("kubernetes.io/os".to_owned(), "windows".to_owned())].into(),
            max_pods: Some(60),
            ..ClusterNode::default()
        }),
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
        kubernetes_service_ips: vec!["10.96.0.1".into()],
        dns_service_ip: Some("10.96.0.10".parse().unwrap()),
        nodes: Some(NodeCounts { all: 4, linux: 3, linux_workers: 2, windows: 1 }),
        operator: Some(OperatorFacts { bgp: Some("Disabled".into()), ..OperatorFacts::default() }),
        host_process: Some(HostProcess::default()),
        bgp: Some(BgpFacts::default()),
        host_endpoints: Some(0),
        policies: Some(PolicyFacts { all: 12, ..PolicyFacts::default() }),
        clock_skew: Some(0),
        missing_rights: Some(Vec::new()),
        linux_datastore: Some("kubernetes".into()),
        ..ClusterFacts::default()
    };
    let needs = Needs { join: Finding::Pass("accepted".into()), sources: Finding::Pass("in place".into()) };
    Scene { node, cluster, settings: Some(settings), names_backend: false, unreached: None, remote_access: &[], needs }
}

pub(super) fn survey() -> Survey {
    let command = ["kube-proxy.exe", "--enable-dsr=true", "--source-vip", "192.168.1.2"];
    let service = |command: &[&str], depends_on: &[&str]| ServiceFacts {
        running: true,
        command: command.iter().map(ToString::to_string).collect(),
        depends_on: depends_on.iter().map(ToString::to_string).collect(),
    };
    let services = [
        ("containerd", service(&["containerd.exe"], &[])),
        ("kubelet", service(&["kubelet.exe"], &["CalicoNode"])),
        ("kube-proxy", service(&command, &[])),
        ("caliconode", service(&["calicoctl-win.exe"], &[])),
    ];
    Survey {
        flannel_network: None,
        unread_services: Default::default(),
        services: services.map(|(name, service)| (name.to_owned(), service)).into(),
        networks: [("nat".to_owned(), "NAT".to_owned())].into(),
        cni_configs: vec![CniConfig { file: "10-calico.conf".into(), plugin: Some("calico".into()), is_folder: false }],
        installed: true,
        own_rules_ignored: Some(Vec::new()),
        calico_folder: true,
        other_root: None,
        disk_free: Some(20 << 30),
        vxlan_port_free: Some(true),
        link_local_routes: Some([].into()),
        tcp_ports: [].into(),
        firewall: crate::facts::Firewall::default(),
        writers: Some(crate::facts::Writers::default()),
    }
}

pub(super) fn survey_of(scene: &mut Scene) -> &mut Survey {
    scene.node.survey.as_mut().unwrap()
}

pub(super) fn pool(name: &str) -> PoolFacts {
    PoolFacts {
        name: name.into(),
        cidr: "192.168.0.0/16".into(),
        vxlan_mode: "Always".into(),
        ipip_mode: "Never".into(),
        node_selector: "all()".into(),
        block_size: 26,
        blocks_taken: Some(3),
        ..PoolFacts::default()
    }
}

pub(super) fn report(edit: impl FnOnce(&mut Scene)) -> PreflightReport {
    let mut scene = scene();
    edit(&mut scene);
    report_of(&scene)
}

pub(super) fn finding(scene: &Scene, id: &str) -> String {
    let check = check(&report_of(scene), id);
    format!("{:?}: {}", check.status, check.detail)
}

fn report_of(scene: &Scene) -> PreflightReport {
    let side = scene.settings.as_ref().map(|settings| side(settings, scene.names_backend));
    let input = Input {
        settings: scene.settings.as_ref(),
        side: side.as_ref(),
        node: Some(&scene.node),
        cluster: scene.unreached.is_none().then_some(&scene.cluster),
        cluster_failure: scene.unreached,
        replaces_flannel: false,
        remote_access: scene.remote_access,
        needs: Some(&scene.needs),
    };
    run(Scope::Everything, &input, &[])
}

/// What settings say of the cluster.
pub(super) fn side(settings: &Settings, names_backend: bool) -> ClusterSide {
    ClusterSide {
        kubernetes: settings.kubernetes.clone(),
        network: Some(settings.network.clone()),
        names_backend,
        version: Some(settings.calico.version.clone()),
        etcd: settings.datastore != Datastore::Kubernetes,
    }
}

pub(super) fn check(report: &PreflightReport, id: &str) -> Check {
    report.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("there is no check {id}")).clone()
}

/// Settings of the release and backend for a check that others skip.
pub(super) fn with_bgp(scene: &mut Scene, version: &str) {
    let settings = scene.settings.as_mut().unwrap();
    settings.network.backend = Backend::WindowsBgp;
    settings.calico.version = version.parse().unwrap();
}

pub(super) fn refuse(scene: &mut Scene, question: &str) {
    scene.cluster.unanswered.insert(question.into(), format!("user joe may not list {question}"));
}

pub(super) fn undecided(scene: &mut Scene) {
    scene.settings = None;
    scene.cluster.pools.clear();
    scene.cluster.felix = FelixFacts::default();
    scene.cluster.operator = None;
}

/// Calico keeps its data in etcd, which was not asked.
pub(super) fn with_etcd(scene: &mut Scene) {
    scene.cluster.calico_unserved = true;
    scene.settings.as_mut().unwrap().datastore = Datastore::Etcdv3 { endpoints: Vec::new(), tls: None };
}

pub(super) fn unserved(scene: &mut Scene) {
    scene.cluster.calico_unserved = true;
}
