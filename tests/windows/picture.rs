//! A machine byte for byte: its files, its registry, and the state of HNS, the firewall and the IP helper.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::machine::Machine;

/// The state of the test DLLs in `C:\test`; everything else there is for tests and stand-ins.
const STATE: [&str; 6] = ["hns.networks", "hns.endpoints", "hns.policylists", "firewall", "adapters", "routes"];

/// The node's kubeconfig, by its name in a picture.
const KUBECONFIG: &str = "file CalicoWindows/calico-kube-config";

/// Registry keys that Wine itself changes: at every boot, and when a program first uses the screen or fonts.
const CHANGED_BY_WINE: [&str; 3] = [
    r"System\\CurrentControlSet\\Control\\Class\\{4D36E96E-E325-11CE-BFC1-08002BE10318}",
    r"System\\CurrentControlSet\\Control\\Class\\{4D36E968-E325-11CE-BFC1-08002BE10318}",
    r"System\\CurrentControlSet\\Hardware Profiles\\Current\\Software\\Fonts",
];

#[derive(Clone, PartialEq, Eq)]
pub struct Picture(BTreeMap<String, String>);

impl Picture {
    /// Reads the machine while it is off, since Wine saves its registry when it stops; then boots it.
    pub fn take(machine: &Machine) -> Self {
        machine.cut_power();
        let picture = Self::of_machine_that_is_off(machine);
        machine.power_on();
        picture
    }

    pub fn of_machine_that_is_off(machine: &Machine) -> Self {
        let mut seen = BTreeMap::new();
        for folder in fs::read_dir(machine.disk()).unwrap().map(|entry| entry.unwrap().path()) {
            // Windows' own folder and the profiles, with the temporary files, are not compared.
            if !["windows", "users", "test"].iter().any(|name| folder.ends_with(name)) {
                files(&machine.disk(), &folder, &mut seen);
            }
        }
        for name in STATE {
            let text = fs::read_to_string(machine.c("test").join(name)).unwrap_or_default();
            let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            lines.sort_unstable();
            seen.insert(format!("state {name}"), lines.join("\n"));
        }
        registry(&machine.saved_registry(), &mut seen);
        Self(seen)
    }

