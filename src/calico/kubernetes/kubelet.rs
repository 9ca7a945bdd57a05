//! kubelet's flags and its configuration. What a version knows is held against lists of each minor version's sources: see
//! `lists`.

use serde_json::{Value, json};

use crate::paths::kubernetes as paths;
use crate::settings::{KubernetesNode, Settings};
use crate::values::WinPath;
use crate::yaml;

/// The flags. What the configuration has a field for is not a flag.
pub(super) fn arguments(settings: &Settings, node: &KubernetesNode) -> Vec<String> {
    let mut arguments = vec![
        format!("--config={}", paths::KUBELET_CONFIG),
        format!("--kubeconfig={}", paths::KUBELET_CONF),
        // Read only while there is no kubeconfig.
        format!("--bootstrap-kubeconfig={}", paths::BOOTSTRAP_CONF),
        format!("--cert-dir={}\\pki", paths::KUBELET_DATA),
        format!("--root-dir={}", paths::KUBELET_DATA),
        format!("--hostname-override={}", settings.node_name),
        format!("--node-ip={}", node.node_ip),
    ];
    arguments.extend(node.cloud_provider.iter().map(|provider| format!("--cloud-provider={provider}")));
    arguments.push("--v=2".into());
    arguments
}

/// The configuration: what Windows needs, kubeadm's way of authentication, and the cluster's DNS.
pub(super) fn config(settings: &Settings, node: &KubernetesNode, has_ca: bool) -> Value {
    let mut authentication = json!({ "anonymous": { "enabled": false }, "webhook": { "enabled": true } });
    if has_ca {
        authentication["x509"] = json!({ "clientCAFile": paths::CA });
    }
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": authentication,
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": "npipe:////./pipe/containerd-containerd",
        "clusterDNS": settings.kubernetes.dns_servers,
        "clusterDomain": node.cluster_domain,
        "rotateCertificates": true,
        // Windows has neither cgroups nor resolv.conf, and always a page file.
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "resolvConf": "",
        "failSwapOn": false,
    })
}

/// What a configuration may have without an effect: the defaults (pkg/kubelet/apis/config/v1beta1/defaults.go), and cgroups,
/// which Windows does not have.
const WITHOUT_EFFECT: [&str; 3] = ["healthzPort: 10248", "healthzBindAddress: 127.0.0.1", "cgroupDriver: systemd"];

/// The fields in effect in another kubelet's configuration that have another value in ours, or none.
///
/// kubeadm writes all fields, unset ones as zero; its paths may have no drive (its componentconfigs/kubelet_windows.go).
pub fn lost_fields(other: &str, ours: &[u8]) -> Vec<String> {
    let read = |text: &str| yaml::read::<Value>(text.trim_start_matches('\u{feff}')).unwrap_or_default();
    let mut lost = Vec::new();
    compare(&read(other), &read(&String::from_utf8_lossy(ours)), "", &mut lost);
    lost
}

fn compare(other: &Value, ours: &Value, prefix: &str, lost: &mut Vec<String>) {
    for (name, value) in other.as_object().into_iter().flatten() {
        let (path, our) = (format!("{prefix}{name}"), &ours[name]);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let as_path = |value: &Value| paths::on_drive_c(value.as_str()?).parse::<WinPath>().ok();
        let unset = ["", "0", "0s", "null", "[]"].contains(&text.as_str());
        if value.is_object() {
            compare(value, our, &format!("{path}."), lost);
        } else if !unset
            && value != our
            && (as_path(value).is_none() || as_path(value) != as_path(our))
            && !WITHOUT_EFFECT.contains(&format!("{path}: {text}").as_str())
        {
            lost.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_set_and_differ_are_lost() {
        // As kubeadm writes it.
        let other = r"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: C:/etc/kubernetes/pki/ca.crt}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
containerRuntimeEndpoint: ''
cpuManagerReconcilePeriod: 0s
evictionHard: {memory.available: 500Mi}
healthzBindAddress: 127.0.0.1
healthzPort: 10248
logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}}, verbosity: 0}
maxPods: 77
memorySwap: {}
rotateCertificates: true
staticPodPath: C:\etc\kubernetes\manifests
";
        let ours = r"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: 'C:\etc\kubernetes\pki\ca.crt'}}
clusterDNS: [10.96.0.10]
containerRuntimeEndpoint: npipe:////./pipe/containerd-containerd
rotateCertificates: true
";
        assert_eq!(lost_fields(other, ours.as_bytes()), ["evictionHard.memory.available", "maxPods", "staticPodPath"]);
        let without_drive = other.replace("C:/etc", "/etc");
        assert_eq!(lost_fields(&without_drive, ours.as_bytes()).len(), 3);
        assert_eq!(lost_fields(ours, ours.as_bytes()), [""; 0]);
        assert_eq!(lost_fields("not YAML: [", ours.as_bytes()), [""; 0]);
    }
}
