//! A bare machine with a container runtime becomes a node: kubelet and kube-proxy as services of this program.

use std::fs;
use std::time::Duration;

use calicoctl_win::node::Node as _;
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::node::sandbox::model::Name;
use serde_json::{Value, json};

use super::restart::with_ops;
use crate::lab::{Lab, Output};
use crate::mirror::Mirror;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

const TOKEN: &str = "abcdef.0123456789abcdef";

pub fn sha256(text: &str) -> String {
    calicoctl_win::values::Sha256::of(text.as_bytes()).to_string()
}

/// The programs of a version, as the sandbox plays them.
pub fn programs(lab: &Lab, version: &str) -> String {
    for name in ["kubelet.exe", "kube-proxy.exe"] {
        let text = format!("Stand-in for Kubernetes Windows {version}, {name}");
        lab.write(&format!("{version}/{name}"), &text);
        lab.write(&format!("{version}/{name}.sha256"), sha256(&text));
    }
    version.to_owned()
}

pub fn config(lab: &Lab, version: &str, more: &str) {
    let source = programs(lab, version);
    let text = format!(
        "apiVersion: calicoctl-win/v1alpha1
kind: NodeInstallation
spec:
  calico: {{version: v3.32.1}}
  kubernetes:
    node:
      install: true
      version: {version}
      source: {{path: {source}}}
      join: {{tokenFile: token}}
{more}"
    );
    lab.write("node.yaml", text);
}

/// A machine with only containerd, in a cluster that does not know it.
pub fn bare() -> Lab {
    let lab = Lab::node();
    let _cluster = lab.run("cluster check").code;
    lab.edit_yaml(|yaml| {
        let (before, rest) = yaml.split_once("  kubelet:\n").unwrap();
        let (_, after) = rest.split_once("registry:\n").unwrap();
        format!("{before}registry:\n{after}")
    });
    lab.remove_objects(|kind, object| {
        kind == "nodes" && object["metadata"]["name"] == "win-a1"
            || kind == "pods" && object["spec"]["nodeName"] == "win-a1"
    });
    config(&lab, "v1.36.2", "");
    lab.write("token", TOKEN);
    lab
}

fn apply(lab: &Lab) -> Output {
    lab.run("apply -c node.yaml -y -o json")
}

