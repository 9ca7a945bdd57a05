//! What a Calico for Windows release contains, by version: the node binary, the CNI plugins, and the files that are needed
//! to run it.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;

use crate::fault::{Exit, Fault};
use crate::version::CalicoVersion;

/// The folder at the top of every release archive.
pub const TOP: &str = "CalicoWindows";

/// The versions whose layout and command lines are known, for messages.
pub const SUPPORTED: &str = "v3.20.0 to v3.33.x";

/// What confd runs with; the same in every version.
const CONFD_FILES: [&str; 6] = [
    "confd/config-bgp.ps1",
    "confd/config-bgp.psm1",
    "confd/conf.d/blocks.toml",
    "confd/conf.d/peerings.toml",
    "confd/templates/blocks.ps1.template",
    "confd/templates/peerings.ps1.template",
];

/// How a release is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// One `calico-node.exe` with Go flags, and two CNI plugins (up to v3.32).
    NodeBinary,
    /// One `calico.exe` that is node, CNI plugin and IPAM plugin, by sub-command or by the name it
    /// is started under (from v3.33).
    Monobinary,
}

impl Build {
    /// Guesses from the paths of an archive (below the top folder) how it was built; none if it has neither binary.
    pub fn guess<'a>(paths: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        paths.into_iter().find_map(|path| match key(path).as_str() {
            "calico-node.exe" => Some(Self::NodeBinary),
            "calico.exe" => Some(Self::Monobinary),
            _ => None,
        })
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeBinary => "v3.32 or earlier",
            Self::Monobinary => "v3.33 or later",
        })
    }
}

/// A CNI binary to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CniBinary {
    /// Its path below the release's root, with `/`.
    pub source: &'static str,
    /// Its name in CNI_BIN_DIR.
    pub name: &'static str,
}

/// The layout of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    version: CalicoVersion,
    build: Build,
}

impl Layout {
    /// The layout of a version.
    ///
    /// # Errors
    /// [`Exit::Unsupported`] outside of [`SUPPORTED`]: an unknown version is not installed.
    pub fn of(version: &CalicoVersion) -> Result<Self> {
        if !version.reaches(3, 20, 0) || version.reaches(3, 34, 0) {
            return Err(Fault::new(
                Exit::Unsupported,
                "CalicoVersionUnsupported",
                format!("Calico {version} is not supported: this program knows {SUPPORTED}"),
            )
            .hint("choose a supported release, or a newer version of this program")
            .into());
        }
        Ok(Self::by_number(version))
    }

    /// The layout that a version has by its number, supported or not.
    pub fn by_number(version: &CalicoVersion) -> Self {
        let build = if version.reaches(3, 33, 0) { Build::Monobinary } else { Build::NodeBinary };
        Self { version: version.clone(), build }
    }

    pub const fn version(&self) -> &CalicoVersion {
        &self.version
    }

    pub const fn build(&self) -> Build {
        self.build
    }

    /// The file that runs node startup, Felix and confd, below the root.
    pub const fn node_binary(&self) -> &'static str {
        match self.build {
            Build::NodeBinary => "calico-node.exe",
            Build::Monobinary => "calico.exe",
        }
    }

    /// The arguments with which [`Self::node_binary`] prints its version.
    pub const fn version_words(&self) -> &'static [&'static str] {
        match self.build {
            Build::NodeBinary => &["-v"],
            Build::Monobinary => &["version"],
        }
    }

    /// What goes into CNI_BIN_DIR. From v3.33 on the IPAM plugin is the same file under another name.
    pub const fn cni_binaries(&self) -> [CniBinary; 2] {
        let ipam = match self.build {
            Build::NodeBinary => "cni/calico-ipam.exe",
            Build::Monobinary => "cni/calico.exe",
        };
        [
            CniBinary { source: "cni/calico.exe", name: "calico.exe" },
            CniBinary { source: ipam, name: "calico-ipam.exe" },
        ]
    }

    /// The CNI specification version that the release's own template names. 1.0.0 came with v3.31.7,
    /// the release after v3.32.1, and v3.33.
    pub fn cni_version(&self) -> &'static str {
        let v = &self.version;
        let new = if v.is_line(3, 31) { v.reaches(3, 31, 7) } else { v.reaches(3, 32, 2) };
        if new { "1.0.0" } else { "0.3.1" }
    }

    /// Whether the CNI plugin knows `windows_loopback_DSR` (v3.22.1).
    pub fn knows_loopback_dsr(&self) -> bool {
        self.version.reaches(3, 22, 1)
    }

    /// Whether components and CNI plugin know that Calico's resources may be in the group
    /// `projectcalico.org` (v3.32).
    pub fn knows_api_group(&self) -> bool {
        self.version.reaches(3, 32, 0)
    }

    /// Whether node startup needs a command to mark the node's network available (v3.31).
    pub fn has_complete_startup(&self) -> bool {
        self.version.reaches(3, 31, 0)
    }

    /// The files that are required, below the root. Scripts, NSSM and the rest of upstream's package are not, so a
    /// mirror may leave them out.
    pub fn required(&self) -> impl Iterator<Item = &'static str> {
        let mut binaries = vec![self.node_binary()];
        binaries.extend(self.cni_binaries().map(|binary| binary.source));
        binaries.dedup();
        binaries.into_iter().chain(CONFD_FILES)
    }

    /// Whether all files of a release are there (paths below the top folder, with `/` or `\`); otherwise the missing
    /// ones. Names compare without case, as on Windows.
    pub fn check<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Result<(), Vec<String>> {
        let there: BTreeSet<String> = paths.into_iter().map(key).collect();
        let missing: Vec<String> = self.required().filter(|path| !there.contains(*path)).map(str::to_owned).collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// The error for a release with missing files; says which version it looks like.
    pub fn refusal(&self, missing: &[String], looks_like: Option<Build>) -> Fault {
        let what = format!("this is not a Calico {} release: it lacks {}", self.version, missing.join(", "));
        let fault = Fault::new(Exit::ReleaseInvalid, "ReleaseLayout", what);
        match looks_like {
            Some(build) if build != self.build => {
                fault.hint(format!("it looks like {build}; give the version that it really is"))
            }
            _ => fault.hint(format!("use calico-windows-{}.zip as Calico publishes it", self.version)),
        }
    }
}

