//! Secrets in texts of other programs, such as logs. What this program writes has none.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// What a secret looks like, and what stays of it.
static PATTERNS: LazyLock<[(Regex, &str); 6]> = LazyLock::new(|| {
    [
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)", "*** (private key)"),
        // Tokens of service accounts, and what an identity provider issues.
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", "*** (token)"),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", "$1 ***"),
        // kubeadm's bootstrap tokens.
        (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", "*** (bootstrap token)"),
        (r"(://)[^/\s:@]+:[^/\s@]+@", "$1***@"),
        (
            r#"(?i)(["']?\b[\w.-]*(?:password|passwd|secret[_-]?key|client[_-]?secret|client-key-data|api[_-]?key|access[_-]?key|token)["']?\s*[:=]\s*)("[^"]+"|'[^']+'|[^\s,;"'}\])]+)"#,
            "$1***",
        ),
    ]
    .map(|(pattern, stays)| (Regex::new(pattern).expect("it is one"), stays))
});

/// The text without what looks like a secret.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for (pattern, stays) in PATTERNS.iter() {
        if let Cow::Owned(without) = pattern.replace_all(&text, *stays) {
            text = Cow::Owned(without);
        }
    }
    text
}

/// Removes from every text of a JSON value what looks like a secret: by itself, or by its key.
pub fn redact_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(without) = redact(text) {
                *text = without;
            }
        }
        Value::Array(all) => all.iter_mut().for_each(redact_value),
        Value::Object(members) => {
            for (key, value) in members {
                let is_secret = value.is_string() && redact(&format!("{key}: 'x'")).ends_with("***");
                if is_secret { *value = "***".into() } else { redact_value(value) }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn what_looks_like_a_secret_is_removed() {
        for (text, wanted) in [
            ("a eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln b", "a *** (token) b"),
            ("header Authorization: Bearer abc.def-ghi", "header Authorization: Bearer ***"),
            ("-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nnext", "*** (private key)\nnext"),
            ("-----BEGIN PRIVATE KEY-----\ncut off", "*** (private key)"),
            ("join with abcdef.0123456789abcdef now", "join with *** (bootstrap token) now"),
            ("http://admin:hunter2@proxy:3128/", "http://***@proxy:3128/"),
            (r#"{"password": "hunter2", "name": "a"}"#, r#"{"password": ***, "name": "a"}"#),
            ("ETCD_PASSWORD=hunter2 rest", "ETCD_PASSWORD=*** rest"),
            ("client-key-data: TUhjQ0FRRUU=", "client-key-data: ***"),
            ("token: abcdef", "token: ***"),
        ] {
            assert_eq!(redact(text), wanted);
        }
        for plain in
            ["10.20.0.21:6443", "the token ends at 2027-01-02", "https://10.0.0.1:2379/health", "file felix.json"]
        {
            assert_eq!(redact(plain), plain);
        }
    }
}
