//! Patches that make a cluster ready for Windows nodes: shown, and applied on request.
//!
//! A patch names only the fields that it changes, so all other fields are kept. A merge patch replaces a list as a
//! whole; the only list here, the Installation's pools, therefore carries the resource version that was read.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Cluster;
use super::api::{path, query};
use crate::facts::{ApiGroup, ClusterFacts, PoolFacts};
use crate::fault::{Exit, Fault};
use crate::settings::{Backend, pools_for_windows};
use crate::values::Vni;

/// What is wanted beyond what Windows needs anyway.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// The VNI of the config, if it sets one.
    pub vni: Option<Vni>,
    /// The config's backend: with vxlan, pools without encapsulation get it; with windows-bgp, the pools get none.
    pub backend: Option<Backend>,
}

impl Wishes {
    /// Whether this is a pool that Windows nodes cannot use.
    fn wrong(self, pool: &PoolFacts) -> bool {
        is_on(&pool.ipip_mode)
            || match self.backend {
                Some(Backend::Vxlan) => !is_on(&pool.vxlan_mode),
                Some(Backend::WindowsBgp) => is_on(&pool.vxlan_mode),
                _ => false,
            }
    }
}

/// One change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// For example `ippools.crd.projectcalico.org default-ipv4-ippool`.
    pub object: String,
    /// Why it is needed.
    pub why: String,
    /// The object does not exist and is created.
    pub create: bool,
    /// A merge patch (RFC 7386), or the whole new object.
    pub body: Value,
    /// The merge patch that restores what the object had; none for a new one.
    pub before: Option<Value>,
    /// Traffic between pods, also of Linux nodes, is sent differently from then on.
    pub interrupts: bool,
    path: String,
}

impl Patch {
    /// The same with kubectl.
    pub fn command(&self) -> String {
        match self.create {
            true => format!("echo '{}' | kubectl create -f -", self.body),
            false => self.merge(&self.body),
        }
    }

    /// What undoes it, with kubectl.
    pub fn undo(&self) -> String {
        match &self.before {
            Some(before) => self.merge(before),
            None => format!("kubectl delete {}", self.object),
        }
    }

    /// Windows PowerShell 5.1 would drop the quotes of JSON.
    fn merge(&self, patch: &Value) -> String {
        let patch = match patch.as_object() {
            Some(one) if one.len() == 1 => fields(one),
            // What begins with a brace is JSON for kubectl (apimachinery's yaml.IsJSONBuffer).
            _ => format!("--- {}", one_line(patch)),
        };
        format!("kubectl patch {} --type=merge -p \"{patch}\"", self.object)
    }
}

