//! How Calico's components are run: command line and environment of node startup, Felix and confd,
//! by version.

use std::collections::BTreeMap;

use anyhow::Result;

use super::agent_config::{AgentConfig, Command};
use super::layout::{Build, Layout};
use super::services::Role;
use crate::facts::ApiGroup;
use crate::paths;
use crate::settings::{self, Backend, Datastore, Ipam, NodeAddress, Settings};
use crate::values::WinPath;

/// The config of the services. `kubeconfig` is the path of the node's own kubeconfig; none if there is none, which only
/// an etcd datastore allows.
///
/// # Errors
/// When the release's version is not supported.
pub fn agent_config(settings: &Settings, kubeconfig: Option<&WinPath>) -> Result<AgentConfig> {
    let layout = Layout::of(&settings.calico.version)?;
    let command = |role| command(settings, &layout, kubeconfig, role);
    let backend = settings.network.backend;
    let confd = Role::Confd.row().backends.contains(&backend).then(|| command(Role::Confd));
    Ok(AgentConfig {
        node_name: settings.node_name.clone(),
        backend,
        vni: settings.network.vni,
        adapter: adapter(settings),
        log_dir: settings.services.log_dir.clone(),
        valid_ip_timeout_s: settings.services.valid_ip_timeout.as_secs(),
        metadata_route: settings.platform.metadata_route,
        cni_conf: (backend != Backend::None).then(|| settings.cni.conf_dir.join(&settings.cni.conf_file)),
        startup: command(Role::Node),
        felix: command(Role::Felix),
        others: [(Role::Confd.word().to_owned(), confd)].into(),
    })
}

/// How a role's component is started.
fn command(settings: &Settings, layout: &Layout, kubeconfig: Option<&WinPath>, role: Role) -> Command {
    let root = &settings.calico.root;
    let confd = paths::confd(root);
    let [old, new] = role.row().command;
    // Go's own flags have one dash, and confd's have its name.
    let (line, dash, confd_dash) = match layout.build() {
        Build::NodeBinary => (old, "-", "-confd-"),
        Build::Monobinary => (new, "--", "--"),
    };
    let common = Env::common(settings, layout, kubeconfig);
    let (option, dir, env) = match role {
        Role::Node => {
            // Marking the node available needs the Kubernetes API. With etcd and no kubeconfig that step would always
            // fail, except with the backend none, which skips it (defect B25 of upstream).
            let can_complete = kubeconfig.is_some() || settings.network.backend == Backend::None;
            let complete = layout.has_complete_startup() && can_complete;
            (complete.then(|| format!("{dash}complete-startup")), root.clone(), common.startup(settings))
        }
        Role::Felix => (None, root.clone(), common.felix(settings)),
        Role::Confd => (Some(format!("{confd_dash}confdir={confd}")), confd, common),
        // They have a document of their own.
        Role::Kubelet | Role::KubeProxy => (None, root.clone(), common),
    };
    Command {
        program: root.join(layout.node_binary()),
        // One argument, because a path may have spaces.
        args: line.split(' ').map(str::to_owned).chain(option).collect(),
        dir,
        env: env.with_extra(&settings.services.extra_env),
    }
}

/// The adapter that `External` must use. Only an overlay network has one: for windows-bgp HNS chooses, as with the
/// scripts.
pub fn adapter(settings: &Settings) -> Option<String> {
    settings.network.adapter.clone().filter(|_| settings.network.backend == Backend::Vxlan)
}

/// A component's variables. Every one is set here, so that a machine-wide `IP`, `NODENAME` or `KUBECONFIG` is never
/// used by accident (defect B4 of upstream).
struct Env(BTreeMap<String, String>);

impl Env {
    /// What all components read: the node's name, and the datastore.
    fn common(settings: &Settings, layout: &Layout, kubeconfig: Option<&WinPath>) -> Self {
        let mut env = Self(BTreeMap::new());
        env.set("CALICO_NETWORKING_BACKEND", settings.network.backend.name());
        env.set("KUBE_NETWORK", &settings.network.kube_network);
        env.set("NODENAME", settings.node_name.as_str());
        env.set("CALICO_K8S_NODE_REF", settings.node_name.as_str());
        // host-local assigns addresses from the node's podCIDR, so the client must map it to IPAM blocks.
        env.set("USE_POD_CIDR", if settings.network.ipam == Ipam::HostLocal { "true" } else { "false" });
        // Empty if there is none: that counts as unset, and hides the machine's own.
        env.set("KUBECONFIG", kubeconfig.map_or("", WinPath::as_str));
        // Calico's client reads the prefixed name; the last step of node startup reads the plain one (v3.32).
        for name in ["CALICO_DATASTORE_TYPE", "DATASTORE_TYPE"] {
            env.set(name, datastore_type(&settings.datastore));
        }
        if let Datastore::Etcdv3 { endpoints, tls } = &settings.datastore {
            env.set("ETCD_ENDPOINTS", &endpoints.join(","));
            if let Some(tls) = tls {
                env.set("ETCD_KEY_FILE", tls.key_file.as_str());
                env.set("ETCD_CERT_FILE", tls.cert_file.as_str());
                env.set("ETCD_CA_CERT_FILE", tls.ca_cert_file.as_str());
            }
        }
        if let Some(group) = api_group(settings, layout) {
            env.set("CALICO_API_GROUP", group);
        }
        env
    }

