//! Windows restarts on a whole node: it starts every service of this program at once, and each agent lets its program wait
//! for its turn. The agents and their processes are real; scripts stand in for the programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use calicoctl_win::agent::host::{Host, serve};
use calicoctl_win::agent::logs::Limits;
use calicoctl_win::agent::os::Scm;
use calicoctl_win::agent::stop::Stop;
use calicoctl_win::agent::supervise::Timing;
use calicoctl_win::agent::{Role, read_config};
use calicoctl_win::item::StartType;
use calicoctl_win::node::Node;
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::node::sandbox::model::{Model, Name};
use calicoctl_win::sandbox::calico::StandIn;

use super::kubernetes::bare;
use super::restart::cluster;
use crate::lab::Lab;

/// kube-proxy's configuration, as its agent writes it at each start.
const PROXY: &str = "C/ProgramData/calicoctl-win/agent/kube-proxy.yaml";

/// The identity of the next boot, which CalicoNode writes to the registry when the network is up.
const BOOT: &str = "the next boot";

const CONF: &str = "C/Program Files/containerd/cni/conf/10-calico.conf";

fn open(lab: &Lab) -> SandboxNode {
    SandboxNode::open(&lab.path("node")).unwrap()
}

/// Replaces a program by a script that adds a line to the file `order` when it starts: its name, whether the network is up
/// and published, and the source VIP in kube-proxy's file. Node startup ends when the file `ended` exists.
fn script(lab: &Lab, program: &Path, name: &str) {
    let file = |path: &Path| path.display().to_string();
    let text = format!(
        r#"#!/bin/sh
name={name}
case "$*" in *startup*) name=startup ;; esac
network=down
[ "$(grep -c '{BOOT}' '{node}')" -gt 1 ] && network=up
cni=absent
[ -e '{conf}' ] && cni=there
vip=
[ "$name" = kube-proxy ] && vip=", $(sed -n 's/^ *sourceVip: //p' '{proxy}')"
echo "$name: network $network, CNI configuration $cni$vip" >>'{order}'
if [ $name = startup ]; then
    until [ -e '{ended}' ]; do sleep 0.05; done
    exit 0
fi
exec sleep 3600
"#,
        node = file(&lab.on_node("node.yaml")),
        conf = file(&lab.on_node(CONF)),
        proxy = file(&lab.on_node(PROXY)),
        order = file(&lab.path("order")),
        ended = file(&lab.path("ended")),
    );
    fs::write(program, text).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What was started, in order.
fn order(lab: &Lab) -> Vec<String> {
    fs::read_to_string(lab.path("order")).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn until(lab: &Lab, what: &str, seen: impl Fn() -> bool) {
    let begun = Instant::now();
    while !seen() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}: {:#?}\n{}", order(lab), logs(lab));
        thread::sleep(Duration::from_millis(20));
    }
}

fn log_of(lab: &Lab, name: &str) -> String {
    fs::read_to_string(lab.on_node(&format!("C/ProgramData/calicoctl-win/logs/calico/{name}.log"))).unwrap_or_default()
}

fn logs(lab: &Lab) -> String {
    ["calico-node", "calico-felix", "kubelet", "kube-proxy"].map(|name| log_of(lab, name)).concat()
}

/// A service that Windows starts by itself.
struct Service<'a> {
    role: Role,
    /// Those that must run before.
    needs: Vec<Role>,
    runs: AtomicBool,
    stop: &'a Stop,
}

impl Scm for Service<'_> {
    fn running(&self) {
        self.runs.store(true, Ordering::SeqCst);
        self.stop.ring();
    }
}

/// This program's services that Windows starts by itself. CalicoNode is the last of those that need no other.
fn automatic<'a>(model: &Model, stop: &'a Stop) -> Vec<Service<'a>> {
    let found = model.services.values().filter(|service| service.definition.start == StartType::Auto);
    let mut found: Vec<Service<'_>> = found
        .filter_map(|service| {
            let role = Role::of_command_line(&service.definition.image_path)?;
            let needs = service.definition.depends_on.iter().filter_map(|name| Role::of_service(name)).collect();
            Some(Service { role, needs, runs: AtomicBool::new(false), stop })
        })
        .collect();
    let early: Vec<Role> =
        found.iter().filter(|one| one.needs.is_empty() && one.role != Role::Node).map(|one| one.role).collect();
    found.iter_mut().find(|one| one.role == Role::Node).unwrap().needs.extend(early);
    found
}

/// Starts the services like Windows, does something meanwhile, and stops them.
fn windows_starts(lab: &Lab, meanwhile: impl FnOnce()) {
    struct StopAtEnd<'a>(&'a Stop);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.request();
        }
    }
    let stop = Stop::default();
    let services = automatic(&lab.model(), &stop);
    lab.edit_model(|model| {
        for service in &services {
            // That of their agents, which are threads here.
            model.services.get_mut(&Name::new(service.role.service())).unwrap().pid = Some(std::process::id());
        }
    });
    let runs =
        |role: &Role| services.iter().any(|service| service.role == *role && service.runs.load(Ordering::SeqCst));
    thread::scope(|scope| {
        // Also if `meanwhile` fails, or the scope would wait forever.
        let _stop_at_end = StopAtEnd(&stop);
        for service in &services {
            scope.spawn(|| {
                stop.wait(Duration::from_secs(3600), || service.needs.iter().all(runs));
                if !stop.requested() {
                    agent(lab, service);
                }
            });
        }
        meanwhile();
    });
}

