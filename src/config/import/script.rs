//! What a `config.ps1` would set, found by reading it. Nothing is run, and no variable of this
//! machine is looked at: an expression that needs one is told as not read.

mod expression;

use std::collections::BTreeMap;

use self::expression::Mode;
use super::lex::{ADD, Lexed, Part, Token, lex};

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// An array: PowerShell makes other text of it than people expect.
    List(Vec<String>),
    /// `$(hostname).ToLower()` and the like.
    HostName,
    /// The folder of the CNI plugins or of their configuration beside containerd.
    ContainerdDir,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// As it is written.
    pub name: String,
    pub value: Value,
    /// None for what the service itself sets before the script runs.
    pub line: Option<usize>,
}

/// Something to say about a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// None where it is about no single line.
    pub line: Option<usize>,
    pub text: String,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Script {
    /// The variables that are set in the end, by name in capitals.
    pub variables: BTreeMap<String, Variable>,
    /// What was understood and does not do what it seems to.
    pub notes: Vec<Remark>,
    /// What could not be read.
    pub unread: Vec<Remark>,
}

/// Where a script runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// `$PSScriptRoot`.
    pub root: &'a str,
    /// Whether the service containerd runs, which the script asks.
    pub containerd: bool,
    /// Variables that are there before: those of the service's own definition.
    pub before: &'a [(String, String)],
}

/// Reads a script.
pub fn read(text: &str, place: Place<'_>) -> Script {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (tokens, broken) = lex(&text);
    let mut reader = Reader { text: &text, place, locals: BTreeMap::new(), script: Script::default() };
    for (name, value) in place.before {
        let variable = Variable { name: name.clone(), value: Value::Text(value.clone()), line: None };
        reader.script.variables.insert(name.to_uppercase(), variable);
    }
    // The statement in which something does not end is not to be judged by its beginning.
    let whole = match &broken {
        Some(_) => tokens.iter().rposition(|lexed| lexed.token == Token::Break).map_or(0, |last| last + 1),
        None => tokens.len(),
    };
    reader.statements(&tokens[..whole]);
    if let Some(broken) = broken {
        let text = format!("{}; this line and all after it are not read", broken.why);
        reader.script.unread.push(Remark { line: Some(broken.line), text });
    }
    reader.script
}

struct Reader<'a> {
    text: &'a str,
    place: Place<'a>,
    /// The script's own variables; none where the value is not known.
    locals: BTreeMap<String, Option<Value>>,
    script: Script,
}

const CONTROL: [&str; 13] =
    ["if", "switch", "for", "foreach", "while", "do", "try", "function", "filter", "trap", "param", "begin", "process"];

/// Commands that set nothing.
const HARMLESS: [&str; 8] = [
    "write-host",
    "write-output",
    "write-verbose",
    "write-warning",
    "write-information",
    "echo",
    "set-strictmode",
    "unblock-file",
];

type Read<T> = Result<T, String>;

