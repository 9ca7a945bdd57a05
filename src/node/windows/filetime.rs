//! Windows time stamps.

use jiff::Timestamp;

/// The time that is this many steps of 100 ns after the beginning of 1601, where Windows time stamps begin.
///
/// # Errors
/// When it is outside the range of a [`Timestamp`].
pub fn timestamp(ticks: i64) -> Result<Timestamp, jiff::Error> {
    /// From 1601 to 1970.
    const EPOCH: i128 = 116_444_736_000_000_000;
    Timestamp::from_nanosecond((i128::from(ticks) - EPOCH) * 100)
}
