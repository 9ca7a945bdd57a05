//! The scripts of docs/scripting.md work as the page says.

use std::process::{Command, Output};

use crate::lab::Lab;
use crate::{project, read};

/// Runs the script in Python, with pauses that are only printed.
fn provision(lab: &Lab, fault: &str, options: &str) -> Output {
    let program = format!(
        "import sys, time\ntime.sleep = lambda seconds: print('pause', seconds)\nsys.argv = ['provision.py'] + {:?}.split()\n\
         exec(compile(open({:?}).read(), 'provision.py', 'exec'))",
        format!("{options} --sandbox node"),
        project().join("docs/scripts/provision.py")
    );
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_calicoctl-win")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut python = Command::new("python3");
    python.args(["-c", &program]).env("PATH", path).env("CALICO_WIN_SANDBOX_FAULT", fault);
    python.current_dir(lab.path("")).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_python_script_provisions_a_node_and_retries_temporary_failures() {
    let lab = Lab::node();
    let first = provision(&lab, "", "");
    assert_eq!(text(&first.stdout), "changed\n", "{}", text(&first.stderr));
    assert_eq!(text(&provision(&lab, "", "").stdout), "nothing to do\n");

    let away = provision(&lab, "api GET /version=503", "--set services.felixLogSeverity=debug");
    assert_eq!(text(&away.stdout), "pause 30\n".repeat(20), "{}", text(&away.stderr));
    assert!(!away.status.success() && text(&away.stderr).contains("\"retryable\": true"), "{}", text(&away.stderr));

    let wrong = provision(&lab, "", "--set calicoNetwork.vxlan.vxlanVNI=1");
    assert_eq!((text(&wrong.stdout), wrong.status.success()), ("", false), "no pause: {}", text(&wrong.stderr));
    assert!(text(&wrong.stderr).contains("ConfigInvalid"), "{}", text(&wrong.stderr));
}

#[test]
fn the_scripts_are_short_and_use_at_most_four_fields() {
    let fields = ["success", "changed", "retryable", "reboot_required", "error"];
    for (script, field) in [("provision.py", r#"\["(\w+)"\]"#), ("provision.ps1", r"\$?\bresult\.(?:error\.)?(\w+)")] {
        let script = read(&format!("docs/scripts/{script}"));
        assert!(script.lines().filter(|line| !line.trim().is_empty()).count() <= 25);
        let field = regex::Regex::new(field).unwrap();
        let used: Vec<&str> = field.captures_iter(&script).map(|found| found.get(1).unwrap().as_str()).collect();
        assert!(used.len() >= 4 && used.iter().all(|name| fields.contains(name)), "{used:?}");
    }
}

#[test]
fn the_powershell_script_is_valid_powershell() {
    assert_eq!(crate::powershell::errors(&read("docs/scripts/provision.ps1")), None);
}
