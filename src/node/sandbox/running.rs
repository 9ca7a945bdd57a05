//! Services that start and stop.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::faults::{Action, Crash};
use super::folder::NOTES;
use super::model::Name;
use super::quirks::Quirk;
use super::{SandboxNode, services};
use crate::fault::Fault;
use crate::node::files;
use crate::node::win32::{self, refused};

impl SandboxNode {
    pub(super) fn start(&mut self, name: &str, action: Option<Action>) -> Result<()> {
        self.start_within(name, action, &[])
    }

    /// Starts a service's dependencies, then the service. `above`: the services that wait for this one.
    fn start_within(&mut self, name: &str, action: Option<Action>, above: &[&str]) -> Result<()> {
        let Some(needed) = services::to_start(&self.model()?, name)? else { return Ok(()) };
        let needed = if self.is(Quirk::StartsAlone) { Vec::new() } else { needed };
        let above = [above, &[name]].concat();
        for needed in needed {
            let (what, started) = match needed {
                // Windows allows no circular dependencies; a hand-written node.yaml may have some.
                services::Needed::Service(needed) if above.iter().any(|name| name.eq_ignore_ascii_case(&needed)) => {
                    (needed, Err(anyhow!("it depends on {name}")))
                }
                services::Needed::Service(needed) => {
                    let started = self.start_within(&needed, None, &above);
                    (needed, started)
                }
                services::Needed::Group(group, members) => {
                    let runs = members.iter().filter(|member| self.start_within(member, None, &above).is_ok()).count();
                    let none = || anyhow!("no service of it runs");
                    (format!("the group {group}"), if runs > 0 { Ok(()) } else { Err(none()) })
                }
            };
            self.alive()?;
            if let Err(reason) = started {
                self.edit(|model| {
                    services::give_up(model, name);
                    Ok(())
                })?;
                let what = format!("start service {name}, which depends on {what}: {reason:#}");
                return Err(refused(win32::SERVICE_DEPENDENCY_FAIL, what).into());
            }
        }
        let root = self.root.clone();
        let starting = Starting::begin(&root, name)?;
        let started = self.edit(|model| services::start(model, &root, name));
        let ran = started.and_then(|seconds| self.starts(name, seconds, action));
        if self.alive().is_ok() {
            starting.end()?;
        }
        ran
    }

    /// What follows once a service has a process.
    fn starts(&mut self, name: &str, seconds: u32, action: Option<Action>) -> Result<()> {
        let died = |reason: String| refused(win32::PROCESS_ABORTED, format!("start service {name}: {reason}"));
        if action == Some(Action::Dies) {
            self.crash_service(name)?;
            return Err(died("it ended right away, as a sandbox fault asked".into()).into());
        }
        for _ in 0..seconds.min(services::START_LIMIT) {
            self.elapse(Duration::from_secs(1))?;
        }
        if seconds > services::START_LIMIT {
            return Err(services::will_not_start(name).into());
        }
        self.run_program(name)
    }

    /// Runs a service's program until the service runs.
    fn run_program(&mut self, name: &str) -> Result<()> {
        self.edit(|model| {
            services::started(model, name);
            Ok(())
        })?;
        // The container runtime may be faster than the service.
        self.play_kubelet()?;
        let Some(mut hook) = self.on_start.take() else {
            return Ok(());
        };
        let definition = self.model()?.services.get(&Name::new(name)).map(|service| service.definition.clone());
        self.plays = true;
        let ran = definition.map_or(Ok(()), |definition| hook(self, name, &definition));
        self.plays = false;
        self.on_start = Some(hook);
        let died = |reason: String| refused(win32::PROCESS_ABORTED, format!("start service {name}: {reason}"));
        match ran {
            Err(e) if !e.is::<Crash>() && self.alive().is_ok() => {
                self.crash_service(name)?;
                let mut died = died("its program failed".into());
                // The inner error has the better hint.
                died.hint = e.downcast_ref::<Fault>().and_then(|inner| inner.hint.clone()).or(died.hint);
                Err(e.context(died))
            }
            other => other,
        }
    }

