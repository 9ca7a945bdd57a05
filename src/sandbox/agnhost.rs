//! The programs of the image agnhost that the sandbox knows, by a container's arguments.

use serde_json::Value;

/// What a container runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// `netexec --http-port=N`: listens on this port.
    Serves(u64),
    /// `connect HOST:PORT`: connects once, and ends.
    Connects(String),
    /// Anything else: it runs.
    Unknown,
}

impl Program {
    pub fn of(container: &Value) -> Self {
        let words = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let words: Vec<&str> = words.collect();
        match words.as_slice() {
            ["netexec", options @ ..] => {
                let port = options.iter().find_map(|word| word.strip_prefix("--http-port=")?.parse().ok());
                Self::Serves(port.unwrap_or(8080))
            }
            ["connect", to, ..] => Self::Connects((*to).to_owned()),
            _ => Self::Unknown,
        }
    }
}
