//! Whether a TCP connection in the sandbox's cluster is made: the way from the source through endpoint, network, VSID,
//! route and policy to a program that listens. Nothing is sent; the facts are those of `node.yaml` and of the cluster.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use http::Method;
use ipnet::Ipv4Net;
use serde_json::Value;

use super::cluster::{EmbeddedCluster, text};
use crate::calico::kube_proxy;
use crate::calico::services::is_ours;
use crate::item::NetworkKind;
use crate::node::hns::is_acl;
use crate::node::sandbox::model::{Endpoint, Model, Name, NodeNetwork};
use crate::node::sandbox::{locate, router_mac};
use crate::paths::kubernetes as paths;
use crate::values::WinPath;
use crate::yaml;

/// The network of pods, and the endpoint for the host on it.
const NETWORK: &str = "Calico";
const HOST_ENDPOINT: &str = "Calico_ep";

/// Why there is no connection, as agnhost prints it.
pub type NoConnection = String;

/// Where a connection begins.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The Windows node itself.
    Node,
    /// A pod, on any node.
    Pod(&'a Value),
}

/// Where a route of the Windows node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// To the pods here, through the host's endpoint.
    Pods,
    /// To a neighbour on the same link.
    Link,
    Gateway(Ipv4Addr),
}

/// The metric that Windows gives the routes of an interface's own addresses.
const ON_LINK: u32 = 256;

/// The length of an IPAM block's prefix, by default: what a node tells its BGP peers of.
const BLOCK: u8 = 26;

/// What the cluster and the node have, read once.
pub struct Traffic<'a> {
    model: &'a Model,
    /// The sandbox's folder.
    root: &'a Path,
    node: &'a str,
    pods: Vec<Value>,
    services: Vec<Value>,
    slices: Vec<Value>,
    nodes: Vec<Value>,
    policies: Vec<Value>,
    /// Calico's policies for all namespaces.
    global: Vec<Value>,
    pools: Vec<Value>,
    vni: u64,
}

fn timeout<T>() -> Result<T, NoConnection> {
    Err("TIMEOUT".into())
}

impl<'a> Traffic<'a> {
    /// # Errors
    /// When the cluster's state cannot be read.
    pub fn read(cluster: &EmbeddedCluster, node: &'a str, model: &'a Model, root: &'a Path) -> Result<Self> {
        let list = |path: &str| -> Result<Vec<Value>> {
            let listed = cluster.as_admin(&Method::GET, path, None)?;
            Ok(listed["items"].as_array().cloned().unwrap_or_default())
        };
        let calico = |plural: &str| {
            list(&format!("/apis/crd.projectcalico.org/v1/{plural}"))
                .or_else(|_| list(&format!("/apis/projectcalico.org/v3/{plural}")))
        };
        let felix = calico("felixconfigurations")?;
        let felix = felix.iter().find(|felix| felix["metadata"]["name"] == "default");
        Ok(Self {
            model,
            root,
            node,
            pods: list("/api/v1/pods")?,
            services: list("/api/v1/services")?,
            slices: list("/apis/discovery.k8s.io/v1/endpointslices")?,
            nodes: list("/api/v1/nodes")?,
            policies: list("/apis/networking.k8s.io/v1/networkpolicies")?,
            global: calico("globalnetworkpolicies")?,
            pools: calico("ippools")?,
            vni: felix.and_then(|felix| felix["spec"]["vxlanVNI"].as_u64()).unwrap_or(4096),
        })
    }

    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// As agnhost prints it.
    pub fn connect(&self, from: Source<'_>, to: &str) -> Result<(), NoConnection> {
        let (host, port) = to.rsplit_once(':').ok_or("OTHER: missing port in address")?;
        let port = port.parse().map_err(|_| format!("OTHER: unknown port {port}"))?;
        let ip = host.parse().or_else(|_| self.resolve(from, host))?;
        self.reach(from, ip, port)
    }

