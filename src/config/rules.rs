//! Rules between the fields of one config. Rules that need the node or the cluster are in [`crate::settings`].

use super::errors::Finding;
use super::keywords::Credentials;
use super::spec::{DatastoreType, SourceType};
use super::types::EtcdEndpoint;
use super::{Layered, Origin};
use crate::values::{NodeName, has_login, may_be_secret};

pub const API_VERSION: &str = "calicoctl-win/v1alpha1";
pub const KIND: &str = "NodeInstallation";

/// Variables of Calico that a field decides, which other parts of the installation read: the HNS network, the routes of
/// Felix and the checks would differ.
const OF_FIELDS: [(&str, &str); 5] = [
    ("VXLAN_VNI", "calicoNetwork.vxlan.vxlanVNI"),
    ("FELIX_VXLANVNI", "calicoNetwork.vxlan.vxlanVNI"),
    ("CALICO_NETWORKING_BACKEND", "calicoNetwork.backend"),
    ("NODENAME", "kubernetes.nodeName"),
    ("FELIX_FELIXHOSTNAME", "kubernetes.nodeName"),
];

/// Every contradiction in the config.
pub fn check(layered: &Layered) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut wrong = |path: &str, problem: String| {
        let from = layered.nearest_origin(path).unwrap_or(&Origin::Default);
        findings.push(Finding::new(from, path, problem));
    };
    let config = &layered.config;
    let spec = &config.spec;
    for (path, found, expected) in [("apiVersion", &config.api_version, API_VERSION), ("kind", &config.kind, KIND)] {
        if let Some(found) = found.as_ref().filter(|found| *found != expected) {
            wrong(path, format!("`{found}` is not known to this version, which reads `{expected}`"));
        }
    }

    let network = &spec.calico_network;
    if let (Some(backend), Some(ipam)) = (network.backend.0, network.ipam.kind)
        && let Err(why) = backend.takes(ipam)
    {
        wrong("spec.calicoNetwork.ipam.type", why.into());
    }
    if spec.transport.timeout.as_ref().is_some_and(|timeout| timeout.length().is_zero()) {
        wrong("spec.transport.timeout", "a timeout of 0 allows no answer; set at least 1s".into());
    }
    for cidr in spec.kubernetes.service_cidrs.iter().flatten() {
        if cidr.addr() != cidr.network() {
            let meant = cidr.trunc();
            wrong("spec.kubernetes.serviceCIDRs", format!("`{cidr}` is an address within a network; write {meant}"));
        }
    }
    for (name, value) in spec.services.extra_env.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) {
            wrong("spec.services.extraEnv", format!("`{name}` cannot be the name of an environment variable"));
        }
        if let Some((_, field)) = OF_FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            wrong("spec.services.extraEnv", format!("`{name}` is decided by spec.{field}: set that instead"));
        }
        if may_be_secret(name) || has_login(value) {
            let problem = format!(
                "`{name}` may be a secret, which config.ps1 and services.json would have in clear: for etcd, use a client \
                 certificate (datastore.etcd)"
            );
            wrong("spec.services.extraEnv", problem);
        }
    }
    if let Some(name) = spec.kubernetes.calico_namespace.0.as_deref().filter(|name| !is_dns_label(name)) {
        let problem = format!("`{name}` is not a namespace: lower-case letters, digits and `-`, 63 at most");
        wrong("spec.kubernetes.calicoNamespace", problem);
    }
    if spec.kubernetes.node_name.0.as_ref().is_some_and(|name| name.as_str() == "imds") {
        let problem = "this version does not read the node's name from the cloud; set the name that `kubectl get nodes` \
                       shows";
        wrong("spec.kubernetes.nodeName", problem.into());
    }
    let kubernetes = &spec.kubernetes;
    let own = "spec.kubernetes.calicoKubeconfig";
    match (kubernetes.credentials, kubernetes.calico_kubeconfig.as_deref().unwrap_or_default()) {
        (Some(Credentials::Kubeconfig), "") => {
            wrong(own, "the credentials `kubeconfig` require a file for the node".into());
        }
        (Some(Credentials::Kubeconfig), _) | (_, "") => {}
        _ => wrong(own, "this file needs spec.kubernetes.credentials: kubeconfig".into()),
    }
    source(layered, &mut wrong);
    datastore(layered, &mut wrong);
    findings
}

