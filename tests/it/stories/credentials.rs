//! The node's own token: created, reused, renewed, deleted.

use std::fs;

use base64::Engine as _;
use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use serde_json::{Value, json};

use crate::etcd::Etcd;
use crate::lab::Lab;
use crate::read;
use crate::tokens::{self, claims};

const KUBECONFIG: &str = "C/CalicoWindows/calico-kube-config";
const SECRET: &str = "--set kubernetes.credentials=secret";

/// The token in the node's kubeconfig.
pub fn token(lab: &Lab) -> String {
    let kubeconfig: Value = serde_yaml::from_str(&lab.read(KUBECONFIG)).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

/// Whether the sandbox's cluster has the secret that install creates.
fn has_secret(lab: &Lab) -> bool {
    let store = fs::read_to_string(lab.path("node/cluster/cluster.json")).unwrap();
    store.contains(r#""name":"calico-node-token""#) || store.contains(r#""name": "calico-node-token""#)
}

/// The sandbox's cluster, with administrator rights.
pub fn cluster(lab: &Lab) -> EmbeddedCluster {
    EmbeddedCluster::start(&lab.path("node/cluster"), &Seed::new("win-a1"), &[]).unwrap()
}

/// From now on Calico on Linux has its data in etcd.
pub fn runs_with_etcd(lab: &Lab) {
    let _started = lab.run("cluster check").exits(0);
    give_etcd(&cluster(lab));
}

fn give_etcd(cluster: &EmbeddedCluster) {
    let env = json!([{ "name": "ETCD_ENDPOINTS", "valueFrom": { "configMapKeyRef": { "key": "etcd_endpoints" } } }]);
    let containers = json!([{ "name": "calico-node", "env": env }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let path = "/apis/apps/v1/namespaces/calico-system/daemonsets/calico-node";
    cluster.as_admin(&http::Method::PATCH, path, Some(&patch)).unwrap();
}

/// A token that the sandbox's cluster signed some time ago.
fn aged(lab: &Lab, token: &str, over: impl Fn(i64) -> i64) -> String {
    tokens::aged(&fs::read_to_string(lab.path("node/cluster/pki/sa.key")).unwrap(), token, over)
}

/// Puts a token into the node's kubeconfig, like an outsider.
fn put(lab: &Lab, token: &str) {
    let mut kubeconfig: Value = serde_yaml::from_str(&lab.read(KUBECONFIG)).unwrap();
    kubeconfig["users"][0]["user"]["token"] = json!(token);
    fs::write(lab.on_node(KUBECONFIG), serde_yaml::to_string(&kubeconfig).unwrap()).unwrap();
}

#[test]
fn a_token_from_a_secret_is_valid_as_long_as_the_secret_that_install_created() {
    let lab = Lab::node();
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    assert!(has_secret(&lab));
    let first = token(&lab);
    assert_eq!(claims(&first)["kubernetes.io/serviceaccount/secret.name"], "calico-node-token");
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!(status["credentials"][0]["expires"], Value::Null, "{status}");

    let again = lab.run(&format!("install -y {SECRET} -o json")).exits(0).json();
    assert_eq!(again["changed"], false);
    assert_eq!(token(&lab), first);

    // Other nodes may use it, so only a separate flag deletes it.
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(has_secret(&lab));
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    assert_eq!(token(&lab), first);
    let _purged = lab.run("uninstall --purge -y").exits(0);
}

/// Returns the warnings about the token secret.
fn secrets(result: &Value) -> Vec<&str> {
    let warnings = result["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    warnings.filter(|warning| warning.starts_with("TokenSecret")).collect()
}

#[test]
fn purge_of_one_node_leaves_the_secret_that_others_log_in_with() {
    let lab = Lab::node();
    let before = lab.picture();
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    let shared = lab.read(KUBECONFIG);
    let gone = lab.run("uninstall --purge -y -o json").exits(0).json();
    let delete = "kubectl -n calico-system delete secret calico-node-token";
    assert_eq!((&gone["next"], secrets(&gone)), (&json!([delete]), Vec::new()), "{gone}");
    assert!(has_secret(&lab));
    lab.picture().same_as(&before);
    // Another node with a token of this secret still has access.
    let cluster = cluster(&lab);
    let direct = format!("https://127.0.0.1:{}", cluster.addr().port());
    lab.write("other.yaml", shared.replace(&EmbeddedCluster::stable_url(), &direct));
    let asked = lab.bare("cluster check --kubeconfig other.yaml -o json").json();
    assert_ne!(asked["error"]["id"], "ClusterUnauthorized", "{asked}");
    assert!(asked["checks"].is_array() || asked["error"]["id"] == "ClusterRights", "{asked}");
}

#[test]
fn the_secret_that_install_created_is_deleted_only_on_request_and_the_plan_shows_the_effect() {
    let destroys = "TokenSecretDeleted: the secret calico-system/calico-node-token in the cluster is deleted: every other \
                    node that logs in with its token loses access";
    for words in ["uninstall --purge --delete-token-secret -y", "uninstall --delete-token-secret -y"] {
        let lab = Lab::node();
        let before = lab.picture();
        let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
        let planned = lab.run(&format!("{words} -n -o json")).exits(0).json();
        assert_eq!(secrets(&planned), [destroys], "{planned}");
        assert!(has_secret(&lab), "a dry run");
        let gone = lab.run(&format!("{words} -o json")).exits(0).json();
        assert_eq!((&gone["next"], secrets(&gone)), (&json!([]), vec![destroys]), "{gone}");
        assert!(!has_secret(&lab), "{words}");
        let _rest = lab.run("uninstall --purge -y").exits(0);
        lab.picture().same_as(&before);
    }
}

#[test]
fn a_later_uninstall_still_names_the_secret_that_install_created() {
    let lab = Lab::node();
    let before = lab.picture();
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    let kept = lab.run("uninstall -y -o json").exits(0).json();
    assert!(kept["next"][0].as_str().unwrap().contains("delete secret"), "{kept}");
    let gone = lab.run("uninstall --purge --delete-token-secret -y -o json").exits(0).json();
    assert_eq!((&gone["changed"], &gone["next"]), (&true.into(), &json!([])), "{gone}");
    assert!(!has_secret(&lab));
    lab.picture().same_as(&before);
    let _there = lab.run("install -y").exits(0);
    let none = lab.run("uninstall --delete-token-secret -y -o json").exits(0).json();
    let said = "TokenSecretDeleted: no receipt says that install made a token secret, so none is deleted";
    assert_eq!(secrets(&none), [said], "{none}");
}

#[test]
fn an_uninstall_works_while_the_cluster_does_not_answer() {
    let lab = Lab::node();
    let before = lab.picture();
    let _there = lab.run(&format!("install -y {SECRET} --set transport.retries=0")).exits(0);
    let gone = lab.fails_at("api down", "uninstall --purge -y -o json").exits(0).json();
    assert!(gone["next"][0].as_str().unwrap().contains("kubectl -n calico-system delete secret"), "{gone}");
    assert!(has_secret(&lab));
    lab.picture().same_as(&before);
}

#[test]
fn a_good_token_is_reused_and_an_old_or_refused_one_replaced() {
    let lab = Lab::installed();
    let first = token(&lab);
    let _same = lab.run("install -y").exits(0);
    assert_eq!(token(&lab), first, "a good token was thrown away");

    let aged = aged(&lab, &first, |life| life * 3 / 4);
    // Not signed by a key that the cluster trusts.
    let refused = format!("{}x", &first[..first.len() - 4]);
    for bad in [aged, refused] {
        let now = token(&lab);
        put(&lab, &bad);
        let renewed = lab.run("install -y -o json").exits(0).json();
        assert_eq!(renewed["changed"], true, "{renewed}");
        let new = token(&lab);
        assert!(new != bad && new != now, "not renewed");
        assert!(claims(&new)["exp"].as_i64() >= claims(&first)["exp"].as_i64());
        assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
    }
}

#[test]
fn a_secret_that_is_never_filled_is_deleted_and_nothing_is_installed() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let words = format!("install -y {SECRET} --set transport.timeout=1s -o json");
    let failed = lab.fails_at("api unfilled", &words).exits(7).json();
    assert_eq!(failed["error"]["id"], "TokenSecretUnfilled", "{failed}");
    assert!(!has_secret(&lab));
    lab.picture_without_state().same_as(&before);
}

#[test]
fn the_nodes_login_is_shown_without_secrets() {
    let lab = Lab::node();
    assert_eq!(lab.run("credentials show -o json").exits(16).json()["error"]["id"], "NotInstalled");
    let _there = lab.run("install -y").exits(0);
    let screen = lab.run("credentials show").exits(0);
    insta::assert_snapshot!(screen.screen(), @r"
    KIND        SUBJECT                                   EXPIRES                             ORIGIN        PATH
    kubeconfig  serviceaccount calico-system/calico-node  TIME  TokenRequest  C:\CalicoWindows\calico-kube-config
    CalicoNode runs, and asks for another token in C:\CalicoWindows\calico-kube-config from TIME on
    result: OK (exit 0) changed=false reboot=false
    ");
    let shown = lab.run("credentials show -o json").exits(0);
    assert!(!format!("{screen}{shown}").contains(&token(&lab)));
    let shown = shown.json();
    assert_eq!(shown["kind"], "Credentials");
    let one = &shown["credentials"][0];
    assert_eq!((&one["kind"], &one["problems"]), (&json!("kubeconfig"), &json!([])));
    let until = claims(&token(&lab))["exp"].as_i64().unwrap();
    assert_eq!(one["expires"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second(), until);

    let _stopped = lab.run("service stop -y").exits(0);
    let shown = lab.run("credentials show").exits(0).stdout;
    let none = r"CalicoNode does not run: nothing renews C:\CalicoWindows\calico-kube-config, due from ";
    assert!(shown.contains(none), "{shown}");

    let old = aged(&lab, &token(&lab), |life| life + 1);
    put(&lab, &old);
    let over = lab.run("credentials show -o json").exits(12).json();
    assert!(over["credentials"][0]["problems"][0].as_str().unwrap().contains("has expired"), "{over}");
}

#[test]
fn rotate_fetches_a_new_token_that_is_no_drift_and_that_rollback_keeps() {
    let lab = Lab::installed();
    let first = token(&lab);
    let _changed = lab.run("reconfigure -y --no-drain --set services.felixLogSeverity=debug").exits(0);
    assert_eq!(token(&lab), first);

    assert_eq!(lab.run("credentials rotate -n -o json").exits(0).json()["changed"], false);
    assert_eq!(token(&lab), first);
    let rotated = lab.run("credentials rotate -y -o json").exits(0).json();
    assert_eq!((&rotated["changed"], &rotated["generation"]), (&json!(true), &json!(2)), "{rotated}");
    let second = token(&lab);
    assert_ne!(second, first);
    assert!(!rotated.to_string().contains(&second));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(lab.on_node(KUBECONFIG)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others may read it");
    }
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["drift"]), (&json!("Healthy"), &json!([])), "{status}");
    assert!(!holds(&lab.on_node("C/ProgramData/calicoctl-win/store"), &first), "the old token lies about");

    let _back = lab.run("rollback -y --no-drain").exits(0);
    assert_eq!(token(&lab), second, "an old token came back");
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(!lab.on_node(KUBECONFIG).exists());
}

/// Whether a file below a folder contains a text.
fn holds(folder: &std::path::Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| match entry.path() {
        folder if folder.is_dir() => holds(&folder, text),
        file => fs::read(file).unwrap().windows(text.len()).any(|part| part == text.as_bytes()),
    })
}

#[test]
fn credentials_are_fetched_for_a_node_that_does_not_exist_yet() {
    let lab = Lab::node();
    let before = lab.picture();
    let fetched = lab.run("credentials fetch --out got -o json").exits(0).json();
    assert_eq!(fetched["changed"], false, "{fetched}");
    let text = fs::read_to_string(lab.path("got/calico-kube-config")).unwrap();
    let kubeconfig: Value = serde_yaml::from_str(&text).unwrap();
    let claims = claims(kubeconfig["users"][0]["user"]["token"].as_str().unwrap());
    assert_eq!(claims["sub"], "system:serviceaccount:calico-system:calico-node");
    lab.picture().same_as(&before);
    let again = lab.run("credentials fetch --out got -o json").exits(25).json();
    assert_eq!(again["error"]["id"], "FileExists");

    // The result is a kubeconfig that a node can be configured with.
    let given = "--set kubernetes.credentials=kubeconfig --set kubernetes.calicoKubeconfig=got/calico-kube-config";
    let _there = lab.run(&format!("install -y {given}")).exits(0);
    assert_eq!(token(&lab), kubeconfig["users"][0]["user"]["token"]);
    let again = lab.run(&format!("install -y {given} -o json")).exits(0).json();
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

#[test]
fn a_kubeconfig_that_would_not_work_on_a_node_is_refused_with_the_reason() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let install =
        "install -y -o json --set kubernetes.credentials=kubeconfig --set kubernetes.calicoKubeconfig=own.yaml";
    let absent = lab.run(install).exits(4).json();
    assert_eq!(absent["error"]["id"], "KubeconfigMissing", "{absent}");
    let file = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: k, cluster: {{server: 'https://10.20.0.10:6443'}}}}]\n\
             users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        )
    };
    for (user, why) in [
        ("{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}", "a plugin (exec)"),
        ("{username: me, password: s3cret}", "a password"),
        ("{}", "neither a token nor a client certificate"),
    ] {
        lab.write("own.yaml", file(user));
        let refused = lab.run(install).exits(4).json();
        assert_eq!(refused["error"]["id"], "KubeconfigNotForNode", "{refused}");
        assert!(refused["error"]["what"].as_str().unwrap().contains(why), "{refused}");
        assert!(!refused.to_string().contains("s3cret"));
    }
    lab.picture_without_state().same_as(&before);
    let unnamed = lab.run("install -y -o json --set kubernetes.credentials=kubeconfig").exits(4).json();
    assert_eq!(unnamed["error"]["id"], "ConfigInvalid", "{unnamed}");
}

