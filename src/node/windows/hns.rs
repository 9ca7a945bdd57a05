//! The Host Networking Service, through `HNSCall` of `vmcompute.dll`. Its documents and error numbers are in
//! [`crate::node::hns`].

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use windows_sys::Win32::Foundation::FARPROC;
use windows_sys::Win32::System::Com::CoTaskMemFree;

use super::dll;
use super::iphelper::{self, Interface};
use super::mutex::{self, NetworkLock};
use super::wide::wide;
use crate::facts::HnsVersion;
use crate::fault::{Exit, Fault};
use crate::item::{Network, State};
use crate::node::NetworkDetails;
use crate::node::hns::{self, Endpoint, KnownNetwork, Pods, Reaction, Refusal, With};
use crate::node::limits::NETWORK_DELETED;
use crate::node::win32::{self, refused};

mod hcn;

/// How long a call of HNS may take. Calls cannot be cancelled, and some were seen never to return.
const CALL_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
const CHANGE_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 120 });
const DELETE_LIMIT: Duration = if cfg!(test) { Duration::from_secs(4) } else { NETWORK_DELETED };
/// How long creating a network is retried because its adapter has not returned from the last vSwitch, or HNS is busy.
const CREATE_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });
/// How long a deleted network may still be listed.
const GONE_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });
/// How long the host's address may take to return from a vSwitch to an adapter: rke2 waits 30 s, which slow DHCP
/// exceeds.
const ADDRESS_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 120 });

/// When this process deleted a network whose adapter was not seen to return: a missing adapter may be returning.
static LAST_DELETED: Mutex<Option<Instant>> = Mutex::new(None);

/// None if HNS is not installed.
///
/// # Errors
/// When it returns an error, and `HnsStuck` if it does not answer: neither means a machine without HNS.
pub fn version() -> Result<Option<HnsVersion>> {
    match call("GET", "/globals/version", String::new(), CALL_LIMIT) {
        Ok(Ok(output)) => hns::version(&output).map(Some).context("read the version that HNS tells"),
        Ok(Err(refusal)) => Err(refusal.fault("ask HNS for its version".to_owned()).into()),
        Err(error) if Fault::id_of(&error) == "HnsAvailable" => Ok(None),
        Err(error) => Err(error),
    }
}

/// A network by its name, without regard to case.
///
/// # Errors
/// When HNS does not answer, or the network is of a kind that this program does not know.
pub fn get(name: &str) -> Result<Option<Network>> {
    let Some(found) = find(name)? else {
        return Ok(None);
    };
    match found.network {
        Some(network) => Ok(Some(network)),
        None => bail!("read HNS network {}: it is of the kind {}, which is not known here", found.name, found.kind),
    }
}

/// Every network of a kind that this program knows. Without HNS there are none.
pub fn list() -> Result<Vec<(String, Network)>> {
    Ok(known()?.into_iter().filter_map(|found| Some((found.name, found.network?))).collect())
}

/// What HNS shows of a network besides its definition.
///
/// # Errors
/// When HNS does not answer.
pub fn details(name: &str) -> Result<Option<NetworkDetails>> {
    let Some(network) = find(name)? else { return Ok(None) };
    let own = endpoints()?.into_iter().filter(|endpoint| endpoint.network_id.eq_ignore_ascii_case(&network.id));
    Ok(Some(NetworkDetails {
        endpoints: own.map(|endpoint| endpoint.name).collect(),
        unseen_by_v2: hcn::networks(CALL_LIMIT)?.is_some_and(|shown| !shown.contains(&network.id.to_lowercase())),
        dr_mac: network.dr_mac,
    }))
}

/// Every endpoint. Felix's and kube-proxy's source address is the one named `Calico_ep`.
pub fn endpoints() -> Result<Vec<Endpoint>> {
    Ok(hns::endpoints(&look("/endpoints/")?))
}