    /// Ends a service's process as a crash does; its recovery actions follow.
    ///
    /// # Errors
    /// When `node.yaml` cannot be read or written.
    pub fn crash_service(&mut self, name: &str) -> Result<()> {
        self.edit(|model| {
            services::crash(model, name);
            Ok(())
        })
    }

    /// Continues to start services that a killed process of this program was starting: on Windows they are processes of
    /// their own, and are not killed with it.
    pub(super) fn continue_starts(&mut self) -> Result<()> {
        for (name, starting) in Starting::left(&self.root)? {
            let there =
                self.look()?.services.get_key_value(&Name::new(name)).map(|(name, own)| (name.clone(), own.pid));
            if let Some((name, Some(_))) = there {
                // If it fails, its recovery actions follow.
                drop(self.run_program(name.as_str()));
            }
            if self.alive().is_ok() {
                starting.end()?;
            }
        }
        Ok(())
    }

    /// Takes the recovery actions that are due.
    pub(super) fn recover(&mut self) -> Result<()> {
        let due = services::to_recover(&*self.look()?);
        for name in due {
            // If it fails, the next action is due later.
            drop(self.start(&name, None));
        }
        Ok(())
    }

    pub(super) fn end(&mut self, name: &str) -> Result<()> {
        self.edit(|model| {
            services::end(model, name);
            Ok(())
        })
    }

    pub(super) fn stop(&mut self, name: &str, action: Option<Action>) -> Result<()> {
        if action == Some(Action::SlowStop) {
            self.elapse(Duration::from_secs(services::STOP_LIMIT.into()))?;
            return Err(services::will_not_stop(name).into());
        }
        let mut model = self.model()?;
        let (seconds, stopped) = services::stop(&mut model, name);
        let stopped = if self.is(Quirk::StopsNeeded) { Ok(()) } else { stopped };
        self.elapse(Duration::from_secs(seconds.into()))?;
        stopped?;
        self.end(name)
    }

    /// Starts what depends on a service and was given up.
    pub(super) fn revive(&mut self, service: &str) -> Result<Vec<String>> {
        let stranded = services::stranded(&*self.look()?, service);
        for name in &stranded {
            self.start(name, None)?;
        }
        Ok(stranded)
    }
}

/// A service that this process is starting: a note whose file is locked for as long as the process lives.
struct Starting {
    note: PathBuf,
    _held: File,
}

impl Starting {
    const PREFIX: &str = "starting-";

    fn begin(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join(NOTES);
        let note = folder.join(format!("{}{}", Self::PREFIX, name.to_lowercase()));
        let new = folder.join(format!("new-{}-{}", std::process::id(), name.to_lowercase()));
        // Locked before it has its name: others take an unlocked one for one that was left.
        let made = || {
            fs::create_dir_all(&folder)?;
            let held = File::create(&new)?;
            held.lock()?;
            fs::rename(&new, &note)?;
            Ok::<_, std::io::Error>(held)
        };
        let held = made().with_context(|| format!("note that service {name} starts"))?;
        Ok(Self { note, _held: held })
    }

    /// The services that a process was starting which has ended.
    fn left(root: &Path) -> Result<Vec<(String, Self)>> {
        let mut left = Vec::new();
        for entry in fs::read_dir(root.join(NOTES)).into_iter().flatten() {
            let note = entry.context("look for services that start")?.path();
            let name = note.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(Self::PREFIX));
            // It may have ended meanwhile.
            let Some((name, held)) = name.map(str::to_owned).zip(File::open(&note).ok()) else { continue };
            if held.try_lock().is_ok() && note.exists() {
                left.push((name, Self { note, _held: held }));
            }
        }
        Ok(left)
    }

    /// The service runs, or does not start.
    fn end(self) -> Result<()> {
        files::remove(&self.note).context("note that a service has started")
    }
}
