//! containerd's CNI folders and pause image, from its `config.toml` in all three versions of that file.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::fault::{Exit, Fault};
use crate::values::WinPath;

/// The folders of CNI plugins and of CNI configuration, and the image of each pod's sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriConfig {
    pub bin: WinPath,
    pub conf: WinPath,
    /// None if the configuration does not name it: containerd has a default.
    pub sandbox_image: Option<String>,
}

impl Default for CriConfig {
    /// containerd's defaults on Windows.
    fn default() -> Self {
        let folder = WinPath::known(r"C:\Program Files\containerd\cni");
        Self { bin: folder.join("bin"), conf: folder.join("conf"), sandbox_image: None }
    }
}

/// How the reader of a configuration accesses other files.
pub struct Files<'a> {
    /// A file's text; none if there is no such file.
    pub read: &'a dyn Fn(&WinPath) -> Result<Option<String>>,
    /// The names of the files in a folder; none if there is no such folder.
    pub list: &'a dyn Fn(&WinPath) -> Result<Vec<String>>,
}

/// How many files are read: a folder that links to itself has a file under any number of paths.
const MOST_FILES: usize = 100;

const SET_FOLDERS: &str = "fix it, or set the CNI folders with spec.windowsNodes.cniBinDir and cniConfigDir";

/// Reads a configuration and its imports. As in containerd, an imported file is read after the file that imports it,
/// and overrides it.
///
/// # Errors
/// INVALID_CONFIG naming file, line and column if one is not TOML; errors of reading.
pub fn read(config: &WinPath, files: &Files<'_>) -> Result<CriConfig> {
    let mut dirs = CriConfig::default();
    let mut waiting = VecDeque::from([config.clone()]);
    let mut seen = Vec::new();
    while let Some(path) = waiting.pop_front() {
        if seen.contains(&path) {
            continue;
        }
        if seen.len() == MOST_FILES {
            let what = format!("containerd's configuration {config} imports more than {MOST_FILES} files");
            return Err(Fault::new(Exit::InvalidConfig, "ContainerdConfigInvalid", what).hint(SET_FOLDERS).into());
        }
        let text = (files.read)(&path)?;
        seen.push(path.clone());
        let Some(text) = text else { continue };
        let table = parse(&path, &text)?;
        if let Some(cni) = section(&table) {
            let many = cni.get("bin_dirs").and_then(Value::as_array).into_iter().flatten();
            if let Some(bin) = many.chain(cni.get("bin_dir")).find_map(folder) {
                dirs.bin = bin;
            }
            if let Some(conf) = cni.get("conf_dir").and_then(folder) {
                dirs.conf = conf;
            }
        }
        dirs.sandbox_image = sandbox_image(&table).or(dirs.sandbox_image);
        for import in table.get("imports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            waiting.extend(imported(&path, import, files)?);
        }
    }
    Ok(dirs)
}

fn parse(path: &WinPath, text: &str) -> Result<Table> {
    text.trim_start_matches('\u{feff}').parse::<Table>().map_err(|error| {
        let what = format!("containerd's configuration {path} cannot be read: {}", error.to_string().trim_end());
        Fault::new(Exit::InvalidConfig, "ContainerdConfigInvalid", what).hint(SET_FOLDERS).into()
    })
}

/// The section for CNI. Its plugin has another name in each version of the file, and containerd uses no other.
fn section(table: &Table) -> Option<&Table> {
    let plugin = match version(table) {
        ..=1 => "cri",
        2 => "io.containerd.grpc.v1.cri",
        _ => "io.containerd.cri.v1.runtime",
    };
    table.get("plugins")?.get(plugin)?.get("cni")?.as_table()
}

/// The image of the sandboxes, likewise.
fn sandbox_image(table: &Table) -> Option<String> {
    let plugins = table.get("plugins")?;
    let image = match version(table) {
        ..=1 => plugins.get("cri")?.get("sandbox_image"),
        2 => plugins.get("io.containerd.grpc.v1.cri")?.get("sandbox_image"),
        _ => plugins.get("io.containerd.cri.v1.images")?.get("pinned_images")?.get("sandbox"),
    };
    image?.as_str().filter(|image| !image.is_empty()).map(str::to_owned)
}

fn version(table: &Table) -> i64 {
    table.get("version").and_then(Value::as_integer).unwrap_or(1)
}

