//! Every rendered document, for review: one snapshot for each version, backend, datastore and runtime. Upstream's own
//! form of each is in section 4 of the reference.

use std::fmt::Write;

use super::agent_config::Command;
use super::samples::{etcd, settings};
use super::services::Role;
use super::{cni, components, config_ps1, kubeconfig, layout, services, static_rules};
use crate::facts::RuntimeKind;
use crate::paths;
use crate::settings::{Backend, Datastore, Settings};
use crate::values::{Secret, WinPath};

const VERSIONS: [&str; 5] = ["v3.20.0", "v3.26.5", "v3.30.3", "v3.32.1", "v3.33.0"];

fn section(page: &mut String, name: &str, text: &str) {
    write!(page, "===== {name}\n{}\n\n", text.trim_end()).unwrap();
}

fn command(command: &Command) -> String {
    let mut text = format!("{} {}\nin {}\n", command.program, command.args.join(" "), command.dir);
    for (name, value) in &command.env {
        writeln!(text, "{name}={value}").unwrap();
    }
    text
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn page(settings: &Settings) -> String {
    let root = &settings.calico.root;
    let kubeconfig = paths::kubeconfig(root);
    let mut page = String::new();
    if settings.network.backend != Backend::None {
        let name = settings.cni.conf_dir.join(&settings.cni.conf_file);
        section(&mut page, name.as_str(), &text(cni::render(settings, Some(&kubeconfig)).unwrap()));
        let layout = layout::Layout::of(&settings.calico.version).unwrap();
        let binaries = layout.cni_binaries().map(|b| format!("{} <- {}", b.name, b.source));
        section(&mut page, settings.cni.bin_dir.as_str(), &binaries.join("\n"));
    }
    let agent = components::agent_config(settings, Some(&kubeconfig)).unwrap();
    for (role, program) in Role::ALL.into_iter().filter_map(|role| Some((role, agent.command(role)?))) {
        let name = if role == Role::Node { "node startup" } else { role.word() };
        section(&mut page, name, &command(program));
    }
    let services: String = services::services(settings).iter().map(|(name, _)| format!("{name}\n")).collect();
    section(&mut page, "services", &services);
    section(&mut page, paths::config_ps1(root).as_str(), &text(config_ps1::render(settings, Some(&kubeconfig))));
    if settings.platform.static_rules {
        section(&mut page, paths::static_rules(root).as_str(), &text(static_rules::render().unwrap()));
    }
    page
}

#[test]
fn every_rendered_file() {
    for version in VERSIONS {
        for backend in [Backend::Vxlan, Backend::WindowsBgp, Backend::None] {
            for (store, datastore) in [("kubernetes", Datastore::Kubernetes), ("etcdv3", etcd())] {
                for (name, runtime) in [("containerd", RuntimeKind::Containerd), ("docker", RuntimeKind::Docker)] {
                    let mut settings = settings(version);
                    settings.network.backend = backend;
                    settings.datastore = datastore.clone();
                    settings.runtime = runtime;
                    if runtime == RuntimeKind::Docker {
                        settings.cni.bin_dir = WinPath::known(r"C:\k\cni");
                        settings.cni.conf_dir = WinPath::known(r"C:\k\cni\config");
                    }
                    // Policy only, as on AKS.
                    if backend == Backend::None {
                        settings.network.kube_network = "azure.*".into();
                        settings.platform.static_rules = true;
                    }
                    let file = format!("{version}-{}-{store}-{name}", backend.name());
                    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                        insta::assert_snapshot!(file, page(&settings));
                    });
                }
            }
        }
    }
}

#[test]
fn the_node_kubeconfig() {
    let credentials = kubeconfig::NodeCredentials {
        server: "https://10.0.0.1:6443".into(),
        ca_pem: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".into(),
        login: kubeconfig::Login::Token(Secret::new("header.claims.signature")),
        expires: None,
    };
    let text = text(kubeconfig::render(&credentials, "calico-system").unwrap());
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("calico-kube-config", text);
    });
}
