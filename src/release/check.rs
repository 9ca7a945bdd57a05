//! Which names a release may contain. The rules are Windows' own and apply on every machine, so that an archive which
//! is valid on the administrator's laptop is valid on the node.
//!
//! Windows interprets names more than Unix does: `a:b` is a stream of `a`, `NUL.txt` is a device, `x.` and `x ` are
//! `x`, and `Cni` is `cni`.

use std::collections::HashMap;

use crate::item::Manifest;
use crate::paths::{ETCD_TLS, KUBECONFIG, NODENAME, STATIC_RULES};

/// The one top folder of every release; it is removed when the release is extracted.
pub const TOP: &str = "CalicoWindows";

/// Longest path below the top folder, in UTF-16 units. With `C:\CalicoWindows\` before it this is less than MAX_PATH
/// (260), which still limits the administrator's PowerShell. The longest name in a real release has about 60.
pub const MAX_PATH_UNITS: usize = 240;

/// Deepest path below the top folder; a real release has four parts.
pub const MAX_PARTS: usize = 16;

/// What becomes of a release's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Staged,
    /// This program renders it; the release's own has only defaults.
    Rendered,
    /// It is of a node and of no release: this program or the user writes it there. It is in an archive that was packed
    /// from the folder of a node, and may have that node's login.
    OfANode,
}

impl Use {
    /// By the path below the top folder.
    pub fn of(path: &str) -> Self {
        let below = |name: &str| {
            let (head, rest) = path.split_at_checked(name.len()).unwrap_or_default();
            head.eq_ignore_ascii_case(name) && (rest.is_empty() || rest.starts_with('/'))
        };
        match path {
            _ if ["config.ps1", Manifest::FILE].iter().any(|own| own.eq_ignore_ascii_case(path)) => Self::Rendered,
            _ if [KUBECONFIG, NODENAME, STATIC_RULES, ETCD_TLS].into_iter().any(below) => Self::OfANode,
            _ => Self::Staged,
        }
    }
}

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is outside the top folder: a wrong layout rather than an attack.
    OutsideTop,
    /// It is dangerous on Windows.
    Hostile(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// From an entry.
    Folder,
    /// Only the parent of an entry.
    ImpliedFolder,
    File,
}

/// The names seen so far.
#[derive(Debug, Default)]
pub struct Names {
    /// Name as Windows compares it, to its kind and first spelling.
    seen: HashMap<String, (Kind, String)>,
}

impl Names {
    /// Checks an archive entry's name: like [`Self::admit`], and that it is in the folder `top`. Returns the path below
    /// that with `/` between its parts; empty for the folder itself.
    pub fn admit_entry(&mut self, name: &str, folder: bool, top: &str) -> Result<String, Refusal> {
        let path = name.replace('\\', "/");
        let path = if folder { path.strip_suffix('/').unwrap_or(&path) } else { &path };
        check_parts(path)?;
        match path.split_once('/') {
            Some((first, below)) if first == top => self.place(below, folder),
            None if folder && path == top => Ok(String::new()),
            _ => Err(Refusal::OutsideTop),
        }
    }

    /// Checks a path below the top folder: its parts, its length, and that it is unique by Windows' comparison of
    /// names.
    pub fn admit(&mut self, path: &str, folder: bool) -> Result<String, Refusal> {
        check_parts(path)?;
        self.place(path, folder)
    }

    fn place(&mut self, path: &str, folder: bool) -> Result<String, Refusal> {
        if path.encode_utf16().count() > MAX_PATH_UNITS {
            return Err(Refusal::Hostile(format!("its path is longer than {MAX_PATH_UNITS} characters")));
        }
        if path.split('/').count() > MAX_PARTS {
            return Err(Refusal::Hostile(format!("its path has more than {MAX_PARTS} parts")));
        }
        for (end, _) in path.match_indices('/') {
            self.claim(&path[..end], Kind::ImpliedFolder)?;
        }
        self.claim(path, if folder { Kind::Folder } else { Kind::File })?;
        Ok(path.to_owned())
    }

    fn claim(&mut self, path: &str, kind: Kind) -> Result<(), Refusal> {
        let Some((before, spelling)) = self.seen.get_mut(&fold(path)) else {
            self.seen.insert(fold(path), (kind, path.to_owned()));
            return Ok(());
        };
        let fits = match (*before, kind) {
            (Kind::Folder | Kind::ImpliedFolder, Kind::ImpliedFolder) | (Kind::ImpliedFolder, Kind::Folder) => {
                spelling == path
            }
            _ => false,
        };
        if !fits {
            return Err(Refusal::Hostile(format!(
                "`{}` already exists, and Windows does not distinguish the two",
                spelling.escape_debug()
            )));
        }
        if kind == Kind::Folder {
            *before = kind;
        }
        Ok(())
    }
}

/// NTFS compares names by upper-casing each character.
fn fold(path: &str) -> String {
    path.chars().flat_map(char::to_uppercase).collect()
}

fn check_parts(path: &str) -> Result<(), Refusal> {
    path.split('/').try_for_each(check_part).map_err(Refusal::Hostile)
}

