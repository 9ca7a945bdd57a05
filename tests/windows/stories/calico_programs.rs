//! Calico's own programs, from the releases that `CALICOCTL_WIN_REAL_RELEASE` names, on the test machine and a real API
//! server. The other stories play them by stand-ins.

use std::collections::BTreeSet;
use std::path::Path;

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Layout, Seed};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::first_day::remote_access;
use crate::api_server::ApiServer;
use crate::house::{ADDRESS_OF_POD, House, NODE, SOON, config};
use crate::machine::eventually;
use crate::parts::part;

/// The address of the machine's only adapter.
const ADDRESS: &str = "10.20.0.21";

/// The pods that the cluster's controllers want on the node: three of a Deployment, one of a DaemonSet.
const PODS: usize = 4;

const NAMED_BY: &str = "CALICOCTL_WIN_REAL_RELEASE";

/// kubelet's code, which runs no CNI plugin here, says that each pod has the same address. The server stores the one of the
/// pod's sandbox, once it has one.
const ADDRESSES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: addresses}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods/status]}]
  matchConditions:
  - name: assigned
    expression: object.metadata.?annotations["ADDRESS"].orValue("") != ""
  variables: [{name: ip, expression: 'string(object.metadata.annotations["ADDRESS"])'}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "add", path: "/status/podIP", value: variables.ip},
         JSONPatch{op: "add", path: "/status/podIPs", value: [{"ip": variables.ip}]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: addresses}
spec: {policyName: addresses}
"#;

/// An archive as Calico's authors publish it: `calico-windows-v3.31.7.zip`.
struct Release {
    version: String,
    archive: Vec<u8>,
}

impl Release {
    fn read(file: &Path) -> Self {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("calico-windows-").unwrap_or_else(|| panic!("{NAMED_BY}: {}", file.display()));
        let archive = std::fs::read(file).unwrap_or_else(|e| panic!("{NAMED_BY}: {}: {e}", file.display()));
        Self { version: version.into(), archive }
    }

    /// The definitions that a cluster of this release has.
    fn layout(&self) -> Layout {
        let minor: u32 = self.version.split('.').nth(1).unwrap().parse().unwrap();
        if minor < 33 { Layout::V1 } else { Layout::V3 }
    }
}

/// What the variable names, older first, separated as in PATH.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what they did not")]
fn releases() -> Vec<Release> {
    let named = std::env::var_os(NAMED_BY).unwrap_or_default();
    if named.is_empty() {
        eprintln!("skipped: {NAMED_BY} names no release of Calico");
        return Vec::new();
    }
    std::env::split_paths(&named).map(|file| Release::read(&file)).collect()
}

/// A machine that has joined a cluster with this release on its Linux node.
struct Node {
    cluster: ApiServer,
    house: House,
}

/// A machine with each release, one after the other; none without the parts.
fn nodes(backend: &str) -> impl Iterator<Item = (Release, Node)> {
    releases().into_iter().map_while(move |release| {
        let node = Node::joined(&release, release.layout(), backend)?;
        Some((release, node))
    })
}

/// The cluster's own account of Calico, and its program on Linux.
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/calico-node";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/calico-system/daemonsets/calico-node";

const IPAM_BLOCKS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipamblocks.crd.projectcalico.org";

impl Node {
    /// `layout`: the definitions of the cluster.
    fn joined(release: &Release, layout: Layout, backend: &str) -> Option<Self> {
        let (manager, kubemark) = (part("kube-controller-manager")?, part("kubemark")?);
        let mut cluster = ApiServer::start()?;
        cluster.control(&manager);
        cluster.define(layout);
        let seed = Seed { layout, calico: release.version.clone(), ..Seed::new(NODE) };
        cluster.seed(&seed, "calico-system");
        cluster.mutates_by(&ADDRESSES.replace("ADDRESS", ADDRESS_OF_POD));
        cluster.on_windows(Some(ADDRESS));
        let login = cluster.file("kubeconfig");
        cluster.start_kubemark(&kubemark, NODE, &login);
        if backend == "windows-bgp" {
            let group = match layout {
                Layout::V1 => "crd.projectcalico.org/v1",
                Layout::V3 => "projectcalico.org/v3",
            };
            let pool = format!("/apis/{group}/ippools/default-ipv4-ippool");
            cluster.patch(&pool, &json!({ "spec": { "vxlanMode": "Never" } }));
        }
        let house = House::bare(&cluster, &release.version, &config(&release.version, backend))?;
        let house = house.with_release(&release.version, release.archive.clone());
        // Felix (felix/dataplane/windows/endpoint_mgr.go) keeps the rules of a pod by its name: to another endpoint of a pod
        // whose first one nobody deleted it applies none.
        house.machine.file("test/runtime.tidy", "");
        drop(house.start_kubelet());
        Some(Self { cluster, house })
    }

