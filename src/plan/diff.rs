//! The ordered steps from the observed to the wanted world.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::order::{self, NODE_SERVICE, all_services, is_our_kubernetes, our_kubernetes_reads};
use super::{Owned, Step, Target};
use crate::calico::services::{KUBELET, is_ours};
use crate::calico::{kube_proxy, networks};
use crate::item::{Id, State, Tree, World};
use crate::paths::containerd;

/// How long the agent may take to bring up a network. More than its own limits together (valid address 90 s, creation
/// 60 s, management IP 120 s), so that the agent reports what is missing; rke2 waits 5 minutes for HNS alone.
const NETWORK_WITHIN: Duration = Duration::from_secs(360);

/// How long Calico's node startup may take to succeed once the network exists. It is retried, and each try waits for
/// the datastore.
const STARTUP_WITHIN: Duration = Duration::from_secs(300);

/// Every item that a plan must observe: what is wanted, what is ours, and what runs.
pub fn ids(target: &Target, owned: &Owned) -> BTreeSet<Id> {
    let named = target.world.keys().chain(&target.leave).chain(&target.absent);
    let mut ids: BTreeSet<Id> = named.chain(owned.keys()).cloned().collect();
    ids.extend(services(target, owned).into_iter().map(Id::Running));
    ids.retain(|id| !id.is_in_cluster());
    ids
}

/// The services that may be stopped and started: ours, in their start order, then those of other products. Services
/// that depend on one of them may be too: see [`dependents`].
pub fn services(target: &Target, owned: &Owned) -> Vec<String> {
    all_services().map(str::to_owned).chain(temporarily_managed(target, owned)).collect()
}

/// Services of other products with their dependencies, of those found on the node because they depend on a service that
/// may be stopped. Windows does not stop a service on which a running one depends.
fn dependents(observed: &World) -> BTreeMap<&str, &[String]> {
    let found = observed.iter().filter_map(|(id, state)| match (id, state) {
        (Id::DependsOn(name), State::DependsOn(needed)) => Some((name.as_str(), needed.as_slice())),
        _ => None,
    });
    found.collect()
}

/// Services of other products in their start order: none before its dependencies.
pub fn in_start_order(mut services: Vec<String>, needs: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut ordered = Vec::new();
    while !services.is_empty() {
        let first = services.iter().position(|name| !services.iter().any(|other| needs(name, other)));
        // Windows allows no circular dependencies.
        ordered.push(services.remove(first.unwrap_or(0)));
    }
    ordered
}

/// The services of other products that are stopped and started around a change, and otherwise left running or stopped:
/// those whose definition is managed for a time, and those that the target names. One that must be absent is only
/// stopped.
fn temporarily_managed(target: &Target, owned: &Owned) -> BTreeSet<String> {
    let named = |id: &Id| match id {
        Id::Service(name) | Id::Running(name) if !order::is_own(name) => Some(name.clone()),
        _ => None,
    };
    target.world.keys().chain(&target.leave).chain(&target.absent).chain(owned.keys()).filter_map(named).collect()
}

