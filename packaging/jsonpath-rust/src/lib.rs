//! In place of the crate of this name: what kube asks of it, and no more.
//!
//! kube follows one JSONPath, that of `token-key` and `expiry-key` of a user's `auth-provider: gcp`, a
//! login that kubectl itself gave up in 1.26. Those are plain paths as `{.credential.access_token}`.
//! The full crate brings a parser generator and regular expressions with all of Unicode along for it:
//! 0.7 MB of the released executable, and a C compiler's run in each build.

use std::fmt;

use serde_json::Value;

/// A JSON value that can be asked by a path.
pub trait JsonPath {
    /// The value that a path of names and indices leads to, as `$.items[0].token`; none where there is
    /// no such value.
    ///
    /// # Errors
    /// For a path of any other kind.
    fn query(&self, path: &str) -> Result<Vec<&Value>, NotPlain>;
}

impl JsonPath for Value {
    fn query(&self, path: &str) -> Result<Vec<&Value>, NotPlain> {
        Ok(self.pointer(&pointer(path).ok_or(NotPlain)?).into_iter().collect())
    }
}

/// The path asks for more than names and indices.
#[derive(Debug)]
pub struct NotPlain;

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("only a plain path can be followed, as {.credential.access_token}")
    }
}

impl std::error::Error for NotPlain {}

/// The path as a JSON pointer (RFC 6901): `$.all[0]['id-token']` as `/all/0/id-token`.
fn pointer(path: &str) -> Option<String> {
    let dotted = path.strip_prefix('$')?.replace('[', ".").replace(']', "");
    let mut pointer = String::new();
    for step in dotted.strip_prefix('.')?.split('.') {
        let step = step.trim_matches(['\'', '"']);
        let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if step.is_empty() || !step.chars().all(plain) {
            return None;
        }
        pointer.push('/');
        pointer.push_str(step);
    }
    Some(pointer)
}