    /// The Node in the cluster.
    fn object(&self) -> Value {
        self.cluster.get(&format!("/api/v1/nodes/{NODE}"))
    }

    /// What Calico and this program wrote on the Node.
    fn annotation(&self, name: &str) -> String {
        self.object()["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
    }

    fn is_cordoned(&self) -> bool {
        self.object()["spec"]["unschedulable"] == true
    }

    /// The node's pods, after those that wait for a node came to it.
    fn pods(&self) -> Vec<Value> {
        self.cluster.bind_waiting_pods(NODE);
        let pods = self.cluster.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}"));
        pods["items"].as_array().unwrap().clone()
    }

    /// Waits until each pod of the node has an endpoint with the address that Calico assigned, and Felix's rules there
    /// instead of the one by which the CNI plugin closes it. Returns the ids of the endpoints.
    #[track_caller]
    fn until_pods_are_attached(&self) -> BTreeSet<String> {
        eventually("pods with Felix's rules", SOON * 2, || {
            let pods = self.pods();
            let text = self.house.read("test/hns.endpoints");
            let endpoints: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let attached = self.house.read("test/attached");
            let endpoint_of = |pod: &Value| {
                let uid = pod["metadata"]["uid"].as_str()?;
                let assigned = attached.lines().rev().find_map(|line| line.strip_prefix(uid))?.trim().to_owned();
                let is_its = |one: &&Value| one["IPAddress"] == assigned.as_str();
                let endpoint = endpoints.iter().find(is_its)?;
                let mut policies = endpoint["Policies"].as_array()?.iter();
                let is_open = policies.any(|policy| policy["Type"] == "ACL" && policy["Action"] == "Allow");
                is_open.then(|| endpoint["ID"].to_string())
            };
            let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
            let found: Option<BTreeSet<String>> = pods.iter().filter(stays).map(endpoint_of).collect();
            found.filter(|found| found.len() == PODS)
        })
    }

    /// Gives the cluster the role and the program of another release, and the field of the newer definitions. A field more
    /// does not matter to an older release.
    fn has_calico(&self, version: &str) {
        let dir = TempDir::new().unwrap();
        let seed = Seed { calico: version.into(), ..Seed::new(NODE) };
        let model = EmbeddedCluster::start(dir.path(), &seed, &[]).unwrap();
        let of_model = |path: &str| model.as_admin(&Method::GET, path, None).unwrap();
        self.cluster.patch(ROLE, &json!({ "rules": of_model(ROLE)["rules"] }));
        let image = &of_model(DAEMON_SET)["spec"]["template"]["spec"]["containers"][0]["image"];
        self.calico_on_linux_has("image", image.clone());
        let mut versions = self.cluster.get(IPAM_BLOCKS)["spec"]["versions"].clone();
        let fields = &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["attributes"];
        fields["items"]["properties"]["releasedAt"] = json!({ "type": "string", "format": "date-time" });
        self.cluster.patch(IPAM_BLOCKS, &json!({ "spec": { "versions": versions } }));
    }

    /// Sets a field of the DaemonSet's container.
    fn calico_on_linux_has(&self, field: &str, value: Value) {
        let mut containers = self.cluster.get(DAEMON_SET)["spec"]["template"]["spec"]["containers"].clone();
        containers[0][field] = value;
        let template = json!({ "spec": { "containers": containers } });
        self.cluster.patch(DAEMON_SET, &json!({ "spec": { "template": template } }));
    }

    fn vsid(&self) -> Value {
        self.house.hns().remove("Calico").unwrap_or_default()["Subnets"][0]["Policies"][0]["VSID"].clone()
    }

