//! Owner and access list of a file or folder as data, and what they allow others. Pure: Windows reads them from the
//! disk, a sandbox from `node.yaml`.

use std::collections::BTreeMap;

/// SYSTEM, Administrators, TrustedInstaller: these already control the machine.
const TRUSTED: [&str; 3] =
    ["S-1-5-18", ADMINISTRATORS, "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"];

pub const ADMINISTRATORS: &str = "S-1-5-32-544";
const EVERYONE: &str = "S-1-1-0";

/// In a list, placeholders for the user and group who create something in the folder, and for the owner: no account has
/// these SIDs.
const CREATOR_OWNER: &str = "S-1-3-0";
const PLACEHOLDERS: [&str; 3] = [CREATOR_OWNER, "S-1-3-1", "S-1-3-4"];

const DELETE: u32 = 0x1_0000;
const DELETE_CHILD: u32 = 0x40;
/// Write the access list, take ownership.
pub const CONTROL: u32 = 0x4_0000 | 0x8_0000;
/// Write and append; in a folder: create files and folders.
pub const ADD: u32 = 0x2 | 0x4;
/// Changes a file.
pub const CHANGE: u32 = ADD | DELETE | CONTROL;
/// Of a folder: allows replacing what is in it. Adding to it does not.
pub const REPLACE: u32 = DELETE_CHILD | DELETE | CONTROL;
/// Changes a folder or what is in it.
pub const CHANGE_FOLDER: u32 = ADD | REPLACE;
pub const READ: u32 = 0x1;

/// Flags of an entry: what inherits it, and where it came from.
const FOR_FILES: u8 = 0x1;
const FOR_FOLDERS: u8 = 0x2;
const NOT_FURTHER: u8 = 0x4;
const ONLY_BELOW: u8 = 0x8;
pub const INHERITED: u8 = 0x10;

/// Owner and access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// As a SID: `S-1-5-18`.
    pub owner: String,
    /// None if there is no list, which allows everybody everything.
    pub entries: Option<Vec<Entry>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub allows: bool,
    pub trustee: String,
    pub rights: u32,
    pub flags: u8,
}

/// The account that runs this program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// Whether with an administrator's full rights.
    pub elevated: bool,
    /// The account's SID, if known.
    pub sid: Option<String>,
}

/// An account with a right that only administrators should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    pub sid: String,
    /// As the owner, who may always change the access list.
    pub owns: bool,
}

impl Caller {
    /// Whether an account fully controls the machine, or is the caller's own. A caller without administrator rights is
    /// not trusted.
    fn trusts(&self, sid: &str) -> bool {
        TRUSTED.contains(&sid) || self.elevated && self.sid.as_deref() == Some(sid)
    }
}