/// What HNS answers to a question, as it is.
///
/// # Errors
/// `HnsAvailable`, `HnsStuck`. The inner error is HNS's own.
pub fn ask_for(path: &str) -> Result<Result<Value, Refusal>> {
    call("GET", path, String::new(), CALL_LIMIT)
}

/// Creates an endpoint on a network. Returns the error of HNS; none if there is one now.
///
/// # Errors
/// `HnsAvailable`, `HnsStuck`, and when there is no such network.
pub fn make_endpoint(network: &str, name: &str, ip: Ipv4Addr) -> Result<Option<u32>> {
    let network = find(network)?.with_context(|| format!("find HNS network {network}"))?;
    let body = serde_json::json!({ "Name": name, "VirtualNetwork": network.id, "IPAddress": ip.to_string() });
    let made = call("POST", "/endpoints/", body.to_string(), CHANGE_LIMIT)?;
    Ok(made.err().map(|refusal| refusal.code.unwrap_or(win32::UNSPECIFIED)))
}

/// Creates a network, unless the existing one satisfies. Calico's own programs change no networks meanwhile.
///
/// # Errors
/// `HnsAvailable`, `HnsStuck`, `HnsStopped`, `HnsAdapterNotFound`, `HnsNetworkExists` when one of
/// that name is another.
pub fn put(name: &str, network: &Network) -> Result<()> {
    let _held = NetworkLock::hold(mutex::LIMIT)?;
    create(name, network)
}

/// Deletes a network with everything that refers to it. Calico's own programs change no networks meanwhile. Returns the
/// host's address if no adapter has it back in time.
///
/// # Errors
/// `HnsStuck`, `HnsStopped`, `ForeignNetwork`, `HnsNetworkInUse` when pods are attached.
pub fn remove(name: &str) -> Result<Option<Ipv4Addr>> {
    if find(name)?.is_none() {
        return Ok(None);
    }
    let _held = NetworkLock::hold(mutex::LIMIT)?;
    find(name)?.map_or(Ok(None), |network| delete(&network, Pods::Live))
}

/// Deletes the networks from before the boot that `stale` selects, with their endpoints. `before` gets the endpoints of
/// running pods. Returns the networks' names.
///
/// # Errors
/// Those of [`put`], except for pods.
pub fn remove_stale(
    stale: &dyn Fn(&str, &Network) -> bool,
    before: &mut dyn FnMut(Vec<Endpoint>) -> Result<()>,
) -> Result<Vec<String>> {
    let _held = NetworkLock::hold(mutex::LIMIT)?;
    let is_stale = |found: &KnownNetwork| found.network.as_ref().is_some_and(|network| stale(&found.name, network));
    let mut found: Vec<KnownNetwork> = known()?.into_iter().filter(is_stale).collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    // `External` last: it keeps the vSwitch.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let on = |endpoint: &Endpoint| found.iter().any(|network| network.id.eq_ignore_ascii_case(&endpoint.network_id));
    let running = containers()?;
    before(endpoints()?.into_iter().filter(|endpoint| on(endpoint) && endpoint.is_used(&running)).collect())?;
    for network in &found {
        // CalicoNode waits for an address next.
        let _address_away = delete(network, Pods::Gone)?;
    }
    Ok(found.into_iter().map(|network| network.name).collect())
}

/// Deletes one endpoint.
///
/// # Errors
/// `HnsStuck`, and HNS's own error.
pub fn delete_endpoint(id: &str) -> Result<()> {
    match call("DELETE", &format!("/endpoints/{id}"), String::new(), CHANGE_LIMIT)? {
        Err(refusal) if refusal.on_delete() != Reaction::Gone => {
            Err(refusal.fault(format!("delete HNS endpoint {id}")).into())
        }
        _ => Ok(()),
    }
}

