//! Memory of the operator, on the real API server of a lane with simulated nodes and many pods.
//!
//! ```sh
//! tests/cluster/lane up 5; eval "$(tests/cluster/lane env 5)"
//! cargo bench --bench memory -- 300 6000        # nodes, pods
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

#[path = "support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use support::{Lane, Operator, Running, object, until};

const LOAD: &str = "load";
/// So many pods are created at once.
const AT_ONCE: usize = 64;
/// So many of them keep the first worker from being drained.
const BLOCKING: usize = 100;
/// So often metrics are read.
const SCRAPES: usize = 21;
/// How long is looked at a state: several reads of everything lie in it.
const LOOK: Duration = Duration::from_secs(45);

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let (nodes, pods) = match numbers.as_slice() {
        [] => (300, 6_000),
        [nodes, pods] => (*nodes, *pods),
        _ => panic!("give nodes and pods, or nothing"),
    };
    support::block_on(measure(nodes, pods));
}

async fn measure(nodes: usize, pods: usize) {
    let lane = Lane::of_environment().await;
    let durations = "retrieve=1s,control-plane=10s,node=1s,evict-retry=5s,pod-stop=1s";
    let simulator = lane.simulator(nodes - 3, durations).await;
    let operator = lane.operator(&["--drain-report-after", "5s"]).await;
    println!(
        "{nodes} nodes; binary {} KiB; ready after {:.2} s",
        lane.binary_size(),
        operator.start_up.as_secs_f64()
    );
    println!("      RSS    heap  in kB");
    report(&operator.process, "idle, no pods").await;
    scrape(&operator).await;

    load(&lane.client, 0..BLOCKING, |_| 0).await;
    stick(&lane).await;
    let stuck = format!("a drain that {BLOCKING} pods keep from its end");
    report(&operator.process, &stuck).await;

    // It would look after all pods, and is not what is measured.
    simulator.signal("STOP");
    load(&lane.client, BLOCKING..pods, |n| 1 + n % (nodes - 4)).await;
    report(
        &operator.process,
        &format!("the same, with {pods} pods in the cluster"),
    )
    .await;
    scrape(&operator).await;
    println!(
        "  {:>7}          the most of all",
        operator.process.memory("VmHWM")
    );
}

/// Prints how long the operator takes to tell its metrics, and how much that is.
async fn scrape(operator: &Operator) {
    let mut took = Vec::new();
    let mut size = 0;
    for _ in 0..SCRAPES {
        let began = Instant::now();
        size = operator.metrics().await.len();
        took.push(began.elapsed());
    }
    took.sort();
    let median = took[SCRAPES / 2].as_secs_f64() * 1000.0;
    println!("  a scrape: {median:.1} ms, {} kB", size / 1000);
}

/// Prints the most that is seen while it is looked at: all of it, and what of that is no page of the binary.
async fn report(operator: &Running, what: &str) {
    let began = Instant::now();
    let (mut all, mut own) = (0, 0);
    while began.elapsed() < LOOK {
        all = all.max(operator.memory("VmRSS"));
        own = own.max(operator.memory("RssAnon"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("  {all:>7} {own:>7}  {what}");
}

async fn prepare(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = object(json!({"metadata": {"name": LOAD}}));
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), LOAD);
    until("the namespace has its ServiceAccount", async || {
        accounts.get_opt("default").await.ok().flatten()
    })
    .await;
    let budgets = Api::namespaced(client.clone(), LOAD);
    let budget: k8s_openapi::api::policy::v1::PodDisruptionBudget = object(json!({
        "metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "load"}}},
    }));
    budgets.create(&PostParams::default(), &budget).await.unwrap();
}

/// Pods on the workers that `worker` says, of one budget that allows no disruption.
async fn load(client: &Client, pods: std::ops::Range<usize>, worker: impl Fn(usize) -> usize) {
    let count = pods.len();
    if pods.start == 0 {
        prepare(client).await;
    }
    let began = Instant::now();
    let api: Api<Pod> = Api::namespaced(client.clone(), LOAD);
    stream::iter(pods)
        .for_each_concurrent(AT_ONCE, async |n| {
            // With what the API server adds a pod of 5 kB, which is usual.
            let environment: Vec<Value> = (0..40)
                .map(|i| json!({"name": format!("VARIABLE_{i}"), "value": format!("a value of usual length {i}")}))
                .collect();
            let pod = object(json!({
                "metadata": {"name": format!("load-{n}"), "labels": {"app": "load"}},
                "spec": {
                    "nodeName": format!("worker-{}", worker(n)), "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": "localhost/load:1", "env": environment}],
                },
            }));
            api.create(&PostParams::default(), &pod).await.unwrap();
        })
        .await;
    eprintln!(
        "{count} pods are there: after {:.0} s",
        began.elapsed().as_secs_f64()
    );
}

/// An upgrade whose first worker cannot be drained.
async fn stick(lane: &Lane) {
    lane.create_job("memory").await;
    let jobs = lane.jobs();
    until("the drain of a worker is stuck, and that is told", async || {
        let status = jobs.get("memory").await.ok()?.status?;
        (!status.blockers.is_empty()).then_some(())
    })
    .await;
}
