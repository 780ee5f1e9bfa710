//! A cluster, a job, a hook.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{api::UpgradeJob, schedule::Zones, settings::Settings, world::World};

pub const OLD: &str = "4.18.3";
pub const NEW: &str = "4.18.5";

pub fn image(version: &str) -> String {
    format!("quay.io/openshift-release-dev/ocp-release@sha256:{version}")
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn settings() -> Settings {
    Settings::new("ns", Zones::bundled("UTC").unwrap())
}

/// A cluster at 4.18.3 that is offered 4.18.5, with pools master, worker and night.
pub fn world() -> World {
    let cluster_version = object(json!({
        "metadata": {"name": "version", "generation": 1, "resourceVersion": "1"},
        "spec": {"clusterID": "x", "channel": "stable-4.18"},
        "status": {
            "desired": {"version": OLD, "image": image(OLD)},
            "observedGeneration": 1,
            "availableUpdates": [{"version": NEW, "image": image(NEW)}],
            "history": [{"state": "Completed", "startedTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T01:00:00Z", "version": OLD, "image": image(OLD)}],
            "conditions": [
                {"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"},
                {"type": "Failing", "status": "False"}, {"type": "RetrievedUpdates", "status": "True"},
                {"type": "ReleaseAccepted", "status": "True"},
            ],
        },
    }));
    let operator = |name: &str| {
        object(json!({
            "metadata": {"name": name}, "spec": {},
            "status": {
                "conditions": [{"type": "Available", "status": "True"}, {"type": "Degraded", "status": "False"}],
                "versions": [{"name": "operator", "version": OLD}],
            },
        }))
    };
    World {
        cluster_version: Some(cluster_version),
        operators: vec![operator("etcd"), operator("machine-config")],
        pools: ["master", "night", "worker"]
            .map(|name| pool(name, &json!({})))
            .into(),
        control_plane_topology: Some("HighlyAvailable".into()),
        ..World::default()
    }
}

/// A pool of two nodes that are up to date; its label `name` is its name, and it has `labels` besides.
pub fn pool(name: &str, labels: &Value) -> crate::openshift::machine_config_pool::MachineConfigPool {
    let mut all = json!({"name": name});
    json_patch::merge(&mut all, labels);
    object(json!({
        "metadata": {"name": name, "labels": all, "generation": 1, "resourceVersion": "1"},
        "spec": {"paused": false, "configuration": {"name": format!("rendered-{name}-1")}},
        "status": {
            "observedGeneration": 1, "configuration": {"name": format!("rendered-{name}-1")},
            "machineCount": 2, "updatedMachineCount": 2, "readyMachineCount": 2,
            "conditions": [{"type": "Updated", "status": "True"}],
        },
    }))
}

/// A job that is due at `at(0)` and must start within an hour; `patch` is merged into it.
#[allow(clippy::needless_pass_by_value)]
pub fn job(name: &str, patch: Value) -> UpgradeJob {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": at(-3600).to_string()},
        "spec": {"startAfter": at(0).to_string(), "startBefore": at(3600).to_string(),
            "desiredVersion": {"version": NEW, "image": image(NEW)}, "config": {}},
    });
    json_patch::merge(&mut value, &patch);
    object(value)
}

/// Holds pool `night` from minute 30 to minute 60.
pub fn held() -> Value {
    json!({"spec": {"config": {"machineConfigPools": [
        {"matchLabels": {"name": "night"}, "delayUpgrade": {"delayMin": "30m", "delayMax": "1h"}},
    ]}}})
}

pub fn hook(name: &str, event: &str, policy: &str) -> crate::api::UpgradeJobHook {
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"events": [event], "failurePolicy": policy, "template": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}},
    }))
}