    /// Removes Calico; HNS has nothing of it left.
    fn remove(self) {
        self.house.run("uninstall -y").exits(0);
        let left = self.house.hns();
        assert_eq!(left.keys().map(String::as_str).collect::<Vec<_>>(), [""; 0], "{left:#?}");
        assert_eq!(self.house.read("test/hns.endpoints"), "");
    }
}

#[test]
fn each_release_of_calico_is_installed_changed_booted_and_removed() {
    for (_release, node) in nodes("vxlan") {
        let house = &node.house;
        house.install();
        house.until_healthy();
        assert_eq!(node.vsid(), 4096);
        assert_eq!(node.annotation("projectcalico.org/IPv4Address"), format!("{ADDRESS}/24"));
        let mac = node.annotation("projectcalico.org/VXLANTunnelMACAddr");
        assert!(!mac.is_empty());
        let pods = node.until_pods_are_attached();
        house.run("verify").exits(0);

        house.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
        house.until_healthy();
        assert_eq!((node.vsid(), node.is_cordoned()), (Value::from(5000), false));
        assert!(node.until_pods_are_attached().is_disjoint(&pods));

        house.machine.cut_power();
        house.machine.power_on();
        drop(house.start_kubelet());
        house.until_healthy();
        assert_eq!(node.vsid(), 5000);
        node.until_pods_are_attached();
        node.remove();
    }
}

#[test]
fn an_upgrade_from_one_release_to_the_next_and_back_waits_for_the_cluster() {
    let [old, new, ..] = &releases()[..] else { return };
    let Some(node) = Node::joined(old, Layout::V1, "vxlan") else { return };
    let house = &node.house;
    house.install();
    house.until_healthy();
    let pods = node.until_pods_are_attached();
    let archive = house.machine.file(&format!("calico-windows-{}.zip", new.version), &new.archive);
    let upgrade = ["upgrade", "--yes", "-c", &house.config, "--release", &archive, "-o", "json"];

    // Felix of the next release would never be in sync with the role of this one.
    let refused = house.machine.run(&upgrade).exits(3).json();
    assert_eq!(refused["changed"], false, "{refused:#}");
    house.until_healthy();

    node.has_calico(&new.version);
    house.machine.run(&upgrade).exits(0);
    assert_eq!(house.until_healthy()["calico_version"], new.version.as_str());
    assert_eq!(node.until_pods_are_attached(), pods, "no pod was touched");
    house.run("verify").exits(0);

    let refused = house.run("rollback --yes -o json").exits(3).json();
    assert_eq!(refused["changed"], false, "{refused:#}");
    node.has_calico(&old.version);
    house.run("rollback --yes").exits(0);
    assert_eq!(house.until_healthy()["calico_version"], old.version.as_str());
    assert_eq!(node.until_pods_are_attached(), pods);
    node.remove();
}

#[test]
fn with_bgp_each_release_attaches_pods_and_confd_renders_its_files() {
    for (release, node) in nodes("windows-bgp") {
        let house = &node.house;
        remote_access(house);
        drop(house.start_kubelet());
        if release.version.starts_with("v3.32.") {
            // The check is right: these templates call a function that confd of this release does not have.
            let refused = house.install_json(3);
            assert_eq!(refused["error"]["id"], "WindowsBgpRelease", "{refused:#}");
            let ignored = ["--ignore-preflight-errors", "WindowsBgpRelease", "-o", "json"];
            let failed = house.machine.run(&[house.install_words(), ignored.to_vec()].concat()).exits(11).json();
            let what = failed["error"].to_string();
            assert!(what.contains("it has not rendered peerings.ps1 and blocks.ps1"), "{failed:#}");
            assert!(what.contains("getenv") && what.contains("not defined"), "{failed:#}");
            node.remove();
            continue;
        }
        house.install();
        house.until_healthy();
        assert_eq!(house.hns()["Calico"]["Type"], "L2Bridge");
        node.until_pods_are_attached();
        for file in ["peerings.ps1", "blocks.ps1"] {
            eventually(file, SOON, || house.machine.c(r"CalicoWindows\confd").join(file).exists().then_some(()));
        }
        house.run("verify").exits(0);
        node.remove();
    }
}

