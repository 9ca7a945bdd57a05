//! A `config.ps1` of Calico for Windows, v3.20 to v3.33, as a document `NodeInstallation`.
//!
//! The script is read as text ([`script`]); it is never run, and no variable of the machine is read: that a stray `IP`
//! or `KUBECONFIG` silently wins is a defect of the scripts (B4, B5 of the reference). What the variables mean here is
//! in [`meaning`]. Every value passes the checks of a config document, so the result can be read again.

mod meaning;
mod script;
mod split;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::layers::Layers;
use super::schema;
use super::{Layered, Origin, Override, rules};
use crate::fault::{Exit, Fault};
use crate::paths::{self, LOG_DIR};
use crate::values::{WinPath, has_login, may_be_secret};
use crate::yaml::encoding::{self, Undecodable};
use meaning::{Form, Meaning};
pub use script::Remark;
use script::{Place, Script, Value, Variable};

/// Larger than any `config.ps1`: upstream's are 6 kB.
pub const LARGEST: usize = 1 << 18;

/// Where the script comes from, and what is known about its node.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Its name in remarks and errors: `config.ps1`.
    pub name: &'a str,
    /// The folder of the installation, which the script calls `$PSScriptRoot`.
    pub root: WinPath,
    /// Whether containerd runs there; none if unknown.
    pub containerd: Option<bool>,
    /// The variables in the definition of the service that runs the script.
    pub environment: Vec<(String, String)>,
    /// What was measured on the node: later values override earlier ones, and all override the script.
    pub measured: Vec<Measured>,
    /// Fields that no variable of the script sets, by path.
    pub fields: Vec<(&'static str, String)>,
}

impl Source<'_> {
    /// A file without a node: assumed to be in the folder that upstream always installs to.
    pub fn file(name: &str) -> Source<'_> {
        Source {
            name,
            root: paths::default_root(),
            containerd: None,
            environment: Vec::new(),
            measured: Vec::new(),
            fields: Vec::new(),
        }
    }
}

/// The real value of a variable on a node, whatever the script sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// For example `VXLAN_VNI`.
    pub variable: &'static str,
    pub value: String,
    /// The source of the value: `the HNS network Calico`.
    pub by: String,
}

/// A difference between the script and the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    pub variable: &'static str,
    pub text: String,
}

/// The document, and the remarks about it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Imported {
    /// `NodeInstallation`, with what could be read.
    pub document: Json,
    /// Where each field comes from, by its path.
    #[serde(skip)]
    pub from: Vec<(String, Origin)>,
    /// Settings whose effect differs from what they suggest, here or always.
    pub notes: Vec<Remark>,
    /// Where script and node differ. The node's values are used.
    pub differences: Vec<Difference>,
    /// What could not be read. If there is any, the document is not the whole configuration.
    pub unread: Vec<Remark>,
}

/// Decodes the bytes of a script as Windows PowerShell 5.1 would: its default for `>` and `Out-File` is UTF-16 with a
/// byte order mark.
///
/// # Errors
/// A [`Fault`] `ConfigPs1Unreadable` if it is too large or not text.
pub fn decode(name: &str, bytes: &[u8]) -> Result<String, Fault> {
    let no = |why: String| {
        Fault::new(Exit::InvalidConfig, "ConfigPs1Unreadable", format!("{name} is not a config.ps1: {why}"))
            .hint(r"give the config.ps1 of the installation, usually C:\CalicoWindows\config.ps1")
    };
    if bytes.len() > LARGEST {
        return Err(no(format!("it is larger than {LARGEST} bytes")));
    }
    let text = match encoding::decode(bytes) {
        // An unknown code page: such characters are harmless in comments, and values are checked.
        Err(Undecodable::NotUtf8) => String::from_utf8_lossy(bytes).into_owned(),
        decoded => decoded.map_err(|why| no(why.to_string()))?,
    };
    if text.contains('\0') {
        return Err(no("it is not text".into()));
    }
    Ok(text)
}