    /// What two nodes in the same state have in common if they got there at different times and in different ways:
    /// without logs and the services' own records, and without ids of processes, boots, runs and times.
    pub fn settled(self) -> Self {
        let passing = ["logs/", "agent/", "state/runs", "state/last-run.json", "state/guard.lock", "node.save"];
        let passing = passing.map(|name| format!("file ProgramData/calicoctl-win/{name}"));
        let logs = |name: &str| name.starts_with("file ") && name.contains("/logs/");
        // Even a run that did nothing leaves its own folders, with its log.
        let own = ["", "/lock", "/state", "/store", "/store/blobs", "/store/trees", "/logs", "/agent"];
        let own = own.map(|name| format!("file ProgramData/calicoctl-win{name}"));
        let passing = |name: &str| {
            own.iter().any(|folder| name == folder)
                || passing.iter().any(|start| name.starts_with(start))
                || logs(name)
                || name.ends_with(r#"Software\\Tigera\\Calico "BootId""#)
                || name.ends_with(r#"Software\\Tigera\\Calico "LastBootTime""#)
        };
        // Each run may request its own token.
        let token = self.0.get(KUBECONFIG).cloned().unwrap_or_else(|| "there is none".into());
        let same = |(name, value): (String, String)| {
            let (name, value) = (name.replace(&token, "kubeconfig"), value.replace(&token, "kubeconfig"));
            let value = match name.as_str() {
                "state hns.networks" | "state hns.endpoints" => {
                    let mut lines: Vec<String> =
                        value.lines().map(|line| without(line, &["ID", "VirtualNetwork", "DrMacAddress"])).collect();
                    lines.sort_unstable();
                    lines.join("\n")
                }
                name if is_receipt(name) => without(&value, &["run", "finished"]),
                _ => value,
            };
            (name, value)
        };
        Self(self.0.into_iter().filter(|(name, _)| !passing(name)).map(same).collect())
    }

    /// What differs, a line each.
    pub fn against(&self, before: &Self) -> Vec<String> {
        let gone = before.0.keys().filter(|name| !self.0.contains_key(*name)).map(|name| format!("- {name}"));
        let new = self.0.iter().filter(|(name, _)| !before.0.contains_key(*name));
        let new = new.map(|(name, value)| format!("+ {name}: {value}"));
        let changed = self.0.iter().filter(|(name, value)| before.0.get(*name).is_some_and(|old| old != *value));
        let changed = changed.map(|(name, value)| format!("~ {name}\n{value}\nwas\n{}", before.0[name]));
        gone.chain(new).chain(changed).collect()
    }

    /// Fails with what differs.
    #[track_caller]
    pub fn same_as(&self, before: &Self) {
        self.same_as_before(before, "now");
    }

    /// The same, and says after what.
    #[track_caller]
    pub fn same_as_before(&self, before: &Self, what: &str) {
        let differences = self.against(before);
        assert!(differences.is_empty(), "{what}: the machine is not as it was:\n{}", differences.join("\n"));
    }

    /// Without everything whose name starts like this.
    pub fn without(mut self, beginnings: &[&str]) -> Self {
        self.0.retain(|name, _| !beginnings.iter().any(|beginning| name.starts_with(beginning)));
        self
    }

    /// The names that contain a text.
    pub fn names_with(&self, text: &str) -> Vec<&str> {
        self.0.keys().map(String::as_str).filter(|name| name.contains(text)).collect()
    }
}

fn is_receipt(name: &str) -> bool {
    name.starts_with("file ProgramData/calicoctl-win/receipts/") && name.ends_with(".json")
}

/// A JSON object without these keys.
fn without(object: &str, keys: &[&str]) -> String {
    let mut object: Value = serde_json::from_str(object).unwrap();
    keys.iter().for_each(|key| drop(object.as_object_mut().unwrap().remove(*key)));
    object.to_string()
}

fn files(disk: &Path, path: &Path, seen: &mut BTreeMap<String, String>) {
    let name = format!("file {}", path.strip_prefix(disk).unwrap().display());
    if path.is_dir() {
        seen.insert(name, "a folder".into());
        for entry in fs::read_dir(path).unwrap() {
            files(disk, &entry.unwrap().path(), seen);
        }
    } else {
        let bytes = fs::read(path).unwrap_or_default();
        let said = if is_receipt(&name) {
            String::from_utf8_lossy(&bytes).into_owned()
        } else {
            calicoctl_win::values::Sha256::of(&bytes).to_string()
        };
        if name == KUBECONFIG {
            let text = String::from_utf8_lossy(&bytes);
            let all = text
                .lines()
                .filter(|line| !line.contains("token:") && !line.trim().starts_with("eyJ"))
                .collect::<Vec<_>>();
            seen.insert(format!("{name} without its token"), all.join("\n"));
        }
        seen.insert(name, said);
    }
}

/// `system.reg`: a line `[Key\\Below] TIME`, then lines `"Name"=value`, long ones continued after `\`.
fn registry(text: &str, seen: &mut BTreeMap<String, String>) {
    let joined = text.replace("\\\n  ", "");
    let mut key = "";
    for line in joined.lines() {
        if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            key = name;
            if !changes_by_itself(key) {
                seen.insert(format!("registry {key}"), "a key".into());
            }
        } else if let (false, Some((name, value))) = (changes_by_itself(key), line.split_once('='))
            && !line.starts_with('#')
        {
            // Wine records a service's shutdown time when any field of it changes, though it is the default.
            if name == "\"PreshutdownTimeout\"" {
                continue;
            }
            // Wine makes a plain string of a service's ImagePath when any field of it changes.
            let value = if name == "\"ImagePath\"" { value.trim_start_matches("str(2):") } else { value };
            seen.insert(format!("registry {key} {name}"), value.to_owned());
        }
    }
}

fn changes_by_itself(key: &str) -> bool {
    CHANGED_BY_WINE.iter().any(|start| key.starts_with(start))
}
