//! Which files are trusted: in an elevated session, none that others could have written.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::acl::{self, Acl, Caller, Other};
use super::{Node, STATE_DIR, unsafe_folder};
use crate::fault::{Exit, Fault};
use crate::values::WinPath;

/// How many links in a row are followed. Windows follows 63.
const MOST_LINKS: usize = 63;

/// The id of the fault for a file that is not trusted.
pub const OTHERS_MAY_WRITE: &str = "OthersMayWrite";

/// A file, folder or link on a node, with its access rights.
#[derive(Debug)]
pub struct Rights {
    /// Its path on the node.
    pub name: String,
    pub acl: Acl,
}

/// How a file is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is run: Windows looks for its libraries in its folder.
    Run,
}

/// Refuses a file that others could have written: the file itself, a link in its path, or a folder above through which
/// it could be replaced. `what` names it in errors, for example "the kubeconfig". Without elevation there is no risk
/// beyond the caller's own account.
///
/// `node` is none if a command needs no node; then it is this machine, if that runs Windows.
///
/// # Errors
/// Fault `OthersMayWrite`, and for what cannot be checked. A missing file is left to its reader.
pub fn check(node: Option<&dyn Node>, file: &Path, used: Use, what: &str) -> Result<()> {
    let host = super::machine().ok();
    let nodes: Vec<(&dyn Node, Caller)> =
        node.into_iter().chain(host.as_deref()).map(|node| (node, node.caller())).collect();
    let seen = |place: &Path| -> Result<Option<(Rights, &Caller)>> {
        for (node, caller) in &nodes {
            if let Some(rights) =
                node.rights(place).with_context(|| format!("read who may write to {}", place.display()))?
            {
                return Ok(Some((rights, caller)).filter(|_| caller.elevated));
            }
        }
        Ok(None)
    };
    let file = std::path::absolute(file).with_context(|| format!("look at {}", file.display()))?;
    let chain = chain(&file).with_context(|| format!("look at {}", file.display()))?;
    if !chain.iter().any(Result::is_ok) {
        return Ok(());
    }
    // Also the folder of a link to a program: the program is started from there.
    let holds = |place: &Path| {
        let programs = chain.iter().flatten().filter(|end| used == Use::Run && end.is_file());
        programs.filter_map(|program| program.parent()).any(|folder| folder == place)
    };
    for link in &chain {
        let (place, is_end, wanted) = match link {
            Ok(end) => (end, true, acl::CHANGE),
            Err(above) if holds(above) => (above, false, acl::CHANGE_FOLDER),
            Err(above) => (above, false, acl::REPLACE),
        };
        let Some((Rights { name, acl }, caller)) = seen(place)? else { continue };
        let Some(other) = acl.other(caller, wanted) else { continue };
        return Err(refused(what, &file_name(&nodes, &file), &name, &acl, caller, &other, !is_end).into());
    }
    Ok(())
}

/// Whether others may read a file, as a sentence; none if nobody may, or if the platform has no such rights.
///
/// # Errors
/// When it cannot be checked.
pub fn readable_by(node: &dyn Node, file: &Path) -> Result<Option<String>> {
    let caller = node.caller();
    let Some(Rights { name, acl }) = node.rights(file)?.filter(|_| caller.elevated) else { return Ok(None) };
    let other = acl.other(&caller, acl::READ);
    Ok(other.map(|other| {
        format!(
            "{} may read {name}; close it with: {}",
            account(&other.sid),
            closing(&name, &acl, &caller, false).join(", then ")
        )
    }))
}

/// What the path of a file goes through, from the root: `Err` is a folder above it, `Ok` is a link or the file itself.
fn chain(file: &Path) -> io::Result<Vec<Result<PathBuf, PathBuf>>> {
    let mut found: Vec<Result<PathBuf, PathBuf>> = Vec::new();
    let mut links = 0;
    let mut ahead: VecDeque<PathBuf> = parts(file);
    let mut here = PathBuf::new();
    while let Some(part) = ahead.pop_front() {
        if part.as_os_str() == ".." {
            here.pop();
            continue;
        }
        here.push(&part);
        let meta = match fs::symlink_metadata(&here) {
            Ok(meta) => meta,
            // No file has a name that is too long, or that the system does not allow.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
                ) =>
            {
                return Ok(found);
            }
            Err(error) => return Err(error),
        };
        let place = if meta.is_symlink() || ahead.is_empty() { Ok(here.clone()) } else { Err(here.clone()) };
        if !found.contains(&place) {
            found.push(place);
        }
        if meta.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::other("it leads through too many links"));
            }
            let target = fs::read_link(&here)?;
            here.pop();
            let mut way = parts(&here.join(target));
            way.extend(ahead);
            (ahead, here) = (way, PathBuf::new());
        }
    }
    Ok(found)
}

