//! Stdin, which can be read once. What it had is kept: a run in session 0 gets it too, through its own stdin.

use std::cell::OnceCell;
use std::io::{self, Read as _, Write};

#[derive(Default)]
pub(crate) struct Stdin(OnceCell<Vec<u8>>);

impl Stdin {
    /// Everything it has, until its end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> io::Result<&[u8]> {
        if self.0.get().is_none() {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes)?;
            return Ok(self.0.get_or_init(|| bytes));
        }
        Ok(self.0.get().map_or(&[], Vec::as_slice))
    }

    /// Sends what was read, and how much that is, to a run which continues to read for Ctrl-C.
    ///
    /// # Errors
    /// When that run has ended.
    pub fn hand_over(&self, to: &mut impl Write) -> io::Result<()> {
        let bytes = self.0.get().map_or(&[][..], Vec::as_slice);
        to.write_all(&(bytes.len() as u64).to_le_bytes())?;
        to.write_all(bytes)
    }

    /// Receives what [`Stdin::hand_over`] sent.
    ///
    /// # Errors
    /// When the process that sends it has ended before.
    pub fn take_over() -> io::Result<Self> {
        let mut from = io::stdin();
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let mut bytes = Vec::new();
        from.take(u64::from_le_bytes(length)).read_to_end(&mut bytes)?;
        Ok(Self(OnceCell::from(bytes)))
    }
}