/// A folder as written there: with either slash, and `""` for the default. One without a drive is on the drive of
/// Windows.
fn folder(value: &Value) -> Option<WinPath> {
    let text = value.as_str()?.trim();
    match text.strip_prefix(['/', '\\']) {
        Some(below) => format!(r"C:\{below}").parse().ok(),
        None => text.parse().ok(),
    }
}

/// The files that an import names: absolute or relative to the importing file, with `*` and `?` in the last part.
fn imported(from: &WinPath, import: &str, files: &Files<'_>) -> Result<Vec<WinPath>> {
    let (folder_part, pattern) = import.rsplit_once(['/', '\\']).unwrap_or(("", import));
    let here = from.parent().context("find the folder of containerd's configuration")?;
    let place = if import.contains(['/', '\\']) { cleaned(&here, &format!("{folder_part}\\")) } else { Some(here) };
    // A folder with characters that no path may have does not exist.
    let Some(place) = place else { return Ok(Vec::new()) };
    if !pattern.contains(['*', '?']) {
        return Ok(cleaned(&place, pattern).into_iter().collect());
    }
    let mut names = (files.list)(&place)?;
    names.retain(|name| fits(&pattern.to_lowercase(), &name.to_lowercase()));
    names.sort_by_key(|name| name.to_lowercase());
    Ok(names.iter().map(|name| place.join(name)).collect())
}

/// A path as containerd cleans it: absolute, without `.` and `..`, so that a file is known by one path.
fn cleaned(here: &WinPath, path: &str) -> Option<WinPath> {
    let path = path.replace('/', "\\");
    let full = match path.as_bytes() {
        [_, b':', ..] => path,
        [b'\\', ..] => format!("C:{path}"),
        _ => format!("{here}\\{path}"),
    };
    let (drive, rest) = full.split_once('\\')?;
    let mut parts = Vec::new();
    for part in rest.split('\\').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    format!("{drive}\\{}", parts.join("\\")).parse().ok()
}

