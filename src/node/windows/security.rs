//! Who may do what with a file or folder: access lists as Windows has them.
//!
//! Set with the making of a file, or by `SetFileSecurityW`, which alone of its kind Wine is
//! faithful in. Read by their trustees and not by the flag "protected", which Wine drops.

use std::fs::File;
use std::io;
use std::os::windows::io::FromRawHandle;
use std::path::Path;

use windows_sys::Win32::Foundation::{GENERIC_WRITE, INVALID_HANDLE_VALUE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1, SE_FILE_OBJECT,
    SetNamedSecurityInfoW,
};
use windows_sys::Win32::Security::{
    ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, ACL_REVISION, DACL_SECURITY_INFORMATION, GetAce, GetFileSecurityW,
    GetSecurityDescriptorDacl, GetSecurityDescriptorOwner, INHERIT_ONLY_ACE, INHERITED_ACE, InitializeAcl,
    OWNER_SECURITY_INFORMATION, PROTECTED_DACL_SECURITY_INFORMATION, PSID, SECURITY_ATTRIBUTES, SetFileSecurityW,
    UNPROTECTED_DACL_SECURITY_INFORMATION,
};
use windows_sys::Win32::Storage::FileSystem::{
    CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_NORMAL, FILE_SHARE_READ,
};

use super::{os, wide, wide_path};
use crate::plan::item::Access;

/// A file that nobody but SYSTEM and Administrators may touch, whatever its folder gives.
const FILE: &str = "D:P(A;;FA;;;SY)(A;;FA;;;BA)";

/// The same for one that is there already: another owner could change its list again.
const FILE_AND_OWNER: &str = "O:BAD:P(A;;FA;;;SY)(A;;FA;;;BA)";

/// The same for a folder and all that is made in it. Administrators own it: an owner may always
/// change the access list, so it must be nobody else.
const FOLDER: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)";

/// SYSTEM, Administrators, TrustedInstaller.
const TRUSTED: [&str; 3] =
    ["S-1-5-18", "S-1-5-32-544", "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"];

/// Stands in an access list for whoever makes something in the folder, and for the owner.
const CREATOR_OWNER: &str = "S-1-3-0";
const OWNER_RIGHTS: &str = "S-1-3-4";

/// What lets one change a file or folder, or what is in it: write and append data (make files and
/// folders), delete, delete below, change the access list, take it over; and the generic words.
const WRITING: u32 = 0x2 | 0x4 | 0x40 | 0x1_0000 | 0x4_0000 | 0x8_0000 | 0x1000_0000 | 0x4000_0000;

const ACCESS_ALLOWED: u8 = 0;
/// `ACCESS_ALLOWED_CALLBACK_ACE_TYPE`: an ordinary one with a condition behind the trustee.
const ACCESS_ALLOWED_IF: u8 = 9;

/// Makes a file that is not there yet, with its access list from the first moment on, and opens it.
///
/// # Errors
/// When Windows refuses.
pub fn create_file(path: &Path, access: Access) -> io::Result<File> {
    if access == Access::Inherited {
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

/// Makes a folder that is not there yet, with its access list from the first moment on.
///
/// # Errors
/// When Windows refuses.
pub fn create_folder(path: &Path, access: Access) -> io::Result<()> {
    if access == Access::Inherited {
        return std::fs::create_dir(path);
    }
    let descriptor = Descriptor::parse(FOLDER)?;
    let attributes = descriptor.attributes();
    let name = wide_path(path);
    // SAFETY: as in `create_file`.
    done(unsafe { CreateDirectoryW(name.as_ptr(), &raw const attributes) })
}

/// Makes an existing file or folder one for SYSTEM and Administrators alone. What is in a folder
/// keeps its own access list.
///
/// # Errors
/// When Windows refuses.
pub fn restrict(path: &Path) -> io::Result<()> {
    set(path, if path.is_dir() { FOLDER } else { FILE_AND_OWNER })
}

/// Gives an existing file or folder the access list, and the owner if there is one, of a text in
/// Windows's language for them (SDDL).
///
/// # Errors
/// When Windows refuses.
pub fn set(path: &Path, sddl: &str) -> io::Result<()> {
    let descriptor = Descriptor::parse(sddl)?;
    let owner = if sddl.starts_with("O:") { OWNER_SECURITY_INFORMATION } else { 0 };
    let protected = if sddl.contains("D:P") { PROTECTED_DACL_SECURITY_INFORMATION } else { 0 };
    let parts = DACL_SECURITY_INFORMATION | protected | owner;
    let name = wide_path(path);
    // SAFETY: the name is zero-terminated and the descriptor lives through the call.
    done(unsafe { SetFileSecurityW(name.as_ptr(), parts, descriptor.0) })
}

/// Takes a folder's own access list away, so that it has what the folder above gives.
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
    // SAFETY: the name is zero-terminated and the list valid; what is not set is null. This one and
    // not SetFileSecurityW, since it computes what is inherited.
    let code = unsafe {
        SetNamedSecurityInfoW(name.as_ptr(), SE_FILE_OBJECT, parts, null(), null(), &raw const empty, std::ptr::null())
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.cast_signed())) }
}

/// Who may read a file or folder. `Administrators` is one that has a word of its own to say on it
/// and names nobody but SYSTEM, Administrators and the account that this program runs as when that
/// is an administrator's. What only inherits is `Inherited`, however little that gives.
///
/// # Errors
/// When it cannot be read.
pub fn access(path: &Path) -> io::Result<Access> {
    let list = List::read(path)?;
    let own = os::is_elevated().unwrap_or(false).then(os::own_sid).flatten();
    let trusted = |sid: &str| {
        TRUSTED.contains(&sid) || sid == CREATOR_OWNER || sid == OWNER_RIGHTS || own.as_deref() == Some(sid)
    };
    let alone = list.entries.as_ref().is_some_and(|entries| {
        entries.iter().all(|entry| trusted(&entry.trustee)) && entries.iter().any(|entry| !entry.inherited)
    });
    Ok(if alone { Access::Administrators } else { Access::Inherited })
}