#[test]
fn an_account_that_may_not_renew_its_token_is_reported_at_install() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/calico-system/roles/calicoctl-win-renewal";
    cluster(&lab).as_admin(&http::Method::DELETE, role, None).unwrap();
    let installed = lab.run("install -y -o ndjson").exits(0).ndjson();
    let told = installed.iter().find(|line| line["id"] == "TokenRenewalForbidden").expect("it is told");
    assert!(told["message"].as_str().unwrap().contains("calicoctl-win explain TokenRenewalForbidden"), "{told}");
    let page = lab.bare("explain TokenRenewalForbidden").exits(0).stdout;
    assert!(page.contains("resourceNames: [calico-node], verbs: [create]"), "{page}");
}

#[test]
fn linux_nodes_on_another_datastore_are_refused() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let etcd = "install -y -o json --set datastore.type=etcdv3 --set datastore.etcd.endpoints=http://127.0.0.1:1";
    let mixed = lab.run(etcd).exits(3).json();
    assert_eq!(mixed["error"]["checks"][0]["id"], "DatastoreMatches", "{mixed:#}");
    runs_with_etcd(&lab);
    let mixed = lab.run("preflight -o json").exits(3).json();
    let check = mixed["checks"].as_array().unwrap().iter().find(|check| check["id"] == "DatastoreMatches").unwrap();
    assert_eq!(check["detail"], "the config says kubernetes, Calico on Linux has etcdv3");
    lab.picture_without_state().same_as(&before);
}

