//! Requests to the API server and their responses: encoding, pages, retries, time limits.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::FIELD_MANAGER;
use super::errors::{Failure, Server, Trouble};
use super::kubeconfig::Access;
use super::rights_cache::RightsCache;
use super::session::Session;
use crate::report::event::Event;
use crate::settings::Limits;

/// Concurrent requests. Each uses its own connection, and a TLS handshake costs more than the response, so a few are
/// faster than many.
const PARALLEL: usize = 3;

/// How long requests that nobody awaits may take to end.
pub(super) const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// A retry waits no longer than this, whatever the server asks for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long an API server that has just started may take to read the cluster's roles.
const ROLES_READ_WITHIN: Duration = Duration::from_secs(30);

/// Objects per page, as in kubectl.
const PAGE: &str = "500";
/// How many pages a list may have: three times the pods of the largest cluster that Kubernetes supports.
const MOST_PAGES: usize = 1000;

/// The longest response that is read. A page of 500 large pods has some 10 MB.
const MOST_BYTES: usize = 64 << 20;

/// A path of the API from its parts, each percent-encoded: `path(["api", "v1", "nodes", name])`.
pub fn path<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut url = blank_url();
    url.path_segments_mut().expect("an https URL has a path").pop_if_empty().extend(parts);
    url.path().to_owned()
}

/// A path with additional parameters, percent-encoded.
pub fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut url = blank_url();
    url.query_pairs_mut().extend_pairs(parameters);
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}{}", url.query().unwrap_or_default())
}

fn blank_url() -> Url {
    Url::parse("https://cluster").expect("a literal URL is valid")
}

/// One request: method and path.
#[derive(Debug)]
pub(super) struct Call {
    pub method: Method,
    /// With its query, and without the server.
    pub path: String,
    accept: &'static str,
    content_type: &'static str,
    body: Option<Vec<u8>>,
}

impl Call {
    pub fn bare(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), accept: "application/json", content_type: "", body: None }
    }

    /// A watch of the objects in this form.
    pub fn watch(path: &str, form: Form) -> Self {
        Self { accept: form.each(), ..Self::bare(Method::GET, path) }
    }

    pub fn write(
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> Result<Self, Failure> {
        let path = query(path, &[("fieldManager", FIELD_MANAGER)]);
        let bare = Self { content_type, ..Self::bare(method, &path) };
        match serde_json::to_vec(body) {
            Ok(body) => Ok(Self { body: Some(body), ..bare }),
            Err(cause) => Err(Failure::unreadable(&bare, cause)),
        }
    }

    /// For example `GET /version`: its name in errors and the log.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path.split('?').next().unwrap_or_default())
    }

    /// Whether a successful response means that something in the cluster changed. Not so for a dry run, the Lease of a
    /// run, for tokens, and for access reviews, which are created as objects.
    fn changes_cluster(&self) -> bool {
        let only_asks = ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/", "/apis/coordination.k8s.io/"];
        let path = self.path.split('?').next().unwrap_or_default();
        let token = path.contains("/serviceaccounts/") && path.ends_with("/token");
        let dry = self.path.contains("dryRun=All");
        self.method != Method::GET && !dry && !token && !only_asks.iter().any(|group| path.starts_with(group))
    }

    /// Whether the request is idempotent, so that it may be sent again if it is unknown whether it arrived. A merge
    /// patch is not: with a resource version in it the second one would be a conflict.
    fn is_repeatable(&self) -> bool {
        self.method == Method::GET || self.method == Method::DELETE
    }
}

/// What is read of each object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Whole,
    /// Only its `metadata`: a tenth of the bytes of a Node or Pod.
    Metadata,
}

impl Form {
    const fn list(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        }
    }

    const fn each(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        }
    }
}

