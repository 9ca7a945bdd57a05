//! A network that version 1 of HNS shows and version 2 does not: Calico and kube-proxy do not find it
//! (projectcalico/calico#9120).

use super::*;
use crate::fault::Fault;

/// A node on which version 2 of HNS does not show the next so many networks of a name.
fn hiding(name: &str, times: u32, mut story: Story) -> Story {
    story.edit(|model| model.unseen_networks.extend([(Name::new(name), times)]));
    story
}

fn re_created(story: &Story) -> usize {
    let of_it = |event: &&Event| matches!(event, Event::Log { message } if message.contains("it is re-created"));
    story.events.iter().filter(of_it).count()
}

fn unseen(story: &Story, name: &str) -> bool {
    story.node.network_details(name).unwrap().unwrap().unseen_by_v2
}

#[test]
fn external_is_re_created_once() {
    let mut story = hiding("External", 1, Story::new(Backend::Vxlan));
    story.start(Role::Node).unwrap();
    assert_eq!((unseen(&story, "External"), re_created(&story)), (false, 1));
    assert_eq!(story.networks(), "Calico Overlay 4096, External Overlay 9999, nat Nat");
}

#[test]
fn an_external_from_an_earlier_start_is_re_created() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.edit(|model| model.networks.get_mut(&Name::new("External")).unwrap().unseen_by_v2 = true);
    story.start(Role::Node).unwrap();
    assert!(!unseen(&story, "External"));
}

#[test]
fn an_external_that_remains_unseen_is_the_error() {
    let mut story = hiding("External", 2, Story::new(Backend::Vxlan));
    let error = story.start(Role::Node).unwrap_err();
    assert_eq!((Fault::id_of(&error), re_created(&story), story.runs), ("HnsNetworkUnseen", 1, 0), "{error:#}");
    assert!(error.to_string().contains("does not show the HNS network External"), "{error:#}");
}

/// A node with a network `Calico` that is not shown, on which startup fails as often.
fn startup_fails(times: usize) -> Story {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.edit(|model| model.networks.get_mut(&Name::new("Calico")).unwrap().unseen_by_v2 = true);
    (story.exits, story.runs) = (vec![1; times], 0);
    story
}

#[test]
fn startup_that_does_not_find_its_network_gets_another_one() {
    let mut story = startup_fails(1);
    story.start(Role::Node).unwrap();
    assert_eq!((unseen(&story, "Calico"), re_created(&story), story.runs), (false, 1, 2));
    // Only what version 2 needs to show it: no growing pause.
    assert!(story.virtual_time < Duration::from_secs(30), "{:?}", story.virtual_time);
}

#[test]
fn startup_that_never_finds_its_network_ends_with_that_cause() {
    let mut story = hiding("Calico", 1, startup_fails(9));
    // Startup creates another one, and does not find that either.
    story.meanwhile = Box::new(|node, _| drop(node.put(&Id::Network("Calico".into()), Some(&calico(4096)))));
    let error = story.start(Role::Node).unwrap_err();
    assert_eq!((Fault::id_of(&error), re_created(&story)), ("HnsNetworkUnseen", 1), "{error:#}");
}
