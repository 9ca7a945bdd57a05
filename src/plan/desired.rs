//! Makes the wanted world from the settings.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result, bail};

use super::Target;
use super::kubernetes::{self, KubernetesFiles};
use super::order::all_services;
pub use super::wanted::Blob;
use super::wanted::Wanted;
use crate::calico::agent_config::{AgentConfig, FelixConfig};
use crate::calico::etcd::EtcdFiles;
use crate::calico::layout::{Build, Layout};
use crate::calico::services::Role;
use crate::calico::{cni, components, config_ps1, kube_proxy, networks, registry, services, static_rules};
use crate::item::{Access, Id, Manifest, RegValue, Service, State, Tree, World};
use crate::paths::{self, containerd};
use crate::settings::{Backend, Datastore, Settings, StaticRules};
use crate::values::{Sha256, WinPath};

/// Everything that determines what is wanted.
#[derive(Debug)]
pub struct Inputs<'a> {
    pub settings: &'a Settings,
    /// The staged release, without `config.ps1`, which is rendered.
    pub release: &'a Manifest,
    /// The program itself, to be installed.
    pub executable: &'a Sha256,
    pub kubeconfig: KubeconfigFile,
    /// Only if this program writes the settings' etcd files, as with those from a secret.
    pub etcd_files: Option<EtcdFiles>,
    /// The file with static rules that the settings name; none if it was not read, as in a plan for another machine.
    pub static_rules: Option<Vec<u8>>,
    /// kubelet and kube-proxy; none if the settings do not install them.
    pub kubernetes: Option<KubernetesFiles>,
}

/// The node's own kubeconfig.
pub enum KubeconfigFile {
    /// As [`crate::calico::kubeconfig::render`] wrote it.
    Rendered(Vec<u8>),
    /// There will be one, but a plan requests no token.
    Pending,
    /// None: only with an etcd datastore and the backend none.
    Absent,
}

impl fmt::Debug for KubeconfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rendered(_) => "Rendered(***)",
            Self::Pending => "Pending",
            Self::Absent => "Absent",
        })
    }
}

/// What is wanted, and the bytes that are not in the release. The store also needs the executable, and the files of the
/// release that are wanted outside its tree, which their digests identify.
#[derive(Debug)]
pub struct Desired {
    pub target: Target,
    /// The rendered files, to be stored.
    pub blobs: Vec<Blob>,
}

