//! A machine with only containerd becomes a node of a real cluster by one `apply`: the real kubelet.exe joins and starts
//! with the files and flags that this program wrote, as far as Wine lets it, and the real kube-proxy.exe runs as a service
//! of this program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use calicoctl_win::sandbox::cluster::{Layout, Seed};
use serde_json::Value;

use super::kube_proxy::web;
use super::kubelet::Runtime;
use crate::api_server::{ApiServer, free_ports};
use crate::house::{House, NODE, SOON, free_port, standin};
use crate::machine::eventually;
use crate::parts::part;

/// The address of the machine's only adapter.
const ADDRESS: &str = "10.20.0.21";

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The folder of kubelet's certificates.
const PKI: &str = "var/lib/kubelet/pki";

/// The bootstrap token that the cluster knows.
const TOKEN: &str = "abcdef.0123456789abcdef";

/// kubeadm's bindings: its tokens may request certificates, which the controller approves.
const KUBEADM: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'kubeadm:kubelet-bootstrap'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:node-bootstrapper'}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:bootstrappers:kubeadm:default-node-token'}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'kubeadm:node-autoapprove-bootstrap'}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: 'system:certificates.k8s.io:certificatesigningrequests:nodeclient'
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:bootstrappers:kubeadm:default-node-token'}]
";

/// A cause of warnings and errors that kubelet and kube-proxy log here, whatever their flags and files are.
struct Cause {
    /// The part of the line that is always the same.
    says: &'static str,
    /// Whether a line is certain: the program writes it before what the test waits for.
    certain: bool,
    why: &'static str,
}

