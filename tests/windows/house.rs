//! A Windows node that has joined a cluster and waits for Calico: the machine, an API server on this host's loopback, a
//! release with runnable programs, and control over what those programs do.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::version::CalicoVersion;
use http::Method;
use serde_json::Value;
use tempfile::TempDir;

#[cfg(not(windows))]
use crate::api_server::ApiServer;
pub use crate::machine::SOON;
use crate::machine::{Ended, Machine, eventually, eventually_every};
use crate::parts::part;
use crate::wire::Wire;

/// The name of the node in the cluster; the machine's own may be anything.
pub const NODE: &str = "win-a1";

/// The annotation of a pod with the address that its sandbox has here.
#[cfg(not(windows))]
pub const ADDRESS_OF_POD: &str = "tests/address";

/// The folder that tests and stand-ins share.
const TEST: &str = "test";

pub struct House {
    pub machine: Machine,
    /// The connection to the API server.
    #[cfg_attr(windows, expect(dead_code, reason = "it is there as long as the house is"))]
    pub wire: Wire,
    /// It runs until the house is dropped or loads a saved state.
    cluster: Served,
    /// The config document's path, for the executable.
    pub config: String,
    /// The release archive.
    pub release: String,
    #[cfg_attr(windows, expect(dead_code, reason = "it is there as long as the house is"))]
    cluster_dir: TempDir,
    /// The house was dropped.
    gone: Arc<AtomicBool>,
}

/// The API server of a house: none while it loads a saved state.
type Served = Arc<RwLock<Option<EmbeddedCluster>>>;

/// The API server, for as long as it is borrowed.
pub struct Borrowed<'a>(RwLockReadGuard<'a, Option<EmbeddedCluster>>);

impl std::ops::Deref for Borrowed<'_> {
    type Target = EmbeddedCluster;

    fn deref(&self) -> &EmbeddedCluster {
        self.0.as_ref().expect("it serves")
    }
}

fn read(served: &Served) -> RwLockReadGuard<'_, Option<EmbeddedCluster>> {
    served.read().unwrap_or_else(PoisonError::into_inner)
}

/// Does kubelet's part with pods until the house is dropped: tells the stand-in for containerd which the node has, and the
/// API server their addresses.
///
/// `pods`: the node's pods, if the API server answers. `runs`: says that a pod runs, with its address.
fn play_kubelet(
    test: &Path,
    gone: &AtomicBool,
    pods: impl Fn() -> Option<Vec<Value>>,
    runs: impl Fn(&Value, Ipv4Addr),
) {
    let mut told = String::new();
    while !gone.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        let Some(pods) = pods() else { continue };
        let text = |pod: &Value, key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        let line = |pod: &Value| format!("{} {}/{}\n", text(pod, "uid"), text(pod, "namespace"), text(pod, "name"));
        let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let lines: String = pods.iter().filter(stays).map(line).collect();
        if lines != told && fs::write(test.join("pods.new"), &lines).is_ok() {
            drop(fs::rename(test.join("pods.new"), test.join("pods")));
            told = lines;
        }
        let attached = fs::read_to_string(test.join("attached")).unwrap_or_default();
        for pod in &pods {
            let line = attached.lines().rev().find_map(|line| line.strip_prefix(&text(pod, "uid")));
            if let Some(Ok(ip)) = line.map(|ip| ip.trim().parse::<Ipv4Addr>())
                && pod["status"]["podIP"] != ip.to_string()
            {
                runs(pod, ip);
            }
        }
    }
}

impl House {
    /// A node for Calico v3.32.1 and vxlan. None if there is no machine to test on.
    pub fn new() -> Option<Self> {
        Self::with("v3.32.1", "vxlan")
    }

