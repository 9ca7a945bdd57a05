//! What a node says that it is.

use calicoctl_win::facts::NodeFacts;

use crate::nodes::on_each;

#[test]
fn a_node_knows_what_it_is() {
    on_each(|node| {
        let facts = node.facts().unwrap();
        assert_eq!(facts.host_name, facts.host_name.to_lowercase());
        assert!(!facts.host_name.is_empty() && !facts.host_name.ends_with('\0'), "{:?}", facts.host_name);
        assert!(facts.os.build >= 17763 && facts.os.ubr > 0, "{:?}", facts.os);
        assert_eq!(facts.os.arch, "amd64");
        assert!(["Server", "Server Core", "Client"].contains(&facts.os.installation_type.as_str()), "{:?}", facts.os);
        assert!(facts.elevated, "the contract needs an elevated session");
        assert!(facts.features.is_some() && facts.tls.is_some());
    });
}

#[test]
fn a_node_is_the_same_when_it_is_looked_at_again() {
    on_each(|node| {
        let (one, two) = (node.facts().unwrap(), node.facts().unwrap());
        assert!(!one.boot_id.is_empty());
        assert_eq!((one.boot_id, one.os, one.runtime), (two.boot_id, two.os, two.runtime));
    });
}

#[test]
fn facts_are_saved_and_read_again() {
    on_each(|node| {
        let facts = node.facts().unwrap();
        let text = serde_json::to_string_pretty(&facts).unwrap();
        assert_eq!(serde_json::from_str::<NodeFacts>(&text).unwrap(), facts, "{text}");
    });
}
