//! What the server keeps: objects, revisions, and the log of changes that watches read.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::kinds::{Kind, Resource};

/// An object's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Kind.
    pub resource: Resource,
    /// Namespace; empty where the kind has none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// How an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is different.
    Modified,
    /// It is gone.
    Deleted,
}

impl Change {
    /// As watches call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its revision.
    pub revision: u64,
    /// How.
    pub change: Change,
    /// The object after it; of a deleted one the last state.
    pub object: Arc<Value>,
    /// The object before it: a watch with a selector shows an object that begins or ceases to match as new or gone.
    pub before: Option<Arc<Value>>,
}

/// The changes of one kind.
#[derive(Default)]
pub struct Log {
    /// Changes up to this revision are forgotten.
    pub compacted: u64,
    /// The others, oldest first.
    pub events: VecDeque<Event>,
    /// Told of each change.
    pub changed: Arc<Notify>,
}

/// So many changes of a kind are remembered.
const REMEMBERED: usize = 1_000;

/// Everything.
pub struct Storage {
    /// The newest revision.
    pub revision: u64,
    uids: u64,
    /// Kinds.
    pub kinds: BTreeMap<Resource, Kind>,
    /// Objects.
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// Changes.
    pub logs: BTreeMap<Resource, Log>,
}

impl Storage {
    /// An empty one.
    pub fn new(kinds: BTreeMap<Resource, Kind>) -> Self {
        Self {
            revision: 1_000,
            uids: 0,
            kinds,
            objects: BTreeMap::new(),
            logs: BTreeMap::new(),
        }
    }

    /// A UID that nobody has.
    pub fn new_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// Stores a new or changed object under a new revision.
    pub fn put(&mut self, key: &Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        set_metadata(&mut object, "resourceVersion", json!(self.revision.to_string()));
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        let change = if before.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        self.publish(key, change, &object, before);
        object
    }

    /// Removes an object; what it owned goes too, unless something else owns it as well.
    pub fn remove(&mut self, key: &Key, now: &str) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.revision += 1;
        let mut last = before.as_ref().clone();
        set_metadata(&mut last, "resourceVersion", json!(self.revision.to_string()));
        let last = Arc::new(last);
        self.publish(key, Change::Deleted, &last, Some(before));
        self.collect(&last, now);
        Some(last)
    }

    fn publish(&mut self, key: &Key, change: Change, object: &Arc<Value>, before: Option<Arc<Value>>) {
        let revision = self.revision;
        let log = self.logs.entry(key.resource.clone()).or_default();
        log.events.push_back(Event {
            revision,
            change,
            object: Arc::clone(object),
            before,
        });
        while log.events.len() > REMEMBERED {
            if let Some(forgotten) = log.events.pop_front() {
                log.compacted = forgotten.revision;
            }
        }
        log.changed.notify_waiters();
    }

    /// Marks an object as being deleted, or removes it if nothing holds it. Returns what is left of it.
    pub fn delete(&mut self, key: &Key, now: &str) -> Option<Arc<Value>> {
        let object = self.objects.get(key)?;
        if !is_held(object) {
            return self.remove(key, now);
        }
        if metadata(object, "deletionTimestamp").is_some() {
            return Some(Arc::clone(object));
        }
        let mut object = object.as_ref().clone();
        set_metadata(&mut object, "deletionTimestamp", json!(now));
        set_metadata(&mut object, "deletionGracePeriodSeconds", json!(0));
        let generation = generation(&object) + 1;
        set_metadata(&mut object, "generation", json!(generation));
        Some(self.put(key, object))
    }

    /// The garbage collector, which on a real cluster does this a moment later.
    fn collect(&mut self, owner: &Value, now: &str) {
        let Some(uid) = metadata(owner, "uid").cloned() else {
            return;
        };
        let orphans: Vec<(Key, Vec<Value>)> = self
            .objects
            .iter()
            .filter_map(|(key, object)| {
                let owners = metadata(object, "ownerReferences")?.as_array()?;
                let rest: Vec<Value> = owners
                    .iter()
                    .filter(|o| o.get("uid") != Some(&uid))
                    .cloned()
                    .collect();
                (rest.len() < owners.len()).then(|| (key.clone(), rest))
            })
            .collect();
        for (key, rest) in orphans {
            if rest.is_empty() {
                self.delete(&key, now);
            } else if let Some(object) = self.objects.get(&key) {
                let mut object = object.as_ref().clone();
                set_metadata(&mut object, "ownerReferences", Value::Array(rest));
                self.put(&key, object);
            }
        }
    }
}

/// A field of the metadata.
pub fn metadata<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field).filter(|v| !v.is_null())
}

/// Sets a field of the metadata.
pub fn set_metadata(object: &mut Value, field: &str, value: Value) {
    if let Some(map) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        map.insert(field.to_owned(), value);
    }
}

/// Whether finalizers hold the object.
pub fn is_held(object: &Value) -> bool {
    metadata(object, "finalizers")
        .and_then(Value::as_array)
        .is_some_and(|f| !f.is_empty())
}

/// `metadata.generation`.
pub fn generation(object: &Value) -> i64 {
    metadata(object, "generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}
