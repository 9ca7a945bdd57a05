//! Invalid configs: file, line, column, field, what is allowed, and a suggestion.

use super::{CONFIG, Case, case, screens};
use crate::lab::Lab;

/// A description, and the document's fields below `spec:`.
const SPECS: [(&str, &str); 28] = [
    ("VNI too low", "calicoNetwork: {vxlan: {vxlanVNI: 4095}}"),
    ("VNI of the bootstrap network", "calicoNetwork: {vxlan: {vxlanVNI: 9999}}"),
    ("VNI too high", "calicoNetwork: {vxlan: {vxlanVNI: 65536}}"),
    ("VNI in words", "calicoNetwork: {vxlan: {vxlanVNI: many}}"),
    ("vxlan with host-local", "calicoNetwork: {backend: vxlan, ipam: {type: host-local}}"),
    ("unknown backend", "calicoNetwork: {backend: vxlam}"),
    ("no CIDR", "kubernetes: {serviceCIDRs: [10.96.0.0/33]}"),
    ("an address for a CIDR", "kubernetes: {serviceCIDRs: [10.96.0.1/12]}"),
    ("IPv6 CIDR", "kubernetes: {serviceCIDRs: ['fd00::/108']}"),
    ("DNS server by name", "kubernetes: {dns: {servers: [dns.example.com]}}"),
    ("IPv6 DNS server", "kubernetes: {dns: {servers: ['fd00::a']}}"),
    ("IPv6 node address", "calicoNetwork: {nodeAddress: 'fd00::1'}"),
    ("placeholder", "kubernetes: {serviceCIDRs: ['<your service cidr>']}"),
    ("bad expression", "calicoNetwork: {kubeNetwork: 'Calico(.*'}"),
    ("bad node name", "kubernetes: {nodeName: WIN_A1}"),
    ("bad MAC prefix", "calicoNetwork: {vxlan: {vxlanMACPrefix: 0E2A}}"),
    (
        "half of the etcd TLS files",
        "datastore: {type: etcdv3, etcd: {endpoints: ['https://e:2379'], keyFile: 'C:\\k', certFile: 'C:\\c'}}",
    ),
    (
        "etcd with https and nothing else",
        "datastore: {type: etcdv3, etcd: {endpoints: ['http://a:2379', 'https://e:2379']}}",
    ),
    ("etcd without endpoints", "datastore: {type: etcdv3}"),
    ("misspelled field", "calicoNetwork: {vxlan: {vxlanVNl: 4096}}"),
    ("unknown section", "network: {}"),
    ("wrong type", "calicoNetwork: vxlan"),
    ("list for one value", "calico: {version: [v3.32.1]}"),
    ("no version", "calico: {version: latest}"),
    ("no duration", "transport: {timeout: 60}"),
    ("no path", "calico: {rootDir: CalicoWindows}"),
    ("bad digest", "calico: {source: {sha256: abc}}"),
    ("two at once", "calicoNetwork: {vxlan: {vxlanVNI: 1}}\n  kubernetes: {dns: {servers: [x]}}"),
];

const WRONG: Case = case("", "install -y -c site.yaml", CONFIG, "ConfigInvalid");

