//! What the store keeps of previous generations, for rollbacks, within bounds.

use std::collections::BTreeSet;

use super::receipt::Receipt;
use super::standing::Standing;
use super::store::{Original, Remains};
use super::{stale_files, store};
use crate::node::Node;
use crate::plan::Owned;
use crate::report::event::{Event, Sink};
use crate::values::WinPath;

/// The most that is kept.
struct Bounds {
    /// Generations that can be restored, including the current one.
    generations: usize,
    /// Receipts: small, and the history of the node.
    receipts: usize,
    /// Bytes that the store may hold for generations before the last two.
    store: u64,
}

const BOUNDS: Bounds = Bounds { generations: 5, receipts: 50, store: 1 << 30 };

/// Deletes what was stored for a run that then never began: a token must not remain. Not while a run must be ended.
/// Reports by an event what cannot be deleted.
pub fn tidy(node: &dyn Node, standing: &Standing, events: Sink) {
    if let Standing { receipts, journal: None, .. } = standing {
        collect(node, &receipts.iter().collect::<Vec<_>>(), &Owned::new(), events);
        if let Err(error) = stale_files::sweep(node, [], events) {
            events(Event::Warning { id: "StoreNotTidy", message: format!("{error:#}") });
        }
    }
}

/// Deletes the oldest receipts, and everything in the store that none of the last generations needs. The run is already
/// over: a failure here does not undo it. `settled`: the originals that the run knew.
pub(super) fn collect(node: &dyn Node, receipts: &[&Receipt], settled: &Owned, events: Sink) {
    let needed = needed(receipts, &BOUNDS, |names| store::size(node, names));
    let trimmed = surplus(receipts, &BOUNDS).iter().try_for_each(|receipt| receipt.remove(node));
    let remains = store::collect(node, receipts, &needed, settled)
        .unwrap_or_else(|error| Remains { failed: Some(error), ..Remains::default() });
    remains.originals.iter().for_each(|original| events(kept(original)));
    remains.folders.iter().for_each(|folder| events(files_kept(folder)));
    if let Some(error) = trimmed.err().or(remains.failed) {
        let message = format!("the store still holds what nothing needs any more: {error:#}");
        events(Event::Warning { id: "StoreNotTidy", message });
    }
}

/// Deletes what an uninstall removed of other programs, and what is not brought back any more.
pub(super) fn forget(node: &dyn Node, removed: &Owned, events: Sink) {
    match store::forget(node, removed) {
        Ok(folder) => folder.iter().for_each(|folder| events(files_kept(folder))),
        Err(error) => {
            let message = format!("the store still holds what an uninstall removed: {error:#}");
            events(Event::Warning { id: "StoreNotTidy", message });
        }
    }
}

fn kept(original: &Original) -> Event {
    let place = original.place().map_or_else(String::new, |place| place.to_string());
    let message = format!(
        "{} was changed by a run whose journal is lost; what it was before is kept: {place}",
        original.id.target()
    );
    Event::Warning { id: "OriginalKept", message }
}

/// Says where the files of a release's folder are that the release did not have.
pub fn files_kept(folder: &WinPath) -> Event {
    let message = format!("files that were added to the removed release, or edited there, are kept in {folder}");
    Event::Warning { id: "FilesKept", message }
}

fn surplus<'a, 'b>(receipts: &'a [&'b Receipt], bounds: &Bounds) -> &'a [&'b Receipt] {
    &receipts[..receipts.len().saturating_sub(bounds.receipts)]
}

/// Returns what the last generations need of the store; while nothing is installed, only the last one. The previous
/// generation can always be restored; older ones within the store's bound. `size` returns the bytes of such names.
fn needed(receipts: &[&Receipt], bounds: &Bounds, size: impl Fn(&BTreeSet<String>) -> u64) -> BTreeSet<String> {
    let mut last = receipts.iter().rev().take(bounds.generations);
    let Some(newest) = last.next() else { return BTreeSet::new() };
    let mut needed = newest.needs();
    let before = last.take_while(|_| newest.about.is_some()).take_while(|receipt| receipt.about.is_some());
    for (age, receipt) in before.enumerate() {
        let with: BTreeSet<String> = needed.union(&receipt.needs()).cloned().collect();
        if age > 0 && size(&with) > bounds.store {
            break;
        }
        needed = with;
    }
    needed
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::item::{Access, Id, State};
    use crate::plan::Target;
    use crate::values::{Sha256, WinPath};

    const MEBIBYTE: u64 = 1 << 20;

    /// A receipt that needs one file.
    fn receipt(generation: u32, installed: bool) -> Receipt {
        let frozen: Receipt = serde_json::from_str(include_str!("../../tests/fixtures/receipts/v1.json")).unwrap();
        let mut about = frozen.about.filter(|_| installed);
        if let Some(about) = &mut about {
            about.config = None;
        }
        let file = State::File { sha256: file(generation), access: Access::Inherited };
        let target = Target { world: [(Id::File(WinPath::known(r"C:\a")), file)].into(), ..Target::default() };
        Receipt::new(generation, "r", "install", Timestamp::UNIX_EPOCH, about, target, Owned::new())
    }

    fn file(generation: u32) -> Sha256 {
        Sha256::of(&generation.to_be_bytes())
    }

    /// Returns which of this many generations can be restored, if each needs this many bytes.
    fn kept(generations: u32, each: u64) -> Vec<u32> {
        let receipts: Vec<Receipt> = (1..=generations).map(|number| receipt(number, true)).collect();
        let needed = needed(&receipts.iter().collect::<Vec<_>>(), &BOUNDS, |names| names.len() as u64 * each);
        (1..=generations).filter(|number| needed.contains(file(*number).as_str())).collect()
    }

    #[test]
    fn the_last_five_generations_can_be_restored() {
        assert_eq!(kept(1, MEBIBYTE), [1]);
        assert_eq!(kept(5, MEBIBYTE), [1, 2, 3, 4, 5]);
        assert_eq!(kept(60, MEBIBYTE), [56, 57, 58, 59, 60]);
    }

    #[test]
    fn generations_before_the_last_two_are_limited_to_a_gibibyte() {
        assert_eq!(kept(5, 256 * MEBIBYTE), [2, 3, 4, 5], "just a gibibyte");
        assert_eq!(kept(5, 256 * MEBIBYTE + 1), [3, 4, 5]);
        assert_eq!(kept(5, 2048 * MEBIBYTE), [4, 5], "the one before, however large it is");
    }

    #[test]
    fn the_store_keeps_only_the_last_receipt_after_an_uninstall() {
        let receipts = [receipt(1, true), receipt(2, true), receipt(3, false)];
        let all: Vec<&Receipt> = receipts.iter().collect();
        assert_eq!(needed(&all, &BOUNDS, |_| 0), receipts[2].needs());
        let again = [receipt(1, true), receipt(2, false), receipt(3, true), receipt(4, true)];
        let all: Vec<&Receipt> = again.iter().collect();
        let needed = needed(&all, &BOUNDS, |_| 0);
        assert_eq!([1, 3, 4].map(|number| needed.contains(file(number).as_str())), [false, true, true]);
    }

    #[test]
    fn at_most_fifty_receipts_are_kept() {
        let receipts: Vec<Receipt> = (1..=53).map(|number| receipt(number, true)).collect();
        let all: Vec<&Receipt> = receipts.iter().collect();
        let gone: Vec<u32> = surplus(&all, &BOUNDS).iter().map(|receipt| receipt.generation).collect();
        assert_eq!(gone, [1, 2, 3]);
        assert!(surplus(&all[..50], &BOUNDS).is_empty());
    }
}
