//! What an upgrade costs the API server: the requests of the operator by verb and resource, in simulated time.
//!
//! `cargo bench --bench requests -- [NODES…]`, by default 6 and 300 nodes. Nothing is asserted: see docs/performance.md.

// A benchmark ends where it cannot go on.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};

use jiff::{SignedDuration, Timestamp, ToSpan};
use kube::{Api, api::DynamicObject};
use openshift_upgrade_operator::{
    api::UpgradeJob,
    clock::Clock,
    schedule::Zones,
    settings::Settings,
    simulator::{
        openshift::releases::image,
        scenario::{Scenario, Timeline},
        simulation::{self, Simulation},
    },
};
use serde_json::json;

const NAMESPACE: &str = "openshift-upgrade";
const START: &str = "2026-12-01T21:00:00Z";
/// How many nodes of the workers are updated at once.
const AT_ONCE: i64 = 3;
/// An upgrade of more nodes takes longer than a night.
const GIVEN_UP_AFTER: SignedDuration = SignedDuration::from_hours(14 * 24);

type Counts = BTreeMap<(String, String), u64>;

fn main() {
    let nodes: Vec<i64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let nodes = if nodes.is_empty() { vec![6, 300] } else { nodes };
    for nodes in nodes {
        simulation::run(upgrade(nodes)).unwrap();
    }
}

async fn upgrade(nodes: i64) {
    let began = Instant::now();
    let start: Timestamp = START.parse().unwrap();
    let night = 2;
    let scenario = json!({
        "cluster": {"version": "4.18.3", "pools": [
            {"name": "master", "machines": 3},
            {"name": "worker", "machines": nodes - 3 - night, "maxUnavailable": AT_ONCE},
            {"name": "night", "machines": night},
        ]},
        "updates": {"releases": [{"version": "4.18.5"}]},
    });
    let scenario = Scenario::parse(Path::new("cost"), &scenario.to_string()).unwrap();
    let end = start.checked_add(GIVEN_UP_AFTER).unwrap();
    let timeline = Arc::new(Timeline::new(scenario, start - 1.hour(), end, 1).unwrap());
    let mut simulation = Simulation::with_argo(Clock::starting_at(start - 1.hour()));
    simulation.start_cluster(&timeline).await.unwrap();
    simulation.start_operator(&Settings::new(NAMESPACE, Zones::bundled("UTC").unwrap()));
    simulation.play(&timeline);

    // Idle: everything is watched, and nothing is to do.
    simulation.until(start - 50.minutes()).await;
    let before = simulation.server.counts();
    simulation.until(start - 20.minutes()).await;
    report(
        nodes,
        "30 minutes without an upgrade",
        &since(&simulation.server.counts(), &before),
    );

    let job: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": "upgrade", "namespace": NAMESPACE},
        "spec": {
            "startAfter": start, "startBefore": start + 1.hour(),
            "desiredVersion": {"version": "4.18.5", "image": image("4.18.5")},
            "config": {"upgradeTimeout": "330h", "machineConfigPools": [
                {"matchLabels": {"name": "night-maintenance"}, "delayUpgrade": {"delayMin": "2h", "delayMax": "300h"}}]},
        },
    }))
    .unwrap();
    let before = simulation.server.counts();
    simulation::apply(&simulation.server, &simulation.admin(), &job)
        .await
        .unwrap();
    let jobs: Api<UpgradeJob> = Api::namespaced(simulation.admin(), NAMESPACE);
    let mut now = start;
    let took = loop {
        now += 10.minutes();
        simulation.until(now).await;
        let status = jobs.get("upgrade").await.unwrap().status.unwrap_or_default();
        if let Some(finished) = status.finished_at {
            let outcome = status.message.unwrap_or_default();
            break format!("{outcome}, in {:#}", finished.0.duration_since(start));
        }
        assert!(now < end, "the upgrade of {nodes} nodes does not end");
    };
    report(nodes, &took, &since(&simulation.server.counts(), &before));
    println!("simulated in {:.1} s\n", began.elapsed().as_secs_f64());
}

fn since(now: &Counts, before: &Counts) -> Counts {
    now.iter()
        .map(|(key, count)| (key.clone(), count - before.get(key).unwrap_or(&0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn report(nodes: i64, what: &str, counts: &Counts) {
    println!("{nodes} nodes: {what}: {} requests", counts.values().sum::<u64>());
    for ((verb, resource), count) in counts {
        println!("  {count:>6}  {verb:<8} {resource}");
    }
}
