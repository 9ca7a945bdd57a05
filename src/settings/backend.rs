//! Which network backend the cluster runs, by Calico's own logic. A failed or missing answer is
//! never taken for one.

use super::{Backend, Provider};
use crate::config::Origin;
use crate::facts::{ClusterFacts, PoolFacts};

/// Why no backend can be named.
pub(super) enum Undecided {
    /// Neither config, provider nor cluster said anything.
    NoFacts,
    /// The cluster encapsulates in IP-in-IP, which Windows cannot.
    IpIp(String),
}

/// The backend for a config that names none.
pub(super) fn detect(provider: Provider, cluster: Option<&ClusterFacts>) -> Result<(Backend, Origin), Undecided> {
    if matches!(provider, Provider::Aks | Provider::Eks) {
        let name = if provider == Provider::Aks { "AKS" } else { "EKS" };
        return Ok((Backend::None, Origin::Detected(format!("provider {name}"))));
    }
    let cluster = cluster.ok_or(Undecided::NoFacts)?;
    let felix = &cluster.felix;
    if felix.ipip_enabled == Some(true) {
        return Err(Undecided::IpIp("FelixConfiguration `default` has ipipEnabled: true".into()));
    }
    // Windows has no IPv6 and a disabled pool gives no addresses.
    let pools = || cluster.pools.iter().filter(|pool| !pool.disabled && !pool.cidr.contains(':'));
    if let Some(pool) = pools().find(|pool| encapsulates(&pool.ipip_mode) && may_select_windows(pool)) {
        return Err(Undecided::IpIp(format!("the IP pool `{}` has ipipMode: {}", pool.name, pool.ipip_mode)));
    }
    // Felix lets its own configuration win over the pools, also when that says no.
    let (vxlan, by) = match felix.vxlan_enabled {
        Some(enabled) => (enabled, "FelixConfiguration".to_owned()),
        None => match pools().find(|pool| encapsulates(&pool.vxlan_mode)) {
            Some(pool) => (true, format!("IP pool {}", pool.name)),
            None => (false, "no IP pool has VXLAN".to_owned()),
        },
    };
    Ok((if vxlan { Backend::Vxlan } else { Backend::WindowsBgp }, Origin::Detected(by)))
}

fn encapsulates(mode: &str) -> bool {
    matches!(mode, "Always" | "CrossSubnet")
}

/// Whether a pool's node selector leaves Windows nodes in. Only a selector that clearly shuts them
/// out does so; any other may match.
fn may_select_windows(pool: &PoolFacts) -> bool {
    let selector: String =
        pool.node_selector.chars().filter(|c| !c.is_whitespace()).map(|c| if c == '"' { '\'' } else { c }).collect();
    if selector.contains("||") {
        return true;
    }
    let shuts_out = |term: &str| {
        let term = term.trim_matches(['(', ')']);
        let on_os = |rest: &str| {
            ["kubernetes.io/os", "beta.kubernetes.io/os"].iter().any(|label| term == format!("{label}{rest}"))
        };
        term == "!all" || on_os("=='linux'") || on_os("!='windows'") || on_os("in{'linux'}")
    };
    !selector.split("&&").any(shuts_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_shuts_windows_out_only_where_it_clearly_does() {
        let selects = |selector: &str| {
            may_select_windows(&PoolFacts {
                name: "p".into(),
                cidr: "10.1.0.0/16".into(),
                vxlan_mode: "Never".into(),
                ipip_mode: "Always".into(),
                disabled: false,
                node_selector: selector.into(),
                block_size: 26,
            })
        };
        for yes in
            ["", "all()", "zone == 'a'", "kubernetes.io/os == 'windows'", "kubernetes.io/os == 'linux' || has(x)"]
        {
            assert!(selects(yes), "{yes}");
        }
        for no in [
            "kubernetes.io/os == 'linux'",
            "kubernetes.io/os == \"linux\" && zone == 'a'",
            "(zone == 'a') && (kubernetes.io/os != 'windows')",
            "kubernetes.io/os in {'linux'}",
            "!all()",
        ] {
            assert!(!selects(no), "{no}");
        }
    }
}
