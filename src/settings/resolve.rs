//! Makes the settings from config and facts. All defaults are here.

use anyhow::Result;

use super::network::{kubernetes, network};
use super::resolver::{Resolver, filled};
use super::{
    Backend, Calico, Cni, Datastore, EtcdTls, FieldOrigin, Platform, Provider, Resolved, RunSettings, SecretRef,
    Settings, Source, connection, maintenance, services,
};
use crate::config::spec::{DatastoreType, SourceType, Spec, StaticRules};
use crate::config::types::{Auto, ConfFile, NodeNameText, WebUrl};
use crate::config::{Layered, Origin, fault};
use crate::facts::{ClusterFacts, MetadataRoute, NodeFacts, RuntimeKind};
use crate::fault::{Exit, Fault};
use crate::paths::{ETCD_TLS, STATE_DIR};
use crate::values::{NodeName, WinPath};
use crate::version::CalicoVersion;

/// The URL of the zip that the project publishes (reference: release assets of projectcalico/calico).
const RELEASE_URL: &str =
    "https://github.com/projectcalico/calico/releases/download/{version}/calico-windows-{version}.zip";

/// Decides everything. `cluster` is none if the plan is made without one.
///
/// # Errors
/// A [`Fault`]: `ConfigInvalid` with all findings, or `Ipip` if that is the only one.
pub fn resolve(layered: &Layered, node: &NodeFacts, cluster: Option<&ClusterFacts>) -> Result<Resolved> {
    let mut to = Resolver::new(layered);
    let config = &layered.config;
    let spec = &config.spec;
    to.optional("metadata.name", filled(&config.metadata.name));
    let version = version(&mut to, spec);
    let calico = calico(&mut to, spec, version);
    refuse_other_volume(&mut to, &calico.root);
    let provider = to.decide("spec.kubernetesProvider", connection::provider(layered), || match &node.cloud {
        Some(cloud) => (cloud.provider, Origin::Detected(cloud.evidence.clone())),
        None if cluster.is_some_and(|cluster| cluster.openshift) => {
            (Provider::OpenShift, Origin::Detected("the API group config.openshift.io".into()))
        }
        None => (Provider::None, Origin::Default),
    });
    let connection = connection::decide(layered, node.cloud.as_ref(), &mut to);
    let node_name = node_name(&mut to, spec, node, cluster, provider);
    let kubernetes = kubernetes(&mut to, spec, cluster);
    let create_token_secret =
        to.decide("spec.kubernetes.createServiceAccountToken", spec.kubernetes.create_service_account_token, || {
            (creates_token_secret(spec), Origin::Default)
        });
    let calico_kubeconfig = to.optional("spec.kubernetes.calicoKubeconfig", filled(&spec.kubernetes.calico_kubeconfig));
    let (network, ipip) = network(&mut to, spec, provider, &node.adapters, cluster);
    let (datastore, etcd_tls_secret) = datastore(&mut to, spec, &calico.root, &kubernetes.calico_namespace);
    let cni = cni(&mut to, spec, node);
    refuse_networks_per_block(&mut to, spec, network.backend);
    let services = services::decide(&mut to, spec);
    let platform = platform(&mut to, spec, provider, network.backend);
    let dsr = dsr(&mut to, spec, node);
    let maintenance = maintenance::decide(&mut to, spec);
    maintenance::decide_reboot(&mut to, spec);
    to.or_default("spec.preflight.remoteAccess", spec.preflight.remote_access.clone(), Vec::new());
    to.or_default("spec.preflight.ignore", spec.preflight.ignore.clone(), Vec::new());

    if let (Some(reason), true) = (&ipip, to.findings.is_empty()) {
        return Err(ipip_fault(reason).into());
    }
    if let Some(reason) = &ipip {
        to.wrong("spec.calicoNetwork.backend", reason);
    }
    if !to.findings.is_empty() {
        return Err(fault(&to.findings));
    }
    to.origins.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Resolved {
        settings: Settings {
            calico,
            provider,
            node_name,
            kubernetes,
            network,
            datastore,
            cni,
            services,
            platform,
            runtime: node.runtime.as_ref().map_or(RuntimeKind::Containerd, |runtime| runtime.kind),
            dsr,
            api_group: cluster.map(|cluster| cluster.api_group),
        },
        run: RunSettings { connection, create_token_secret, calico_kubeconfig, etcd_tls_secret, maintenance },
        origins: to.origins,
        warnings: to.warnings,
    })
}

