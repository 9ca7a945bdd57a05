//! What people have in a `config.ps1`, and what the import makes of it.

use super::*;
use crate::calico::testing;
use crate::config::{Document, load};
use crate::facts::Facts;
use crate::settings::{Backend, Settings, resolve};

const ASSIGNMENTS: &str = include_str!("../../../tests/fixtures/config-ps1/assignments.ps1");
const ASSIGNMENTS_ADAPTER: &str = include_str!("../../../tests/fixtures/config-ps1/assignments-adapter.ps1");
const SET_IF_ABSENT: &str = include_str!("../../../tests/fixtures/config-ps1/set-if-absent.ps1");
const HOSTPROCESS: &str = include_str!("../../../tests/fixtures/config-ps1/hostprocess.ps1");

fn read(script: &str) -> Imported {
    import(script, &Source::file("config.ps1")).unwrap()
}

/// Returns the document, which must be valid for this program.
#[track_caller]
fn text(imported: &Imported) -> String {
    let text = imported.text("config.ps1");
    if imported.unread.is_empty() {
        load(&[Document { name: "imported".into(), text: text.clone() }], &[]).unwrap();
    }
    text
}

/// Returns only what is set, and what could not be, for a script of a few lines.
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
    # The release is not in it: set spec.calico.version, or use --release.
    #
    # Notes:
    # - line 17: KUBECONFIG has no effect: the node gets its own kubeconfig in the same place
    # - line 47: CALICO_LOG_DIR is left out: from now on the logs are in C:\ProgramData\calicoctl-win\logs\calico, since a program that reads a log in C:\CalicoWindows blocks its replacement
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
    "#);
    // v3.20 had Windows line ends.
    assert_eq!(read(&ASSIGNMENTS.replace('\n', "\r\n")).document, read(ASSIGNMENTS).document);
}

