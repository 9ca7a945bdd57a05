//! `policy lint`: what Windows does not enforce, and what is expensive there, in files and in a cluster.

use calicoctl_win::policy::{KINDS, Severity};
use serde_json::{Value, json};

use super::credentials::runs_with_etcd;
use crate::etcd::Member;
use crate::lab::{Lab, Output};

const EVERY_KIND: &str = "tests/fixtures/policies/every-kind.yaml";

fn with_file() -> Lab {
    let lab = Lab::new();
    lab.write("every-kind.yaml", crate::read(EVERY_KIND));
    lab
}

/// Each finding as `severity id place: detail`, and what to write instead below it.
fn findings(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |finding: &Value| {
        let namespace = finding["namespace"].as_str().map_or_else(String::new, |namespace| format!("{namespace}/"));
        let counts = match (&finding["endpoints"], &finding["members"]) {
            (Value::Null, _) => String::new(),
            (endpoints, members) => format!(" [{endpoints} x {members}]"),
        };
        let rewrite = text(&finding["rewrite"]).lines().map(|line| format!("\n    {line}")).collect::<String>();
        let [severity, id, name, rule, detail] =
            ["severity", "id", "name", "rule", "detail"].map(|f| text(&finding[f]));
        format!("{severity} {id} {namespace}{name} {rule}{counts}: {detail}{rewrite}")
    };
    report["findings"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_kind_of_finding_is_shown_with_its_rule_and_what_to_write_instead() {
    let lab = with_file();
    let report = lab.bare("policy lint -f every-kind.yaml -o json").exits(3).json();
    insta::assert_snapshot!(findings(&report), @r#"
    fail PolicyDenySkipped cluster ingress[0]: a named port: protocols[1]; what it should deny may be allowed by ingress[2]
        the number of the port instead of the name metrics
    fail PolicyDenySkipped deny-outside egress[0]: a negated match: destination.notSelector; no rule after it in this policy allows anything, but those of other policies may
        destination.selector: "(role == 'db') && !(tier == 'front' || has(public))", without notSelector
    fail PolicyDenySkipped deny-outside egress[1]: a named port: destination.ports; no rule after it in this policy allows anything, but those of other policies may
        the number of the port instead of the name http
    fail PolicyDenySkipped deny-outside ingress[0]: a negated match: source.notNets, destination.notPorts; what it should deny may be allowed by ingress[1]
        source.nets: [0.0.0.0/5, 8.0.0.0/7, 11.0.0.0/8, 12.0.0.0/6, 16.0.0.0/4, 32.0.0.0/3, 64.0.0.0/2, 128.0.0.0/1], without notNets
        destination.ports: ["1:79", "81:7999", "8101:65535"], without notPorts
    fail PolicyHttpIgnored shop/default.web ingress[1]: it is enforced as Allow without `http`
    fail PolicyPortIgnored admins ingress[0]: a named port: ports[1]
        portNumber or portRange instead of namedPort
    fail PolicyNotConverted admins egress[0]: to[0].nodes cannot be converted, so Calico denies all traffic instead
    fail PolicyNotConverted admins egress[2]: ports[0].portRange cannot be converted, so Calico drops the rule
    fail PolicyNotConverted cluster egress[0]: to[0].domainNames cannot be converted, so Calico drops the rule
    fail PolicyNotConverted default egress[0]: action Pass cannot be converted, so Calico drops the rule
    fail PolicyNotConverted default egress[1]: to[0].networks: everywhere cannot be converted, so Calico denies all traffic instead
    fail PolicyAllowSkipped cluster ingress[1]: a named port: protocols[0]; if no other rule of its tier matches, later tiers decide
        the number of the port instead of the name web
    fail PolicyAllowSkipped shop/default.web ingress[2]: an ICMP type: icmp
    fail PolicyAllowSkipped shop/default.web ingress[4]: a negated match: notProtocol
    fail PolicyAllowSkipped shop/legacy ingress[0]: a negated match: from[0].ipBlock.except
        an ipBlock without except instead of from[0] for each of: 10.0.0.0/9
    fail PolicyAllowSkipped shop/legacy ingress[1]: a named port: ports[0]
        the number of the port instead of the name metrics
    fail PolicySelectorInvalid default : spec.subject.pods.podSelector: `Near` is none of In, NotIn, Exists, DoesNotExist
    fail PolicySelectorInvalid shop/legacy egress[0]: to[0].podSelector: `Near` is none of In, NotIn, Exists, DoesNotExist
    fail PolicySelectorInvalid shop/list egress[1]: source.selector: expected ==, !=, in, not in, contains, starts with or ends with at character 5 of `app = 'web'`
    warn PolicyForHosts hosts : with preDNAT it is only for host endpoints
    warn PolicyEveryPod admins ingress[1]: it has a selector of every pod
    warn PolicyEveryPod cluster egress[1]: it has a selector of every pod
        networks with the CIDR of the cluster's pods instead of the selector
    warn PolicyEveryPod cluster ingress[1]: it has a selector of every pod
    warn PolicyEveryPod shop/default.web ingress[6]: it has a selector of every pod
        nets with the CIDR of the cluster's pods instead of the selector
    warn PolicyEveryPod shop/legacy ingress[0]: it has a selector of every pod
        an ipBlock with the CIDR of the cluster's pods
    warn PolicyBothSelectors shop/default.web ingress[5]: it has a source and a destination selector
        spec.selector: "(app == 'web') && (role == 'api')" in a policy with only this rule, without destination.selector
    warn PolicyLongList shop/list egress[0]: it has a long list of nets and ports
        destination.nets: [10.7.0.0/18]
    warn PolicyLogSkipped shop/default.web ingress[0]: its action is Log
    warn PolicyIpv6Skipped admins egress[1]: to[0].networks is only for IPv6
    warn PolicyIpv6Skipped shop/default.web ingress[3]: ipVersion is only for IPv6
    "#);
    assert_eq!(report["kind"], "PolicyReport");
    assert_eq!(report["summary"]["policies"], 9);
    assert_eq!(report["summary"]["staged"], 1);
    for kind in KINDS.iter().filter(|kind| !matches!(kind.id, "PolicyManyMembers" | "PolicyNotRead" | "PolicyRefused"))
    {
        let found = report["findings"].as_array().unwrap().iter().any(|finding| finding["id"] == kind.id);
        assert!(found, "{EVERY_KIND} has no {}", kind.id);
    }
}

#[test]
fn a_misspelled_policy_is_no_clean_policy() {
    let lab = Lab::new();
    let policy = |api: &str, spec: Value| json!({"apiVersion": api, "kind": "NetworkPolicy", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    for (api, spec, detail) in [
        ("projectcalico.org/v3", json!({"types": ["Ingress"], "ingres": []}), "spec.ingres: there is no such field"),
        (
            "crd.projectcalico.org/v1",
            json!({"egress": [{"action": "deny"}]}),
            "spec.egress[0].action: `deny` is none of Allow, Deny, Log, Pass",
        ),
        (
            "projectcalico.org/v3",
            json!({"egress": [{"action": "Deny", "protocol": "TPC"}]}),
            "spec.egress[0].protocol: \"TPC\" is no protocol",
        ),
        (
            "projectcalico.org/v3",
            json!({"egress": [{"action": "Deny", "protocol": "TCP", "destination": {"ports": [99999]}}]}),
            "spec.egress[0].destination.ports[0]: 99999 is no port from 0 to 65535",
        ),
        (
            "networking.k8s.io/v1",
            json!({"podSelector": {}, "ingress": [{"from": [{"podselector": {}}]}]}),
            "spec.ingress[0].from[0].podselector: there is no such field",
        ),
    ] {
        lab.write("policy.json", policy(api, spec).to_string());
        let report = lab.bare("policy lint -f policy.json -o json").exits(3).json();
        let found = report["findings"].as_array().unwrap().iter().find(|one| one["id"] == "PolicyRefused");
        assert_eq!(found.unwrap()["detail"], detail, "{report:#}");
    }
}

/// Every field of Calico's CRDs is one that a policy may have.
#[test]
fn no_field_of_calicos_own_schemas_is_refused() {
    /// A value with every field of a schema.
    fn whole(schema: &Value) -> Value {
        if let Some(fields) = schema["properties"].as_object() {
            return fields.iter().map(|(name, field)| (name.clone(), whole(field))).collect();
        }
        match (&schema["items"], &schema["enum"][0], &schema["type"]) {
            (items @ Value::Object(_), ..) => json!([whole(items)]),
            (_, first, _) if !first.is_null() => first.clone(),
            (_, _, kind) if kind == "boolean" => json!(true),
            (_, _, kind) if kind == "integer" || kind == "number" => json!(4),
            (_, _, kind) if kind == "object" => json!({}),
            _ if schema["x-kubernetes-int-or-string"] == true => json!(6),
            _ => json!(""),
        }
    }
    let lab = Lab::new();
    let mut read = 0;
    for group in ["crd.projectcalico.org-v1", "projectcalico.org-v3"] {
        let text = crate::read(&format!("tests/fixtures/calico-crds/{group}.yaml"));
        for document in text.split("\n---\n") {
            let crd: Value = serde_yaml::from_str(document).unwrap();
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
            if !["NetworkPolicy", "GlobalNetworkPolicy"].contains(&kind.as_str()) {
                continue;
            }
            let mut spec = whole(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
            for direction in ["ingress", "egress"] {
                spec[direction][0]["action"] = "Allow".into();
            }
            spec["types"] = json!(["Ingress"]);
            let api = group.replace("-v", "/v");
            let policy = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
            lab.write("policy.json", policy.to_string());
            let report = lab.bare("policy lint -f policy.json -o json").json();
            let refused = |one: &&Value| one["id"] == "PolicyRefused";
            let found: Vec<&Value> = report["findings"].as_array().unwrap().iter().filter(refused).collect();
            assert!(found.is_empty(), "{found:#?}");
            read += 1;
        }
    }
    assert_eq!(read, 4);
}

#[test]
fn text_has_the_worst_last_and_junit_a_case_for_each() {
    let lab = with_file();
    let text = lab.bare("policy lint -f every-kind.yaml").exits(3).stdout;
    let fails = text.rfind("[FAIL] PolicyDenySkipped").unwrap();
    assert!(text.find("[WARN]").unwrap() < fails && text.contains("9 policies: 19 failures, 11 warnings"), "{text}");
    let quiet = lab.bare("policy lint -f every-kind.yaml -q").exits(3).stdout;
    assert!(!quiet.contains("[WARN]") && quiet.contains("[FAIL]"), "{quiet}");
    let junit = lab.bare("policy lint -f every-kind.yaml -o junit").exits(3).stdout;
    for part in [
        "<testsuite name=\"calicoctl-win policy lint\"",
        "<testcase classname=\"globalnetworkpolicy.projectcalico.org deny-outside ingress[0]\" name=\"PolicyDenySkipped\">",
        "<failure message=",
        "name=\"PolicyManyMembers\">\n    <system-out>none of 9 policies",
    ] {
        assert!(junit.contains(part), "no {part} in {junit}");
    }
}

#[test]
fn policies_are_read_from_json_folders_and_stdin() {
    let lab = Lab::new();
    let policy = |name: &str| {
        json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy", "metadata": {"name": name},
            "spec": {"ingress": [{"action": "Log"}]},
        })
    };
    std::fs::create_dir(lab.path("all")).unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy("a"), policy("b")]});
    lab.write("all/list.json", format!("{list:#}"));
    lab.write("all/one.yaml", format!("# JSON is YAML too\n{}\n---\n---\n{}\n", policy("c"), policy("d")));
    lab.write("all/notes.txt", "this: is: not: read");
    let read = |output: Output| output.exits(0).json()["summary"]["policies"].clone();
    assert_eq!(read(lab.bare("policy lint -f all -o json")), 4);
    assert_eq!(read(lab.bare("policy lint -f all/list.json -f all/one.yaml -o json")), 4);
    let mut command = lab.command("policy lint -f - -o json");
    command.stdin(std::fs::File::open(lab.path("all/list.json")).unwrap());
    assert_eq!(read(Output::of("policy lint -f -", command)), 2);
}

#[test]
fn a_bad_file_gives_one_error_with_the_file_the_line_and_what_to_do() {
    let lab = Lab::new();
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: n}\n";
    lab.write("torn.yaml", "kind: [NetworkPolicy\n");
    lab.write("type.yaml", format!("{policy}---\n{policy}spec:\n  ingress: everything\n"));
    lab.write("torn.json", "{\"kind\": \"NetworkPolicy\",");
    lab.write("other.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n");
    lab.write("bytes.yaml", [0xff_u8, 0x80, 0x80]);
    std::fs::create_dir(lab.path("empty")).unwrap();
    let mut said = Vec::new();
    for file in ["torn.yaml", "type.yaml", "torn.json", "other.yaml", "bytes.yaml", "missing.yaml", "empty"] {
        let error = lab.bare(&format!("policy lint -f {file} -o json")).exits(4).json()["error"].take();
        assert_eq!(error["id"], "PolicyFileInvalid");
        said.push(format!("{}\n  {}", error["what"].as_str().unwrap(), error["hint"].as_str().unwrap()));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    torn.yaml: unclosed bracket '[' at line 1, column 7
      correct the file; to see what the API accepts: kubectl apply --dry-run=server -f FILE
    type.yaml: NetworkPolicy a: spec: invalid type: string "everything", expected a sequence at line 5, column 1
      correct the file; to see what the API accepts: kubectl apply --dry-run=server -f FILE
    torn.json: unclosed bracket '{' at line 1, column 1
      correct the file; to see what the API accepts: kubectl apply --dry-run=server -f FILE
    there is no network policy in other.yaml
      give files with network policies of any kind, as kubectl and calicoctl get them with -o yaml
    bytes.yaml: it is not UTF-8
      save the file as UTF-8, then run the command again
    cannot read the policies in missing.yaml
      name a file, a folder, or - for stdin with --file
    there is no network policy in empty
      give files with network policies of any kind, as kubectl and calicoctl get them with -o yaml
    "#);
}

/// Adds the policies of this test, and the pods that they select.
fn fill(lab: &Lab, group: &str) {
    let pod = |name: &str, namespace: &str, app: &str, node: &str| {
        lab.add_object(
            "pods",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "labels": {"app": app}},
                "spec": {"nodeName": node, "containers": [{"name": "a", "image": "a"}]}, "status": {"phase": "Running"},
            }),
        );
    };
    for n in 0..3 {
        pod(&format!("lint-web-{n}"), "demo", "lint-web", "win-a1");
        pod(&format!("lint-db-{n}"), "demo", "lint-db", "linux-1");
    }
    let policy = |kind: &str, name: &str, namespace: Option<&str>, spec: Value| {
        let metadata =
            json!({"name": name, "namespace": namespace.unwrap_or_default(), "uid": name, "resourceVersion": "1"});
        lab.add_object(kind, json!({"apiVersion": "", "kind": "", "metadata": metadata, "spec": spec}));
    };
    let deny = json!([{"action": "Deny", "source": {"notSelector": "app == 'lint-web'", "selector": "has(app)"}}]);
    policy(
        &format!("networkpolicies.{group}"),
        "on-windows",
        Some("demo"),
        json!({"selector": "app == 'lint-web'", "ingress": deny}),
    );
    policy(
        &format!("networkpolicies.{group}"),
        "on-linux",
        Some("demo"),
        json!({"selector": "app == 'lint-db'", "ingress": deny}),
    );
    policy(
        &format!("globalnetworkpolicies.{group}"),
        "both",
        None,
        json!({
            "namespaceSelector": "kubernetes.io/metadata.name == 'demo'",
            "egress": [{
                "action": "Allow", "source": {"selector": "app starts with 'lint'"},
                "destination": {"selector": "app == 'lint-db'", "namespaceSelector": "has(kubernetes.io/metadata.name)"},
            }],
        }),
    );
    policy(
        "networkpolicies.networking.k8s.io",
        "named",
        Some("demo"),
        json!({
            "podSelector": {"matchLabels": {"app": "lint-web"}},
            "ingress": [{"ports": [{"port": "web"}], "from": [{"podSelector": {"matchLabels": {"app": "lint-db"}}}]}],
        }),
    );
}

