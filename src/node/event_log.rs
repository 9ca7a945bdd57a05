//! Entries of Windows' event logs, in the form in which Windows gives them: records of `EVENTLOGRECORD` (winnt.h), one
//! after the other.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoggedEvent {
    pub at: Timestamp,
    /// For example `Service Control Manager`.
    pub source: String,
    pub id: u32,
    pub level: EventLevel,
    /// Its texts; Windows would put them into a sentence of its own.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventLevel {
    Error,
    Warning,
    Information,
}

/// The logs that have entries about Calico.
pub const LOGS: [&str; 2] = ["Application", "System"];

/// What services are named in entries of the Service Control Manager that explain a problem of Calico's.
const NAMED: [&str; 5] = ["calico", "kubelet", "kube-proxy", "containerd", "host network service"];

impl LoggedEvent {
    /// Whether it is this program's, or one of Windows about a service that Calico needs.
    pub fn is_about_calico(&self) -> bool {
        let text = self.text.to_lowercase();
        self.source.eq_ignore_ascii_case("calicoctl-win")
            || self.source == "Service Control Manager" && NAMED.iter().any(|name| text.contains(name))
    }
}

/// The length of a record's fixed part.
const HEAD: usize = 56;

/// Parses whole records; what is not one ends the list.
pub fn records(mut buffer: &[u8]) -> Vec<LoggedEvent> {
    let mut found = Vec::new();
    while let Some(length) = number(buffer, 0).map(|length| length as usize).filter(|length| *length >= HEAD) {
        let Some((record, rest)) = buffer.split_at_checked(length) else { break };
        found.extend(event(record));
        buffer = rest;
    }
    found
}

fn event(record: &[u8]) -> Option<LoggedEvent> {
    let types = number(record, 24)?;
    let (kind, strings) = (types & 0xFFFF, types >> 16);
    let mut at = usize::try_from(number(record, 36)?).ok()?;
    let mut texts = Vec::new();
    for _ in 0..strings {
        let text = utf16(record.get(at..)?);
        at += (text.encode_utf16().count() + 1) * 2;
        texts.push(text.trim().to_owned());
    }
    texts.retain(|text| !text.is_empty());
    Some(LoggedEvent {
        at: Timestamp::from_second(number(record, 12)?.into()).ok()?,
        source: utf16(record.get(HEAD..)?),
        // The upper half has the severity and the facility.
        id: number(record, 20)? & 0xFFFF,
        level: match kind {
            1 => EventLevel::Error,
            2 => EventLevel::Warning,
            _ => EventLevel::Information,
        },
        text: texts.join(", "),
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The text up to its zero.
fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    String::from_utf16_lossy(&units.take_while(|unit| *unit != 0).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Windows lays it out: the head, source, computer, strings, and the length again.
    fn record(source: &str, kind: u16, id: u32, strings: &[&str]) -> Vec<u8> {
        let wide = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let names = [wide(source), wide("WIN-A1")].concat();
        let at = HEAD + names.len();
        let body = [names, strings.iter().flat_map(|text| wide(text)).collect()].concat();
        let length = (HEAD + body.len() + 4) as u32;
        let mut head = vec![0_u8; HEAD];
        let mut set = |at: usize, number: u32| head[at..at + 4].copy_from_slice(&number.to_le_bytes());
        set(0, length);
        set(12, 1_764_210_600);
        set(20, 0xC000_0000 | id);
        set(24, u32::from(kind) | (strings.len() as u32) << 16);
        set(36, at as u32);
        [head, body, length.to_le_bytes().to_vec()].concat()
    }

    #[test]
    fn records_are_read_as_windows_lays_them_out() {
        let ours = record("calicoctl-win", 4, 1, &["install: OK (exit 0)\nresult: Größe 1"]);
        let crash = record("Service Control Manager", 1, 7031, &["Calico Windows Agent", "1", "", "5000"]);
        let other = record("Service Control Manager", 1, 7031, &["Print Spooler", "1"]);
        let mut buffer = [ours, crash, other].concat();
        // Half a record, and what is not used of the buffer.
        buffer.extend([200, 0, 0, 0, 1, 2, 3]);
        let found = records(&buffer);
        let said: Vec<String> =
            found.iter().map(|one| format!("{} {} {:?} {}", one.source, one.id, one.level, one.text)).collect();
        assert_eq!(
            said,
            [
                "calicoctl-win 1 Information install: OK (exit 0)\nresult: Größe 1",
                "Service Control Manager 7031 Error Calico Windows Agent, 1, 5000",
                "Service Control Manager 7031 Error Print Spooler, 1",
            ]
        );
        assert_eq!(found[0].at.to_string(), "2025-11-27T02:30:00Z");
        assert_eq!(found.iter().map(LoggedEvent::is_about_calico).collect::<Vec<_>>(), [true, true, false]);
        for broken in [&[][..], &[0; 8], &[0; 200], &[255; 60]] {
            assert_eq!(records(broken), [], "{broken:?}");
        }
    }
}