/// The world for these settings.
///
/// # Errors
/// When the version is not supported, the release lacks a file, the CNI overrides are not valid, or a kubeconfig is
/// missing that the datastore or the CNI plugin needs.
pub fn desired(inputs: &Inputs<'_>) -> Result<Desired> {
    let settings = inputs.settings;
    let root = &settings.calico.root;
    let needs_none = settings.datastore != Datastore::Kubernetes && settings.network.backend == Backend::None;
    if matches!(inputs.kubeconfig, KubeconfigFile::Absent) && !needs_none {
        bail!("only the datastore etcdv3 with the backend none needs no kubeconfig on the node");
    }
    let kubeconfig = match inputs.kubeconfig {
        KubeconfigFile::Absent => None,
        _ => Some(paths::kubeconfig(root)),
    };
    let kubeconfig = kubeconfig.as_ref();

    let mut wanted = Wanted { root, world: World::new(), blobs: Vec::new() };
    wanted.add(Id::Tree(root.clone()), State::Tree(Tree::Release(inputs.release.digest())));
    wanted.folders_above(root);
    wanted.folder(&settings.services.log_dir);

    let exe = WinPath::known(services::EXECUTABLE);
    wanted.digest(Id::File(exe), inputs.executable.clone(), Access::Inherited);
    match &inputs.kubeconfig {
        KubeconfigFile::Rendered(bytes) => {
            wanted.file(paths::kubeconfig(root), bytes.clone(), Access::Administrators);
        }
        KubeconfigFile::Pending => {
            wanted.digest(Id::File(paths::kubeconfig(root)), Sha256::unknown(), Access::Administrators);
        }
        KubeconfigFile::Absent => {}
    }
    if let (Datastore::Etcdv3 { tls: Some(tls), .. }, Some(files)) = (&settings.datastore, &inputs.etcd_files) {
        let parts =
            [(&tls.key_file, files.key.reveal()), (&tls.cert_file, &files.cert), (&tls.ca_cert_file, &files.ca_cert)];
        for (path, pem) in parts {
            wanted.file(path.clone(), pem.into(), Access::Administrators);
        }
    }
    // Both contain the user's extra variables, which may include a password.
    let (agent, felix) = components::agent_config(settings, kubeconfig)?.split_felix();
    wanted.json(AgentConfig::PATH, &agent)?;
    wanted.json(FelixConfig::PATH, &felix)?;
    wanted.file(paths::config_ps1(root), config_ps1::render(settings, kubeconfig), Access::Administrators);
    wanted.file(paths::nodename(root), settings.node_name.as_str().into(), Access::Inherited);
    match (static_rules::of(&settings.platform.static_rules), &inputs.static_rules) {
        (Some(rules), _) => wanted.file(paths::static_rules(root), rules.into(), Access::Inherited),
        (None, Some(file)) => wanted.file(paths::static_rules(root), file.clone(), Access::Inherited),
        (None, None) if settings.platform.static_rules != StaticRules::None => {
            wanted.digest(Id::File(paths::static_rules(root)), Sha256::unknown(), Access::Inherited);
        }
        (None, None) => {}
    }

    cni_files(inputs, &mut wanted, kubeconfig)?;

    wanted.add(registry::installed_by(), State::RegValue(RegValue::String("calicoctl-win".into())));
    wanted.world.extend(registry::event_source());
    for rule in services::firewall_rules(settings) {
        wanted.add(Id::Firewall(rule.display_name.clone()), State::Firewall(rule));
    }
    let mut started = networks(settings);
    let ours = match (&settings.kubernetes_node, &inputs.kubernetes) {
        (Some(node), Some(files)) => kubernetes::add(&mut wanted, settings, node, files, kubeconfig)?,
        _ => Vec::new(),
    };
    let runtime = Id::Service(containerd::NAME.into());
    let runtime = wanted.world.contains_key(&runtime).then_some(containerd::NAME);
    let names = ours.iter().map(|role| role.service()).chain(runtime);
    started.extend(names.map(|name| (Id::Running(name.into()), State::Running)));
    let services = services::services(settings.network.backend);
    // Upstream's upgrade service swaps the release by itself, and its CalicoConfd remains when the backend changes
    // (defect B15).
    let absent: BTreeSet<Id> = all_services()
        .filter(|name| !services.iter().any(|(wanted, _)| wanted == name))
        .flat_map(|name| [Id::Service(name.into()), Id::Running(name.into())])
        .collect();
    for (name, service) in services {
        wanted.add(Id::Service(name.into()), State::Service(Box::new(service)));
        started.push((Id::Running(name.into()), State::Running));
    }

    let Wanted { mut world, blobs, .. } = wanted;
    // `start: false` does not stop services: what runs keeps running, and keeps its network.
    let mut leave = BTreeSet::from(registry::agents_own());
    if ours.contains(&Role::Kubelet) {
        leave.extend(kubernetes::kubelets_own());
    }
    if settings.services.restart_kube_proxy && !ours.contains(&Role::KubeProxy) {
        leave.insert(Id::Running(kube_proxy::NAME.into()));
    }
    if settings.services.start {
        world.extend(started);
    } else {
        leave.extend(started.into_iter().map(|(id, _)| id));
    }
    Ok(Desired { target: Target { world, leave, absent, ..Target::default() }, blobs })
}

/// A service of another product that must have this definition while Calico is installed; uninstall restores the
/// original. It is stopped and started around a change, and otherwise left running or stopped.
pub fn manage_service_temporarily(target: &mut Target, name: &str, wanted: Service) {
    target.world.insert(Id::Service(name.into()), State::Service(Box::new(wanted)));
    target.leave.insert(Id::Running(name.into()));
}

