//! Jobs whose workflow, lock or UpgradeJob somebody takes away, and others that are gone.

use jiff::ToSpan;
use openshift_upgrade_operator::{
    api::{
        annotations,
        conditions::{self, types},
        upgrade_job::EngineChoice,
    },
    simulator::argo::node_id,
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    assert_ends,
    ending::{DONE, HELD, Left, UNTOUCHED},
    night::{BY_HAND, CLUSTER_VERSION, Night, UPGRADE_CONFIG, UPGRADE_JOB, WORKFLOW, clock},
};

const START: &str = "Create, Start:Started";
const ALL: &str = "Create, Start:Started, UpgradeComplete:Completed, MachineConfigPoolUnpause night:DelayReached, \
                   Success:Succeeded, Finish:Succeeded";
const RUN: &str = "night-run-1";

fn argo() -> Night {
    Night::by_hand().on(EngineChoice::Argo)
}

fn shut_down(when: &str, how: &str) -> Night {
    argo().patch(when, WORKFLOW, RUN, &json!({"spec": {"shutdown": how}}))
}

fn terminated_before_acceptance() -> Night {
    shut_down("22:00:40", "Terminate")
}

/// It vanishes again and again.
fn deleted() -> Night {
    (1..=5).fold(argo(), |night, n| {
        night.delete(&format!("22:0{n}:30"), WORKFLOW, &format!("night-run-{n}"))
    })
}

/// By hand, in the user interface.
fn node_failed() -> Night {
    let id = node_id(RUN, &format!("{RUN}.await-control-plane"));
    let nodes = json!({id: {"phase": "Failed", "message": "stopped by alice"}});
    argo().patch("22:05", WORKFLOW, RUN, &json!({"status": {"nodes": nodes}}))
}

#[rstest]
#[case::stopped(
    shut_down("22:05", "Stop"),
    "the workflow was stopped by a person. What has begun goes on without this job; to try again, create another \
         UpgradeJob",
    START,
    HELD
)]
#[case::terminated(
    shut_down("22:05", "Terminate"),
    "the workflow was terminated by a person. What has begun goes on without this job; to try again, create another \
         UpgradeJob",
    START,
    HELD
)]
#[case::terminated_before_acceptance(
    terminated_before_acceptance(),
    "the workflow was terminated by a person. Nothing was upgraded; to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::step_failed_by_hand(
    node_failed(),
    "step await-control-plane was ended in the workflow engine, not by the operator: stopped by alice. What has \
         begun goes on without this job; to try again, create another UpgradeJob",
    START,
    HELD
)]
#[case::vanishes_again_and_again(
    deleted().without_hand_over(),
    "the workflow was deleted; it was rendered 5 times. What has begun goes on without this job; to try again, \
         create another UpgradeJob",
    START,
    HELD
)]
fn workflow(#[case] night: Night, #[case] message: &str, #[case] hooks: &str, #[case] left: Left) {
    let hooks = format!("{hooks}, Failure:WorkflowStopped, Finish:WorkflowStopped");
    assert_ends(&night, "Failed/WorkflowStopped", message, &hooks, left);
}

/// Argo keeps the steps elsewhere, or compressed.
fn compressed() -> Night {
    argo().patch(
        "22:05",
        WORKFLOW,
        RUN,
        &json!({"status": {"compressedNodes": "H4sI"}}),
    )
}

#[test]
fn workflow_that_cannot_be_read() {
    assert_ends(
        &compressed().without_hand_over(),
        "Failed/EngineUnsupported",
        "Argo has compressed the steps of workflow night-run-1, because it is too large: shorten the plan (fewer hooks or \
         pools) or use another engine. What has begun goes on without this job: mend that, or use another engine; to try \
         again, create another UpgradeJob",
        &format!("{START}, Failure:EngineUnsupported, Finish:EngineUnsupported"),
        HELD,
    );
}

/// A node that Argo itself ends: its deadline.
fn node_broken() -> Night {
    let id = node_id(RUN, &format!("{RUN}.await-control-plane"));
    let nodes = json!({id: {"phase": "Failed", "message": "Step exceeded its deadline"}});
    argo().patch("22:05", WORKFLOW, RUN, &json!({"status": {"nodes": nodes}}))
}

