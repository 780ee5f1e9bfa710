//! Upgrades that must not start, or must stop: what is left behind, and what is said.

use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job::HookState, upgrade_job_hook::HookEvent},
    openshift::is_true,
};
use serde_json::{Value, json};

use crate::{
    documents_commands,
    harness::{
        NIGHT, Scenario, assert_succeeded,
        audit::Request,
        condition, desired, failure, has, history, is_installed, is_owned, is_updated, lock,
        objects::{failing_hook, hold_night, hook, job, since_start},
        scenario, status, until,
    },
};

/// Hooks at the three events of the end.
async fn hooks_of_the_end(s: &Scenario) {
    for event in ["Success", "Failure", "Finish"] {
        s.create(&hook(&format!("at-{}", event.to_lowercase()), &[event]))
            .await;
    }
}

fn ran(job: &UpgradeJob, event: HookEvent) -> bool {
    status(job)
        .hook_tracker
        .iter()
        .any(|t| t.hook_event == event && t.status == HookState::Complete)
}

/// Failure and Finish ran, Success did not.
fn assert_hooks_of_failure(job: &UpgradeJob) {
    let ran = [HookEvent::Failure, HookEvent::Finish, HookEvent::Success].map(|e| ran(job, e));
    assert_eq!(
        ran,
        [true, true, false],
        "Failure, Finish, Success; {:#?}",
        status(job).hook_tracker
    );
}

fn nothing_desired_was_written(s: &Scenario) {
    let writes = s.operators_writes();
    let desired: Vec<_> = writes.iter().filter(|w| w.is_of_desired_update()).collect();
    assert!(desired.is_empty(), "spec.desiredUpdate was written: {desired:#?}");
}

