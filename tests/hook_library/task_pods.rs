//! Tasks of the library, run by the real Tekton in real pods as the operator would have them run. Their scripts are those of
//! Argo's templates, which are tested thoroughly; here is what is otherwise: how a pod's end looks, and the approval.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{
        UpgradeJob, UpgradeJobHook,
        upgrade_job::HookState,
        upgrade_job_hook::{HookEvent, TaskRef},
    },
    hooks::{
        environment::Event,
        hook_run::HookRun,
        run::Settings,
        task_run::{self, PodSight, TaskRun},
    },
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, NAMESPACE, unique, wait_for},
    hook::{Hook, SOON},
    outside::{ALERTMANAGER, Answer, Recorder},
};

/// A TaskRun of a hook.
struct Running<'a> {
    cluster: &'a Cluster,
    name: String,
}

fn task_runs(cluster: &Cluster) -> Api<DynamicObject> {
    cluster.dynamic("tekton.dev", "v1", "TaskRun", NAMESPACE)
}

/// Of this Task, with these arguments, under its account.
async fn start<'a>(
    cluster: &'a Cluster,
    task: &str,
    (event, job): (&Event, &UpgradeJob),
    arguments: &[(&str, &str)],
) -> Running<'a> {
    let arguments: Vec<Value> = arguments
        .iter()
        .chain(&[("image", "localhost/openshift-tools:test")])
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let hook: UpgradeJobHook = serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
        "metadata": {"name": task, "namespace": NAMESPACE},
        "spec": {"events": ["Start"], "taskRef": {
            "name": task, "arguments": arguments, "serviceAccountName": format!("hook-{task}"), "timeout": "5m",
        }},
    }))
    .unwrap();
    let reference: &TaskRef = hook.spec.task_ref.as_ref().unwrap();
    let mut run = task_run::build(&hook, reference, event, job, "", &Settings::default(), None).unwrap();
    // Nobody tracks it, and its owner may not exist.
    run.metadata.finalizers = None;
    run.metadata.owner_references = None;
    run.metadata.name = None;
    run.metadata.generate_name = Some(format!("{task}-"));
    let made = task_runs(cluster)
        .create(&PostParams::default(), &run)
        .await
        .unwrap();
    Running {
        cluster,
        name: made.name_any(),
    }
}

impl Running<'_> {
    async fn get(&self) -> DynamicObject {
        task_runs(self.cluster).get(&self.name).await.unwrap()
    }

    /// As the operator sees it once it has ended, after a look at its pod.
    async fn end(&self) -> (HookState, String, bool) {
        let mut run = wait_for(&format!("{} ends", self.name), SOON, async || {
            let object = self.get().await;
            let conditions = object.data["status"]["conditions"].clone();
            let over = conditions[0]["status"].as_str().is_some_and(|s| s != "Unknown");
            over.then(|| TaskRun::from(object))
        })
        .await;
        if let Some(pod) = run.pod_to_look_at() {
            let pod = self.cluster.pods(NAMESPACE).get_opt(pod).await.unwrap();
            run.pod_sight = pod.as_ref().map_or(PodSight::Deleted, PodSight::of);
        }
        let seen = HookRun::of_task_run(&run, Timestamp::now());
        println!("{}: {:?} {}", self.name, seen.state, seen.message);
        (seen.state, seen.message, seen.again.is_some())
    }

    async fn failed(&self, text: &str) {
        let (state, message, again) = self.end().await;
        assert_eq!((state, again), (HookState::Failed, false), "{message}");
        assert!(message.contains(text), "'{text}' is not in: {message}");
    }

    async fn succeeded(&self) {
        let (state, message, _) = self.end().await;
        assert_eq!(state, HookState::Complete, "{message}");
    }

    /// The name of its pod, which runs.
    async fn pod(&self) -> String {
        wait_for(&format!("the pod of {} runs", self.name), SOON, async || {
            let name = self.get().await.data["status"]["podName"].as_str()?.to_owned();
            let pod = self.cluster.pods(NAMESPACE).get_opt(&name).await.unwrap()?;
            let ready = pod.status?.phase.as_deref() == Some("Running");
            ready.then_some(name)
        })
        .await
    }

    async fn has_said(&self, text: &str) {
        let pod = self.pod().await;
        let pods = self.cluster.pods(NAMESPACE);
        wait_for(&format!("{} says '{text}'", self.name), SOON, async || {
            let log = pods.logs(&pod, &kube::api::LogParams::default()).await.ok()?;
            log.contains(text).then_some(())
        })
        .await;
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_task_tells_why_it_failed() {
    let cluster = Cluster::ready().await;
    let server = Recorder::start(&[Answer::Status(200)]).await;
    let secret = unique("task-webhook");
    cluster.secret(&secret, &server.url()).await;
    let hook = Hook::new("notify-webhook", HookEvent::Start, "task");
    let told = start(
        &cluster,
        "notify-webhook",
        hook.happened(),
        &[("secret", &secret)],
    )
    .await;
    let missing = start(&cluster, "notify-webhook", hook.happened(), &[("secret", "none")]).await;
    told.succeeded().await;
    missing
        .failed("failed: Secret none has no key url: create it with")
        .await;
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    let message: Value = serde_json::from_str(&seen[0].body).unwrap();
    assert_eq!(message["event"], "Start");
    assert_eq!(message["version"], "4.18.5");
}

/// Far enough to know that Tekton takes the Task, and that its account, volumes and variables are right.
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn every_task_gets_to_its_script_and_says_what_is_wrong() {
    let cluster = Cluster::ready().await;
    let none = unique("none");
    let cases = [
        ("add-capacity", vec![("machineset", none.as_str())], none.as_str()),
        ("etcd-backup", vec![("keep", "0")], "parameter keep is '0'"),
        ("pause-argocd", vec![("selector", "test=none")], "test=none"),
        (
            "remove-capacity",
            vec![("machineset", none.as_str())],
            none.as_str(),
        ),
        (
            "silence-alerts",
            vec![("duration", "soon"), ("matchers", "a=b")],
            "parameter duration is 'soon'",
        ),
        (
            "unsilence-alerts",
            vec![("url", ALERTMANAGER), ("ca-file", "/none")],
            "mend the parameters url and ca-file",
        ),
    ];
    let mut running = Vec::new();
    for (task, arguments, text) in &cases {
        let hook = Hook::new(task, HookEvent::Start, "task");
        running.push((start(&cluster, task, hook.happened(), arguments).await, text));
    }
    let hook = Hook::new("resume-argocd", HookEvent::Finish, "task");
    let nothing = [("selector", "test=none")];
    let resumed = start(&cluster, "resume-argocd", hook.happened(), &nothing).await;
    for (run, text) in running {
        run.failed(text).await;
    }
    resumed.succeeded().await;
}

/// A job that is not due for long: whoever runs the cluster does nothing with it.
async fn job(cluster: &Cluster, name: &str) -> UpgradeJob {
    let api: Api<UpgradeJob> = cluster.ours();
    let job = serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": unique(name), "namespace": NAMESPACE},
        "spec": {"startAfter": "2099-01-01T00:00:00Z", "startBefore": "2099-01-01T01:00:00Z"},
    }))
    .unwrap();
    api.create(&PostParams::default(), &job).await.unwrap()
}

