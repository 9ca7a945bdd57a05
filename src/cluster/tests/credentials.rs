use base64::Engine as _;

use super::*;
use crate::values::Secret;

const NAMESPACE: &str = "calico-system";
const SECRET: &str = "/api/v1/namespaces/calico-system/secrets/calico-node-token";
const SECRETS: &str = "/api/v1/namespaces/calico-system/secrets";
const OF_TYPE: &str = "?fieldSelector=type%3Dkubernetes.io%2Fservice-account-token";
const TOKEN: &str = "POST /api/v1/namespaces/calico-system/serviceaccounts/calico-node/token";
const REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A server that accepts any token.
fn server() -> Server {
    let server = Server::start();
    server.on(REVIEW, [Reply::recorded("ssar-allowed")]);
    server.on(&format!("GET {SECRET}"), [absent()]);
    server.on(&format!("GET {SECRETS}{OF_TYPE}"), [Reply::recorded("secrets-list-empty")]);
    server
}

fn absent() -> Reply {
    let status = json!({
        "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "secrets \"calico-node-token\" not found", "details": {"name": "calico-node-token", "kind": "secrets"},
    });
    Reply::json(404, &status)
}

fn secret(name: &str, account: &str, token: Option<(&str, &str)>) -> Value {
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let mut secret = json!({
        "kind": "Secret", "apiVersion": "v1", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "annotations": {"kubernetes.io/service-account.name": account},
            "labels": {"app.kubernetes.io/managed-by": "calicoctl-win"},
        },
    });
    if let Some((token, ca)) = token {
        secret["data"] = json!({"token": base64(token), "ca.crt": base64(ca), "namespace": base64(NAMESPACE)});
    }
    secret
}

fn get(server: &Server, mode: TokenFrom, create: bool) -> (Result<Issued>, Vec<Event>) {
    let mut events = Vec::new();
    let wait = Duration::from_millis(300);
    let cluster = server.connect_within(short_limits());
    let issued = cluster.node_credentials(NAMESPACE, mode, create, wait, &mut |event| events.push(event));
    (issued, events)
}

fn id(issued: Result<Issued>) -> &'static str {
    Fault::id_of(&issued.unwrap_err())
}