/// Replaces the ACLs of an endpoint by ACLs that allow everything.
///
/// # Errors
/// Those of [`put`].
pub fn let_all_through(id: &str) -> Result<()> {
    match call("POST", &format!("/endpoints/{id}"), hns::acls_body(id, &hns::all_through()), CHANGE_LIMIT)? {
        Err(refusal) if refusal.on_delete() != Reaction::Gone => {
            Err(refusal.fault(format!("change the ACLs of HNS endpoint {id}")).into())
        }
        _ => Ok(()),
    }
}

type EnumerateComputeSystems = unsafe extern "system" fn(*const u16, *mut *mut u16, *mut *mut u16) -> i32;

/// The running containers, from the Host Compute Service, which is in the same library as HNS.
///
/// # Errors
/// When it does not answer, or refuses: without it, whether an endpoint is still used is unknown.
pub fn containers() -> Result<BTreeSet<String>> {
    let found = match dll::function("vmcompute.dll", c"HcsEnumerateComputeSystems") {
        Ok(found) => found,
        Err(win32::MODULE_NOT_FOUND) => return Ok(BTreeSet::new()),
        Err(code) => return Err(refused(code, "find HcsEnumerateComputeSystems in vmcompute.dll").into()),
    };
    // SAFETY: it has this form (hcsshim, internal/vmcompute); `Option` of a function has the same form as
    // FARPROC.
    let entry = unsafe { std::mem::transmute::<FARPROC, Option<EnumerateComputeSystems>>(found) };
    let entry = entry.ok_or_else(|| unavailable(win32::PROCEDURE_NOT_FOUND))?;
    let (answer, answered) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("HCS".into())
        .spawn(move || drop(answer.send(enumerate(entry))))
        .context("start a thread for a call of HCS")?;
    let Ok((hresult, systems)) = answered.recv_timeout(CALL_LIMIT) else {
        return Err(stuck(format!("HCS did not list the containers in {} s", CALL_LIMIT.as_secs())).into());
    };
    if hresult < 0 {
        return Err(refused(hresult.cast_unsigned(), "list the containers").into());
    }
    hns::compute_systems(&systems).context("read the list of containers")
}

fn enumerate(entry: EnumerateComputeSystems) -> (i32, String) {
    let query = wide("{}");
    let (mut systems, mut result): (*mut u16, *mut u16) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the query is UTF-16 with a zero at its end and outlives the call; HCS writes pointers to texts
    // of its own, or leaves them.
    let hresult = unsafe { entry(query.as_ptr(), &raw mut systems, &raw mut result) };
    let (systems, _result) = (taken(systems), taken(result));
    (hresult, systems)
}

fn create(name: &str, wanted: &Network) -> Result<()> {
    let on = wanted.adapter.as_ref().map_or_else(String::new, |adapter| format!(" on adapter `{adapter}`"));
    let what = format!("create HNS network {name}{on}");
    let body = hns::create_body(name, wanted).to_string();
    let satisfies = |there: &Network| State::Network(there.clone()).satisfies(&State::Network(wanted.clone()));
    let exists = || Err(refused(win32::HNS_NETWORK_EXISTS, what.clone()).into());
    let mut backoff = Backoff::new(CREATE_LIMIT);
    loop {
        match find(name)?.map(|found| found.network) {
            Some(Some(there)) if satisfies(&there) => return Ok(()),
            Some(_) => return exists(),
            None => (),
        }
        let Err(refusal) = call("POST", "/networks/", body.clone(), CHANGE_LIMIT)? else {
            return Ok(());
        };
        let again = match refusal.on_create() {
            Reaction::TryAgain => may_return(wanted.adapter.as_deref())?,
            // The one that was just deleted may still count.
            Reaction::Exists => find(name)?.is_none(),
            _ => false,
        };
        if !(again && backoff.wait()) {
            return match refusal.on_create() {
                Reaction::Exists if find(name)?.is_some() => exists(),
                _ => Err(not_created(&refusal, what, &body)?.into()),
            };
        }
    }
}

