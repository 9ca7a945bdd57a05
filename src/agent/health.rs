//! Whether Felix is ready: it says so itself, by HTTP on this machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long an answer may take. It comes from this machine, and Felix answers while it works.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What Felix last said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// It is in sync with the datastore and has programmed what it knows.
    Ready,
    /// It is not, and why.
    NotReady(String),
}

/// Asks Felix. One that does not answer is not ready.
pub fn ask(at: SocketAddr) -> Readiness {
    match status(at) {
        Ok(200..300) => Readiness::Ready,
        Ok(503) => Readiness::NotReady("Felix says that it is not ready (HTTP 503)".into()),
        Ok(other) => Readiness::NotReady(format!("another program answers at {at} (HTTP {other}), where Felix should")),
        Err(error) => Readiness::NotReady(format!("Felix does not answer at {at}: {error}")),
    }
}

/// The status of the answer to one question.
fn status(at: SocketAddr) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(format!("GET /readiness HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").as_bytes())?;
    // `HTTP/1.1 503 `: no more of the answer is wanted.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let code = std::str::from_utf8(&head).ok().and_then(|head| head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
    code.ok_or_else(|| std::io::Error::other("what it says is no HTTP"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What is made of a server that answers so, once.
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
    fn felix_is_ready_when_it_says_so_and_only_then() {
        let why = |answer| match asked(answer) {
            Readiness::Ready => "ready".to_owned(),
            Readiness::NotReady(why) => regex::Regex::new(r"127.0.0.1:\d+").unwrap().replace(&why, "PORT").into_owned(),
        };
        assert_eq!(why("HTTP/1.1 200 OK\r\n\r\n"), "ready");
        assert_eq!(why("HTTP/1.1 204 No Content\r\n\r\n"), "ready");
        assert_eq!(why("HTTP/1.1 503 Service Unavailable\r\n\r\n"), "Felix says that it is not ready (HTTP 503)");
        assert_eq!(
            why("HTTP/1.1 404 Not Found\r\n\r\n"),
            "another program answers at PORT (HTTP 404), where Felix should"
        );
        assert_eq!(why("SSH-2.0-OpenSSH\r\n"), "Felix does not answer at PORT: what it says is no HTTP");
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(ask(nobody), Readiness::NotReady(_)));
    }
}
