//! Probes through short-lived pods: a server here, a server on a Linux node, and clients on both. A client's containers
//! connect once each, and end with the result.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::namespace::{ALLOW, DENY, Site};
use super::spec::{self, CONNECT_S, Os, PORT, Place, SERVICE_PORT};
use super::{Asked, Probe};
use crate::apply::cancel;
use crate::cluster::VERIFY_NAMESPACE;
use crate::node::Node;
use crate::report::answer::Answer;
use crate::report::event::Sink;
use crate::wait::Wait;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        id: "PodsStart",
        group: "pods",
        asks: "a pod on this node starts, and HNS has an endpoint with its address",
        fix: "see what kubelet says with: kubectl -n calicoctl-win-verify describe pods",
        asked: Asked::Pods,
    },
    Probe {
        id: "NodeToPod",
        group: "pods",
        asks: "this machine connects to a pod on it",
        fix: "see the probes PodNetwork and HostEndpoint; restore them with: calicoctl-win service restart",
        asked: Asked::Pods,
    },
    Probe {
        id: "PodToPod",
        group: "pods",
        asks: "a pod on this node connects to another one on it",
        fix: "see whether Felix opens new pods with: calicoctl-win logs --component felix",
        asked: Asked::Pods,
    },
    Probe {
        id: "PodToLinux",
        group: "pods",
        asks: "a pod on this node connects to a pod on a Linux node",
        fix: "compare VNI, MTU and UDP port 4789 between the nodes with: calicoctl-win preflight --all",
        asked: Asked::Pods,
    },
    Probe {
        id: "LinuxToPod",
        group: "pods",
        asks: "a pod on a Linux node connects to a pod on this node",
        fix: "write again what other nodes are told of this one with: calicoctl-win service restart",
        asked: Asked::Pods,
    },
    Probe {
        id: "ServiceVip",
        group: "pods",
        asks: "a pod on this node connects to the ClusterIP of a service",
        fix: "see whether kube-proxy runs on this node, on the network Calico and with Calico_ep as its source",
        asked: Asked::Pods,
    },
    Probe {
        id: "NodePort",
        group: "pods",
        asks: "a pod on a Linux node connects to a NodePort at this node's address",
        fix: "see whether kube-proxy runs on this node, and whether its Node has this machine's address",
        asked: Asked::Pods,
    },
    Probe {
        id: "PodDns",
        group: "pods",
        asks: "a pod on this node resolves the name of a service",
        fix: "see the probe ClusterDns, and CoreDNS with: kubectl -n kube-system get pods -l k8s-app=kube-dns",
        asked: Asked::Pods,
    },
    Probe {
        id: "PodEgress",
        group: "pods",
        asks: "a pod on this node connects to an address outside of the pod network",
        fix: "see whether the IP pool has natOutgoing, and whether a firewall lets this machine out",
        asked: Asked::Pods,
    },
    Probe {
        id: "PolicyDeny",
        group: "policy",
        asks: "a NetworkPolicy that denies all traffic to a pod on this node is in effect",
        fix: "see whether Felix writes it with: calicoctl-win logs --component felix",
        asked: Asked::Pods,
    },
    Probe {
        id: "PolicyAllow",
        group: "policy",
        asks: "a second NetworkPolicy lets in the one pod that it names, and no other",
        fix: "see what Windows does not enforce of policies with: calicoctl-win policy lint",
        asked: Asked::Pods,
    },
];

/// What the pods run, and how long they may take.
#[derive(Debug, Clone)]
pub struct PodOptions {
    pub image_windows: String,
    pub image_linux: String,
    /// Namespace and name of a secret with which the images are pulled.
    pub pull_secret: Option<(String, String)>,
    /// How long a pod may take to start.
    pub start_within: Duration,
    /// Whether the policies are tried, and left in place.
    pub demo: bool,
}

/// What is known before a pod starts.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Name of this machine's Node.
    pub node: String,
    /// Its address in the cluster.
    pub address: Option<Ipv4Addr>,
    /// A Node with Linux.
    pub linux: Option<String>,
    /// The domain of services, for example `svc.cluster.local`.
    pub domain: String,
    /// What pods connect to outside of the cluster; none if nothing is known there.
    pub egress: Option<String>,
}

/// How long a client pod may run besides its start: its containers connect at the same time.
const CLIENT_RUNS: Duration = Duration::from_secs(CONNECT_S + 40);