impl Reader<'_> {
    fn statements(&mut self, tokens: &[Lexed]) {
        let mut at = 0;
        while at < tokens.len() {
            let first = &tokens[at];
            if first.token == Token::Break {
                at += 1;
            } else if first.is_word("if") {
                at = self.conditional(tokens, at);
            } else if CONTROL.iter().any(|word| first.is_word(word)) {
                let end = end_of_control(tokens, at);
                self.not_judged(&tokens[at..end]);
                at = end;
            } else {
                let end = end_of_statement(tokens, at);
                let statement: Vec<Lexed> =
                    tokens[at..end].iter().filter(|lexed| lexed.token != Token::Break).cloned().collect();
                if let Err(why) = self.statement(&statement) {
                    self.unread(&statement, &why);
                }
                at = end;
            }
        }
    }

    /// `if (Get-IsContainerdRunning) { … } else { … }`: the one question that we know the answer to.
    fn conditional(&mut self, tokens: &[Lexed], at: usize) -> usize {
        let end = end_of_control(tokens, at);
        let all: Vec<&Lexed> = tokens[at..end].iter().filter(|lexed| lexed.token != Token::Break).collect();
        let (condition, then, otherwise) = match all.as_slice() {
            [_, condition, then] => (condition, then, None),
            [_, condition, then, word, otherwise] if word.is_word("else") => (condition, then, Some(otherwise)),
            _ => {
                self.not_judged(&tokens[at..end]);
                return end;
            }
        };
        let (Token::Group(question), Token::Block(then)) = (&condition.token, &then.token) else {
            self.not_judged(&tokens[at..end]);
            return end;
        };
        let asks = |tokens: &[Lexed]| matches!(tokens, [only] if only.is_word("Get-IsContainerdRunning"));
        let holds = match question.as_slice() {
            question if asks(question) => self.place.containerd,
            [not, Lexed { token: Token::Group(question), .. }]
                if (not.is_word("!") || not.is_word("-not")) && asks(question) =>
            {
                !self.place.containerd
            }
            _ => {
                self.not_judged(&tokens[at..end]);
                return end;
            }
        };
        match (holds, otherwise.map(|lexed| &lexed.token)) {
            (true, _) => self.statements(then),
            (false, Some(Token::Block(otherwise))) => self.statements(otherwise),
            (false, _) => {}
        }
        end
    }

    fn not_judged(&mut self, tokens: &[Lexed]) {
        let mut names = Vec::new();
        set_within(tokens, &mut names);
        names.dedup();
        let sets = match names.as_slice() {
            [] => String::new(),
            names => format!("; it may set {}", names.join(", ")),
        };
        self.unread(tokens, &format!("it depends on what happens when the script runs{sets}"));
    }

    fn unread(&mut self, tokens: &[Lexed], why: &str) {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return };
        let written = self.text.get(first.from..last.to).unwrap_or_default();
        let line = written.lines().next().unwrap_or_default().trim();
        let mut shown: String = line.chars().take(80).collect();
        if let (true, Some((name, _))) = (may_be_secret(line), line.split_once('=')) {
            shown = format!("{}= ***", name.chars().take(80).collect::<String>());
        } else if shown.len() < written.trim().len() {
            shown.push_str(" ...");
        }
        self.script.unread.push(Remark { line: Some(first.line), text: format!("`{shown}`: {why}") });
    }

    fn statement(&mut self, tokens: &[Lexed]) -> Read<()> {
        let line = tokens[0].line;
        match tokens {
            [Lexed { token: Token::Variable(name), .. }, op, value @ ..] if op.is_op('=') || op.is_op(ADD) => {
                self.assignment(name, op.is_op(ADD), value, line)
            }
            [
                Lexed { token: Token::Brackets(class), .. },
                Lexed { token: Token::Word(call), .. },
                Lexed { token: Token::Group(args), .. },
            ] if call.eq_ignore_ascii_case("::SetEnvironmentVariable")
                && matches!(class.to_lowercase().as_str(), "environment" | "system.environment") =>
            {
                self.set_environment_variable(args, line)
            }
            [Lexed { token: Token::Word(command), .. }, args @ ..] => self.command(command, args, line),
            _ => Err("it is no assignment".into()),
        }
    }

    fn assignment(&mut self, name: &str, adds: bool, value: &[Lexed], line: usize) -> Read<()> {
        let value = self.value(value, Mode::Expression);
        let Some(name) = environment(name) else {
            let known = if adds { None } else { value.ok() };
            self.locals.insert(name.to_lowercase(), known);
            return Ok(());
        };
        let value = match (adds, value?) {
            (false, value) => value,
            (true, Value::Text(more)) => match self.script.variables.get(&name.to_uppercase()) {
                Some(Variable { value: Value::Text(text), .. }) => Value::Text(format!("{text}{more}")),
                _ => return Err("it adds to a value that is not known".into()),
            },
            (true, _) => return Err("it adds something that is no text".into()),
        };
        self.set(name, value, line)
    }

    fn command(&mut self, command: &str, args: &[Lexed], line: usize) -> Read<()> {
        let name = command.to_lowercase();
        let pipes = args.iter().any(|lexed| lexed.is_op('|') || lexed.is_op('&'));
        if HARMLESS.contains(&name.as_str()) && !pipes {
            return Ok(());
        }
        if matches!(name.as_str(), "ipmo" | "import-module") && !pipes {
            let module = args.iter().any(|lexed| match &lexed.token {
                Token::Word(word) => is_calicos_module(word),
                Token::Text(parts) => {
                    parts.iter().any(|part| matches!(part, Part::Plain(text) if is_calicos_module(text)))
                }
                _ => false,
            });
            return if module { Ok(()) } else { Err("a module that this program does not know".into()) };
        }
        match name.as_str() {
            "set-envvarifnotset" => {
                let (variable, value) = self.two_arguments(args, "var", "defaultvalue")?;
                if self.script.variables.get(&variable.to_uppercase()).is_some_and(|there| !there.value.is_empty()) {
                    let there = &self.script.variables[&variable.to_uppercase()];
                    if there.value != value {
                        let by = there.line.map_or("the service's definition".into(), |line| format!("line {line}"));
                        let text = format!("{variable} is set already, by {by}: this line has no effect");
                        self.script.notes.push(Remark { line: Some(line), text });
                    }
                    return Ok(());
                }
                self.set(&variable, value, line)
            }
            "set-item" | "si" => {
                let (path, value) = self.two_arguments(args, "path", "value")?;
                let name =
                    environment(path.trim_start_matches(['$', '\\', '/'])).ok_or("it sets no environment variable")?;
                self.set(name.trim_start_matches(['\\', '/']), value, line)
            }
            _ => Err("a command that this program does not know, and never runs".into()),
        }
    }

    /// The two arguments of a command, by name or by place.
    fn two_arguments(&self, args: &[Lexed], first: &str, second: &str) -> Read<(String, Value)> {
        let mut named: [Option<Value>; 2] = [None, None];
        let mut unnamed = Vec::new();
        let mut at = 0;
        while at < args.len() {
            let parameter = match &args[at].token {
                Token::Word(word) => word.strip_prefix('-').filter(|name| name.starts_with(char::is_alphabetic)),
                _ => None,
            };
            // `-name value`, `-name:value`, and `-name:"value"`, of which the text is a token of its own.
            let (parameter, value) = match parameter.map(|name| name.split_once(':').unwrap_or((name, ""))) {
                Some((name, value)) => (Some(name.to_lowercase()), value),
                None => (None, ""),
            };
            let from = at + usize::from(parameter.is_some());
            let mut to = from;
            let value = if value.is_empty() {
                if from >= args.len() {
                    return Err("an argument is missing".into());
                }
                to = end_of_argument(args, from);
                self.value(&args[from..to], Mode::Argument)?
            } else {
                Value::Text(value.to_owned())
            };
            match parameter {
                // PowerShell takes the beginning of a parameter's name for it.
                Some(name) if first.starts_with(&name) => named[0] = Some(value),
                Some(name) if second.starts_with(&name) => named[1] = Some(value),
                Some(name) => return Err(format!("a parameter that the command does not have: -{name}")),
                None => unnamed.push(value),
            }
            at = to;
        }
        let mut unnamed = unnamed.into_iter();
        let [variable, value] = named.map(|value| value.or_else(|| unnamed.next()));
        match (variable, value, unnamed.next()) {
            (Some(Value::Text(variable)), Some(value), None) => Ok((variable, value)),
            _ => Err("a name and a value are expected".into()),
        }
    }

    fn set_environment_variable(&mut self, args: &[Lexed], line: usize) -> Read<()> {
        let args: Vec<&[Lexed]> = args.split(|lexed| lexed.is_op(',')).collect();
        let (name, value, scope) = match args.as_slice() {
            [name, value] => (name, value, None),
            [name, value, scope] => (name, value, Some(scope)),
            _ => return Err("a name and a value are expected".into()),
        };
        if let Some(scope) = scope
            && !matches!(self.value(scope, Mode::Expression)?, Value::Text(text) if text.eq_ignore_ascii_case("process"))
        {
            return Err("it sets a variable of the whole machine or user, not one of Calico's".into());
        }
        match self.value(name, Mode::Expression)? {
            Value::Text(name) => {
                let value = self.value(value, Mode::Expression)?;
                self.set(&name, value, line)
            }
            _ => Err("the variable's name is not known".into()),
        }
    }

    fn set(&mut self, name: &str, value: Value, line: usize) -> Read<()> {
        if value.texts().any(|text| text.contains('\u{fffd}')) {
            return Err("its characters cannot be read; save the file as UTF-8".into());
        }
        let variable = Variable { name: name.to_owned(), value, line: Some(line) };
        self.script.variables.insert(name.to_uppercase(), variable);
        Ok(())
    }
}

