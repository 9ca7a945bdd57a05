//! Archives as containerd is released in.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A .tar.gz of these files (POSIX ustar).
pub fn tar_gz<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    for (path, bytes) in files {
        let mut block = [0; 512];
        block[..path.len()].copy_from_slice(path.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        block[156] = b'0';
        block[257..262].copy_from_slice(b"ustar");
        gz.write_all(&block).unwrap();
        gz.write_all(bytes).unwrap();
        gz.write_all(&vec![0; bytes.len().wrapping_neg() % 512]).unwrap();
    }
    gz.write_all(&[0; 1024]).unwrap();
    gz.finish().unwrap()
}
