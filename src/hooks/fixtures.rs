//! Objects for the tests of this module.

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use serde_json::{Value, json};

use super::{environment::Event, job};
use crate::api::{
    UpgradeJob, UpgradeJobHook,
    upgrade_job::{HookState, HookTracker},
    upgrade_job_hook::HookEvent,
};

pub(crate) fn upgrade_job() -> UpgradeJob {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJob",
        "metadata": {
            "name": "cluster-upgrade-1609531200-ef11c47",
            "namespace": "upgrades",
            "uid": "job-uid",
            "labels": {"my-var.io/info": "hello", "upgrade-config": "cluster-upgrade"},
        },
        "spec": {
            "startAfter": "2021-01-01T21:00:00Z",
            "startBefore": "2021-01-01T22:00:00Z",
            "desiredVersion": {"version": "4.6.1", "image": "quay.io/ocp@sha256:1234"},
        },
        "status": {"conditions": [{
            "type": "Started", "status": "True", "reason": "Started", "message": "",
            "lastTransitionTime": "2021-01-01T21:00:00Z",
        }]},
    }))
    .unwrap()
}

pub(crate) fn event(name: HookEvent) -> Event {
    Event {
        name,
        time: "2021-01-01T21:00:03.5Z".parse().unwrap(),
        reason: "Started".to_owned(),
        message: "The upgrade has started".to_owned(),
        pool: None,
    }
}

/// A hook with this spec, over a spec that runs one container at Start.
pub(crate) fn hook(name: &str, spec: &Value) -> UpgradeJobHook {
    let mut merged = json!({
        "events": ["Start"],
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}},
    });
    json_patch::merge(&mut merged, spec);
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": "upgrades"},
        "spec": merged,
    }))
    .unwrap()
}

/// The Job of `hook` at `name`, as the cluster has it once it has one condition of type `condition` (empty: none).
pub(crate) fn hook_job(hook: &UpgradeJobHook, name: HookEvent, key: &str, condition: &str) -> Job {
    let mut built = job::build(hook, &event(name), &upgrade_job(), key, false, None).unwrap();
    built.status = (!condition.is_empty()).then(|| JobStatus {
        conditions: Some(vec![JobCondition {
            type_: condition.to_owned(),
            status: "True".to_owned(),
            message: Some("it says so".to_owned()),
            reason: Some("ItsReason".to_owned()),
            ..JobCondition::default()
        }]),
        ..JobStatus::default()
    });
    built
}

pub(crate) fn entry(hook: &str, event: HookEvent, key: &str, status: HookState) -> HookTracker {
    HookTracker {
        hook_event: event,
        tracking_key: key.to_owned(),
        upgrade_job_hook: hook.to_owned(),
        status,
        message: match status {
            HookState::Failed => "recorded failure".to_owned(),
            HookState::Active | HookState::Complete => String::new(),
        },
        workflow_step: None,
    }
}
