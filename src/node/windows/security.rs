//! Access rights of files and folders: Windows access lists.
//!
//! Set when a file is created, or by `SetFileSecurityW`, the only such call that Wine implements correctly. Read by
//! their trustees and not by the flag "protected", which Wine drops.

use std::fs::File;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::Path;

use windows_sys::Win32::Foundation::{GENERIC_WRITE, HANDLE, INVALID_HANDLE_VALUE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSecurityDescriptorToStringSecurityDescriptorW, ConvertStringSecurityDescriptorToSecurityDescriptorW,
    ConvertStringSidToSidW, SDDL_REVISION_1, SE_FILE_OBJECT, SetNamedSecurityInfoW,
};
use windows_sys::Win32::Security::{
    ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, ACL_REVISION, DACL_SECURITY_INFORMATION, GetAce, GetKernelObjectSecurity,
    GetSecurityDescriptorDacl, GetSecurityDescriptorOwner, InitializeAcl, LookupAccountSidW,
    OWNER_SECURITY_INFORMATION, PROTECTED_DACL_SECURITY_INFORMATION, PSID, SECURITY_ATTRIBUTES, SetFileSecurityW,
    UNPROTECTED_DACL_SECURITY_INFORMATION,
};
use windows_sys::Win32::Storage::FileSystem::{
    CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_NORMAL, FILE_FLAG_BACKUP_SEMANTICS,
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, OPEN_EXISTING, READ_CONTROL,
};

use super::os;
use super::sid::{sid_text, taken};
use super::wide::{wide, wide_path};
use crate::item::Access;
use crate::node::acl::{self, Acl, Caller};

/// A file that only SYSTEM and Administrators may access, whatever its folder allows.
const FILE: &str = "D:P(A;;FA;;;SY)(A;;FA;;;BA)";

/// The same for an existing file: another owner could change its list again.
const FILE_AND_OWNER: &str = "O:BAD:P(A;;FA;;;SY)(A;;FA;;;BA)";

/// The same for a folder and everything created in it. Administrators own it: an owner may always change the access
/// list.
const FOLDER: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)";

/// A folder that users may read, with everything created in it: FILE_GENERIC_READ and FILE_GENERIC_EXECUTE, as below
/// `C:\Program Files`.
const CLOSED: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)";

const ACCESS_ALLOWED: u8 = 0;
/// `ACCESS_ALLOWED_CALLBACK_ACE_TYPE`: an ordinary entry with a condition after the trustee.
const ACCESS_ALLOWED_IF: u8 = 9;
const ACCESS_DENIED: u8 = 1;