/// Reads a script.
///
/// # Errors
/// A [`Fault`] `ConfigPs1Unreadable` if it sets no variable of Calico, and nothing was measured either.
pub fn import(text: &str, source: &Source<'_>) -> Result<Imported, Fault> {
    let script = as_on_its_node(text, source);
    let known = script.variables.keys().any(|name| !matches!(meaning::of(name), Meaning::Extra));
    if !known && !meaning::names_any(text) && source.measured.is_empty() {
        let what = format!("{} is not a config.ps1: it sets none of Calico's variables", source.name);
        return Err(Fault::new(Exit::InvalidConfig, "ConfigPs1Unreadable", what)
            .hint(r"give the config.ps1 of the installation, usually C:\CalicoWindows\config.ps1"));
    }
    let mut importer = Importer {
        source,
        layers: Layers::default(),
        notes: script.notes,
        unread: script.unread,
        differences: Vec::new(),
        measured_by: BTreeMap::new(),
    };
    let mut variables = script.variables;
    for measured in &source.measured {
        importer.measured(measured, &mut variables);
    }
    importer.all(&variables);
    Ok(importer.done())
}

/// Where the script puts what the container runtime reads of Calico.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniFolders {
    /// The folder of the configuration, if the script names one.
    pub conf_dir: Option<WinPath>,
    pub conf_file: String,
    /// The folder of the plugins, if the script names one.
    pub bin_dir: Option<WinPath>,
}

/// Returns where the script puts what the container runtime reads of Calico; none with policy only.
pub fn cni_folders(text: &str, source: &Source<'_>) -> Option<CniFolders> {
    let script = as_on_its_node(text, source);
    let value = |name: &str| match script.variables.get(name) {
        Some(Variable { value: Value::Text(text), .. }) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let dir = |name: &str| value(name).and_then(|dir| dir.parse().ok());
    if value("CALICO_NETWORKING_BACKEND").is_some_and(|backend| backend.eq_ignore_ascii_case("none")) {
        return None;
    }
    Some(CniFolders {
        conf_dir: dir("CNI_CONF_DIR"),
        conf_file: value("CNI_CONF_FILENAME").unwrap_or_else(|| "10-calico.conf".into()),
        bin_dir: dir("CNI_BIN_DIR"),
    })
}

/// Evaluates the script as on its node. If it is unknown whether containerd runs there, assumes it, and reports what
/// would differ without it.
fn as_on_its_node(text: &str, source: &Source<'_>) -> Script {
    let read =
        |containerd| script::read(text, Place { root: source.root.as_str(), containerd, before: &source.environment });
    let Some(containerd) = source.containerd else {
        let mut script = read(true);
        let without = read(false);
        script.unread.extend(without.unread);
        script.unread.sort();
        script.unread.dedup();
        for (name, other) in without.variables {
            let Value::Text(value) = &other.value else { continue };
            let usual = matches!(value.to_lowercase().as_str(), r"c:\k\cni" | r"c:\k\cni\config");
            if !usual && script.variables.get(&name).is_none_or(|with| with.value != other.value) {
                let text = format!("{name} is `{value}` only where containerd does not run");
                script.notes.push(Remark { line: other.line, text });
            }
        }
        return script;
    };
    read(containerd)
}

struct Importer<'a> {
    source: &'a Source<'a>,
    layers: Layers,
    notes: Vec<Remark>,
    differences: Vec<Difference>,
    /// The last source of a variable's value.
    measured_by: BTreeMap<&'static str, String>,
    unread: Vec<Remark>,
}

