//! Who may read a file or folder of the sandbox. On Linux and macOS its mode stands for the access
//! list of Windows. A sandbox on Windows keeps a note for each restricted path beside the disk:
//! file streams would do on NTFS, but on no other file system.

use std::fs;
use std::io;
use std::path::Path;

use crate::plan::item::Access;

#[cfg(unix)]
mod by_host {
    use std::os::unix::fs::PermissionsExt;

    use super::{Access, Path, fs, io};

    pub fn access(_root: &Path, place: &Path) -> Access {
        match fs::metadata(place).map(|meta| meta.permissions().mode() & 0o777) {
            Ok(0o600 | 0o700) => Access::Administrators,
            _ => Access::Inherited,
        }
    }

    pub fn restrict(_root: &Path, place: &Path, wanted: Access) -> io::Result<()> {
        let mode = match (wanted, place.is_dir()) {
            (Access::Administrators, true) => 0o700,
            (Access::Administrators, false) => 0o600,
            (Access::Inherited, true) => 0o755,
            (Access::Inherited, false) => 0o644,
        };
        fs::set_permissions(place, fs::Permissions::from_mode(mode))
    }

    /// Whether anybody may write to it.
    pub fn open_to_all(place: &Path) -> bool {
        fs::metadata(place).is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0)
    }

    /// The mode went with the file.
    pub fn forget(_root: &Path, _place: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(unix))]
mod by_host {
    use std::path::PathBuf;

    use super::{Access, Path, fs, io};
    use crate::node::files;
    use crate::values::Sha256;

    pub fn access(root: &Path, place: &Path) -> Access {
        if note(root, place).is_file() { Access::Administrators } else { Access::Inherited }
    }

    pub fn restrict(root: &Path, place: &Path, wanted: Access) -> io::Result<()> {
        match wanted {
            Access::Administrators => {
                let note = note(root, place);
                fs::create_dir_all(note.parent().unwrap_or(root))?;
                fs::write(note, place.to_string_lossy().as_bytes())
            }
            Access::Inherited => forget(root, place),
        }
    }

    pub fn forget(root: &Path, place: &Path) -> io::Result<()> {
        files::gone(fs::remove_file(note(root, place)))
    }

    /// A note says that nobody else may read. That all may write it cannot say.
    pub fn open_to_all(_place: &Path) -> bool {
        false
    }

    /// The note of a path; what is written beside a path, to replace it, has that one's.
    fn note(root: &Path, place: &Path) -> PathBuf {
        let inside = place.strip_prefix(root).unwrap_or(place).to_string_lossy().to_lowercase();
        let name = inside.strip_suffix(files::BESIDE).unwrap_or(&inside);
        root.join(".sandbox").join("administrators").join(Sha256::of(name.as_bytes()).as_str())
    }
}

pub use by_host::{access, forget, open_to_all, restrict};