    /// Asks the cluster's DNS.
    fn resolve(&self, from: Source<'_>, name: &str) -> Result<Ipv4Addr, NoConnection> {
        let dns = self.service("kube-system", "kube-dns").and_then(|dns| address(&dns["spec"]["clusterIP"]));
        let failed = |why: &str| format!("DNS: lookup {name}: {why}");
        let dns = dns.ok_or_else(|| failed("no such host"))?;
        self.reach(from, dns, 53).map_err(|_| failed("i/o timeout"))?;
        let mut parts = name.split('.');
        let (service, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let found = self.service(namespace, service).filter(|_| parts.next() == Some("svc"));
        found.and_then(|found| address(&found["spec"]["clusterIP"])).ok_or_else(|| failed("no such host"))
    }

    fn service(&self, namespace: &str, name: &str) -> Option<&Value> {
        let is_it = |one: &&Value| one["metadata"]["namespace"] == namespace && one["metadata"]["name"] == name;
        self.services.iter().find(is_it)
    }

    fn reach(&self, from: Source<'_>, to: Ipv4Addr, port: u64) -> Result<(), NoConnection> {
        let virtual_ip = |service: &&Value| address(&service["spec"]["clusterIP"]) == Some(to);
        if let Some(service) = self.services.iter().find(virtual_ip) {
            return self.service_port(from, service, "port", port);
        }
        if let Some(node) = self.nodes.iter().find(|node| internal_ip(node) == Some(to)) {
            let published = self.services.iter().find(|service| has_port(service, "nodePort", port).is_some());
            return match published {
                // Windows forwards it only if the machine has the address.
                Some(service) if node["metadata"]["name"] == self.node && self.has_address(to) => {
                    self.service_port(Source::Node, service, "nodePort", port)
                }
                Some(_) if node["metadata"]["name"] == self.node => timeout(),
                _ => self.outside(from, to),
            };
        }
        let has_it = |pod: &&Value| address(&pod["status"]["podIP"]) == Some(to) && pod["spec"]["hostNetwork"] != true;
        match self.pods.iter().find(has_it) {
            Some(pod) if self.is_here(pod) => self.pod_here(from, pod, port),
            Some(pod) => {
                self.to_other_node(from, to, text(pod, "/spec/nodeName").and_then(|name| self.node_ip(name)))?;
                listens(pod, port)
            }
            // An endpoint of the cluster's own, such as CoreDNS.
            None => match self.slices.iter().find_map(|slice| node_of(slice, to)) {
                Some(node) => self.to_other_node(from, to, self.node_ip(node)),
                None => self.outside(from, to),
            },
        }
    }

    fn is_here(&self, pod: &Value) -> bool {
        text(pod, "/spec/nodeName") == Some(self.node)
    }

    fn on_windows(&self, from: Source<'_>) -> bool {
        match from {
            Source::Node => true,
            Source::Pod(pod) => self.is_here(pod),
        }
    }

    /// kube-proxy's load balancers. `field`: which number of the service's ports was asked for.
    fn service_port(&self, from: Source<'_>, service: &Value, field: &str, port: u64) -> Result<(), NoConnection> {
        if self.on_windows(from) {
            // Its source address is that of the host's endpoint.
            let balances =
                |network: &NodeNetwork| host_endpoint(network).is_some_and(|host| self.balances(network, host.ip));
            if !self.model.kube_proxy || !self.network().is_some_and(balances) {
                return timeout();
            }
        }
        let Some(target) = has_port(service, field, port) else { return timeout() };
        let name = text(service, "/metadata/name").unwrap_or_default();
        let of_service =
            |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str() == Some(name);
        let slices = self.slices.iter().filter(of_service).flat_map(endpoints);
        let selector = service["spec"]["selector"].as_object();
        let selected = self.pods.iter().filter(|pod| {
            let runs = text(pod, "/status/phase") == Some("Running");
            let labels = &pod["metadata"]["labels"];
            let same = pod["metadata"]["namespace"] == service["metadata"]["namespace"];
            runs && same && selector.is_some_and(|all| all.iter().all(|(name, value)| labels[name] == *value))
        });
        let Some(backend) = slices.chain(selected.filter_map(|pod| address(&pod["status"]["podIP"]))).next() else {
            return timeout();
        };
        self.reach(from, backend, target)
    }

    /// Whether the service kube-proxy, if Windows has one, runs on the network of pods and with the host's address there.
    /// Of one that a script starts only whether it runs is known.
    fn balances(&self, network: &NodeNetwork, host: Ipv4Addr) -> bool {
        let Some(service) = self.model.services.get(&Name::new(kube_proxy::NAME)) else { return true };
        let ours = is_ours(&service.definition).then(|| WinPath::known(paths::KUBE_PROXY_EFFECTIVE));
        let file = ours.or_else(|| kube_proxy::config_file(&service.definition));
        let (on, vip) = match file {
            Some(path) => {
                let text = locate(self.root, &path).ok().and_then(|path| std::fs::read_to_string(path).ok());
                let config: Value = text.and_then(|text| yaml::read(&text).ok()).unwrap_or_default();
                let field = |name: &str| config["winkernel"][name].as_str().unwrap_or_default().to_owned();
                (Some(field("networkName")), Some(field("sourceVip")))
            }
            None => {
                let flag = |name: &str| kube_proxy::flag(&service.definition, name);
                (flag("--network-name"), flag("--source-vip"))
            }
        };
        let has_vip = network.kind != NetworkKind::Overlay || vip.map_or(on.is_none(), |vip| vip == host.to_string());
        service.pid.is_some() && on.is_none_or(|on| on == NETWORK) && has_vip
    }

    fn network(&self) -> Option<&NodeNetwork> {
        self.model.networks.get(&Name::new(NETWORK))
    }

    fn endpoint(&self, pod: &Value) -> Option<&Endpoint> {
        let ip = address(&pod["status"]["podIP"])?;
        self.network()?.endpoints.values().find(|endpoint| endpoint.ip == ip && endpoint.container.is_some())
    }

    fn has_address(&self, ip: Ipv4Addr) -> bool {
        self.model.adapters.iter().any(|adapter| adapter.addresses.iter().any(|cidr| cidr.addr() == ip))
    }

    /// To a pod on the Windows node.
    fn pod_here(&self, from: Source<'_>, pod: &Value, port: u64) -> Result<(), NoConnection> {
        let (Some(network), Some(endpoint)) = (self.network(), self.endpoint(pod)) else { return timeout() };
        match from {
            Source::Node if self.route(endpoint.ip, None) != Some(Hop::Pods) => return timeout(),
            Source::Node => return listens(pod, port),
            Source::Pod(source) if self.is_here(source) => {
                let Some(own) = self.endpoint(source) else { return timeout() };
                if blocks(own, "Out") {
                    return timeout();
                }
            }
            Source::Pod(source) => {
                self.arrives_here(network)?;
                // The answers take the way to that node.
                let there = text(source, "/spec/nodeName").and_then(|name| self.node_ip(name));
                self.leads_to(network, address(&source["status"]["podIP"]), there)?;
            }
        }
        // The CNI plugin closes a new pod until Felix opens it.
        let felix = self.model.services.get(&Name::new("CalicoFelix"));
        if felix.is_some_and(|felix| felix.pid.is_none()) || blocks(endpoint, "In") {
            return timeout();
        }
        if let Source::Pod(source) = from
            && !self.model.acls_ignored
            && (self.is_denied_to_all() || !self.is_allowed(source, pod))
        {
            return timeout();
        }
        listens(pod, port)
    }

    /// Whether a policy of Calico for all pods denies everything that comes in, before the policies of Kubernetes, to which
    /// Calico gives the order 1000 (libcalico-go's conversion). Other policies of Calico have no effect in the sandbox.
    fn is_denied_to_all(&self) -> bool {
        self.global.iter().map(|policy| &policy["spec"]).any(|spec| {
            let for_all = ["selector", "namespaceSelector"]
                .iter()
                .all(|field| matches!(text(spec, &format!("/{field}")), None | Some("" | "all()")));
            let first = spec["ingress"].as_array().and_then(|rules| rules.first()?.as_object());
            let all_denied =
                first.is_some_and(|rule| rule.len() == 1 && rule.get("action").is_some_and(|action| action == "Deny"));
            for_all && all_denied && spec["order"].as_f64().is_some_and(|order| order < 1000.0)
        })
    }

    /// Whether the network policies that select a pod let another in.
    fn is_allowed(&self, from: &Value, to: &Value) -> bool {
        let labels = |pod: &Value, selector: &Value| {
            let wanted = selector["matchLabels"].as_object();
            wanted.is_none_or(|all| all.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value))
        };
        let is_for = |policy: &&Value| {
            policy["metadata"]["namespace"] == to["metadata"]["namespace"] && labels(to, &policy["spec"]["podSelector"])
        };
        let mut policies = self.policies.iter().filter(is_for).peekable();
        if policies.peek().is_none() {
            return true;
        }
        let same = from["metadata"]["namespace"] == to["metadata"]["namespace"];
        policies.flat_map(|policy| policy["spec"]["ingress"].as_array().into_iter().flatten()).any(|rule| {
            let peers = rule["from"].as_array();
            peers.is_none_or(|peers| peers.iter().any(|peer| same && labels(from, &peer["podSelector"])))
        })
    }

