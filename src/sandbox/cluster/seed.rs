//! The initial cluster: a Linux node with Calico, and a Windows node that has joined but has no network yet.

use serde_json::{Value, json};

use super::admission::pod_defaults;
use super::controllers::{count_disruptions, publish_root_ca};
use super::resources::{Layout, Resource, calico, core};
use super::store::{CALICO, Key, Store, add, now, owner_reference};
use super::{bootstrap, roles, schema};

const POD_CIDR: &str = "192.168.0.0/16";
const SERVICE_CIDR: &str = "10.96.0.0/12";
const LINUX: &str = "linux-1";
const LINUX_ADDRESS: &str = "10.20.0.10";
const KUBERNETES: &str = "v1.36.2";

fn image_of(release: &str) -> String {
    format!("docker.io/calico/node:{release}")
}

/// Upgrades Calico on Linux to another release: its manifests are applied, and its nodes run it.
pub fn upgrade_calico(store: &mut Store, release: &str) {
    store.define_by(release);
    roles::update(store);
    let key = Key::new(core("daemonsets"), "calico-system", "calico-node");
    if let Some(mut set) = store.get(&key).cloned() {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = image_of(release).into();
        store.update(key, set);
    }
    let information = calico(store.layout).iter().find(|r| r.kind == "ClusterInformation").expect("the table has it");
    let key = Key::new(information, "", "default");
    if let Some(mut found) = store.get(&key).cloned() {
        found["spec"]["calicoVersion"] = release.into();
        store.update(key, found);
    }
}

/// The definition of a new cluster. Used only at the first start; afterwards the state is.
#[derive(Debug, Clone)]
pub struct Seed {
    /// Name of the Windows node, as its kubelet registered it.
    pub windows_node: String,
    /// Its InternalIP.
    pub windows_address: String,
    /// Its Windows version, as in `10.0.20348.2700`.
    pub windows_version: String,
    /// Which API group has Calico's resources.
    pub layout: Layout,
    /// The release of Calico that the Linux nodes run, as in `v3.32.1`: its definitions and its role.
    pub calico: String,
}

impl Seed {
    /// A Windows Server 2022 node in a cluster with `crd.projectcalico.org/v1`.
    pub fn new(windows_node: &str) -> Self {
        Self {
            windows_node: windows_node.into(),
            windows_address: "10.20.0.21".into(),
            windows_version: "10.0.20348.2700".into(),
            layout: Layout::V1,
            calico: CALICO.into(),
        }
    }

    /// Puts everything into an empty store.
    pub(super) fn plant(&self, mut store: Store, ca_pem: &str) -> Store {
        for namespace in ["default", "kube-system", "kube-node-lease", "calico-system", "demo"] {
            add(
                &mut store,
                core("namespaces"),
                "",
                namespace,
                json!({
                    "metadata": {"labels": {"kubernetes.io/metadata.name": namespace}},
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
                }),
            );
        }
        publish_root_ca(&mut store, ca_pem);
        roles::plant(&mut store);
        bootstrap::plant(&mut store);
        for resource in calico(self.layout) {
            definition(&mut store, resource);
        }
        configuration(&mut store);
        self.nodes(&mut store);
        self.calico(&mut store);
        self.workloads(&mut store);
        count_disruptions(&mut store);
        store.compact();
        store
    }

    fn nodes(&self, store: &mut Store) {
        let linux = node(LINUX, "linux", LINUX_ADDRESS, &json!({"node-role.kubernetes.io/worker": ""}));
        let annotations = json!({
            "projectcalico.org/IPv4Address": format!("{LINUX_ADDRESS}/24"),
            "projectcalico.org/IPv4VXLANTunnelAddr": "192.168.10.0",
            "projectcalico.org/VXLANTunnelMACAddr": "66:0e:3a:5b:70:01",
        });
        let mut linux = with_network(linux, "False", "CalicoIsUp", "Calico is running on this node");
        for (name, value) in annotations.as_object().into_iter().flatten() {
            linux["metadata"]["annotations"][name] = value.clone();
        }
        add(store, core("nodes"), "", LINUX, linux);

        let windows = windows_node(&self.windows_node, &self.windows_address, &self.windows_version);
        add(store, core("nodes"), "", &self.windows_node, windows);
    }

