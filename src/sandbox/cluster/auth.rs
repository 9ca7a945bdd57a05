//! Authentication and authorization: client certificates of the cluster's CA, bearer tokens it signed, or
//! `system:anonymous`; then the role bindings in the cluster, by the rules of RBAC.

use serde_json::Value;

use super::answer::Answer;
use super::bootstrap;
use super::request::{Request, Target};
use super::resources::core;
use super::store::{Key, Store, now, text};
use super::tokens::{Bearer, TokenKey};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: Option<String>,
    pub groups: Vec<String>,
    /// The id of the credential, for `SelfSubjectReview`.
    pub credential: Option<String>,
}

impl User {
    fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            uid: None,
            groups: vec!["system:unauthenticated".into()],
            credential: None,
        }
    }

    pub fn certified(name: String, mut groups: Vec<String>) -> Self {
        groups.push("system:authenticated".into());
        Self { name, uid: None, groups, credential: None }
    }

    fn service_account(bearer: Bearer) -> Self {
        Self {
            name: format!("system:serviceaccount:{}:{}", bearer.namespace, bearer.account),
            uid: Some(bearer.uid),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{}", bearer.namespace),
                "system:authenticated".into(),
            ],
            credential: bearer.id.map(|id| format!("JTI={id}")),
        }
    }

    /// The node of this user, if it is a kubelet.
    pub fn node(&self) -> Option<&str> {
        self.groups.iter().any(|g| g == "system:nodes").then(|| self.name.strip_prefix("system:node:")).flatten()
    }
}

/// The client certificate of a connection.
#[derive(Debug, Clone)]
pub enum Certificate {
    None,
    /// Of the cluster's CA: user and groups.
    Good(String, Vec<String>),
    /// Of another CA, or expired: the handshake succeeds, every request is 401.
    Bad,
}

/// The user of a request. An invalid credential is 401 even together with a valid one; without any it is `system:anonymous`.
pub fn authenticate(
    request: &Request,
    certificate: &Certificate,
    keys: &TokenKey,
    store: &mut Store,
) -> Result<User, Answer> {
    let bearer = request.header("authorization").and_then(|a| a.strip_prefix("Bearer ")).map(str::trim);
    match (certificate, bearer) {
        (Certificate::Good(name, groups), _) => Ok(User::certified(name.clone(), groups.clone())),
        (_, Some(token)) if let Some((name, groups)) = bootstrap::user(token, store) => {
            Ok(User::certified(name, groups))
        }
        (_, Some(token)) => {
            let bearer = keys.check(token, store).ok_or_else(Answer::unauthorized)?;
            mark_used(&bearer, store);
            Ok(User::service_account(bearer))
        }
        (Certificate::Bad, None) => Err(Answer::unauthorized()),
        (Certificate::None, None) => Ok(User::anonymous()),
    }
}

/// Using the token of a secret writes today's date to the secret.
fn mark_used(bearer: &Bearer, store: &mut Store) {
    let Some(secret) = &bearer.secret else { return };
    let key = Key::new(core("secrets"), &bearer.namespace, secret);
    let today: String = now().chars().take(10).collect();
    let Some(mut held) = store.get(&key).cloned() else { return };
    let label = &mut held["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"];
    if label.as_str() != Some(&today) {
        *label = today.into();
        store.update(key, held);
    }
}

/// Refuses what the user has no right to do, with the text of a kube-apiserver. Returns the acting user: another one if an
/// administrator impersonates.
pub fn authorize(user: User, request: &Request, store: &Store) -> Result<User, Answer> {
    let target = &request.target;
    if let Some(other) = request.header("impersonate-user") {
        if !user.groups.iter().any(|g| g == "system:masters") {
            let verb = format!("impersonate-on:user-info:{}", target.verb);
            return Err(forbidden(&user, &verb, target, &request.path));
        }
        let groups = request.headers.get_all("impersonate-group").iter();
        let groups = groups.filter_map(|g| g.to_str().ok().map(Into::into)).collect();
        let other = User::certified(other.into(), groups);
        return permitted(other, target, &request.path, store);
    }
    permitted(user, target, &request.path, store)
}

fn permitted(user: User, target: &Target, path: &str, store: &Store) -> Result<User, Answer> {
    match allowed(&user, target, path, store) {
        Some(_) => Ok(user),
        None => Err(forbidden(&user, target.verb, target, path)),
    }
}