    fn node_ip(&self, name: &str) -> Option<Ipv4Addr> {
        self.nodes.iter().find(|node| node["metadata"]["name"] == name).and_then(internal_ip)
    }

    /// The route that Windows takes: the one with the longest prefix, and of those the one with the lowest metric.
    /// `peer`: the node that tells of this address with BGP.
    fn route(&self, to: Ipv4Addr, peer: Option<Ipv4Addr>) -> Option<Hop> {
        let adapters = &self.model.adapters;
        let own = adapters.iter().flat_map(|adapter| &adapter.addresses).filter(|net| net.contains(&to));
        let own = own.map(|net| (net.prefix_len(), ON_LINK, Hop::Link));
        let gateways = adapters.iter().filter_map(|adapter| Some((0, 0, Hop::Gateway(adapter.gateway?))));
        let pods = self.network().filter(|network| host_endpoint(network).is_some());
        let pods = pods.and_then(|network| network.subnet).filter(|subnet| subnet.contains(&to));
        let pods = pods.map(|subnet| (subnet.prefix_len(), ON_LINK, Hop::Pods));
        let told = peer.map(|peer| (BLOCK, ON_LINK, Hop::Gateway(peer)));
        let added = self.model.routes.iter().filter(|(prefix, _)| prefix.contains(&to)).map(|(prefix, route)| {
            let hop = if route.next_hop.is_unspecified() { Hop::Link } else { Hop::Gateway(route.next_hop) };
            (prefix.prefix_len(), route.metric, hop)
        });
        let all = own.chain(gateways).chain(pods).chain(told).chain(added);
        all.max_by_key(|(length, metric, _)| (*length, std::cmp::Reverse(*metric))).map(|(.., hop)| hop)
    }

