//! Fixtures, and one file a subject.

mod announcement;
mod apply;
mod memory;
mod merge;
mod refusals;
mod said;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        UpgradeJob,
        cluster_version::ClusterVersionStatus,
        conditions::{self, types},
    },
    world::World,
};

const NOON: &str = "2026-12-01T12:00:00Z";
const OVERLAY: &str = "2026-12-02T14:00:00Z";
const AFTER: &str = "2026-12-02T14:00:01Z";

fn at(t: &str) -> Timestamp {
    t.parse().unwrap()
}

/// Template with channel stable-4.18 and overrides; from [`OVERLAY`] on stable-4.19.
fn managed() -> ManagedClusterVersion {
    managed_with(
        &json!({"channel": "stable-4.18", "overrides": [an_override()]}),
        &json!([{"from": OVERLAY, "overlay": {"spec": {"channel": "stable-4.19"}}}]),
    )
}

fn managed_with(template: &Value, overlays: &Value) -> ManagedClusterVersion {
    serde_json::from_value(json!({
        "metadata": {"name": "version", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"template": {"spec": template}, "overlays": overlays},
    }))
    .unwrap()
}

fn an_override() -> Value {
    json!({"kind": "ConfigMap", "group": "", "namespace": "n", "name": "m", "unmanaged": true})
}

/// A cluster that is at 4.18.3, with this spec.
fn cluster(spec: &Value) -> ClusterVersion {
    serde_json::from_value(json!({
        "metadata": {"name": "version", "resourceVersion": "7", "generation": 1},
        "spec": spec,
        "status": {"desired": {"version": "4.18.3", "image": "i3"}, "observedGeneration": 1,
            "history": [{"state": "Completed", "startedTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T01:00:00Z", "version": "4.18.3", "image": "i3"}]},
    }))
    .unwrap()
}

/// In line with the template of [`managed`].
fn in_line() -> Value {
    json!({"clusterID": "c1", "channel": "stable-4.18", "overrides": [an_override()],
        "desiredUpdate": {"version": "4.18.3", "image": "i3"}})
}

fn world(managed: &ManagedClusterVersion, spec: &Value) -> World {
    World {
        cluster_version: Some(cluster(spec)),
        managed_versions: vec![managed.clone()],
        ..World::default()
    }
}

/// What is known once the API server was asked and has nothing against anything.
fn no_objection() -> Outcome {
    Outcome {
        rehearsed: Some(Vec::new()),
        ..Outcome::default()
    }
}

fn decide_at(managed: &ManagedClusterVersion, world: &World, t: &str, outcome: &Outcome) -> Decision {
    decide(&Input {
        managed,
        world,
        outcome,
        zone: &jiff::tz::TimeZone::UTC,
        now: at(t),
    })
}

/// Carries a change out on the cluster, as the API server would.
fn write(world: &mut World, change: &Change, t: &str) {
    let cluster = world.cluster_version.as_mut().unwrap();
    let patch = serde_json::from_value::<json_patch::Patch>(change.patch(cluster, at(t))).unwrap();
    let mut object = serde_json::to_value(&*cluster).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    object["metadata"]["generation"] = json!(cluster.metadata.generation.unwrap() + 1);
    *cluster = serde_json::from_value(object).unwrap();
}

/// One pass as the IO half does it: decide, write, decide again, write the status.
fn step(managed: &mut ManagedClusterVersion, world: &mut World, t: &str) -> (Option<Change>, Decision) {
    let first = decide_at(managed, world, t, &no_objection());
    let mut outcome = no_objection();
    if let Some(change) = &first.change {
        write(world, change, t);
        outcome.applied = Some(change.clone());
    }
    let decision = decide_at(managed, world, t, &outcome);
    assert_eq!(decision.change, None, "one write is enough");
    // Through the wire, as it is read again.
    let wire = serde_json::to_value(&decision.status).unwrap();
    managed.status = Some(serde_json::from_value(wire).unwrap());
    (first.change, decision)
}

fn spec_of(world: &World) -> Value {
    serde_json::to_value(&world.cluster_version.as_ref().unwrap().spec).unwrap()
}

/// `status/reason` of a condition, and its message.
fn said(status: &ClusterVersionStatus, type_: &str) -> (String, String) {
    let found = conditions::get(&status.conditions, type_);
    found
        .map(|c| (format!("{}/{}", c.status, c.reason), c.message.clone()))
        .unwrap_or_default()
}

/// Reasons of the notices.
fn told(decision: &Decision) -> Vec<&str> {
    decision.notices.iter().map(|n| n.reason.as_str()).collect()
}

fn job(name: &str, patch: &Value) -> UpgradeJob {
    let mut job = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"startAfter": OVERLAY, "startBefore": "2026-12-02T16:00:00Z",
            "desiredVersion": {"version": "4.18.5", "image": "i5"}, "config": {}},
    });
    json_patch::merge(&mut job, patch);
    serde_json::from_value(job).unwrap()
}
