//! The Host Networking Service, through `HNSCall` of `vmcompute.dll`. What its documents and error
//! numbers mean is in [`crate::node::hns`].

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
use super::iphelper;
use super::mutex::{self, NetworkLock};
use super::wide::wide;
use crate::facts::HnsVersion;
use crate::fault::{Exit, Fault};
use crate::item::{Network, State};
use crate::node::NetworkDetails;
use crate::node::hns::{self, Endpoint, KnownNetwork, Pods, Reaction, Refusal};
use crate::node::win32::{self, refused};

/// How long HNS may think. Its calls cannot be broken off, and some were seen never to return.
const LOOK_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
const CHANGE_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 120 });
/// How long a network may be refused because its adapter is not back from the last vSwitch.
const CREATE_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });
/// How long a deleted network may still be listed.
const GONE_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });
/// How long the host's address may take from a vSwitch back to an adapter (as rke2 waits).
const ADDRESS_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// When this process deleted a network whose adapter was not seen to come back: one that is missing
/// now may be on its way.
static LAST_DELETED: Mutex<Option<Instant>> = Mutex::new(None);

/// None where HNS is not installed.
///
/// # Errors
/// When it refuses to tell, and `HnsStuck` when it does not answer: neither is a machine without HNS.
pub fn version() -> Result<Option<HnsVersion>> {
    match call("GET", "/globals/version", String::new(), LOOK_LIMIT) {
        Ok(Ok(output)) => hns::version(&output).map(Some).context("read the version that HNS tells"),
        Ok(Err(refusal)) => Err(refusal.fault("ask HNS for its version".to_owned()).into()),
        Err(error) if Fault::id_of(&error) == "HnsNotAvailable" => Ok(None),
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
    Ok(Some(NetworkDetails { endpoints: own.map(|endpoint| endpoint.name).collect(), dr_mac: network.dr_mac }))
}

/// Every endpoint. Felix's and kube-proxy's source address is the one named `Calico_ep`.
pub fn endpoints() -> Result<Vec<Endpoint>> {
    Ok(hns::endpoints(&look("/endpoints/")?))
}

/// Creates a network, unless the one that is there will do, or deletes it with what refers to it.
/// Meanwhile Calico's own programs change no networks.
///
/// # Errors
/// `HnsNotAvailable`, `HnsStuck`, `HnsStopped`, `HnsAdapterNotFound`, `HnsNetworkExists` when one of
/// that name is another, `HnsNetworkInUse` when pods are attached, `AdapterNotBack`.
pub fn put(name: &str, network: Option<&Network>) -> Result<()> {
    if network.is_none() && find(name)?.is_none() {
        return Ok(());
    }
    let _held = NetworkLock::hold(mutex::LIMIT)?;
    match network {
        Some(wanted) => create(name, wanted),
        None => delete(name, Pods::Live),
    }
}

/// Deletes the networks from before the boot that `stale` means, with the endpoints that are on them. `before`
/// is told of those of pods that run. Gives the networks' names.
///
/// # Errors
/// As of [`put`], but for pods.
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
    // `External` last: it holds the vSwitch.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let on = |endpoint: &Endpoint| found.iter().any(|network| network.id.eq_ignore_ascii_case(&endpoint.network_id));
    let running = containers()?;
    before(endpoints()?.into_iter().filter(|endpoint| on(endpoint) && endpoint.is_used(&running)).collect())?;
    for network in &found {
        delete_known(network, Pods::Gone)?;
    }
    Ok(found.into_iter().map(|network| network.name).collect())
}

/// Deletes one endpoint.
///
/// # Errors
/// `HnsStuck`, and what HNS refuses with.
pub fn delete_endpoint(id: &str) -> Result<()> {
    match call("DELETE", &format!("/endpoints/{id}"), String::new(), CHANGE_LIMIT)? {
        Err(refusal) if refusal.on_delete() != Reaction::Gone => {
            Err(refusal.fault(format!("delete HNS endpoint {id}")).into())
        }
        _ => Ok(()),
    }
}

/// Replaces the ACLs of an endpoint by such as let everything through.
///
/// # Errors
/// As of [`put`].
pub fn let_all_through(id: &str) -> Result<()> {
    match call("POST", &format!("/endpoints/{id}"), hns::acls_body(id, &hns::all_through()), CHANGE_LIMIT)? {
        Err(refusal) if refusal.on_delete() != Reaction::Gone => {
            Err(refusal.fault(format!("change the ACLs of HNS endpoint {id}")).into())
        }
        _ => Ok(()),
    }
}

