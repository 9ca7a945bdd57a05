//! Before an existing folder is moved aside: checks whether services run from it.

use anyhow::{Context, Result};

use crate::fault::{Exit, Fault};
use crate::item::{Id, Manifest, State};
use crate::node::{Listing, Node};
use crate::plan::files_in_use::{UserOfFiles, moved_aside, users_of_files};
use crate::plan::{Step, Target};

/// Refuses to move a folder from which a service of another product runs.
pub(crate) fn refuse_files_in_use(node: &dyn Node, steps: &[Step], target: &Target, release: &Manifest) -> Result<()> {
    let Some(root) = moved_aside(steps) else { return Ok(()) };
    let mut services = Vec::new();
    for (id, state) in node.list(Listing::Services).context("list the services")? {
        if let (Id::Service(name), State::Service(service)) = (id, state) {
            services.push((name, *service));
        }
    }
    let mut running = Vec::new();
    for (name, _) in &services {
        if node.process(name)?.is_some() {
            running.push(name.clone());
        }
    }
    let found = users_of_files(&services, |name| running.iter().any(|runs| runs == name), root, target, release);
    let Some(UserOfFiles { service, path, comes_back }) = found.first() else { return Ok(()) };
    let hint = if *comes_back {
        format!(
            "stop it (Stop-Service {service}), run this again, and start it afterwards: the new release has that file too"
        )
    } else {
        format!(
            "the new release does not have that file: give {service} one outside of {root} first, then run this again"
        )
    };
    let what = format!("the service {service} runs {path}, and {root} is about to be replaced");
    Err(Fault::new(Exit::InUse, "FolderInUseByService", what).hint(hint).into())
}