#[test]
fn policies_of_a_cluster_are_judged_with_the_pods_that_they_select() {
    let lab = Lab::node();
    let clean = lab.run("policy lint -o json").exits(0).json();
    assert_eq!(clean["findings"], json!([]), "{clean:#}");
    fill(&lab, "crd.projectcalico.org");
    let report = lab.run("policy lint -o json").exits(3).json();
    insta::assert_snapshot!(findings(&report), @r#"
    fail PolicyDenySkipped demo/on-windows ingress[0] [3 x null]: a negated match: source.notSelector; no rule after it in this policy allows anything, but those of other policies may
        source.selector: "(has(app)) && !(app == 'lint-web')", without notSelector
    fail PolicyAllowSkipped demo/named ingress[0] [3 x 3]: a named port: ports[0]
        the number of the port instead of the name web
    warn PolicyDenySkipped demo/on-linux ingress[0] [0 x null]: a negated match: source.notSelector; no rule after it in this policy allows anything, but those of other policies may; it selects no pod on a Windows node
        source.selector: "(has(app)) && !(app == 'lint-web')", without notSelector
    warn PolicyBothSelectors both egress[0] [6 x 9]: it has a source and a destination selector
        spec.selector: "app starts with 'lint'" in a policy with only this rule, without source.selector
    "#);
}

#[test]
fn calicos_policies_in_etcd_are_judged_on_the_node() {
    let member = Member::start();
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let put = |at: &str, spec: &Value| {
        let name = at.rsplit('/').next().unwrap();
        let policy = json!({"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        member.put(&format!("/calico/resources/v3/projectcalico.org/{at}"), &policy.to_string());
    };
    let denies = json!({"ingress": [{"action": "Deny", "notProtocol": "TCP"}]});
    put("globalnetworkpolicies/closed", &denies);
    put("networkpolicies/shop/default.web", &denies);
    // The copy of a policy that the Kubernetes API has.
    put("networkpolicies/shop/knp.default.web", &denies);
    let lint =
        format!("policy lint -o json --set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", member.url());
    let report = lab.run(&lint).exits(3).json();
    let places: Vec<_> = report["findings"].as_array().unwrap().iter().map(|found| found["name"].clone()).collect();
    assert_eq!(places, ["closed", "default.web"], "{report:#}");
    assert_eq!(report["summary"]["policies"], 2, "{report:#}");

    put("networkpolicies/shop/broken", &json!({"ingress": "all"}));
    let failed = lab.run(&lint).exits(1).json();
    let chain = failed["error"].to_string();
    assert!(chain.contains("networkpolicies/shop/broken in etcd"), "{failed:#}");
}

#[test]
fn every_page_of_a_list_is_read() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    for n in 0..501 {
        let name = format!("policy-{n}");
        let metadata = json!({"name": name, "namespace": "demo", "uid": name, "resourceVersion": "1"});
        let spec = json!({"podSelector": {}, "ingress": [{"ports": [{"port": "web"}]}]});
        lab.add_object(
            "networkpolicies.networking.k8s.io",
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}),
        );
    }
    // The API server compacts the list between its two pages, so that it is read from its start again.
    let compacted = "api GET /apis/networking.k8s.io/v1/networkpolicies*#2=410";
    for report in [lab.run("policy lint -o json"), lab.fails_at(compacted, "policy lint -o json")] {
        let report = report.exits(3).json();
        assert_eq!((&report["summary"]["policies"], &report["summary"]["fail"]), (&json!(501), &json!(501)));
    }
}

