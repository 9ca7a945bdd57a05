//! The value of an expression, as far as it can be told without running anything.

use super::super::lex::{Lexed, Part, Token};
use super::{Read, Reader, Value, environment, not_evaluated};

/// How words are taken: after a command a word is text, in an expression it is a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Argument,
    Expression,
}

impl Reader<'_> {
    /// The value of an expression.
    pub(super) fn value(&self, tokens: &[Lexed], mode: Mode) -> Read<Value> {
        let tokens: Vec<Lexed> = tokens.iter().filter(|lexed| lexed.token != Token::Break).cloned().collect();
        if mode == Mode::Expression {
            if let Some(at) = tokens.iter().position(|lexed| lexed.is_word("-join")) {
                let items = self.value(&tokens[..at], mode)?;
                let Value::Text(between) = self.value(&tokens[at + 1..], mode)? else { return Err(not_evaluated()) };
                return Ok(Value::Text(items.known_texts()?.join(&between)));
            }
            let sum: Vec<&[Lexed]> = tokens.split(|lexed| lexed.is_op('+')).collect();
            if sum.len() > 1 {
                let terms = sum.into_iter().map(|term| match self.value(term, mode)? {
                    Value::Text(text) => Ok(text),
                    _ => Err(not_evaluated()),
                });
                return Ok(Value::Text(terms.collect::<Read<String>>()?));
            }
        }
        let items: Vec<&[Lexed]> = tokens.split(|lexed| lexed.is_op(',')).filter(|item| !item.is_empty()).collect();
        match items.as_slice() {
            [] => Err("there is no value".into()),
            [_] if !tokens.iter().any(|lexed| lexed.is_op(',')) => self.single(&tokens, mode),
            items => self.list(items, mode),
        }
    }

    fn list(&self, items: &[&[Lexed]], mode: Mode) -> Read<Value> {
        let mut texts = Vec::new();
        for item in items {
            texts.extend(self.value(item, mode)?.known_texts()?);
        }
        Ok(Value::List(texts))
    }

    /// The value of one term, with calls such as `.ToLower()` after it.
    fn single(&self, tokens: &[Lexed], mode: Mode) -> Read<Value> {
        let (value, mut rest) = match tokens {
            [Lexed { token: Token::Brackets(class), .. }, Lexed { token: Token::Word(call), .. }, _, rest @ ..]
                if call.eq_ignore_ascii_case("::GetHostName") && class.to_lowercase().ends_with("net.dns") =>
            {
                (Value::HostName, rest)
            }
            [Lexed { token: Token::Brackets(class), .. }, rest @ ..]
                if matches!(class.to_lowercase().as_str(), "string" | "int" | "int32" | "string[]") =>
            {
                return self.single(rest, mode);
            }
            [Lexed { token: Token::Word(word), .. }, rest @ ..] if mode == Mode::Expression => {
                (self.word(word, rest)?, &[][..])
            }
            [Lexed { token: Token::Word(word), .. }, rest @ ..] => {
                (Value::Text(number(word).unwrap_or_else(|| word.clone())), rest)
            }
            [Lexed { token: Token::Text(parts), .. }, rest @ ..] => (self.text(parts)?, rest),
            [Lexed { token: Token::Variable(name), .. }, rest @ ..] => (self.variable(name)?, rest),
            [Lexed { token: Token::Group(inner), .. }, rest @ ..] => (self.value(inner, Mode::Expression)?, rest),
            [Lexed { token: Token::Array(inner), .. }, rest @ ..] => (self.array(inner)?, rest),
            _ => return Err(not_evaluated()),
        };
        let mut value = value;
        while let [Lexed { token: Token::Word(call), .. }, Lexed { token: Token::Group(args), .. }, more @ ..] = rest {
            value = match (value, call.to_lowercase().as_str(), args.is_empty()) {
                (Value::Text(text), ".tolower" | ".tolowerinvariant", true) => Value::Text(text.to_lowercase()),
                (Value::Text(text), ".trim", true) => Value::Text(text.trim().to_owned()),
                (value, ".tostring", true) => value,
                (Value::HostName, ".tolower" | ".tolowerinvariant" | ".trim", true) => Value::HostName,
                _ => return Err(not_evaluated()),
            };
            rest = more;
        }
        if rest.is_empty() { Ok(value) } else { Err(not_evaluated()) }
    }

    /// A word where a command is expected.
    fn word(&self, word: &str, args: &[Lexed]) -> Read<Value> {
        let value = match word.to_lowercase().as_str() {
            "hostname" | "hostname.exe" => Value::HostName,
            "get-containerdcnibindir" | "get-containerdcniconfdir" => Value::ContainerdDir,
            "join-path" => match self.two_arguments(args, "path", "childpath")? {
                (path, Value::Text(below)) => {
                    let below = below.trim_start_matches('\\');
                    return Ok(Value::Text(format!("{}\\{below}", path.trim_end_matches('\\'))));
                }
                _ => return Err(not_evaluated()),
            },
            _ => match number(word) {
                Some(number) => Value::Text(number),
                None => return Err(format!("`{word}` is a command to PowerShell; a text has quotes")),
            },
        };
        if args.is_empty() { Ok(value) } else { Err(not_evaluated()) }
    }

    fn text(&self, parts: &[Part]) -> Read<Value> {
        let values = parts.iter().map(|part| match part {
            Part::Plain(text) => Ok(Value::Text(text.clone())),
            Part::Variable(name) => self.variable(name),
            Part::Group(inner) => self.value(inner, Mode::Expression),
        });
        let mut values: Vec<Value> = values.collect::<Read<_>>()?;
        if values.len() == 1 && matches!(values[0], Value::HostName | Value::ContainerdDir) {
            return Ok(values.remove(0));
        }
        let mut text = String::new();
        for value in values {
            // An array in a text becomes its items with blanks between.
            text.push_str(&value.known_texts()?.join(" "));
        }
        Ok(Value::Text(text))
    }

    fn array(&self, inner: &[Lexed]) -> Read<Value> {
        let lines: Vec<&[Lexed]> =
            inner.split(|lexed| lexed.token == Token::Break).filter(|line| !line.is_empty()).collect();
        // A comma at a line's end goes on in the next.
        if lines.iter().any(|line| line.last().is_some_and(|last| last.is_op(','))) {
            return match self.value(inner, Mode::Expression)? {
                Value::Text(text) => Ok(Value::List(vec![text])),
                other => Ok(other),
            };
        }
        self.list(&lines, Mode::Expression)
    }

    fn variable(&self, name: &str) -> Read<Value> {
        if let Some(name) = environment(name) {
            if let Some(there) = self.script.variables.get(&name.to_uppercase()) {
                return Ok(there.value.clone());
            }
            return match name.to_uppercase().as_str() {
                "COMPUTERNAME" => Ok(Value::HostName),
                _ => Err(format!(
                    "it takes the environment variable {name}, which the script does not set; the machine's are never read"
                )),
            };
        }
        let name = name.to_lowercase();
        let name = ["script:", "global:", "local:"].iter().find_map(|scope| name.strip_prefix(scope)).unwrap_or(&name);
        match name {
            "psscriptroot" => Ok(Value::Text(self.place.root.to_owned())),
            "true" => Ok(Value::Text("True".into())),
            "false" => Ok(Value::Text("False".into())),
            "null" => Ok(Value::Text(String::new())),
            _ => match self.locals.get(name) {
                Some(Some(value)) => Ok(value.clone()),
                _ => Err(format!("the value of ${name} is not known")),
            },
        }
    }
}

/// A number as PowerShell writes it.
fn number(word: &str) -> Option<String> {
    if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u32::from_str_radix(hex, 16).ok().map(|number| number.to_string());
    }
    let digits = word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    digits.then(|| word.parse::<i64>().ok()).flatten().map(|number| number.to_string())
}
