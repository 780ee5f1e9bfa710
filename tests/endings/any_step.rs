//! What can happen in every step: the timeout, another target, edits by people.

use openshift_upgrade_operator::api::upgrade_job::EngineChoice;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    assert_ends,
    ending::{DONE, GOES_ON, HELD, Left, UNTOUCHED},
    night::{HOOK, NEW, NEWER, Night, UPGRADE_JOB},
};

/// The job fails at midnight, and no check gives up before.
fn patient() -> Night {
    Night::by_hand().config(&json!({
        "upgradeTimeout": "2h",
        "preUpgradeHealthChecks": {"timeout": "10h"},
        "postUpgradeHealthChecks": {"timeout": "10h", "checkCriticalAlerts": true},
        "machineConfigPools": [{"matchLabels": {"name": "night-maintenance"}, "delayUpgrade": {"delayMin": "45m"}}],
    }))
}

/// A job that comes to this step and no further before `until`.
fn stuck_in(step: &str, until: &str) -> Night {
    let hook = |event: &str| patient().hook("ask", event, "Ignore");
    let fault = |from: &str, fault: Value| patient().fault(from, until, &fault);
    let alert = |from: &str| patient().alert(from, until, "EtcdNoLeader");
    let hooks_last = |night: Night| match until {
        "04:30" => night.hook_jobs("ask", "Hangs", "1m"),
        _ => night.hook_jobs("ask", "Succeeds", "30m"),
    };
    match step {
        "hook-start-ask" => hooks_last(hook("Start")),
        "pre-health-check" => fault("21:45", json!({"failing": {"message": "etcd has no quorum"}})),
        "set-desired-update" => fault(
            "21:55",
            json!({"updateServiceAway": {"message": "no route to host"}}),
        ),
        "await-control-plane" => fault("21:45", json!({"stuckOperator": {"operator": "etcd"}})),
        "await-pools" => fault(
            "21:45",
            json!({"stuckDrain": {"node": "worker-0", "pod": "shop/db-0"}}),
        ),
        "post-health-check" => alert("22:06"),
        "hook-upgrade-complete-ask" => hooks_last(hook("UpgradeComplete")),
        "hold-night" => alert("22:20"),
        "hook-unpause-night-ask" => hooks_last(hook("MachineConfigPoolUnpause")),
        "await-night" => fault(
            "21:45",
            json!({"stuckDrain": {"node": "night-0", "pod": "shop/db-1"}}),
        ),
        "final-health-check" => alert("22:46"),
        other => panic!("no story for {other}"),
    }
}

const START: &str = "Create, Start:Started";
const COMPLETE: &str = "Create, Start:Started, UpgradeComplete:Completed";
/// The held pool does not wait for the others.
const UNPAUSE_ALONE: &str = "Create, Start:Started, MachineConfigPoolUnpause night:DelayReached";
const UNPAUSE: &str =
    "Create, Start:Started, UpgradeComplete:Completed, MachineConfigPoolUnpause night:DelayReached";

