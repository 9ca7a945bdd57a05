//! Long texts of the executable, which `build.rs` packs.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// The packed bytes of a text that `build.rs` names, by its file name.
macro_rules! packed {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name))
    };
}
pub(crate) use packed;

/// The text of [`packed!`] bytes.
pub fn text(packed: &[u8]) -> String {
    let mut text = String::new();
    ZlibDecoder::new(packed).read_to_string(&mut text).expect("build.rs packed UTF-8");
    text
}
