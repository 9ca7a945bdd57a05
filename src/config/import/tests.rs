//! What people have in a `config.ps1`, and what comes of it.

use super::*;
use crate::calico::samples;
use crate::config::{Document, load};
use crate::facts::Facts;
use crate::settings::{Backend, Settings, resolve};

const ASSIGNMENTS: &str = include_str!("../../../tests/fixtures/config-ps1/assignments.ps1");
const SET_IF_ABSENT: &str = include_str!("../../../tests/fixtures/config-ps1/set-if-absent.ps1");
const HOSTPROCESS: &str = include_str!("../../../tests/fixtures/config-ps1/hostprocess.ps1");

fn read(script: &str) -> Imported {
    import(script, &Source::file("config.ps1")).unwrap()
}

/// The document, which must be one that this program takes.
#[track_caller]
fn text(imported: &Imported) -> String {
    let text = imported.text("config.ps1");
    if imported.unread.is_empty() {
        load(&[Document { name: "imported".into(), text: text.clone() }], &[]).unwrap();
    }
    text
}

/// Only what is set and what could not be, of a script of a few lines.
fn short(script: &str) -> String {
    let imported = read(script);
    let value = |path: &str| path.split('.').fold(&imported.document, |here, part| &here[part]).to_string();
    let mut lines: Vec<String> = imported.from.iter().map(|(path, _)| format!("{path} = {}", value(path))).collect();
    let remarks = |word: &str, remarks: &[Remark]| remarks.iter().map(|r| format!("{word} {r}")).collect::<Vec<_>>();
    lines.extend(remarks("note", &imported.notes));
    lines.extend(remarks("unread", &imported.unread));
    lines.join("\n")
}