#[rstest]
#[case::hook_start(
    "hook-start-ask",
    "not done 2h after startAfter; was at hook-start-ask (waiting for hooks of Start: hook ask). Nothing was \
         upgraded: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what keeps \
         it, or make upgradeTimeout longer; to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::pre_health_check(
    "pre-health-check",
    "not done 2h after startAfter; was at pre-health-check (not healthy: ClusterVersion is Failing: etcd has no \
         quorum; waiting until Wed 2026-12-02 08:00:30 (Europe/Zurich) / 2026-12-02 07:00:30 UTC). Nothing was \
         upgraded: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what keeps \
         it, or make upgradeTimeout longer; to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::await_control_plane(
    "await-control-plane",
    "not done 2h after startAfter; was at await-control-plane (84% done, waiting on etcd over 30 minutes which is \
         longer than expected). What has begun goes on without this job: see where it is (`oc get \
         clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout longer; \
         to try again, create another UpgradeJob",
    START,
    GOES_ON
)]
#[case::await_pools(
    "await-pools",
    "not done 2h after startAfter; was at await-pools (worker: 0 of 1 updated, 1 degraded \
     (worker-0: failed to drain node: worker-0 after 1h. Please see machine-config-controller logs for more information); \
     worker-0 draining for 1h50m (1 pod left): shop/db-0 blocked by PDB shop/db-0 (0 allowed)). What has begun goes on \
         without this job: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what \
         keeps it, or make upgradeTimeout longer; to try again, create another UpgradeJob",
    UNPAUSE_ALONE,
    DONE
)]
#[case::post_health_check(
    "post-health-check",
    "not done 2h after startAfter; was at post-health-check (not healthy: critical alert EtcdNoLeader; waiting \
         until Wed 2026-12-02 08:08:12 (Europe/Zurich) / 2026-12-02 07:08:12 UTC); hold-night (not healthy: \
         critical alert EtcdNoLeader; its nodes are not touched before that is mended). What has begun goes on \
         without this job: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what \
         keeps it, or make upgradeTimeout longer; to try again, create another UpgradeJob",
    START,
    HELD
)]
#[case::hook_upgrade_complete(
    "hook-upgrade-complete-ask",
    "not done 2h after startAfter; was at hook-upgrade-complete-ask (waiting for hooks of UpgradeComplete: hook \
         ask). What has begun goes on without this job: see where it is (`oc get \
         clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout longer; \
         to try again, create another UpgradeJob",
    UNPAUSE,
    DONE
)]
#[case::hold(
    "hold-night",
    "not done 2h after startAfter; was at hold-night (not healthy: critical alert EtcdNoLeader; its nodes are not \
         touched before that is mended). What has begun goes on without this job: see where it is (`oc get \
         clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout longer; \
         to try again, create another UpgradeJob",
    COMPLETE,
    HELD
)]
#[case::hook_unpause(
    "hook-unpause-night-ask",
    "not done 2h after startAfter; was at hook-unpause-night-ask (waiting for hooks of MachineConfigPoolUnpause: \
         hook ask for pool night). What has begun goes on without this job: see where it is (`oc get \
         clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout longer; \
         to try again, create another UpgradeJob",
    UNPAUSE,
    HELD
)]
#[case::await_night(
    "await-night",
    "not done 2h after startAfter; was at await-night (night: 0 of 1 updated, 1 degraded \
     (night-0: failed to drain node: night-0 after 1h. Please see machine-config-controller logs for more information); \
     night-0 draining for 1h10m (1 pod left): shop/db-1 blocked by PDB shop/db-1 (0 allowed)). What has begun goes on \
         without this job: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what \
         keeps it, or make upgradeTimeout longer; to try again, create another UpgradeJob",
    UNPAUSE,
    DONE
)]
#[case::final_health_check(
    "final-health-check",
    "not done 2h after startAfter; was at final-health-check (not healthy: critical alert EtcdNoLeader; waiting \
         until Wed 2026-12-02 08:47:30 (Europe/Zurich) / 2026-12-02 07:47:30 UTC). What has begun goes on without \
         this job: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what keeps \
         it, or make upgradeTimeout longer; to try again, create another UpgradeJob",
    UNPAUSE,
    DONE
)]
fn upgrade_timeout(#[case] step: &str, #[case] message: &str, #[case] hooks: &str, #[case] left: Left) {
    let night = stuck_in(step, "04:30");
    let hooks = format!("{hooks}, Failure:TimedOut, Finish:TimedOut");
    assert_ends(&night, "Failed/TimedOut", message, &hooks, left);
}

/// Its own wait is bounded by the timeout, and its reason is more exact.
#[test]
fn upgrade_timeout_while_the_version_is_not_known() {
    let night =
        stuck_in("set-desired-update", "04:30").job(&json!({"startBefore": crate::night::at("04:00")}));
    let hooks = format!("{START}, Failure:UpdateServiceUnavailable, Finish:UpdateServiceUnavailable");
    assert_ends(
        &night,
        "Failed/UpdateServiceUnavailable",
        "set-desired-update: the update service does not answer, so nobody knows whether 4.18.5 is still offered: \
             Unable to retrieve available updates: no route to host. Nothing was upgraded: see why the cluster does \
             not reach its update service (spec.upstream of the ClusterVersion, proxy); to try again, create \
             another UpgradeJob",
        &hooks,
        UNTOUCHED,
    );
}

