use super::super::testing::{Authority, kubeconfig};
use super::*;

fn refusal(text: &str, context: Option<&str>) -> String {
    let refused = Cluster::connect(text, "somewhere".as_ref(), context, None, short_limits());
    story(&refused.err().expect("this kubeconfig is not usable")).replace('\\', "/")
}

#[test]
fn a_kubeconfig_that_is_not_usable_is_refused_with_the_reason() {
    let good = kubeconfig(&Authority::new().pem);
    let admin = "    token: admins-token";
    let all = [
        refusal("", None),
        refusal(&good, Some("prod")),
        refusal(&good.replace("current-context: admin@test\n", ""), None),
        refusal("clusters: [\nusers: {token: sesame", None),
        refusal("clusters: eyJhbGciOiJSUzI1NiIsImtpZCI6InNlc2FtZSJ9.eyJpc3MiOiJrdWJl", None),
        refusal(&good.replace("cluster: test\n", "cluster: other\n"), None),
        refusal(&good.replace("user: admin\n", "user: root\n"), None),
        refusal(&good.replace("certificate-authority-data: ", "certificate-authority-data: \"*\" #"), None),
        refusal(&good.replace("certificate-authority-data: ", "certificate-authority: ca.crt #"), None),
        refusal(&good.replace(admin, "    client-certificate: me.crt\n    client-key: me.key"), None),
        refusal(&kubeconfig(&Authority::valid_until(2001).pem).replace(admin, ""), None),
        refusal(
            &good.replace(admin, "    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./no-such-plugin}"),
            None,
        ),
        story(&Cluster::open(None, None, short_limits()).err().unwrap()),
        story(&Cluster::open(Some("nowhere/admin.conf".as_ref()), None, short_limits()).err().unwrap()),
    ];
    for error in &all {
        assert!(!error.contains("sesame") && !error.contains("eyJ"), "a secret is shown: {error}");
    }
    insta::assert_snapshot!(all.join("\n"), @"
    CLUSTER_ACCESS_DENIED ContextNotFound
      what the kubeconfig has no current-context
      fix  it has no contexts: check that it is the right file

    CLUSTER_ACCESS_DENIED ContextNotFound
      what the kubeconfig has no context `prod`
      fix  choose one with --context: admin@test

    CLUSTER_ACCESS_DENIED ContextNotFound
      what the kubeconfig has no current-context
      fix  choose one with --context: admin@test

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what the kubeconfig is not valid: line 2, column 8
      why  unclosed bracket '{'
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what the kubeconfig is not valid: line 1, column 11
      why  expected a list, found text
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what context `admin@test` of the kubeconfig names the cluster `other`, which is not defined there
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what context `admin@test` of the kubeconfig names the user `root`, which is not defined there
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what certificate-authority-data in the kubeconfig is not base64
      why  Invalid symbol 42, offset 0.
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what cannot read somewhere/ca.crt, the kubeconfig's certificate-authority
      why  (the operating system's text)
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED KubeconfigInvalid
      what cannot read somewhere/me.crt, the kubeconfig's client-certificate
      why  (the operating system's text)
      fix  compare it with `kubectl config view`, or get a new kubeconfig of the cluster

    CLUSTER_ACCESS_DENIED ClusterCaExpired
      what the cluster's CA in the kubeconfig has expired on 2001-01-01
      fix  renew the cluster's CA and get a new kubeconfig, or correct this machine's clock

    CLUSTER_UNREACHABLE ClusterLogin
      what the kubeconfig's exec plugin `somewhere/./no-such-plugin` returned no credentials
      why  (the operating system's text)
      fix  try `kubectl --kubeconfig FILE version` with the same file on this machine

    CLUSTER_UNREACHABLE KubeconfigMissing
      what no kubeconfig is given, so the cluster cannot be reached
      fix  pass the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG; on a control-plane node of kubeadm it is /etc/kubernetes/admin.conf

    CLUSTER_UNREACHABLE KubeconfigMissing
      what cannot read the kubeconfig nowhere/admin.conf
      why  (the operating system's text)
      fix  pass the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG; on a control-plane node of kubeadm it is /etc/kubernetes/admin.conf
    ");
}

#[test]
fn files_and_certificates_beside_the_kubeconfig_are_found() {
    let server = Server::start();
    server.replay(&["version-admin"]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.crt"), &server.ca_pem).unwrap();
    std::fs::write(dir.path().join("token"), "from-a-file").unwrap();
    let text = server.kubeconfig().replace("certificate-authority-data: ", "certificate-authority: ca.crt #");
    let text = text.replace("token: admins-token", "tokenFile: token");
    let cluster = Cluster::connect(&text, dir.path(), None, Some(server.address), short_limits()).unwrap();

    assert_eq!(cluster.ca_pem(), Some(server.ca_pem.as_str()));
    assert_eq!(cluster.server(), "https://api.cluster.test:6443");
    assert!(cluster.get::<Value>("/version").unwrap().is_some());
    assert_eq!(server.seen()[0].headers["authorization"], "Bearer from-a-file");
}

#[test]
fn a_kubeconfig_that_powershell_wrote_is_read() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin.conf");
    let wide = |text: &str| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
    };
    std::fs::write(&file, wide(&server.kubeconfig())).unwrap();
    assert_eq!(Cluster::open(Some(&file), None, short_limits()).unwrap().server(), "https://api.cluster.test:6443");
    std::fs::write(&file, b"\xff\xfex").unwrap();
    let error = Cluster::open(Some(&file), None, short_limits()).err().unwrap();
    assert!(format!("{error:#}").contains("byte order mark of UTF-16"), "{error:#}");
}

#[test]
fn errors_of_a_file_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin.conf");
    std::fs::write(&file, "clusters: [").unwrap();
    let error = Cluster::open(Some(&file), None, short_limits()).err().unwrap();
    assert!(error.to_string().starts_with(&format!("the kubeconfig {} is not valid", file.display())), "{error}");
}

/// Defect B18, the other half: the scripts used every line with `https` as the server, so a second cluster, or a
/// comment, produced a kubeconfig for the node that no program can read.
#[test]
fn b18_of_several_https_lines_the_contexts_own_is_used() {
    let server = Server::start();
    server.replay(&["version-admin"]);
    let text = server.kubeconfig();
    let others = "# moved here from https://old.test:6443\nclusters:\n\
                  - {name: stage, cluster: {server: 'https://stage.test:6443'}}\n\
                  - {name: prod, cluster: {server: https://prod.test}}\n";
    let text = text.replacen("clusters:\n", others, 1);
    assert_eq!(text.matches("https://").count(), 4, "{text}");

    let cluster = Cluster::connect(&text, "somewhere".as_ref(), None, Some(server.address), short_limits()).unwrap();
    assert!(cluster.get::<Value>("/version").unwrap().is_some());
    assert_eq!(cluster.server(), "https://api.cluster.test:6443");
    let token = crate::values::Secret::new("its-token".to_owned());
    let credentials = cluster.assemble("calico-system", None, token, None).unwrap();
    let written = String::from_utf8(crate::calico::kubeconfig::render(&credentials, "calico-system").unwrap()).unwrap();
    let servers: Vec<&str> = written.lines().filter(|line| line.contains("https")).map(str::trim).collect();
    assert_eq!(servers, ["server: https://api.cluster.test:6443"], "{written}");
    assert_eq!(crate::calico::kubeconfig::parse(&written).unwrap().server, cluster.server());
}

/// Creates the plugin of a kubeconfig in this folder.
#[cfg(unix)]
fn write_plugin(dir: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = dir.join("plugin.sh");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
#[test]
fn an_exec_plugin_returns_the_token_and_its_output_is_never_shown() {
    let server = Server::start();
    server.replay(&["version-admin"]);
    let dir = tempfile::tempdir().unwrap();
    let plugin = |script: &str| write_plugin(dir.path(), script);
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin.sh, interactiveMode: Never}";
    let text = server.kubeconfig().replace("token: admins-token", exec);
    let connect = || Cluster::connect(&text, dir.path(), None, Some(server.address), short_limits());

    plugin(
        r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"sesame"}}'"#,
    );
    connect().unwrap().get::<Value>("/version").unwrap();
    assert_eq!(server.seen()[0].headers["authorization"], "Bearer sesame");

    // Its stderr goes to the terminal, and may contain anything too: `tests/it/clusters.rs`.
    plugin("echo sesame; echo 'please log in first' >&2; exit 3");
    let failed = story(&connect().err().unwrap());
    assert!(failed.contains("plugin.sh` returned no credentials") && failed.contains("exit status: 3"), "{failed}");
    assert!(!failed.contains("please log in first") && !failed.contains("sesame"), "{failed}");
    plugin("echo sesame");
    let garbled = story(&connect().err().unwrap());
    assert!(garbled.contains("ClusterLogin") && !garbled.contains("sesame"), "{garbled}");
    plugin(
        r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"ses\\name"}}'"#,
    );
    let two_lines = story(&connect().err().unwrap());
    assert!(two_lines.contains("plugin.sh` returned no credentials"), "{two_lines}");
    assert!(two_lines.contains("its token has a line break, a space or another character of no token"), "{two_lines}");
    plugin(r#"echo 'status: {token: "sesame\n", expirationTimestamp: "2099-01-01T00:00:00Z"}'"#);
    connect().unwrap().get::<Value>("/version").unwrap();
    assert_eq!(server.seen().last().unwrap().headers["authorization"], "Bearer sesame");
    plugin(r#"echo '{"status":{"clientCertificateData":"sesame","clientKeyData":"sesame"}}'"#);
    let no_pair = story(&connect().err().unwrap());
    assert!(no_pair.contains("what the kubeconfig's exec plugin `") && !no_pair.contains("sesame"), "{no_pair}");
    plugin("echo 'status: {clientCertificateData: sesame}'");
    let half = story(&connect().err().unwrap());
    assert!(half.contains("neither a token nor a client certificate with its key"), "{half}");
}

/// A client whose plugin counts its runs in `runs`, and what the plugin does from its second run on.
#[cfg(unix)]
fn with_counting_plugin(dir: &Path, server: &Server, expires: &str, later: &str) -> Cluster {
    let runs = dir.join("runs");
    let runs = runs.to_str().unwrap();
    write_plugin(
        dir,
        &format!(
            r#"echo run >> {runs}
test $(wc -l < {runs}) -gt 1 && {{ {later}; }}
echo '{{"status":{{"token":"open-'$(wc -l < {runs} | tr -d ' ')'","expirationTimestamp":"{expires}"}}}}'"#
        ),
    );
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin.sh, args: [sesame-argument], \
        env: [{name: SECRET, value: sesame-env}], interactiveMode: Never}";
    let text = server.kubeconfig().replace("token: admins-token", exec);
    Cluster::connect(&text, dir, None, Some(server.address), short_limits()).unwrap()
}

