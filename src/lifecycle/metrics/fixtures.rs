//! Jobs for the tests of these metrics.

use serde_json::{Value, json};

use crate::api::UpgradeJob;

/// A job to 4.18.5, from midnight of 2026-01-01 UTC, with this status.
pub(super) fn job(name: &str, status: &Value) -> UpgradeJob {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name}, "status": status,
        "spec": {
            "startAfter": "2026-01-01T00:00:00Z", "startBefore": "2026-01-01T01:00:00Z",
            "desiredVersion": {"version": "4.18.5"}, "config": {"upgradeTimeout": "4h"},
        },
    }))
    .unwrap()
}

/// Conditions that are true, by type and reason.
pub(super) fn conditions(of: &[(&str, &str)]) -> Value {
    let all = of.iter().map(|(type_, reason)| {
        json!({"type": type_, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T02:00:00Z"})
    });
    all.collect()
}
