//! The life of a node on a real cluster, and runs that fail there.

use super::cluster::{RealCluster, V1, V3};
use crate::both::failed::what_fails;
use crate::both::life::a_life;

#[test]
fn a_node_of_the_v1_group_lives_on_a_real_cluster_with_the_rights_of_rbac_yaml() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    a_life(&cluster, "v3.31.6");
}

#[test]
fn a_node_of_the_v3_group_lives_on_a_real_cluster_with_the_rights_of_rbac_yaml() {
    let Some(cluster) = RealCluster::start(V3) else { return };
    a_life(&cluster, "v3.32.1");
}

#[test]
fn a_run_that_fails_leaves_the_node_object_of_a_real_cluster_as_it_was() {
    let Some(cluster) = RealCluster::start(V3) else { return };
    what_fails(&cluster);
}
