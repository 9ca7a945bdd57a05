//! How a plan is shown: the document for machines, the table for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::order::{self, FELIX_SERVICE, phase};
use super::{Step, Target};
use crate::calico::services::is_ours;
use crate::calico::{networks, nssm};
use crate::item::{Access, FirewallRule, Id, IpConfig, Network, RegValue, Service, StartType, State, Tree};
use crate::values::{Sha256, count, joined};
use crate::version::{CalicoVersion, KubernetesVersion};

/// What a plan interrupts, least first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Disruption {
    #[default]
    None,
    /// Calico's services restart; running pods keep their network.
    Services,
    /// The pods of this node lose their network.
    Pods,
    /// The machine's own network is interrupted while the virtual switch is rebuilt.
    HostNetwork,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Create,
    Update,
    Delete,
    Replace,
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Kind and target together, unique within a plan.
    pub id: String,
    pub phase: String,
    pub kind: String,
    pub target: String,
    pub action: Action,
    /// The current state; files by their digest.
    pub before: Option<State>,
    pub after: Option<State>,
    pub disruption: Disruption,
}

/// A downgrade to an older release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Downgrade {
    pub from: CalicoVersion,
    pub to: CalicoVersion,
}

impl Downgrade {
    /// None if the release stays the same or is newer.
    pub fn between(from: Option<&CalicoVersion>, to: &CalicoVersion) -> Option<Self> {
        let from = from.filter(|from| to.is_before(from))?.clone();
        Some(Self { from, to: to.clone() })
    }
}

impl fmt::Display for Downgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "! DOWNGRADE  Calico {} -> {}", self.from, self.to)
    }
}

/// A change of kubelet to another minor version. Kubernetes supports it only without pods (reference: its version skew
/// policy, "drain pods from that node").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubeletMinor {
    pub from: KubernetesVersion,
    pub to: KubernetesVersion,
}

impl KubeletMinor {
    /// None if the minor version stays the same.
    pub fn between(from: KubernetesVersion, to: KubernetesVersion) -> Option<Self> {
        (from.minor != to.minor).then_some(Self { from, to })
    }
}

impl fmt::Display for KubeletMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kubelet {} -> {} is another minor version, which Kubernetes supports only without pods",
            self.from, self.to
        )
    }
}

/// A field of the effective config that a change modifies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingChange {
    /// For example `spec.calicoNetwork.vxlan.vxlanVNI`.
    pub path: String,
    /// None if it had no value; what may be secret is `***`.
    pub before: Option<Value>,
    /// None if it no longer has a value.
    pub after: Option<Value>,
}

impl SettingChange {
    /// Every field that is in only one of them, or whose value differs.
    pub fn between(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<Self> {
        let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differ = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
        differ
            .map(|path| Self {
                before: before.get(path).map(|value| shown(path, value)),
                after: after.get(path).map(|value| shown(path, value)),
                path: path.clone(),
            })
            .collect()
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if before == after => f.write_str("changed (not shown)"),
            (Some(before), Some(after)) => write!(f, "{} -> {}", text(before), text(after)),
            (None, Some(after)) => f.write_str(&text(after)),
            (Some(before), None) => write!(f, "{} -> (not set)", text(before)),
            (None, None) => Ok(()),
        }
    }
}

/// A field's value for the screen. The services' extra variables may include a password.
pub fn shown(path: &str, value: &Value) -> Value {
    let mut value = value.clone();
    if path == "spec.services.extraEnv"
        && let Some(variables) = value.as_object_mut()
    {
        variables.values_mut().for_each(|value| *value = "***".into());
    }
    value
}

/// The document of kind `Plan`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The settings that change, as config fields; for a new install, the main ones.
    #[serde(default)]
    pub settings_diff: Vec<SettingChange>,
    pub changes: Vec<Change>,
    /// The target is an older release: refused without `--allow-downgrade`, unless a downgrade is the verb's purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(default)]
    pub downgrade: Option<Downgrade>,
    pub disruption: Disruption,
    /// Pods must leave the node first; `install` refuses.
    pub needs_drain: bool,
    /// kubelet gets another minor version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(default)]
    pub kubelet_minor: Option<KubeletMinor>,
    /// Always false: no change requires a restart. What is in use until the next one is known only after a run.
    pub needs_reboot: bool,
    /// Running pods may lose TCP connections, because Felix restarts: it programs their rules again, which can reset them
    /// (reference: Calico's page on limitations of Windows). False if they lose their network.
    #[serde(default)]
    pub resets_connections: bool,
    /// After Flannel: kube-proxy gets the address of Calico's host endpoint as its source VIP, once the run has created it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub sets_source_vip: bool,
    /// About how long it takes once everything is downloaded, in seconds. Draining the pods takes additional time.
    #[serde(default)]
    pub about_seconds: u64,
    /// For about how much of that time Calico's services are down.
    #[serde(default)]
    pub about_seconds_down: u64,
    /// The endpoints of pods on networks that are deleted, and what happens to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<AttachedPod>,
    /// What happens to an installation by Calico's own scripts when Calico is removed; none if there is, and was, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(default)]
    pub adopted: Option<Adopted>,
    /// Calico is removed: what remains belongs to other products.
    #[serde(skip)]
    pub removes: bool,
    /// A generation of ours is installed.
    #[serde(skip)]
    pub standing: bool,
    /// Identifies this plan: a saved one is refused if the node or the config has changed since.
    pub digest: String,
}