impl Importer<'_> {
    /// Overrides the script with what was measured, and records the difference.
    fn measured(&mut self, measured: &Measured, variables: &mut BTreeMap<String, Variable>) {
        let Measured { variable, value, by } = measured;
        let there = variables.get(*variable);
        let line = there.and_then(|there| there.line);
        let said = there.and_then(|there| match &there.value {
            Value::Text(text) if text.is_empty() || meaning::is_placeholder(text) => None,
            Value::Text(text) => Some(text.clone()),
            Value::Asked(_) | Value::Unknown => None,
        });
        if let Some(said) = said {
            if meaning::same(&said, value) {
                return;
            }
            let former = self.measured_by.get(variable).cloned().unwrap_or_else(|| match line {
                Some(line) => format!("{} (line {line})", self.source.name),
                None => "the service's definition".into(),
            });
            let hidden = [&said, value].into_iter().any(|text| may_be_secret(text));
            let [said, value] = [&said, value].map(|text| if hidden { "***" } else { text.as_str() });
            let taken = match meaning::of(variable) {
                Meaning::Kubeconfig => "neither is taken",
                _ => "which is taken",
            };
            let text = format!("{variable}: {former} has `{said}`, {by} has `{value}`, {taken}");
            self.differences.push(Difference { variable, text });
        }
        self.measured_by.insert(variable, by.clone());
        let real = Variable { name: (*variable).to_owned(), value: Value::Text(value.clone()), line };
        variables.insert((*variable).to_owned(), real);
    }

    fn all(&mut self, variables: &BTreeMap<String, Variable>) {
        let root = &self.source.root;
        if *root != paths::default_root() {
            self.field("calico.rootDir", root.as_str(), None);
        }
        for (path, value) in &self.source.fields {
            self.field(path, value, None);
        }
        let mut in_order: Vec<&Variable> = variables.values().collect();
        in_order.sort_by_key(|variable| variable.line);
        let etcd = matches!(
            variables.get("CALICO_DATASTORE_TYPE"),
            Some(Variable { value: Value::Text(kind), .. }) if kind.eq_ignore_ascii_case("etcdv3")
        );
        for variable in in_order {
            self.variable(variable, variables, etcd);
        }
    }

    fn variable(&mut self, variable: &Variable, all: &BTreeMap<String, Variable>, etcd: bool) {
        let Variable { name, value, line } = variable;
        let (line, name) = (*line, name.to_uppercase());
        let text = match value {
            Value::Text(text) if text.is_empty() => return,
            // Its line was reported.
            Value::Unknown => return,
            value if matches!(meaning::of(&name), Meaning::Password) || may_log_in(value) => {
                self.unread(line, format!("{name} holds a secret, which has no place in this document"));
                return;
            }
            // Upstream's default text, which did not have to be filled in.
            Value::Text(text)
                if meaning::is_placeholder(text) && !etcd && matches!(meaning::of(&name), Meaning::Etcd(_)) =>
            {
                return;
            }
            Value::Text(text) if meaning::is_placeholder(text) => {
                self.note(line, format!("{name} is still the placeholder `{text}`: left out, so that it is detected"));
                return;
            }
            Value::Text(text) if text == "System.Object[]" => {
                let why = "is `System.Object[]`, which PowerShell makes of an array: its items are lost; write them \
                           as one text with commas";
                self.unread(line, format!("{name} {why}"));
                return;
            }
            Value::Text(text) => Some(text.clone()),
            Value::Asked(_) => None,
        };
        let asks_for = |own: &str| matches!(value, Value::Asked(name) if *name == own);
        let node = all.get("NODENAME").map(|node| &node.value);
        match (meaning::of(&name), text) {
            (Meaning::Field(path, Form::Auto), None) if asks_for(&name) => self.field(path, "auto", line),
            (Meaning::Etcd(_), _)
                if all.get("CALICO_DATASTORE_TYPE").is_some_and(|kind| kind.value == Value::Unknown) =>
            {
                self.unread(
                    line,
                    format!("{name} has an effect only with etcd, and CALICO_DATASTORE_TYPE is not known"),
                );
            }
            (Meaning::Etcd(_), _) if !etcd => {
                self.note(line, format!("{name} has no effect with the Kubernetes datastore"));
            }
            (Meaning::Etcd(path), Some(text)) => self.field(path, &text, line),
            (Meaning::NoEffect(why), _) => self.note(line, format!("{name} has no effect: {why}")),
            (Meaning::Password, _) => {}
            // The script's own name for the node, whatever the node's real name is.
            (Meaning::NodeRef, None) if node == Some(value) || self.measured_by.contains_key("NODENAME") => {}
            (Meaning::NoLog, Some(text)) if text.eq_ignore_ascii_case("none") => {}
            (Meaning::NodeRef, Some(text)) => {
                if node != Some(value) {
                    self.extra(&variable.name, &text, line);
                }
            }
            (Meaning::Kubeconfig, text) => self.kubeconfig(text.as_deref(), line),
            (Meaning::Field("services.logDir", _), Some(text)) if self.is_upstreams_log_dir(&text) => {
                let text = format!(
                    "{name} is left out: from now on the logs are in {LOG_DIR}, since a program that reads a log in {} \
                     blocks its replacement",
                    self.source.root
                );
                self.note(line, text);
            }
            (Meaning::Field(path, form), Some(text)) => match meaning::formed(form, &text) {
                Ok(text) => {
                    if name == "DNS_SEARCH" && text != "svc.cluster.local" {
                        self.note(line, "DNS_SEARCH had no effect; from now on pods get it".into());
                    }
                    self.field(path, &text, line);
                }
                Err(_) if form == Form::Level => self.extra(&variable.name, &text, line),
                Err(why) => self.unread(line, format!("{name}: {why}")),
            },
            (Meaning::Extra | Meaning::NoLog, Some(text)) => self.extra(&variable.name, &text, line),
            (Meaning::Field(..) | Meaning::Etcd(_) | Meaning::NodeRef | Meaning::Extra | Meaning::NoLog, None) => {
                self.unread(line, format!("{name} is evaluated on the host, which this program does not support"));
            }
        }
    }

    /// Whether it is the folder of the logs that the scripts set, in the release's.
    fn is_upstreams_log_dir(&self, text: &str) -> bool {
        text.parse().is_ok_and(|dir: WinPath| dir == self.source.root.join("logs"))
    }

    /// The scripts passed this kubeconfig to Calico. Ours uses its own.
    fn kubeconfig(&mut self, path: Option<&str>, line: Option<usize>) {
        let own = self.source.root.join("calico-kube-config");
        let text = match path {
            Some(path) if !meaning::same(path, own.as_str()) => format!(
                "KUBECONFIG is `{path}`, so Calico had that file's rights; \
                 from now on the node has its own kubeconfig, {own}"
            ),
            _ => "KUBECONFIG has no effect: the node gets its own kubeconfig in the same place".into(),
        };
        self.note(line, text);
    }

    fn extra(&mut self, name: &str, value: &str, line: Option<usize>) {
        let variables = json!({ name: value }).to_string();
        self.field("services.extraEnv", &variables, line);
    }

    /// Sets a field, if a config document allows it.
    fn field(&mut self, path: &str, value: &str, line: Option<usize>) {
        let name = self.source.name.to_owned();
        let from = Origin::File { name, line: line.unwrap_or(1), column: 1 };
        let given = Override { path: path.to_owned(), value: value.to_owned(), from };
        let mut alone = Layers::default();
        alone.set(&given);
        if alone.findings.is_empty() {
            self.layers.set(&given);
        }
        for finding in alone.findings {
            self.unread(line, format!("{}: {}", finding.path, finding.problem));
        }
    }

    fn note(&mut self, line: Option<usize>, text: String) {
        self.notes.push(Remark { line, text });
    }

    fn unread(&mut self, line: Option<usize>, text: String) {
        self.unread.push(Remark { line, text });
    }

    fn done(mut self) -> Imported {
        let layered = Layered::new(self.layers);
        // A value that is valid alone may contradict others.
        for finding in rules::check(&layered) {
            let line = match layered.nearest_origin(&finding.path) {
                Some(Origin::File { line, .. }) => Some(*line),
                _ => None,
            };
            self.unread.push(Remark { line, text: format!("{}: {}", finding.path, finding.problem) });
        }
        for remarks in [&mut self.notes, &mut self.unread] {
            remarks.sort();
            remarks.dedup();
        }
        let fields = layered.layers.fields(schema::root());
        let mut document = json!({ "apiVersion": rules::API_VERSION, "kind": rules::KIND });
        for (path, value, _) in &fields {
            let place = path.iter().fold(&mut document, |here, part| &mut here[part.as_str()]);
            *place = (*value).clone();
        }
        let from = fields.iter().map(|(path, _, from)| (path.join("."), (*from).clone())).collect();
        Imported { document, from, notes: self.notes, differences: self.differences, unread: self.unread }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.text)
    }
}

