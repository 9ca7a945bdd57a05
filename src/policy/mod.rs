//! What Felix on Windows makes of network policies: which rules it skips or widens, and what the others cost. Knows the
//! policies of Calico, those of Kubernetes and those of its administrators, from the API or from files; asks nothing
//! itself.
//!
//! What Windows does is from Felix' own conversion (felix/dataplane/windows/policysets/policysets.go).

mod complement;
mod endpoints;
mod kinds;
mod lint;
mod report;
mod resource;
mod rewrite;
mod rules;
mod selector;
mod shape;

pub use self::endpoints::Pod;
pub use self::kinds::{FindingKind, KINDS};
pub use self::lint::{Calico, Linter};
pub use self::report::{Finding, PolicyReport, Severity, Totals};
pub use self::resource::{Item, Kind, Listed, Policy};
