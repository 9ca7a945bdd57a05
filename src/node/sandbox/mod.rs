//! A Windows node as a folder: `DIR/C/…` is its disk, `DIR/node.yaml` the rest. It follows Windows's rules and has no
//! logic of our product. `docs/sandbox.md` is the page for users.

mod access;
mod disk;
pub mod faults;
mod folder;
mod hns;
mod items;
pub mod model;
mod place;
mod probe;
pub mod quirks;
mod running;
mod services;
mod slow_hns;
#[cfg(test)]
mod tests;

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;

use crate::calico::layout::Layout;
use crate::facts::{NodeFacts, Part, Runtime, RuntimeKind};
use crate::item::{Access, Id, IpConfig, Network, Service, State};
use crate::node::acl::Caller;
use crate::node::containerd::{self as cri, Files};
use crate::node::event_log::LoggedEvent;
use crate::node::hns::{Endpoint, Pods, Refusal};
use crate::node::probe::Probe;
use crate::node::trust::Rights;
use crate::node::win32::{self, refused};
use crate::node::{
    EndpointCallback, Listing, NetworkDetails, Node, OpenFile, Put, ServiceState, files, is_key_alone, is_of_node,
    program,
};
use crate::paths::containerd;
use crate::values::WinPath;
use crate::version::CalicoVersion;

pub use hns::router_mac;
pub use place::locate;

use disk::Disk;
use faults::{Action, Call, Crash, Fault, id_names, operation, struck};
use folder::Yaml;
use model::{Model, Name, Process};
use quirks::Quirk;

/// Runs when a service starts, with the service's name and definition: does what the service's own program would do to
/// the machine. An error ends the service's process.
pub type StartHook = Box<dyn FnMut(&mut SandboxNode, &str, &Service) -> Result<()>>;

/// Runs while time passes: does what the programs of running services would do meanwhile.
pub type PauseHook = Box<dyn FnMut(&mut SandboxNode) -> Result<()>>;

/// Runs when Windows tells its services that it shuts down: does what their programs do then.
pub type ShutdownHook = Box<dyn Fn(&SandboxNode) -> Result<()>>;

/// What kubelet, the container runtime and its CNI plugin do by themselves: gets the model of `node.yaml`, the running
/// containers, and whether a CNI configuration is published. It may change the first two.
pub type Kubelet = Box<dyn FnMut(&mut Model, &mut BTreeSet<String>, bool) -> Result<()>>;

/// Whether a TCP connection from the node is made; else why not.
pub type Traffic = Box<dyn Fn(&Model, SocketAddrV4) -> Result<Option<String>>>;

/// A node in a folder. Changes are on the disk when a call returns, so that the next process continues from there.
pub struct SandboxNode {
    root: PathBuf,
    yaml: RefCell<Yaml>,
    faults: Vec<Fault>,
    quirks: Vec<Quirk>,
    on_start: Option<StartHook>,
    on_pause: Option<PauseHook>,
    on_shutdown: Option<ShutdownHook>,
    kubelet: RefCell<Option<Kubelet>>,
    traffic: Option<Traffic>,
    /// True while a service's own program runs here.
    plays: bool,
    /// How far the sandbox's clock is ahead of the real one.
    ahead: Cell<Duration>,
    touches: Cell<usize>,
    changed: Arc<AtomicBool>,
    /// Some if a crash must not end this process; true after it happened.
    crashed: Option<Cell<bool>>,
}

