//! Single objects: get, create, update, patch, delete, for every kind of the table.

use serde_json::{Value, json};

use super::admission;
use super::answer::{Answer, Cause, Content, Outcome, details};
use super::call::Call;
use super::delete;
use super::list;
use super::patch::Format;
use super::resources::Resource;
use super::schema;
use super::store::{Key, suffix, text};

impl Call<'_> {
    /// Answers a request on a collection or on one object, or on its `status`.
    pub fn answer(&mut self) -> Outcome {
        let named = !self.request.target.name.is_empty();
        match self.request.target.verb {
            "list" => list::list(self.request, self.resource, self.output, self.store),
            "get" => self.current().map(|object| self.one(200, object)),
            "create" if !named || self.resource.custom => self.create(),
            "update" if named => self.update(),
            "patch" if named => self.patch(),
            "delete" if named => delete::one(self),
            "deletecollection" if !named => delete::collection(self),
            _ => Err(Answer::method_not_allowed()),
        }
    }

    fn create(&mut self) -> Outcome {
        let mut object = self.body()?;
        let warnings = self.validate_fields(&mut object, false)?;
        let name = match (text(&object, "/metadata/name"), text(&object, "/metadata/generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => format!("{prefix}{}", suffix()),
            (None, None) => {
                let cause = Cause::new(
                    "FieldValueRequired",
                    "metadata.name",
                    "Required value: name or generateName is required",
                );
                return Err(Answer::invalid(self.resource.kind, self.resource.group, "", &[cause]));
            }
        };
        object["metadata"]["name"] = name.clone().into();
        let key = Key::new(self.resource, &self.request.target.namespace, &name);
        admission::create(self, &mut object)?;
        if self.store.get(&key).is_some() {
            return Err(Answer::already_exists(self.resource, &name));
        }
        schema::check(self.resource, self.store.calico_line(), &object, None)?;
        let created = self.store.create(self.resource, key, object);
        Ok(with_warnings(self.one(201, created), warnings))
    }

    fn update(&mut self) -> Outcome {
        let lease = self.resource.plural == "leases";
        // An update may create a Lease, but never overwrite one without its version.
        if lease && self.store.get(&self.key()).is_none() {
            return self.create();
        }
        let object = self.body()?;
        let current = self.current()?;
        let name = &self.request.target.name;
        if text(&object, "/metadata/name").is_some_and(|n| n != name) {
            return Err(Answer::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                text(&object, "/metadata/name").unwrap_or_default()
            )));
        }
        if (self.resource.custom || lease) && text(&object, "/metadata/resourceVersion").is_none_or(str::is_empty) {
            let cause = Cause::new(
                "FieldValueInvalid",
                "metadata.resourceVersion",
                "Invalid value: 0: must be specified for an update",
            );
            return Err(update_without_version(self.resource, name, &cause));
        }
        self.replace(current, object, false)
    }

    fn patch(&mut self) -> Outcome {
        let format = Format::of(self.resource, self.request.content_type())?;
        let patch = format.parse(&self.request.body)?;
        let current = match self.current() {
            Ok(current) => current,
            Err(_) if format == Format::Apply && self.request.target.subresource.is_empty() => {
                return self.create_by_apply(patch);
            }
            Err(missing) => return Err(missing),
        };
        let mut object = current.clone();
        format.apply(&mut object, &patch)?;
        self.replace(current, object, true)
    }

    fn create_by_apply(&mut self, mut object: Value) -> Outcome {
        object["metadata"]["name"] = self.request.target.name.clone().into();
        let warnings = self.validate_fields(&mut object, false)?;
        admission::create(self, &mut object)?;
        schema::check(self.resource, self.store.calico_line(), &object, None)?;
        let key = self.key();
        let created = self.store.create(self.resource, key, object);
        Ok(with_warnings(self.one(201, created), warnings))
    }

    /// Replaces `current` by `object`: fields that the caller may not set are kept, a change without effect keeps the
    /// resourceVersion, and removing the last finalizer deletes the object.
    fn replace(&mut self, current: Value, mut object: Value, is_patch: bool) -> Outcome {
        let name = self.request.target.name.clone();
        let given = text(&object, "/metadata/resourceVersion").unwrap_or_default();
        if !given.is_empty() && Some(given) != text(&current, "/metadata/resourceVersion") {
            return Err(Answer::conflict(self.resource, &name));
        }
        let warnings = self.validate_fields(&mut object, is_patch)?;
        if self.resource.status {
            let of_status = matches!(self.request.target.subresource.as_str(), "status" | "approval");
            let kept = if of_status { "spec" } else { "status" };
            match current.get(kept) {
                Some(value) => object[kept] = value.clone(),
                None => drop(object.as_object_mut().and_then(|o| o.remove(kept))),
            }
        }
        for owned in [
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "name",
            "namespace",
        ] {
            match current["metadata"].get(owned) {
                Some(value) => object["metadata"][owned] = value.clone(),
                None => drop(object["metadata"].as_object_mut().and_then(|m| m.remove(owned))),
            }
        }
        object["kind"] = self.resource.kind.into();
        object["apiVersion"] = self.resource.api_version().into();
        tidy(&mut object);
        admission::update(self, &current, &mut object)?;
        schema::check(self.resource, self.store.calico_line(), &object, Some(&current))?;
        if object == current {
            return Ok(with_warnings(self.one(200, current), warnings));
        }
        if self.resource.generation && wanted(&object) != wanted(&current) {
            let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = (generation + 1).into();
        }
        let ended = object["metadata"].get("deletionTimestamp").is_some()
            && object["metadata"].get("finalizers").is_none()
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        let key = self.key();
        if ended {
            let last = self.store.remove(&key).unwrap_or(object);
            return Ok(self.one(200, last));
        }
        let updated = self.store.update(key, object);
        Ok(with_warnings(self.one(200, updated), warnings))
    }

    /// Prunes unknown fields by `fieldValidation`: with a warning (the default), silently, or as an error.
    fn validate_fields(&self, object: &mut Value, is_patch: bool) -> Result<Vec<String>, Answer> {
        let before = object.clone();
        let unknown = schema::prune(self.resource, self.store.calico_line(), object);
        match self.request.param("fieldValidation").unwrap_or("Warn") {
            "Strict" if !unknown.is_empty() => {
                let list: Vec<String> = unknown.iter().map(|f| format!("unknown field \"{f}\"")).collect();
                let why = format!("strict decoding error: {}", list.join(", "));
                if !is_patch {
                    let (kind, version) = (self.resource.kind, self.resource.version);
                    return Err(Answer::bad_request(format!(
                        "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
                    )));
                }
                // A patch error quotes the complete patched object, its keys sorted as in Go, under an empty name.
                let mut before = before;
                before.sort_all_objects();
                let message = format!("Invalid value: {}: {why}", Value::from(before.to_string()));
                let cause = Cause::new("FieldValueInvalid", "patch", message.clone());
                let details = json!({"causes": [{"reason": cause.reason, "message": message, "field": cause.field}]});
                let message = format!(" \"\" is invalid: patch: {message}");
                Err(Answer::refusal(422, "Invalid", message, Some(details)))
            }
            "Ignore" => Ok(Vec::new()),
            _ => Ok(unknown),
        }
    }
}

/// Everything except metadata and status: the part that a generation counts.
fn wanted(object: &Value) -> Value {
    let mut wanted = object.clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    wanted
}

/// Empty maps and lists of metadata, and empty taints, are not stored.
fn tidy(object: &mut Value) {
    let empty = |v: &Value| {
        v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty) || v.as_array().is_some_and(Vec::is_empty)
    };
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|_, v| !empty(v));
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("taints").is_some_and(empty)
    {
        spec.remove("taints");
    }
}

fn update_without_version(resource: &Resource, name: &str, cause: &Cause) -> Answer {
    // Only this refusal names the plural where others name the kind.
    let mut answer = Answer::invalid(resource.plural, resource.group, name, std::slice::from_ref(cause));
    if let Content::Json(body) = &mut answer.body {
        body["details"]["kind"] = details(resource, name)["kind"].clone();
    }
    answer
}

fn with_warnings(mut answer: Answer, unknown: Vec<String>) -> Answer {
    for field in unknown {
        answer = answer.header("Warning", format!("299 - \"unknown field \\\"{field}\\\"\""));
    }
    answer
}
