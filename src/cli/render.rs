//! `render`: texts for other programs, made from one config.

use anyhow::Result;

use super::args::{Render, RenderProgram, RenderRunner};
use super::fleet;
use crate::apply::standing::Standing;
use crate::fault::{Exit, Fault};
use crate::render::{Program, Runner, ansible, cloud_config, dsc, terraform, user_data};
use crate::run::app::App;
use crate::run::options::Source;
use crate::run::sources::Sources;
use crate::run::{self, Ending};
use crate::values::has_login;

pub(crate) fn run(verb: &Render, app: &mut App) -> Result<Ending> {
    if app.global.config.is_empty() && app.global.set.is_empty() {
        return Err(Fault::new(Exit::Usage, "Usage", "no config to render")
            .hint("name a file with -c; a new one comes from: calicoctl-win config init node.yaml")
            .into());
    }
    let layered = Sources::named(app, &Source::default()).read(None, &Standing::default())?;
    let config = layered.whole_document();
    let text = match verb {
        Render::UserData { program, runner } => user_data(chosen(runner), &config, &made(program)?)?,
        Render::CloudConfig { program } => cloud_config(&config, &made(program)?)?,
        Render::Terraform { program, runner, module } => {
            terraform(chosen(runner), &config, &made(program)?, pinned(module)?)
        }
        Render::Ansible { program } => ansible(&config, &made(program)?)?,
        Render::Dsc => dsc::document(&config)?,
        Render::Fleet { change, through } => {
            let request = fleet::request(change);
            if request.wishes.zones.as_ref().is_some_and(Vec::is_empty) {
                let what =
                    "--zones auto: which zones the nodes have is known only in the cluster, which render does not read";
                return Err(Fault::new(Exit::Usage, "Usage", what)
                    .hint("name them, in their order, as in --zones europe-1a,europe-1b\nsee them with: kubectl get nodes -L topology.kubernetes.io/zone")
                    .into());
            }
            run::fleet::render(&request, through.as_deref(), app)?
        }
    };
    app.reporter.raw(&text);
    Ok(Ending::Quiet)
}

const fn chosen(runner: &RenderRunner) -> Runner {
    match (runner.ec2, runner.script) {
        (true, _) => Runner::Ec2Launch,
        (_, true) => Runner::Script,
        _ => Runner::CloudbaseInit,
    }
}

/// The source of a module, which must not change later: a folder, or what is fetched with its version.
fn pinned(module: &str) -> Result<&str> {
    let fetched = ["::", "://", "git@", "github.com/"].iter().any(|part| module.contains(part));
    if fetched && !module.contains("ref=") && !module.contains("checksum=") {
        return Err(Fault::new(Exit::Usage, "Usage", format!("--module: `{module}` names no version"))
            .hint("name one, as in git::https://HOST/REPOSITORY.git//packaging/terraform?ref=v0.1.0, or a folder")
            .into());
    }
    Ok(module)
}

/// The parameter of a URL with which anyone may fetch what it names: those of S3, Google Cloud Storage, CloudFront and
/// Azure's shared access signatures (`sig`), and tokens.
fn signs(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    query.split(['&', ';']).map(|one| one.split_once('=').map_or(one, |(name, _)| name)).find(|name| {
        let name = name.to_ascii_lowercase();
        name == "sig" || ["signature", "token", "secret", "password"].iter().any(|word| name.contains(word))
    })
}

fn made(program: &RenderProgram) -> Result<Program> {
    let url = &program.program_url;
    let character = |c: char| c.is_ascii_alphanumeric() || "._~:/?#@!$&'()*+,;=%[]-".contains(c);
    if has_login(url) {
        // The error does not repeat it.
        return Err(Fault::new(Exit::Usage, "Usage", "--program-url must not have a user or password")
            .hint("every process on the machine can read its user data; use a URL that needs no login")
            .into());
    }
    if let Some(name) = signs(url) {
        let what = format!("--program-url must not be signed: `{name}` in it is a secret");
        return Err(Fault::new(Exit::Usage, "Usage", what)
            .hint("every process on the machine can read its user data; serve the program without a signature")
            .into());
    }
    if !(url.starts_with("https://") || url.starts_with("http://")) || !url.chars().all(character) {
        return Err(Fault::new(Exit::Usage, "Usage", format!("--program-url: `{url}` is no URL"))
            .hint("write it as https://HOST/calicoctl-win.exe")
            .into());
    }
    let sha256 = program.program_sha256.parse().map_err(|problem: String| {
        Fault::new(Exit::Usage, "Usage", format!("--program-sha256: {problem}"))
            .hint("certutil -hashfile calicoctl-win.exe SHA256 shows it")
    })?;
    Ok(Program { url: url.clone(), sha256 })
}
