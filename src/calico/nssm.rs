//! NSSM, the wrapper with which upstream's scripts register Calico's services, and with which some clouds run
//! containerd and kubelet: finds the program that such a service runs. This program never uses it (defect B1: upstream's
//! archive and scripts did not agree on its path).

use crate::item::{RegValue, Service};

/// What NSSM runs, from the service's registry key `Parameters`. Texts are as written there, with `%NAME%` not
/// expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapped {
    pub application: String,
    /// Its arguments, as one command line.
    pub arguments: String,
    pub directory: Option<String>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    /// `NAME=value` each: `AppEnvironment`, then `AppEnvironmentExtra`.
    pub environment: Vec<String>,
}

/// A service that upstream's scripts registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The folder that Calico was unpacked to, for example `C:\CalicoWindows`.
    pub root: String,
    /// `node`, `felix`, `confd` or `upgrade`.
    pub part: &'static str,
    pub path: String,
}

const PARTS: [&str; 4] = ["node", "felix", "confd", "upgrade"];

/// Whether NSSM runs this service: its executable's name begins with `nssm`.
pub fn is_nssm(service: &Service) -> bool {
    split(&service.image_path).is_some_and(|(program, _)| {
        let name = file_name(program).to_ascii_lowercase();
        name.starts_with("nssm") && name.ends_with(".exe")
    })
}

