//! Files, folders and release trees.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use calicoctl_win::fault::Fault;
use calicoctl_win::item::{Access, Id, Manifest, ManifestFile, State, Tree};
use calicoctl_win::node::trust::{self, Use};
use calicoctl_win::node::{Node, Process, Put, STATE_DIR, STORE_DIR};
use calicoctl_win::values::{Sha256, WinPath};

use crate::nodes::on_each;

/// A folder for one story, with blanks and letters of other alphabets in its name.
fn folder(node: &mut dyn Node, story: &str) -> WinPath {
    let folder = WinPath::known(&format!(r"C:\Vertrag für {story} 契約"));
    // The rights that others have below Windows' root are not part of the stories.
    node.put(&Id::Dir(folder.clone()), Some(&State::Dir { access: Access::Closed })).unwrap();
    folder
}

/// The state of a file, with its bytes in the store.
fn stored(node: &mut dyn Node, text: &str, access: Access) -> State {
    let sha256 = Sha256::of(text.as_bytes());
    node.save(&blob(&sha256), text.as_bytes(), Access::Administrators).unwrap();
    State::File { sha256, access }
}

fn blob(sha256: &Sha256) -> WinPath {
    WinPath::known(STORE_DIR).join("blobs").join(sha256.as_str())
}

fn text(node: &dyn Node, path: &WinPath) -> String {
    fs::read_to_string(node.disk(path)).unwrap()
}

/// The id of the fault of a put.
fn refusal(node: &mut dyn Node, id: &Id, state: Option<&State>) -> &'static str {
    let error = node.put(id, state).unwrap_err();
    Fault::of(&error).map_or_else(|| panic!("not a fault: {error:#}"), |fault| fault.id)
}

