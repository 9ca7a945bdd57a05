//! Files that others than administrators may write are not trusted and not adopted; their rights are restricted.

use std::fs;

use calicoctl_win::node::Node;
use calicoctl_win::node::acl::{self, Acl};
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::values::WinPath;

use crate::lab::{Lab, Output};

/// Alice, who is not an administrator.
const ALICE: &str = "S-1-5-21-1004336348-1177238915-682003330-1001";
const USERS: &str = r"BUILTIN\Users (S-1-5-32-545)";
const STATE: &str = r"C:\ProgramData\calicoctl-win";

/// Sets the access lists that Windows would report for these.
fn acls(lab: &Lab, lists: &[(&str, &str)]) {
    lab.edit_yaml(|yaml| {
        let lists = lists.iter().map(|(path, sddl)| format!("  '{path}': '{sddl}'\n"));
        format!("{yaml}acls:\n{}", lists.collect::<String>())
    });
}

fn acl_of(lab: &Lab, path: &str) -> Acl {
    let place = lab.on_node(&path.replacen(':', "", 1).replace('\\', "/"));
    SandboxNode::open(&lab.path("node")).unwrap().rights(&place).unwrap().unwrap().acl
}

/// Returns who else may add to a folder or change its contents.
fn may_write(lab: &Lab, path: &str) -> Option<String> {
    let caller = SandboxNode::open(&lab.path("node")).unwrap().caller();
    acl_of(lab, path).other(&caller, acl::CHANGE_FOLDER).map(|other| other.sid)
}

