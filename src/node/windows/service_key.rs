//! Values in a service's own registry key: `Parameters`, where NSSM keeps its settings, and the Service Control
//! Manager's own. The latter are read if it accepts recovery actions or dependencies but does not return them, and
//! written if it did not store them: otherwise a put could never be verified.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use windows_registry::{Key, LOCAL_MACHINE, Type, Value};
use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_KEY_DELETED};

use super::registry;
use crate::item::{Recovery, RegValue};
use crate::node::{recovery, win32};

const RECOVERY: &str = "FailureActions";
const MESSAGE: &str = "RebootMessage";
const COMMAND: &str = "FailureCommand";
const DEPENDENCIES: &str = "DependOnService";

fn key(service: &str) -> String {
    format!(r"SYSTEM\CurrentControlSet\Services\{service}")
}

/// The values below `Parameters`, with `subkey\` before the name of a value in a subkey. A value of a type that NSSM
/// does not write is kept as its bytes.
pub fn parameters(service: &str) -> Result<BTreeMap<String, RegValue>> {
    let mut found = BTreeMap::new();
    let what = || about("read", service);
    if let Some(top) = explained(there(LOCAL_MACHINE.open(format!(r"{}\Parameters", key(service)))), what)? {
        explained(gather(&top, "", &mut found), what)?;
    }
    Ok(found)
}

/// Makes these the only values below `Parameters`; if there are none, removes the key.
pub fn put_parameters(service: &str, wanted: &BTreeMap<String, RegValue>) -> Result<()> {
    let what = || about("write", service);
    let service_key = LOCAL_MACHINE.options().read().write().open(key(service)).with_context(what)?;
    if wanted.is_empty() {
        return there(service_key.remove_tree("Parameters")).map(drop).with_context(|| about("remove", service));
    }
    let top = service_key.create("Parameters").with_context(what)?;
    let place = |name: &str| -> windows_registry::Result<(Key, String)> {
        let (below, name) = name.rsplit_once('\\').unwrap_or(("", name));
        let key = if below.is_empty() { service_key.create("Parameters") } else { top.create(below) };
        Ok((key?, name.to_owned()))
    };
    // First, since names have no case: a value that differs only in case must not remove the wanted one.
    for name in parameters(service)?.into_keys().filter(|name| !wanted.contains_key(name)) {
        let (key, name) = place(&name).with_context(what)?;
        there(key.remove_value(name)).with_context(what)?;
    }
    for (name, value) in wanted {
        let (key, name) = place(name).with_context(what)?;
        let (kind, bytes) = registry::encode(value);
        key.set_bytes(name, kind, &bytes).with_context(what)?;
    }
    Ok(())
}

/// Whether the Service Control Manager has marked a service as deleted: it is gone when nobody has it open any more.
pub fn is_deleted(service: &str) -> Result<bool> {
    let what = || format!("read whether service {service} is deleted");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(false) };
    let flag = explained(there(key.get_value("DeleteFlag")), what)?;
    Ok(flag.is_some_and(|flag| reg_value(&flag) == RegValue::Dword(1)))
}

/// The recovery actions, from the Service Control Manager's own key: it has each kind, also those of later Windows
/// versions.
pub fn recovery(service: &str) -> Result<Recovery> {
    let what = || format!("read the recovery actions of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(Recovery::default()) };
    let kept = explained(there(key.get_value(RECOVERY)), what)?;
    let text = |name: &str| -> Result<String> {
        Ok(match explained(there(key.get_value(name)), what)?.as_ref().map(reg_value) {
            Some(RegValue::String(text) | RegValue::ExpandString(text)) => text,
            _ => String::new(),
        })
    };
    let found = kept.map(|bytes| recovery::decode(&bytes)).unwrap_or_default();
    Ok(Recovery { reboot_message: text(MESSAGE)?, command: text(COMMAND)?, ..found })
}

/// The description from the Service Control Manager's own key, which may be `@dll,-id`; empty without one.
pub fn description(service: &str) -> Result<String> {
    let what = || format!("read the description of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(String::new()) };
    Ok(match there(key.get_value("Description")).with_context(what)?.as_ref().map(reg_value) {
        Some(RegValue::String(text) | RegValue::ExpandString(text)) => text,
        _ => String::new(),
    })
}

/// Writes recovery actions there.
pub fn write_recovery(service: &str, wanted: &Recovery) -> Result<()> {
    let what = || format!("keep the recovery actions of service {service}");
    let key = LOCAL_MACHINE.options().read().write().open(key(service)).with_context(what)?;
    for (name, text) in [(MESSAGE, &wanted.reboot_message), (COMMAND, &wanted.command)] {
        if text.is_empty() {
            there(key.remove_value(name)).with_context(what)?;
        } else {
            key.set_string(name, text).with_context(what)?;
        }
    }
    if wanted.actions.is_empty() {
        return there(key.remove_value(RECOVERY)).map(drop).with_context(what);
    }
    key.set_bytes(RECOVERY, Type::Bytes, &recovery::encode(wanted)).with_context(what)
}

/// A service's dependencies, from the Service Control Manager's own key.
pub fn dependencies(service: &str) -> Result<Vec<String>> {
    let what = || format!("read the dependencies of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(Vec::new()) };
    Ok(match there(key.get_value(DEPENDENCIES)).with_context(what)?.as_ref().map(reg_value) {
        Some(RegValue::MultiString(names)) => names,
        _ => Vec::new(),
    })
}

/// Writes them there.
pub fn write_dependencies(service: &str, names: &[String]) -> Result<()> {
    let what = || format!("keep the dependencies of service {service}");
    let key = LOCAL_MACHINE.options().read().write().open(key(service)).with_context(what)?;
    if names.is_empty() {
        return there(key.remove_value(DEPENDENCIES)).map(drop).with_context(what);
    }
    let (kind, bytes) = registry::encode(&RegValue::MultiString(names.to_vec()));
    key.set_bytes(DEPENDENCIES, kind, &bytes).with_context(what)
}

fn about(verb: &str, service: &str) -> String {
    format!("{verb} the parameters of service {service}")
}

fn gather(key: &Key, below: &str, found: &mut BTreeMap<String, RegValue>) -> windows_registry::Result<()> {
    for (name, value) in key.values()? {
        found.insert(format!("{below}{name}"), reg_value(&value));
    }
    for name in key.keys()? {
        gather(&key.open(&name)?, &format!(r"{below}{name}\"), found)?;
    }
    Ok(())
}

/// Adds what was tried; access denied is a fault of its own.
fn explained<T>(result: windows_registry::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    result.map_err(|error| match error.code().0.cast_unsigned() & 0xFFFF {
        win32::ACCESS_DENIED => win32::denied(what()).into(),
        _ => anyhow::Error::from(error).context(what()),
    })
}

/// None for what does not exist, or is being deleted.
fn there<T>(result: windows_registry::Result<T>) -> windows_registry::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        // The lower half of an HRESULT is the Windows error.
        Err(error)
            if [ERROR_FILE_NOT_FOUND, ERROR_KEY_DELETED].contains(&(error.code().0.cast_unsigned() & 0xFFFF)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A value of a type that NSSM does not write, or that is not well formed, is kept as its bytes.
fn reg_value(value: &Value) -> RegValue {
    registry::decode(value.clone()).unwrap_or_else(|_| RegValue::Binary(value.to_vec()))
}
