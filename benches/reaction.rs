//! What the operator takes of a real API server, and how fast it answers: start-up, requests when idle, the time from a change
//! to its write, and the requests of an upgrade. On a lane with an audit log.
//!
//! ```sh
//! TESTBED_AUDIT=Request tests/cluster/lane up 5; eval "$(tests/cluster/lane env 5)"
//! cargo bench --bench reaction -- 10            # minutes without anything to do
//! tests/cluster/lane down 5
//! ```
//!
//! Nothing is asserted: see docs/performance.md. The operator is that of the same build, or `OPERATOR=<path>`.

// A benchmark ends where it cannot go on.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[allow(dead_code, reason = "the tests look at more of it")]
#[path = "../tests/support/audit_log.rs"]
mod audit_log;
#[path = "support/mod.rs"]
mod support;

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{api::cluster_version, openshift::cluster_version as openshift};
use serde_json::json;

use audit_log::{Line, OPERATOR};
use support::{Lane, NAMESPACE, object, until};

/// So often the operator is started.
const STARTS: usize = 11;
/// So often the channel is changed.
const CHANGES: usize = 41;
/// What is measured by the audit log needs the requests of all, with what they say.
const AUDIT_LEVEL: &str = "its level must be Request: TESTBED_AUDIT=Request tests/cluster/lane up N";
/// Until it rests after its start.
const SETTLING: Duration = Duration::from_secs(30);

fn main() {
    let minutes = std::env::args().find_map(|a| a.parse().ok()).unwrap_or(10);
    support::block_on(measure(minutes));
}

async fn measure(minutes: u64) {
    let lane = Lane::of_environment().await;
    let durations = "retrieve=1s,control-plane=10s,node=2s,evict-retry=1s,pod-stop=1s";
    let _simulator = lane.simulator(3, durations).await;
    println!("binary {} KiB", lane.binary_size());
    start_up(&lane).await;
    let _operator = lane.operator(&[]).await;
    tokio::time::sleep(SETTLING).await;
    idle(minutes).await;
    overlay(&lane).await;
    upgrade(&lane).await;
}

async fn start_up(lane: &Lane) {
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let operator = lane.operator(&[]).await;
        took.push(SignedDuration::try_from(operator.start_up).unwrap());
        operator.process.end();
    }
    print_times("from the start of the process until it is ready", took);
}

async fn idle(minutes: u64) {
    let began = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    print_requests(&format!("{minutes} minutes with nothing to do"), &requests(began));
}

/// Changes the channel in our ClusterVersion, time and again; the operator writes it into the cluster's.
async fn overlay(lane: &Lane) {
    let ours: Api<cluster_version::ClusterVersion> = Api::namespaced(lane.client.clone(), NAMESPACE);
    let clusters: Api<openshift::ClusterVersion> = Api::all(lane.client.clone());
    let object = object(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "ClusterVersion",
        "metadata": {"name": "version", "namespace": NAMESPACE}, "spec": {"template": {"spec": {}}},
    }));
    ours.create(&PostParams::default(), &object).await.unwrap();
    let began = Timestamp::now();
    for n in 0..CHANGES {
        let channel = format!("stable-4.18-{n}");
        let patch = json!({"spec": {"template": {"spec": {"channel": channel}}}});
        let merge = Patch::Merge(patch);
        ours.patch("version", &PatchParams::default(), &merge)
            .await
            .unwrap();
        until("the cluster has the channel", async || {
            let version = clusters.get("version").await.ok()?;
            (version.spec.channel.as_deref() == Some(&channel)).then_some(())
        })
        .await;
    }
    ours.delete("version", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let lines = audit_log::read(&support::audit_log());
    let of_versions = |line: &&Line, group: &str| {
        let object = line.object_ref.clone().unwrap_or_default();
        line.verb == "patch"
            && object.api_group == group
            && object.kind() == "clusterversions"
            && line.was_accepted()
    };
    let later = |line: &&Line| line.request_received_timestamp >= began;
    let changes = lines
        .iter()
        .filter(later)
        .filter(|l| of_versions(l, "managedupgrade.appuio.io"));
    let took = changes.filter_map(|change| {
        let ours = |line: &&Line| line.user.username == OPERATOR && of_versions(line, "config.openshift.io");
        let after = |line: &&Line| line.request_received_timestamp >= change.stage_timestamp;
        let write = lines.iter().filter(ours).find(after)?;
        Some(
            write
                .request_received_timestamp
                .duration_since(change.stage_timestamp),
        )
    });
    print_times(
        "from a change of our ClusterVersion to the write of the cluster's",
        took.collect(),
    );
}

async fn upgrade(lane: &Lane) {
    let began = Timestamp::now();
    lane.create_job("cost").await;
    let jobs = lane.jobs();
    let finished = until("the upgrade is over", async || {
        jobs.get("cost").await.ok()?.status?.finished_at
    })
    .await;
    let all = requests(began);
    let took = finished.0.duration_since(began);
    print_requests(&format!("an upgrade of 6 nodes in {took:#}"), &all);

    // The simulator's write that ends the update of the control plane, and the first of ours after it.
    let lines = audit_log::read(&support::audit_log());
    let ends = |op: &serde_json::Value| {
        let newest = &op["value"][0];
        op["path"] == "/status/history" && newest["state"] == "Completed" && newest["version"] == "4.18.5"
    };
    let completed = lines.iter().find(|line| {
        let object = line.object_ref.clone().unwrap_or_default();
        object.kind() == "clusterversions/status"
            && line.request_received_timestamp >= began
            && line
                .request_object
                .as_array()
                .is_some_and(|ops| ops.iter().any(ends))
    });
    let completed = completed.unwrap_or_else(|| {
        panic!("the write that ends the update of the control plane is not in the audit log; {AUDIT_LEVEL}")
    });
    let ours = |line: &&Line| {
        line.user.username == OPERATOR
            && ["patch", "update", "create"].contains(&line.verb.as_str())
            && line.object_ref.as_ref().is_some_and(|o| o.resource != "leases")
    };
    let after = |line: &&Line| line.request_received_timestamp >= completed.stage_timestamp;
    let write = lines
        .iter()
        .filter(ours)
        .find(after)
        .expect("a write of ours after it");
    let took = write
        .request_received_timestamp
        .duration_since(completed.stage_timestamp);
    print_times(
        "from the end of the control plane's update to our next write",
        vec![took],
    );
}

/// The operator's requests since then, by verb and resource; a watch counts when it begins and when it ends.
fn requests(since: Timestamp) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in audit_log::read(&support::audit_log()) {
        if line.user.username == OPERATOR && line.request_received_timestamp >= since {
            let what = match &line.object_ref {
                Some(object) => object.kind(),
                None => line.path().to_owned(),
            };
            *counts.entry(format!("{:<8} {what}", line.verb)).or_default() += 1;
        }
    }
    counts
}

fn print_requests(what: &str, counts: &BTreeMap<String, usize>) {
    println!("\n{what}: {} requests", counts.values().sum::<usize>());
    for (request, count) in counts {
        println!("  {count:>6}  {request}");
    }
}

fn print_times(what: &str, mut all: Vec<SignedDuration>) {
    assert!(
        !all.is_empty(),
        "{what}: nothing was found in the audit log; {AUDIT_LEVEL}"
    );
    all.sort();
    let in_ms = |at: usize| all[at].as_secs_f64() * 1000.0;
    let last = all.len() - 1;
    println!(
        "\n{what}: min {:.1}, median {:.1}, max {:.1} ms of {}",
        in_ms(0),
        in_ms(last / 2),
        in_ms(last),
        all.len()
    );
}
