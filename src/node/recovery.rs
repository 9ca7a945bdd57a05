//! A service's recovery actions in the Service Control Manager's own format: the value `FailureActions` in the
//! service's registry key, a `SERVICE_FAILURE_ACTIONS` of 32-bit words with an offset in place of the pointer.

use crate::item::{Recovery, RecoveryAction};

/// A restart, one of the kinds of action; the others are 0 nothing, 2 reboot, 3 a command.
const RESTART: u32 = 1;
/// Reset period, two texts that are absent, count, offset of the actions.
const HEADER: usize = 20;

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

/// Recovery actions as bytes, without their two texts: these are values of their own.
pub fn encode(recovery: &Recovery) -> Vec<u8> {
    let count = u32::try_from(recovery.actions.len()).unwrap_or(u32::MAX);
    let offset = u32::try_from(HEADER).expect("twenty is small");
    let mut words = vec![recovery.reset_after, 0, 0, count, offset];
    for action in &recovery.actions {
        words.extend([action.kind, action.after_ms]);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Recovery actions from their bytes; none of them for bytes that are something else.
pub fn decode(bytes: &[u8]) -> Recovery {
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let (Some(&count), Some(&offset)) = (words.get(3), words.get(4)) else { return Recovery::default() };
    let actions = words.get(offset as usize / 4..).unwrap_or_default().chunks_exact(2).take(count as usize);
    let actions = actions.map(|action| RecoveryAction { kind: action[0], after_ms: action[1] }).collect();
    Recovery { reset_after: words[0], actions, ..Recovery::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_kept_as_windows_keeps_them() {
        // The value after `sc failure x reset= 86400 actions= restart/5000/restart/60000`.
        let kept = [
            0x80, 0x51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0, 0, 0x88, 0x13, 0, 0, 1, 0, 0,
            0, 0x60, 0xEA, 0, 0,
        ];
        let after = |bytes: &[u8]| restart_after(&decode(bytes));
        assert_eq!(encode(&restarts(&[5, 60])), kept);
        assert_eq!((after(&kept), beyond(decode(&kept))), (vec![5, 60], None));
        assert_eq!(after(&encode(&restarts(&[]))), [0; 0]);
        // The third action is nothing; then a reboot, and bytes of something else.
        let mut then_nothing = encode(&restarts(&[5, 10, 60]));
        then_nothing[HEADER + 16] = 0;
        assert_eq!(after(&then_nothing), [5, 10]);
        let whole = beyond(decode(&then_nothing)).unwrap();
        assert_eq!((encode(&whole), whole.actions.len()), (then_nothing.clone(), 3), "nothing of it is lost");
        then_nothing[HEADER] = 2;
        assert_eq!(after(&then_nothing), [0; 0]);
        assert_eq!(after(b"short"), [0; 0]);
        assert_eq!(after(&[0xFF; 64]), [0; 0]);
        assert_eq!(beyond(Recovery { reset_after: 60, ..Recovery::default() }), None, "nothing is done");
    }
}
