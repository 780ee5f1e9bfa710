//! A stand-in for the kubelet and the scheduler: pods of hooks' Jobs run for as long as their template says, and end as it
//! says.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::NAMESPACE;

/// Annotation of a pod template: the exit code. Absent = 0.
pub const EXIT_CODE: &str = "scenario/exit-code";
/// Annotation of a pod template: milliseconds that the pod runs. Absent = 0.
pub const RUNS_MS: &str = "scenario/runs-ms";

/// Runs pods until it is dropped.
pub async fn run(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let of_jobs = ListParams::default().labels("batch.kubernetes.io/job-name");
    let mut began: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        // An API server that is away is part of some scenarios: tried again.
        for pod in pods.list(&of_jobs).await.map(|l| l.items).unwrap_or_default() {
            step(&pods, &pod, &mut began).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn step(pods: &Api<Pod>, pod: &Pod, began: &mut BTreeMap<String, Instant>) {
    let phase = pod
        .status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        return;
    }
    let number = |key: &str| {
        pod.annotations()
            .get(key)
            .and_then(|t| t.parse::<u64>().ok())
            .unwrap_or_default()
    };
    let since = began
        .entry(pod.uid().unwrap_or_default())
        .or_insert_with(Instant::now);
    let next = if since.elapsed() < Duration::from_millis(number(RUNS_MS)) {
        "Running"
    } else if number(EXIT_CODE) == 0 {
        "Succeeded"
    } else {
        "Failed"
    };
    if next == phase {
        return;
    }
    let status = json!({"status": {"phase": next}});
    let written = pods
        .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status))
        .await;
    if let Err(error) = written {
        eprintln!("stand-in kubelet: pod {}: {error}", pod.name_any());
    }
}