    pub fn with(version: &str, backend: &str) -> Option<Self> {
        let machine = Machine::new()?;
        let cluster_dir = TempDir::new().unwrap();
        let seed = Seed { calico: version.into(), ..Seed::new(NODE) };
        let cluster = EmbeddedCluster::start(cluster_dir.path(), &seed, &[]).unwrap();
        if backend == "windows-bgp" {
            let pool = "/apis/crd.projectcalico.org/v1/ippools/default-ipv4-ippool";
            let routed = serde_json::json!({ "spec": { "vxlanMode": "Never" } });
            cluster.as_admin(&Method::PATCH, pool, Some(&routed)).unwrap();
        }
        let wire = Wire::to(cluster.addr());
        let port = |port: u16| format!("https://127.0.0.1:{port}");
        let kubeconfig = cluster.admin_kubeconfig_direct().replace(&port(cluster.addr().port()), &port(wire.port));
        // kubelet's, with which CalicoNode deletes pods that a boot has left without a network.
        machine.file_on_c("k/config", &kubeconfig);
        let config = config(version, backend);
        let house = Self::of(machine, wire, Some(cluster), cluster_dir, &kubeconfig, &config)?;
        let (seen, written) = (Arc::clone(&house.cluster), Arc::clone(&house.cluster));
        house.plays_kubelet(
            move || {
                // A drain needs no others to run.
                let of_daemon_set = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
                let pods = read(&seen).as_ref()?.pods_on(NODE).ok()?;
                Some(pods.into_iter().filter(of_daemon_set).collect())
            },
            move |pod, ip| drop(read(&written).as_ref().map(|cluster| cluster.pod_runs(pod, ip))),
        );
        Some(house.with_release(version, release(version)))
    }