impl Value {
    /// Nothing is set by it: to Windows an empty variable is one that is not there.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let (one, several) = match self {
            Self::Text(text) => (Some(text), &[][..]),
            Self::List(texts) => (None, texts.as_slice()),
            Self::HostName | Self::ContainerdDir => (None, &[][..]),
        };
        one.into_iter().chain(several)
    }

    fn known_texts(self) -> Read<Vec<String>> {
        match self {
            Self::Text(text) => Ok(vec![text]),
            Self::List(texts) => Ok(texts),
            Self::HostName | Self::ContainerdDir => Err(not_evaluated()),
        }
    }
}

fn not_evaluated() -> String {
    "an expression that this program does not evaluate".into()
}

/// Whether a text may hold what nobody else should see.
pub fn may_be_secret(text: &str) -> bool {
    let text = text.to_uppercase();
    ["PASSWORD", "SECRET", "TOKEN"].iter().any(|word| text.contains(word))
        || text.split_once("://").is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|host| host.contains('@')))
}

/// The name of an environment variable, without its drive.
fn environment(name: &str) -> Option<&str> {
    let (drive, rest) = name.split_at_checked(4)?;
    (drive.eq_ignore_ascii_case("env:") && !rest.is_empty()).then_some(rest)
}

fn is_calicos_module(path: &str) -> bool {
    let path = path.to_lowercase().replace('/', "\\");
    path.ends_with("libs\\calico\\calico.psm1") || path.ends_with("libs\\hns\\hns.psm1")
}

