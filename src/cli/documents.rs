//! Every kind of document that this program prints or writes, and the types of those that a single verb prints.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use crate::apply::receipt::Receipt;
use crate::config::import::Imported;
use crate::diagnose::Diagnosis;
use crate::facts::Facts;
use crate::fleet::{FleetPlan, FleetStatus};
use crate::node::hns::inventory::HnsNetwork;
use crate::plan::show::SettingChange;
use crate::policy::PolicyReport;
use crate::release::download::Cached;
use crate::report::document::{
    ClusterPatches, CredentialsReport, Document, Generations, History, NodeStatus, PlanDocument, PreflightReport,
    RunResult, ServiceStatus,
};
use crate::run::saved::Saved;
use crate::selftest::report::SelftestReport;
use crate::values::Sha256;
use crate::verify::report::VerifyReport;
use crate::version::CalicoVersion;

macro_rules! kinds {
    ($($kind:literal: $body:ty,)*) => {
        $(impl Document for $body {
            const KIND: &'static str = $kind;
        })*

        /// The kinds of all documents, in alphabetical order, each with the schema of its body.
        pub const KINDS: &[(&str, fn(SchemaGenerator) -> Schema)] =
            &[$(($kind, |generator| generator.into_root_schema_for::<$body>()),)*];
    };
}

kinds! {
    "ClusterPatches": ClusterPatches,
    "ConfigDiff": ConfigDiff,
    "ConfigImport": Imported,
    "ConfigValidation": ConfigValidation,
    "Credentials": CredentialsReport,
    "Diagnosis": Diagnosis,
    "EffectiveConfig": EffectiveConfig,
    "Explanation": Explanation,
    "Explanations": Explanations,
    "Facts": Facts,
    "FleetPlan": FleetPlan,
    "FleetStatus": FleetStatus,
    "Generations": Generations,
    "History": History,
    "KubernetesStatus": KubernetesStatus,
    "LogLine": LogLine,
    "Logs": Logs,
    "Network": HnsNetwork,
    "NetworkList": NetworkList,
    "Plan": PlanDocument,
    "PolicyReport": PolicyReport,
    "PreflightReport": PreflightReport,
    "Receipt": Receipt,
    "ReleaseList": ReleaseList,
    "ReleaseVerification": ReleaseVerification,
    "Run": Run,
    "RunResult": RunResult,
    "SavedPlan": Saved,
    "SelftestReport": SelftestReport,
    "ServiceStatus": Services,
    "Status": NodeStatus,
    "VerifyReport": VerifyReport,
    "Version": Version,
}

/// The document of `version`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Version {
    pub version: String,
    /// For example `x86_64-windows`.
    pub target: String,
}

/// The document of `explain ID`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Explanation {
    pub id: String,
    /// Its page, in Markdown.
    pub text: String,
}

/// The document of `explain`: everything that has a page.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Explanations {
    /// Checks, exit codes, events, errors and warnings.
    pub ids: Vec<String>,
    /// Fields of the config.
    pub fields: Vec<String>,
}

/// The document of `config show`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EffectiveConfig {
    pub fields: Vec<EffectiveField>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EffectiveField {
    /// For example `spec.calicoNetwork.vxlan.vxlanVNI`.
    pub path: String,
    /// What may be secret is `***`.
    pub value: Value,
    /// Where the value comes from.
    pub origin: String,
}

/// The document of `config diff`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConfigDiff {
    pub settings_diff: Vec<SettingChange>,
}

/// The document of `config validate`; a config that is not valid is an error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConfigValidation {
    pub valid: bool,
}

/// The document of `release list`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReleaseList {
    pub archives: Vec<Cached>,
}

/// The document of `release verify`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReleaseVerification {
    pub path: PathBuf,
    pub sha256: Sha256,
    pub files: usize,
    /// Their size, unpacked.
    pub bytes: u64,
    /// None if neither the command line nor the file's name has it.
    pub version: Option<CalicoVersion>,
}

/// The document of `service status`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Services {
    pub services: Vec<ServiceStatus>,
}

/// The document of `kubernetes status`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesStatus {
    pub services: Vec<KubernetesService>,
    /// kubelet has a login of its own.
    pub joined: bool,
}

/// kubelet or kube-proxy.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesService {
    pub name: String,
    /// `calicoctl-win`, `other`, or `none` if there is no such service.
    pub owner: &'static str,
    /// As in `service status`.
    pub state: String,
    /// What a service of another program runs; the program of ours.
    pub runs: Option<String>,
    /// What our program reports; none if it reports none, and for other programs.
    pub version: Option<String>,
    /// For example what it waits for.
    pub detail: String,
}

/// The document of `network list`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct NetworkList {
    /// In HNS's order.
    pub networks: Vec<ListedNetwork>,
}

/// One HNS network; `network show` has the rest of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ListedNetwork {
    pub name: String,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// `calicoctl-win`, `calico` or `other`, as in `network show`.
    pub owner: &'static str,
    /// The VNI of an overlay network.
    pub vsid: Option<u32>,
    pub management_ip: Option<String>,
    pub adapter: Option<String>,
    /// How many it has.
    pub endpoints: usize,
}

impl From<HnsNetwork> for ListedNetwork {
    fn from(network: HnsNetwork) -> Self {
        let HnsNetwork { name, id, kind, owner, vsid, management_ip, adapter, endpoints, .. } = network;
        Self { name, id, kind, owner, vsid, management_ip, adapter, endpoints: endpoints.len() }
    }
}

/// The document of `logs`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Logs {
    pub lines: Vec<LogLine>,
}

/// One line of a log; with NDJSON, `logs` prints a document for each.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LogLine {
    pub file: String,
    /// When it was written, by its own timestamp or that of the line above it; null if neither has one.
    pub time: Option<Timestamp>,
    pub line: String,
}

/// The document of `status --run`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Run {
    pub run: String,
    /// `running`, `ended`, `interrupted`, or `lost`: it has neither a result nor a journal.
    pub state: String,
    /// The step that it is at; null if it has ended, or not begun.
    pub at: Option<String>,
    /// How it ended, as it was recorded then.
    #[schemars(with = "Option<RunResult>")]
    pub result: Option<Value>,
}