    /// A machine with only containerd, and a cluster of its own that does not know it.
    #[cfg(not(windows))]
    pub fn bare(server: &ApiServer, version: &str, config: &str) -> Option<Self> {
        let machine = Machine::new()?;
        let wire = Wire::to(([127, 0, 0, 1], server.port()).into());
        let house = Self::of(machine, wire, None, TempDir::new().unwrap(), &server.kubeconfig(), config)?;
        let (client, writer) = (server.another_client(), server.another_client());
        // kubemark says what runs. The address goes with it where a policy of the server stores it.
        house.plays_kubelet(
            move || {
                let pods: Value = client.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}")).ok()??;
                pods["items"].as_array().cloned()
            },
            move |pod, ip| {
                let (about, ip) = (&pod["metadata"], ip.to_string());
                if about["annotations"][ADDRESS_OF_POD] != ip {
                    let [namespace, name] = ["namespace", "name"].map(|key| about[key].as_str().unwrap_or_default());
                    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
                    let annotations = serde_json::json!({ ADDRESS_OF_POD: ip });
                    let patch = serde_json::json!({ "metadata": { "annotations": annotations } });
                    let _gone = writer.merge_patch::<_, Value>(&path, &patch);
                }
            },
        );
        Some(house.with_release(version, release(version)))
    }

    /// The release that it installs.
    #[must_use]
    pub fn with_release(mut self, version: &str, archive: Vec<u8>) -> Self {
        self.release = self.machine.file(&format!("calico-windows-{version}.zip"), archive);
        self
    }

    fn plays_kubelet(
        &self,
        pods: impl Fn() -> Option<Vec<Value>> + Send + 'static,
        runs: impl Fn(&Value, Ipv4Addr) + Send + 'static,
    ) {
        let (test, gone) = (self.machine.c(TEST), Arc::clone(&self.gone));
        std::thread::spawn(move || play_kubelet(&test, &gone, pods, runs));
    }

    fn of(
        machine: Machine,
        wire: Wire,
        cluster: Option<EmbeddedCluster>,
        cluster_dir: TempDir,
        kubeconfig: &str,
        config: &str,
    ) -> Option<Self> {
        let (_calico, cri) = (part("calico.exe")?, part("cri.exe")?);
        let test = machine.c(TEST);
        // That of the story before, whose last programs are just ending. Under Wine each machine is new.
        if cfg!(windows) && test.exists() {
            eventually("the folder of the story before to be deleted", SOON, || fs::remove_dir_all(&test).ok());
        }
        fs::create_dir_all(&test).unwrap();
        fs::write(test.join("kubeconfig"), kubeconfig).unwrap();
        let config = machine.file("node.yaml", config);
        machine.file_on_c("test/cri.exe", fs::read(cri).unwrap());
        let (cluster, gone) = (Arc::new(RwLock::new(cluster)), Arc::new(AtomicBool::new(false)));
        Some(Self { machine, wire, cluster, config, release: String::new(), cluster_dir, gone })
    }

    /// The API server, for changes by others in the cluster.
    pub fn cluster(&self) -> Borrowed<'_> {
        Borrowed(read(&self.cluster))
    }

    /// A text file of the cluster, by its path in the cluster's folder.
    #[cfg(not(windows))]
    pub fn of_cluster(&self, name: &str) -> String {
        fs::read_to_string(self.cluster_dir.path().join(name)).unwrap()
    }

    /// A node with Calico installed and healthy.
    pub fn installed() -> Option<Self> {
        let house = Self::new()?;
        house.install();
        Some(house)
    }

    /// A healthy node whose kubelet runs.
    pub fn joined() -> Option<Self> {
        let house = Self::new()?;
        drop(house.start_kubelet());
        house.install();
        house.until_healthy();
        Some(house)
    }

    /// Cuts the power and saves the state of the machine and the cluster.
    #[cfg(not(windows))]
    pub fn save(&mut self) -> Saved {
        self.machine.cut_power();
        // A server's state is complete on the disk when it has ended.
        *self.cluster.write().unwrap() = None;
        let saved = Saved { machine: self.machine.beside(), cluster: TempDir::new().unwrap() };
        self.machine.save_to(saved.machine.path());
        copy_cluster(self.cluster_dir.path(), saved.cluster.path());
        saved
    }

    /// Restores the state of machine and cluster; the machine, which must be off, boots.
    #[cfg(not(windows))]
    pub fn load(&mut self, saved: &Saved) {
        *self.cluster.write().unwrap() = None;
        self.machine.load_from(saved.machine.path());
        copy_cluster(saved.cluster.path(), self.cluster_dir.path());
        let cluster = EmbeddedCluster::start(self.cluster_dir.path(), &Seed::new(NODE), &[]).unwrap();
        self.wire.reconnect(cluster.addr());
        *self.cluster.write().unwrap() = Some(cluster);
        self.machine.power_on();
    }

    /// Starts the stand-in for kubelet.
    pub fn start_kubelet(&self) -> Child {
        self.machine.file_on_c("k/kubelet.exe", standin("kubelet.exe"));
        self.machine.start_program(r"C:\k\kubelet.exe", &[], "kubelet-said")
    }

    /// Runs `calicoctl-win WORDS`, split at blanks.
    pub fn run(&self, words: &str) -> Ended {
        self.machine.run(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// The arguments of a complete install of this house's release and config.
    pub fn install_words(&self) -> Vec<&str> {
        vec!["install", "--yes", "-c", &self.config, "--release", &self.release]
    }

    #[track_caller]
    pub fn install(&self) -> Ended {
        self.machine.run(&self.install_words()).exits(0)
    }

    /// The JSON of an install, which must have this exit code.
    #[track_caller]
    pub fn install_json(&self, code: i32) -> Value {
        self.machine.run(&[self.install_words(), vec!["-o", "json"]].concat()).exits(code).json()
    }

    /// The document of `status`, whatever its exit code. A difference between FelixConfiguration's VNI and the node's
    /// is left out: `tests/it` has a story about that.
    #[track_caller]
    pub fn status(&self) -> Value {
        let mut status = self.run("status -o json").json();
        let reasons: Vec<&str> = status["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if matches!(reasons[..], [one] if one.contains(" in FelixConfiguration: pods here reach no pod ")) {
            assert_eq!(status["overall"], "Degraded", "{status:#}");
            status["overall"] = "Healthy".into();
        }
        status
    }

    /// Waits until `status` matches.
    #[track_caller]
    pub fn until(&self, what: &str, mut fits: impl FnMut(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Starting the executable costs Wine a tenth of a second of a core.
            eventually_every(Duration::from_millis(250), what, SOON, || {
                last = self.status();
                fits(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("waited for {what}; status says\n{last:#}"))
    }

    #[track_caller]
    pub fn until_healthy(&self) -> Value {
        self.until("a healthy node", |status| status["overall"] == "Healthy")
    }

    /// A service in `status`.
    #[track_caller]
    pub fn service(&self, name: &str) -> Value {
        let status = self.status();
        let services = status["services"].as_array().unwrap_or_else(|| panic!("no services in {status:#}"));
        services.iter().find(|service| service["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Sets what a stand-in does at its next starts, a line for each; `steer.h` has the words.
    pub fn order(&self, name: &str, lines: &str) {
        let file = self.test_file(&format!("{name}.do"));
        // Atomically, since the stand-in may start right now.
        let temporary = file.with_extension("new");
        fs::write(&temporary, lines).unwrap();
        fs::rename(temporary, file).unwrap();
    }

    /// Makes a running stand-in end with this code.
    pub fn end(&self, name: &str, code: i32) {
        let file = self.test_file(&format!("{name}.now"));
        let temporary = file.with_extension("new");
        fs::write(&temporary, code.to_string()).unwrap();
        fs::rename(temporary, file).unwrap();
    }

    /// A stand-in's own log: an object for each start and each stop.
    pub fn said(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.test_file(&format!("{name}.log"))).unwrap_or_default();
        // The last line may be half written.
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line.strip_suffix('\n')?).ok()).collect()
    }

    /// The starts of a stand-in so far.
    pub fn starts(&self, name: &str) -> Vec<Value> {
        self.said(name).into_iter().filter(|said| said["event"] == "start").collect()
    }

    /// Waits until a stand-in was started this often.
    #[track_caller]
    pub fn until_started(&self, name: &str, times: usize) -> Vec<Value> {
        eventually(&format!("start {times} of {name}"), SOON, || {
            let starts = self.starts(name);
            (starts.len() >= times).then_some(starts)
        })
    }

    /// The numbers in `C:\test\settings` that control the HNS of the tests; `vmcompute.c` has them.
    #[cfg(not(windows))]
    pub fn hns_settings(&self, lines: &str) {
        fs::write(self.test_file("settings"), lines).unwrap();
    }

    /// The faults of HNS, a line each; `vmcompute.c` has the words. Nothing fixes them.
    #[cfg(not(windows))]
    pub fn hns_faults(&self, lines: &str) {
        fs::write(self.test_file("hns.faults"), lines).unwrap();
    }

    /// Another product's HNS networks: one without a vSwitch, and one with one.
    #[cfg(not(windows))]
    pub fn foreign_networks(&self) {
        let nat = r#"{"ID":"7D0C1D2E-5C0B-4F7E-9D7E-3A1B2C3D4E5F","Name":"nat","Type":"nat","Subnets":[{"AddressPrefix":"172.20.0.0/20","GatewayAddress":"172.20.0.1"}],"State":1}"#;
        let vendor = r#"{"ID":"11111111-73A1-4D1E-A6A5-0C6E5F1A2B3C","Name":"vendor-overlay","Type":"Internal","Subnets":[{"AddressPrefix":"10.1.0.0/16","GatewayAddress":"10.1.0.1"}],"State":1}"#;
        fs::write(self.test_file("hns.networks"), format!("{nat}\n{vendor}\n")).unwrap();
    }

    /// The HNS networks by name, from HNS itself.
    #[cfg(not(windows))]
    pub fn hns(&self) -> BTreeMap<String, Value> {
        let text = fs::read_to_string(self.test_file("hns.networks")).unwrap_or_default();
        by_name(text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()))
    }

    /// The HNS networks by name, from `status`, in HNS's own form.
    #[cfg(windows)]
    pub fn hns(&self) -> BTreeMap<String, Value> {
        let status = self.status();
        by_name(status["networks"].as_array().into_iter().flatten().map(|network| {
            let policies = serde_json::json!([{ "Type": "VSID", "VSID": network["vsid"] }]);
            serde_json::json!({ "Name": network["name"], "Type": network["type"], "Subnets": [{ "Policies": policies }] })
        }))
    }

    pub fn test_file(&self, name: &str) -> PathBuf {
        self.machine.c(TEST).join(name)
    }

    /// A text file of drive C; empty if it does not exist.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.machine.c(path)).unwrap_or_default()
    }
}

/// The saved state of a machine and its cluster.
#[cfg(not(windows))]
pub struct Saved {
    machine: TempDir,
    cluster: TempDir,
}

#[cfg(not(windows))]
fn copy_cluster(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy_cluster(&entry.path(), &to);
        } else {
            let _bytes = fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn by_name(networks: impl Iterator<Item = Value>) -> BTreeMap<String, Value> {
    networks.map(|network| (network["Name"].as_str().unwrap_or_default().to_owned(), network)).collect()
}

/// Shows what happened if the story failed. A machine that is not discarded is restored.
impl Drop for House {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            self.show_what_happened();
        }
        if cfg!(windows) {
            for kubelet in self.machine.processes_of("kubelet.exe") {
                self.machine.kill(&kubelet);
            }
            self.run("uninstall --purge --yes");
        }
    }
}

impl House {
    #[expect(clippy::print_stdout, reason = "the test harness shows it with the failure")]
    fn show_what_happened(&self) {
        for folder in [
            r"ProgramData\calicoctl-win\logs\calico",
            r"ProgramData\calicoctl-win\agent",
            r"ProgramData\calicoctl-win\state",
            "test",
        ] {
            for entry in fs::read_dir(self.machine.c(folder)).into_iter().flatten().flatten() {
                if entry.path().extension().is_some_and(|kind| kind == "exe") {
                    continue;
                }
                let text = fs::read(entry.path()).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                let lines: Vec<&str> = text.lines().collect();
                let short = |line: &&str| line.chars().take(400).collect::<String>();
                let tail: Vec<String> = lines.iter().skip(lines.len().saturating_sub(25)).map(short).collect();
                println!("--- C:\\{folder}\\{}\n{}", entry.file_name().display(), tail.join("\n"));
            }
        }
    }
}

/// A config document that sets everything that detection could get wrong on a test machine.
pub fn config(version: &str, backend: &str) -> String {
    format!(
        "apiVersion: calicoctl-win/v1alpha1
kind: NodeInstallation
spec:
  calico:
    version: {version}
  kubernetes:
    kubeconfig: 'C:\\test\\kubeconfig'
    nodeName: {NODE}
    serviceCIDRs: [10.96.0.0/12]
    dns:
      servers: [10.96.0.10]
  calicoNetwork:
    backend: {backend}
  services:
    extraEnv:
      FELIX_HEALTHPORT: '{}'
",
        free_port()
    )
}

/// A loopback port for Felix's health: all machines of the tests share this host's. Below the ports that Linux assigns
/// to connections, since Felix listens only later.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 100).unwrap() * 100;
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2000).find(free).unwrap()
}

