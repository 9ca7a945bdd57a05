//! How the Windows services run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::POOL_CIDRS;
use super::resolver::Resolver;
use crate::config::types::Wait;
use crate::values::WinPath;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Services {
    /// Whether they are started (`--no-start`).
    pub start: bool,
    /// How long CalicoNode waits for a valid IPv4 address after boot; zero does not wait.
    pub valid_ip_timeout: Duration,
    pub log_dir: WinPath,
    /// None: FelixConfiguration decides.
    pub felix_log_severity: Option<String>,
    /// Whether kube-proxy is stopped while its network is re-created.
    pub restart_kube_proxy: bool,
    /// Added to every component's environment.
    pub extra_env: BTreeMap<String, String>,
}

pub(super) fn decide(to: &mut Resolver<'_>, log_dir: WinPath, root: &WinPath) -> Services {
    // The release's folder is renamed as a whole, which Windows refuses while a file in it is open.
    if log_dir.is_below(root) {
        let text = format!(
            "spec.services.logDir {log_dir} is in {root}, which every upgrade replaces as a whole: a program that has a \
             log open there blocks it; leave logDir out, or set a folder outside of {root}"
        );
        to.warn("LogsInRoot", text);
    }
    let extra_env: BTreeMap<String, String> = to.or_default("services.extraEnv", BTreeMap::new());
    // The user's variables override ours, and these would create an IP pool in the cluster, or end startup.
    let makes_pools = |name: &str, value: &str| {
        let cidr = POOL_CIDRS.iter().any(|known| known.eq_ignore_ascii_case(name)) && !value.is_empty();
        cidr || (name.eq_ignore_ascii_case("NO_DEFAULT_POOLS") && !value.eq_ignore_ascii_case("true"))
    };
    for (name, _) in extra_env.iter().filter(|(name, value)| makes_pools(name, value)) {
        let why = format!("`{name}` is for creating IP pools, and the installation of a node creates none; remove it");
        to.wrong("services.extraEnv", why);
    }
    Services {
        start: to.or_default("services.start", true),
        valid_ip_timeout: to.or_default("services.startupValidIPTimeout", Wait::known("90s")).length(),
        log_dir,
        felix_log_severity: to.optional("services.felixLogSeverity"),
        restart_kube_proxy: to.or_default("services.restartKubeProxy", true),
        extra_env,
    }
}
