//! Settings and services for the tests of this module and of `plan`.

use super::agent_config::{AgentConfig, Command};
use crate::config::{self, Origin, Override};
use crate::facts::Facts;
use crate::item::{RegValue, Service, StartType};
use crate::paths::LOG_DIR;
use crate::settings::{Backend, Datastore, EtcdTls, Settings, resolve};
use crate::values::{Vni, WinPath};

/// A containerd node of a plain VXLAN cluster with default settings: those of the saved facts.
pub fn settings(version: &str) -> Settings {
    let facts = include_str!("../../tests/fixtures/facts/server-2022.json");
    let facts: Facts = serde_json::from_str(facts).unwrap();
    let given = [
        ("calico.version", version),
        ("calico.source.path", "calico-windows.zip"),
        ("calicoNetwork.windowsLoopbackDSR", "true"),
    ];
    let given = given.map(|(path, value)| Override { path: path.into(), value: value.into(), from: Origin::Set });
    resolve(&config::load(&[], &given).unwrap(), &facts.node, facts.cluster.as_ref()).unwrap().settings
}

/// The services' configuration on such a node, with one program for all of them.
pub fn agent(command: &Command) -> AgentConfig {
    AgentConfig {
        node_name: "win-a1".parse().unwrap(),
        backend: Backend::Vxlan,
        vni: Vni::DEFAULT,
        adapter: None,
        log_dir: WinPath::known(LOG_DIR),
        valid_ip_timeout_s: 90,
        metadata_route: false,
        cni_conf: None,
        startup: command.clone(),
        felix: command.clone(),
        others: Default::default(),
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
        recovery: None,
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}