    /// Calico itself: its DaemonSet, its configuration, and the Linux node's address block.
    fn calico(&self, store: &mut Store) {
        let labels = json!({"k8s-app": "calico-node"});
        let template = json!({
            "metadata": {"labels": labels},
            "spec": {
                "hostNetwork": true, "nodeSelector": {"kubernetes.io/os": "linux"}, "serviceAccountName": "calico-node",
                "containers": [{
                    "name": "calico-node", "image": image_of(&self.calico),
                    "env": [{"name": "DATASTORE_TYPE", "value": "kubernetes"}],
                }],
            },
        });
        let set = add(
            store,
            core("daemonsets"),
            "calico-system",
            "calico-node",
            json!({
                "metadata": {"labels": labels},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
                "status": {
                    "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberAvailable": 1, "numberMisscheduled": 0,
                    "numberReady": 1, "observedGeneration": 1, "updatedNumberScheduled": 1,
                },
            }),
        );
        pod(store, &set, &template, ("calico-system", "calico-node-x7k2p"), (LINUX, LINUX_ADDRESS), true);

        let line = store.calico_line().to_owned();
        let mut put = |plural: &str, name: &str, spec: Value| {
            let resource = calico(self.layout).iter().find(|r| r.plural == plural);
            let resource = resource.expect("only called with Calico's own plurals");
            let mut object = json!({"metadata": {}, "spec": spec});
            schema::prune(resource, &line, &mut object);
            add(store, resource, "", name, object);
        };
        put("bgpconfigurations", "default", json!({"nodeToNodeMeshEnabled": false, "logSeverityScreen": "Info"}));
        put(
            "clusterinformations",
            "default",
            json!({
                "calicoVersion": self.calico, "clusterGUID": "4f0b8f6a8c1e4c0db2a1c1d0e9f8a7b6",
                "clusterType": "k8s,kdd,operator,typha,win", "datastoreReady": true, "variant": "Calico",
            }),
        );
        put(
            "felixconfigurations",
            "default",
            json!({
                "bpfEnabled": false, "floatingIPs": "Disabled", "logSeverityScreen": "Info", "nftablesMode": "Auto",
                "reportingInterval": "0s", "vxlanEnabled": true, "vxlanPort": 4789, "vxlanVNI": 4096,
            }),
        );
        let ipam = if self.layout == Layout::V1 { "ipamconfigs" } else { "ipamconfigurations" };
        put(ipam, "default", json!({"autoAllocateBlocks": true, "maxBlocksPerHost": 0, "strictAffinity": true}));
        put(
            "ippools",
            "default-ipv4-ippool",
            json!({
                "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic", "blockSize": 26, "cidr": POD_CIDR,
                "ipipMode": "Never", "natOutgoing": true, "nodeSelector": "all()", "vxlanMode": "Always",
            }),
        );
        let block = "192.168.10.0/26";
        let deleted = if self.layout == Layout::V1 { json!("false") } else { json!(false) };
        put(
            "blockaffinities",
            "linux-1-192-168-10-0-26",
            json!({"cidr": block, "deleted": deleted, "node": LINUX, "state": "confirmed", "type": "host"}),
        );
        put(
            "ipamblocks",
            "192-168-10-0-26",
            json!({
                "affinity": "host:linux-1", "allocations": vec![Value::Null; 64], "attributes": [], "cidr": block,
                "deleted": false, "sequenceNumber": 0, "strictAffinity": true,
                "unallocated": (0..64).collect::<Vec<_>>(),
            }),
        );
    }

    /// A Windows application with a disruption budget, so that there is something to drain, and a DaemonSet, whose pod
    /// a drain skips.
    fn workloads(&self, store: &mut Store) {
        let labels = json!({"app": "fluent-bit"});
        let template = json!({
            "metadata": {"labels": labels},
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "containers": [{"name": "fluent-bit", "image": "cr.fluentbit.io/fluent/fluent-bit:windows-2022-3.2.4"}],
            },
        });
        let set = json!({
            "metadata": {"labels": labels}, "spec": {"selector": {"matchLabels": labels}, "template": template},
            "status": {"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1},
        });
        let set = add(store, core("daemonsets"), "demo", "fluent-bit", set);
        let here = (self.windows_node.as_str(), self.windows_address.as_str());
        pod(store, &set, &template, ("demo", "fluent-bit-7hb2k"), here, false);

        let labels = json!({"app": "web"});
        let template = json!({
            "metadata": {"labels": labels},
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022"}],
            },
        });
        let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
        let metadata = json!({"labels": labels});
        let deployment = json!({"metadata": metadata, "spec": spec, "status": {"replicas": 2}});
        let deployment = add(store, core("deployments"), "demo", "web", deployment);
        let mut set = json!({"metadata": metadata, "spec": spec, "status": {"replicas": 2}});
        set["metadata"]["ownerReferences"] = json!([owner_reference(&deployment)]);
        let set = add(store, core("replicasets"), "demo", "web-5d8f7c9b6d", set);
        for suffix in ["4xkzq", "9vlmt"] {
            let name = format!("web-5d8f7c9b6d-{suffix}");
            pod(store, &set, &template, ("demo", &name), (&self.windows_node, &self.windows_address), false);
        }
        add(
            store,
            core("poddisruptionbudgets"),
            "demo",
            "web",
            json!({"metadata": {}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}}),
        );
    }
}

