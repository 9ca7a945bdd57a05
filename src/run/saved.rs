//! A plan in a file: what it was made from, and whether it is still valid.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::app::App;
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::node::trust::{self, Use};
use crate::node::{Node, files};
use crate::plan::show::Plan;
use crate::report::document::envelope;
use crate::values::{Sha256, WinPath};

/// A plan for `apply --plan`, with the config that it was made from: it may contain secrets.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Saved {
    /// The file, once it was read.
    #[serde(skip)]
    pub name: String,
    #[serde(flatten)]
    pub plan: Plan,
    /// Digest of the settings that the config gave.
    pub settings: Sha256,
    /// The whole config: the flags and files of that time.
    pub config: Value,
}

/// Returns the path on the node; none for a file of the machine that runs a sandbox.
fn on_node(app: &App, file: &Path) -> Option<WinPath> {
    let whole = if app.global.sandbox.is_none() { std::path::absolute(file).ok()? } else { file.to_owned() };
    whole.to_str()?.parse().ok()
}

impl Saved {
    /// Writes it: for administrators only if the path is a Windows path, else for this user only.
    pub fn save(&self, node: &mut dyn Node, app: &App, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&envelope(self))? + "\n";
        match on_node(app, file) {
            Some(path) => node.save(&path, text.as_bytes(), Access::Administrators),
            None => {
                if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
                {
                    let what =
                        format!("cannot save the plan to {}: there is no folder {}", file.display(), folder.display());
                    return Err(Fault::new(Exit::Usage, "Usage", what)
                        .hint("make the folder, or name another file")
                        .into());
                }
                files::replace(file, |new| files::create_private(new, text.as_bytes())).map_err(Into::into)
            }
        }
        .with_context(|| format!("save the plan to {}", file.display()))
    }

    /// Reads it; its config is the only one then.
    ///
    /// # Errors
    /// `PlanInvalid` if it is not a plan; `Usage` if another config is named beside it.
    pub fn load(file: &Path, app: &App, node: &dyn Node) -> Result<Self> {
        let again = "make one with: calicoctl-win plan --out FILE";
        let place = on_node(app, file).map_or_else(|| file.to_owned(), |path| node.disk(&path));
        if place.exists() {
            trust::check(Some(node), &place, Use::Read, "the saved plan")?;
        }
        let text = fs::read_to_string(&place).map_err(|error| {
            Fault::new(Exit::InvalidConfig, "PlanInvalid", format!("cannot read the saved plan {}", file.display()))
                .hint(again)
                .because(error)
        })?;
        let mut saved = Self::parse(text.as_bytes()).map_err(|error| {
            Fault::new(Exit::InvalidConfig, "PlanInvalid", format!("{} is not a saved plan: {error}", file.display()))
                .hint(again)
        })?;
        if !app.global.config.is_empty() || !app.global.set.is_empty() {
            let what = "a saved plan holds its config: -c and --set (CALICO_WIN_CONFIG too) cannot change it";
            return Err(Fault::new(Exit::Usage, "Usage", what)
                .hint(format!("leave them out, or make another plan with them: {}", app.command("plan --out FILE")))
                .into());
        }
        saved.name = file.display().to_string();
        Ok(saved)
    }

    /// Reads the text twice: the plan within it, if it was flattened, would be read by code of its own.
    fn parse(text: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Beside {
            settings: Sha256,
            config: Value,
        }
        let Beside { settings, config } = serde_json::from_slice(text)?;
        Ok(Self { name: String::new(), plan: serde_json::from_slice(text)?, settings, config })
    }

    /// Refuses the plan if the current plan differs.
    ///
    /// # Errors
    /// `PlanStale`.
    pub fn check(&self, plan: &Plan, settings: &Sha256) -> Result<()> {
        let settings_changed = self.settings != *settings;
        if !settings_changed && self.plan.digest == plan.digest {
            return Ok(());
        }
        let what = if settings_changed {
            "the same config gives other settings than when the plan was saved: what the cluster or this machine says \
             has changed"
        } else {
            "the node has changed since the plan was saved"
        };
        Err(Fault::new(Exit::PlanStale, "PlanStale", what)
            .hint("look at a new plan and save it again: calicoctl-win plan --out FILE")
            .into())
    }
}
