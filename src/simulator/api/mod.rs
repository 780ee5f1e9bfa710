//! An in-memory Kubernetes API server behind an ordinary `kube::Client`.
//!
//! The operator and the simulated OpenShift run on it unchanged. It does what a real server does with everything that they
//! use: lists and watches with revisions, selectors, conflicts, status subresources, generations, finalizers, owner
//! references, the schemas of our own kinds. A request that it does not know is answered 501 and remembered, see
//! [`ApiServer::unknown_requests`].
//!
//! **Determinism.** In simulated time each request takes a millisecond, and all that are due at one instant are served in the
//! order of their method, path and body: in which order tasks were polled does then not matter, and the same seed gives the
//! same log, byte for byte.

mod answer;
mod faults;
mod kinds;
mod request;
mod selector;
mod storage;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{api::ApiResource, core::TypeMeta};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

pub use self::faults::Fault;
use self::{
    answer::{Body, Refusal, answer, json_answer},
    faults::{Course, Faults},
    kinds::Kind,
    request::{Place, Request},
    selector::Filter,
    storage::{Key, Storage},
    watch::{Watch, shown},
    write::{Writer, Written},
};
use crate::clock::Clock;

/// How long a request takes in simulated time.
const LATENCY: Duration = Duration::from_millis(1);
/// More requests at one instant are a loop that never ends.
const MOST_AT_ONCE: u64 = 100_000;

/// Whose client it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The test's or the rehearsal's own: never counted, never disturbed.
    Admin,
    /// The simulated cluster's: OpenShift, controllers of Kubernetes.
    Cluster,
    /// Our operator's, by incarnation.
    Operator(u32),
}

impl Identity {
    /// Whether its writes are counted, and faults meet it.
    fn is_counted(self) -> bool {
        match self {
            Self::Admin | Self::Cluster => false,
            Self::Operator(_) => true,
        }
    }
}

/// A request that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub identity: Identity,
    /// Method and path.
    pub line: String,
    /// Body.
    pub body: String,
    /// HTTP status of the answer; 0 = none was given.
    pub code: u16,
    /// Number of the write, for those that are counted.
    pub write: Option<u64>,
}

#[derive(Default)]
struct Traffic {
    log: Option<Vec<Logged>>,
    unknown: Vec<String>,
    /// Requests of counted clients, by verb and kind.
    counts: BTreeMap<(String, String), u64>,
    now: Option<Instant>,
    at_once: u64,
}

/// A request that waits for its turn, and where its answer goes.
type Waiting = (Identity, Request, oneshot::Sender<Option<Response<Body>>>);
/// What waits, in the order in which it is served.
type Queue = BTreeMap<(Instant, String, Bytes, u64), Waiting>;

struct Inner {
    clock: Clock,
    storage: Arc<Mutex<Storage>>,
    faults: Mutex<Faults>,
    traffic: Mutex<Traffic>,
    queue: Mutex<(Queue, u64)>,
    killed: Notify,
    /// Told when the server goes away: open connections break.
    left: Notify,
}