/// CalicoNode makes and proves the one network `Calico`. With the option off, the CNI plugin makes others beside it, one
/// per address block, that node startup and the VXLAN routes know nothing of.
fn refuse_networks_per_block(to: &mut Resolver<'_>, spec: &Spec, backend: Backend) {
    if backend != Backend::None && spec.calico_network.windows_use_single_network == Some(false) {
        let why = "pods would be on networks Calico-a-b-c-d, one per address block, which Calico's node startup and this \
                   program neither make nor check: leave it out, so that they are on the network Calico";
        to.wrong("spec.calicoNetwork.windowsUseSingleNetwork", why);
    }
}

/// A release is swapped in by renaming its folder, which Windows does within a volume only. What was there and what
/// comes lie in the state folder.
fn refuse_other_volume(to: &mut Resolver<'_>, root: &WinPath) {
    let volume = |path: &str| path.get(..2).unwrap_or_default().to_lowercase();
    let ours = volume(STATE_DIR);
    if volume(root.as_str()) != ours {
        let ours = ours.to_uppercase();
        let why =
            format!("{root} is not on {ours}, where the releases are kept: a folder is swapped only within a volume");
        to.wrong("spec.calico.rootDir", why);
    }
}

/// The root folder of Calico, installed or not.
pub fn root_dir(spec: &Spec) -> WinPath {
    spec.calico.root_dir.clone().unwrap_or_else(|| WinPath::known(r"C:\CalicoWindows"))
}

/// Whether the token secret may be created if there is none.
pub fn creates_token_secret(spec: &Spec) -> bool {
    spec.kubernetes.create_service_account_token.unwrap_or(true)
}

/// The effective config as a document that gives the same settings again, whatever the cluster answers later.
pub fn to_config_document(resolved: &Resolved) -> String {
    let mut document = serde_json::json!({ "apiVersion": "calicoctl-win/v1alpha1", "kind": "NodeInstallation" });
    for FieldOrigin { path, value, .. } in resolved.origins.iter().filter(|field| !field.value.is_null()) {
        let pointer = path.split('.').fold(&mut document, |here, part| &mut here[part]);
        *pointer = value.clone();
    }
    serde_yaml::to_string(&document).expect("plain values can be written as YAML")
}

/// The release that a config names, without asking node or cluster: to download it in advance.
///
/// # Errors
/// A [`Fault`] `ConfigInvalid` with all findings.
pub fn release(layered: &Layered) -> Result<Calico> {
    let mut to = Resolver::new(layered);
    let version = version(&mut to, &layered.config.spec);
    let calico = calico(&mut to, &layered.config.spec, version);
    if to.findings.is_empty() { Ok(calico) } else { Err(fault(&to.findings)) }
}

fn ipip_fault(reason: &str) -> Fault {
    Fault::new(Exit::PreflightFailed, "Ipip", format!("{reason}: Windows nodes cannot do IP-in-IP"))
        .hint("move the IP pools to VXLAN (ipipMode: Never, vxlanMode: Always), or set spec.calicoNetwork.backend")
}

fn version(to: &mut Resolver<'_>, spec: &Spec) -> CalicoVersion {
    let path = "spec.calico.version";
    if spec.calico.version.is_none() {
        to.wrong(path, "which Calico release to install is not given; set spec.calico.version or use --release");
    }
    to.or_default(path, spec.calico.version.clone(), CalicoVersion::new(0, 0, 0))
}

fn calico(to: &mut Resolver<'_>, spec: &Spec, version: CalicoVersion) -> Calico {
    const PATH: &str = "spec.calico.source.path";
    const URL: &str = "spec.calico.source.urlTemplate";
    let given = &spec.calico.source;
    let path = filled(&given.path);
    let url = given.url_template.as_ref().map(WebUrl::as_str).filter(|url| !url.is_empty()).map(str::to_owned);
    let kind = to.or_default(
        "spec.calico.source.type",
        given.kind,
        match (&path, &url) {
            (Some(path), _) if path.to_lowercase().ends_with(".zip") => SourceType::Bundle,
            (Some(_), _) => SourceType::Directory,
            (None, Some(_)) => SourceType::Mirror,
            (None, None) => SourceType::Release,
        },
    );
    let source = match kind {
        SourceType::Bundle | SourceType::Directory => {
            let path = to.optional(PATH, path).unwrap_or_default();
            to.optional::<String>(URL, None);
            if kind == SourceType::Bundle { Source::File(path) } else { Source::Directory(path) }
        }
        SourceType::Release | SourceType::Mirror => {
            to.optional::<String>(PATH, None);
            let template = to.or_default(URL, url, RELEASE_URL.to_owned());
            Source::Url(template.replace("{version}", &version.to_string()))
        }
    };
    Calico {
        version,
        source,
        sha256: to.optional("spec.calico.source.sha256", given.sha256.clone()),
        root: to.decide("spec.calico.rootDir", spec.calico.root_dir.clone(), || (root_dir(spec), Origin::Default)),
    }
}

