//! The synthetic release: a zip in the real layout of any supported version, with stand-ins for
//! the binaries.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::calico::layout::{Build, Layout};
use crate::version::CalicoVersion;

/// A synthetic release: the real paths, small contents.
pub struct SyntheticRelease;

impl SyntheticRelease {
    /// The zip of a version, the same bytes each time.
    pub fn build(version: &CalicoVersion) -> Vec<u8> {
        Self::build_with(version, &BTreeMap::new())
    }

    /// The same with real programs instead of some stand-ins, by path below the top folder. Paths that the version
    /// does not have are ignored.
    pub fn build_with(version: &CalicoVersion, programs: &BTreeMap<&str, Vec<u8>>) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default_for_write())
            .unix_permissions(0o644);
        let mut write = || -> zip::result::ZipResult<()> {
            zip.add_directory("CalicoWindows/", options.unix_permissions(0o755))?;
            for (path, contents) in Self::files(version) {
                zip.start_file(format!("CalicoWindows/{path}"), options)?;
                zip.write_all(programs.get(path.as_str()).map_or(contents.as_bytes(), Vec::as_slice))?;
            }
            Ok(())
        };
        write().expect("these names and sizes are valid in a zip");
        zip.finish().expect("a zip in memory can be finished").into_inner()
    }

    /// The zip's name among a release's assets.
    pub fn file_name(version: &CalicoVersion) -> String {
        format!("calico-windows-{version}.zip")
    }

    /// Its contents, by path below the top folder.
    pub fn files(version: &CalicoVersion) -> BTreeMap<String, String> {
        let v = |major, minor, patch| CalicoVersion::new(major, minor, patch);
        let line = |minor| version.is_line(3, minor);
        let mut paths = vec![
            "README.txt",
            "config.ps1",
            "cni.conf.template",
            "calico-kube-config.template",
            "install-calico.ps1",
            "start-calico.ps1",
            "stop-calico.ps1",
            "uninstall-calico.ps1",
            "node/node-service.ps1",
            "felix/felix-service.ps1",
            "confd/confd-service.ps1",
            "libs/calico/calico.psm1",
            "libs/hns/hns.psm1",
            "libs/hns/License.txt",
        ];
        let layout = Layout::by_number(version);
        paths.extend(layout.required());
        if *version >= v(3, 27, 0) {
            paths.extend(["config-hpc.ps1", "uninstall-calico-hpc.ps1"]);
        }
        // Fixes of older lines may be newer than a newer line's first release.
        let kubernetes = match () {
            () if line(29) => *version < v(3, 29, 6),
            () if line(30) => *version < v(3, 30, 4),
            () => *version < v(3, 29, 0),
        };
        if kubernetes {
            paths.extend([
                "kubernetes/README.txt",
                "kubernetes/install-kube-services.ps1",
                "kubernetes/uninstall-kube-services.ps1",
                "kubernetes/kubelet-service.ps1",
                "kubernetes/kube-proxy-service.ps1",
            ]);
        }
        let upgrade = match () {
            () if line(27) => *version < v(3, 27, 5),
            () if line(28) => *version < v(3, 28, 1),
            () => *version >= v(3, 21, 0) && *version < v(3, 27, 0),
        };
        if upgrade {
            paths.push("upgrade/upgrade-service.ps1");
        }
        let nssm = match () {
            () if *version >= v(3, 25, 0) => "nssm",
            () if *version >= v(3, 24, 3) => "nssm-2.24-103-gdee49fc",
            () => "nssm-2.24",
        };
        let nssm = ["win32/nssm.exe", "win64/nssm.exe", "README.txt"].map(|file| format!("{nssm}/{file}"));

        let mut files: BTreeMap<String, String> = paths
            .into_iter()
            .map(str::to_owned)
            .chain(nssm)
            .map(|path| {
                let contents =
                    format!("Stand-in for {path} of Calico for Windows {version}, created by calicoctl-win.\r\n");
                (path, contents)
            })
            .collect();
        if layout.build() == Build::Monobinary {
            // One program under two names, byte for byte.
            files.insert("cni/calico.exe".into(), files["calico.exe"].clone());
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(version: &str, path: &str) -> bool {
        SyntheticRelease::files(&version.parse().unwrap()).contains_key(path)
    }

    #[test]
    fn each_version_has_its_own_layout() {
        for (path, with, without) in [
            ("calico-node.exe", "v3.20.6 v3.26.5 v3.32.1", "v3.33.0"),
            ("calico.exe", "v3.33.0", "v3.20.6 v3.32.1"),
            ("cni/calico-ipam.exe", "v3.21.3 v3.32.1", "v3.33.0"),
            ("config-hpc.ps1", "v3.27.0 v3.33.0", "v3.26.5"),
            ("kubernetes/kubelet-service.ps1", "v3.20.0 v3.28.5 v3.29.5 v3.30.3", "v3.29.6 v3.30.4 v3.31.0 v3.33.0"),
            ("upgrade/upgrade-service.ps1", "v3.21.3 v3.26.5 v3.27.4 v3.28.0", "v3.20.0 v3.27.5 v3.28.1 v3.29.0"),
            ("nssm/win64/nssm.exe", "v3.25.0 v3.33.0", "v3.24.6"),
            ("nssm-2.24-103-gdee49fc/win64/nssm.exe", "v3.24.3 v3.24.6", "v3.24.2 v3.25.0"),
            ("nssm-2.24/win64/nssm.exe", "v3.20.0 v3.24.2", "v3.24.3"),
        ] {
            for version in with.split(' ') {
                assert!(has(version, path), "{version} has no {path}");
            }
            for version in without.split(' ') {
                assert!(!has(version, path), "{version} has {path}");
            }
        }
    }

    #[test]
    fn a_version_is_the_same_bytes_each_time() {
        let version = CalicoVersion::new(3, 33, 0);
        assert!(SyntheticRelease::build(&version) == SyntheticRelease::build(&version));
        let files = SyntheticRelease::files(&version);
        assert_eq!(files["calico.exe"], files["cni/calico.exe"]);
    }
}