/// Who but administrators may change a folder or what is in it, as a sentence; none when nobody.
///
/// # Errors
/// When it cannot be read.
pub fn open_to(folder: &Path) -> io::Result<Option<String>> {
    let list = List::read(folder)?;
    let own = os::is_elevated().unwrap_or(false).then(os::own_sid).flatten();
    let trusted = |sid: &str| TRUSTED.contains(&sid) || own.as_deref() == Some(sid);
    if !trusted(&list.owner) {
        return Ok(Some(format!("{} owns it", list.owner)));
    }
    let Some(entries) = list.entries else {
        return Ok(Some("everybody may write to it".into()));
    };
    // What only counts for the things in it, and there only for who made them, gives nobody a way in.
    let writer = entries.iter().find(|entry| {
        entry.rights & WRITING != 0
            && !trusted(&entry.trustee)
            && entry.trustee != OWNER_RIGHTS
            && !(entry.trustee == CREATOR_OWNER && entry.only_below)
    });
    Ok(writer.map(|entry| format!("{} may write to it", name_of(&entry.trustee))))
}

/// The groups that everybody knows, by their names.
fn name_of(sid: &str) -> String {
    match sid {
        "S-1-1-0" => "everybody".into(),
        "S-1-5-11" => "every user who logs in".into(),
        "S-1-5-4" => "every interactive user".into(),
        "S-1-5-32-545" => "every user (BUILTIN\\Users)".into(),
        other => other.into(),
    }
}

/// Owner and allowing entries of a file or folder.
struct List {
    owner: String,
    /// None where there is no list, which allows everybody everything.
    entries: Option<Vec<Entry>>,
}

struct Entry {
    trustee: String,
    rights: u32,
    inherited: bool,
    only_below: bool,
}

impl List {
    fn read(path: &Path) -> io::Result<Self> {
        let name = wide_path(path);
        let parts = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
        let mut needed = 0;
        // 64-bit words, so that the descriptor is aligned.
        let mut buffer = vec![0u64; 64];
        loop {
            let size = u32::try_from(buffer.len() * 8).expect("a descriptor is 128 KiB at most");
            // SAFETY: the name is zero-terminated, the buffer has the size that is said.
            let read =
                unsafe { GetFileSecurityW(name.as_ptr(), parts, buffer.as_mut_ptr().cast(), size, &raw mut needed) };
            if read != 0 {
                break;
            }
            if needed <= size {
                return Err(io::Error::last_os_error());
            }
            buffer.resize(needed as usize / 8 + 1, 0);
        }
        let descriptor = buffer.as_mut_ptr().cast();
        let (mut owner, mut defaulted): (PSID, i32) = (std::ptr::null_mut(), 0);
        // SAFETY: the buffer holds a descriptor that Windows just wrote; it outlives `owner`.
        done(unsafe { GetSecurityDescriptorOwner(descriptor, &raw mut owner, &raw mut defaulted) })?;
        let (mut present, mut list): (i32, *mut ACL) = (0, std::ptr::null_mut());
        // SAFETY: as above.
        done(unsafe { GetSecurityDescriptorDacl(descriptor, &raw mut present, &raw mut list, &raw mut defaulted) })?;
        // SAFETY: the owner points into the buffer.
        let owner = unsafe { sid_text(owner) };
        if present == 0 || list.is_null() {
            return Ok(Self { owner, entries: None });
        }
        // SAFETY: the list points into the buffer, and Windows made it.
        let entries = unsafe { entries(list) };
        Ok(Self { owner, entries: Some(entries) })
    }
}

/// The entries of a list that allow something.
///
/// # Safety
/// The list must be a valid one.
unsafe fn entries(list: *const ACL) -> Vec<Entry> {
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
        if ![ACCESS_ALLOWED, ACCESS_ALLOWED_IF].contains(&header.AceType) {
            continue;
        }
        let allowed: *mut ACCESS_ALLOWED_ACE = entry.cast();
        // SAFETY: entries of these types have this shape, with the trustee's SID from `SidStart` on.
        let (rights, trustee) = unsafe { ((*allowed).Mask, sid_text((&raw mut (*allowed).SidStart).cast())) };
        let flags = u32::from(header.AceFlags);
        found.push(Entry {
            trustee,
            rights,
            inherited: flags & INHERITED_ACE != 0,
            only_below: flags & INHERIT_ONLY_ACE != 0,
        });
    }
    found
}

/// A SID as text: `S-1-5-18`.
///
/// # Safety
/// It must be a valid SID, or null.
pub unsafe fn sid_text(sid: PSID) -> String {
    let mut text = std::ptr::null_mut();
    // SAFETY: the caller gives a valid SID; null is refused.
    if sid.is_null() || unsafe { ConvertSidToStringSidW(sid, &raw mut text) } == 0 {
        return "nobody".into();
    }
    let mut length = 0;
    // SAFETY: Windows gave a zero-terminated string.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: that many units were just counted.
    let units = unsafe { std::slice::from_raw_parts(text, length) };
    let copy = String::from_utf16_lossy(units);
    // SAFETY: Windows allocated it with LocalAlloc and it is not used any more.
    unsafe { LocalFree(text.cast()) };
    copy
}

/// A security descriptor that Windows made of a text in its language for them, SDDL.
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
