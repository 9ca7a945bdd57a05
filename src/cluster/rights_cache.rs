//! The rights that the API server has granted during this run. An API server that has just started answers 403 to everybody with RBAC
//! rights until it has read the roles, so a 403 for one of these may be temporary.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use http::Method;

use super::api::Call;
use super::errors::Resource;
use crate::facts::Right;

/// What RBAC decides on. Without the name of the object: most names are generated (pods), and rights to one apply to
/// the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Access {
    verb: &'static str,
    group: String,
    /// With its subresource: `pods/eviction`.
    resource: String,
    /// None means cluster-wide.
    namespace: Option<String>,
}

impl Access {
    /// The right that a call needs.
    pub fn of(call: &Call) -> Self {
        let Resource { group, namespace, plural, name, subresource, .. } = Resource::of(&call.path);
        let verb = match call.method {
            Method::POST => "create",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if name.is_some() => "get",
            _ if call.path.contains("watch=true") => "watch",
            _ => "list",
        };
        let resource = subresource.map_or_else(|| plural.clone(), |below| format!("{plural}/{below}"));
        Self { verb, group, resource, namespace }
    }

    fn is(&self, right: &Right) -> bool {
        (self.verb, &self.group, &self.resource) == (right.verb.as_str(), &right.group, &right.resource)
            && (right.namespace.is_none() || self.namespace == right.namespace)
    }
}

/// The rights granted to one user of one API server.
#[derive(Default)]
pub(super) struct RightsCache {
    /// With the object's name.
    used: Mutex<BTreeSet<(Access, Option<String>)>>,
    reviewed: Mutex<Vec<Right>>,
}

impl RightsCache {
    /// A call succeeded.
    pub fn used(&self, call: &Call) {
        let name = Resource::of(&call.path).name;
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert((Access::of(call), name));
    }

    /// Whether a call has succeeded that needs exactly this right.
    pub fn shows(&self, right: &Right) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(access, name)| {
            access.is(right) && access.namespace == right.namespace && (right.name.is_none() || *name == right.name)
        })
    }

    /// A `SelfSubjectAccessReview` allowed it, for every object or for one.
    pub fn reviewed(&self, right: Right) {
        self.reviewed.lock().unwrap_or_else(PoisonError::into_inner).push(right);
    }

    pub fn has(&self, access: &Access) -> bool {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(one, _)| one == access);
        used || self.reviewed.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|right| access.is(right))
    }
}
