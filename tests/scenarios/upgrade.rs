//! Upgrades that go well.

use jiff::SignedDuration;
use openshift_upgrade_operator::{
    api::{
        UpgradeJob, duration,
        upgrade_job::{EngineChoice, HookState, StepPhase},
    },
    engine::{Engine, NodePhase, argo::Argo, tekton::Tekton},
    plan::Plan,
};
use rstest::rstest;
use serde_json::json;

use crate::harness::{
    NIGHT, Scenario, assert_succeeded, condition, creations, desired, has, history, is_installed, is_owned,
    is_updated, lock,
    objects::{hold_night, hook, in_seconds, job, job_between},
    scenario, scenario_on, status,
    timeline::Timeline,
    until,
};

const EVENTS: [&str; 7] = [
    "Create",
    "Start",
    "UpgradeComplete",
    "MachineConfigPoolUnpause",
    "Success",
    "Failure",
    "Finish",
];

/// One hook for each event, `at-<event>`.
async fn hooks_of_every_event(s: &Scenario) {
    for event in EVENTS {
        s.create(&hook(&format!("at-{}", event.to_lowercase()), &[event]))
            .await;
    }
}

/// The steps of a run with these hooks that holds the night pool, in the order of the plan.
const STEPS: [&str; 25] = [
    "hook-create-at-create",
    "hooks-create",
    "hook-start-at-start",
    "hooks-start",
    "pre-health-check",
    "pause-pools",
    "set-desired-update",
    "await-control-plane",
    "await-pools",
    "post-health-check",
    "hook-upgrade-complete-at-upgradecomplete",
    "hooks-upgrade-complete",
    "hold-x-app-night",
    "hook-unpause-x-app-night-at-machineconfigpoolunpause",
    "hooks-unpause-x-app-night",
    "unpause-x-app-night",
    "await-x-app-night",
    "final-health-check",
    "release",
    "hook-success-at-success",
    "hooks-success",
    "hook-failure-at-failure",
    "hooks-failure",
    "hook-finish-at-finish",
    "hooks-finish",
];

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_made_by_hand_upgrades_the_cluster_and_holds_the_night_pool(
    #[case] engine: &'static dyn Engine,
) {
    scenario_on(engine, &[], async |s| {
        hooks_of_every_event(s).await;
        let start = in_seconds(12);
        let config = json!({"machineConfigPools": hold_night("30m", Some("1h"))});
        s.create(&job_between(
            "by-hand",
            Some("4.18.5"),
            config,
            start,
            in_seconds(3_600),
        ))
        .await;

        s.until_job("by-hand", "all is done but the night pool", |j| {
            has(j, "Paused").is_some()
        })
        .await;
        let pool = s.pool(NIGHT).await;
        assert!(
            pool.spec.paused && !is_updated(&pool),
            "the night pool must be paused and behind: {pool:#?}"
        );
        assert!(is_updated(&s.pool("worker").await));
        // Delays may be edited while the job runs: so this scenario does not depend on the speed of the machine.
        let delay = in_seconds(4).duration_since(start);
        let delay_min = duration::format(delay);
        s.edit_job(
            "by-hand",
            json!({"spec": {"config": {"machineConfigPools": hold_night(&delay_min, Some("1h"))}}}),
        )
        .await;

        let done = s.until_over("by-hand").await;
        assert_succeeded(&done);
        check_conditions(s);
        check_steps(s).await;
        check_hooks(s).await;
        check_writes(s, start + delay);
        check_hold(&done, start + delay);
        let cluster = s.cluster_version().await;
        assert!(is_installed(&cluster, "4.18.5"));
        assert_eq!(history(&cluster), ["4.18.5", "4.18.3"]);
        assert_eq!((lock(&cluster), desired(&cluster)), (None, Some("4.18.5")));
        for name in ["master", "worker", NIGHT] {
            let pool = s.pool(name).await;
            assert!(
                is_updated(&pool) && !pool.spec.paused && !is_owned(&pool),
                "{pool:#?}"
            );
        }
        assert_eq!(status(&done).paused_pools, []);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn without_any_workflow_the_operator_orders_the_steps_itself() {
    scenario(&["--engine", "embedded"], async |s| {
        s.create(&hook("at-start", &["Start"])).await;
        s.create(&hook("at-finish", &["Finish"])).await;
        let config = json!({"machineConfigPools": hold_night("5s", None)});
        s.create(&job("alone", Some("4.18.5"), config)).await;
        let done = s.until_over("alone").await;
        assert_succeeded(&done);
        assert!(s.workflows().await.is_empty(), "no workflow is made");
        assert_eq!(status(&done).workflow.unwrap().engine, EngineChoice::Embedded);
        let ended = Timeline::of(&s.operators_writes(), "alone").ended();
        let position = |step: &str| {
            let at = ended.iter().position(|e| e == step);
            at.unwrap_or_else(|| panic!("{step} did not end: {ended:?}"))
        };
        for (first, then) in [
            ("hook-start-at-start", "pre-health-check"),
            ("pre-health-check", "pause-pools"),
            ("pause-pools", "set-desired-update"),
            ("set-desired-update", "await-control-plane"),
            ("await-control-plane", "unpause-x-app-night"),
            ("await-x-app-night", "final-health-check"),
            ("final-health-check", "release"),
            ("release", "hook-finish-at-finish"),
        ] {
            assert!(
                position(first) < position(then),
                "{first} before {then}: {ended:?}"
            );
        }
        assert_eq!(s.hook_jobs().await.len(), 2);
        let cluster = s.cluster_version().await;
        assert!(is_installed(&cluster, "4.18.5") && lock(&cluster).is_none());
    })
    .await;
}

/// Conditions and reasons are the peer's, on the way and at the end.
fn check_conditions(s: &Scenario) {
    let timeline = Timeline::of(&s.operators_writes(), "by-hand");
    let of = |type_: &str| timeline.condition(type_);
    assert_eq!(of("Started"), ["True/Started"]);
    assert_eq!(of("PreHealthCheckDone").last().unwrap(), "True/Completed");
    assert_eq!(of("UpgradeCompleted"), ["False/InProgress", "True/Completed"]);
    assert_eq!(of("PostHealthCheckDone").last().unwrap(), "True/Completed");
    assert_eq!(
        of("MachineConfigPoolsPaused"),
        ["False/DelaySet", "True/DelaySet", "False/DelaySet"]
    );
    assert_eq!(of("Paused"), ["True/DelaySet", "False/DelaySet"]);
    assert_eq!(of("Succeeded"), ["True/Succeeded"]);
    assert_eq!(of("Failed"), Vec::<String>::new());
    assert_eq!(of("PoolsLeftPaused"), Vec::<String>::new());
    assert_eq!(
        timeline.phases(),
        ["Pending", "Running", "Paused", "Running", "Succeeded"]
    );
}

/// The order is the plan's, and the workflow shows each step once with the text of the status.
async fn check_steps(s: &Scenario) {
    let job = s.job("by-hand").await;
    let recorded = status(&job).steps;
    let names: Vec<&str> = recorded.iter().map(|x| x.name.as_str()).collect();
    assert_eq!(names, STEPS);
    let ended = Timeline::of(&s.operators_writes(), "by-hand").ended();
    let expected: Vec<&str> = STEPS.into_iter().filter(|n| !n.contains("failure")).collect();
    assert_eq!(ended, expected, "the steps ended in another order");

    let plan = Plan::from_value(status(&job).plan.as_ref().unwrap()).unwrap();
    let run = until("the workflow has ended", async || {
        Some(s.run("by-hand-run-1", &plan).await).filter(|r| r.finished)
    })
    .await;
    assert!(
        ["Succeeded", "Completed"].contains(&run.phase.as_str()),
        "{:?}",
        run.message
    );
    for step in recorded.iter().filter(|x| !x.name.contains("create")) {
        let node = run.nodes.iter().find(|n| n.step == step.name);
        let shown = node.map(|n| n.phase);
        if step.phase == StepPhase::Skipped {
            assert!([None, Some(NodePhase::Skipped)].contains(&shown), "{node:#?}");
        } else {
            assert_eq!(
                (shown, step.phase),
                (Some(NodePhase::Succeeded), StepPhase::Succeeded)
            );
            assert_eq!(node.unwrap().message, step.message, "{}", step.name);
        }
    }
}

/// Every hook of an event that came to pass ran exactly once, and is tracked as complete.
async fn check_hooks(s: &Scenario) {
    let writes = s.operators_writes();
    let mut created: Vec<String> = creations(&writes, "jobs")
        .map(|w| {
            w.body["metadata"]["labels"]["upgradejobs.managedupgrade.appuio.io/event"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    created.sort();
    let mut expected: Vec<&str> = EVENTS.into_iter().filter(|e| *e != "Failure").collect();
    expected.sort_unstable();
    assert_eq!(created, expected, "Jobs of hooks");
    let job = s.job("by-hand").await;
    let mut tracked: Vec<String> = status(&job)
        .hook_tracker
        .iter()
        .map(|t| t.hook_event.as_str().to_owned())
        .collect();
    tracked.sort();
    assert_eq!(tracked, expected, "hookTracker");
    assert!(
        status(&job)
            .hook_tracker
            .iter()
            .all(|t| t.status == HookState::Complete),
        "{:#?}",
        status(&job).hook_tracker
    );
    let unpause = status(&job)
        .hook_tracker
        .into_iter()
        .find(|t| t.hook_event.as_str() == "MachineConfigPoolUnpause");
    assert_eq!(unpause.unwrap().tracking_key, NIGHT);
}

/// Each write that matters was made once, and nothing of the night pool moved before its time.
fn check_writes(s: &Scenario, not_before: jiff::Timestamp) {
    let all = s.writes();
    let operators: Vec<_> = all.iter().filter(|w| w.is_operators()).collect();
    let count =
        |is: &dyn Fn(&&&crate::harness::audit::Request) -> bool| operators.iter().filter(|w| is(w)).count();
    assert_eq!(count(&|w| w.is_of_desired_update()), 1, "writes of desiredUpdate");
    assert_eq!(
        count(&|w| w.resource == s.engine.resource().plural && w.verb == "create"),
        2,
        "workflows: Create hooks and the run"
    );
    assert_eq!(count(&|w| w.pauses() == Some(true)), 1, "pauses");
    assert_eq!(count(&|w| w.pauses() == Some(false)), 1, "unpauses");
    let unpaused = operators.iter().find(|w| w.pauses() == Some(false)).unwrap();
    assert!(
        unpaused.at >= not_before,
        "unpaused at {}, not before {not_before}",
        unpaused.at
    );
    let touched = all.iter().find(|w| {
        w.resource == "nodes" && w.name.starts_with(NIGHT) && w.body.to_string().contains("\"Working\"")
    });
    let touched = touched.expect("the nodes of the night pool were updated");
    assert!(
        touched.at >= not_before,
        "a node of the night pool was touched at {}",
        touched.at
    );
}

/// The operator has let the pool go in time. What comes then takes as long as the engine and the pod of a hook.
fn check_hold(job: &UpgradeJob, due: jiff::Timestamp) {
    let steps = status(job).steps;
    let hold = steps.iter().find(|x| x.name == "hold-x-app-night").unwrap();
    let ended = hold.finished_at.as_ref().unwrap().0;
    let late = ended.duration_since(due);
    assert!(late < SignedDuration::from_secs(30), "{late:#} after it was due");
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_without_a_version_is_a_run_of_hooks_and_pools_only() {
    scenario(&[], async |s| {
        hooks_of_every_event(s).await;
        let before = s.cluster_version().await;
        s.create(&job(
            "maintenance",
            None,
            json!({"machineConfigPools": hold_night("10m", Some("1h"))}),
        ))
        .await;
        let done = s.until_over("maintenance").await;
        assert_succeeded(&done);
        let without = ["set-desired-update", "await-control-plane"];
        let expected: Vec<&str> = STEPS.into_iter().filter(|n| !without.contains(n)).collect();
        let names: Vec<String> = status(&done).steps.into_iter().map(|x| x.name).collect();
        assert_eq!(names, expected);
        let message = &has(&done, "Succeeded").unwrap().message;
        assert_eq!(message, "Maintenance without an update succeeded");
        let cluster = s.cluster_version().await;
        assert_eq!(cluster.spec, before.spec);
        assert_eq!((history(&cluster), lock(&cluster)), (vec!["4.18.3"], None));
        // Nothing was pending for the pool: it was not held, and the hook was told so.
        let unpause = s
            .operators_writes()
            .into_iter()
            .find(|w| w.resource == "jobs" && w.body.to_string().contains("MachineConfigPoolUnpause"));
        let environment = unpause.unwrap().body["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let reason = environment
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["name"] == "EVENT_reason")
            .unwrap();
        assert_eq!(reason["value"], "\"Completed\"");
        assert_eq!(
            condition(&done, "MachineConfigPoolsPaused"),
            "MachineConfigPoolsPaused=False/DelaySet"
        );
        assert!(!s.pool(NIGHT).await.spec.paused);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn two_jobs_that_are_due_at_once_run_one_after_the_other() {
    scenario(&[], async |s| {
        let start = in_seconds(4);
        let until = in_seconds(3_600);
        s.create(&job_between("a-first", Some("4.18.4"), json!({}), start, until))
            .await;
        s.create(&job_between("b-second", Some("4.18.5"), json!({}), start, until))
            .await;
        let waiting = s
            .until_job("b-second", "says who has the lock", |j| {
                status(j)
                    .message
                    .is_some_and(|m| m.contains("openshift-upgrade/a-first has the lock"))
            })
            .await;
        assert_eq!(format!("{:?}", status(&waiting).phase.unwrap()), "Pending");
        assert_eq!(
            lock(&s.cluster_version().await),
            Some("openshift-upgrade/a-first")
        );
        let (first, second) = (s.until_over("a-first").await, s.until_over("b-second").await);
        assert_succeeded(&first);
        assert_succeeded(&second);
        assert!(status(&first).finished_at <= status(&second).started_at);
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), lock(&cluster)),
            (vec!["4.18.5", "4.18.4", "4.18.3"], None)
        );
    })
    .await;
}
