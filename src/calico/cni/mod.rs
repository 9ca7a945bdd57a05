//! The CNI configuration: what the container runtime passes to Calico's plugin for every pod.
//!
//! It is a typed document, filled from `templates/cni.conf.json`, so quotes and backslashes in a value are escaped.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

mod conf;

pub use conf::{CniConf, Dns, EndpointPolicy, IpamConf, Kubernetes, Policy};

use super::components::{api_group, datastore_type};
use super::layout::Layout;
use crate::facts::RuntimeKind;
use crate::fault::{Exit, Fault};
use crate::paths;
use crate::settings::{Backend, Datastore, Ipam, Settings};
use crate::values::WinPath;

pub(super) const TEMPLATE: &str = include_str!("../../../templates/cni.conf.json");

/// Keys that other parts of the installation rely on, each with the setting that changes it, if there is one.
const FIXED: [(&str, Option<&str>); 10] = [
    ("/name", None),
    ("/type", None),
    ("/calico_api_group", None),
    ("/windows_use_single_network", None),
    ("/mode", Some("calicoNetwork.backend")),
    ("/vxlan_vni", Some("calicoNetwork.vxlan.vxlanVNI")),
    ("/vxlan_mac_prefix", Some("calicoNetwork.vxlan.vxlanMACPrefix")),
    ("/nodename", Some("kubernetes.nodeName")),
    ("/datastore_type", Some("datastore.type")),
    ("/ipam/type", Some("calicoNetwork.ipam.type")),
];

