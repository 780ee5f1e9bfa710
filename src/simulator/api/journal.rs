//! Who changed what: every version of every object, with the request that made it. For tests that judge the operator by what
//! it did.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{Identity, storage::Key};

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When, by the true clock.
    pub at: Timestamp,
    /// Whose request it was. What the garbage collector removes is counted as the doing of who deleted the owner.
    pub identity: Identity,
    /// Method and path of the request.
    pub line: Arc<str>,
    /// Plural of the kind, with its group: `machineconfigpools.machineconfiguration.openshift.io`.
    pub kind: String,
    /// Namespace; empty where the kind has none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object before it; `None` = it is new.
    pub before: Option<Arc<Value>>,
    /// The object after it; `None` = it is gone.
    pub after: Option<Arc<Value>>,
}

/// A change as the storage knows it.
pub struct Stored {
    /// Which object.
    pub key: Key,
    /// Before.
    pub before: Option<Arc<Value>>,
    /// After.
    pub after: Option<Arc<Value>>,
}

impl Stored {
    /// With the request that made it.
    pub fn by(self, identity: Identity, line: &Arc<str>, at: Timestamp) -> Entry {
        let Self { key, before, after } = self;
        let kind = if key.resource.group.is_empty() {
            key.resource.plural
        } else {
            format!("{}.{}", key.resource.plural, key.resource.group)
        };
        Entry {
            at,
            identity,
            line: Arc::clone(line),
            kind,
            namespace: key.namespace,
            name: key.name,
            before,
            after,
        }
    }
}