/// The archive of a version, in its real layout, with runnable programs.
pub fn release(version: &str) -> Vec<u8> {
    static MADE: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(version.to_owned())
        .or_insert_with(|| {
            let version: CalicoVersion = version.parse().unwrap();
            // After the program's end, where the stand-in reads its release; Windows ignores it.
            let program = || [standin("calico.exe"), format!("calico-version={version};").as_bytes()].concat();
            let paths = ["calico-node.exe", "calico.exe", "cni/calico.exe", "cni/calico-ipam.exe"];
            SyntheticRelease::build_with(&version, &paths.map(|path| (path, program())).into())
        })
        .clone()
}

/// The bytes of a stand-in program.
pub fn standin(name: &str) -> &'static [u8] {
    static READ: OnceLock<BTreeMap<String, Vec<u8>>> = OnceLock::new();
    let programs = READ.get_or_init(|| {
        let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let entries = fs::read_dir(Machine::standins()).unwrap().map(|entry| entry.unwrap().path());
        let built = entries.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), read(&path)));
        let calico = part("calico.exe").map(|path| read(&path)).into_iter();
        let calico = calico.flat_map(|one| [("calico.exe".into(), one.clone()), ("calico-node.exe".into(), one)]);
        built.chain(calico).collect()
    });
    programs.get(name).unwrap_or_else(|| panic!("there is no stand-in {name}"))
}
