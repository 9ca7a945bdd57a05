//! Files, folders and release trees.

use super::*;

#[test]
fn paths_are_found_without_case_and_stay_in_the_folder() {
    let (dir, node) = node();
    let exe = path(r"c:\PROGRAM FILES\Containerd\CONTAINERD.exe");
    // Windows finds a file in any case, so there the name keeps the case of the request.
    let plain = |path: &Path| path.to_string_lossy().replace('\\', "/").to_lowercase();
    let found = node.disk(&exe);
    assert_eq!(plain(&found), plain(&dir.path().join("C/Program Files/containerd/containerd.exe")));
    assert!(found.is_file(), "{}", found.display());
    let outside = path(r"C:\k").join(r"..\..\..\..\etc\passwd");
    assert!(node.get(&Id::File(outside.clone())).is_err());
    assert!(fs::read(node.disk(&outside)).is_err() && fs::create_dir_all(node.disk(&outside)).is_err());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc", dir.path().join("C/k/link")).unwrap();
        let error = node.get(&Id::File(path(r"C:\k\link\passwd"))).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
}

#[test]
fn files_come_from_the_store_and_keep_their_access() {
    let (dir, mut node) = node();
    let id = Id::File(path(r"C:\k\calico-kube-config"));
    let secret = blob(&mut node, b"token", Access::Administrators);
    node.put(&id, Some(&secret)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(secret));
    let open = blob(&mut node, b"token", Access::Inherited);
    node.put(&id, Some(&open)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(open));
    node.put(&id, None).unwrap();
    node.put(&id, None).unwrap();
    assert_eq!(node.get(&id).unwrap(), None);
    assert_eq!(fs::read_dir(dir.path().join("C/k")).unwrap().count(), 1, "nothing is left beside it");

    let lost = State::File { sha256: Sha256::of(b"never kept"), access: Access::Inherited };
    assert!(said(node.put(&id, Some(&lost))).starts_with("FileNotFound"));
    let nowhere = Id::File(path(r"C:\no\such\folder\x"));
    let state = blob(&mut node, b"x", Access::Inherited);
    assert!(said(node.put(&nowhere, Some(&state))).contains("Windows error 3"));
}

