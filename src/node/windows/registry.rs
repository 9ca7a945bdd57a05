//! Registry values below HKEY_LOCAL_MACHINE, in the 64-bit view.

use anyhow::{Context, Result, bail};
use windows_registry::{Key, LOCAL_MACHINE, Type, Value};
use windows_sys::Win32::System::Registry::{KEY_WOW64_64KEY, RegDeleteKeyExW};

use super::wide::wide;
use crate::item::RegValue;
use crate::node::win32::{self, refused};

/// A value; none if it, or its key, does not exist. An empty name is the key's default value.
///
/// # Errors
/// When Windows refuses, and for a value of a type that could not be restored.
pub fn get(key: &str, name: &str) -> Result<Option<RegValue>> {
    let what = || format!("read HKLM\\{key}\\{name}");
    let Some(opened) = open(key)? else { return Ok(None) };
    match opened.get_value(name) {
        Ok(value) => decode(value).with_context(what).map(Some),
        Err(error) if is_absent(error.code().0) => Ok(None),
        Err(error) => Err(failed(error.code().0, what())),
    }
}

/// Writes a value, with the keys it needs, or removes it. A key without values and subkeys is removed with its last
/// value, and so are empty keys above it; in `SYSTEM` only the key itself, since those above it are Windows's own.
///
/// # Errors
/// When Windows refuses.
pub fn put(key: &str, name: &str, value: Option<&RegValue>) -> Result<()> {
    match value {
        Some(value) => write(key, name, value),
        None => remove(key, name),
    }
}

/// Whether a key exists.
///
/// # Errors
/// When Windows refuses.
pub fn exists(key: &str) -> Result<bool> {
    Ok(open(key)?.is_some())
}

/// The names of a key's subkeys; none if the key is not there.
///
/// # Errors
/// When Windows refuses.
pub fn subkeys(key: &str) -> Result<Vec<String>> {
    match open(key)? {
        Some(opened) => {
            opened.keys().map(Iterator::collect).map_err(|error| failed(error.code().0, format!("list HKLM\\{key}")))
        }
        None => Ok(Vec::new()),
    }
}

/// A text value, of either kind; none if there is none.
///
/// # Errors
/// Those of [`get`].
pub fn text(key: &str, name: &str) -> Result<Option<String>> {
    Ok(match get(key, name)? {
        Some(RegValue::String(text) | RegValue::ExpandString(text)) => Some(text),
        _ => None,
    })
}

/// A number of 32 bits; none if there is none.
///
/// # Errors
/// Those of [`get`].
pub fn number(key: &str, name: &str) -> Result<Option<u32>> {
    Ok(match get(key, name)? {
        Some(RegValue::Dword(number)) => Some(number),
        _ => None,
    })
}

/// Opens a key to read; none if it is not there.
///
/// # Errors
/// When Windows refuses.
pub fn open(key: &str) -> Result<Option<Key>> {
    match LOCAL_MACHINE.options().read().wow64_64().open(key) {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if is_absent(error.code().0) => Ok(None),
        Err(error) => Err(failed(error.code().0, format!("open HKLM\\{key}"))),
    }
}

/// An error of the registry, as a fault.
fn failed(hresult: i32, what: String) -> anyhow::Error {
    match code(hresult) {
        win32::ACCESS_DENIED => win32::denied(what).into(),
        code => refused(code, what).into(),
    }
}

fn is_absent(hresult: i32) -> bool {
    matches!(code(hresult), win32::FILE_NOT_FOUND | win32::PATH_NOT_FOUND)
}

/// `windows-registry` wraps the registry's Win32 codes in HRESULTs.
const fn code(hresult: i32) -> u32 {
    let code = hresult.cast_unsigned();
    if code & 0xFFFF_0000 == 0x8007_0000 { code & 0xFFFF } else { code }
}

fn write(key: &str, name: &str, value: &RegValue) -> Result<()> {
    let what = || format!("write HKLM\\{key}\\{name}");
    let opened = LOCAL_MACHINE
        .options()
        .read()
        .write()
        .create()
        .wow64_64()
        .open(key)
        .map_err(|error| failed(error.code().0, format!("create HKLM\\{key}")))?;
    let (kind, bytes) = encode(value);
    // An empty value still needs a valid pointer: error 998 otherwise.
    let bytes = if bytes.is_empty() { &[0; 8][..0] } else { &bytes };
    opened.set_bytes(name, kind, bytes).map_err(|error| failed(error.code().0, what()))
}