/// It goes on in another one, or without any.
#[rstest]
#[case::deleted_once(argo().delete("22:05", WORKFLOW, RUN))]
#[case::deleted_again_and_again(deleted())]
#[case::never_picked_up(Night::by_hand().with_idle_argo())]
#[case::compressed(compressed())]
#[case::ended_by_argo_itself(node_broken())]
fn upgrade_that_needs_no_engine(#[case] night: Night) {
    assert_ends(
        &night,
        "Succeeded/Succeeded",
        "Upgrade to 4.18.5 succeeded",
        ALL,
        DONE,
    );
}

/// A job that has not begun waits until it is certain that its engine is gone, or still there, and says so: a workflow that
/// cannot be made would cost it a quarter of an hour, and somebody the sleep. Others may go first: it has no lock.
#[rstest]
#[case::for_good("21:59:30", None, false, "22:02", EngineChoice::Embedded)]
#[case::for_a_moment("21:59:30", Some("22:00:30"), false, "22:00:30", EngineChoice::Argo)]
#[case::with_its_watch("21:59:30", None, true, "22:01:30", EngineChoice::Embedded)]
#[case::with_its_watch_for_a_moment("21:59:30", Some("22:00:30"), true, "22:00:30", EngineChoice::Argo)]
#[case::long_before("21:50", None, true, "22:00", EngineChoice::Embedded)]
#[case::and_back_before("21:59:30", Some("21:59:50"), false, "22:00", EngineChoice::Argo)]
fn an_engine_that_is_removed_before_the_start(
    #[case] when: &str,
    #[case] back: Option<&str>,
    #[case] is_watch_ended: bool,
    #[case] certain: &str,
    #[case] expected: EngineChoice,
) {
    let mut night = Night::by_hand().argo_removed(when, back);
    if is_watch_ended {
        night = night.fault(when, &format!("{}:35", &when[..5]), &json!({"apiServerAway": {}}));
    }
    let morning = night.play();
    morning.assert_all_is_given_back();
    let (ending, status) = (morning.ending(), morning.status());
    assert_eq!(ending.as_, "Succeeded/Succeeded", "{}", ending.message);
    assert_eq!(status.workflow.map(|w| w.engine), Some(expected));
    assert_eq!(status.former_workflows, []);
    assert_eq!(conditions::get(&status.conditions, types::ENGINE_STALLED), None);
    let certain = clock(certain);
    let (locked, started) = (morning.locked_at().unwrap(), status.started_at.unwrap().0);
    assert!(
        (certain..=certain + 30.seconds()).contains(&locked),
        "locked at {locked}, started at {started}"
    );
    assert!(
        (locked - 1.second()..=locked + 5.seconds()).contains(&started),
        "{started}"
    );
    assert_eq!(
        morning.has_said("engine argo may just have been removed"),
        certain > clock("22:00")
    );
}

/// It has no other, and must not keep the lock from those that have.
#[test]
fn a_job_that_names_an_engine_which_is_removed() {
    let night = Night::by_hand()
        .argo_removed("21:59:30", None)
        .config(&json!({"workflow": {"engine": "argo"}}));
    let morning = night.play();
    morning.assert_all_is_given_back();
    let ending = morning.ending();
    assert_eq!(
        ending.as_, "Succeeded/Skipped Expired/EngineMissing",
        "{}",
        ending.message
    );
    assert_eq!(morning.locked_at(), None);
}

/// A person pauses it in Argo, and forgets about it.
#[test]
fn workflow_that_is_suspended() {
    let night = argo().config(&json!({"upgradeTimeout": "85m"})).patch(
        "22:05",
        WORKFLOW,
        RUN,
        &json!({"spec": {"suspend": true}}),
    );
    assert_ends(
        &night,
        "Failed/TimedOut",
        "not done 1h25m after startAfter; was at await-control-plane (the workflow is suspended by a person: \
             nothing is done; to go on: oc -n openshift-upgrade patch workflows.argoproj.io night-run-1 --type merge --patch \
             '{\"spec\":{\"suspend\":null}}'; the job fails at Tue 2026-12-01 23:25 (Europe/Zurich) / 2026-12-01 22:25 UTC). What \
             has begun goes on without this job: see where it is (`oc get \
             clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout \
             longer; to try again, create another UpgradeJob",
        &format!("{START}, Failure:TimedOut, Finish:TimedOut"),
        HELD,
    );
}