/// A value as YAML on one line, without double quotes.
fn one_line(value: &Value) -> String {
    match value {
        Value::Object(object) => format!("{{{}}}", fields(object)),
        Value::Array(all) => format!("[{}]", all.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}

fn fields(object: &Map<String, Value>) -> String {
    object.iter().map(|(name, value)| format!("{name}: {}", one_line(value))).collect::<Vec<_>>().join(", ")
}

/// What must be done before a cluster is ready for Windows nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preparation {
    pub patches: Vec<Patch>,
    /// What the operator's configuration already sets and the operator has not applied yet, a sentence each: a patch would not help.
    pub awaited: Vec<String>,
}

/// The objects from the API server.
#[derive(Debug, Default)]
struct Objects {
    felix: Option<Value>,
    ipam: Option<Value>,
    installation: Option<Value>,
}

impl Cluster {
    /// The patches that make the cluster ready for Windows nodes, and what is awaited; neither if it is ready.
    ///
    /// # Errors
    /// Fault `CalicoResourcesNotServed` if Calico is not in this cluster's API.
    pub fn preparation(&self, facts: &ClusterFacts, wishes: Wishes) -> Result<Preparation> {
        if facts.calico_unserved {
            let what = "the cluster serves no Calico resources, so there is nothing to patch";
            return Err(Fault::new(Exit::ClusterUnreachable, "CalicoResourcesNotServed", what)
                .hint("install Calico on the cluster's Linux nodes first; with etcd, use calicoctl there")
                .into());
        }
        let objects = Objects {
            felix: self.get(&default(facts.api_group, "felixconfigurations"))?,
            ipam: self.get(&default(facts.api_group, facts.api_group.ipam_plural()))?,
            // The facts already say whether there is an operator.
            installation: match facts.operator {
                Some(_) => self.get(INSTALLATION)?,
                None => None,
            },
        };
        Ok(preparation(&objects, facts, wishes))
    }

    /// Applies them, and reports each before it is applied.
    ///
    /// # Errors
    /// The first that is refused; those before it remain applied.
    pub fn prepare(&self, patches: &[Patch], tell: &mut dyn FnMut(&Patch)) -> Result<()> {
        for patch in patches {
            tell(patch);
            // A field that the server does not know is an error, not just a warning.
            let path = query(&patch.path, &[("fieldValidation", "Strict")]);
            match patch.create {
                true => self.post::<_, Value>(&path, &patch.body)?,
                false => self.merge_patch::<_, Value>(&path, &patch.body)?,
            };
        }
        Ok(())
    }
}

/// The UDP port of VXLAN, which cannot be changed on Windows.
const WINDOWS_PORT: u64 = 4789;

const INSTALLATION: &str = "/apis/operator.tigera.io/v1/installations/default";

fn collection(group: ApiGroup, plural: &str) -> String {
    let (name, version) = group.parts();
    path(["apis", name, version, plural])
}

fn default(group: ApiGroup, plural: &str) -> String {
    format!("{}/default", collection(group, plural))
}

fn preparation(objects: &Objects, facts: &ClusterFacts, wishes: Wishes) -> Preparation {
    let group = facts.api_group;
    let mut patches = Vec::new();
    patches.extend(strict_affinity(group, objects.ipam.as_ref()));
    let pools = pools(objects, facts, wishes);
    // All of them end with VXLAN, unless the nodes use BGP.
    let moved = !pools.patches.is_empty() || !pools.awaited.is_empty();
    let is_used = moved || pools_for_windows(facts).any(|pool| is_on(&pool.vxlan_mode));
    let vxlan = match wishes.backend {
        Some(backend) => backend == Backend::Vxlan || backend == Backend::None && is_used,
        None => is_used,
    };
    patches.extend(pools.patches);
    patches.extend(felix(group, objects.felix.as_ref(), wishes.vni, vxlan));
    Preparation { patches, awaited: pools.awaited }
}

/// Whether a pool's `ipipMode` or `vxlanMode` uses the encapsulation.
fn is_on(mode: &str) -> bool {
    matches!(mode, "Always" | "CrossSubnet")
}

/// The merge patch that restores what another one changes.
fn former(patch: &Value, object: &Value) -> Value {
    let Some(fields) = patch.as_object().filter(|_| object.is_object()) else { return object.clone() };
    let own = fields.iter().filter(|(name, _)| *name != "resourceVersion");
    own.map(|(name, value)| (name.clone(), former(value, &object[name]))).collect()
}

fn strict_affinity(group: ApiGroup, ipam: Option<&Value>) -> Option<Patch> {
    let plural = group.ipam_plural();
    let (name, version) = group.parts();
    let kind = if group == ApiGroup::V1 { "IPAMConfig" } else { "IPAMConfiguration" };
    let patch = |why: &str, create, path, body: Value| Patch {
        object: format!("{plural}.{name} default"),
        why: why.into(),
        create,
        before: ipam.map(|found| former(&body, found)),
        body,
        interrupts: false,
        path,
    };
    match ipam {
        Some(found) if found["spec"]["strictAffinity"] == true => None,
        Some(_) => {
            let body = json!({ "spec": { "strictAffinity": true } });
            Some(patch("strict affinity is off", false, default(group, plural), body))
        }
        // The definition requires both fields.
        None => {
            let body = json!({
                "apiVersion": format!("{name}/{version}"), "kind": kind, "metadata": { "name": "default" },
                "spec": { "strictAffinity": true, "autoAllocateBlocks": true },
            });
            Some(patch(
                "there is no IPAM configuration, so strict affinity is off",
                true,
                collection(group, plural),
                body,
            ))
        }
    }
}

/// Pools that Windows cannot use as they are: changed through the Installation if the operator creates them, since it
/// would revert a change of the pool itself.
fn pools(objects: &Objects, facts: &ClusterFacts, wishes: Wishes) -> Preparation {
    let bgp = wishes.backend == Some(Backend::WindowsBgp);
    // The operator's word, and what the pool has then.
    let (encapsulation, vxlan_mode) = if bgp { ("None", "Never") } else { ("VXLAN", "Always") };
    let wrong = pools_for_windows(facts).filter(|pool| wishes.wrong(pool));
    let mut wanted = Value::Null;
    if let Some(installation) = &objects.installation {
        wanted = installation["spec"]["calicoNetwork"]["ipPools"].clone();
    }
    let mut reasons = Vec::new();
    let (mut own, mut awaited) = (Vec::new(), Vec::new());
    for pool in wrong {
        let why = match (is_on(&pool.ipip_mode), bgp) {
            (true, _) => format!("the pool {} has ipipMode: {}", pool.name, pool.ipip_mode),
            (false, true) => format!("the pool {} has vxlanMode: {}", pool.name, pool.vxlan_mode),
            (false, false) => format!("the pool {} has no VXLAN", pool.name),
        };
        let entry = wanted.as_array_mut().into_iter().flatten().find(|entry| entry["cidr"] == pool.cidr.as_str());
        match entry {
            // The operator must apply what the Installation already has.
            Some(entry) if entry["encapsulation"].as_str().is_some_and(|word| word.starts_with(encapsulation)) => {
                awaited.push(format!(
                    "{why}, although the Installation has {encapsulation}: the operator has not applied it"
                ));
            }
            Some(entry) => {
                entry["encapsulation"] = encapsulation.into();
                reasons.push(why);
            }
            None => own.push(Patch {
                object: format!("ippools.{} {}", facts.api_group.parts().0, pool.name),
                why,
                create: false,
                // In one patch: both modes at once are refused.
                body: json!({ "spec": { "ipipMode": "Never", "vxlanMode": vxlan_mode } }),
                before: Some(json!({ "spec": { "ipipMode": pool.ipip_mode, "vxlanMode": pool.vxlan_mode } })),
                interrupts: true,
                path: format!("{}{}", collection(facts.api_group, "ippools"), path([pool.name.as_str()])),
            }),
        }
    }
    let installation = objects.installation.as_ref().unwrap_or(&Value::Null);
    let version = &installation["metadata"]["resourceVersion"];
    let through_installation = (!reasons.is_empty()).then(|| Patch {
        object: "installations.operator.tigera.io default".into(),
        why: format!("{}, which the operator owns", reasons.join("; ")),
        create: false,
        before: Some(former(&json!({ "spec": { "calicoNetwork": { "ipPools": [] } } }), installation)),
        body: json!({ "metadata": { "resourceVersion": version }, "spec": { "calicoNetwork": { "ipPools": wanted } } }),
        interrupts: true,
        path: INSTALLATION.into(),
    });
    Preparation { patches: through_installation.into_iter().chain(own).collect(), awaited }
}

fn felix(group: ApiGroup, felix: Option<&Value>, wanted: Option<Vni>, vxlan: bool) -> Option<Patch> {
    let spec = felix.map_or(&Value::Null, |found| &found["spec"]);
    let mut fields = Map::new();
    let mut reasons = Vec::new();
    // Without a value of its own, Felix follows the pools.
    if spec["ipipEnabled"] == true {
        fields.insert("ipipEnabled".into(), Value::Null);
        reasons.push("ipipEnabled is true".to_owned());
    }
    if vxlan && spec["vxlanEnabled"] == false {
        fields.insert("vxlanEnabled".into(), Value::Null);
        reasons.push("vxlanEnabled is false".to_owned());
    }
    if let Some(port) = spec["vxlanPort"].as_u64().filter(|port| vxlan && *port != WINDOWS_PORT) {
        fields.insert("vxlanPort".into(), Value::Null);
        reasons.push(format!("vxlanPort is {port}, and Windows uses {WINDOWS_PORT}"));
    }
    let theirs = spec["vxlanVNI"].as_u64().unwrap_or(u64::from(Vni::DEFAULT.get()));
    let fits = u32::try_from(theirs).is_ok_and(|vni| Vni::try_from(vni).is_ok());
    let vni = match wanted {
        Some(vni) if u64::from(vni.get()) != theirs => {
            Some((vni, format!("vxlanVNI is {theirs}, the config has {vni}")))
        }
        None if !fits => Some((Vni::DEFAULT, format!("vxlanVNI is {theirs}, which Windows does not support"))),
        _ => None,
    };
    if let Some((vni, why)) = vni {
        fields.insert("vxlanVNI".into(), vni.get().into());
        reasons.push(why);
    }
    if fields.is_empty() {
        return None;
    }
    let (name, version) = group.parts();
    let create = felix.is_none();
    let body = match create {
        false => json!({ "spec": fields }),
        true => json!({
            "apiVersion": format!("{name}/{version}"), "kind": "FelixConfiguration",
            "metadata": { "name": "default" }, "spec": fields,
        }),
    };
    let path = if create { collection(group, "felixconfigurations") } else { default(group, "felixconfigurations") };
    Some(Patch {
        object: format!("felixconfigurations.{name} default"),
        why: reasons.join("; "),
        create,
        before: felix.map(|found| former(&body, found)),
        body,
        interrupts: true,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{OperatorFacts, PoolFacts};

    fn pool(name: &str, cidr: &str, ipip: &str, vxlan: &str) -> PoolFacts {
        PoolFacts {
            name: name.into(),
            cidr: cidr.into(),
            ipip_mode: ipip.into(),
            vxlan_mode: vxlan.into(),
            node_selector: "all()".into(),
            ..PoolFacts::default()
        }
    }

    fn shown(objects: &Objects, facts: &ClusterFacts, wishes: Wishes) -> String {
        let one = |patch: &Patch| format!("{}: {}\n  {}\n  {}", patch.object, patch.why, patch.command(), patch.undo());
        let told = preparation(objects, facts, wishes);
        let awaited = told.awaited.iter().map(|what| format!("waits: {what}"));
        told.patches.iter().map(one).chain(awaited).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_manifest_cluster_is_patched_as_needed() {
        let objects = Objects {
            felix: Some(json!({"spec": {"ipipEnabled": true, "vxlanVNI": 1, "logSeverityScreen": "Debug"}})),
            ipam: Some(json!({"spec": {"strictAffinity": false, "autoAllocateBlocks": true}})),
            ..Objects::default()
        };
        let linux = PoolFacts {
            node_selector: "kubernetes.io/os == 'linux'".into(),
            ..pool("linux", "10.2.0.0/16", "Always", "Never")
        };
        let facts = ClusterFacts {
            pools: vec![pool("one", "10.1.0.0/16", "CrossSubnet", "Never"), linux],
            ..ClusterFacts::default()
        };
        insta::assert_snapshot!(shown(&objects, &facts, Wishes::default()), @r#"
        ipamconfigs.crd.projectcalico.org default: strict affinity is off
          kubectl patch ipamconfigs.crd.projectcalico.org default --type=merge -p "spec: {strictAffinity: true}"
          kubectl patch ipamconfigs.crd.projectcalico.org default --type=merge -p "spec: {strictAffinity: false}"
        ippools.crd.projectcalico.org one: the pool one has ipipMode: CrossSubnet
          kubectl patch ippools.crd.projectcalico.org one --type=merge -p "spec: {ipipMode: 'Never', vxlanMode: 'Always'}"
          kubectl patch ippools.crd.projectcalico.org one --type=merge -p "spec: {ipipMode: 'CrossSubnet', vxlanMode: 'Never'}"
        felixconfigurations.crd.projectcalico.org default: ipipEnabled is true; vxlanVNI is 1, which Windows does not support
          kubectl patch felixconfigurations.crd.projectcalico.org default --type=merge -p "spec: {ipipEnabled: null, vxlanVNI: 4096}"
          kubectl patch felixconfigurations.crd.projectcalico.org default --type=merge -p "spec: {ipipEnabled: true, vxlanVNI: 1}"
        "#);
    }

    #[test]
    fn what_the_operator_owns_is_changed_in_its_installation_with_the_rest_of_the_list_kept() {
        let entry = |cidr: &str, word: &str| json!({"cidr": cidr, "encapsulation": word, "natOutgoing": "Enabled"});
        let objects = Objects {
            ipam: Some(json!({"spec": {"strictAffinity": true}})),
            installation: Some(json!({
                "metadata": {"resourceVersion": "77"},
                "spec": {"calicoNetwork": {"ipPools": [entry("10.1.0.0/16", "IPIP"), entry("fd00::/48", "None")]}},
            })),
            ..Objects::default()
        };
        let facts = ClusterFacts {
            pools: vec![pool("one", "10.1.0.0/16", "Always", "Never")],
            operator: Some(OperatorFacts::default()),
            ..ClusterFacts::default()
        };
        insta::assert_snapshot!(shown(&objects, &facts, Wishes::default()), @r#"
        installations.operator.tigera.io default: the pool one has ipipMode: Always, which the operator owns
          kubectl patch installations.operator.tigera.io default --type=merge -p "--- {metadata: {resourceVersion: '77'}, spec: {calicoNetwork: {ipPools: [{cidr: '10.1.0.0/16', encapsulation: 'VXLAN', natOutgoing: 'Enabled'}, {cidr: 'fd00::/48', encapsulation: 'None', natOutgoing: 'Enabled'}]}}}"
          kubectl patch installations.operator.tigera.io default --type=merge -p "spec: {calicoNetwork: {ipPools: [{cidr: '10.1.0.0/16', encapsulation: 'IPIP', natOutgoing: 'Enabled'}, {cidr: 'fd00::/48', encapsulation: 'None', natOutgoing: 'Enabled'}]}}"
        "#);
    }

    #[test]
    fn a_pool_that_the_operator_must_change_is_awaited() {
        let entry = json!({"cidr": "10.1.0.0/16", "encapsulation": "VXLANCrossSubnet"});
        let objects = Objects {
            ipam: Some(json!({"spec": {"strictAffinity": true}})),
            installation: Some(json!({"spec": {"calicoNetwork": {"ipPools": [entry]}}})),
            ..Objects::default()
        };
        let facts = ClusterFacts {
            pools: vec![pool("one", "10.1.0.0/16", "Always", "Never")],
            operator: Some(OperatorFacts::default()),
            ..ClusterFacts::default()
        };
        insta::assert_snapshot!(shown(&objects, &facts, Wishes::default()), @"waits: the pool one has ipipMode: Always, although the Installation has VXLAN: the operator has not applied it");
    }

    #[test]
    fn absent_objects_are_created_and_correct_ones_are_kept() {
        let facts = ClusterFacts {
            api_group: ApiGroup::V3,
            pools: vec![pool("one", "10.1.0.0/16", "Never", "Never")],
            ..ClusterFacts::default()
        };
        let vni = "5000".parse::<u32>().unwrap();
        let wishes = Wishes { vni: Vni::try_from(vni).ok(), backend: Some(Backend::Vxlan) };
        insta::assert_snapshot!(shown(&Objects::default(), &facts, wishes), @r#"
        ipamconfigurations.projectcalico.org default: there is no IPAM configuration, so strict affinity is off
          echo '{"apiVersion":"projectcalico.org/v3","kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":{"strictAffinity":true,"autoAllocateBlocks":true}}' | kubectl create -f -
          kubectl delete ipamconfigurations.projectcalico.org default
        ippools.projectcalico.org one: the pool one has no VXLAN
          kubectl patch ippools.projectcalico.org one --type=merge -p "spec: {ipipMode: 'Never', vxlanMode: 'Always'}"
          kubectl patch ippools.projectcalico.org one --type=merge -p "spec: {ipipMode: 'Never', vxlanMode: 'Never'}"
        felixconfigurations.projectcalico.org default: vxlanVNI is 4096, the config has 5000
          echo '{"apiVersion":"projectcalico.org/v3","kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"vxlanVNI":5000}}' | kubectl create -f -
          kubectl delete felixconfigurations.projectcalico.org default
        "#);

        let objects = Objects {
            felix: Some(json!({"spec": {"vxlanVNI": 5000}})),
            ipam: Some(json!({"spec": {"strictAffinity": true}})),
            ..Objects::default()
        };
        let facts = ClusterFacts { pools: vec![pool("one", "10.1.0.0/16", "Never", "Always")], ..facts };
        assert_eq!(shown(&objects, &facts, wishes), "");
        // A node with BGP needs pools without any encapsulation, and no VNI.
        let bgp = Wishes { vni: None, backend: Some(Backend::WindowsBgp) };
        insta::assert_snapshot!(shown(&objects, &facts, bgp), @r#"
        ippools.projectcalico.org one: the pool one has vxlanMode: Always
          kubectl patch ippools.projectcalico.org one --type=merge -p "spec: {ipipMode: 'Never', vxlanMode: 'Never'}"
          kubectl patch ippools.projectcalico.org one --type=merge -p "spec: {ipipMode: 'Never', vxlanMode: 'Always'}"
        "#);
        // Without a wish, pools without encapsulation remain so: that is BGP.
        let plain = ClusterFacts { pools: vec![pool("one", "10.1.0.0/16", "Never", "Never")], ..facts };
        assert_eq!(shown(&objects, &plain, Wishes::default()), "");
    }
}
