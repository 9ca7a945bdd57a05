//! The machine that this program runs on. One file per subsystem of Windows; the only `unsafe` of
//! the program besides `agent/os`.
#![allow(unsafe_code)]

pub mod adapters;
pub mod boot;
mod com;
mod dhcp;
pub mod disk;
pub mod disk_space;
pub mod dll;
pub mod event_log;
pub mod facts;
pub mod features;
pub mod filetime;
pub mod firewall;
pub mod hns;
pub mod iphelper;
mod mutex;
pub mod os;
mod probe;
pub mod processes;
pub mod reboot;
pub mod registry;
mod restart_manager;
pub mod routes;
pub mod runtime;
mod scm;
pub mod security;
mod service_key;
mod service_state;
pub mod services;
pub mod sid;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod wide;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;

use super::acl::Caller;
use super::event_log::LoggedEvent;
use super::hns::{Endpoint, Refusal};
use super::probe::Probe;
use super::trust::Rights;
use super::{
    EndpointCallback, Listing, NetworkDetails, Node, OpenFile, Process, Put, ServiceState, files, is_key_alone,
    is_of_node, program, withdrawn,
};
use crate::facts::NodeFacts;
use crate::item::{Access, Id, Network, State};
use crate::values::WinPath;

use processes::{Running, Watched};

/// This machine.
#[derive(Debug, Default)]
pub struct WindowsNode {
    changed: Arc<AtomicBool>,
    /// The process that [`Node::runs`] was asked about last.
    watched: RefCell<Option<Watched>>,
}

/// The TCP port of BGP.
const BGP: u16 = 179;

impl Node for WindowsNode {
    fn facts(&self) -> Result<NodeFacts> {
        facts::measure()
    }

    fn boot_id(&self) -> Result<String> {
        boot::id().context("find out which boot this is")
    }

    fn get(&self, id: &Id) -> Result<Option<State>> {
        match id {
            Id::Dir(path) => disk::get_dir(path),
            Id::Tree(path) => disk::get_tree(path),
            Id::File(path) => disk::get_file(path),
            Id::CniConf(path) => match disk::get_file(path)? {
                None => disk::get_file(&withdrawn(path)),
                there => Ok(there),
            },
            Id::RegValue { key, name } => Ok(registry::get(key, name)?.map(State::RegValue)),
            Id::Firewall(name) => Ok(firewall::get(name)?.map(State::Firewall)),
            Id::Service(name) => Ok(services::get(name)?.map(|service| State::Service(Box::new(service)))),
            Id::DependsOn(name) => Ok(services::depends_on(name)?.map(State::DependsOn)),
            Id::Network(name) => Ok(hns::get(name)?.map(State::Network)),
            Id::Route(prefix) => routes::get(prefix),
            Id::Adapter(name) => Ok(adapters::get(name)?.map(State::Adapter)),
            Id::Running(name) => Ok(services::process(name)?.map(|_| State::Running)),
            Id::Cordon(_) | Id::Achieved(_) | Id::CalicoIsUp(_) => {
                bail!("{id} is in the cluster, and not on this machine")
            }
        }
    }

