//! Files, folders and their access.

use std::fs;

use anyhow::{Context, Result};

use super::{FOLDER, Reach, Row, TestContext};
use crate::item::{Access, Id, State};
use crate::node::acl::CHANGE_FOLDER;
use crate::node::probe::Probe;
use crate::node::{Node, files, win32};
use crate::report::answer::Answer;
use crate::values::WinPath;

pub const GROUP: &str = "files";

/// A folder in which everybody may write and delete.
const OPEN: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301ff;;;WD)";

pub const ROWS: &[Row] = &[
    Row {
        id: "FolderAccess",
        group: GROUP,
        asks: "a folder made for administrators is for them only, and one that others may read nobody else can change; \
               both lists are the folder's own",
        needed_for: "nobody else reads the node's credentials, or changes what SYSTEM runs",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: access,
    },
    Row {
        id: "FolderList",
        group: GROUP,
        asks: "an access list is read as it was written",
        needed_for: "a folder that an install closed is opened again when it is undone",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: list,
    },
    Row {
        id: "FileReplaced",
        group: GROUP,
        asks: "a file is replaced in one step, and nothing is left beside it",
        needed_for: "the journal, receipts and the CNI configuration are never half written",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: replaced,
    },
    Row {
        id: "OpenFileReplace",
        group: GROUP,
        asks: "a file that somebody reads is not replaced (error 5 or 32), and can be replaced afterwards",
        needed_for: "a replacement is tried again for a while, and then fails with the old file in place",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: held,
    },
    Row {
        id: "OpenFolderRename",
        group: GROUP,
        asks: "a folder with an open file in it is not renamed (error 5 or 32)",
        needed_for: "a release is swapped only when nobody has a file of it open",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: folder_held,
    },
];

/// Windows' errors for a file that is in use: "access is denied" and "sharing violation".
const IN_USE: [u32; 2] = [win32::ACCESS_DENIED, win32::SHARING_VIOLATION];

fn below(name: &str) -> WinPath {
    WinPath::known(FOLDER).join(name)
}

fn folder(context: &mut TestContext<'_>, name: &str, access: Access) -> Result<WinPath> {
    let path = below(name);
    context.node.put(&Id::Dir(path.clone()), Some(&State::Dir { access }))?;
    Ok(path)
}

fn access(context: &mut TestContext<'_>) -> Result<Answer> {
    let caller = context.node.caller();
    for (name, access) in [("closed", Access::Administrators), ("readable", Access::Closed)] {
        let path = folder(context, name, access)?;
        let place = context.node.disk(&path);
        let rights = context.node.rights(&place)?.with_context(|| format!("find {path}"))?;
        let acl = rights.acl;
        if !acl.has_own_entries() {
            return Answer::fails(format!("the list of {path} is inherited: {}", acl.sddl()));
        }
        let only_read = acl.other(&caller, CHANGE_FOLDER).is_none();
        if !only_read || name == "closed" && !acl.is_for_administrators(&caller) {
            return Answer::fails(format!("others have rights in {path}: {}", acl.sddl()));
        }
    }
    Answer::holds("closed to others, and readable for them only where that was asked")
}

fn list(context: &mut TestContext<'_>) -> Result<Answer> {
    let wanted = State::Dir { access: Access::Open(OPEN.into()) };
    // As an undo does: the folder is there, and closed.
    folder(context, "open", Access::Closed)?;
    let path = folder(context, "open", Access::Open(OPEN.into()))?;
    let found = context.node.get(&Id::Dir(path))?;
    let right = found.as_ref().is_some_and(|found| found.satisfies(&wanted));
    Answer::of(right, "as written", format!("{OPEN} is read as {found:?}"))
}

fn text(node: &dyn Node, path: &WinPath) -> Result<String> {
    fs::read_to_string(node.disk(path)).with_context(|| format!("read {path}"))
}

fn replaced(context: &mut TestContext<'_>) -> Result<Answer> {
    let path = below("file");
    for wanted in ["one", "another one"] {
        context.node.save(&path, wanted.as_bytes(), Access::Administrators)?;
        let found = text(&*context.node, &path)?;
        if found != wanted {
            return Answer::fails(format!("`{wanted}` is read as `{found}`"));
        }
    }
    let beside = files::beside(&context.node.disk(&path)).exists();
    Answer::of(!beside, "replaced, and nothing beside it", "the temporary file is still there")
}

fn held(context: &mut TestContext<'_>) -> Result<Answer> {
    let path = below("file");
    context.node.save(&path, b"one", Access::Administrators)?;
    let code = context.node.probe(&Probe::ReplaceOpenFile(path.clone()))?;
    let kept = text(&*context.node, &path)?;
    context.node.save(&path, b"another one", Access::Administrators)?;
    match code {
        Some(code) if IN_USE.contains(&code) && kept == "one" => Answer::holds(format!("refused with error {code}")),
        Some(code) => Answer::fails(format!("refused with error {code}, and the file is `{kept}`")),
        None => Answer::fails("replaced although it was open"),
    }
}

fn folder_held(context: &mut TestContext<'_>) -> Result<Answer> {
    let path = folder(context, "held", Access::Administrators)?.join("file");
    context.node.save(&path, b"one", Access::Administrators)?;
    match context.node.probe(&Probe::MoveOpenFolder(path))? {
        Some(code) if IN_USE.contains(&code) => Answer::holds(format!("refused with error {code}")),
        Some(code) => Answer::fails(format!("refused with error {code}")),
        None => Answer::fails("renamed although a file in it was open"),
    }
}
