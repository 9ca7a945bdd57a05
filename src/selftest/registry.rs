//! The registry.

use anyhow::Result;

use super::{Reach, Row, TestContext};
use crate::item::{Id, RegValue, State};
use crate::report::answer::Answer;

pub const GROUP: &str = "registry";
const KEY: &str = r"SOFTWARE\calicoctl-win-selftest";

pub const ROWS: &[Row] = &[
    Row {
        id: "RegistryTypes",
        group: GROUP,
        asks: "a value of every type is read as it was written",
        needed_for: "the original of a value is restored as it was",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: types,
    },
    Row {
        id: "RegistryNames",
        group: GROUP,
        asks: "a key and a value are found by their names in any case",
        needed_for: "values that Calico's scripts or other products wrote are found",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: names,
    },
];

fn value(key: &str, name: &str) -> Id {
    Id::RegValue { key: key.into(), name: name.into() }
}

/// Everything that the rows make.
pub fn items() -> Vec<Id> {
    vec![value(KEY, "Value")]
}

fn types(context: &mut TestContext<'_>) -> Result<Answer> {
    let id = value(KEY, "Value");
    let all = [
        RegValue::String("text ü".into()),
        RegValue::ExpandString(r"%SystemRoot%\System32".into()),
        RegValue::MultiString(vec!["one".into(), "two".into()]),
        RegValue::Dword(u32::MAX),
        RegValue::Qword(u64::MAX - 1),
        RegValue::Binary(vec![0, 255, 7]),
    ];
    for wanted in all {
        let state = State::RegValue(wanted.clone());
        context.node.put(&id, Some(&state))?;
        let found = context.node.get(&id)?;
        if found.as_ref() != Some(&state) {
            return Answer::fails(format!("{wanted:?} is read as {found:?}"));
        }
    }
    context.node.put(&id, None)?;
    Answer::of(context.node.get(&id)?.is_none(), "6 types", "a removed value is still there")
}

fn names(context: &mut TestContext<'_>) -> Result<Answer> {
    let state = State::RegValue(RegValue::Dword(1));
    context.node.put(&value(KEY, "Value"), Some(&state))?;
    let found = context.node.get(&value(&KEY.to_uppercase(), "VALUE"))?;
    Answer::of(found == Some(state), "found in upper case", "not found in upper case")
}