/// Creates a file with its access list from the start, and opens it.
///
/// # Errors
/// When Windows refuses.
pub fn create_file(path: &Path, access: &Access) -> io::Result<File> {
    if *access == Access::Inherited {
        return File::create_new(path);
    }
    let descriptor = Descriptor::parse(FILE)?;
    let attributes = descriptor.attributes();
    let name = wide_path(path);
    // SAFETY: the name is zero-terminated; the attributes and the descriptor they point to live
    // through the call.
    let handle = unsafe {
        CreateFileW(
            name.as_ptr(),
            GENERIC_WRITE,
            FILE_SHARE_READ,
            &raw const attributes,
            CREATE_NEW,
            FILE_ATTRIBUTE_NORMAL,
            std::ptr::null_mut(),
        )
    };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is a file's, was just made, and nobody else has it.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// Creates a folder with its access list from the start.
///
/// # Errors
/// When Windows refuses.
pub fn create_folder(path: &Path, access: &Access) -> io::Result<()> {
    let sddl = match access {
        Access::Inherited => return std::fs::create_dir(path),
        Access::Administrators => FOLDER,
        Access::Closed | Access::ClosedIfNew => CLOSED,
        Access::Open(sddl) => sddl,
    };
    let descriptor = Descriptor::parse(sddl)?;
    let attributes = descriptor.attributes();
    let name = wide_path(path);
    // SAFETY: as in `create_file`.
    done(unsafe { CreateDirectoryW(name.as_ptr(), &raw const attributes) })
}

/// Restricts an existing file or folder to SYSTEM and Administrators. The contents of a folder keep their own access
/// lists.
///
/// # Errors
/// When Windows refuses.
pub fn restrict(path: &Path) -> io::Result<()> {
    set(path, if path.is_dir() { FOLDER } else { FILE_AND_OWNER })
}

/// Restricts an existing folder so that only SYSTEM and Administrators may write. Its contents keep their own access
/// lists.
///
/// # Errors
/// When Windows refuses.
pub fn close(folder: &Path) -> io::Result<()> {
    set(folder, CLOSED)
}

/// Restores a folder's owner and access list from [`access`].
///
/// # Errors
/// When Windows refuses.
pub fn restore(folder: &Path, sddl: &str) -> io::Result<()> {
    // Only with this privilege can the owner be set to another account. Without it Windows returns an error below.
    let _may_give_away = os::enable("SeRestorePrivilege");
    // The list is marked as inheriting only if that is requested (AUTO_INHERIT_REQ with AUTO_INHERITED).
    let (owner, list) = sddl.split_once("D:").unwrap_or(("", sddl));
    let (flags, entries) = list.split_at(list.find('(').unwrap_or(list.len()));
    set(folder, &format!("{owner}D:{}{entries}", flags.replace("AI", "ARAI")))
}

/// Sets the access list of an existing file or folder, and the owner if there is one, from a text in SDDL.
///
/// # Errors
/// When Windows refuses.
pub fn set(path: &Path, sddl: &str) -> io::Result<()> {
    let descriptor = Descriptor::parse(sddl)?;
    let owner = if sddl.starts_with("O:") { OWNER_SECURITY_INFORMATION } else { 0 };
    let protected =
        if sddl.contains("D:P") { PROTECTED_DACL_SECURITY_INFORMATION } else { UNPROTECTED_DACL_SECURITY_INFORMATION };
    let parts = DACL_SECURITY_INFORMATION | protected | owner;
    let name = wide_path(path);
    // SAFETY: the name is zero-terminated and the descriptor lives through the call.
    done(unsafe { SetFileSecurityW(name.as_ptr(), parts, descriptor.0) })
}

/// Removes a folder's own access list, so that it inherits from the folder above.
///
/// # Errors
/// When Windows refuses.
pub fn inherit(folder: &Path) -> io::Result<()> {
    let name = wide_path(folder);
    let mut empty = ACL { AclRevision: 0, Sbz1: 0, AclSize: 0, AceCount: 0, Sbz2: 0 };
    let size = size_of::<ACL>().try_into().expect("it is 8 bytes");
    // SAFETY: the list is ours and has the size that is said.
    done(unsafe { InitializeAcl(&raw mut empty, size, ACL_REVISION) })?;
    let parts = DACL_SECURITY_INFORMATION | UNPROTECTED_DACL_SECURITY_INFORMATION;
    let null = std::ptr::null_mut;
    // SAFETY: the name is zero-terminated and the list valid; what is not set is null. Not SetFileSecurityW, since only
    // this one computes inherited entries.
    let code = unsafe {
        SetNamedSecurityInfoW(name.as_ptr(), SE_FILE_OBJECT, parts, null(), null(), &raw const empty, std::ptr::null())
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.cast_signed())) }
}

/// The account that runs this program.
pub fn caller() -> Caller {
    Caller { elevated: os::is_elevated().unwrap_or(false), sid: os::own_sid() }
}

/// The access to a file or folder. `Administrators`: it has entries of its own, only for SYSTEM, Administrators and
/// this program's account if that is an administrator; `Closed`: it has entries of its own and others may read; `Open`:
/// a folder in which others may write. With inherited entries only it is `Inherited`, however little they allow.
///
/// # Errors
/// When it cannot be read.
pub fn access(path: &Path) -> io::Result<Access> {
    let (list, caller) = (List::read(path, Links::Followed)?, caller());
    let acl = list.acl()?;
    Ok(if acl.is_for_administrators(&caller) && acl.other(&caller, acl::CONTROL).is_none() {
        Access::Administrators
    } else if !path.is_dir() {
        Access::Inherited
    } else if acl.other(&caller, acl::CHANGE_FOLDER).is_some() {
        Access::Open(list.sddl()?)
    } else if acl.has_own_entries() {
        Access::Closed
    } else {
        Access::Inherited
    })
}