/// The server. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done where a panic could strike.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ApiServer {
    /// A server with Kubernetes' and OpenShift's kinds, and those of `crds`.
    pub fn new(clock: Clock, crds: &[CustomResourceDefinition]) -> Self {
        let mut all = kinds::foreign();
        all.extend(crds.iter().filter_map(kinds::of_crd));
        Self {
            inner: Arc::new(Inner {
                clock,
                storage: Arc::new(Mutex::new(Storage::new(all))),
                faults: Mutex::default(),
                traffic: Mutex::default(),
                queue: Mutex::default(),
                killed: Notify::new(),
                left: Notify::new(),
            }),
        }
    }

    /// A client.
    pub fn client(&self, identity: Identity) -> kube::Client {
        let connection = Connection {
            server: self.clone(),
            identity,
        };
        kube::Client::new(connection, "default")
    }

    /// Lets the operator's write of this number, counted from 1, go wrong.
    pub fn plan(&self, write: u64, fault: Fault) {
        lock(&self.inner.faults).plan(write, fault);
    }

    /// Writes of the operator so far.
    pub fn writes(&self) -> u64 {
        lock(&self.inner.faults).writes
    }

    /// How many planned faults struck.
    pub fn struck(&self) -> u64 {
        lock(&self.inner.faults).struck
    }

    /// Nothing of this client gets through any more, and no answer reaches it.
    pub fn kill(&self, identity: Identity) {
        lock(&self.inner.faults).kill(identity);
        self.inner.killed.notify_waiters();
    }

    /// Completes when this client is dead.
    pub async fn killed(&self, identity: Identity) {
        loop {
            let mut told = std::pin::pin!(self.inner.killed.notified());
            told.as_mut().enable();
            if lock(&self.inner.faults).is_dead(identity) {
                return;
            }
            told.await;
        }
    }

    /// Until then the server answers no operator, and their watches end. The simulated cluster goes on: its own parts are
    /// not what is tested.
    pub fn set_away_until(&self, until: Timestamp) {
        let mut faults = lock(&self.inner.faults);
        faults.away_until = Some(faults.away_until.map_or(until, |t| t.max(until)));
        drop(faults);
        self.inner.left.notify_waiters();
    }

    /// Until then the network between this client and the server is cut: requests get no answer at all, and watches end.
    pub fn cut_off_until(&self, identity: Identity, until: Timestamp) {
        lock(&self.inner.faults).cut_off_until.insert(identity, until);
        self.inner.left.notify_waiters();
    }

    fn is_away(&self, identity: Identity) -> bool {
        let until = lock(&self.inner.faults).away_until;
        identity.is_counted() && until.is_some_and(|t| self.inner.clock.now() < t)
    }

    fn is_cut_off(&self, identity: Identity) -> bool {
        let until = lock(&self.inner.faults).cut_off_until.get(&identity).copied();
        until.is_some_and(|t| self.inner.clock.now() < t)
    }

    /// The kind as clients name it, and whether its objects have a namespace; `None` if the server does not have it.
    pub fn resource(&self, types: &TypeMeta) -> Option<(ApiResource, bool)> {
        let group = types.api_version.split_once('/').map_or("", |(group, _)| group);
        let storage = lock(&self.inner.storage);
        let found = storage.kinds.iter().find(|(resource, kind)| {
            resource.group == group
                && kind.name == types.kind
                && kind.api_version(resource) == types.api_version
        });
        found.map(|(resource, kind)| {
            let api = ApiResource {
                group: resource.group.clone(),
                version: kind.version.clone(),
                api_version: types.api_version.clone(),
                kind: kind.name.clone(),
                plural: resource.plural.clone(),
            };
            (api, kind.is_namespaced)
        })
    }

    /// From now on every request is remembered.
    pub fn keep_log(&self) {
        lock(&self.inner.traffic).log.get_or_insert_default();
    }

    /// The requests since [`Self::keep_log`].
    pub fn log(&self) -> Vec<Logged> {
        lock(&self.inner.traffic).log.clone().unwrap_or_default()
    }

    /// Requests of the operator by verb and kind.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        lock(&self.inner.traffic).counts.clone()
    }

    /// Requests that the server did not understand; tests must find none.
    pub fn unknown_requests(&self) -> Vec<String> {
        lock(&self.inner.traffic).unknown.clone()
    }

    /// Every object, by `<plural>/<namespace>/<name>`.
    pub fn dump(&self) -> BTreeMap<String, Value> {
        let storage = lock(&self.inner.storage);
        let named = |key: &Key| format!("{}/{}/{}", key.resource.plural, key.namespace, key.name);
        let all = storage.objects.iter();
        all.map(|(key, object)| (named(key), object.as_ref().clone()))
            .collect()
    }

    /// The answer to a request; `None` = it never comes.
    fn serve(&self, identity: Identity, request: &Request) -> Option<Response<Body>> {
        let course = lock(&self.inner.faults).course(identity, request.is_write());
        let (given, code) = match course {
            Course::Nothing => (None, 0),
            Course::Refuse(refusal) => (Some(refusal.answer()), refusal.code),
            Course::Normal => {
                let answer = self.route(identity, request);
                let code = answer.status().as_u16();
                (Some(answer), code)
            }
            Course::Silent => {
                self.route(identity, request);
                (None, 0)
            }
        };
        self.note(identity, request, code);
        if lock(&self.inner.faults).is_dead(identity) {
            self.inner.killed.notify_waiters();
            return None;
        }
        given
    }

    fn note(&self, identity: Identity, request: &Request, code: u16) {
        let write = (request.is_write() && identity.is_counted()).then(|| self.writes());
        let mut traffic = lock(&self.inner.traffic);
        if identity.is_counted() {
            let kind = request.place().map(|p| p.resource.plural).unwrap_or_default();
            *traffic.counts.entry((verb(request), kind)).or_default() += 1;
        }
        let at = self.inner.clock.now();
        if let Some(log) = &mut traffic.log {
            log.push(Logged {
                at,
                identity,
                line: request.line.clone(),
                body: String::from_utf8_lossy(&request.body).into_owned(),
                code,
                write,
            });
        }
    }

    /// In simulated time more than any sane program asks at one instant: the clock would never move again.
    fn is_livelock(&self) -> bool {
        let mut traffic = lock(&self.inner.traffic);
        let now = Instant::now();
        if traffic.now == Some(now) {
            traffic.at_once += 1;
        } else {
            (traffic.now, traffic.at_once) = (Some(now), 0);
        }
        self.inner.clock.is_virtual() && traffic.at_once > MOST_AT_ONCE
    }

    fn route(&self, identity: Identity, request: &Request) -> Response<Body> {
        match self.try_route(identity, request) {
            Ok(answer) => answer,
            Err(refusal) => {
                if refusal.code == 501 {
                    lock(&self.inner.traffic).unknown.push(request.line.clone());
                }
                refusal.answer()
            }
        }
    }

    fn try_route(&self, identity: Identity, request: &Request) -> Result<Response<Body>, Refusal> {
        if self.is_livelock() {
            let message = format!(
                "more than {MOST_AT_ONCE} requests at one instant: {}",
                request.line
            );
            return Err(Refusal::new(501, "Livelock", message));
        }
        let unknown = || Refusal::new(501, "NotImplemented", format!("not simulated: {}", request.line));
        let place = request.place().ok_or_else(unknown)?;
        let kind = self.kind(&place)?;
        let name = place.name.as_deref();
        match (&request.method, name, place.subresource.as_deref()) {
            (&Method::GET, None, None) if request.is_set("watch") => {
                self.watch(identity, request, &place, &kind)
            }
            (&Method::GET, None, None) => self.list(request, &place, &kind),
            (&Method::GET, Some(name), None | Some("status")) => self.get(request, &place, name),
            (&Method::POST, None, None) => self.write(&place, &kind, |w| w.create(request)),
            (&Method::POST, Some(name), Some("eviction")) => self.write(&place, &kind, |w| w.evict(name)),
            (&Method::POST, Some(name), Some("binding")) => {
                self.write(&place, &kind, |w| w.bind(request, name))
            }
            (&Method::PUT | &Method::PATCH, Some(name), None) => {
                self.write(&place, &kind, |w| w.update(request, name, false))
            }
            (&Method::PUT | &Method::PATCH, Some(name), Some("status")) if kind.has_status => {
                self.write(&place, &kind, |w| w.update(request, name, true))
            }
            (&Method::DELETE, Some(name), None) => self.write(&place, &kind, |w| w.delete(request, name)),
            (_, Some(_), Some("status")) => Err(Refusal::no_such_kind()),
            _ => Err(unknown()),
        }
    }

    fn kind(&self, place: &Place) -> Result<Kind, Refusal> {
        let storage = lock(&self.inner.storage);
        let kind = storage
            .kinds
            .get(&place.resource)
            .filter(|k| k.version == place.version);
        kind.cloned().ok_or_else(Refusal::no_such_kind)
    }

    fn get(&self, request: &Request, place: &Place, name: &str) -> Result<Response<Body>, Refusal> {
        let key = Key {
            resource: place.resource.clone(),
            namespace: place.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        };
        let storage = lock(&self.inner.storage);
        let object = storage.objects.get(&key);
        let object = object.ok_or_else(|| Refusal::not_found(&place.resource.plural, name))?;
        Ok(json_answer(StatusCode::OK, &shown(object, request.metadata_only)))
    }

    fn list(&self, request: &Request, place: &Place, kind: &Kind) -> Result<Response<Body>, Refusal> {
        let filter = Filter::of(request, place.namespace.as_deref())?;
        let storage = lock(&self.inner.storage);
        let first = Key {
            resource: place.resource.clone(),
            namespace: String::new(),
            name: String::new(),
        };
        let all = storage.objects.range(first..);
        // Pages are not made: everything comes at once, however small a page was asked for.
        let items: Vec<Value> = all
            .take_while(|(key, _)| key.resource == place.resource)
            .filter(|(_, object)| filter.matches(object))
            .map(|(_, object)| shown(object, request.metadata_only))
            .collect();
        let (api_version, kind) = if request.metadata_only {
            (
                "meta.k8s.io/v1".to_owned(),
                "PartialObjectMetadataList".to_owned(),
            )
        } else {
            (kind.api_version(&place.resource), format!("{}List", kind.name))
        };
        let list = json!({
            "apiVersion": api_version, "kind": kind, "items": items,
            "metadata": {"resourceVersion": storage.revision.to_string()},
        });
        Ok(json_answer(StatusCode::OK, &list))
    }

    fn watch(
        &self,
        identity: Identity,
        request: &Request,
        place: &Place,
        kind: &Kind,
    ) -> Result<Response<Body>, Refusal> {
        let filter = Filter::of(request, place.namespace.as_deref())?;
        match Watch::new(&self.inner.storage, request, &place.resource, kind, filter) {
            Ok(watch) => {
                let server = self.clone();
                let lines = watch.lines().take_until(Box::pin(server.gone(identity)));
                let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
                Ok(answer(StatusCode::OK, StreamBody::new(frames).boxed_unsync()))
            }
            // The server says so within the stream.
            Err(refusal) if refusal.code == 410 => Ok(json_answer(StatusCode::OK, &refusal.event())),
            Err(refusal) => Err(refusal),
        }
    }

    /// Completes when the server goes away for this client.
    async fn gone(self, identity: Identity) {
        loop {
            let mut told = std::pin::pin!(self.inner.left.notified());
            told.as_mut().enable();
            if self.is_away(identity) || self.is_cut_off(identity) {
                return;
            }
            told.await;
        }
    }

    fn write(
        &self,
        place: &Place,
        kind: &Kind,
        act: impl FnOnce(&mut Writer<'_>) -> Result<Written, Refusal>,
    ) -> Result<Response<Body>, Refusal> {
        let mut storage = lock(&self.inner.storage);
        let mut writer = Writer {
            storage: &mut storage,
            place,
            kind,
            now: whole_seconds(self.inner.clock.now()),
        };
        let Written { code, document } = act(&mut writer)?;
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
        Ok(json_answer(code, &document))
    }

    /// Serves the request when its time has come, together with all others of that instant, in their order.
    async fn in_turn(&self, identity: Identity, request: Request) -> Option<Response<Body>> {
        if !self.inner.clock.is_virtual() {
            return self.serve(identity, &request);
        }
        let due = Instant::now() + LATENCY;
        let (tell, told) = oneshot::channel();
        {
            let (queue, count) = &mut *lock(&self.inner.queue);
            *count += 1;
            let turn = (due, request.line.clone(), request.body.clone(), *count);
            queue.insert(turn, (identity, request, tell));
        }
        tokio::time::sleep_until(due).await;
        while let Some((identity, request, tell)) = self.next_due() {
            // A client that gave up meanwhile has closed its connection before the server read the request.
            if !tell.is_closed() {
                // The one that asked may be gone by the time of the answer: then nobody misses it.
                let _ = tell.send(self.serve(identity, &request));
            }
        }
        told.await.ok().flatten()
    }

    fn next_due(&self) -> Option<Waiting> {
        let (queue, _) = &mut *lock(&self.inner.queue);
        let first = queue.first_entry()?;
        (first.key().0 <= Instant::now()).then(|| first.remove())
    }
}