#[cfg(unix)]
fn runs(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("runs")).unwrap().lines().count()
}

#[cfg(unix)]
#[test]
fn a_plugin_runs_once_and_again_when_its_token_expires() {
    // By this machine's clock the first has expired: the server decides.
    for expires in ["2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let server = Server::start();
        server.replay(&["version-admin"]);
        let dir = tempfile::tempdir().unwrap();
        let cluster = with_counting_plugin(dir.path(), &server, expires, "true");
        for _ in 0..3 {
            cluster.get::<Value>("/version").unwrap();
        }
        assert_eq!(runs(dir.path()), 1);
        cluster.api.session.expire();
        for _ in 0..3 {
            cluster.get::<Value>("/version").unwrap();
        }
        assert_eq!(runs(dir.path()), 2);
        let tokens: Vec<String> = server.seen().iter().map(|seen| seen.headers["authorization"].clone()).collect();
        let (old, new) = ("Bearer open-1", "Bearer open-2");
        assert_eq!(tokens, [old, old, old, new, new, new], "{expires}");
    }
}

#[cfg(unix)]
#[test]
fn a_plugin_that_fails_when_its_token_expires_is_blamed_and_not_run_for_each_request() {
    let server = Server::start();
    server.replay(&["version-admin"]);
    let dir = tempfile::tempdir().unwrap();
    let later = "echo sesame-stdout; echo sesame-stderr >&2; exit 3";
    let cluster = with_counting_plugin(dir.path(), &server, "2099-01-01T00:00:00Z", later);
    cluster.api.session.expire();
    for _ in 0..3 {
        let failed = cluster.get::<Value>("/version").unwrap_err();
        let said = story(&failed);
        assert!(said.contains("ClusterLogin") && said.contains("plugin.sh` returned no credentials"), "{said}");
        assert!(said.contains("it failed with exit status: 3") && !said.contains("API server"), "{said}");
        assert!(!format!("{failed:?}").contains("sesame"), "{failed:?}");
    }
    assert_eq!(runs(dir.path()), 2);
    assert_eq!(server.seen().len(), 0);
}