    /// Whether packets of the machine itself reach an address outside of it.
    fn routes(&self, to: Ipv4Addr) -> bool {
        let near = |ip: Ipv4Addr| {
            let mut nets = self.model.adapters.iter().flat_map(|adapter| &adapter.addresses);
            nets.any(|net| net.contains(&ip)) && !self.model.silent.contains(&ip)
        };
        match self.route(to, None) {
            Some(Hop::Link) => near(to) || to.is_link_local(),
            Some(Hop::Gateway(gateway)) => near(gateway),
            Some(Hop::Pods) | None => false,
        }
    }

    /// Whether packets to a pod of another node reach that node: with VXLAN the host sends them to it in a packet of its
    /// own, else it routes them.
    fn leads_to(
        &self,
        network: &NodeNetwork,
        pod: Option<Ipv4Addr>,
        node: Option<Ipv4Addr>,
    ) -> Result<(), NoConnection> {
        let Some(node) = node else { return Ok(()) };
        let routed = network.kind == NetworkKind::Overlay
            || pod.is_none_or(|pod| self.route(pod, Some(node)) == Some(Hop::Gateway(node)));
        if routed && self.routes(node) { Ok(()) } else { timeout() }
    }

    /// The way out of the Windows node, to pods of another one.
    fn to_other_node(&self, from: Source<'_>, pod: Ipv4Addr, node: Option<Ipv4Addr>) -> Result<(), NoConnection> {
        let source = match from {
            Source::Pod(source) if !self.is_here(source) => return Ok(()),
            Source::Pod(source) => Some(source),
            Source::Node => None,
        };
        let Some(network) = self.network() else { return timeout() };
        if source.is_some_and(|source| self.endpoint(source).is_none_or(|own| blocks(own, "Out"))) {
            return timeout();
        }
        self.carries(network)?;
        self.leads_to(network, Some(pod), node)
    }

    /// Whether packets of the network reach other nodes, and theirs this one.
    fn carries(&self, network: &NodeNetwork) -> Result<(), NoConnection> {
        if !network.management_ip.is_some_and(|ip| self.has_address(ip)) {
            return timeout();
        }
        let works = match network.kind {
            NetworkKind::Overlay => network.vsid.map(u64::from) == Some(self.vni),
            _ => !self.model.bgp_sessions.is_empty(),
        };
        if works { Ok(()) } else { timeout() }
    }

