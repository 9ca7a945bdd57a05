//! A request for a kind that is served.

use serde_json::Value;

use super::answer::Answer;
use super::auth::User;
use super::request::Request;
use super::resources::Resource;
use super::store::{Key, Store, text};
use super::table::OutputFormat;

/// A request for a kind that is served, by an authorized user.
pub struct Call<'a> {
    pub request: &'a Request,
    pub resource: &'static Resource,
    pub user: &'a User,
    pub store: &'a mut Store,
    pub output: OutputFormat,
}

impl Call<'_> {
    pub fn key(&self) -> Key {
        Key::new(self.resource, &self.request.target.namespace, &self.request.target.name)
    }

    /// The stored object, or 404.
    pub fn current(&self) -> Result<Value, Answer> {
        let name = &self.request.target.name;
        self.store.get(&self.key()).cloned().ok_or_else(|| Answer::not_found(self.resource, name))
    }

    pub fn one(&self, status: u16, object: Value) -> Answer {
        Answer::json(status, self.output.one(self.resource, object))
    }

    /// The body as an object of this kind.
    pub fn body(&self) -> Result<Value, Answer> {
        let request = self.request;
        if !matches!(request.content_type(), "application/json" | "") {
            return Err(Answer::unsupported_media_type(&[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ]));
        }
        let raw = String::from_utf8_lossy(&request.body);
        let kind = self.resource.kind;
        let object: Value = serde_json::from_slice(raw.as_bytes()).map_err(|e| {
            Answer::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
                 error: {e}"
            ))
        })?;
        match object["kind"].as_str() {
            Some(given) if given == kind => {}
            None if !self.resource.custom => {}
            None => {
                let short: String = raw.chars().take(30).collect();
                return Err(Answer::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in \
                     '{raw}' ({short})"
                )));
            }
            Some(given) => {
                let version = self.resource.version;
                return Err(Answer::bad_request(format!(
                    "{given} in version \"{version}\" cannot be handled as a {kind}: converting ({given}) to ({kind}): \
                     unknown conversion"
                )));
            }
        }
        let (given, wanted) = (text(&object, "/metadata/namespace"), self.request.target.namespace.as_str());
        if given.is_some_and(|g| g != wanted) {
            return Err(Answer::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(object)
    }
}
