//! Windows Firewall, through its COM interface. A rule's name there is its display name.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use windows::Win32::Foundation::{VARIANT_FALSE, VARIANT_TRUE};
use windows::Win32::NetworkManagement::WindowsFirewall::{
    INetFwPolicy2, INetFwRule, INetFwRules, NET_FW_ACTION_ALLOW, NET_FW_PROFILE2_ALL, NET_FW_PROFILE2_DOMAIN,
    NET_FW_PROFILE2_PRIVATE, NET_FW_PROFILE2_PUBLIC, NET_FW_RULE_DIR_IN, NetFwPolicy2, NetFwRule,
};
use windows::Win32::System::Com::{CLSCTX_INPROC_SERVER, CoCreateInstance};
use windows::Win32::System::Ole::IEnumVARIANT;
use windows::Win32::System::Variant::{VARIANT, VT_DISPATCH, VariantClear};
use windows::core::{BSTR, Interface};

use super::com::{Com, code};
use crate::calico::services::FIREWALL_GROUP;
use crate::fault::{Exit, Fault};
use crate::item::FirewallRule;
use crate::node::firewall::{self, Gate, VXLAN_RULE, is_the_rule};
use crate::node::win32::{self, refused};

/// `NET_FW_IP_PROTOCOL_TCP`, `_UDP`, `_ANY`.
const PROTOCOLS: [(&str, i32); 3] = [("TCP", TCP), ("UDP", 17), ("Any", ANY)];
const TCP: i32 = 6;
const ANY: i32 = 256;

/// An inbound rule by its name, or by another name of the same rule; the state has the rule's own name.
pub fn get(name: &str) -> Result<Option<FirewallRule>> {
    let firewall = Firewall::open()?;
    firewall.named(name)?.first().map(read).transpose()
}

/// Sets the one inbound rule of this name, or removes every one. An existing rule is changed in place: adding would
/// create a second one of the same name.
///
/// # Errors
/// `FirewallStopped` if the firewall's service does not run.
pub fn put(name: &str, rule: Option<&FirewallRule>) -> Result<()> {
    let firewall = Firewall::open()?;
    let there = firewall.named(name)?;
    match (rule, there.as_slice()) {
        (Some(wanted), [one]) => {
            if read(one)? == *wanted {
                return Ok(());
            }
            write(one, wanted).with_context(|| format!("change firewall rule {name}"))
        }
        (Some(wanted), several) => {
            firewall.remove(several)?;
            firewall.add(wanted).with_context(|| format!("add firewall rule {name}"))
        }
        (None, several) => firewall.remove(several),
    }
}

/// Whether there is an inbound rule of this name and it applies in every network profile.
pub fn is_in_every_profile(name: &str) -> Result<bool> {
    const EVERY: i32 = NET_FW_PROFILE2_DOMAIN.0 | NET_FW_PROFILE2_PRIVATE.0 | NET_FW_PROFILE2_PUBLIC.0;
    let firewall = Firewall::open()?;
    let Some(rule) = firewall.named(name)?.into_iter().next() else { return Ok(false) };
    // SAFETY: a method of a live object.
    let profiles = unsafe { rule.Profiles() }.map_err(|e| told(&e, "read a firewall rule"))?;
    Ok(profiles & EVERY == EVERY)
}

/// Our inbound rules, and those that have the name of one of ours.
pub fn list() -> Result<Vec<(String, FirewallRule)>> {
    let firewall = Firewall::open()?;
    let mut found = Vec::new();
    for rule in firewall.inbound()? {
        let rule = read(&rule)?;
        if rule.group.eq_ignore_ascii_case(FIREWALL_GROUP) || is_the_rule(VXLAN_RULE[0], &rule.display_name) {
            found.push((rule.display_name.clone(), rule));
        }
    }
    Ok(found)
}

/// Which of these TCP ports the firewall opens, in the machine's current network profiles.
///
/// # Errors
/// When the firewall cannot be read.
pub fn lets_in(ports: &[u16]) -> Result<BTreeMap<u16, bool>> {
    let firewall = Firewall::open()?;
    let profiles = firewall.guarded().map_err(|e| told(&e, "ask where the firewall is on"))?;
    let mut gates = Vec::new();
    if profiles != 0 {
        for rule in firewall.inbound()? {
            gates.extend(gate(&rule, profiles).map_err(|e| told(&e, "read a firewall rule"))?);
        }
    }
    Ok(ports.iter().map(|port| (*port, profiles == 0 || firewall::lets_in(&gates, *port))).collect())
}

