//! The functions of the PowerShell module: one for each command, made of the command line's own tree.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use super::{MODULE, is_approved};
use crate::docs::{matches_the_code, table, with_table};
use crate::read;

/// How a function runs its command.
enum Way {
    /// It changes something, and asks first (`High`) or only with `-Confirm` (`Medium`).
    Change(&'static str),
    /// It returns the command's document, or the items of one of its lists, as objects of this type.
    Read { kind: &'static str, expand: &'static str, writes: Option<Writes> },
}

/// What a function does besides returning objects, so that it has -WhatIf and -Confirm.
#[derive(Clone, Copy)]
struct Writes {
    impact: &'static str,
    /// Only with this parameter; always if it is empty.
    with: &'static str,
    says: &'static str,
}

use Way::{Change, Read};

const fn document(kind: &'static str) -> Way {
    items(kind, "")
}

const fn items(kind: &'static str, expand: &'static str) -> Way {
    Read { kind, expand, writes: None }
}

/// A document about a file that the command writes.
const fn file(kind: &'static str) -> Way {
    let says = "Writes a file, and changes nothing else.";
    Read { kind, expand: "", writes: Some(Writes { impact: "Medium", with: "", says }) }
}

const IMPORT: Way = Read {
    kind: "ConfigImport",
    expand: "",
    writes: Some(Writes {
        impact: "Medium",
        with: "Out",
        says: "With -Out it writes a file; it changes nothing else.",
    }),
};

const SELFTEST: Way = Read {
    kind: "SelftestRow",
    expand: "Rows",
    writes: Some(Writes {
        impact: "High",
        with: "Disruptive",
        says: "Leaves no changes. With -Disruptive it interrupts an adapter, and asks first.",
    }),
};

/// The types that the functions return, each with the document that it is made of, and the list if it is an item of one.
pub(super) fn types() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let document_of = |words: &str| match words {
        "preflight" | "cluster check" => "PreflightReport",
        "history" => "History",
        "receipt list" => "Generations",
        "service status" => "ServiceStatus",
        "network list" => "NetworkList",
        "config show" => "EffectiveConfig",
        "config diff" => "ConfigDiff",
        "credentials show" => "Credentials",
        "release list" => "ReleaseList",
        "cluster prepare" => "ClusterPatches",
        "policy lint" => "PolicyReport",
        "verify" => "VerifyReport",
        "selftest --yes" => "SelftestReport",
        other => panic!("{other} has no list"),
    };
    let of = |(_, words, way, _): &(&str, &str, Way, &str)| match way {
        Change(_) => ("RunResult", "RunResult", None),
        Read { kind, expand: "", .. } => (*kind, *kind, None),
        Read { kind, expand, .. } => (*kind, document_of(words), Some(*expand)),
    };
    FUNCTIONS.iter().map(of).collect()
}

