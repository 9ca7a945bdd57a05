//! One entry's data, from the archive into one or more files: a fixed amount of memory, whatever
//! the entry's size.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Result;
use flate2::{Decompress, FlushDecompress, Status};

use super::archive::{Archive, Entry};
use super::files::{BUFFER, PathContext as _, read_exact_at};
use super::relay::{Outlet, Relay};
use super::sinks::Sinks;
use crate::values::Sha256;

/// What a worker holds for its whole life: two buffers and the decompressor's window.
pub struct Inflater {
    input: Vec<u8>,
    output: Vec<u8>,
    stream: Decompress,
}

impl Inflater {
    pub fn new() -> Self {
        Self { input: vec![0; BUFFER], output: vec![0; BUFFER], stream: Decompress::new(false) }
    }

    /// Writes an entry's data to each of `paths`, which must not exist, and checks size and CRC.
    /// With `digest` it also hashes what it writes; with `durable` the data are on the disk when it
    /// returns. None when another worker's failure stopped it.
    pub fn run<'a>(
        &mut self,
        entry: &'a Entry,
        paths: &[PathBuf],
        (digest, durable): (bool, bool),
        relay: &Relay<'a>,
    ) -> Result<Option<Option<Sha256>>> {
        let archive = relay.archive;
        let outlet = Outlet::new(relay, entry, Sinks::create(paths, entry.size, digest)?);
        let outlet =
            if entry.deflated { self.inflate(relay, entry, outlet)? } else { self.copy(relay, entry, outlet)? };
        let Some(outlet) = outlet else {
            return Ok(None);
        };
        outlet.finish()?.finish(archive, entry, durable).map(Some)
    }

    fn inflate<'a, 'r>(
        &mut self,
        relay: &Relay<'a>,
        entry: &Entry,
        mut outlet: Outlet<'a, 'r>,
    ) -> Result<Option<Outlet<'a, 'r>>> {
        let (archive, pace) = (relay.archive, relay.pace);
        self.stream.reset(false);
        let (mut at, end) = (entry.start, entry.start + entry.packed);
        let mut unread = 0..0;
        loop {
            if pace.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if unread.is_empty() && at < end {
                unread = 0..step(end - at);
                read_exact_at(&archive.file, &mut self.input[unread.clone()], at).doing("read", &archive.path)?;
                at += unread.len() as u64;
            }
            let (taken, made) = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .decompress(&self.input[unread.clone()], &mut self.output, FlushDecompress::None)
                .map_err(|error| archive.entry_damaged(entry, &error.to_string()))?;
            // Both are at most the length of a buffer.
            let taken = (self.stream.total_in() - taken) as usize;
            let made = (self.stream.total_out() - made) as usize;
            unread.start += taken;
            outlet = outlet.put(&mut self.output, made)?;
            match status {
                Status::StreamEnd if unread.is_empty() && at == end => return Ok(Some(outlet)),
                Status::StreamEnd => return Err(archive.entry_damaged(entry, "something follows its data").into()),
                Status::Ok | Status::BufError if taken == 0 && made == 0 => {
                    return Err(archive.entry_damaged(entry, "its data end too early").into());
                }
                Status::Ok | Status::BufError => {}
            }
        }
    }

    fn copy<'a, 'r>(
        &mut self,
        relay: &Relay<'a>,
        entry: &Entry,
        mut outlet: Outlet<'a, 'r>,
    ) -> Result<Option<Outlet<'a, 'r>>> {
        let (archive, pace) = (relay.archive, relay.pace);
        let (mut at, end) = (entry.start, entry.start + entry.packed);
        while at < end {
            if pace.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let length = step(end - at);
            read_exact_at(&archive.file, &mut self.input[..length], at).doing("read", &archive.path)?;
            at += length as u64;
            outlet = outlet.put(&mut self.input, length)?;
        }
        Ok(Some(outlet))
    }

    /// Whether two entries' packed data are the same bytes. Then so is what they inflate to, which
    /// an equal CRC alone would not prove.
    pub fn same_data(&mut self, archive: &Archive, one: &Entry, other: &Entry) -> Result<bool> {
        if (one.packed, one.deflated) != (other.packed, other.deflated) {
            return Ok(false);
        }
        let mut done = 0;
        while done < one.packed {
            let n = step(one.packed - done);
            let (a, b) = (&mut self.input[..n], &mut self.output[..n]);
            read_exact_at(&archive.file, a, one.start + done).doing("read", &archive.path)?;
            read_exact_at(&archive.file, b, other.start + done).doing("read", &archive.path)?;
            if a != b {
                return Ok(false);
            }
            done += n as u64;
        }
        Ok(true)
    }
}

/// The next block's length, in bytes.
fn step(left: u64) -> usize {
    usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER))
}
