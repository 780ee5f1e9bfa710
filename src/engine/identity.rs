//! What makes a rendered workflow the operator's.

use std::collections::BTreeMap;

use kube::{Resource, ResourceExt, api::DynamicObject};

use super::RunContext;
use crate::api::{labels, names};

/// Identity, owner and labels are the operator's whatever a template says: it finds and trusts workflows by them.
pub fn make_ours(object: &mut DynamicObject, context: &RunContext<'_>) {
    let job = context.job;
    let mut ours = BTreeMap::from([(
        labels::UPGRADE_JOB.to_owned(),
        names::label_value(&job.name_any()),
    )]);
    if let Some(uid) = job.uid() {
        ours.insert(labels::UPGRADE_JOB_UID.to_owned(), uid);
    }
    let metadata = &mut object.metadata;
    let mut all = metadata.labels.take().unwrap_or_default();
    all.remove(labels::UPGRADE_JOB_UID);
    all.extend(ours);
    let annotations = metadata.annotations.take();
    // Without `blockOwnerDeletion`: OpenShift asks for the right to set the owner's finalizers before it accepts that.
    // A job without UID is one from a file.
    let owner = job.controller_owner_ref(&());
    *metadata = kube::core::ObjectMeta {
        name: Some(context.name.clone()),
        namespace: job.namespace(),
        labels: Some(all),
        annotations,
        owner_references: owner.map(|o| vec![o]),
        ..kube::core::ObjectMeta::default()
    };
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }
}
