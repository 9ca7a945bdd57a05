//! Commands in blocks: those of this program are parsed by its own command line, cmdlets are looked up in what Windows
//! has and in the module, and other programs are in a list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use calicoctl_win::config::{self, Origin, Override};
use regex::Regex;

use super::{Block, programs};
use crate::{powershell, project};

/// Cmdlets of Windows Server's own modules, which are not among the recorded ones, with the parameters in use here.
const OF_WINDOWS: [(&str, &[&str]); 11] = [
    ("Expand-Archive", &["path", "destinationpath"]),
    ("Get-BgpPeer", &[]),
    ("Get-BgpRouter", &[]),
    ("Get-HnsNetwork", &[]),
    ("Get-NetAdapter", &[]),
    ("Get-NetIPAddress", &["addressfamily"]),
    ("Get-NetRoute", &["destinationprefix"]),
    ("Install-RemoteAccess", &["vpntype"]),
    ("Install-WindowsFeature", &["name", "includemanagementtools"]),
    ("Set-NetFirewallProfile", &["enabled"]),
    ("Test-NetConnection", &["computername", "port"]),
];

/// Every function that a PowerShell session with the module has besides Windows' own.
static KNOWN: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let windows = OF_WINDOWS.iter().map(|(name, has)| {
        (name.to_lowercase(), has.iter().map(|parameter| (*parameter).to_owned()).collect::<BTreeSet<_>>())
    });
    powershell::of_the_module().into_iter().chain(windows).collect()
});

/// Returns what is wrong with a PowerShell script.
pub fn powershell(script: &str) -> Vec<String> {
    if powershell::errors(script).is_some() {
        return vec![format!("not valid PowerShell: {script}")];
    }
    let calls = powershell::calls(script);
    let programs: BTreeSet<&str> =
        calls.iter().map(|(name, _)| name.as_str()).filter(|name| is_program(name)).collect();
    let unknown = powershell::unknown(script, &KNOWN).into_iter();
    // Programs are not cmdlets.
    let mut wrong: Vec<String> = unknown.filter(|what| !what.split(' ').any(|word| programs.contains(word))).collect();
    wrong.extend(calls.iter().filter(|(name, _)| is_own(name)).flat_map(|(_, call)| own(call)));
    wrong.extend(calls.iter().flat_map(|(_, call)| programs::unknown_flags(&words(call))));
    wrong
}

/// Returns what is wrong with commands of a Linux shell.
pub fn shell(script: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for words in of_shell(script) {
        if is_own(&words[0]) {
            wrong.extend(own(&words.join(" ")));
        } else if !is_program(&words[0]) {
            wrong.push(format!("{} is not among the known programs", words[0]));
        }
        wrong.extend(programs::unknown_flags(&words));
    }
    wrong
}

/// The commands of a Linux shell, each as its words without assignments before it. Commands in `$(...)` are apart.
pub fn of_shell(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ").replace("|\n", "| ").replace("cargo run -- ", "calicoctl-win ");
    let substituted = Regex::new(r"\$\(([^()]*)\)").expect("it is one");
    let inner: String = substituted.captures_iter(&script).map(|found| format!("{}\n", &found[1])).collect();
    let script = inner + &substituted.replace_all(&script, "VALUE");
    let commands = script.lines().map(without_comment).flat_map(|line| line.split(" | ").map(str::trim));
    let words = commands.map(|command| words(command).into_iter().skip_while(|word| is_assignment(word)).collect());
    words.filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// Whether a block has a command of this program.
pub fn has_own(block: &Block) -> bool {
    let in_powershell = |script: &str| powershell::calls(script).iter().any(|(name, _)| is_own(name));
    let in_shell = |script: &str| of_shell(script).iter().any(|words| is_own(&words[0]));
    match block.language.as_str() {
        "powershell" => in_powershell(&block.text),
        "sh" => in_shell(&block.text),
        "console" => in_powershell(&block.prompted("> ")) || in_shell(&block.prompted("$ ")),
        _ => false,
    }
}

/// Returns what is wrong with lines of prose and commands, as checks have them, and with options on lines of their own.
pub fn advice(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| without_comment(line.trim()));
    lines
        .flat_map(|line| match line {
            line if line.starts_with("calicoctl-win ") => own(line),
            line if line.starts_with("--") => own(&format!("calicoctl-win plan {line}")),
            _ => of_shell(line).iter().flat_map(|words| programs::unknown_flags(words)).collect(),
        })
        .collect()
}