impl SandboxNode {
    /// Opens the sandbox in a folder. A new or empty folder becomes a Windows Server 2022 node with
    /// containerd.
    ///
    /// # Errors
    /// USAGE when the folder holds something else, INVALID_CONFIG with line and column when its `node.yaml` is not
    /// valid. Nothing is written in either case.
    pub fn open(dir: &Path) -> Result<Self> {
        folder::prepare(dir)?;
        let yaml = Yaml::open(dir)?;
        Ok(Self {
            root: dir.to_owned(),
            yaml: RefCell::new(yaml),
            faults: Vec::new(),
            quirks: Vec::new(),
            on_start: None,
            on_pause: None,
            on_shutdown: None,
            kubelet: RefCell::new(None),
            traffic: None,
            plays: false,
            ahead: Cell::default(),
            touches: Cell::new(0),
            changed: Arc::default(),
            crashed: None,
        })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The faults that `node.yaml` lists, in the form of [`faults::SandboxFaults::parse`].
    pub fn listed_faults(&self) -> String {
        self.yaml.borrow().model.faults.join(";")
    }

    /// Makes calls fail on demand. Earlier faults take precedence over later ones.
    #[must_use]
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults.extend(faults);
        self
    }

    /// Makes the sandbox unlike Windows.
    #[must_use]
    pub fn with_quirks(mut self, quirks: Vec<Quirk>) -> Self {
        self.quirks.extend(quirks);
        self
    }

    fn is(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// What a service's program does when it is started here.
    #[must_use]
    pub fn with_start_hook(mut self, hook: StartHook) -> Self {
        self.on_start = Some(hook);
        self
    }

    /// What the programs of running services do while time passes.
    #[must_use]
    pub fn with_pause_hook(mut self, hook: PauseHook) -> Self {
        self.on_pause = Some(hook);
        self
    }

    /// What the programs of running services do when Windows shuts down.
    #[must_use]
    pub fn with_shutdown_hook(mut self, hook: ShutdownHook) -> Self {
        self.on_shutdown = Some(hook);
        self
    }

    /// What simulates kubelet here.
    #[must_use]
    pub fn with_kubelet(mut self, kubelet: Kubelet) -> Self {
        self.kubelet = RefCell::new(Some(kubelet));
        self
    }

    /// What carries the node's connections.
    #[must_use]
    pub fn with_traffic(mut self, traffic: Traffic) -> Self {
        self.traffic = Some(traffic);
        self
    }

    /// Lets kubelet do what it would have done by now.
    fn play_kubelet(&self) -> Result<()> {
        let mut kubelet = self.kubelet.borrow_mut();
        let Some(kubelet) = kubelet.as_mut() else { return Ok(()) };
        let mut model = self.model()?;
        let folder = self.runtime(&model)?.map(|runtime| self.disk(&runtime.cni_conf_dir));
        let files = folder.map(std::fs::read_dir).and_then(Result::ok);
        // Not a folder of such a name (libcni's ConfFiles).
        let is_conf =
            |path: PathBuf| path.is_file() && path.extension().is_some_and(|kind| kind == "conf" || kind == "conflist");
        let published = files.is_some_and(|mut files| files.any(|file| file.is_ok_and(|file| is_conf(file.path()))));
        let before = self.running()?;
        let mut running = before.clone();
        kubelet(&mut model, &mut running, published)?;
        if running != before {
            self.note_running(&running)?;
        }
        self.yaml.borrow_mut().write(model)
    }

    /// The container runtime of `node.yaml`, else a containerd that was installed since.
    fn runtime(&self, model: &Model) -> Result<Option<Runtime>> {
        let config = containerd::path("config.toml");
        if model.runtime.is_some() || !self.disk(&config).is_file() {
            return Ok(model.runtime.clone());
        }
        let read = |path: &WinPath| Ok(std::fs::read_to_string(self.disk(path)).ok());
        let files = Files { read: &read, list: &|_| Ok(Vec::new()) };
        let found = cri::read(&config, &files)?;
        let program = self.disk(&containerd::path(containerd::PROGRAMS[0]));
        Ok(Some(Runtime {
            kind: RuntimeKind::Containerd,
            version: self.ask(&program, &["--version"]).ok().flatten().unwrap_or_default(),
            cni_bin_dir: found.bin,
            cni_conf_dir: found.conf,
            sandbox_image: found.sandbox_image,
        }))
    }

    /// Attaches a pod whose container the runtime was already making.
    fn attach_late_pod(&self, network: &str) -> Result<()> {
        let mut model = self.model()?;
        let Some(network) = model.networks.get_mut(&Name::new(network)) else { return Ok(()) };
        let container = format!("late-pod-{}", network.endpoints.len());
        let endpoint =
            model::Endpoint::new(Ipv4Addr::new(192, 168, 0, 250), "00-15-5d-00-00-fa", Some(container.clone()));
        network.endpoints.insert(Name::new(format!("{container}_Calico")), endpoint);
        let mut running = self.running()?;
        running.insert(container);
        self.note_running(&running)?;
        self.yaml.borrow_mut().write(model)
    }

    fn note_running(&self, running: &BTreeSet<String>) -> Result<()> {
        let lines: String = running.iter().map(|id| format!("{id}\n")).collect();
        std::fs::write(self.root.join(folder::NOTES).join("containers"), lines).context("note the containers")
    }

    /// The running containers: those of the container runtime, one id per line.
    fn running(&self) -> Result<BTreeSet<String>> {
        match std::fs::read_to_string(self.root.join(folder::NOTES).join("containers")) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(error).context("read which containers run"),
        }
    }