fn remove(key: &str, name: &str) -> Result<()> {
    match LOCAL_MACHINE.options().read().write().wow64_64().open(key) {
        Ok(opened) => match opened.remove_value(name) {
            Err(error) if !is_absent(error.code().0) => {
                return Err(failed(error.code().0, format!("remove HKLM\\{key}\\{name}")));
            }
            _ => {}
        },
        // Keys are created one by one, and a power cut may come between two: those above may exist.
        Err(error) if is_absent(error.code().0) => {}
        Err(error) => return Err(failed(error.code().0, format!("open HKLM\\{key}"))),
    }
    remove_empty(key)
}

/// Windows' own, and kept even if empty: our event source is below it.
const LOG_OF_APPLICATIONS: &str = r"SYSTEM\CurrentControlSet\Services\EventLog\Application";

/// Removes an empty key, and empty keys above it. The mark of this boot below a key of ours does not count. Keys
/// directly below the hive's own keys (`SOFTWARE`, `SYSTEM`) may be removed; those themselves never. Above a key of
/// `SYSTEM` all are Windows's own, also the empty ones: `Services\EventLog\Application`.
fn remove_empty(key: &str) -> Result<()> {
    let mut key = key;
    while key.contains('\\') && !key.eq_ignore_ascii_case(LOG_OF_APPLICATIONS) {
        if let Some(opened) = open(key)? {
            let what = || format!("look into HKLM\\{key}");
            let has_values = opened.values().map_err(|error| failed(error.code().0, what()))?.next().is_some();
            let below: Vec<String> = opened.keys().map_err(|error| failed(error.code().0, what()))?.collect();
            drop(opened);
            let only_mark = key.eq_ignore_ascii_case(crate::calico::registry::KEY)
                && below.iter().all(|name| name.eq_ignore_ascii_case(crate::calico::registry::BOOT_KEY));
            if has_values || !(below.is_empty() || only_mark) {
                return Ok(());
            }
            for name in below {
                delete_key(&format!("{key}\\{name}"))?;
            }
            delete_key(key)?;
        }
        if key.to_ascii_uppercase().starts_with(r"SYSTEM\") {
            return Ok(());
        }
        key = key.rsplit_once('\\').map_or("", |(parent, _)| parent);
    }
    Ok(())
}

/// Deletes a key that has no subkeys.
fn delete_key(key: &str) -> Result<()> {
    let name = wide(key);
    // SAFETY: the name is a zero-terminated string that lives through the call, and the handle is
    // the predefined one of the hive.
    let code = unsafe { RegDeleteKeyExW(LOCAL_MACHINE.as_raw(), name.as_ptr(), KEY_WOW64_64KEY, 0) };
    match code {
        0 | win32::FILE_NOT_FOUND => Ok(()),
        // Also returned if another process just created a subkey: then the key is in use.
        win32::ACCESS_DENIED if !subkeys(key)?.is_empty() => Ok(()),
        win32::ACCESS_DENIED => Err(win32::denied(format!("remove HKLM\\{key}")).into()),
        code => Err(refused(code, format!("remove HKLM\\{key}")).into()),
    }
}

/// A value as it can be restored.
///
/// # Errors
/// For a type that no program of today writes, and for bytes that are not of their type.
pub fn decode(value: Value) -> Result<RegValue> {
    Ok(match value.ty() {
        Type::String => RegValue::String(value.try_into()?),
        Type::ExpandString => RegValue::ExpandString(value.try_into()?),
        // Some programs leave out the last zero.
        Type::MultiString => RegValue::MultiString(
            value
                .as_wide()
                .split(|unit| *unit == 0)
                .take_while(|text| !text.is_empty())
                .map(String::from_utf16)
                .collect::<Result<_, _>>()?,
        ),
        Type::U32 => RegValue::Dword(value.try_into()?),
        Type::U64 => RegValue::Qword(value.try_into()?),
        Type::Bytes => RegValue::Binary(value.to_vec()),
        Type::Other(other) => bail!("its type {other} is none that a program of today writes"),
    })
}

/// A value's type and bytes.
pub fn encode(value: &RegValue) -> (Type, Vec<u8>) {
    let bytes = |text: &str| wide(text).iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>();
    match value {
        RegValue::String(text) => (Type::String, bytes(text)),
        RegValue::ExpandString(text) => (Type::ExpandString, bytes(text)),
        RegValue::MultiString(texts) => {
            let mut all: Vec<u8> = texts.iter().flat_map(|text| bytes(text)).collect();
            all.extend([0, 0]);
            (Type::MultiString, all)
        }
        RegValue::Dword(number) => (Type::U32, number.to_le_bytes().into()),
        RegValue::Qword(number) => (Type::U64, number.to_le_bytes().into()),
        RegValue::Binary(bytes) => (Type::Bytes, bytes.clone()),
    }
}
