//! Version 2 of the Host Networking Service, `computenetwork.dll`. Nothing is changed through it: it is only asked which
//! networks it shows, since Calico and kube-proxy ask it beside version 1.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use windows_sys::Win32::Foundation::FARPROC;

use super::{stuck, taken};
use crate::node::hns;
use crate::node::win32::{self, refused};
use crate::node::windows::dll;
use crate::node::windows::wide::wide;

type EnumerateNetworks = unsafe extern "system" fn(*const u16, *mut *mut u16, *mut *mut u16) -> i32;

/// A query without a filter, as hcsshim's `hcn.ListNetworks` asks it.
const EVERY_ONE: &str = r#"{"SchemaVersion":{"Major":2,"Minor":0}}"#;

/// The ids of the networks that it shows, in lower case. None on a Windows without it (before Server 2019): there is no
/// second interface that could differ then.
///
/// # Errors
/// `HnsStuck` when it does not answer within the limit, and its own error.
pub fn networks(limit: Duration) -> Result<Option<BTreeSet<String>>> {
    let found = match dll::function("computenetwork.dll", c"HcnEnumerateNetworks") {
        Ok(found) => found,
        Err(win32::MODULE_NOT_FOUND) => return Ok(None),
        Err(code) => return Err(refused(code, "find HcnEnumerateNetworks in computenetwork.dll").into()),
    };
    // SAFETY: it has this form (hcsshim, hcn/hcn.go); `Option` of a function has the same form as FARPROC.
    let entry = unsafe { std::mem::transmute::<FARPROC, Option<EnumerateNetworks>>(found) };
    let Some(entry) = entry else { return Ok(None) };
    let (answer, answered) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("HCN".into())
        .spawn(move || drop(answer.send(enumerate(entry))))
        .context("start a thread for a call of HNS")?;
    let Ok((hresult, ids, record)) = answered.recv_timeout(limit) else {
        return Err(stuck(format!("version 2 of HNS did not list the networks in {} s", limit.as_secs())).into());
    };
    let _nothing =
        hns::answer(hresult, &record).map_err(|refusal| refusal.fault("list the networks by version 2 of HNS"))?;
    let ids: Vec<String> =
        serde_json::from_slice(ids.as_bytes()).context("read the networks that version 2 of HNS lists")?;
    Ok(Some(ids.into_iter().map(|id| id.to_lowercase()).collect()))
}

fn enumerate(entry: EnumerateNetworks) -> (i32, String, String) {
    let query = wide(EVERY_ONE);
    let (mut ids, mut record): (*mut u16, *mut u16) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the query is UTF-16 with a zero at its end and outlives the call; HNS writes pointers to texts of its own,
    // or leaves them.
    let hresult = unsafe { entry(query.as_ptr(), &raw mut ids, &raw mut record) };
    (hresult, taken(ids), taken(record))
}
