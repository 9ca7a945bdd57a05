//! `dsc`, as the engine of Desired State Configuration runs it. The engine is no package of a registry, so a test plays
//! it: it reads the manifest, starts the program with the arguments that the manifest names, and checks what it prints
//! as `command_resource.rs` and `dscresource.rs` of PowerShell/DSC do.

use std::io::Write as _;
use std::process::Stdio;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::read;

/// What an operation printed.
struct Ran {
    code: i32,
    stdout: Vec<Value>,
    /// Level and message of each line on stderr.
    stderr: Vec<(String, String)>,
}

impl Ran {
    fn said(&self, level: &str) -> Vec<&str> {
        self.stderr.iter().filter(|line| line.0 == level).map(|line| line.1.as_str()).collect()
    }
}

struct Engine<'a> {
    lab: &'a Lab,
    manifest: Value,
    instance: Validator,
}

impl<'a> Engine<'a> {
    fn on(lab: &'a Lab) -> Self {
        let manifest: Value = serde_json::from_str(&lab.bare("dsc manifest").exits(0).stdout).unwrap();
        let instance = jsonschema::validator_for(&manifest["schema"]["embedded"]).unwrap();
        Self { lab, manifest, instance }
    }

    /// Starts the program for an operation, with this text on stdin.
    #[track_caller]
    fn start(&self, operation: &str, what_if: bool, text: &str) -> Ran {
        let operation = &self.manifest[operation];
        assert_eq!(operation["executable"], "calicoctl-win");
        let mut words: Vec<&str> = Vec::new();
        for arg in operation["args"].as_array().unwrap() {
            match arg.as_str() {
                Some(word) => words.push(word),
                None if what_if => words.push(arg["whatIfArg"].as_str().unwrap()),
                None => {}
            }
        }
        let takes_stdin = operation["input"] == "stdin";
        let mut command = self.lab.command(&words.join(" "));
        command.env("CALICO_WIN_SANDBOX", "node").stdin(if takes_stdin { Stdio::piped() } else { Stdio::null() });
        // Variables that a machine may have set for its scripts.
        command.env("CALICO_WIN_OUTPUT", "ndjson").env("CALICO_WIN_DETAILED_EXITCODE", "1");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if takes_stdin {
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let json = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        let said = stderr.lines().map(|line| {
            let line: Value = json(line);
            let (level, message) = line.as_object().and_then(|line| line.iter().next()).unwrap();
            assert!(["error", "warn", "info", "trace"].contains(&level.as_str()), "{line}");
            (level.clone(), message.as_str().unwrap().to_owned())
        });
        let stderr = said.collect();
        Ran { code: output.status.code().unwrap(), stdout: stdout.lines().map(json).collect(), stderr }
    }

    /// The same for an instance, which must have the schema, as each state must.
    #[track_caller]
    fn run(&self, operation: &str, what_if: bool, instance: &Value) -> Ran {
        self.check(instance);
        let ran = self.start(operation, what_if, &instance.to_string());
        assert_eq!(ran.code, 0, "{operation}: {:?}", ran.stderr);
        ran.stdout.iter().filter(|line| line.is_object()).for_each(|state| self.check(state));
        ran
    }

    #[track_caller]
    fn check(&self, instance: &Value) {
        let errors: Vec<String> =
            self.instance.iter_errors(instance).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}: {instance:#}");
    }

    #[track_caller]
    fn get(&self) -> Value {
        let ran = self.run("get", false, &json!({}));
        let [state] = &ran.stdout[..] else { panic!("{:?}", ran.stdout) };
        state.clone()
    }

    /// Whether the node is in the desired state, and the names of what differs.
    #[track_caller]
    fn test(&self, instance: &Value) -> (bool, Vec<String>) {
        assert_eq!(self.manifest["test"]["return"], "stateAndDiff");
        let ran = self.run("test", false, instance);
        let [state, differ] = &ran.stdout[..] else { panic!("{:?}", ran.stdout) };
        (state["_inDesiredState"].as_bool().unwrap(), names(differ))
    }

    /// `dsc config set` for one instance: returns the states before and after, if it had to change something.
    #[track_caller]
    fn set(&self, instance: &Value) -> Option<(Value, Value)> {
        let exists = instance["_exist"] != json!(false) || self.manifest["set"]["handlesExist"] == json!(true);
        if !exists {
            let before = self.get();
            let ran = self.run("delete", false, instance);
            assert_eq!(ran.stdout, [json!(null); 0], "delete returns no state");
            return Some((before, self.get()));
        }
        if self.test(instance).0 {
            return None;
        }
        let before = self.get();
        assert_eq!(self.manifest["set"]["return"], "state");
        let ran = self.run("set", false, instance);
        let [after] = &ran.stdout[..] else { panic!("{:?}", ran.stdout) };
        Some((before, after.clone()))
    }

    /// The state after the change, what differs, and what the engine logs.
    #[track_caller]
    fn what_if(&self, instance: &Value) -> (Value, Vec<String>, Ran) {
        assert_eq!(self.manifest["set"]["whatIfReturns"], "stateAndDiff");
        let ran = self.run("set", true, instance);
        let [after, differ] = &ran.stdout[..] else { panic!("{:?}", ran.stdout) };
        (after.clone(), names(differ), ran)
    }
}

fn names(line: &Value) -> Vec<String> {
    line.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn vni(vni: u32) -> Value {
    json!({ "spec": { "calico": { "version": "v3.32.1" }, "calicoNetwork": { "vxlan": { "vxlanVNI": vni } } } })
}

/// The instances of a configuration document.
#[track_caller]
fn instances(text: &str) -> Vec<Value> {
    let document: Value = serde_yaml::from_str(text).unwrap();
    let schema: Value = serde_json::from_str(&read("tests/fixtures/dsc/config-document.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let resources = document["resources"].as_array().unwrap();
    assert!(resources.iter().all(|one| one["type"] == "CalicoctlWin/NodeInstallation"), "{document:#}");
    resources.iter().map(|one| one["properties"].clone()).collect()
}

#[test]
fn the_manifest_has_the_published_schema_and_every_exit_code() {
    let lab = Lab::new();
    let manifest = Engine::on(&lab).manifest;
    let schema: Value = serde_json::from_str(&read("tests/fixtures/dsc/resource-manifest.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        schema.iter_errors(&manifest).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut broken = manifest.clone();
    broken["set"]["return"] = "states".into();
    assert!(!schema.is_valid(&broken), "the schema checks what an operation returns");

    let embedded = &manifest["schema"]["embedded"];
    assert_eq!(embedded["additionalProperties"], false);
    let printed: Value = serde_json::from_str(&lab.bare("dsc schema").exits(0).stdout).unwrap();
    assert_eq!(*embedded, printed);
    assert_eq!(manifest["exitCodes"]["3"], "PREFLIGHT_FAILED: a required check failed; nothing was changed");
    assert!(manifest["exitCodes"]["3010"].is_null(), "a required restart is a success");
}

/// After a change of the manifest: `CALICO_WIN_WRITE_DOCS=1 cargo test --test it dsc`.
#[test]
fn the_manifest_in_the_release_is_the_programs_own() {
    const FILE: &str = "packaging/dsc/calicoctl-win.dsc.resource.json";
    let printed = Lab::new().bare("dsc manifest").exits(0).stdout;
    if std::env::var_os("CALICO_WIN_WRITE_DOCS").is_some() {
        std::fs::write(crate::project().join(FILE), &printed).unwrap();
    }
    assert_eq!(read(FILE), printed);
    assert!(read("packaging/pack.sh").contains(FILE), "it is in the zip and the MSI");
}

#[test]
fn a_node_is_installed_changed_and_removed_by_the_engine() {
    let lab = Lab::node();
    let new = lab.picture_without_state();
    let engine = Engine::on(&lab);
    assert_eq!(engine.get(), json!({ "_exist": false }));
    assert_eq!(engine.run("export", false, &json!({})).stdout, [json!(null); 0]);
    assert_eq!(engine.test(&vni(4096)), (false, vec!["_exist".into(), "spec".into()]));

    let (before, after) = engine.set(&vni(4096)).unwrap();
    assert_eq!((&before["_exist"], &after["_exist"]), (&json!(false), &json!(true)));
    assert_eq!(after["spec"]["calico"]["version"], "v3.32.1");
    assert_eq!(after["_restartRequired"], Value::Null);
    lab.healthy();
    assert_eq!(engine.get(), after);
    assert_eq!(engine.run("export", false, &json!({})).stdout, std::slice::from_ref(&after));

    assert_eq!(engine.set(&vni(4096)), None, "the node is in the desired state");
    assert_eq!(engine.set(&after), None, "and its state is a desired state too");

    assert_eq!(engine.test(&vni(5000)), (false, vec!["spec".into()]));
    let (before, after) = engine.set(&vni(5000)).unwrap();
    let of = |state: &Value| state["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"].clone();
    assert_eq!((of(&before), of(&after)), (json!(4096), json!(5000)));
    let history = lab.run("history -o json").exits(0).json();
    assert_eq!(history["runs"].as_array().unwrap().last().unwrap()["command"], "apply");

    let gone = json!({ "_exist": false });
    assert_eq!(engine.test(&gone), (false, vec!["_exist".into()]));
    let (before, after) = engine.set(&gone).unwrap();
    assert_eq!((&before["_exist"], after), (&json!(true), gone.clone()));
    assert_eq!(engine.test(&gone), (true, Vec::new()));
    lab.picture_without_state().same_as(&new);
}

#[test]
fn what_if_shows_the_state_after_the_change_and_what_differs_and_changes_nothing() {
    let lab = Lab::installed();
    let engine = Engine::on(&lab);
    let before = lab.picture();
    let (after, differ, ran) = engine.what_if(&vni(5000));
    assert_eq!(after["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"], 5000);
    assert_eq!(differ, ["spec"]);
    let planned: Vec<&str> = ran.said("info").into_iter().filter(|line| line.contains("hns-network Calico")).collect();
    assert!(!planned.is_empty(), "{:?}", ran.stderr);
    let (after, differ, _) = engine.what_if(&vni(4096));
    assert_eq!((after, differ), (engine.get(), Vec::new()));
    lab.picture().same_as(&before);
}

#[test]
fn a_node_that_was_changed_since_the_last_run_is_not_in_the_desired_state_and_set_repairs_it() {
    let lab = Lab::installed();
    let engine = Engine::on(&lab);
    let conf = lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf");
    let published = std::fs::read(&conf).unwrap();
    std::fs::write(&conf, "{}").unwrap();
    assert_eq!(engine.test(&vni(4096)), (false, vec!["spec".into()]));
    let _repaired = engine.set(&vni(4096)).unwrap();
    assert_eq!(std::fs::read(&conf).unwrap(), published);

    let _dead = lab.fails_at("put *#3=exit-after", "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=6000").exits(137);
    assert_eq!(engine.test(&vni(4096)), (false, vec!["spec".into()]), "a run was interrupted");
    let _finished = engine.set(&vni(4096)).unwrap();
    assert_eq!(engine.test(&vni(4096)), (true, Vec::new()));
}

#[test]
fn an_instance_that_is_not_valid_is_refused_with_one_line_of_json_and_changes_nothing() {
    let lab = Lab::installed();
    let engine = Engine::on(&lab);
    let before = lab.picture_without_state();
    for (text, code, says) in [
        ("", "4", "stdin is empty"),
        ("{\"spec\": {}}", "4", "stdin is empty"),
        ("[1]", "4", "ConfigInvalid"),
        ("{\"spec\": ", "4", "ConfigInvalid"),
        (r#"{"_exist": "no"}"#, "4", "_exist is \"no\"; state: nothing was changed; fix: write true or false"),
        (r#"{"spec": {"calicoNetwrk": {}}}"#, "4", "calicoNetwrk"),
        (r#"{"spec": {"calico": {"version": "v3.32.1"}, "calicoNetwork": {"vxlan": {"vxlanVNI": 1}}}}"#, "4", "4096"),
        (r#"{"_exist": false, "spec": {"calicoNetwrk": {}}}"#, "4", "calicoNetwrk"),
    ] {
        for (operation, what_if) in [("test", false), ("set", true), ("set", false), ("delete", false)] {
            let ran = engine.start(operation, what_if, text);
            let said = ran.said("error");
            assert_eq!(ran.code.to_string(), code, "{operation} {text}: {:?}", ran.stderr);
            assert!(said.len() == 1 && said[0].contains(says), "{operation} {text}: {said:?}");
            assert_eq!(ran.stdout, [json!(null); 0], "{operation} {text}");
        }
        assert!(engine.manifest["exitCodes"][code].is_string(), "the engine says what it means");
    }
    // A command line that is not the manifest's.
    let usage = lab.bare("dsc set --bogus").exits(64);
    let line: Value = serde_json::from_str(&usage.stderr).unwrap();
    assert!(line["error"].as_str().unwrap().contains("--bogus"), "{line}");
    assert_eq!(usage.stdout, "");
    lab.picture_without_state().same_as(&before);
}

/// An empty instance is a mistake; `_exist` says what is wanted.
#[test]
fn an_instance_without_a_field_installs_only_if_it_says_so() {
    let lab = Lab::installed();
    let engine = Engine::on(&lab);
    assert_eq!(engine.start("set", false, "{}").code, 4);
    assert_eq!(engine.test(&json!({ "_exist": true })), (true, Vec::new()));
    assert_eq!(engine.start("delete", false, "{}").code, 0);
    assert_eq!(engine.get(), json!({ "_exist": false }));
}

#[test]
fn a_change_that_fails_ends_with_an_error_and_without_a_state() {
    let lab = Lab::installed();
    let engine = Engine::on(&lab);
    let mut command = lab.command("dsc set");
    command.env("CALICO_WIN_SANDBOX", "node").env("CALICO_WIN_SANDBOX_FAULT", "put running CalicoFelix#2=fail");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(vni(5000).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(9), &b""[..]), "{stderr}");
    let last: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    assert!(last["error"].as_str().unwrap().contains("the change was rolled back"), "{stderr}");
    assert!(engine.test(&vni(4096)).0);
}

#[test]
fn a_restart_that_is_required_is_in_the_state_and_is_no_failure() {
    let lab = Lab::installed();
    lab.start_program(r"C:\Program Files\containerd\cni\bin\calico-ipam.exe");
    let policy_only = json!({ "spec": { "calico": { "version": "v3.32.1" }, "calicoNetwork": { "backend": "none" } } });
    let (_, after) = Engine::on(&lab).set(&policy_only).unwrap();
    let host = lab.run("plan --print-facts -o json").exits(0).json()["node"]["hostName"].clone();
    assert!(host.is_string());
    assert_eq!(after["_restartRequired"], json!([{ "system": host }]));
}

#[test]
fn a_value_that_may_be_secret_is_in_no_state_and_no_line() {
    const SECRET: &str = "canary-of-an-instance";
    let lab = Lab::node();
    let engine = Engine::on(&lab);
    let mut instance = vni(4096);
    instance["spec"]["services"] = json!({ "extraEnv": { "FELIX_TAG": SECRET } });
    let (_, after) = engine.set(&instance).unwrap();
    let mut with_proxy = vni(4096);
    with_proxy["spec"]["transport"] = json!({ "proxy": format!("http://me:{SECRET}@127.0.0.1:1") });
    for (operation, what_if, instance) in [
        ("get", false, &instance),
        ("test", false, &instance),
        ("set", true, &instance),
        ("set", false, &instance),
        ("export", false, &instance),
        ("test", false, &with_proxy),
        ("set", false, &with_proxy),
    ] {
        let ran = engine.start(operation, what_if, &instance.to_string());
        let shown = format!("{:?} {:?}", ran.stdout, ran.stderr);
        assert!(!shown.contains(SECRET), "{operation}: {shown}");
    }
    assert!(!after.to_string().contains(SECRET) && !lab.logs().contains(SECRET));
    assert!(!lab.picture().files_with(SECRET).is_empty(), "the services have it");
}

#[test]
fn a_configuration_document_that_is_rendered_installs_the_node() {
    let lab = Lab::node();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let text = lab.bare("render dsc -c node.yaml --set services.felixLogSeverity=debug").exits(0).stdout;
    let [instance] = &instances(&text)[..] else { panic!("{text}") };
    let (_, after) = Engine::on(&lab).set(instance).unwrap();
    assert_eq!(after["spec"]["calicoNetwork"]["vxlan"]["vxlanVNI"], 5000);
    assert_eq!(after["spec"]["services"]["felixLogSeverity"], "debug", "also what --set says");
}

#[test]
fn the_configuration_document_of_the_documentation_installs_a_node() {
    let lab = Lab::node();
    let [instance] = &instances(&read("docs/calicoctl-win.dsc.yaml"))[..] else { panic!("one instance") };
    let (_, after) = Engine::on(&lab).set(instance).unwrap();
    assert_eq!(after["_exist"], true);
    let page = read("docs/dsc.md");
    for operation in ["get", "set", "test", "delete", "export"] {
        assert!(page.contains(&format!("`calicoctl-win dsc {operation}`")), "{operation}");
    }
}