pub fn is_ready(lab: &Lab, name: &str) -> bool {
    let node = lab.object("nodes", name).unwrap();
    let mut conditions = node["status"]["conditions"].as_array().unwrap().iter();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Stops services as another program does.
pub fn stop(lab: &Lab, names: &[&str]) {
    lab.edit_model(|model| {
        for name in names {
            model.services.get_mut(&Name::new(*name)).unwrap().pid.take().unwrap();
            model.processes.retain(|process| process.service.as_deref() != Some(name));
        }
    });
}

/// What an apply would say only after its other checks.
#[test]
fn preflight_tries_the_token_and_where_the_programs_come_from() {
    let lab = bare();
    let checked = |fault: &str| {
        let report = lab.fails_at(fault, "preflight -c node.yaml -o json").json();
        let checks = report["checks"].as_array().unwrap();
        ["JoinToken", "SourcesAvailable"].map(|id| {
            let check = checks.iter().find(|check| check["id"] == id).unwrap();
            format!("{}: {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
        })
    };
    let [join, sources] = checked("");
    assert_eq!(join, "ok: the cluster accepts it");
    assert!(sources.starts_with("ok: ") && sources.contains("answers") && sources.contains("v1.36.2"), "{sources}");
    let [_, sources] = checked("release 404");
    assert!(sources.starts_with("fail: ") && sources.contains("404"), "{sources}");

    fs::remove_file(lab.path("token")).unwrap();
    assert!(checked("")[0].starts_with("fail: cannot read token to join the cluster"), "{:?}", checked(""));
    lab.write("token", TOKEN.replace("abcdef.", "aaaaaa."));
    assert!(checked("")[0].starts_with("fail: "), "{:?}", checked(""));

    lab.write("token", TOKEN);
    fs::rename(lab.path("v1.36.2"), lab.path("elsewhere")).unwrap();
    assert!(checked("")[1].starts_with("fail: there is no kubelet.exe in v1.36.2"), "{:?}", checked(""));
}

/// A mirror with the programs of a version, and a config that downloads them from there and pins `kubelet` and kube-proxy's
/// own digest.
fn from_mirror(lab: &Lab, kubelet: Option<&str>) -> Mirror {
    const VERSION: &str = "v1.36.2";
    // More than the program reads of a response at once.
    let bytes =
        |name: &str| format!("Stand-in for Kubernetes Windows {VERSION}, {name}\n{}", "x".repeat(3 << 20)).into_bytes();
    let [first, second] = ["kubelet.exe", "kube-proxy.exe"].map(bytes);
    let mirror = Mirror::of(&[("v1.36.2/kubelet.exe", &first), ("v1.36.2/kube-proxy.exe", &second)]);
    let digest = |bytes: &[u8]| calicoctl_win::values::Sha256::of(bytes).to_string();
    let kubelet = kubelet.map_or_else(|| digest(&first), str::to_owned);
    let source = format!(
        "source: {{urlTemplate: '{}/{{version}}', kubeletSHA256: {kubelet}, kubeProxySHA256: {}}}",
        mirror.url,
        digest(&second)
    );
    config(lab, VERSION, "  transport: {retries: 0}\n");
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("source: {path: v1.36.2}", &source));
    mirror
}

#[test]
fn programs_of_a_url_are_downloaded_once_and_their_pinned_digests_suffice() {
    let lab = bare();
    let mirror = from_mirror(&lab, None);
    let _installed = apply(&lab).exits(0);
    assert!(is_ready(&lab, "win-a1"));
    let asked = mirror.asked();
    let whole: Vec<&str> = asked.iter().map(String::as_str).filter(|asked| !asked.ends_with(" 0-0")).collect();
    assert_eq!(whole, ["v1.36.2/kubelet.exe", "v1.36.2/kube-proxy.exe"], "no digest next to them is asked for");
    assert_eq!(apply(&lab).exits(0).json()["changed"], false);
    assert_eq!(mirror.asked(), [""; 0]);
}

#[test]
fn a_program_of_a_url_with_another_digest_is_refused_and_nothing_is_changed() {
    let lab = bare();
    let mirror = from_mirror(&lab, Some(&sha256("what the admin expects")));
    let before = lab.picture_without_state();
    let result = apply(&lab).exits(6).json();
    let error = &result["error"];
    assert_eq!((&error["id"], &result["changed"]), (&"ReleaseDigest".into(), &false.into()), "{result:#}");
    let what = error["what"].as_str().unwrap().replace(&mirror.url, "URL");
    assert!(
        what.contains("URL/v1.36.2/kubelet.exe") && what.contains(&sha256("what the admin expects")[..12]),
        "{what}"
    );
    lab.picture_without_state().same_as(&before);
    // The refused file is not kept: the mirror is asked again, and may have the right one.
    let _asked = mirror.asked();
    let _refused = apply(&lab).exits(6);
    assert!(mirror.asked().contains(&"v1.36.2/kubelet.exe".to_owned()));
}

/// The project's release page has a digest next to each program.
#[test]
fn a_published_digest_of_a_program_is_compared_and_without_one_the_run_says_so() {
    let digests = |text: &str| calicoctl_win::values::Sha256::of(text.as_bytes()).to_string();
    let [kubelet, proxy] =
        ["kubelet.exe", "kube-proxy.exe"].map(|name| format!("Stand-in for Kubernetes Windows v1.36.2, {name}"));
    let run = |published: Option<String>| {
        let lab = bare();
        let mut files = vec![("v1.36.2/kubelet.exe", kubelet.clone()), ("v1.36.2/kube-proxy.exe", proxy.clone())];
        files.extend(published.map(|digest| ("v1.36.2/kubelet.exe.sha256", digest)));
        files.push(("v1.36.2/kube-proxy.exe.sha256", digests(&proxy)));
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
        let mirror = Mirror::of(&files);
        let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
        let source = format!("source: {{urlTemplate: '{}/{{version}}'}}", mirror.url);
        lab.write("node.yaml", text.replace("source: {path: v1.36.2}", &source));
        (apply(&lab), lab)
    };
    let (right, lab) = run(Some(digests(&kubelet)));
    assert!(right.exits(0).json()["warnings"].is_null());
    assert!(is_ready(&lab, "win-a1"));

    let (wrong, lab) = run(Some(digests("another program")));
    let wrong = wrong.exits(6).json();
    assert_eq!((&wrong["error"]["id"], &wrong["changed"]), (&"ReleaseDigest".into(), &false.into()), "{wrong:#}");
    assert!(wrong["error"]["what"].as_str().unwrap().contains("v1.36.2/kubelet.exe"), "{wrong:#}");
    assert!(!lab.on_node("C/Program Files/Kubernetes").exists());

    let (invalid, _lab) = run(Some("<html>".into()));
    let error = invalid.json()["error"].clone();
    assert_eq!(error["id"], "ReleaseDigestFile", "{error:#}");
    assert!(error["hint"].as_str().unwrap().ends_with(": kubernetes.node.source.kubeletSHA256"), "{error:#}");

    let (missing, lab) = run(None);
    let warned = missing.exits(0).json()["warnings"].clone();
    assert_eq!(warned.as_array().unwrap().len(), 1, "{warned:#}");
    assert!(warned.to_string().contains("v1.36.2/kubelet.exe is in the config"), "{warned:#}");
    assert!(is_ready(&lab, "win-a1"));
}

#[test]
fn an_interrupted_download_of_a_program_is_resumed_by_the_next_run() {
    let lab = bare();
    let mirror = from_mirror(&lab, None);
    mirror.cut("v1.36.2/kubelet.exe");
    let before = lab.picture_without_state();
    let result = apply(&lab).exits(18).json();
    assert_eq!(
        (&result["error"]["id"], &result["changed"]),
        (&"ReleaseUnavailable".into(), &false.into()),
        "{result:#}"
    );
    lab.picture_without_state().same_as(&before);
    let _asked = mirror.asked();
    let _installed = apply(&lab).exits(0);
    let asked = mirror.asked();
    let of_kubelet: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("v1.36.2/kubelet.exe ")).collect();
    let resumed = of_kubelet.iter().any(|asked| asked.ends_with('-') && !asked.ends_with(" 0-"));
    assert!(resumed && !asked.contains(&"v1.36.2/kubelet.exe".to_owned()), "{asked:?}");
    assert!(is_ready(&lab, "win-a1"));
}