/// Writes a kubeconfig to the node whose user logs in with a plugin, which writes a marker when it runs.
#[cfg(unix)]
fn kubeconfig_with_plugin(lab: &Lab, path: &str, plugin: &str) {
    use std::os::unix::fs::PermissionsExt;
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: '{plugin}', interactiveMode: Never}}}}}}]\n"
    );
    fs::create_dir_all(lab.on_node(path).parent().unwrap()).unwrap();
    fs::write(lab.on_node(path), text).unwrap();
    let script = if plugin.starts_with('/') { plugin.into() } else { lab.on_node(path).parent().unwrap().join(plugin) };
    fs::write(&script, format!("#!/bin/sh\ntouch {}\n", lab.path("ran").display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
fn has_run(lab: &Lab) -> bool {
    lab.path("ran").exists()
}

#[track_caller]
fn is_refused(output: &Output, words: &[&str]) {
    for words in [&["OthersMayWrite"], words].concat() {
        assert!(output.stderr.contains(words), "{words}: {output:?}");
    }
}

/// The README's verbs before the first install, and install: all of them contact the cluster.
#[cfg(unix)]
const FIRST: [&str; 5] = ["plan", "preflight", "cluster check", "install --dry-run", "install -y"];

#[cfg(unix)]
#[test]
fn a_config_planted_by_a_user_runs_nothing_as_administrator() {
    let lab = Lab::node();
    let plugin = lab.path("plugin").display().to_string();
    kubeconfig_with_plugin(&lab, "C/Users/Alice/config", &plugin);
    fs::create_dir_all(lab.on_node("C/ProgramData/calicoctl-win")).unwrap();
    let config = "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec: {kubernetes: {kubeconfig: 'C:\\Users\\Alice\\config'}}\n";
    fs::write(lab.on_node("C/ProgramData/calicoctl-win/config.yaml"), config).unwrap();
    let before = lab.read("node.yaml");
    acls(
        &lab,
        &[(
            STATE,
            &format!("O:{ALICE}D:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)(A;ID;FA;;;{ALICE})(A;OICIIOID;GA;;;CO)"),
        )],
    );
    for words in ["plan", "preflight", "cluster check", "config show", "install --dry-run"] {
        let refused = lab.run(words).exits(23);
        is_refused(
            &refused,
            &[r"C:\ProgramData\calicoctl-win\config.yaml", ALICE, r#"icacls "C:\ProgramData\calicoctl-win""#],
        );
        assert!(!has_run(&lab), "{words}");
    }
    // An account without administrator rights has nothing to lose.
    fs::write(lab.on_node("node.yaml"), before.replace("elevated: true", "elevated: false")).unwrap();
    let _unreached = lab.run("cluster check").exits(7);
    assert!(has_run(&lab));
}

/// On a client edition, every user may change what an administrator put in `C:\k`.
#[cfg(unix)]
#[test]
fn a_kubeconfig_that_others_may_change_is_not_read() {
    let lab = Lab::node();
    let plugin = lab.path("plugin").display().to_string();
    kubeconfig_with_plugin(&lab, "C/k/config", &plugin);
    let client = "O:BAD:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)(A;OICIID;0x1200a9;;;BU)(A;OICIID;0x1301bf;;;AU)";
    acls(&lab, &[(r"C:\k\config", client)]);
    for words in FIRST {
        let refused = lab.run(&format!(r"{words} --kubeconfig C:\k\config")).exits(23);
        is_refused(
            &refused,
            &[r"the kubeconfig C:\k\config", r"NT AUTHORITY\Authenticated Users (S-1-5-11) may write"],
        );
        assert!(refused.stderr.contains(r#"icacls "C:\k\config" /inheritance:r /grant:r *S-1-5-18:F *S-1-5-32-544:F"#));
        assert!(!has_run(&lab), "{words}");
    }
    // The same if the config names it.
    lab.write(
        "c.yaml",
        "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec: {kubernetes: {kubeconfig: 'C:\\k\\config'}}\n",
    );
    is_refused(&lab.run("plan -c c.yaml").exits(23), &[r"C:\k\config"]);
}

/// `C:\k` as kubeadm's script creates it on a server: users may add files beside the kubeconfig, but not change or
/// replace it.
#[cfg(unix)]
#[test]
fn a_kubeconfig_in_kubeadms_folder_is_trusted_and_a_plugin_beside_it_is_not() {
    let lab = Lab::node();
    let plugin = lab.path("plugin").display().to_string();
    kubeconfig_with_plugin(&lab, "C/k/config", &plugin);
    let _unreached = lab.run(r"cluster check --kubeconfig C:\k\config").exits(7);
    assert!(has_run(&lab), "it is trusted");

    fs::remove_file(lab.path("ran")).unwrap();
    kubeconfig_with_plugin(&lab, "C/k/config", "./login.exe");
    for words in FIRST {
        let refused = lab.run(&format!(r"{words} --kubeconfig C:\k\config")).exits(23);
        is_refused(
            &refused,
            &[r"the kubeconfig's plugin C:\k\login.exe", &format!(r"{USERS} may change what is in C:\k")],
        );
        assert!(!has_run(&lab), "{words}");
    }
    // In a folder where nobody else may add files, it runs.
    kubeconfig_with_plugin(&lab, "C/Program Files/login/config", "./login.exe");
    lab.write("c.yaml", "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec: {kubernetes: {kubeconfig: 'C:\\Program Files\\login\\config'}}\n");
    let _unreached = lab.run("plan -c c.yaml").exits(7);
    assert!(has_run(&lab));
}

/// The CA determines which API server is trusted, and so who gets the administrator's login.
#[test]
fn files_of_a_kubeconfig_and_a_named_config_must_be_trusted_too() {
    let lab = Lab::node();
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}]\n\
        contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n";
    fs::write(lab.on_node("C/k/config"), text).unwrap();
    fs::write(lab.on_node("C/k/ca.crt"), "").unwrap();
    fs::write(lab.on_node("C/k/node.yaml"), "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\n").unwrap();
    let alices = format!("O:{ALICE}D:AI(A;ID;FA;;;SY)");
    acls(&lab, &[(r"C:\k\ca.crt", &alices), (r"C:\k\node.yaml", &alices)]);
    let refused = lab.run(r"cluster check --kubeconfig C:\k\config").exits(23);
    is_refused(
        &refused,
        &[r"C:\k\ca.crt", &format!("{ALICE} owns"), r#"icacls "C:\k\ca.crt" /setowner *S-1-5-32-544"#],
    );
    for words in ["config show", "plan", "install -y"] {
        let refused = lab.run(&format!("{words} -c node/C/k/node.yaml")).exits(23);
        is_refused(&refused, &[r"the config C:\k\node.yaml", ALICE]);
    }
}

/// Its creator may hold a handle that allows changing it at any time.
#[test]
fn a_state_folder_created_by_a_user_is_renamed_and_created_again() {
    let lab = Lab::node();
    let planted = lab.on_node("C/ProgramData/calicoctl-win/receipts/1.json");
    fs::create_dir_all(planted.parent().unwrap()).unwrap();
    fs::write(&planted, "{}").unwrap();
    acls(&lab, &[(STATE, &format!("O:{ALICE}D:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)(A;OICIID;FA;;;{ALICE})"))]);

    let installed = lab.run("install -y -o json").exits(0).json();
    let warnings = installed["warnings"].to_string();
    assert!(warnings.contains("FolderMadeSafe") && warnings.contains(ALICE), "{warnings}");
    assert_eq!((installed["generation"].as_u64(), planted.exists()), (Some(1), false), "the receipt is our own");
    assert_eq!(may_write(&lab, STATE), None);
    let data = fs::read_dir(lab.on_node("C/ProgramData")).unwrap();
    let names: Vec<String> = data.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let aside =
        names.iter().find(|name| name.starts_with("calicoctl-win.untrusted-")).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(lab.read(&format!("C/ProgramData/{aside}/receipts/1.json")), "{}", "nothing of it is lost");
    assert!(warnings.contains(aside.as_str()), "{warnings}");

    let again = lab.run("install -y -o json").exits(0).json();
    assert!(!again["warnings"].to_string().contains("FolderMadeSafe"), "{again}");
}

#[cfg(unix)]
#[test]
fn an_empty_state_folder_created_by_a_user_is_not_used() {
    use std::os::unix::fs::MetadataExt;
    let lab = Lab::node();
    let state = lab.on_node("C/ProgramData/calicoctl-win");
    fs::create_dir_all(&state).unwrap();
    acls(&lab, &[(STATE, &format!("O:{ALICE}D:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)(A;OICIID;FA;;;{ALICE})"))]);
    let alices = fs::metadata(&state).unwrap().ino();
    let _done = lab.run("install -y").exits(0);
    assert_ne!(fs::metadata(&state).unwrap().ino(), alices, "Alice's own folder was taken over");
    assert_eq!(may_write(&lab, STATE), None);
}

#[test]
fn a_state_folder_created_by_a_user_that_cannot_be_renamed_is_refused() {
    let lab = Lab::node();
    fs::create_dir_all(lab.on_node("C/ProgramData/calicoctl-win")).unwrap();
    acls(&lab, &[(STATE, &format!("O:{ALICE}D:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)"))]);
    lab.edit_yaml(|yaml| format!("{yaml}openFiles: [{{path: '{STATE}', by: cmd.exe}}]\n"));
    let before = lab.picture();
    let refused = lab.run("install -y").exits(23);
    assert!(refused.stderr.contains("UnsafeFolder") && refused.stderr.contains(ALICE), "{refused:?}");
    lab.picture().same_as(&before);
}

/// An administrator let users write in it: what is ours is still there and not theirs, so the folder is closed. An
/// account that could also change the access list may have kept a handle: then nothing is done.
#[test]
fn a_state_folder_that_an_administrator_opened_is_closed_or_refused_and_never_deleted() {
    let lab = Lab::installed();
    let list = |rights| format!("O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;;{rights};;;BU)");
    let yaml = lab.read("node.yaml");
    let open = |rights| {
        let opened = format!("{yaml}acls:\n  '{STATE}': '{}'\n", list(rights));
        fs::write(lab.on_node("node.yaml"), opened).unwrap();
    };

    open("FA");
    let refused = lab.run("install -y").exits(23);
    for words in ["UnsafeFolder", USERS, r#"icacls "C:\ProgramData\calicoctl-win" /reset"#] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    assert_eq!(may_write(&lab, STATE).as_deref(), Some("S-1-5-32-545"), "nothing was changed");

    open("0x1301ff");
    let closed = lab.run("install -y -o json").exits(0).json();
    assert!(closed["warnings"].to_string().contains("FolderMadeSafe"), "{closed}");
    assert_eq!((may_write(&lab, STATE), &closed["generation"]), (None, &1.into()));
}

/// A node whose container runtime has its CNI folders in the places of Calico's documents and other installers.
fn with_folders(bin: &str, conf: &str) -> Lab {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| {
        yaml.replace(r"C:\Program Files\containerd\cni\bin", bin).replace(r"C:\Program Files\containerd\cni\conf", conf)
    });
    lab
}

#[test]
fn created_cni_folders_are_closed_to_others() {
    let lab = with_folders(r"C:\opt\cni\bin", r"C:\etc\cni\net.d");
    let before = lab.picture_without_state();
    let _done = lab.run("install -y").exits(0);
    for folder in [r"C:\opt\cni\bin", r"C:\etc\cni\net.d", r"C:\opt\cni", r"C:\opt", r"C:\Program Files\calicoctl-win"]
    {
        assert_eq!(may_write(&lab, folder), None, "{folder}");
    }
    let checked = lab.run("preflight --all").exits(0);
    assert!(checked.stdout.contains("[ OK ] FolderRights"), "{}", checked.stdout);
    let _gone = lab.run("uninstall -y").exits(0);
    lab.picture_without_state().same_as(&before);
    // The logs remain, and so does their folder.
    let _again = lab.run(r"install -y --set services.logDir=C:\logs\calico").exits(0);
    assert_eq!(may_write(&lab, r"C:\logs\calico"), None);
}

#[test]
fn cni_folders_in_which_users_may_add_files_are_reported_closed_and_restored() {
    let lab = with_folders(r"C:\k\cni", r"C:\k\cni\config");
    fs::create_dir_all(lab.on_node("C/k/cni/config")).unwrap();
    // The rights that `mkdir` by an administrator inherits there, and a folder that somebody opened.
    let own = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301bf;;;AU)";
    acls(&lab, &[(r"C:\k\cni\config", own)]);
    let (before, lists) =
        (lab.picture_without_state(), [r"C:\k\cni", r"C:\k\cni\config"].map(|path| acl_of(&lab, path)));

    let checked = lab.run("preflight").exits(0);
    let line = checked.stdout.lines().find(|line| line.contains("FolderRights")).unwrap_or_else(|| panic!("{checked}"));
    for words in
        ["[WARN]", &format!(r"C:\k\cni ({USERS})"), r"C:\k\cni\config (NT AUTHORITY\Authenticated Users (S-1-5-11))"]
    {
        assert!(line.contains(words), "{words}: {line}");
    }
    let planned = lab.run("plan").exits(0);
    let line =
        planned.stdout.lines().find(|line| line.contains("folder") && line.contains(r"C:\k\cni\config ")).unwrap();
    assert!(line.contains("others may write -> others may only read"), "{line}");

    // A run that was interrupted and undone leaves them unchanged.
    let _cut = lab.fails_at("put file*=exit-before", "install -y");
    assert_eq!(may_write(&lab, r"C:\k\cni"), None);
    let _back = lab.run("resume --undo -y").exits(0);
    lab.picture_without_state().same_as(&before);

    let _done = lab.run("install -y").exits(0);
    assert_eq!([r"C:\k\cni", r"C:\k\cni\config"].map(|path| may_write(&lab, path)), [None, None]);
    assert_eq!(may_write(&lab, r"C:\k").as_deref(), Some("S-1-5-32-545"), "kubeadm's folder is not ours");

    // If somebody opens it again, it is drift.
    let mut node = SandboxNode::open(&lab.path("node")).unwrap();
    node.edit(|model| {
        model.acls.insert(WinPath::known(r"C:\k\cni"), own.into());
        Ok(())
    })
    .unwrap();
    let _mended = lab.run("repair -y").exits(0);
    assert_eq!(may_write(&lab, r"C:\k\cni"), None);

    let _gone = lab.run("uninstall -y").exits(0);
    assert_eq!([r"C:\k\cni", r"C:\k\cni\config"].map(|path| acl_of(&lab, path)), lists);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn a_users_file_in_a_cni_folder_stops_the_install_until_it_is_reviewed() {
    let lab = with_folders(r"C:\k\cni", r"C:\k\cni\config");
    fs::create_dir_all(lab.on_node("C/k/cni/config")).unwrap();
    fs::write(lab.on_node("C/k/cni/config/00-alice.conf"), "{}").unwrap();
    acls(&lab, &[(r"C:\k\cni\config\00-alice.conf", &format!("O:{ALICE}D:AI(A;ID;FA;;;SY)(A;ID;0x1200a9;;;BU)"))]);
    let refused = lab.run("install -y").exits(3);
    for words in ["FolderRights", r"C:\k\cni\config\00-alice.conf", ALICE] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    fs::remove_file(lab.on_node("C/k/cni/config/00-alice.conf")).unwrap();
    let _done = lab.run("install -y").exits(0);
}

#[test]
fn a_sandbox_node_reads_access_lists_without_case_and_refuses_invalid_ones() {
    let lab = Lab::node();
    acls(&lab, &[(r"c:\K", "O:BAD:P(A;;FA;;;SY)")]);
    assert_eq!(acl_of(&lab, r"C:\k").entries.unwrap().len(), 1);
    lab.edit_yaml(|yaml| yaml.replace("O:BAD:P(A;;FA;;;SY)", "everybody"));
    let node = SandboxNode::open(&lab.path("node")).unwrap();
    let error = node.rights(&node.disk(&WinPath::known(r"C:\k\config"))).unwrap_err();
    assert!(format!("{error:#}").contains(r"no access list for C:\k"), "{error:#}");
}