impl Acl {
    /// The first account that is neither an administrator nor the caller and has one of these rights.
    pub fn other(&self, caller: &Caller, rights: u32) -> Option<Other> {
        if rights & CONTROL != 0 && !caller.trusts(&self.owner) {
            return Some(Other { sid: self.owner.clone(), owns: true });
        }
        let Some(entries) = &self.entries else { return Some(Other { sid: EVERYONE.into(), owns: false }) };
        let mut denied: BTreeMap<&str, u32> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.flags & ONLY_BELOW == 0) {
            let trustee = entry.trustee.as_str();
            if !entry.allows {
                *denied.entry(trustee).or_default() |= plain(entry.rights);
                continue;
            }
            let of = |sid: &str| denied.get(sid).copied().unwrap_or_default();
            let left = plain(entry.rights) & !of(trustee) & !of(EVERYONE);
            if left & rights != 0 && !caller.trusts(trustee) && !PLACEHOLDERS.contains(&trustee) {
                return Some(Other { sid: trustee.to_owned(), owns: false });
            }
        }
        None
    }

    /// Whether the list has entries of its own, all for administrators and the caller.
    pub fn is_for_administrators(&self, caller: &Caller) -> bool {
        let named = |entry: &Entry| caller.trusts(&entry.trustee) || PLACEHOLDERS.contains(&entry.trustee.as_str());
        self.has_own_entries() && self.entries.iter().flatten().all(|entry| !entry.allows || named(entry))
    }

    /// Whether it has entries that are not inherited.
    pub fn has_own_entries(&self) -> bool {
        self.entries.iter().flatten().any(|entry| entry.flags & INHERITED == 0)
    }

    /// Whether this SID has an entry that is not inherited.
    pub fn names(&self, sid: &str) -> bool {
        self.entries.iter().flatten().any(|entry| entry.flags & INHERITED == 0 && entry.trustee == sid)
    }

    /// What a file or folder created in this folder gets, by Windows's rules.
    #[must_use]
    pub fn inherited(&self, folder: bool, owner: &str) -> Self {
        let mut entries = Vec::new();
        for entry in self.entries.iter().flatten() {
            let meant = entry.flags & if folder { FOR_FOLDERS } else { FOR_FILES } != 0;
            let further = folder && entry.flags & NOT_FURTHER == 0 && entry.flags & (FOR_FILES | FOR_FOLDERS) != 0;
            let below = (entry.flags & (FOR_FILES | FOR_FOLDERS)) | INHERITED;
            let stands_in = entry.trustee == CREATOR_OWNER;
            if meant {
                let trustee = if stands_in { owner } else { &entry.trustee }.to_owned();
                let flags = if further && !stands_in { below } else { INHERITED };
                entries.push(Entry { trustee, rights: plain(entry.rights), flags, ..*entry });
            }
            if further && (stands_in || !meant) {
                entries.push(Entry { flags: below | ONLY_BELOW, ..entry.clone() });
            }
        }
        Self { owner: owner.into(), entries: Some(entries) }
    }

    /// Reads Windows's text format for these, SDDL, as far as file systems use it.
    pub fn parse(sddl: &str) -> Option<Self> {
        let (owner, list) = match sddl.strip_prefix("O:") {
            Some(rest) => {
                rest.split_once("D:").map(|(owner, list)| (owner.split("G:").next().unwrap_or(owner), list))?
            }
            None => ("BA", sddl.strip_prefix("D:")?),
        };
        let list = list.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
        let mut entries = Vec::new();
        for entry in list.split_inclusive(')') {
            let parts: Vec<&str> = entry.strip_prefix('(')?.strip_suffix(')')?.split(';').collect();
            let &[kind, flags, rights, _, _, trustee] = parts.as_slice() else { return None };
            entries.push(Entry {
                allows: match kind {
                    "A" => true,
                    "D" => false,
                    _ => return None,
                },
                flags: pairs(flags).map(flag).try_fold(0, |all, flag| Some(all | flag?))?,
                rights: mask(rights)?,
                trustee: sid(trustee)?,
            });
        }
        Some(Self { owner: sid(owner)?, entries: Some(entries) })
    }

    /// In SDDL; entries that are all inherited make a list that inherits.
    pub fn sddl(&self) -> String {
        let list = if self.has_own_entries() { "P" } else { "AI" };
        let entry = |entry: &Entry| {
            let names = FLAGS.iter().filter(|(_, flag)| entry.flags & flag != 0).map(|(name, _)| *name);
            let kind = if entry.allows { "A" } else { "D" };
            format!("({kind};{};{:#x};;;{})", names.collect::<String>(), entry.rights, entry.trustee)
        };
        let entries: String = self.entries.iter().flatten().map(entry).collect();
        format!("O:{}D:{list}{entries}", self.owner)
    }
}

/// The generic rights as the specific rights of files and folders (`FILE_GENERIC_*`, winnt.h).
const fn plain(rights: u32) -> u32 {
    let mut plain = rights & 0x01ff_ffff;
    if rights & 0x1000_0000 != 0 {
        plain |= 0x1f_01ff;
    }
    if rights & 0x2000_0000 != 0 {
        plain |= 0x12_00a0;
    }
    if rights & 0x4000_0000 != 0 {
        plain |= 0x12_0116;
    }
    if rights & 0x8000_0000 != 0 {
        plain |= 0x12_0089;
    }
    plain
}

const FLAGS: [(&str, u8); 5] =
    [("OI", FOR_FILES), ("CI", FOR_FOLDERS), ("NP", NOT_FURTHER), ("IO", ONLY_BELOW), ("ID", INHERITED)];

fn flag(name: &str) -> Option<u8> {
    FLAGS.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
}

fn pairs(text: &str) -> impl Iterator<Item = &str> {
    (0..text.len()).step_by(2).map(|at| text.get(at..at + 2).unwrap_or_default())
}

fn mask(rights: &str) -> Option<u32> {
    if let Some(hex) = rights.strip_prefix("0x") {
        return u32::from_str_radix(hex, 16).ok();
    }
    let one = |name: &str| {
        Some(match name {
            "FA" => 0x1f_01ff,
            "FR" => 0x12_0089,
            "FW" => 0x12_0116,
            "FX" => 0x12_00a0,
            "GA" => 0x1000_0000,
            "GX" => 0x2000_0000,
            "GW" => 0x4000_0000,
            "GR" => 0x8000_0000,
            "SD" => DELETE,
            "RC" => 0x2_0000,
            "WD" => 0x4_0000,
            "WO" => 0x8_0000,
            "CC" => 0x1,
            "DC" => 0x2,
            "LC" => 0x4,
            "SW" => 0x8,
            "RP" => 0x10,
            "WP" => 0x20,
            "DT" => 0x40,
            "LO" => 0x80,
            "CR" => 0x100,
            _ => return None,
        })
    };
    pairs(rights).map(one).try_fold(0, |all, right| Some(all | right?))
}