    /// Node startup creates the node's resources and the HNS network. By default it also creates an IP pool in a
    /// cluster without one, and the scripts let it; the cluster's pools are not changed.
    fn startup(mut self, settings: &Settings) -> Self {
        self.set("NO_DEFAULT_POOLS", "true");
        // Startup ends at once if one of these is set too. Set to nothing, they hide the machine's own.
        for name in settings::POOL_CIDRS {
            self.set(name, "");
        }
        self.set("VXLAN_VNI", &settings.network.vni.to_string());
        self.set("CALICO_NODENAME_FILE", paths::nodename(&settings.calico.root).as_str());
        self.set("IP", node_address(&settings.network.node_address));
        if let NodeAddress::By(method) = &settings.network.node_address {
            self.set("IP_AUTODETECTION_METHOD", method);
        }
        self
    }

    fn felix(mut self, settings: &Settings) -> Self {
        self.set("FELIX_FELIXHOSTNAME", settings.node_name.as_str());
        self.set("FELIX_METADATAADDR", "none");
        // Only the health endpoint says whether Felix is in sync: a running Felix that is not ready programs nothing
        // for new pods.
        self.set("FELIX_HEALTHENABLED", "true");
        self.set("FELIX_HEALTHHOST", "127.0.0.1");
        self.set("FELIX_HEALTHPORT", "9099");
        // The environment overrides FelixConfiguration, so routes and network have one VNI.
        self.set("FELIX_VXLANVNI", &settings.network.vni.to_string());
        self.set("FELIX_LOGSEVERITYFILE", "none");
        self.set("FELIX_LOGSEVERITYSYS", "none");
        if let Some(severity) = &settings.services.felix_log_severity {
            self.set("FELIX_LOGSEVERITYSCREEN", severity);
        }
        self
    }

    /// The user's own variables override ours, whatever the case of their names.
    fn with_extra(mut self, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        for (name, value) in extra {
            self.0.retain(|known, _| !known.eq_ignore_ascii_case(name));
            self.set(name, value);
        }
        self.0
    }

    fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }
}

/// Calico's word: `kubernetes` or `etcdv3`.
pub const fn datastore_type(datastore: &Datastore) -> &'static str {
    match datastore {
        Datastore::Kubernetes => "kubernetes",
        Datastore::Etcdv3 { .. } => "etcdv3",
    }
}

/// The value of the variable `IP`.
pub const fn node_address(address: &NodeAddress) -> &str {
    match address {
        NodeAddress::Autodetect | NodeAddress::By(_) => "autodetect",
        NodeAddress::None => "none",
        NodeAddress::Fixed(address) => address.as_str(),
    }
}

