use schemars::generate::SchemaSettings;

use super::schema::Schema;
use super::*;
use crate::fault::{Exit, Fault};
use crate::settings::Backend;
use crate::yaml;

fn document(text: &str) -> Document {
    Document { name: "node.yaml".into(), text: text.into() }
}

fn set(path: &str, value: &str) -> Override {
    Override { path: path.into(), value: value.into(), from: Origin::Set }
}

/// The error text for invalid documents and overrides.
fn refusal(documents: &[Document], overrides: &[Override]) -> String {
    let error = load(documents, overrides).unwrap_err();
    let fault = Fault::of(&error).unwrap();
    assert_eq!((fault.exit, fault.id), (Exit::InvalidConfig, "ConfigInvalid"));
    format!("{}\n{}", fault.what, error.root_cause()).replace('\n', "\n  ")
}

#[test]
fn an_empty_config_is_valid() {
    for text in ["", "---\n", "# only a comment\n", "spec:\n", "spec: {calico: }\n"] {
        assert_eq!(load(&[document(text)], &[]).unwrap().config, Config::default(), "{text:?}");
    }
    assert_eq!(load(&[], &[]).unwrap().config, Config::default());
}

#[test]
fn a_layer_that_sets_the_release_source_unsets_contradicting_fields() {
    let mirror = || document("spec: {calico: {source: {type: mirror, urlTemplate: 'https://m/c.zip'}}}\n");
    let bundle = || document("spec: {calico: {source: {path: 'C:\\c.zip'}}}\n");
    let source = |documents: &[Document], overrides: &[Override]| {
        let config = load(documents, overrides).unwrap().config;
        let source = config.spec.calico.source;
        format!("{:?} {:?} {:?}", source.kind, source.path, source.url_template.map(|url| url.as_str().to_owned()))
    };
    let flag = |path: &str, value: &str| Override { from: Origin::Flag("--release".into()), ..set(path, value) };
    let file = [flag("calico.source.type", "bundle"), flag("calico.source.path", "d.zip")];
    insta::assert_snapshot!(
        [
            source(&[mirror(), bundle()], &[]),
            source(&[bundle(), mirror()], &[]),
            source(&[mirror()], &file),
            source(&[bundle()], &[flag("calico.source.urlTemplate", "https://n/c.zip")]),
            source(&[mirror()], &[set("calico.source.type", "release")]),
        ]
        .join("\n"),
        @r#"
    None Some("C:\\c.zip") None
    Some(Mirror) None Some("https://m/c.zip")
    Some(Bundle) Some("d.zip") None
    None None Some("https://n/c.zip")
    Some(Release) None None
    "#
    );
}