/// What is paused by somebody is not waited for, but the job does not succeed either.
#[test]
fn upgrade_timeout_while_someone_pauses_a_pool() {
    let pause = |paused: bool| json!({"spec": {"paused": paused}});
    let night = patient()
        .patch("21:45", crate::night::POOL, "worker", &pause(true))
        .patch("04:30", crate::night::POOL, "worker", &pause(false));
    let hooks = format!("{UNPAUSE}, Failure:TimedOut, Finish:TimedOut");
    let left = Left {
        paused: &["worker: someone"],
        ..DONE
    };
    assert_ends(
        &night,
        "Failed/TimedOut",
        "not done 2h after startAfter; all done but worker, paused by someone else; the job ends when the pool is \
             unpaused and updated. What has begun goes on without this job: see where it is (`oc get \
             clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout \
             longer; to try again, create another UpgradeJob",
        &hooks,
        left,
    );
}

const NEWER_THERE: Left = Left {
    asks_for: Some(NEWER),
    has: NEWER,
    paused: &[],
};
const NEWER_HELD: Left = Left {
    paused: &["night: delay"],
    ..NEWER_THERE
};

#[rstest]
#[case::await_control_plane("await-control-plane", START, NEWER_HELD)]
#[case::await_pools("await-pools", START, NEWER_HELD)]
#[case::post_health_check("post-health-check", START, NEWER_HELD)]
#[case::hook_upgrade_complete("hook-upgrade-complete-ask", COMPLETE, NEWER_HELD)]
#[case::hold("hold-night", COMPLETE, NEWER_HELD)]
#[case::hook_unpause("hook-unpause-night-ask", UNPAUSE, NEWER_HELD)]
#[case::await_night("await-night", UNPAUSE, NEWER_THERE)]
#[case::final_health_check("final-health-check", UNPAUSE, NEWER_THERE)]
fn another_target(#[case] step: &str, #[case] hooks: &str, #[case] left: Left) {
    let message = "someone changed spec.desiredUpdate of the ClusterVersion from 4.18.5 to 4.18.6. This job does \
         not fight over it: see who it was (`oc get clusterversion version -o yaml --show-managed-fields`), and \
         watch what the cluster does now";
    let asked = if left.paused.is_empty() || step.contains("unpause") {
        "22:50"
    } else {
        "22:30"
    };
    let night = stuck_in(step, "23:30").someone_asks_for(asked, NEWER);
    let hooks = format!("{hooks}, Failure:DesiredUpdateChanged, Finish:DesiredUpdateChanged");
    let in_step = if step == "await-control-plane" {
        "await-control-plane: "
    } else {
        ""
    };
    assert_ends(
        &night,
        "Failed/DesiredUpdateChanged",
        &format!("{in_step}{message}"),
        &hooks,
        left,
    );
}

const SUPERSEDED: &str = "Superseded: the cluster is at 4.18.6, newer than 4.18.5. To upgrade all the same, create \
     another UpgradeJob";

/// Before our version is set the other one goes first; then ours is older than what is there, and the job must not go back.
#[rstest]
#[case::before_the_start("", "21:56", true, NEWER_THERE)]
#[case::hook_start("hook-start-ask", "22:10", true, NEWER_THERE)]
#[case::pre_health_check("pre-health-check", "22:10", true, NEWER_THERE)]
#[case::whether_it_is_offered_or_not("pre-health-check", "22:10", false, NEWER_THERE)]
#[case::set_desired_update("set-desired-update", "22:10", true, NEWER_HELD)]
fn a_newer_target_before_ours_was_set(
    #[case] step: &str,
    #[case] when: &str,
    #[case] checks: bool,
    #[case] left: Left,
) {
    let night = if step.is_empty() {
        patient()
    } else {
        stuck_in(step, "22:40")
    };
    let night = night
        .job(&json!({"desiredVersionCheckAvailability": checks}))
        .someone_asks_for(when, NEWER);
    let hooks = format!("{START}, Success:Skipped, Finish:Skipped");
    assert_ends(&night, "Succeeded/Skipped", SUPERSEDED, &hooks, left);
}

