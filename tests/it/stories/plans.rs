//! Looking before leaping: `plan`, `--dry-run`, saved plans, plans for other machines.

use crate::lab::Lab;

#[test]
fn a_plan_shows_everything_and_changes_nothing() {
    let lab = Lab::node();
    let before = lab.picture();
    insta::assert_snapshot!(lab.run("plan").exits(0).screen(), @"");
    let _pending = lab.run("plan --detailed-exitcode").exits(2);
    let plan = lab.run("plan -o json").exits(0).json();
    assert_eq!((&plan["kind"], &plan["disruption"]), (&"Plan".into(), &"host_network".into()));
    let dry = lab.run("install --dry-run -o json").exits(0).json();
    assert_eq!((&dry["changed"], &dry["plan"]["digest"]), (&false.into(), &plan["digest"]));
    lab.picture().same_as(&before);

    let _there = lab.run("install -y").exits(0);
    let standing = lab.picture();
    let _nothing = lab.run("plan --detailed-exitcode").exits(0);
    let removal = lab.run("plan --uninstall -o json").exits(0).json();
    assert!(removal["changes"].as_array().unwrap().iter().all(|change| change["action"] == "delete"), "{removal}");
    for words in ["uninstall -n", "uninstall --purge -n -y", "service stop -n", "service restart -n", "resume -n"] {
        let result = lab.run(&format!("{words} -o json")).exits(0).json();
        assert_eq!(result["changed"], false, "{words}");
    }
    lab.picture().same_as(&standing);
}

#[test]
fn a_saved_plan_is_carried_out_as_long_as_it_is_true() {
    let lab = Lab::node();
    let _saved = lab.run("plan --out bare.json").exits(0);
    let before = lab.picture_without_state();

    let other_config = "install -y --plan bare.json --set services.felixLogSeverity=Debug -o json";
    let stale = lab.run(other_config).exits(13).json();
    assert_eq!(stale["error"]["id"], "PlanStale", "{stale}");
    assert!(stale["msg"].as_str().unwrap().contains("config"), "{stale}");
    lab.picture_without_state().same_as(&before);

    let _done = lab.run("install -y --plan bare.json").exits(0);
    let _saved = lab.run("plan --uninstall --out removal.json").exits(0);
    let stale = lab.run("install -y --plan bare.json -o json").exits(13).json();
    assert!(stale["msg"].as_str().unwrap().contains("node"), "{stale}");
    assert_eq!(stale["changed"], false);
}

#[test]
fn the_facts_of_one_machine_are_enough_to_plan_on_another() {
    let there = Lab::node();
    let office = Lab::new();
    office.write("node.yaml", "spec: {calico: {version: v3.30.3}, calicoNetwork: {backend: vxlan}}\n");
    for words in ["plan --print-facts -o json", "plan --print-facts", "plan --print-facts -o yaml"] {
        office.write("facts", there.run(words).exits(0).stdout);
        let plan = office.bare("plan --facts facts -c node.yaml -o json").exits(0).json();
        let ids: Vec<&str> =
            plan["changes"].as_array().unwrap().iter().map(|change| change["id"].as_str().unwrap()).collect();
        assert!(ids.contains(&r"file C:\Program Files\containerd\cni\conf\10-calico.conf"), "{words}: {ids:?}");
        assert!(ids.contains(&"hns-network Calico"), "{words}: {ids:?}");
    }
    office.write("facts", r#"{"node": {"hostname": "win-a1"}}"#);
    let wrong = office.bare("plan --facts facts -c node.yaml -o json").exits(4).json();
    assert_eq!(wrong["error"]["id"], "FactsInvalid");
    assert!(!office.path("node").exists() && !there.on_node("C/ProgramData/calicoctl-win").exists());
}
