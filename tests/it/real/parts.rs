//! What `packaging/real/prepare.sh` builds: programs of Kubernetes, and programs of ours that link what Calico, kubelet
//! and kube-proxy link.

use std::path::{Path, PathBuf};

/// A built part; none, with a printed explanation, if it was not built. `CALICOCTL_WIN_REAL=require` makes that a
/// failure.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what they did not")]
pub(crate) fn part(file: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real").join(file);
    if built.is_file() {
        return Some(built);
    }
    assert_ne!(std::env::var("CALICOCTL_WIN_REAL").as_deref(), Ok("require"), "{} is not built", built.display());
    eprintln!("skipped: {file} is not built; packaging/real/prepare.sh builds it");
    None
}
