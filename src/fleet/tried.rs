//! What the API server would do with the objects of a rollout, from its dry run.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::values::count;

/// What the server would do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TriedAction {
    Create,
    Update,
    Delete,
    /// It is as it would be.
    Unchanged,
    /// By admission, a right, a quota, or because it is not valid.
    Refused,
    /// What it needs does not exist yet, for example its namespace.
    Unknown,
}

impl TriedAction {
    const ALL: [Self; 6] = [Self::Create, Self::Update, Self::Delete, Self::Unchanged, Self::Refused, Self::Unknown];

    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// An object of a rollout, as the API server answered the dry run of its change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TriedObject {
    pub kind: String,
    /// Null if the kind has none.
    pub namespace: Option<String>,
    pub name: String,
    pub action: TriedAction,
    /// What the server says, if the object is refused or its action unknown; else null.
    pub why: Option<String>,
}

impl TriedObject {
    pub fn new(object: &Value, action: TriedAction, why: Option<String>) -> Self {
        let field = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        Self {
            kind: object["kind"].as_str().unwrap_or_default().to_owned(),
            namespace: field("namespace"),
            name: field("name").unwrap_or_default(),
            action,
            why,
        }
    }
}

/// How many objects have which action: `14 objects: 3 create, 11 unchanged`.
pub fn told(objects: &[TriedObject]) -> String {
    let number = |action: TriedAction| objects.iter().filter(|object| object.action == action).count();
    let each = TriedAction::ALL.map(|action| (number(action), action.word()));
    let each: Vec<String> =
        each.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
    format!("{}: {}", count(objects.len(), "object"), each.join(", "))
}
