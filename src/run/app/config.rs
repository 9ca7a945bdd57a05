//! The config of a run: which documents it is made from.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;

use super::{App, reach};
use crate::apply::standing::Standing;
use crate::config::{self, Document, Layered};
use crate::node::trust::{self, Use};
use crate::node::{Node, STATE_DIR};
use crate::run::layers;
use crate::run::options::Source;
use crate::values::WinPath;

/// Documents that are part of a config although nobody names them on the command line.
#[derive(Default)]
pub(super) struct Ground {
    /// The config of the current generation, for a verb that changes some of it: used if no other is named.
    pub(super) base: Option<Document>,
    /// The config of a saved plan: no other is used then.
    saved: Option<Document>,
    /// How the run that made this node reached the cluster, once that was looked up: below all other documents, unless
    /// they name a kubeconfig.
    access: Option<Option<Document>>,
}

impl App {
    /// Returns the config of this run in all its layers: documents in order, then variables and flags, then `--set`. It
    /// is read once: the first `source` counts for all later callers.
    pub fn config(&self, node: &dyn Node, source: &Source) -> Result<Rc<Layered>> {
        if let Some(config) = self.config.get() {
            return Ok(Rc::clone(config));
        }
        let config = Rc::new(self.read_config(node, source)?);
        Ok(Rc::clone(self.config.get_or_init(|| config)))
    }

    /// Reads the config for a run that names this release.
    pub fn read_config(&self, node: &dyn Node, source: &Source) -> Result<Layered> {
        let mut documents = Vec::new();
        if let Some(env) = &self.env {
            documents.push(Document { name: "sandbox".into(), text: env.config() });
        }
        let machine = WinPath::known(STATE_DIR).join("config.yaml");
        if let Some(saved) = &self.ground.saved {
            documents.push(saved.clone());
        } else if self.global.config.is_empty() {
            // A missing file is no config; one that cannot be read is an error, and is not skipped.
            let file = node.disk(&machine);
            if file.exists() {
                believe_config(Some(node), &file)?;
                let Document { text, .. } = layers::read_document(&file)?;
                documents.push(Document { name: machine.to_string(), text });
            } else {
                documents.extend(self.ground.base.clone());
            }
        }
        for file in &self.global.config {
            believe_config(Some(node), file)?;
            documents.push(layers::read_document(file)?);
        }
        let overrides = layers::overrides(&self.global, &self.args, source);
        let named = || config::names(&documents, &overrides, "spec.kubernetes.kubeconfig");
        let known = match &self.ground.access {
            Some(known) => known.clone(),
            None => Standing::load(node).ok().as_ref().and_then(reach::access),
        };
        if let Some(access) = known.filter(|_| !named()) {
            documents.insert(0, access);
        }
        config::load(&documents, &overrides)
    }

    /// From here on this config counts if no other is named.
    pub fn start_from(&mut self, base: Document) {
        self.ground.base = Some(base);
        self.config.take();
    }

    /// Uses only this config from here on.
    pub fn only_from(&mut self, saved: Document) {
        self.ground.saved = Some(saved);
        self.config.take();
    }

    /// Reaches the cluster in this way from here on, if no other is named.
    pub(super) fn reached_by(&mut self, access: Option<Document>) {
        self.ground.access = Some(access);
        self.config.take();
    }

    /// Returns the config from the named documents and flags, without a node.
    pub fn named_config(&self, source: &Source, extra: &[PathBuf]) -> Result<Rc<Layered>> {
        let named = self.global.config.iter().chain(extra);
        let documents: Result<Vec<Document>> =
            named.map(|file| believe_config(None, file).and_then(|()| layers::read_document(file))).collect();
        config::load(&documents?, &layers::overrides(&self.global, &self.args, source)).map(Rc::new)
    }
}

/// Checks that only administrators could have written a config. Stdin is the caller's own.
fn believe_config(node: Option<&dyn Node>, file: &Path) -> Result<()> {
    if file.as_os_str() == "-" {
        return Ok(());
    }
    trust::believe(node, file, Use::Read, "the config")
}
