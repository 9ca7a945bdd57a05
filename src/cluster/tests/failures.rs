use std::io::{Read, Write};
use std::net::TcpListener;

use super::super::testing::{Authority, HOST, kubeconfig};
use super::*;

fn error_of(server: &Server, verb: &str, path: &str) -> String {
    let cluster = server.connect_within(short_limits());
    let outcome = match verb {
        "GET" => cluster.get::<Value>(path).map(|_| ()),
        "POST" => cluster.post::<_, Value>(path, &json!({})).map(|_| ()),
        _ => cluster.merge_patch::<_, Value>(path, &json!({})).map(|_| ()),
    };
    story(&outcome.unwrap_err())
}

/// The error for the server's recorded response to this request.
fn refused(recording: &str, verb: &str, path: &str) -> String {
    let server = Server::start();
    server.on(&format!("{verb} {path}"), [Reply::recorded(recording)]);
    error_of(&server, verb, path)
}

#[test]
fn every_refusal_has_an_id_a_reason_and_a_fix() {
    const NODE: &str = "/api/v1/nodes/win-worker-1";
    const SECRETS: &str = "/api/v1/namespaces/calico-system/secrets";
    const TOKEN: &str = "/api/v1/namespaces/calico-system/serviceaccounts/calico-node/token";
    const V3_FELIX: &str = "/apis/projectcalico.org/v3/felixconfigurations/default";
    const EVICTION: &str = "/api/v1/namespaces/demo/pods/guarded-sxpqp/eviction";
    let all = [
        refused("bad-token-401", "GET", SECRETS),
        refused("anonymous-403", "GET", SECRETS),
        refused("nobody-403-secrets-list", "GET", SECRETS),
        refused("nobody-403-node-get", "GET", NODE),
        refused("nobody-403-felix-patch", "PATCH", FELIX),
        refused("nobody-403-tokenrequest", "POST", TOKEN),
        refused("path-403-anonymous", "GET", "/apis/nothing"),
        refused("group-404-text", "GET", V3_FELIX),
        refused("path-404", "GET", "/version"),
        refused("felix-merge-404", "PATCH", "/apis/crd.projectcalico.org/v1/felixconfigurations/absent"),
        refused("token-secret-create-again-409", "POST", SECRETS),
        refused("felix-merge-stale-409", "PATCH", FELIX),
        refused("felix-merge-wrong-type-422", "PATCH", FELIX),
        refused("overload-429", "GET", NODE),
        refused("evict-429", "POST", EVICTION),
        refused("evict-two-budgets-500", "POST", EVICTION),
        refused("aggregated-503", "GET", V3_FELIX),
        refused("list-rv-future-504", "GET", NODE),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    CLUSTER_ACCESS_DENIED ClusterUnauthorized
      what the API server at https://api.cluster.test:6443 rejects the credentials
      why  HTTP 401: Unauthorized
      fix  the token or client certificate has expired, or belongs to another cluster: get a new kubeconfig

    CLUSTER_ACCESS_DENIED ClusterForbidden
      what user system:anonymous cannot list secrets of the core group in namespace calico-system: the request was anonymous
      why  HTTP 403: secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API group "" in the namespace "calico-system"
      fix  the kubeconfig's user has no credentials: use the kubeconfig of a cluster administrator

    CLUSTER_ACCESS_DENIED ClusterForbidden
      what user nobody-user cannot list secrets of the core group in namespace calico-system
      why  HTTP 403: secrets is forbidden: User "nobody-user" cannot list resource "secrets" in API group "" in the namespace "calico-system"
      fix  ask a cluster administrator to run:
    kubectl create role calicoctl-win-list-secrets --verb=list --resource=secrets -n calico-system
    kubectl create rolebinding calicoctl-win-list-secrets --role=calicoctl-win-list-secrets --user=nobody-user -n calico-system

    CLUSTER_ACCESS_DENIED ClusterForbidden
      what user nobody-user cannot get nodes of the core group in the whole cluster
      why  HTTP 403: nodes "win-worker-1" is forbidden: User "nobody-user" cannot get resource "nodes" in API group "" at the cluster scope
      fix  ask a cluster administrator to run:
    kubectl create clusterrole calicoctl-win-get-nodes --verb=get --resource=nodes
    kubectl create clusterrolebinding calicoctl-win-get-nodes --clusterrole=calicoctl-win-get-nodes --user=nobody-user

    CLUSTER_ACCESS_DENIED ClusterForbidden
      what user nobody-user cannot patch felixconfigurations of crd.projectcalico.org in the whole cluster
      why  HTTP 403: felixconfigurations.crd.projectcalico.org "default" is forbidden: User "nobody-user" cannot patch resource "felixconfigurations" in API group "crd.projectcalico.org" at the cluster scope
      fix  ask a cluster administrator to run:
    kubectl create clusterrole calicoctl-win-patch-felixconfigurations --verb=patch --resource=felixconfigurations.crd.projectcalico.org
    kubectl create clusterrolebinding calicoctl-win-patch-felixconfigurations --clusterrole=calicoctl-win-patch-felixconfigurations --user=nobody-user

    CLUSTER_ACCESS_DENIED ClusterForbidden
      what user nobody-user cannot create serviceaccounts/token of the core group in namespace calico-system
      why  HTTP 403: serviceaccounts "calico-node" is forbidden: User "nobody-user" cannot create resource "serviceaccounts/token" in API group "" in the namespace "calico-system"
      fix  ask a cluster administrator to run:
    kubectl create role calicoctl-win-create-serviceaccounts-token --verb=create --resource=serviceaccounts/token -n calico-system
    kubectl create rolebinding calicoctl-win-create-serviceaccounts-token --role=calicoctl-win-create-serviceaccounts-token --user=nobody-user -n calico-system

    CLUSTER_ACCESS_DENIED ClusterForbidden
      what user system:anonymous cannot get the path /apis/nothing: the request was anonymous
      why  HTTP 403: forbidden: User "system:anonymous" cannot get path "/apis/nothing"
      fix  the kubeconfig's user has no credentials: use the kubeconfig of a cluster administrator

    CLUSTER_UNREACHABLE ApiNotServed
      what the API server at https://api.cluster.test:6443 does not serve felixconfigurations of projectcalico.org/v3
      why  HTTP 404: 404 page not found
      fix  its CustomResourceDefinitions are not installed, or have another version: see `kubectl api-resources`

    CLUSTER_UNREACHABLE ClusterAnswer
      what the server at https://api.cluster.test:6443 is not a Kubernetes API server: it has no /version
      why  HTTP 404: 404 page not found
      fix  check `server` in the kubeconfig: scheme, address, port and path; a proxy or a portal may answer instead

    CLUSTER_UNREACHABLE ClusterObjectAbsent
      what PATCH /apis/crd.projectcalico.org/v1/felixconfigurations/absent: the object does not exist
      why  HTTP 404: felixconfigurations.crd.projectcalico.org "absent" not found
      fix  it was deleted or never created: check with kubectl

    CLUSTER_UNREACHABLE ClusterObjectExists
      what POST /api/v1/namespaces/calico-system/secrets: the object already exists
      why  HTTP 409: secrets "calico-node-token" already exists
      fix  another client created it at the same time; run the command again

    CLUSTER_UNREACHABLE ClusterConflict
      what PATCH /apis/crd.projectcalico.org/v1/felixconfigurations/default: another client changed the object at the same time
      why  HTTP 409: Operation cannot be fulfilled on felixconfigurations.crd.projectcalico.org "default": the object has been modified; please apply your changes to the latest version and try again
      fix  run the command again: it starts from the current state

    CLUSTER_UNREACHABLE ClusterRejected
      what the API server rejects PATCH /apis/crd.projectcalico.org/v1/felixconfigurations/default as not valid
      why  HTTP 422: FelixConfiguration.crd.projectcalico.org "default" is invalid: [spec.vxlanVNI: Invalid value: "string": spec.vxlanVNI in body must be of type integer: "string", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]
      fix  the reason names the field; this version of Calico may have other rules for it

    CLUSTER_UNREACHABLE ClusterOverloaded
      what the API server at https://api.cluster.test:6443 is overloaded and refused GET /api/v1/nodes/win-worker-1
      why  HTTP 429: Too many requests, please try again later.
      fix  try again later; if that does not help, check the flow control and load of the API server

    DRAIN_BLOCKED DisruptionBudget
      what POST /api/v1/namespaces/demo/pods/guarded-sxpqp/eviction: a disruption budget does not allow it now
      why  HTTP 429: Cannot evict pod as it would violate the pod's disruption budget.
      why  The disruption budget guarded needs 1 healthy pods and has 1 currently
      fix  wait until more pods of that application run, or ask its owner; `kubectl get pdb -A`

    CLUSTER_UNREACHABLE ClusterFailed
      what the API server at https://api.cluster.test:6443 failed on POST /api/v1/namespaces/demo/pods/guarded-sxpqp/eviction
      why  HTTP 500: This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.
      fix  check the API server's log; a webhook that does not answer is a common cause

    CLUSTER_UNREACHABLE AggregatedApiDown
      what the aggregated API v3.projectcalico.org is down, so GET /apis/projectcalico.org/v3/felixconfigurations/default has no answer
      why  HTTP 503: service unavailable
      fix  its own pods serve it; to see why: kubectl get apiservice v3.projectcalico.org -o yaml

    CLUSTER_UNREACHABLE ClusterGatewayTimeout
      what the API server at https://api.cluster.test:6443 timed out on GET /api/v1/nodes/win-worker-1
      why  HTTP 504: Timeout: Too large resource version: 99999999, current: 664
      fix  etcd or a webhook is slow: check the API server's log, then try again
    "#);
}

#[test]
fn failures_below_http_have_an_id_too() {
    let hanging = {
        let server = Server::start();
        server.on("GET /version", [Reply::Silence]);
        let cluster = server.connect_within(Limits { timeout: Duration::from_secs(2), retries: 0, asks: false });
        story(&cluster.get::<Value>("/version").unwrap_err())
    };
    let cut = {
        let server = Server::start();
        server.on("GET /version", [Reply::Cut]);
        error_of(&server, "GET", "/version")
    };
    let not_json = {
        let server = Server::start();
        server.on("GET /version", [Reply::Full(200, Vec::new(), "<html>Please log in</html>".into())]);
        error_of(&server, "GET", "/version")
    };
    // The port is closed.
    let refused = {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        ask_at(gone, short_limits())
    };
    // The connection succeeds, and then the other side sends nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent =
        ask_at(mute.local_addr().unwrap(), Limits { timeout: Duration::from_millis(200), retries: 0, asks: false });
    let authority = Authority::new();
    let all = [
        hanging,
        cut,
        not_json,
        refused,
        silent,
        answered_with(b""),
        // A TLS alert, fatal: protocol_version. What a server that stops at TLS 1.1 sends.
        answered_with(&[0x15, 3, 1, 0, 2, 2, 70]),
        answered_with(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"),
        error_of(&Server::with_certificate(&authority, HOST, 2001), "GET", "/version"),
        error_of(&Server::with_certificate(&authority, "another.test", 2099), "GET", "/version"),
        {
            let server = Server::with_certificate(&authority, HOST, 2099);
            story(&get_version(&kubeconfig(&Authority::new().pem), Some(server.address), short_limits()))
        },
        {
            // Resolving this needs no DNS server: a label has 63 characters at most.
            let host = "x".repeat(64);
            let text = kubeconfig(&authority.pem)
                .replace(&format!("https://{HOST}:6443"), &format!("https://{host}:6443\n    tls-server-name: {HOST}"));
            story(&get_version(&text, None, short_limits())).replace(&host, "(64 times x)")
        },
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    CLUSTER_UNREACHABLE ClusterTimeout
      what the API server at https://api.cluster.test:6443 did not answer GET /version within 2 s
      fix  a firewall, proxy or VPN may be in the way, or the server is overloaded; --set transport.timeout=2m allows more time

    CLUSTER_UNREACHABLE ClusterConnectionLost
      what the API server at https://api.cluster.test:6443 closed the connection during GET /version
      why  peer closed connection without sending TLS close_notify
      fix  a proxy, firewall or load balancer in between may do that, or the server is restarting: try again

    CLUSTER_UNREACHABLE ClusterAnswer
      what the response to GET /version is not that of a Kubernetes API server
      why  expected value at line 1 column 1
      fix  check that this is the address of a Kubernetes API server, and that no proxy changes its responses

    CLUSTER_UNREACHABLE ClusterRefused
      what the API server at https://api.cluster.test:6443 refuses the connection
      why  (the operating system's text)
      fix  check that kube-apiserver runs, and the address and port in `server` of the kubeconfig

    CLUSTER_UNREACHABLE ClusterTimeout
      what no connection to the API server at https://api.cluster.test:6443 within 0.1 s
      fix  a firewall, proxy or VPN may be in the way, or the server is overloaded; --set transport.timeout=2m allows more time

    CLUSTER_UNREACHABLE ClusterConnectionLost
      what the API server at https://api.cluster.test:6443 closed the connection during GET /version
      why  tls handshake eof
      fix  a proxy, firewall or load balancer in between may do that, or the server is restarting: try again

    CLUSTER_ACCESS_DENIED ClusterTlsVersion
      what the API server at https://api.cluster.test:6443 does not support TLS 1.2 or 1.3
      why  received fatal alert: ProtocolVersion
      fix  check --tls-min-version of kube-apiserver, or the proxy in front of it

    CLUSTER_ACCESS_DENIED ClusterNotTls
      what the server at https://api.cluster.test:6443 does not use TLS
      why  received corrupt message of type InvalidContentType
      fix  check the port: an API server's is usually 6443 or 443

    CLUSTER_ACCESS_DENIED ClusterCertificateExpired
      what the certificate of the API server at https://api.cluster.test:6443 has expired on 2001-01-01
      fix  renew it (kubeadm: `kubeadm certs renew apiserver`), or correct this machine's clock

    CLUSTER_ACCESS_DENIED ClusterCertificateName
      what the certificate of the API server at https://api.cluster.test:6443 is for other names
      why  invalid peer certificate: certificate not valid for name "api.cluster.test"; certificate is only valid for DnsName("another.test")
      fix  use one of its names as `server` in the kubeconfig, or as `tls-server-name`

    CLUSTER_ACCESS_DENIED ClusterUntrusted
      what the certificate of the API server at https://api.cluster.test:6443 is not signed by the trusted CA
      why  invalid peer certificate: BadSignature
      fix  the kubeconfig's certificate-authority belongs to another cluster or was replaced, or a proxy intercepts TLS: get a new kubeconfig

    CLUSTER_UNREACHABLE ClusterNameUnresolved
      what the name of the API server at https://(64 times x):6443 cannot be resolved
      why  (the operating system's text)
      fix  fix `server` in the kubeconfig, or this machine's DNS servers: check with `nslookup`
    "#);
}

#[test]
fn a_proxy_that_fails_is_named_and_not_the_api_server() {
    let through = |proxy: &str| {
        let text =
            kubeconfig(&Authority::new().pem).replace("    server:", &format!("    proxy-url: {proxy}\n    server:"));
        story(&get_version(&text, None, short_limits()))
    };
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let answers = |status: &'static str| {
        let address = serve_bytes(status.as_bytes());
        through(&format!("http://me:sesame@{address}")).replace(&address.to_string(), "PROXY")
    };
    let silent = {
        let proxy = mute.local_addr().unwrap().to_string();
        let text = kubeconfig(&Authority::new().pem)
            .replace("    server:", &format!("    proxy-url: http://{proxy}\n    server:"));
        let limits = Limits { timeout: Duration::from_millis(200), retries: 0, asks: false };
        story(&get_version(&text, None, limits)).replace(&proxy, "PROXY")
    };
    let all = [
        through(&format!("http://{gone}")).replace(&gone.to_string(), "PROXY"),
        through(&format!("http://{}:3128", "x".repeat(64))).replace(&"x".repeat(64), "(64 times x)"),
        silent,
        answers("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"),
        answers("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
    ];
    assert!(!all.join("").contains("sesame"), "{all:?}");
    insta::assert_snapshot!(all.join("\n"), @"
    CLUSTER_UNREACHABLE ClusterProxy
      what the proxy PROXY refuses the connection
      why  (the operating system's text)
      fix  correct `proxy-url` in the kubeconfig or the variable HTTPS_PROXY, or name the API server in NO_PROXY

    CLUSTER_UNREACHABLE ClusterProxy
      what the name of the proxy (64 times x):3128 cannot be resolved
      why  (the operating system's text)
      fix  correct `proxy-url` in the kubeconfig or the variable HTTPS_PROXY, or name the API server in NO_PROXY

    CLUSTER_UNREACHABLE ClusterProxy
      what no connection to the API server at https://api.cluster.test:6443 through the proxy PROXY within 0.1 s
      fix  the proxy does not answer, or cannot reach the API server: correct `proxy-url` in the kubeconfig or the variable HTTPS_PROXY, or name the API server in NO_PROXY

    CLUSTER_UNREACHABLE ClusterProxyLogin
      what the proxy PROXY requires a login
      why  tunnel error: proxy authorization required
      fix  put it into `proxy-url` of the kubeconfig or the variable HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT
    or name the API server in NO_PROXY, if it can be reached without the proxy

    CLUSTER_UNREACHABLE ClusterProxy
      what the proxy PROXY does not connect to the API server at https://api.cluster.test:6443
      why  tunnel error: unsuccessful
      fix  let the proxy connect to the API server, or name the API server in NO_PROXY if it can be reached without
    ");
}

#[test]
fn responses_of_other_servers_are_never_mistaken_for_an_api_servers() {
    let typed = |status, media: &str, body: &str| {
        Reply::Full(status, vec![("content-type".into(), media.into())], body.to_owned())
    };
    let html = "<html><body>Sign in to the proxy</body></html>";
    let moved = Reply::Full(302, vec![("location".into(), "https://login.test/".into())], String::new());
    let cases = [
        ("GET", "truncated JSON", typed(200, "application/json", "{\"gitVersion\": \"v1."), "ClusterAnswer"),
        ("GET", "an empty body", typed(200, "application/json", ""), "ClusterAnswer"),
        ("GET", "a list instead of an object", typed(200, "application/json", "[]"), "ClusterAnswer"),
        ("GET", "a proxy's page", typed(200, "text/html", html), "ClusterAnswer"),
        ("GET", "a proxy's failure", typed(502, "text/html", html), "ClusterFailed"),
        ("GET", "a proxy that requires a login", typed(407, "text/html", html), "ClusterAnswer"),
        ("GET", "a redirect", moved, "ClusterAnswer"),
        ("GET", "a status of its own", typed(418, "text/plain", "teapot"), "ClusterAnswer"),
        ("GET", "503 in text", typed(503, "text/plain", "service unavailable"), "ClusterUnavailable"),
        ("GET", "500 without a reason", Reply::recorded("evict-two-budgets-500"), "ClusterFailed"),
        ("PATCH", "415", Reply::recorded("felix-strategic-415"), "ClusterRejected"),
        ("PATCH", "422 with causes", Reply::recorded("ippool-merge-both-422"), "ClusterRejected"),
        ("PATCH", "400", Reply::recorded("felix-bad-json-400"), "ClusterRejected"),
        ("GET", "406", Reply::recorded("accept-406"), "ClusterAnswer"),
    ];
    let lasting =
        ["a redirect", "a status of its own", "a proxy that requires a login", "415", "422 with causes", "400", "406"];
    for (verb, name, reply, id) in cases {
        let server = Server::start();
        server.on(&format!("{verb} /version"), [reply]);
        let cluster = server.connect_within(short_limits());
        let error = match verb {
            "GET" => cluster.get::<std::collections::BTreeMap<String, Value>>("/version").map(|_| ()),
            _ => cluster.merge_patch::<_, Value>("/version", &json!({})).map(|_| ()),
        };
        let error = error.expect_err(name);
        let fault = Fault::of(&error).unwrap();
        assert_eq!((fault.id, fault.exit.name()), (id, "CLUSTER_UNREACHABLE"), "{name}: {error:?}");
        assert!(fault.hint.is_some(), "{name}");
        assert_eq!(fault.is_retryable(), !lasting.contains(&name), "{name}");
    }
}

#[test]
fn an_api_server_that_stops_between_two_requests_ends_the_run() {
    for (gone, id) in [(Reply::Cut, "ClusterConnectionLost"), (Reply::recorded("aggregated-503"), "AggregatedApiDown")]
    {
        let server = Server::start();
        server.replay(&["version-admin", "group-discovery", "serviceaccount-get"]);
        server.on("GET /apis/projectcalico.org", [Reply::recorded("path-404")]);
        let absent = json!({"code": 404, "details": {"name": "calico-node"}});
        server.on("GET /api/v1/namespaces/kube-system/serviceaccounts/calico-node", [Reply::json(404, &absent)]);
        server.on(&format!("GET {FELIX}"), [gone]);
        let error = server.connect_within(short_limits()).facts(&FactsOptions::default()).unwrap_err();
        assert_eq!(Fault::id_of(&error), id, "{error:?}");
    }
}

fn get_version(kubeconfig: &str, dial: Option<SocketAddr>, limits: Limits) -> anyhow::Error {
    let cluster = Cluster::connect(kubeconfig, ".".as_ref(), None, dial, limits).unwrap();
    cluster.get::<Value>("/version").unwrap_err()
}

fn ask_at(address: SocketAddr, limits: Limits) -> String {
    story(&get_version(&kubeconfig(&Authority::new().pem), Some(address), limits))
}

/// A server that reads the first bytes and answers with these bytes.
fn answered_with(bytes: &'static [u8]) -> String {
    ask_at(serve_bytes(bytes), short_limits())
}

fn serve_bytes(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut hello = [0; 4096];
        assert!(socket.read(&mut hello).unwrap() > 0);
        socket.write_all(bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        // Until the client is gone: closing earlier would reset the connection.
        while socket.read(&mut hello).is_ok_and(|n| n > 0) {}
    });
    address
}
