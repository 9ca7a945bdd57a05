//! What each variable of a `config.ps1` means in a config document (reference: section 2.2).

use crate::values::may_be_secret;

/// The meaning of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A field, by its path.
    Field(&'static str, Form),
    /// A field that only an etcd datastore has.
    Etcd(&'static str),
    Kubeconfig,
    /// The Kubernetes Node's name, which is `NODENAME` unless it was edited.
    NodeRef,
    /// It has no effect, for this reason.
    NoEffect(&'static str),
    /// A log that Windows does not have; `none` is set too.
    NoLog,
    /// A secret.
    Password,
    /// The services pass it to Calico's components, and continue to do so: `services.extraEnv`.
    Extra,
}

/// How a variable's text is converted for the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    AsItIs,
    /// `auto` for what the script queries on the machine.
    Auto,
    /// A list, with spaces around its commas.
    Commas,
    /// A number of seconds.
    Seconds,
    /// A word in lower case.
    Word,
    /// A log level that all components have.
    Level,
}

const SET_BY_SCRIPTS: &str = "the services set it themselves";

/// Returns what a variable means, by its name in capitals.
pub fn of(name: &str) -> Meaning {
    use Meaning::{Etcd, Extra, Field, Kubeconfig, NoEffect, NoLog, NodeRef, Password};
    match name {
        "KUBE_NETWORK" => Field("calicoNetwork.kubeNetwork", Form::AsItIs),
        "CALICO_NETWORKING_BACKEND" => Field("calicoNetwork.backend", Form::Word),
        "K8S_SERVICE_CIDR" => Field("kubernetes.serviceCIDRs", Form::Commas),
        "DNS_NAME_SERVERS" => Field("kubernetes.dns.servers", Form::Commas),
        "DNS_SEARCH" => Field("kubernetes.dns.search", Form::Commas),
        "CALICO_DATASTORE_TYPE" => Field("datastore.type", Form::Word),
        "KUBECONFIG" => Kubeconfig,
        "ETCD_ENDPOINTS" => Etcd("datastore.etcd.endpoints"),
        "ETCD_KEY_FILE" => Etcd("datastore.etcd.keyFile"),
        "ETCD_CERT_FILE" => Etcd("datastore.etcd.certFile"),
        "ETCD_CA_CERT_FILE" => Etcd("datastore.etcd.caCertFile"),
        "CNI_BIN_DIR" => Field("windowsNodes.cniBinDir", Form::Auto),
        "CNI_CONF_DIR" => Field("windowsNodes.cniConfigDir", Form::Auto),
        "CNI_CONF_FILENAME" => Field("windowsNodes.cniConfigFile", Form::AsItIs),
        "CNI_IPAM_TYPE" => Field("calicoNetwork.ipam.type", Form::Word),
        "VXLAN_VNI" => Field("calicoNetwork.vxlan.vxlanVNI", Form::AsItIs),
        "VXLAN_MAC_PREFIX" => Field("calicoNetwork.vxlan.vxlanMACPrefix", Form::AsItIs),
        "VXLAN_ADAPTER" => Field("calicoNetwork.vxlan.vxlanAdapter", Form::AsItIs),
        "NODENAME" => Field("kubernetes.nodeName", Form::Auto),
        "CALICO_K8S_NODE_REF" => NodeRef,
        "STARTUP_VALID_IP_TIMEOUT" => Field("services.startupValidIPTimeout", Form::Seconds),
        "IP" => Field("calicoNetwork.nodeAddress", Form::AsItIs),
        "CALICO_LOG_DIR" => Field("services.logDir", Form::AsItIs),
        "FELIX_LOGSEVERITYSCREEN" => Field("services.felixLogSeverity", Form::Level),
        "FELIX_LOGSEVERITYFILE" | "FELIX_LOGSEVERITYSYS" => NoLog,
        "USE_POD_CIDR"
        | "CALICO_NODENAME_FILE"
        | "FELIX_FELIXHOSTNAME"
        | "FELIX_METADATAADDR"
        | "FELIX_VXLANVNI"
        | "DATASTORE_TYPE" => NoEffect(SET_BY_SCRIPTS),
        "CONTAINER_SANDBOX_MOUNT_POINT" | "CNI_PLUGIN_TYPE" => {
            NoEffect("only HostProcess containers have it, and here Calico runs as services")
        }
        _ if may_be_secret(name) => Password,
        _ => Extra,
    }
}

/// Whether a text names one of the variables that identify a `config.ps1`, imported or not.
pub fn names_any(text: &str) -> bool {
    let text = text.to_uppercase();
    ["KUBE_NETWORK", "CALICO_", "VXLAN_", "CNI_", "K8S_SERVICE_CIDR", "DNS_NAME_SERVERS", "NODENAME"]
        .iter()
        .any(|name| text.contains(name))
}

/// Returns a variable's text in the form of the document.
///
/// # Errors
/// Why the text is not a valid value of the variable.
pub fn formed(form: Form, text: &str) -> Result<String, String> {
    match form {
        Form::AsItIs | Form::Auto => Ok(text.trim().to_owned()),
        Form::Word => Ok(text.trim().to_lowercase()),
        Form::Commas => {
            Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect::<Vec<_>>().join(","))
        }
        Form::Seconds => match text.trim().parse::<u32>() {
            Ok(0) => Ok("0".into()),
            Ok(seconds) => Ok(format!("{seconds}s")),
            Err(_) => Err(format!("`{text}` is not a number of seconds")),
        },
        Form::Level => match text.trim().to_lowercase().as_str() {
            "warn" => Ok("warning".into()),
            level @ ("debug" | "info" | "warning" | "error" | "fatal") => Ok(level.into()),
            other => Err(format!("`{other}` is not a log level")),
        },
    }
}

/// Whether a text is a placeholder of the scripts, for example `<your service cidr>`.
pub fn is_placeholder(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('<') && text.ends_with('>')
}

/// Whether two texts mean the same: spaces in lists, case and slashes do not matter.
pub fn same(one: &str, other: &str) -> bool {
    let plain = |text: &str| {
        let items: Vec<String> = text.split(',').map(|item| item.trim().to_lowercase().replace('/', "\\")).collect();
        items.join(",")
    };
    plain(one) == plain(other)
}
