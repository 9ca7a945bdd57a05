//! The words of a PowerShell script: strings, variables, groups and blocks, each with its line.
//! Only what a `config.ps1` is made of; anything else becomes words that mean nothing to us.

/// What stands at a place of the script.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// The end of a line, or `;`.
    Break,
    /// `=`, [`ADD`], `+`, `,`, `|`, `&`.
    Op(char),
    Text(Vec<Part>),
    /// Without `$`, as `env:IP` or `PSScriptRoot`.
    Variable(String),
    Word(String),
    /// `[…]`: a type, or an index.
    Brackets(String),
    /// `( … )` and `$( … )`.
    Group(Vec<Lexed>),
    /// `@( … )`
    Array(Vec<Lexed>),
    /// `{ … }`
    Block(Vec<Lexed>),
}

/// A piece of a string in double quotes.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Plain(String),
    Variable(String),
    Group(Vec<Lexed>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Lexed {
    pub token: Token,
    /// From 1.
    pub line: usize,
    /// Bytes of the script.
    pub from: usize,
    pub to: usize,
    /// Nothing stands between it and the token before.
    pub glued: bool,
}

impl Lexed {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(own) if own.eq_ignore_ascii_case(word))
    }

    pub fn is_op(&self, op: char) -> bool {
        self.token == Token::Op(op)
    }
}

/// Something that begins and never ends. PowerShell refuses the whole script then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub line: usize,
    pub why: &'static str,
}

/// Stands for `+=`.
pub const ADD: char = 'a';

/// Deeper than any script that people write; a stack must not overflow.
const DEEPEST: usize = 20;

/// Reads a script, whose lines end in `\n`. What comes after something broken is not read.
pub fn lex(script: &str) -> (Vec<Lexed>, Option<Broken>) {
    let mut lexer = Lexer { script, at: 0, line: 1, depth: 0 };
    let mut tokens = Vec::new();
    loop {
        match lexer.next() {
            Ok(Some(token)) => tokens.push(token),
            Ok(None) => return (tokens, None),
            Err(broken) => return (tokens, Some(broken)),
        }
    }
}

struct Lexer<'a> {
    script: &'a str,
    at: usize,
    line: usize,
    depth: usize,
}

type Lexing<T> = Result<T, Broken>;

/// PowerShell takes typographic quotes for plain ones.
fn is_single(c: char) -> bool {
    matches!(c, '\'' | '\u{2018}'..='\u{201b}')
}

