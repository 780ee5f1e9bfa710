//! Which engine a job gets where one is installed later, where there are several, and where one is away for a while.

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job::EngineChoice},
    engine::{Engine, argo::Argo, tekton::Tekton},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    engine_faults::{ALONE, engine_of, has_succeeded},
    harness::{
        Scenario, assert_succeeded, condition, count_of, has, kubelet,
        objects::{hook, job, running_for},
        scenario_on, scenario_on_all_engines, status, until,
    },
    hook_templates, tasks,
};

/// `config` of a job that names its engine.
fn on(engine: EngineChoice) -> Value {
    json!({"workflow": {"engine": engine.as_str()}})
}

/// The kinds of an engine that the operator knows, by plural and group.
fn known_kinds(engine: &dyn Engine) -> &'static [&'static str] {
    match engine.kind() {
        EngineChoice::Tekton => &[
            "pipelineruns.tekton.dev",
            "customruns.tekton.dev",
            "taskruns.tekton.dev",
            "tasks.tekton.dev",
        ],
        EngineChoice::Argo | EngineChoice::Embedded | EngineChoice::Auto => &[
            "workflows.argoproj.io",
            "workflowtemplates.argoproj.io",
            "clusterworkflowtemplates.argoproj.io",
        ],
    }
}

/// Deletes a kind, and returns it as it was made.
async fn delete_kind(client: &Client, name: &str) -> CustomResourceDefinition {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut kind = api.get(name).await.expect("reading a kind");
    api.delete(name, &DeleteParams::default())
        .await
        .expect("deleting a kind");
    let (spec, version) = (&kind.spec, &kind.spec.versions[0].name);
    let objects = format!("/apis/{}/{version}/{}?limit=1", spec.group, spec.names.plural);
    // The API server may still serve the kind of a definition that is gone: it hears of that as others do.
    until(&format!("{name} is gone and not served"), async || {
        let definition = api.get_opt(name).await;
        let request = http::Request::get(&objects).body(Vec::new()).unwrap();
        let served = client.request_text(request).await;
        let is_not_served = matches!(served, Err(kube::Error::Api(status)) if status.code == 404);
        (is_not_served && definition.is_ok_and(|k| k.is_none())).then_some(())
    })
    .await;
    kind.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    kind.status = None;
    kind
}

/// What the operator has written since its last start.
fn log(s: &Scenario) -> String {
    let log = s.operator().output();
    let restarted = log.rfind(" starting").expect("the log of a start");
    log[restarted..].to_owned()
}

/// Nothing of the engine, Machines or NodeForceDrains is there: the operator is ready all the same, and does not go on about it.
/// When the engine is installed it is found; what has begun without goes on without, and what has waited for it gets it.
#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_is_installed_later_is_found_without_a_restart(#[case] engine: &'static dyn Engine) {
    scenario_on(engine, &[], async |s| {
        s.kill_operator();
        s.lane.component("kill", engine.kind().as_str()).await;
        let api: Api<CustomResourceDefinition> = Api::all(s.client.clone());
        let kinds = join_all(
            known_kinds(engine)
                .iter()
                .map(|name| delete_kind(&s.client, name)),
        )
        .await;
        s.start_operator();
        s.until_ready().await;
        s.fault("stall-at", "40").await;
        s.create(&job("alone", Some("4.18.5"), json!({}))).await;
        s.until_step_runs("alone", "await-control-plane").await;
        let text = log(s);
        assert!(text.contains("does not have this kind"), "{text}");
        assert!(!text.contains("watch failed"), "{text}");
        s.create(&job("named", None, on(engine.kind()))).await;
        let not_there = format!("engine {} is not installed", engine.kind().as_str());
        s.until_job("named", "says that its engine is not installed", |j| {
            status(j).message.is_some_and(|m| m.contains(&not_there))
        })
        .await;

        for kind in &kinds {
            api.create(&PostParams::default(), kind)
                .await
                .expect("installing a kind");
        }
        s.lane.component("start", engine.kind().as_str()).await;
        s.until_job("named", "waits for nothing but the job that is under way", |j| {
            let message = status(j).message;
            message.is_some_and(|m| m.contains("/alone has the lock"))
        })
        .await;
        s.fault("stall-at", "").await;
        let alone = s.until_over("alone").await;
        let named = s.until_over("named").await;
        s.create(&job("next", None, json!({}))).await;
        let next = s.until_over("next").await;
        for (job, expected) in [
            (&alone, EngineChoice::Embedded),
            (&named, engine.kind()),
            (&next, engine.kind()),
        ] {
            assert_succeeded(job);
            assert_eq!(engine_of(job), Some(expected));
        }
        for name in ["named-run-1", "next-run-1"] {
            s.until_workflow(name, "has succeeded", has_succeeded).await;
        }
    })
    .await;
}