fn whole_seconds(t: Timestamp) -> String {
    let rounded = t.round(jiff::Unit::Second).unwrap_or(t);
    let seconds = if rounded > t {
        rounded.checked_sub(1.second()).unwrap_or(t)
    } else {
        rounded
    };
    seconds.to_string()
}

/// With the time in it, as every HTTP server says it.
fn dated(mut answer: Response<Body>, now: Timestamp) -> Response<Body> {
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
    if let Some(date) = date.ok().and_then(|d| header::HeaderValue::from_str(&d).ok()) {
        answer.headers_mut().insert(header::DATE, date);
    }
    answer
}

/// As RBAC calls it.
fn verb(request: &Request) -> String {
    let has_name = request.place().is_some_and(|p| p.name.is_some());
    let verb = match request.method {
        Method::GET if request.is_set("watch") => "watch",
        Method::GET if has_name => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    verb.to_owned()
}

/// A client's connection.
struct Connection {
    server: ApiServer,
    identity: Identity,
}

/// The connection broke.
#[derive(Debug, thiserror::Error)]
enum Broken {
    /// Nobody listens.
    #[error("connection refused (the simulated API server is away)")]
    Away,
    /// The request could not be read.
    #[error("cannot read the request: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl tower::Service<http::Request<kube::client::Body>> for Connection {
    type Response = Response<Body>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Broken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let (server, identity) = (self.server.clone(), self.identity);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body
                .collect_bytes()
                .await
                .map_err(|e| Broken::Body(Box::new(e)))?;
            if server.is_away(identity) {
                return Err(Broken::Away);
            }
            if server.is_cut_off(identity) {
                return std::future::pending().await;
            }
            match server.in_turn(identity, Request::new(&parts, body)).await {
                Some(answer) => Ok(dated(answer, server.inner.clock.now())),
                None => std::future::pending().await,
            }
        })
    }
}
