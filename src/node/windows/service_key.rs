//! What stands in a service's own registry key: `Parameters`, where NSSM keeps what it runs, and
//! what the Service Control Manager itself keeps there. The latter is read where it takes recovery
//! actions or dependencies but does not tell them, and written where it did not keep them: else
//! what was put could never be seen to be so.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use windows_registry::{Key, LOCAL_MACHINE, Type, Value};
use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_KEY_DELETED};

use crate::item::RegValue;
use crate::node::{recovery, win32};

const RECOVERY: &str = "FailureActions";
const DEPENDENCIES: &str = "DependOnService";

fn key(service: &str) -> String {
    format!(r"SYSTEM\CurrentControlSet\Services\{service}")
}

/// The values below `Parameters`, with `subkey\` before the name where there is one. A value of a
/// kind that NSSM does not write is kept as its bytes.
pub fn parameters(service: &str) -> Result<BTreeMap<String, RegValue>> {
    let mut found = BTreeMap::new();
    let what = || about("read", service);
    if let Some(top) = explained(there(LOCAL_MACHINE.open(format!(r"{}\Parameters", key(service)))), what)? {
        explained(gather(&top, "", &mut found), what)?;
    }
    Ok(found)
}

/// Makes the values below `Parameters` these and no others; with none, the key goes.
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
    // First, since names have no case: a value that differs in its case alone must not take the
    // wanted one along.
    for name in parameters(service)?.into_keys().filter(|name| !wanted.contains_key(name)) {
        let (key, name) = place(&name).with_context(what)?;
        there(key.remove_value(name)).with_context(what)?;
    }
    for (name, value) in wanted {
        let (key, name) = place(name).with_context(what)?;
        let (kind, bytes) = bytes(value);
        key.set_bytes(name, kind, &bytes).with_context(what)?;
    }
    Ok(())
}

/// The seconds before each restart, from where the Service Control Manager keeps them.
pub fn recovery(service: &str) -> Result<Vec<u32>> {
    let what = || format!("read the recovery actions of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(Vec::new()) };
    let kept = there(key.get_value(RECOVERY)).with_context(what)?;
    Ok(kept.map(|bytes| recovery::decode(&bytes)).unwrap_or_default())
}

/// The description as the Service Control Manager keeps it, which may be `@dll,-id`; empty without one.
pub fn description(service: &str) -> Result<String> {
    let what = || format!("read the description of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(String::new()) };
    Ok(match there(key.get_value("Description")).with_context(what)?.as_ref().map(reg_value) {
        Some(RegValue::String(text) | RegValue::ExpandString(text)) => text,
        _ => String::new(),
    })
}

/// Puts them there.
pub fn keep_recovery(service: &str, restart_after: &[u32]) -> Result<()> {
    let what = || format!("keep the recovery actions of service {service}");
    let key = LOCAL_MACHINE.options().read().write().open(key(service)).with_context(what)?;
    if restart_after.is_empty() {
        return there(key.remove_value(RECOVERY)).map(drop).with_context(what);
    }
    key.set_bytes(RECOVERY, Type::Bytes, &recovery::encode(restart_after)).with_context(what)
}

/// What a service depends on, from where the Service Control Manager keeps it.
pub fn dependencies(service: &str) -> Result<Vec<String>> {
    let what = || format!("read the dependencies of service {service}");
    let Some(key) = explained(there(LOCAL_MACHINE.open(key(service))), what)? else { return Ok(Vec::new()) };
    Ok(match there(key.get_value(DEPENDENCIES)).with_context(what)?.as_ref().map(reg_value) {
        Some(RegValue::MultiString(names)) => names,
        _ => Vec::new(),
    })
}

/// Puts them there.
pub fn keep_dependencies(service: &str, names: &[String]) -> Result<()> {
    let what = || format!("keep the dependencies of service {service}");
    let key = LOCAL_MACHINE.options().read().write().open(key(service)).with_context(what)?;
    if names.is_empty() {
        return there(key.remove_value(DEPENDENCIES)).map(drop).with_context(what);
    }
    let (kind, bytes) = bytes(&RegValue::MultiString(names.to_vec()));
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

/// With what was tried; what Windows does not let us read is a fault of its own.
fn explained<T>(result: windows_registry::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    result.map_err(|error| match error.code().0.cast_unsigned() & 0xFFFF {
        win32::ACCESS_DENIED => win32::denied(what()).into(),
        _ => anyhow::Error::from(error).context(what()),
    })
}

/// None for what is not there, or is about to go.
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

fn reg_value(value: &Value) -> RegValue {
    let text = || String::from_utf16_lossy(value.as_wide()).trim_end_matches('\0').to_owned();
    match (value.ty(), &**value) {
        (Type::String, _) => RegValue::String(text()),
        (Type::ExpandString, _) => RegValue::ExpandString(text()),
        (Type::MultiString, _) => {
            let text = text();
            RegValue::MultiString(text.split('\0').filter(|line| !line.is_empty()).map(str::to_owned).collect())
        }
        (Type::U32, &[a, b, c, d]) => RegValue::Dword(u32::from_le_bytes([a, b, c, d])),
        (Type::U64, &[a, b, c, d, e, f, g, h]) => RegValue::Qword(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        (_, bytes) => RegValue::Binary(bytes.to_vec()),
    }
}

fn bytes(value: &RegValue) -> (Type, Vec<u8>) {
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect() };
    match value {
        RegValue::String(text) => (Type::String, wide(text)),
        RegValue::ExpandString(text) => (Type::ExpandString, wide(text)),
        RegValue::MultiString(lines) => {
            let mut bytes: Vec<u8> = lines.iter().flat_map(|line| wide(line)).collect();
            bytes.extend([0, 0]);
            (Type::MultiString, bytes)
        }
        RegValue::Dword(number) => (Type::U32, number.to_le_bytes().to_vec()),
        RegValue::Qword(number) => (Type::U64, number.to_le_bytes().to_vec()),
        RegValue::Binary(bytes) => (Type::Bytes, bytes.clone()),
    }
}
