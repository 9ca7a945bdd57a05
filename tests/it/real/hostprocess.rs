//! The manifests of `packaging/hostprocess` on a real cluster: its admission, its controllers, and the rights of the
//! pods' account.

use serde_json::Value;

use super::api_server::until;
use super::audit::{are_modest, counted};
use super::cluster::{Joined as _, NODE, RealCluster, V1};
use crate::lab::Output;
use crate::read;

const PODS: &str = "/api/v1/namespaces/calicoctl-win/pods";

/// Whom the API server's audit log names for the pods' requests.
const ACCOUNT: &str = "system:serviceaccount:calicoctl-win:calicoctl-win";

/// The same for the pods of a fleet.
const OF_FLEET: &str = "system:serviceaccount:fleet:calicoctl-win";

/// Rights of a fleet's account that its runs here need not use, and when they do.
const UNUSED: [(&str, &str); 11] = [
    ("list nodes", "the machine's Node has another name, which its address finds"),
    ("get pods", "a pod is not gone when the watch of its drain ends"),
    ("delete pods", "kubelet attached pods again after the drain"),
    ("list daemonsets", "Flannel is on the machine"),
    ("watch poddisruptionbudgets", "a budget delays an eviction"),
    ("patch leases in kube-node-lease", "the run takes longer than the Lease"),
    ("get serviceaccounts calico-node in kube-system", "Calico is in kube-system"),
    ("get configmaps amazon-vpc-cni in kube-system", "the cluster is Amazon's"),
    ("get configmaps aws-auth in kube-system", "the cluster is Amazon's"),
    ("get deployments vpc-resource-controller in kube-system", "the cluster is Amazon's"),
    ("get deployments vpc-admission-webhook in kube-system", "the cluster is Amazon's"),
];

impl RealCluster {
    /// The rights of a fleet's account that none of its requests needed, by the audit log: `verb resource name`.
    fn unused(&self, objects: &str) -> Vec<String> {
        let audit = self.audit();
        let asked: Vec<&Value> = audit.iter().filter(|line| line["user"]["username"] == OF_FLEET).collect();
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut unused = Vec::new();
        for role in objects.split("---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap()) {
            let name = role["metadata"]["name"].as_str().unwrap();
            if !name.starts_with("calicoctl-win-fleet") || role["rules"].is_null() {
                continue;
            }
            let namespace = &role["metadata"]["namespace"];
            for rule in role["rules"].as_array().unwrap() {
                let (groups, resources) = (texts(&rule["apiGroups"]), texts(&rule["resources"]));
                let names = texts(&rule["resourceNames"]);
                let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
                // One name of a group and of a resource is enough: a cluster has only one of them.
                let used = |verb: &str, name: Option<&String>| {
                    asked.iter().any(|line| {
                        let object = &line["objectRef"];
                        let part = |field: &str| object[field].as_str().unwrap_or_default();
                        let subresource = part("subresource");
                        let slash = if subresource.is_empty() { "" } else { "/" };
                        let resource = format!("{}{slash}{subresource}", part("resource"));
                        line["verb"] == verb
                            && resources.contains(&resource)
                            && groups.iter().any(|group| group == part("apiGroup"))
                            && (namespace.is_null() || *namespace == object["namespace"])
                            && name.is_none_or(|name| name == part("name"))
                    })
                };
                for (verb, name) in
                    texts(&rule["verbs"]).iter().flat_map(|verb| names.iter().map(move |name| (verb, name)))
                {
                    if !used(verb, name.as_ref()) {
                        let within =
                            namespace.as_str().map_or_else(String::new, |namespace| format!(" in {namespace}"));
                        let name = name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
                        unused.push(format!("{verb} {}{name}{within}", resources[0]));
                    }
                }
            }
        }
        unused
    }

    /// Applies a manifest, whose unknown fields are errors. Returns what a server that refuses it says.
    fn applies(&self, manifest: &str) -> Result<String, String> {
        self.server.try_kubectl(&["apply", "--server-side", "--validate=strict", "-f", "-"], manifest)
    }

    /// Runs a command with an account, whose kubeconfig is a file, and holds what it asks of the server: every node of a
    /// fleet does.
    fn runs_as(&self, (account, kubeconfig): (&str, &str), words: &str, most: usize) -> Value {
        let mark = self.mark();
        let words = format!("{words} --kubeconfig {kubeconfig} -o json --sandbox node");
        let command = match account == OF_FLEET && words.starts_with("apply") {
            true => self.lab.command_of_pod(&words),
            false => self.lab.command(&words),
        };
        let done = Output::of(&words, command).exits(0).json();
        let asked = self.asked_since(mark, account);
        are_modest(&asked);
        let counts = counted(&asked);
        println!("{words}: {} requests {counts:?}", asked.len());
        assert!((1..=most).contains(&asked.len()), "{} requests, {counts:?}\n{asked:#?}", asked.len());
        done
    }
}

