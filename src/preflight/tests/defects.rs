//! Defects of upstream's scripts, by their number in the reference: each is a finding here, before anything is changed.

use super::*;

fn detail(edit: Edit, id: &str) -> String {
    check(&report(edit), id).detail
}

/// `-CalicoBackend windows-bgp`, or any unknown word, became vxlan.
#[test]
fn b7_the_backend_that_the_config_names_is_kept_and_compared() {
    assert_eq!(
        detail(|scene| scene.settings.as_mut().unwrap().network.backend = Backend::WindowsBgp, "BackendMatchesCluster"),
        "the config says windows-bgp, the cluster vxlan (FelixConfiguration)"
    );
}

/// Every failed question ended as bgp.
#[test]
fn b8_a_cluster_that_does_not_say_is_not_treated_as_bgp() {
    let known = check(&report(undecided), "Backend");
    assert_eq!(known.status, CheckStatus::Fail);
    assert_eq!(known.detail, "the cluster has no enabled IPv4 pool that selects this node");
}

/// vxlanEnabled: false ended the search before the pools were checked.
#[test]
fn b9_ipip_in_a_pool_is_found_even_if_felix_disables_vxlan() {
    let edit: Edit = |scene| {
        scene.settings = None;
        scene.cluster.felix.vxlan_enabled = Some(false);
        scene.cluster.pools[0].ipip_mode = "CrossSubnet".into();
    };
    assert_eq!(check(&report(edit), "Ipip").status, CheckStatus::Fail);
}

/// The VNI was never read from the cluster.
#[test]
fn b10_a_vni_that_differs_from_the_clusters_is_reported() {
    let told = detail(|scene| scene.cluster.felix.vxlan_vni = Some(5000), "VniMatchesFelix");
    assert!(told.starts_with("the VNI 4096 differs from the cluster's 5000"), "{told}");
}

/// A VNI below 4096 failed only after the services were registered.
#[test]
fn b14_a_vni_that_windows_does_not_support_is_found_first() {
    let edits: [Edit; 5] = [
        |scene| scene.cluster.felix.vxlan_vni = Some(0),
        |scene| scene.cluster.felix.vxlan_vni = Some(1),
        |scene| scene.cluster.felix.vxlan_vni = Some(4095),
        |scene| scene.cluster.felix.vxlan_vni = Some(9999),
        |scene| scene.cluster.felix.vxlan_vni = Some(65536),
    ];
    for edit in edits {
        let found = check(&report(edit), "VxlanVni");
        assert_eq!(found.status, CheckStatus::Fail, "{found:?}");
    }
}

/// Only one service CIDR, and the list of DNS servers was a single text.
#[test]
fn b22_every_service_cidr_and_dns_server_is_compared_separately() {
    assert_eq!(
        detail(|scene| scene.cluster.service_cidrs.push("10.112.0.0/16".parse().unwrap()), "ServiceCidr"),
        "the cluster's services have 10.112.0.0/16, the config has 10.96.0.0/12"
    );
    let two: Edit = |scene| {
        let servers = &mut scene.settings.as_mut().unwrap().kubernetes.dns_servers;
        servers.insert(0, "10.96.0.53".parse().unwrap());
    };
    assert_eq!(detail(two, "DnsServer"), "10.96.0.53, 10.96.0.10");
}

/// HostProcess pods up to v3.27 refused the backend none, and did not check the VNI.
#[test]
fn b29_the_backend_none_is_fine_and_with_vxlan_the_vni_is_always_checked() {
    let none: Edit = |scene| {
        scene.settings.as_mut().unwrap().network.backend = Backend::None;
        scene.cluster.felix.vxlan_vni = Some(1);
        survey_of(scene).cni_configs =
            vec![CniConfig { file: "10-azure.conf".into(), plugin: Some("azure-vnet".into()), is_folder: false }];
    };
    let report = report(none);
    assert!(verdict(&report).is_ok(), "{report:#?}");
    assert_eq!(check(&report, "VxlanVni").status, CheckStatus::Skip);
    let pods: Edit = |scene| {
        let operator = scene.cluster.operator.as_mut().unwrap();
        operator.windows_dataplane = Some("HNS".into());
        scene.cluster.felix.vxlan_vni = Some(1);
    };
    let both = self::report(pods);
    assert_eq!(check(&both, "VxlanVni").status, CheckStatus::Fail);
    assert_eq!(check(&both, "NoHostProcessCalico").status, CheckStatus::Fail);
}

/// confd's peer script dropped passwords silently, and did not merge peers named twice.
#[test]
fn b30_bgp_features_that_remote_access_ignores_are_reported() {
    let edit: Edit = |scene| {
        with_bgp(scene, "v3.29.5");
        let bgp = scene.cluster.bgp.as_mut().unwrap();
        bgp.mesh_password = true;
        bgp.unsupported = vec!["rack-1: password, filters".into()];
        bgp.duplicates = vec!["10.0.0.1".into()];
    };
    assert_eq!(
        detail(edit, "BgpPeers"),
        "Windows ignores rack-1: password, filters; the node mesh: password; 10.0.0.1: more than one peer"
    );
}

/// The default service CIDR was `10.96.0.10`, the DNS server's address.
#[test]
fn b32_a_service_cidr_that_is_one_address_is_found() {
    let edit: Edit = |scene| {
        scene.settings.as_mut().unwrap().kubernetes.service_cidrs = vec!["10.96.0.10/32".parse().unwrap()];
    };
    assert_eq!(detail(edit, "ServiceCidr"), "the service kubernetes has 10.96.0.1, which is outside 10.96.0.10/32");
}
