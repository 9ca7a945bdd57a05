use crate::settings::StaticRules;
use std::net::Ipv4Addr;

use serde_json::json;

use super::*;
use crate::config::{self, Document, Override};
use crate::facts::{Adapter, ApiGroup, ClusterNode, FelixFacts, HnsVersion, Os, PoolFacts, Product, Runtime};
use crate::settings::{Backend, Datastore, NodeAddress, Platform, SecretRef, Source, connection, mixed_vni};
use crate::values::WinPath;

fn node() -> NodeFacts {
    NodeFacts {
        host_name: "WIN-A1".into(),
        os: Os {
            build: 20348,
            ubr: 2700,
            product: Product::Server,
            installation_type: "Server Core".into(),
            arch: "amd64".into(),
            display_version: None,
        },
        elevated: true,
        machine_id: None,
        boot_id: "1".into(),
        runtime: Some(Runtime {
            kind: RuntimeKind::Containerd,
            version: "1.7.20".into(),
            cni_bin_dir: WinPath::known(r"C:\containerd\cni\bin"),
            cni_conf_dir: WinPath::known(r"C:\containerd\cni\conf"),
            sandbox_image: None,
        }),
        adapters: Vec::new(),
        hns: Some(HnsVersion { major: 15, minor: 1 }),
        cloud: None,
        survey: None,
        unread: std::collections::BTreeMap::new(),
        hns_stuck: None,
        features: None,
        pending_reboot: Vec::new(),
        tls: None,
    }
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        server: "https://10.0.0.1:6443".into(),
        kubernetes_version: "v1.33.2".into(),
        calico_namespace: "kube-system".into(),
        api_group: ApiGroup::V1,
        calico_version: None,
        felix: FelixFacts { vxlan_vni: Some(4100), ..FelixFacts::default() },
        pools: vec![pool("default", "Always", "Never")],
        strict_affinity: Some(true),
        node: None,
        service_cidrs: vec!["10.80.0.0/16".parse().unwrap()],
        dns_service_ip: Some(Ipv4Addr::new(10, 80, 0, 10)),
        ..ClusterFacts::default()
    }
}

fn pool(name: &str, vxlan: &str, ipip: &str) -> PoolFacts {
    PoolFacts {
        name: name.into(),
        cidr: "10.1.0.0/16".into(),
        vxlan_mode: vxlan.into(),
        ipip_mode: ipip.into(),
        disabled: false,
        node_selector: "all()".into(),
        block_size: 26,
        ..PoolFacts::default()
    }
}

/// A config with a version, and the fields given as `path=value`.
fn config(fields: &[&str]) -> Layered {
    let overrides: Vec<Override> = ["calico.version=v3.32.1"]
        .iter()
        .chain(fields)
        .map(|field| {
            let (path, value) = field.split_once('=').unwrap();
            Override { path: path.into(), value: value.into(), from: Origin::Set }
        })
        .collect();
    config::load(&[], &overrides).unwrap()
}

fn resolved(fields: &[&str], cluster: Option<&ClusterFacts>) -> Resolved {
    resolve(&config(fields), &node(), cluster).unwrap()
}

fn refused(fields: &[&str], node: &NodeFacts, cluster: Option<&ClusterFacts>) -> Fault {
    fault_of(&resolve(&config(fields), node, cluster).unwrap_err())
}

/// The fault with its causes, as printed.
fn fault_of(error: &anyhow::Error) -> Fault {
    let fault = Fault::of(error).unwrap().clone();
    let what = error.chain().map(|cause| cause.to_string().replace('\n', "\n  ")).collect::<Vec<_>>().join("\n  ");
    Fault { what, ..fault }
}

fn warnings(fields: &[&str], cluster: Option<&ClusterFacts>) -> Vec<String> {
    resolved(fields, cluster).warnings.into_iter().map(|w| format!("{}: {}", w.id, w.message)).collect()
}

