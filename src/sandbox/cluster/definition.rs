//! The fields of Calico's CustomResourceDefinitions, from `calico-schemas.txt`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use serde::Deserialize;
use serde_json::Value;

use super::resources::Resource;
use crate::packed::{self, packed};

static TABLE: LazyLock<String> = LazyLock::new(|| packed::text(packed!("calico-schemas.txt")));

/// A field and its subfields.
#[derive(Debug, Clone)]
pub struct Field {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean` or `int-or-string`.
    pub kind: &'static str,
    pub says: Says,
    fields: BTreeMap<&'static str, Arc<Self>>,
}

/// A field's properties besides its type.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Says {
    pub required: bool,
    pub nullable: bool,
    /// Keeps unknown fields.
    pub preserve: bool,
    #[serde(rename = "enum")]
    pub one_of: Vec<Value>,
    pub default: Option<Value>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub pattern: Option<String>,
    pub format: Option<String>,
}

impl Field {
    /// The known subfields.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Self)> {
        self.fields.iter().filter(|(name, _)| !matches!(**name, "[]" | "*")).map(|(name, field)| (*name, &**field))
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.fields.get(name).or_else(|| self.fields.get("*")).map(|field| &**field)
    }

    /// The element type of a list.
    pub fn element(&self) -> Option<&Self> {
        self.fields.get("[]").map(|field| &**field)
    }

    /// Keeps everything: the definition names no subfields.
    pub fn is_open(&self) -> bool {
        self.says.preserve || self.fields.is_empty()
    }
}

/// The schema of a kind in a release line of Calico (`v3.32`); none for Kubernetes' own kinds. A line that is not in
/// the table uses the previous one.
pub fn of(resource: &Resource, line: &str) -> Option<&'static Field> {
    static ALL: OnceLock<BTreeMap<Heading, Field>> = OnceLock::new();
    if !resource.group.ends_with("projectcalico.org") {
        return None;
    }
    let all = ALL.get_or_init(|| read(&TABLE));
    let group = resource.api_version();
    let lines = || all.iter().filter(|((_, of, kind), _)| *of == group && *kind == resource.kind);
    let known = lines().rfind(|((known, ..), _)| *known <= line).or_else(|| lines().next());
    known.map(|(_, schema)| schema)
}

/// Release line, group and kind.
type Heading = (&'static str, &'static str, &'static str);

/// Kinds by their headings.
fn read(table: &'static str) -> BTreeMap<Heading, Field> {
    let lines: Vec<(usize, &str)> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| (line.len() - line.trim_start().len(), line.trim_start()))
        .collect();
    let headings = lines.iter().enumerate().filter(|(_, (depth, _))| *depth == 0);
    let mut tops: Vec<(usize, &str)> = headings.map(|(at, (_, line))| (at, *line)).collect();
    tops.push((lines.len(), ""));
    let part = |at: usize| &lines[tops[at].0 + 1..tops[at + 1].0];
    let shared = tops.iter().position(|(_, line)| *line == "shared").map_or(&[][..], part);
    (0..tops.len() - 1)
        .filter(|at| tops[*at].1 != "shared")
        .map(|at| {
            let fields = below(part(at), 1, shared);
            let mut words = tops[at].1.split(' ');
            let mut word = || words.next().unwrap_or_default();
            let (line, group, _, kind) = (word(), word(), word(), word());
            ((line, group, kind), Field { kind: "object", says: Says::default(), fields })
        })
        .collect()
}

type Line = (usize, &'static str);

/// The fields of one depth, each with its subfields.
fn below(lines: &[Line], depth: usize, shared: &[Line]) -> BTreeMap<&'static str, Arc<Field>> {
    let mut fields = BTreeMap::new();
    for (at, (_, line)) in lines.iter().enumerate().filter(|(_, (at, _))| *at == depth) {
        let own = &lines[at + 1..];
        let own = &own[..own.iter().position(|(below, _)| *below <= depth).unwrap_or(own.len())];
        if let Some(number) = line.strip_prefix("= ") {
            let start = shared.iter().position(|found| *found == (1, number)).map_or(shared.len(), |at| at + 1);
            let block = &shared[start..];
            let block = &block[..block.iter().position(|(depth, _)| *depth == 1).unwrap_or(block.len())];
            fields.extend(below(block, 2, shared));
            continue;
        }
        let mut words = line.splitn(3, ' ');
        let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let says = words.next().map_or_else(Says::default, |says| {
            serde_json::from_slice(says.as_bytes()).expect("the script writes this format, and a test reads it all")
        });
        fields.insert(name, Arc::new(Field { kind, says, fields: below(own, depth + 1, shared) }));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::cluster::resources::{Layout, calico};

    #[test]
    fn every_kind_that_is_served_has_a_schema_and_every_schema_is_served() {
        for (layout, line) in
            [(Layout::V1, "v3.31"), (Layout::V1, "v3.32"), (Layout::V3, "v3.32"), (Layout::V3, "v3.33")]
        {
            for resource in calico(layout) {
                let status = if resource.status { " status" } else { "" };
                let (group, plural, kind) = (resource.api_version(), resource.plural, resource.kind);
                let heading = format!("\n{line} {group} {plural} {kind}");
                assert!(TABLE.contains(&heading), "{heading}");
                if line == "v3.32" {
                    assert!(TABLE.contains(&format!("{heading}{status}\n")), "{heading}{status}");
                }
            }
        }
        assert_eq!(read(&TABLE).len(), 4 * calico(Layout::V1).len());
    }

    #[test]
    fn groups_and_releases_differ_where_calicos_definitions_differ() {
        let kind = |layout: Layout, line: &str, kind: &str| {
            let resource = calico(layout).iter().find(|r| r.kind == kind).unwrap();
            of(resource, line).unwrap()
        };
        let deleted =
            |layout, line| kind(layout, line, "BlockAffinity").field("spec").unwrap().field("deleted").unwrap().kind;
        assert_eq!(["v3.20", "v3.31", "v3.32", "v3.33"].map(|line| deleted(Layout::V1, line)), ["string"; 4]);
        assert_eq!(["v3.32", "v3.33", "v3.40"].map(|line| deleted(Layout::V3, line)), ["boolean"; 3]);
        let attributes = |layout, line| {
            let block = kind(layout, line, "IPAMBlock");
            let attribute = block.field("spec").unwrap().field("attributes").unwrap().element().unwrap();
            attribute.named().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(attributes(Layout::V1, "v3.31"), "handle_id secondary");
        assert_eq!(attributes(Layout::V3, "v3.33"), "alternateOwnerAttrs handle_id releasedAt secondary");
        // A shared definition in the table is used at each place.
        for policy in ["NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy"] {
            let rules = kind(Layout::V3, "v3.33", policy);
            let rule = rules.field("spec").unwrap().field("ingress").unwrap().element().unwrap();
            let port = rule.field("destination").unwrap().field("ports").unwrap().element().unwrap();
            assert_eq!(port.kind, "int-or-string", "{policy}");
        }
    }
}
