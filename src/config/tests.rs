use super::*;
use crate::fault::{Exit, Fault};
use crate::settings::Backend;

fn document(text: &str) -> Document {
    Document { name: "node.yaml".into(), text: text.into() }
}

fn set(path: &str, value: &str) -> Override {
    Override { path: path.into(), value: value.into(), from: Origin::Set }
}

/// All that is said of documents and overrides that are wrong.
fn refusal(documents: &[Document], overrides: &[Override]) -> String {
    let error = load(documents, overrides).unwrap_err();
    let fault = error.downcast_ref::<Fault>().unwrap();
    assert_eq!((fault.exit, fault.id), (Exit::InvalidConfig, "ConfigInvalid"));
    fault.what.clone()
}

#[test]
fn nothing_at_all_is_a_valid_config() {
    for text in ["", "---\n", "# only a comment\n", "spec:\n", "spec: {calico: }\n"] {
        assert_eq!(load(&[document(text)], &[]).unwrap().config, Config::default(), "{text:?}");
    }
    assert_eq!(load(&[], &[]).unwrap().config, Config::default());
}

#[test]
fn later_layers_win_field_by_field_and_are_remembered() {
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
    assert_eq!(spec.calico_network.backend, Some(Backend::WindowsBgp));
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
    insta::assert_snapshot!(origins.join("\n"), @r#""#);
}

#[test]
fn text_stays_text_whatever_yaml_would_take_it_for() {
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
fn set_takes_numbers_lists_maps_and_any_json() {
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
fn one_run_shows_everything_that_is_wrong() {
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
    insta::assert_snapshot!(refusal(&[document(text)], &[]), @r#""#);
}

#[test]
fn wrong_values_and_what_is_said_of_them() {
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
        "calicoNetwork.nodeAddress=first-found",
        "calicoNetwork.kubeNetwork=",
        "calicoNetwork.backends=vxlan",
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
    insta::assert_snapshot!(said.join("\n"), @r#""#);
}

#[test]
fn fields_that_contradict_each_other() {
    let cases = [
        "calicoNetwork: {backend: vxlan, ipam: {type: host-local}}",
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
    insta::assert_snapshot!(said.join("\n"), @r#""#);
}

#[test]
fn a_document_that_is_no_config_is_refused() {
    let cases = ["just text\n", "- a\n- b\n", "a: 1\na: 2\n", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"];
    let said: Vec<String> = cases.iter().map(|text| refusal(&[document(text)], &[])).collect();
    insta::assert_snapshot!(said.join("\n"), @r#""#);
}

#[test]
fn the_template_is_valid_and_has_every_field() {
    let text = template();
    load(&[document(text)], &[]).unwrap();
    let node = yaml::parse(text).unwrap().remove(0);
    for (path, _) in shape::root().fields() {
        let mut here = &node;
        for part in path.split('.') {
            let yaml::Value::Map(entries) = &here.value else { panic!("{path}: no section in the template") };
            let is = |key: &yaml::Node| matches!(&key.value, yaml::Value::Scalar { text, .. } if text == part);
            here = &entries.iter().find(|(key, _)| is(key)).unwrap_or_else(|| panic!("{path} is missing")).1;
        }
    }
}

#[test]
fn the_json_schema_takes_the_template_and_refuses_unknown_fields() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let mut config = yaml::parse(template()).unwrap().remove(0).value.to_json();
    // Sections without fields set are empty in YAML; the schema wants them left out or filled.
    assert!(schema.is_valid(&config), "{:?}", schema.iter_errors(&config).map(|e| e.to_string()).collect::<Vec<_>>());
    config["spec"]["calicoNetwork"]["bakend"] = "vxlan".into();
    assert!(!schema.is_valid(&config));
}
