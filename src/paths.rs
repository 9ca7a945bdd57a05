//! Paths of Calico's files on the node, below the root in the settings.

use crate::values::WinPath;

/// The folder of this program's state on the node. SYSTEM and Administrators only.
pub const STATE_DIR: &str = r"C:\ProgramData\calicoctl-win";

/// The folder of the services' logs, unless the settings name another. Not in the release's tree as upstream's: that is
/// replaced as a whole, and Windows does not rename a folder in which a log shipper has a file open.
pub const LOG_DIR: &str = r"C:\ProgramData\calicoctl-win\logs\calico";

/// The folder of the release, unless the settings name another.
pub fn default_root() -> WinPath {
    WinPath::known(r"C:\CalicoWindows")
}

/// Name of the lock of Calico's IPAM plugin, in the folder of the release.
pub const IPAM_LOCK: &str = "ipam.lock";

/// Name of the node's own kubeconfig; upstream's scripts use the same.
pub const KUBECONFIG: &str = "calico-kube-config";

/// The node's own kubeconfig.
pub fn kubeconfig(root: &WinPath) -> WinPath {
    root.join(KUBECONFIG)
}

/// Name of the file from which the CNI plugin reads the node's name; node startup writes it too.
pub const NODENAME: &str = "nodename";

/// The file with the node's name.
pub fn nodename(root: &WinPath) -> WinPath {
    root.join(NODENAME)
}

/// The effective values, for scripts and log collectors that read them here.
pub fn config_ps1(root: &WinPath) -> WinPath {
    root.join("config.ps1")
}

/// Name of the file with rules that Felix applies before all policy.
pub const STATIC_RULES: &str = "static-rules.json";

/// These rules. Felix looks for them next to its executable, once, at start.
pub fn static_rules(root: &WinPath) -> WinPath {
    root.join(STATIC_RULES)
}

/// Name of the folder for the etcd client's files. Every staged release has it, because its tree is only
/// replaced as a whole.
pub const ETCD_TLS: &str = "etcd-tls";

/// confd's configuration and templates, and its working folder.
pub fn confd(root: &WinPath) -> WinPath {
    root.join("confd")
}

/// kubelet's and kube-proxy's files. kubeadm uses the same places on Windows, so a node that it joined keeps its login.
pub mod kubernetes {
    /// The folder of the programs. Only administrators may write below it.
    pub const PROGRAMS: &str = r"C:\Program Files\Kubernetes";
    /// kubelet's login, which it writes when it has joined.
    pub const KUBELET_CONF: &str = r"C:\etc\kubernetes\kubelet.conf";
    /// The login with which it joins.
    pub const BOOTSTRAP_CONF: &str = r"C:\etc\kubernetes\bootstrap-kubelet.conf";
    /// The CA of the clients that kubelet serves.
    pub const CA: &str = r"C:\etc\kubernetes\pki\ca.crt";
    /// kubelet's data: certificates, volumes, its configuration.
    pub const KUBELET_DATA: &str = r"C:\var\lib\kubelet";
    pub const KUBELET_CONFIG: &str = r"C:\var\lib\kubelet\config.yaml";
    pub const KUBE_PROXY_CONFIG: &str = r"C:\var\lib\kube-proxy\config.yaml";
    /// The same with the source VIP, which is known only when the network is up. kube-proxy reads this one.
    pub const KUBE_PROXY_EFFECTIVE: &str = r"C:\ProgramData\calicoctl-win\agent\kube-proxy.yaml";

    /// A path in a file of kubeadm or kubelet, which may have no drive: theirs is then C.
    pub fn on_drive_c(path: &str) -> String {
        let drive = if path.starts_with(['/', '\\']) { "C:" } else { "" };
        format!("{drive}{path}")
    }
}

/// containerd, if this program installs it.
pub mod containerd {
    use crate::values::WinPath;

    /// The service's name.
    pub const NAME: &str = "containerd";

    /// Where containerd looks for its configuration, wherever its program is (its defaults_windows.go).
    pub const FOLDER: &str = r"C:\Program Files\containerd";

    /// The programs of an archive, in its folder `bin`: the runtime, the shim that it starts for each pod, its client.
    pub const PROGRAMS: [&str; 3] = ["containerd.exe", "containerd-shim-runhcs-v1.exe", "ctr.exe"];

    pub fn path(name: &str) -> WinPath {
        WinPath::known(FOLDER).join(name)
    }
}
