//! `install --prepare`: makes an image of this machine, with everything that is the same on every machine made from it.
//! A verb of the usual pipeline, with a target of its own and no cluster; `apply` on the started machine does the rest.

use std::path::PathBuf;

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::context::Operation;
use super::generations::interrupted;
use super::kubernetes::{self, Kubernetes};
use super::options::{DrainFlags, SourceOrBundle};
use super::pipeline::{self, Done, Planned, Verb, report};
use super::records;
use super::sources::Choice;
use super::stage::{Purpose, Release, find_release, try_program};
use super::verb::{PREPARE, RESUME};
use crate::apply::converge::{self, unproven};
use crate::apply::journal::Terms;
use crate::apply::node_object::NodeObject;
use crate::apply::receipt::Prepared;
use crate::apply::standing::Applied;
use crate::apply::store;
use crate::calico::services::Role;
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::plan::image;
use crate::plan::show::Plan;
use crate::settings::{self, InAdvance};
use crate::values::Sha256;

/// Prepares this machine, or shows what would be done.
///
/// # Errors
/// As [`pipeline::run`]; `NotAnImage`.
pub(crate) fn run(source: &SourceOrBundle, app: &mut App) -> Result<Ending> {
    pipeline::run(&PREPARE, app, &Choice::of(source), gather)
}

/// What an image gets.
struct Image {
    planned: Planned,
    prepared: Prepared,
    release: Release,
    kubernetes: Option<Kubernetes>,
    /// This program, and its digest.
    executable: (Sha256, PathBuf),
}

fn gather(op: &mut Operation<'_>) -> Result<Image> {
    refuse_node(op)?;
    let (context, standing) = (op.context, &op.context.standing);
    let layered = context.config(op.node)?;
    let (calico, wanted) = (settings::release(layered)?, settings::kubernetes_programs(layered)?);
    let connection = settings::connection(layered, None);
    context.sources.tell_of_bundle(op.app)?;
    let purpose = if op.app.global.is_dry_run() { Purpose::Look } else { Purpose::Install };
    let release = find_release(op, &calico, &connection, purpose)?;
    let kubernetes = match wanted {
        Some(InAdvance { version, programs, containerd }) => {
            let mut found = kubernetes::programs(op, &connection, version, &programs)?;
            if let Some(containerd) = containerd {
                found.find_containerd(op, &containerd)?;
            }
            Some(found)
        }
        None => None,
    };
    let program = op.node.executable()?;
    let executable = (store::digest(&program)?, program);
    let files = kubernetes.as_ref().map(|kubernetes| &kubernetes.files);
    let target = image::target(&calico.root, &release.manifest, &executable.0, files);
    let steps = converge::plan(op.node, standing, &target)?;
    let plan = Plan::new(&steps, &target, false);
    op.app.announce(&plan);
    let (name, drains, flags) = (String::new(), Some(false), DrainFlags::default());
    Ok(Image {
        planned: Planned { name, target, steps, plan, drains, flags, drain: None },
        prepared: Prepared { calico_version: calico.version, archive: release.manifest.archive.clone() },
        release,
        kubernetes,
        executable,
    })
}

/// Refuses a machine that is a node, or was one: its records would be on every machine made from the image.
fn refuse_node(op: &Operation<'_>) -> Result<()> {
    let (node, standing) = (&*op.node, &op.context.standing);
    if let Some(journal) = standing.journal.as_ref().filter(|journal| journal.header.terms.prepares.is_none()) {
        return Err(interrupted(format!("a run was interrupted: {journal}")));
    }
    let refuse = |what: String, hint: &str| Err(Fault::new(Exit::Conflict, "NotAnImage", what).hint(hint).into());
    let owned = standing.owned();
    for name in Role::CALICO.map(Role::service) {
        let id = Id::Service(name.into());
        if !owned.contains_key(&id) && node.get(&id)?.is_some() {
            let what =
                format!("the service {name} of another program is on this machine, so it is a node and no image");
            return refuse(what, "prepare a machine on which Calico was never installed");
        }
    }
    if let Some(version) = standing.release() {
        let what = format!("Calico {version} is installed on this machine, so it is a node and no image");
        return refuse(what, "make the image on a machine without Calico");
    }
    let purge = "prepare a new machine, or remove the records of this one: calicoctl-win uninstall --purge";
    if standing.receipts.iter().any(|receipt| receipt.about.is_some()) {
        return refuse("Calico was installed here, and the records of that name this machine".into(), purge);
    }
    let ours = [PREPARE.command, RESUME.command];
    let earlier = records::all(node)?.into_iter().filter_map(|record| record["command"].as_str().map(str::to_owned));
    match earlier.into_iter().find(|command| !ours.contains(&command.as_str())) {
        Some(command) => refuse(format!("the log of `{command}`, which ran here before, names this machine"), purge),
        None => Ok(()),
    }
}

impl Verb for Image {
    fn node_name(&self) -> &str {
        &self.planned.name
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.planned.plan)
    }

    fn judge(&mut self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        let standing = &op.context.standing;
        let is_same = standing.image().is_some_and(|(receipt, _)| receipt.target.is_same(&self.planned.target));
        if !is_same || !self.planned.steps.is_empty() || standing.journal.is_some() {
            return Ok(None);
        }
        let msg = format!("nothing to do: this machine is prepared with Calico {}", self.prepared.calico_version);
        Ok(Some(Done::nothing(None, msg)))
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        self.planned.tell(op);
        Ok(())
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        self.planned.would(op)
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        op.app.confirm("the machine", "Prepare this machine as an image?", None)
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        if let Some(tree) = self.release.tree.as_ref().filter(|_| self.release.is_new) {
            try_program(op.app, op.node, tree, &self.prepared.calico_version)?;
        }
        if let Some(kubernetes) = &self.kubernetes {
            kubernetes.store(op.node)?;
        }
        store::add_file(op.node, &self.executable.1, &self.executable.0)?;
        // No machine, no boot and no cluster: the journal names none.
        let terms = Terms { prepares: Some(self.prepared.clone()), ..Terms::default() };
        self.planned.apply(op, &NodeObject::unknown(), None, &unproven, terms)
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let msg = format!(
            "Calico {} is in place, and its services are disabled: this machine can be made an image.",
            self.prepared.calico_version
        );
        // A config that the image was prepared with need not be the one of the machines.
        let next = "calicoctl-win apply -c FILE".to_owned();
        op.app.reporter.tell(&format!("{msg}\nOn each machine made from it: {next}"));
        report(op, Done::new(&applied, msg, vec![next]))
    }
}
