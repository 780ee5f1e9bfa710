//! The garbage collector, which on a real cluster does this a moment later.

use std::sync::Arc;

use serde_json::{Value, json};

use super::storage::{Key, Storage, generation, is_held, metadata, owners, set_metadata};

/// What becomes of the objects that an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They go after it.
    Background,
    /// It goes after them.
    Foreground,
    /// They stay.
    Orphan,
}

impl Policy {
    /// The finalizer by which the collector is told.
    fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::Background => None,
            Self::Foreground => Some("foregroundDeletion"),
            Self::Orphan => Some("orphan"),
        }
    }
}

impl Storage {
    /// Marks an object as being deleted, or removes it if nothing holds it. Returns what the one who asked is told: the
    /// object, and whether it is still there. A `grace` of seconds holds it too, until it is cut short.
    pub fn delete(
        &mut self,
        key: &Key,
        policy: Policy,
        grace: u64,
        now: jiff::Timestamp,
    ) -> Option<(Arc<Value>, bool)> {
        let mut object = self.objects.get(key)?.as_ref().clone();
        let was_going = metadata(&object, "deletionTimestamp").is_some();
        if let Some(finalizer) = policy.finalizer() {
            add_finalizer(&mut object, finalizer);
        }
        if !is_held(&object) && grace == 0 {
            return self.remove(key, now).map(|last| (last, false));
        }
        if !was_going {
            let seconds = i64::try_from(grace).unwrap_or(i64::MAX);
            let ends = now.saturating_add(jiff::SignedDuration::from_secs(seconds));
            set_metadata(
                &mut object,
                "deletionTimestamp",
                json!(super::whole_seconds(ends.unwrap_or(now))),
            );
            set_metadata(&mut object, "deletionGracePeriodSeconds", json!(grace));
            if metadata(&object, "generation").is_some() {
                let generation = generation(&object) + 1;
                set_metadata(&mut object, "generation", json!(generation));
            }
        }
        if was_going {
            shorten(&mut object, grace);
        }
        let unchanged = self.objects.get(key).filter(|o| ***o == object).cloned();
        let told = unchanged.unwrap_or_else(|| self.put(key, object));
        self.finish(key, now);
        Some((told, true))
    }

    /// Removes an object; what it owned goes too, unless something else owns it as well.
    pub fn remove(&mut self, key: &Key, now: jiff::Timestamp) -> Option<Arc<Value>> {
        let last = self.take_out(key)?;
        let uid = metadata(&last, "uid").and_then(Value::as_str).unwrap_or_default();
        for dependent in self.dependents(uid) {
            self.leave(&dependent, uid, true, now);
        }
        // An owner may have waited for this.
        for owner in owners(Some(&last)) {
            if let Some(owner) = self.uids.get(&owner).cloned() {
                self.finish(&owner, now);
            }
        }
        Some(last)
    }

    /// Deletes an object whose owners do not exist. (A kind that the server does not have may have any owner.)
    pub fn collect(&mut self, key: &Key, now: jiff::Timestamp) {
        let Some(object) = self.objects.get(key) else {
            return;
        };
        let references = metadata(object, "ownerReferences").and_then(Value::as_array);
        let Some(references) = references.filter(|r| !r.is_empty()) else {
            return;
        };
        let is_gone = |reference: &Value| {
            let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
            let is_known = self
                .kinds
                .all()
                .iter()
                .any(|(r, k)| k.name == text("kind") && k.api_version(r) == text("apiVersion"));
            is_known && !self.uids.contains_key(text("uid"))
        };
        if references.iter().all(is_gone) {
            self.delete(key, Policy::Background, 0, now);
        }
    }

