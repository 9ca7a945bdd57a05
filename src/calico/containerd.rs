//! containerd, if this program installs it: its files, its configuration and its service, as containerd's own guide
//! (docs/getting-started.md) and `containerd --register-service` make them.

use crate::calico::services::MARK;
use crate::item::{Service, StartType};
use crate::paths::containerd::{PROGRAMS, path};
use crate::settings::Cni;

/// containerd 2 also reads version 2 of the file (docs/containerd-2.0.md). Everything else is its default.
pub fn config(sandbox_image: &str, cni: &Cni) -> String {
    // A text in single quotes has no escapes.
    let Cni { bin_dir, conf_dir, .. } = cni;
    format!(
        "version = 2\n\
         \n\
         [plugins.'io.containerd.grpc.v1.cri']\n\
         sandbox_image = '{sandbox_image}'\n\
         \n\
         [plugins.'io.containerd.grpc.v1.cri'.cni]\n\
         bin_dir = '{bin_dir}'\n\
         conf_dir = '{conf_dir}'\n"
    )
}

/// As `containerd --register-service` makes it (cmd/containerd/command/service_windows.go), with our mark.
pub fn service() -> Service {
    Service {
        display_name: "Containerd".into(),
        description: format!("Container runtime{MARK}"),
        image_path: format!("\"{}\" --run-service", path(PROGRAMS[0])),
        account: "LocalSystem".into(),
        start: StartType::Auto,
        depends_on: Vec::new(),
        restart_after: vec![15, 15],
        recovery: None,
        parameters: Default::default(),
    }
}
