//! Bundles that are truncated, changed, incomplete, hostile, or for another machine.

use std::io::{Cursor, Read as _, Write as _};

use calicoctl_win::values::Sha256;
use zip::ZipArchive;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::{RELEASE, UNSUPPORTED, USAGE, case, screens};
use crate::lab::Lab;
use crate::stories::bundle::{of_release, whole};
use crate::stories::kubernetes::bare;

/// The files of a bundle, by their names in its folder.
type Files = Vec<(String, Vec<u8>)>;

fn files(bundle: &[u8]) -> Files {
    let mut zip = ZipArchive::new(Cursor::new(bundle)).unwrap();
    let read = |at| {
        let (mut entry, mut bytes) = (zip.by_index(at).unwrap(), Vec::new());
        entry.read_to_end(&mut bytes).unwrap();
        (entry.name().unwrap().split_once('/').unwrap().1.to_owned(), bytes)
    };
    (0..7).map(read).collect()
}

/// A bundle of other files; `lists`: its list has their digests.
fn packed(mut files: Files, lists: bool) -> Vec<u8> {
    if lists {
        let line = |(name, bytes): &(String, Vec<u8>)| format!("{}  {name}\n", Sha256::of(bytes));
        let list = files.iter().filter(|(name, _)| name != "SHA256SUMS").map(line).collect::<String>();
        files.iter_mut().filter(|(name, _)| name == "SHA256SUMS").for_each(|(_, bytes)| *bytes = list.clone().into());
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(format!("calicoctl-win-bundle/{name}"), SimpleFileOptions::default()).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The same bundle with another text in one of its files.
fn with(files: &Files, name: &str, edit: impl Fn(&str) -> String) -> Files {
    let mut files = files.clone();
    let (_, bytes) = files.iter_mut().find(|(found, _)| found == name).unwrap();
    *bytes = edit(std::str::from_utf8(bytes).unwrap()).into();
    files
}

fn without(files: &Files, name: &str) -> Files {
    files.iter().filter(|(found, _)| found != name).cloned().collect()
}

fn arrange(lab: &Lab) {
    let bundle = whole();
    let files = files(&bundle);
    lab.write("short.zip", &bundle[..bundle.len() / 2]);
    let mut bent = bundle.clone();
    let at = bundle.windows(8).position(|part| part == b"calico-w").unwrap() + 400;
    bent[at] ^= 1;
    lab.write("bent.zip", bent);
    let kubelet = |text: &str| format!("{text} of somebody else");
    lab.write("other-sum.zip", packed(with(&files, "kubelet.exe", kubelet), false));
    lab.write("arm64.zip", packed(with(&files, "bundle.json", |text| text.replace("amd64", "arm64")), true));
    lab.write("newer.zip", packed(with(&files, "bundle.json", |text| text.replace("v1alpha1", "v2")), true));
    lab.write("no-release.zip", packed(without(&files, "calico-windows-v3.32.1.zip"), true));
    lab.write("no-kubelet.zip", packed(without(&files, "kubelet.exe"), true));
    lab.write("unlisted.zip", packed([files.clone(), vec![("extra.exe".into(), b"x".to_vec())]].concat(), false));
    lab.write("listed.zip", packed(without(&files, "images.txt"), false));
    let outside = [files.clone(), vec![("../../Windows/evil.dll".into(), b"x".to_vec())]].concat();
    lab.write("outside.zip", packed(outside, true));
    lab.write("no-list.zip", packed(without(&files, "SHA256SUMS"), false));
    lab.write("page.zip", "<html>Sign in</html>\n");
    lab.write("whole.zip", &bundle);
    let (_, release) = files.into_iter().find(|(name, _)| name.starts_with("calico-windows")).unwrap();
    lab.write("release.zip", release);
}

#[test]
fn an_invalid_bundle_is_refused_before_anything_is_changed() {
    let zeros =
        "install -y --bundle whole.zip --sha256 0000000000000000000000000000000000000000000000000000000000000000";
    let cases = [
        case("not there", "install -y --bundle none.zip", RELEASE, "ReleaseNotFound"),
        case("truncated", "install -y --bundle short.zip", RELEASE, "ReleaseTruncated"),
        case("no zip", "install -y --bundle page.zip", RELEASE, "ReleaseNotZip"),
        case("a release", "install -y --bundle release.zip", RELEASE, "ReleaseLayout"),
        case("damaged", "install -y --bundle bent.zip", RELEASE, "ReleaseDamaged"),
        case("another file than listed", "install -y --bundle other-sum.zip", RELEASE, "BundleInvalid"),
        case("another file than said", zeros, RELEASE, "ReleaseDigest"),
        case("no digest", "install -y --bundle whole.zip --sha256 abc", USAGE, "Usage"),
        case("another processor", "install -y --bundle arm64.zip", UNSUPPORTED, "BundleArchitecture"),
        case("a newer one", "install -y --bundle newer.zip", RELEASE, "BundleInvalid"),
        case("a path outside", "install -y --bundle outside.zip", RELEASE, "ReleaseHostileEntry"),
        case("no release", "install -y --bundle no-release.zip", RELEASE, "BundleInvalid"),
        case("no kubelet", "install -y --bundle no-kubelet.zip", RELEASE, "BundleInvalid"),
        case("a file that is not listed", "install -y --bundle unlisted.zip", RELEASE, "BundleInvalid"),
        case("a listed file is missing", "install -y --bundle listed.zip", RELEASE, "BundleInvalid"),
        case("no list", "install -y --bundle no-list.zip", RELEASE, "BundleInvalid"),
        case("with a release", "install -y --bundle whole.zip --release v3.32.1", USAGE, "Usage"),
    ];
    insta::assert_snapshot!(screens(&cases, arrange), @r"
    not there
      error: there is no bundle at none.zip
        state: nothing was changed
        fix: check the path
    truncated
      error: short.zip: the archive is truncated, or damaged at its end (it does not end like a zip archive)
        state: nothing was changed
        fix: copy it again: the copy was probably interrupted
    no zip
      error: page.zip is not a zip archive
        state: nothing was changed
        fix: open it: it may be a page of a proxy or a sign-in page
    a release
      error: release.zip: the archive has `CalicoWindows/`, but a bundle has one top folder, calicoctl-win-bundle
        state: nothing was changed
        fix: use a file that this made: calicoctl-win release bundle --out FILE --sandbox node
    damaged
      error: bent.zip: the archive is damaged: entry `calico-windows-v3.32.1.zip`: its CRC is CRC, but CRC is expected
        state: nothing was changed
        fix: copy it again, and give its SHA-256 with --sha256
    another file than listed
      error: other-sum.zip: the bundle cannot be used: the SHA-256 of kubelet.exe is DIGEST, and SHA256SUMS says DIGEST
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    another file than said
      error: whole.zip: its SHA-256 is DIGEST, but DIGEST is expected
        state: nothing was changed
        fix: compare with the digest that `release bundle` printed, and copy the file again
    no digest
      error: --sha256: `abc` is not a SHA-256: 64 hexadecimal digits
        state: nothing was changed
        fix: give the 64 digits that the file's publisher names
    another processor
      error: arm64.zip: the bundle is for arm64, and Calico for Windows runs on amd64
        state: nothing was changed
        fix: use a bundle for this machine's processor
    a newer one
      error: newer.zip: the bundle cannot be used: bundle.json is calicoctl-win/v2 Bundle, which this version does not read
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    a path outside
      error: outside.zip: the archive's entry `calicoctl-win-bundle/../../Windows/evil.dll` is refused: `..` would leave the folder it is extracted to
        state: nothing was changed
        fix: `release bundle` did not create this file; copy it again from a source that you trust
    no release
      error: no-release.zip: the bundle cannot be used: it has no calico-windows-v3.32.1.zip
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    no kubelet
      error: no-kubelet.zip: the bundle cannot be used: it has no kubelet.exe
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    a file that is not listed
      error: unlisted.zip: the bundle cannot be used: it has extra.exe, which is not in SHA256SUMS
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    a listed file is missing
      error: listed.zip: the bundle cannot be used: it has no images.txt, which is in SHA256SUMS
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    no list
      error: no-list.zip: the bundle cannot be used: it has no SHA256SUMS
        state: nothing was changed
        fix: copy it again, or create a new one: calicoctl-win release bundle --out FILE --sandbox node
    with a release
      error: the argument '--bundle <FILE>' cannot be used with '--release <VERSION|FILE|DIR|URL>'
        state: nothing was changed
        fix: usage: calicoctl-win install --bundle <FILE>
             see: calicoctl-win install --help
    ");
}

/// The bundle was made from another config.
#[test]
fn a_bundle_without_the_wanted_kubernetes_is_refused() {
    let lab = bare();
    lab.write("release-only.zip", of_release("v3.32.1"));
    lab.write("whole.zip", whole());
    let wants = |version: &str| {
        let node = format!("{{install: true, version: {version}, join: {{tokenFile: token}}}}");
        lab.write("node.yaml", format!("spec: {{kubernetes: {{node: {node}}}}}\n"));
    };
    wants("v1.36.2");
    let missing = case("none", "apply -c node.yaml -y --bundle release-only.zip", RELEASE, "BundleInvalid");
    insta::assert_snapshot!(missing.meets(&lab), @r"
    error: release-only.zip: it has no kubelet and kube-proxy v1.36.2
      state: nothing was changed
      fix: make the bundle with a config that has spec.kubernetes.node.version: calicoctl-win release bundle -c node.yaml --out FILE --sandbox node
    ");
    wants("v1.35.0");
    let other = case("another", "apply -c node.yaml -y --bundle whole.zip", RELEASE, "BundleInvalid");
    insta::assert_snapshot!(other.meets(&lab), @r"
    error: whole.zip: it has kubelet and kube-proxy v1.36.2, and the config says v1.35.0
      state: nothing was changed
      fix: make the bundle with a config that has spec.kubernetes.node.version: calicoctl-win release bundle -c node.yaml --out FILE --sandbox node
    ");
}
