//! Error responses. Statuses, bodies and content types are those of a real API server
//! (`tests/fixtures/kube-recordings.jsonl`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use regex::{Match, Regex};

use super::{Resource, budget_of, denied, unreachable};
use crate::cluster::api::{Answer, Call};
use crate::fault::{Exit, Fault};

pub(super) fn fault(server: &str, call: &Call, answer: &Answer, status: Option<&Status>, absent: bool) -> Fault {
    let name = call.name();
    let resource = Resource::of(&call.path);
    let text = String::from_utf8_lossy(&answer.body);
    match answer.status {
        400 if text.contains("HTTP request to an HTTPS server") => {
            denied("ClusterNeedsTls", format!("the API server at {server} accepts only TLS"))
                .hint("use https:// in the server URL of the kubeconfig")
        }
        401 => denied("ClusterUnauthorized", format!("the API server at {server} rejects the credentials"))
            .hint("the token or client certificate has expired, or belongs to another cluster: get a new kubeconfig"),
        403 => forbidden(server, call, status),
        404 if absent => unreachable("ClusterObjectAbsent", format!("{name}: the object does not exist"))
            .hint("it was deleted or never created: check with kubectl"),
        404 if resource.group.is_empty() && resource.subresource.is_none() => {
            let path = call.path.split('?').next().unwrap_or_default();
            unreachable(
                "ClusterAnswer",
                format!("the server at {server} is not a Kubernetes API server: it has no {path}"),
            )
            .hint("check `server` in the kubeconfig: scheme, address, port and path; a proxy or a portal may answer instead")
            .retryable(false)
        }
        404 if resource.group.is_empty() => {
            let below = resource.subresource.as_deref().unwrap_or_default();
            unreachable(
                "ApiNotServed",
                format!("the API server at {server} does not serve {}/{below}", resource.plural),
            )
            .hint("its Kubernetes version is too old; use a token from a secret: kubernetes.credentials: secret")
        }
        404 => {
            let (plural, group, version) = (&resource.plural, &resource.group, &resource.version);
            let what = format!("the API server at {server} does not serve {plural} of {group}/{version}");
            unreachable("ApiNotServed", what).hint(
                "its CustomResourceDefinitions are not installed, or have another version: see `kubectl api-resources`",
            )
        }
        409 if status.is_some_and(|s| s.reason.as_deref() == Some("AlreadyExists")) => {
            unreachable("ClusterObjectExists", format!("{name}: the object already exists"))
                .hint("another client created it at the same time; run the command again")
        }
        409 => unreachable("ClusterConflict", format!("{name}: another client changed the object at the same time"))
            .hint("run the command again: it starts from the current state"),
        410 => unreachable("ClusterListExpired", format!("{name}: the list changed faster than it could be read"))
            .hint("run the command again; if it happens each time, the API server is overloaded"),
        415 | 422 | 400 => unreachable("ClusterRejected", format!("the API server rejects {name} as not valid"))
            .hint("the reason names the field; this version of Calico may have other rules for it")
            .retryable(false),
        429 if budget_of(status).is_some() => Fault::new(
            Exit::DrainBlocked,
            "DisruptionBudget",
            format!("{name}: a disruption budget does not allow it now"),
        )
        .hint("wait until more pods of that application run, or ask its owner; `kubectl get pdb -A`"),
        429 => unreachable("ClusterOverloaded", format!("the API server at {server} is overloaded and refused {name}"))
            .hint("try again later; if that does not help, check the flow control and load of the API server"),
        503 if is_aggregated(&resource) && status.is_none() => {
            let service = format!("{}.{}", resource.version, resource.group);
            let what = format!("the aggregated API {service} is down, so {name} has no answer");
            unreachable("AggregatedApiDown", what)
                .hint(format!("its own pods serve it; to see why: kubectl get apiservice {service} -o yaml"))
        }
        503 => unreachable("ClusterUnavailable", format!("the API server at {server} is not available for {name}"))
            .hint("it may be starting, or unable to reach etcd: see `kubectl get --raw /readyz?verbose`"),
        504 => unreachable("ClusterGatewayTimeout", format!("the API server at {server} timed out on {name}"))
            .hint("etcd or a webhook is slow: check the API server's log, then try again"),
        500..=599 => unreachable("ClusterFailed", format!("the API server at {server} failed on {name}"))
            .hint("check the API server's log; a webhook that does not answer is a common cause"),
        300..=399 => {
            let where_to = answer.location().map_or_else(|| "elsewhere".to_owned(), |place| format!("to {place}"));
            unreachable("ClusterAnswer", format!("the server at {server} redirects {name} {where_to}"))
                .hint("an API server never redirects: a login portal or proxy answers, or `server` in the kubeconfig belongs to another service")
                .retryable(false)
        }
        other => unreachable("ClusterAnswer", format!("the API server at {server} answered {name} with HTTP {other}"))
            .hint("check that this is the address of a Kubernetes API server, and that no proxy changes its responses")
            .retryable(false),
    }
}

