//! Objects for the tests of this module.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Recording;
use crate::{
    api::{UpgradeConfig, UpgradeJob, upgrade_job::DesiredVersion},
    cli::manifests::Manifests,
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    pinning,
    schedule::Zones,
};

pub const FROM: &str = "2026-12-01T00:00:00Z";
pub const END: &str = "2026-12-29T00:00:00Z";

pub fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// Four Tuesdays of December 2026, the first to the 22nd.
pub fn recording() -> Recording {
    Recording::new(at(FROM), at(END), Zones::bundled("UTC").unwrap())
}

/// A config that runs on Tuesdays at 22:00 in Zurich, with `spec` merged over that.
pub fn config(name: &str, spec: &Value) -> UpgradeConfig {
    let mut merged = json!({
        "schedule": {"cron": "0 22 * * 2", "location": "Europe/Zurich"},
        "pinVersionWindow": "4h",
        "jobTemplate": {"metadata": {"labels": {"team": "a"}}, "spec": {"config": {"upgradeTimeout": "4h"}}},
    });
    json_patch::merge(&mut merged, spec);
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "creationTimestamp": FROM},
        "spec": merged,
    }))
    .unwrap()
}

pub fn with_status(config: &UpgradeConfig, status: Value) -> UpgradeConfig {
    UpgradeConfig {
        status: Some(serde_json::from_value(status).unwrap()),
        ..config.clone()
    }
}

/// A condition as Kubernetes has it.
pub fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": FROM})
}

/// The job of a run, to 4.18.5.
pub fn job(config: &UpgradeConfig, run: &str, status: Value) -> UpgradeJob {
    let version = DesiredVersion {
        version: Some("4.18.5".to_owned()),
        ..DesiredVersion::default()
    };
    let mut job = pinning::job::of_run(config, at(run), Some(&version), None);
    job.metadata.uid = Some(format!("uid-{}", job.metadata.name.as_deref().unwrap()));
    job.status = Some(serde_json::from_value(status).unwrap());
    job
}

pub fn succeeded(started: &str, finished: &str) -> Value {
    json!({"phase": "Succeeded", "startedAt": started, "finishedAt": finished,
    "conditions": [condition("Succeeded", "True", "Succeeded", "Upgrade succeeded")],
    "steps": [
        {"name": "pre-health-check", "kind": "HealthCheck", "phase": "Succeeded", "message": "healthy",
            "startedAt": started, "finishedAt": started},
        {"name": "await-control-plane", "kind": "AwaitControlPlane", "phase": "Succeeded",
            "message": "the control plane is at 4.18.5", "startedAt": started, "finishedAt": finished},
    ]})
}

pub fn failed(started: &str, finished: &str, reason: &str, message: &str) -> Value {
    json!({"phase": "Failed", "startedAt": started, "finishedAt": finished,
    "conditions": [condition("Failed", "True", reason, message)],
    "pausedPools": [{"name": "night", "reason": "delay"}],
    "steps": [
        {"name": "await-control-plane", "kind": "AwaitControlPlane", "phase": "Failed",
            "message": "62% done,\n waiting on etcd", "startedAt": started, "finishedAt": finished},
        {"name": "await-pools", "kind": "AwaitPools", "phase": "Pending"},
    ]})
}

pub fn skipped(finished: &str, message: &str) -> Value {
    json!({"phase": "Skipped", "finishedAt": finished,
        "conditions": [condition("Succeeded", "True", "Skipped", message)]})
}

pub fn pool(name: &str, labels: &Value, updating: &str) -> MachineConfigPool {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": labels}, "spec": {},
        "status": {"conditions": [{"type": "Updating", "status": updating}]},
    }))
    .unwrap()
}

/// A ClusterVersion whose newest history entry is this one.
pub fn cluster_version(version: &str, state: &str) -> ClusterVersion {
    serde_json::from_value(json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"}, "spec": {},
        "status": {"history": [
            {"state": state, "startedTime": FROM, "completionTime": null, "version": version, "image": "i"}
        ]},
    }))
    .unwrap()
}

/// What the file `f.yaml` holds.
pub fn manifests(text: &str) -> Manifests {
    let mut all = Manifests::default();
    all.add(std::path::Path::new("f.yaml"), text);
    assert!(all.problems.is_empty(), "{:?}", all.problems);
    all
}