/// Function, command, way, and the example of its help.
const FUNCTIONS: [(&str, &str, Way, &str); 54] = [
    (
        "Test-CalicoNode",
        "preflight",
        items("Check", "Checks"),
        "Test-CalicoNode -Config node.yaml | Where-Object -Property Status -EQ fail",
    ),
    ("Get-CalicoPlan", "plan", document("Plan"), "(Get-CalicoPlan -Config node.yaml).Changes"),
    ("Set-CalicoNode", "apply", Change("High"), "Set-CalicoNode -Config node.yaml -Confirm:$false"),
    ("Install-CalicoNode", "install", Change("High"), "Install-CalicoNode -Config node.yaml -Release v3.32.1"),
    (
        "Update-CalicoNode",
        "reconfigure",
        Change("High"),
        "Update-CalicoNode -Set calicoNetwork.vxlan.vxlanVNI=5000 -Mode try",
    ),
    ("Update-CalicoRelease", "upgrade", Change("High"), "Update-CalicoRelease -Release v3.32.1 -WhatIf"),
    ("Switch-CalicoFlannel", "migrate from flannel", Change("High"), "Switch-CalicoFlannel -Config node.yaml"),
    ("Confirm-CalicoChange", "confirm", Change("Medium"), "Confirm-CalicoChange"),
    ("Restore-CalicoNode", "rollback", Change("High"), "Restore-CalicoNode -To 3"),
    ("Uninstall-CalicoNode", "uninstall", Change("High"), "Uninstall-CalicoNode -Drain"),
    ("Repair-CalicoNode", "repair", Change("High"), "Repair-CalicoNode"),
    ("Resume-CalicoRun", "resume", Change("High"), "Resume-CalicoRun -Undo"),
    ("Get-CalicoNode", "status", document("Status"), "(Get-CalicoNode).Problems"),
    ("Test-CalicoConnectivity", "verify", items("Probe", "Probes"), "Test-CalicoConnectivity -Pods"),
    ("Get-CalicoHistory", "history", items("PastRun", "Runs"), "Get-CalicoHistory | Select-Object -Last 5"),
    ("Get-CalicoLog", "logs", document("LogLine"), "Get-CalicoLog -Component felix -Since 10m"),
    (
        "Get-CalicoGeneration",
        "receipt list",
        items("Generation", "Generations"),
        "Get-CalicoGeneration | Where-Object -Property CanGoBack",
    ),
    ("Get-CalicoReceipt", "receipt show", document("Receipt"), "(Get-CalicoReceipt -Generation 2).Owned"),
    ("Get-CalicoService", "service status", items("Service", "Services"), "Get-CalicoService"),
    ("Start-CalicoService", "service start", Change("Medium"), "Start-CalicoService"),
    ("Stop-CalicoService", "service stop", Change("High"), "Stop-CalicoService"),
    ("Restart-CalicoService", "service restart", Change("High"), "Restart-CalicoService"),
    ("Install-CalicoKubernetes", "kubernetes install", Change("High"), "Install-CalicoKubernetes -Config node.yaml"),
    ("Get-CalicoKubernetes", "kubernetes status", document("KubernetesStatus"), "(Get-CalicoKubernetes).Services"),
    ("Uninstall-CalicoKubernetes", "kubernetes uninstall", Change("High"), "Uninstall-CalicoKubernetes"),
    (
        "Get-CalicoNetwork",
        "network list",
        items("ListedNetwork", "Networks"),
        "Get-CalicoNetwork | Where-Object -Property Owner -NE other",
    ),
    (
        "Get-CalicoNetworkDetail",
        "network show",
        document("Network"),
        "(Get-CalicoNetworkDetail -Network Calico).Endpoints",
    ),
    ("Reset-CalicoNetwork", "network reset", Change("High"), "Reset-CalicoNetwork -WhatIf"),
    ("Get-CalicoConfig", "config show", items("ConfigField", "Fields"), "Get-CalicoConfig -Config node.yaml -Origins"),
    (
        "Compare-CalicoConfig",
        "config diff",
        items("SettingChange", "SettingsDiff"),
        "Compare-CalicoConfig -Config node.yaml",
    ),
    ("Test-CalicoConfig", "config validate", document("ConfigValidation"), "Test-CalicoConfig -Files node.yaml"),
    ("Import-CalicoConfig", "config import", IMPORT, "(Import-CalicoConfig -File config.ps1).Unread"),
    (
        "Get-CalicoCredential",
        "credentials show",
        items("Credential", "Credentials"),
        "Get-CalicoCredential | Sort-Object -Property Expires",
    ),
    ("Save-CalicoCredential", "credentials fetch", Change("Medium"), r"Save-CalicoCredential -Out C:\k\calico"),
    ("Update-CalicoCredential", "credentials rotate", Change("High"), "Update-CalicoCredential"),
    ("Get-CalicoRelease", "release list", items("Archive", "Archives"), "Get-CalicoRelease"),
    ("Save-CalicoRelease", "release download", Change("Medium"), "Save-CalicoRelease -Release v3.32.1"),
    (
        "Export-CalicoBundle",
        "release bundle",
        file("ReleaseVerification"),
        "(Export-CalicoBundle -Config node.yaml -Out bundle.zip).Sha256",
    ),
    (
        "Test-CalicoRelease",
        "release verify",
        document("ReleaseVerification"),
        "Test-CalicoRelease -Zip calico-windows-v3.32.1.zip",
    ),
    (
        "Expand-CalicoRelease",
        "release extract",
        Change("Medium"),
        r"Expand-CalicoRelease -Zip calico-windows-v3.32.1.zip -Dest C:\calico",
    ),
    ("Test-CalicoCluster", "cluster check", items("Check", "Checks"), "Test-CalicoCluster -Kubeconfig admin.conf"),
    (
        "Get-CalicoClusterPatch",
        "cluster prepare",
        items("ClusterPatch", "Patches"),
        "(Get-CalicoClusterPatch -Kubeconfig admin.conf).Command",
    ),
    (
        "Get-CalicoFleetPlan",
        "fleet plan",
        document("FleetPlan"),
        "(Get-CalicoFleetPlan -Config node.yaml -Image registry.example.com/calicoctl-win:0.1.0).Waves",
    ),
    (
        "Update-CalicoFleet",
        "fleet apply",
        Change("High"),
        "Update-CalicoFleet -Config node.yaml -Image registry.example.com/calicoctl-win:0.1.0 -MaxUnavailable 10%",
    ),
    ("Get-CalicoFleet", "fleet status", document("FleetStatus"), "(Get-CalicoFleet).Failures"),
    ("Suspend-CalicoFleet", "fleet pause", Change("Medium"), "Suspend-CalicoFleet"),
    ("Resume-CalicoFleet", "fleet resume", Change("Medium"), "Resume-CalicoFleet"),
    ("Restore-CalicoFleet", "fleet rollback", Change("High"), "Restore-CalicoFleet"),
    (
        "Initialize-CalicoCluster",
        "cluster prepare --apply",
        Change("High"),
        "Initialize-CalicoCluster -Kubeconfig admin.conf",
    ),
    (
        "Test-CalicoPolicy",
        "policy lint",
        items("PolicyFinding", "Findings"),
        "Test-CalicoPolicy -File policies.yaml | Where-Object -Property Severity -EQ fail",
    ),
    ("Test-CalicoWindows", "selftest --yes", SELFTEST, "Test-CalicoWindows | Where-Object -Property Verdict -EQ fail"),
    ("Export-CalicoDiagnosis", "diagnose", file("Diagnosis"), r"(Export-CalicoDiagnosis -Out C:\Temp\node.zip).Causes"),
    ("Get-CalicoExplanation", "explain", document("Explanation"), "(Get-CalicoExplanation -Id StrictAffinity).Text"),
    ("Get-CalicoVersion", "version", document("Version"), "(Get-CalicoVersion).Version"),
];