/// Its components; a prefix (`C:`, `\\server\share`) together with its root.
fn parts(path: &Path) -> VecDeque<PathBuf> {
    let mut parts: VecDeque<PathBuf> = VecDeque::new();
    for component in path.components() {
        match (component, parts.back_mut()) {
            (Component::RootDir, Some(prefix)) => prefix.push(component),
            (Component::CurDir, _) => {}
            _ => parts.push_back(PathBuf::from(component.as_os_str())),
        }
    }
    parts
}

fn file_name(nodes: &[(&dyn Node, Caller)], file: &Path) -> String {
    let named = nodes.iter().find_map(|(node, _)| Some(node.rights(file).ok()??.name));
    named.unwrap_or_else(|| file.display().to_string())
}

fn refused(what: &str, file: &str, at: &str, acl: &Acl, caller: &Caller, other: &Other, folder: bool) -> Fault {
    let who = account(&other.sid);
    let may = match (other.owns, folder) {
        (true, _) => format!("{who} owns {at}"),
        (false, false) => format!("{who} may write to {at}"),
        (false, true) => format!("{who} may change what is in {at}"),
    };
    let mut hint = format!("look at what is in {file}; when it is as it should be, close it with:");
    // A drive's root keeps its list: everything on the drive inherits from it.
    let commands = match at.ends_with('\\') {
        true => vec![format!("icacls {at} /remove:g *{}", other.sid)],
        false => closing(at, acl, caller, folder),
    };
    for command in commands {
        let _ = write!(hint, "\n{command}");
    }
    Fault::new(Exit::UntrustedFile, OTHERS_MAY_WRITE, format!("{what} {file} cannot be trusted: {may}")).hint(hint)
}

/// The commands that restrict a file to administrators and the caller, each a line for both cmd and PowerShell. Others
/// may still read a folder that is not our own.
fn closing(name: &str, acl: &Acl, caller: &Caller, folder: bool) -> Vec<String> {
    let mut commands = Vec::new();
    if acl.other(caller, acl::CONTROL).is_some_and(|other| other.owns) {
        commands.push(format!("icacls \"{name}\" /setowner *{}", acl::ADMINISTRATORS));
    }
    // /inheritance:r removes only inherited entries.
    if acl.has_own_entries() || acl.entries.is_none() {
        commands.push(format!("icacls \"{name}\" /reset"));
    }
    let own = caller.sid.as_ref().filter(|sid| acl.names(sid) || acl.owner == **sid);
    let grant = |sid: &str, rights: &str| {
        if folder { format!("\"*{sid}:(OI)(CI){rights}\"") } else { format!("*{sid}:{rights}") }
    };
    let mut grants = vec![grant("S-1-5-18", "F"), grant(acl::ADMINISTRATORS, "F")];
    grants.extend(own.map(|sid| grant(sid, "F")));
    let ours = name.parse::<WinPath>().is_ok_and(|path| path.is_below(&WinPath::known(STATE_DIR)));
    grants.extend((folder && !ours).then(|| grant("S-1-5-32-545", "RX")));
    commands.push(format!("icacls \"{name}\" /inheritance:r /grant:r {}", grants.join(" ")));
    commands
}

/// An account as people know it, with its SID: its name depends on the language of Windows.
pub fn account(sid: &str) -> String {
    #[cfg(windows)]
    let told = super::windows::security::account(sid);
    #[cfg(not(windows))]
    let told = None::<String>;
    match told.or_else(|| acl::known_name(sid).map(str::to_owned)) {
        Some(name) => format!("{name} ({sid})"),
        None => sid.to_owned(),
    }
}

/// What to do with one of our folders that others may change.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: they may not.
    Safe,
    /// Set our access list on each of these. This cannot be undone.
    Close { all: Vec<PathBuf>, why: String },
    /// Rename it and create it again: the user who created it, or may change its access list, may keep a handle that ignores
    /// later changes of the list.
    Replace { why: String },
}

