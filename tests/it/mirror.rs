//! A server of downloads on 127.0.0.1, which can resume them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct State {
    files: Vec<(String, Vec<u8>)>,
    /// The file whose next whole response ends in the middle.
    cut: Option<String>,
    /// The file whose next response is slow until somebody has seen enough.
    held: Option<(String, Receiver<()>)>,
    asked: Vec<String>,
}

/// The time between two parts of a slow response.
const PAUSE: Duration = Duration::from_millis(20);

pub struct Mirror {
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Mirror {
    /// With files by their paths.
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that has gone is no failure of the server.
                drop(serve(stream.unwrap(), &shared));
            }
        });
        Self { url, state }
    }

    pub fn cut(&self, path: &str) {
        self.state.lock().unwrap().cut = Some(path.into());
    }

    /// Sends the next response with this file in small parts, and its last part only after a message.
    pub fn hold(&self, path: &str) -> Sender<()> {
        let (seen, waits) = mpsc::channel();
        self.state.lock().unwrap().held = Some((path.into(), waits));
        seen
    }

    /// What was requested since the last call: path, and the range if one was.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split_whitespace().nth(1).unwrap().trim_start_matches('/').to_owned();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let range = header("range").map(|range| range.trim_start_matches("bytes=").to_owned());
    let mut state = state.lock().unwrap();
    let state = &mut *state;
    state.asked.push([Some(path.clone()), range.clone()].into_iter().flatten().collect::<Vec<_>>().join(" "));
    let Some((_, bytes)) = state.files.iter().find(|(known, _)| *known == path) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let (from, to) = match &range {
        Some(range) => {
            let (from, to) = range.split_once('-').unwrap();
            (from.parse().unwrap(), to.parse().map_or(bytes.len(), |last: usize| last + 1))
        }
        None => (0, bytes.len()),
    };
    let mut response = format!(
        "HTTP/1.1 {}\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\nETag: \"{}\"\r\nConnection: close\r\n\r\n",
        if range.is_some() { "206 Partial Content" } else { "200 OK" },
        to - from,
        to - 1,
        bytes.len(),
        bytes.len(),
    )
    .into_bytes();
    let mut body = &bytes[from..to];
    if let Some((_, seen)) = state.held.take_if(|(held, _)| *held == path) {
        stream.write_all(&response)?;
        let part = body.len() / 100;
        let mut is_seen = false;
        while body.len() > part && !is_seen {
            let (now, later) = body.split_at(part);
            stream.write_all(now)?;
            body = later;
            is_seen = seen.recv_timeout(PAUSE).is_ok();
        }
        if !is_seen {
            let _sender_may_end_first = seen.recv();
        }
        return stream.write_all(body);
    }
    let is_cut = range.is_none() && state.cut.as_deref() == Some(&path);
    response.extend(&bytes[from..if is_cut { to / 2 } else { to }]);
    if is_cut {
        state.cut = None;
    }
    stream.write_all(&response)
}
