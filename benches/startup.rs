//! `cargo bench --bench startup`: what the agent adds to the time from service start to "Calico initialised" if HNS and Calico
//! answer at once, and the memory of a service's process while its component writes 10 MB of log a second.
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command as Start, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calicoctl_win::agent::stop::Stop;
use calicoctl_win::agent::{AgentContext, Role, prepare, startup};
use calicoctl_win::calico::agent_config::{AgentConfig, Command};
use calicoctl_win::item::{Id, Network, NetworkKind, RegValue, State};
use calicoctl_win::node::Node;
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::values::WinPath;

/// The output rate of the component.
const RATE: usize = 10 << 20;
const CHATTER: &str = "chatter";

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == CHATTER) {
        return chatter();
    }
    let dir = std::env::temp_dir().join(format!("calicoctl-win-bench-{}", std::process::id()));
    let done = bring_up(&dir.join("a")).and_then(|()| memory(&dir.join("b")));
    fs::remove_dir_all(&dir).context("remove the bench's folder")?;
    done
}

/// CalicoNode on a node whose vSwitch has its address at once.
fn bring_up(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut node = SandboxNode::open(dir)?;
    node.edit(|model| {
        model.adapters.iter_mut().for_each(|adapter| adapter.settle_seconds = 0);
        Ok(())
    })?;
    for (what, role) in [("first start", Role::Node), ("again in the same boot", Role::Node), ("Felix", Role::Felix)] {
        let (begun, mut paused) = (Instant::now(), Duration::ZERO);
        let mut context = AgentContext {
            stop: &Stop::default(),
            boot_time: &|| "1/2/2026 3:04:05 PM".into(),
            startup_limit: Some(Duration::from_secs(600)),
            pause: &mut |node, time| {
                paused += time;
                node.pause(time);
            },
            run: &mut |node, _| {
                let network = Network {
                    kind: NetworkKind::Overlay,
                    subnet: Some("192.168.20.64/26".parse().map_err(anyhow::Error::msg)?),
                    gateway: None,
                    vsid: Some(4096),
                    adapter: None,
                    management_ip: None,
                };
                node.put(&Id::Network("Calico".into()), Some(&State::Network(network)))?;
                Ok(0)
            },
            recreate: &|_, lost, _| Ok(lost.to_vec()),
            drift: &|_| Ok(Vec::new()),
            drift_every: Duration::MAX,
            events: &mut |_| (),
        };
        prepare(role, &mut node, &config()?, &mut context)?;
        let worked = begun.elapsed();
        println!(
            "{what:<24} pauses {:>4} ms + work {:>4} ms (goal: together under 1000 ms)",
            paused.as_millis(),
            worked.as_millis()
        );
    }
    Ok(())
}

/// CalicoFelix as a process, with this program as Felix.
fn memory(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut node = SandboxNode::open(dir)?;
    let boot = State::RegValue(RegValue::String(node.facts()?.boot_id));
    node.put(&startup::boot_id(), Some(&boot))?;
    let config = config()?;
    let program = node.disk(&config.felix.program);
    fs::create_dir_all(program.parent().context("find the program's folder")?)?;
    fs::copy(std::env::current_exe()?, &program)?;
    let told = node.disk(&WinPath::known(AgentConfig::PATH));
    fs::create_dir_all(told.parent().context("find the configuration's folder")?)?;
    fs::write(told, serde_json::to_vec(&config)?)?;
    let mut agent = Start::new(env!("CARGO_BIN_EXE_calicoctl-win"));
    agent.args(["service", "run", "felix", "--foreground", "--sandbox"]).arg(dir);
    let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("start the agent")?;
    let seconds = 10;
    std::thread::sleep(Duration::from_secs(seconds));
    let status = fs::read_to_string(format!("/proc/{}/status", agent.id()));
    agent.kill()?;
    agent.wait()?;
    let logs = node.disk(&config.log_dir);
    let written: u64 = fs::read_dir(logs)?.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum();
    // The peak, which includes the pages of the program's file, and its own memory.
    let wanted = |line: &&str| line.starts_with("VmHWM") || line.starts_with("RssAnon");
    let lines =
        status.map_or_else(|_| String::new(), |text| text.lines().filter(wanted).collect::<Vec<_>>().join(", "));
    let memory =
        if lines.is_empty() { "memory is only measured on Linux".to_owned() } else { lines.replace('\t', " ") };
    println!("{memory} after {seconds} s of 10 MB/s, {} MB of logs kept (goal: under 20 MB)", written >> 20);
    Ok(())
}

/// Writes lines at the rate until the pipe is closed.
fn chatter() -> Result<()> {
    let line = format!("2026-01-02 15:04:05.678 [INFO][1234] felix/int_dataplane.go 1234: {}\n", "x".repeat(180));
    let piece = line.repeat(RATE / 20 / line.len());
    let mut out = std::io::stdout().lock();
    loop {
        let begun = Instant::now();
        out.write_all(piece.as_bytes())?;
        std::thread::sleep(Duration::from_millis(50).saturating_sub(begun.elapsed()));
    }
}

fn config() -> Result<AgentConfig> {
    let command = Command {
        program: WinPath::known(r"C:\CalicoWindows\calico-node.exe"),
        args: vec![CHATTER.into()],
        dir: WinPath::known(r"C:\CalicoWindows"),
        env: [].into(),
    };
    // In the format of the document that install writes, without the omitted fields.
    let config = serde_json::json!({
        "nodeName": "win-a1", "backend": "vxlan", "vni": 4096, "logDir": r"C:\ProgramData\calicoctl-win\logs\calico",
        "validIpTimeoutS": 90, "metadataRoute": false, "startup": command, "felix": command,
    });
    serde_json::from_value(config).context("read the services' config")
}
