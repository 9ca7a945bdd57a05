//! The synthetic release: a zip in the real layout of any supported version, with stand-ins for
//! the binaries, and a small HTTP server that offers it as a mirror would. It can be told to
//! misbehave as mirrors do.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::{Cursor, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::calico::version::CalicoVersion;
use crate::values::Sha256;

/// A release that was made up: the real paths, small contents.
pub struct SyntheticRelease;

impl SyntheticRelease {
    /// The zip of a version, the same bytes each time.
    pub fn build(version: &CalicoVersion) -> Vec<u8> {
        Self::build_with(version, &BTreeMap::new())
    }

    /// The same with real programs in place of some stand-ins, by path below the top folder. What the
    /// version does not hold is left out.
    pub fn build_with(version: &CalicoVersion, programs: &BTreeMap<&str, Vec<u8>>) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default_for_write())
            .unix_permissions(0o644);
        let mut write = || -> zip::result::ZipResult<()> {
            zip.add_directory("CalicoWindows/", options.unix_permissions(0o755))?;
            for (path, contents) in Self::files(version) {
                zip.start_file(format!("CalicoWindows/{path}"), options)?;
                zip.write_all(programs.get(path.as_str()).map_or(contents.as_bytes(), Vec::as_slice))?;
            }
            Ok(())
        };
        write().expect("a zip in memory takes these names and sizes");
        zip.finish().expect("a zip in memory can be finished").into_inner()
    }

    /// The zip's name among a release's assets.
    pub fn file_name(version: &CalicoVersion) -> String {
        format!("calico-windows-{version}.zip")
    }

    /// What is in it, by path below the top folder.
    pub fn files(version: &CalicoVersion) -> BTreeMap<String, String> {
        let v = |major, minor, patch| CalicoVersion::new(major, minor, patch);
        let line = |minor| version.is_line(3, minor);
        let mut paths = vec![
            "README.txt",
            "config.ps1",
            "cni.conf.template",
            "calico-kube-config.template",
            "install-calico.ps1",
            "start-calico.ps1",
            "stop-calico.ps1",
            "uninstall-calico.ps1",
            "cni/calico.exe",
            "node/node-service.ps1",
            "felix/felix-service.ps1",
            "confd/confd-service.ps1",
            "confd/config-bgp.ps1",
            "confd/config-bgp.psm1",
            "confd/conf.d/blocks.toml",
            "confd/conf.d/peerings.toml",
            "confd/templates/blocks.ps1.template",
            "confd/templates/peerings.ps1.template",
            "libs/calico/calico.psm1",
            "libs/hns/hns.psm1",
            "libs/hns/License.txt",
        ];
        let one_binary = *version >= v(3, 33, 0);
        if one_binary {
            paths.push("calico.exe");
        } else {
            paths.extend(["calico-node.exe", "cni/calico-ipam.exe"]);
        }
        if *version >= v(3, 27, 0) {
            paths.extend(["config-hpc.ps1", "uninstall-calico-hpc.ps1"]);
        }
        // Fixes of older lines came later than the newer line's first release.
        let kubernetes = match () {
            () if line(29) => *version < v(3, 29, 6),
            () if line(30) => *version < v(3, 30, 4),
            () => *version < v(3, 29, 0),
        };
        if kubernetes {
            paths.extend([
                "kubernetes/README.txt",
                "kubernetes/install-kube-services.ps1",
                "kubernetes/uninstall-kube-services.ps1",
                "kubernetes/kubelet-service.ps1",
                "kubernetes/kube-proxy-service.ps1",
            ]);
        }
        let upgrade = match () {
            () if line(27) => *version < v(3, 27, 5),
            () if line(28) => *version < v(3, 28, 1),
            () => *version >= v(3, 21, 0) && *version < v(3, 27, 0),
        };
        if upgrade {
            paths.push("upgrade/upgrade-service.ps1");
        }
        let nssm = match () {
            () if *version >= v(3, 25, 0) => "nssm",
            () if *version >= v(3, 24, 3) => "nssm-2.24-103-gdee49fc",
            () => "nssm-2.24",
        };
        let nssm = ["win32/nssm.exe", "win64/nssm.exe", "README.txt"].map(|file| format!("{nssm}/{file}"));

        let mut files: BTreeMap<String, String> = paths
            .into_iter()
            .map(str::to_owned)
            .chain(nssm)
            .map(|path| {
                let contents =
                    format!("Stand-in for {path} of Calico for Windows {version}, made by calicoctl-win.\r\n");
                (path, contents)
            })
            .collect();
        if one_binary {
            // One program under two names, byte for byte.
            files.insert("cni/calico.exe".into(), files["calico.exe"].clone());
        }
        files
    }
}

