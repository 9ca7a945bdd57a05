//! Reads what upstream's scripts left on a node: the services that NSSM runs, the CNI configuration and the HNS
//! networks, each as the variables of `config.ps1` from which they were made (reference: sections 2.2, 4.1, 7).

use serde_json::{Map, Value, json};

use super::cni::{CniConf, TEMPLATE};
use super::{networks, nssm};
use crate::facts::Provider;
use crate::item::{Network, NetworkKind, Service};
use crate::values::WinPath;

/// A variable of `config.ps1` and its effective value.
pub type Found = (&'static str, String);

/// An installation, from the definition of its service CalicoNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The folder with `config.ps1`: the scripts' default if the service does not give it as a full path.
    pub root: WinPath,
    /// Where NSSM writes what the component prints.
    pub log_dir: Option<WinPath>,
    /// What NSSM adds to the component's environment.
    pub environment: Vec<(String, String)>,
}

impl Installation {
    /// Reads what NSSM runs. None for a service that is not upstream's.
    pub fn of(service: &Service) -> Option<Self> {
        let script = nssm::script(service)?;
        let wrapped = nssm::wrapped(service)?;
        let directory = wrapped.directory.as_deref().and_then(resolved);
        // NSSM's own syntax: a leading `:` or `+` adds the variable, `-` removes it.
        let environment = wrapped.environment.iter().filter_map(|line| {
            let (name, value) = line.trim_start_matches([':', '+']).split_once('=')?;
            (!name.is_empty() && !name.starts_with('-')).then(|| (name.to_owned(), value.to_owned()))
        });
        Some(Self {
            root: resolved(&script.root).or(directory).unwrap_or_else(|| WinPath::known(r"C:\CalicoWindows")),
            log_dir: wrapped.stdout.as_deref().and_then(resolved).and_then(|file| file.parent()),
            environment: environment.collect(),
        })
    }
}

/// The name of the Node in the file `nodename`, which Calico's node startup writes; none if there is no name in it.
pub fn node_name(file: &str) -> Option<String> {
    let name = file.trim_start_matches('\u{feff}').trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The files that the archive, the scripts and Calico itself put into the folder of an installation (reference: section
/// 1.1), by their paths in it. `*` is any text without `\`, `**` any text. Static rules are the user's.
const FILES: [&str; 31] = [
    r"*-calico.ps1",
    r"calico-kube-config",
    r"calico-kube-config.template",
    r"calico-node.exe",
    r"calico-node.exe.to-be-replaced",
    r"calico.exe",
    r"cni.conf.template",
    r"cni\calico-ipam.exe",
    r"cni\calico.exe",
    r"confd\*.ps1",
    r"confd\conf.d\*.toml",
    r"confd\config-bgp.psm1",
    r"confd\templates\*.ps1.template",
    r"config-hpc.ps1",
    r"config.ps1",
    r"etcd-tls\ca.crt",
    r"etcd-tls\server.crt",
    r"etcd-tls\server.key",
    r"felix\felix-service.ps1",
    r"ipam.lock",
    r"kubernetes\*-service*.ps1",
    r"kubernetes\readme.txt",
    r"libs\calico\calico.psm1",
    r"libs\hns\*",
    r"logs\calico-*.log*",
    r"node\node-service.ps1",
    r"nodename",
    r"nssm*\**",
    r"readme.txt",
    r"uninstall-calico-hpc.ps1",
    r"upgrade\upgrade-service.ps1",
];

/// The folders that may have none of these files.
const FOLDERS: [&str; 2] = ["etcd-tls", "logs"];

/// Whether a file in the folder of an installation is of the scripts or of Calico; `below` is its path there.
pub fn is_file(below: &str) -> bool {
    let below = below.trim_start_matches('\\').to_lowercase();
    FILES.iter().any(|pattern| fits(pattern, &below))
}

/// Whether an empty folder there is.
pub fn is_folder(below: &str) -> bool {
    let below = below.trim_start_matches('\\').to_lowercase();
    FOLDERS.contains(&below.as_str())
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| match rest.strip_prefix('*') {
            Some(_) => !text.is_empty(),
            None => {
                let own = text.find('\\').unwrap_or(text.len());
                (0..=own).filter(|&at| text.is_char_boundary(at)).any(|at| fits(rest, &text[at..]))
            }
        }),
    }
}