/// Whether Windows uses a part of a path literally.
fn check_part(part: &str) -> Result<(), String> {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];

    if part.is_empty() {
        return Err("its path is absolute or has an empty part".into());
    }
    if part == "." || part == ".." {
        return Err(format!("`{part}` would leave the folder it is extracted to"));
    }
    if part.contains(':') {
        return Err("`:` makes it a drive or an alternate data stream".into());
    }
    if let Some(bad) = part.chars().find(|c| c.is_control() || "<>\"|?*".contains(*c)) {
        return Err(format!("`{}` cannot be in a Windows file name", bad.escape_debug()));
    }
    if part.ends_with(['.', ' ']) {
        return Err("Windows removes the dot or space at the end of one of its parts".into());
    }
    let base = part.split('.').next().unwrap_or(part).trim_end_matches(' ').to_uppercase();
    let numbered = ["COM", "LPT"].iter().any(|port| {
        base.strip_prefix(port).is_some_and(|n| matches!(n.as_bytes(), [b'0'..=b'9']) || matches!(n, "¹" | "²" | "³"))
    });
    if numbered || DEVICES.contains(&base.as_str()) {
        return Err(format!("`{}` is a device on Windows", part.escape_debug()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(names: &[&str]) -> String {
        let mut seen = Names::default();
        for name in names {
            match seen.admit_entry(name, name.ends_with('/'), TOP) {
                Ok(_) => {}
                Err(Refusal::OutsideTop) => return "outside the top folder".into(),
                Err(Refusal::Hostile(why)) => return why,
            }
        }
        panic!("admitted: {names:?}")
    }

    #[test]
    fn a_release_s_own_names_are_fine() {
        let mut names = Names::default();
        for name in [
            "CalicoWindows/",
            "CalicoWindows/cni/calico.exe",
            "CalicoWindows/cni/",
            "CalicoWindows\\confd\\conf.d\\blocks.toml",
            "CalicoWindows/nssm-2.24-103-gdee49fc/win64/nssm.exe",
            "CalicoWindows/console.txt",
            "CalicoWindows/com10.log",
            "CalicoWindows/.gitkeep",
        ] {
            assert!(names.admit_entry(name, name.ends_with('/'), TOP).is_ok(), "{name}");
        }
        assert_eq!(names.admit_entry("CalicoWindows\\libs\\hns\\hns.psm1", false, TOP).unwrap(), "libs/hns/hns.psm1");
    }

    #[test]
    fn names_that_windows_interprets_are_refused() {
        let long = format!("CalicoWindows/{}", "a".repeat(241));
        let deep = format!("CalicoWindows/{}x", "a/".repeat(16));
        for (name, why) in [
            ("/etc/passwd", "empty part"),
            ("\\\\server\\share\\x", "empty part"),
            ("CalicoWindows//x", "empty part"),
            ("", "empty part"),
            ("C:\\Windows\\x", "drive"),
            ("C:x", "drive"),
            ("CalicoWindows/../x", "leave"),
            ("CalicoWindows\\..\\..\\x", "leave"),
            ("../CalicoWindows/x", "leave"),
            ("CalicoWindows/./x", "leave"),
            ("CalicoWindows/config.ps1:evil", "alternate data stream"),
            ("CalicoWindows/a\u{7}b", "file name"),
            ("CalicoWindows/a\0b", "file name"),
            ("CalicoWindows/a<b", "file name"),
            ("CalicoWindows/what?", "file name"),
            ("CalicoWindows/nul", "device"),
            ("CalicoWindows/NUL.txt", "device"),
            ("CalicoWindows/con .log", "device"),
            ("CalicoWindows/aux/x", "device"),
            ("CalicoWindows/Com1.tar.gz", "device"),
            ("CalicoWindows/com¹", "device"),
            ("CalicoWindows/LPT³.txt", "device"),
            ("CalicoWindows/lpt0", "device"),
            ("CalicoWindows/CONIN$", "device"),
            ("CalicoWindows/x.", "removes"),
            ("CalicoWindows/x /y", "removes"),
            (&long, "longer"),
            (&deep, "parts"),
        ] {
            let said = refused(&[name]);
            assert!(said.contains(why), "{name:?}: {said}");
        }
        for outside in ["readme.txt", "calicowindows/x", "Other/x", "CalicoWindows", "CalicoWindows2/x"] {
            assert_eq!(refused(&[outside]), "outside the top folder", "{outside}");
        }
    }

    #[test]
    fn two_names_for_one_file_are_refused() {
        for names in [
            ["CalicoWindows/a.txt", "CalicoWindows/A.TXT"],
            ["CalicoWindows/a.txt", "CalicoWindows/a.txt"],
            ["CalicoWindows/é", "CalicoWindows/É"],
            ["CalicoWindows/cni/a", "CalicoWindows/CNI/b"],
            ["CalicoWindows/cni", "CalicoWindows/cni/calico.exe"],
            ["CalicoWindows/cni/calico.exe", "CalicoWindows/CNI"],
            ["CalicoWindows/cni/", "CalicoWindows/cni/"],
            ["CalicoWindows\\a", "CalicoWindows/a"],
        ] {
            let said = refused(&names);
            assert!(said.contains("does not distinguish the two"), "{names:?}: {said}");
        }
    }
}