#[test]
fn a_real_cluster_admits_the_pods_and_their_account_applies_the_config() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    let install = read("packaging/hostprocess/install.yaml");
    let job = read("packaging/hostprocess/job.yaml").replace("hostname: node-1", &format!("hostname: {NODE}"));
    cluster.applies(&install).unwrap();
    cluster.applies(&job).unwrap();
    // Both controllers create a pod, which is admitted as it is.
    let pods = until("the controllers' pods", || {
        let pods = cluster.server.get(PODS)["items"].as_array().unwrap().clone();
        (pods.len() == 2).then_some(pods)
    });
    for pod in &pods {
        assert_eq!(pod["spec"]["securityContext"]["windowsOptions"]["hostProcess"], true, "{pod:#}");
    }
    let of = |kind: &str| pods.iter().find(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == kind);
    assert!(of("DaemonSet").is_some());
    let once = of("Job").unwrap()["metadata"]["name"].as_str().unwrap();

    // It knows what a HostProcess pod is.
    let other = job.replace("name: calicoctl-win-node-1", "name: calicoctl-win-node-2");
    let said = cluster.applies(&other.replace("hostNetwork: true", "hostNetwork: false")).unwrap_err();
    assert!(said.contains("hostNetwork"), "{said}");

    // The account's token, as it is in a pod, has the rights for a whole run.
    let token = cluster.kubectl(&["create", "token", "calicoctl-win", "-n", "calicoctl-win"], "");
    cluster.lab.write("pod", cluster.server.kubeconfig_of(token.trim()));
    cluster.config(cluster.release());
    let account = (ACCOUNT, "pod");
    let applied = cluster.runs_as(account, "apply -y -c config.yaml", 60);
    assert_eq!(applied["changed"], true, "{applied:#}");
    cluster.bind_pods();
    let with_drain = "apply -y -c config.yaml --drain=always --pod-selector=app.kubernetes.io/name!=calicoctl-win-job \
                      --set calicoNetwork.vxlan.vxlanVNI=5000";
    let changed = cluster.runs_as(account, with_drain, 80);
    assert_eq!(changed["evicted"].as_array().map(Vec::len), Some(3), "{changed:#}");
    assert!(!cluster.cordoned());
    let again = cluster.runs_as(account, "apply -y -c config.yaml --set calicoNetwork.vxlan.vxlanVNI=5000", 50);
    assert_eq!(again["changed"], false, "{again:#}");
    // The drain leaves the pod whose run it is.
    assert_eq!(cluster.server.get(&format!("{PODS}/{once}"))["metadata"]["deletionTimestamp"], Value::Null);

    // So have the roles of a fleet, which has less.
    cluster.lab.write("fleet.yaml", "spec: {calico: {version: v3.31.7}}\n");
    let fleet = "render fleet -c fleet.yaml --image host/c:1 --api-server https://192.0.2.10:6443 --namespace fleet";
    let objects = cluster.lab.bare(fleet).exits(0).stdout;
    cluster.applies(&objects).unwrap();
    let token = cluster.kubectl(&["create", "token", "calicoctl-win", "-n", "fleet"], "");
    cluster.lab.write("of-fleet", cluster.server.kubeconfig_of(token.trim()));
    let account = (OF_FLEET, "of-fleet");
    cluster.bind_pods();
    let changed = cluster.runs_as(account, &with_drain.replace("5000", "6000"), 80);
    // kubelet's own code here is Linux's and refuses the pods of the fleet, which are then finished.
    let evicted =
        changed["evicted"].as_array().unwrap().iter().filter(|pod| pod.as_str().unwrap().starts_with("demo/"));
    assert_eq!(evicted.count(), 3, "{changed:#}");
    let removed = cluster.runs_as(account, "uninstall -y", 80);
    assert_eq!(removed["changed"], true, "{removed:#}");
    let installed = cluster.runs_as(account, "apply -y -c config.yaml", 80);
    assert_eq!(installed["changed"], true, "{installed:#}");
    let unused = cluster.unused(&objects);
    let not_needed: Vec<&String> =
        unused.iter().filter(|right| !UNUSED.iter().any(|(known, _)| known == right)).collect();
    assert!(not_needed.is_empty(), "no run used these: {not_needed:#?}");
}