fn is_double(c: char) -> bool {
    matches!(c, '"' | '\u{201c}'..='\u{201e}')
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.script[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.take();
        }
    }

    /// Passes blanks and comments; says whether there were any.
    fn blanks(&mut self) -> Lexing<bool> {
        let start = self.at;
        loop {
            match (self.peek(), self.second()) {
                (Some('\n'), _) => break,
                (Some(c), _) if c.is_whitespace() => self.skip(1),
                (Some('`'), Some('\n')) => self.skip(2),
                (Some('#'), _) => {
                    let length = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += length;
                }
                (Some('<'), Some('#')) => {
                    let line = self.line;
                    let end = self.rest().find("#>");
                    let end = end.ok_or(Broken { line, why: "a comment `<#` begins here and does not end" })? + 2;
                    self.line += self.rest()[..end].matches('\n').count();
                    self.at += end;
                }
                _ => break,
            }
        }
        Ok(self.at > start)
    }

    fn next(&mut self) -> Lexing<Option<Lexed>> {
        let glued = !self.blanks()?;
        let (line, from) = (self.line, self.at);
        let Some(c) = self.peek() else { return Ok(None) };
        let token = match (c, self.second()) {
            ('\n' | ';', _) => self.single(Token::Break),
            ('@', Some(quote)) if is_single(quote) || is_double(quote) => self.here_string()?,
            ('@', Some('(')) => Token::Array(self.nested(2, ')')?),
            ('@', Some('{')) => {
                self.nested(2, '}')?;
                Token::Word("@{}".into())
            }
            (c, _) if is_single(c) => self.literal()?,
            (c, _) if is_double(c) => self.expandable()?,
            ('$', Some('(')) => Token::Group(self.nested(2, ')')?),
            ('$', _) => match self.variable()? {
                Some(name) => Token::Variable(name),
                None => self.single(Token::Word("$".into())),
            },
            ('(', _) => Token::Group(self.nested(1, ')')?),
            ('{', _) => Token::Block(self.nested(1, '}')?),
            ('[', _) => self.brackets()?,
            ('+', Some('=')) => {
                self.skip(2);
                Token::Op(ADD)
            }
            ('=' | ',' | '|' | '&' | '+', _) => self.single(Token::Op(c)),
            (')' | '}' | ']', _) => self.single(Token::Word(c.into())),
            _ => self.word(),
        };
        Ok(Some(Lexed { token, line, from, to: self.at, glued }))
    }

    fn single(&mut self, token: Token) -> Token {
        self.skip(1);
        token
    }

    /// What stands up to `close`; the opening takes `width` characters.
    fn nested(&mut self, width: usize, close: char) -> Lexing<Vec<Lexed>> {
        let line = self.line;
        if self.depth == DEEPEST {
            return Err(Broken { line, why: "brackets are nested too deep here" });
        }
        self.skip(width);
        self.depth += 1;
        let mut tokens = Vec::new();
        loop {
            let spaced = self.blanks()?;
            if self.peek() == Some(close) {
                self.skip(1);
                self.depth -= 1;
                return Ok(tokens);
            }
            match self.next()? {
                Some(token) => tokens.push(Lexed { glued: token.glued && !spaced, ..token }),
                None => return Err(Broken { line, why: "a bracket opens here and does not close" }),
            }
        }
    }

    fn brackets(&mut self) -> Lexing<Token> {
        let line = self.line;
        let end = self.rest().find([']', '\n']).filter(|end| self.rest()[*end..].starts_with(']'));
        let end = end.ok_or(Broken { line, why: "a bracket opens here and does not close" })?;
        let text = self.rest()[1..end].to_owned();
        self.at += end + 1;
        Ok(Token::Brackets(text))
    }

    fn word(&mut self) -> Token {
        let mut word = String::new();
        while let Some(c) = self.peek() {
            if c.is_whitespace() || ";,(){}|&$".contains(c) || is_single(c) || is_double(c) {
                break;
            }
            self.skip(1);
            match c {
                '`' => word.extend(self.take()),
                c => word.push(c),
            }
        }
        Token::Word(word)
    }

    /// A variable's name, after its `$`; none where `$` is only a character.
    fn variable(&mut self) -> Lexing<Option<String>> {
        let name = |c: char| c.is_alphanumeric() || c == '_';
        if self.second() == Some('{') {
            let line = self.line;
            self.skip(2);
            let mut text = String::new();
            loop {
                match self.take() {
                    Some('}') => return Ok(Some(text)),
                    Some('`') => text.extend(self.take()),
                    Some('\n') | None => {
                        return Err(Broken { line, why: "a variable's name `${` begins here and does not end" });
                    }
                    Some(c) => text.push(c),
                }
            }
        }
        if !self.second().is_some_and(name) {
            return Ok(None);
        }
        self.skip(1);
        let from = self.at;
        while let Some(c) = self.peek() {
            let scope = c == ':' && self.second().is_some_and(name);
            if !name(c) && !scope {
                break;
            }
            self.skip(1);
        }
        Ok(Some(self.script[from..self.at].to_owned()))
    }

    /// A string in single quotes, in which nothing is expanded.
    fn literal(&mut self) -> Lexing<Token> {
        let line = self.line;
        self.skip(1);
        let mut text = String::new();
        loop {
            match self.take() {
                None => return Err(Broken { line, why: "a string begins here and does not end" }),
                Some(c) if is_single(c) => match self.peek() {
                    Some(next) if is_single(next) => text.extend(self.take()),
                    _ => return Ok(Token::Text(vec![Part::Plain(text)])),
                },
                Some(c) => text.push(c),
            }
        }
    }

    fn expandable(&mut self) -> Lexing<Token> {
        let line = self.line;
        self.skip(1);
        let mut parts = Parts::default();
        loop {
            match (self.peek(), self.second()) {
                (None, _) => return Err(Broken { line, why: "a string begins here and does not end" }),
                (Some(c), Some(next)) if is_double(c) && is_double(next) => {
                    self.skip(2);
                    parts.plain(next);
                }
                (Some(c), _) if is_double(c) => {
                    self.skip(1);
                    return Ok(Token::Text(parts.done()));
                }
                _ => self.part(&mut parts)?,
            }
        }
    }

    /// The next character, escape, variable or `$(…)` of an expandable string.
    fn part(&mut self, parts: &mut Parts) -> Lexing<()> {
        match (self.peek(), self.second()) {
            (Some('`'), _) => {
                self.skip(1);
                if let Some(c) = self.take() {
                    parts.plain(escaped(c));
                }
            }
            (Some('$'), Some('(')) => {
                let group = self.nested(2, ')')?;
                parts.push(Part::Group(group));
            }
            (Some('$'), _) => match self.variable()? {
                Some(name) => parts.push(Part::Variable(name)),
                None => {
                    self.skip(1);
                    parts.plain('$');
                }
            },
            (Some(c), _) => {
                self.skip(1);
                parts.plain(c);
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// `@"`, lines, `"@`; the same with single quotes, in which nothing is expanded.
    fn here_string(&mut self) -> Lexing<Token> {
        let line = self.line;
        let broken = Broken { line, why: "a here-string begins here and does not end" };
        self.skip(1);
        let expands = self.take().is_some_and(is_double);
        let length = self.rest().find('\n').ok_or(broken.clone())?;
        self.at += length;
        self.skip(1);
        let mut parts = Parts::default();
        let mut first = true;
        loop {
            // A line that begins with the quote and `@` ends it, and its own line break is not part.
            let closing = |c: char| if expands { is_double(c) } else { is_single(c) };
            let mut ahead = self.rest().chars().skip(usize::from(!first));
            let at_line = first || self.peek() == Some('\n');
            if at_line && ahead.next().is_some_and(closing) && ahead.next() == Some('@') {
                self.skip(if first { 2 } else { 3 });
                return Ok(Token::Text(parts.done()));
            }
            first = false;
            match self.peek() {
                None => return Err(broken),
                Some(_) if expands => self.part(&mut parts)?,
                Some(c) => {
                    self.skip(1);
                    parts.plain(c);
                }
            }
        }
    }
}

/// What a backtick and a character stand for in a string.
const fn escaped(c: char) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        other => other,
    }
}

/// The parts of a string, with plain characters joined.
#[derive(Default)]
struct Parts {
    done: Vec<Part>,
    plain: String,
}

impl Parts {
    fn plain(&mut self, c: char) {
        self.plain.push(c);
    }

    fn push(&mut self, part: Part) {
        if !self.plain.is_empty() {
            self.done.push(Part::Plain(std::mem::take(&mut self.plain)));
        }
        self.done.push(part);
    }

    fn done(mut self) -> Vec<Part> {
        if !self.plain.is_empty() || self.done.is_empty() {
            self.done.push(Part::Plain(self.plain));
        }
        self.done
    }
}
