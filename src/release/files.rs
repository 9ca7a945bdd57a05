//! The few file operations of this module that differ by system in [`std::fs`], and the meaning of their errors.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result};

use crate::fault::{Exit, Fault};
use crate::node::files::rename;

/// Bytes per read and per write. Larger ones are no faster (docs/performance.md).
pub const BUFFER: usize = 256 << 10;

/// Opens an archive for reading. On Windows others cannot write to it meanwhile, so that what was hashed is what is
/// extracted.
pub fn open_shared(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(windows)]
    {
        use std::os::windows::fs::OpenOptionsExt;
        const FILE_SHARE_READ: u32 = 1;
        options.share_mode(FILE_SHARE_READ);
    }
    options.open(path)
}

/// Fills `buffer` from `at` on. Takes the file by reference: several threads read one file.
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match read_at(file, buffer, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buffer = &mut buffer[n..];
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads some of a file from `at` on.
#[cfg(unix)]
pub fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, at)
}

/// Reads some of a file from `at` on.
#[cfg(windows)]
pub fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, at)
}

/// Explains an error of the file system, and what to do about it.
///
/// `doing` is the operation with its path, for example `write /srv/x`.
pub fn explain(error: io::Error, doing: &str) -> Error {
    let fault = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Fault::new(Exit::Failed, "DiskFull", format!("cannot {doing}: the disk is full"))
                .hint("free some space on that disk (a release needs about 250 MB), then run the command again")
        }
        io::ErrorKind::PermissionDenied => Fault::new(
            Exit::Failed,
            "AccessDenied",
            format!("cannot {doing}: access is denied"),
        )
        .hint("run the command as a user with that right (on Windows: Run as administrator), or choose another folder"),
        _ => return Error::new(error).context(format!("cannot {doing}")),
    };
    Error::new(error).context(fault)
}

/// [`explain`] for a path.
pub trait PathContext<T> {
    fn doing(self, verb: &str, path: &Path) -> Result<T>;
}

impl<T> PathContext<T> for io::Result<T> {
    fn doing(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|error| explain(error, &format!("{verb} {}", path.display())))
    }
}

/// A folder for building something, next to its destination. It is deleted when dropped, unless [`Staging::publish`]
/// moved it there.
pub struct Staging {
    path: PathBuf,
    dest: PathBuf,
    published: bool,
}

impl Staging {
    /// Creates the folder. `dest` must not exist, or be an empty folder.
    pub fn next_to(dest: &Path) -> Result<Self> {
        let name = dest
            .file_name()
            .ok_or_else(|| anyhow::anyhow!("{} is not a name for a folder", dest.display()))?
            .to_string_lossy();
        match dest.read_dir().map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(false) => {
                return Err(Fault::new(Exit::Failed, "FolderNotEmpty", format!("{} is not empty", dest.display()))
                    .hint("choose a folder that does not exist yet, or an empty one")
                    .into());
            }
            Err(error) => return Err(explain(error, &format!("use {} as a folder", dest.display()))),
        }
        let parent = match dest.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(parent).doing("create the folder", parent)?;
        // One fixed name: the next run removes what a killed run left behind.
        let path = parent.join(format!(".{name}.calicoctl-win-partial"));
        remove_tree(&path)?;
        std::fs::create_dir(&path).doing("create the folder", &path)?;
        Ok(Self { path, dest: dest.to_owned(), published: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the folder to its destination, in one step.
    pub fn publish(mut self) -> Result<()> {
        // Windows does not rename over a folder, even an empty one. This fails for a full one.
        match std::fs::remove_dir(&self.dest) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(explain(error, &format!("replace the empty folder {}", self.dest.display())));
            }
            _ => {}
        }
        rename(&self.path, &self.dest)
            .map_err(|error| explain(error, &format!("move the finished folder to {}", self.dest.display())))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published {
            // Report the error that led here, not this one.
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}

fn remove_tree(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(explain(error, &format!("clear {}, which an interrupted run left", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::testing::names;

    /// Linux has a device that is always full, so the error is the real one.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_as_full() {
        use std::io::Write;

        let path = Path::new("/dev/full");
        let mut file = File::options().write(true).open(path).unwrap();
        let error = file.write_all(b"x").doing("write", path).unwrap_err();
        assert_eq!(Fault::id_of(&error), "DiskFull");
        assert_eq!(
            format!("{error:#}"),
            "cannot write /dev/full: the disk is full: No space left on device (os error 28)"
        );
    }

    #[test]
    fn staging_leaves_nothing_unless_published() {
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("deep/tree");
        let staging = Staging::next_to(&dest).unwrap();
        std::fs::write(staging.path().join("a"), b"a").unwrap();
        drop(staging);
        assert!(names(&folder.path().join("deep")).is_empty());

        let staging = Staging::next_to(&dest).unwrap();
        std::fs::write(staging.path().join("a"), b"a").unwrap();
        staging.publish().unwrap();
        assert_eq!(names(&folder.path().join("deep")), ["tree"]);
        assert_eq!(names(&dest), ["a"]);
    }

    #[test]
    fn reading_past_the_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"abc").unwrap();
        let file = open_shared(&path).unwrap();
        let mut two = [0; 2];
        read_exact_at(&file, &mut two, 1).unwrap();
        assert_eq!(&two, b"bc");
        assert_eq!(read_exact_at(&file, &mut two, 2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
