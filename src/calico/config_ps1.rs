//! `config.ps1` with the effective values, for the scripts and log collectors that read it. This program does not.

use super::components::{adapter, datastore_type, node_address};
use crate::settings::{Datastore, Ipam, Settings};
use crate::values::{WinPath, joined};

const HEADER: &str = "\
# Written by calicoctl-win for scripts that look for Calico's values in this file.
# calicoctl-win does not read it: an edit here changes nothing and is overwritten.
# Change the configuration with calicoctl-win instead.
";

/// The script. It only assigns variables, with the names in upstream's `config.ps1`. `kubeconfig` is the path of the
/// node's own kubeconfig, if there is one.
pub fn render(settings: &Settings, kubeconfig: Option<&WinPath>) -> Vec<u8> {
    let mut text = String::from(HEADER);
    for (name, value) in values(settings, kubeconfig) {
        text.push_str(&format!("{} = {}\n", variable(&name), literal(&value)));
    }
    // Windows PowerShell 5.1 reads a script without a byte order mark in the system's code page.
    let mark: &[u8] = if text.is_ascii() { b"" } else { "\u{feff}".as_bytes() };
    [mark, text.as_bytes()].concat()
}

fn values(settings: &Settings, kubeconfig: Option<&WinPath>) -> Vec<(String, String)> {
    let network = &settings.network;
    let (endpoints, tls) = match &settings.datastore {
        Datastore::Kubernetes => (String::new(), None),
        Datastore::Etcdv3 { endpoints, tls } => (endpoints.join(","), tls.as_ref()),
    };
    let ipam = match network.ipam {
        Ipam::CalicoIpam => "calico-ipam",
        Ipam::HostLocal => "host-local",
    };
    let kubernetes = &settings.kubernetes;
    let known = [
        ("KUBE_NETWORK", network.kube_network.clone()),
        ("CALICO_NETWORKING_BACKEND", network.backend.name().into()),
        ("K8S_SERVICE_CIDR", joined(&kubernetes.service_cidrs, ",")),
        ("DNS_NAME_SERVERS", joined(&kubernetes.dns_servers, ",")),
        ("DNS_SEARCH", kubernetes.dns_search.join(",")),
        ("CALICO_DATASTORE_TYPE", datastore_type(&settings.datastore).into()),
        ("KUBECONFIG", kubeconfig.map(ToString::to_string).unwrap_or_default()),
        ("ETCD_ENDPOINTS", endpoints),
        ("ETCD_KEY_FILE", tls.map(|tls| tls.key_file.to_string()).unwrap_or_default()),
        ("ETCD_CERT_FILE", tls.map(|tls| tls.cert_file.to_string()).unwrap_or_default()),
        ("ETCD_CA_CERT_FILE", tls.map(|tls| tls.ca_cert_file.to_string()).unwrap_or_default()),
        ("CNI_BIN_DIR", settings.cni.bin_dir.to_string()),
        ("CNI_CONF_DIR", settings.cni.conf_dir.to_string()),
        ("CNI_CONF_FILENAME", settings.cni.conf_file.clone()),
        ("CNI_IPAM_TYPE", ipam.into()),
        ("VXLAN_VNI", network.vni.to_string()),
        ("VXLAN_MAC_PREFIX", network.mac_prefix.to_string()),
        ("VXLAN_ADAPTER", adapter(settings).unwrap_or_default()),
        ("NODENAME", settings.node_name.to_string()),
        ("CALICO_K8S_NODE_REF", settings.node_name.to_string()),
        ("STARTUP_VALID_IP_TIMEOUT", settings.services.valid_ip_timeout.as_secs().to_string()),
        ("IP", node_address(&network.node_address).into()),
        ("CALICO_LOG_DIR", settings.services.log_dir.to_string()),
        ("FELIX_LOGSEVERITYFILE", "none".into()),
        ("FELIX_LOGSEVERITYSYS", "none".into()),
    ];
    // Extra variables of the user override ours here, as they do in the components' environment.
    let extra = &settings.services.extra_env;
    let severity = settings.services.felix_log_severity.iter().map(|it| ("FELIX_LOGSEVERITYSCREEN", it.clone()));
    known
        .into_iter()
        .chain(severity)
        .filter(|(name, _)| !extra.keys().any(|other| other.eq_ignore_ascii_case(name)))
        .map(|(name, value)| (name.to_owned(), value))
        .chain(extra.clone())
        .collect()
}

/// `$env:NAME`, or the form with braces for a name with characters that would end it.
fn variable(name: &str) -> String {
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return format!("$env:{name}");
    }
    let escaped: String =
        name.chars().flat_map(|c| "`{}".contains(c).then_some('`').into_iter().chain(std::iter::once(c))).collect();
    format!("${{env:{escaped}}}")
}

/// A PowerShell string in single quotes, in which nothing is expanded. PowerShell treats the four typographic quotes as
/// single quotes, so each of them is doubled too.
fn literal(text: &str) -> String {
    let quote = |c: char| matches!(c, '\'' | '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}');
    let doubled: String = text.chars().flat_map(|c| std::iter::once(c).chain(quote(c).then_some(c))).collect();
    format!("'{doubled}'")
}

#[cfg(test)]
mod tests {
    use super::super::testing::settings;
    use super::*;

    #[test]
    fn a_literal_expands_nothing_and_escapes_every_quote() {
        for (text, wanted) in [
            ("", "''"),
            (r"C:\it's", r"'C:\it''s'"),
            ("$env:PATH `n \"x\" #", "'$env:PATH `n \"x\" #'"),
            ("a\u{2019}; Remove-Item x", "'a\u{2019}\u{2019}; Remove-Item x'"),
            ("\u{2018}\u{201a}\u{201b}", "'\u{2018}\u{2018}\u{201a}\u{201a}\u{201b}\u{201b}'"),
        ] {
            assert_eq!(literal(text), wanted);
        }
    }

    #[test]
    fn an_odd_variable_name_is_put_in_braces() {
        assert_eq!(variable("FELIX_X1"), "$env:FELIX_X1");
        assert_eq!(variable("ProgramFiles(x86)"), "${env:ProgramFiles(x86)}");
        assert_eq!(variable("a}b`"), "${env:a`}b``}");
    }

    #[test]
    fn the_users_own_variables_replace_ours() {
        let mut settings = settings("v3.30.3");
        settings.services.extra_env = [("ip".into(), "10.1.2.3".into())].into();
        let text = String::from_utf8(render(&settings, None)).unwrap();
        assert!(text.contains("$env:ip = '10.1.2.3'\n") && !text.contains("$env:IP ="), "{text}");
    }

    #[test]
    fn only_a_script_that_is_not_ascii_has_a_byte_order_mark() {
        let mut settings = settings("v3.30.3");
        assert!(render(&settings, None).starts_with(b"# Written"));
        settings.network.adapter = Some("Ethern\u{e9}t".into());
        assert!(render(&settings, None).starts_with(&[0xef, 0xbb, 0xbf]));
    }
}