    /// A fault that would end the process returns the error [`Crash`] instead, on that call and on every later one: a
    /// test drops everything and opens the folder again.
    #[must_use]
    pub fn crashes_as_errors(mut self) -> Self {
        self.crashed = Some(Cell::new(false));
        self
    }

    /// How many puts, saves and appends there were. `*#N=exit-before` applies to the N-th of them.
    pub fn touches(&self) -> usize {
        self.touches.get()
    }

    /// A copy of the model of `node.yaml`.
    pub fn model(&self) -> Result<Model> {
        let mut yaml = self.yaml.borrow_mut();
        yaml.refresh()?;
        Ok(yaml.model.clone())
    }

    /// The same, borrowed: it is read often, and large.
    fn look(&self) -> Result<Ref<'_, Model>> {
        self.yaml.borrow_mut().refresh()?;
        Ok(Ref::map(self.yaml.borrow(), |yaml| &yaml.model))
    }

    /// Changes `node.yaml` without Windows's rules: for changes by others than the engine.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Model) -> Result<T>) -> Result<T> {
        let mut model = self.model()?;
        let done = change(&mut model)?;
        self.yaml.borrow_mut().write(model)?;
        Ok(done)
    }

    /// Starts a process of a service, which ends with the service and keeps its program open until then.
    ///
    /// # Errors
    /// Windows error 2 if the program does not exist.
    pub fn spawn(&mut self, service: &str, program: &WinPath) -> Result<()> {
        if !locate(&self.root, program)?.is_file() {
            return Err(refused(win32::FILE_NOT_FOUND, format!("run {program}")).into());
        }
        let (service, image) = (Some(service.to_owned()), program.clone());
        self.edit(|model| {
            let pid = model.free_pid();
            model.processes.push(Process { pid, image, service });
            Ok(())
        })
    }

    fn elapse(&self, time: Duration) -> Result<()> {
        let before = self.ahead.get();
        self.ahead.set(before + time);
        let seconds = u32::try_from((before + time).as_secs() - before.as_secs()).unwrap_or(u32::MAX);
        if seconds == 0 {
            return Ok(());
        }
        let mut model = self.model()?;
        hns::settle(&mut model, seconds);
        services::settle(&mut model, seconds);
        self.yaml.borrow_mut().write(model)
    }

    /// Ends the process as in a power cut: nothing is unwound.
    fn crash(&self) -> anyhow::Error {
        match &self.crashed {
            Some(crashed) => {
                crashed.set(true);
                Crash.into()
            }
            None => std::process::exit(137),
        }
    }

    fn alive(&self) -> Result<()> {
        match &self.crashed {
            Some(crashed) if crashed.get() => Err(Crash.into()),
            _ => Ok(()),
        }
    }

    /// The requested action for a call that is being made. A service's own program is another process, so this one does
    /// not end at its calls.
    fn fault(&self, call: Call, names: &[String]) -> Result<Option<Action>> {
        let call_of = || {
            let call = format!("{call:?}").to_lowercase();
            if call == names[0] { call } else { format!("{call} {}", names[0]) }
        };
        self.fault_of(call, names, &call_of)
    }

    /// As [`Self::fault`]. `what`: the operation in its errors.
    fn fault_of(&self, call: Call, names: &[String], what: &dyn Fn() -> String) -> Result<Option<Action>> {
        self.alive()?;
        if call.touches() && !self.plays {
            self.touches.set(self.touches.get() + 1);
        }
        let can_strike = |fault: &&Fault| !(self.plays && fault.action.ends_process());
        let action = struck(self.faults.iter().filter(can_strike), call, names);
        match action {
            Some(Action::Fail) => bail!("{}: failed, as a sandbox fault asked", what()),
            Some(Action::DiskFull) => Err(refused(win32::DISK_FULL, what()).into()),
            Some(Action::InUse) => Err(refused(win32::SHARING_VIOLATION, what()).into()),
            Some(Action::ExitBefore) => Err(self.crash()),
            Some(Action::Panic) => panic!("{}: a sandbox fault asked for it", what()),
            Some(Action::Hang) if self.crashed.is_none() => loop {
                std::thread::park();
            },
            Some(Action::Hang) => Err(self.crash()),
            Some(Action::Noted) => {
                // The name of a kind is the second one, if there is one.
                let name = names.get(1).unwrap_or(&names[0]);
                folder::note_call(&self.root, &format!("{call:?}").to_lowercase(), name, self.plays)?;
                Ok(None)
            }
            other => Ok(other),
        }
    }

    /// Ends a call that must fail after it took effect.
    fn fault_after(&self, action: Option<Action>, what: &str) -> Result<()> {
        match action {
            Some(Action::ExitAfter) => Err(self.crash()),
            Some(Action::FailAfter) => bail!("{what}: failed after it was done, as a sandbox fault asked"),
            _ => Ok(()),
        }
    }
}