/// The well-known accounts: SID, SDDL's two letters if it has some, and the name.
const KNOWN: [(&str, &str, &str); 14] = [
    (EVERYONE, "WD", "Everyone"),
    (CREATOR_OWNER, "CO", "CREATOR OWNER"),
    ("S-1-3-1", "CG", "CREATOR GROUP"),
    ("S-1-3-4", "OW", "OWNER RIGHTS"),
    ("S-1-5-2", "NU", r"NT AUTHORITY\NETWORK"),
    ("S-1-5-4", "IU", r"NT AUTHORITY\INTERACTIVE"),
    ("S-1-5-11", "AU", r"NT AUTHORITY\Authenticated Users"),
    ("S-1-5-18", "SY", r"NT AUTHORITY\SYSTEM"),
    ("S-1-5-19", "LS", r"NT AUTHORITY\LOCAL SERVICE"),
    ("S-1-5-20", "NS", r"NT AUTHORITY\NETWORK SERVICE"),
    (ADMINISTRATORS, "BA", r"BUILTIN\Administrators"),
    ("S-1-5-32-545", "BU", r"BUILTIN\Users"),
    ("S-1-5-32-546", "BG", r"BUILTIN\Guests"),
    (TRUSTED[2], "", r"NT SERVICE\TrustedInstaller"),
];

fn sid(text: &str) -> Option<String> {
    if text.starts_with("S-1-") {
        return Some(text.to_owned());
    }
    KNOWN.iter().find(|(_, letters, _)| !text.is_empty() && *letters == text).map(|(sid, ..)| (*sid).to_owned())
}

