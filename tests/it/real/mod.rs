//! The product against a real cluster: kube-apiserver with its etcd, RBAC, NodeRestriction and an audit log,
//! kube-controller-manager, Calico's own definitions, and kubelet's own code for the node's pods. The machine is a
//! sandbox. `packaging/real/prepare.sh` builds the programs; without them these tests report that they did not run.

#![expect(clippy::print_stdout, reason = "the counts, and what a cluster said, explain a failure")]

#[allow(dead_code, reason = "tests/windows uses the rest")]
mod api_server;
mod audit;
mod cluster;
mod etcd;
mod fleet;
mod fleet_page;
mod fleet_requests;
mod fleet_runs;
mod fleet_thousand;
mod fleet_watch;
mod hostprocess;
mod joining;
mod kept;
mod kwok;
mod parts;
mod refused;
mod restarts;
mod schemas;
mod seed;
mod stories;
mod verify;
