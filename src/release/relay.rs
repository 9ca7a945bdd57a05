//! Workers that have no entry left to inflate write for those that do. Inflating is one thread's
//! work per entry; checking and writing what comes out need not be that thread's too.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use super::archive::{Archive, Entry};
use super::files::BUFFER;
use super::sinks::{Pace, Sinks};

/// Blocks under way between two workers: one is filled, one is written, one waits.
const BLOCKS: usize = 3;

/// Only a bug could end it: its own errors come back as such.
const GONE: &str = "write what was inflated: the thread that writes has ended";

/// Where idle workers offer themselves.
pub struct Relay<'a> {
    pub archive: &'a Archive,
    pub pace: &'a Pace,
    desk: Mutex<Desk<'a>>,
}

struct Desk<'a> {
    /// Workers that still inflate. Without any there is nothing to wait for.
    inflating: usize,
    idle: Vec<Sender<Shift<'a>>>,
}

/// An entry's files, taken over in the middle, and the blocks to write to them.
struct Shift<'a> {
    entry: &'a Entry,
    sinks: Sinks,
    blocks: Receiver<(Vec<u8>, usize)>,
    written: Sender<Vec<u8>>,
    done: Sender<Result<Sinks>>,
}

impl<'a> Relay<'a> {
    pub const fn new(archive: &'a Archive, pace: &'a Pace, workers: usize) -> Self {
        Self { archive, pace, desk: Mutex::new(Desk { inflating: workers, idle: Vec::new() }) }
    }

    /// To be held by a worker while it inflates. The last one sends the idle ones home, also when
    /// it panics: they would wait for ever.
    pub const fn inflating(&self) -> Inflating<'a, '_> {
        Inflating(self)
    }

    /// A worker without an entry: writes for the others until none of them inflates.
    pub fn help(&self) {
        loop {
            let (offer, shifts) = mpsc::channel();
            {
                let mut desk = self.desk();
                if desk.inflating == 0 {
                    return;
                }
                desk.idle.push(offer);
            }
            let Ok(shift) = shifts.recv() else { return };
            shift.work(self.archive, self.pace);
        }
    }

    fn desk(&self) -> std::sync::MutexGuard<'_, Desk<'a>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker that inflates.
pub struct Inflating<'a, 'r>(&'r Relay<'a>);

impl Drop for Inflating<'_, '_> {
    fn drop(&mut self) {
        let mut desk = self.0.desk();
        desk.inflating -= 1;
        if desk.inflating == 0 {
            desk.idle.clear();
        }
    }
}

impl Shift<'_> {
    fn work(mut self, archive: &Archive, pace: &Pace) {
        let mut result = Ok(());
        while let Ok((block, length)) = self.blocks.recv() {
            result = self.sinks.write(archive, self.entry, &block[..length], pace);
            // One that stopped inflating for another's failure does not wait for its block.
            if result.is_err() || self.written.send(block).is_err() {
                break;
            }
        }
        // The same: without a listener nobody wants to know.
        drop(self.done.send(result.map(|()| self.sinks)));
    }
}

/// Where the blocks of one entry go: to its files, or to a worker that writes them.
pub enum Outlet<'a, 'r> {
    Here {
        relay: &'r Relay<'a>,
        entry: &'a Entry,
        sinks: Sinks,
    },
    There {
        /// How many blocks there are, the one being filled included.
        blocks: usize,
        full: Sender<(Vec<u8>, usize)>,
        written: Receiver<Vec<u8>>,
        done: Receiver<Result<Sinks>>,
    },
}

impl<'a, 'r> Outlet<'a, 'r> {
    pub const fn new(relay: &'r Relay<'a>, entry: &'a Entry, sinks: Sinks) -> Self {
        Self::Here { relay, entry, sinks }
    }

    /// Has the first `length` bytes of `block` written, and leaves a block there to fill next.
    ///
    /// # Errors
    /// As [`Sinks::write`].
    pub fn put(self, block: &mut Vec<u8>, length: usize) -> Result<Self> {
        let (mut blocks, full, written, done) = match self {
            Self::There { blocks, full, written, done } => (blocks, full, written, done),
            Self::Here { relay, entry, mut sinks } => {
                let Some(idle) = relay.desk().idle.pop() else {
                    sinks.write(relay.archive, entry, &block[..length], relay.pace)?;
                    return Ok(Self::Here { relay, entry, sinks });
                };
                let ((full, blocks), (written, back)) = (mpsc::channel(), mpsc::channel());
                let (result, done) = mpsc::channel();
                idle.send(Shift { entry, sinks, blocks, written, done: result }).ok().context(GONE)?;
                (1, full, back, done)
            }
        };
        let next = if blocks < BLOCKS {
            blocks += 1;
            Some(vec![0; BUFFER])
        } else {
            written.recv().ok()
        };
        let sent = next.is_some_and(|next| full.send((std::mem::replace(block, next), length)).is_ok());
        let there = Self::There { blocks, full, written, done };
        // A writer ends early only with an error: that is the one to tell.
        if sent { Ok(there) } else { there.finish().and_then(|_| bail!(GONE)) }
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// As [`Sinks::write`].
    pub fn finish(self) -> Result<Sinks> {
        match self {
            Self::Here { sinks, .. } => Ok(sinks),
            Self::There { full, done, .. } => {
                drop(full);
                done.recv().context(GONE)?
            }
        }
    }
}
