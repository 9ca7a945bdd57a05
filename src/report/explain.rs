//! `explain ID`: the meaning of a name that this program prints, and what to do about it. Offline.
//!
//! The texts are documents for people: `docs/explain.md` with a section `## Id` for every exit code, event type, fault
//! and warning, `docs/checks.md` with one for every check, and `docs/selftest.md` and `docs/verify.md` with one for
//! every row of the selftest and every probe of verify. `tests/it/docs.rs` checks that none is missing.

use std::sync::LazyLock;

use crate::fault::Exit;
use crate::packed::{self, packed};

static DOCUMENTS: LazyLock<[String; 4]> = LazyLock::new(|| {
    let documents: [&[u8]; 4] =
        [packed!("explain.md"), packed!("checks.md"), packed!("selftest.md"), packed!("verify.md")];
    documents.map(packed::text)
});

/// The section of an id, as Markdown without its heading. Case does not matter, and an exit code may be given by its
/// number.
pub fn explain(id: &str) -> Option<&'static str> {
    let wanted = Exit::all().find(|exit| exit.code().to_string() == id).map_or(id, |exit| exit.name());
    sections().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, text)| text)
}

/// Every id that has a section, in the document's order.
pub fn ids() -> impl Iterator<Item = &'static str> {
    sections().map(|(name, _)| name)
}

/// The ids, and other names, most similar to one that has no section, the most likely first; none if nothing is similar.
pub fn did_you_mean<'a>(id: &str, others: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = id.to_ascii_lowercase();
    let mut near: Vec<(f64, &str)> = ids()
        .map(|id| -> &'a str { id })
        .chain(others)
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_ascii_lowercase()), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().map(|(_, name)| name).take(3).collect()
}

fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    DOCUMENTS.iter().flat_map(|document| document.split("\n## ").skip(1)).map(|section| {
        let (name, text) = section.split_once('\n').unwrap_or((section, ""));
        // The heading of the next group of ids ends the last section of this one.
        let text = text.find("\n# ").map_or(text, |group| &text[..group]);
        (name.trim(), text.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_any_case_and_an_exit_code_also_by_its_number() {
        let text = explain("CLUSTER_UNREACHABLE").unwrap();
        assert_eq!(explain("cluster_unreachable"), Some(text));
        assert_eq!(explain("7"), Some(text));
        assert_eq!(explain("NoSuchThing"), None);
    }

    #[test]
    fn a_typo_gets_a_suggestion() {
        assert_eq!(did_you_mean("CLUSTER_UNREACHEABLE", [].into_iter()).first(), Some(&"CLUSTER_UNREACHABLE"));
        assert_eq!(did_you_mean("conectivity_notice", [].into_iter()).first(), Some(&"connectivity_notice"));
        assert!(did_you_mean("xyzzy", [].into_iter()).is_empty());
    }

    #[test]
    fn sections_have_text_of_their_own_and_no_id_occurs_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for (name, text) in sections() {
            assert!(text.len() > 40, "{name} says too little");
            assert!(!text.contains("\n# "), "{name} runs into the next group");
            assert!(seen.insert(name.to_ascii_lowercase()), "{name} stands twice");
        }
    }
}
