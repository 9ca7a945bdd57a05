//! The progress of a transfer: how often it is printed, and its bar on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The shortest time between two lines of NDJSON about the same progress.
pub const NDJSON: Duration = Duration::from_millis(500);
/// The same for piped text.
const PIPED: Duration = Duration::from_secs(10);

/// When the progress of a transfer, or of a wait, was last printed without a bar.
#[derive(Debug, Default)]
pub struct Pace(Option<Instant>);

impl Pace {
    /// Whether to print progress again: not more often than `pause`, but always at the end.
    pub fn is_due(&mut self, now: Instant, pause: Duration, ended: bool) -> bool {
        let due = ended || self.0.is_none_or(|told| now.saturating_duration_since(told) >= pause);
        if due {
            self.0 = Some(now);
        }
        due
    }

    /// The same for piped text, which has nothing about a transfer that ends before the first pause.
    pub fn is_due_in_a_pipe(&mut self, now: Instant) -> bool {
        self.0.get_or_insert(now);
        self.is_due(now, PIPED, false)
    }
}

/// The bar of a transfer that begins, or is resumed, at `current` bytes.
pub fn bar(phase: &'static str, current: u64, total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = "        {msg:<8} {percent:>3}% [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(phase);
    // What an earlier run fetched does not count for the rate.
    bar.set_position(current);
    bar.reset_eta();
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times, in ms, at which progress that is reported every 10 ms is printed.
    fn printed(until: u64, mut is_due: impl FnMut(Instant) -> bool) -> Vec<u64> {
        let begin = Instant::now();
        (0..=until).step_by(10).filter(|ms| is_due(begin + Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn a_stream_has_two_lines_a_second_and_the_last_one() {
        let mut pace = Pace::default();
        let times = printed(2_000, |now| pace.is_due(now, NDJSON, false));
        assert_eq!(times, [0, 500, 1_000, 1_500, 2_000]);
        let now = Instant::now();
        let mut pace = Pace(Some(now));
        assert_eq!([false, true].map(|ended| pace.is_due(now, NDJSON, ended)), [false, true]);
    }

    #[test]
    fn a_pipe_has_a_line_every_ten_seconds_and_none_about_a_short_transfer() {
        let mut pace = Pace::default();
        assert_eq!(printed(35_000, |now| pace.is_due_in_a_pipe(now)), [10_000, 20_000, 30_000]);
        let mut pace = Pace::default();
        assert_eq!(printed(9_990, |now| pace.is_due_in_a_pipe(now)), [0; 0]);
    }

    /// With 900 of 1,000 bytes from an earlier run, 10 bytes are a tenth of what is left, not nearly all of it.
    #[test]
    fn what_an_earlier_run_fetched_does_not_shorten_the_time_that_is_left() {
        let made = Instant::now();
        let bar = bar("fetch", 900, Some(1_000));
        let begin = Instant::now();
        // The bytes take longer than the bar took to be made, or a rate since then would pass too.
        while begin.elapsed() < begin - made {
            std::hint::spin_loop();
        }
        bar.set_position(910);
        let took = begin.elapsed();
        let left = bar.eta();
        assert!(left > took, "{left:?} left after {took:?}");
    }
}
