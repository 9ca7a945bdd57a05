//! Waits for the Linux side: until FelixConfiguration has a VNI.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Cluster;
use super::api::{path, query};
use super::watch::{News, follow};
use crate::facts::ApiGroup;
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::values::Vni;

/// How often to check for cancellation, and to report the progress.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "vxlanVNI")]
    vni: Option<u32>,
}

impl Cluster {
    /// The VNI of FelixConfiguration `default`, or the default if it has none.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or has no Calico.
    pub fn felix_vni(&self) -> Result<u32> {
        let at = |group, version| path(["apis", group, version, "felixconfigurations", "default"]);
        let felix = match self.get::<Configuration>(&at("crd.projectcalico.org", "v1")) {
            Err(error) if Fault::id_of(&error) == "ApiNotServed" => self.get(&at("projectcalico.org", "v3")),
            other => other,
        }?;
        Ok(felix.and_then(|felix| felix.spec.vni).unwrap_or(Vni::DEFAULT.get()))
    }

    /// Waits until FelixConfiguration `default` has this VNI, with a watch.
    ///
    /// # Errors
    /// `ClusterVniNotSeen` at the limit, with its last value; `RunCancelled`.
    pub fn await_vni(
        &self,
        group: ApiGroup,
        wanted: Vni,
        limit: Duration,
        stop: &dyn Fn() -> bool,
        events: Sink,
    ) -> Result<()> {
        let (name, version) = match group {
            ApiGroup::V1 => ("crd.projectcalico.org", "v1"),
            ApiGroup::V3 => ("projectcalico.org", "v3"),
        };
        let list = path(["apis", name, version, "felixconfigurations"]);
        let list = query(&list, &[("fieldSelector", "metadata.name=default")]);
        self.runtime.block_on(async {
            let (tell, mut heard) = unbounded_channel::<News<Configuration>>();
            let mut tasks = JoinSet::new();
            let listen = move |news| drop(tell.send(news));
            tasks.spawn(follow(Arc::clone(&self.api), list, None, listen));
            let begun = Instant::now();
            let mut last = "it was not read yet".to_owned();
            while begun.elapsed() < limit {
                if stop() {
                    return Err(Fault::new(
                        Exit::Cancelled,
                        "RunCancelled",
                        "the wait for the cluster's VNI was cancelled",
                    )
                    .hint("the node works and remains cordoned; to uncordon it: calicoctl-win resume")
                    .into());
                }
                let said = match timeout(LOOK, heard.recv()).await {
                    Ok(Some(News::There(felix))) => Some(felix.spec.vni),
                    Ok(Some(News::All(all))) => Some(all.first().and_then(|felix| felix.spec.vni)),
                    Ok(Some(News::Gone(_))) => Some(None),
                    Ok(Some(News::Lost(failure))) => {
                        last = failure.fault.what;
                        None
                    }
                    Ok(None) | Err(_) => None,
                };
                if let Some(vni) = said.map(|vni| vni.unwrap_or(Vni::DEFAULT.get())) {
                    if vni == wanted.get() {
                        return Ok(());
                    }
                    last = format!("it has {vni}");
                }
                let what = format!("FelixConfiguration to have VNI {wanted}");
                events(Event::Waiting { what, elapsed: begun.elapsed(), limit });
            }
            let what = format!("FelixConfiguration does not have VNI {wanted} after {} s: {last}", limit.as_secs());
            Err(Fault::new(Exit::FailedIncomplete, "ClusterVniNotSeen", what)
                .hint("the node works and remains cordoned; change the cluster's VNI, then run: calicoctl-win resume")
                .into())
        })
    }
}
