//! What `diagnose` collects of a node: files without secrets, and a page that shows the cause.

mod page;
mod redact;
mod timeline;
mod topology;

use std::io::{Seek, Write};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use zip::write::SimpleFileOptions;
use zip::{DateTime, ZipWriter};

pub use self::page::{Page, Tail};
pub use self::redact::redact;
use self::redact::redact_value;
pub use self::timeline::RunLog;

/// The document of `diagnose`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// The zip that was written.
    pub path: String,
    /// Names of the files in it.
    pub files: Vec<String>,
    /// What could not be collected, and why.
    pub missing: Vec<Missing>,
    /// Ids of what is wrong: problems of `status`, and failed checks.
    pub causes: Vec<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Missing {
    pub file: String,
    pub why: String,
}

/// Files by name, without secrets.
#[derive(Debug, Default)]
pub struct Bundle {
    files: Vec<(String, String)>,
    missing: Vec<Missing>,
}

impl Bundle {
    /// Adds a text without its secrets, and returns what was added.
    pub fn text(&mut self, name: &str, text: &str) -> &str {
        self.files.push((name.to_owned(), redact(text).into_owned()));
        self.files.last().map_or("", |(_, text)| text)
    }

    /// Adds a value as JSON, or why there is none.
    pub fn json(&mut self, name: &str, value: Result<impl Serialize>) {
        let text = value.and_then(|value| {
            let mut value = serde_json::to_value(&value)?;
            redact_value(&mut value);
            Ok(serde_json::to_string_pretty(&value)? + "\n")
        });
        match text {
            Ok(text) => self.files.push((name.to_owned(), text)),
            Err(error) => self.missing(name, &format!("{error:#}")),
        }
    }

    /// Says that a file is missing, and why.
    pub fn missing(&mut self, name: &str, why: &str) {
        self.missing.push(Missing { file: name.into(), why: redact(why).into_owned() });
    }

    /// What could not be collected.
    pub fn all_missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The names of the files, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Writes everything into a zip, below a folder of its own.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write(&self, to: impl Write + Seek, folder: &str, at: Timestamp) -> Result<()> {
        let mut zip = ZipWriter::new(to);
        let options = SimpleFileOptions::default().last_modified_time(time_of(at)).unix_permissions(0o600);
        for (name, text) in &self.files {
            zip.start_file(format!("{folder}/{name}"), options).with_context(|| format!("add {name}"))?;
            zip.write_all(text.as_bytes()).with_context(|| format!("add {name}"))?;
        }
        zip.finish().context("finish the zip")?;
        Ok(())
    }
}

/// A zip has no times before 1980.
fn time_of(at: Timestamp) -> DateTime {
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    let small = |number: i8| u8::try_from(number).unwrap_or_default();
    let year = u16::try_from(at.year()).unwrap_or_default();
    DateTime::from_date_and_time(
        year,
        small(at.month()),
        small(at.day()),
        small(at.hour()),
        small(at.minute()),
        small(at.second()),
    )
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read as _};

    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_bundle_has_what_was_added_and_says_what_was_not() {
        let mut bundle = Bundle::default();
        let _added = bundle.text("logs/felix.log", "Authorization: Bearer abcdefgh\nready\n");
        bundle.json("status.json", Ok(serde_json::json!({"overall": "Healthy"})));
        let peer = serde_json::json!({"password": {"secretKeyRef": {"key": "a"}}, "list": [{"api_key": "hunter2"}]});
        bundle.json("peer.json", Ok(peer));
        bundle.json("hns.json", Err::<(), _>(anyhow!("HNS does not answer")));
        let mut bytes = Cursor::new(Vec::new());
        bundle.write(&mut bytes, "win-a1", "2026-11-27T02:30:00Z".parse().unwrap()).unwrap();
        let mut zip = zip::ZipArchive::new(bytes).unwrap();
        let mut read = |name: &str| {
            let mut text = String::new();
            zip.by_name(name).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read("win-a1/logs/felix.log"), "Authorization: Bearer ***\nready\n");
        assert_eq!(read("win-a1/status.json"), "{\n  \"overall\": \"Healthy\"\n}\n");
        // It stays JSON.
        let peer: serde_json::Value = serde_json::from_str(&read("win-a1/peer.json")).unwrap();
        assert_eq!(
            (&peer["password"]["secretKeyRef"]["key"], &peer["list"][0]["api_key"]),
            (&"a".into(), &"***".into())
        );
        assert_eq!(bundle.names(), ["logs/felix.log", "status.json", "peer.json"]);
        assert_eq!(
            (bundle.all_missing()[0].file.as_str(), bundle.all_missing()[0].why.as_str()),
            ("hns.json", "HNS does not answer")
        );
    }
}
