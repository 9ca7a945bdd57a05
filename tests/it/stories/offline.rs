//! Verbs that need no node: explain, completion, version, config.

use serde_json::Value;

use crate::lab::Lab;

#[test]
fn explain_knows_exit_codes_ids_and_fields() {
    let lab = Lab::new();
    for (id, says) in [
        ("14", "holds the lock"),
        ("CLUSTER_UNREACHABLE", "cannot be reached"),
        ("ForeignNetwork", "External"),
        ("phase_complete", "phase"),
        ("calicoNetwork.vxlan.vxlanVNI", "4096"),
    ] {
        let page = lab.bare(&format!("explain {id}")).exits(0);
        assert!(page.stdout.contains(says), "{id}: {page}");
        let page = lab.bare(&format!("explain {id} -o json")).exits(0).json();
        assert!(page["text"].as_str().unwrap().contains(says), "{page}");
    }
    assert_eq!(lab.bare("explain 7 -o json").exits(0).json()["id"], "CLUSTER_UNREACHABLE");
    assert!(lab.bare("explain spec").exits(0).stdout.contains("calicoNetwork.vxlan.vxlanVNI: "));
    let both = lab.bare("explain vxlanVNI").exits(0).stdout;
    assert!(both.contains("A check, group network") && both.contains("spec.calicoNetwork.vxlan.vxlanVNI: "), "{both}");
    assert!(lab.bare("explain tokenFile").exits(0).stdout.contains("spec.kubernetes.node.join.tokenFile: "));
    let both = lab.bare("explain services").exits(0).stdout;
    assert!(both.contains("Register, change or delete") && both.contains("services.felixLogSeverity: "), "{both}");
    let former = lab.bare("explain TrialTakenBack").exits(0).stdout;
    assert!(former.starts_with("TrialTakenBack is now named TrialReverted."), "{former}");
    let former = lab.bare("explain steady").exits(0).stdout;
    assert!(former.starts_with("steady is now named health-gate.") && former.contains("Felix is ready"), "{former}");
    let near = lab.bare("explain calicoNetwork.vxlan.vxlanVnn").exits(64).stderr;
    assert!(near.contains("did you mean calicoNetwork.vxlan.vxlanVNI?"), "{near}");
    assert!(lab.bare("explain 7").exits(0).stdout.starts_with("CLUSTER_UNREACHABLE (exit 7)\n"));
    assert!(lab.bare("explain calicoNetwork.vxlan").exits(0).stdout.contains("calicoNetwork.vxlan.vxlanVNI: "));
    let all = lab.bare("explain").exits(0).stdout;
    assert!(all.contains("\n  StrictAffinity\n") && all.contains("\n  calicoNetwork.vxlan.vxlanVNI\n"), "{all}");
    let unknown = lab.bare("explain ForeinNetwork").exits(64);
    assert!(unknown.stderr.contains("did you mean ForeignNetwork?"), "{unknown}");
}

#[test]
fn version_help_and_completion_need_no_node() {
    let lab = Lab::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lab.bare("version").exits(0).stdout, format!("calicoctl-win {version}\n"));
    assert_eq!(lab.bare("--version").exits(0).stdout, format!("calicoctl-win {version}\n"));
    assert_eq!(lab.bare("version -o json").exits(0).json()["version"], version);
    assert!(lab.bare("--help").exits(0).stdout.contains("install --sandbox DIR --yes"));
    let script = lab.bare("completion powershell").exits(0).stdout;
    assert!(script.contains("Register-ArgumentCompleter"), "{script}");
    let bare = lab.bare("").exits(0).stdout;
    assert_eq!(bare, lab.bare("--help").exits(0).stdout);
    assert_eq!(bare, lab.bare("help").exits(0).stdout);
    for verb in ["install", "config", "config import", "node drain"] {
        let help = lab.bare(&format!("{verb} --help")).exits(0).stdout;
        assert_eq!(lab.bare(&format!("help {verb}")).exits(0).stdout, help, "{verb}");
    }
}

