//! Kubernetes Events, on our clock. An Event that cannot be written is logged and nothing else.

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};

use super::calls::call;
use crate::{api::names, lifecycle::Notice};

/// Longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1_024;

/// Writes Events about one object.
pub async fn publish<K>(client: &Client, object: &K, notices: &[Notice], now: Timestamp)
where
    K: Resource<DynamicType = ()>,
{
    publish_on(client, &object.object_ref(&()), notices, now).await;
}

/// Writes Events about the object that is referred to.
pub async fn publish_on(client: &Client, object: &ObjectReference, notices: &[Notice], now: Timestamp) {
    let namespace = object.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    for notice in notices {
        let event = event(object, &namespace, notice, now);
        let attempt = format!("write Event {} of {}", notice.reason, name_of(object));
        if let Err(error) = call(attempt, api.create(&PostParams::default(), &event)).await
            && !error.is_already_exists()
        {
            tracing::warn!(%error, "an Event was lost");
        }
    }
}

fn name_of(object: &ObjectReference) -> &str {
    object.name.as_deref().unwrap_or_default()
}

fn event(object: &ObjectReference, namespace: &str, notice: &Notice, now: Timestamp) -> Event {
    let Notice {
        warning,
        reason,
        note,
    } = notice;
    let name = name_of(object);
    // The same Event at the same instant has the same name: a repeated write is refused, not doubled.
    let id = names::hash(&format!("{name}/{reason}/{note}/{now}"), 16);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{id}", names::fit(name, 200))),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        reporting_controller: Some("managedupgrade.appuio.io/upgrade-operator".to_owned()),
        reporting_instance: Some("upgrade-operator".to_owned()),
        action: Some("Upgrade".to_owned()),
        reason: Some(reason.chars().take(128).collect()),
        type_: Some(if *warning { "Warning" } else { "Normal" }.to_owned()),
        note: Some(shorten(note)),
        regarding: Some(ObjectReference {
            resource_version: None,
            ..object.clone()
        }),
        ..Event::default()
    }
}

fn shorten(note: &str) -> String {
    if note.len() <= MAX_NOTE {
        return note.to_owned();
    }
    let end = (0..=MAX_NOTE - 3)
        .rev()
        .find(|i| note.is_char_boundary(*i))
        .unwrap_or(0);
    format!("{}…", note.get(..end).unwrap_or_default())
}
