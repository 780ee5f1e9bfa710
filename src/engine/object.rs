//! Reading the objects of engines: what a foreign controller wrote may be anything.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde::Deserialize;
use serde_json::Value;

/// `status` and `spec` of an object, as far as they are looked at.
#[derive(Debug)]
pub(super) struct Parts<St, Sp> {
    /// Its status; empty where it cannot be read.
    pub status: St,
    /// Its spec; empty where it cannot be read.
    pub spec: Sp,
    /// What cannot be read, and of which object.
    pub unreadable: Option<String>,
}

impl<St, Sp> Parts<St, Sp>
where
    St: for<'de> Deserialize<'de> + Default,
    Sp: for<'de> Deserialize<'de> + Default,
{
    /// Reads them.
    pub fn of(object: &DynamicObject) -> Self {
        let mut unreadable = None;
        let status = part(object, "status", &mut unreadable);
        let spec = part(object, "spec", &mut unreadable);
        Self {
            status,
            spec,
            unreadable,
        }
    }
}

fn part<T: for<'de> Deserialize<'de> + Default>(
    object: &DynamicObject,
    field: &str,
    unreadable: &mut Option<String>,
) -> T {
    match object.data.get(field) {
        None | Some(Value::Null) => T::default(),
        Some(value) => T::deserialize(value).unwrap_or_else(|error| {
            *unreadable = Some(format!("{field} of {}: {error}", object.name_any()));
            T::default()
        }),
    }
}

/// A time as engines write it; `None` where there is none, or it is no time.
pub(super) fn time(text: Option<&String>) -> Option<Timestamp> {
    text?.parse().ok()
}
