//! The items of a sandbox node: each is read from, and changed in, its disk and model as Windows would.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, bail};

use super::disk::Disk;
use super::faults::Action;
use super::model::{self, Model, Name, Route};
use super::{SandboxNode, hns, services};
use crate::item::{Id, Service, State};
use crate::node::hns::Pods;
use crate::node::win32::{self, refused};
use crate::node::{Put, withdrawn};
use crate::values::WinPath;

/// How long a deletion waits for those who have the service open.
const DELETE_LIMIT: Duration = Duration::from_secs(10);

impl SandboxNode {
    pub(super) fn read(&self, id: &Id, model: &Model) -> Result<Option<State>> {
        let disk = Disk { root: &self.root, model };
        Ok(match id {
            Id::Dir(path) => disk.get_dir(path)?,
            Id::Tree(path) => disk.get_tree(path)?,
            Id::File(path) => disk.get_file(path)?,
            Id::CniConf(path) => match disk.get_file(path)? {
                None => disk.get_file(&withdrawn(path))?,
                there => there,
            },
            Id::RegValue { key, name } => model
                .registry
                .get(&Name::new(key.as_str()))
                .and_then(|values| values.get(&Name::new(name.as_str())))
                .map(|value| State::RegValue(value.clone())),
            Id::Firewall(name) => model.firewall_rule(name).map(|(_, rule)| State::Firewall(rule.clone())),
            Id::Service(name) => {
                services::definition(model, name)?.map(|definition| State::Service(Box::new(definition.clone())))
            }
            Id::DependsOn(name) => {
                services::definition(model, name)?.map(|definition| State::DependsOn(definition.depends_on.clone()))
            }
            Id::Network(name) => model.networks.get(&Name::new(name.as_str())).map(model::NodeNetwork::state),
            Id::Route(prefix) => model.routes.get(prefix).map(Route::state),
            Id::Adapter(name) => {
                let key = Name::new(name.as_str());
                let adapter = model.adapters.iter().find(|adapter| Name::new(adapter.name.as_str()) == key);
                adapter.map(|adapter| State::Adapter(adapter.ip_config()))
            }
            Id::Running(name) => services::is_running(model, name).then_some(State::Running),
            Id::Cordon(_) | Id::Achieved(_) | Id::CalicoIsUp(_) => {
                bail!("{id} is in the cluster, and not on this machine")
            }
        })
    }

    pub(super) fn change(&mut self, id: &Id, state: Option<&State>, action: Option<Action>) -> Result<Put> {
        let model = self.model()?;
        let disk = Disk { root: &self.root, model: &model };
        match (id, state) {
            (Id::Dir(path), None) => {
                let acl = disk.put_dir(path, None)?;
                self.note_acl(path, acl)
            }
            (Id::Dir(path), Some(State::Dir { access })) => {
                let acl = disk.put_dir(path, Some(access))?;
                self.note_acl(path, acl)
            }
            (Id::Tree(path), None) => disk.put_tree(path, None),
            (Id::Tree(path), Some(State::Tree(tree))) => disk.put_tree(path, Some(tree)),
            (Id::File(path) | Id::CniConf(path), None) => {
                let left = disk.put_file(path, None)?;
                if let Some(left) = &left {
                    let waits = format!("files wait to be moved or deleted: {left}");
                    self.edit(|model| {
                        model.pending_reboot.push(waits);
                        Ok(())
                    })?;
                }
                return Ok(Put::leaving(left));
            }
            (Id::File(path) | Id::CniConf(path), Some(State::File { sha256, access })) => {
                disk.put_file(path, Some((sha256, access))).map(drop)
            }
            (Id::RegValue { key, name }, Some(State::RegValue(value))) => self.edit(|model| {
                let values = model.registry.entry(Name::new(key.as_str())).or_default();
                values.insert(Name::new(name.as_str()), value.clone());
                Ok(())
            }),
            (Id::RegValue { key, name }, None) => self.edit(|model| {
                let key = Name::new(key.as_str());
                if let Some(values) = model.registry.get_mut(&key) {
                    values.remove(&Name::new(name.as_str()));
                    if values.is_empty() {
                        model.registry.remove(&key);
                    }
                }
                Ok(())
            }),
            (Id::Firewall(name), rule) => {
                let rule = match rule {
                    None => None,
                    Some(State::Firewall(rule)) => Some(rule.clone()),
                    Some(other) => bail!("{id} cannot be put as {other:?}"),
                };
                self.edit(|model| {
                    while let Some(old) = model.firewall_rule(name).map(|(old, _)| old.clone()) {
                        model.firewall.remove(&old);
                    }
                    model.firewall.extend(rule.map(|rule| (Name::new(rule.display_name.as_str()), rule)));
                    Ok(())
                })
            }
            (Id::Service(name), Some(State::Service(service))) => {
                self.edit(|model| services::put_definition(model, name, Some(service))).map(drop)
            }
            (Id::Service(name), None) => {
                let name_held = self.edit(|model| services::put_definition(model, name, None))?;
                if name_held {
                    self.elapse(DELETE_LIMIT)?;
                }
                return Ok(Put { name_held, ..Put::default() });
            }
            (Id::DependsOn(name), Some(State::DependsOn(needed))) => self.edit(|model| {
                let Some(service) = model.services.get_mut(&Name::new(name.as_str())) else {
                    return Err(refused(win32::SERVICE_DOES_NOT_EXIST, format!("change service {name}")).into());
                };
                service.definition.depends_on.clone_from(needed);
                Ok(())
            }),
            (Id::DependsOn(name), None) => bail!("what service {name} depends on goes with the service"),
            (Id::Network(name), Some(wanted @ State::Network(network))) => {
                let there = model.networks.get(&Name::new(name.as_str())).map(model::NodeNetwork::state);
                if there.is_some_and(|there| there.satisfies(wanted)) {
                    return Ok(Put::default());
                }
                self.ask_hns("GET /networks/")?;
                self.edit(|model| hns::create(model, name, network))?;
                self.creation_takes()
            }
            (Id::Network(name), None) => {
                self.ask_hns("GET /networks/")?;
                let address_away = self.delete_network(name, Pods::Live)?;
                return Ok(Put { address_away, ..Put::default() });
            }
            (Id::Route(prefix), Some(State::Route { interface, next_hop, metric })) => self.edit(|model| {
                if !model.adapters.iter().any(|a| Name::new(a.name.as_str()) == Name::new(interface.as_str())) {
                    return Err(refused(win32::NOT_FOUND, format!("add route {prefix} on {interface}")).into());
                }
                let route = Route { interface: interface.clone(), next_hop: *next_hop, metric: *metric };
                model.routes.insert(*prefix, route);
                Ok(())
            }),
            (Id::Route(prefix), None) => self.edit(|model| {
                model.routes.remove(prefix);
                Ok(())
            }),
            (Id::Adapter(name), Some(State::Adapter(config))) => self.edit(|model| {
                let key = Name::new(name.as_str());
                let adapter = model.adapters.iter_mut().find(|adapter| Name::new(adapter.name.as_str()) == key);
                let Some(adapter) = adapter else {
                    return Err(refused(win32::NOT_FOUND, format!("configure adapter {name}")).into());
                };
                adapter.configure(config);
                Ok(())
            }),
            (Id::Adapter(name), None) => bail!("adapter {name} cannot be removed: it is hardware"),
            (Id::Running(name), Some(State::Running)) => self.start(name, action),
            (Id::Running(name), None) => self.stop(name, action),
            (Id::Cordon(_) | Id::Achieved(_) | Id::CalicoIsUp(_), _) => {
                bail!("{id} is in the cluster, and not on this machine")
            }
            (id, Some(other)) => bail!("{id} cannot be put as {other:?}"),
        }?;
        Ok(Put::default())
    }

