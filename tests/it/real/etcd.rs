//! Calico's data in etcd itself: over TLS with the client's certificate, and with users.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api_server::{ask_etcd, end, free_ports, key_with, run, until};
use super::parts::part;
use crate::lab::Lab;
use crate::stories::credentials::runs_with_etcd;
use crate::stories::datastore::{boots_without_datastore, is_repaired, waits_for_it};

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// A certificate that ends with this year, and its key.
    fn sign(&self, name: &str, year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// The certificates of servers and those of clients have different authorities, as in clusters whose etcd is separate.
/// A second address, without TLS, is the one from which these tests write.
struct RealEtcd {
    program: Child,
    command: (PathBuf, Vec<String>),
    servers: Authority,
    clients: Authority,
    url: String,
    gateway: String,
    token: String,
    dir: TempDir,
}

impl RealEtcd {
    /// Starts it, and gives the node the client `calico`. None if it was not built.
    fn start(lab: &Lab) -> Option<Self> {
        let program = part("etcd")?;
        let dir = TempDir::new().unwrap();
        let [secure, plain, peer] = free_ports();
        let (url, gateway) = (format!("https://127.0.0.1:{secure}"), format!("http://127.0.0.1:{plain}"));
        let (servers, clients) = (Authority::new("etcd-server-ca"), Authority::new("etcd-client-ca"));
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (cert, key) = servers.sign("etcd-0", 2090);
        for (name, text) in [("clients.crt", &clients.pem), ("server.crt", &cert), ("server.key", &key)] {
            fs::write(at(name), text).unwrap();
        }
        // The address without TLS may be served through the other one, by etcd as its own client.
        let (cert, key) = clients.sign("etcd-0", 2090);
        fs::write(at("own.crt"), cert).unwrap();
        fs::write(at("own.key"), key).unwrap();
        let arguments = vec![
            format!("--data-dir={}", at("data")),
            format!("--listen-client-urls={url},{gateway}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            "--client-cert-auth".into(),
            format!("--trusted-ca-file={}", at("clients.crt")),
            format!("--cert-file={}", at("server.crt")),
            format!("--key-file={}", at("server.key")),
            format!("--client-cert-file={}", at("own.crt")),
            format!("--client-key-file={}", at("own.key")),
            "--unsafe-no-fsync".into(),
        ];
        let child = run(&program, &arguments, &dir.path().join("etcd.log"));
        let command = (program, arguments);
        let etcd = Self { program: child, command, servers, clients, url, gateway, token: String::new(), dir };
        until("etcd", || etcd.try_to("maintenance/status", &json!({})).ok());
        lab.write("node/C/k/etcd/ca.crt", &etcd.servers.pem);
        etcd.admits(lab, 2090);
        Some(etcd)
    }

    /// Gives the node a certificate of the client `calico` that ends with this year.
    fn admits(&self, lab: &Lab, year: i32) {
        gives(lab, &self.clients.sign("calico", year));
    }

    fn stop(&mut self) {
        end(&mut self.program);
    }

    /// With the users that it had.
    fn start_again(&mut self) {
        let (program, arguments) = &self.command;
        self.program = run(program, arguments, &self.dir.path().join("etcd.log"));
        self.token = until("etcd", || self.log_in().ok());
    }

    fn try_to(&self, call: &str, body: &Value) -> Result<Value, String> {
        ask_etcd(&self.gateway, &self.token, call, body)
    }

    #[track_caller]
    fn call(&self, call: &str, body: &Value) -> Value {
        self.try_to(call, body).unwrap_or_else(|error| panic!("{call}: {error}"))
    }

    /// How many keys begin with this.
    fn count(&self, prefix: &str) -> Value {
        let (key, end) = (STANDARD.encode(prefix), STANDARD.encode(format!("{prefix}\u{7f}")));
        self.call("kv/range", &json!({ "key": key, "range_end": end, "count_only": true }))["count"].clone()
    }

    fn put(&self, key: &str, value: &Value) {
        self.call("kv/put", &key_with(key, value));
    }

    /// What Calico on Linux keeps there, with a VNI and a block of another node.
    fn seed(&self) {
        let resource = |kind: &str, plural: &str, name: &str, spec: Value| {
            let object = json!({
                "kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": { "name": name }, "spec": spec });
            self.put(&format!("/calico/resources/v3/projectcalico.org/{plural}/{name}"), &object);
        };
        resource("FelixConfiguration", "felixconfigurations", "default", json!({ "vxlanVNI": 5000 }));
        resource("ClusterInformation", "clusterinformations", "default", json!({ "calicoVersion": "v3.32.1" }));
        // Two blocks, of which one is taken; more peers than one page has.
        let pool = json!({ "cidr": "192.168.0.0/25", "vxlanMode": "Always", "nodeSelector": "all()" });
        resource("IPPool", "ippools", "windows", pool);
        for number in 0..501 {
            let peer = json!({ "peerIP": format!("10.1.{}.{}", number / 250, number % 250), "asNumber": 64512 });
            resource("BGPPeer", "bgppeers", &format!("peer-{number:03}"), peer);
        }
        self.put("/calico/ipam/v2/config", &json!({ "strict_affinity": true, "auto_allocate_blocks": true }));
        self.put("/calico/ipam/v2/host/linux-1/ipv4/block/192.168.0.0-26", &json!({ "state": "confirmed" }));
    }

    /// From now on etcd asks for users: root, and calico, which has no role yet.
    fn require_users(&mut self) {
        for (user, password) in [("root", "for-tests"), ("calico", "")] {
            let options = json!({ "no_password": password.is_empty() });
            self.call("auth/user/add", &json!({ "name": user, "password": password, "options": options }));
        }
        for role in ["root", "calico"] {
            self.call("auth/role/add", &json!({ "name": role }));
        }
        self.call("auth/user/grant", &json!({ "user": "root", "role": "root" }));
        self.call("auth/enable", &json!({}));
        self.token = self.log_in().unwrap();
    }

    fn log_in(&self) -> Result<String, String> {
        let login = self.try_to("auth/authenticate", &json!({ "name": "root", "password": "for-tests" }))?;
        Ok(login["token"].as_str().unwrap().to_owned())
    }

    fn let_calico_read(&self) {
        let (key, end) = (STANDARD.encode("/calico/"), STANDARD.encode("/calico0"));
        let right = json!({ "permType": "READWRITE", "key": key, "range_end": end });
        self.call("auth/role/grant", &json!({ "name": "calico", "perm": right }));
        self.call("auth/user/grant", &json!({ "user": "calico", "role": "calico" }));
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        end(&mut self.program);
    }
}

/// Puts a client's certificate and key on the node.
fn gives(lab: &Lab, (cert, key): &(String, String)) {
    lab.write("node/C/k/etcd/client.crt", cert);
    lab.write("node/C/k/etcd/client.key", key);
}

/// Nothing is changed while etcd refuses the client, or the client etcd.
fn wrong_certificates(lab: &Lab, etcd: &RealEtcd) {
    let refused = |id: &str| {
        let before = lab.picture_without_state();
        let refused = lab.run("install -y -c etcd.yaml -o json").exits(7).json();
        assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!(id), &json!(false)), "{refused:#}");
        lab.picture_without_state().same_as(&before);
    };
    gives(lab, &etcd.servers.sign("calico", 2090));
    refused("EtcdRefusesClient");
    etcd.admits(lab, 2090);
    lab.write("node/C/k/etcd/ca.crt", &etcd.clients.pem);
    refused("EtcdCaUnknown");
    lab.write("node/C/k/etcd/ca.crt", &etcd.servers.pem);
}