/// Owner and access list of a file or folder; of a link, those of the link itself.
///
/// # Errors
/// When they cannot be read.
pub fn acl(path: &Path) -> io::Result<Acl> {
    List::read(path, Links::Themselves)?.acl()
}

/// Windows's name for an account, for example `BUILTIN\Users`; none for an unknown one.
pub fn account(sid: &str) -> Option<String> {
    let text = wide(sid);
    let mut parsed: PSID = std::ptr::null_mut();
    // SAFETY: the text is zero-terminated, and the place is ours.
    if unsafe { ConvertStringSidToSidW(text.as_ptr(), &raw mut parsed) } == 0 {
        return None;
    }
    // An account's name is 256 characters at most, and so is a domain's.
    let (mut name, mut domain) = ([0u16; 260], [0u16; 260]);
    let (mut name_length, mut domain_length, mut kind) = (260, 260, 0);
    // SAFETY: the SID is valid, and both buffers have the lengths that are said.
    let found = unsafe {
        LookupAccountSidW(
            std::ptr::null(),
            parsed,
            name.as_mut_ptr(),
            &raw mut name_length,
            domain.as_mut_ptr(),
            &raw mut domain_length,
            &raw mut kind,
        )
    };
    // SAFETY: Windows allocated it with LocalAlloc, and it is not used any more.
    unsafe { LocalFree(parsed) };
    if found == 0 {
        return None;
    }
    let text = |units: &[u16], length: u32| String::from_utf16_lossy(units.get(..length as usize).unwrap_or_default());
    let (name, domain) = (text(&name, name_length), text(&domain, domain_length));
    Some(if domain.is_empty() { name } else { format!(r"{domain}\{name}") })
}

/// Whether the list of a link or of its target is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Followed,
    Themselves,
}

/// A security descriptor from Windows: 64-bit words, for alignment.
struct List(Vec<u64>);

impl List {
    fn read(path: &Path, links: Links) -> io::Result<Self> {
        let name = wide_path(path);
        let itself = if links == Links::Themselves { FILE_FLAG_OPEN_REPARSE_POINT } else { 0 };
        // SAFETY: the name is zero-terminated; no attributes and no template are given.
        let handle = unsafe {
            CreateFileW(
                name.as_ptr(),
                READ_CONTROL,
                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                std::ptr::null(),
                OPEN_EXISTING,
                FILE_FLAG_BACKUP_SEMANTICS | itself,
                std::ptr::null_mut(),
            )
        };
        if handle == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle is a file's or folder's, was just made, and nobody else has it.
        let open = unsafe { File::from_raw_handle(handle) };
        Self::of(open.as_raw_handle())
    }

    /// That of an open object.
    fn of(open: HANDLE) -> io::Result<Self> {
        let parts = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
        let mut needed = 0;
        let mut buffer = vec![0u64; 64];
        loop {
            let size = u32::try_from(buffer.len() * 8).expect("a descriptor is 128 KiB at most");
            // SAFETY: the handle is open, and the buffer has the size that is said.
            let read =
                unsafe { GetKernelObjectSecurity(open, parts, buffer.as_mut_ptr().cast(), size, &raw mut needed) };
            if read != 0 {
                return Ok(Self(buffer));
            }
            if needed <= size {
                return Err(io::Error::last_os_error());
            }
            buffer.resize(needed as usize / 8 + 1, 0);
        }
    }