/// The commands without a function: what kubectl does, and what prints text.
const NO_FUNCTION: [&str; 24] = [
    "completion",
    "config init",
    "config schema",
    "dsc delete",
    "dsc export",
    "dsc get",
    "dsc manifest",
    "dsc schema",
    "dsc set",
    "dsc test",
    "fleet metrics",
    "metrics",
    "node cordon",
    "node drain",
    "node taint",
    "node uncordon",
    "node untaint",
    "options",
    "render ansible",
    "render cloud-config",
    "render dsc",
    "render fleet",
    "render terraform",
    "render user-data",
];

/// Options that PowerShell has in another way, that would end the objects, or that would make a question a change.
const NOT_PARAMETERS: [&str; 14] = [
    "help",
    "output",
    "yes",
    "no-input",
    "dry-run",
    "detailed-exitcode",
    "exit-codes",
    "verbose",
    "quiet",
    "color",
    "print-facts",
    "watch",
    "follow",
    "fix",
];

/// The only dry run that is another one than that of `-WhatIf`.
const OWN_DRY_RUN: [&str; 2] = ["fleet apply", "dry-run"];

/// Global options that have no effect on a command that only reads.
const OF_CHANGES: [&str; 3] = ["detach", "at-boot", "wait-for-lock"];

/// `delete-emptydir-data` is `DeleteEmptydirData`.
fn parameter(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split(['-', '_']).map(capital).collect()
}

fn values(arg: &Arg) -> Vec<String> {
    let values = arg.get_possible_values();
    values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned()).collect()
}

/// Whether it takes `true`, `false` and their like: `-Name` and `-Name:$false` in PowerShell.
fn is_boolean(arg: &Arg) -> bool {
    ["true", "false"].iter().all(|word| values(arg).iter().any(|value| value == word))
}

fn kind_of(arg: &Arg) -> String {
    let values = values(arg);
    match arg.get_action() {
        ArgAction::SetTrue => "[switch]".to_owned(),
        ArgAction::Append => "[string[]]".to_owned(),
        _ if is_boolean(arg) => "[switch]".to_owned(),
        _ if values.is_empty() => "[string]".to_owned(),
        _ => format!("[ValidateSet('{}')] [string]", values.join("', '")),
    }
}