/// The API group to set explicitly, if the version knows the key and the datastore has API groups. Without it Calico
/// discovers the group at every call, and uses v1 when discovery fails.
pub fn api_group(settings: &Settings, layout: &Layout) -> Option<&'static str> {
    let known = layout.knows_api_group() && settings.datastore == Datastore::Kubernetes;
    settings.api_group.filter(|_| known).map(|group| match group {
        ApiGroup::V1 => "crd.projectcalico.org/v1",
        ApiGroup::V3 => "projectcalico.org/v3",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{etcd, settings};
    use super::*;

    fn agent(settings: &Settings) -> AgentConfig {
        agent_config(settings, Some(&paths::kubeconfig(&settings.calico.root))).unwrap()
    }

    #[test]
    fn the_command_lines_follow_the_version() {
        let lines = ["v3.20.0", "v3.30.3", "v3.31.0", "v3.32.1", "v3.33.0-0.dev"].map(|version| {
            let mut settings = settings(version);
            settings.network.backend = Backend::WindowsBgp;
            let agent = agent(&settings);
            Role::CALICO
                .map(|role| agent.command(role).unwrap())
                .map(|c| format!("{version} {}> {} {}\n", c.dir, c.program.name(), c.args.join(" ")))
                .concat()
        });
        insta::assert_snapshot!(lines.concat(), @r"
        v3.20.0 C:\CalicoWindows> calico-node.exe -startup
        v3.20.0 C:\CalicoWindows> calico-node.exe -felix
        v3.20.0 C:\CalicoWindows\confd> calico-node.exe -confd -confd-confdir=C:\CalicoWindows\confd
        v3.30.3 C:\CalicoWindows> calico-node.exe -startup
        v3.30.3 C:\CalicoWindows> calico-node.exe -felix
        v3.30.3 C:\CalicoWindows\confd> calico-node.exe -confd -confd-confdir=C:\CalicoWindows\confd
        v3.31.0 C:\CalicoWindows> calico-node.exe -startup -complete-startup
        v3.31.0 C:\CalicoWindows> calico-node.exe -felix
        v3.31.0 C:\CalicoWindows\confd> calico-node.exe -confd -confd-confdir=C:\CalicoWindows\confd
        v3.32.1 C:\CalicoWindows> calico-node.exe -startup -complete-startup
        v3.32.1 C:\CalicoWindows> calico-node.exe -felix
        v3.32.1 C:\CalicoWindows\confd> calico-node.exe -confd -confd-confdir=C:\CalicoWindows\confd
        v3.33.0-0.dev C:\CalicoWindows> calico.exe component node startup --complete-startup
        v3.33.0-0.dev C:\CalicoWindows> calico.exe component felix
        v3.33.0-0.dev C:\CalicoWindows\confd> calico.exe component confd --confdir=C:\CalicoWindows\confd
        ");
    }

    /// Defect B23: kubelet-service.ps1 up to v3.28 ignores the configured node address.
    #[test]
    fn b23_the_nodes_address_reaches_node_startup_in_every_version() {
        for version in ["v3.20.0", "v3.28.2", "v3.30.3", "v3.33.0"] {
            let mut settings = settings(version);
            settings.network.node_address = NodeAddress::Fixed("10.20.0.21/24".into());
            assert_eq!(agent(&settings).startup.env["IP"], "10.20.0.21/24", "{version}");
            settings.network.node_address = NodeAddress::By("cidr=10.20.0.0/16".into());
            let env = agent(&settings).startup.env;
            assert_eq!(
                (env["IP"].as_str(), env["IP_AUTODETECTION_METHOD"].as_str()),
                ("autodetect", "cidr=10.20.0.0/16")
            );
        }
    }

    /// Defect B24: the scripts of v3.27 and v3.28 call an upgrade check that the binary no longer has, and start the
    /// token refresher although its files do not exist.
    #[test]
    fn b24_only_node_startup_felix_and_confd_are_ever_run() {
        for version in ["v3.21.0", "v3.27.0", "v3.27.4", "v3.28.0", "v3.32.1", "v3.33.0"] {
            let mut settings = settings(version);
            settings.network.backend = Backend::WindowsBgp;
            let agent = agent(&settings);
            for command in Role::ALL.into_iter().filter_map(|role| agent.command(role)) {
                let line = command.args.join(" ");
                assert!(!line.contains("upgrade") && !line.contains("token"), "{version}: {line}");
            }
        }
    }

    #[test]
    fn extra_variables_override_ours_whatever_their_case() {
        let mut settings = settings("v3.30.3");
        settings.services.extra_env =
            BTreeMap::from([("felix_logseverityscreen".into(), "debug".into()), ("HTTP_PROXY".into(), "p".into())]);
        let env = agent(&settings).felix.env;
        assert_eq!(env.get("FELIX_LOGSEVERITYSCREEN"), None);
        assert_eq!(env["felix_logseverityscreen"], "debug");
        assert_eq!(env["HTTP_PROXY"], "p");
    }

    #[test]
    fn felix_and_startup_use_the_vni_of_the_network() {
        let mut settings = settings("v3.30.3");
        settings.network.vni = 5000.try_into().unwrap();
        let agent = agent(&settings);
        assert_eq!((agent.vni.get(), agent.startup.env["VXLAN_VNI"].as_str()), (5000, "5000"));
        assert_eq!(agent.felix.env["FELIX_VXLANVNI"], "5000");
    }

    #[test]
    fn b25_etcd_without_a_kubeconfig_starts_up_and_uses_no_other_one() {
        let mut settings = settings("v3.32.1");
        settings.datastore = etcd();
        let agent = agent_config(&settings, None).unwrap();
        assert_eq!(agent.startup.args, ["-startup"]);
        assert_eq!(agent.startup.env["KUBECONFIG"], "");
        assert_eq!(agent.startup.env.get("CALICO_API_GROUP"), None);
        settings.network.backend = Backend::None;
        assert_eq!(agent_config(&settings, None).unwrap().startup.args, ["-startup", "-complete-startup"]);
    }

    #[test]
    fn the_api_group_is_set_from_v3_32_on() {
        let group = |version: &str| agent(&settings(version)).startup.env.get("CALICO_API_GROUP").cloned();
        assert_eq!(group("v3.31.7"), None);
        assert_eq!(group("v3.32.0").as_deref(), Some("crd.projectcalico.org/v1"));
        let mut v3 = settings("v3.33.0");
        v3.api_group = Some(ApiGroup::V3);
        assert_eq!(agent(&v3).felix.env["CALICO_API_GROUP"], "projectcalico.org/v3");
    }

    #[test]
    fn only_an_overlay_uses_an_adapter() {
        let mut settings = settings("v3.30.3");
        settings.network.adapter = Some("Ethernet 2".into());
        assert_eq!(agent(&settings).adapter.as_deref(), Some("Ethernet 2"));
        settings.network.backend = Backend::WindowsBgp;
        assert_eq!(agent(&settings).adapter, None);
    }
}