#[test]
fn assignments_with_an_adapter_as_in_v3_21_and_v3_22() {
    insta::assert_snapshot!(text(&read(ASSIGNMENTS_ADAPTER)), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # The release is not in it: set spec.calico.version, or use --release.
    #
    # Notes:
    # - line 15: KUBECONFIG has no effect: the node gets its own kubeconfig in the same place
    # - line 45: CALICO_LOG_DIR is left out: from now on the logs are in C:\ProgramData\calicoctl-win\logs\calico, since a program that reads a log in C:\CalicoWindows blocks its replacement
    apiVersion: calicoctl-win/v1alpha1
    kind: NodeInstallation
    spec:
      kubernetes:
        nodeName: auto
        serviceCIDRs:
        - 10.43.0.0/16
        dns:
          servers:
          - "10.43.0.10"
          search:
          - svc.cluster.local
      calicoNetwork:
        backend: vxlan
        kubeNetwork: Calico.*
        nodeAddress: autodetect
        ipam:
          type: calico-ipam
        vxlan:
          vxlanVNI: 4096
          vxlanMACPrefix: 0E-2A
      datastore:
        type: kubernetes
      windowsNodes:
        cniBinDir: auto
        cniConfigDir: auto
        cniConfigFile: 10-calico.conf
      services:
        startupValidIPTimeout: 90s
    "#);
}

#[test]
fn set_if_absent_as_in_v3_23_to_v3_33() {
    insta::assert_snapshot!(text(&read(SET_IF_ABSENT)), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # The release is not in it: set spec.calico.version, or use --release.
    #
    # Notes:
    # - line 14: KUBECONFIG has no effect: the node gets its own kubeconfig in the same place
    # - line 35: VXLAN_MAC_PREFIX is set already, by line 34: this line has no effect
    # - line 43: CALICO_LOG_DIR is left out: from now on the logs are in C:\ProgramData\calicoctl-win\logs\calico, since a program that reads a log in C:\CalicoWindows blocks its replacement
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
    "#);
}

#[test]
fn hostprocess_scripts_as_in_v3_27_and_later() {
    insta::assert_snapshot!(text(&read(HOSTPROCESS)), @r#"
    # Read from config.ps1 by calicoctl-win. What is not set here is detected, or has its default.
    # The release is not in it: set spec.calico.version, or use --release.
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

/// A variable, what people write for it, and its value in the document.
const EDITS: [(&str, &str, &str, &str); 23] = [
    ("KUBE_NETWORK", "azure.*", "calicoNetwork.kubeNetwork", r#""azure.*""#),
    ("CALICO_NETWORKING_BACKEND", "windows-bgp", "calicoNetwork.backend", r#""windows-bgp""#),
    ("K8S_SERVICE_CIDR", "10.112.0.0/12", "kubernetes.serviceCIDRs", r#"["10.112.0.0/12"]"#),
    ("DNS_NAME_SERVERS", "10.112.0.10, 10.112.0.11", "kubernetes.dns.servers", r#"["10.112.0.10","10.112.0.11"]"#),
    ("DNS_SEARCH", "svc.corp.example", "kubernetes.dns.search", r#"["svc.corp.example"]"#),
    ("CALICO_DATASTORE_TYPE", "etcdv3", "datastore.type", r#""etcdv3""#),
    ("ETCD_ENDPOINTS", "http://etcd-7:2379", "datastore.etcd.endpoints", r#"["http://etcd-7:2379"]"#),
    ("ETCD_KEY_FILE", r"D:\own keys\k.pem", "datastore.etcd.keyFile", r#""D:\\own keys\\k.pem""#),
    ("ETCD_CERT_FILE", r"D:\own keys\c.pem", "datastore.etcd.certFile", r#""D:\\own keys\\c.pem""#),
    ("ETCD_CA_CERT_FILE", r"D:\own keys\ca.pem", "datastore.etcd.caCertFile", r#""D:\\own keys\\ca.pem""#),
    ("CNI_BIN_DIR", r"C:\Program Files\cni\bin", "windowsNodes.cniBinDir", r#""C:\\Program Files\\cni\\bin""#),
    ("CNI_CONF_DIR", r"C:\Program Files\cni\conf", "windowsNodes.cniConfigDir", r#""C:\\Program Files\\cni\\conf""#),
    ("CNI_CONF_FILENAME", "00-calico.conf", "windowsNodes.cniConfigFile", r#""00-calico.conf""#),
    ("CNI_IPAM_TYPE", "host-local", "calicoNetwork.ipam.type", r#""host-local""#),
    ("VXLAN_VNI", "5007", "calicoNetwork.vxlan.vxlanVNI", "5007"),
    ("VXLAN_MAC_PREFIX", "0E-3B", "calicoNetwork.vxlan.vxlanMACPrefix", r#""0E-3B""#),
    ("VXLAN_ADAPTER", "vEthernet (LAN; #2)", "calicoNetwork.vxlan.vxlanAdapter", r#""vEthernet (LAN; #2)""#),
    ("NODENAME", "ip-10-0-0-7.ec2.internal", "kubernetes.nodeName", r#""ip-10-0-0-7.ec2.internal""#),
    ("STARTUP_VALID_IP_TIMEOUT", "120", "services.startupValidIPTimeout", r#""120s""#),
    ("IP", "10.0.0.7/24", "calicoNetwork.nodeAddress", r#""10.0.0.7/24""#),
    ("CALICO_LOG_DIR", r"D:\my logs", "services.logDir", r#""D:\\my logs""#),
    ("FELIX_LOGSEVERITYSCREEN", "debug", "services.felixLogSeverity", r#""debug""#),
    ("BGP_LOGSEVERITYSCREEN", "debug", "services.extraEnv.BGP_LOGSEVERITYSCREEN", r#""debug""#),
];

fn field(imported: &Imported, path: &str) -> String {
    path.split('.').fold(&imported.document["spec"], |here, part| &here[part]).to_string()
}

#[test]
fn every_form_of_line_that_calico_shipped_is_read_with_every_edit() {
    for (variable, value, path, wanted) in EDITS {
        let plain = value.bytes().all(|b| b.is_ascii_digit());
        let word = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-./:*".contains(&b))
            && (plain || !value.starts_with('0'));
        let quoted = [format!("\"{value}\""), format!("'{value}'")];
        let assigned = quoted.iter().cloned().chain(plain.then(|| value.to_owned()));
        let given = quoted.iter().cloned().chain(word.then(|| value.to_owned()));
        let mut lines = Vec::new();
        for value in assigned {
            lines.push(format!("$env:{variable} = {value}"));
            lines.push(format!("$env:{variable}={value}"));
            lines.push(format!("\t${{Env:{variable}}}  =  {value}  "));
        }
        for value in given {
            lines.push(format!("Set-EnvVarIfNotSet -var \"{variable}\" -defaultValue {value}"));
            lines.push(format!("  set-envvarifnotset  -Var '{variable}'  -DefaultValue {value}  "));
            lines.push(format!("Set-EnvVarIfNotSet {variable} {value}"));
        }
        lines.extend(lines.clone().iter().map(|line| format!("{line} # it's \"ours\" (see above")));
        for line in lines {
            let etcd = if variable.starts_with("ETCD") {
                "$env:CALICO_DATASTORE_TYPE = 'etcdv3'\n$env:ETCD_ENDPOINTS = 'http://e:1'\n$env:ETCD_KEY_FILE = 'D:\\k'\n\
                 $env:ETCD_CERT_FILE = 'D:\\c'\n$env:ETCD_CA_CERT_FILE = 'D:\\a'\n"
            } else if variable == "CALICO_DATASTORE_TYPE" {
                "$env:ETCD_ENDPOINTS = 'http://e:1'\n"
            } else if value == "host-local" {
                "$env:CALICO_NETWORKING_BACKEND = 'none'\n"
            } else {
                ""
            };
            let line = line.replace("Set-EnvVarIfNotSet", &format!("$env:{variable} = ''\nSet-EnvVarIfNotSet"));
            let line = line.replace("set-envvarifnotset", &format!("$env:{variable} = ''\nset-envvarifnotset"));
            let lf = format!("# CALICO_, a ' and a {{\n{etcd}{line}\n$env:KUBE_NET = \"after\"");
            for script in [lf.clone(), lf.replace('\n', "\r\n"), format!("\u{feff}{lf}\r\n\r\n")] {
                let imported = read(&decode("config.ps1", script.as_bytes()).unwrap());
                assert_eq!(imported.unread, [], "{script}");
                assert_eq!(field(&imported, path), wanted, "{script}");
                assert_eq!(field(&imported, "services.extraEnv.KUBE_NET"), "\"after\"", "{script}");
            }
        }
    }
}

#[test]
fn a_whole_file_is_read_with_the_edits_of_the_installer_and_of_people() {
    // A file before anybody edits it.
    let shipped = |script: &str| {
        [
            ("10.96.0.0/12", "<your service cidr>"),
            ("10.100.0.0/16", "<your service cidr>"),
            ("10.43.0.0/16", "<your service cidr>"),
            ("10.96.0.10, 10.96.0.11", "<your dns server ips>"),
            ("10.100.0.10", "<your dns server ips>"),
            ("10.43.0.10", "<your dns server ips>"),
            ("\"etcdv3\"", "\"<your datastore type>\""),
            ("\"kubernetes\"", "\"<your datastore type>\""),
        ]
        .into_iter()
        .fold(script.to_owned(), |script, (value, placeholder)| script.replace(value, placeholder))
    };
    for script in [ASSIGNMENTS, ASSIGNMENTS_ADAPTER, SET_IF_ABSENT, HOSTPROCESS].map(shipped) {
        assert_eq!(read(&script).unread, [], "{script}");
        for (variable, value, path, wanted) in EDITS {
            // Its own lines of the script, whatever their values.
            let sets = |line: &str| {
                let line = line.trim_start();
                line.starts_with(&format!("$env:{variable} ")) || line.starts_with(&format!("$env:{variable}="))
            };
            let gives = |line: &str| line.trim_start().starts_with(&format!("Set-EnvVarIfNotSet -var \"{variable}\""));
            if variable.starts_with("ETCD") || !script.lines().any(|line| sets(line) || gives(line)) {
                continue;
            }
            let lines = script.lines().map(|line| match line {
                line if sets(line) => format!("$env:{variable} = '{value}'"),
                line if gives(line) => format!("Set-EnvVarIfNotSet -var \"{variable}\" -defaultValue \"{value}\""),
                line if value == "etcdv3" && line.contains("ETCD_") && line.contains("_FILE") => String::new(),
                line if value == "etcdv3" && line.contains("ETCD_E") => "$env:ETCD_ENDPOINTS = 'http://e:1'".into(),
                line if value == "host-local" && line.contains("_BACKEND") => "# $env:X = 1".into(),
                line => line.to_owned(),
            });
            let edited = lines.collect::<Vec<_>>().join("\r\n");
            let imported = read(&edited);
            assert_eq!(imported.unread, [], "{edited}");
            assert_eq!(field(&imported, path), wanted, "{variable}: {edited}");
        }
    }
}

#[test]
fn a_text_is_read_as_powershell_reads_it_or_listed() {
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
         $env:Q = \"a`\"b\"\"c`$e\"; $env:R = \"$name-${name}-${env:B}\\x$\"\n\
         $env:VXLAN_VNI = 4096\n"
    ), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4096
    spec.services.extraEnv.B = "it's $env:A `n"
    spec.services.extraEnv.C = "curly"
    spec.services.extraEnv.I = "cost: 5$, #1"
    spec.services.extraEnv.K = "k"
    spec.services.extraEnv.L = "True"
    spec.services.extraEnv.Q = "a\"b\"c$e"
    spec.services.extraEnv.R = "x-x-it's $env:A `n\\x$"
    unread line 1: `$env:A = "a`tb`"c""d`$e"`: an expression that this program does not evaluate
    unread line 4: `${env:D} = "$name-${name}-$($env:B)"`: an expression that this program does not evaluate
    unread line 5: `$env:E = @' ...`: an expression that this program does not evaluate
    unread line 9: `$env:F = @" ...`: an expression that this program does not evaluate
    unread line 12: `$env:G = "a" + 'b' +`: an expression that this program does not evaluate
    unread line 13: `"c"`: an expression that this program does not evaluate
    unread line 14: `$env:H = ` ...`: an expression that this program does not evaluate
    unread line 19: `$env:M = 0x1388`: an expression that this program does not evaluate
    unread line 20: `$env:N = " Trim Me ".Trim().ToLower()`: an expression that this program does not evaluate
    unread line 21: `$env:O = Join-Path $PSScriptRoot 'logs'`: a word without quotes is a command to PowerShell, not a text
    unread line 22: `$env:P = ('a', 'b') -join ';'`: an expression that this program does not evaluate
    unread line 23: `$env:P += '!'`: an expression that this program does not evaluate
    "#);
}

#[test]
fn unusual_ways_of_setting_are_listed() {
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
    spec.calicoNetwork.kubeNetwork = "Calico.*"
    spec.calicoNetwork.vxlan.vxlanVNI = 5001
    spec.services.startupValidIPTimeout = "0"
    spec.services.felixLogSeverity = "warning"
    unread line 2: `set-envvarifnotset -DEFAULTVALUE:windows-bgp -Var:CALICO_NETWORKING_BACKEND`: a command that this program does not know, and never runs; it may set CALICO_NETWORKING_BACKEND
    unread line 3: `[Environment]::SetEnvironmentVariable("IP", "10.0.0.7/24")`: a command that this program does not know, and never runs; it may set IP
    unread line 4: `[System.Environment]::SetEnvironmentVariable('CNI_IPAM_TYPE', 'host-local', 'Pro ...`: a command that this program does not know, and never runs; it may set CNI_IPAM_TYPE
    unread line 5: `Set-Item -Path env:NODENAME -Value ([System.Net.Dns]::GetHostName()).ToLower()`: a command that this program does not know, and never runs; it may set NODENAME
    "#);
}

#[test]
fn b22_arrays_and_lists_of_dns_servers_are_reported() {
    insta::assert_snapshot!(short(
        "$env:DNS_NAME_SERVERS = @(\"10.96.0.10\", \" 10.96.0.11 \")\n\
         $env:K8S_SERVICE_CIDR = '10.96.0.0/12', '10.200.0.0/16'\n"
    ), @r#"
    unread line 1: `$env:DNS_NAME_SERVERS = @("10.96.0.10", " 10.96.0.11 ")`: an array, of which PowerShell makes the text `System.Object[]`; write its items as one text with commas
    unread line 2: `$env:K8S_SERVICE_CIDR = '10.96.0.0/12', '10.200.0.0/16'`: an array, of which PowerShell makes the text `System.Object[]`; write its items as one text with commas
    "#);
    insta::assert_snapshot!(short(
        "Set-EnvVarIfNotSet -var DNS_NAME_SERVERS -defaultValue 10.96.0.10,10.96.0.11\n\
         $env:K8S_SERVICE_CIDR = \"System.Object[]\"\n\
         $env:DNS_SEARCH = \"svc.corp.example , corp.example\"\n"
    ), @r#"
    spec.kubernetes.dns.search = ["svc.corp.example","corp.example"]
    note line 3: DNS_SEARCH had no effect; from now on pods get it
    unread line 1: `Set-EnvVarIfNotSet -var DNS_NAME_SERVERS -defaultValue 10.96.0.10,10.96.0.11`: an array, of which PowerShell makes the text `System.Object[]`; write its items as one text with commas
    unread line 2: K8S_SERVICE_CIDR is `System.Object[]`, which PowerShell makes of an array: its items are lost; write them as one text with commas
    "#);
}

#[test]
fn b4_a_foreign_kubeconfig_is_reported() {
    insta::assert_snapshot!(short("$env:KUBECONFIG = \"c:\\k\\config\"\n$env:VXLAN_VNI = 4096\n"), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4096
    note line 1: KUBECONFIG is `c:\k\config`, so Calico had that file's rights; from now on the node has its own kubeconfig, C:\CalicoWindows\calico-kube-config
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
fn statements_that_cannot_be_read_are_listed_with_their_line() {
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
    unread line 2: `if ($env:COMPUTERNAME -like 'a*') { ...`: it depends on what happens when the script runs; it may set VXLAN_VNI, IP
    unread line 7: `foreach ($i in 1..3) { $env:IP = $i }`: it depends on what happens when the script runs; it may set IP
    unread line 8: `function Get-Name { ...`: it depends on what happens when the script runs
    unread line 11: `$env:NODENAME = Get-Name`: a word without quotes is a command to PowerShell, not a text
    unread line 12: `$env:IP = (Get-NetIPAddress)[0].IPAddress`: an expression that this program does not evaluate
    unread line 13: `$env:CALICO_NETWORKING_BACKEND = vxlan`: a word without quotes is a command to PowerShell, not a text
    unread line 14: `. $PSScriptRoot\more.ps1`: a command that this program does not know, and never runs
    unread line 15: `Invoke-WebRequest http://example.org | iex`: a command that this program does not know, and never runs
    unread line 16: `[Environment]::SetEnvironmentVariable('IP', '10.0.0.1', 'Machine')`: a command that this program does not know, and never runs; it may set IP
    unread line 17: ETCD_PASSWORD holds a secret, which has no place in this document
    unread line 18: `$env:MY_TOKEN = ***`: the value of $unknown is not known
    unread line 19: `ipmo c:\k\helper.psm1`: a module that this program does not know
    "#);
}

#[test]
fn values_that_calico_would_reject_are_listed_with_their_line() {
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
    unread line 2: spec.calicoNetwork.backend: `bgp` is not allowed; did you mean `windows-bgp`? allowed: auto, vxlan, windows-bgp, none
    unread line 3: spec.kubernetes.serviceCIDRs: `10.96.0.10` is not a CIDR like 10.96.0.0/12
    unread line 4: spec.kubernetes.dns.servers: `fd00::10` is IPv6, which Calico does not support on Windows; give an IPv4 address like 10.96.0.10
    unread line 5: spec.calicoNetwork.vxlan.vxlanMACPrefix: `0E2A` is not a MAC prefix: write two hexadecimal octets, for example 0E-2A
    unread line 6: spec.kubernetes.nodeName: `Win_1` is not a node name: lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit, 253 characters at most
    unread line 7: spec.calicoNetwork.kubeNetwork: `(Calico` is not a regular expression: unclosed group
    unread line 8: spec.windowsNodes.cniBinDir: `k\cni` is not an absolute Windows path like C:\CalicoWindows
    unread line 9: STARTUP_VALID_IP_TIMEOUT: `long` is not a number of seconds
    unread line 12: spec.datastore.etcd.keyFile: etcd needs all of its TLS files or none; certFile and caCertFile missing
    "#);
}

#[test]
fn a_script_that_powershell_would_refuse_is_read_up_to_the_error() {
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
fn every_prefix_of_a_script_is_read_without_a_panic() {
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
fn bytes_are_decoded_as_powershell_decodes_them() {
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
    config.ps1 is not a config.ps1: it is larger than 262144 bytes
    config.ps1 is not a config.ps1: it has the byte order mark of UTF-16, but is not UTF-16
    config.ps1 is not a config.ps1: it has the byte order mark of UTF-16, but is not UTF-16
    config.ps1 is not a config.ps1: it is not text
    config.ps1 is not a config.ps1: it is not text
    "#);
    for text in ["", "# nothing\n", "Write-Host hello\n", "$env:PATH2 = 'x'\n"] {
        assert_eq!(import(text, &Source::file("x.ps1")).unwrap_err().id, "ConfigPs1Unreadable", "{text}");
    }
    // An unknown code page: harmless in a comment, not in a value.
    let text = decode("config.ps1", b"# \xe4\n$env:VXLAN_VNI = 4097\n$env:VXLAN_ADAPTER = 'Netz \xe4'\n").unwrap();
    insta::assert_snapshot!(short(&text), @r#"
    spec.calicoNetwork.vxlan.vxlanVNI = 4097
    unread line 3: `$env:VXLAN_ADAPTER = 'Netz �'`: its characters cannot be read; save the file as UTF-8
    "#);
}

#[test]
fn no_text_of_the_script_escapes_its_comment() {
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
         $env:HTTPS_PROXY = 'http://me:hunter2@proxy:3128'\n\
         $env:CALICO_DATASTORE_TYPE = 'etcdv3'\n$env:ETCD_ENDPOINTS = 'https://me:hunter2@etcd:2379'\n",
    );
    assert_eq!(imported.unread.len(), 5, "{:?}", imported.unread);
    let command = read("$env:VXLAN_VNI = 4097\n$env:ETCD_PASSWORD = hunter2\nSet-Login -Password hunter2\n");
    assert!(!format!("{command:?}").contains("hunter2"), "{command:?}");
    assert!(!imported.text("config.ps1").contains("hunter2"), "{}", imported.text("config.ps1"));
}

#[test]
fn the_running_state_wins_over_the_script() {
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
    # The release is not in it: set spec.calico.version, or use --release.
    #
    # Differs on the node:
    # - VXLAN_VNI: config.ps1 (line 33) has `5000`, 10-calico.conf has `4096`, which is taken
    # - K8S_SERVICE_CIDR: config.ps1 (line 9) has `10.100.0.0/16`, 10-calico.conf has `10.100.0.0/16,10.101.0.0/16`, which is taken
    # - VXLAN_VNI: 10-calico.conf has `4096`, the HNS network Calico has `6000`, which is taken
    #
    # Notes:
    # - line 14: KUBECONFIG has no effect: the node gets its own kubeconfig in the same place
    # - line 35: VXLAN_MAC_PREFIX is set already, by line 34: this line has no effect
    # - line 41: IP is set already, by the service's definition: this line has no effect
    # - line 43: CALICO_LOG_DIR is left out: from now on the logs are in C:\ProgramData\calicoctl-win\logs\calico, since a program that reads a log in D:\Calico blocks its replacement
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
      platform:
        staticRules: aks
    "#);
}

/// The settings that a `config.ps1` contains.
fn carried(settings: &Settings) -> Settings {
    let mut part = testing::settings("v3.30.3");
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
fn our_own_config_ps1_is_imported_as_the_same_settings() {
    let facts: Facts = serde_json::from_str(include_str!("../../../tests/fixtures/facts/server-2022.json")).unwrap();
    for version in ["v3.20.0", "v3.30.3", "v3.33.0"] {
        for backend in [Backend::Vxlan, Backend::WindowsBgp, Backend::None] {
            for etcd in [false, true] {
                let mut settings = testing::settings(version);
                settings.network.backend = backend;
                settings.network.vni = 5005.try_into().unwrap();
                settings.network.adapter = (backend == Backend::Vxlan).then(|| "vEthernet (it's \u{e9})".into());
                settings.kubernetes.dns_servers.push("10.96.0.11".parse().unwrap());
                settings.kubernetes.dns_search.push("corp.example".into());
                settings.services.extra_env = [("FELIX_HEALTHENABLED".into(), "$true `n".into())].into();
                if etcd {
                    settings.datastore = testing::etcd();
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

#[test]
fn a_value_that_doubles_in_each_line_is_given_up() {
    let doubled = "$env:NODENAME = \"$env:NODENAME$env:NODENAME\"\n".repeat(40);
    let imported = read(&format!("$env:NODENAME = 'win'\n{doubled}"));
    let why = imported.unread[0].to_string();
    assert!(why.ends_with("its value is longer than Windows permits"), "{why}");
    assert!(imported.document["spec"]["kubernetes"].is_null(), "{:#}", imported.document);
}

#[test]
fn no_value_is_imported_that_calico_may_not_use() {
    // Calico may accept `IP` or not, or another one.
    let read = |line: &str| {
        let imported = read(&format!("$env:VXLAN_VNI = 4097\n{line}\n"));
        let nothing = imported.document["spec"]["calicoNetwork"]["nodeAddress"].is_null()
            && imported.document["spec"]["kubernetes"].is_null()
            && imported.document["spec"]["windowsNodes"].is_null()
            && imported.document["spec"]["services"].is_null();
        assert!(nothing, "{line}: {:#}", imported.document);
        imported.unread.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for line in [
        "$x = $env:IP = '10.0.0.1'",
        "$x = & { $env:IP = '10.0.0.1' }",
        "$x = $(Set-EnvVarIfNotSet -var 'IP' -defaultValue '10.0.0.1')",
        "Write-Host ($env:IP = '10.0.0.1')",
        "Write-Host \"$($env:IP = '10.0.0.1')\"",
        "ipmo .\\libs\\calico\\calico.psm1 ($env:IP = '10.0.0.1')",
        "$env:NODENAME = Get-ContainerdCniBinDir",
        "$env:CNI_BIN_DIR = $(hostname).ToLower()",
        "$env:CNI_CONF_DIR = Get-ContainerdCniBinDir",
        "$env:NODENAME = \"$(hostname)-a\"",
        "Set-EnvVarIfNotSet -var \"IP\" -defaultValue hostname -Verbose",
        "Set-EnvVarIfNotSet -var \"IP\" -defaultValue '10.0.0.1' | Out-Null",
        "$env:STARTUP_VALID_IP_TIMEOUT = 1e2",
        "$env:STARTUP_VALID_IP_TIMEOUT = 090",
        "$env:IP = '10.0.0.1' -replace '1', '2'",
        "$env:IP = \"10.0.0.1\".Trim()",
        "$env:IP = if ($x) { '10.0.0.1' } else { '10.0.0.2' }",
        "if ($env:X -EQ \"a\") { $env:IP = '10.0.0.1' }",
        "if (Get-IsContainerdRunning -or $x) { $env:IP = '10.0.0.1' }",
        "if (Get-IsContainerdRunning) { $env:IP = $x } elseif ($y) { }",
        "try { $env:IP = '10.0.0.1' }\ncatch { }\nfinally { }",
        "$env:IP = '10.0.0.1'\nif ($x) { $env:IP = '10.0.0.2' }",
        "$env:IP = '10.0.0.1'\nRemove-Item env:IP",
        "$env:IP = '10.0.0.1'\n$env:IP += '/24'",
        "$env:IP = '10.0.0.1'\n$env:IP = Get-Address",
        "if ($x) { $env:IP = '10.0.0.2' }\nSet-EnvVarIfNotSet -var \"IP\" -defaultValue '10.0.0.1'",
        "$a = 'x'\nif ($x) { $a = 'y' }\n$env:NODENAME = $a",
        "return\n$env:IP = '10.0.0.1'",
        "Write-Host 'a'; exit 1; $env:IP = '10.0.0.1'",
        "@'\n$env:IP = '10.0.0.1'\n'@",
        "Get-Content x | % {\n$env:IP = '10.0.0.1'\n}",
        "function f\n{\n$env:IP = '10.0.0.1'\n}",
        "& {\n$env:IP = '10.0.0.1'\n}",
    ] {
        assert!(!read(line).is_empty(), "{line}: nothing is told");
    }
    let lines = |text| self::read(text).unread.iter().map(|remark| remark.line).collect::<Vec<_>>();
    let blocks = "<# CNI_\n #> if (Get-IsContainerdRunning) # {\n\n{\n  $a = <#\n#> b; $env:IP = $x\n}\n# else\n \
                  else {\n'\n'\n}\n. x";
    assert_eq!(lines(blocks), [5, 6, 10, 13].map(Some));
    let without_type =
        self::read("if ($x) { $env:CALICO_DATASTORE_TYPE = 'etcdv3' }\n$env:ETCD_ENDPOINTS = 'http://e:1'\n");
    assert_eq!((without_type.notes.len(), without_type.unread.len()), (0, 2), "{without_type:?}");
    for line in
        ["<#\n$env:IP = '10.0.0.1'\n#>", "# <#", "Write-Host \"a ($env:IP) #>\" # '", "$ErrorActionPreference = 'Stop'"]
    {
        assert_eq!(read(line), [""; 0], "{line}");
    }
}