/// An agent, on a clock that is ten times as fast.
fn agent(lab: &Lab, service: &Service<'_>) {
    let (role, stop) = (service.role, service.stop);
    let host = Host {
        stop,
        scm: service,
        boot_time: &|| "1/2/2099 3:04:05 PM".into(),
        timing: Timing { live: Duration::from_secs(3600), ..Timing::default() },
        limits: Limits::default(),
        pause: &|node, time| {
            stop.wait(time / 10, || false);
            // Only one of them writes to the machine's description.
            if role == Role::Node {
                node.pause(time);
            }
        },
        renew: &|_, _| anyhow::bail!("no renewal in this test"),
        recreate: &|_, lost, _| Ok(lost.to_vec()),
        drift: &|_| Ok(Vec::new()),
    };
    serve(role, &mut open(lab), &host).unwrap();
}

#[test]
fn after_a_restart_of_windows_kubelet_waits_for_the_network_and_kube_proxy_for_its_source_vip() {
    let installed = bare();
    let _done = installed.run("apply -c node.yaml -y").exits(0);
    let vip = installed.read(PROXY).lines().find_map(|line| line.trim().strip_prefix("sourceVip: ").map(str::to_owned));
    let vip = vip.unwrap();
    // HNS may have lost the networks at the boot, or have those of before.
    for lost in [true, false] {
        let lab = installed.copy();
        let node = open(&lab);
        let config = read_config(&node).unwrap();
        for (role, name) in [(Role::Felix, "felix"), (Role::Kubelet, "kubelet"), (Role::KubeProxy, "kube-proxy")] {
            script(&lab, &node.disk(&config.command(role).unwrap().program), name);
        }
        let stale = lab.read(PROXY).replace(&vip, "\"192.0.2.66\"");
        assert_ne!(stale, lab.read(PROXY));
        lab.write(&format!("node/{PROXY}"), stale);
        lab.edit_model(|model| {
            model.boots(BOOT.into(), "2099-01-02T15:04:05Z".parse().unwrap());
            for name in ["Calico", "External"].into_iter().filter(|_| lost) {
                let _lost = model.networks.remove(&Name::new(name)).unwrap();
            }
            model.services.values_mut().for_each(|service| service.pid = None);
            model.processes.clear();
        });

        windows_starts(&lab, || {
            let runs = |name: &str| order(&lab).iter().any(|line| line.starts_with(name));
            // Calico's node startup waits for the Node, which kubelet creates on a new machine.
            until(&lab, "kubelet and node startup", || runs("kubelet:") && runs("startup:"));
            let cluster = cluster(&lab);
            let stand_in = StandIn { dial: Some(cluster.addr()) };
            let startup = stand_in.run(&lab.path("node"), &config.startup).unwrap();
            assert_eq!(startup.code, 0, "{startup:#?}");
            fs::write(lab.path("order"), order(&lab).join("\n") + "\nstartup ends\n").unwrap();
            fs::write(lab.path("ended"), "").unwrap();
            until(&lab, "Felix and kube-proxy", || runs("felix:") && runs("kube-proxy:"));
            until(&lab, "the CNI configuration", || lab.on_node(CONF).is_file());
        });

        let mut order = order(&lab);
        order[..2].sort();
        // Neither waits for the publication.
        order[3..].sort();
        let order = order.join("\n").replace("startup ends\n", "startup ends\n\n");
        let (before, after) = order.split_once("\n\n").unwrap();
        assert_eq!(
            before,
            "kubelet: network up, CNI configuration absent\nstartup: network up, CNI configuration absent\nstartup \
             ends",
            "{lost}: {order}"
        );
        let after: Vec<&str> = after.lines().collect();
        assert_eq!(after.len(), 2, "{lost}: {order}");
        assert!(after[0].starts_with("felix: network up, "), "{lost}: {order}");
        assert!(after[1].starts_with("kube-proxy: network up, "), "{lost}: {order}");
        assert!(after[1].ends_with(&format!(", {vip}")), "{lost}, {vip}: {order}");

        // Each says what it waits for.
        let (network, startup) =
            ("waiting for CalicoNode to bring up the network", "waiting for Calico's node startup");
        let waited = |name: &str| [network, startup].map(|what| log_of(&lab, name).contains(what));
        assert_eq!((waited("kubelet"), waited("kube-proxy")), ([true, false], [true, true]), "{}", logs(&lab));
        assert!(log_of(&lab, "calico-node").contains("Calico initialised"), "{}", logs(&lab));
    }
}
