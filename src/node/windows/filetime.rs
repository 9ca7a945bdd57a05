//! How Windows counts time.

use jiff::Timestamp;

/// The moment that is so many steps of 100 ns after the beginning of 1601, where Windows begins to count.
///
/// # Errors
/// When it is beyond what a [`Timestamp`] holds.
pub fn timestamp(ticks: i64) -> Result<Timestamp, jiff::Error> {
    /// From 1601 to 1970.
    const EPOCH: i128 = 116_444_736_000_000_000;
    Timestamp::from_nanosecond((i128::from(ticks) - EPOCH) * 100)
}
