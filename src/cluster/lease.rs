//! The Lease on a Node: one change at a time, from any machine. The lock on the machine separates its own runs; the
//! Lease shows other machines, and people, which run is in progress.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cluster;
use super::api::path;
use crate::fault::{Exit, Fault};

/// The namespace of Node Leases; every cluster has it since 1.14.
pub const NAMESPACE: &str = "kube-node-lease";

/// How long a Lease lasts without renewal: longer than a virtual switch takes to come up, and short enough after a
/// machine has died.
const HOLDS: Duration = Duration::from_secs(180);

/// How often the Lease is tried if another holder is faster.
const TRIES: usize = 4;

/// The holder of a Lease: a run, and its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The machine's name for people. Its own lock separates its runs, so one takes over from another.
    pub host: String,
    /// Distinguishes it from another machine of that name.
    pub machine: String,
    pub run: String,
}

impl Owner {
    fn identity(&self) -> String {
        format!("{}/{}/{}", self.host, self.machine, self.run)
    }

    fn is_of_same_machine(&self, identity: &str) -> bool {
        let mut parts = identity.split('/');
        let same = |part: Option<&str>, own: &str| part.is_some_and(|part| part.eq_ignore_ascii_case(own));
        // An older version wrote the host and the run.
        let mine = same(parts.next(), &self.host);
        mine && (same(parts.next(), &self.machine) || parts.next().is_none())
    }
}

#[derive(Deserialize)]
struct Lease {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    lease_transitions: Option<i64>,
    renew_time: Option<Timestamp>,
}

impl Spec {
    fn holder(&self) -> Option<&str> {
        self.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// When it expires; one without a duration never does.
    fn until(&self) -> Option<Timestamp> {
        let length = SignedDuration::from_secs(self.lease_duration_seconds?);
        self.renew_time?.checked_add(length).ok()
    }
}

fn lease_path(node: &str) -> String {
    path(["apis", "coordination.k8s.io", "v1", "namespaces", NAMESPACE, "leases", &lease_name(node)])
}

fn lease_name(node: &str) -> String {
    format!("calicoctl-win.{node}")
}

fn micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

impl Cluster {
    /// Takes the Lease on a Node: a free one, an expired one, or one of the same machine.
    ///
    /// # Errors
    /// BUSY `NodeLeased` naming the owner; and when the cluster cannot be asked, or refuses.
    pub fn take_lease(&self, node: &str, owner: &Owner) -> Result<()> {
        for _ in 1..TRIES {
            let taken = match self.get::<Lease>(&lease_path(node))? {
                None => self.make_lease(node, owner),
                Some(lease) => {
                    if let Some(holder) = lease.spec.holder().filter(|holder| !owner.is_of_same_machine(holder))
                        && lease.spec.until().is_none_or(|until| self.now() < until)
                    {
                        return Err(leased(node, holder, &lease.spec).into());
                    }
                    self.write_lease(node, &lease, owner, HOLDS)
                }
            };
            match taken {
                Err(error) if acquired_first(&error) => {}
                other => return other,
            }
        }
        let what = format!("the Lease on node {node} keeps changing");
        Err(Fault::new(Exit::Busy, "NodeLeased", what)
            .hint("find out what changes it, then run the command again")
            .into())
    }

    /// Renews the Lease. False if it belongs to another machine now.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn renew_lease(&self, node: &str, owner: &Owner) -> Result<bool> {
        self.extend_lease(node, owner, HOLDS)
    }