impl Node for SandboxNode {
    fn facts(&self) -> Result<NodeFacts> {
        #[cfg(test)]
        crate::counted::count("facts");
        self.fault(Call::Facts, &["facts".to_owned()])?;
        let asked = self.ask_hns("GET /globals/version").err();
        let stuck = asked.map(|error| crate::fault::Fault::of(&error).cloned().ok_or(error)).transpose()?;
        let model = self.model()?;
        let mut facts = NodeFacts { machine_id: folder::machine_id(&self.root), ..model.facts() };
        if let Some(stuck) = stuck {
            facts.leave_out(Part::Hns, stuck.what.clone());
            facts.hns_stuck = Some(stuck);
        }
        if facts.untold(Part::Runtime).is_none() {
            facts.runtime = self.runtime(&model)?;
        }
        Ok(facts)
    }

    fn boot_id(&self) -> Result<String> {
        self.alive()?;
        let id = self.look()?.boot_id.clone();
        let changes = self.is(Quirk::BootIdChanges);
        Ok(if changes { format!("{id}-{:?}", std::time::Instant::now()) } else { id })
    }

    fn get(&self, id: &Id) -> Result<Option<State>> {
        self.fault(Call::Get, &id_names(id))?;
        if matches!(id, Id::Network(_)) {
            self.ask_hns("GET /networks/")?;
        }
        let found = self.read(id, &*self.look()?)?;
        Ok(probe::read(id, found, &self.quirks))
    }

