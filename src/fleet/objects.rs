//! The objects of a rollout: those of `packaging/hostprocess/install.yaml`, with the config in a Secret whose name has
//! its digest, and a DaemonSet for each wave. A changed config, image or address is a new revision of the pods, and
//! `kubectl rollout undo` returns to the one before.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::waves::Wave;
use crate::values::{Sha256, Vni};
use crate::yaml;

const MANIFEST: &str = include_str!("../../packaging/hostprocess/install.yaml");

/// The label of the DaemonSets and their pods.
pub const MANAGED: &str = "app.kubernetes.io/name=calicoctl-win";

/// The label with the name of a wave.
pub(super) const WAVE: &str = "calicoctl-win/wave";

/// The annotation with the place of a wave: 1 is the first.
pub const ORDER: &str = "calicoctl-win/order";

/// The annotation of a DaemonSet with its limit, which it does not keep while it is paused.
pub(super) const MAX_UNAVAILABLE: &str = "calicoctl-win/max-unavailable";

/// The annotation of the pods with the digest of what they install.
pub(super) const REVISION: &str = "calicoctl-win/revision";

/// The variable of the pods with the same, which the run writes to its Node with its result.
pub const REVISION_VARIABLE: &str = "CALICO_WIN_FLEET_REVISION";

/// The annotation of a DaemonSet and of its pods with the VNI that the config sets. Of the DaemonSet it remains when its
/// pods are returned to an earlier revision.
pub(super) const VNI: &str = "calicoctl-win/vni";

/// The annotation of a DaemonSet with the VNI that the cluster had before, if it is another one.
pub(super) const FORMER_VNI: &str = "calicoctl-win/former-vni";

/// The revision of pods that install nothing yet.
pub(super) const IDLE: &str = "none";

/// How many nodes may be out at once: a number, or a share of the wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    Nodes(u32),
    Percent(u32),
}

impl MaxUnavailable {
    /// Of this many nodes; as the DaemonSet controller rounds, up.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(limit) => limit as usize,
            Self::Percent(share) => (nodes * share as usize).div_ceil(100),
        }
    }

    /// As a DaemonSet has it.
    pub fn json(self) -> Value {
        match self {
            Self::Nodes(limit) => limit.into(),
            Self::Percent(_) => self.to_string().into(),
        }
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(limit) => write!(f, "{limit}"),
            Self::Percent(share) => write!(f, "{share}%"),
        }
    }
}

impl FromStr for MaxUnavailable {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "write a number of nodes from 1, or a share from 1% to 100%";
        match text.strip_suffix('%') {
            Some(share) => share.parse().ok().filter(|share| (1..=100).contains(share)).map(Self::Percent),
            None => text.parse().ok().filter(|limit| *limit > 0).map(Self::Nodes),
        }
        .ok_or(WRONG)
    }
}

/// Checks the reference of an image: `[HOST[:PORT]/]NAME[:TAG][@DIGEST]` (distribution/reference).
///
/// # Errors
/// What is wrong with it.
pub fn image(text: &str) -> Result<String, &'static str> {
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    let tagged = rest.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
    let (path, tag) = tagged.map_or((rest, None), |(path, tag)| (path, Some(tag)));
    let (host, name) = match path.split_once('/') {
        Some((host, name)) if host.contains(['.', ':']) || host == "localhost" => (Some(host), name),
        _ => (None, path),
    };
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let word = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let part = |part: &str| {
        part.starts_with(lower) && part.ends_with(lower) && part.chars().all(|c| lower(c) || "_.-".contains(c))
    };
    if !host.is_none_or(|host| host.chars().all(|c| word(c) || ":[]".contains(c))) || !name.split('/').all(part) {
        return Err("write an image as REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST, its name in lower case");
    }
    if tag.is_some_and(|tag| tag.is_empty() || tag.len() > 128 || !tag.chars().all(word)) {
        return Err("a tag has letters, digits, `_`, `.` and `-`, at most 128");
    }
    let hex = |digest: &str| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digest.is_some_and(|digest| !digest.strip_prefix("sha256:").is_some_and(hex)) {
        return Err("a digest is `sha256:` and 64 hexadecimal digits");
    }
    Ok(text.to_owned())
}

/// What every node gets.
#[derive(Debug, Clone)]
pub struct Rollout {
    pub namespace: String,
    /// Where Calico is.
    pub calico_namespace: String,
    /// The image of HostProcess containers.
    pub image: String,
    /// URL of the API server, as the nodes reach it.
    pub api_server: String,
    /// The config, as YAML.
    pub config: String,
    pub max_unavailable: MaxUnavailable,
    /// The VNI that the config sets.
    pub vni: Option<Vni>,
    /// The VNI that the cluster had before, if it is another one and known.
    pub former_vni: Option<Vni>,
    /// Whether Calico keeps its data in etcd.
    pub etcd: bool,
}

