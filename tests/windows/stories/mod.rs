//! What people do with the executable on a Windows machine, and what happens to it there.

#[cfg(not(windows))]
mod adapters;
#[cfg(not(windows))]
mod adoption;
#[cfg(not(windows))]
mod boot_time;
#[cfg(not(windows))]
mod calico_programs;
#[cfg(not(windows))]
mod containerd;
#[cfg(not(windows))]
mod credentials;
#[cfg(not(windows))]
mod dependents;
#[cfg(not(windows))]
mod diagnose;
#[cfg(not(windows))]
mod executable;
#[cfg(not(windows))]
mod faults;
mod first_day;
#[cfg(not(windows))]
mod flannel;
#[cfg(not(windows))]
mod image;
#[cfg(not(windows))]
mod kill;
#[cfg(not(windows))]
mod kube_proxy;
#[cfg(not(windows))]
mod kubelet;
#[cfg(not(windows))]
mod network;
#[cfg(not(windows))]
mod packages;
#[cfg(not(windows))]
mod power;
#[cfg(not(windows))]
mod proof;
#[cfg(not(windows))]
mod real;
mod reconfigure;
#[cfg(not(windows))]
mod rights;
#[cfg(not(windows))]
mod routes;
mod running;
mod sandboxed;
mod selftest;
#[cfg(not(windows))]
mod session;
#[cfg(not(windows))]
mod standins;
#[cfg(not(windows))]
mod upgrade;
#[cfg(not(windows))]
mod verify;
#[cfg(not(windows))]
mod whole_node;