/// What happens to pods that keep their network.
pub const RESETS: &str = "TCP connections of pods may be reset, because Felix restarts";

/// An endpoint of a pod on an HNS network that is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedPod {
    pub network: String,
    pub endpoint: String,
    pub ip: Option<Ipv4Addr>,
    /// For example `namespace/name`; none if the cluster has no pod with that address.
    pub pod: Option<String>,
    #[serde(rename = "fate")]
    pub disposition: Disposition,
}

/// What happens to an endpoint when its network is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// A DaemonSet's pod is deleted; its successor waits for the CNI configuration.
    Recreated,
    /// None of its containers runs: it is deleted.
    Leaked,
    /// The pod is evicted by a drain, or loses its network.
    Moved,
    /// A container uses it, but the cluster has no such pod on this node.
    Unknown,
}

/// What an uninstall does with what Calico's own scripts installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Adopted {
    /// It is as before the first install.
    Restore,
    /// It is removed too.
    Remove,
}

impl fmt::Display for AttachedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = self.ip.map_or_else(|| "no address".into(), |ip| ip.to_string());
        let who = self.pod.as_deref().unwrap_or(&self.endpoint);
        let what = match self.disposition {
            Disposition::Recreated => {
                "is deleted; its DaemonSet re-creates it, and it starts when there is a network again"
            }
            Disposition::Leaked => "has no container any more, and is deleted",
            Disposition::Moved => "is evicted by a drain, or loses its network",
            Disposition::Unknown => "is used by a container for which the cluster has no pod here",
        };
        write!(f, "{who} ({ip}) {what}")
    }
}

impl Plan {
    /// The plan with these steps. `standing`: a generation of ours is installed, so pods may use the network.
    pub fn new(steps: &[Step], target: &Target, standing: bool) -> Self {
        let mut changes: Vec<Change> = Vec::new();
        for step in steps {
            let (id, before, after) = match step {
                Step::Put { id, before, after } => (id, before.as_ref().map(masked), after.as_ref().map(masked)),
                // Waiting for a service is not a change.
                Step::Await { id, state, .. } if !matches!(id, Id::Running(_)) => (id, None, Some(masked(state))),
                _ => continue,
            };
            // Removed and created again: one line.
            if let Some(earlier) = changes.iter_mut().find(|change| change.id == id.to_string()) {
                earlier.after = after;
                earlier.action = Action::Replace;
                continue;
            }
            let action = match (&before, &after) {
                (None, _) => Action::Create,
                (_, None) => Action::Delete,
                _ => Action::Update,
            };
            changes.push(Change {
                id: id.to_string(),
                phase: phase(id, true).into(),
                kind: id.kind().into(),
                target: id.target(),
                action,
                disruption: disruption(id, before.is_some()),
                before,
                after,
            });
        }
        let needs_drain = standing
            && !target.world.is_empty()
            && changes.iter().any(|change| change.kind == "hns-network" && change.before.is_some());
        let pods_keep_their_network = !changes.iter().any(|change| change.disruption == Disruption::Pods);
        let restarts_felix = |change: &Change| {
            let runs = change.kind == "running" && change.target == FELIX_SERVICE;
            runs && change.before.is_some() && change.after.is_some()
        };
        let text = serde_json::to_string(&(steps, target)).unwrap_or_default();
        let (about_seconds, about_seconds_down) = order::about_seconds(steps);
        Self {
            about_seconds,
            about_seconds_down,
            removes: target.world.is_empty(),
            standing,
            disruption: changes.iter().map(|change| change.disruption).max().unwrap_or_default(),
            needs_drain,
            resets_connections: pods_keep_their_network && changes.iter().any(restarts_felix),
            digest: Sha256::of(text.as_bytes()).to_string(),
            changes,
            ..Self::default()
        }
    }