impl Rollout {
    /// The name of what the pods install: 12 characters of a digest.
    pub fn revision(&self) -> String {
        let all = format!("{}\n{}\n{}", self.image, self.api_server, self.config);
        Sha256::of(all.as_bytes()).as_str()[..12].to_owned()
    }

    fn secret(&self) -> String {
        format!("calicoctl-win-{}", &Sha256::of(self.config.as_bytes()).as_str()[..12])
    }
}

/// What the DaemonSets need: namespace, account, rights, and the Secret with the config. `rights`: the roles of the
/// account and their bindings, as YAML.
pub fn preamble(rollout: &Rollout, rights: &str) -> Vec<Value> {
    let mut objects = manifest();
    objects.retain(|object| matches!(object["kind"].as_str(), Some("Namespace" | "ServiceAccount")));
    for object in &mut objects {
        let field = if object["kind"] == "Namespace" { "name" } else { "namespace" };
        object["metadata"][field] = rollout.namespace.as_str().into();
    }
    let rights: Vec<Value> = yaml::read_all(rights).expect("the program's own roles are valid");
    objects.extend(rights);
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": rollout.secret(), "namespace": rollout.namespace, "labels": labels() },
        // A revision has the config that it was made with.
        "immutable": true,
        "data": { "node.yaml": BASE64_STANDARD.encode(&rollout.config) },
    }));
    objects
}

/// The DaemonSet of a wave. `order`: its place, from 1.
pub fn daemon_set(rollout: &Rollout, wave: &Wave, order: usize) -> Value {
    let mut set = manifest().into_iter().find(|object| object["kind"] == "DaemonSet").expect("the manifest has one");
    let limit = rollout.max_unavailable;
    let vni = |name: &str, vni: Option<Vni>| Some((name.to_owned(), Value::from(vni?.to_string())));
    let annotated = |mut annotations: Value, more: [Option<(String, Value)>; 2]| {
        annotations.as_object_mut().expect("it is an object").extend(more.into_iter().flatten());
        annotations
    };
    let own = json!({ ORDER: order.to_string(), MAX_UNAVAILABLE: limit.to_string() });
    set["metadata"] = json!({
        "name": name(wave), "namespace": rollout.namespace, "labels": wave_labels(wave),
        "annotations": annotated(own, [vni(VNI, rollout.vni), vni(FORMER_VNI, rollout.former_vni)]),
    });
    let spec = &mut set["spec"];
    spec["selector"]["matchLabels"] = wave_labels(wave);
    spec["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": limit.json() } });
    let template = &mut spec["template"];
    let of_pods = annotated(json!({ REVISION: rollout.revision() }), [vni(VNI, rollout.vni), None]);
    template["metadata"] = json!({ "labels": wave_labels(wave), "annotations": of_pods });
    let pod = &mut template["spec"];
    pod["affinity"] = wave.affinity();
    let apply = &mut pod["initContainers"][0];
    apply["image"] = rollout.image.as_str().into();
    apply["env"] = json!([
        { "name": "API_SERVER", "value": rollout.api_server },
        { "name": REVISION_VARIABLE, "value": rollout.revision() },
    ]);
    pod["containers"][0]["image"] = rollout.image.as_str().into();
    pod["volumes"] = json!([{ "name": "config", "secret": { "secretName": rollout.secret() } }]);
    set
}

/// The DaemonSet of a wave whose turn has not come, with pods that install nothing. The controller limits how many pods
/// are replaced at once, and not how many are created: a DaemonSet that began with the change would make it on all
/// nodes at the same time.
pub fn idle(rollout: &Rollout, wave: &Wave, order: usize) -> Value {
    let mut set = daemon_set(rollout, wave, order);
    let template = &mut set["spec"]["template"];
    template["metadata"]["annotations"] = json!({ REVISION: IDLE });
    let pod = template["spec"].as_object_mut().expect("a pod's spec is an object");
    pod.remove("initContainers");
    pod.remove("volumes");
    if let Some(container) = pod["containers"][0].as_object_mut() {
        // Calico may not be there yet.
        container.remove("readinessProbe");
    }
    set
}

/// Whether pods with this template install something, and not this revision.
pub fn installs_another(template: &Value, than: &str) -> bool {
    template["metadata"]["annotations"][REVISION].as_str().is_some_and(|revision| ![IDLE, than].contains(&revision))
}

/// The name of a wave's DaemonSet.
pub(super) fn name(wave: &Wave) -> String {
    format!("calicoctl-win-{}", wave.name)
}

fn labels() -> Value {
    let (key, value) = MANAGED.split_once('=').expect("it is a label");
    Value::Object(Map::from_iter([(key.to_owned(), value.into())]))
}

fn wave_labels(wave: &Wave) -> Value {
    let mut labels = labels();
    labels[WAVE] = wave.name.as_str().into();
    labels
}

