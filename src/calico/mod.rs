//! What we know of Calico for Windows, by version. Pure.

pub mod agent_config;
pub mod version;