#[test]
fn plain_assignments_as_in_v3_20_to_v3_22() {
    insta::assert_snapshot!(text(&read(ASSIGNMENTS)), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # Not in it: which release. Set spec.calico.version, or use --release.
    #
    # To know:
    # - line 17: KUBECONFIG has no effect: the node gets a kubeconfig of its own in the same place
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      kubernetes:
        nodeName: auto
        serviceCIDRs:
        - 10.96.0.0/12
        dns:
          servers:
          - "10.96.0.10"
          - "10.96.0.11"
          search:
          - svc.cluster.local
      calicoNetwork:
        backend: windows-bgp
        kubeNetwork: Calico.*
        nodeAddress: autodetect
        ipam:
          type: calico-ipam
        vxlan:
          vxlanVNI: 4096
          vxlanMACPrefix: 0E-2A
      datastore:
        type: etcdv3
        etcd:
          endpoints:
          - https://etcd-0:2379
          - https://etcd-1:2379
          keyFile: C:\CalicoWindows\etcd-tls\server.key
          certFile: C:\CalicoWindows\etcd-tls\server.crt
          caCertFile: C:\CalicoWindows\etcd-tls\ca.crt
      windowsNodes:
        cniBinDir: auto
        cniConfigDir: auto
        cniConfigFile: 10-calico.conf
      services:
        startupValidIPTimeout: 90s
        logDir: C:\CalicoWindows\logs
    "#);
    // v3.20 came with Windows' line ends.
    assert_eq!(read(&ASSIGNMENTS.replace('\n', "\r\n")).document, read(ASSIGNMENTS).document);
}

#[test]
fn set_if_absent_as_in_v3_23_to_v3_33() {
    insta::assert_snapshot!(text(&read(SET_IF_ABSENT)), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # Not in it: which release. Set spec.calico.version, or use --release.
    #
    # To know:
    # - line 14: KUBECONFIG has no effect: the node gets a kubeconfig of its own in the same place
    # - line 35: VXLAN_MAC_PREFIX is set already, by line 34: this line has no effect
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      kubernetes:
        nodeName: auto
        serviceCIDRs:
        - 10.100.0.0/16
        dns:
          servers:
          - "10.100.0.10"
          search:
          - svc.cluster.local
      calicoNetwork:
        backend: vxlan
        kubeNetwork: Calico.*
        nodeAddress: autodetect
        ipam:
          type: calico-ipam
        vxlan:
          vxlanVNI: 5000
          vxlanMACPrefix: 0E-2A
          vxlanAdapter: Ethernet 2
      datastore:
        type: kubernetes
      windowsNodes:
        cniBinDir: auto
        cniConfigDir: auto
        cniConfigFile: 10-calico.conf
      services:
        startupValidIPTimeout: 90s
        logDir: C:\CalicoWindows\logs
    "#);
}

#[test]
fn what_hostprocess_containers_have_as_in_v3_27_and_later() {
    insta::assert_snapshot!(text(&read(HOSTPROCESS)), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # Not in it: which release. Set spec.calico.version, or use --release.
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      kubernetes:
        nodeName: auto
        dns:
          search:
          - svc.cluster.local
      calicoNetwork:
        backend: vxlan
        kubeNetwork: Calico.*
        nodeAddress: autodetect
        vxlan:
          vxlanVNI: 4096
          vxlanMACPrefix: 0E-2A
      services:
        startupValidIPTimeout: 90s
    "#);
}

#[test]
fn strings_are_taken_as_powershell_takes_them() {
    insta::assert_snapshot!(short(
        "$env:A = \"a`tb`\"c\"\"d`$e\"\n\
         $env:B = 'it''s $env:A `n'\n\
         $env:C = \u{201c}curly\u{201d}\n\
         $name = 'x'; ${env:D} = \"$name-${name}-$($env:B)\"\n\
         $env:E = @'\nline 'one'\n\"two\"\n'@\n\
         $env:F = @\"\nat $name\n\"@\n\
         $env:G = \"a\" + 'b' +\n  \"c\"\n\
         $env:H = `\n  \"next line\"\n\
         $env:I = \"cost: 5$, #1\" # a comment\n\
         $env:K = <# within #> 'k'\n\
         $env:L = $true\n\
         $env:M = 0x1388\n\
         $env:N = \" Trim Me \".Trim().ToLower()\n\
         $env:O = Join-Path $PSScriptRoot 'logs'\n\
         $env:P = ('a', 'b') -join ';'\n\
         $env:P += '!'\n\
         $env:VXLAN_VNI = 4096\n"
    ), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4096
    spec.services.extraEnv.A = "a\tb\"c\"d$e"
    spec.services.extraEnv.B = "it's $env:A `n"
    spec.services.extraEnv.C = "curly"
    spec.services.extraEnv.D = "x-x-it's $env:A `n"
    spec.services.extraEnv.E = "line 'one'\n\"two\""
    spec.services.extraEnv.F = "at x"
    spec.services.extraEnv.G = "abc"
    spec.services.extraEnv.H = "next line"
    spec.services.extraEnv.I = "cost: 5$, #1"
    spec.services.extraEnv.K = "k"
    spec.services.extraEnv.L = "True"
    spec.services.extraEnv.M = "5000"
    spec.services.extraEnv.N = "trim me"
    spec.services.extraEnv.O = "C:\\CalicoWindows\\logs"
    spec.services.extraEnv.P = "a;b!"
    "#);
}

#[test]
fn the_older_and_the_odder_ways_of_setting_are_read() {
    insta::assert_snapshot!(short(
        "Set-EnvVarIfNotSet \"VXLAN_VNI\" 5001\n\
         set-envvarifnotset -DEFAULTVALUE:windows-bgp -Var:CALICO_NETWORKING_BACKEND\n\
         [Environment]::SetEnvironmentVariable(\"IP\", \"10.0.0.7/24\")\n\
         [System.Environment]::SetEnvironmentVariable('CNI_IPAM_TYPE', 'host-local', 'Process')\n\
         Set-Item -Path env:NODENAME -Value ([System.Net.Dns]::GetHostName()).ToLower()\n\
         $env:STARTUP_VALID_IP_TIMEOUT = '0'\n\
         $env:FELIX_LOGSEVERITYSCREEN = \"Warning\"\n\
         $ENV:kube_network = 'Calico.*'\n"
    ), @r#"
    spec.kubernetes.nodeName = "auto"
    spec.calicoNetwork.backend = "windows-bgp"
    spec.calicoNetwork.kubeNetwork = "Calico.*"
    spec.calicoNetwork.nodeAddress = "10.0.0.7/24"
    spec.calicoNetwork.ipam.type = "host-local"
    spec.calicoNetwork.vxlan.vxlanVNI = 5001
    spec.services.startupValidIPTimeout = "0"
    spec.services.felixLogSeverity = "warning"
    "#);
}

#[test]
fn b22_arrays_and_lists_of_dns_servers_are_told() {
    insta::assert_snapshot!(short(
        "$env:DNS_NAME_SERVERS = @(\"10.96.0.10\", \" 10.96.0.11 \")\n\
         $env:K8S_SERVICE_CIDR = '10.96.0.0/12', '10.200.0.0/16'\n"
    ), @r#"
    spec.kubernetes.serviceCIDRs = ["10.96.0.0/12","10.200.0.0/16"]
    spec.kubernetes.dns.servers = ["10.96.0.10","10.96.0.11"]
    note line 1: DNS_NAME_SERVERS is an array, of which PowerShell made the text `System.Object[]` for Calico; here it is `10.96.0.10, 10.96.0.11 `
    note line 2: K8S_SERVICE_CIDR is an array, of which PowerShell made the text `System.Object[]` for Calico; here it is `10.96.0.0/12,10.200.0.0/16`
    "#);
    insta::assert_snapshot!(short(
        "Set-EnvVarIfNotSet -var DNS_NAME_SERVERS -defaultValue 10.96.0.10,10.96.0.11\n\
         $env:K8S_SERVICE_CIDR = \"System.Object[]\"\n\
         $env:DNS_SEARCH = \"svc.corp.example , corp.example\"\n"
    ), @r#"
    spec.kubernetes.dns.servers = ["10.96.0.10","10.96.0.11"]
    spec.kubernetes.dns.search = ["svc.corp.example","corp.example"]
    note line 1: DNS_NAME_SERVERS is an array, of which PowerShell made the text `System.Object[]` for Calico; here it is `10.96.0.10,10.96.0.11`
    note line 3: DNS_SEARCH was read by nobody; from now on it is what pods get
    unread line 2: K8S_SERVICE_CIDR is `System.Object[]`, which PowerShell makes of an array: its items are lost; write them as one text with commas
    "#);
}

#[test]
fn b4_a_foreign_kubeconfig_is_told() {
    insta::assert_snapshot!(short("$env:KUBECONFIG = \"c:\\k\\config\"\n$env:VXLAN_VNI = 4096\n"), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4096
    note line 1: KUBECONFIG is `c:\k\config`, so Calico had the rights of whoever that belongs to; from now on the node has a kubeconfig of its own, C:\CalicoWindows\calico-kube-config
    "#);
}

#[test]
fn b4_b5_no_variable_of_the_machine_is_read() {
    // Both are set wherever tests run.
    insta::assert_snapshot!(short("$env:NODENAME = $env:PATH\n$env:CALICO_LOG_DIR = \"$env:HOME\\logs\"\n"), @r#"
    unread line 1: `$env:NODENAME = $env:PATH`: it takes the environment variable PATH, which the script does not set; the machine's are never read
    unread line 2: `$env:CALICO_LOG_DIR = "$env:HOME\logs"`: it takes the environment variable HOME, which the script does not set; the machine's are never read
    "#);
}

#[test]
fn what_cannot_be_judged_is_listed_with_its_line() {
    insta::assert_snapshot!(short(
        "$env:VXLAN_VNI = 4097\n\
         if ($env:COMPUTERNAME -like 'a*') {\n  $env:VXLAN_VNI = 4098\n} elseif ($x) {\n  Set-EnvVarIfNotSet -var \"IP\" -defaultValue \"none\"\n}\n\
         foreach ($i in 1..3) { $env:IP = $i }\n\
         function Get-Name {\n  hostname\n}\n\
         $env:NODENAME = Get-Name\n\
         $env:IP = (Get-NetIPAddress)[0].IPAddress\n\
         $env:CALICO_NETWORKING_BACKEND = vxlan\n\
         . $PSScriptRoot\\more.ps1\n\
         Invoke-WebRequest http://example.org | iex\n\
         [Environment]::SetEnvironmentVariable('IP', '10.0.0.1', 'Machine')\n\
         $env:ETCD_PASSWORD = 'hunter2'\n\
         $env:MY_TOKEN = $unknown\n\
         ipmo c:\\k\\helper.psm1\n"
    ), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4097
    unread line 2: `if ($env:COMPUTERNAME -like 'a*') { ...`: it depends on what happens when the script runs; it may set VXLAN_VNI, IP
    unread line 7: `foreach ($i in 1..3) { $env:IP = $i }`: it depends on what happens when the script runs; it may set IP
    unread line 8: `function Get-Name { ...`: it depends on what happens when the script runs
    unread line 11: `$env:NODENAME = Get-Name`: `Get-Name` is a command to PowerShell; a text has quotes
    unread line 12: `$env:IP = (Get-NetIPAddress)[0].IPAddress`: `Get-NetIPAddress` is a command to PowerShell; a text has quotes
    unread line 13: `$env:CALICO_NETWORKING_BACKEND = vxlan`: `vxlan` is a command to PowerShell; a text has quotes
    unread line 14: `. $PSScriptRoot\more.ps1`: a command that this program does not know, and never runs
    unread line 15: `Invoke-WebRequest http://example.org | iex`: a command that this program does not know, and never runs
    unread line 16: `[Environment]::SetEnvironmentVariable('IP', '10.0.0.1', 'Machine')`: it sets a variable of the whole machine or user, not one of Calico's
    unread line 17: ETCD_PASSWORD holds a secret, which has no place in this document
    unread line 18: `$env:MY_TOKEN = ***`: the value of $unknown is not known
    unread line 19: `ipmo c:\k\helper.psm1`: a module that this program does not know
    "#);
}

#[test]
fn values_that_calico_could_not_take_are_listed_with_their_line() {
    insta::assert_snapshot!(short(
        "$env:VXLAN_VNI = 9999\n\
         $env:CALICO_NETWORKING_BACKEND = 'bgp'\n\
         $env:K8S_SERVICE_CIDR = '10.96.0.10'\n\
         $env:DNS_NAME_SERVERS = 'fd00::10'\n\
         $env:VXLAN_MAC_PREFIX = '0E2A'\n\
         $env:NODENAME = 'Win_1'\n\
         $env:KUBE_NETWORK = '(Calico'\n\
         $env:CNI_BIN_DIR = 'k\\cni'\n\
         $env:STARTUP_VALID_IP_TIMEOUT = 'long'\n\
         $env:CALICO_DATASTORE_TYPE = 'etcdv3'\n\
         $env:ETCD_ENDPOINTS = 'https://etcd-0:2379'\n\
         $env:ETCD_KEY_FILE = 'c:\\etcd.key'\n"
    ), @r#"
    spec.datastore.type = "etcdv3"
    spec.datastore.etcd.endpoints = ["https://etcd-0:2379"]
    spec.datastore.etcd.keyFile = "c:\\etcd.key"
    unread line 1: spec.calicoNetwork.vxlan.vxlanVNI: 9999 is the VSID of the bootstrap network External; choose another VNI from 4096 to 65535
    unread line 2: spec.calicoNetwork.backend: `bgp` is not allowed; allowed: vxlan, windows-bgp, none
    unread line 3: spec.kubernetes.serviceCIDRs: `10.96.0.10` is not a CIDR like 10.96.0.0/12
    unread line 4: spec.kubernetes.dns.servers: `fd00::10` is IPv6, which Calico does not support on Windows; give an IPv4 address like 10.96.0.10
    unread line 5: spec.calicoNetwork.vxlan.vxlanMACPrefix: `0E2A` is not a MAC prefix: two hexadecimal octets like 0E-2A
    unread line 6: spec.kubernetes.nodeName: `Win_1` is not a node name: lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit, 253 characters at most
    unread line 7: spec.calicoNetwork.kubeNetwork: `(Calico` is not a regular expression: unclosed group
    unread line 8: spec.windowsNodes.cniBinDir: `k\cni` is not an absolute Windows path like C:\CalicoWindows
    unread line 9: STARTUP_VALID_IP_TIMEOUT: `long` is no number of seconds
    unread line 12: spec.datastore.etcd.keyFile: etcd needs all of its TLS files or none; certFile and caCertFile missing
    "#);
}

#[test]
fn a_script_that_powershell_would_refuse_is_read_up_to_there() {
    for (script, line) in [
        ("$env:VXLAN_VNI = 4097\n$env:IP = \"10.0.0.1\n$env:NODENAME = 'a'\n", 2),
        ("$env:VXLAN_VNI = 4097\n\n$env:IP = 'x\n", 3),
        ("$env:VXLAN_VNI = 4097\nif (Get-IsContainerdRunning) {\n$env:IP = 'x'\n", 2),
        ("$env:VXLAN_VNI = 4097\n<# not closed\n", 2),
        ("$env:VXLAN_VNI = 4097\n$env:IP = @'\nabc\n'@ \n", 2),
    ] {
        let imported = read(&script.replace("'@ ", " '@"));
        assert_eq!(imported.document["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"], 4097, "{script}");
        assert!(imported.document["spec"]["kubernetes"].is_null(), "{script}");
        assert_eq!(imported.unread.len(), 1, "{script}: {:?}", imported.unread);
        assert_eq!(imported.unread[0].line, Some(line), "{script}");
    }
    let deep = read(&format!("$env:VXLAN_VNI = 4097\n$env:IP = {}", "(".repeat(100_000)));
    assert_eq!(deep.unread.len(), 1, "{:?}", deep.unread);
}

#[test]
fn every_beginning_of_a_script_is_read_without_harm() {
    for script in [ASSIGNMENTS, SET_IF_ABSENT, "$a = @\"\n$(x)\n\"@; $env:X = \"$($a)`\"${b}\" <# é #> -join @('é')"]
    {
        for (end, _) in script.char_indices() {
            let place = Place { root: "C:", containerd: true, before: &[] };
            let half = script::read(&script[..end], place);
            let lines = script[..end].lines().count();
            assert!(half.unread.iter().all(|remark| remark.line <= Some(lines)), "{end}");
        }
    }
}

#[test]
fn only_a_node_without_containerd_has_the_other_folders() {
    let script = SET_IF_ABSENT.replace(r"c:\k\cni\config", r"D:\cni\conf");
    let dir = |containerd| {
        let mut source = Source::file("config.ps1");
        source.containerd = containerd;
        let imported = import(&script, &source).unwrap();
        let notes: String = imported.notes.iter().filter(|n| n.text.contains("CNI")).map(|n| n.text.clone()).collect();
        (imported.document["spec"]["windowsNodes"]["cniConfigDir"].as_str().unwrap().to_owned(), notes)
    };
    assert_eq!(dir(Some(true)), ("auto".into(), String::new()));
    assert_eq!(dir(Some(false)), (r"D:\cni\conf".into(), String::new()));
    let unknown = dir(None);
    assert_eq!(unknown.0, "auto");
    assert_eq!(unknown.1, r"CNI_CONF_DIR is `D:\cni\conf` only where containerd does not run");
}

#[test]
fn bytes_become_text_as_powershell_reads_them() {
    let wide = |big: bool| {
        let mark: &[u8] = if big { &[0xfe, 0xff] } else { &[0xff, 0xfe] };
        let units =
            SET_IF_ABSENT.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() });
        [mark.to_vec(), units.collect()].concat()
    };
    let marked = ["\u{feff}".as_bytes(), SET_IF_ABSENT.as_bytes()].concat();
    for bytes in [SET_IF_ABSENT.as_bytes().to_vec(), marked, wide(false), wide(true)] {
        assert_eq!(decode("config.ps1", &bytes).unwrap(), SET_IF_ABSENT);
    }
    let refused = |bytes: &[u8]| decode("config.ps1", bytes).unwrap_err().what;
    let refusals = [
        refused(&vec![b'#'; 10_000_000]),
        refused(&[0xff, 0xfe, b'a']),
        refused(&[0xff, 0xfe, 0, 0xd8]),
        refused(b"$\0e\0"),
        refused(b"PK\x03\x04\0\0"),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    config.ps1 is no config.ps1: it is larger than 262144 bytes
    config.ps1 is no config.ps1: it begins as UTF-16 and goes on as something else
    config.ps1 is no config.ps1: it begins as UTF-16 and goes on as something else
    config.ps1 is no config.ps1: it is no text
    config.ps1 is no config.ps1: it is no text
    "#);
    for text in ["", "# nothing\n", "Write-Host hello\n", "$env:PATH2 = 'x'\n"] {
        assert_eq!(import(text, &Source::file("x.ps1")).unwrap_err().id, "ConfigPs1Unreadable", "{text}");
    }
    // A code page that nobody names: harmless in a comment, not in a value.
    let text = decode("config.ps1", b"# \xe4\n$env:VXLAN_VNI = 4097\n$env:VXLAN_ADAPTER = 'Netz \xe4'\n").unwrap();
    insta::assert_snapshot!(short(&text), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4097
    unread line 3: `$env:VXLAN_ADAPTER = 'Netz �'`: its characters cannot be read; save the file as UTF-8
    "#);
}

#[test]
fn no_text_of_the_script_gets_out_of_its_comment() {
    let script = "$env:VXLAN_VNI = 4097\nfoo \u{85}spec: {} \u{2028}kind: Other \u{1b}[31m\n";
    let text = read(script).text("x\ny.ps1");
    let comments = text.split('\n').take_while(|line| !line.starts_with("apiVersion"));
    assert!(comments.clone().all(|line| line.starts_with('#')), "{text}");
    assert!(!text.contains(['\u{85}', '\u{2028}', '\u{1b}']), "{text:?}");
    load(&[Document { name: "imported".into(), text }], &[]).unwrap();
}

#[test]
fn no_secret_is_repeated() {
    let imported = read(
        "$env:VXLAN_VNI = 4097\n$env:ETCD_PASSWORD = \"hunter2\" + $x\n$env:API_TOKEN = @('hunter2')\n\
         $env:CALICO_DATASTORE_TYPE = 'etcdv3'\n$env:ETCD_ENDPOINTS = 'https://me:hunter2@etcd:2379'\n",
    );
    assert_eq!(imported.unread.len(), 4, "{:?}", imported.unread);
    assert!(!imported.text("config.ps1").contains("hunter2"), "{}", imported.text("config.ps1"));
}

#[test]
fn what_runs_wins_over_what_the_script_says() {
    let mut source = Source::file("config.ps1");
    source.root = WinPath::known(r"D:\Calico");
    source.environment = vec![("IP".into(), "10.1.2.3".into())];
    let measured = |variable, value: &str, by: &str| Measured { variable, value: value.into(), by: by.into() };
    source.measured = vec![
        measured("VXLAN_VNI", "4096", "10-calico.conf"),
        measured("DNS_NAME_SERVERS", "10.100.0.10", "10-calico.conf"),
        measured("K8S_SERVICE_CIDR", "10.100.0.0/16,10.101.0.0/16", "10-calico.conf"),
        measured("VXLAN_VNI", "6000", "the HNS network Calico"),
    ];
    source.fields = vec![("platform.staticRules", "aks".into())];
    insta::assert_snapshot!(text(&import(SET_IF_ABSENT, &source).unwrap()), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # Not in it: which release. Set spec.calico.version, or use --release.
    #
    # Differs on the node:
    # - VXLAN_VNI: config.ps1 (line 33) has `5000`, 10-calico.conf has `4096`, which is taken
    # - K8S_SERVICE_CIDR: config.ps1 (line 9) has `10.100.0.0/16`, 10-calico.conf has `10.100.0.0/16,10.101.0.0/16`, which is taken
    # - VXLAN_VNI: 10-calico.conf has `4096`, the HNS network Calico has `6000`, which is taken
    #
    # To know:
    # - line 14: KUBECONFIG has no effect: the node gets a kubeconfig of its own in the same place
    # - line 35: VXLAN_MAC_PREFIX is set already, by line 34: this line has no effect
    # - line 41: IP is set already, by the service's definition: this line has no effect
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      calico:
        rootDir: D:\Calico
      kubernetes:
        nodeName: auto
        serviceCIDRs:
        - 10.100.0.0/16
        - 10.101.0.0/16
        dns:
          servers:
          - "10.100.0.10"
          search:
          - svc.cluster.local
      calicoNetwork:
        backend: vxlan
        kubeNetwork: Calico.*
        nodeAddress: "10.1.2.3"
        ipam:
          type: calico-ipam
        vxlan:
          vxlanVNI: 6000
          vxlanMACPrefix: 0E-2A
          vxlanAdapter: Ethernet 2
      datastore:
        type: kubernetes
      windowsNodes:
        cniBinDir: auto
        cniConfigDir: auto
        cniConfigFile: 10-calico.conf
      services:
        startupValidIPTimeout: 90s
        logDir: D:\Calico\logs
      platform:
        staticRules: aks
    "#);
}

/// The parts of settings that a `config.ps1` carries.
fn carried(settings: &Settings) -> Settings {
    let mut part = samples::settings("v3.30.3");
    part.node_name = settings.node_name.clone();
    part.kubernetes.service_cidrs.clone_from(&settings.kubernetes.service_cidrs);
    part.kubernetes.dns_servers.clone_from(&settings.kubernetes.dns_servers);
    part.kubernetes.dns_search.clone_from(&settings.kubernetes.dns_search);
    part.network = settings.network.clone();
    part.datastore = settings.datastore.clone();
    part.cni.bin_dir = settings.cni.bin_dir.clone();
    part.cni.conf_dir = settings.cni.conf_dir.clone();
    part.cni.conf_file.clone_from(&settings.cni.conf_file);
    part.services = settings.services.clone();
    part
}

#[test]
fn our_own_config_ps1_comes_back_as_the_same_settings() {
    let facts: Facts = serde_json::from_str(include_str!("../../../tests/fixtures/facts/server-2022.json")).unwrap();
    for version in ["v3.20.0", "v3.30.3", "v3.33.0"] {
        for backend in [Backend::Vxlan, Backend::WindowsBgp, Backend::None] {
            for etcd in [false, true] {
                let mut settings = samples::settings(version);
                settings.network.backend = backend;
                settings.network.vni = 5005.try_into().unwrap();
                settings.network.adapter = (backend == Backend::Vxlan).then(|| "vEthernet (it's \u{e9})".into());
                settings.kubernetes.dns_servers.push("10.96.0.11".parse().unwrap());
                settings.kubernetes.dns_search.push("corp.example".into());
                settings.services.extra_env = [("FELIX_HEALTHENABLED".into(), "$true `n".into())].into();
                if etcd {
                    settings.datastore = samples::etcd();
                }
                let kubeconfig = WinPath::known(r"C:\CalicoWindows\calico-kube-config");
                let script = crate::calico::config_ps1::render(&settings, (!etcd).then_some(&kubeconfig));
                let imported = read(&decode("config.ps1", &script).unwrap());
                assert_eq!(imported.unread, [], "{version} {backend:?}");
                let version = Override { path: "calico.version".into(), value: version.into(), from: Origin::Set };
                let document = Document { name: "imported".into(), text: text(&imported) };
                let layered = load(&[document], &[version]).unwrap();
                let resolved = resolve(&layered, &facts.node, None).unwrap();
                assert_eq!(carried(&resolved.settings), carried(&settings));
            }
        }
    }
}