/// The calls of this program in a block, each as its words after the program's name.
pub fn own_calls(language: &str, text: &str) -> Result<Vec<String>, String> {
    let of = |name: &str, call: &str| {
        let call = without_redirection(call);
        match call.split_once(' ') {
            Some((_, rest)) if is_own(name) => Ok(rest.trim().to_owned()),
            _ => Err(format!("{call}: only commands of calicoctl-win run in the sandbox")),
        }
    };
    match language {
        "powershell" => powershell::calls(text).iter().map(|(name, call)| of(name, call)).collect(),
        _ => {
            let lines = text.replace("\\\n", " ").replace("cargo run -- ", "calicoctl-win ");
            let commands = lines.lines().map(without_comment).filter(|line| !line.is_empty());
            commands.map(|line| of(line.split(' ').next().unwrap_or_default(), line)).collect()
        }
    }
}

fn is_own(name: &str) -> bool {
    let name = name.trim_matches(|c| c == '\'' || c == '"').trim_end_matches(".exe");
    name == "calicoctl-win" || name.ends_with(r"\calicoctl-win")
}

fn is_program(name: &str) -> bool {
    let path = name.trim_start_matches(r".\").replace('\\', "/");
    let scripts = format!("docs/scripts/{path}");
    let is_file = |path: &str| path.contains('.') && project().join(path).is_file();
    is_own(name) || programs::is_run(name) || is_file(&path) || is_file(&scripts)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') { "" } else { line.split(" #").next().unwrap_or_default().trim() }
}

fn without_redirection(call: &str) -> &str {
    call.split(" >").next().unwrap_or_default().trim()
}

/// The words of a command; quotes join words.
pub fn words(command: &str) -> Vec<String> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"(?:'[^']*'|"[^"]*"|[^\s'"])+"#).expect("it is one"));
    WORD.find_iter(command).map(|word| word.as_str().replace(['\'', '"'], "")).collect()
}

/// Returns what is wrong with a call of this program.
pub fn own(call: &str) -> Vec<String> {
    let call = without_redirection(call);
    let digest = "0".repeat(64);
    let words: Vec<String> = words(call).iter().skip(1).map(|word| word.replace("HEX", &digest)).collect();
    let line = std::iter::once("calicoctl-win".to_owned()).chain(words.iter().cloned());
    let mut wrong = Vec::new();
    if let Err(error) = calicoctl_win::cli::tree().try_get_matches_from(line)
        && error.use_stderr()
    {
        wrong.push(format!("{call}: {}", error.to_string().lines().next().unwrap_or_default()));
    }
    let values = |flag: &str| -> Vec<String> {
        let joined = words.iter().filter_map(|word| Some(word.strip_prefix(flag)?.strip_prefix('=')?.to_owned()));
        let next = words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].clone());
        joined.chain(next).collect()
    };
    for set in values("--set") {
        let (path, value) = set.split_once('=').unwrap_or((&set, ""));
        let given = Override { path: path.to_owned(), value: value.to_owned(), from: Origin::Set };
        wrong.extend(config::load(&[], &[given]).err().map(|error| format!("{call}: {error:#}")));
    }
    for path in values("--unset") {
        let path = format!("spec.{}", path.trim_start_matches("spec."));
        let known = config::fields().any(|field| field.path == path || field.path.starts_with(&format!("{path}.")));
        wrong.extend((!known).then(|| format!("{call}: there is no field {path}")));
    }
    wrong
}
