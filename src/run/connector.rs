//! How this process connects to the cluster: with the installer's kubeconfig, or with one of the node's programs.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::host_process;
use super::sandbox_env::SandboxEnv;
use super::trusted_kubeconfigs::check_kubeconfig;
use crate::calico::agent_config::AgentConfig;
use crate::cluster::{self, Cluster};
use crate::config::Origin;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::settings::{Connection, Limits};
use crate::values::WinPath;

/// The name of a generation's config, for questions about the origin of a value.
pub(crate) const GENERATION: &str = "generation ";

/// The connections of this process; on a sandbox, also to its own cluster.
#[derive(Clone, Default)]
pub(crate) struct Connector {
    /// The servers of a sandbox, once it is opened.
    pub env: Option<Rc<SandboxEnv>>,
    /// Set when something in the cluster is changed.
    pub changed: Arc<AtomicBool>,
    /// The user is at the terminal and may be asked.
    pub asks: bool,
    /// An API server that did not answer in time: what only shows the state does not ask it again.
    pub hung: Option<(String, Fault)>,
    /// The API server may take no longer, whatever the config says.
    pub limit: Option<Duration>,
}

impl Connector {
    fn limits(&self, connection: &Connection) -> Limits {
        let limits = connection.limits(self.asks);
        Limits { timeout: limits.timeout.min(self.limit.unwrap_or(limits.timeout)), ..limits }
    }

    /// Connects to the cluster with the installer's rights.
    pub fn cluster(&self, node: &dyn Node, connection: &Connection) -> Result<Cluster> {
        let limits = self.limits(connection);
        if connection.host_process {
            return self.connect(&host_process::read()?.kubeconfig, Path::new(""), None, limits);
        }
        // If the node is a sandbox, the path may be one of the node.
        let file = match connection.kubeconfig.parse::<WinPath>() {
            Ok(path) => node.disk(&path),
            Err(_) => PathBuf::from(&connection.kubeconfig),
        };
        if let (Some(env), Origin::Default, false) = (&self.env, &connection.kubeconfig_from, file.exists()) {
            let text = env.cluster()?.admin_kubeconfig();
            return self.connect(&text, &env.dir, connection.context.as_deref(), limits);
        }
        self.by_file(Some(node), &file, connection)
    }

    /// Connects to the cluster that a kubeconfig file on this machine names; `node` as in
    /// [`crate::node::trust::check`].
    pub fn by_file(&self, node: Option<&dyn Node>, file: &Path, connection: &Connection) -> Result<Cluster> {
        let (context, limits) = (connection.context.as_deref(), self.limits(connection));
        check_kubeconfig(node, file, context)?;
        // A sandbox's own cluster has another port each time.
        if let (Some(_), Ok(text)) = (&self.env, cluster::read_kubeconfig(file))
            && self.dial(&text)?.is_some()
        {
            return self.connect(&text, file.parent().unwrap_or(Path::new("")), context, limits);
        }
        let opened = Cluster::open(Some(file), context, limits);
        opened.inspect(|cluster| cluster.watch(&self.changed)).map_err(|error| {
            match (&connection.kubeconfig_from, Fault::id_of(&error)) {
                (Origin::File { name, .. }, "KubeconfigMissing") if name.starts_with(GENERATION) => {
                    let what =
                        format!("{name} was made with the kubeconfig {}, which cannot be read now", file.display());
                    let hint = "name another with --kubeconfig FILE; kubelet's own is usually C:\\k\\config";
                    let fault = Fault::new(Exit::ClusterUnreachable, "KubeconfigMissing", what);
                    error.context(fault.hint(hint))
                }
                _ => error,
            }
        })
    }

    /// Connects to the cluster with a kubeconfig's text.
    pub fn connect(&self, text: &str, base: &Path, context: Option<&str>, limits: Limits) -> Result<Cluster> {
        let connected = Cluster::connect(text, base, context, self.dial(text)?, limits);
        connected.inspect(|cluster| cluster.watch(&self.changed))
    }

    /// Connects to the cluster as Calico's services do; none if they have no kubeconfig.
    pub fn as_services(&self, node: &dyn Node, config: &AgentConfig, limits: Limits) -> Result<Option<Cluster>> {
        let Some(path) = config.kubeconfig() else { return Ok(None) };
        let text = std::fs::read_to_string(node.disk(&path)).with_context(|| format!("read {path}"))?;
        self.connect(&text, Path::new("."), None, limits).map(Some)
    }

    fn dial(&self, kubeconfig: &str) -> Result<Option<std::net::SocketAddr>> {
        self.env.as_ref().map_or(Ok(None), |env| env.dial(kubeconfig))
    }
}