#[test]
fn a_version_and_a_cluster_are_enough_and_every_value_has_an_origin() {
    let document = Document {
        name: "node.yaml".into(),
        text: "spec:\n  services: {logDir: 'D:\\logs'}\n  transport: {timeout: 30s}\n".into(),
    };
    let env = Override {
        path: "calico.version".into(),
        value: "3.32.1".into(),
        from: Origin::Env("CALICO_WIN_RELEASE".into()),
    };
    let resolved = resolve(&config::load(&[document], &[env]).unwrap(), &node(), Some(&cluster())).unwrap();
    insta::assert_snapshot!(not_by_the_help(&resolved), @r#"
    spec.calico.source.sha256 = null  (default)
    spec.calico.source.type = "release"  (default)
    spec.calico.source.urlTemplate = "https://github.com/projectcalico/calico/releases/download/{version}/calico-windows-{version}.zip"  (default)
    spec.calico.version = "v3.32.1"  (CALICO_WIN_RELEASE)
    spec.calicoNetwork.backend = "vxlan"  (detected: IP pool default)
    spec.calicoNetwork.kubeNetwork = "Calico.*"  (default)
    spec.calicoNetwork.vxlan.vxlanAdapter = null  (default)
    spec.calicoNetwork.vxlan.vxlanVNI = 4100  (detected: FelixConfiguration)
    spec.calicoNetwork.windowsLoopbackDSR = true  (detected: HNS 15.1)
    spec.datastore.etcd.tlsSecretRef.namespace = null  (default)
    spec.kubernetes.calicoNamespace = "kube-system"  (detected: the cluster)
    spec.kubernetes.context = null  (default)
    spec.kubernetes.credentials = "token-request"  (default)
    spec.kubernetes.dns.servers = ["10.80.0.10"]  (detected: service kube-dns)
    spec.kubernetes.kubeconfig = "C:\\k\\config"  (default)
    spec.kubernetes.node.containerd.archive = null  (default)
    spec.kubernetes.node.containerd.sha256 = null  (default)
    spec.kubernetes.node.join.caCertHashes = []  (default)
    spec.kubernetes.node.nodeIP = null  (default)
    spec.kubernetes.node.source.kubeProxySHA256 = null  (default)
    spec.kubernetes.node.source.kubeletSHA256 = null  (default)
    spec.kubernetes.node.source.path = null  (default)
    spec.kubernetes.node.source.urlTemplate = "https://dl.k8s.io/release/{version}/bin/windows/amd64"  (default)
    spec.kubernetes.node.version = null  (default)
    spec.kubernetes.nodeName = "win-a1"  (detected: host name)
    spec.kubernetes.serviceCIDRs = ["10.80.0.0/16"]  (detected: the cluster's configuration)
    spec.kubernetesProvider = "none"  (default)
    spec.maintenance.drain.enabled = "auto"  (default)
    spec.maintenance.uncordon = "auto"  (default)
    spec.platform.firewallKubectlExec = true  (default)
    spec.platform.preserveMetadataRoute = false  (default)
    spec.platform.staticRules = "none"  (default)
    spec.services.logDir = "D:\\logs"  (node.yaml:2)
    spec.transport.timeout = "30s"  (node.yaml:3)
    spec.windowsNodes.cniBinDir = "C:\\containerd\\cni\\bin"  (detected: containerd)
    spec.windowsNodes.cniConfigDir = "C:\\containerd\\cni\\conf"  (detected: containerd)
    "#);
    assert_eq!(resolved.warnings, []);
}

/// The fields with another value than the default that their help names.
fn not_by_the_help(resolved: &Resolved) -> String {
    let others = resolved.origins.iter().filter(|field| match documented(&field.path) {
        Some(default) if field.from == Origin::Default => {
            assert_eq!(field.value, default, "{}", field.path);
            false
        }
        _ => true,
    });
    others.map(|field| format!("{} = {}  ({})", field.path, field.value, field.from)).collect::<Vec<_>>().join("\n")
}

/// The default that the help of a field names, as in `Default: 5m` or `Default: none`.
fn documented(path: &str) -> Option<serde_json::Value> {
    let help = config::fields().find(|field| field.path == path).unwrap().help;
    let (_, default) = help.split_once("Default: ")?;
    if default.starts_with("none.") || default.starts_with("none, it") {
        return Some(serde_json::Value::Null);
    }
    let literal = default.strip_prefix('`')?.strip_suffix("`.")?;
    // Not `one`, on AKS `other`.
    (!literal.contains('`')).then(|| crate::yaml::parse(literal).unwrap().remove(0).value.to_json())
}

#[test]
fn the_help_of_most_fields_names_their_default() {
    assert!(config::fields().filter(|field| documented(&field.path).is_some()).count() > 40);
}

#[test]
fn every_field_of_the_document_has_an_origin() {
    let mut expected: Vec<String> = config::fields().map(|field| field.path).collect();
    expected.retain(|path| path != "apiVersion" && path != "kind");
    let mut found: Vec<String> = resolved(&[], Some(&cluster())).origins.into_iter().map(|field| field.path).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_effective_config_is_a_document_that_gives_the_same_settings() {
    let sets: [&[&str]; 3] = [
        &[],
        &[
            "kubernetesProvider=AKS",
            "maintenance.drain.enabled=false",
            "services.extraEnv.A=010",
            "transport.proxy=http://p:1",
        ],
        &[
            "datastore.type=etcdv3",
            "datastore.etcd.endpoints=https://e:2379",
            "datastore.etcd.tlsSecretRef.name=etcd",
            "calicoNetwork.vxlan.vxlanVNI=4100",
            "calico.source.path=C:\\c.zip",
            "windowsNodes.cniLogDir=C:\\l",
        ],
    ];
    for fields in sets {
        let first = resolved(fields, Some(&cluster()));
        let document = Document { name: "effective.yaml".into(), text: to_config_document(&first) };
        let again = resolve(&config::load(&[document], &[]).unwrap(), &node(), Some(&cluster())).unwrap();
        assert_eq!(again.settings, first.settings);
        assert_eq!(again.run.maintenance, first.run.maintenance);
    }
}

#[test]
fn without_a_cluster_everything_else_has_its_default() {
    let mut bare = node();
    bare.runtime = None;
    bare.hns = None;
    let resolved = resolve(&config(&["calicoNetwork.backend=vxlan"]), &bare, None).unwrap();
    insta::assert_snapshot!(not_by_the_help(&resolved), @r#"
    spec.calico.source.sha256 = null  (default)
    spec.calico.source.type = "release"  (default)
    spec.calico.source.urlTemplate = "https://github.com/projectcalico/calico/releases/download/{version}/calico-windows-{version}.zip"  (default)
    spec.calico.version = "v3.32.1"  (--set)
    spec.calicoNetwork.backend = "vxlan"  (--set)
    spec.calicoNetwork.kubeNetwork = "Calico.*"  (default)
    spec.calicoNetwork.vxlan.vxlanAdapter = null  (default)
    spec.calicoNetwork.vxlan.vxlanVNI = 4096  (default)
    spec.calicoNetwork.windowsLoopbackDSR = true  (detected: Windows build 20348.2700)
    spec.datastore.etcd.tlsSecretRef.namespace = null  (default)
    spec.kubernetes.calicoNamespace = "calico-system"  (default)
    spec.kubernetes.context = null  (default)
    spec.kubernetes.credentials = "token-request"  (default)
    spec.kubernetes.dns.servers = ["10.96.0.10"]  (default)
    spec.kubernetes.kubeconfig = "C:\\k\\config"  (default)
    spec.kubernetes.node.containerd.archive = null  (default)
    spec.kubernetes.node.containerd.sha256 = null  (default)
    spec.kubernetes.node.join.caCertHashes = []  (default)
    spec.kubernetes.node.nodeIP = null  (default)
    spec.kubernetes.node.source.kubeProxySHA256 = null  (default)
    spec.kubernetes.node.source.kubeletSHA256 = null  (default)
    spec.kubernetes.node.source.path = null  (default)
    spec.kubernetes.node.source.urlTemplate = "https://dl.k8s.io/release/{version}/bin/windows/amd64"  (default)
    spec.kubernetes.node.version = null  (default)
    spec.kubernetes.nodeName = "win-a1"  (detected: host name)
    spec.kubernetes.serviceCIDRs = ["10.96.0.0/12"]  (default)
    spec.kubernetesProvider = "none"  (default)
    spec.maintenance.drain.enabled = "auto"  (default)
    spec.maintenance.uncordon = "auto"  (default)
    spec.platform.firewallKubectlExec = true  (default)
    spec.platform.preserveMetadataRoute = false  (default)
    spec.platform.staticRules = "none"  (default)
    spec.windowsNodes.cniBinDir = "C:\\k\\cni"  (default)
    spec.windowsNodes.cniConfigDir = "C:\\k\\cni\\config"  (default)
    "#);
    let settings = &resolved.settings;
    assert_eq!((settings.runtime, settings.dsr, settings.api_group), (RuntimeKind::Containerd, true, None));
    let url = "https://github.com/projectcalico/calico/releases/download/v3.32.1/calico-windows-v3.32.1.zip";
    let of_settings = serde_json::to_value(settings).unwrap();
    assert_eq!(of_settings["calico"]["source"], json!({ "url": url }));
    assert_eq!(
        (settings.services.valid_ip_timeout.as_secs(), settings.platform.static_rules.clone()),
        (90, StaticRules::None)
    );
    for (pointer, path) in [
        ("/calico/version", "calico.version"),
        ("/calico/sha256", "calico.source.sha256"),
        ("/calico/root", "calico.rootDir"),
        ("/provider", "kubernetesProvider"),
        ("/nodeName", "kubernetes.nodeName"),
        ("/kubernetes/serviceCidrs", "kubernetes.serviceCIDRs"),
        ("/kubernetes/dnsServers", "kubernetes.dns.servers"),
        ("/kubernetes/dnsSearch", "kubernetes.dns.search"),
        ("/kubernetes/calicoNamespace", "kubernetes.calicoNamespace"),
        ("/kubernetes/credentials", "kubernetes.credentials"),
        ("/network/backend", "calicoNetwork.backend"),
        ("/network/kubeNetwork", "calicoNetwork.kubeNetwork"),
        ("/network/nodeAddress", "calicoNetwork.nodeAddress"),
        ("/network/ipam", "calicoNetwork.ipam.type"),
        ("/network/vni", "calicoNetwork.vxlan.vxlanVNI"),
        ("/network/macPrefix", "calicoNetwork.vxlan.vxlanMACPrefix"),
        ("/network/adapter", "calicoNetwork.vxlan.vxlanAdapter"),
        ("/datastore", "datastore.type"),
        ("/cni/binDir", "windowsNodes.cniBinDir"),
        ("/cni/confDir", "windowsNodes.cniConfigDir"),
        ("/cni/confFile", "windowsNodes.cniConfigFile"),
        ("/cni/logLevel", "windowsNodes.cniLogLevel"),
        ("/cni/singleNetwork", "calicoNetwork.windowsUseSingleNetwork"),
        ("/cni/overrides", "calicoNetwork.cniConfigOverrides"),
        ("/services/start", "services.start"),
        ("/services/logDir", "services.logDir"),
        ("/services/felixLogSeverity", "services.felixLogSeverity"),
        ("/services/restartKubeProxy", "services.restartKubeProxy"),
        ("/services/extraEnv", "services.extraEnv"),
        ("/platform/metadataRoute", "platform.preserveMetadataRoute"),
        ("/platform/firewallKubectlExec", "platform.firewallKubectlExec"),
        ("/dsr", "calicoNetwork.windowsLoopbackDSR"),
    ] {
        let told = resolved.origins.iter().find(|field| field.path == format!("spec.{path}")).unwrap();
        assert_eq!(of_settings.pointer(pointer), Some(&told.value), "{path}");
    }
}

#[test]
fn the_backend_comes_from_the_config_then_the_provider_then_the_cluster() {
    let felix = |vxlan, ipip| FelixFacts { vxlan_enabled: vxlan, ipip_enabled: ipip, ..FelixFacts::default() };
    let with = |felix, pools| ClusterFacts { felix, pools, ..cluster() };
    let backend = |fields: &[&str], cluster: &ClusterFacts| {
        let resolved = resolved(fields, Some(cluster));
        let origin = resolved.origins.iter().find(|field| field.path == "spec.calicoNetwork.backend").unwrap();
        format!("{} ({})", resolved.settings.network.backend.name(), origin.from)
    };
    let none = || felix(None, None);
    assert_eq!(backend(&["calicoNetwork.backend=windows-bgp"], &cluster()), "windows-bgp (--set)");
    assert_eq!(backend(&["kubernetesProvider=AKS"], &cluster()), "none (detected: provider AKS)");
    assert_eq!(backend(&["kubernetesProvider=EKS"], &cluster()), "none (detected: provider EKS)");
    assert_eq!(backend(&["kubernetesProvider=EKS", "calicoNetwork.backend=vxlan"], &cluster()), "vxlan (--set)");
    assert_eq!(backend(&[], &with(felix(Some(true), None), vec![])), "vxlan (detected: FelixConfiguration)");
    let vxlan = vec![pool("a", "Never", "Never"), pool("b", "CrossSubnet", "Never")];
    assert_eq!(backend(&[], &with(none(), vxlan.clone())), "vxlan (detected: IP pool b)");
    assert_eq!(backend(&[], &with(felix(Some(false), None), vxlan)), "windows-bgp (detected: FelixConfiguration)");
    let plain = vec![pool("a", "Never", "Never")];
    assert_eq!(backend(&[], &with(none(), plain)), "windows-bgp (detected: no IP pool has VXLAN)");
    let disabled = PoolFacts { disabled: true, ..pool("old", "Always", "Always") };
    let ipv6 = PoolFacts { cidr: "fd00::/64".into(), ..pool("six", "Always", "Never") };
    let linux = PoolFacts { node_selector: "kubernetes.io/os == 'linux'".into(), ..pool("linux", "Never", "Always") };
    assert_eq!(
        backend(&[], &with(none(), vec![disabled, ipv6, linux, pool("a", "Never", "Never")])),
        "windows-bgp (detected: no IP pool has VXLAN)"
    );
}

#[test]
fn without_config_and_cluster_no_backend_is_guessed() {
    insta::assert_snapshot!(refused(&[], &node(), None).what, @r#"
    the config is not valid
      spec.calicoNetwork.backend: the backend is not given and there is no cluster to ask; set vxlan, windows-bgp or none
    "#);
}

#[test]
fn ip_in_ip_is_refused() {
    let by_felix =
        ClusterFacts { felix: FelixFacts { ipip_enabled: Some(true), ..FelixFacts::default() }, ..cluster() };
    let by_pool =
        ClusterFacts { pools: vec![pool("a", "Always", "Never"), pool("b", "Never", "CrossSubnet")], ..cluster() };
    for (cluster, by) in [(by_felix, "ipipEnabled: true"), (by_pool, "`b` has ipipMode: CrossSubnet")] {
        let fault = refused(&[], &node(), Some(&cluster));
        assert_eq!((fault.exit, fault.id), (Exit::PreflightFailed, "Ipip"));
        assert!(fault.what.contains(by), "{}", fault.what);
        assert_eq!(resolved(&["calicoNetwork.backend=vxlan"], Some(&cluster)).settings.network.backend, Backend::Vxlan);
    }
}

/// With the option off, networks of pods would appear that nothing here makes, proves or removes.
#[test]
fn a_network_for_each_block_is_refused_where_calico_makes_networks() {
    let option = "calicoNetwork.windowsUseSingleNetwork=false";
    for backend in ["vxlan", "windows-bgp"] {
        let fault = refused(&[&format!("calicoNetwork.backend={backend}"), option], &node(), Some(&cluster()));
        assert!(
            fault.what.contains("windowsUseSingleNetwork: with false, pods use one network Calico-a-b-c-d"),
            "{}",
            fault.what
        );
    }
    resolved(&["calicoNetwork.windowsUseSingleNetwork=true"], Some(&cluster()));
}

#[test]
fn the_release_is_not_installed_over_the_state_of_this_program() {
    for root in [r"C:\", r"C:\ProgramData", r"c:\programdata\calicoctl-WIN", r"C:\ProgramData\calicoctl-win\releases"] {
        let fault = refused(&[&format!("calico.rootDir={root}")], &node(), None);
        assert!(fault.what.contains("overlaps with"), "{root}: {}", fault.what);
    }
}

/// Windows moves no folder to another volume, and would say so only after the services were stopped.
#[test]
fn a_root_on_another_volume_is_refused() {
    let fault = refused(&["calico.rootDir=D:/Calico"], &node(), Some(&cluster()));
    assert!(fault.what.contains(r"rootDir: D:\Calico is not on C:, where the releases are kept"), "{}", fault.what);
    resolved(&["calico.rootDir=c:/other"], Some(&cluster()));
}

#[test]
fn everything_that_contradicts_the_facts_is_reported_at_once() {
    let layered = config::load(&[], &[]).unwrap();
    let node = NodeFacts { host_name: "WIN_A1".into(), ..node() };
    let cluster = ClusterFacts {
        felix: FelixFacts { vxlan_enabled: Some(true), vxlan_vni: Some(9999), ..FelixFacts::default() },
        ..cluster()
    };
    let fault = fault_of(&resolve(&layered, &node, Some(&cluster)).unwrap_err());
    assert_eq!((fault.exit, fault.id), (Exit::InvalidConfig, "ConfigInvalid"));
    insta::assert_snapshot!(fault.what, @r#"
    the config is not valid
      spec.calico.version: which Calico release to install is not given; set spec.calico.version or use --release
      spec.kubernetes.nodeName: the host name cannot be the node's name: `win_a1` is not a node name: lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit, 253 characters at most
      spec.calicoNetwork.vxlan.vxlanVNI: FelixConfiguration `default` has a vxlanVNI that Windows does not support: 9999 is the VSID of the bootstrap network External; choose another VNI from 4096 to 65535
    "#);
}

#[test]
fn a_detected_vxlan_is_refused_with_host_local() {
    let fault = refused(&["calicoNetwork.ipam.type=host-local"], &node(), Some(&cluster()));
    insta::assert_snapshot!(fault.what, @r#"
    the config is not valid
      --set: spec.calicoNetwork.ipam.type: the backend vxlan needs calico-ipam: with host-local other nodes have no routes to this node's pods
    "#);
}

#[test]
fn the_vni_comes_from_the_config_then_felix_then_is_4096() {
    let vni = |fields: &[&str], felix| {
        let mut cluster = cluster();
        cluster.felix.vxlan_vni = felix;
        let resolved = resolved(fields, Some(&cluster));
        (resolved.settings.network.vni.get(), mixed_vni(&resolved.settings.network, &cluster.felix).is_some())
    };
    let own: &[&str] = &["calicoNetwork.vxlan.vxlanVNI=5000"];
    assert_eq!(vni(&[], Some(4100)), (4100, false));
    assert_eq!(vni(&[], None), (4096, false));
    assert_eq!(vni(own, Some(5000)), (5000, false));
    assert_eq!(vni(own, Some(4100)), (5000, true));
    assert_eq!(vni(own, None), (5000, true));
    // Without VXLAN the VNI is not used.
    assert_eq!(vni(&["calicoNetwork.backend=windows-bgp"], Some(7)), (4096, false));
}

#[test]
fn warnings_name_what_to_check() {
    let said = [
        warnings(&["kubernetes.dns.servers=10.80.0.10,192.168.1.1"], Some(&cluster())),
        warnings(&["services.logDir=C:\\calicowindows\\logs"], Some(&cluster())),
        warnings(&["services.logDir=D:\\logs"], Some(&cluster())),
        warnings(&["kubernetesProvider=EC2"], Some(&cluster())),
        warnings(&["kubernetesProvider=EC2", "kubernetes.nodeName=ip-10-0-0-1.ec2.internal"], Some(&cluster())),
    ];
    insta::assert_snapshot!(said.concat().join("\n"), @r#"
    DnsOutsideServiceCidr: the DNS server 192.168.1.1 is outside the service CIDR 10.80.0.0/16
    LogsInRoot: spec.services.logDir C:\calicowindows\logs is in C:\CalicoWindows, which every upgrade replaces as a whole: a program that has a log open there blocks it; leave logDir out, or set a folder outside of C:\CalicoWindows
    NodeNameFromHostName: the node name is assumed to be `win-a1`, the host name; if its Node has another name, set spec.kubernetes.nodeName
    "#);
    let own = resolved(&["calicoNetwork.vxlan.vxlanVNI=5000"], Some(&cluster())).settings.network;
    insta::assert_snapshot!(mixed_vni(&own, &cluster().felix).unwrap(), @"the VNI 5000 differs from the cluster's 4100 (FelixConfiguration `default`): pods on nodes with different VNIs cannot reach each other");

    let joined = ClusterNode {
        name: "win-a1".into(),
        ready: true,
        schedulable: true,
        internal_ips: vec![],
        kubelet_version: "v1.33.2".into(),
        ..ClusterNode::default()
    };
    let cluster = ClusterFacts { node: Some(joined), ..cluster() };
    assert_eq!(warnings(&["kubernetesProvider=EC2"], Some(&cluster)), Vec::<String>::new());
}

#[test]
fn a_release_comes_from_the_project_a_mirror_a_zip_or_a_folder() {
    let source = |fields: &[&str]| resolved(fields, Some(&cluster())).settings.calico.source;
    assert_eq!(
        source(&[]),
        Source::Url(
            "https://github.com/projectcalico/calico/releases/download/v3.32.1/calico-windows-v3.32.1.zip".into()
        )
    );
    let mirror = &["calico.source.urlTemplate=https://m.example/{version}/c-{version}.zip"];
    assert_eq!(source(mirror), Source::Url("https://m.example/v3.32.1/c-v3.32.1.zip".into()));
    assert_eq!(source(&["calico.source.path=C:\\get\\C.ZIP"]), Source::File("C:\\get\\C.ZIP".into()));
    assert_eq!(source(&["calico.source.path=/srv/CalicoWindows"]), Source::Directory("/srv/CalicoWindows".into()));
    let bundle = &["calico.source.type=bundle", "calico.source.path=download"];
    assert_eq!(source(bundle), Source::File("download".into()));
}

#[test]
fn platforms_have_their_own_defaults() {
    let platform = |fields: &[&str]| {
        let settings = resolved(fields, Some(&cluster())).settings;
        let Platform { static_rules, metadata_route, firewall_kubectl_exec } = settings.platform;
        (settings.network.kube_network, static_rules == StaticRules::Aks, metadata_route, firewall_kubectl_exec)
    };
    assert_eq!(platform(&[]), ("Calico.*".into(), false, false, true));
    assert_eq!(platform(&["kubernetesProvider=AKS"]), ("azure.*".into(), true, false, false));
    assert_eq!(platform(&["kubernetesProvider=EKS"]), ("vpc.*".into(), false, false, false));
    assert_eq!(platform(&["kubernetesProvider=EC2"]), ("Calico.*".into(), false, true, true));
    let policy_only = &["kubernetesProvider=EC2", "calicoNetwork.backend=none"];
    assert_eq!(platform(policy_only), ("Calico.*".into(), false, false, false));
    assert_eq!(platform(&["kubernetesProvider=GCE"]), ("Calico.*".into(), false, true, true));
    let own = &["kubernetesProvider=AKS", "platform.staticRules=none", "platform.firewallKubectlExec=true"];
    assert_eq!(platform(own), ("azure.*".into(), false, false, true));
}

/// The cluster's VNI is in etcd: a value that the Kubernetes API still has is out of date.
#[test]
fn if_etcd_was_not_read_the_vni_is_required_and_has_no_default() {
    let etcd = ["datastore.type=etcdv3", "datastore.etcd.endpoints=http://a:2379", "calicoNetwork.backend=vxlan"];
    let unread = ClusterFacts { calico_unserved: true, ..cluster() };
    let error = resolve(&config(&etcd), &node(), Some(&unread)).unwrap_err();
    assert_eq!(Fault::id_of(&error), "ConfigInvalid");
    let said = format!("{error:#}");
    assert!(
        said.contains("spec.calicoNetwork.vxlan.vxlanVNI: required, since Calico's data in etcd was not read"),
        "{said}"
    );
    let given: Vec<&str> = etcd.into_iter().chain(["calicoNetwork.vxlan.vxlanVNI=5000"]).collect();
    let resolved = resolved(&given, Some(&unread));
    assert_eq!((resolved.settings.network.vni.get(), resolved.warnings.len()), (5000, 0), "{:?}", resolved.warnings);
}

#[test]
fn variables_that_create_ip_pools_are_refused() {
    let wrong = |variable: &str| {
        let fields = [format!("services.extraEnv.{variable}")];
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        resolve(&config(&fields), &node(), Some(&cluster())).err().map(|error| format!("{error:#}"))
    };
    for variable in ["NO_DEFAULT_POOLS=false", "calico_ipv4pool_cidr=10.0.0.0/16", "CALICO_IPV6POOL_CIDR=none"] {
        let said = wrong(variable).unwrap_or_default();
        assert!(said.contains("the installation of a node creates none; remove it"), "{variable}: {said}");
    }
    assert_eq!(wrong("NO_DEFAULT_POOLS=true"), None);
}

#[test]
fn etcd_certificates_come_from_files_or_a_secret() {
    let etcd = |more: &[&str]| {
        let fields = [
            "datastore.type=etcdv3",
            "datastore.etcd.endpoints=https://a:2379,https://b:2379",
            "calicoNetwork.vxlan.vxlanVNI=4100",
        ];
        let fields: Vec<&str> = fields.iter().chain(more).copied().collect();
        let resolved = resolved(&fields, Some(&cluster()));
        let namespace = "spec.datastore.etcd.tlsSecretRef.namespace";
        let namespace = resolved.origins.into_iter().find(|field| field.path == namespace).unwrap().value;
        (resolved.settings.datastore, resolved.run.etcd_tls_secret, namespace)
    };
    let plain = etcd(&["datastore.etcd.endpoints=http://a:2379,http://b:2379"]).0;
    let Datastore::Etcdv3 { endpoints, tls: None } = plain else { panic!("etcd without TLS") };
    assert_eq!(endpoints, ["http://a:2379", "http://b:2379"]);
    let files = [
        "datastore.etcd.keyFile=C:\\k.pem",
        "datastore.etcd.certFile=C:\\c.pem",
        "datastore.etcd.caCertFile=C:\\ca.pem",
    ];
    let Datastore::Etcdv3 { tls: Some(tls), .. } = etcd(&files).0 else { panic!("etcd with TLS") };
    assert_eq!(tls.ca_cert_file, WinPath::known("C:\\ca.pem"));
    let (datastore, secret, namespace) = etcd(&["datastore.etcd.tlsSecretRef.name=etcd-certs"]);
    let Datastore::Etcdv3 { tls: Some(tls), .. } = datastore else { panic!("etcd with TLS") };
    assert_eq!(tls.key_file, WinPath::known(r"C:\CalicoWindows\etcd-tls\server.key"));
    assert_eq!(secret, Some(SecretRef { namespace: None, name: "etcd-certs".into() }));
    assert_eq!(namespace, "kube-system", "calico-node's");
}

#[test]
fn direct_server_return_depends_on_hns_then_on_the_build() {
    let dsr = |fields: &[&str], hns: Option<(u32, u32)>, build, ubr| {
        let mut node = node();
        node.hns = hns.map(|(major, minor)| HnsVersion { major, minor });
        (node.os.build, node.os.ubr) = (build, ubr);
        resolve(&config(fields), &node, Some(&cluster())).unwrap().settings.dsr
    };
    assert!(dsr(&[], Some((9, 3)), 17763, 1) && !dsr(&[], Some((9, 2)), 20348, 1));
    assert!(dsr(&[], None, 17763, 1432) && !dsr(&[], None, 17763, 1431));
    assert!(!dsr(&["calicoNetwork.windowsLoopbackDSR=false"], Some((15, 1)), 20348, 1));
}

#[test]
fn connection_settings_need_no_facts() {
    let layered = config(&["kubernetesProvider=EKS", "transport.noProxy=10.0.0.0/8,.local", "transport.retries=0"]);
    let eks = connection(&layered, None);
    assert_eq!(
        (eks.kubeconfig.as_str(), &eks.kubeconfig_from),
        (r"C:\ProgramData\kubernetes\kubeconfig", &Origin::Default)
    );
    assert_eq!((eks.no_proxy.len(), eks.retries, eks.timeout.as_secs(), eks.proxy), (2, 0, 60, None));
    let own = connection(&config(&["kubernetes.kubeconfig=admin.conf", "kubernetes.context=prod"]), None);
    assert_eq!(
        (own.kubeconfig.as_str(), own.kubeconfig_from, own.context.as_deref()),
        ("admin.conf", Origin::Set, Some("prod"))
    );
}

#[test]
fn the_cni_log_folder_becomes_a_key_of_the_cni_document() {
    let cni = |fields: &[&str]| resolved(fields, Some(&cluster())).settings.cni;
    assert_eq!(cni(&[]).overrides, json!({}));
    let logs = "windowsNodes.cniLogDir=D:\\logs";
    assert_eq!(cni(&[logs]).overrides, json!({ "log_file_path": "D:\\logs\\cni.log" }));
    let own = "calicoNetwork.cniConfigOverrides={log_file_path: 'E:\\x.log', mtu: 1400}";
    assert_eq!(cni(&[logs, own]).overrides, json!({ "log_file_path": "E:\\x.log", "mtu": 1400 }));
}

#[test]
fn the_template_changes_no_default_except_the_version() {
    let template = Document { name: "config.yaml".into(), text: config::template() };
    for provider in ["none", "AKS", "EKS", "EC2", "GCE"] {
        let set = Override { path: "kubernetesProvider".into(), value: provider.into(), from: Origin::Set };
        let by_template = config::load(std::slice::from_ref(&template), &[set]).unwrap();
        let by_template = resolve(&by_template, &node(), Some(&cluster())).unwrap();
        let by_default = resolved(&[&format!("kubernetesProvider={provider}")], Some(&cluster()));
        assert_eq!(by_template.settings, by_default.settings);
        assert_eq!(by_template.run, by_default.run);
    }
}

#[test]
fn the_adapter_with_the_nodes_own_address_gets_the_vswitch() {
    let adapter = |name: &str, address: &str| Adapter {
        name: name.into(),
        mac: "00-15-5D-14-00-15".into(),
        addresses: vec![address.parse().unwrap()],
        gateway: None,
        dhcp: false,
        team: false,
    };
    let chosen = |second: &str, fields: &[&str]| {
        let adapters = vec![adapter("Ethernet", "10.20.0.21/24"), adapter(second, "10.99.0.5/24")];
        let node = NodeFacts { adapters, ..node() };
        resolve(&config(fields), &node, Some(&cluster())).unwrap().settings.network.adapter
    };
    let fixed = "calicoNetwork.nodeAddress=10.99.0.5/24";
    assert_eq!(chosen("Ethernet 2", &[]), None, "HNS chooses");
    assert_eq!(chosen("Ethernet 2", &[fixed]).as_deref(), Some("Ethernet 2"));
    // The choice is the same after the vSwitch was created.
    assert_eq!(chosen("vEthernet (Ethernet 2)", &[fixed]).as_deref(), Some("Ethernet 2"));
    let named = "calicoNetwork.vxlan.vxlanAdapter=Ethernet";
    assert_eq!(chosen("Ethernet 2", &[fixed, named]).as_deref(), Some("Ethernet"));
    assert_eq!(chosen("Ethernet 2", &[fixed, "calicoNetwork.backend=windows-bgp"]), None);
}

/// Calico uses its own methods to find the node's address; they select the adapter too.
#[test]
fn the_adapter_is_the_one_that_calicos_method_selects() {
    let adapter = |name: &str, address: &str, team: bool| Adapter {
        name: name.into(),
        mac: "00-15-5D-14-00-15".into(),
        addresses: vec![address.parse().unwrap()],
        gateway: None,
        dhcp: false,
        team,
    };
    let adapters = vec![
        adapter("vEthernet (Ethernet)", "10.20.0.21/24", false),
        adapter("vEthernet (nat)", "172.20.0.1/20", false),
        adapter("Storage 1", "10.99.0.5/24", false),
        adapter("Team", "10.98.0.5/24", true),
    ];
    let mut cluster = cluster();
    cluster.node =
        Some(ClusterNode { name: "win-a1".into(), internal_ips: vec!["10.98.0.5".into()], ..ClusterNode::default() });
    let chosen = |method: &str| {
        let node = NodeFacts { adapters: adapters.clone(), ..node() };
        let fields = format!("calicoNetwork.nodeAddress={method}");
        let settings = resolve(&config(&[fields.as_str()]), &node, Some(&cluster)).unwrap().settings;
        (settings.network.adapter.unwrap_or_default(), settings.network.node_address)
    };
    for (method, adapter) in [
        ("first-found", ""),
        ("can-reach=10.99.0.1", ""),
        ("interface=Storage.*", "Storage 1"),
        ("interface=nope,^Ethernet$", "Ethernet"),
        ("interface=nope", ""),
        ("skip-interface=Ethernet", "Storage 1"),
        ("skip-interface=Ethernet,Storage", "Team"),
        ("cidr=192.168.0.0/16,10.99.0.0/16", "Storage 1"),
        ("cidr=172.20.0.0/20", ""),
        ("kubernetes-internal-ip", "Team"),
    ] {
        assert_eq!(chosen(method), (adapter.to_owned(), NodeAddress::By(method.to_owned())), "{method}");
    }
    for wrong in ["interface=(", "cidr=10.0.0.7", "cidr=", "can-reach=", "nearest="] {
        let set = Override { path: "calicoNetwork.nodeAddress".into(), value: wrong.into(), from: Origin::Set };
        assert!(config::load(&[], &[set]).is_err(), "{wrong}");
    }
}
