//! Taints of a Node. A patch replaces the whole list, so it carries the version that was read, and keeps all other
//! taints with their unknown fields.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cluster;
use super::node::{absent, node_path};
use crate::fault::{Exit, Fault};

/// How often a change is retried after a conflict.
const TRIES: usize = 5;

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    const ALL: [(Self, &'static str); 3] = [
        (Self::NoSchedule, "NoSchedule"),
        (Self::PreferNoSchedule, "PreferNoSchedule"),
        (Self::NoExecute, "NoExecute"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(effect, _)| *effect == self).map_or("", |(_, word)| word)
    }
}

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(_, word)| *word == text).map(|(effect, _)| *effect);
        known.ok_or_else(|| format!("`{text}` is not an effect: NoSchedule, PreferNoSchedule or NoExecute"))
    }
}

/// A taint as people write it: `key=value:NoSchedule`. When removing taints, `key` alone and `key:NoSchedule` select
/// all that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: Option<String>,
    pub effect: Option<Effect>,
}

impl FromStr for Taint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As in kubectl: a minus at the end means "remove", which `untaint` already does.
        let text = text.strip_suffix('-').unwrap_or(text);
        let (rest, effect) = match text.rsplit_once(':') {
            Some((rest, effect)) => (rest, Some(effect.parse()?)),
            None => (text, None),
        };
        let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value.to_owned())));
        let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if key.is_empty() || !key.chars().all(good) || !value.iter().all(|value| value.chars().all(good)) {
            return Err(format!("`{text}` is not a taint: write KEY=VALUE:EFFECT, for example os=windows:NoSchedule"));
        }
        Ok(Self { key: key.into(), value, effect })
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, "={value}")?;
        }
        match self.effect {
            Some(effect) => write!(f, ":{}", effect.word()),
            None => Ok(()),
        }
    }
}

impl Taint {
    /// Whether an entry of the list has this key and, if there is one, this effect.
    fn means(&self, entry: &Value) -> bool {
        entry["key"] == self.key.as_str() && self.effect.is_none_or(|effect| entry["effect"] == effect.word())
    }

    fn same_value(&self, entry: &Value) -> bool {
        entry["value"].as_str().unwrap_or_default() == self.value.as_deref().unwrap_or_default()
    }
}

/// A Node's taints, as read.
#[derive(Debug, Clone, PartialEq)]
pub struct Taints(Vec<Value>);

impl Taints {
    /// Adds one. `overwrite`: one of the same key and effect gets the new value.
    ///
    /// # Errors
    /// `TaintExists` when there is one with another value, and `TaintNoEffect` without an effect.
    pub fn with(mut self, taint: &Taint, overwrite: bool) -> Result<Self> {
        let Some(effect) = taint.effect else {
            return Err(Fault::new(Exit::Usage, "TaintNoEffect", format!("the taint {taint} has no effect"))
                .hint(format!("write {taint}:NoSchedule, {taint}:PreferNoSchedule or {taint}:NoExecute"))
                .into());
        };
        let mut entry = json!({ "key": taint.key, "effect": effect.word() });
        if let Some(value) = taint.value.as_ref().filter(|value| !value.is_empty()) {
            entry["value"] = value.clone().into();
        }
        match self.0.iter_mut().find(|entry| taint.means(entry)) {
            Some(there) if taint.same_value(there) => {}
            Some(there) if overwrite => *there = entry,
            Some(there) => {
                let what = format!("the node has the taint {} with another value: {}", taint.key, there["value"]);
                return Err(Fault::new(Exit::Conflict, "TaintExists", what)
                    .hint("--overwrite replaces the value; find out first who set it")
                    .into());
            }
            None => self.0.push(entry),
        }
        Ok(self)
    }

    /// Removes those that `taint` selects.
    #[must_use]
    pub fn without(mut self, taint: &Taint) -> Self {
        self.0.retain(|entry| !(taint.means(entry) && (taint.value.is_none() || taint.same_value(entry))));
        self
    }
}

#[derive(Deserialize)]
struct Node {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "resourceVersion")]
    version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Vec<Value>,
}

impl Cluster {
    /// A Node's taints.
    pub fn taints(&self, node: &str) -> Result<Taints> {
        self.versioned(node).map(|(taints, _)| taints)
    }

    fn versioned(&self, node: &str) -> Result<(Taints, String)> {
        let Node { metadata, spec } = self.get(&node_path(node))?.ok_or_else(|| absent(node))?;
        Ok((Taints(spec.taints), metadata.version))
    }

    /// Changes a Node's taints with `edit`; false if nothing changes. After a conflict, `edit` is called again.
    ///
    /// # Errors
    /// Those of `edit`; `ClusterConflict` when the Node keeps changing.
    pub fn retaint(&self, node: &str, edit: &dyn Fn(Taints) -> Result<Taints>) -> Result<bool> {
        let mut tries = 0;
        loop {
            let (before, version) = self.versioned(node)?;
            let after = edit(before.clone())?;
            if after == before {
                return Ok(false);
            }
            let list = if after.0.is_empty() { Value::Null } else { Value::Array(after.0) };
            let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": list } });
            tries += 1;
            match self.merge_patch::<_, Value>(&node_path(node), &patch) {
                Ok(_) => return Ok(true),
                Err(error) if tries < TRIES && is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_conflict(error: &anyhow::Error) -> bool {
    Fault::id_of(error) == "ClusterConflict"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        text.parse().unwrap()
    }

    /// From the node-lifecycle controller, with an unknown field.
    fn cordoned() -> Taints {
        Taints(vec![
            json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-21T00:29:17Z"}),
        ])
    }

    #[test]
    fn other_taints_are_kept_unchanged() {
        let added = cordoned().with(&taint("os=windows:NoSchedule"), false).unwrap();
        assert_eq!(
            added.0,
            [cordoned().0[0].clone(), json!({"key": "os", "effect": "NoSchedule", "value": "windows"})]
        );
        assert_eq!(
            added.clone().with(&taint("os=windows:NoSchedule"), false).unwrap(),
            added,
            "adding it again changes nothing"
        );
        assert_eq!(added.without(&taint("os")), cordoned());
    }

    #[test]
    fn another_value_is_replaced_only_with_overwrite() {
        let there = cordoned().with(&taint("os=windows:NoSchedule"), false).unwrap();
        let error = there.clone().with(&taint("os=other:NoSchedule"), false).unwrap_err();
        assert_eq!(error.to_string(), r#"the node has the taint os with another value: "windows""#);
        assert_eq!(there.clone().with(&taint("os=other:NoSchedule"), true).unwrap().0[1]["value"], "other");
        assert_eq!(
            there.with(&taint("os=other:NoExecute"), false).unwrap().0.len(),
            3,
            "another effect is another taint"
        );
    }

    #[test]
    fn taints_are_written_as_for_kubectl() {
        for text in ["os=windows:NoSchedule", "os:NoExecute", "a.b/c=d:PreferNoSchedule", "os"] {
            assert_eq!(taint(text).to_string(), text);
        }
        assert_eq!(taint("os:NoExecute-"), taint("os:NoExecute"));
        insta::assert_snapshot!("os=windows:Never".parse::<Taint>().unwrap_err(), @"`Never` is not an effect: NoSchedule, PreferNoSchedule or NoExecute");
        assert!("=x:NoSchedule".parse::<Taint>().is_err());
        assert!(cordoned().with(&taint("os"), false).is_err());
    }
}