    /// Other nodes send to the address and the MAC that the Node's annotations have.
    fn arrives_here(&self, network: &NodeNetwork) -> Result<(), NoConnection> {
        self.carries(network)?;
        let node = self.nodes.iter().find(|node| node["metadata"]["name"] == self.node);
        let told = |name: &str| {
            let key = format!("projectcalico.org/{name}");
            node.and_then(|node| node["metadata"]["annotations"][&key].as_str()).unwrap_or_default()
        };
        let ip = told("IPv4Address").split('/').next().unwrap_or_default();
        let right = network.management_ip.is_some_and(|own| own.to_string() == ip);
        let mac = router_mac(NETWORK, network);
        if right && (network.kind != NetworkKind::Overlay || mac.as_deref() == Some(told("VXLANTunnelMACAddr"))) {
            Ok(())
        } else {
            timeout()
        }
    }

    /// To an address that is no pod's and no service's.
    fn outside(&self, from: Source<'_>, to: Ipv4Addr) -> Result<(), NoConnection> {
        if self.model.silent.contains(&to) {
            return timeout();
        }
        if !self.on_windows(from) {
            return Ok(());
        }
        if let Source::Pod(source) = from {
            let Some(own) = self.endpoint(source).filter(|own| !blocks(own, "Out")) else { return timeout() };
            // The way back needs the node's own address as source.
            let of_pod = |pool: &&Value| {
                let cidr = pool["spec"]["cidr"].as_str().and_then(|cidr| cidr.parse::<Ipv4Net>().ok());
                cidr.is_some_and(|cidr| cidr.contains(&own.ip))
            };
            if self.pools.iter().find(of_pod).is_none_or(|pool| pool["spec"]["natOutgoing"] != true) {
                return timeout();
            }
        }
        if self.routes(to) { Ok(()) } else { timeout() }
    }
}

fn address(value: &Value) -> Option<Ipv4Addr> {
    value.as_str()?.parse().ok()
}

fn internal_ip(node: &Value) -> Option<Ipv4Addr> {
    let addresses = node["status"]["addresses"].as_array()?;
    address(&addresses.iter().find(|one| one["type"] == "InternalIP")?["address"])
}

/// The addresses of a slice that are ready.
fn endpoints(slice: &Value) -> impl Iterator<Item = Ipv4Addr> {
    let all = slice["endpoints"].as_array().into_iter().flatten();
    let ready = all.filter(|endpoint| endpoint["conditions"]["ready"] != false);
    ready.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten()).filter_map(address)
}

/// The name of the node that has an address of a slice, empty if it does not say; none if the slice does not have it.
fn node_of(slice: &Value, to: Ipv4Addr) -> Option<&str> {
    let mut all = slice["endpoints"].as_array()?.iter().filter(|endpoint| endpoint["conditions"]["ready"] != false);
    let found = all.find(|one| one["addresses"].as_array().into_iter().flatten().any(|ip| address(ip) == Some(to)))?;
    Some(text(found, "/nodeName").unwrap_or_default())
}

/// The target port of a service's port; `field` is `port` or `nodePort`.
fn has_port(service: &Value, field: &str, port: u64) -> Option<u64> {
    let ports = service["spec"]["ports"].as_array()?;
    let found = ports.iter().find(|one| one[field].as_u64() == Some(port))?;
    found["targetPort"].as_u64().or_else(|| found["port"].as_u64())
}

fn host_endpoint(network: &NodeNetwork) -> Option<&Endpoint> {
    network.endpoints.get(&Name::new(HOST_ENDPOINT))
}

/// Whether an ACL of an endpoint blocks everything in a direction.
fn blocks(endpoint: &Endpoint, direction: &str) -> bool {
    let mut acls = endpoint.policies.iter().filter(|policy| is_acl(policy));
    acls.any(|acl| {
        acl["Action"] == "Block" && acl["Direction"] == direction && acl["RemoteAddresses"].as_str().is_none()
    })
}

/// Whether a program of a pod listens on a port; of a program that the sandbox does not know, every port is open.
fn listens(pod: &Value, port: u64) -> Result<(), NoConnection> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut programs = containers.map(super::agnhost::Program::of).peekable();
    let open = |program: super::agnhost::Program| match program {
        super::agnhost::Program::Serves(own) => own == port,
        super::agnhost::Program::Connects(_) => false,
        super::agnhost::Program::Unknown => true,
    };
    if programs.any(open) { Ok(()) } else { Err("REFUSED".into()) }
}