/// The English name of a well-known account.
pub fn known_name(sid: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, ..)| *known == sid).map(|(.., name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `C:\` of Windows Server 2016 to 2025, as `icacls C:\` shows it: DISA's STIG for Server 2016, 2019
    /// and 2022 ("default permissions for the system drive's root directory"), and for Server 2022
    /// moby/buildkit#4731: Administrators and SYSTEM (OI)(CI)(F), CREATOR OWNER (OI)(CI)(IO)(F), Users
    /// (OI)(CI)(RX), (CI)(AD), (CI)(IO)(WD).
    const SERVER: &str = "O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:PAI(A;OICI;FA;;;SY)\
        (A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;CI;LC;;;BU)(A;CIIO;DC;;;BU)(A;OICIIO;GA;;;CO)";
    /// `C:\` of Windows 10 and 11 (DISA's STIG for Windows 10, V-63373; the same issue of buildkit).
    const CLIENT: &str = "O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:PAI(A;;LC;;;AU)\
        (A;OICIIO;0x1301bf;;;AU)(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)";

    fn administrator() -> Caller {
        Caller { elevated: true, sid: Some("S-1-5-21-1-2-3-500".into()) }
    }

    fn other(acl: &Acl, rights: u32) -> Option<String> {
        acl.other(&administrator(), rights).map(|other| other.sid)
    }

    /// What kubeadm's script creates: `mkdir C:\k` and files in it, as an administrator.
    fn k(root: &str) -> (Acl, Acl) {
        let folder = Acl::parse(root).unwrap().inherited(true, ADMINISTRATORS);
        let file = folder.inherited(false, ADMINISTRATORS);
        (folder, file)
    }

    /// A folder created in `C:\` of a server, as icacls shows it: Users (I)(OI)(CI)(RX), (I)(CI)(AD), (I)(CI)(WD);
    /// Administrators, as the owner, a second time; and CREATOR OWNER for what is below.
    #[test]
    fn a_folder_in_the_root_of_a_server_has_the_rights_that_icacls_shows() {
        let (folder, file) = k(SERVER);
        insta::assert_snapshot!(folder.sddl().replace(")(", ")\n("), @r"
        O:S-1-5-32-544D:AI(A;OICIID;0x1f01ff;;;S-1-5-18)
        (A;OICIID;0x1f01ff;;;S-1-5-32-544)
        (A;OICIID;0x1200a9;;;S-1-5-32-545)
        (A;CIID;0x4;;;S-1-5-32-545)
        (A;CIID;0x2;;;S-1-5-32-545)
        (A;ID;0x1f01ff;;;S-1-5-32-544)
        (A;OICIIOID;0x10000000;;;S-1-3-0)
        ");
        insta::assert_snapshot!(file.sddl().replace(")(", ")\n("), @r"
        O:S-1-5-32-544D:AI(A;ID;0x1f01ff;;;S-1-5-18)
        (A;ID;0x1f01ff;;;S-1-5-32-544)
        (A;ID;0x1200a9;;;S-1-5-32-545)
        (A;ID;0x1f01ff;;;S-1-5-32-544)
        ");
        assert_eq!(Acl::parse(&folder.sddl()), Some(folder));
    }

    /// kubeadm's `C:\k`: on a server Users may add files beside `C:\k\config` but not change or replace it, so the
    /// kubeconfig is trusted and a plugin beside it is not. On a client edition every user may change it.
    #[test]
    fn kubeadms_folder_holds_a_kubeconfig_on_a_server_and_no_plugin_and_nothing_on_a_client() {
        let (root, (folder, file)) = (Acl::parse(SERVER).unwrap(), k(SERVER));
        assert_eq!(other(&file, CHANGE), None);
        assert_eq!([&folder, &root].map(|above| other(above, REPLACE)), [None, None]);
        assert_eq!(other(&folder, ADD).as_deref(), Some("S-1-5-32-545"), "DLLs beside a plugin");
        let (folder, file) = k(CLIENT);
        assert_eq!([other(&file, CHANGE), other(&folder, REPLACE)], [Some("S-1-5-11".into()), Some("S-1-5-11".into())]);
    }

    #[test]
    fn who_may_change_a_file_is_judged_by_owner_list_and_denials() {
        for (sddl, expected) in [
            ("O:BAD:P(A;;FA;;;SY)(A;;FA;;;BA)", None),
            ("O:SYD:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;WD)", None),
            ("O:S-1-5-21-1-2-3-500D:P(A;;FA;;;S-1-5-21-1-2-3-500)", None),
            ("O:S-1-5-21-1-2-3-1001D:P(A;;FA;;;SY)", Some("S-1-5-21-1-2-3-1001")),
            ("O:BAD:P(A;;FA;;;SY)(A;;0x2;;;BU)", Some("S-1-5-32-545")),
            ("O:BAD:P(A;;0x4;;;AU)", Some("S-1-5-11")),
            ("O:BAD:P(A;;SD;;;AU)", Some("S-1-5-11")),
            ("O:BAD:P(A;;WD;;;AU)", Some("S-1-5-11")),
            ("O:BAD:P(A;;WO;;;AU)", Some("S-1-5-11")),
            ("O:BAD:P(A;;GA;;;WD)", Some("S-1-1-0")),
            ("O:BAD:P(A;;GW;;;WD)", Some("S-1-1-0")),
            ("O:BAD:P(A;;GRGX;;;WD)", None),
            // Attributes are not contents.
            ("O:BAD:P(A;;0x110;;;WD)", None),
            ("O:BAD:P(D;;FA;;;BU)(A;;FA;;;BU)", None),
            ("O:BAD:P(D;;FA;;;WD)(A;;FA;;;BU)", None),
            ("O:BAD:P(D;;0x2;;;BU)(A;;FA;;;BU)", Some("S-1-5-32-545")),
            // Whether a denial applies to an account that is named by another group is unknown here.
            ("O:BAD:P(D;;FA;;;BU)(A;;FA;;;AU)", Some("S-1-5-11")),
            ("O:BAD:P(A;;FA;;;BU)(D;;FA;;;BU)", Some("S-1-5-32-545")),
            ("O:BAD:P(A;OICIIO;FA;;;BU)", None),
            ("O:BAD:P(A;;FA;;;CO)(A;;FA;;;OW)", None),
            ("O:BAD:P", None),
        ] {
            assert_eq!(other(&Acl::parse(sddl).unwrap(), CHANGE).as_deref(), expected, "{sddl}");
        }
        let unlisted = Acl { owner: ADMINISTRATORS.into(), entries: None };
        assert_eq!(other(&unlisted, CHANGE).as_deref(), Some("S-1-1-0"));
    }

    #[test]
    fn a_caller_without_administrator_rights_is_not_trusted() {
        let caller = Caller { elevated: false, ..administrator() };
        let own = Acl::parse("O:BAD:P(A;;FA;;;S-1-5-21-1-2-3-500)").unwrap();
        assert!(own.other(&caller, CHANGE).is_some());
    }

    #[test]
    fn text_that_is_not_file_sddl_is_refused() {
        for text in
            ["", "D", "O:D:", "O:BAD:(A;;FA;;;)", "D:(A;;FA;;BA)", "D:(A;;ZZ;;;BA)", "D:(OA;;FA;;;BA)", "D:(A;;FA;;;BA"]
        {
            assert_eq!(Acl::parse(text), None, "{text}");
        }
    }
}
