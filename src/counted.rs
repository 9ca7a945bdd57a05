//! Counts how often something is resolved: a run resolves each thing once, and a test checks it.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static COUNTED: RefCell<BTreeMap<&'static str, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts one resolution in this thread.
pub fn count(what: &'static str) {
    COUNTED.with_borrow_mut(|counted| *counted.entry(what).or_default() += 1);
}

/// Returns the counts of this thread since the last call.
pub fn take() -> BTreeMap<&'static str, usize> {
    COUNTED.take()
}