/// A Windows Node before it has a network.
pub(super) fn windows_node(name: &str, address: &str, version: &str) -> Value {
    let build: Vec<&str> = version.splitn(4, '.').take(3).collect();
    let labels = json!({"node.kubernetes.io/windows-build": build.join(".")});
    let mut windows = node(name, "windows", address, &labels);
    windows["status"]["nodeInfo"]["kernelVersion"] = version.into();
    with_network(windows, "True", "NoRouteCreated", "no network plugin has set up this node")
}

fn node(name: &str, os: &str, address: &str, labels: &Value) -> Value {
    let mut all = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": os, "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name, "kubernetes.io/os": os,
    });
    for (label, value) in labels.as_object().into_iter().flatten() {
        all[label] = value.clone();
    }
    // As many as a block of the pool has for a Windows node.
    let pods = if os == "windows" { "60" } else { "110" };
    let image = if os == "windows" { "Windows Server 2022 Datacenter" } else { "Ubuntu 24.04.2 LTS" };
    let kernel = if os == "windows" { "10.0.20348.2700" } else { "6.8.0-57-generic" };
    json!({
        "metadata": {"labels": all, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec": {},
        "status": {
            "capacity": {"cpu": "4", "memory": "8388148Ki", "pods": pods},
            "allocatable": {"cpu": "4", "memory": "8285748Ki", "pods": pods},
            "conditions": [{
                "type": "Ready", "status": "True", "lastHeartbeatTime": now(), "lastTransitionTime": now(),
                "reason": "KubeletReady", "message": "kubelet is posting ready status",
            }],
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": name, "systemUUID": "11111111-2222-3333-4444-555555555555", "bootID": "1",
                "kernelVersion": kernel, "osImage": image, "containerRuntimeVersion": "containerd://1.7.22",
                "kubeletVersion": KUBERNETES, "kubeProxyVersion": "", "operatingSystem": os, "architecture": "amd64",
            },
        },
    })
}

fn with_network(mut node: Value, unavailable: &str, reason: &str, message: &str) -> Value {
    if let Some(conditions) = node["status"]["conditions"].as_array_mut() {
        conditions.insert(
            0,
            json!({
                "type": "NetworkUnavailable", "status": unavailable, "lastHeartbeatTime": now(),
                "lastTransitionTime": now(), "reason": reason, "message": message,
            }),
        );
    }
    node
}

/// A running pod of `owner` on a node.
fn pod(
    store: &mut Store,
    owner: &Value,
    template: &Value,
    (namespace, name): (&str, &str),
    (node, address): (&str, &str),
    host_network: bool,
) {
    let mut pod = template.clone();
    let prefix = name.rsplit_once('-').map_or(name, |(prefix, _)| prefix);
    pod["metadata"]["generateName"] = format!("{prefix}-").into();
    pod["metadata"]["ownerReferences"] = json!([owner_reference(owner)]);
    pod["spec"]["nodeName"] = node.into();
    if pod["spec"]["serviceAccountName"].is_null() {
        pod["spec"]["serviceAccountName"] = "default".into();
    }
    let ready =
        |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now()});
    pod["status"] = json!({
        "phase": "Running", "conditions": [ready("Ready"), ready("ContainersReady")], "hostIP": address,
        "startTime": now(), "qosClass": "BestEffort",
    });
    if host_network {
        pod["status"]["podIP"] = address.into();
    }
    pod_defaults(&mut pod);
    add(store, core("pods"), namespace, name, pod);
}