    fn put(&mut self, id: &Id, state: Option<&State>) -> Result<Put> {
        let key_alone = is_key_alone(id, state) && self.get(id)?.is_none();
        self.changed.fetch_or(!key_alone, Relaxed);
        match (id, state) {
            (Id::Dir(path), None) => return disk::put_dir(path, None).map(Put::leaving),
            (Id::Dir(path), Some(State::Dir { access })) => disk::put_dir(path, Some(access)).map(drop),
            (Id::Tree(path), None) => disk::put_tree(path, None),
            (Id::Tree(path), Some(State::Tree(tree))) => disk::put_tree(path, Some(tree)),
            (Id::File(path) | Id::CniConf(path), None) => {
                if matches!(id, Id::CniConf(_)) {
                    // First CalicoNode's withdrawn copy, so that it does not return.
                    disk::put_file(&withdrawn(path), None)?;
                }
                return disk::put_file(path, None).map(Put::leaving);
            }
            (Id::File(path), Some(State::File { sha256, access })) => {
                disk::put_file(path, Some((sha256, access))).map(drop)
            }
            (Id::CniConf(path), Some(State::File { sha256, access })) => {
                disk::put_file(path, Some((sha256, access)))?;
                disk::put_file(&withdrawn(path), None).map(drop)
            }
            (Id::RegValue { key, name }, None) => registry::put(key, name, None),
            (Id::RegValue { key, name }, Some(State::RegValue(value))) => registry::put(key, name, Some(value)),
            (Id::Firewall(name), None) => firewall::put(name, None),
            (Id::Firewall(name), Some(State::Firewall(rule))) => firewall::put(name, Some(rule)),
            (Id::Service(name), None) => return services::put(name, None),
            (Id::Service(name), Some(State::Service(service))) => return services::put(name, Some(service)),
            (Id::DependsOn(name), None) => bail!("what service {name} depends on goes with the service"),
            (Id::DependsOn(name), Some(State::DependsOn(needed))) => services::put_depends_on(name, needed),
            (Id::Network(name), None) => {
                return Ok(Put { address_away: hns::remove(name)?, ..Put::default() });
            }
            (Id::Network(name), Some(State::Network(network))) => hns::put(name, network),
            (Id::Route(prefix), None) => routes::put(prefix, None),
            (Id::Route(prefix), Some(route @ State::Route { .. })) => routes::put(prefix, Some(route)),
            (Id::Adapter(name), None) => bail!("adapter {name} cannot be removed: it is hardware"),
            (Id::Adapter(name), Some(State::Adapter(config))) => adapters::put(name, config),
            (Id::Running(name), None) => services::stop(name),
            (Id::Running(name), Some(State::Running)) => services::start(name),
            (Id::Cordon(_) | Id::Achieved(_) | Id::CalicoIsUp(_), _) => {
                bail!("{id} is in the cluster, and not on this machine")
            }
            (id, Some(other)) => bail!("{id} cannot be put as {other:?}"),
        }?;
        Ok(Put::default())
    }

    fn remove_stale_networks(
        &mut self,
        stale: &dyn Fn(&str, &Network) -> bool,
        before: EndpointCallback<'_>,
    ) -> Result<Vec<String>> {
        self.changed.store(true, Relaxed);
        hns::remove_stale(stale, &mut |lost| before(self, lost))
    }

    fn network_details(&self, name: &str) -> Result<Option<NetworkDetails>> {
        hns::details(name)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        hns::endpoints()
    }

    fn ask_hns(&self, path: &str) -> Result<Result<serde_json::Value, Refusal>> {
        hns::ask_for(path)
    }

    fn probe(&mut self, probe: &Probe) -> Result<Option<u32>> {
        probe::run(probe)
    }

    fn containers(&self) -> Result<BTreeSet<String>> {
        hns::containers()
    }

    fn delete_endpoint(&mut self, id: &str) -> Result<()> {
        hns::delete_endpoint(id)
    }

    fn let_all_through(&mut self, endpoint: &str) -> Result<()> {
        self.changed.store(true, Relaxed);
        hns::let_all_through(endpoint)
    }

    fn list(&self, kind: Listing) -> Result<Vec<(Id, State)>> {
        Ok(match kind {
            Listing::Networks => {
                hns::list()?.into_iter().map(|(name, network)| (Id::Network(name), State::Network(network))).collect()
            }
            Listing::FirewallRules => {
                firewall::list()?.into_iter().map(|(name, rule)| (Id::Firewall(name), State::Firewall(rule))).collect()
            }
            Listing::Services => services::list()?
                .into_iter()
                .map(|(name, service)| (Id::Service(name), State::Service(Box::new(service))))
                .collect(),
            Listing::Routes => routes::list()?,
            Listing::Adapters => adapters::list()?
                .into_iter()
                .map(|(name, config)| (Id::Adapter(name), State::Adapter(config)))
                .collect(),
        })
    }