/// A rule that is enabled in one of these profiles.
fn gate(rule: &INetFwRule, profiles: i32) -> windows::core::Result<Option<Gate>> {
    // SAFETY: methods of a live object.
    unsafe {
        if rule.Enabled()? != VARIANT_TRUE || rule.Profiles()? & profiles == 0 {
            return Ok(None);
        }
        Ok(Some(Gate {
            allows: rule.Action()? == NET_FW_ACTION_ALLOW,
            tcp: matches!(rule.Protocol()?, TCP | ANY),
            ports: rule.LocalPorts()?.to_string(),
            of_one: !rule.ApplicationName()?.is_empty() || !rule.ServiceName()?.is_empty(),
        }))
    }
}

/// The firewall's rules, with COM initialized on this thread while they are used.
struct Firewall {
    policy: INetFwPolicy2,
    rules: INetFwRules,
    /// Dropped after the rules.
    _com: Com,
}

impl Firewall {
    fn open() -> Result<Self> {
        let com = Com::begin();
        // SAFETY: COM is ready on this thread, and the class has this interface.
        let policy: INetFwPolicy2 = unsafe { CoCreateInstance(&NetFwPolicy2, None, CLSCTX_INPROC_SERVER) }
            .map_err(|e| told(&e, "open Windows Firewall"))?;
        // SAFETY: a method of a live object.
        let rules = unsafe { policy.Rules() }.map_err(|e| told(&e, "read the firewall's rules"))?;
        Ok(Self { policy, rules, _com: com })
    }

    /// The machine's current network profiles in which the firewall blocks what no rule allows; a bit for each.
    fn guarded(&self) -> windows::core::Result<i32> {
        // SAFETY: methods of a live object.
        unsafe {
            let current = self.policy.CurrentProfileTypes()?;
            let mut guarded = 0;
            for profile in [NET_FW_PROFILE2_DOMAIN, NET_FW_PROFILE2_PRIVATE, NET_FW_PROFILE2_PUBLIC] {
                if current & profile.0 != 0
                    && self.policy.get_FirewallEnabled(profile)? == VARIANT_TRUE
                    && self.policy.get_DefaultInboundAction(profile)? != NET_FW_ACTION_ALLOW
                {
                    guarded |= profile.0;
                }
            }
            Ok(guarded)
        }
    }

    /// The inbound rules of a name.
    fn named(&self, name: &str) -> Result<Vec<INetFwRule>> {
        let mut found = Vec::new();
        for rule in self.inbound()? {
            if is_the_rule(name, &title(&rule)?) {
                found.push(rule);
            }
        }
        Ok(found)
    }

    fn inbound(&self) -> Result<Vec<INetFwRule>> {
        let failed = |e: windows::core::Error| told(&e, "list the firewall's rules");
        // SAFETY: a method of a live object; what it gives enumerates.
        let all = unsafe { self.rules._NewEnum() }.and_then(|all| all.cast::<IEnumVARIANT>()).map_err(failed)?;
        let mut found = Vec::new();
        loop {
            let mut next = [VARIANT::default()];
            let mut fetched = 0;
            // SAFETY: there is room for one value, and it is empty.
            unsafe { all.Next(&mut next, &raw mut fetched) }.ok().map_err(failed)?;
            if fetched == 0 {
                return Ok(found);
            }
            if let Some(rule) = rule_in(&mut next[0]) {
                // SAFETY: a method of a live object.
                if unsafe { rule.Direction() }.map_err(failed)? == NET_FW_RULE_DIR_IN {
                    found.push(rule);
                }
            }
        }
    }

    fn add(&self, wanted: &FirewallRule) -> Result<()> {
        // SAFETY: COM is ready on this thread, and the class has this interface.
        let rule: INetFwRule = unsafe { CoCreateInstance(&NetFwRule, None, CLSCTX_INPROC_SERVER) }
            .map_err(|e| told(&e, "make a firewall rule"))?;
        write(&rule, wanted)?;
        // SAFETY: methods of live objects.
        unsafe { rule.SetDirection(NET_FW_RULE_DIR_IN).and_then(|()| self.rules.Add(&rule)) }
            .map_err(|e| told(&e, "add it to the firewall's rules"))
    }

    /// Removes rules by name; the firewall removes one rule per call.
    fn remove(&self, rules: &[INetFwRule]) -> Result<()> {
        for rule in rules {
            let name = title(rule)?;
            // SAFETY: a method of a live object.
            match unsafe { self.rules.Remove(&BSTR::from(&*name)) } {
                Err(e) if code(&e) == win32::FILE_NOT_FOUND => (),
                removed => removed.map_err(|e| told(&e, &format!("remove firewall rule {name}")))?,
            }
        }
        Ok(())
    }
}

/// The rule in a value of the enumeration; the value is cleared.
fn rule_in(value: &mut VARIANT) -> Option<INetFwRule> {
    // SAFETY: the tag says which member of the union is there.
    let rule = unsafe {
        let inner = &value.Anonymous.Anonymous;
        (inner.vt == VT_DISPATCH).then(|| inner.Anonymous.pdispVal.as_ref()?.cast::<INetFwRule>().ok()).flatten()
    };
    // SAFETY: the value is ours and used no more. Clearing what was just read cannot fail.
    drop(unsafe { VariantClear(value) });
    rule
}