    /// Deletes a network, and waits for the host's address as the node on Windows does. Returns the address if no
    /// adapter has it by then.
    pub(super) fn delete_network(&mut self, name: &str, pods: Pods) -> Result<Option<Ipv4Addr>> {
        const ADDRESS_LIMIT: u32 = 120;
        let address = self.look()?.networks.get(&Name::new(name)).and_then(|network| network.management_ip);
        let seconds = self.edit(|model| hns::delete(model, name, pods))?;
        self.elapse(Duration::from_secs(seconds.min(ADDRESS_LIMIT).into()))?;
        Ok(address.filter(|_| seconds > ADDRESS_LIMIT))
    }

    fn note_acl(&mut self, path: &WinPath, acl: Option<String>) -> Result<()> {
        self.edit(|model| {
            match acl {
                Some(acl) => model.acls.insert(path.clone(), acl),
                None => model.acls.remove(path),
            };
            Ok(())
        })
    }

    /// Makes the first half of a change that Windows makes in several steps. Returns false if the change has only one
    /// step.
    pub(super) fn change_half(&mut self, id: &Id, state: Option<&State>) -> Result<bool> {
        let model = self.model()?;
        let disk = Disk { root: &self.root, model: &model };
        match (id, state) {
            // By two renames.
            (Id::Tree(path), Some(State::Tree(_))) if disk.get_tree(path)?.is_some() => disk.put_tree(path, None)?,
            // Written beside, then renamed.
            (Id::File(path) | Id::CniConf(path), Some(State::File { .. })) => disk.half_written(path, b"half")?,
            // Created; settings that the registration does not include are set by further calls.
            (Id::Service(name), Some(State::Service(service))) => {
                let bare = Service { description: String::new(), restart_after: Vec::new(), ..(**service).clone() };
                let _new = self.edit(|model| services::put_definition(model, name, Some(&bare)))?;
            }
            // The old rule is removed before the new one is added.
            (Id::Firewall(_), Some(_)) if self.read(id, &model)?.is_some() => drop(self.change(id, None, None)?),
            // It is deleted at once, and the adapter's addresses return later.
            (Id::Network(name), None) => {
                let _seconds = self.edit(|model| hns::delete(model, name, Pods::Live))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Removes CalicoNode's withdrawn copy of a CNI configuration that is removed or written again: before a removal,
    /// so that the copy does not return, else afterwards.
    pub(super) fn put_withdrawn(&self, id: &Id, now: bool) -> Result<()> {
        if let (Id::CniConf(path), true) = (id, now) {
            Disk { root: &self.root, model: &self.model()? }.put_file(&withdrawn(path), None)?;
        }
        Ok(())
    }
}
