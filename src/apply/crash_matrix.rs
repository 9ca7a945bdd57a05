//! Stops at every journal write, receipt and put, before and after it takes effect and in the middle of a line; then
//! resumes or undoes, also if it stops again during that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::converge::{self, Change, plan, unproven};
use super::journal::Terms;
use super::node_object::NodeObject;
use super::receipt::About;
use super::standing::{Applied, Standing};
use super::store;
use crate::agent::Role;
use crate::agent::state::{self, AgentState, Phase};
use crate::calico::agent_config::AgentConfig;
use crate::calico::layout::Layout;
use crate::calico::{registry, testing};
use crate::item::{Id, Manifest, ManifestFile, Network, NetworkKind, RegValue, State};
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::faults::{Crash, Fault};
use crate::node::sandbox::model::{Model, Name};
use crate::node::{Node, STATE_DIR};
use crate::plan::Target;
use crate::plan::desired::{Inputs, KubeconfigFile, desired};
use crate::report::event::{Event, Sink};
use crate::values::{Sha256, WinPath};

/// The engine's three ways, without a cluster.
fn apply(node: &mut dyn Node, change: &Change, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    converge::apply(node, &standing, &NodeObject::unknown(), change, &unproven, events)
}

fn resume(node: &mut dyn Node, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    converge::resume(node, &standing, &NodeObject::unknown(), &unproven, events)
}

fn undo(node: &mut dyn Node, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    converge::undo(node, &standing, &NodeObject::unknown(), events)
}

/// A sandbox node with items of another product and of an earlier manual Calico installation.
struct Lab {
    dir: TempDir,
    before: Picture,
}

/// Everything on a node except our own state folder, whose journal and receipts differ by design.
#[derive(Debug, PartialEq, Eq)]
struct Picture(BTreeMap<String, String>);

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        for (path, text) in [
            (r"C:\CalicoWindows\config.ps1", "somebody's own"),
            (r"C:\CalicoWindows\logs\old.log", "an old line"),
            (r"C:\Program Files\containerd\cni\conf\10-calico.conf", "{\"name\": \"was here before\"}"),
            (r"C:\Program Files\containerd\cni\bin\calico.exe", "an older plugin"),
        ] {
            let path = node.disk(&WinPath::known(path));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let flannel = Network {
            kind: NetworkKind::L2Bridge,
            subnet: Some("10.244.1.0/24".parse().unwrap()),
            gateway: None,
            vsid: None,
            adapter: None,
            management_ip: None,
        };
        node.put(&Id::Network("cbr0".into()), Some(&State::Network(flannel))).unwrap();
        let key = registry::last_boot_time();
        node.put(&key, Some(&State::RegValue(RegValue::String("1/1/2026 8:00 AM".into())))).unwrap();
        node.pause(Duration::from_secs(60));
        drop(node);
        let before = Picture::of(dir.path());
        Self { dir, before }
    }

    /// A process that works on the node; with a fault, it ends at the fault.
    fn node(&self, fault: Option<&str>) -> SandboxNode {
        let faults = fault.map(|fault| Fault::parse(fault).unwrap()).into_iter().collect();
        SandboxNode::open(self.dir.path())
            .unwrap()
            .with_faults(faults)
            .crashes_as_errors()
            .with_start_hook(Box::new(|node, name, _| bring_up(node, name)))
    }
}

/// What CalicoNode does to the machine: creates networks, and records the boot in the registry.
fn bring_up(node: &mut SandboxNode, name: &str) -> Result<()> {
    if name != "CalicoNode" {
        return Ok(());
    }
    let text = fs::read(node.disk(&WinPath::known(AgentConfig::PATH)))?;
    let config: AgentConfig = serde_json::from_slice(&text)?;
    let overlay = |subnet: &str, gateway: &str, vsid| {
        State::Network(Network {
            kind: NetworkKind::Overlay,
            subnet: subnet.parse().ok(),
            gateway: gateway.parse().ok(),
            vsid: Some(vsid),
            adapter: None,
            management_ip: None,
        })
    };
    for (name, wanted) in [
        ("External", overlay("192.168.255.0/30", "192.168.255.1", 9999)),
        ("Calico", overlay("192.168.7.0/26", "192.168.7.1", config.vni.get())),
    ] {
        let id = Id::Network(name.into());
        if node.get(&id)?.is_none() {
            node.put(&id, Some(&wanted))?;
        }
    }
    let key = registry::last_boot_time();
    node.put(&key, Some(&State::RegValue(RegValue::String("now".into()))))?;
    startup_succeeded(node)
}

