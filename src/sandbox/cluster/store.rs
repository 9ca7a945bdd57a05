//! The cluster's state: every object by kind, namespace and name, in one readable JSON file, with the history that
//! watches and paged lists need.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use rustls::crypto::ring;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::resources::{Layout, Resource};
use crate::node::files;

/// The release on the Linux nodes.
pub const CALICO: &str = "v3.32.1";

/// The key of an object. `kind` is the qualified plural, for example `felixconfigurations.crd.projectcalico.org`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(resource: &Resource, namespace: &str, name: &str) -> Self {
        // The path of a namespace itself names it as the namespace too.
        let namespace = if resource.namespaced { namespace } else { "" };
        Self { kind: resource.qualified(), namespace: namespace.into(), name: name.into() }
    }
}

/// One change: the object before and after it, one of which may be absent.
#[derive(Debug, Clone)]
pub struct Change {
    pub version: u64,
    pub key: Key,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// How many changes are kept for watches, like etcd's compaction, which keeps some minutes.
const HISTORY: usize = 4096;

#[derive(Debug, Deserialize)]
struct Saved {
    layout: Layout,
    #[serde(default = "seed_calico")]
    calico: String,
    version: u64,
    objects: Vec<(Key, Value)>,
}

#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// Exists and is locked while this process works on the state; contains the saved version. Closing unlocks it:
    /// Rust's standard library cannot unlock files under Wine.
    lock: Option<File>,
    pub layout: Layout,
    /// The release of Calico whose definitions the cluster has.
    calico: String,
    version: u64,
    saved: u64,
    /// Changes up to here are discarded.
    compacted: u64,
    objects: BTreeMap<Key, Value>,
    /// The serialized form of objects that have not changed: writing all objects again at every change was half of the
    /// cost of a command on a sandbox.
    written: BTreeMap<Key, String>,
    history: VecDeque<Change>,
    changed: watch::Sender<u64>,
}

impl Store {
    /// The cluster in `path`, or an empty one, locked against other processes until [`Self::leave`]. Earlier changes
    /// are compacted.
    pub fn open(path: PathBuf, layout: Layout, calico: &str) -> Result<Self> {
        let lock = locked(&path)?;
        let saved = read(&path)?;
        let saved = saved.unwrap_or_else(|| Saved { layout, calico: calico.into(), version: 1, objects: Vec::new() });
        Ok(Self {
            path,
            lock: Some(lock),
            layout: saved.layout,
            calico: saved.calico,
            version: saved.version,
            saved: saved.version,
            compacted: saved.version,
            objects: saved.objects.into_iter().collect(),
            written: BTreeMap::new(),
            history: VecDeque::new(),
            changed: watch::Sender::new(0),
        })
    }

    /// A file in the folder of the state.
    pub fn next_to(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Locks the state against other processes on the same folder (for example an `install` and a `status --wait`), and
    /// loads their changes.
    pub fn enter(&mut self) -> Result<()> {
        let mut version = String::new();
        self.lock.insert(locked(&self.path)?).read_to_string(&mut version)?;
        if version.parse().is_ok_and(|v: u64| v != self.saved) {
            self.load_changes()?;
        }
        Ok(())
    }

    /// Saves and unlocks.
    pub fn leave(&mut self) -> Result<()> {
        let saved = self.save();
        self.lock = None;
        saved
    }

    /// Loads what another process saved, and reports it to the watches as single changes.
    fn load_changes(&mut self) -> Result<()> {
        let Some(saved) = read(&self.path)? else { return Ok(()) };
        self.written.clear();
        let before = std::mem::replace(&mut self.objects, saved.objects.into_iter().collect());
        let mut changes = Vec::new();
        for (key, object) in self.objects.iter().filter(|(key, object)| before.get(key) != Some(object)) {
            let version = text(object, "/metadata/resourceVersion").and_then(|v| v.parse().ok());
            let version = version.unwrap_or(saved.version);
            let (key, before) = (key.clone(), before.get(key).cloned());
            changes.push(Change { version, key, before, after: Some(object.clone()) });
        }
        for (key, object) in before {
            if !self.objects.contains_key(&key) {
                changes.push(Change { version: saved.version, key, before: Some(object), after: None });
            }
        }
        changes.sort_by_key(|change| change.version);
        self.history.extend(changes);
        self.calico = saved.calico;
        self.version = saved.version;
        self.saved = saved.version;
        self.changed.send_replace(self.version);
        Ok(())
    }

    /// The release line of Calico's definitions: `v3.32`.
    pub fn calico_line(&self) -> &str {
        let end = self.calico.match_indices('.').nth(1).map_or(self.calico.len(), |(at, _)| at);
        &self.calico[..end]
    }

    /// Uses the definitions of another release from now on.
    pub fn define_by(&mut self, release: &str) {
        release.clone_into(&mut self.calico);
    }

    /// Discards the history, so that everything so far is "too old" to watch from.
    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
    }

    /// Writes the file if anything changed, completely and by rename, and wakes the watchers.
    fn save(&mut self) -> Result<()> {
        if self.saved == self.version {
            return Ok(());
        }
        let fresh = self.path.with_extension("json.new");
        fs::write(&fresh, self.document()?).with_context(|| format!("write {}", fresh.display()))?;
        files::rename(&fresh, &self.path).with_context(|| format!("write {}", self.path.display()))?;
        let lock = self.lock.as_mut().context("save the cluster's state without its lock")?;
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(self.version.to_string().as_bytes()).context("record the cluster's version")?;
        self.saved = self.version;
        self.changed.send_replace(self.version);
        Ok(())
    }