/// Calico's data is in the cluster's own etcd, as with kubeadm.
#[test]
fn with_etcd_each_release_attaches_pods_and_keeps_its_data_there() {
    for (release, node) in nodes("vxlan") {
        let house = &node.house;
        let resource = |kind: &str, plural: &str, name: &str, spec: Value| {
            // Calico updates none without these two.
            let metadata = json!({
                "name": name, "uid": "0b4c9a5e-1f1e-4c39-9d3c-1a2b3c4d5e6f",
                "creationTimestamp": "2026-01-01T00:00:00Z" });
            let object = json!({
                "kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec });
            node.cluster.put_in_etcd(&format!("/calico/resources/v3/projectcalico.org/{plural}/{name}"), &object);
        };
        let pool = json!({ "cidr": "192.168.0.0/16", "ipipMode": "Never", "vxlanMode": "Always", "nodeSelector": "all()", "blockSize": 26 });
        resource("IPPool", "ippools", "default-ipv4-ippool", pool);
        resource("FelixConfiguration", "felixconfigurations", "default", json!({ "vxlanVNI": 4096 }));
        let information = json!({ "calicoVersion": release.version, "clusterGUID": "a", "datastoreReady": true });
        resource("ClusterInformation", "clusterinformations", "default", information);
        let ipam = json!({ "strict_affinity": true, "auto_allocate_blocks": true });
        node.cluster.put_in_etcd("/calico/ipam/v2/config", &ipam);
        let variables = json!([
            { "name": "DATASTORE_TYPE", "value": "etcdv3" }, { "name": "ETCD_ENDPOINTS", "value": node.cluster.etcd() }]);
        node.calico_on_linux_has("env", variables);
        let endpoints = format!("datastore.etcd.endpoints=[{}]", node.cluster.etcd());
        let in_etcd = vec!["--set", "datastore.type=etcdv3", "--set", &endpoints];
        let words: Vec<&str> = [house.install_words(), in_etcd].concat();
        house.machine.run(&words).exits(0);
        house.until_healthy();
        node.until_pods_are_attached();
        assert!(node.annotation("projectcalico.org/IPv4Address").is_empty(), "Calico's data is in etcd");
        house.run("verify").exits(0);
        node.remove();
    }
}

/// Another program has made the pods' network and their endpoints, as on AKS.
#[test]
fn with_another_cni_plugin_felix_writes_rules_that_an_uninstall_removes() {
    for (_release, node) in nodes("none") {
        let house = &node.house;
        let network = "4E0B3D8C-6A57-4C2C-8A44-0D6B0F6D5A11";
        let azure = json!({
            "ID": network, "Name": "azure", "Type": "L2Bridge", "State": 1,
            "Subnets": [{ "AddressPrefix": "10.240.0.0/16", "GatewayAddress": "10.240.0.1" }] });
        house.machine.file("test/hns.networks", format!("{azure}\n"));
        let pods = eventually("the controllers' pods", SOON, || Some(node.pods()).filter(|pods| pods.len() == PODS));
        let (mut endpoints, mut attached) = (String::new(), String::new());
        for (number, pod) in pods.iter().enumerate() {
            let address = format!("10.240.0.{}", 50 + number);
            let endpoint = json!({
                "ID": format!("0C6B2F8E-0000-4000-8000-00000000000{number}"), "Name": format!("pod-{number}"),
                "State": 3, "Type": "L2Bridge", "VirtualNetwork": network, "VirtualNetworkName": "azure",
                "IPAddress": address, "MacAddress": format!("00-15-5D-00-01-0{number}"),
                "SharedContainers": [format!("sandbox-{number}")], "Policies": [] });
            endpoints += &format!("{endpoint}\n");
            attached += &format!("{} {address}\n", pod["metadata"]["uid"].as_str().unwrap());
        }
        house.machine.file("test/hns.endpoints", endpoints);
        house.machine.file("test/attached", attached);
        house.install();
        let status = house.until_healthy();
        assert_eq!(status["policy_networks"], json!(["azure"]), "{status:#}");
        node.until_pods_are_attached();

        house.run("uninstall -y").exits(0);
        let left = house.read("test/hns.endpoints");
        assert!(left.lines().count() == PODS && !left.contains("Block"), "only what lets everything pass: {left}");
        assert_eq!(house.hns().keys().collect::<Vec<_>>(), ["azure"]);
    }
}
