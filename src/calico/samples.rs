//! Settings for the tests of this room and of `plan::desired`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::{ApiGroup, RuntimeKind};
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
            credentials: Credentials::TokenRequest,
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