/// How often the API server is asked for the pods.
const LOOK: Duration = Duration::from_secs(1);

/// How often a probe is tried: kube-proxy and Felix may still be writing what a new pod needs.
const TRIES: usize = 2;

/// The roles of the clients that a policy lets in, and does not.
const ALLOWED: &str = "client-allowed";
const DENIED: &str = "client-denied";

/// The probes of one `verify --pods`.
pub(super) struct Pods<'a> {
    pub site: Site<'a>,
    pub ground: &'a Ground,
    pub options: &'a PodOptions,
    pub node: &'a mut dyn Node,
}

/// A connection that a probe asks for.
struct Connection {
    id: &'static str,
    from: Os,
    to: String,
    /// How it is called in the answer.
    what: String,
}

impl Connection {
    /// Its container.
    fn name(&self) -> String {
        let words = self.id.chars().map(|c| if c.is_uppercase() { format!("-{}", c.to_lowercase()) } else { c.into() });
        words.collect::<String>().trim_start_matches('-').to_owned()
    }
}

/// A pod that runs, and its address.
type Running = Result<Ipv4Addr, String>;

impl Pods<'_> {
    /// Runs the probes; `tell` gets each answer. The namespace is there.
    pub fn run(&mut self, tell: &mut dyn FnMut(&'static str, Answer), events: Sink) -> Result<()> {
        let linux = self.ground.linux.clone();
        self.start("server-windows", Os::Windows)?;
        if linux.is_some() {
            self.start("server-linux", Os::Linux)?;
        }
        let service: Value = self.site.create(&spec::service(&self.site.id))?;
        let here = self.running("server-windows", true, events)?;
        tell(
            "PodsStart",
            match &here {
                Ok(ip) => Answer::Holds(format!("a pod runs with {ip}")),
                Err(why) => Answer::Fails(why.clone()),
            },
        );
        let there = match linux {
            Some(_) => self.running("server-linux", false, events)?,
            None => Err("no Linux node is Ready".into()),
        };
        let not_started = || Answer::Skipped("the pod on this node did not start: see PodsStart".into());
        tell(
            "NodeToPod",
            match &here {
                Ok(ip) => self.reach_from_here(*ip, events)?,
                Err(_) => not_started(),
            },
        );
        let (connections, skipped) = self.connections(&here, &there, &service);
        skipped.into_iter().for_each(|(id, answer)| tell(id, answer));
        let mut open: Vec<Connection> = connections;
        for attempt in 1..=TRIES {
            let mut failed = Vec::new();
            let answers = self.connect(&open, attempt, events)?;
            for (connection, answer) in open.into_iter().zip(answers) {
                match answer {
                    // A pod that did not end is not waited for twice.
                    (Answer::Fails(_), true) if attempt < TRIES => failed.push(connection),
                    (answer, _) => tell(connection.id, answer),
                }
            }
            open = failed;
        }
        if self.options.demo {
            self.demo(&here, tell, events)?;
        }
        Ok(())
    }

    /// Denies all traffic to the server here, then lets in one client; pods and policies stay.
    fn demo(&mut self, here: &Running, tell: &mut dyn FnMut(&'static str, Answer), events: Sink) -> Result<()> {
        let Ok(ip) = here else {
            for id in ["PolicyDeny", "PolicyAllow"] {
                tell(id, Answer::Skipped("the pod on this node did not start: see PodsStart".into()));
            }
            return Ok(());
        };
        let to = format!("{ip}:{PORT}");
        if let Err(error) = self.site.create(&spec::policy(&self.site.id, DENY, None)) {
            tell("PolicyDeny", Answer::Fails(format!("{error:#}")));
            tell("PolicyAllow", Answer::Skipped("nothing is denied: see PolicyDeny".into()));
            return Ok(());
        }
        let denied = self.expect(&[(DENIED, false)], &to, events)?;
        let in_effect = denied.is_none();
        tell(
            "PolicyDeny",
            match denied {
                None => Answer::Holds(format!("with the policy {DENY}-{} no pod connects to {to}", self.site.id)),
                Some(why) => Answer::Fails(why),
            },
        );
        if !in_effect {
            tell("PolicyAllow", Answer::Skipped("nothing is denied: see PolicyDeny".into()));
            return Ok(());
        }
        if let Err(error) = self.site.create(&spec::policy(&self.site.id, ALLOW, Some(ALLOWED))) {
            tell("PolicyAllow", Answer::Fails(format!("{error:#}")));
            return Ok(());
        }
        let one = self.expect(&[(ALLOWED, true), (DENIED, false)], &to, events)?;
        tell(
            "PolicyAllow",
            match one {
                None => Answer::Holds(format!(
                    "with the policy {ALLOW}-{} only the pod with role {ALLOWED} does",
                    self.site.id
                )),
                Some(why) => Answer::Fails(why),
            },
        );
        Ok(())
    }

    /// Waits until pods of these roles can connect, or cannot: a policy takes some seconds. Returns what is otherwise at
    /// the end. The pods are created again for each try, and the last ones stay.
    fn expect(&mut self, roles: &[(&str, bool)], to: &str, events: Sink) -> Result<Option<String>> {
        let mut wrong = None;
        for _ in 0..TRIES {
            let containers = [spec::client("connect", to)];
            for (role, _) in roles {
                self.site.end_pod(role, self.node, events)?;
                self.create(role, Os::Windows, &containers)?;
            }
            wrong = None;
            for (role, connects) in roles {
                let pod = match self.ended(role, events)? {
                    Ok(pod) => pod,
                    Err(why) => return Ok(Some(why)),
                };
                let did = pod["status"]["phase"] == "Succeeded";
                if did != *connects {
                    let how = if did { "connects" } else { "does not connect" };
                    wrong = Some(format!("the pod {role}-{} {how} to {to}", self.site.id));
                }
            }
            if wrong.is_none() {
                break;
            }
        }
        Ok(wrong)
    }

    fn place(&self, os: Os) -> Place<'_> {
        let (node, image) = match os {
            Os::Windows => (self.ground.node.as_str(), &self.options.image_windows),
            Os::Linux => (self.ground.linux.as_deref().unwrap_or_default(), &self.options.image_linux),
        };
        Place { os, node, image, secret: None }
    }

    fn create(&self, role: &str, os: Os, containers: &[(String, Vec<String>)]) -> Result<()> {
        let secret = format!("pull-{}", self.site.id);
        let place = Place { secret: self.options.pull_secret.as_ref().map(|_| secret.as_str()), ..self.place(os) };
        self.site.create(&spec::pod(&self.site.id, role, place, containers)).map(drop)
    }

    fn start(&self, role: &str, os: Os) -> Result<()> {
        self.create(role, os, &spec::server())
    }

    /// Waits until a pod runs; on this node, until HNS has its endpoint.
    fn running(&mut self, role: &str, here: bool, events: Sink) -> Result<Running> {
        let limit = self.options.start_within;
        let what = format!("the pod {role}-{} to run", self.site.id);
        let wait = Wait { what: Some(&what), limit, pause: LOOK, rest: &mut sleep };
        let (site, name) = (&self.site, format!("{role}-{}", self.site.id));
        let ran = wait.until(self.node, events, |node, _, _| {
            let endpoints = if here { node.endpoints()? } else { Vec::new() };
            let pod = site.pods()?.into_iter().find(|pod| pod["metadata"]["name"] == name);
            let Some(pod) = pod else { return Ok(Ok(Err(format!("the pod {name} was deleted by somebody else")))) };
            if pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded" {
                return Ok(Ok(Err(format!("the pod {name} has ended: {}", why(&pod)))));
            }
            let ip = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse::<Ipv4Addr>().ok());
            Ok(match ip.filter(|_| pod["status"]["phase"] == "Running") {
                Some(ip) if !here || endpoints.iter().any(|endpoint| endpoint.ip == Some(ip)) => Ok(Ok(ip)),
                Some(ip) => Err(format!("the pod {name} runs with {ip}, and HNS has no endpoint with that address")),
                None => Err(format!("the pod {name} does not run: {}", why(&pod))),
            })
        })?;
        Ok(ran.unwrap_or_else(|missing| Err(format!("{missing}, for {} s", limit.as_secs()))))
    }

    fn reach_from_here(&mut self, ip: Ipv4Addr, events: Sink) -> Result<Answer> {
        let to = SocketAddrV4::new(ip, PORT);
        let limit = Duration::from_secs(CONNECT_S);
        let what = format!("a connection from this machine to {to}");
        let wait = Wait { what: Some(&what), limit, pause: LOOK, rest: &mut cancel::pause };
        let connected = wait.until(self.node, events, |node, waited, _| {
            Ok(node.connect(to, limit.saturating_sub(waited).max(LOOK))?.map_or(Ok(()), Err))
        })?;
        Ok(match connected {
            Ok(()) => Answer::Holds(format!("this machine connects to {to}")),
            Err(word) => Answer::Fails(said(&format!("this machine to {to}"), &word)),
        })
    }

    /// The connections to make, and the probes that cannot be asked.
    fn connections(
        &self,
        here: &Running,
        there: &Running,
        service: &Value,
    ) -> (Vec<Connection>, Vec<(&'static str, Answer)>) {
        let (mut open, mut skipped) = (Vec::new(), Vec::new());
        let mut ask = |id: &'static str, from: Os, to: Result<(String, String), String>| match to {
            Ok((to, what)) => open.push(Connection { id, from, to, what }),
            Err(why) => skipped.push((id, Answer::Skipped(why))),
        };
        let on_linux = there.as_ref().map_err(|why| match &self.ground.linux {
            Some(_) => format!("the pod on the Linux node did not start: {why}"),
            None => why.clone(),
        });
        let on_windows = here.as_ref().map_err(|_| "the pod on this node did not start: see PodsStart".to_owned());
        let both = || on_windows.clone().and_then(|here| on_linux.clone().map(|there| (*here, *there)));
        let at = |what: &str, to: String| (to.clone(), format!("{what} {to}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let virtual_ip = text(&service["spec"]["clusterIP"]);
        ask("PodToPod", Os::Windows, on_windows.clone().map(|ip| at("pod", format!("{ip}:{PORT}"))));
        ask("PodToLinux", Os::Windows, both().map(|(_, ip)| at("Linux pod", format!("{ip}:{PORT}"))));
        ask("LinuxToPod", Os::Linux, both().map(|(ip, _)| at("pod", format!("{ip}:{PORT}"))));
        let vip = on_windows.clone().map(|_| at("service", format!("{virtual_ip}:{SERVICE_PORT}")));
        ask("ServiceVip", Os::Windows, vip);
        let port = service["spec"]["ports"][0]["nodePort"].as_u64();
        let node_port = both().and_then(|_| match (self.ground.address, port) {
            (Some(ip), Some(port)) => Ok(at("NodePort", format!("{ip}:{port}"))),
            (None, _) => Err("the Node has no IPv4 address".into()),
            (_, None) => Err("the API server gave the service no NodePort".into()),
        });
        ask("NodePort", Os::Linux, node_port);
        let name = format!("server-{}.{VERIFY_NAMESPACE}.{}:{SERVICE_PORT}", self.site.id, self.ground.domain);
        ask("PodDns", Os::Windows, on_windows.clone().map(|_| at("name", name)));
        let egress = self.ground.egress.clone().ok_or_else(|| {
            "the API server's address is not outside of this machine: name another with --egress".to_owned()
        });
        ask("PodEgress", Os::Windows, on_windows.and(egress).map(|to| at("address", to)));
        (open, skipped)
    }

    /// Makes connections at the same time, from a pod on each of the two nodes. Returns each answer, and whether its
    /// container gave it.
    fn connect(&mut self, connections: &[Connection], attempt: usize, events: Sink) -> Result<Vec<(Answer, bool)>> {
        let roles =
            [(Os::Windows, format!("client-windows-{attempt}")), (Os::Linux, format!("client-linux-{attempt}"))];
        for (os, role) in &roles {
            let own = connections.iter().filter(|connection| connection.from == *os);
            let containers: Vec<_> = own.map(|connection| spec::client(&connection.name(), &connection.to)).collect();
            if !containers.is_empty() {
                self.create(role, *os, &containers)?;
            }
        }
        let mut answers = Vec::new();
        let mut ended: [Option<Result<Value, String>>; 2] = [None, None];
        for connection in connections {
            let at = usize::from(connection.from == Os::Linux);
            if ended[at].is_none() {
                ended[at] = Some(self.ended(&roles[at].1, events)?);
            }
            answers.push(match ended[at].as_ref().expect("it was just set") {
                Ok(pod) => (answer(connection, pod), true),
                Err(why) => (Answer::Fails(why.clone()), false),
            });
        }
        Ok(answers)
    }

    /// Waits until all containers of a pod have ended.
    fn ended(&mut self, role: &str, events: Sink) -> Result<Result<Value, String>> {
        let limit = self.options.start_within + CLIENT_RUNS;
        let name = format!("{role}-{}", self.site.id);
        let what = format!("the pod {name} to end");
        let wait = Wait { what: Some(&what), limit, pause: LOOK, rest: &mut sleep };
        let site = &self.site;
        let ended = wait.until(self.node, events, |node, _, _| {
            // In a sandbox, kubelet runs when it is looked at.
            node.endpoints()?;
            let pod = site.pods()?.into_iter().find(|pod| pod["metadata"]["name"] == name);
            let Some(pod) = pod else { return Ok(Ok(Err(format!("the pod {name} was deleted by somebody else")))) };
            let statuses = pod["status"]["containerStatuses"].as_array();
            let all = statuses.is_some_and(|all| all.iter().all(|one| one["state"]["terminated"].is_object()));
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            Ok(match phase {
                "Succeeded" | "Failed" if all => Ok(Ok(pod)),
                "Failed" => Ok(Err(format!("the pod {name} has ended: {}", why(&pod)))),
                "Running" => Err(format!("the pod {name} does not end")),
                _ => Err(format!("the pod {name} does not run: {}", why(&pod))),
            })
        })?;
        Ok(ended.unwrap_or_else(|missing| Err(format!("{missing}, for {} s", limit.as_secs()))))
    }
}

/// Lets time pass for the cluster, whose clock is not a sandbox's, unless the run was asked to stop.
fn sleep(_: &mut dyn Node, time: Duration) -> Result<()> {
    cancel::check()?;
    thread::sleep(time);
    cancel::check()
}

/// What a container says of its connection.
fn answer(connection: &Connection, pod: &Value) -> Answer {
    let name = connection.name();
    let statuses = pod["status"]["containerStatuses"].as_array();
    let status = statuses.and_then(|all| all.iter().find(|one| one["name"] == name.as_str()));
    let ended = status.map(|one| &one["state"]["terminated"]).cloned().unwrap_or_default();
    let word = ended["message"].as_str().unwrap_or_default().trim().to_owned();
    let (code, reason) = (ended["exitCode"].as_i64(), ended["reason"].as_str().unwrap_or_default());
    let from = if connection.from == Os::Linux { "a pod on the Linux node" } else { "a pod on this node" };
    if code == Some(0) {
        return Answer::Holds(format!("{from} connects to {}", connection.what));
    }
    // Whether the service answers is another probe's.
    let resolved = connection.id == "PodDns" && ["TIMEOUT", "REFUSED"].iter().any(|other| word.starts_with(other));
    if resolved {
        return Answer::Holds(format!("{from} resolves {}", connection.what));
    }
    let word = if word.is_empty() { format!("OTHER: the container ended with {reason}") } else { word };
    Answer::Fails(said(&format!("{from} to {}", connection.what), &word))
}

/// A failure in words.
fn said(what: &str, word: &str) -> String {
    match word.split_once(':').map_or((word, ""), |(word, rest)| (word, rest.trim())) {
        ("TIMEOUT", _) => format!("{what}: no answer within {CONNECT_S} s (TIMEOUT)"),
        ("REFUSED", _) => format!("{what}: the connection is refused (REFUSED)"),
        ("DNS", why) => format!("{what}: not resolved ({why})"),
        (_, "") => format!("{what}: {word}"),
        (_, why) => format!("{what}: {why}"),
    }
}

/// Why a pod does not run, from what kubelet and the scheduler say of it.
fn why(pod: &Value) -> String {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let both = |of: &Value| {
        let parts: Vec<String> = [&of["reason"], &of["message"]].into_iter().filter_map(text).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    };
    let of_containers = status["containerStatuses"].as_array().into_iter().flatten();
    let of_containers = of_containers.flat_map(|one| [&one["state"]["waiting"], &one["state"]["terminated"]]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.filter(|one| one["status"] == "False");
    [status]
        .into_iter()
        .chain(of_containers)
        .find_map(both)
        .or_else(|| conditions.filter_map(both).next())
        .unwrap_or_else(|| "kubelet has not said anything about it".into())
}