/// What CalicoNode's agent reports when node startup has succeeded.
fn startup_succeeded(node: &mut SandboxNode) -> Result<()> {
    let Some(process) = node.process("CalicoNode")? else { return Ok(()) };
    let said = AgentState { phase: Phase::Running, ..AgentState::new(Role::Node, process.pid, node.now()) };
    let path = node.disk(&state::path(Role::Node));
    fs::create_dir_all(path.parent().unwrap())?;
    Ok(fs::write(path, serde_json::to_vec(&said)?)?)
}

impl Picture {
    /// Returns the differences, one per line; empty if there are none.
    fn against(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let differ = names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name));
        differ.map(|name| format!("{name}:\n{:?}\nand not\n{:?}\n", self.0.get(name), other.0.get(name))).collect()
    }

    fn of(dir: &Path) -> Self {
        let mut files = BTreeMap::new();
        let own = SandboxNode::open(dir).unwrap().disk(&WinPath::known(STATE_DIR));
        let mut folders = vec![dir.join("C")];
        while let Some(folder) = folders.pop() {
            files.insert(folder.display().to_string(), "folder".into());
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path == own {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.display().to_string(), fs::read_to_string(&path).unwrap());
                }
            }
        }
        files.insert("node.yaml".into(), fs::read_to_string(dir.join("node.yaml")).unwrap());
        Self(files)
    }
}

