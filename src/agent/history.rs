//! What a component did before, as far as it counts for what comes next.

/// After so many crashes in a row it is a crash loop.
const LOOP: u32 = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Crashes in a row.
    pub crashes: u32,
    /// Reloads in a row that came shortly after a start.
    pub reloads: u32,
}

impl History {
    /// Whether it crashes again and again.
    pub const fn is_loop(self) -> bool {
        self.crashes >= LOOP
    }
}
