//! Hooks that are Tekton Tasks: the real controller runs their TaskRuns, and a stand-in kubelet says how their pods die.

use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, Patch,
        PatchParams, PostParams,
    },
};
use openshift_upgrade_operator::{
    api::{
        UpgradeJob,
        upgrade_job::{HookState, HookTracker, StepPhase},
    },
    engine::{Engine, tekton::Tekton},
    hooks::task_run,
};
use serde_json::{Value, json};

use crate::{
    argo::waits_for_etcd,
    engine_faults::{is_over, refuse_all_pods, submit_again},
    harness::{
        NAMESPACE, Scenario, assert_succeeded,
        audit::OPERATOR,
        condition, desired, failure, has, is_installed, kubelet, lock,
        objects::{hold_night, in_seconds, job},
        scenario_on, status, until,
    },
    hook_templates::tracked,
    own_templates,
};

const HOOK: &str = "upgradejobs.managedupgrade.appuio.io/upgradejobhook";

/// A Task whose pods die one after the other as `attempts` says.
fn task(name: &str, attempts: &str) -> Value {
    let secure = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "Task",
        // The nodes are simulated: they leave it to the stand-in how a pod ends.
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {
            kubelet::ATTEMPTS: attempts, "simulated.openshift.io/ignores-sigterm": "true"}},
        "spec": {
            "params": [{"name": "greeting"}],
            "results": [{"name": "message"}],
            "steps": [{"name": "main", "image": "localhost/hook:1", "command": ["hook"], "args": ["$(params.greeting)"],
                "securityContext": secure}],
        },
    })
}

pub fn hook(name: &str, events: &[&str], policy: &str) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "events": events,
            "failurePolicy": policy,
            "taskRef": {"name": name, "timeout": "10m", "arguments": [{"name": "greeting", "value": "hello"}]},
        },
    })
}

/// One at the event Start, whose Task is called `elsewhere` and is in this namespace.
fn hook_of_namespace(namespace: &str, name: &str, policy: &str) -> Value {
    let mut hook = hook(name, &["Start"], policy);
    hook["spec"]["taskRef"]["name"] = json!("elsewhere");
    hook["spec"]["taskRef"]["namespace"] = json!(namespace);
    hook
}

pub async fn create(s: &Scenario, name: &str, attempts: &str, events: &[&str], policy: &str) {
    s.create(&task(name, attempts)).await;
    s.create(&hook(name, events, policy)).await;
}

pub async fn task_runs(s: &Scenario) -> Vec<DynamicObject> {
    let api = Api::<DynamicObject>::namespaced_with(s.client.clone(), NAMESPACE, &task_run::resource());
    let all = api.list(&ListParams::default()).await;
    all.expect("listing TaskRuns").items
}

fn names(all: &[DynamicObject]) -> Vec<String> {
    all.iter().map(ResourceExt::name_any).collect()
}

fn of_hook(all: &[DynamicObject], hook: &str) -> Vec<DynamicObject> {
    let of = |r: &&DynamicObject| r.labels().get(HOOK).is_some_and(|h| h == hook);
    all.iter().filter(of).cloned().collect()
}

fn entry(job: &UpgradeJob, hook: &str) -> HookTracker {
    let mut all = status(job).hook_tracker;
    all.retain(|t| t.upgrade_job_hook == hook);
    all.remove(0)
}

