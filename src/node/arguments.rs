//! Parses the arguments in a service's command line.

/// The value of an option under one of its names: `--config X` or `--config=X`. The last one counts, as in the programs
/// themselves.
pub fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    let value = |index: usize| {
        names.iter().find_map(|name| match args[index].strip_prefix(name)? {
            "" => args.get(index + 1).map(String::as_str),
            rest => rest.strip_prefix('='),
        })
    };
    (0..args.len()).rev().find_map(value)
}

/// Splits arguments by the rules of `CommandLineToArgvW`: at blanks, except in quotes; before a quote, two backslashes
/// are one, and an odd one makes the quote a plain character.
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

    #[test]
    fn arguments_are_split_as_windows_splits_them() {
        for (text, args) in [
            (r#"  a  "b c" d\e "#, &["a", "b c", r"d\e"][..]),
            (r#""C:\dir\\" "a\"b" """#, &["C:\\dir\\", "a\"b", ""]),
            (r#"--config="C:\my config\c.toml""#, &[r"--config=C:\my config\c.toml"]),
            ("", &[]),
        ] {
            assert_eq!(split(text), args, "{text}");
        }
    }

    #[test]
    fn an_option_is_found_in_both_forms_and_the_last_counts() {
        let args = split(r"-c C:\a.toml --config=C:\b.toml --configure x");
        assert_eq!(option(&args, &["--config", "-c"]), Some(r"C:\b.toml"));
        assert_eq!(option(&args, &["-c"]), Some(r"C:\a.toml"));
        assert_eq!(option(&args, &["--root"]), None);
        assert_eq!(option(&split("--config"), &["--config"]), None, "nothing follows it");
    }
}