/// Adds a policy of each kind of Kubernetes' administrators, each with a rule that Windows skips or Calico cannot convert.
fn fill_admins(lab: &Lab) {
    for (version, plural, kind, ports) in [
        ("v1alpha1", "adminnetworkpolicies", "AdminNetworkPolicy", json!({"ports": [{"namedPort": "web"}]})),
        ("v1alpha1", "baselineadminnetworkpolicies", "BaselineAdminNetworkPolicy", json!({})),
        (
            "v1alpha2",
            "clusternetworkpolicies",
            "ClusterNetworkPolicy",
            json!({"protocols": [{"destinationNamedPort": "web"}]}),
        ),
    ] {
        let mut deny = json!({"action": "Deny", "from": [{"namespaces": {"matchLabels": {"team": "a"}}}]});
        deny.as_object_mut().unwrap().extend(ports.as_object().unwrap().clone());
        let spec = json!({
            "priority": 10, "tier": "Admin", "subject": {"namespaces": {}},
            "ingress": [deny], "egress": [{"action": "Deny", "to": [{"nodes": {}}]}],
        });
        let metadata = json!({"name": "default", "uid": kind, "resourceVersion": "1"});
        lab.add_object(
            &format!("{plural}.policy.networking.k8s.io"),
            json!({
                "apiVersion": format!("policy.networking.k8s.io/{version}"), "kind": kind, "metadata": metadata,
                "spec": spec,
            }),
        );
    }
}