/// A complete response.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn is_json(&self) -> bool {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        content_type.is_some_and(|t| t.starts_with("application/json"))
    }

    /// Its content type without parameters, for example `text/html`; empty if there is none.
    pub fn media_type(&self) -> &str {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        content_type.split(';').next().unwrap_or_default().trim()
    }

    /// The target of a redirect: scheme and host only, since a query may contain a secret.
    pub fn location(&self) -> Option<String> {
        let url = Url::parse(self.headers.get(header::LOCATION)?.to_str().ok()?).ok()?;
        Some(format!("{}://{}", url.scheme(), url.host_str()?))
    }

    /// The server's Retry-After, a minute at most: the API server gives seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
    }
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    // Go encodes a list without items as `null`.
    #[serde(default = "Option::default")]
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    rest: Option<String>,
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
}

/// A list, page by page, before its objects are read: one piece of code for all kinds.
struct Pages {
    first: String,
    /// For the next page.
    call: Call,
    left: usize,
    started_over: bool,
}

impl Pages {
    fn of(path: &str, accept: &'static str) -> Self {
        let first = query(path, &[("limit", PAGE)]);
        let call = Call { accept, ..Call::bare(Method::GET, &first) };
        Self { first, call, left: MOST_PAGES, started_over: false }
    }