/// Without a kubeconfig each CNI ADD would fail.
fn cni_plugin_has_a_kubeconfig(lab: &Lab, etcd: &RealEtcd) {
    let conf: Value = serde_json::from_str(&lab.read("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
    let kubeconfig = r"C:\CalicoWindows\calico-kube-config";
    assert_eq!(
        (&conf["etcd_endpoints"], &conf["kubernetes"]),
        (&json!(etcd.url), &json!({ "kubeconfig": kubeconfig })),
        "{conf:#}"
    );
    assert!(lab.on_node("C/CalicoWindows/calico-kube-config").is_file());
    assert_eq!(lab.status()["credentials"][0]["path"], kubeconfig);
}

/// What runs keeps running, `status` says it, and nothing is repaired by stopping what waits for etcd.
fn etcd_that_cannot_be_used(lab: &Lab, etcd: &mut RealEtcd) {
    let is_away = || {
        let running = lab.run("status -o json").exits(12).json();
        assert_eq!(
            (&running["overall"], &running["problems"][0]["id"]),
            (&json!("Degraded"), &json!("DatastoreAway")),
            "{running:#}"
        );
        let states = running["services"].as_array().unwrap().iter().map(|service| service["state"].clone());
        assert!(states.clone().all(|state| state == "Running"), "{running:#}");
        running
    };
    etcd.stop();
    is_away();
    etcd.start_again();
    lab.healthy();
    etcd.admits(lab, 2020);
    let certificate = is_away()["credentials"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(certificate["path"], r"C:\k\etcd\client.crt", "{certificate}");
    assert!(certificate["expires"].as_str().unwrap().starts_with("2020-12-31"), "{certificate}");

    boots_without_datastore(lab);
    waits_for_it(lab, "has expired");
    etcd.admits(lab, 2090);
    etcd.stop();
    waits_for_it(lab, "refuses the connection");
    etcd.start_again();
    is_repaired(lab);
}

/// Only calicoctl may remove what belongs together in etcd.
fn cluster_traces_are_left_to_calicoctl(lab: &Lab, etcd: &RealEtcd) {
    etcd.put("/calico/resources/v3/projectcalico.org/nodes/win-a1", &json!({ "metadata": { "name": "win-a1" } }));
    etcd.put("/calico/ipam/v2/host/win-a1/ipv4/block/192.168.0.64-26", &json!({ "state": "confirmed" }));
    let before = etcd.count("/calico/");
    let removed = lab.run("uninstall -y --cluster-traces -o json").exits(0).json();
    assert_eq!(removed["next"][0], "calicoctl delete node win-a1", "{removed:#}");
    assert!(removed["warnings"].to_string().contains("ClusterTracesLeft: Calico's data in etcd"), "{removed:#}");
    assert_eq!(etcd.count("/calico/"), before);
}

fn check(report: &Value, id: &str) -> Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("{id}: {report:#}")).clone()
}

#[test]
fn a_node_lives_with_a_real_etcd_that_has_tls_and_users() {
    let lab = Lab::node();
    let Some(mut etcd) = RealEtcd::start(&lab) else { return };
    runs_with_etcd(&lab);
    lab.write(
        "etcd.yaml",
        format!(
            "spec:\n  datastore:\n    type: etcdv3\n    etcd:\n      endpoints: ['{}']\n      keyFile: C:\\k\\etcd\\client.key\n      \
             certFile: C:\\k\\etcd\\client.crt\n      caCertFile: C:\\k\\etcd\\ca.crt\n",
            etcd.url
        ),
    );
    let empty = lab.run("preflight -c etcd.yaml -o json --set calicoNetwork.backend=vxlan").exits(3).json();
    assert_eq!(check(&empty, "IpPools")["status"], "fail", "{empty:#}");

    etcd.seed();
    let found = lab.run("preflight -c etcd.yaml -o json --all").exits(0).json();
    for (id, detail) in [
        ("EtcdAnswers", "Calico's data was read"),
        ("Backend", "vxlan"),
        ("IpPools", "windows"),
        ("StrictAffinity", "on"),
        ("PoolBlocks", "free blocks: 1"),
        ("VxlanVni", "5000"),
    ] {
        assert_eq!((&check(&found, id)["status"], &check(&found, id)["detail"]), (&json!("ok"), &json!(detail)));
    }

    wrong_certificates(&lab, &etcd);
    etcd.require_users();
    let before = lab.picture_without_state();
    let refused = lab.run("install -y -c etcd.yaml -o json").exits(17).json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("EtcdForbidden"), &json!(false)), "{refused:#}");
    assert!(refused["msg"].as_str().unwrap().contains("the client calico"), "{refused:#}");
    lab.picture_without_state().same_as(&before);

    etcd.let_calico_read();
    let _there = lab.run("install -y -c etcd.yaml").exits(0);
    assert!(lab.read("node.yaml").contains("5000"), "the VNI is the cluster's");
    lab.healthy();
    cni_plugin_has_a_kubeconfig(&lab, &etcd);
    etcd_that_cannot_be_used(&lab, &mut etcd);
    cluster_traces_are_left_to_calicoctl(&lab, &etcd);
}
