//! Waits for the Linux side: until FelixConfiguration has a VNI.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Cluster;
use super::api::{Form, path, query};
use super::watch::{News, follow};
use crate::facts::ApiGroup;
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::values::Vni;

/// How often to check for cancellation, and to report the progress.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
pub(super) struct Configuration {
    #[serde(default)]
    spec: Spec,
}

impl Configuration {
    fn vni(&self) -> u32 {
        self.spec.vni.unwrap_or(Vni::DEFAULT.get())
    }
}

/// The VNI that a watch of [`felix_list`] reports, if it reports one.
pub(super) fn vni_of(news: &News<Configuration>) -> Option<u32> {
    match news {
        News::There(felix) => Some(felix.vni()),
        News::All(all) => Some(all.first().map_or(Vni::DEFAULT.get(), Configuration::vni)),
        News::Gone(_) => Some(Vni::DEFAULT.get()),
        News::Lost(_) | News::Found => None,
    }
}

fn felix_path(group: ApiGroup) -> String {
    let (name, version) = group.parts();
    path(["apis", name, version, "felixconfigurations"])
}

/// The list with only FelixConfiguration `default`.
pub(super) fn felix_list(group: ApiGroup) -> String {
    query(&felix_path(group), &[("fieldSelector", "metadata.name=default")])
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "vxlanVNI")]
    vni: Option<u32>,
}

/// What to do with a node that waits for the cluster's VNI.
const STAYS_CORDONED: &str = "the node works and stays cordoned; change the cluster's VNI, then run: calicoctl-win resume\n\
                              or return to the VNI before: calicoctl-win resume --undo";

impl Cluster {
    /// The VNI of FelixConfiguration `default`, or the default if it has none.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or has no Calico.
    pub fn felix_vni(&self) -> Result<u32> {
        Ok(self.felix()?.1)
    }

    /// The same, with the group that serves it.
    pub(super) fn felix(&self) -> Result<(ApiGroup, u32)> {
        let (group, felix) =
            Self::of_calico(|group| self.get::<Configuration>(&format!("{}/default", felix_path(group))))?;
        Ok((group, felix.map_or(Vni::DEFAULT.get(), |felix| felix.vni())))
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
        let list = felix_list(group);
        self.runtime.block_on(async {
            let (tell, mut heard) = unbounded_channel::<News<Configuration>>();
            let mut tasks = JoinSet::new();
            let listen = move |news| drop(tell.send(news));
            tasks.spawn(follow(Arc::clone(&self.api), list, Form::Whole, None, listen));
            let begun = Instant::now();
            let mut last = "it was not read yet".to_owned();
            while begun.elapsed() < limit {
                if stop() {
                    return Err(Fault::new(
                        Exit::Cancelled,
                        "RunCancelled",
                        "the wait for the cluster's VNI was cancelled",
                    )
                    .hint(STAYS_CORDONED)
                    .into());
                }
                let said = match timeout(LOOK, heard.recv()).await {
                    Ok(Some(News::Lost(failure))) => {
                        last = failure.fault.what;
                        None
                    }
                    Ok(Some(news)) => vni_of(&news),
                    Ok(None) | Err(_) => None,
                };
                if let Some(vni) = said {
                    if vni == wanted.get() {
                        return Ok(());
                    }
                    last = format!("it has {vni}");
                }
                let what = format!("FelixConfiguration to have VNI {wanted}");
                events(Event::Waiting { what, elapsed: begun.elapsed(), limit });
            }
            let what = format!("FelixConfiguration does not have VNI {wanted} after {} s: {last}", limit.as_secs());
            Err(Fault::new(Exit::FailedIncomplete, "ClusterVniNotSeen", what).hint(STAYS_CORDONED).into())
        })
    }
}
