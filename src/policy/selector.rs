//! Calico's selectors: `app == 'web' && !(tier in {'db', 'cache'})`. The grammar is that of libcalico-go/lib/selector.

use std::collections::HashMap;

/// The longest selector that is read. Calico's own limit for a label is 512 characters.
const MOST_BYTES: usize = 64 << 10;
/// How deep parentheses and negations may be nested.
const MOST_DEPTH: usize = 100;

/// A text that occurs often, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Word(u32);

/// Every text once.
#[derive(Debug, Default)]
pub(super) struct Words {
    numbers: HashMap<Box<str>, Word>,
    texts: Vec<Box<str>>,
}

impl Words {
    pub fn add(&mut self, text: &str) -> Word {
        if let Some(word) = self.numbers.get(text) {
            return *word;
        }
        let word = Word(u32::try_from(self.texts.len()).expect("there are fewer labels than four billion"));
        self.texts.push(text.into());
        self.numbers.insert(text.into(), word);
        word
    }

    pub fn find(&self, text: &str) -> Option<Word> {
        self.numbers.get(text).copied()
    }

    pub fn text(&self, word: Word) -> &str {
        &self.texts[word.0 as usize]
    }
}

/// Labels by key.
pub(super) type Labels = [(Word, Word)];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Selector {
    All,
    /// Resources without a namespace, which pods are not.
    Global,
    Has(Word),
    In(Word, Vec<Word>),
    Contains(Word, String),
    StartsWith(Word, String),
    EndsWith(Word, String),
    Not(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
}

impl Selector {
    /// An empty text selects everything.
    ///
    /// # Errors
    /// What is wrong, and at which character.
    pub fn parse(text: &str, words: &mut Words) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::All);
        }
        if text.len() > MOST_BYTES {
            return Err(format!("the selector is longer than {MOST_BYTES} bytes"));
        }
        let mut parser = Parser { text, at: 0, depth: 0, words };
        let selector = parser.any_of()?;
        match parser.rest() {
            "" => Ok(selector),
            _ => parser.fail("expected && or ||, or the end"),
        }
    }

    pub fn matches(&self, labels: &Labels, words: &Words) -> bool {
        let value = |key: &Word| labels.iter().find(|(k, _)| k == key).map(|(_, value)| *value);
        let text = |key: &Word| value(key).map(|value| words.text(value));
        match self {
            Self::All => true,
            Self::Global => false,
            Self::Has(key) => value(key).is_some(),
            Self::In(key, values) => value(key).is_some_and(|value| values.contains(&value)),
            Self::Contains(key, part) => text(key).is_some_and(|text| text.contains(part)),
            Self::StartsWith(key, part) => text(key).is_some_and(|text| text.starts_with(part)),
            Self::EndsWith(key, part) => text(key).is_some_and(|text| text.ends_with(part)),
            Self::Not(other) => !other.matches(labels, words),
            Self::And(parts) => parts.iter().all(|part| part.matches(labels, words)),
            Self::Or(parts) => parts.iter().any(|part| part.matches(labels, words)),
        }
    }

    /// Every key that it names.
    pub fn keys(&self, add: &mut impl FnMut(Word)) {
        match self {
            Self::All | Self::Global => {}
            Self::Has(key)
            | Self::In(key, _)
            | Self::Contains(key, _)
            | Self::StartsWith(key, _)
            | Self::EndsWith(key, _) => add(*key),
            Self::Not(other) => other.keys(add),
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.keys(add)),
        }
    }

    /// The keys with their values of which everything that matches has one: where to look for matches.
    pub fn required(&self, add: &mut impl FnMut(Word, &[Word])) {
        match self {
            Self::In(key, values) => add(*key, values),
            Self::And(parts) => parts.iter().for_each(|part| part.required(add)),
            _ => {}
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    words: &'a mut Words,
}

impl<'a> Parser<'a> {
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn fail<T>(&self, problem: &str) -> Result<T, String> {
        let place = self.text[..self.at].chars().count() + 1;
        Err(format!("{problem} at character {place} of `{}`", self.text))
    }

    /// Takes a word or sign if it is next.
    fn takes(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    fn any_of(&mut self) -> Result<Selector, String> {
        let mut parts = vec![self.all_of()?];
        while self.takes("||") {
            parts.push(self.all_of()?);
        }
        Ok(single(parts, Selector::Or))
    }

    fn all_of(&mut self) -> Result<Selector, String> {
        let mut parts = vec![self.one()?];
        while self.takes("&&") {
            parts.push(self.one()?);
        }
        Ok(single(parts, Selector::And))
    }

    fn one(&mut self) -> Result<Selector, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return self.fail("it is nested too deeply");
        }
        let found = self.operand();
        self.depth -= 1;
        found
    }

    fn operand(&mut self) -> Result<Selector, String> {
        if self.takes("!") {
            return Ok(Selector::Not(Box::new(self.one()?)));
        }
        if self.takes("(") {
            let inner = self.any_of()?;
            return if self.takes(")") { Ok(inner) } else { self.fail("expected )") };
        }
        let start = self.at;
        let name = self.label()?;
        if self.takes("(") {
            let key = if name == "has" { Some(self.label()?) } else { None };
            if !self.takes(")") {
                return self.fail("expected )");
            }
            return match (name, key) {
                ("has", Some(key)) => Ok(Selector::Has(self.words.add(key))),
                ("all", _) => Ok(Selector::All),
                ("global", _) => Ok(Selector::Global),
                _ => {
                    self.at = start;
                    self.fail("expected has(LABEL), all(), global() or a label")
                }
            };
        }
        self.comparison(name)
    }

    /// What follows a label.
    fn comparison(&mut self, name: &str) -> Result<Selector, String> {
        let key = self.words.add(name);
        let not = |selector| Selector::Not(Box::new(selector));
        if self.takes("==") {
            return Ok(Selector::In(key, vec![self.value()?]));
        }
        if self.takes("!=") {
            return Ok(not(Selector::In(key, vec![self.value()?])));
        }
        if self.phrase(&["not", "in"]) {
            return Ok(not(Selector::In(key, self.values()?)));
        }
        if self.phrase(&["in"]) {
            return Ok(Selector::In(key, self.values()?));
        }
        if self.phrase(&["contains"]) {
            return Ok(Selector::Contains(key, self.quoted()?.to_owned()));
        }
        if self.phrase(&["starts", "with"]) {
            return Ok(Selector::StartsWith(key, self.quoted()?.to_owned()));
        }
        if self.phrase(&["ends", "with"]) {
            return Ok(Selector::EndsWith(key, self.quoted()?.to_owned()));
        }
        self.fail("expected ==, !=, in, not in, contains, starts with or ends with")
    }

    /// Takes words that may have any space between them.
    fn phrase(&mut self, words: &[&str]) -> bool {
        let start = self.at;
        for word in words {
            let rest = self.rest();
            let follows = rest.strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_of_label));
            if !follows {
                self.at = start;
                return false;
            }
            self.at += word.len();
        }
        true
    }

    fn label(&mut self) -> Result<&'a str, String> {
        let rest = self.rest();
        let name = &rest[..rest.find(|c| !is_of_label(c)).unwrap_or(rest.len())];
        if name.is_empty() {
            return self.fail("expected a label");
        }
        self.at += name.len();
        Ok(name)
    }

    fn values(&mut self) -> Result<Vec<Word>, String> {
        if !self.takes("{") {
            return self.fail("expected {");
        }
        let mut values = Vec::new();
        while !self.takes("}") {
            if !values.is_empty() && !self.takes(",") {
                return self.fail("expected , or }");
            }
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn value(&mut self) -> Result<Word, String> {
        let text = self.quoted()?;
        Ok(self.words.add(text))
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return self.fail("expected a text in quotes");
        };
        let Some(end) = rest[1..].find(quote) else {
            return self.fail("the quote is not closed");
        };
        self.at += end + 2;
        Ok(&rest[1..=end])
    }
}