    fn dependents(&self, service: &str) -> Result<Vec<String>> {
        services::dependents(service)
    }

    fn start_stranded(&mut self, service: &str) -> Result<Vec<String>> {
        service_state::start_stranded(service)
    }

    fn service_state(&self, service: &str) -> Result<Option<ServiceState>> {
        service_state::state(service)
    }

    fn process(&self, service: &str) -> Result<Option<Process>> {
        services::process(service)
    }

    fn processes(&self, image: &str) -> Result<Vec<Process>> {
        let running = processes::named(image)?;
        Ok(running.into_iter().map(|found| Process { pid: found.pid, since: found.created }).collect())
    }

    fn open_files(&self, folder: &WinPath, besides: &[Process]) -> Result<Vec<OpenFile>> {
        restart_manager::open_files(folder, besides)
    }

    fn runs(&self, process: &Process) -> Result<bool> {
        let process = Running { pid: process.pid, created: process.since };
        let mut watched = self.watched.borrow_mut();
        if !watched.as_ref().is_some_and(|watched| watched.is(&process)) {
            *watched = Watched::open(&process)?;
        }
        watched.as_ref().map_or_else(|| processes::is_there(&process), Watched::runs)
    }

    fn answers(&self, neighbour: Ipv4Addr) -> Result<bool> {
        adapters::answers(neighbour)
    }

    fn connect(&self, to: SocketAddrV4, limit: Duration) -> Result<Option<String>> {
        Ok(match TcpStream::connect_timeout(&to.into(), limit) {
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::TimedOut => Some("TIMEOUT".into()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Some("REFUSED".into()),
            Err(error) => Some(format!("OTHER: {error}")),
        })
    }

    fn events(&self) -> Result<Vec<LoggedEvent>> {
        event_log::about_calico()
    }

    fn bgp_sessions(&self) -> Result<BTreeSet<Ipv4Addr>> {
        iphelper::sessions(BGP)
    }

    fn executable(&self) -> Result<PathBuf> {
        std::env::current_exe().context("find the running executable")
    }

    fn ask(&self, program: &Path, words: &[&str]) -> Result<Option<String>> {
        program::answer(program, words).map(Some)
    }

    fn cni_versions(&self, plugin: &Path) -> Result<Vec<String>> {
        program::cni_versions(plugin)
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn caller(&self) -> Caller {
        security::caller()
    }

    fn rights(&self, place: &Path) -> Result<Option<Rights>> {
        Ok(Some(Rights { name: place.display().to_string(), acl: disk::acl(place)? }))
    }

    fn disk(&self, path: &WinPath) -> PathBuf {
        disk::place(path)
    }

    fn save(&mut self, path: &WinPath, bytes: &[u8], access: Access) -> Result<()> {
        self.changed.fetch_or(is_of_node(path), Relaxed);
        disk::save(path, bytes, access)
    }

    fn append(&mut self, path: &WinPath, line: &str) -> Result<()> {
        disk::append(path, line)
    }

    fn remove(&self, path: &WinPath) -> Result<()> {
        self.changed.fetch_or(is_of_node(path), Relaxed);
        files::remove(&self.disk(path)).with_context(|| format!("remove {path}"))
    }

    fn watch(&mut self, changed: Arc<AtomicBool>) {
        self.changed = changed;
    }

    fn secure(&mut self, folder: &WinPath) -> Result<Option<String>> {
        let secured = disk::secure(folder)?;
        self.changed.fetch_or(secured.is_some(), Relaxed);
        Ok(secured)
    }

    fn restart(&self, why: &str) -> Result<()> {
        reboot::restart(why)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    #[test]
    fn a_connection_is_made_or_its_refusal_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let Ok(SocketAddr::V4(at)) = listener.local_addr() else { panic!("it is IPv4") };
        let connect = || WindowsNode::default().connect(at, Duration::from_secs(20)).unwrap();
        assert_eq!(connect(), None);
        drop(listener);
        assert_eq!(connect().as_deref(), Some("REFUSED"));
    }
}
