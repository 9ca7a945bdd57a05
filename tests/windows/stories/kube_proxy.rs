//! kube-proxy itself, with DSR, beside Calico on a node: it works with the network of this program, and with the next one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::{ApiServer, free_ports};
use crate::house::{House, NODE, SOON};
use crate::machine::eventually_every;
use crate::parts::part;

/// The address of the machine's only adapter.
const NODE_IP: &str = "10.20.0.21";

const WEB_IP: &str = "10.96.7.7";

/// kube-proxy's service, as it is named everywhere.
const SERVICE: &str = "kube-proxy";

impl House {
    /// Makes kube-proxy the service that it is on a node, with the address of Calico's host endpoint as its source VIP,
    /// and starts it.
    fn start_kube_proxy(&self, program: &Path, source_vip: &str) {
        let [health, metrics] = free_ports();
        let config = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: kernelspace
hostnameOverride: {NODE}
bindAddress: {NODE_IP}
healthzBindAddress: 127.0.0.1:{health}
metricsBindAddress: 127.0.0.1:{metrics}
clusterCIDR: 192.168.0.0/16
clientConnection:
  kubeconfig: 'C:\\test\\kube-proxy-kubeconfig'
winkernel:
  networkName: Calico
  sourceVip: {source_vip}
  enableDSR: true
"
        );
        self.machine.file("test/kube-proxy.yaml", config);
        let line = self.service_program(program, r"--config=C:\test\kube-proxy.yaml --windows-service");
        self.sc(&["create", SERVICE, "start=", "demand", "binPath=", &line]);
        self.sc(&["start", SERVICE]);
    }

    /// Puts a built program into C:\k; returns its command line as a service.
    pub(crate) fn service_program(&self, program: &Path, arguments: &str) -> String {
        let name = program.file_name().unwrap().to_str().unwrap();
        fs::create_dir_all(self.machine.c("k")).unwrap();
        std::os::unix::fs::symlink(program.canonicalize().unwrap(), self.machine.c("k").join(name)).unwrap();
        format!(r"C:\k\{name} {arguments}")
    }

    #[track_caller]
    pub(crate) fn sc(&self, arguments: &[&str]) -> String {
        self.machine.run_program("sc", arguments).exits(0).stdout
    }

    /// A table of the HNS of the tests.
    fn hns_table(&self, name: &str) -> Vec<Value> {
        self.read(&format!("test/{name}")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(super) fn calico_ep(&self) -> Value {
        self.hns_table("hns.endpoints").into_iter().find(|endpoint| endpoint["Name"] == "Calico_ep").unwrap()
    }

    /// Waits until HNS balances what goes to the Service from Calico's host endpoint, on the network that is there.
    pub(super) fn until_balanced(&self, vip: &str) {
        eventually_every(Duration::from_millis(250), "a load balancer of the Service", SOON, || {
            let calico = self.hns()["Calico"]["ID"].clone();
            let endpoints = self.hns_table("hns.endpoints");
            let on_calico = |reference: &Value| {
                let id = reference.as_str().unwrap_or_default().trim_start_matches("/endpoints/");
                let is_it = |one: &&Value| one["ID"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(id));
                endpoints.iter().find(is_it).is_some_and(|one| one["VirtualNetwork"] == calico)
            };
            self.hns_table("hns.policylists").into_iter().find(|list| {
                let policy = &list["Policies"][0];
                let mut references = list["References"].as_array().into_iter().flatten();
                policy["VIPs"][0] == WEB_IP && policy["SourceVIP"] == vip && references.all(on_calico)
            })
        });
    }
}

/// Pods of another machine, as an EndpointSlice has them: Felix made a route to its block.
fn backends(pods: &[&str]) -> Value {
    let backend = |pod: &&str| json!({ "addresses": [pod], "nodeName": "linux-1", "conditions": { "ready": true } });
    pods.iter().map(backend).collect()
}

/// The Node.
fn node(cluster: &ApiServer) {
    let node = json!({ "metadata": { "name": NODE, "labels": { "kubernetes.io/os": "windows" } } });
    cluster.post("/api/v1/nodes", &node);
    let addresses = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": NODE_IP }] } });
    cluster.patch(&format!("/api/v1/nodes/{NODE}/status"), &addresses);
}

/// A Service with these backends.
pub(super) fn web(cluster: &ApiServer, pods: &[&str]) {
    let service = json!({ "metadata": { "name": "web" }, "spec": {
        "clusterIP": WEB_IP, "ports": [{ "port": 80, "targetPort": 8080 }] } });
    cluster.post("/api/v1/namespaces/default/services", &service);
    let slice = json!({
        "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "port": 8080, "protocol": "TCP", "name": "" }],
        "endpoints": backends(pods),
    });
    cluster.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice);
}

#[test]
fn kube_proxy_balances_on_our_network_and_on_the_next_one() {
    let Some(program) = part("kube-proxy.exe") else { return };
    let Some(cluster) = ApiServer::start() else { return };
    let Some(house) = House::joined() else { return };
    node(&cluster);
    web(&cluster, &["192.168.10.9"]);
    house.machine.file("test/kube-proxy-kubeconfig", cluster.kubeconfig());

    let vip = house.calico_ep()["IPAddress"].as_str().unwrap().to_owned();
    house.start_kube_proxy(&program, &vip);
    house.until_balanced(&vip);
    let before = house.machine.processes_of("kube-proxy.exe");

    let network = house.hns()["Calico"]["ID"].clone();
    let said = house.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0).stdout;
    assert_ne!(house.hns()["Calico"]["ID"], network, "the network was re-created");
    // It keeps what it knows of the network that is gone, so it is stopped before and started after it.
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}:\n{said}"));
    assert!(at("services-stop   kube-proxy, CalicoFelix, CalicoNode") < at("hns-network     Calico"), "{said}");
    assert!(at("node-startup") < at("services-start  CalicoFelix, kube-proxy"), "{said}");
    let after = house.machine.processes_of("kube-proxy.exe");
    assert_eq!((before.len(), after.len()), (1, 1));
    assert_ne!(before[0].pid, after[0].pid);
    // If kube-proxy was faster than Felix, it took the backend for one outside the cluster, until something changes.
    let another = json!({ "endpoints": backends(&["192.168.10.9", "192.168.10.10"]) });
    cluster.patch("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1", &another);
    house.until_balanced(house.calico_ep()["IPAddress"].as_str().unwrap());
}