/// Groups with a dot that are not Kubernetes' own may be served by another server behind the API
/// server.
fn is_aggregated(resource: &Resource) -> bool {
    resource.group.contains('.') && !resource.group.ends_with(".k8s.io") && !resource.version.is_empty()
}

/// The API server's text when RBAC refuses.
const DENIED: &str = concat!(
    r#"User "(?<user>[^"]*)" cannot (?<verb>\S+) "#,
    r#"(?:path "(?<path>[^"]*)"|resource "(?<resource>[^"]*)" in API group "(?<group>[^"]*)""#,
    r#"(?: in the namespace "(?<namespace>[^"]*)")?)"#,
);

/// Whether RBAC refused: admission also answers 403, with other texts.
pub(super) fn is_denied(status: Option<&Status>) -> bool {
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or_default();
    Regex::new(DENIED).expect("the pattern is valid").is_match(message)
}

fn forbidden(server: &str, call: &Call, status: Option<&Status>) -> Fault {
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or_default();
    let pattern = Regex::new(DENIED).expect("the pattern is valid");
    let Some(found) = pattern.captures(message) else {
        // Admission also answers 403, with other texts.
        return denied("ClusterForbidden", format!("the API server at {server} forbids {}", call.name()))
            .hint("the response has the reason; you may need an administrator's kubeconfig");
    };
    let part = |name| found.name(name).map(|m: Match<'_>| m.as_str());
    let (user, verb) = (part("user").unwrap_or_default(), part("verb").unwrap_or_default());
    let object = match (part("path"), part("resource"), part("group").unwrap_or_default(), part("namespace")) {
        (Some(path), ..) => format!("the path {path}"),
        (_, resource, "", place) => format!("{} of the core group {}", resource.unwrap_or_default(), at(place)),
        (_, resource, group, place) => format!("{} of {group} {}", resource.unwrap_or_default(), at(place)),
    };
    let what = format!("user {user} cannot {verb} {object}");
    if user == "system:anonymous" {
        return denied("ClusterForbidden", format!("{what}: the request was anonymous"))
            .hint("the kubeconfig's user has no credentials: use the kubeconfig of a cluster administrator");
    }
    let fault = denied("ClusterForbidden", what);
    match part("resource") {
        Some(resource) => {
            let group = part("group").unwrap_or_default();
            let grant = grant(user, verb, resource, group, part("namespace"));
            fault.hint(format!("ask a cluster administrator to run:\n{grant}"))
        }
        None => fault.hint("use the kubeconfig of a cluster administrator"),
    }
}

fn at(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "in the whole cluster".to_owned(), |name| format!("in namespace {name}"))
}

/// The commands that grant a user exactly the missing right, a line each: Windows PowerShell 5.1 does not know `&&`.
fn grant(user: &str, verb: &str, resource: &str, group: &str, namespace: Option<&str>) -> String {
    let (kind, scope) = match namespace {
        Some(namespace) => ("role", format!(" -n {namespace}")),
        None => ("clusterrole", String::new()),
    };
    let name = format!("calicoctl-win-{verb}-{}", resource.replace('/', "-"));
    // kubectl writes a subresource after the group: `pods.group/eviction`.
    let (plural, below) = resource.split_once('/').map_or((resource, String::new()), |(p, s)| (p, format!("/{s}")));
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    format!(
        "kubectl create {kind} {name} --verb={verb} --resource={plural}{group}{below}{scope}\n\
         kubectl create {kind}binding {name} --{kind}={name} --user={user}{scope}"
    )
}
