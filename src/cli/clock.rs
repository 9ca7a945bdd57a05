//! Whether this machine's clock has a date that can be used at all. Whether it is right is a check (`ClockInSync`).

use std::time::{Duration, SystemTime};

use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;
use crate::report::reporter::{Format, Reporter, Style};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Refuses a date before 1970, where the TLS library ends the program, and one near the year 9999, after which dates
/// cannot be written.
///
/// # Errors
/// `ClockUnusable`.
pub(super) fn check(now: SystemTime) -> Result<(), Fault> {
    let usable = SystemTime::UNIX_EPOCH + DAY..SystemTime::UNIX_EPOCH + 7000 * 365 * DAY;
    if usable.contains(&now) {
        return Ok(());
    }
    let when = if now < usable.start { "before 1970" } else { "after the year 8900" };
    let what = format!("the date of this machine's clock is {when}");
    Err(Fault::new(Exit::Failed, "ClockUnusable", what).hint("set the clock (Set-Date), then run the command again"))
}

/// Reports that, and returns the exit code. Not as NDJSON, whose lines have the time.
pub(super) fn refused(mut style: Style, fault: Fault) -> i32 {
    if style.format == Format::Ndjson {
        style.format = Format::Json;
    }
    let result = RunResult::failed(&fault.into());
    Reporter::new(style, "").finish(&result);
    result.exit_code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_cannot_be_used_are_refused() {
        let said = |now: SystemTime| check(now).map_err(|fault| fault.what);
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(said(epoch + 2 * DAY), Ok(()));
        assert_eq!(said(SystemTime::now()), Ok(()));
        for now in [epoch - DAY, epoch] {
            assert_eq!(said(now).unwrap_err(), "the date of this machine's clock is before 1970");
        }
        let last = epoch + 8000 * 365 * DAY;
        assert_eq!(said(last).unwrap_err(), "the date of this machine's clock is after the year 8900");
    }
}