fn node_name(
    to: &mut Resolver<'_>,
    spec: &Spec,
    node: &NodeFacts,
    cluster: Option<&ClusterFacts>,
    provider: Provider,
) -> NodeName {
    let path = "spec.kubernetes.nodeName";
    let given = spec.kubernetes.node_name.clone().and_then(Auto::given).map(|NodeNameText(name)| name);
    let host_name = node.host_name.to_lowercase();
    let instance = node.cloud.as_ref().and_then(|cloud| cloud.instance_name.as_deref());
    let instance = instance.and_then(|name| name.parse::<NodeName>().ok());
    let known = cluster.and_then(|cluster| cluster.node.as_ref()).map(|node| node.name.clone());
    // If the cluster has a Node with the host name, kubelet chose that name.
    if let (None, Some(instance)) = (&given, instance)
        && known.as_deref() != Some(host_name.as_str())
    {
        return to.decide(path, None, || (instance, Origin::Detected("instance metadata".into())));
    }
    // On some clouds the Node often has the instance's DNS name, which Windows does not know.
    if given.is_none() && provider.brings().names_nodes && cluster.is_none_or(|cluster| cluster.node.is_none()) {
        to.warn(
            "NodeNameFromHostName",
            format!(
                "the node is taken to be `{host_name}`, the host name; if Kubernetes calls it otherwise, set {path}"
            ),
        );
    }
    let detected = host_name.parse::<NodeName>();
    if let (None, Err(problem)) = (&given, &detected) {
        to.wrong(path, format!("the host name cannot be the node's name: {problem}"));
    }
    // The placeholder is never used: the finding above ends the run.
    let detected = detected.unwrap_or_else(|_| "unknown".parse().expect("a plain word is a name"));
    to.decide(path, given, || (detected, Origin::Detected("host name".into())))
}

fn datastore(
    to: &mut Resolver<'_>,
    spec: &Spec,
    root: &WinPath,
    calico_namespace: &str,
) -> (Datastore, Option<SecretRef>) {
    let given = &spec.datastore;
    let kind = to.or_default("spec.datastore.type", given.kind, DatastoreType::Kubernetes);
    let endpoints = to.optional("spec.datastore.etcd.endpoints", given.etcd.endpoints.clone());
    let key = to.optional("spec.datastore.etcd.keyFile", given.etcd.key_file.clone());
    let cert = to.optional("spec.datastore.etcd.certFile", given.etcd.cert_file.clone());
    let ca = to.optional("spec.datastore.etcd.caCertFile", given.etcd.ca_cert_file.clone());
    let secret_name = to.optional("spec.datastore.etcd.tlsSecretRef.name", filled(&given.etcd.tls_secret_ref.name));
    let namespace = "spec.datastore.etcd.tlsSecretRef.namespace";
    let secret = match (secret_name, filled(&given.etcd.tls_secret_ref.namespace)) {
        (Some(name), own) => {
            let namespace = to.or_default(namespace, own, calico_namespace.to_owned());
            Some(SecretRef { namespace, name })
        }
        (None, own) => {
            to.optional(namespace, own);
            None
        }
    };
    if kind == DatastoreType::Kubernetes {
        return (Datastore::Kubernetes, None);
    }
    let files = match (key, cert, ca) {
        (Some(key_file), Some(cert_file), Some(ca_cert_file)) => Some(EtcdTls { key_file, cert_file, ca_cert_file }),
        _ => secret.as_ref().map(|_| {
            // The names of the secret's contents in Calico's own scripts.
            let dir = root.join(ETCD_TLS);
            EtcdTls {
                key_file: dir.join("server.key"),
                cert_file: dir.join("server.crt"),
                ca_cert_file: dir.join("ca.crt"),
            }
        }),
    };
    let endpoints = endpoints.unwrap_or_default().iter().map(ToString::to_string).collect();
    (Datastore::Etcdv3 { endpoints, tls: files }, secret)
}