    fn acl(&self) -> io::Result<Acl> {
        let descriptor = self.0.as_ptr().cast_mut().cast();
        let (mut owner, mut defaulted): (PSID, i32) = (std::ptr::null_mut(), 0);
        // SAFETY: the buffer holds a descriptor that Windows wrote; it outlives `owner`.
        done(unsafe { GetSecurityDescriptorOwner(descriptor, &raw mut owner, &raw mut defaulted) })?;
        let (mut present, mut list): (i32, *mut ACL) = (0, std::ptr::null_mut());
        // SAFETY: as above.
        done(unsafe { GetSecurityDescriptorDacl(descriptor, &raw mut present, &raw mut list, &raw mut defaulted) })?;
        // SAFETY: the owner points into the buffer.
        let owner = unsafe { sid_text(owner) };
        if present == 0 || list.is_null() {
            return Ok(Acl { owner, entries: None });
        }
        // SAFETY: the list points into the buffer, and Windows made it.
        let entries = unsafe { entries(list) };
        Ok(Acl { owner, entries: Some(entries) })
    }

    /// As SDDL.
    fn sddl(&self) -> io::Result<String> {
        let parts = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
        let mut text = std::ptr::null_mut();
        // SAFETY: the buffer holds a descriptor that Windows wrote; the length is not asked for.
        done(unsafe {
            ConvertSecurityDescriptorToStringSecurityDescriptorW(
                self.0.as_ptr().cast_mut().cast(),
                SDDL_REVISION_1,
                parts,
                &raw mut text,
                std::ptr::null_mut(),
            )
        })?;
        // SAFETY: Windows gave a zero-terminated string, allocated with LocalAlloc.
        Ok(unsafe { taken(text) })
    }
}

/// Owner and access list of a kernel object that was opened with READ_CONTROL.
pub fn acl_of(object: HANDLE) -> io::Result<Acl> {
    List::of(object)?.acl()
}

/// Makes an object with an access list of its own.
pub fn with_list<T>(sddl: &str, make: impl FnOnce(*const SECURITY_ATTRIBUTES) -> T) -> io::Result<T> {
    let descriptor = Descriptor::parse(sddl)?;
    let attributes = descriptor.attributes();
    Ok(make(&raw const attributes))
}

/// The entries of a list that allow or deny something.
///
/// # Safety
/// The list must be a valid one.
unsafe fn entries(list: *const ACL) -> Vec<acl::Entry> {
    let mut found = Vec::new();
    // SAFETY: the caller gives a valid list.
    let count = unsafe { (*list).AceCount };
    for index in 0..u32::from(count) {
        let mut entry = std::ptr::null_mut();
        // SAFETY: the index is below the list's count.
        if unsafe { GetAce(list, index, &raw mut entry) } == 0 {
            continue;
        }
        // SAFETY: every entry begins with a header.
        let header = unsafe { entry.cast::<ACE_HEADER>().read() };
        // A denial with a condition may not apply.
        if ![ACCESS_ALLOWED, ACCESS_ALLOWED_IF, ACCESS_DENIED].contains(&header.AceType) {
            continue;
        }
        let simple: *mut ACCESS_ALLOWED_ACE = entry.cast();
        // SAFETY: entries of these types have this shape, with the trustee's SID from `SidStart` on.
        let (rights, trustee) = unsafe { ((*simple).Mask, sid_text((&raw mut (*simple).SidStart).cast())) };
        let allows = header.AceType != ACCESS_DENIED;
        found.push(acl::Entry { allows, trustee, rights, flags: header.AceFlags });
    }
    found
}

/// A security descriptor that Windows parsed from SDDL.
struct Descriptor(*mut core::ffi::c_void);

impl Descriptor {
    fn parse(sddl: &str) -> io::Result<Self> {
        let text = wide(sddl);
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the text is zero-terminated; the size is not asked for.
        done(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                std::ptr::null_mut(),
            )
        })?;
        Ok(Self(descriptor))
    }

    fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of::<SECURITY_ATTRIBUTES>().try_into().expect("it is 24 bytes"),
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: Windows allocated it with LocalAlloc, and nobody else has it.
        unsafe { LocalFree(self.0) };
    }
}

/// Windows's BOOL as a result.
fn done(succeeded: i32) -> io::Result<()> {
    if succeeded == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
