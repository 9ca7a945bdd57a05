//! Where kubelet and kube-proxy report whether they are live: in the configurations that they read, with all overrides.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

use crate::calico::agent_config::LiveEndpoint;
use crate::calico::services::Role;
use crate::paths::kubernetes as paths;
use crate::values::WinPath;
use crate::yaml;

/// The fields of both kinds of configuration.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    healthz_bind_address: Option<String>,
    healthz_port: Option<u16>,
}

/// The configuration of a role's program; none for Calico's.
pub fn config_path(role: Role) -> Option<WinPath> {
    let path = match role {
        Role::Kubelet => paths::KUBELET_CONFIG,
        Role::KubeProxy => paths::KUBE_PROXY_CONFIG,
        _ => return None,
    };
    Some(WinPath::known(path))
}

/// The endpoint in a role's configuration; none if it is disabled, or its port is not known in advance.
///
/// kubelet: `/healthz` on this port only says that its server answers; what says more needs a login (Kubernetes'
/// cmd/kubelet/app/server.go). The defaults are those of pkg/kubelet/apis/config/v1beta1/defaults.go; port 0 disables it.
///
/// kube-proxy: `/livez`, in all supported versions (v1.28, kubernetes/kubernetes#116470), fails when changes wait for
/// longer than twice `syncPeriod`. `/healthz` also fails when the Node is about to be deleted, which a restart does not
/// change (pkg/proxy/healthcheck). The defaults are those of pkg/proxy/apis/config/v1alpha1/defaults.go; nothing in the
/// file disables it.
pub fn live_endpoint(role: Role, text: &str) -> Option<LiveEndpoint> {
    let config: Config = yaml::read(text).ok()?;
    let address = config.healthz_bind_address.unwrap_or_default();
    let (name, path, port) = match role {
        Role::Kubelet => ("kubelet", "healthz", config.healthz_port.unwrap_or(10248)),
        Role::KubeProxy => ("kube-proxy", "livez", 10256),
        _ => return None,
    };
    // An address of kube-proxy may have a port.
    let at = match address.parse::<SocketAddr>() {
        Ok(at) if role == Role::KubeProxy => at,
        _ if address.is_empty() => (Ipv4Addr::LOCALHOST, port).into(),
        _ => (address.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, port).into(),
    };
    // The wildcard address means this machine.
    let at = if at.ip().is_unspecified() { (Ipv4Addr::LOCALHOST, at.port()).into() } else { at };
    (at.port() != 0).then_some(LiveEndpoint { name, at, path, opens_late: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_asked_where_their_configuration_says() {
        let asked = |role, text: &str| live_endpoint(role, text).map(|one| format!("{}/{}", one.at, one.path));
        for (text, wanted) in [
            ("kind: KubeletConfiguration", Some("127.0.0.1:10248/healthz")),
            ("{healthzPort: 20248, healthzBindAddress: 0.0.0.0}", Some("127.0.0.1:20248/healthz")),
            ("{healthzBindAddress: 10.0.0.21}", Some("10.0.0.21:10248/healthz")),
            ("{healthzBindAddress: '::1'}", Some("[::1]:10248/healthz")),
            ("{healthzPort: 0}", None),
            ("{healthzBindAddress: a name}", None),
            ("[", None),
        ] {
            assert_eq!(asked(Role::Kubelet, text).as_deref(), wanted, "{text}");
        }
        for (text, wanted) in [
            ("kind: KubeProxyConfiguration", Some("127.0.0.1:10256/livez")),
            ("{healthzBindAddress: ''}", Some("127.0.0.1:10256/livez")),
            ("{healthzBindAddress: 10.0.0.21}", Some("10.0.0.21:10256/livez")),
            ("{healthzBindAddress: '127.0.0.1:20256'}", Some("127.0.0.1:20256/livez")),
            ("{healthzBindAddress: '[::]:20256'}", Some("127.0.0.1:20256/livez")),
            ("{healthzBindAddress: '0.0.0.0:0'}", None),
        ] {
            assert_eq!(asked(Role::KubeProxy, text).as_deref(), wanted, "{text}");
        }
        assert_eq!(asked(Role::Felix, ""), None);
    }
}
