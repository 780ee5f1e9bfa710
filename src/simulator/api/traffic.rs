//! What was asked of the server: counts, a log, the journal of changes, and what it did not understand.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use http::Method;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{ApiServer, Identity, journal::Entry, lock, refusal::Refusal, request::Request};

/// More requests at one instant are a loop that never ends.
pub(super) const MOST_AT_ONCE: u64 = 100_000;

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

/// What is remembered of the traffic.
#[derive(Default)]
pub(super) struct Traffic {
    log: Option<Vec<Logged>>,
    journal: Vec<Entry>,
    /// Requests that the server did not understand.
    pub(super) unknown: Vec<String>,
    /// Requests of counted clients, by verb and kind.
    counts: BTreeMap<(String, String), u64>,
    now: Option<Instant>,
    at_once: u64,
}

impl ApiServer {
    /// From now on every request is remembered.
    pub fn keep_log(&self) {
        lock(&self.inner.traffic).log.get_or_insert_default();
    }

    /// The requests since [`Self::keep_log`].
    pub fn log(&self) -> Vec<Logged> {
        lock(&self.inner.traffic).log.clone().unwrap_or_default()
    }

    /// From now on every change of every object is remembered.
    pub fn keep_journal(&self) {
        lock(&self.inner.storage).journal.get_or_insert_default();
    }

    /// The changes since [`Self::keep_journal`] or the last call of this; they are forgotten.
    pub fn take_journal(&self) -> Vec<Entry> {
        std::mem::take(&mut lock(&self.inner.traffic).journal)
    }

    /// Requests of the operator by verb and kind.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        lock(&self.inner.traffic).counts.clone()
    }

    /// Requests that the server did not understand; tests must find none.
    pub fn unknown_requests(&self) -> Vec<String> {
        lock(&self.inner.traffic).unknown.clone()
    }

    /// From now on a request that is not simulated panics: for tests, which must not go on with an answer that no real server
    /// gives.
    pub fn panic_at_the_unknown(&self) {
        self.inner.panics.store(true, Ordering::Relaxed);
    }

    /// Remembers a request, and the changes that it made.
    pub(super) fn note(&self, identity: Identity, request: &Request, code: u16) {
        let write = (request.is_write() && identity.is_counted()).then(|| self.writes());
        let mut traffic = lock(&self.inner.traffic);
        if identity.is_counted() {
            let kind = request.place().map(|p| p.resource.plural).unwrap_or_default();
            *traffic.counts.entry((verb(request), kind)).or_default() += 1;
        }
        let at = self.inner.clock.now();
        let changes = lock(&self.inner.storage).journal.as_mut().map(std::mem::take);
        if let Some(changes) = changes.filter(|c| !c.is_empty()) {
            let by: Arc<str> = request.line.as_str().into();
            let entries = changes.into_iter().map(|change| change.by(identity, &by, at));
            traffic.journal.extend(entries);
        }
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
    pub(super) fn is_livelock(&self) -> bool {
        let mut traffic = lock(&self.inner.traffic);
        let now = Instant::now();
        if traffic.now == Some(now) {
            traffic.at_once += 1;
        } else {
            (traffic.now, traffic.at_once) = (Some(now), 0);
        }
        self.inner.clock.is_virtual() && traffic.at_once > MOST_AT_ONCE
    }

    /// Panics over a request that is not simulated, where that is wanted.
    pub(super) fn panic_if_wanted(&self, refusal: &Refusal) {
        assert!(!self.inner.panics.load(Ordering::Relaxed), "{refusal}");
    }
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