#[test]
fn later_layers_win_field_by_field_and_are_recorded() {
    let site = Document {
        name: "site.yaml".into(),
        text: "spec:\n  calico: {version: v3.31.0, rootDir: 'D:\\Calico'}\n  services: {extraEnv: {A: '1', B: '2'}}\n"
            .into(),
    };
    let node =
        document("spec:\n  calico:\n    version: v3.32.1\n    rootDir:\n  services:\n    extraEnv: {B: three}\n");
    let env = Override {
        path: "kubernetes.nodeName".into(),
        value: "win-b".into(),
        from: Origin::Env("CALICO_WIN_NODE_NAME".into()),
    };
    let flag = Override { value: "win-a".into(), from: Origin::Flag("--node-name".into()), ..env.clone() };
    let layered = load(&[site, node], &[env, flag, set("spec.calicoNetwork.backend", "windows-bgp")]).unwrap();

    let spec = &layered.config.spec;
    assert_eq!(spec.calico.version.as_ref().unwrap().to_string(), "v3.32.1");
    assert_eq!(spec.calico_network.backend.0, Some(Backend::WindowsBgp));
    let origins: Vec<String> = [
        "spec.calico.version",
        "spec.calico.rootDir",
        "spec.services.extraEnv.A",
        "spec.services.extraEnv.B",
        "spec.kubernetes.nodeName",
        "spec.calicoNetwork.backend",
        "spec.calicoNetwork.kubeNetwork",
    ]
    .iter()
    .map(|path| format!("{path} = {}", layered.origin(path).unwrap_or(&Origin::Default)))
    .collect();
    insta::assert_snapshot!(origins.join("\n"), @r#"
    spec.calico.version = node.yaml:3
    spec.calico.rootDir = site.yaml:2
    spec.services.extraEnv.A = site.yaml:3
    spec.services.extraEnv.B = node.yaml:6
    spec.kubernetes.nodeName = --node-name
    spec.calicoNetwork.backend = --set
    spec.calicoNetwork.kubeNetwork = default
    "#);
}

#[test]
fn text_stays_text_whatever_its_yaml_type() {
    let text = "spec: {calicoNetwork: {vxlan: {vxlanMACPrefix: 0E-20}}, calico: {version: 3.30.0}, \
                services: {startupValidIPTimeout: 0, extraEnv: {A: 010, B: true, C: 1.10}}}";
    let spec = load(&[document(text)], &[]).unwrap().config.spec;
    assert_eq!(spec.calico_network.vxlan.vxlan_mac_prefix.unwrap().as_str(), "0E-20");
    assert_eq!(spec.calico.version.unwrap().to_string(), "v3.30.0");
    assert_eq!(spec.services.startup_valid_ip_timeout.unwrap().length().as_secs(), 0);
    let env = spec.services.extra_env.unwrap();
    assert_eq!(env.values().collect::<Vec<_>>(), ["010", "true", "1.10"]);
}

#[test]
fn set_accepts_numbers_lists_maps_and_any_json() {
    let spec = load(
        &[],
        &[
            set("calicoNetwork.vxlan.vxlanVNI", "5000"),
            set("kubernetes.serviceCIDRs", "10.96.0.0/12, 10.200.0.0/16"),
            set("kubernetes.dns.servers", "[10.96.0.10]"),
            set("transport.noProxy", ""),
            set("services.extraEnv.FELIX_HEALTHENABLED", "true"),
            set("calicoNetwork.cniConfigOverrides", "{mtu: 1400, ipam: {ipv4_pools: [10.1.0.0/16]}}"),
            set("maintenance.drain", "{force: true, timeout: 1m}"),
        ],
    )
    .unwrap()
    .config
    .spec;
    assert_eq!(spec.calico_network.vxlan.vxlan_vni.unwrap().get(), 5000);
    assert_eq!(spec.kubernetes.service_cidrs.unwrap().len(), 2);
    assert_eq!(spec.kubernetes.dns.servers.unwrap().len(), 1);
    assert_eq!(spec.transport.no_proxy.unwrap(), Vec::<String>::new());
    assert_eq!(spec.services.extra_env.unwrap()["FELIX_HEALTHENABLED"], "true");
    assert_eq!(spec.calico_network.cni_config_overrides.unwrap()["mtu"], 1400);
    assert_eq!(spec.maintenance.drain.force, Some(true));
}

#[test]
fn one_run_reports_every_error() {
    let text = r#"apiVersion: calicoctl-win/v1
kind: NodeInstallation
spec:
  calico:
    version: latest
    source: {sha256: abc, type: bundel}
    rootDir: CalicoWindows
  kubernetesprovider: AKS
  kubernetes:
    nodeName: WIN_A1
    serviceCIDRs: [10.96.0.0/12, fd00::/108, 10.96.0.10]
    dns:
      servers: 10.96.0.10
      serch: [svc.cluster.local]
  calicoNetwork:
    backend: bgp
    kubeNetwork: "Calico.*("
    vxlan: {vxlanVNI: 9999, vxlanMACPrefix: 0E2A, vxlanAdapter: "<your adapter>"}
  services:
    start: "true"
    startupValidIPTimeout: 90
  transport: {retries: 99}
  maintenance: [drain]
  preflight: {ignore: [{id: DiskSpace}]}
"#;
    insta::assert_snapshot!(refusal(&[document(text)], &[]), @r#"
    the config is not valid
      node.yaml:5:14: spec.calico.version: `latest` is not a Calico version like v3.32.1
      node.yaml:6:22: spec.calico.source.sha256: `abc` is not a SHA-256: 64 hexadecimal digits
      node.yaml:6:33: spec.calico.source.type: `bundel` is not allowed; did you mean `bundle`? allowed: release, mirror, bundle, directory
      node.yaml:7:14: spec.calico.rootDir: `CalicoWindows` is not an absolute Windows path like C:\CalicoWindows
      node.yaml:8:3: spec.kubernetesprovider: unknown field; did you mean `kubernetesProvider`? allowed: calico, kubernetesProvider, kubernetes, calicoNetwork, datastore, windowsNodes, services, platform, transport, maintenance, reboot, preflight
      node.yaml:10:15: spec.kubernetes.nodeName: `WIN_A1` is not a node name: lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit, 253 characters at most
      node.yaml:11:34: spec.kubernetes.serviceCIDRs: `fd00::/108` is IPv6, which Calico does not support on Windows; give an IPv4 CIDR like 10.96.0.0/12
      node.yaml:11:46: spec.kubernetes.serviceCIDRs: `10.96.0.10` is not a CIDR like 10.96.0.0/12
      node.yaml:13:16: spec.kubernetes.dns.servers: expected a list like [a, b], found text
      node.yaml:14:7: spec.kubernetes.dns.serch: unknown field; did you mean `search`? allowed: servers, search
      node.yaml:16:14: spec.calicoNetwork.backend: `bgp` is not allowed; did you mean `windows-bgp`? allowed: auto, vxlan, windows-bgp, none
      node.yaml:17:18: spec.calicoNetwork.kubeNetwork: `Calico.*(` is not a regular expression: unclosed group
      node.yaml:18:23: spec.calicoNetwork.vxlan.vxlanVNI: 9999 is the VSID of the bootstrap network External; choose another VNI from 4096 to 65535
      node.yaml:18:45: spec.calicoNetwork.vxlan.vxlanMACPrefix: `0E2A` is not a MAC prefix: write two hexadecimal octets, for example 0E-2A
      node.yaml:18:65: spec.calicoNetwork.vxlan.vxlanAdapter: `<your adapter>` is a placeholder; write the real value
      node.yaml:20:12: spec.services.start: expected true or false, found the text `true`
      node.yaml:21:28: spec.services.startupValidIPTimeout: `90` is not a duration: write a number with its unit, for example 90s, 10m or 1h30m; 0 for none
      node.yaml:22:24: spec.transport.retries: expected a whole number from 0 to 20, found `99`
      node.yaml:23:16: spec.maintenance: expected a section with fields, found a list; fields: drain, uncordon, mode, confirmTimeout
      node.yaml:24:24: spec.preflight.ignore: expected a list of single values, found a section with fields in it
      node.yaml:1:13: apiVersion: `calicoctl-win/v1` is not known to this version, which reads `calicoctl-win/v1alpha1`
    "#);
}

#[test]
fn invalid_values_are_reported_with_what_is_allowed() {
    let cases = [
        "calicoNetwork.vxlan.vxlanVNI=4095",
        "calicoNetwork.vxlan.vxlanVNI=65536",
        "calicoNetwork.vxlan.vxlanVNI=-1",
        "calicoNetwork.vxlan.vxlanVNI=many",
        "calicoNetwork.vxlan.vxlanMACPrefix=0G-2A",
        "kubernetesProvider=GKE",
        "kubernetes.nodeName=imds",
        "kubernetes.dns.servers=10.96.0.10,fd00::a",
        "kubernetes.dns.servers=kube-dns",
        "kubernetes.serviceCIDRs=<your service cidr>",
        "kubernetes.serviceCIDRs=10.96.0.1/12",
        "kubernetes.calicoNamespace=Calico_System",
        "calicoNetwork.nodeAddress=fe80::1",
        "calicoNetwork.nodeAddress=best-found",
        "calicoNetwork.kubeNetwork=",
        "calicoNetwork.backends=vxlan",
        "calicoNetwork.backend=bgp",
        "calicoNetwork.ipam.type.x=1",
        "calicoNetwork.cniConfigOverrides=[1]",
        "calicoNetwork.cniConfigOverrides={a: ",
        "windowsNodes.cniBinDir=/opt/cni/bin",
        "windowsNodes.cniConfigFile=10-calico.conflist",
        "services.logDir=logs",
        "services.felixLogSeverity=verbose",
        "services.startupValidIPTimeout=-5s",
        "services.extraEnv.A=<secret>",
        "transport.proxy=proxy:3128",
        "transport.timeout=60",
        "transport.timeout=0",
        "platform.preserveMetadataRoute=yes",
        "maintenance.drain.gracePeriodSeconds=-2",
        "reboot.policy=later",
    ];
    let said: Vec<String> = cases
        .iter()
        .map(|case| {
            let (path, value) = case.split_once('=').unwrap();
            let text = refusal(&[], &[set(path, value)]);
            text.strip_prefix("the config is not valid\n  --set: spec.").unwrap_or(&text).to_owned()
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    calicoNetwork.vxlan.vxlanVNI: 4095 is out of range: Windows supports VNIs from 4096 to 65535 except 9999
    calicoNetwork.vxlan.vxlanVNI: 65536 is out of range: Windows supports VNIs from 4096 to 65535 except 9999
    calicoNetwork.vxlan.vxlanVNI: expected a whole number from 4096 to 65535, found `-1`
    calicoNetwork.vxlan.vxlanVNI: expected a whole number from 4096 to 65535, found the text `many`
    calicoNetwork.vxlan.vxlanMACPrefix: `0G-2A` is not a MAC prefix: write two hexadecimal octets, for example 0E-2A
    kubernetesProvider: `GKE` is not allowed; did you mean `GCE`? allowed: auto, none, AKS, EKS, EC2, GCE, OpenShift, RKE2
    kubernetes.nodeName: this version does not read the node's name from the cloud; set the name that `kubectl get nodes` shows
    kubernetes.dns.servers: `fd00::a` is IPv6, which Calico does not support on Windows; give an IPv4 address like 10.96.0.10
    kubernetes.dns.servers: `kube-dns` is not an IPv4 address like 10.96.0.10
    kubernetes.serviceCIDRs: `<your service cidr>` is a placeholder; write the real value
    kubernetes.serviceCIDRs: `10.96.0.1/12` is an address within a network; write 10.96.0.0/12
    kubernetes.calicoNamespace: `Calico_System` is not a namespace: lower-case letters, digits and `-`, 63 at most
    calicoNetwork.nodeAddress: `fe80::1` is IPv6, which Calico does not support on Windows; give an IPv4 address, `autodetect` or `none`
    calicoNetwork.nodeAddress: `best-found` is not a node address: `autodetect`, `none`, an IPv4 address like 10.0.0.7 or 10.0.0.7/24, or one of Calico's methods: first-found, can-reach=, interface=, skip-interface=, cidr=, kubernetes-internal-ip
    calicoNetwork.kubeNetwork: an empty expression would match every HNS network
    calicoNetwork.backends: unknown field; did you mean `backend`? allowed: backend, kubeNetwork, nodeAddress, ipam, vxlan, windowsUseSingleNetwork, windowsLoopbackDSR, cniConfigOverrides
    calicoNetwork.backend: `bgp` is not allowed; did you mean `windows-bgp`? allowed: auto, vxlan, windows-bgp, none
    calicoNetwork.ipam.type.x: unknown field; the field before it takes a value and has no fields of its own
    calicoNetwork.cniConfigOverrides: expected names with values, found a list
    calicoNetwork.cniConfigOverrides: unclosed bracket '{'
    windowsNodes.cniBinDir: `/opt/cni/bin` is not an absolute Windows path like C:\CalicoWindows
    windowsNodes.cniConfigFile: `10-calico.conflist` is not a file name ending in .conf or .json, like 10-calico.conf
    services.logDir: `logs` is not an absolute Windows path like C:\CalicoWindows
    services.felixLogSeverity: `verbose` is not allowed; allowed: debug, info, warning, error, fatal
    services.startupValidIPTimeout: `-5s` is not a duration: write a number with its unit, for example 90s, 10m or 1h30m; 0 for none
    services.extraEnv.A: `<secret>` is a placeholder; write the real value
    transport.proxy: `proxy:3128` is not a URL that begins with https:// or http://
    transport.timeout: `60` is not a duration: write a number with its unit, for example 90s, 10m or 1h30m; 0 for none
    transport.timeout: a timeout of 0 allows no answer; set at least 1s
    platform.preserveMetadataRoute: `yes` is not allowed; allowed: auto, true, false
    maintenance.drain.gracePeriodSeconds: expected a whole number from -1 to 86400, found `-2`
    reboot.policy: `later` is not allowed; allowed: never, request, now
    "#);
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let cases = [
        "calicoNetwork: {backend: vxlan, ipam: {type: host-local}}",
        "calicoNetwork: {backend: windows-bgp, ipam: {type: host-local}}",
        "services: {extraEnv: {ETCD_PASSWORD: hunter2, HTTPS_PROXY: 'http://joe:hunter2@proxy:3128', NO_PROXY: a.test}}",
        "services: {extraEnv: {felix_vxlanvni: 5000, CALICO_NETWORKING_BACKEND: none, NODENAME: a}}",
        "calico: {source: {type: mirror}}",
        "calico: {source: {type: bundle}}",
        "calico: {source: {path: 'C:\\c.zip', urlTemplate: 'https://m/c.zip'}}",
        "calico: {source: {type: release, path: 'C:\\c.zip'}}",
        "datastore: {etcd: {endpoints: ['https://e:2379']}}",
        "datastore: {type: etcdv3}",
        "datastore: {type: etcdv3, etcd: {endpoints: ['https://e:2379'], keyFile: 'C:\\k', certFile: 'C:\\c'}}",
        "datastore: {type: etcdv3, etcd: {endpoints: ['https://e:2379/', 'https://[::1]:2379', 'e:2379']}}",
        "datastore: {type: etcdv3, etcd: {endpoints: ['https://e:2379'], tlsSecretRef: {namespace: x}}}",
        "datastore: {type: etcdv3, etcd: {endpoints: ['https://e:2379'], caCertFile: 'C:\\c', tlsSecretRef: {name: x}}}",
    ];
    let said: Vec<String> = cases
        .iter()
        .map(|spec| {
            let text = refusal(&[document(&format!("spec:\n  {spec}\n"))], &[]);
            text.strip_prefix("the config is not valid\n  node.yaml:").unwrap_or(&text).to_owned()
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    2:48: spec.calicoNetwork.ipam.type: the backend vxlan needs calico-ipam: with host-local other nodes have no routes to this node's pods
    2:54: spec.calicoNetwork.ipam.type: the backend windows-bgp needs calico-ipam: Calico's node startup makes a block for this node, which it cannot with host-local
    2:40: spec.services.extraEnv: `ETCD_PASSWORD` may be a secret, which config.ps1 and services.json would have in clear: for etcd, use a client certificate (datastore.etcd)
      node.yaml:2:40: spec.services.extraEnv: `HTTPS_PROXY` may be a secret, which config.ps1 and services.json would have in clear: for etcd, use a client certificate (datastore.etcd)
    2:74: spec.services.extraEnv: `CALICO_NETWORKING_BACKEND` is decided by spec.calicoNetwork.backend: set that instead
      node.yaml:2:74: spec.services.extraEnv: `NODENAME` is decided by spec.kubernetes.nodeName: set that instead
      node.yaml:2:74: spec.services.extraEnv: `felix_vxlanvni` is decided by spec.calicoNetwork.vxlan.vxlanVNI: set that instead
    2:27: spec.calico.source.urlTemplate: the source type mirror needs the URL of the mirror
    2:27: spec.calico.source.path: the source types bundle and directory need a path
    2:52: spec.calico.source.urlTemplate: set a path or a URL for the release, not both
    2:42: spec.calico.source.path: a path needs the source type bundle or directory
    2:33: spec.datastore.etcd: these fields need spec.datastore.type: etcdv3
    2:21: spec.datastore.etcd.endpoints: the datastore etcdv3 requires endpoints, for example [https://etcd-0:2379]
    2:76: spec.datastore.etcd.keyFile: etcd needs all of its TLS files or none; caCertFile missing
    2:48: spec.datastore.etcd.endpoints: `https://e:2379/` is not an endpoint, for example https://etcd-0:2379: scheme http or https, host and port, nothing else
      node.yaml:2:67: spec.datastore.etcd.endpoints: `https://[::1]:2379` is IPv6, which Calico does not support on Windows; give an endpoint, for example https://etcd-0:2379
      node.yaml:2:89: spec.datastore.etcd.endpoints: `e:2379` is not an endpoint, for example https://etcd-0:2379: scheme http or https, host and port, nothing else
    2:93: spec.datastore.etcd.tlsSecretRef: the secret's name is missing
    2:79: spec.datastore.etcd.caCertFile: set files or tlsSecretRef for the certificates, not both
    "#);
}

#[test]
fn a_document_that_is_not_a_config_is_refused() {
    let cases = ["just text\n", "- a\n- b\n", "a: 1\na: 2\n", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"];
    let said: Vec<String> = cases.iter().map(|text| refusal(&[document(text)], &[])).collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    the config is not valid
      node.yaml:1:1: expected a section with fields, found text; fields: apiVersion, kind, metadata, spec
    the config is not valid
      node.yaml:1:1: expected a section with fields, found a list; fields: apiVersion, kind, metadata, spec
    the config is not valid
      node.yaml:2:1: duplicate field a
    the config is not valid
      node.yaml:1:13: apiVersion: `v1` is not known to this version, which reads `calicoctl-win/v1alpha1`
      node.yaml:2:7: kind: `Pod` is not known to this version, which reads `NodeInstallation`
    "#);
}

#[test]
fn the_template_is_valid_and_has_every_field() {
    let text = template();
    load(&[document(&text)], &[]).unwrap();
    let node = yaml::parse(&text).unwrap().remove(0);
    for (path, _) in schema::root().fields() {
        let told = text.contains(&format!("\n#   {path}: "));
        assert!(node.at(&path).is_some() != told, "{path} is missing, or there twice");
    }
}

#[test]
fn the_json_schema_accepts_the_template_and_refuses_unknown_fields() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let mut config = yaml::parse(&template()).unwrap().remove(0).value.to_json();
    // Sections without set fields are empty in YAML; the schema requires them to be absent or filled.
    assert!(schema.is_valid(&config), "{:?}", schema.iter_errors(&config).map(|e| e.to_string()).collect::<Vec<_>>());
    config["spec"]["calicoNetwork"]["bakend"] = "vxlan".into();
    assert!(!schema.is_valid(&config));
}

/// The table of all fields, as in `docs/config.md`.
fn reference(root: &Schema) -> String {
    let mut text = String::from("| field | takes | meaning | default |\n|---|---|---|---|\n");
    for (path, field) in root.fields() {
        let (meaning, default) = field.help.split_once(" Default: ").unwrap_or((&field.help, ""));
        let default = default.trim_end_matches('.');
        text += &format!("| `{path}` | {} | {meaning} | {default} |\n", field.schema.takes());
    }
    text
}

#[test]
fn the_documentation_has_every_field_as_in_the_schema() {
    let made = schema::of_types(SchemaSettings::draft07());
    let mut newer = schema::of_types(SchemaSettings::draft2020_12());
    newer["$schema"] = made["$schema"].clone();
    assert_eq!(newer, made, "the DSC resource has this schema in another draft");

    let page = include_str!("../../docs/config.md");
    let (before, table) = page.split_once("<!-- fields -->\n").unwrap();
    let expected = reference(&schema::tree(&made));
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        let file = |name: &str| format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(file("config.schema.json"), format!("{made:#}\n")).unwrap();
        std::fs::write(file("config.md"), format!("{before}<!-- fields -->\n{expected}")).unwrap();
        // This executable has the former files.
        return;
    }
    let old = "is old: UPDATE_SCHEMA=1 cargo test --lib config::";
    assert!(made == schema(), "docs/config.schema.json {old}");
    assert!(table == expected, "docs/config.md {old}");
}

#[test]
fn the_documents_in_the_documentation_are_valid() {
    let page = include_str!("../../docs/config.md");
    let documents: Vec<&str> = page.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(documents.len() >= 4);
    for text in documents {
        load(&[document(text)], &[]).unwrap();
    }
}

#[test]
fn odd_documents_are_refused_without_a_panic() {
    let deep = "[".repeat(5000);
    let odd = [
        "1: x\n",
        "? {a: b}\n: c\n",
        "? [a]\n: c\n",
        "spec: {services: {extraEnv: {A: [1]}}}\n",
        "spec: {services: {extraEnv: {A=B: x}}}\n",
        "spec: {calicoNetwork: {vxlan: {vxlanVNI: 99999999999999999999}}}\n",
        "spec: {calicoNetwork: {vxlan: {vxlanVNI: 4096.5}}}\n",
        "spec: {transport: {retries: .inf}}\n",
        "spec: !include other.yaml\n",
        "spec: \u{0}\n",
        deep.as_str(),
    ];
    for text in odd {
        assert!(refusal(&[document(text)], &[]).starts_with("the config is not valid\n  node.yaml:"), "{text}");
    }
    for path in ["", ".", "spec", "spec.", "calico", "services.extraEnv", "spec.spec.calico"] {
        assert!(refusal(&[], &[set(path, "x")]).contains("--set"), "{path}");
    }
}

#[test]
fn auto_over_a_value_restores_detection() {
    let site = Document { name: "site.yaml".into(), text: "spec: {kubernetes: {nodeName: win-b}}".into() };
    let layered = load(&[site, document("spec: {kubernetes: {nodeName: auto}}")], &[]).unwrap();
    assert_eq!(layered.config.spec.kubernetes.node_name, types::Auto(None));
}

/// Terraform's templates quote numbers, and `auto` is a value of every detected field.
#[test]
fn a_quoted_number_is_a_number_and_auto_selects_detection() {
    let text = "spec: {calicoNetwork: {backend: auto, vxlan: {vxlanVNI: \"5000\"}}, transport: {retries: '3'}}";
    let layered = load(&[document(text)], &[]).unwrap();
    let spec = &layered.config.spec;
    assert_eq!(spec.calico_network.backend.0, None);
    assert_eq!(spec.calico_network.vxlan.vxlan_vni.map(|vni| vni.get()), Some(5000));
    assert_eq!(spec.transport.retries, Some(3));
    let refused = refusal(&[document("spec: {calicoNetwork: {vxlan: {vxlanVNI: \"many\"}}}")], &[]);
    assert!(refused.contains("expected a whole number from 4096 to 65535, found the text `many`"), "{refused}");
}
