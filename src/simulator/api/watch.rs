//! Watches: a body that goes on.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    kinds::{Kind, Resource},
    refusal::{FieldError, Refusal},
    request::Request,
    selector::Filter,
    storage::{Change, Event, Storage, metadata, set_metadata},
};

/// How long a watch lasts that does not say so; a real server picks 30 to 60 minutes.
const DEFAULT: Duration = Duration::from_secs(1_800);

/// A watch of one kind.
pub struct Watch {
    storage: Arc<Mutex<Storage>>,
    resource: Resource,
    kind: Kind,
    filter: Filter,
    /// Changes up to here were sent.
    cursor: u64,
    deadline: Instant,
    bookmarks: bool,
    metadata_only: bool,
    /// What is sent before all changes.
    first: Vec<u8>,
    over: bool,
}

impl Watch {
    /// Begins the watch that the request asks for.
    pub fn new(
        storage: &Arc<Mutex<Storage>>,
        request: &Request,
        resource: &Resource,
        kind: &Kind,
        filter: Filter,
    ) -> Result<Self, Refusal> {
        let number = |name: &str| request.parameter(name).and_then(|v| v.parse::<u64>().ok());
        let told = request.parameter("resourceVersion").unwrap_or("0");
        let told: u64 = told.parse().map_err(|_| {
            let message = format!("resourceVersion: Invalid value: {told:?}: strconv.ParseUint: parsing {told:?}: invalid syntax");
            Refusal::internal(message)
        })?;
        let initial = request.is_set("sendInitialEvents");
        if initial && request.parameter("resourceVersionMatch") != Some("NotOlderThan") {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let error = FieldError::forbidden("resourceVersionMatch", why);
            return Err(Refusal::invalid("meta.k8s.io", "ListOptions", "", &[error]));
        }
        let mut locked = storage.lock().unwrap_or_else(PoisonError::into_inner);
        let compacted = locked.logs.entry(resource.clone()).or_default().compacted;
        if told != 0 && told < compacted {
            let message = format!("too old resource version: {told} ({compacted})");
            return Err(Refusal::new(410, "Expired", message));
        }
        let newest = locked.revision;
        let lasts = number("timeoutSeconds").map_or(DEFAULT, Duration::from_secs);
        let mut watch = Self {
            storage: Arc::clone(storage),
            resource: resource.clone(),
            kind: kind.clone(),
            filter,
            cursor: if told == 0 || initial { newest } else { told },
            deadline: Instant::now() + lasts,
            bookmarks: request.is_set("allowWatchBookmarks"),
            metadata_only: request.metadata_only,
            first: Vec::new(),
            over: false,
        };
        // Who names no revision gets what is there first.
        if told == 0 || initial {
            watch.first = watch.what_is_there(&locked, initial);
        }
        Ok(watch)
    }

    fn what_is_there(&self, storage: &Storage, initial: bool) -> Vec<u8> {
        let mut lines = Vec::new();
        for (_, object) in storage.of_kind(&self.resource) {
            if self.filter.matches(object) {
                let object = shown(object, self.metadata_only);
                let line = json!({"type": Change::Added.as_str(), "object": object});
                lines.extend_from_slice(format!("{line}\n").as_bytes());
            }
        }
        if initial && self.bookmarks {
            let metadata = json!({
                "resourceVersion": storage.revision.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            });
            lines.extend_from_slice(&self.bookmark_with(&metadata));
        }
        lines
    }

    /// Its events, as lines.
    pub fn lines(self) -> impl Stream<Item = Bytes> {
        futures::stream::unfold(self, async |mut watch| {
            let line = watch.next().await?;
            Some((line, watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first).into());
        }
        loop {
            let (lines, changed) = self.pending();
            if !lines.is_empty() {
                return Some(lines.into());
            }
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            // Between the look and this line nothing ran that could have changed anything: one thread, no await.
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(self.deadline) => {
                    self.over = true;
                    return self.bookmarks.then(|| self.bookmark());
                }
            }
        }
    }

    /// The changes that were not sent yet, and what tells of the next.
    fn pending(&mut self) -> (Vec<u8>, tokio::sync::futures::OwnedNotified) {
        let mut storage = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        let log = storage.logs.entry(self.resource.clone()).or_default();
        let from = log.events.partition_point(|e| e.revision <= self.cursor);
        let mut lines = Vec::new();
        for event in log.events.range(from..) {
            self.cursor = event.revision;
            if let Some(change) = seen(&self.filter, event) {
                let object = shown(&seen_object(change, event), self.metadata_only);
                let line = json!({"type": change.as_str(), "object": object});
                lines.extend_from_slice(line.to_string().as_bytes());
                lines.push(b'\n');
            }
        }
        (lines, Arc::clone(&log.changed).notified_owned())
    }

    fn bookmark(&self) -> Bytes {
        let storage = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = storage.revision.max(self.cursor).to_string();
        self.bookmark_with(&json!({"resourceVersion": revision})).into()
    }

    fn bookmark_with(&self, metadata: &Value) -> Vec<u8> {
        let line = json!({"type": "BOOKMARK", "object": {
            "kind": self.kind.name, "apiVersion": self.kind.api_version(&self.resource), "metadata": metadata,
        }});
        format!("{line}\n").into_bytes()
    }
}

/// Of an object that ceases to match, watches show the last state that did.
fn seen_object(change: Change, event: &Event) -> std::borrow::Cow<'_, Value> {
    match (change, event.change, &event.before) {
        (Change::Deleted, Change::Modified, Some(before)) => {
            let mut last = before.as_ref().clone();
            let revision = metadata(&event.object, "resourceVersion").cloned();
            set_metadata(&mut last, "resourceVersion", revision.unwrap_or_default());
            std::borrow::Cow::Owned(last)
        }
        _ => std::borrow::Cow::Borrowed(event.object.as_ref()),
    }
}

/// How a watch with this selector sees a change: an object that begins to match is new, one that ceases to is gone.
fn seen(filter: &Filter, event: &Event) -> Option<Change> {
    let now = filter.matches(&event.object);
    let before = event.before.as_ref().is_some_and(|o| filter.matches(o));
    match (event.change, before, now) {
        (Change::Added, _, true) | (Change::Modified, false, true) => Some(Change::Added),
        (Change::Modified, true, true) => Some(Change::Modified),
        (Change::Modified, true, false) | (Change::Deleted, _, true) => Some(Change::Deleted),
        (Change::Added | Change::Deleted, _, false) | (Change::Modified, false, false) => None,
    }
}

/// The object, or what is shown of it if only metadata is wanted.
pub fn shown(object: &Value, metadata_only: bool) -> Value {
    if metadata_only {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": object.get("metadata"),
        })
    } else {
        object.clone()
    }
}