    fn dependents(&self, uid: &str) -> Vec<Key> {
        self.owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Takes a reference to an owner away; without any owner left the object is deleted, if wanted.
    fn leave(&mut self, key: &Key, owner: &str, delete: bool, now: jiff::Timestamp) {
        let Some(object) = self.objects.get(key) else {
            return;
        };
        let references = metadata(object, "ownerReferences").and_then(Value::as_array);
        let rest: Vec<Value> = references
            .into_iter()
            .flatten()
            .filter(|o| o.get("uid").and_then(Value::as_str) != Some(owner))
            .cloned()
            .collect();
        if rest.is_empty() && delete {
            self.delete(key, Policy::Background, 0, now);
            return;
        }
        let mut object = object.as_ref().clone();
        if let Some(map) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            if rest.is_empty() {
                map.remove("ownerReferences");
            } else {
                map.insert("ownerReferences".to_owned(), Value::Array(rest));
            }
        }
        self.put(key, object);
    }

    /// Does the collector's part of a deletion, and takes its finalizer away when it is done.
    fn finish(&mut self, key: &Key, now: jiff::Timestamp) {
        let Some(object) = self.objects.get(key).cloned() else {
            return;
        };
        if metadata(&object, "deletionTimestamp").is_none() {
            return;
        }
        let uid = metadata(&object, "uid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if has_finalizer(&object, "orphan") {
            for dependent in self.dependents(uid) {
                self.leave(&dependent, uid, false, now);
            }
            self.drop_finalizer(key, "orphan", now);
        } else if has_finalizer(&object, "foregroundDeletion") {
            for dependent in self.dependents(uid) {
                let blocks = self.objects.get(&dependent).is_some_and(|o| blocks(o, uid));
                let is_going = |o: &Arc<Value>| metadata(o, "deletionTimestamp").is_some();
                let policy = if blocks {
                    Policy::Foreground
                } else {
                    Policy::Background
                };
                if !self.objects.get(&dependent).is_some_and(is_going) {
                    self.delete(&dependent, policy, 0, now);
                }
            }
            let left = self.dependents(uid);
            let waits = left
                .iter()
                .any(|d| self.objects.get(d).is_some_and(|o| blocks(o, uid)));
            if !waits {
                self.drop_finalizer(key, "foregroundDeletion", now);
            }
        }
    }

    fn drop_finalizer(&mut self, key: &Key, finalizer: &str, now: jiff::Timestamp) {
        let Some(object) = self.objects.get(key) else {
            return;
        };
        let mut object = object.as_ref().clone();
        if let Some(map) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let list = map.get_mut("finalizers").and_then(Value::as_array_mut);
            let is_empty = list.is_some_and(|list| {
                list.retain(|f| f != finalizer);
                list.is_empty()
            });
            if is_empty {
                map.remove("finalizers");
            }
        }
        if is_held(&object) {
            self.put(key, object);
        } else {
            self.remove(key, now);
        }
    }
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    let list = metadata(object, "finalizers").and_then(Value::as_array);
    list.into_iter().flatten().any(|f| f == name)
}

fn add_finalizer(object: &mut Value, name: &str) {
    if has_finalizer(object, name) {
        return;
    }
    let mut list = metadata(object, "finalizers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    list.push(json!(name));
    set_metadata(object, "finalizers", Value::Array(list));
}

fn blocks(object: &Value, owner: &str) -> bool {
    let references = metadata(object, "ownerReferences").and_then(Value::as_array);
    let mut those = references.into_iter().flatten();
    those.any(|o| {
        o.get("uid").and_then(Value::as_str) == Some(owner)
            && o.get("blockOwnerDeletion") == Some(&Value::Bool(true))
    })
}
/// What is going already may be told to go sooner, never later.
fn shorten(object: &mut Value, grace: u64) {
    let told = metadata(object, "deletionGracePeriodSeconds").and_then(Value::as_u64);
    let ends = metadata(object, "deletionTimestamp")
        .and_then(Value::as_str)
        .map(str::parse);
    let (Some(told), Some(Ok(ends))) = (told, ends) else {
        return;
    };
    if grace >= told {
        return;
    }
    let sooner = i64::try_from(told - grace).unwrap_or(i64::MAX);
    let ends: jiff::Timestamp = ends;
    let ends = ends
        .saturating_sub(jiff::SignedDuration::from_secs(sooner))
        .unwrap_or(ends);
    set_metadata(object, "deletionTimestamp", json!(super::whole_seconds(ends)));
    set_metadata(object, "deletionGracePeriodSeconds", json!(grace));
}
