//! Decodes the bytes that Windows' editors and shells write.

use std::fmt;

/// Why bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecodable {
    /// A byte order mark of UTF-16, but what follows is not UTF-16.
    NotUtf16,
    /// No byte order mark, and not UTF-8.
    NotUtf8,
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf16 => "it has the byte order mark of UTF-16, but is not UTF-16",
            Self::NotUtf8 => "it is not UTF-8",
        })
    }
}

/// Reads UTF-8, with or without a byte order mark, and UTF-16 with one: `>` and `Out-File` of Windows PowerShell 5.1
/// write that by default.
///
/// # Errors
/// When it is neither.
pub fn decode(bytes: &[u8]) -> Result<String, Undecodable> {
    let utf16 = |rest: &[u8], read: fn([u8; 2]) -> u16| {
        let (pairs, odd) = rest.as_chunks::<2>();
        let units = pairs.iter().map(|pair| read(*pair));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.ok().filter(|_| odd.is_empty()).ok_or(Undecodable::NotUtf16)
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec()).map_err(|_| Undecodable::NotUtf8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_encodings_are_read_and_other_bytes_are_refused() {
        let wide = |text: &str, bytes: fn(u16) -> [u8; 2], mark: [u8; 2]| -> Vec<u8> {
            mark.into_iter().chain(text.encode_utf16().flat_map(bytes)).collect()
        };
        for bytes in [
            "k: ö\r\n".as_bytes().to_vec(),
            "\u{feff}k: ö\r\n".as_bytes().to_vec(),
            wide("k: ö\r\n", u16::to_le_bytes, [0xff, 0xfe]),
            wide("k: ö\r\n", u16::to_be_bytes, [0xfe, 0xff]),
        ] {
            assert_eq!(decode(&bytes).as_deref(), Ok("k: ö\r\n"), "{bytes:?}");
        }
        assert_eq!(decode(b"k: \xf6"), Err(Undecodable::NotUtf8), "code page 1252");
        assert_eq!(decode(b"\xff\xfek\0:"), Err(Undecodable::NotUtf16), "half a unit");
        assert_eq!(decode(b"\xff\xfe\0\xd8"), Err(Undecodable::NotUtf16), "half a pair");
    }
}
