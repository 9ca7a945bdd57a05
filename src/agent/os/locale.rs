//! A time as .NET's general format "G" writes it: by the region of the account that runs this process.

use std::ptr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use windows_sys::Win32::Foundation::SYSTEMTIME;
use windows_sys::Win32::Globalization::{DATE_SHORTDATE, GetDateFormatEx, GetTimeFormatEx};
use windows_sys::Win32::System::Time::SystemTimeToTzSpecificLocalTime;

use crate::node::windows::wide::wide;

/// `[DateTime]::ToString("G")` in this account's PowerShell: its short date, a space, its long time. PowerShell 5.1's
/// .NET takes both patterns from the same settings as these functions, with what the account changed in them
/// (<https://learn.microsoft.com/dotnet/api/system.globalization.cultureinfo.useuseroverride>).
pub fn general_format(time: Timestamp) -> String {
    let local = universal(time).as_ref().and_then(in_zone).and_then(|local| in_region(&local, None));
    local.unwrap_or_else(|| super::english(time, &TimeZone::UTC))
}

/// A time in UTC.
fn universal(time: Timestamp) -> Option<SYSTEMTIME> {
    let time = TimeZone::UTC.to_datetime(time);
    let part = |value: i8| u16::try_from(value).unwrap_or_default();
    Some(SYSTEMTIME {
        wYear: u16::try_from(time.year()).ok()?,
        wMonth: part(time.month()),
        wDayOfWeek: 0,
        wDay: part(time.day()),
        wHour: part(time.hour()),
        wMinute: part(time.minute()),
        wSecond: part(time.second()),
        wMilliseconds: 0,
    })
}

/// The same in this machine's zone, by its rules of today.
fn in_zone(universal: &SYSTEMTIME) -> Option<SYSTEMTIME> {
    let mut local = *universal;
    // SAFETY: no zone means the machine's; both times outlive the call.
    let known = unsafe { SystemTimeToTzSpecificLocalTime(ptr::null(), universal, &raw mut local) };
    (known != 0).then_some(local)
}

/// `region`: for example `de-DE`; none is the account's own. None if Windows does not know it.
fn in_region(time: &SYSTEMTIME, region: Option<&str>) -> Option<String> {
    let name = region.map(wide);
    let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
    let (mut date, mut clock) = ([0_u16; 128], [0_u16; 128]);
    // SAFETY: the name is null or ends with a zero, and the buffers are as long as is said; all outlive the calls.
    let lengths = unsafe {
        [
            GetDateFormatEx(name, DATE_SHORTDATE, time, ptr::null(), date.as_mut_ptr(), 128, ptr::null()),
            GetTimeFormatEx(name, 0, time, ptr::null(), clock.as_mut_ptr(), 128),
        ]
    };
    let text = |units: &[u16], length: i32| {
        let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
        Some(String::from_utf16_lossy(&units[..length - 1]))
    };
    Some(format!("{} {}", text(&date, lengths[0])?, text(&clock, lengths[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_has_its_own_form_and_the_accounts_own_is_the_default() {
        let time: Timestamp = "2026-01-02T15:04:05Z".parse().unwrap();
        let utc = universal(time).unwrap();
        let form = |region: &str| in_region(&utc, Some(region));
        assert_eq!(form("en-US").as_deref(), Some("1/2/2026 3:04:05 PM"));
        assert_eq!(form("en-GB").as_deref(), Some("02/01/2026 15:04:05"));
        // Windows writes 02.01.2026, and Wine's data has no zeros.
        assert_eq!(form("de-DE").unwrap().replace("02.01.", "2.1."), "2.1.2026 15:04:05");
        assert_eq!(form("no such region"), None);
        let local = in_zone(&utc).unwrap();
        assert_eq!(general_format(time), in_region(&local, None).unwrap());
        // By the minute: no zone is more than 14 hours away.
        let minutes = |at: &SYSTEMTIME| (i64::from(at.wDay) * 24 + i64::from(at.wHour)) * 60 + i64::from(at.wMinute);
        assert!((minutes(&local) - minutes(&utc)).abs() <= 14 * 60);
    }
}
