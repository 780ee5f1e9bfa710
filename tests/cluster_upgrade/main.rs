//! Upgrades of the whole test cluster: the operator in its own image and under its own rights, real Argo Workflows
//! and Tekton, real Jobs and pods, simulated OpenShift.
//!
//! They need the cluster of `tests/cluster/up` and share it, so they run one after the other:
//! `eval "$(tests/cluster/env)"; cargo test --test cluster_upgrade -- --ignored --test-threads=1 --nocapture`.
//! `tests/run` does all of it.

// The configuration of clippy allows these inside test functions only, and this whole crate is tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[allow(dead_code, reason = "other tests look at more of it")]
#[path = "../support/audit_log.rs"]
mod audit_log;
mod chart;
#[path = "../support/documents.rs"]
mod documents;
mod example;
mod hook_templates;
mod installation;
mod processes;
mod quick_start;
mod story;
mod tekton;
mod testbed;
mod troubled_hooks;
mod two_replicas;
#[path = "../support/wait.rs"]
mod wait;
#[path = "../support/writers.rs"]
mod writers;

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use openshift_upgrade_operator::api::{
    UpgradeJob,
    conditions::{self, reasons, types},
    finalizers,
    upgrade_job::{HookState, JobPhase, StepPhase},
    upgrade_job_hook::HookEvent,
};

use crate::{
    example::{Delay, NIGHT_POOL, config, hook, job_to, near_minute},
    testbed::{Testbed, wait_for},
};

/// How long a simulated upgrade may take on a busy machine; at ease it takes less than a minute.
const UPGRADE: Duration = Duration::from_secs(600);
/// How long everything else may take.
const SOON: Duration = Duration::from_secs(240);
/// A run begins at a full minute.
const A_MINUTE: Duration = Duration::from_secs(120);

fn condition(job: &UpgradeJob, type_: &str) -> Option<(String, String)> {
    let all = job.status.as_ref().map_or(&[][..], |s| s.conditions.as_slice());
    conditions::get(all, type_).map(|c| (c.status.clone(), c.reason.clone()))
}

fn assert_condition(job: &UpgradeJob, type_: &str, status: &str, reason: &str) {
    assert_eq!(
        condition(job, type_),
        Some((status.to_owned(), reason.to_owned())),
        "condition {type_}"
    );
}

fn phase(job: &UpgradeJob) -> Option<JobPhase> {
    job.status.as_ref()?.phase
}

fn step_phase(job: &UpgradeJob, name: &str) -> Option<StepPhase> {
    let steps = &job.status.as_ref()?.steps;
    steps.iter().find(|s| s.name == name).map(|s| s.phase)
}

