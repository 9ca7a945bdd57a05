//! One entry's data, from the archive into one or more files: a fixed amount of memory, whatever
//! the entry's size.

use std::io::{self, BufReader, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Result;
use flate2::bufread::DeflateDecoder;

use super::archive::{Archive, Entry};
use super::files::{BUFFER, PathContext as _, read_at};
use super::sinks::{Progress, Sinks};
use crate::values::Sha256;

/// What is done with the data after writing it.
#[derive(Clone, Copy)]
pub(super) struct WriteOptions {
    /// Hash each file. Costs about a quarter of the inflating.
    pub digests: bool,
    /// Flush the data to the disk.
    pub durable: bool,
}

/// Writes an entry's data to each of `paths`, which must not exist, and checks size and CRC. Returns the digest if it is
/// requested; none if another worker's failure stopped it.
pub(super) fn inflate(
    archive: &Archive,
    entry: &Entry,
    paths: &[PathBuf],
    options: WriteOptions,
    progress: &Progress,
) -> Result<Option<Option<Sha256>>> {
    let mut sinks = Sinks::create(paths, entry.size, options.digests)?;
    let mut packed = Packed::of(archive, entry);
    if entry.deflated {
        let mut data = DeflateDecoder::new(BufReader::with_capacity(BUFFER, packed));
        if !copy(&mut data, archive, entry, &mut sinks, progress)? {
            return Ok(None);
        }
        if data.total_in() != entry.packed {
            return Err(archive.entry_damaged(entry, "there is more data after its end").into());
        }
    } else if !copy(&mut packed, archive, entry, &mut sinks, progress)? {
        return Ok(None);
    }
    sinks.finish(archive, entry, options.durable).map(Some)
}

/// Copies all data; false if another worker's failure stopped it.
fn copy(data: &mut dyn Read, archive: &Archive, entry: &Entry, sinks: &mut Sinks, progress: &Progress) -> Result<bool> {
    let mut block = vec![0; BUFFER];
    while !progress.stop.load(Ordering::Relaxed) {
        match data.read(&mut block) {
            Ok(0) => return Ok(true),
            Ok(n) => sinks.write(archive, entry, &block[..n], progress)?,
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Err(archive.entry_damaged(entry, &error.to_string()).into());
            }
            Err(error) => return Err(error).doing("read", &archive.path),
        }
    }
    Ok(false)
}

/// Whether two entries' packed data are the same bytes. Then so is what they inflate to, which an equal CRC alone would
/// not prove.
pub(super) fn same_data(archive: &Archive, one: &Entry, other: &Entry) -> Result<bool> {
    if (one.packed, one.deflated) != (other.packed, other.deflated) {
        return Ok(false);
    }
    let [mut one, mut other] = [one, other].map(|entry| Packed::of(archive, entry));
    let (mut a, mut b) = (vec![0; BUFFER], vec![0; BUFFER]);
    loop {
        let n = one.read(&mut a).doing("read", &archive.path)?;
        other.read_exact(&mut b[..n]).doing("read", &archive.path)?;
        if n == 0 || a[..n] != b[..n] {
            return Ok(n == 0);
        }
    }
}

/// An entry's data as they are in the archive.
struct Packed<'a> {
    archive: &'a Archive,
    at: u64,
    end: u64,
}

impl<'a> Packed<'a> {
    const fn of(archive: &'a Archive, entry: &Entry) -> Self {
        Self { archive, at: entry.start, end: entry.start + entry.packed }
    }
}

impl Read for Packed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let n = read_at(&self.archive.file, &mut buffer[..left], self.at)?;
        if n == 0 && left > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.at += n as u64;
        Ok(n)
    }
}