/// The workflow ends as well, and runs no hook of a failure.
#[test]
fn a_newer_target_before_ours_was_set_with_argo() {
    let night = stuck_in("pre-health-check", "22:40")
        .on(EngineChoice::Argo)
        .someone_asks_for("22:10", NEWER);
    assert_ends(
        &night,
        "Succeeded/Skipped",
        SUPERSEDED,
        &format!("{START}, Success:Skipped, Finish:Skipped"),
        NEWER_THERE,
    );
}

/// An older target before ours was set goes first, and the job upgrades from there.
#[test]
fn an_older_target_before_ours_was_set() {
    let night = patient().someone_asks_for("21:56", "4.18.4");
    let morning = night.play();
    assert_eq!(
        morning.ending().as_,
        "Succeeded/Succeeded",
        "{}",
        morning.ending().message
    );
    let asked: Vec<Option<String>> = ["4.18.4", NEW].map(|v| Some(v.to_owned())).to_vec();
    assert_eq!(morning.asked_for(), asked);
}

/// The upgrade is done, with the hooks of its end.
fn assert_succeeds(night: &Night, left: Left) {
    let hooks = format!("{UNPAUSE}, Success:Succeeded, Finish:Succeeded");
    assert_ends(
        night,
        "Succeeded/Succeeded",
        "Upgrade to 4.18.5 succeeded",
        &hooks,
        left,
    );
}

/// After the end it is no business of the job.
#[test]
fn another_target_after_the_end() {
    let night = Night::by_hand().someone_asks_for("23:00", NEWER);
    assert_succeeds(&night, NEWER_THERE);
}

/// What was accepted is installed.
#[test]
fn a_target_that_is_removed_after_it_was_accepted() {
    let night = Night::by_hand().desired("22:05", &Value::Null);
    let left = Left {
        asks_for: None,
        ..DONE
    };
    assert_succeeds(&night, left);
}

#[test]
fn a_timeout_that_is_shortened_in_mid_run_counts_at_once() {
    let night = stuck_in("await-control-plane", "04:30").patch(
        "22:30",
        UPGRADE_JOB,
        "night",
        &json!({"spec": {"config": {"upgradeTimeout": "50m"}}}),
    );
    let hooks = format!("{START}, Failure:TimedOut, Finish:TimedOut");
    assert_ends(
        &night,
        "Failed/TimedOut",
        "not done 50m after startAfter; was at await-control-plane (84% done, waiting on etcd over 30 minutes which \
             is longer than expected). What has begun goes on without this job: see where it is (`oc get \
             clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout \
             longer; to try again, create another UpgradeJob",
        &hooks,
        GOES_ON,
    );
}

#[test]
fn a_hook_that_is_deleted_in_mid_run_is_skipped() {
    let night = Night::by_hand()
        .hook("guard", "UpgradeComplete", "Abort")
        .hook_jobs("guard", "Fails", "1m")
        .delete("22:03", HOOK, "guard");
    assert_succeeds(&night, DONE);
}

/// Its Job has begun, and is waited for; but its policy is gone.
#[test]
fn a_hook_that_is_deleted_while_its_job_runs() {
    let night = Night::by_hand()
        .hook("guard", "UpgradeComplete", "Abort")
        .hook_jobs("guard", "Fails", "5m")
        .delete("22:12", HOOK, "guard");
    assert_succeeds(&night, DONE);
}

#[test]
fn a_hook_that_is_edited_while_its_job_runs_counts_as_it_is_then() {
    let night = Night::by_hand()
        .hook("guard", "UpgradeComplete", "Ignore")
        .hook_jobs("guard", "Fails", "5m")
        .patch(
            "22:12",
            HOOK,
            "guard",
            &json!({"spec": {"failurePolicy": "Abort"}}),
        );
    let hooks = format!("{COMPLETE}, Failure:HookFailed, Finish:HookFailed");
    assert_ends(
        &night,
        "Failed/HookFailed",
        "hook-upgrade-complete-guard: hook guard failed: Job job-of-guard failed: Job has \
             reached the specified backoff limit (BackoffLimitExceeded). What has begun goes on without this job: \
             read the logs of its pods, and mend the hook; to try again, create another UpgradeJob",
        &hooks,
        HELD,
    );
}