/// The fields that name one machine, which a config of many cannot have.
pub fn of_one_machine(layered: &Layered) -> Vec<Finding> {
    let spec = &layered.config.spec;
    let address = spec.calico_network.node_address.as_ref();
    let named = [
        ("spec.kubernetes.nodeName", spec.kubernetes.node_name.0.is_some()),
        ("spec.kubernetes.node.nodeIP", spec.kubernetes.node.node_ip.0.is_some()),
        // Else it is a method, which finds each machine's own.
        (
            "spec.calicoNetwork.nodeAddress",
            address.is_some_and(|one| one.as_str().starts_with(|c: char| c.is_ascii_digit())),
        ),
    ];
    let of_one = named.into_iter().filter(|(_, is_named)| *is_named).map(|(path, _)| {
        let from = layered.nearest_origin(path).unwrap_or(&Origin::Default);
        let problem = "this is one machine's, and every node of the fleet would get it; leave it out, and each node detects \
                       its own";
        Finding::new(from, path, problem)
    });
    of_one.collect()
}

/// A label is a DNS name without dots.
fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && name.parse::<NodeName>().is_ok()
}

fn source(layered: &Layered, wrong: &mut impl FnMut(&str, String)) {
    const BASE: &str = "spec.calico.source";
    let source = &layered.config.spec.calico.source;
    let has_path = source.path.as_ref().is_some_and(|path| !path.is_empty());
    let has_url = source.url_template.as_ref().is_some_and(|url| !url.as_str().is_empty());
    let local = matches!(source.kind, Some(SourceType::Bundle | SourceType::Directory));
    match source.kind {
        Some(SourceType::Mirror) if !has_url => {
            wrong(&format!("{BASE}.urlTemplate"), "the source type mirror needs the URL of the mirror".into());
        }
        Some(_) if local && !has_path => {
            wrong(&format!("{BASE}.path"), "the source types bundle and directory need a path".into());
        }
        _ => {}
    }
    if has_url && (local || (source.kind.is_none() && has_path)) {
        wrong(&format!("{BASE}.urlTemplate"), "set a path or a URL for the release, not both".into());
    } else if has_path && source.kind.is_some() && !local {
        wrong(&format!("{BASE}.path"), "a path needs the source type bundle or directory".into());
    }
}

fn datastore(layered: &Layered, wrong: &mut impl FnMut(&str, String)) {
    const BASE: &str = "spec.datastore.etcd";
    let etcd = &layered.config.spec.datastore.etcd;
    if layered.config.spec.datastore.kind != Some(DatastoreType::Etcdv3) {
        if layered.origin(BASE).is_some() {
            wrong(BASE, "these fields need spec.datastore.type: etcdv3".into());
        }
        return;
    }
    if etcd.endpoints.as_ref().is_none_or(Vec::is_empty) {
        wrong(
            &format!("{BASE}.endpoints"),
            "the datastore etcdv3 requires endpoints, for example [https://etcd-0:2379]".into(),
        );
    }
    let files = [("keyFile", &etcd.key_file), ("certFile", &etcd.cert_file), ("caCertFile", &etcd.ca_cert_file)];
    let (given, missing): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, file)| file.is_some());
    let names = |files: &[(&str, _)]| files.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ");
    let secret = &etcd.tls_secret_ref;
    if secret.name.is_none() && secret.namespace.is_some() {
        wrong(&format!("{BASE}.tlsSecretRef"), "the secret's name is missing".into());
    }
    match given.first() {
        Some((first, _)) if secret.name.is_some() => {
            wrong(&format!("{BASE}.{first}"), "set files or tlsSecretRef for the certificates, not both".into());
        }
        Some((first, _)) if !missing.is_empty() => {
            wrong(
                &format!("{BASE}.{first}"),
                format!("etcd needs all of its TLS files or none; {} missing", names(&missing)),
            );
        }
        None if secret.name.is_none() && secret.namespace.is_none() => {
            let secure = |endpoint: &&EtcdEndpoint| endpoint.to_string().starts_with("https:");
            if let Some(endpoint) = etcd.endpoints.iter().flatten().find(secure) {
                // Without the CA, whether the server is etcd cannot be verified.
                wrong(
                    &format!("{BASE}.endpoints"),
                    format!(
                        "{endpoint} needs keyFile, certFile and caCertFile, or tlsSecretRef with a secret that has them"
                    ),
                );
            }
        }
        _ => {}
    }
}
