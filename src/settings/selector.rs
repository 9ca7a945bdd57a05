//! Calico's selectors, as far as a pool's `nodeSelector` needs them. The answer may be unknown: before a Node has
//! joined only a few of its labels are known, and an expression that cannot be parsed may match.

use std::collections::BTreeMap;

use crate::facts::ClusterNode;

/// Labels of a node, and whether the set is complete.
pub(super) struct Labels<'a> {
    known: BTreeMap<&'a str, &'a str>,
    complete: bool,
}

impl<'a> Labels<'a> {
    /// The labels of a Windows node: the Node's own once it has joined, else those that every kubelet sets.
    pub fn of(node: Option<&'a ClusterNode>) -> Self {
        match node.filter(|node| !node.labels.is_empty()) {
            Some(node) => {
                let known = node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                Self { known, complete: true }
            }
            None => {
                let known = ["kubernetes.io/os", "beta.kubernetes.io/os"].map(|label| (label, "windows")).into();
                Self { known, complete: false }
            }
        }
    }

    fn get(&self, label: &str) -> Known<'a> {
        match self.known.get(label) {
            Some(value) => Known::Is(value),
            None if self.complete => Known::Absent,
            None => Known::Open,
        }
    }
}

enum Known<'a> {
    Is(&'a str),
    Absent,
    Open,
}

/// Whether a selector matches a node; none if that is unknown.
pub(super) fn selects(selector: &str, labels: &Labels<'_>) -> Option<bool> {
    if selector.trim().is_empty() {
        return Some(true);
    }
    let mut parser = Parser { tokens: tokens(selector)?, at: 0, depth: 0, labels };
    let outcome = parser.any()?;
    (parser.at == parser.tokens.len()).then_some(outcome)?.0
}

/// The value of an expression: true, false, or unknown.
struct Outcome(Option<bool>);

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name, a keyword or an operator.
    Word(String),
    Text(String),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => {
                let end = rest[1..].find(first)?;
                tokens.push(Token::Text(rest[1..=end].to_owned()));
                rest = rest[end + 2..].trim_start();
                continue;
            }
            _ if ["==", "!=", "&&", "||"].iter().any(|operator| rest.starts_with(operator)) => 2,
            '!' | '(' | ')' | '{' | '}' | ',' => 1,
            c if is_of_name(c) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
            _ => return None,
        };
        tokens.push(Token::Word(rest[..length].to_owned()));
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}

/// Its functions return none if the text is not a selector.
struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    /// How many parentheses and negations are open.
    depth: usize,
    labels: &'a Labels<'a>,
}

