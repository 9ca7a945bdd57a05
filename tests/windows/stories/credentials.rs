//! The node's own login while its services run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::house::{House, SOON};
use crate::machine::eventually;
use crate::tokens::{aged, claims};

const KUBECONFIG: &str = r"CalicoWindows\calico-kube-config";

fn token(house: &House) -> String {
    let kubeconfig: serde_json::Value = serde_yaml::from_str(&house.read(KUBECONFIG)).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

#[test]
fn the_agent_renews_a_token_that_is_due_and_felix_reads_the_new_one() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let first = token(&house);
    let due = aged(&house.of_cluster("pki/sa.key"), &first, |life| life * 7 / 10);
    let file = house.machine.c(KUBECONFIG);
    fs::write(&file, house.read(KUBECONFIG).replace(&first, &due)).unwrap();
    // Calico's programs read a kubeconfig once, so Felix is restarted with another one.
    let starts = house.until_started("felix", 2).len();

    // The agent checks the token when it starts, and each minute. Windows starts it again.
    let agents = house.machine.processes_of("calicoctl-win.exe");
    house.machine.kill(agents.iter().find(|process| process.command_line.ends_with("service run node")).unwrap());
    let new = eventually("a new token", SOON, || Some(token(&house)).filter(|now| *now != due));
    let (new, old) = (claims(&new), claims(&due));
    assert!(new["exp"].as_i64() > old["exp"].as_i64(), "{new} {old}");
    assert_eq!(new["sub"], "system:serviceaccount:calico-system:calico-node");
    // Wine stores an access list as the file's mode: SYSTEM and Administrators are its owner and group.
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "others may read it: {mode:o}");
    house.until_started("felix", starts + 1);
    let logs = format!(
        "{}{}",
        house.read(r"ProgramData\calicoctl-win\logs\calico\calico-node.log"),
        house.read(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log")
    );
    assert!(
        logs.contains(r"the token in C:\CalicoWindows\calico-kube-config was renewed, it is valid until"),
        "{logs}"
    );
    assert!(logs.contains("the node's credentials were renewed"), "{logs}");
    assert!(!logs.contains(&token(&house)), "the token is in the log");
    let status = house.until_healthy();
    assert_eq!(status["drift"], serde_json::json!([]), "{status:#}");
}
