//! The node's own token: made, used again, renewed, taken back.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::lab::Lab;

const KUBECONFIG: &str = "C/CalicoWindows/calico-kube-config";
const SECRET: &str = "--set kubernetes.credentials=secret";

/// The token in the node's kubeconfig.
pub fn token(lab: &Lab) -> String {
    let kubeconfig: Value = serde_yaml::from_str(&lab.read(KUBECONFIG)).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

/// Whether the sandbox's cluster has the secret that install makes.
fn has_secret(lab: &Lab) -> bool {
    let store = fs::read_to_string(lab.path("node/cluster/cluster.json")).unwrap();
    store.contains(r#""name":"calico-node-token""#) || store.contains(r#""name": "calico-node-token""#)
}

#[test]
fn a_token_from_a_secret_lives_and_goes_with_the_secret_that_install_made() {
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

    // Other nodes may use it, so only --purge takes it.
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(has_secret(&lab));
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    assert_eq!(token(&lab), first);
    let _purged = lab.run("uninstall --purge -y").exits(0);
}

#[test]
fn purge_deletes_the_secret_that_install_made() {
    let lab = Lab::node();
    let before = lab.picture();
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    let gone = lab.run("uninstall --purge -y -o json").exits(0).json();
    assert_eq!(gone["next"], json!([]), "{gone}");
    assert!(!has_secret(&lab));
    lab.picture().same_as(&before);
}

#[test]
fn purge_after_an_uninstall_still_knows_the_secret_that_install_made() {
    let lab = Lab::node();
    let before = lab.picture();
    let _there = lab.run(&format!("install -y {SECRET}")).exits(0);
    let kept = lab.run("uninstall -y -o json").exits(0).json();
    assert!(kept["next"][0].as_str().unwrap().contains("delete secret"), "{kept}");
    let gone = lab.run("uninstall --purge -y -o json").exits(0).json();
    assert_eq!((&gone["changed"], &gone["next"]), (&true.into(), &json!([])), "{gone}");
    assert!(!has_secret(&lab));
    lab.picture().same_as(&before);
}

#[test]
fn a_cluster_that_is_away_does_not_keep_calico_on_the_node() {
    let lab = Lab::node();
    let before = lab.picture();
    let _there = lab.run(&format!("install -y {SECRET} --set transport.retries=0")).exits(0);
    let gone = lab.fails_at("api down", "uninstall --purge -y -o json").exits(0).json();
    assert!(gone["next"][0].as_str().unwrap().contains("kubectl -n calico-system delete secret"), "{gone}");
    assert!(has_secret(&lab));
    lab.picture().same_as(&before);
}

#[test]
fn a_good_token_is_used_again_and_an_old_or_refused_one_renewed() {
    let lab = Lab::installed();
    let first = token(&lab);
    let _same = lab.run("install -y").exits(0);
    assert_eq!(token(&lab), first, "a good token was thrown away");

    // Signed by the cluster, and three quarters of its life are over.
    let mut old = claims(&first);
    let life = old["exp"].as_i64().unwrap() - old["iat"].as_i64().unwrap();
    for time in ["iat", "nbf", "exp"] {
        old[time] = json!(old[time].as_i64().unwrap() - life * 3 / 4);
    }
    let key = KeyPair::from_pem(&fs::read_to_string(lab.path("node/cluster/pki/sa.key")).unwrap()).unwrap();
    let signed = format!("{}.{}", first.split('.').next().unwrap(), URL_SAFE_NO_PAD.encode(old.to_string()));
    let aged = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).unwrap()));
    // Not signed by anybody the cluster knows.
    let refused = format!("{}x", &first[..first.len() - 4]);
    for bad in [aged, refused] {
        let now = token(&lab);
        let mut kubeconfig: Value = serde_yaml::from_str(&lab.read(KUBECONFIG)).unwrap();
        kubeconfig["users"][0]["user"]["token"] = json!(bad);
        fs::write(lab.on_node(KUBECONFIG), serde_yaml::to_string(&kubeconfig).unwrap()).unwrap();
        let renewed = lab.run("install -y -o json").exits(0).json();
        assert_eq!(renewed["changed"], true, "{renewed}");
        let new = token(&lab);
        assert!(new != bad && new != now, "not renewed");
        assert!(claims(&new)["exp"].as_i64() >= claims(&first)["exp"].as_i64());
        assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
    }
}

#[test]
fn a_secret_that_is_never_filled_is_taken_back_and_nothing_is_installed() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let words = format!("install -y {SECRET} --set transport.timeout=1s -o json");
    let failed = lab.fails_at("api unfilled", &words).exits(7).json();
    assert_eq!(failed["error"]["id"], "TokenSecretUnfilled", "{failed}");
    assert!(!has_secret(&lab));
    lab.picture_without_state().same_as(&before);
}