#[test]
fn a_token_is_requested_for_a_year_and_verified_once() {
    let server = server();
    server.on(TOKEN, [Reply::recorded("tokenrequest-1y")]);
    let issued = get(&server, TokenFrom::Request, true).0.unwrap();

    assert!(!issued.created_secret);
    assert_eq!(issued.credentials.server, "https://api.cluster.test:6443");
    assert_eq!(issued.credentials.ca_pem, server.ca_pem);
    assert_eq!(issued.credentials.token(), Some(&Secret::new("<JWT>")));
    assert_eq!(issued.credentials.expires.unwrap().to_string(), "2027-11-21T00:29:04Z");
    let seen = server.seen();
    let asked: Value = serde_json::from_str(&seen[0].body).unwrap();
    assert_eq!(asked["spec"]["expirationSeconds"], 365 * 24 * 3600);
    assert_eq!((seen[1].key.as_str(), seen[1].headers["authorization"].as_str()), (REVIEW, "Bearer <JWT>"));
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_shorter_lifetime_than_requested_is_reported() {
    let server = server();
    let Reply::Full(status, mut headers, body) = Reply::recorded("tokenrequest-1y") else { unreachable!() };
    let warning = "299 - \"requested expiration of 31536000 seconds shortened to 86400 seconds\"";
    headers.push(("Warning".into(), warning.into()));
    server.on(TOKEN, [Reply::Full(status, headers, body)]);
    let (issued, events) = get(&server, TokenFrom::Request, true);
    assert!(issued.is_ok());
    assert!(
        matches!(&events[..], [Event::Warning { message, .. }] if message.contains("shortened to 86400")),
        "{events:?}"
    );
}

#[test]
fn a_token_that_does_not_work_is_refused() {
    let server = server();
    server.on(TOKEN, [Reply::recorded("tokenrequest-1y")]);
    server.on(REVIEW, [Reply::recorded("bad-token-401")]);
    let rejected = get(&server, TokenFrom::Request, true).0.unwrap_err();
    assert_eq!(Fault::id_of(&rejected), "CredentialsRejected");
    assert!(!format!("{rejected:#} {rejected:?}").contains("JWT"));
    server.on(REVIEW, [Reply::recorded("ssar-denied")]);
    assert_eq!(id(get(&server, TokenFrom::Request, true).0), "ServiceAccountForbidden");

    let mut empty: Value = json!({"status": {"token": "", "expirationTimestamp": "2027-11-21T00:29:04Z"}, "spec": {}});
    empty["spec"]["audiences"] = json!([]);
    server.on(TOKEN, [Reply::json(201, &empty)]);
    assert_eq!(id(get(&server, TokenFrom::Request, true).0), "TokenEmpty");
}

#[test]
fn without_the_service_account_the_fix_is_to_install_calico() {
    let server = server();
    let gone = json!({
        "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "serviceaccounts \"calico-node\" not found", "details": {"name": "calico-node", "kind": "serviceaccounts"},
    });
    server.on(TOKEN, [Reply::json(404, &gone)]);
    insta::assert_snapshot!(story(&get(&server, TokenFrom::Request, true).0.unwrap_err()), @"
    CLUSTER_UNREACHABLE ServiceAccountMissing
      what there is no service account calico-node in namespace calico-system
      fix  install Calico on the cluster's Linux nodes first (docs.tigera.io/calico: tigera-operator, or calico.yaml); if it is in another namespace, set kubernetes.calicoNamespace in the config
    ");

    // The API server accepts the secret; the controller then deletes it.
    server.on(&format!("POST {SECRETS}"), [Reply::recorded("token-secret-create")]);
    assert_eq!(id(get(&server, TokenFrom::Secret, true).0), "ServiceAccountMissing");
}

/// Defect B17: a new secret has no token yet.
#[test]
fn b17_a_secret_is_created_and_awaited_until_it_is_filled() {
    let server = server();
    let unfilled = Reply::json(200, &secret("calico-node-token", "calico-node", None));
    let filled = Reply::json(200, &secret("calico-node-token", "calico-node", Some(("its-token", &server.ca_pem))));
    server.on(&format!("GET {SECRET}"), [absent(), unfilled.clone(), unfilled, filled]);
    server.on(&format!("POST {SECRETS}"), [Reply::recorded("token-secret-create")]);
    let (issued, events) = get(&server, TokenFrom::Secret, true);
    let issued = issued.unwrap();

    assert!(issued.created_secret);
    assert_eq!((issued.credentials.token().unwrap().reveal(), issued.credentials.expires), ("its-token", None));
    assert!(events.iter().all(|e| matches!(e, Event::Waiting { what, .. } if what.contains("calico-node-token"))));
    assert_eq!(events.len(), 2);
    let made: Value = serde_json::from_str(&server.seen()[2].body).unwrap();
    assert_eq!(made["metadata"]["annotations"]["kubernetes.io/service-account.name"], "calico-node");
    assert_eq!(made["metadata"]["labels"]["app.kubernetes.io/managed-by"], "calicoctl-win");

    // Another process was faster: fine, but the secret is not ours.
    let filled = Reply::json(200, &secret("calico-node-token", "calico-node", Some(("theirs", &server.ca_pem))));
    server.on(&format!("GET {SECRET}"), [absent(), filled]);
    server.on(&format!("POST {SECRETS}"), [Reply::recorded("token-secret-create-again-409")]);
    assert!(!get(&server, TokenFrom::Secret, true).0.unwrap().created_secret);
}

#[test]
fn b16_b18_a_secret_is_recognized_by_its_annotation_and_created_only_on_request() {
    let server = server();
    let others = json!({"items": [
        secret("calico-node-windows-token-x", "calico-node-windows", Some(("wrong", &server.ca_pem))),
        secret("legacy", "calico-node", Some(("right", &server.ca_pem))),
    ]});
    server.on(&format!("GET {SECRETS}{OF_TYPE}"), [Reply::json(200, &others)]);
    let issued = get(&server, TokenFrom::Secret, false).0.unwrap();
    assert_eq!((issued.credentials.token().unwrap().reveal(), issued.created_secret), ("right", false));

    server.on(&format!("GET {SECRETS}{OF_TYPE}"), [Reply::recorded("secrets-list-empty")]);
    assert_eq!(id(get(&server, TokenFrom::Secret, false).0), "TokenSecretMissing");
    let foreign = secret("calico-node-token", "someone", Some(("wrong", &server.ca_pem)));
    server.on(&format!("GET {SECRET}"), [Reply::json(200, &foreign)]);
    assert_eq!(id(get(&server, TokenFrom::Secret, true).0), "TokenSecretForeign");
    let empty = secret("calico-node-token", "calico-node", Some(("", &server.ca_pem)));
    server.on(&format!("GET {SECRET}"), [Reply::json(200, &empty)]);
    assert_eq!(id(get(&server, TokenFrom::Secret, true).0), "TokenEmpty");
}

#[test]
fn a_secret_that_is_never_filled_is_deleted_again_if_it_is_ours() {
    let server = server();
    let unfilled = Reply::json(200, &secret("calico-node-token", "calico-node", None));
    server.on(&format!("GET {SECRET}"), [absent(), unfilled.clone()]);
    server.on(&format!("POST {SECRETS}"), [Reply::recorded("token-secret-create")]);
    server.replay(&["serviceaccount-get", "token-secret-delete"]);
    insta::assert_snapshot!(story(&get(&server, TokenFrom::Secret, true).0.unwrap_err()), @"
    CLUSTER_UNREACHABLE TokenSecretUnfilled
      what the secret calico-system/calico-node-token did not get a token within 0.3 s
      fix  kube-controller-manager fills it: check that it runs, or use kubernetes.credentials: token-request
    ");
    assert_eq!(server.keys().last().unwrap(), &format!("DELETE {SECRET}"));

    server.on(&format!("GET {SECRET}"), [unfilled]);
    assert_eq!(id(get(&server, TokenFrom::Secret, true).0), "TokenSecretUnfilled");
    assert_ne!(server.keys().last().unwrap(), &format!("DELETE {SECRET}"));
}

#[test]
fn only_our_own_secret_is_deleted() {
    let server = server();
    server.replay(&["token-secret-delete"]);
    let cluster = server.connect();
    assert!(!cluster.delete_token_secret(NAMESPACE).unwrap());

    let mut theirs = secret("calico-node-token", "calico-node", None);
    theirs["metadata"]["labels"] = json!({});
    server.on(&format!("GET {SECRET}"), [Reply::json(200, &theirs)]);
    assert!(!cluster.delete_token_secret(NAMESPACE).unwrap());

    server.on(&format!("GET {SECRET}"), [Reply::json(200, &secret("calico-node-token", "calico-node", None))]);
    assert!(cluster.delete_token_secret(NAMESPACE).unwrap());
    assert_eq!(server.keys().iter().filter(|k| k.starts_with("DELETE")).count(), 1);
}

#[test]
fn the_ca_comes_from_the_cluster_if_the_kubeconfig_has_none() {
    let server = server();
    server.on(TOKEN, [Reply::recorded("tokenrequest-1y")]);
    let map = json!({"data": {"ca.crt": server.ca_pem}});
    server.on("GET /api/v1/namespaces/calico-system/configmaps/kube-root-ca.crt", [Reply::json(200, &map)]);
    let text = server.kubeconfig().replace("certificate-authority-data: ", "insecure-skip-tls-verify: true #");
    let cluster = Cluster::connect(&text, ".".as_ref(), None, Some(server.address), short_limits()).unwrap();
    let wait = Duration::ZERO;
    let issued = cluster.node_credentials(NAMESPACE, TokenFrom::Request, true, wait, &mut |_| {}).unwrap();
    assert_eq!(issued.credentials.ca_pem, server.ca_pem);
}

#[test]
fn a_public_certificate_is_verified_by_the_systems_roots() {
    let text = Server::start().kubeconfig().replace("certificate-authority-data: ", "#");
    let cluster = Cluster::connect(&text, ".".as_ref(), None, None, short_limits()).unwrap();
    assert_eq!(cluster.ca_pem(), None);
    let ca = Some("the cluster's own".to_owned());
    let credentials = cluster.assemble(NAMESPACE, ca, Secret::new("t"), None).unwrap();
    assert_eq!(credentials.ca_pem, "");
}

/// Manifests install Calico in kube-system, and the Role that is printed names calico-system.
#[test]
fn the_right_to_renew_is_granted_in_the_namespace_of_the_account() {
    let hint = |namespace| renewal_forbidden(namespace, "calico-node").hint.unwrap();
    assert!(
        hint("kube-system")
            .contains("`calicoctl-win explain TokenRenewalForbidden --calico-namespace kube-system` prints the Role\n")
    );
    assert!(hint("calico-system").contains("prints the Role\n"));
}
