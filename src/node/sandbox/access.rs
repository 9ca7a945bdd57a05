//! The access rights of files and folders in the sandbox: from `node.yaml`, else Windows's defaults. On Linux and macOS
//! the file mode represents "administrators only", "others may only read" and "everybody". A sandbox on Windows keeps a
//! note for each restricted path beside the disk: file streams exist on NTFS only.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::model::Model;
use super::place::locate;
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::node::acl::{self, Acl, Caller};
use crate::values::WinPath;

/// The administrator who runs this program on every sandbox.
const ADMINISTRATOR: &str = "S-1-5-21-1004336348-1177238915-682003330-500";

/// The access list that `restrict` and `close` set on a folder on Windows.
const ADMINISTRATORS: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)";
const CLOSED: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)";
/// The access list of a folder that everybody may write to by its mode.
const EVERYBODY: &str = "O:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;WD)";

/// The defaults of Windows Server 2016 to 2025, as icacls shows them: `C:\` and `C:\Program Files` by DISA's STIGs for
/// Server 2016, 2019 and 2022, `C:\ProgramData` with Users (OI)(CI)(RX) and (CI)(WD,AD,WEA,WA) and CREATOR OWNER
/// (OI)(CI)(IO)(F).
const STOCK: [(&str, &str); 4] = [
    (
        r"C:\Program Files",
        "O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:PAI\
         (A;OICI;FA;;;S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464)\
         (A;;0x1301bf;;;SY)(A;OICIIO;GA;;;SY)(A;;0x1301bf;;;BA)(A;OICIIO;GA;;;BA)(A;OICI;0x1200a9;;;BU)\
         (A;OICIIO;GA;;;CO)",
    ),
    (
        r"C:\Windows",
        "O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:PAI\
         (A;OICI;FA;;;S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464)\
         (A;;0x1301bf;;;SY)(A;OICIIO;GA;;;SY)(A;;0x1301bf;;;BA)(A;OICIIO;GA;;;BA)(A;OICI;0x1200a9;;;BU)\
         (A;OICIIO;GA;;;CO)",
    ),
    (
        r"C:\ProgramData",
        "O:SYD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICIIO;GA;;;CO)(A;OICI;0x1200a9;;;BU)(A;CI;0x116;;;BU)",
    ),
    (r"C:\Users", "O:SYD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;OICI;0x1200a9;;;WD)"),
];
const ROOT: &str = "O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:PAI(A;OICI;FA;;;SY)\
    (A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;CI;LC;;;BU)(A;CIIO;DC;;;BU)(A;OICIIO;GA;;;CO)";

pub fn caller(model: &Model) -> Caller {
    Caller { elevated: model.elevated, sid: Some(ADMINISTRATOR.into()) }
}

/// Owner and access list of a path.
pub fn acl(root: &Path, model: &Model, path: &WinPath) -> Result<Acl> {
    let read = |sddl: &str| Acl::parse(sddl).with_context(|| format!("read the access list of {path}"));
    if let Some(sddl) = model.acls.get(path) {
        let invalid = || {
            let what = format!("the acls of node.yaml have no access list for {path}: `{sddl}`");
            Fault::new(Exit::InvalidConfig, "SandboxNodeInvalid", what).hint("write it in SDDL, as Get-Acl has it")
        };
        return Ok(Acl::parse(sddl).ok_or_else(invalid)?);
    }
    let place = locate(root, path)?;
    match access(root, &place) {
        Access::Administrators => return read(ADMINISTRATORS),
        Access::Closed => return read(CLOSED),
        _ => {}
    }
    if open_to_all(&place) {
        return read(EVERYBODY);
    }
    match path.parent() {
        None => read(ROOT),
        Some(above) => match STOCK.iter().find(|(known, _)| *path == WinPath::known(known)) {
            Some((_, sddl)) => read(sddl),
            None => Ok(acl(root, model, &above)?.inherited(place.is_dir(), acl::ADMINISTRATORS)),
        },
    }
}

/// The access as a Windows node reads it.
pub fn of_folder(root: &Path, model: &Model, path: &WinPath) -> Result<Access> {
    let place = locate(root, path)?;
    if !model.acls.contains_key(path) && access(root, &place) == Access::Administrators {
        return Ok(Access::Administrators);
    }
    let (list, caller) = (acl(root, model, path)?, caller(model));
    Ok(if list.other(&caller, acl::CHANGE_FOLDER).is_some() {
        Access::Open(model.acls.get(path).cloned().unwrap_or_else(|| list.sddl()))
    } else if list.is_for_administrators(&caller) {
        Access::Administrators
    } else if list.has_own_entries() {
        Access::Closed
    } else {
        Access::Inherited
    })
}

#[cfg(unix)]
mod by_host {
    use std::os::unix::fs::PermissionsExt;

    use super::{Access, Path, fs, io};

    pub fn access(_root: &Path, place: &Path) -> Access {
        match fs::metadata(place).map(|meta| meta.permissions().mode() & 0o777) {
            Ok(0o600 | 0o700) => Access::Administrators,
            Ok(0o750) if place.is_dir() => Access::Closed,
            _ => Access::Inherited,
        }
    }

    pub fn restrict(_root: &Path, place: &Path, wanted: &Access) -> io::Result<()> {
        let mode = match (wanted, place.is_dir()) {
            (Access::Administrators, true) => 0o700,
            (Access::Administrators, false) => 0o600,
            (Access::Closed | Access::ClosedIfNew, true) => 0o750,
            (_, true) => 0o755,
            (_, false) => 0o644,
        };
        fs::set_permissions(place, fs::Permissions::from_mode(mode))
    }

    /// Whether anybody may write to it.
    pub fn open_to_all(place: &Path) -> bool {
        fs::metadata(place).is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0)
    }

    /// The mode is removed with the file.
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

    const CLOSED: &str = "closed";

    pub fn access(root: &Path, place: &Path) -> Access {
        match fs::read_to_string(note(root, place)) {
            Ok(note) if note == CLOSED => Access::Closed,
            Ok(_) => Access::Administrators,
            Err(_) => Access::Inherited,
        }
    }

    pub fn restrict(root: &Path, place: &Path, wanted: &Access) -> io::Result<()> {
        let text = match wanted {
            Access::Administrators => "administrators",
            Access::Closed | Access::ClosedIfNew => CLOSED,
            _ => return forget(root, place),
        };
        let note = note(root, place);
        fs::create_dir_all(note.parent().unwrap_or(root))?;
        fs::write(note, text)
    }

    pub fn forget(root: &Path, place: &Path) -> io::Result<()> {
        files::gone(fs::remove_file(note(root, place)))
    }

    /// A note means that nobody else may read. It cannot say that all may write.
    pub fn open_to_all(_place: &Path) -> bool {
        false
    }

    /// The note of a path; a temporary file beside a path shares that path's note.
    fn note(root: &Path, place: &Path) -> PathBuf {
        let inside = place.strip_prefix(root).unwrap_or(place).to_string_lossy().to_lowercase();
        let name = inside.strip_suffix(files::BESIDE).unwrap_or(&inside);
        root.join(".sandbox").join("administrators").join(Sha256::of(name.as_bytes()).as_str())
    }
}

pub use by_host::{access, forget, open_to_all, restrict};
