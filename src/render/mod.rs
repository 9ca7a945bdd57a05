//! What a first boot runs: a script for the machine's user data, which gets this program and runs `apply` with a config.

mod ansible;
pub mod dsc;
mod terraform;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

pub use self::ansible::ansible;
pub use self::terraform::terraform;
use crate::values::Sha256;

/// The Terraform module fills in the same file, with `templatefile`.
const SCRIPT: &str = include_str!("../../packaging/terraform/user-data.ps1");

/// Where the script is on a machine whose cloud-config writes it.
const SCRIPT_PATH: &str = r"C:\Program Files\calicoctl-win-setup\apply.ps1";

/// How cloudbase-init is told to run a script again at the next boot (its documentation, exit codes 1001 to 1003).
const AGAIN_AT_NEXT_BOOT: &str = "1002";

/// The executable to download.
#[derive(Debug, Clone)]
pub struct Program {
    pub url: String,
    pub sha256: Sha256,
}

/// Who runs the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// It has exit codes of its own for a restart and for another try.
    CloudbaseInit,
    /// EC2Launch v2, at every start; it ignores exit codes.
    Ec2Launch,
    /// Another program, for example GCE's agent at every start, Azure's Run Command, or SSH.
    Script,
}

/// A script for the user data of a machine. `config` is a whole config document.
///
/// # Errors
/// When the config cannot be written as YAML.
pub fn user_data(runner: Runner, config: &Value, program: &Program) -> Result<String> {
    let script = script(runner, config, program)?;
    Ok(match runner {
        // Without `_sysnative` the script would run in a 32-bit PowerShell, for which System32 is another folder.
        Runner::CloudbaseInit => format!("#ps1_sysnative\r\n{script}"),
        Runner::Ec2Launch => format!("<powershell>\r\n{script}</powershell>\r\n<persist>true</persist>\r\n"),
        Runner::Script => script,
    })
}

/// The same as a cloud-config for cloudbase-init, which can be merged with another one.
///
/// Of the exit code of `runcmd` cloudbase-init reads only whether to restart: it does not run a cloud-config again for
/// [`AGAIN_AT_NEXT_BOOT`] (1.1.9, `RunCmdPlugin.process`). So `runcmd` tries again itself, for half an hour.
///
/// # Errors
/// As [`user_data`].
pub fn cloud_config(config: &Value, program: &Program) -> Result<String> {
    let script = script(Runner::CloudbaseInit, config, program)?;
    let tries = format!(
        "for ($try = 1; $try -le 30; $try++) {{ & '{SCRIPT_PATH}'; \
         if ($LASTEXITCODE -ne {AGAIN_AT_NEXT_BOOT}) {{ break }}; Start-Sleep -Seconds 60 }}; exit $LASTEXITCODE"
    );
    let document = json!({
        "write_files": [{ "path": SCRIPT_PATH, "encoding": "b64", "content": BASE64_STANDARD.encode(script) }],
        "runcmd": [format!("powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -Command \"{tries}\"")],
    });
    Ok(format!("#cloud-config\n{}", yaml(&document)?))
}

fn script(runner: Runner, config: &Value, program: &Program) -> Result<String> {
    let (codes, retry) = match runner {
        Runner::CloudbaseInit => ("cloudbase-init", AGAIN_AT_NEXT_BOOT),
        Runner::Ec2Launch | Runner::Script => ("simple", "1"),
    };
    let script = SCRIPT
        // The only text of another origin: in single quotes PowerShell reads only a quote as anything else.
        .replace("${url}", &program.url.replace('\'', "''"))
        .replace("${sha256}", &program.sha256.to_string())
        .replace("${config}", &BASE64_STANDARD.encode(yaml(config)?))
        .replace("${retry}", retry)
        .replace("${codes}", codes);
    Ok(script.replace('\n', "\r\n"))
}

fn yaml(value: &Value) -> Result<String> {
    serde_yaml::to_string(value).context("write the config as YAML")
}
