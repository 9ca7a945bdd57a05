//! Every rendered document, for review: one snapshot for each backend, with the newest version, and one with the lines
//! that are different with another version, datastore or runtime. Upstream's own form of each is in section 4 of the
//! reference.

use std::fmt::Write;

use super::agent_config::Command;
use super::services::Role;
use super::testing::{etcd, settings};
use super::{cni, components, config_ps1, kubeconfig, layout, services, static_rules};
use crate::facts::RuntimeKind;
use crate::paths;
use crate::settings::{Backend, Settings};
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
    for (role, program) in Role::CALICO.into_iter().filter_map(|role| Some((role, agent.command(role)?))) {
        let name = if role == Role::Node { "node startup" } else { role.word() };
        section(&mut page, name, &command(program));
    }
    let services: String =
        services::services(settings.network.backend).iter().map(|(name, _)| format!("{name}\n")).collect();
    section(&mut page, "services", &services);
    section(&mut page, paths::config_ps1(root).as_str(), &text(config_ps1::render(settings, Some(&kubeconfig))));
    if let Some(rules) = static_rules::of(&settings.platform.static_rules) {
        section(&mut page, paths::static_rules(root).as_str(), &rules);
    }
    page
}

/// One of the combinations that a document depends on.
#[derive(Clone, Copy)]
struct Case {
    version: usize,
    backend: Backend,
    etcd: bool,
    docker: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let backends = [Backend::Vxlan, Backend::WindowsBgp, Backend::None];
        let rest = [(false, false), (false, true), (true, false), (true, true)];
        backends.into_iter().flat_map(move |backend| {
            let versions = (0..VERSIONS.len()).rev();
            versions.flat_map(move |version| {
                rest.into_iter().map(move |(etcd, docker)| Self { version, backend, etcd, docker })
            })
        })
    }

    /// The combination that differs in one thing and that this one is compared with; none for the newest version with
    /// the Kubernetes datastore and containerd.
    fn base(self) -> Option<Self> {
        match self {
            Self { docker: true, .. } => Some(Self { docker: false, ..self }),
            Self { etcd: true, .. } => Some(Self { etcd: false, ..self }),
            Self { version, .. } => (version + 1 < VERSIONS.len()).then_some(Self { version: version + 1, ..self }),
        }
    }

    fn name(self) -> String {
        let store = if self.etcd { "etcdv3" } else { "kubernetes" };
        let runtime = if self.docker { "docker" } else { "containerd" };
        format!("{}-{}-{store}-{runtime}", VERSIONS[self.version], self.backend.name())
    }

    fn page(self) -> String {
        let mut settings = settings(VERSIONS[self.version]);
        settings.network.backend = self.backend;
        if self.etcd {
            settings.datastore = etcd();
        }
        if self.docker {
            settings.runtime = RuntimeKind::Docker;
            settings.cni.bin_dir = WinPath::known(r"C:\k\cni");
            settings.cni.conf_dir = WinPath::known(r"C:\k\cni\config");
        }
        // Policy only, as on AKS.
        if self.backend == Backend::None {
            settings.network.kube_network = "azure.*".into();
            settings.platform.static_rules = crate::settings::StaticRules::Aks;
        }
        page(&settings)
    }
}

/// The lines that differ, each with its place: base and difference together are the text.
fn difference(base: &str, text: &str) -> String {
    similar::TextDiff::from_lines(base, text).unified_diff().context_radius(0).to_string()
}

#[test]
fn every_rendered_file() {
    let mut shown: Vec<(String, String)> = Vec::new();
    let mut differences = String::new();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        for case in Case::all() {
            let Some(base) = case.base() else {
                insta::assert_snapshot!(case.name(), case.page());
                continue;
            };
            let found = difference(&base.page(), &case.page());
            let (name, base) = (case.name(), base.name());
            match shown.iter().find(|(_, other)| *other == found) {
                _ if found.is_empty() => writeln!(differences, "===== {name}: like {base}").unwrap(),
                Some((other, _)) => writeln!(differences, "===== {name}: from {base} as in {other}").unwrap(),
                None => {
                    writeln!(differences, "===== {name}: from {base}\n{found}").unwrap();
                    shown.push((name, found));
                }
            }
        }
        insta::assert_snapshot!("differences", differences);
    });
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