/// The outcome is decided, everything was given back, the hooks of the end have ended, and so has the workflow.
fn is_over(job: &UpgradeJob) -> bool {
    let Some(status) = &job.status else { return false };
    let workflow = status.workflow.as_ref().and_then(|w| w.phase.as_deref());
    status.finished_at.is_some()
        && matches!(workflow, Some("Succeeded" | "Completed" | "Failed" | "Error"))
        && status.steps.iter().all(|s| s.phase.is_finished())
        && status.hook_tracker.iter().all(|h| h.status != HookState::Active)
        && !job.finalizers().iter().any(|f| f == finalizers::UPGRADE_JOB)
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn the_example_upgrades_the_cluster_and_tells_the_same_story_in_argo_and_in_the_job() {
    let cluster = Testbed::fresh(&[]).await;
    let idle = processes::operator_memory();
    // Far off: its time comes once it is seen to be held, however long that takes.
    let delay = Delay {
        min: 3_000,
        max: 3_600,
    };
    let start = near_minute(Timestamp::now());
    cluster.apply(&hook("notify", &HOOKED)).await;
    cluster.apply(&config("cluster-upgrade", start, &delay)).await;

    let name = cluster.only_job(SOON).await.name_any();
    let before = cluster.configs_of_nodes(NIGHT_POOL).await;
    assert_eq!(before.len(), 2, "the pool has two nodes");

    let (mut most, mut due) = (idle, None);
    let job = wait_for("the upgrade ends", A_MINUTE + UPGRADE, async || {
        most = most.max(processes::operator_memory());
        // Time first: what is read afterwards was so later than this.
        let asked_at = Timestamp::now();
        let job = cluster.job(&name).await;
        if asked_at < start {
            assert_eq!(
                phase(&job).unwrap_or(JobPhase::Pending),
                JobPhase::Pending,
                "before its time"
            );
        }
        let nodes = cluster.configs_of_nodes(NIGHT_POOL).await;
        if due.is_none_or(|due| Timestamp::now() < due) {
            assert_eq!(
                nodes, before,
                "nodes of the night pool were touched before their time, {due:?}"
            );
        }
        let is_held = phase(&job) == Some(JobPhase::Paused)
            && step_phase(&job, &format!("hold-{NIGHT_POOL}")) == Some(StepPhase::Running)
            && cluster.pool(NIGHT_POOL).await.spec.paused;
        if due.is_none() && is_held {
            due = Some(cluster.let_go_in(&job, 10).await);
        }
        is_over(&job).then_some(job)
    })
    .await;
    println!("memory of the operator (VmRSS): {idle} kB idle, {most} kB at most during the upgrade");

    assert!(due.is_some(), "the night pool was never seen held");
    the_job_succeeded(&job, start);
    cluster.assert_installed("4.18.5").await;
    assert_ne!(
        cluster.configs_of_nodes(NIGHT_POOL).await,
        before,
        "the night pool was upgraded"
    );
    cluster.assert_nothing_is_held().await;

    let workflow = cluster.only_workflow().await;
    story::assert_same(&workflow, &job);
    the_hooks_ran(&cluster, &job).await;
}

/// The events that the hook of these tests is for.
const HOOKED: [HookEvent; 5] = [
    HookEvent::Create,
    HookEvent::Start,
    HookEvent::Success,
    HookEvent::Failure,
    HookEvent::Finish,
];

fn the_job_succeeded(job: &UpgradeJob, start: Timestamp) {
    let version = job
        .spec
        .desired_version
        .as_ref()
        .and_then(|d| d.version.as_deref());
    assert_eq!(
        version,
        Some("4.18.5"),
        "the newest of 4.18.4 and 4.18.5 is chosen"
    );
    assert_eq!(job.spec.start_after.0, start);
    assert_eq!(
        job.labels().get("upgrade-config").map(String::as_str),
        Some("cluster-upgrade")
    );
    assert!(
        job.name_any()
            .starts_with(&format!("cluster-upgrade-{}-", start.as_second())),
        "{}",
        job.name_any()
    );
    assert_eq!(phase(job), Some(JobPhase::Succeeded));
    assert_condition(job, types::STARTED, "True", reasons::STARTED);
    assert_condition(job, types::PRE_HEALTH_CHECK_DONE, "True", reasons::COMPLETED);
    assert_condition(job, types::UPGRADE_COMPLETED, "True", reasons::COMPLETED);
    assert_condition(job, types::POST_HEALTH_CHECK_DONE, "True", reasons::COMPLETED);
    assert_condition(
        job,
        types::MACHINE_CONFIG_POOLS_PAUSED,
        "False",
        reasons::DELAY_SET,
    );
    assert_condition(job, types::PAUSED, "False", reasons::DELAY_SET);
    assert_condition(job, types::SUCCEEDED, "True", reasons::SUCCEEDED);
    assert_eq!(condition(job, types::FAILED), None);
    let status = job.status.as_ref().unwrap();
    assert!(status.started_at.as_ref().is_some_and(|t| t.0 >= start));
    assert!(status.paused_pools.is_empty(), "{:?}", status.paused_pools);
    let health = status
        .steps
        .iter()
        .find(|s| s.name == "pre-health-check")
        .unwrap();
    assert_eq!(
        health.message.as_deref(),
        Some("healthy"),
        "Prometheus was asked about critical alerts and the query"
    );
}

async fn the_hooks_ran(cluster: &Testbed, job: &UpgradeJob) {
    let mut ran: Vec<(HookEvent, HookState)> = job
        .status
        .iter()
        .flat_map(|s| &s.hook_tracker)
        .map(|h| (h.hook_event, h.status))
        .collect();
    ran.sort_by_key(|(event, _)| HOOKED.iter().position(|e| e == event));
    let complete = |event| (event, HookState::Complete);
    assert_eq!(
        ran,
        [
            HookEvent::Create,
            HookEvent::Start,
            HookEvent::Success,
            HookEvent::Finish
        ]
        .map(complete),
        "each once, and not the hook of Failure"
    );
    let pods = cluster.hook_pods().await;
    assert_eq!(
        pods.len(),
        4,
        "one pod a hook Job: {:?}",
        pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    );
    let image = job
        .spec
        .desired_version
        .as_ref()
        .and_then(|d| d.image.clone())
        .unwrap();
    for pod in &pods {
        let event = testbed::event_of(pod);
        let status = pod.status.as_ref().unwrap();
        assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("real-0"));
        let container = &status.container_statuses.as_ref().unwrap()[0];
        assert!(
            container
                .container_id
                .as_ref()
                .is_some_and(|id| id.starts_with("containerd://")),
            "no container ran: {container:?}"
        );
        let log = cluster.log(pod).await;
        assert_eq!(
            log.lines().collect::<Vec<_>>(),
            [
                // The seed's line: the kubelet put the JSON values into the command.
                format!(r#"{{"event": "{event}", "version": "{image}"}}"#),
                format!(r#"EVENT_name="{event}""#),
                format!(r#"JOB_spec_desiredVersion_image="{image}""#),
            ],
            "log of the hook of {event}"
        );
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn without_an_update_the_run_is_maintenance_hooks_and_pools_only() {
    let cluster = Testbed::fresh(&["--from-version", "4.18.5"]).await;
    let before = cluster.cluster_version().await;
    let start = near_minute(Timestamp::now());
    cluster.apply(&hook("notify", &HOOKED)).await;
    cluster
        .apply(&config("cluster-upgrade", start, &Delay { min: 5, max: 600 }))
        .await;

    let name = cluster.only_job(A_MINUTE).await.name_any();
    let job = wait_for("the maintenance ends", A_MINUTE + UPGRADE, async || {
        Some(cluster.job(&name).await).filter(is_over)
    })
    .await;

    assert_eq!(phase(&job), Some(JobPhase::Succeeded));
    assert_eq!(job.spec.desired_version, None, "there is nothing to upgrade to");
    let steps: Vec<&str> = job
        .status
        .iter()
        .flat_map(|s| &s.steps)
        .map(|s| s.name.as_str())
        .collect();
    assert!(
        !steps.contains(&"set-desired-update") && !steps.contains(&"await-control-plane"),
        "{steps:?}"
    );
    for step in [
        "hook-start-notify",
        "pre-health-check",
        "await-pools",
        "hook-success-notify",
        "hook-finish-notify",
    ] {
        assert_eq!(
            step_phase(&job, step),
            Some(StepPhase::Succeeded),
            "{step} of {steps:?}"
        );
    }
    let after = cluster.cluster_version().await;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.status.unwrap().history, before.status.unwrap().history);
    cluster.assert_nothing_is_held().await;
    story::assert_same(&cluster.only_workflow().await, &job);
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn two_configs_that_are_due_at_once_run_one_after_the_other() {
    let cluster = Testbed::fresh(&["--speed", "3"]).await;
    let start = near_minute(Timestamp::now());
    let none = Delay { min: 0, max: 0 };
    cluster.apply(&config("first", start, &none)).await;
    cluster.apply(&config("second", start, &none)).await;

    let mut waiting = None;
    let jobs = wait_for("both jobs end", A_MINUTE + 2 * UPGRADE, async || {
        let jobs = cluster.jobs().await;
        let running: Vec<&UpgradeJob> = jobs
            .iter()
            .filter(|j| matches!(phase(j), Some(JobPhase::Running | JobPhase::Paused)))
            .collect();
        assert!(running.len() <= 1, "two jobs run at once");
        if let Some(one) = running.first() {
            let other = jobs.iter().find(|j| phase(j) == Some(JobPhase::Pending));
            let message = other.and_then(|o| o.status.as_ref()?.message.clone());
            waiting = waiting.take().or(message.filter(|m| m.contains(&one.name_any())));
        }
        (jobs.len() == 2 && jobs.iter().all(is_over)).then_some(jobs)
    })
    .await;

    assert!(
        waiting.is_some(),
        "the second job never said that it waits for the first"
    );
    let mut spans: Vec<_> = jobs
        .iter()
        .map(|j| {
            assert_eq!(phase(j), Some(JobPhase::Succeeded), "{}", j.name_any());
            assert_eq!(j.spec.start_after.0, start);
            let status = j.status.as_ref().unwrap();
            (
                status.started_at.as_ref().unwrap().0,
                status.finished_at.as_ref().unwrap().0,
            )
        })
        .collect();
    spans.sort();
    assert!(
        spans[0].1 <= spans[1].0,
        "the second began before the first had ended: {spans:?}"
    );
    cluster.assert_installed("4.18.5").await;
    cluster.assert_nothing_is_held().await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_operator_that_is_killed_while_the_control_plane_updates_is_carried_on_by_the_next() {
    let cluster = Testbed::fresh(&[]).await;
    let events = [HookEvent::Start, HookEvent::Success, HookEvent::Finish];
    cluster.apply(&hook("notify", &events)).await;
    let job = job_to(
        "killed",
        &cluster.offered("4.18.5").await,
        Timestamp::now(),
        &Delay { min: 5, max: 600 },
    );
    cluster.apply(&job).await;

    let killed_at = wait_for("the control plane updates", SOON, async || {
        let status = cluster.job("killed").await.status?;
        let step = status
            .steps
            .into_iter()
            .find(|s| s.name == "await-control-plane")?;
        (step.phase == StepPhase::Running && step.message?.contains("% done")).then_some(step.started_at?)
    })
    .await;
    let restarts = cluster.operator_restarts().await;
    processes::kill_operator();

    let job = wait_for("the upgrade ends", UPGRADE, async || {
        Some(cluster.job("killed").await).filter(is_over)
    })
    .await;
    assert_eq!(phase(&job), Some(JobPhase::Succeeded));
    assert_eq!(
        cluster.operator_restarts().await,
        restarts + 1,
        "one new container carried on"
    );
    let step = job
        .status
        .iter()
        .flat_map(|s| &s.steps)
        .find(|s| s.name == "await-control-plane")
        .unwrap();
    assert_eq!(
        step.started_at.as_ref(),
        Some(&killed_at),
        "the step went on, and did not begin anew"
    );

    story::assert_same(&cluster.only_workflow().await, &job);
    let mut events: Vec<String> = cluster.hook_pods().await.iter().map(testbed::event_of).collect();
    events.sort();
    assert_eq!(events, ["Finish", "Start", "Success"], "no hook ran twice");
    cluster.assert_installed("4.18.5").await;
    cluster.assert_nothing_is_held().await;
}
