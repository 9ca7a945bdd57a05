//! What is known of Calico for Windows, by version. Pure.

pub mod agent_config;
pub mod cni;
pub mod components;
pub mod config_ps1;
pub mod containerd;
pub mod etcd;
pub mod flannel;
pub mod kube_proxy;
pub mod kubeconfig;
pub mod kubernetes;
pub mod layout;
pub mod networks;
pub mod nssm;
pub mod registry;
pub mod services;
pub mod static_rules;
pub mod upstream;
pub mod x509;

#[cfg(test)]
mod rendered;
#[cfg(test)]
pub(crate) mod testing;
