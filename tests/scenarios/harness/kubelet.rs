//! A stand-in for the kubelet and the scheduler: pods of hooks' Jobs run for as long as their template says, and end as it
//! says. So do the pods of workflows and of TaskRuns, whose statuses say as much as Argo and Tekton read of them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::hooks::task_run;
use serde_json::{Value, json};

use super::{NAMESPACE, until};

/// Annotation of a pod template: the exit code. Absent = 0.
pub const EXIT_CODE: &str = "scenario/exit-code";
/// Annotation of a pod template: milliseconds that the pod runs. Absent = 0.
pub const RUNS_MS: &str = "scenario/runs-ms";

/// Annotation of a pod of a workflow or a TaskRun: how its attempts end, one after the other, divided by commas. A number is an
/// exit code; `deleted`: the pod is gone before anyone has seen it end; `runs`: it does not end.
pub const ATTEMPTS: &str = "scenario/attempts";
/// How long a pod must have been there before Argo takes it for deleted: `RECENTLY_STARTED_POD_DURATION`, 10 s.
const NOT_RECENT: Duration = Duration::from_secs(12);

/// Label of the pods of a TaskRun: its name.
const TASK_RUN: &str = "tekton.dev/taskRun";

/// Runs pods until it is dropped.
pub async fn run(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let task_runs = Api::namespaced_with(client.clone(), NAMESPACE, &task_run::resource());
    let nodes: Api<Node> = Api::all(client);
    let of_task_runs = ListParams::default().labels(TASK_RUN);
    let mut tries = Tries::default();
    let of_jobs = ListParams::default().labels("batch.kubernetes.io/job-name");
    let of_workflows = ListParams::default().labels("workflows.argoproj.io/workflow");
    let mut began: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        for pod in pods
            .list(&of_workflows)
            .await
            .map(|l| l.items)
            .unwrap_or_default()
        {
            step_of_workflow(&pods, &pod, &mut began).await;
        }
        for pod in pods
            .list(&of_task_runs)
            .await
            .map(|l| l.items)
            .unwrap_or_default()
        {
            step_of_task_run(&pods, &nodes, &task_runs, &pod, &mut tries).await;
        }
        // An API server that is away is part of some scenarios: tried again.
        for pod in pods.list(&of_jobs).await.map(|l| l.items).unwrap_or_default() {
            step(&pods, &pod, &mut began).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a pod of a Job runs, and lets all that do end, however long their templates say.
pub async fn end_pods_of_jobs(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_jobs = ListParams::default().labels("batch.kubernetes.io/job-name");
    let runs = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    let all = until("a pod of a Job runs", async || {
        let mut all = pods.list(&of_jobs).await.ok()?.items;
        all.retain(runs);
        (!all.is_empty()).then_some(all)
    })
    .await;
    let no_longer = Patch::Merge(json!({"metadata": {"annotations": {RUNS_MS: "0"}}}));
    for pod in all {
        let name = pod.name_any();
        pods.patch(&name, &PatchParams::default(), &no_longer)
            .await
            .unwrap_or_else(|e| panic!("changing pod {name}: {e}"));
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

async fn step_of_workflow(pods: &Api<Pod>, pod: &Pod, began: &mut BTreeMap<String, Instant>) {
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        return;
    }
    let since = began
        .entry(pod.uid().unwrap_or_default())
        .or_insert_with(Instant::now);
    let name = pod.name_any();
    let result = match (attempt(pod).as_str(), phase) {
        ("deleted", "Running") if since.elapsed() > NOT_RECENT => {
            let now = DeleteParams::default().grace_period(0);
            pods.delete(&name, &now).await.map(drop)
        }
        ("deleted" | "runs", "Running") => {
            // What a kubelet does with a pod that is to go.
            if pod.metadata.deletion_timestamp.is_none() {
                return;
            }
            let now = DeleteParams::default().grace_period(0);
            pods.delete(&name, &now).await.map(drop)
        }
        ("deleted" | "runs", _) => write(pods, &name, &running()).await,
        (code, _) => write(pods, &name, &ended(code.parse().unwrap_or_default())).await,
    };
    if let Err(error) = result {
        eprintln!("stand-in kubelet: pod {name}: {error}");
    }
}

/// How this attempt is to end; the name of the node ends with its number.
fn attempt(pod: &Pod) -> String {
    let annotation = |key: &str| pod.annotations().get(key).cloned().unwrap_or_default();
    let node = annotation("workflows.argoproj.io/node-name");
    let number = node
        .rsplit_once('(')
        .and_then(|(_, n)| n.strip_suffix(')')?.parse().ok());
    let all = annotation(ATTEMPTS);
    let ways: Vec<&str> = all.split(',').collect();
    let way = ways.get(number.unwrap_or(0_usize)).or(ways.last());
    way.map_or_else(String::new, |w| (*w).to_owned())
}

fn running() -> Value {
    let container = |name: &str| json!({"name": name, "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": null}}});
    json!({"phase": "Running", "containerStatuses": [container("main"), container("wait")]})
}

fn ended(code: i32) -> Value {
    let container = |name: &str, code: i32| {
        let reason = if code == 0 { "Completed" } else { "Error" };
        json!({"name": name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": reason}}})
    };
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    json!({"phase": phase, "containerStatuses": [container("main", code), container("wait", 0)]})
}

async fn write(pods: &Api<Pod>, name: &str, status: &Value) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"status": status}));
    pods.patch_status(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Which pods there were of a hook, in order: Tekton makes one that vanished again under its name, the operator makes others.
#[derive(Default)]
struct Tries(BTreeMap<String, Vec<String>>);

impl Tries {
    fn way(&mut self, pod: &Pod) -> String {
        let labels = pod.labels().iter();
        let of_hook: Vec<&str> = labels
            .filter(|(key, _)| key.starts_with("upgradejobs.managedupgrade.appuio.io/"))
            .map(|(_, value)| value.as_str())
            .collect();
        let all = self.0.entry(of_hook.join("/")).or_default();
        let uid = pod.uid().unwrap_or_default();
        let number = all.iter().position(|u| *u == uid).unwrap_or_else(|| {
            all.push(uid);
            all.len() - 1
        });
        let ways = pod.annotations().get(ATTEMPTS).cloned().unwrap_or_default();
        let ways: Vec<&str> = ways.split(',').collect();
        let way = ways.get(number).or(ways.last());
        way.map_or_else(String::new, |w| (*w).to_owned())
    }
}

async fn step_of_task_run(
    pods: &Api<Pod>,
    nodes: &Api<Node>,
    task_runs: &Api<DynamicObject>,
    pod: &Pod,
    tries: &mut Tries,
) {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let (name, way) = (pod.name_any(), tries.way(pod));
    let is_bound = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
    let is_over = matches!(phase, Some("Succeeded" | "Failed"));
    let now = DeleteParams::default().grace_period(0);
    let result = if pod.metadata.deletion_timestamp.is_some() {
        if !is_over {
            // A program that does not catch the signal: Tekton's entrypoint makes 255 of it.
            write(pods, &name, &steps(pod, Some(255))).await
        } else if has_seen_its_end(task_runs, pod).await {
            pods.delete(&name, &now).await.map(drop)
        } else {
            Ok(())
        }
    } else if !is_bound {
        // A pod without a node would be gone at once when it is deleted.
        bind(pods, nodes, &name).await
    } else {
        match (way.as_str(), phase) {
            (_, Some("Succeeded" | "Failed")) | ("runs", Some("Running")) => Ok(()),
            ("deleted", Some("Running")) => pods.delete(&name, &now).await.map(drop),
            ("deleted" | "runs", _) => write(pods, &name, &steps(pod, None)).await,
            (code, _) => write(pods, &name, &steps(pod, Some(code.parse().unwrap_or_default()))).await,
        }
    };
    if let Err(error) = result {
        eprintln!("stand-in kubelet: pod {name}: {error}");
    }
}

/// Whether Tekton has seen how a pod ended. One that goes before it makes again, as if nothing had been.
async fn has_seen_its_end(task_runs: &Api<DynamicObject>, pod: &Pod) -> bool {
    let name = pod.labels().get(TASK_RUN).map_or("", String::as_str);
    let Ok(run) = task_runs.get_opt(name).await else {
        return false;
    };
    run.is_none_or(|r| {
        r.metadata.deletion_timestamp.is_some() || r.data["status"]["completionTime"].is_string()
    })
}

async fn bind(pods: &Api<Pod>, nodes: &Api<Node>, name: &str) -> Result<(), kube::Error> {
    let Some(node) = nodes.list(&ListParams::default()).await?.items.into_iter().next() else {
        return Ok(());
    };
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node.name_any()},
    });
    let bound: Result<Value, _> = pods
        .create_subresource("binding", name, &PostParams::default(), &binding)
        .await;
    bound.map(drop)
}

/// What Tekton reads of its steps: that they run, or how all of them ended. One that failed has written its result `message`.
fn steps(pod: &Pod, code: Option<i32>) -> Value {
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    let all: Vec<Value> = containers
        .map(|c| {
            let state = match code {
                None => json!({"running": {"startedAt": null}}),
                Some(0) => json!({"terminated": {"exitCode": 0, "reason": "Completed"}}),
                Some(code) => {
                    let told = json!([{"key": "message", "value": "there is no room", "type": 1}]);
                    json!({"terminated": {"exitCode": code, "reason": "Error", "message": told.to_string()}})
                }
            };
            json!({"name": c.name, "image": "i", "imageID": "i", "ready": code.is_none(), "restartCount": 0, "state": state})
        })
        .collect();
    let phase = match code {
        None => "Running",
        Some(0) => "Succeeded",
        Some(_) => "Failed",
    };
    json!({"phase": phase, "containerStatuses": all})
}