fn single(mut parts: Vec<Selector>, several: fn(Vec<Selector>) -> Selector) -> Selector {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => several(parts.into_iter().chain(last).collect()),
    }
}

fn is_of_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, labels: &[(&str, &str)]) -> bool {
        let mut words = Words::default();
        let selector = Selector::parse(text, &mut words).unwrap();
        let labels: Vec<(Word, Word)> = labels.iter().map(|(k, v)| (words.add(k), words.add(v))).collect();
        selector.matches(&labels, &words)
    }

    #[test]
    fn every_operator_of_the_grammar_is_read() {
        let labels = [("app", "web"), ("k8s.io/tier", "front-end"), ("in", "all")];
        for (text, wanted) in [
            ("", true),
            ("all()", true),
            ("all( )", true),
            ("global()", false),
            ("app == 'web'", true),
            ("app==\"web\"", true),
            ("app == 'db'", false),
            ("app != 'db'", true),
            ("gone != 'db'", true),
            ("has(k8s.io/tier)", true),
            ("!has(gone)", true),
            ("! has(app)", false),
            ("app in {'db', \"web\"}", true),
            ("app in {}", false),
            ("app not in {'db'}", true),
            ("app not  in {'web'}", false),
            ("gone not in {'web'}", true),
            ("app contains 'e'", true),
            ("gone contains 'e'", false),
            ("k8s.io/tier starts with 'front'", true),
            ("k8s.io/tier starts with 'end'", false),
            ("k8s.io/tier ends  with 'end'", true),
            ("in in {'all'}", true),
            ("app == 'db' || app == 'web' && has(gone)", false),
            ("(app == 'db' || app == 'web') && has(app)", true),
            ("app == 'web' || has(gone) && has(gone)", true),
            ("!(app == 'web' || has(gone))", false),
            ("!!has(app)", true),
            ("  app=='web'&&!has(gone)  ", true),
        ] {
            assert_eq!(matches(text, &labels), wanted, "{text}");
        }
    }

    #[test]
    fn an_invalid_selector_is_refused_with_the_place() {
        let refused: Vec<String> = [
            "app",
            "app = 'web'",
            "app == web",
            "app == 'web",
            "app in ('a')",
            "app in {'a' 'b'}",
            "(all()",
            "all() all()",
            "any()",
            "has()",
            "&& all()",
            "\u{e4}pp == 'a'",
        ]
        .iter()
        .map(|text| Selector::parse(text, &mut Words::default()).unwrap_err())
        .collect();
        insta::assert_snapshot!(refused.join("\n"), @r#"
        expected ==, !=, in, not in, contains, starts with or ends with at character 4 of `app`
        expected ==, !=, in, not in, contains, starts with or ends with at character 5 of `app = 'web'`
        expected a text in quotes at character 8 of `app == web`
        the quote is not closed at character 8 of `app == 'web`
        expected { at character 8 of `app in ('a')`
        expected , or } at character 13 of `app in {'a' 'b'}`
        expected ) at character 7 of `(all()`
        expected && or ||, or the end at character 7 of `all() all()`
        expected has(LABEL), all(), global() or a label at character 1 of `any()`
        expected a label at character 5 of `has()`
        expected a label at character 1 of `&& all()`
        expected a label at character 1 of `äpp == 'a'`
        "#);
        let deep = format!("{}all()", "!".repeat(10_000));
        assert!(Selector::parse(&deep, &mut Words::default()).unwrap_err().starts_with("it is nested too deeply"));
    }

    #[test]
    fn what_every_match_must_have_narrows_the_search() {
        let mut words = Words::default();
        let mut required = |text: &str| {
            let mut found = Vec::new();
            let selector = Selector::parse(text, &mut words).unwrap();
            selector.required(&mut |key, values| found.push((key, values.len())));
            found.iter().map(|(key, values)| format!("{} {values}", words.text(*key))).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(required("has(b) && a in {'x', 'y'} && c == 'd'"), "a 2, c 1");
        for free in ["a == 'x' || b == 'y'", "a != 'x'", "has(a)", "all()"] {
            assert_eq!(required(free), "", "{free}");
        }
    }
}
