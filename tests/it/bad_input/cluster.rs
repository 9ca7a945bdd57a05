//! An API server that is down, slow, overloaded, rejects the credentials, or is another server; and kubeconfigs that
//! cannot be used.

use std::fs;

use super::{ACCESS, CLUSTER, Case, PREFLIGHT, case, screens};
use crate::lab::Lab;

/// Errors that a retry does not change.
const DENIED: [&str; 9] = [
    "ClusterCaExpired",
    "ClusterCertificateExpired",
    "ClusterCertificateName",
    "ClusterForbidden",
    "ClusterNeedsTls",
    "ClusterNotTls",
    "ClusterTlsVersion",
    "ClusterUnauthorized",
    "ClusterUntrusted",
];

fn api(name: &'static str, fault: &'static str, id: &'static str) -> Case {
    let exit = if DENIED.contains(&id) { ACCESS } else { CLUSTER };
    case(name, "install -y --set transport.timeout=1s --set transport.retries=0", exit, id).with(fault)
}

#[test]
fn every_connection_failure_to_the_api_server_has_its_own_error() {
    let cases = [
        api("down", "api down", "ClusterRefused"),
        api("slow", "api GET /version*=slow", "ClusterTimeout"),
        api("reset", "api GET /*=reset", "ClusterConnectionLost"),
        api("closed in the middle", "api GET /apis/crd.projectcalico.org/*=cut", "ClusterConnectionLost"),
        api("plain HTTP", "api plain-http", "ClusterNotTls"),
        api("TLS 1.1", "api old-tls", "ClusterTlsVersion"),
        api("an expired CA", "api expired-ca", "ClusterCaExpired"),
        api("an expired certificate", "api expired-certificate", "ClusterCertificateExpired"),
        api("a certificate for another name", "api other-name", "ClusterCertificateName"),
        api("self-signed", "api self-signed", "ClusterUntrusted"),
        // Requests run in parallel, so the failing one differs; its error does not.
        api("stopped between two requests", "api GET /apis/*/ippools*=reset", "ClusterConnectionLost"),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @r#"
    down
      error: the API server at https://10.20.0.10:6443 refuses the connection
        cause: (the system's own words)
        state: nothing was changed
        fix: check that kube-apiserver runs, and the address and port in `server` of the kubeconfig
    slow
      error: the API server at https://10.20.0.10:6443 did not answer GET /version within 1 s
        state: nothing was changed
        fix: a firewall, proxy or VPN may be in the way, or the server is overloaded; --set transport.timeout=2m allows more time
    reset
      error: the API server at https://10.20.0.10:6443 closed the connection during GET /version
        cause: peer closed connection without sending TLS close_notify
        state: nothing was changed
        fix: a proxy, firewall or load balancer in between may do that, or the server is restarting: try again
    closed in the middle
      error: the API server at https://10.20.0.10:6443 closed the connection during GET /apis/crd.projectcalico.org/v1/felixconfigurations/default
        cause: peer closed connection without sending TLS close_notify
        state: nothing was changed
        fix: a proxy, firewall or load balancer in between may do that, or the server is restarting: try again
    plain HTTP
      error: the server at https://10.20.0.10:6443 does not use TLS
        cause: received corrupt message of type InvalidContentType
        state: nothing was changed
        fix: check the port: an API server's is usually 6443 or 443
    TLS 1.1
      error: the API server at https://10.20.0.10:6443 does not support TLS 1.2 or 1.3
        cause: received fatal alert: ProtocolVersion
        state: nothing was changed
        fix: check --tls-min-version of kube-apiserver, or the proxy in front of it
    an expired CA
      error: the cluster's CA in the kubeconfig has expired on DATE
        state: nothing was changed
        fix: renew the cluster's CA and get a new kubeconfig, or correct this machine's clock
    an expired certificate
      error: the certificate of the API server at https://10.20.0.10:6443 has expired on DATE
        state: nothing was changed
        fix: renew it (kubeadm: `kubeadm certs renew apiserver`), or correct this machine's clock
    a certificate for another name
      error: the certificate of the API server at https://10.20.0.10:6443 is for other names
        cause: invalid peer certificate: certificate not valid for name "10.20.0.10"; certificate is only valid for DnsName("another.example")
        state: nothing was changed
        fix: use one of its names as `server` in the kubeconfig, or as `tls-server-name`
    self-signed
      error: the certificate of the API server at https://10.20.0.10:6443 is not signed by the trusted CA
        cause: invalid peer certificate: UnknownIssuer
        state: nothing was changed
        fix: the kubeconfig's certificate-authority belongs to another cluster or was replaced, or a proxy intercepts TLS: get a new kubeconfig
    stopped between two requests
      error: the API server at https://10.20.0.10:6443 closed the connection during GET /apis/crd.projectcalico.org/v1/ippools
        cause: peer closed connection without sending TLS close_notify
        state: nothing was changed
        fix: a proxy, firewall or load balancer in between may do that, or the server is restarting: try again
    "#);
}

#[test]
fn every_refusal_of_the_api_server_has_its_own_error() {
    let cases = [
        api("401", "api GET /*=401", "ClusterUnauthorized"),
        api("403 for a path", "api GET /version=403", "ClusterForbidden"),
        api("403 for a resource", "api GET /apis/crd.projectcalico.org/v1/ippools*=403", "ClusterForbidden"),
        api("403 in a namespace", "api POST */token*=403", "ClusterForbidden"),
        api("404 in text, for everything", "api * /*=404-text", "ClusterAnswer"),
        api("404 in text, for a resource", "api GET /apis/crd.projectcalico.org/*=404-text", "ApiNotServed"),
        api("404 in text, for the token", "api POST */token*=404-text", "ApiNotServed"),
        api("410, repeatedly", "api GET /apis/crd.projectcalico.org/v1/ippools*=410", "ClusterListExpired"),
        api("415", "api POST */token*=415", "ClusterRejected"),
        api("422 with causes", "api POST */token*=422", "ClusterRejected"),
        api("429", "api GET /*=429", "ClusterOverloaded"),
        api("500", "api GET /*=500", "ClusterFailed"),
        api("500 without a reason", "api GET /*=500-bare", "ClusterFailed"),
        api("500 for the token", "api POST */token*=500", "ClusterFailed"),
        api("503", "api GET /*=503", "ClusterUnavailable"),
        api("504", "api GET /*=504", "ClusterGatewayTimeout"),
        api("no service account for the token", "api POST */token*=404", "ServiceAccountMissing"),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @r#"
    401
      error: the API server at https://10.20.0.10:6443 rejects the credentials
        cause: HTTP 401: Unauthorized
        state: nothing was changed
        fix: the token or client certificate has expired, or belongs to another cluster: get a new kubeconfig
    403 for a path
      error: user kubernetes-admin cannot get the path /version
        cause: HTTP 403: forbidden: User "kubernetes-admin" cannot get path "/version"
        state: nothing was changed
        fix: use the kubeconfig of a cluster administrator
    403 for a resource
      error: user kubernetes-admin cannot list ippools of crd.projectcalico.org in the whole cluster
        cause: HTTP 403: ippools.crd.projectcalico.org is forbidden: User "kubernetes-admin" cannot list resource "ippools" in API group "crd.projectcalico.org" at the cluster scope
        state: nothing was changed
        fix: ask a cluster administrator to run:
             kubectl create clusterrole calicoctl-win-list-ippools --verb=list --resource=ippools.crd.projectcalico.org
             kubectl create clusterrolebinding calicoctl-win-list-ippools --clusterrole=calicoctl-win-list-ippools --user=kubernetes-admin
    403 in a namespace
      error: user kubernetes-admin cannot create serviceaccounts/token of the core group in namespace calico-system
        cause: HTTP 403: serviceaccounts "calico-node" is forbidden: User "kubernetes-admin" cannot create resource "serviceaccounts/token" in API group "" in the namespace "calico-system"
        state: nothing was changed
        fix: ask a cluster administrator to run:
             kubectl create role calicoctl-win-create-serviceaccounts-token --verb=create --resource=serviceaccounts/token -n calico-system
             kubectl create rolebinding calicoctl-win-create-serviceaccounts-token --role=calicoctl-win-create-serviceaccounts-token --user=kubernetes-admin -n calico-system
    404 in text, for everything
      error: the server at https://10.20.0.10:6443 is not a Kubernetes API server: it has no /version
        cause: HTTP 404: 404 page not found
        state: nothing was changed
        fix: check `server` in the kubeconfig: scheme, address, port and path; a proxy or a portal may answer instead
    404 in text, for a resource
      error: the API server at https://10.20.0.10:6443 does not serve felixconfigurations of crd.projectcalico.org/v1
        cause: HTTP 404: 404 page not found
        state: nothing was changed
        fix: its CustomResourceDefinitions are not installed, or have another version: see `kubectl api-resources`
    404 in text, for the token
      error: the API server at https://10.20.0.10:6443 does not serve serviceaccounts/token
        cause: HTTP 404: 404 page not found
        state: nothing was changed
        fix: its Kubernetes version is too old; use a token from a secret: kubernetes.credentials: secret
    410, repeatedly
      error: GET /apis/crd.projectcalico.org/v1/ippools: the list changed faster than it could be read
        cause: HTTP 410: The resourceVersion for the provided list is too old.
        state: nothing was changed
        fix: run the command again; if it happens each time, the API server is overloaded
    415
      error: the API server rejects POST /api/v1/namespaces/calico-system/serviceaccounts/calico-node/token as not valid
        cause: HTTP 415: the body of the request was in an unknown format - accepted media types include: application/json-patch+json
        state: nothing was changed
        fix: the reason names the field; this version of Calico may have other rules for it
    422 with causes
      error: the API server rejects POST /api/v1/namespaces/calico-system/serviceaccounts/calico-node/token as not valid
        cause: HTTP 422: ServiceAccount "calico-node" is invalid: spec: Invalid value: a rule of this cluster forbids it
        state: nothing was changed
        fix: the reason names the field; this version of Calico may have other rules for it
    429
      error: the API server at https://10.20.0.10:6443 is overloaded and refused GET /version
        cause: HTTP 429: Too many requests, please try again later.
        state: nothing was changed
        fix: try again later; if that does not help, check the flow control and load of the API server
    500
      error: the API server at https://10.20.0.10:6443 failed on GET /version
        cause: HTTP 500: Internal error occurred: etcdserver: request timed out
        state: nothing was changed
        fix: check the API server's log; a webhook that does not answer is a common cause
    500 without a reason
      error: the API server at https://10.20.0.10:6443 failed on GET /version
        cause: HTTP 500: etcdserver: leader changed
        state: nothing was changed
        fix: check the API server's log; a webhook that does not answer is a common cause
    500 for the token
      error: the API server at https://10.20.0.10:6443 failed on POST /api/v1/namespaces/calico-system/serviceaccounts/calico-node/token
        cause: HTTP 500: Internal error occurred: etcdserver: request timed out
        state: nothing was changed
        fix: check the API server's log; a webhook that does not answer is a common cause
    503
      error: the API server at https://10.20.0.10:6443 is not available for GET /version
        cause: HTTP 503: service unavailable
        state: nothing was changed
        fix: it may be starting, or unable to reach etcd: see `kubectl get --raw /readyz?verbose`
    504
      error: the API server at https://10.20.0.10:6443 timed out on GET /version
        cause: HTTP 504: Timeout: request did not complete within the allotted timeout
        state: nothing was changed
        fix: etcd or a webhook is slow: check the API server's log, then try again
    no service account for the token
      error: there is no service account calico-node in namespace calico-system
        state: nothing was changed
        fix: install Calico on the cluster's Linux nodes first (docs.tigera.io/calico: tigera-operator, or calico.yaml); if it is in another namespace, set kubernetes.calicoNamespace in the config
    "#);
}

#[test]
fn an_answer_that_is_not_of_an_api_server_is_reported_as_such() {
    let cases = [
        api("a proxy's page", "api GET /*=html", "ClusterAnswer"),
        api("a proxy's page for one request", "api GET /apis/crd.projectcalico.org/v1/ippools*=html", "ClusterAnswer"),
        api("truncated JSON", "api GET /version=truncated", "ClusterAnswer"),
        api("another content type", "api GET /version=protobuf", "ClusterAnswer"),
        api("a redirect", "api GET /version=redirect", "ClusterAnswer"),
    ];
    insta::assert_snapshot!(screens(&cases, |_| ()), @"
    a proxy's page
      error: GET /version was answered with a web page
        cause: expected value at line 1 column 1
        state: nothing was changed
        fix: a proxy or a login portal answers instead of the API server: set spec.transport.noProxy or use another network
    a proxy's page for one request
      error: GET /apis/crd.projectcalico.org/v1/ippools was answered with a web page
        cause: expected value at line 1 column 1
        state: nothing was changed
        fix: a proxy or a login portal answers instead of the API server: set spec.transport.noProxy or use another network
    truncated JSON
      error: the response to GET /version is truncated
        cause: EOF while parsing a string at line 1 column 164
        state: nothing was changed
        fix: a proxy or load balancer may truncate long responses: connect to the API server directly
    another content type
      error: GET /version was answered with application/vnd.kubernetes.protobuf instead of JSON
        cause: expected value at line 1 column 1
        state: nothing was changed
        fix: a proxy may change requests or responses, or the server is not an API server
    a redirect
      error: the server at https://10.20.0.10:6443 redirects GET /version to https://login.example
        cause: HTTP 302
        state: nothing was changed
        fix: an API server never redirects: a login portal or proxy answers, or `server` in the kubeconfig belongs to another service
    ");
}

#[test]
fn a_change_that_the_api_server_refuses_is_reported_as_refused() {
    let prepare =
        |name, fault, id| case(name, "cluster prepare --apply -y --set transport.retries=0", CLUSTER, id).with(fault);
    let cases = [
        prepare("409", "api PATCH /*=409", "ClusterConflict"),
        prepare("415", "api PATCH /*=415", "ClusterRejected"),
        prepare("422", "api PATCH /*=422", "ClusterRejected"),
        prepare("429", "api PATCH /*=429", "ClusterOverloaded"),
    ];
    let without_affinity = |lab: &Lab| cluster_with(lab, r#""strictAffinity": true"#, r#""strictAffinity": false"#);
    insta::assert_snapshot!(screens(&cases, without_affinity), @r#"
    409
      error: PATCH /apis/crd.projectcalico.org/v1/ipamconfigs/default: another client changed the object at the same time
        cause: HTTP 409: Operation cannot be fulfilled on ipamconfigs.crd.projectcalico.org "default": the object has been modified; please apply your changes to the latest version and try again
        state: nothing was changed
        fix: run the command again: it starts from the current state
    415
      error: the API server rejects PATCH /apis/crd.projectcalico.org/v1/ipamconfigs/default as not valid
        cause: HTTP 415: the body of the request was in an unknown format - accepted media types include: application/json-patch+json
        state: nothing was changed
        fix: the reason names the field; this version of Calico may have other rules for it
    422
      error: the API server rejects PATCH /apis/crd.projectcalico.org/v1/ipamconfigs/default as not valid
        cause: HTTP 422: IPAMConfig.crd.projectcalico.org "default" is invalid: spec: Invalid value: a rule of this cluster forbids it
        state: nothing was changed
        fix: the reason names the field; this version of Calico may have other rules for it
    429
      error: the API server at https://10.20.0.10:6443 is overloaded and refused PATCH /apis/crd.projectcalico.org/v1/ipamconfigs/default
        cause: HTTP 429: Too many requests, please try again later.
        state: nothing was changed
        fix: try again later; if that does not help, check the flow control and load of the API server
    "#);
}

#[test]
fn waiting_for_a_token_secret_ends_at_the_limit() {
    let words = "install -y --set transport.timeout=1s --set kubernetes.credentials=secret";
    let unfilled = case("never filled", words, CLUSTER, "TokenSecretUnfilled").with("api unfilled").with_changed(true);
    insta::assert_snapshot!(screens(&[unfilled], |_| ()), @"
    never filled
      error: the secret calico-system/calico-node-token did not get a token within 1 s
        state: some of it was done: `calicoctl-win status --sandbox node` shows the current state
        fix: kube-controller-manager fills it: check that it runs, or use kubernetes.credentials: token-request
    ");
}

#[test]
fn an_unusable_kubeconfig_is_named() {
    let cases = [
        case("not there", "install -y --kubeconfig no/such/file", CLUSTER, "KubeconfigMissing"),
        case("a folder", "install -y --kubeconfig folder", CLUSTER, "KubeconfigMissing"),
        case("empty", "install -y --kubeconfig empty.conf", ACCESS, "ContextNotFound"),
        case("no YAML", "install -y --kubeconfig broken.conf", ACCESS, "KubeconfigInvalid"),
        case("no kubeconfig", "install -y --kubeconfig text.conf", ACCESS, "KubeconfigInvalid"),
        case("another context", "install -y --kubeconfig two.conf --context three", ACCESS, "ContextNotFound"),
        case("no context chosen", "install -y --kubeconfig two.conf", ACCESS, "ContextNotFound"),
        case("the sandbox's contexts", "install -y --context nope", ACCESS, "ContextNotFound"),
    ];
    let arrange = |lab: &Lab| {
        fs::create_dir(lab.path("folder")).unwrap();
        let files = [
            ("empty.conf", ""),
            ("broken.conf", "clusters: [\n"),
            ("text.conf", "hello\n"),
            (
                "two.conf",
                "contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: c, user: u}}]\n",
            ),
        ];
        for (name, text) in files {
            lab.write(name, text);
        }
    };
    insta::assert_snapshot!(screens(&cases, arrange), @"
    not there
      error: cannot read the kubeconfig no/such/file
        cause: (the system's own words)
        state: nothing was changed
        fix: pass the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG; on a control-plane node of kubeadm it is /etc/kubernetes/admin.conf
    a folder
      error: cannot read the kubeconfig folder
        cause: (the system's own words)
        state: nothing was changed
        fix: pass the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG; on a control-plane node of kubeadm it is /etc/kubernetes/admin.conf
    empty
      error: the kubeconfig empty.conf has no current-context
        state: nothing was changed
        fix: it has no contexts: check that it is the right file
    no YAML
      error: the kubeconfig broken.conf is not valid: line 1, column 11
        cause: unclosed bracket '['
        state: nothing was changed
        fix: compare it with `kubectl config view`, or get a new kubeconfig of the cluster
    no kubeconfig
      error: the kubeconfig text.conf is not valid: line 1, column 1
        cause: expected a section with fields, found text
        state: nothing was changed
        fix: compare it with `kubectl config view`, or get a new kubeconfig of the cluster
    another context
      error: the kubeconfig two.conf has no context `three`
        state: nothing was changed
        fix: choose one with --context: one, two
    no context chosen
      error: the kubeconfig two.conf has no current-context
        state: nothing was changed
        fix: choose one with --context: one, two
    the sandbox's contexts
      error: the kubeconfig has no context `nope`
        state: nothing was changed
        fix: choose one with --context: kubernetes-admin@sandbox
    ");
}

/// Changes the cluster before the install.
fn cluster_with(lab: &Lab, from: &str, to: &str) {
    let _made = lab.run("plan");
    let file = lab.path("node/cluster/cluster.json");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "no {from} in the cluster");
    fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn a_cluster_that_is_not_ready_for_windows_is_refused_before_anything_is_changed() {
    let affinity = [case("strict affinity is off", "install -y", PREFLIGHT, "StrictAffinity")];
    let ipip = [case("the pool is IPIP", "install -y", PREFLIGHT, "Ipip")];
    let account = [case("no service account", "install -y", PREFLIGHT, "CalicoServiceAccount")
        .with("api GET */serviceaccounts/calico-node*=404")];
    let node = [case("no Node", "install -y --node-name win-zz", PREFLIGHT, "NodeRegistered")];
    let vni = [case("the cluster's VNI is too low", "install -y", PREFLIGHT, "VxlanVni")];
    let seen = [
        screens(&affinity, |lab| cluster_with(lab, r#""strictAffinity": true"#, r#""strictAffinity": false"#)),
        screens(&ipip, |lab| {
            cluster_with(lab, r#""ipipMode": "Never""#, r#""ipipMode": "Always""#);
            cluster_with(lab, r#""vxlanMode": "Always""#, r#""vxlanMode": "Never""#);
        }),
        screens(&account, |_| ()),
        screens(&node, |_| ()),
        screens(&vni, |lab| cluster_with(lab, r#""vxlanVNI": 4096"#, r#""vxlanVNI": 4095"#)),
    ];
    insta::assert_snapshot!(seen.concat(), @r#"
    strict affinity is off
      error: IPAM strict affinity is off
        state: nothing was changed
        fix: kubectl patch ipamconfigs default --type=merge -p "spec: {strictAffinity: true}"
    the pool is IPIP
      error: the IP pool `default-ipv4-ippool` has ipipMode: Always: Windows nodes cannot do IP-in-IP
        state: nothing was changed
        fix: move the IP pools to VXLAN (ipipMode: Never, vxlanMode: Always), or set spec.calicoNetwork.backend
             calicoctl-win cluster prepare --sandbox node  # shows the patches
    no service account
      error: there is no service account calico-node in calico-system or kube-system
        state: nothing was changed
        fix: install Calico on the cluster's Linux nodes first
             if it is in another namespace, set spec.kubernetes.calicoNamespace
    no Node
      error: the cluster has no Node win-zz, but the Node win-a1 has this machine's address: give --node-name win-a1
        state: nothing was changed
        fix: start kubelet so that it registers, or give the registered name with --node-name
    the cluster's VNI is too low
      error: FelixConfiguration `default` has a vxlanVNI that Windows does not support: 4095 is out of range: Windows supports VNIs from 4096 to 65535 except 9999
        state: nothing was changed
        fix: kubectl patch felixconfiguration default --type=merge -p "spec: {vxlanVNI: 4096}"  # changes the Linux nodes too
    "#);
}
