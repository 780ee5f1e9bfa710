//! An in-memory Kubernetes API server behind an ordinary `kube::Client`.
//!
//! The operator and the simulated OpenShift run on it unchanged. It does what a real server does with everything that they
//! use: lists and watches with revisions, selectors, conflicts, status subresources, generations, finalizers, owner
//! references, the schemas of our own kinds. `tests/api_conformance` holds it against a real one; what still differs is in
//! `docs/simulation.md`. A request that it does not know is answered 501 and remembered, see
//! [`ApiServer::unknown_requests`].
//!
//! **Determinism.** In simulated time each request takes a millisecond, and all that are due at one instant are served in the
//! order of their method, path and body: in which order tasks were polled does then not matter, and the same seed gives the
//! same log, byte for byte.

mod answer;
mod batch;
mod budget;
mod built_in;
mod collector;
mod connection;
mod delete;
mod faults;
mod journal;
mod kinds;
mod metadata;
mod patch;
mod read;
mod refusal;
mod request;
mod review;
mod schema;
mod selector;
mod storage;
#[cfg(test)]
mod tests;
mod traffic;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use futures::StreamExt;
use http::{Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::{Timestamp, ToSpan};
use kube::{api::ApiResource, core::TypeMeta};
use serde_json::Value;
use tokio::sync::Notify;

use self::{
    answer::{Body, answer, json_answer},
    connection::{Connection, Queue},
    faults::{Course, Faults},
    kinds::{Kind, Resource},
    refusal::Refusal,
    request::{Place, Request},
    selector::Filter,
    storage::{Key, Storage},
    traffic::{MOST_AT_ONCE, Traffic},
    watch::Watch,
    write::{Part, Writer, Written},
};
pub use self::{faults::Fault, journal::Entry, kinds::Kinds, review::Review, traffic::Logged};
use crate::clock::Clock;

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

struct Inner {
    clock: Clock,
    storage: Arc<Mutex<Storage>>,
    faults: Mutex<Faults>,
    traffic: Mutex<Traffic>,
    queue: Mutex<Queue>,
    panics: AtomicBool,
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
    /// A server with these kinds.
    pub fn new(clock: Clock, kinds: Kinds) -> Self {
        Self {
            inner: Arc::new(Inner {
                clock,
                storage: Arc::new(Mutex::new(Storage::new(kinds))),
                faults: Mutex::default(),
                traffic: Mutex::default(),
                queue: Mutex::default(),
                panics: AtomicBool::new(false),
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

    /// From now on the server has no such kind, as far as operators can see; watches of it that have begun go on. The simulated
    /// cluster keeps it: its own parts are not what is tested.
    pub fn hide_from_operators(&self, group: &str, plural: &str) {
        let hidden = Resource {
            group: group.to_owned(),
            plural: plural.to_owned(),
        };
        lock(&self.inner.faults).hidden.insert(hidden);
    }

    /// The server has all kinds again.
    pub fn hide_nothing(&self) {
        lock(&self.inner.faults).hidden.clear();
    }

    fn is_hidden(&self, identity: Identity, resource: &Resource) -> bool {
        identity.is_counted() && lock(&self.inner.faults).hidden.contains(resource)
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
        let found = storage.kinds.all().iter().find(|(resource, kind)| {
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

    fn route(&self, identity: Identity, request: &Request) -> Response<Body> {
        match self.try_route(identity, request) {
            Ok(answer) => answer,
            Err(refusal) => {
                if refusal.code == 501 {
                    self.panic_if_wanted(&refusal);
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
        let place = request
            .place()
            .filter(|_| request.is_understood())
            .ok_or_else(unknown)?;
        let kind = self.kind(identity, &place)?;
        let name = place.name.as_deref();
        match (&request.method, name, place.subresource.as_deref()) {
            (&Method::GET, None, None) if request.is_set("watch") => {
                self.watch(identity, request, &place, &kind)
            }
            (&Method::GET, None, None) => {
                let list = read::list(&mut lock(&self.inner.storage), request, &place, &kind)?;
                Ok(json_answer(StatusCode::OK, &list))
            }
            (_, Some(_), Some("status")) if !kind.has_status => Err(Refusal::no_such_kind()),
            (&Method::GET, Some(name), None | Some("status")) => {
                let object = read::get(&lock(&self.inner.storage), request, &place, name)?;
                Ok(json_answer(StatusCode::OK, &object))
            }
            (&Method::POST, None, None) => self.write(request, &place, &kind, |w| w.create(request)),
            (&Method::POST, Some(name), Some("eviction")) => {
                self.write(request, &place, &kind, |w| w.evict(request, name))
            }
            (&Method::POST, Some(name), Some("binding")) => {
                self.write(request, &place, &kind, |w| w.bind(request, name))
            }
            (&Method::PUT | &Method::PATCH, Some(name), None) => {
                self.write(request, &place, &kind, |w| w.update(request, name, Part::Main))
            }
            (&Method::PUT | &Method::PATCH, Some(name), Some("status")) => {
                self.write(request, &place, &kind, |w| w.update(request, name, Part::Status))
            }
            (&Method::DELETE, Some(name), None) => {
                self.write(request, &place, &kind, |w| w.delete(request, name))
            }
            (&Method::DELETE, None, None) => self.write(request, &place, &kind, |w| w.delete_all(request)),
            _ => Err(unknown()),
        }
    }

    fn kind(&self, identity: Identity, place: &Place) -> Result<Kind, Refusal> {
        let storage = lock(&self.inner.storage);
        let kind = storage
            .kinds
            .all()
            .get(&place.resource)
            .filter(|k| k.version == place.version && !self.is_hidden(identity, &place.resource));
        kind.cloned().ok_or_else(|| {
            // Groups with another ending belong to CustomResourceDefinitions.
            let group = &place.resource.group;
            if group.contains('.') && !group.ends_with(".k8s.io") {
                Refusal::no_such_page()
            } else {
                Refusal::no_such_kind()
            }
        })
    }

    fn watch(
        &self,
        identity: Identity,
        request: &Request,
        place: &Place,
        kind: &Kind,
    ) -> Result<Response<Body>, Refusal> {
        let filter = Filter::of(request, place.namespace.as_deref(), kind)?;
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
        request: &Request,
        place: &Place,
        kind: &Kind,
        act: impl FnOnce(&mut Writer<'_>) -> Result<Written, Refusal>,
    ) -> Result<Response<Body>, Refusal> {
        let mut storage = lock(&self.inner.storage);
        let mut rehearsal = request.is_dry_run()?.then(|| storage.copy());
        let mut writer = Writer {
            storage: rehearsal.as_mut().unwrap_or(&mut storage),
            place,
            kind,
            now: self.inner.clock.now(),
        };
        let Written { code, mut document } = act(&mut writer)?;
        if rehearsal.is_some() {
            read::with_stored_revision(&storage, place, &mut document);
        }
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
        Ok(json_answer(code, &document))
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
