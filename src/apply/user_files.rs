//! Files that users put into the release's folder because Calico reads them there: Felix's static rules. They stay when
//! the folder is replaced, as what other products have on the machine does.

use anyhow::Result;

use super::standing::Standing;
use super::store as blobs;
use crate::item::{Id, State, Tree};
use crate::node::Node;
use crate::paths;
use crate::plan::Target;
use crate::values::WinPath;

/// The same target, with the current files of the user. Not those that this program writes, or has written.
///
/// # Errors
/// When a file cannot be read.
pub fn with_kept(node: &dyn Node, standing: &Standing, target: &Target) -> Result<Target> {
    let owned = standing.owned();
    let releases = target.world.iter().filter(|(_, state)| matches!(state, State::Tree(Tree::Release(_))));
    let roots: Vec<WinPath> = releases.filter_map(|(id, _)| id.path().cloned()).collect();
    let mut target = target.clone();
    for id in roots.iter().map(|root| Id::File(paths::static_rules(root))) {
        let wanted = target.world.contains_key(&id) && !target.kept.contains(&id);
        if wanted || owned.contains_key(&id) {
            continue;
        }
        // A run that was interrupted after it replaced the folder had stored the file.
        let stored = || {
            let interrupted = &standing.journal.as_ref()?.header.target;
            interrupted.world.get(&id).filter(|_| interrupted.kept.contains(&id)).cloned()
        };
        match node.get(&id)?.or_else(stored) {
            Some(found) => {
                target.world.insert(id.clone(), found);
                target.kept.insert(id);
            }
            None => {
                target.world.remove(&id);
                target.kept.remove(&id);
            }
        }
    }
    Ok(target)
}

/// Stores their bytes, before the folder with them is replaced.
///
/// # Errors
/// When a file cannot be stored.
pub(super) fn store(node: &dyn Node, target: &Target) -> Result<()> {
    for id in &target.kept {
        if let (Some(path), Some(state @ State::File { sha256, .. })) = (id.path(), target.world.get(id))
            && !blobs::holds(node, state)
        {
            blobs::add_file(node, &node.disk(path), sha256)?;
        }
    }
    Ok(())
}
