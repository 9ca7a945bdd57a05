//! What an image has: the parts of a node that are the same on every machine made from it. No file is rendered, since
//! each names the machine or its cluster.

use super::Target;
use super::kubernetes::KubernetesFiles;
use super::wanted::Wanted;
use crate::calico::{self, services};
use crate::item::{Access, Id, Manifest, Service, StartType, State, Tree, World};
use crate::paths::containerd;
use crate::settings::Backend;
use crate::values::{Sha256, WinPath};

/// The release at `root`, this program, kubelet, kube-proxy and containerd as far as they are in `kubernetes`, and the
/// services, which are disabled: Windows starts none of them before the machine has a config.
pub fn target(root: &WinPath, release: &Manifest, executable: &Sha256, kubernetes: Option<&KubernetesFiles>) -> Target {
    let (programs, runtime) = kubernetes.map_or((&[][..], &[][..]), |files| (&files.programs, &files.containerd));
    let mut wanted = Wanted { root, world: World::new(), blobs: Vec::new() };
    wanted.add(Id::Tree(root.clone()), State::Tree(Tree::Release(release.digest())));
    wanted.folders_above(root);
    wanted.digest(Id::File(WinPath::known(services::EXECUTABLE)), executable.clone(), Access::Inherited);
    for (role, sha256) in programs {
        wanted.digest(Id::File(calico::kubernetes::program_path(*role)), sha256.clone(), Access::Inherited);
    }
    for (name, sha256) in runtime {
        wanted.digest(Id::File(containerd::path(name)), sha256.clone(), Access::Inherited);
    }
    // Every backend has these.
    let of_calico = services::services(Backend::None).into_iter();
    let of_kubernetes = programs.iter().map(|(role, _)| (role.service(), calico::kubernetes::service(*role)));
    let of_containerd = runtime.first().map(|_| (containerd::NAME, calico::containerd::service()));
    for (name, service) in of_calico.chain(of_kubernetes).chain(of_containerd) {
        let disabled = Service { start: StartType::Disabled, ..service };
        wanted.add(Id::Service(name.into()), State::Service(Box::new(disabled)));
    }
    Target { world: wanted.world, ..Target::default() }
}
