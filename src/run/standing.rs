//! The config of the current generation, as what a change starts from.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use super::app::App;
use super::app::reach::GENERATION;
use super::engine::installed;
use super::options::Source;
use crate::apply::receipt::{About, Receipt};
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::config::{self, Document};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::show::SettingChange;
use crate::settings::Backend;

/// Sees that there is something to change.
///
/// # Errors
/// `NotInstalled` when there is no generation, and no run was interrupted either.
pub(crate) fn must_stand(node: &dyn Node) -> Result<()> {
    let standing = Standing::load(node)?;
    if standing.journal.is_none() {
        installed(&standing)?;
    }
    Ok(())
}

/// What is not said is as it was: without a config file the one of the current generation counts, if there is one,
/// but for what it says of a release that another is named for.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn start_from(app: &mut App, node: &dyn Node, unset: &[String], source: &Source) -> Result<()> {
    let standing = Standing::load(node)?;
    let Some(receipt) = standing.receipt() else { return Ok(()) };
    let mut config = store::config(node, receipt)?.unwrap_or_else(|| json!({}));
    // Of an older program, which kept what belongs to one run.
    for path in ["spec.maintenance", "spec.reboot", "spec.preflight"] {
        remove(&mut config, path);
    }
    for path in unset {
        take_out(&mut config, path)?;
    }
    if source.release.is_some() {
        forget_release(&mut config);
    }
    let name = format!("{GENERATION}{}", receipt.generation);
    app.base = Some(Document { name, text: config.to_string() });
    Ok(())
}

/// Takes a field out of a document; one that nobody had set is out already.
fn take_out(config: &mut Value, path: &str) -> Result<()> {
    let whole = if path.starts_with("spec.") { path.to_owned() } else { format!("spec.{path}") };
    if !config::fields().any(|field| field.path == whole) {
        let what = format!("--unset {path}: the config has no such field");
        return Err(Fault::new(Exit::Usage, "Usage", what).hint("calicoctl-win config schema shows them all").into());
    }
    remove(config, &whole);
    Ok(())
}

/// Takes a field or section out of a document.
fn remove(config: &mut Value, path: &str) {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(Value::Object(section)) = config.pointer_mut(&format!("/{}", parent.replace('.', "/"))) {
        section.remove(field);
    }
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

/// The settings that differ between a generation and what comes after it. Where one of the two was made by an older
/// program that did not keep them all, the main ones.
pub(crate) fn settings_diff(
    node: &dyn Node,
    from: Option<&Receipt>,
    to: &About,
    effective: Option<&BTreeMap<String, Value>>,
) -> Vec<SettingChange> {
    // What cannot be read is as good as not kept: a plan does not fail for it.
    let former = from.and_then(|receipt| store::effective(node, receipt).ok().flatten());
    if let (Some(former), Some(effective)) = (former, effective) {
        return SettingChange::between(&former, effective);
    }
    let former = from.and_then(|receipt| receipt.about.as_ref()).map(main_settings).unwrap_or_default();
    SettingChange::between(&former, &main_settings(to))
}

/// What a generation is in the main, by the paths of the config.
fn main_settings(about: &About) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::from([
        ("spec.calico.version".to_owned(), Value::from(about.calico_version.to_string())),
        ("spec.calicoNetwork.backend".to_owned(), about.backend.name().into()),
        ("spec.kubernetes.nodeName".to_owned(), about.node_name.as_str().into()),
    ]);
    if about.backend == Backend::Vxlan {
        settings.insert("spec.calicoNetwork.vxlan.vxlanVNI".into(), about.vni.get().into());
    }
    settings
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
