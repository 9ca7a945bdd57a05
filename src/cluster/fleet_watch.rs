//! Follows a rollout: its objects are listed once, and watched from then on.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::Cluster;
use super::api::Form;
use super::felix::{Configuration, felix_list, vni_of};
use super::fleet::{Object, WINDOWS_NODES, managed, pods_path, revisions_path, sets_path};
use super::watch::{News, follow};
use crate::fault::Fault;
use crate::fleet::{DaemonSet, Fleet, FleetPod, Revision};

/// Changes in this time are reported as one: a rollout of thousands of nodes has many in a second.
const TOGETHER: Duration = Duration::from_millis(250);

enum Heard {
    Sets(News<DaemonSet>),
    Revisions(News<Revision>),
    Pods(News<FleetPod>),
    Nodes(News<Object>),
    Felix(News<Configuration>),
}

/// A list that is followed.
#[derive(Default)]
struct List {
    /// It was not read yet.
    is_awaited: bool,
    /// Since when and why it is not current.
    lost: Option<(Instant, Fault)>,
}

/// A rollout, kept current by watches, which end with it.
pub struct FleetWatch {
    cluster: Cluster,
    tell: UnboundedSender<Heard>,
    heard: UnboundedReceiver<Heard>,
    tasks: JoinSet<()>,
    fleet: Fleet,
    /// In the order of [`Heard`].
    lists: [List; 5],
}

impl Cluster {
    /// Follows a rollout. `nodes`: also the Windows nodes, and FelixConfiguration if it can be read.
    pub fn watch_fleet(&self, namespace: &str, nodes: bool) -> FleetWatch {
        let (tell, heard) = unbounded_channel();
        let (tasks, fleet, lists) = (JoinSet::new(), Fleet::default(), Default::default());
        let mut watch = FleetWatch { cluster: self.clone(), tell, heard, tasks, fleet, lists };
        watch.follow(0, managed(&sets_path(namespace)), Form::Whole, Heard::Sets);
        watch.follow(1, managed(&revisions_path(namespace)), Form::Whole, Heard::Revisions);
        watch.follow(2, managed(&pods_path(namespace)), Form::Whole, Heard::Pods);
        if nodes {
            watch.follow(3, WINDOWS_NODES.to_owned(), Form::Metadata, Heard::Nodes);
            if let Ok((group, _)) = self.felix() {
                watch.follow(4, felix_list(group), Form::Whole, Heard::Felix);
            }
        }
        watch
    }
}

impl FleetWatch {
    fn follow<T: DeserializeOwned + Send + 'static>(
        &mut self,
        list: usize,
        path: String,
        form: Form,
        of: fn(News<T>) -> Heard,
    ) {
        self.lists[list].is_awaited = true;
        let tell = self.tell.clone();
        let listen = move |news| drop(tell.send(of(news)));
        let runtime = self.cluster.runtime.get().handle();
        self.tasks.spawn_on(follow(Arc::clone(&self.cluster.api), path, form, None, listen), runtime);
    }

    /// Waits until something has changed, or for this time.
    pub fn wait(&mut self, limit: Duration) {
        let executor = Arc::clone(&self.cluster.runtime);
        executor.block_on(async {
            let mut until = Instant::now() + limit;
            let mut first = true;
            while let Ok(Some(heard)) = timeout_at(until, self.heard.recv()).await {
                if std::mem::take(&mut first) {
                    until = until.min(Instant::now() + TOGETHER);
                }
                self.hear(heard);
            }
        });
    }

    /// The rollout as it was last heard of. None until each list was read.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.lists.iter().all(|list| !list.is_awaited).then_some(&self.fleet)
    }

    /// For how long and why it has not been current.
    pub fn lost(&self) -> Option<(Duration, &Fault)> {
        let lost = self.lists.iter().filter_map(|list| list.lost.as_ref());
        lost.map(|(since, why)| (since.elapsed(), why)).max_by_key(|(time, _)| *time)
    }

    fn hear(&mut self, heard: Heard) {
        let fleet = &mut self.fleet;
        let (list, lost) = match heard {
            Heard::Sets(news) => (0, keep(&mut fleet.sets, news, |set| &set.metadata.name)),
            Heard::Revisions(news) => (1, keep(&mut fleet.revisions, news, |one| &one.metadata.name)),
            Heard::Pods(news) => (2, keep(&mut fleet.pods, news, |pod| &pod.metadata.name)),
            Heard::Nodes(news) => (3, keep(&mut fleet.nodes, news.map(|node| node.metadata), |node| &node.name)),
            Heard::Felix(news) => {
                fleet.felix_vni = vni_of(&news).or(fleet.felix_vni);
                (4, if let News::Lost(failure) = news { Some(failure.fault) } else { None })
            }
        };
        let list = &mut self.lists[list];
        match lost {
            Some(why) => {
                let since = list.lost.take().map_or_else(Instant::now, |(since, _)| since);
                list.lost = Some((since, why));
            }
            None => *list = List::default(),
        }
    }
}

/// Keeps objects as they are now, each with another name. Returns why they cannot be watched, if that is the news.
fn keep<T>(known: &mut Vec<T>, news: News<T>, name: fn(&T) -> &String) -> Option<Fault> {
    match news {
        News::There(one) => match known.iter_mut().find(|other| name(other) == name(&one)) {
            Some(other) => *other = one,
            None => known.push(one),
        },
        News::Gone(one) => known.retain(|other| name(other) != name(&one)),
        News::All(all) => *known = all,
        News::Found => {}
        News::Lost(failure) => return Some(failure.fault),
    }
    None
}
