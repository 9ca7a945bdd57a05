//! Others cannot change what is ours, and a running program is no obstacle.

use crate::lab::Lab;

/// A node whose installed program runs, so that its file can only be deleted at the next boot.
fn in_use() -> Lab {
    let lab = Lab::installed();
    lab.start_program(r"C:\Program Files\calicoctl-win\calicoctl-win.exe");
    lab
}

#[test]
fn the_installed_program_uninstalls_itself_and_its_file_is_deleted_at_the_next_boot() {
    let lab = in_use();
    let gone = lab.run("uninstall -y -o json").exits(if cfg!(windows) { 3010 } else { 3010 & 0xFF }).json();

    assert_eq!((&gone["exit_name"], &gone["exit_code"]), (&"REBOOT_REQUIRED".into(), &3010.into()), "{gone}");
    assert_eq!((&gone["status"], &gone["reboot_required"]), (&"reboot_required".into(), &true.into()));
    assert_eq!(gone["next"][0], "Restart-Computer");
    assert!(!lab.on_node("C/Program Files/calicoctl-win/calicoctl-win.exe").exists());
    assert!(lab.on_node("C/Program Files/calicoctl-win/calicoctl-win.exe.old-1").exists());
}

/// The config decides whether and when Windows restarts.
#[test]
fn the_config_decides_about_a_required_restart() {
    for (policy, name, code, boots) in
        [("never", "OK", 0, false), ("request", "REBOOT_REQUIRED", 3010, false), ("now", "REBOOT_STARTED", 1641, true)]
    {
        let lab = in_use();
        let exit = if cfg!(windows) { code } else { code & 0xFF };
        let gone = lab.run(&format!("uninstall -y -o json --set reboot.policy={policy}")).exits(exit).json();
        assert_eq!((&gone["exit_name"], &gone["exit_code"]), (&name.into(), &code.into()), "{gone}");
        assert!(gone["warnings"].to_string().contains("GoneWithReboot"), "{gone}");
        assert_eq!(!lab.read("node.yaml").contains("bootId: boot-1\n"), boots, "{policy}");
    }
}

/// Every verb that changes the node must report what is removed at the next boot, not only uninstall.
#[test]
fn a_change_that_needs_a_restart_says_so() {
    let installed = Lab::installed();
    let exit = if cfg!(windows) { 3010 } else { 3010 & 0xFF };
    for verb in ["reconfigure", "apply"] {
        let lab = installed.copy();
        lab.start_program(r"C:\Program Files\containerd\cni\bin\calico-ipam.exe");
        let policy_only = format!("{verb} -y -o json --set calicoNetwork.backend=none");
        let changed = lab.run(&policy_only).exits(exit).json();
        let said = (&changed["exit_name"], &changed["next"][0]);
        assert_eq!(said, (&"REBOOT_REQUIRED".into(), &"Restart-Computer".into()), "{verb}: {changed:#}");
    }
}

/// After the boot, kubelet may run before CalicoNode.
#[test]
fn a_restart_of_windows_withdraws_the_cni_configuration_until_calico_runs_again() {
    let lab = Lab::installed();
    let conf = lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf");
    let published = std::fs::read(&conf).unwrap();
    lab.start_program(r"C:\Program Files\containerd\cni\bin\calico-ipam.exe");
    let exit = if cfg!(windows) { 1641 } else { 1641 & 0xFF };
    let elsewhere = r#"--set windowsNodes.cniBinDir=C:\cni\bin --set calicoNetwork.cniConfigOverrides={"qps":30}"#;
    let _restarts = lab.run(&format!("reconfigure -y {elsewhere} --set reboot.policy=now")).exits(exit);
    let newer = std::fs::read(conf.with_extension("conf.withdrawn")).unwrap();
    assert!(!conf.exists() && newer != published);
    let _again = lab.run("service restart -y").exits(0);
    assert_eq!(std::fs::read(&conf).unwrap(), newer);
}

/// On other systems, a sandbox cannot know who may write.
#[cfg(unix)]
mod others_may_write {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) {
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_administrators_can_read_the_state_folder() {
        let lab = Lab::installed();
        let state = fs::metadata(lab.on_node("C/ProgramData/calicoctl-win")).unwrap();
        assert_eq!(state.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_state_folder_that_anybody_may_write_to_is_secured_and_reported() {
        let lab = Lab::node();
        let state = lab.on_node("C/ProgramData/calicoctl-win");
        fs::create_dir_all(&state).unwrap();
        open(&state);

        let installed = lab.run("install -y").exits(0);
        assert!(
            installed.stderr.contains("FolderMadeSafe") || installed.stdout.contains("FolderMadeSafe"),
            "{installed:?}"
        );
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        let again = lab.run("install -y").exits(0);
        assert!(!again.stderr.contains("FolderMadeSafe") && !again.stdout.contains("FolderMadeSafe"), "{again:?}");
    }

    /// Between the look at it and its creation for the lock, another account makes it.
    #[test]
    fn a_state_folder_that_somebody_made_since_the_look_is_not_used() {
        let lab = Lab::node();
        lab.edit_yaml(|yaml| {
            let theirs = r"  C:\ProgramData\calicoctl-win: O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;WD)";
            format!("{yaml}\nacls:\n{theirs}\n")
        });
        assert!(!lab.on_node("C/ProgramData/calicoctl-win").exists());
        let refused = lab.run("install -y -o json").exits(23).json();
        assert_eq!(
            (&refused["error"]["id"], &refused["changed"]),
            (&"UnsafeFolder".into(), &false.into()),
            "{refused:#}"
        );
        assert!(!lab.on_node("C/CalicoWindows").exists());
    }

    #[test]
    fn a_receipt_that_anybody_could_have_written_is_not_used() {
        let lab = Lab::node();
        let state = lab.on_node("C/ProgramData/calicoctl-win");
        let planted = state.join("receipts").join("1.json");
        fs::create_dir_all(planted.parent().unwrap()).unwrap();
        fs::write(&planted, "{}").unwrap();
        for path in [&state, &planted] {
            open(path);
        }
        for words in ["install -y", "uninstall -y"] {
            let refused = lab.run(words).exits(23);
            assert!(refused.stderr.contains("UnsafeFolder"), "{refused:?}");
            assert!(refused.stderr.contains("1.json"), "{refused:?}");
        }
        assert_eq!(fs::read_to_string(&planted).unwrap(), "{}");
    }
}