/// A path as the scripts wrote it, such as `C:\CalicoWindows\libs\calico\..\..`.
fn resolved(text: &str) -> Option<WinPath> {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.trim_matches('"').split(['\\', '/']) {
        match part {
            ".." if parts.len() > 1 => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    let drive = if parts.len() == 1 { "\\" } else { "" };
    format!("{}{drive}", parts.join("\\")).parse().ok()
}

/// What a CNI configuration was made from.
pub fn from_cni(conf: &CniConf) -> Vec<Found> {
    let mut found: Vec<Found> = vec![
        ("CALICO_NETWORKING_BACKEND", if conf.mode == "vxlan" { "vxlan" } else { "windows-bgp" }.to_owned()),
        ("CNI_IPAM_TYPE", conf.ipam.kind.clone()),
        ("CALICO_DATASTORE_TYPE", conf.datastore_type.clone()),
        ("DNS_NAME_SERVERS", conf.dns.nameservers.join(",")),
        ("DNS_SEARCH", conf.dns.search.join(",")),
    ];
    if conf.mode == "vxlan" {
        found.push(("VXLAN_MAC_PREFIX", conf.vxlan_mac_prefix.clone()));
        found.extend(conf.vxlan_vni.map(|vni| ("VXLAN_VNI", vni.to_string())));
    }
    let routes = conf.policies.iter().filter_map(|policy| policy.value.get("DestinationPrefix")?.as_str());
    found.push(("K8S_SERVICE_CIDR", routes.collect::<Vec<_>>().join(",")));
    let optional = [
        ("KUBECONFIG", &conf.kubernetes.kubeconfig),
        ("NODENAME", &conf.nodename),
        ("ETCD_ENDPOINTS", &conf.etcd_endpoints),
        ("ETCD_KEY_FILE", &conf.etcd_key_file),
        ("ETCD_CERT_FILE", &conf.etcd_cert_file),
        ("ETCD_CA_CERT_FILE", &conf.etcd_ca_cert_file),
    ];
    found.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    // Skip a placeholder that the scripts did not replace.
    found.retain(|(_, value)| !value.is_empty() && !value.starts_with('<'));
    found
}

/// Fields of a config document that only a CNI configuration has, by path, for a node whose administrator edited the
/// template.
pub fn only_in_cni(conf: &CniConf) -> Vec<Found> {
    let mut fields = Vec::new();
    if !conf.windows_use_single_network {
        fields.push(("calicoNetwork.windowsUseSingleNetwork", "false".to_owned()));
    }
    if !matches!(conf.log_level.to_lowercase().as_str(), "" | "info") {
        fields.push(("windowsNodes.cniLogLevel", conf.log_level.to_lowercase()));
    }
    // Keys that the plugin does not know, or ignores on Windows, have no effect. Upstream's installer in HostProcess pods
    // writes `mtu`.
    let mut known = CniConf { mtu: None, windows_pod_deletion_timestamp_timeout: None, ..conf.clone() };
    known.rest.clear();
    known.ipam.rest.clear();
    (known.ipam.assign_ipv6, known.ipam.ipv6_pools) = (None, None);
    let whole = serde_json::to_value(&known).unwrap_or_default();
    let mut overrides = Map::new();
    // What is set here: the keys of the template, and those for etcd and the API group.
    let template: Map<String, Value> = serde_json::from_slice(TEMPLATE.as_bytes()).unwrap_or_default();
    let ours = |key: &str| template.contains_key(key) || key.starts_with("etcd_") || key == "calico_api_group";
    let more = |value: &Value, ours: &dyn Fn(&str) -> bool| -> Map<String, Value> {
        let fields = value.as_object().into_iter().flatten();
        fields.filter(|(key, _)| !ours(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    overrides.extend(more(&whole, &ours));
    let ipam = more(&whole["ipam"], &|key| matches!(key, "type" | "subnet"));
    if !ipam.is_empty() {
        overrides.insert("ipam".into(), json!(ipam));
    }
    if !overrides.is_empty() {
        fields.push(("calicoNetwork.cniConfigOverrides", json!(overrides).to_string()));
    }
    fields
}

/// The values in the pods' network, with its name. There may be several such networks if pods do not share one
/// (`Calico-10-244-1-0`); they are alike.
pub fn from_networks(networks: &[(String, Network)]) -> Option<(&str, Vec<Found>)> {
    let named = |name: &str| networks.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
    let parted = || networks.iter().find(|(own, _)| own.to_lowercase().starts_with("calico-"));
    let pods = named(networks::PODS).or_else(parted);
    // Before the first pod there is only the network that CalicoNode creates.
    let (name, network) = pods.or_else(|| named(networks::BOOTSTRAP))?;
    let mut found = vec![match network.kind {
        NetworkKind::Overlay => ("CALICO_NETWORKING_BACKEND", "vxlan".to_owned()),
        NetworkKind::L2Bridge => ("CALICO_NETWORKING_BACKEND", "windows-bgp".to_owned()),
        _ => return None,
    }];
    if let (NetworkKind::Overlay, Some(vsid), true) = (network.kind, network.vsid, pods.is_some()) {
        found.push(("VXLAN_VNI", vsid.to_string()));
    }
    Some((name, found))
}

/// Whose Kubernetes this is, if the networks show it (reference: section 5).
pub fn provider(networks: &[(String, Network)]) -> Option<Provider> {
    networks.iter().find_map(|(name, _)| Provider::of_network(name))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::item::RegValue;

    fn service(parameters: &[(&str, RegValue)]) -> Service {
        let mut service = testing::nssm("node");
        service.parameters.extend(parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        service
    }

    fn text(text: &str) -> RegValue {
        RegValue::ExpandString(text.into())
    }

    #[test]
    fn files_of_the_scripts_are_not_mistaken_for_a_users() {
        for own in [
            "config.ps1",
            "README.txt",
            "install-calico.ps1",
            r"\node\node-service.ps1",
            r"nssm-2.24\win64\nssm.exe",
            r"nssm\ChangeLog.txt",
            r"logs\calico-node.err.log.1",
            r"confd\conf.d\blocks.toml",
            r"cni\Calico.exe",
            r"kubernetes\install-kube-services.ps1",
            r"kubernetes\kubelet-service.ps1",
            r"confd\peerings.ps1",
        ] {
            assert!(is_file(own), "{own}");
        }
        for other in [
            "static-rules.json",
            "notes.txt",
            r"logs\agent.log",
            r"node\mine.ps1",
            r"libs\mine\calico.psm1",
            "nssm",
            r"backup\config.ps1",
            r"nssm\",
            r"confd\conf.d\deep\x.toml",
        ] {
            assert!(!is_file(other), "{other}");
        }
        assert!(is_folder(r"\logs") && !is_folder(r"\mine"));
    }

    #[test]
    fn an_nssm_service_gives_the_path_of_its_installation() {
        let found = Installation::of(&service(&[
            ("AppParameters", text(r"D:\Tools\CalicoWindows\libs\calico\..\..\node\node-service.ps1")),
            ("AppStdout", text(r"D:\logs\calico-node.log")),
            (
                "AppEnvironmentExtra",
                RegValue::MultiString(vec!["IP=10.1.2.3".into(), ":A=b=c".into(), "-PATH".into(), "odd".into()]),
            ),
        ]))
        .unwrap();
        assert_eq!(found.root.as_str(), r"D:\Tools\CalicoWindows");
        assert_eq!(found.log_dir, Some(WinPath::known(r"D:\logs")));
        assert_eq!(found.environment, [("IP".into(), "10.1.2.3".into()), ("A".into(), "b=c".into())]);

        let mut ours = testing::nssm("node");
        ours.image_path = r#""C:\Program Files\calicoctl-win\calicoctl-win.exe" service run node"#.into();
        assert_eq!(Installation::of(&ours), None);

        let odd = service(&[("AppParameters", text(r"%Calico%\node\node-service.ps1"))]);
        assert_eq!(Installation::of(&odd).unwrap().root.as_str(), r"C:\CalicoWindows");
        for path in ["%SystemDrive%\\CalicoWindows", "..", "", r"..\..\x"] {
            assert_eq!(resolved(path), None, "{path}");
        }
    }

    #[test]
    fn a_cni_configuration_gives_the_variables_it_was_made_from() {
        let scripts = CniConf::parse(include_str!("../../tests/fixtures/cni/scripts-v3.30-containerd.conf")).unwrap();
        let lines: Vec<String> = from_cni(&scripts).iter().map(|(name, value)| format!("{name}={value}")).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        CALICO_NETWORKING_BACKEND=vxlan
        CNI_IPAM_TYPE=calico-ipam
        CALICO_DATASTORE_TYPE=kubernetes
        DNS_NAME_SERVERS=10.96.0.10, 10.96.0.11
        DNS_SEARCH=svc.cluster.local
        VXLAN_MAC_PREFIX=0E-2A
        VXLAN_VNI=4096
        K8S_SERVICE_CIDR=10.96.0.0/12
        KUBECONFIG=C:\CalicoWindows\calico-kube-config
        "#);
        assert_eq!(only_in_cni(&scripts), []);
        let edited = CniConf::parse(
            r#"{"type":"calico","mode":"","log_level":"Debug","mtu":1400,"qps":30,"ipam":{"type":"host-local","subnet":"usePodCidr","ipv4_pools":["w"]},"vendor":1}"#,
        )
        .unwrap();
        insta::assert_snapshot!(format!("{:#?}", only_in_cni(&edited)), @r#"
        [
            (
                "calicoNetwork.windowsUseSingleNetwork",
                "false",
            ),
            (
                "windowsNodes.cniLogLevel",
                "debug",
            ),
            (
                "calicoNetwork.cniConfigOverrides",
                "{\"qps\":30,\"ipam\":{\"ipv4_pools\":[\"w\"]}}",
            ),
        ]
        "#);
    }

    #[test]
    fn the_pods_network_gives_backend_and_vni() {
        let network = |name: &str, kind, vsid| {
            let network = Network { kind, subnet: None, gateway: None, vsid, adapter: None, management_ip: None };
            (name.to_owned(), network)
        };
        let nat = network("nat", NetworkKind::Nat, None);
        let external = network("External", NetworkKind::Overlay, Some(9999));
        let said = |networks: &[(String, Network)]| match from_networks(networks) {
            Some((name, found)) => format!("{name} {found:?}"),
            None => "nothing".into(),
        };
        assert_eq!(said(std::slice::from_ref(&nat)), "nothing");
        // The VSID of External is not a VNI of the cluster.
        assert_eq!(said(&[nat.clone(), external.clone()]), r#"External [("CALICO_NETWORKING_BACKEND", "vxlan")]"#);
        assert_eq!(
            said(&[external, network("calico", NetworkKind::Overlay, Some(5000))]),
            r#"calico [("CALICO_NETWORKING_BACKEND", "vxlan"), ("VXLAN_VNI", "5000")]"#
        );
        assert_eq!(
            said(&[network("Calico-10-244-1-0", NetworkKind::L2Bridge, None)]),
            r#"Calico-10-244-1-0 [("CALICO_NETWORKING_BACKEND", "windows-bgp")]"#
        );
        assert_eq!(provider(&[nat, network("azure", NetworkKind::L2Tunnel, None)]), Some(Provider::Aks));
        assert_eq!(provider(&[network("vpcbrA1B2", NetworkKind::L2Bridge, None)]), Some(Provider::Eks));
    }
}
