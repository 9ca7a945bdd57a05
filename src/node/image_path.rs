//! The command line of a service, as its `ImagePath` has it, taken apart.

/// A program and what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// As written, without its quotes; none for an empty line.
    pub program: Option<String>,
    pub args: Vec<String>,
}

impl CommandLine {
    /// From a service's `ImagePath`. A program that is not quoted ends at its `.exe`, else at the
    /// first blank. Only that is the program: arguments are never searched for one (defect B21).
    pub fn of_image_path(line: &str) -> Self {
        let line = line.trim();
        let (program, rest) = match line.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => line.split_at(unquoted_end(line)),
        };
        Self { program: Some(program.to_owned()).filter(|program| !program.is_empty()), args: split(rest) }
    }

    /// From what NSSM is told to run: the whole of `Application` is the program.
    pub fn of_nssm(application: &str, parameters: &str) -> Self {
        let program = application.trim().trim_matches('"').to_owned();
        Self { program: Some(program).filter(|program| !program.is_empty()), args: split(parameters) }
    }

    /// Whether the program is NSSM, whose own parameters say what really runs.
    pub fn is_nssm(&self) -> bool {
        let program = self.program.as_deref().unwrap_or_default().to_ascii_lowercase();
        let name = program.rsplit(['\\', '/']).next().unwrap_or_default();
        name.starts_with("nssm") && !name.contains(' ')
    }

    /// The value of an option under one of its names: `--config X` or `--config=X`. The last one
    /// counts, as it does for the programs themselves.
    pub fn option(&self, names: &[&str]) -> Option<&str> {
        let value = |index: usize, arg: &'_ str| -> Option<&str> {
            names.iter().find_map(|name| {
                let rest = self.args[index].strip_prefix(name)?;
                if arg == *name { self.args.get(index + 1).map(String::as_str) } else { rest.strip_prefix('=') }
            })
        };
        self.args.iter().enumerate().rev().find_map(|(index, arg)| value(index, arg))
    }
}

/// Where an unquoted program ends.
fn unquoted_end(line: &str) -> usize {
    let lower = line.to_ascii_lowercase();
    let ends = lower.match_indices(".exe").map(|(at, _)| at + 4);
    let whole = |end: &usize| line[*end..].chars().next().is_none_or(char::is_whitespace);
    ends.into_iter().find(whole).or_else(|| line.find(char::is_whitespace)).unwrap_or(line.len())
}

/// Splits arguments by the rules of `CommandLineToArgvW`: blanks part them but for those in quotes;
/// of backslashes before a quote, two are one and an odd one makes the quote a plain character.
pub fn split(text: &str) -> Vec<String> {
    let mut args = Vec::new();
    let (mut arg, mut begun, mut quoted, mut backslashes) = (String::new(), false, false, 0);
    for c in text.chars() {
        if c == '\\' {
            (backslashes, begun) = (backslashes + 1, true);
            continue;
        }
        if c == '"' {
            arg.extend(std::iter::repeat_n('\\', backslashes / 2));
            if backslashes % 2 == 1 {
                arg.push('"');
            } else {
                quoted = !quoted;
            }
            (backslashes, begun) = (0, true);
            continue;
        }
        arg.extend(std::iter::repeat_n('\\', std::mem::take(&mut backslashes)));
        if c.is_whitespace() && !quoted {
            if std::mem::take(&mut begun) {
                args.push(std::mem::take(&mut arg));
            }
        } else {
            arg.push(c);
            begun = true;
        }
    }
    arg.extend(std::iter::repeat_n('\\', backslashes));
    if begun {
        args.push(arg);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> (String, Vec<String>) {
        let line = CommandLine::of_image_path(line);
        (line.program.unwrap_or_default(), line.args)
    }

    #[test]
    fn b21_the_program_of_a_service_is_found_and_a_path_in_its_arguments_is_not_taken_for_it() {
        for (line, program, args) in [
            (
                r#""C:\Program Files\containerd\containerd.exe" --run-service"#,
                r"C:\Program Files\containerd\containerd.exe",
                &["--run-service"][..],
            ),
            (
                r#"C:\k\containerd.exe --log-file "D:\my logs\containerd.exe.log" --run-service"#,
                r"C:\k\containerd.exe",
                &["--log-file", r"D:\my logs\containerd.exe.log", "--run-service"],
            ),
            (r"C:\Program Files\containerd\Containerd.EXE", r"C:\Program Files\containerd\Containerd.EXE", &[]),
            (
                r"C:\Windows\System32\svchost.exe -k NetSvcs -p",
                r"C:\Windows\System32\svchost.exe",
                &["-k", "NetSvcs", "-p"],
            ),
            (r"C:\tools\run -v", r"C:\tools\run", &["-v"]),
            (r"C:\a.exeter\run.exe", r"C:\a.exeter\run.exe", &[]),
            ("", "", &[]),
        ] {
            let (have, rest) = parts(line);
            assert_eq!((have.as_str(), rest.iter().map(String::as_str).collect::<Vec<_>>()), (program, args.to_vec()));
        }
    }

    #[test]
    fn arguments_are_split_as_windows_splits_them() {
        for (text, args) in [
            (r#"  a  "b c" d\e "#, &["a", "b c", r"d\e"][..]),
            (r#""C:\dir\\" "a\"b" """#, &["C:\\dir\\", "a\"b", ""]),
            (r#"--config="C:\my config\c.toml""#, &[r"--config=C:\my config\c.toml"]),
        ] {
            assert_eq!(split(text), args, "{text}");
        }
    }

    #[test]
    fn an_option_is_found_in_both_forms_and_the_last_counts() {
        let line = CommandLine::of_image_path(r"C:\c.exe -c C:\a.toml --config=C:\b.toml --configure x");
        assert_eq!(line.option(&["--config", "-c"]), Some(r"C:\b.toml"));
        assert_eq!(line.option(&["--root"]), None);
        assert_eq!(CommandLine::of_image_path(r"C:\c.exe --config").option(&["--config"]), None);
    }

    #[test]
    fn nssm_is_known_by_its_name_and_says_what_it_runs() {
        assert!(CommandLine::of_image_path(r"C:\CalicoWindows\nssm-2.24\win64\nssm.exe").is_nssm());
        assert!(!CommandLine::of_image_path(r"C:\nssm\containerd.exe").is_nssm());
        let line = CommandLine::of_nssm(r"C:\Program Files\containerd\containerd.exe", r"-c C:\k\c.toml");
        assert_eq!(line.program.as_deref(), Some(r"C:\Program Files\containerd\containerd.exe"));
        assert_eq!(line.option(&["--config", "-c"]), Some(r"C:\k\c.toml"));
    }
}
