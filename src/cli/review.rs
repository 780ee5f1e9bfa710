//! What is wrong with an object of ours in a file, as API server and operator see it.

use kube::ResourceExt;
use serde_json::Value;

use super::manifests::Manifest;
use crate::{
    api::GROUP,
    simulator::api::{Kinds, Review},
};

/// Whether the API server takes an object of ours, and without which fields; objects of others are none of our business.
pub fn review(manifest: &Manifest) -> Review {
    let types = manifest.object.types.clone().unwrap_or_default();
    let taken = Review::Taken {
        unknown_fields: Vec::new(),
    };
    if types.api_version.split('/').next() != Some(GROUP) {
        return taken;
    }
    serde_json::to_value(&manifest.object).map_or(taken, |object: Value| Kinds::ours().review(&object))
}

/// The warning of fields that there are not; `None` if there are none of them.
pub fn unknown_fields(manifest: &Manifest) -> Option<String> {
    match review(manifest) {
        Review::Taken { unknown_fields } => no_such_fields(manifest, &unknown_fields),
        Review::UnknownKind | Review::Refused(_) => None,
    }
}

/// The same of an object that was reviewed already.
pub fn no_such_fields(manifest: &Manifest, fields: &[String]) -> Option<String> {
    if fields.is_empty() {
        return None;
    }
    let fields = fields.join(", ");
    let kind = manifest.object.types.as_ref().map(|t| t.kind.as_str());
    Some(format!(
        "{}: {} {}: no such field: {fields}; it has no effect, so check its spelling and its place",
        manifest.location,
        kind.unwrap_or_default(),
        manifest.object.name_any()
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rstest::rstest;

    use super::*;
    use crate::cli::manifests::Manifests;

    #[rstest]
    #[case::typos(
        "apiVersion: managedupgrade.appuio.io/v1beta1\nkind: UpgradeSuspensionWindow\nmetadata: {name: w}\n\
         spec: {start: '2026-12-01T00:00:00Z', end: '2026-12-02T00:00:00Z', Reason: x, why: y}\n",
        Some("f.yaml:1: UpgradeSuspensionWindow w: no such field: spec.Reason, spec.why; it has no effect")
    )]
    #[case::of_others(
        "apiVersion: example.com/v1\nkind: A\nmetadata: {name: a}\nspec: {x: 1}\n",
        None
    )]
    #[case::well_spelt(
        "apiVersion: managedupgrade.appuio.io/v1beta1\nkind: UpgradeSuspensionWindow\nmetadata: {name: w}\n\
         spec: {start: '2026-12-01T00:00:00Z', end: '2026-12-02T00:00:00Z'}\n",
        None
    )]
    fn a_field_that_is_not_there_is_told(#[case] text: &str, #[case] expected: Option<&str>) {
        let mut all = Manifests::default();
        all.add(Path::new("f.yaml"), text);
        let told = unknown_fields(all.objects.first().unwrap());
        match expected {
            Some(expected) => assert!(told.as_ref().is_some_and(|t| t.starts_with(expected)), "{told:?}"),
            None => assert_eq!(told, None),
        }
    }
}
