//! Links between the pages: the file exists, and so does the heading.

use std::collections::BTreeMap;

use regex::Regex;

use crate::docs::documents;
use crate::{project, read};

/// The anchors of a page, as Markdown's readers make them of headings.
fn anchors(text: &str) -> Vec<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("it is one");
    let (mut fenced, mut seen, mut found) = (false, BTreeMap::<String, usize>::new(), Vec::new());
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let heading = link.replace_all(heading.trim(), "$1").to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_default();
        found.push(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    found
}

/// Returns the links of a page that lead nowhere.
fn broken(page: &str, text: &str) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)#:]*)(?:#([^)]*))?\)").expect("it is one");
    let folder = project().join(page).parent().expect("a file lies in a folder").to_owned();
    let leads = |target: &str, anchor: Option<&str>| {
        let path = if target.is_empty() { project().join(page) } else { folder.join(target) };
        let own = target.is_empty().then(|| text.to_owned());
        let linked = || own.clone().or_else(|| std::fs::read_to_string(&path).ok());
        (target.is_empty() || path.exists())
            && anchor.is_none_or(|anchor| linked().is_some_and(|page| anchors(&page).iter().any(|one| one == anchor)))
    };
    let links = link.captures_iter(text).filter(|link| !leads(&link[1], link.get(2).map(|anchor| anchor.as_str())));
    links.map(|link| format!("{page}: {}", &link[0])).collect()
}

#[test]
fn links_between_the_documents_are_valid() {
    let pages = documents();
    assert!(pages.len() > 45, "{}", pages.len());
    let wrong: Vec<String> = pages.iter().flat_map(|page| broken(page, &read(page))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_that_lead_nowhere_are_detected() {
    let page = "# First `page`: a (test)\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n";
    assert_eq!(anchors(page), ["first-page-a-test", "twice", "twice-1"]);
    let text = "# Here\n[a](#here) [b](../README.md) [c](config.md#all-fields) [d](https://example.com/x#y)";
    assert_eq!(broken("docs/page.md", text), [""; 0]);
    let text = "[a](#there) [b](nothing.md) [c](config.md#no-fields) [d](nothing.md#here)";
    assert_eq!(broken("docs/page.md", text).len(), 4);
}
