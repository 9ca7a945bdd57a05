//! A small HTTP server that offers synthetic releases like a mirror. It can be made to fail as mirrors do.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::Result;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::loopback::Loopback;
use super::release::SyntheticRelease;
use crate::values::Sha256;
use crate::version::CalicoVersion;

/// Faults of the server, for tests and for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseFault {
    /// `truncate`: offers only the first half of the archive, as if that were all of it.
    Truncate,
    /// `reset`: closes the connection in the middle of each complete download; a resumed one succeeds.
    Reset,
    /// `404`: the archive does not exist.
    NotFound,
    /// `503`, or `503:2` for the first two requests only: overloaded, try later.
    Unavailable { times: Option<u32> },
    /// `slow`: a block every 50 ms.
    Slow,
    /// `corrupt`: one byte in the middle is flipped.
    Corrupt,
    /// `ignore-range`: always answers with the whole archive.
    IgnoreRange,
    /// `no-sums`: publishes no digests.
    NoSums,
}

impl FromStr for ReleaseFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "truncate" => Self::Truncate,
            "reset" => Self::Reset,
            "404" => Self::NotFound,
            "503" => Self::Unavailable { times: None },
            "slow" => Self::Slow,
            "corrupt" => Self::Corrupt,
            "ignore-range" => Self::IgnoreRange,
            "no-sums" => Self::NoSums,
            _ => match text.strip_prefix("503:").and_then(|times| times.parse().ok()) {
                Some(times) => Self::Unavailable { times: Some(times) },
                None => {
                    return Err(format!(
                        "`{text}` is not a fault of the release server: \
                         truncate, reset, 404, 503, 503:N, slow, corrupt, ignore-range, no-sums"
                    ));
                }
            },
        })
    }
}

/// A client's request, and the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub if_range: Option<String>,
    pub status: u16,
}

/// Serves synthetic releases on 127.0.0.1, on a port that the system chooses, until dropped.
pub struct ReleaseServer {
    shared: Arc<Shared>,
    server: Loopback,
}

struct Shared {
    /// By URL path.
    files: BTreeMap<String, File>,
    faults: Vec<ReleaseFault>,
    asked: Mutex<Vec<Asked>>,
}

struct File {
    bytes: Bytes,
    etag: String,
    archive: bool,
}

impl ReleaseServer {
    /// Serves the archives of these versions and their `SHA256SUMS`, which has the digests of the intact archives even
    /// if a fault changes them.
    pub fn start(versions: &[CalicoVersion], faults: &[ReleaseFault]) -> Result<Self> {
        let mut sums = String::new();
        let mut files = BTreeMap::new();
        for version in versions {
            let mut bytes = SyntheticRelease::build(version);
            let name = SyntheticRelease::file_name(version);
            sums.push_str(&format!("{}  {name}\n", Sha256::of(&bytes)));
            if faults.contains(&ReleaseFault::Corrupt) {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            if faults.contains(&ReleaseFault::Truncate) {
                bytes.truncate(bytes.len() / 2);
            }
            files.insert(format!("/{name}"), File::new(bytes, true));
        }
        if !faults.contains(&ReleaseFault::NoSums) {
            files.insert("/SHA256SUMS".into(), File::new(sums.into_bytes(), false));
        }

        let shared = Arc::new(Shared { files, faults: faults.to_vec(), asked: Mutex::default() });
        let serving = Arc::clone(&shared);
        let server = Loopback::start("the sandbox's release server", move |request| serving.answer(request))?;
        Ok(Self { shared, server })
    }

    /// The URL of a version's archive.
    pub fn url(&self, version: &CalicoVersion) -> String {
        format!("http://{}/{}", self.server.address, SyntheticRelease::file_name(version))
    }

    /// Every request so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().map(|asked| asked.clone()).unwrap_or_default()
    }
}

impl File {
    fn new(bytes: Vec<u8>, archive: bool) -> Self {
        let etag = format!("\"{}\"", Sha256::of(&bytes).short());
        Self { bytes: bytes.into(), etag, archive }
    }
}

impl Shared {
    fn has(&self, fault: ReleaseFault) -> bool {
        self.faults.contains(&fault)
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Blocks> {
        let text = |name| request.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok()).map(str::to_owned);
        let path = request.uri().path().to_owned();
        let refusals = self.asked.lock().map_or(0, |asked| asked.iter().filter(|a| a.status == 503).count());
        let response = self.respond(request, &path, refusals);
        if let Ok(mut asked) = self.asked.lock() {
            asked.push(Asked {
                method: request.method().to_string(),
                path,
                range: text(header::RANGE),
                if_range: text(header::IF_RANGE),
                status: response.status().as_u16(),
            });
        }
        response
    }