    /// The same plan, with the releases before and after.
    #[must_use]
    pub fn between(self, from: Option<&CalicoVersion>, to: &CalicoVersion) -> Self {
        Self { downgrade: Downgrade::between(from, to), ..self }
    }

    /// The same plan, with kubelet's change to another minor version.
    #[must_use]
    pub fn with_kubelet(self, kubelet_minor: Option<KubeletMinor>) -> Self {
        Self { needs_drain: self.needs_drain || kubelet_minor.is_some(), kubelet_minor, ..self }
    }

    /// Whether pods lose their network.
    pub fn replaces_network(&self) -> bool {
        self.interrupts(Disruption::Pods)
    }

    /// `12 to create, 1 to update, 0 to delete`.
    pub fn counts(&self) -> String {
        let count = |wanted| self.changes.iter().filter(|change| change.action == wanted).count();
        let [create, update, delete, replace] =
            [Action::Create, Action::Update, Action::Delete, Action::Replace].map(count);
        let tail = if replace > 0 { format!(", {replace} to replace") } else { String::new() };
        format!("{create} to create, {update} to update, {delete} to delete{tail}")
    }

    /// The plan as text for people: the settings that change, what that interrupts and for how long, then the items and
    /// their number. Items that interrupt pods or the host's network are named, the others only with `detail`.
    pub fn text(&self, detail: bool) -> String {
        if self.changes.is_empty() && self.removes {
            return "Nothing to do: Calico is not installed here by this tool.\n".into();
        }
        if self.changes.is_empty() {
            return "Nothing to do: the node matches the config.\n".into();
        }
        let downgrade = self.downgrade.as_ref().map_or_else(String::new, |downgrade| format!("{downgrade}\n"));
        let (settings, impact, items) = (self.settings_text(), self.impact_text(), self.items_text(detail));
        format!("{downgrade}{settings}{impact}\n{items}Plan: {}.\n", self.counts())
    }

    /// What the change interrupts, the pods that it concerns, and how long it takes.
    fn impact_text(&self) -> String {
        let disruption = match self.disruption {
            Disruption::None => "none",
            Disruption::Services => "Calico's services restart",
            Disruption::Pods => "pods on this node lose their network",
            Disruption::HostNetwork if self.interrupts(Disruption::Pods) => {
                "pods on this node lose their network; the host's pauses, remote sessions may drop"
            }
            Disruption::HostNetwork => "the host's network pauses, remote sessions may drop",
        };
        let (drain, pods) = match self.needs_drain {
            true => ("  Drain: needed.", ", plus the time in which pods terminate"),
            false => ("", ""),
        };
        let mut text = format!("Disruption: {disruption}.{drain}\n");
        if let Some(kubelet) = &self.kubelet_minor {
            text.push_str(&format!("{kubelet}.\n"));
        }
        if self.sets_source_vip {
            let name = networks::HOST_ENDPOINT;
            text.push_str(&format!("kube-proxy gets the address of {name} as its source VIP, once that exists.\n"));
        }
        text.push_str(self.adopted_text());
        if self.resets_connections {
            text.push_str(&format!("{RESETS}.\n"));
        }
        for (at, pod) in self.pods.iter().enumerate() {
            if at == 0 || self.pods[at - 1].network != pod.network {
                text.push_str(&format!("On the HNS network {}, which is deleted:\n", pod.network));
            }
            text.push_str(&format!("  {pod}\n"));
        }
        let (all, down) = (self.about_seconds, self.about_seconds_down);
        let down =
            if down > 0 { format!("; Calico's services are down for about {down} s of it") } else { String::new() };
        text + &format!("Takes about {all} s{pods}{down}.\n")
    }

    fn interrupts(&self, what: Disruption) -> bool {
        self.changes.iter().any(|change| change.disruption == what)
    }

