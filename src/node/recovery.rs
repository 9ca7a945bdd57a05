//! A service's recovery actions, as the seconds before each restart where these say all.

use crate::item::{Recovery, RecoveryAction};

/// A restart, one of the kinds of action; the others are 0 nothing, 2 reboot, 3 a command.
const RESTART: u32 = 1;

/// After how many seconds without a failure the count of failures is reset.
pub const RESET_AFTER: u32 = 86_400;

/// Restarts after these seconds.
pub fn restarts(after: &[u32]) -> Recovery {
    let restart = |seconds: &u32| RecoveryAction { kind: RESTART, after_ms: seconds.saturating_mul(1000) };
    Recovery { reset_after: RESET_AFTER, actions: after.iter().map(restart).collect(), ..Recovery::default() }
}

/// The seconds before each restart, up to the first action that is not one.
pub fn restart_after(recovery: &Recovery) -> Vec<u32> {
    let restarts = recovery.actions.iter().take_while(|action| action.kind == RESTART);
    restarts.map(|action| action.after_ms / 1000).collect()
}

/// The same recovery actions, if the seconds before each restart do not express them.
pub fn beyond(recovery: Recovery) -> Option<Recovery> {
    let nothing = recovery.actions.is_empty() && recovery.command.is_empty() && recovery.reboot_message.is_empty();
    (!nothing && recovery != restarts(&restart_after(&recovery))).then_some(recovery)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_a_row_of_restarts_is_kept_whole() {
        let of = |actions: &[(u32, u32)], reset_after| Recovery {
            reset_after,
            actions: actions.iter().map(|&(kind, after_ms)| RecoveryAction { kind, after_ms }).collect(),
            ..Recovery::default()
        };
        let plain = of(&[(1, 5000), (1, 60_000)], RESET_AFTER);
        assert_eq!((restarts(&[5, 60]), restart_after(&plain), beyond(plain.clone())), (plain, vec![5, 60], None));
        for whole in [
            of(&[(1, 5000), (1, 10_000), (0, 0)], RESET_AFTER),
            of(&[(1, 1500)], RESET_AFTER),
            of(&[(1, 5000)], 60),
            of(&[(4, 5000)], RESET_AFTER),
            Recovery { command: "watch.exe".into(), ..Recovery::default() },
        ] {
            assert_eq!(beyond(whole.clone()), Some(whole));
        }
        assert_eq!(restart_after(&of(&[(1, 5000), (2, 0), (1, 1000)], 0)), [5]);
        assert_eq!(beyond(of(&[], 60)), None, "nothing is done");
    }
}