/// Judges one of our folders by its access list and those of its contents.
///
/// # Errors
/// `UnsafeFolder` for a folder that others may take over and that cannot be replaced, and for one that contains a link,
/// or a file that others created or may change.
pub fn judge(path: &WinPath, root: PathBuf, caller: &Caller, look: &dyn Fn(&Path) -> Result<Acl>) -> Result<Verdict> {
    let list = look(&root)?;
    let Some(other) = list.other(caller, acl::CHANGE_FOLDER) else { return Ok(Verdict::Safe) };
    let who = account(&other.sid);
    // The others contain running programs, so they cannot simply be replaced.
    let may_go = *path == WinPath::known(STATE_DIR);
    let refused = |why: &str| -> anyhow::Error {
        let mut fault = unsafe_folder(path, why);
        let commands = closing(path.as_str(), &list, caller, true).join("\n");
        let hint =
            "look at what is in it; when all of it is ours, close it with these commands and run the command again";
        fault.hint = Some(format!("{hint}:\n{commands}"));
        fault.into()
    };
    if other.owns && !may_go {
        return Err(refused(&format!("{who} owns it")));
    }
    if other.owns {
        return Ok(Verdict::Replace { why: format!("{who} owned it") });
    }
    let why = format!("{who} could write to it");
    let (mut all, mut next, mut holds_files, mut taken) = (vec![root], 0, false, None);
    while let Some(folder) = all.get(next).cloned() {
        next += 1;
        if !folder.is_dir() {
            holds_files = true;
            continue;
        }
        taken = taken.or(look(&folder)?.other(caller, acl::CONTROL).map(|other| (folder.clone(), other)));
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let below = entry.with_context(|| format!("list {}", folder.display()))?.path();
            if below.is_symlink() {
                return Err(unsafe_folder(path, &format!("{} is a link", below.display())).into());
            }
            if let (false, Some(other)) = (below.is_dir(), look(&below)?.other(caller, acl::CHANGE)) {
                let may = if other.owns { "owns it" } else { "may write to it" };
                let why = format!("of the file {}, {} {may}", below.display(), account(&other.sid));
                return Err(unsafe_folder(path, &why).into());
            }
            all.push(below);
        }
    }
    match taken {
        None => Ok(Verdict::Close { all, why }),
        Some(_) if !holds_files && may_go => Ok(Verdict::Replace { why }),
        Some((folder, other)) => {
            Err(refused(&format!("{} may change who may write to {}", account(&other.sid), folder.display())))
        }
    }
}

/// An unpredictable name beside a folder, so that nobody can have taken it.
pub fn aside(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!("{name}.untrusted-{}", unpredictable()))
}

/// The same in the folder of temporary files, where others may be able to create files, too.
pub fn temporary(name: &str, end: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}-{}{end}", unpredictable()))
}

/// Keyed by the system's random numbers.
fn unpredictable() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_temporary_file_can_be_guessed() {
        let names: Vec<PathBuf> = (0..2).map(|_| temporary("20260102T150405-00002a", ".log")).collect();
        let [one, other] = names.as_slice() else { panic!("{names:?}") };
        assert!(one != other && one.extension().is_some_and(|end| end == "log"), "{names:?}");
        assert_eq!(one.parent(), Some(std::env::temp_dir().as_path()));
    }

    #[test]
    fn a_file_chain_has_every_folder_every_link_and_the_target() {
        let dir = tempfile::TempDir::new().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("real/below")).unwrap();
        fs::write(root.join("real/below/config"), "").unwrap();
        let names = |file: &Path| -> Vec<String> {
            let all = chain(file).unwrap().into_iter();
            let name = |link: Result<PathBuf, PathBuf>| match link {
                Ok(end) => format!("={}", end.strip_prefix(&root).unwrap().display()),
                Err(above) => {
                    above.strip_prefix(&root).map_or_else(|_| "/".into(), |below| below.display().to_string())
                }
            };
            all.map(name).filter(|name| !name.is_empty() && name != "/").map(|name| name.replace('\\', "/")).collect()
        };
        assert_eq!(names(&root.join("real/below/config")), ["real", "real/below", "=real/below/config"]);
        assert_eq!(names(&root.join("real/none/config")), ["real"]);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("real/below", root.join("short")).unwrap();
            std::os::unix::fs::symlink(root.join("loop"), root.join("loop")).unwrap();
            assert_eq!(names(&root.join("short/config")), ["=short", "real", "real/below", "=real/below/config"]);
            assert!(chain(&root.join("loop")).is_err());
        }
    }
}
