//! `dsc`: this node as a resource of Microsoft's Desired State Configuration, version 3. The engine starts a process for
//! each operation, with the desired state on stdin; the state of the node is a line of JSON on stdout, and stderr has
//! only lines of JSON ([docs/dsc.md]).

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::args::Dsc;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::config::{API_VERSION, KIND};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::show::shown;
use crate::render::dsc::{EXIST, IN_DESIRED_STATE, RESTART_REQUIRED, manifest, schema};
use crate::report::reporter::Format;
use crate::run::app::App;
use crate::run::change::ChangeRequest;
use crate::run::context::Operation;
use crate::run::options::{DrainFlags, ExitCodes, Global, Source, Uninstall};
use crate::run::prepare::{effective, prepare};
use crate::run::sources::{Choice, Sources};
use crate::run::stage::Purpose;
use crate::run::verb::{APPLY, UNINSTALL};
use crate::run::{Ending, change, uninstall};
use crate::yaml;

/// The options that the protocol decides: nobody can be asked, and every exit code but 0 is a failure.
pub(super) fn fix(options: &mut Global) {
    options.output = Some(Format::Dsc);
    options.yes = true;
    options.detailed_exitcode = false;
    options.exit_codes = ExitCodes::Simple;
}

pub(super) fn run(verb: &Dsc, app: &mut App) -> Result<Ending> {
    match verb {
        Dsc::Manifest => app.reporter.raw(&format!("{:#}\n", manifest())),
        Dsc::Schema => app.reporter.raw(&format!("{:#}\n", schema())),
        Dsc::Get => {
            let state = state(&*app.node()?)?;
            print(app, &state);
        }
        Dsc::Export => {
            let state = state(&*app.node()?)?;
            // One line for each instance, of which a node has one or none.
            if exists(&state) {
                print(app, &state);
            }
        }
        Dsc::Test => {
            let Looked { mut now, differ, .. } = look(app)?;
            now.insert(IN_DESIRED_STATE.into(), differ.is_empty().into());
            print(app, &now);
            print(app, &differ);
        }
        Dsc::Set { what_if } if *what_if || app.global.is_dry_run() => {
            let Looked { after, differ, .. } = look(app)?;
            print(app, &after);
            print(app, &differ);
        }
        Dsc::Set { .. } => return set(app),
        Dsc::Delete => {
            read_desired(app, false)?;
            return uninstall::run(&Uninstall::default(), app);
        }
    }
    Ok(Ending::Quiet)
}

fn print(app: &mut App, line: &(impl serde::Serialize + ?Sized)) {
    app.reporter.raw(&format!("{}\n", json!(line)));
}

/// Reads an instance from stdin, as the config of this run. Returns whether Calico must be installed; `exists`, if the
/// instance does not say it.
fn read_desired(app: &mut App, exists: bool) -> Result<bool> {
    let bytes = app.stdin.read().context("read the instance from stdin")?;
    let mut text = std::str::from_utf8(bytes).context("read the instance from stdin")?.to_owned();
    let mut exist = exists;
    // What is no object is refused as any other invalid config.
    if let Ok(Value::Object(mut instance)) = yaml::read::<Value>(&text) {
        exist = match instance.remove(EXIST) {
            None => exists,
            Some(Value::Bool(exist)) => {
                // It says what is wanted, also without a field.
                if exist {
                    instance.entry("apiVersion").or_insert(API_VERSION.into());
                    instance.entry("kind").or_insert(KIND.into());
                }
                exist
            }
            Some(other) => {
                let what = format!("the instance on stdin: {EXIST} is {other}");
                return Err(Fault::new(Exit::InvalidConfig, "ConfigInvalid", what)
                    .hint("write true or false, or leave it out")
                    .into());
            }
        };
        // What a former `get` or `test` returned.
        instance.remove(IN_DESIRED_STATE);
        instance.remove(RESTART_REQUIRED);
        text = Value::Object(instance).to_string();
    }
    if exist || text != "{}" {
        app.global.config.push("-".into());
        app.stdin.means(text);
        // A removal works without a valid config; but what is not an instance must not remove Calico.
        Sources::named(app, &Source::default()).read(None, &Standing::default())?;
    }
    Ok(exist)
}

/// The state of the node: the config that the current generation was made with.
fn state(node: &dyn Node) -> Result<Map<String, Value>> {
    let standing = Standing::load(node)?;
    let Some(receipt) = standing.receipt() else { return Ok(absent()) };
    Ok(present(store::effective(node, receipt)?.unwrap_or_default()))
}

fn absent() -> Map<String, Value> {
    Map::from_iter([(EXIST.to_owned(), false.into())])
}

/// The state of a node with these fields of the config. A value that may be secret is left out.
fn present(fields: impl IntoIterator<Item = (String, Value)>) -> Map<String, Value> {
    let mut state = json!({ "apiVersion": API_VERSION, "kind": KIND, EXIST: true });
    for (path, value) in fields.into_iter().filter(|(path, value)| shown(path, value) == *value) {
        // Sections that do not exist yet are created.
        let place = path.split('.').fold(&mut state, |section, name| &mut section[name]);
        *place = value;
    }
    let Value::Object(state) = state else { unreachable!("it was made as an object") };
    state
}

fn exists(state: &Map<String, Value>) -> bool {
    state[EXIST] == true
}

/// What a change to the desired state would do.
struct Looked {
    now: Map<String, Value>,
    after: Map<String, Value>,
    /// The properties that differ; none if the node is in the desired state.
    differ: Vec<&'static str>,
}

/// Compares the node with the desired state on stdin, like `plan`.
///
/// # Errors
/// Those of `plan`: also if a check fails that the change requires.
fn look(app: &mut App) -> Result<Looked> {
    let desired = read_desired(app, true)?;
    let row = if desired { &APPLY } else { &UNINSTALL };
    let (mut node, context) = app.look(row, &Choice::default())?;
    let now = state(&*node)?;
    let begun = context.standing.journal.is_some();
    let op = &mut Operation { app, context: &context, node: &mut *node, row };
    if !desired {
        let plan = uninstall::plan(None, op)?;
        let differs = exists(&now) || begun || !plan.changes.is_empty();
        return Ok(Looked { now, after: absent(), differ: if differs { vec![EXIST] } else { Vec::new() } });
    }
    let prepared = prepare(op, None, (None, &DrainFlags::default()), Purpose::Look)?;
    let mut differ = Vec::new();
    if !exists(&now) {
        differ.push(EXIST);
    }
    if !exists(&now) || begun || !prepared.planned.steps.is_empty() {
        differ.push("spec");
    }
    Ok(Looked { now, after: present(effective(&prepared.resolved)), differ })
}

/// Makes the change, and prints the state after it.
fn set(app: &mut App) -> Result<Ending> {
    let ending = match read_desired(app, true)? {
        true => change::run(ChangeRequest::of(&APPLY), app)?,
        false => uninstall::run(&Uninstall::default(), app)?,
    };
    if matches!(ending, Ending::Told(_)) {
        // By the run in session 0.
        return Ok(ending);
    }
    let node = app.node()?;
    let mut state = state(&*node)?;
    if let Ending::Result(result) = &ending
        && result.reboot_required
    {
        let system = node.facts().context("measure the node")?.host_name;
        state.insert(RESTART_REQUIRED.into(), json!([{ "system": system }]));
    }
    drop(node);
    print(app, &state);
    Ok(ending)
}