    /// The file: a [`Saved`], with an object's lines after the other's.
    fn document(&mut self) -> Result<String> {
        let layout = serde_json::to_string(&self.layout)?;
        let calico = serde_json::to_string(&self.calico)?;
        let mut text =
            format!("{{\n\"layout\": {layout},\n\"calico\": {calico},\n\"version\": {},\n\"objects\": [", self.version);
        for (at, (key, object)) in self.objects.iter().enumerate() {
            if !self.written.contains_key(key) {
                self.written.insert(key.clone(), serde_json::to_string_pretty(&(key, object))?);
            }
            text.push_str(if at == 0 { "\n" } else { ",\n" });
            text.push_str(&self.written[key]);
        }
        text.push_str("\n]\n}\n");
        Ok(text)
    }

    /// Notifies of every saved change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// The objects of a kind, of one namespace or of all, by namespace and name.
    pub fn list<'a>(
        &'a self,
        kind: &'a Resource,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let kind = kind.qualified();
        let from = Key { kind: kind.clone(), namespace: namespace.unwrap_or_default().into(), name: String::new() };
        self.objects
            .range(from..)
            .take_while(move |(k, _)| k.kind == kind)
            .filter(move |(k, _)| namespace.is_none_or(|n| n == k.namespace))
    }

    /// The objects of a kind as they were at `version`; none if that is compacted.
    pub fn list_at(&self, kind: &Resource, namespace: Option<&str>, version: u64) -> Option<Vec<(Key, Value)>> {
        if version < self.compacted {
            return None;
        }
        let mut then: BTreeMap<Key, Value> = self.list(kind, namespace).map(|(k, v)| (k.clone(), v.clone())).collect();
        let kind = kind.qualified();
        for change in self.history.iter().rev().take_while(|c| c.version > version) {
            if change.key.kind != kind || namespace.is_some_and(|n| n != change.key.namespace) {
                continue;
            }
            match &change.before {
                Some(before) => drop(then.insert(change.key.clone(), before.clone())),
                None => drop(then.remove(&change.key)),
            }
        }
        Some(then.into_iter().collect())
    }

    /// The changes after `version`, oldest first.
    pub fn since(&self, version: u64) -> impl Iterator<Item = &Change> {
        self.history.iter().skip_while(move |c| c.version <= version)
    }

    /// Adds an object: the store sets uid, creationTimestamp, resourceVersion and generation.
    pub fn create(&mut self, resource: &Resource, key: Key, mut object: Value) -> Value {
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        let meta = &mut object["metadata"];
        meta["name"] = key.name.clone().into();
        if !key.namespace.is_empty() {
            meta["namespace"] = key.namespace.clone().into();
        }
        meta["uid"] = uid().into();
        meta["creationTimestamp"] = now().into();
        if resource.generation {
            meta["generation"] = 1.into();
        }
        self.put(key, Some(object)).expect("the object was just stored")
    }

    /// Replaces an object; its resourceVersion grows.
    pub fn update(&mut self, key: Key, object: Value) -> Value {
        self.put(key, Some(object)).expect("the object was just stored")
    }

    /// Removes an object and returns its last state, with the version of the deletion.
    pub fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut last = self.objects.get(key)?.clone();
        self.put(key.clone(), None);
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        Some(last)
    }

    /// The state before a dry run.
    pub fn snapshot(&self) -> (u64, BTreeMap<Key, Value>) {
        (self.version, self.objects.clone())
    }

    /// Restores a snapshot.
    pub fn restore(&mut self, (version, objects): (u64, BTreeMap<Key, Value>)) {
        self.version = version;
        self.objects = objects;
        self.written.clear();
        self.history.retain(|c| c.version <= version);
    }

    fn put(&mut self, key: Key, mut object: Option<Value>) -> Option<Value> {
        self.version += 1;
        if let Some(object) = &mut object {
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        self.written.remove(&key);
        let before = match object.clone() {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(&key),
        };
        self.history.push_back(Change { version: self.version, key, before, after: object.clone() });
        if self.history.len() > HISTORY
            && let Some(forgotten) = self.history.pop_front()
        {
            self.compacted = forgotten.version;
        }
        object
    }
}

/// The file next to the state that one process at a time locks; waits for the others.
fn locked(path: &Path) -> Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path.with_extension("lock"))?;
    file.lock().with_context(|| format!("lock the cluster in {}", path.display()))?;
    Ok(file)
}

/// Adds one object.
pub fn add(store: &mut Store, resource: &Resource, namespace: &str, name: &str, object: Value) -> Value {
    store.create(resource, Key::new(resource, namespace, name), object)
}

fn seed_calico() -> String {
    CALICO.into()
}

fn read(path: &Path) -> Result<Option<Saved>> {
    match fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("read the cluster in {}", path.display())).map(Some)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("read {}", path.display())),
    }
}

/// The current time in Kubernetes' format: RFC 3339 in UTC, whole seconds.
pub fn now() -> String {
    at(Timestamp::now())
}

pub fn at(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A random (version 4) UUID.
pub fn uid() -> String {
    let mut bytes = random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Five letters and digits, for `generateName`; no vowels, so no words.
pub fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    random()[..5].iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect()
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    ring::default_provider().secure_random.fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A string inside a document, or none: `text(pod, "/spec/nodeName")`.
pub fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The metadata to refer to an owner.
pub fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}
