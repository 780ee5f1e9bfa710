//! GET of one object and of many.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    kinds::Kind,
    refusal::Refusal,
    request::{Place, Request},
    selector::Filter,
    storage::{Key, Storage, metadata},
    watch::shown,
};

/// One object.
pub fn get(storage: &Storage, request: &Request, place: &Place, name: &str) -> Result<Value, Refusal> {
    let key = Key {
        resource: place.resource.clone(),
        namespace: place.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
    };
    let object = storage.objects.get(&key);
    let object = object.ok_or_else(|| Refusal::not_found(&place.resource, name))?;
    Ok(shown(object, request.metadata_only))
}

/// An object that was written as a try has the revision of what is stored, or none.
pub fn with_stored_revision(storage: &Storage, place: &Place, tried: &mut Value) {
    let name = metadata(tried, "name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let key = Key {
        resource: place.resource.clone(),
        namespace: place.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
    };
    let stored = storage.objects.get(&key);
    let revision = stored.and_then(|o| metadata(o, "resourceVersion")).cloned();
    if let Some(fields) = tried.get_mut("metadata").and_then(Value::as_object_mut) {
        match revision {
            Some(revision) if fields.contains_key("resourceVersion") => {
                fields.insert("resourceVersion".to_owned(), revision);
            }
            Some(_) | None => drop(fields.remove("resourceVersion")),
        }
    }
}

/// Those of a kind that are asked for, in pages if so asked.
pub fn list(storage: &mut Storage, request: &Request, place: &Place, kind: &Kind) -> Result<Value, Refusal> {
    let filter = Filter::of(request, place.namespace.as_deref(), kind)?;
    let revision = request.parameter("resourceVersion");
    if let Some(told) = revision.filter(|r| r.parse::<u64>().is_err()) {
        let message = format!("resourceVersion: Invalid value: {told:?}: invalid resource version");
        return Err(Refusal::bad_request(message));
    }
    let (revision_of_list, mut all) = match request.parameter("continue") {
        None => {
            let all: Vec<Arc<Value>> = storage
                .of_kind(&place.resource)
                .filter(|(_, object)| filter.matches(object))
                .map(|(_, object)| Arc::clone(object))
                .collect();
            (storage.revision, all)
        }
        Some(token) => match storage.page(token) {
            Some(page) => (page.revision, page.rest.clone()),
            None if token.starts_with("page-") => {
                let message =
                    "The provided continue parameter is too old to display a consistent list result.";
                return Err(Refusal::new(410, "Expired", message));
            }
            None => return Err(Refusal::bad_request("continue key is not valid")),
        },
    };
    let mut meta = json!({"resourceVersion": revision_of_list.to_string()});
    // What comes from the server's cache comes at once.
    let limit = request
        .parameter("limit")
        .filter(|_| revision != Some("0"))
        .and_then(|l| l.parse::<usize>().ok())
        .filter(|l| *l > 0 && *l < all.len());
    if let (Some(limit), Some(map)) = (limit, meta.as_object_mut()) {
        let rest = all.split_off(limit);
        if filter.is_of_all() {
            map.insert("remainingItemCount".to_owned(), json!(rest.len()));
        }
        let token = storage.keep_page(revision_of_list, rest);
        map.insert("continue".to_owned(), json!(token));
    }
    let items: Vec<Value> = all.iter().map(|o| item(o, request, kind)).collect();
    let (api_version, name) = if request.metadata_only {
        (
            "meta.k8s.io/v1".to_owned(),
            "PartialObjectMetadataList".to_owned(),
        )
    } else {
        (kind.api_version(&place.resource), format!("{}List", kind.name))
    };
    Ok(json!({"apiVersion": api_version, "kind": name, "metadata": meta, "items": items}))
}

/// In lists, objects of built-in kinds do not say what they are.
fn item(object: &Value, request: &Request, kind: &Kind) -> Value {
    let mut item = shown(object, request.metadata_only);
    if let (Value::Object(map), true, false) = (&mut item, kind.built_in().is_some(), request.metadata_only) {
        map.remove("apiVersion");
        map.remove("kind");
    }
    item
}