    /// Extends the Lease by this much from now, without further renewal.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn extend_lease(&self, node: &str, owner: &Owner, length: Duration) -> Result<bool> {
        match self.get::<Lease>(&lease_path(node))? {
            Some(lease) if lease.spec.holder() == Some(&owner.identity()) => {
                match self.write_lease(node, &lease, owner, length) {
                    Err(error) if acquired_first(&error) => Ok(false),
                    other => other.map(|()| true),
                }
            }
            _ => Ok(false),
        }
    }

    /// Releases the Lease, if a run of the owner's machine has it; another's is kept.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn release_lease(&self, node: &str, owner: &Owner) -> Result<bool> {
        let at = lease_path(node);
        let Some(lease) = self.get::<Lease>(&at)? else { return Ok(false) };
        if !lease.spec.holder().is_some_and(|holder| owner.is_of_same_machine(holder)) {
            return Ok(false);
        }
        let Metadata { uid, resource_version } = lease.metadata;
        let this = json!({ "preconditions": { "uid": uid, "resourceVersion": resource_version } });
        match self.runtime.block_on(self.api.delete_when(&at, &this)) {
            Ok(gone) => Ok(gone),
            Err(failure) if failure.fault.id == "ClusterConflict" => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    fn make_lease(&self, node: &str, owner: &Owner) -> Result<()> {
        let now = micro(self.now());
        let spec = json!({
            "holderIdentity": owner.identity(), "leaseDurationSeconds": HOLDS.as_secs(), "leaseTransitions": 0,
            "acquireTime": now, "renewTime": now,
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": lease_name(node), "namespace": NAMESPACE }, "spec": spec,
        });
        let leases = path(["apis", "coordination.k8s.io", "v1", "namespaces", NAMESPACE, "leases"]);
        self.post::<_, Value>(&leases, &lease).map(drop)
    }

    /// Only over the version that was read: otherwise another holder has it.
    fn write_lease(&self, node: &str, before: &Lease, owner: &Owner, length: Duration) -> Result<()> {
        let (now, identity) = (micro(self.now()), owner.identity());
        let mut spec =
            json!({ "holderIdentity": identity, "leaseDurationSeconds": length.as_secs(), "renewTime": now });
        if before.spec.holder() != Some(&identity) {
            spec["acquireTime"] = now.into();
            spec["leaseTransitions"] = (before.spec.lease_transitions.unwrap_or(0) + 1).into();
        }
        let patch = json!({ "metadata": { "resourceVersion": before.metadata.resource_version }, "spec": spec });
        self.merge_patch::<_, Value>(&lease_path(node), &patch).map(drop)
    }

    /// The cluster's time, by which every machine judges a Lease alike.
    fn now(&self) -> Timestamp {
        Timestamp::now() - SignedDuration::from_secs(self.api.clock_skew().unwrap_or(0))
    }
}

/// Another holder created or changed the Lease between the read and the write.
fn acquired_first(error: &anyhow::Error) -> bool {
    ["ClusterConflict", "ClusterObjectExists"].contains(&Fault::id_of(error))
}

fn leased(node: &str, holder: &str, spec: &Spec) -> Fault {
    let (machine, run) = holder.rsplit_once('/').unwrap_or(("", holder));
    let at = match machine.split_once('/') {
        Some((host, id)) if !id.is_empty() => format!(" on {host} (machine {id})"),
        Some((host, _)) => format!(" on {host}"),
        None if machine.is_empty() => String::new(),
        None => format!(" on {machine}"),
    };
    let until = spec.until().map_or_else(|| "never expires".into(), |until| format!("is valid until {until:.0}"));
    let what = format!("node {node} is being changed by run {run}{at}, whose Lease {until}");
    Fault::new(Exit::Busy, "NodeLeased", what).hint(format!(
        "wait for it; if that run is no longer in progress: kubectl -n {NAMESPACE} delete lease {}",
        lease_name(node)
    ))
}

/// How long the Lease of this run is still valid, by this machine's clock.
#[derive(Debug, Clone)]
pub struct Validity(Arc<Mutex<Option<Instant>>>);

impl Validity {
    fn new(asked: Instant) -> Self {
        Self(Arc::new(Mutex::new(Some(asked + HOLDS))))
    }

    /// Measured from before the request, so that it never seems longer than it is. None: it is another's.
    fn set(&self, renewed: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = renewed.map(|asked| asked + HOLDS);
    }