fn manifest() -> Vec<Value> {
    yaml::read_all(MANIFEST).expect("the program's own manifest is valid")
}

#[cfg(test)]
mod tests {
    use super::super::waves::{Wishes, waves};
    use super::*;

    fn rollout() -> Rollout {
        Rollout {
            namespace: "fleet".into(),
            calico_namespace: "calico-system".into(),
            image: "registry.example.com/calicoctl-win:1".into(),
            api_server: "https://192.0.2.10:6443".into(),
            config: "spec: {calico: {version: v3.32.1}}\n".into(),
            max_unavailable: MaxUnavailable::Percent(10),
            vni: None,
            former_vni: None,
            etcd: false,
        }
    }

    fn wave() -> Wave {
        waves(&Wishes::default(), &[]).remove(0)
    }

    #[test]
    fn a_limit_is_a_number_or_a_share_of_the_nodes() {
        let parsed = |text: &str| text.parse::<MaxUnavailable>();
        assert_eq!(parsed("3").unwrap().of(1000), 3);
        assert_eq!((parsed("10%").unwrap().of(1000), parsed("1%").unwrap().of(7)), (100, 1));
        assert!(["0", "0%", "101%", "-1", "", "x"].iter().all(|text| parsed(text).is_err()));
    }

    #[test]
    fn another_config_image_or_address_is_another_revision_of_the_pods() {
        let first = rollout();
        let template = |rollout: &Rollout| daemon_set(rollout, &wave(), 1)["spec"]["template"].clone();
        assert_eq!(template(&first), template(&first.clone()));
        for other in [
            Rollout { config: "spec: {calico: {version: v3.33.0}}\n".into(), ..rollout() },
            Rollout { image: "registry.example.com/calicoctl-win:2".into(), ..rollout() },
            Rollout { api_server: "https://192.0.2.11:6443".into(), ..rollout() },
        ] {
            assert_ne!(other.revision(), first.revision());
            assert_ne!(template(&other), template(&first));
        }
        // The limit and the order are not the pods'.
        let limit = Rollout { max_unavailable: MaxUnavailable::Nodes(1), ..rollout() };
        assert_eq!(template(&limit), template(&first));
    }

    #[test]
    fn the_config_is_in_a_secret_of_the_namespace_and_nowhere_else() {
        let rollout = rollout();
        let all = preamble(&rollout, "kind: ClusterRole\nmetadata: {name: one}\n");
        let secret = all.iter().find(|object| object["kind"] == "Secret").unwrap();
        assert_eq!(secret["data"]["node.yaml"], BASE64_STANDARD.encode(&rollout.config));
        assert_eq!(secret["immutable"], true);
        for object in all.iter().filter(|object| object["kind"] != "Secret") {
            assert!(!object.to_string().contains("v3.32.1"), "{object}");
        }
        assert!(!daemon_set(&rollout, &wave(), 1).to_string().contains("v3.32.1"));
        let used = &daemon_set(&rollout, &wave(), 1)["spec"]["template"]["spec"]["volumes"][0]["secret"];
        assert_eq!(used["secretName"], secret["metadata"]["name"]);
        let account = all.iter().find(|object| object["kind"] == "ServiceAccount").unwrap();
        assert_eq!(account["metadata"]["namespace"], "fleet");
    }

    #[test]
    fn pods_of_a_wave_that_waits_install_nothing() {
        let idle = idle(&rollout(), &wave(), 1);
        let pod = &idle["spec"]["template"]["spec"];
        assert_eq!((pod.get("initContainers"), pod["containers"][0].get("readinessProbe")), (None, None));
        let change = daemon_set(&rollout(), &wave(), 1);
        assert!(change["spec"]["template"]["spec"]["containers"][0].get("readinessProbe").is_some());
        assert_eq!(idle["spec"]["selector"], change["spec"]["selector"], "it cannot be changed later");
    }

    #[test]
    fn the_pods_of_a_change_of_the_vni_say_which_and_the_daemon_set_which_it_was() {
        let vni = |number: u32| Some(Vni::try_from(number).unwrap());
        let rollout = Rollout { vni: vni(5000), former_vni: vni(4096), ..rollout() };
        let (change, waits) = (daemon_set(&rollout, &wave(), 1), idle(&rollout, &wave(), 1));
        for set in [&change, &waits] {
            let annotations = &set["metadata"]["annotations"];
            assert_eq!((&annotations[VNI], &annotations[FORMER_VNI]), (&json!("5000"), &json!("4096")));
        }
        let of_pods = |set: &Value| set["spec"]["template"]["metadata"]["annotations"].clone();
        assert_eq!(of_pods(&change), json!({ REVISION: rollout.revision(), VNI: "5000" }));
        assert_eq!(of_pods(&waits), json!({ REVISION: IDLE }));
    }
}