/// As a drain does it, by the API of evictions.
async fn evict(s: &Scenario, hook: &str) {
    let pods: Api<Pod> = Api::namespaced(s.client.clone(), NAMESPACE);
    let of = ListParams::default().labels(&format!("{HOOK}={hook}"));
    let name = until(&format!("a pod of hook {hook} runs"), async || {
        let all = pods.list(&of).await.ok()?.items;
        let runs = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        all.into_iter().find(runs).map(|p| p.name_any())
    })
    .await;
    let evicted = pods.evict(&name, &EvictParams::default()).await;
    evicted.unwrap_or_else(|e| panic!("evicting pod {name}: {e}"));
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn hooks_of_tasks_run_beside_the_pipeline_and_survive_what_a_drain_does() {
    scenario_on(&Tekton, &[], async |s| {
        create(s, "evicted", "runs,0", &["Start"], "Abort").await;
        create(s, "killed", "143,137,0", &["Start"], "Abort").await;
        // Before Tekton has seen it end: it makes the pod again by itself.
        create(s, "deleted", "deleted,0", &["UpgradeComplete"], "Abort").await;
        create(s, "broken", "3,0", &["Start"], "Ignore").await;
        create(s, "says-255", "255,0", &["Start"], "Ignore").await;
        create(s, "pool", "143,0", &["MachineConfigPoolUnpause"], "Abort").await;
        create(s, "last", "1", &["Success", "Failure", "Finish"], "Abort").await;
        s.create(&hook("missing", &["Start"], "Ignore")).await;
        let config = json!({"machineConfigPools": hold_night("1s", None)});
        s.create(&job("j", Some("4.18.5"), config)).await;
        evict(s, "evicted").await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        assert!(is_installed(&s.cluster_version().await, "4.18.5"));
        assert_eq!(
            tracked(&done),
            [
                "broken@Start=Failed",
                "deleted@UpgradeComplete=Complete",
                "evicted@Start=Complete",
                "killed@Start=Complete",
                "last@Finish=Failed",
                "last@Success=Failed",
                "missing@Start=Failed",
                "pool@MachineConfigPoolUnpause/x-app-night=Complete",
                "says-255@Start=Failed",
            ]
        );
        assert_eq!(
            condition(&done, "HooksRunnable"),
            "HooksRunnable=False/HookNotRunnable"
        );
        let message = entry(&done, "missing").message;
        assert!(message.contains("there is no Task missing in namespace"), "{message}");
        let all = task_runs(s).await;
        let counts = ["evicted", "killed", "deleted", "broken", "says-255", "pool", "last"].map(|h| of_hook(&all, h).len());
        assert_eq!(counts, [2, 3, 1, 1, 1, 2, 2]);
        let run = &of_hook(&all, "broken")[0];
        let (name, pod) = (run.name_any(), run.data["status"]["podName"].as_str().unwrap());
        assert_eq!(
            entry(&done, "broken").message,
            format!("TaskRun {name} failed: there is no room (StepFailed: \"step-main\" exited with code 3: Error); see oc -n {NAMESPACE} logs --all-containers {pod}")
        );
        told(&of_hook(&all, "pool"));
        until("all ends are on record", async || {
            let all = task_runs(s).await;
            all.iter().all(|r| r.finalizers().is_empty()).then_some(())
        })
        .await;
    })
    .await;
}

/// What the TaskRuns were given: the same, each time.
fn told(tries: &[DynamicObject]) {
    let env = |run: &DynamicObject| run.data["spec"]["podTemplate"]["env"].clone();
    assert_eq!(env(&tries[0]), env(&tries[1]));
    assert_eq!(tries[0].data["spec"]["params"], tries[1].data["spec"]["params"]);
    let all = env(&tries[0]);
    let value = |name: &str| {
        let mut all = all.as_array().unwrap().iter();
        all.find(|v| v["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(value("EVENT_NAME"), "\"MachineConfigPoolUnpause\"");
    assert_eq!(value("EVENT_pool"), "\"x-app-night\"");
    assert_eq!(value("JOB_spec_desiredVersion_version"), "\"4.18.5\"");
    assert_eq!(
        tries[0].metadata.owner_references.as_ref().unwrap()[0].kind,
        "UpgradeJob"
    );
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_hook_of_a_task_that_truly_fails_ends_the_job_and_nothing_outlives_it() {
    scenario_on(&Tekton, &[], async |s| {
        create(s, "strict", "3,0", &["Start"], "Abort").await;
        // Still runs when the other one fails: it is left to end.
        create(s, "slow", "runs", &["Start"], "Ignore").await;
        create(s, "last", "0", &["Failure"], "Ignore").await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        let failed = s.until_over("j").await;
        let message = failure(&failed, "HookFailed");
        assert!(
            message.contains("hook strict failed: TaskRun j-strict-start-"),
            "{message}"
        );
        assert_eq!(desired(&s.cluster_version().await), None);
        s.until_job("j", "has run its hook of Failure", |j| {
            tracked(j).contains(&"last@Failure=Complete".to_owned())
        })
        .await;
        assert_eq!(entry(&s.job("j").await, "slow").status, HookState::Active);

        // The TaskRuns are the operator's: a PipelineRun that is run again brings none.
        let before = names(&task_runs(s).await);
        submit_again(s, "j-run-1", "j-run-1-again").await;
        s.until_workflow("j-run-1-again", "has ended", is_over).await;
        assert_eq!(names(&task_runs(s).await), before);

        s.delete_job("j").await;
        s.until_gone("j").await;
        until("no TaskRun is left", async || {
            task_runs(s).await.is_empty().then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_hook_whose_task_is_missing_fails_the_job_when_it_is_made() {
    scenario_on(&Tekton, &[], async |s| {
        s.create(&hook("strict", &["Start"], "Abort")).await;
        let mut early = job("j", Some("4.18.5"), json!({}));
        early["spec"]["startAfter"] = json!(in_seconds(3_000));
        s.create(&early).await;
        let failed = s
            .until_job("j", "has failed", |j| has(j, "Failed").is_some())
            .await;
        let message = failure(&failed, "HookFailed");
        assert!(
            message.contains(
                "hook strict cannot be run: there is no Task strict in namespace openshift-upgrade"
            ),
            "{message}"
        );
        assert!(has(&failed, "Started").is_none());
        assert!(task_runs(s).await.is_empty());
    })
    .await;
}

/// A namespace with a Task, which the operator may read.
async fn share_tasks_of(namespace: &str, s: &Scenario) {
    let create = async |object: Value| {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("its kind");
        let (group, version) = types
            .api_version
            .split_once('/')
            .unwrap_or(("", &types.api_version));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let api: Api<DynamicObject> = if types.kind == "Namespace" {
            Api::all_with(s.client.clone(), &kind)
        } else {
            Api::namespaced_with(s.client.clone(), namespace, &kind)
        };
        let created = api.create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|e| panic!("creating {}: {e}", types.kind));
    };
    create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    let mut task = task("elsewhere", "0");
    task["metadata"]["namespace"] = json!(namespace);
    create(task).await;
    create(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "tasks"},
        "rules": [{"apiGroups": ["tekton.dev"], "resources": ["tasks"], "verbs": ["get"]}],
    }))
    .await;
    create(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "tasks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tasks"},
        "subjects": [{"kind": "ServiceAccount", "name": "upgrade-operator", "namespace": NAMESPACE}],
    }))
    .await;
    // The API server hears of roles as others do.
    let reviews: Api<SubjectAccessReview> = Api::all(s.client.clone());
    let read = json!({"group": "tekton.dev", "resource": "tasks", "verb": "get", "namespace": namespace});
    let review = json!({"metadata": {}, "spec": {"user": OPERATOR, "resourceAttributes": read}});
    let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
    until(
        &format!("the operator may read Tasks in {namespace}"),
        async || {
            let reviewed = reviews.create(&PostParams::default(), &review).await.ok()?;
            reviewed.status.filter(|s| s.allowed)
        },
    )
    .await;
}

/// Tekton says at once what it will never run; nobody waits for it.
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_task_that_tekton_refuses_costs_its_hook_and_not_the_upgrade() {
    scenario_on(&Tekton, &[], async |s| {
        let mut wrong = task("refused", "0");
        wrong["spec"]["steps"][0]["args"] = json!(["$(params.nothing)"]);
        s.create(&wrong).await;
        s.create(&hook("refused", &["Start"], "Ignore")).await;
        share_tasks_of("ops", s).await;
        let mut elsewhere = hook_of_namespace("ops", "elsewhere", "Ignore");
        // No resolver answers: its own deadline ends it.
        elsewhere["spec"]["taskRef"]["timeout"] = json!("5s");
        s.create(&elsewhere).await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        let refused = entry(&done, "refused");
        assert_eq!(refused.status, HookState::Failed);
        assert!(refused.message.contains("nothing"), "{}", refused.message);
        let elsewhere = entry(&done, "elsewhere");
        assert_eq!(elsewhere.status, HookState::Failed);
        assert!(
            elsewhere.message.contains("TaskRunTimeout"),
            "{}",
            elsewhere.message
        );
        let hooks = s.dynamic("managedupgrade.appuio.io/v1beta1", "UpgradeJobHook");
        hooks.delete("elsewhere", &DeleteParams::default()).await.unwrap();
        tasks_of_namespaces_that_the_resolver_allows(s).await;
    })
    .await;
}

/// Tekton's own resolver fetches a Task where it is allowed to. Where it is not, nobody hears of it but its log: Tekton 1.15
/// cannot mark the request as failed, since its CRD requires the source of what was not fetched. So the deadline ends it.
async fn tasks_of_namespaces_that_the_resolver_allows(s: &Scenario) {
    let maps: Api<ConfigMap> = Api::namespaced(s.client.clone(), "tekton-pipelines-resolvers");
    let allowed = Patch::Merge(json!({"data": {"allowed-namespaces": "ops"}}));
    let name = "cluster-resolver-config";
    maps.patch(name, &PatchParams::default(), &allowed)
        .await
        .unwrap_or_else(|e| panic!("changing ConfigMap {name}: {e}"));
    s.lane.component("start", "tekton-resolvers").await;

    share_tasks_of("private", s).await;
    s.create(&hook_of_namespace("ops", "fetched", "Abort")).await;
    let mut kept = hook_of_namespace("private", "kept", "Ignore");
    kept["spec"]["taskRef"]["timeout"] = json!("20s");
    s.create(&kept).await;
    s.create(&job("resolved", None, json!({}))).await;
    let done = s.until_over("resolved").await;
    assert_succeeded(&done);
    assert_eq!(
        tracked(&done),
        [
            "fetched@Start=Complete",
            "kept@Start=Failed",
            "refused@Start=Failed"
        ]
    );
    let kept = entry(&done, "kept").message;
    assert!(kept.contains("TaskRunTimeout"), "{kept}");
}

/// Tekton looks again at a TaskRun whose pod a quota refused once a minute, or when somebody writes to it.
async fn refused_by_a_quota(s: &Scenario) {
    let quotas = refuse_all_pods(s).await;
    s.create(&job("quota", None, json!({}))).await;
    s.until_job("quota", "tells of the quota", |j| {
        status(j).message.is_some_and(|m| m.contains("exceeded quota"))
    })
    .await;
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    let api = Api::<DynamicObject>::namespaced_with(s.client.clone(), NAMESPACE, &task_run::resource());
    let look = Patch::Merge(json!({"metadata": {"annotations": {"look": "again"}}}));
    for run in task_runs(s).await {
        api.patch(&run.name_any(), &PatchParams::default(), &look)
            .await
            .unwrap();
    }
    assert_succeeded(&s.until_over("quota").await);
}

/// A step's CustomRun is given its end by hand: a check is approved so, any other step goes on until the cluster is there.
async fn ended_by_hand(s: &Scenario) {
    waits_for_etcd(s, "ended").await;
    end_step(s, "ended-run-1-pre-health-check").await;
    s.until_step_runs("ended", "await-control-plane").await;
    s.fault("degraded-operators", "").await;
    end_step(s, "ended-run-1-await-control-plane").await;
    let waits = "waiting for step await-control-plane";
    s.until_job("ended", waits, |j| {
        status(j)
            .steps
            .iter()
            .any(|x| x.message.as_deref() == Some(waits))
    })
    .await;
    s.fault("stall-at", "").await;
    let done = s.until_over("ended").await;
    assert_succeeded(&done);
    assert!(is_installed(&s.cluster_version().await, "4.18.5"));
    let by_hand: Vec<String> = status(&done)
        .steps
        .into_iter()
        .filter(|x| x.phase == StepPhase::Overridden)
        .map(|x| x.name)
        .collect();
    assert_eq!(by_hand, ["pre-health-check", "await-control-plane"]);
}

async fn end_step(s: &Scenario, name: &str) {
    let api = Api::<DynamicObject>::namespaced_with(
        s.client.clone(),
        NAMESPACE,
        &Tekton.step_resource().expect("CustomRun"),
    );
    let condition = json!({"type": "Succeeded", "status": "True", "reason": "Approved", "message": "by hand",
        "lastTransitionTime": jiff::Timestamp::now()});
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    api.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap_or_else(|e| panic!("ending CustomRun {name}: {e}"));
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn pods_that_cannot_be_made_templates_that_lack_a_step_and_steps_that_people_end() {
    scenario_on(&Tekton, &[], async |s| {
        create(s, "hook", "0", &["Start"], "Abort").await;
        refused_by_a_quota(s).await;

        let config = json!({"workflow": {"serviceAccountName": "gone"}});
        s.create(&job("account", None, config)).await;
        let done = s.until_over("account").await;
        let message = failure(&done, "HookFailed");
        assert!(
            message.contains("serviceaccounts \"gone\" not found"),
            "{message}"
        );
        let hooks = s.dynamic("managedupgrade.appuio.io/v1beta1", "UpgradeJobHook");
        hooks.delete("hook", &DeleteParams::default()).await.unwrap();

        own_templates::one_that_is_mended_in_time_is_told_and_taken(s).await;
        own_templates::one_that_is_made_to_wait_says_so(s).await;
        ended_by_hand(s).await;
        assert_eq!(lock(&s.cluster_version().await), None);
    })
    .await;
}