/// The operator has seen the engine, which is removed. A job that is due waits until that is certain, and begins without it: no
/// workflow is waited for that cannot be made.
#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_is_removed_before_a_job_starts_is_not_waited_for(
    #[case] engine: &'static dyn Engine,
) {
    scenario_on(engine, &[], async |s| {
        s.lane.component("kill", engine.kind().as_str()).await;
        join_all(
            known_kinds(engine)
                .iter()
                .map(|name| delete_kind(&s.client, name)),
        )
        .await;
        // What it is made of is gone with the engine, which says nothing of the hook as long as that is not certain.
        s.create(&match engine.kind() {
            EngineChoice::Tekton => tasks::hook("native", &["Start"], "Ignore"),
            EngineChoice::Argo | EngineChoice::Embedded | EngineChoice::Auto => {
                hook_templates::hook("native", &["Start"], "Ignore", "0")
            }
        })
        .await;
        s.create(&job("alone", None, json!({}))).await;
        let in_doubt = format!("engine {} may just have been removed", engine.kind().as_str());
        s.until_job("alone", "says that its engine may be gone", |j| {
            status(j).message.is_some_and(|m| m.contains(&in_doubt))
        })
        .await;
        s.until_job("alone", "begins without an engine", |j| {
            engine_of(j) == Some(EngineChoice::Embedded)
        })
        .await;
        let alone = s.until_over("alone").await;
        assert_succeeded(&alone);
        assert_eq!(has(&alone, "EngineStalled"), None);
        let judged = count_of(&s.events_about("alone").await, "HookNotRunnable");
        assert_eq!(judged, 1, "once it was certain");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_job_gets_the_engine_that_it_names_keeps_it_and_waits_for_it_when_it_is_away() {
    scenario_on_all_engines(&ALONE, async |s| {
        s.create(&hook("at-start", &["Start"])).await;
        s.create(&job("alone", None, on(EngineChoice::Embedded))).await;
        let alone = s.until_over("alone").await;
        assert_succeeded(&alone);
        assert_eq!(engine_of(&alone), Some(EngineChoice::Embedded));

        s.create(&running_for(hook("slow", &["Start"]), 3_600_000)).await;
        s.create(&job("flow", None, json!({}))).await;
        away_and_back(s, "flow").await;
        s.engine = &Tekton;
        s.create(&job("pipeline", None, on(EngineChoice::Tekton))).await;
        away_and_back(s, "pipeline").await;

        let writes = s.operators_writes().into_iter();
        let kinds = ["workflows", "pipelineruns"];
        let made: Vec<String> = writes
            .filter(|w| w.verb == "create" && kinds.contains(&w.resource.as_str()))
            .map(|w| format!("{} {}", w.resource, w.name))
            .collect();
        assert_eq!(made, ["workflows flow-run-1", "pipelineruns pipeline-run-1"]);
    })
    .await;
}

/// A job begins on the engine that is looked at, which dies under its hook. When that has ended the engine is silent for long enough
/// to be told, and not for so long that it is left. Meanwhile the job cannot be given another engine, and the operator's default is
/// for the next one.
async fn away_and_back(s: &mut Scenario, name: &str) {
    let engine = s.engine.kind();
    let workflow = format!("{name}-run-1");
    s.until_step_runs(name, "hook-start-slow").await;
    s.lane.component("kill", engine.as_str()).await;
    kubelet::end_pods_of_jobs(&s.client).await;
    let jobs = s.dynamic("managedupgrade.appuio.io/v1beta1", "UpgradeJob");
    let other = Patch::Merge(json!({"spec": {"config": on(EngineChoice::Embedded)}}));
    let refused = jobs.patch(name, &PatchParams::default(), &other).await;
    let refusal = refused.expect_err("another engine for a job").to_string();
    assert!(
        refusal.contains("config.workflow.engine cannot be changed"),
        "{refusal}"
    );
    // Long enough for a controller to come back on a busy machine; it is told after a third of that.
    s.restart_operator(&["--engine", "embedded", "--engine-handover-after", "60s"])
        .await;
    let told = s
        .until_job(name, "tells that the engine is silent", |j| {
            has(j, "EngineStalled").is_some()
        })
        .await;
    let stalled = has(&told, "EngineStalled").unwrap();
    assert_eq!(stalled.reason, "Silent", "{}", stalled.message);
    for part in [
        &format!("the engine has not gone on to step hooks-start of workflow {workflow} since"),
        "see whether the controller of",
        "the operator goes on without it at",
    ] {
        assert!(stalled.message.contains(part), "{}", stalled.message);
    }

    s.lane.component("start", engine.as_str()).await;
    let done = s.until_over(name).await;
    assert_succeeded(&done);
    assert_eq!(condition(&done, "EngineStalled"), "EngineStalled=False/AtWork");
    let followed = |j: &UpgradeJob| status(j).workflow.map(|w| (w.engine, w.name, w.uid));
    assert_eq!(followed(&done), followed(&told));
    assert_eq!(engine_of(&done), Some(engine));
    s.until_workflow(&workflow, "has succeeded", has_succeeded).await;
    let events = s.events_about(name).await;
    let of = |reason: &str| count_of(&events, reason);
    assert_eq!((of("EngineStalled"), of("AtWork"), of("HandedOver")), (1, 1, 0));
}