async fn answer(cluster: &Cluster, job: &UpgradeJob, text: &str) {
    let api: Api<UpgradeJob> = cluster.ours();
    let patch = json!({"metadata": {"annotations": {"managedupgrade.appuio.io/approval": text}}});
    api.patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_person_approves_on_the_job_in_time_or_the_hook_fails() {
    let cluster = Cluster::ready().await;
    let approval = "wait-for-approval";
    let now = Hook::new(approval, HookEvent::Start, "task");
    let event = Event {
        time: Timestamp::now(),
        ..now.happened().0.clone()
    };
    let (yes, no) = (job(&cluster, "approve").await, job(&cluster, "refuse").await);
    let (nobody, odd) = (job(&cluster, "nobody").await, job(&cluster, "odd").await);
    let approved = start(&cluster, approval, (&event, &yes), &[]).await;
    let refused = start(&cluster, approval, (&event, &no), &[]).await;
    let late = start(&cluster, approval, (&event, &nobody), &[("timeout", "15s")]).await;
    let strange = start(
        &cluster,
        approval,
        (&event, &odd),
        &[("annotation", "example.com/ok")],
    )
    .await;
    approved
        .has_said(&format!(
            "annotate upgradejob {} managedupgrade.appuio.io/approval=yes",
            yes.name_any()
        ))
        .await;
    answer(&cluster, &yes, "yes").await;
    answer(&cluster, &no, "no").await;
    let api: Api<UpgradeJob> = cluster.ours();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/ok": "maybe"}}}));
    api.patch(&odd.name_any(), &PatchParams::default(), &patch)
        .await
        .unwrap();

    approved.succeeded().await;
    refused.failed("failed: the upgrade was refused").await;
    late.failed("failed: nobody approved the upgrade within 15s")
        .await;
    strange.failed("is 'maybe': write yes or no").await;
    for job in [yes, no, nobody, odd] {
        api.delete(&job.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_pod_that_is_evicted_or_deleted_is_told_from_one_that_failed() {
    let cluster = Cluster::ready().await;
    let approval = "wait-for-approval";
    let job = job(&cluster, "drained").await;
    let now = Hook::new(approval, HookEvent::Start, "task");
    let event = Event {
        time: Timestamp::now(),
        ..now.happened().0.clone()
    };
    let pods = cluster.pods(NAMESPACE);
    let (evicted, deleted) = tokio::join!(
        start(&cluster, approval, (&event, &job), &[]),
        start(&cluster, approval, (&event, &job), &[]),
    );
    evicted.has_said("to approve").await;
    deleted.has_said("to approve").await;
    pods.evict(&evicted.pod().await, &EvictParams::default())
        .await
        .unwrap();
    pods.delete(&deleted.pod().await, &DeleteParams::default())
        .await
        .unwrap();
    // Tekton may not see its end, and make the pod again: then nothing failed, and it goes on.
    for run in [&evicted, &deleted] {
        wait_for(
            &format!("{} is told from a failure", run.name),
            SOON,
            async || {
                let object = run.get().await;
                let is_over = object.data["status"]["conditions"][0]["status"] == "False";
                let pod = object.data["status"]["podName"].as_str()?;
                let pod = pods.get_opt(pod).await.unwrap();
                let again = pod.is_some_and(|p| p.metadata.deletion_timestamp.is_none());
                (is_over || again).then_some(())
            },
        )
        .await;
        if run.get().await.data["status"]["conditions"][0]["status"] == "False" {
            let (state, message, again) = run.end().await;
            assert_eq!((state, again), (HookState::Active, true), "{message}");
        }
    }
    let api: Api<UpgradeJob> = cluster.ours();
    api.delete(&job.name_any(), &DeleteParams::default())
        .await
        .unwrap();
}
