//! `upgrade`: another Calico release, or another build of this program. Everything is fetched, checked
//! and run for its version while the old release works; then stop, swap, start; and what does not work
//! afterwards is taken back.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Ending;
use super::app::App;
use super::args::{Source, Upgrade};
use super::drain;
use super::engine::succeeded;
use super::install::{self, Asked, Drained, Until};
use super::prepare::{Prepared, prepare};
use super::stage::Purpose;
use super::{cordon, lease, plan, reconfigure, steady};
use crate::cluster::DrainOptions;
use crate::node::{Node, STATE_DIR};
use crate::values::WinPath;

pub(crate) fn run(args: &Upgrade, app: &mut App) -> Result<Ending> {
    if app.global.dry_run {
        let mut node = app.node()?;
        start_from(app, &*node, &args.source)?;
        let prepared = prepare(app, &mut *node, &args.source, None, Purpose::Look)?;
        show(args, app, &prepared)?;
        let generation = prepared.standing.receipt().map(|receipt| receipt.generation);
        return plan::dry_run(prepared.plan, generation);
    }
    let (mut node, _lock) = app.node_to_change("upgrade")?;
    start_from(app, &*node, &args.source)?;
    let mut prepared = prepare(app, &mut *node, &args.source, None, Purpose::Install)?;
    let asked = Asked { saved: args.plan.as_deref(), downgrade: args.allow_downgrade };
    if let Some(result) = install::begin(app, &mut *node, &prepared, "upgrade", &asked)? {
        return Ending::result(result);
    }
    let drains = show(args, app, &prepared)?;
    app.confirm(&format!("Apply this to {}?", prepared.resolved.settings.node_name))?;
    let keeper = lease::take(app, &*node, &prepared.place())?;
    let changed = change(app, &mut *node, &mut prepared, drains.as_ref());
    lease::give_back(app, keeper);
    changed
}

/// Makes the change, with the node locked here and in the cluster.
fn change(
    app: &mut App,
    node: &mut dyn Node,
    prepared: &mut Prepared,
    drains: Option<&DrainOptions>,
) -> Result<Ending> {
    let drained = Drained::by(drains);
    let applied = install::carry_out(app, node, prepared, "upgrade", Until::Ready, drained, |app, node, prepared| {
        drains.map_or(Ok(()), |options| drain::empty(app, node, &prepared.place(), "upgrade", options))
    })?;
    reconfigure::annotate(app, &prepared.cluster, &prepared.about);
    steady::ends_ready(app, node, &prepared.target, steady::restart(&prepared.steps), &applied)?;
    cordon::release(app, node)?;
    warn_of_config(app, node, prepared);

    let about = &prepared.about;
    let generation = applied.generation.unwrap_or_default();
    let msg = match former(prepared) {
        Some(former) if former != about.calico_version.to_string() => {
            format!(
                "{} runs Calico {}, before it was {former} (generation {generation}).",
                about.node_name, about.calico_version
            )
        }
        _ => format!("{} runs Calico {} (generation {generation}).", about.node_name, about.calico_version),
    };
    let back = app.command("rollback");
    app.reporter.tell(&format!("{msg}\nBack: {back}"));
    let next = vec![app.command("status"), back];
    Ending::result(succeeded(app, node, &applied, msg, next))
}

fn former(prepared: &Prepared) -> Option<String> {
    let about = prepared.standing.receipt()?.about.as_ref()?;
    Some(about.calico_version.to_string())
}

/// The config of the standing generation, without what it says of the release that is left.
fn start_from(app: &mut App, node: &dyn Node, source: &Source) -> Result<()> {
    reconfigure::start_from(app, node, &[])?;
    if source.release.is_none() {
        return Ok(());
    }
    if let Some(base) = &mut app.base {
        let mut config: Value = serde_json::from_str(&base.text).context("read the config that stands")?;
        forget_release(&mut config);
        base.text = config.to_string();
    }
    Ok(())
}

/// A digest is of one archive, and so is a file or folder; a mirror has other releases too where its
/// address has a place for the version.
fn forget_release(config: &mut Value) {
    let Some(Value::Object(calico)) = config.pointer_mut("/spec/calico") else { return };
    let Some(Value::Object(source)) = calico.get_mut("source") else { return };
    source.retain(|key, value| match (key.as_str(), value.as_str().unwrap_or_default()) {
        ("type", kind) => matches!(kind, "mirror" | "release"),
        ("urlTemplate", url) => url.contains("{version}"),
        (key, _) => !matches!(key, "sha256" | "path"),
    });
    // A mirror without an address is none.
    if !source.contains_key("urlTemplate") {
        source.remove("type");
    }
}

/// The machine's own config file counts for the next run, whatever release was named for this one.
fn warn_of_config(app: &mut App, node: &dyn Node, prepared: &Prepared) {
    let file = WinPath::known(STATE_DIR).join("config.yaml");
    if !app.global.config.is_empty() || !node.disk(&file).exists() {
        return;
    }
    let version = &prepared.about.calico_version;
    let said = app.config(node, &Source::default(), &[]).ok().and_then(|layered| layered.config.spec.calico.version);
    if let Some(said) = said.map(|said| said.to_string()).filter(|said| *said != version.to_string()) {
        let message =
            format!("{file} still says Calico {said}: write {version} there, or the next run goes back to it");
        app.warn("ConfigOfOtherRelease", message);
    }
}

/// Shows the plan, and what becomes of the pods. Gives how the node is to be drained, if it is.
fn show(args: &Upgrade, app: &mut App, prepared: &Prepared) -> Result<Option<DrainOptions>> {
    app.reporter.tell(&prepared.plan.text());
    if prepared.plan.changes.is_empty() {
        return Ok(None);
    }
    let maintenance = &prepared.resolved.run.maintenance;
    let wanted = match (args.drains, args.no_drain) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => maintenance.drain.enabled,
    };
    let options = args.drain.over(&maintenance.drain);
    let name = prepared.about.node_name.as_str();
    let pods = (prepared.plan.needs_drain, prepared.plan.pods.as_slice());
    drain::before(app, name, pods, wanted, options, |_| Ok(&prepared.cluster))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_said_of_one_archive_says_nothing_of_the_next() {
        let template = "https://m/calico-windows-{version}.zip";
        for (source, left) in [
            (json!({"type": "bundle", "path": "C:\\a.zip", "sha256": "00"}), json!({})),
            (json!({"path": "C:\\a"}), json!({})),
            (json!({"type": "mirror", "urlTemplate": "https://m/calico-windows-v3.30.0.zip"}), json!({})),
            (
                json!({"type": "mirror", "urlTemplate": template, "sha256": "00"}),
                json!({"type": "mirror", "urlTemplate": template}),
            ),
            // A file was named for once, over the mirror of before.
            (json!({"type": "bundle", "path": "a.zip", "urlTemplate": template}), json!({"urlTemplate": template})),
        ] {
            let mut config = json!({"spec": {"calico": {"source": source}}});
            forget_release(&mut config);
            assert_eq!(config["spec"]["calico"]["source"], left);
        }
    }
}
