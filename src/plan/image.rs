//! What an image has: the parts of a node that are the same on every machine made from it. No file is rendered, since
//! each names the machine or its cluster.

use super::Target;
use super::wanted::Wanted;
use crate::calico::kubernetes;
use crate::calico::services::{self, Role};
use crate::item::{Access, Id, Manifest, Service, StartType, State, Tree, World};
use crate::settings::Backend;
use crate::values::{Sha256, WinPath};

/// The release at `root`, this program, kubelet and kube-proxy if there are `programs`, and the services, which are
/// disabled: Windows starts none of them before the machine has a config.
pub fn target(root: &WinPath, release: &Manifest, executable: &Sha256, programs: &[(Role, Sha256)]) -> Target {
    let mut wanted = Wanted { root, world: World::new(), blobs: Vec::new() };
    wanted.add(Id::Tree(root.clone()), State::Tree(Tree::Release(release.digest())));
    wanted.folders_above(root);
    wanted.digest(Id::File(WinPath::known(services::EXECUTABLE)), executable.clone(), Access::Inherited);
    for (role, sha256) in programs {
        wanted.digest(Id::File(kubernetes::program_path(*role)), sha256.clone(), Access::Inherited);
    }
    // Every backend has these.
    let of_calico = services::services(Backend::None).into_iter();
    let of_kubernetes = programs.iter().map(|(role, _)| (role.service(), kubernetes::service(*role)));
    for (name, service) in of_calico.chain(of_kubernetes) {
        let disabled = Service { start: StartType::Disabled, ..service };
        wanted.add(Id::Service(name.into()), State::Service(Box::new(disabled)));
    }
    Target { world: wanted.world, ..Target::default() }
}
