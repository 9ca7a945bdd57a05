//! Settings and services for the tests of this room and of `plan`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::{ApiGroup, RuntimeKind};
use crate::item::{RegValue, Service, StartType};
use crate::settings::{
    Backend, Calico, Cni, Credentials, Datastore, EtcdTls, Ipam, Kubernetes, Network, NodeAddress, Platform, Provider,
    Services, Settings, Source,
};
use crate::values::{Vni, WinPath};

/// A containerd node of a plain VXLAN cluster with everything at its default.
pub fn settings(version: &str) -> Settings {
    let root = WinPath::known(r"C:\CalicoWindows");
    Settings {
        calico: Calico {
            version: version.parse().unwrap(),
            source: Source::File("calico-windows.zip".into()),
            sha256: None,
            root: root.clone(),
        },
        provider: Provider::None,
        node_name: "win-a1".parse().unwrap(),
        kubernetes: Kubernetes {
            service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
            dns_servers: vec!["10.96.0.10".parse().unwrap()],
            dns_search: vec!["svc.cluster.local".into()],
            calico_namespace: "calico-system".into(),
            credentials: Some(Credentials::TokenRequest),
        },
        network: Network {
            backend: Backend::Vxlan,
            kube_network: "Calico.*".into(),
            node_address: NodeAddress::Autodetect,
            ipam: Ipam::CalicoIpam,
            vni: Vni::DEFAULT,
            mac_prefix: "0E-2A".parse().unwrap(),
            adapter: None,
        },
        datastore: Datastore::Kubernetes,
        cni: Cni {
            bin_dir: WinPath::known(r"C:\Program Files\containerd\cni\bin"),
            conf_dir: WinPath::known(r"C:\Program Files\containerd\cni\conf"),
            conf_file: "10-calico.conf".into(),
            log_level: "info".into(),
            single_network: true,
            overrides: serde_json::Value::Null,
        },
        services: Services {
            start: true,
            valid_ip_timeout: Duration::from_secs(90),
            log_dir: root.join("logs"),
            felix_log_severity: "info".into(),
            restart_kube_proxy: true,
            extra_env: BTreeMap::new(),
        },
        platform: Platform { static_rules: false, metadata_route: false, firewall_kubectl_exec: true },
        runtime: RuntimeKind::Containerd,
        dsr: true,
        api_group: Some(ApiGroup::V1),
    }
}

/// An etcd datastore with TLS.
pub fn etcd() -> Datastore {
    let file = |name: &str| WinPath::known(r"C:\CalicoWindows\etcd-tls").join(name);
    Datastore::Etcdv3 {
        endpoints: vec!["https://etcd-0:2379".into(), "https://etcd-1:2379".into()],
        tls: Some(EtcdTls {
            key_file: file("server.key"),
            cert_file: file("server.crt"),
            ca_cert_file: file("ca.crt"),
        }),
    }
}

/// One of upstream's services, as its scripts register it with NSSM: `node`, `felix`, …
pub fn nssm(part: &str) -> Service {
    let root = r"C:\CalicoWindows";
    let text = |text: String| RegValue::ExpandString(text);
    let log = |end: &str| text(format!(r"{root}\logs\calico-{part}{end}"));
    let parameters = [
        ("Application", text(r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe".into())),
        ("AppParameters", text(format!(r"{root}\{part}\{part}-service.ps1"))),
        ("AppDirectory", text(root.into())),
        ("AppStdout", log(".log")),
        ("AppStderr", log(".err.log")),
        ("AppRotateFiles", RegValue::Dword(1)),
        ("AppRotateBytes", RegValue::Dword(10_485_760)),
        (r"AppExit\", RegValue::String("Restart".into())),
    ];
    Service {
        display_name: format!("Calico Windows {part}"),
        description: format!("Calico's {part}, by upstream's scripts."),
        image_path: format!(r"{root}\nssm-2.24\win64\nssm.exe"),
        account: "LocalSystem".into(),
        start: StartType::Auto,
        depends_on: if matches!(part, "felix" | "confd") { vec!["CalicoNode".into()] } else { Vec::new() },
        restart_after: Vec::new(),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}
