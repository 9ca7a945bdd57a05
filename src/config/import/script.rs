//! What a `config.ps1` sets, found by reading it: assignments, `Set-EnvVarIfNotSet` and the query for containerd, in
//! the forms of Calico's own files, with the values that people write there. Every other statement is reported as not
//! read, and a variable that it may set is unknown from there on. Nothing is run, and no variable of this machine is
//! read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::Serialize;

use super::split::{Statement, split};
use crate::values::may_be_secret;

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// What the script queries on the machine, for example `$(hostname).ToLower()`, with the variable that it is valid
    /// for.
    Asked(&'static str),
    /// A statement that was not read may set it.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// As it is written.
    pub name: String,
    pub value: Value,
    /// None for what the service itself sets before the script runs.
    pub line: Option<usize>,
}

/// A remark about a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Remark {
    /// None if it is not about a single line.
    pub line: Option<usize>,
    pub text: String,
}

/// The result of reading a script.
#[derive(Debug, Default)]
pub struct Script {
    /// The final variables, by name in capitals.
    pub variables: BTreeMap<String, Variable>,
    /// Statements that were understood and whose effect differs from what they suggest.
    pub notes: Vec<Remark>,
    /// What could not be read.
    pub unread: Vec<Remark>,
}

/// Where a script runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// `$PSScriptRoot`.
    pub root: &'a str,
    /// Whether the service containerd runs, which the script queries.
    pub containerd: bool,
    /// Variables that are set before: those of the service's own definition.
    pub before: &'a [(String, String)],
}

/// Reads a script.
pub fn read(text: &str, place: Place<'_>) -> Script {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut reader = Reader { place, locals: BTreeMap::new(), ended: false, script: Script::default() };
    for (name, value) in place.before {
        let variable = Variable { name: name.clone(), value: Value::Text(value.clone()), line: None };
        reader.script.variables.insert(name.to_uppercase(), variable);
    }
    reader.statements(&text, 1);
    reader.script
}

macro_rules! patterns {
    ($($name:ident = $pattern:literal;)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a pattern"));)*
    };
}