fn title(rule: &INetFwRule) -> Result<String> {
    // SAFETY: a method of a live object.
    Ok(unsafe { rule.Name() }.map_err(|e| told(&e, "read the name of a firewall rule"))?.to_string())
}

const PROFILES: [(&str, i32); 3] = [
    ("Domain", NET_FW_PROFILE2_DOMAIN.0),
    ("Private", NET_FW_PROFILE2_PRIVATE.0),
    ("Public", NET_FW_PROFILE2_PUBLIC.0),
];

/// Profiles by their names; empty for all.
fn profiles_text(bits: i32) -> String {
    if PROFILES.iter().all(|(_, bit)| bits & bit != 0) {
        return String::new();
    }
    let names: Vec<&str> = PROFILES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
    if names.is_empty() { "none".into() } else { names.join(",") }
}

/// The opposite of [`profiles_text`].
fn profiles_in(text: &str) -> i32 {
    if text.is_empty() {
        return NET_FW_PROFILE2_ALL.0;
    }
    let named = |name: &str| PROFILES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    text.split(',').filter_map(named).fold(0, |bits, (_, bit)| bits | bit)
}

/// A rule as it is. A blocking rule counts as not enabled.
fn read(rule: &INetFwRule) -> Result<FirewallRule> {
    let name = title(rule)?;
    let read = || {
        // SAFETY: methods of a live object.
        unsafe {
            let protocol = rule.Protocol()?;
            let known = PROTOCOLS.iter().find(|(_, number)| *number == protocol);
            Ok(FirewallRule {
                display_name: name.clone(),
                group: rule.Grouping()?.to_string(),
                protocol: known.map_or_else(|| protocol.to_string(), |(name, _)| (*name).to_owned()),
                local_ports: rule.LocalPorts()?.to_string(),
                enabled: rule.Enabled()? == VARIANT_TRUE && rule.Action()? == NET_FW_ACTION_ALLOW,
                profiles: profiles_text(rule.Profiles()?),
                remote_addresses: Some(rule.RemoteAddresses()?.to_string())
                    .filter(|all| all != "*")
                    .unwrap_or_default(),
                edge_traversal: rule.EdgeTraversal()? == VARIANT_TRUE,
            })
        }
    };
    read().map_err(|e| told(&e, &format!("read firewall rule {name}")))
}

/// Sets a rule's values. Windows refuses ports before the protocol is set.
fn write(rule: &INetFwRule, wanted: &FirewallRule) -> Result<()> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&wanted.protocol));
    let protocol = match named {
        Some((_, number)) => *number,
        None => wanted.protocol.parse().with_context(|| format!("`{}` is no protocol", wanted.protocol))?,
    };
    let profiles = profiles_in(&wanted.profiles);
    let addresses = if wanted.remote_addresses.is_empty() { "*" } else { &*wanted.remote_addresses };
    let write = || {
        // SAFETY: methods of a live object.
        unsafe {
            rule.SetName(&BSTR::from(&*wanted.display_name))?;
            rule.SetGrouping(&BSTR::from(&*wanted.group))?;
            rule.SetProtocol(protocol)?;
            if !wanted.local_ports.is_empty() {
                rule.SetLocalPorts(&BSTR::from(&*wanted.local_ports))?;
            }
            rule.SetProfiles(profiles)?;
            rule.SetRemoteAddresses(&BSTR::from(addresses))?;
            rule.SetEdgeTraversal(if wanted.edge_traversal { VARIANT_TRUE } else { VARIANT_FALSE })?;
            rule.SetAction(NET_FW_ACTION_ALLOW)?;
            rule.SetEnabled(if wanted.enabled { VARIANT_TRUE } else { VARIANT_FALSE })
        }
    };
    write().map_err(|e| told(&e, &format!("set firewall rule {}", wanted.display_name)))
}

fn told(error: &windows::core::Error, what: &str) -> anyhow::Error {
    match code(error) {
        // The firewall's interface returns this when its service is stopped.
        win32::RPC_NOT_REGISTERED | win32::RPC_UNAVAILABLE => {
            let what = format!("{what}: the service mpssvc does not answer (Windows error {:#010X})", error.code().0);
            Fault::new(Exit::Failed, "FirewallStopped", what)
                .hint("start it: `Start-Service mpssvc`; a firewall that is not wanted is switched off by its profiles")
                .into()
        }
        win32::ACCESS_DENIED => win32::denied(what).into(),
        code => refused(code, what).into(),
    }
}

#[cfg(test)]
mod tests;