/// The steps from `observed` to `target`. Their order never removes what a running service uses, shows kubelet the CNI
/// configuration only while its network exists and Calico's node startup has succeeded on it, and, if everything is
/// removed, deletes the HNS networks last: only what kubelet reads comes after.
pub fn diff(target: &Target, observed: &World, owned: &Owned) -> Vec<Step> {
    let our_kubernetes = |service: &str| is_our_kubernetes(service, &[&target.world, observed]);
    let is_own = |service: &str| order::is_own(service) || our_kubernetes(service);
    // The file that another product's kube-proxy reads, if it is managed.
    let proxy = Id::Service(kube_proxy::NAME.into());
    let config = [&target.world, observed].into_iter().find_map(|world| match world.get(&proxy) {
        Some(State::Service(service)) => kube_proxy::config_file(service).map(Id::File),
        _ => None,
    });
    let reads = |service: &str, id: &Id| match our_kubernetes(service) {
        true => our_kubernetes_reads(service, id),
        false => order::reads(service, id) || service == kube_proxy::NAME && config.as_ref() == Some(id),
    };
    let dependents = dependents(observed);
    let needs = |service: &str, other: &str| {
        dependents.get(service).is_some_and(|needed| needed.iter().any(|name| name.eq_ignore_ascii_case(other)))
    };
    let mut ids = ids(target, owned);
    ids.extend(dependents.keys().flat_map(|name| [Id::DependsOn((*name).into()), Id::Running((*name).into())]));
    let lists = lists(target, observed, owned, &ids);
    let want = |id: &Id| match id {
        _ if target.absent.contains(id) => None,
        Id::DependsOn(_) => lists.get(id),
        _ => target.world.get(id).or_else(|| owned.get(id).and_then(Option::as_ref)),
    };
    // HNS creates `Calico` beside `External`, and would leave it on the old adapter: other nodes would send to an
    // address that it does not have.
    let misplaced = |id: &Id, have: &State| {
        let bootstrap = want(&Id::Network(networks::BOOTSTRAP.into()));
        let (State::Network(have), Some(State::Network(bootstrap))) = (have, bootstrap) else { return false };
        let pair = have.adapter.as_ref().zip(bootstrap.adapter.as_ref());
        *id == Id::Network(networks::PODS.into())
            && pair.is_some_and(|(have, want)| have.to_lowercase() != want.to_lowercase())
    };
    let serves = |id: &Id| match (observed.get(id), want(id)) {
        (Some(have), Some(wanted)) => have.satisfies(wanted) && !misplaced(id, have) && !target.recreated.contains(id),
        (have, wanted) => have.is_none() && wanted.is_none(),
    };

    // A new release tree does not contain our files, so all of them are written again. A folder that existed before us,
    // or that is removed, is moved as a whole with its contents.
    let inside = |id: &Id, release: bool| {
        id.path().is_some_and(|path| {
            ids.iter().any(|tree| match (tree, want(tree)) {
                (Id::Tree(root), Some(State::Tree(Tree::Release(_)))) if release => {
                    path.is_below(root) && !serves(tree)
                }
                (Id::Tree(_), Some(State::Tree(Tree::Release(_)))) => false,
                (Id::Tree(root), _) => !release && path.is_below(root),
                _ => false,
            }) && !matches!(id, Id::Tree(_))
        })
    };

    let changed: Vec<&Id> = ids
        .iter()
        .filter(|id| !matches!(id, Id::Running(_)) && !target.leave.contains(*id))
        .filter(|id| if inside(id, true) { want(id).is_some() } else { !serves(id) && !inside(id, false) })
        .collect();
    let before = |id: &Id| if inside(id, true) { None } else { observed.get(id).cloned() };
    let put = |id: &Id, after: Option<&State>| Step::Put { id: id.clone(), before: before(id), after: after.cloned() };

    let mut steps = Vec::new();

    // Withdraw the CNI configuration before its network is deleted.
    let network_goes = changed.iter().any(|id| id.is_derived() && observed.contains_key(*id));
    let withdrawn: Vec<&Id> = ids
        .iter()
        .filter(|id| matches!(id, Id::CniConf(_)) && observed.contains_key(*id))
        // On a node that the scripts made it is not ours yet, and is replaced: with it, kubelet would start pods on the
        // network that goes, as fast as they are deleted.
        .filter(|id| owned.contains_key(*id) || target.absent.contains(*id) || target.world.contains_key(*id))
        .filter(|id| changed.contains(id) && want(id).is_none() || network_goes)
        .collect();
    steps.extend(withdrawn.iter().map(|id| put(id, None)));

    // While kubelet runs: it ends pods, and cannot start new ones without the configuration.
    let goes = changed.iter().filter(|id| matches!(id, Id::Network(_)) && observed.contains_key(**id));
    let vacated: Vec<Step> = goes.map(|id| Step::Vacate { id: (*id).clone() }).collect();

    // Stop what must not run any more, what reads something that changes, and what depends on those.
    let others = temporarily_managed(target, owned).into_iter().chain(dependents.keys().map(|name| (*name).to_owned()));
    let mut others = in_start_order(others.collect::<BTreeSet<_>>().into_iter().collect(), needs);
    // Calico's node startup waits for the Node that kubelet creates, and our kubelet itself waits for the network.
    // It needs containerd.
    let first: Vec<String> = [containerd::NAME, KUBELET]
        .into_iter()
        .filter_map(|first| {
            others.iter().position(|name| name == first && our_kubernetes(name)).map(|at| others.remove(at))
        })
        .collect();
    let services: Vec<String> = first.into_iter().chain(all_services().map(str::to_owned)).chain(others).collect();
    let mut stopped = BTreeSet::new();
    for service in &services {
        let run = Id::Running(service.clone());
        // What a running service of another product depends on must run, wanted or not: Windows starts it too.
        let needed = || {
            let run = |id: &Id| matches!(id, Id::Running(other) if !is_own(other) && needs(other, service));
            want(&Id::Service(service.clone())).is_some() && observed.keys().any(run)
        };
        let goes = target.absent.contains(&run);
        let keep = !is_own(service) && !goes || want(&run).is_some() || target.leave.contains(&run) || needed();
        let named = target.world.contains_key(&run) || target.leave.contains(&run) || target.absent.contains(&run);
        let ours = !is_own(service) || owned.contains_key(&run) || named;
        // A service of another product does not use a network that does not exist yet.
        let known =
            |id: &Id| is_own(service) || !id.is_derived() || observed.contains_key(id) || owned.contains_key(id);
        let disturbed = changed.iter().any(|id| reads(service, id) && known(id))
            || stopped.iter().any(|stopped| matches!(stopped, Id::Running(other) if needs(service, other)));
        if observed.contains_key(&run) && ours && (!keep || disturbed) {
            stopped.insert(run);
        }
    }
    let runs = services.iter().rev().map(|service| Id::Running(service.clone()));
    let stops: Vec<Step> = runs.filter(|run| stopped.contains(run)).map(|run| put(&run, None)).collect();

    // First what no running service reads: no service is down while it is copied.
    let plain = |id: &Id| !id.is_derived() && !matches!(id, Id::CniConf(_) | Id::DependsOn(_));
    let unread = |id: &Id| !stopped.is_empty() && !inside(id, true) && !services.iter().any(|name| reads(name, id));
    let puts = |early: bool| {
        let wanted = changed.iter().filter(move |id| plain(id) && unread(id) == early);
        wanted.filter_map(|id| want(id).map(|state| put(id, Some(state)))).collect::<Vec<_>>()
    };
    steps.splice(0..0, puts(true));
    steps.extend(vacated);
    steps.extend(stops);

    // A wrong network is deleted while nothing uses it, and so is one that must not be there beside the wanted ones: it may
    // have their addresses. An unwanted one is deleted last.
    let replaced = |id: &Id| target.absent.contains(id) && !target.world.is_empty();
    let unwanted = |id: &Id| id.is_derived() && want(id).is_none() && !replaced(id);
    steps.extend(
        changed
            .iter()
            .rev()
            .filter(|id| id.is_derived() && !unwanted(id) && observed.contains_key(**id))
            .map(|id| put(id, None)),
    );

    // A service that others depend on is removed after the dependencies, and created before they are added again.
    let (loses, gains): (Vec<&Id>, Vec<&Id>) =
        changed.iter().filter(|id| matches!(id, Id::DependsOn(_))).partition(|id| fewer(want(id), observed.get(*id)));
    steps.extend(loses.into_iter().map(|id| put(id, want(id))));
    steps.extend(changed.iter().rev().filter(|id| plain(id) && want(id).is_none()).map(|id| put(id, None)));
    steps.extend(puts(false));
    steps.extend(gains.into_iter().map(|id| put(id, want(id))));

    // Start services, and wait for what they create.
    let (begun, mut startup) = (steps.len(), None);
    for service in &services {
        let run = Id::Running(service.clone());
        let definition = Id::Service(service.clone());
        let goes = changed.contains(&&definition) && want(&definition).is_none();
        let leave = !goes && (!is_own(service) && !target.absent.contains(&run) || target.leave.contains(&run));
        let wanted = want(&run).is_some() || (leave && stopped.contains(&run));
        if wanted && (!observed.contains_key(&run) || stopped.contains(&run)) {
            steps.push(Step::Put { id: run.clone(), before: None, after: Some(State::Running) });
        }
        if service == NODE_SERVICE {
            for id in changed.iter().filter(|id| id.is_derived()) {
                if let Some(state) = target.world.get(*id) {
                    steps.push(Step::Await { id: (*id).clone(), state: state.clone(), within: NETWORK_WITHIN });
                } else if let Some(original) = want(id) {
                    steps.push(Step::Put { id: (*id).clone(), before: None, after: Some(original.clone()) });
                }
            }
            let starts = steps[begun..].iter().any(|step| *step.id() == run);
            startup = (starts || observed.contains_key(&run) && !stopped.contains(&run)).then_some(steps.len());
        }
    }

    let goes: Vec<Step> = changed.iter().rev().filter(|id| unwanted(id)).map(|id| put(id, None)).collect();
    let others = begun + goes.len();
    steps.extend(goes);

    // Publish the CNI configuration: from here on kubelet may start pods, so no network may be deleted later.
    for id in ids.iter().filter(|id| matches!(id, Id::CniConf(_))) {
        if (changed.contains(&id) || withdrawn.contains(&id))
            && let Some(state) = want(id)
        {
            let before = if withdrawn.contains(&id) { None } else { before(id) };
            steps.push(Step::Put { id: id.clone(), before, after: Some(state.clone()) });
        }
    }

    // The network exists before startup has created `Calico_ep` on it and published the node's address: Felix,
    // kube-proxy and pods must wait. Only our agent reports when that is done.
    let ours = want(&Id::Service(NODE_SERVICE.into()))
        .is_some_and(|state| matches!(state, State::Service(service) if is_ours(service)));
    if let (Some(at), true, true) = (startup, ours, steps.len() > others) {
        let id = Id::Running(NODE_SERVICE.into());
        steps.insert(at, Step::Await { id, state: State::Running, within: STARTUP_WITHIN });
    }
    steps
}

