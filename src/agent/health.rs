//! Whether Felix is ready, and whether Felix, kubelet and kube-proxy are live, from their HTTP endpoints on this machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::calico::agent_config::LiveEndpoint;

/// The time limit of a response. It comes from this machine, and Felix answers while it works.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Felix's last answer, or what confd has rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// Felix is in sync with the datastore and has programmed everything; confd has rendered all its files.
    Ready,
    /// It is not, and why.
    NotReady(String),
}

/// Asks Felix. Without a response it is not ready.
pub fn ask(at: SocketAddr) -> Readiness {
    match status(at, "readiness") {
        Ok(200..300) => Readiness::Ready,
        Ok(503) => Readiness::NotReady("Felix says that it is not ready (HTTP 503)".into()),
        Ok(other) => Readiness::NotReady(format!("another program answers at {at} (HTTP {other}) instead of Felix")),
        Err(error) => Readiness::NotReady(format!("Felix does not answer at {at}: {error}")),
    }
}

/// How often in a row a program must not be live to be restarted, like the probe of Calico's own DaemonSet
/// `calico-node-windows`: `failureThreshold: 6`, `periodSeconds: 10`.
const FAILURES: u32 = 6;

/// Asks periodically whether a program still works: one with hanging threads keeps running and does nothing. For Felix
/// this is the request of `calico-node.exe -felix-live` (`/liveness`, by node/pkg/health of projectcalico/calico), without
/// a separate process for each.
#[derive(Debug, Clone)]
pub struct Liveness {
    endpoint: LiveEndpoint,
    every: Duration,
    /// Until then no answer is no failure; none after the first answer.
    opens_by: Option<Instant>,
    /// When the program was started, or asked last.
    since: Instant,
    failures: u32,
}

impl Liveness {
    /// For a program that was just started. `opens`: how long one that opens its port late may take.
    pub fn new(endpoint: LiveEndpoint, every: Duration, opens: Duration) -> Self {
        let since = Instant::now();
        let opens_by = endpoint.opens_late.then(|| since + opens);
        Self { endpoint, every, opens_by, since, failures: 0 }
    }

    /// Asks if it is time to. Returns why the program must be restarted, if it must.
    pub fn look(&mut self) -> Option<String> {
        if self.since.elapsed() < self.every {
            return None;
        }
        let LiveEndpoint { name, at, path, .. } = self.endpoint;
        let answer = status(at, path);
        self.since = Instant::now();
        let why = match answer {
            Ok(500..) => "it says so (HTTP 5xx)".to_owned(),
            // Another answer is that of another program, which a restart does not end: Felix's readiness reports it.
            Ok(_) => String::new(),
            Err(error) if error.kind() == ErrorKind::Other => String::new(),
            Err(_) if self.opens_by.is_some_and(|limit| self.since < limit) => return None,
            Err(error) => format!("it does not answer at {at}: {error}"),
        };
        self.opens_by = None;
        self.failures = if why.is_empty() { 0 } else { self.failures + 1 };
        (self.failures >= FAILURES).then(|| format!("{name} is not live, {FAILURES} times in a row: {why}"))
    }
}

/// The status of the response to one request.
fn status(at: SocketAddr, question: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(format!("GET /{question} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").as_bytes())?;
    // `HTTP/1.1 503 `: the rest of the response is not needed.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let code = std::str::from_utf8(&head).ok().and_then(|head| head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
    code.ok_or_else(|| std::io::Error::other("its response is not HTTP"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The result for a server with this response, once.
    fn asked(answer: &'static str) -> Readiness {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 512];
            let read = stream.read(&mut question).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&question[..read]).into_owned()
        });
        let said = ask(at);
        assert!(server.join().unwrap().starts_with("GET /readiness HTTP/1.1\r\n"));
        said
    }

    #[test]
    fn felix_is_ready_only_if_it_says_so() {
        let why = |answer| match asked(answer) {
            Readiness::Ready => "ready".to_owned(),
            Readiness::NotReady(why) => regex::Regex::new(r"127.0.0.1:\d+").unwrap().replace(&why, "PORT").into_owned(),
        };
        assert_eq!(why("HTTP/1.1 200 OK\r\n\r\n"), "ready");
        assert_eq!(why("HTTP/1.1 204 No Content\r\n\r\n"), "ready");
        assert_eq!(why("HTTP/1.1 503 Service Unavailable\r\n\r\n"), "Felix says that it is not ready (HTTP 503)");
        assert_eq!(
            why("HTTP/1.1 404 Not Found\r\n\r\n"),
            "another program answers at PORT (HTTP 404) instead of Felix"
        );
        assert_eq!(why("SSH-2.0-OpenSSH\r\n"), "Felix does not answer at PORT: its response is not HTTP");
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(ask(nobody), Readiness::NotReady(_)));
    }

    #[test]
    fn felix_is_restarted_after_six_failures_in_a_row_and_not_for_another_program() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let answers = ["200 OK"].into_iter().chain(["503 No"; 5]).chain(["404 Not"]).chain(["503 No"; 6]);
        let answers: Vec<&str> = answers.collect();
        let count = answers.len();
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 512];
                let read = stream.read(&mut question).unwrap();
                assert!(question[..read].starts_with(b"GET /liveness HTTP/1.1\r\n"));
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).unwrap();
            }
        });
        let mut liveness = Liveness::new(LiveEndpoint::of_felix(at), Duration::ZERO, HOUR);
        let verdicts: Vec<Option<String>> = (0..count).map(|_| liveness.look()).collect();
        server.join().unwrap();
        assert!(verdicts[..count - 1].iter().all(Option::is_none), "{verdicts:?}");
        insta::assert_snapshot!(verdicts[count - 1].as_ref().unwrap(), @"Felix is not live, 6 times in a row: it says so (HTTP 5xx)");
        let mut later = Liveness::new(LiveEndpoint::of_felix(at), HOUR, HOUR);
        assert_eq!(later.look(), None, "it was started just now");
    }

    /// kubelet opens its port after it has reached the container runtime, which may start later.
    #[test]
    fn a_program_that_opens_its_port_late_is_not_restarted_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint =
            LiveEndpoint { name: "kubelet", at: listener.local_addr().unwrap(), path: "healthz", opens_late: true };
        let closed = |opens| {
            let mut liveness = Liveness::new(endpoint, Duration::ZERO, opens);
            (0..20).map(|_| liveness.look()).filter(Option::is_some).count()
        };
        // It answers once, and then closes its port.
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 512]).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        });
        let mut liveness = Liveness::new(endpoint, Duration::ZERO, HOUR);
        assert_eq!(liveness.look(), None);
        server.join().unwrap();
        let verdicts: Vec<bool> = (0..6).map(|_| liveness.look().is_some()).collect();
        assert_eq!(verdicts, [false, false, false, false, false, true], "it has answered before");
        assert_eq!(closed(HOUR), 0, "it is still starting");
        assert_eq!(closed(Duration::ZERO), 15, "it hangs while it starts");
    }
}