    fn respond(&self, request: &Request<Incoming>, path: &str, refusals: usize) -> Response<Blocks> {
        let found = self.files.get(path);
        let archive = found.is_some_and(|file| file.archive);
        let overloaded = self.faults.iter().any(|fault| match fault {
            ReleaseFault::Unavailable { times } => times.is_none_or(|times| refusals < times as usize),
            _ => false,
        });
        if archive && overloaded {
            let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, "try again later\n");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("0"));
            return response;
        }
        let Some(file) = found.filter(|file| !(file.archive && self.has(ReleaseFault::NotFound))) else {
            return plain(StatusCode::NOT_FOUND, "not found\n");
        };
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        }

        let headers = request.headers();
        let length = file.bytes.len();
        if headers.get(header::IF_NONE_MATCH).is_some_and(|etag| etag.as_bytes() == file.etag.as_bytes()) {
            let mut response = plain(StatusCode::NOT_MODIFIED, "");
            response.headers_mut().insert(header::ETAG, value(&file.etag));
            return response;
        }
        let start = if self.has(ReleaseFault::IgnoreRange) { None } else { range_start(headers, &file.etag) };
        let mut response = match start {
            Some(start) if start >= length => {
                let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "");
                response.headers_mut().insert(header::CONTENT_RANGE, value(&format!("bytes */{length}")));
                return response;
            }
            Some(start) => {
                let mut response = Response::new(Blocks::whole(file.bytes.slice(start..)));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                let range = format!("bytes {start}-{}/{length}", length - 1);
                response.headers_mut().insert(header::CONTENT_RANGE, value(&range));
                response
            }
            None => Response::new(Blocks::whole(file.bytes.clone())),
        };
        let body = response.body_mut();
        if file.archive && self.has(ReleaseFault::Reset) && !headers.contains_key(header::RANGE) {
            body.cut_in_half();
        }
        if file.archive && self.has(ReleaseFault::Slow) {
            body.slow_down();
        }
        let declared = response.body().declared;
        if request.method() == Method::HEAD {
            *response.body_mut() = Blocks::whole(Bytes::new());
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, declared.into());
        headers.insert(header::ETAG, value(&file.etag));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        response
    }
}

/// The start of `Range: bytes=N-`, unless `If-Range` names another state of the file.
fn range_start(headers: &HeaderMap, etag: &str) -> Option<usize> {
    if headers.get(header::IF_RANGE).is_some_and(|known| known.as_bytes() != etag.as_bytes()) {
        return None;
    }
    headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn plain(status: StatusCode, text: &'static str) -> Response<Blocks> {
    let mut response = Response::new(Blocks::whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("digests and numbers are valid in a header")
}

/// A body that may stop half-way or be slow.
struct Blocks {
    blocks: VecDeque<Bytes>,
    /// As in Content-Length, in bytes.
    declared: u64,
    cut: bool,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    slow: bool,
}

impl Blocks {
    fn whole(bytes: Bytes) -> Self {
        Self { declared: bytes.len() as u64, blocks: VecDeque::from([bytes]), cut: false, pause: None, slow: false }
    }

    fn cut_in_half(&mut self) {
        for block in &mut self.blocks {
            block.truncate(block.len() / 2);
        }
        self.cut = true;
    }

    fn slow_down(&mut self) {
        let whole: Vec<Bytes> = self.blocks.drain(..).collect();
        for bytes in whole {
            let size = (bytes.len() / 20).max(1);
            self.blocks.extend((0..bytes.len()).step_by(size).map(|at| bytes.slice(at..(at + size).min(bytes.len()))));
        }
        self.slow = true;
    }
}

impl Body for Blocks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        match self.blocks.pop_front() {
            Some(block) => {
                // Truncated: send what was written before the connection closes.
                if self.slow || self.cut {
                    self.pause = Some(Box::pin(tokio::time::sleep(Duration::from_millis(50))));
                }
                Poll::Ready(Some(Ok(Frame::data(block))))
            }
            None if self.cut => Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.blocks.is_empty() && !self.cut
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.declared)
    }
}