/// 403 with the text of RBAC.
pub fn forbidden(user: &User, verb: &str, target: &Target, path: &str) -> Answer {
    let name = &user.name;
    if target.resource.is_empty() {
        let message = format!("forbidden: User \"{name}\" cannot {verb} path \"{path}\"");
        return Answer::refusal(403, "Forbidden", message, Some(serde_json::json!({})))
            .header("X-Content-Type-Options", "nosniff");
    }
    let kind =
        if target.group.is_empty() { target.resource.clone() } else { format!("{}.{}", target.resource, target.group) };
    let subject = if target.name.is_empty() { kind } else { format!("{kind} \"{}\"", target.name) };
    let scope = if target.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", target.namespace)
    };
    let message = format!(
        "{subject} is forbidden: User \"{name}\" cannot {verb} resource \"{}\" in API group \"{}\" {scope}",
        target.with_subresource(),
        target.group
    );
    let mut details = serde_json::json!({"kind": target.resource});
    if !target.name.is_empty() {
        details["name"] = target.name.clone().into();
    }
    if !target.group.is_empty() {
        details["group"] = target.group.clone().into();
    }
    Answer::refusal(403, "Forbidden", message, Some(details)).header("X-Content-Type-Options", "nosniff")
}

/// Why the user may do this; an empty reason for members of `system:masters`, none if they may not.
pub fn allowed(user: &User, target: &Target, path: &str, store: &Store) -> Option<String> {
    if user.groups.iter().any(|g| g == "system:masters") {
        return Some(String::new());
    }
    let cluster_wide = store.list(core("clusterrolebindings"), None);
    let in_namespace =
        store.list(core("rolebindings"), Some(&target.namespace)).filter(|_| !target.namespace.is_empty());
    for (key, binding) in cluster_wide.chain(in_namespace) {
        let Some(subject) = subject_of(binding, user) else { continue };
        let role_kind = text(binding, "/roleRef/kind").unwrap_or_default();
        let role_name = text(binding, "/roleRef/name").unwrap_or_default();
        let role = if role_kind == "Role" {
            Key::new(core("roles"), &key.namespace, role_name)
        } else {
            Key::new(core("clusterroles"), "", role_name)
        };
        let rules = store.get(&role).and_then(|r| r["rules"].as_array());
        if rules.into_iter().flatten().any(|rule| covers(rule, target, path)) {
            let binding_kind = text(binding, "/kind").unwrap_or_default();
            let binding_name =
                if key.namespace.is_empty() { key.name.clone() } else { format!("{}/{}", key.name, key.namespace) };
            return Some(format!(
                "RBAC: allowed by {binding_kind} \"{binding_name}\" of {role_kind} \"{role_name}\" to {subject}"
            ));
        }
    }
    None
}

/// How the binding names this user, if it does.
fn subject_of(binding: &Value, user: &User) -> Option<String> {
    binding["subjects"].as_array()?.iter().find_map(|subject| {
        let name = text(subject, "/name")?;
        match text(subject, "/kind")? {
            "Group" if user.groups.iter().any(|g| g == name) => Some(format!("Group \"{name}\"")),
            "User" if user.name == name => Some(format!("User \"{name}\"")),
            "ServiceAccount" => {
                let namespace = text(subject, "/namespace")?;
                let account = format!("system:serviceaccount:{namespace}:{name}");
                (user.name == account).then(|| format!("ServiceAccount \"{name}/{namespace}\""))
            }
            _ => None,
        }
    })
}

fn covers(rule: &Value, target: &Target, path: &str) -> bool {
    let has = |field: &str, wanted: &str| {
        rule[field].as_array().is_some_and(|list| list.iter().any(|v| v == wanted || v == "*"))
    };
    if !has("verbs", target.verb) {
        return false;
    }
    if target.resource.is_empty() {
        return rule["nonResourceURLs"].as_array().is_some_and(|urls| {
            urls.iter().filter_map(Value::as_str).any(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == url,
            })
        });
    }
    let names = rule["resourceNames"].as_array().map_or(&[][..], Vec::as_slice);
    has("apiGroups", &target.group)
        && has("resources", &target.with_subresource())
        && (names.is_empty() || names.iter().any(|n| n == target.name.as_str()))
}