type EnumerateComputeSystems = unsafe extern "system" fn(*const u16, *mut *mut u16, *mut *mut u16) -> i32;

/// The containers that run, as the Host Compute Service, HNS's neighbour in the same library, knows them.
///
/// # Errors
/// When it does not answer, or refuses: without it nobody knows whether an endpoint is still used.
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
    let Ok((hresult, systems)) = answered.recv_timeout(LOOK_LIMIT) else {
        return Err(stuck(format!("HCS did not list the containers in {} s", LOOK_LIMIT.as_secs())).into());
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
    let mut patience = Patience::new(CREATE_PATIENCE);
    loop {
        match find(name)?.map(|found| found.network) {
            Some(Some(there)) if satisfies(&there) => return Ok(()),
            Some(_) => return exists(),
            None => (),
        }
        let Err(refusal) = call("POST", "/networks/", body.clone(), CHANGE_LIMIT)? else {
            return Ok(());
        };
        match refusal.on_create() {
            Reaction::TryAgain if may_come_back(wanted.adapter.as_deref())? && patience.wait() => (),
            Reaction::Exists if find(name)?.is_some() => return exists(),
            Reaction::Exists => {
                return Err(refusal
                    .fault(format!("{what}, though HNS lists none of that name"))
                    .hint(format!("HNS's state is stale: {RESTART_HNS}"))
                    .into());
            }
            _ if refusal.code == Some(win32::HNS_ADAPTER_NOT_FOUND) => {
                let there: Vec<String> = iphelper::interfaces()?.into_iter().map(|interface| interface.name).collect();
                return Err(refusal.fault(format!("{what}; there are: {}", there.join(", "))).into());
            }
            _ if refusal.code == Some(win32::INVALID_PARAMETER) => {
                let left = "a vSwitch may be left over from before a reboot: look at `Get-HnsNetwork` and \
                            `Get-NetAdapter`, restart the machine, then run again";
                return Err(refusal.fault(format!("{what} with {body}")).hint(left).into());
            }
            _ => return Err(refusal.fault(what).into()),
        }
    }
}

/// Whether an adapter that HNS does not find may be found later: it is there, or this process has
/// just taken a vSwitch off. A host's own `vEthernet` can never hold a vSwitch.
fn may_come_back(adapter: Option<&str>) -> Result<bool> {
    let Some(name) = adapter.map(str::to_lowercase) else {
        return Ok(true);
    };
    let host = format!("vethernet ({name})");
    let there = iphelper::interfaces()?.iter().any(|interface| {
        let have = interface.name.to_lowercase();
        have == name || have == host
    });
    let deleted = LAST_DELETED.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(!name.starts_with("vethernet (") && (there || deleted.is_some_and(|then| then.elapsed() < CREATE_PATIENCE)))
}

fn delete(name: &str, pods: Pods) -> Result<()> {
    find(name)?.map_or(Ok(()), |network| delete_known(&network, pods))
}

fn delete_known(network: &KnownNetwork, pods: Pods) -> Result<()> {
    let name = network.name.as_str();
    if !hns::is_calicos(&network.name) {
        return Err(hns::foreign(name).into());
    }
    let management_ip = network.network.as_ref().and_then(|network| network.management_ip);
    let former = management_ip.filter(|ip| is_on_an_interface(*ip).unwrap_or_default());
    for last_try in [false, false, true] {
        let paths = hns::removal(network, &endpoints()?, &look("/policylists/")?, pods).map_err(|used| {
            let to = used.join(", ");
            refused(
                win32::HNS_HAS_REFERENCES,
                format!("delete HNS network {name}, to which endpoints are attached: {to}"),
            )
        })?;
        match delete_all(&paths)? {
            None => break,
            // Something was attached since they were listed.
            Some(refusal) if refusal.on_delete() == Reaction::References && !last_try => (),
            // An old build that gives no number may only have had nothing to delete.
            Some(refusal) if refusal.code.is_none() && find(name)?.is_none() => break,
            Some(refusal) => return Err(refusal.fault(format!("delete HNS network {name}")).into()),
        }
    }
    *LAST_DELETED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    let mut patience = Patience::new(GONE_PATIENCE);
    while find(name)?.is_some_and(|found| found.id.eq_ignore_ascii_case(&network.id)) {
        if !patience.wait() {
            let what = format!("delete HNS network {name}: HNS still lists it after {} s", GONE_PATIENCE.as_secs());
            return Err(stuck(what).into());
        }
    }
    let Some(ip) = former else {
        return Ok(());
    };
    await_address(ip, name)?;
    *LAST_DELETED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    Ok(())
}

