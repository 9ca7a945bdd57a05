//! Names and addresses in what HNS says are replaced before it is written: each by the same stand-in everywhere, so that
//! a reader still sees what refers to what.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::facts::NodeFacts;

/// Keys whose text is a word of HNS and no name.
const WORDS: [&str; 11] = [
    "Type",
    "Action",
    "Direction",
    "RuleType",
    "Protocol",
    "Tag",
    "State",
    "InternalPort",
    "ExternalPort",
    "LocalPorts",
    "RemotePorts",
];

/// Names that are the same on every machine.
const USUAL: [&str; 5] = ["External", "Calico", "Calico_ep", "nat", "Default Switch"];

/// Prefix of everything that this program makes for a row.
const OURS: &str = "calicoctl-win-selftest";

/// SIDs of accounts, GUIDs, MAC addresses, IPv6 and IPv4 addresses, in this order: one may look like part of another.
static PATTERNS: LazyLock<[(&str, Regex); 5]> = LazyLock::new(|| {
    [
        ("sid", r"\bS-1-5-21(?:-\d+)+\b"),
        ("guid", r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
        ("mac", r"(?i)\b[0-9a-f]{2}(?:[-:][0-9a-f]{2}){5}\b"),
        ("ipv6", r"(?i)\b[0-9a-f]{1,4}(?:::?[0-9a-f]{1,4}){2,7}\b"),
        ("ip", r"\b\d{1,3}(?:\.\d{1,3}){3}\b"),
    ]
    .map(|(kind, pattern)| (kind, Regex::new(pattern).expect("it is one")))
});

/// What was replaced so far.
#[derive(Debug, Default)]
pub struct Mask {
    known: BTreeMap<String, String>,
    count: BTreeMap<&'static str, usize>,
}

impl Mask {
    /// Knows the names of a machine and of its adapters.
    pub fn new(facts: &NodeFacts) -> Self {
        let mut mask = Self::default();
        for name in facts.adapters.iter().map(|adapter| &adapter.name).chain([&facts.host_name]) {
            mask.stand_in("name", name);
        }
        mask
    }

    /// A document of HNS without names and addresses. Numbers, truth values and keys stay.
    pub fn document(&mut self, value: &Value) -> Value {
        self.value("", value)
    }

    fn value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.of(key, text)),
            Value::Array(all) => all.iter().map(|one| self.value(key, one)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, one)| (self.text(key), self.value(key, one)));
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }

    fn of(&mut self, key: &str, text: &str) -> String {
        if text.is_empty() || WORDS.contains(&key) || USUAL.contains(&text) || text.starts_with(OURS) {
            return text.to_owned();
        }
        let plain = self.addresses(text);
        // What was nothing but addresses has no name in it.
        let rest = STAND_IN.replace_all(&plain, "");
        let is_length = |rest: &str| rest.strip_prefix('/').is_some_and(|length| length.parse::<u8>().is_ok());
        if rest == "/endpoints/" || is_length(&rest) || !rest.chars().any(char::is_alphanumeric) {
            return plain;
        }
        self.stand_in("name", text)
    }

    /// Text of ours, without the addresses in it and without the names that HNS said before.
    pub fn text(&mut self, text: &str) -> String {
        let mut plain = self.addresses(text);
        for (original, stand_in) in self.known.iter().filter(|(_, stand_in)| stand_in.starts_with("<name")) {
            if original.len() > 3 {
                plain = plain.replace(original.as_str(), stand_in);
            } else if original.chars().any(char::is_alphabetic)
                && let Ok(word) = Regex::new(&format!(r"\b{}\b", regex::escape(original)))
            {
                // A short name may be part of any word.
                plain = word.replace_all(&plain, regex::NoExpand(stand_in)).into_owned();
            }
        }
        plain
    }

    fn addresses(&mut self, text: &str) -> String {
        let mut plain = text.to_owned();
        for (kind, pattern) in PATTERNS.iter() {
            plain = pattern.replace_all(&plain, |found: &Captures<'_>| self.stand_in(kind, &found[0])).into_owned();
        }
        plain
    }

    fn stand_in(&mut self, kind: &'static str, original: &str) -> String {
        let key = if kind == "name" { original.to_owned() } else { original.to_lowercase() };
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let count = self.count.entry(kind).or_default();
        *count += 1;
        let stand_in = format!("<{kind} {count}>");
        self.known.insert(key, stand_in.clone());
        stand_in
    }
}

static STAND_IN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<[a-z0-9]+ \d+>").expect("it is one"));

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_addresses_are_replaced_and_what_refers_to_what_is_kept() {
        let mut mask = Mask::default();
        let masked = mask.document(&json!([
            {"ID": "9B219D6E-6847-43FC-8258-81DB4B63C09C", "Name": "corp-switch", "Type": "overlay", "State": 1,
             "ManagementIP": "10.1.36.50", "DrMacAddress": "00-15-5D-BB-6E-B1", "IPv6": false,
             "Subnets": [{"AddressPrefix": "10.1.36.0/24", "Policies": [{"Type": "VSID", "VSID": 4096}]}]},
            {"Name": "External", "VirtualNetwork": "9b219d6e-6847-43fc-8258-81db4b63c09c",
             "VirtualNetworkName": "corp-switch", "IPAddress": "fd00:10:244::5", "DNSSuffix": "corp.example",
             "SharedContainers": ["20261123"],
             "References": ["/endpoints/9b219d6e-6847-43fc-8258-81db4b63c09c"]},
        ]));
        insta::assert_json_snapshot!(masked, @r#"
        [
          {
            "ID": "<guid 1>",
            "Name": "<name 1>",
            "Type": "overlay",
            "State": 1,
            "ManagementIP": "<ip 1>",
            "DrMacAddress": "<mac 1>",
            "IPv6": false,
            "Subnets": [
              {
                "AddressPrefix": "<ip 2>/24",
                "Policies": [
                  {
                    "Type": "VSID",
                    "VSID": 4096
                  }
                ]
              }
            ]
          },
          {
            "Name": "External",
            "VirtualNetwork": "<guid 1>",
            "VirtualNetworkName": "<name 1>",
            "IPAddress": "<ipv6 1>",
            "DNSSuffix": "<name 2>",
            "SharedContainers": [
              "<name 3>"
            ],
            "References": [
              "/endpoints/<guid 1>"
            ]
          }
        ]
        "#);
        assert_eq!(mask.text("corp-switch has 10.1.36.50"), "<name 1> has <ip 1>");
        assert_eq!(mask.stand_in("name", "Lab"), "<name 4>");
        assert_eq!(mask.text("adapter Lab, Laboratory"), "adapter <name 4>, Laboratory");
        assert_eq!(mask.text("O:BAD:(A;;FA;;;S-1-5-21-1-2-3-1001)"), "O:BAD:(A;;FA;;;<sid 1>)");
    }
}