    /// The next page; none if the list starts over, and the pages before do not count.
    async fn next(&mut self, api: &Api) -> Result<Option<Answer>, Failure> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Failure::endless(&self.call))?;
        match api.answer(&self.call).await {
            // The list's snapshot was compacted between two pages. Continuing with the returned token would mix two
            // states of the cluster, so start over, once.
            Err(failure) if failure.status == Some(410) && !self.started_over => {
                let first = Call { accept: self.call.accept, ..Call::bare(Method::GET, &self.first) };
                (self.call, self.left, self.started_over) = (first, MOST_PAGES, true);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Prepares the next page; after the last one, returns the list's version.
    fn turn(&mut self, page: PageMeta) -> Option<String> {
        let Some(rest) = page.rest.filter(|rest| !rest.is_empty()) else { return Some(page.resource_version) };
        let next = query(&self.first, &[("continue", &rest)]);
        self.call = Call { accept: self.call.accept, ..Call::bare(Method::GET, &next) };
        None
    }
}

/// The client of one user of one API server.
pub(super) struct Api {
    pub server: Server,
    pub session: Arc<Session>,
    limits: Limits,
    gate: Semaphore,
    /// Nobody awaits what is still to be asked.
    settling: AtomicBool,
    /// Seconds that this machine's clock is ahead of the server's, from its last response.
    skew: Arc<Mutex<Option<i64>>>,
    events: Arc<Mutex<Vec<Event>>>,
    /// The rights that this user has been granted so far.
    pub granted: Arc<RightsCache>,
    changed: Arc<OnceLock<Arc<AtomicBool>>>,
}

impl Api {
    pub fn new(access: Access, dial: Option<SocketAddr>, limits: Limits, runtime: &Handle) -> anyhow::Result<Self> {
        let server = Server { url: access.server.clone(), proxy: access.proxy().filter(|_| dial.is_none()) };
        let session = Arc::new(access.session(dial, limits, runtime)?);
        Ok(Self {
            server,
            session,
            limits,
            gate: Semaphore::new(PARALLEL),
            settling: AtomicBool::default(),
            skew: Arc::default(),
            events: Arc::default(),
            granted: Arc::default(),
            changed: Arc::default(),
        })
    }

    /// The same client with another limit: what it is granted, tells and changes is one.
    pub fn within(&self, limit: Duration) -> Self {
        Self {
            server: self.server.clone(),
            session: Arc::clone(&self.session),
            limits: Limits { timeout: self.limits.timeout.min(limit), ..self.limits },
            gate: Semaphore::new(PARALLEL),
            settling: AtomicBool::default(),
            skew: Arc::clone(&self.skew),
            events: Arc::clone(&self.events),
            granted: Arc::clone(&self.granted),
            changed: Arc::clone(&self.changed),
        }
    }

    /// From now on sets `changed` when something in the cluster was changed.
    pub fn watch(&self, changed: Arc<AtomicBool>) {
        let _only_once = self.changed.set(changed);
    }

    /// Records whether a request changed something: it did if it succeeded, and may have if there is no complete
    /// response. An error response means it did not.
    fn note_change(&self, call: &Call, answered: Result<&Answer, &kube::Error>) {
        let refused = matches!(answered, Ok(answer) if !(200..300).contains(&answer.status));
        if let (false, true, Some(changed)) = (refused, call.changes_cluster(), self.changed.get()) {
            changed.store(true, Relaxed);
        }
    }

    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Seconds that this machine's clock is ahead of the server's; HTTP dates have whole seconds.
    pub fn clock_skew(&self) -> Option<i64> {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_time(&self, headers: &HeaderMap) {
        let theirs = headers.get(header::DATE).and_then(|date| date.to_str().ok());
        if let Some(theirs) = theirs.and_then(|date| rfc2822::DateTimeParser::new().parse_timestamp(date).ok()) {
            let skew = Timestamp::now().as_second() - theirs.as_second();
            // The time that a response takes is not skew.
            let skew = if skew.abs() <= 2 { 0 } else { skew };
            *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = Some(skew);
        }
    }

    pub fn report(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let call = Call::bare(Method::GET, path);
        let answer = self.answer_if_there(&call).await?;
        answer.map(|answer| read(&call, &answer)).transpose()
    }

    async fn answer_if_there(&self, call: &Call) -> Result<Option<Answer>, Failure> {
        match self.answer(call).await {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure.is_absent() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Failure> {
        Ok(self.list_from(path, Form::Whole).await?.0)
    }

    /// As [`Self::list`], but only the `metadata` of each object.
    pub async fn list_metadata<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Failure> {
        Ok(self.list_from(path, Form::Metadata).await?.0)
    }

    /// A list with the resource version from which a watch continues.
    pub async fn list_from<T: DeserializeOwned>(&self, path: &str, form: Form) -> Result<(Vec<T>, String), Failure> {
        let mut all = Vec::new();
        let version = self.pages(path, form.list(), &mut all, Vec::clear, |all, page| all.extend(page)).await?;
        Ok((all, version))
    }

    /// A list of which no more than a page is in memory: `add` takes each page. `restart` forgets what was added.
    pub async fn each_page<T: DeserializeOwned, A>(
        &self,
        path: &str,
        all: &mut A,
        restart: impl Fn(&mut A),
        add: impl FnMut(&mut A, Vec<T>),
    ) -> Result<(), Failure> {
        self.pages(path, "application/json", all, restart, add).await.map(drop)
    }

    async fn pages<T: DeserializeOwned, A>(
        &self,
        path: &str,
        accept: &'static str,
        all: &mut A,
        restart: impl Fn(&mut A),
        mut add: impl FnMut(&mut A, Vec<T>),
    ) -> Result<String, Failure> {
        let mut pages = Pages::of(path, accept);
        loop {
            let Some(answer) = pages.next(self).await? else {
                restart(all);
                continue;
            };
            let page: Page<T> = read(&pages.call, &answer)?;
            add(all, page.items.unwrap_or_default());
            if let Some(version) = pages.turn(page.metadata) {
                return Ok(version);
            }
        }
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let call = Call::write(Method::POST, path, "application/json", body)?;
        read(&call, &self.answer(&call).await?)
    }

    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let call = Call::write(Method::PUT, path, "application/json", body)?;
        read(&call, &self.answer(&call).await?)
    }

    pub async fn merge_patch<T: DeserializeOwned>(&self, path: &str, patch: &impl Serialize) -> Result<T, Failure> {
        self.patch(path, "application/merge-patch+json", patch).await
    }

    /// A patch of any kind, which its content type names.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        content_type: &'static str,
        patch: &impl Serialize,
    ) -> Result<T, Failure> {
        let call = Call::write(Method::PATCH, path, content_type, patch)?;
        read(&call, &self.answer(&call).await?)
    }

    pub async fn delete(&self, path: &str) -> Result<bool, Failure> {
        Ok(self.answer_if_there(&Call::bare(Method::DELETE, path)).await?.is_some())
    }

    /// Deletes an object if it is the one that these `DeleteOptions` name.
    pub async fn delete_when(&self, path: &str, options: &impl Serialize) -> Result<bool, Failure> {
        let call = Call::write(Method::DELETE, path, "application/json", options)?;
        Ok(self.answer_if_there(&call).await?.is_some())
    }

    /// Retries until there is a successful response, an error that will not change, or no time or retry left.
    async fn answer(&self, call: &Call) -> Result<Answer, Failure> {
        let _turn = self.gate.acquire().await.expect("the gate is never closed");
        if self.settling.load(Relaxed) {
            return Err(Failure::not_asked());
        }
        let client = self.client().await.map_err(|trouble| self.failure(call, trouble))?;
        let deadline = Instant::now() + self.limits.timeout;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .with_max_times(self.limits.retries as usize)
            .with_jitter()
            .build();
        loop {
            let trouble = match timeout_at(deadline, self.once(&client, call)).await {
                Ok(Ok(answer)) if (200..300).contains(&answer.status) => {
                    self.note_warnings(&answer);
                    self.granted.used(call);
                    return Ok(answer);
                }
                Ok(Ok(answer)) => Trouble::Answer(answer),
                Ok(Err(error)) => Trouble::Transport(error),
                Err(_) => Trouble::Slow(self.limits.timeout),
            };
            let pause = match trouble.passes(call.is_repeatable()) {
                true => pauses.next().map(|pause| trouble.retry_after().unwrap_or(pause)),
                false => None,
            };
            let pause = pause.filter(|_| !self.settling.load(Relaxed));
            match pause.filter(|pause| Instant::now() + *pause < deadline) {
                Some(pause) => {
                    let message =
                        format!("{}: {}; trying again in {} ms", call.name(), trouble.brief(), pause.as_millis());
                    self.report(Event::Log { message });
                    sleep(pause).await;
                }
                None => return Err(Failure::of(&self.server, call, trouble, self.limits)),
            }
        }
    }

    /// Ends the use of this client: nobody awaits what it still asks. What the server has is answered, since a request
    /// that is cancelled is an internal error in its audit log; not so if the server does not answer.
    pub async fn settle(&self, answers: bool) {
        self.settling.store(true, Relaxed);
        if !answers {
            return;
        }
        let all = u32::try_from(PARALLEL).expect("they are few");
        // An error means that the server does not answer.
        drop(timeout(SETTLED_WITHIN, self.gate.acquire_many(all)).await);
    }

    /// Makes one request outside the queue: for callers that know when to retry.
    pub async fn attempt(&self, call: &Call) -> Result<Answer, Trouble> {
        let client = self.client().await?;
        match timeout(self.limits.timeout, self.once(&client, call)).await {
            Ok(Ok(answer)) if (200..300).contains(&answer.status) => {
                self.granted.used(call);
                Ok(answer)
            }
            Ok(Ok(answer)) => Err(Trouble::Answer(answer)),
            Ok(Err(error)) => Err(Trouble::Transport(error)),
            Err(_) => Err(Trouble::Slow(self.limits.timeout)),
        }
    }

    /// The failure for a failed attempt.
    pub fn failure(&self, call: &Call, trouble: Trouble) -> Failure {
        Failure::of(&self.server, call, trouble, self.limits)
    }

    /// Whether RBAC refused what it granted before in this run.
    pub fn is_refused_for_now(&self, failure: &Failure) -> bool {
        failure.refused.as_ref().is_some_and(|access| self.granted.has(access))
    }

    /// Retries while the API server refuses what it granted before in this run; not if retries are disabled.
    pub async fn retry_refused<T>(&self, ask: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
        if self.limits.retries == 0 {
            return ask().await;
        }
        let deadline = Instant::now() + self.limits.timeout.min(ROLES_READ_WITHIN);
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(Duration::from_secs(5))
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            let failure = match ask().await {
                Err(failure) if self.is_refused_for_now(&failure) => failure,
                ended => return ended,
            };
            match pauses.next().filter(|pause| Instant::now() + *pause < deadline) {
                Some(pause) => {
                    let message = format!(
                        "{}, which was allowed before: the API server may have just started; trying again in {} ms",
                        failure.fault.what,
                        pause.as_millis()
                    );
                    self.report(Event::Log { message });
                    sleep(pause).await;
                }
                None => return Err(failure),
            }
        }
    }

    /// Logged in: a plugin has its own limit, and its failure is not the server's.
    pub(super) async fn client(&self) -> Result<Client, Trouble> {
        self.session.client().await.map_err(Trouble::Login)
    }

    async fn once(&self, client: &Client, call: &Call) -> Result<Answer, kube::Error> {
        let answered = self.asked(client, call).await;
        self.note_change(call, answered.as_ref());
        answered
    }

    async fn asked(&self, client: &Client, call: &Call) -> Result<Answer, kube::Error> {
        let (head, body) = send(client, call).await?.into_parts();
        self.note_time(&head.headers);
        let (mut rest, mut body) = (Limited::new(body, MOST_BYTES), Vec::new());
        while let Some(frame) = rest.frame().await {
            // Copied as it comes, so that a large response is in memory once.
            body.extend_from_slice(frame.map_err(kube::Error::Service)?.data_ref().map_or(&[], |data| data));
        }
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// With `Warning: 299 - "text"` the API server reports pruned fields and old APIs.
    fn note_warnings(&self, answer: &Answer) {
        for warning in answer.headers.get_all(header::WARNING).iter().filter_map(|w| w.to_str().ok()) {
            let text =
                warning.split_once('"').map_or(warning, |(_, quoted)| quoted.strip_suffix('"').unwrap_or(quoted));
            let message = format!("the API server warns: {}", text.replace("\\\"", "\""));
            self.report(Event::Warning { id: "ClusterWarning", message });
        }
    }
}

/// What shows each request, with `-vv`.
static SHOWN_BY: OnceLock<fn(&str)> = OnceLock::new();

/// From now on shows each request of this process when its response begins, or nobody waits for it any more: method,
/// path, status and time. Never its query, its headers or a body, which may have a secret.
pub fn show_requests(show: fn(&str)) {
    let _only_once = SHOWN_BY.set(show);
}

/// A request in progress. It is shown when this is dropped, so a request that is given up is shown too.
struct Asked<'a> {
    call: &'a Call,
    since: Instant,
    status: Option<u16>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(show) = SHOWN_BY.get() {
            let status = self.status.map_or_else(|| "no response".into(), |status| status.to_string());
            show(&format!("{}: {status} in {} ms", self.call.name(), self.since.elapsed().as_millis()));
        }
    }
}

/// Makes a request whose response is streamed.
pub(super) async fn send(client: &Client, call: &Call) -> Result<Response<Body>, kube::Error> {
    let mut request = Request::builder()
        .method(&call.method)
        .uri(&call.path)
        .header(header::USER_AGENT, concat!("calicoctl-win/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, call.accept);
    if call.body.is_some() {
        request = request.header(header::CONTENT_TYPE, call.content_type);
    }
    let body = call.body.clone().map_or_else(Body::empty, Body::from);
    let request = request.body(body).map_err(kube::Error::HttpError)?;
    let mut asked = Asked { call, since: Instant::now(), status: None };
    let response = client.send(request).await?;
    asked.status = Some(response.status().as_u16());
    Ok(response)
}

fn read<T: DeserializeOwned>(call: &Call, answer: &Answer) -> Result<T, Failure> {
    serde_json::from_slice(&answer.body).map_err(|cause| Failure::not_the_api(call, answer, cause))
}