impl Imported {
    /// Returns the document as a file, with all remarks as comments before it.
    pub fn text(&self, name: &str) -> String {
        let mut comments =
            vec![format!("Read from {name} by calicoctl-win. What is not set here is detected, or has its default.")];
        if self.document["spec"]["calico"]["version"].is_null() {
            comments.push("The release is not in it: set spec.calico.version, or use --release.".into());
        }
        let mut section = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                comments.extend([String::new(), title.to_owned()]);
                comments.extend(lines.iter().map(|line| format!("- {line}")));
            }
        };
        section("NOT READ:", self.unread.iter().map(ToString::to_string).collect());
        section("Differs on the node:", self.differences.iter().map(|found| found.text.clone()).collect());
        section("Notes:", self.notes.iter().map(ToString::to_string).collect());
        // The script's text must not end a comment, and YAML has several line ends.
        let ends = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        let lines = comments.iter().map(|line| format!("# {}", line.replace(ends, " ")).trim_end().to_owned() + "\n");
        let document = serde_yaml::to_string(&self.document).expect("plain values can be written as YAML");
        lines.collect::<String>() + &document
    }
}

/// Whether one of a value's URLs has a user or password.
fn may_log_in(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text.split(',').any(has_login))
}

#[cfg(test)]
mod tests;
