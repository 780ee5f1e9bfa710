//! Objects of ours that do not parse: says so on the object, which nobody would look for in a log.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Resource,
    api::{DynamicObject, Patch},
};
use serde_json::{Value, json};

use super::{
    Context,
    calls::{CallError, call, found},
    effects, events,
};
use crate::{
    api::conditions::{self, reasons, types},
    lifecycle::Notice,
    unreadable::{Kind, Unreadable, message},
};

/// The resourceVersions at which objects were looked at: nothing is new before they change.
#[derive(Default)]
pub struct Seen(BTreeMap<(Kind, String), Option<String>>);

impl Seen {
    fn has(&self, object: &Unreadable) -> bool {
        let key = (object.kind, object.name().to_owned());
        self.0.get(&key) == Some(&object.metadata.resource_version)
    }

    fn add(&mut self, object: &Unreadable) {
        let key = (object.kind, object.name().to_owned());
        self.0.insert(key, object.metadata.resource_version.clone());
    }
}

/// Writes the condition `Valid` of an object that does not parse, and an Event, where that is news.
pub async fn reconcile(ctx: &Context, seen: &mut Seen, object: &Unreadable) -> Result<(), CallError> {
    if seen.has(object) {
        return Ok(());
    }
    let (kind, name) = (object.kind, object.name());
    let resource = kind.resource();
    let what = format!("{} {name}", resource.kind);
    let namespace = &ctx.settings.namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), namespace, &resource);
    let Some(raw) = found(format!("read {what}"), api.get(name)).await? else {
        return Ok(());
    };
    if let Some((all, notice)) = decide(&raw, kind, ctx.now()) {
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": raw.metadata.resource_version},
            "status": {"conditions": all},
        }));
        let params = effects::params();
        let write = api.patch_status(name, &params, &patch);
        match call(format!("write the status of {what}"), write).await {
            // What cannot be read may not be written either; the Event tells it all the same.
            Err(error) if error.is_invalid() => tracing::warn!(%error, "the Event has to do"),
            result => drop(result?),
        }
        let regarding = raw.object_ref(&resource);
        events::publish_on(&ctx.client, &regarding, &[notice], ctx.now()).await;
    }
    seen.add(object);
    Ok(())
}

/// The conditions as they shall be, and what to tell people; `None` if the object can be read, or says so already.
fn decide(raw: &DynamicObject, kind: Kind, now: Timestamp) -> Option<(Vec<Condition>, Notice)> {
    let problem = kind.problem(&serde_json::to_value(raw).ok()?)?;
    let mut all = stored(&raw.data);
    let note = message(&problem, kind);
    let generation = raw.metadata.generation;
    let is_news = conditions::set(
        &mut all,
        types::VALID,
        false,
        reasons::UNREADABLE,
        note.clone(),
        generation,
        now,
    );
    is_news.then_some((
        all,
        Notice {
            warning: true,
            reason: reasons::UNREADABLE.to_owned(),
            note,
        },
    ))
}

/// The conditions that can be read.
fn stored(data: &Value) -> Vec<Condition> {
    let all = data.pointer("/status/conditions").and_then(Value::as_array);
    let all = all.into_iter().flatten();
    all.filter_map(|c| serde_json::from_value(c.clone()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-21T00:00:00Z";

    fn window(start: &str, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
            "metadata": {"name": "w", "generation": 3},
            "spec": {"start": start, "end": "2026-12-25T00:00:00Z"}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn it_is_said_once_beside_what_the_object_says_already() {
        let other = json!({"type": "Other", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": NOW});
        let raw = window("soon", &json!({"conditions": [other, {"type": "half"}]}));
        let now = NOW.parse().unwrap();
        let (all, notice) = decide(&raw, Kind::UpgradeSuspensionWindow, now).unwrap();
        assert_eq!(all.len(), 2);
        let valid = conditions::get(&all, types::VALID).unwrap();
        assert_eq!(
            (
                valid.status.as_str(),
                valid.reason.as_str(),
                valid.observed_generation
            ),
            ("False", "Unreadable", Some(3))
        );
        assert!(
            valid.message.contains("spec.start: ") && valid.message.contains("no upgrade starts"),
            "{}",
            valid.message
        );
        assert!(notice.warning && notice.note == valid.message);
        let raw = window("soon", &json!({"conditions": all}));
        assert_eq!(decide(&raw, Kind::UpgradeSuspensionWindow, now), None);
    }

    #[test]
    fn what_can_be_read_is_left_to_its_own_reconciler() {
        let raw = window("2026-12-24T00:00:00Z", &Value::Null);
        assert_eq!(
            decide(&raw, Kind::UpgradeSuspensionWindow, NOW.parse().unwrap()),
            None
        );
    }
}
