//! A program that is asked for its version: started with a few words, and ended when it does not answer.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long it may take. Windows' virus scanner reads a new program of a hundred megabytes first.
const LIMIT: Duration = Duration::from_secs(60);

/// More than any version is, and too little to hurt.
const MOST: u64 = 4096;

/// Runs a program and gives what it writes, errors after the rest.
///
/// # Errors
/// When it cannot be run, ends with a code other than 0, or is not done in a minute.
pub fn answer(program: &Path, words: &[&str]) -> Result<String> {
    answer_within(program, words, LIMIT)
}

fn answer_within(program: &Path, words: &[&str], limit: Duration) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Windows cannot load its own libraries without it.
    command.envs(std::env::var_os("SystemRoot").map(|root| ("SystemRoot", root)));
    let mut child = start(&mut command)?;
    let said = [read(child.stdout.take()), read(child.stderr.take())];
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for its end")? {
            break status;
        }
        if begun.elapsed() >= limit {
            drop(child.kill().and_then(|()| child.wait()));
            bail!("it says nothing for {} s", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    };
    let said = said.map(|pipe| pipe.join().unwrap_or_default()).concat();
    let said = said.trim();
    if !status.success() {
        let code = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
        bail!("it ended with {code}: {said}");
    }
    Ok(said.to_owned())
}

/// A program that was written this moment may still be open for it.
fn start(command: &mut Command) -> Result<Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < 20 => tries += 1,
            started => return started.context("start it"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Reads to the end on a thread of its own, so that no full pipe holds the program up.
fn read(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            drop(pipe.by_ref().take(MOST).read_to_end(&mut bytes));
            // The rest is nobody's, but has to go somewhere.
            drop(std::io::copy(&mut pipe, &mut std::io::sink()));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn what_a_program_says_and_how_it_fails() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        use std::time::Duration;

        // What comes of a program with this text.
        let asked = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join("calico-node.exe");
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            match super::answer_within(&program, &["-v"], Duration::from_secs(1)) {
                Ok(said) => format!("said {said}"),
                Err(error) => format!("failed {error:#}"),
            }
        };
        assert_eq!(asked("#!/bin/sh\necho v3.32.1 $1\n"), "said v3.32.1 -v");
        assert_eq!(asked("#!/bin/sh\necho broken >&2; exit 3\n"), "failed it ended with exit code 3: broken");
        assert_eq!(asked("#!/bin/sh\nwhile :; do :; done\n"), "failed it says nothing for 1 s");
        assert!(asked("MZ\u{0}\u{1}no program").starts_with("failed start it: "));
        let much = asked("#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8; do printf '%4096s' x; printf '%20000s' y >&2; done\n");
        assert!(much.starts_with("said x"), "{much}");
    }
}