fn parameters<'a>(tree: &'a Command, words: &'a str, way: &'a Way) -> impl Iterator<Item = &'a Arg> {
    let verb = command(tree, words);
    let reads = matches!(way, Read { .. });
    let global = tree.get_arguments().filter(move |arg| {
        arg.is_global_set() && !(reads && arg.get_long().is_some_and(|name| OF_CHANGES.contains(&name)))
    });
    let own = verb.get_arguments().filter(|arg| !arg.is_global_set());
    own.chain(global).filter(|arg| !arg.is_hide_set()).filter(move |arg| {
        let is_one = |name| !NOT_PARAMETERS.contains(&name) || [words, name] == OWN_DRY_RUN;
        arg.get_long().map_or_else(|| arg.is_positional(), is_one)
    })
}

fn command<'a>(tree: &'a Command, words: &str) -> &'a Command {
    let below = words.split(' ').filter(|word| !word.starts_with("--"));
    below.fold(tree, |at, word| at.find_subcommand(word).unwrap_or_else(|| panic!("{words}: {word}")))
}

fn function(tree: &Command, (name, words, way, example): &(&str, &str, Way, &str)) -> String {
    let verb = command(tree, words);
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    let (kind, says) = match way {
        Change(_) => {
            ("RunResult", "Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.")
        }
        Read { kind, writes: None, .. } => (*kind, "Changes nothing."),
        Read { kind, writes: Some(writes), .. } => (*kind, writes.says),
    };
    let mut text = format!(
        "\nfunction {name} {{\n    <#\n    .SYNOPSIS\n        {about}\n    .DESCRIPTION\n        Runs calicoctl-win {words}. {says}\n"
    );
    let (mut declared, mut options) = (Vec::new(), String::new());
    // `--apply` is part of the function.
    let fixed = |arg: &&Arg| {
        !arg.get_long().is_some_and(|long| words.split(' ').any(|word| word.trim_start_matches("--") == long))
    };
    for arg in parameters(tree, words, way).filter(fixed) {
        let name = parameter(arg.get_long().unwrap_or(arg.get_id().as_str()));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "    .PARAMETER {name}\n        {help}");
        let mandatory = if arg.is_required_set() { "[Parameter(Mandatory = $true)] " } else { "" };
        declared.push(format!("        {mandatory}{} ${name}", kind_of(arg)));
        let takes = if is_boolean(arg) && !matches!(arg.get_action(), ArgAction::SetTrue) { "=" } else { "" };
        let option = arg.get_long().map(|long| format!("--{long}{takes}")).unwrap_or_default();
        let _ = writeln!(options, "        {name} = '{option}'");
    }
    let _ = writeln!(text, "    .EXAMPLE\n        {example}\n    .OUTPUTS\n        CalicoctlWin.{kind}\n    #>");
    let binding = match way {
        Change(impact) | Read { writes: Some(Writes { impact, .. }), .. } => {
            format!("[CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = '{impact}')]")
        }
        Read { .. } => "[CmdletBinding()]".to_owned(),
    };
    let _ = writeln!(text, "    {binding}\n    [OutputType('CalicoctlWin.{kind}')]");
    let _ = writeln!(text, "    param(\n{}\n    )\n    $options = [ordered]@{{\n{options}    }}", declared.join(",\n"));
    if let Read { writes: Some(Writes { with, .. }), .. } = way {
        let given = if with.is_empty() { String::new() } else { format!("${with} -and ") };
        let what = words.trim_end_matches(" --yes");
        let _ = writeln!(text, "    if ({given}-not $PSCmdlet.ShouldProcess('calicoctl-win {what}')) {{ return }}");
    }
    let words = words.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    let given = format!("-Cmdlet $PSCmdlet -Command {words} -Bound $PSBoundParameters -Options $options");
    let _ = match way {
        Change(impact) => {
            let asks = match *impact {
                "High" => "($ConfirmPreference -ne 'None')",
                _ => "($ConfirmPreference -in 'Low', 'Medium')",
            };
            writeln!(text, "    Invoke-Change {given} -IsTrial $WhatIfPreference -Asks {asks}\n}}")
        }
        Read { kind, expand: "", .. } => writeln!(text, "    Read-Document {given} -Type '{kind}'\n}}"),
        Read { kind, expand, .. } => writeln!(text, "    Read-Document {given} -Type '{kind}' -Expand '{expand}'\n}}"),
    };
    text
}