    fn put(&mut self, id: &Id, state: Option<&State>) -> Result<Put> {
        let what = || operation(id, state);
        let action = self.fault_of(Call::Put, &id_names(id), &what)?;
        match action {
            Some(Action::Slow) => self.elapse(faults::SLOW)?,
            Some(Action::ExitWithin) if self.change_half(id, state)? => return Err(self.crash()),
            _ => {}
        }
        let key_alone = is_key_alone(id, state) && self.read(id, &self.model()?)?.is_none();
        self.changed.fetch_or(!key_alone, Relaxed);
        if matches!(id, Id::Network(_)) && state.is_none() {
            self.play_kubelet()?;
        }
        if action == Some(Action::LatePod) {
            self.attach_late_pod(&id.target())?;
        }
        self.put_withdrawn(id, state.is_none())?;
        if self.is(Quirk::ServiceStays) && matches!(id, Id::Service(_)) && state.is_none() {
            return Ok(Put::default());
        }
        let put = self.change(id, state, action)?;
        self.put_with_quirks(id, state)?;
        self.put_withdrawn(id, state.is_some())?;
        if matches!(id, Id::CniConf(_)) {
            self.play_kubelet()?;
        }
        self.fault_after(action, &what()).map(|()| put)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.fault(Call::List, &["endpoints".to_owned()])?;
        self.ask_hns("GET /endpoints/")?;
        self.play_kubelet()?;
        Ok(hns::endpoints(&self.model()?))
    }

    fn ask_hns(&self, path: &str) -> Result<Result<serde_json::Value, Refusal>> {
        self.fault(Call::List, &["hns".to_owned(), path.to_owned()])?;
        let model = self.model()?;
        hns::answers(&model)?;
        if self.is(Quirk::HnsIsStuck) {
            return Err(probe::stuck(path).into());
        }
        Ok(probe::hns(&model, path, &self.quirks))
    }

    fn probe(&mut self, probe: &Probe) -> Result<Option<u32>> {
        self.alive()?;
        self.try_out(probe)
    }

    fn containers(&self) -> Result<BTreeSet<String>> {
        self.fault(Call::List, &["containers".to_owned()])?;
        self.play_kubelet()?;
        self.running()
    }

    fn delete_endpoint(&mut self, id: &str) -> Result<()> {
        let names = ["endpoint".to_owned(), id.to_owned()];
        let action = self.fault(Call::Put, &names)?;
        self.edit(|model| {
            hns::delete_endpoint(model, id);
            Ok(())
        })?;
        self.fault_after(action, &names[0])
    }

    fn let_all_through(&mut self, endpoint: &str) -> Result<()> {
        let names = ["acls".to_owned(), endpoint.to_owned()];
        let action = self.fault(Call::Put, &names)?;
        self.changed.store(true, Relaxed);
        self.edit(|model| {
            hns::replace_acls(model, endpoint);
            Ok(())
        })?;
        self.fault_after(action, &names[0])
    }

    fn remove_stale_networks(
        &mut self,
        stale: &dyn Fn(&str, &Network) -> bool,
        before: EndpointCallback<'_>,
    ) -> Result<Vec<String>> {
        self.ask_hns("GET /networks/")?;
        let model = self.model()?;
        let is_stale = |name: &Name, network: &model::NodeNetwork| match network.state() {
            State::Network(network) => stale(name.as_str(), &network),
            _ => false,
        };
        let stale = model.networks.iter().filter(|(name, network)| is_stale(name, network));
        let names: Vec<String> = stale.map(|(name, _)| name.as_str().to_owned()).collect();
        let running = self.running()?;
        let goes = |endpoint: &Endpoint| names.contains(&endpoint.network) && endpoint.is_used(&running);
        let lost: Vec<Endpoint> = hns::endpoints(&model).into_iter().filter(goes).collect();
        before(self, lost)?;
        for name in &names {
            let id = Id::Network(name.clone());
            let what = || operation(&id, None);
            let action = self.fault_of(Call::Put, &id_names(&id), &what)?;
            self.changed.store(true, Relaxed);
            let _address_away = self.delete_network(name, Pods::Gone)?;
            self.fault_after(action, &what())?;
        }
        Ok(names)
    }

