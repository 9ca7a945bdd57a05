//! Other products' services that run from the folder that a release is swapped into: upstream's scripts register
//! kubelet and kube-proxy with the NSSM in Calico's folder.

use super::order::all_services;
use super::{Step, Target};
use crate::calico::nssm;
use crate::item::{Id, Manifest, Service, State, Tree};
use crate::values::WinPath;

/// A service whose files the swap moves away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserOfFiles {
    pub service: String,
    /// What it runs in the folder.
    pub path: WinPath,
    /// Whether the new release has that file too, so that stopping the service is enough.
    pub comes_back: bool,
}

/// The folder that these steps move aside, if it existed before us.
pub fn moved_aside(steps: &[Step]) -> Option<&WinPath> {
    steps.iter().find_map(|step| match step {
        Step::Put { id: Id::Tree(root), before: Some(State::Tree(Tree::Foreign)), after: Some(_) } => Some(root),
        _ => None,
    })
}

/// The services that run something in `root`, except those that the target manages. A service that does not run and
/// whose files are not lost does not count.
pub fn users_of_files(
    services: &[(String, Service)],
    runs: impl Fn(&str) -> bool,
    root: &WinPath,
    target: &Target,
    release: &Manifest,
) -> Vec<UserOfFiles> {
    let strangers = services.iter().filter(|(name, _)| !all_services().any(|own| own.eq_ignore_ascii_case(name)));
    let mut users_of_files = Vec::new();
    for (name, service) in strangers {
        for path in paths(service).filter(|path| path.is_below(root)) {
            let below = path.to_string()[root.to_string().len()..].replace('\\', "/");
            let below = below.trim_start_matches('/');
            let comes_back = release.files.keys().any(|file| file.eq_ignore_ascii_case(below))
                || target.world.keys().any(|id| id.path() == Some(&path));
            if !comes_back || runs(name) {
                users_of_files.push(UserOfFiles { service: name.clone(), path, comes_back });
                break;
            }
        }
    }
    // Report a service that must be moved elsewhere before one that only has to be stopped.
    users_of_files.sort_by_key(|user| user.comes_back);
    users_of_files
}

/// The files that a service runs: its program, and under NSSM the wrapped one and its script.
fn paths(service: &Service) -> impl Iterator<Item = WinPath> {
    let program = nssm::split(&service.image_path).map(|(program, _)| program.to_owned());
    let wrapped = nssm::wrapped(service);
    let script = wrapped.as_ref().and_then(|wrapped| {
        let words = wrapped.arguments.split('"').flat_map(str::split_whitespace);
        words.map(str::to_owned).find(|word| word.to_ascii_lowercase().ends_with(".ps1"))
    });
    let texts = [program, wrapped.map(|wrapped| wrapped.application), script];
    texts.into_iter().flatten().filter_map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::testing::nssm;
    use crate::item::{ManifestFile, RegValue};
    use crate::values::Sha256;

    /// kubelet as `install-kube-services.ps1` registers it.
    fn kubelet() -> (String, Service) {
        let mut service = nssm("node");
        let script = RegValue::ExpandString(r"C:\CalicoWindows\kubernetes\kubelet-service.ps1".into());
        service.parameters.insert("AppParameters".into(), script);
        ("kubelet".into(), service)
    }

    fn release(files: &[&str]) -> Manifest {
        let file = ManifestFile { size: 1, sha256: Sha256::of(b"x") };
        let files = files.iter().map(|path| ((*path).to_owned(), file.clone())).collect();
        Manifest { version: "v3.26.5".into(), archive: None, files }
    }

    #[test]
    fn kubelet_in_calicos_folder_is_reported_and_calicos_own_services_are_not() {
        let elsewhere = ("containerd".to_owned(), Service { image_path: r"C:\k\nssm.exe".into(), ..nssm("node") });
        let elsewhere = (elsewhere.0, Service { parameters: Default::default(), ..elsewhere.1 });
        let services = [kubelet(), elsewhere, ("calicoNODE".into(), nssm("node"))];
        let root = WinPath::known(r"c:\calicowindows");
        let tell = |files: &[&str], runs: bool| {
            let found = users_of_files(&services, |_| runs, &root, &Target::default(), &release(files));
            let tell = |t: &UserOfFiles| format!("{} {} comes_back={}", t.service, t.path, t.comes_back);
            found.iter().map(tell).collect::<Vec<_>>().join("; ")
        };
        let (wrapper, script) = ("nssm-2.24/win64/nssm.exe", "Kubernetes/kubelet-service.ps1");
        insta::assert_snapshot!(
            [tell(&[], false), tell(&[wrapper], false), tell(&[wrapper, script], true), tell(&[wrapper, script], false)].join("\n"),
            @r"
        kubelet C:\CalicoWindows\nssm-2.24\win64\nssm.exe comes_back=false
        kubelet C:\CalicoWindows\kubernetes\kubelet-service.ps1 comes_back=false
        kubelet C:\CalicoWindows\nssm-2.24\win64\nssm.exe comes_back=true
        "
        );
    }
}