    pub fn left(&self) -> Duration {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

/// Renews a Lease on its own thread while this value lives.
pub struct LeaseRenewer {
    stop: Sender<()>,
    thread: JoinHandle<(Cluster, bool)>,
    validity: Validity,
    node: String,
    owner: Owner,
}

impl LeaseRenewer {
    /// Starts to renew a Lease that was taken, over a connection of its own.
    pub fn new(cluster: Cluster, node: &str, owner: Owner) -> Self {
        Self::every(HOLDS / 3, cluster, node, owner)
    }

    fn every(pause: Duration, cluster: Cluster, node: &str, owner: Owner) -> Self {
        let (stop, asked) = channel();
        let (name, holder) = (node.to_owned(), owner.clone());
        let validity = Validity::new(Instant::now());
        let told = validity.clone();
        let thread = thread::spawn(move || {
            let lost = renew(&cluster, &name, &holder, pause, &asked, &told);
            (cluster, lost)
        });
        Self { stop, thread, validity, node: node.to_owned(), owner }
    }

    /// How long the Lease is still valid.
    pub fn validity(&self) -> Validity {
        self.validity.clone()
    }

    /// Stops renewing and releases the Lease. False if another has taken it meanwhile.
    ///
    /// # Errors
    /// When the cluster cannot be asked: the Lease then expires.
    pub fn release(self) -> Result<bool> {
        let (node, owner) = (self.node.clone(), self.owner.clone());
        let (cluster, lost) = self.end()?;
        cluster.release_lease(&node, &owner).map(|_| !lost)
    }

    /// Stops renewing and extends the Lease, for the next run on this machine.
    ///
    /// # Errors
    /// Those of [`Self::release`].
    pub fn leave_for(self, length: Duration) -> Result<bool> {
        let (node, owner) = (self.node.clone(), self.owner.clone());
        let (cluster, _) = self.end()?;
        cluster.extend_lease(&node, &owner, length)
    }

    fn end(self) -> Result<(Cluster, bool)> {
        drop(self.stop);
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread that renewed the Lease panicked"))
    }
}

/// Whether the Lease was lost to another holder. While the cluster does not answer, it is not.
fn renew(
    cluster: &Cluster,
    node: &str,
    owner: &Owner,
    pause: Duration,
    asked: &Receiver<()>,
    validity: &Validity,
) -> bool {
    loop {
        match asked.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {
                let begun = Instant::now();
                match cluster.renew_lease(node, owner) {
                    Ok(true) => validity.set(Some(begun)),
                    Ok(false) => {
                        validity.set(None);
                        return true;
                    }
                    Err(_) => {}
                }
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::Method;

    use super::*;
    use crate::sandbox::cluster::{EmbeddedCluster, Seed};
    use crate::settings::Limits;

    fn owner(host: &str, run: &str) -> Owner {
        Owner { host: host.into(), machine: "4c1d".into(), run: run.into() }
    }

    fn embedded() -> (tempfile::TempDir, EmbeddedCluster) {
        let dir = tempfile::tempdir().unwrap();
        let cluster = EmbeddedCluster::start(dir.path(), &Seed::new("win-a1"), &[]).unwrap();
        (dir, cluster)
    }

    fn client(embedded: &EmbeddedCluster) -> Cluster {
        let text = embedded.admin_kubeconfig_direct();
        Cluster::connect(&text, Path::new("."), None, None, Limits::within(Duration::from_secs(30))).unwrap()
    }

    fn spec(embedded: &EmbeddedCluster) -> Option<Value> {
        embedded.as_admin(&Method::GET, &lease_path("win-a1"), None).ok().map(|lease| lease["spec"].clone())
    }

    #[test]
    fn one_machine_at_a_time_changes_a_node() {
        let (_dir, embedded) = embedded();
        let (here, there) = (owner("win-a1", "r1"), owner("jump-host", "r7"));
        let cluster = client(&embedded);
        cluster.take_lease("win-a1", &here).unwrap();
        let taken = spec(&embedded).unwrap();
        assert_eq!((&taken["holderIdentity"], &taken["leaseTransitions"]), (&json!("win-a1/4c1d/r1"), &json!(0)));

        let error = cluster.take_lease("win-a1", &there).unwrap_err();
        let fault = Fault::of(&error).unwrap();
        assert_eq!((fault.exit, fault.id), (Exit::Busy, "NodeLeased"));
        assert!(
            fault.what.starts_with("node win-a1 is being changed by run r1 on win-a1 (machine 4c1d)"),
            "{}",
            fault.what
        );
        assert!(!cluster.release_lease("win-a1", &there).unwrap(), "another's Lease is kept");

        // Another machine of the same name, for example a clone.
        let twin = Owner { machine: "77aa".into(), ..owner("win-a1", "r3") };
        assert_eq!(Fault::id_of(&cluster.take_lease("win-a1", &twin).unwrap_err()), "NodeLeased");
        // A run of the same machine, which holds the machine's lock: the previous run is dead.
        cluster.take_lease("win-a1", &owner("WIN-A1", "r2")).unwrap();
        assert_eq!(spec(&embedded).unwrap()["leaseTransitions"], 1);
        assert!(cluster.release_lease("win-a1", &here).unwrap());
        assert_eq!(spec(&embedded), None);
        cluster.take_lease("win-a1", &there).unwrap();
    }

    #[test]
    fn an_expired_lease_is_free() {
        let (_dir, embedded) = embedded();
        let cluster = client(&embedded);
        cluster.take_lease("win-a1", &owner("jump-host", "r7")).unwrap();
        let old = json!({"spec": {"renewTime": "2026-01-02T15:04:05.000000Z"}});
        embedded.as_admin(&Method::PATCH, &lease_path("win-a1"), Some(&old)).unwrap();
        cluster.take_lease("win-a1", &owner("win-a1", "r1")).unwrap();
        assert_eq!(spec(&embedded).unwrap()["holderIdentity"], "win-a1/4c1d/r1");
    }

    #[test]
    fn a_lease_is_renewed_during_a_run_and_then_released() {
        let (_dir, embedded) = embedded();
        let (cluster, here) = (client(&embedded), owner("win-a1", "r1"));
        cluster.take_lease("win-a1", &here).unwrap();
        let first = spec(&embedded).unwrap();
        let renewer = LeaseRenewer::every(Duration::from_millis(1), client(&embedded), "win-a1", here.clone());
        let begun = Instant::now();
        while spec(&embedded).unwrap()["renewTime"] == first["renewTime"] {
            assert!(begun.elapsed() < Duration::from_secs(30), "it is never renewed");
            thread::yield_now();
        }
        assert_eq!(spec(&embedded).unwrap()["acquireTime"], first["acquireTime"]);
        let validity = renewer.validity();
        assert!(validity.left() > HOLDS - Duration::from_secs(30), "{:?}", validity.left());
        let theirs = json!({"spec": {"holderIdentity": "jump-host/r7"}});
        embedded.as_admin(&Method::PATCH, &lease_path("win-a1"), Some(&theirs)).unwrap();
        while !validity.left().is_zero() {
            assert!(begun.elapsed() < Duration::from_secs(30), "a Lease that another machine took is not valid");
            thread::yield_now();
        }
        let _lost = renewer.release().unwrap();
        embedded.as_admin(&Method::DELETE, &lease_path("win-a1"), None).unwrap();
        cluster.take_lease("win-a1", &here).unwrap();
        let renewer = LeaseRenewer::new(client(&embedded), "win-a1", here.clone());
        assert!(renewer.release().unwrap());
        assert_eq!(spec(&embedded), None);

        cluster.take_lease("win-a1", &here).unwrap();
        let renewer = LeaseRenewer::new(client(&embedded), "win-a1", here);
        assert!(renewer.leave_for(Duration::from_secs(600)).unwrap());
        assert_eq!(spec(&embedded).unwrap()["leaseDurationSeconds"], 600);
    }
}
