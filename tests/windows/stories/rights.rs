//! Access rights, as Windows's own calls report them. Wine maps an access list to a file's mode and owner, and back.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::house::House;

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_config_or_kubeconfig_that_everybody_may_write_is_refused() {
    let Some(house) = House::new() else { return };
    let planned = [vec!["plan"], house.install_words()[2..].to_vec()].concat();
    for file in [house.machine.c("node.yaml"), house.test_file("kubeconfig")] {
        set(&file, 0o666);
        for words in [&planned, &house.install_words()] {
            let refused = house.machine.run(words).exits(23);
            for said in [
                "OthersMayWrite",
                "(S-1-1-0) may write to ",
                "icacls \"C:\\",
                "/inheritance:r /grant:r *S-1-5-18:F *S-1-5-32-544:F",
            ] {
                assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
            }
        }
        set(&file, 0o644);
    }
    // A folder above in which others may delete is as bad as the file itself.
    set(&house.machine.c("test"), 0o777);
    let refused = house.machine.run(&planned).exits(23);
    assert!(refused.stderr.contains(r"may change what is in C:\test"), "{}", refused.stderr);
    set(&house.machine.c("test"), 0o755);
    let _planned = house.machine.run(&planned).exits(0);
}

#[test]
fn a_state_folder_of_another_account_is_renamed_and_re_created() {
    let Some(house) = House::new() else { return };
    let state = house.machine.c(r"ProgramData\calicoctl-win");
    fs::create_dir_all(state.join("receipts")).unwrap();
    fs::write(state.join("receipts/1.json"), "{}").unwrap();
    // Only root may give a folder to another owner.
    if std::os::unix::fs::chown(&state, Some(65534), None).is_err() {
        return;
    }
    let installed = house.install_json(0);
    let warnings = installed["warnings"].to_string();
    assert!(warnings.contains("FolderMadeSafe") && warnings.contains("owned it"), "{warnings}");
    let names = fs::read_dir(state.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let aside = names.map(|name| name.into_string().unwrap()).find(|name| name.contains(".untrusted-")).unwrap();
    assert_eq!(house.read(&format!(r"ProgramData\{aside}\receipts\1.json")), "{}");
    assert_ne!(fs::metadata(&state).unwrap().uid(), 65534);
    assert_eq!(mode(&state) & 0o007, 0);
}

#[test]
fn a_cni_folder_that_everybody_may_write_to_is_closed_and_restored() {
    let Some(house) = House::new() else { return };
    let folder = house.machine.c(r"opt\cni\bin");
    fs::create_dir_all(&folder).unwrap();
    set(&folder, 0o777);
    let folders =
        ["--set", r"windowsNodes.cniBinDir=C:\opt\cni\bin", "--set", r"windowsNodes.cniConfigDir=C:\opt\cni\conf"];
    let words = [house.install_words(), folders.to_vec(), vec!["-o", "json"]].concat();
    let installed = house.machine.run(&words).exits(0).json();
    assert!(installed["warnings"].to_string().contains("FolderRights"), "{installed:#}");
    assert_eq!(mode(&folder) & 0o002, 0, "{:o}", mode(&folder));
    assert_eq!(mode(&house.machine.c(r"opt\cni\conf")) & 0o002, 0);
    let _gone = house.run("uninstall --yes").exits(0);
    assert_eq!(mode(&folder), 0o777);
    assert!(!house.machine.c(r"opt\cni\conf").exists());
}