/// Deletes things of HNS in order. Gives the refusal that stopped it, of the network itself; what
/// refers to it may be gone or detached already.
fn delete_all(paths: &[String]) -> Result<Option<Refusal>> {
    for (at, path) in paths.iter().enumerate() {
        if let Err(refusal) = call("DELETE", path, String::new(), CHANGE_LIMIT)? {
            match refusal.on_delete() {
                Reaction::Gone => (),
                Reaction::Denied | Reaction::Stopped => return Ok(Some(refusal)),
                // HNS deletes a network with what is left of it.
                _ if at + 1 < paths.len() => (),
                _ => return Ok(Some(refusal)),
            }
        }
    }
    Ok(None)
}

/// With the last network of a vSwitch its adapter comes back, and meanwhile the machine is nowhere.
fn await_address(ip: Ipv4Addr, name: &str) -> Result<()> {
    let begun = Instant::now();
    while !is_on_an_interface(ip)? {
        if begun.elapsed() > ADDRESS_PATIENCE {
            let what = format!(
                "HNS network {name} is deleted, but {} s later no adapter has its address {ip} back",
                ADDRESS_PATIENCE.as_secs()
            );
            return Err(Fault::new(Exit::Failed, "AdapterNotBack", what)
                .hint("look at `Get-NetIPAddress`: renew the lease or set the address again, then run again")
                .into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn is_on_an_interface(ip: Ipv4Addr) -> Result<bool> {
    Ok(iphelper::interfaces()?.iter().any(|interface| interface.addresses.iter().any(|cidr| cidr.addr() == ip)))
}

fn find(name: &str) -> Result<Option<KnownNetwork>> {
    Ok(known()?.into_iter().find(|found| found.name.to_lowercase() == name.to_lowercase()))
}

fn known() -> Result<Vec<KnownNetwork>> {
    Ok(hns::networks(&look("/networks/")?))
}

/// Lists what there is; without HNS that is nothing.
fn look(path: &str) -> Result<Value> {
    if entry().map_err(unavailable)?.is_none() {
        return Ok(Value::Null);
    }
    match call("GET", path, String::new(), LOOK_LIMIT)? {
        Ok(output) => Ok(output),
        Err(refusal) if refusal.on_delete() == Reaction::Gone => Ok(Value::Null),
        Err(refusal) => Err(refusal.fault(format!("list {} of HNS", path.trim_matches('/'))).into()),
    }
}

type HnsCall = unsafe extern "system" fn(*const u16, *const u16, *const u16, *mut *mut u16) -> i32;

/// The entry of HNS; none where its DLL is not installed.
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
    Fault::new(Exit::Failed, "HnsNotAvailable", what)
        .hint("enable the Windows feature Containers, restart, then run again")
        .into()
}

/// One call of HNS, in a thread of its own. One that does not return in time is left behind: it
/// ends with the process.
///
/// # Errors
/// `HnsNotAvailable`, `HnsStuck`. A refusal of HNS is the inner one.
fn call(method: &str, path: &str, body: String, limit: Duration) -> Result<Result<Value, Refusal>> {
    let entry = entry().map_err(unavailable)?.ok_or_else(|| unavailable(win32::MODULE_NOT_FOUND))?;
    let (method_wide, path_wide, body) = (wide(method), wide(path), wide(&body));
    let (answer, answered) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("HNS".into())
        .spawn(move || {
            // Nobody listens any more after the limit.
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
                           re-create the pods that stayed\nrestarting hns deletes the endpoints of all pods here, \
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

/// A text that HNS or HCS gave, or none, and that is ours to free.
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

/// Waits that grow from 50 ms to 4 s, for as long as a limit lets.
struct Patience {
    left: Duration,
    next: Duration,
}

impl Patience {
    const fn new(limit: Duration) -> Self {
        Self { left: limit, next: Duration::from_millis(50) }
    }

    /// Waits a while. False, and at once, when the limit is reached.
    fn wait(&mut self) -> bool {
        let time = self.next.min(self.left);
        if time.is_zero() {
            return false;
        }
        std::thread::sleep(time);
        self.left -= time;
        self.next = (self.next * 2).min(Duration::from_secs(4));
        true
    }
}

#[cfg(test)]
mod stories;