patterns! {
    ASSIGNMENT = r"(?is)^\$(?:env:(\w+)|\{env:([^`}]+)\})\s*=\s*(.*)$";
    LOCAL = r"(?s)^\$(\w+)\s*=\s*(.*)$";
    IF_NOT_SET = r#"(?is)^Set-EnvVarIfNotSet\s+(?:-var\s+)?(?:"(\w+)"|'(\w+)'|(\w+))\s+(?:-defaultValue\s+)?(.*)$"#;
    IF_CONTAINERD = r"(?i)^if\s*\(\s*Get-IsContainerdRunning\s*\)\s*\{$";
    ELSE = r"(?i)^\}\s*else\s*\{$";
    ENDS = r"(?i)^(?:return|exit|throw|break|continue)\b";
    // Prints text, or loads Calico's own modules: sets nothing.
    SETS_NOTHING = r#"(?ix)^(?:
        (?:Write-(?:Host|Output|Verbose|Warning|Information)|echo)
            (?:\s+(?: '[^'\u{2018}-\u{201b}]*' | "(?:[^"$`\u{201c}-\u{201e}]|\$[\w{])*" | -?\w+ ))*
        | (?:ipmo|Import-Module)\s+["']?[\w\ $:.\\/]*libs[\\/](?:calico[\\/]calico|hns[\\/]hns)\.psm1["']?
            (?:\s+-(?:Force|DisableNameChecking))*
        )$"#;
    MODULE = r"(?i)^(?:ipmo|Import-Module)\b";
    // Every way to set a variable, in statements that are not read.
    MAY_SET = r#"(?ix) \$\{?env:(\w+)\}?\s*(?:[-+*/%]?=|,) | [^\w${]env:[\\/]?(\w+) | -var[\s:]+["']?(\w+) | Variable\(\s*["'](\w+)"#;
    ASKS = r"(?i)^\$?\(\s*(hostname|Get-ContainerdCniBinDir|Get-ContainerdCniConfDir)\s*\)(?:\.ToLower\(\))?$";
    COMMAND = r"(?i)^(hostname|Get-ContainerdCniBinDir|Get-ContainerdCniConfDir)$";
    VARIABLE = r"(?i)^\$(?:((?:env:)?\w+)|\{(env:[^`}]+)\})(\.ToLower\(\))?$";
    LITERAL = r"(?s)^['\u{2018}-\u{201b}]((?:[^'\u{2018}-\u{201b}]|['\u{2018}-\u{201b}]{2})*)['\u{2018}-\u{201b}]$";
    DOUBLED = r"['\u{2018}-\u{201b}](['\u{2018}-\u{201b}])";
    EXPANDABLE = r#"(?s)^["\u{201c}-\u{201e}](.*)["\u{201c}-\u{201e}]$"#;
    // Part of a text in double quotes: an escape, two quotes, a variable, text that is not evaluated, a character.
    PIECE = r#"(?isx) `([[:punct:]]) | ["\u{201c}-\u{201e}](["\u{201c}-\u{201e}]) | \$((?:env:)?\w+)([:?]?)
        | \$\{((?:env:)?[^`}:]+)\} | (\$[($?^:{] | [`"\u{201c}-\u{201e}]) | (.)"#;
    NUMBER = r"^(?:0|[1-9][0-9]{0,8})$";
    // An argument without quotes: a word, an address, or a path below a variable.
    WORD = r"^(?:[A-Za-z][\w.:/\\*-]*|\d+(?:\.\d+){3}(?:/\d+)?|\$(?:env:)?\w+\\[\w.\\-]*)$";
    ARRAY = r#"^@\(|^[^(].*["'\w]\s*,\s*["'\w]"#;
}

struct Reader<'a> {
    place: Place<'a>,
    /// The script's own variables with known values.
    locals: BTreeMap<String, Value>,
    /// `exit` or similar was read.
    ended: bool,
    script: Script,
}

/// The longest value of an environment variable, in bytes. Windows permits 32,767 characters of UTF-16:
/// <https://learn.microsoft.com/windows/win32/api/processenv/nf-processenv-setenvironmentvariablew>.
const LONGEST: usize = 3 * 32_767;

const NOT_EVALUATED: &str = "an expression that this program does not evaluate";

type Read<T> = Result<T, String>;

impl Reader<'_> {
    fn statements(&mut self, text: &str, first_line: usize) {
        let (statements, broken) = split(text, first_line);
        for statement in statements {
            if self.ended {
                return;
            }
            if let Err(why) = self.statement(&statement) {
                self.unread(&statement, &why);
            }
        }
        if let (Some(broken), false) = (broken, self.ended) {
            let text = format!("{}; this line and all after it are not read", broken.why);
            self.script.unread.push(Remark { line: Some(broken.line), text });
        }
    }

    fn statement(&mut self, statement: &Statement) -> Read<()> {
        let (text, line) = (statement.text.trim_end(), statement.line);
        if let Some(found) = ASSIGNMENT.captures(text) {
            let value = self.value(part(&found, &[3]), false)?;
            self.set(part(&found, &[1, 2]), value, line)
        } else if let Some(found) = IF_NOT_SET.captures(text) {
            let value = self.value(part(&found, &[4]), true)?;
            self.set_if_absent(part(&found, &[1, 2, 3]), value, line)
        } else if let Some(found) = LOCAL.captures(text) {
            let value = self.value(part(&found, &[2]), false)?;
            self.locals.insert(part(&found, &[1]).to_lowercase(), value);
            Ok(())
        } else if SETS_NOTHING.is_match(text) {
            Ok(())
        } else if let Some((then, otherwise)) = branches(statement) {
            let taken = if self.place.containerd { Some(then) } else { otherwise };
            if let Some((at, block)) = taken {
                self.statements(block, line + text[..at].matches('\n').count());
            }
            Ok(())
        } else if ENDS.is_match(text) {
            self.ended = true;
            Err("the script ends here; all after it is not read".into())
        } else if !statement.blocks.is_empty() {
            Err("it depends on what happens when the script runs".into())
        } else if MODULE.is_match(text) {
            Err("a module that this program does not know".into())
        } else if text.starts_with(['$', '"', '\'', '@']) {
            Err(NOT_EVALUATED.into())
        } else {
            Err("a command that this program does not know, and never runs".into())
        }
    }

    /// Reports a statement that was not read, and marks as unknown what it may change.
    fn unread(&mut self, statement: &Statement, why: &str) {
        let text = &statement.text;
        let first = text.lines().next().unwrap_or_default().trim();
        let mut shown: String = first.chars().take(80).collect();
        if may_be_secret(first) {
            let end = shown.find('=').map(|at| at + 1).or_else(|| shown.find(' ')).unwrap_or(0);
            shown = format!("{} ***", &shown[..end]);
        } else if shown.len() < text.trim().len() {
            shown.push_str(" ...");
        }
        let mut names: Vec<&str> = Vec::new();
        for found in MAY_SET.captures_iter(text) {
            let name = part(&found, &[1, 2, 3, 4]);
            if !names.contains(&name) {
                names.push(name);
            }
            let unknown = Variable { name: name.to_owned(), value: Value::Unknown, line: Some(statement.line) };
            self.script.variables.insert(name.to_uppercase(), unknown);
        }
        let sets = match names.as_slice() {
            names if names.is_empty() || text.starts_with('$') || IF_NOT_SET.is_match(text) => String::new(),
            names => format!("; it may set {}", names.join(", ")),
        };
        if !ASSIGNMENT.is_match(text) || text.matches('=').count() > 1 {
            let text = text.to_lowercase();
            self.locals.retain(|name, _| !text.contains(name));
        }
        let text = format!("`{shown}`: {why}{sets}");
        self.script.unread.push(Remark { line: Some(statement.line), text });
    }

    fn set_if_absent(&mut self, name: &str, value: Value, line: usize) -> Read<()> {
        match self.script.variables.get(&name.to_uppercase()) {
            // Windows treats an empty variable as unset.
            Some(there) if there.value != Value::Text(String::new()) => {
                let by = there.line.map_or("the service's definition".into(), |line| format!("line {line}"));
                if there.value == Value::Unknown {
                    return Err(format!("it has no effect if {by} sets {name}, which is not known"));
                }
                if there.value != value {
                    let text = format!("{name} is set already, by {by}: this line has no effect");
                    self.script.notes.push(Remark { line: Some(line), text });
                }
                Ok(())
            }
            _ => self.set(name, value, line),
        }
    }

    fn set(&mut self, name: &str, value: Value, line: usize) -> Read<()> {
        if matches!(&value, Value::Text(text) if text.contains('\u{fffd}')) {
            return Err("its characters cannot be read; save the file as UTF-8".into());
        }
        let variable = Variable { name: name.to_owned(), value, line: Some(line) };
        self.script.variables.insert(name.to_uppercase(), variable);
        Ok(())
    }

    /// Returns the value of an expression, or of an argument, in which a word is text and not a command.
    fn value(&self, text: &str, argument: bool) -> Read<Value> {
        // `"$(hostname)"` is `$(hostname)`.
        let whole =
            text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).filter(|text| text.starts_with("$("));
        let asks = ASKS.captures(whole.unwrap_or(text)).or_else(|| COMMAND.captures(text).filter(|_| !argument));
        if let Some(found) = asks {
            return Ok(Value::Asked(match part(&found, &[1]).to_lowercase().as_str() {
                "hostname" => "NODENAME",
                "get-containerdcnibindir" => "CNI_BIN_DIR",
                _ => "CNI_CONF_DIR",
            }));
        }
        if let Some(found) = VARIABLE.captures(text) {
            return match self.variable(part(&found, &[1, 2]))? {
                Value::Text(text) if found.get(3).is_some() => Ok(Value::Text(text.to_lowercase())),
                value => Ok(value),
            };
        }
        if let Some(found) = LITERAL.captures(text) {
            return Ok(Value::Text(DOUBLED.replace_all(part(&found, &[1]), "$1").into_owned()));
        }
        if let Some(found) = EXPANDABLE.captures(text) {
            return self.expanded(part(&found, &[1]));
        }
        if NUMBER.is_match(text) {
            return Ok(Value::Text(text.to_owned()));
        }
        if argument && WORD.is_match(text) {
            return self.expanded(text);
        }
        Err(match text {
            "" => "there is no value",
            _ if ARRAY.is_match(text) => {
                "an array, of which PowerShell makes the text `System.Object[]`; write its items as one text with commas"
            }
            _ if !argument && text.starts_with(char::is_alphabetic) => {
                "a word without quotes is a command to PowerShell, not a text"
            }
            _ => NOT_EVALUATED,
        }
        .into())
    }

    /// Returns PowerShell's expansion of a text in double quotes.
    fn expanded(&self, inside: &str) -> Read<Value> {
        let mut text = String::new();
        for found in PIECE.captures_iter(inside) {
            let (plain, refused) = (part(&found, &[1, 2, 7]), part(&found, &[4, 6]));
            if !refused.is_empty() {
                return Err(NOT_EVALUATED.into());
            }
            text.push_str(plain);
            if plain.is_empty() {
                match self.variable(part(&found, &[3, 5]))? {
                    Value::Text(value) => text.push_str(&value),
                    _ => return Err(NOT_EVALUATED.into()),
                }
            }
            if text.len() > LONGEST {
                return Err("its value is longer than Windows permits".into());
            }
        }
        Ok(Value::Text(text))
    }

    /// Returns the value of a variable, by its name without `$`.
    fn variable(&self, name: &str) -> Read<Value> {
        let lower = name.to_lowercase();
        if let Some(own) = lower.strip_prefix("env:") {
            return match (self.script.variables.get(&own.to_uppercase()), own) {
                (Some(Variable { value: Value::Unknown, .. }), _) => Err(format!("the value of ${name} is not known")),
                (Some(there), _) => Ok(there.value.clone()),
                (None, "computername") => Ok(Value::Asked("NODENAME")),
                (None, _) => Err(format!(
                    "it takes the environment variable {}, which the script does not set; the machine's are never read",
                    &name[4..]
                )),
            };
        }
        if let Some(own) = self.locals.get(&lower) {
            return Ok(own.clone());
        }
        let known = match lower.as_str() {
            "psscriptroot" => self.place.root,
            "true" => "True",
            "false" => "False",
            "null" => "",
            _ => return Err(format!("the value of ${name} is not known")),
        };
        Ok(Value::Text(known.to_owned()))
    }
}

/// Returns the first of these groups that took part in a match.
fn part<'t>(found: &regex::Captures<'t>, groups: &[usize]) -> &'t str {
    groups.iter().find_map(|group| found.get(*group)).map_or("", |part| part.as_str())
}

type Block<'t> = (usize, &'t str);

/// Parses `if (Get-IsContainerdRunning) { … } else { … }`, the one query whose answer is known: returns both blocks,
/// with their offsets.
fn branches(statement: &Statement) -> Option<(Block<'_>, Option<Block<'_>>)> {
    let text = statement.text.trim_end();
    let block = |at: usize| statement.blocks.get(at).map(|range| (range.start, &text[range.clone()]));
    let end = |block: Block<'_>| block.0 + block.1.len();
    let then = block(0).filter(|then| IF_CONTAINERD.is_match(&text[..then.0]))?;
    let last = match block(1) {
        Some(otherwise) if !ELSE.is_match(&text[end(then)..otherwise.0]) => return None,
        otherwise => otherwise.unwrap_or(then),
    };
    (&text[end(last)..] == "}").then_some((then, block(1)))
}