    fn network_details(&self, name: &str) -> Result<Option<NetworkDetails>> {
        self.alive()?;
        self.ask_hns("GET /networks/")?;
        let model = self.model()?;
        let network = model.networks.get_key_value(&Name::new(name));
        let mut found = network.map(|(name, network)| hns::details(name, network));
        if let (Some(details), true) = (&mut found, self.is(Quirk::HnsHidesFromV2)) {
            details.unseen_by_v2 = true;
        }
        Ok(found)
    }

    fn list(&self, kind: Listing) -> Result<Vec<(Id, State)>> {
        let name = match kind {
            Listing::Networks => "networks",
            Listing::FirewallRules => "firewall",
            Listing::Services => "services",
            Listing::Routes => "routes",
            Listing::Adapters => "adapters",
        };
        self.fault(Call::List, &[name.to_owned()])?;
        if kind == Listing::Networks {
            self.ask_hns("GET /networks/")?;
        }
        let model = self.model()?;
        let named = |name: &Name| name.as_str().to_owned();
        Ok(match kind {
            Listing::Networks => model.networks.iter().map(|(n, s)| (Id::Network(named(n)), s.state())).collect(),
            Listing::FirewallRules => {
                model.firewall.iter().map(|(n, s)| (Id::Firewall(named(n)), State::Firewall(s.clone()))).collect()
            }
            Listing::Services => model
                .services
                .iter()
                .filter(|(_, service)| !service.deleted && !service.unreadable)
                .map(|(n, s)| (Id::Service(named(n)), State::Service(Box::new(s.definition.clone()))))
                .collect(),
            Listing::Routes => model.routes.iter().map(|(prefix, route)| (Id::Route(*prefix), route.state())).collect(),
            Listing::Adapters => model
                .adapters
                .iter()
                .map(|adapter| (Id::Adapter(adapter.name.clone()), State::Adapter(adapter.ip_config())))
                .collect(),
        })
    }

    fn dependents(&self, service: &str) -> Result<Vec<String>> {
        self.alive()?;
        if self.is(Quirk::NoDependents) {
            return Ok(Vec::new());
        }
        Ok(services::dependents(&*self.look()?, service))
    }

    fn start_stranded(&mut self, service: &str) -> Result<Vec<String>> {
        self.alive()?;
        self.revive(service)
    }

    fn service_state(&self, service: &str) -> Result<Option<ServiceState>> {
        self.alive()?;
        Ok(services::get(&*self.look()?, service).map(services::state))
    }

    fn process(&self, service: &str) -> Result<Option<crate::node::Process>> {
        self.fault(Call::Process, &[service.to_owned()])?;
        let model = self.look()?;
        let pid = model.services.get(&Name::new(service)).and_then(|service| service.pid);
        let pid = pid.filter(|_| !self.is(Quirk::ServiceHasNoProcess));
        Ok(pid.map(|pid| crate::node::Process { pid, since: None }))
    }

    fn processes(&self, image: &str) -> Result<Vec<crate::node::Process>> {
        self.fault(Call::Process, &[image.to_owned()])?;
        let model = self.model()?;
        let services = model.services.values().filter_map(|service| Some((service.executable()?, service.pid?)));
        let others = model.processes.iter().map(|process| (process.image.clone(), process.pid));
        let named = services.chain(others).filter(|(program, _)| program.name().eq_ignore_ascii_case(image));
        Ok(named.map(|(_, pid)| crate::node::Process { pid, since: None }).collect())
    }

    fn open_files(&self, folder: &WinPath, _besides: &[crate::node::Process]) -> Result<Vec<OpenFile>> {
        self.alive()?;
        let open = self.look()?.open_files.clone();
        let below = open.into_iter().filter(|file| file.path.is_below(folder));
        Ok(below.map(|model::OpenFile { path, by }| OpenFile { path, by }).collect())
    }

    fn runs(&self, process: &crate::node::Process) -> Result<bool> {
        self.fault(Call::Process, &[process.pid.to_string()])?;
        let model = self.model()?;
        let services = model.services.values().filter_map(|service| service.pid);
        Ok(services.chain(model.processes.iter().map(|other| other.pid)).any(|pid| pid == process.pid))
    }