fn cni(to: &mut Resolver<'_>, spec: &Spec, node: &NodeFacts) -> Cni {
    let given = &spec.windows_nodes;
    let network = &spec.calico_network;
    let dir = |found: Option<&WinPath>, usual: &str| match (found, &node.runtime) {
        (Some(dir), Some(runtime)) => {
            let by = if runtime.kind == RuntimeKind::Containerd { "containerd" } else { "docker" };
            (dir.clone(), Origin::Detected(by.into()))
        }
        _ => (WinPath::known(usual), Origin::Default),
    };
    let runtime = node.runtime.as_ref();
    let bin_dir = to.decide("spec.windowsNodes.cniBinDir", given.cni_bin_dir.clone().and_then(Auto::given), || {
        dir(runtime.map(|runtime| &runtime.cni_bin_dir), r"C:\k\cni")
    });
    let conf_dir =
        to.decide("spec.windowsNodes.cniConfigDir", given.cni_config_dir.clone().and_then(Auto::given), || {
            dir(runtime.map(|runtime| &runtime.cni_conf_dir), r"C:\k\cni\config")
        });
    let conf_file = to.or_default(
        "spec.windowsNodes.cniConfigFile",
        given.cni_config_file.clone(),
        "10-calico.conf".parse::<ConfFile>().expect("a literal name is right"),
    );
    let log_dir = to.optional("spec.windowsNodes.cniLogDir", given.cni_log_dir.clone());
    let mut overrides = to.or_default(
        "spec.calicoNetwork.cniConfigOverrides",
        network.cni_config_overrides.clone(),
        serde_json::Map::new(),
    );
    if let Some(dir) = log_dir {
        overrides.entry("log_file_path").or_insert_with(|| dir.join("cni.log").as_str().into());
    }
    Cni {
        bin_dir,
        conf_dir,
        conf_file: conf_file.as_str().to_owned(),
        log_level: services::level(to, "spec.windowsNodes.cniLogLevel", given.cni_log_level),
        single_network: to.or_default(
            "spec.calicoNetwork.windowsUseSingleNetwork",
            network.windows_use_single_network,
            true,
        ),
        overrides: overrides.into(),
    }
}

fn platform(to: &mut Resolver<'_>, spec: &Spec, provider: Provider, backend: Backend) -> Platform {
    let given = &spec.platform;
    let rules = given.static_rules.filter(|rules| *rules != StaticRules::Auto);
    let brings = provider.brings();
    let detected = || Origin::Detected(format!("provider {}", brings.name));
    let rules = to.decide("spec.platform.staticRules", rules, || match brings.wireserver {
        true => (StaticRules::Aks, detected()),
        false => (StaticRules::None, Origin::Default),
    });
    let route = given.preserve_metadata_route.clone().and_then(Auto::given);
    let metadata_route = to.decide("spec.platform.preserveMetadataRoute", route, || match brings.metadata_route {
        MetadataRoute::Lost => (true, detected()),
        MetadataRoute::LostToVSwitch if backend != Backend::None => (true, detected()),
        _ => (false, Origin::Default),
    });
    Platform {
        static_rules: rules == StaticRules::Aks,
        metadata_route,
        firewall_kubectl_exec: to.or_default(
            "spec.platform.firewallKubectlExec",
            given.firewall_kubectl_exec,
            backend != Backend::None,
        ),
    }
}

fn dsr(to: &mut Resolver<'_>, spec: &Spec, node: &NodeFacts) -> bool {
    let given = spec.calico_network.windows_loopback_dsr.clone().and_then(Auto::given);
    to.decide("spec.calicoNetwork.windowsLoopbackDSR", given, || match node.hns {
        Some(hns) => (hns.supports_dsr(), Origin::Detected(format!("HNS {}.{}", hns.major, hns.minor))),
        None => (node.os.supports_dsr(), Origin::Detected(format!("Windows build {}.{}", node.os.build, node.os.ubr))),
    })
}

#[cfg(test)]
mod tests;