/// Why HNS did not create a network, for people.
fn not_created(refusal: &Refusal, what: String, body: &str) -> Result<Fault> {
    Ok(match refusal.code {
        Some(win32::HNS_NETWORK_EXISTS) => refusal
            .fault(format!("{what}, though HNS lists none of that name"))
            .hint(format!("HNS's state is stale: {RESTART_HNS}")),
        Some(win32::HNS_ADAPTER_NOT_FOUND) => {
            let there: Vec<String> = iphelper::interfaces()?.into_iter().map(|interface| interface.name).collect();
            refusal.fault(format!("{what}; there are: {}", there.join(", ")))
        }
        Some(win32::INVALID_PARAMETER) => {
            let left = "a vSwitch may be left over from before a reboot: look at `Get-HnsNetwork` and \
                        `Get-NetAdapter`, restart the machine, then run again";
            refusal.fault(format!("{what} with {body}")).hint(left)
        }
        _ => refusal.fault(what),
    })
}

/// Whether an adapter that HNS does not find may be found later: it exists, or this process has just removed a vSwitch.
/// A host's own `vEthernet` can never carry a vSwitch.
fn may_return(adapter: Option<&str>) -> Result<bool> {
    let Some(name) = adapter.map(str::to_lowercase) else {
        return Ok(true);
    };
    let host = format!("vethernet ({name})");
    let there = iphelper::interfaces()?.iter().any(|interface| {
        let have = interface.name.to_lowercase();
        have == name || have == host
    });
    let deleted = LAST_DELETED.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(!name.starts_with("vethernet (") && (there || deleted.is_some_and(|then| then.elapsed() < CREATE_LIMIT)))
}

/// Deletes a network, and returns the host's address if no adapter has it back in time.
fn delete(network: &KnownNetwork, pods: Pods) -> Result<Option<Ipv4Addr>> {
    let name = network.name.as_str();
    if !hns::may_be_deleted(name) {
        return Err(hns::foreign(name).into());
    }
    let address = network.network.as_ref().and_then(|network| network.management_ip);
    let holder = address.and_then(|ip| iphelper::interfaces().ok()?.into_iter().find(|there| there.holds(ip)));
    let until = Instant::now() + DELETE_LIMIT;
    for (last_try, with) in [(false, With::Own), (false, With::Remote), (true, With::Remote)] {
        let lists = look("/policylists/")?;
        let paths = hns::removal(network, &endpoints()?, &lists, pods, with).map_err(|used| {
            let to = used.join(", ");
            refused(
                win32::HNS_HAS_REFERENCES,
                format!("delete HNS network {name}, to which endpoints are attached: {to}"),
            )
        })?;
        match delete_all(name, &paths, until)? {
            None => break,
            // Something was attached since they were listed.
            Some(refusal) if refusal.on_delete() == Reaction::References && !last_try => (),
            // An old build without a number may only have had nothing to delete.
            Some(refusal) if refusal.code.is_none() && find(name)?.is_none() => break,
            Some(refusal) => return Err(refusal.fault(format!("delete HNS network {name}")).into()),
        }
    }
    *LAST_DELETED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    await_gone(network)?;
    let (Some(ip), Some(holder)) = (address, holder) else {
        return Ok(None);
    };
    if !is_back(ip, &holder)? {
        return Ok(Some(ip));
    }
    *LAST_DELETED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    Ok(None)
}

/// Waits until HNS lists a deleted network no more.
fn await_gone(network: &KnownNetwork) -> Result<()> {
    let mut backoff = Backoff::new(GONE_LIMIT);
    while find(&network.name)?.is_some_and(|found| found.id.eq_ignore_ascii_case(&network.id)) {
        if !backoff.wait() {
            let (name, limit) = (&network.name, GONE_LIMIT.as_secs());
            return Err(stuck(format!("delete HNS network {name}: HNS still lists it after {limit} s")).into());
        }
    }
    Ok(())
}

