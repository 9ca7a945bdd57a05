//! `network` and `metrics` on a running node: what HNS has, whose it is, and a new start for Calico's networks alone.

use std::fs;

use serde_json::{Value, json};

use crate::house::House;

/// The networks of HNS with their ids.
fn ids(house: &House) -> Vec<(String, Value)> {
    house.hns().into_iter().map(|(name, network)| (name, network["ID"].clone())).collect()
}

#[test]
fn calicos_networks_are_shown_and_re_created_and_no_others() {
    let Some(house) = House::new() else { return };
    house.foreign_networks();
    drop(house.start_kubelet());
    house.install();
    house.until_healthy();

    let list = house.run("network list -o json").exits(0).json();
    let mut rows: Vec<_> =
        list["networks"].as_array().unwrap().iter().map(|row| (row["name"].clone(), row["owner"].clone())).collect();
    rows.sort_by_key(|(name, _)| name.to_string().to_lowercase());
    let wanted =
        [("Calico", "calicoctl-win"), ("External", "calicoctl-win"), ("nat", "other"), ("vendor-overlay", "other")];
    assert_eq!(rows, wanted.map(|(name, owner)| (json!(name), json!(owner))), "{list:#}");
    let calico = house.run("network show Calico -o json").exits(0).json();
    assert_eq!((&calico["vsid"], &calico["management_ip"]), (&json!(4096), &json!("10.20.0.21")), "{calico:#}");
    let endpoints = calico["endpoints"].as_array().unwrap();
    assert!(endpoints.iter().any(|one| one["name"] == "Calico_ep"), "{calico:#}");

    let before = ids(&house);
    let result = house.run("network reset --yes -o json").exits(0).json();
    assert_eq!((&result["changed"], &result["generation"]), (&json!(true), &json!(2)), "{result:#}");
    house.until_healthy();
    assert!(!house.cordoned());
    for (then, now) in before.iter().zip(ids(&house)) {
        let is_calicos = ["Calico", "External"].contains(&then.0.as_str());
        assert_eq!((&then.0, then.1 != now.1), (&now.0, is_calicos), "{before:#?}");
    }

    let file = house.test_file("calico.prom");
    for _ in 0..2 {
        house.run(r"metrics --out C:\test\calico.prom").exits(0);
        let text = fs::read_to_string(&file).unwrap();
        for sample in ["calicoctl_win_generation 2", r#"last_run_info{command="network reset",result="OK"} 1"#] {
            assert!(text.contains(sample), "{sample}: {text}");
        }
    }
    let whole = house.run("logs -o json").exits(0).json();
    let lines = |document: &Value| document["lines"].as_array().unwrap().len();
    assert_eq!(lines(&house.run("logs --tail 3 -o json").exits(0).json()), 3);
    assert!(lines(&whole) > 3, "{whole:#}");
    // One story in the order of its times, of both services.
    let times: Vec<&str> = whole["lines"].as_array().unwrap().iter().filter_map(|line| line["time"].as_str()).collect();
    assert!(times.is_sorted(), "{times:#?}");
}
