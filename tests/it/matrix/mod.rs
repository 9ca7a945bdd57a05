//! The crash and fault matrix: every verb that changes a node, stopped, failed and slowed down at every point, on a node
//! with other products, and random days of a node. The node and its cluster are compared completely, and each run is a
//! real process.
//!
//! By default a sample of each kind is tested; with `CALICO_WIN_MATRIX=full`, everything.

#![allow(clippy::print_stdout, reason = "it prints the number of points")]

mod calls;
mod crashes;
mod days;
mod faults;
mod verbs;
mod whole;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether every point is tested.
fn full() -> bool {
    std::env::var("CALICO_WIN_MATRIX").is_ok_and(|value| value == "full")
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
}

/// Runs `work` for each of the items, several at a time: a run spends much of its time waiting, and in the full matrix
/// hundreds wait half a minute for an answer. Returns the results in the order of the items.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(2, usize::from) * if full() { 8 } else { 1 } + 1;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    done.lock().unwrap().push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
