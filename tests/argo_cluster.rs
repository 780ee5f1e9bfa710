//! The Argo engine against a real workflow controller: order, exit part, failure, stop, resume.
//!
//! Needs a control plane with Argo Workflows and its `argo` command, of either version:
//! `LANE_ARGO=3.7 tests/cluster/lane up 4; eval "$(tests/cluster/lane env 4)"; cargo test --test argo_cluster -- --ignored`.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "support/argo_plays.rs"]
mod argo_plays;

use std::{
    collections::BTreeMap,
    process::Command,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, job_config::WorkflowConfig},
    engine::{Engine, NodePhase, Report, Run, RunContext, StopRequest, argo::Argo, native::NO_TEMPLATES},
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Plan, build},
};
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
/// How long the controller may take over what it does in a second or two; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(300);
/// A text that would break a workflow if Argo substituted it.
const HOSTILE: &str = "4.18.5 {{workflow.name}} {{=1+1}} {{nothing.known}} \"\n- name: x";

/// A workflow on the cluster, and the plan it was rendered from.
struct Live {
    api: Api<DynamicObject>,
    name: String,
    plan: Plan,
}

fn stop(object: DynamicObject) -> Value {
    Argo.stop(&object.into()).unwrap().patch
}

impl Live {
    /// Creates the workflow of a job that holds one pool. It has no UID, so nothing owns the workflow.
    async fn create(name: &str, version: &str) -> Self {
        let job: UpgradeJob = serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "startAfter": "2026-11-24T21:00:00Z", "startBefore": "2026-11-24T22:00:00Z",
                "desiredVersion": {"version": version},
                "config": {"machineConfigPools": [{"matchLabels": {"pool": "infra"}, "delayUpgrade": {"delayMin": "1h"}}]},
            },
        }))
        .unwrap();
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "infra", "labels": {"pool": "infra"}}, "spec": {},
        }))
        .unwrap();
        let plan = build::main_plan(&job, &[], &[pool], 1);
        let name = format!("{name}-{}", Timestamp::now().as_millisecond());
        let context = RunContext {
            job: &job,
            name: name.clone(),
            config: WorkflowConfig::default(),
            template: None,
            default_service_account: None,
            active_deadline_seconds: 3_600,
            hooks: &[],
            templates: &NO_TEMPLATES,
        };
        let workflow = Argo.render(&plan, &context).unwrap();
        // An error says that another test has installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_default().await.unwrap();
        let api = Api::namespaced_with(client, NAMESPACE, &Argo.resource());
        api.create(&PostParams::default(), &workflow).await.unwrap();
        Self { api, name, plan }
    }

    async fn get(&self) -> (DynamicObject, Run) {
        let object = self.api.get(&self.name).await.unwrap();
        let run = Argo.observe(&object.clone().into(), &self.plan);
        (object, run)
    }

    /// Waits until a run looks as wanted.
    async fn wait(&self, what: &str, wanted: impl Fn(&Run) -> bool) -> Run {
        let begun = Instant::now();
        loop {
            let (_, run) = self.get().await;
            if wanted(&run) {
                return run;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{}: not {what} after {PATIENCE:?}: {run:#?}",
                self.name
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Stops it as the operator does; a conflict is a re-read.
    async fn stop(&self) {
        for _ in 0..20 {
            match self.patch(&stop(self.get().await.0)).await {
                Ok(_) => return,
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(other) => panic!("{other}"),
            }
        }
        panic!("20 conflicts in a row");
    }

    async fn wait_for_step(&self, step: &str) -> Run {
        self.wait(&format!("at {step}"), |run| {
            phase(run, step) == Some(NodePhase::Running)
        })
        .await
    }

    /// Reports until the API server takes it; a conflict is a re-read.
    async fn report(&self, reports: &[(&str, Report)]) {
        let reports: Vec<_> = reports
            .iter()
            .map(|(s, r)| ((*s).to_owned(), r.clone()))
            .collect();
        for _ in 0..20 {
            let (object, _) = self.get().await;
            let writes = Argo.report(&object.into(), &self.plan, &reports, Timestamp::now());
            let [write] = writes.as_slice() else {
                panic!("nothing to report, or too much: {writes:?}");
            };
            match self.patch(&write.patch).await {
                Ok(_) => return,
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(other) => panic!("{other}"),
            }
        }
        panic!("20 conflicts in a row");
    }

    async fn patch(&self, patch: &Value) -> Result<DynamicObject, kube::Error> {
        self.api
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Ends every step well as it is reached, but those in `failing`, and returns the order in which they were.
    async fn lead(&self, failing: &[&str]) -> (Vec<String>, Run) {
        let mut order = Vec::new();
        // Each turn ends a step.
        for _ in 0..=self.plan.steps.len() {
            let run = self
                .wait("waiting or ended", |run| run.finished || !waiting(run).is_empty())
                .await;
            if run.finished {
                return (order, run);
            }
            for step in waiting(&run) {
                let text = format!("{step} has ended, {HOSTILE}");
                let report = if failing.contains(&step.as_str()) {
                    Report::Failed(text)
                } else {
                    Report::Succeeded(text)
                };
                self.report(&[(&step, report)]).await;
                order.push(step);
            }
        }
        panic!("{}: steps wait again after their end: {order:?}", self.name);
    }

    #[allow(clippy::unused_self)]
    fn argo(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("argo")
            .args(["-n", NAMESPACE])
            .args(arguments)
            .output()
            .expect("the argo command");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

fn phase(run: &Run, step: &str) -> Option<NodePhase> {
    run.nodes.iter().find(|n| n.step == step).map(|n| n.phase)
}

fn waiting(run: &Run) -> Vec<String> {
    run.nodes
        .iter()
        .filter(|n| n.phase == NodePhase::Running)
        .map(|n| n.step.clone())
        .collect()
}

fn phases(run: &Run) -> BTreeMap<&str, NodePhase> {
    run.nodes.iter().map(|n| (n.step.as_str(), n.phase)).collect()
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn a_plan_runs_in_order_to_success() {
    let live = Live::create("success", HOSTILE).await;
    let (order, run) = live.lead(&[]).await;
    assert_eq!(run.phase, "Succeeded", "{:?}", run.message);
    assert!(run.picked_up && run.unsupported.is_none());
    let place = |name: &str| order.iter().position(|s| s == name);
    for step in &live.plan.steps {
        if step.name == "hooks-failure" {
            assert_eq!(phase(&run, &step.name), Some(NodePhase::Skipped));
            assert_eq!(place(&step.name), None);
            continue;
        }
        assert_eq!(
            phase(&run, &step.name),
            Some(NodePhase::Succeeded),
            "{}",
            step.name
        );
        for before in &step.after {
            assert!(place(before) < place(&step.name), "{before} before {}", step.name);
        }
    }
    assert!(place("final-health-check") < place("release"));

    // The texts are as written: nothing was substituted.
    let (object, _) = live.get().await;
    let nodes = object.data["status"]["nodes"].as_object().unwrap();
    let start = nodes
        .values()
        .find(|n| n["displayName"] == "set-desired-update")
        .unwrap();
    let about = start["inputs"]["parameters"][0]["value"].as_str().unwrap();
    assert_eq!(
        about,
        format!("Start the upgrade to {}", HOSTILE.replace("{{", "{ {"))
    );
    assert_eq!(start["outputs"]["parameters"][0]["value"], start["message"]);
    assert!(start["message"].as_str().unwrap().contains("{ {workflow.name}}"));
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn a_failed_step_ends_the_main_part_and_the_exit_part_runs() {
    let live = Live::create("failure", "4.18.5").await;
    let (order, run) = live.lead(&["pre-health-check"]).await;
    assert_eq!(run.phase, "Failed");
    assert_eq!(order[..3], ["hooks-start", "pre-health-check", "release"]);
    let phases = phases(&run);
    assert_eq!(phases["pause-pools"], NodePhase::LeftOut);
    assert_eq!(phases["final-health-check"], NodePhase::LeftOut);
    assert_eq!(phases["hooks-success"], NodePhase::Skipped);
    assert_eq!(phases["hooks-failure"], NodePhase::Succeeded);
    assert_eq!(phases["hooks-finish"], NodePhase::Succeeded);
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn a_failure_in_one_branch_waits_until_the_other_is_ended_too() {
    let live = Live::create("branches", "4.18.5").await;
    let branches = async {
        loop {
            let run = live.wait("waiting", |run| !waiting(run).is_empty()).await;
            let steps = waiting(&run);
            if steps == ["await-pools", "hold-infra"] {
                break;
            }
            for step in steps.iter().filter(|s| *s != "await-pools" && *s != "hold-infra") {
                live.report(&[(step, Report::Succeeded("ok".to_owned()))]).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, branches).await;
    in_time.expect("await-pools and hold-infra, and nothing else, wait");
    live.report(&[("hold-infra", Report::Message("until 23:00".to_owned()))])
        .await;
    live.report(&[("await-pools", Report::Failed("worker is degraded".to_owned()))])
        .await;
    let run = live
        .wait("past post-health-check", |run| {
            phase(run, "post-health-check").is_some()
        })
        .await;
    assert_eq!(
        (run.phase.as_str(), phase(&run, "hold-infra")),
        ("Running", Some(NodePhase::Running))
    );
    let hold = run.nodes.iter().find(|n| n.step == "hold-infra").unwrap();
    assert_eq!(hold.message.as_deref(), Some("until 23:00"));
    live.report(&[("hold-infra", Report::Failed("the job has failed".to_owned()))])
        .await;
    let (order, run) = live.lead(&[]).await;
    assert_eq!(order[0], "release");
    assert_eq!(run.phase, "Failed");
    assert_eq!(phases(&run)["hooks-failure"], NodePhase::Succeeded);
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn a_failed_exit_step_does_not_keep_the_others_from_running() {
    let live = Live::create("exit", "4.18.5").await;
    let (_, run) = live.lead(&["release"]).await;
    let phases = phases(&run);
    assert_eq!(phases["release"], NodePhase::Failed);
    assert_eq!(phases["hooks-success"], NodePhase::Succeeded);
    assert_eq!(phases["hooks-finish"], NodePhase::Succeeded);
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn nobody_resumes_the_whole_workflow_and_a_resumed_step_is_seen() {
    let live = Live::create("resume", "4.18.5").await;
    live.wait_for_step("hooks-start").await;
    let (resumed, text) = live.argo(&["resume", &live.name]);
    assert!(
        !resumed && text.contains("has not been set and does not have a default value"),
        "{text}"
    );
    assert_eq!(
        phase(&live.get().await.1, "hooks-start"),
        Some(NodePhase::Running)
    );

    live.report(&[("hooks-start", Report::Message("at work".to_owned()))])
        .await;
    let (resumed, text) = live.argo(&[
        "resume",
        &live.name,
        "--node-field-selector",
        "displayName=hooks-start",
    ]);
    assert!(resumed, "{text}");
    let run = live.wait_for_step("pre-health-check").await;
    let node = run.nodes.iter().find(|n| n.step == "hooks-start").unwrap();
    assert_eq!(
        (node.phase, node.ended_by.as_deref()),
        (NodePhase::Succeeded, Some("admin"))
    );
    live.stop().await;
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn our_stop_ends_everything_and_a_persons_stop_runs_the_exit_part() {
    let ours = Live::create("terminate", "4.18.5").await;
    ours.wait_for_step("hooks-start").await;
    let stale = ours.get().await.0;
    ours.report(&[("hooks-start", Report::Message("at work".to_owned()))])
        .await;
    let refused = ours.patch(&stop(stale)).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(e) if e.code == 409),
        "{refused}"
    );
    ours.stop().await;
    let run = ours.wait("ended", |run| run.finished).await;
    assert_eq!(
        (run.phase.as_str(), run.stop),
        ("Failed", Some(StopRequest::Terminate))
    );
    assert_eq!(phase(&run, "release"), None);

    let theirs = Live::create("stop", "4.18.5").await;
    theirs.wait_for_step("hooks-start").await;
    let (stopped, text) = theirs.argo(&["stop", &theirs.name]);
    assert!(stopped, "{text}");
    let run = theirs.wait_for_step("release").await;
    assert_eq!(
        (run.stop, run.stopped_by.as_deref()),
        (Some(StopRequest::Stop), Some("admin"))
    );
    assert_eq!(phase(&run, "hooks-start"), Some(NodePhase::Failed));
    let (_, run) = theirs.lead(&[]).await;
    assert_eq!(run.phase, "Failed");
    assert_eq!(phases(&run)["hooks-failure"], NodePhase::Succeeded);
}

/// The stand-in of the simulator is held against these recordings by `tests/argo_stand_in.rs`. To record them anew:
/// `UPDATE_GOLDEN=1`, and only one of them: `PLAY=<name>`.
#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn the_recordings_that_the_stand_in_follows_are_the_real_controllers() {
    // An error says that another test has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default().await.unwrap();
    let mut wrong = Vec::new();
    let only = std::env::var("PLAY").ok();
    let chosen = |play: &argo_plays::Play| only.as_ref().is_none_or(|only| only == play.name);
    // Each mostly waits for the controller.
    let mut recordings = stream::iter(argo_plays::all().into_iter().filter(chosen))
        .map(|play| {
            let client = client.clone();
            async move { (play.record(client).await, play.golden_file()) }
        })
        .buffered(4);
    while let Some((recorded, file)) = recordings.next().await {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, recorded).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != recorded {
            wrong.push(file);
        }
    }
    assert!(
        wrong.is_empty(),
        "the real controller records something else: {wrong:?}"
    );
}
