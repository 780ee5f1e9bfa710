//! What the server keeps: objects, revisions, and the log of changes that watches read.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    journal::Stored,
    kinds::{Kinds, Resource},
};

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
pub struct Log {
    /// Changes up to this revision are forgotten.
    pub compacted: u64,
    /// The others, oldest first.
    pub events: VecDeque<Event>,
    /// Told of each change.
    pub changed: Arc<Notify>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            compacted: FIRST_REVISION,
            events: VecDeque::new(),
            changed: Arc::default(),
        }
    }
}

/// The rest of a list that was asked for in pages.
pub struct Page {
    /// What the client continues with.
    pub token: String,
    /// Revision of the whole list.
    pub revision: u64,
    /// What is left of it.
    pub rest: Vec<Arc<Value>>,
}

/// So many changes of a kind are remembered.
const REMEMBERED: usize = 1_000;
/// So many lists may be in the middle of being read; a real server forgets them after five minutes.
const MOST_PAGES: usize = 100;
/// Where revisions begin.
const FIRST_REVISION: u64 = 1_000;

/// Everything.
pub struct Storage {
    /// The newest revision.
    pub revision: u64,
    numbers: u64,
    /// Kinds.
    pub kinds: Kinds,
    /// Objects.
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// Changes.
    pub logs: BTreeMap<Resource, Log>,
    /// Objects by UID.
    pub uids: BTreeMap<String, Key>,
    /// Objects by the UIDs of their owners.
    pub owned: BTreeMap<String, BTreeSet<Key>>,
    pages: VecDeque<Page>,
    /// The changes of the request that is being served, if somebody wants to know them.
    pub journal: Option<Vec<Stored>>,
}

impl Storage {
    /// An empty one.
    pub fn new(kinds: Kinds) -> Self {
        Self {
            revision: FIRST_REVISION,
            numbers: 0,
            kinds,
            objects: BTreeMap::new(),
            logs: BTreeMap::new(),
            uids: BTreeMap::new(),
            owned: BTreeMap::new(),
            pages: VecDeque::new(),
            journal: None,
        }
    }

    /// The same objects, for a write that is to leave no trace.
    pub fn copy(&self) -> Self {
        Self {
            revision: self.revision,
            numbers: self.numbers,
            kinds: self.kinds.clone(),
            objects: self.objects.clone(),
            logs: BTreeMap::new(),
            uids: self.uids.clone(),
            owned: self.owned.clone(),
            pages: VecDeque::new(),
            journal: None,
        }
    }

    /// A number that nobody has.
    pub fn new_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A UID that nobody has.
    pub fn new_uid(&mut self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.new_number())
    }

    /// Objects of a kind, by namespace and name.
    pub fn of_kind<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        let first = Key {
            resource: resource.clone(),
            namespace: String::new(),
            name: String::new(),
        };
        let from = self.objects.range(first..);
        from.take_while(move |(key, _)| key.resource == *resource)
    }

    /// Remembers the rest of a list, and returns what the client continues with.
    pub fn keep_page(&mut self, revision: u64, rest: Vec<Arc<Value>>) -> String {
        let token = format!("page-{}", self.new_number());
        if self.pages.len() >= MOST_PAGES {
            self.pages.pop_front();
        }
        self.pages.push_back(Page {
            token: token.clone(),
            revision,
            rest,
        });
        token
    }

    /// The rest of a list.
    pub fn page(&self, token: &str) -> Option<&Page> {
        self.pages.iter().find(|p| p.token == token)
    }

    /// Stores a new or changed object under a new revision.
    pub fn put(&mut self, key: &Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        set_metadata(&mut object, "resourceVersion", json!(self.revision.to_string()));
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.index(key, before.as_deref(), Some(&object));
        let change = if before.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        self.publish(key, change, &object, before);
        object
    }

    /// Takes an object out. What it leaves behind is the collector's, see [`Self::remove`].
    pub fn take_out(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.index(key, Some(&before), None);
        self.revision += 1;
        let mut last = before.as_ref().clone();
        set_metadata(&mut last, "resourceVersion", json!(self.revision.to_string()));
        let last = Arc::new(last);
        self.publish(key, Change::Deleted, &last, Some(before));
        Some(last)
    }

    fn index(&mut self, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        let uid = |object: &Value| metadata(object, "uid").and_then(Value::as_str).map(str::to_owned);
        if before.is_none() || after.is_none() {
            if let Some(uid) = before.and_then(uid) {
                self.uids.remove(&uid);
            }
            if let Some(uid) = after.and_then(uid) {
                self.uids.insert(uid, key.clone());
            }
        }
        let (before, after) = (owners(before), owners(after));
        for uid in before.iter().filter(|u| !after.contains(*u)) {
            if let Some(owned) = self.owned.get_mut(uid) {
                owned.remove(key);
                if owned.is_empty() {
                    self.owned.remove(uid);
                }
            }
        }
        for uid in after.into_iter().filter(|u| !before.contains(u)) {
            self.owned.entry(uid).or_default().insert(key.clone());
        }
    }

    fn publish(&mut self, key: &Key, change: Change, object: &Arc<Value>, before: Option<Arc<Value>>) {
        if let Some(journal) = &mut self.journal {
            journal.push(Stored {
                key: key.clone(),
                before: before.clone(),
                after: (change != Change::Deleted).then(|| Arc::clone(object)),
            });
        }
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
}

/// UIDs of the owners of an object.
pub fn owners(object: Option<&Value>) -> Vec<String> {
    let owners = object.and_then(|o| metadata(o, "ownerReferences"));
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    owners
        .filter_map(|o| o.get("uid").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
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
