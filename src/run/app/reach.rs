//! How a run reaches the cluster: as its config says, or as the run that made the node did.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::App;
use crate::apply::journal::Journal;
use crate::apply::node_object::Access;
use crate::apply::receipt::About;
use crate::apply::standing::Standing;
use crate::cluster::Cluster;
use crate::config::{Document, Layered, Origin};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::platform::{self, metadata::Metadata};
use crate::run::host_process;
use crate::run::options::Source;
use crate::run::own_logins::{self, believe_kubeconfig};
use crate::run::sandbox_env::SandboxEnv;
use crate::settings::{self, Connection, Limits};
use crate::values::WinPath;

impl App {
    /// From here on, reaches the cluster as the newest of these generations did, also if it is uninstalled.
    pub fn reach_as(&mut self, standing: &Standing) {
        let mut installed =
            standing.receipts.iter().rev().filter_map(|receipt| Some((receipt, receipt.about.as_ref()?)));
        if let Some((receipt, about)) = installed.next() {
            self.reached_by(access_of(about, receipt.generation));
        }
    }

    /// From here on, reaches the cluster as the run did that made the current generation, or that is to be resumed.
    pub fn reach_as_made(&mut self, standing: &Standing) {
        self.reached_by(access(standing));
    }

    /// How to reach the cluster from this machine, for verbs that need nothing else from the machine. The cloud that
    /// matters here (EKS) is detected by its networks, so this waits for no metadata service.
    pub fn connection(&self, node: &dyn Node, layered: &Layered) -> Result<Connection> {
        let cloud = platform::detect(node, settings::provider(layered), &Metadata::nowhere())?;
        Ok(settings::connection(layered, cloud.as_ref()))
    }

    /// Connects to the cluster with the installer's rights.
    pub fn cluster(&self, node: &dyn Node, connection: &Connection) -> Result<Cluster> {
        if connection.host_process {
            let text = host_process::read()?.kubeconfig;
            return self.connect(&text, Path::new(""), None, connection.limits());
        }
        // If the node is a sandbox, the path may be one of the node.
        let file = match connection.kubeconfig.parse::<WinPath>() {
            Ok(path) => node.disk(&path),
            Err(_) => PathBuf::from(&connection.kubeconfig),
        };
        let context = connection.context.as_deref();
        if let (Some(env), Origin::Default, false) = (&self.env, &connection.kubeconfig_from, file.exists()) {
            let text = env.cluster()?.admin_kubeconfig();
            return self.connect(&text, &env.dir, context, connection.limits());
        }
        self.cluster_from(Some(node), &file, connection)
    }

    /// Connects to the cluster that a kubeconfig file on this machine names; `node` as in [`trust::believe`].
    pub fn cluster_from(&self, node: Option<&dyn Node>, file: &Path, connection: &Connection) -> Result<Cluster> {
        believe_kubeconfig(node, file, connection.context.as_deref())?;
        let limits = connection.limits();
        // A sandbox's own cluster has another port each time.
        if let (Some(env), Ok(text)) = (&self.env, std::fs::read_to_string(file))
            && let dial @ Some(_) = env.dial(&text)?
        {
            let base = file.parent().unwrap_or(Path::new(""));
            let connected = Cluster::connect(&text, base, connection.context.as_deref(), dial, limits);
            return connected.inspect(|cluster| cluster.watch(&self.changed));
        }
        let opened = Cluster::open(Some(file), connection.context.as_deref(), limits);
        opened.inspect(|cluster| cluster.watch(&self.changed)).map_err(|error| {
            match (&connection.kubeconfig_from, Fault::id_of(&error)) {
                (Origin::File { name, .. }, "KubeconfigMissing") if name.starts_with(GENERATION) => {
                    let what =
                        format!("{name} was made with the kubeconfig {}, which cannot be read now", file.display());
                    let fault = Fault::new(Exit::ClusterUnreachable, "KubeconfigMissing", what);
                    error.context(
                        fault.hint("name another with --kubeconfig FILE; kubelet's own is C:\\k\\config as a rule"),
                    )
                }
                _ => error,
            }
        })
    }

    /// Connects to the cluster as this run's config says.
    pub fn configured_cluster(&self, node: &dyn Node) -> Result<(Connection, Cluster)> {
        let connection = self.connection(node, &*self.config(node, &Source::default())?)?;
        let cluster = self.cluster(node, &connection)?;
        Ok((connection, cluster))
    }

    /// Connects to the cluster as a program of the node does, with its kubeconfig.
    pub fn cluster_as(&self, node: &dyn Node, file: &WinPath, timeout: Duration) -> Result<Cluster> {
        own_logins::cluster_as(node, file, &|text, base| self.connect(text, base, None, Limits::within(timeout)))
    }

    /// Connects to the cluster with a kubeconfig's text.
    pub fn connect(&self, text: &str, base: &Path, context: Option<&str>, limits: Limits) -> Result<Cluster> {
        connect(self.env.as_deref(), text, base, context, limits).inspect(|cluster| cluster.watch(&self.changed))
    }

    /// The same with the node's own kubeconfig, for callers without an app that connect repeatedly.
    pub fn connector(&self, timeout: Duration) -> impl Fn(&str) -> Result<Cluster> + 'static {
        let env = self.env.clone();
        let limits = Limits { timeout, retries: 0 };
        move |text| connect(env.as_deref(), text, Path::new("."), None, limits)
    }
}

fn connect(
    env: Option<&SandboxEnv>,
    text: &str,
    base: &Path,
    context: Option<&str>,
    limits: Limits,
) -> Result<Cluster> {
    let dial = match env {
        Some(env) => env.dial(text)?,
        None => None,
    };
    Cluster::connect(text, base, context, dial, limits)
}

/// The name of a generation's config, for questions about the origin of a value.
pub(crate) const GENERATION: &str = "generation ";

/// Returns how the run reached the cluster that made the current generation, or that is to be resumed.
pub(super) fn access(standing: &Standing) -> Option<Document> {
    if let Some(Journal { header, .. }) = &standing.journal
        && header.terms.access != Access::default()
    {
        return Some(document(format!("run {}", header.run), &header.terms.access));
    }
    let (about, generation) = match (&standing.journal, standing.receipt()) {
        (_, Some(receipt)) => (receipt.about.as_ref()?, receipt.generation),
        (Some(journal), None) => (journal.header.about.as_ref()?, 1),
        (None, None) => return None,
    };
    access_of(about, generation)
}

fn access_of(about: &About, generation: u32) -> Option<Document> {
    about.kubeconfig.as_ref()?;
    let access = Access { kubeconfig: about.kubeconfig.clone(), context: about.context.clone() };
    Some(document(format!("{GENERATION}{generation}"), &access))
}

fn document(name: String, access: &Access) -> Document {
    Document { name, text: json!({ "spec": { "kubernetes": access } }).to_string() }
}
