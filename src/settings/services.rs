//! How the Windows services run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::POOL_CIDRS;
use super::resolver::Resolver;
use crate::config::spec::{LogLevel, Spec};
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
    pub felix_log_severity: String,
    /// Whether kube-proxy is stopped while its network is re-created.
    pub restart_kube_proxy: bool,
    /// Added to every component's environment.
    pub extra_env: BTreeMap<String, String>,
}

pub(super) fn decide(to: &mut Resolver<'_>, spec: &Spec, log_dir: WinPath) -> Services {
    let given = &spec.services;
    // The user's variables override ours, and these would create an IP pool in the cluster, or end startup.
    let makes_pools = |name: &str, value: &str| {
        let cidr = POOL_CIDRS.iter().any(|known| known.eq_ignore_ascii_case(name)) && !value.is_empty();
        cidr || (name.eq_ignore_ascii_case("NO_DEFAULT_POOLS") && !value.eq_ignore_ascii_case("true"))
    };
    for (name, _) in given.extra_env.iter().flatten().filter(|(name, value)| makes_pools(name, value)) {
        to.wrong(
            "spec.services.extraEnv",
            format!("`{name}` is for making IP pools, and a node's installation makes none; remove it"),
        );
    }
    let wait = to.or_default(
        "spec.services.startupValidIPTimeout",
        given.startup_valid_ip_timeout.clone(),
        Wait::known("90s"),
    );
    Services {
        start: to.or_default("spec.services.start", given.start, true),
        valid_ip_timeout: wait.length(),
        log_dir,
        felix_log_severity: level(to, "spec.services.felixLogSeverity", given.felix_log_severity),
        restart_kube_proxy: to.or_default("spec.services.restartKubeProxy", given.restart_kube_proxy, true),
        extra_env: to.or_default("spec.services.extraEnv", given.extra_env.clone(), Default::default()),
    }
}

pub(super) fn level(to: &mut Resolver<'_>, path: &str, given: Option<LogLevel>) -> String {
    to.or_default(path, given, LogLevel::Info).name().to_owned()
}
