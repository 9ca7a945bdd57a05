//! Values in a service's own registry key: `Parameters`, where NSSM keeps its settings; and two of the Service Control
//! Manager's own, which are only read.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use windows_registry::{Key, LOCAL_MACHINE, Value};
use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_KEY_DELETED};

use super::registry;
use crate::item::RegValue;
use crate::node::win32;

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

/// The description from the Service Control Manager's own key, which may be `@dll,-id`; empty without one.
pub fn description(service: &str) -> Result<String> {
    let what = || format!("read the description of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(String::new()) };
    Ok(match there(key.get_value("Description")).with_context(what)?.as_ref().map(reg_value) {
        Some(RegValue::String(text) | RegValue::ExpandString(text)) => text,
        _ => String::new(),
    })
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
