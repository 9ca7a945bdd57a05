//! The steps of a change in the cluster, on the Node of this machine.

use super::Step;
use crate::item::{Id, State, World};

/// Before the machine is changed: cordon the Node and evict its pods.
pub fn emptied(node: &str, run: &str) -> Vec<Step> {
    let id = Id::Cordon(node.into());
    let cordon = State::Cordon { run: Some(run.into()) };
    vec![Step::Put { id: id.clone(), before: None, after: Some(cordon) }, Step::Drain { id }]
}

/// After the machine is changed: record the applied settings on the Node, or remove everything of Calico from it.
/// `observed`: none if it is unknown.
pub fn told(node: &str, achieved: Option<&str>, observed: Option<&World>) -> Vec<Step> {
    let mut wanted = vec![(Id::Achieved(node.into()), achieved.map(|digest| State::Achieved(digest.into())))];
    // With Calico installed, its own node startup sets the condition.
    if achieved.is_none() {
        wanted.push((Id::CalicoIsUp(node.into()), None));
    }
    let differs = |(id, after): &(Id, Option<State>)| observed.is_none_or(|world| world.get(id) != after.as_ref());
    let put = |(id, after): (Id, Option<State>)| {
        let before = observed.and_then(|world| world.get(&id)).cloned();
        Step::Put { id, before, after }
    };
    wanted.into_iter().filter(differs).map(put).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_records_the_current_settings_and_nothing_after_an_uninstall() {
        let steps = |achieved, observed| {
            told("n", achieved, observed).iter().map(|step| step.id().to_string()).collect::<Vec<_>>()
        };
        let stands = World::from([
            (Id::Achieved("n".into()), State::Achieved("a".into())),
            (Id::CalicoIsUp("n".into()), State::CalicoIsUp),
        ]);
        assert_eq!(steps(Some("a"), Some(&stands)), [] as [&str; 0]);
        assert_eq!(steps(Some("b"), Some(&stands)), ["annotation n"]);
        assert_eq!(steps(None, Some(&stands)), ["annotation n", "condition n"]);
        let nothing = World::new();
        assert_eq!(steps(None, Some(&nothing)), [] as [&str; 0]);
        // If the observed state is unknown, every step is made.
        assert_eq!(steps(None, None), ["annotation n", "condition n"]);
    }
}