/// How the server misbehaves, for tests and rehearsals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseFault {
    /// `truncate`: offers only the first half of the archive, as if that were all of it.
    Truncate,
    /// `reset`: cuts the connection in the middle of each whole download; a resumed one gets through.
    Reset,
    /// `404`: the archive is not there.
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

/// What a client asked for and got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub if_range: Option<String>,
    pub status: u16,
}

/// Serves synthetic releases on 127.0.0.1, at a port that the system chooses, until dropped.
pub struct ReleaseServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
    /// Starts to serve the archives of these versions and their `SHA256SUMS`, which has the digests
    /// of the sound archives also when what is served is not.
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
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("open a port for the release server")?;
        listener.set_nonblocking(true).context("open a port for the release server")?;
        let address = listener.local_addr().context("open a port for the release server")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .context("start the release server")?;
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("release-server".into())
            .spawn(move || {
                runtime.spawn(serve(listener, serving));
                // Either way, told or dropped, it is time to end; the runtime takes its tasks along.
                drop(runtime.block_on(stopped));
            })
            .context("start the release server")?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where a version's archive is.
    pub fn url(&self, version: &CalicoVersion) -> String {
        format!("http://{}/{}", self.address, SyntheticRelease::file_name(version))
    }

    /// Every request so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().map(|asked| asked.clone()).unwrap_or_default()
    }
}

impl Drop for ReleaseServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Only fails when the server has stopped already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl File {
    fn new(bytes: Vec<u8>, archive: bool) -> Self {
        let etag = format!("\"{}\"", Sha256::of(&bytes).short());
        Self { bytes: bytes.into(), etag, archive }
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    // The listener is open and non-blocking, which is all that this conversion needs.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| {
                let response = shared.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            // A client that goes away, and a connection that we cut on purpose, are no errors.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
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

/// Where `Range: bytes=N-` asks to begin, unless `If-Range` names another state of the file.
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

/// A body that may stop half-way or take its time.
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
                // Cut: lets what was sent go out before the connection ends.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn has(version: &str, path: &str) -> bool {
        SyntheticRelease::files(&version.parse().unwrap()).contains_key(path)
    }

    #[test]
    fn each_version_has_its_own_layout() {
        for (path, with, without) in [
            ("calico-node.exe", "v3.20.6 v3.26.5 v3.32.1", "v3.33.0"),
            ("calico.exe", "v3.33.0", "v3.20.6 v3.32.1"),
            ("cni/calico-ipam.exe", "v3.21.3 v3.32.1", "v3.33.0"),
            ("config-hpc.ps1", "v3.27.0 v3.33.0", "v3.26.5"),
            ("kubernetes/kubelet-service.ps1", "v3.20.0 v3.28.5 v3.29.5 v3.30.3", "v3.29.6 v3.30.4 v3.31.0 v3.33.0"),
            ("upgrade/upgrade-service.ps1", "v3.21.3 v3.26.5 v3.27.4 v3.28.0", "v3.20.0 v3.27.5 v3.28.1 v3.29.0"),
            ("nssm/win64/nssm.exe", "v3.25.0 v3.33.0", "v3.24.6"),
            ("nssm-2.24-103-gdee49fc/win64/nssm.exe", "v3.24.3 v3.24.6", "v3.24.2 v3.25.0"),
            ("nssm-2.24/win64/nssm.exe", "v3.20.0 v3.24.2", "v3.24.3"),
        ] {
            for version in with.split(' ') {
                assert!(has(version, path), "{version} has no {path}");
            }
            for version in without.split(' ') {
                assert!(!has(version, path), "{version} has {path}");
            }
        }
    }

    #[test]
    fn a_version_is_the_same_bytes_each_time() {
        let version = CalicoVersion::new(3, 33, 0);
        assert!(SyntheticRelease::build(&version) == SyntheticRelease::build(&version));
        let files = SyntheticRelease::files(&version);
        assert_eq!(files["calico.exe"], files["cni/calico.exe"]);
    }
}