fn lock(when: &str, holder: &Value) -> Night {
    let annotations = json!({annotations::UPGRADE_JOB: holder, annotations::UPGRADE_JOB_UID: null});
    let free = json!({annotations::UPGRADE_JOB: null});
    Night::by_hand()
        .patch(
            when,
            CLUSTER_VERSION,
            "version",
            &json!({"metadata": {"annotations": annotations}}),
        )
        .patch(
            "04:30",
            CLUSTER_VERSION,
            "version",
            &json!({"metadata": {"annotations": free}}),
        )
}

#[rstest]
#[case::removed(lock("22:05", &Value::Null), "someone removed our lock from the ClusterVersion. This job touches no pool any more, so some may be paused (condition PoolsLeftPaused): see who changed the annotation managedupgrade.appuio.io/upgrade-job of the ClusterVersion", START, HELD)]
#[case::taken(lock("22:05", &json!("elsewhere/job")), "the lock on the ClusterVersion was taken by elsewhere/job. This job touches no pool any more, so some may be paused (condition PoolsLeftPaused): see who changed the annotation managedupgrade.appuio.io/upgrade-job of the ClusterVersion", START, HELD)]
#[case::taken_before_acceptance(lock("22:00:50", &json!("elsewhere/job")), "the lock on the ClusterVersion was taken by elsewhere/job. This job touches no pool any more, so some may be paused (condition PoolsLeftPaused): see who changed the annotation managedupgrade.appuio.io/upgrade-job of the ClusterVersion", START, HELD)]
#[case::removed_before_acceptance(lock("22:00:50", &Value::Null), "someone removed our lock from the ClusterVersion. This job touches no pool any more, so some may be paused (condition PoolsLeftPaused): see who changed the annotation managedupgrade.appuio.io/upgrade-job of the ClusterVersion", START, Left { paused: &["night: delay"], ..UNTOUCHED })]
fn lock_lost(#[case] night: Night, #[case] message: &str, #[case] hooks: &str, #[case] left: Left) {
    let hooks = format!("{hooks}, Failure:LockLost, Finish:LockLost");
    let night = night.and_later_job();
    assert_ends(&night, "Failed/LockLost", message, &hooks, left);
}

#[rstest]
#[case::of_a_job_that_is_gone("openshift-upgrade/gone")]
#[case::of_nobody("nonsense")]
fn lock_taken_over(#[case] holder: &str) {
    let annotations = json!({annotations::UPGRADE_JOB: holder, annotations::UPGRADE_JOB_UID: "a-uid"});
    let night = Night::by_hand().patch(
        "21:45",
        CLUSTER_VERSION,
        "version",
        &json!({"metadata": {"annotations": annotations}}),
    );
    assert_ends(
        &night,
        "Succeeded/Succeeded",
        "Upgrade to 4.18.5 succeeded",
        ALL,
        DONE,
    );
}

/// The running job lives on; its config is made again from Git, or is gone.
#[test]
fn config_deleted_in_mid_run() {
    let night = Night::pinned().delete("22:05", UPGRADE_CONFIG, "tuesdays");
    assert_ends(
        &night,
        "Succeeded/Succeeded",
        "Upgrade to 4.18.5 succeeded",
        ALL,
        DONE,
    );
}

/// Deleting a job is the way to stop it: nothing is left but what has begun, and no hook runs.
#[rstest]
#[case::before_its_start("21:55", None, "4.18.3", false, "Create")]
#[case::before_acceptance("22:00:50", None, "4.18.3", false, START)]
#[case::during_the_control_plane("22:05", Some("4.18.5"), "4.18.5", true, START)]
fn deleted_job(
    #[case] when: &str,
    #[case] asks_for: Option<&str>,
    #[case] has: &str,
    #[case] held: bool,
    #[case] hooks: &str,
) {
    let morning = Night::by_hand()
        .delete(when, UPGRADE_JOB, BY_HAND)
        .and_later_job()
        .play();
    morning.assert_deleted_job_gave_back(asks_for, has, held);
    let ran: Vec<String> = morning.hook_jobs().into_iter().map(|(_, e)| e).collect();
    assert_eq!(ran.join(", "), hooks);
    morning.assert_later_job_succeeds();
}