async fn is_refused_before_the_start(fault: (&str, &str), seen: impl AsyncFnOnce(&Scenario), named: &[&str]) {
    scenario(&[], async |s| {
        hooks_of_the_end(s).await;
        s.fault(fault.0, fault.1).await;
        seen(s).await;
        let before = s.cluster_version().await.spec;
        let config = json!({
            "preUpgradeHealthChecks": {"timeout": "4s"},
            "machineConfigPools": hold_night("10m", None),
        });
        s.create(&job("unhealthy", Some("4.18.5"), config)).await;
        let done = s.until_over("unhealthy").await;

        let message = failure(&done, "PreHealthCheckFailed");
        for part in named {
            assert!(message.contains(part), "{message:?} does not name {part}");
        }
        assert_eq!(
            condition(&done, "PreHealthCheckDone"),
            "PreHealthCheckDone=False/Failed"
        );
        assert_hooks_of_failure(&done);
        let cluster = s.cluster_version().await;
        assert_eq!((&cluster.spec, lock(&cluster)), (&before, None));
        nothing_desired_was_written(s);
        let pool_writes: Vec<_> = s
            .operators_writes()
            .into_iter()
            .filter(|w| w.resource == "machineconfigpools")
            .collect();
        assert!(pool_writes.is_empty(), "{pool_writes:#?}");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_degraded_operator_before_the_start_fails_the_job_and_nothing_is_touched() {
    let seen = async |s: &Scenario| until_degraded(s, "etcd").await;
    let fault = (
        "degraded-operators",
        "etcd EtcdMembersDegraded 1 of 3 members is unhealthy",
    );
    is_refused_before_the_start(
        fault,
        seen,
        &["operator etcd is Degraded", "1 of 3 members is unhealthy"],
    )
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_failing_cluster_version_before_the_start_fails_the_job_and_nothing_is_touched() {
    let seen = async |s: &Scenario| {
        s.until_cluster_version("is Failing", |c| is_true(c.conditions(), "Failing"))
            .await;
    };
    let fault = (
        "failing",
        "ClusterOperatorDegraded Cluster operator ingress is degraded",
    );
    is_refused_before_the_start(
        fault,
        seen,
        &["ClusterVersion is Failing", "operator ingress is degraded"],
    )
    .await;
}

async fn is_rejected(reason: &str, flag: &str) {
    scenario(&[flag, "3s"], async |s| {
        hooks_of_the_end(s).await;
        s.fault(
            "reject",
            &format!("4.18.5 {reason} the simulator does not like it"),
        )
        .await;
        s.until_simulator_has_looked().await;
        s.create(&job(
            "rejected",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("10m", None)}),
        ))
        .await;
        let done = s.until_over("rejected").await;

        let message = failure(&done, "UpgradeRejected");
        assert!(
            message.contains("4.18.5") && message.contains("the simulator does not like it"),
            "{message}"
        );
        assert!(
            has(&done, "IntentWithdrawn").is_some(),
            "{:#?}",
            status(&done).conditions
        );
        assert_hooks_of_failure(&done);
        let cluster = s.cluster_version().await;
        assert_eq!((desired(&cluster), lock(&cluster)), (None, None));
        let writes = s
            .operators_writes()
            .into_iter()
            .filter(Request::is_of_desired_update)
            .count();
        assert_eq!(writes, 2, "set once and withdrawn once");
        // Nothing will come to the pools, so they are given back.
        let night = s.pool(NIGHT).await;
        assert!(!night.spec.paused && !is_owned(&night), "{night:#?}");

        nothing_starts_once_the_cause_is_gone(s, "reject").await;
    })
    .await;
}

/// The cluster-version operator must not begin the upgrade that was given up.
pub async fn nothing_starts_once_the_cause_is_gone(s: &Scenario, fault: &str) {
    s.fault(fault, "").await;
    s.until_simulator_has_looked().await;
    let cluster = s
        .until_cluster_version("the installed release is accepted again", |c| {
            c.is_observed()
                && c.conditions()
                    .iter()
                    .any(|x| x.type_ == "ReleaseAccepted" && x.status == "True")
        })
        .await;
    let accepted = cluster.message_of("ReleaseAccepted");
    assert!(
        accepted.contains("4.18.3"),
        "the release that was given up was accepted: {accepted}"
    );
    assert_eq!((history(&cluster), desired(&cluster)), (vec!["4.18.3"], None));
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_release_that_cannot_be_retrieved_fails_the_job_and_is_withdrawn() {
    is_rejected("RetrievePayload", "--retrieval-grace").await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_release_whose_preconditions_fail_fails_the_job_and_is_withdrawn() {
    is_rejected("PreconditionChecks", "--precondition-grace").await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_that_times_out_leaves_the_held_pool_paused_and_a_later_job_takes_it_over() {
    scenario(&[], async |s| {
        hooks_of_the_end(s).await;
        s.fault("stall-at", "80").await;
        s.create(&job(
            "slow",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("30m", None)}),
        ))
        .await;
        let stalled = s
            .until_job("slow", "tells 80%", |j| {
                status(j).message.is_some_and(|m| m.contains("80% done"))
            })
            .await;
        let timeout = since_start(&stalled, 2);
        let config = json!({"upgradeTimeout": timeout, "machineConfigPools": hold_night("1s", None)});
        s.edit_job("slow", json!({"spec": {"config": config}})).await;
        let failed = s.until_over("slow").await;

        let message = failure(&failed, "TimedOut");
        assert!(
            message.contains("await-control-plane") && message.contains("80% done"),
            "{message}"
        );
        assert_hooks_of_failure(&failed);
        let paused: Vec<String> = status(&failed).paused_pools.into_iter().map(|p| p.name).collect();
        assert_eq!(paused, [NIGHT]);
        let left = has(&failed, "PoolsLeftPaused").expect("the condition PoolsLeftPaused");
        assert!(
            left.message.contains("oc patch machineconfigpool x-app-night"),
            "{}",
            left.message
        );
        let cluster = s.cluster_version().await;
        assert_eq!(
            (desired(&cluster), lock(&cluster)),
            (Some("4.18.5"), None),
            "an upgrade under way goes on"
        );

        // What the runbooks are for.
        documents_commands::all_are_understood(s, "slow").await;

        s.fault("stall-at", "").await;
        s.until_cluster_version("4.18.5 is installed", |c| is_installed(c, "4.18.5"))
            .await;
        s.until_pool("worker", "is updated", is_updated).await;
        let night = s
            .until_pool(NIGHT, "has the new configuration pending", |p| !is_updated(p))
            .await;
        assert!(night.spec.paused, "nobody may unpause it: {night:#?}");

        s.create(&job(
            "later",
            None,
            json!({"machineConfigPools": hold_night("1s", None)}),
        ))
        .await;
        let later = s.until_over("later").await;
        assert_succeeded(&later);
        let night = s.pool(NIGHT).await;
        assert!(
            !night.spec.paused && !is_owned(&night) && is_updated(&night),
            "{night:#?}"
        );
        let first = s
            .until_job("slow", "lists no pool any more", |j| {
                status(j).paused_pools.is_empty()
            })
            .await;
        assert_eq!(
            condition(&first, "PoolsLeftPaused"),
            "PoolsLeftPaused=False/Completed"
        );
        let unpaused = s
            .operators_writes()
            .into_iter()
            .filter(|w| w.pauses() == Some(false))
            .count();
        assert_eq!(unpaused, 1, "unpaused once, by the later job");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_pool_that_cannot_be_unpaused_by_delay_max_fails_the_job_and_says_what_held_it() {
    scenario(&[], async |s| {
        hooks_of_the_end(s).await;
        s.fault("stall-at", "50").await;
        s.create(&job(
            "held",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("1s", Some("1h"))}),
        ))
        .await;
        let stalled = s
            .until_job("held", "tells 50%", |j| {
                status(j).message.is_some_and(|m| m.contains("50% done"))
            })
            .await;
        let limit = since_start(&stalled, 2);
        s.edit_job(
            "held",
            json!({"spec": {"config": {"machineConfigPools": hold_night("1s", Some(&limit))}}}),
        )
        .await;
        let failed = s.until_over("held").await;

        let message = failure(&failed, "UnpausingPoolsExpired");
        for part in [
            "x-app-night could not be unpaused by",
            "await-control-plane (50% done",
        ] {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
        assert_hooks_of_failure(&failed);
        assert!(s.pool(NIGHT).await.spec.paused);
        assert!(has(&failed, "PoolsLeftPaused").is_some());
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_pool_that_an_unhealthy_cluster_holds_until_delay_max_stays_paused_and_the_offender_is_named() {
    scenario(&[], async |s| {
        s.create(&job(
            "canary",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("30m", Some("1h"))}),
        ))
        .await;
        s.until_job("canary", "only the night pool is left", |j| {
            has(j, "Paused").is_some()
        })
        .await;
        s.fault(
            "degraded-operators",
            "ingress CanaryFailed the canary route does not answer",
        )
        .await;
        until_degraded(s, "ingress").await;
        // Released, but the cluster is not healthy.
        s.edit_job(
            "canary",
            json!({"spec": {"config": {"machineConfigPools": hold_night("1s", Some("1h"))}}}),
        )
        .await;
        let held = s
            .until_job("canary", "says that its nodes are not touched", |j| {
                status(j)
                    .message
                    .is_some_and(|m| m.contains("its nodes are not touched before that is mended"))
            })
            .await;
        let limit = since_start(&held, 1);
        s.edit_job(
            "canary",
            json!({"spec": {"config": {"machineConfigPools": hold_night("1s", Some(&limit))}}}),
        )
        .await;
        let failed = s.until_over("canary").await;

        let message = failure(&failed, "UnpausingPoolsExpired");
        for part in [
            "hold-x-app-night",
            "operator ingress is Degraded",
            "the canary route does not answer",
        ] {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
        let night = s.pool(NIGHT).await;
        assert!(
            night.spec.paused && is_owned(&night) && !is_updated(&night),
            "{night:#?}"
        );
        assert!(has(&failed, "PoolsLeftPaused").is_some());
        assert!(!s.operators_writes().iter().any(|w| w.pauses() == Some(false)));
    })
    .await;
}

async fn until_degraded(s: &Scenario, operator: &str) {
    let api = s.cluster_operators();
    until(&format!("operator {operator} is Degraded"), async || {
        let found = api.get(operator).await.ok()?;
        is_true(found.conditions(), "Degraded").then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_hook_with_abort_that_fails_ends_the_job_and_is_named() {
    scenario(&[], async |s| {
        hooks_of_the_end(s).await;
        s.create(&failing_hook("strict", &["Start"], "Abort")).await;
        s.create(&job(
            "aborted",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("10m", None)}),
        ))
        .await;
        let done = s.until_over("aborted").await;

        let message = failure(&done, "HookFailed");
        let created = s
            .operators_writes()
            .into_iter()
            .find(|w| w.resource == "jobs" && w.name.contains("strict"));
        let name = created.expect("the Job of the hook").name;
        assert!(
            message.contains("hook strict") && message.contains(&name),
            "{message:?}, Job {name}"
        );
        assert_hooks_of_failure(&done);
        nothing_desired_was_written(s);
        assert_eq!(lock(&s.cluster_version().await), None);
        assert!(!s.pool(NIGHT).await.spec.paused);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_hook_with_ignore_that_fails_is_recorded_and_the_upgrade_goes_on() {
    scenario(&[], async |s| {
        let events: Value = json!(["Start", "UpgradeComplete", "Finish"]);
        let mut lenient = failing_hook("lenient", &[], "Ignore");
        lenient["spec"]["events"] = events;
        s.create(&lenient).await;
        s.create(&job("lenient", Some("4.18.5"), json!({}))).await;
        let done = s.until_over("lenient").await;

        assert_succeeded(&done);
        let tracker = status(&done).hook_tracker;
        assert_eq!(tracker.len(), 3, "{tracker:#?}");
        assert!(
            tracker
                .iter()
                .all(|t| t.status == HookState::Failed && t.message.contains("failed")),
            "{tracker:#?}"
        );
        let step = status(&done)
            .steps
            .into_iter()
            .find(|x| x.name == "hooks-start")
            .unwrap();
        assert!(
            step.message.as_ref().unwrap().contains("1 failed and ignored"),
            "{step:#?}"
        );
        assert!(is_installed(&s.cluster_version().await, "4.18.5"));
    })
    .await;
}