const KUBELET: [Cause; 10] = [
    Cause {
        says: "SetRLimit unsupported in this platform",
        certain: true,
        why: "kubelet for Windows logs it at each start",
    },
    Cause { says: "Flexvolume plugin directory at", certain: true, why: "its first start makes the folder" },
    Cause { says: "checkpoint is not found", certain: true, why: "it has assigned no devices yet" },
    Cause { says: "listen unix ", certain: true, why: "Wine 8 has no Unix sockets" },
    Cause { says: "Unable to store the new cert/key pair", certain: false, why: "Wine 8 makes no symbolic links" },
    Cause {
        says: r#"User \"system:anonymous\" cannot "#,
        certain: false,
        why: "without the link it does not find its certificate until the test makes the link",
    },
    Cause { says: r#"\"win-a1\" not found"#, certain: false, why: "it has not registered its Node yet" },
    Cause {
        says: "Image garbage collection failed once. Stats initialization may not have completed yet",
        certain: false,
        why: "it ends before it has statistics",
    },
    Cause {
        says: "container runtime status check may not have completed yet",
        certain: false,
        why: "it ends before it has asked the runtime",
    },
    Cause { says: "PLEG is not healthy: pleg has yet to be successful", certain: false, why: "as before" },
];

const KUBE_PROXY: [Cause; 3] = [
    Cause {
        says: "servicecidrs.networking.k8s.io is forbidden",
        certain: false,
        why: "Calico's account may not list them until the test makes the binding",
    },
    Cause { says: "events.events.k8s.io is forbidden", certain: false, why: "as before" },
    Cause {
        says: "Endpoint information not available for service, not applying any policy",
        certain: false,
        why: "it has seen the Service, and not yet the EndpointSlice that is created after it (winkernel/proxier.go)",
    },
];

/// Returns the warnings and errors of a log that none of the causes explains, and the certain causes without a line.
fn unexplained(log: &str, causes: &[Cause]) -> Vec<String> {
    let is_complaint = |line: &&str| {
        // klog's lines, among them what it is told as information (for example of feature gates, component-base's
        // featuregate/feature_gate.go), those of hcsshim, and what is printed for a flag that is deprecated.
        let klog = line.starts_with(['W', 'E', 'F']) && line[1..].starts_with(|digit: char| digit.is_ascii_digit());
        klog || ["] \"Warning: ", " level=warning ", " level=error ", "Flag --"].iter().any(|part| line.contains(part))
    };
    let complaints: Vec<&str> = log.lines().filter(is_complaint).collect();
    let is_explained = |line: &str| causes.iter().any(|cause| line.contains(cause.says));
    let lines = complaints.iter().filter(|line| !is_explained(line)).map(|line| (*line).to_owned());
    let is_absent = |cause: &&Cause| cause.certain && !complaints.iter().any(|line| line.contains(cause.says));
    let absent = causes.iter().filter(is_absent).map(|cause| format!("no line has {:?}: {}", cause.says, cause.why));
    lines.chain(absent).collect()
}

/// The config. Only what all machines of the tests share is set besides what a user writes: ports of this host, a way to
/// the runtime without a pipe, which Go cannot dial in Wine 8, and kubelet's folder of volume plugins, whose default Wine
/// takes for a path of this host.
fn config(runtime: u16) -> String {
    let [kubelet, kubelet_health, proxy_health, proxy_metrics] = free_ports();
    format!(
        "apiVersion: calicoctl-win/v1alpha1
kind: NodeInstallation
spec:
  calico: {{version: v3.31.7}}
  kubernetes:
    kubeconfig: 'C:\\test\\kubeconfig'
    nodeName: {NODE}
    node:
      install: true
      source: {{path: 'C:\\test\\kubernetes'}}
      join: {{tokenFile: 'C:\\test\\token'}}
      kubeletConfigOverrides:
        address: 127.0.0.1
        port: {kubelet}
        healthzPort: {kubelet_health}
        containerRuntimeEndpoint: tcp://127.0.0.1:{runtime}
        volumePluginDir: 'C:\\usr\\libexec\\kubernetes\\kubelet-plugins\\volume\\exec'
      kubeProxyConfigOverrides:
        healthzBindAddress: 127.0.0.1:{proxy_health}
        metricsBindAddress: 127.0.0.1:{proxy_metrics}
  services:
    extraEnv:
      FELIX_HEALTHPORT: '{}'
",
        free_port()
    )
}

impl House {
    /// The certificate that kubelet got.
    fn certificate(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.machine.c(PKI)).ok()?.flatten().map(|entry| entry.path());
        files.into_iter().find(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("kubelet-client-2") && name.ends_with(".pem")
        })
    }

    /// What kubelet and kube-proxy said, in the logs of their services.
    fn log_of(&self, name: &str) -> String {
        let folder = self.machine.c("ProgramData/calicoctl-win/logs/calico");
        let of = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(of);
        files.map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
    }
}