/// Returns what a shell offers for a command line with an incomplete last word.
#[cfg(target_os = "linux")]
fn offers(shell: &str, lab: &Lab, words: &str) -> Vec<String> {
    let script = match shell {
        "bash" => {
            r#"
            source <(calicoctl-win completion bash)
            COMP_WORDS=(calicoctl-win $0); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_TYPE=9
            _clap_complete_calicoctl_win calicoctl-win "${COMP_WORDS[COMP_CWORD]}"
            printf '%s\n' "${COMPREPLY[@]}""#
        }
        "zsh" => {
            r#"
            autoload -Uz compinit; compinit -u -D
            source <(calicoctl-win completion zsh)
            _describe() { print -l -- ${(P)@[-1]} }
            words=(calicoctl-win ${=0}); CURRENT=$#words
            $_comps[calicoctl-win]"#
        }
        _ => "calicoctl-win completion fish | source; complete --do-complete \"calicoctl-win $argv\"",
    };
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_calicoctl-win")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new(shell);
    command.args(if shell == "zsh" { &["-f", "-c"][..] } else { &["-c"] }).args([script, words]);
    let output = command.env("PATH", path).env("HOME", lab.path("")).current_dir(lab.path("")).output();
    let output = output.unwrap_or_else(|error| panic!("this test needs {shell}: {error}"));
    assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    // zsh and fish add descriptions.
    let word = |line: &str| line.split(['\t', ':']).next().unwrap_or_default().trim().to_owned();
    String::from_utf8(output.stdout).unwrap().lines().map(word).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn shells_complete_commands_ids_and_fields() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let offers = |words| offers(shell, &lab, words);
        assert_eq!(offers("reconf"), ["reconfigure"], "{shell}");
        assert_eq!(offers("node dr"), ["drain"], "{shell}");
        assert_eq!(offers("preflight --ignore-preflight-errors StrictAff"), ["StrictAffinity"], "{shell}");
        assert_eq!(offers("preflight --ignore-preflight-errors Ipi"), ["Ipip"], "{shell}");
        assert_eq!(offers("explain Ipi"), ["Ipip"], "{shell}");
        assert_eq!(offers("install --set calicoNetwork.vxlan.vxlanV"), ["calicoNetwork.vxlan.vxlanVNI="], "{shell}");
        assert_eq!(offers("explain CLUSTER_U"), ["CLUSTER_UNREACHABLE"], "{shell}");
        for words in ["install --det", "install --detached-", "install --agr"] {
            let offered = offers(words);
            assert!(
                !offered.iter().any(|word| word.contains("detached-run") || word.contains("agreed")),
                "{shell}: {offered:?}"
            );
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn shells_complete_generations_and_runs_of_the_sandbox_that_is_named() {
    let lab = Lab::installed();
    let run = lab.run("history -o json").exits(0).json()["runs"][0]["run"].as_str().unwrap().to_owned();
    for shell in ["bash", "zsh", "fish"] {
        assert_eq!(offers(shell, &lab, "rollback --sandbox node --to 1"), ["1"], "{shell}");
        for words in ["status --sandbox node --run 2", "logs --sandbox=node --run 2"] {
            assert_eq!(offers(shell, &lab, words), [&*run], "{shell}: {words}");
        }
    }
}

/// PowerShell itself is not available here; its grammar is.
#[test]
fn the_completion_for_powershell_is_valid_powershell() {
    let script = Lab::new().bare("completion powershell").exits(0).stdout;
    assert_eq!(crate::powershell::errors(&script), None);
    assert!(script.contains("Register-ArgumentCompleter -Native -CommandName calicoctl-win"), "{script}");
}

#[test]
fn variables_are_read_as_scripts_write_them() {
    let lab = Lab::node();
    let run = |words: &str, variables: &[(&str, &str)]| {
        let mut command = lab.command(words);
        command.args(["--sandbox", "node"]).envs(variables.iter().copied());
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run("version", &[("CALICO_WIN_CONFIG", ""), ("CALICO_WIN_KUBECONFIG", "")]), (0, String::new()));
    // Such a variable is set for a whole script, in which some commands only read.
    assert_eq!(run("status", &[("CALICO_WIN_DETACH", "true")]).0, 16);
    for (number, truth) in ["1", "yes", "on", "True", "TRUE"].into_iter().enumerate() {
        let (code, errors) = run("install", &[("CALICO_WIN_YES", truth)]);
        assert_eq!(code, 0, "{number}: {errors}");
    }
    assert_eq!(run("install --set services.felixLogSeverity=debug", &[("CALICO_WIN_YES", "0")]).0, 64);
    let (code, errors) = run("install", &[("CALICO_WIN_YES", "maybe")]);
    assert_eq!(code, 64);
    assert!(errors.contains("CALICO_WIN_YES is `maybe`, which --yes does not take"), "{errors}");
    for (words, variable, value, says) in [
        (
            "apply --plan p.json",
            "CALICO_WIN_RELEASE",
            "v3.32.1",
            "the variable CALICO_WIN_RELEASE sets --release, which cannot be used with --plan\n",
        ),
        (
            "status --wait",
            "CALICO_WIN_TIMEOUT",
            "zzz",
            "the variable CALICO_WIN_TIMEOUT is `zzz`, which --timeout does not take: `zzz` is not a duration",
        ),
        (
            "repair",
            "CALICO_WIN_WAIT_FOR_LOCK",
            "abc",
            "the variable CALICO_WIN_WAIT_FOR_LOCK is `abc`, which --wait-for-lock does not take: `abc` is not a duration",
        ),
    ] {
        let (code, errors) = run(words, &[(variable, value)]);
        assert!(code == 64 && errors.contains(says), "{words}: {errors}");
    }
    let mut options = lab.command("options");
    let shown = options.env("CALICO_WIN_PROXY", "http://user:sesame@proxy:3128").output().unwrap().stdout;
    assert!(!String::from_utf8(shown).unwrap().contains("sesame"), "help shows what a variable holds");
    let (_, errors) = run("version", &[("CALICO_WIN_COLOR", "pink")]);
    assert!(errors.contains("set it to one of auto, always, never, or remove it"), "{errors}");
}

#[test]
fn a_config_is_created_checked_and_shown() {
    let lab = Lab::node();
    let _made = lab.bare("config init node.yaml").exits(0);
    let again = lab.bare("config init node.yaml -o json").exits(25).json();
    assert_eq!(again["error"]["id"], "FileExists");
    assert_eq!((&again["exit_name"], &again["error"]["retryable"]), (&"FILE_EXISTS".into(), &false.into()));
    let no_folder = lab.bare("config init none/node.yaml -o json").exits(1).json();
    assert_eq!((&no_folder["error"]["id"], &no_folder["changed"]), (&"Failed".into(), &false.into()), "{no_folder:#}");
    assert_eq!(lab.bare("config init").exits(0).stdout, std::fs::read_to_string(lab.path("node.yaml")).unwrap());
    let _every = lab.bare("config init --full full.yaml").exits(0);
    let lines = |name: &str| std::fs::read_to_string(lab.path(name)).unwrap().lines().count();
    assert!(lines("node.yaml") <= 16 && lines("full.yaml") > 80, "{} {}", lines("node.yaml"), lines("full.yaml"));
    let _valid = lab.bare("config validate node.yaml full.yaml").exits(0);
    assert_eq!(lab.bare("config validate -c node.yaml -o json").exits(0).json()["valid"], true);

    lab.write("typo.yaml", "spec:\n  calicoNetwork:\n    vxlan:\n      vxlanVni: 4097\n");
    insta::assert_snapshot!(lab.bare("config validate typo.yaml").exits(4).screen(), @r#"
    result: INVALID_CONFIG (exit 4) changed=false reboot=false
    --- stderr
    error: the config is not valid
      cause: typo.yaml:4:7: spec.calicoNetwork.vxlan.vxlanVni: unknown field; did you mean `vxlanVNI`? allowed: vxlanVNI, vxlanMACPrefix, vxlanAdapter
      state: nothing was changed
      fix: `calicoctl-win explain FIELD` describes a field, `calicoctl-win config schema` all of them
      more: calicoctl-win explain ConfigInvalid
    "#);

    // In other formats it is a document too, which is a config as well.
    for words in ["config init", "config init --full"] {
        let json = lab.bare(&format!("{words} -o json")).exits(0).json();
        let text: Value = serde_yaml::from_str(&lab.bare(words).exits(0).stdout).unwrap();
        assert_eq!(json, text);
        lab.write("node.json", json.to_string());
        let _valid = lab.bare("config validate node.json").exits(0);
        let _no_events = lab.bare(&format!("{words} -o ndjson")).exits(64);
    }

    let shown = lab.run("config show --origins --set calicoNetwork.vxlan.vxlanVNI=4097").exits(0).stdout;
    let line = shown.lines().find(|line| line.contains("vxlanVNI")).unwrap();
    assert!(line.contains("4097") && line.contains("--set"), "{line}");
    let fields = lab.run("config show -o json --node-name win-a1").exits(0).json();
    let name = fields["fields"].as_array().unwrap().iter().find(|f| f["path"] == "spec.kubernetes.nodeName").unwrap();
    assert_eq!((&name["value"], &name["origin"]), (&"win-a1".into(), &"--node-name".into()));
}

#[test]
fn the_effective_config_is_shown_as_yaml() {
    let lab = Lab::installed();
    let set = "--set services.extraEnv={A:'b:#c'} --set metadata.name='a:#b'";
    for words in ["config show", "config show --origins", "config show --applied"] {
        let text = lab.run(&format!("{words} {set}")).exits(0).stdout;
        let yaml: Value = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error}\n{text}"));
        assert_eq!(yaml["kind"], "NodeInstallation");
        let json = lab.run(&format!("{words} {set} -o json")).exits(0).json();
        for field in json["fields"].as_array().unwrap() {
            let pointer = format!("/{}", field["path"].as_str().unwrap().replace('.', "/"));
            assert_eq!(yaml.pointer(&pointer), Some(&field["value"]), "{words}: {text}");
        }
    }
}

#[test]
fn a_workstation_shows_what_files_and_flags_set() {
    let lab = Lab::new();
    lab.write("node.yaml", "spec: {calico: {version: v3.30.3}}\n");
    let shown = lab.bare("config show --origins -c node.yaml --set calicoNetwork.vxlan.vxlanVNI=5000");
    if cfg!(not(windows)) {
        insta::assert_snapshot!(shown.exits(0).screen(), @r"
        # DefaultsNotShown: this machine is not Windows: fields without a value depend on the node
        apiVersion: calicoctl-win/v1alpha1
        kind: NodeInstallation
        spec:
          calico:
            version: v3.30.3   # node.yaml:1
          calicoNetwork:
            vxlan:
              vxlanVNI: 5000   # --set
        ");
    }
}

#[test]
fn the_configs_schema_accepts_the_template_and_refuses_a_typo() {
    let lab = Lab::new();
    let schema: Value = serde_json::from_str(&lab.bare("config schema").exits(0).stdout).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let read = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
    let minimal = "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec: {calico: {version: v3.32.1}}\n";
    let start = lab.bare("config init").exits(0).stdout;
    for good in [minimal.to_owned(), lab.bare("config init --full").exits(0).stdout, start] {
        let errors: Vec<String> =
            schema.iter_errors(&read(&good)).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    for bad in [
        "{calico: {versoin: v3.32.1}}",
        "{calicoNetwork: {vxlan: {vxlanVNI: 4095}}}",
        "{calicoNetwork: {backend: vxlam}}",
    ] {
        let bad = format!("apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec: {bad}\n");
        assert!(!schema.is_valid(&read(&bad)), "{bad}");
    }
}
