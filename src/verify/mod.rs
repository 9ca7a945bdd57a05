//! Whether pods and services work on the node at hand: a table of probes. Each asks one thing, and says what was
//! answered; what other rooms judge already is taken from them.

mod cluster;
pub mod ground;
pub mod left;
mod machine;
mod namespace;
pub mod pods;
pub mod report;
mod spec;

use std::net::Ipv4Addr;

use anyhow::Result;

use crate::apply::receipt::Receipt;
use crate::calico::agent_config::AgentConfig;
use crate::cluster::Cluster;
use crate::facts::ClusterNode;
use crate::node::Node;
use crate::report::answer::{Answer, Verdict};
use crate::report::document::{NodeStatus, Problem};
use crate::report::event::Sink;
use crate::settings::Backend;

use report::ProbeReport;

/// The default image of the pods: it has one for Linux and for each build of Windows Server.
pub const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.53";

/// One question.
pub struct Probe {
    /// PascalCase; `explain` has a page for it.
    pub id: &'static str,
    pub group: &'static str,
    /// What must hold.
    pub asks: &'static str,
    /// What to do if it does not.
    pub fix: &'static str,
    asked: Asked,
}

/// The problems of `status` that a probe finds too. Their commands are its fix, so that both say the same.
const OF_STATUS: &[(&str, &[&str])] = &[
    ("ApiAnswers", &["ClusterNotAsked", "NodeAbsent"]),
    ("CredentialsValid", &["TokenExpired", "TokenNotRenewed"]),
    ("DatastoreAnswers", &["DatastoreAway"]),
    ("NodeIsReady", &["NodeNotReady"]),
    ("ServicesRun", &["ServiceStopped", "ServiceNotReady", "ServiceCrashLoop", "ServiceNotStarted"]),
    ("PodNetwork", &["KubeNetwork", "HnsNetworkUnseen", "HnsStuck", "MixedVni", "NodeDrifted"]),
    ("CniConfigPublished", &["CniConfigAbsent", "NodeDrifted"]),
    ("CniPluginRuns", &["NodeDrifted"]),
];