/// As with a kubeconfig and the token.
#[test]
fn a_windows_path_of_the_programs_is_on_the_sandboxs_disk() {
    let lab = bare();
    fs::rename(lab.path("v1.36.2"), lab.on_node("C/v1.36.2")).unwrap();
    let config = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", config.replace("{path: v1.36.2}", r"{path: C:\v1.36.2}"));
    let _installed = apply(&lab).exits(0);
}

#[test]
fn a_bare_machine_becomes_a_ready_node_by_one_apply() {
    let lab = bare();
    let before = lab.picture_without_state();
    let screen = lab.run("apply -c node.yaml -y").exits(0).screen();
    assert!(is_ready(&lab, "win-a1"), "{screen}");
    insta::assert_snapshot!(screen, @r"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    [ OK ]  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2, Calico v3.32.1  SECONDS
    [ OK ]  release         Calico v3.32.1, 27 files, 2.44 KiB, sha256 DIGEST ok  SECONDS
    [ OK ]  kubernetes      kubelet.exe of Kubernetes v1.36.2, sha256 DIGEST  SECONDS
    [ OK ]  kubernetes      kube-proxy.exe of Kubernetes v1.36.2, sha256 DIGEST  SECONDS
    Settings:
      calico.version                v3.32.1
      calicoNetwork.backend         vxlan
      calicoNetwork.vxlan.vxlanVNI  4096
      kubernetes.nodeName           win-a1

    Disruption: the host's network pauses, remote sessions may drop.
    Takes about 36 s.

    ! +   hns-network  Calico    Overlay, VSID 4096
    ! +   hns-network  External  Overlay, VSID 9999, 192.168.255.0/30
    39 more changes; -v lists all.
    Plan: 41 to create, 0 to update, 0 to delete.
    [ OK ]  credentials     token of service account calico-system/calico-node, valid until TIME  SECONDS
    [ 1/11] release         etc, kubernetes, pki and 7 more  SECONDS
    [ 2/11] files           calico-kube-config, config.ps1, nodename and 11 more  SECONDS
    [ 3/11] registry        Application\calicoctl-win, Tigera\Calico  SECONDS
    [ 4/11] firewall        Overlay Traffic 4789 UDP, kubectl exec 10250  SECONDS
    [ 5/11] services        CalicoFelix, CalicoNode, kube-proxy, kubelet  SECONDS
    [NOTE]  Windows is about to rebuild the virtual switch: this machine's network pauses and remote sessions may drop; the run continues without them. If this session drops: calicoctl-win status --wait --sandbox node
    [ 6/11] services-start  kubelet, CalicoNode  SECONDS
    [ 7/11] wait-network    Calico, External  SECONDS
    [ 8/11] node-startup    CalicoNode  SECONDS
    [ 9/11] services-start  CalicoFelix, kube-proxy  SECONDS
    [10/11] cni-conf        C:\Program Files\containerd\cni\conf\10-calico.conf  SECONDS
    [11/11] annotate        node win-a1 carries the digest of its settings  SECONDS
    [ OK ]  health-gate     the services work  SECONDS
    [ OK ]  node-ready      Node win-a1 is Ready  SECONDS
    Calico v3.32.1 is running on win-a1 (generation 1).
    Next: calicoctl-win status --sandbox node      Undo: calicoctl-win uninstall --sandbox node
    result: OK (exit 0) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ");
    let node = lab.object("nodes", "win-a1").unwrap();
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.2");
    assert_eq!(apply(&lab).exits(0).json()["changed"], false);
    lab.healthy();
    insta::assert_snapshot!(lab.run("status").exits(0).screen(), @r"
    OVERALL: HEALTHY   win-a1   Calico v3.32.1 (vxlan)   generation 1
     COMPONENT     STATE       DETAIL
     CalicoNode    Running     pid 4004, since TIME
     CalicoFelix   Running     pid 4012, since TIME
     kubelet       Running     pid 4000, since TIME
     kube-proxy    Running     pid 4020, since TIME
     HNS Calico    Overlay     VSID 4096, management IP 10.20.0.21
     HNS External  Overlay     VSID 9999, management IP 10.20.0.21
     HNS nat       NAT
     CNI conf      OK          C:\Program Files\containerd\cni\conf\10-calico.conf
     Credentials   kubeconfig  token valid until TIME
     K8s Node      Ready       schedulable
    result: OK (exit 0) changed=false reboot=false
    ");
    insta::assert_snapshot!(lab.read("C/var/lib/kubelet/config.yaml"), @r#"
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    authentication:
      anonymous:
        enabled: false
      webhook:
        enabled: true
      x509:
        clientCAFile: C:\etc\kubernetes\pki\ca.crt
    authorization:
      mode: Webhook
    containerRuntimeEndpoint: npipe:////./pipe/containerd-containerd
    clusterDNS:
    - "10.96.0.10"
    clusterDomain: cluster.local
    rotateCertificates: true
    cgroupsPerQOS: false
    enforceNodeAllocatable: []
    resolvConf: ""
    failSwapOn: false
    "#);
    insta::assert_snapshot!(lab.read("C/ProgramData/calicoctl-win/agent/kube-proxy.yaml"), @r#"
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: kernelspace
    hostnameOverride: win-a1
    bindAddress: "10.20.0.21"
    clientConnection:
      kubeconfig: C:\CalicoWindows\calico-kube-config
    nodePortAddresses:
    - 0.0.0.0/0
    winkernel:
      networkName: Calico
      enableDSR: true
      sourceVip: "192.168.0.2"
    "#);
    insta::assert_snapshot!(lab.read("C/ProgramData/calicoctl-win/kubernetes.json"), @r#"
    {
      "logDir": "C:\\ProgramData\\calicoctl-win\\logs\\calico",
      "programs": {
        "kube-proxy": {
          "program": "C:\\Program Files\\Kubernetes\\kube-proxy.exe",
          "args": [
            "--config=C:\\ProgramData\\calicoctl-win\\agent\\kube-proxy.yaml",
            "--v=2"
          ],
          "dir": "C:\\Program Files\\Kubernetes",
          "env": {
            "KUBE_NETWORK": "Calico"
          }
        },
        "kubelet": {
          "program": "C:\\Program Files\\Kubernetes\\kubelet.exe",
          "args": [
            "--config=C:\\var\\lib\\kubelet\\config.yaml",
            "--kubeconfig=C:\\etc\\kubernetes\\kubelet.conf",
            "--bootstrap-kubeconfig=C:\\etc\\kubernetes\\bootstrap-kubelet.conf",
            "--cert-dir=C:\\var\\lib\\kubelet\\pki",
            "--root-dir=C:\\var\\lib\\kubelet",
            "--hostname-override=win-a1",
            "--node-ip=10.20.0.21",
            "--v=2"
          ],
          "dir": "C:\\Program Files\\Kubernetes",
          "env": {}
        }
      }
    }
    "#);

    let removed = lab.run("uninstall -y").exits(0).screen();
    lab.picture_without_state().same_as(&before);
    assert!(removed.contains("this machine is as it was before"), "{removed}");
}

/// Calico's node startup waits for the Node that kubelet creates.
#[test]
fn kubelet_and_kube_proxy_are_started_with_calicos_services() {
    let lab = bare();
    let done = lab.run("apply -c node.yaml -y -o json --set services.start=false").exits(0).json();
    assert_eq!(done["next"][0], "calicoctl-win service start --sandbox node");
    let status = lab.run("status").exits(12).stdout;
    assert!(status.contains("service kube-proxy is not started, as the config says"), "{status}");
    let msg = |verb: &str| {
        let done = lab.run(&format!("service {verb} -y -o json")).exits(0).json();
        done["msg"].as_str().unwrap().to_owned()
    };
    let all = "start kubelet, start CalicoNode, start CalicoFelix, start kube-proxy";
    assert_eq!(msg("start"), all);
    assert!(is_ready(&lab, "win-a1"));
    lab.healthy();
    assert_eq!(msg("start"), "nothing to do");
    assert_eq!(msg("restart"), "stop CalicoFelix, stop CalicoNode, start CalicoNode, start CalicoFelix");
    lab.healthy();

    stop(&lab, &["kubelet"]);
    assert_eq!(msg("start"), "start kubelet");
    lab.healthy();
    stop(&lab, &["kubelet", "CalicoNode", "CalicoFelix", "kube-proxy"]);
    assert_eq!(msg("start"), all);
    lab.healthy();
}

#[test]
fn a_cloud_provider_is_passed_to_kubelet() {
    let lab = bare();
    let _installed = lab.run("apply -c node.yaml -y --set kubernetes.node.cloudProvider=external").exits(0);
    let config: Value = serde_json::from_str(&lab.read("C/ProgramData/calicoctl-win/kubernetes.json")).unwrap();
    let arguments = config["programs"]["kubelet"]["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--cloud-provider=external")), "{config:#}");
}

/// What `kubeadm join` leaves when its service is removed: kubelet's login, here with a certificate that is named without a
/// drive, and its configuration.
#[test]
fn a_node_that_kubeadm_joined_needs_no_token_and_its_lost_fields_are_named() {
    let lab = bare();
    fs::remove_file(lab.path("token")).unwrap();
    let config = |more: &str| {
        let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
        lab.write("node.yaml", text.replace("      join: {tokenFile: token}\n", more));
    };
    let certificate = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let login = format!(
        "apiVersion: v1\nkind: Config\nusers:\n- name: default-auth\n  user: {{client-certificate: {certificate}}}\n"
    );
    let theirs = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n\
                  clusterDNS: [10.96.0.10]\nmaxPods: 77\nmemorySwap: {}\nstaticPodPath: C:\\etc\\kubernetes\\manifests\n";
    lab.write("node/C/etc/kubernetes/kubelet.conf", login);
    lab.write("node/C/var/lib/kubelet/config.yaml", theirs);
    let joined = || lab.run("kubernetes status -o json").exits(0).json()["joined"].clone();
    assert_eq!(joined(), false, "there is no certificate");
    lab.write(&format!("node/C{certificate}"), "a certificate");
    assert_eq!(joined(), true);
    let before = lab.picture_without_state();

    let keeps = lab.copy();
    config("");
    let done = apply(&lab).exits(0).json();
    let warned = done["warnings"].to_string();
    assert!(warned.contains("KubeletConfigReplaced") && warned.contains("its maxPods, staticPodPath: "), "{done:#}");
    assert!(is_ready(&lab, "win-a1"));
    lab.healthy();
    assert!(!lab.read("C/var/lib/kubelet/config.yaml").contains("maxPods"));
    let again = apply(&lab).exits(0).json();
    assert!(again["changed"] == false && again["warnings"].is_null(), "{again:#}");
    let _removed = lab.run("uninstall -y").exits(0);
    assert_eq!(lab.read("C/var/lib/kubelet/config.yaml"), theirs);
    lab.picture_without_state().same_as(&before);

    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    let overrides = "      kubeletConfigOverrides: {maxPods: 77, staticPodPath: 'C:\\etc\\kubernetes\\manifests'}\n";
    keeps.write("node.yaml", text + overrides);
    programs(&keeps, "v1.36.2");
    let kept = apply(&keeps).exits(0).json();
    assert!(kept["warnings"].is_null(), "{kept:#}");
    assert!(keeps.read("C/var/lib/kubelet/config.yaml").contains("maxPods: 77"));
}

#[test]
fn a_kubelet_of_another_program_is_left_as_it_is() {
    let lab = Lab::node();
    config(&lab, "v1.36.2", "");
    let kubelet = || {
        let yaml: Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
        let kubelet = &yaml["services"]["kubelet"];
        (kubelet["definition"].clone(), kubelet["pid"].clone())
    };
    let before = kubelet();
    let done = lab.run("apply -c node.yaml -y").exits(0).stdout;
    assert!(done.contains("KubernetesServiceKept: the service kubelet was made by another program"), "{done}");
    assert_eq!(kubelet(), before);
    let services = lab.run("service status").exits(0).stdout;
    assert!(services.contains("kube-proxy   Running") && !services.contains("kubelet"), "{services}");
    let _removed = lab.run("uninstall -y").exits(0);
    assert_eq!(kubelet(), before);
    assert!(!lab.read("node.yaml").contains("kube-proxy"));
}

/// Everything that keeps a machine from joining is found before it is changed.
#[test]
fn what_keeps_a_machine_from_joining_changes_nothing() {
    let lab = bare();
    let before = lab.picture_without_state();
    let refused = |id: &str, edit: &dyn Fn(&Lab)| {
        edit(&lab);
        let failed = apply(&lab);
        let error = failed.json()["error"].clone();
        let checks = error["checks"].as_array().into_iter().flatten().map(|check| check["id"].clone());
        let named = error["id"] == id || checks.into_iter().any(|check| check == id);
        assert!(failed.code != 0 && named, "{id}: {error:#}");
        for text in [&failed.stdout, &failed.stderr, &lab.logs()] {
            assert!(!text.contains("0123456789abcdef") && !text.contains("fedcba9876543210"), "{id}: {text}");
        }
        lab.picture_without_state().same_as(&before);
    };
    refused("JoinTokenRefused", &|lab| _ = lab.write("token", "abcdef.fedcba9876543210\n"));
    refused("JoinInvalid", &|lab| _ = lab.write("token", "fedcba9876543210"));
    refused("JoinTokenMissing", &|lab| {
        let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
        lab.write("node.yaml", text.replace("join: {tokenFile: token}", "join: {}"));
    });
    let hash = format!("sha256:{}", sha256("another CA"));
    refused("JoinCaMismatch", &|lab| {
        config(lab, "v1.36.2", "");
        lab.write("token", TOKEN);
        let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
        let join = format!("join: {{tokenFile: token, caCertHashes: ['{hash}']}}");
        lab.write("node.yaml", text.replace("join: {tokenFile: token}", &join));
    });
    refused("KubernetesOtherVersion", &|lab| {
        config(lab, "v1.36.2", "");
        let text = "Stand-in for Kubernetes Windows v1.35.9, kubelet";
        lab.write("v1.36.2/kubelet.exe", text);
        lab.write("v1.36.2/kubelet.exe.sha256", sha256(text));
    });
    refused("ReleaseDigest", &|lab| _ = lab.write("v1.36.2/kubelet.exe", "another file"));
    refused("KubernetesNotFound", &|lab| fs::remove_file(lab.path("v1.36.2/kubelet.exe")).unwrap());
    refused("KubernetesVersion", &|lab| config(lab, "v1.32.0", ""));
    refused("ConfigInvalid", &|lab| config(lab, "v1.27.3", ""));
    refused("ConfigInvalid", &|lab| config(lab, "v1.36.2", "  calicoNetwork: {backend: none}\n"));
    lab.edit_yaml(|yaml| yaml.replace("runtime:\n", "runtime:\n  sandboxImage: registry.k8s.io/pause:3.5\n"));
    config(&lab, "v1.36.2", "");
    let failed = apply(&lab).exits(3);
    assert_eq!(failed.json()["error"]["checks"][0]["id"], "PauseImage", "{}", failed.stdout);
}

#[test]
fn kubeadms_file_names_token_and_ca() {
    let lab = bare();
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("join: {tokenFile: token}", "join: {configFile: join.yaml}"));
    let join = |hash: &str| {
        format!(
            "apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: 10.20.0.10:6443
    token: {TOKEN}
    caCertHashes: ['{hash}']
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
"
        )
    };
    lab.write("join.yaml", join(&format!("sha256:{}", sha256("another CA"))));
    let error = apply(&lab).json()["error"].clone();
    assert_eq!(error["id"], "JoinCaMismatch", "{error:#}");
    let found = error["what"].as_str().unwrap().split_once("the CA ").unwrap().1;
    lab.write("join.yaml", join(found.split(',').next().unwrap()));
    let _joined = apply(&lab).exits(0);
    assert!(is_ready(&lab, "win-a1"));
}

/// A machine that kubeadm's controller does not let join, `apply` by a user with the rights of `docs/rbac.yaml`, which has
/// none for certificate requests: its warnings about them, and its error.
fn unapproved(lab: &Lab) -> (Vec<String>, Value) {
    with_ops(lab);
    lab.remove_objects(|kind, object| {
        kind == "clusterrolebindings.rbac.authorization.k8s.io"
            && object["metadata"]["name"] == "kubeadm:node-autoapprove-bootstrap"
    });
    let before = lab.picture_without_state();
    let lines = lab.run("apply -c node.yaml -y -o ndjson --kubeconfig ops.yaml").exits(11).ndjson();
    lab.picture_without_state().same_as(&before);
    let warned = lines.iter().filter(|line| line["id"] == "JoinPending" && line["type"] == "diagnostic");
    let warned = warned.map(|line| line["message"].as_str().unwrap().to_owned()).collect();
    (warned, lines.last().unwrap()["error"].clone())
}

/// By the bootstrap token: kubelet must see its own request.
#[test]
fn a_certificate_that_nobody_approves_is_named_while_the_run_waits() {
    let lab = bare();
    let (warned, error) = unapproved(&lab);
    let requests = lab.objects().into_iter().filter(|found| found.0 == REQUESTS);
    let requests: Vec<String> = requests.map(|found| found.1).collect();
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    let [message] = warned.as_slice() else { panic!("{warned:?}") };
    assert!(message.contains(&format!("kubectl certificate approve {request}")), "{message}");
    assert!(error["id"] == "JoinPending" && error["what"].as_str().unwrap().contains(request), "{error:#}");
}

/// kubelet itself never sees the certificate that such a token requests.
#[test]
fn a_token_that_may_only_request_is_named_too() {
    let lab = bare();
    lab.edit_object("clusterroles.rbac.authorization.k8s.io", "kubeadm:kubelet-bootstrap", |role| {
        role["rules"][0]["verbs"] = json!(["create"]);
    });
    let (warned, error) = unapproved(&lab);
    insta::assert_snapshot!(warned.join("\n"), @"kubelet waits for its certificate; this user may not list the requests, so find the pending one of this node and approve it: kubectl get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet; kubectl certificate approve NAME");
    insta::assert_snapshot!(format!("{}\n{}", error["what"].as_str().unwrap(), error["hint"].as_str().unwrap()), @r"
    kubelet waited for its certificate, and neither this user nor the bootstrap token may list the requests
    bind the token's group to the ClusterRole system:node-bootstrapper: kubeadm's binding is kubeadm:kubelet-bootstrap
    to see the requests, with the right to list them: kubectl get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet
    ");
}

#[test]
fn a_node_that_has_joined_needs_no_token_any_more() {
    let lab = bare();
    let _first = apply(&lab).exits(0);
    fs::remove_file(lab.path("token")).unwrap();
    assert_eq!(apply(&lab).exits(0).json()["changed"], false, "the config still names it");
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("join: {tokenFile: token}", "join: {}"));
    assert_eq!(apply(&lab).exits(0).json()["changed"], false);
    fs::remove_dir_all(lab.path("v1.36.2")).unwrap();
    assert_eq!(apply(&lab).exits(0).json()["changed"], false, "nor the programs");
    let _changed = lab.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    lab.healthy();
    let _back = lab.run("rollback -y").exits(0);
    lab.healthy();
}

/// What changed on the machine, in order.
pub fn phases(output: &Output) -> Vec<String> {
    let done = |line: &&Value| line["type"] == "phase_complete" && line["changed"] == true;
    output
        .ndjson()
        .iter()
        .filter(done)
        .map(|line| format!("{}: {}", line["phase"]["id"].as_str().unwrap(), line["message"].as_str().unwrap()))
        .collect()
}

#[test]
fn kubelet_restarts_only_for_what_it_reads() {
    let lab = bare();
    let _first = apply(&lab).exits(0);
    let change = |set: &str| phases(&lab.run(&format!("reconfigure -y -o ndjson --set {set}")).exits(0)).join("\n");
    insta::assert_snapshot!(change("kubernetes.node.clusterDomain=corp.example"), @r"
    services-stop: kubelet
    files: C:\var\lib\kubelet\config.yaml
    services-start: kubelet
    node-startup: CalicoNode
    annotate: node win-a1 carries the digest of its settings
    ");
    insta::assert_snapshot!(change("calicoNetwork.vxlan.vxlanVNI=5000"), @r"
    cordon: node win-a1: no new pods come
    drain: evicted 0 pods, 1 remains
    files: C:\CalicoWindows\config.ps1
    cni-conf: C:\Program Files\containerd\cni\conf\10-calico.conf
    pods: Calico
    services-stop: kube-proxy, CalicoFelix, CalicoNode
    hns-network: Calico
    files: C:\ProgramData\calicoctl-win\felix.json, C:\ProgramData\calicoctl-win\services.json
    services-start: CalicoNode
    wait-network: Calico
    node-startup: CalicoNode
    services-start: CalicoFelix, kube-proxy
    cni-conf: C:\Program Files\containerd\cni\conf\10-calico.conf
    annotate: node win-a1 carries the digest of its settings
    uncordon: node win-a1 is uncordoned
    ");
    insta::assert_snapshot!(change("services.felixLogSeverity=debug"), @r"
    files: C:\CalicoWindows\config.ps1
    services-stop: CalicoFelix
    files: C:\ProgramData\calicoctl-win\felix.json
    node-startup: CalicoNode
    services-start: CalicoFelix
    annotate: node win-a1 carries the digest of its settings
    ");
    lab.healthy();
}

#[test]
fn kubernetes_is_upgraded_one_minor_version_at_a_time_and_rolled_back() {
    let lab = bare();
    config(&lab, "v1.34.1", "");
    let _first = apply(&lab).exits(0);
    let version = || lab.read("C/Program Files/Kubernetes/kubelet.exe");
    config(&lab, "v1.36.2", "");
    let failed = apply(&lab);
    let check = failed.json()["error"]["checks"][0].clone();
    assert_eq!(check["id"], "KubernetesVersion", "{check:#}");
    assert!(check["detail"].as_str().unwrap().contains("the next minor version is v1.35"), "{check:#}");
    config(&lab, "v1.35.0", "");
    let _next = apply(&lab).exits(0);
    assert!(version().contains("v1.35.0"));
    lab.healthy();
    let _back = lab.run("rollback -y").exits(0);
    assert!(version().contains("v1.34.1"));
    lab.healthy();
}

#[test]
fn a_changed_program_or_configuration_is_drift_and_repaired() {
    let lab = bare();
    let _first = apply(&lab).exits(0);
    let before = lab.picture_without_state();
    lab.write("node/C/var/lib/kubelet/config.yaml", "edited");
    lab.write("node/C/Program Files/Kubernetes/kube-proxy.exe", "another");
    let status = lab.run("status -o json").json();
    assert_eq!(status["drift"].as_array().unwrap().len(), 2, "{status:#}");
    let _repaired = lab.run("repair -y").exits(0);
    lab.picture_without_state().only_disk().same_as(&before.only_disk());
    lab.healthy();
}

#[test]
fn status_says_that_kubelet_or_kube_proxy_ends_again_and_again() {
    let lab = bare();
    let _first = apply(&lab).exits(0);
    for (name, code, file, text) in [
        ("kube-proxy", 255, "Program Files/Kubernetes/kube-proxy.exe", "a program that crashes with 255"),
        ("kubelet", 1, "var/lib/kubelet/config.yaml", "kind: Nothing\n"),
    ] {
        let lab = lab.copy();
        lab.write(&format!("node/C/{file}"), text);
        stop(&lab, &[name]);
        let failed = lab.run("service start -y -o json").exits(11).json();
        assert_eq!(failed["error"]["id"], "ServiceNotSteady", "{failed:#}");
        assert!(failed["msg"].as_str().unwrap().contains(&format!("{name} does not work")), "{failed:#}");
        let status = lab.run("status -o json").exits(12).json();
        let service = status["services"].as_array().unwrap().iter().find(|service| service["name"] == name).unwrap();
        assert_eq!((&service["restarts"], &service["crash_loop"]), (&json!(3), &json!(true)), "{service:#}");
        assert!(status["reasons"].to_string().contains(&format!("{name} is in a crash loop")), "{status:#}");
        let screen = lab.run("status").exits(12).stdout;
        assert!(screen.contains(&format!("3 restarts, crash loop (exit code {code})")), "{screen}");
    }
}

/// The agent itself, and not the program that it keeps running: later after each crash.
#[test]
fn windows_restarts_an_agent_of_kubelet_or_kube_proxy_that_crashes() {
    let lab = bare();
    let _first = apply(&lab).exits(0);
    let mut node = SandboxNode::open(&lab.path("node")).unwrap();
    for name in ["kubelet", "kube-proxy"] {
        for seconds in [5, 10, 60, 60] {
            node.crash_service(name).unwrap();
            let runs = |node: &SandboxNode| node.process(name).unwrap().is_some();
            node.pause(Duration::from_secs(seconds - 1));
            assert!(!runs(&node), "{name}: within {seconds} s");
            node.pause(Duration::from_secs(1));
            assert!(runs(&node), "{name}: after {seconds} s");
        }
    }
}

#[test]
fn without_the_section_both_are_removed_again_and_calico_stays() {
    let lab = bare();
    let _first = apply(&lab).exits(0);
    let _without = lab.run("reconfigure -y --set kubernetes.node.install=false --no-drain").exits(0);
    let services = lab.run("service status").exits(0).stdout;
    assert!(!services.contains("kube"), "{services}");
    assert!(!lab.on_node("C/Program Files/Kubernetes").exists());
    assert!(!lab.on_node("C/etc/kubernetes").exists());
}

/// At every seventh change, before it is made: the rest are between the same states.
#[test]
fn a_run_that_is_killed_is_finished_or_undone() {
    let ground = bare();
    let before = ground.picture_without_state();
    let words = "apply -c node.yaml -y";
    let start = |ground: &Lab| {
        let lab = ground.copy();
        config(&lab, "v1.36.2", "");
        lab.write("token", TOKEN);
        lab
    };
    let mut killed = 0;
    for point in (3..).step_by(7) {
        let lab = start(&ground);
        let output = lab.fails_at(&format!("*#{point}=exit-before"), words);
        if output.code == 0 {
            break;
        }
        assert_eq!(output.code, 137, "{point}: {output:?}");
        killed += 1;
        if !lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists() {
            lab.picture_without_state().same_as(&before);
            continue;
        }
        let back = lab.copy();
        let _undone = back.run("resume --undo -y").exits(0);
        back.picture_without_state().same_as(&before);
        let _finished = lab.run("resume -y").exits(0);
        assert!(is_ready(&lab, "win-a1"), "{point}");
        lab.healthy();
    }
    assert!(killed > 8, "{killed}");
}

#[test]
fn the_verbs_install_show_and_remove_both() {
    let lab = bare();
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("      install: true\n", ""));
    let shown = |lab: &Lab| lab.run("kubernetes status -o json").exits(0).json();
    let none = shown(&lab);
    assert_eq!((&none["services"][0]["owner"], &none["joined"]), (&"none".into(), &false.into()), "{none:#}");
    let _installed = lab.run("kubernetes install -c node.yaml -y").exits(0);
    assert!(is_ready(&lab, "win-a1"));
    insta::assert_snapshot!(lab.run("kubernetes status").exits(0).stdout, @r"
    kubelet    Running, v1.36.2 (pid 4000)
    kube-proxy Running, v1.36.2 (pid 4020)
    kubelet has joined the cluster
    result: OK (exit 0) changed=false reboot=false
    ");
    let _removed = lab.run("kubernetes uninstall -y").exits(0);
    assert_eq!(shown(&lab)["services"], none["services"]);
    let other = Lab::node();
    insta::assert_snapshot!(other.run("kubernetes status").exits(0).stdout, @r"
    kubelet    Running, of another program: C:\k\kubelet.exe --windows-service --kubeconfig=C:\k\config
    kube-proxy not a service of this machine
    result: OK (exit 0) changed=false reboot=false
    ");
}

/// A pod of a Deployment on the node, as kubelet runs it.
fn with_a_pod(lab: &Lab) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-1", "namespace": "demo", "uid": "web-1",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}],
        },
        "spec": {"nodeName": "win-a1", "containers": [{"name": "web", "image": "web"}]},
        "status": {"phase": "Running"},
    });
    lab.add_object("pods", pod);
}

/// Kubernetes supports another minor version of kubelet only without pods.
#[test]
fn kubelet_gets_another_minor_version_on_a_drained_node_only() {
    let lab = bare();
    config(&lab, "v1.34.1", "");
    let _first = apply(&lab).exits(0);
    with_a_pod(&lab);
    let is_here = |lab: &Lab| lab.object("pods", "web-1").is_some();
    let drained = |output: &Output| phases(output).iter().any(|phase| phase.starts_with("drain"));

    config(&lab, "v1.34.2", "");
    let plan = lab.run("plan -c node.yaml -o json").exits(0).json();
    assert_eq!((&plan["needs_drain"], &plan["kubelet_minor"]), (&json!(false), &Value::Null), "{plan:#}");
    assert!(!drained(&lab.run("apply -c node.yaml -y -o ndjson").exits(0)));
    assert!(is_here(&lab), "a patch release moves no pod");

    config(&lab, "v1.35.0", "");
    let plan = lab.run("plan -c node.yaml").exits(0).stdout;
    let why = "kubelet v1.34.2 -> v1.35.0 is another minor version, which Kubernetes supports only without pods";
    assert!(plan.contains("Drain: needed.") && plan.contains(why), "{plan}");
    let refused = lab.run("install -c node.yaml -y -o json");
    assert_eq!(refused.json()["error"]["id"], "NeedsDrain", "{refused}");
    assert_eq!(refused.json()["error"]["what"], why, "{refused}");

    let never = lab.copy();
    never.write("token", TOKEN);
    config(&never, "v1.35.0", "");
    let warned = never.run("apply -c node.yaml -y --drain=never").exits(0).stdout;
    assert!(warned.contains(&format!("NotDrained: the pods on this node remain: {why}")), "{warned}");
    assert!(!warned.contains("lose their network") && is_here(&never), "{warned}");

    let upgraded = lab.run("upgrade -c node.yaml -y -o ndjson").exits(0);
    assert!(drained(&upgraded) && !is_here(&lab), "{upgraded}");
    assert_ne!(lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"], true);
    lab.healthy();

    with_a_pod(&lab);
    let back = lab.run("rollback -y -o ndjson").exits(0);
    assert!(drained(&back) && !is_here(&lab), "{back}");
    lab.healthy();
}