fn key(path: &str) -> String {
    path.replace('\\', "/").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(version: &str) -> Layout {
        Layout::of(&version.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_layout_changes_with_the_releases() {
        let row = |version: &str| {
            let l = layout(version);
            let [_, ipam] = l.cni_binaries();
            format!(
                "{version} {} ipam={} cni={} dsr={} complete={} group={}",
                l.node_binary(),
                ipam.source,
                l.cni_version(),
                l.knows_loopback_dsr(),
                l.has_complete_startup(),
                l.knows_api_group()
            )
        };
        let versions = [
            "v3.20.0",
            "v3.22.0",
            "v3.22.1",
            "v3.30.7",
            "v3.31.0",
            "v3.31.6",
            "v3.31.7",
            "v3.32.0-rc1",
            "v3.32.1",
            "v3.32.2",
            "v3.33.0-0.dev",
            "v3.33.4",
        ];
        insta::assert_snapshot!(versions.map(row).join("\n"), @r"
        v3.20.0 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=false complete=false group=false
        v3.22.0 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=false complete=false group=false
        v3.22.1 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=true complete=false group=false
        v3.30.7 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=true complete=false group=false
        v3.31.0 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=true complete=true group=false
        v3.31.6 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=true complete=true group=false
        v3.31.7 calico-node.exe ipam=cni/calico-ipam.exe cni=1.0.0 dsr=true complete=true group=false
        v3.32.0-rc1 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=true complete=true group=true
        v3.32.1 calico-node.exe ipam=cni/calico-ipam.exe cni=0.3.1 dsr=true complete=true group=true
        v3.32.2 calico-node.exe ipam=cni/calico-ipam.exe cni=1.0.0 dsr=true complete=true group=true
        v3.33.0-0.dev calico.exe ipam=cni/calico.exe cni=1.0.0 dsr=true complete=true group=true
        v3.33.4 calico.exe ipam=cni/calico.exe cni=1.0.0 dsr=true complete=true group=true
        ");
    }

    #[test]
    fn an_unknown_version_is_refused_with_the_range() {
        for version in ["v3.19.4", "v2.6.0", "v3.34.0", "v3.34.0-0.dev", "v4.0.0"] {
            let error = Layout::of(&version.parse().unwrap()).unwrap_err();
            let fault = Fault::of(&error).unwrap();
            assert_eq!((fault.exit, fault.id), (Exit::Unsupported, "CalicoVersionUnsupported"), "{version}");
            assert!(fault.what.contains("v3.20.0 to v3.33.x"), "{}", fault.what);
        }
    }

    #[test]
    fn a_release_of_another_build_is_recognized() {
        let new = layout("v3.33.0");
        let mut files: Vec<&str> = new.required().chain(["nssm-2.24/win64/nssm.exe", "README.txt"]).collect();
        assert_eq!(new.check(files.iter().copied()), Ok(()));

        let old = layout("v3.32.1");
        let missing = old.check(files.iter().copied()).unwrap_err();
        assert_eq!(missing, ["calico-node.exe", "cni/calico-ipam.exe"]);
        let fault = old.refusal(&missing, Build::guess(files.iter().copied()));
        insta::assert_snapshot!(
            format!("{}\n{}", fault.what, fault.hint.unwrap()), @r"
        this is not a Calico v3.32.1 release: it lacks calico-node.exe, cni/calico-ipam.exe
        it looks like v3.33 or later; give the version that it really is
        ");

        files.retain(|path| *path != "calico.exe");
        assert_eq!(Build::guess(files.iter().copied()), None);
        assert_eq!(new.check(files), Err(vec!["calico.exe".to_owned()]));
    }

    #[test]
    fn names_compare_as_windows_compares_them() {
        let old = layout("v3.30.3");
        let files: Vec<String> = old.required().map(|path| path.replace('/', "\\").to_uppercase()).collect();
        assert_eq!(old.check(files.iter().map(String::as_str)), Ok(()));
    }
}
