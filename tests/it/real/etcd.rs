//! Calico's data in etcd itself: over TLS with the client's certificate, and with users.

use std::fs;
use std::process::Child;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api_server::{end, free_ports, run, until};
use super::parts::part;
use crate::lab::Lab;
use crate::stories::credentials::runs_with_etcd;

/// A member with TLS for clients of its CA, and an address without TLS from which these tests write.
struct RealEtcd {
    program: Child,
    url: String,
    gateway: String,
    token: String,
    _dir: TempDir,
}

impl RealEtcd {
    /// Starts it, and gives the node the client `calico`. None if it was not built.
    fn start(lab: &Lab) -> Option<Self> {
        let program = part("etcd")?;
        let dir = TempDir::new().unwrap();
        let [secure, plain, peer] = free_ports();
        let (url, gateway) = (format!("https://127.0.0.1:{secure}"), format!("http://127.0.0.1:{plain}"));
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "etcd-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let sign = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (cert, key) = sign("etcd-0");
        for (name, text) in [("ca.crt", &authority), ("server.crt", &cert), ("server.key", &key)] {
            fs::write(at(name), text).unwrap();
        }
        let (cert, key) = sign("calico");
        for (name, text) in [("client.key", &key), ("client.crt", &cert), ("ca.crt", &authority)] {
            lab.write(&format!("node/C/k/etcd/{name}"), text);
        }
        let program = run(
            &program,
            &[
                format!("--data-dir={}", at("data")),
                format!("--listen-client-urls={url},{gateway}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                "--client-cert-auth".into(),
                format!("--trusted-ca-file={}", at("ca.crt")),
                format!("--cert-file={}", at("server.crt")),
                format!("--key-file={}", at("server.key")),
                "--unsafe-no-fsync".into(),
            ],
            &dir.path().join("etcd.log"),
        );
        let etcd = Self { program, url, gateway, token: String::new(), _dir: dir };
        until("etcd", || etcd.try_to("maintenance/status", &json!({})).ok());
        Some(etcd)
    }

    fn try_to(&self, call: &str, body: &Value) -> Result<Value, String> {
        // reqwest requires one, also without TLS; another test may have set it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
        let request = client.post(format!("{}/v3/{call}", self.gateway)).body(body.to_string());
        let answer = request.header("Authorization", &self.token).send().map_err(|error| error.to_string())?;
        let (status, text) = (answer.status(), answer.text().unwrap());
        if status.is_success() { Ok(serde_json::from_str(&text).unwrap()) } else { Err(text) }
    }

    #[track_caller]
    fn call(&self, call: &str, body: &Value) -> Value {
        self.try_to(call, body).unwrap_or_else(|error| panic!("{call}: {error}"))
    }

    fn put(&self, key: &str, value: &Value) {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value.to_string()));
        self.call("kv/put", &json!({ "key": key, "value": value }));
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
        let login = self.call("auth/authenticate", &json!({ "name": "root", "password": "for-tests" }));
        self.token = login["token"].as_str().unwrap().to_owned();
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

fn check(report: &Value, id: &str) -> Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("{id}: {report:#}")).clone()
}

#[test]
fn calicos_data_in_etcd_is_read_with_the_clients_certificate_as_far_as_its_user_may() {
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
}