/// What is found of administrators' policies: `id kind rule: detail`.
fn of_admins(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line =
        |f: &Value| format!("{} {} {}: {}", text(&f["id"]), text(&f["kind"]), text(&f["rule"]), text(&f["detail"]));
    report["findings"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn policies_of_administrators_are_judged_as_the_clusters_calico_converts_them() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    fill_admins(&lab);
    let mut found = String::new();
    for release in ["v3.28.5", "v3.29.7", "v3.31.6", "v3.32.1"] {
        lab.edit_object("clusterinformations.crd.projectcalico.org", "default", |object| {
            object["spec"]["calicoVersion"] = json!(release);
        });
        let report = lab.run("policy lint -o json").exits(3).json();
        assert_eq!(report["summary"]["policies"], 3);
        found.push_str(&format!("{release}\n{}\n", of_admins(&report)));
    }
    insta::assert_snapshot!(found, @r"
    v3.28.5
    PolicyNotRead AdminNetworkPolicy : Calico v3.28.5 does not read AdminNetworkPolicy
    PolicyNotRead BaselineAdminNetworkPolicy : Calico v3.28.5 does not read BaselineAdminNetworkPolicy
    PolicyNotRead ClusterNetworkPolicy : Calico v3.28.5 does not read ClusterNetworkPolicy
    v3.29.7
    PolicyNotRead BaselineAdminNetworkPolicy : Calico v3.29.7 does not read BaselineAdminNetworkPolicy
    PolicyNotRead ClusterNetworkPolicy : Calico v3.29.7 does not read ClusterNetworkPolicy
    PolicyPortIgnored AdminNetworkPolicy ingress[0]: a named port: ports[0]
    PolicyNotConverted AdminNetworkPolicy egress[0]: to[0].nodes cannot be converted, so Calico denies all traffic instead
    v3.31.6
    PolicyNotRead ClusterNetworkPolicy : Calico v3.31.6 does not read ClusterNetworkPolicy
    PolicyPortIgnored AdminNetworkPolicy ingress[0]: a named port: ports[0]
    PolicyNotConverted AdminNetworkPolicy egress[0]: to[0].nodes cannot be converted, so Calico denies all traffic instead
    PolicyNotConverted BaselineAdminNetworkPolicy egress[0]: to[0].nodes cannot be converted, so Calico denies all traffic instead
    v3.32.1
    PolicyDenySkipped ClusterNetworkPolicy ingress[0]: a named port: protocols[0]; no rule after it in this policy allows anything, but those of other policies may
    PolicyNotRead AdminNetworkPolicy : Calico v3.32.1 does not read AdminNetworkPolicy
    PolicyNotRead BaselineAdminNetworkPolicy : Calico v3.32.1 does not read BaselineAdminNetworkPolicy
    PolicyNotConverted ClusterNetworkPolicy egress[0]: to[0].nodes cannot be converted, so Calico denies all traffic instead
    ");
}

#[test]
fn policies_of_administrators_in_files_are_judged_as_the_named_release_line_converts_them() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    fill_admins(&lab);
    let is_admins = |(kind, ..): &&(String, String, Value)| kind.ends_with(".policy.networking.k8s.io");
    let items: Vec<Value> = lab.objects().iter().filter(is_admins).map(|(_, _, policy)| policy.clone()).collect();
    lab.write("admins.json", json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    for (line, release) in [("v3.28", "v3.28.5"), ("3.31", "v3.31.6"), ("v3.32.1", "v3.32.1")] {
        lab.edit_object("clusterinformations.crd.projectcalico.org", "default", |object| {
            object["spec"]["calicoVersion"] = json!(release);
        });
        let in_cluster = of_admins(&lab.run("policy lint -o json").exits(3).json());
        let in_files =
            of_admins(&lab.run(&format!("policy lint -f admins.json --release-line {line} -o json")).exits(3).json());
        let of_line = release.rsplit_once('.').unwrap().0;
        assert_eq!(in_files, in_cluster.replace(release, of_line), "{line}");
    }
    let without = of_admins(&lab.run("policy lint -f admins.json -o json").exits(3).json());
    assert!(!without.contains("PolicyNotRead"), "{without}");
    let refused = lab.run("policy lint -f admins.json --release-line latest").exits(64);
    assert!(refused.stderr.contains("is not a release line like v3.31"), "{refused}");
    let _no_files = lab.run("policy lint --release-line v3.31").exits(64);
}

/// The detail of a check of preflight.
fn checked(report: &Value, id: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("{report:#}"));
    format!("{}: {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

#[test]
fn preflight_counts_the_policies_of_administrators_that_the_clusters_calico_reads() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    let before = checked(&lab.run("preflight -o json").json(), "PoliciesSupported");
    assert!(before.starts_with("ok: none of "), "{before}");
    fill_admins(&lab);
    let of = |release: &str| {
        lab.edit_object("clusterinformations.crd.projectcalico.org", "default", |object| {
            object["spec"]["calicoVersion"] = json!(release);
        });
        checked(&lab.run("preflight -o json").json(), "PoliciesSupported")
    };
    assert_eq!(of("v3.28.5"), before, "it reads none of them");
    let newer = of("v3.32.1");
    assert!(
        newer.contains("1 of ")
            && newer.contains("policies have rules that Windows skips, such as default (a named port)"),
        "{newer}"
    );

    // A ClusterRole of an earlier release of this program has no such right.
    let refused = "api GET /apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies*=403";
    let without = lab.fails_at(refused, "preflight -o json");
    let report = without.json();
    for id in ["PoliciesSupported", "PolicyCost", "ApplicationLayerPolicy"] {
        let said = checked(&report, id);
        assert!(said.starts_with("ok: none of "), "{said}");
        assert!(said.contains("; those of Kubernetes' administrators were not all read: "), "{said}");
    }
    let _installed = lab.fails_at(refused, "install -y").exits(0);
}

#[test]
fn a_cluster_without_administrators_policies_has_none_and_calico_in_etcd_reads_none() {
    let member = Member::start();
    let lab = Lab::node();
    let unserved =
        lab.fails_at("api GET /apis/policy.networking.k8s.io=404-text", "policy lint -o json").exits(0).json();
    assert_eq!(unserved["findings"], json!([]), "{unserved:#}");
    runs_with_etcd(&lab);
    fill_admins(&lab);
    let lint =
        format!("policy lint -o json --set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", member.url());
    let report = lab.run(&lint).exits(3).json();
    insta::assert_snapshot!(of_admins(&report), @r"
    PolicyNotRead AdminNetworkPolicy : Calico with its data in etcd does not read AdminNetworkPolicy
    PolicyNotRead BaselineAdminNetworkPolicy : Calico with its data in etcd does not read BaselineAdminNetworkPolicy
    PolicyNotRead ClusterNetworkPolicy : Calico with its data in etcd does not read ClusterNetworkPolicy
    ");
}

/// The table in `docs/policies.md` is that of the code.
#[test]
fn the_page_on_policies_has_every_finding() {
    let page = crate::read("docs/policies.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `Policy")).collect();
    let wanted: Vec<String> = KINDS
        .iter()
        .map(|kind| {
            let severity = if kind.severity == Severity::Fail { "fail" } else { "warn" };
            format!("| `{}` | {severity} | {} |", kind.id, kind.why)
        })
        .collect();
    assert_eq!(rows, wanted);
}