/// Of old clusters on GKE: the plugin prints any JSON, and paths give the position of the token.
#[cfg(unix)]
#[test]
fn an_auth_provider_finds_the_token_by_a_plain_path() {
    let server = Server::start();
    server.replay(&["version-admin"]);
    let dir = tempfile::tempdir().unwrap();
    write_plugin(dir.path(), r#"echo '{"credential": {"access_token": "open"}, "all": [{"id-token": "sesame"}]}'"#);
    let token_by = |path: &str| {
        let command = dir.path().join("plugin.sh");
        let provider =
            format!("auth-provider: {{name: gcp, config: {{cmd-path: {command:?}, token-key: \"{path}\"}}}}");
        let text = server.kubeconfig().replace("token: admins-token", &provider);
        let cluster = Cluster::connect(&text, dir.path(), None, Some(server.address), short_limits())?;
        cluster.get::<Value>("/version")?;
        Ok(server.seen().last().unwrap().headers["authorization"].clone())
    };

    for (path, token) in [
        ("{.credential.access_token}", "Bearer open"),
        ("credential.access_token", "Bearer open"),
        ("{..access_token}", "Bearer open"),
        ("{$.all[0]['id-token']}", "Bearer sesame"),
        ("{.all[0]['id-token']}", "Bearer sesame"),
    ] {
        assert_eq!(token_by(path).unwrap_or_else(|error: anyhow::Error| panic!("{path}: {error:#}")), token, "{path}");
    }
    for path in ["{.credential}", "{.all[1]['id-token']}", "{.all[?(@.id)]}", "$x"] {
        let refused = story(&token_by(path).unwrap_err());
        assert!(refused.contains("ClusterLogin") && !refused.contains("sesame"), "{path}: {refused}");
    }
}