/// The stack is finite, and no real selector is this deep.
const DEEPEST: usize = 100;

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let is = matches!(self.tokens.get(self.at), Some(Token::Word(have)) if have == word);
        self.at += usize::from(is);
        is
    }

    fn word(&mut self) -> Option<String> {
        let Token::Word(word) = self.tokens.get(self.at)?.clone() else { return None };
        self.at += 1;
        Some(word)
    }

    fn text(&mut self) -> Option<String> {
        let Token::Text(text) = self.tokens.get(self.at)?.clone() else { return None };
        self.at += 1;
        Some(text)
    }

    fn any(&mut self) -> Option<Outcome> {
        let mut sum = self.all()?;
        while self.take("||") {
            let next = self.all()?;
            sum = Outcome(match (sum.0, next.0) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            });
        }
        Some(sum)
    }

    fn all(&mut self) -> Option<Outcome> {
        let mut product = self.one()?;
        while self.take("&&") {
            let next = self.one()?;
            product = Outcome(match (product.0, next.0) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            });
        }
        Some(product)
    }

    fn one(&mut self) -> Option<Outcome> {
        self.depth += 1;
        let one = if self.depth > DEEPEST { None } else { self.term() };
        self.depth -= 1;
        one
    }

    fn term(&mut self) -> Option<Outcome> {
        if self.take("!") {
            return Some(Outcome(self.one()?.0.map(|is| !is)));
        }
        if self.take("(") {
            let inner = self.any()?;
            return self.take(")").then_some(inner);
        }
        let name = self.word()?;
        if self.take("(") {
            return self.function(&name);
        }
        if self.take("not") {
            return if self.take("in") { self.within(&name, false) } else { None };
        }
        let operator = self.word()?;
        match operator.as_str() {
            "==" | "!=" => {
                let value = self.text()?;
                Some(self.compare(&name, operator == "==", |is| is == value))
            }
            "in" => self.within(&name, true),
            "contains" => {
                let value = self.text()?;
                Some(self.compare(&name, true, |is| is.contains(&value)))
            }
            "starts" | "ends" => {
                let value = self.take("with").then(|| self.text())??;
                Some(self.compare(&name, true, |is| match operator.as_str() {
                    "starts" => is.starts_with(&value),
                    _ => is.ends_with(&value),
                }))
            }
            _ => None,
        }
    }

    fn function(&mut self, name: &str) -> Option<Outcome> {
        let outcome = match name {
            "all" | "global" => Outcome(Some(true)),
            "has" => {
                let label = self.word()?;
                match self.labels.get(&label) {
                    Known::Is(_) => Outcome(Some(true)),
                    Known::Absent => Outcome(Some(false)),
                    Known::Open => Outcome(None),
                }
            }
            _ => return None,
        };
        self.take(")").then_some(outcome)
    }

    fn within(&mut self, name: &str, wanted: bool) -> Option<Outcome> {
        let mut values = Vec::new();
        if !self.take("{") {
            return None;
        }
        while !self.take("}") {
            values.push(self.text()?);
            let _last_has_none = self.take(",");
        }
        Some(self.compare(name, wanted, |is| values.iter().any(|value| value == is)))
    }

    /// An absent label is unequal to any value.
    fn compare(&self, name: &str, wanted: bool, matches: impl Fn(&str) -> bool) -> Outcome {
        Outcome(match self.labels.get(name) {
            Known::Is(value) => Some(matches(value) == wanted),
            Known::Absent => Some(!wanted),
            Known::Open => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined() -> ClusterNode {
        let labels = [("kubernetes.io/os", "windows"), ("zone", "a"), ("rack", "r-7")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        ClusterNode { labels, ..ClusterNode::default() }
    }

    #[test]
    fn a_node_that_has_joined_matches_or_not() {
        let node = joined();
        let labels = Labels::of(Some(&node));
        for yes in [
            "",
            "all()",
            "zone == 'a'",
            "zone != \"b\"",
            "other != 'x'",
            "zone in {'b', 'a'}",
            "zone not in {'b'}",
            "rack starts with 'r-' && rack ends with '7'",
            "rack contains '-'",
            "has(zone) && !has(other)",
            "!(zone == 'b') && (kubernetes.io/os == 'windows' || has(x))",
        ] {
            assert_eq!(selects(yes, &labels), Some(true), "{yes}");
        }
        for no in ["!all()", "kubernetes.io/os == 'linux'", "zone in {}", "other == 'x'", "has(other)"] {
            assert_eq!(selects(no, &labels), Some(false), "{no}");
        }
        for unreadable in
            ["zone = 'a'", "zone ==", "zone == 'a", "zone == 'a' zone == 'a'", "size(zone) > 3", "(zone == 'a'"]
        {
            assert_eq!(selects(unreadable, &labels), None, "{unreadable}");
        }
        for deep in [format!("{}all()", "!".repeat(100_000)), "(".repeat(100_000)] {
            assert_eq!(selects(&deep, &labels), None, "the stack has an end");
        }
    }

    #[test]
    fn before_a_node_has_joined_only_its_os_labels_are_known() {
        let labels = Labels::of(None);
        assert_eq!(selects("kubernetes.io/os == 'linux' && zone == 'a'", &labels), Some(false));
        assert_eq!(selects("(zone == 'a') && (kubernetes.io/os != 'windows')", &labels), Some(false));
        assert_eq!(selects("kubernetes.io/os in {'linux'}", &labels), Some(false));
        assert_eq!(selects("kubernetes.io/os == 'linux' || has(x)", &labels), None);
        assert_eq!(selects("zone == 'a'", &labels), None);
        assert_eq!(selects("kubernetes.io/os == 'windows' || zone == 'a'", &labels), Some(true));
    }
}
