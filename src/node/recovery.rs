//! A service's recovery actions in the form in which the Service Control Manager keeps them: the
//! value `FailureActions` in the service's registry key, a `SERVICE_FAILURE_ACTIONS` of 32-bit
//! words with an offset in place of the pointer.

/// A restart, among the kinds of action; the others are 0 nothing, 2 reboot, 3 a command.
const RESTART: u32 = 1;
/// Reset period, two texts that are not here, count, offset of the actions.
const HEADER: usize = 20;

/// After how many seconds without a failure the count of failures begins anew.
pub const RESET_AFTER: u32 = 86_400;

/// Restarts after these seconds, as bytes.
pub fn encode(restart_after: &[u32]) -> Vec<u8> {
    let count = u32::try_from(restart_after.len()).unwrap_or(u32::MAX);
    let offset = u32::try_from(HEADER).expect("twenty is small");
    let mut words = vec![RESET_AFTER, 0, 0, count, offset];
    for seconds in restart_after {
        words.extend([RESTART, seconds.saturating_mul(1000)]);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The seconds before each restart, up to the first action that is none. Bytes that are no
/// recovery actions have none.
pub fn decode(bytes: &[u8]) -> Vec<u32> {
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let (Some(&count), Some(&offset)) = (words.get(3), words.get(4)) else { return Vec::new() };
    let actions = words.get(offset as usize / 4..).unwrap_or_default();
    let actions = actions.chunks_exact(2).take(count as usize);
    actions.take_while(|action| action[0] == RESTART).map(|action| action[1] / 1000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_kept_as_windows_keeps_them() {
        // As `sc failure x reset= 86400 actions= restart/5000/restart/60000` leaves it.
        let kept = [
            0x80, 0x51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0, 0, 0x88, 0x13, 0, 0, 1, 0, 0,
            0, 0x60, 0xEA, 0, 0,
        ];
        assert_eq!(encode(&[5, 60]), kept);
        assert_eq!(decode(&kept), [5, 60]);
        assert_eq!(decode(&encode(&[])), [0; 0]);
        // The third action is none; then a reboot, and bytes that are something else.
        let mut then_nothing = encode(&[5, 10, 60]);
        then_nothing[HEADER + 16] = 0;
        assert_eq!(decode(&then_nothing), [5, 10]);
        then_nothing[HEADER] = 2;
        assert_eq!(decode(&then_nothing), [0; 0]);
        assert_eq!(decode(b"short"), [0; 0]);
        assert_eq!(decode(&[0xFF; 64]), [0; 0]);
    }
}