/// Runs CalicoNode's agent. On a machine that is not Windows it ends when it starts Calico's program.
fn agent(lab: &Lab) -> String {
    let _ended = lab.run("service run node --foreground");
    lab.read("C/ProgramData/calicoctl-win/logs/calico/calico-node.log")
}

#[test]
fn the_agent_renews_a_token_after_two_thirds_of_its_life_and_reports_a_refusal() {
    let lab = Lab::installed();
    let young = aged(&lab, &token(&lab), |life| life * 6 / 10);
    put(&lab, &young);
    let log = agent(&lab);
    assert!(!log.contains("renewed") && token(&lab) == young, "{log}");

    let due = aged(&lab, &young, |life| life / 10);
    put(&lab, &due);
    let log = agent(&lab);
    assert!(log.contains(r"the token in C:\CalicoWindows\calico-kube-config was renewed, it is valid until"), "{log}");
    let new = token(&lab);
    assert!(new != due && !log.contains(&new));
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["drift"]), (&json!("Healthy"), &json!([])), "{status}");

    // Calico's own manifests do not grant that right.
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/calico-system/roles/calicoctl-win-renewal";
    cluster(&lab).as_admin(&http::Method::DELETE, role, None).unwrap();
    let due = aged(&lab, &new, |life| life * 7 / 10);
    put(&lab, &due);
    let log = agent(&lab);
    let said = log.lines().find(|line| line.contains("TokenRenewalForbidden")).unwrap_or_else(|| panic!("{log}"));
    for part in ["expires at ", "may not request tokens for itself", "explain TokenRenewalForbidden"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(token(&lab), due);
    let status = lab.run("status -o json").exits(12).json();
    assert!(status["reasons"].to_string().contains("may not request tokens for itself"), "{status}");
}

