//! Asks a program for its version: starts it, and ends it if it does not answer.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};
use serde::Deserialize;

/// The time limit. Windows' virus scanner first reads a new program of a hundred megabytes.
pub const LIMIT: Duration = Duration::from_secs(60);

/// More than any version, and too little to do harm.
const MOST: usize = 4096;

/// How long the output of a program that has ended is still read.
const REST: Duration = Duration::from_secs(2);

/// Runs a program and returns its output, stdout before stderr.
///
/// # Errors
/// When it cannot be started, ends with a code other than 0, or takes more than a minute.
pub fn answer(program: &Path, words: &[&str]) -> Result<String> {
    answer_within(program, words, &[], LIMIT)
}

/// Runs a CNI plugin, and returns the versions of the CNI specification that it supports.
///
/// # Errors
/// As [`answer`]; when its answer is not the specification's.
pub fn cni_versions(plugin: &Path) -> Result<Vec<String>> {
    let said = answer_within(plugin, &[], &[("CNI_COMMAND", "VERSION")], LIMIT)?;
    let first = serde_json::Deserializer::from_str(&said).into_iter::<CniAnswer>().next();
    let said: CniAnswer = first.context("it answers nothing")?.with_context(|| format!("it answers {said}"))?;
    Ok(said.supported_versions)
}

/// The answer of a plugin to `VERSION`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CniAnswer {
    supported_versions: Vec<String>,
}

fn answer_within(program: &Path, words: &[&str], env: &[(&str, &str)], limit: Duration) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(env.iter().copied());
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
            return Err(silent(limit));
        }
        thread::sleep(Duration::from_millis(10));
    };
    // What it started may hold the pipes open for as long as it lives: the program's own words are in them by now.
    let ended = Instant::now();
    let said = said.map(|pipe| pipe.said_within(REST.saturating_sub(ended.elapsed()))).concat();
    let said = said.trim();
    if !status.success() {
        let code = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
        bail!("it ended with {code}: {said}");
    }
    Ok(said.to_owned())
}

/// The error for a program that does not answer within a limit.
pub fn silent(limit: Duration) -> Error {
    anyhow!("it says nothing for {} s", limit.as_secs())
}

/// A program that was just written may still be open for writing.
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

/// What comes out of a pipe, read on its own thread so that a full one does not block the program.
struct Said {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: mpsc::Receiver<()>,
}

impl Said {
    /// The text so far, once the pipe has ended or the limit is over.
    fn said_within(&self, limit: Duration) -> String {
        let _over_or_ended = self.end.recv_timeout(limit);
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

fn read(pipe: Option<impl Read + Send + 'static>) -> Said {
    let bytes = Arc::<Mutex<Vec<u8>>>::default();
    let (ended, end) = mpsc::channel();
    let kept = Arc::clone(&bytes);
    thread::spawn(move || {
        let (Some(mut pipe), mut piece) = (pipe, [0; 1024]) else { return };
        // Discards what is too much, so that the pipe is drained.
        while let Ok(read @ 1..) = pipe.read(&mut piece) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MOST.saturating_sub(kept.len());
            kept.extend_from_slice(&piece[..read.min(room)]);
        }
        drop(ended);
    });
    Said { bytes, end }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn a_programs_output_and_its_failures_are_reported() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        use std::time::Duration;

        // The result for a program with this text.
        let asked = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join("calico-node.exe");
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            match super::answer_within(&program, &["-v"], &[], Duration::from_secs(1)) {
                Ok(said) => format!("said {said}"),
                Err(error) => format!("failed {error:#}"),
            }
        };
        assert_eq!(asked("#!/bin/sh\necho v3.32.1 $1\n"), "said v3.32.1 -v");
        assert_eq!(asked("#!/bin/sh\necho broken >&2; exit 3\n"), "failed it ended with exit code 3: broken");
        assert_eq!(asked("#!/bin/sh\nwhile :; do :; done\n"), "failed it says nothing for 1 s");
        assert!(asked("MZ\u{0}\u{1}no program").starts_with("failed start it: "));
        // What it leaves running has its pipes: nobody waits for that.
        let begun = std::time::Instant::now();
        assert_eq!(asked("#!/bin/sh\n/bin/sleep 300 &\necho v3.32.1\n"), "said v3.32.1");
        assert!(begun.elapsed() < Duration::from_secs(200));
        let much = asked("#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8; do printf '%4096s' x; printf '%20000s' y >&2; done\n");
        assert!(much.starts_with("said x"), "{much}");
    }
    #[cfg(unix)]
    #[test]
    fn a_cni_plugin_says_which_versions_it_supports() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;

        let asked = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join("calico.exe");
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            super::cni_versions(&program).map_err(|error| format!("{error:#}"))
        };
        let plugin =
            r#"[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","1.0.0"]}'"#;
        assert_eq!(asked(&format!("#!/bin/sh\n{plugin}; echo warning >&2\n")).unwrap(), ["0.3.1", "1.0.0"]);
        assert_eq!(asked("#!/bin/sh\n").unwrap_err(), "it answers nothing");
        assert!(asked("#!/bin/sh\necho v3.32.1\n").unwrap_err().starts_with("it answers v3.32.1: "));
        assert_eq!(asked("#!/bin/sh\nexit 3\n").unwrap_err(), "it ended with exit code 3: ");
    }
}