    fn answers(&self, neighbour: Ipv4Addr) -> Result<bool> {
        self.alive()?;
        let model = self.model()?;
        let near = |adapter: &IpConfig| adapter.addresses.iter().any(|net| net.contains(&neighbour));
        let adapters = self.list(Listing::Adapters)?;
        let linked = adapters.iter().any(|(_, state)| matches!(state, State::Adapter(config) if near(config)));
        Ok(linked && !model.silent.contains(&neighbour))
    }

    fn connect(&self, to: SocketAddrV4, _limit: Duration) -> Result<Option<String>> {
        self.alive()?;
        let Some(traffic) = &self.traffic else { return Ok(Some("TIMEOUT".into())) };
        traffic(&self.model()?, to)
    }

    fn events(&self) -> Result<Vec<LoggedEvent>> {
        self.alive()?;
        let mut events = self.model()?.events;
        events.retain(LoggedEvent::is_about_calico);
        events.sort_by_key(|event| std::cmp::Reverse(event.at));
        Ok(events)
    }

    fn bgp_sessions(&self) -> Result<BTreeSet<Ipv4Addr>> {
        self.alive()?;
        Ok(self.model()?.bgp_sessions)
    }

    /// A stand-in: this process is not a Windows program, and nothing in the folder could run it.
    fn executable(&self) -> Result<PathBuf> {
        let file = self.root.join(".sandbox").join("calicoctl-win.exe");
        let text = format!("calicoctl-win {} stands here on a real node\n", env!("CARGO_PKG_VERSION"));
        if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) {
            // A sandbox that began with a user's node.yaml has no such folder yet.
            std::fs::create_dir_all(self.root.join(".sandbox"))
                .and_then(|()| std::fs::write(&file, text))
                .with_context(|| format!("write {}", file.display()))?;
        }
        Ok(file)
    }

    /// The stand-ins of the synthetic release have their version in their text, and may have an error to fail with.
    fn ask(&self, program: &Path, _words: &[&str]) -> Result<Option<String>> {
        self.alive()?;
        let bytes = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned();
        if let Some((_, code)) = text.split_once("fails with ") {
            bail!("it ended with exit code {}", code.split_whitespace().next().unwrap_or_default());
        }
        if text.contains("never answers") {
            self.elapse(program::LIMIT)?;
            return Err(program::silent(program::LIMIT));
        }
        let version = text.strip_prefix("Stand-in for ").and_then(|text| text.split_once(" Windows "));
        Ok(version.and_then(|(_, rest)| Some(rest.split_once(',')?.0.to_owned())))
    }

    /// The versions that the plugin of the release in the stand-in's text supports.
    fn cni_versions(&self, plugin: &Path) -> Result<Vec<String>> {
        let Some(version) = self.ask(plugin, &[])? else {
            return Err(refused(win32::BAD_EXE_FORMAT, "start it").into());
        };
        let version: CalicoVersion = version.parse().map_err(anyhow::Error::msg)?;
        let mut known = vec!["0.1.0", "0.2.0", "0.3.0", "0.3.1"];
        if Layout::by_number(&version).cni_version() == "1.0.0" {
            known.extend(["0.4.0", "1.0.0"]);
        }
        Ok(known.into_iter().map(str::to_owned).collect())
    }

    fn now(&self) -> Timestamp {
        Timestamp::now() + self.ahead.get()
    }

    fn pause(&mut self, time: Duration) {
        // The next call reports an error about node.yaml.
        drop(self.alive().and_then(|()| self.elapse(time)));
        if self.plays {
            return;
        }
        drop(self.continue_starts());
        drop(self.recover());
        if let Some(mut hook) = self.on_pause.take() {
            self.plays = true;
            // The agent reports its errors in its own state.
            drop(hook(self));
            self.plays = false;
            self.on_pause = Some(hook);
        }
    }

    fn caller(&self) -> Caller {
        self.look().map(|model| access::caller(&model)).unwrap_or_default()
    }

    fn rights(&self, place: &Path) -> Result<Option<Rights>> {
        let model = self.look()?;
        let root = std::path::absolute(&self.root).context("find the sandbox")?;
        let place = std::path::absolute(place).with_context(|| format!("find {}", place.display()))?;
        let Some(path) = (Disk { root: &root, model: &model }).path_of(&place) else { return Ok(None) };
        let acl = probe::acl(access::acl(&root, &model, &path)?, &self.quirks);
        Ok(Some(Rights { acl, name: path.to_string() }))
    }

    /// A path that leaves the sandbox is mapped below a file, where nothing can exist.
    fn disk(&self, path: &WinPath) -> PathBuf {
        locate(&self.root, path).unwrap_or_else(|_| self.root.join("node.yaml").join("outside"))
    }

    fn save(&mut self, path: &WinPath, bytes: &[u8], access: Access) -> Result<()> {
        let names = id_names(&Id::File(path.clone()));
        let action = self.fault(Call::Save, &names)?;
        match action {
            Some(Action::Slow) => self.elapse(faults::SLOW)?,
            Some(Action::ExitWithin) => {
                Disk { root: &self.root, model: &self.model()? }.half_written(path, &bytes[..bytes.len() / 2])?;
                return Err(self.crash());
            }
            _ => {}
        }
        self.changed.fetch_or(is_of_node(path), Relaxed);
        let disk_model = self.model()?;
        let disk = Disk { root: &self.root, model: &disk_model };
        disk.save(path, bytes, access)?;
        if self.is(Quirk::LeavesTemporary) {
            disk.half_written(path, bytes)?;
        }
        self.fault_after(action, &names[0])
    }

    fn append(&mut self, path: &WinPath, line: &str) -> Result<()> {
        let names = id_names(&Id::File(path.clone()));
        let action = self.fault(Call::Append, &names)?;
        if action == Some(Action::Slow) {
            self.elapse(faults::SLOW)?;
        }
        let model = self.model()?;
        let disk = Disk { root: &self.root, model: &model };
        let line = format!("{line}\n");
        if action == Some(Action::Torn) {
            disk.append(path, &line.as_bytes()[..line.len() / 2])?;
            return Err(self.crash());
        }
        disk.append(path, line.as_bytes())?;
        self.fault_after(action, &names[0])
    }

    fn remove(&self, path: &WinPath) -> Result<()> {
        let names = id_names(&Id::File(path.clone()));
        let action = self.fault(Call::Remove, &names)?;
        self.changed.fetch_or(is_of_node(path), Relaxed);
        if let Some(open) = self.open_files(path, &[])?.first() {
            bail!("remove {path}: {} is in use by {}", open.path, open.by);
        }
        files::remove(&self.disk(path)).with_context(|| format!("remove {path}"))?;
        self.fault_after(action, &names[0])
    }

    fn watch(&mut self, changed: Arc<AtomicBool>) {
        self.changed = changed;
    }

    fn secure(&mut self, folder: &WinPath) -> Result<Option<String>> {
        self.alive()?;
        let (reason, is_done) = Disk { root: &self.root, model: &self.model()? }.secure(folder)?;
        self.changed.fetch_or(reason.is_some(), Relaxed);
        if is_done {
            // The access lists of its contents were those of the old folder.
            self.edit(|model| {
                model.acls.retain(|path, _| !path.is_below(folder));
                Ok(())
            })?;
        }
        Ok(reason)
    }

    /// Tells the services, and changes the boot identity: no service starts by itself in a folder.
    fn restart(&self, _why: &str) -> Result<()> {
        self.alive()?;
        if let Some(hook) = &self.on_shutdown {
            hook(self)?;
        }
        let mut model = self.model()?;
        let time = self.now();
        model.boots(format!("boot-{}", time.as_second()), time);
        self.yaml.borrow_mut().write(model)
    }
}