/// Whether a name matches a pattern of `*` and `?`.
fn fits(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('*') => {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| fits(rest.as_str(), &name[at..]))
        }
        Some(wanted) => {
            let mut own = name.chars();
            own.next().is_some_and(|c| wanted == '?' || wanted == c) && fits(rest.as_str(), own.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a disk with these files, of which the first is the configuration.
    fn dirs(disk: &[(&str, &str)]) -> Result<(String, String)> {
        let files = Files {
            read: &|path| {
                let found = disk.iter().find(|(name, _)| WinPath::known(name) == *path);
                Ok(found.map(|(_, text)| (*text).to_owned()))
            },
            list: &|folder| {
                let paths = disk.iter().map(|(name, _)| WinPath::known(name));
                Ok(paths.filter(|path| path.parent().as_ref() == Some(folder)).map(|path| path.name().into()).collect())
            },
        };
        read(&WinPath::known(disk[0].0), &files).map(|dirs| (dirs.bin.to_string(), dirs.conf.to_string()))
    }

    const CONFIG: &str = r"C:\Program Files\containerd\config.toml";
    const BIN: &str = r"C:\Program Files\containerd\cni\bin";
    const CONF: &str = r"C:\Program Files\containerd\cni\conf";

    #[test]
    fn every_version_of_the_file_is_read() {
        for (text, bin, conf) in [
            (
                "[plugins.cri.cni]\nbin_dir = 'C:\\cni\\bin'\nconf_dir = \"C:/cni/conf\"\n",
                r"C:\cni\bin",
                r"C:\cni\conf",
            ),
            (
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"C:/opt/cni/bin\"\nconf_dir = \"c:\\\\etc\\\\cni\"\n",
                r"C:\opt\cni\bin",
                r"c:\etc\cni",
            ),
            (
                "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = ''\nbin_dirs = ['C:\\a', 'C:\\b']\nconf_dir = 'C:\\c'\n",
                r"C:\a",
                r"C:\c",
            ),
            ("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = 'C:\\a'\n", r"C:\a", CONF),
            // Absent or empty means the default.
            ("", BIN, CONF),
            ("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"\"\nconf_dir = \"\"\n", BIN, CONF),
            ("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['']\n", BIN, CONF),
            // containerd ignores the section name of another version.
            ("version = 2\n[plugins.cri.cni]\nbin_dir = 'C:\\old'\n", BIN, CONF),
            // A file from Linux.
            (
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/opt/cni/bin\"\n",
                r"C:\opt\cni\bin",
                CONF,
            ),
        ] {
            let have = dirs(&[(CONFIG, text)]).unwrap();
            assert_eq!(have, (bin.to_owned(), conf.to_owned()), "{text}");
        }
        assert_eq!(dirs(&[(CONFIG, "\u{feff}# from Notepad\r\n")]).unwrap().0, BIN);
    }

    #[test]
    fn the_pause_image_is_read_in_every_version_of_the_file() {
        let image = |text: &str| {
            let text = text.to_owned();
            let files = Files { read: &|_| Ok(Some(text.clone())), list: &|_| Ok(Vec::new()) };
            read(&WinPath::known(CONFIG), &files).unwrap().sandbox_image
        };
        let pause = "registry.k8s.io/pause:3.10";
        for text in [
            format!("[plugins.cri]\nsandbox_image = '{pause}'\n"),
            format!("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = '{pause}'\n"),
            format!("version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{pause}'\n"),
        ] {
            assert_eq!(image(&text).as_deref(), Some(pause), "{text}");
        }
        assert_eq!(image("version = 3\n[plugins.cri]\nsandbox_image = 'other'\n"), None);
    }

    #[test]
    fn imports_override_the_importing_file() {
        let main = "version = 2\nimports = ['conf.d/*.toml', 'C:\\k\\last.toml', 'missing.toml']\n\
                    [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = 'C:\\main'\nconf_dir = 'C:\\main-conf'\n";
        let part = |dir: &str| {
            format!(
                "version = 2\nimports = ['..\\..\\x.toml']\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = '{dir}'\n"
            )
        };
        let (one, two, last) = (part(r"C:\one"), part(r"C:\two"), part(r"C:\last"));
        let one_and_two = [
            (CONFIG, main),
            (r"C:\Program Files\containerd\conf.d\10-one.toml", one.as_str()),
            (r"C:\Program Files\containerd\conf.d\20-two.TOML", two.as_str()),
            (r"C:\Program Files\containerd\conf.d\30-not.txt", "not TOML"),
        ];
        assert_eq!(dirs(&one_and_two).unwrap(), (r"C:\two".into(), r"C:\main-conf".into()));
        let all: Vec<_> = one_and_two.into_iter().chain([(r"C:\k\last.toml", last.as_str())]).collect();
        assert_eq!(dirs(&all).unwrap().0, r"C:\last");
        // A path that no file can have.
        assert_eq!(dirs(&[(CONFIG, "imports = ['a|b\\x.toml', 'D:\\']\n")]).unwrap().0, BIN);
    }

    #[test]
    fn a_file_that_imports_itself_by_any_path_is_read_once() {
        for import in [
            "config.toml",
            "./config.toml",
            ".\\.\\CONFIG.toml",
            "../containerd/config.toml",
            "./*.toml",
            "C:\\x\\..\\config.toml",
        ] {
            let reads = std::cell::Cell::new(0);
            let files = Files {
                read: &|path| {
                    reads.set(reads.get() + 1);
                    assert!(reads.get() < 5, "{import} is read again as {path}");
                    let there = path.as_str().to_lowercase().ends_with("config.toml");
                    Ok(there.then(|| format!("imports = ['{import}']\n")))
                },
                list: &|_| Ok(vec!["config.toml".into()]),
            };
            read(&WinPath::known(CONFIG), &files).unwrap();
        }
    }

    /// `loop` links to its own folder.
    #[test]
    fn an_endless_chain_of_imports_is_refused() {
        let files =
            Files { read: &|_| Ok(Some("imports = ['loop\\config.toml']\n".into())), list: &|_| Ok(Vec::new()) };
        let error = read(&WinPath::known(CONFIG), &files).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ContainerdConfigInvalid");
        assert!(error.to_string().contains("more than 100 files"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_toml_is_an_error_with_its_position() {
        let error = dirs(&[(CONFIG, "version = 2\n[plugins\n")]).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ContainerdConfigInvalid");
        let said = error.to_string();
        assert!(said.contains(CONFIG) && said.contains("line 2"), "{said}");
    }
}