#[test]
fn every_invalid_value_is_named_with_its_position_and_what_is_allowed() {
    let mut seen = String::new();
    for (name, spec) in SPECS {
        let site = format!("apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec:\n  {spec}\n");
        let screen = screens(&[Case { name, ..WRONG }], |lab| {
            lab.write("site.yaml", &site);
        });
        // The rest is the same for all of them.
        let causes = screen.lines().filter_map(|line| line.trim_start().strip_prefix("cause: "));
        seen += &format!("{name}\n  {}\n", causes.collect::<Vec<_>>().join("\n  "));
        assert!(screen.contains("error: the config is not valid\n"), "{screen}");
    }
    insta::assert_snapshot!(seen, @r#"
    VNI too low
      site.yaml:4:37: spec.calicoNetwork.vxlan.vxlanVNI: 4095 is out of range: Windows supports VNIs from 4096 to 65535 except 9999
    VNI of the bootstrap network
      site.yaml:4:37: spec.calicoNetwork.vxlan.vxlanVNI: 9999 is the VSID of the bootstrap network External; choose another VNI from 4096 to 65535
    VNI too high
      site.yaml:4:37: spec.calicoNetwork.vxlan.vxlanVNI: 65536 is out of range: Windows supports VNIs from 4096 to 65535 except 9999
    VNI in words
      site.yaml:4:37: spec.calicoNetwork.vxlan.vxlanVNI: expected a whole number from 4096 to 65535, found the text `many`
    vxlan with host-local
      site.yaml:4:48: spec.calicoNetwork.ipam.type: the backend vxlan needs calico-ipam: with host-local other nodes have no routes to this node's pods
    unknown backend
      site.yaml:4:28: spec.calicoNetwork.backend: `vxlam` is not allowed; did you mean `vxlan`? allowed: auto, vxlan, windows-bgp, none
    no CIDR
      site.yaml:4:31: spec.kubernetes.serviceCIDRs: `10.96.0.0/33` is not a CIDR like 10.96.0.0/12
    an address for a CIDR
      site.yaml:4:30: spec.kubernetes.serviceCIDRs: `10.96.0.1/12` is an address within a network; write 10.96.0.0/12
    IPv6 CIDR
      site.yaml:4:31: spec.kubernetes.serviceCIDRs: `fd00::/108` is IPv6, which Calico does not support on Windows; give an IPv4 CIDR like 10.96.0.0/12
    DNS server by name
      site.yaml:4:32: spec.kubernetes.dns.servers: `dns.example.com` is not an IPv4 address like 10.96.0.10
    IPv6 DNS server
      site.yaml:4:32: spec.kubernetes.dns.servers: `fd00::a` is IPv6, which Calico does not support on Windows; give an IPv4 address like 10.96.0.10
    IPv6 node address
      site.yaml:4:32: spec.calicoNetwork.nodeAddress: `fd00::1` is IPv6, which Calico does not support on Windows; give an IPv4 address, `autodetect` or `none`
    placeholder
      site.yaml:4:31: spec.kubernetes.serviceCIDRs: `<your service cidr>` is a placeholder; write the real value
    bad expression
      site.yaml:4:32: spec.calicoNetwork.kubeNetwork: `Calico(.*` is not a regular expression: unclosed group
    bad node name
      site.yaml:4:26: spec.kubernetes.nodeName: `WIN_A1` is not a node name: lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit, 253 characters at most
    bad MAC prefix
      site.yaml:4:43: spec.calicoNetwork.vxlan.vxlanMACPrefix: `0E2A` is not a MAC prefix: write two hexadecimal octets, for example 0E-2A
    half of the etcd TLS files
      site.yaml:4:76: spec.datastore.etcd.keyFile: etcd needs all of its TLS files or none; caCertFile missing
    etcd with https and nothing else
      site.yaml:4:47: spec.datastore.etcd.endpoints: https://e:2379 needs keyFile, certFile and caCertFile, or tlsSecretRef with a secret that has them
    etcd without endpoints
      site.yaml:4:21: spec.datastore.etcd.endpoints: the datastore etcdv3 requires endpoints, for example [https://etcd-0:2379]
    misspelled field
      site.yaml:4:27: spec.calicoNetwork.vxlan.vxlanVNl: unknown field; did you mean `vxlanVNI`? allowed: vxlanVNI, vxlanMACPrefix, vxlanAdapter
    unknown section
      site.yaml:4:3: spec.network: unknown field; allowed: calico, kubernetesProvider, kubernetes, calicoNetwork, datastore, windowsNodes, services, platform, transport, maintenance, reboot, preflight
    wrong type
      site.yaml:4:18: spec.calicoNetwork: expected a section with fields, found text; fields: backend, kubeNetwork, nodeAddress, ipam, vxlan, windowsUseSingleNetwork, windowsLoopbackDSR, cniConfigOverrides
    list for one value
      site.yaml:4:21: spec.calico.version: expected text, found a list
    no version
      site.yaml:4:21: spec.calico.version: `latest` is not a Calico version like v3.32.1
    no duration
      site.yaml:4:24: spec.transport.timeout: `60` is not a duration: write a number with its unit, for example 90s, 10m or 1h30m; 0 for none
    no path
      site.yaml:4:21: spec.calico.rootDir: `CalicoWindows` is not an absolute Windows path like C:\CalicoWindows
    bad digest
      site.yaml:4:29: spec.calico.source.sha256: `abc` is not a SHA-256: 64 hexadecimal digits
    two at once
      site.yaml:4:37: spec.calicoNetwork.vxlan.vxlanVNI: 1 is out of range: Windows supports VNIs from 4096 to 65535 except 9999
      site.yaml:5:32: spec.kubernetes.dns.servers: `x` is not an IPv4 address like 10.96.0.10
    "#);
}

#[test]
fn a_file_that_is_not_a_config_is_refused() {
    let documents = [
        ("no YAML", "spec: [\n"),
        ("a list", "- spec\n"),
        ("duplicate key", "spec:\n  calico: {}\n  calico: {}\n"),
        ("another kind", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"),
        ("another version", "apiVersion: calicoctl-win/v9\nkind: NodeInstallation\n"),
    ];
    let mut seen = String::new();
    for (name, text) in documents {
        seen += &screens(&[Case { name, ..WRONG }], |lab| {
            lab.write("site.yaml", text);
        });
    }
    insta::assert_snapshot!(seen, @r#"
    no YAML
      error: the config is not valid
        cause: site.yaml:1:7: unclosed bracket '['
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    a list
      error: the config is not valid
        cause: site.yaml:1:1: expected a section with fields, found a list; fields: apiVersion, kind, metadata, spec
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    duplicate key
      error: the config is not valid
        cause: site.yaml:3:3: duplicate field calico
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    another kind
      error: the config is not valid
        cause: site.yaml:1:13: apiVersion: `v1` is not known to this version, which reads `calicoctl-win/v1alpha1`
        cause: site.yaml:2:7: kind: `Pod` is not known to this version, which reads `NodeInstallation`
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    another version
      error: the config is not valid
        cause: site.yaml:1:13: apiVersion: `calicoctl-win/v9` is not known to this version, which reads `calicoctl-win/v1alpha1`
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    "#);
}

/// A file's name has at most 255 characters.
const TOO_LONG: &str = concat!(
    "install -y -c ",
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
);

#[test]
fn a_config_that_cannot_be_read_is_named() {
    let cases = [
        case("not there", "install -y -c nowhere.yaml", CONFIG, "ConfigUnreadable"),
        case("a folder", "install -y -c tmp", CONFIG, "ConfigUnreadable"),
        case("too long", TOO_LONG, CONFIG, "ConfigUnreadable"),
        case("no file", "install -y -c spec:{calico:{}}", CONFIG, "ConfigUnreadable"),
        case("empty", "install -y -c empty.yaml", CONFIG, "ConfigUnreadable"),
        case("empty stdin", "install -y -c -", CONFIG, "ConfigUnreadable"),
        case(
            "unknown adapter",
            "install -y --set calicoNetwork.vxlan.vxlanAdapter=Wifi",
            super::PREFLIGHT,
            "VxlanAdapter",
        ),
        case("misspelt path", "install -y --set calicoNetwork.backnd=vxlan", CONFIG, "ConfigInvalid"),
    ];
    let arrange = |lab: &Lab| {
        lab.write("empty.yaml", "\n");
    };
    insta::assert_snapshot!(screens(&cases, arrange), @r#"
    not there
      error: cannot read the config nowhere.yaml
        cause: (the system's own words)
        state: nothing was changed
        fix: give its path with -c, or make one with: calicoctl-win config init node.yaml
    a folder
      error: cannot read the config tmp
        cause: (the system's own words)
        state: nothing was changed
        fix: give its path with -c, or make one with: calicoctl-win config init node.yaml
    too long
      error: cannot read the config nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…
        cause: (the system's own words)
        state: nothing was changed
        fix: give its path with -c, or make one with: calicoctl-win config init node.yaml
    no file
      error: cannot read the config spec:{calico:{}}
        cause: (the system's own words)
        state: nothing was changed
        fix: -c takes the path of a file: write the config to one, pipe it to -c -, or give single values with --set PATH=VALUE
    empty
      error: the config empty.yaml is empty
        state: nothing was changed
        fix: give its path with -c, or make one with: calicoctl-win config init node.yaml
    empty stdin
      error: the config stdin is empty
        state: nothing was changed
        fix: give its path with -c, or make one with: calicoctl-win config init node.yaml
    unknown adapter
      error: there is no adapter `Wifi`; there are: Ethernet
        state: nothing was changed
        fix: set spec.calicoNetwork.vxlan.vxlanAdapter to one of this machine's adapters, or leave it empty
    misspelt path
      error: the config is not valid
        cause: --set: spec.calicoNetwork.backnd: unknown field; did you mean `backend`? allowed: backend, kubeNetwork, nodeAddress, ipam, vxlan, windowsUseSingleNetwork, windowsLoopbackDSR, cniConfigOverrides
        state: nothing was changed
        fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
    "#);
}
