//! kubelet itself beside Calico on a node, as far as Wine lets it: it registers its service, takes its flags and its
//! configuration, joins a real API server, starts, and ends where it listens on a Unix socket for device plugins, which
//! Wine 8 cannot.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::api_server::{ApiServer, free_ports};
use crate::house::{House, NODE, SOON, standin};
use crate::machine::eventually;
use crate::parts::part;

const SERVICE: &str = "kubelet";

const SERVICE_KEY: &str = r"HKLM\SYSTEM\CurrentControlSet\Services\kubelet";

/// Where kubelet makes the folder of its pods.
const ROOT: &str = r"C:\k\kubelet-data";

/// A container runtime on this host: it has no containers.
pub(super) struct Runtime(Child);

impl Runtime {
    pub(super) fn start(program: &Path, house: &House, port: u16) -> Self {
        let socket = house.test_file("runtime.sock");
        let mut command = Command::new(program);
        command.arg(socket).arg(format!("127.0.0.1:{port}")).stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _status = self.0.wait();
    }
}

impl House {
    /// What kubelet reads on a Windows machine and Wine does not have.
    pub(super) fn ready_for_kubelet(&self) {
        self.machine.file("k/pdh.dll", standin("pdh.dll"));
        for (key, name, kind, value) in [
            (r"HKLM\SYSTEM\HardwareConfig", "LastConfig", "REG_SZ", "{4C4C4544-0042-3510-8052-B4C04F4B4D32}"),
            (
                r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters",
                "BootId",
                "REG_DWORD",
                "7",
            ),
        ] {
            self.machine.run_program("reg", &["add", key, "/v", name, "/t", kind, "/d", value, "/f"]).exits(0);
        }
    }

    /// Writes the configuration; returns the arguments. Wine takes the default folder of volume plugins for a path of this
    /// host.
    fn kubelet_arguments(&self, runtime: u16) -> String {
        let [port, health] = free_ports();
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: {port}
healthzPort: {health}
containerRuntimeEndpoint: tcp://127.0.0.1:{runtime}
volumePluginDir: 'C:\\k\\volume-plugins'
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
"
        );
        self.machine.file("k/kubelet.yaml", config);
        format!(
            r"--config=C:\k\kubelet.yaml --kubeconfig=C:\test\kubelet-kubeconfig --hostname-override={NODE} --cert-dir=C:\k\pki --root-dir={ROOT} --v=2"
        )
    }
}

#[test]
fn kubelet_joins_starts_beside_calico_as_a_service_and_ends_where_wine_has_no_unix_sockets() {
    let (Some(program), Some(runtime)) = (part("kubelet.exe"), part("runtime")) else { return };
    let Some(cluster) = ApiServer::start() else { return };
    let Some(house) = House::installed() else { return };
    let [port] = free_ports();
    let _runtime = Runtime::start(&runtime, &house, port);
    house.machine.file("test/kubelet-kubeconfig", cluster.kubeconfig());
    house.ready_for_kubelet();
    let line = house.service_program(&program, &house.kubelet_arguments(port));

    // In a console its log is seen.
    let words: Vec<&str> = line.split(' ').collect();
    let mut running = house.machine.start_program(words[0], &words[1..], "test/kubelet-said");
    let ended = eventually("kubelet to end", SOON, || running.try_wait().unwrap());
    let said = house.read("test/kubelet-said");
    assert!(said.contains("\"Started kubelet\""), "{said}");
    assert!(!ended.success() && said.contains("listen unix"), "{said}");

    // It has asked the API server.
    let asked = std::fs::read_to_string(cluster.file("audit.log")).unwrap();
    assert!(asked.contains(r#""userAgent":"kubelet.exe/"#), "{asked}");

    let line = line.replace(ROOT, r"C:\k\kubelet-as-service");
    // Wine's sc takes all that follows `depend=` for names of services.
    let line = format!("{line} --windows-service");
    house.sc(&["create", SERVICE, "start=", "demand", "binPath=", &line, "depend=", "CalicoNode"]);
    // If kubelet ends before Wine has seen that it runs, Wine tells its starter so.
    let _started_or_ended = house.machine.run_program("sc", &["start", SERVICE]);
    // Its events may be lost when it ends.
    let folder = house.machine.c("k/kubelet-as-service/pods");
    eventually("its service to make the folder of its pods", SOON, || folder.is_dir().then_some(()));
    house.machine.until_gone("kubelet.exe");

    // Wine names no dependents, so that a run leaves this one alone; `tests/it` has the stories of dependents.
    let query = || house.machine.run_program("reg", &["query", SERVICE_KEY, "/v", "DependOnService"]).exits(0).stdout;
    let before = query();
    assert!(before.contains("CalicoNode"), "{before}");
    house.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    assert_eq!(query(), before);
}
