//! The state of a node on record: its generations, and a run that is not over.

use std::time::Duration;

use anyhow::Result;

use super::journal::Journal;
use super::receipt::{self, Prepared, Receipt};
use crate::node::{Node, record};
use crate::plan::Owned;
use crate::report::event::{Event, Sink};
use crate::values::{NodeName, Sha256};
use crate::version::CalicoVersion;

#[derive(Debug, Default, Clone)]
pub struct Standing {
    pub receipts: Vec<Receipt>,
    pub journal: Option<Journal>,
    /// Whether what the last uninstall removed of other programs counts as ours, since it is brought back.
    pub brings_back: bool,
    /// The previous generations that nothing depends on and whose receipts cannot be read, with the reason.
    pub unreadable: Vec<(u32, String)>,
}

impl Standing {
    /// Reads it from the node's disk.
    ///
    /// # Errors
    /// When the newest receipt, the one that an interrupted run started from, or the journal cannot be read: without
    /// them it is not known which items are ours. `NewerState` for any receipt of a newer version of this program: what
    /// it needs of the store is not known.
    pub fn load(node: &dyn Node) -> Result<Self> {
        #[cfg(test)]
        crate::counted::count("standing");
        let journal = Journal::load(node)?;
        let from = journal.as_ref().and_then(|journal| journal.header.from);
        let all = receipt::all(node)?;
        let newest = all.last().map(|(generation, _)| *generation);
        let (mut receipts, mut unreadable) = (Vec::new(), Vec::new());
        for (generation, receipt) in all {
            let decides = Some(generation) == newest || Some(generation) == from;
            match receipt {
                Ok(receipt) => receipts.push(receipt),
                Err(error) if decides || record::is_newer(&error) => return Err(error),
                Err(error) => unreadable.push((generation, format!("{error:#}"))),
            }
        }
        let brings_back = journal.as_ref().is_some_and(|journal| journal.header.terms.brings_back);
        Ok(Self { receipts, journal, brings_back, unreadable })
    }

    /// Reports which earlier records cannot be read.
    pub(super) fn tell(&self, events: Sink) {
        for (_, why) in &self.unreadable {
            let message = format!("a former generation is lost, which changes nothing now: {why}");
            events(Event::Warning { id: "ReceiptUnreadable", message });
        }
    }

    /// The newest generation, if Calico is installed.
    pub fn receipt(&self) -> Option<&Receipt> {
        receipt::standing(&self.receipts)
    }

    /// The newest generation, if the machine is prepared as an image and Calico is not installed.
    pub fn image(&self) -> Option<(&Receipt, &Prepared)> {
        let newest = self.receipts.last()?;
        Some((newest, newest.prepared.as_ref()?))
    }

    /// The release that is in place, and the digest of its archive: as the newest generation has it.
    pub fn in_place(&self) -> Option<(&Receipt, &CalicoVersion, Option<&Sha256>)> {
        if let Some((image, prepared)) = self.image() {
            return Some((image, &prepared.calico_version, prepared.archive.as_ref()));
        }
        let receipt = self.receipt()?;
        let about = receipt.about.as_ref()?;
        Some((receipt, &about.calico_version, about.archive.as_ref()))
    }

    /// The name of the Kubernetes Node, from the current run or the newest generation that was installed.
    pub fn node_name(&self) -> Option<&NodeName> {
        let run = self.journal.as_ref().and_then(|journal| journal.header.about.as_ref());
        let newest = || self.receipts.iter().rev().find_map(|receipt| receipt.about.as_ref());
        let begun = || self.journal.as_ref().and_then(|journal| journal.header.terms.node.as_ref());
        run.or_else(newest).map(|about| &about.node_name).or_else(begun)
    }

    /// The journal of an interrupted run. A renewal of credentials does not count: the next run finishes it first.
    pub fn interrupted(&self) -> Option<&Journal> {
        self.journal.as_ref().filter(|journal| !journal.header.terms.is_renewal())
    }

    /// The release of the current generation.
    pub fn release(&self) -> Option<&CalicoVersion> {
        Some(&self.receipt()?.about.as_ref()?.calico_version)
    }

    /// The generation that a run starts from: the current one, or the one that an interrupted run started from.
    pub(super) fn base(&self) -> Option<&Receipt> {
        match &self.journal {
            Some(journal) => self.receipts.iter().find(|receipt| Some(receipt.generation) == journal.header.from),
            None => self.receipts.last(),
        }
    }

    /// Everything that is ours, with its original.
    pub fn owned(&self) -> Owned {
        let base = self.base().filter(|receipt| receipt.holds() || self.brings_back);
        let mut owned = base.map(|receipt| receipt.owned.clone()).unwrap_or_default();
        for (id, original) in self.journal.iter().flat_map(|journal| &journal.originals) {
            owned.entry(id.clone()).or_insert_with(|| original.clone());
        }
        owned
    }

    /// What the last uninstall removed of other programs, as it was. Empty once something is installed again.
    pub fn removed(&self) -> Owned {
        let uninstall = self.base().filter(|receipt| !receipt.holds());
        uninstall.map(|receipt| receipt.owned.clone()).unwrap_or_default()
    }

    /// Whether a run that is not over moves pods away first, and has changed nothing on the machine yet.
    pub fn is_draining(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_draining)
    }

    pub(super) fn next_generation(&self) -> u32 {
        self.base().map_or(1, |receipt| receipt.generation + 1)
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Steps that changed something.
    pub changed: usize,
    /// The current generation; none if nothing is installed.
    pub generation: Option<u32>,
    /// From the first service stopped to the last one started.
    pub downtime: Duration,
}