/// The CNI configuration of the settings, with `cni.overrides` merged over it. `kubeconfig` is the path of the node's
/// own kubeconfig, if there is one.
///
/// # Errors
/// When the version is not supported, or the merged document is not one that the plugin accepts.
pub fn render(settings: &Settings, kubeconfig: Option<&WinPath>) -> Result<Vec<u8>> {
    let conf = overridden(fill(settings, kubeconfig)?, settings)?;
    let mut bytes = serde_json::to_vec_pretty(&conf).context("write the CNI configuration")?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn fill(settings: &Settings, kubeconfig: Option<&WinPath>) -> Result<CniConf> {
    let layout = Layout::of(&settings.calico.version)?;
    let mut conf = CniConf::parse(TEMPLATE)?;
    let network = &settings.network;
    conf.windows_use_single_network = settings.cni.single_network;
    conf.cni_version = layout.cni_version().into();
    conf.mode = if network.backend == Backend::Vxlan { "vxlan".into() } else { String::new() };
    conf.vxlan_mac_prefix = network.mac_prefix.to_string();
    conf.vxlan_vni = Some(network.vni.get());
    conf.log_level.clone_from(&settings.cni.log_level);
    conf.windows_loopback_dsr = layout.knows_loopback_dsr().then_some(settings.dsr);
    conf.dns.nameservers = settings.kubernetes.dns_servers.iter().map(ToString::to_string).collect();
    conf.dns.search.clone_from(&settings.kubernetes.dns_search);
    conf.nodename = Some(settings.node_name.to_string());
    conf.nodename_file = Some(paths::nodename(&settings.calico.root).to_string());
    // Without it the plugin makes C:\CalicoWindows for its lock (cni-plugin/pkg/ipamplugin/ipam_lock_windows.go), which
    // no uninstall of another folder removes.
    conf.ipam_lock_file = (settings.calico.root != paths::default_root())
        .then(|| settings.calico.root.join(paths::IPAM_LOCK).to_string());
    conf.datastore_type = datastore_type(&settings.datastore).into();
    if let Datastore::Etcdv3 { endpoints, tls } = &settings.datastore {
        conf.etcd_endpoints = Some(endpoints.join(","));
        conf.etcd_key_file = tls.as_ref().map(|tls| tls.key_file.to_string());
        conf.etcd_cert_file = tls.as_ref().map(|tls| tls.cert_file.to_string());
        conf.etcd_ca_cert_file = tls.as_ref().map(|tls| tls.ca_cert_file.to_string());
    }
    conf.calico_api_group = api_group(settings, &layout).map(str::to_owned);
    conf.kubernetes.kubeconfig = kubeconfig.map(ToString::to_string);
    conf.ipam.kind = match network.ipam {
        Ipam::CalicoIpam => "calico-ipam",
        Ipam::HostLocal => "host-local",
    }
    .into();
    conf.policies = policies(settings);
    Ok(conf)
}

/// Pods reach services without NAT and through the virtual switch: one exception and one route for each service CIDR.
/// Containerd uses HNS v2, Docker v1, and each names a route differently.
fn policies(settings: &Settings) -> Vec<EndpointPolicy> {
    let policy = |value: Value| EndpointPolicy {
        name: "EndpointPolicy".into(),
        value: value.as_object().cloned().unwrap_or_default(),
        rest: Map::new(),
    };
    let route = match settings.runtime {
        RuntimeKind::Containerd => "SDNROUTE",
        RuntimeKind::Docker => "ROUTE",
    };
    let cidrs = &settings.kubernetes.service_cidrs;
    let nat = policy(json!({ "Type": "OutBoundNAT", "ExceptionList": cidrs }));
    let routes =
        cidrs.iter().map(|cidr| policy(json!({ "Type": route, "DestinationPrefix": cidr, "NeedEncap": true })));
    std::iter::once(nat).chain(routes).collect()
}

/// A key of the overrides that has no effect on this node, and why.
fn without_effect(conf: &CniConf, runtime: RuntimeKind) -> Option<(&'static str, &'static str)> {
    const IPV6: &str = "Calico does not support IPv6 on Windows";
    let ipam = &conf.ipam;
    let docker_alone = conf.windows_pod_deletion_timestamp_timeout.is_some() && runtime == RuntimeKind::Containerd;
    [
        // cni-plugin/pkg/dataplane/windows of projectcalico/calico does not read it.
        (conf.mtu.is_some(), "mtu", "the plugin ignores it on Windows"),
        (ipam.assign_ipv6.as_deref() == Some("true"), "ipam.assign_ipv6", IPV6),
        (ipam.ipv6_pools.as_ref().is_some_and(|pools| !pools.is_empty()), "ipam.ipv6_pools", IPV6),
        (docker_alone, "windows_pod_deletion_timestamp_timeout", "it concerns only pods of Docker"),
    ]
    .into_iter()
    .find_map(|(is_given, key, why)| is_given.then_some((key, why)))
}

fn overridden(conf: CniConf, settings: &Settings) -> Result<CniConf> {
    let overrides = &settings.cni.overrides;
    let refuse = |what: String| Fault::new(Exit::InvalidConfig, "CniConfigOverrides", what);
    match overrides {
        Value::Null => return Ok(conf),
        Value::Object(_) => {}
        _ => return Err(refuse("cniConfigOverrides must be a mapping of CNI keys to values".into()).into()),
    }
    let before = serde_json::to_value(&conf).context("write the CNI configuration")?;
    let mut after = before.clone();
    merge(&mut after, overrides);
    for (key, setting) in FIXED {
        if before.pointer(key) != after.pointer(key) {
            let key = dotted(key);
            let fault = refuse(format!(
                "cniConfigOverrides cannot change `{key}`, which other parts of the installation rely on"
            ));
            return Err(match setting {
                Some(setting) => fault.hint(format!("set {setting} instead")),
                None => fault.hint(format!("remove `{key}` from cniConfigOverrides")),
            }
            .into());
        }
    }
    let merged: CniConf = serde_json::from_value(after.clone())
        .map_err(|error| refuse(format!("cniConfigOverrides result in an invalid CNI configuration: {error}")))?;
    if let Some(key) = merged.unknown_keys().first() {
        return Err(refuse(format!("cniConfigOverrides has `{key}`, which Calico's CNI plugin does not know"))
            .hint("check the spelling; keys are case-sensitive")
            .into());
    }
    if let Some((key, why)) = without_effect(&merged, settings.runtime) {
        return Err(refuse(format!("cniConfigOverrides has `{key}`, which has no effect: {why}"))
            .hint(format!("remove `{key}` from cniConfigOverrides"))
            .into());
    }
    let empty = |key: &str| after.pointer(key).is_none_or(|value| value.as_str().is_some_and(str::is_empty));
    if let Some(key) = ["/cniVersion", "/policy/type"].into_iter().find(|key| empty(key)) {
        return Err(refuse(format!("cniConfigOverrides remove `{}`, which is required", dotted(key))).into());
    }
    Ok(merged)
}

fn dotted(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// RFC 7386: objects merge, null removes, everything else replaces.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{etcd, settings};
    use super::*;

    fn rendered(settings: &Settings) -> CniConf {
        let bytes = render(settings, Some(&paths::kubeconfig(&settings.calico.root))).unwrap();
        CniConf::parse(std::str::from_utf8(&bytes).unwrap()).unwrap()
    }

    fn refused(overrides: Value) -> String {
        let mut settings = settings("v3.30.3");
        settings.cni.overrides = overrides;
        let error = render(&settings, None).unwrap_err();
        let fault = Fault::of(&error).unwrap();
        assert_eq!((fault.exit, fault.id), (Exit::InvalidConfig, "CniConfigOverrides"));
        format!("{} ({})", fault.what, fault.hint.clone().unwrap_or_default())
    }

    #[test]
    fn the_template_has_no_key_that_the_type_does_not_know() {
        assert_eq!(CniConf::parse(TEMPLATE).unwrap().unknown_keys(), Vec::<String>::new());
    }

    #[test]
    fn quotes_and_backslashes_in_values_leave_the_json_valid() {
        let mut settings = settings("v3.30.3");
        settings.calico.root = WinPath::known(r"D:\it's a\new\root");
        settings.kubernetes.dns_search = vec!["say \"hi\".local\\".into()];
        let conf = rendered(&settings);
        assert_eq!(conf.nodename_file.as_deref(), Some(r"D:\it's a\new\root\nodename"));
        assert_eq!(conf.kubernetes.kubeconfig.as_deref(), Some(r"D:\it's a\new\root\calico-kube-config"));
        assert_eq!(conf.ipam_lock_file.as_deref(), Some(r"D:\it's a\new\root\ipam.lock"));
        assert_eq!(conf.dns.search, ["say \"hi\".local\\"]);
    }

    #[test]
    fn b22_every_dns_server_is_a_separate_address() {
        let mut settings = settings("v3.30.3");
        settings.kubernetes.dns_servers = vec!["10.96.0.10".parse().unwrap(), "10.96.0.11".parse().unwrap()];
        assert_eq!(rendered(&settings).dns.nameservers, ["10.96.0.10", "10.96.0.11"]);
    }

    #[test]
    fn b22_every_service_cidr_has_an_exception_and_a_route() {
        let mut settings = settings("v3.30.3");
        settings.kubernetes.service_cidrs = vec!["10.96.0.0/12".parse().unwrap(), "172.30.0.0/16".parse().unwrap()];
        let conf = rendered(&settings);
        let lines = conf.policies.iter().map(|p| serde_json::to_string(&p.value).unwrap() + "\n");
        insta::assert_snapshot!(lines.collect::<String>(), @r#"
        {"Type":"OutBoundNAT","ExceptionList":["10.96.0.0/12","172.30.0.0/16"]}
        {"Type":"SDNROUTE","DestinationPrefix":"10.96.0.0/12","NeedEncap":true}
        {"Type":"SDNROUTE","DestinationPrefix":"172.30.0.0/16","NeedEncap":true}
        "#);
    }

    #[test]
    fn b22_the_dns_search_list_is_the_configured_one() {
        let mut settings = settings("v3.30.3");
        settings.kubernetes.dns_search = vec!["svc.corp.example".into(), "corp.example".into()];
        assert_eq!(rendered(&settings).dns.search, ["svc.corp.example", "corp.example"]);
    }

    #[test]
    fn b22_the_mac_prefix_takes_effect() {
        let mut settings = settings("v3.30.3");
        settings.network.mac_prefix = "0a-3b".parse().unwrap();
        assert_eq!(rendered(&settings).vxlan_mac_prefix, "0A-3B");
    }

    #[test]
    fn etcd_has_its_keys_and_no_api_group() {
        let mut settings = settings("v3.33.0");
        settings.datastore = etcd();
        let conf = rendered(&settings);
        assert_eq!(conf.etcd_endpoints.as_deref(), Some("https://etcd-0:2379,https://etcd-1:2379"));
        assert_eq!(conf.etcd_ca_cert_file.as_deref(), Some(r"C:\CalicoWindows\etcd-tls\ca.crt"));
        assert_eq!(conf.calico_api_group, None);
    }

    #[test]
    fn overrides_merge_replace_and_remove() {
        let mut settings = settings("v3.30.3");
        settings.cni.overrides = json!({
            "log_file_path": "c:/var/log/calico/cni/cni.log",
            "ipam": { "ipv4_pools": ["windows"], "subnet": null },
            "DNS": { "Search": ["only.local"] },
            "windows_loopback_DSR": null
        });
        let conf = rendered(&settings);
        assert_eq!(conf.log_file_path.as_deref(), Some("c:/var/log/calico/cni/cni.log"));
        assert_eq!((conf.ipam.kind.as_str(), conf.ipam.subnet), ("calico-ipam", None));
        assert_eq!(conf.ipam.ipv4_pools, Some(vec!["windows".into()]));
        assert_eq!((conf.dns.search.len(), conf.dns.nameservers.len()), (1, 1));
        assert_eq!(conf.windows_loopback_dsr, None);
    }

    #[test]
    fn overrides_that_would_break_something_are_refused() {
        let refusals = [
            json!(["no", "mapping"]),
            json!({ "vxlan_vni": 5000 }),
            json!({ "name": "Other" }),
            json!({ "mtu": "big" }),
            json!({ "ipam": { "typ": "host-local" } }),
            json!({ "policy": null }),
        ]
        .map(refused);
        insta::assert_snapshot!(refusals.join("\n"), @r#"
        cniConfigOverrides must be a mapping of CNI keys to values ()
        cniConfigOverrides cannot change `vxlan_vni`, which other parts of the installation rely on (set calicoNetwork.vxlan.vxlanVNI instead)
        cniConfigOverrides cannot change `name`, which other parts of the installation rely on (remove `name` from cniConfigOverrides)
        cniConfigOverrides result in an invalid CNI configuration: invalid type: string "big", expected u32 ()
        cniConfigOverrides has `ipam.typ`, which Calico's CNI plugin does not know (check the spelling; keys are case-sensitive)
        cniConfigOverrides remove `policy.type`, which is required ()
        "#);
    }

    /// The settings refuse some of these values, and other parts read the settings.
    #[test]
    fn a_setting_is_not_changed_behind_its_back() {
        let refusals = [
            json!({ "windows_use_single_network": false }),
            json!({ "windows_use_single_network": null }),
            json!({ "ipam": { "type": "host-local" } }),
            json!({ "ipam": null }),
            json!({ "vxlan_mac_prefix": "0E2A" }),
            json!({ "nodename": "another" }),
            json!({ "calico_api_group": "projectcalico.org/v3" }),
        ]
        .map(refused);
        insta::assert_snapshot!(refusals.join("\n"), @r#"
        cniConfigOverrides cannot change `windows_use_single_network`, which other parts of the installation rely on (remove `windows_use_single_network` from cniConfigOverrides)
        cniConfigOverrides cannot change `windows_use_single_network`, which other parts of the installation rely on (remove `windows_use_single_network` from cniConfigOverrides)
        cniConfigOverrides cannot change `ipam.type`, which other parts of the installation rely on (set calicoNetwork.ipam.type instead)
        cniConfigOverrides cannot change `ipam.type`, which other parts of the installation rely on (set calicoNetwork.ipam.type instead)
        cniConfigOverrides cannot change `vxlan_mac_prefix`, which other parts of the installation rely on (set calicoNetwork.vxlan.vxlanMACPrefix instead)
        cniConfigOverrides cannot change `nodename`, which other parts of the installation rely on (set kubernetes.nodeName instead)
        cniConfigOverrides cannot change `calico_api_group`, which other parts of the installation rely on (remove `calico_api_group` from cniConfigOverrides)
        "#);
    }

    #[test]
    fn what_has_no_effect_on_windows_is_refused_with_its_reason() {
        let refusals = [
            json!({ "mtu": 1400 }),
            json!({ "ipam": { "assign_ipv6": "true" } }),
            json!({ "ipam": { "ipv6_pools": ["fd00::/64"] } }),
            json!({ "windows_pod_deletion_timestamp_timeout": 600 }),
        ]
        .map(refused);
        insta::assert_snapshot!(refusals.join("\n"), @r#"
        cniConfigOverrides has `mtu`, which has no effect: the plugin ignores it on Windows (remove `mtu` from cniConfigOverrides)
        cniConfigOverrides has `ipam.assign_ipv6`, which has no effect: Calico does not support IPv6 on Windows (remove `ipam.assign_ipv6` from cniConfigOverrides)
        cniConfigOverrides has `ipam.ipv6_pools`, which has no effect: Calico does not support IPv6 on Windows (remove `ipam.ipv6_pools` from cniConfigOverrides)
        cniConfigOverrides has `windows_pod_deletion_timestamp_timeout`, which has no effect: it concerns only pods of Docker (remove `windows_pod_deletion_timestamp_timeout` from cniConfigOverrides)
        "#);
        let mut docker = settings("v3.30.3");
        docker.runtime = RuntimeKind::Docker;
        docker.cni.overrides = json!({ "windows_pod_deletion_timestamp_timeout": 60, "ipam": { "assign_ipv6": "false", "ipv6_pools": [] } });
        assert_eq!(rendered(&docker).windows_pod_deletion_timestamp_timeout, Some(60));
    }

    /// Every key of the plugin that nothing else decides is written as it is given.
    #[test]
    fn every_other_key_of_the_plugin_is_written() {
        let mut settings = settings("v3.30.3");
        let given = json!({
            "log_file_path": "c:/cni.log", "log_file_max_size": 100, "log_file_max_age": 30, "log_file_max_count": 10,
            "windows_disable_default_deny_all_policy": true, "nodename_file_optional": true, "qps": 20, "burst": 40,
            "ipam_lock_file": "D:/ipam.lock", "feature_control": { "ip_addrs_no_ipam": true },
            "readiness_gates": ["http://localhost:9099/readiness"], "capabilities": { "dns": false },
            "windows_loopback_DSR": true, "nodename_file": "c:/nodename", "cniVersion": "1.0.0",
            "ipam": { "assign_ipv4": "true", "ipv4_pools": ["windows"] }, "policies": [],
        });
        settings.cni.overrides = given.clone();
        let mut written = serde_json::to_value(rendered(&settings)).unwrap();
        let before = written.clone();
        merge(&mut written, &given);
        assert_eq!(written, before);
    }
}