/// The objects of kubeadm, CoreDNS and the Calico operator that an installer reads.
fn configuration(store: &mut Store) {
    let cluster = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nclusterName: kubernetes\ncontrolPlaneEndpoint: {LINUX_ADDRESS}:6443\n\
         kind: ClusterConfiguration\nkubernetesVersion: {KUBERNETES}\nnetworking:\n  dnsDomain: cluster.local\n  \
         podSubnet: {POD_CIDR}\n  serviceSubnet: {SERVICE_CIDR}\n"
    );
    let endpoint = json!({"KUBERNETES_SERVICE_HOST": LINUX_ADDRESS, "KUBERNETES_SERVICE_PORT": "6443"});
    for (namespace, name, data) in [
        ("kube-system", "kubeadm-config", json!({"ClusterConfiguration": cluster})),
        ("calico-system", "kubernetes-services-endpoint", endpoint),
    ] {
        add(store, core("configmaps"), namespace, name, json!({"metadata": {}, "data": data}));
    }
    let cidr = json!({"metadata": {}, "spec": {"cidrs": [SERVICE_CIDR]}});
    add(store, core("servicecidrs"), "", "kubernetes", cidr);
    let installation = json!({
        "metadata": {},
        "spec": {
            "calicoNetwork": {
                "bgp": "Disabled", "windowsDataplane": "Disabled",
                "ipPools": [{
                    "name": "default-ipv4-ippool", "blockSize": 26, "cidr": POD_CIDR, "encapsulation": "VXLAN",
                    "natOutgoing": "Enabled", "nodeSelector": "all()",
                }],
            },
            "cni": {"type": "Calico", "ipam": {"type": "Calico"}}, "serviceCIDRs": [SERVICE_CIDR], "variant": "Calico",
        },
        "status": {"calicoVersion": CALICO, "variant": "Calico"},
    });
    add(store, core("installations"), "", "default", installation);
    for (namespace, name, address, port) in
        [("default", "kubernetes", "10.96.0.1", 443), ("kube-system", "kube-dns", "10.96.0.10", 53)]
    {
        let protocols: &[&str] = if port == 53 { &["UDP", "TCP"] } else { &["TCP"] };
        let ports: Vec<Value> = protocols
            .iter()
            .map(|p| {
                let name = match (port, *p) {
                    (53, "UDP") => "dns",
                    (53, _) => "dns-tcp",
                    _ => "https",
                };
                json!({"name": name, "protocol": p, "port": port, "targetPort": if port == 53 { 53 } else { 6443 }})
            })
            .collect();
        let service = json!({
            "metadata": {"labels": {"kubernetes.io/cluster-service": "true"}},
            "spec": {
                "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "ports": ports,
                "selector": if port == 53 { json!({"k8s-app": "kube-dns"}) } else { Value::Null },
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            },
            "status": {"loadBalancer": {}},
        });
        add(store, core("services"), namespace, name, service);
    }
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "kube-dns", "k8s-app": "kube-dns"}},
        "addressType": "IPv4",
        "endpoints": [{
            "addresses": ["192.168.10.4"], "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": LINUX,
        }],
        "ports": [{"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 53}],
    });
    add(store, core("endpointslices"), "kube-system", "kube-dns-8x2fk", slice);
    for (namespace, name) in [
        ("calico-system", "calico-node"),
        ("calico-system", "calico-cni-plugin"),
        ("calico-system", "calico-kube-controllers"),
        ("kube-system", "coredns"),
        ("kube-system", "kube-proxy"),
    ] {
        add(store, core("serviceaccounts"), namespace, name, json!({"metadata": {}}));
    }
}

fn definition(store: &mut Store, resource: &Resource) {
    let scope = if resource.namespaced { "Namespaced" } else { "Cluster" };
    let established = json!({
        "type": "Established", "status": "True", "lastTransitionTime": now(), "reason": "InitialNamesAccepted",
        "message": "the initial names have been accepted",
    });
    let names = json!({
        "plural": resource.plural, "singular": resource.singular(), "kind": resource.kind,
        "listKind": format!("{}List", resource.kind),
    });
    let object = json!({
        "metadata": {"annotations": {"controller-gen.kubebuilder.io/version": "v0.18.0"}},
        "spec": {
            "group": resource.group, "names": names, "scope": scope,
            "versions": [{"name": resource.version, "served": true, "storage": true}],
            "conversion": {"strategy": "None"},
        },
        "status": {"conditions": [established], "acceptedNames": names, "storedVersions": [resource.version]},
    });
    add(store, core("customresourcedefinitions"), "", &resource.qualified(), object);
}