/// How a probe is asked.
enum Asked {
    /// By looking at the node, and asking the cluster.
    Looking(fn(&mut Scene<'_>) -> Result<Answer>),
    /// The same, and if necessary waiting.
    Waiting(fn(&mut Scene<'_>, Sink) -> Result<Answer>),
    /// Through pods.
    Pods,
}

/// What the probes look at: the node, and what others have judged already.
pub struct Scene<'a> {
    pub node: &'a mut dyn Node,
    pub status: NodeStatus,
    /// A run is half done: it must be ended before anything else can be fixed.
    pub interrupted: bool,
    /// The current generation.
    pub receipt: &'a Receipt,
    /// What the services run.
    pub config: AgentConfig,
    /// The cluster, as the services log in; none if they have no kubeconfig.
    pub cluster: Result<Option<Cluster>>,
    /// What the API server says of the Node; none if it has no such Node.
    pub found: Result<Option<ClusterNode>>,
    /// Whether Calico's datastore answers the services.
    pub datastore: Result<()>,
    /// The blocks that Calico's IPAM has confirmed for this node; none if they are not in etcd, or it does not answer.
    pub etcd_blocks: Result<Option<Vec<String>>>,
    /// How the pod network differs from what other nodes are told.
    pub network: Result<Option<String>>,
}

impl Scene<'_> {
    /// Why this node has no pod network of Calico's; none if it has one.
    fn no_network(&self) -> Option<Answer> {
        let other = self.config.backend == Backend::None;
        other.then(|| Answer::Skipped("policy only: the pod network is another product's".into()))
    }

    /// Why HNS is not asked: it did not answer once, within its limit. None if it did.
    fn no_hns(&self) -> Option<Answer> {
        self.hns_is_stuck().then(|| Answer::Skipped("HNS does not answer: see PodNetwork".into()))
    }

    fn hns_is_stuck(&self) -> bool {
        self.status.has_problem("HnsStuck")
    }

    /// The problems of `status` that the probe finds too.
    fn problems(&self, probe: &str) -> impl Iterator<Item = &Problem> {
        let ids = OF_STATUS.iter().find(|(id, _)| *id == probe).map_or(&[][..], |(_, ids)| *ids);
        self.status.problems.iter().filter(|problem| ids.contains(&problem.id))
    }

    /// How a failed probe is fixed, if not as its own row says.
    fn fix(&self, probe: &str) -> Option<String> {
        if self.interrupted {
            let resume =
                "finish the interrupted run with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo";
            return Some(resume.into());
        }
        let mut commands: Vec<&str> = self.problems(probe).map(|problem| problem.command.as_str()).collect();
        commands.dedup();
        (!commands.is_empty()).then(|| commands.join("\n"))
    }

    /// The Node's address, and the domain of services, for pods that connect to them.
    pub fn ground(&self) -> (Option<Ipv4Addr>, String) {
        let addresses = self.found.as_ref().ok().and_then(Option::as_ref).map(|node| &node.internal_ips);
        let address = addresses.and_then(|all| all.iter().find_map(|ip| ip.parse().ok()));
        let conf = self.status.cni.as_ref().and_then(|cni| cni.conf.parse().ok());
        let search = conf.and_then(|conf| machine::read_conf(self.node, &conf).ok()).map(|conf| conf.dns.search);
        let domain = search.and_then(|search| search.into_iter().find(|domain| domain.starts_with("svc.")));
        (address, domain.unwrap_or_else(|| "svc.cluster.local".into()))
    }

    /// The cluster as the node's services log in, or why it cannot be asked.
    fn own_cluster(&self) -> Result<&Cluster, Answer> {
        match (&self.cluster, &self.found) {
            (Ok(Some(cluster)), Ok(_)) => Ok(cluster),
            (Ok(None), _) => Err(Answer::Skipped("Calico's services have no kubeconfig".into())),
            _ => Err(Answer::Skipped("the API server does not answer: see ApiAnswers".into())),
        }
    }
}

/// Every probe, in the order in which they run.
pub fn probes() -> impl Iterator<Item = &'static Probe> {
    cluster::PROBES.iter().chain(machine::PROBES).chain(cluster::ADDRESSES).chain(pods::PROBES)
}

/// Runs the probes that need no pods. `tell` gets each as it ends.
pub fn look(scene: &mut Scene<'_>, tell: &mut dyn FnMut(&ProbeReport), events: Sink) -> Vec<ProbeReport> {
    let run = |probe: &'static Probe| {
        let begun = scene.node.now();
        let asked = match probe.asked {
            Asked::Looking(look) => look(scene),
            Asked::Waiting(look) => look(scene, events),
            Asked::Pods => return None,
        };
        let answer = asked.unwrap_or_else(|error| Answer::Fails(format!("{error:#}")));
        let mut report = ProbeReport::new(probe, answer, scene.node.now().duration_since(begun));
        if let (Some(fix), Some(better)) = (&mut report.fix, scene.fix(probe.id)) {
            *fix = better;
        }
        tell(&report);
        Some(report)
    };
    probes().filter_map(run).collect()
}

/// Whether no probe failed.
pub fn holds(probes: &[ProbeReport]) -> bool {
    probes.iter().all(|probe| probe.verdict != Verdict::Fail)
}

/// The table as a Markdown document, which is `docs/verify.md`: the probes, then a section for each, which `explain`
/// shows.
pub fn document() -> String {
    let mut text = String::from(include_str!("intro.md"));
    text.push_str("\n| probe | group | what must hold |\n|---|---|---|\n");
    for probe in probes() {
        text.push_str(&format!("| `{}` | {} | {} |\n", probe.id, probe.group, probe.asks));
    }
    for probe in probes() {
        text.push_str(&format!(
            "\n## {}\nA probe of `calicoctl-win verify`, group {}. It holds if {}.\n\nTo fix it: {}.\n",
            probe.id, probe.group, probe.asks, probe.fix
        ));
    }
    text
}