/// Deletes things of HNS in order. Returns the error that stopped it, that of the network itself; what refers to the
/// network may already be deleted or detached.
fn delete_all(name: &str, paths: &[String], until: Instant) -> Result<Option<Refusal>> {
    for (at, path) in paths.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (limit, rest) = (DELETE_LIMIT.as_secs(), paths.len() - at);
            let what = format!("delete HNS network {name}: after {limit} s {rest} of {} things remain", paths.len());
            return Err(stuck(what).into());
        }
        if let Err(refusal) = call("DELETE", path, String::new(), left.min(CHANGE_LIMIT))? {
            match refusal.on_delete() {
                Reaction::Gone => (),
                Reaction::Denied | Reaction::Stopped => return Ok(Some(refusal)),
                // HNS deletes a network with the rest of its references.
                _ if at + 1 < paths.len() => (),
                _ => return Ok(Some(refusal)),
            }
        }
    }
    Ok(None)
}

/// Whether the host's address returned in time: with the last network of a vSwitch its adapter does, and until then the
/// machine has no address.
fn is_back(ip: Ipv4Addr, holder: &Interface) -> Result<bool> {
    let others = known()?.into_iter().filter_map(|other| other.network);
    let keeps = |other: Network| other.takes_adapter() && other.management_ip == Some(ip);
    // The host's side of the vSwitch has the address while it dies.
    let dies = hns::physical(&holder.name) != holder.name && !others.into_iter().any(keeps);
    let dying = dies.then_some(holder.index);
    let begun = Instant::now();
    while !has_returned(&iphelper::interfaces()?, ip, dying) {
        if begun.elapsed() > ADDRESS_LIMIT {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// Whether an adapter that is up has an address, other than the interface with the index `dying`.
fn has_returned(interfaces: &[Interface], ip: Ipv4Addr, dying: Option<u32>) -> bool {
    interfaces.iter().any(|there| there.up && Some(there.index) != dying && there.holds(ip))
}

fn find(name: &str) -> Result<Option<KnownNetwork>> {
    Ok(known()?.into_iter().find(|found| found.name.to_lowercase() == name.to_lowercase()))
}

fn known() -> Result<Vec<KnownNetwork>> {
    let mut known = hns::networks(&look("/networks/")?);
    let mut networks = known.iter_mut().filter_map(|found| found.network.as_mut()).peekable();
    if networks.peek().is_some() {
        let there = iphelper::interfaces()?;
        let holder = |ip| there.iter().find(|interface| interface.holds(ip)).map(|interface| interface.name.clone());
        networks.for_each(|network| network.complete(holder));
    }
    Ok(known)
}

/// Lists what exists; nothing without HNS.
fn look(path: &str) -> Result<Value> {
    if entry().map_err(unavailable)?.is_none() {
        return Ok(Value::Null);
    }
    match call("GET", path, String::new(), CALL_LIMIT)? {
        Ok(output) => Ok(output),
        Err(refusal) if refusal.on_delete() == Reaction::Gone => Ok(Value::Null),
        Err(refusal) => Err(refusal.fault(format!("list {} of HNS", path.trim_matches('/'))).into()),
    }
}

type HnsCall = unsafe extern "system" fn(*const u16, *const u16, *const u16, *mut *mut u16) -> i32;

/// The entry of HNS; none if its DLL is not installed.
fn entry() -> Result<Option<HnsCall>, u32> {
    match dll::function("vmcompute.dll", c"HNSCall") {
        // SAFETY: HNSCall has this form (hcsshim, internal/hns); `Option` of a function has the
        // same form as FARPROC.
        Ok(found) => Ok(unsafe { std::mem::transmute::<FARPROC, Option<HnsCall>>(found) }),
        Err(win32::MODULE_NOT_FOUND) => Ok(None),
        Err(code) => Err(code),
    }
}

fn unavailable(code: u32) -> anyhow::Error {
    let why = match code {
        win32::MODULE_NOT_FOUND => "vmcompute.dll is not there",
        win32::PROCEDURE_NOT_FOUND => "vmcompute.dll has no HNSCall",
        _ => "vmcompute.dll cannot be loaded",
    };
    let what = format!("the Host Networking Service is not installed: {why} (Windows error {code})");
    Fault::new(Exit::Failed, "HnsAvailable", what)
        .hint("enable the Windows feature Containers, restart, then run again")
        .into()
}

/// One call of HNS, on its own thread. One that does not return in time is abandoned: it ends with the process.
///
/// # Errors
/// `HnsAvailable`, `HnsStuck`. The inner result is HNS's own error.
fn call(method: &str, path: &str, body: String, limit: Duration) -> Result<Result<Value, Refusal>> {
    let entry = entry().map_err(unavailable)?.ok_or_else(|| unavailable(win32::MODULE_NOT_FOUND))?;
    let (method_wide, path_wide, body) = (wide(method), wide(path), wide(&body));
    let (answer, answered) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("HNS".into())
        .spawn(move || {
            // After the limit there is no receiver.
            drop(answer.send(ask(entry, &method_wide, &path_wide, &body)));
        })
        .context("start a thread for a call of HNS")?;
    match answered.recv_timeout(limit) {
        Ok((hresult, text)) => Ok(hns::answer(hresult, &text)),
        Err(RecvTimeoutError::Timeout) => {
            Err(stuck(format!("HNS did not answer {method} {path} in {} s", limit.as_secs())).into())
        }
        Err(RecvTimeoutError::Disconnected) => bail!("the thread that asked HNS for {method} {path} died"),
    }
}

/// What a restart of HNS does: projectcalico/calico#5164.
const RESTART_HNS: &str = "drain this node, restart the services hns and kube-proxy, then run the command again and \
                           re-create the remaining pods\nrestarting hns deletes the endpoints of all pods here, \
                           which then run without network\ncalicoctl-win explain HnsStuck has the commands";

fn stuck(what: String) -> Fault {
    Fault::new(Exit::Failed, "HnsStuck", what).hint(RESTART_HNS)
}

fn ask(entry: HnsCall, method: &[u16], path: &[u16], body: &[u16]) -> (i32, String) {
    let mut response: *mut u16 = std::ptr::null_mut();
    // SAFETY: the texts are UTF-16 with a zero at their ends and outlive the call; HNS writes a
    // pointer to a text of its own, or leaves it.
    let hresult = unsafe { entry(method.as_ptr(), path.as_ptr(), body.as_ptr(), &raw mut response) };
    (hresult, taken(response))
}

/// A text that HNS or HCS allocated, or none, which the caller must free.
fn taken(response: *mut u16) -> String {
    if response.is_null() {
        return String::new();
    }
    // SAFETY: a response that is there is a UTF-16 text with a zero at its end, also after a failure.
    let length = (0..).take_while(|at| unsafe { *response.add(*at) } != 0).count();
    // SAFETY: as many characters were just read.
    let text = String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(response, length) });
    // SAFETY: it was allocated for us, and is used no more.
    unsafe { CoTaskMemFree(response.cast()) };
    text
}

/// Waits that grow from 50 ms to 4 s, up to a limit that counts the calls between them too.
struct Backoff {
    until: Instant,
    next: Duration,
}

impl Backoff {
    fn new(limit: Duration) -> Self {
        Self { until: Instant::now() + limit, next: Duration::from_millis(50) }
    }

    /// Waits a while. Returns false at once if the limit is reached.
    fn wait(&mut self) -> bool {
        let time = self.next.min(self.until.saturating_duration_since(Instant::now()));
        if time.is_zero() {
            return false;
        }
        std::thread::sleep(time);
        self.next = (self.next * 2).min(Duration::from_secs(4));
        true
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
