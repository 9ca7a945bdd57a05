//! Access reviews and tokens: `SelfSubjectReview`, `SelfSubjectAccessReview` and `serviceaccounts/NAME/token`. They
//! store nothing.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::answer::{Answer, Cause, Outcome};
use super::auth::{User, allowed};
use super::call::Call;
use super::request::{Request, Target};
use super::resources::core;
use super::store::{Key, Store, at, now, text};
use super::tokens::{ISSUER, TokenKey};

/// Kinds that can only be created, outside the table of stored ones: group, plural, kind.
pub const REVIEWS: [(&str, &str, &str); 2] = [
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
];

/// Answers a review, if the request is for one.
pub fn review(request: &Request, user: &User, store: &Store) -> Option<Outcome> {
    let target = &request.target;
    let (_, _, kind) = REVIEWS
        .iter()
        .find(|(group, plural, _)| target.version == "v1" && target.group == *group && target.resource == *plural)?;
    if target.verb != "create" {
        return Some(Err(Answer::method_not_allowed()));
    }
    Some(if *kind == "SelfSubjectReview" { Ok(who_am_i(user)) } else { may_i(request, user, store) })
}

fn who_am_i(user: &User) -> Answer {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if let Some(uid) = &user.uid {
        info["uid"] = uid.clone().into();
    }
    if let Some(credential) = &user.credential {
        info["extra"] = json!({"authentication.kubernetes.io/credential-id": [credential]});
    }
    Answer::json(
        201,
        json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": now()}, "status": {"userInfo": info},
        }),
    )
}

fn may_i(request: &Request, user: &User, store: &Store) -> Outcome {
    let body: Value = serde_json::from_slice(&request.body)
        .map_err(|e| Answer::bad_request(format!("the object provided is unrecognized: {e}")))?;
    let asked = &body["spec"]["resourceAttributes"];
    let path = text(&body, "/spec/nonResourceAttributes/path").unwrap_or_default();
    let field = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
    let verb = text(&body, "/spec/nonResourceAttributes/verb").or(asked["verb"].as_str()).unwrap_or_default();
    let known = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let target = Target {
        verb: known.into_iter().find(|k| *k == verb).unwrap_or("other"),
        group: field("group"),
        version: field("version"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
    };
    let status = match allowed(user, &target, path, store) {
        None => json!({"allowed": false}),
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
    };
    Ok(Answer::json(
        201,
        json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {}, "spec": body["spec"], "status": status,
        }),
    ))
}

const DEFAULT_SECONDS: i64 = 3600;

/// `POST …/serviceaccounts/NAME/token`: a token, by default for an hour.
pub fn token_request(call: &Call<'_>, keys: &TokenKey) -> Outcome {
    let body: Value = if call.request.body.is_empty() {
        json!({})
    } else {
        serde_json::from_slice(&call.request.body)
            .map_err(|e| Answer::bad_request(format!("the object provided is unrecognized: {e}")))?
    };
    let account = call.current()?;
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    let wrong = match seconds {
        ..600 => Some("may not specify a duration less than 10 minutes"),
        4_294_967_297.. => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(why) = wrong {
        let cause =
            Cause::new("FieldValueInvalid", "spec.expirationSeconds", format!("Invalid value: {seconds}: {why}"));
        return Err(Answer::invalid("TokenRequest", "authentication.k8s.io", "", &[cause]));
    }
    let bound_ref = &body["spec"]["boundObjectRef"];
    let bound = bound_object(call, bound_ref)?;
    if let Some(node) = call.user.node() {
        only_for_its_pods(call, node, bound_ref, bound.as_ref().map(|(_, object)| object))?;
    }
    let bound_to = bound.as_ref().map(|(kind, object)| {
        let of = |pointer| text(object, pointer).unwrap_or_default();
        (*kind, of("/metadata/name"), of("/metadata/uid"))
    });
    let token = keys.requested(&account, seconds, bound_to);
    let expires = Timestamp::now() + SignedDuration::from_secs(seconds);
    let audiences = &body["spec"]["audiences"];
    let audiences = if audiences.is_array() { audiences.clone() } else { json!([ISSUER]) };
    let meta = &account["metadata"];
    Ok(Answer::json(
        201,
        json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "creationTimestamp": now(),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound_ref},
            "status": {"token": token, "expirationTimestamp": at(expires)},
        }),
    ))
}

/// NodeRestriction (`admitServiceAccount`): a kubelet gets tokens only for pods of its node.
fn only_for_its_pods(call: &Call<'_>, node: &str, reference: &Value, pod: Option<&Value>) -> Result<(), Answer> {
    let why = match pod {
        Some(pod) if reference["kind"] == "Pod" => {
            if text(reference, "/uid").is_none() {
                "node requested token with a pod binding without a uid"
            } else if text(pod, "/spec/nodeName") != Some(node) {
                "node requested token bound to a pod scheduled on a different node"
            } else {
                return Ok(());
            }
        }
        _ => "node requested token not bound to a pod",
    };
    Err(Answer::forbidden(call.resource, &call.request.target.name, why))
}

/// The object that a token is bound to: a secret or pod of the namespace, or a node.
fn bound_object<'a>(call: &Call<'_>, reference: &'a Value) -> Result<Option<(&'a str, Value)>, Answer> {
    let (Some(kind), Some(name)) = (reference["kind"].as_str(), reference["name"].as_str()) else {
        return Ok(None);
    };
    let resource = match kind {
        "Secret" => core("secrets"),
        "Pod" => core("pods"),
        "Node" => core("nodes"),
        other => return Err(Answer::bad_request(format!("cannot bind token to object of type {other}"))),
    };
    let namespace = if resource.namespaced { call.request.target.namespace.as_str() } else { "" };
    let object = call.store.get(&Key::new(resource, namespace, name));
    let object = object.cloned().ok_or_else(|| Answer::not_found(resource, name))?;
    Ok(Some((kind, object)))
}
