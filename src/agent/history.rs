//! A component's earlier exits, as far as they affect the next start.

/// This many crashes in a row are a crash loop.
const LOOP: u32 = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Crashes in a row.
    pub crashes: u32,
    /// Reloads in a row, each shortly after a start.
    pub reloads: u32,
}

impl History {
    /// Whether it crashes repeatedly.
    pub const fn is_loop(self) -> bool {
        self.crashes >= LOOP
    }
}