/// The wanted dependencies of other products' services: the current ones, or those before an interrupted run changed
/// them, without services of ours that are removed. Windows does not start a service that depends on a missing one
/// (error 1075).
fn lists(target: &Target, observed: &World, owned: &Owned, ids: &BTreeSet<Id>) -> World {
    let removed = target.absent.iter().filter_map(|id| match id {
        Id::Service(name) => Some(name.clone()),
        _ => None,
    });
    let of_kubernetes = [containerd::NAME, KUBELET, kube_proxy::NAME];
    let services = all_services().chain(of_kubernetes).map(str::to_owned);
    let services: BTreeSet<String> = services.chain(removed).collect();
    let goes = |name: &String| {
        services.iter().filter(|own| own.eq_ignore_ascii_case(name)).any(|own| {
            let id = Id::Service(own.clone());
            let comes_back = target.world.contains_key(&id) || owned.get(&id).is_some_and(Option::is_some);
            ids.contains(&id) && (target.absent.contains(&id) || !comes_back)
        })
    };
    let lists = ids.iter().filter_map(|id| match (id, observed.get(id)?) {
        (Id::DependsOn(_), State::DependsOn(now)) => {
            let before = match owned.get(id) {
                Some(Some(State::DependsOn(before))) => before,
                _ => now,
            };
            let stay = before.iter().filter(|name| !goes(name)).cloned().collect();
            Some((id.clone(), State::DependsOn(stay)))
        }
        _ => None,
    });
    lists.collect()
}

