//! Fixtures, and one file a subject.

mod edits;
mod held;
mod history;
mod last_upgrade;
mod overlays;
mod rehearsal;
mod runs;
mod story;
mod suspension;
mod valid;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        UpgradeSuspensionWindow,
        conditions::{self, types},
    },
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
};

/// Tuesday 24 November 2026, 22:00 in Zurich; pinned four hours before.
const RUN: &str = "2026-11-24T21:00:00Z";
const PIN: &str = "2026-11-24T17:00:00Z";
const NEXT_RUN: &str = "2026-12-01T21:00:00Z";

fn at(t: &str) -> Timestamp {
    t.parse().unwrap()
}

fn config() -> UpgradeConfig {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
        "metadata": {"name": "c", "namespace": "ns", "uid": "config-uid", "generation": 1,
            "creationTimestamp": "2026-11-20T08:00:00Z", "labels": {"team": "a"}},
        "spec": {
            "schedule": {"cron": "0 22 * * 2", "location": "Europe/Zurich"}, "pinVersionWindow": "4h",
            "jobTemplate": {"metadata": {"labels": {"tier": "prod"}, "annotations": {"note": "x"}},
                "spec": {"config": {"upgradeTimeout": "2h"}}},
        },
    }))
    .unwrap()
}

fn cluster_version(available: &Value, retrieved: &str) -> ClusterVersion {
    serde_json::from_value(json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version", "generation": 1}, "spec": {"clusterID": "x", "channel": "stable-4.18"},
        "status": {"desired": {"version": "4.18.2", "image": "i"}, "observedGeneration": 1, "versionHash": "x",
            "availableUpdates": available,
            "conditions": [{"type": "RetrievedUpdates", "status": retrieved, "message": "server away"}]},
    }))
    .unwrap()
}

fn offered() -> Value {
    json!([{"version": "4.18.9", "image": "image-9"}])
}

fn world() -> World {
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {},
    }))
    .unwrap();
    World {
        cluster_version: Some(cluster_version(&offered(), "True")),
        pools: vec![pool],
        control_plane_topology: Some("HighlyAvailable".to_owned()),
        ..World::default()
    }
}

fn window(start: &str, end: &str) -> UpgradeSuspensionWindow {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
        "metadata": {"name": "freeze", "namespace": "ns"},
        "spec": {"start": start, "end": end, "reason": "quarter end", "configSelector": {"matchLabels": {"team": "a"}}},
    }))
    .unwrap()
}

fn settings() -> ConfigSettings {
    ConfigSettings {
        zones: Zones::bundled("").unwrap(),
    }
}

fn decide_at(config: &UpgradeConfig, world: &World, t: &str) -> ConfigDecision {
    decide(config, world, at(t), &settings())
}

/// Decides and carries out, as the IO half does: create, then status.
fn step(config: &mut UpgradeConfig, world: &mut World, now: Timestamp) -> ConfigDecision {
    let decision = decide(config, world, now, &settings());
    if let Some(mut job) = decision.create.clone() {
        job.metadata.uid = Some(format!("uid-of-{}", job.name_any()));
        world.jobs.push(job);
    }
    config.status = Some(decision.status.clone());
    decision
}

fn last(decision: &ConfigDecision) -> Option<Timestamp> {
    decision.status.last_scheduled_upgrade.as_ref().map(|t| t.0)
}

/// Status and reason of a condition.
fn condition<'a>(decision: &'a ConfigDecision, type_: &str) -> (&'a str, &'a str) {
    conditions::get(&decision.status.conditions, type_)
        .map_or(("", ""), |c| (c.status.as_str(), c.reason.as_str()))
}

fn message<'a>(decision: &'a ConfigDecision, type_: &str) -> &'a str {
    conditions::get(&decision.status.conditions, type_).map_or("", |c| c.message.as_str())
}

fn finish(job: &mut UpgradeJob, type_: &str, reason: &str) {
    let status = job.status.get_or_insert_default();
    status.finished_at = Some(job.spec.start_before.clone());
    conditions::set(
        &mut status.conditions,
        type_,
        true,
        reason,
        "",
        None,
        job.spec.start_before.0,
    );
}