fn names(node: &dyn Node, folder: &WinPath) -> Vec<String> {
    let entries = fs::read_dir(node.disk(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Reading changes nothing, and our own records do not count.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_watched_node_reports_changes_except_of_our_own_records() {
    on_each(|node| {
        let folder = folder(node, "Augen");
        let (record, file) = (WinPath::known(STATE_DIR).join("augen.json"), folder.join("a.txt"));
        let changed = Arc::new(AtomicBool::new(false));
        node.watch(Arc::clone(&changed));
        node.save(&record, b"{}", Access::Administrators).unwrap();
        node.append(&record, "{}").unwrap();
        node.remove(&record).unwrap();
        assert!(!node.disk(&record).exists());
        let absent = node.remove(&record).unwrap_err();
        assert!(absent.to_string().contains("augen.json"), "{absent:#}");
        let id = Id::File(file.clone());
        let state = stored(node, "a", Access::Inherited);
        assert_eq!(node.get(&id).unwrap(), None);
        assert!(!changed.load(Relaxed));

        node.put(&id, Some(&state)).unwrap();
        assert!(changed.swap(false, Relaxed));
        node.save(&file, b"b", Access::Inherited).unwrap();
        assert!(changed.swap(false, Relaxed));
        node.put(&id, None).unwrap();
        node.put(&Id::Dir(folder), None).unwrap();
        assert!(changed.load(Relaxed));
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_file_is_written_from_the_store_and_removed_again() {
    on_each(|node| {
        let folder = folder(node, "Dateien");
        let path = folder.join("Ein Knoten.conf");
        let id = Id::File(path.clone());
        assert_eq!(node.get(&id).unwrap(), None);

        let open = stored(node, "for all", Access::Inherited);
        node.put(&id, Some(&open)).unwrap();
        assert_eq!(node.get(&id).unwrap().as_ref(), Some(&open));
        assert_eq!(node.get(&Id::CniConf(folder.join("EIN KNOTEN.CONF"))).unwrap().as_ref(), Some(&open));

        let secret = stored(node, "for few", Access::Administrators);
        node.put(&id, Some(&secret)).unwrap();
        node.put(&id, Some(&secret)).unwrap();
        assert_eq!(node.get(&id).unwrap().as_ref(), Some(&secret));
        assert_eq!(text(node, &path), "for few");
        assert_eq!(names(node, &folder), ["Ein Knoten.conf"], "nothing is left beside it");

        for _ in 0..2 {
            assert_eq!(node.put(&id, None).unwrap(), Put::default());
        }
        assert_eq!(node.get(&id).unwrap(), None);
        node.put(&Id::Dir(folder.clone()), None).unwrap();
        assert_eq!(node.get(&Id::Dir(folder)).unwrap(), None);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_file_that_cannot_be_written_is_an_error_and_the_old_one_is_kept() {
    on_each(|node| {
        let folder = folder(node, "Fehler");
        let id = Id::File(folder.join("a"));
        let before = stored(node, "before", Access::Inherited);
        node.put(&id, Some(&before)).unwrap();

        let lost = State::File { sha256: Sha256::of(b"never stored"), access: Access::Inherited };
        assert_eq!(refusal(node, &id, Some(&lost)), "FileNotFound");
        let damaged = stored(node, "damaged later", Access::Inherited);
        let State::File { sha256, .. } = &damaged else { unreachable!("it is a file") };
        fs::write(node.disk(&blob(sha256)), "DAMAGED later").unwrap();
        let error = node.put(&id, Some(&damaged)).unwrap_err();
        assert!(format!("{error:#}").contains("was damaged"), "{error:#}");
        assert_eq!(node.get(&id).unwrap().as_ref(), Some(&before));
        assert_eq!(names(node, &folder), ["a"]);

        assert_eq!(refusal(node, &Id::File(folder.join("no such folder").join("a")), Some(&before)), "FileNotFound");
        assert_eq!(refusal(node, &Id::File(folder.clone()), Some(&before)), "FileInUse");
        assert_eq!(
            refusal(node, &Id::Dir(folder.join("a")), Some(&State::Dir { access: Access::Inherited })),
            "AlreadyExists"
        );

        node.put(&id, None).unwrap();
        fs::remove_file(node.disk(&blob(sha256))).unwrap();
        node.put(&Id::Dir(folder), None).unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_read_only_file_can_be_replaced_and_deleted() {
    on_each(|node| {
        let folder = folder(node, "Schreibschutz");
        let path = folder.join("a");
        let id = Id::File(path.clone());
        let protect = |node: &dyn Node| {
            let mut permissions = fs::metadata(node.disk(&path)).unwrap().permissions();
            permissions.set_readonly(true);
            fs::set_permissions(node.disk(&path), permissions).unwrap();
        };
        let (one, two) = (stored(node, "one", Access::Inherited), stored(node, "two", Access::Inherited));
        node.put(&id, Some(&one)).unwrap();
        protect(node);
        node.put(&id, Some(&two)).unwrap();
        assert_eq!(text(node, &path), "two");
        protect(node);
        node.put(&id, None).unwrap();
        assert_eq!(node.get(&id).unwrap(), None);
        node.put(&Id::Dir(folder), None).unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_folder_has_its_access_and_is_kept_while_others_use_it() {
    on_each(|node| {
        let folder = folder(node, "Ordner");
        for (name, access) in [("Offen", Access::Inherited), ("Geheim", Access::Administrators)] {
            let id = Id::Dir(folder.join(name));
            let wanted = State::Dir { access };
            node.put(&id, Some(&wanted)).unwrap();
            node.put(&id, Some(&wanted)).unwrap();
            let found = node.get(&id).unwrap().unwrap();
            if name == "Geheim" {
                assert_eq!(found, wanted);
            } else {
                // Below a closed folder it is closed too, which under Wine looks the same as inherited.
                assert!(
                    found.satisfies(&wanted) && found != State::Dir { access: Access::Administrators },
                    "{found:?}"
                );
            }
        }
        let below = Id::Dir(folder.join("no").join("parent"));
        assert_eq!(refusal(node, &below, Some(&State::Dir { access: Access::Inherited })), "FileNotFound");

        fs::write(node.disk(&folder.join("Offen").join("theirs")), "x").unwrap();
        let (open, secret) = (Id::Dir(folder.join("OFFEN")), Id::Dir(folder.join("geheim")));
        node.put(&open, None).unwrap();
        assert!(node.get(&open).unwrap().is_some(), "others have a file in it");
        fs::remove_file(node.disk(&folder.join("Offen").join("theirs"))).unwrap();
        for id in [open, secret, Id::Dir(folder)] {
            node.put(&id, None).unwrap();
            assert_eq!(node.get(&id).unwrap(), None);
        }
    });
}

/// CalicoNode hides it from kubelet until the network is up.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_withdrawn_cni_configuration_exists_and_can_be_removed() {
    on_each(|node| {
        let folder = folder(node, "net.d");
        let (conf, hidden) = (folder.join("10-calico.conf"), folder.join("10-calico.conf.withdrawn"));
        let id = Id::CniConf(conf.clone());
        let [old, new] = ["{}", "{\"new\": 1}"].map(|text| stored(node, text, Access::Inherited));
        let there = |node: &dyn Node| [&conf, &hidden].map(|path| node.disk(path).exists());
        for (then, left) in [(Some(&new), [true, false]), (None, [false, false])] {
            node.put(&id, Some(&old)).unwrap();
            fs::rename(node.disk(&conf), node.disk(&hidden)).unwrap();
            assert!(node.get(&id).unwrap().is_some());
            node.put(&id, then).unwrap();
            assert_eq!((there(node), node.get(&id).unwrap().is_some()), (left, then.is_some()));
        }
    });
}

/// A folder in which everybody may write and delete.
const OPEN: &str = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301ff;;;WD)";

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_folder_that_others_may_write_to_is_closed_and_restored() {
    on_each(|node| {
        let id = Id::Dir(folder(node, "Rechte"));
        let closed = State::Dir { access: Access::Closed };
        assert!(node.get(&id).unwrap().unwrap().satisfies(&closed), "it is made so");

        node.put(&id, Some(&State::Dir { access: Access::Open(OPEN.into()) })).unwrap();
        let found = node.get(&id).unwrap().unwrap();
        assert!(matches!(&found, State::Dir { access: Access::Open(_) }), "{found:?}");
        assert!(!found.satisfies(&closed));
        // An existing one is not changed if nothing else is requested.
        node.put(&id, Some(&State::Dir { access: Access::ClosedIfNew })).unwrap();
        assert_eq!(node.get(&id).unwrap().as_ref(), Some(&found));

        node.put(&id, Some(&closed)).unwrap();
        assert!(node.get(&id).unwrap().unwrap().satisfies(&closed));
        node.put(&id, Some(&found)).unwrap();
        let back = node.get(&id).unwrap().unwrap();
        assert!(back.satisfies(&found), "{back:?} for {found:?}");
        node.put(&id, None).unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_file_that_others_could_replace_is_not_trusted() {
    on_each(|node| {
        let folder = folder(node, "Glaube");
        let (id, file) = (Id::Dir(folder.clone()), folder.join("config.yaml"));
        fs::write(node.disk(&file), "spec: {}").unwrap();
        let believe = |node: &dyn Node, used| trust::check(Some(node), &node.disk(&file), used, "the config");
        believe(node, Use::Read).unwrap();
        believe(node, Use::Run).unwrap();

        node.put(&id, Some(&State::Dir { access: Access::Open(OPEN.into()) })).unwrap();
        let error = believe(node, Use::Read).unwrap_err();
        let fault = Fault::of(&error).unwrap_or_else(|| panic!("{error:#}"));
        assert_eq!(fault.id, "OthersMayWrite");
        assert!(fault.what.contains("config.yaml") && fault.what.contains("S-1-1-0"), "{}", fault.what);
        let hint = fault.hint.clone().unwrap();
        assert!(hint.contains(&format!("icacls \"{folder}\" /inheritance:r /grant:r ")), "{hint}");

        node.put(&id, Some(&State::Dir { access: Access::Closed })).unwrap();
        believe(node, Use::Run).unwrap();
        fs::remove_file(node.disk(&file)).unwrap();
        node.put(&id, None).unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn our_own_files_and_folders_are_for_administrators_only() {
    on_each(|node| {
        let folder = WinPath::known(STATE_DIR).join("contract");
        let (saved, journal) = (folder.join("deep").join("receipt.json"), folder.join("journal"));
        for text in ["{}", "{\"longer\": true}", ""] {
            node.save(&saved, text.as_bytes(), Access::Administrators).unwrap();
            assert_eq!(self::text(node, &saved), text);
        }
        for line in ["one", "zwei ü"] {
            node.append(&journal, line).unwrap();
        }
        assert_eq!(text(node, &journal), "one\nzwei ü\n");
        for made in [STATE_DIR, folder.as_str()] {
            let state = node.get(&Id::Dir(WinPath::known(made))).unwrap();
            assert_eq!(state, Some(State::Dir { access: Access::Administrators }), "{made}");
        }
        let Some(State::File { access, .. }) = node.get(&Id::File(saved)).unwrap() else { panic!("it was saved") };
        assert_eq!(access, Access::Administrators);
        assert_eq!(node.secure(&WinPath::known(STATE_DIR)).unwrap(), None, "nothing is wrong with it");
        assert_eq!(node.secure(&folder.join("not there")).unwrap(), None);
        fs::remove_dir_all(node.disk(&folder)).unwrap();
    });
}

/// A release of one file in the store.
fn staged(node: &mut dyn Node, content: &str) -> Tree {
    let files = [(
        "bin/calico.exe".into(),
        ManifestFile { size: content.len() as u64, sha256: Sha256::of(content.as_bytes()) },
    )];
    let manifest = Manifest { version: "v3.32.1".into(), archive: None, files: files.into() };
    let folder = WinPath::known(STORE_DIR).join("trees").join(manifest.digest().as_str());
    for (name, bytes) in
        [("bin/calico.exe", content.as_bytes()), (Manifest::FILE, &serde_json::to_vec(&manifest).unwrap())]
    {
        node.save(&folder.join(name), bytes, Access::Inherited).unwrap();
    }
    Tree::Release(manifest.digest())
}

/// Removes releases from the store again, but nothing of other stories.
fn unstage(node: &dyn Node, trees: &[&Tree]) {
    let store = WinPath::known(STORE_DIR).join("trees");
    for tree in trees {
        let Tree::Release(digest) = tree else { panic!("only releases are staged") };
        for name in [digest.to_string(), format!("drifted-{digest}")] {
            let _not_there = fs::remove_dir_all(node.disk(&store.join(&name)));
        }
    }
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_release_is_swapped_whole_and_the_old_tree_is_restored() {
    on_each(|node| {
        let root = WinPath::known(r"C:\Calico Vertrag");
        let id = Id::Tree(root.clone());
        node.save(&root.join("theirs.txt"), b"before us", Access::Inherited).unwrap();
        assert_eq!(node.get(&id).unwrap(), Some(State::Tree(Tree::Foreign)));

        let (one, two) = (staged(node, "one"), staged(node, "two"));
        for tree in [one.clone(), two.clone(), one.clone()] {
            node.put(&id, Some(&State::Tree(tree.clone()))).unwrap();
            node.put(&id, Some(&State::Tree(tree.clone()))).unwrap();
            assert_eq!(node.get(&id).unwrap(), Some(State::Tree(tree)));
        }
        assert_eq!(text(node, &root.join("bin").join("calico.exe")), "one");
        assert_eq!(node.secure(&root).unwrap(), None, "users cannot change a release of ours");

        fs::write(node.disk(&root.join("bin").join("calico.exe")), "changed").unwrap();
        assert!(
            matches!(node.get(&id).unwrap(), Some(State::Tree(Tree::Drifted { files, .. })) if files == ["bin/calico.exe"])
        );

        node.put(&id, Some(&State::Tree(Tree::Foreign))).unwrap();
        assert_eq!(text(node, &root.join("theirs.txt")), "before us");
        node.put(&id, None).unwrap();
        assert_eq!(node.get(&id).unwrap(), None);
        let lost = Tree::Release(Sha256::of(b"no such release"));
        assert!(node.put(&id, Some(&State::Tree(lost))).is_err());
        unstage(node, &[&one, &two]);
        fs::remove_dir_all(node.disk(&WinPath::known(STORE_DIR).join("trees").join("foreign"))).unwrap();
    });
}

/// Tests for Windows only.
#[cfg(windows)]
mod on_windows {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::nodes::machine;

    /// Set for the program that the stories below start.
    const WAITS: &str = "CALICO_WIN_CONTRACT_WAITS";

    #[test]
    #[ignore = "waits for its input to end; the stories run it"]
    fn a_program_that_waits() {
        if std::env::var_os(WAITS).is_some() {
            io::stdin().read_line(&mut String::new()).unwrap();
        }
    }

    /// Starts a copy of this program at a path.
    fn start(node: &dyn Node, path: &WinPath) -> Child {
        fs::copy(std::env::current_exe().unwrap(), node.disk(path)).unwrap();
        let mut program = Command::new(node.disk(path));
        program.args(["--ignored", "--exact", "files::on_windows::a_program_that_waits"]);
        program.env(WAITS, "").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait().unwrap();
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_running_program_is_replaced_and_its_old_file_deleted_later() {
        let node = &mut *machine();
        let folder = folder(node, "Programme");
        let path = folder.join("läuft.exe");
        let running = start(node, &path);
        let (new, newer) = (stored(node, "new", Access::Inherited), stored(node, "newer", Access::Inherited));

        let put = node.put(&Id::File(path.clone()), Some(&new)).unwrap();
        assert_eq!(put, Put::default(), "nothing waits for a reboot: the next run cleans up");
        assert_eq!(text(node, &path), "new");
        assert_eq!(names(node, &folder), ["läuft.exe", "läuft.exe.old-1"]);

        end(running);
        node.put(&Id::File(path.clone()), Some(&newer)).unwrap();
        assert_eq!(names(node, &folder), ["läuft.exe"]);
        node.put(&Id::File(path), None).unwrap();
        node.put(&Id::Dir(folder), None).unwrap();
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_running_program_that_ends_soon_is_removed_at_once() {
        let node = &mut *machine();
        let folder = folder(node, "Kurz");
        let path = folder.join("läuft.exe");
        let running = start(node, &path);
        let ended = std::thread::spawn(move || end(running));

        assert_eq!(node.put(&Id::File(path), None).unwrap(), Put::default());
        ended.join().unwrap();
        assert_eq!(names(node, &folder), [""; 0]);
        node.put(&Id::Dir(folder), None).unwrap();
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_running_program_is_removed_at_the_next_boot() {
        let node = &mut *machine();
        let folder = folder(node, "Abschied");
        let path = folder.join("läuft.exe");
        let running = start(node, &path);

        let put = node.put(&Id::File(path.clone()), None).unwrap();
        assert_eq!(put, Put::leaving(Some(folder.join("läuft.exe.old-1"))));
        assert_eq!(node.get(&Id::File(path.clone())).unwrap(), None);
        // Windows has noted it: the boot itself is for the tests of the executable.
        let pending = calicoctl_win::node::windows::reboot::facts().unwrap();
        assert!(pending.iter().any(|reason| reason.contains("wait to be moved or deleted: ")), "{pending:?}");
        let put = node.put(&Id::Dir(folder.clone()), None).unwrap();
        assert_eq!(put, Put::leaving(Some(folder.clone())), "it holds nothing else");

        end(running);
        node.put(&Id::File(path), None).unwrap();
        node.put(&Id::Dir(folder), None).unwrap();
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_mark_of_the_web_is_not_copied() {
        let node = &mut *machine();
        let folder = folder(node, "Netz");
        let state = stored(node, "from the web", Access::Inherited);
        let State::File { sha256, .. } = &state else { unreachable!("it is a file") };
        let mark = |path: &WinPath| format!("{}:Zone.Identifier", node_path(path));
        fs::write(mark(&blob(sha256)), "[ZoneTransfer]\r\nZoneId=3\r\n").unwrap();

        let path = folder.join("a.exe");
        node.put(&Id::File(path.clone()), Some(&state)).unwrap();
        assert!(fs::metadata(mark(&path)).is_err());

        fs::remove_file(mark(&blob(sha256))).unwrap();
        node.put(&Id::File(path), None).unwrap();
        node.put(&Id::Dir(folder), None).unwrap();
    }

    fn node_path(path: &WinPath) -> String {
        path.to_string()
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_release_in_which_a_file_is_open_is_not_moved_and_the_error_names_the_file() {
        use std::os::windows::fs::OpenOptionsExt;

        let node = &mut *machine();
        let root = WinPath::known(r"C:\Calico in Benutzung");
        let id = Id::Tree(root.clone());
        let tree = staged(node, "in use");
        node.put(&id, Some(&State::Tree(tree.clone()))).unwrap();
        let open =
            File::options().read(true).share_mode(0).open(node.disk(&root.join("bin").join("calico.exe"))).unwrap();
        // Wine moves such a folder, Windows does not: then the error must name the file.
        if let Err(error) = node.put(&id, None) {
            assert!(format!("{error:#}").contains(r"bin\calico.exe is in use"), "{error:#}");
        }
        drop(open);
        node.put(&id, None).unwrap();
        unstage(node, &[&tree]);
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_folder_of_ours_that_others_may_write_to_is_made_safe_or_refused() {
        use calicoctl_win::node::windows::security;

        let node = &mut *machine();
        let folder = folder(node, "Einbruch");
        let file = folder.join("config.yaml");
        fs::write(node.disk(&file), "from an administrator").unwrap();
        // An administrator opened it, but without the right to change its list: then closing it is final.
        security::set(&node.disk(&folder), "D:(A;OICI;0x1301ff;;;WD)").unwrap();

        let said = node.secure(&folder).unwrap().unwrap_or_default();
        assert!(said.contains("(S-1-1-0) could write to it"), "{said}");
        assert_eq!(node.secure(&folder).unwrap(), None);
        assert_eq!(node.get(&Id::Dir(folder.clone())).unwrap(), Some(State::Dir { access: Access::Administrators }));

        // What everybody may write to may contain anything by now.
        for place in [&folder, &file] {
            security::set(&node.disk(place), "D:(A;;FA;;;WD)").unwrap();
        }
        let error = node.secure(&folder).unwrap_err();
        assert_eq!(Fault::id_of(&error), "UnsafeFolder");
        assert!(
            error.to_string().contains("config.yaml, ") && error.to_string().contains("(S-1-1-0) may write to it"),
            "{error}"
        );
        assert_eq!(text(node, &file), "from an administrator", "nothing was changed");

        node.put(&Id::File(file), None).unwrap();
        node.put(&Id::Dir(folder), None).unwrap();
    }
}

/// The file that the child of a test has open.
const HELD: &str = "CALICO_WIN_CONTRACT_HELD";

/// A process that has a file open: one of the machine, or one that `node.yaml` names.
enum Holder {
    Process(Child, Lines<BufReader<ChildStdout>>),
    Named { yaml: std::path::PathBuf, before: String },
}

impl Holder {
    fn of(node: &dyn Node, path: &WinPath) -> Self {
        let disk = node.disk(&WinPath::known(r"C:\"));
        if disk != Path::new(r"C:\") {
            let yaml = disk.with_file_name("node.yaml");
            let before = fs::read_to_string(&yaml).unwrap();
            fs::write(&yaml, format!("{before}openFiles:\n- {{path: '{path}', by: shipper.exe (process 7)}}\n"))
                .unwrap();
            return Self::Named { yaml, before };
        }
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--ignored", "--exact", "--nocapture", "files::has_a_file_open_until_its_input_ends"]);
        let mut child =
            program.env(HELD, node.disk(path)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap() == "open"), "the child did not open {path}");
        Self::Process(child, said)
    }

    fn closes(self) {
        match self {
            Self::Process(mut child, said) => {
                drop(child.stdin.take());
                assert!(said.map(Result::unwrap).any(|line| line.contains("1 passed")));
                child.wait().unwrap();
            }
            Self::Named { yaml, before } => fs::write(yaml, before).unwrap(),
        }
    }
}

#[test]
#[ignore = "not a test: the child of the one below"]
fn has_a_file_open_until_its_input_ends() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let _open = File::open(path).unwrap();
    println!("\nopen");
    io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn an_open_file_below_a_folder_is_known_with_its_process() {
    on_each(|node| {
        let folder = folder(node, "Leser");
        let log = folder.join("logs").join("calico-felix.log");
        for path in [&log, &folder.join("calico-node.exe")] {
            node.save(path, b"x", Access::Administrators).unwrap();
        }
        assert_eq!(node.open_files(&folder, &[]).unwrap(), []);
        assert_eq!(node.open_files(&folder.join("none"), &[]).unwrap(), []);

        let holder = Holder::of(node, &log);
        let open = node.open_files(&folder, &[]).unwrap();
        assert!(matches!(&open[..], [one] if one.path == log && one.by.contains(".exe (process ")), "{open:?}");
        assert_eq!(node.open_files(&folder.join("logs"), &[]).unwrap(), open);
        if let Holder::Process(child, _) = &holder {
            let known = Process { pid: child.id(), since: None };
            assert_eq!(node.open_files(&folder, &[known]).unwrap(), [], "it is about to be stopped");
        }
        let own = File::open(node.disk(&folder.join("calico-node.exe"))).unwrap();
        holder.closes();
        assert_eq!(node.open_files(&folder, &[]).unwrap(), [], "this process's own do not count");
        drop(own);
        fs::remove_dir_all(node.disk(&folder)).unwrap();
    });
}
