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
    answer::Refusal,
    kinds::{Kind, Resource},
    request::Request,
    selector::Filter,
    storage::{Change, Event, Storage},
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
        let lasts = number("timeoutSeconds").map_or(DEFAULT, Duration::from_secs);
        let mut locked = storage.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = locked.revision;
        let compacted = locked.logs.entry(resource.clone()).or_default().compacted;
        // Without a revision a real server sends all objects first; nobody here asks for that.
        let cursor = number("resourceVersion").filter(|r| *r > 0).unwrap_or(newest);
        if cursor < compacted {
            let message = format!("too old resource version: {cursor} ({compacted})");
            return Err(Refusal::new(410, "Expired", message));
        }
        Ok(Self {
            storage: Arc::clone(storage),
            resource: resource.clone(),
            kind: kind.clone(),
            filter,
            cursor,
            deadline: Instant::now() + lasts,
            bookmarks: request.is_set("allowWatchBookmarks"),
            metadata_only: request.metadata_only,
            over: false,
        })
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
                let object = shown(&event.object, self.metadata_only);
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
        let line = json!({"type": "BOOKMARK", "object": {
            "kind": self.kind.name, "apiVersion": self.kind.api_version(&self.resource),
            "metadata": {"resourceVersion": revision},
        }});
        format!("{line}\n").into()
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
