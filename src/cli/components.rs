//! The words for our services on the command line: those of [`Role`], and what else can be named with them.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::agent::Role;

/// What `service run` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Service(Role),
    Guard,
    /// What starts a run that is to outlive its session.
    Session0,
}

/// Whose logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOf {
    Service(Role),
    Tool,
}

impl ValueEnum for Component {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Component>> = LazyLock::new(|| {
            let others = [Component::Guard, Component::Session0];
            Role::ALL.into_iter().map(Component::Service).chain(others).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Service(role) => PossibleValue::new(role.word()),
            Self::Guard => PossibleValue::new("guard").help("Watches over a change that is not confirmed"),
            Self::Session0 => PossibleValue::new("session0").help("Starts a run that outlives its session"),
        })
    }
}

impl ValueEnum for LogOf {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<LogOf>> =
            LazyLock::new(|| Role::ALL.into_iter().map(LogOf::Service).chain([LogOf::Tool]).collect());
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Service(role @ Role::Node) => {
                PossibleValue::new(role.word()).help("CalicoNode: the network and Calico's node startup")
            }
            Self::Service(role) => PossibleValue::new(role.word()),
            Self::Tool => PossibleValue::new("tool").help("The runs of calicoctl-win"),
        })
    }
}
