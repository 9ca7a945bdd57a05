//! Releases that are missing, incomplete, invalid or malicious.

use std::fs;
use std::io::{Cursor, Write};

use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::version::CalicoVersion;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::{AWAY, CONFIG, Case, RELEASE, UNSUPPORTED, case, screens};
use crate::lab::Lab;

const NAME: &str = "calico-windows-v3.32.1.zip";

fn good() -> Vec<u8> {
    SyntheticRelease::build(&CalicoVersion::new(3, 32, 1))
}

/// A release with additional entries.
fn with(entries: &[&str], content: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new_append(Cursor::new(good())).unwrap();
    for entry in entries {
        zip.start_file(*entry, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

const INSTALL: &str = "install -y --release calico-windows-v3.32.1.zip";

/// A signed URL is a secret.
#[test]
fn secrets_of_a_releases_url_are_in_no_file() {
    let lab = Lab::node();
    let url = "http://me:hunter2@127.0.0.1:1/calico-windows-v3.32.1.zip?sig=hunter3";
    let failed = lab.run(&format!("install -y --release {url}"));
    assert_ne!(failed.code, 0);
    for secret in ["hunter2", "hunter3"] {
        assert_eq!(lab.picture().files_with(secret), Vec::<String>::new());
        assert!(!format!("{failed}").contains(secret), "{failed}");
    }
}

/// Its table of contents is whole.
#[test]
fn release_verify_checks_the_data_of_each_file() {
    let words = b"these words are in the archive once";
    let mut zip = ZipWriter::new_append(Cursor::new(good())).unwrap();
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file("CalicoWindows/notes.txt", stored).unwrap();
    zip.write_all(words).unwrap();
    let mut zip = zip.finish().unwrap().into_inner();
    let lab = Lab::new();
    lab.write(NAME, &zip);
    let _whole = lab.bare(&format!("release verify {NAME}")).exits(0);
    let at = zip.windows(words.len()).position(|part| part == words).unwrap();
    zip[at] ^= 1;
    lab.write(NAME, &zip);
    let damaged = lab.bare(&format!("release verify {NAME} -o json")).exits(6).json();
    assert_eq!(damaged["error"]["id"], "ReleaseDamaged", "{damaged:#}");
    assert!(damaged["error"]["what"].as_str().unwrap().contains("entry `notes.txt`: its CRC is"), "{damaged:#}");
}

#[test]
fn an_invalid_archive_is_refused() {
    let zeros = "install -y --release calico-windows-v3.32.1.zip --sha256 \
                 0000000000000000000000000000000000000000000000000000000000000000";
    let cases = [
        case("not there", "install -y --release other.zip", RELEASE, "ReleaseNotFound"),
        case("truncated", "install -y --release short/calico-windows-v3.32.1.zip", RELEASE, "ReleaseTruncated"),
        case("no zip", "install -y --release text/calico-windows-v3.32.1.zip", RELEASE, "ReleaseNotZip"),
        case("wrong digest", zeros, RELEASE, "ReleaseDigest"),
        case(
            "wrong digest beside it",
            "install -y --release sums/calico-windows-v3.32.1.zip",
            RELEASE,
            "ReleaseDigest",
        ),
        case("bad digest", "install -y --release calico-windows-v3.32.1.zip --sha256 abc", CONFIG, "ConfigInvalid"),
        case("damaged", "install -y --release bent/calico-windows-v3.32.1.zip", RELEASE, "ReleaseDamaged"),
        case("wrong layout", "install -y --release linux/calico-windows-v3.32.1.zip", RELEASE, "ReleaseLayout"),
        case("a folder that is none", "install -y --release tmp", RELEASE, "ReleaseLayout"),
        case("too new", "install -y --release v9.9.9", UNSUPPORTED, "CalicoVersionUnsupported"),
        case("too old", "install -y --release v3.19.0", UNSUPPORTED, "CalicoVersionUnsupported"),
        case(
            "another version than said",
            "install -y --release calico-windows-v3.32.1.zip --set calico.version=v3.31.0",
            RELEASE,
            "ReleaseVersion",
        ),
    ];
    let arrange = |lab: &Lab| {
        let zip = good();
        let mut bent = zip.clone();
        bent[zip.len() / 3] ^= 1;
        let mut linux = ZipWriter::new(Cursor::new(Vec::new()));
        linux.start_file("release-v3.32.1/bin/calicoctl", SimpleFileOptions::default()).unwrap();
        lab.write(NAME, &zip);
        lab.write("short/calico-windows-v3.32.1.zip", &zip[..zip.len() / 2]);
        lab.write("text/calico-windows-v3.32.1.zip", "<html>Sign in</html>\n");
        lab.write("bent/calico-windows-v3.32.1.zip", bent);
        lab.write("linux/calico-windows-v3.32.1.zip", linux.finish().unwrap().into_inner());
        lab.write("sums/calico-windows-v3.32.1.zip", &zip);
        lab.write("sums/SHA256SUMS", format!("{}  {NAME}\n", "1".repeat(64)));
    };
    insta::assert_snapshot!(screens(&cases, arrange), @"
    not there
      error: there is no release at other.zip
        state: nothing was changed
        fix: check the path, or name a version or URL instead
    truncated
      error: short/calico-windows-v3.32.1.zip: the archive is truncated, or damaged at its end (it does not end like a zip archive)
        state: nothing was changed
        fix: download it again: the download was probably interrupted
    no zip
      error: text/calico-windows-v3.32.1.zip is not a zip archive
        state: nothing was changed
        fix: open it: it may be a page of a proxy or a sign-in page
    wrong digest
      error: calico-windows-v3.32.1.zip: its SHA-256 is DIGEST, but DIGEST is expected
        state: nothing was changed
        fix: compare with the digest that the Calico project published; if the file is the wrong one, remove it and download it again
    wrong digest beside it
      error: sums/calico-windows-v3.32.1.zip: its SHA-256 is DIGEST, but DIGEST is expected
        state: nothing was changed
        fix: compare with the digest that the Calico project published; if the file is the wrong one, remove it and download it again
    bad digest
      error: the config is not valid
        cause: --sha256: spec.calico.source.sha256: `abc` is not a SHA-256: 64 hexadecimal digits
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    damaged
      error: bent/calico-windows-v3.32.1.zip: the archive is damaged: entry `CalicoWindows/config.ps1`: invalid Zip archive: header inconsistency detected: CRC32 checksum mismatch (does not match central directory)
        state: nothing was changed
        fix: download it again, and set its SHA-256 in the config
    wrong layout
      error: linux/calico-windows-v3.32.1.zip: the archive has `release-v3.32.1/bin/calicoctl`, but a Calico for Windows release has one top folder, CalicoWindows
        state: nothing was changed
        fix: use the asset calico-windows-vX.Y.Z.zip of a Calico release
    a folder that is none
      error: tmp: this is not a Calico v3.32.1 release: it lacks calico-node.exe, cni/calico.exe, cni/calico-ipam.exe, confd/config-bgp.ps1, confd/config-bgp.psm1, confd/conf.d/blocks.toml, confd/conf.d/peerings.toml, confd/templates/blocks.ps1.template, confd/templates/peerings.ps1.template
        state: nothing was changed
        fix: use calico-windows-v3.32.1.zip as Calico publishes it
    too new
      error: Calico v9.9.9 is not supported: this program knows v3.20.0 to v3.33.x
        state: nothing was changed
        fix: choose a supported release, or a newer version of this program
    too old
      error: Calico v3.19.0 is not supported: this program knows v3.20.0 to v3.33.x
        state: nothing was changed
        fix: choose a supported release, or a newer version of this program
    another version than said
      error: the config says v3.31.0, but the archive is named `calico-windows-v3.32.1.zip`
        state: nothing was changed
        fix: make calico.version and the archive agree
    ");
}

#[test]
fn a_dangerous_archive_is_refused_as_a_whole() {
    let hostile: [(&str, &[&str]); 10] = [
        ("leaves the folder", &["CalicoWindows/../../evil.exe"]),
        ("absolute", &["/evil.exe"]),
        ("drive", &["C:/evil.exe"]),
        ("network path", &["//host/share/evil.exe"]),
        ("backslashes", &["CalicoWindows\\..\\..\\evil.exe"]),
        ("stream", &["CalicoWindows/readme.txt:evil"]),
        ("reserved name", &["CalicoWindows/nul.txt"]),
        ("trailing dot", &["CalicoWindows/evil."]),
        ("trailing blank", &["CalicoWindows/evil "]),
        ("case duplicates", &["CalicoWindows/Twin.txt", "CalicoWindows/twin.TXT"]),
    ];
    let mut seen = String::new();
    for (name, entries) in hostile {
        seen += &screens(&[Case { name, ..case("", INSTALL, RELEASE, "ReleaseHostileEntry") }], |lab| {
            lab.write(NAME, with(entries, b"evil"));
        });
    }
    seen += &screens(&[case("link", INSTALL, RELEASE, "ReleaseHostileEntry")], |lab| {
        let mut zip = ZipWriter::new_append(Cursor::new(good())).unwrap();
        zip.add_symlink("CalicoWindows/link", "C:\\Windows\\System32", SimpleFileOptions::default()).unwrap();
        lab.write(NAME, zip.finish().unwrap().into_inner());
    });
    seen += &screens(&[case("bomb", INSTALL, RELEASE, "ReleaseTooLarge")], |lab| {
        lab.write(NAME, with(&["CalicoWindows/bomb.bin"], &vec![0; 32 << 20]));
    });
    insta::assert_snapshot!(seen, @r"
    leaves the folder
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/../../evil.exe` is refused: `..` would leave the folder it is extracted to
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    absolute
      error: calico-windows-v3.32.1.zip: the archive's entry `/evil.exe` is refused: its path is absolute or has an empty part
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    drive
      error: calico-windows-v3.32.1.zip: the archive's entry `C:/evil.exe` is refused: `:` makes it a drive or an alternate data stream
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    network path
      error: calico-windows-v3.32.1.zip: the archive's entry `//host/share/evil.exe` is refused: its path is absolute or has an empty part
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    backslashes
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows\\..\\..\\evil.exe` is refused: `..` would leave the folder it is extracted to
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    stream
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/readme.txt:evil` is refused: `:` makes it a drive or an alternate data stream
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    reserved name
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/nul.txt` is refused: `nul.txt` is a device on Windows
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    trailing dot
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/evil.` is refused: Windows removes the dot or space at the end of one of its parts
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    trailing blank
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/evil ` is refused: Windows removes the dot or space at the end of one of its parts
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    case duplicates
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/twin.TXT` is refused: `Twin.txt` already exists, and Windows does not distinguish the two
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    link
      error: calico-windows-v3.32.1.zip: the archive's entry `CalicoWindows/link` is refused: it is a link or special file
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    bomb
      error: calico-windows-v3.32.1.zip: the archive is refused: `CalicoWindows/bomb.bin` would grow more than 100-fold when extracted
        state: nothing was changed
        fix: the Calico project did not create this archive; download it again from a source that you trust
    ");
}

#[test]
fn a_failed_download_says_what_the_server_answered() {
    let fetch = |name, fault, id| case(name, "install -y --set transport.retries=0", RELEASE, id).with(fault);
    let cases = [
        fetch("404", "release 404", "ReleaseNotFound"),
        case("503", "install -y --set transport.retries=0", AWAY, "ReleaseUnavailable").with("release 503"),
        fetch("truncated", "release truncate", "ReleaseDigest"),
        fetch("corrupt", "release corrupt", "ReleaseDigest"),
        fetch("truncated, without digests", "release no-sums;release truncate", "ReleaseTruncated"),
        fetch("corrupt, without digests", "release no-sums;release corrupt", "ReleaseDamaged"),
        case("offline, not in the cache", "install -y --offline", RELEASE, "ReleaseOffline"),
        case(
            "nobody there",
            "install -y --release http://127.0.0.1:1/calico-windows-v3.32.1.zip --set transport.retries=0",
            AWAY,
            "ReleaseUnavailable",
        ),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @"
    404
      error: cannot fetch http://127.0.0.1:PORT/calico-windows-v3.32.1.zip: the server answered 404 Not Found
        state: nothing was changed
        fix: check the version and the URL; on a node without internet access, name a file with --release FILE
    503
      error: cannot fetch http://127.0.0.1:PORT/calico-windows-v3.32.1.zip: the server answered 503 Service Unavailable
        state: nothing was changed
        fix: check the network, --proxy and --ca-file, then run the command again: the download resumes
    truncated
      error: http://127.0.0.1:PORT/calico-windows-v3.32.1.zip: its SHA-256 is DIGEST, but DIGEST is expected
        state: nothing was changed
        fix: compare with the digest that the Calico project published; if the file is the wrong one, remove it and download it again
    corrupt
      error: http://127.0.0.1:PORT/calico-windows-v3.32.1.zip: its SHA-256 is DIGEST, but DIGEST is expected
        state: nothing was changed
        fix: compare with the digest that the Calico project published; if the file is the wrong one, remove it and download it again
    truncated, without digests
      error: node/cache/DIGEST.zip: the archive is truncated, or damaged at its end (it does not end like a zip archive)
        state: nothing was changed
        fix: download it again: the download was probably interrupted
    corrupt, without digests
      error: node/cache/DIGEST.zip: the archive is damaged: entry `nssm/README.txt`: its CRC is CRC, but CRC is expected
        state: nothing was changed
        fix: download it again, and set its SHA-256 in the config
    offline, not in the cache
      error: http://127.0.0.1:PORT/calico-windows-v3.32.1.zip is not in the cache, and --offline does not allow to download it
        state: nothing was changed
        fix: copy the archive to this machine and name it with --release FILE, or run without --offline
    nobody there
      error: cannot fetch http://127.0.0.1:PORT/calico-windows-v3.32.1.zip.sha256: (the system's own words)
        cause: error sending request
        cause: client error (Connect)
        cause: tcp connect error
        cause: (the system's own words)
        state: nothing was changed
        fix: check the network, --proxy and --ca-file, then run the command again: the download resumes
    ");
}

#[test]
fn an_interrupted_download_is_resumed_and_a_damaged_one_is_not_kept() {
    let lab = Lab::node();
    let _refused = lab.fails_at("release no-sums;release corrupt", "install -y").exits(6);
    let archives = |lab: &Lab| {
        let files = fs::read_dir(lab.path("node/cache")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "zip")).count()
    };
    assert_eq!(archives(&lab), 0, "a damaged archive stays in the cache");
    let _installed = lab.fails_at("release reset", "install -y").exits(0);
    assert_eq!(archives(&lab), 1);
}