/// The CNI plugins and their configuration. With the backend none they belong to another product.
fn cni_files(inputs: &Inputs<'_>, wanted: &mut Wanted<'_>, kubeconfig: Option<&WinPath>) -> Result<()> {
    let settings = inputs.settings;
    let layout = Layout::of(&settings.calico.version)?;
    let paths = || inputs.release.files.keys().map(String::as_str);
    layout.check(paths()).map_err(|missing| layout.refusal(&missing, Build::guess(paths())))?;
    if settings.network.backend == Backend::None {
        return Ok(());
    }
    for binary in layout.cni_binaries() {
        let mut files = inputs.release.files.iter();
        let (_, file) = files
            .find(|(path, _)| path.eq_ignore_ascii_case(binary.source))
            .with_context(|| format!("find {} in the release", binary.source))?;
        wanted.digest(Id::File(settings.cni.bin_dir.join(binary.name)), file.sha256.clone(), Access::Inherited);
    }
    let conf = cni::render(settings, kubeconfig)?;
    wanted.bytes(Id::CniConf(settings.cni.conf_dir.join(&settings.cni.conf_file)), conf, Access::Inherited);
    Ok(())
}

/// The wanted network of the pods; none with the backend none.
pub fn pod_network(settings: &Settings) -> Option<(Id, State)> {
    let wanted = networks::pods(settings.network.backend, settings.network.vni)?;
    Some((Id::Network(networks::PODS.into()), State::Network(wanted)))
}