#[test]
fn a_bare_machine_becomes_a_ready_node_of_a_real_cluster_by_one_apply() {
    let (Some(kubelet), Some(proxy), Some(runtime)) = (part("kubelet.exe"), part("kube-proxy.exe"), part("runtime"))
    else {
        return;
    };
    let (Some(manager), Some(kubemark)) = (part("kube-controller-manager"), part("kubemark")) else { return };
    let Some(mut cluster) = ApiServer::start() else { return };
    cluster.control(&manager);
    cluster.define(Layout::V1);
    cluster.seed(&Seed { calico: "v3.31.7".into(), ..Seed::new(NODE) }, "calico-system");
    cluster.kubectl(&["apply", "-f", "-"], KUBEADM);
    cluster.on_windows(Some(ADDRESS));
    let [port] = free_ports();
    let Some(house) = House::bare(&cluster, "v3.31.7", &config(port)) else { return };
    let _runtime = Runtime::start(&runtime, &house, port);
    house.machine.file("test/token", TOKEN);
    house.ready_for_kubelet();
    symlink(kubelet.canonicalize().unwrap(), house.machine.c("k/kubelet.exe")).unwrap();
    house.machine.file("test/kubernetes/kubelet.exe", standin("kubelet-at-first.exe"));
    fs::copy(proxy, house.machine.c("test/kubernetes/kube-proxy.exe")).unwrap();

    let arguments = ["apply", "-y", "-c", &house.config, "--release", &house.release];
    let mut running = house.machine.start(&arguments, "apply-said");
    let current = house.machine.c(PKI).join("kubelet-client-current.pem");
    let issued = eventually("kubelet's certificate", SOON, || house.certificate());
    let requests = cluster.get(REQUESTS);
    // Until its certificate is where its code finds it, a kubelet that ends and is started again asks again.
    let asked = requests["items"].as_array().unwrap();
    for request in asked {
        let mut writers = request["metadata"]["managedFields"].as_array().unwrap().iter();
        assert!(writers.any(|writer| writer["manager"] == "kubelet.exe"), "{request:#}");
        assert_eq!(request["spec"]["username"], "system:bootstrap:abcdef", "{request:#}");
    }
    assert!(asked.iter().any(|one| one["status"]["conditions"][0]["reason"] == "AutoApproved"), "{requests:#}");
    // Wine 8 makes no symbolic links, by which kubelet's code finds its current certificate.
    symlink(issued, current).unwrap();
    eventually("kubelet.exe to use its certificate", SOON, || {
        let asked = fs::read_to_string(cluster.file("audit.log")).unwrap();
        let its = |line: &&str| {
            line.contains(r#""userAgent":"kubelet.exe/"#) && line.contains(r#""username":"system:node:win-a1""#)
        };
        asked.lines().find(its).map(str::to_owned)
    });
    let said = house.log_of("kubelet");
    assert!(said.contains("\"Started kubelet\"") && said.contains("listen unix"), "{said}");
    assert_eq!(unexplained(&said, &KUBELET), [""; 0], "{said}");

    // From here on kubelet's own code for Linux is the node's kubelet, with that certificate.
    house.machine.file("test/kubelet.rests", "");
    let disk = format!("{}/", house.machine.disk().display());
    let own = house.read("etc/kubernetes/kubelet.conf").replace("C:\\", &disk).replace('\\', "/");
    let here = cluster.file("kubelet.conf");
    fs::write(&here, own).unwrap();
    cluster.start_kubemark(&kubemark, NODE, &here);

    let ended = eventually("apply to end", SOON * 2, || running.try_wait().unwrap());
    assert!(ended.success(), "{}\n{}", house.read("apply-said"), house.log_of("kube-proxy"));
    house.until_healthy();
    let shown = house.run("kubernetes status").exits(0).stdout;
    assert!(shown.contains("kube-proxy Running, v1.36.3") && shown.contains("kubelet has joined"), "{shown}");

    // kube-proxy works with Calico's login and the file that its service made of ours.
    web(&cluster, &["192.168.10.9"]);
    house.until_balanced(house.calico_ep()["IPAddress"].as_str().unwrap());
    assert_eq!(house.service("kube-proxy")["restarts"], 0);
    // What docs/kubernetes.md says to bind lets it read the rest, too.
    let binding = "create clusterrolebinding kube-proxy-windows --clusterrole=system:node-proxier \
                   --serviceaccount=calico-system:calico-node";
    cluster.kubectl(&binding.split_whitespace().collect::<Vec<_>>(), "");
    eventually("kube-proxy to read the ServiceCIDRs", SOON, || {
        house.log_of("kube-proxy").contains(r#""Caches populated" type="*v1.ServiceCIDR""#).then_some(())
    });

    for (name, causes) in [("kubelet", &KUBELET[..]), ("kube-proxy", &KUBE_PROXY[..])] {
        let log = house.log_of(name);
        assert_eq!(unexplained(&log, causes), [""; 0], "{name}: {log}");
    }

    house.run("uninstall -y").exits(0);
    let left = house.run("kubernetes status -o json").exits(0).json();
    let owners: Vec<&Value> = left["services"].as_array().unwrap().iter().map(|service| &service["owner"]).collect();
    assert_eq!(owners, ["none", "none"], "{left:#}");
    house.machine.until_gone("kube-proxy.exe");
}
