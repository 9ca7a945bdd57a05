//! Watches: reports the changes of a list as they happen, across reconnections.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::api::{Answer, Api, Call, Form, query, send};
use super::errors::{Failure, Trouble};

/// The length of one watch. Short, so that a dead connection is noticed; continuing costs one request.
const LENGTH: Duration = Duration::from_secs(60);

/// A connection without a line or an end this long after that is dead.
const SLACK: Duration = Duration::from_secs(10);

/// Pauses between retries while the server does not answer.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A longer line is not a Kubernetes object.
const LONGEST_LINE: usize = 8 << 20;

/// What a watch reports.
#[derive(Debug)]
pub(super) enum News<T> {
    /// An object that is new or has changed.
    There(T),
    /// An object's last state.
    Gone(T),
    /// All current objects: what happened in between is unknown.
    All(Vec<T>),
    /// The list cannot be watched for the moment.
    Lost(Failure),
    /// It is watched again, and no change was missed.
    Found,
}

impl<T> News<T> {
    pub fn map<U>(self, mut to: impl FnMut(T) -> U) -> News<U> {
        match self {
            Self::There(one) => News::There(to(one)),
            Self::Gone(one) => News::Gone(to(one)),
            Self::All(all) => News::All(all.into_iter().map(to).collect()),
            Self::Lost(failure) => News::Lost(failure),
            Self::Found => News::Found,
        }
    }
}

/// What a watch reports, before the object is read.
enum Told<'a> {
    Found,
    /// A line.
    There(&'a [u8]),
    Gone(&'a [u8]),
}

/// What of a line is the same for every kind of object.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Head,
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Versioned,
}

#[derive(Default, Deserialize)]
struct Versioned {
    #[serde(default, rename = "resourceVersion")]
    version: String,
}

#[derive(Deserialize)]
struct Whole<T> {
    object: T,
}

fn object<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    // As lists are read, so that the program has the code once for each kind.
    Ok(serde_json::from_slice::<Whole<T>>(line)?.object)
}

/// How one connection ended.
enum End {
    /// Normally, or the receiver is gone.
    Time,
    /// Changes since the last version are no longer available.
    Expired,
    Failed(Failure),
}

/// Whether a watch that ended so may continue where it was: the server is down or overloaded. One that refuses watches
/// may allow lists.
fn continues(failure: &Failure) -> bool {
    match failure.status {
        Some(status) => matches!(status, 429 | 500..),
        None => failure.fault.id != "ClusterAnswer",
    }
}

/// Follows the list at `path` from `version` on, or from the current state, until it is dropped.
pub(super) async fn follow<T: DeserializeOwned>(
    api: Arc<Api>,
    path: String,
    form: Form,
    mut version: Option<String>,
    mut tell: impl FnMut(News<T>) + Send,
) {
    let mut pause = FIRST_PAUSE;
    let mut lost = false;
    loop {
        let failure = match &mut version {
            Some(at) => {
                let begun = Instant::now();
                let mut told = |told: Told<'_>| {
                    tell(match told {
                        Told::Found => News::Found,
                        Told::There(line) => News::There(object(line)?),
                        Told::Gone(line) => News::Gone(object(line)?),
                    });
                    Ok(())
                };
                let end = watch(&api, &path, form, at, &mut lost, &mut told).await;
                if begun.elapsed() > Duration::from_secs(1) {
                    pause = FIRST_PAUSE;
                }
                match end {
                    End::Time if begun.elapsed() > Duration::from_secs(1) => continue,
                    // A server that ends every watch at once is asked with a pause.
                    End::Time => None,
                    End::Expired => {
                        (version, pause) = (None, FIRST_PAUSE);
                        None
                    }
                    End::Failed(failure) => {
                        version = version.filter(|_| continues(&failure));
                        Some(failure)
                    }
                }
            }
            None => match api.list_from(&path, form).await {
                Ok((all, at)) => {
                    // Keep increasing the pause: a watch may be refused while a list is not.
                    (version, lost) = (Some(at), false);
                    tell(News::All(all));
                    continue;
                }
                Err(failure) => Some(failure),
            },
        };
        let mut wait = pause;
        if let Some(failure) = failure {
            wait = Duration::from_secs(failure.retry_after.unwrap_or_default().into()).max(pause);
            lost = true;
            tell(News::Lost(failure));
        }
        sleep(wait).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One watch. `lost`: whether the one before failed.
async fn watch(
    api: &Api,
    path: &str,
    form: Form,
    version: &mut String,
    lost: &mut bool,
    tell: &mut (dyn FnMut(Told<'_>) -> serde_json::Result<()> + Send),
) -> End {
    let seconds = LENGTH.as_secs().to_string();
    let parameters = [
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", seconds.as_str()),
        ("resourceVersion", version.as_str()),
    ];
    let call = Call::watch(&query(path, &parameters), form);
    let failed = |trouble| End::Failed(api.failure(&call, trouble));
    let client = match api.client().await {
        Ok(client) => client,
        Err(trouble) => return failed(trouble),
    };
    let response = match timeout(LENGTH, send(&client, &call)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return failed(Trouble::Transport(error)),
        Err(_) => return failed(Trouble::Slow(LENGTH)),
    };
    let (head, mut body) = response.into_parts();
    if !head.status.is_success() {
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        let answer = Answer { status: head.status.as_u16(), headers: head.headers, body };
        return if answer.status == 410 { End::Expired } else { failed(Trouble::Answer(answer)) };
    }
    if std::mem::take(lost)
        && let Err(cause) = tell(Told::Found)
    {
        return End::Failed(Failure::unreadable(&call, cause));
    }
    let mut rest = Vec::new();
    loop {
        let piece = match timeout(LENGTH + SLACK, piece(&mut body)).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => return End::Time,
            Ok(Err(error)) => return failed(Trouble::Transport(error)),
            Err(_) => return failed(Trouble::Slow(LENGTH + SLACK)),
        };
        rest.extend_from_slice(&piece);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            match handle(&call, &line, version, tell) {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
        if rest.len() > LONGEST_LINE {
            return End::Expired;
        }
    }
}

/// The next bytes; none at the end.
async fn piece(body: &mut Body) -> Result<Option<Vec<u8>>, kube::Error> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(error),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data.to_vec()));
                }
            }
        }
    }
}

fn handle(
    call: &Call,
    line: &[u8],
    version: &mut String,
    tell: &mut dyn FnMut(Told<'_>) -> serde_json::Result<()>,
) -> Result<(), End> {
    let unreadable = |cause| End::Failed(Failure::unreadable(call, cause));
    let Line { kind, object: Head { metadata } } = serde_json::from_slice(line).map_err(unreadable)?;
    // `object` is then a Status, usually 410; a new list gives the current state.
    if kind == "ERROR" {
        return Err(End::Expired);
    }
    if kind != "BOOKMARK" {
        tell(if kind == "DELETED" { Told::Gone(line) } else { Told::There(line) }).map_err(unreadable)?;
    }
    if !metadata.version.is_empty() {
        *version = metadata.version;
    }
    Ok(())
}