#[cfg(unix)]
#[test]
fn an_original_with_its_own_mode_is_restored_with_it() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, mut node) = node();
    let id = Id::CniConf(path(r"C:\k\10-other.conf"));
    let place = node.disk(id.path().unwrap());
    fs::write(&place, "{}").unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o640)).unwrap();
    let original = node.get(&id).unwrap().unwrap();
    let State::File { sha256, access: Access::Inherited } = &original else { panic!("{original:?}") };
    let kept = node.disk(&path(STORE_DIR).join("blobs").join(sha256.as_str()));
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::copy(&place, kept).unwrap();
    node.put(&id, None).unwrap();
    node.put(&id, Some(&original)).unwrap();
    assert_eq!(fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn only_an_empty_folder_is_removed() {
    let (_dir, mut node) = node();
    let (top, below) = (Id::Dir(path(r"C:\CalicoWindows")), Id::Dir(path(r"C:\CalicoWindows\logs")));
    let state = State::Dir { access: Access::Administrators };
    node.put(&top, Some(&state)).unwrap();
    node.put(&below, Some(&State::Dir { access: Access::Inherited })).unwrap();
    node.put(&top, None).unwrap();
    assert_eq!(node.get(&top).unwrap(), Some(state), "what is in it is somebody else's");
    node.put(&below, None).unwrap();
    node.put(&top, None).unwrap();
    assert_eq!(node.get(&top).unwrap(), None);
}

#[test]
fn a_file_in_use_is_not_replaced_and_its_folder_not_moved() {
    let (_dir, mut node) = node();
    let new = blob(&mut node, b"newer", Access::Inherited);
    let config = Id::File(path(r"C:\k\config"));
    node.put(&config, Some(&new)).unwrap();
    node.edit(|model| {
        model.open_files.push(model::OpenFile { path: path(r"C:\k\config"), by: "kubelet".into() });
        Ok(())
    })
    .unwrap();
    for wanted in [Some(&new), None] {
        let said = said(node.put(&config, wanted));
        assert!(
            said.starts_with("FileInUse: ") && said.contains("which is in use by kubelet (Windows error 32: "),
            "{said}"
        );
    }

    let root = path(r"C:\CalicoWindows");
    node.put(&Id::Dir(root.clone()), Some(&State::Dir { access: Access::Inherited })).unwrap();
    node.edit(|model| {
        model.open_files.push(model::OpenFile { path: root.join("readme.txt"), by: "notepad.exe".into() });
        Ok(())
    })
    .unwrap();
    insta::assert_snapshot!(said(node.put(&Id::Tree(root), None)), @r"FileInUse: move C:\CalicoWindows: C:\CalicoWindows\readme.txt is in use by notepad.exe (Windows error 5: access is denied)");
}

#[test]
fn a_running_program_is_renamed_and_deleted_later() {
    let (_dir, mut node) = node();
    let folder = path(r"C:\Program Files\containerd");
    let (exe, old) = (Id::File(folder.join("containerd.exe")), Id::File(folder.join("containerd.exe.old-1")));
    let (new, newer) = (blob(&mut node, b"new", Access::Inherited), blob(&mut node, b"newer", Access::Inherited));

    assert_eq!(node.put(&exe, Some(&new)).unwrap(), Put::default());
    assert!(node.get(&exe).unwrap().as_ref() == Some(&new) && node.get(&old).unwrap().is_some());
    node.put(&running("kubelet"), None).unwrap();
    node.put(&running("containerd"), None).unwrap();
    node.put(&exe, Some(&newer)).unwrap();
    assert_eq!(node.get(&old).unwrap(), None, "it ran no more");

    node.put(&running("containerd"), Some(&State::Running)).unwrap();
    assert_eq!(node.put(&exe, None).unwrap(), Put::leaving(Some(folder.join("containerd.exe.old-1"))));
    assert_eq!(node.get(&exe).unwrap(), None);
    insta::assert_snapshot!(node.facts().unwrap().pending_reboot.join("; "), @r"files wait to be moved or deleted: C:\Program Files\containerd\containerd.exe.old-1");
}

/// Stages a small release in the store, as the engine does.
fn stage(node: &SandboxNode, version: &str) -> Tree {
    let bytes = format!("calico-node {version}");
    let file = ManifestFile { size: bytes.len() as u64, sha256: Sha256::of(bytes.as_bytes()) };
    let files = [("bin/calico-node.exe".to_owned(), file)].into();
    let manifest = Manifest { version: version.into(), archive: None, files };
    let place = node.disk(&path(STORE_DIR).join("trees").join(manifest.digest().as_str()));
    fs::create_dir_all(place.join("bin")).unwrap();
    fs::write(place.join("bin/calico-node.exe"), bytes).unwrap();
    fs::write(place.join(Manifest::FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
    Tree::Release(manifest.digest())
}

#[test]
fn release_trees_are_swapped_whole_and_the_foreign_one_is_restored() {
    let (_dir, mut node) = node();
    let id = Id::Tree(path(r"C:\CalicoWindows"));
    let place = node.disk(id.path().unwrap());
    let (old, new) = (State::Tree(stage(&node, "v3.30.0")), State::Tree(stage(&node, "v3.32.1")));
    fs::create_dir(&place).unwrap();
    fs::write(place.join("config.ps1"), "by hand").unwrap();
    let foreign = node.get(&id).unwrap();
    assert_eq!(foreign, Some(State::Tree(Tree::Foreign)));

    for state in [&old, &new, &old] {
        node.put(&id, Some(state)).unwrap();
        assert_eq!(node.get(&id).unwrap().as_ref(), Some(state));
    }
    // Half-way: one rename was made, the other was not.
    let State::Tree(Tree::Release(digest)) = &old else { unreachable!() };
    fs::rename(&place, node.disk(&path(STORE_DIR).join("trees").join(digest.as_str()))).unwrap();
    node.put(&id, Some(&new)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(new.clone()));

    node.put(&id, None).unwrap();
    assert_eq!(node.get(&id).unwrap(), None);
    node.put(&id, foreign.as_ref()).unwrap();
    assert_eq!(fs::read_to_string(place.join("config.ps1")).unwrap(), "by hand");
}

#[test]
fn a_changed_release_is_detected_and_kept() {
    let (_dir, mut node) = node();
    let id = Id::Tree(path(r"C:\CalicoWindows"));
    let release = stage(&node, "v3.32.1");
    let state = State::Tree(release.clone());
    node.put(&id, Some(&state)).unwrap();
    let place = node.disk(id.path().unwrap());
    // Same size, newer than the manifest.
    let exe = place.join("bin/calico-node.exe");
    fs::write(&exe, "evilly-node v3.32.1").unwrap();
    fs::File::options()
        .write(true)
        .open(&exe)
        .unwrap()
        .set_modified(std::time::SystemTime::now() + Duration::from_secs(60))
        .unwrap();
    let Tree::Release(of) = release else { unreachable!() };
    let drifted = State::Tree(Tree::Drifted { of, files: vec!["bin/calico-node.exe".into()] });
    assert_eq!(node.get(&id).unwrap(), Some(drifted.clone()));

    stage(&node, "v3.32.1");
    node.put(&id, Some(&state)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(state));
    node.put(&id, Some(&drifted)).unwrap();
    assert_eq!(fs::read_to_string(&exe).unwrap(), "evilly-node v3.32.1");

    // A release that the store does not have is an error before anything is moved.
    let other = State::Tree(Tree::Release(Sha256::of(b"v3.99")));
    assert!(node.put(&id, Some(&other)).is_err());
    assert_eq!(node.get(&id).unwrap(), Some(drifted));
}