fn functions() -> String {
    let tree = calicoctl_win::cli::tree();
    let head =
        "# Made of the command line by `CALICO_WIN_WRITE_DOCS=1 cargo test --test it -- powershell`: do not edit.\n";
    head.to_owned() + &FUNCTIONS.iter().map(|row| function(&tree, row)).collect::<String>()
}

#[test]
fn the_functions_of_the_module_are_those_of_the_command_line() {
    matches_the_code(&format!("{MODULE}/Commands.ps1"), &functions());
}

/// A name that exists is not enough: what the function passes on for a parameter must be taken, too.
#[test]
fn the_program_takes_every_option_as_the_functions_pass_it_on() {
    use clap::error::ErrorKind::{InvalidValue, NoEquals, TooFewValues, TooManyValues, UnknownArgument};
    let tree = calicoctl_win::cli::tree();
    let script = functions();
    let option = regex::Regex::new(r"(?m)^        (\w+) = '(--[a-z-]+)(=?)'$").unwrap();
    let mut wrong = Vec::new();
    for (name, words, ..) in &FUNCTIONS {
        let (_, own) = script.split_once(&format!("\nfunction {name} {{")).unwrap();
        let own = own.split("\nfunction ").next().unwrap();
        for found in option.captures_iter(own) {
            let (parameter, option, takes) = (&found[1], &found[2], &found[3]);
            let declared =
                own.lines().find(|line| line.trim_end_matches(',').ends_with(&format!(" ${parameter}"))).unwrap();
            let value = match declared.split_once("ValidateSet('") {
                _ if takes == "=" => "=false",
                _ if declared.contains("[switch]") => "",
                Some((_, set)) => &format!("={}", set.split('\'').next().unwrap()),
                None => "=1",
            };
            let line = ["calicoctl-win"].into_iter().chain(words.split(' ')).map(str::to_owned);
            let parsed = tree.clone().try_get_matches_from(line.chain([format!("{option}{value}")]));
            let kind = parsed.err().map(|error| error.kind());
            if kind.is_some_and(|kind| {
                [InvalidValue, NoEquals, TooFewValues, TooManyValues, UnknownArgument].contains(&kind)
            }) {
                wrong.push(format!("{name}: {option}{value}: {kind:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_page_on_powershell_has_every_function() {
    let tree = calicoctl_win::cli::tree();
    let row = |(name, words, way, _): &(&str, &str, Way, &str)| {
        let kind = match way {
            Change(_) => "RunResult",
            Read { kind, .. } => kind,
        };
        let about = command(&tree, words).get_about().map(ToString::to_string).unwrap_or_default();
        vec![format!("`{name}`"), format!("`{}`", words.trim_end_matches(" --yes")), format!("`{kind}`"), about]
    };
    let head = ["function", "command", "returns", ""].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(FUNCTIONS.iter().map(row)).collect();
    let page = read("docs/powershell.md");
    matches_the_code("docs/powershell.md", &with_table(&page, "functions", &table(&rows)));
}

#[test]
fn every_command_has_a_function_with_an_approved_verb() {
    let commands: BTreeSet<String> = crate::docs::commands();
    let words = |words: &str| words.split(" --").next().unwrap_or_default().to_owned();
    let known: BTreeSet<String> =
        FUNCTIONS.iter().map(|(_, command, ..)| words(command)).chain(NO_FUNCTION.map(str::to_owned)).collect();
    assert_eq!(commands, known);
    let wrong: Vec<&str> = FUNCTIONS.iter().map(|row| row.0).filter(|name| !is_approved(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_manifest_exports_every_function_and_has_the_programs_version() {
    let manifest = read(&format!("{MODULE}/CalicoctlWin.psd1"));
    let names: Vec<String> = FUNCTIONS.iter().map(|(name, ..)| format!("        '{name}'")).collect();
    let exported = format!("    FunctionsToExport = @(\n{}\n    )\n", names.join(",\n"));
    assert!(manifest.contains(&exported), "the manifest lacks\n{exported}");
    let version = format!("    ModuleVersion = '{}'\n", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&version), "the manifest lacks\n{version}");
    let (_, listed) = manifest.split_once("    FileList = @(").unwrap();
    let listed: BTreeSet<&str> =
        listed.split_once(')').unwrap().0.split(", ").map(|name| name.trim_matches('\'')).collect();
    let there: Vec<String> = std::fs::read_dir(crate::project().join(MODULE))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(listed, there.iter().map(String::as_str).collect());
}