fn fewer(list: Option<&State>, than: Option<&State>) -> bool {
    matches!((list, than), (Some(State::DependsOn(list)), Some(State::DependsOn(than))) if list.len() < than.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::services::MARK;
    use crate::item::{Access, Network, NetworkKind, Service, StartType};
    use crate::values::{Sha256, WinPath};

    fn file(text: &str) -> State {
        State::File { sha256: Sha256::of(text.as_bytes()), access: Access::Inherited }
    }

    fn overlay(vsid: u32) -> State {
        State::Network(Network {
            kind: NetworkKind::Overlay,
            subnet: None,
            gateway: None,
            vsid: Some(vsid),
            adapter: None,
            management_ip: None,
        })
    }

    fn root() -> WinPath {
        WinPath::known(r"C:\CalicoWindows")
    }

    fn conf() -> Id {
        Id::CniConf(WinPath::known(r"C:\k\cni\config\10-calico.conf"))
    }

    fn service() -> Service {
        Service {
            display_name: "Calico Windows Startup".into(),
            description: format!("Node startup.{MARK}"),
            image_path: "calicoctl-win.exe service run node".into(),
            account: "LocalSystem".into(),
            start: StartType::Auto,
            depends_on: Vec::new(),
            restart_after: Vec::new(),
            recovery: None,
            parameters: [].into(),
        }
    }

    fn node(vni: u32) -> Target {
        let world = World::from([
            (Id::Tree(root()), State::Tree(Tree::Release(Sha256::of(b"release")))),
            (Id::File(root().join("config.ps1")), file("config")),
            (Id::File(WinPath::known(r"C:\ProgramData\calicoctl-win\services.json")), file(&vni.to_string())),
            (Id::Network("Calico".into()), overlay(vni)),
            (conf(), file(&format!("vni={vni}"))),
            (Id::Service("CalicoNode".into()), State::Service(Box::new(service()))),
            (Id::Running("CalicoFelix".into()), State::Running),
            (Id::Running("CalicoNode".into()), State::Running),
        ]);
        Target { world, ..Target::default() }
    }

    fn story(steps: &[Step]) -> String {
        let line = |step: &Step| match step {
            Step::Put { id, before: None, .. } => format!("+ {id}\n"),
            Step::Put { id, after: None, .. } => format!("- {id}\n"),
            Step::Put { id, .. } => format!("~ {id}\n"),
            Step::Await { id, .. } => format!("? {id}\n"),
            Step::Vacate { id } | Step::Drain { id } => format!("0 {id}\n"),
        };
        steps.iter().map(line).collect()
    }

    fn owned(target: &Target) -> Owned {
        target.world.keys().map(|id| (id.clone(), None)).collect()
    }

    #[test]
    fn a_bare_node_comes_up_in_order() {
        insta::assert_snapshot!(story(&diff(&node(4096), &World::new(), &Owned::new())), @r"
        + release C:\CalicoWindows
        + file C:\CalicoWindows\config.ps1
        + file C:\ProgramData\calicoctl-win\services.json
        + service CalicoNode
        + running CalicoNode
        ? hns-network Calico
        ? running CalicoNode
        + running CalicoFelix
        + file C:\k\cni\config\10-calico.conf
        ");
    }

    #[test]
    fn a_second_run_has_nothing_to_do() {
        let target = node(4096);
        assert_eq!(diff(&target, &target.world, &owned(&target)), []);
    }

    #[test]
    fn a_vni_change_withdraws_stops_deletes_and_restores() {
        let (old, new) = (node(4096), node(5000));
        insta::assert_snapshot!(story(&diff(&new, &old.world, &owned(&old))), @r"
        - file C:\k\cni\config\10-calico.conf
        0 hns-network Calico
        - running CalicoFelix
        - running CalicoNode
        - hns-network Calico
        ~ file C:\ProgramData\calicoctl-win\services.json
        + running CalicoNode
        ? hns-network Calico
        ? running CalicoNode
        + running CalicoFelix
        + file C:\k\cni\config\10-calico.conf
        ");
    }

    /// kube-proxy uses the network that is deleted; the other changes do not affect it.
    #[test]
    fn a_network_is_re_created_between_the_stop_and_the_start_of_kube_proxy() {
        let proxy = Id::Running("kube-proxy".into());
        let with_proxy = |vni| {
            let mut target = node(vni);
            target.leave.insert(proxy.clone());
            target
        };
        let (old, new) = (with_proxy(4096), with_proxy(5000));
        let mut observed = old.world.clone();
        observed.insert(proxy.clone(), State::Running);
        insta::assert_snapshot!(story(&diff(&new, &observed, &owned(&old))), @r"
        - file C:\k\cni\config\10-calico.conf
        0 hns-network Calico
        - running kube-proxy
        - running CalicoFelix
        - running CalicoNode
        - hns-network Calico
        ~ file C:\ProgramData\calicoctl-win\services.json
        + running CalicoNode
        ? hns-network Calico
        ? running CalicoNode
        + running CalicoFelix
        + running kube-proxy
        + file C:\k\cni\config\10-calico.conf
        ");
        let cycled = |target: &Target, observed: &World, owned: &Owned| {
            diff(target, observed, owned).iter().any(|step| *step.id() == proxy)
        };
        assert!(!cycled(&new, &old.world, &owned(&old)), "it does not run");
        assert!(!cycled(&node(5000), &observed, &owned(&old)), "it must be left alone");
        assert!(!cycled(&old, &World::from([(proxy.clone(), State::Running)]), &Owned::new()), "the first network");
        assert!(!cycled(&Target::default(), &observed, &owned(&old)), "no network comes");
        let mut smaller = old.clone();
        smaller.world.insert(Id::File(WinPath::known(r"C:\ProgramData\calicoctl-win\services.json")), file("debug"));
        assert!(!cycled(&smaller, &observed, &owned(&old)), "the network stays");
        let mut gone = observed.clone();
        gone.remove(&Id::Network("Calico".into()));
        assert!(cycled(&old, &gone, &owned(&old)), "somebody deleted the network");
    }

    fn depends(observed: &mut World, service: &str, needed: &[&str], runs: bool) {
        let needed = needed.iter().map(|name| (*name).to_owned()).collect();
        observed.insert(Id::DependsOn(service.into()), State::DependsOn(needed));
        if runs {
            observed.insert(Id::Running(service.into()), State::Running);
        }
    }

    #[test]
    fn what_depends_on_a_stopped_service_stops_before_it_and_starts_after_it() {
        let (old, new) = (node(4096), node(5000));
        let mut observed = old.world.clone();
        depends(&mut observed, "kubelet", &["containerd", "calicoNODE"], true);
        depends(&mut observed, "agent", &["Kubelet"], true);
        depends(&mut observed, "idle", &["CalicoFelix"], false);
        insta::assert_snapshot!(story(&diff(&new, &observed, &owned(&old))), @r"
        - file C:\k\cni\config\10-calico.conf
        0 hns-network Calico
        - running agent
        - running kubelet
        - running CalicoFelix
        - running CalicoNode
        - hns-network Calico
        ~ file C:\ProgramData\calicoctl-win\services.json
        + running CalicoNode
        ? hns-network Calico
        ? running CalicoNode
        + running CalicoFelix
        + running kubelet
        + running agent
        + file C:\k\cni\config\10-calico.conf
        ");
        let felix = Id::File(WinPath::known(r"C:\ProgramData\calicoctl-win\felix.json"));
        let mut debug = node(4096);
        debug.world.insert(felix, file("debug"));
        insta::assert_snapshot!(story(&diff(&debug, &observed, &owned(&old))), @r"
        - running CalicoFelix
        + file C:\ProgramData\calicoctl-win\felix.json
        ? running CalicoNode
        + running CalicoFelix
        ");
    }

    #[test]
    fn no_service_depends_on_a_removed_one() {
        let mut old = node(4096);
        for name in ["CalicoFelix", "CalicoNode"] {
            old.world.insert(Id::Service(name.into()), State::DependsOn(Vec::new()));
        }
        let mut observed = old.world.clone();
        depends(&mut observed, "kubelet", &["containerd", "calicoNODE"], true);
        depends(&mut observed, "idle", &["CalicoFelix"], false);
        let mut owned = owned(&old);
        let steps = diff(&Target::default(), &observed, &owned);
        insta::assert_snapshot!(story(&steps), @r"
        - file C:\k\cni\config\10-calico.conf
        0 hns-network Calico
        - running kubelet
        - running CalicoFelix
        - running CalicoNode
        ~ dependencies idle
        ~ dependencies kubelet
        - service CalicoNode
        - service CalicoFelix
        - file C:\ProgramData\calicoctl-win\services.json
        - release C:\CalicoWindows
        + running kubelet
        - hns-network Calico
        ");
        let list = |steps: &[Step], name: &str| {
            let step = steps.iter().find(|step| *step.id() == Id::DependsOn(name.into()));
            step.map(|step| match step {
                Step::Put { after: Some(State::DependsOn(names)), .. } => names.join(" "),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!((list(&steps, "kubelet"), list(&steps, "idle")), (Some("containerd".into()), Some(String::new())));

        // An undo restores the names, and removes what was added since.
        for name in ["kubelet", "idle"] {
            let id = Id::DependsOn(name.into());
            owned.insert(id.clone(), observed.get(&id).cloned());
        }
        let mut gone = World::new();
        depends(&mut gone, "kubelet", &["containerd"], true);
        depends(&mut gone, "idle", &[], false);
        assert_eq!(diff(&Target::default(), &gone, &owned), []);
        let back = diff(&old, &gone, &owned);
        assert_eq!(list(&back, "kubelet"), Some("containerd calicoNODE".into()));
        let at = |id: &Id| back.iter().position(|step| step.id() == id);
        assert!(at(&Id::DependsOn("kubelet".into())) > at(&Id::Service("CalicoNode".into())));

        // So it is with a containerd that is ours; another product's remains.
        let runtime = Id::Service("containerd".into());
        let mut with_runtime = World::from([(runtime.clone(), State::DependsOn(Vec::new()))]);
        depends(&mut with_runtime, "kubelet", &["containerd"], true);
        let kubelets = |before: Option<State>| {
            let owned = Owned::from([(runtime.clone(), before)]);
            list(&diff(&Target::default(), &with_runtime, &owned), "kubelet")
        };
        assert_eq!(kubelets(None), Some(String::new()));
        assert_eq!(kubelets(Some(State::DependsOn(Vec::new()))), None);

        // The scripts' services remain, and what depends on them too.
        let theirs = Id::Service("CalicoNode".into());
        owned.insert(theirs.clone(), old.world.get(&theirs).cloned());
        assert_eq!(list(&diff(&Target::default(), &observed, &owned), "kubelet"), None);
        assert_eq!(diff(&Target::default(), &observed, &Owned::new()), []);
    }

    /// Windows starts a service's dependencies with it, wanted or not.
    #[test]
    fn what_a_running_service_of_another_product_needs_is_left_running() {
        let theirs = Id::Service("CalicoNode".into());
        let owned = Owned::from([
            (theirs.clone(), Some(State::DependsOn(Vec::new()))),
            (Id::Running("CalicoNode".into()), None),
        ]);
        let mut observed =
            World::from([(theirs, State::DependsOn(Vec::new())), (Id::Running("CalicoNode".into()), State::Running)]);
        assert_eq!(diff(&Target::default(), &observed, &owned).len(), 1, "it was not running before");
        depends(&mut observed, "kubelet", &["CalicoNode"], true);
        assert_eq!(diff(&Target::default(), &observed, &owned), []);
    }

    /// A run that was interrupted between the start of CalicoNode and the steps after it.
    #[test]
    fn steps_after_node_startup_wait_for_it_even_if_it_already_runs() {
        let target = node(4096);
        let mut observed = target.world.clone();
        observed.remove(&Id::Running("CalicoFelix".into()));
        observed.remove(&conf());
        insta::assert_snapshot!(story(&diff(&target, &observed, &owned(&target))), @r"
        ? running CalicoNode
        + running CalicoFelix
        + file C:\k\cni\config\10-calico.conf
        ");
    }

    #[test]
    fn on_another_adapter_both_networks_are_re_created() {
        let on = |adapter: &str, vsid| match overlay(vsid) {
            State::Network(network) => State::Network(Network { adapter: Some(adapter.into()), ..network }),
            other => other,
        };
        let external = Id::Network("External".into());
        let mut target = node(4096);
        target.world.insert(external.clone(), on("Storage", 9999));
        let mut observed = target.world.clone();
        observed.insert(external.clone(), on("Ethernet", 9999));
        observed.insert(Id::Network("Calico".into()), on("Ethernet", 4096));
        let goes = |observed: &World| story(&diff(&target, observed, &owned(&target))).contains("- hns-network Calico");
        assert!(goes(&observed));
        observed.remove(&external);
        assert!(goes(&observed), "a run that was interrupted between the two");
        observed.insert(external, on("storage", 9999));
        observed.insert(Id::Network("Calico".into()), on("storage", 4096));
        assert_eq!(diff(&target, &observed, &owned(&target)), []);
    }

    /// NSSM runs upstream's script, which does not report its progress.
    #[test]
    fn a_restored_service_of_another_product_is_not_awaited() {
        let mut target = node(4096);
        let theirs = Service { description: "upstream's".into(), ..service() };
        target.world.insert(Id::Service("CalicoNode".into()), State::Service(Box::new(theirs)));
        let steps = story(&diff(&target, &World::new(), &Owned::new()));
        assert!(steps.contains("? hns-network Calico") && !steps.contains("? running"), "{steps}");
    }

    #[test]
    fn everything_is_removed_with_hns_last() {
        let old = node(4096);
        insta::assert_snapshot!(story(&diff(&Target::default(), &old.world, &owned(&old))), @r"
        - file C:\k\cni\config\10-calico.conf
        0 hns-network Calico
        - running CalicoFelix
        - running CalicoNode
        - service CalicoNode
        - file C:\ProgramData\calicoctl-win\services.json
        - release C:\CalicoWindows
        - hns-network Calico
        ");
    }

    #[test]
    fn a_folder_from_before_us_is_restored_with_its_files() {
        let old = node(4096);
        let mut owned = owned(&old);
        owned.insert(Id::Tree(root()), Some(State::Tree(Tree::Foreign)));
        owned.insert(conf(), Some(file("somebody's")));
        insta::assert_snapshot!(story(&diff(&Target::default(), &old.world, &owned)), @r"
        - file C:\k\cni\config\10-calico.conf
        0 hns-network Calico
        - running CalicoFelix
        - running CalicoNode
        - service CalicoNode
        - file C:\ProgramData\calicoctl-win\services.json
        ~ release C:\CalicoWindows
        - hns-network Calico
        + file C:\k\cni\config\10-calico.conf
        ");
    }

    #[test]
    fn with_start_false_services_stay_as_they_are_but_are_cycled_around_a_change() {
        let mut old = node(4096);
        for id in [Id::Running("CalicoFelix".into()), Id::Running("CalicoNode".into()), Id::Network("Calico".into())] {
            old.world.remove(&id);
            old.leave.insert(id);
        }
        let owned: Owned = old.world.keys().chain(&old.leave).map(|id| (id.clone(), None)).collect();
        let mut running = node(4096).world;
        assert_eq!(diff(&old, &running, &owned), []);
        running.remove(&Id::Running("CalicoFelix".into()));
        old.world.insert(Id::File(WinPath::known(r"C:\ProgramData\calicoctl-win\services.json")), file("new"));
        insta::assert_snapshot!(story(&diff(&old, &running, &owned)), @r"
        - running CalicoNode
        ~ file C:\ProgramData\calicoctl-win\services.json
        + running CalicoNode
        ? running CalicoNode
        ");
    }

    #[test]
    fn running_services_with_calicos_names_are_left_if_nothing_is_owned() {
        let theirs = World::from([(Id::Running("CalicoNode".into()), State::Running)]);
        assert_eq!(diff(&Target::default(), &theirs, &Owned::new()), []);
    }
}