/// A target with this VNI, with its release, files and executable in the store.
fn target(node: &mut SandboxNode, vni: u32) -> (Target, About) {
    let mut settings = testing::settings("v3.32.1");
    settings.network.vni = vni.try_into().unwrap();
    let staging = tempfile::tempdir_in(node.disk(&WinPath::known(r"C:\"))).unwrap();
    let mut files = BTreeMap::new();
    let layout = Layout::of(&settings.calico.version).unwrap();
    for path in layout.required() {
        let file = staging.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, path).unwrap();
        files.insert(path.to_owned(), ManifestFile { size: path.len() as u64, sha256: Sha256::of(path.as_bytes()) });
        store::add_file(node, &file, &Sha256::of(path.as_bytes())).unwrap();
    }
    let manifest = Manifest { version: "v3.32.1".into(), archive: None, files };
    fs::write(staging.path().join(Manifest::FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
    let tree = node.disk(&store::tree(manifest.digest().as_str()));
    let in_place = node.disk(&settings.calico.root).join(Manifest::FILE).exists();
    if !tree.exists() && !in_place {
        fs::create_dir_all(tree.parent().unwrap()).unwrap();
        fs::rename(staging.keep(), &tree).unwrap();
    }
    let executable = node.executable().unwrap();
    let digest = store::digest(&executable).unwrap();
    store::add_file(node, &executable, &digest).unwrap();
    let inputs = Inputs {
        settings: &settings,
        release: &manifest,
        executable: &digest,
        kubeconfig: KubeconfigFile::Rendered(b"kubeconfig".to_vec()),
        etcd_files: None,
        static_rules: None,
        kubernetes: None,
    };
    let desired = desired(&inputs).unwrap();
    for blob in &desired.blobs {
        store::add(node, blob.bytes()).unwrap();
    }
    let about = About {
        effective: None,
        config: None,
        calico_version: settings.calico.version.clone(),
        backend: settings.network.backend,
        vni: settings.network.vni,
        node_name: settings.node_name,
        calico_namespace: "calico-system".into(),
        settings: Sha256::of(&vni.to_be_bytes()),
        archive: None,
        source: "a test".into(),
        token_secret: None,
        kubeconfig: None,
        context: None,
    };
    (desired.target, about)
}

fn run(node: &mut SandboxNode, target: &Target, about: Option<&About>) -> Result<Applied> {
    let command = if about.is_some() { "install" } else { "uninstall" };
    apply(node, &Change { run: "r", command, target, about, terms: Terms::default(), shown: None }, &mut |_| ())
}

/// From one generation to another. `None` is a node without Calico.
struct Transition {
    from: Option<u32>,
    to: Option<u32>,
}

impl Transition {
    /// A node with the generation `from`, and its picture.
    fn start(&self) -> (Lab, Picture) {
        let lab = Lab::new();
        if let Some(vni) = self.from {
            let mut node = lab.node(None);
            let (target, about) = target(&mut node, vni);
            run(&mut node, &target, Some(&about)).unwrap();
        }
        let picture = Picture::of(lab.dir.path());
        (lab, picture)
    }

    fn goal(&self, node: &mut SandboxNode) -> (Target, Option<About>) {
        match self.to {
            Some(vni) => {
                let (target, about) = target(node, vni);
                (target, Some(about))
            }
            None => (Target::default(), None),
        }
    }

    /// Runs until a fault. Returns whether there was one.
    fn interrupted(&self, lab: &Lab, fault: &str) -> bool {
        let (goal, about) = self.goal(&mut lab.node(None));
        let mut node = lab.node(Some(fault));
        match run(&mut node, &goal, about.as_ref()) {
            Ok(_) => false,
            Err(error) => {
                assert!(error.is::<Crash>() || error.chain().any(|cause| cause.is::<Crash>()), "{fault}: {error:#}");
                true
            }
        }
    }

    /// The node has reached the goal, a second run plans nothing, and an uninstall restores everything.
    fn check_forward(&self, lab: &Lab, fault: &str) {
        let mut node = lab.node(None);
        let (goal, about) = self.goal(&mut node);
        let standing = Standing::load(&node).unwrap();
        assert_eq!(standing.journal, None, "{fault}");
        assert_eq!(plan(&node, &standing, &goal).unwrap(), [], "{fault}: the second run plans nothing");
        assert_eq!(standing.receipt().is_some(), about.is_some(), "{fault}");
        run(&mut node, &Target::default(), None).unwrap_or_else(|error| panic!("{fault}: uninstall: {error:#}"));
        drop(node);
        let left = Picture::of(lab.dir.path()).against(&lab.before);
        assert!(left.is_empty(), "{fault}: uninstall gives back what was there before, but {}", left.concat());
    }

    fn check_back(&self, lab: &Lab, start: &Picture, fault: &str) {
        let left = Picture::of(lab.dir.path()).against(start);
        assert!(left.is_empty(), "{fault}: undone byte for byte, but {}", left.concat());
        assert_eq!(Standing::load(&lab.node(None)).unwrap().journal, None, "{fault}");
    }

    /// Every point of the transition, with each fault that is possible there.
    fn every_fault(&self) -> Vec<String> {
        let (lab, _) = self.start();
        let (goal, about) = self.goal(&mut lab.node(None));
        let mut node = lab.node(None);
        run(&mut node, &goal, about.as_ref()).unwrap();
        let touches = node.touches();
        assert!(touches > 20, "a transition of {touches} touches is no matrix");
        let end = (1..=touches).flat_map(|n| [format!("*#{n}=exit-before"), format!("*#{n}=exit-after")]);
        end.chain((1..=touches).map(|n| format!("append *#{n}=torn"))).collect()
    }
}

const INSTALL: Transition = Transition { from: None, to: Some(4096) };
const UNINSTALL: Transition = Transition { from: Some(4096), to: None };
const NEW_VNI: Transition = Transition { from: Some(4096), to: Some(5000) };

/// Whether an interrupted run is left. If a run ends before its journal begins, nothing is half done, and resume says
/// so.
fn pending(lab: &Lab) -> bool {
    Standing::load(&lab.node(None)).unwrap().journal.is_some()
}

fn every_point_can_be_resumed(transition: &Transition) {
    let mut crashes = 0;
    for fault in transition.every_fault() {
        let (lab, start) = transition.start();
        if !transition.interrupted(&lab, &fault) {
            continue;
        }
        crashes += 1;
        if pending(&lab) {
            resume(&mut lab.node(None), &mut |_| ()).unwrap_or_else(|error| panic!("{fault}: resume: {error:#}"));
            transition.check_forward(&lab, &fault);
        } else {
            // The fault was before the journal's first line, or after its last.
            let untouched = Picture::of(lab.dir.path()) == start;
            assert!(
                untouched || Standing::load(&lab.node(None)).unwrap().receipt().is_some() == transition.to.is_some(),
                "{fault}"
            );
        }
    }
    assert!(crashes > 20, "only {crashes} crash points");
}

fn every_point_can_be_undone(transition: &Transition) {
    for fault in transition.every_fault() {
        let (lab, start) = transition.start();
        if transition.interrupted(&lab, &fault) && pending(&lab) {
            undo(&mut lab.node(None), &mut |_| ()).unwrap_or_else(|error| panic!("{fault}: undo: {error:#}"));
            transition.check_back(&lab, &start, &fault);
        }
    }
}

/// Crashes again during recovery: a selection of first crashes, each with every second one.
fn crashes_during_recovery(transition: &Transition) {
    let faults = transition.every_fault();
    let spread: Vec<&String> = faults.iter().step_by(faults.len() / 7).collect();
    for (index, first) in spread.into_iter().enumerate() {
        for n in (1..).step_by(3) {
            let second = format!("*#{n}=exit-{}", if (n + index) % 2 == 0 { "before" } else { "after" });
            let (lab, start) = transition.start();
            if !transition.interrupted(&lab, first) || !pending(&lab) {
                break;
            }
            let back = index % 2 == 0;
            let mut node = lab.node(Some(&second));
            let died = if back { undo(&mut node, &mut |_| ()) } else { resume(&mut node, &mut |_| ()) }.is_err();
            drop(node);
            let both = format!("{first} then {second}");
            if !died {
                break;
            }
            if pending(&lab) {
                let mut node = lab.node(None);
                if back {
                    undo(&mut node, &mut |_| ()).unwrap_or_else(|error| panic!("{both}: {error:#}"));
                    transition.check_back(&lab, &start, &both);
                } else {
                    resume(&mut node, &mut |_| ()).unwrap_or_else(|error| panic!("{both}: {error:#}"));
                    transition.check_forward(&lab, &both);
                }
            }
        }
    }
}

#[test]
fn an_install_that_stops_anywhere_can_be_resumed() {
    every_point_can_be_resumed(&INSTALL);
}

#[test]
fn an_install_that_stops_anywhere_can_be_undone() {
    every_point_can_be_undone(&INSTALL);
}

#[test]
fn an_uninstall_that_stops_anywhere_can_be_resumed() {
    every_point_can_be_resumed(&UNINSTALL);
}

#[test]
fn an_uninstall_that_stops_anywhere_can_be_undone() {
    every_point_can_be_undone(&UNINSTALL);
}

#[test]
fn a_vni_change_that_stops_anywhere_can_be_resumed_or_undone() {
    every_point_can_be_resumed(&NEW_VNI);
    every_point_can_be_undone(&NEW_VNI);
}

#[test]
fn recovery_survives_another_crash() {
    for transition in [INSTALL, UNINSTALL, NEW_VNI] {
        crashes_during_recovery(&transition);
    }
}

/// On its first start since boot, CalicoNode removes and re-creates the old networks, after the plan saw them in the
/// wanted state.
#[test]
fn undo_waits_for_networks_that_are_re_created_after_a_boot() {
    let (lab, start) = UNINSTALL.start();
    assert!(UNINSTALL.interrupted(&lab, "put running CalicoNode=exit-after"));
    let mut node = SandboxNode::open(lab.dir.path()).unwrap().with_start_hook(Box::new(|node, name, _| {
        let calico = Id::Network("Calico".into());
        if name == "CalicoNode" { node.put(&calico, None).and_then(|_| startup_succeeded(node)) } else { Ok(()) }
    }));
    let mut waited = 0;
    undo(&mut node, &mut |event| {
        if let Event::Waiting { what, .. } = event {
            assert_eq!(what, "hns-network Calico made by CalicoNode");
            bring_up(&mut lab.node(None), "CalicoNode").unwrap();
            waited += 1;
        }
    })
    .unwrap();
    assert_eq!(waited, 1);
    UNINSTALL.check_back(&lab, &start, "a boot during the undo");
}

/// At boot CalicoNode starts with the old settings, and creates a network by them during a run that was planned without
/// it.
#[test]
fn a_wrong_network_made_before_the_stop_is_deleted_before_calico_node_starts() {
    let (lab, _) = NEW_VNI.start();
    assert!(NEW_VNI.interrupted(&lab, "put network Calico=exit-after"));
    let mut node = lab.node(None);
    let runs = |model: &mut Model| {
        model.services.get_mut(&Name::new("CalicoNode")).unwrap().pid = Some(7000);
        Ok(())
    };
    node.edit(runs).unwrap();
    let calico = Id::Network("Calico".into());
    let vsid = |node: &SandboxNode| match node.get(&calico).unwrap() {
        Some(State::Network(network)) => network.vsid,
        _ => None,
    };
    let mut made = None;
    let mut meanwhile = |event: Event| {
        if matches!(event, Event::PhaseCompleted { phase: "services-stop", .. }) {
            let mut node = lab.node(None);
            bring_up(&mut node, "CalicoNode").unwrap();
            made = vsid(&node);
        }
    };
    resume(&mut node, &mut meanwhile).unwrap();
    assert_eq!((made, vsid(&node)), (Some(4096), Some(5000)));
    NEW_VNI.check_forward(&lab, "a boot");
}

/// At boot CalicoNode records for which boot the network is up, until it is stopped: also if an uninstall was planned
/// just before.
#[test]
fn uninstall_removes_what_calico_node_wrote_after_the_plan() {
    let (lab, _) = UNINSTALL.start();
    let says = |boot: &str| {
        let value = State::RegValue(RegValue::String(boot.into()));
        lab.node(None).put(&registry::last_boot_time(), Some(&value)).unwrap();
    };
    says("this boot");
    assert!(UNINSTALL.interrupted(&lab, "put running CalicoFelix=exit-before"));
    let mut stopped = 0;
    let mut meanwhile = |event: Event| {
        if matches!(event, Event::PhaseCompleted { phase: "services-stop", .. }) {
            says("the next boot");
            stopped += 1;
        }
    };
    resume(&mut lab.node(None), &mut meanwhile).unwrap();
    assert_eq!(stopped, 1);
    UNINSTALL.check_forward(&lab, "a boot");
}
