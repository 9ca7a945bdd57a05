//! A program that shows a bar reads the progress of a download as lines of NDJSON.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::version::CalicoVersion;
use serde_json::{Value, json};

use super::event_lines;
use crate::lab::Lab;
use crate::mirror::Mirror;

#[test]
fn the_lines_of_a_download_grow_to_its_size() {
    let lab = Lab::node();
    let name = "calico-windows-v3.32.1.zip";
    let mirror = Mirror::of(&[(name, &SyntheticRelease::build(&CalicoVersion::new(3, 32, 1)))]);
    let seen = mirror.hold(name);
    let mut command = lab.command(&format!("install -y -o ndjson --release {}/{name} --sandbox node", mirror.url));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines: Vec<Value> = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        event_lines::check(&line);
        if line["type"] == "progress" {
            // The rest comes at once.
            let _mirror_waits_only_for_the_first = seen.send(());
        }
        lines.push(line);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{:#}", lines.last().unwrap());

    let progress: Vec<&Value> = lines.iter().filter(|line| line["type"] == "progress").collect();
    for part in ["fetch", "verify", "unpack"] {
        let of_part: Vec<&&Value> = progress.iter().filter(|line| line["part"] == part).collect();
        let number = |line: &Value, field: &str| line[field].as_u64().unwrap();
        let current: Vec<u64> = of_part.iter().map(|line| number(line, "current")).collect();
        assert!(current.windows(2).all(|pair| pair[0] < pair[1]), "{part}: {current:?}");
        assert!(part != "fetch" || current.len() > 1, "{part}: {current:?}");
        let last = of_part.last().unwrap();
        assert_eq!(number(last, "current"), number(last, "total"), "{last:#}");
        for line in of_part {
            assert_eq!((&line["unit"], &line["phase"]["key"]), (&json!("bytes"), &json!("release")), "{line:#}");
        }
    }
}