/// The networks that CalicoNode creates when it runs.
fn networks(settings: &Settings) -> Vec<(Id, State)> {
    let network = &settings.network;
    [
        (networks::BOOTSTRAP, networks::bootstrap(network.backend, components::adapter(settings))),
        (networks::PODS, networks::pods(network.backend, network.vni)),
    ]
    .into_iter()
    .filter_map(|(name, wanted)| Some((Id::Network(name.into()), State::Network(wanted?))))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::testing::{etcd, settings};
    use crate::fault::{Exit, Fault};
    use crate::item::ManifestFile;
    use crate::values::Secret;

    fn release(settings: &Settings) -> Manifest {
        let file = |path: &str| ManifestFile { size: 1, sha256: Sha256::of(path.as_bytes()) };
        let layout = Layout::of(&settings.calico.version).unwrap();
        Manifest {
            version: settings.calico.version.to_string(),
            archive: None,
            files: layout.required().map(|path| (path.to_owned(), file(path))).collect(),
        }
    }

    fn wanted_with(settings: &Settings, kubeconfig: KubeconfigFile) -> Result<Desired> {
        desired(&Inputs {
            settings,
            release: &release(settings),
            executable: &Sha256::of(b"exe"),
            kubeconfig,
            etcd_files: Some(EtcdFiles {
                key: Secret::new("k3y"),
                cert: "certificate".into(),
                ca_cert: "authority".into(),
            }),
            static_rules: None,
            kubernetes: None,
        })
    }

    fn wanted(settings: &Settings) -> Desired {
        wanted_with(settings, KubeconfigFile::Rendered(b"kubeconfig with t0ken".to_vec())).unwrap()
    }

    fn list(desired: &Desired) -> String {
        let line = |(id, state): (&Id, &State)| match state {
            State::File { access: Access::Administrators, .. } => format!("{id} (administrators)"),
            State::Network(n) => format!("{id} {:?} vsid={:?} adapter={:?}", n.kind, n.vsid, n.adapter),
            _ => id.to_string(),
        };
        desired.target.world.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_vxlan_node_has_all_of_this() {
        insta::assert_snapshot!(list(&wanted(&settings("v3.30.3"))), @r"
        folder C:\Program Files\calicoctl-win
        folder C:\Program Files\containerd
        folder C:\Program Files\containerd\cni
        folder C:\Program Files\containerd\cni\bin
        folder C:\Program Files\containerd\cni\conf
        release C:\CalicoWindows
        file C:\CalicoWindows\calico-kube-config (administrators)
        file C:\CalicoWindows\config.ps1 (administrators)
        file C:\CalicoWindows\nodename
        file C:\Program Files\calicoctl-win\calicoctl-win.exe
        file C:\Program Files\containerd\cni\bin\calico-ipam.exe
        file C:\Program Files\containerd\cni\bin\calico.exe
        file C:\ProgramData\calicoctl-win\felix.json (administrators)
        file C:\ProgramData\calicoctl-win\services.json (administrators)
        registry HKLM\SYSTEM\CurrentControlSet\Services\EventLog\Application\calicoctl-win\EventMessageFile
        registry HKLM\SYSTEM\CurrentControlSet\Services\EventLog\Application\calicoctl-win\TypesSupported
        registry HKLM\Software\Tigera\Calico\InstalledBy
        firewall Overlay Traffic 4789 UDP
        firewall kubectl exec 10250
        service CalicoFelix
        service CalicoNode
        hns-network Calico Overlay vsid=Some(4096) adapter=None
        hns-network External Overlay vsid=Some(9999) adapter=None
        file C:\Program Files\containerd\cni\conf\10-calico.conf
        running CalicoFelix
        running CalicoNode
        ");
    }

    #[test]
    fn a_policy_only_aks_node_has_no_cni_and_no_network() {
        let mut settings = settings("v3.33.0");
        settings.network.backend = Backend::None;
        settings.platform.static_rules = StaticRules::Aks;
        insta::assert_snapshot!(list(&wanted(&settings)), @r"
        folder C:\Program Files\calicoctl-win
        release C:\CalicoWindows
        file C:\CalicoWindows\calico-kube-config (administrators)
        file C:\CalicoWindows\config.ps1 (administrators)
        file C:\CalicoWindows\nodename
        file C:\CalicoWindows\static-rules.json
        file C:\Program Files\calicoctl-win\calicoctl-win.exe
        file C:\ProgramData\calicoctl-win\felix.json (administrators)
        file C:\ProgramData\calicoctl-win\services.json (administrators)
        registry HKLM\SYSTEM\CurrentControlSet\Services\EventLog\Application\calicoctl-win\EventMessageFile
        registry HKLM\SYSTEM\CurrentControlSet\Services\EventLog\Application\calicoctl-win\TypesSupported
        registry HKLM\Software\Tigera\Calico\InstalledBy
        service CalicoFelix
        service CalicoNode
        running CalicoFelix
        running CalicoNode
        ");
    }

    #[test]
    fn a_bgp_node_has_confd_and_bridges() {
        let mut settings = settings("v3.32.1");
        settings.network.backend = Backend::WindowsBgp;
        settings.network.adapter = Some("Ethernet".into());
        let list = list(&wanted(&settings));
        for line in [
            "service CalicoConfd",
            "running CalicoConfd",
            "hns-network External L2Bridge vsid=None adapter=None",
            "hns-network Calico L2Bridge vsid=None adapter=None",
        ] {
            assert!(list.lines().any(|l| l == line), "{line}\n{list}");
        }
        assert!(!list.contains("4789"), "{list}");
    }

    #[test]
    fn the_vni_and_the_adapter_are_set_in_the_networks() {
        let mut settings = settings("v3.30.3");
        settings.network.vni = 5000.try_into().unwrap();
        settings.network.adapter = Some("Ethernet 2".into());
        let list = list(&wanted(&settings));
        assert!(list.contains("Calico Overlay vsid=Some(5000) adapter=None"), "{list}");
        assert!(list.contains("External Overlay vsid=Some(9999) adapter=Some(\"Ethernet 2\")"), "{list}");
    }

    #[test]
    fn a_new_vni_changes_the_network_and_the_files_with_the_vni() {
        let old = settings("v3.30.3");
        let mut new = old.clone();
        new.network.vni = 5000.try_into().unwrap();
        let (old, new) = (wanted(&old).target.world, wanted(&new).target.world);
        let changed: Vec<String> =
            new.iter().filter(|(id, state)| old.get(id) != Some(state)).map(|(id, _)| id.to_string()).collect();
        insta::assert_snapshot!(changed.join("\n"), @r"
        file C:\CalicoWindows\config.ps1
        file C:\ProgramData\calicoctl-win\felix.json
        file C:\ProgramData\calicoctl-win\services.json
        hns-network Calico
        file C:\Program Files\containerd\cni\conf\10-calico.conf
        ");
    }

    #[test]
    fn a_log_level_changes_only_felix() {
        let old = settings("v3.30.3");
        let mut new = old.clone();
        new.services.felix_log_severity = Some("debug".into());
        let (old, new) = (wanted(&old).target.world, wanted(&new).target.world);
        let changed: Vec<&Id> = new.iter().filter(|(id, state)| old.get(id) != Some(state)).map(|(id, _)| id).collect();
        let read = |service: &str| changed.iter().any(|id| super::super::order::reads(service, id));
        assert_eq!(["CalicoNode", "CalicoFelix", "CalicoConfd"].map(read), [false, true, false], "{changed:?}");
    }

    #[test]
    fn without_start_nothing_is_started_and_nothing_stopped() {
        let mut settings = settings("v3.30.3");
        settings.services.start = false;
        let target = wanted(&settings).target;
        assert!(!target.world.keys().any(|id| matches!(id, Id::Running(_) | Id::Network(_))));
        assert!(target.leave.contains(&Id::Running("CalicoFelix".into())));
        assert!(target.leave.contains(&Id::Network("Calico".into())));
    }

    #[test]
    fn every_digest_has_its_bytes_and_no_bytes_print() {
        let mut settings = settings("v3.33.0");
        settings.datastore = etcd();
        let desired = wanted(&settings);
        let mut there: BTreeSet<&Sha256> = desired.blobs.iter().map(Blob::sha256).collect();
        let release = release(&settings);
        there.extend(release.files.values().map(|file| &file.sha256));
        for (id, state) in &desired.target.world {
            if let State::File { sha256, .. } = state {
                assert!(there.contains(sha256) || *sha256 == Sha256::of(b"exe"), "{id}");
            }
        }
        assert!(desired.blobs.iter().all(|blob| Sha256::of(blob.bytes()) == *blob.sha256()));
        let shown = format!("{desired:?}{:?}", KubeconfigFile::Rendered(b"t0ken".to_vec()));
        for secret in ["t0ken", "k3y", "116, 48, 107"] {
            assert!(!shown.contains(secret), "{secret}");
        }
    }

    #[test]
    fn from_v3_33_both_cni_plugins_are_one_file() {
        let settings = settings("v3.33.0");
        let desired = wanted(&settings);
        let state = |name: &str| desired.target.world[&Id::File(settings.cni.bin_dir.join(name))].clone();
        assert_eq!(state("calico.exe"), state("calico-ipam.exe"));
    }

    #[test]
    fn etcd_files_from_a_secret_are_for_administrators_only() {
        let mut settings = settings("v3.30.3");
        settings.datastore = etcd();
        let list = list(&wanted(&settings));
        for name in ["server.key", "server.crt", "ca.crt"] {
            assert!(list.contains(&format!(r"C:\CalicoWindows\etcd-tls\{name} (administrators)")), "{list}");
        }
    }

    #[test]
    fn a_plan_needs_no_token_and_policy_only_with_etcd_needs_no_kubeconfig() {
        let mut settings = settings("v3.30.3");
        let file = Id::File(paths::kubeconfig(&settings.calico.root));
        let plan = wanted_with(&settings, KubeconfigFile::Pending).unwrap();
        let unknown = State::File { sha256: Sha256::unknown(), access: Access::Administrators };
        assert_eq!(plan.target.world[&file], unknown);
        assert!(wanted_with(&settings, KubeconfigFile::Absent).is_err());
        settings.datastore = etcd();
        assert!(wanted_with(&settings, KubeconfigFile::Absent).is_err(), "the CNI plugin needs it");
        settings.network.backend = Backend::None;
        let without = wanted_with(&settings, KubeconfigFile::Absent).unwrap();
        assert!(!without.target.world.contains_key(&file));
    }

    #[test]
    fn a_release_without_a_plugin_is_refused() {
        let settings = settings("v3.30.3");
        let mut release = release(&settings);
        release.files.remove("cni/calico-ipam.exe");
        let error = desired(&Inputs {
            settings: &settings,
            release: &release,
            executable: &Sha256::of(b"exe"),
            kubeconfig: KubeconfigFile::Pending,
            etcd_files: None,
            static_rules: None,
            kubernetes: None,
        })
        .unwrap_err();
        let fault = Fault::of(&error).unwrap();
        assert_eq!(fault.exit, Exit::ReleaseInvalid);
        assert!(fault.what.contains("cni/calico-ipam.exe"), "{}", fault.what);
    }

    #[test]
    fn the_same_settings_give_the_same_world() {
        let settings = settings("v3.32.1");
        assert_eq!(wanted(&settings).target, wanted(&settings).target);
    }
}
