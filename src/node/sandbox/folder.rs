//! Reads and writes `node.yaml`: never half written, and the user's own text again once the node is as the user wrote
//! it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::fault::{Exit, Fault};
use crate::node::files;
use crate::values::Sha256;
use crate::yaml;

use super::model::Model;

/// The node of a new sandbox.
const DEFAULT: &str = include_str!("default.yaml");

/// The first lines of a `node.yaml` that the sandbox wrote.
const HEADER: &str =
    "# A Windows node, played by calicoctl-win. Edit it freely; docs/sandbox.md explains the fields.\n";

/// The folder's own notes: the user's text, and which texts are ours.
pub const NOTES: &str = ".sandbox";

/// The note that distinguishes this machine from others of its name.
const MACHINE: &str = "machine";

/// Folders and files of a new node. The files represent programs; nothing runs them.
const FOLDERS: [&str; 7] = [
    "C/ProgramData",
    "C/Program Files/containerd/cni/bin",
    "C/Program Files/containerd/cni/conf",
    "C/Windows/System32",
    "C/Windows/Temp",
    "C/k",
    "C/Users/Administrator",
];
const FILES: [&str; 3] =
    ["C/Program Files/containerd/containerd.exe", "C/Windows/System32/svchost.exe", "C/k/kubelet.exe"];

/// Makes sure that a folder is a sandbox: a new or empty one becomes one.
///
/// # Errors
/// USAGE when the folder holds something else; nothing is written into it then.
pub fn prepare(root: &Path) -> Result<()> {
    let yaml = root.join("node.yaml");
    if yaml.is_file() {
        return Ok(());
    }
    let mut entries = match fs::read_dir(root) {
        Ok(entries) => entries.peekable(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(root).with_context(|| format!("create the sandbox {}", root.display()))?;
            return prepare(root);
        }
        Err(e) => return Err(e).with_context(|| format!("open the sandbox {}", root.display())),
    };
    // The notes are created first, so that an interrupted setup is continued.
    if entries.peek().is_some() && !root.join(NOTES).is_dir() {
        return Err(Fault::new(
            Exit::Usage,
            "SandboxNotEmpty",
            format!("{} is neither empty nor a sandbox, so nothing was written into it", root.display()),
        )
        .hint("give --sandbox a new folder")
        .into());
    }
    let made = || -> io::Result<()> {
        fs::create_dir_all(root.join(NOTES))?;
        // Windows makes one during setup: a copy of the folder is the same machine.
        let place = root.canonicalize()?;
        fs::write(root.join(NOTES).join(MACHINE), Sha256::of(place.as_os_str().as_encoded_bytes()).as_str())?;
        for folder in FOLDERS {
            fs::create_dir_all(root.join(folder))?;
        }
        for file in FILES {
            fs::write(root.join(file), "a stand-in for a program of Windows\n")?;
        }
        write(&yaml, DEFAULT)
    };
    made().with_context(|| format!("make the sandbox {}", root.display()))
}

/// Distinguishes the machine from others of its name.
pub fn machine_id(root: &Path) -> Option<String> {
    fs::read_to_string(root.join(NOTES).join(MACHINE)).ok()
}

/// Adds a call to the list of noted calls.
pub fn note_call(root: &Path, call: &str, name: &str, by_service: bool) -> Result<()> {
    let by = if by_service { " (by a service's program)" } else { "" };
    let line = format!("{call} {name}{by}\n");
    files::append(&root.join(NOTES).join("calls"), line.as_bytes()).context("note a call on the sandbox")
}

/// The text of `node.yaml` and its model.
pub struct Yaml {
    path: PathBuf,
    notes: PathBuf,
    /// The content of the file when it was last read or written.
    text: String,
    pub model: Model,
}

impl Yaml {
    /// # Errors
    /// INVALID_CONFIG naming line and column if `node.yaml` is not valid.
    pub fn open(root: &Path) -> Result<Self> {
        let path = root.join("node.yaml");
        let text = read(&path)?;
        let model = parse(&path, &text)?;
        Ok(Self { notes: root.join(NOTES), path, text, model })
    }

    /// Reads the file again if another process, or the user, has changed it.
    pub fn refresh(&mut self) -> Result<()> {
        let text = read(&self.path)?;
        if text != self.text {
            self.model = parse(&self.path, &text)?;
            self.text = text;
        }
        Ok(())
    }

    /// Writes `model` if it differs. The user's own text is kept, and restored as soon as the model equals it again.
    pub fn write(&mut self, model: Model) -> Result<()> {
        if model == self.model {
            return Ok(());
        }
        let text = self.text_for(&model)?;
        let context = || format!("write {}", self.path.display());
        if text != self.text {
            // First record that the new text is ours, then write it: a text without a record is the user's.
            let ours = format!("{}\n{}\n", Sha256::of(self.text.as_bytes()), Sha256::of(text.as_bytes()));
            write(&self.notes.join("written"), &ours).with_context(context)?;
            write(&self.path, &text).with_context(context)?;
        }
        self.text = text;
        self.model = model;
        Ok(())
    }

    fn text_for(&self, model: &Model) -> Result<String> {
        let kept = self.notes.join("node.yaml");
        let written = fs::read_to_string(self.notes.join("written")).unwrap_or_default();
        let now = Sha256::of(self.text.as_bytes());
        let users = if written.lines().any(|line| line == now.as_str()) {
            fs::read_to_string(&kept).with_context(|| format!("read {}", kept.display()))?
        } else {
            fs::create_dir_all(&self.notes)
                .and_then(|()| write(&kept, &self.text))
                .with_context(|| format!("write {}", kept.display()))?;
            self.text.clone()
        };
        if parse(&kept, &users)?.same(model) {
            return Ok(users);
        }
        let value = serde_json::to_value(model).context("write the node as YAML")?;
        let yaml = serde_yaml::to_string(&value).context("write the node as YAML")?;
        Ok(format!("{HEADER}{yaml}"))
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn parse(path: &Path, text: &str) -> Result<Model> {
    yaml::read(text).map_err(|e| {
        let what = format!("{} is not a sandbox node: {e}", path.display());
        Fault::new(Exit::InvalidConfig, "SandboxNodeInvalid", what)
            .hint("fix node.yaml (docs/sandbox.md explains its fields), or give --sandbox a new folder")
            .into()
    })
}

/// Replaces a text atomically. Not flushed: a sandbox need not survive a power cut.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    files::rename(&new, path)
}