    fn adopted_text(&self) -> &'static str {
        match (self.adopted, self.standing) {
            (None, _) => "",
            (Some(Adopted::Restore), _) => {
                "Calico's scripts had installed Calico here: their installation comes back and runs (--adopted=remove \
                 removes it too).\n"
            }
            (Some(Adopted::Remove), true) => {
                "Calico's scripts had installed Calico here: their installation does not come back (--adopted=restore \
                 brings it back).\n"
            }
            (Some(Adopted::Remove), false) => {
                "Calico's scripts installed this. It is kept in the store until the next install, so that resume --undo \
                 brings it back.\n"
            }
        }
    }

    /// The settings that change, a line each.
    fn settings_text(&self) -> String {
        let all = self.settings_diff.iter().map(|change| (change.path.trim_start_matches("spec."), change));
        let Some(width) = all.clone().map(|(path, _)| path.len()).max() else { return String::new() };
        let lines: String = all.map(|(path, change)| format!("  {path:<width$}  {change}\n")).collect();
        format!("Settings:\n{lines}\n")
    }

    /// The items that change, a line each.
    fn items_text(&self, detail: bool) -> String {
        // A change that no setting explains is drift: then show the items. Also show what is done to other products'
        // services, and what a removal restores.
        let detail = detail || self.settings_diff.is_empty() && !self.removes;
        let of_others = |change: &Change| {
            let was_there =
                if self.removes { change.action != Action::Delete } else { !self.standing && change.before.is_some() };
            let others_restart = word(change) == "restart" && !order::SERVICES.contains(&change.target.as_str());
            was_there || others_restart || handover(change).is_some()
        };
        let shown = |change: &&Change| detail || change.disruption >= Disruption::Pods || of_others(change);
        let changes: Vec<&Change> = self.changes.iter().filter(shown).collect();
        let width = |column: fn(&Change) -> usize| changes.iter().map(|change| column(change)).max().unwrap_or(0);
        let (kinds, targets) = (width(|change| word(change).len()), width(|change| named(change).len()).min(64));
        let mut text = String::new();
        for change in &changes {
            let sign = match change.action {
                Action::Create => "+",
                Action::Update => "~",
                Action::Delete => "-",
                Action::Replace => "-/+",
            };
            let warn = if change.disruption >= Disruption::Pods { "!" } else { " " };
            let (kind, target, what) = (word(change), named(change), self::detail(change));
            let line = format!("{warn} {sign:<3} {kind:<kinds$}  {target:<targets$}  {what}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let hidden = self.changes.len() - changes.len();
        if hidden > 0 {
            let noun = if changes.is_empty() { "change" } else { "more change" };
            text.push_str(&format!("{}; -v lists all.\n", count(hidden, noun)));
        }
        text
    }
}

/// The kind as people read it: a service is not "running", it is started or stopped.
fn word(change: &Change) -> &str {
    match (change.kind.as_str(), change.action) {
        ("running", Action::Create) => "start",
        ("running", Action::Delete) => "stop",
        ("running", _) => "restart",
        (kind, _) => kind,
    }
}

/// The target; the key of a registry value without its middle, if it is long. Documents have it whole.
fn named(change: &Change) -> String {
    const HEAD: usize = 12;
    const TAIL: usize = 41;
    let target = &change.target;
    match (target.get(..HEAD), target.len().checked_sub(TAIL).and_then(|at| target.get(at..))) {
        (Some(head), Some(tail)) if change.kind == "registry" && target.len() > HEAD + TAIL => {
            format!("{head}...{tail}")
        }
        _ => target.clone(),
    }
}

fn detail(change: &Change) -> String {
    if let Some(words) = handover(change) {
        return words;
    }
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before != after && access(before) == access(after) => {
            format!("{} -> {}", state(&inherited(before)), state(&inherited(after)))
        }
        (Some(before), Some(after)) if before != after => format!("{} -> {}", state(before), state(after)),
        (_, Some(after)) => state(after),
        (Some(before), None) => state(&inherited(before)),
        _ => String::new(),
    }
}

/// Who may use a file or folder.
const fn access(state: &State) -> Option<&Access> {
    match state {
        State::Dir { access } | State::File { access, .. } => Some(access),
        _ => None,
    }
}

/// The state without what is said of its access.
fn inherited(state: &State) -> State {
    let mut state = state.clone();
    if let State::Dir { access } | State::File { access, .. } = &mut state {
        *access = Access::Inherited;
    }
    state
}

/// What happens to a service that was registered with NSSM, by upstream's scripts or by hand.
fn handover(change: &Change) -> Option<String> {
    let [before, after] = [&change.before, &change.after].map(|state| match state {
        Some(State::Service(service)) => Some(&**service),
        _ => None,
    });
    let runs = |service: &Service| {
        let wrapped = nssm::wrapped(service)?;
        Some(nssm::script(service).map_or(wrapped.application, |script| script.path))
    };
    let (verb, program) = match (before.and_then(runs), after.and_then(runs)) {
        (Some(ran), None) if after.is_some_and(is_ours) => ("adopts", ran),
        (Some(ran), None) if after.is_none() => ("removes", ran),
        (None, Some(runs)) => ("restores", runs),
        _ => return command(before?, after?),
    };
    Some(format!("{verb} the NSSM service {}, which runs {program}", change.target))
}

