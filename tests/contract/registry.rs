//! Registry values.

use calicoctl_win::item::{Id, RegValue, State};
use calicoctl_win::node::Node;

use crate::nodes::on_each;

fn value(key: &str, name: &str) -> Id {
    Id::RegValue { key: key.into(), name: name.into() }
}

fn get(node: &dyn Node, key: &str, name: &str) -> Option<RegValue> {
    node.get(&value(key, name)).unwrap().map(|state| match state {
        State::RegValue(value) => value,
        other => panic!("{other:?} is no value"),
    })
}

fn put(node: &mut dyn Node, key: &str, name: &str, wanted: Option<RegValue>) {
    let wanted = wanted.map(State::RegValue);
    node.put(&value(key, name), wanted.as_ref()).unwrap();
    assert_eq!(node.get(&value(key, name)).unwrap(), wanted);
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_value_of_every_type_is_written_changed_and_removed() {
    on_each(|node| {
        const KEY: &str = r"SOFTWARE\calicoctl-win contract\Typen";
        for wanted in [
            RegValue::String("Ein Wert für alle 契約".into()),
            RegValue::String(String::new()),
            RegValue::ExpandString(r"%SystemRoot%\System32".into()),
            RegValue::MultiString(vec!["one".into(), "zwei ü".into()]),
            RegValue::MultiString(Vec::new()),
            RegValue::Dword(u32::MAX),
            RegValue::Qword(u64::MAX - 1),
            RegValue::Binary(vec![0, 255, 7]),
            RegValue::Binary(Vec::new()),
        ] {
            // Also over a value of another type; and an empty name is the key's own value.
            for name in ["Wert 1", ""] {
                put(node, KEY, name, Some(wanted.clone()));
            }
        }
        assert!(get(node, r"software\CALICOCTL-WIN CONTRACT\typen", "wert 1").is_some(), "names have no case");
        for name in ["", "Wert 1", "Wert 1", "never there"] {
            put(node, KEY, name, None);
        }
        put(node, r"SOFTWARE\calicoctl-win contract\never there", "x", None);
        put(node, r"SOFTWARE\calicoctl-win contract\never\there", "x", None);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_key_is_removed_with_its_last_value_unless_others_use_it() {
    on_each(|node| {
        const OURS: &str = r"SOFTWARE\calicoctl-win contract 2\Ours";
        const BELOW: &str = r"SOFTWARE\calicoctl-win contract 2\Ours\Below";
        let dword = || Some(RegValue::Dword(1));
        put(node, OURS, "a", dword());
        put(node, OURS, "theirs", dword());
        put(node, BELOW, "b", dword());

        put(node, OURS, "a", None);
        assert_eq!(get(node, OURS, "theirs"), dword());
        put(node, OURS, "theirs", None);
        assert_eq!(get(node, BELOW, "b"), dword());
        put(node, BELOW, "b", None);
    });
    // A node cannot say which keys remain: a key without values counts as none.
    #[cfg(windows)]
    for key in [r"SOFTWARE\calicoctl-win contract 2\Ours", r"SOFTWARE\calicoctl-win contract 2"] {
        assert!(!calicoctl_win::node::windows::registry::exists(key).unwrap(), "{key} held nothing any more");
    }
}
