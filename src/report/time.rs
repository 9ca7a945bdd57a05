//! Times for people: local, with their zone, and how far away. In documents they are in UTC.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// For example `2026-11-25 04:56 CET (3h 05m ago)`, or `2026-11-25 08:01:12 CET (in 4m 52s)`.
pub fn at(time: Timestamp) -> String {
    let away = time.duration_since(Timestamp::now());
    let distance = distance(away.unsigned_abs());
    let how = if away.is_negative() { format!("{distance} ago") } else { format!("in {distance}") };
    // Seconds matter to those who wait.
    let format = if away.unsigned_abs() < HOUR { "%F %T %Z" } else { MINUTE };
    format!("{} ({how})", time.to_zoned(TimeZone::system()).strftime(format))
}

/// The same for something that has happened, for example `2026-11-25 04:56 CET (3h 05m ago)`.
pub fn since(time: Timestamp) -> String {
    let [time, ago] = columns(time);
    format!("{time} ({ago} ago)")
}

/// The same for two columns of a table: `2026-11-25 04:56 CET` and `3h 05m`.
pub fn columns(time: Timestamp) -> [String; 2] {
    // What has happened is not ahead: the clock was set back since, or a sandbox's own clock did not wait.
    let ago = Timestamp::now().duration_since(time).max(SignedDuration::ZERO).unsigned_abs();
    [time.to_zoned(TimeZone::system()).strftime(MINUTE).to_string(), distance(ago)]
}

const MINUTE: &str = "%F %H:%M %Z";
const HOUR: Duration = Duration::from_hours(1);

fn distance(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match hours {
        0 if minutes == 0 => format!("{seconds}s"),
        0 => format!("{minutes}m {:02}s", seconds % 60),
        1..48 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{} days", hours / 24),
    }
}

/// `5 min` or `2 h 10 min`.
pub fn minutes(seconds: u64) -> String {
    let minutes = seconds.div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_has_the_unit_that_matters() {
        let said = [52, 292, 11_100, 172_800].map(|seconds| distance(Duration::from_secs(seconds)));
        assert_eq!(said, ["52s", "4m 52s", "3h 05m", "2 days"]);
    }

    #[test]
    fn a_time_is_local_with_its_zone() {
        let now = Timestamp::now();
        let zone = now.to_zoned(TimeZone::system()).strftime("%Z").to_string();
        let ago = at(now - Duration::from_secs(7300));
        assert!(ago.contains(&zone) && ago.ends_with("(2h 01m ago)"), "{ago}");
        assert!(at(now + Duration::from_secs(7300)).contains(" (in 2h 01m)"));
    }

    #[test]
    fn what_has_happened_is_never_as_old_as_it_is_ahead() {
        let later = Timestamp::now() + Duration::from_secs(7300);
        assert_eq!(columns(later)[1], "0s");
    }

    #[test]
    fn a_time_is_said_in_hours_and_minutes() {
        assert_eq!([1, 3600, 7801].map(minutes), ["1 min", "1 h", "2 h 11 min"]);
    }
}
