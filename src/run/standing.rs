//! The config of the current generation, which a change starts from.

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

/// Checks that there is something to change.
///
/// # Errors
/// `NotInstalled` if there is no generation, and no run was interrupted either.
pub(crate) fn must_stand(standing: &Standing) -> Result<()> {
    match standing.journal {
        Some(_) => Ok(()),
        None => installed(standing).map(drop),
    }
}

/// Keeps what is not named: without a config file, the one of the current generation is used, if there is one, except
/// what it says about a release if another is named.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn start_from(
    app: &mut App,
    node: &dyn Node,
    standing: &Standing,
    unset: &[String],
    source: &Source,
) -> Result<()> {
    let Some(receipt) = standing.receipt() else { return Ok(()) };
    let mut config = store::config(node, receipt)?.unwrap_or_else(|| json!({}));
    // An older program also kept these, which belong to one run.
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
    app.start_from(Document { name, text: config.to_string() });
    Ok(())
}

/// Unsets a field of a document; does nothing if it is not set.
fn take_out(config: &mut Value, path: &str) -> Result<()> {
    let whole = if path.starts_with("spec.") { path.to_owned() } else { format!("spec.{path}") };
    if !config::fields().any(|field| field.path == whole) {
        let what = format!("--unset {path}: the config has no such field");
        return Err(Fault::new(Exit::Usage, "Usage", what).hint("calicoctl-win config schema shows them all").into());
    }
    remove(config, &whole);
    Ok(())
}

/// Removes a field or section from a document.
fn remove(config: &mut Value, path: &str) {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(Value::Object(section)) = config.pointer_mut(&format!("/{}", parent.replace('.', "/"))) {
        section.remove(field);
    }
}

/// Removes what belongs to one archive: a digest, a file or a folder. A mirror has other releases too if its URL has a
/// placeholder for the version.
fn forget_release(config: &mut Value) {
    let Some(Value::Object(calico)) = config.pointer_mut("/spec/calico") else { return };
    let Some(Value::Object(source)) = calico.get_mut("source") else { return };
    source.retain(|key, value| match (key.as_str(), value.as_str().unwrap_or_default()) {
        ("type", kind) => matches!(kind, "mirror" | "release"),
        ("urlTemplate", url) => url.contains("{version}"),
        (key, _) => !matches!(key, "sha256" | "path"),
    });
    // A mirror without a URL is not a mirror.
    if !source.contains_key("urlTemplate") {
        source.remove("type");
    }
}

/// Returns the settings that differ between a generation and the next one; only the main ones if one of the two was
/// made by an older program that did not store them all.
pub(crate) fn settings_diff(
    node: &dyn Node,
    from: Option<&Receipt>,
    to: &About,
    effective: Option<&BTreeMap<String, Value>>,
) -> Vec<SettingChange> {
    // What cannot be read counts as not stored: a plan does not fail for it.
    let former = from.and_then(|receipt| store::effective(node, receipt).ok().flatten());
    if let (Some(former), Some(effective)) = (former, effective) {
        return SettingChange::between(&former, effective);
    }
    let former = from.and_then(|receipt| receipt.about.as_ref()).map(main_settings).unwrap_or_default();
    SettingChange::between(&former, &main_settings(to))
}

/// Returns the main settings of a generation, by the paths of the config.
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
    fn fields_of_one_archive_are_not_kept_for_the_next() {
        let template = "https://m/calico-windows-{version}.zip";
        for (source, left) in [
            (json!({"type": "bundle", "path": "C:\\a.zip", "sha256": "00"}), json!({})),
            (json!({"path": "C:\\a"}), json!({})),
            (json!({"type": "mirror", "urlTemplate": "https://m/calico-windows-v3.30.0.zip"}), json!({})),
            (
                json!({"type": "mirror", "urlTemplate": template, "sha256": "00"}),
                json!({"type": "mirror", "urlTemplate": template}),
            ),
            // A file was named once, over the mirror of the previous config.
            (json!({"type": "bundle", "path": "a.zip", "urlTemplate": template}), json!({"urlTemplate": template})),
        ] {
            let mut config = json!({"spec": {"calico": {"source": source}}});
            forget_release(&mut config);
            assert_eq!(config["spec"]["calico"]["source"], left);
        }
    }
}