/// Creates what Kubernetes mounts into a HostProcess pod of calico-node, below `mount` of the lab. Returns its token.
fn mounted(lab: &Lab, cluster: &EmbeddedCluster) -> String {
    lab.write("admin.yaml", cluster.admin_kubeconfig_direct());
    let _fetched = lab.run("credentials fetch --out got --kubeconfig admin.yaml").exits(0);
    let fetched: Value =
        serde_yaml::from_str(&fs::read_to_string(lab.path("got/calico-kube-config")).unwrap()).unwrap();
    let token = fetched["users"][0]["user"]["token"].as_str().unwrap();
    let ca = base64::prelude::BASE64_STANDARD
        .decode(fetched["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap())
        .unwrap();
    lab.write(&format!("{ACCOUNT}/token"), token);
    lab.write(&format!("{ACCOUNT}/ca.crt"), ca);
    lab.write(&format!("{ACCOUNT}/namespace"), "calico-system");
    token.to_owned()
}

const ACCOUNT: &str = "mount/var/run/secrets/kubernetes.io/serviceaccount";

/// `install` in such a pod, with the variables of Kubernetes: the API server's host and port.
fn in_a_pod(lab: &Lab, told: &[(&str, &str)], more: &str) -> Value {
    let words = "install -y -o json --sandbox node --set kubernetes.credentials=host-process";
    let mut command = lab.command(&format!("{words} {more}"));
    command.env("CONTAINER_SANDBOX_MOUNT_POINT", lab.path("mount")).envs(told.iter().copied());
    serde_json::from_slice::<Value>(&command.output().unwrap().stdout).unwrap()
}

/// Defect B29: with HostProcess the backend none is refused and the VNI is ignored.
#[test]
fn b29_a_host_process_pod_installs_with_its_own_account() {
    let lab = Lab::node();
    let of_pod = mounted(&lab, &cluster(&lab));
    let install = |more: &str| in_a_pod(&lab, &[(HOST, "10.20.0.10"), (PORT, "6443")], more);
    let wrong = install("--set calicoNetwork.vxlan.vxlanVNI=100");
    assert_eq!(wrong["error"]["id"], "ConfigInvalid", "{wrong:#}");
    let none = install("--set calicoNetwork.backend=none --dry-run");
    assert_eq!(none["exit_code"], 0, "{none:#}");
    let installed = install("");
    assert_eq!((&installed["exit_code"], &installed["changed"]), (&json!(0), &json!(true)), "{installed:#}");
    assert_eq!(token(&lab), of_pod);
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

#[test]
fn a_host_process_pod_uses_the_api_server_that_it_is_given() {
    let lab = Lab::node();
    let seed = Seed::new("win-a1");
    let cluster = EmbeddedCluster::start(&lab.path("elsewhere"), &seed, &[]).unwrap();
    let of_pod = mounted(&lab, &cluster);
    let port = cluster.addr().port().to_string();
    let before = lab.picture_without_state();
    let elsewhere = lab.run("install -y -o json --set kubernetes.credentials=host-process").exits(4).json();
    assert_eq!(elsewhere["error"]["id"], "NotHostProcess", "{elsewhere:#}");
    let refused = |told: &[(&str, &str)], more: &str| {
        let answer = in_a_pod(&lab, told, more);
        let error = &answer["error"];
        format!(
            "{} {}: {}\n  {}\n",
            answer["exit_code"],
            error["id"].as_str().unwrap(),
            error["what"].as_str().unwrap(),
            error["hint"].as_str().unwrap()
        )
    };
    // Kubernetes sets a ClusterIP by default, which usually does not answer there.
    let nothing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let loopback = "--set kubernetes.serviceCIDRs=127.0.0.0/8 --ignore-preflight-errors ServiceCidr";
    let told = [
        refused(&[(HOST, "127.0.0.1"), (PORT, &port)], loopback),
        refused(&[(HOST, "127.0.0.1"), (PORT, &nothing)], "--set transport.retries=0").replace(&nothing, "PORT"),
        refused(&[], ""),
        {
            let name = format!("{ACCOUNT}/token");
            fs::rename(lab.path(&name), lab.path("mount/token")).unwrap();
            let told = refused(&[(HOST, "127.0.0.1"), (PORT, &port)], "");
            fs::rename(lab.path("mount/token"), lab.path(&name)).unwrap();
            told
        },
        {
            let name = format!("{ACCOUNT}/token");
            lab.write(&name, format!("{of_pod}x"));
            let told = refused(&[(HOST, "127.0.0.1"), (PORT, &port)], "");
            lab.write(&name, &of_pod);
            told.replace(&port, "PORT")
        },
    ];
    insta::assert_snapshot!(told.concat(), @"
    3 ApiServerAddress: the API server's address 127.0.0.1 is a ClusterIP, which a Windows host cannot reach
      set the API server's own address in the kubeconfig; in a HostProcess pod set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to it, as Calico's ConfigMap kubernetes-services-endpoint does
    7 ClusterRefused: the API server at https://127.0.0.1:PORT refuses the connection
      the pod's KUBERNETES_SERVICE_HOST names it: a ClusterIP there is not reached from a Windows host, so set it and KUBERNETES_SERVICE_PORT to the API server's own address; check that kube-apiserver runs, and the address and port in `server` of the kubeconfig
    4 NotHostProcess: KUBERNETES_SERVICE_HOST is not set
      kubernetes.credentials: host-process is for a pod with hostProcess: true and a mounted service account; elsewhere leave it out, or use token-request
    4 NotHostProcess: the pod's token cannot be read
      kubernetes.credentials: host-process is for a pod with hostProcess: true and a mounted service account; elsewhere leave it out, or use token-request
    17 ClusterUnauthorized: the API server at https://127.0.0.1:PORT rejects the credentials
      the token or client certificate has expired, or belongs to another cluster: get a new kubeconfig
    ");
    lab.picture_without_state().same_as(&before);

    let installed = in_a_pod(&lab, &[(HOST, "127.0.0.1"), (PORT, &port)], "");
    assert_eq!((&installed["exit_code"], &installed["changed"]), (&json!(0), &json!(true)), "{installed:#}");
    assert_eq!(token(&lab), of_pod);
    assert!(lab.read(KUBECONFIG).contains(&format!("https://127.0.0.1:{port}")), "the server that the pod was told");
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

/// The scenario of the seeds: kubeadm on Azure machines, its etcd with TLS, VXLAN, and everything that the node has
/// copied from the primary. The config is the one in docs/config.md.
#[test]
fn a_kubeadm_cluster_with_etcd_and_vxlan_needs_one_config_file() {
    let lab = Lab::node();
    let cluster = EmbeddedCluster::start(&lab.path("elsewhere"), &Seed::new("win-a1"), &[]).unwrap();
    give_etcd(&cluster);
    let etcd = Etcd::start();
    for (file, text) in [("client.key", &etcd.key), ("client.crt", &etcd.cert), ("ca.crt", &etcd.ca)] {
        lab.write(&format!("node/C/k/etcd/{file}"), text);
    }
    lab.write("node/C/k/config", cluster.admin_kubeconfig_direct());
    let page = read("docs/config.md");
    let (_, section) = page.split_once("### A kubeadm cluster with etcd").unwrap();
    let (_, block) = section.split_once("```yaml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    assert!(block.contains("https://10.240.0.4:2379"));
    lab.write("azure.yaml", block.replace("https://10.240.0.4:2379", &etcd.url));

    let before = lab.picture();
    let installed = lab.run("install -y -o json -c azure.yaml").exits(0).json();
    assert!(!installed.to_string().contains("PRIVATE"));
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["backend"]), (&json!("Healthy"), &json!("vxlan")), "{status}");
    let conf: Value = serde_json::from_str(&lab.read("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
    assert_eq!((&conf["datastore_type"], &conf["etcd_endpoints"]), (&json!("etcdv3"), &json!(etcd.url)), "{conf}");
    assert_eq!(conf["etcd_key_file"], r"C:\k\etcd\client.key");
    let shown = lab.run("credentials show -o json").exits(0).json();
    let kinds: Vec<&str> =
        shown["credentials"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["kubeconfig", "etcd-certificate", "etcd-ca"], "{shown}");
    assert_eq!(
        (&shown["credentials"][1]["subject"], &shown["credentials"][2]["subject"]),
        (&json!("calico"), &json!("etcd-ca"))
    );
    assert_eq!(lab.run("install -y -o json -c azure.yaml").exits(0).json()["changed"], false);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);

    // Wrong copies are reported by name, and nothing is changed.
    let other = Etcd::start();
    let before = lab.picture_without_state();
    for (file, text, id, exit) in
        [("ca.crt", &other.ca, "EtcdCertificateInvalid", 4), ("client.key", &other.key, "EtcdCertificateInvalid", 4)]
    {
        let path = format!("node/C/k/etcd/{file}");
        let good = fs::read(lab.path(&path)).unwrap();
        lab.write(&path, text);
        let refused = lab.run("install -y -o json -c azure.yaml").exits(exit).json();
        assert_eq!(refused["error"]["id"], id, "{file}: {refused:#}");
        lab.write(&path, good);
    }
    fs::remove_file(lab.path("node/C/k/etcd/client.key")).unwrap();
    let missing = lab.run("install -y -o json -c azure.yaml").exits(4).json();
    assert_eq!(missing["error"]["id"], "EtcdFileMissing", "{missing:#}");
    lab.write("node/C/k/etcd/client.key", &etcd.key);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn a_named_namespace_is_the_only_one_that_is_looked_at() {
    let lab = Lab::node();
    for verb in ["plan", "install -y"] {
        let absent = lab.run(&format!("{verb} -o json --calico-namespace kube-system")).exits(3).json();
        let check = &absent["error"]["checks"][0];
        assert_eq!(check["id"], "CalicoServiceAccount", "{absent:#}");
        assert_eq!(check["detail"], "there is no service account calico-node in kube-system", "{absent:#}");
    }
}

/// The power fails in the middle of it.
#[test]
fn an_interrupted_rotation_is_finished_or_undone() {
    let there = Lab::installed();
    let first = token(&there);
    for fault in [
        "save *receipts*=exit-before",
        "save *receipts*=exit-after",
        "put *calico-kube-config=exit-before",
        "put *calico-kube-config=exit-within",
        "put *calico-kube-config=exit-after",
    ] {
        for words in ["resume -y", "resume -y --undo", "credentials rotate -y", "apply -y", "uninstall -y --purge"] {
            let lab = there.copy();
            let _killed = lab.fails_at(fault, "credentials rotate -y").exits(137);
            let status = lab.run("status -o json").json();
            assert_eq!(status["run"]["command"], "credentials rotate", "{fault}: {status:#}");
            let _done = lab.run(words).exits(0);
            let state = lab.on_node("C/ProgramData/calicoctl-win");
            if words.starts_with("uninstall") {
                assert!(!state.exists(), "{fault}");
                continue;
            }
            let status = lab.run("status -o json").exits(0).json();
            assert_eq!(
                (&status["overall"], &status["drift"]),
                (&json!("Healthy"), &json!([])),
                "{fault}, {words}: {status}"
            );
            // An install keeps a valid token.
            if !words.starts_with("apply") {
                assert_eq!(token(&lab) == first, words.ends_with("undo"), "{fault}, {words}");
            }
            let other = fs::read_dir(lab.on_node("C/CalicoWindows")).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = other.filter(|name| name.to_string_lossy().contains("calicoctl-win-new")).collect();
            assert!(left.is_empty(), "{fault}, {words}: {left:?}");
        }
    }
}

#[test]
fn a_rotation_that_fails_is_reverted() {
    let lab = Lab::installed();
    let first = token(&lab);
    let failed = lab.fails_at("put *calico-kube-config#1=fail", "credentials rotate -y -o json").exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed}");
    assert_eq!(token(&lab), first);
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

/// Writes kubelet's own kubeconfig of this node, for a cluster whose administrators let nodes read what an install
/// reads: `docs/rbac.yaml` for the group of nodes, as the page of EKS asks for.
fn with_kubelets_kubeconfig(lab: &Lab) {
    let _started = lab.run("cluster check").exits(0);
    apply(lab, &read("docs/rbac.yaml").replace("name: calicoctl-win}]", "name: \"system:nodes\"}]"));
    lab.write("kubelet.yaml", cluster(lab).kubeconfig_of("system:node:win-a1", Some("system:nodes")).unwrap());
}

/// Creates what is not there of a manifest, like `kubectl apply`.
fn apply(lab: &Lab, manifest: &str) {
    let cluster = cluster(lab);
    let objects = manifest.split("---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
    for object in objects.filter(|object| !object.is_null()) {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap().to_lowercase());
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let place =
            object["metadata"]["namespace"].as_str().map_or(String::new(), |name| format!("/namespaces/{name}"));
        let made = cluster.as_admin(&http::Method::POST, &format!("{root}{place}/{kind}s"), Some(&object));
        if let Err(error) = made {
            assert!(format!("{error:#}").contains("already exists"), "{object}: {error:#}");
        }
    }
}

/// The requests for a token of calico-node that the sandbox's API server has seen.
fn token_requests(lab: &Lab) -> usize {
    let calls = fs::read_to_string(lab.path("node/cluster/calls")).unwrap_or_default();
    calls.lines().filter(|line| line.contains("serviceaccounts/calico-node/token")).count()
}

#[test]
fn a_rotation_reads_only_what_it_needs() {
    let lab = Lab::installed();
    let _rotated = lab.fails_at("api GET /*=noted;api POST /*=noted", "credentials rotate -y").exits(0);
    let calls = fs::read_to_string(lab.path("node/cluster/calls")).unwrap();
    let asked = calls.lines().count();
    assert!(
        !["policies", "bgp", "hostendpoints", "blockaffinities", "/api/v1/nodes\n", "/api/v1/nodes?"]
            .iter()
            .any(|one| calls.contains(one)),
        "{calls}"
    );
    assert!(asked <= 28, "{asked}\n{calls}");
}

/// The default kubeconfig on EKS is kubelet's own. NodeRestriction gives it no token for calico-node.
#[test]
fn kubelets_own_kubeconfig_is_refused_before_any_change_with_three_ways_out() {
    let lab = Lab::node();
    with_kubelets_kubeconfig(&lab);
    let before = lab.picture_without_state();
    for more in ["", "--set kubernetes.credentials=token-request", "--set kubernetes.credentials=secret"] {
        let words = format!("install -y -o json --kubeconfig kubelet.yaml {more}");
        let refused = lab.fails_at("api POST *=noted", &words).exits(3).json();
        assert_eq!(refused["error"]["id"], "NodeLogin", "{more}: {refused:#}");
        let check = refused["error"]["checks"][0].to_string();
        for part in ["kubelet on win-a1", "--kubeconfig FILE", "explain NodeLogin", "credentials fetch"] {
            assert!(check.contains(part), "{more}: {part}: {check}");
        }
        assert_eq!(token_requests(&lab), 0, "{more}");
    }
    lab.picture_without_state().same_as(&before);
    // The API server's own refusal, if somebody insists and RBAC allows it.
    let insists = "install -y -o json --kubeconfig kubelet.yaml --set kubernetes.credentials=token-request \
                   --ignore-preflight-errors NodeLogin";
    let refused = lab.run(insists).exits(17).json();
    assert_eq!(refused["error"]["id"], "NodeLogin", "{refused:#}");
    assert!(refused["error"]["why"].to_string().contains("node requested token not bound to a pod"), "{refused:#}");
    lab.picture_without_state().same_as(&before);
    // Nor does it help to log in again later.
    let _installed = lab.run("install -y").exits(0);
    let rotated = lab.run("credentials rotate -y -o json --kubeconfig kubelet.yaml").exits(17).json();
    assert_eq!(rotated["error"]["id"], "NodeLogin", "{rotated:#}");
}

#[test]
fn kubelets_own_kubeconfig_gets_the_token_of_the_secret_that_it_may_read() {
    let lab = Lab::node();
    with_kubelets_kubeconfig(&lab);
    let page = lab.bare("explain NodeLogin").exits(0).stdout;
    apply(&lab, &page[page.find("apiVersion:").unwrap()..]);
    let before = lab.picture();
    let words = "install -y -o json --kubeconfig kubelet.yaml";
    let installed = lab.fails_at("api POST *=noted", words).exits(0).json();
    assert!(installed["warnings"].to_string().contains("NodeLogin"), "it is told: {installed:#}");
    assert_eq!(claims(&token(&lab))["kubernetes.io/serviceaccount/secret.name"], "calico-node-token");
    assert_eq!(token_requests(&lab), 0);
    let shown = lab.run("config show --origins --kubeconfig kubelet.yaml").exits(0).stdout;
    assert!(shown.contains("kubelet on win-a1"), "{shown}");
    assert_eq!(lab.run(words).exits(0).json()["changed"], false);
    for later in
        ["reconfigure -y --no-drain --set services.felixLogSeverity=debug", "credentials rotate -y", "repair -y"]
    {
        let _works = lab.run(later).exits(0);
    }
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}