/// The end of a statement: a line goes on after an operator.
fn end_of_statement(tokens: &[Lexed], from: usize) -> usize {
    (from + 1..tokens.len())
        .find(|at| tokens[*at].token == Token::Break && !matches!(tokens[at - 1].token, Token::Op(_)))
        .unwrap_or(tokens.len())
}

/// The end of an argument of a command: at a blank, unless a comma makes a list of it.
fn end_of_argument(args: &[Lexed], from: usize) -> usize {
    (from + 1..args.len())
        .find(|at| !args[*at].glued && !args[*at].is_op(',') && !args[at - 1].is_op(','))
        .unwrap_or(args.len())
}

/// The end of `if`, `foreach`, `try` and the like: after its last block.
fn end_of_control(tokens: &[Lexed], from: usize) -> usize {
    let is = |word: &str| tokens[from].is_word(word);
    let goes_on: &[&str] = match () {
        () if is("param") => return end_of_statement(tokens, from),
        () if is("if") => &["else", "elseif"],
        () if is("try") => &["catch", "finally"],
        () if is("do") => &["while", "until"],
        () => &[],
    };
    let mut at = from;
    while let Some(block) = (at..tokens.len()).find(|at| matches!(tokens[*at].token, Token::Block(_))) {
        let next = (block + 1..tokens.len()).find(|at| tokens[*at].token != Token::Break);
        match next.filter(|next| goes_on.iter().any(|word| tokens[*next].is_word(word))) {
            Some(next) if is("do") => return end_of_statement(tokens, next),
            Some(next) => at = next,
            None => return block + 1,
        }
    }
    end_of_statement(tokens, at)
}

/// The environment variables that statements set, however deep.
fn set_within(tokens: &[Lexed], names: &mut Vec<String>) {
    for (at, lexed) in tokens.iter().enumerate() {
        match &lexed.token {
            Token::Variable(name) if tokens.get(at + 1).is_some_and(|next| next.is_op('=') || next.is_op(ADD)) => {
                names.extend(environment(name).map(str::to_owned));
            }
            Token::Text(parts) if at > 0 && tokens[at - 1].is_word("-var") => {
                if let [Part::Plain(name)] = parts.as_slice() {
                    names.push(name.clone());
                }
            }
            Token::Group(inner) | Token::Array(inner) | Token::Block(inner) => set_within(inner, names),
            _ => {}
        }
    }
}