/// What an NSSM service runs; none for another service, or if the application is missing.
pub fn wrapped(service: &Service) -> Option<Wrapped> {
    if !is_nssm(service) {
        return None;
    }
    let value = |name: &str| {
        let found = service.parameters.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    };
    let text = |name: &str| match value(name) {
        Some(RegValue::String(text) | RegValue::ExpandString(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let lines = |name: &str| match value(name) {
        Some(RegValue::MultiString(lines)) => lines.clone(),
        _ => Vec::new(),
    };
    Some(Wrapped {
        application: text("Application")?,
        arguments: text("AppParameters").unwrap_or_default(),
        directory: text("AppDirectory"),
        stdout: text("AppStdout"),
        stderr: text("AppStderr"),
        environment: [lines("AppEnvironment"), lines("AppEnvironmentExtra")].concat(),
    })
}

/// The program that a service runs, without quotes, and its arguments as one command line: for an NSSM service from its
/// parameters, for any other from its own command line. A path among the arguments is never mistaken for the program
/// (defect B21). None if neither is there.
pub fn program(service: &Service) -> Option<(String, String)> {
    if is_nssm(service) {
        return wrapped(service).map(|wrapped| (wrapped.application, wrapped.arguments));
    }
    split(&service.image_path).map(|(program, arguments)| (program.to_owned(), arguments.to_owned()))
}

/// The command line that a service runs: that of NSSM's program, not NSSM's own.
pub fn command(service: &Service) -> String {
    wrapped(service).map_or_else(
        || service.image_path.clone(),
        |wrapped| format!("{} {}", wrapped.application, wrapped.arguments).trim_end().to_owned(),
    )
}

/// The script of upstream Calico that a service runs: NSSM with PowerShell and
/// `<root>\<part>\<part>-service.ps1`.
pub fn script(service: &Service) -> Option<Script> {
    let wrapped = wrapped(service)?;
    let shell = file_name(wrapped.application.trim_matches('"')).to_ascii_lowercase();
    if !matches!(shell.strip_suffix(".exe").unwrap_or(&shell), "powershell" | "pwsh") {
        return None;
    }
    // The scripts write the bare path; a service registered by hand may have -File "path".
    let arguments = wrapped.arguments.trim();
    let path = match arguments.to_ascii_lowercase().rfind("-file ") {
        Some(at) => arguments.get(at + "-file ".len()..)?,
        None => arguments,
    };
    let path = path.trim().trim_matches('"');
    let lower = path.to_ascii_lowercase().replace('/', "\\");
    PARTS.into_iter().find_map(|part| {
        let root = lower.strip_suffix(&format!(r"\{part}\{part}-service.ps1"))?;
        Some(Script { root: path.get(..root.len())?.to_owned(), part, path: path.to_owned() })
    })
}

/// Splits a service's command line into program and arguments by Windows's rules: the program is quoted, or ends with
/// the first `.exe` that ends a word, or else at the first blank.
pub fn split(command_line: &str) -> Option<(&str, &str)> {
    let line = command_line.trim();
    let (program, arguments) = if let Some(rest) = line.strip_prefix('"') {
        rest.split_once('"').unwrap_or((rest, ""))
    } else {
        // ASCII lower case keeps every byte where it is.
        let lower = line.to_ascii_lowercase();
        let ends_word = |at: usize| lower[at..].chars().next().is_none_or(char::is_whitespace);
        let end = lower.match_indices(".exe").map(|(at, word)| at + word.len()).find(|&at| ends_word(at));
        let end = end.or_else(|| line.find(char::is_whitespace)).unwrap_or(line.len());
        line.split_at(end)
    };
    (!program.is_empty()).then(|| (program, arguments.trim()))
}

fn file_name(path: &str) -> &str {
    path.rsplit(['\\', '/']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::services::services;
    use crate::calico::testing::{nssm, settings};
    use crate::item::StartType;
    use crate::settings::Backend;

    fn plain(image_path: &str) -> Service {
        Service {
            display_name: "x".into(),
            description: String::new(),
            image_path: image_path.into(),
            account: "LocalSystem".into(),
            start: StartType::Auto,
            depends_on: Vec::new(),
            restart_after: Vec::new(),
            recovery: None,
            parameters: Default::default(),
        }
    }

    #[test]
    fn b21_the_program_is_found_and_not_mistaken_for_a_path_in_the_arguments() {
        let rows = [
            r#""C:\Program Files\containerd\containerd.exe" --run-service --log-file C:\logs\c.exe"#,
            r"C:\Program Files\containerd\containerd.exe --config C:\etc\config.toml",
            r"C:\opt.executables\containerd.EXE",
            r"\SystemRoot\System32\svchost -k netsvcs",
            r#""C:\torn quote\x.exe"#,
            "",
        ];
        let told = rows.map(|row| format!("{:?}", program(&plain(row)))).join("\n");
        insta::assert_snapshot!(told, @r#"
        Some(("C:\\Program Files\\containerd\\containerd.exe", "--run-service --log-file C:\\logs\\c.exe"))
        Some(("C:\\Program Files\\containerd\\containerd.exe", "--config C:\\etc\\config.toml"))
        Some(("C:\\opt.executables\\containerd.EXE", ""))
        Some(("\\SystemRoot\\System32\\svchost", "-k netsvcs"))
        Some(("C:\\torn quote\\x.exe", ""))
        None
        "#);
    }

    #[test]
    fn what_nssm_runs_is_read_from_its_parameters() {
        let mut containerd = plain(r"C:\k\nssm.exe");
        let text = |text: &str| RegValue::ExpandString(text.into());
        containerd.parameters = [
            ("application".to_owned(), text(r"C:\Program Files\containerd\containerd.exe")),
            ("AppParameters".to_owned(), text(r"--config C:\c\config.toml")),
            ("AppEnvironmentExtra".to_owned(), RegValue::MultiString(vec!["A=1".into(), "B=2".into()])),
            (r"AppExit\".to_owned(), RegValue::String("Restart".into())),
        ]
        .into();
        insta::assert_snapshot!(format!("{:#?}\n{:?}", wrapped(&containerd).unwrap(), program(&containerd)), @r#"
        Wrapped {
            application: "C:\\Program Files\\containerd\\containerd.exe",
            arguments: "--config C:\\c\\config.toml",
            directory: None,
            stdout: None,
            stderr: None,
            environment: [
                "A=1",
                "B=2",
            ],
        }
        Some(("C:\\Program Files\\containerd\\containerd.exe", "--config C:\\c\\config.toml"))
        "#);
        assert_eq!(script(&containerd), None);
        // NSSM's name in an argument does not make a service an NSSM service.
        assert!(!is_nssm(&plain(r"C:\k\kubelet.exe --log C:\k\nssm.exe")));
        assert_eq!(program(&plain(r"C:\k\nssm.exe")), None, "NSSM with nothing to run");
    }

    #[test]
    fn b1_no_service_of_ours_needs_nssm() {
        for backend in [Backend::Vxlan, Backend::WindowsBgp, Backend::None] {
            let mut settings = settings("v3.24.3");
            settings.network.backend = backend;
            for (name, service) in services(backend) {
                assert!(!is_nssm(&service) && service.parameters.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn upstreams_services_are_recognized_by_their_script() {
        let felix = nssm("felix");
        let script_of = |arguments: &str| {
            let mut service = felix.clone();
            service.parameters.insert("AppParameters".into(), RegValue::ExpandString(arguments.into()));
            script(&service)
        };
        let expected = Script {
            root: r"C:\CalicoWindows".into(),
            part: "felix",
            path: r"C:\CalicoWindows\felix\felix-service.ps1".into(),
        };
        assert_eq!(script(&felix), Some(expected.clone()));
        assert_eq!(script_of(r#"-NoProfile -File "C:\CalicoWindows\felix\felix-service.ps1""#), Some(expected));
        let spaced = script_of(r"D:\my calico\upgrade\Upgrade-Service.ps1").unwrap();
        assert_eq!((spaced.root.as_str(), spaced.part), (r"D:\my calico", "upgrade"));
        for other in [r"C:\CalicoWindows\kubernetes\kubelet-service.ps1", r"C:\x\node\felix-service.ps1", ""] {
            assert_eq!(script_of(other), None, "{other}");
        }
    }
}
