//! `render`: texts for other programs, made from one config.

use anyhow::Result;

use super::args::{Render, RenderProgram};
use crate::apply::standing::Standing;
use crate::fault::{Exit, Fault};
use crate::render::{Program, Runner, cloud_config, user_data};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::options::Source;
use crate::run::sources::Sources;

pub(crate) fn run(verb: &Render, app: &mut App) -> Result<Ending> {
    if app.global.config.is_empty() && app.global.set.is_empty() {
        return Err(Fault::new(Exit::Usage, "Usage", "no config to render")
            .hint("name a file with -c; a new one comes from: calicoctl-win config init node.yaml")
            .into());
    }
    let layered = Sources::named(app, &Source::default()).read(None, &Standing::default())?;
    let config = layered.whole_document();
    let text = match verb {
        Render::UserData { program, ec2 } => {
            let runner = if *ec2 { Runner::Ec2Launch } else { Runner::CloudbaseInit };
            user_data(runner, &config, &made(program)?)?
        }
        Render::CloudConfig { program } => cloud_config(&config, &made(program)?)?,
    };
    app.reporter.raw(&text);
    Ok(Ending::Quiet)
}

fn made(program: &RenderProgram) -> Result<Program> {
    let url = &program.program_url;
    if !(url.starts_with("https://") || url.starts_with("http://")) || url.contains(char::is_whitespace) {
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
