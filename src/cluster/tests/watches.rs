//! Watches of a server that fails.

use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::cluster::api::Form;
use crate::cluster::watch::{News, follow};

const LIST: &str = "/api/v1/pods?labelSelector=a%3Db";

/// The key of a watch from a version.
fn watch(from: &str) -> String {
    format!("GET {LIST}&watch=true&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion={from}")
}

/// What a watch sends before its connection ends: kind, name and version.
fn lines(all: &[(&str, &str, &str)]) -> Reply {
    let line = |(kind, name, version): &(&str, &str, &str)| {
        let object = json!({ "metadata": { "name": name, "resourceVersion": version } });
        json!({ "type": kind, "object": object }).to_string() + "\n"
    };
    Reply::Full(200, vec![("content-type".into(), "application/json".into())], all.iter().map(line).collect())
}

fn list(name: &str, version: &str) -> Reply {
    let items = json!([{ "metadata": { "name": name } }]);
    Reply::json(200, &json!({ "metadata": { "resourceVersion": version }, "items": items }))
}

fn failed(status: u16) -> Reply {
    Reply::json(status, &json!({ "kind": "Status", "status": "Failure", "code": status, "message": "no" }))
}

/// What the follower tells, until there is this pod.
fn told(server: &Server, until: &str) -> Vec<String> {
    let cluster = server.connect_within(short_limits());
    let name = |one: &Value| one["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.runtime.block_on(async {
        let (tell, mut heard) = unbounded_channel::<News<Value>>();
        let follower = tokio::spawn(follow(cluster.api.clone(), LIST.into(), Form::Whole, None, move |news| {
            drop(tell.send(news));
        }));
        let mut told = Vec::new();
        while told.last().is_none_or(|last: &String| last != &format!("+{until}")) {
            let news = tokio::time::timeout(Duration::from_secs(60), heard.recv()).await.expect("it tells something");
            told.push(match news.unwrap() {
                News::There(one) => format!("+{}", name(&one)),
                News::Gone(one) => format!("-{}", name(&one)),
                News::All(all) => format!("={}", all.iter().map(name).collect::<Vec<_>>().join(",")),
                News::Lost(failure) => failure.fault.id.to_owned(),
                News::Found => "found".into(),
            });
        }
        follower.abort();
        told
    })
}

#[test]
fn a_watch_continues_where_it_was_while_the_server_is_down_or_overloaded() {
    let server = Server::start();
    server.on(&format!("GET {LIST}"), [list("a", "7")]);
    server.on(
        &watch("7"),
        [
            failed(503),
            failed(429).retry_after(1),
            Reply::Cut,
            failed(500),
            lines(&[("ADDED", "b", "8"), ("BOOKMARK", "", "9")]),
        ],
    );
    server.on(&watch("9"), [lines(&[("DELETED", "a", "10"), ("ADDED", "c", "11")])]);
    let begun = std::time::Instant::now();
    let told = told(&server, "c");
    // Of a connection that is cut, the answer's head may have come.
    let news: Vec<&str> = told.iter().map(String::as_str).filter(|news| *news != "found").collect();
    let failures = ["ClusterUnavailable", "ClusterOverloaded", "ClusterConnectionLost", "ClusterFailed"];
    assert_eq!(news, [&["=a"][..], &failures, &["+b", "-a", "+c"]].concat());
    assert_eq!(told[told.len() - 4], "found", "{told:?}");
    assert!(begun.elapsed() > Duration::from_secs(1), "it waits as long as the server asks for");
    let keys = server.keys();
    assert_eq!(keys.iter().filter(|key| !key.contains("watch=true")).count(), 1, "{keys:#?}");
}

#[test]
fn a_watch_begins_with_a_new_list_when_changes_were_missed_or_it_is_refused() {
    let server = Server::start();
    server.on(&format!("GET {LIST}"), [list("a", "7"), list("b", "20"), list("c", "30")]);
    let expired = json!({ "kind": "Status", "code": 410, "reason": "Expired" });
    let line = json!({ "type": "ERROR", "object": expired }).to_string() + "\n";
    server.on(&watch("7"), [Reply::Full(200, vec![("content-type".into(), "application/json".into())], line)]);
    server.on(&watch("20"), [failed(403)]);
    server.on(&watch("30"), [lines(&[("ADDED", "d", "31")])]);
    assert_eq!(told(&server, "d"), ["=a", "=b", "ClusterForbidden", "=c", "+d"]);
}
