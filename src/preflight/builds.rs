//! What is known about builds of Windows, as tables: a row is a line in the references.

/// Builds on which pods' network fails: from the first to the last that was reported, what fails, and what fixes it
/// (reference: CAL #8529, Windows-Containers #516; #61: the updates 8C and 9B of 2020, fixed in the third week of
/// October).
pub(super) const BAD_BUILDS: [(u32, std::ops::RangeInclusive<u32>, &str, &str); 2] = [
    (17763, 1432..=1518, "pods may not reach services after a restart of HNS", "KB4580390 (17763.1554)"),
    (20348, 2322..=2582, "pods lose their network", "KB5044281 (20348.2762)"),
];

/// Which builds Kubernetes supports on Windows nodes, from a minor version of 1 on (reference:
/// Kubernetes' pages on Windows).
const SUPPORTED: [(u64, &[u32]); 6] = [
    (14, &[17763]),
    (18, &[17763, 18362, 18363]),
    (19, &[17763, 18363, 19041]),
    (22, &[17763, 19041, 19042]),
    (23, &[17763, 19042, 20348]),
    (35, &[20348, 26100]),
];

/// The builds for a minor version of Kubernetes 1; none if it is older than all.
pub(super) fn supported(minor: u64) -> Option<&'static [u32]> {
    SUPPORTED.iter().rev().find(|(since, _)| minor >= *since).map(|(_, builds)| *builds)
}

/// The name of a build that people use.
pub(super) fn name(build: u32) -> &'static str {
    match build {
        17763 => "Server 2019",
        18362 => "version 1903",
        18363 => "version 1909",
        19041 => "version 2004",
        19042 => "version 20H2",
        20348 => "Server 2022",
        25398 => "version 23H2",
        26100 => "Server 2025",
        _ => "another Windows",
    }
}

/// Builds that turned a static address into DHCP when the vSwitch was made (reference: CAL #4631).
pub(super) const LOSE_STATIC_ADDRESS: [u32; 2] = [19041, 19042];

/// The Windows builds that pause images support, each with the first tag that does (Kubernetes'
/// `build/pause/CHANGELOG.md`). A later build runs the image of an earlier one.
pub(super) const PAUSE_SINCE: [(u32, [u64; 2]); 2] = [(20348, [3, 6]), (17763, [3, 4])];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kubernetes_has_its_windows() {
        let names = |minor| supported(minor).map(|builds| builds.iter().map(|build| name(*build)).collect::<Vec<_>>());
        assert_eq!(names(13), None, "before Windows nodes");
        for (minor, wanted) in [
            (14, vec!["Server 2019"]),
            (18, vec!["Server 2019", "version 1903", "version 1909"]),
            (21, vec!["Server 2019", "version 1909", "version 2004"]),
            (22, vec!["Server 2019", "version 2004", "version 20H2"]),
            (34, vec!["Server 2019", "version 20H2", "Server 2022"]),
            (35, vec!["Server 2022", "Server 2025"]),
        ] {
            assert_eq!(names(minor), Some(wanted), "1.{minor}");
        }
    }
}