/// The other program that a service gets, or the flags that it gets or loses.
fn command(before: &Service, after: &Service) -> Option<String> {
    let ((ran, old), (runs, new)) = (nssm::program(before)?, nssm::program(after)?);
    if !ran.eq_ignore_ascii_case(&runs) {
        return Some(format!("runs {} -> {}", nssm::command(before), nssm::command(after)));
    }
    let (before, after) = (old.trim(), new.trim());
    if before == after {
        return None;
    }
    let more = after.strip_prefix(before).map(|more| format!("adds {}", more.trim()));
    more.or_else(|| before.strip_prefix(after).map(|less| format!("removes {}", less.trim())))
}

/// A state without secrets: the environment of another product's service may contain a password.
pub fn masked(state: &State) -> State {
    let mut state = state.clone();
    if let State::Service(service) = &mut state {
        for (name, value) in &mut service.parameters {
            if name.to_ascii_lowercase().starts_with("appenvironment") {
                *value = RegValue::String("***".into());
            }
        }
    }
    state
}

/// What the change of one item interrupts.
fn disruption(id: &Id, there: bool) -> Disruption {
    match id {
        Id::Network(name) if name == networks::BOOTSTRAP => Disruption::HostNetwork,
        Id::Network(_) | Id::Route(_) if there => Disruption::Pods,
        Id::Network(_) => Disruption::HostNetwork,
        Id::Running(_) if there => Disruption::Services,
        _ => Disruption::None,
    }
}

/// A state in a few words.
pub fn state(state: &State) -> String {
    match state {
        State::Running | State::CalicoIsUp => String::new(),
        State::Cordon { run } => run.as_ref().map_or_else(|| "by somebody".into(), |run| format!("by run {run}")),
        State::Achieved(digest) => digest.clone(),
        State::Dir { access } => match access {
            Access::Inherited | Access::ClosedIfNew => "",
            Access::Administrators => "SYSTEM and Administrators only",
            Access::Closed => "others may only read",
            Access::Open(_) => "others may write",
        }
        .into(),
        State::Tree(Tree::Release(digest)) => format!("release {}", digest.short()),
        State::Tree(Tree::Drifted { files, .. }) => {
            format!("{} changed: {}", count(files.len(), "file"), files.join(", "))
        }
        State::Tree(Tree::Foreign) => "a folder that was there before".into(),
        // From facts alone: neither credentials nor the release are available.
        State::File { sha256, access } => {
            let (what, rights) = match access {
                Access::Administrators => ("with new credentials", ", SYSTEM and Administrators only"),
                _ => ("from the release", ""),
            };
            match *sha256 == Sha256::unknown() {
                true => format!("{what}{rights}"),
                false => format!("sha256 {}{rights}", sha256.short()),
            }
        }
        State::RegValue(value) => reg(value),
        State::Firewall(FirewallRule { protocol, local_ports, .. }) => format!("inbound {protocol} {local_ports}"),
        State::Service(service) => self::service(service),
        State::DependsOn(names) if names.is_empty() => "none".into(),
        State::DependsOn(names) => names.join(", "),
        State::Network(network) => self::network(network),
        State::Route { interface, next_hop, metric } => format!("on {interface} via {next_hop} metric {metric}"),
        State::Adapter(config) => ip_config(config),
    }
}

fn ip_config(config: &IpConfig) -> String {
    let how = if config.dhcp { "DHCP" } else { "static" };
    let gateway = config.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    let dns = if config.dns.is_empty() { "" } else { ", DNS " };
    format!("{how} {}{gateway}{dns}{}", joined(&config.addresses, ", "), joined(&config.dns, ", "))
}

fn reg(value: &RegValue) -> String {
    match value {
        RegValue::String(text) | RegValue::ExpandString(text) => format!("\"{text}\""),
        RegValue::MultiString(lines) => lines.join(", "),
        RegValue::Dword(number) => number.to_string(),
        RegValue::Qword(number) => number.to_string(),
        RegValue::Binary(bytes) => format!("{} bytes", bytes.len()),
    }
}

fn service(service: &Service) -> String {
    let start = match service.start {
        StartType::Auto => "automatic",
        StartType::Manual => "manual",
        StartType::Disabled => "disabled",
    };
    let first = if service.depends_on.is_empty() { "" } else { ", after " };
    format!("{start}, {}{first}{}", service.account, service.depends_on.join(", "))
}

fn network(network: &Network) -> String {
    let parts = [
        Some(network.kind.to_string()),
        network.vsid.map(|vsid| format!("VSID {vsid}")),
        network.subnet.map(|subnet| subnet.to_string()),
        network.adapter.as_ref().map(|adapter| format!("on {adapter}")),
    ];
    joined(parts.into_iter().flatten(), ", ")
}
