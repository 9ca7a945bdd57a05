//! Stdin, which can be read once. What it had is kept: a run in session 0 gets it too, through its own stdin.

use std::cell::OnceCell;
use std::io::{self, Read as _, Write};

#[derive(Default)]
pub(crate) struct Stdin {
    bytes: OnceCell<Vec<u8>>,
    /// The config that was made of it.
    config: OnceCell<String>,
}

impl Stdin {
    /// Everything it has, until its end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> io::Result<&[u8]> {
        if self.bytes.get().is_none() {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes)?;
            let _it_was_empty = self.bytes.set(bytes);
        }
        Ok(self.so_far())
    }

    /// What `-c -` is.
    ///
    /// # Errors
    /// As [`Stdin::read`].
    pub fn config(&self) -> io::Result<&[u8]> {
        self.config.get().map_or_else(|| self.read(), |text| Ok(text.as_bytes()))
    }

    /// Makes another text the config, once.
    pub fn means(&self, config: String) {
        let _it_was_empty = self.config.set(config);
    }

    /// Sends what was read, and how much that is, to a run which continues to read for Ctrl-C.
    ///
    /// # Errors
    /// When that run has ended.
    pub fn hand_over(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&(self.so_far().len() as u64).to_le_bytes())?;
        to.write_all(self.so_far())
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
        Ok(Self { bytes: OnceCell::from(bytes), config: OnceCell::new() })
    }

    /// What was read.
    fn so_far(&self) -> &[u8] {
        self.bytes.get().map_or(&[], Vec::as_slice)
    }
}
